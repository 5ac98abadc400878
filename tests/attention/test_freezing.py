"""Rows as a random energy model: closed cases, quadrature in 25 digits, draws, the approach to the limit."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gequiv.attention import freezing
from gequiv.attention.freezing import log_normaliser_mean, participation, participation_limit, threshold
from gequiv.errors import CertificationError, ParameterError

REFERENCE = Path(__file__).resolve().parents[1] / "reference" / "freezing.json"
SIGMAS = 5.0  # two-sided significance 6e-7 for each comparison with draws; the seeds are fixed


@pytest.fixture(scope="module")
def context():
    made = mpmath.MPContext()
    made.dps = 30
    return made


@pytest.mark.parametrize("beta", [1e-3, 0.3, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("power", [1, 2])
def test_two_keys(context, beta, power):
    # shares (1 ± tanh(pβ(g₁ - g₂)/2))/2, so that Y = (1 + E tanh²)/2, and log Σ w/2 = β(g₁ + g₂)/2 + log cosh
    b = context.mpf(beta)
    ends = [0, min(1, 4 / beta), 2, 6, 15]

    def mean(function):
        return 2 * context.quad(lambda g: function(b * g / context.sqrt(2)) * context.npdf(g), ends)

    assert participation(2, beta, power) == pytest.approx(
        float((1 + mean(lambda x: context.tanh(power * x) ** 2)) / 2), rel=1e-10
    )
    expected = mean(lambda x: x + context.log1p(context.expm1(-2 * x) / 2)) - b**2 / 2
    assert log_normaliser_mean(2, beta) == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize("case", json.loads(REFERENCE.read_text(encoding="utf-8")), ids=lambda case: case["name"])
def test_reference_values(case):
    assert participation(case["keys"], case["beta"]) == pytest.approx(float(case["participation"]), rel=1e-11)
    assert log_normaliser_mean(case["keys"], case["beta"]) == pytest.approx(float(case["log_normaliser"]), rel=1e-9)


@pytest.mark.parametrize("beta", [1e-3, 1.0, 30.0])
def test_one_key(beta):
    assert participation(1, beta) == participation(1, beta, 2) == 1
    assert log_normaliser_mean(1, beta) == -(beta**2) / 2


@pytest.mark.parametrize("keys", [2, 50, 10**6, 10**12])
def test_small_beta(keys):
    # Σ (1 + βx)²/(Σ (1 + βx))² to second order: 1/n + β²(n - 1)/n²; E log of the mean weight: -β²/(2n)
    for power in (1, 2):
        b = power * 1e-3
        assert participation(keys, 1e-3, power) * keys == pytest.approx(1 + b**2 * (1 - 1 / keys), rel=3 * b**4)
    assert log_normaliser_mean(keys, 1e-3) * keys == pytest.approx(-1e-6 / 2, rel=3e-6)
    assert log_normaliser_mean(keys, 1e-6) * keys == pytest.approx(-1e-12 / 2, rel=1e-9)


@pytest.mark.parametrize(("beta", "power"), [(0.5, 1), (1.0, 1), (0.5, 2)])
def test_many_keys(beta, power):
    # with q = e^{σ²}: E Σw²/(Σw)² = q/n + (3q(q - 1) - 2(q³ - q))/n² + O(1/n³) - what β = 0 has, and
    # E log Σw/(n E w) = -(q - 1)/(2n) + O(1/n²) by the delta method
    q = math.exp((power * beta) ** 2)
    values = [keys * (keys * participation(keys, beta, power) - q) for keys in (1e4, 2e4, 4e4)]
    once = [2 * b - a for a, b in itertools.pairwise(values)]
    assert (4 * once[1] - once[0]) / 3 == pytest.approx(q * (q - 1) - q * (2 * q - 1) * (q - 1) - q * q + q, rel=0.02)
    if power == 1:
        assert log_normaliser_mean(10**12, beta) * 1e12 == pytest.approx(-(q - 1) / 2, rel=1e-9)


CASES = [(5, 0.5), (40, 1.0), (100, 2.0), (30, 4.0), (1000, 3.0)]


@pytest.mark.parametrize(("keys", "beta"), CASES)
def test_draws(keys, beta):
    rng = np.random.default_rng(2718)
    scores = beta * rng.standard_normal((2_000_000 // keys, keys))
    top = scores.max(axis=1, keepdims=True)
    w = np.exp(scores - top)
    total = w.sum(axis=1)
    for found, expected in [
        ((w**2).sum(axis=1) / total**2, participation(keys, beta)),
        ((w**4).sum(axis=1) / (w**2).sum(axis=1) ** 2, participation(keys, beta, 2)),
        (top[:, 0] + np.log(total / keys) - beta**2 / 2, log_normaliser_mean(keys, beta)),
    ]:
        assert abs(found.mean() - expected) < SIGMAS * found.std() / math.sqrt(found.size)


def test_draws_of_attention():
    # given its query a row of attention has iid scores of variance |q|²/d_k
    rng = np.random.default_rng(31)
    keys, head_dim, beta = 30, 8, 1.5
    q, k = rng.standard_normal((60_000, 1, head_dim)), rng.standard_normal((60_000, head_dim, keys))
    scores = beta * (q @ k)[:, 0] / math.sqrt(head_dim)
    w = np.exp(scores)
    for found, expected in [
        ((w**2).sum(axis=1) / w.sum(axis=1) ** 2, participation(keys, beta, head_dim=head_dim)),
        (np.log(w.mean(axis=1)) - beta**2 / 2, log_normaliser_mean(keys, beta, head_dim=head_dim)),
    ]:
        error = found.std() / math.sqrt(found.size)
        assert abs(found.mean() - expected) < SIGMAS * error
    assert abs(found.mean() - log_normaliser_mean(keys, beta)) > SIGMAS * error  # which the norms alone explain
    assert participation(100, 0.7, head_dim=10**9) == pytest.approx(participation(100, 0.7), rel=1e-8)


@pytest.mark.parametrize("power", [1, 2])
def test_the_limit_is_approached(power):
    # on either side the distance from the limit falls over fourteen doublings
    sizes = [10**k for k in (2, 4, 6, 8, 10, 12)]
    for times in (0.25, 0.5, 1.5, 2, 4):
        gamma = times * threshold(power)
        limit = participation_limit(gamma, power)
        assert limit == pytest.approx(max(0.0, 1 - 1 / math.sqrt(times)), abs=1e-15)
        gaps = [abs(participation(n, math.sqrt(gamma * math.log(n)), power) - limit) for n in sizes]
        assert all(b < a for a, b in itertools.pairwise(gaps))
        assert gaps[-1] < (1e-4 if times < 0.3 else 0.1)
    # at the threshold (log n)^{-1/2}: the window of γ in which the largest and the many compete
    at = [participation(n, math.sqrt(threshold(power) * math.log(n)), power) * math.sqrt(math.log(n)) for n in sizes]
    assert max(at[2:]) / min(at[2:]) < 1.1


def test_powers_rescale_beta():
    assert threshold() == 2
    assert threshold(2) == 0.5
    assert participation(700, 1.1, 2) == participation(700, 2.2)
    assert participation_limit(0.9, 2) == participation_limit(3.6)


def test_log_normaliser_beyond_the_threshold():
    # to leading order in log n: β√(2 log n) - log n - β²/2, that is -(√γ - √2)²/2 log n; the next terms are of order
    # β log log n/√(log n)
    big = math.log(10**12)
    for gamma in (4, 8, 16, 30):
        beta = math.sqrt(gamma * big)
        expected = -((math.sqrt(gamma) - math.sqrt(2)) ** 2) / 2 * big
        found = log_normaliser_mean(10**12, beta)
        assert -beta * math.log(4 * math.pi * big) / math.sqrt(2 * big) < found - expected < 0


@settings(max_examples=40, deadline=None)
@given(st.floats(0, 12), st.floats(1e-3, 8), st.floats(1.01, 2), st.integers(1, 2))
def test_order_and_range(exponent, beta, factor, power):
    keys = round(10**exponent)
    value = participation(keys, beta, power)
    assert 1 / keys <= value * (1 + 1e-10)
    assert value <= 1
    assert participation(keys + 1 + keys // 3 if keys < 5 * 10**11 else keys, beta, power) <= value * (1 + 1e-10)
    assert value <= participation(keys, beta * factor, power) * (1 + 1e-10)
    drift = log_normaliser_mean(keys, beta)
    assert -(beta**2) / 2 * (1 + 1e-12) <= drift < 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: participation(0, 1.0), "keys must be an integer of at least 1; got 0"),
        (lambda: participation(10**13, 1.0), r"keys must be at most 1e\+12"),
        (lambda: participation(10, 0.0), "beta must be a finite real number above 0"),
        (lambda: participation(10, 31.0, 2), r"power \* beta must be in"),
        (lambda: log_normaliser_mean(10, 61.0), "beta must be in"),
        (lambda: participation(10, 1.0, 1.5), "power must be an integer"),
        (lambda: participation(10, 1.0, head_dim=0), "head_dim must be an integer"),
        (lambda: participation_limit(-1.0), "gamma must be"),
        (lambda: threshold(0), "power must be"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ParameterError, match=message):
        call()


def test_norms_that_spread_too_far_are_refused():
    with pytest.raises(CertificationError, match="try a larger head_dim"):
        participation(1000, 1.5, head_dim=1)


def test_coarse_rules_are_refused(monkeypatch):
    monkeypatch.setattr(freezing, "_STEPS", (2.5, 1.9))
    with pytest.raises(CertificationError, match="two quadratures over 977 keys"):
        participation(977, 1.2345)
