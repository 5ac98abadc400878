"""Attention approaches its limit law as the number of tokens grows at fixed proportions.

Claims. For beta 0.5 and 1 and three settings of the tokens (independent Q and K with d_k = n/2; tokens shared by Q and
K with d = n, d_k = n/2; shared with d = n/2, d_k = n/8) the Kolmogorov-Smirnov distance of the spectrum of attention
from the limit law, mean over draws, falls with every doubling of n from 500 to 4000, and is at most 1.35 times the
distance found by an earlier simulation plus the sampling noise. The linear model's own distance, noise alone, is at
most 1.35 times the earlier one plus its noise.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from scipy.special import stdtrit

from gequiv.attention import Attention
from gequiv.simulation import validate
from validation import _common
from validation._common import Claim

FACTOR = 1.35
SIZES = (500, 1000, 2000, 4000)
DRAWS = {500: 4, 1000: 4, 2000: 4, 4000: 2}
QUICK_SIZES = (250, 500, 1000)
SETTINGS = {  # name: (d/n or None, d_k/n)
    "independent, d_k = n/2": (None, 0.5),
    "shared, d = n, d_k = n/2": (1.0, 0.5),
    "shared, d = n/2, d_k = n/8": (0.5, 0.125),
}
EARLIER = {
    (0.5, "independent, d_k = n/2"): (0.0146, 0.0083, 0.0045, 0.0016),
    (0.5, "shared, d = n, d_k = n/2"): (0.0168, 0.0103, 0.0066, 0.0027),
    (0.5, "shared, d = n/2, d_k = n/8"): (0.108, 0.057, 0.027, 0.014),
    (1.0, "independent, d_k = n/2"): (0.037, 0.020, 0.012, 0.006),
    (1.0, "shared, d = n, d_k = n/2"): (0.046, 0.027, 0.016, 0.009),
    (1.0, "shared, d = n/2, d_k = n/8"): (0.119, 0.065, 0.042, 0.021),
}
EARLIER_LINEAR = (0.0045, 0.0025, 0.0014, 0.0008)


def head(beta: float, setting: str, n: int) -> Attention:
    """The head of one cell of the table."""
    width, head_dim = SETTINGS[setting]
    return Attention(n, round(head_dim * n), beta, width=None if width is None else round(width * n))


def run_cell(beta: float, setting: str, n: int, draws: int, seed: int, tick: Any) -> dict[str, Any]:
    """Distances of one cell; its random numbers depend on the seed and the cell alone."""
    stream = np.random.default_rng([seed, list(EARLIER).index((beta, setting)), n])
    result = validate(head(beta, setting, n), draws, stream, law="limit", progress=tick)
    return {
        "beta": beta,
        "setting": setting,
        "tokens": n,
        "ks_per_draw": list(result.comparison.ks_per_draw),
        "ks_mean": result.comparison.ks_mean,
        "ks_error": result.comparison.ks_error,
        "ks_pooled": result.comparison.ks,
        "wasserstein": result.comparison.wasserstein,
        "linear_ks_per_draw": list(result.linear.ks_per_draw),
        "linear_ks_mean": result.linear.ks_mean,
        "finite_size_bias": result.finite_size_bias,
        "sampling_noise": result.sampling_noise,
        "linear_noise": result.linear_noise,
        "marchenko_pastur_ks_mean": result.marchenko_pastur.ks_mean,
        "solver_error": result.solver_error,
    }


def exponent(cells: list[dict[str, Any]]) -> tuple[float, float]:
    """Slope of log KS against log n over single draws, by least squares, and the half-width of its 95 % interval."""
    x = np.log([cell["tokens"] for cell in cells for _ in cell["ks_per_draw"]])
    y = np.log([value for cell in cells for value in cell["ks_per_draw"]])
    x = x - x.mean()
    slope = float(x @ y / (x @ x))
    left = y - y.mean() - slope * x
    error = math.sqrt(float(left @ left) / (len(y) - 2) / float(x @ x))
    return slope, error * float(stdtrit(len(y) - 2, 0.975))


def claims(cells: list[dict[str, Any]], sizes: tuple[int, ...]) -> tuple[list[Claim], list[dict[str, Any]]]:
    """One claim a row for the fall, one for the earlier distances, and one for the linear model."""
    found, rows = [], []
    for beta, setting in EARLIER:
        row = [cell for cell in cells if (cell["beta"], cell["setting"]) == (beta, setting)]
        name = f"beta {beta:g}, {setting}"
        means = [cell["ks_mean"] for cell in row]
        slope, spread = exponent(row)
        rows.append({"beta": beta, "setting": setting, "exponent": slope, "exponent_95": spread, "ks_mean": means})
        found.append(
            Claim(
                f"{name}: KS falls with n",
                " > ".join(f"{value:.4f}" for value in means) + f", n^({slope:.2f} ± {spread:.2f})",
                "strictly",
                all(a > b for a, b in itertools.pairwise(means)),
            )
        )
        found.append(_against_earlier(name, row, means, EARLIER[beta, setting], "sampling_noise"))
    for n in sizes:
        if n not in SIZES:
            continue
        column = [cell for cell in cells if cell["tokens"] == n]
        mean = float(np.mean([cell["linear_ks_mean"] for cell in column]))
        noise = float(np.mean([cell["linear_noise"] for cell in column]))
        limit = FACTOR * EARLIER_LINEAR[SIZES.index(n)] + noise
        found.append(
            Claim(f"linear model, n = {n}: KS, mean of all rows", f"{mean:.4f}", f"{limit:.4f}", mean <= limit)
        )
    return found, rows


def _against_earlier(
    name: str, row: list[dict[str, Any]], means: list[float], earlier: tuple[float, ...], noise: str
) -> Claim:
    known = [(k, SIZES.index(cell["tokens"])) for k, cell in enumerate(row) if cell["tokens"] in SIZES]
    limits = [FACTOR * earlier[j] + row[k][noise] for k, j in known]
    ratios = [means[k] / earlier[j] for k, j in known]
    held = all(means[k] <= limit for (k, _), limit in zip(known, limits, strict=True))
    return Claim(
        f"{name}: KS against the earlier simulation",
        "ratios " + ", ".join(f"{ratio:.2f}" for ratio in ratios),
        f"{FACTOR:g} + noise: KS at most " + ", ".join(f"{limit:.4f}" for limit in limits),
        held,
    )


def figure(path: Path, cells: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    """Distance against n, both betas, with the earlier distances and the linear model."""
    plt = _common.pyplot()
    betas = sorted({cell["beta"] for cell in cells})
    fig, axes = plt.subplots(1, len(betas), figsize=(7.6, 3.5), sharey=True)
    for axis, beta in zip(axes, betas, strict=True):
        for colour, setting in zip(_common.COLOURS, SETTINGS, strict=False):
            row = [cell for cell in cells if (cell["beta"], cell["setting"]) == (beta, setting)]
            fit = next(r for r in rows if (r["beta"], r["setting"]) == (beta, setting))
            n = [cell["tokens"] for cell in row]
            label = re.sub(r"d_k|\bd\b(?= =)|\bn\b", lambda found: f"${found[0]}$", setting)
            axis.errorbar(
                n,
                [cell["ks_mean"] for cell in row],
                yerr=[2 * (cell["ks_error"] or 0) for cell in row],
                marker="o",
                markersize=4,
                capsize=2,
                color=colour,
                label=label if beta == betas[0] else None,
            )
            axis.annotate(
                f"$n^{{{fit['exponent']:.2f}}}$",
                (n[-1], fit["ks_mean"][-1]),
                xytext=(6, -2),
                textcoords="offset points",
                color=colour,
                fontsize=8,
            )
            earlier = [(m, e) for m, e in zip(SIZES, EARLIER[beta, setting], strict=True) if m in n]
            axis.plot(*zip(*earlier, strict=True), "x", color=colour, markersize=5, markeredgewidth=1, alpha=0.8)
        sizes = sorted({cell["tokens"] for cell in cells})
        linear = [
            np.mean([cell["linear_ks_mean"] for cell in cells if (cell["tokens"], cell["beta"]) == (n, beta)])
            for n in sizes
        ]
        first = beta == betas[0]
        axis.plot(
            sizes, linear, "--s", color="#888888", markersize=3, linewidth=1, label="linear model" if first else None
        )
        axis.plot([], [], "x", color=_common.INK, markersize=5, label="earlier simulation" if first else None)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xticks(sizes, [str(n) for n in sizes])
        axis.minorticks_off()
        axis.set_xlim(sizes[0] * 0.85, sizes[-1] * 1.75)
        axis.set_xlabel("tokens $n$")
        axis.set_title(rf"$\beta = {beta:g}$")
    axes[0].set_ylabel("KS distance from the limit law")
    fig.legend(loc="lower center", bbox_to_anchor=(0.5, -0.13), ncols=3)
    fig.savefig(path)
    plt.close(fig)


def main(argv: list[str] | None = None) -> int:
    parser = _common.arguments("convergence", __doc__ or "", quick="n = 250, 500, 1000 only")
    parser.add_argument("--fresh", action="store_true", help="start anew instead of resuming an interrupted run")
    options = parser.parse_args(argv)
    path = _common.folder(options) / "convergence.json"
    cells = _resume(path, options)
    sizes = QUICK_SIZES if options.quick else SIZES
    wanted = [(beta, setting, n) for n in sizes for beta, setting in EARLIER]  # the largest last
    console = Console(stderr=True)
    with _common.progress(console) as bar:
        task = bar.add_task("cells", total=len(wanted))
        for beta, setting, n in wanted:
            if any((c["beta"], c["setting"], c["tokens"]) == (beta, setting, n) for c in cells):
                bar.advance(task)
                continue
            draws = DRAWS.get(n, 4)
            part = bar.add_task(f"n = {n}, beta {beta:g}, {setting}", total=2 * draws)
            cells.append(
                run_cell(
                    beta, setting, n, draws, options.seed, lambda done, _, part=part: bar.update(part, completed=done)
                )
            )
            bar.remove_task(part)
            bar.advance(task)
            _common.write_json(_partial(path), {"seed": options.seed, "cells": cells})
    order = {(beta, setting, n): k for k, (beta, setting, n) in enumerate(wanted)}
    cells = sorted(
        (c for c in cells if (c["beta"], c["setting"], c["tokens"]) in order),
        key=lambda c: order[c["beta"], c["setting"], c["tokens"]],
    )
    found, rows = claims(cells, sizes)
    figure(path.with_suffix(".png"), cells, rows)
    code = _common.conclude(path, __doc__ or "", options, found, {"rows": rows, "cells": cells})
    _partial(path).unlink(missing_ok=True)
    return code


def _partial(path: Path) -> Path:
    return path.with_name("convergence.partial.json")


def _resume(path: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Cells of an interrupted run with the same seed."""
    partial = _partial(path)
    if options.fresh or not partial.exists():
        return []
    record = json.loads(partial.read_text(encoding="utf-8"))
    return list(record["cells"]) if record["seed"] == options.seed else []


if __name__ == "__main__":
    sys.exit(main())
