"""Laws of matrix expressions: against closed forms, against other routes of the library, against simulation.

Simulations: the eigenvalues of one matrix of n = 1000 rows are rigid, their distribution function differs from the
law's by order 1/n. A test fails where more than 10 of 1000 eigenvalues lie on the wrong side of some point (KS 0.01).
"""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
import sympy as sp

import gequiv
from gequiv import CertificationError, GaussianChainPlusNoise, MarchenkoPastur, ParameterError
from gequiv.expressions import draw, law_of
from gequiv.laws import FussCatalan, Semicircle
from gequiv.symbolic import dyson_equation, linear_model
from tests.laws.contract import check_contract

N, M, D, P = sp.symbols("n m d p", positive=True)
X, Y = sp.MatrixSymbol("X", N, M), sp.MatrixSymbol("Y", N, M)
S, T = sp.MatrixSymbol("S", N, N), sp.MatrixSymbol("T", N, N)
E, F = sp.MatrixSymbol("E", N, N), sp.MatrixSymbol("F", N, N)
C = sp.MatrixSymbol("C", M, M)
TOKENS = sp.MatrixSymbol("X", N, D)
SIZES = {N: 1000, D: 1500, P: 1000}
KS = 0.01


def head(number: int):
    """The linear model of one attention head: (a X W_Q W_Kᵀ Xᵀ + b Z) X W_V."""
    q, k, v = (sp.MatrixSymbol(f"{name}{number}", D, P) for name in "QKV")
    noise = sp.MatrixSymbol(f"Z{number}", N, N)
    return (0.7 * TOKENS * q * k.T * TOKENS.T + 0.6 * noise) * TOKENS * v


def ks(law, n: int = 1000, seed: int = 1) -> float:
    return gequiv.compare(law, np.linalg.eigvalsh(law.matrix(n, seed))).ks


# -- closed forms -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", [0.5, 1, 2])
def test_wishart(ratio: float) -> None:
    law, exact = law_of(X * X.T / M, {N: ratio, M: 1}), MarchenkoPastur(ratio)
    assert law.support()[0] == pytest.approx(exact.support()[0], rel=1e-13, abs=1e-16)
    assert law.atoms() == exact.atoms()
    x = exact.support()[0][0] + np.diff(exact.support()[0]) * np.linspace(0.01, 0.99, 50)
    np.testing.assert_allclose(law.pdf(x), exact.pdf(x), rtol=1e-11)
    np.testing.assert_allclose(law.cdf(x), exact.cdf(x), atol=1e-12)
    # as squared singular values
    again = law_of(X / sp.sqrt(M), {N: ratio, M: 1})
    np.testing.assert_allclose(again.pdf(x), exact.pdf(x), rtol=1e-11)


def test_sum_of_wisharts_is_a_wishart_of_the_columns_side_by_side() -> None:
    law, exact = law_of((X * X.T + Y * Y.T) / M, {N: 3, M: 4}), MarchenkoPastur(3 / 8, 2)
    assert law.support()[0] == pytest.approx(exact.support()[0], rel=1e-13)
    x = np.linspace(0.5, 4.5, 33)
    np.testing.assert_allclose(law.cdf(x), exact.cdf(x), atol=1e-12)


def test_wigner() -> None:
    for law in (law_of(S / sp.sqrt(N), {N: 1}, symmetric=[S]), law_of((S + S.T) / sp.sqrt(2 * N), {N: 1})):
        x = np.linspace(-1.95, 1.95, 11)
        np.testing.assert_allclose(law.pdf(x), Semicircle(1.0).pdf(x), rtol=1e-11)


def _inverse_of_g(r_transform, g: np.ndarray) -> np.ndarray:
    return r_transform(g) + 1 / g


def test_commutator_of_semicirculars() -> None:
    """R(g) = 2g/(1 - g²): Nica and Speicher 1998, §1.5."""
    law = law_of(sp.I * (S * T - T * S) / N, {N: 1}, symmetric=[S, T])
    z = np.array([0.4 + 0.2j, -1.0 + 0.1j, 3.0 + 1.0j, 4.0 + 0j])
    np.testing.assert_allclose(_inverse_of_g(lambda g: 2 * g / (1 - g * g), law.cauchy(z)), z, rtol=1e-11)
    edge = math.sqrt((11 + 5 * math.sqrt(5)) / 2)  # where dz/dg = 0
    assert law.support() == [pytest.approx((-edge, edge), rel=1e-13)]
    # the anticommutator has the same law; general Gaussian matrices made symmetric are Wigner matrices
    x = np.linspace(-3, 3, 13)
    other = law_of((S * T + T * S) / N, {N: 1}, symmetric=[S, T])
    np.testing.assert_allclose(other.pdf(x), law.pdf(x), rtol=1e-11)
    a, b = S + S.T, T + T.T
    general = law_of(sp.I * (a * b - b * a) / (2 * N), {N: 1})
    np.testing.assert_allclose(general.pdf(x), law.pdf(x), rtol=1e-11)
    # as squared singular values of the antisymmetric matrix
    squares = law_of((S * T - T * S) / N, {N: 1}, symmetric=[S, T])
    np.testing.assert_allclose(squares.cdf(x[7:] ** 2), 2 * law.cdf(x[7:]) - 1, atol=1e-11)


