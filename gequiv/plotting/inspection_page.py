"""The page of an inspection: one HTML file that needs nothing else, for a screen and for paper.

The same report gives the same bytes: there are no times, places or scripts in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gequiv.plotting.inspection_figures import head_figure, inspection_figure, maps_of, null_of, title_of
from gequiv.plotting.markup import DASH, Column, Pictures, counted, fixed, number, page, table, text
from gequiv.simulation.campaign.tables import write_text

if TYPE_CHECKING:
    from gequiv.inspection.report import HeadReport, OutlyingDirection, Report

_LONG = 60  # rows of a table beyond which it is folded away
_SPECTRA = 6
_DIRECTIONS = 300  # outliers that are told, those furthest outside
_TOKEN = 24  # letters of a token's text
_LISTED = 4  # tokens told of a vector


def write_inspection(report: Report, path: str | Path, *, title: str | None = None) -> None:
    """Write a report as one HTML file; an earlier one is replaced by the whole new one or stays.

    Parameters
    ----------
    report : of `gequiv.inspect_attention` or `gequiv.inspect_model`.
    path : of the file.
    title : of the page; None names what was inspected.

    Raises
    ------
    ParameterError : the report has no heads.
    StorageError : the file cannot be written.
    """
    write_text(Path(path), page_text(report, title))


def page_text(report: Report, title: str | None = None) -> str:
    """The report as HTML."""
    pictures = Pictures()
    title = text(title or f"Attention heads of {report.source}")
    sections = [
        ("maps", "Maps", _maps(report, pictures)),
        ("nulls", "What explains the heads", _nulls(report)),
        ("spectra", "Spectra", _spectra(report, pictures)),
        ("heads", "Heads", _heads(report)),
        ("outliers", "Outside the bulk", _outliers(report)),
        ("quantities", "What the quantities mean", _quantities(report)),
    ]
    return page(title, _head(report, title), sections)


# --------------------------------------------------------------------------- head


def _head(report: Report, title: str) -> str:
    heads = report.heads
    layers = len({head.layer for head in heads})
    sizes = sorted({(head.tokens, head.keys) for head in heads})
    outlying = sum(bool(head.outliers) for head in heads)
    facts = [
        (str(len(heads)), f"head{'s' * (len(heads) != 1)}" + (f" in {counted(layers, 'layer')}" if layers > 1 else "")),
        (str(report.random), "pass as random"),
        (str(outlying), "with singular values outside the bulk"),
        (" … ".join(_size(*size) for size in ((sizes[0], sizes[-1]) if len(sizes) > 1 else sizes)), "queries × keys"),
        (f"{report.level:g}", "level"),
    ]
    if report.untested:
        facts.insert(2, (str(report.untested), "could not be tested"))
    summary = report.summary[:1].upper() + report.summary[1:]
    level = (
        f"Each head is held against random heads of its sizes. If all of them were random, any at all would be called "
        f"otherwise with probability at most {100 * report.level:g} %: the level is that of the whole inspection. A "
        "head passes as random where nothing tells it from a random one at these sizes, which is no proof that it is."
    )
    return "\n".join(
        [
            f'<p class="kicker">gequiv inspect · {text(report.source)}</p>',
            f"<h1>{title}</h1>",
            f'<p class="lead">{text(summary)}.</p>',
            '<ul class="facts">' + "".join(f"<li><b>{value}</b>{name}</li>" for value, name in facts) + "</ul>",
            f"<p>{level}</p>",
        ]
    )


def _size(tokens: int, keys: int) -> str:
    return f"{tokens} × {keys}"


_BADGES = {
    "random": '<span class="badge empty">○ random</span>',
    "not random": '<span class="badge">● not random</span>',
    "untested": '<span class="badge open">? untested</span>',
}


def _place(report: Report, head: HeadReport) -> str:
    return f"layer {head.layer}, head {head.head}" if report.layered else f"head {head.head}"


# --------------------------------------------------------------------------- maps


def _maps(report: Report, pictures: Pictures) -> str:
    if len(report.heads) == 1:
        return ""
    drawn = [
        pictures.add(partial(_map, report, what), f"Map of the heads: {title_of(report, what)}")
        for what in maps_of(report)
        if _told(report, what)
    ]
    note = (
        "Every cell is a head; layers from the top down. Rings are on heads that pass. Grey cells have no value: there "
        "is no law at their β, or none was tried."
    )
    if len(report.heads) <= _LONG:
        maps = f'<div class="panels">{"".join(drawn)}</div>'
    else:
        others = "\n".join(drawn[1:])
        maps = f"{drawn[0]}\n<details><summary>{counted(len(drawn) - 1, 'more map')}</summary>\n{others}</details>"
    return f'<p class="small">{note}</p>\n{maps}'


def _told(report: Report, what: str) -> bool:
    """Whether a map has something to show; that of the first null's distance is the map of "ks"."""
    if what == "ks:sizes":
        return False
    if what in ("directions", "beta"):
        return any(getattr(head, what) is not None for head in report.heads)
    return True


