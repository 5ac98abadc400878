"""What the README and the help promise: the commands exist, the example runs, and CI runs the README's own line."""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer

from gequiv import inspect_attention

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def shell_lines():
    return [line for block in blocks("sh") for line in block.splitlines()]


def help_lines():
    from gequiv.cli.app import predict, validate

    lines = [line.strip() for command in (predict, validate) for line in (command.__doc__ or "").splitlines()]
    bare = [re.sub(r"\[/?cyan\]", "", line) for line in lines]
    return [line for line in bare if line.startswith("gequiv ")]


def test_two_lines_that_set_everything_up():
    setups = [line for line in shell_lines() if line.startswith("python3 -m venv ")]
    assert len(setups) == 2
    assert [line.split(" && ")[-1] for line in setups] == [
        ".venv/bin/gequiv validate",
        ".venv-test/bin/python -m pytest",
    ]
    for line in setups:
        environment = line.split()[3]
        assert all(f"{environment}/bin/" in step for step in line.split(" && ")[1:])


def test_continuous_integration_takes_the_line_from_the_readme():
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & stat.S_IXUSR
    text = script.read_text(encoding="utf-8")
    (pattern,) = re.findall(r"grep -E '([^']+)' README\.md", text)
    found = [line for line in README.splitlines() if re.search(pattern, line)]
    assert len(found) == 1
    assert found[0] in shell_lines()
    assert text.rstrip().splitlines()[-1].endswith('"$test_line"')


def test_pictures_are_there():
    for path in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README):
        assert (ROOT / path).read_bytes().startswith(b"\x89PNG")


def run_example(example):
    """The numbers that it prints on lines of their own."""
    assert len(example.strip().splitlines()) <= 11
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [float(line) for line in done.stdout.splitlines() if re.fullmatch(r"[\d.e-]+", line)]


def test_python_examples_run():
    limit, finite, convolutions, expression, large, inspected = blocks("python")
    distance, believed = run_example(limit)
    assert distance < 0.02  # the README says about 0.01
    assert believed == pytest.approx(0.23, abs=0.01)
    masked, theorem, distance = run_example(finite)
    assert masked < 0.04
    assert theorem == pytest.approx(0.27, abs=0.02)
    assert distance < 0.01  # the README says about 0.005
    distance, mass_error = run_example(convolutions)
    assert distance < 0.01
    assert mass_error < 1e-9
    (distance,) = run_example(expression)
    assert distance < 0.01
    (distance,) = run_example(large)
    assert distance < 0.01  # the README says about 0.003
    assert run_example(inspected) == [2.0]  # the two heads that were drawn


def test_there_are_examples():
    assert len(help_lines()) >= 8
    assert sum(line.startswith("gequiv ") for line in shell_lines()) >= 4


def test_campaign_example_is_understood():
    from gequiv.simulation.campaign.files import parse_campaign

    (text,) = blocks("toml")
    campaign = parse_campaign(text)
    assert len(campaign.models) == 12
    assert len(campaign.claims) == 1


def test_campaign_commands_run(cli, tmp_path, monkeypatch):
    model = 'name = "tiny"\ntokens = 24\nhead_dim = 12\nbeta = 0.5\ndraws = 2\nlaws = ["marchenko-pastur"]\n'
    lines = [line for line in shell_lines() if line.startswith("gequiv campaign ")]
    assert {line.split()[2] for line in lines} >= {"run", "status", "report"}
    (tmp_path / "validation").mkdir()
    monkeypatch.chdir(tmp_path)
    for line in lines:
        for word in line.split():
            if word.endswith(".toml"):
                assert (ROOT / word).exists()
                (tmp_path / word).write_text(f"version = 1\n[[models]]\n{model}", encoding="utf-8")
        outcome = cli(*shlex.split(line.replace("--jobs 2", "--jobs 1"))[1:])
        assert (outcome.code, outcome.err) == (0, ""), line


def test_inspection_commands_run(cli, tmp_path, monkeypatch):
    lines = [line for line in shell_lines() if line.startswith("gequiv inspect ")]
    assert len(lines) >= 3
    monkeypatch.chdir(tmp_path)
    np.save("attention.npy", np.full((1, 24, 24), 1 / 24))
    report = inspect_attention("attention.npy")
    monkeypatch.setattr("gequiv.cli.inspect._of_model", lambda *_: report)
    for line in lines:
        outcome = cli(*shlex.split(line)[1:])
        assert (outcome.code, outcome.err) == (0, ""), line


PLAIN_LINES = [line for line in shell_lines() if re.match("gequiv (?!campaign |inspect )", line)]


@pytest.mark.parametrize("line", PLAIN_LINES + help_lines())
def test_every_example_is_understood(cli, monkeypatch, line):
    validated = []

    def pretend(head, samples, rng, **_):
        validated.append((head, samples, rng))
        raise typer.Exit(0)

    monkeypatch.setattr("gequiv.simulation.validate", pretend)
    monkeypatch.setattr("gequiv.simulation.choose_law", lambda head, wish, method: wish)
    outcome = cli(*shlex.split(line)[1:])
    assert (outcome.code, outcome.err) == (0, "")
    assert bool(validated) == line.startswith("gequiv validate")
