"""The spectrum of the scores: S-transform of one Gaussian factor, of a chain, and the moments."""

from __future__ import annotations

import sympy as sp

from gequiv.symbolic.derivation import Derivation, run_document

TITLE = "The spectrum of the scores by S-transforms"


def derive() -> Derivation:
    """From integration by parts to $T(u) = \\beta^2 (1+u)/u \\prod_i (1+u/c_i)$."""
    doc = Derivation(
        TITLE,
        [
            r"All matrices are Gaussian with independent standard entries, and all their sizes grow in proportion.",
            r"Independent matrices, one of which is rotation-invariant in law, are asymptotically free, and the "
            r"S-transform of a free product is the product of the S-transforms (Voiculescu); both are used, not "
            r"proved.",
            r"$G$ is the Cauchy transform, $\psi(\zeta) = \sum_{k \ge 1} m_k \zeta^k$ the moment series, $\chi$ its "
            r"inverse, and $S(u) = \chi(u)(1+u)/u$.",
        ],
    )
    u, z, c, beta = sp.symbols("u z c beta", positive=True)
    _one_factor(doc)

    g = sp.Symbol("G")
    doc.text(
        r"With $\psi = zG - 1$, which is the moment series at $1/z$, the averaged equation $zG - 1 = G(1 + (zG-1)/c)$ "
        r"is"
    )
    chi = doc.define(sp.Function("chi")(u), u / ((1 + u) * (1 + u / c)), r"$1/z$ as a function of $u = \psi$")
    doc.equation((z * g - 1 - g * (1 + (z * g - 1) / c)).subs(g, (1 + u) / z).subs(z, 1 / chi), 0)
    doc.equation(chi * (1 + u) / u, 1 / (1 + u / c), r"the S-transform of $F F^\top/N$, with $c = N/m$")
    t = 1 / chi
    for sign in (1, -1):
        point = sign * sp.sqrt(c)
        doc.equation(sp.Subs(sp.Derivative(t, u), u, point), 0, "a critical point of $z = 1/\\chi$")
        doc.equation(
            sp.Subs(t, u, point), (1 + sign / sp.sqrt(c)) ** 2, "its value, an edge of Marchenko and Pastur's law"
        )

    doc.text(
        r"Two factors: $S = F_1 F_2/\sqrt{N}$ with $F_1$ of size $m \times N$ and $F_2$ of size $N \times n$. The "
        r"nonzero eigenvalues of $S S^\top/n$ are those of the product of the $N \times N$ matrices $F_1^\top F_1/N$ "
        r"and $F_2 F_2^\top/n$. In that space let $v$ be the argument of the S-transform; $N \psi_N = m \psi_m$ says "
        r"$u = c_1 v$, where $c_1 = N/m$ and $c_2 = n/m$."
    )
    c1, c2, v = sp.symbols("c1 c2 v", positive=True)
    doc.text(
        r"$F_1^\top F_1/m$ has relative dimension $m/N = 1/c_1$, and $F_1^\top F_1/N$ is that over $c_1$; scaling a "
        r"variable by $\kappa$ divides its S-transform by $\kappa$. $F_2 F_2^\top/n$ has relative dimension $n/N = "
        r"c_2/c_1$."
    )
    first = doc.define(sp.Symbol("S1"), c1 / (1 + v * c1))
    second = doc.define(sp.Symbol("S2"), 1 / (1 + v * c1 / c2))
    inverse = (v / (1 + v) * first * second).subs(v, u / c1)
    doc.equation(
        inverse * (1 + u) / u,
        1 / ((1 + u / c1) * (1 + u / c2)),
        r"back to $m$ rows: one factor $1/(1+u/c_i)$ for each inner dimension",
    )
    doc.text(
        r"The step repeats for any number of factors. With Gaussian tokens, $S = X W_Q W_K^\top X^\top$ up to scale: "
        r"$X$ is on both sides, but the weights are invariant under rotations from both sides, so that $X^\top X$ and "
        r"$W_Q W_K^\top (X^\top X) W_K W_Q^\top$ are asymptotically free, and each of the four dimensions $d, d_k, d, "
        r"n$ contributes its factor. Scaled by $\beta^2$, the inverse of the moment series is $1/T$ with"
    )
    weights = sp.symbols("c1:4", positive=True)
    expression = doc.define(
        sp.Function("T")(u),
        beta**2 * (1 + u) / u * sp.prod([1 + u / w for w in weights]),
        "shown for three dimensions; independent queries and keys have two, $d_k/n$ and 1",
    )

    doc.text(
        r"Moments by Lagrange inversion: $m_k = \frac{1}{k} [u^{k-1}] ((1+u)\prod_i(1+u/c_i))^k$, in units of "
        r"$\beta^{2k}$."
    )

    def moment(k: int, ratios: tuple[sp.Expr, ...]) -> sp.Expr:
        product = sp.expand(((1 + u) * sp.prod([1 + u / ratio for ratio in ratios])) ** k)
        return sp.Rational(1, k) * product.coeff(u, k - 1)

    closed = {
        1: sp.Integer(1),
        2: 1 + 1 / c1 + 1 / c2,
        3: 1 + 3 / c1 + 3 / c2 + 1 / c1**2 + 1 / c2**2 + 3 / (c1 * c2),
    }
    for k, value in closed.items():
        doc.equation(moment(k, (c1, c2)), value, f"$m_{k}$ of two factors")
    doc.text("That these are the moments: put the series into the equation that defines $u$.")
    zeta = sp.Symbol("zeta", positive=True)
    psi = sum(moment(k, (c1, c2)) * zeta**k for k in range(1, 5))
    doc.series(
        psi - zeta * (1 + psi) * (1 + psi / c1) * (1 + psi / c2),
        zeta,
        0,
        5,
        0,
        r"$\psi = \zeta T(\psi)\psi/\beta^2$ to order 4",
    )
    for number in (1, 2, 4):
        for k in (2, 3, 4, 5):
            fuss = sp.binomial((number + 1) * k, k - 1) / sp.Integer(k)
            doc.equation(
                moment(k, (sp.Integer(1),) * number),
                fuss,
                f"unit ratios, {number} factor{'s' * (number > 1)}, $k = {k}$: Fuss and Catalan's number",
            )

    doc.text(
        r"A second way to $m_2$, which uses no freeness. Pairing the Gaussian entries (Wick) gives, exactly at finite "
        r"size, $E\,tr(F A F^\top F A F^\top) = m (tr A)^2 + m\,tr A^2 + m^2 tr A^2$ for $F$ with $m$ rows; with $A = "
        r"F_2 F_2^\top$, $E (tr A)^2 = N^2n^2 + 2Nn$ and $E\,tr A^2 = Nn(N+n+1)$:"
    )
    m, scale = sp.symbols("m s", positive=True)
    big_n, n = c1 * scale, c2 * scale
    square, trace2 = big_n**2 * n**2 + 2 * big_n * n, big_n * n * (big_n + n + 1)
    exact = (m * square + m * trace2 + m**2 * trace2).subs(m, scale) / (scale * big_n**2 * n**2)
    doc.limit(exact, scale, sp.oo, closed[2], r"$m = s$, $N = c_1 s$, $n = c_2 s$, $s \to \infty$")
    _compare(doc, u, expression, weights, closed, (c1, c2), beta)
    return doc


