"""The finite-size law of tokens that queries and keys share, with the weights known and with sizes only.

Gaussian tokens, Q = X W_Q, K = X W_K, weights iid N(0, 1/d); (n, d, d_k) = (1024, 768, 64) and (2048, 4096, 128);
beta = 0.5 and 1; 4 draws, each of weights and tokens. With the weights known each draw is held against the law of its
own weights, which does not know the tokens; with sizes only all are held against the one law of the sizes. Distances
are Kolmogorov-Smirnov distances, means over draws.

Claims.
- At both sizes, with the weights known: within 0.009 at beta = 0.5 and within 0.016 at beta = 1.
- Sizes only: within 0.012 and 0.02.
- At (1024, 768, 64) both are at least three times as near as the limit law.
- The inverse temperature that the weights amount to is within 5 % of the one asked for.
"""

from __future__ import annotations

import itertools
import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import gequiv
from gequiv.attention import Attention
from gequiv.simulation import sampling_noise
from validation import _common
from validation._common import Claim

SIZES = ((1024, 768, 64), (2048, 4096, 128))
QUICK_SIZES = ((512, 384, 64),)
BETAS = (0.5, 1.0)
DRAWS, QUICK_DRAWS = 4, 2
LIMITS = {"known": (0.009, 0.016), "sizes": (0.012, 0.02)}
WORDS = {"known": "weights known", "sizes": "sizes only"}
TIMES_NEARER, NEARER_AT = 3.0, SIZES[0]
BETA_WITHIN = 0.05
LOWEST = 0.1  # quantile where the figure begins


def run_cell(sizes: tuple[int, int, int], beta: float, draws: int, seed: int) -> dict[str, Any]:
    """Distances of one cell, and its densities; its random numbers depend on the seed and the cell alone."""
    tokens, width, head_dim = sizes
    stream = np.random.default_rng([seed, *sizes, round(1000 * beta)])
    typical = Attention(tokens, head_dim, beta, width=width)
    by_sizes, limit = typical.finite_law(), typical.limit_law()
    spectra, known, betas, laws = [], [], [], []
    for child in stream.spawn(draws):
        W_Q, W_K = child.standard_normal((2, width, head_dim)) / math.sqrt(width)
        head = Attention.from_weights(W_Q, W_K, tokens=tokens, scale=beta / math.sqrt(head_dim))
        spectra.append(head.spectrum(child))
        laws.append(head.finite_law())
        known.append(gequiv.compare(laws[-1], spectra[-1]).ks)
        betas.append(head.beta)
    from_sizes, from_limit = gequiv.compare(by_sizes, spectra), gequiv.compare(limit, spectra)
    low = float(np.quantile(np.concatenate(spectra), LOWEST))
    high = 1.2 * max(law.support()[-1][1] for law in (by_sizes, limit, laws[0]))
    return {
        "tokens": tokens,
        "width": width,
        "head_dim": head_dim,
        "beta": beta,
        "beta_of_weights": betas,
        "known_ks_per_draw": known,
        "known_ks_mean": float(np.mean(known)),
        "sizes_ks_per_draw": list(from_sizes.ks_per_draw),
        "sizes_ks_mean": from_sizes.ks_mean,
        "limit_ks_per_draw": list(from_limit.ks_per_draw),
        "limit_ks_mean": from_limit.ks_mean,
        "sampling_noise": sampling_noise(spectra),
        "figure": _common.log_density(spectra, low, high, known=laws[0], sizes=by_sizes, limit=limit),
    }


