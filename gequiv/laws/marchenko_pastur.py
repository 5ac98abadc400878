"""The Marchenko–Pastur law, in closed form."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from gequiv import _checks
from gequiv._checks import Array, ComplexArray
from gequiv.errors import CertificationError
from gequiv.laws.base import Law, PreciseLaw, finite_moment, moment_order
from gequiv.laws.subordination import Increment


class MarchenkoPastur(Law):
    r"""Law of the eigenvalues of X Xᵀ/n for X of m rows and n columns with independent entries of variance v.

    With the ratio c = m/n (rows over columns) the density is
    :math:`\sqrt{(b-x)(x-a)}/(2\pi c v x)` on [a, b], :math:`a, b = v(1 \mp \sqrt{c})^2`, with an atom of weight
    1 - 1/c at 0 when c > 1. Mean v. The Cauchy transform is

    .. math:: G(z) = \frac{z - v(1-c) - \sqrt{z-a}\sqrt{z-b}}{2 c v z}.

    Parameters
    ----------
    ratio : c, rows over columns, above 0.
    variance : v, above 0.

    Raises
    ------
    ParameterError : a parameter is not a positive finite number.

    Source: Marchenko and Pastur 1967.

    Examples
    --------
    >>> law = MarchenkoPastur(ratio=2)
    >>> float(law.cdf(0.1)), law.moment(1)
    (0.5, 1.0)
    """

    def __init__(self, ratio: Any, variance: Any = 1.0) -> None:
        self.ratio = _checks.positive_real("ratio", ratio)
        self.variance_parameter = _checks.positive_real("variance", variance)
        root = math.sqrt(self.ratio)
        # (1 - root)^2 without cancellation near ratio 1
        self._a = self.variance_parameter * ((1 - self.ratio) / (1 + root)) ** 2
        self._b = self.variance_parameter * (1 + root) ** 2
        self._weight = max(0.0, 1 - 1 / self.ratio)

    def __repr__(self) -> str:
        return f"MarchenkoPastur(ratio={self.ratio:g}, variance={self.variance_parameter:g})"

    def support(self, dps: int | None = None) -> list[tuple[Any, Any]]:
        """[(v(1-√c)², v(1+√c)²)]; with dps, to that many digits."""
        if dps is not None:
            return self._precise(dps).support()
        return [(self._a, self._b)]

    def atoms(self) -> list[tuple[float, float]]:
        """An atom at 0 of weight 1 - 1/c when c > 1."""
        return [(0.0, self._weight)] if self._weight > 0 else []

    def moment(self, k: int, dps: int | None = None) -> Any:
        r""":math:`v^k \sum_{j=1}^{k} \frac1k \binom kj \binom k{j-1} c^{j-1}` (Narayana numbers).

        Raises
        ------
        ParameterError : k is not an integer >= 0, or the moment exceeds the floats.
        """
        k = moment_order(k)
        if dps is not None:
            return self._precise(dps).moment(k)
        if k == 0:
            return 1.0
        try:
            total = sum((math.comb(k, j) * math.comb(k, j - 1) // k) * self.ratio ** (j - 1) for j in range(1, k + 1))
            return finite_moment(k, self.variance_parameter**k * total)
        except OverflowError:
            return finite_moment(k, math.inf)

    def _precise(self, dps: int) -> PreciseLaw:
        # a chain without inner spaces is noise like the rest
        from gequiv.laws._precise import PreciseChain

        half = Fraction(self.variance_parameter) / 2
        return PreciseChain((), Fraction(self.ratio), half, half, dps)

    def _pdf(self, x: Array) -> Array:
        result = np.zeros_like(x)
        inside = (x > self._a) & (x < self._b)
        point = x[inside]
        result[inside] = np.sqrt(self._b - point) * np.sqrt(point - self._a)
        result[inside] /= 2 * math.pi * self.ratio * self.variance_parameter * point
        if self._a == 0:
            result[x == 0] = np.inf
        return result

    def _angle(self, x: Array) -> Array:
        """φ in [0, π] with x = v(1 + c - 2√c cos φ)."""
        point = np.clip(x, self._a, self._b)
        angle: Array = 2 * np.arctan2(np.sqrt(point - self._a), np.sqrt(self._b - point))
        return angle

    def _cdf(self, x: Array) -> Array:
        # with x = v(1+c-2√c cos φ) the density becomes (2/π) sin²φ/(1+c-2√c cos φ) dφ, elementary
        c, root, phi = self.ratio, math.sqrt(self.ratio), self._angle(x)
        gap = abs(1 - root)
        tangent = np.arctan2((1 + root) * np.sin(phi / 2), gap * np.cos(phi / 2))
        mass = (1 + c) * phi / 2 + root * np.sin(phi) - abs(1 - c) * tangent
        return np.clip(self._add_atoms(x, mass / (math.pi * c)), 0.0, 1.0)

    def _partial_mean(self, x: Array) -> Array:
        phi = self._angle(x)
        mean: Array = phi - np.sin(phi) * np.cos(phi)
        return mean * (self.variance_parameter / math.pi)

    def _ppf(self, q: Array) -> Array:
        low, high = np.zeros_like(q), np.full_like(q, math.pi)
        v = self.variance_parameter
        phi = np.full_like(q, math.pi / 2)
        for iteration in range(200):
            x = self._from_angle(phi)
            excess = self._cdf(x) - q
            slope = 2 / math.pi * np.sin(phi) ** 2 / np.maximum(x / v, np.finfo(float).tiny)
            high, low = np.where(excess >= 0, phi, high), np.where(excess >= 0, low, phi)
            with np.errstate(all="ignore"):
                new = phi - excess / slope
            usable = (new > low) & (new < high) & (iteration % 4 != 3)
            new = np.where(usable, new, 0.5 * (low + high))
            moved = np.abs(new - phi)
            phi = new
            if np.all((moved <= 4e-16) | (high - low <= 4e-16)):
                break
        else:
            raise CertificationError(f"the quantiles of {self!r} did not settle in 200 steps; please report this law")
        result = self._from_angle(phi)
        result = np.where(q >= 1, self._b, np.where(q <= self._weight, self._a, result))
        return np.asarray(np.where(q <= self._weight, 0.0, result)) if self._weight else result

    def _from_angle(self, phi: Array) -> Array:
        point: Array = self._a + 4 * self.variance_parameter * math.sqrt(self.ratio) * np.sin(phi / 2) ** 2
        return np.minimum(point, self._b)

    def _cauchy(self, z: ComplexArray) -> ComplexArray:
        c, v = self.ratio, self.variance_parameter
        with np.errstate(all="ignore"):
            linear, root = z - v * (1 - c), self._root(z)
            plus, minus = linear + root, linear - root
            # plus * minus = 4 c v z: far out minus cancels, near the pole at 0 plus does
            value = np.where(np.abs(minus) > np.abs(plus), minus / (2 * c * v * z), 2.0 / plus)
        return np.where(np.isfinite(z), value, 0)

    def _increment(self) -> Increment:
        c, v = self.ratio, self.variance_parameter
        return Increment(v, (c * v,), (c * v * v,))

    def _factors(self) -> tuple[float, list[tuple[float, float]]]:
        return 1.0, [(self.ratio, self.variance_parameter)]

    def _cauchy_and_slope(self, z: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        # from the quadratic equation c v z G² - (z - v(1-c)) G + 1 = 0
        g = self._cauchy(z)
        with np.errstate(all="ignore"):
            slope = -g * (1 - self.ratio * self.variance_parameter * g) / self._root(z)
        return g, np.where(np.isfinite(z), slope, 0)

    def _root(self, z: ComplexArray) -> ComplexArray:
        """√(z-a)√(z-b), like z far out; negative on the real axis left of a."""
        root: ComplexArray = np.sqrt(z - self._a) * np.sqrt(z - self._b)
        return root

    def _matrix(self, n: int, rng: np.random.Generator) -> Array:
        columns = max(1, round(n / self.ratio))
        noise = rng.standard_normal((n, columns))
        matrix: Array = noise @ noise.T * (self.variance_parameter / columns)
        return 0.5 * (matrix + matrix.T)
