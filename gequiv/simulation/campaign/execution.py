"""Running a campaign: one task a draw, in this process, in several, or on the workers of a Dask scheduler."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from gequiv import _checks
from gequiv._checks import Array
from gequiv.errors import CertificationError, ExecutionError, ParameterError
from gequiv.simulation.campaign.cost import NO_DRAW, memory_needed
from gequiv.simulation.campaign.memory import available_memory
from gequiv.simulation.campaign.model import ROW_STATISTICS, Campaign, Model, Task
from gequiv.simulation.campaign.store import Store

Progress = Callable[[int, int, str], None]

QUANTILES = 4096
"""Most quantiles that are kept of a spectrum by the Lanczos route."""
CONNECTING = 10.0
"""Seconds in which a Dask scheduler must answer."""
PATIENCE = 300.0
"""Seconds for which a run waits for Dask workers when there are none."""
RESTARTS = 3
"""How often in a row worker processes may die without one draw in between."""

_WATCH = 0.5  # seconds between looks at the parent process
_ADDRESS = re.compile(r"(?:(?:tcp|tls|wss?|ucx)://)?[^\s/]+:\d{1,5}/?")


# -- one draw ---------------------------------------------------------------------------------------


def compute(task: Task) -> dict[str, Array]:
    """Draw a matrix and find what the model's plan asks for.

    The result depends on model and seed alone: the rng is ``np.random.default_rng(seed)``, and linear algebra has the
    plan's number of threads. The last bits may depend on the kind of processor and on numpy's and scipy's releases.

    Returns
    -------
    Float64 arrays by name. "values": ascending squared singular values, or with "lanczos" that many quantiles of their
    distribution, at most 4096; "error": with "lanczos" the 99 % sampling error of the distribution function, shape
    (1,); "top": the largest squared singular values, descending, if "top" is asked for with "lanczos" or without
    "spectrum"; "rows": mean, standard deviation and median over rows of `ROW_STATISTICS`, shape (their number, 3).

    Raises
    ------
    ParameterError : the plan cannot be followed for this head.
    CertificationError : a row cannot be normalised, or a number is not finite.
    """
    with _blas_threads(task.model.plan.threads):
        found = _computed(task)
    arrays = {name: np.asarray(value, dtype=np.float64) for name, value in found.items()}
    for name, value in arrays.items():
        if not np.isfinite(value).all():
            raise CertificationError(f"{name} of a draw came out infinite or NaN: take a smaller beta, or float64")
    return arrays


def _computed(task: Task) -> dict[str, Any]:
    from gequiv.attention import ensemble

    head, plan, seed = task.model.head, task.model.plan, task.seed
    dtype: Any = plan.dtype
    found: dict[str, Any] = {}
    if plan.matrix == "linear-model":
        if plan.method == "lanczos" or plan.statistics != ("spectrum",):
            raise ParameterError(
                'matrix "linear-model" goes with method "gram" or "svd" and with statistics ["spectrum"]; got '
                f"method={plan.method!r}, statistics={list(plan.statistics)!r}"
            )
        matrix = ensemble.draw_linear_model(head, np.random.default_rng(seed)).astype(plan.dtype, copy=False)
        return {"values": ensemble.squared_singular_values(matrix, plan.method)}
    if "spectrum" in plan.statistics:
        if plan.method == "lanczos":
            from gequiv.simulation.lanczos import spectral_estimate

            options: dict[str, Any] = {"probes": plan.probes, "steps": plan.steps}
            given = {name: value for name, value in options.items() if value is not None}
            estimate = spectral_estimate(head, seed, dtype=dtype, **given)
            found["values"] = estimate.quantiles(min(head.tokens, QUANTILES))
            found["error"] = [estimate.error]
        else:
            found["values"] = head.spectrum(np.random.default_rng(seed), method=plan.method, dtype=dtype)
    if "top" in plan.statistics and ("values" not in found or plan.method == "lanczos"):
        from gequiv.simulation.lanczos import top_singular_values

        found["top"] = top_singular_values(head, seed, plan.top) ** 2
    if "rows" in plan.statistics:
        from gequiv.attention.matrix_free import AttentionOperator

        rows = AttentionOperator(head, rng=seed).row_statistics()
        found["rows"] = [[f(rows[name]) for f in (np.mean, np.std, np.median)] for name in ROW_STATISTICS]
    return found


class _Threads:
    """How many draws of this process are under way, and with how many BLAS threads each; a limit holds for all."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.users = 0
        self.limit = 0
        self.limiter: Any = None


