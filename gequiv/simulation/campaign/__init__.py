"""Campaigns: many draws of many heads, which resume, spread over machines, and end in a report."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gequiv.simulation.campaign.analysis import analyse
    from gequiv.simulation.campaign.cost import Cost, ModelCost, estimate_cost
    from gequiv.simulation.campaign.execution import CampaignInterrupted, Failure, RunSummary, run
    from gequiv.simulation.campaign.files import parse_campaign, read_campaign
    from gequiv.simulation.campaign.findings import (
        Analysis,
        ClaimFinding,
        DrawRow,
        Estimate,
        LawFinding,
        ModelFinding,
        MomentRow,
        OutlierRow,
        Power,
        Rate,
    )
    from gequiv.simulation.campaign.model import Campaign, Claim, Model, Plan, Task
    from gequiv.simulation.campaign.store import Store
    from gequiv.simulation.campaign.tables import Table, write_tables

# imported on first use
_MODULES = {
    "analysis": ("analyse",),
    "cost": ("Cost", "ModelCost", "estimate_cost"),
    "execution": ("CampaignInterrupted", "Failure", "RunSummary", "run"),
    "files": ("parse_campaign", "read_campaign"),
    "findings": (
        "Analysis",
        "ClaimFinding",
        "DrawRow",
        "Estimate",
        "LawFinding",
        "ModelFinding",
        "MomentRow",
        "OutlierRow",
        "Power",
        "Rate",
    ),
    "model": ("Campaign", "Claim", "Model", "Plan", "Task"),
    "store": ("Store",),
    "tables": ("Table", "write_tables"),
}
_LAZY = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Analysis",
    "Campaign",
    "CampaignInterrupted",
    "Claim",
    "ClaimFinding",
    "Cost",
    "DrawRow",
    "Estimate",
    "Failure",
    "LawFinding",
    "Model",
    "ModelCost",
    "ModelFinding",
    "MomentRow",
    "OutlierRow",
    "Plan",
    "Power",
    "Rate",
    "RunSummary",
    "Store",
    "Table",
    "Task",
    "analyse",
    "estimate_cost",
    "parse_campaign",
    "read_campaign",
    "run",
    "write_tables",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f"gequiv.simulation.campaign.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'gequiv.simulation.campaign' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
