"""``gequiv temperature``: the β with a wanted property, and what a schedule of β does along the context length."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gequiv.cli.options import Json, Keys, Mask
from gequiv.errors import ParameterError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gequiv.attention.temperature import ContextPoint, Temperature

_PROPERTY = "The wanted property (one of them)"
_SCHEDULE = "Along the context length"
_DOUBLINGS = range(-3, 4)
_OPTIONS = {
    "effective_rank": "--effective-rank",
    "entropy": "--entropy",
    "lengths": "--lengths",
    "linear": "--linear",
    "normalised_entropy": "--normalised-entropy",
    "perplexity": "--perplexity",
    "reference": "--reference",
    "schedule": "--schedule",
    "schedules": "--schedule",
    "spectral_gap": "--spectral-gap",
}


def temperature(
    tokens: Annotated[int, typer.Option(metavar="N", help="Context length: number of queries.")] = 4096,
    head_dim: Annotated[int, typer.Option(metavar="N", help="Head width: columns of Q and K.")] = 128,
    keys: Keys = None,
    mask: Mask = None,
    entropy: Annotated[
        float | None,
        typer.Option(metavar="X", rich_help_panel=_PROPERTY, help="Mean entropy of the rows of A, in nats."),
    ] = None,
    normalised_entropy: Annotated[
        float | None,
        typer.Option(metavar="X", rich_help_panel=_PROPERTY, help="The same over its maximum, between 0 and 1."),
    ] = None,
    perplexity: Annotated[
        float | None,
        typer.Option(metavar="X", rich_help_panel=_PROPERTY, help="e to the entropy: keys that a row attends to."),
    ] = None,
    effective_rank: Annotated[
        float | None,
        typer.Option(metavar="X", rich_help_panel=_PROPERTY, help="Effective rank of A (Roy, Vetterli 2007)."),
    ] = None,
    spectral_gap: Annotated[
        float | None,
        typer.Option(metavar="X", rich_help_panel=_PROPERTY, help="1 - s₂/s₁ of A, between 0 and 1."),
    ] = None,
    linear: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            rich_help_panel=_PROPERTY,
            help="Stay in the linear regime: the few largest entries of a row carry at most this share of its energy. "
            "0.05 is sensible.",
        ),
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            show_default="1, or what the wanted property asks for",
            rich_help_panel=_SCHEDULE,
            help="β at the reference length.",
        ),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            show_default="constant,sqrt-log,ssmax,yarn with --plot",
            rich_help_panel=_SCHEDULE,
            help="Schedules of β, separated by commas: constant, sqrt-log, ssmax, qwen, swan or yarn.",
        ),
    ] = None,
    reference: Annotated[
        int | None,
        typer.Option(
            metavar="N", show_default="--tokens", rich_help_panel=_SCHEDULE, help="Training length, at which β is β."
        ),
    ] = None,
    lengths: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            show_default="an eighth of the reference length to eight times it",
            rich_help_panel=_SCHEDULE,
            help="Context lengths, separated by commas.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=_SCHEDULE,
            help="Draw how spectrum, entropy and effective rank move with the length into a .png, .pdf or .svg file.",
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Choose the inverse temperature β: by a wanted property, by a schedule of the context length, or both.

    β multiplies the usual scale 1/√head-dim. With a property, the β that has
    it is printed; with --schedule or --plot, what is predicted at several
    lengths if β is that (or --beta) at the reference length. Entropies are
    exact for random heads; the spectrum is that of the finite-size law, and is
    predicted without a mask.

    Examples:

    [cyan]gequiv temperature --tokens 4096 --head-dim 128 --normalised-entropy 0.9
    gequiv temperature --tokens 8192 --head-dim 64 --mask causal --linear 0.05
    gequiv temperature --schedule ssmax,yarn --reference 4096 --beta 1 --lengths 1024,8192,32768
    gequiv temperature --spectral-gap 0.9 --plot temperature.png[/cyan]
    """
    wishes = {
        "entropy": entropy,
        "normalised_entropy": normalised_entropy,
        "perplexity": perplexity,
        "effective_rank": effective_rank,
        "spectral_gap": spectral_gap,
        "linear": linear,
    }
    try:
        _run(tokens, head_dim, keys, mask, wishes, beta, schedule, reference, lengths, plot, json_)
    except ParameterError as error:
        raise ParameterError(_in_terms_of_options(str(error))) from error


def _in_terms_of_options(message: str) -> str:
    """Names of options for those of parameters, in messages of this command alone."""
    word, _, rest = message.partition(" ")
    if message.startswith("exactly one of"):
        for name in sorted(_OPTIONS, key=len, reverse=True):
            message = message.replace(f" {name}", f" {_OPTIONS[name]}")
        return message
    option = _OPTIONS.get(word)
    return f"{option} {rest}" if option else message


