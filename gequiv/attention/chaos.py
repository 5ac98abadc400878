r"""The exponential of the scores resolved into spherical harmonics: what a head of finite width looks like.

With :math:`r = |q|^2/d` and :math:`\rho = |k|^2/d` of a query and a key, θ the angle between them,
:math:`\kappa = \beta\sqrt{d\,r\rho}` and :math:`\nu = d/2 - 1`, the exponential of the score is exactly

.. math::
    e^{\beta S} = \sum_\ell w_\ell(\kappa)\,D_\ell^{-1/2}\sum_{a \le D_\ell} Y_a(\hat q)Y_a(\hat k), \qquad
    w_\ell(\kappa) = \Gamma(\nu+1)\Bigl(\frac{2}{\kappa}\Bigr)^{\nu} I_{\nu+\ell}(\kappa)\sqrt{D_\ell},

:math:`D_\ell` being the number of harmonics of degree ℓ on the sphere in d dimensions and the :math:`Y_a` orthonormal
on it. The part of degree ℓ acts on the bulk of the spectrum as a product of Gaussian matrices of inner dimension
:math:`D_\ell`. Everything is kept in logarithms, with
:math:`I_{\nu+\ell}(\kappa)(2/\kappa)^{\nu+\ell}\Gamma(\nu+\ell+1) = {}_0F_1(\nu+\ell+1; \kappa^2/4)` as a series of
positive terms: no argument overflows.

A head whose inner directions have unequal weights :math:`m_a^2` (of mean one) is served with the effective dimension
:math:`d = d_k/\overline{m^4}`, which gives norms and scores their right second and fourth moments.

Sources: Gegenbauer's expansion of the plane wave (DLMF 10.23.9 with imaginary argument); degree ℓ seeing
:math:`D_\ell` features: Lu and Yau 2022, Dubova, Lu, McKenna and Yau 2023, Misiakiewicz 2022.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp

from gequiv._checks import Array
from gequiv.attention.inner_weights import norm_nodes

MAX_ORDER = 12
_SAFE_TERMS = 60
_EXCESS = 0.01  # of the second moment of what is taken for noise, see `choose_order`
_MOMENT = 1e-4  # relative error of the second moments of row and column norms that fewer nodes may cost
_MOST_NODES = 12


def log_harmonics(dimension: float, degree: int) -> float:
    r"""log of :math:`D_\ell = \binom{d+\ell-1}{\ell} - \binom{d+\ell-3}{\ell-2}`, for real d >= 1; -inf if it is 0."""
    if degree == 0:
        return 0.0
    if degree == 1:
        return math.log(dimension)
    if dimension <= 1:
        return -math.inf
    d, k = dimension, degree
    factors = (d - 2 + np.arange(1, k + 1)) / np.arange(1, k + 1)
    return math.log(2 * k + d - 2) - math.log(k + d - 2) + float(np.log(factors).sum())


def log_weights(dimension: float, kappa: Any, degrees: range) -> Array:
    """log w_ℓ(κ) for κ > 0, shape (degrees, *κ.shape); -inf where D_ℓ = 0."""
    kappa = np.asarray(kappa, dtype=np.float64)
    result = np.empty((len(degrees), *kappa.shape))
    nu = dimension / 2 - 1
    for row, degree in enumerate(degrees):
        rest = log_0f1(nu + degree + 1, kappa**2 / 4) - float(np.log(nu + np.arange(1, degree + 1)).sum())
        result[row] = degree * np.log(kappa / 2) + rest + 0.5 * log_harmonics(dimension, degree)
    return result


def log_0f1(b: float, y: Any) -> Array:
    r"""log of :math:`{}_0F_1(;b;y) = \sum_m y^m/(m!\,(b)_m)` for b > 0, y >= 0, from its positive terms."""
    y = np.asarray(y, dtype=np.float64)
    largest = float(y.max(initial=0.0))
    peak = 2 * largest / (b + math.sqrt(b * b + 4 * largest)) if largest > 0 else 0.0
    count = int(peak + 12 * math.sqrt(peak + 1)) + _SAFE_TERMS
    m = np.arange(1, count)
    with np.errstate(divide="ignore"):
        steps = np.log(y)[..., None] - np.log(m * (b + m - 1))
    terms = np.concatenate([np.zeros((*y.shape, 1)), np.cumsum(steps, axis=-1)], axis=-1)
    return np.asarray(logsumexp(terms, axis=-1))


@dataclass(frozen=True, eq=False)
class Chaos:
    r"""Cores and noise of a head on the nodes of its norms, before any mask.

    Attributes
    ----------
    rows, columns : shares of the nodes of r and ρ.
    row_nodes, column_nodes : the nodes.
    order : L, the highest degree that is a component of its own.
    dimension : d of the expansion.
    mean : :math:`C_0`, expected attention over its mean 1/keys, shape (rows, columns); each row averages to one.
    cores : :math:`C_\ell = w_\ell/\sum_q \delta_q w_0` for ℓ = 1 ... L, shape (L, rows, columns).
    noise : :math:`\sum_{\ell > L} C_\ell^2`, shape (rows, columns).
    shares : share of every degree 1 ... in the mean of the law.
    """

    rows: Array
    columns: Array
    row_nodes: Array
    column_nodes: Array
    order: int
    dimension: float
    mean: Array
    cores: Array
    noise: Array
    shares: Array

    @property
    def log_dimensions(self) -> list[float]:
        """log D_ℓ for ℓ = 1 ... L on the isotropic inner space."""
        return [log_harmonics(self.dimension, degree) for degree in range(1, self.order + 1)]


def resolve(beta: float, dimension: float, order: int, nodes: tuple[int, int]) -> Chaos:
    """The expansion at given order and numbers of nodes for the norms of queries and keys."""
    row, column = (norm_nodes(dimension / 2, count) for count in nodes)
    kappa = beta * np.sqrt(dimension * row.nodes[:, None] * column.nodes[None, :])
    constant = log_weights(dimension, kappa, range(1))[0]
    normaliser = logsumexp(constant, axis=1, b=column.shares, keepdims=True)
    squares = []
    degree = 0
    total = np.zeros_like(kappa)
    while True:  # degrees 1, 2, ... until nothing is left
        degree += 1
        square = np.exp(2 * (log_weights(dimension, kappa, range(degree, degree + 1))[0] - normaliser))
        squares.append(square)
        total = total + square
        if degree > order and (square <= 1e-18 * total).all():
            break
    stack = np.array(squares)
    shares = np.einsum("lpq,p,q->l", stack, row.shares, column.shares)
    return Chaos(
        row.shares,
        column.shares,
        row.nodes,
        column.nodes,
        order,
        dimension,
        np.exp(constant - normaliser),
        np.sqrt(stack[:order]),
        stack[order:].sum(axis=0),
        shares / shares.sum(),
    )


def choose_order(beta: float, dimension: float, keys: int) -> int:
    r"""Smallest L whose remainder may be taken for noise.

    Seen alone, the remainder has a second moment that exceeds that of noise by the share
    :math:`e = n\sum_{\ell>L} s_\ell^2/D_\ell \big/ (\sum_{\ell>L} s_\ell)^2`, :math:`s_\ell` being the share of
    degree ℓ in the mean. It shapes the part of the spectrum that lower degrees leave empty,
    :math:`1 - \sum_{\ell \le L} D_\ell/n`, and the rest by its share of the mean. L is such that e times the larger of
    the two is below 0.01.
    """
    shares = resolve(beta, dimension, 1, (1, 1)).shares
    degrees = range(1, len(shares) + 1)
    loads = np.array([math.exp(min(600.0, log_harmonics(dimension, degree))) / keys for degree in degrees])
    for order in degrees:
        rest = shares[order:]
        if order == MAX_ORDER or not rest.sum() > 0:
            return order
        present = loads[order:] > 0
        excess = float((rest[present] ** 2 / loads[order:][present]).sum()) / float(rest.sum()) ** 2
        if excess * max(1 - float(loads[:order].sum()), float(rest.sum())) < _EXCESS:
            return order
    return len(shares)


def explained_degrees(dimension: float, keys: int) -> int:
    """Highest degree, 1 at least, that has at most four times as many harmonics as there are keys."""
    degree = 1
    while degree < MAX_ORDER and log_harmonics(dimension, degree + 1) <= math.log(4 * keys):
        degree += 1
    return degree


def choose_nodes(beta: float, dimension: float, size: int) -> int:
    """Smallest number of nodes (at least 2) for which more nodes leave the second moments of row and column norms.

    Never so many that a node's share falls below one row or column in `size`: a sample has no such norms.
    """

    def moments(count: int) -> Array:
        chaos = resolve(beta, dimension, 1, (count, count))
        variance = chaos.cores[0] ** 2 + chaos.noise
        by_row, by_column = variance @ chaos.columns, chaos.rows @ variance
        mean = chaos.rows @ by_row
        return np.array([mean, chaos.rows @ by_row**2 / mean, chaos.columns @ by_column**2 / mean])

    before = moments(2)
    for count in range(3, _MOST_NODES + 1):
        if norm_nodes(dimension / 2, count).shares.min() * size < 1:
            return count - 1
        after = moments(count)
        if (np.abs(after / before - 1) < _MOMENT).all():
            return count - 1
        before = after
    return _MOST_NODES
