r"""What chance alone does: the statistics of random heads, drawn and held against their laws as real heads are.

Four statistics say how far a head is from random: the Kolmogorov–Smirnov distance D of its bulk from the law of its
own β, the logarithm of its largest squared singular value (over a power of β), once of vectors that are not localised
and once of any, and the logarithm of its β by entropy over its β by energy. Their laws for random heads have no closed
form: eigenvalues repel each other, β is fitted, the law itself is that of a large matrix. They are learned from draws
at the anchors :math:`1.25^k`: mean, standard deviation and skewness of log D and of the others, between anchors by
linear interpolation in log β (of the log deviation).
The p-value of a statistic is that of a Pearson type III variable of these moments, of at least the skewness that such
statistics have where draws are few to tell, seen with the t-distribution's allowance for moments known from few draws.
A single huge entry is rarer than draws tell: what it does is bounded by `gequiv.inspection.estimates.single_entries`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincc, gammainccinv, ndtr, ndtri, stdtr, stdtrit

from gequiv._checks import Array
from gequiv.inspection.head import Held

STEP = math.log(1.25)
DRAWS, LARGE_DRAWS = 48, 16
"""Random heads an anchor; fewer of large ones, whose statistics scatter less and cost more."""
EDGE_SKEWNESS, MASKED_EDGE_SKEWNESS = 1.0, 0.5
"""Least skewness of the largest value of vectors that are not localised."""
_LEAST_SKEWNESS = {0: 0.3, 2: 1.0, 3: 0.5}  # of the other statistics
_MOST_SKEWNESS = 2.0
_LEAST_DEVIATION = 1e-6
_CAP = 10.0
_LARGE = 1024


def is_large(rows: int, keys: int) -> bool:
    """Whether heads of these sizes are drawn less often."""
    return min(rows, keys) > _LARGE


def statistics(held: Held) -> Array:
    """log D, edge excesses, β excess."""
    return np.array([math.log(max(held.ks, 1e-12)), held.edge_excess, held.edge_excess_local, held.beta_excess])


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean, log of the standard deviation and skewness of the four statistics over draws, each of shape (4,).

    With a mask also the log of the detection threshold over the root of the mean energy of a row. `edge_skewness` is
    the least skewness that the largest value of vectors that are not localised is taken to have.
    """

    mean: Array
    log_deviation: Array
    skewness: Array
    draws: int
    log_threshold: float = math.nan
    edge_skewness: float = EDGE_SKEWNESS

    @classmethod
    def of(cls, helds: list[Held]) -> Moments:
        """From random heads."""
        values = np.array([statistics(held) for held in helds])
        mean, deviation = values.mean(axis=0), np.maximum(values.std(axis=0, ddof=1), _LEAST_DEVIATION)
        skewness = (((values - mean) / deviation) ** 3).mean(axis=0)
        return cls(mean, np.log(deviation), skewness, len(helds))

    def toward(self, other: Moments, share: float) -> Moments:
        """Moments at that share of the way to others."""
        return Moments(
            (1 - share) * self.mean + share * other.mean,
            (1 - share) * self.log_deviation + share * other.log_deviation,
            (1 - share) * self.skewness + share * other.skewness,
            min(self.draws, other.draws),
            (1 - share) * self.log_threshold + share * other.log_threshold,
            self.edge_skewness,
        )

    def p_values(self, held: Held) -> tuple[float, float, float, float]:
        """Of the bulk (large distance), of the edges (large value) and of β (either side)."""
        found = statistics(held)
        shared = np.abs(self.mean) > _CAP / 2  # where most draws are infinite
        z = (np.where(shared, np.clip(found, -_CAP, _CAP), found) - self.mean) / np.exp(self.log_deviation)
        bulk, edge, local = (self._upper(float(z[k]), self._skew(k)) for k in range(3))
        return bulk, edge, local, min(1.0, 2 * self._upper(abs(float(z[3])), self._skew(3)))

    def edge_margins(self, level: float) -> tuple[float, float]:
        """How far beyond the unit, in the log of squared singular values, chance goes with that probability.

        For vectors that are not localised, and for any.
        """
        return self._margin(1, level), self._margin(2, level)

    def _margin(self, statistic: int, level: float) -> float:
        z = _pearson_quantile(level, self._skew(statistic))
        # to the t-distribution's quantile of the same normal score
        inflation = -float(stdtrit(self.draws - 1, ndtr(-z))) / z if z > 0 else 1.0
        scale = inflation * math.sqrt(1 + 1 / self.draws)
        return float(self.mean[statistic] + math.exp(self.log_deviation[statistic]) * z * scale)

    def _upper(self, z: float, skewness: float) -> float:
        if math.isinf(z):
            return 0.0 if z > 0 else 1.0
        z /= math.sqrt(1 + 1 / self.draws)
        if z > 0:  # as unlikely as the normal score that a t-variable of this size has
            tail = float(stdtr(self.draws - 1, -z))
            z = -float(ndtri(tail)) if tail > 0 else 40.0
        return _pearson_tail(z, skewness)

    def _skew(self, statistic: int) -> float:
        least = _LEAST_SKEWNESS.get(statistic, self.edge_skewness)
        return min(max(abs(float(self.skewness[statistic])), least), _MOST_SKEWNESS)


