"""Finite head width: the exponential of a score in Gegenbauer polynomials, and the weight of each degree."""

from __future__ import annotations

import sympy as sp

from gequiv.symbolic.derivation import Derivation, run_document

TITLE = "Chaos weights at finite head width"


def derive() -> Derivation:
    """From the Rodrigues formula to $w_\\ell(\\kappa)$, its variance identity and its limit."""
    doc = Derivation(
        TITLE,
        [
            r"Query and key are isotropic in dimension $d$ (the head width), so $\beta S_{ij} = \kappa\cos\theta$ with "
            r"$\kappa = \beta\,|q_i||k_j|/\sqrt d$ and $\theta$ the angle of two independent uniform directions.",
            r"$\nu = d/2 - 1 > 0$. The density of $t = \cos\theta$ is proportional to $(1-t^2)^{\nu - 1/2}$.",
            r"Used, not proved: the Gegenbauer polynomials are complete on $[-1, 1]$, and the space of harmonics of "
            r"degree $\ell$ is irreducible under rotations.",
        ],
    )
    t, kappa, nu, h = sp.symbols("t kappa nu h", positive=True)
    _orthogonality(doc, t, nu)
    _projection(doc, kappa, nu)
    _power_series(doc, t, nu)
    _addition_theorem(doc, nu, h)
    _weights(doc, nu)
    _compare(doc)
    return doc


def _polynomial(order: int, nu: sp.Symbol, t: sp.Symbol) -> sp.Expr:
    """C_l^nu(t) from its recursion, which the generating function (1 - 2 t h + h^2)^(-nu) gives."""
    before, now = sp.Integer(0), sp.Integer(1)
    for k in range(1, order + 1):
        before, now = now, sp.expand((2 * t * (k + nu - 1) * now - (k + 2 * nu - 2) * before) / k)
    return now


def _norm(order: sp.Expr | int, nu: sp.Symbol) -> sp.Expr:
    """The integral of C_l^2 against the weight."""
    return (
        sp.pi * 2 ** (1 - 2 * nu) * sp.gamma(order + 2 * nu) / (sp.factorial(order) * (order + nu) * sp.gamma(nu) ** 2)
    )


def _rodrigues(order: sp.Expr | int, nu: sp.Symbol) -> sp.Expr:
    """K_l in (1-t^2)^(nu-1/2) C_l = (-1)^l K_l d^l/dt^l (1-t^2)^(nu+l-1/2)."""
    half = sp.Rational(1, 2)
    return (
        sp.gamma(2 * nu + order)
        * sp.gamma(nu + half)
        / (2**order * sp.factorial(order) * sp.gamma(2 * nu) * sp.gamma(nu + order + half))
    )


def _beta_integral(power: sp.Expr | int, mu: sp.Expr) -> sp.Expr:
    """The integral over [-1, 1] of t^(2 power) (1-t^2)^(mu-1/2)."""
    half = sp.Rational(1, 2)
    return sp.gamma(power + half) * sp.gamma(mu + half) / sp.gamma(power + mu + 1)


def _orthogonality(doc: Derivation, t: sp.Symbol, nu: sp.Symbol) -> None:
    h = sp.Symbol("h", positive=True)
    doc.text(
        r"The Gegenbauer polynomials $C_\ell^\nu(t)$ are the coefficients of $(1-2th+h^2)^{-\nu}$. Its logarithmic "
        r"derivative gives their recursion; the first ones, from the recursion and from the generating function:"
    )
    doc.series(
        (1 - 2 * t * h + h**2) ** (-nu), h, 0, 4, sum(_polynomial(order, nu, t) * h**order for order in range(4))
    )
    doc.text(
        r"They are orthogonal for the weight $(1-t^2)^{\nu-1/2}$ because of Rodrigues' formula: the weight times "
        r"$C_\ell^\nu$ is $(-1)^\ell K_\ell$ times the $\ell$-th derivative of $(1-t^2)^{\nu+\ell-1/2}$, whose "
        r"integral against any polynomial of lower degree vanishes by parts."
    )
    ell = sp.Symbol("ell", integer=True, nonnegative=True)
    doc.define(sp.Symbol("K_ell"), _rodrigues(ell, nu))
    base = 1 - t**2
    for order in range(5):
        exponent = nu + order - sp.Rational(1, 2)
        derivative = sp.expand(
            sp.powsimp(sp.expand(sp.diff(base**exponent, t, order) / base ** (nu - sp.Rational(1, 2))))
        )
        derivative = sp.cancel(sp.powsimp(derivative).simplify())
        constant = sp.gammasimp(_rodrigues(order, nu))
        doc.equation((-1) ** order * constant * derivative, _polynomial(order, nu, t), rf"$\ell = {order}$")
    doc.text(
        r"Norms: by parts $\int C_\ell^2 (1-t^2)^{\nu-1/2}dt$ is $K_\ell\,\ell!$ times the leading coefficient of "
        r"$C_\ell$, which the recursion makes $2^\ell \Gamma(\nu+\ell)/(\Gamma(\nu)\ell!)$, times $\int "
        r"(1-t^2)^{\nu+\ell-1/2}dt$, a beta integral:"
    )
    for order in range(5):
        lead = 2**order * sp.rf(nu, order) / sp.factorial(order)
        doc.equation(sp.Poly(_polynomial(order, nu, t), t).LC(), lead, rf"leading coefficient, $\ell = {order}$")
    lead = 2**ell * sp.gamma(nu + ell) / (sp.gamma(nu) * sp.factorial(ell))
    doc.equation(
        _rodrigues(ell, nu) * sp.factorial(ell) * lead * _beta_integral(0, nu + ell),
        _norm(ell, nu),
        r"the norm, for every $\ell$",
        how=_gammas,
    )


