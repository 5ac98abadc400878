"""Distributions of the entries of tokens and weights, all of mean 0 and variance 1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gequiv._checks import Array
from gequiv.errors import ParameterError

ALLOWED = '"gaussian", "rademacher", "uniform" or "student:NU" with NU above 2'
_PLAIN = ("gaussian", "rademacher", "uniform")


def normalised_entries(name: str, value: Any) -> str:
    """`value` as `Attention` holds it: "gaussian", "rademacher", "uniform", or "student:5" and the like.

    Raises
    ------
    ParameterError : it is none of these; `name` is the parameter's.
    """
    if isinstance(value, str):
        text = value.strip().lower()
        if text in _PLAIN:
            return text
        kind, _, degrees = text.partition(":")
        if kind == "student":
            try:
                number = float(degrees)
            except ValueError:
                number = math.nan
            if math.isfinite(number) and number > 2:
                return f"student:{number:.17g}"
    raise ParameterError(f"{name} must be {ALLOWED}; got {value!r}")


def draw_entries(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    r"""Independent entries of mean 0 and variance 1.

    "gaussian": N(0, 1). "rademacher": ±1 with equal chances. "uniform": on (-√3, √3). "student:NU": Student's t with ν
    degrees of freedom over its standard deviation :math:`\sqrt{\nu/(\nu - 2)}`, of infinite fourth moment for ν ≤ 4.
    """
    if kind == "gaussian":
        return rng.standard_normal(shape)
    if kind == "rademacher":
        return np.asarray(2.0 * rng.integers(0, 2, shape) - 1.0, dtype=np.float64)
    if kind == "uniform":
        return rng.uniform(-math.sqrt(3), math.sqrt(3), shape)
    degrees = float(kind.partition(":")[2])
    return rng.standard_t(degrees, shape) * math.sqrt((degrees - 2) / degrees)
