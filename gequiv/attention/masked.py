r"""The finite-size law of a head with a mask or a bias: the head's model laid on positions.

Scores are masked by :math:`M(t,s)` = keys·Ā_ij. Row i carries the factor of its own number of keys: mean energy and
its spread, see `gequiv.attention.row_energy`, at the effective number :math:`1/\sum_j \bar A_{ij}^2`. Cores are taken
at rank one in the norms, what is left of them goes to the noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.interpolate import PchipInterpolator

from gequiv._checks import Array
from gequiv.attention.head_model import HeadModel
from gequiv.dyson.positions import CausalKernel, CellKernel, PositionedComponent, PositionedEquation
from gequiv.errors import ParameterError

if TYPE_CHECKING:
    from gequiv.attention.masks import Visibility

CAUSAL_CELLS = 80
GENERAL_CELLS = 32
_DEGREES = 2  # polynomials on a cell of a general mask
_LEVELS = 4
_FEWEST = 8  # cells of the coarsest level of a general mask
_TURN = 0.2  # position where the cells of a causal mask turn from even in log t to even in t
_ONE_KEY = 1e-6
_GRID = 32  # points in log keys at which energies are tabulated


@dataclass(frozen=True, eq=False)
class MaskedModel:
    """A head's model on positions.

    Attributes
    ----------
    equation : its Dyson equation.
    averages : averages of keys·Ā_ij over its cells, shape (row cells, column cells).
    """

    equation: PositionedEquation
    averages: Array


def masked_models(visibility: Visibility, model: HeadModel, cells: int | None) -> list[MaskedModel]:
    """The model from coarse to fine, up to about `cells` cells, twice as many from one to the next.

    Raises
    ------
    ParameterError : every row sees one key only.
    """
    if not (visibility.effective_keys() > 1 + _ONE_KEY).any():
        raise ParameterError(
            "mask and bias must let some row see more than one key: else A equals its mean and there is no law of A - Ā"
        )
    if cells is None:
        cells = CAUSAL_CELLS if visibility.kind == "causal" else GENERAL_CELLS
    if visibility.kind == "causal":
        counts = [max(6, cells // 2**k) for k in range(_LEVELS - 1, -1, -1)]
        return [_causal(visibility, model, count) for count in counts]
    edges = _edges(visibility, cells)
    levels = [2**k for k in range(_LEVELS - 1, -1, -1) if len(edges[0]) > _FEWEST * 2**k or k < 2]
    return [_general(visibility, model, edges, every) for every in levels]


def _causal(visibility: Visibility, model: HeadModel, cells: int) -> MaskedModel:
    """Rows near the start see few keys: cells even in log t + t/0.2, the first holding two rows."""
    tokens, slope = visibility.tokens, visibility.slope
    first = min(0.5, 2 / tokens)
    fine = np.geomspace(first, 1, 4000)
    measure = np.log(fine) + fine / _TURN
    inner = np.interp(np.linspace(measure[0], measure[-1], cells), measure, fine)
    inner[0], inner[-1] = first, 1.0
    kernel = CausalKernel(np.concatenate([[0.0], inner]), slope * tokens)
    seen = tokens * np.exp(kernel.coordinate) + 0.5
    if slope > 0:
        total, squares = (-np.expm1(-c * slope * seen) / -math.expm1(-c * slope) for c in (1, 2))
    else:
        total = squares = seen
    factor = tokens / total
    equation = _equation(kernel, model, total**2 / squares, factor**2)
    return MaskedModel(equation, factor[:, None] * kernel.averages)


def _edges(visibility: Visibility, cells: int) -> tuple[Array, Array]:
    """Edges of row and column cells in tokens, as many of each: fine where the number of visible keys varies."""
    tokens, keys = visibility.tokens, visibility.keys
    seen = np.log(visibility.effective_keys())
    change = np.abs(np.diff(seen, prepend=seen[0]))
    change[: min(2, tokens)] = 0
    measure = np.cumsum(np.minimum(change, 1.0) + (1 / _TURN) / tokens)
    count = min(8 * max(1, min(cells, tokens // 2, keys // 2) // 8), tokens, keys)
    wanted = np.interp(np.linspace(0, measure[-1], count + 1), np.concatenate([[0.0], measure]), np.arange(tokens + 1))
    rows = _distinct(np.round(wanted), tokens)
    return rows, _distinct(np.round(rows * (keys / tokens)), keys)


def _distinct(edges: Array, end: int) -> Array:
    """Strictly ascending integers from 0 to end, as close to the given ones as that allows."""
    count = len(edges) - 1
    result = np.maximum.accumulate(edges - np.arange(count + 1)) + np.arange(count + 1)
    result = np.minimum(result, end - np.arange(count, -1, -1))
    result[0], result[-1] = 0, end
    return np.asarray(result)


def _general(visibility: Visibility, model: HeadModel, edges: tuple[Array, Array], every: int) -> MaskedModel:
    rows, columns = (np.unique(np.append(part[::every], part[-1])) for part in edges)
    first, second = visibility.cell_moments(rows, columns, _DEGREES)
    kernel = CellKernel(np.diff(rows) / visibility.keys, np.diff(columns) / visibility.keys, first, second)
    seen = np.log(visibility.effective_keys())
    begins = rows[:-1].astype(int)
    mean = np.exp(np.add.reduceat(seen, begins) / np.diff(rows))
    return MaskedModel(_equation(kernel, model, mean, np.ones(mean.size)), kernel.averages)


def _equation(kernel: CausalKernel | CellKernel, model: HeadModel, seen: Array, factor: Array) -> PositionedEquation:
    """The head's model on positions whose rows see that many keys and have M² multiplied by that factor."""
    seen = np.maximum(seen, 1.0)
    grid = np.linspace(0.0, math.log(model.keys + 1), _GRID)
    table = [model.energies(math.exp(point)) for point in grid]
    shares = table[0].shares
    at = np.log(seen)
    spread = PchipInterpolator(grid, [part.nodes for part in table])(at)
    level = PchipInterpolator(grid, [model.mean_energy(math.exp(point)) for point in grid])(at)
    # rows: norm nodes times energy nodes, at every position
    heavy = np.tile(spread, (1, model.rows.size))
    strength = (factor * level)[:, None]
    left, right = np.sqrt(model.rows), np.sqrt(model.columns)
    noise, components = model.noise.copy(), []
    for part in model.degrees:
        u, values, v = np.linalg.svd(left[:, None] * part.core * right)
        x, y = np.abs(u[:, 0]) / left, values[0] * np.abs(v[0]) / right
        noise += (part.core - np.outer(x, y)) ** 2
        rows = strength * np.repeat(x**2, shares.size)
        if part.degree > model.explained:
            rows = rows * heavy
        measure = part.measure
        weights, parts = (np.ones(1), np.ones(1)) if measure is None else (measure.nodes, measure.shares)
        present = weights > 0
        components.append(
            PositionedComponent(rows, y**2, part.dimension / model.keys, weights[present], parts[present])
        )
    return PositionedEquation(
        kernel,
        np.outer(model.rows, shares).ravel(),
        model.columns,
        components,
        np.repeat(noise, shares.size, axis=0),
        strength * heavy,
    )
