"""Intervals, verdicts and what they could have missed, against simulation and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gequiv.simulation.campaign.findings import LEVEL, Estimate
from gequiv.simulation.campaign.power import estimate, interval, judge, noncentrality, student

FINITE = st.floats(-1e3, 1e3)


def test_interval_of_a_mean():
    found = estimate([1.0, 2.0, 4.0])
    low, high = stats.t.interval(0.95, 2, np.mean([1, 2, 4]), stats.sem([1, 2, 4]))
    assert (found.value, found.low, found.high) == pytest.approx((7 / 3, low, high))
    assert estimate([3.0]) == Estimate(3.0, None, None, None)


@pytest.mark.parametrize("freedom", [1, 2, 3.7, 9, 200])
def test_noncentrality(freedom):
    quantile = student(freedom)
    assert stats.nct.sf(quantile, freedom, noncentrality(freedom, quantile)) == pytest.approx(LEVEL, abs=2e-4)


def test_noncentrality_of_many_draws_is_the_sum_of_normal_quantiles():
    expected = stats.norm.ppf(0.975) + stats.norm.ppf(0.95)
    assert noncentrality(1e7, student(1e7)) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("draws", [2, 4, 20])
def test_detectable_value_fails_with_the_stated_probability(draws):
    """4000 campaigns each; bounds are four standard deviations: 6e-5 for each of six checks."""
    rng = np.random.default_rng(draws)
    error = 1 / math.sqrt(draws)
    reach = judge(Estimate(0.0, error, 0.0, 0.0), draws - 1, high=0.1).high
    detected = wrong = 0
    for sample in rng.standard_normal((4000, draws)):
        detected += judge(estimate(sample + reach), draws - 1, high=0.1).verdict == "failed"
        wrong += judge(estimate(sample + 0.1), draws - 1, high=0.1).verdict == "failed"
    assert detected / 4000 == pytest.approx(LEVEL, abs=0.014)
    assert wrong / 4000 == pytest.approx((1 - LEVEL) / 2, abs=0.01)


@given(FINITE, st.floats(1e-3, 1e2), FINITE, st.floats(0, 1e2), st.floats(0, 10))
def test_verdicts_mirror(value, error, low, width, slack):
    found, mirrored = interval(value, error, 3), interval(-value, error, 3)
    a = judge(found, 3, low, low + width, slack)
    b = judge(mirrored, 3, -low - width, -low, slack)
    assert a.verdict == b.verdict
    assert (a.low, a.high) == (-b.high, -b.low)
    assert a.low < low
    assert a.high > low + width


@given(FINITE, st.floats(1e-3, 1e2), FINITE)
def test_slack_never_decides(value, error, high):
    """Allowing for an error of the estimates can open a verdict, not change it to the other."""
    found = interval(value, error, 3)
    sure, unsure = judge(found, 3, high=high), judge(found, 3, high=high, slack=5.0)
    assert unsure.verdict in (sure.verdict, "not enough draws")
    assert unsure.high == pytest.approx(sure.high + 10)


def test_one_draw_decides_nothing():
    judgement = judge(estimate([0.5]), 0, high=1)
    assert judgement.verdict == "not enough draws"
    assert not judgement.tested
    assert not judgement.fails(1e9)
