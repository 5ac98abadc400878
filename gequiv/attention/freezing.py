r"""One row of attention as a random energy model: how many entries carry it, and the mean log of its normaliser.

A row over n keys has weights :math:`w_j = e^{\beta g_j}` with iid standard Gaussian :math:`g_j`, n Boltzmann weights at
inverse temperature β. With :math:`\beta^2 = \gamma\log n` the share of the largest of :math:`w_j^p` stays of order one
as n grows once :math:`p^2\gamma > 2`: row sums (p = 1) freeze at γ = 2, energies of rows (p = 2) at γ = 1/2, where
Lindeberg's condition and with it the linear model end. `participation` is both thresholds at finite n,

.. math:: Y_p(n, \beta) = E\frac{\sum_j w_j^{2p}}{(\sum_j w_j^p)^2}
          = n\int_0^\infty t\,E[w^{2p} e^{-t w^p}]\,(E e^{-t w^p})^{n-1}\,dt ,

by :math:`1/W^2 = \int_0^\infty t\,e^{-tW} dt`. It tends to :math:`1 - \sqrt{2/(p^2\gamma)}` above the threshold and to
0 below, slowly: finite-n values are what draws are to be compared with.

Below γ = 1/2 the signal already vanishes: its share of the energy of a row, :math:`\beta^2/(e^{\beta^2} - 1) =
\gamma\log n/(n^\gamma - 1)`, tends to 0 for every γ > 0, and the limit law to Marchenko–Pastur of variance
:math:`e^{\beta^2} - 1` (`gequiv.simulation.laws_distance` between the two says how near).

With queries of dimension d_k the scores of row i have variance :math:`r_i = |q_i|^2/d_k \sim \chi^2_{d_k}/d_k` given
the query, and are iid over keys: with ``head_dim`` all means are also over r, and exact for rows of attention with
orthonormal tokens, without mask and bias.

Numerics: with t = e^s both integrals are convolutions of a Gaussian with entire functions of u = s + pβg that decay
doubly exponentially; the trapezoidal rule converges geometrically, with relative accuracy in the tails.

Sources: Derrida 1981; Bovier, Kurkova, Löwe 2002; Ben Arous, Bogachev, Molchanov 2005.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gequiv import _checks
from gequiv._checks import Array
from gequiv.attention.inner_weights import norm_nodes
from gequiv.errors import CertificationError, ParameterError

_ACCURACY = 1e-10
_STEPS = (0.25, 0.19)  # in log t, of the two rules that must agree: errors of e^{-π²/step}
_GAUSSIAN_STEP = 0.45  # in standard deviations: errors of e^{-2π²/step²}
_LEFT, _RIGHT = -17.0, 26.0  # reach of the Gaussian: tilted by up to 2β or to where the integrand ends
_TAIL = 14.5  # standard deviations beyond which no one of 1e12 entries is felt
_TILTED = _TAIL / 2  # β up to which 2β is within that
_MOST_KEYS = 10**12
_STEEPEST = 60.0
_FLATTEST = 1e-6
_CAREFUL = 8.0  # β up to which the two halves of the log normaliser are subtracted before they are averaged
_FLAT = 0.1  # β below which that difference is taken about E w
_NODES = (16, 24)  # of the norms of queries


def threshold(power: int = 1) -> float:
    """γ = β²/log n at which Σ w^power freezes as n grows, 2/power²: 2 for row sums, 1/2 for their energies.

    Raises
    ------
    ParameterError : power is no positive integer.
    """
    return 2 / _checks.positive_integer("power", power) ** 2


def participation_limit(gamma: float, power: int = 1) -> float:
    r"""Limit of `participation` as n grows at β² = γ log n: :math:`\max(0, 1 - \sqrt{2/(p^2\gamma)})`.

    Raises
    ------
    ParameterError : gamma is not a finite number of at least 0, or power no positive integer.
    """
    gamma = _checks.positive_real("gamma", gamma, allow_zero=True)
    critical = threshold(power)
    return 1 - math.sqrt(critical / gamma) if gamma > critical else 0.0


def participation(keys: int, beta: float, power: int = 1, *, head_dim: int | None = None) -> float:
    r""":math:`E\sum_j w_j^{2p}/(\sum_j w_j^p)^2` of a row, between 1/keys and 1; see the module.

    For power 1 it is the mean of :math:`\sum_j A_{ij}^2`, for power 2 the share of that sum that its own few largest
    terms carry, :math:`\sum_j A_{ij}^4/(\sum_j A_{ij}^2)^2`.

    Parameters
    ----------
    keys : n, up to 1e12.
    beta : inverse temperature; scores have variance one. power times beta is at least 1e-6 and at most 60.
    power : p.
    head_dim : d_k, to average over the norms of queries; None for scores of variance exactly one.

    Raises
    ------
    ParameterError : a parameter is out of range.
    CertificationError : two rules differ by more than 1e-10, relative.
    """
    keys, beta = _clean(keys, beta)
    power = _checks.positive_integer("power", power)
    _refuse_range(power * beta, "power * beta")
    return _averaged(lambda b: _participation(keys, power * b), beta, head_dim)


def log_normaliser_mean(keys: int, beta: float, *, head_dim: int | None = None) -> float:
    r""":math:`E\log\bigl(\sum_j w_j/(n e^{\beta^2/2})\bigr)`: 0 as long as row sums are near their mean.

    From :math:`E\log W = \int_0^\infty (e^{-t} - E e^{-tW})\,dt/t`. It is at most 0; about
    :math:`-(e^{\beta^2} - 1)/(2n)` for small γ, and, to leading order, for γ > 2
    :math:`\beta\sqrt{2\log n} - \log n - \beta^2/2`.

    Parameters
    ----------
    keys, beta, head_dim : as `participation`, power 1.

    Raises
    ------
    ParameterError : a parameter is out of range.
    CertificationError : two rules differ by more than 1e-10, relative.
    """
    keys, beta = _clean(keys, beta)
    _refuse_range(beta, "beta")
    # E log W - log n - β²r/2 averages to the same with r replaced by its mean, one
    return _averaged(lambda b: _log_normaliser_mean(keys, b), beta, head_dim)


def _clean(keys: Any, beta: Any) -> tuple[int, float]:
    keys = _checks.positive_integer("keys", keys)
    if keys > _MOST_KEYS:
        raise ParameterError(f"keys must be at most {_MOST_KEYS:.0e}; got {keys!r}")
    return keys, _checks.positive_real("beta", beta)


def _refuse_range(steepness: float, name: str) -> None:
    if not _FLATTEST <= steepness <= _STEEPEST:
        raise ParameterError(f"{name} must be in [{_FLATTEST:g}, {_STEEPEST:g}]; got {steepness!r}")


def _averaged(function: Callable[[float], float], beta: float, head_dim: Any) -> float:
    """E function(β√r), r ~ χ²_{d_k}/d_k, or function(β)."""
    if head_dim is None:
        return function(beta)
    head_dim = _checks.positive_integer("head_dim", head_dim)
    rules = [norm_nodes(head_dim / 2, count) for count in _NODES]
    found = [
        float(
            sum(share * function(beta * math.sqrt(node)) for node, share in zip(rule.nodes, rule.shares, strict=True))
        )
        for rule in rules
    ]
    if not abs(found[1] - found[0]) <= 1e-7 * abs(found[1]):
        raise CertificationError(
            f"the mean over the norms of queries is uncertain by {abs(found[1] / found[0] - 1):.1e} (relative) at "
            f"head_dim={head_dim}, beta={beta:g}: try a larger head_dim or head_dim=None"
        )
    return found[1]


@lru_cache(maxsize=4096)
def _participation(keys: int, sigma: float) -> float:
    if keys == 1:
        return 1.0
    low = -_TAIL * sigma if sigma > _TILTED else -(math.log(keys) + 25 + sigma**2)
    return _certified([_participation_rule(keys, sigma, step, low) for step in _STEPS], keys, sigma)


def _participation_rule(keys: int, sigma: float, step: float, low: float) -> float:
    grid = _Grid(sigma, step, low, 7 * sigma + 5)
    survival = grid.survival(grid.mean(_missing), keys - 1)
    return keys * step * float(grid.mean(_second) @ survival)


@lru_cache(maxsize=4096)
def _log_normaliser_mean(keys: int, sigma: float) -> float:
    if keys == 1:
        return -(sigma**2) / 2
    low = -_TAIL * sigma if sigma > _TILTED else -(math.log(keys) + 25 + sigma**2 - math.log(min(1.0, sigma)))
    low = min(low, -(math.log(keys) + sigma**2 / 2 + 40))
    return _certified([_log_normaliser_rule(keys, sigma, step, low) for step in _STEPS], keys, sigma)


def _log_normaliser_rule(keys: int, sigma: float, step: float, low: float) -> float:
    if sigma < _FLAT:
        return _flat_log_normaliser_rule(keys, sigma, step, low)
    grid = _Grid(sigma, step, low, 7 * sigma + 5)
    missing = grid.mean(_missing)
    survival = grid.survival(missing, keys)
    expected = np.exp(np.minimum(grid.log_t + sigma**2 / 2, 600.0))  # t E w
    difference = np.exp(-keys * expected) - survival
    if sigma <= _CAREFUL:
        # E e^{-tW} (e^{-x} - 1) where x = n (t E w + log(1 - missing)) is small, by missing = t E w - `_excess` of tw
        small = missing < 0.01
        m = missing[small]
        square = m * m * (0.5 + m * (1 / 3 + m * (1 / 4 + m * (1 / 5 + m * (1 / 6 + m * (1 / 7 + m / 8))))))
        x = keys * (grid.mean(_log_excess)[small] - square)
        difference[small] = survival[small] * np.expm1(-x)
    return step * float(difference.sum())


def _flat_log_normaliser_rule(keys: int, sigma: float, step: float, low: float) -> float:
    """For small σ, by E e^{-tw} = e^{-t E w} (1 + E ψ), where ψ ≥ 0 is `_excess` of t (w - E w)."""
    expected = math.exp(sigma**2 / 2)
    log_t = np.arange(low, math.log(60 / (keys * expected)), step)
    g = np.arange(_LEFT, -_LEFT, _GAUSSIAN_STEP)
    weights = np.exp(-0.5 * g * g) * (_GAUSSIAN_STEP / math.sqrt(2 * math.pi))
    deviation = expected * np.expm1(sigma * g - sigma**2 / 2)
    t = np.exp(log_t)
    psi = _excess(np.multiply.outer(t, deviation)) @ weights
    return -step * float(np.exp(-keys * t * expected) @ np.expm1(keys * np.log1p(psi)))


def _certified(found: list[float], keys: int, sigma: float) -> float:
    """The last of two rules' values."""
    if not abs(found[1] - found[0]) <= _ACCURACY * abs(found[1]):
        raise CertificationError(
            f"two quadratures over {keys} keys at inverse temperature {sigma:g} differ: {found[0]!r}, {found[1]!r}"
        )
    return found[1]


