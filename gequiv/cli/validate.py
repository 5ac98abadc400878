"""``gequiv validate``: draw, compare, and say in words whether the law holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gequiv._version import __version__
from gequiv.cli import files, report
from gequiv.cli.errors import Stopped
from gequiv.cli.progress import progress_bar
from gequiv.errors import ParameterError
from gequiv.simulation.description import describe, mask_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from gequiv.attention import Attention
    from gequiv.laws.base import Law
    from gequiv.simulation import Comparison, Validation
    from gequiv.simulation.choice import Wish

DEFAULT_PLOT = Path("gequiv-validate.png")

_NAMES = {"finite-size": "finite-size law", "limit": "limit law", "given": "law"}
_COLOURS = {"held": "green", "failed": "red", "undecided": "yellow"}


def resolve_plot(plot: Path | None, *, no_plot: bool, as_json: bool) -> Path | None:
    """The file to draw into, checked; None for no figure.

    Raises
    ------
    ParameterError : both a file and --no-plot were given, or the suffix is not that of a figure.
    InputFileError : the file cannot be written.
    """
    if no_plot:
        if plot is not None:
            raise ParameterError("--plot and --no-plot contradict each other; leave one out")
        return None
    if plot is None:
        if as_json:
            return None
        files.check_picture("--plot (or --no-plot)", DEFAULT_PLOT)
        return DEFAULT_PLOT
    files.check_picture("--plot", plot)
    return plot


def run(
    head: Attention,
    *,
    wish: Wish,
    method: str | None,
    samples: int,
    seed: int,
    tolerance: float,
    plot: Path | None,
    as_json: bool,
) -> int:
    """Validate, report, draw; the exit code.

    Raises
    ------
    Stopped : after the report, if Ctrl-C cut the draws short.
    """
    from gequiv.simulation import ValidationInterrupted, choose_law, validate

    law = choose_law(head, wish, method=method)
    interrupted = False
    try:
        with progress_bar(f"drawing {samples} attention matrices and their linear models") as told:
            result = validate(head, samples, seed, tolerance=tolerance, law=law, progress=told)
    except ValidationInterrupted as interrupt:
        result, interrupted = interrupt.partial, True
    if plot is not None:
        _draw(result, plot, law.limit if law.kind == "finite-size" else None)
    if as_json:
        where = None if plot is None else str(plot)
        report.print_json(
            {
                **result.to_dict(),
                "mask": mask_text(head),
                "alibi": head.bias,
                "seed": seed,
                "plot": where,
                "version": __version__,
            }
        )
    else:
        report.print_rich([table(result, seed), verdict(result), *([f"Figure: {plot}"] if plot else [])])
    if interrupted:
        raise Stopped(f"interrupted after {result.comparison.draws} of {samples} draws; the report is of these")
    return 0 if result.passed else 1


def table(result: Validation, seed: int) -> Table:
    """All numbers, in one table."""
    from rich import box
    from rich.table import Table

    head, draws = result.attention, result.comparison.draws
    shape = f"{draws} draw{'s' * (draws != 1)} of {head.tokens} × {head.columns}, seed {seed}"
    grid = Table(
        box=box.SIMPLE_HEAD,
        title=f"Squared singular values of {report.matrix(head)}\n{describe(head)}; {shape}",
        title_justify="left",
        title_style="bold",
    )
    grid.add_column("Kolmogorov–Smirnov distance", overflow="fold")
    for heading in ("measured", "± error", "law", "z"):
        grid.add_column(heading, justify="right", overflow="fold")

    number = report.number

    def distance(name: str, found: Comparison) -> None:
        grid.add_row(name, number(found.ks_mean), number(found.ks_error, 2))

    comparison, outliers, law = result.comparison, result.outliers, result.law
    distance(f"attention to the {_NAMES[result.law_kind]}", comparison)
    grid.add_row("  all draws pooled", number(comparison.ks))
    grid.add_row("  sampling noise", number(result.sampling_noise))
    grid.add_row("  finite-size bias", number(result.finite_size_bias))
    grid.add_row("  solver error, at most", number(result.solver_error, 2))
    for name, other in (("limit law", result.limit), ("finite-size law", result.finite)):
        if other is not None and other is not comparison:
            distance(f"attention to the {name}", other)
    if result.law_distance is not None:
        grid.add_row("finite-size law to the limit law", number(result.law_distance))
    distance(f"linear model to the {'limit' if head.visibility is None else 'finite-size'} law", result.linear)
    distance("attention to Marchenko–Pastur", result.marchenko_pastur)
    grid.add_section()
    grid.add_row("Wasserstein-1 distance", number(comparison.wasserstein_mean), number(comparison.wasserstein_error, 2))
    for moment in comparison.moments:
        grid.add_row(
            f"moment {moment.order}",
            number(moment.sample, 6),
            number(moment.error, 2),
            number(moment.law, 6),
            "–" if moment.z is None else f"{moment.z:+.1f}",
        )
    grid.add_row(
        "largest value; right edge",
        number(outliers.largest, 6),
        number(outliers.largest_error, 2),
        number(outliers.edge, 6),
    )
    grid.add_row("outliers in a draw", number(outliers.count))
    for location, visible, origin in result.expected_outliers:
        grid.add_row(f"expected: {origin}", "" if visible else "in the bulk", "", number(location, 6))
    grid.add_section()
    for k, (low, high) in enumerate(law.support()):
        grid.add_row(f"interval {k + 1}, left edge", "", "", number(low, 6))
        grid.add_row(f"interval {k + 1}, right edge", "", "", number(high, 6))
    for location, weight in law.atoms():
        grid.add_row(f"atom at {location:g}, weight", "", "", number(weight, 6))
    grid.add_row("mass", "", "", number(result.mass, 8))
    return grid


def verdict(result: Validation) -> RenderableType:
    """The verdict in words."""
    from rich.text import Text

    return Text(result.verdict, style=f"bold {_COLOURS[result.outcome]}")


def _draw(result: Validation, path: Path, limit: Law | None) -> None:
    """The figure; `limit` is drawn beside the law."""
    from gequiv.plotting import save_figure, validation_figure
    from gequiv.simulation.experiment import marchenko_pastur

    head = result.attention
    draws = result.comparison.draws
    number: Any = report.number
    above, _ = validation_figure(
        result.law,
        list(result.spectra),
        reference=marchenko_pastur(head),
        theorem=limit,
        title=describe(head),
        draws_label=f"{draws} attention matri{'ces' if draws > 1 else 'x'}, {head.tokens} × {head.columns}",
        law_label=f"{_NAMES[result.law_kind]} (KS {number(result.comparison.ks_mean, 2)})",
        theorem_label="" if result.limit is None else f"limit law (KS {number(result.limit.ks_mean, 2)})",
        reference_label=f"Marchenko–Pastur (KS {number(result.marchenko_pastur.ks_mean, 2)})",
    )
    save_figure(above, path)
