"""Findings made up for tests of pages: every kind of case, in numbers that look like those of a campaign."""

from __future__ import annotations

import math

import numpy as np

from gequiv.plotting.grid import support_grid
from gequiv.simulation.campaign.files import parse_campaign
from gequiv.simulation.campaign.findings import (
    Analysis,
    ClaimFinding,
    Estimate,
    LawFinding,
    ModelFinding,
    MomentRow,
    OutlierRow,
    Power,
    Rate,
)

HOSTILE = '<script>alert("$x$ & co")</script>'
SOURCE = """
version = 1
name = "made-up"
title = 'Made up: <b>&</b>'
description = '''
Heads of 256 to 1024 tokens against three laws, to see where each of them holds: the finite-size law everywhere, that of
the limit theorem where d_k grows with n, and Marchenko–Pastur nowhere. Nothing here was drawn.'''
[defaults]
draws = 4
laws = ["finite", "limit", "marchenko-pastur"]
[[grid]]
name = "map"
tokens = [256, 512, 1024]
head_dim = "tokens/2"
beta = [0.5, 1.0, 1.5]
mask = ["none", "causal"]
[[grid]]
name = '<script>alert("$x$ & co")</script>'
tokens = 300
head_dim = 16
beta = 0.5
score = "softplus(x)"
laws = ["limit", "marchenko-pastur"]
[[grid]]
name = "one draw"
tokens = 400
head_dim = 64
beta = [1.0, 2.0]
draws = 1
[[grid]]
name = "frozen rows"
tokens = [512, 1024, 2048]
head_dim = 64
gamma = [0.25, 0.5, 1.0, 1.5, 2.0, 2.5]
statistics = ["rows"]
laws = []
[[claims]]
kind = "agreement"
law = "finite"
tolerance = 0.02
"""


def estimate(value: float, error: float | None, draws: int = 4) -> Estimate:
    if error is None or draws < 2:
        return Estimate(value, None, None, None)
    return Estimate(value, error, value - 3.18 * error, value + 3.18 * error)


def model_finding(model, draws=None):
    """As many draws as the model has, of a histogram after the limit law of an unmasked head."""
    from gequiv.attention import Attention

    generator = np.random.default_rng(model.seeds[0])
    draws = len(model.seeds) if draws is None else draws
    head = model.head
    if draws == 0:
        laws = tuple(LawFinding(name, None) for name in model.laws)
        return ModelFinding(model, 0, laws, None, None, None, {}, {})
    if "rows" in model.plan.statistics:
        variance = model.head.beta**2
        expected = {
            "log_normaliser": math.log(head.columns) + variance / 2,
            "log_normaliser_sd": math.sqrt(math.expm1(variance) / head.columns),
            "participation": head.columns * math.exp(-variance),
            "largest": min(
                1.0, math.exp(head.beta * math.sqrt(2 * math.log(head.columns)) - variance / 2) / head.columns
            ),
        }
        rows = {
            name: estimate(value * (1 + 0.05 * generator.standard_normal()), 0.02 * abs(value), draws)
            for name, value in expected.items()
        }
        del expected["largest"]
        return ModelFinding(model, draws, (), None, None, None, rows, expected)
    law = Attention(head.tokens, head.head_dim, min(head.beta, 1.5)).limit_law().singular_values()
    grid = support_grid(law, 600)
    density = np.asarray(law.pdf(grid))
    edges = np.linspace(0, 1.1 * grid[-1], 51)
    heights = np.diff(np.asarray(law.cdf(edges))) / np.diff(edges)
    heights = np.maximum(0, heights * (1 + 0.08 * generator.standard_normal(50)))
    found = []
    for k, name in enumerate(model.laws):
        if name == "limit" and head.mask is not None:
            found.append(LawFinding(name, "the limit law is that of attention without mask and alibi"))
            continue
        ks = (0.3 / head.tokens**0.6, 3 * head.beta / head.tokens**0.7, 0.1 * head.beta)[k]
        moments = tuple(
            MomentRow(order, 1.7**order, 1.7**order * (1 + 0.01 * k), None if draws < 2 else 0.02 * 1.7**order, None)
            for order in (1, 2, 3, 4)
        )
        if draws > 1:
            moments = tuple(
                MomentRow(m.order, m.sample, m.law, m.error, (m.sample - m.law) / m.error - 4 * k) for m in moments
            )
        outliers = ()
        if name == "finite":
            top = float(grid[-1])
            outliers = (
                OutlierRow(1, 1.21 * top**2, "column direction", estimate(1.2 * top**2, 0.03, draws)),
                OutlierRow(2, top**2, "edge", estimate(0.98 * top**2, 0.01, draws)),
            )
        found.append(
            LawFinding(
                name,
                None,
                estimate(ks, 0.04 * ks, draws),
                estimate(0.7 * ks, 0.05 * ks, draws),
                0.9 * ks,
                moments,
                outliers,
                grid,
                density * (1 - 0.1 * k),
            )
        )
    noise = 0.2 / head.tokens if draws > 1 else None
    return ModelFinding(model, draws, tuple(found), noise, edges, heights, {}, {})


