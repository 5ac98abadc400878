"""Running the command line inside the test process, or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Outcome:
    """What a run left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Outcome]:
    """Run ``gequiv`` with these arguments in this process, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: str) -> Outcome:
        from gequiv.cli.app import app

        with pytest.raises(SystemExit) as stop:
            app([str(argument) for argument in arguments], prog_name="gequiv")
        captured = capsys.readouterr()
        return Outcome(int(stop.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., Outcome]:
    """Run ``python -m gequiv`` with these arguments, in an empty directory, with warnings as errors."""

    def run(*arguments: str) -> Outcome:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "gequiv", *map(str, arguments)],
            capture_output=True,
            text=True,
            encoding="utf-8",
            cwd=tmp_path,
            env=environment,
            timeout=120,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run
