"""From measured heads to reports: the laws of their sizes, what chance does to them, and the verdicts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from gequiv.attention.masks import FrozenArray
from gequiv.inspection.calibration import (
    DRAWS,
    LARGE_DRAWS,
    MASKED_EDGE_SKEWNESS,
    Calibration,
    Moments,
    holm,
    is_large,
)
from gequiv.inspection.estimates import largest_entry, single_entries
from gequiv.inspection.head import Held, Measured, balanced, hold, log_unit, measure, workers
from gequiv.inspection.nulls import SizeFamilies, Sizes, table_at
from gequiv.inspection.report import UNTESTED, HeadReport, OutlyingDirection, finite_or_none
from gequiv.inspection.tables import LawTable, block_threshold

Progress = Callable[[int, int, str], None]

LARGEST_BETA = 4.0
"""Heads of greater β have no law to be held against: a few entries have a row's energy."""
SMALLEST_BETA = 1e-6
"""Of smaller β rounding is all there is."""
_STATISTICS = 4
_SIMILAR = 0.12  # difference of d_k/d up to which heads share their draws
_ALIKE, _MASKED_ALIKE = 0.05, 0.1  # differences of d_k/d that reading it off leaves open
_FEW = 3  # laws that are solved one after another
_DISAGREE = 1.15
_LOOPS = 6
_NEAR = 0.02  # in log β, what random heads differ by


@dataclass(frozen=True, eq=False)
class Subject:
    """A head to be judged.

    Attributes
    ----------
    layer, head : its place.
    measured : what was read off it.
    findings : sentences.
    offsets : (first query, first key) that padding left, to number tokens as in the input.
    degenerate : why it has no law, in words: all rows alike, all entries alike; empty if it may have one.
    """

    layer: int
    head: int
    measured: Measured
    findings: tuple[str, ...]
    offsets: tuple[int, int]
    degenerate: str = ""


def _has_law(measured: Measured) -> bool:
    return measured.sizes is not None and SMALLEST_BETA <= measured.beta_energy <= LARGEST_BETA


class _Found(NamedTuple):
    """A head held against a table, and the moments and margins that it was held with."""

    held: Held
    moments: Moments
    margins: tuple[float, float]


