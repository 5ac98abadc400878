"""Energy of rows over finitely many keys: closed cases, quadrature in 40 digits, draws."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gequiv.attention.row_energy import energy_nodes, mean_energy, rest_variance

SIGMAS = 5.0  # two-sided significance 6e-7 for each comparison with draws; the seeds are fixed


@pytest.fixture(scope="module")
def context():
    made = mpmath.MPContext()
    made.dps = 40
    return made


@pytest.mark.parametrize("beta", [1e-6, 0.007, 0.01, 0.1, 0.5, 1.0, 2.0])
def test_two_keys(context, beta):
    # A - 1/2 = ± tanh(β(x₁ - x₂)/2)/2, and x₁ - x₂ = √2 g
    b = context.mpf(beta)
    integral = context.quad(lambda g: context.tanh(b * g / context.sqrt(2)) ** 2 * context.npdf(g), [-14, -4, 0, 4, 14])
    assert mean_energy(beta, 2.0) == pytest.approx(float(integral / context.expm1(b * b)), rel=1e-7)


@pytest.mark.parametrize("keys", [0.5, 1, 1.0])
def test_one_key(keys):
    assert mean_energy(0.7, keys) == 0


@pytest.mark.parametrize("beta", [1e-3, 0.3, 0.5, 1.0])
def test_many_keys(beta):
    # with q = e^{β²}: E k²Σw²/(Σw)² = q + (3q(q-1) - 2(q³-q))/k + O(1/k²) by the delta method, so that
    # k (1 - mean_energy) → q(2q - 1)
    q = math.exp(beta**2)
    values = [keys * (1 - mean_energy(beta, keys)) for keys in (1e3, 2e3, 4e3)]
    once = [2 * b - a for a, b in itertools.pairwise(values)]
    assert (4 * once[1] - once[0]) / 3 == pytest.approx(q * (2 * q - 1), rel=2e-3)
    assert mean_energy(beta, 1e9) == pytest.approx(1, abs=1e-7)


@settings(max_examples=20, deadline=None)
@given(st.floats(1e-5, 2.5), st.floats(1, 1e5), st.floats(1.01, 3))
def test_more_keys_have_more_energy(beta, keys, factor):
    few, many = mean_energy(beta, keys), mean_energy(beta, keys * factor)
    assert 0 <= few <= 1
    assert few <= many + 1e-9
    assert many <= 1


@pytest.mark.parametrize("keys", [2, 7, 300])
def test_small_beta(keys):
    # A - 1/k = β(x - mean x)/k: energy β²(k-1)/k
    assert mean_energy(1e-7, float(keys)) == pytest.approx(1 - 1 / keys, rel=1e-11)
    below, above = mean_energy(0.01 * (1 - 1e-9), float(keys)), mean_energy(0.01, float(keys))
    assert below == pytest.approx(above, rel=1e-8)


@pytest.mark.parametrize(("beta", "keys"), [(0.5, 5), (1.0, 40), (1.5, 100), (2.5, 30)])
def test_mean_energy_of_draws(beta, keys):
    rng = np.random.default_rng(314)
    w = np.exp(beta * rng.standard_normal((2_000_000 // keys, keys)))
    energy = keys * ((w / w.sum(axis=1, keepdims=True) - 1 / keys) ** 2).sum(axis=1) / math.expm1(beta**2)
    error = energy.std() / math.sqrt(energy.size)
    assert abs(energy.mean() - mean_energy(beta, float(keys))) < SIGMAS * error


@settings(max_examples=40, deadline=None)
@given(st.floats(0.01, 6), st.integers(0, 8))
def test_rest_variance(beta, degree):
    square = Fraction(beta) ** 2
    total, term, order = Fraction(0), Fraction(1), 0
    while order <= degree or term > Fraction(1, 10**20) * total:
        order += 1
        term = (term * square / order).limit_denominator(10**80) if order > 5 else term * square / order
        if order > degree:
            total += term
    assert rest_variance(beta, degree) == pytest.approx(float(total), rel=1e-13)


def remainder(x, beta, degree):
    """f beyond its Hermite degrees up to `degree`, by the explicit polynomials, over its standard deviation."""
    series = np.polynomial.hermite_e.hermeval(x, [beta**k / math.factorial(k) for k in range(degree + 1)])
    return (np.exp(beta * x - beta**2 / 2) - series) / math.sqrt(rest_variance(beta, degree))


CASES = [(0.5, 2, 500), (1.0, 2, 500), (1.0, 1, 200), (1.5, 1, 500), (2.0, 1, 100), (2.5, 1, 500)]


@pytest.mark.parametrize(("beta", "degree", "keys"), CASES)
def test_nodes_of_draws(beta, degree, keys):
    # 40 batches of 500 rows, each with its own conditional means below the quantiles; the top one is left to the mean,
    # whose tail no sample shows
    rng = np.random.default_rng(271)
    found = energy_nodes(beta, degree, keys, 0.95)
    np.testing.assert_allclose(found.shares, [0.7, 0.25, 0.05], rtol=1e-14)
    assert found.moment(1) == pytest.approx(1, rel=1e-12)
    batches = []
    for _ in range(40):
        energy = np.sort((remainder(rng.standard_normal((500, keys)), beta, degree) ** 2).mean(axis=1))
        batches.append([energy[:350].mean(), energy[350:475].mean(), energy[475:].mean()])
    batches = np.array(batches)
    mean, error = batches.mean(axis=0), batches.std(axis=0, ddof=1) / math.sqrt(len(batches))
    # batches of 500 bias their quantiles by about 1/500 of the spread
    bias = np.array([0.002, 0.004, 0.02]) * found.nodes[1]
    within = np.abs(mean - found.nodes) < SIGMAS * error + bias
    assert within[:2].all()
    if beta <= 1:
        assert within[2]


@settings(max_examples=15, deadline=None)
@given(st.floats(0.05, 2.7), st.integers(1, 5), st.floats(1, 1e5))
def test_nodes_are_a_spread_of_mean_one(beta, degree, keys):
    found = energy_nodes(beta, degree, keys, 0.95)
    assert (np.diff(found.nodes) > 0).all()
    assert found.nodes[0] > 0
    assert found.moment(1) == pytest.approx(1, rel=1e-12)


def test_the_spread_vanishes():
    # Var ξ = (E r⁴/(E r²)² - 1)/k; for Gaussian ξ the means between the quantiles are 1 - a, 1 + b, 1 + c standard
    # deviations with numbers from the normal density at its quantiles
    x = np.linspace(-14, 14, 20001)
    density = np.exp(-(x**2) / 2)
    density /= density.sum()
    r = remainder(x, 0.5, 1)
    deviation = math.sqrt((density @ r**4 - 1) / 1e6)
    context = mpmath.MPContext()
    level = [0] + [context.npdf(context.sqrt(2) * context.erfinv(2 * p - 1)) for p in (0.7, 0.95)] + [0]
    means = [float((a - b) / s) for a, b, s in zip(level, level[1:], (0.7, 0.25, 0.05), strict=False)]
    np.testing.assert_allclose((energy_nodes(0.5, 1, 1e6, 0.95).nodes - 1) / deviation, means, rtol=0.02)
