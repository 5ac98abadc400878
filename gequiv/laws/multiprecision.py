"""Private multiprecision contexts, so that nobody else's precision is touched; mpmath is imported on first use."""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import Any

from gequiv import _checks
from gequiv.errors import ParameterError

DIGITS = 50
LARGEST_DPS = 200


@functools.cache
def multiprecision(digits: int = DIGITS) -> Any:
    """An mpmath context of that many decimal digits; shared, never to be changed."""
    import mpmath

    context = mpmath.MPContext()
    context.dps = digits
    return context


def public(value: Any) -> Any:
    """A number of a private context as one of mpmath's own, with all its digits."""
    import mpmath

    return mpmath.mp.make_mpf(value._mpf_)


def exact(context: Any, name: str, value: Any) -> Any:
    """A user's real number in a context: int, float, Fraction, decimal string or mpf, without rounding by a float."""
    try:
        if isinstance(value, Fraction):
            return context.mpf(value.numerator) / value.denominator
        result = context.mpf(value)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{name} must be real numbers; got {value!r}") from error
    if context.isnan(result):
        raise ParameterError(f"{name} must not contain NaN; got {value!r}")
    return result


def digits_wanted(dps: Any) -> int:
    """The number of decimal digits that a user asks for, validated."""
    wanted = _checks.positive_integer("dps", dps)
    if wanted > LARGEST_DPS:
        raise ParameterError(f"dps must be an integer from 1 to {LARGEST_DPS}; got {dps!r}")
    return wanted


def to_fraction(value: Any) -> Fraction:
    """A finite mpf as a fraction, exactly."""
    sign, mantissa, exponent, _ = value._mpf_
    power = int(exponent)
    magnitude = Fraction(int(mantissa) << power) if power >= 0 else Fraction(int(mantissa), 1 << -power)
    return -magnitude if sign else magnitude
