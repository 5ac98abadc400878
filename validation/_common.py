"""What the experiments share: their command line, claims with limits, and the files that they leave behind."""

from __future__ import annotations

import argparse
import json
import math
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import gequiv
from gequiv.attention import Attention
from gequiv.laws.base import Law

RESULTS = Path(__file__).parent / "results"
INK, LAW, BELIEVED, SOFT = "#222222", "#0b6e6e", "#d1495b", "#b8c4cc"
BINS, POINTS = 48, 300
COLOURS = ("#0b6e6e", "#d17a22", "#6a4c93", "#3a7ca5", "#8a8d3b")


@dataclass(frozen=True)
class Claim:
    """A statement with its number and its limit, and whether it held."""

    statement: str
    measured: str
    limit: str
    held: bool


def arguments(name: str, text: str, *, quick: str) -> argparse.ArgumentParser:
    """The options that every experiment has."""
    parser = argparse.ArgumentParser(
        prog=f"python -m validation.{name}", description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=f"{quick}; results go to results/quick/")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random numbers (default 0)")
    parser.add_argument("--output", type=Path, default=None, help="folder for the JSON and the PNG")
    return parser


def resumable(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the options of an experiment that `run_cells` runs."""
    parser.add_argument("--fresh", action="store_true", help="start anew instead of resuming an interrupted run")
    parser.add_argument(
        "--redo",
        metavar="TEXT",
        help="keep the finished results but for the cells whose name contains TEXT (none: only claims and figure anew)",
    )
    return parser


def run_cells(
    path: Path, options: argparse.Namespace, wanted: Mapping[str, Callable[[], dict[str, Any]]]
) -> list[dict[str, Any]]:
    """The result of every cell, in the order given, each under its name in "cell".

    Cells are kept in NAME.partial.json as they are done, and an interrupted run with the same seed resumes there;
    `discard_partial` removes the file. A cell must not depend on the others, nor on their order.
    """
    partial = _partial(path)
    source = partial if partial.exists() or not options.redo else path
    done: dict[str, dict[str, Any]] = {}
    if source.exists() and not options.fresh and (source is partial or options.redo):
        record = json.loads(source.read_text(encoding="utf-8"))
        if record["seed"] == options.seed:
            done = {cell["cell"]: cell for cell in record["cells"]}
            if source is path:
                done = {name: cell for name, cell in done.items() if options.redo not in name}
    with progress(Console(stderr=True)) as bar:
        task = bar.add_task("cells", total=len(wanted))
        for name, work in wanted.items():
            if name not in done:
                bar.update(task, description=name)
                done[name] = {"cell": name, **work()}
                write_json(partial, {"seed": options.seed, "cells": list(done.values())})
            bar.advance(task)
    return [done[name] for name in wanted]


def discard_partial(path: Path) -> None:
    """Remove what `run_cells` kept, once the results are written."""
    _partial(path).unlink(missing_ok=True)


def _partial(path: Path) -> Path:
    return path.with_name(f"{path.stem}.partial.json")


def log_density(spectra: list[np.ndarray], low: float, high: float, **laws: Law) -> dict[str, list[float]]:
    """Densities in log10 x, ready for JSON: of the draws on bins ("edges"), of laws on a "grid"; see `draw_density`."""
    edges, grid = np.geomspace(low, high, BINS + 1), np.geomspace(low, high, POINTS)
    pooled = np.concatenate(spectra)
    found = {"edges": edges, "draws": np.histogram(pooled, edges)[0] / (pooled.size * np.diff(np.log10(edges)))}
    found["grid"] = grid
    for name, law in laws.items():
        found[name] = law.pdf(grid) * grid * math.log(10)
    return {name: [float(value) for value in values] for name, values in found.items()}


def draw_density(axis: Any, shown: dict[str, list[float]], **styles: dict[str, Any]) -> None:
    """What `log_density` found: filled bins, and a line for each law that has a style."""
    axis.stairs(shown["draws"], shown["edges"], fill=True, color=SOFT)
    for name, style in styles.items():
        axis.plot(shown["grid"], shown[name], **style)
    axis.set_xscale("log")
    axis.set_xlim(shown["edges"][0], shown["edges"][-1])
    axis.set_ylim(0, 1.3 * max(max(shown["draws"]), *(max(shown[name]) for name in styles)))
    axis.set_yticks([])


def finite_law(head: Attention) -> tuple[Any, int | None]:
    """The finite-size law of a head, and None; if it is refused, that with more norm nodes, and their number."""
    try:
        return head.finite_law(), None
    except gequiv.CertificationError:
        for nodes in (5, 6, 7):
            try:
                return head.finite_law(norm_nodes=nodes), nodes
            except gequiv.CertificationError:
                continue
        raise


def helped_claim(cells: list[dict[str, Any]], key: str = "norm_nodes_forced") -> Claim:
    """Every law was certified at the number of norm nodes that it chooses itself."""
    helped = [cell["cell"] for cell in cells if cell[key] is not None]
    return Claim(
        f"all {len(cells)} finite-size laws certified at their own number of norm nodes",
        "all" if not helped else "refused: " + "; ".join(helped),
        "all",
        not helped,
    )


def folder(options: argparse.Namespace) -> Path:
    """Where the results go."""
    path: Path = options.output or (RESULTS / "quick" if options.quick else RESULTS)
    path.mkdir(parents=True, exist_ok=True)
    return path


def progress(console: Console) -> Progress:
    """A progress bar on standard error."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )


def environment() -> dict[str, str]:
    """Versions that the numbers were obtained with."""
    return {
        "gequiv": gequiv.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
    }


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write all or nothing: an interrupted run leaves the previous file."""
    partial = path.with_suffix(".tmp")
    partial.write_text(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    partial.replace(path)


def conclude(path: Path, text: str, options: argparse.Namespace, claims: list[Claim], data: dict[str, Any]) -> int:
    """Write the JSON, print the claims as a table, and give the exit code: 0 if all held, 1 otherwise."""
    held = all(claim.held for claim in claims)
    record = {
        "claim": " ".join(text.split()),
        "held": held,
        "quick": options.quick,
        "seed": options.seed,
        "claims": [asdict(claim) for claim in claims],
        "environment": environment(),
        **data,
    }
    write_json(path, record)
    table = Table(title=path.stem, title_justify="left")
    for column in ("claim", "measured", "limit", ""):
        table.add_column(column)
    for claim in claims:
        verdict = "[green]held[/green]" if claim.held else "[bold red]FAILED[/bold red]"
        table.add_row(claim.statement, claim.measured, claim.limit, verdict)
    console = Console()
    if not console.is_terminal:
        console = Console(width=130)
    console.print(table)
    console.print("All claims held." if held else "A claim failed.", f"Numbers: {path}", soft_wrap=True)
    return 0 if held else 1


def pyplot() -> Any:
    """matplotlib.pyplot without a display, in the experiments' style."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    mpl.rcParams.update(
        {
            "figure.dpi": 110,
            "savefig.dpi": 160,
            "savefig.bbox": "tight",
            "font.size": 9,
            "axes.titlesize": 10,
            "axes.labelsize": 9,
            "axes.edgecolor": INK,
            "axes.linewidth": 0.7,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "xtick.direction": "out",
            "ytick.direction": "out",
            "xtick.labelsize": 8,
            "ytick.labelsize": 8,
            "legend.frameon": False,
            "legend.fontsize": 8,
            "lines.linewidth": 1.6,
            "mathtext.fontset": "cm",
        }
    )
    return pyplot
