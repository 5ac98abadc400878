"""Validation of what users pass in: each function returns the clean value or raises `ParameterError`."""

from __future__ import annotations

import math
import numbers
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gequiv.errors import ParameterError

Array = NDArray[np.float64]
ComplexArray = NDArray[np.complex128]


def positive_integer(name: str, value: Any, *, minimum: int = 1) -> int:
    """`value` as an int of at least `minimum`; integral floats are accepted, booleans are not."""
    allowed = f"an integer of at least {minimum}"
    if isinstance(value, (bool, np.bool_)):
        raise ParameterError(f"{name} must be {allowed}; got {value!r}")
    if isinstance(value, numbers.Integral):
        number = int(value)
    elif isinstance(value, numbers.Real) and math.isfinite(value) and float(value).is_integer():
        number = int(float(value))
    else:
        raise ParameterError(f"{name} must be {allowed}; got {value!r}")
    if number < minimum:
        raise ParameterError(f"{name} must be {allowed}; got {value!r}")
    return number


def index(name: str, value: Any, size: int) -> int:
    """`value` as an int from 0 to size - 1."""
    number = positive_integer(name, value, minimum=0)
    if number >= size:
        raise ParameterError(f"{name} must be below {size}; got {value!r}")
    return number


def positive_real(name: str, value: Any, *, allow_zero: bool = False) -> float:
    """`value` as a finite float above zero (or at least zero)."""
    allowed = "a finite real number " + ("of at least 0" if allow_zero else "above 0")
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise ParameterError(f"{name} must be {allowed}; got {value!r}")
    number = float(value)
    if not math.isfinite(number) or number < 0 or (number == 0 and not allow_zero):
        raise ParameterError(f"{name} must be {allowed}; got {value!r}")
    return number


def exact_positive(name: str, value: Any) -> Fraction:
    """`value`, a finite real number above 0, as a fraction without rounding."""
    if isinstance(value, Fraction) and value > 0:
        return value
    return Fraction(positive_real(name, value))


def real_array(name: str, value: Any) -> Array:
    """`value` as a float64 array without NaN (infinities are allowed); any shape, also empty."""
    try:
        raw = np.asarray(value)
        if raw.dtype.kind == "c":
            raise TypeError("complex")
        array = raw.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{name} must be real numbers; got {value!r}") from error
    if np.isnan(array).any():
        raise ParameterError(f"{name} must not contain NaN; got {_short(value)}")
    return array


def complex_array(name: str, value: Any) -> ComplexArray:
    """`value` as a complex128 array without NaN."""
    try:
        array = np.asarray(value).astype(np.complex128)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{name} must be complex numbers; got {value!r}") from error
    if np.isnan(array).any():
        raise ParameterError(f"{name} must not contain NaN; got {_short(value)}")
    return array


def generator(rng: Any) -> np.random.Generator:
    """`rng` itself if it is a numpy Generator, a Generator seeded by it if it is a non-negative int."""
    if isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, (int, np.integer)) and not isinstance(rng, bool) and int(rng) >= 0:
        return np.random.default_rng(int(rng))
    raise ParameterError(f"rng must be a numpy.random.Generator, or a non-negative integer to seed one; got {rng!r}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
