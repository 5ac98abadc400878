"""The exact spectral curve: its equations by other routes, and the numerical library against it."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
import sympy as sp

from gequiv import GaussianChainPlusNoise, ParameterError
from gequiv.errors import CertificationError
from gequiv.symbolic import spectral_curve
from gequiv.symbolic.curve import SpectralCurve

r, c, a, s, v = sp.symbols("r c a s v", positive=True)
HALF = sp.Rational(1, 2)

NUMERIC = {
    "square": ([HALF], 1, 1, sp.Rational(7, 10)),
    "two intervals": ([sp.Rational(1, 20)], 1, 1, sp.Rational(1, 5)),
    "more columns": ([HALF], sp.Rational(2, 5), 2, sp.Rational(7, 10)),
    "more rows": ([HALF], sp.Rational(5, 2), sp.Rational(3, 10), sp.Rational(7, 10)),
    "two intervals and an atom": ([sp.Rational(1, 50)], 2, 3, sp.Rational(3, 10)),
    "shared": ([1, HALF, 1], 1, 1, sp.Rational(7, 10)),
    "shared, rectangular": ([HALF, HALF / 2, HALF], HALF, 1, sp.Rational(7, 10)),
    "three factors": ([sp.Rational(3, 10), sp.Rational(7, 10)], sp.Rational(3, 2), 1, sp.Rational(1, 10)),
    "nearly noiseless": ([1], 1, 1, sp.Rational(1, 10000)),
    "mostly noise": ([1], 1, sp.Rational(1, 10000), 1),
    "Marchenko-Pastur": ([], sp.Rational(1, 3), 1, 2),
}


def curve_and_law(name):
    inner, aspect, signal, noise = NUMERIC[name]
    curve = spectral_curve([*inner, 1 / sp.sympify(aspect)], noise=noise, aspect=aspect, signal=signal)
    numbers = [Fraction(int(value.p), int(value.q)) for value in map(sp.sympify, (*inner, aspect, signal, noise))]
    return curve, GaussianChainPlusNoise(numbers[:-3], *numbers[-3:])


@pytest.mark.parametrize(("chain", "aspect"), [([r], 1), ([r, 1 / c], c), ([], c), ([r, a], c), ([HALF], HALF)])
def test_parametrisation_is_the_one_of_the_s_transform(chain, aspect):
    curve = spectral_curve(chain, noise=v, aspect=aspect, signal=s)
    u = curve.u
    dimensions = [*chain, 1 / sp.sympify(aspect)] if chain != [r, 1 / c] else chain
    t = s * (1 + u) / u * sp.prod([1 + u / d for d in dimensions])
    b = t / (t + v * aspect * (1 + u))
    assert sp.simplify(curve.z() - (t + b * v * (1 - aspect)) / b**2) == 0
    assert sp.simplify(curve.cauchy() - b * (1 + u) / t) == 0
    assert sp.simplify(curve.z(sp.Rational(2, 3)) - curve.z().subs(u, sp.Rational(2, 3))) == 0


def test_final_dimension_may_be_left_out():
    assert spectral_curve([r, 1]).inner == spectral_curve([r]).inner == (r,)
    assert spectral_curve([r, 1 / c], aspect=c).inner == (r,)
    assert spectral_curve([1, 1]).inner == (1,)
    assert spectral_curve([0.5, 2], aspect=0.5).inner == (HALF,)


@pytest.mark.parametrize(("chain", "aspect"), [([r, 1], 1), ([], c), ([HALF, 1], 1), ([1, HALF, 1, 1], 1)])
def test_polynomial_is_the_square_free_resultant(chain, aspect):
    noise, signal = (v, s) if chain == [r, 1] or aspect == c else (sp.Rational(7, 10), 1)
    if aspect == c:
        signal = 1
    curve = spectral_curve(chain, noise=noise, aspect=aspect, signal=signal)
    z, g, u = curve.z_symbol, curve.G_symbol, curve.u
    assert sp.cancel(curve.polynomial.subs({z: curve.z(), g: curve.cauchy()})) == 0
    if aspect == c:
        return
    parts = [sp.fraction(sp.together(symbol - part)) for symbol, part in ((z, curve.z()), (g, curve.cauchy()))]
    resultant = sp.factor_list(sp.resultant(parts[0][0], parts[1][0], u))[1]
    factors = [factor for factor, _ in resultant if factor.has(g) and factor.has(z)]
    assert len(factors) == 1
    assert sp.expand(factors[0] - curve.polynomial) == 0 or sp.expand(factors[0] + curve.polynomial) == 0


def test_degrees_and_irreducibility():
    assert spectral_curve([r, 1]).degree == 4
    assert spectral_curve([a, r, a, 1]).degree == 8
    assert spectral_curve([r, 1], noise=0).degree == 3
    assert spectral_curve([], aspect=c).degree == 2
    factors = sp.factor_list(spectral_curve([r], aspect=c).polynomial)
    assert factors[0] in (1, -1)
    assert len(factors[1]) == 1
    assert factors[1][0][1] == 1


def test_a_wrong_implicit_polynomial_is_detected():
    curve = spectral_curve([r, 1])
    u, kappa = curve._relation
    object.__setattr__(curve, "_relation", (u, 2 * kappa))
    with pytest.raises(CertificationError, match="remainder"):
        _ = curve.polynomial


def test_marchenko_pastur():
    curve = spectral_curve([], noise=v, aspect=c, signal=s)
    z, g = curve.z_symbol, curve.G_symbol
    expected = (s + v) * c * z * g**2 - (z - (s + v) * (1 - c)) * g + 1
    quotient = sp.cancel(curve.polynomial / expected)
    assert not quotient.has(z, g)
    values = sp.solve(curve.edge_polynomial, z)
    wanted = [(s + v) * (1 + sign * sp.sqrt(c)) ** 2 for sign in (1, -1)]
    assert all(any(sp.simplify(value - w) == 0 for value in values) for w in wanted)


def test_fuss_catalan():
    curve = spectral_curve([1, 1], noise=0, signal=1)
    for k in range(12):
        assert curve.moment(k) == sp.Rational(math.comb(3 * k, k), 2 * k + 1)
    z = curve.z_symbol
    assert sp.expand(curve.edge_polynomial - z * (4 * z - 27)) == 0
    assert curve.edges() == [0, sp.Float(6.75)]


@pytest.mark.parametrize("chain", [[r, 1], [r, a, 1], []])
def test_moments_are_the_reversion_of_the_curve(chain):
    aspect = c if chain != [r, a, 1] else 1
    curve = spectral_curve([entry for entry in chain if entry != 1], noise=v, aspect=aspect, signal=s)
    u, order = curve.u, 4
    inverse, product = (sp.cancel(f) for f in (1 / curve.z(), curve.z() * curve.cauchy() - 1))
    # z G - 1 = sum m_k z^-k as power series in u
    powers = [sp.series(inverse**k, u, 0, order + 1).removeO() for k in range(1, order + 1)]
    difference = sp.series(product, u, 0, order + 1).removeO()
    difference -= sum(curve.moment(k) * power for k, power in enumerate(powers, 1))
    for k in range(order + 1):
        assert sp.simplify(sp.expand(difference).coeff(u, k)) == 0


def test_moments_of_order_ten_are_exact_expressions():
    curve = spectral_curve([r], aspect=c)
    tenth = curve.moment(10)
    assert tenth.is_rational_function(*tenth.free_symbols)
    values = {sp.Symbol("beta", positive=True): 2, sp.Symbol("sigma", positive=True): 3, r: HALF, c: 2}
    assert tenth.subs(values) == spectral_curve([HALF, HALF], noise=9, aspect=2, signal=4).moment(10)
    third = sp.expand(spectral_curve([r], noise=v, aspect=1, signal=s).moment(2))
    assert sp.simplify(third - (2 * (s + v) ** 2 + s**2 / r)) == 0


@pytest.mark.parametrize("name", NUMERIC)
def test_library_against_the_exact_curve(name):
    curve, law = curve_and_law(name)
    for k in range(1, 11):
        assert law.moment(k) == pytest.approx(float(curve.moment(k)), rel=1e-13)
    expected = [edge for interval in law.support() for edge in interval]
    np.testing.assert_allclose([float(edge) for edge in curve.edges()], expected, rtol=1e-12, atol=0)
    polynomial = sp.lambdify([curve.z_symbol, curve.G_symbol], curve.polynomial)
    for z in (1 + 0.5j, -2 + 0.1j, 7 + 2j):
        g = complex(law.cauchy(z))
        slope = (polynomial(z, g * (1 + 1e-6)) - polynomial(z, g * (1 - 1e-6))) / 2e-6
        assert abs(polynomial(z, g)) < 1e-9 * abs(slope)


def test_every_edge_is_a_root_of_the_edge_polynomial():
    for name in ("two intervals", "more rows", "shared"):
        curve, _ = curve_and_law(name)
        exact = sp.Poly(curve.edge_polynomial, curve.z_symbol)
        for edge in curve.edges(40):
            assert edge == 0 or abs(exact.eval(edge)) < 1e-30 * abs(exact.diff().eval(edge) * edge)


def test_edge_polynomial_and_critical_polynomial_with_symbols():
    curve = spectral_curve([r, 1], noise=v, signal=s)
    u, z = curve.u, curve.z_symbol
    slope = sp.fraction(sp.cancel(sp.diff(curve.z(), u)))[0]
    assert sp.rem(sp.Poly(slope, u), sp.Poly(curve.critical_polynomial, u)).is_zero
    numbers = {r: HALF, s: 1, v: sp.Rational(7, 10)}
    special = spectral_curve([HALF, 1], noise=sp.Rational(7, 10), signal=1).edge_polynomial
    assert not sp.cancel(curve.edge_polynomial.subs(numbers) / special).has(z)


def test_irrational_parameters():
    beta = sp.Symbol("beta", positive=True)
    noise = sp.exp(beta**2) - 1 - beta**2
    curve = spectral_curve([r, 1], noise=noise)
    assert sp.expand(curve.moment(1) - sp.exp(beta**2) + 1) == 0
    numbers = {beta: 1, r: HALF}
    point = {curve.z_symbol: curve.z(2).subs(numbers), curve.G_symbol: curve.cauchy(2).subs(numbers)}
    assert sp.simplify(curve.polynomial.subs(numbers).subs(point)) == 0
    number = spectral_curve([sp.sqrt(2), 1], noise=sp.E - 2, signal=1)
    law = GaussianChainPlusNoise([math.sqrt(2)], 1, 1.0, math.e - 2)
    np.testing.assert_allclose(float(number.edges(30)[1]), law.support()[0][1], rtol=1e-14)
    assert number.edge_polynomial.has(sp.E)


def test_symbols_that_are_taken_are_avoided():
    curve = spectral_curve([sp.Symbol("u", positive=True), 1])
    assert curve.u.name != "u"
    assert "SpectralCurve(inner=[u]" in repr(curve)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"chain": [-1]}, r"chain\[0\]"),
        ({"chain": [0, 1]}, r"chain\[0\]"),
        ({"chain": ["1"]}, r"chain\[0\]"),
        ({"chain": [sp.oo, 1]}, r"chain\[0\]"),
        ({"chain": [sp.I, 1]}, r"chain\[0\]"),
        ({"chain": 1}, "chain"),
        ({"chain": [1], "aspect": 0}, "aspect"),
        ({"chain": [1], "aspect": None}, "aspect"),
        ({"chain": [1], "noise": -1}, "noise"),
        ({"chain": [1], "signal": 0}, "signal"),
        ({"chain": [1], "signal": True}, "signal"),
        ({"chain": [1], "signal": math.nan}, "signal"),
        ({"chain": [object()]}, r"chain\[0\]"),
    ],
)
def test_bad_parameters(arguments, name):
    with pytest.raises(ParameterError, match=name):
        spectral_curve(**arguments)


def test_bad_requests():
    curve = spectral_curve([r, 1])
    with pytest.raises(ParameterError, match="beta, r, sigma"):
        curve.edges()
    for k in (-1, 1.5, True):
        with pytest.raises(ParameterError, match="k must be"):
            curve.moment(k)
    with pytest.raises(ParameterError, match="dps"):
        spectral_curve([1, 1], noise=1, signal=1).edges(0)


def test_curves_are_made_by_the_function():
    assert isinstance(spectral_curve([1]), SpectralCurve)
    assert not dataclasses.is_dataclass(SpectralCurve)
