"""From attention to its linear model in three steps, at n = d = d_k = 1000, beta = 1, ten draws.

The chain, with scores S of a head on orthonormal tokens, f(x) = exp(beta x - beta^2/2), and G, Z independent Gaussian:

    attention     sqrt(n) (A - 1/n)                          A = row-softmax(beta S)
    frozen        (f(S) - 1)/sqrt(n)                         the row normaliser replaced by its mean n exp(beta^2/2)
    decoupled     (beta S + f(G) - 1 - beta G)/sqrt(n)       what f adds to its linear part, made independent of S
    linear        (beta S + sigma Z)/sqrt(n)                 and made Gaussian, sigma^2 = exp(beta^2) - 1 - beta^2

Claims. Neighbours of the chain have the same spectrum up to a Kolmogorov-Smirnov distance of 0.03 (all draws pooled),
every one is within 0.03 of the limit law and the linear model within 0.005; attention is at least three times farther
from the Marchenko-Pastur law of variance exp(beta^2) - 1 than from the limit law. The top three singular values of each
matrix are set apart in the figure (at finite size some leave the bulk); the distances include them.
"""

from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from gequiv.attention import Attention, ensemble
from gequiv.laws.base import Law
from gequiv.laws.marchenko_pastur import MarchenkoPastur
from gequiv.simulation import Comparison, compare, ks_between
from validation import _common
from validation._common import Claim

LINKS = ("attention", "frozen", "decoupled", "linear")
TITLES = (
    r"attention  $\sqrt{n}\,(A-\frac{1}{n}\mathbf{1}\mathbf{1}^{\!\top})$",
    r"normaliser frozen  $(f(S)-1)/\sqrt{n}$",
    r"decoupled  $(\beta S+h(G))/\sqrt{n}$",
    r"linear model  $(\beta S+\sigma Z)/\sqrt{n}$",
)
BETA = 1.0
NEIGHBOUR_LIMIT = LAW_LIMIT = 0.03
LINEAR_LIMIT = 0.005
TIMES_FARTHER = 3.0
APART = 3


def draw(head: Attention, rng: np.random.Generator) -> list[np.ndarray]:
    """Ascending squared singular values of the four matrices on the same scores."""
    beta, n = head.beta, head.columns
    model = head.linear_model()
    scores = ensemble.draw_scores(head, rng)
    gauss = rng.standard_normal(scores.shape)
    frozen = np.exp(beta * scores - beta**2 / 2) - 1
    decoupled = beta * scores + np.exp(beta * gauss - beta**2 / 2) - 1 - beta * gauss
    linear = beta * scores + math.sqrt(model.noise_variance) * rng.standard_normal(scores.shape)
    ensemble.softmax_rows(scores, beta)
    attention = ensemble.centred(scores)
    matrices = (attention, frozen / math.sqrt(n), decoupled / math.sqrt(n), linear / math.sqrt(n))
    return [ensemble.squared_singular_values(matrix) for matrix in matrices]


def measure(head: Attention, draws: int, seed: int) -> tuple[dict[str, list[np.ndarray]], Law, Law]:
    """Spectra of every link, the limit law, and Marchenko–Pastur's."""
    law = head.limit_law()
    believed = MarchenkoPastur(float(head.aspect), head.linear_model().total_variance)
    spectra: dict[str, list[np.ndarray]] = {name: [] for name in LINKS}
    with _common.progress(Console(stderr=True)) as bar:
        for child in bar.track(np.random.default_rng(seed).spawn(draws), description="draws"):
            for name, spectrum in zip(LINKS, draw(head, child), strict=True):
                spectra[name].append(spectrum)
    return spectra, law, believed


