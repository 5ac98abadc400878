"""Score functions other than the exponential: linear model in closed form, simulation, refusals."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from gequiv import Attention, CertificationError, MarchenkoPastur, ParameterError, compare
from gequiv.attention.ensemble import draw_linear_model, squared_singular_values

X = sympy.Symbol("x", real=True)
BETA = sympy.Symbol("beta", positive=True)


def head(score, beta=1.0, **sizes):
    return Attention(**{"tokens": 500, "head_dim": 250, "beta": beta, "score": score, **sizes})


@pytest.mark.parametrize("score", [np.exp, sympy.exp(X), sympy.exp(BETA * X)])
@pytest.mark.parametrize("beta", [0.1, 0.7, 3.0])
def test_exponential_is_softmax(score, beta):
    general, own = head(score, beta).linear_model(), Attention(500, 250, beta).linear_model()
    assert general.coefficient == pytest.approx(own.coefficient, rel=1e-12)
    assert general.noise_variance == pytest.approx(own.noise_variance, rel=1e-11)
    assert general.total_variance == pytest.approx(own.total_variance, rel=1e-11)
    np.testing.assert_allclose(head(score, beta).sample(3), Attention(500, 250, beta).sample(3), rtol=1e-11)


@pytest.mark.parametrize("score", [lambda s: np.maximum(s, 0), sympy.Max(X, 0)])
def test_relu(score):
    """E g₊ = 1/√(2π), E g g₊ = 1/2, E g₊² = 1/2: c₁ = √(π/2), σ² = π - 1 - π/2."""
    model = head(score).linear_model()
    assert model.mean == pytest.approx(1 / math.sqrt(2 * math.pi), rel=1e-13)
    assert model.coefficient == pytest.approx(math.sqrt(math.pi / 2), rel=1e-13)
    assert model.noise_variance == pytest.approx(math.pi / 2 - 1, rel=1e-12)


def test_absolute_value_has_no_signal():
    model = head(np.abs).linear_model()
    assert model.coefficient == 0
    assert model.noise_variance == pytest.approx(math.pi / 2 - 1, rel=1e-12)
    assert isinstance(head(np.abs).limit_law(), MarchenkoPastur)


def test_step_away_from_zero():
    """Indicator of s > a: mean 1 - Φ(a), E g 1 = φ(a)."""
    a = 0.3
    model = head(lambda s: s > a).linear_model()
    tail, density = 0.5 * math.erfc(a / math.sqrt(2)), math.exp(-a * a / 2) / math.sqrt(2 * math.pi)
    assert model.coefficient == pytest.approx(density / tail, rel=1e-11)
    assert model.noise_variance == pytest.approx(1 / tail - 1 - (density / tail) ** 2, rel=1e-11)


@pytest.mark.parametrize("beta", [0.5, 1.0, 4.0])
def test_logistic_against_mpmath(beta):
    with mpmath.workdps(30):

        def moment(power, k):
            return mpmath.quad(
                lambda s: s**k * mpmath.npdf(s) / (1 + mpmath.exp(-beta * s)) ** power, [-20, -5, 0, 5, 20]
            )

        mean, first, second = moment(1, 0), moment(1, 1), moment(2, 0)
        coefficient = first / mean
        noise = second / mean**2 - 1 - coefficient**2
    model = head(1 / (1 + sympy.exp(-X)), beta).linear_model()
    assert model.coefficient == pytest.approx(float(coefficient), rel=1e-12)
    assert model.noise_variance == pytest.approx(float(noise), rel=1e-10)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.1, 3), st.floats(0.1, 10), st.floats(-1, 1))
def test_polynomials_in_closed_form(quadratic, factor, linear):
    """f = factor (1 + a x + b (x² - 1)/√2 ...): c₁ = a, σ² = b² in the Hermite basis."""
    model = head(lambda s: factor * (1 + linear * s + quadratic * (s**2 - 1) / math.sqrt(2))).linear_model()
    assert model.coefficient == pytest.approx(linear, abs=1e-12)
    assert model.noise_variance == pytest.approx(quadratic**2, rel=1e-11)


def test_expression_with_beta_against_scaled_variable():
    """beta*x² uses β as it stands and S as it is; x² is taken at βS."""
    by_name = head(1 + BETA * X**2, 2.0).linear_model()
    by_scale = head(1 + X**2, math.sqrt(2.0)).linear_model()
    assert by_name.noise_variance == pytest.approx(by_scale.noise_variance, rel=1e-12)
    spread = head(1 + BETA * X**2, 2.0, width=100, covariance=[2.0]).linear_model()
    assert spread.noise_variance == pytest.approx(head(1 + X**2, 2 * math.sqrt(2.0)).linear_model().noise_variance)


@pytest.mark.parametrize("score", [np.exp, lambda s: np.maximum(s, 0), lambda s: 1 / (1 + np.exp(-s)), np.abs])
def test_law_against_simulation(score):
    """Linear model of the size at hand within 8/n, attention within the finite-size distance of a few percent."""
    a = head(score, 0.8)
    law, rng = a.limit_law(), np.random.default_rng(12)
    linear = [squared_singular_values(draw_linear_model(a, rng)) for _ in range(2)]
    assert compare(law, linear).ks < 8 / a.tokens
    assert compare(law, [a.spectrum(rng) for _ in range(2)]).ks < 0.03
    np.testing.assert_allclose(a.sample(rng).sum(axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (lambda s: -np.exp(s), "with a negative mean the row sums that normalise attention do not settle above zero"),
        (np.tanh, "with a zero mean the row sums"),
        (lambda s: 1 + 0.1 * s, "score must not be affine or constant"),
        (lambda s: np.ones_like(s), "score must not be affine or constant"),
        (lambda s: np.zeros_like(s), "score must not vanish everywhere"),
        (lambda s: np.exp(s * s), "score must be finite for all scores within"),
        (lambda s: np.exp(s * s / 3), "score must be square-integrable"),
        (lambda s: s[0], "score must map an array of real numbers to real numbers of the same shape"),
        (lambda s: s + 1j, "score must map an array of real numbers"),
        (5, "score must be a callable or a sympy expression; got 5"),
        ("exp", "score must be a callable or a sympy expression; got 'exp'"),
        (X * sympy.Symbol("y"), "score must have one variable"),
    ],
)
def test_refusals(score, message):
    with pytest.raises(ParameterError, match=message):
        head(score)


def test_wild_scores_are_not_certified():
    with pytest.raises((CertificationError, ParameterError), match=r"score|Gaussian moments"):
        head(lambda s: 1 + np.sign(np.sin(1e9 * s)))


def test_a_row_that_vanishes_is_an_error():
    """ReLU with two keys: a quarter of the rows are zero."""
    with pytest.raises(CertificationError, match=r"a row of f\(beta S\) sums to 0\.0 over 2 keys"):
        Attention(tokens=50, head_dim=20, keys=2, score=lambda s: np.maximum(s, 0)).sample(1)
