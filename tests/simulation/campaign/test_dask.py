"""A scheduler and two worker processes on this machine, one of which is killed half-way."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from gequiv.simulation.campaign.execution import run

pytest.importorskip("distributed")

ON_DASK = """
import json
from gequiv.errors import GequivError
if __name__ == "__main__":
    try:
        summary = run(make_campaign((24, 300), {draws}), {folder!r}, dask={address!r})
        print(json.dumps([summary.computed, summary.missing, [f.message for f in summary.failures]]))
    except GequivError as error:
        print(type(error).__name__, error)
"""


@pytest.fixture
def scheduler(launch, wait_until, tmp_path: Path) -> str:  # type: ignore[no-untyped-def]
    """Address of a scheduler on the loopback interface."""
    file = tmp_path / "scheduler.json"
    options = ("--host", "tcp://127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
    launch("", "-m", "distributed.cli.dask_scheduler", *options)

    def address() -> str:
        try:
            return str(json.loads(file.read_text())["address"])
        except (OSError, ValueError, KeyError):
            return ""

    wait_until(address)
    return address()


WORKER = ("--nworkers", "1", "--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1", "--no-nanny")


def test_a_worker_killed_half_way_changes_nothing(  # type: ignore[no-untyped-def]
    scheduler: str, small_campaign, contents, launch, wait_until, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    workers = [launch("", "-m", "distributed.cli.dask_worker", scheduler, *WORKER) for _ in range(2)]
    process = launch(ON_DASK.format(draws=40, folder=str(folder), address=scheduler))
    wait_until(lambda: len(contents(folder)) >= 12)
    os.kill(workers[1].pid, signal.SIGKILL)
    assert len(contents(folder)) < 80
    output, errors = process.communicate(timeout=60)
    assert "Traceback" not in errors
    assert json.loads(output) == [80, 0, []]
    run(small_campaign(sizes=(24, 300), draws=40), tmp_path / "clean")
    assert contents(folder) == contents(tmp_path / "clean")


def test_no_scheduler_and_no_workers(scheduler: str, launch, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    texts = [
        ON_DASK.format(draws=2, folder=str(tmp_path / "out"), address=address)
        for address in (scheduler, "tcp://127.0.0.1:1")
    ]
    output, _ = launch("execution.CONNECTING = 1\n" + "".join(texts)).communicate(timeout=60)
    first, second = output.splitlines()
    assert first.startswith("ExecutionError ")
    assert "has no workers" in first
    assert second.startswith("ExecutionError no Dask scheduler could be reached at 'tcp://127.0.0.1:1'")
