"""Private multiprecision contexts, so that nobody else's precision is touched; mpmath is imported on first use."""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import Any

DIGITS = 50


@functools.cache
def multiprecision(digits: int = DIGITS) -> Any:
    """An mpmath context of that many decimal digits; shared, never to be changed."""
    import mpmath

    context = mpmath.MPContext()
    context.dps = digits
    return context


def to_fraction(value: Any) -> Fraction:
    """A finite mpf as a fraction, exactly."""
    sign, mantissa, exponent, _ = value._mpf_
    power = int(exponent)
    magnitude = Fraction(int(mantissa) << power) if power >= 0 else Fraction(int(mantissa), 1 << -power)
    return -magnitude if sign else magnitude