def _gammas(expression: sp.Expr) -> sp.Expr:
    """The difference of two products of gamma functions over one of them, by the duplication formula."""
    if expression == 0:
        return expression
    left, *rest = sp.Add.make_args(expression)
    return sp.simplify(sp.gammasimp(sp.Add(*[term / left for term in rest]).rewrite(sp.gamma)) + 1)


def _projection(doc: Derivation, kappa: sp.Symbol, nu: sp.Symbol) -> None:
    doc.text(
        r"Projection of $e^{\kappa t}$. By parts, Rodrigues' formula turns $\int e^{\kappa t} C_\ell "
        r"(1-t^2)^{\nu-1/2}dt$ into $K_\ell \kappa^\ell \int e^{\kappa t}(1-t^2)^{\mu-1/2}dt$ with $\mu = \nu+\ell$, "
        r"and that is Poisson's integral, $\sqrt\pi\,\Gamma(\mu+1/2)(2/\kappa)^\mu I_\mu(\kappa)$. Coefficient of "
        r"$\kappa^{2j}$ on both sides, for every $j$ (from the power series of $I_\mu$):"
    )
    mu = sp.Symbol("mu", positive=True)
    j = sp.Symbol("j", integer=True, nonnegative=True)
    half = sp.Rational(1, 2)
    doc.equation(
        _beta_integral(j, mu) / sp.gamma(2 * j + 1),
        sp.sqrt(sp.pi) * sp.gamma(mu + half) / (4**j * sp.factorial(j) * sp.gamma(mu + j + 1)),
        how=_gammas,
    )
    ell = sp.Symbol("ell", integer=True, nonnegative=True)
    bessel = sp.besseli(nu + ell, kappa)
    poisson = sp.sqrt(sp.pi) * sp.gamma(nu + ell + half) * (2 / kappa) ** (nu + ell) * bessel
    doc.text(r"Divided by the norm this is the coefficient of $C_\ell^\nu$ in $e^{\kappa t}$, for every $\ell$:")
    doc.equation(
        _rodrigues(ell, nu) * kappa**ell * poisson / _norm(ell, nu),
        sp.gamma(nu) * (2 / kappa) ** nu * (nu + ell) * bessel,
        how=_gammas,
    )
    doc.text(r"so $e^{\kappa t} = \Gamma(\nu)(2/\kappa)^\nu \sum_\ell (\nu+\ell) I_{\nu+\ell}(\kappa) C_\ell^\nu(t)$.")


