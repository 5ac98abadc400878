"""The threshold of linearisation drawn from the tables of the campaigns threshold and threshold_large.

    gequiv campaign run validation/threshold.toml --jobs 2 --out runs/threshold && gequiv campaign report runs/threshold
    gequiv campaign run validation/threshold_large.toml --out runs/large && gequiv campaign report runs/large
    python -m validation.threshold_figure runs/threshold runs/large

Left and middle: participation of rows and of their squares over gamma = beta^2/log n; dots are drawn matrices, thin
lines independent log-normal entries of the same number (`gequiv.attention.freezing`), the thick line their limit, which
nothing comes near at these n. Right: KS distances of spectra from the limit law and from Marchenko-Pastur.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np

from gequiv.attention.freezing import participation, participation_limit, threshold
from validation import _common

FINE = np.linspace(0.04, 2.6, 33)
PANELS = (
    ("participation", 1, r"$\sum_j A_{ij}^2$"),
    ("energy_participation", 2, r"$\sum_j A_{ij}^4/(\sum_j A_{ij}^2)^2$"),
)
SHADES = ("#9cc9c9", "#5fa8a8", "#0b6e6e", "#3a7ca5", "#6a4c93", "#d17a22", "#d1495b")


def table(folders: list[Path], name: str) -> list[dict[str, str]]:
    """Rows of a table of all campaigns that have γ."""
    rows: list[dict[str, str]] = []
    for folder in folders:
        with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            rows += [row for row in csv.DictReader(file) if row["gamma"]]
    return rows


def rows_panel(axis: Any, rows: list[dict[str, str]], statistic: str, power: int, label: str) -> None:
    """One statistic of rows over γ, a colour for each n."""
    found = [row for row in rows if row["statistic"] == statistic]
    for colour, n in zip(SHADES, sorted({int(row["tokens"]) for row in found}), strict=False):
        mine = [row for row in found if int(row["tokens"]) == n]
        gamma, value = (np.array([float(row[key]) for row in mine]) for key in ("gamma", "measured"))
        axis.plot(gamma, value, "o", color=colour, markersize=3.5, label=f"$n = {n}$")
        line = [participation(n, float(np.sqrt(g * np.log(n))), power) for g in FINE]
        axis.plot(FINE, line, color=colour, linewidth=1)
    finest = np.linspace(FINE[0], FINE[-1], 1000)
    axis.plot(finest, [participation_limit(float(g), power) for g in finest], color=_common.INK, linewidth=2.2)
    axis.axvline(threshold(power), color=_common.INK, linewidth=0.7, linestyle=":")
    axis.set_title(label)
    axis.set_ylim(0, None)


def figure(path: Path, folders: list[Path]) -> None:
    """Three panels into a PNG."""
    plt = _common.pyplot()
    fig, axes = plt.subplots(1, 3, figsize=(10.5, 3.4))
    rows = table(folders, "rows")
    for axis, (statistic, power, label) in zip(axes, PANELS, strict=False):
        rows_panel(axis, rows, statistic, power, label)
    axes[1].plot([], [], color=_common.INK, linewidth=2.2, label=r"$n \to \infty$")
    models = [row for row in table(folders, "models") if row["ks"]]
    for colour, n in zip(SHADES, sorted({int(row["tokens"]) for row in rows}), strict=False):
        for law, style in (("limit", "-o"), ("marchenko-pastur", "--s")):
            mine = sorted(
                (float(row["gamma"]), float(row["ks"]))
                for row in models
                if int(row["tokens"]) == n and row["law"] == law and row["group"] != "spectrum"
            )
            if mine:
                axes[2].plot(*zip(*mine, strict=True), style, color=colour, markersize=3, linewidth=1)
    axes[2].axvline(threshold(2), color=_common.INK, linewidth=0.7, linestyle=":")
    axes[2].plot([], [], "-o", color=_common.INK, markersize=3, linewidth=1, label="limit law")
    axes[2].plot([], [], "--s", color=_common.INK, markersize=3, linewidth=1, label="Marchenko–Pastur")
    axes[2].set_yscale("log")
    axes[2].set_title("KS distance of spectra")
    axes[2].legend(loc="lower right")
    axes[1].legend(loc="upper left", fontsize=7)
    for axis in axes:
        axis.set_xlabel(r"$\gamma = \beta^2/\log n$")
    fig.tight_layout()
    fig.savefig(path)
    plt.close(fig)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m validation.threshold_figure",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folders", nargs="+", type=Path, help="folders of campaigns with a report")
    parser.add_argument("--output", type=Path, default=_common.RESULTS / "threshold.png", help="the PNG")
    options = parser.parse_args(argv)
    figure(options.output, options.folders)
    return 0


if __name__ == "__main__":
    sys.exit(main())
