"""Verdicts on claims and their power, on made-up distances."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gequiv.attention import Attention
from gequiv.simulation.campaign.claims import decide
from gequiv.simulation.campaign.findings import LEVEL, Estimate, ModelFinding
from gequiv.simulation.campaign.measured import LawMeasured, Measured
from gequiv.simulation.campaign.model import Campaign, Claim, Model, Plan
from gequiv.simulation.campaign.power import estimate

LAWS = ("finite", "limit")
SPREAD = (-1.0, -0.5, 0.5, 1.0)


def around(value, spread=0.001, draws=4):
    return value + spread * np.array(SPREAD[:draws])


def model(tokens=400, draws=4, statistics=("spectrum", "rows"), beta=0.5):
    axes = {"tokens": tokens, "beta": beta}
    return Model("g", Attention(tokens, 64, beta), Plan(statistics=statistics), LAWS, tuple(range(draws)), axes)


def measured(laws, noise=0.003, distances=(), tops=None, errors=(), draws=4):
    empty = np.empty(0)
    return Measured(
        indices=tuple(range(draws)),
        missing=(),
        damaged=(),
        laws={
            name: law if isinstance(law, LawMeasured) else LawMeasured(ks=np.array(law)) for name, law in laws.items()
        },
        distances=dict(distances),
        noise=noise,
        edges=empty,
        heights=empty,
        zeros=0.0,
        tops=np.empty((draws, 0)) if tops is None else np.array(tops)[:, None],
        rows=np.empty((0, 4, 3)),
        errors=np.array(errors),
        step=0.0,
    )


def decide_one(kind, found, options, rows=None, expected=None):
    """The only finding of a claim on the only model."""
    head = model(draws=found.draws)
    finding = ModelFinding(head, found.draws, (), None, None, None, rows or {}, expected or {})
    claim = Claim(kind, "name", {}, options)
    campaign = Campaign("c", "", "", 0, (head,), (claim,), "")
    (result,) = decide(campaign, {id(head): found}, [finding], [])
    return result


def agreement(ks, tolerance=0.02, other=0.17, **more):
    laws = {"finite": ks, "limit": around(other, draws=len(ks)), "marchenko-pastur": around(other, draws=len(ks))}
    return decide_one("agreement", measured(laws, draws=len(ks), **more), {"law": "finite", "tolerance": tolerance})


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.01, "held"), (0.018, "held"), (0.0195, "not enough draws"), (0.022, "failed")]
)
def test_agreement(value, verdict):
    found = agreement(around(value))
    assert found.verdict == verdict
    assert found.measured.value == pytest.approx(value)
    assert found.power.could_fail
    assert "Marchenko–Pastur at 0.17 would have failed" in found.power.text
    assert f"below {found.power.detectable:.3g}" in found.power.text


def test_detectable_distance_is_detected():
    """Draws about the distance that is said to be detectable fail in 95 % of 2000 campaigns, ± four deviations."""
    rng, spread = np.random.default_rng(5), 0.001
    ks = around(0.01, spread / np.std(SPREAD, ddof=1))
    detectable = agreement(ks).power.detectable
    failed = [agreement(detectable + spread * rng.standard_normal(4)).verdict == "failed" for _ in range(2000)]
    assert np.mean(failed) == pytest.approx(LEVEL, abs=0.02)


def test_tests_that_could_not_have_failed():
    one = agreement(around(0.01, draws=1))
    assert (one.verdict, one.power.could_fail, one.power.detectable) == ("not enough draws", False, None)
    blind = agreement(around(0.01), other=0.015)
    assert (blind.verdict, blind.power.could_fail) == ("held", False)
    assert "would not have failed either" in blind.power.text
    wide = agreement(around(0.5, 0.4), tolerance=0.99)
    assert not wide.power.could_fail


def test_matrix_free_errors_enter():
    assert agreement(around(0.015)).verdict == "held"
    found = agreement(around(0.015), errors=[0.004] * 4)
    assert found.verdict == "not enough draws"
    assert found.power.detectable == pytest.approx(agreement(around(0.015)).power.detectable + 0.008)


@pytest.mark.parametrize(("value", "verdict"), [(0.2, "held"), (0.0995, "not enough draws"), (0.05, "failed")])
def test_disagreement(value, verdict):
    found = decide_one("disagreement", measured({"limit": around(value)}), {"law": "limit", "at_least": 0.1})
    assert found.verdict == verdict
    assert found.power.could_fail
    assert found.power.detectable < 0.1


def test_disagreement_beyond_the_noise_only():
    laws = {"limit": around(0.2, 0.05)}
    assert not decide_one("disagreement", measured(laws), {"law": "limit", "at_least": 0.1}).power.could_fail


def closer(near, far, apart=0.1):
    found = measured({"finite": near, "limit": far}, distances={("finite", "limit"): apart})
    return decide_one("closer", found, {"law": "finite", "than": "limit", "factor": 2.0})


def test_closer_is_paired_by_draw():
    common = 0.02 * np.array(SPREAD)
    found = closer(0.03 + common, 0.07 + 2 * common)
    assert found.verdict == "held"
    assert found.measured.value == pytest.approx(0.01)
    assert found.measured.error < 1e-12
    assert closer(around(0.03), around(0.04)).verdict == "failed"
    assert closer(around(0.03), around(0.06)).verdict == "not enough draws"
    assert closer(np.zeros(4), np.zeros(4)).verdict == "failed"  # not above 0


def test_closer_of_two_laws_that_are_too_near():
    assert closer(around(0.01), around(0.05), apart=0.1).power.could_fail
    assert not closer(around(0.01), around(0.05), apart=0.002).power.could_fail


def rate(exponent, options, sizes=(100, 200, 400), draws=4):
    models = [model(n, draws) for n in sizes]
    noise = 0.02 * np.array(SPREAD[:draws])
    found = {id(m): measured({"finite": m.head.tokens**exponent * np.exp(noise)}, draws=draws) for m in models}
    findings = [ModelFinding(m, draws, (), None, None, None, {}, {}) for m in models]
    claim = Claim("rate", "name", {}, {"law": "finite", "over": "tokens", **options})
    return decide(Campaign("c", "", "", 0, tuple(models), (claim,), ""), found, findings, [])


@pytest.mark.parametrize(
    ("exponent", "options", "verdict"),
    [
        (-1.0, {"at_most": -0.5}, "held"),
        (-0.2, {"at_most": -0.5}, "failed"),
        (-0.5, {"at_most": -0.5}, "not enough draws"),
        (-1.0, {"at_least": -1.2, "at_most": -0.8}, "held"),
        (-1.5, {"at_least": -1.2, "at_most": -0.8}, "failed"),
    ],
)
def test_rates(exponent, options, verdict):
    (found,) = rate(exponent, options)
    assert found.verdict == verdict
    assert found.measured.value == pytest.approx(exponent)
    assert found.power.could_fail
    assert "no convergence, would have failed" in found.power.text
    assert found.subject == "g: tokens 100 … 400, beta = 0.5"


def test_rates_that_every_line_would_have():
    (found,) = rate(-1.0, {"at_most": 3.0})
    assert (found.verdict, found.power.could_fail) == ("held", False)
    (short,) = rate(-1.0, {"at_most": 3.0}, sizes=(100, 200))
    assert short.verdict == "not enough draws"


def moments(deviations, spread=0.01, other=0.5, draws=4):
    def law(off):
        expected = np.array([1.0, 2.0, 5.0, 14.0])
        drawn = expected * (1 + np.array(off) + spread * np.array(SPREAD[:draws])[:, None])
        return LawMeasured(ks=around(0.01, draws=draws), orders=(1, 2, 3, 4), expected=expected, moments=drawn)

    found = measured({"finite": law(deviations), "limit": law([other] * 4)}, draws=draws)
    return decide_one("moments", found, {"law": "finite", "level": 0.05})


def test_moments():
    equal = moments([0.0] * 4)
    assert (equal.verdict, equal.power.could_fail) == ("held", True)
    far = moments([0.0, 0.0, 0.0, 0.2])
    assert far.verdict == "failed"
    assert "moment 4" in far.reason
    assert moments([0.0] * 4, other=1e-3).power.could_fail is False
    assert moments([0.0] * 4, draws=1).verdict == "not enough draws"


def test_level_of_moments_is_of_the_family():
    """Four independent moments of 4000 campaigns; 3.5 deviations: 5e-4."""
    rng = np.random.default_rng(6)
    failed = 0
    for drawn in rng.standard_normal((4000, 4, 4)):
        law = LawMeasured(ks=np.ones(4), orders=(1, 2, 3, 4), expected=np.ones(4), moments=1 + 0.1 * drawn)
        failed += decide_one("moments", measured({"finite": law}), {"law": "finite", "level": 0.2}).verdict == "failed"
    assert failed / 4000 == pytest.approx(1 - (1 - 0.05) ** 4, abs=0.022)


def outliers(tops, predicted, origins, tolerance=0.1):
    law = LawMeasured(ks=around(0.01), predicted=np.array(predicted), origins=origins)
    return decide_one("outliers", measured({"finite": law}, tops=tops), {"law": "finite", "tolerance": tolerance})


def test_outliers():
    found = outliers(around(5.1, 0.01), [5.0, 3.0], ("column direction", "edge"))
    assert (found.verdict, found.power.could_fail) == ("held", True)
    assert found.measured.value == pytest.approx(0.02)
    assert outliers(around(4.0, 0.01), [5.0], ("edge",)).verdict == "failed"
    assert not outliers(around(5.0, 0.01), [5.0, 4.9], ("column direction", "edge")).power.could_fail
    law = LawMeasured(ks=around(0.01), silence="no edge")
    silent = decide_one("outliers", measured({"finite": law}, tops=around(5)), {"law": "finite", "tolerance": 0.1})
    assert (silent.verdict, silent.reason) == ("not enough draws", "No edge")


def statistic(value, options, error=0.01):
    rows = {"participation": estimate(around(value, error))}
    options = {"statistic": "participation", **options}
    return decide_one("statistic", measured({}), options, rows, {"participation": 0.2})


def test_statistics():
    assert statistic(0.3, {"at_most": 0.4}).verdict == "held"
    assert statistic(0.3, {"at_least": 0.4}).verdict == "failed"
    assert statistic(0.3, {"at_least": 0.2, "at_most": 0.305}).verdict == "not enough draws"
    near = statistic(0.21, {"prediction": "log-normal", "tolerance": 0.2})
    assert near.verdict == "held"
    assert near.measured.value == pytest.approx(0.05)
    assert near.measured.error == pytest.approx(statistic(0.21, {"at_most": 1.0}).measured.error / 0.2)
    assert statistic(0.3, {"prediction": "log-normal", "tolerance": 0.2}).verdict == "failed"


def test_statistic_that_no_value_would_have_contradicted():
    """A participation is between 1/keys and 1."""
    assert not statistic(0.3, {"at_most": 0.999}).power.could_fail
    assert statistic(0.3, {"at_most": 0.9}).power.could_fail


def test_laws_that_could_not_be_had():
    found = measured({"finite": LawMeasured(refusal="no sheet"), "limit": around(0.1)})
    result = decide_one("agreement", found, {"law": "finite", "tolerance": 0.02})
    assert result.verdict == "not enough draws"
    assert "no sheet" in result.reason
    assert result.measured is None
    assert not result.power.could_fail


def test_claims_about_other_laws_are_open():
    found = decide_one("agreement", measured({}), {"law": "marchenko-pastur", "tolerance": 0.02})
    assert (found.subject, found.verdict) == ("no model", "not enough draws")


def test_no_draws():
    found = measured({}, draws=0)
    for kind, options in (
        ("agreement", {"law": "finite", "tolerance": 0.1}),
        ("moments", {"law": "finite", "level": 0.05}),
        ("statistic", {"statistic": "largest", "at_most": 0.1}),
    ):
        result = decide_one(kind, found, options)
        assert result.verdict == "not enough draws"
        assert result.reason == "There are no draws"


def test_infinite_slack_opens_everything():
    found = measured({"finite": around(0.01), "limit": around(0.1)}, errors=[math.inf] * 4)
    for kind, options in (
        ("agreement", {"law": "finite", "tolerance": 0.1}),
        ("disagreement", {"law": "finite", "at_least": 0.1}),
        ("closer", {"law": "finite", "than": "limit", "factor": 1.0}),
    ):
        result = decide_one(kind, found, options)
        assert (result.verdict, result.power.could_fail) == ("not enough draws", False)
        assert math.isinf(result.power.detectable)
    assert "would have missed any gap" in result.power.text
    assert isinstance(estimate([1.0, 2.0]), Estimate)
