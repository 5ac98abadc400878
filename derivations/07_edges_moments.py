"""Edges, the hard edge at zero, the proof that the right edge exceeds Marchenko–Pastur's, and closed moments."""

from __future__ import annotations

import sympy as sp

from gequiv.symbolic.derivation import Derivation, run_document

TITLE = "Edges and moments of the limit law"


def derive() -> Derivation:
    """From the curve of document 5 to its critical values and its Lagrange inversion."""
    doc = Derivation(
        TITLE,
        [
            r"The curve of document 5: $z = \tau^2 (1+y)(1+cy)P/t$, $zG = 1+y$, $y = \rho t + (1-\rho)t/P$, "
            r"$P = \prod_i (1 + \rho t/c_i)$, with $0 < \rho < 1$ and all $c_i > 0$.",
            r"For attention $\tau^2 = e^{\beta^2}-1$ and $\rho = \beta^2/\tau^2$; self-attention means $c = 1$, "
            "orthonormal tokens one inner dimension $c_1 = d_k/n$.",
        ],
    )
    t, tau, rho, c, c1, p = sp.symbols("t tau rho c c1 P", positive=True)
    y_p = rho * t + (1 - rho) * t / p
    z_p = tau**2 * (1 + y_p) * (1 + c * y_p) * p / t
    one = 1 + rho * t / c1
    z_one = z_p.subs({p: one, c: 1})

    doc.text(
        r"Edges. Off the support $G$ is real and decreasing in $z$, so the curve passes it with $dz/dt \ne 0$; an "
        r"edge is a point where $t(z)$ ceases to be analytic, a zero of $dz/dt$. For one inner dimension and $c = 1$, "
        r"with $y' = dy/dt$:"
    )
    y_one = y_p.subs(p, one)
    slope = sp.diff(y_one, t)
    doc.equation(slope, rho + (1 - rho) / one**2, "$y'$")
    bracket = 2 * slope * one * t - (1 + y_one)
    doc.equation(sp.Derivative(z_one, t), tau**2 * (1 + y_one) / t**2 * bracket)
    doc.text(r"since $P't - P = -1$. Clearing denominators, the second factor is the edge polynomial:")
    numerator = sp.expand(sp.numer(sp.together(bracket)))
    edge = sp.Poly(numerator, t)
    doc.equation(bracket, edge.as_expr() / sp.denom(sp.together(bracket)))

    doc.text(
        r"Hard edge. For $c = 1$ the other factor, $1 + y = 0$, gives $z = 0$, a double zero of $z$; there $G = "
        r"(1+y)/z$ grows like $z^{-1/2}$, with a coefficient that is exact on the whole curve:"
    )
    doc.equation(
        z_p.subs(c, 1) * ((1 + y_p) / z_p.subs(c, 1)) ** 2,
        t / (tau**2 * p),
        "put in the curve with $c = 1$",
        shown=(sp.Symbol("z") * sp.Symbol("G") ** 2, t / (tau**2 * p)),
    )
    doc.text(r"One inner dimension: $1 + y = 0$ is a quadratic equation for $t$,")
    hard = rho**2 * t**2 / c1 + (1 + rho / c1) * t + 1
    doc.equation((1 + y_one) * one, hard)
    discriminant = (1 - rho / c1) ** 2 + 4 * rho * (1 - rho) / c1
    doc.equation(sp.discriminant(hard, t), discriminant, "a sum of positive terms: two real roots, both negative")
    doc.equation(hard.subs(t, -c1 / rho), -c1 * (1 - rho) / rho, "negative where $P = 0$: one root on either side")
    doc.text(
        r"so $P > 0$ at the root nearer to 0, where $t/P < 0$, and $P < 0$ at the other, where $zG^2 > 0$ would give "
        r"no density. Hence the density is $\sqrt{-t/P}/(\pi\tau\sqrt{x})$ as $x \to 0$, with $t$ the larger root."
    )

    doc.text(
        r"The gap. The field's earlier law, Marchenko and Pastur's with the same variance $\tau^2$, has its right "
        r"edge at $\tau^2(1+\sqrt c)^2$. Completing the square in the curve:"
    )
    root = sp.sqrt(c)
    y = sp.Symbol("y", real=True)
    doc.equation((1 + y) * (1 + c * y), (1 - root * y) ** 2 + (1 + root) ** 2 * y)
    doc.equation(y_p * p / t, 1 + rho * (p - 1))
    gap = (1 - root * y_p) ** 2 * p / t + (1 + root) ** 2 * rho * (p - 1)
    doc.equation(z_p / tau**2 - (1 + root) ** 2, gap, "for any chain")
    doc.text(
        r"For $t > 0$ every $P > 1$, so the right side is positive. It remains to see that the right edge has $t > "
        r"0$. To the right of the support $G$ is real and analytic, hence so are $y = zG - 1$, $q = (1+y)(1+cy)/z$ "
        r"and $\rho t = y - \sigma^2 q$ (document 5). Near $z = \infty$, $t$ is positive, about $\tau^2/z$; and $t$ "
        r"can neither reach 0 nor grow beyond all bounds at a finite $z$, because $z \to \infty$ in both limits:"
    )
    doc.equation(
        y_p - tau**2 * (1 - rho) * (1 + y_p) * (1 + c * y_p) / z_p,
        rho * t,
        r"with $\sigma^2 = (1-\rho)\tau^2$ and the curve put in for $q$",
        shown=(sp.Symbol("y") - sp.Symbol("sigma") ** 2 * sp.Symbol("q"), rho * t),
    )
    doc.limit(z_one * t, t, 0, tau**2, "$zt$")
    doc.limit(z_one, t, sp.oo, sp.oo, "$z$ for one inner dimension; further factors of $P$ only add to it")
    doc.text(
        r"So $t$ stays in a compact part of the positive axis down to the right edge, which therefore lies strictly "
        r"above Marchenko and Pastur's, for every chain, every aspect ratio and every $\beta > 0$; with $c = 1$, "
        r"above $4(e^{\beta^2}-1)$. Proved. The edge is the value at the first positive critical point: before it $z$ "
        r"decreases with $t$, and where $dz/dt \ne 0$ the real analytic $t$ would continue below the edge."
    )
    doc.equation(
        gap.subs({c: 1, p: one}),
        (1 - y_one) ** 2 * one / t + 4 * rho**2 * t / c1,
        "the gap for $c = 1$, one inner dimension",
    )
    _moments(doc)
    _compare(doc, edge, hard, (t, tau, rho, c1))
    return doc


