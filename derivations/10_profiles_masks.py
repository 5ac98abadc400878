"""The Dyson equation of a head of finite width: a stationary functional, and masks by two Riccati equations."""

from __future__ import annotations

import sympy as sp

from gequiv.symbolic.derivation import Derivation, run_document

TITLE = "Profiles and masks"


def derive() -> Derivation:
    """From the functional of two by two cells to the causal mask, cell by cell."""
    doc = Derivation(
        TITLE,
        [
            r"Rows in cells of weight $\delta_p$, columns in cells of weight $\epsilon_q$; $Y_{ij} = C(p,q)"
            r"(\Phi\Psi^\top)_{ij}/\sqrt{Dn} + \sigma(p,q) Z_{ij}/\sqrt n$ with independent standard Gaussian "
            r"$\Phi$, $\Psi$, $Z$ and $D = \lambda n$.",
            r"The averaged resolvents $g_p$ of the rows and $h_q$ of the columns, in the variable $z$ of the squared "
            r"singular values, make stationary the functional $W$ below (Gaussian integration by parts, lower orders "
            r"dropped); used, not proved.",
        ],
    )
    _functional(doc)
    _recursion(doc)
    _riccati(doc)
    _triangular(doc)
    _compare(doc)
    return doc


def _functional(doc: Derivation) -> None:
    z, lam = sp.symbols("z lambda", positive=True)
    g, h = sp.symbols("g1:3", positive=True), sp.symbols("h1:3", positive=True)
    delta, epsilon = sp.symbols("delta1:3", positive=True), sp.symbols("epsilon1:3", positive=True)
    core = sp.Matrix(2, 2, sp.symbols("C11 C12 C21 C22", positive=True))
    noise = sp.Matrix(2, 2, sp.symbols("s11 s12 s21 s22", positive=True))
    r = sp.diag(*[d * x / lam for d, x in zip(delta, g, strict=True)])
    v = sp.diag(*[e * x for e, x in zip(epsilon, h, strict=True)])
    p = core * v * core.T
    doc.text(
        r"Two row cells and two column cells stand for any number. With $R = \mathrm{diag}(\delta_p g_p)/\lambda$ and "
        r"$P = C\,\mathrm{diag}(\epsilon_q h_q)\,C^\top$ take"
    )
    weights = sum(delta[i] * epsilon[j] * noise[i, j] * g[i] * h[j] for i in range(2) for j in range(2))
    functional = (
        sum(d * (z * x - sp.log(x)) for d, x in zip(delta, g, strict=True))
        + sum(e * (x - sp.log(x)) for e, x in zip(epsilon, h, strict=True))
        - weights
        + lam * sp.log((sp.eye(2) - r * p).det())
    )
    doc.define(sp.Symbol("W"), functional)
    inverse = (sp.eye(2) - p * r).inv()
    row_term, column_term = inverse * p, core.T * r * inverse * core
    doc.text(r"Its derivatives are the Dyson equation: the row cells first, with $S = (1-PR)^{-1}P$,")
    for i in range(2):
        rest = z - 1 / g[i] - sum(noise[i, j] * epsilon[j] * h[j] for j in range(2)) - row_term[i, i]
        doc.equation(sp.diff(functional, g[i]) / delta[i], rest, f"row cell {i + 1}", how="rational")
    doc.text(r"then the column cells, with $T = C^\top R(1-PR)^{-1}C$:")
    for j in range(2):
        rest = 1 - 1 / h[j] - sum(noise[i, j] * delta[i] * g[i] for i in range(2)) - lam * column_term[j, j]
        doc.equation(sp.diff(functional, h[j]) / epsilon[j], rest, f"column cell {j + 1}", how="rational")
    doc.text(
        r"At the solution $dW/dz = \sum\delta_p g_p$, the partial derivative: so $W$ is the mean of $\log(z-\lambda)$ "
        r"up to a constant, and its imaginary part on the axis is the distribution function. The matrix of second "
        r"derivatives, which Newton's method needs, is made of squares:"
    )
    doc.equation(sp.diff(functional, z), delta[0] * g[0] + delta[1] * g[1], "by the explicit $z$")
    doc.equation(
        sp.diff(row_term[0, 0], g[1]) * lam / delta[1],
        row_term[0, 1] ** 2,
        "$\\partial S_{11}/\\partial R_2$",
        how="rational",
    )
    doc.equation(
        sp.diff(row_term[0, 0], h[1]) / epsilon[1],
        (inverse * core)[0, 1] ** 2,
        "and in the second column",
        how="rational",
    )
    doc.text(r"A sum rule: the rows and the columns receive the same in total, whatever $g$ and $h$ are.")
    received_rows = sum(delta[i] * g[i] * row_term[i, i] for i in range(2))
    received_columns = lam * sum(epsilon[j] * h[j] * column_term[j, j] for j in range(2))
    doc.equation(
        received_rows,
        received_columns,
        r"hence $z\sum\delta g - \sum\delta = \sum\epsilon h - \sum\epsilon$",
        how="rational",
    )