_threads = _Threads()


@contextlib.contextmanager
def _blas_threads(limit: int) -> Iterator[None]:
    """Limit BLAS and OpenMP threads of the process; who wants another limit than those under way waits for their end.

    Workers of Dask may have several threads, and the limit is one of the whole process.
    """
    with _threads.changed:
        _threads.changed.wait_for(lambda: _threads.users == 0 or _threads.limit == limit)
        if _threads.users == 0:
            _threads.limiter = _libraries().limit(limits=limit)
            _threads.limit = limit
        _threads.users += 1
    try:
        yield
    finally:
        with _threads.changed:
            _threads.users -= 1
            if _threads.users == 0:
                _threads.limiter.restore_original_limits()
                _threads.changed.notify_all()


@cache
def _libraries() -> Any:
    import scipy.linalg  # brings its own BLAS, which must be there to be limited
    from threadpoolctl import ThreadpoolController

    del scipy
    return ThreadpoolController()


@dataclass(frozen=True)
class _Outcome:
    """What became of a task: its arrays, or why there are none."""

    key: str
    arrays: dict[str, Array] | None
    error: str = ""


def _attempt(task: Task, parent: int | None = None) -> _Outcome:
    """`compute`, with what may go wrong with one draw as text; in a worker process of `parent`, tied to it."""
    if parent is not None:
        tie(parent)
    try:
        return _Outcome(task.key, compute(task))
    except NO_DRAW as error:
        return _Outcome(task.key, None, f"{type(error).__name__}: {error}")


@cache
def tie(parent: int) -> None:
    """In a worker process, leave Ctrl-C to the parent, and end when it has ended, however that came."""
    import signal

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH)
        os._exit(1)

    if os.getpid() != parent:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=watch, daemon=True).start()


