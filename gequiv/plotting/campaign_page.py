"""The report of a campaign: one HTML file that needs nothing else, for a screen and for paper.

The same analysis gives the same bytes: there are no times, places or scripts in it.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gequiv._version import __version__
from gequiv.plotting import campaign_figures as figures
from gequiv.plotting.markup import (
    DASH,
    Column,
    Pictures,
    counted,
    fixed,
    interval,
    number,
    page,
    plain_symbol,
    symbol,
    table,
    text,
    value_text,
    values_text,
)
from gequiv.simulation.campaign.findings import Analysis, ClaimFinding, LawFinding, ModelFinding, Rate
from gequiv.simulation.campaign.model import Model, Scalar
from gequiv.simulation.campaign.tables import write_text

if TYPE_CHECKING:
    pass

_OPEN_MODELS = 12  # models whose findings are shown unfolded
_SMALL = 60  # models beyond which their figures are small
_FIGURES = 240  # models beyond which there are numbers alone
_FOLDED = 12  # rows of verdicts beyond which those that held are folded away
_LONG = 60  # rows of an overview beyond which it is folded away
_FULL = 0.5  # share of a map's cells that must have a model
_NAMED = 32  # letters of a line's name in a figure
_SUSPICIOUS = 3.0  # size of z-scores in bold

_SIGNS = {"held": "✓", "failed": "✗", "not enough draws": "?"}
_CLASSES = {"held": "held", "failed": "failed", "not enough draws": "open"}
_ROW_TITLES = {
    "log_normaliser": "log normaliser, mean over rows",
    "log_normaliser_sd": "log normaliser, standard deviation over rows",
    "participation": "participation of the weights",
    "energy_participation": "participation of the energy",
    "largest": "largest weight of a row",
}
_INVERSE_TEMPERATURES = ("gamma", "beta")


def write_page(analysis: Analysis, path: Path) -> None:
    """Write the report of `analysis` to `path`; an earlier one is replaced by the whole new one or stays.

    Raises
    ------
    StorageError : the file cannot be written.
    """
    write_text(path, page_text(analysis))


def page_text(analysis: Analysis) -> str:
    """The report as HTML."""
    pictures = Pictures()
    sections = [
        ("verdicts", "Verdicts", _verdicts(analysis)),
        ("overview", "Overview", _overview(analysis)),
        ("maps", "Maps", _maps(analysis, pictures)),
        ("rates", "Rates of convergence", _rates(analysis, pictures)),
        ("rows", "Rows", _rows(analysis, pictures)),
        ("models", "Model by model", _models(analysis, pictures)),
        ("reading", "How to read this", _READING),
        ("run", "What was run", _run(analysis)),
    ]
    title = text(analysis.campaign.title or analysis.campaign.name)
    return page(title, _head(analysis), sections, "The numbers of this page are in the .csv files beside it.")


# --------------------------------------------------------------------------- head


def _head(analysis: Analysis) -> str:
    campaign = analysis.campaign
    parts = [f'<p class="kicker">gequiv campaign · {text(campaign.name)}</p>']
    parts.append(f"<h1>{text(campaign.title or campaign.name)}</h1>")
    if campaign.description:
        paragraphs = re.split(r"\n\s*\n", campaign.description.strip())
        parts += [f'<p class="lead">{text(paragraph)}</p>' for paragraph in paragraphs]
    wanted = sum(len(finding.model.seeds) for finding in analysis.models)
    drawn = sum(finding.draws for finding in analysis.models)
    groups = len({finding.model.group for finding in analysis.models})
    facts = [
        (str(len(analysis.models)), f"model{'s' * (len(analysis.models) != 1)} in {groups} group{'s' * (groups != 1)}"),
        (str(drawn) if drawn == wanted else f"{drawn} of {wanted}", "draws"),
        (str(len(analysis.claims)), f"claim{'s' * (len(analysis.claims) != 1)} tested"),
        (str(campaign.seed), "seed"),
    ]
    parts.append('<ul class="facts">' + "".join(f"<li><b>{value}</b>{name}</li>" for value, name in facts) + "</ul>")
    if analysis.missing:
        parts.append(
            f'<p class="notice"><b>Not complete.</b> {counted(analysis.missing, "draw")} '
            f"{'is' if analysis.missing == 1 else 'are'} missing; all below is of those that are there.</p>"
        )
    if analysis.damaged:
        parts.append(
            f'<p class="notice"><b>Damaged.</b> {counted(analysis.damaged, "stored result")} '
            f"{'was' if analysis.damaged == 1 else 'were'} damaged and not used.</p>"
        )
    return "\n".join(parts)


# --------------------------------------------------------------------------- verdicts


def _verdicts(analysis: Analysis) -> str:
    claims = analysis.claims
    if not claims:
        return "<p>The campaign file states no claims.</p>"
    chips = []
    for verdict in ("failed", "not enough draws", "held"):
        count = sum(claim.verdict == verdict for claim in claims)
        if count:
            chips.append(f'<span class="count">{_badge(verdict)} {count}</span>')
    idle = sum(not claim.power.could_fail for claim in claims)
    if idle:
        chips.append(f'<span class="count">{_IDLE} {idle}</span>')
    blocks = [f'<p class="counts">{" ".join(chips)}</p>']
    blocks += [_claim(list(group)) for _, group in groupby(claims, key=lambda claim: (claim.kind, claim.name))]
    return "\n".join(blocks)


_IDLE = '<span class="badge empty">○ could not have failed</span>'


def _badge(verdict: str) -> str:
    return f'<span class="badge {_CLASSES[verdict]}">{_SIGNS[verdict]} {verdict}</span>'


def _claim(findings: list[ClaimFinding]) -> str:
    """One claim on all that it is about: verdict of the whole, then one row a subject."""
    worst = next(v for v in ("failed", "not enough draws", "held") if any(f.verdict == v for f in findings))
    idle = " " + _IDLE if all(not finding.power.could_fail for finding in findings) else ""
    first = findings[0]
    shared = all(finding.limit == first.limit for finding in findings)
    counts = f'<span class="small">{_tally(findings)}</span>' if len(findings) > 1 else ""
    columns = [Column("verdict", numeric=False), Column("of", numeric=False, style="subject"), Column("measured")]
    columns += [] if shared else [Column("held against", numeric=False)]
    columns += [Column("detectable"), Column("why", numeric=False, style="text")]

    def row(finding: ClaimFinding) -> list[str]:
        mark = _badge(finding.verdict) + ("" if finding.power.could_fail else f"<br>{_IDLE}")
        cells = [mark, text(finding.subject), interval(finding.measured)]
        cells += [] if shared else [text(finding.limit)]
        why = f'{text(finding.reason)}<span class="between">{text(finding.power.text)}</span>'
        return [*cells, number(finding.power.detectable, 3), why]

    parts = [f'<div class="claim">\n<h3>{_badge(worst)}{idle} {text(first.name)} {counts}</h3>']
    parts.append(f'<p class="small">{text(first.kind)}{": " + text(first.limit) if shared else ""}</p>')
    if len(findings) > _FOLDED:
        others = [finding for finding in findings if finding.verdict != "held"]
        if others and len(others) < len(findings):
            parts.append(table(columns, map(row, others)))
        folded = table(columns, map(row, findings))
        parts.append(f"<details><summary>all {len(findings)} verdicts</summary>\n{folded}</details>")
    else:
        parts.append(table(columns, map(row, findings)))
    return "\n".join([*parts, "</div>"])


def _tally(findings: Sequence[ClaimFinding]) -> str:
    counts = [
        (verdict, sum(finding.verdict == verdict for finding in findings))
        for verdict in ("held", "failed", "not enough draws")
    ]
    return ", ".join(f"{count} {verdict}" for verdict, count in counts if count)


# --------------------------------------------------------------------------- overview


def _groups(analysis: Analysis) -> Iterator[tuple[str, list[ModelFinding]]]:
    """Models by group, in the order of the file."""
    names = dict.fromkeys(finding.model.group for finding in analysis.models)
    for name in names:
        yield name, [finding for finding in analysis.models if finding.model.group == name]


def _axes(model: Model) -> dict[str, Scalar]:
    return model.axes or model.parameters()


def _varying(findings: Sequence[ModelFinding]) -> list[str]:
    """Axes on which the models differ, as the file has them."""
    names = list(dict.fromkeys(name for finding in findings for name in _axes(finding.model)))
    return [name for name in names if len({repr(_axes(finding.model).get(name)) for finding in findings}) > 1]


def _chosen(model: Model, names: Sequence[str]) -> dict[str, Scalar]:
    return {name: _axes(model).get(name) for name in names}


def _label(finding: ModelFinding, names: Sequence[str], *, plain: bool = False) -> str:
    """What tells the model from the others of its group."""
    model = finding.model
    if not names:
        return model.title if plain else text(model.title)
    return values_text(_chosen(model, names), plain=plain)


def _shared(findings: Sequence[ModelFinding], names: Sequence[str]) -> str:
    """What the models of a group have in common, short of the usual."""
    usual = {"mask": "none", "score": "exp", "token_entries": "gaussian", "weight_entries": "gaussian"}
    usual["matrix"] = "attention"
    axes = _axes(findings[0].model)
    common = {
        name: value
        for name, value in axes.items()
        if name not in names and value is not None and usual.get(name) != value and name != "group"
    }
    return values_text(common)


def _overview(analysis: Analysis) -> str:
    parts = []
    for name, findings in _groups(analysis):
        names = _varying(findings)
        laws = list(dict.fromkeys(law for finding in findings for law in finding.model.laws))
        if not laws:
            continue
        keys = [Column(symbol(key), numeric=_numeric(findings, key)) for key in names] or [Column("model", False)]
        columns = [*keys, Column("draws"), Column("noise")]
        for law in laws:
            title = figures.LAW_NAMES.get(law, law)
            columns += [Column("KS", over=title), Column("W<sub>1</sub>", over=title)]
        rows = [_overview_row(finding, names, laws) for finding in findings]
        shared = _shared(findings, names)
        listing = table(columns, rows, shared)
        if len(rows) > _LONG:
            listing = f"<details><summary>{len(rows)} models</summary>\n{listing}</details>"
        parts.append(f"<h3>{text(name)}</h3>\n{listing}{_refusals(findings, names)}")
    if not parts:
        return ""
    note = (
        "Means over draws with 95 % confidence intervals below; the smallest KS distance of a model is in bold. "
        "Noise is the KS distance that sampling alone makes."
    )
    return f'<p class="small">{note}</p>\n' + "\n".join(parts)


def _numeric(findings: Sequence[ModelFinding], name: str) -> bool:
    values = [_axes(finding.model).get(name) for finding in findings]
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def _overview_row(finding: ModelFinding, names: Sequence[str], laws: Sequence[str]) -> list[str]:
    model = finding.model
    cells = [text(value_text(value)) for value in _chosen(model, names).values()] or [text(model.title)]
    wanted = len(model.seeds)
    draws = str(finding.draws)
    cells.append(draws if finding.draws == wanted else f'<span class="open">{draws} of {wanted}</span>')
    cells.append(fixed(finding.noise))
    found = {law.law: law for law in finding.laws}
    known = [law.ks.value for law in finding.laws if law.ks is not None]
    for name in laws:
        mine = found.get(name)
        if mine is None:
            cells += [DASH, DASH]
        elif mine.refusal is not None:
            cells += ['<span class="quiet">refused</span>', DASH]
        else:
            best = mine.ks is not None and len(known) > 1 and mine.ks.value == min(known)
            ks = interval(mine.ks, 4)
            cells += [f'<span class="best">{ks}</span>' if best else ks, interval(mine.wasserstein)]
    return cells


def _refusals(findings: Sequence[ModelFinding], names: Sequence[str]) -> str:
    """Why laws were refused, each reason once."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        for law in finding.laws:
            if law.refusal is not None:
                reasons.setdefault((law.law, law.refusal), []).append(_label(finding, names))
    lines = []
    for (name, reason), models in reasons.items():
        whose = models[0] if len(models) == 1 else f"{len(models)} models, {models[0]} first"
        lines.append(f"<li>{text(figures.LAW_NAMES.get(name, name))} of {whose}: {text(reason)}</li>")
    return f'\n<p class="small">Refused:</p><ul class="small">{"".join(lines)}</ul>' if lines else ""


