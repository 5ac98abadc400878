"""Where linearisation ends: the Lindeberg condition at gamma = 1/2 and the freezing of row sums at gamma = 2."""

from __future__ import annotations

import sympy as sp

from gequiv.symbolic.derivation import Derivation, run_document

TITLE = "The threshold of linearisation"


def derive() -> Derivation:
    """From Gaussian tails to the two values of $\\gamma = \\beta^2/\\log n$."""
    doc = Derivation(
        TITLE,
        [
            r"$\beta$ grows with $n$: $\gamma = \beta^2/L$ is fixed, $L = \log n$.",
            r"A row of the unnormalised attention matrix: $f_j = e^{\beta g_j - \beta^2/2}$, $j \le n$, with "
            r"independent standard Gaussian $g_j$. Given $q_i$ this is exact for attention up to the factor "
            r"$|q_i|/\sqrt d$ of the scores, whose effect $\beta^2(|q_i|^2/d - 1)$ is of order $L/\sqrt d$ and "
            r"vanishes if $d$ grows faster than $L^2$.",
        ],
    )
    gamma, big_l, beta = sp.symbols("gamma L beta", positive=True)
    x = sp.Symbol("x", real=True)
    k = sp.Symbol("k", positive=True)
    density = sp.exp(-(x**2) / 2) / sp.sqrt(2 * sp.pi)

    doc.text("Moments of an entry. From the Gaussian integral, for every real order $k$:")
    moment = sp.exp(beta**2 * k * (k - 1) / 2)
    doc.equation(sp.Integral(sp.exp(k * beta * x - k * beta**2 / 2) * density, (x, -sp.oo, sp.oo)), moment, "$E f^k$")
    doc.text(
        r"At finite $n$ the fourth moment of a row carries $E f^4/n$, and relative to its scale $E f^4/(n (E f^2)^2)$:"
    )
    doc.equation(moment.subs(k, 4), sp.exp(6 * beta**2))
    exponents = {beta: sp.sqrt(gamma * big_l)}
    lyapunov = moment.subs(k, 4) / moment.subs(k, 2) ** 2 * sp.exp(-big_l)
    doc.equation(
        lyapunov.subs(exponents),
        sp.exp((4 * gamma - 1) * big_l),
        r"a power of $n$ that vanishes only for $\gamma < 1/4$: too crude a criterion",
    )

    _lindeberg(doc, gamma, big_l, beta, x)
    _levels(doc, big_l)
    _freezing(doc, gamma)
    _frozen(doc, gamma)
    _compare(doc, beta, moment.subs(k, 4))
    return doc


def _lindeberg(doc: Derivation, gamma: sp.Symbol, big_l: sp.Symbol, beta: sp.Symbol, x: sp.Symbol) -> None:
    a, eps = sp.symbols("a epsilon", positive=True)
    density = sp.exp(-(x**2) / 2) / sp.sqrt(2 * sp.pi)
    doc.text(
        r"Lindeberg's condition asks for the share of $E f^2$ that comes from entries above $\epsilon$ times the norm "
        r"of the row, $f > \epsilon\sqrt{n E f^2}$. Under the measure with density $f^2/E f^2$ the Gaussian variable "
        r"has mean $2\beta$:"
    )
    tilted = sp.exp(2 * beta * x - beta**2) * density / sp.exp(beta**2)
    doc.equation(tilted, sp.exp(-((x - 2 * beta) ** 2) / 2) / sp.sqrt(2 * sp.pi), how=_exponent)
    share = sp.erfc((a - 2 * beta) / sp.sqrt(2)) / 2
    doc.equation(sp.Integral(density, (x, a - 2 * beta, sp.oo)), share, "the share above $g = a$, after the shift")
    doc.text("In terms of $g$ the bound is $\\beta a - \\beta^2/2 = \\log\\epsilon + (L + \\beta^2)/2$, that is")
    solved = sp.solve(sp.Eq(beta * a - beta**2 / 2, sp.log(eps) + (big_l + beta**2) / 2), a)[0]
    bound = beta + big_l / (2 * beta) + sp.log(eps) / beta
    doc.equation(solved, bound, "$a$")
    distance = ((bound - 2 * beta) / sp.sqrt(big_l)).subs(beta, sp.sqrt(gamma * big_l))
    rate = (1 - 2 * gamma) / (2 * sp.sqrt(gamma))
    doc.equation(
        distance - sp.log(eps) / (sp.sqrt(gamma) * big_l),
        rate,
        r"$(a - 2\beta)/\sqrt{L}$, up to $\log\epsilon/(\sqrt\gamma L)$",
    )
    r, z = sp.symbols("r z", positive=True)
    doc.limit(
        sp.erfc(r * z) / 2, z, sp.oo, 0, r"$\gamma < 1/2$: the rate is positive, the share of large entries vanishes"
    )
    doc.limit(sp.erfc(-r * z) / 2, z, sp.oo, 1, r"$\gamma > 1/2$: it is negative, all of $E f^2$ sits in large entries")
    doc.equation(rate.subs(gamma, sp.Rational(1, 2)), 0, r"the threshold $\gamma = 1/2$")
    doc.text(
        r"Proved: Lindeberg's condition holds for $\gamma < 1/2$ and fails for $\gamma > 1/2$. Heuristic: that the "
        r"noise of the linear model acts as Gaussian exactly as long as Lindeberg's condition holds; that the entries "
        r"of different rows, which share the keys, may be treated as independent is part of that."
    )


