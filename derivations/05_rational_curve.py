"""Signal plus noise: from the resolvent to a curve on which z and G are rational functions of one parameter."""

from __future__ import annotations

import sympy as sp

from gequiv.symbolic.derivation import Derivation, run_document

TITLE = "Signal plus noise: the rational curve"


def derive() -> Derivation:
    """From the resolvent of $B + \\sigma Z/\\sqrt{n}$ to $z = \\tau^2 (1+y)(1+cy)P/t$."""
    doc = Derivation(
        TITLE,
        [
            r"$Y = B + \sigma Z/\sqrt n$ has $m$ rows and $n$ columns, $c = m/n$; $Z$ has independent standard "
            r"Gaussian entries and is independent of $B$.",
            r"$B = \sqrt{s}\,S/\sqrt n$ with scores $S$ whose law is that of document 4: inner dimensions $c_i m$ and "
            r"last dimension $n = m/c$.",
            "Averages of resolvent entries concentrate; lower orders are dropped, as in document 4.",
        ],
    )
    zeta, sigma, c, s = sp.symbols("zeta sigma c s", positive=True)
    g, h, lam, big_g = sp.symbols("g h lambda G")
    noise = sigma**2

    doc.text(
        r"Put $Y$ and $Y^\top$ into the corners of one symmetric matrix and take its resolvent at $\zeta$, $\zeta^2 = "
        r"z$. Let $g$ and $h$ be the averages of its diagonal over rows and columns. Integration by parts over $Z$ "
        r"replaces the noise by its self-energy: rows get $\sigma^2 h$, columns $\sigma^2 c g$. What is left contains "
        r"$B$ alone; for a singular value $\sqrt\lambda$ of $B$ it is a matrix of two rows, whose first diagonal "
        r"entry is"
    )
    alpha, tilde = zeta - noise * h, zeta - noise * c * g
    block = sp.Matrix([[alpha, -sp.sqrt(lam)], [-sp.sqrt(lam), tilde]])
    doc.equation(block.inv()[0, 0], tilde / (alpha * tilde - lam), how="rational")
    doc.text(
        r"The average over $B$ is $g = \tilde{\alpha}\, G_B(w)$ with $w = \alpha\tilde{\alpha}$, where $\alpha$ and "
        r"$\tilde{\alpha}$ are the two diagonal entries. $Y Y^\top$ and $Y^\top Y$ share their nonzero eigenvalues, so "
        r"$h = c g + (1-c)/\zeta$; and $g = \zeta G(z)$. With $b = 1 - \sigma^2 c G$:"
    )
    b = doc.define(sp.Symbol("b"), 1 - noise * c * big_g)
    related = {h: c * g + (1 - c) / zeta}
    doc.equation(tilde.subs(g, zeta * big_g), zeta * b)
    doc.equation(
        (alpha * tilde).subs(related).subs(g, zeta * big_g),
        b**2 * zeta**2 - b * noise * (1 - c),
        "$w$, with $z = \\zeta^2$",
    )
    doc.text(
        r"so $G = b\,G_B(w)$ and $z = (w + b\sigma^2(1-c))/b^2$ (Dozier and Silverstein's equation). On the curve of "
        r"the signal, $w = T(u)$ and $G_B = (1+u)/T$; solving $b = 1 - \sigma^2 c\,b (1+u)/T$ for $b$:"
    )
    u, t_sym, b_sym = sp.symbols("u T b", positive=True)
    solved = sp.solve(sp.Eq(b_sym, 1 - noise * c * b_sym * (1 + u) / t_sym), b_sym)[0]
    b_u = t_sym / (t_sym + noise * c * (1 + u))
    doc.equation(solved, b_u, "$b$")
    z_u = (t_sym + b_u * noise * (1 - c)) / b_u**2
    g_u = b_u * (1 + u) / t_sym
    doc.define(sp.Symbol("z"), z_u)
    doc.define(sp.Symbol("G"), g_u)
    doc.equation(z_u.subs(c, 1), (t_sym + noise * (1 + u)) ** 2 / t_sym, "square matrices, $c = 1$")

    doc.text(
        r"Simplification. Let $P(u) = \prod_i (1+u/c_i)$ run over the inner dimensions, the last dimension giving $1 "
        r"+ cu$: $T = s (1+u)(1+cu) P/u$. Any function $P$ will do."
    )
    p = sp.Symbol("P", positive=True)
    chain = s * (1 + u) * (1 + c * u) * p / u
    y = doc.define(sp.Symbol("y"), u + noise * u / (s * p))
    doc.equation(b_u.subs(t_sym, chain), (1 + c * u) / (1 + c * y))
    doc.equation(z_u.subs(t_sym, chain), (1 + y) * (1 + c * y) * s * p / u, "$z$")
    doc.equation((z_u * g_u).subs(t_sym, chain), 1 + y, "$zG$")

    doc.text(
        r"In these variables the rectangular R-transform can be read off. With $q = (1+y)(1+cy)/z$, signal alone has "
        r"$y = u$ at $q = u/(sP)$, noise alone has $y = \sigma^2 q$ (Marchenko and Pastur), and together"
    )
    q = sp.Symbol("q", positive=True)
    mp = sp.Symbol("y", positive=True)
    marchenko_pastur = noise * (1 + mp) * (1 + c * mp) / mp
    doc.equation(
        (1 + mp) * (1 + c * mp) / marchenko_pastur,
        mp / noise,
        "noise alone, from document 4 with $1/c$ for its dimension",
    )
    doc.equation(
        ((1 + y) * (1 + c * y) / z_u).subs(t_sym, chain),
        u / (s * p),
        "signal plus noise: the same $q$ as the signal alone",
    )
    doc.equation(y, u + noise * q.subs(q, u / (s * p)), "and $y$ is the sum of both: the transform is additive")

    doc.text(
        r"In units of the total variance $\tau^2 = s + \sigma^2$, with the share $\rho = s/\tau^2$ and $u = \rho t$, "
        r"this is the form in which gequiv computes:"
    )
    tau, rho, t = sp.symbols("tau rho t", positive=True)
    units = {s: rho * tau**2, sigma: tau * sp.sqrt(1 - rho), u: rho * t}
    y_t = rho * t + (1 - rho) * t / p
    doc.equation(y.subs(units, simultaneous=True), y_t, "$y$")
    z_t = tau**2 * (1 + y_t) * (1 + c * y_t) * p / t
    doc.equation(z_u.subs(t_sym, chain).subs(units, simultaneous=True), z_t, "$z$")

    doc.text(
        "For a given $z$, clearing denominators leaves a polynomial equation for $t$. Its degree, with unequal "
        "dimensions:"
    )
    z = sp.Symbol("z")
    for inner in (1, 3):
        ratios = sp.symbols(f"c1:{inner + 1}", positive=True)
        product = sp.prod([1 + rho * t / ratio for ratio in ratios])
        equation = sp.fraction(sp.together(z - z_t.subs(p, product)))[0]
        doc.equation(
            sp.degree(sp.expand(equation), t),
            2 * inner + 2,
            f"{inner} inner dimension{'s' * (inner > 1)}",
            how="expand",
        )
    _eliminate(doc)
    _compare(doc)
    return doc


