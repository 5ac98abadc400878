"""Where to look at a law: points that resolve its edges and follow its mass."""

from __future__ import annotations

import numpy as np

from gequiv import _checks
from gequiv._checks import Array
from gequiv.laws import SingularValueLaw
from gequiv.laws.base import Law

_SPREAD = 100.0
_ROUNDING = 1e-12


def support_grid(law: Law, count: int) -> Array:
    r"""Ascending points strictly inside the support, `count` in all, shared out over the intervals by mass.

    Within an interval every other point is an equally spaced quantile, so that the grid follows the mass over however
    many orders of magnitude, and the others cluster at both ends, :math:`a + (b-a)\sin^2\theta` in the square roots
    of the edges, so that square-root edges and a divergence at 0 are resolved. In an interval of many orders of
    magnitude (`spread_out`) these others are spread over the logarithm and cluster at its top. No point is an edge:
    where the density diverges at 0 it is finite at every point; in an interval from 0, none is below 1e-12 of its top.

    Raises
    ------
    ParameterError : count is not an integer of at least 1.
    """
    count = _checks.positive_integer("count", count)
    intervals = law.support()
    masses = interval_masses(law)
    pieces = [
        _interval_points(law, low, high, share)
        for (low, high), share in zip(intervals, _shares(masses, count), strict=True)
        if share
    ]
    return np.concatenate(pieces) if pieces else np.empty(0)


def interval_masses(law: Law) -> list[float]:
    """Mass that the density gives to each interval of the support."""
    atoms = law.atoms()
    masses = []
    for low, high in law.support():
        # the interval is half open for the distribution function; atoms inside it do not belong to the density
        inside = sum(weight for location, weight in atoms if low < location <= high)
        masses.append(max(0.0, float(law.cdf(high)) - float(law.cdf(low)) - inside))
    return masses


def rounding(law: Law) -> float:
    """What cannot be told from 0, relative to the top edge: 1e-12, or 1e-6 for singular values."""
    return _ROUNDING**0.5 if isinstance(law, SingularValueLaw) else _ROUNDING


def spread_out(law: Law, low: float, high: float) -> bool:
    """Whether an interval from ``low >= 0`` has its top more than 100 of its medians away, 10 for singular values."""
    levels = np.asarray(law.cdf([low, high]))
    median = float(law.ppf(levels.mean()))
    ratio = _SPREAD**0.5 if isinstance(law, SingularValueLaw) else _SPREAD
    return low >= 0 and high > ratio * median


def _shares(masses: list[float], count: int) -> list[int]:
    """Points for each interval: at least a tenth of an even share each while they last, the rest by mass."""
    floor = min(count // max(1, len(masses)), max(1, count // (10 * max(1, len(masses)))))
    total = sum(masses)
    left = count - floor * len(masses)
    exact = [left * mass / total for mass in masses]
    shares = [int(value) for value in exact]
    by_remainder = sorted(range(len(masses)), key=lambda k: exact[k] - shares[k], reverse=True)
    for k in by_remainder[: left - sum(shares)]:
        shares[k] += 1
    return [share + floor for share in shares]


def _interval_points(law: Law, low: float, high: float, count: int) -> Array:
    by_mass = count // 2
    by_edge = count - by_mass
    angle = np.pi * (2 * np.arange(by_edge) + 1) / (4 * by_edge)
    start = max(low, rounding(law) * high) if low >= 0 else low
    base, top = float(law.cdf(start)), float(law.cdf(high))
    if spread_out(law, low, high):
        first = max(float(law.ppf(base + 0.01 * (top - base))), start)
        points = first * (high / first) ** np.sin(angle)
    elif low >= 0:
        points = (np.sqrt(low) + (np.sqrt(high) - np.sqrt(low)) * np.sin(angle) ** 2) ** 2
    else:
        points = low + (high - low) * np.sin(angle) ** 2
    quantiles = law.ppf(np.clip(base + (top - base) * (np.arange(by_mass) + 0.5) / max(1, by_mass), 0.0, 1.0))
    grid: Array = np.sort(np.concatenate([points, np.asarray(quantiles)]))
    return np.clip(grid, np.nextafter(start, high), np.nextafter(high, low))