def figure(path: Path, head: Attention, spectra: dict[str, list[np.ndarray]], law: Law, believed: Law,
           to_law: dict[str, Comparison], neighbours: list[float]) -> None:  # fmt: skip
    """One panel a link: singular values, the limit law, Marchenko–Pastur's, and the top three apart."""
    plt = _common.pyplot()
    law_roots, believed_roots = law.singular_values(), believed.singular_values()
    tops = {name: np.sqrt(np.concatenate([s[-APART:] for s in spectra[name]])) for name in LINKS}
    reach = max(law_roots.support()[-1][1], *(float(top.max()) for top in tops.values())) * 1.06
    steps = np.sin(np.linspace(0, np.pi / 2, 600))[1:]
    bins = np.linspace(0, law_roots.support()[-1][1] * 1.02, 41)
    fig, axes = plt.subplots(1, 4, figsize=(11.5, 2.9), sharey=True)
    fig.subplots_adjust(wspace=0.16)
    for k, (axis, name, title) in enumerate(zip(axes, LINKS, TITLES, strict=True)):
        bulk = np.sqrt(np.concatenate([s[:-APART] for s in spectra[name]]))
        weight = 1 / (sum(s.size for s in spectra[name]) * (bins[1] - bins[0]))
        axis.hist(bulk, bins, weights=np.full(bulk.size, weight), color=_common.SOFT, edgecolor="white", linewidth=0.4)
        for roots, style in (
            (believed_roots, {"color": _common.BELIEVED, "linestyle": "--", "linewidth": 1.2}),
            (law_roots, {"color": _common.LAW}),
        ):
            grid = steps * roots.support()[-1][1]
            axis.plot(grid, roots.pdf(grid), **style)
        axis.plot(tops[name], np.full(tops[name].size, 0.015), "v", color=_common.INK, markersize=3.5, alpha=0.45,
                  markeredgewidth=0, clip_on=False)  # fmt: skip
        axis.set_title(title)
        axis.set_xlim(0, reach)
        axis.set_ylim(0, None)
        axis.set_xlabel("singular value")
        axis.text(0.97, 0.93, f"KS to the limit law {to_law[name].ks:.4f}", transform=axis.transAxes, ha="right",
                  fontsize=8, color=_common.LAW)  # fmt: skip
        if k:
            axis.text(0.97, 0.83, f"to the one on the left {neighbours[k - 1]:.4f}", transform=axis.transAxes,
                      ha="right", fontsize=8, color=_common.INK)  # fmt: skip
    axes[0].set_ylabel("density")
    handles = [
        plt.Rectangle((0, 0), 1, 1, color=_common.SOFT),
        plt.Line2D([], [], marker="v", linestyle="", color=_common.INK, alpha=0.6, markersize=4),
        plt.Line2D([], [], color=_common.LAW),
        plt.Line2D([], [], color=_common.BELIEVED, linestyle="--", linewidth=1.2),
    ]
    draws = len(spectra["linear"])
    labels = [f"{draws} draws, n = d = $d_k$ = {head.tokens}, β = {head.beta:g}", "top three of each draw", "limit law",
              "Marchenko–Pastur of variance $e^{\\beta^2}-1$"]  # fmt: skip
    fig.legend(handles, labels, loc="lower center", bbox_to_anchor=(0.5, -0.17), ncols=4)
    fig.savefig(path)
    plt.close(fig)


def main(argv: list[str] | None = None) -> int:
    options = _common.arguments("chain", __doc__ or "", quick="n = 300, 4 draws, looser limits").parse_args(argv)
    n, draws, slack = (300, 4, 3.0) if options.quick else (1000, 10, 1.0)
    head = Attention(tokens=n, head_dim=n, beta=BETA)
    spectra, law, believed = measure(head, draws, options.seed)
    to_law = {name: compare(law, spectra[name]) for name in LINKS}
    to_believed = {name: compare(believed, spectra[name]) for name in LINKS}
    neighbours = [ks_between(spectra[a], spectra[b]) for a, b in itertools.pairwise(LINKS)]
    edge = law.support()[-1][1]
    beyond = {name: float(np.mean([np.count_nonzero(s > edge) for s in spectra[name]])) for name in LINKS}

    claims = []
    for a, b, distance in zip(LINKS[:-1], LINKS[1:], neighbours, strict=True):
        limit = NEIGHBOUR_LIMIT * slack
        claims.append(Claim(f"{a} to {b}: KS", f"{distance:.4f}", f"{limit:g}", distance <= limit))
    for name in LINKS:
        limit = (LINEAR_LIMIT if name == "linear" else LAW_LIMIT) * slack
        claims.append(Claim(f"{name} to the limit law: KS", f"{to_law[name].ks:.4f}", f"{limit:g}",
                            to_law[name].ks <= limit))  # fmt: skip
    farther = to_believed["attention"].ks / to_law["attention"].ks
    needed = TIMES_FARTHER if not options.quick else 1.5
    claims.append(Claim("attention to Marchenko-Pastur, in KS to the limit law", f"{farther:.1f} times",
                        f"at least {needed:g}", farther >= needed))  # fmt: skip
    path = _common.folder(options) / "chain.json"
    figure(path.with_suffix(".png"), head, spectra, law, believed, to_law, neighbours)
    data: dict[str, Any] = {
        "tokens": n,
        "head_dim": n,
        "beta": BETA,
        "draws": draws,
        "neighbours": dict(zip((f"{a} to {b}" for a, b in itertools.pairwise(LINKS)), neighbours, strict=True)),
        "limit_law": {name: to_law[name].to_dict() for name in LINKS},
        "marchenko_pastur": {name: to_believed[name].to_dict() for name in LINKS},
        "edge_of_singular_values": math.sqrt(edge),
        "singular_values_beyond_the_edge_per_draw": beyond,
        "top_three": {name: [[float(v) for v in np.sqrt(s[-APART:])] for s in spectra[name]] for name in LINKS},
    }
    return _common.conclude(path, __doc__ or "", options, claims, data)


if __name__ == "__main__":
    sys.exit(main())
