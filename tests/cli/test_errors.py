"""Bad input of every kind: exit code 2, one line on standard error that names the option, and no output."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

SMALL = ("--tokens", "40", "--head-dim", "20", "--samples", "2", "--no-plot")


def assert_refused(outcome, *fragments):
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert outcome.err.endswith("\n")
    assert "Traceback" not in outcome.err
    for fragment in fragments:
        assert fragment in outcome.err


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["--beta", "0"], ["--beta", "above 0"]),
        (["--beta", "-1"], ["--beta", "above 0"]),
        (["--beta", "nan"], ["--beta", "nan"]),
        (["--beta", "inf"], ["--beta", "inf"]),
        (["--beta", "abc"], ["--beta"]),
        (["--beta", "27"], ["--beta", "26.64", "gequiv predict --rescaled"]),
        (["--tokens", "1"], ["--tokens", "at least 2"]),
        (["--tokens", "10.5"], ["--tokens"]),
        (["--tokens"], ["--tokens"]),
        (["--head-dim", "0"], ["--head-dim", "at least 1"]),
        (["--keys", "1"], ["--keys", "at least 2"]),
        (["--width", "0"], ["--width", "at least 1"]),
        (["--covariance", "1,2"], ["--covariance", "--width"]),
        (["--width", "10", "--covariance", "1,two"], ["--covariance", "1,two"]),
        (["--width", "10", "--covariance", "1,-2"], ["--covariance", "at least 0"]),
        (["--width", "10", "--covariance", "nan"], ["--covariance", "NaN"]),
        (["--width", "10", "--covariance", "absent.txt"], ["--covariance", "absent.txt"]),
        (["--method", "magic"], ["--method", "curve", "fixed-point"]),
        (["--method", "curve", "--width", "10", "--covariance", "1,2"], ["--method", "fixed-point"]),
        (["--mask", "causel"], ["--mask", '"causal"', "'causel'"]),
        (["--mask", "window:0"], ["--mask", "window:W", "window:0"]),
        (["--mask", "window:9", "--keys", "20"], ["--mask", "row 0"]),
        (["--alibi", "0"], ["--alibi", "above 0"]),
        (["--alibi", "nan"], ["--alibi", "nan"]),
        (["--law", "both"], ["--law", "auto", "finite", "limit"]),
        (["--law", "limit", "--mask", "causal"], ["--law limit", "--mask", "--law finite"]),
        (["--law", "limit", "--alibi", "0.1"], ["--law limit", "--alibi", "--law finite"]),
        (["--law", "finite", "--method", "curve"], ["--method", "left out with --law finite"]),
        (["--mask", "causal", "--method", "curve"], ["--method", "left out with a mask or a bias"]),
        (["--nonsense"], ["--nonsense", "--help"]),
        (["stray"], ["stray", "--help"]),
    ],
)
@pytest.mark.parametrize("command", [["validate", *SMALL], ["predict"]])
def test_bad_head(cli, command, arguments, fragments):
    assert_refused(cli(*command, *arguments), *fragments)


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["--samples", "0"], ["--samples", "at least 1"]),
        (["--samples", "two"], ["--samples"]),
        (["--seed", "-1"], ["--seed"]),
        (["--seed", "x"], ["--seed"]),
        (["--tolerance", "0"], ["--tolerance"]),
        (["--tolerance", "1"], ["--tolerance"]),
        (["--tolerance", "nan"], ["--tolerance"]),
        (["--plot", "figure.png"], ["--plot", "--no-plot"]),
        (["--width", "10", "--covariance", "1,2,3"], ["--covariance", "3 eigenvalues", "10"]),
    ],
)
def test_bad_validation(cli, arguments, fragments):
    assert_refused(cli("validate", *SMALL, *arguments), *fragments)


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["--points", "0"], ["--points", "at least 1"]),
        (["--points", "many"], ["--points"]),
        (["--format", "xml"], ["--format", "csv"]),
        (["--format", "npz"], ["--format", "--output"]),
        (["--json", "--format", "csv"], ["--json", "--format"]),
        (["--rescaled", "--law", "finite"], ["--rescaled", "left out with --law finite"]),
        (["--rescaled", "--alibi", "0.1"], ["--rescaled", "left out with a mask or a bias"]),
    ],
)
def test_bad_prediction(cli, arguments, fragments):
    assert_refused(cli("predict", *arguments), *fragments)


@pytest.mark.parametrize("path", ["absent/file.png", ".", "taken.png/file.png", "figure.gif", "figure"])
@pytest.mark.parametrize("command", ["predict", "validate"])
def test_unwritable_picture(cli, tmp_path, monkeypatch, command, path):
    (tmp_path / "taken.png").write_text("a file, not a directory")

    def long_work(*_, **__):
        raise AssertionError("the work began before the file was checked")

    monkeypatch.setattr("gequiv.attention.parameters.Attention.limit_law", long_work)
    assert_refused(cli(command, "--plot", path), "--plot", path)


@pytest.mark.parametrize("path", ["absent/law.csv", ".", "taken/law.npz"])
def test_unwritable_output(cli, tmp_path, path):
    (tmp_path / "taken").write_text("a file, not a directory")
    assert_refused(cli("predict", "--output", path), "--output", path)


def test_checking_a_file_leaves_no_trace(cli, tmp_path):
    (tmp_path / "kept.csv").write_text("kept")
    assert_refused(cli("predict", "--beta", "0", "--output", "new.csv"))
    assert_refused(cli("predict", "--beta", "0", "--output", "kept.csv"))
    assert not (tmp_path / "new.csv").exists()
    assert (tmp_path / "kept.csv").read_text() == "kept"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_device_that_fills_up(cli):
    assert_refused(cli("predict", "--format", "csv", "--output", "/dev/full"), "--output", "/dev/full")


@pytest.mark.parametrize(
    ("name", "content"),
    [("words.txt", b"one two"), ("bytes.txt", b"\xff\xfe\x00"), ("empty.npy", b""), ("text.npy", b"1 2 3")],
)
def test_bad_covariance_file(cli, tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert_refused(cli("predict", "--width", "10", "--covariance", name), "--covariance", name)


def test_covariance_file_of_the_wrong_kind(cli, tmp_path):
    np.save(tmp_path / "complex.npy", np.array(["a", "b"]))
    assert_refused(cli("predict", "--width", "10", "--covariance", "complex.npy"), "--covariance")
    (tmp_path / "empty.txt").write_text("# nothing\n")
    assert_refused(cli("predict", "--width", "10", "--covariance", "empty.txt"), "--covariance", "non-empty")


def test_long_messages_are_cut(cli):
    values = ",".join(["-1"] * 5000)
    outcome = cli("predict", "--width", "10", f"--covariance={values}")
    assert_refused(outcome, "--covariance")
    assert len(outcome.err) < 700


def test_unknown_command(cli):
    assert_refused(cli("prove"), "prove")


def test_uncertified_law_is_exit_code_three(cli, monkeypatch):
    from gequiv import CertificationError

    def refuse(*_, **__):
        raise CertificationError("the mass misses 1 by 1e-3: move the parameters slightly")

    monkeypatch.setattr("gequiv.attention.parameters.Attention.limit_law", refuse)
    for command in (["predict"], ["validate", *SMALL]):
        outcome = cli(*command)
        assert (outcome.code, outcome.out) == (3, "")
        assert outcome.err == "error: not certified: the mass misses 1 by 1e-3: move the parameters slightly\n"


def test_out_of_memory(cli, monkeypatch):
    def refuse(*_, **__):
        raise MemoryError("Unable to allocate 7.28 TiB")

    monkeypatch.setattr("gequiv.attention.ensemble.draw_attention", refuse)
    assert_refused(cli("validate", *SMALL), "memory", "--tokens", "7.28 TiB")