def _eliminate(doc: Derivation) -> None:
    """The implicit equation for one set of numbers, by a resultant."""
    doc.text(
        r"Eliminating $t$ instead gives one polynomial $F(z, y)$ with $y = zG - 1$. Square matrices, one inner "
        r"dimension $c_1 = 1/2$, $s = 1$, $\sigma^2 = 2$:"
    )
    u, z, y, v = sp.symbols("u z y v")
    product = 1 + 2 * u
    curve = sp.expand(u * z - (1 + y) ** 2 * product)
    line = sp.expand(y * product - u * product - 2 * u)
    resultant = sp.factor(sp.resultant(curve, line, u))
    doc.define(sp.Function("F")(z, y), resultant)
    doc.equation(sp.degree(resultant, y), 4, "its degree in $y$", how="expand")
    y_u = v + 2 * v / (1 + 2 * v)
    doc.equation(
        resultant.subs({y: y_u, z: (1 + y_u) ** 2 * (1 + 2 * v) / v}),
        0,
        "it vanishes on the curve, for every parameter $v$",
    )


def _compare(doc: Derivation) -> None:
    from fractions import Fraction

    from gequiv.laws import GaussianChainPlusNoise

    cases = [([Fraction(1, 2)], Fraction(1), 1.0, 0.7), ([Fraction(3, 4), Fraction(1, 3)], Fraction(3, 2), 0.5, 0.25)]
    for inner, aspect, signal, rest in cases:
        law = GaussianChainPlusNoise(inner, aspect, signal, rest)
        for u in (sp.Rational(1, 10) - sp.I / 7, sp.Rational(-1, 20) - sp.I / 30):
            s, noise, c = (sp.Rational(str(value)) for value in (signal, rest, aspect))
            product = sp.prod([1 + u * sp.Rational(1, 1) / sp.Rational(str(ratio)) for ratio in inner])
            y = u + noise * u / (s * product)
            z = (1 + y) * (1 + c * y) * s * product / u
            name = (
                f"$G$ at $z = {complex(z):.3f}$, {len(inner)} inner dimension{'s' * (len(inner) > 1)}, $c = {aspect}$"
            )
            doc.check(name, (1 + y) / z, law.cauchy(complex(z)))


if __name__ == "__main__":
    raise SystemExit(run_document(derive))
