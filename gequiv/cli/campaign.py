"""``gequiv campaign``: run a campaign file, see how far it is, report what it found, clean up."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gequiv.cli import report as words
from gequiv.cli.errors import Stopped, complain, quiet_pipe
from gequiv.cli.options import Json
from gequiv.cli.progress import progress_bar, spinner
from gequiv.errors import InputFileError, ParameterError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from gequiv.simulation.campaign.cost import Cost
    from gequiv.simulation.campaign.findings import Analysis
    from gequiv.simulation.campaign.model import Campaign
    from gequiv.simulation.campaign.store import Cleaned, Store

DEFAULT_FOLDER = Path("campaigns")
_REPORT = "report.html"
_MOST_ROWS = 40  # models beyond which tables are of groups
_FAILURES = 10  # failed draws that are told one by one
_SIGNS = {"held": "✓", "failed": "✗", "not enough draws": "?"}
_COLOURS = {"held": "green", "failed": "red", "not enough draws": "yellow"}

app = typer.Typer(rich_markup_mode="rich", context_settings={"help_option_names": ["-h", "--help"]})

File = Annotated[Path, typer.Argument(metavar="FILE", help="The campaign file, in TOML.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder that `run` wrote.")]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="DIR",
        show_default="campaigns/STEM of FILE",
        help="Where the results lie; the folder of an earlier run goes on.",
    ),
]
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, metavar="N", help="Processes at work at once.")]


@app.callback(invoke_without_command=True)
def campaign(context: typer.Context) -> None:
    """Many draws of many heads, which resume, spread over machines, and end in a report.

    A campaign file, in TOML, says which heads are drawn how often, with which
    laws they are compared, and what is claimed. Draws are stored one by one:
    Ctrl-C, a crash or a power cut loses those in flight alone, and the same
    command goes on where it was. A draw depends on its own parameters and seed
    alone, not on the order or the number of processes and machines.

    Examples:

    [cyan]gequiv campaign run validation/quick.toml --dry-run
    gequiv campaign run validation/quick.toml --jobs 2
    gequiv campaign status validation/quick.toml
    gequiv campaign report campaigns/quick
    gequiv campaign clean campaigns/quick[/cyan]
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def run(
    file: File,
    out: Out = None,
    jobs: Jobs = 1,
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Address of a Dask scheduler, whose workers draw in place of processes here; needs gequiv\\[dask].",
        ),
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(
            metavar="GB", show_default="what is available", help="Memory that all draws in flight may take together."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and what it costs; compute and write nothing.")
    ] = False,
) -> None:
    """Compute the draws of a campaign file that are not there yet.

    The exit code is 1 if draws failed, 4 if worker processes or a Dask
    scheduler were lost, 130 after Ctrl-C; what is done by then is kept, and the
    same command goes on.
    """
    if memory is not None and not 0 < memory < float("inf"):
        raise ParameterError(f"--memory must be a number of GB above 0; got {memory!r}")
    plan = _read(file)
    folder = _folder(file, out)
    if dry_run:
        _print_plan(plan, folder, jobs)
        return
    raise typer.Exit(_compute(plan, folder, jobs, dask, None if memory is None else int(memory * 1e9)))


@app.command()
def status(
    place: Annotated[Path, typer.Argument(metavar="DIR|FILE", help="The folder of a run, or the campaign file.")],
    out: Out = None,
    json_: Json = False,
) -> None:
    """Say how many draws are there, missing or damaged; every stored draw is read and checked."""
    from gequiv.simulation.campaign.store import Store

    if place.is_dir():
        if out is not None:
            raise ParameterError(f"--out goes with a campaign file; {str(place)!r} is a folder")
        plan, store = _opened(place)
    else:
        plan, store = _read(place), Store(_folder(place, out))
    _print_status(plan, store, as_json=json_)


@app.command("report")
def report_(folder: Folder, jobs: Jobs = 1, json_: Json = False) -> None:
    """Compare the draws with the laws, and write report.html and tables (.csv) into the folder.

    Of a campaign that is not complete the report is of the draws that are
    there. The exit code is 1 unless all claims held.
    """
    raise typer.Exit(_report(folder, jobs, as_json=json_))