# --------------------------------------------------------------------------- maps


def _maps(analysis: Analysis, pictures: Pictures) -> str:
    parts = []
    for name, findings in _groups(analysis):
        drawn = _group_maps(name, findings, pictures)
        if drawn:
            parts.append(f"<h3>{text(name)}</h3>\n{drawn}")
    if not parts:
        return ""
    note = "Mean KS distance over draws; paler is nearer to the law. The colour scale is logarithmic and shared."
    return f'<p class="small">{note}</p>\n' + "\n".join(parts)


def _plane(findings: Sequence[ModelFinding]) -> tuple[str, str] | None:
    """Horizontal and vertical axis of a map, numeric and of two values at least; None where there are no two."""
    names = [name for name in _varying(findings) if _numeric(findings, name)]
    if len(names) < 2:
        return None
    vertical = next((name for name in _INVERSE_TEMPERATURES if name in names), names[1])
    others = [name for name in names if name != vertical]
    return ("tokens" if "tokens" in others else others[0]), vertical


def _sorted_values(findings: Sequence[ModelFinding], name: str) -> list[Any]:
    values: Any = {_axes(finding.model)[name] for finding in findings}
    return sorted(values)


def _group_maps(group: str, findings: Sequence[ModelFinding], pictures: Pictures) -> str:
    plane = _plane(findings)
    laws = list(dict.fromkeys(law for finding in findings for law in finding.model.laws))
    if plane is None or not laws:
        return ""
    horizontal, vertical = plane
    columns, rows = _sorted_values(findings, horizontal), _sorted_values(findings, vertical)
    others = [name for name in _varying(findings) if name not in plane]
    panels: dict[str, list[ModelFinding]] = {}
    for finding in findings:
        panels.setdefault(values_text(_chosen(finding.model, others), plain=True), []).append(finding)
    if len(findings) < _FULL * len(panels) * len(columns) * len(rows):
        return ""
    cells = []
    for title, members in panels.items():
        for law in laws:
            if all(law not in member.model.laws for member in members):
                continue
            heading = figures.LAW_NAMES.get(law, law) + (f", {title}" if title else "")
            cells.append(_cells(heading, members, law, (horizontal, columns), (vertical, rows)))
    if not any(np.isfinite(cell.values).any() for cell in cells):
        return ""
    draw = partial(
        figures.map_figure,
        cells,
        [value_text(value) for value in columns],
        [value_text(value) for value in rows],
        plain_symbol(horizontal),
        plain_symbol(vertical),
        len(laws),
    )
    label = f"Maps of the KS distance over {plain_symbol(horizontal)} and {plain_symbol(vertical)}, group {group}"
    return pictures.add(draw, label, _shared(findings, [*plane, *others]))


