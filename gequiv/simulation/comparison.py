r"""Distances between a law and the eigenvalues of matrices drawn at random, with errors from the spread over draws.

Eigenvalues of one matrix repel each other: n of them fluctuate about their law by order 1/n, not :math:`n^{-1/2}`.
The significance levels of the classical Kolmogorov–Smirnov test assume independent points and do not apply. Nothing
here returns a p-value; every error bar is the standard error over independent matrices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gequiv import _checks
from gequiv._checks import Array
from gequiv.errors import CertificationError, ParameterError
from gequiv.laws.base import Law

ROUNDING = 1e-12
"""Points closer than this to 0 or to an atom, relative to the largest magnitude, are not told from it."""
_LEVELS = 2000
MOMENTS = 4


@dataclass(frozen=True)
class Moment:
    """One moment of the draws beside the law's.

    Attributes
    ----------
    order : k, of the mean of x^k.
    sample : mean over draws.
    law : the law's own.
    error : standard error of ``sample`` over draws; None with one draw.
    z : (sample - law)/error; None where there is no error or it is zero.
    """

    order: int
    sample: float
    law: float
    error: float | None
    z: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return {"order": self.order, "sample": self.sample, "law": self.law, "error": self.error, "z": self.z}


@dataclass(frozen=True)
class Comparison:
    """What `compare` measured.

    Attributes
    ----------
    ks : Kolmogorov–Smirnov distance of all draws pooled.
    ks_per_draw, ks_mean, ks_error : the distance of each draw, their mean, and its standard error (None with one draw).
        A single draw is noisier than the pool, so ``ks_mean`` is as a rule above ``ks``.
    wasserstein, wasserstein_per_draw, wasserstein_mean, wasserstein_error : the same for the Wasserstein-1 distance, in
        the unit of the eigenvalues.
    moments : orders 1 to 4, fewer where a moment leaves the floating-point range or the law cannot certify it.
    draws : number of draws.
    size : number of eigenvalues in all draws together.
    """

    ks: float
    ks_per_draw: tuple[float, ...]
    ks_mean: float
    ks_error: float | None
    wasserstein: float
    wasserstein_per_draw: tuple[float, ...]
    wasserstein_mean: float
    wasserstein_error: float | None
    moments: tuple[Moment, ...]
    draws: int
    size: int

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and None, ready for JSON."""
        return {
            "ks": self.ks,
            "ks_mean": self.ks_mean,
            "ks_error": self.ks_error,
            "ks_per_draw": list(self.ks_per_draw),
            "wasserstein": self.wasserstein,
            "wasserstein_mean": self.wasserstein_mean,
            "wasserstein_error": self.wasserstein_error,
            "wasserstein_per_draw": list(self.wasserstein_per_draw),
            "moments": [moment.to_dict() for moment in self.moments],
            "draws": self.draws,
            "size": self.size,
        }


def compare(law: Law, draws: Any) -> Comparison:
    r"""Kolmogorov–Smirnov and Wasserstein-1 distance, and moments, of drawn eigenvalues against a law.

    With the empirical distribution function :math:`\hat F` and the law's F,

    .. math:: \mathrm{KS} = \sup_x |\hat F(x) - F(x)|, \qquad W_1 = \int |\hat F(x) - F(x)|\,dx .

    Both are exact up to rounding. The supremum is taken over both one-sided limits at every eigenvalue and at every
    atom of the law. The integral is summed between neighbouring eigenvalues from
    :math:`\int_{-\infty}^x F = x F(x) - \int_{(-\infty, x]} t\,\mu(dt)`, cut at the quantile where F crosses the
    empirical step, with the law's tails beyond the sample included.

    What lies within 1e-12 of the largest magnitude cannot be told apart. Eigenvalues that near to an atom count as the
    atom: zeros that rounding has moved do not spoil the distance. If the law has no atom at 0, all that lies
    within that distance of 0 is one bin, of the sample and of the law alike: the supremum is taken outside it, where
    both distribution functions include it. :math:`W_1` needs no such care.

    Eigenvalues of one matrix repel each other, so the distance is far smaller than for as many independent
    points and the p-values of the classical test do not apply. The error bars are standard errors over draws.

    Parameters
    ----------
    law : the law, of the same quantity as the draws (squared singular values against the law of an
        `Attention`, singular values against ``law.singular_values()``).
    draws : one 1-D array of eigenvalues, or a list of such arrays, one a draw; sorted or not, of any lengths.

    Returns
    -------
    `Comparison`. Cost: one evaluation of the distribution function per eigenvalue, twice.

    Raises
    ------
    ParameterError : law is not a `Law`; draws is empty, complex, of another shape, or holds NaN or infinities.

    Sources: Kolmogorov 1933, Smirnov 1948; Vallender 1974 for W_1 as an integral of distribution functions.
    """
    if not isinstance(law, Law):
        raise ParameterError(f"law must be a gequiv law, such as Attention(...).limit_law(); got {law!r}")
    samples = [np.sort(sample) for sample in as_draws("draws", draws)]
    rounding = ROUNDING * max(_reach(law), *(float(np.abs(sample).max()) for sample in samples))
    samples = [_snap(sample, law, rounding) for sample in samples]

    each = [_distances(law, sample, rounding) for sample in samples]
    ks = tuple(pair[0] for pair in each)
    wasserstein = tuple(pair[1] for pair in each)
    pooled = _distances(law, np.sort(np.concatenate(samples)), rounding) if len(samples) > 1 else each[0]
    return Comparison(
        ks=pooled[0],
        ks_per_draw=ks,
        ks_mean=math.fsum(ks) / len(ks),
        ks_error=standard_error(ks),
        wasserstein=pooled[1],
        wasserstein_per_draw=wasserstein,
        wasserstein_mean=math.fsum(wasserstein) / len(wasserstein),
        wasserstein_error=standard_error(wasserstein),
        moments=_moments(law, samples),
        draws=len(samples),
        size=sum(sample.size for sample in samples),
    )


