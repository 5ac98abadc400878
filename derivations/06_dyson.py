"""The same curve from the Dyson equation of a linear pencil: no S-transform, no free convolution."""

from __future__ import annotations

import sympy as sp

from gequiv.symbolic.derivation import Derivation, run_document

TITLE = "The same curve from the Dyson equation"


def derive() -> Derivation:
    """From the pencil of $\\beta Q K^\\top/\\sqrt{Dn} + \\sigma Z/\\sqrt{n}$ to the curve of document 5."""
    doc = Derivation(
        TITLE,
        [
            r"$Y = \beta Q K^\top/\sqrt{D n} + \sigma Z/\sqrt n$ with independent Gaussian $Q$ ($m \times D$), $K$ "
            r"($n \times D$) and $Z$ ($m \times n$); $c = m/n$ and $c_1 = D/m$.",
            r"The matrix Dyson equation for a matrix that is linear in Gaussian entries: the block averages of its "
            r"resolvent solve $\mathcal{G} = (L_0 - \Sigma[\mathcal{G}])^{-1}$, with $\Sigma$ the covariance of the "
            r"entries "
            r"(Gaussian integration by parts, lower orders dropped).".replace(r"\mathcal{G}", "M"),
        ],
    )
    zeta, beta, sigma, c, c1, g, h = sp.symbols("zeta beta sigma c c1 g h", positive=True)

    doc.text(
        r"A product is not linear in its factors, but a corner of the inverse of a larger matrix is. Take blocks of "
        r"sizes $m, n, D, D$ and put $-Q/\sqrt n$ between the first and the third, $-\beta K/\sqrt D$ between the "
        r"second and the fourth, $-\sigma Z/\sqrt n$ between the first two, and the identity between the last two. "
        r"Written with scalars in place of the blocks:"
    )
    q, k, z = sp.symbols("Q K Z")
    pencil = sp.Matrix([[zeta, -z, -q, 0], [-z, zeta, 0, -k], [-q, 0, 0, 1], [0, -k, 1, 0]])
    doc.define(sp.Symbol("L"), pencil)
    corner = pencil[:2, :2] - pencil[:2, 2:] * pencil[2:, 2:].inv() * pencil[2:, :2]
    doc.equation(
        corner,
        sp.Matrix([[zeta, -z - q * k], [-z - q * k, zeta]]),
        r"the Schur complement: the resolvent of $Y$ in both corners, with $Y = QK + Z$",
    )
    doc.text(
        r"Self-energies: the variance of each entry, summed over the block on its other side. With $g, h, e, f$ the "
        r"averages over the four blocks, rows get $\sigma^2 h + (D/n) e$, columns $\sigma^2 c g + \beta^2 f$, the "
        r"third block $c g$, the fourth $\beta^2 (n/D) h$; and $D/n = c\,c_1$. The last two blocks are coupled by the "
        r"identity alone:"
    )
    inner = sp.Matrix([[-c * g, 1], [1, -(beta**2) * h / (c * c1)]]).inv()
    quotient = beta**2 * g * h / c1
    e = doc.define(sp.Symbol("e"), beta**2 * h / (c * c1) / (1 - quotient))
    f = doc.define(sp.Symbol("f"), c * g / (1 - quotient))
    doc.equation(inner, sp.Matrix([[e, 1 / (1 - quotient)], [1 / (1 - quotient), f]]), how="rational")

    doc.text("The first two blocks are coupled to nothing else, which leaves two equations:")
    row = zeta - sigma**2 * h - c * c1 * e
    column = zeta - sigma**2 * c * g - beta**2 * f
    doc.equation(row, zeta - sigma**2 * h - beta**2 * h / (1 - quotient), "$1/g$")
    doc.equation(column, zeta - sigma**2 * c * g - beta**2 * c * g / (1 - quotient), "$1/h$")
    doc.text(
        r"These are gequiv's equations of one cell: with $P = \beta^2 h$ and $R = g/c_1$, $1/g = \zeta - \sigma^2 h - "
        r"P/(1-RP)$ and $1/h = \zeta - \sigma^2 c g - c_1 c\,\beta^2 R/(1-RP)$."
    )
    big_p, big_r = beta**2 * h, g / c1
    doc.equation(row, zeta - sigma**2 * h - big_p / (1 - big_r * big_p))
    doc.equation(column, zeta - sigma**2 * c * g - c1 * c * beta**2 * big_r / (1 - big_r * big_p))

    doc.text(
        r"Elimination. Multiply the first by $g$, the second by $h$; only the product $q = gh$ is left on the right:"
    )
    q = sp.Symbol("q", positive=True)
    y = sigma**2 * q + beta**2 * q / (1 - beta**2 * q / c1)
    doc.define(sp.Symbol("y"), y)
    doc.equation(zeta * g - row * g, y.subs(q, g * h), r"with $1/g$ for its value, $\zeta g = 1 + y$")
    doc.equation(zeta * h - column * h, c * y.subs(q, g * h), r"likewise $\zeta h = 1 + c y$")
    doc.text(
        r"Multiply both: $z q = (1+y)(1+cy)$ with $z = \zeta^2$. Let $u$ be the second term of $y$ and solve for $q$:"
    )
    u = sp.Symbol("u", positive=True)
    product = 1 + u / c1
    solved = sp.solve(sp.Eq(u, beta**2 * q / (1 - beta**2 * q / c1)), q)
    doc.equation(sp.Integer(len(solved)), 1, "there is one solution")
    q_u = u / (beta**2 * product)
    doc.equation(solved[0], q_u, "$q$")
    y_u = u + sigma**2 * u / (beta**2 * product)
    doc.equation(y.subs(q, q_u), y_u, "$y$, as in document 5 with $s = \\beta^2$")
    doc.equation(
        ((1 + y) * (1 + c * y) / q).subs(q, q_u),
        (1 + y_u) * (1 + c * y_u) * beta**2 * product / u,
        "$z$, as in document 5",
    )
    doc.text(
        r"Conversely every $u$ solves both equations identically, with $g = (1+y)/\zeta$ and $h = (1+cy)/\zeta$. "
        r"Written with $h = q/g$ or $g = q/h$, only $\zeta g = 1+y$ or $\zeta h = 1+cy$ is put in:"
    )
    first = (row * g).subs(h, q_u / g).subs(zeta, (1 + y_u) / g)
    second = (column * h).subs(g, q_u / h).subs(zeta, (1 + c * y_u) / h)
    doc.equation(first, 1, "the first equation", how="rational")
    doc.equation(second, 1, "the second equation", how="rational")
    doc.text(
        r"So the Dyson equation and the free convolution define the same curve, as identities of rational functions. "
        r"Which of its sheets is the resolvent is decided by the half-plane: for $\mathrm{Im}\,\zeta > 0$ there is "
        r"one solution with $g$ and $h$ in the lower half-plane (by the theorem of Earle and Hamilton; used, not "
        r"proved)."
    )
    _longer_chain(doc)
    _compare(doc)
    return doc