def _exponent(expression: sp.Expr) -> sp.Expr:
    return sp.simplify(sp.powsimp(sp.expand(expression)))


def _levels(doc: Derivation, big_l: sp.Symbol) -> None:
    z, alpha = sp.symbols("z alpha", positive=True)
    doc.text(
        r"Row sums. Sort the entries by levels, $g = \alpha\sqrt{L}$. The tail is $P(g > z) = "
        r"\mathrm{erfc}(z/\sqrt{2})/2$, and"
    )
    mills = sp.erfc(z / sp.sqrt(2)) / 2 * z * sp.sqrt(2 * sp.pi) * sp.exp(z**2 / 2)
    doc.limit(mills, z, sp.oo, 1, "the tail is a Gaussian density over $z$ (Mills)")
    level = sp.exp(big_l) * sp.exp(-((alpha * sp.sqrt(big_l)) ** 2) / 2)
    doc.equation(
        level,
        sp.exp((1 - alpha**2 / 2) * big_l),
        "the mean number of entries at level $\\alpha$ is this power of $n$, up to a factor of order $\\sqrt{L}$",
    )
    doc.text(
        r"Proved: for $\alpha > \sqrt{2}$ there is no entry, with probability tending to 1 (Markov); for $\alpha < "
        r"\sqrt{2}$ the number is binomial, its variance at most its mean, so it is its mean times $1 + o(1)$ "
        r"(Chebyshev)."
    )


def _freezing(doc: Derivation, gamma: sp.Symbol) -> None:
    alpha = sp.Symbol("alpha", positive=True)
    p = sp.Symbol("p", positive=True)
    doc.text(
        r"So $\log \sum_j e^{p\beta g_j}$ over $L$ tends to the largest of $p\sqrt\gamma\,\alpha + 1 - \alpha^2/2$ "
        r"over $0 \le \alpha \le \sqrt 2$ (the random energy model). Completing the square,"
    )
    exponent = p * sp.sqrt(gamma) * alpha + 1 - alpha**2 / 2
    doc.equation(exponent, 1 + p**2 * gamma / 2 - (alpha - p * sp.sqrt(gamma)) ** 2 / 2)
    free = 1 + p**2 * gamma / 2
    frozen = p * sp.sqrt(2 * gamma)
    doc.text(r"the maximum lies inside as long as $p\sqrt\gamma < \sqrt 2$, and at the end $\alpha = \sqrt 2$ beyond:")
    doc.equation(exponent.subs(alpha, p * sp.sqrt(gamma)), free, r"$p^2\gamma \le 2$: the exponent of the mean")
    doc.equation(exponent.subs(alpha, sp.sqrt(2)), frozen, r"$p^2\gamma \ge 2$: that of the largest entry alone")
    doc.equation(free - frozen, (sp.sqrt(2) - p * sp.sqrt(gamma)) ** 2 / 2, "the two differ by a square")
    doc.equation((free - frozen).subs({p: 1, gamma: 2}), 0, r"row sums, $p = 1$: they freeze at $\gamma = 2$")
    doc.equation(
        (free - frozen).subs({p: 2, gamma: sp.Rational(1, 2)}),
        0,
        r"sums of squares, $p = 2$: at $\gamma = 1/2$, Lindeberg's value",
    )
    doc.text(r"The participation $\sum_j A_{ij}^2$ is the second sum over the square of the first. Its exponent is")
    low = free.subs(p, 2) - 2 * free.subs(p, 1)
    middle = frozen.subs(p, 2) - 2 * free.subs(p, 1)
    high = frozen.subs(p, 2) - 2 * frozen.subs(p, 1)
    doc.equation(low, gamma - 1, r"$\gamma \le 1/2$: participation is $e^{\beta^2}/n$, as in the linear model")
    doc.equation(
        middle,
        -((sp.sqrt(2) - sp.sqrt(gamma)) ** 2),
        r"$1/2 \le \gamma \le 2$: few entries carry the squares, many the sum",
    )
    doc.equation(high, 0, r"$\gamma \ge 2$: finitely many entries carry the row")
    for value, left, right in ((sp.Rational(1, 2), low, middle), (sp.Integer(2), middle, high)):
        doc.equation((left - right).subs(gamma, value), 0, rf"continuous at $\gamma = {sp.latex(value)}$")
        slope = sp.diff(left - right, gamma)
        doc.equation(slope.subs(gamma, value), 0, "with a continuous derivative")
    doc.text(
        r"Proved, for independent entries and hence for one row of attention: the exponents. Since the exponent is a "
        r"maximum over a compact interval of levels, the two statements on the number of entries suffice. Heuristic: "
        r"any statement on the spectrum of the whole matrix for $\gamma > 1/2$."
    )


