"""Derivations with sympy, from the exponential and the normaliser to the density, without the numerical library.

Imported on demand: sympy is loaded when a name of this room is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gequiv.symbolic.curve import SpectralCurve, spectral_curve
    from gequiv.symbolic.derivation import Derivation, DerivationError
    from gequiv.symbolic.expansions import edge_gap, right_edge_large_beta, right_edge_small_beta
    from gequiv.symbolic.hermite import HermiteCoefficients, SymbolicLinearModel, hermite_coefficients, linear_model
    from gequiv.symbolic.pencil import DysonEquation, dyson_equation
    from gequiv.symbolic.taylor import TaylorStep, taylor_attention

_HOME = {
    "Derivation": "derivation",
    "DerivationError": "derivation",
    "DysonEquation": "pencil",
    "HermiteCoefficients": "hermite",
    "SpectralCurve": "curve",
    "SymbolicLinearModel": "hermite",
    "TaylorStep": "taylor",
    "dyson_equation": "pencil",
    "edge_gap": "expansions",
    "hermite_coefficients": "hermite",
    "linear_model": "hermite",
    "right_edge_large_beta": "expansions",
    "right_edge_small_beta": "expansions",
    "spectral_curve": "curve",
    "taylor_attention": "taylor",
}

__all__ = [
    "Derivation",
    "DerivationError",
    "DysonEquation",
    "HermiteCoefficients",
    "SpectralCurve",
    "SymbolicLinearModel",
    "TaylorStep",
    "dyson_equation",
    "edge_gap",
    "hermite_coefficients",
    "linear_model",
    "right_edge_large_beta",
    "right_edge_small_beta",
    "spectral_curve",
    "taylor_attention",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"gequiv.symbolic.{_HOME[name]}"), name)
    raise AttributeError(f"module 'gequiv.symbolic' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
