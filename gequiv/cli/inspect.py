"""``gequiv inspect``: what is random in the attention of real heads, from a file or from a model."""

from __future__ import annotations

import importlib
import json
import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gequiv.cli import files
from gequiv.cli import report as words
from gequiv.cli.options import Json
from gequiv.cli.progress import progress_bar
from gequiv.errors import InputFileError, ParameterError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from gequiv.inspection.report import HeadReport, Report

    Progress = Callable[[int, int, str], None]

_FILE = "Attention in a file"
_MODEL = "Attention of a model"
_MOST_ROWS = 60  # heads beyond which a table is of layers
_NOTABLE = 12
_OPTIONS = {
    "attention": "FILE",
    "inputs": "--text",
    "key": "--key",
    "level": "--level",
    "model": "--model",
    "seed": "--seed",
    "tokenizer": "--model",
}
_TOKENIZERS = ("*token*", "vocab*", "*.model", "*.spm")  # without any, an empty one would be made up
_EXTRA = "--model needs torch and transformers ({}): pip install 'gequiv[models]'"


def inspect(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            show_default=False,
            help="Attention probabilities of shape (queries, keys), (heads, queries, keys) or (layers, heads, queries, "
            "keys): .npy, .npz or .safetensors.",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="NAME", rich_help_panel=_FILE, help="Name of the array in a file of several."),
    ] = None,
    head_dim: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            show_default="read off the matrices",
            rich_help_panel=_FILE,
            help="Head width: columns of Q and K.",
        ),
    ] = None,
    width: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            show_default="read off the matrices",
            rich_help_panel=_FILE,
            help="Embedding width of the tokens.",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            rich_help_panel=_MODEL,
            help="Folder of a transformers model with its tokenizer, in place of FILE; nothing is downloaded. Needs "
            "gequiv\\[models].",
        ),
    ] = None,
    text: Annotated[
        Path | None, typer.Option(metavar="FILE", rich_help_panel=_MODEL, help="The text that the model reads.")
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="N",
            show_default="1024, or fewer if the model takes no more",
            rich_help_panel=_MODEL,
            help="Tokens of an input; a longer text makes several, of which the first is inspected and all tell what "
            "tokens are like.",
        ),
    ] = None,
    random_init: Annotated[
        bool,
        typer.Option(
            "--random-init",
            rich_help_panel=_MODEL,
            help="Draw fresh weights for the model's architecture, by --seed, in place of its own.",
        ),
    ] = False,
    level: Annotated[
        float,
        typer.Option(metavar="X", help="Probability with which any head may be called not random although all are."),
    ] = 0.05,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Seed of the random heads that are drawn to compare with.")
    ] = 0,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", "-j", min=1, metavar="N", show_default="all cores", help="Processes and threads at work at once."
        ),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help=f"Print all heads, also more than {_MOST_ROWS}.")] = False,
    json_: Json = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with maps, spectra and all numbers.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw a map of the heads into a .png, .pdf or .svg file."),
    ] = None,
) -> None:
    """Hold real attention heads against random ones: which pass, and what is not random in the others.

    Of every head: β by three routes, the distance of its spectrum from the
    law of random heads, singular values outside the bulk with the tokens that
    make them, the effective rank, and a verdict. Of a model the heads are also
    held against their own weights and tokens. The exit code is 0 whatever the
    verdicts are.

    Examples:

    [cyan]gequiv inspect attention.npy
    gequiv inspect attention.npz --key layer3 --html heads.html
    gequiv inspect attention.npy --head-dim 64 --level 0.01 --json
    gequiv inspect --model gpt2 --text text.txt --max-tokens 512 --html gpt2.html
    gequiv inspect --model gpt2 --text text.txt --random-init --plot random.png[/cyan]
    """
    _check(file, model, text, random_init, max_tokens, {"--key": key, "--head-dim": head_dim, "--width": width})
    if html is not None:
        files.check_writable("--html", html)
    if plot is not None:
        files.check_picture("--plot", plot)
    try:
        with _phases() as told:
            if file is not None:
                from gequiv.inspection import inspect_attention

                report = inspect_attention(
                    file, key=key, head_dim=head_dim, width=width, level=level, seed=seed, jobs=jobs, progress=told
                )
            else:
                assert model is not None
                assert text is not None
                report = _of_model(model, text, max_tokens, random_init, level, seed, jobs, told)
    except InputFileError as error:
        raise InputFileError(str(error).replace("attention cannot be read from", "cannot read")) from error
    except ParameterError as error:
        raise ParameterError(_in_terms_of_options(str(error))) from error
    written = _write(report, html, plot)
    if json_:
        words.print_json(report.to_dict())
    else:
        words.print_rich([*_tables(report, everything=all_), *written])


