r"""Rates of convergence: the exponent of KS ∝ n^exponent along a line of models, and its interval.

The slope b of log KS on log n is that of least squares over single draws, :math:`b = \sum_i c_i \bar y_i` with means
:math:`\bar y_i` of the log KS of the :math:`R_i` draws at :math:`n_i` and :math:`c_i = R_i (x_i - \bar x)/S_{xx}`. Two
things make it uncertain.

- Draws: variance :math:`\sum_i c_i^2 s_i^2/R_i`, with the pooled variance :math:`s^2` of single draws for all
  :math:`s_i^2` where some n has less than five of them, else the separate ones with Welch and Satterthwaite's degrees
  of freedom.
- Misfit, which draws of one n have in common and more draws do not reduce: what the means about the line have beyond
  their draws, :math:`\sum_i (c_i^2/R_i) \max(0, M - s^2)` with the mean square :math:`M = \sum_i R_i (\bar y_i - \hat
  y_i)^2/(k - 2)` and two less than the k values of n as degrees of freedom; with one draw for every n, M alone.

The half-width is the root of the sum of squares of the two parts' own Student half-widths; degrees of freedom are
stated so that Student's quantile times the standard error is that. By simulation the interval covers the exponent 97
times of 100 if draws alone make it uncertain, and 87 to 95 times with a random misfit as large as the means' noise
or larger, where intervals that first test for a misfit cover it 75 to 90 times.

With spectra by the Lanczos route KS is off by up to ε, so that :math:`\bar y_i` is by up to
:math:`\delta_i = -\log(1 - ε_i/KS_i)` and b by `slack` = :math:`\sum_i |c_i| \delta_i`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gequiv._checks import Array
from gequiv.simulation.campaign.files import FEWEST_RATE_VALUES, lines_of
from gequiv.simulation.campaign.findings import LEVEL, Rate
from gequiv.simulation.campaign.measured import Measured
from gequiv.simulation.campaign.model import Model
from gequiv.simulation.campaign.power import estimate, interval, student
from gequiv.simulation.comparison import standard_error

_MANY_DRAWS = 5


@dataclass(frozen=True)
class Slope:
    """Slope of a straight line through groups of points; see the module.

    Attributes
    ----------
    value, error, freedom : with standard error and its degrees of freedom.
    curved : whether a quadratic term is significant.
    coefficients : c_i.
    """

    value: float
    error: float
    freedom: float
    curved: bool
    coefficients: Array


def fit_slope(places: Sequence[float], samples: Sequence[Sequence[float]]) -> Slope:
    """Slope over at least three different places of one or more values each."""
    x = np.asarray(places, dtype=np.float64)
    y = np.array([math.fsum(values) / len(values) for values in samples])
    counts = np.array([len(values) for values in samples], dtype=np.float64)
    weights, coefficients = _slope_weights(x, counts)
    value = math.fsum(coefficients * y)
    residuals = y - (weights @ y + value * (x - weights @ x))
    misfit = math.fsum(counts * residuals**2) / (x.size - 2)
    between = math.fsum(coefficients**2 / counts)

    inner = np.array([math.fsum((v - m) ** 2 for v in values) for values, m in zip(samples, y, strict=True)])
    freedom = float(counts.sum()) - x.size
    if freedom == 0:
        return Slope(value, math.sqrt(misfit * between), x.size - 2, curved=False, coefficients=coefficients)
    pooled = math.fsum(inner) / freedom
    separate = counts.min() >= _MANY_DRAWS
    variances = inner / (counts - 1) if separate else np.full(x.size, pooled)

    def within(c: Array) -> tuple[float, float]:
        """Variance of Σ c ȳ due to draws, and its degrees of freedom."""
        terms = c**2 * variances / counts
        total = math.fsum(terms)
        if not separate or total == 0:
            return total, freedom
        return total, 1 / math.fsum((terms / total) ** 2 / (counts - 1))

    bend = _bend_weights(x, counts)
    bend_variance, bend_freedom = within(bend)
    rounding = 1e-9 * max(1.0, float(np.abs(y).max()))  # of equal draws
    curved = abs(math.fsum(bend * y)) > max(student(bend_freedom) * math.sqrt(bend_variance), rounding)
    excess = between * max(0.0, misfit - pooled) if misfit > rounding**2 else 0.0
    error, degrees = _combined(within(coefficients), (excess, x.size - 2))
    return Slope(value, error, degrees, curved, coefficients)


def _combined(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """Standard error of two variances with degrees of freedom, and the degrees of the interval; see the module."""
    from scipy.special import stdtr

    error = math.sqrt(first[0] + second[0])
    if second[0] == 0:
        return error, first[1]
    quantile = math.hypot(*(student(degrees) * math.sqrt(variance) for variance, degrees in (first, second))) / error
    low, high = sorted((first[1], second[1]))
    level = 0.5 + LEVEL / 2
    for _ in range(60):  # stdtr grows with the degrees of freedom
        middle = math.sqrt(low * high)
        low, high = (middle, high) if stdtr(middle, quantile) < level else (low, middle)
    return error, math.sqrt(low * high)


def _slope_weights(x: Array, counts: Array) -> tuple[Array, Array]:
    weights = counts / counts.sum()
    centred = x - weights @ x
    return weights, counts * centred / (counts @ centred**2)


def _bend_weights(x: Array, counts: Array) -> Array:
    """Coefficients of the quadratic term, in units of x²."""
    root = np.sqrt(counts)
    scale = float(np.ptp(x))
    z = (x - x.mean()) / scale
    inverse: Array = np.linalg.pinv(np.vander(z, 3) * root[:, None])
    bend: Array = inverse[0] * root / scale**2
    return bend


def fit_rates(models: Sequence[Model], measured: Mapping[int, Measured], over: str = "tokens") -> tuple[Rate, ...]:
    """A rate for every line of models over at least three values of an axis, and every law of all of them.

    Parameters
    ----------
    models : those that lines are made of.
    measured : what was measured of each, by `id` of the model.
    over : the axis, a numeric one.
    """
    found = []
    for axes, line in lines_of(models, over):
        laws = dict.fromkeys(law for model in line for law in model.laws)
        for law in laws:
            rate = _fit_line(line[0].group, axes, law, over, line, measured)
            if rate is not None:
                found.append(rate)
    return tuple(found)


def _fit_line(
    group: str, axes: Mapping[str, object], law: str, over: str, line: Sequence[Model], measured: Mapping[int, Measured]
) -> Rate | None:
    distances: dict[float, list[float]] = {}
    errors: dict[float, float] = {}
    for model in line:
        place, mine = model.parameters()[over], measured[id(model)]
        if law not in model.laws or not isinstance(place, (int, float)) or place <= 0:
            continue
        ks = [float(value) for value in mine.ks(law) if value > 0]
        if ks:
            distances.setdefault(float(place), []).extend(ks)
            errors[float(place)] = max(errors.get(float(place), 0.0), mine.slack)
    if len(distances) < FEWEST_RATE_VALUES:
        return None
    places = sorted(distances)
    slope = fit_slope([math.log(n) for n in places], [[math.log(v) for v in distances[n]] for n in places])
    points = tuple((n, estimate(distances[n]).value, standard_error(tuple(distances[n]))) for n in places)
    slack = math.fsum(
        abs(c) * _log_error(errors[n], ks) for c, n, (_, ks, _) in zip(slope.coefficients, places, points, strict=True)
    )
    exponent = interval(slope.value, slope.error, slope.freedom)
    return Rate(group, law, over, dict(axes), points, exponent, slope.curved, slope.freedom, slack)  # type: ignore[arg-type]


def _log_error(error: float, distance: float) -> float:
    return -math.log1p(-error / distance) if error < distance else math.inf
