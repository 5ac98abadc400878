"""Cumulants and series: closed forms, exact round trips, every arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from gequiv import GaussianChainPlusNoise, MarchenkoPastur, ParameterError
from gequiv.free.cumulants import (
    eta_series,
    free_cumulants,
    moments,
    moments_from_rectangular,
    r_series,
    rectangular_cumulants,
    s_series,
)

ORDER = 9
ENTRIES = st.lists(st.fractions(-9, 9, max_denominator=30), max_size=7)
RATIOS = st.fractions(Fraction(1, 20), 20, max_denominator=20)
CATALAN = [math.comb(2 * k, k) // (k + 1) for k in range(1, ORDER + 1)]


def marchenko_pastur_moments(c, v):
    narayana = [[math.comb(k, j) * math.comb(k, j - 1) // k for j in range(1, k + 1)] for k in range(1, ORDER + 1)]
    return [v**k * sum(n * c**j for j, n in enumerate(row)) for k, row in enumerate(narayana, 1)]


def test_semicircle():
    s = Fraction(7, 3)
    even = [0 if k % 2 else s ** (k // 2) * CATALAN[k // 2 - 1] for k in range(1, ORDER + 1)]
    cumulants = [0, s] + [0] * (ORDER - 2)
    assert free_cumulants(even) == cumulants
    assert moments(cumulants) == even


def test_marchenko_pastur():
    c, v = Fraction(3, 4), Fraction(5, 2)
    exact = marchenko_pastur_moments(c, v)
    cumulants = [c ** (k - 1) * v**k for k in range(1, ORDER + 1)]
    assert free_cumulants(exact) == r_series(exact) == cumulants
    assert moments(cumulants) == exact
    # noise and nothing else: C(w) = v w
    assert rectangular_cumulants(exact, c) == [v] + [0] * (ORDER - 1)
    assert moments_from_rectangular([v] + [0] * (ORDER - 1), c) == exact
    # S(u) = 1/(v(1 + cu))
    assert s_series(exact) == [(-c) ** k / v for k in range(ORDER)]


def test_free_poisson_of_jumps():
    """Rate λ and jumps 1, 3 with equal weights: κ_k = λ ∫ x^k."""
    rate = Fraction(2, 3)
    jumps = [Fraction(1 + 3**k, 2) for k in range(1, 5)]
    k1, k2, k3, k4 = cumulants = [rate * jump for jump in jumps]
    # the sums over non-crossing partitions
    expected = [
        k1,
        k2 + k1**2,
        k3 + 3 * k1 * k2 + k1**3,
        k4 + 4 * k1 * k3 + 2 * k2**2 + 6 * k1**2 * k2 + k1**4,
    ]
    assert moments(cumulants) == expected


def test_two_points_and_their_free_sum():
    """±1 with equal weights; the free sum of two such laws is the arcsine law on [-2, 2]."""
    coin = [Fraction((k + 1) % 2) for k in range(1, 11)]
    arcsine = [Fraction(0) if k % 2 else Fraction(math.comb(k, k // 2)) for k in range(1, 11)]
    # R(g) = (√(1 + 4g²) - 1)/(2g) has Catalan numbers with alternating signs
    assert free_cumulants(coin)[1::2] == [(-1) ** k * Fraction(math.comb(2 * k, k), k + 1) for k in range(5)]
    assert moments([2 * k for k in free_cumulants(coin)]) == arcsine
    # 1/G = z - 1/z: one Boolean cumulant
    assert eta_series(coin) == [0, 1] + [0] * 8


def test_free_product():
    """Fuss–Catalan numbers are the moments of the free square of the Marchenko–Pastur law: S = 1/(1+u)²."""
    fuss = [math.comb(3 * k, k) // (2 * k + 1) for k in range(1, ORDER + 1)]
    assert s_series(fuss) == [(-1) ** k * (k + 1) for k in range(ORDER)]


def test_rectangular_noise_adds():
    """A chain with noise v has the chain's cumulants, κ_j = s^j/j [u^{j-1}] ∏ (1+u/c_i)^j, and v in the first."""
    inner, aspect, signal, noise = Fraction(1, 2), Fraction(3, 10), 2.0, 0.7
    law = GaussianChainPlusNoise([inner], aspect, signal, noise)
    result = rectangular_cumulants([law.moment(k) for k in range(1, 6)], aspect)
    expected = [signal**j / j * math.comb(j, j - 1) / float(inner) ** (j - 1) for j in range(1, 6)]
    expected[0] += noise
    assert result == pytest.approx(expected, rel=1e-11)


def test_eta_by_division():
    values = [Fraction(3, 2), Fraction(5), Fraction(-1, 7), Fraction(2)]
    z = sympy.Symbol("z")
    psi = sum(sympy.Rational(m.numerator, m.denominator) * z**k for k, m in enumerate(values, 1))
    series = sympy.series(psi / (1 + psi), z, 0, 5).removeO()
    assert [sympy.Rational(b.numerator, b.denominator) for b in eta_series(values)] == [
        series.coeff(z, k) for k in range(1, 5)
    ]


@settings(deadline=None, max_examples=30)
@given(values=ENTRIES, ratio=RATIOS)
def test_round_trips(values, ratio):
    assert moments(free_cumulants(values)) == values
    assert free_cumulants(moments(values)) == values
    assert moments_from_rectangular(rectangular_cumulants(values, ratio), ratio) == values
    assert rectangular_cumulants(moments_from_rectangular(values, ratio), ratio) == values