def _map(report: Report, what: str) -> Any:
    return inspection_figure(report, what).get_figure(root=True)


# --------------------------------------------------------------------------- nulls


def _null_names(report: Report) -> list[str]:
    return list(dict.fromkeys(null.name for head in report.heads for null in head.nulls))


def _nulls(report: Report) -> str:
    names = _null_names(report)
    if not names:
        return ""
    held = [head for head in report.heads if head.nulls]
    columns = [Column("null", False), Column("crudest that passes"), Column("passes"), Column("median KS")]
    rows = []
    for name in names:
        nulls = [null for head in held if (null := null_of(head, name)) is not None]
        distances = sorted(null.ks for null in nulls if null.ks is not None)
        first = sum(head.explained_by == name for head in held)
        median = distances[len(distances) // 2] if distances else None
        rows.append([text(name), str(first), str(sum(null.passes for null in nulls)), fixed(median)])
    rows.append(["none of them", str(sum(head.explained_by is None for head in held)), DASH, DASH])
    note = (
        "Three nulls, each of which knows more: the sizes and one fitted β; the weights of the head, with isotropic "
        "tokens; the weights, and covariance and mean of the tokens. A head that a null explains needs nothing else."
    )
    return f"<p>{note}</p>\n{table(columns, rows, f'Number of heads, of {len(held)}')}"


# --------------------------------------------------------------------------- spectra


def _notable(report: Report) -> list[tuple[HeadReport, str]]:
    """A few heads with a spectrum, and why they are told."""
    heads = [head for head in report.heads if head.spectrum is not None and head.spectrum.max(initial=0.0) > 0]
    away = [head for head in heads if not head.random]
    lawful = [head for head in heads if head.ks is not None]
    far = sorted(lawful, key=lambda head: -(head.ks or 0.0))
    many = sorted((head for head in heads if head.outliers), key=lambda head: -len(head.outliers))
    strong = sorted(many, key=lambda head: -head.outliers[0].over_edge)
    rank = sorted(away, key=lambda head: head.effective_rank)
    near = sorted((head for head in lawful if head.random), key=lambda head: head.ks or 0.0)
    chosen: list[tuple[HeadReport, str]] = []

    def add(candidates: list[HeadReport], why: str) -> None:
        new = [head for head in candidates if all(head is not other for other, _ in chosen)]
        if new and len(chosen) < _SPECTRA:
            chosen.append((new[0], why))

    add(far, "largest KS distance")
    add(many, "most singular values outside the bulk")
    add(near[len(near) // 2 :], "a typical one of those that pass as random")
    add(strong, "furthest outside the bulk")
    add(rank, "lowest effective rank of those not random")
    add(near, "smallest KS distance of those that pass as random")
    for head in heads:
        add([head], "")
    return chosen


def _spectra(report: Report, pictures: Pictures) -> str:
    drawn = []
    for head, why in _notable(report):
        name = _place(report, head)
        label = f"Singular values of {name} against its law"
        caption = f"<b>{name[:1].upper() + name[1:]}</b>" + (f" · {why}" if why else "")
        drawn.append(pictures.add(partial(_spectrum, head), label, f"{caption}<br>{text(head.verdict)}"))
    if not drawn:
        return ""
    note = (
        "Histograms of singular values against the law of the head's own β, to which nothing else is fitted. On a "
        "logarithmic axis the density is that of ln s."
    )
    return f'<p class="small">{note}</p>\n<div class="panels">{"".join(drawn)}</div>'


def _spectrum(head: HeadReport) -> Any:
    return head_figure(head).get_figure(root=True)


# --------------------------------------------------------------------------- heads


def _heads(report: Report) -> str:
    names = [name for name in _null_names(report) if name != "sizes"]  # whose numbers the head's own are
    columns = [Column("layer")] * report.layered + [Column("head")]
    sized = len({(head.tokens, head.keys) for head in report.heads}) > 1
    columns += [Column("queries × keys")] * sized
    columns += [Column(name, over="β by") for name in ("energy", "entropy", "scores")]
    columns += [Column("directions"), Column("KS"), Column("outside"), Column("rank"), Column("p")]
    columns += [Column("KS, p", over=text(name)) for name in names]
    columns.append(Column("verdict", False, style="text"))
    shared = [finding for finding in report.heads[0].findings if all(finding in head.findings for head in report.heads)]
    rows = [_row(report, head, names, shared, sized=sized) for head in report.heads]
    listing = table(columns, rows, f"Of every head: {text('; '.join(shared))}" if shared and len(rows) > 1 else "")
    if len(rows) > _LONG:
        listing = f"<details><summary>all {len(rows)} heads</summary>\n{listing}</details>"
    note = "p is adjusted to all heads of the inspection, and held against the level; – where there is no value."
    if names:
        note += " Of the further nulls KS with p below, in bold where the null passes."
    return f'<p class="small">{note}</p>\n{listing}'


def _row(report: Report, head: HeadReport, names: list[str], shared: list[str], *, sized: bool) -> list[str]:
    cells = [str(head.layer)] * report.layered + [str(head.head)]
    cells += [_size(head.tokens, head.keys)] * sized
    cells += [number(beta, 3) for beta in (head.beta, head.beta_entropy, head.beta_scores)]
    cells += [number(head.directions, 3), fixed(head.ks), str(len(head.outliers))]
    cells += [number(head.effective_rank), number(head.p_adjusted, 2)]
    for name in names:
        null = null_of(head, name)
        if null is None:
            cells.append(DASH)
            continue
        shown = f'{fixed(null.ks)}<span class="between">{number(null.p_adjusted, 2)}</span>'
        cells.append(f'<span class="best">{shown}</span>' if null.passes else shown)
    state = head.state
    words = head.verdict.removeprefix(state).removeprefix(": ")
    others = [finding for finding in head.findings if finding not in shared or len(report.heads) == 1]
    if head.nulls:
        others.insert(0, f"explained by {head.explained_by}" if head.explained_by else "explained by no null")
    more = f'<span class="between">{text("; ".join(others))}</span>' if others else ""
    return [*cells, f"{_BADGES[state]} {text(words)}{more}"]


# --------------------------------------------------------------------------- outliers


def _outliers(report: Report) -> str:
    found = [(head, outlier) for head in report.heads for outlier in head.outliers]
    if not found:
        return ""
    note = (
        "Singular values beyond the largest that chance allows, with the tokens of the largest entries of their "
        "vectors: queries of positive entries look more at the keys of positive entries and less at those of negative "
        "ones, the others the other way round."
    )
    told = found
    if len(found) > _DIRECTIONS:
        told = sorted(found, key=lambda pair: -pair[1].over_edge)[:_DIRECTIONS]
        note += f" The {_DIRECTIONS} of {len(found)} that are furthest outside are told."
    columns = [Column("layer")] * report.layered + [Column("head"), Column("s"), Column("s² / edge")]
    columns += [Column("kind", False), Column("keys", False, style="text"), Column("of effectively")]
    columns += [Column("queries", False, style="text"), Column("of effectively")]
    tokens = report.tokens
    listing = table(columns, (_direction(report, head, outlier, tokens) for head, outlier in told))
    if len(told) > _LONG:
        listing = f"<details><summary>{len(told)} directions</summary>\n{listing}</details>"
    return f'<p class="small">{note}</p>\n{listing}'


def _direction(report: Report, head: HeadReport, outlier: OutlyingDirection, tokens: Any) -> list[str]:
    cells = [str(head.layer)] * report.layered + [str(head.head), number(outlier.value**0.5)]
    cells += [number(outlier.over_edge, 3), text(outlier.kind)]
    if not outlier.keys:  # only the largest have their vectors
        return [*cells, DASH, DASH, DASH, DASH]
    keys = ", ".join(_entries(outlier.keys, outlier.key_weights, tokens))
    queries = ", ".join(_entries(outlier.queries, outlier.query_weights, tokens))
    if outlier.kind == "column":
        queries = "all alike"
    return [*cells, keys, number(outlier.spread_keys, 3), queries, number(outlier.spread_queries, 3)]


def _entries(numbers: tuple[int, ...], weights: tuple[float, ...], tokens: Any) -> Iterator[str]:
    for k, weight in list(zip(numbers, weights, strict=True))[:_LISTED]:
        signed = f"{weight:+.2f}".replace("-", "−")
        name = str(k)
        if tokens is not None and 0 <= k < len(tokens):
            name = f"<code>{text(_visible(str(tokens[k])))}</code> {k}"
        yield f'{name} <span class="quiet">({signed})</span>'


def _visible(token: str) -> str:
    """A token on one line, with its spaces and breaks to be seen, and not too long."""
    shown = token.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥")
    shown = "".join(letter if letter.isprintable() else "·" for letter in shown)
    return shown if len(shown) <= _TOKEN else shown[: _TOKEN - 1] + "…"


# --------------------------------------------------------------------------- quantities


def _quantities(report: Report) -> str:
    masked = any(head.mask != "none" for head in report.heads)
    entries = [*_ALWAYS[:2], *([_MASKED] if masked else []), *_ALWAYS[2:]]
    if any(head.nulls for head in report.heads):
        entries += _OF_NULLS
    return "<dl>\n" + "\n".join(f"<dt>{name}</dt><dd>{meaning}</dd>" for name, meaning in entries) + "\n</dl>"


_ALWAYS = (
    (
        "Random head",
        "A = row-softmax(β Q Kᵀ/√d<sub>k</sub>) with independent Gaussian weights, scaled so that scores have variance "
        "β². A head passes as random if its spectrum and its two β cannot be told from those of random heads of the "
        "same number of queries, keys and inner directions.",
    ),
    (
        "Singular values",
        "Those of √n<sub>k</sub> (A − Ā). Ā is what the weights of a row average to: 1/n<sub>k</sub> without a mask, "
        "1/k<sub>i</sub> on the k<sub>i</sub> keys that row i sees with one. Without a mask the mean of every column "
        "is taken out as well; it is the column direction.",
    ),
    (
        "β by energy",
        "The inverse temperature at which a random head has the second moment of A, the mean over rows of "
        "n<sub>k</sub> Σ<sub>j</sub> A<sub>ij</sub>² − 1, near e^(β²) − 1 for many keys; without a mask what lies "
        "outside the bulk is taken out. The law is that of this β.",
    ),
    (
        "β by entropy",
        "The inverse temperature at which a random head has the mean entropy of the rows, "
        "−Σ<sub>j</sub> A<sub>ij</sub> log A<sub>ij</sub>, near log n<sub>k</sub> − β²/2.",
    ),
    (
        "β by scores",
        "The standard deviation of the scores, or of log A, once the mean of every row is taken out. The three agree "
        "where scores are Gaussian.",
    ),
    (
        "Directions",
        "Effective number of inner directions of the scores, (Σ m<sub>a</sub>²)²/Σ m<sub>a</sub>⁴ over their singular "
        "values m<sub>a</sub>; at most the head width d<sub>k</sub>.",
    ),
    (
        "KS",
        "Kolmogorov–Smirnov distance of the bulk from the law: the largest difference of the distribution functions of "
        "the squared singular values, between 0 and 1. Even a random head is not at 0.",
    ),
    (
        "Edge, outside",
        "The edge is the largest squared singular value that chance allows at the level, from drawn random heads; "
        "those beyond it are outside the bulk. s²/edge is how far. Kinds: <i>column</i>, the left vector is nearly "
        "constant, so that all queries look more at the same keys; <i>local</i>, one of the vectors sits on few "
        "tokens; else <i>direction</i>. Chance makes local ones by single large entries, so that these are held to a "
        "higher edge. The effective number of tokens of a vector v is 1/Σ v<sub>i</sub>⁴.",
    ),
    (
        "Rank",
        "Effective rank of A: exp(−Σ p<sub>i</sub> log p<sub>i</sub>) of the singular values of A over their sum, "
        "p<sub>i</sub> = s<sub>i</sub>/Σ s<sub>j</sub> (Roy, Vetterli 2007).",
    ),
    (
        "p",
        "KS of the bulk, the largest value (of all directions, and of those that are not local) and β by "
        "entropy over β by energy are each held against those of drawn random heads. The probabilities are put "
        "together by Bonferroni's method, those of all heads by Holm's.",
    ),
)
_MASKED = (
    "With a mask",
    "What lies outside the bulk is looked for in the matrix of rows √k<sub>i</sub> (A − Ā)<sub>i</sub>, whose rows "
    "have equal energy in a random head; else the first rows, which see few keys, would hide all others. "
    "Where directions that are not local are looked for, entries beyond the root of half the mean energy of a row are "
    "cut to it, so that single large ones do not hide what is spread over many tokens.",
)
_OF_NULLS = (
    (
        "Null “sizes”",
        "A random head of the same sizes and mask; its β is fitted to the head.",
    ),
    (
        "Null “weights”",
        "The head's own W<sub>Q</sub> and W<sub>K</sub> on isotropic tokens: nothing is fitted, β and the inner "
        "directions follow from the singular values of W<sub>Q</sub> W<sub>K</sub>ᵀ.",
    ),
    (
        "Null “weights and tokens”",
        "The same with covariance and mean of the tokens that come in; the mean of the queries adds a column bias. A "
        "head that passes it and not the others is as random as its tokens: it does nothing that depends on what they "
        "are beyond that.",
    ),
)