def _one_factor(doc: Derivation) -> None:
    """Integration by parts for one Gaussian factor, its exact core on 2 by 2 matrices."""
    doc.text(
        r"One factor: $W = F F^\top/N$, $F$ of size $m \times N$, resolvent $R = (z - W)^{-1}$. By definition "
        r"$z R - 1 = W R$, and Gaussian integration by parts turns the mean of $F_{ia}(RF)_{ia}$ into that of "
        r"$\partial (RF)_{ia}/\partial F_{ia}$. Since $\partial R = R\,(\partial W)\,R$, that derivative is"
    )
    z = sp.Symbol("z")
    entries = sp.symbols("f11 f12 f21 f22")
    matrix = sp.Matrix(2, 2, entries)
    resolvent = (z * sp.eye(2) - matrix * matrix.T / 2).inv()
    left = sp.diff((resolvent * matrix)[0, 0], entries[0])
    around = matrix.T * resolvent * matrix
    right = resolvent[0, 0] + (resolvent[0, 0] * around[0, 0] + (resolvent * matrix)[0, 0] ** 2) / 2
    r_ii, rf, frf, size = sp.symbols("R_ii RF_ia FRF_aa N")
    doc.equation(
        left,
        right,
        r"with $FRF = F^\top R F$; asserted with all four entries of $F$ symbolic, for $m = N = 2$ and $i = a = 1$",
        how="rational",
        shown=(
            sp.Derivative(sp.Function("RF_ia")(sp.Symbol("F_ia")), sp.Symbol("F_ia")),
            r_ii + (r_ii * frf + rf**2) / size,
        ),
    )
    doc.text(
        r"Sum over $i, a$ and divide by $mN$. The last term is $tr(R W R)/(mN)$ and vanishes as the sizes grow; the "
        r"two others are averages, which concentrate: with $G = tr R/m$ and $tr(F^\top R F)/N = tr(WR) = m(zG - 1)$,"
    )
    doc.text(r"$zG - 1 = G + G\,(m/N)(zG - 1)$.")


def _compare(
    doc: Derivation,
    u: sp.Symbol,
    expression: sp.Expr,
    weights: tuple[sp.Symbol, ...],
    closed: dict[int, sp.Expr],
    ratios: tuple[sp.Symbol, sp.Symbol],
    beta: sp.Symbol,
) -> None:
    from fractions import Fraction

    from gequiv.laws import GaussianChainPlusNoise, MarchenkoPastur

    # one factor, n = m/2 columns: c = 1/2 for rows over columns of 2
    edge = (1 + 1 / sp.sqrt(sp.Rational(1, 2))) ** 2
    doc.check(
        "right edge for one factor, $c = 1/2$, against gequiv's Marchenko–Pastur law",
        edge,
        MarchenkoPastur(2, 1.0).support()[-1][1],
    )
    law = GaussianChainPlusNoise([Fraction(1, 2)], Fraction(4, 5), 1, Fraction(1, 10**16))
    for k in (1, 2, 3):
        value = closed[k].subs(dict(zip(ratios, (sp.Rational(1, 2), sp.Rational(5, 4)), strict=True)))
        doc.check(
            f"moment {k} for $c_1 = 1/2$, $c_2 = 5/4$ against gequiv's law with noise of $10^{{-16}}$",
            value,
            law.moment(k),
        )
    three = [sp.Rational(4, 5), sp.Rational(1, 2), sp.Integer(1)]
    point = sp.Rational(1, 10) - sp.Rational(3, 20) * sp.I
    values = dict(zip(weights, three, strict=True)) | {beta: 1, u: point}
    where = complex(expression.subs(values))
    law = GaussianChainPlusNoise([Fraction(4, 5), Fraction(1, 2)], 1, 1, Fraction(1, 10**16))
    doc.check(
        "Cauchy transform $G = (1+u)/T$ of three factors at $u = 0.1 - 0.15 i$",
        (1 + point) / expression.subs(values),
        law.cauchy(where),
    )


if __name__ == "__main__":
    raise SystemExit(run_document(derive))