class SizesJudge:
    """Holds heads against random heads of their sizes.

    Parameters
    ----------
    level : probability with which any of the heads may be called not random although all are.
    seed : of the draws.
    jobs : processes for laws and threads for draws.
    progress : called with (done, total, what).
    """

    def __init__(self, level: float, seed: int, jobs: int, progress: Progress | None = None) -> None:
        self.level, self.seed, self.jobs = level, seed, jobs
        self.progress = progress
        self._families = SizeFamilies()
        self._calibrations: dict[Sizes, Calibration] = {}
        self._classes: dict[Sizes, Sizes] = {}

    # -- laws and draws ---------------------------------------------------------------------------------

    def table(self, sizes: Sizes, beta: float) -> LawTable:
        """The law of random heads of these sizes at β."""
        return self._families.of(sizes).at(beta)

    def prepare(self, measured: Sequence[Measured]) -> None:
        """Solve the laws and draw the random heads that these need, side by side."""
        wanted = [(m.sizes, m.beta_energy) for m in measured if m.sizes is not None and _has_law(m)]
        self._classes |= _classes([sizes for sizes, _ in wanted])
        anchors = {
            (self._classes[sizes], anchor): None for sizes, beta in wanted for anchor in Calibration.anchors([beta])
        }
        near = [
            (sizes, Calibration.beta_of(anchor) * math.exp(shift * _NEAR))
            for (sizes, anchor), shift in itertools.product(anchors, (-1, 1))
        ]
        knots = self._families.missing([*wanted, *near])
        self._solve(knots)
        for sizes, _ in anchors:
            self._calibration(sizes)
        for done, (sizes, anchor) in enumerate(anchors, 1):
            self._calibrations[sizes].at_anchor(anchor)
            self._tell(done, len(anchors), "random heads")

    def _solve(self, knots: list[tuple[Sizes, int]]) -> None:
        tasks = [(sizes, self._families.of(sizes).beta_of(knot)) for sizes, knot in knots]
        jobs = min((workers(self.jobs, sizes.rows, sizes.keys) for sizes, _ in tasks), default=1)
        if len(tasks) <= _FEW or jobs == 1:
            tables: Iterable[LawTable] = (table_at(*task) for task in tasks)
        else:
            tables = Parallel(n_jobs=jobs, return_as="generator")(delayed(table_at)(*task) for task in tasks)
        for done, ((sizes, knot), table) in enumerate(zip(knots, tables, strict=True), 1):
            self._families.of(sizes).put(knot, table)
            self._tell(done, len(tasks), "laws")

    def _calibration(self, sizes: Sizes) -> Calibration:
        if sizes not in self._calibrations:
            self._calibrations[sizes] = Calibration(lambda beta: self._draw(sizes, beta))
        return self._calibrations[sizes]

    def _draw(self, sizes: Sizes, beta: float) -> Moments | None:
        """Of random heads of these sizes, measured and held as real ones are; None where most have no β."""
        head = sizes.head(beta)
        entropy = [self.seed, sizes.rows, sizes.keys, sizes.head_dim, sizes.width or 0, round(1e6 * beta)]
        children = np.random.default_rng(entropy).spawn(LARGE_DRAWS if is_large(sizes.rows, sizes.keys) else DRAWS)

        def one(child: np.random.Generator) -> Measured:
            return measure(head.sample(child), sizes.mask, head_dim=sizes.head_dim, width=sizes.width, light=True)

        jobs = workers(self.jobs, sizes.rows, sizes.keys)
        if jobs == 1:
            found = [one(child) for child in children]
        else:
            with threadpool_limits(1):
                found = Parallel(n_jobs=jobs, prefer="threads")(delayed(one)(child) for child in children)
        fine = [m for m in found if all(0 < beta < math.inf for beta in (m.beta_energy, m.beta_entropy))]
        if 2 * len(fine) < len(found):
            return None
        moments = Moments.of([hold(m, m.beta_energy, self.table(sizes, m.beta_energy)) for m in fine])
        if sizes.mask is None:
            return moments
        moments = replace(moments, edge_skewness=MASKED_EDGE_SKEWNESS)
        margin = moments.edge_margins(self.level / _STATISTICS)[0]
        again = np.random.default_rng(entropy).spawn(1 if is_large(sizes.rows, sizes.keys) else _FEW)
        energy = float(np.mean([m.energy for m in fine]))
        matrices = (balanced(head.sample(child), sizes.mask, energy) for child in again)
        return replace(
            moments, log_threshold=block_threshold(matrices, energy * math.exp(margin)) - math.log(energy) / 2
        )

    def _tell(self, done: int, total: int, what: str) -> None:
        if self.progress is not None:
            self.progress(done, total, what)

    # -- verdicts ---------------------------------------------------------------------------------------

    def held(self, measured: Measured) -> _Found | None:
        """The head without its outliers against the law of its bulk's β; None where it has none.

        Where nothing is left of the bulk, the outliers that were found first stay in it.
        """
        sizes, beta = measured.sizes, measured.beta_energy
        if not _has_law(measured) or sizes is None:
            return None
        calibration = self._calibration(self._classes[sizes])
        removed = 0
        for _ in range(_LOOPS):
            found = calibration.at(beta)
            if found is None:
                return None
            moments = found
            margins = self._margins(measured, beta, moments)
            held = hold(measured, beta, self.table(sizes, beta), margins)
            if len(held.outliers) <= removed or measured.masked:
                break
            removed = len(held.outliers)
            left = measured.beta_without(float(measured.spectrum[list(held.outliers)].sum()))
            if not left >= SMALLEST_BETA:
                break
            beta = left
        return _Found(held, moments, margins)

    def _margins(self, measured: Measured, beta: float, moments: Moments) -> tuple[float, float]:
        """Of both edges; localised vectors by single entries, rarer than draws tell, have theirs beyond those too."""
        level = self.level / _STATISTICS
        spread, local = moments.edge_margins(level)
        entries = largest_entry(level, beta, measured.counts, measured.directions)
        return spread, max(local, entries - log_unit(measured, beta))

    def judge(self, subjects: Sequence[Subject]) -> list[HeadReport]:
        """A report for each head."""
        subjects = _with_common_sizes(subjects)
        self.prepare([subject.measured for subject in subjects if not subject.degenerate])
        drafts = []
        for done, subject in enumerate(subjects, 1):
            found = None if subject.degenerate else self.held(subject.measured)
            drafts.append(self._draft(subject, found))
            self._tell(done, len(subjects), "verdicts")
        tested = [draft for draft in drafts if draft.p_value is not None]
        adjusted = dict(zip(map(id, tested), holm([float(d.p_value or 0.0) for d in tested]), strict=True))
        return [self._conclude(draft, adjusted.get(id(draft))) for draft in drafts]

    def _draft(self, subject: Subject, found: _Found | None) -> HeadReport:
        """Everything but the verdict."""
        measured = subject.measured
        findings = list(subject.findings)
        scores = measured.beta_scores
        draft = HeadReport(
            layer=subject.layer,
            head=subject.head,
            tokens=measured.rows,
            keys=measured.keys,
            mask=mask_name(measured.mask),
            beta=finite_or_none(measured.beta_energy if measured.beta_energy >= SMALLEST_BETA else 0.0),
            beta_entropy=finite_or_none(measured.beta_entropy),
            beta_scores=scores,
            head_dim=None if measured.sizes is None else measured.sizes.head_dim,
            width=None if measured.sizes is None else measured.sizes.width,
            directions=None if measured.shape is None else measured.shape.directions,
            ks=None,
            wasserstein=None,
            law_solved=False,
            edge=None,
            edge_local=None,
            detection_threshold=None,
            outliers=[],
            effective_rank=measured.effective_rank,
            p_bulk=None,
            p_edge=None,
            p_edge_local=None,
            p_beta=None,
            p_value=None,
            p_adjusted=None,
            random=False,
            verdict=subject.degenerate,
            findings=tuple(findings),
            spectrum=measured.spectrum,
        )
        if found is None:
            return draft
        held, moments, margins = found
        p_bulk, p_edge, p_local, p_beta = moments.p_values(held)
        expected = single_entries(
            held.edge_excess_local + held.log_unit, held.beta, measured.counts, measured.directions
        )
        p_values = (p_bulk, p_edge, max(p_local, min(1.0, expected)), p_beta)
        edges = [math.exp(held.log_unit + margin) for margin in margins]
        unit = math.exp(held.log_unit / 2) if measured.masked else 1.0
        threshold = math.exp(moments.log_threshold if measured.masked else held.table.log_threshold) * unit
        outliers = _outliers(measured, held, edges, subject.offsets)
        findings += _findings(measured, held, outliers, p_values[3], self.level)
        return replace(
            draft,
            beta=held.beta,
            ks=held.ks,
            wasserstein=held.wasserstein,
            law_solved=held.table.solved,
            edge=edges[0],
            edge_local=edges[1],
            detection_threshold=threshold,
            outliers=outliers,
            p_bulk=p_values[0],
            p_edge=p_values[1],
            p_edge_local=p_values[2],
            p_beta=p_values[3],
            p_value=min(1.0, _STATISTICS * min(p_values)),
            findings=tuple(findings),
            table=held.table,
        )

    def _conclude(self, draft: HeadReport, adjusted: float | None) -> HeadReport:
        if adjusted is None:
            return replace(draft, verdict=_without_law(draft))
        random = adjusted > self.level
        return replace(draft, p_adjusted=adjusted, random=random, verdict=_verdict(draft, random, self.level))


