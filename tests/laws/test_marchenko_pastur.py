"""Marchenko–Pastur: contract, mpmath at 40 digits, exact moments."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from gequiv import MarchenkoPastur, ParameterError
from tests.laws.contract import check_contract, transform_errors


@pytest.mark.parametrize(("ratio", "variance"), [(1, 1), (0.3, 2.5), (1, 0.7), (4, 1), (0.999, 3), (2, 0.01)])
def test_contract(ratio, variance):
    check_contract(MarchenkoPastur(ratio, variance))


@pytest.mark.parametrize(("ratio", "variance"), [(0.25, 1.7), (1.0, 0.3), (3.0, 2.0), (1.0001, 1.0)])
def test_against_mpmath(ratio, variance):
    law = MarchenkoPastur(ratio, variance)
    (low, high), top = law.support()[0], law.support()[0][1]
    with mpmath.workdps(40):
        c, v = mpmath.mpf(ratio), mpmath.mpf(variance)
        a, b = v * (1 - mpmath.sqrt(c)) ** 2, v * (1 + mpmath.sqrt(c)) ** 2
        assert low == pytest.approx(float(a), rel=1e-12)
        assert high == pytest.approx(float(b), rel=1e-15)

        def density(x):
            return mpmath.sqrt((b - x) * (x - a)) / (2 * mpmath.pi * c * v * x)

        for fraction in (0.01, 0.2, 0.5, 0.97):
            x = float(a + fraction * (b - a))
            assert law.pdf(x) == pytest.approx(float(density(mpmath.mpf(x))), rel=1e-12)

            # the substitution x = a + t² takes the square roots out of the integrand
            def substituted(t):
                return density(a + t**2) * 2 * t if t else mpmath.mpf(0)

            mass = mpmath.quad(substituted, mpmath.linspace(0, mpmath.sqrt(x - a), 9))
            assert law.cdf(x) == pytest.approx(float(mass + max(0, 1 - 1 / c)), abs=1e-13)
    assert top == high


@pytest.mark.parametrize(("ratio", "variance"), [(0.25, 1.7), (1.0, 0.3), (3.0, 2.0), (40.0, 0.5)])
def test_transform_and_slope(ratio, variance):
    def exact(z):
        c, v = mpmath.mpf(ratio), mpmath.mpf(variance)
        low, high = v * (1 - mpmath.sqrt(c)) ** 2, v * (1 + mpmath.sqrt(c)) ** 2
        return (z - v * (1 - c) - mpmath.sqrt(z - low) * mpmath.sqrt(z - high)) / (2 * c * v * z)

    # next to the atom, inside, beside and far out
    points = [1e-9 + 1e-9j, -1e-12, 0.3 + 0.2j, 0.5 + 1e-7j, -2, 300, 1e6 + 1e5j, -1e12, 1e15j]
    g, slope = transform_errors(MarchenkoPastur(ratio, variance), exact, points)
    assert g < 2e-15
    assert slope < 5e-15


def test_atom_and_mean():
    law = MarchenkoPastur(ratio=2)
    assert law.atoms() == [(0.0, 0.5)]
    assert law.cdf(0.1) == 0.5
    assert law.cdf(-1e-300) == 0
    assert law.moment(1) == 1
    assert law.ppf([0, 0.25, 0.5]).tolist() == [0, 0, 0]


def test_catalan_numbers():
    law = MarchenkoPastur(1)
    assert [law.moment(k) for k in range(7)] == [1, 1, 2, 5, 14, 42, 132]
    assert MarchenkoPastur(1, 2).moment(3) == 40


def test_hard_edge():
    law = MarchenkoPastur(1)
    assert law.support() == [(0.0, 4.0)]
    assert law.pdf(0) == math.inf
    x = 1e-14
    assert law.pdf(x) * math.sqrt(x) == pytest.approx(1 / math.pi, rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "ratio must be"),
        ((-1,), "ratio"),
        ((math.nan,), "got nan"),
        ((1, 0), "variance must be"),
        (("x",), "ratio"),
    ],
)
def test_bad_parameters(arguments, message):
    with pytest.raises(ParameterError, match=message):
        MarchenkoPastur(*arguments)


def test_moment_too_large():
    with pytest.raises(ParameterError, match="exceeds the largest float"):
        MarchenkoPastur(1, 1e200).moment(2)


def test_simulation():
    rng = np.random.default_rng(11)
    rows, columns = 400, 800
    values = np.linalg.eigvalsh((x := rng.standard_normal((rows, columns))) @ x.T / columns)
    law = MarchenkoPastur(0.5)
    ranks = np.arange(1, rows + 1) / rows
    # eigenvalues are rigid: the distance is of order log(n)/n, far below the 1/√n of independent draws
    assert np.max(np.abs(law.cdf(values) - ranks)) < 5 / rows
