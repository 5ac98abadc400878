"""The experiment as a whole: it passes where the theorem is near, fails where it is not, and says why."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from gequiv.attention import Attention, ensemble
from gequiv.attention.outliers import Outlier
from gequiv.errors import CertificationError, ParameterError
from gequiv.laws.chain import GaussianChainPlusNoise
from gequiv.laws.marchenko_pastur import MarchenkoPastur
from gequiv.simulation import (
    Comparison,
    LawChoice,
    ValidationInterrupted,
    choose_law,
    compare,
    ks_between,
    laws_distance,
    validate,
)
from gequiv.simulation.experiment import Evidence, _judge, total_mass
from tests.simulation.heavy_tail import HeavyTail

HEAD = Attention(tokens=600, head_dim=300, beta=0.5)


@pytest.fixture(scope="module")
def held():
    return validate(HEAD, 4, np.random.default_rng(1), law="limit")


def test_holds_where_the_theorem_is_near(held):
    """MATH: KS about .012 at this size, a quarter of the tolerance, with a spread over draws of .003."""
    assert held.outcome == "held"
    assert held.passed
    assert held.verdict.startswith("Held: KS distance 0.01")
    assert held.comparison.ks_mean < 0.025
    # the linear model's limit is the law: what it shows is noise, about 3/n
    assert held.linear.ks_mean < 2 * held.linear_noise
    assert held.linear.ks_mean < 6 / 600
    assert held.marchenko_pastur.ks_mean > 0.15


def test_numbers_are_what_they_are_said_to_be(held):
    assert held.law_kind == "limit"
    assert held.limit is held.comparison
    assert held.finite == compare(HEAD.finite_law(), list(held.spectra))
    assert held.law_distance == laws_distance(HEAD.finite_law(), HEAD.limit_law())
    assert held.expected_outliers == ()
    assert held.comparison == compare(held.law, list(held.spectra))
    assert held.linear == compare(held.law, list(held.linear_spectra))
    believed = MarchenkoPastur(1, math.expm1(0.25))
    assert held.marchenko_pastur == compare(believed, list(held.spectra))
    assert held.finite_size_bias == ks_between(list(held.spectra), list(held.linear_spectra))
    assert held.requested == held.comparison.draws == 4
    distances = [ks_between(held.spectra[i], [s for j, s in enumerate(held.spectra) if j != i]) for i in range(4)]
    assert held.sampling_noise == pytest.approx(np.mean(distances) * math.sqrt(3 / 4), rel=1e-13)
    assert held.mass == pytest.approx(1, abs=1e-10)
    assert 0 < held.solver_error < 1e-10
    tops = [s[-1] for s in held.spectra]
    assert held.outliers.largest == pytest.approx(np.mean(tops), rel=1e-14)
    assert held.outliers.edge == held.law.support()[-1][1]
    assert held.outliers.threshold > held.outliers.edge
    assert all(s.shape == (600,) and (np.diff(s) >= 0).all() for s in (*held.spectra, *held.linear_spectra))


def test_draws_come_from_their_own_generators(held):
    children = np.random.default_rng(1).spawn(8)
    assert np.array_equal(held.spectra[2], HEAD.spectrum(children[4]))
    linear = ensemble.squared_singular_values(ensemble.draw_linear_model(HEAD, children[5]))
    assert np.array_equal(held.linear_spectra[2], linear)


def test_fewer_draws_are_the_first_ones():
    small = Attention(60, 30, 0.5)
    two, three = validate(small, 2, 9), validate(small, 3, 9)
    for name in ("spectra", "linear_spectra"):
        for one, other in zip(getattr(two, name), getattr(three, name)[:2], strict=True):
            assert np.array_equal(one, other)


def test_dictionary_is_json(held):
    record = json.loads(json.dumps(held.to_dict(), allow_nan=False))
    assert record["passed"] is True
    assert record["ks"] == held.comparison.ks
    assert record["wasserstein"] == held.comparison.wasserstein
    assert record["support"] == [list(interval) for interval in held.law.support()]
    assert record["mass"] == held.mass
    assert record["attention"] == {
        "tokens": 600, "head_dim": 300, "beta": 0.5, "keys": 600, "width": None, "covariance": None,
        "score": None, "mask": None, "bias": None, "weights": None,
    }  # fmt: skip
    assert (record["law"], record["laws_distance"]) == ("limit", held.law_distance)
    assert (record["ks_limit"], record["ks_finite"]) == (held.comparison.ks, held.finite.ks)
    assert record["limit"]["ks_mean"] == held.comparison.ks_mean
    assert record["expected_outliers"] == []


def test_narrow_heads_fail_and_the_verdict_says_why():
    """At d_k = 8 the limit is off by more than ten times the tolerance."""
    result = validate(Attention(tokens=600, head_dim=8, beta=0.5), 3, 1, law="limit")
    assert result.outcome == "failed"
    assert not result.passed
    assert "head width 8 is small for 600 keys" in result.verdict
    assert "there are 35" in result.verdict  # 8 * 9/2 - 1 harmonics of degree two
    # not the law's fault: the linear model follows it
    assert result.linear.ks_mean < 2 * result.linear_noise + 1 / 600
    assert result.finite_size_bias > 0.3


def test_narrow_embeddings_are_named_too():
    verdict = validate(Attention(tokens=300, head_dim=150, beta=0.5, width=8), 2, 1, law="limit").verdict
    assert "embedding width 8 is small for 300 keys" in verdict


def test_large_beta_fails_and_the_verdict_says_why():
    result = validate(Attention(tokens=200, head_dim=200, beta=2.0), 3, 1)
    assert result.outcome == "failed"
    assert "beta 2 is large for 200 keys" in result.verdict


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_law_with_the_wrong_variance_fails(factor):
    """Ten per cent of variance moves the distribution function by .02: below tolerance, beyond the noise of .005."""
    noise = HEAD.linear_model().noise_variance
    wrong = GaussianChainPlusNoise([0.5], 1, factor * 0.25, factor * noise)
    result = validate(HEAD, 3, 1, law=wrong)
    assert result.comparison.ks_mean < 0.05
    assert result.outcome == "failed"
    assert "not this head's law" in result.verdict
    assert result.law is wrong


def test_the_law_that_the_field_believed_fails():
    result = validate(Attention(200, 100, 0.5), 2, 1, law=MarchenkoPastur(1, math.expm1(0.25)))
    assert result.outcome == "failed"
    assert result.solver_error is None


def comparison(*ks):
    """A Comparison of these distances and nothing else."""
    error = float(np.std(ks, ddof=1) / math.sqrt(len(ks)))
    return Comparison(float(np.mean(ks)), ks, float(np.mean(ks)), error, 0.0, ks, 0.0, 0.0, (), len(ks), 600 * len(ks))


def evidence(law, linear, believed, **changes):
    """Of the limit law, where the noise is .004."""
    given = Evidence("limit", law, law, None, linear, believed, 0.03, 0.004, 0.004, None, True)
    return dataclasses.replace(given, **changes)


@pytest.mark.parametrize(
    ("law", "believed", "linear", "outcome"),
    [
        # Student's t at 95.45 % for three draws is 4.53, the standard error of (x - .002, x, x + .002) .00115
        ((0.040, 0.042, 0.044), (0.2, 0.2, 0.2), 0.004, "held"),
        ((0.044, 0.046, 0.048), (0.2, 0.2, 0.2), 0.004, "undecided"),
        ((0.052, 0.054, 0.056), (0.2, 0.2, 0.2), 0.004, "undecided"),
        ((0.054, 0.056, 0.058), (0.2, 0.2, 0.2), 0.004, "failed"),
        # Marchenko–Pastur nearer by .002, within the noise of .004, then by .02
        ((0.030, 0.032, 0.034), (0.028, 0.030, 0.032), 0.004, "held"),
        ((0.030, 0.032, 0.034), (0.010, 0.012, 0.014), 0.004, "failed"),
        # nearer by .02 on average but not in every draw
        ((0.030, 0.032, 0.034), (0.002, 0.030, 0.004), 0.004, "held"),
        # the linear model may be off by twice its noise of .004 plus one eigenvalue of 600
        ((0.030, 0.032, 0.034), (0.2, 0.2, 0.2), 0.0095, "held"),
        ((0.030, 0.032, 0.034), (0.2, 0.2, 0.2), 0.0098, "failed"),
    ],
)
def test_rules_of_the_verdict(law, believed, linear, outcome):
    judged, text = _judge(
        HEAD, 0.05, evidence(law=comparison(*law), linear=comparison(linear, linear), believed=comparison(*believed))
    )
    assert judged == outcome
    assert text.startswith({"held": "Held", "failed": "Failed", "undecided": "Not enough draws"}[outcome])


def test_one_draw_decides_nothing():
    result = validate(Attention(60, 30, 0.5), 1, 1)
    assert result.outcome == "undecided"
    assert result.verdict.startswith("Not enough draws")
    assert result.sampling_noise is None
    json.dumps(result.to_dict(), allow_nan=False)


def test_undecided_between_the_tolerances(held):
    """A tolerance at the measured distance itself lies inside any interval."""
    found = evidence(held.comparison, held.linear, held.marchenko_pastur)
    outcome, verdict = _judge(HEAD, held.comparison.ks_mean, found)
    assert outcome == "undecided"
    assert "more draws" in verdict


@pytest.mark.parametrize(
    "head",
    [
        Attention(200, 100, 0.5, keys=100),
        Attention(100, 100, 0.5, keys=200, width=150),
        Attention(120, 60, 0.3, width=120),
    ],
)
def test_other_shapes(head):
    """Finite size is felt at these sizes (KS below .1); the linear model stays within its noise."""
    result = validate(head, 2, 3, tolerance=0.3)
    assert result.linear.ks_mean <= 2 * result.linear_noise + 1 / head.tokens
    assert result.passed, result.verdict
    assert result.mass == pytest.approx(1, abs=1e-10)
    expected = [(0.0, pytest.approx(0.5))] if head.tokens > head.columns else []
    assert result.law.atoms() == expected


def test_feature_covariance():
    """Tokens with two variances: the law comes from the fixed point, the scores keep variance one."""
    head = Attention(200, 100, 0.5, width=200, covariance=(1.6, 0.4))
    result = validate(head, 2, 3, tolerance=0.3)
    assert result.passed, result.verdict
    assert result.linear.ks_mean <= 2 * result.linear_noise + 1 / 200
    assert result.mass == pytest.approx(1, abs=1e-9)
    # the law of white tokens is another one, and the linear model says so
    white = Attention(200, 100, 0.5, width=200).limit_law()
    assert isinstance(result.limit, Comparison)
    assert validate(head, 2, 3, tolerance=0.3, law=white).outcome == "failed"


def test_progress_is_reported():
    seen = []
    validate(Attention(30, 15, 0.5), 3, 1, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(k, 6) for k in range(7)]


def test_interruption_offers_what_is_there():
    def stop(done, total):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(ValidationInterrupted) as caught:
        validate(Attention(60, 30, 0.5), 4, 7, progress=stop)
    assert isinstance(caught.value, KeyboardInterrupt)
    partial = caught.value.partial
    whole = validate(Attention(60, 30, 0.5), 2, 7)
    assert partial.comparison == whole.comparison
    assert partial.linear == whole.linear
    assert (partial.comparison.draws, partial.requested) == (2, 4)
    assert str(caught.value) == "interrupted after 2 of 4 draws"


def test_interruption_before_the_first_draw_is_plain():
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        validate(Attention(60, 30, 0.5), 4, 7, progress=stop)
    assert not isinstance(caught.value, ValidationInterrupted)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("head", 2, 1), {}, "attention must be a gequiv.Attention"),
        ((HEAD, 0, 1), {}, "samples must be an integer of at least 1; got 0"),
        ((HEAD, 2.5, 1), {}, "samples must be an integer"),
        ((HEAD, 2, 1), {"tolerance": 0}, "tolerance must be a finite real number above 0"),
        ((HEAD, 2, 1), {"tolerance": 1.0}, "tolerance must lie strictly between 0 and 1; got 1.0"),
        ((HEAD, 2, 1), {"tolerance": math.nan}, "tolerance must be"),
        ((HEAD, 2, 1), {"law": "semicircle"}, "law must be one of 'auto', 'finite', 'limit'; got 'semicircle'"),
        ((HEAD, 2, 1), {"law": 3.0}, "law must be a gequiv law, 'auto', 'finite', 'limit' or None; got 3.0"),
        ((Attention(20, 10, mask="causal"), 2, 1), {"law": "limit"}, "limit_law is the law of unmasked attention"),
        ((Attention(20, 10, score=np.exp), 2, 1), {"law": "finite"}, "score"),
        ((HEAD, 2, None), {}, "rng must be a numpy.random.Generator"),
        ((Attention(20, 10, 27.0), 2, 1), {}, "beta must be at most 26.64"),
    ],
)
def test_refusals(arguments, options, message):
    with pytest.raises(ParameterError, match=message):
        validate(*arguments, **options)


def test_refuses_a_generator_that_cannot_spawn():
    class Opaque(np.random.bit_generator.ISeedSequence):
        def generate_state(self, n_words, dtype=np.uint32):
            return np.arange(n_words, dtype=dtype) + 1

    generator = np.random.Generator(np.random.PCG64(Opaque()))
    with pytest.raises(ParameterError, match="rng must be able to spawn"):
        validate(Attention(20, 10, 0.5), 2, generator)


def test_beta_up_to_the_largest():
    """No overflow and no NaN anywhere, at β = 26 where e^{β²} is 10^293; attention is nowhere near its limit there."""
    result = validate(Attention(40, 20, 26.0), 2, 1)
    assert result.outcome == "failed"
    json.dumps(result.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    "law",
    [
        MarchenkoPastur(1.0, 3.0),
        MarchenkoPastur(4.0, 0.1),
        GaussianChainPlusNoise([0.1], 1, 1.0, 0.01),
        GaussianChainPlusNoise([1e-3], 1, 1e-4, 5e-9),
        GaussianChainPlusNoise([0.3, 0.1, 0.3], 2, 1.0, 1e-3),
        GaussianChainPlusNoise([100.0], 0.01, 1e100, 1e100),
    ],
)
def test_mass_from_the_density_alone(law):
    assert total_mass(law) == pytest.approx(1, abs=1e-10)


# -- which law is tested -------------------------------------------------------------------------------

NARROW = Attention(tokens=300, head_dim=16, beta=0.5)
CAUSAL = Attention(tokens=60, head_dim=16, beta=0.5, mask="causal")


@pytest.fixture(scope="module")
def narrow():
    return validate(NARROW, 3, 1)


def test_narrow_heads_are_held_against_the_finite_law(narrow):
    """The limit is off by .2 at this size, the finite-size law by .02, with a noise of .01."""
    assert (narrow.law_kind, narrow.outcome) == ("finite-size", "held")
    law, limit = NARROW.finite_law(), NARROW.limit_law()
    assert narrow.comparison == narrow.finite == compare(law, list(narrow.spectra))
    assert narrow.limit == compare(limit, list(narrow.spectra))
    assert narrow.linear == compare(limit, list(narrow.linear_spectra))
    assert narrow.law_distance == laws_distance(law, limit) > 4 / 300
    assert narrow.limit.ks_mean > 0.1 > 0.05 > narrow.comparison.ks_mean
    assert f"The limit theorem alone: KS {narrow.limit.ks_mean:.3g}." in narrow.verdict
    assert "from the finite-size law" in narrow.verdict
    assert [(o.location, o.visible, o.origin) for o in law.outliers()] == list(narrow.expected_outliers)
    assert narrow.mass == pytest.approx(1, abs=1e-9)


def test_the_limit_alone_would_have_failed(narrow):
    told = validate(NARROW, 3, 1, law="limit")
    assert told.outcome == "failed"
    assert told.comparison == narrow.limit
    assert told.finite == narrow.comparison
    assert f"The finite-size law: KS {narrow.comparison.ks_mean:.3g}." in told.verdict


def test_the_finite_law_given_by_hand_is_not_refused(narrow):
    """The linear model misses it, which proves nothing."""
    told = validate(NARROW, 3, 1, law=NARROW.finite_law())
    assert (told.outcome, told.law_kind) == ("held", "given")
    assert told.comparison == narrow.comparison
    assert (told.limit, told.finite, told.law_distance) == (None, None, None)
    assert told.linear.ks_mean > 2 * told.linear_noise + 1 / 300
    assert told.expected_outliers == narrow.expected_outliers


def test_near_the_limit_the_limit_law_is_tested():
    head = Attention(100, 100, 0.3)
    choice = choose_law(head)
    assert choice.kind == "limit"
    assert choice.distance <= 4 / 100
    assert choose_law(head, "finite").kind == "finite-size"
    assert choose_law(head, "finite").distance == choice.distance


def test_a_finite_law_that_cannot_be_certified_is_named(monkeypatch):
    def refuse(head, **_):
        raise CertificationError("the scan missed a gap")

    monkeypatch.setattr(Attention, "finite_law", refuse)
    told = validate(Attention(60, 30, 0.5), 2, 1, tolerance=0.5)
    assert told.law_kind == "limit"
    assert told.verdict.endswith(
        "The limit law was tested, as the finite-size law is not to be had: the scan missed a gap."
    )
    assert told.finite is None
    with pytest.raises(CertificationError):
        validate(Attention(60, 30, 0.5), 2, 1, law="finite")
    with pytest.raises(CertificationError):
        validate(CAUSAL, 2, 1)


def test_method_and_rescaled_select_the_limit_law():
    assert choose_law(NARROW, method="fixed-point").kind == "limit"
    rescaled = choose_law(NARROW, rescaled=True)
    assert (rescaled.kind, rescaled.finite, rescaled.distance) == ("limit", None, None)
    for head, wish in ((NARROW, "finite"), (CAUSAL, "auto")):
        with pytest.raises(ParameterError, match="method belongs to the limit law and must be None"):
            choose_law(head, wish, method="curve")
        with pytest.raises(ParameterError, match="rescaled belongs to the limit law and must be False"):
            choose_law(head, wish, rescaled=True)


def test_scores_have_a_limit_law_alone():
    choice = choose_law(Attention(60, 30, 0.5, score=np.exp))
    assert (choice.kind, choice.finite, choice.refusal) == ("limit", None, None)


def test_given_weights_have_their_finite_law():
    rng = np.random.default_rng(3)
    head = Attention.from_weights(rng.standard_normal((40, 20)), rng.standard_normal((40, 20)) / 80, tokens=80)
    told = validate(head, 2, 1, tolerance=0.3)
    assert told.law_kind == "finite-size"
    assert told.limit is not None
    assert told.to_dict()["attention"]["weights"] == "given, 40 × 20"


class WithOutliers(HeavyTail):
    """The law with an outlier of its own, and the Perron value."""

    def outliers(self):
        return [Outlier(8000.0, True, "column direction", 2.0), Outlier(3000.0, False, "Perron value of A", 0.5)]


def test_a_heavy_tailed_law_of_a_masked_head(monkeypatch):
    """The law is a stand-in, so that the verdict is of no interest, but its parts are."""
    law = WithOutliers()
    monkeypatch.setattr(Attention, "finite_law", lambda head, **_: law)
    told = validate(CAUSAL, 3, 1)
    assert (told.law_kind, told.limit, told.law_distance) == ("finite-size", None, None)
    assert told.comparison is told.finite
    assert told.linear == compare(law, list(told.linear_spectra))
    assert told.outcome == "failed"
    assert "not this head's law" not in told.verdict
    assert "Marchenko–Pastur" not in told.verdict
    assert "No limit theorem covers a mask or a bias." in told.verdict
    assert told.expected_outliers == ((8000.0, True, "column direction"), (3000.0, False, "Perron value of A"))
    assert told.mass == pytest.approx(1, abs=1e-10)
    assert told.outliers.threshold == 6000.0
    assert [moment.order for moment in told.comparison.moments] == [1, 2, 4]
    children = np.random.default_rng(1).spawn(6)
    assert np.array_equal(told.spectra[1], CAUSAL.spectrum(children[2]))
    record = json.loads(json.dumps(told.to_dict(), allow_nan=False))
    assert record["attention"]["mask"] == "causal"
    assert (record["ks_limit"], record["limit"]) == (None, None)


def test_marchenko_pastur_of_a_masked_head_has_the_linear_model_s_mean(monkeypatch):
    """Independent entries of A - Ā have variance (e^{β²} - 1) Ā²; with 200 rows the mean is known to some 3 %."""
    head = Attention(tokens=200, head_dim=50, beta=0.5, mask="window:20", bias=0.1)
    told = validate(head, 3, 1, law=HeavyTail())
    mean = float(np.mean([spectrum.mean() for spectrum in told.linear_spectra]))
    (moment, *_) = told.marchenko_pastur.moments
    assert moment.law == pytest.approx(mean, rel=0.1)
    assert told.to_dict()["attention"]["bias"] == "ALiBi slope 0.1"


def test_a_choice_can_be_handed_over():
    law = MarchenkoPastur(1, 0.3)
    told = validate(Attention(60, 30, 0.5), 1, 1, law=LawChoice(law, "limit", limit=law))
    assert told.law is law
    assert told.limit is told.comparison


def test_descriptions():
    band = np.tri(20, dtype=bool)
    head = Attention(20, 10, mask=band, bias=lambda distance: -0.1 * distance)
    told = validate(head, 1, 1, law=HeavyTail()).to_dict()["attention"]
    assert told["mask"] == "bool array of shape (20, 20)"
    assert told["bias"] == "function <lambda>"
