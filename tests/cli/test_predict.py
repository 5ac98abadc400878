"""``gequiv predict``: what is printed and written is the law's own numbers."""

from __future__ import annotations

import csv
import io
import json
import math
import re

import numpy as np
import pytest

import gequiv
from gequiv.simulation import choose_law
from tests.simulation.heavy_tail import HeavyTail

HEADS = {
    "square": ([], {}),
    "gap": (["--head-dim", "50"], {"head_dim": 50}),
    "tall": (["--tokens", "300", "--keys", "120"], {"tokens": 300, "keys": 120}),
    "wide": (["--tokens", "100", "--keys", "400", "--beta", "1.5"], {"tokens": 100, "keys": 400, "beta": 1.5}),
    "gaussian": (["--width", "700"], {"width": 700}),
}


def head(**changes):
    return gequiv.Attention(**{"tokens": 1000, "head_dim": 500, "beta": 0.5, **changes})


def moment_text(law, order):
    try:
        return f"{law.moment(order):.17g}"
    except gequiv.CertificationError:
        return "not certified"


def read_csv(text):
    lines = text.splitlines()
    comments = [line for line in lines if line.startswith("# ")]
    rows = list(csv.reader(io.StringIO("\n".join(lines[len(comments) :]))))
    assert rows[0] == ["x", "pdf", "cdf"]
    return comments, np.array(rows[1:], dtype=float)


@pytest.fixture
def causal(monkeypatch):
    """A stand-in for the law of masked heads."""
    law = HeavyTail()
    monkeypatch.setattr("gequiv.attention.parameters.Attention.finite_law", lambda head, **_: law)
    return law


