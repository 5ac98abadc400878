"""Wachter's law of the Jacobi (MANOVA) ensemble, in closed form."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from gequiv import _checks
from gequiv._checks import Array, ComplexArray
from gequiv.errors import ParameterError
from gequiv.laws.base import Law, moment_order
from gequiv.laws.semicircle import angle, angle_quantile, checked_interval, edge_root, from_angle


class Wachter(Law):
    r"""Law of the eigenvalues of :math:`X X^T (X X^T + Y Y^T)^{-1}` for Gaussian X (m × n₁) and Y (m × n₂).

    With a = n₁/m and b = n₂/m (columns over rows), s = a + b > 1, the density is
    :math:`s\sqrt{(x-l)(h-x)}/(2\pi x(1-x))` on [l, h], :math:`l, h = (\sqrt{a(s-1)} \mp \sqrt{b})^2/s^2`, with atoms of
    weight max(0, 1 - a) at 0 and max(0, 1 - b) at 1. Mean a/s, variance ab/s³. The Cauchy transform is

    .. math:: G(z) = \frac{1 - a + (s-2) z - s\sqrt{z-l}\sqrt{z-h}}{2z(1-z)}, \qquad
              z(1-z) G^2 - (1 - a + (s-2)z) G + s - 1 = 0.

    Parameters
    ----------
    first : a, columns of X over rows, above 0.
    second : b, columns of Y over rows, above 0.

    Raises
    ------
    ParameterError : a parameter is not a positive finite number, or their sum is not above 1 (the sum
        of the two matrices would have no inverse).

    Source: Wachter 1980.

    Examples
    --------
    >>> law = Wachter(first=0.5, second=1.5)
    >>> law.atoms(), law.mean(), float(law.cdf(0))
    ([(0.0, 0.5)], 0.25, 0.5)
    """

    def __init__(self, first: Any, second: Any) -> None:
        self.first = _checks.positive_real("first", first)
        self.second = _checks.positive_real("second", second)
        a, b, s = self.first, self.second, self.first + self.second
        excess = float(Fraction(a) + Fraction(b) - 1)
        if excess <= 0 or not math.isfinite(s):
            raise ParameterError(f"first + second must be a finite number above 1; got {first!r} and {second!r}")
        self._sum, self._excess = s, excess
        outer, inner = math.sqrt(a * excess), math.sqrt(b)
        mirrored_outer, mirrored_inner = math.sqrt(b * excess), math.sqrt(a)
        # √l, √h, and √(1-h), √(1-l) of the law of 1 - x, without cancellation
        self._roots = abs(a - 1) / (outer + inner), (outer + inner) / s
        self._mirrored = abs(b - 1) / (mirrored_outer + mirrored_inner), (mirrored_outer + mirrored_inner) / s
        self._spreads = 2 * min(outer, inner) / s, 2 * min(mirrored_outer, mirrored_inner) / s  # differences of the two
        low, high = (
            root**2 if root**2 < 0.5 else 1 - other**2
            for root, other in zip(self._roots, reversed(self._mirrored), strict=True)
        )
        self._low, self._high = checked_interval(low, high)
        self._weights = max(0.0, 1 - a), max(0.0, 1 - b)

    def __repr__(self) -> str:
        return f"Wachter(first={self.first:g}, second={self.second:g})"

    def support(self, dps: int | None = None) -> list[tuple[Any, Any]]:
        """[(l, h)], inside [0, 1]."""
        return [(self._low, self._high)] if dps is None else self._precise(dps).support()

    def atoms(self) -> list[tuple[float, float]]:
        """At 0 of weight 1 - a when a < 1, at 1 of weight 1 - b when b < 1."""
        return [(float(k), weight) for k, weight in enumerate(self._weights) if weight > 0]

    def moment(self, k: int, dps: int | None = None) -> Any:
        r"""Differences of neighbouring moments by a recursion of two terms in exact fractions, then rounded.

        :math:`m_n - m_{n+1} = -s r_n/2` with the coefficients of
        :math:`\sqrt{z-l}\sqrt{z-h} = z - c + \sum r_n z^{-n}`, c = (l + h)/2,
        :math:`(n+1) r_n = c(2n-1) r_{n-1} - lh(n-2) r_{n-2}`.

        Raises
        ------
        ParameterError : k is not an integer >= 0.
        """
        k = moment_order(k)
        if dps is not None:
            return self._precise(dps).moment(k)
        if k == 0:
            return 1.0
        a, b = Fraction(self.first), Fraction(self.second)
        s = a + b
        centre, product = (a * (s - 1) + b) / s**2, ((a - 1) / s) ** 2
        moment, older, newer = a / s, -centre, (product - centre**2) / 2
        for n in range(1, k):
            moment += s * newer / 2
            older, newer = newer, (centre * (2 * n + 1) * newer - product * (n - 1) * older) / (n + 2)
        return float(moment)

    def variance(self) -> float:
        """Second moment about the mean: ab/s³."""
        return self.first / self._sum * (self.second / self._sum) / self._sum

    def _pdf(self, x: Array) -> Array:
        result = np.zeros_like(x)
        inside = (x > self._low) & (x < self._high)
        point = x[inside]
        root = np.sqrt(point - self._low) * np.sqrt(self._high - point)
        result[inside] = self._sum * root / (2 * math.pi * point * (1 - point))
        if self._low == 0:
            result[x == 0] = np.inf
        if self._high == 1:
            result[x == 1] = np.inf
        return result

    def _turns(self, phi: Array) -> tuple[Array, Array, Array]:
        """φ/2, and by how much two arctangents exceed and fall short of it."""
        half = 0.5 * phi
        sine, cosine = np.sin(half), np.cos(half)
        (low, high), (mirrored_low, mirrored_high) = self._roots, self._mirrored
        with np.errstate(all="ignore"):
            first = np.arctan2(self._spreads[0] * sine * cosine, low * cosine**2 + high * sine**2)
            second = np.arctan2(self._spreads[1] * sine * cosine, mirrored_high * cosine**2 + mirrored_low * sine**2)
        return half, first, second

    def _mass(self, phi: Array) -> Array:
        # the integral of (1/x + 1/(1-x)) times the root is elementary in the angle; the arctangents enter by their
        # excess over φ/2, or large a and b would cancel
        a, b = self.first, self.second
        half, first, second = self._turns(phi)
        plain = min(1.0, 2 * a - 1) + min(1.0, 2 * b - 1)
        mass: Array = (plain * half - abs(a - 1) * first + abs(b - 1) * second) / math.pi
        return mass

    def _cdf(self, x: Array) -> Array:
        return np.clip(self._add_atoms(x, self._mass(angle(x, self._low, self._high))), 0.0, 1.0)

    def _partial_mean(self, x: Array) -> Array:
        phi = angle(x, self._low, self._high)
        half, _, second = self._turns(phi)
        low, high = self._mirrored
        width = 0.5 * (self._roots[1] + self._roots[0]) * self._spreads[0]
        mean = self._spreads[1] ** 2 * half + 2 * low * high * second - width * np.sin(phi)
        result: Array = self._sum / (2 * math.pi) * mean + self._weights[1] * (x >= 1)
        return result

    def _ppf(self, q: Array) -> Array:
        at_zero, at_one = self._weights
        below_one = at_zero + float(self._mass(np.array([math.pi]))[0])

        def slope(phi: Array) -> Array:
            x = from_angle(phi, self._low, self._high)
            width = 0.5 * (self._high - self._low)
            value: Array = self._sum * (width * np.sin(phi)) ** 2 / (2 * math.pi * x * (1 - x))
            return value

        result = from_angle(angle_quantile(self._mass, slope, q - at_zero), self._low, self._high)
        result = np.where(q > below_one, 1.0, result) if at_one else np.where(q >= 1, self._high, result)
        return np.where(q <= at_zero, 0.0, result) if at_zero else result

    def _cauchy(self, z: ComplexArray) -> ComplexArray:
        with np.errstate(all="ignore"):
            from_zero, from_one = 1 - self.first + (self._sum - 2) * z, self.second - 1 + (self._sum - 2) * (z - 1)
            linear = np.where(z.real < 0.5, from_zero, from_one)  # the same: rounding is least near the own end
            root = self._sum * edge_root(z, self._low, self._high)
            plus, minus = linear + root, linear - root
            # plus * minus = 4(s-1)z(1-z): of the two forms the one whose terms do not cancel
            near_pole = np.abs(minus) > np.abs(plus)
            value = np.where(near_pole, minus / (2 * z * (1 - z)), 2 * self._excess / plus)
        return np.where(np.isfinite(z), value, 0)

    def _cauchy_and_slope(self, z: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        g = self._cauchy(z)
        with np.errstate(all="ignore"):
            root = self._sum * edge_root(z, self._low, self._high)
            slope = -g * (self._sum - 2 - (1 - 2 * z) * g) / root
        return g, np.where(np.isfinite(z), slope, 0)

    def _matrix(self, n: int, rng: np.random.Generator) -> Array:
        first = max(1, round(self.first * n))
        second = max(1, round(self.second * n), n - first)
        # orthonormal rows in place of [X Y] turn X Xᵀ (X Xᵀ + Y Yᵀ)⁻¹ into a symmetric matrix of the same eigenvalues
        columns = np.linalg.qr(rng.standard_normal((first + second, n)))[0][:first]
        matrix: Array = columns.T @ columns
        return 0.5 * (matrix + matrix.T)
