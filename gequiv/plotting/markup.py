"""How pages are written: the frame, the style sheet, escaped text, numbers, tables, names of parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from gequiv._version import __version__
from gequiv.plotting.campaign_figures import FONT, svg_text
from gequiv.simulation.campaign.findings import Estimate
from gequiv.simulation.campaign.model import Scalar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SYMBOLS = {
    "tokens": "n",
    "keys": "n<sub>k</sub>",
    "head_dim": "d<sub>k</sub>",
    "width": "d",
    "beta": "β",
    "gamma": "γ",
    "alibi": "ALiBi slope",
    "token_entries": "token entries",
    "weight_entries": "weight entries",
    "covariance": "covariance eigenvalues",
}
"""Parameters in signs, as HTML; those left out are called what they are called in the file."""
PLAIN_SYMBOLS = {**SYMBOLS, "keys": "nₖ", "head_dim": "dₖ"}
"""The same for figures."""
DASH = '<span class="quiet">–</span>'

STYLE = """
:root { --ink: #1d2126; --quiet: #626970; --rule: #d9dcdf; --pale: #f5f6f7; --accent: #2166ac;
  --held: #1b7837; --failed: #b2182b; --open: #a8650a; --empty: #626970; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 72rem; padding: 2.4rem 1.6rem 4rem; background: #fff; color: var(--ink);
  font: 1.02rem/1.55 Charter, "Bitstream Charter", "Source Serif 4", Georgia, Cambria, "DejaVu Serif", serif; }
h1, h2, h3, h4 { line-height: 1.22; font-weight: 600; text-wrap: balance; }
h1 { font-size: 2.1rem; margin: .1rem 0 .7rem; }
h2 { font-size: 1.45rem; margin: 3rem 0 .9rem; padding-top: .9rem; border-top: 2px solid var(--ink); }
h3 { font-size: 1.12rem; margin: 1.9rem 0 .5rem; }
h4 { font-size: 1rem; margin: 1.3rem 0 .4rem; }
p, dl { max-width: 46rem; margin: .6rem 0; }
a { color: var(--accent); text-decoration: none; }
a:hover { text-decoration: underline; }
code, pre { font: .84rem/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
pre { background: var(--pale); padding: .9rem 1.1rem; overflow-x: auto; white-space: pre-wrap;
  overflow-wrap: anywhere; border-radius: 4px; }
sub { line-height: 0; font-size: .75em; }
.kicker, nav, table, .facts, .badge, .count, figcaption, summary, .small { font-family: SANS; }
.kicker { color: var(--quiet); font-size: .84rem; letter-spacing: .02em; margin: 0; }
.lead { font-size: 1.08rem; overflow-wrap: anywhere; }
.facts { display: flex; flex-wrap: wrap; gap: .5rem 2.2rem; margin: 1.3rem 0 .4rem; padding: 0; list-style: none;
  font-size: .86rem; color: var(--quiet); }
.facts b { display: block; font-size: 1.22rem; font-weight: 600; color: var(--ink);
  font-variant-numeric: tabular-nums; }
nav { font-size: .86rem; margin: 1.4rem 0 0; padding: .55rem 0; border-top: 1px solid var(--rule);
  border-bottom: 1px solid var(--rule); display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; }
.notice { font-family: SANS; font-size: .9rem; border-left: 4px solid var(--open); background: #fdf6ea;
  padding: .6rem .9rem; margin: 1.2rem 0; max-width: none; }
.small { font-size: .82rem; color: var(--quiet); }
.quiet { color: var(--quiet); }
.wide { overflow-x: auto; margin: .7rem 0 1.2rem; }
table { border-collapse: collapse; font-size: .82rem; line-height: 1.35; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--quiet); padding: 0 0 .35rem; }
th { font-weight: 600; text-align: left; vertical-align: bottom; border-bottom: 1.5px solid var(--ink); }
th, td { padding: .3rem .75rem .3rem 0; }
th:last-child, td:last-child { padding-right: .2rem; }
td { vertical-align: top; border-bottom: 1px solid var(--rule); overflow-wrap: break-word; }
.n { text-align: right; white-space: nowrap; }
th.n + th.n, td.n + td.n { padding-left: .75rem; }
th.over { text-align: center; border-bottom: 1px solid var(--quiet); }
.corner { border: 0; }
.between { display: block; color: var(--quiet); font-size: .9em; }
.best { font-weight: 600; }
.best .between { font-weight: 400; }
.text { min-width: 15rem; }
.subject { min-width: 9rem; }
.badge { display: inline-block; font-size: .78rem; font-weight: 600; line-height: 1.2; padding: .16rem .5rem .18rem;
  border-radius: 3px; border: 1.2px solid currentColor; white-space: nowrap; }
