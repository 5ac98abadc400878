"""Limit laws of matrix expressions, from sympy to a density, against simulation at n = 1000.

Claim. `gequiv.law_of` gives the limit law of each of these expressions: at n = 1000 rows the Kolmogorov-Smirnov
distance to simulated eigenvalues, or squared singular values, is below .01, mean over draws.

    two covariances    X Xᵀ/m + 3 Y Yᵀ/p                 m = 2n, p = n/4
    commutator         i(S T - T S)/n                    S, T Wigner matrices
    symmetric product  (A Bᵀ + B Aᵀ)/m                   m = 3n/10: an atom
    jointly diagonal   E S E/√n + F                      E, F diagonal in one basis, S a Wigner matrix
    X D Xᵀ             X D Xᵀ/m                          D diagonal with values 1, 5, 25, m = 2n/5
    tanh, ReLU         a W X/√(dm) + b Z/√m              random features; a, b from `gequiv.symbolic.linear_model`
    one head           (a X Q Kᵀ Xᵀ + b Z) X V           attention's linear model times its own tokens
    two heads          the same for two heads on the same tokens, summed

Random features are also drawn as what they stand for (Pennington and Worah 2017), f(W X/√d)/√m with f centred: the same
law within the same distance.

In the head A X V the linear model A of attention is made of the tokens X that it is applied to, so that A and X V are
not free. Claim: were they free, the law would be at least five times as far from the simulation; that law, the free
multiplicative convolution of the squared singular values, is also the law of the expression with fresh tokens in place
of the second X, to 1e-9. X D Xᵀ has a second route too: its eigenvalues are those of a product of two free matrices,
`free.multiplicative(Atomic, MarchenkoPastur)`, on the side of the columns. Claim: densities equal to 1e-9.

Simulated. Plain numpy matrices, written out in this file.

Run. python -m validation.expressions: about two minutes, a third of them for the law as if A and X were free.

Results. results/expressions.json: for every expression its law, the seconds from sympy to the finished law, support,
atoms, and distances (of every draw, mean, standard error), for random features also of the true features, for the head
also of the law as if free; the largest differences between routes. The figure shows densities over the draws, square
roots for squared singular values.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sympy as sp
from rich.console import Console

from gequiv import free
from gequiv.expressions import law_of
from gequiv.laws import Atomic, GaussianProduct, MarchenkoPastur
from gequiv.laws.base import Law
from gequiv.simulation import Comparison, compare
from gequiv.symbolic import linear_model
from validation import _common
from validation._common import Claim
from validation.free_convolutions import Draw, described, distance, panel, squared, summary

LIMIT = 0.01
TIMES_FARTHER = 5.0
ROUTES = 1e-9
ALPHA, NOISE = 0.9, 0.4  # of the heads
VALUES = (1.0, 5.0, 25.0)
SCALES, SHIFTS = (1.0, 0.4, 0.6), (-3.0, 0.0, 3.0)
M, N, D, P, K = sp.symbols("m n d p k", positive=True)


def _symbol(name: str, rows: Any, columns: Any) -> sp.MatrixSymbol:
    return sp.MatrixSymbol(name, rows, columns)


X, Y, A, B = _symbol("X", N, M), _symbol("Y", N, P), _symbol("A", N, M), _symbol("B", N, M)
S, T, E, F = (_symbol(name, N, N) for name in "STEF")
DIAGONAL, TOKENS, FRESH = _symbol("D", M, M), _symbol("X", N, D), _symbol("Y", N, D)


# -- random features --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Activation:
    """f in numbers, and f + shift of positive mean in symbols."""

    numeric: Callable[[np.ndarray], np.ndarray]
    symbolic: Callable[[sp.Symbol], Any]
    shift: float

    def coefficients(self) -> tuple[float, float, float]:
        """Mean of f, and a, b of centred f = a x + b z in the sense of random matrices."""
        t = sp.Symbol("t")
        model = linear_model(self.symbolic(t) + self.shift, t)
        mean = float(model.mean)  # linear_model divides by it
        return mean - self.shift, mean * float(model.coefficient), mean * math.sqrt(float(model.noise_variance))


ACTIVATIONS = {
    "tanh": Activation(np.tanh, sp.tanh, 1),
    "ReLU": Activation(lambda x: np.maximum(x, 0.0), lambda t: sp.Max(t, 0), 0),
}


def _features(name: str, *, true: bool) -> Draw:
    """Squared singular values of random features, or of their linear model; d = 3n/2, m = 2n."""
    activation = ACTIVATIONS[name]

    def draw(n: int, rng: np.random.Generator) -> np.ndarray:
        mean, a, b = activation.coefficients()
        d, m = 3 * n // 2, 2 * n
        inner = rng.standard_normal((n, d)) @ rng.standard_normal((d, m)) / math.sqrt(d)
        matrix = activation.numeric(inner) - mean if true else a * inner + b * rng.standard_normal((n, m))
        return squared(matrix / math.sqrt(m))

    return draw


def _features_law(name: str, n: int) -> Law:
    _, a, b = ACTIVATIONS[name].coefficients()
    w, x, z = _symbol("W", N, D), _symbol("X", D, M), _symbol("Z", N, M)
    return law_of(a * w * x + b * z, {N: n, D: 3 * n // 2, M: 2 * n})


# -- heads ------------------------------------------------------------------------------------------------------------


def _attention(number: int) -> Any:
    """The linear model of attention over the tokens; d = k = n/2."""
    q, k, z = _symbol(f"Q{number}", D, K), _symbol(f"K{number}", D, K), _symbol(f"Z{number}", N, N)
    return ALPHA * TOKENS * q * k.T * TOKENS.T + NOISE * z


def _output(number: int, tokens: Any = TOKENS) -> Any:
    return _attention(number) * tokens * _symbol(f"V{number}", D, K)


def _head_sizes(n: int) -> dict[Any, int]:
    return {N: n, D: n // 2, K: n // 2}


def _heads(count: int) -> Draw:
    """Squared singular values of the summed outputs; every factor divided by the root of its columns as it stands."""

    def draw(n: int, rng: np.random.Generator) -> np.ndarray:
        d = k = n // 2
        tokens = rng.standard_normal((n, d)) / math.sqrt(d)
        mirrored = tokens.T * math.sqrt(d / n)  # divided by the root of n, as Kᵀ by that of d
        total = np.zeros((n, k))
        for _ in range(count):
            queries, keys = rng.standard_normal((d, k)) / math.sqrt(k), rng.standard_normal((k, d)) / math.sqrt(d)
            noise, values = rng.standard_normal((n, n)) / math.sqrt(n), rng.standard_normal((d, k)) / math.sqrt(k)
            total += (ALPHA * tokens @ queries @ keys @ mirrored + NOISE * noise) @ tokens @ values
        return np.concatenate([np.zeros(n - k), squared(total)])

    return draw


def _as_if_free(n: int) -> Law:
    """The law of A X V if A were free from X V."""
    attention = law_of(_attention(1), _head_sizes(n))
    return free.multiplicative(attention, GaussianProduct([n, n // 2, n // 2]))


# -- matrices ---------------------------------------------------------------------------------------------------------


def _standard_wigner(n: int, rng: np.random.Generator) -> np.ndarray:
    entries = rng.standard_normal((n, n))
    return (entries + entries.T) / math.sqrt(2)


def _thirds(values: tuple[float, ...], n: int) -> np.ndarray:
    return np.asarray(values)[np.arange(n) * len(values) // n]


def _two_covariances(n: int, rng: np.random.Generator) -> np.ndarray:
    first, second = rng.standard_normal((n, 2 * n)), rng.standard_normal((n, n // 4))
    return np.linalg.eigvalsh(first @ first.T / (2 * n) + 3 * (second @ second.T) / (n // 4))


def _commutator(n: int, rng: np.random.Generator) -> np.ndarray:
    product = _standard_wigner(n, rng) @ _standard_wigner(n, rng) / n
    return np.linalg.eigvalsh(1j * (product - product.T))


def _symmetric_product(n: int, rng: np.random.Generator) -> np.ndarray:
    m = 3 * n // 10
    product = rng.standard_normal((n, m)) @ rng.standard_normal((m, n)) / m
    return np.linalg.eigvalsh(product + product.T)


def _jointly_diagonal(n: int, rng: np.random.Generator) -> np.ndarray:
    scales = _thirds(SCALES, n)
    matrix = scales[:, None] * _standard_wigner(n, rng) * scales / math.sqrt(n)
    return np.linalg.eigvalsh(matrix + np.diag(_thirds(SHIFTS, n)))


def _weighted(n: int, rng: np.random.Generator) -> np.ndarray:
    m = 2 * n // 5
    entries = rng.standard_normal((n, m))
    return np.linalg.eigvalsh((entries * _thirds(VALUES, m)) @ entries.T / m)


# -- the experiment ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """An expression's law and its simulation; roots: the figure shows singular values."""

    title: str
    build: Callable[[int], Law]
    draw: Draw
    roots: bool = False
    features: Draw | None = None


