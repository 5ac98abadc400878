"""The uniform law, and the logarithm of a ratio that its Cauchy transform needs."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from gequiv._checks import Array, ComplexArray
from gequiv.errors import ParameterError
from gequiv.laws.base import Law, finite_moment, finite_real, moment_order


class Uniform(Law):
    r"""The law of constant density 1/(b - a) on [a, b].

    Mean (a + b)/2, variance (b - a)²/12. The Cauchy transform is

    .. math:: G(z) = \frac{1}{b - a} \log\frac{z - a}{z - b}.

    Parameters
    ----------
    low, high : a < b.

    Raises
    ------
    ParameterError : a bound is not a finite number, or they are not in order.

    Source: the transform is an elementary integral.

    Examples
    --------
    >>> law = Uniform(-1, 3)
    >>> law.mean(), law.moment(2), float(law.pdf(0))
    (1.0, 2.3333333333333335, 0.25)
    """

    def __init__(self, low: Any = 0.0, high: Any = 1.0) -> None:
        self.low, self.high = ordered("low", low, "high", high)
        self._width = self.high - self.low

    def __repr__(self) -> str:
        return f"Uniform(low={self.low:g}, high={self.high:g})"

    def support(self, dps: int | None = None) -> list[tuple[Any, Any]]:
        """[(a, b)]."""
        return [(self.low, self.high)] if dps is None else self._precise(dps).support()

    def atoms(self) -> list[tuple[float, float]]:
        """None."""
        return []

    def moment(self, k: int, dps: int | None = None) -> Any:
        r""":math:`(b^{k+1} - a^{k+1})/((k+1)(b-a))`, correctly rounded.

        Raises
        ------
        ParameterError : k is not an integer >= 0, or the moment exceeds the floats.
        """
        k = moment_order(k)
        if dps is not None:
            return self._precise(dps).moment(k)
        a, b = Fraction(self.low), Fraction(self.high)
        try:
            return finite_moment(k, float((b ** (k + 1) - a ** (k + 1)) / ((k + 1) * (b - a))))
        except OverflowError:
            return finite_moment(k, math.inf)

    def variance(self) -> float:
        """Second moment about the mean: (b - a)²/12."""
        return self._width**2 / 12

    def _pdf(self, x: Array) -> Array:
        return np.where((x >= self.low) & (x <= self.high), 1 / self._width, 0.0)

    def _cdf(self, x: Array) -> Array:
        mass: Array = (np.clip(x, self.low, self.high) - self.low) / self._width
        return mass

    def _partial_mean(self, x: Array) -> Array:
        point = np.clip(x, self.low, self.high)
        mean: Array = (point - self.low) / self._width * (0.5 * point + 0.5 * self.low)
        return mean

    def _ppf(self, q: Array) -> Array:
        return np.where(q < 0.5, self.low + self._width * q, self.high - self._width * (1 - q))

    def _cauchy(self, z: ComplexArray) -> ComplexArray:
        return log_ratio(z, self.low, self.high) / self._width

    def _cauchy_and_slope(self, z: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        with np.errstate(all="ignore"):
            slope = -1 / (z - self.low) / (z - self.high)
        return self._cauchy(z), np.where(np.isfinite(z), slope, 0)


def ordered(low_name: str, low: Any, high_name: str, high: Any) -> tuple[float, float]:
    """Two finite numbers in order, at a finite distance."""
    a, b = finite_real(low_name, low), finite_real(high_name, high)
    if not (a < b and math.isfinite(b - a)):
        raise ParameterError(f"{low_name} must lie below {high_name}, at a finite distance; got {a!r} and {b!r}")
    return a, b


def log_ratio(z: ComplexArray, low: Any, high: Any) -> ComplexArray:
    """log((z-a)/(z-b)), analytic off [a, b], real and imaginary part accurate each on its own; 0 at infinity.

    `low` and `high` are numbers, or arrays like z.
    """
    with np.errstate(all="ignore"):
        left, right, y, width = z.real - low, z.real - high, z.imag, high - low
        to_low, to_high = np.hypot(left, y), np.hypot(right, y)
        # |z-a|²/|z-b|² - 1, or the inverse ratio, whichever is positive: no cancellation in log1p
        nearer = np.minimum(to_low, to_high)
        middle = 0.5 * left + 0.5 * right
        size = 0.5 * np.log1p(2 * (width / nearer) * (np.abs(middle) / nearer))
        opening = np.arctan2(
            width / to_high * (y / to_low), left / to_low * (right / to_high) + y / to_low * (y / to_high)
        )
    value = np.where(middle < 0, -size, size) - 1j * opening
    return np.where(np.isfinite(z), value, 0)