td .badge { margin: 0 0 .15rem; }
.held { color: var(--held); } .failed { color: var(--failed); } .open { color: var(--open); }
.empty { color: var(--empty); border-style: dashed; }
.counts { display: flex; flex-wrap: wrap; gap: .4rem 1rem; margin: .8rem 0 1.2rem; max-width: none; }
.claim { margin: 0; padding: .9rem 0 .3rem; border-top: 1px solid var(--rule); }
.claim h3 { margin: 0 0 .25rem; display: flex; flex-wrap: wrap; gap: .3rem .7rem; align-items: baseline;
  overflow-wrap: anywhere; }
figure { margin: .8rem 0 1rem; }
figcaption { font-size: .82rem; color: var(--quiet); max-width: 46rem; margin-top: .25rem; }
svg { display: block; width: 100%; height: auto; }
svg * { stroke-linejoin: round; stroke-linecap: butt; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 28rem), 1fr)); gap: .6rem 2rem; }
.model { display: grid; grid-template-columns: minmax(0, 3fr) minmax(0, 2fr); gap: .2rem 2.4rem; align-items: start; }
.model > * { min-width: 0; }
details { margin: .4rem 0; }
summary { cursor: pointer; font-size: .88rem; color: var(--accent); padding: .2rem 0; overflow-wrap: anywhere; }
details.card { border-top: 1px solid var(--rule); margin: 0; padding: .25rem 0; }
details.card > summary { color: var(--ink); }
dt { font-weight: 600; margin-top: .5rem; } dd { margin: 0; }
footer { margin-top: 3rem; border-top: 1px solid var(--rule); padding-top: .6rem; }
@media screen and (max-width: 50rem) {
  body { padding: 1.4rem 1rem 3rem; font-size: .98rem; }
  h1 { font-size: 1.6rem; }
  .model { grid-template-columns: minmax(0, 1fr); }
}
@page { size: A4; margin: 16mm 15mm 17mm; }
@media print {
  html { font-size: 11.5px; }
  body { max-width: none; padding: 0; }
  nav { display: none; }
  h2, h3, h4, caption, summary { break-after: avoid; }
  tr, figure, svg, .badge, .notice { break-inside: avoid; }
  .model, .card { break-inside: avoid; }
  .model { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); column-gap: 1.2rem; }
  th, td { padding-right: .5rem; }
  section > .small { break-after: avoid; }
  thead { display: table-header-group; }
  .wide { overflow: visible; }
  details::details-content { content-visibility: visible; display: block; }
  details > * { display: block; }
  summary { list-style: none; color: var(--ink); font-weight: 600; }
  a { color: inherit; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
}
""".replace("SANS", FONT)


@dataclass(frozen=True)
class Column:
    """Heading of a table's column, as HTML; numeric ones are aligned right; columns under one `over` share it."""

    heading: str
    numeric: bool = True
    over: str = ""
    style: str = ""


def text(value: object) -> str:
    """Anybody's text as HTML."""
    return escape(str(value), quote=True)


def number(value: float | None, digits: int = 4) -> str:
    """Significant digits, a true minus, powers of ten raised; a dash for None and NaN."""
    if value is None or math.isnan(value):
        return DASH
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    mantissa, _, power = f"{value:.{digits}g}".partition("e")
    raised = f"·10<sup>{int(power)}</sup>" if power else ""
    return (mantissa + raised).replace("-", "−")


def fixed(value: float | None, places: int = 4) -> str:
    """As many places as the column has; a dash for None, and `number` for what that would round to nothing."""
    if value is None or not math.isfinite(value):
        return DASH
    if value != 0 and abs(value) < 10.0**-places:
        return number(value, 2)
    return f"{value:.{places}f}".replace("-", "−")


