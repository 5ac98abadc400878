"""``gequiv temperature``: what is printed is the library's own numbers."""

from __future__ import annotations

import json
import math

import pytest
import typer

from gequiv.attention.temperature import context_sweep, temperature
from gequiv.cli.errors import BAD_INPUT, NOT_CERTIFIED, OneLineErrors
from gequiv.cli.temperature import temperature as command
from gequiv.errors import CertificationError

app = typer.Typer(cls=OneLineErrors, add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
app.callback()(lambda: None)
app.command("temperature")(command)


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def call(*arguments):
        with pytest.raises(SystemExit) as stop:
            app(["temperature", *map(str, arguments)], prog_name="gequiv")
        captured = capsys.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    return call


def test_json_of_a_property(run):
    code, out, err = run("--tokens", 300, "--head-dim", 150, "--perplexity", 200, "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    found = temperature(300, 150, perplexity=200)
    assert told["temperature"] == {**found.to_dict(), "predicted": found.predicted()}
    assert told["schedules"] == {}


def test_table_of_a_property(run):
    code, out, _ = run("--tokens", 300, "--head-dim", 150, "--mask", "causal", "--linear", 0.05)
    found = temperature(300, 150, linear=0.05, mask="causal")
    assert code == 0
    assert f"{found.beta:.6g}" in out
    assert f"{found.scale:.6g}" in out
    assert f"{found.predicted()['perplexity']:.6g}" in out
    assert "not predicted with a mask" in out


def test_schedules_from_a_wanted_property(run, tmp_path):
    arguments = ["--tokens", 300, "--head-dim", 300, "--normalised-entropy", 0.95, "--schedule", "ssmax, yarn"]
    code, out, err = run(*arguments, "--lengths", "450,300", "--plot", "t.png", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    beta = told["temperature"]["beta"]
    for name in ("ssmax", "yarn"):
        sweep = context_sweep(300, [300, 450], name, beta=beta, reference=300)
        expected = [point.to_dict() for point in sweep]
        assert told["schedules"][name] == expected
    assert told["schedules"]["ssmax"][1]["beta"] == pytest.approx(beta * math.log(450) / math.log(300), rel=1e-14)
    assert (tmp_path / "t.png").stat().st_size > 5000


def test_table_of_a_schedule(run):
    code, out, _ = run("--schedule", "constant", "--head-dim", 150, "--reference", 300, "--beta", 0.7, "--lengths", 300)
    (point,) = context_sweep(150, [300], "constant", beta=0.7, reference=300)
    assert code == 0
    assert "schedule constant, head width 150" in out
    for text in (f"{point.perplexity:.5g}", f"{point.spectrum.effective_rank:.5g}", f"{point.spectrum.second:.4g}"):
        assert text in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "error: exactly one of --entropy, --normalised-entropy, --perplexity, --effective-rank"),
        (["--entropy", 1, "--linear", 0.1], "got --entropy and --linear"),
        (["--entropy", 9], "error: --entropy must be between"),
        (["--normalised-entropy", 1.5], "error: --normalised-entropy must be between"),
        (["--spectral-gap", 2], "error: --spectral-gap must be a real number between 0 and 1"),
        (["--spectral-gap", 0.9, "--mask", "causal"], "error: --mask must be left out with spectral_gap"),
        (["--tokens", 0, "--linear", 0.1], "error: --tokens must be an integer of at least 2"),
        (["--linear", 0.1, "--beta", 1], "error: --beta, --reference and --lengths belong to --schedule or --plot"),
        (["--linear", 0.1, "--beta", 1, "--schedule", "ssmax"], "error: --beta contradicts a wanted property"),
        (["--schedule", "log"], "error: --schedule must be some of constant, sqrt-log"),
        (["--schedule", "ssmax", "--lengths", "1,x"], "error: --lengths must be integers separated by commas"),
        (["--schedule", "ssmax", "--lengths", "1"], "error: --lengths must be an integer of at least 2"),
        (
            ["--schedule", "ssmax", "--reference", 1, "--lengths", "9"],
            "error: --reference must be a finite real number",
        ),
        (["--schedule", "ssmax", "--mask", "causal"], "error: --schedule and --plot are about self-attention"),
        (["--plot", "a.txt"], "error: --plot must end in .png, .pdf or .svg"),
        (["--plot", "a.svg", "--lengths", "300"], "error: --lengths must be at least two with --plot"),
    ],
)
def test_bad_input_is_one_line(run, arguments, message):
    code, out, err = run(*arguments, *([] if "--head-dim" in arguments else ["--head-dim", 64]))
    assert (code, out) == (BAD_INPUT, "")
    assert message in err
    assert err.count("\n") == 1


def test_not_certified(run, monkeypatch):
    def refuse(*_, **__):
        raise CertificationError("try another value")

    monkeypatch.setattr("gequiv.attention.temperature.temperature", refuse)
    code, out, err = run("--entropy", 1)
    assert (code, out, err) == (NOT_CERTIFIED, "", "error: not certified: try another value\n")
