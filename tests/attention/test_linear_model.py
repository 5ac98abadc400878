"""Coefficient and noise of the linear model against mpmath at 60 digits."""

from __future__ import annotations

import math

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gequiv import Attention, LinearModel, ParameterError


def exact(beta):
    with mpmath.workdps(60):
        square = mpmath.mpf(beta) ** 2
        total = mpmath.expm1(square)
        return square, total - square, total


@pytest.mark.parametrize("beta", [1e-8, 1e-4, 1e-3, 0.03, 0.3, 0.999, 1.0, 1.2247, 1.23, 3.0, 10.0, 26.0, 26.6])
def test_against_mpmath(beta):
    model = Attention(tokens=10, head_dim=5, beta=beta).linear_model()
    square, noise, total = exact(beta)
    assert model.coefficient == beta
    assert model.noise_variance == pytest.approx(float(noise), rel=1e-14)
    assert model.total_variance == pytest.approx(float(total), rel=1e-14)
    assert model.log_total_variance == pytest.approx(float(mpmath.log(total)), rel=1e-14)
    assert model.signal_share == pytest.approx(float(square / total), rel=1e-13)
    assert model.noise_share == pytest.approx(float(noise / total), rel=1e-13)
    first, second = model.exact_variances()
    with mpmath.workdps(60):
        for fraction, value in ((first, square), (second, noise)):
            assert abs(mpmath.mpf(fraction.numerator) / fraction.denominator / value - 1) < mpmath.mpf(10) ** -40


def test_small_beta_does_not_cancel():
    assert Attention(tokens=2, head_dim=1, beta=1e-4).linear_model().noise_variance == pytest.approx(
        0.5e-16 * (1 + 1e-8 / 3), rel=1e-14
    )


@given(st.floats(1e-6, 26.6))
def test_shares_add_up(beta):
    model = LinearModel(beta)
    assert model.signal_share + model.noise_share == pytest.approx(1, rel=1e-14)
    assert model.noise_variance + beta**2 == pytest.approx(model.total_variance, rel=1e-14)
    assert model.noise_variance > 0


def test_beyond_the_floats():
    model = LinearModel(27.0)
    with pytest.raises(ParameterError, match=r"beta must be at most 26\.64.*got 27\.0.*rescaled=True"):
        _ = model.noise_variance
    with pytest.raises(ParameterError, match=r"at most 26\.64"):
        _ = model.total_variance
    assert model.log_total_variance == 27.0**2
    assert model.signal_share == pytest.approx(729 * math.exp(-729), rel=1e-12)
    assert LinearModel(100.0).signal_share == 0
    assert LinearModel(100.0).noise_share == 1


def test_hermite_coefficients_by_quadrature():
    """β and σ² as the projections of e^{βx-β²/2} that they claim to be."""
    beta = 0.8
    with mpmath.workdps(30):
        weight = lambda x: mpmath.exp(-(x**2) / 2) / mpmath.sqrt(2 * mpmath.pi)  # noqa: E731
        f = lambda x: mpmath.exp(beta * x - mpmath.mpf(beta) ** 2 / 2)  # noqa: E731
        first = mpmath.quad(lambda x: x * f(x) * weight(x), [-15, 0, 15])
        second = mpmath.quad(lambda x: f(x) ** 2 * weight(x), [-15, 0, 15])
    model = LinearModel(beta)
    assert model.coefficient == pytest.approx(float(first), rel=1e-14)
    assert model.noise_variance == pytest.approx(float(second - 1 - first**2), rel=1e-12)


@pytest.mark.parametrize("beta", [0, -1.0, math.nan, math.inf, "1", None, True])
def test_bad_beta(beta):
    with pytest.raises(ParameterError, match="beta must be a finite real number above 0"):
        LinearModel(beta)
