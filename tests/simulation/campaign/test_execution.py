"""Runs: the same bytes whatever the number of workers, and however often they are stopped."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
import sympy
from threadpoolctl import threadpool_info

from gequiv.attention import Attention, ensemble
from gequiv.errors import InputFileError, ParameterError, StorageError
from gequiv.simulation.campaign import execution, memory
from gequiv.simulation.campaign.execution import compute, run
from gequiv.simulation.campaign.model import Campaign, Model, Plan, Task
from gequiv.simulation.campaign.store import Store
from tests.simulation.campaign.conftest import contents, make_campaign


def campaign_of(*models: Model) -> Campaign:
    return Campaign("test", "", "", 0, models, (), "")


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Files of 25 draws of each of 24 and 400 tokens, made in one go by one process."""
    folder = tmp_path_factory.mktemp("clean")
    run(make_campaign((24, 400), 25), folder)
    return contents(folder)


# -- one draw ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["gram", "svd"])
def test_values_are_those_of_the_head(method: str) -> None:
    head = Attention(30, 10, 0.7, mask="causal")
    found = compute(Task(Model("g", head, Plan(method=method), (), (5,)), 0, 5))  # type: ignore[arg-type]
    assert list(found) == ["values"]
    np.testing.assert_allclose(found["values"], head.spectrum(5), rtol=0, atol=1e-12)


def test_linear_model() -> None:
    head = Attention(30, 10, 0.7)
    found = compute(Task(Model("g", head, Plan(matrix="linear-model"), (), (5,)), 0, 5))
    matrix = ensemble.draw_linear_model(head, np.random.default_rng(5))
    np.testing.assert_allclose(found["values"], np.linalg.svd(matrix, compute_uv=False)[::-1] ** 2, atol=1e-12)
    with pytest.raises(ParameterError, match="linear-model"):
        compute(Task(Model("g", head, Plan(matrix="linear-model", method="lanczos"), (), (5,)), 0, 5))


def test_rows_are_of_the_same_matrix() -> None:
    head = Attention(40, 10, 0.7)
    plan = Plan(statistics=("rows", "spectrum"))
    rows = compute(Task(Model("g", head, plan, (), (5,)), 0, 5))["rows"]
    attention = head.sample(5)
    for row, values in ((1, (attention**2).sum(axis=1)), (3, attention.max(axis=1))):
        np.testing.assert_allclose(rows[row], [values.mean(), values.std(), np.median(values)], rtol=1e-9)


def test_top_and_quantiles_of_the_lanczos_route() -> None:
    head = Attention(300, 100, 0.7)
    plan = Plan(method="lanczos", statistics=("spectrum", "top"), top=3)
    found = compute(Task(Model("g", head, plan, (), (5,)), 0, 5))
    exact = head.spectrum(5)
    np.testing.assert_allclose(found["top"], exact[::-1][:3], rtol=1e-6)
    assert found["values"].shape == (300,)
    assert found["error"].shape == (1,)
    assert np.abs(found["values"] - exact).mean() < 0.1 * exact.mean()


def test_blas_threads_are_those_of_the_plan_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def threads() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    seen = []
    monkeypatch.setattr(execution, "_computed", lambda task: seen.append(threads()) or {})
    before = threads()
    for count in (2, 1):
        compute(Task(Model("g", Attention(8, 4), Plan(threads=count), (), (5,)), 0, 5))
    assert seen == [{2}, {1}]
    assert threads() == before


# -- runs -------------------------------------------------------------------------------------------


def test_bytes_do_not_depend_on_jobs_and_a_second_run_computes_nothing(tmp_path: Path) -> None:
    campaign = make_campaign()
    told: list[tuple[int, int, str]] = []
    one = run(campaign, tmp_path / "one", progress=lambda *now: told.append(now))
    two = run(campaign, tmp_path / "two", jobs=2)
    assert (one.total, one.known, one.computed, one.missing, one.failures) == (8, 0, 8, 0, ())
    assert two.computed == 8
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert [now[:2] for now in told] == [(done, 8) for done in range(9)]
    assert {now[2] for now in told} == {"", *(model.title for model in campaign.models)}
    again = run(campaign, tmp_path / "two", jobs=2)
    assert (again.known, again.computed, again.damaged) == (8, 0, 0)
    head, seed = campaign.models[0].head, campaign.models[0].seeds[0]
    stored = Store(tmp_path / "one").get(campaign.tasks()[0].key)
    assert stored is not None
    np.testing.assert_allclose(stored["values"], head.spectrum(seed), rtol=0, atol=1e-13)


def test_damaged_draws_are_computed_again(tmp_path: Path) -> None:
    campaign = make_campaign()
    run(campaign, tmp_path)
    clean, store = contents(tmp_path), Store(tmp_path)
    paths = [store.path(task.key) for task in campaign.tasks()]
    whole = paths[1].read_bytes()
    paths[0].write_bytes(b"")
    paths[1].write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    paths[2].write_bytes(whole)
    paths[3].unlink()
    again = run(campaign, tmp_path)
    assert (again.known, again.computed, again.damaged) == (4, 4, 3)
    assert contents(tmp_path) == clean