@pytest.mark.parametrize("c", [0.5, 1.0, 3.0])
def test_symmetric_product(c: float) -> None:
    """XYᵀ + YXᵀ = UUᵀ - VVᵀ with U, V = (X ± Y)/√2 independent: R(g) = 1/(1 - cg) - 1/(1 + cg)."""
    law = law_of((X * Y.T + Y * X.T) / M, {N: c, M: 1})
    z = np.array([0.4 + 0.2j, -1.0 + 0.1j, 3.0 + 1.0j]) * (1 + c)
    g = law.cauchy(z)
    np.testing.assert_allclose(1 / (1 - c * g) - 1 / (1 + c * g) + 1 / g, z, rtol=1e-11)
    assert law.moment(2) == pytest.approx(2 * c, rel=1e-12)
    assert law.moment(3) == pytest.approx(0, abs=1e-10)
    assert sum(weight for _, weight in law.atoms()) == pytest.approx(max(0.0, 1 - 2 / c), abs=1e-14)


def test_symmetric_product_with_hard_edges_from_both_sides() -> None:
    law = law_of((X * Y.T + Y * X.T) / M, {N: 2, M: 1})
    (a, b), (c, d) = law.support()
    assert b == c == 0
    assert d == pytest.approx(-a, rel=1e-13)
    small = np.array([1e-6, 1e-8])
    assert np.diff(np.log(law.pdf(small))) / np.diff(np.log(small)) == pytest.approx(-1 / 3, abs=1e-3)
    assert ks(law) < KS


def test_diagonal_weights_against_silverstein() -> None:
    """XCXᵀ/m with the companion transform s(z): z = -1/s + (m/n)-free form, Silverstein and Bai 1995."""
    values, weights = np.array([1.0, 5.0]), np.array([0.3, 0.7])
    c = 0.4  # n/m
    law = law_of(X * C * X.T / M, {N: 2, M: 5}, diagonal={C: (values, weights)})
    z = np.array([1.0 + 0.3j, 4.0 + 0.05j, -2.0 + 0j])
    g = law.cauchy(z)
    # 1/G = z - Σ w d/(1 - c d G)
    right = z - (weights * values / (1 - c * values * g[:, None])).sum(axis=1)
    np.testing.assert_allclose(1 / g, right, rtol=1e-11)
    # equal values, however they are written
    same = law_of(X * C * X.T / M, {N: 2, M: 5}, diagonal={C: [2.0, 2.0, 2.0]})
    exact = MarchenkoPastur(0.4, 2.0)
    assert same.support()[0] == pytest.approx(exact.support()[0], rel=1e-13)


def test_free_sum_with_a_diagonal_matrix() -> None:
    law = law_of(E + S / (2 * sp.sqrt(N)), {N: 1}, diagonal={E: [1.0, -1.0]}, symmetric=[S])
    assert len(law.support()) == 2
    assert law.cdf(0.0) == pytest.approx(0.5, abs=1e-12)
    z = np.array([0.3 + 0.1j, 1.0 + 0.01j, 5.0 + 0j])
    g = law.cauchy(z)
    w = z - g / 4
    np.testing.assert_allclose(g, 0.5 / (w - 1) + 0.5 / (w + 1), rtol=1e-11)


def test_atoms_of_a_diagonal_matrix_that_a_term_of_low_rank_leaves() -> None:
    """A quarter of the eigenvalues of E + XXᵀ, XXᵀ of half the rank, stay where three quarters of E's are."""
    law = law_of(E + X * X.T / M, {N: 2, M: 1}, diagonal={E: ([1.0, 4.0], [0.75, 0.25])})
    assert law.atoms() == [(1.0, pytest.approx(0.25, abs=1e-12))]
    assert law.mean() == pytest.approx(1.75 + 1.0, rel=1e-12)
    assert ks(law) < KS