# -- words ----------------------------------------------------------------------------------------------


def mask_name(mask: Any) -> str:
    """A mask in a word."""
    return "none" if mask is None else mask if isinstance(mask, str) else "array"


def _without_law(draft: HeadReport) -> str:
    if draft.verdict:
        return f"not random: {draft.verdict}"
    if draft.beta is not None and draft.beta < SMALLEST_BETA:
        return "not random: every query weighs all keys alike, to rounding"
    if draft.head_dim is None and draft.beta is not None and draft.beta <= LARGEST_BETA:
        return f"{UNTESTED}: the head width cannot be read off; give head_dim"
    return f"{UNTESTED}: its rows are all but one-hot, beyond what tells random heads apart"


def _verdict(draft: HeadReport, random: bool, level: float) -> str:
    assert draft.ks is not None
    assert draft.beta is not None
    law = "the law" if draft.law_solved else "drawn random heads"
    if random:
        text = f"random: the bulk follows {law} of beta = {draft.beta:.3g} (KS {draft.ks:.3g})"
        if draft.outliers:
            text += f"; {_counted(draft.outliers)} outside the bulk, which chance allows among so many heads"
        return text
    reasons = []
    if draft.outliers and (_below(draft.p_edge, level) or _below(draft.p_edge_local, level)):
        reasons.append(f"{_counted(draft.outliers)} outside the bulk")
    if _below(draft.p_bulk, level):
        reasons.append(f"the bulk is at KS {draft.ks:.3g} from {law} of beta = {draft.beta:.3g}")
    if _below(draft.p_beta, level) and draft.beta_entropy is not None:
        reasons.append("its rows are not Gaussian-like (their energy and their entropy disagree on beta)")
    return "not random: " + ("; ".join(reasons) or "all its tests together")


def _below(p_value: float | None, level: float) -> bool:
    return p_value is not None and p_value < level / _STATISTICS


def _counted(outliers: list[OutlyingDirection]) -> str:
    return f"{len(outliers)} singular value" + ("s" if len(outliers) > 1 else "")