@app.command()
def clean(
    folder: Folder,
    all_: Annotated[
        bool, typer.Option("--all", help="Remove all draws, not only what the plan does not need.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before removing all.")] = False,
) -> None:
    """Remove what the campaign file does not ask for, damaged results, and left-overs of killed runs."""
    from gequiv.simulation.campaign.measured import comparison_key

    plan, store = _opened(folder)
    if all_:
        if not yes:
            there = len(store.keys())
            question = f"Remove all {_count(there, 'draw')} in {str(folder)!r}?"
            if not sys.stdin.isatty():
                raise ParameterError(f"--all removes all {_count(there, 'draw')}: say --yes with it")
            typer.confirm(question, abort=True)
        cleaned = store.remove_all()
    else:
        with spinner("reading the stored draws"):
            current = {comparison_key(model, store) for model in plan.models}
        cleaned = store.clean(plan, comparisons=current)
    _say([_cleaned_text(cleaned)])


# --------------------------------------------------------------------------- folders


def _folder(file: Path, out: Path | None) -> Path:
    return out if out is not None else DEFAULT_FOLDER / file.stem


def _read(file: Path) -> Campaign:
    """The campaign of a file.

    Raises
    ------
    InputFileError : also for keys of the file, which are no options of the command.
    """
    from gequiv.simulation.campaign.files import read_campaign

    with _named(file):
        return read_campaign(file)


@contextmanager
def _named(file: Path) -> Iterator[None]:
    try:
        yield
    except ParameterError as error:
        raise InputFileError(f"{str(file)!r}: {error}") from error


def _opened(folder: Path) -> tuple[Campaign, Store]:
    """The campaign that was run in a folder.

    Raises
    ------
    InputFileError : the folder is no campaign's.
    """
    from gequiv.simulation.campaign.files import parse_campaign
    from gequiv.simulation.campaign.store import CAMPAIGN_FILE, Store

    if not folder.is_dir():
        raise InputFileError(f"{str(folder)!r} is not a folder; gequiv campaign run FILE --out DIR makes one")
    store = Store(folder)
    with _named(folder / CAMPAIGN_FILE):
        return parse_campaign(store.source(), store.name()), store


# --------------------------------------------------------------------------- run


def _compute(plan: Campaign, folder: Path, jobs: int, dask: str | None, memory: int | None) -> int:
    from gequiv.simulation.campaign.execution import CampaignInterrupted, run

    total = len(plan.tasks())
    try:
        with progress_bar("drawing", elapsed=True) as told:
            summary = run(plan, folder, jobs=jobs, dask=dask, memory=memory, progress=told)
    except CampaignInterrupted as interrupt:
        stored = interrupt.summary.known + interrupt.summary.computed
        raise Stopped(
            f"interrupted: {stored} of {_count(total, 'draw')} are stored in {str(folder)!r}; the same command goes on "
            "there"
        ) from interrupt
    lines = []
    if summary.damaged:
        lines.append(f"{_count(summary.damaged, 'stored result')} found damaged and computed again.")
    if summary.computed == 0 and summary.known == summary.total:
        lines.append(f"Nothing to compute: all {_count(summary.total, 'draw')} are in {folder}.")
    else:
        known = f", {summary.known} were there" if summary.known else ""
        lines.append(f"Computed {_count(summary.computed, 'draw')}{known}, in {_duration(summary.seconds)}: {folder}")
    _say(lines)
    for failure in summary.failures[:_FAILURES]:
        complain(f"{failure.model}, seed {failure.seed}: {failure.message}", kind="failed: ")
    if summary.failures:
        complain(f"{_count(len(summary.failures), 'draw')} failed; the same command tries them again", kind="")
    return 1 if summary.failures else 0


def _print_plan(plan: Campaign, folder: Path, jobs: int) -> None:
    """What is to be computed and what it costs, by measurement of small draws."""
    from gequiv.simulation.campaign.cost import estimate_cost
    from gequiv.simulation.campaign.memory import available_memory
    from gequiv.simulation.campaign.store import Store

    store = Store(folder)
    tasks = plan.tasks()
    with spinner("measuring small draws"):
        missing = [task for task in tasks if not store.has(task.key)]
        cost = estimate_cost(plan, missing)
    there = len(tasks) - len(missing)
    known = f", of which {there} {'is' if there == 1 else 'are'} in {folder}" if there else f" for {folder}"
    line = f"{_count(len(tasks), 'draw')} of {_count(len(plan.models), 'model')}{known}"
    if not missing:
        _say([line, "Nothing to compute."])
        return
    words.print_rich([_cost_table(plan, cost)])
    _say([line, *_cost_lines(cost, jobs, available_memory())])


