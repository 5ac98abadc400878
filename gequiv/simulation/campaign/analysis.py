"""Analysis of a campaign: its draws against its laws, rates of convergence, and a verdict on every claim."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache

import numpy as np

from gequiv import _checks
from gequiv.errors import CertificationError, ExecutionError, ParameterError
from gequiv.simulation.campaign.claims import decide
from gequiv.simulation.campaign.execution import tie
from gequiv.simulation.campaign.findings import (
    Analysis,
    DrawRow,
    Estimate,
    LawFinding,
    ModelFinding,
    MomentRow,
    OutlierRow,
)
from gequiv.simulation.campaign.measured import LawMeasured, Measured, Records, measure
from gequiv.simulation.campaign.model import ROW_STATISTICS, Campaign, Model
from gequiv.simulation.campaign.power import estimate
from gequiv.simulation.campaign.rates import fit_rates
from gequiv.simulation.comparison import standard_error

Progress = Callable[[int, int], object]


def analyse(campaign: Campaign, store: Records, *, jobs: int = 1, progress: Progress | None = None) -> Analysis:
    """Compare the draws that are there with the laws, fit rates, and decide on the claims.

    Models are compared one by one, in `jobs` processes; what was found of a model is kept in the store and used again
    as long as its draws are the same. Numbers depend on the draws alone, not on jobs or on what was kept.

    Parameters
    ----------
    campaign : whose draws these are.
    store : where they lie, `gequiv.simulation.campaign.store.Store`.
    jobs : number of processes.
    progress : called with (done, total), numbers of models, before the first and after each.

    Raises
    ------
    ParameterError : jobs is not an integer of at least 1.
    ExecutionError : a worker process was ended by the system.
    """
    jobs = _checks.positive_integer("jobs", jobs)
    measured: list[Measured] = []
    total = len(campaign.models)
    if progress is not None:
        progress(0, total)
    for found in _measure_all(campaign.models, store, jobs):
        measured.append(found)
        if progress is not None:
            progress(len(measured), total)
    models = tuple(_finding(model, mine) for model, mine in zip(campaign.models, measured, strict=True))
    by_model = {id(model): mine for model, mine in zip(campaign.models, measured, strict=True)}
    rates = fit_rates(campaign.models, by_model)
    return Analysis(
        campaign=campaign,
        rows=tuple(row for finding, mine in zip(models, measured, strict=True) for row in _rows(finding.model, mine)),
        models=models,
        rates=rates,
        claims=decide(campaign, by_model, models, rates),
        missing=len({key for mine in measured for key in mine.missing}),
        damaged=len({key for mine in measured for key in mine.damaged}),
    )


def _measure_all(models: Sequence[Model], store: Records, jobs: int) -> Iterator[Measured]:
    if jobs == 1 or len(models) < 2:
        for model in models:
            yield measure(model, store)
        return
    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import BrokenProcessPool

    parallel = Parallel(n_jobs=min(jobs, len(models)), backend="loky", return_as="generator")
    try:
        yield from parallel(delayed(_measure_tied)(model, store, os.getpid()) for model in models)
    except BrokenProcessPool as error:
        raise ExecutionError(
            f"jobs = {jobs}: a worker process was ended by the system, most likely because memory ran out: give fewer "
            "jobs. What was compared is kept, and the same command goes on from there"
        ) from error


def _measure_tied(model: Model, store: Records, parent: int) -> Measured:
    tie(parent)
    return measure(model, store)


def _rows(model: Model, measured: Measured) -> Iterator[DrawRow]:
    for k, index in enumerate(measured.indices):
        largest = float(measured.tops[k, 0]) if measured.tops.shape[1] else None
        for law in model.laws:
            mine = measured.laws.get(law)
            known = mine is not None and mine.ks.size > 0
            ks = float(mine.ks[k]) if known and mine is not None else None
            wasserstein = float(mine.wasserstein[k]) if known and mine is not None else None
            yield DrawRow(model, index, model.seeds[index], law, ks, wasserstein, largest)


def _finding(model: Model, measured: Measured) -> ModelFinding:
    known = measured.edges.size > 0
    return ModelFinding(
        model=model,
        draws=measured.draws,
        laws=tuple(_law_finding(law, measured) for law in model.laws),
        noise=measured.noise,
        edges=measured.edges if known else None,
        heights=measured.heights if known else None,
        rows=_row_estimates(measured),
        expected_rows=expected_rows(model) if measured.rows.shape[0] else {},
        estimate_error=float(measured.errors.max()) if measured.errors.size else None,
        zeros=measured.zeros,
    )


def _law_finding(name: str, measured: Measured) -> LawFinding:
    mine = measured.laws.get(name)
    if mine is None:
        return LawFinding(name, None)
    if mine.refusal:
        return LawFinding(name, mine.refusal)
    return LawFinding(
        law=name,
        refusal=None,
        ks=estimate(mine.ks),
        wasserstein=estimate(mine.wasserstein),
        ks_pooled=mine.pooled,
        moments=_moments(mine),
        outliers=_outliers(mine, measured),
        grid=mine.grid if mine.grid.size else None,
        density=mine.density if mine.grid.size else None,
        atom=mine.atom,
        note=mine.note or None,
        outliers_refusal=mine.silence or None,
    )


def _moments(law: LawMeasured) -> tuple[MomentRow, ...]:
    found = []
    for k, order in enumerate(law.orders):
        values = tuple(float(value) for value in law.moments[:, k])
        mean, error, expected = math.fsum(values) / len(values), standard_error(values), float(law.expected[k])
        found.append(MomentRow(order, mean, expected, error, (mean - expected) / error if error else None))
    return tuple(found)


def _outliers(law: LawMeasured, measured: Measured) -> tuple[OutlierRow, ...]:
    pairs = list(zip(law.predicted, law.origins, strict=True))[: measured.tops.shape[1]]
    return tuple(
        OutlierRow(k + 1, float(location), origin, estimate(measured.tops[:, k]))
        for k, (location, origin) in enumerate(pairs)
    )


def _row_estimates(measured: Measured) -> dict[str, Estimate]:
    if not measured.rows.shape[0]:
        return {}
    found = {name: estimate(measured.rows[:, k, 0]) for k, name in enumerate(ROW_STATISTICS)}
    found["log_normaliser_sd"] = estimate(measured.rows[:, ROW_STATISTICS.index("log_normaliser"), 1])
    return found


def expected_rows(model: Model) -> dict[str, float]:
    """Row statistics of independent log-normal entries over the keys that a row sees; see `gequiv.attention.freezing`.

    Empty with a score function, with a bias, and with a mask under which rows see different numbers of keys; short of
    what is out of that module's range.
    """
    head = model.head
    if head.score is not None or head.bias is not None:
        return {}
    keys = head.columns
    if head.visibility is not None:
        seen = np.rint(head.visibility.effective_keys())
        if seen.min() < seen.max():
            return {}
        keys = int(seen[0])
    return dict(_log_normal_rows(keys, head.beta * head.spread, head.head_dim))


@lru_cache(maxsize=1024)
def _log_normal_rows(keys: int, beta: float, head_dim: int) -> tuple[tuple[str, float], ...]:
    from gequiv.attention.freezing import log_normaliser_mean, participation

    wanted: dict[str, Callable[[], float]] = {
        "log_normaliser": lambda: log_normaliser_mean(keys, beta, head_dim=head_dim),
        "participation": lambda: participation(keys, beta, 1, head_dim=head_dim),
        "energy_participation": lambda: participation(keys, beta, 2, head_dim=head_dim),
    }
    found = []
    for name, value in wanted.items():
        with suppress(ParameterError, CertificationError):
            found.append((name, value()))
    return tuple(found)
