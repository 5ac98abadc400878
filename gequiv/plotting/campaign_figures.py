"""Figures of an analysed campaign, and their text as SVG inside a page.

Figures are made without pyplot under one style, whatever the user's settings are, so that the same analysis gives the
same text. Text of users is never read as mathematics. Numbers on logarithmic axes are written out.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gequiv._checks import Array
from gequiv.plotting.figures import _BARS, _LAW, _QUIET, _REFERENCE, _THEOREM

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gequiv.simulation.campaign.findings import LawFinding, ModelFinding, Rate

FONT = "Helvetica Neue, Helvetica, Arial, Liberation Sans, DejaVu Sans, sans-serif"
"""Of figures and tables; what the figures are laid out with is DejaVu Sans, the widest of these."""
LAW_NAMES = {"finite": "finite-size law", "limit": "limit law", "marchenko-pastur": "Marchenko–Pastur"}
LAW_COLOURS = {"finite": _LAW, "limit": _THEOREM, "marchenko-pastur": _REFERENCE}
_LAW_LINES: dict[str, Any] = {"finite": "-", "limit": (0, (6, 1.5, 1, 1.5)), "marchenko-pastur": (0, (5, 2))}
_MARKERS = "os^Dv<>P"

_CURVE = 220  # points of a curve at most
_SPIKE = 30.0  # highest bar over the median one beyond which a linear axis shows a spike alone
_BESIDE: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.03), "handlelength": 1.6}
_TICKS = 6  # values on an axis that have a tick each
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.0,
    "axes.linewidth": 0.7,
    "axes.edgecolor": _QUIET,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "gequiv",
}


@dataclass(frozen=True)
class Cells:
    """A map: one value for each pair of a horizontal and a vertical value.

    Attributes
    ----------
    title : above it.
    values : (rows, columns), NaN where there is none.
    notes : what a cell without a value says, (row, column) -> text; a dash where nothing is said.
    """

    title: str
    values: Array
    notes: Mapping[tuple[int, int], str]


@dataclass(frozen=True)
class Line:
    """Points with error bars, None for no bar, and dashed reference values, in order of x."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    error: tuple[float | None, ...]
    expected: tuple[float | None, ...]


