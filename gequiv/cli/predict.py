"""``gequiv predict``: one law, as a table, CSV, NPZ or JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from gequiv import _checks
from gequiv._checks import Array
from gequiv._version import __version__
from gequiv.cli import files, report
from gequiv.cli.errors import quiet_pipe
from gequiv.cli.options import Format
from gequiv.errors import CertificationError, ParameterError
from gequiv.plotting.grid import support_grid
from gequiv.simulation.choice import choose_law, expected_outliers
from gequiv.simulation.description import describe, mask_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gequiv.attention import Attention
    from gequiv.laws.base import Law
    from gequiv.simulation.choice import Kind, Wish

ORDERS = range(1, 9)
_POINTS_TABLE = 16
_POINTS_FILE = 500


def resolve_format(form: Format | None, as_json: bool, output: Path | None) -> Format:
    """The form to write, from --format, --json and the suffix of --output.

    Raises
    ------
    ParameterError : --json contradicts --format; or NPZ has no file to go to.
    """
    if as_json:
        if form not in (None, Format.JSON):
            raise ParameterError(f"--json and --format {form} contradict each other; leave one out")
        return Format.JSON
    if form is None:
        suffix = "" if output is None else output.suffix.lower().lstrip(".")
        form = Format(suffix) if suffix in (Format.CSV, Format.NPZ, Format.JSON) else Format.TABLE
    if form is Format.NPZ and output is None:
        raise ParameterError("--format npz needs --output FILE: binary numbers do not go to the terminal")
    return form


def check_files(form: Format, output: Path | None, plot: Path | None) -> None:
    """Refuse files that cannot be written, before any work is done."""
    del form
    if output is not None:
        files.check_writable("--output", output)
    if plot is not None:
        files.check_picture("--plot", plot)


@dataclass(frozen=True)
class Prediction:
    """A law and what is told about it."""

    head: Attention
    kind: Kind
    method: str | None
    """How the limit law was computed; None for the finite-size law."""
    rescaled: bool
    law: Law
    certificate: Any
    distance: float | None
    """Between the limit law and the finite-size law; None without both."""
    refusal: str | None
    """Why there is no finite-size law; None where there is one, or should not be."""
    outliers: tuple[tuple[float, bool, str], ...]
    """Location in the variable of the law, visible, origin."""
    x: Array
    pdf: Array
    cdf: Array
    moments: tuple[float, ...]
    """Infinite for a moment beyond the floats, NaN for one that could not be certified."""

    @property
    def variable(self) -> str:
        """What the law is the law of."""
        from gequiv.laws import SingularValueLaw

        matrix = report.matrix(self.head)
        if self.rescaled:
            matrix += " / √(e^(β²) - 1)"
        return ("" if isinstance(self.law, SingularValueLaw) else "squared ") + f"singular values of {matrix}"

    @property
    def title(self) -> str:
        """Which law of what."""
        return f"{'Limit' if self.kind == 'limit' else 'Finite-size'} law of the {self.variable}"

    def parameters(self) -> dict[str, Any]:
        """What was asked for."""
        head = self.head
        return {
            "tokens": head.tokens,
            "head_dim": head.head_dim,
            "beta": head.beta,
            "keys": head.columns,
            "width": head.width,
            "covariance": None if head.covariance is None else list(head.covariance),
            "mask": mask_text(head),
            "alibi": head.bias,
            "law": self.kind,
            "method": self.method,
            "rescaled": self.rescaled,
            "variable": self.variable,
        }

    def linear_model(self) -> dict[str, float | None]:
        """Coefficient, variances (None beyond the floats) and shares of the equivalent linear model."""
        model = self.head.linear_model()
        finite = model.log_total_variance < np.log(np.finfo(np.float64).max)
        return {
            "coefficient": model.coefficient,
            "noise_variance": model.noise_variance if finite else None,
            "total_variance": model.total_variance if finite else None,
            "log_total_variance": model.log_total_variance,
            "signal_share": model.signal_share,
            "noise_share": model.noise_share,
        }

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "version": __version__,
            "law": self.kind,
            "laws_distance": self.distance,
            "mask": mask_text(self.head),
            "alibi": self.head.bias,
            "parameters": self.parameters(),
            "linear_model": self.linear_model(),
            "support": [list(interval) for interval in self.law.support()],
            "atoms": [list(atom) for atom in self.law.atoms()],
            "outliers": [list(outlier) for outlier in self.outliers],
            "moments": list(self.moments),
            "certificate": None if self.certificate is None else dataclasses.asdict(self.certificate),
            "x": self.x.tolist(),
            "pdf": self.pdf.tolist(),
            "cdf": self.cdf.tolist(),
        }


def make(
    head: Attention, wish: Wish, method: str | None, rescaled: bool, singular_values: bool, points: int
) -> Prediction:
    """Compute the law and evaluate it."""
    choice = choose_law(head, wish, method=method, rescaled=rescaled)
    squares = choice.law
    law = squares.singular_values() if singular_values else squares
    x = support_grid(law, points)
    return Prediction(
        head=head,
        kind=choice.kind,
        method=None if choice.kind != "limit" else method or ("curve" if head.covariance is None else "fixed-point"),
        rescaled=rescaled,
        law=law,
        certificate=getattr(squares, "certificate", None),
        distance=choice.distance,
        refusal=choice.refusal,
        outliers=tuple(
            (math.sqrt(location) if singular_values else location, visible, origin)
            for location, visible, origin in expected_outliers(squares)
        ),
        x=x,
        pdf=np.asarray(law.pdf(x)),
        cdf=np.asarray(law.cdf(x)),
        moments=tuple(_moment(law, order) for order in ORDERS),
    )


def _moment(law: Law, order: int) -> float:
    try:
        return float(law.moment(order))
    except ParameterError:  # the order is in range, so the moment is beyond the floats
        return math.inf
    except CertificationError:  # one number refused, not the law
        return math.nan


def _moment_text(value: float, digits: int) -> str:
    if math.isinf(value):
        return "beyond the floats"
    return "not certified" if math.isnan(value) else f"{value:.{digits}g}"


def run(
    head: Attention,
    *,
    wish: Wish,
    method: str | None,
    rescaled: bool,
    singular_values: bool,
    points: int | None,
    form: Format,
    output: Path | None,
    plot: Path | None,
) -> None:
    """Compute, write, draw."""
    if points is None:
        points = _POINTS_TABLE if form is Format.TABLE else _POINTS_FILE
    _checks.positive_integer("count", points)
    prediction = make(head, wish, method, rescaled, singular_values, points)
    if form is Format.NPZ:
        assert output is not None
        files.write("--output", output, lambda file: write_npz(prediction, file), binary=True)
    elif form is Format.TABLE and output is None:
        report.print_rich(tables(prediction))
    else:
        write_text = {Format.CSV: write_csv, Format.JSON: write_json, Format.TABLE: write_table}[form]
        if output is None:
            with quiet_pipe():
                write_text(prediction, sys.stdout)
        else:
            files.write("--output", output, lambda file: write_text(prediction, file))
    if plot is not None:
        from gequiv.plotting import density_figure, save_figure

        axes = density_figure(prediction.law, title=describe(head), variable="s" if singular_values else "x")
        save_figure(axes, plot)


def write_csv(prediction: Prediction, file: IO[str]) -> None:
    """Columns x, pdf, cdf with 17 significant digits, which give the same floats back; comments say of what."""
    law = prediction.law
    file.write(f"# gequiv {__version__}: {prediction.title[0].lower()}{prediction.title[1:]}\n")
    for name, value in prediction.parameters().items():
        if name != "variable":
            file.write(f"# {name}: {json.dumps(value)}\n")
    file.write(f"# support: {'; '.join(f'{a:.17g} {b:.17g}' for a, b in law.support())}\n")
    file.write(f"# atoms: {'; '.join(f'{a:.17g} {w:.17g}' for a, w in law.atoms()) or 'none'}\n")
    if prediction.distance is not None:
        file.write(f"# distance of finite-size law and limit law: {prediction.distance:.17g}\n")
    for location, visible, origin in prediction.outliers:
        file.write(f"# outlier: {location:.17g} {'visible' if visible else 'inside the bulk'} {origin}\n")
    moments = (_moment_text(value, 17) for value in prediction.moments)
    file.write(f"# moments 1 to {ORDERS[-1]}: {'; '.join(moments)}\n")
    file.write("x,pdf,cdf\n")
    for row in zip(prediction.x, prediction.pdf, prediction.cdf, strict=True):
        file.write(",".join(f"{value:.17g}" for value in row) + "\n")


def write_npz(prediction: Prediction, file: IO[bytes]) -> None:
    """Arrays x, pdf, cdf, support (intervals × 2), atoms (atoms × 2), moments, and the parameters as a JSON text.

    A moment beyond the floats is infinite, one that could not be certified NaN.
    """
    law = prediction.law
    np.savez(
        file,
        x=prediction.x,
        pdf=prediction.pdf,
        cdf=prediction.cdf,
        support=np.asarray(law.support(), dtype=np.float64).reshape(-1, 2),
        atoms=np.asarray(law.atoms(), dtype=np.float64).reshape(-1, 2),
        moments=np.array(prediction.moments),
        parameters=np.array(json.dumps(report.plain(prediction.parameters()), ensure_ascii=False)),
    )


def write_json(prediction: Prediction, file: IO[str]) -> None:
    """One JSON object."""
    file.write(report.json_text(prediction.to_dict()))


def write_table(prediction: Prediction, file: IO[str]) -> None:
    """The tables as plain text."""
    from rich.console import Console

    report.print_rich(tables(prediction), Console(file=file, width=100, highlight=False, color_system=None))


def _other_law(prediction: Prediction) -> tuple[str, str]:
    """What is told of the law that is not shown."""
    other = "limit law" if prediction.kind == "finite-size" else "finite-size law"
    if prediction.distance is not None:
        return f"KS to the {other}", f"{prediction.distance:.4g}"
    if prediction.head.visibility is not None:
        return other, "none: no limit theorem covers a mask or a bias"
    if prediction.refusal is not None:
        return other, f"none: {prediction.refusal}"
    return other, "none for a rescaled law"


def tables(prediction: Prediction) -> list[RenderableType]:
    """Facts, then the density and the distribution function."""
    from rich import box
    from rich.table import Table

    law = prediction.law
    facts = Table(
        box=box.SIMPLE_HEAD,
        show_header=False,
        title=f"{prediction.title}\n{describe(prediction.head)}",
        title_justify="left",
        title_style="bold",
    )
    facts.add_column("fact", no_wrap=True)
    facts.add_column("value", overflow="fold")
    model = prediction.linear_model()
    noise = model["noise_variance"]
    facts.add_row(
        "linear model",
        f"coefficient {report.number(model['coefficient'], 10)}, "
        + (
            f"noise variance {report.number(noise, 10)}"
            if noise is not None
            else f"noise variance beyond the floats, log(e^(β²) - 1) = {report.number(model['log_total_variance'], 10)}"
        ),
    )
    facts.add_row("  shares", f"signal {model['signal_share']:.4g}, noise {model['noise_share']:.4g}")
    facts.add_row("support", "\n".join(f"[{low:.15g}, {high:.15g}]".replace("[", r"\[") for low, high in law.support()))
    facts.add_row("atoms", "\n".join(f"{weight:.15g} at {place:g}" for place, weight in law.atoms()) or "none")
    facts.add_row(*_other_law(prediction))
    for location, visible, origin in prediction.outliers:
        facts.add_row(f"outlier: {origin}", f"{location:.10g}" if visible else "inside the bulk, not visible")
    facts.add_section()
    for order, moment in zip(ORDERS, prediction.moments, strict=True):
        facts.add_row(f"moment {order}", _moment_text(moment, 15))
    facts.add_section()
    if prediction.certificate is not None:
        for name, value in dataclasses.asdict(prediction.certificate).items():
            facts.add_row(f"certificate: {name.replace('_', ' ')}", f"{value:.3g}")

    density = Table(box=box.SIMPLE_HEAD)
    for heading in ("x", "density", "distribution function"):
        density.add_column(heading, justify="right")
    for x, pdf, cdf in zip(prediction.x, prediction.pdf, prediction.cdf, strict=True):
        density.add_row(f"{x:.10g}", f"{pdf:.10g}", f"{cdf:.10g}")
    return [facts, density]
