"""The right edge of the limit law lies strictly above Marchenko-Pastur's, at every inverse temperature.

Claims. For self-attention with independent Q and K and d_k/n in {1/4, 1/2, 1, 2, 4}:
- the right edge of the limit law exceeds 4(exp(beta^2) - 1), the edge of Marchenko-Pastur of the same variance, for all
  beta in [0.05, 2.5], by more than a thousand times the rounding of either;
- as beta tends to 0 and d_k = n the ratio of the two tends to 27/16, the edge 27/4 of the Fuss-Catalan law over 4;
- simulated, d_k = n: the largest eigenvalue of the linear model, mean over draws, is where the edge and the Tracy-Widom
  law (orthogonal class, mean -1.2065) put it, within 3 standard errors and 1 % of the edge for what is left at finite
  size;
- simulated attention: the bulk's end lies above Marchenko-Pastur's edge by more than 3 standard errors, for beta up
  to 1.

How outliers are removed from attention: the matrix is centred both ways, (1 - 11'/n) A (1 - 11'/n), which takes out the
common direction of the columns' norms, and the three largest values are dropped, whatever they are; the fourth counts
as the bulk's end. It is drawn beside the law's own quantile for the fourth largest of n, 1 - 3.5/n.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from gequiv.attention import Attention, ensemble
from gequiv.laws.base import Law
from gequiv.simulation.comparison import standard_error
from validation import _common
from validation._common import Claim

RATIOS = (0.25, 0.5, 1.0, 2.0, 4.0)
SIMULATED = (0.25, 0.5, 0.75, 1.0)
TRACY_WIDOM_MEAN = -1.2065335745820
DROPPED = 3
MARGIN = 1e-12


def believed_edge(beta: float) -> float:
    """4(e^{β²} - 1)."""
    return 4 * math.expm1(beta**2)


def edge_over_believed(beta: float, ratio: float) -> float:
    """Right edge of the limit law over Marchenko–Pastur's; the law depends on the ratio d_k/n alone."""
    tokens = 1000
    law = Attention(tokens, round(ratio * tokens), beta).limit_law()
    return law.support()[-1][1] / believed_edge(beta)


def tracy_widom_top(law: Law, n: int) -> float:
    """Mean of the largest of n eigenvalues: edge + mean/(κ n^{2/3}), the density being κ^{3/2} √(edge - x)/π."""
    low, edge = law.support()[-1]
    step = 1e-7 * (edge - low)
    kappa = float((math.pi * law.pdf(edge - step) / math.sqrt(step)) ** (2 / 3))
    return edge + TRACY_WIDOM_MEAN / (kappa * math.cbrt(n * n))


def simulate(beta: float, n: int, draws: int, rng: np.random.Generator, tick: Any) -> dict[str, Any]:
    """Top of the linear model and end of attention's bulk, with errors."""
    head = Attention(n, n, beta)
    law = head.limit_law()
    linear, bulk, first = [], [], []
    for child in rng.spawn(draws):
        linear.append(float(ensemble.squared_singular_values(ensemble.draw_linear_model(head, child))[-1]))
        attention = ensemble.centred(ensemble.draw_attention(head, child))
        attention -= attention.mean(axis=0)
        values = ensemble.squared_singular_values(attention)
        bulk.append(float(values[-1 - DROPPED]))
        first.append(float(values[-1]))
        tick()
    return {
        "beta": beta,
        "tokens": n,
        "draws": draws,
        "law_edge": law.support()[-1][1],
        "marchenko_pastur_edge": believed_edge(beta),
        "predicted_largest": tracy_widom_top(law, n),
        "predicted_fourth": float(law.ppf(1 - (DROPPED + 0.5) / n)),
        "linear_largest": float(np.mean(linear)),
        "linear_largest_error": standard_error(tuple(linear)),
        "attention_fourth": float(np.mean(bulk)),
        "attention_fourth_error": standard_error(tuple(bulk)),
        "attention_largest": float(np.mean(first)),
    }


