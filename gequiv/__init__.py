"""gequiv: the singular values of softmax attention matrices, and why they are what they are.

>>> import gequiv
>>> head = gequiv.Attention(tokens=2000, head_dim=1000, beta=1.0)
>>> law = head.limit_law()
>>> round(law.moment(1), 10)  # e - 1
1.7182818285
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gequiv._version import __version__
from gequiv.attention import Attention, LinearModel
from gequiv.errors import CertificationError, GequivError, ParameterError
from gequiv.laws import GaussianChainPlusNoise, Law, MarchenkoPastur, SingularValueLaw

if TYPE_CHECKING:
    from gequiv.attention.temperature import schedule, temperature
    from gequiv.dyson import WeightedChainPlusNoise
    from gequiv.expressions import law_of
    from gequiv.inspection import inspect_attention, inspect_model
    from gequiv.simulation import Comparison, compare, validate

# imported on first use, so that `import gequiv` stays fast
_LAZY = {
    "WeightedChainPlusNoise": "gequiv.dyson",
    "Comparison": "gequiv.simulation",
    "compare": "gequiv.simulation",
    "inspect_attention": "gequiv.inspection",
    "inspect_model": "gequiv.inspection",
    "law_of": "gequiv.expressions",
    "schedule": "gequiv.attention.temperature",
    "temperature": "gequiv.attention.temperature",
    "validate": "gequiv.simulation",
}

__all__ = [
    "Attention",
    "CertificationError",
    "Comparison",
    "GaussianChainPlusNoise",
    "GequivError",
    "Law",
    "LinearModel",
    "MarchenkoPastur",
    "ParameterError",
    "SingularValueLaw",
    "WeightedChainPlusNoise",
    "__version__",
    "compare",
    "inspect_attention",
    "inspect_model",
    "law_of",
    "schedule",
    "temperature",
    "validate",
]


def __getattr__(name: str) -> Any:
    if name == "free":
        return importlib.import_module("gequiv.free")
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'gequiv' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
