"""Laws whose density is stored in edge-adapted panels, and their atoms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gequiv._checks import Array
from gequiv.laws._edge_adapted import EdgeAdaptedDensity
from gequiv.laws.base import Certificate, Law, finite_moment, moment_order


class StoredLaw(Law):
    """What laws share once their density is stored; a subclass sets the attributes and adds the transform.

    Attributes
    ----------
    scale : the unit of length, for a law on [0, ∞) its mean.
    certificate : `Certificate` of this law: what was verified before the constructor returned.
    """

    scale: float
    certificate: Certificate
    _density: EdgeAdaptedDensity
    _atom: float = 0.0
    """Weight of the atom at 0, for laws whose only atom that is."""

    def support(self, dps: int | None = None) -> list[tuple[Any, Any]]:
        """The intervals of the density, ascending, correct to the last digits; with dps, to that many digits."""
        if dps is not None:
            return self._precise(dps).support()
        return list(self._density.intervals)

    def atoms(self) -> list[tuple[float, float]]:
        """The point masses as (location, weight), ascending; for a matrix of more rows than columns one at 0."""
        return [(0.0, self._atom)] if self._atom > 0 else []

    def _scaled_moment(self, k: int) -> float:
        """Moment of order k of the law divided by `scale`; inf where it leaves the floats."""
        raise NotImplementedError

    def moment(self, k: int, dps: int | None = None) -> Any:
        r"""The moment :math:`\int x^k` for an integer k >= 0, exact but for rounding; with dps, to that many digits.

        Raises
        ------
        ParameterError : k is not an integer >= 0, or the moment exceeds the floats.
        """
        k = moment_order(k)
        if dps is not None:
            return self._precise(dps).moment(k)
        try:
            return finite_moment(k, self._scaled_moment(k) * self.scale**k)
        except OverflowError:
            return finite_moment(k, math.inf)

    def _pdf(self, x: Array) -> Array:
        return self._density.density(x)

    def _cdf(self, x: Array) -> Array:
        return np.clip(self._add_atoms(x, self._density.mass(x)), 0.0, 1.0)

    def _partial_mean(self, x: Array) -> Array:
        result = self._density.partial_mean(x)
        for location, weight in self.atoms():
            if location != 0:
                result = result + weight * location * (x >= location)
        return result

    def _ppf(self, q: Array) -> Array:
        below = np.zeros_like(q)  # weight of the atoms further down
        jumps: list[tuple[float, np.ndarray]] = []
        total = 0.0
        for location, weight in self.atoms():
            before = float(self._density.mass(np.array([location]))[0]) + total
            reached = (q > before) | (before <= 0)
            below = np.where(reached, total + weight, below)
            jumps.append((location, reached & (q <= before + weight)))
            total += weight
        x = self._density.quantile(q - below)
        for location, chosen in jumps:
            x = np.where(chosen, location, x)
        return x

    def _breakpoints(self) -> Array:
        return self._density.breakpoints