@contextmanager
def house_style() -> Iterator[None]:
    """The settings that campaign figures are made and written under."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def svg_text(draw: Callable[[], Figure], name: str, label: str) -> str:
    """The figure that `draw` makes, as an SVG element without addresses, dates or identifiers of other figures.

    Parameters
    ----------
    draw : makes the figure; called under `house_style`.
    name : letters and digits, unlike that of any other figure on the page.
    label : what the figure shows, for those who cannot see it.
    """
    buffer = io.StringIO()
    with house_style(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # letters that the layout font lacks are the reader's font's business
        figure = draw()
        for patch in (figure.patch, *(axes.patch for axes in figure.axes)):
            patch.set_visible(False)
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
        width = figure.get_figwidth()
    return _inlined(buffer.getvalue(), name, label, width)


def model_figure(finding: ModelFinding, *, small: bool = False) -> Figure:
    """Histogram of the singular values of all draws against the laws, with predicted outliers as diamonds.

    Bins even in ln s are drawn on a logarithmic axis with the density of ln s, s·ρ(s).
    """
    figure = _figure(3.4, 1.9, left=0.5, bottom=0.42, top=0.12) if small else _figure(6.4, 2.8, top=0.12)
    axes = figure.subplots()
    edges, heights = _given(finding.edges), _given(finding.heights)
    logarithmic = _even_in_logarithm(edges)
    if logarithmic:
        heights = heights * np.diff(edges) / np.diff(np.log(edges))
        axes.set_xscale("log")
    draws = f"{finding.draws} draw" + "s" * (finding.draws != 1)
    axes.stairs(heights, edges, fill=True, color=_BARS, label=draws)
    highest = float(heights.max(initial=0.0))
    for law in finding.laws:
        if law.grid is not None and law.density is not None:
            x, y = _thinned(np.asarray(law.grid), np.asarray(law.density))
            y = y * x if logarithmic else y
            distance = "" if law.ks is None else f" (KS {law.ks.value:.2g})"
            colour = LAW_COLOURS.get(law.law, _QUIET)
            name = LAW_NAMES.get(law.law, law.law) + distance
            axes.plot(x, y, color=colour, ls=_LAW_LINES.get(law.law, "-"), lw=1.3, label=name)
            shown = y[np.isfinite(y)]
            if shown.size:
                highest = max(highest, min(float(np.quantile(shown, 0.99)), 2 * highest))
    _mark_outliers(axes, finding.laws)
    positive = heights[heights > 0]
    if positive.size and highest > _SPIKE * float(np.median(positive)):
        axes.set_yscale("log")
        axes.set_ylim(0.5 * float(positive.min()), 2 * highest)
        _plain_ticks(axes.yaxis)
    else:
        axes.set_ylim(0, 1.08 * highest or 1.0)
    if logarithmic:
        _plain_ticks(axes.xaxis)
    axes.set_xlabel("singular value s")
    axes.set_ylabel("density of ln s" if logarithmic else "density")
    axes.legend(loc="best", borderaxespad=0.1, handlelength=2.2)
    return figure


def map_figure(
    cells: Sequence[Cells], columns: Sequence[str], rows: Sequence[str], horizontal: str, vertical: str, across: int
) -> Figure:
    """Maps side by side with one colour scale, logarithmic, and the number in each cell.

    Parameters
    ----------
    cells : the maps.
    columns, rows : texts of the values along the axes.
    horizontal, vertical : names of the axes.
    across : maps in a line, if they fit.
    """
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    across = min(len(cells), across, max(1, int(9.6 / (0.75 + 0.52 * len(columns)))))
    down = math.ceil(len(cells) / across)
    width, height = 0.52 * len(columns), 0.27 * len(rows)
    size = (across * (width + 0.75) + 0.1, down * (height + 0.82))
    figure = _plain_figure(size)
    values = np.concatenate([cell.values.reshape(-1) for cell in cells])
    values = values[np.isfinite(values) & (values > 0)]
    low, high = (float(values.min()), float(values.max())) if values.size else (0.01, 1.0)
    colours = LinearSegmentedColormap.from_list("agreement", ["#fbf7f0", "#f3cfa4", "#d96b4b", "#8c1024"])
    norm = LogNorm(low * 0.999, max(high, low * 2))
    for index, cell in enumerate(cells):
        row, column = divmod(index, across)
        left = column * (width + 0.75) + 0.65
        bottom = size[1] - (row + 1) * (height + 0.82) + 0.5
        axes = figure.add_axes((left / size[0], bottom / size[1], width / size[0], height / size[1]))
        _draw_map(axes, cell, colours, norm)
        axes.set_title(cell.title, loc="left")
        axes.set_xticks(np.arange(len(columns)), list(columns))
        axes.set_yticks(np.arange(len(rows)), list(rows))
        axes.tick_params(length=0)
        axes.set_xlabel(horizontal)
        if column == 0:
            axes.set_ylabel(vertical)
        else:
            axes.set_yticklabels([])
    return figure


def rate_figure(rates: Sequence[Rate], labels: Sequence[str], title: str, over: str) -> Figure:
    """Mean KS against n on logarithmic axes: error bars, fitted power law, and the band of its exponent's interval.

    Parameters
    ----------
    rates : lines of one panel.
    labels : one a rate, for the legend.
    title : of the panel.
    over : name of the horizontal axis.
    """
    figure = _figure(5.4, 2.8, right=1.9)
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.set_yscale("log")
    colours = _colours(len(rates))
    places: set[float] = set()
    for rate, label, colour, marker in zip(rates, labels, colours, _repeated(_MARKERS), strict=False):
        points = [point for point in rate.points if point[0] > 0 and point[1] > 0]
        places.update(point[0] for point in points)
        if not points:
            continue
        x, y = np.array([point[0] for point in points]), np.array([point[1] for point in points])
        bars = np.array([point[2] or 0.0 for point in points])
        axes.errorbar(x, y, yerr=[np.minimum(bars, 0.999 * y), bars], fmt=marker, ms=4, color=colour, lw=1.0, capsize=2)
        exponent = rate.exponent
        name = f"{label}: " * bool(label) + ("curved" if rate.curved else f"{exponent.value:.2f}".replace("-", "−"))
        line = np.geomspace(x.min(), x.max(), 24 if rate.exponent.low is not None else 2)
        centre = float(np.exp(np.log(x).mean()))
        level = float(np.exp((np.log(y) - exponent.value * np.log(x / centre)).mean()))
        style = (0, (1.5, 1.5)) if rate.curved else "-"
        axes.plot(line, level * (line / centre) ** exponent.value, color=colour, lw=1.1, ls=style, label=name)
        if exponent.low is not None and exponent.high is not None and not rate.curved:
            ends = [level * (line / centre) ** end for end in (exponent.low, exponent.high)]
            axes.fill_between(line, np.minimum(*ends), np.maximum(*ends), color=colour, alpha=0.15, lw=0)
    _ticks_at(axes.xaxis, places)
    _plain_ticks(axes.yaxis)
    axes.set_title(title, loc="left")
    axes.set_xlabel(over)
    axes.set_ylabel("mean KS distance")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(title="exponent", title_fontsize=7.5, alignment="left", **_BESIDE)
    return figure


def rows_figure(lines: Sequence[Line], title: str, over: str, *, logarithmic: bool) -> Figure:
    """A row statistic against one axis, one line a size, with expected values dashed.

    Parameters
    ----------
    lines : what to draw.
    title, over : of the panel and its horizontal axis.
    logarithmic : whether the vertical axis is.
    """
    figure = _figure(5.4, 2.6, right=1.9)
    axes = figure.subplots()
    expected = False
    for line, colour, marker in zip(lines, _colours(len(lines)), _repeated(_MARKERS), strict=False):
        bars = [value or 0.0 for value in line.error]
        axes.errorbar(line.x, line.y, yerr=bars, fmt=f"{marker}-", ms=3.6, lw=1.1, color=colour, label=line.label)
        known = [(x, value) for x, value in zip(line.x, line.expected, strict=True) if value is not None]
        if known:
            axes.plot(*zip(*known, strict=True), color=colour, lw=1.0, ls=(0, (4, 2)))
            expected = True
    if expected:
        axes.plot([], [], color=_QUIET, lw=1.0, ls=(0, (4, 2)), label="log-normal entries")
    if logarithmic:
        axes.set_yscale("log")
        _plain_ticks(axes.yaxis)
    axes.set_title(title, loc="left")
    axes.set_xlabel(over)
    if any(line.label for line in lines) or expected:
        axes.legend(**_BESIDE)
    return figure


def _plain_figure(size: tuple[float, float]) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=size)


def _figure(
    width: float, height: float, *, left: float = 0.62, bottom: float = 0.45, right: float = 0.1, top: float = 0.28
) -> Figure:
    """A figure whose margins are given in inches."""
    figure = _plain_figure((width, height))
    figure.subplots_adjust(left=left / width, bottom=bottom / height, right=1 - right / width, top=1 - top / height)
    return figure


def _given(values: Array | None) -> Array:
    return np.empty(0) if values is None else np.asarray(values, dtype=np.float64)


def _even_in_logarithm(edges: Array) -> bool:
    if edges.size < 3 or edges[0] <= 0:
        return False
    steps = np.diff(np.log(edges))
    return bool(np.ptp(steps) < 1e-6 * steps.mean() and np.ptp(np.diff(edges)) > 1e-6 * edges[-1])


def _thinned(x: Array, y: Array) -> tuple[Array, Array]:
    """Every so many-th point, with the gaps (not finite) and the highest of each stretch kept."""
    if x.size <= _CURVE:
        return x, np.where(np.isfinite(y), y, np.nan)
    step = math.ceil(2 * x.size / _CURVE)
    finite = np.where(np.isfinite(y), y, -1.0)
    keep = {0, x.size - 1}
    for start in range(0, x.size, step):
        stretch = finite[start : start + step]
        keep.update((start, start + int(stretch.argmax())))
        gaps = np.flatnonzero(stretch < 0)
        if gaps.size:
            keep.update((start + int(gaps[0]), start + int(gaps[-1])))
    chosen = np.array(sorted(keep))
    return x[chosen], np.where(np.isfinite(y), y, np.nan)[chosen]


def _mark_outliers(axes: Axes, laws: Sequence[LawFinding]) -> None:
    """Diamonds on dotted stems where the first law that predicts outliers has them."""
    for law in laws:
        places = [math.sqrt(row.predicted) for row in law.outliers if row.origin != "edge" and row.predicted >= 0]
        for k, place in enumerate(places):
            axes.plot(
                [place] * 2,
                [0, 0.3],
                transform=axes.get_xaxis_transform(),
                color=LAW_COLOURS.get(law.law, _QUIET),
                lw=1.0,
                ls=":",
                marker="D",
                markevery=[1],
                ms=4,
                label="predicted outlier" + "s" * (len(places) > 1) if k == 0 else None,
            )
        if places:
            return


def _draw_map(axes: Axes, cell: Cells, colours: Any, norm: Any) -> None:
    from matplotlib.patches import Rectangle

    rows, columns = cell.values.shape
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(-0.5, rows - 0.5)
    for spine in axes.spines.values():
        spine.set_visible(False)
    for row in range(rows):
        for column in range(columns):
            value = float(cell.values[row, column])
            known = math.isfinite(value)
            face = colours(norm(max(value, norm.vmin))) if known else "#f4f4f4"
            axes.add_patch(Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, facecolor=face, lw=0))
            dark = known and float(np.dot(face[:3], (0.299, 0.587, 0.114))) < 0.55
            text = short(value) if known else cell.notes.get((row, column), "–")
            ink = "white" if dark else "#222222" if known else _QUIET
            axes.text(column, row, text, ha="center", va="center", fontsize=7, color=ink)


def short(value: float) -> str:
    """A distance in few letters: three digits from 0.1 on, two below."""
    if value == 0:
        return "0"
    if abs(value) >= 0.001:
        return f"{value:.3f}" if abs(value) < 10 else f"{value:.3g}"
    return f"{value:.0e}".replace("e-0", "e-").replace("-", "−")


def _colours(count: int) -> list[str]:
    """From the house's blue through orange to its red, in order."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    if count == 1:
        return [_LAW]
    scale = LinearSegmentedColormap.from_list("house", [_REFERENCE, _THEOREM, _LAW])
    return [to_hex(scale(index / max(1, count - 1))) for index in range(count)]


