"""The finite-size law under masks: causal, windows, blocks, and a causal mask with a bias by distance.

Orthonormal tokens; n = 1024 and 2048; d_k = 64; beta = 0.5 and 1; 4 draws of sqrt(n) (A - Abar). Masks: causal; causal
with ALiBi of slope 1/64; causal window of 256; two-sided window of 256; blocks of 512. No limit law exists under a
mask; for contrast, the theorem's linear model with the mask laid on it is drawn, 2 matrices a cell. Distances are
Kolmogorov-Smirnov distances, means over draws.

Claims.
- At n = 2048, beta 0.5 and 1, attention is within 0.015 and 0.025 of the finite-size law under the causal mask, within
  0.02 and 0.03 under both windows and under blocks, and within 0.02 and 0.06 under the causal mask with ALiBi, whose
  rows see about 64 keys.
- Every cell is nearer to the finite-size law than to the masked linear model; at n = 2048, beta = 0.5 at least twice as
  near.
- The mass of every law is one to 1e-5: its distribution function runs from its atoms to one.
"""

from __future__ import annotations

import itertools
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import gequiv
from gequiv.attention import Attention, ensemble
from gequiv.simulation import ks_between, sampling_noise
from gequiv.simulation.experiment import total_mass
from validation import _common
from validation._common import Claim

HEAD_DIM = 64
BETAS: tuple[float, ...] = (0.5, 1.0)
SIZES, DRAWS, LINEAR_DRAWS = (1024, 2048), 4, 2
QUICK_SIZES, QUICK_DRAWS, QUICK_MASKS, QUICK_BETAS = (512,), 2, ("causal", "window 256"), (0.5,)
CLAIMED_AT = 2048
MASKS: dict[str, tuple[str, float | None, tuple[float, float]]] = {  # name: mask, bias, limits at beta 0.5 and 1
    "causal": ("causal", None, (0.015, 0.025)),
    "causal, ALiBi 1/64": ("causal", 1 / 64, (0.02, 0.06)),
    "window 256": ("window:256", None, (0.02, 0.03)),
    "two-sided 256": ("two-sided:256", None, (0.02, 0.03)),
    "block 512": ("block:512", None, (0.02, 0.03)),
}
TWICE, TWICE_AT = 2.0, 0.5
MASS_ERROR = 1e-5
SHOWN = (0.1, 0.9995)  # quantiles: the left tail is logarithmically slow


def run_cell(name: str, tokens: int, beta: float, draws: int, linear_draws: int, seed: int) -> dict[str, Any]:
    """Distances of one cell, and its densities in log x; its random numbers depend on the seed and the cell alone."""
    mask, bias, _ = MASKS[name]
    head = Attention(tokens, HEAD_DIM, beta, mask=mask, bias=bias)
    stream = np.random.default_rng([seed, list(MASKS).index(name), tokens, round(1000 * beta)])
    children = stream.spawn(draws + linear_draws)
    spectra = [head.spectrum(child) for child in children[:draws]]
    linear = [
        ensemble.squared_singular_values(ensemble.draw_linear_model(head, child), "svd") for child in children[draws:]
    ]
    law = head.finite_law()
    found = gequiv.compare(law, spectra)
    to_linear = [ks_between(spectrum, linear) for spectrum in spectra]
    pooled = np.concatenate(spectra)
    low, high = (float(np.quantile(pooled, level)) for level in SHOWN)
    shown = _common.log_density(spectra, low, high, law=law)
    shown["linear"] = _common.log_density(linear, low, high)["draws"]
    return {
        "mask": name,
        "tokens": tokens,
        "beta": beta,
        "ks_per_draw": list(found.ks_per_draw),
        "ks_mean": found.ks_mean,
        "ks_error": found.ks_error,
        "ks_pooled": found.ks,
        "sampling_noise": sampling_noise(spectra),
        "linear_ks_per_draw": to_linear,
        "linear_ks_mean": float(np.mean(to_linear)),
        "law_mass_error": abs(total_mass(law) - 1),
        "law_mean": float(law.moment(1)),
        "sample_mean": float(pooled.mean()),
        "law_edge": law.support()[-1][1],
        "sample_largest": float(pooled.max()),
        "figure": shown,
    }