def ks_between(a: Any, b: Any) -> float:
    r"""Two-sample Kolmogorov–Smirnov distance :math:`\sup_x |\hat F_a(x) - \hat F_b(x)|`; ties are exact.

    Values within 1e-12 of zero, relative to the largest magnitude of both samples, count as zeros, so that exact zeros
    of one matrix agree with the rounding-size zeros of another. No p-value: see `compare`.

    Parameters
    ----------
    a, b : each one 1-D array, or a list of arrays that are pooled.

    Raises
    ------
    ParameterError : a sample is empty, complex, of another shape, or holds NaN or infinities.
    """
    first = np.sort(np.concatenate(as_draws("a", a)))
    second = np.sort(np.concatenate(as_draws("b", b)))
    scale = max(float(np.abs(first).max()), float(np.abs(second).max()))
    for sample in (first, second):
        sample[np.abs(sample) <= ROUNDING * scale] = 0.0
    points = np.concatenate([first, second])
    ranks_first = np.searchsorted(first, points, side="right")
    ranks_second = np.searchsorted(second, points, side="right")
    # integer numerator: equal samples are at distance exactly zero
    difference = np.abs(ranks_first * second.size - ranks_second * first.size)
    return float(difference.max()) / (first.size * second.size)


def sampling_noise(spectra: list[Array]) -> float | None:
    r"""Mean KS distance of a draw from the others pooled, times √(1 - 1/draws) for their noise; None for one draw.

    What `Comparison.ks_mean` would be for the right law. With the pool F of all N values of which a draw's
    :math:`F_i` has n, the others are at :math:`(N F - n F_i)/(N - n)`, and the distance from them, as `ks_between` has
    it, is :math:`N/(N - n) \sup|F_i - F|`.
    """
    count = len(spectra)
    if count < 2:
        return None
    pool = np.sort(np.concatenate(spectra))
    rounding = ROUNDING * float(np.abs(pool).max())
    pool[np.abs(pool) <= rounding] = 0.0
    distances = []
    for spectrum in spectra:
        sample = np.sort(spectrum)
        sample[np.abs(sample) <= rounding] = 0.0
        gap = 0.0
        for side in ("left", "right"):
            own = np.searchsorted(sample, sample, side=side) * pool.size
            all_of_them = np.searchsorted(pool, sample, side=side) * sample.size
            gap = max(gap, float(np.abs(own - all_of_them).max()))
        distances.append(gap / (sample.size * (pool.size - sample.size)))
    return math.fsum(distances) / count * math.sqrt((count - 1) / count)


def laws_distance(a: Law, b: Law) -> float:
    r"""Kolmogorov–Smirnov distance :math:`\sup_x |F_a(x) - F_b(x)|` of two laws.

    The supremum is taken over both one-sided limits at 2000 quantiles of each law, the edges and the atoms; it may be
    missed by 1/2000. As in `compare`, what lies within 1e-12 of 0, relative to the largest magnitude, is one bin.

    Raises
    ------
    ParameterError : a or b is not a `Law`.
    """
    laws = {"a": a, "b": b}
    for name, law in laws.items():
        if not isinstance(law, Law):
            raise ParameterError(f"{name} must be a gequiv law; got {law!r}")
    levels = (np.arange(_LEVELS) + 0.5) / _LEVELS
    edges = [end for law in laws.values() for interval in law.support() for end in interval]
    atoms = [location for law in laws.values() for location, _ in law.atoms()]
    rounding = ROUNDING * max(_reach(a), _reach(b))
    points = np.unique(np.concatenate([a.ppf(levels), b.ppf(levels), edges, atoms, [-rounding, rounding]]))
    points = points[np.abs(points) >= rounding]
    right, left = (np.array(limits) for limits in zip(*(_one_sided(law, points) for law in laws.values()), strict=True))
    return float(max(np.abs(right[0] - right[1]).max(), np.abs(left[0] - left[1]).max()))