def _frozen(doc: Derivation, gamma: sp.Symbol) -> None:
    m, t, x, p = sp.symbols("m t x p", positive=True)
    doc.text(
        r"How much of a frozen sum the few entries carry. $f^p$ is an entry at $p\beta$ in the place of $\beta$: "
        r"one calculation serves row sums and energies: $\gamma$ becomes $p^2\gamma$. Near the largest entry, "
        r"$g = \sqrt{2L} + y/\sqrt{2L}$, the density of $y$ is that of $g$ over $\sqrt{2L}$. With $n = e^L$ entries:"
    )
    big_l, y = sp.Symbol("L", positive=True), sp.Symbol("y", real=True)
    root = sp.sqrt(2 * big_l)
    density = sp.exp(big_l) * sp.exp(-((root + y / root) ** 2) / 2) / (sp.sqrt(2 * sp.pi) * root)
    scale = sp.exp(-y) / sp.sqrt(4 * sp.pi * big_l)
    doc.equation(density, scale * sp.exp(-(y**2) / (4 * big_l)), how=_exponent)
    doc.limit(
        density / scale,
        big_l,
        sp.oo,
        1,
        "intensity $e^{-y}$ up to a factor that shifts all $y$ and drops out of shares",
    )
    doc.text(
        r"In the limit the entries near the top are a Poisson process of intensity $e^{-y}$, with weights $x = "
        r"e^{p\beta y/\sqrt{2L}}$. Put $m = \sqrt{2L}/(p\beta) = \sqrt{2/(p^2\gamma)}$; $y = m\log x$, and $x$ has "
        r"intensity"
    )
    intensity = sp.exp(-m * sp.log(x)) * sp.diff(m * sp.log(x), x)
    doc.equation(intensity, m * x ** (-m - 1))
    doc.text(
        r"Its sum is finite for $m < 1$ only. With $1/W^2 = \int_0^\infty t e^{-tW} dt$ and the formulas of "
        r"Campbell and Mecke, $E\sum_j w_j^2/(\sum_j w_j)^2 = \int_0^\infty t\, I(t)\, e^{-J(t)} dt$. By parts, with "
        r"$k = 1 - m > 0$:"
    )
    k = sp.Symbol("k", positive=True)
    # J is the integral of (1 - e^{-tx}) m x^{-m-1}; by parts that of t e^{-tx} x^{-m}
    parts = sp.diff(-(1 - sp.exp(-t * x)) * x**-m, x)
    doc.equation(
        parts,
        (1 - sp.exp(-t * x)) * m * x ** (-m - 1) - t * sp.exp(-t * x) * x**-m,
        "a total derivative of what vanishes at both ends",
    )
    mass = sp.gamma(k) * t ** (1 - k)
    doc.equation(sp.Integral(t * sp.exp(-t * x) * x ** (k - 1), (x, 0, sp.oo)), mass, "$J(t)$")
    square = (1 - k) * sp.gamma(k + 1) * t ** (-k - 1)
    doc.equation(sp.Integral((1 - k) * x**k * sp.exp(-t * x), (x, 0, sp.oo)), square, "$I(t)$")
    doc.text(
        r"With $v = J(t)$ in the place of $t$, $dv = (1-k)\Gamma(k) t^{-k} dt$, the integrand is a multiple "
        r"of $e^{-v}$:"
    )
    doc.equation(t * square / sp.diff(mass, t), k, how="gamma")
    doc.equation(sp.Integral(k * sp.exp(-x), (x, 0, sp.oo)), k, "participation of a frozen sum, $1 - m$")
    frozen = 1 - sp.sqrt(2 / (p**2 * gamma))
    doc.equation(frozen.subs(gamma, 2 / p**2), 0, r"it grows from 0 at $p^2\gamma = 2$")
    for power, value in ((1, sp.Integer(2)), (2, sp.Rational(1, 2))):
        doc.equation(sp.solve(sp.Eq(p**2 * gamma, 2).subs(p, power), gamma)[0], value, rf"$\gamma$ at $p = {power}$")
    doc.text(
        r"Proved: the exact formulas for the Poisson process. That shares of the random energy model converge to its "
        r"is a theorem (Bovier, Kurkova, Löwe 2002), not proved here."
    )
    doc.text(
        r"The signal $\beta S$ has the share $\beta^2/(e^{\beta^2} - 1)$ of the energy of a row, with "
        r"$\beta^2 = \gamma L$"
    )
    share = gamma * big_l / (sp.exp(gamma * big_l) - 1)
    doc.limit(
        share.subs(gamma, sp.Rational(1, 10)),
        big_l,
        sp.oo,
        0,
        r"it vanishes, here $\gamma = 1/10$, as for every $\gamma > 0$",
    )
    doc.text(
        r"so that below $\gamma = 1/2$ the limit law itself tends to Marchenko-Pastur's of variance $e^{\beta^2} - 1$."
    )