def _findings(
    measured: Measured, held: Held, outliers: list[OutlyingDirection], p_beta: float, level: float
) -> list[str]:
    found = []
    scores = measured.beta_scores
    if scores is not None and not 1 / _DISAGREE < scores / held.beta < _DISAGREE:
        found.append(f"beta is {scores:.3g} by the scores and {held.beta:.3g} by the second moment of the bulk")
    if p_beta < level / _STATISTICS:
        found.append(
            f"beta is {measured.beta_entropy:.3g} by the entropy and {measured.beta_energy:.3g} by the second moment, "
            "outliers included: scores that are not Gaussian-like"
        )
    if measured.shape is not None and measured.sizes is not None:
        directions, most = measured.shape.directions, measured.sizes.head_dim
        if directions < most / 4:
            found.append(f"the scores lie in {directions:.3g} of {most} directions, fewer than random weights leave")
    if any(outlier.kind == "column" for outlier in outliers):
        found.append("one direction is the same for all queries: a column bias, by the mean of the queries")
    if not held.table.solved:
        found.append("no law holds at this beta and these sizes: random heads that were drawn stand in for it")
    return found


def _outliers(measured: Measured, held: Held, edges: list[float], offsets: tuple[int, int]) -> list[OutlyingDirection]:
    """The outliers of the spectrum, and the column direction if it lies beyond the same edge."""
    queries, keys = offsets
    found = [measured.largest[k] for k in held.outliers if k < len(measured.largest)]
    found += measured.localised[: held.localised]
    if measured.column is not None and measured.column.value > edges[0]:
        found.append(measured.column)
    result = []
    for direction in found:
        parts = asdict(direction)
        parts["keys"] = tuple(keys + k for k in direction.keys)
        parts["queries"] = tuple(queries + q for q in direction.queries)
        edge = edges[1] if direction.kind == "local" else edges[0]
        result.append(OutlyingDirection(over_edge=direction.value / edge, **parts))
    edge = edges[0 if measured.masked else 1]
    for k in held.outliers:
        if k >= len(measured.largest):  # of which no vectors were kept
            value = float(measured.edge_spectrum[k])
            result.append(OutlyingDirection(value, "direction", (), (), (), (), 0.0, 0.0, over_edge=value / edge))
    return sorted(result, key=lambda outlier: -outlier.value)


# -- sizes ----------------------------------------------------------------------------------------------


def _classes(found: list[Sizes]) -> dict[Sizes, Sizes]:
    """To the sizes of each head those whose draws serve it: the commonest of similar ones."""
    result: dict[Sizes, Sizes] = {}
    order = sorted(set(found), key=lambda sizes: (-found.count(sizes), sizes.ratio))
    for sizes in order:
        similar = (
            other
            for other in result.values()
            if replace(other, width=sizes.width) == sizes and abs(other.ratio - sizes.ratio) < _SIMILAR
        )
        result[sizes] = next(similar, sizes)
    return result


def _with_common_sizes(subjects: Sequence[Subject]) -> list[Subject]:
    """Heads of the same tokens and mask with sizes in common.

    Heads whose logarithms do not tell their width take the commonest of the others. Ratios d_k/d that differ by less
    than what reading them off leaves open become their mean.
    """
    groups: dict[tuple[int, int, Any], list[int]] = {}
    for number, subject in enumerate(subjects):
        m = subject.measured
        groups.setdefault((m.rows, m.keys, mask_key(m.mask)), []).append(number)
    result = list(subjects)
    for numbers in groups.values():
        dims = [d for k in numbers if (d := subjects[k].measured.found_dim) is not None]
        if not dims:
            continue
        common = max(set(dims), key=dims.count)
        alike = _ALIKE if subjects[numbers[0]].measured.mask is None else _MASKED_ALIKE
        ratios = _gathered([subjects[k].measured.ratio for k in numbers], alike)
        for k, ratio in zip(numbers, ratios, strict=True):
            m, findings = subjects[k].measured, subjects[k].findings
            if m.found_dim is None:
                findings = (*findings, f"the head width, {common}, is taken from other heads")
            result[k] = replace(subjects[k], measured=m.with_sizes(m.found_dim or common, ratio), findings=findings)
    return result


def _gathered(ratios: list[float], alike: float) -> list[float]:
    """Ratios that are alike replaced by their mean."""
    order = np.argsort(ratios, kind="stable")
    result = list(ratios)
    start = 0
    for stop in range(1, len(order) + 1):
        if stop == len(order) or ratios[order[stop]] - ratios[order[start]] > alike:
            mean = float(np.mean([ratios[k] for k in order[start:stop]]))
            for k in order[start:stop]:
                result[k] = mean
            start = stop
    return result


def mask_key(mask: Any) -> Any:
    """Something that can be told apart and looked up."""
    return mask.array.tobytes() if isinstance(mask, FrozenArray) else mask