def claims(cells: list[dict[str, Any]]) -> list[Claim]:
    found = []
    for cell in cells:
        if cell["tokens"] == CLAIMED_AT:
            limit = MASKS[cell["mask"]][2][BETAS.index(cell["beta"])]
            measured = f"{cell['ks_mean']:.4f}"
            found.append(Claim(f"{cell['cell']}: KS", measured, f"{limit:g}", cell["ks_mean"] <= limit))
    large = [cell for cell in cells if cell["tokens"] == CLAIMED_AT and cell["beta"] == TWICE_AT]
    for words, row, least in (("all", cells, 1.0), (f"n = {CLAIMED_AT}, beta {TWICE_AT:g}", large, TWICE)):
        if not row:
            continue
        worst = min(row, key=lambda cell: cell["linear_ks_mean"] / cell["ks_mean"])
        ratio = worst["linear_ks_mean"] / worst["ks_mean"]
        found.append(
            Claim(
                f"{words}, {len(row)} cells: KS from the masked linear model over KS from the finite-size law",
                f"at least {ratio:.2f} ({worst['cell']})",
                f"at least {least:g}",
                ratio >= least,
            )
        )
    worst = max(cells, key=lambda cell: cell["law_mass_error"])
    found.append(
        Claim(
            f"all {len(cells)} laws: mass less one",
            f"at most {worst['law_mass_error']:.1e} ({worst['cell']})",
            f"{MASS_ERROR:g}",
            worst["law_mass_error"] <= MASS_ERROR,
        )
    )
    return found


def figure(path: Path, cells: list[dict[str, Any]]) -> None:
    """Densities in log10 x at the largest n: draws, the law, and the masked linear model; a row for each beta."""
    plt = _common.pyplot()
    n = max(cell["tokens"] for cell in cells)
    masks = [mask for mask in MASKS if any(cell["mask"] == mask for cell in cells)]
    betas = sorted({cell["beta"] for cell in cells})
    fig, axes = plt.subplots(len(betas), len(masks), figsize=(0.6 + 2.25 * len(masks), 2.1 * len(betas)), squeeze=False)
    fig.subplots_adjust(wspace=0.2, hspace=0.32)
    for j, mask in enumerate(masks):
        for k, beta in enumerate(betas):
            axis = axes[k, j]
            cell = next(c for c in cells if (c["mask"], c["tokens"], c["beta"]) == (mask, n, beta))
            shown = cell["figure"]
            _common.draw_density(axis, shown, law={"color": _common.LAW})
            axis.stairs(shown["linear"], shown["edges"], color=_common.BELIEVED, linewidth=0.9, linestyle="--",
                        baseline=None)  # fmt: skip
            axis.set_ylim(0, 1.25 * max(*shown["draws"], *shown["law"], *shown["linear"]))
            axis.text(0.03, 0.95, f"KS {cell['ks_mean']:.4f}", transform=axis.transAxes, va="top", fontsize=8,
                      color=_common.LAW)  # fmt: skip
            axis.text(0.97, 0.95, f"{cell['linear_ks_mean']:.4f}", transform=axis.transAxes, va="top", ha="right",
                      fontsize=8, color=_common.BELIEVED)  # fmt: skip
            if k == 0:
                axis.set_title(mask)
            if k == len(betas) - 1:
                axis.set_xlabel("squared singular value $x$")
            if j == 0:
                axis.set_ylabel(rf"$\beta = {beta:g}$" + "\ndensity in $\\log_{10} x$")
    handles = [
        plt.Rectangle((0, 0), 1, 1, color=_common.SOFT),
        plt.Line2D([], [], color=_common.LAW),
        plt.Line2D([], [], color=_common.BELIEVED, linewidth=0.9, linestyle="--"),
    ]
    labels = [rf"attention, $n = {n}$, $d_k = {HEAD_DIM}$", "finite-size law", "linear model, masked"]
    fig.legend(handles, labels, loc="lower center", bbox_to_anchor=(0.5, -0.07), ncols=3)
    fig.savefig(path)
    plt.close(fig)


def main(argv: list[str] | None = None) -> int:
    quick = "n = 512, causal and window 256 at beta 0.5 only, 2 draws"
    options = _common.resumable(_common.arguments("masks", __doc__ or "", quick=quick)).parse_args(argv)
    sizes: tuple[int, ...] = SIZES
    masks, betas, draws = tuple(MASKS), BETAS, DRAWS
    if options.quick:
        sizes, masks, draws = QUICK_SIZES, QUICK_MASKS, QUICK_DRAWS
        betas = QUICK_BETAS
    wanted = {
        f"{mask}, n = {n}, beta {beta:g}": partial(run_cell, mask, n, beta, draws, LINEAR_DRAWS, options.seed)
        for n, mask, beta in itertools.product(sizes, masks, betas)  # the largest last
    }
    path = _common.folder(options) / "masks.json"
    cells = _common.run_cells(path, options, wanted)
    for cell in cells:
        if cell["tokens"] < max(sizes):
            cell.pop("figure", None)  # not drawn
    figure(path.with_suffix(".png"), cells)
    code = _common.conclude(path, __doc__ or "", options, claims(cells), {"cells": cells})
    _common.discard_partial(path)
    return code


if __name__ == "__main__":
    sys.exit(main())