def _compare(doc: Derivation, beta: sp.Symbol, fourth: sp.Expr) -> None:
    import math

    import numpy as np

    from gequiv.attention import Attention, LinearModel, freezing

    for value in (sp.Rational(1, 2), sp.Rational(3, 2), sp.Integer(2)):
        model = LinearModel(float(value))
        doc.check(
            rf"$E f^4$ at $\beta = {sp.latex(value)}$ against the sixth power of $1 + \tau^2$ of gequiv's linear model",
            fourth.subs(beta, value),
            (1 + model.total_variance) ** 6,
        )
    doc.check(
        r"$E f^4/n$ at $n = 2000$, $\beta = 3/2$, rounded down",
        sp.floor(fourth.subs(beta, sp.Rational(3, 2)) / 2000),
        364,
    )
    for power, value in ((1, sp.Integer(8)), (2, sp.Integer(2))):
        doc.check(
            rf"frozen participation at $p = {power}$, $\gamma = {value}$, $m = 1/2$, of gequiv's limit",
            1 - sp.sqrt(sp.Integer(2) / (power**2 * value)),
            freezing.participation_limit(float(value), power),
        )
        doc.check(
            r"and at $n = 10^{12}$, where the distance from the limit is of order $\log L/L$",
            1 - sp.sqrt(sp.Integer(2) / (power**2 * value)),
            freezing.participation(10**12, math.sqrt(float(value) * math.log(1e12)), power),
            0.1,
        )
    doc.check(
        r"participation $e^{\beta^2}/n$ below the threshold, up to its next order $1/n$, at $n = 10^{12}$, $\beta = 1$",
        sp.E / sp.Integer(10) ** 12,
        freezing.participation(10**12, 1.0),
        1e-11,
    )
    rng = np.random.default_rng(9)
    head = Attention(1000, 500, 0.5)
    found = float(np.mean([(head.sample(rng) ** 2).sum(axis=1).mean() for _ in range(4)]))
    doc.check(
        r"participation $e^{\beta^2}/n$ against 4 draws of gequiv's attention (seeded; $n = 1000$, $d = 500$, $\beta "
        r"= 1/2$)",
        sp.exp(sp.Rational(1, 4)) / 1000,
        found,
        0.01,
    )


if __name__ == "__main__":
    raise SystemExit(run_document(derive))