@pytest.mark.parametrize(("arguments", "changes"), HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("singular", [False, True])
def test_csv_gives_the_law_back(cli, arguments, changes, singular):
    outcome = cli("predict", *arguments, "--format", "csv", "--points", "40", *["--singular-values"] * singular)
    assert (outcome.code, outcome.err) == (0, "")
    law = choose_law(head(**changes)).law
    law = law.singular_values() if singular else law
    comments, numbers = read_csv(outcome.out)
    assert numbers.shape == (40, 3)
    x = numbers[:, 0]
    assert (np.diff(x) > 0).all()
    np.testing.assert_array_equal(numbers[:, 1], law.pdf(x))
    np.testing.assert_array_equal(numbers[:, 2], law.cdf(x))
    assert all(any(low < point < high for low, high in law.support()) for point in x)
    fields = dict(line[2:].split(": ", 1) for line in comments[1:])
    assert [float(v) for v in fields["support"].replace(";", "").split()] == [e for i in law.support() for e in i]
    moments = [text.strip() for text in fields["moments 1 to 8"].split(";")]
    assert moments == [moment_text(law, k) for k in range(1, 9)]
    assert json.loads(fields["tokens"]) == head(**changes).tokens
    assert json.loads(fields["keys"]) == head(**changes).columns


@pytest.mark.parametrize(("arguments", "changes"), HEADS.values(), ids=HEADS)
def test_npz_gives_the_law_back(cli, tmp_path, arguments, changes):
    outcome = cli("predict", *arguments, "--output", "law.npz", "--points", "30")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    law = choose_law(head(**changes)).law
    with np.load(tmp_path / "law.npz") as stored:
        np.testing.assert_array_equal(stored["pdf"], law.pdf(stored["x"]))
        np.testing.assert_array_equal(stored["cdf"], law.cdf(stored["x"]))
        np.testing.assert_array_equal(stored["support"], law.support())
        np.testing.assert_array_equal(stored["atoms"], np.array(law.atoms()).reshape(-1, 2))
        np.testing.assert_array_equal(stored["moments"], [law.moment(k) for k in range(1, 9)])
        assert json.loads(str(stored["parameters"]))["head_dim"] == head(**changes).head_dim


def test_json(cli):
    outcome = cli("predict", "--tokens", "300", "--keys", "120", "--json", "--points", "7")
    assert outcome.code == 0
    told = json.loads(outcome.out)
    assert (told["law"], told["mask"], told["alibi"], told["outliers"]) == ("limit", None, None, [])
    law = head(tokens=300, keys=120).limit_law()
    choice = choose_law(head(tokens=300, keys=120))
    assert told["laws_distance"] == choice.distance < 4 / 120
    assert told["version"] == gequiv.__version__
    assert told["parameters"]["keys"] == 120
    assert told["parameters"]["method"] == "curve"
    assert told["linear_model"]["noise_variance"] == head().linear_model().noise_variance
    assert told["support"] == [list(interval) for interval in law.support()]
    assert told["atoms"] == [[0.0, pytest.approx(0.6, abs=1e-15)]]
    assert told["moments"] == [law.moment(k) for k in range(1, 9)]
    assert told["pdf"] == law.pdf(told["x"]).tolist()
    assert told["certificate"]["mass_error"] < 1e-10
    assert len(told["x"]) == len(told["cdf"]) == 7


def test_output_by_suffix_or_by_format(cli, tmp_path):
    printed = cli("predict", "--format", "csv", "--points", "5").out
    assert cli("predict", "--points", "5", "-o", "law.csv").out == ""
    assert (tmp_path / "law.csv").read_text(encoding="utf-8") == printed
    cli("predict", "--points", "5", "-o", "law.dat", "--format", "csv")
    assert (tmp_path / "law.dat").read_text(encoding="utf-8") == printed
    cli("predict", "--points", "5", "-o", "law.json")
    assert len(json.loads((tmp_path / "law.json").read_text(encoding="utf-8"))["x"]) == 5
    cli("predict", "--points", "5", "-o", "law.txt")
    assert "distribution function" in (tmp_path / "law.txt").read_text(encoding="utf-8")


def test_table(cli):
    outcome = cli("predict", "--head-dim", "50", "--law", "limit")
    assert outcome.code == 0
    assert outcome.out.startswith("Limit law of the squared singular values of √keys (A - 1/keys)")
    law = head(head_dim=50).limit_law()
    choice = choose_law(head(head_dim=50))
    assert re.search(rf"KS to the finite-size law +{choice.distance:.4g} ", outcome.out)
    for low, high in law.support():
        assert f"[{low:.15g}, {high:.15g}]" in outcome.out
    for order in range(1, 9):
        assert f"{law.moment(order):.15g}" in outcome.out
    assert "0.03402541669" in outcome.out  # e^(1/4) - 5/4
    assert "certificate" in outcome.out
    assert "…" not in outcome.out


def test_moments_beyond_the_floats(cli, tmp_path):
    told = json.loads(cli("predict", "--beta", "26", "--json").out)
    assert told["moments"][0] == pytest.approx(math.expm1(676), rel=1e-12)
    assert told["moments"][1:] == [None] * 7
    assert "beyond the floats" in cli("predict", "--beta", "26").out
    assert "beyond the floats" in cli("predict", "--beta", "26", "--format", "csv").out
    cli("predict", "--beta", "26", "--output", "law.npz")
    with np.load(tmp_path / "law.npz") as stored:
        assert np.isinf(stored["moments"][1:]).all()


def test_rescaled_beyond_the_floats(cli):
    outcome = cli("predict", "--beta", "40", "--rescaled", "--json")
    assert outcome.code == 0
    told = json.loads(outcome.out)
    assert told["moments"][0] == pytest.approx(1, rel=1e-14)
    assert told["linear_model"]["noise_variance"] is None
    assert told["linear_model"]["log_total_variance"] == pytest.approx(1600, rel=1e-12)
    assert "1600" in cli("predict", "--beta", "40", "--rescaled").out


def test_both_methods_agree(cli):
    curve, fixed = (
        json.loads(cli("predict", "--method", method, "--json", "--points", "9").out)
        for method in ("curve", "fixed-point")
    )
    assert fixed["parameters"]["method"] == "fixed-point"
    np.testing.assert_allclose(fixed["moments"], curve["moments"], rtol=1e-9)
    np.testing.assert_allclose(fixed["support"], curve["support"], rtol=1e-9, atol=1e-12)


def test_covariance_from_the_line_and_from_files(cli, tmp_path):
    (tmp_path / "values.txt").write_text("# eigenvalues\n1.6, 0.9\n0.5 # the last\n")
    np.save(tmp_path / "values.npy", np.array([1.6, 0.9, 0.5]))
    told = [
        json.loads(cli("predict", "--width", "768", "--covariance", text, "--json", "--points", "5").out)
        for text in ("1.6,0.9,0.5", "values.txt", "values.npy")
    ]
    assert told[0] == told[1] == told[2]
    assert told[0]["parameters"]["covariance"] == [1.6, 0.9, 0.5]
    assert told[0]["law"] == "finite-size"
    limit = cli("predict", "--width", "768", "--covariance", "1.6,0.9,0.5", "--json", "--points", "5", "--law", "limit")
    told = [json.loads(limit.out)]
    assert told[0]["parameters"]["method"] == "fixed-point"
    # tr Σ/d = 1, so the mean of the law is that of the identity
    assert told[0]["moments"][0] == pytest.approx(math.expm1(0.25), rel=1e-9)


def test_plot(cli, tmp_path):
    outcome = cli("predict", "--plot", "law.png", "--singular-values")
    assert outcome.code == 0
    assert (tmp_path / "law.png").read_bytes().startswith(b"\x89PNG")


def test_an_uncertified_moment_is_named(cli, monkeypatch, tmp_path):
    def refuse(law, order):
        if order == 3:
            raise gequiv.CertificationError("uncertain")
        return float(order)

    monkeypatch.setattr("gequiv.laws.chain.GaussianChainPlusNoise.moment", refuse)
    limit = ("predict", "--law", "limit")
    assert json.loads(cli(*limit, "--json").out)["moments"] == [1, 2, None, 4, 5, 6, 7, 8]
    assert "not certified" in cli(*limit).out
    cli(*limit, "--output", "law.npz")
    with np.load(tmp_path / "law.npz") as stored:
        assert np.isnan(stored["moments"]).tolist() == [False, False, True] + [False] * 5


def test_finite_law(cli):
    law = head(head_dim=50).finite_law()
    told = json.loads(cli("predict", "--head-dim", "50", "--json", "--points", "5").out)
    assert told["law"] == told["parameters"]["law"] == "finite-size"
    assert told["parameters"]["method"] is None
    assert told["laws_distance"] == choose_law(head(head_dim=50)).distance > 0.1
    assert told["support"] == [list(interval) for interval in law.support()]
    assert told["outliers"] == [[o.location, o.visible, o.origin] for o in law.outliers()]
    printed = cli("predict", "--head-dim", "50").out
    assert printed.startswith("Finite-size law of the squared singular values of √keys (A - 1/keys)")
    assert re.search(rf"KS to the limit law +{told['laws_distance']:.4g} ", printed)
    assert "outlier: Perron value of A" in printed
    for location, visible, origin in told["outliers"]:
        place = re.escape(f"{location:.10g}") if visible else "inside the bulk, not visible"
        assert re.search(rf"outlier: {origin} +{place} ", printed)
    comments, _ = read_csv(cli("predict", "--head-dim", "50", "--format", "csv", "--points", "5").out)
    assert comments[0].endswith("finite-size law of the squared singular values of √keys (A - 1/keys)")
    assert f"# distance of finite-size law and limit law: {told['laws_distance']:.17g}" in comments
    assert sum(line.startswith("# outlier: ") for line in comments) == len(told["outliers"])


def test_law_by_name_or_by_what_only_the_limit_has(cli):
    laws = {
        arguments: json.loads(cli("predict", "--head-dim", "50", *arguments, "--json", "--points", "3").out)["law"]
        for arguments in [(), ("--law", "finite"), ("--law", "limit"), ("--method", "curve"), ("--rescaled",)]
    }
    assert list(laws.values()) == ["finite-size", "finite-size", "limit", "limit", "limit"]


def test_masked_head(cli, causal, tmp_path):
    options = ("predict", "--tokens", "80", "--head-dim", "8", "--mask", "causal", "--alibi", "0.125")
    told = json.loads(cli(*options, "--json", "--points", "6").out)
    assert (told["law"], told["laws_distance"]) == ("finite-size", None)
    assert (told["mask"], told["alibi"]) == ("causal", 0.125)
    assert told["parameters"]["variable"] == "squared singular values of √keys (A - Ā)"
    assert told["moments"][2] is None
    assert told["cdf"] == causal.cdf(told["x"]).tolist()
    printed = cli(*options, "--plot", "law.png").out
    assert "mask causal, ALiBi slope 0.125" in printed
    assert "none: no limit theorem covers a mask or a bias" in printed
    assert (tmp_path / "law.png").read_bytes().startswith(b"\x89PNG")


def test_a_finite_law_that_cannot_be_certified_is_named(cli, monkeypatch):
    def refuse(head, **_):
        raise gequiv.CertificationError("the scan missed a gap")

    monkeypatch.setattr("gequiv.attention.parameters.Attention.finite_law", refuse)
    printed = cli("predict", "--head-dim", "50").out
    assert printed.startswith("Limit law")
    assert "none: the scan missed a gap" in printed
    assert cli("predict", "--law", "finite").code == 3
    assert cli("predict", "--mask", "causal").code == 3