def as_draws(name: str, value: Any) -> list[Array]:
    """`value`, one array or a list of arrays, as a list of non-empty finite 1-D arrays (copies)."""
    several = isinstance(value, (list, tuple)) and len(value) > 0 and not all(_is_number(item) for item in value)
    items = list(value) if several else [value]
    return [_one_draw(f"{name}[{i}]" if several else name, item, alone=not several) for i, item in enumerate(items)]


def _is_number(item: Any) -> bool:
    return not isinstance(item, (list, tuple)) and np.ndim(item) == 0


def _one_draw(name: str, value: Any, *, alone: bool) -> Array:
    array = _checks.real_array(name, value)
    if array.ndim != 1:
        hint = " (if its rows are draws, pass list(array))" if alone and array.ndim == 2 else ""
        wanted = "a 1-D array of eigenvalues or a list of such arrays" if alone else "a 1-D array of eigenvalues"
        raise ParameterError(f"{name} must be {wanted}; got an array of shape {array.shape}{hint}")
    if array.size == 0:
        raise ParameterError(f"{name} must hold at least one eigenvalue; got an empty array")
    if not np.isfinite(array).all():
        bad = float(array[~np.isfinite(array)][0])
        raise ParameterError(f"{name} must hold finite eigenvalues; got {bad!r} among them")
    return array


def standard_error(values: tuple[float, ...]) -> float | None:
    """Standard error of the mean, from the spread; None for one value."""
    if len(values) < 2:
        return None
    scale = max(abs(value) for value in values)
    if scale == 0:
        return 0.0
    # in units of the largest, so that no square overflows
    return float(np.std(np.array(values) / scale, ddof=1) * scale / math.sqrt(len(values)))


def _reach(law: Law) -> float:
    """Largest magnitude in the law's support."""
    edges = [abs(end) for interval in law.support() for end in interval]
    return float(max(edges + [abs(location) for location, _ in law.atoms()]))


def _snap(sample: Array, law: Law, rounding: float) -> Array:
    for location, _ in law.atoms():
        sample[np.abs(sample - location) <= rounding] = location
    return np.sort(sample)


def _one_sided(law: Law, points: Array) -> tuple[Array, Array]:
    """The distribution function at the points and its limits from the left."""
    right = np.asarray(law.cdf(points), dtype=np.float64)
    left = right.copy()
    for location, weight in law.atoms():
        left[points == location] -= weight
    return right, left


def _distances(law: Law, sample: Array, rounding: float) -> tuple[float, float]:
    """KS and W_1 of one sorted sample; see `compare` for what `rounding` does."""
    atoms = [location for location, _ in law.atoms()]
    points = np.unique(np.concatenate([sample, atoms]))
    law_right, law_left = _one_sided(law, points)
    sample_right = np.searchsorted(sample, points, side="right") / sample.size
    sample_left = np.searchsorted(sample, points, side="left") / sample.size
    differences = np.maximum(np.abs(sample_right - law_right), np.abs(sample_left - law_left))
    if 0.0 in atoms:
        ks = float(differences.max())
    else:
        ends = np.array([np.nextafter(-rounding, -np.inf), rounding])
        at_ends = np.abs(np.searchsorted(sample, ends, side="right") / sample.size - law.cdf(ends))
        ks = float(max(at_ends.max(), differences[np.abs(points) > rounding].max(initial=0.0)))

    integral = points * law_right - law.partial_mean(points)  # of F from -inf; the atoms cancel in it
    total_mean = float(law.partial_mean(np.inf))
    below = max(0.0, float(integral[0]))
    above = max(0.0, total_mean - points[-1] + float(integral[-1]))
    width, step, area = np.diff(points), sample_right[:-1], np.diff(integral)
    between = np.abs(step * width - area)
    crossed = (law_right[:-1] < step) & (step < law_left[1:])
    if crossed.any():
        left, right = points[:-1][crossed], points[1:][crossed]
        level = step[crossed]
        cut = np.clip(law.ppf(level), left, right)
        at_cut = cut * law.cdf(cut) - law.partial_mean(cut)
        first = level * (cut - left) - (at_cut - integral[:-1][crossed])
        second = (integral[1:][crossed] - at_cut) - level * (right - cut)
        between[crossed] = np.abs(first) + np.abs(second)
    return ks, float(below + between.sum() + above)


def _moments(law: Law, samples: list[Array]) -> tuple[Moment, ...]:
    found = []
    for order in range(1, MOMENTS + 1):
        try:
            expected = law.moment(order)
        except ParameterError:  # beyond the floats, and so is every higher one
            break
        except CertificationError:  # one number refused, not the law
            continue
        with np.errstate(over="ignore"):
            values = tuple(float(np.mean(sample**order)) for sample in samples)
            mean = sum(values) / len(values)
        if not math.isfinite(mean):
            break
        error = standard_error(values)
        z = (mean - expected) / error if error else None
        found.append(Moment(order, mean, float(expected), error, z))
    return tuple(found)