def _pearson_tail(z: float, skewness: float) -> float:
    """Probability that a standardised Pearson type III variable, a shifted Gamma, of that skewness is above z."""
    shape = 4 / skewness**2
    return float(gammaincc(shape, max(shape + z * math.sqrt(shape), 0.0)))


def _pearson_quantile(tail: float, skewness: float) -> float:
    """Where `_pearson_tail` has that value."""
    shape = 4 / skewness**2
    return float((gammainccinv(shape, tail) - shape) / math.sqrt(shape))


def pooled_moments(kinds: Sequence[tuple[float, Sequence[Held]]], bandwidth: float) -> list[Moments]:
    r"""Moments of random heads of several kinds, each drawn a few times: means of their own, scatter in common.

    For a kind of m draws the deviation is that of all draws about the means of their kinds, those of similar places
    counting most, times :math:`\sqrt{1 + 1/m}` for what the kind's mean leaves open. Infinite statistics, of draws that
    have no β, count as ±10.

    Parameters
    ----------
    kinds : (place, draws) of each: at least two draws.
    bandwidth : of the Gaussian kernel in places.
    """
    values = [np.clip([statistics(held) for held in helds], -_CAP, _CAP) for _, helds in kinds]
    scatter = np.concatenate([(v - v.mean(axis=0)) * math.sqrt(len(v) / (len(v) - 1)) for v in values])
    places = np.concatenate([np.full(len(v), place) for v, (place, _) in zip(values, kinds, strict=True)])
    result = []
    for own, (place, _) in zip(values, kinds, strict=True):
        weights = np.exp(-0.5 * ((places - place) / bandwidth) ** 2)
        draws = max(2, round(float(weights.sum() ** 2 / (weights @ weights))))
        weights /= weights.sum()
        deviation = np.maximum(np.sqrt(weights @ scatter**2), _LEAST_DEVIATION)
        skewness = weights @ (scatter / deviation) ** 3
        open_mean = math.sqrt((1 + 1 / len(own)) / (1 + 1 / draws))
        result.append(Moments(own.mean(axis=0), np.log(deviation * open_mean), skewness, draws))
    return result


class Calibration:
    """Moments at every β, from those at the anchors around it.

    Parameters
    ----------
    draw : moments of random heads at one β, held against their laws; None where they have none.
    """

    def __init__(self, draw: Callable[[float], Moments | None]) -> None:
        self._draw = draw
        self._anchors: dict[int, Moments | None] = {}

    @staticmethod
    def anchors(betas: Iterable[float]) -> list[int]:
        """Numbers of the anchors that these β need."""
        lows = {math.floor(math.log(beta) / STEP) for beta in betas}
        return sorted(lows | {low + 1 for low in lows})

    @staticmethod
    def beta_of(anchor: int) -> float:
        """1.25^k."""
        return math.exp(STEP * anchor)

    def at_anchor(self, anchor: int) -> Moments | None:
        """Moments at an anchor; None where it has none."""
        if anchor not in self._anchors:
            self._anchors[anchor] = self._draw(self.beta_of(anchor))
        return self._anchors[anchor]

    def at(self, beta: float) -> Moments | None:
        """Moments at β; None if an anchor around it has none."""
        place = math.log(beta) / STEP
        low = math.floor(place)
        below, above = self.at_anchor(low), self.at_anchor(low + 1)
        return None if below is None or above is None else below.toward(above, place - low)


def holm(p_values: list[float]) -> list[float]:
    """Holm's adjusted p-values: the probability that any of so many random heads is called otherwise is kept."""
    order = sorted(range(len(p_values)), key=lambda k: p_values[k])
    adjusted, worst = [0.0] * len(p_values), 0.0
    for rank, k in enumerate(order):
        worst = max(worst, min(1.0, (len(p_values) - rank) * p_values[k]))
        adjusted[k] = worst
    return adjusted
