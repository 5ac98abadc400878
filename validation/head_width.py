"""The finite-size law at the head widths that people use, against the limit theorem's.

Orthonormal tokens; d_k = 32, 64, 128; n = 512, 1024, 2048 (4 draws), 4096 (2 draws); beta = 0.25, 0.5, 0.75, 1, 1.25;
and n = 8192 (1 draw) for d_k = 64, beta 0.5 and 1. Distances are Kolmogorov-Smirnov distances, means over draws.

Claims.
- The finite-size law is within 0.006 of attention at n = 2048, d_k = 64, beta = 0.5, within 0.012 at beta = 1, and
  within 0.008 at n = 1024, d_k = 32, beta = 0.5.
- For n >= 2048 and beta up to 1 it is within 0.012 at every head width.
- For d_k <= 64 and beta up to 1 its distance is at most a quarter of the limit law's, give or take sampling noise.
- No cell is farther from the finite-size law than from the limit law.
- At fixed head width the distance falls with n: at 4096 it is below that at 512.
- Every law is certified at the number of norm nodes that it chooses itself.
"""

from __future__ import annotations

import itertools
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

WIDTHS = (32, 64, 128)
BETAS = (0.25, 0.5, 0.75, 1.0, 1.25)
DRAWS = {512: 4, 1024: 4, 2048: 4, 4096: 2, 8192: 1}
LARGEST, LARGEST_CELLS = 8192, ((64, 0.5), (64, 1.0))  # minutes and gigabytes each
QUICK_DRAWS = {256: 2, 512: 2, 1024: 2}
QUICK_BETAS = (0.5, 1.0)
REQUIRED = {(2048, 64, 0.5): 0.006, (2048, 64, 1.0): 0.012, (1024, 32, 0.5): 0.008}
WIDE_ENOUGH, LIMIT_THERE = 2048, 0.012
TIMES_NEARER, NARROW = 4.0, 64


def name(tokens: int, head_dim: int, beta: float) -> str:
    return f"n = {tokens}, d_k = {head_dim}, beta {beta:g}."


def run_cell(tokens: int, head_dim: int, beta: float, draws: int, seed: int) -> dict[str, Any]:
    """Distances of one cell; its random numbers depend on the seed and the cell alone."""
    head = Attention(tokens, head_dim, beta)
    stream = np.random.default_rng([seed, tokens, head_dim, round(1000 * beta)])
    spectra = [head.spectrum(child) for child in stream.spawn(draws)]
    law, forced = _common.finite_law(head)
    finite, limit = gequiv.compare(law, spectra), gequiv.compare(head.limit_law(), spectra)
    return {
        "tokens": tokens,
        "head_dim": head_dim,
        "beta": beta,
        "finite_ks_per_draw": list(finite.ks_per_draw),
        "finite_ks_mean": finite.ks_mean,
        "finite_ks_error": finite.ks_error,
        "limit_ks_per_draw": list(limit.ks_per_draw),
        "limit_ks_mean": limit.ks_mean,
        "sampling_noise": sampling_noise(spectra),
        "order": law.order,
        "norm_nodes": law.norm_nodes,
        "norm_nodes_forced": forced,
    }


def claims(cells: list[dict[str, Any]]) -> list[Claim]:
    found = []
    for where, allowed in REQUIRED.items():
        for cell in cells:
            if (cell["tokens"], cell["head_dim"], cell["beta"]) == where:
                value = cell["finite_ks_mean"]
                statement = f"n = {where[0]}, d_k = {where[1]}, beta {where[2]:g}: KS from the finite-size law"
                found.append(Claim(statement, f"{value:.4f}", f"{allowed:g}", value <= allowed))
    large = [cell for cell in cells if cell["tokens"] >= WIDE_ENOUGH and cell["beta"] <= 1]
    if large:
        worst = max(large, key=lambda cell: cell["finite_ks_mean"])
        found.append(
            Claim(
                f"n >= {WIDE_ENOUGH}, beta <= 1, {len(large)} cells: KS from the finite-size law",
                f"at most {worst['finite_ks_mean']:.4f} ({worst['cell']})",
                f"{LIMIT_THERE:g}",
                worst["finite_ks_mean"] <= LIMIT_THERE,
            )
        )
    narrow = [cell for cell in cells if cell["head_dim"] <= NARROW and cell["beta"] <= 1]
    worst = max(narrow, key=_beyond_quarter)
    found.append(
        Claim(
            f"d_k <= {NARROW}, beta <= 1, {len(narrow)} cells: KS from the finite-size law less a quarter of the other",
            f"at most {_beyond_quarter(worst) + _noise(worst):+.4f} ({worst['cell']})",
            f"sampling noise, {_noise(worst):.4f} there",
            _beyond_quarter(worst) <= 0,
        )
    )
    worst = min(cells, key=lambda cell: cell["limit_ks_mean"] / cell["finite_ks_mean"])
    ratio = worst["limit_ks_mean"] / worst["finite_ks_mean"]
    found.append(
        Claim(
            f"all {len(cells)} cells: KS from the limit law over KS from the finite-size law",
            f"at least {ratio:.2f} ({worst['cell']})",
            "1",
            ratio >= 1,
        )
    )
    found.append(_falling(cells))
    found.append(_common.helped_claim(cells))
    return found


