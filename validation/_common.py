"""What the experiments share: their command line, claims with limits, and the files that they leave behind."""

from __future__ import annotations

import argparse
import json
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import gequiv

RESULTS = Path(__file__).parent / "results"
INK, LAW, BELIEVED, SOFT = "#222222", "#0b6e6e", "#d1495b", "#b8c4cc"
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