def _check(
    file: Path | None,
    model: Path | None,
    text: Path | None,
    random_init: bool,
    max_tokens: int | None,
    of_file: dict[str, Any],
) -> None:
    if (file is None) == (model is None):
        raise ParameterError("give either FILE, attention matrices, or --model DIR with --text FILE")
    if model is None:
        given = {"--text": text is not None, "--max-tokens": max_tokens is not None, "--random-init": random_init}
        for option in (name for name, there in given.items() if there):
            raise ParameterError(f"{option} belongs to --model; leave it out with FILE")
        return
    for option in (name for name, value in of_file.items() if value is not None):
        raise ParameterError(f"{option} belongs to FILE; leave it out with --model")
    if text is None:
        raise ParameterError("--model needs --text FILE, what the model is to read")


def _in_terms_of_options(message: str) -> str:
    """Names of options for those of parameters, in messages of this command alone."""
    message = message.replace("must be None for", "must be left out for")
    name = re.match(r"[a-z_]+\b", message)
    if name and name.group() in _OPTIONS:
        return _OPTIONS[name.group()] + message[name.end() :]
    return message


@contextmanager
def _phases() -> Iterator[Progress]:
    """One bar a phase; yields a function of (done, total, phase)."""
    with ExitStack() as stack:
        phase: str | None = None
        bar: Callable[..., None] | None = None

        def told(done: int, total: int, what: str) -> None:
            nonlocal phase, bar
            if bar is None or what != phase:
                stack.close()
                phase, bar = what, stack.enter_context(progress_bar(what, elapsed=True))
            bar(done, total)

        yield told


# --------------------------------------------------------------------------- models


def _of_model(
    folder: Path,
    text: Path,
    max_tokens: int | None,
    random_init: bool,
    level: float,
    seed: int,
    jobs: int | None,
    progress: Progress,
) -> Report:
    written = _read_text(text)
    model, tokenizer = _load(folder, random_init, seed)
    inputs = _tokens(written, text, model, tokenizer, max_tokens)

    from gequiv.inspection.models import inspect_model

    return inspect_model(model, inputs, tokenizer=tokenizer, level=level, seed=seed, jobs=jobs, progress=progress)