def _cost_table(plan: Campaign, cost: Cost) -> Table:
    """A row a model with missing draws, or a row a group where the models are many; totals below."""
    by_group = len(cost.rows) > _MOST_ROWS
    table = _table(plan.title or plan.name, ["group", "models" if by_group else "model"])
    for heading in ("draws", "a draw", "in all", "memory", "stored"):
        table.add_column(heading, justify="right")
    groups = {
        row.model.group: [other for other in cost.rows if other.model.group == row.model.group] for row in cost.rows
    }
    bundles = groups.values() if by_group else ([row] for row in cost.rows)
    for rows in bundles:
        draws = sum(row.missing for row in rows)
        known = [row.missing * row.seconds for row in rows if row.seconds is not None]
        seconds = sum(known) if len(known) == len(rows) else None
        table.add_row(
            _plain(rows[0].model.group),
            _plain(_count(len(rows), "model") if by_group else rows[0].model.title),
            str(draws),
            "–" if seconds is None else _duration(seconds / draws),
            "–" if seconds is None else _duration(seconds),
            _size(max(row.memory for row in rows)),
            _size(sum(row.missing * row.stored for row in rows)),
        )
    table.add_section()
    table.add_row("all", "", str(cost.draws), "", _duration(cost.seconds), "", _size(cost.stored), style="bold")
    return table


def _cost_lines(cost: Cost, jobs: int, available: int) -> Iterator[str]:
    yield (
        f"With {_count(jobs, 'job')}: about {_duration(cost.wall(jobs))}, {_size(cost.memory(jobs))} of memory at the "
        f"peak ({_size(available)} available), {_size(cost.stored)} on the disk"
    )
    unknown = sum(row.seconds is None for row in cost.rows)
    if unknown:
        yield f"{_count(unknown, 'model')} without a time: no small draw of the kind could be made"
    yield f"Extrapolated from small draws, which took {_duration(cost.measuring)}; nothing was written"


# --------------------------------------------------------------------------- status


def _print_status(plan: Campaign, store: Store, *, as_json: bool) -> None:
    counts = []
    sizes: dict[str, int] = {}
    with spinner("reading the stored draws"):
        wanted = {task.key for task in plan.tasks()}
        stored = set(store.keys())
        for key in stored:
            with suppress(OSError):  # removed meanwhile
                sizes[key] = store.path(key).stat().st_size
        there = {key for key in wanted & stored if store.has(key)}
    for model in plan.models:
        keys = {task.key for task in model.tasks()}
        present = keys & there
        counts.append(
            {
                "group": model.group,
                "model": model.title,
                "draws": len(keys),
                "there": len(present),
                "damaged": len((keys & stored) - there),
                "bytes": sum(sizes.get(key, 0) for key in present),
            }
        )
    totals = {
        "campaign": plan.name,
        "folder": str(store.folder),
        "draws": len(wanted),
        "there": len(there),
        "missing": len(wanted - there),
        "damaged": len((wanted & stored) - there),
        "bytes": sum(sizes.get(key, 0) for key in there),
        "others": len(stored - wanted),
        "other_bytes": sum(sizes.get(key, 0) for key in stored - wanted),
    }
    if as_json:
        words.print_json({**totals, "models": counts})
    else:
        words.print_rich([_status_table(plan, counts)])
        _say(_status_lines(totals))


def _status_table(plan: Campaign, counts: list[dict[str, Any]]) -> Table:
    """A row a model, or a row a group where the models are many."""
    rows: list[dict[str, Any]] = counts
    by_group = len(counts) > _MOST_ROWS
    if by_group:
        rows = []
        for group in dict.fromkeys(row["group"] for row in counts):
            members = [row for row in counts if row["group"] == group]
            sums = {key: sum(row[key] for row in members) for key in ("draws", "there", "damaged", "bytes")}
            rows.append({"group": group, "model": _count(len(members), "model"), **sums})
    table = _table(plan.title or plan.name, ["group", "models" if by_group else "model"])
    for heading in ("there", "of", "damaged", "size"):
        table.add_column(heading, justify="right")
    for row in rows:
        style = "green" if row["there"] == row["draws"] else "yellow"
        table.add_row(
            _plain(row["group"]),
            _plain(row["model"]),
            f"[{style}]{row['there']}[/]",
            str(row["draws"]),
            str(row["damaged"] or "–"),
            _size(row["bytes"]) if row["bytes"] else "–",
        )
    return table


def _status_lines(totals: dict[str, Any]) -> Iterator[str]:
    complete = totals["there"] == totals["draws"]
    first = "all there" if complete else f"{totals['there']} there, {totals['missing']} missing"
    damaged = f" ({totals['damaged']} of them damaged)" if totals["damaged"] else ""
    size = f", {_size(totals['bytes'])}" if totals["bytes"] else ""
    yield f"{_count(totals['draws'], 'draw')}: {first}{damaged}{size} in {totals['folder']}"
    if totals["others"]:
        yield (
            f"{_count(totals['others'], 'other draw')}, {_size(totals['other_bytes'])}, that the campaign does not ask "
            "for; gequiv campaign clean removes them"
        )


