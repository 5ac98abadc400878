"""Small campaigns, built without a file."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gequiv.attention import Attention
from gequiv.simulation.campaign.model import Campaign, Model, Plan, spawned_seed

ROOT = Path(__file__).resolve().parents[3]


def make_campaign(
    sizes: tuple[int, ...] = (24, 40), draws: int = 4, source: str = "a = 1\n", **plan: object
) -> Campaign:
    """Heads of these numbers of tokens, `draws` of each."""
    models = []
    for tokens in sizes:
        model = Model("group", Attention(tokens, tokens // 2, 0.5), Plan(**plan), ("finite",), ())  # type: ignore[arg-type]
        seeds = tuple(spawned_seed(0, model.identity, index) for index in range(draws))
        models.append(Model(model.group, model.head, model.plan, model.laws, seeds))
    return Campaign("test", "", "", 0, tuple(models), (), source)


@pytest.fixture
def small_campaign() -> Callable[..., Campaign]:
    """`make_campaign`."""
    return make_campaign


PREAMBLE = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(Path(__file__).parent)!r}]
from pathlib import Path
from conftest import make_campaign
from gequiv.simulation.campaign import execution
from gequiv.simulation.campaign.execution import CampaignInterrupted, run
from gequiv.simulation.campaign.store import Store
"""


@pytest.fixture
def launch() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Run Python text, or Python with other arguments; the process ends with the test, as does what it started."""
    started = []

    def begin(text: str, *command: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *(command or ("-c", PREAMBLE + text))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with process:
            if process.stdout is not None and not process.stdout.closed:
                print(*process.communicate(timeout=20))  # noqa: T201  # shown where the test fails


def wait_until(condition: Callable[[], object], seconds: float = 30) -> None:
    """Wait for something to come true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


@pytest.fixture(name="wait_until")
def wait_until_fixture() -> Callable[..., None]:
    """`wait_until`."""
    return wait_until


def contents(folder: Path) -> dict[str, bytes]:
    """Every draw's file, byte for byte."""
    return {path.name: path.read_bytes() for path in folder.glob("draws/*/*.draw")}


@pytest.fixture(name="contents")
def contents_fixture() -> Callable[[Path], dict[str, bytes]]:
    """`contents`."""
    return contents
