"""The command as the shell sees it: a process of its own, and the runner that comes with typer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from typer.testing import CliRunner

import gequiv
from gequiv.cli.app import app

ROOT = Path(__file__).resolve().parents[2]


def test_the_documented_command(process):
    outcome = process(
        "validate", "--tokens", "400", "--head-dim", "200", "--beta", "0.5", "--samples", "4", "--seed", "0", "--json"
    )
    assert (outcome.code, outcome.err) == (0, "")
    told = json.loads(outcome.out)
    assert {"ks", "wasserstein", "passed", "support", "mass"} <= set(told)
    assert told["passed"] is True


def test_failed_verdict(process):
    outcome = process("validate", "--tokens", "100", "--head-dim", "8", "--samples", "2", "--law", "limit", "--json")
    assert (outcome.code, outcome.err) == (1, "")
    assert json.loads(outcome.out)["passed"] is False


def test_bad_input(process):
    for arguments in (["validate", "--beta", "abc"], ["validate", "--tokens", "1"], ["predict", "--points", "0"]):
        outcome = process(*arguments)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith("error: ")
        assert outcome.err.count("\n") == 1


def test_help_is_fast_and_light(process):
    began = time.perf_counter()
    outcome = process("--help")
    assert time.perf_counter() - began < 10  # alone on a machine it takes about half a second
    assert outcome.code == 0
    assert "validate" in outcome.out
    assert "predict" in outcome.out


def test_nothing_heavy_is_imported_before_it_is_needed():
    code = (
        "import sys, gequiv.cli.app, gequiv.plotting\n"
        "heavy = {'matplotlib', 'sympy', 'mpmath', 'joblib', 'scipy.integrate', 'scipy.linalg'} & set(sys.modules)\n"
        "sys.exit(' '.join(sorted(heavy)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_stops_early():
    command = f"{sys.executable} -m gequiv predict --format csv --points 20000 | head -n 1"
    done = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("# gequiv")
    assert done.stderr == ""


def test_typer_runner():
    runner = CliRunner()
    shown = runner.invoke(app, ["--version"])
    assert (shown.exit_code, shown.stdout) == (0, f"gequiv {gequiv.__version__}\n")
    assert runner.invoke(app, ["predict", "--json", "--points", "3"]).exit_code == 0
    assert runner.invoke(app, ["predict", "--beta", "0"]).exit_code == 2
    alone = runner.invoke(app, [])
    assert alone.exit_code == 0
    assert "validate" in alone.stdout


def test_help_of_each_command(cli):
    for command in ("predict", "validate"):
        outcome = cli(command, "--help")
        assert outcome.code == 0
        options = "tokens head-dim beta keys width covariance mask alibi law method"
        for word in ("Examples", *(f"--{name}" for name in options.split())):
            assert word in outcome.out
