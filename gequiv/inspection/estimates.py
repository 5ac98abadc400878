r"""What one attention matrix says about its scores: inverse temperature by three routes, head width, inner directions.

For scores βS with Gaussian rows, row i over k keys has, with :math:`W = \sum_j e^{\beta S_{ij}}`,

.. math:: E\,k\sum_j (A_{ij} - 1/k)^2 = k\,p(k, \beta) - 1, \qquad
    E H_i = L - \beta L', \quad L(\beta) = E\log W = \log k + \beta^2/2 + c(k, \beta),

p the participation and c the deficit of the normaliser of `gequiv.attention.freezing`, both averaged over the norms of
the queries. The means over rows are solved for β. A third estimate needs no law: the logarithm of A is the scores up to
a constant for each row, so that the variance of log A within rows is β². For scores that are not Gaussian the three
disagree.

The logarithm gives the sizes, too. Its rank, rows and columns centred, is the head width d_k; and the second moment of
its squared singular values says how unequal the inner directions are: with τ the mean over n_q rows,

.. math:: \frac{\tau((\tilde S\tilde S^T)^2)}{(\tau\tilde S\tilde S^T)^2} = 1 + \frac{n_q}{n_k} + \frac{n_q}{d_k}
    + 2\frac{n_q}{d} + O(1/d_k)

for n_q queries and n_k keys, from the S-transform of the chain, so that r = d_k/d is read off: zero for orthonormal
tokens. Up to four largest values, a quarter of d_k, that stand apart from all others are left out. The singular values
of A itself do not enter, so that nothing but β is fitted to them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline, make_interp_spline
from scipy.optimize import brentq
from scipy.special import ndtr

from gequiv._checks import Array
from gequiv.attention.freezing import log_normaliser_mean, participation
from gequiv.attention.inner_weights import norm_nodes

FEWEST_KEYS = 16
"""Rows over fewer keys are left out of the estimates."""
_BETAS = np.exp(np.linspace(math.log(0.02), math.log(6.0), 49))
_GRID = np.linspace(math.log(0.01), math.log(10.0), 52)  # of log σ
_NORM_NODES = 12
_COUNT_NODES = 9
_GAP, _GAP_AT_THE_END, _NEARLY_FULL = 25.0, 1e6, 0.9
_ROUNDING = 1e-12
_VARIANCES = np.linspace(0.01, 5.0, 500)
_TINY = 1e-300
_BINS = 32
_APART = 1.6
_MOST_ISOLATED = 4


# -- inverse temperature --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Routes:
    """From the mean energy and the mean entropy of rows over given numbers of keys to β; made by `routes`.

    Attributes
    ----------
    log_energy, entropy : splines in log β.
    cold : entropy at β = 0, the mean log of the number of keys.
    """

    log_energy: CubicSpline
    entropy: CubicSpline
    cold: float

    def beta_of_energy(self, energy: float) -> float:
        """β of a mean row energy k Σ_j (A_ij - 1/k)²; infinite above that of β = 6, where rows are all but one-hot."""
        if not energy > 0:
            return 0.0
        return _inverted(lambda t: float(self.log_energy(t)) - math.log(energy))

    def beta_of_entropy(self, entropy: float) -> float:
        """β of a mean row entropy, in nats; infinite below that of β = 6."""
        missing = self.cold - entropy
        if not missing > _ROUNDING * self.cold:
            return 0.0
        return _inverted(lambda t: math.log(missing) - math.log(self.cold - float(self.entropy(t))), flipped=True)


def _inverted(excess: Callable[[float], float], *, flipped: bool = False) -> float:
    """exp of the root of a function that grows with log β (or falls, flipped), by β² below the first knot."""
    low, high = math.log(_BETAS[0]), math.log(_BETAS[-1])
    sign = -1.0 if flipped else 1.0
    first = sign * excess(low)
    if first > 0:
        return math.exp(low - first / 2)
    if sign * excess(high) < 0:
        return math.inf
    return math.exp(brentq(lambda t: sign * excess(t), low, high, xtol=1e-10))


@lru_cache(maxsize=512)
def _row(count: int) -> tuple[CubicSpline, CubicSpline]:
    """log(k p - 1) and the deficit c of one row over k keys, as splines in log σ, σ the scores' standard deviation."""
    sigmas = np.exp(_GRID)
    moments = np.array([count * participation(count, float(s)) - 1 for s in sigmas])
    deficit = np.array([log_normaliser_mean(count, float(s)) for s in sigmas])
    return CubicSpline(_GRID, np.log(moments)), CubicSpline(_GRID, deficit)


@lru_cache(maxsize=64)
def routes(counts: tuple[tuple[int, int], ...], head_dim: int) -> Routes:
    """The splines for rows of which ``number`` see ``count`` keys each, for (count, number) in counts.

    Many counts are interpolated in their logarithm from a few.

    Parameters
    ----------
    head_dim : directions over which the norms of queries are averaged.
    """
    sizes = np.array([count for count, _ in counts])
    shares = np.array([number for _, number in counts]) / sum(number for _, number in counts)
    nodes = np.unique(np.geomspace(sizes[0], sizes[-1], _COUNT_NODES).round().astype(int))
    if sizes.size <= nodes.size:
        nodes = sizes
    norms = norm_nodes(head_dim / 2, _NORM_NODES)
    x = np.log(_BETAS)
    sigmas = np.clip(x + np.log(norms.nodes)[:, None] / 2, _GRID[0], _GRID[-1])
    energies, deficits = [], []
    for count in nodes:
        moment, deficit = _row(int(count))
        energies.append(norms.shares @ np.exp(moment(sigmas)))
        deficits.append(norms.shares @ (deficit(sigmas) - deficit(sigmas, 1)))

    def mean(values: list[Array]) -> Array:
        if nodes is sizes:
            return shares @ np.array(values)
        spline = make_interp_spline(np.log(nodes), np.array(values), k=min(3, nodes.size - 1))
        return np.asarray(shares @ spline(np.log(sizes)))

    cold = float(shares @ np.log(sizes))
    entropy = cold - _BETAS**2 / 2 + mean(deficits)
    return Routes(CubicSpline(x, np.log(mean(energies))), CubicSpline(x, entropy), cold)


