"""Wigner's semicircle law, in closed form; helpers of the laws on one interval."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gequiv import _checks
from gequiv._checks import Array, ComplexArray
from gequiv.errors import CertificationError, ParameterError
from gequiv.laws.base import Law, finite_moment, finite_real, moment_order
from gequiv.laws.subordination import Increment


class Semicircle(Law):
    r"""Law of the eigenvalues of a large symmetric n × n matrix with independent entries of variance v/n.

    With mean m and variance v the density is :math:`\sqrt{4v - (x-m)^2}/(2\pi v)` on [a, b] = m ∓ 2√v. The Cauchy
    transform is

    .. math:: G(z) = \frac{z - m - \sqrt{z-a}\sqrt{z-b}}{2v}, \qquad v G^2 - (z - m) G + 1 = 0.

    Parameters
    ----------
    variance : v, above 0.
    mean : m.

    Raises
    ------
    ParameterError : variance is not a positive finite number, or mean is not a finite number.

    Source: Wigner 1955.

    Examples
    --------
    >>> law = Semicircle(variance=4)
    >>> law.support(), law.moment(4), float(law.cdf(0))
    ([(-4.0, 4.0)], 32.0, 0.5)
    """

    def __init__(self, variance: Any = 1.0, mean: Any = 0.0) -> None:
        self.variance_parameter = _checks.positive_real("variance", variance)
        self.mean_parameter = finite_real("mean", mean)
        self._radius = 2 * math.sqrt(self.variance_parameter)
        self._a, self._b = checked_interval(self.mean_parameter - self._radius, self.mean_parameter + self._radius)

    def __repr__(self) -> str:
        return f"Semicircle(variance={self.variance_parameter:g}, mean={self.mean_parameter:g})"

    def support(self, dps: int | None = None) -> list[tuple[Any, Any]]:
        """[(m - 2√v, m + 2√v)]."""
        return [(self._a, self._b)] if dps is None else self._precise(dps).support()

    def atoms(self) -> list[tuple[float, float]]:
        """None."""
        return []

    def moment(self, k: int, dps: int | None = None) -> Any:
        r""":math:`\sum_j \binom{k}{2j} C_j v^j m^{k-2j}` with the Catalan numbers :math:`C_j`.

        Raises
        ------
        ParameterError : k is not an integer >= 0, or the moment exceeds the floats.
        """
        k = moment_order(k)
        if dps is not None:
            return self._precise(dps).moment(k)
        v, m = self.variance_parameter, self.mean_parameter
        try:
            terms = (
                math.comb(k, 2 * j) * (math.comb(2 * j, j) // (j + 1)) * v**j * m ** (k - 2 * j)
                for j in range(k // 2 + 1)
            )
            return finite_moment(k, float(sum(terms)))
        except OverflowError:
            return finite_moment(k, math.inf)

    def variance(self) -> float:
        """Second moment about the mean: v."""
        return self.variance_parameter

    def _pdf(self, x: Array) -> Array:
        result = np.zeros_like(x)
        inside = (x > self._a) & (x < self._b)
        point = x[inside]
        root = np.sqrt(self._b - point) * np.sqrt(point - self._a)
        result[inside] = root / (2 * math.pi * self.variance_parameter)
        return result

    def _cdf(self, x: Array) -> Array:
        # x = m - 2√v cos φ has density (2/π) sin²φ
        return _semicircle_mass(angle(x, self._a, self._b))

    def _partial_mean(self, x: Array) -> Array:
        phi = angle(x, self._a, self._b)
        mean: Array = self.mean_parameter * _semicircle_mass(phi)
        return mean - 2 * self._radius / (3 * math.pi) * np.sin(phi) ** 3

    def _ppf(self, q: Array) -> Array:
        phi = angle_quantile(_semicircle_mass, lambda phi: 2 / math.pi * np.sin(phi) ** 2, q)
        return from_angle(phi, self._a, self._b)

    def _cauchy(self, z: ComplexArray) -> ComplexArray:
        with np.errstate(all="ignore"):
            value = 2.0 / (z - self.mean_parameter + edge_root(z, self._a, self._b))
        return np.where(np.isfinite(z), value, 0)

    def _increment(self) -> Increment:
        return Increment(self.mean_parameter, (0.0,), (self.variance_parameter,))

    def _cauchy_and_slope(self, z: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        g = self._cauchy(z)
        with np.errstate(all="ignore"):
            slope = -g / edge_root(z, self._a, self._b)
        return g, np.where(np.isfinite(z), slope, 0)

    def _matrix(self, n: int, rng: np.random.Generator) -> Array:
        noise = rng.standard_normal((n, n))
        noise = (noise + noise.T) * math.sqrt(self.variance_parameter / (2 * n))
        matrix: Array = noise + self.mean_parameter * np.eye(n)
        return matrix


def _semicircle_mass(phi: Array) -> Array:
    mass: Array = (phi - np.sin(phi) * np.cos(phi)) / math.pi
    return mass


# -- helpers of the laws on one interval -------------------------------------------------------------


def checked_interval(low: float, high: float) -> tuple[float, float]:
    """The two edges, unless rounding has merged them."""
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ParameterError(
            f"the support must be an interval of floats; its edges round to [{low!r}, {high!r}]: take a law of larger "
            "spread, or one nearer to 0"
        )
    return low, high


def edge_root(z: ComplexArray, low: float, high: float) -> ComplexArray:
    """√(z-a)√(z-b), analytic off [a, b], like z far out; on the real axis left of a it is negative."""
    root: ComplexArray = np.sqrt(z - low) * np.sqrt(z - high)
    return root


def angle(x: Array, low: float, high: float) -> Array:
    """φ in [0, π] with x = (a + b)/2 - (b - a)/2 cos φ; points outside go to the nearer edge."""
    point = np.clip(x, low, high)
    phi: Array = 2 * np.arctan2(np.sqrt(point - low), np.sqrt(high - point))
    return phi


def from_angle(phi: Array, low: float, high: float) -> Array:
    """The inverse of `angle`, accurate relative to the nearer edge."""
    below = low + (high - low) * np.sin(0.5 * phi) ** 2
    above = high - (high - low) * np.cos(0.5 * phi) ** 2
    return np.clip(np.where(phi < 0.5 * math.pi, below, above), low, high)


def angle_quantile(mass: Callable[[Array], Array], slope: Callable[[Array], Array], q: Array) -> Array:
    """Angles at which the increasing function `mass` on [0, π] takes the values q."""
    phi = solve_increasing(lambda phi, at: (mass(phi) - q[at], slope(phi)), q.size, 0.0, math.pi)
    return np.where(q <= 0, 0.0, np.where(q >= 1, math.pi, phi))


def solve_increasing(
    function: Callable[[Array, np.ndarray], tuple[Array, Array]], size: int, low: float, high: float
) -> Array:
    """Zeros of increasing functions on [low, high], one for each of `size` points, by Newton between bounds.

    `function` takes arguments and the indices of their points, and returns values and slopes.
    """
    result = np.full(size, 0.5 * (low + high))
    at, x = np.arange(size), result.copy()
    lower, upper, moved = np.full(size, low), np.full(size, high), np.full(size, high - low)
    enough = 2e-16 * (high - low)
    for _ in range(200):
        with np.errstate(all="ignore"):  # slopes may have no value at the ends
            value, slope = function(x, at)
        upper, lower = np.where(value >= 0, x, upper), np.where(value >= 0, lower, x)
        with np.errstate(all="ignore"):
            new = x - value / slope
            # a step that does not halve the one before bisects instead
            usable = (new >= lower) & (new <= upper) & (np.abs(new - x) <= 0.5 * moved)
        new = np.where(usable, new, 0.5 * (lower + upper))
        moved = np.abs(new - x)
        result[at] = new
        going = (moved > enough) & (upper - lower > enough)
        if not going.any():
            return result
        at, x, lower, upper, moved = at[going], new[going], lower[going], upper[going], moved[going]
    raise CertificationError("the quantiles did not settle in 200 steps; please report this law and the probabilities")