def _recursion(doc: Derivation) -> None:
    v, r = sp.symbols("v1:4", positive=True), sp.symbols("r1:4", positive=True)
    ones = sp.Matrix(3, 3, lambda i, j: 1 if j <= i else 0)
    p = ones * sp.diag(*v) * ones.T
    diagonal = sp.diag(*r)
    inverse = (sp.eye(3) - p * diagonal).inv()
    doc.text(
        r"The causal mask. With $C$ the cumulative sum over positions, $(1-PR)^{-1}$ needs no inverse: $f$ runs "
        r"forwards as the variance of the sum, $e$ backwards as the information of the rows that follow. "
        r"Three positions:"
    )
    forward, before = [], sp.Integer(0)
    determinant = sp.Integer(1)
    for a, b in zip(v, r, strict=True):
        predicted = before + a
        forward.append(predicted)
        determinant *= 1 - predicted * b
        before = predicted / (1 - predicted * b)
    backward = [sp.Integer(0)] * 4
    for i in (2, 1, 0):
        joined = backward[i + 1] + r[i]
        backward[i] = joined if i == 0 else joined / (1 - v[i] * joined)
    for i in range(3):
        joined = (backward[i + 1] if i < 2 else sp.Integer(0)) + r[i]
        doc.equation(
            (inverse * p)[i, i], forward[i] / (1 - forward[i] * joined), f"$S$ at position {i + 1}", how="rational"
        )
    doc.equation((sp.eye(3) - p * diagonal).det(), determinant, "and the determinant is a product", how="rational")


def _riccati(doc: Derivation) -> None:
    t, v, r, kappa, start = sp.symbols("t v r kappa f0", positive=True)
    doc.text(
        r"In the continuum $f' = v + rf^2 - 2\kappa f$, where the mask decays as $e^{-\kappa(t-s)}$. For "
        r"constant $v$ and $r$ a cell is crossed exactly: with $\omega^2 = vr - \kappa^2$"
    )
    omega = sp.sqrt(v * r - kappa**2)
    cosine, sine = sp.cos(omega * t), sp.sin(omega * t) / omega
    top = v * sine + start * (cosine - kappa * sine)
    bottom = cosine + kappa * sine - start * r * sine
    f = doc.define(sp.Symbol("f"), top / bottom)
    doc.equation(sp.diff(top, t), v * bottom - kappa * top, "the upper line is linear")
    doc.equation(sp.diff(bottom, t), kappa * bottom - r * top, "so is the lower one")
    doc.equation(
        (sp.diff(top, t) * bottom - top * sp.diff(bottom, t)) / bottom**2,
        v + r * f**2 - 2 * kappa * f,
        "their quotient solves the Riccati equation",
    )
    doc.equation(f.subs(t, 0), start, "and starts at $f_0$")


