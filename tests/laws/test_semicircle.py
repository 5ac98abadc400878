"""Semicircle: contract, mpmath at 40 digits, Catalan numbers."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gequiv import ParameterError
from gequiv.laws import Semicircle
from gequiv.laws.semicircle import angle, from_angle, solve_increasing
from tests.laws.contract import check_contract, check_densities, transform_errors

CASES = [(0.3, 0.7), (4.0, -5.0), (2.5, 0.0)]


@pytest.mark.parametrize(("variance", "mean"), CASES)
def test_contract(variance, mean):
    check_contract(Semicircle(variance, mean))


@pytest.mark.parametrize(("variance", "mean"), CASES)
def test_against_mpmath(variance, mean):
    law = Semicircle(variance, mean)

    with mpmath.workdps(40):
        radius = 2 * mpmath.sqrt(variance)
        assert law.support()[0] == pytest.approx((float(mean - radius), float(mean + radius)), rel=1e-15)

    def density(x):
        # between the edges that the law has in floats, or the difference in the roots would count
        low, high = (mpmath.mpf(edge) for edge in law.support()[0])
        return mpmath.sqrt((x - low) * (high - x)) / (2 * mpmath.pi * mpmath.mpf(variance))

    check_densities(law, density)

    def exact(z):
        v, w = mpmath.mpf(variance), z - mpmath.mpf(mean)
        return 2 / (w + mpmath.sqrt(w - 2 * mpmath.sqrt(v)) * mpmath.sqrt(w + 2 * mpmath.sqrt(v)))

    radius = 2 * math.sqrt(variance)
    far = [1e7 + 1e5j, -1e12, 1e15j]
    near = mean + radius * np.array([0.3 + 0.1j, -0.7 + 1e-7j, 1.5, -1.001, 1e-9j, 1 + 1e-4j, -30])
    g, slope = transform_errors(law, exact, [*near, *far])
    assert g < 1e-14  # next to an edge the rounding of the edge counts
    assert slope < 5e-13


def test_catalan_numbers():
    law = Semicircle()
    assert [law.moment(k) for k in range(11)] == [1, 0, 1, 0, 2, 0, 5, 0, 14, 0, 42]
    assert Semicircle(4).moment(4) == 32
    assert Semicircle(2, 3).moment(2) == 11
    assert Semicircle(2, -3).moment(3) == -(27 + 3 * 3 * 2)
    assert Semicircle(1e-6, 5).variance() == 1e-6


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-3, 1e3), st.floats(-100, 100), st.complex_numbers(max_magnitude=1e4))
def test_quadratic_equation(variance, mean, z):
    z = complex(z.real, abs(z.imag) + 1e-3)
    g = Semicircle(variance, mean).cauchy(z)
    terms = [variance * g * g, -(z - mean) * g, 1.0]
    assert abs(sum(terms)) <= 1e-14 * sum(abs(term) for term in terms) * (1 + abs(mean) / variance**0.5)


def test_edges():
    law = Semicircle(4, 1)
    assert law.support() == [(-3.0, 5.0)]
    assert law.pdf([-3, 5]).tolist() == [0, 0]
    assert law.cdf([-3, 1, 5]).tolist() == [0, 0.5, 1]
    assert (law._cauchy_and_slope(np.array([np.inf + 0j]))[0] == 0).all()


def test_angles_invert_each_other():
    phi = np.concatenate([10.0 ** np.arange(-7, 0), math.pi - 10.0 ** np.arange(-7.0, 0)])
    np.testing.assert_allclose(angle(from_angle(phi, 0.0, 3.0), 0.0, 3.0)[:7], phi[:7], rtol=1e-14)
    np.testing.assert_allclose(angle(from_angle(phi, -2.0, 5.0), -2.0, 5.0), phi, atol=2e-8)


def test_increasing_functions_without_slopes():
    # a slope of zero and one of the wrong size leave bisection to do it
    roots = solve_increasing(lambda x, at: (x**3 - np.array([0.1, 0.5])[at], np.zeros_like(x)), 2, 0.0, 1.0)
    np.testing.assert_allclose(roots**3, [0.1, 0.5], rtol=1e-14)
    roots = solve_increasing(lambda x, at: (np.sign(x - 0.3), 1e-3 * np.ones_like(x)), 1, 0.0, 1.0)
    assert roots[0] == pytest.approx(0.3, abs=1e-15)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "variance must be"),
        ((-1,), "variance must be"),
        ((1, math.nan), "mean must be a finite real number; got nan"),
        ((1, "a"), "mean must be"),
        ((1, True), "mean must be"),
        ((1e-40, 1), "edges round to"),
    ],
)
def test_bad_parameters(arguments, message):
    with pytest.raises(ParameterError, match=message):
        Semicircle(*arguments)


def test_no_more_digits_than_floats():
    law = Semicircle()
    for call in (lambda: law.support(dps=30), lambda: law.moment(2, dps=30), lambda: law.pdf(0, dps=30)):
        with pytest.raises(ParameterError, match="dps must be None for Semicircle"):
            call()


def test_moment_too_large():
    with pytest.raises(ParameterError, match="exceeds the largest float"):
        Semicircle(1e200).moment(4)