def _cells(
    title: str,
    findings: Sequence[ModelFinding],
    law: str,
    horizontal: tuple[str, list[Any]],
    vertical: tuple[str, list[Any]],
) -> figures.Cells:
    values = np.full((len(vertical[1]), len(horizontal[1])), np.nan)
    notes = {}
    for finding in findings:
        axes = _axes(finding.model)
        at = (vertical[1].index(axes[vertical[0]]), horizontal[1].index(axes[horizontal[0]]))
        for found in finding.laws:
            if found.law == law and found.ks is not None:
                values[at] = found.ks.value
            elif found.law == law and found.refusal is not None:
                notes[at] = "refused"
    return figures.Cells(title[: 2 * _NAMED], values, notes)


# --------------------------------------------------------------------------- rates


def _rates(analysis: Analysis, pictures: Pictures) -> str:
    parts = []
    for group in dict.fromkeys(rate.group for rate in analysis.rates):
        rates = [rate for rate in analysis.rates if rate.group == group]
        names = list(dict.fromkeys(name for rate in rates for name in rate.axes))
        names = [name for name in names if len({repr(rate.axes.get(name)) for rate in rates}) > 1]
        panels: dict[tuple[str, str], list[Rate]] = {}
        for rate in rates:
            panels.setdefault((rate.law, rate.over), []).append(rate)
        drawn = []
        for (law, over), lines in panels.items():
            labels = [_line_text(rate, names, plain=True)[:_NAMED] for rate in lines]
            title = figures.LAW_NAMES.get(law, law)
            draw = partial(figures.rate_figure, lines, labels, title, plain_symbol(over))
            drawn.append(pictures.add(draw, f"KS distance to the {title} against {plain_symbol(over)}, group {group}"))
        columns = [Column("law", False), Column("line", False), Column("over", False), Column("models")]
        columns += [Column("exponent"), Column("", False)]
        rows = [
            [
                text(figures.LAW_NAMES.get(rate.law, rate.law)),
                _line_text(rate, names) or DASH,
                f"{symbol(rate.over)} {_range(rate)}",
                str(len(rate.points)),
                interval(rate.exponent, 3) + _slack(rate),
                '<span class="badge open">curved</span>' if rate.curved else "",
            ]
            for lines in panels.values()
            for rate in lines
        ]
        parts.append(f'<h3>{text(group)}</h3>\n<div class="panels">{"".join(drawn)}</div>\n{table(columns, rows)}')
    if not parts:
        return ""
    note = (
        "KS ∝ n<sup>exponent</sup>, fitted by least squares of the logarithms over single draws; the band is the 95 % "
        "interval of the exponent, the bars are standard errors. A line is <i>curved</i> where a quadratic term is "
        "significant at the 5 % level: then no exponent describes it, and its fit is dotted. Sampling errors of "
        "matrix-free spectra are not in the interval and stand below it."
    )
    return f'<p class="small">{note}</p>\n' + "\n".join(parts)