@settings(deadline=None, max_examples=30)
@given(values=ENTRIES, shift=st.fractions(-5, 5, max_denominator=9), scale=st.fractions(-5, 5, max_denominator=9))
def test_shift_and_scale(values, shift, scale):
    """A shift changes the first cumulant alone; κ_k of a·x is a^k κ_k."""
    full = [Fraction(1), *values]
    shifted = [
        sum(math.comb(k, j) * full[j] * shift ** (k - j) for j in range(k + 1)) for k in range(1, len(values) + 1)
    ]
    difference = [a - b for a, b in zip(free_cumulants(shifted), free_cumulants(values), strict=True)]
    assert difference == [shift, *[0] * (len(values) - 1)][: len(values)]
    scaled = free_cumulants([m * scale**k for k, m in enumerate(values, 1)])
    assert scaled == [k * scale**n for n, k in enumerate(free_cumulants(values), 1)]


@settings(deadline=None, max_examples=30)
@given(values=ENTRIES)
def test_s_against_r(values):
    """S(u) R(u S(u)) = 1 as power series."""
    values = [Fraction(7, 5), *values]
    order = len(values)
    s, kappa = s_series(values), r_series(values)

    def times(a, b):
        return [sum(a[i] * b[n - i] for i in range(n + 1)) for n in range(order)]

    argument = ([Fraction(0), *s])[:order]
    composed, power = [Fraction(0)] * order, [Fraction(1)] + [Fraction(0)] * (order - 1)
    for coefficient in kappa:
        composed = [total + coefficient * p for total, p in zip(composed, power, strict=True)]
        power = times(power, argument)
    assert times(s, composed) == [1] + [0] * (order - 1)


def test_arithmetics():
    assert all(isinstance(k, Fraction) for k in free_cumulants([1, 2, Fraction(5)]))
    assert all(type(k) is float for k in free_cumulants(np.array([1.0, 2.0, 5.0])))
    assert free_cumulants(np.array([1, 2, 5])) == [1, 1, 1]
    assert free_cumulants([0.5, Fraction(1, 3), 2]) == pytest.approx([0.5, 1 / 12, 2 - 0.5 + 0.25])
    assert free_cumulants(range(1, 3)) == [1, 1]
    assert s_series([2, 8.0]) == [0.5, -0.5]
    with mpmath.workdps(40):
        c, v = mpmath.mpf(1) / 3, mpmath.mpf(7) / 10
        result = free_cumulants(marchenko_pastur_moments(c, v))
        assert all(abs(k - c**n * v ** (n + 1)) < 1e-36 for n, k in enumerate(result))
        # an integer or a fraction beside an mpmath number keeps all digits
        mixed = s_series([3, mpmath.mpf(1) / 3, Fraction(1, 7)])
        exact = s_series([Fraction(3), Fraction(1, 3), Fraction(1, 7)])
        assert all(abs(a - mpmath.mpf(b.numerator) / b.denominator) < 1e-38 for a, b in zip(mixed, exact, strict=True))
    a, b, c, r = sympy.symbols("a b c r")
    assert free_cumulants([a, b, c]) == [a, b - a**2, sympy.expand(c - 3 * a * b + 2 * a**3)]
    assert moments(free_cumulants([a, b, c])) == [a, b, c]
    assert moments_from_rectangular(rectangular_cumulants([a, b], r), r) == [a, b]
    assert free_cumulants([sympy.Rational(1, 2), Fraction(1, 3)]) == [sympy.Rational(1, 2), sympy.Rational(1, 12)]


def test_floats_of_a_law():
    law = MarchenkoPastur(0.4, 1.3)
    cumulants = free_cumulants([law.moment(k) for k in range(1, 9)])
    assert cumulants == pytest.approx([0.4 ** (k - 1) * 1.3**k for k in range(1, 9)], rel=1e-10)


def test_empty():
    assert free_cumulants([]) == moments([]) == r_series([]) == s_series([]) == eta_series([]) == []
    assert rectangular_cumulants([], 2) == moments_from_rectangular([], 0.5) == []


@pytest.mark.parametrize(
    "bad", [True, np.True_, None, "1", 1j, math.nan, math.inf, mpmath.inf, mpmath.mpc(1, 2), sympy.nan, sympy.oo, [1]]
)
def test_bad_entries(bad):
    for function in (free_cumulants, r_series, s_series, eta_series):
        with pytest.raises(ParameterError, match=r"moments\[1\] must be"):
            function([1, bad])
    with pytest.raises(ParameterError, match=r"cumulants\[0\] must be"):
        moments([bad])
    with pytest.raises(ParameterError, match="ratio must be"):
        rectangular_cumulants([1], bad)


def test_bad_input():
    for bad in (3, None, "123"):
        with pytest.raises(ParameterError, match="moments must be a sequence"):
            free_cumulants(bad)
    for ratio in (0, -1, -0.5):
        with pytest.raises(ParameterError, match="ratio must be above 0"):
            moments_from_rectangular([1], ratio)
    for zero in (0, 0.0, sympy.Integer(0)):
        with pytest.raises(ParameterError, match="first entry other than 0"):
            s_series([zero, 1])
    with pytest.raises(ParameterError, match="pass fractions or mpmath"):
        free_cumulants([1e200, 1e200])
    with pytest.raises(ParameterError, match="too large to be mixed with floats"):
        free_cumulants([1.5, 10**400])