def _read_text(path: Path) -> str:
    try:
        written = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputFileError(f"--text: cannot read {str(path)!r}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputFileError(f"--text: {str(path)!r} is not UTF-8 text: {error.reason}") from error
    if not written.strip():
        raise ParameterError(f"--text: {str(path)!r} is empty")
    return written


def _load(folder: Path, random_init: bool, seed: int) -> tuple[Any, Any]:
    """Model and tokenizer of a folder; nothing is downloaded, and no code of the folder runs."""
    if not folder.is_dir():
        raise InputFileError(f"--model: {str(folder)!r} is not a folder; nothing is downloaded")
    if not (folder / "config.json").is_file():
        raise InputFileError(f"--model: there is no config.json in {str(folder)!r}")
    if not any(path for pattern in _TOKENIZERS for path in folder.glob(pattern)):
        raise InputFileError(f"--model: there is no tokenizer in {str(folder)!r}")
    for path in sorted(folder.glob("*.json")):
        try:
            json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputFileError(f"--model: cannot read {str(path)!r}: {error}") from error
    try:
        torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    except ImportError as error:
        raise ParameterError(_EXTRA.format(error)) from error
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    place = str(folder)
    with _loading("model", folder):
        if random_init:
            config = transformers.AutoConfig.from_pretrained(place, local_files_only=True)
            torch.manual_seed(seed)
            model = transformers.AutoModel.from_config(config)
        else:
            model = transformers.AutoModel.from_pretrained(place, local_files_only=True)
    with _loading("tokenizer", folder):
        tokenizer = transformers.AutoTokenizer.from_pretrained(place, local_files_only=True)
    return model.eval(), tokenizer


@contextmanager
def _loading(what: str, folder: Path) -> Iterator[None]:
    """What the libraries raise for files that are missing, broken or of unknown kinds, in one line."""
    broken = importlib.import_module("safetensors").SafetensorError, pickle.UnpicklingError
    missing = OSError, ValueError, KeyError, ImportError, TypeError, AttributeError, RuntimeError
    try:
        yield
    except (*missing, *broken) as error:
        raise InputFileError(
            f"--model: no {what} could be loaded from {str(folder)!r}: {_first_line(error)}"
        ) from error


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _tokens(written: str, path: Path, model: Any, tokenizer: Any, most: int | None) -> dict[str, Any]:
    """The text as inputs."""
    from gequiv.inspection.texts import tokenised

    try:
        return tokenised(tokenizer, written, model, most)
    except ParameterError as error:
        raise ParameterError(
            str(error).replace("max_tokens", "--max-tokens").replace("inputs must", f"--text: {str(path)!r} must")
        ) from error


# --------------------------------------------------------------------------- what is printed


def _write(report: Report, html: Path | None, plot: Path | None) -> list[RenderableType]:
    from rich.text import Text

    written: list[RenderableType] = []
    if html is not None:
        from gequiv.plotting import write_inspection

        write_inspection(report, html)
        written.append(Text(f"Page: {html}", overflow="fold"))
    if plot is not None:
        from gequiv.plotting import inspection_figure, save_figure
        from gequiv.plotting.campaign_figures import house_style

        axes = inspection_figure(report)
        with house_style():
            save_figure(axes, plot)
        written.append(Text(f"Figure: {plot}", overflow="fold"))
    return written


def _tables(report: Report, *, everything: bool) -> Iterator[RenderableType]:
    from rich.text import Text

    if everything or len(report.heads) <= _MOST_ROWS:
        yield _head_table(report, report.heads, report.source)
    else:
        if len({head.layer for head in report.heads}) > 1:
            yield _layer_table(report)
        told = sorted((head for head in report.heads if not head.random), key=_strangeness)[:_NOTABLE]
        if told:
            yield _head_table(report, told, f"the {len(told)} furthest from random; --all prints all heads")
    if any(head.nulls for head in report.heads):
        yield Text("Verdicts in words, directions with their tokens and findings: --html or --json.")
    yield Text(f"{report.summary} (level {report.level:g})", style="bold")


def _strangeness(head: HeadReport) -> tuple[float, float]:
    """p and KS, of the last null where there are several."""
    held = head.nulls[-1] if head.nulls else head
    return (1.0 if held.p_adjusted is None else held.p_adjusted, -(held.ks or 0.0))


def _head_table(report: Report, heads: list[HeadReport], title: str) -> Table:
    if any(head.nulls for head in heads):
        return _null_table(report, heads, title)
    table = _table(title)
    for heading in ["layer"] * report.layered + ["head", "β", "KS", "outside", "rank", "p"]:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold", ratio=1)
    for head in heads:
        cells: list[str | Text] = [str(head.layer)] * report.layered
        cells += [
            str(head.head),
            words.number(head.beta, 3),
            words.number(head.ks, 3),
            str(len(head.outliers)),
            words.number(head.effective_rank),
            words.number(head.p_adjusted, 2),
        ]
        table.add_row(*cells, _verdict(head))
    return table


def _null_table(report: Report, heads: list[HeadReport], title: str) -> Table:
    """β and KS along the chain of nulls, in place of verdicts in words."""
    names = list(dict.fromkeys(null.name for head in heads for null in head.nulls))
    table = _table(title)
    table.padding, table.collapse_padding = (0, 1), True
    table.caption, table.caption_justify = f"KS from each null; predicted β and p of {names[-1]}", "left"
    headings = ["layer\nhead" if report.layered else "head", "β", "predicted\nβ"]
    headings += [f"KS\n{name.rsplit(' ', 1)[-1]}" for name in names] + ["out-\nside", "p"]
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("explained by", overflow="fold", ratio=1)
    for head in heads:
        nulls = {null.name: null for null in head.nulls}
        last = nulls.get(names[-1])
        cells = [f"{head.layer}.{head.head}" if report.layered else str(head.head), words.number(head.beta, 3)]
        cells.append(words.number(None if last is None else last.beta, 3))
        cells += [words.number(nulls[name].ks if name in nulls else None, 3) for name in names]
        cells += [str(len(head.outliers)), words.number(None if last is None else last.p_adjusted, 2)]
        table.add_row(*cells, _state(head, head.explained_by or "none"))
    return table


def _verdict(head: HeadReport) -> Text:
    _, _, why = head.verdict.partition(": ")
    shown = _state(head, head.state)
    shown.append(f": {why}" if why else "", style="not bold")
    return shown


def _state(head: HeadReport, word: str) -> Text:
    """The word after the sign of the head's state, in its colour."""
    from rich.text import Text

    sign, style = {"random": ("○", "dim"), "not random": ("●", "cyan")}.get(head.state, ("?", "yellow"))
    shown = Text(f"{sign} {word}", style="bold")
    shown.stylize(style)
    return shown


def _layer_table(report: Report) -> Table:
    table = _table(report.source)
    for heading in ("layer", "heads", "random", "outside", "median β", "median KS", "largest KS"):
        table.add_column(heading, justify="right", no_wrap=True)
    for layer, members in groupby(sorted(report.heads, key=lambda head: head.layer), key=lambda head: head.layer):
        heads = list(members)
        betas = [head.beta for head in heads if head.beta is not None]
        distances = [head.ks for head in heads if head.ks is not None]
        table.add_row(
            str(layer),
            str(len(heads)),
            str(sum(head.random for head in heads)),
            str(sum(len(head.outliers) for head in heads)),
            words.number(median(betas) if betas else None, 3),
            words.number(median(distances) if distances else None, 3),
            words.number(max(distances, default=None), 3),
        )
    return table


def _table(title: str) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    return Table(box=box.SIMPLE_HEAD, title=Text(title, style="bold"), title_justify="left")