# --------------------------------------------------------------------------- report


def _report(folder: Path, jobs: int, *, as_json: bool) -> int:
    plan, store = _opened(folder)

    from gequiv.plotting.campaign_page import write_page
    from gequiv.simulation.campaign.analysis import analyse
    from gequiv.simulation.campaign.tables import write_tables

    with progress_bar("comparing with the laws", elapsed=True) as told:
        analysis = analyse(plan, store, jobs=jobs, progress=told)
    with spinner("writing the report"):
        write_tables(analysis, folder)
        write_page(analysis, folder / _REPORT)
    passed = all(claim.verdict == "held" for claim in analysis.claims)
    if as_json:
        words.print_json(_json(analysis, folder, passed=passed))
    else:
        if analysis.claims:
            words.print_rich([_verdict_table(analysis)])
        _say(_verdict_lines(analysis, folder))
    return 0 if passed else 1


def _json(analysis: Analysis, folder: Path, *, passed: bool) -> dict[str, Any]:
    from dataclasses import asdict

    from gequiv._version import __version__

    return {
        "campaign": analysis.campaign.name,
        "passed": passed,
        "draws": sum(model.draws for model in analysis.models),
        "missing": analysis.missing,
        "damaged": analysis.damaged,
        "claims": [asdict(claim) for claim in analysis.claims],
        "report": str(folder / _REPORT),
        "version": __version__,
    }


def _verdict_table(analysis: Analysis) -> Table:
    """One row a claim with the worst verdict on its models."""
    from itertools import groupby

    from rich.text import Text

    table = _table(analysis.campaign.title or analysis.campaign.name, ["verdict", "claim"])
    table.add_column("tests", justify="right")
    table.add_column("held", justify="right")
    for (_, name), members in groupby(analysis.claims, key=lambda claim: (claim.kind, claim.name)):
        findings = list(members)
        worst = next(v for v in ("failed", "not enough draws", "held") if any(f.verdict == v for f in findings))
        shown = Text(name)
        first = next(finding for finding in findings if finding.verdict == worst)
        if worst != "held":
            shown.append(f"\n{first.subject}: {first.reason}", style="dim")
        idle = sum(not finding.power.could_fail for finding in findings)
        if idle:
            which = "" if idle == len(findings) else f" ({idle} of {len(findings)})"
            shown.append(f"\n○ could not have failed{which}", style="dim")
        held = sum(finding.verdict == "held" for finding in findings)
        mark = Text(f"{_SIGNS[worst]} {worst}", style=f"bold {_COLOURS[worst]}")
        table.add_row(mark, shown, str(len(findings)), str(held))
    return table


def _verdict_lines(analysis: Analysis, folder: Path) -> Iterator[str]:
    if not analysis.claims:
        yield "The campaign file states no claims."
    if analysis.missing:
        wanted = len(analysis.campaign.tasks())
        yield f"Not complete: {analysis.missing} of {_count(wanted, 'draw')} missing; the report is of the rest."
    if analysis.damaged:
        yield f"{_count(analysis.damaged, 'stored result')} found damaged and not used."
    yield f"Report: {folder / _REPORT}"


# --------------------------------------------------------------------------- words


def _cleaned_text(cleaned: Cleaned) -> str:
    counts = (
        (cleaned.draws, "draw"),
        (cleaned.comparisons, "comparison"),
        (cleaned.damaged, "damaged result"),
        (cleaned.temporary, "left-over"),
    )
    shown = [_count(count, noun) for count, noun in counts if count]
    return f"Removed {', '.join(shown)}: {_size(cleaned.bytes)}." if shown else "Nothing to remove."


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _size(count: float) -> str:
    """Bytes in words: three digits of kB, MB, GB, TB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _duration(seconds: float) -> str:
    """Time in words: milliseconds to days, from minutes on with the next smaller unit."""
    if seconds < 0.0995:
        return f"{1000 * seconds:.2g} ms"
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 10:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def _say(lines: Iterable[str]) -> None:
    """Lines on standard output, as long as they are."""
    with quiet_pipe():
        for line in lines:
            typer.echo(line)


def _plain(text: str) -> RenderableType:
    """Text whose brackets are no markup."""
    from rich.text import Text

    return Text(text)


def _table(title: str, headings: Iterable[str]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title=Text(title, style="bold"), title_justify="left")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