def _triangular(doc: Derivation) -> None:
    t, c, z = sp.symbols("t c z", positive=True)
    doc.text(
        r"Noise alone under the causal mask, variance one: $1/g = z - \int_0^t h$ and $1/h = 1 - \int_t^1 g$. "
        r"The product $g h$ does not depend on $t$; with $gh = 1/c$:"
    )
    inverse_g, inverse_h = z * sp.exp(-t / c), c * sp.exp(t / c) / z
    doc.equation(sp.diff(inverse_g, t), -1 / inverse_h, r"the derivative of $1/g$ is $-h$")
    doc.equation(sp.diff(inverse_h, t), 1 / inverse_g, r"that of $1/h$ is $g$")
    doc.equation(inverse_g.subs(t, 0), z, "the first row sees nothing")
    doc.equation(
        sp.expand(inverse_h.subs(t, 1) * z), c * sp.exp(1 / c), "the last column must be seen by nobody: $1/h = 1$"
    )
    doc.text(
        r"So $z = c\,e^{1/c}$: with $w = 1/z$ it is $1/c = w e^{1/c}$, the tree function, and "
        r"$zG - 1 = \int_0^1 (zg - 1)$. Its moments are those of Dykema and Haagerup's triangular "
        r"operator, $n^n/(n+1)!$:"
    )
    w = sp.Symbol("w", positive=True)
    order = 6
    tree = sum(sp.Integer(n) ** (n - 1) / sp.factorial(n) * w**n for n in range(1, order + 2))
    # z G = ∫ z g = ∫ e^{t y} dt = (e^y - 1)/y, y = 1/c, and e^y = y/w
    series = sp.series((sp.exp(tree) - 1) / tree, w, 0, order).removeO()
    for n in range(1, order):
        doc.equation(series.coeff(w, n), sp.Integer(n) ** n / sp.factorial(n + 1), f"moment {n}")


def _compare(doc: Derivation) -> None:
    import numpy as np

    from gequiv.dyson import Component, solve
    from gequiv.dyson.positions import CausalKernel

    doc.text(
        r"gequiv's numbers: a damped iteration of the equation of two cells, to 20 digits, and one position of a mask."
    )
    import mpmath

    delta, epsilon, lam = ["0.3", "0.7"], ["0.6", "0.4"], "0.25"
    core, noise = [["1", "0.5"], ["0.8", "1.2"]], [["0.3", "0.2"], ["0.1", "0.4"]]
    with mpmath.workdps(25):
        z = mpmath.mpc(2, 1)
        d, e = [mpmath.mpf(x) for x in delta], [mpmath.mpf(x) for x in epsilon]
        c, s = mpmath.matrix(core), mpmath.matrix(noise)
        g, h = [1 / z] * 2, [mpmath.mpc(1)] * 2
        for _ in range(400):
            r = mpmath.diag([a * b / mpmath.mpf(lam) for a, b in zip(d, g, strict=True)])
            p = c * mpmath.diag([a * b for a, b in zip(e, h, strict=True)]) * c.T
            inverse = mpmath.inverse(mpmath.eye(2) - p * r)
            rows, columns = inverse * p, c.T * r * inverse * c
            new_g = [1 / (z - sum(s[i, j] * e[j] * h[j] for j in range(2)) - rows[i, i]) for i in range(2)]
            new_h = [
                1 / (1 - sum(s[i, j] * d[i] * g[i] for i in range(2)) - mpmath.mpf(lam) * columns[j, j])
                for j in range(2)
            ]
            g = [(a + b) / 2 for a, b in zip(g, new_g, strict=True)]
            h = [(a + b) / 2 for a, b in zip(h, new_h, strict=True)]
        value = sum(a * b for a, b in zip(d, g, strict=True))
    numbers = [[float(x) for x in row] for row in core], [[float(x) for x in row] for row in noise]
    found = solve(
        complex(2, 1),
        [float(x) for x in delta],
        [float(x) for x in epsilon],
        [Component(np.array(numbers[0]), float(lam))],
        np.array(numbers[1]),
    )
    doc.check(r"$G(2+i)$ of two by two cells", sp.sympify(value), complex(found.value), 1e-11)
    doc.check("the first row cell's $g$", sp.sympify(g[0]), complex(found.rows[0]), 1e-11)

    # one cell of constant v and r: log det is log X(1) up to kappa
    v, r, kappa = sp.Rational(3, 2), sp.Rational(-1, 2), sp.Rational(1, 3)
    omega = sp.sqrt(v * r - kappa**2)
    exact = sp.log(sp.cos(omega) + kappa * sp.sin(omega) / omega)
    kernel = CausalKernel(np.linspace(0, 1, 6), decay=1 / 3)
    constant = np.full((1, 5), 1.0, dtype=np.complex128)
    logs = kernel.log_determinant(float(v) * constant, float(r) * constant)
    doc.check(r"$\log X(1)$ of a causal mask with decay, over five cells", sp.N(exact, 30), complex(logs[0]), 1e-12)


if __name__ == "__main__":
    raise SystemExit(run_document(derive))