def _longer_chain(doc: Derivation) -> None:
    """The messages of a chain with three inner spaces, on the curve."""
    doc.text(
        r"Chains of any length: each inner space $i$ is crossed by two messages, $e_{i-1} = e_i/(1-f_ie_i)$ to the "
        r"left and $f_{i+1} = (c_i/c_{i+1}) f_i/(1-f_ie_i)$ to the right, from $e_L = h$ and $f_1 = s g/c_1$. They "
        r"are solved by $f_i e_i = (u/c_i)/(1+u/c_i)$ with one and the same $u$. Three spaces:"
    )
    u, g, s = sp.symbols("u g s", positive=True)
    ratios = sp.symbols("c1:4", positive=True)
    product = sp.prod([1 + u / ratio for ratio in ratios])
    h = u / (s * product * g)
    left = [h]
    for ratio in reversed(ratios):
        left.insert(0, left[0] * (1 + u / ratio))
    message = s * g / ratios[0]
    for i, ratio in enumerate(ratios):
        doc.equation(message * left[i + 1], (u / ratio) / (1 + u / ratio), f"$f_{i + 1} e_{i + 1}$")
        doc.equation(left[i + 1] / (1 - message * left[i + 1]), left[i], f"the message $e_{i}$ to the left")
        if i + 1 < len(ratios):
            message = ratio / ratios[i + 1] * message / (1 - message * left[i + 1])
    doc.equation(s * g * left[0], u, r"what the chain contributes to $\zeta g = 1 + y$, at $q = gh = u/(sP)$ as before")


def _compare(doc: Derivation) -> None:
    import mpmath

    from gequiv.dyson import WeightedChainPlusNoise
    from gequiv.laws import GaussianChainPlusNoise

    c, c1, s, noise = 0.8, 0.5, 1.0, 0.7
    laws = {
        "the curve": GaussianChainPlusNoise([0.5], 0.8, s, noise),
        "the fixed point": WeightedChainPlusNoise([0.5], [None], 0.8, s, noise),
    }
    with mpmath.workdps(30):
        for z in (mpmath.mpc(2, 1), mpmath.mpc(5, "0.5")):
            zeta = mpmath.sqrt(z)
            g = h = 1 / zeta
            for _ in range(2000):
                rest = 1 - mpmath.mpf(s) * g * h / mpmath.mpf(c1)
                after = 1 / (zeta - mpmath.mpf(noise) * h - s * h / rest)
                across = 1 / (zeta - mpmath.mpf(noise) * mpmath.mpf(c) * g - s * mpmath.mpf(c) * g / rest)
                step = abs(after - g) + abs(across - h)
                g, h = (g + after) / 2, (h + across) / 2
                if step < mpmath.mpf(10) ** -20:
                    break
            solved = sp.sympify(g / zeta)
            for name, law in laws.items():
                doc.check(
                    rf"$G({complex(z)})$ from the two equations, iterated, against gequiv by {name}",
                    solved,
                    law.cauchy(complex(z)),
                    1e-11,
                )


if __name__ == "__main__":
    raise SystemExit(run_document(derive))
