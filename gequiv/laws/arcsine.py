"""The arcsine law, in closed form."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gequiv._checks import Array, ComplexArray
from gequiv.laws.base import Law, finite_moment, moment_order
from gequiv.laws.semicircle import angle, edge_root, from_angle
from gequiv.laws.uniform import ordered


class Arcsine(Law):
    r"""The law of (a + b)/2 + (b - a)/2 cos θ with θ uniform; on [-2, 2] that of U + Uᵀ with U uniformly orthogonal.

    The density is :math:`1/(\pi\sqrt{(x-a)(b-x)})` on [a, b]. Mean (a + b)/2, variance (b - a)²/8. The free sum of two
    symmetric signs is this law on [-2, 2]. The Cauchy transform is

    .. math:: G(z) = \frac{1}{\sqrt{z-a}\sqrt{z-b}}.

    Parameters
    ----------
    low, high : a < b.

    Raises
    ------
    ParameterError : a bound is not a finite number, or they are not in order.

    Source: Voiculescu, Dykema and Nica 1992 for the free sum.

    Examples
    --------
    >>> law = Arcsine()
    >>> [law.moment(k) for k in (2, 4, 6)], round(float(law.cdf(1)), 12)
    ([2.0, 6.0, 20.0], 0.666666666667)
    """

    def __init__(self, low: Any = -2.0, high: Any = 2.0) -> None:
        self.low, self.high = ordered("low", low, "high", high)
        self._radius = 0.5 * (self.high - self.low)
        self._centre = 0.5 * self.low + 0.5 * self.high

    def __repr__(self) -> str:
        return f"Arcsine(low={self.low:g}, high={self.high:g})"

    def support(self, dps: int | None = None) -> list[tuple[Any, Any]]:
        """[(a, b)]."""
        return [(self.low, self.high)] if dps is None else self._precise(dps).support()

    def atoms(self) -> list[tuple[float, float]]:
        """None."""
        return []

    def moment(self, k: int, dps: int | None = None) -> Any:
        r""":math:`\sum_j \binom{k}{2j} \binom{2j}{j} (h/2)^{2j} c^{k-2j}` with the centre c and h = (b - a)/2.

        Raises
        ------
        ParameterError : k is not an integer >= 0, or the moment exceeds the floats.
        """
        k = moment_order(k)
        if dps is not None:
            return self._precise(dps).moment(k)
        c, quarter = self._centre, 0.25 * self._radius**2
        try:
            terms = (
                math.comb(k, 2 * j) * math.comb(2 * j, j) * quarter**j * c ** (k - 2 * j) for j in range(k // 2 + 1)
            )
            return finite_moment(k, float(sum(terms)))
        except OverflowError:
            return finite_moment(k, math.inf)

    def variance(self) -> float:
        """Second moment about the mean: (b - a)²/8."""
        return self._radius**2 / 2

    def _pdf(self, x: Array) -> Array:
        result = np.zeros_like(x)
        inside = (x > self.low) & (x < self.high)
        result[inside] = 1 / (math.pi * np.sqrt(x[inside] - self.low) * np.sqrt(self.high - x[inside]))
        result[(x == self.low) | (x == self.high)] = np.inf
        return result

    def _cdf(self, x: Array) -> Array:
        mass: Array = angle(x, self.low, self.high) / math.pi
        return mass

    def _partial_mean(self, x: Array) -> Array:
        phi = angle(x, self.low, self.high)
        mean: Array = (self._centre * phi - self._radius * np.sin(phi)) / math.pi
        return mean

    def _ppf(self, q: Array) -> Array:
        return from_angle(math.pi * q, self.low, self.high)

    def _cauchy(self, z: ComplexArray) -> ComplexArray:
        with np.errstate(all="ignore"):
            value = 1 / edge_root(z, self.low, self.high)
        return np.where(np.isfinite(z), value, 0)

    def _cauchy_and_slope(self, z: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        g = self._cauchy(z)
        with np.errstate(all="ignore"):
            slope = -0.5 * g * (1 / (z - self.low) + 1 / (z - self.high))
        return g, np.where(np.isfinite(z), slope, 0)
