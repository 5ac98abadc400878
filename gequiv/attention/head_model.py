r"""A head of finite width as a sum of Gaussian products and noise, cell by cell: before any mask is laid on it.

Row cells are pairs of a node of the query norms and a node of the row energies, column cells are nodes of the key norms
(and of a column bias). A mask multiplies all cores by keys·Ā_ij.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gequiv import _checks
from gequiv._checks import Array
from gequiv.attention import chaos, inner_weights
from gequiv.attention.inner_weights import Quadrature
from gequiv.attention.linear_model import LARGEST_BETA
from gequiv.attention.row_energy import CUT, energy_nodes, mean_energy
from gequiv.errors import ParameterError

if TYPE_CHECKING:
    from gequiv.attention.parameters import Attention

INNER_POINTS = 10
_RANK = 1e-3  # what a core has beyond it, relative to its largest singular value, goes to the noise
_FEWEST_POINTS = 3
_MASKED_POINTS = 6
_LEAST_BIAS = 1e-6
_RELEVANT = 0.01
_MASKED_NODES = 3
_FLATTEST = 1e-3  # of the mean energy, that of a typical row: below, a few rows have it all


@dataclass(frozen=True, eq=False)
class Degree:
    """The part of one degree: core of shape (row nodes, column nodes), dimension and weights of its inner space."""

    degree: int
    core: Array
    dimension: float
    measure: Quadrature | None


@dataclass(frozen=True, eq=False)
class HeadModel:
    r"""Everything about a head that a mask does not change.

    Attributes
    ----------
    rows, columns : shares of the nodes of the query norms, and of the key norms (times those of the column bias).
    degrees : the `Degree` parts ℓ = 1 ... L.
    noise : variance of the rest, shape (row nodes, column nodes).
    mean : expected attention over its mean, less one: shape (row nodes, column nodes).
    explained : degree m beyond which a row's energy is that of its keys' rest, see `gequiv.attention.row_energy`.
    spread : whether the spread of that energy matters.
    beta : β, with a column bias √(β² + its variance): what one row's scores have for standard deviation.
    inner_points : nodes of an inner space.
    keys : number of keys.
    cut : quantile above which the largest row energies share one node.
    """

    rows: Array
    columns: Array
    degrees: tuple[Degree, ...]
    noise: Array
    mean: Array
    explained: int
    spread: bool
    beta: float
    inner_points: int
    keys: int
    cut: float = CUT

    @property
    def order(self) -> int:
        """L, the highest degree that is a component of its own."""
        return len(self.degrees)

    @property
    def norm_nodes(self) -> int:
        """Number of nodes of the query norms."""
        return self.rows.size

    def energies(self, keys: float) -> Quadrature:
        """The spread of the row energy beyond the explained degrees, for rows over that many keys."""
        if not self.spread:
            return Quadrature(np.ones(1), np.ones(1))
        return energy_nodes(self.beta, self.explained, keys, self.cut)

    def mean_energy(self, keys: float) -> float:
        """Factor by which rows over that many keys have less energy than over infinitely many."""
        return mean_energy(self.beta, keys)


def head_model(
    head: Attention, order: int | None = None, norm_nodes: int | None = None, inner_points: int | None = None
) -> HeadModel:
    """The model, with order and nodes chosen by error estimates unless they are given.

    Raises
    ------
    ParameterError : order, norm_nodes or inner_points is no positive integer; or the head has a score function; or it
        has a single inner direction; or beta is too large for the number of keys.
    """
    if head.score is not None:
        raise ParameterError(
            f"score must be None for finite_law: the finite-size law is derived for the exponential; got {head.score!r}"
        )
    if inner_points is None:
        points = INNER_POINTS if head.visibility is None else _MASKED_POINTS
    else:
        points = _checks.positive_integer("inner_points", inner_points)
    beta = head.beta * head.spread
    if beta > LARGEST_BETA:
        raise ParameterError(
            f"beta must be at most {LARGEST_BETA:.4f}, beyond which e^(beta^2) overflows; got {beta!r}"
        )
    measures, dimension, sizes = _inner_spaces(head, points)
    keys = head.columns
    order = chaos.choose_order(beta, dimension, keys) if order is None else _checks.positive_integer("order", order)
    if norm_nodes is None:
        count = chaos.choose_nodes(beta, dimension, min(head.tokens, keys))
        if head.visibility is not None:  # where every position has cells of its own
            count = min(count, _MASKED_NODES)
    else:
        count = _checks.positive_integer("norm_nodes", norm_nodes)
    found = chaos.resolve(beta, dimension, order, (count, count))
    cores, noise = _compress(found)
    mean, columns = found.mean, found.columns
    bias_variance = 0.0 if head.weights is None else head.weights.column_bias_variance
    if bias_variance > _LEAST_BIAS * beta**2:
        factor, shares = _bias_nodes(bias_variance)
        cores = [np.repeat(core, factor.size, axis=1) * np.tile(factor, columns.size) for core in cores]
        noise = np.repeat(noise, factor.size, axis=1) * np.tile(factor, columns.size) ** 2
        mean = np.repeat(mean, factor.size, axis=1) * np.tile(factor, columns.size)
        columns = np.outer(columns, shares).ravel()
    logs = found.log_dimensions
    degrees = []
    for number, core in enumerate(cores):
        size = sizes[number] if number < len(sizes) else math.exp(min(logs[number], 300.0))
        if size > 0:
            degrees.append(Degree(number + 1, core, size, measures[number] if number < len(measures) else None))
    if dimension <= 1:
        raise ParameterError(
            "head_dim must be at least 2 for finite_law, in effective directions too; got "
            f"head_dim={head.head_dim!r} with {dimension:.3g} of them: nothing of the exponential is like noise"
        )
    explained = chaos.explained_degrees(dimension, keys)
    left = max(1 - sum(d.dimension for d in degrees[:explained]) / keys, float(found.shares[explained:].sum()), 0.0)
    energies = energy_nodes(beta, explained, keys)
    noisy = np.isfinite(noise).all() and (noise > 0).all()
    if not (noisy and energies.nodes[0] > _FLATTEST and mean_energy(beta, keys) > 0):
        raise ParameterError(
            f"beta must be smaller for finite_law of rows over {keys} keys, whose energy lies in single entries; "
            f"got {beta!r}"
        )
    return HeadModel(
        found.rows,
        columns,
        tuple(degrees),
        noise,
        mean - 1,
        explained,
        left * float(energies.shares @ np.abs(energies.nodes - 1)) > _RELEVANT,
        math.sqrt(beta**2 + bias_variance),
        points,
        keys,
    )


def _inner_spaces(head: Attention, points: int) -> tuple[list[Quadrature], float, list[float]]:
    """Laws of the weights of degrees 1, 2, 3, the effective dimension, and the inner dimensions of those degrees."""
    size = head.head_dim
    if head.weights is None and head.width is None:
        return [], float(size), []
    fewer = [max(_FEWEST_POINTS, points // degree) for degree in (1, 2, 3)]
    if head.inner_weights is not None:
        first = inner_weights.of_weights(head.inner_weights, fewer[0])
        second = inner_weights.squared_products(head.inner_weights, fewer[1])
        dimension = inner_weights.effective_dimension(head.inner_weights, size)
    else:
        assert head.width is not None
        first = inner_weights.expected_weights(size, head.width, head.covariance, fewer[0])
        second = inner_weights.products(first, 2, fewer[1])
        dimension = inner_weights.effective_dimension(first, size)
    third = inner_weights.products(first, 3, fewer[2])
    return [first, second, third], max(1.0, dimension), [float(math.comb(size + k - 1, k)) for k in (1, 2, 3)]


def _compress(found: chaos.Chaos) -> tuple[list[Array], Array]:
    """Cores of low rank, in the norm that the shares of the nodes define, and the noise with what is left of them."""
    left, right = np.sqrt(found.rows)[:, None], np.sqrt(found.columns)
    cores, noise = [], found.noise.copy()
    for core in found.cores:
        u, values, v = np.linalg.svd(left * core * right)
        rank = int(np.count_nonzero(values > _RANK * values[0]))
        kept = (u[:, :rank] * values[:rank]) @ v[:rank] / left / right
        cores.append(kept)
        noise += (core - kept) ** 2
    return cores, noise


def _bias_nodes(variance: float) -> tuple[Array, Array]:
    """Nodes of e^b/E e^b for Gaussian b, and their shares."""
    count = 2 if variance < 0.02 else 3 if variance < 0.3 else 5
    x, weights = np.polynomial.hermite_e.hermegauss(count)
    shares = weights / weights.sum()
    factor = np.exp(math.sqrt(variance) * x)
    return factor / (shares @ factor), shares