# -- many draws -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """A draw that could not be made.

    Attributes
    ----------
    model : title of the model.
    seed : of the draw.
    message : kind of the error and what it says.
    """

    model: str
    seed: int
    message: str


@dataclass(frozen=True)
class RunSummary:
    """What a run did.

    Attributes
    ----------
    total : draws of the campaign, each counted once.
    known : how many were there before, or were made by another run meanwhile.
    computed : how many this run made.
    damaged : how many files were truncated or corrupt, and were computed again.
    seconds : wall time.
    failures : draws that could not be made.
    interrupted : whether Ctrl-C ended it.
    """

    total: int
    known: int
    computed: int
    damaged: int
    seconds: float
    failures: tuple[Failure, ...] = ()
    interrupted: bool = False

    @property
    def missing(self) -> int:
        """Draws that are not there, for which the same command asks again."""
        return self.total - self.known - self.computed


class CampaignInterrupted(KeyboardInterrupt):
    """Ctrl-C during `run`.

    Attributes
    ----------
    summary : the `RunSummary` of what was done by then, all of which is stored.
    """

    def __init__(self, summary: RunSummary) -> None:
        done = summary.known + summary.computed
        super().__init__(
            f"interrupted after {done} of {summary.total} draws, which are stored; the same command goes on from there"
        )
        self.summary = summary


def run(
    campaign: Campaign,
    folder: str | os.PathLike[str],
    *,
    jobs: int = 1,
    dask: str | None = None,
    memory: int | None = None,
    progress: Progress | None = None,
) -> RunSummary:
    """Make the draws of a campaign that its folder does not have yet.

    Each draw is stored when it is done, so that a run may be stopped or killed at any time at the cost of the draws
    under way. Draws that are there are checked first; damaged ones are made again. Tasks come in random order, the
    largest first if memory does not allow them `jobs` at a time: two runs on one folder then share the work. Results
    depend neither on the order nor on the number of workers.

    Parameters
    ----------
    folder : the campaign's; it must be new, empty, or a campaign's already.
    jobs : worker processes on this machine; with 1, draws are made in this process.
    dask : address of a Dask scheduler, whose workers then make the draws; jobs is of no meaning with it.
    memory : bytes that draws may take together on this machine; None for what is available.
    progress : called with the number of draws that are there, the total, and the title of the latest one's model;
        first with the draws that were there before and an empty title.

    Raises
    ------
    ParameterError : a parameter is out of range; a draw would not fit into memory, which is said before any starts;
        `distributed` is not installed; or Dask's workers have other releases.
    InputFileError : the folder cannot be used; StorageError, which is one, if the disk is full.
    ExecutionError : worker processes keep dying; or the scheduler cannot be reached or was lost.
    CampaignInterrupted : Ctrl-C.

    Whatever is raised, all finished draws are kept.
    """
    jobs = _checks.positive_integer("jobs", jobs)
    if memory is not None:
        memory = _checks.positive_integer("memory", memory)
    if dask is not None and not _ADDRESS.fullmatch(dask):  # distributed takes 20 s over it
        raise ParameterError(f'dask must be the address of a scheduler, such as "tcp://127.0.0.1:8786"; got {dask!r}')
    begin = time.monotonic()
    store = Store(folder)
    store.prepare(campaign.source, campaign.name)
    tasks = campaign.tasks()
    book = _Book(store, {task.key: task for task in tasks}, progress)
    missing = [task for task in tasks if not store.has(task.key)]
    book.known = len(tasks) - len(missing)
    book.tell("")

    def summary(interrupted: bool = False) -> RunSummary:
        seconds = time.monotonic() - begin
        failures = tuple(book.failures)
        return RunSummary(len(tasks), book.known, book.computed, store.damaged, seconds, failures, interrupted)

    try:
        if not missing:
            pass
        elif dask is not None:
            _on_dask(book, missing, dask)
        else:
            for workers, phase in _phases(missing, jobs, memory):
                if workers == 1:
                    _here(book, phase)
                else:
                    _in_processes(book, phase, workers)
    except KeyboardInterrupt as stop:
        book.settle()
        raise CampaignInterrupted(summary(interrupted=True)) from stop
    return summary()


@dataclass
class _Book:
    """What is done so far."""

    store: Store
    tasks: dict[str, Task]
    progress: Progress | None
    known: int = 0
    computed: int = 0
    failures: list[Failure] = field(default_factory=list)
    settled: set[str] = field(default_factory=set)
    writing: str | None = None

    def tell(self, title: str) -> None:
        if self.progress is not None:
            self.progress(self.known + self.computed, len(self.tasks), title)

    def open(self, task: Task) -> bool:
        """Whether a task is still to be done: neither by this run nor, meanwhile, by another."""
        if task.key in self.settled:
            return False
        if self.store.has(task.key):
            self.settled.add(task.key)
            self.known += 1
            return False
        return True

    def receive(self, outcome: _Outcome) -> None:
        """Store what came back."""
        task = self.tasks[outcome.key]
        if outcome.arrays is None:
            self.failures.append(Failure(task.model.title, task.seed, outcome.error))
        else:
            self.writing = outcome.key
            self.store.put(outcome.key, outcome.arrays)
            self.settle()
        self.settled.add(outcome.key)
        self.tell(task.model.title)

    def settle(self) -> None:
        """Count the draw that was being written, if it is there; Ctrl-C may come at any point."""
        if self.writing is not None and self.writing not in self.settled and self.store.path(self.writing).exists():
            self.settled.add(self.writing)
            self.computed = self.computed + 1
        self.writing = None


def _shuffled(tasks: list[Task]) -> list[Task]:
    """In an order of its own for every run, so that two of them seldom make the same draw."""
    order = np.random.default_rng().permutation(len(tasks))
    return [tasks[index] for index in order]


def _sent(task: Task) -> Task:
    """What a worker must know: the same task, without the seeds of the model's other draws."""
    return replace(task, model=replace(task.model, seeds=(), axes={}))


