r"""Intervals of means over draws, verdicts on them, and what these verdicts could have missed.

A mean m of R draws with standard error e has the Student interval :math:`m \pm t_{R-1} e`. A claim that the true value
lies in [low, high] has held if the interval lies in that range, has failed if it lies outside, and is open else. At the
true value μ the statistic (m - high)/e is a noncentral Student variable of noncentrality (μ - high)/e', with e' the
true error, so that the claim fails with probability `LEVEL` from

.. math:: \mu = high + \delta e, \qquad P(T_{R-1}(\delta) > t_{R-1}) = LEVEL

on: `detectable`. δ is 3.6 for many draws, 5.7 for four, 32 for two.

Spectra of the Lanczos route are estimates whose distribution functions are off by up to ε: their 99 % sampling error
and half a step of the stored quantiles. By the triangle inequality a KS distance is then off by at most ε as well,
mostly upwards. That is `slack`: both ends of an interval are moved out by it before it is judged, and the detectable
value lies twice as far out, once for the interval and once for an estimate that errs the other way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gequiv._checks import Array
from gequiv.simulation.campaign.findings import LEVEL, Estimate, Verdict
from gequiv.simulation.comparison import standard_error

_LEVELS = 4000


def student(freedom: float, level: float = LEVEL) -> float:
    """Half-width, in standard errors, of the two-sided interval of this coverage."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + level / 2))


def estimate(values: Sequence[float] | Array) -> Estimate:
    """Mean of one or more draws, with its interval."""
    numbers = tuple(float(value) for value in values)
    mean, error = math.fsum(numbers) / len(numbers), standard_error(numbers)
    if error is None:
        return Estimate(mean, None, None, None)
    return interval(mean, error, len(numbers) - 1)


def interval(value: float, error: float, freedom: float) -> Estimate:
    """A value with a standard error of these degrees of freedom."""
    margin = student(freedom) * error
    return Estimate(value, error, value - margin, value + margin)


@lru_cache(maxsize=4096)
def noncentrality(freedom: float, quantile: float, level: float = LEVEL) -> float:
    r"""δ at which a noncentral Student variable exceeds `quantile` with probability `level`.

    From :math:`P(T(\delta) > t) = E\,\Phi(\delta - t s)` with :math:`s^2 \sim \chi^2_\nu/\nu`, to four digits.
    """
    from scipy.optimize import brentq
    from scipy.special import gammaincinv, ndtr

    shares = (np.arange(_LEVELS) + 0.5) / _LEVELS
    scales = np.sqrt(gammaincinv(freedom / 2, shares) * 2 / freedom)

    def missed(delta: float) -> float:
        return float(np.mean(ndtr(delta - quantile * scales))) - level

    return float(brentq(missed, -10.0, 10.0 + quantile * float(scales[-1])))


@dataclass(frozen=True)
class Judgement:
    """A mean held against a range.

    Attributes
    ----------
    verdict : see the module.
    low, high : true values below and above the range that would have failed with probability `LEVEL`; infinite where
        the range has no such end, None without an error bar.
    """

    verdict: Verdict
    low: float | None
    high: float | None

    @property
    def tested(self) -> bool:
        """Whether there was an error bar."""
        return self.low is not None

    def fails(self, value: float) -> bool:
        """Whether this true value would have failed with probability `LEVEL`."""
        return self.low is not None and self.high is not None and (value <= self.low or value >= self.high)


def judge(
    found: Estimate, freedom: float, low: float = -math.inf, high: float = math.inf, slack: float = 0.0
) -> Judgement:
    """The claim that the true value lies in [low, high], by the rule of the module."""
    if found.error is None or found.low is None or found.high is None:
        return Judgement("not enough draws", None, None)
    bottom, top = found.low - slack, found.high + slack
    verdict: Verdict = "not enough draws"
    if top < low or bottom > high:
        verdict = "failed"
    elif bottom >= low and top <= high:
        verdict = "held"
    reach = 2 * slack + noncentrality(freedom, student(freedom)) * found.error
    return Judgement(verdict, low - reach, high + reach)
