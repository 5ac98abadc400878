"""Hermite coefficients and linear models: exact values, quadrature at 40 digits, refusals."""

from __future__ import annotations

import math

import mpmath
import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from gequiv import ParameterError
from gequiv.symbolic import HermiteCoefficients, hermite_coefficients, linear_model

x, beta = sp.symbols("x beta")
p = sp.Symbol("p", positive=True)
half = sp.Rational(1, 2)
root = sp.sqrt

EXACT = [
    sp.Integer(3),
    x**5 - 2 * x**2 + 1,
    sp.exp(x / 2),
    (1 + x) ** 2 * sp.exp(-x / 3 + x**2 / 10),
    sp.sin(x) + sp.cos(2 * x),
    x * sp.cosh(x) - sp.sinh(x / 2),
    2**x,
    sp.Abs(x),
    sp.Max(x, 0),
    sp.Max(x, -x / 10),
    sp.Min(x, 1),
    sp.sign(x) * x**2,
    sp.Heaviside(x - 1) * sp.exp(x),
    sp.Abs(sp.Abs(x) - 1),
    sp.Abs(x**2 - 2),
    sp.Piecewise((x, x < -1), (x**2, x < 2), (sp.sin(x), True)),
    sp.root(sp.Abs(x), 3),
    sp.log(sp.Abs(2 * x)),
    sp.erf(x),
]
NUMERICAL = [
    10**20 * (1 + sp.tanh(x)),
    1 / (1 + sp.exp(-x)),
    sp.log(1 + sp.exp(x)),
    sp.log(1 + sp.Abs(x)),
    sp.exp(-(x**4)),
    1 + sp.erf(x / 2 + 1),
    sp.Abs(sp.cos(x)),
]


def reference(f, order):
    """E[f He_k]/√k! by Gauss-Legendre on panels that end where the functions above have their kinks, 40 digits."""
    with mpmath.workdps(45):
        function = sp.lambdify(x, f, "mpmath")
        wide = not f.has(sp.tanh, sp.log)
        kinks = [0, 1, -1, 2, -2, mpmath.sqrt(2), -mpmath.sqrt(2)]
        kinks += [mpmath.pi * (i + mpmath.mpf(1) / 2) for i in range(-6, 6)] if f.has(sp.cos) else []
        panels = sorted({mpmath.mpf(t) for t in [*range(-18, 19, 2 if wide else 1), *kinks]})
        rule = "tanh-sinh" if f.has(sp.log, sp.Pow) and f.has(sp.Abs) else "gauss-legendre"
        results = []
        for k in range(order + 1):
            polynomial = sp.lambdify(x, 2 ** (-sp.Rational(k, 2)) * sp.hermite(k, x / root(2)), "mpmath")
            total = mpmath.quad(lambda t, h=polynomial: function(t) * h(t) * mpmath.npdf(t), panels, method=rule)
            results.append(total / mpmath.sqrt(mpmath.factorial(k)))
        return results


@pytest.mark.parametrize("f", EXACT, ids=str)
def test_exact_coefficients_against_quadrature(f):
    found = hermite_coefficients(f, x, 4)
    assert all(found.exact)
    for value, expected in zip(found, reference(f, 4), strict=True):
        assert not value.has(sp.Float)
        assert abs(sp.N(value, 40) - sp.Float(expected, 40)) < sp.Float("1e-28")


@pytest.mark.parametrize("f", NUMERICAL, ids=str)
def test_quadrature_has_thirty_digits_and_says_so(f):
    found = hermite_coefficients(f, x, 3)
    assert "quadrature" in found.method
    assert found.exact == [name != "quadrature" for name in found.method]
    expected = reference(f, 3)
    scale = max(abs(value) for value in expected)
    for value, exact, other in zip(found, found.exact, expected, strict=True):
        assert value.is_Float is not exact
        assert abs(sp.N(value, 40) - sp.Float(other, 40)) < 1e-29 * scale


def test_exponential_with_a_symbol():
    found = hermite_coefficients(sp.exp(beta * x - beta**2 / 2), x, 8)
    assert found == [beta**k / root(sp.factorial(k)) for k in range(9)]
    assert found.method == ["exponential"] * 9
    assert len(found) == 9
    assert isinstance(found, HermiteCoefficients)
    assert isinstance(found, list)


