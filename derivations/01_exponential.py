"""Hermite expansion of the exponential score: coefficients, mean, variance, and the two numbers that survive."""

from __future__ import annotations

import sympy as sp

from gequiv.symbolic.derivation import Derivation, run_document

TITLE = "The exponential in Hermite polynomials"


def derive() -> Derivation:
    """From the Gaussian density to $\\beta$ and $e^{\\beta^2}-1-\\beta^2$."""
    doc = Derivation(
        TITLE,
        [
            r"$g$ is a standard Gaussian variable, $\beta > 0$.",
            r"The score function is the exponential, divided by its mean: $f(x) = e^{\beta x - \beta^2/2}$.",
        ],
    )
    x, s, t = sp.symbols("x s t", real=True)
    beta = sp.Symbol("beta", positive=True)
    k = sp.Symbol("k", integer=True, nonnegative=True)
    density = doc.define(sp.Symbol("phi"), sp.exp(-(x**2) / 2) / sp.sqrt(2 * sp.pi), "the density of $g$")
    f = doc.define(sp.Symbol("f"), sp.exp(beta * x - beta**2 / 2), "the score function")

    def mean(expression: sp.Expr) -> sp.Integral:
        return sp.Integral(expression * density, (x, -sp.oo, sp.oo))

    doc.text(
        "The Hermite polynomials come from moving the bell curve. Shifted by $t$ and divided by itself it is an "
        "exponential of $x$, the same one as the score function with $t = \\beta$:"
    )
    doc.equation(sp.exp(-((x - t) ** 2) / 2) / sp.exp(-(x**2) / 2), sp.exp(t * x - t**2 / 2))
    doc.text(
        r"By Taylor's theorem in $t$ the coefficient of $t^k/k!$ is the polynomial "
        r"$He_k(x) = (-1)^k e^{x^2/2}\, \partial_x^k e^{-x^2/2}$, for every $k$. The first ones:"
    )

    def hermite(order: int) -> sp.Expr:
        return sp.expand(sp.simplify((-1) ** order * sp.exp(x**2 / 2) * sp.diff(sp.exp(-(x**2) / 2), x, order)))

    for order, polynomial in enumerate([1, x, x**2 - 1, x**3 - 3 * x, x**4 - 6 * x**2 + 3]):
        rodrigues = (-1) ** order * sp.exp(x**2 / 2) * sp.Derivative(sp.exp(-(x**2) / 2), (x, order))
        doc.equation(rodrigues if order else sp.Integer(1), polynomial, f"$He_{order}$")
    doc.series(
        sp.exp(t * x - t**2 / 2),
        t,
        0,
        6,
        sum(hermite(order) * t**order / sp.factorial(order) for order in range(6)),
        "the generating function to order 5",
    )
    doc.text("Two generating functions, multiplied and averaged, show that the polynomials are orthogonal:")
    doc.equation(
        mean(sp.exp(s * x - s**2 / 2) * sp.exp(t * x - t**2 / 2)),
        sp.exp(s * t),
        r"only powers of $st$ occur, so $E\,He_j He_k = 0$ for $j \ne k$, and $E\,He_k^2 = k!$",
    )
    for j, i in [(2, 3), (2, 4), (3, 3), (4, 4)]:
        doc.equation(mean(hermite(j) * hermite(i)), sp.factorial(j) if i == j else 0, f"$j = {j}$, $k = {i}$")

    doc.text(
        r"Let $a_k = E\,f(g)\,He_k(g)/\sqrt{k!}$ be the coefficient of the orthonormal polynomial. The same integral "
        r"with $t = \beta$ is the generating function of all of them, and its $k$-th derivative at $s = 0$ is "
        r"$\sqrt{k!}\,a_k$:"
    )
    doc.equation(mean(sp.exp(s * x - s**2 / 2) * f), sp.exp(beta * s))
    doc.equation(
        sp.Derivative(beta**k * sp.exp(beta * s), s),
        beta ** (k + 1) * sp.exp(beta * s),
        r"by induction the $k$-th derivative is $\beta^k e^{\beta s}$, so $a_k = \beta^k/\sqrt{k!}$ for every $k$",
    )
    for order in range(3):
        name = {0: "the mean is 1", 1: r"the first coefficient is $\beta$"}.get(
            order, f"$a_{order}$, by direct integration"
        )
        norm = sp.sqrt(sp.factorial(order))
        doc.equation(mean(f * hermite(order) / norm), beta**order / norm, name)

    doc.text("The second moment by direct integration equals the sum of the squares of the coefficients:")
    second = sp.exp(beta**2)
    doc.equation(mean(f**2), second)
    doc.equation(
        sp.Sum(beta ** (2 * k) / sp.factorial(k), (k, 0, sp.oo)),
        second,
        "so nothing is missing: the expansion converges to $f$ in mean square",
    )
    variance = doc.define(sp.Symbol("tau") ** 2, second - 1, "the variance")
    doc.equation(sp.Sum(beta ** (2 * k) / sp.factorial(k), (k, 1, sp.oo)), variance)
    noise = doc.define(sp.Symbol("sigma") ** 2, variance - beta**2, "all that is not linear")
    doc.equation(sp.Sum(beta ** (2 * k) / sp.factorial(k), (k, 2, sp.oo)), noise)

    _compare(doc, beta, variance, noise)
    return doc


def _compare(doc: Derivation, beta: sp.Symbol, variance: sp.Expr, noise: sp.Expr) -> None:
    from gequiv.attention import LinearModel

    for value in (sp.Rational(1, 128), sp.Rational(1, 2), sp.Integer(3)):
        model = LinearModel(float(value))
        where = rf"at $\beta = {sp.latex(value)}$"
        doc.check(f"first coefficient {where}", value, model.coefficient)
        doc.check(f"variance {where}", variance.subs(beta, value), model.total_variance)
        doc.check(f"noise variance {where}", noise.subs(beta, value), model.noise_variance)


if __name__ == "__main__":
    raise SystemExit(run_document(derive))