def test_identity_shifts_the_law() -> None:
    law = law_of(2 * sp.Identity(N) + X * X.T / M, {N: 2, M: 1})
    exact = MarchenkoPastur(2)
    assert law.atoms() == [(2.0, pytest.approx(0.5, abs=1e-14))]
    assert law.support()[0] == pytest.approx(tuple(edge + 2 for edge in exact.support()[0]), rel=1e-13)
    # in a bracket it does not: the squared singular values of 1 + Z/2 live on the half-line
    factor = sp.Identity(N) + S / (2 * sp.sqrt(N))
    brackets = law_of(factor * factor.T, {N: 1})
    assert brackets.mean() == pytest.approx(1.25, rel=1e-11)
    direct = law_of(factor, {N: 1})
    np.testing.assert_allclose(brackets.support(), direct.support(), rtol=1e-12)


# -- other routes of the library --------------------------------------------------------------------------------------


def test_products_and_products_plus_noise() -> None:
    w, x, z = sp.MatrixSymbol("W", N, D), sp.MatrixSymbol("A", D, M), sp.MatrixSymbol("Z", N, M)
    law = law_of(w * x * 0.8 + z * 0.6, {N: 1000, D: 500, M: 1000})
    exact = GaussianChainPlusNoise([0.5], 1, 0.64, 0.36)
    assert law.support()[0] == pytest.approx(exact.support()[0], rel=1e-12)
    x_values = np.linspace(0.01, 0.99, 21) * exact.support()[0][1]
    np.testing.assert_allclose(law.pdf(x_values), exact.pdf(x_values), rtol=1e-10)
    for factors, power in ((2, 2 / 3), (4, 4 / 5)):
        product = sp.MatMul(*(sp.MatrixSymbol(f"A{k}", N, N) for k in range(factors)))
        law, exact = law_of(product, {N: 1}), FussCatalan(factors)
        assert law.support()[0] == pytest.approx(exact.support()[0], rel=1e-12)
        q = np.linspace(0.05, 0.95, 10)
        np.testing.assert_allclose(law.cdf(exact.ppf(q)), q, atol=1e-11)
        x = np.array([1e-8, 1e-7])
        assert np.diff(np.log(law.pdf(x))) / np.diff(np.log(x)) == pytest.approx(-power, abs=0.01)


def test_symbolic_equation() -> None:
    expression = (X * Y.T + Y * X.T + X * X.T) / M
    law = law_of(expression, {N: 3, M: 2})
    numbers = dyson_equation(expression, sizes={M: sp.Rational(2, 3) * N})
    for z in (1.0 + 1.0j, -2.0 + 0.5j):
        assert law.cauchy(z) == pytest.approx(numbers.numeric(z, {}), rel=1e-9)


@pytest.mark.parametrize("normalise", ["products", "columns"])
def test_normalisations_are_those_of_the_symbolic_equation(normalise: str) -> None:
    a, b = sp.MatrixSymbol("A", N, D), sp.MatrixSymbol("B", D, M)
    expression = a * b + sp.Rational(1, 2) * X
    law = law_of(expression, {N: 3, M: 2, D: 4}, normalise=normalise)
    equation = dyson_equation(expression, normalise=normalise, sizes={N: sp.Rational(3, 2) * M, D: 2 * M})
    assert law.cauchy(1.0 + 1.0j) == pytest.approx(equation.numeric(1.0 + 1.0j, {}), rel=1e-9)


def test_common_factors_may_be_written_once_or_not() -> None:
    short = law_of(head(1), SIZES)
    x = np.linspace(0.05, 15, 9)
    taken_out = law_of(sp.expand(head(1)), SIZES)  # common last factors are found
    assert taken_out.equation.width == short.equation.width
    np.testing.assert_allclose(taken_out.pdf(x), short.pdf(x), rtol=1e-11)
    # with a bracket in the middle written out the equation is larger, the law the same
    a, b = sp.MatrixSymbol("A", N, N), sp.MatrixSymbol("B", N, N)
    small = law_of(S * (a + b / 2) * T, {N: 1})
    large = law_of(S * a * T + S * b * T / 2, {N: 1})
    assert large.equation.width >= small.equation.width
    np.testing.assert_allclose(large.pdf(x / 2), small.pdf(x / 2), rtol=1e-10)


# -- simulation -------------------------------------------------------------------------------------------------------

