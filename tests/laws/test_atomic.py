"""Atomic and Empirical: contract, sums written out, merging, thousands of atoms."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gequiv import ParameterError
from gequiv.laws import Atomic, Empirical
from tests.laws.contract import check_contract

CASES = [
    Atomic([-2, 0.5, 1.5], [0.25, 0.3, 0.45]),
    Atomic([3.0]),
    Atomic([-4, -1]),
    Empirical(np.random.default_rng(0).standard_normal(100) - 1),
]


@pytest.mark.parametrize("law", CASES, ids=repr)
def test_contract(law):
    check_contract(law)


def test_sums():
    law = Atomic([1.5, -2, 0.5], [0.45, 0.25, 0.3])
    assert law.atoms() == [(-2.0, 0.25), (0.5, 0.3), (1.5, 0.45)]
    assert law.support() == []
    assert law.cdf([-3, -2, 0, 0.5, 1.4, 1.5, 9]).tolist() == [0, 0.25, 0.25, 0.55, 0.55, 1, 1]
    assert law.ppf([0, 0.25, 0.250001, 0.55, 0.6, 1]).tolist() == [-2, -2, 0.5, 0.5, 1.5, 1.5]
    assert law.pdf([-2, 0, 0.5]).tolist() == [0, 0, 0]
    assert law.partial_mean([-3, 0, 0.5, 2]).tolist() == pytest.approx([0, -0.5, -0.35, 0.325])
    assert law.moment(3) == pytest.approx(-0.25 * 8 + 0.3 / 8 + 0.45 * 3.375, rel=1e-15)
    z = 0.3 + 0.2j
    g, slope = law._cauchy_and_slope(np.array([z, np.inf, 0.5]))
    assert g[0] == pytest.approx(0.25 / (z + 2) + 0.3 / (z - 0.5) + 0.45 / (z - 1.5), rel=1e-15)
    assert slope[0] == pytest.approx(-0.25 / (z + 2) ** 2 - 0.3 / (z - 0.5) ** 2 - 0.45 / (z - 1.5) ** 2, rel=1e-14)
    assert g[1] == slope[1] == 0
    assert np.isnan(g[2])
    with pytest.raises(ParameterError, match=r"pole at z = 0\.5"):
        law.cauchy([1j, 0.5])


def test_merging():
    assert Atomic([1, -1, 1, 7], [0.25, 0.5, 0.25, 0]).atoms() == [(-1.0, 0.5), (1.0, 0.5)]
    assert Atomic([0.0, -0.0]).atoms() == [(0.0, 1.0)]
    assert Empirical([2, 0, 2, 2]).atoms() == [(0.0, 0.25), (2.0, 0.75)]
    third = Atomic([1, 2, 3], [1 / 3, 1 / 3, 1 / 3 - 5e-13])
    assert sum(weight for _, weight in third.atoms()) == pytest.approx(1, abs=2e-16)
    assert third.cdf(3) == 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_quantiles_invert_the_steps(values):
    law = Empirical(values)
    array = np.sort(np.array(values) + 0.0)
    np.testing.assert_array_equal(law.ppf(law.cdf(array)), array)
    n = array.size
    np.testing.assert_array_equal(law.ppf((np.arange(n) + 0.5) / n), array)
    np.testing.assert_array_equal(law.cdf(array), np.searchsorted(array, array, side="right") / n)


def test_matrix_has_the_eigenvalues():
    values = np.array([-3, -3, 0.5, 2, 2, 2.0])
    found = np.linalg.eigvalsh(Empirical(values).matrix(6, 1))
    np.testing.assert_allclose(found, values, atol=1e-14)
    found = np.linalg.eigvalsh(Empirical(values).matrix(60, 1))
    np.testing.assert_allclose(found, np.repeat(values, 10), atol=1e-13)


def test_operators_stay_atomic():
    law = -2 * Empirical([1, 3]) + 1
    assert isinstance(law, Atomic)
    assert law.atoms() == [(-5.0, 0.5), (-1.0, 0.5)]
    # atoms that a shift makes equal are merged
    assert (Empirical([1e-20, 2e-20]) + 1).atoms() == [(1.0, 1.0)]
    with pytest.raises(ParameterError, match="scale must not be 0"):
        _ = 0 * law


def test_thousands_of_atoms():
    values = np.random.default_rng(1).standard_normal(5000)
    start = time.perf_counter()
    law = Empirical(values)
    z = np.linspace(-3, 3, 3000) + 0.1j
    g = law.cauchy(z)
    assert law.cdf(np.sort(values))[-1] == 1
    law.ppf(np.linspace(0, 1, 100000))
    law.rvs(100000, 1)
    law._distance(z)
    assert law.cauchy(10.0) == pytest.approx(np.mean(1 / (10 - values)), rel=1e-13)
    assert time.perf_counter() - start < 5  # 0.3 s; a loop over atoms would take minutes
    assert g[17] == pytest.approx(np.mean(1 / (z[17] - values)), rel=1e-13)
    assert law._distance(z)[100] == pytest.approx(np.abs(z[100] - values).min(), rel=1e-14)
    assert repr(law) == f"Empirical(5000 atoms in {values.min():g}..{values.max():g})"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "locations must be a list of at least one number"),
        ((3.0,), "locations must be a list"),
        (([1, math.nan],), "locations must not contain NaN"),
        (([1, math.inf],), "locations must be finite; got inf"),
        (([1, "a"],), "locations must be real"),
        (([1, 2], [1.0]), "1 weights for 2 locations"),
        (([1, 2], [1.5, -0.5]), "weights must be at least 0; got -0.5"),
        (([1, 2], [0.5, 0.4]), "weights must sum to 1; their sum is 0.9"),
        (([1, 2], [0.5, math.nan]), "weights must not contain NaN"),
    ],
)
def test_bad_parameters(arguments, message):
    with pytest.raises(ParameterError, match=message):
        Atomic(*arguments)


def test_bad_eigenvalues():
    with pytest.raises(ParameterError, match="eigenvalues must be finite"):
        Empirical([1, -math.inf])


def test_moment_too_large():
    with pytest.raises(ParameterError, match="exceeds the largest float"):
        Atomic([1e200]).moment(2)