SLOW = """
import time
plain = execution._computed
def slow(task):
    time.sleep(0.05)
    return plain(task)
execution._computed = slow
"""


@pytest.mark.parametrize("jobs", [1, 2])
def test_killed_runs_lose_nothing_and_leave_no_workers(  # type: ignore[no-untyped-def]
    clean: dict[str, bytes], launch, wait_until, tmp_path: Path, jobs: int
) -> None:
    folder = tmp_path / "out"
    process = launch((SLOW if jobs == 1 else "") + f"run(make_campaign((24, 400), 25), {str(folder)!r}, jobs={jobs})")
    wait_until(lambda: len(contents(folder)) >= 5)
    workers = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(timeout=10)
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert alive == []
    done = len(contents(folder))
    assert 5 <= done < 50
    summary = run(make_campaign((24, 400), 25), folder)
    assert (summary.known, summary.computed) == (done, 50 - done)
    assert contents(folder) == clean


@pytest.mark.parametrize("jobs", [1, 2])
def test_control_c_stops_the_workers_and_keeps_what_is_done(  # type: ignore[no-untyped-def]
    launch, wait_until, tmp_path: Path, jobs: int
) -> None:
    process = launch(
        (SLOW if jobs == 1 else "")
        + f"""
try:
    run(make_campaign((24, 400), 60), {str(tmp_path / "out")!r}, jobs={jobs})
except CampaignInterrupted as stop:
    print(stop.summary.computed, stop.summary.missing, stop.summary.interrupted, stop)
"""
    )
    wait_until(lambda: len(contents(tmp_path / "out")) >= 5)
    workers = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: workers get it, too
    output, errors = process.communicate(timeout=20)
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert alive == []
    assert errors == ""
    done = len(contents(tmp_path / "out"))
    assert output == (
        f"{done} {120 - done} True interrupted after {done} of 120 draws, which are stored; the same command goes on "
        "from there\n"
    )


def test_a_worker_that_is_killed_is_replaced(  # type: ignore[no-untyped-def]
    clean: dict[str, bytes], launch, wait_until, tmp_path: Path
) -> None:
    process = launch(f"print(run(make_campaign((24, 400), 25), {str(tmp_path / 'out')!r}, jobs=2).computed)")
    wait_until(lambda: len(contents(tmp_path / "out")) >= 5)
    workers = [
        child for child in psutil.Process(process.pid).children(recursive=True) if "loky" in " ".join(child.cmdline())
    ]
    os.kill(workers[-1].pid, signal.SIGKILL)
    output, errors = process.communicate(timeout=30)
    assert (output, errors) == ("50\n", "")
    assert contents(tmp_path / "out") == clean


