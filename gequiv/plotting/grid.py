"""Where to look at a law: points that resolve its edges and follow its mass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gequiv import _checks
from gequiv._checks import Array
from gequiv.laws import SingularValueLaw
from gequiv.laws.base import Law

_SPREAD = 100.0
_ROUNDING = 1e-12


def support_grid(law: Law, count: int) -> Array:
    r"""Ascending points strictly inside the support, `count` in all, shared out over the intervals by mass.

    Within an interval every other point is an equally spaced quantile of the density, so that the grid follows the
    mass over however many orders of magnitude, and the others cluster at both ends, :math:`a + (b-a)\sin^2\theta`, on
    either half-line in the square roots of the edges, so that square-root edges and a divergence at 0 are resolved. An
    interval inside which the density diverges at 0 is two. In an interval of many orders of magnitude (`spread_out`)
    these others are spread over the logarithm and cluster at its top. No point is an edge: where the density diverges
    at 0 it is finite at every point; in an interval that ends at 0, none is nearer to it than 1e-12 of its length. A
    law without a density has no points.

    Raises
    ------
    ParameterError : count is not an integer of at least 1.
    """
    count = _checks.positive_integer("count", count)
    density = DensityPart(law)
    intervals = [piece for low, high in law.support() for piece in _pieces(law, low, high)]
    pieces = [
        _interval_points(density, low, high, share)
        for (low, high), share in zip(intervals, _shares(density.masses(intervals), count), strict=True)
        if share
    ]
    return np.concatenate(pieces) if pieces else np.empty(0)


class DensityPart:
    """The part of a law that has a density, without its atoms, wherever these are."""

    def __init__(self, law: Law) -> None:
        self.law = law
        atoms = np.array(law.atoms(), dtype=np.float64).reshape(-1, 2)
        self._locations = atoms[:, 0]
        self._weights = np.concatenate([[0.0], np.cumsum(atoms[:, 1])])
        self.mass = max(0.0, 1 - math.fsum(atoms[:, 1])) if law.support() else 0.0
        # what the density has up to each atom
        self._reached = np.maximum.accumulate(self.cdf(self._locations))

    def cdf(self, x: Any) -> Array:
        """Mass that the density has up to x."""
        x = np.asarray(x, dtype=np.float64)
        below = self._weights[np.searchsorted(self._locations, x, side="right")]
        mass: Array = np.maximum(np.asarray(self.law.cdf(x)) - below, 0.0)
        return mass

    def ppf(self, mass: Any) -> Array:
        """The lowest point up to which the density has that much mass, above 0 and at most ``self.mass``."""
        mass = np.asarray(mass, dtype=np.float64)
        jumps = self._weights[np.searchsorted(self._reached, mass, side="left")]
        return np.asarray(self.law.ppf(np.clip(mass + jumps, 0.0, 1.0)))

    def masses(self, intervals: Sequence[tuple[float, float]]) -> list[float]:
        """Mass of each interval."""
        ends = self.cdf(np.array(intervals, dtype=np.float64).reshape(-1, 2))
        return [max(0.0, float(mass)) for mass in ends[:, 1] - ends[:, 0]]


def interval_masses(law: Law) -> list[float]:
    """Mass that the density gives to each interval of the support."""
    return DensityPart(law).masses(law.support())


def rounding(law: Law) -> float:
    """What cannot be told from 0, relative to the top edge: 1e-12, or 1e-6 for singular values."""
    return _ROUNDING**0.5 if isinstance(law, SingularValueLaw) else _ROUNDING


def spread_out(law: Law, low: float, high: float) -> bool:
    """Whether an interval from ``low >= 0`` has its top more than 100 of its medians away, 10 for singular values."""
    return low >= 0 and _spread_out(DensityPart(law), low, high)


def _spread_out(density: DensityPart, low: float, high: float) -> bool:
    median = float(density.ppf(density.cdf([low, high]).mean()))
    ratio = _SPREAD**0.5 if isinstance(density.law, SingularValueLaw) else _SPREAD
    return high > ratio * median


def _pieces(law: Law, low: float, high: float) -> list[tuple[float, float]]:
    """The interval, cut at 0 where the density diverges there."""
    return [(low, 0.0), (0.0, high)] if low < 0 < high and not np.isfinite(law.pdf(0.0)) else [(low, high)]


def _shares(masses: list[float], count: int) -> list[int]:
    """Points for each interval: at least a tenth of an even share each while they last, the rest by mass."""
    floor = min(count // max(1, len(masses)), max(1, count // (10 * max(1, len(masses)))))
    total = sum(masses) or 1.0
    left = count - floor * len(masses)
    exact = [left * mass / total for mass in masses]
    shares = [int(value) for value in exact]
    by_remainder = sorted(range(len(masses)), key=lambda k: exact[k] - shares[k], reverse=True)
    for k in by_remainder[: left - sum(shares)]:
        shares[k] += 1
    return [share + floor for share in shares]


def _interval_points(density: DensityPart, low: float, high: float, count: int) -> Array:
    by_mass = count // 2
    by_edge = count - by_mass
    angle = np.pi * (2 * np.arange(by_edge) + 1) / (4 * by_edge)
    closest = rounding(density.law)
    start = max(low, closest * high) if low >= 0 else low
    end = min(high, closest * low) if high <= 0 else high
    base, top = (float(mass) for mass in density.cdf([start, end]))
    if low >= 0 and _spread_out(density, low, high):
        first = max(float(density.ppf(base + 0.01 * (top - base))), start)
        points = first * (high / first) ** np.sin(angle)
    elif low >= 0:
        points = (np.sqrt(low) + (np.sqrt(high) - np.sqrt(low)) * np.sin(angle) ** 2) ** 2
    elif high <= 0:
        points = -((np.sqrt(-high) + (np.sqrt(-low) - np.sqrt(-high)) * np.sin(angle) ** 2) ** 2)
    else:
        points = low + (high - low) * np.sin(angle) ** 2
    quantiles = density.ppf(base + (top - base) * (np.arange(by_mass) + 0.5) / max(1, by_mass))
    grid: Array = np.sort(np.concatenate([points, quantiles]))
    return np.clip(grid, np.nextafter(start, high), np.nextafter(end, low))