def rates(models, law):
    for mask in ("none", "causal"):
        for beta in (0.5, 1.0, 1.5):
            line = [m for m in models if m.model.head.beta == beta and m.model.parameters()["mask"] == mask]
            found = [(m.model.head.tokens, next((f.ks for f in m.laws if f.law == law), None)) for m in line]
            points = tuple((float(n), ks.value, ks.error) for n, ks in found if ks is not None)
            if len(points) > 1:
                axes = {"head_dim": "tokens/2", "beta": beta, "mask": mask}
                exponent = estimate(-0.7 - 0.1 * beta, 0.02)
                yield Rate("map", law, "tokens", axes, points, exponent, curved=beta == 1.5)


def made_up(source=SOURCE):
    """Several groups: maps and rates, hostile names, one draw, no draws, rows alone; claims of every verdict."""
    campaign = parse_campaign(source)
    models = [model_finding(model) for model in campaign.models]
    short = next((k for k, m in enumerate(models) if m.model.group == "map"), None)
    if short is not None:
        models[short] = model_finding(models[short].model, 3)
        models[short + 7] = model_finding(models[short + 7].model, 0)
    grid = [m for m in models if m.model.group == "map"]
    lines = [rate for law in ("finite", "limit") for rate in rates(grid, law)]
    claims = []
    for k, finding in enumerate(grid):
        verdict = "failed" if k == 3 else "not enough draws" if finding.draws == 0 else "held"
        ks = finding.laws[0].ks
        reason = "no draws" if ks is None else f"mean KS is {ks.value:.4f}, at most {ks.high:.4f}"
        claims.append(
            ClaimFinding(
                "agreement",
                "KS to the finite-size law is at most 0.02",
                finding.model.title,
                ks,
                "KS at most 0.02",
                verdict,
                reason,
                Power(0.0231, True, "a true mean KS of 0.0231 would have failed with probability 95 %"),
            )
        )
    claims.append(
        ClaimFinding(
            "moments", HOSTILE, HOSTILE, None, HOSTILE, "held", HOSTILE, Power(None, False, "one draw has no error bar")
        )
    )
    claims.append(
        ClaimFinding(
            "rate",
            "KS to the limit law goes as a power of n",
            "head_dim = tokens/2, beta = 0.5",
            estimate(-0.75, 0.02),
            "exponent at most -0.5",
            "held",
            "the exponent is -0.75, between -0.81 and -0.69",
            Power(-0.44, True, "an exponent above -0.44 would have failed with probability 95 %"),
        )
    )
    return Analysis(campaign, (), tuple(models), tuple(lines), tuple(claims), missing=5, damaged=1)
