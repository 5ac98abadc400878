"""One attention matrix, measured: its spectrum, its inverse temperatures, its sizes; and how it stands to a null."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gequiv._checks import Array
from gequiv.attention.ensemble import centred, squared_singular_values
from gequiv.attention.masks import Visibility
from gequiv.inspection.directions import LARGEST, column_direction, largest_directions, largest_pairs
from gequiv.inspection.estimates import FEWEST_KEYS, ScoreShape, counted, routes, score_shape
from gequiv.inspection.nulls import Sizes, width_of
from gequiv.inspection.report import Direction
from gequiv.inspection.tables import LawTable

_USUAL_DIRECTIONS = 64.0
_BLOCK = 1024  # rows and keys, at most, whose logarithms give the scores' shape
_MEMORY = 2e9
_GROWTH = 2.4
_MOST_REMOVED = 0.1  # of the values may count as outliers
_CAPPED = 0.5  # of the mean energy of a row, that an entry's square may be where spread directions are looked for
_SAME = 0.25


def workers(jobs: int, rows: int, keys: int) -> int:
    """How many heads of these sizes may be measured side by side: in 2 GB together, at four matrices each."""
    return min(jobs, max(1, int(_MEMORY / (32 * rows * keys))))


@dataclass(frozen=True, eq=False)
class Measured:
    r"""What is read off one attention matrix before any null is looked at.

    Attributes
    ----------
    rows, keys, mask : n_q, n_k and the mask, as `Attention` takes them.
    spectrum : squared singular values of √n_k (A - Ā), without a mask with its columns centred too; descending, without
        the value that is zero for every such matrix.
    edge_spectrum : the values among which outliers are looked for: without a mask the same; with a mask those of the
        matrix of rows √k_i (A - Ā)_i, k_i the keys that row i sees, which gives every row the same energy: else the
        first rows' would hide all others. Its entries are capped at the root of half the mean energy: single huge
        ones, of which every row over few keys has some, would mix with what is spread over many tokens and hide it.
        Of a light measurement only the largest.
    energy : mean over rows of k Σ_j (A_ij - Ā_ij)², over rows of enough keys.
    beta_energy, beta_entropy : β by the two routes of `gequiv.inspection.estimates`.
    shape : of the scores, from the logarithm of A or from scores; None where the logarithm has infinities, or the
        scores do not vary.
    found_dim : d_k as given or read off; None where the head width is not known.
    ratio : d_k/d, the same.
    sizes : of the null of sizes alone; None where the head width is not known.
    effective_rank : exp of the Shannon entropy of the singular values of A over their sum (Roy, Vetterli 2007).
    masked : whether a mask hides keys.
    column : the direction 1vᵀ of √n_k (A - Ā), the same for all rows, which centring the columns takes out; None with a
        mask.
    largest : the largest values of `edge_spectrum` with their vectors.
    localised : with a mask, the localised ones among the largest values before entries are capped, but for those that
        are among `largest` as spread ones; empty without a mask and of a light measurement.
    largest_value : the largest before entries are capped.
    counts : numbers of keys, and how many of the rows that enter the estimates see so many.
    """

    rows: int
    keys: int
    mask: Any
    spectrum: Array
    edge_spectrum: Array
    energy: float
    beta_energy: float
    beta_entropy: float
    shape: ScoreShape | None
    found_dim: int | None
    ratio: float
    sizes: Sizes | None
    effective_rank: float
    masked: bool
    column: Direction | None
    largest: tuple[Direction, ...] = field(repr=False)
    localised: tuple[Direction, ...] = field(repr=False)
    largest_value: float
    counts: tuple[tuple[int, int], ...] = field(repr=False)

    @property
    def beta_scores(self) -> float | None:
        """β by the variance of the scores."""
        return None if self.shape is None else self.shape.beta

    @property
    def directions(self) -> float:
        """Effective number of inner directions."""
        return _directions(self.shape, self.found_dim, self.ratio, self.keys)

    def with_sizes(self, head_dim: int, ratio: float) -> Measured:
        """The same with other sizes of the null."""
        sizes = Sizes(self.rows, self.keys, self.mask, head_dim, width_of(head_dim, ratio))
        return replace(self, found_dim=head_dim, ratio=ratio, sizes=sizes)

    def beta_without(self, removed: float) -> float:
        """β by the energy when singular values whose squares sum to `removed` are taken out; no mask."""
        total = float(self.spectrum.sum()) - removed
        way = routes(self.counts, max(2, round(self.directions)))
        beta = way.beta_of_energy(total / (self.rows - 1))
        for _ in range(3):  # what centring the columns has taken of a random head's own
            if not 0 < beta < math.inf:
                break
            own = min(beta**4 / (2 * self.directions), total / self.rows)
            beta = way.beta_of_energy((total / self.rows + own) / (1 - 1 / self.rows))
        return beta


def measure(
    matrix: Array,
    mask: Any,
    *,
    scores: Array | None = None,
    head_dim: int | None = None,
    width: int | None = None,
    light: bool = False,
) -> Measured:
    """Measure A, (n_q, n_k), whose rows sum to one.

    Parameters
    ----------
    mask : as `Attention.mask`, normalised.
    scores : (n_q, n_k), of which A is the row softmax, if they are known.
    head_dim, width : d_k and d, if they are known.
    light : leave out what only a report tells: the scores' shape, which then follows from d_k and d, the effective
        rank, and with a mask all but the largest values of the edge spectrum.
    """
    rows, keys = matrix.shape
    visibility = Visibility(rows, keys, mask, None)
    visible = None if not visibility.restricts else visibility.visible(0, rows)
    numbers = np.full(rows, keys) if visible is None else visible.sum(axis=1)
    shape = None if light else _shape(matrix, scores, visible, head_dim)
    found_dim = head_dim if head_dim is not None else _head_dim(shape)
    ratio = 0.0 if shape is None else shape.ratio
    if width is not None and found_dim is not None:
        ratio = min(1.0, found_dim / width)
    sizes = None if found_dim is None else Sizes(rows, keys, mask, found_dim, width_of(found_dim, ratio))

    counts = counted(numbers)
    enough = numbers >= counts[0][0]
    squares = np.einsum("ij,ij->i", matrix, matrix)
    energy = float((numbers * squares - 1)[enough].mean())
    with np.errstate(divide="ignore", invalid="ignore"):
        entropies = -np.where(matrix > 0, matrix * np.log(matrix), 0.0).sum(axis=1)
    way = routes(counts, max(2, round(_directions(shape, found_dim, ratio, keys))))
    deviation = centred(matrix.copy(), None if visible is None else visibility)
    column = None
    if visible is None:
        common = deviation.mean(axis=0)
        deviation -= common
        column = column_direction(common, rows)
        spectrum = squared_singular_values(deviation)[::-1][: rows - 1]
        edges = _Edges(spectrum, largest_directions(deviation), (), float(spectrum[0]) if spectrum.size else 0.0)
    else:
        spectrum = squared_singular_values(deviation)[::-1]
        deviation *= _balance(numbers, keys)
        edges = _masked_edges(deviation, energy, light)
    measured = Measured(
        rows,
        keys,
        mask,
        spectrum,
        edges.spectrum,
        energy,
        way.beta_of_energy(energy),
        way.beta_of_entropy(float(entropies[enough].mean())),
        shape,
        found_dim,
        ratio,
        sizes,
        0.0 if light else _effective_rank(np.sqrt(squared_singular_values(matrix))),
        visible is not None,
        column,
        edges.largest,
        edges.localised,
        edges.largest_value,
        counts,
    )
    if visible is None:
        return replace(measured, beta_energy=measured.beta_without(0.0))
    return measured


def balanced(matrix: Array, mask: Any, energy: float) -> Array:
    """Rows √k_i (A - Ā)_i of a masked A, k_i the keys that row i sees, their entries capped; overwrites the matrix.

    Parameters
    ----------
    energy : mean energy of a row.
    """
    rows, keys = matrix.shape
    visibility = Visibility(rows, keys, mask, None)
    numbers = visibility.visible(0, rows).sum(axis=1)
    return _capped(np.asarray(centred(matrix, visibility) * _balance(numbers, keys)), energy)


def _capped(deviation: Array, energy: float) -> Array:
    """The matrix, overwritten, with its entries cut at the root of half the mean energy of a row."""
    cap = math.sqrt(_CAPPED * max(energy, 0.0))
    return np.clip(deviation, -cap, cap, out=deviation)


class _Edges(NamedTuple):
    """`Measured.edge_spectrum`, `largest`, `localised` and `largest_value`."""

    spectrum: Array
    largest: tuple[Direction, ...]
    localised: tuple[Direction, ...]
    largest_value: float


def _masked_edges(deviation: Array, energy: float, light: bool) -> _Edges:
    """From rows √k_i (A - Ā)_i, which are overwritten."""
    whole = largest_pairs(deviation, 1 if light else LARGEST)
    pairs = largest_pairs(_capped(deviation, energy))
    largest = pairs.directions()
    top = float(whole.values[0]) if whole.values.size else 0.0
    if light and largest:
        return _Edges(pairs.values, largest, (), top)
    spread = pairs.kept(np.array([direction.kind != "local" for direction in largest], dtype=bool))
    apart = whole.found_in(spread) < _SAME
    localised = tuple(d for d, other in zip(whole.directions(), apart, strict=True) if other and d.kind == "local")
    return _Edges(squared_singular_values(deviation)[::-1], largest, localised, top)


def _balance(numbers: NDArray[np.int64], keys: int) -> Array:
    return np.asarray(np.sqrt(numbers / keys)[:, None])


def _directions(shape: ScoreShape | None, head_dim: int | None, ratio: float, keys: int) -> float:
    """Effective number of inner directions: as the scores show, else that of random weights."""
    if shape is not None:
        return min(shape.directions, float(keys))
    return _USUAL_DIRECTIONS if head_dim is None else head_dim / (1 + ratio) ** 2


def _head_dim(shape: ScoreShape | None) -> int | None:
    if shape is None:
        return None
    return max(2, round(shape.directions)) if shape.head_dim is None else max(2, shape.head_dim)


def _effective_rank(singular: Array) -> float:
    shares = singular[singular > 0] / singular.sum()
    return math.exp(-float(shares @ np.log(shares)))


def _shape(
    matrix: Array, scores: Array | None, visible: NDArray[np.bool_] | None, head_dim: int | None
) -> ScoreShape | None:
    """By the scores if they are known and vary, else by the logarithm of A; None if too many entries are zero.

    Of a block in which every row sees every key, as large as is found.
    """
    rows, keys = matrix.shape
    block = (slice(max(0, rows - _BLOCK), rows), slice(0, min(keys, _BLOCK)))
    if visible is not None:
        found = _seen_by_all(visible)
        if found is None:
            return None
        block = found
    if scores is not None:
        known = _finite_rows(np.asarray(scores[block], dtype=np.float64))
        shape = None if known is None else score_shape(known, head_dim)
        if shape is not None:
            return shape
    with np.errstate(divide="ignore"):
        logs = _finite_rows(np.log(matrix[block]))
    return None if logs is None else score_shape(logs, head_dim)


def _finite_rows(part: Array) -> Array | None:
    """The rows without infinities, if they are at least a third."""
    whole = np.isfinite(part).all(axis=1)
    if whole.all():
        return part
    return part[whole] if 3 * int(whole.sum()) >= part.shape[0] and int(whole.sum()) > 2 else None


def _seen_by_all(visible: NDArray[np.bool_]) -> tuple[slice, slice] | None:
    """The largest of some blocks of rows whose common keys are consecutive."""
    rows = len(visible)
    best, size = None, 0
    for start, stop in ((a * rows // 8, b * rows // 8) for a in range(8) for b in range(a + 1, 9)):
        if stop - start < 2:
            continue
        common = np.flatnonzero(visible[start:stop].all(axis=0))
        if common.size < 2:
            continue
        runs = np.split(common, np.flatnonzero(np.diff(common) > 1) + 1)
        run = max(runs, key=len)
        if min(run.size, stop - start) > size and run.size > 1:
            best, size = (slice(start, stop), slice(int(run[0]), int(run[-1]) + 1)), min(run.size, stop - start)
    return best if size > FEWEST_KEYS else None


# -- against a null -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Held:
    """A measured head held against one table.

    Attributes
    ----------
    beta : of the bulk.
    table : the law.
    outliers : which of the values of `Measured.edge_spectrum`, numbered from the largest, are beyond the margins.
    localised : how many of `Measured.localised` are.
    ks, wasserstein : of the others.
    edge_excess, edge_excess_local : log of the largest squared singular value over the unit, of vectors that are not
        localised and of any.
    beta_excess : log of β by entropy over β by energy, outliers included in both.
    log_unit : log of the unit: β^2.4, which grows with β nearly as the largest value of random heads does; with a mask
        the mean energy of a row.
    """

    beta: float
    table: LawTable
    outliers: tuple[int, ...]
    localised: int
    ks: float
    wasserstein: float
    edge_excess: float
    edge_excess_local: float
    beta_excess: float
    log_unit: float


def log_unit(measured: Measured, beta: float) -> float:
    """`Held.log_unit`."""
    return math.log(measured.energy) if measured.masked else _GROWTH * math.log(beta)


def hold(measured: Measured, beta: float, table: LawTable, margins: tuple[float, float] = (math.inf, math.inf)) -> Held:
    """Hold the head against the table of β; values above the unit times e^margin are outliers.

    Parameters
    ----------
    margins : for vectors that are not localised, and for any.
    """
    values = measured.edge_spectrum
    unit = log_unit(measured, beta)
    most = int(_MOST_REMOVED * values.size)
    spread = [k for k, direction in enumerate(measured.largest) if direction.kind != "local"]
    # with a mask, values of which no vectors are kept count as spread: once entries are capped nearly all are
    others = range(len(measured.largest), most) if measured.masked else ()
    beyond = {k for k in (*spread, *others) if _excess(values[k], unit) > margins[0]}
    if not measured.masked:
        beyond |= set(range(min(most, int(np.count_nonzero(_excess(values, unit) > margins[1])))))
    bulk = measured.spectrum if measured.masked else np.delete(measured.spectrum, sorted(beyond))
    both = (measured.beta_entropy, measured.beta_energy)
    fine = all(0 < b < math.inf for b in both)
    localised = np.array([direction.value for direction in measured.localised])
    return Held(
        beta,
        table,
        tuple(sorted(beyond)),
        int(np.count_nonzero(_excess(localised, unit) > margins[1])),
        table.ks(bulk),
        table.wasserstein(bulk),
        # at most the last of those that have vectors, where all are localised
        float(_excess(values[spread[0] if spread else max(0, len(measured.largest) - 1)], unit)),
        float(_excess(measured.largest_value, unit)),
        math.log(both[0] / both[1]) if fine else math.inf,
        unit,
    )


def _excess(values: Any, unit: float) -> Any:
    with np.errstate(divide="ignore"):
        return np.log(values) - unit