def _power_series(doc: Derivation, t: sp.Symbol, nu: sp.Symbol) -> None:
    doc.text(
        r"An independent check of the whole expansion: the coefficient of $\kappa^N$ on its right side, which is the "
        r"sum over $\ell + 2j = N$, against $t^N/N!$."
    )
    for order in range(7):
        total = sp.Integer(0)
        for j in range(order // 2 + 1):
            ell = order - 2 * j
            total += (nu + ell) * _polynomial(ell, nu, t) / (sp.factorial(j) * sp.rf(nu, ell + j + 1) * 2**order)
        doc.equation(sp.expand_func(total), t**order / sp.factorial(order), f"$N = {order}$", how="rational")


def _harmonics(order: int, nu: sp.Symbol) -> sp.Expr:
    """D_l = binomial(d+l-1, l) - binomial(d+l-3, l-2) with d = 2 nu + 2."""

    def choose(top: sp.Expr, bottom: int) -> sp.Expr:
        return sp.Integer(0) if bottom < 0 else sp.prod([top - k for k in range(bottom)]) / sp.factorial(bottom)

    d = 2 * nu + 2
    return choose(d + order - 1, order) - choose(d + order - 3, order - 2)


def _at_one(order: int, nu: sp.Symbol) -> sp.Expr:
    return sp.expand_func(sp.rf(2 * nu, order)) / sp.factorial(order)


def _addition_theorem(doc: Derivation, nu: sp.Symbol, h: sp.Symbol) -> None:
    doc.text(
        r"Normalisation. At $t = 1$ the generating function is $(1-h)^{-2\nu}$, so $C_\ell^\nu(1) = (2\nu)_\ell/\ell!$:"
    )
    doc.series((1 - h) ** (-2 * nu), h, 0, 5, sum(_at_one(order, nu) * h**order for order in range(5)))
    doc.text(
        r"Harmonics of degree $\ell$ number as many as homogeneous polynomials of degree $\ell$ in $d$ variables, "
        r"less those divisible by $|x|^2$:"
    )
    dimension, degree = sp.Symbol("d"), sp.Symbol("ell")
    doc.define(
        sp.Symbol("D_ell"),
        sp.binomial(dimension + degree - 1, degree) - sp.binomial(dimension + degree - 3, degree - 2),
        r"a multiple of $C_\ell^\nu(1)$, as follows",
    )
    for order in range(6):
        doc.equation(_harmonics(order, nu), (nu + order) / nu * _at_one(order, nu), rf"$D_{order}$", how="rational")
    doc.text(
        r"Let $Y_a$, $a \le D_\ell$, be orthonormal for the uniform probability. The kernel $\sum_a Y_a(x)Y_a(y)$ is "
        r"invariant under rotations, hence a multiple of $C_\ell^\nu(x \cdot y)$; at $x = y$ its mean is $D_\ell$. So "
        r"it is $D_\ell C_\ell^\nu(t)/C_\ell^\nu(1)$. As a projection it must have mean square $D_\ell$, which fixes "
        r"nothing new and therefore checks the factor:"
    )
    for order in range(5):
        ratio = sp.gammasimp(_norm(order, nu) / _norm(0, nu))
        doc.equation(
            (_harmonics(order, nu) / _at_one(order, nu)) ** 2 * ratio,
            _harmonics(order, nu),
            rf"$\ell = {order}$",
            how="rational",
        )
    doc.text(
        r"The expansion of $e^{\kappa t}$ becomes $\sum_\ell w_\ell(\kappa) D_\ell^{-1/2}\sum_a Y_a(x) Y_a(y)$ with "
        r"$w_\ell \sqrt{D_\ell}/C_\ell(1) = \Gamma(\nu)(2/\kappa)^\nu(\nu+\ell)I_{\nu+\ell}$, and because "
        r"$(\nu+\ell)C_\ell(1) = \nu D_\ell$:"
    )
    kappa = sp.Symbol("kappa", positive=True)
    d_ell, ell, c_one = sp.symbols("D_ell ell C_ell1", positive=True)
    coefficient = sp.gamma(nu) * (2 / kappa) ** nu * (nu + ell) * sp.besseli(nu + ell, kappa)
    weight = sp.gamma(nu + 1) * (2 / kappa) ** nu * sp.besseli(nu + ell, kappa) * sp.sqrt(d_ell)
    doc.equation(
        (coefficient * c_one / sp.sqrt(d_ell)).subs(c_one, nu * d_ell / (nu + ell)), weight, r"$w_\ell(\kappa)$"
    )


def _square_of_weight(order: int, nu: sp.Symbol, terms: int) -> list[sp.Expr]:
    """Coefficients of k^0 to k^(terms-1) in w_l^2, k = kappa^2/4, from the power series of the Bessel function."""
    root = [1 / (sp.factorial(j) * sp.expand_func(sp.rf(nu + 1, order + j))) for j in range(terms - order)]
    square = [sum(root[i] * root[j - i] for i in range(j + 1)) for j in range(terms - order)]
    return [sp.Integer(0)] * order + [_harmonics(order, nu) * value for value in square]


def _weights(doc: Derivation, nu: sp.Symbol) -> None:
    order = 6
    doc.text(
        r"Variance. The kernels are orthogonal with mean square $D_\ell$, so $\sum_\ell w_\ell(\kappa)^2 = E "
        r"e^{2\kappa t} = w_0(2\kappa)$. Coefficients of $k^N$ on both sides, with $k = \kappa^2/4$:"
    )
    squares = [_square_of_weight(ell, nu, order) for ell in range(order)]
    for power in range(order):
        right = sp.Integer(4) ** power / (sp.factorial(power) * sp.expand_func(sp.rf(nu + 1, power)))
        doc.equation(sum(square[power] for square in squares), right, f"$N = {power}$", how="rational")

    doc.text(
        r"Wide heads. Let $|q|^2 = |k|^2 = d$, so $\kappa = \beta\sqrt d$, and $d = 2\nu + 2 \to \infty$. The "
        r"coefficient of $\beta^{2j}$ in $w_0$ is $(d/4)^j/(j!(d/2)_j)$, where $(\cdot)_j$ is the rising factorial:"
    )
    d = sp.Symbol("d", positive=True)
    for j in range(5):
        expression = (d / 4) ** j / (sp.factorial(j) * sp.expand_func(sp.rf(d / 2, j)))
        doc.limit(expression, d, sp.oo, sp.Rational(1, 2) ** j / sp.factorial(j), f"$j = {j}$")
    doc.text(
        r"Each coefficient is at most its limit, since $(d/2)_j \ge (d/2)^j$; by dominated convergence $w_0 \to "
        r"e^{\beta^2/2}$. Likewise $w_\ell$ is $\sqrt{D_\ell}\,(\kappa/2)^\ell/(d/2)_\ell$ times a series with "
        r"coefficients $(d/4)^j/(j!(d/2+\ell)_j)$, which tends to $e^{\beta^2/2}$ too. The square of the factor, over "
        r"$\beta^{2\ell}$:"
    )
    for ell in range(6):
        factor = _harmonics(ell, nu).subs(nu, d / 2 - 1) * (d / 4) ** ell / sp.expand_func(sp.rf(d / 2, ell)) ** 2
        doc.limit(factor, d, sp.oo, 1 / sp.factorial(ell), rf"$\ell = {ell}$")
    for j in range(1, 4):
        expression = (d / 4) ** j / (sp.factorial(j) * sp.expand_func(sp.rf(d / 2 + 2, j)))
        doc.limit(
            expression, d, sp.oo, sp.Rational(1, 2) ** j / sp.factorial(j), rf"the series for $\ell = 2$, $j = {j}$"
        )
    doc.text(
        r"Hence $w_\ell/w_0 \to \beta^\ell/\sqrt{\ell!}$: the Hermite coefficients of document 1, whose sum of "
        r"squares from $\ell = 2$ on is the noise of the linear model. In the bulk the degree $\ell$ acts as a "
        r"product of Gaussian matrices with inner dimension $D_\ell$; this last statement is heuristic here (it is a "
        r"limit theorem for $n$ of the order of $D_\ell$, checked by simulation elsewhere)."
    )


def _compare(doc: Derivation) -> None:
    import mpmath

    from gequiv.attention import LinearModel

    with mpmath.workdps(40):

        def weight(ell: int, d: int, kappa: mpmath.mpf) -> mpmath.mpf:
            nu = mpmath.mpf(d) / 2 - 1
            count = mpmath.binomial(d + ell - 1, ell) - (mpmath.binomial(d + ell - 3, ell - 2) if ell > 1 else 0)
            return (
                mpmath.exp(mpmath.loggamma(nu + 1) + nu * mpmath.log(2 / kappa))
                * mpmath.besseli(nu + ell, kappa)
                * mpmath.sqrt(count)
            )

        d, kappa = 64, mpmath.mpf(6)
        total = mpmath.fsum(weight(ell, d, kappa) ** 2 for ell in range(60))
        doc.check(
            "the variance identity at $d = 64$, $\\kappa = 6$, summed to degree 59",
            sp.sympify(weight(0, d, 2 * kappa)),
            sp.sympify(total),
            1e-20,
        )

        for beta in (0.5, 1.0):
            model = LinearModel(beta)
            d = 10**8
            first, *others = (weight(ell, d, beta * mpmath.sqrt(d)) for ell in range(25))
            where = rf"$d = 10^8$, $\beta = {beta}$"
            doc.check(
                f"$w_1/w_0$ at {where} against the coefficient of gequiv's linear model",
                sp.sympify(others[0] / first),
                model.coefficient,
                1e-6,
            )
            rest = sum(w**2 for w in others[1:]) / first**2
            doc.check(
                f"$\\sum_{{\\ell \\ge 2}} (w_\\ell/w_0)^2$ at {where} against its noise variance",
                sp.sympify(rest),
                model.noise_variance,
                1e-6,
            )


if __name__ == "__main__":
    raise SystemExit(run_document(derive))