def _line_text(rate: Rate, names: Sequence[str], *, plain: bool = False) -> str:
    return values_text({name: rate.axes.get(name) for name in names}, plain=plain)


def _slack(rate: Rate) -> str:
    """What matrix-free estimates may add to the interval."""
    return f'<span class="between">and ± {number(rate.slack, 2)} of estimates</span>' if rate.slack else ""


def _range(rate: Rate) -> str:
    places = [point[0] for point in rate.points]
    return f"{value_text(min(places))} … {value_text(max(places))}" if places else DASH


# --------------------------------------------------------------------------- rows


def _rows(analysis: Analysis, pictures: Pictures) -> str:
    parts = []
    for group, findings in _groups(analysis):
        measured = [finding for finding in findings if finding.rows]
        if not measured:
            continue
        names = _varying(findings)
        statistics = list(dict.fromkeys(name for finding in measured for name in finding.rows))
        drawn = _row_panels(group, measured, names, statistics, pictures)
        keys = [Column(symbol(key), numeric=_numeric(findings, key)) for key in names] or [Column("model", False)]
        columns = [*keys]
        for name in statistics:
            columns += [Column("drawn", over=_row_title(name)), Column("expected", over=_row_title(name))]
        rows = []
        for finding in measured:
            cells = [text(value_text(value)) for value in _chosen(finding.model, names).values()]
            cells = cells or [text(finding.model.title)]
            for name in statistics:
                cells += [interval(finding.rows.get(name)), number(finding.expected_rows.get(name))]
            rows.append(cells)
        listing = table(columns, rows, _shared(findings, names))
        if drawn:
            listing = f"<details><summary>the numbers</summary>\n{listing}</details>"
        parts.append(f"<h3>{text(group)}</h3>\n{drawn}{listing}")
    if not parts:
        return ""
    note = "Means over draws of what each draw has on the average of its rows; bars are standard errors."
    return f'<p class="small">{note}</p>\n' + "\n".join(parts)