def _moments(doc: Derivation) -> None:
    """Lagrange inversion in closed form, verified by substitution."""
    q, c, c1, s, noise, x = sp.symbols("q c c1 s v x", positive=True)
    u = sp.Symbol("u")
    doc.text(
        r"Moments. On the curve $q = u/(sP)$ and $y = u + v q$, with $v = \sigma^2$ (document 5). Lagrange's formula "
        r"inverts the first relation: the coefficient of $q^j$ in $u$ is $\frac{1}{j}[u^{j-1}](sP)^j$. For one inner "
        r"dimension:"
    )
    product = s * (1 + u / c1)
    coefficients = [sp.expand(product**j).coeff(u, j - 1) / j for j in range(1, 5)]
    for j, value in enumerate([s, s**2 / c1, s**3 / c1**2, s**4 / c1**3]):
        doc.equation(coefficients[j], value, f"$j = {j + 1}$")
    inverse = s * q / (1 - s * q / c1)
    doc.series(
        inverse,
        q,
        0,
        5,
        sum(k * q ** (j + 1) for j, k in enumerate(coefficients)),
        "a geometric series: $u$ in closed form",
    )
    doc.equation(inverse / (s * (1 + inverse / c1)), q)
    doc.text(
        r"With $y(q) = u(q) + v q$ and $1/z = q/((1+y)(1+cy))$ a second inversion gives "
        r"$m_k = \frac{1}{k}[q^{k-1}]\, y'(q) ((1+y)(1+cy))^k$."
    )
    series = sum(k * q ** (j + 1) for j, k in enumerate(coefficients)) + noise * q
    moments, power = [], sp.diff(series, q)
    factor = _below((1 + series) * (1 + c * series), q, 4)
    for k in range(1, 5):
        power = _below(power * factor, q, 4)
        moments.append(power.coeff(q, k - 1) / k)
    tau2 = s + noise
    closed = [
        tau2,
        (1 + c) * tau2**2 + s**2 / c1,
        (1 + 3 * c + c**2) * tau2**3 + 3 * (1 + c) * tau2 * s**2 / c1 + s**3 / c1**2,
        (1 + 6 * c + 6 * c**2 + c**3) * tau2**4
        + (6 + 16 * c + 6 * c**2) * tau2**2 * s**2 / c1
        + (1 + c) * (4 * tau2 * s**3 + 2 * s**4) / c1**2
        + s**4 / c1**3,
    ]
    for k in range(4):
        doc.equation(moments[k], closed[k], f"$m_{k + 1}$")
    beta = sp.Symbol("beta", positive=True)
    doc.equation(
        closed[1].subs({c: 1, s: beta**2, noise: sp.exp(beta**2) - 1 - beta**2}),
        2 * (sp.exp(beta**2) - 1) ** 2 + beta**4 / c1,
        "attention, self: the second moment",
    )
    doc.text(
        r"That these are the moments, without Lagrange: $y = \sum_k m_k x^k$ at $x = 1/z$ must solve "
        r"$q = x(1+y)(1+cy)$, $y = u(q) + v q$, with the closed form of $u$."
    )
    y = sum(m * x ** (k + 1) for k, m in enumerate(closed))
    argument = _below(x * (1 + y) * (1 + c * y), x, 5)
    residue = _below((y - noise * argument) * (1 - s * argument / c1) - s * argument, x, 5)
    doc.equation(residue, 0, "all terms up to order 4 of the residue", how="expand")
    _compare_moments(doc, closed, (c, c1, s, noise))


