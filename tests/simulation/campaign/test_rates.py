"""Exponents of lines of models: exact power laws, coverage of intervals, curvature."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gequiv.attention import Attention
from gequiv.simulation.campaign.measured import LawMeasured, Measured
from gequiv.simulation.campaign.model import Model, Plan
from gequiv.simulation.campaign.power import interval, student
from gequiv.simulation.campaign.rates import fit_rates, fit_slope

PLACES = [math.log(n) for n in (250, 500, 1000, 2000)]


@given(st.floats(-3, 3), st.floats(-5, 5), st.lists(st.integers(1, 6), min_size=3, max_size=6))
def test_exact_power_law(exponent, constant, counts):
    places = [math.log(100 * 2**k) for k in range(len(counts))]
    slope = fit_slope(places, [[constant + exponent * x] * r for x, r in zip(places, counts, strict=True)])
    assert slope.value == pytest.approx(exponent, abs=1e-10)
    assert slope.error < 1e-9
    assert not slope.curved


def test_least_squares_over_single_draws():
    rng = np.random.default_rng(0)
    samples = [rng.standard_normal(r) for r in (2, 5, 3, 7)]
    x = np.repeat(PLACES, [2, 5, 3, 7])
    assert fit_slope(PLACES, samples).value == pytest.approx(np.polyfit(x, np.concatenate(samples), 1)[0])


def coverage(draws, spreads, misfit, bend=0.0, count=1500, seed=1):
    """Share of intervals that cover the exponent, and of lines that are called curved."""
    rng = np.random.default_rng(seed)
    covered = curved = 0
    x = np.array(PLACES)
    for _ in range(count):
        centre = -0.7 * x + misfit * rng.standard_normal(4) + bend * (x - x.mean()) ** 2
        samples = [c + s * rng.standard_normal(draws) for c, s in zip(centre, spreads, strict=True)]
        slope = fit_slope(PLACES, samples)
        found = interval(slope.value, slope.error, slope.freedom)
        covered += found.low <= -0.7 <= found.high
        curved += slope.curved
    return covered / count, curved / count


@pytest.mark.parametrize(
    ("draws", "spreads"), [(2, [0.3] * 4), (4, [0.3] * 4), (10, [0.5, 0.3, 0.2, 0.1]), (1, [0.3] * 4)]
)
def test_coverage_with_noise_of_draws(draws, spreads):
    """1500 lines; the bounds are 3.5 standard deviations from 95 % and 5 %: 2e-4 each for eight checks."""
    covered, curved = coverage(draws, spreads, misfit=0.0)
    assert 0.93 <= covered <= 0.99
    assert curved <= 0.07


@pytest.mark.parametrize(("draws", "misfit"), [(4, 0.05), (10, 0.1), (20, 0.2)])
def test_coverage_with_misfit_that_draws_have_in_common(draws, misfit):
    """Scatter of the means about the line that more draws do not reduce; noise of single draws is 0.1."""
    covered, _ = coverage(draws, [0.1] * 4, misfit)
    assert covered >= 0.89


def test_degrees_of_freedom_are_those_of_the_half_width():
    rng = np.random.default_rng(2)
    samples = [c + 0.1 * rng.standard_normal(3) for c in (0.0, 0.5, 0.1, 0.9)]
    slope = fit_slope(PLACES, samples)
    x = np.array(PLACES) - np.mean(PLACES)
    y = np.mean(samples, axis=1)
    noise = np.var(samples, axis=1, ddof=1).mean()
    misfit = 3 * np.sum((y - y.mean() - slope.value * x) ** 2) / 2
    parts = [student(8) ** 2 * noise, student(2) ** 2 * (misfit - noise)]
    found = interval(slope.value, slope.error, slope.freedom)
    assert found.high - slope.value == pytest.approx(math.sqrt(sum(parts) / (3 * x @ x)))


def test_curved_lines_are_seen_and_have_wide_intervals():
    _, curved = coverage(4, [0.1] * 4, misfit=0.0, bend=0.3, count=200)
    assert curved > 0.95
    straight = [[c + d for d in (-0.1, 0.1)] for c in -0.7 * np.array(PLACES)]
    bent = [[v + 0.2 * (x - PLACES[0]) ** 2 for v in s] for s, x in zip(straight, PLACES, strict=True)]
    a, b = fit_slope(PLACES, straight), fit_slope(PLACES, bent)
    width = [interval(s.value, s.error, s.freedom).high - s.value for s in (a, b)]
    assert width[1] > 1.5 * width[0]


def measured(ks, errors=()):
    law = LawMeasured(ks=np.array(ks))
    empty = np.empty(0)
    return Measured(
        indices=tuple(range(len(ks))),
        missing=(),
        damaged=(),
        laws={"finite": law},
        distances={},
        noise=None,
        edges=empty,
        heights=empty,
        zeros=0.0,
        tops=np.empty((len(ks), 0)),
        rows=np.empty((0, 4, 3)),
        errors=np.array(errors),
        step=0.0,
    )


def line(beta=0.5, sizes=(100, 200, 400), group="g"):
    return [
        Model(group, Attention(n, 50, beta), Plan(), ("finite",), (1, 2), {"tokens": n, "head_dim": 50, "beta": beta})
        for n in sizes
    ]


def test_one_rate_a_line():
    models = [*line(), *line(beta=1.0), *line(group="short", sizes=(100, 200))]
    found = {id(model): measured([3 / model.head.tokens] * 2) for model in models}
    rates = fit_rates(models, found)
    assert [rate.axes for rate in rates] == [{"head_dim": 50, "beta": 0.5}, {"head_dim": 50, "beta": 1.0}]
    for rate in rates:
        assert rate.exponent.value == pytest.approx(-1)
        assert [point[0] for point in rate.points] == [100, 200, 400]
        assert rate.slack == 0


def test_models_without_draws_are_left_out():
    models = line(sizes=(100, 200, 400, 800))
    found = {id(model): measured([1 / model.head.tokens] * 2) for model in models}
    found[id(models[0])] = measured([])
    (rate,) = fit_rates(models, found)
    assert [point[0] for point in rate.points] == [200, 400, 800]
    found[id(models[1])] = measured([])
    assert fit_rates(models, found) == ()


def test_slack_of_matrix_free_estimates_bounds_their_effect():
    """Exponents of distances moved within the error of the estimates stay within the slack."""
    models = line()
    error, rng = 1e-3, np.random.default_rng(3)
    (rate,) = fit_rates(models, {id(m): measured([3 / m.head.tokens] * 2, [error] * 2) for m in models})
    for signs in rng.choice([-1, 1], (20, 3)):
        moved = {id(m): measured([3 / m.head.tokens + s * error] * 2) for m, s in zip(models, signs, strict=True)}
        (other,) = fit_rates(models, moved)
        assert abs(other.exponent.value - rate.exponent.value) <= rate.slack
    (lost,) = fit_rates(models, {id(m): measured([3 / m.head.tokens] * 2, [0.01] * 2) for m in models})
    assert lost.slack == math.inf