def _row_title(name: str) -> str:
    return _ROW_TITLES.get(name, name.replace("_", " "))


def _row_panels(
    group: str,
    findings: Sequence[ModelFinding],
    names: Sequence[str],
    statistics: Sequence[str],
    pictures: Pictures,
) -> str:
    """A panel a statistic, against γ or β or else the first number that varies."""
    numeric = [name for name in names if _numeric(findings, name)]
    if not numeric:
        return ""
    over = next((name for name in _INVERSE_TEMPERATURES if name in numeric), numeric[0])
    others = [name for name in names if name != over]
    lines: dict[str, list[ModelFinding]] = {}
    for finding in sorted(findings, key=lambda finding: float(str(_axes(finding.model)[over]))):
        lines.setdefault(values_text(_chosen(finding.model, others), plain=True), []).append(finding)
    order = {values_text(_chosen(finding.model, others), plain=True): None for finding in findings}
    drawn = []
    for name in statistics:
        curves = [_row_line(label, [f for f in lines[label] if name in f.rows], name, over) for label in order]
        curves = [curve for curve in curves if curve.x]
        values = [value for curve in curves for value in (*curve.y, *(e for e in curve.expected if e is not None))]
        logarithmic = min(values) > 0 and max(values) > 20 * min(values)
        draw = partial(figures.rows_figure, curves, _row_title(name), plain_symbol(over), logarithmic=logarithmic)
        drawn.append(pictures.add(draw, f"{_row_title(name)} against {plain_symbol(over)}, group {group}"))
    return f'<div class="panels">{"".join(drawn)}</div>\n'