CASES = {
    "two covariances": Case(
        r"$XX^\mathsf{T}\!/m + 3\,YY^\mathsf{T}\!/p$",
        lambda n: law_of(X * X.T / M + 3 * Y * Y.T / P, {N: n, M: 2 * n, P: n // 4}),
        _two_covariances,
        roots=True,
    ),
    "commutator": Case(
        r"commutator $\mathrm{i}(ST - TS)/n$",
        lambda n: law_of(sp.I * (S * T - T * S) / N, {N: n}, symmetric=[S, T]),
        _commutator,
    ),
    "symmetric product": Case(
        r"$(AB^\mathsf{T} + BA^\mathsf{T})/m$",
        lambda n: law_of((A * B.T + B * A.T) / M, {N: n, M: 3 * n // 10}),
        _symmetric_product,
    ),
    "jointly diagonal": Case(
        r"$ESE/\sqrt{n} + F$, $E$ and $F$ diagonal",
        lambda n: law_of(E * S * E / sp.sqrt(N) + F, {N: n}, symmetric=[S], diagonal={E: SCALES, F: SHIFTS}),
        _jointly_diagonal,
    ),
    "X D Xᵀ": Case(
        r"$XDX^\mathsf{T}\!/m$, $D$ diagonal",
        lambda n: law_of(X * DIAGONAL * X.T / M, {N: n, M: 2 * n // 5}, diagonal={DIAGONAL: VALUES}),
        _weighted,
        roots=True,
    ),
    "tanh": Case(
        r"random features $\tanh(WX/\sqrt{d})/\sqrt{m}$",
        lambda n: _features_law("tanh", n),
        _features("tanh", true=False),
        roots=True,
        features=_features("tanh", true=True),
    ),
    "ReLU": Case(
        r"random features, centred ReLU",
        lambda n: _features_law("ReLU", n),
        _features("ReLU", true=False),
        roots=True,
        features=_features("ReLU", true=True),
    ),
    "one head": Case(
        r"one head $(a\,XQK^\mathsf{T}\! X^\mathsf{T} + b\,Z)\,XV$",
        lambda n: law_of(_output(1), _head_sizes(n)),
        _heads(1),
        roots=True,
    ),
    "two heads": Case(
        "two heads on the same tokens", lambda n: law_of(_output(1) + _output(2), _head_sizes(n)), _heads(2), roots=True
    ),
}


@dataclass(frozen=True)
class Found:
    """A law with its draws, and the distances of the expression and of the true features."""

    law: Law
    seconds: float
    spectra: list[np.ndarray]
    expression: Comparison
    features: Comparison | None

    def record(self) -> dict[str, Any]:
        record = {**described(self.law, self.seconds), "expression": summary(self.expression)}
        if self.features is not None:
            record["features"] = summary(self.features)
        return record


def measure(case: Case, n: int, draws: int, seed: int) -> Found:
    begun = time.perf_counter()
    law = case.build(n)
    seconds = time.perf_counter() - begun
    first, second = np.random.default_rng(seed).spawn(2)
    spectra = [case.draw(n, child) for child in first.spawn(draws)]
    expression, features = compare(law, spectra), None
    if case.features is not None:
        spectra = [case.features(n, child) for child in second.spawn(draws)]  # these are shown
        features = compare(law, spectra)
    return Found(law, seconds, spectra, expression, features)


def difference(first: Law, second: Law, share: float = 1.0) -> float:
    """Largest difference of the first density from that share of the second, relative, inside the second's support."""
    worst = 0.0
    for low, high in second.support():
        x = low + (high - low) * np.sin(np.linspace(0.02, 0.98, 101) * np.pi / 2) ** 2
        worst = max(worst, float(np.abs(first.pdf(x) / (share * second.pdf(x)) - 1).max()))
    return worst


def figure(path: Path, found: dict[str, Found], as_if_free: Law, n: int, draws: int) -> None:
    """A panel for each expression."""
    plt = _common.pyplot()
    style = {"color": _common.BELIEVED, "linestyle": "--", "linewidth": 1.2}
    fig, axes = plt.subplots(3, 3, figsize=(10.5, 7.2))
    fig.subplots_adjust(wspace=0.08, hspace=0.48)
    for axis, (name, one) in zip(axes.flat, found.items(), strict=True):
        case = CASES[name]
        text = f"KS {one.expression.ks_mean:.4f}"
        if one.features is not None:
            text = f"KS {one.features.ks_mean:.4f}\nlinear model {one.expression.ks_mean:.4f}"
        others = [(as_if_free, style)] if name == "one head" else []
        if others:
            text += f"\nas if free {compare(as_if_free, one.spectra).ks_mean:.3f}"
        panel(axis, one.law, one.spectra, case.title, text=text, roots=case.roots, others=others)
        axis.set_xlabel("singular value" if case.roots else "eigenvalue", labelpad=1)
    handles = [
        plt.Rectangle((0, 0), 1, 1, color=_common.SOFT),
        plt.Line2D([], [], color=_common.LAW),
        plt.Line2D([], [], **style),
    ]
    labels = [f"n = {n}, {draws} draws", "law of the expression", "if attention and tokens were free"]
    fig.legend(handles, labels, loc="lower center", bbox_to_anchor=(0.5, -0.01), ncols=3)
    fig.savefig(path)
    plt.close(fig)


def main(argv: list[str] | None = None) -> int:
    options = _common.arguments("expressions", __doc__ or "", quick="n = 300, looser limits").parse_args(argv)
    n, draws, limit = (300, 2, 3 * LIMIT) if options.quick else (1000, 4, LIMIT)
    found: dict[str, Found] = {}
    with _common.progress(Console(stderr=True)) as bar:
        for name in bar.track(CASES, description="expressions"):
            found[name] = measure(CASES[name], n, draws, options.seed)

    claims = []
    for name, one in found.items():
        claims.append(Claim(f"{name}, {one.seconds:.2f} s: KS", distance(one.expression), f"{limit:g}",
                            one.expression.ks_mean < limit))  # fmt: skip
        if one.features is not None:
            claims.append(Claim(f"{name}, true features: KS", distance(one.features), f"{limit:g}",
                                one.features.ks_mean < limit))  # fmt: skip
    begun = time.perf_counter()
    as_if_free = _as_if_free(n)
    seconds = time.perf_counter() - begun
    head = found["one head"]
    believed = compare(as_if_free, head.spectra)
    farther = believed.ks_mean / head.expression.ks_mean
    needed = TIMES_FARTHER if not options.quick else 2.0
    claims.append(Claim(f"one head, as if attention and tokens were free, {seconds:.2f} s: KS",
                        f"{distance(believed)}, {farther:.1f} times", f"at least {needed:g} times",
                        farther >= needed))  # fmt: skip
    m = 2 * n // 5
    routes = {
        "as if free: law_of with fresh tokens": difference(law_of(_output(1, FRESH), _head_sizes(n)), as_if_free),
        "X D Xᵀ: free.multiplicative": difference(
            found["X D Xᵀ"].law, free.multiplicative(Atomic(VALUES), MarchenkoPastur(m / n, n / m)), m / n
        ),
    }
    claims += [Claim(f"{name}: relative difference of densities", f"{value:.1e}", f"{ROUTES:g}", value < ROUTES)
               for name, value in routes.items()]  # fmt: skip

    path = _common.folder(options) / "expressions.json"
    figure(path.with_suffix(".png"), found, as_if_free, n, draws)
    data = {
        "n": n,
        "draws": draws,
        "coefficients": {
            name: dict(zip(("mean", "a", "b"), activation.coefficients(), strict=True))
            for name, activation in ACTIVATIONS.items()
        },
        "expressions": {name: one.record() for name, one in found.items()},
        "one_head_as_if_free": {**described(as_if_free, seconds), "expression": summary(believed)},
        "times_farther": farther,
        "routes": routes,
    }
    return _common.conclude(path, __doc__ or "", options, claims, data)


if __name__ == "__main__":
    sys.exit(main())
