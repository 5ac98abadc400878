"""The linear model of any positive score function: coefficient and noise variance."""

from __future__ import annotations

import sympy as sp

from gequiv.symbolic.derivation import Derivation, run_document

TITLE = "The linear model of a score function"


def derive() -> Derivation:
    """From the projection on a linear function to $c_1$ and $\\sigma^2$, and their values for the exponential."""
    doc = Derivation(
        TITLE,
        [
            r"$A_{ij} = f(S_{ij})/\sum_k f(S_{ik})$ with a score function $f \ge 0$ of positive mean and finite second "
            r"moment under the standard Gaussian variable $g$.",
            r"The normaliser may be frozen at its mean $n E f(g)$ (document 2, for the exponential).",
        ],
    )
    x = sp.Symbol("x", real=True)
    beta = sp.Symbol("beta", positive=True)
    density = sp.exp(-(x**2) / 2) / sp.sqrt(2 * sp.pi)

    doc.text(
        "Gaussian integration by parts. The derivative of $f$ times the Gaussian density is, for any differentiable "
        "$f$,"
    )
    f = sp.Function("f")(x)
    doc.equation(sp.Derivative(f * density, x), sp.diff(f, x) * density - x * f * density)
    doc.text(
        r"Its integral over the line vanishes, so $E\,g f(g) = E f'(g)$: the first Hermite coefficient is the mean "
        r"slope."
    )
    m0, m1, m2, a, b = sp.symbols("m0 m1 m2 a b", real=True)
    doc.text(
        r"Let $m_0 = E f$, $m_1 = E\,g f = E f'$, $m_2 = E f^2$. The mean square distance of $f$ to $a + b g$, with "
        r"$E g = 0$ and $E g^2 = 1$, is a sum of squares and a remainder:"
    )
    distance = doc.define(sp.Symbol("D"), m2 - 2 * a * m0 - 2 * b * m1 + a**2 + b**2)
    doc.equation(distance, (a - m0) ** 2 + (b - m1) ** 2 + (m2 - m0**2 - m1**2))
    doc.text(
        r"so the best linear function is $m_0 + m_1 g$, and what is left has mean 0, is uncorrelated with $g$ and has "
        r"variance $m_2 - m_0^2 - m_1^2$. Dividing by the frozen normaliser, an entry of $\sqrt n (A - 11^\top/n)$ is "
        r"$(c_1 S_{ij} + \sigma N_{ij})/\sqrt n$ with"
    )
    c1 = doc.define(sp.Symbol("c1"), m1 / m0)
    noise = doc.define(sp.Symbol("sigma") ** 2, m2 / m0**2 - 1 - c1**2)
    doc.equation(noise * m0**2, m2 - m0**2 - m1**2)
    doc.text(
        r"Why $N$ acts as independent Gaussian noise. $N$ is a sum of Hermite polynomials of degree $k \ge 2$ of the "
        r"scores; degree $k$ is a product of matrices with an inner dimension of about $d^k/k!$, which is $c\,n$ with "
        r"$c \to \infty$ where $d$ grows like $n$. A Gaussian factor of relative inner dimension $c$ enters the "
        r"S-transform as $1/(1+u/c)$ (document 4), and"
    )
    u, c = sp.symbols("u c", positive=True)
    doc.limit(1 / (1 + u / c), c, sp.oo, 1, "that of noise with independent entries")
    doc.text(
        "This last paragraph is heuristic: that the parts of different degree are asymptotically free is the content "
        "of the theorem of Hayase, Collins and Karakida (2025) and is not derived here; the finite-width correction "
        "is document 8. Everything else in this document is proved."
    )

    def moments(score: sp.Expr, lower: sp.Expr = -sp.oo) -> tuple[sp.Expr, sp.Expr, sp.Expr]:
        return tuple(
            sp.simplify(sp.integrate(sp.expand(factor * density), (x, lower, sp.oo)))
            for factor in (score, x * score, score**2)
        )

    doc.text("The exponential, by the integral of a Gaussian with a linear term:")
    lam = sp.Symbol("lambda", positive=True)
    transform = sp.exp(lam**2 / 2)
    doc.equation(sp.Integral(sp.exp(lam * x) * density, (x, -sp.oo, sp.oo)), transform)
    values = {
        m0: transform.subs(lam, beta),
        m1: sp.diff(transform, lam).subs(lam, beta),
        m2: transform.subs(lam, 2 * beta),
    }
    doc.equation(c1.subs(values), beta, "$c_1$")
    exponential = sp.exp(beta**2) - 1 - beta**2
    doc.equation(noise.subs(values), exponential, r"$\sigma^2$")
    doc.series(exponential, beta, 0, 8, beta**4 / 2 + beta**6 / 6, r"small $\beta$: the noise is far below the signal")
    doc.equation(
        (c1**2 + noise).subs(values),
        sp.exp(beta**2) - 1,
        r"the total variance: $\mathrm{Var} f/(E f)^2$, the law's mean",
    )

    doc.text("Other score functions. A quadratic one, the rectifier $\\max(x, 0)$, and one without a linear part:")
    p = sp.Symbol("p", positive=True)
    quadratic = dict(zip((m0, m1, m2), moments((1 + p * x) ** 2), strict=True))
    doc.equation(c1.subs(quadratic), 2 * p / (1 + p**2), r"$f = (1 + p x)^2$: $c_1$")
    doc.equation(noise.subs(quadratic), 2 * p**4 / (1 + p**2) ** 2, r"$f = (1 + p x)^2$: $\sigma^2$")
    rectifier = dict(zip((m0, m1, m2), moments(x, sp.Integer(0)), strict=True))
    doc.equation(c1.subs(rectifier), sp.sqrt(sp.pi / 2), r"$f = \max(x, 0)$: $c_1$")
    doc.equation(noise.subs(rectifier), sp.pi / 2 - 1, r"$f = \max(x, 0)$: $\sigma^2$")
    even = dict(zip((m0, m1, m2), moments(1 + x**2), strict=True))
    doc.equation(
        c1.subs(even), 0, "$f = 1 + x^2$: no linear part, and the limit law is Marchenko–Pastur, only in such a case"
    )
    doc.equation(noise.subs(even), sp.Rational(1, 2))
    _compare(doc, beta, exponential)
    return doc


def _compare(doc: Derivation, beta: sp.Symbol, exponential: sp.Expr) -> None:
    from gequiv.attention import LinearModel

    for value in (sp.Rational(1, 1024), sp.Rational(3, 4), sp.Integer(5)):
        doc.check(
            rf"noise variance at $\beta = {sp.latex(value)}$",
            exponential.subs(beta, value),
            LinearModel(float(value)).noise_variance,
        )
        share = value**2 / (sp.exp(value**2) - 1)
        doc.check(rf"signal share at $\beta = {sp.latex(value)}$", share, LinearModel(float(value)).signal_share)


if __name__ == "__main__":
    raise SystemExit(run_document(derive))