def _row_line(label: str, findings: Sequence[ModelFinding], name: str, over: str) -> figures.Line:
    return figures.Line(
        label[:_NAMED],
        tuple(float(str(_axes(finding.model)[over])) for finding in findings),
        tuple(finding.rows[name].value for finding in findings),
        tuple(finding.rows[name].error for finding in findings),
        tuple(finding.expected_rows.get(name) for finding in findings),
    )


# --------------------------------------------------------------------------- models


def _models(analysis: Analysis, pictures: Pictures) -> str:
    findings = [finding for finding in analysis.models if finding.model.laws or finding.edges is not None]
    if not findings:
        return ""
    unfolded, small = len(findings) <= _OPEN_MODELS, len(findings) > _SMALL
    note = (
        "Left, the singular values of all draws as a histogram against the laws; right, distances and top values of "
        f"their squares; below, moments. z is (drawn − law)/error; those beyond {_SUSPICIOUS:g} are in bold."
    )
    parts = [f'<p class="small">{note}</p>']
    if len(findings) > _FIGURES:
        parts.append(f'<p class="small">The first {_FIGURES} models have figures, the others numbers alone.</p>')
    numbered = {id(finding): k for k, finding in enumerate(findings)}
    for group, members in _groups(analysis):
        names = _varying(members)
        members = [finding for finding in members if id(finding) in numbered]
        if not members:
            continue
        parts.append(f"<h3>{text(group)}</h3>")
        for finding in members:
            picture = ""
            if finding.edges is not None and numbered[id(finding)] < _FIGURES:
                draw = partial(figures.model_figure, finding, small=small)
                picture = pictures.add(draw, f"Singular values of {finding.model.title}")
            card = _card(finding, picture)
            label = _label(finding, names)
            if unfolded:
                parts.append(f'<div class="card"><h4>{label}</h4>\n{card}</div>')
            else:
                parts.append(f'<details class="card"><summary>{label}{_gist(finding)}</summary>\n{card}</details>')
    return "\n".join(parts)


def _gist(finding: ModelFinding) -> str:
    if not finding.draws:
        return ' <span class="quiet">· no draws</span>'
    found = [
        f"{text(figures.LAW_NAMES.get(law.law, law.law))} {fixed(law.ks.value)}"
        for law in finding.laws
        if law.ks is not None
    ]
    return f' <span class="quiet">· KS: {", ".join(found)}</span>' if found else ""


def _card(finding: ModelFinding, picture: str) -> str:
    """All that was found of one model."""
    if not finding.draws:
        return '<p class="small">No draws are there yet.</p>'
    wanted = len(finding.model.seeds)
    facts = f"{text(finding.model.title)}; {finding.draws} of {wanted} draws, " + (
        f"sampling noise {fixed(finding.noise)}" if finding.noise is not None else "no sampling noise known"
    )
    if finding.estimate_error is not None:
        facts += f"; matrix-free, sampling error of F at most {number(finding.estimate_error, 2)} (99 %)"
    if finding.zeros:
        facts += f"; {number(100 * finding.zeros, 3)} % of the values are 0 and not in the histogram"
    tables = [_distances(finding.laws), *(_outliers(law) for law in finding.laws)]
    left = picture or "<div></div>"
    return (
        f'<p class="small">{facts}</p>\n<div class="model">{left}<div>{"".join(tables)}</div></div>\n'
        f"{_moments(finding.laws)}"
    )


def _distances(laws: Sequence[LawFinding]) -> str:
    if not laws:
        return ""
    columns = [Column("law", False), Column("KS"), Column("W<sub>1</sub>"), Column("KS, pooled")]
    atoms = any(law.atom for law in laws)
    columns += [Column("share at 0")] * atoms
    rows = []
    for law in laws:
        note = "refused" if law.refusal is not None else law.note
        name = text(figures.LAW_NAMES.get(law.law, law.law))
        name += f'<span class="between">{text(note)}</span>' if note else ""
        if law.refusal is not None:
            rows.append([name, DASH, DASH, DASH] + [DASH] * atoms)
        else:
            cells = [interval(law.ks, 4), interval(law.wasserstein), fixed(law.ks_pooled)]
            rows.append([name, *cells] + [fixed(law.atom)] * atoms)
    return table(columns, rows)