# -- Gaussian means on a grid ---------------------------------------------------------------------------


def _missing(u: Array) -> Array:
    """1 - e^{-w}, w = e^u."""
    return -np.expm1(-np.exp(np.minimum(u, 700.0)))


def _kept(u: Array) -> Array:
    """e^{-w}."""
    return np.exp(-np.exp(np.minimum(u, 700.0)))


def _second(u: Array) -> Array:
    """w² e^{-w}."""
    u = np.minimum(u, 700.0)
    return np.exp(2 * u - np.exp(u))


def _excess(w: Array) -> Array:
    """w - 1 + e^{-w}, with relative accuracy."""
    small = np.clip(w, -0.1, 0.1)
    series = np.zeros_like(w)
    for order in range(12, 1, -1):
        series = 1 / math.factorial(order) - small * series
    return np.where(np.abs(w) <= 0.1, small * small * series, w + np.expm1(-w))


def _log_excess(u: Array) -> Array:
    return _excess(np.exp(np.minimum(u, 700.0)))


class _Grid:
    """Means E h(s + σg) at equidistant s = log t, by a rule whose points s + σg fall on one grid of u."""

    def __init__(self, sigma: float, step: float, low: float, high: float) -> None:
        self.stride = max(1, math.ceil(step / (_GAUSSIAN_STEP * sigma)))
        fine = step / self.stride
        first, last = math.floor(_LEFT * sigma / fine), math.ceil(_RIGHT * sigma / fine)
        g: Array = np.arange(float(first), last + 1) * (fine / sigma)
        self.weights: Array = np.exp(-0.5 * g * g) * (fine / sigma / math.sqrt(2 * math.pi))
        count = math.ceil((high - low) / step) + 1
        self.log_t: Array = low + step * np.arange(float(count))
        self._u: Array = low + fine * np.arange(float(first), last + 1 + (count - 1) * self.stride)

    def mean(self, function: Callable[[Array], Array]) -> Array:
        """E function(s + σg), at each s; positive functions with relative accuracy."""
        windows = sliding_window_view(function(self._u), self.weights.size)[:: self.stride]
        return np.asarray(windows @ self.weights, dtype=np.float64)

    def survival(self, missing: Array, power: int) -> Array:
        """(E e^{-tw})^power, given 1 - E e^{-tw}."""
        few = np.log1p(-np.minimum(missing, 0.6))
        with np.errstate(divide="ignore"):
            logs: Array = np.where(missing < 0.5, few, np.log(self.mean(_kept)))
        survival: Array = np.exp(power * logs)
        return survival