def _noise(cell: dict[str, Any]) -> float:
    """Sampling noise of the mean; of a single draw about 4/n."""
    noise = cell["sampling_noise"]
    return float(4 / cell["tokens"] if noise is None else noise)


def _beyond_quarter(cell: dict[str, Any]) -> float:
    return float(cell["finite_ks_mean"] - cell["limit_ks_mean"] / TIMES_NEARER - _noise(cell))


def _falling(cells: list[dict[str, Any]]) -> Claim:
    sizes = sorted({cell["tokens"] for cell in cells if cell["tokens"] != LARGEST})
    by_key = {(cell["tokens"], cell["head_dim"], cell["beta"]): cell["finite_ks_mean"] for cell in cells}
    ratios = {
        (width, beta): by_key[sizes[-1], width, beta] / by_key[sizes[0], width, beta]
        for tokens, width, beta in by_key
        if tokens == sizes[0]
    }
    width, beta = max(ratios, key=lambda key: ratios[key])
    return Claim(
        f"KS from the finite-size law at n = {sizes[-1]} over that at n = {sizes[0]}, {len(ratios)} pairs",
        f"at most {ratios[width, beta]:.2f} (d_k = {width}, beta {beta:g})",
        "below 1",
        ratios[width, beta] < 1,
    )


def figure(path: Path, cells: list[dict[str, Any]]) -> None:
    """Distance against n, one panel a beta, both laws."""
    plt = _common.pyplot()
    betas = sorted({cell["beta"] for cell in cells})
    sizes = sorted({cell["tokens"] for cell in cells})
    fig, axes = plt.subplots(1, len(betas), figsize=(1.2 + 2.1 * len(betas), 3.1), sharey=True)
    fig.subplots_adjust(wspace=0.08)
    for axis, beta in zip(axes, betas, strict=True):
        for colour, width in zip(_common.COLOURS, WIDTHS, strict=False):
            row = [cell for cell in cells if (cell["beta"], cell["head_dim"]) == (beta, width)]
            n = [cell["tokens"] for cell in row]
            axis.plot(n, [cell["limit_ks_mean"] for cell in row], "--o", color=colour, markersize=3.5, linewidth=1,
                      markerfacecolor="white")  # fmt: skip
            axis.plot(n, [cell["finite_ks_mean"] for cell in row], "-o", color=colour, markersize=3.5)
            single = [(cell["tokens"], value) for cell in row for value in cell["finite_ks_per_draw"]]
            axis.plot(*zip(*single, strict=True), "o", color=colour, markersize=2, alpha=0.4, markeredgewidth=0)
        several = [n for n in sizes if all(cell["sampling_noise"] for cell in cells if cell["tokens"] == n)]
        noise = [np.mean([_noise(cell) for cell in cells if cell["tokens"] == n]) for n in several]
        axis.fill_between(several, noise, 1e-5, color="#eeeeee", linewidth=0, zorder=0)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xticks(sizes, [str(n) for n in sizes], rotation=45)
        axis.minorticks_off()
        axis.set_xlim(sizes[0] * 0.8, sizes[-1] * 1.25)
        axis.set_ylim(4e-4, 0.9)
        axis.set_title(rf"$\beta = {beta:g}$")
        axis.set_xlabel("tokens $n$")
    axes[0].set_ylabel("KS distance from attention")
    handles = [plt.Line2D([], [], color=c, label=f"$d_k$ = {w}") for c, w in zip(_common.COLOURS, WIDTHS, strict=False)]
    handles += [
        plt.Line2D([], [], color=_common.INK, marker="o", markersize=3.5, label="finite-size law"),
        plt.Line2D([], [], color=_common.INK, marker="o", markersize=3.5, markerfacecolor="white", linestyle="--",
                   linewidth=1, label="limit law"),
        plt.Rectangle((0, 0), 1, 1, color="#eeeeee", label="sampling noise"),
    ]  # fmt: skip
    fig.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, -0.17), ncols=6)
    fig.savefig(path)
    plt.close(fig)


def main(argv: list[str] | None = None) -> int:
    quick = "n = 256, 512, 1024, beta 0.5 and 1, 2 draws"
    options = _common.resumable(_common.arguments("head_width", __doc__ or "", quick=quick)).parse_args(argv)
    draws, betas = (QUICK_DRAWS, QUICK_BETAS) if options.quick else (DRAWS, BETAS)
    wanted = {
        name(n, width, beta): partial(run_cell, n, width, beta, draws[n], options.seed)
        for n, width, beta in itertools.product(draws, WIDTHS, betas)  # the largest last
        if n != LARGEST or (width, beta) in LARGEST_CELLS
    }
    path = _common.folder(options) / "head_width.json"
    cells = _common.run_cells(path, options, wanted)
    figure(path.with_suffix(".png"), cells)
    code = _common.conclude(path, __doc__ or "", options, claims(cells), {"cells": cells})
    _common.discard_partial(path)
    return code


if __name__ == "__main__":
    sys.exit(main())