def _repeated(texts: str) -> Iterator[str]:
    while True:
        yield from texts


def _plain_ticks(axis: Any) -> None:
    """Ticks of a logarithmic axis at 1, 2, 5 of a few decades, or at whole decades, as plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = sorted(axis.get_view_interval())
    decades = math.log10(high / low) if low > 0 else 1.0
    subs = (1.0, 2.0, 5.0) if decades < 2.5 else (1.0,)
    axis.set_major_locator(LogLocator(subs=subs, numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("e-0", "e−")))
    axis.set_minor_formatter(NullFormatter())


def _ticks_at(axis: Any, places: set[float]) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    if not places or len(places) > _TICKS:
        _plain_ticks(axis)
        return
    at = sorted(places)
    axis.set_major_locator(FixedLocator(at))
    axis.set_major_formatter(FixedFormatter([f"{value:g}" for value in at]))
    axis.set_minor_locator(NullLocator())


_IDENTIFIER = re.compile(r' id="([^"]*)"')
_USED = re.compile(r'(?:url\(#|href="#)([^")]+)')


def _inlined(text: str, name: str, label: str, width: float) -> str:
    """matplotlib's file as an element: identifiers of its own, short numbers, nothing that speaks of other places."""
    from html import escape

    text = text[text.index("<svg") :]
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    box = re.search(r'viewBox="([^"]*)"', text)
    body = text[text.index(">") + 1 :]
    names = {used: f"{name}-{k}" for k, used in enumerate(dict.fromkeys(_USED.findall(body)))}
    body = _IDENTIFIER.sub(lambda found: f' id="{names[found[1]]}"' if found[1] in names else "", body)
    body = _USED.sub(lambda found: found[0].replace(found[1], names[found[1]]), body)
    body = re.sub(
        r'( (?:d|x|y|width|height|transform|points)=")([^"]*)"', lambda found: f'{found[1]}{_rounded(found[2])}"', body
    )
    body = body.replace("'DejaVu Sans', sans-serif", FONT).replace("'DejaVu Sans'", FONT)
    body = re.sub(r"<defs>\s*</defs>", "", body)
    while (fewer := re.sub(r"<g>\s*</g>", "", body)) != body:
        body = fewer
    body = re.sub(r"\s*\n\s*(?=[LMCQz\"])", "", re.sub(r"\s*\n\s*", "\n", body)).strip()
    view = box[1] if box else "0 0 100 100"
    return f'<svg role="img" aria-label="{escape(label)}" viewBox="{view}" style="max-width:{width:.2f}in">\n{body}'


def _rounded(text: str) -> str:
    return re.sub(r"-?\d+\.\d+(?:e-?\d+)?", lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), text)