def test_workers_that_keep_dying_are_an_error(launch, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    process = launch(f"""
def deadly(task, parent=None):
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
execution._attempt = deadly
execution.RESTARTS = 1
try:
    run(make_campaign(), {str(tmp_path)!r}, jobs=2)
except Exception as error:
    print(type(error).__name__, error)
""")
    output, _ = process.communicate(timeout=40)
    assert output.startswith("ExecutionError jobs = 2: worker processes were ended by the system 2 times in a row")


def test_two_runs_at_once_share_one_store(launch, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    text = SLOW + f"s = run(make_campaign((24, 40), 12), {str(tmp_path / 'out')!r}); print(s.known, s.computed)"
    processes = [launch(text) for _ in range(2)]
    counts = []
    for process in processes:
        output, errors = process.communicate(timeout=40)
        assert errors == ""
        counts.append([int(word) for word in output.split()])
    assert all(sum(count) == 24 for count in counts)
    assert 24 <= sum(computed for _, computed in counts) < 48  # at random they seldom make the same draw
    run(make_campaign((24, 40), 12), tmp_path / "clean")
    assert contents(tmp_path / "out") == contents(tmp_path / "clean")


def test_full_disk_stops_the_run_and_keeps_what_is_done(launch, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    process = launch(f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # more than 40 numbers with their header do not fit
execution._shuffled = lambda tasks: tasks
try:
    run(make_campaign((24, 400), 3), {str(tmp_path)!r})
except Exception as error:
    print(type(error).__name__, error)
""")
    output, errors = process.communicate(timeout=30)
    assert errors == ""
    assert output.startswith("StorageError cannot write: ")
    assert "File too large" in output
    assert len(contents(tmp_path)) == 3
    assert list(tmp_path.rglob("*.tmp")) == []
    assert run(make_campaign((24, 400), 3), tmp_path).known == 3


def test_disk_full_among_workers(small_campaign, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    put = Store.put

    def full(store: Store, *arguments: object) -> None:
        if len(store.keys()) >= 3:
            raise StorageError("disk full")
        put(store, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "put", full)
    with pytest.raises(StorageError, match="disk full"):
        run(small_campaign(draws=20), tmp_path, jobs=2)
    monkeypatch.undo()
    assert run(small_campaign(draws=20), tmp_path).known == 3


def test_a_draw_that_fails_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    x = sympy.Symbol("x")
    bad = Model("bad", Attention(4, 4, 2.0, keys=2, score=sympy.Heaviside(x - 1, 0)), Plan(), (), tuple(range(4)))
    good = Model("good", Attention(8, 4, 0.5), Plan(), (), (1, 2))
    for jobs in (1, 2):
        summary = run(campaign_of(bad, good), tmp_path, jobs=jobs)
        assert summary.missing == len(summary.failures) > 0
        assert all(failure.message.startswith("CertificationError: a row of f") for failure in summary.failures)
        assert {failure.model for failure in summary.failures} == {bad.title}
    assert summary.computed == 0


def test_a_defect_is_no_failed_draw(small_campaign, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    def defect(task: Task) -> None:
        raise NameError("a defect")

    monkeypatch.setattr(execution, "_computed", defect)
    with pytest.raises(NameError, match="a defect"):
        run(small_campaign(), tmp_path)


def test_what_is_sent_to_workers_does_not_grow_with_the_number_of_draws(small_campaign) -> None:  # type: ignore[no-untyped-def]
    few, many = (small_campaign(draws=draws).tasks()[0] for draws in (1, 1000))
    sizes = [len(pickle.dumps(execution._sent(task))) for task in (few, many)]
    assert sizes[0] == sizes[1] < 2000
    assert execution._sent(many).key == many.key


# -- memory -----------------------------------------------------------------------------------------


def test_a_draw_that_does_not_fit_is_refused_before_any_starts(small_campaign, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ParameterError, match=r"memory must be at least .* GB for one draw of group \(24 tokens"):
        run(small_campaign(), tmp_path, memory=1000)
    assert Store(tmp_path).keys() == []
    with pytest.raises(ParameterError, match="jobs must be"):
        run(small_campaign(), tmp_path, jobs=0)
    with pytest.raises(ParameterError, match="memory must be"):
        run(small_campaign(), tmp_path, memory=0)


def test_large_draws_run_fewer_at_a_time(small_campaign, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(execution, "memory_needed", lambda model: 100 * model.head.tokens)
    tasks = small_campaign(sizes=(10, 20, 60), draws=2).tasks()
    phases = execution._phases(tasks, 4, 6000)
    assert [(workers, {task.model.head.tokens for task in phase}) for workers, phase in phases] == [
        (1, {60}), (3, {20}), (4, {10})
    ]  # fmt: skip
    with pytest.raises(ParameterError, match="60 tokens"):
        execution._phases(tasks, 4, 5999)


def test_limits_of_control_groups(tmp_path: Path) -> None:
    groups, mount = tmp_path / "cgroup", tmp_path / "fs"
    groups.write_text("12:cpu,memory:/a\n3:pids:/a\n0::/outer/inner\n")
    for folder, files in {
        "outer": {"memory.max": "1000", "memory.current": "700", "memory.stat": "anon 1\ninactive_file 50"},
        "outer/inner": {"memory.max": "max", "memory.current": "600"},
        "memory/a": {"memory.limit_in_bytes": "500", "memory.usage_in_bytes": "600"},
    }.items():
        (mount / folder).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (mount / folder / name).write_text(text + "\n")
    assert sorted(memory._left_by_groups(groups, mount)) == [0, 350]
    assert memory._left_by_groups(tmp_path / "none", mount) == []
    assert 0 < memory.available_memory() <= psutil.virtual_memory().total


def test_what_is_available_is_no_parameter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody gave a limit, so that none is to be raised."""
    monkeypatch.setattr(execution, "available_memory", lambda: 1000)
    with pytest.raises(ParameterError, match=r"^one draw of group \(24 tokens.* does not fit .*lanczos"):
        run(make_campaign(), tmp_path)
    with pytest.raises(ParameterError, match=r"take fewer tokens$"):
        run(make_campaign(method="lanczos"), tmp_path)


# -- Dask that is not there -------------------------------------------------------------------------


def test_dask_that_is_not_there(small_campaign, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ParameterError, match=r"pip install 'gequiv\[dask\]'"):
        run(small_campaign(), tmp_path, dask="tcp://127.0.0.1:1")


@pytest.mark.parametrize("address", ["nonsense", "http://127.0.0.1:80", "x://", "tcp://127.0.0.1", ""])
def test_addresses_that_are_none(tmp_path: Path, address: str) -> None:
    with pytest.raises(ParameterError, match="dask must be the address of a scheduler"):
        run(make_campaign(), tmp_path / "out", dask=address)
    assert not (tmp_path / "out").exists()


def test_unknown_folder(small_campaign, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputFileError, match="name a new or an empty one"):
        run(small_campaign(), tmp_path)
    assert os.listdir(tmp_path) == ["thesis.tex"]