def test_known_values():
    assert hermite_coefficients(x**3, x, 3) == [0, 3, 0, root(6)]
    relu = hermite_coefficients(sp.Max(p * x, 0), x, 3)
    expected = [p / root(2 * sp.pi), p / 2, p / (2 * root(sp.pi)), 0]
    assert all(sp.simplify(a - b) == 0 for a, b in zip(relu, expected, strict=True))
    shifted = hermite_coefficients(sp.Heaviside(x - p), x, 1)
    assert sp.simplify(shifted[0] - (1 - sp.erf(p / root(2))) / 2) == 0
    assert sp.simplify(shifted[1] - sp.exp(-(p**2) / 2) / root(2 * sp.pi)) == 0
    assert hermite_coefficients(sp.sin(beta * x), x, 1) == [0, beta * sp.exp(-(beta**2) / 2)]
    assert hermite_coefficients(sp.exp(-p * x**2), x, 0) == [1 / root(1 + 2 * p)]
    assert hermite_coefficients(sp.erf(x), x, 1)[1] == hermite_coefficients(2 * sp.exp(-(x**2)) / root(sp.pi), x, 0)[0]
    assert hermite_coefficients(sp.exp(0.5 * x), x, 0) == [sp.exp(sp.Rational(1, 8))]


def test_parity_keeps_what_is_exact():
    tanh = hermite_coefficients(1 + sp.tanh(x), x, 3)
    assert (tanh[0], tanh[2], tanh.exact) == (1, 0, [True, False, True, False])
    softplus = hermite_coefficients(sp.log(1 + sp.exp(x)), x, 3)
    assert (softplus[1], softplus[3]) == (half, 0)
    assert hermite_coefficients(sp.tanh(sp.Abs(x)), x, 1).method == ["quadrature", "parity"]


@pytest.mark.parametrize("f", [sp.exp(x / 2), sp.Max(x, 0), sp.cos(x), sp.Heaviside(x)], ids=str)
def test_partial_sums_of_squares_stay_below_the_second_moment(f):
    squares = [float(value) ** 2 for value in hermite_coefficients(f, x, 10)]
    model = linear_model(f + 3, x)
    second = float(model.variance + model.mean**2 - 6 * (model.mean - 3) - 9)
    assert sum(squares) < second * (1 + 1e-12)
    assert sum(squares) > 0.9 * second


polynomials = st.lists(st.fractions(-5, 5, max_denominator=7), min_size=1, max_size=6)


def polynomial(coefficients):
    return sum((sp.Rational(q.numerator, q.denominator) * x**k for k, q in enumerate(coefficients)), sp.Integer(0))


@given(polynomials, polynomials, st.fractions(-3, 3, max_denominator=5))
@settings(max_examples=15, deadline=None, derandomize=True)
def test_linearity(first, second, factor):
    scale = sp.Rational(factor.numerator, factor.denominator)
    weight = sp.exp(beta * x)
    f, g = polynomial(first) * weight, polynomial(second)
    left = hermite_coefficients(f + scale * g, x, 3)
    right = zip(hermite_coefficients(f, x, 3), hermite_coefficients(g, x, 3), strict=True)
    assert all(sp.expand(a - b - scale * c) == 0 for a, (b, c) in zip(left, right, strict=True))


@given(polynomials)
@settings(max_examples=15, deadline=None, derandomize=True)
def test_parseval_for_polynomials(coefficients):
    f = polynomial(coefficients)
    found = hermite_coefficients(f, x, 5)
    assert sp.expand(sum(value**2 for value in found) - hermite_coefficients(f**2, x, 0)[0]) == 0
    rebuilt = sum(
        value * 2 ** (-sp.Rational(k, 2)) * sp.hermite(k, x / root(2)) / root(sp.factorial(k))
        for k, value in enumerate(found)
    )
    assert sp.expand(rebuilt - f) == 0


# -- linear model -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("b", [beta, sp.Symbol("beta", positive=True), sp.Symbol("beta", real=True)])
def test_linear_model_of_the_exponential(b):
    model = linear_model(sp.exp(b * x), x)
    assert model.coefficient == b
    assert model.noise_variance == sp.exp(b**2) - 1 - b**2
    assert model.mean == sp.exp(b**2 / 2)
    assert model.exact is True