def _outliers(law: LawFinding) -> str:
    """Predicted top values beside those drawn, or why there are none."""
    name = text(figures.LAW_NAMES.get(law.law, law.law))
    if not law.outliers:
        why = law.outliers_refusal
        return f'<p class="small">No top values of the {name}: {text(why)}.</p>' if why else ""
    columns = [Column("rank"), Column("belongs to", False), Column("predicted"), Column("drawn")]
    rows = [[str(row.rank), text(row.origin), number(row.predicted, 5), interval(row.measured)] for row in law.outliers]
    return table(columns, rows, f"Top values against the {name}")


def _moments(laws: Sequence[LawFinding]) -> str:
    """Drawn moments once, then each law's with its z."""
    known = [law for law in laws if law.moments]
    if not known:
        return ""
    columns = [Column("moment"), Column("drawn"), Column("error")]
    for law in known:
        title = figures.LAW_NAMES.get(law.law, law.law)
        columns += [Column("law", over=title), Column("z", over=title)]
    rows = []
    for row in known[0].moments:
        cells = [str(row.order), number(row.sample, 6), number(row.error, 2)]
        for law in known:
            mine = next((moment for moment in law.moments if moment.order == row.order), None)
            cells += [DASH, DASH] if mine is None else [number(mine.law, 6), _score(mine.z)]
        rows.append(cells)
    return table(columns, rows)


def _score(z: float | None) -> str:
    if z is None or not np.isfinite(z):
        return DASH
    shown = f"{z:+.1f}".replace("-", "−") if abs(z) < 1000 else number(z, 2)
    return f'<span class="best">{shown}</span>' if abs(z) > _SUSPICIOUS else shown


# --------------------------------------------------------------------------- reading, run


_READING = """
<p>An attention head of a model is drawn anew, with fresh random numbers, for every draw: n queries on
n<sub>k</sub> keys, head width d<sub>k</sub>, inverse temperature β. A is its row-softmax of β times the scores, and all
is about the squared singular values of √n<sub>k</sub> (A − Ā), where Ā is what the weights average to; figures show the
singular values themselves.</p>
<dl>
<dt>Laws</dt><dd>The <i>limit law</i> is that of the limit theorem, n → ∞ at fixed n/n<sub>k</sub> and
n/d<sub>k</sub>; the <i>finite-size law</i> takes the size of the head into account; <i>Marchenko–Pastur</i> is what
independent entries would give. A law that could not be certified is refused, with the reason.</dd>
<dt>KS</dt><dd>Kolmogorov–Smirnov distance: the largest difference of the distribution functions of a draw and of a law,
between 0 and 1. Even for the right law it is not 0, because a draw has finitely many values.</dd>
<dt>W<sub>1</sub></dt><dd>Wasserstein distance: the area between the distribution functions, in units of the squared
singular values; it sees how far mass is off where KS sees how much.</dd>
<dt>Intervals and error bars</dt><dd>They come from the spread over independent draws alone (Student, 95 %); one draw
has none. They do not cover what a law leaves out: that is what the distances show.</dd>
<dt>Verdicts</dt><dd><span class="badge held">✓ held</span> the whole interval is on the claimed side;
<span class="badge failed">✗ failed</span> it is on the other;
<span class="badge open">? not enough draws</span> it is on both, or there are too few draws for an interval.</dd>
<dt>Power</dt><dd><i>Detectable</i> is the true value nearest to the claim that these draws would have called
failed with probability 95 %. A test that could not have failed under any alternative that the campaign knows says
nothing when it holds, and is marked <span class="badge empty">○ could not have failed</span></dd>
<dt>γ</dt><dd>β² = γ log n<sub>k</sub>: the inverse temperature in the scale on which rows of the softmax freeze.</dd>
</dl>
""".strip()


def _run(analysis: Analysis) -> str:
    import scipy

    versions = [("gequiv", __version__), ("numpy", np.__version__), ("scipy", scipy.__version__)]
    versions.append(("Python", platform.python_version()))
    facts = "".join(f"<li><b>{text(version)}</b>{name}</li>" for name, version in versions)
    return (
        f'<ul class="facts">{facts}</ul>\n<p>Seed {analysis.campaign.seed}. Each draw has a seed of its own, spawned '
        "from the campaign's by the model and the number of the draw; results.csv lists them, and any draw can be "
        "repeated alone.</p>\n"
        f"<details><summary>The campaign file</summary>\n<pre>{text(analysis.campaign.source)}</pre></details>"
    )