def interval(estimate: Estimate | None, places: int | None = None) -> str:
    """The value, with its confidence interval below; a dash for None."""
    if estimate is None:
        return DASH
    if estimate.low is None or estimate.high is None:
        shown = number(estimate.value) if places is None else fixed(estimate.value, places)
        return f'{shown}<span class="between">one draw</span>'
    if places is None:
        places = _places(estimate.high - estimate.low, max(abs(estimate.low), abs(estimate.high)))
    ends = (estimate.value, estimate.low, estimate.high)
    value, low, high = (number(end) if places is None else fixed(end, places) for end in ends)
    return f'{value}<span class="between">{low} … {high}</span>'


def _places(width: float, size: float) -> int | None:
    """Decimal places that show two digits of the interval's width; None where numbers need powers of ten."""
    if not (math.isfinite(width) and width > 0 and 1e-5 < size < 1e6):
        return None
    places = max(0, 1 - math.floor(math.log10(width)))
    return places if places <= 8 else None


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """A table of HTML cells, whose heads are repeated on every printed page."""
    heads = []
    if any(column.over for column in columns):
        cells, k = [], 0
        while k < len(columns):
            width = 1
            while k + width < len(columns) and columns[k].over and columns[k + width].over == columns[k].over:
                width += 1
            over = columns[k].over
            cells.append(
                f'<th class="over" colspan="{width}" scope="colgroup">{over}</th>'
                if over
                else '<td class="corner"></td>'
            )
            k += width
        heads.append("<tr>" + "".join(cells) + "</tr>")
    heads.append("<tr>" + "".join(f'<th scope="col"{_class(c)}>{c.heading}</th>' for c in columns) + "</tr>")
    body = [
        "<tr>" + "".join(f"<td{_class(c)}>{cell}</td>" for c, cell in zip(columns, row, strict=True)) + "</tr>"
        for row in rows
    ]
    title = f"<caption>{caption}</caption>" if caption else ""
    return "\n".join(
        ['<div class="wide"><table>', title + "<thead>", *heads, "</thead><tbody>", *body, "</tbody></table></div>"]
    )


def _class(column: Column) -> str:
    names = " ".join(name for name in ("n" * column.numeric, column.style) if name)
    return f' class="{names}"' if names else ""


def symbol(name: str) -> str:
    """A parameter's sign, as HTML."""
    return SYMBOLS.get(name, text(name.replace("_", " ")))


def plain_symbol(name: str) -> str:
    """A parameter's sign, as plain text for figures."""
    return PLAIN_SYMBOLS.get(name, name.replace("_", " "))


def value_text(value: Scalar) -> str:
    """A parameter's value as plain text, in few digits."""
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def values_text(values: Mapping[str, Scalar], *, plain: bool = False) -> str:
    """Parameters in one line: ``β = 0.5, n = 256``; as HTML, or plain for figures."""
    if plain:
        return ", ".join(f"{plain_symbol(name)} = {value_text(value)}" for name, value in values.items())
    return ", ".join(f"{symbol(name)} = {text(value_text(value))}" for name, value in values.items())


# --------------------------------------------------------------------------- the frame


def page(title: str, head: str, sections: Sequence[tuple[str, str, str]], foot: str = "") -> str:
    """A whole page of (name, heading, content); sections without content are left out.

    Parameters
    ----------
    title, head : of the page, as HTML; the head holds its first heading.
    foot : a sentence.
    """
    shown = [section for section in sections if section[2]]
    links = "\n".join(f'<a href="#{name}">{heading}</a>' for name, heading, _ in shown)
    body = "\n".join(f'<section id="{name}">\n<h2>{heading}</h2>\n{part}\n</section>' for name, heading, part in shown)
    written = f"Written by gequiv {text(__version__)}."
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<header>\n{head}\n</header>\n<nav>\n{links}\n</nav>\n<main>\n{body}\n</main>\n"
        f'<footer class="small">{f"{written} {foot}".strip()}</footer>\n</body>\n</html>\n'
    )


@dataclass
class Pictures:
    """Figures of a page, each with a name of its own."""

    count: int = 0

    def add(self, draw: Callable[[], Figure], label: str, caption: str = "") -> str:
        """A figure as HTML."""
        self.count += 1
        picture = svg_text(draw, f"f{self.count}", label)
        note = f"<figcaption>{caption}</figcaption>" if caption else ""
        return f"<figure>\n{picture}\n{note}</figure>"


def counted(count: int, noun: str) -> str:
    """A number of things."""
    return f"{count} {noun}{'s' * (count != 1)}"