CASES = {
    "sum of Wisharts": lambda: law_of((X * X.T + Y * Y.T) / M, {N: 1000, M: 2000}),
    "commutator": lambda: law_of(sp.I * (S * T - T * S) / N, {N: 1000}, symmetric=[S, T]),
    "symmetric product": lambda: law_of((X * Y.T + Y * X.T) / M, {N: 1000, M: 300}),
    "one head": lambda: law_of(head(1), SIZES),
    "two heads": lambda: law_of(head(1) + head(2), SIZES),
    "signed weights": lambda: law_of(X * C * X.T / M, {N: 1000, M: 2000}, diagonal={C: [1.0, -2.0]}),
    "jointly diagonal": lambda: law_of(
        E * S * E / sp.sqrt(N) + F, {N: 1}, symmetric=[S], diagonal={E: [1.0, 2.0, 0.5], F: [0.0, 1.0, 3.0]}
    ),
    "complex": lambda: law_of(
        S / sp.sqrt(N) + sp.I * (E * T - T * E) / sp.sqrt(N) + E / 4,
        {N: 1},
        symmetric=[S, T],
        diagonal={E: ([1.0, 2.0, -1.0], [0.3, 0.4, 0.3])},
    ),
    "polynomial": lambda: law_of(S**3 / N ** sp.Rational(3, 2) + T**2 / N, {N: 1}, symmetric=[S, T]),
}


@pytest.mark.parametrize("case", CASES)
def test_simulation(case: str) -> None:
    assert ks(CASES[case]()) < KS


def test_transposes_of_symmetric_and_diagonal_matrices_are_themselves() -> None:
    options = {"symmetric": [S], "diagonal": {E: [1.0, -2.0]}}
    law = law_of((S * E + E.T * S.T) / sp.sqrt(N), {N: 1}, **options)
    assert law.support()[0][0] < 0  # eigenvalues, not their squares
    assert law.moment(2) == pytest.approx(2 * (2.5 + 0.25), rel=1e-11)


def test_random_features() -> None:
    """f(WX/√d)/√m as a WX/√(dm) + b Z/√m with the coefficients of f: Pennington and Worah 2017."""
    t = sp.Symbol("t")
    model = linear_model(1 + sp.tanh(t), t)  # of mean one, so that nothing is divided out: a and b² of tanh itself
    a, b = float(model.coefficient), math.sqrt(float(model.noise_variance))
    p, d, m = 1000, 1500, 2000
    w, x, z = sp.MatrixSymbol("W", P, D), sp.MatrixSymbol("V", D, M), sp.MatrixSymbol("Z", P, M)
    law = law_of(a * w * x + b * z, {P: p, D: d, M: m})
    assert law.mean() == pytest.approx(a * a + b * b, rel=1e-12)
    rng = np.random.default_rng(11)
    features = np.tanh(rng.standard_normal((p, d)) @ rng.standard_normal((d, m)) / math.sqrt(d)) / math.sqrt(m)
    assert gequiv.compare(law, np.linalg.eigvalsh(features @ features.T)).ks < KS
    assert ks(law) < KS


# -- contract, draws, errors ------------------------------------------------------------------------------------------


def test_contract() -> None:
    check_contract(law_of((X * Y.T + Y * X.T) / M, {N: 1, M: 2}))
    check_contract(law_of(X * C * X.T / M, {N: 2, M: 1}, diagonal={C: [1.0, 3.0]}))


def test_draw() -> None:
    a = draw(X * X.T / M, {N: 30, M: 50}, 5)
    gaussian = np.random.default_rng(5).standard_normal((30, 50))
    np.testing.assert_allclose(a, gaussian @ gaussian.T / 50, rtol=1e-12)
    b = draw(E * S / sp.sqrt(N), {N: 40}, 5, diagonal={E: [1.0, 2.0]}, symmetric=[S])
    assert b.shape == (40, 40)
    np.testing.assert_allclose(b[:20, :20], b[:20, :20].T)  # E is 1 there
    np.testing.assert_allclose(b[20:, :20], 2 * b[:20, 20:].T)
    c = draw(sp.I * (S - S.T) / sp.sqrt(N), {N: 10}, 1)
    assert np.abs(c - c.conj().T).max() == 0
    np.testing.assert_allclose(draw(2 * sp.Identity(N) + S / sp.sqrt(N), {N: 9}, 1).diagonal().mean(), 2, atol=0.5)
    with pytest.raises(ParameterError, match="dimension an integer"):
        draw(X, {N: 1.5, M: 2}, 1)