def _below(expression: sp.Expr, variable: sp.Symbol, order: int) -> sp.Expr:
    """The terms below an order of a polynomial in `variable`, as a polynomial."""
    coefficients = sp.Poly(expression, variable).all_coeffs()[::-1][:order]
    return sum(sp.expand(value) * variable**k for k, value in enumerate(coefficients))


def _compare_moments(doc: Derivation, closed: list[sp.Expr], symbols: tuple[sp.Symbol, ...]) -> None:
    from gequiv.attention import Attention
    from gequiv.laws import GaussianChainPlusNoise

    c, c1, s, noise = symbols
    half = sp.Rational(1, 2)
    values = {c: 1, c1: half, s: 1, noise: sp.E - 2}
    law = Attention(1000, 500, 1.0).limit_law()
    for k in range(1, 5):
        doc.check(rf"$m_{k}$ of attention, $\beta = 1$, $d_k = n/2$", closed[k - 1].subs(values), law.moment(k))
    values = {c: sp.Rational(3, 2), c1: sp.Rational(1, 4), s: half, noise: sp.Rational(1, 8)}
    rectangular = GaussianChainPlusNoise([0.25], 1.5, 0.5, 0.125)
    for k in range(1, 5):
        doc.check(f"$m_{k}$ with $c = 3/2$, $c_1 = 1/4$", closed[k - 1].subs(values), rectangular.moment(k))


def _compare(doc: Derivation, edge: sp.Poly, hard: sp.Expr, symbols: tuple[sp.Symbol, ...]) -> None:
    import math

    from gequiv.attention import Attention

    t, tau, rho, c1 = symbols
    for beta, head_dim in ((sp.Rational(1, 2), 500), (sp.Integer(1), 500), (sp.Integer(2), 2000)):
        tau2 = sp.exp(beta**2) - 1
        numbers = {rho: sp.N(beta**2 / tau2, 40), c1: sp.Rational(head_dim, 1000), tau: sp.N(sp.sqrt(tau2), 40)}
        law = Attention(1000, head_dim, float(beta)).limit_law()
        polynomial = sp.Poly(edge.as_expr().subs(numbers), t)
        first = min(sp.re(r) for r in polynomial.nroots(n=30, maxsteps=200) if abs(sp.im(r)) < 1e-20 and sp.re(r) > 0)
        share, ratio = numbers[rho], numbers[c1]
        product = 1 + share * first / ratio
        y = share * first + (1 - share) * first / product
        where = rf"$\beta = {sp.latex(beta)}$, $d_k/n = {float(numbers[c1]):g}$"
        right = law.support()[-1][1]
        doc.check(f"right edge, {where}", tau2 * (1 + y) ** 2 * product / first, right)
        quadratic = sp.Poly(hard.subs(numbers), t)
        larger = max(sp.re(r) for r in quadratic.nroots(n=30))
        level = sp.sqrt(-larger / (1 + share * larger / ratio)) / (sp.pi * numbers[tau])
        x = float(tau2) * 1e-12
        doc.check(
            rf"$\sqrt{{x}}$ times the density at $x = 10^{{-12}}\tau^2$, {where}",
            level,
            law.pdf(x) * math.sqrt(x),
            1e-4,
        )


if __name__ == "__main__":
    raise SystemExit(run_document(derive))