def counted(numbers: NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    """(count, number of rows), ascending, of the rows that enter the estimates: those over enough keys, if any are."""
    enough = numbers[numbers >= min(FEWEST_KEYS, int(numbers.max()))]
    values, times = np.unique(enough, return_counts=True)
    return tuple(zip(values.tolist(), times.tolist(), strict=True))


# -- sizes ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScoreShape:
    """What the scores are, up to constants of rows and of columns.

    Attributes
    ----------
    beta : their standard deviation.
    head_dim : their rank d_k; None if they have full rank to rounding.
    ratio : r = d_k/d, clipped to [0, 1]; zero for orthonormal tokens.
    directions : effective number of inner directions, d_k/(1 + r)² before r was clipped.
    """

    beta: float
    head_dim: int | None
    ratio: float
    directions: float


def score_shape(scores: Array, head_dim: int | None = None) -> ScoreShape | None:
    """Shape of the scores of a block in which all rows see all keys; None if they do not vary.

    Parameters
    ----------
    scores : (n_q, n_k), finite; of any constants in rows and columns.
    head_dim : if it is known.
    """
    size = float(np.abs(scores).max())
    centred = scores - scores.mean(axis=1, keepdims=True)
    centred -= centred.mean(axis=0)
    rows, keys = centred.shape
    gram = centred @ centred.T if rows <= keys else centred.T @ centred
    values = np.linalg.eigvalsh(gram)[::-1]
    total = float(values.sum())
    if not total > (_ROUNDING * size) ** 2 * rows * keys:
        return None
    n, m = rows - 1, keys - 1
    beta = math.sqrt(total / (n * m))
    if head_dim is None:
        head_dim = _rank(values)
    shares = values[_isolated(values, head_dim or values.size - 1) :]
    shares = shares / shares.sum()
    second = n * float(shares @ shares)
    if head_dim is None:
        k = n / max(second - 1 - n / m, 1e-3)
        return ScoreShape(beta, None, 0.0, k)
    k = head_dim
    base = ((n + 1) * (m + k + 1) + m * k + 2) / (m * k) * (n / (n + 1))
    excess = (second - base) / (2 * n / k)
    # (1 + r)² up to O(1/d_k) beyond the first order in r/n
    return ScoreShape(beta, k, min(max(excess, 0.0), 1.0), k / max(1.0, 1 + 2 * excess + min(excess, 1.0) ** 2))


def _isolated(values: Array, rank: int) -> int:
    """How many of the largest values stand apart from all others: planted directions, no part of the inner space."""
    most = max(0, min(_MOST_ISOLATED, rank // 4, values.size - 2))  # the last value is zero
    falls = values[:most] / np.maximum(values[1 : most + 1], _ROUNDING * values[0])
    apart = np.flatnonzero(falls > _APART)
    return int(apart[-1]) + 1 if apart.size else 0


def _rank(values: Array) -> int | None:
    """Where the squared singular values fall off a cliff; None where they do not."""
    present = values[: values.size - 1]
    if present.size < 2:
        return None
    floor = values[0] * 1e-15
    falls = np.maximum(present[:-1], floor) / np.maximum(present[1:], floor)
    place = int(np.argmax(falls))
    # of full rank, the least value of white scores is small by chance
    gap = _GAP if place + 1 < _NEARLY_FULL * values.size else _GAP_AT_THE_END
    return place + 1 if falls[place] > gap else None


# -- single entries -------------------------------------------------------------------------------------


def single_entries(log_value: float, beta: float, counts: tuple[tuple[int, int], ...], directions: float) -> float:
    r"""Expected number of entries of a random head that alone make a squared singular value of at least e^log_value.

    An entry makes :math:`s = \sqrt{k}A_{ij}`, :math:`A_{ij} = e^{\beta S_{ij} - \beta^2/2}/k` up to the fluctuation of
    the normaliser, so that the number is :math:`\sum_i k_i P(\beta S > \log s + \tfrac12\log k_i + \beta^2/2)`, S a
    Gaussian whose variance is a Gamma variable of mean one and shape half the number of inner directions.

    Parameters
    ----------
    counts : (k, number of rows over k keys).
    """
    keys, rows = np.array(counts, dtype=np.float64).T
    if keys.size > _BINS:  # rows of similar numbers of keys as one
        parts = np.array_split(np.arange(keys.size), _BINS)
        keys = np.array([np.average(keys[part], weights=rows[part]) for part in parts])
        rows = np.array([rows[part].sum() for part in parts])
    x = (log_value / 2 + np.log(keys) / 2 + beta**2 / 2) / beta
    shape = directions / 2
    g = _VARIANCES
    log_density = shape * math.log(shape) - math.lgamma(shape) + (shape - 1) * np.log(g) - shape * g
    tails = ndtr(-x[:, None] / np.sqrt(g)) @ (np.exp(log_density) * (g[1] - g[0]))
    return float((rows * keys) @ tails)


def largest_entry(expected: float, beta: float, counts: tuple[tuple[int, int], ...], directions: float) -> float:
    """log of the squared singular value that `single_entries` expects so many of."""

    def excess(v: float) -> float:
        return math.log(max(single_entries(v, beta, counts, directions), _TINY) / expected)

    return float(brentq(excess, -60.0, 60.0))
