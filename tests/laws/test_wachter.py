"""Wachter: contract, mpmath at 40 digits, moments by two routes, symmetries, the ensemble itself."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gequiv import ParameterError
from gequiv.laws import Arcsine, MarchenkoPastur, Wachter
from tests.laws.contract import check_contract, check_densities, transform_errors

CASES = [(0.5, 1.7), (2.0, 3.0), (0.7, 0.6), (3.0, 0.2), (40.0, 25.0)]
HARD = [(1.0, 1.0), (1.0, 2.5), (0.4, 1.0)]


@pytest.mark.parametrize(("first", "second"), CASES + HARD)
def test_contract(first, second):
    check_contract(Wachter(first, second), tolerance=1e-7 if second == 1 else 1e-9)


def edges(first, second):
    a, b = mpmath.mpf(first), mpmath.mpf(second)
    s = a + b
    outer, inner = mpmath.sqrt(a * (s - 1)), mpmath.sqrt(b)
    return a, s, ((outer - inner) / s) ** 2, ((outer + inner) / s) ** 2


@pytest.mark.parametrize(("first", "second"), [*CASES, *HARD, (1 + 1e-6, 3.0)])
def test_against_mpmath(first, second):
    law = Wachter(first, second)
    with mpmath.workdps(40):
        _, s, low, high = edges(first, second)
        assert law.support()[0][0] == pytest.approx(float(low), rel=1e-14)
        assert law.support()[0][1] == pytest.approx(float(high), rel=1e-15)
        assert 1 - law.support()[0][1] == pytest.approx(float(1 - high), rel=1e-12, abs=1e-16)

    def density(x):
        # between the edges that the law has in floats, or the difference in the roots would count
        left, right = (mpmath.mpf(edge) for edge in law.support()[0])
        return s * mpmath.sqrt((x - left) * (right - x)) / (2 * mpmath.pi * x * (1 - x))

    check_densities(law, density, fractions=(0.1, 0.8))

    def exact(z):
        a, s, low, high = edges(first, second)
        root = mpmath.sqrt(z - low) * mpmath.sqrt(z - high)
        return (1 - a + (s - 2) * z - s * root) / (2 * z * (1 - z))

    points = [0.3 + 0.2j, 0.5 + 1e-6j, -1e-9, 1 + 1e-9j, 1.01, 20 + 3j, -1e6, 1e4j]
    g, slope = transform_errors(law, exact, points)
    assert g < 5e-15
    assert slope < 5e-14


@pytest.mark.parametrize(("first", "second"), CASES)
def test_moments_from_the_quadratic_equation(first, second):
    # z(1-z)G² - (1-a+(s-2)z)G + s - 1 = 0 as a recursion for the moments, at 60 digits
    law = Wachter(first, second)
    with mpmath.workdps(60):
        a, s, _, _ = edges(first, second)
        moments = [mpmath.mpf(1)]
        for n in range(1, 31):
            pairs = sum(moments[i] * moments[n - 1 - i] for i in range(n))
            inner = sum(moments[i] * moments[n - i] for i in range(1, n))
            moments.append((pairs - (1 - a) * moments[n - 1] - inner) / s)
        for k, value in enumerate(moments):
            assert law.moment(k) == pytest.approx(float(value), rel=1e-15)
    assert law.variance() == pytest.approx(float(moments[2] - moments[1] ** 2), rel=1e-14)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.05, 20), st.floats(0.05, 20), st.floats(0.01, 0.99))
def test_exchange_turns_the_law_over(first, second, x):
    if first + second < 1.01:
        first += 1
    law, mirrored = Wachter(first, second), Wachter(second, first)
    assert law.cdf(x) == pytest.approx(1 - mirrored.cdf(1 - x), abs=1e-12)
    assert law.pdf(x) == pytest.approx(mirrored.pdf(1 - x), rel=1e-6, abs=1e-6)
    assert law.mean() == pytest.approx(1 - mirrored.mean(), rel=1e-12)


def test_special_cases():
    x = np.linspace(-0.1, 1.1, 41)
    np.testing.assert_allclose(Wachter(1, 1).cdf(x), Arcsine(0, 1).cdf(x), atol=1e-14)
    assert Wachter(1, 1).pdf([0, 1]).tolist() == [math.inf, math.inf]
    # with many more columns in Y, (a+b) times the law tends to that of X Xᵀ/m
    wide = Wachter(2, 1e8)
    y = np.linspace(0, 7, 15)
    np.testing.assert_allclose(wide.cdf(y / 1e8), MarchenkoPastur(0.5, 2).cdf(y), atol=1e-6)


def test_ensemble():
    rng, m = np.random.default_rng(2), 240
    for first, second in [(0.5, 1.7), (2.0, 3.0), (0.7, 0.6)]:
        x, y = rng.standard_normal((m, round(first * m))), rng.standard_normal((m, round(second * m)))
        values = np.sort(np.linalg.eigvals(x @ x.T @ np.linalg.inv(x @ x.T + y @ y.T)).real)
        law = Wachter(first, second)
        assert np.max(np.arange(1, m + 1) / m - law.cdf(values + 1e-8)) < 5 / m
        assert np.max(law.cdf(values - 1e-8) - np.arange(m) / m) < 5 / m
        assert np.mean(values**3) == pytest.approx(law.moment(3), abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 2), "first must be"),
        ((1, math.nan), "second must be"),
        ((0.5, 0.5), "above 1"),
        ((0.3, 0.2), "above 1"),
    ],
)
def test_bad_parameters(arguments, message):
    with pytest.raises(ParameterError, match=message):
        Wachter(*arguments)