def _run(
    tokens: int,
    head_dim: int,
    keys: int | None,
    mask: str | None,
    wishes: dict[str, float | None],
    beta: float | None,
    schedule: str | None,
    reference: int | None,
    lengths: str | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    from gequiv.attention.temperature import context_sweep
    from gequiv.attention.temperature import temperature as find
    from gequiv.cli import files, report
    from gequiv.cli.progress import spinner

    if plot is not None:
        files.check_picture("--plot", plot)
    wished = any(value is not None for value in wishes.values())
    swept = schedule is not None or plot is not None
    if not swept and (reference is not None or lengths is not None or beta is not None):
        raise ParameterError("--beta, --reference and --lengths belong to --schedule or --plot; give one of these")
    if wished and beta is not None:
        raise ParameterError("--beta contradicts a wanted property, which determines β; leave one out")
    if swept and (mask not in (None, "none") or keys is not None):
        raise ParameterError(
            "--schedule and --plot are about self-attention without a mask; leave out --mask and --keys"
        )
    found: Temperature | None = None
    predicted: dict[str, float | None] = {}
    if wished or not swept:
        with spinner("searching for β"):
            found = find(tokens, head_dim, keys=keys, mask=mask, **wishes)
            predicted = found.predicted()
    sweeps: dict[str, list[ContextPoint]] = {}
    if swept:
        start = tokens if reference is None else reference
        sizes = _lengths(lengths, start)
        at = found.beta if found is not None else 1.0 if beta is None else beta
        if plot is not None and len(sizes) < 2:
            raise ParameterError(f"--lengths must be at least two with --plot; got {lengths!r}")
        names = ["constant", "sqrt-log", "ssmax", "yarn"] if schedule is None else _names(schedule)
        with spinner("predicting spectra"):
            sweeps = {name: context_sweep(head_dim, sizes, name, beta=at, reference=start) for name in names}
            if plot is not None:
                _draw(plot, head_dim, sizes, names, at, start)
    if as_json:
        report.print_json(_as_dict(found, predicted, sweeps))
        return
    tables: list[RenderableType] = []
    if found is not None:
        tables.append(_found_table(found, predicted))
    tables += [_sweep_table(name, sweep, head_dim) for name, sweep in sweeps.items()]
    report.print_rich(tables)


def _names(text: str) -> list[str]:
    from gequiv.attention.temperature import SCHEDULES

    names = list(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in names:
        if name not in SCHEDULES:
            raise ParameterError(
                f"--schedule must be some of {', '.join(SCHEDULES)}, separated by commas; got {text!r}"
            )
    return names


def _lengths(text: str | None, reference: int) -> list[int]:
    if text is None:
        sizes = {max(2, round(reference * 2.0**k)) for k in _DOUBLINGS}
    else:
        try:
            sizes = {int(part) for part in text.split(",")}
        except ValueError:
            raise ParameterError(f"--lengths must be integers separated by commas; got {text!r}") from None
    return sorted(sizes)


def _draw(plot: Path, head_dim: int, sizes: list[int], names: list[str], beta: float, reference: int) -> None:
    from gequiv.plotting.campaign_figures import house_style
    from gequiv.plotting.figures import save_figure
    from gequiv.plotting.temperature_figure import temperature_figure

    figure = temperature_figure(head_dim, sizes, names, beta=beta, reference=reference)
    with house_style():
        save_figure(figure.axes[0], plot)


def _as_dict(
    found: Temperature | None, predicted: dict[str, float | None], sweeps: dict[str, list[ContextPoint]]
) -> dict[str, Any]:
    from gequiv._version import __version__

    return {
        "version": __version__,
        "temperature": None if found is None else {**found.to_dict(), "predicted": predicted},
        "schedules": {name: [point.to_dict() for point in sweep] for name, sweep in sweeps.items()},
    }


def _found_table(found: Temperature, predicted: dict[str, float | None]) -> RenderableType:
    from rich import box
    from rich.table import Table

    mask = "" if found.mask is None else f", mask {found.mask}"
    keys = "" if found.keys == found.tokens else f", {found.keys} keys"
    table = Table(
        box=box.SIMPLE_HEAD,
        show_header=False,
        title=f"{found.tokens} tokens{keys}, head width {found.head_dim}{mask}\n"
        f"wanted: {_WORDS[found.wanted[0]]} {found.wanted[1]:g}",
        title_justify="left",
        title_style="bold",
    )
    table.add_column("fact", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_row("β, times 1/√head-dim", f"{found.beta:.6g}")
    table.add_row("scale of q·k", f"{found.scale:.6g}")
    table.add_row("β²/log keys", f"{found.gamma:.4g}  (linear model ends at 1/2, rows freeze at 2 as keys grow)")
    table.add_row("√(½ log keys)", f"{found.linear_limit:.4g}")
    table.add_section()
    for name, value in predicted.items():
        if value is not None:
            table.add_row(_WORDS[name], f"{value:.6g}")
    if predicted["spectral_gap"] is None:
        why = "with a mask" if found.head.visibility is not None else "here: beyond the linear regime, or not certified"
        table.add_row("spectrum", f"not predicted {why}")
    return table


def _sweep_table(name: str, sweep: list[ContextPoint], head_dim: int) -> RenderableType:
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD,
        title=f"schedule {name}, head width {head_dim}",
        caption="share: of the energy of a row, in its few largest entries; rank: effective rank of A",
        caption_justify="left",
        title_justify="left",
        title_style="bold",
    )
    for heading in ("tokens", "β", "perplexity", "share", "s₁", "s₂", "gap", "rank"):
        table.add_column(heading, justify="right")
    for point in sweep:
        found = point.spectrum
        spectrum = ["–"] * 4
        if found is not None:
            spectrum = [
                f"{found.largest:.5g}",
                f"{found.second:.4g}",
                f"{found.spectral_gap:.4g}",
                f"{found.effective_rank:.5g}",
            ]
        table.add_row(
            str(point.tokens), f"{point.beta:.4g}", f"{point.perplexity:.5g}", f"{point.linear:.2g}", *spectrum
        )
    return table


_WORDS = {
    "entropy": "entropy of rows",
    "normalised_entropy": "entropy over its maximum",
    "perplexity": "perplexity",
    "linear": "share of the few largest",
    "largest": "s₁, Perron value",
    "second": "s₂",
    "spectral_gap": "spectral gap 1 - s₂/s₁",
    "effective_rank": "effective rank",
}