def claims(cells: list[dict[str, Any]], *, quick: bool) -> list[Claim]:
    found = []
    for cell in cells:
        for kind, limits in LIMITS.items():
            value, limit = cell[f"{kind}_ks_mean"], limits[BETAS.index(cell["beta"])] * (2 if quick else 1)
            found.append(Claim(f"{cell['cell']}, {WORDS[kind]}: KS", f"{value:.4f}", f"{limit:g}", value <= limit))
    for cell in cells:
        if (cell["tokens"], cell["width"], cell["head_dim"]) == NEARER_AT:
            ratio = cell["limit_ks_mean"] / max(cell["known_ks_mean"], cell["sizes_ks_mean"])
            statement = f"{cell['cell']}: KS from the limit law over the larger of the two"
            held = ratio >= TIMES_NEARER
            found.append(Claim(statement, f"{ratio:.1f}", f"at least {TIMES_NEARER:g}", held))
    off = max(abs(value / cell["beta"] - 1) for cell in cells for value in cell["beta_of_weights"])
    found.append(Claim("beta of the weights, relative to the one asked for", f"off by at most {off:.1%}",
                       f"{BETA_WITHIN:.0%}", off <= BETA_WITHIN))  # fmt: skip
    return found


def figure(path: Path, cells: list[dict[str, Any]]) -> None:
    """Densities in log10 x of the draws beside the three laws, one panel a cell."""
    plt = _common.pyplot()
    fig, axes = plt.subplots(1, len(cells), figsize=(0.6 + 2.75 * len(cells), 2.7))
    fig.subplots_adjust(wspace=0.16)
    for axis, cell in zip(axes, cells, strict=True):
        shown = cell["figure"]
        _common.draw_density(
            axis,
            shown,
            limit={"color": _common.BELIEVED, "linewidth": 1.2, "linestyle": "--"},
            known={"color": _common.LAW},
            sizes={"color": _common.COLOURS[1], "linestyle": ":"},
        )
        axis.set_xlabel("squared singular value $x$")
        axis.set_title(rf"$({cell['tokens']}, {cell['width']}, {cell['head_dim']})$, $\beta = {cell['beta']:g}$")
        for k, (kind, colour) in enumerate(
            (("known", _common.LAW), ("sizes", _common.COLOURS[1]), ("limit", _common.BELIEVED))
        ):
            axis.text(0.03, 0.97 - 0.1 * k, f"KS {cell[f'{kind}_ks_mean']:.4f}", transform=axis.transAxes, va="top",
                      fontsize=8, color=colour)  # fmt: skip
    axes[0].set_ylabel("density in $\\log_{10} x$")
    handles = [
        plt.Rectangle((0, 0), 1, 1, color=_common.SOFT),
        plt.Line2D([], [], color=_common.LAW),
        plt.Line2D([], [], color=_common.COLOURS[1], linestyle=":"),
        plt.Line2D([], [], color=_common.BELIEVED, linestyle="--", linewidth=1.2),
    ]
    labels = ["attention, $(n, d, d_k)$", "finite-size law, first draw's weights", "finite-size law, sizes only",
              "limit law"]  # fmt: skip
    fig.legend(handles, labels, loc="lower center", bbox_to_anchor=(0.5, -0.17), ncols=4)
    fig.savefig(path)
    plt.close(fig)


def main(argv: list[str] | None = None) -> int:
    quick = "(512, 384, 64) only, 2 draws, limits doubled"
    options = _common.resumable(_common.arguments("shared_tokens", __doc__ or "", quick=quick)).parse_args(argv)
    sizes, draws = (QUICK_SIZES, QUICK_DRAWS) if options.quick else (SIZES, DRAWS)
    wanted = {
        f"(n, d, d_k) = {size}, beta {beta:g}": partial(run_cell, size, beta, draws, options.seed)
        for size, beta in itertools.product(sizes, BETAS)
    }
    path = _common.folder(options) / "shared_tokens.json"
    cells = _common.run_cells(path, options, wanted)
    figure(path.with_suffix(".png"), cells)
    code = _common.conclude(path, __doc__ or "", options, claims(cells, quick=options.quick), {"cells": cells})
    _common.discard_partial(path)
    return code


if __name__ == "__main__":
    sys.exit(main())
