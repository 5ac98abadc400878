r"""What finitely many keys do to the energy of a row of attention: its mean, and its spread over rows.

A row over k keys has weights :math:`w_j = e^{\beta x_j}` with iid standard Gaussian :math:`x_j`, and
:math:`A_j = w_j/\sum w`. Its energy :math:`k\sum_j (A_j - 1/k)^2` tends to :math:`e^{\beta^2} - 1` as k → ∞.

Mean. With :math:`1/W^2 = \int_0^\infty s\,e^{-sW} ds`,

.. math:: E\sum_j A_j^2 = k\int_0^\infty s\,E[w^2 e^{-sw}]\,(E e^{-sw})^{k-1}\,ds .

Spread. What is left of :math:`f(x) = e^{\beta x - \beta^2/2}` beyond its Hermite degrees up to m has a heavy tail (its
fourth moment grows as :math:`e^{6\beta^2}`), so that the energy :math:`\xi = k^{-1}\sum_j r(x_j)^2/E r^2` of the rest r
differs visibly from row to row. One large entry takes its row and its column out of the bulk and leaves one large
singular value; a row of large energy does the same, which is why the spread of the rows alone is the right correction,
for many small excesses (to first order in the fourth cumulant) as for one large one.

Source: Hermite expansion as in Hayase, Collins, Karakida 2025; the argument about the spread is this project's.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from gequiv._checks import Array
from gequiv.attention.inner_weights import Quadrature
from gequiv.attention.linear_model import exponential_remainder

_REACH = 12.0
CUT = 0.94
_GRID = 1 << 16
_HIGHEST = 150.0  # at most one in 150 rows has an energy beyond it, the mean being one
_FEWEST_KEYS = 8
_STEP = 0.1  # in log s
_SMALL = 0.01


def _gaussian(points: int) -> tuple[Array, Array]:
    x = np.linspace(-_REACH, _REACH, points)
    weights = np.exp(-0.5 * x * x)
    return x, weights / weights.sum()


@lru_cache(maxsize=4096)
def mean_energy(beta: float, keys: float) -> float:
    r""":math:`E\,k\sum_j(A_j - 1/k)^2/(e^{\beta^2} - 1)`, between 0 (one key) and 1 (many)."""
    if keys <= 1:
        return 0.0
    if beta < _SMALL:  # the integral minus one would cancel: 1 - 1/k, and the next term in β²
        cold = 1 - 1 / keys
        return cold + (mean_energy(_SMALL, keys) - cold) * (beta / _SMALL) ** 2
    x, weights = _gaussian(401)
    logs = beta * x - beta**2 / 2
    w = np.exp(logs)
    # s k in logarithms, from where e^{-sW} is one to where it vanishes
    u = np.arange(-beta * _REACH - 25, 12, _STEP)
    s = np.exp(u) / keys
    load = np.multiply.outer(s, w)
    decay = np.exp(-load)
    first, second = decay @ weights, decay @ (weights * np.exp(2 * logs - beta**2))
    missing = -np.expm1(-load) @ weights  # 1 - first, with the digits that many keys need
    with np.errstate(divide="ignore"):
        powers = np.exp((keys - 1) * np.where(first > 0.5, np.log1p(-np.minimum(missing, 0.6)), np.log(first)))
    # of e^{beta^2}: keys² s² E[w² e^{-sw}] (E e^{-sw})^{k-1} du, so that nothing overflows
    total = float(np.sum((keys * s) ** 2 * second * powers)) * _STEP
    small = math.exp(-(beta**2))
    return max(0.0, (total - small) / -math.expm1(-(beta**2)))


def rest_variance(beta: float, degree: int) -> float:
    r""":math:`\sum_{\ell > m}\beta^{2\ell}/\ell!`, variance of what is left of f beyond Hermite degree m."""
    square = beta**2
    term = square ** (degree + 1) / math.factorial(degree + 1)
    total, order = 0.0, degree + 1
    while term > 1e-18 * total:
        total += term
        order += 1
        term *= square / order
    return total if degree != 1 else exponential_remainder(square)


@lru_cache(maxsize=4096)
def energy_nodes(beta: float, degree: int, keys: float, cut: float = CUT) -> Quadrature:
    """Three nodes of the energy ξ of the rest beyond Hermite degree m over k keys, of mean one.

    They are its means between the quantiles 0, .7, cut and 1, of the k-fold convolution on a grid.
    """
    keys = max(float(keys), float(_FEWEST_KEYS))
    x, weights = _gaussian(1601)
    rest = np.exp(beta * x - beta**2 / 2)
    polynomial, before, factor = np.ones_like(x), np.zeros_like(x), 1.0
    for order in range(degree + 1):
        rest = rest - factor * polynomial
        polynomial, before = x * polynomial - order * before, polynomial
        factor *= beta / (order + 1)
    energy = rest**2
    energy /= weights @ energy
    spread = math.sqrt(float(weights @ energy**2) / keys)
    step = min(8 + 60 * spread, _HIGHEST) / _GRID
    # mass between grid points goes to both, so that the mean is kept; single keys beyond the grid are put at its end
    place = np.minimum(energy / (keys * step), _GRID - 2.0)
    low = place.astype(int)
    part = place - low
    mass = np.bincount(low, weights * (1 - part), _GRID) + np.bincount(low + 1, weights * part, _GRID)
    total = np.fft.irfft(np.fft.rfft(mass, 2 * _GRID) ** keys, 2 * _GRID)
    total = np.maximum(total, 0.0)
    total /= total.sum()
    # the split gives each key the variance part (1 - part), which is taken out again
    place = np.arange(2 * _GRID)
    variance = float(total @ (place - total @ place) ** 2)
    shrink = math.sqrt(max(0.0, 1 - keys * float(weights @ (part * (1 - part))) / variance))
    first = np.concatenate([[0.0], np.cumsum(total * place)]) * step
    level = np.concatenate([[0.0], np.cumsum(total)])
    bins = np.array([0.0, 0.7, cut, 1.0])
    shares = np.diff(bins)
    nodes = 1 + shrink * (np.diff(np.interp(bins, level, first)) / shares - 1)
    nodes[-1] = (1 - float(shares[:-1] @ nodes[:-1])) / shares[-1]  # with what lies beyond the grid
    return Quadrature(nodes, shares)
