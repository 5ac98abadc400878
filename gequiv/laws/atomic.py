"""Laws of point masses only: given atoms, and the eigenvalues of one matrix."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gequiv import _checks
from gequiv._checks import Array, ComplexArray
from gequiv.errors import ParameterError
from gequiv.laws.base import Law, finite_moment, finite_real, moment_order
from gequiv.laws.subordination import Increment

_CHUNK = 2**22


class Atomic(Law):
    r"""Finitely many point masses: :math:`\mu = \sum_j w_j \delta_{a_j}`.

    No interval carries a density: ``support()`` is empty and ``pdf`` zero everywhere. Mean :math:`m = \sum w_j a_j`,
    variance :math:`\sum w_j a_j^2 - m^2`, Cauchy transform :math:`G(z) = \sum_j w_j/(z - a_j)`.

    Parameters
    ----------
    locations : finite numbers, in any order; equal ones are merged.
    weights : one for each location, at least 0 and of sum 1 to 1e-12 (then divided by their sum); locations of
        weight 0 are dropped. Equal weights by default.

    Raises
    ------
    ParameterError : no location; a number is not finite; lengths differ; a weight is negative; their sum is not 1.

    Examples
    --------
    >>> law = Atomic([1, -1, 1], [0.25, 0.5, 0.25])
    >>> law.atoms(), law.variance(), law.cauchy(2).item()
    ([(-1.0, 0.5), (1.0, 0.5)], 1.0, (0.6666666666666666+0j))
    """

    def __init__(self, locations: Any, weights: Any = None) -> None:
        places = _finite_row("locations", locations)
        self._weights: Array
        self._cumulative: Array
        if weights is None:
            self._locations, counts = np.unique(places, return_counts=True)
            self._cumulative = np.asarray(np.cumsum(counts) / places.size, dtype=np.float64)
            self._weights = np.asarray(counts / places.size, dtype=np.float64)
            return
        masses = _finite_row("weights", weights)
        if masses.size != places.size:
            raise ParameterError(
                f"weights must be as many as locations; got {masses.size} weights for {places.size} locations"
            )
        if masses.min() < 0:
            raise ParameterError(f"weights must be at least 0; got {float(masses.min())!r}")
        total = math.fsum(masses)
        if not abs(total - 1) <= 1e-12:
            raise ParameterError(f"weights must sum to 1; their sum is {total!r}: divide them by it")
        charged = masses > 0
        self._locations, where = np.unique(places[charged], return_inverse=True)
        self._weights = np.bincount(where, masses[charged] / total).astype(np.float64)
        self._cumulative = np.cumsum(self._weights)
        self._cumulative = np.minimum(self._cumulative / self._cumulative[-1], 1.0)

    def __repr__(self) -> str:
        if self._locations.size > 4:
            ends = f"{self._locations[0]:g}..{self._locations[-1]:g}"
            return f"{type(self).__name__}({self._locations.size} atoms in {ends})"
        pairs = ", ".join(f"{location:g}: {weight:g}" for location, weight in self.atoms())
        return f"{type(self).__name__}({pairs})"

    def support(self, dps: int | None = None) -> list[tuple[Any, Any]]:
        """Empty: there is no density."""
        return [] if dps is None else self._precise(dps).support()

    def atoms(self) -> list[tuple[float, float]]:
        """The point masses as (location, weight), ascending."""
        return list(zip(self._locations.tolist(), self._weights.tolist(), strict=True))

    def moment(self, k: int, dps: int | None = None) -> Any:
        r""":math:`\sum_j w_j a_j^k`.

        Raises
        ------
        ParameterError : k is not an integer >= 0, or the moment exceeds the floats.
        """
        k = moment_order(k)
        if dps is not None:
            return self._precise(dps).moment(k)
        with np.errstate(all="ignore"):
            terms = self._weights * self._locations**k
        return finite_moment(k, math.fsum(terms) if np.isfinite(terms).all() else math.inf)

    def variance(self) -> float:
        """Second moment about the mean: the mean square of the distance from it."""
        return math.fsum(self._weights * (self._locations - self.mean()) ** 2)

    def _pdf(self, x: Array) -> Array:
        return np.zeros_like(x)

    def _cdf(self, x: Array) -> Array:
        return _steps(self._cumulative)[np.searchsorted(self._locations, x, side="right")]

    def _partial_mean(self, x: Array) -> Array:
        means = np.cumsum(self._weights * self._locations)
        return _steps(means)[np.searchsorted(self._locations, x, side="right")]

    def _ppf(self, q: Array) -> Array:
        index = np.searchsorted(self._cumulative, q, side="left")
        return self._locations[np.minimum(index, self._locations.size - 1)]

    def _cauchy(self, z: ComplexArray) -> ComplexArray:
        return self._sum(z, 1)

    def _increment(self) -> Increment | None:
        return Increment(float(self._locations[0]), (), ()) if self._locations.size == 1 else None

    def _factors(self) -> tuple[float, list[tuple[float, float]]] | None:
        single = self._locations.size == 1 and self._locations[0] > 0
        return (float(self._locations[0]), []) if single else None

    def _cauchy_and_slope(self, z: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        return self._sum(z, 1), -self._sum(z, 2)

    def _sum(self, z: ComplexArray, power: int) -> ComplexArray:
        """The sum of w/(z - a)^power; 0 at infinity, NaN at an atom."""
        result = np.zeros_like(z)
        rows = max(1, _CHUNK // self._locations.size)
        with np.errstate(all="ignore"):
            for start in range(0, z.size, rows):
                part = z[start : start + rows, None] - self._locations
                result[start : start + rows] = (1 / part**power) @ self._weights
        return np.where(np.isfinite(z), result, 0)

    def _distance(self, z: ComplexArray) -> Array:
        right = np.minimum(np.searchsorted(self._locations, z.real), self._locations.size - 1)
        left = np.maximum(right - 1, 0)
        distance: Array = np.minimum(np.abs(z - self._locations[left]), np.abs(z - self._locations[right]))
        return distance

    def _affine(self, scale: Any, shift: Any) -> Law:
        factor, offset = finite_real("scale", scale), finite_real("shift", shift)
        if factor == 0:
            return super()._affine(scale, shift)  # which refuses it
        with np.errstate(over="ignore"):
            return Atomic(factor * self._locations + offset, self._weights)


class Empirical(Atomic):
    """The law that gives each of n eigenvalues the weight 1/n: the spectrum of one matrix as a law.

    Parameters
    ----------
    eigenvalues : finite numbers, in any order; equal ones are merged into an atom of larger weight.

    Raises
    ------
    ParameterError : no eigenvalue, or one is not finite.

    Examples
    --------
    >>> law = Empirical([3, 0, 0, 1])
    >>> law.mean(), law.atoms()
    (1.0, [(0.0, 0.5), (1.0, 0.25), (3.0, 0.25)])
    """

    def __init__(self, eigenvalues: Any) -> None:
        super().__init__(_finite_row("eigenvalues", eigenvalues))


def _finite_row(name: str, values: Any) -> Array:
    array = _checks.real_array(name, values)
    if array.ndim != 1 or array.size == 0:
        raise ParameterError(f"{name} must be a list of at least one number; got an array of shape {array.shape}")
    if not np.isfinite(array).all():
        raise ParameterError(f"{name} must be finite; got {float(array[~np.isfinite(array)][0])!r}")
    return array + 0.0  # -0.0 becomes 0.0


def _steps(values: Array) -> Array:
    return np.concatenate([[0.0], values])