def figure(path: Path, betas: np.ndarray, curves: dict[float, list[float]], points: list[dict[str, Any]]) -> None:
    """Edges over Marchenko–Pastur's, and the simulated ends of the bulk."""
    plt = _common.pyplot()
    fig, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.3))
    fig.subplots_adjust(wspace=0.28)
    names = {0.25: "1/4", 0.5: "1/2", 1.0: "1", 2.0: "2", 4.0: "4"}
    for colour, ratio in zip(_common.COLOURS, sorted(RATIOS), strict=True):
        left.plot(betas, np.array(curves[ratio]) - 1, color=colour, label=names[ratio])
    left.legend(title="$d_k/n$", loc="lower left")
    left.set_title("right edge of the limit law")
    left.set_yscale("log")
    left.set_xlim(0, betas[-1])
    left.set_ylabel("excess over Marchenko–Pastur's, relative")

    beta = np.array([p["beta"] for p in points])
    scale = np.array([p["marchenko_pastur_edge"] for p in points])

    def relative(name: str) -> np.ndarray:
        values: np.ndarray = np.array([p[name] for p in points]) / scale
        return values

    window = betas <= 1.15
    right.plot(betas[window], np.array(curves[1.0])[window], color=_common.COLOURS[2], label="edge of the limit law")
    right.plot(
        beta, relative("predicted_largest"), ":", color=_common.INK, linewidth=1.1, label="edge with Tracy–Widom shift"
    )
    right.errorbar(
        beta,
        relative("linear_largest"),
        yerr=2 * relative("linear_largest_error"),
        fmt="s",
        color=_common.INK,
        markersize=4,
        capsize=3,
        linewidth=1,
        label="linear model, largest",
    )
    right.plot(
        beta, relative("predicted_fourth"), ":", color=_common.COLOURS[1], linewidth=1.1, label="law, fourth of $n$"
    )
    right.errorbar(
        beta,
        relative("attention_fourth"),
        yerr=2 * relative("attention_fourth_error"),
        fmt="o",
        color=_common.COLOURS[1],
        markersize=4,
        capsize=3,
        linewidth=1,
        label="attention, fourth largest",
    )
    right.set_title(f"simulated at $n = d_k = {points[0]['tokens']}$, {points[0]['draws']} draws")
    right.set_xlim(0, 1.15)
    right.set_ylim(0.9, 1.75)
    right.axhline(1, color=_common.BELIEVED, linestyle="--", linewidth=1.2, label="Marchenko–Pastur's edge")
    right.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    right.set_ylabel(r"eigenvalue / $4(e^{\beta^2}-1)$")
    for axis in (left, right):
        axis.set_xlabel(r"inverse temperature $\beta$")
    fig.savefig(path)
    plt.close(fig)


def main(argv: list[str] | None = None) -> int:
    parser = _common.arguments("edge", __doc__ or "", quick="15 values of beta; n = 300, 4 draws")
    options = parser.parse_args(argv)
    betas = np.linspace(0.05, 2.5, 15 if options.quick else 50)
    n, draws = (300, 4) if options.quick else (1000, 8)
    with _common.progress(Console(stderr=True)) as bar:
        task = bar.add_task("laws", total=len(betas) * len(RATIOS))
        curves: dict[float, list[float]] = {}
        for ratio in RATIOS:
            curves[ratio] = []
            for beta in betas:
                curves[ratio].append(edge_over_believed(float(beta), ratio))
                bar.advance(task)
        task = bar.add_task("draws", total=draws * len(SIMULATED))
        streams = np.random.default_rng(options.seed).spawn(len(SIMULATED))
        points = [
            simulate(beta, n, draws, stream, lambda: bar.advance(task))
            for beta, stream in zip(SIMULATED, streams, strict=True)
        ]

    smallest, ratio, beta = min(
        (value - 1, ratio, float(beta)) for ratio in RATIOS for beta, value in zip(betas, curves[ratio], strict=True)
    )
    claims = [
        Claim(
            f"edge above 4(e^(beta^2) - 1) at all {len(betas) * len(RATIOS)} parameters",
            f"least excess {smallest:.2e} (d_k/n = {ratio:g}, beta = {beta:.2f})",
            f"above {1000 * MARGIN:g}",
            smallest > 1000 * MARGIN,
        )
    ]
    ratio_at_zero = edge_over_believed(1e-3, 1.0)
    claims.append(
        Claim(
            "d_k = n, beta = 0.001: edge over Marchenko-Pastur's",
            f"{ratio_at_zero:.8f}",
            "27/16 within 1e-5",
            abs(ratio_at_zero - 27 / 16) < 1e-5,
        )
    )
    for point in points:
        off = point["linear_largest"] - point["predicted_largest"]
        allowed = 3 * point["linear_largest_error"] + 0.01 * point["law_edge"]
        claims.append(
            Claim(
                f"beta = {point['beta']:g}: largest of the linear model less edge and Tracy-Widom",
                f"{off:+.4f} ± {point['linear_largest_error']:.4f}",
                f"{allowed:.4f}",
                abs(off) <= allowed,
            )
        )
        above = (point["attention_fourth"] - point["marchenko_pastur_edge"]) / point["attention_fourth_error"]
        claims.append(
            Claim(
                f"beta = {point['beta']:g}: attention's bulk above Marchenko-Pastur's edge",
                f"{above:.1f} standard errors",
                "above 3",
                above > 3,
            )
        )
    path = _common.folder(options) / "edge.json"
    figure(path.with_suffix(".png"), betas, curves, points)
    data = {
        "beta": [float(b) for b in betas],
        "edge_over_marchenko_pastur": {f"{ratio:g}": values for ratio, values in curves.items()},
        "simulated": points,
    }
    return _common.conclude(path, __doc__ or "", options, claims, data)


if __name__ == "__main__":
    sys.exit(main())
