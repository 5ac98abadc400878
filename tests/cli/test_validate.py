"""``gequiv validate``: report, verdict, exit code, figure."""

from __future__ import annotations

import json

import pytest

import gequiv
from tests.simulation.heavy_tail import HeavyTail

HELD = ("--tokens", "160", "--head-dim", "80", "--samples", "3", "--tolerance", "0.15")


def strict_json(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_json_is_one_object(cli, tmp_path):
    outcome = cli("validate", *HELD, "--json", "--seed", "5")
    assert (outcome.code, outcome.err) == (0, "")
    told = strict_json(outcome.out)
    assert list(tmp_path.iterdir()) == []  # no figure unless asked for
    assert told["passed"] is True
    assert 0 < told["ks"] < 0.15
    assert told["wasserstein"] > 0
    assert told["mass"] == pytest.approx(1, abs=1e-10)
    head = gequiv.Attention(160, 80, 0.5)
    assert told["law"] == "finite-size"
    assert told["support"] == [list(interval) for interval in head.finite_law().support()]
    assert 0 < told["ks_finite"] == told["ks"] < told["ks_limit"]
    assert told["laws_distance"] > 4 / 160
    assert (told["mask"], told["alibi"]) == (None, None)
    assert [origin for _, _, origin in told["expected_outliers"]] == ["Perron value of A", "column direction"]
    assert told["seed"] == 5
    assert told["version"] == gequiv.__version__
    assert told["attention"]["tokens"] == 160
    assert told["marchenko_pastur"]["ks"] > told["ks"]


def test_numbers_are_the_library_s(cli):
    told = strict_json(cli("validate", *HELD, "--json", "--seed", "2").out)
    result = gequiv.validate(gequiv.Attention(160, 80, 0.5), 3, 2, tolerance=0.15)
    assert told["ks"] == pytest.approx(result.comparison.ks, rel=1e-6)
    assert told["finite_size_bias"] == pytest.approx(result.finite_size_bias, rel=1e-6)
    assert told["verdict"] == result.verdict


def test_seed_repeats_and_changes(cli):
    first, again, other = (
        strict_json(cli("validate", *HELD, "--json", "--seed", seed).out)["comparison"]["ks_per_draw"]
        for seed in ("1", "1", "2")
    )
    assert first == pytest.approx(again, rel=1e-9)
    assert first != pytest.approx(other, rel=1e-3)


def test_table_and_default_figure(cli, tmp_path):
    outcome = cli("validate", *HELD)
    assert (outcome.code, outcome.err) == (0, "")
    words = (
        "attention to the finite-size law",
        "attention to the limit law",
        "finite-size law to the limit law",
        "sampling noise",
        "finite-size bias",
        "solver error",
        "linear model to the limit law",
        "attention to Marchenko–Pastur",
        "Wasserstein-1",
        "moment 4",
        "right edge",
        "expected: column direction",
        "The limit theorem alone: KS",
        "mass",
        "Held",
        "gequiv-validate.png",
    )
    for word in words:
        assert word in outcome.out
    assert "…" not in outcome.out
    assert (tmp_path / "gequiv-validate.png").read_bytes().startswith(b"\x89PNG")


def test_no_plot(cli, tmp_path):
    outcome = cli("validate", *HELD, "--no-plot")
    assert outcome.code == 0
    assert "Figure" not in outcome.out
    assert list(tmp_path.iterdir()) == []


def test_json_with_a_figure(cli, tmp_path):
    told = strict_json(cli("validate", *HELD, "--json", "--plot", "kept.svg").out)
    assert told["plot"] == "kept.svg"
    assert "<svg" in (tmp_path / "kept.svg").read_text(encoding="utf-8")


def test_tall_head_has_its_atom_in_the_report(cli):
    outcome = cli(
        "validate", "--tokens", "200", "--keys", "100", "--head-dim", "80", "--samples", "3", "--tolerance", "0.2"
    )
    assert outcome.code == 0
    assert "atom at 0, weight" in outcome.out


def test_failed_verdict_is_exit_code_one(cli):
    outcome = cli("validate", "--tokens", "150", "--head-dim", "8", "--samples", "3", "--no-plot", "--law", "limit")
    assert (outcome.code, outcome.err) == (1, "")
    assert "Failed" in outcome.out
    assert "head width 8" in outcome.out


def test_one_draw_is_not_enough(cli):
    outcome = cli("validate", *HELD, "--samples", "1", "--no-plot")
    assert outcome.code == 1
    assert "Not enough draws" in outcome.out
    told = strict_json(cli("validate", *HELD, "--samples", "1", "--json").out)
    assert told["passed"] is False
    assert told["sampling_noise"] is None


@pytest.mark.parametrize("as_json", [False, True])
def test_interrupt_reports_what_there_is(cli, monkeypatch, as_json):
    from gequiv.attention import ensemble

    draw, calls = ensemble.draw_attention, []

    def stop_at_the_third(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return draw(*arguments)

    monkeypatch.setattr(ensemble, "draw_attention", stop_at_the_third)
    outcome = cli("validate", *HELD, "--no-plot", *["--json"] * as_json)
    assert outcome.code == 130
    assert outcome.err == "interrupted after 2 of 3 draws; the report is of these\n"
    if as_json:
        told = strict_json(outcome.out)
        assert (told["draws"], told["requested"]) == (2, 3)
    else:
        assert "2 draws of 160 × 160" in outcome.out


def test_interrupt_before_the_first_draw(cli, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("gequiv.attention.ensemble.draw_attention", stop)
    outcome = cli("validate", *HELD, "--no-plot")
    assert (outcome.code, outcome.out.strip()) == (130, "")
    assert outcome.err.strip() == "interrupted"


def test_law_by_name(cli):
    told = [
        strict_json(cli("validate", *HELD, "--json", *arguments).out)
        for arguments in (["--law", "finite"], ["--law", "limit"], ["--method", "curve"])
    ]
    assert [record["law"] for record in told] == ["finite-size", "limit", "limit"]
    assert told[1]["ks"] == told[2]["ks"] == told[0]["ks_limit"]
    assert told[1]["ks_finite"] == told[0]["ks"]
    assert f"The finite-size law: KS {told[1]['finite']['ks_mean']:.3g}." in told[1]["verdict"]


def test_masked_head(cli, monkeypatch, tmp_path):
    monkeypatch.setattr("gequiv.attention.parameters.Attention.finite_law", lambda head, **_: HeavyTail())
    options = ("validate", "--tokens", "60", "--head-dim", "16", "--samples", "2", "--mask", "window:20")
    told = strict_json(cli(*options, "--alibi", "0.1", "--json").out)
    assert (told["mask"], told["alibi"], told["law"]) == ("window:20", 0.1, "finite-size")
    assert (told["ks_limit"], told["laws_distance"]) == (None, None)
    outcome = cli(*options, "--plot", "masked.png")
    assert "√keys (A - Ā)" in outcome.out
    assert "mask window:20" in outcome.out
    assert "linear model to the finite-size law" in outcome.out
    assert "attention to the limit law" not in outcome.out
    assert (tmp_path / "masked.png").read_bytes().startswith(b"\x89PNG")