def test_shapes_in_numbers() -> None:
    numbers = sp.MatrixSymbol("X", 300, 600)
    law = law_of(numbers * numbers.T / 600)
    assert law.support()[0] == pytest.approx(MarchenkoPastur(0.5).support()[0], rel=1e-13)


def test_lazy_export_name_and_pickle() -> None:
    law = gequiv.law_of(X * X.T / M, {N: 1, M: 2})
    assert repr(law).startswith("law_of(")
    assert "X*X.T" in repr(law)
    again = pickle.loads(pickle.dumps(law))
    assert again.support() == law.support()


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((sp.Symbol("a"), {}), {}, "expr must be a sympy matrix expression"),
        ((X * X.T / M, {N: 1}), {}, "sizes must give a number for each"),
        ((X * X.T / M, {N: 1, M: -1}), {}, r"sizes\[m\] must be a finite number above 0"),
        ((X * X.T / M, {N: 1, M: 1, D: 2}), {}, "sizes gives d"),
        ((X * X.T / M, [1, 2]), {}, "sizes must be a dict"),
        ((X * X.T, {N: 1, M: 1}), {"normalise": "entries"}, "expr must be of order one"),
        ((X * X.T / M, {N: 1, M: 1}), {"normalise": "rows"}, "normalise must be"),
        ((sp.Symbol("a") * X * X.T / M, {N: 1, M: 1}), {}, "must have numbers for coefficients"),
        ((E + E, {N: 1}), {"diagonal": {E: [1.0, 2.0]}}, "must contain a Gaussian matrix"),
        ((E + S, {N: 1}), {"diagonal": {T: [1.0, 2.0]}}, "diagonal must name square matrix symbols of expr"),
        ((E + S, {N: 1}), {"diagonal": {E: [1.0, math.nan]}}, r"diagonal\[E\] must not contain NaN"),
        ((E + S, {N: 1}), {"diagonal": {E: [[1.0]]}}, r"diagonal\[E\] must be a non-empty 1-D array"),
        ((E + S, {N: 1}), {"diagonal": {E: ([1.0, 2.0], [1.0, 0.0])}}, "one positive weight for each"),
        ((E + F + S, {N: 1}), {"diagonal": {E: [1.0, 2.0], F: [1.0]}}, "as many values as"),
        ((E + S, {N: 1}), {"diagonal": [1.0]}, "diagonal must be a dict"),
        ((X * X.T / M, {N: 1, M: 1}), {"symmetric": [X]}, "symmetric must hold square matrix symbols"),
        ((X * X.T / M, {N: 1, M: 1}), {"symmetric": 3}, "symmetric must be a list"),
        ((S.inv(), {N: 1}), {}, "expr may contain MatrixSymbol"),
        ((X - X, {N: 1, M: 1}), {}, "expr must"),
    ],
)
def test_parameter_errors(arguments, options, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        law_of(*arguments, **options)


def test_cusp_at_zero() -> None:
    """±1 and a semicircle of variance 1, whose halves just touch: ρ ~ |x|^(1/3)."""
    law = law_of(E + S / sp.sqrt(N), {N: 1}, diagonal={E: [1.0, -1.0]}, symmetric=[S])
    assert [end for interval in law.support() for end in interval][1:3] == [0.0, 0.0]
    assert law.support()[1][1] == pytest.approx(1.5 * math.sqrt(3), rel=1e-12)
    x = np.array([-1.5, 1e-4, 0.7])
    np.testing.assert_allclose(law.pdf(x), -law.cauchy(x + 1e-13j).imag / np.pi, rtol=1e-8)


def test_what_is_no_edge_is_refused() -> None:
    # (1 + S)² - 1 on its own: a hard edge at -1, and a second one inside the support where (1 + S)² turns back
    with pytest.raises(CertificationError):
        law_of(S * S / N + 2 * S / sp.sqrt(N), {N: 1}, symmetric=[S])


def test_shapes_must_fit_at_the_given_sizes():
    n, m = sp.symbols("n m", positive=True, integer=True)
    x, y = sp.MatrixSymbol("X", n, m), sp.MatrixSymbol("Y", n, m)
    with pytest.raises(ParameterError, match=r"X\*Y a dimension is m = 2 on one side and n = 1 on the other"):
        gequiv.law_of(sp.MatMul(x, y), sizes={n: 1, m: 2})
    law = gequiv.law_of(sp.MatMul(x, y), sizes={n: 1, m: 1})  # a product of two square matrices
    assert law.support()[0] == pytest.approx((0, 6.75), abs=1e-12)