@pytest.mark.parametrize(
    ("f", "coefficient", "noise"),
    [
        (sp.Max(x, 0), root(sp.pi / 2), sp.pi - 1 - sp.pi / 2),
        (sp.Max(p * x, 0), root(sp.pi / 2), sp.pi - 1 - sp.pi / 2),
        (sp.Heaviside(x), root(2 / sp.pi), 1 - 2 / sp.pi),
        (sp.Abs(x), sp.Integer(0), sp.pi / 2 - 1),
        (1 + p * x, p, sp.Integer(0)),
        (x**2, sp.Integer(0), sp.Integer(2)),
        (sp.exp(p * x) * 7, p, sp.exp(p**2) - 1 - p**2),
        (sp.cosh(p * x), sp.Integer(0), sp.cosh(p**2) - 1),
        (sp.Integer(5), sp.Integer(0), sp.Integer(0)),
        (p, sp.Integer(0), sp.Integer(0)),
        (2.5, sp.Integer(0), sp.Integer(0)),
        (sp.exp(x**2 / 5), sp.Integer(0), 3 / root(5) - 1),
    ],
    ids=str,
)
def test_exact_linear_models(f, coefficient, noise):
    model = linear_model(f, x)
    assert model.exact
    assert sp.simplify(model.coefficient - coefficient) == 0
    assert sp.simplify((model.noise_variance - noise).rewrite(sp.exp)) == 0
    assert sp.simplify(model.variance / model.mean**2 - noise - coefficient**2) == 0


@pytest.mark.parametrize("f", [1 / (1 + sp.exp(-x)), sp.log(1 + sp.exp(x)), 1 + sp.tanh(x)], ids=str)
def test_linear_models_by_quadrature(f):
    model = linear_model(f, x)
    assert model.exact is False
    (mean, first), (second,), (derivative,) = reference(f, 1), reference(f**2, 0), reference(sp.diff(f, x), 0)
    with mpmath.workdps(45):
        noise, first, derivative = second / mean**2 - 1 - (first / mean) ** 2, first / mean, derivative / mean
    assert abs(model.coefficient - sp.Float(first, 40)) < 1e-28
    assert abs(model.noise_variance - sp.Float(noise, 40)) < 1e-28
    assert abs(model.coefficient - sp.Float(derivative, 40)) < 1e-28  # c1 = E f'/E f


@pytest.mark.parametrize("f", [-sp.exp(x), x - 1, sp.Integer(-2), -p])
def test_negative_mean_is_refused(f):
    with pytest.raises(ParameterError, match=r"row sums.*are negative"):
        linear_model(f, x)


@pytest.mark.parametrize("f", [x, sp.sin(x), sp.Integer(0), x**3 - 3 * x, x**2 - 1, sp.tanh(x)])
def test_zero_mean_is_refused(f):
    with pytest.raises(ParameterError, match=r"row sums.*vanish"):
        linear_model(f, x)


# -- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "f",
    [
        sp.exp(x**2),
        sp.exp(x**2 / 4),
        sp.exp(x**2) * sp.Heaviside(x),
        sp.exp(p * x**2 + x**2),
        sp.tanh(x) * sp.exp(x**2),
        sp.exp(x**3),
        sp.exp(sp.exp(sp.exp(x))),
        1 / x,
        1 / sp.Abs(x),
        sp.Abs(x) ** sp.Rational(-3, 4),
    ],
    ids=str,
)
def test_not_square_integrable(f):
    with pytest.raises(ParameterError, match="square-integrable"):
        hermite_coefficients(f, x, 2)


@pytest.mark.parametrize(
    ("f", "reason"),
    [
        (sp.tanh(beta * x), "numbers in the place of beta"),
        (sp.exp(beta * x**2), "not decided"),
        (sp.Max(beta * x, 0), "not decided"),
        (sp.log(x), "real on the real line"),
        (root(x), "real on the real line"),
        (1 / (x - 1), "evaluated|square-integrable"),
        (sp.Function("h")(x), "cannot be evaluated"),
        (sp.Piecewise((1, x > 0)), "whole line"),
        (sp.Abs(sp.sin(beta * x)), "numbers in the place of beta"),
        (sp.oo, "finite"),
        ("exp(x)", "sympy expression"),
        (None, "sympy expression"),
        (math.exp, "sympy expression"),
        (True, "sympy expression"),
    ],
    ids=str,
)
def test_other_refusals(f, reason):
    with pytest.raises(ParameterError, match=reason):
        hermite_coefficients(f, x, 2)


def test_bad_variable_and_order():
    with pytest.raises(ParameterError, match="x must be"):
        hermite_coefficients(x, 3, 2)
    for order in (-1, 1.5, True, None):
        with pytest.raises(ParameterError, match="order must be"):
            hermite_coefficients(x, x, order)


def test_a_parameter_of_the_same_name_is_kept_apart():
    y = sp.Symbol("x", real=True)
    assert hermite_coefficients(y * x, x, 1) == [0, y]
