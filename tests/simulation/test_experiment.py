"""The experiment as a whole: it passes where the theorem is near, fails where it is not, and says why."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from gequiv.attention import Attention, ensemble
from gequiv.errors import ParameterError
from gequiv.laws.chain import GaussianChainPlusNoise
from gequiv.laws.marchenko_pastur import MarchenkoPastur
from gequiv.simulation import Comparison, ValidationInterrupted, compare, ks_between, validate
from gequiv.simulation.experiment import _judge, total_mass

HEAD = Attention(tokens=600, head_dim=300, beta=0.5)


@pytest.fixture(scope="module")
def held():
    return validate(HEAD, 4, np.random.default_rng(1))


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
        "score": None,
    }  # fmt: skip


def test_narrow_heads_fail_and_the_verdict_says_why():
    """At d_k = 8 the limit is off by more than ten times the tolerance."""
    result = validate(Attention(tokens=600, head_dim=8, beta=0.5), 3, 1)
    assert result.outcome == "failed"
    assert not result.passed
    assert "head width 8 is small for 600 keys" in result.verdict
    assert "there are 35" in result.verdict  # 8 * 9/2 - 1 harmonics of degree two
    # not the law's fault: the linear model follows it
    assert result.linear.ks_mean < 2 * result.linear_noise + 1 / 600
    assert result.finite_size_bias > 0.3


def test_narrow_embeddings_are_named_too():
    verdict = validate(Attention(tokens=300, head_dim=150, beta=0.5, width=8), 2, 1).verdict
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
        HEAD, 0.05, comparison(*law), comparison(linear, linear), comparison(*believed), 0.03, 0.004, 0.004
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
    outcome, verdict = _judge(
        HEAD, held.comparison.ks_mean, held.comparison, held.linear, held.marchenko_pastur, held.finite_size_bias,
        held.sampling_noise, held.linear_noise,
    )  # fmt: skip
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
        ((HEAD, 2, 1), {"law": "semicircle"}, "law must be a gequiv law or None"),
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
