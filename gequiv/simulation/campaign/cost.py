"""What a campaign costs before it runs: memory of a draw by counting arrays, time by measuring small draws.

Seconds of a draw are modelled as :math:`c_3 w_3 + c_2 w_2 + c_0`, with w₃ the operations of linear algebra and w₂ the
number of entries that are made, times passes; `work` counts both. The coefficients are fitted, none below 0, to draws
of up to three small heads of the same kind.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from gequiv.attention.parameters import Attention
from gequiv.errors import GequivError
from gequiv.simulation.campaign.model import ROW_STATISTICS, Campaign, Model, Plan, Task

Compute = Callable[[Task], Any]
NO_DRAW = (GequivError, ArithmeticError, MemoryError, np.linalg.LinAlgError)
"""What may go wrong with one draw and says nothing of the others."""

_SAFETY = 1.25
_FIXED = 48 * 2**20
"""Bytes of buffers of BLAS and of blocks of rows, whatever the size."""
_BLOCK = 2**21  # entries of the blocks of a mask's means
_TILE = 2**20
_BASIS = 2**27
_PROBE_ENTRIES = 2**19
_STEPS = 96
_QUANTILES = 4096
_FILE = 4096  # a file takes whole blocks of the disk
_SLOW = 4.0
"""Operations of a product of matrices that take the time of one of a reduction to tridiagonal form."""
_SIZES = (1024, 768, 512, 384, 256, 192, 128, 96, 64)
_RATE = 4e9  # operations a second, to choose sizes by
_SMALLEST = 32
_FEW_STEPS = 8


@dataclass(frozen=True)
class ModelCost:
    """What the missing draws of one model cost.

    Attributes
    ----------
    model : the model.
    missing : number of draws that are not there yet.
    seconds : of one draw; None if no small draw of its kind could be computed.
    memory : bytes at the peak of one draw, beyond those of an idle process.
    stored : bytes that one draw takes on the disk.
    """

    model: Model
    missing: int
    seconds: float | None
    memory: int
    stored: int


@dataclass(frozen=True)
class Cost:
    """What a campaign costs; see `estimate_cost`.

    Attributes
    ----------
    rows : one a model that has draws missing.
    measuring : seconds that the measuring took.
    """

    rows: tuple[ModelCost, ...]
    measuring: float

    @property
    def draws(self) -> int:
        """Draws that are missing."""
        return sum(row.missing for row in self.rows)

    @property
    def seconds(self) -> float:
        """Seconds of all missing draws, one after the other; models without an estimate are left out."""
        return math.fsum(row.missing * row.seconds for row in self.rows if row.seconds is not None)

    @property
    def stored(self) -> int:
        """Bytes on the disk of all missing draws."""
        return sum(row.missing * row.stored for row in self.rows)

    def wall(self, jobs: int) -> float:
        """Seconds with that many jobs at once, each on a core of its own: at least those of the longest draw."""
        longest = max((row.seconds or 0.0 for row in self.rows), default=0.0)
        return max(longest, self.seconds / jobs)

    def memory(self, jobs: int) -> int:
        """Bytes at the peak if that many of the largest draws run at once."""
        total = 0
        for row in sorted(self.rows, key=lambda row: -row.memory):
            count = min(jobs, row.missing)
            total, jobs = total + count * row.memory, jobs - count
        return total


def memory_needed(task_or_model: Task | Model) -> int:
    """Bytes at the peak of one draw, with a margin of a quarter; the interpreter and its libraries come on top.

    Dense: the matrix and its Gram matrix, or the matrix alone for "svd"; a linear model also has its noise, and the
    tokens, weights, queries and keys stand beside the scores while these are made. Matrix-free: factors, two tiles,
    the vectors, and the Lanczos vectors that are kept.
    """
    model = task_or_model.model if isinstance(task_or_model, Task) else task_or_model
    head, plan = model.head, model.plan
    item = 4 if plan.dtype == "float32" else 8
    entries, least = head.tokens * head.columns, min(head.tokens, head.columns)
    factors = 8 * _factor_entries(head) + (item if item == 4 else 0) * (head.tokens + head.columns) * head.head_dim
    kept = 16 * (head.tokens + head.columns) * head.head_dim
    tiles = item * 4 * max(_TILE, head.columns)
    peaks = [factors]
    if plan.matrix == "linear-model":
        peaks += [factors + 8 * entries, 24 * entries]
    if "spectrum" in plan.statistics:
        if plan.method == "lanczos":
            probes, steps = _lanczos(model)
            vectors = least * probes
            basis = vectors * steps if vectors * steps <= _BASIS else 0
            peaks.append(kept + tiles + 8 * (basis + 8 * vectors + 2 * max(head.tokens, head.columns) * probes))
        else:
            gram = least**2 if plan.method == "gram" else 0
            peaks += [factors + item * entries, item * (entries + gram)]
            if head.visibility is not None:
                peaks.append(item * entries + 32 * min(entries, _BLOCK))
    if "rows" in plan.statistics:
        peaks.append(kept + 8 * 4 * max(_TILE, head.columns))
    if _top_by_lanczos(plan):
        peaks.append(kept + tiles + 8 * least * (2 * max(24, 3 * plan.top) + 8))
    score = 0 if head.score is None else 64 * max(2**18, head.columns)  # temporaries of a formula, block by block
    return int(_SAFETY * max(peaks)) + score + _FIXED


def stored_bytes(model: Model) -> int:
    """Bytes that one draw takes on the disk, in whole blocks."""
    plan, numbers = model.plan, 0
    if "spectrum" in plan.statistics:
        lanczos = plan.method == "lanczos"
        numbers += min(model.head.tokens, _QUANTILES) + 1 if lanczos else model.head.tokens
    if _top_by_lanczos(plan):
        numbers += plan.top
    if "rows" in plan.statistics:
        numbers += 3 * len(ROW_STATISTICS)
    return _FILE * -(-(8 * numbers + 1024) // _FILE)


def estimate_cost(
    campaign: Campaign,
    missing: Collection[Task],
    *,
    compute: Compute | None = None,
    clock: Callable[[], float] = time.perf_counter,
    budget: float = 10.0,
) -> Cost:
    """What the missing draws of a campaign cost, by measuring small draws of every kind of model.

    Models are of a kind if they differ in sizes, β, covariance, probes and steps alone.

    Parameters
    ----------
    campaign : the campaign, whose order the models keep.
    missing : tasks of it that are to be computed.
    compute : what computes a task; `gequiv.simulation.campaign.execution.compute` by default.
    clock : seconds.
    budget : seconds that the measuring may take, about; kinds that it does not reach are taken to cost as much as the
        slowest that was measured of the same method.
    """
    if compute is None:
        from gequiv.simulation.campaign.execution import compute as compute_draw

        compute = compute_draw
    begun = clock()
    counts = Counter((task.model.group, task.model.identity) for task in missing)
    models = [model for model in campaign.models if counts[model.group, model.identity]]
    kinds: dict[tuple[Any, ...], list[Model]] = {}
    for model in models:
        for part in _parts(model.plan):
            kinds.setdefault(_kind(model, part), []).append(model)
    order = sorted(kinds, key=lambda kind: -max(_operations(work(model, kind[0])) for model in kinds[kind]))
    fits: dict[tuple[Any, ...], np.ndarray[Any, Any] | None] = {}
    for index, kind in enumerate(order):
        left = budget - (clock() - begun)
        fits[kind] = _measured(kind[0], kinds[kind], left / (len(order) - index), compute, clock) if left > 0 else None
    rows = []
    for model in models:
        times = [_seconds(model, part, fits) for part in _parts(model.plan)]
        seconds = None if None in times else math.fsum(value for value in times if value is not None)
        count = counts[model.group, model.identity]
        rows.append(ModelCost(model, count, seconds, memory_needed(model), stored_bytes(model)))
    return Cost(tuple(rows), clock() - begun)


def work(model: Model, part: str) -> tuple[float, float]:
    """Operations of linear algebra, and entries that are made, of one part of a draw.

    Parameters
    ----------
    model : the model.
    part : "spectrum", "rows" or "top".
    """
    head, plan = model.head, model.plan
    entries = float(head.tokens * head.columns)
    least, most = sorted((head.tokens, head.columns))
    algebra = 2 * entries * head.head_dim
    if head.width is not None:
        algebra += 2.0 * (head.tokens + head.columns) * head.width * head.head_dim
    if part == "rows":
        return algebra, entries
    passes = 1.0 if head.tokens >= head.columns else 2.0
    if part == "top":
        passes *= least ** (1 / 3)  # spacings at the edge go as n^(-2/3), and steps as one over their root
        return passes * (algebra + 4 * entries), passes * entries
    if plan.method == "lanczos":
        probes, steps = _lanczos(model)
        orthogonalising = _SLOW * 4.0 * least * probes * steps**2
        return passes * steps * (algebra + 4 * entries * probes) + orthogonalising, passes * steps * entries
    if plan.method == "gram":
        return algebra + entries * least + _SLOW * 4 / 3 * least**3, entries
    return algebra + _SLOW * (4.0 * least**2 * most - 4 / 3 * least**3), entries


def _operations(amounts: tuple[float, float]) -> float:
    return amounts[0] + 20 * amounts[1]


def _parts(plan: Plan) -> list[str]:
    """What of a draw is computed on its own."""
    parts = [part for part in ("spectrum", "rows") if part in plan.statistics]
    return parts + ["top"] * _top_by_lanczos(plan)


def _top_by_lanczos(plan: Plan) -> bool:
    return "top" in plan.statistics and (plan.method == "lanczos" or "spectrum" not in plan.statistics)


def _lanczos(model: Model) -> tuple[int, int]:
    """Probes and steps, where the plan leaves them open too."""
    least = min(model.head.tokens, model.head.columns)
    probes = model.plan.probes or max(4, -(-_PROBE_ENTRIES // least))
    return min(least, probes), min(least, model.plan.steps or _STEPS)


def _factor_entries(head: Attention) -> int:
    """Numbers of queries and keys, with those of the tokens and weights that they are made of."""
    both = head.tokens + head.columns
    count = 2 * both * head.head_dim
    if head.width is not None:
        cross = head.columns if head.columns != head.tokens else 0
        count += (2 * head.tokens + 2 * cross) * head.width + 2 * head.width * head.head_dim
    return count


def _kind(model: Model, part: str) -> tuple[Any, ...]:
    head, plan = model.head, model.plan
    return (
        part,
        plan.method,
        plan.matrix,
        head.mask,
        head.bias is not None,
        model.score,
        head.width is not None,
        head.token_entries,
        head.weight_entries,
        plan.dtype,
        plan.threads,
        plan.top if part == "top" else 0,
    )


def _small(model: Model, part: str, tokens: int) -> Model:
    """A model of the same kind and proportions with that many tokens, and with few steps."""
    head, plan = model.head, model.plan

    def scaled(size: int, minimum: int = 1) -> int:
        return max(minimum, round(size * tokens / head.tokens))

    keys = tokens if head.columns == head.tokens else max(scaled(head.columns, 2), min(tokens, head.columns // 2))
    if head.columns > head.tokens:
        keys = max(keys, tokens + 1)
    small = dataclasses.replace(
        head,
        tokens=tokens,
        keys=None if keys == tokens else keys,
        head_dim=scaled(head.head_dim),
        width=None if head.width is None else scaled(head.width),
        covariance=None,
    )
    probes, steps = _lanczos(model)
    few = plan.method == "lanczos" and part == "spectrum"
    least = min(tokens, keys)
    reduced = dataclasses.replace(
        plan,
        statistics=(part,),
        probes=min(probes, least) if few else None,
        steps=min(steps, _FEW_STEPS, least) if few else None,
        top=min(plan.top, least),
    )
    return Model(model.group, small, reduced, (), (0,), score=model.score)


def _measured(
    part: str, models: Iterable[Model], budget: float, compute: Compute, clock: Callable[[], float]
) -> np.ndarray[Any, Any] | None:
    """The three coefficients of a kind; None if no small draw could be computed."""
    from scipy.optimize import nnls

    largest = max(models, key=lambda model: _operations(work(model, part)))
    top = largest.head.tokens
    sizes: list[int] = []
    for size in (s for s in _SIZES if s <= max(top, _SIZES[-1])):
        with suppress(GequivError):  # a head that cannot be that small
            if 2 * _operations(work(_small(largest, part, size), part)) / _RATE <= 0.7 * budget:
                sizes = [size]
                break
    sizes = sorted({_SMALLEST, max(_SMALLEST + 16, (sizes or [64])[0] // 2), (sizes or [64])[0]})
    amounts, times = [], []
    for index, size in enumerate(sizes):
        try:
            small = _small(largest, part, size)
            if index == 0:
                compute(Task(small, 0, 0))  # imports and compiled formulas
            found = [_timed(small, compute, clock) for _ in range(1 if index == len(sizes) - 1 else 3)]
        except NO_DRAW:  # rows of a score that cannot be normalised over few keys, for example
            continue
        amounts.append((*work(small, part), 1.0))
        times.append(max(min(found), 1e-9))
    if not times:
        return None
    matrix, seconds = np.array(amounts), np.array(times)
    scale = matrix.max(axis=0)
    # relative errors count alike
    coefficients, _ = nnls(matrix / scale / seconds[:, None], np.ones(len(times)))
    result: np.ndarray[Any, Any] = coefficients / scale
    return result


def _timed(model: Model, compute: Compute, clock: Callable[[], float]) -> float:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(model.plan.threads):
        begun = clock()
        compute(Task(model, 0, 0))
        return clock() - begun


def _seconds(model: Model, part: str, fits: dict[tuple[Any, ...], np.ndarray[Any, Any] | None]) -> float | None:
    kind = _kind(model, part)
    fit = fits[kind]
    candidates = [fit] if fit is not None else [f for k, f in fits.items() if f is not None and k[:2] == kind[:2]]
    amounts = np.array([*work(model, part), 1.0])
    return max((float(amounts @ candidate) for candidate in candidates), default=None)
