"""Arcsine: contract, mpmath at 40 digits, central binomial coefficients, a sum of orthogonal matrices."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from gequiv import ParameterError
from gequiv.laws import Arcsine
from tests.laws.contract import check_contract, check_densities, transform_errors

CASES = [(-1.0, 3.0), (0.0, 2.5), (-4.0, -3.0)]


@pytest.mark.parametrize(("low", "high"), CASES)
def test_contract(low, high):
    # at an edge other than 0 the quadrature of the contract loses the mass that lies within the rounding of x
    check_contract(Arcsine(low, high), tolerance=1e-7)


@pytest.mark.parametrize(("low", "high"), CASES)
def test_against_mpmath(low, high):
    law = Arcsine(low, high)
    check_densities(law, lambda x: 1 / (mpmath.pi * mpmath.sqrt((x - low) * (high - x))))
    near = low + (high - low) * np.array([0.3 + 0.1j, 0.7 + 1e-7j, 1.5, -0.001, 1e-9j, 1 + 1e-4j, -30])
    points = [*near, 1e6 + 1e5j, -1e12, 1e15j]
    g, slope = transform_errors(law, lambda z: 1 / (mpmath.sqrt(z - low) * mpmath.sqrt(z - high)), points)
    assert g < 1e-15
    assert slope < 1e-15


def test_central_binomial_coefficients():
    law = Arcsine()
    assert [law.moment(2 * k) for k in range(8)] == [math.comb(2 * k, k) for k in range(8)]
    assert [law.moment(2 * k + 1) for k in range(8)] == [0] * 8
    # on [0, 4] it is the law of the squares
    assert [Arcsine(0, 4).moment(k) for k in range(8)] == [math.comb(2 * k, k) for k in range(8)]
    assert Arcsine(1e6 - 1, 1e6 + 1).variance() == 0.5


def test_quantiles_are_a_cosine():
    q = np.linspace(0, 1, 11)
    np.testing.assert_allclose(Arcsine().ppf(q), -2 * np.cos(math.pi * q), atol=1e-15)
    assert Arcsine().pdf([-2, 2]).tolist() == [math.inf, math.inf]


def test_orthogonal_matrix_and_its_transpose():
    q, r = np.linalg.qr(np.random.default_rng(5).standard_normal((300, 300)))
    q *= np.sign(np.diag(r))  # or it is not uniform
    values = np.linalg.eigvalsh(q + q.T)
    assert np.max(np.abs(Arcsine().cdf(values) - np.arange(1, 301) / 300)) < 5 / 300


def test_bounds_in_order():
    with pytest.raises(ParameterError, match="low must lie below high"):
        Arcsine(3, 3)
