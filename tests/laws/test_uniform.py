"""Uniform: contract, mpmath at 40 digits, exact moments."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gequiv import ParameterError
from gequiv.laws import Uniform
from gequiv.laws.uniform import log_ratio
from tests.laws.contract import check_contract, check_densities, transform_errors

CASES = [(-1.0, 2.5), (3.0, 4.0), (-3.0, -2.75)]


@pytest.mark.parametrize(("low", "high"), CASES)
def test_contract(low, high):
    check_contract(Uniform(low, high))


@pytest.mark.parametrize(("low", "high"), CASES)
def test_against_mpmath(low, high):
    law = Uniform(low, high)
    check_densities(law, lambda x: 1 / (mpmath.mpf(high) - mpmath.mpf(low)))
    near = low + (high - low) * np.array([0.3 + 0.1j, 0.7 + 1e-7j, 1.5, -0.001, 1e-9j, 1 + 1e-4j, -30])
    points = [*near, 1e6 + 1e5j, -1e12, 1e15j, 1e-8j + low]
    g, slope = transform_errors(law, lambda z: mpmath.log((z - low) / (z - high)) / (high - low), points)
    assert g < 1e-15
    assert slope < 1e-15


@settings(max_examples=60, deadline=None)
@given(st.floats(-1e3, 1e3), st.floats(1e-12, 1e8), st.booleans())
def test_logarithm_part_by_part(x, y, below):
    z = complex(x, -y if below else y)
    value = log_ratio(np.array([z]), -1.5, 2.0)[0]
    with mpmath.workdps(40):
        exact = mpmath.log((mpmath.mpc(z) + 1.5) / (mpmath.mpc(z) - 2))
        assert value.real == pytest.approx(float(exact.real), rel=2e-15, abs=1e-20)
        assert value.imag == pytest.approx(float(exact.imag), rel=2e-15)


def test_logarithm_at_large_and_small_arguments():
    z = np.array([1e200 + 1e200j, -1e308, 1e160, 2.0, np.inf])
    value = log_ratio(z, -1.0, 1.0)
    np.testing.assert_allclose(value[:3] * (z[:3] / 2), 1, rtol=1e-15)
    assert value[3] == pytest.approx(math.log(3), rel=1e-15)
    assert value[4] == 0


def test_exact_moments():
    law = Uniform(-0.75, 2)
    for k in range(12):
        a, b = Fraction(-3, 4), Fraction(2)
        assert law.moment(k) == float((b ** (k + 1) - a ** (k + 1)) / ((k + 1) * (b - a)))
    assert law.variance() == 2.75**2 / 12
    with pytest.raises(ParameterError, match="exceeds the largest float"):
        Uniform(0, 1e200).moment(2)


def test_quantiles_are_linear():
    assert Uniform(1, 3).ppf([0, 0.25, 1]).tolist() == [1, 1.5, 3]
    assert Uniform(1, 3).pdf([0.99, 1, 2, 3, 3.01]).tolist() == [0, 0.5, 0.5, 0.5, 0]


@pytest.mark.parametrize("arguments", [(1, 1), (2, 1), (-1.5e308, 1.5e308)])
def test_bounds_in_order(arguments):
    with pytest.raises(ParameterError, match="low must lie below high"):
        Uniform(*arguments)


@pytest.mark.parametrize(("arguments", "message"), [((math.inf, 1), "low must be"), ((0, "1"), "high must be")])
def test_bad_parameters(arguments, message):
    with pytest.raises(ParameterError, match=message):
        Uniform(*arguments)
