"""The Kesten–McKay law of regular trees and graphs, in closed form."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gequiv._checks import Array, ComplexArray
from gequiv.errors import ParameterError
from gequiv.laws.base import Law, finite_moment, finite_real, moment_order
from gequiv.laws.semicircle import angle, angle_quantile, edge_root, from_angle


class KestenMcKay(Law):
    r"""Spectral law of the adjacency of the infinite d-regular tree, limit law of random d-regular graphs.

    The density is :math:`d\sqrt{4(d-1) - x^2}/(2\pi(d^2 - x^2))` on [-R, R], :math:`R = 2\sqrt{d-1}`. Mean 0,
    variance d. Degree 2 gives the arcsine law on [-2, 2]; for even d it is the free sum of d/2 of those. For real
    d >= 2 the same formulas are a probability law. The Cauchy transform is

    .. math:: G(z) = \frac{2(d-1)}{(d-2) z + d\sqrt{z-R}\sqrt{z+R}}.

    Parameters
    ----------
    degree : d, a real number of at least 2.

    Raises
    ------
    ParameterError : degree is not a finite number of at least 2.

    Source: Kesten 1959; McKay 1981.

    Examples
    --------
    >>> law = KestenMcKay(5)
    >>> law.support(), [law.moment(k) for k in (2, 4)]
    ([(-4.0, 4.0)], [5.0, 45.0])
    """

    def __init__(self, degree: Any) -> None:
        self.degree = finite_real("degree", degree)
        if self.degree < 2:
            raise ParameterError(f"degree must be a finite real number of at least 2; got {degree!r}")
        self._edge = 2 * math.sqrt(self.degree - 1)

    def __repr__(self) -> str:
        return f"KestenMcKay(degree={self.degree:g})"

    def support(self, dps: int | None = None) -> list[tuple[Any, Any]]:
        """[(-2√(d-1), 2√(d-1))]."""
        return [(-self._edge, self._edge)] if dps is None else self._precise(dps).support()

    def atoms(self) -> list[tuple[float, float]]:
        """None."""
        return []

    def moment(self, k: int, dps: int | None = None) -> Any:
        r"""Closed walks of even length k: :math:`\sum_{j=1}^{k/2} \frac{j}{k-j} \binom{k-j}{k/2} d^j (d-1)^{k/2-j}`.

        Raises
        ------
        ParameterError : k is not an integer >= 0, or the moment exceeds the floats.
        """
        k = moment_order(k)
        if dps is not None:
            return self._precise(dps).moment(k)
        if k == 0 or k % 2:
            return 1.0 - k % 2
        half, d = k // 2, self.degree
        try:
            terms = (j * math.comb(k - j, half) // (k - j) * d**j * (d - 1) ** (half - j) for j in range(1, half + 1))
            return finite_moment(k, float(sum(terms)))
        except OverflowError:
            return finite_moment(k, math.inf)

    def _pdf(self, x: Array) -> Array:
        d, edge = self.degree, self._edge
        result = np.zeros_like(x)
        inside = np.abs(x) < edge
        point = x[inside]
        root = np.sqrt(edge - point) * np.sqrt(edge + point)
        result[inside] = d * root / (2 * math.pi * (d - point) * (d + point))
        if edge >= d:  # degree 2
            result[np.abs(x) == edge] = np.inf
        return result

    def _mass(self, phi: Array) -> Array:
        # x = R sin θ: the integral is d(θ - A) + 2A, A = arctan((1 - 2/d) tan θ), with θ - A in a form for large d
        d, theta = self.degree, phi - 0.5 * math.pi
        difference = np.arctan2(np.sin(2 * theta), d - 1 + np.cos(2 * theta))
        tangent = np.arctan2((d - 2) * np.sin(theta), d * np.cos(theta))
        mass: Array = 0.5 + (d * difference + 2 * tangent) / (2 * math.pi)
        return np.where(phi <= 0, 0.0, np.where(phi >= math.pi, 1.0, mass))

    def _cdf(self, x: Array) -> Array:
        return np.clip(self._mass(angle(x, -self._edge, self._edge)), 0.0, 1.0)

    def _partial_mean(self, x: Array) -> Array:
        # with s = √(R² - x²), d² - x² = (d-2)² + s²
        d = self.degree
        s = self._edge * np.sin(angle(x, -self._edge, self._edge))
        if d - 2 < 0.5 * self._edge:
            mean: Array = -d / (2 * math.pi) * (s - (d - 2) * np.arctan2(s, d - 2))
            return mean
        return -d * (d - 2) / (2 * math.pi) * _minus_arctan(s / (d - 2))

    def _ppf(self, q: Array) -> Array:
        d, edge = self.degree, self._edge

        def slope(phi: Array) -> Array:
            value: Array = d * edge**2 * np.sin(phi) ** 2 / (2 * math.pi * ((d - 2) ** 2 + (edge * np.sin(phi)) ** 2))
            return value

        return from_angle(angle_quantile(self._mass, slope, q), -edge, edge)

    def _cauchy(self, z: ComplexArray) -> ComplexArray:
        d = self.degree
        with np.errstate(all="ignore"):
            value = 2 * (d - 1) / ((d - 2) * z + d * edge_root(z, -self._edge, self._edge))
        return np.where(np.isfinite(z), value, 0)

    def _cauchy_and_slope(self, z: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        d, g = self.degree, self._cauchy(z)
        with np.errstate(all="ignore"):
            root = edge_root(z, -self._edge, self._edge)
            slope = -g / root * (((d - 2) * root + d * z) / ((d - 2) * z + d * root))
        return g, np.where(np.isfinite(z), slope, 0)


def _minus_arctan(t: Array) -> Array:
    """t - arctan t for t >= 0 without cancellation."""
    small = np.minimum(t, 0.5)
    series = np.zeros_like(t)
    for n in range(24, 0, -1):
        series = 1 / (2 * n + 1) - small**2 * series
    return np.where(t < 0.5, small**3 * series, t - np.arctan(t))
