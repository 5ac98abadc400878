"""Pencils and Dyson equations: exact polynomials, the attention curve, simulated matrices, refusals."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy as sp

from gequiv.errors import CertificationError, ParameterError
from gequiv.laws.chain import GaussianChainPlusNoise
from gequiv.symbolic import pencil as module
from gequiv.symbolic.pencil import DysonEquation, dyson_equation

n, d, m = sp.symbols("n d m", positive=True)
alpha, sigma = sp.symbols("alpha sigma", positive=True)
c, c1, c2 = sp.symbols("c c_1 c_2", positive=True)
M = sp.MatrixSymbol
X, Y, W, Z = (M(name, n, n) for name in "XYWZ")
A, B = M("A", n, m), M("B", n, m)


def attention(**options: Any) -> DysonEquation:
    expr = alpha * M("Q", n, d) * M("K", m, d).T / sp.sqrt(d * m) + sigma * M("Z", n, m) / sp.sqrt(m)
    return dyson_equation(expr, **options)


def on_curve(equation: DysonEquation, inner: list[Any], aspect: Any, values: dict[Any, Any] | None = None) -> Any:
    """Numerator of P(z(u), G(u)) on the rational curve of a chain plus noise, as a polynomial: zero on the curve."""
    u = sp.Symbol("u")
    values = values or {}
    t = alpha**2 * (1 + u) / u
    for ratio in inner:
        t *= 1 + u / ratio
    b = t / (t + sigma**2 * aspect * (1 + u))
    z = sp.cancel(((t + b * sigma**2 * (1 - aspect)) / b**2).subs(values))
    g = sp.cancel((b * (1 + u) / t).subs(values))
    polynomial = equation.eliminate(values)
    expressions = [*sp.fraction(z), *sp.fraction(g)]
    names = sorted(set().union(*(e.free_symbols for e in [*expressions, *polynomial.coeffs()])), key=str)
    ring = sp.QQ[names].ring
    z_up, z_down, g_up, g_down = (ring.from_expr(sp.expand(e)) for e in expressions)
    top_z, top_g = polynomial.degree(equation.z), polynomial.degree(equation.cauchy)
    total = ring.zero
    for (j, k), coefficient in polynomial.terms():
        scalar = ring.from_expr(sp.expand(coefficient))
        total += scalar * z_up**j * z_down ** (top_z - j) * g_up**k * g_down ** (top_g - k)
    return total


# -- exact ------------------------------------------------------------------------------------------------------------


def test_attention_gives_the_rational_curve() -> None:
    equation = attention(sizes={n: c * m, d: c1 * c * m})
    assert equation.kind == "squared singular values"
    assert equation.ratios == {}
    assert on_curve(equation, [c1, 1 / c], c) == 0


def test_square_attention_has_degree_four() -> None:
    expr = alpha * M("Q", n, d) * M("K", n, d).T / sp.sqrt(d * n) + sigma * Z / sp.sqrt(n)
    equation = dyson_equation(expr, sizes={d: c1 * n})
    polynomial = equation.eliminate()
    assert polynomial.degree(equation.cauchy) == 4
    assert on_curve(equation, [c1, 1], sp.Integer(1)) == 0
    # irreducible, so it is the minimal polynomial of the curve up to a constant
    assert len(sp.factor_list(polynomial.as_expr())[1]) == 1


def test_shared_tokens_are_a_chain_of_free_factors() -> None:
    """X enters on both sides of the scores, and yet the law is that of four independent factors."""
    tokens = M("X", n, d)
    scores = tokens * M("Q", d, m) * M("K", d, m).T * tokens.T
    expr = alpha * scores / (d * sp.sqrt(m * n)) + sigma * Z / sp.sqrt(n)
    equation = dyson_equation(expr, sizes={d: c1 * n, m: c2 * n})
    values = {c1: sp.Rational(3, 2), c2: sp.Rational(2, 5), alpha: sp.Rational(4, 3), sigma: sp.Rational(1, 2)}
    assert equation.eliminate(values).degree(equation.cauchy) == 8
    assert on_curve(equation, [c1, c2, c1, 1], sp.Integer(1), values) == 0


def test_known_polynomials() -> None:
    z, g = sp.symbols("z G")
    known = {
        X / sp.sqrt(n): z * g**2 - z * g + 1,  # Marchenko–Pastur
        (X + X.T) / sp.sqrt(n): 2 * g**2 - z * g + 1,  # semicircle of variance 2
        X * Y / n: z**2 * g**3 - z * g + 1,  # Fuss–Catalan
        X * Y * W / n ** sp.Rational(3, 2): z**3 * g**4 - z * g + 1,
        X * X * X / n ** sp.Rational(3, 2): z**3 * g**4 - z * g + 1,  # powers of one matrix as products of several
        (X - X.T) / sp.sqrt(n): 2 * z * g**2 - z * g + 1,
    }
    for expr, polynomial in known.items():
        assert sp.expand(dyson_equation(expr).eliminate().as_expr() - polynomial) == 0, expr


def test_rectangular_marchenko_pastur_and_the_same_symbol_twice() -> None:
    equation = dyson_equation(A / sp.sqrt(m) + alpha * A / sp.sqrt(m), sizes={n: c * m})
    z, g, v = equation.z, equation.cauchy, (1 + alpha) ** 2
    expected = c * v * z * g**2 + (v * (1 - c) - z) * g + 1
    assert sp.expand(equation.eliminate().as_expr() - expected) == 0


def test_equations_hold_as_a_fixed_point_equation() -> None:
    equation = attention()
    assert equation.resolvent[0, 0] == equation.unknowns[0]
    # g (L_0 - η(g)) = 1 with the right-hand sides of the equations put in for the factor g on the left
    right = {eq.lhs: eq.rhs for eq in equation.equations}
    product = equation.resolvent.subs(right, simultaneous=True) * (equation.pencil.constant - equation.eta)
    assert sp.simplify(product - sp.eye(4)) == sp.zeros(4)
    assert set(equation.ratios) == {sp.Symbol("r_n", positive=True), sp.Symbol("r_d", positive=True)}
    assert set(equation.parameters) == {alpha, sigma, *equation.ratios}
    assert not any(eq.has(n, d, m) for eq in equation.equations)


def test_the_pencil_is_verified() -> None:
    equation = attention()
    pencil = equation.pencil
    assert pencil.matrix.shape == (2 * d + m + n, 2 * d + m + n)
    assert pencil.dimensions == (n, m, d, d)
    module._verify(pencil, equation._polynomial, equation.kind, equation.z)
    constant = pencil.constant.as_mutable()
    constant[2, 3] = constant[3, 2] = 2
    wrong = dataclasses.replace(pencil, constant=constant.as_immutable())
    with pytest.raises(CertificationError, match="Schur complement"):
        module._verify(wrong, equation._polynomial, equation.kind, equation.z)


def test_the_blocks_of_the_pencil_reproduce_the_resolvent() -> None:
    """The BlockMatrix in numbers: the first block of its inverse is (z - Y Yᵀ)^{-1}, whatever the matrices are."""
    generator = np.random.default_rng(3)
    q, k, noise = (M(name, *shape) for name, shape in (("Q", (2, 3)), ("K", (4, 3)), ("Z", (2, 4))))
    equation = dyson_equation(q * k.T / sp.sqrt(12) + noise / 2)
    values = {s: sp.Matrix(generator.integers(-3, 4, size=s.shape).tolist()) for s in (q, k, noise)}
    full = sp.Matrix(equation.pencil.matrix.subs(values).subs(equation.z, 5 + sp.I).as_explicit())
    sample = values[q] * values[k].T / sp.sqrt(12) + values[noise] / 2
    direct = ((5 + sp.I) * sp.eye(2) - sample * sample.T).evalf(30).inv()
    assert (full.evalf(30).inv()[:2, :2] - direct).norm() < 1e-20


def test_eliminating_with_numbers() -> None:
    equation = attention()
    z, g = equation.z, equation.cauchy
    values = {alpha: 2, sigma: sp.Rational(1, 2), n: 3, d: 1, m: 2}
    ratios = {sp.Symbol("r_n", positive=True): sp.Rational(3, 2), sp.Symbol("r_d", positive=True): sp.Rational(1, 2)}
    direct = equation.eliminate(values)
    later = sp.Poly(equation.eliminate().as_expr().subs({alpha: 2, sigma: sp.Rational(1, 2), **ratios}), z, g)
    assert sp.cancel(direct.as_expr() / later.as_expr()).is_number


def test_both_kinds_of_a_self_adjoint_expression() -> None:
    expr = (X + X.T) / sp.sqrt(n)
    assert dyson_equation(expr).kind == "eigenvalues"
    squares = dyson_equation(expr, kind="squared singular values").eliminate().as_expr()
    z, g = sp.symbols("z G")
    assert sp.expand(squares - (2 * z * g**2 - z * g + 1)) == 0


def test_normalisation_by_columns() -> None:
    plain = dyson_equation(alpha * X + sigma * Y * Z, normalise="columns").eliminate()
    scaled = dyson_equation(alpha * X / sp.sqrt(n) + sigma * Y * Z / n).eliminate()
    assert plain == scaled
    wide = M("A", n, 2 * n)  # the entries have variance 1/(2n): Marchenko–Pastur of aspect 1/2
    z, g = sp.symbols("z G")
    equation = dyson_equation(wide, normalise="columns")
    assert sp.expand(2 * (z * g**2 / 2 + (sp.Rational(1, 2) - z) * g + 1) - equation.eliminate().as_expr()) == 0


# -- against numbers --------------------------------------------------------------------------------------------------


def test_numeric_is_the_law_of_a_chain() -> None:
    """Damped iteration of the symbolic equation against the certified law, two independent routes."""
    equation = attention()
    law = GaussianChainPlusNoise(inner=[0.5], aspect=0.8, signal=1.69, noise=0.49)
    values = {alpha: 1.3, sigma: 0.7, n: 800, d: 400, m: 1000}
    for z in (1 + 0.5j, 3 + 0.2j, -1 + 1j):
        assert abs(equation.numeric(z, values) - complex(law.cauchy(z))) < 1e-10


_SIMULATED: dict[str, tuple[Any, list[tuple[int, int]], Callable[..., Any], dict[Any, Any]]] = {
    "two Wishart matrices": (
        (A * A.T + B * B.T) / m,
        [(640, 800), (640, 800)],
        lambda a, b: (a @ a.T + b @ b.T) / 800,
        {n: 640, m: 800},
    ),
    "symmetrised product": (
        (A * B.T + B * A.T) / m,
        [(640, 800), (640, 800)],
        lambda a, b: (a @ b.T + b @ a.T) / 800,
        {n: 640, m: 800},
    ),
    "anticommutator": ((X * Y + Y * X) / n, [(700, 700)] * 2, lambda x, y: (x @ y + y @ x) / 700, {}),
    "a matrix, squared and linear": (  # no equation is linear in the last unknowns: needs a resultant
        X * X / n + X / sp.sqrt(n),
        [(700, 700)],
        lambda x: x @ x / 700 + x / np.sqrt(700),
        {},
    ),
    "one matrix in three places": (
        X * X.T / n + alpha * (X + X.T) / sp.sqrt(n),
        [(700, 700)],
        lambda x: x @ x.T / 700 + 0.5 * (x + x.T) / np.sqrt(700),
        {alpha: 0.5},
    ),
    "shifted by the identity": (
        alpha * sp.Identity(n) + X / sp.sqrt(n),
        [(700, 700)],
        lambda x: 0.5 * np.eye(700) + x / np.sqrt(700),
        {alpha: 0.5},
    ),
    "attention, more rows than columns": (
        alpha * M("Q", n, d) * M("K", m, d).T / sp.sqrt(d * m) + sigma * M("Z", n, m) / sp.sqrt(m),
        [(800, 300), (600, 300), (800, 600)],
        lambda q, k, z: 1.3 * q @ k.T / np.sqrt(300 * 600) + 0.7 * z / np.sqrt(600),
        {n: 800, d: 300, m: 600, alpha: 1.3, sigma: 0.7},
    ),
    "product of three": (
        M("F", n, d) * M("G_1", d, m) * M("H", m, m) / (m * sp.sqrt(d)) + sigma * M("Z", n, m) / sp.sqrt(m),
        [(600, 500), (500, 700), (700, 700), (600, 700)],
        lambda f, g, h, z: f @ g @ h / (700 * np.sqrt(500)) + 0.5 * z / np.sqrt(700),
        {n: 600, d: 500, m: 700, sigma: 0.5},
    ),
}


@pytest.mark.parametrize("name", _SIMULATED)
def test_against_simulated_matrices(name: str) -> None:
    """G at unit distance scale: fluctuations of a linear statistic are of order 1/size, so 8/600 is far out."""
    expr, shapes, make, values = _SIMULATED[name]
    generator = np.random.default_rng(11)
    sample = make(*(generator.standard_normal(shape) for shape in shapes))
    equation = dyson_equation(expr)
    eigenvalues = np.linalg.eigvalsh(sample if equation.kind == "eigenvalues" else sample @ sample.T)
    scale = np.sqrt(np.mean(eigenvalues**2))
    polynomial = equation.eliminate().as_expr().subs(equation._values(values, exact=False))
    for direction in (0.5 + 0.5j, -0.3 + 0.6j, 2 + 0.3j):
        z = scale * direction
        g = equation.numeric(z, values)
        assert abs(scale * (np.mean(1 / (z - eigenvalues)) - g)) < 8 / 600
        roots = sp.Poly(polynomial.subs(equation.z, z), equation.cauchy).nroots(n=20)
        assert min(abs(complex(root) - g) for root in roots) < 1e-8 * (1 + abs(g))


def test_products_without_sizes_are_normalised() -> None:
    """aQKᵀ + bZ without sizes is aQKᵀ/√(dm) + bZ/√m; also where the sizes are numbers."""
    q, k, z = M("Q", n, d), M("K", m, d), M("Z", n, m)
    plain = dyson_equation(alpha * q * k.T + sigma * z)
    sized = dyson_equation(alpha * q * k.T / sp.sqrt(d * m) + sigma * z / sp.sqrt(m))
    assert sp.expand(plain.eliminate().as_expr() - sized.eliminate().as_expr()) == 0
    assert plain.equations == sized.equations
    q, k, z = M("Q", 30, 20), M("K", 40, 20), M("Z", 30, 40)
    numbers = dyson_equation(alpha * q * k.T + sigma * z)
    sizes = {
        symbol: {n: 30, d: 20}[ratio.as_numer_denom()[0]] / sp.Integer(40) for symbol, ratio in plain.ratios.items()
    }
    assert sp.expand(
        numbers.eliminate().primitive()[1].as_expr() - plain.eliminate(sizes).primitive()[1].as_expr()
    ) in (0, sp.expand(2 * numbers.eliminate().primitive()[1].as_expr()))


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"expr": alpha}, "expr must be a sympy matrix expression; got"),
        ({"expr": X.I / sp.sqrt(n)}, "got Inverse"),
        ({"expr": sp.HadamardProduct(X, Y)}, "got HadamardProduct"),
        ({"expr": sp.Identity(n)}, "must contain a Gaussian matrix"),
        ({"expr": X - X}, "must contain a Gaussian matrix"),
        ({"expr": sp.I * X / sp.sqrt(n)}, "must be real and finite; got I"),
        ({"expr": X[0, 0] * X / sp.sqrt(n)}, "must be real and finite"),
        ({"expr": alpha * X + X / sp.sqrt(n)}, r"coefficient of X .* n\*\*\(-1/2\)"),
        ({"expr": alpha * X, "normalise": "entries"}, r"coefficient of X .* n\*\*\(-1/2\); got alpha"),
        ({"expr": M("A", n, 5) * M("B", 5, n) / n}, "all shapes must grow in proportion"),
        ({"expr": M("A", n, n + 1) / sp.sqrt(n)}, "shapes must grow in proportion"),
        ({"expr": X / sp.sqrt(n), "kind": "eigenvalues"}, "needs an expression equal to its transpose"),
        ({"expr": X / sp.sqrt(n), "kind": "values"}, "kind must be None"),
        ({"expr": X / sp.sqrt(n), "normalise": "rows"}, "normalise must be"),
        ({"expr": sp.Symbol("z") * X / sp.sqrt(n)}, "must not use the symbols z and G"),
        ({"expr": A / sp.sqrt(m), "sizes": {m: 2 * n}}, "the sizes that may be given are"),
        ({"expr": A / sp.sqrt(m), "sizes": {n: m**2}}, "must be a ratio times the size m"),
        ({"expr": M("A", 2, 3), "sizes": {n: m}}, "only for symbolic shapes"),
        ({"expr": X / sp.sqrt(n) + M("X", n, m) * M("B", m, n) / n}, "one name for matrices of different shapes"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        dyson_equation(**arguments)


def test_values_are_checked() -> None:
    equation = attention()
    with pytest.raises(ParameterError, match="values must give every parameter"):
        equation.numeric(1j, {alpha: 1})
    with pytest.raises(ParameterError, match="upper half-plane; got"):
        equation.numeric(1.0, {})
    with pytest.raises(ParameterError, match="values names beta"):
        equation.eliminate({sp.Symbol("beta"): 1})
    with pytest.raises(ParameterError, match="exact rational number"):
        equation.eliminate({alpha: sp.pi})
    with pytest.raises(ParameterError, match="must be a real number"):
        equation.numeric(1j, {alpha: sp.I})
