"""Real roots with multiprecision coefficients: counts and values against constructed polynomials."""

from __future__ import annotations

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gequiv.laws import _polynomials as poly
from gequiv.laws.multiprecision import multiprecision, to_fraction


def from_roots(roots):
    result = [multiprecision().mpf(1)]
    for root in roots:
        result = poly.multiply(result, [-multiprecision().mpf(root), 1])
    return result


def test_finds_real_roots_among_complex_ones():
    polynomial = poly.multiply(from_roots([-3, -0.5, 2, 1e6]), [multiprecision().mpf(2), 1, 3])  # 3t²+t+2 has none
    roots = poly.RealRoots(polynomial)
    assert roots.count(None, None) == 4
    assert roots.count(-1, 3) == 2
    found = [float(t) for t in roots.within(-1, 3)]
    assert found == pytest.approx([-0.5, 2], rel=1e-15)
    assert [float(t) for t in roots.within(None, None)] == pytest.approx([-3, -0.5, 2, 1e6], rel=1e-15)


def test_close_pairs_are_separated():
    gap = multiprecision().mpf(10) ** -12
    polynomial = from_roots([1, 1 + gap, -4])
    found = poly.RealRoots(polynomial).within(0, 2)
    assert len(found) == 2
    assert abs((found[1] - found[0]) / gap - 1) < 1e-20


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-200, 200).filter(bool), min_size=1, max_size=8, unique=True))
def test_integer_roots(values):
    roots = poly.RealRoots(from_roots(values))
    assert [round(float(t)) for t in roots.within(None, None)] == sorted(values)
    assert roots.count(0, None) == sum(v > 0 for v in values)


def test_shift_and_horner():
    polynomial = [multiprecision().mpf(v) for v in (3, -1, 0, 2)]
    shifted = poly.shifted(polynomial, multiprecision().mpf(2), multiprecision().mpf(5))
    for delta in (-0.3, 0.0, 1.7):
        direct = poly.evaluate(polynomial, 2 + 5 * multiprecision().mpf(delta))
        assert abs(poly.evaluate(shifted, multiprecision().mpf(delta)) - direct) < 1e-40
    assert [float(v) for v in poly.derivative(polynomial)] == [-1, 0, 6]


def test_private_context_leaves_the_global_precision_alone():
    before = mpmath.mp.dps
    assert multiprecision().dps == 50
    assert mpmath.mp.dps == before
    assert to_fraction(multiprecision().mpf("-0.75")) == -3 / 4