def _phases(tasks: list[Task], jobs: int, memory: int | None) -> list[tuple[int, list[Task]]]:
    """Tasks by how many of their kind fit into memory side by side, at most `jobs`, the largest first."""
    limit = available_memory() if memory is None else memory
    fits: dict[str, int] = {}
    for model in _models(tasks):
        need = memory_needed(model)
        if need > limit:
            draw = f"one draw of {model.group} ({model.title})"
            hint = "take fewer tokens" + (
                "" if model.plan.method == "lanczos" else ', or method = "lanczos", which needs no matrix'
            )
            raise ParameterError(
                f"{draw} does not fit into memory: it needs {_size(need)}, and {_size(limit)} are available; {hint}"
                if memory is None
                else f"memory must be at least {_size(need)} for {draw}; got {_size(limit)}. Else {hint}"
            )
        fits[model.identity] = min(jobs, limit // need)
    counts = sorted(set(fits.values()))
    return [(workers, [task for task in tasks if fits[task.model.identity] == workers]) for workers in counts]


def _models(tasks: list[Task]) -> list[Model]:
    """Models that draw differently, one of each kind."""
    return list({task.model.identity: task.model for task in tasks}.values())


def _size(count: int) -> str:
    return f"{count / 1e9:.3g} GB"


def _here(book: _Book, tasks: list[Task]) -> None:
    for task in _shuffled(tasks):
        if book.open(task):
            book.receive(_attempt(task))


def _in_processes(book: _Book, tasks: list[Task], workers: int) -> None:
    """By joblib's worker processes, which are started anew if the system ends one of them."""
    import warnings

    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import BrokenProcessPool  # TerminatedWorkerError is one

    restarts = 0
    while True:
        before = len(book.settled)
        # consumed as workers become free, which is when the store is asked again
        calls = (delayed(_attempt)(_sent(task), os.getpid()) for task in _shuffled(tasks) if book.open(task))
        parallel = Parallel(
            n_jobs=workers, return_as="generator_unordered", batch_size=1, backend="loky", max_nbytes=None
        )
        try:
            outcomes = parallel(calls)
            try:
                for outcome in outcomes:
                    book.receive(outcome)
            finally:
                with warnings.catch_warnings(), contextlib.suppress(BrokenProcessPool):
                    warnings.simplefilter("ignore")  # of draws that are given up
                    outcomes.close()
            return
        except BrokenProcessPool as error:
            restarts = 1 if len(book.settled) > before else restarts + 1
            if restarts > RESTARTS:
                raise ExecutionError(
                    f"jobs = {workers}: worker processes were ended by the system {restarts} times in a row, most "
                    "likely because memory ran out: give fewer jobs or less memory. All finished draws are kept"
                ) from error


# -- Dask -------------------------------------------------------------------------------------------


def _on_dask(book: _Book, tasks: list[Task], address: str) -> None:
    """By the workers of a scheduler.

    Tasks are submitted one by one under their own keys. joblib's Dask backend would do, but that it never hands on
    what a scheduler says of a task whose workers died: its generator then waits for ever.
    """
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise ParameterError(f"dask={address!r} needs distributed: pip install 'gequiv[dask]'") from error
    try:
        client = distributed.Client(address, timeout=CONNECTING, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise ExecutionError(f"no Dask scheduler could be reached at {address!r}: {error}") from error
    pending: dict[Any, Task] = {}
    try:
        places = _places(client, tasks, address)
        queue = (task for task in _shuffled(tasks) if book.open(task))
        exhausted = False
        again: list[Task] = []
        losses: dict[str, int] = {}
        looked, seen, window = 0.0, time.monotonic(), 0
        while True:
            if time.monotonic() - looked > 1:
                looked = time.monotonic()
                threads = _dask_threads(client)
                seen = looked if threads else seen
                window = max(4, 2 * threads)
                if looked - seen > PATIENCE:
                    raise ExecutionError(f"the Dask scheduler at {address!r} has lost its workers; {_KEPT}")
            while (again or not exhausted) and len(pending) < window:
                task = again.pop() if again else next(queue, None)
                exhausted = task is None
                if task is not None:
                    future = client.submit(
                        _attempt,
                        _sent(task),
                        key=f"gequiv-{task.key}",
                        workers=places.get(task.model.identity),
                        pure=True,
                    )
                    pending[future] = task
            if not pending:
                return
            with client.as_current(), contextlib.suppress(distributed.TimeoutError, distributed.CancelledError):
                distributed.wait(list(pending), timeout=1, return_when="FIRST_COMPLETED")
            # "lost" is what was on a worker that died: the scheduler has it done again
            for future in [future for future in pending if future.status in ("finished", "error", "cancelled")]:
                task = pending.pop(future)
                outcome = _collected(future, task, address)
                if outcome is not None:
                    book.receive(outcome)
                    continue
                losses[task.key] = losses.get(task.key, 0) + 1
                if losses[task.key] > RESTARTS:
                    raise ExecutionError(f"the Dask scheduler at {address!r} was lost; {_KEPT}")
                again.append(task)
    finally:
        with contextlib.suppress(Exception):  # a scheduler that is gone has nothing to cancel
            client.cancel(list(pending))  # but for what another run has asked for, too
        client.close(timeout=5)


_KEPT = "all finished draws are kept, and the same command goes on from there"


def _collected(future: Any, task: Task, address: str) -> _Outcome | None:
    """What a worker found; None if it went with the worker, which is to be told to the scheduler again."""
    from distributed import CancelledError, KilledWorker, TimeoutError

    status = future.status
    if status == "error":
        error = future.exception()
        if isinstance(error, KilledWorker):
            return _Outcome(task.key, None, "every worker that tried it died, most likely because memory ran out")
        raise ExecutionError(f"the workers of {address!r} cannot make draws: {error!r}; {_KEPT}") from error
    if status == "finished":
        with contextlib.suppress(TimeoutError, CancelledError, OSError):
            outcome: _Outcome = future.result(timeout=PATIENCE)
            return outcome
    return None


def _dask_threads(client: Any) -> int:
    """Threads of all workers; none if the scheduler does not answer."""
    try:
        return sum(client.nthreads().values())
    except (OSError, TimeoutError):
        return 0


def _places(client: Any, tasks: list[Task], address: str) -> dict[str, list[str]]:
    """For models that not every worker has memory for, by identity, the workers that do; checks workers' releases."""
    deadline = time.monotonic() + CONNECTING
    while not _dask_threads(client):
        if time.monotonic() > deadline:
            raise ExecutionError(f"the Dask scheduler at {address!r} has no workers: start some with dask worker")
        time.sleep(0.1)
    ours, room = _releases(), {}
    for name, (theirs, memory) in client.run(_worker).items():
        if theirs != ours:
            raise ParameterError(f"dask: worker {name} must have {ours} as this process does; it has {theirs}")
        room[name] = memory
    places = {}
    for model in _models(tasks):
        need = memory_needed(model)
        able = [name for name, memory in room.items() if memory >= need]
        if not able:
            raise ParameterError(
                f"dask: workers must have {_size(need)} of memory a thread for one draw of {model.group} "
                f"({model.title}); the largest has {_size(max(room.values()))}"
            )
        if len(able) < len(room):
            places[model.identity] = able
    return places


def _worker(dask_worker: Any) -> tuple[str, int]:
    """Releases of a worker, and its memory in bytes a thread."""
    return _releases(), (dask_worker.memory_manager.memory_limit or available_memory()) // dask_worker.state.nthreads


def _releases() -> str:
    import scipy

    from gequiv._version import __version__

    return f"gequiv {__version__}, numpy {np.__version__}, scipy {scipy.__version__}"
