"""``gequiv campaign``: run, status, report, clean; what they say and their exit codes."""

from __future__ import annotations

import json
import shutil

import pytest

from gequiv.errors import ExecutionError, StorageError

TINY = """
version = 1
title = "Tiny [bold]campaign[/bold]"
[[grid]]
name = "small"
tokens = [40, 60]
head_dim = "tokens/2"
beta = [0.5, 1.0]
draws = 2
laws = ["limit", "marchenko-pastur"]
"""
HELD = '[[claims]]\nkind = "agreement"\nlaw = "limit"\ntolerance = 0.9\n'
FAILED = '[[claims]]\nkind = "disagreement"\nlaw = "limit"\nat_least = 0.9\n'


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(TINY + HELD, encoding="utf-8")
    return path


def draw_files(folder):
    return sorted(folder.rglob("*.draw"))


def test_help_without_a_command(cli):
    outcome = cli("campaign")
    assert (outcome.code, outcome.err) == (0, "")
    for word in ("run", "status", "report", "clean", "campaign run validation/quick.toml"):
        assert word in outcome.out


def test_run_twice(cli, tiny, tmp_path):
    outcome = cli("campaign", "run", tiny, "--out", "out")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("Computed 8 draws, in ")
    before = [path.read_bytes() for path in draw_files(tmp_path / "out")]
    assert len(before) == 8
    outcome = cli("campaign", "run", tiny, "--out", "out")
    assert (outcome.code, outcome.out, outcome.err) == (0, "Nothing to compute: all 8 draws are in out.\n", "")
    assert [path.read_bytes() for path in draw_files(tmp_path / "out")] == before


def test_default_folder_is_named_after_the_file(cli, tiny, tmp_path):
    assert cli("campaign", "run", tiny).code == 0
    assert len(draw_files(tmp_path / "campaigns" / "tiny")) == 8
    assert "8 draws: all there" in cli("campaign", "status", tiny).out


def test_damaged_draw_is_told_and_computed_again(cli, tiny, tmp_path):
    cli("campaign", "run", tiny, "--out", "out")
    first = draw_files(tmp_path / "out")[0]
    whole = first.read_bytes()
    first.write_bytes(whole[:-8])
    told = json.loads(cli("campaign", "status", "out", "--json").out)
    assert (told["draws"], told["there"], told["missing"], told["damaged"]) == (8, 7, 1, 1)
    assert sum(model["there"] for model in told["models"]) == 7
    first.write_bytes(whole[:-8])
    outcome = cli("campaign", "run", tiny, "--out", "out")
    assert "1 stored result found damaged and computed again." in outcome.out
    assert "Computed 1 draw, 7 were there" in outcome.out
    assert first.read_bytes() == whole


def test_status_before_and_of_another_campaign(cli, tiny, tmp_path):
    outcome = cli("campaign", "status", tiny, "--out", "out")
    assert outcome.code == 0
    assert "8 draws: 0 there, 8 missing in out" in outcome.out
    assert "Tiny [bold]campaign[/bold]" in outcome.out  # not markup
    assert not (tmp_path / "out").exists()
    cli("campaign", "run", tiny, "--out", "out")
    tiny.write_text(TINY.replace("[40, 60]", "[40, 50]"), encoding="utf-8")
    outcome = cli("campaign", "status", tiny, "--out", "out")
    assert "8 draws: 4 there, 4 missing" in outcome.out
    assert "4 other draws" in outcome.out
    assert cli("campaign", "status", "out", "--out", "elsewhere").code == 2


def test_many_models_are_counted_by_group(cli, tiny):
    betas = ", ".join(f"{0.5 + k / 100:.2f}" for k in range(21))
    tiny.write_text(TINY.replace("[0.5, 1.0]", f"[{betas}]"), encoding="utf-8")
    outcome = cli("campaign", "status", tiny)
    assert "42 models" in outcome.out
    assert "40 tokens" not in outcome.out


def test_clean(cli, tiny, tmp_path):
    cli("campaign", "run", tiny, "--out", "out")
    assert cli("campaign", "clean", "out").out == "Nothing to remove.\n"
    tiny.write_text(TINY.replace("[40, 60]", "40"), encoding="utf-8")
    assert cli("campaign", "run", tiny, "--out", "out").out.startswith("Nothing to compute: all 4")
    assert cli("campaign", "clean", "out").out.startswith("Removed 4 draws: ")
    assert len(draw_files(tmp_path / "out")) == 4
    outcome = cli("campaign", "clean", "out", "--all")
    assert outcome.code == 2
    assert "removes all 4 draws: say --yes" in outcome.err
    assert cli("campaign", "clean", "out", "--all", "--yes").out.startswith("Removed 4 draws: ")
    assert draw_files(tmp_path) == []


def test_interrupt_says_how_far_it_came(cli, tiny, monkeypatch):
    from gequiv.attention import ensemble

    draw, calls = ensemble.draw_attention, []

    def stop_at_the_fourth(*arguments):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return draw(*arguments)

    monkeypatch.setattr(ensemble, "draw_attention", stop_at_the_fourth)
    outcome = cli("campaign", "run", tiny, "--out", "out")
    assert outcome.code == 130
    assert outcome.err == "interrupted: 3 of 8 draws are stored in 'out'; the same command goes on there\n"
    assert "Computed 5 draws, 3 were there" in cli("campaign", "run", tiny, "--out", "out").out


def test_failed_draw_is_told(cli, tiny, monkeypatch):
    from gequiv.attention import ensemble
    from gequiv.errors import CertificationError

    draw = ensemble.draw_attention

    def refuse(head, *arguments):
        if head.beta == 1.0:
            raise CertificationError("no luck")
        return draw(head, *arguments)

    monkeypatch.setattr(ensemble, "draw_attention", refuse)
    outcome = cli("campaign", "run", tiny, "--out", "out")
    assert outcome.code == 1
    assert "Computed 4 draws" in outcome.out
    lines = outcome.err.splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("failed: ")
    assert "no luck" in lines[0]
    assert lines[-1] == "4 draws failed; the same command tries them again"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "absent.toml"), "cannot read 'absent.toml'"),
        (("run", "tiny.toml", "--memory", "0"), "--memory must be a number of GB above 0"),
        (("run", "tiny.toml", "--memory", "0.000001", "--out", "out"), "--memory must be at least"),
        (("run", "tiny.toml", "--jobs", "0"), "--jobs"),
        (("status", "absent"), "cannot read 'absent'"),
        (("report", "absent"), "'absent' is not a folder"),
        (("report", "."), "'.'"),
        (("clean", "tiny.toml"), "'tiny.toml' is not a folder"),
        (("clean", "."), "'.'"),
    ],
)
def test_bad_input_is_one_line(cli, tiny, arguments, message):
    outcome = cli("campaign", *arguments)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert outcome.out == ""


def test_error_in_the_file_points_at_the_key(cli, tiny):
    tiny.write_text(TINY.replace("beta = [0.5, 1.0]", "beta = [0.5, -1.0]"), encoding="utf-8")
    outcome = cli("campaign", "run", tiny)
    assert outcome.code == 2
    assert "grid[0].beta[1] must be" in outcome.err


def test_keys_of_the_file_are_no_options(cli, tiny):
    tiny.write_text("tokens = 5\n" + TINY, encoding="utf-8")
    outcome = cli("campaign", "run", tiny.name)
    assert outcome.code == 2
    assert outcome.err.startswith("error: 'tiny.toml': tokens is no key of a campaign file")


@pytest.mark.parametrize(("error", "code"), [(ExecutionError("jobs = 2: gone"), 4), (StorageError("disk full"), 2)])
def test_lost_workers_and_full_disks_are_one_line(cli, tiny, monkeypatch, error, code):
    from gequiv.simulation.campaign import execution

    def broken(*_, **__):
        raise error

    monkeypatch.setattr(execution, "run", broken)
    outcome = cli("campaign", "run", tiny)
    words = str(error).replace("jobs", "--jobs")
    assert (outcome.code, outcome.out, outcome.err) == (code, "", f"error: {words}\n")


def test_dry_run_writes_nothing(cli, tiny, tmp_path):
    outcome = cli("campaign", "run", tiny, "--dry-run", "--jobs", "2")
    assert (outcome.code, outcome.err) == (0, "")
    for word in ("40 tokens", "60 tokens", "a draw", "memory", "8 draws of 4 models", "With 2 jobs: about"):
        assert word in outcome.out
    assert list(tmp_path.iterdir()) == [tiny]


def test_dry_run_of_what_is_there(cli, tiny):
    cli("campaign", "run", tiny)
    outcome = cli("campaign", "run", tiny, "--dry-run")
    assert outcome.out == "8 draws of 4 models, of which 8 are in campaigns/tiny\nNothing to compute.\n"


def test_report(cli, tiny, tmp_path):
    tiny.write_text(TINY.replace("draws = 2", "draws = 3") + HELD, encoding="utf-8")  # wide intervals of few draws
    cli("campaign", "run", tiny, "--out", "out")
    outcome = cli("campaign", "report", "out")
    assert (outcome.code, outcome.err) == (0, "")
    for word in ("✓ held", "KS to the limit law is at most 0.9", "Report: out/report.html"):
        assert word in outcome.out
    assert "Not complete" not in outcome.out
    written = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir() if path.is_file()}
    assert written["report.html"].startswith(b"<!DOCTYPE html>")
    head, *rows = written["results.csv"].decode().splitlines()
    assert {"tokens", "head_dim", "beta", "mask", "seed", "law", "ks", "wasserstein"} <= set(head.split(","))
    assert len(rows) == 12 * 2
    shutil.rmtree(tmp_path / "out" / "comparisons")
    (tmp_path / "out").rename(tmp_path / "moved")
    cli("campaign", "report", "moved", "--jobs", "2")
    assert {path.name: path.read_bytes() for path in (tmp_path / "moved").iterdir() if path.is_file()} == written
    assert "Nothing to remove." in cli("campaign", "clean", "moved").out
    draw_files(tmp_path / "moved")[0].unlink()
    assert cli("campaign", "clean", "moved").out.startswith("Removed 1 comparison: ")


def test_report_of_a_failed_claim(cli, tiny):
    tiny.write_text(TINY.replace("draws = 2", "draws = 3") + HELD + FAILED, encoding="utf-8")
    cli("campaign", "run", tiny, "--out", "out")
    outcome = cli("campaign", "report", "out", "--json")
    assert (outcome.code, outcome.err) == (1, "")
    told = json.loads(outcome.out)
    assert (told["passed"], told["draws"], told["missing"]) == (False, 12, 0)
    assert [claim["verdict"] for claim in told["claims"]] == ["held"] * 4 + ["failed"] * 4


def test_report_of_what_is_there(cli, tiny, tmp_path):
    cli("campaign", "run", tiny, "--out", "out")
    for path in draw_files(tmp_path / "out")[:3]:
        path.unlink()
    outcome = cli("campaign", "report", "out")
    assert "Not complete: 3 of 8 draws missing; the report is of the rest." in outcome.out
    assert "3 draws are missing" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
