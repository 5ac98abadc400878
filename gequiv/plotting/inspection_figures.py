"""Figures of an inspection: a map of all heads, and the spectrum of one head against its law."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gequiv._checks import Array
from gequiv.errors import ParameterError
from gequiv.plotting.campaign_figures import _plain_figure, _plain_ticks, house_style
from gequiv.plotting.figures import _BARS, _LAW, _QUIET, _REFERENCE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gequiv.inspection.report import HeadReport, NullReport, OutlyingDirection, Report
    from gequiv.inspection.tables import LawTable

_TITLES = {
    "ks": "KS distance of the bulk from the law",
    "beta": "β of the bulk",
    "outliers": "singular values outside the bulk",
    "effective_rank": "effective rank of A",
    "directions": "effective number of inner directions",
}
"""What a map can show of every report."""

_COLOURS = "viridis_r"  # even steps to every eye, and in grey
_SHADES = 48  # of more the bar would be an image
_UNKNOWN = "#ededef"
_ONE_LINE = 16  # heads without layers that lie in one line
_LOGARITHMIC = 10.0  # largest over smallest, beyond which the colour scale is logarithmic
_MANY = 12  # outliers beyond which the colours are even in the root of their number
_WIDTH, _HEIGHT = 0.52, 0.32  # of a cell, at most, in inches
_LABELLED = (0.4, 0.19)  # cells of this size have their number in them
_TICKS = 16  # on an axis, at most
_LEGEND = 2.6  # its width, inches

_FAR = 6.0  # of what is marked over the median, beyond which the axis is logarithmic
_LEFT_OUT = 0.02  # share of the law left of a logarithmic axis
_POINTS = 300  # of the density of drawn heads
_GAP = 3.0  # step of the quantiles over those beside it, beyond which it is a gap of the support
_BLUR = 0.06  # width of the kernel for drawn heads, over the range of ln s of eight tenths of them


def inspection_figure(report: Report, what: str = "ks", *, axes: Axes | None = None) -> Axes:
    """Heat map of layers × heads, with an open ring on every head that passes as random.

    Layer 0 is the uppermost row. Heads of one layer, or without layers, are laid out in lines, to the right and down.
    Grey cells have no value: no law at this β, or none tried. Numbers are in the cells where they fit.

    Parameters
    ----------
    report : of `gequiv.inspect_attention` or `gequiv.inspect_model`.
    what : "ks", "beta", "outliers" (their number), "effective_rank" or "directions"; where heads were held against
        nested nulls also "ks:" with the name of one, and rings where that null passes.
    axes : where to draw; None makes a figure.

    Raises
    ------
    ParameterError : `what` is none of these, or the report has no heads.
    """
    quantity = _quantity(report, what)
    plan = _plan(report)
    values = np.full((plan.rows, plan.columns), np.nan)
    for head, place in zip(report.heads, plan.places, strict=True):
        value = quantity.value(head)
        values[place] = math.nan if value is None else value
    rings = [place for head, place in zip(report.heads, plan.places, strict=True) if quantity.passes(head)]
    with house_style() if axes is None else nullcontext():
        bar = None
        if axes is None:
            axes, bar = _new_map(plan)
        _draw_map(axes, bar, plan, values, rings, quantity)
    return axes


def head_figure(head_report: HeadReport, *, axes: Axes | None = None) -> Axes:
    r"""Histogram of a head's singular values of √n_k (A - Ā) against the law, with the edge and what lies outside.

    The curve is the density of the law of the head's own β, or of drawn random heads where no law was certified. The
    vertical lines are the largest values that chance allows, without and with localised vectors; diamonds are what lies
    beyond, open ones such directions as are the same for all queries. With a mask lines and diamonds are of the matrix
    of rows √k_i (A - Ā)_i. Where the values reach over decades the axis is logarithmic and the density that of ln s.

    Parameters
    ----------
    head_report : of a report made in this process: one that keeps its spectrum.
    axes : where to draw; None makes a figure.

    Raises
    ------
    ParameterError : the head has no spectrum.
    """
    if head_report.spectrum is None or not np.max(head_report.spectrum, initial=0.0) > 0:
        raise ParameterError(
            "head_report must have singular values other than 0; it has none, or has lost its spectrum"
        )
    with house_style() if axes is None else nullcontext():
        if axes is None:
            figure = _plain_figure((5.4, 2.6))
            figure.subplots_adjust(left=0.6 / 5.4, right=1 - 0.12 / 5.4, bottom=0.45 / 2.6, top=1 - 0.12 / 2.6)
            axes = figure.subplots()
        _draw_head(axes, head_report)
    return axes


# --------------------------------------------------------------------------- what a map shows


@dataclass(frozen=True)
class _Quantity:
    """A number of every head, and whether the head passes."""

    title: str
    ring: str
    value: Callable[[HeadReport], float | None]
    passes: Callable[[HeadReport], bool]
    counts: bool = False
    from_zero: bool = False


def maps_of(report: Report) -> list[str]:
    """All that `inspection_figure` can show of the report."""
    names = dict.fromkeys(null.name for head in report.heads for null in head.nulls)
    return [*_TITLES, *(f"ks:{name}" for name in names)]


def title_of(report: Report, what: str) -> str:
    """What such a map shows, in words."""
    return _quantity(report, what).title


def null_of(head: HeadReport, name: str) -> NullReport | None:
    """The head against the null of that name."""
    return next((null for null in head.nulls if null.name == name), None)


def _quantity(report: Report, what: str) -> _Quantity:
    if not report.heads:
        raise ParameterError("report must have at least one head; it has none")
    known = maps_of(report)
    if what not in known:
        raise ParameterError(f"what must be one of {', '.join(map(repr, known))}; got {what!r}")
    if what in _TITLES:
        value = (lambda head: float(len(head.outliers))) if what == "outliers" else lambda head: getattr(head, what)
        zero = what in ("ks", "outliers")
        return _Quantity(
            _TITLES[what], "passes as random", value, lambda head: head.random, what == "outliers", from_zero=zero
        )
    name = what.partition(":")[2]

    def ks(head: HeadReport) -> float | None:
        null = null_of(head, name)
        return None if null is None else null.ks

    def passes(head: HeadReport) -> bool:
        null = null_of(head, name)
        return null is not None and null.passes

    return _Quantity(f"{_TITLES['ks']} of {name}", f"explained by {name}", ks, passes, from_zero=True)


@dataclass(frozen=True)
class _Plan:
    """Where the heads lie: their places in order, and what rows and columns are called."""

    rows: int
    columns: int
    places: list[tuple[int, int]]
    row_names: list[str]
    column_names: list[str]
    vertical: str
    horizontal: str


def _plan(report: Report) -> _Plan:
    layers = sorted({head.layer for head in report.heads})
    if len(layers) > 1:
        columns = 1 + max(head.head for head in report.heads)
        places = [(layers.index(head.layer), head.head) for head in report.heads]
        names = [str(layer) for layer in layers]
        return _Plan(len(layers), columns, places, names, [str(k) for k in range(columns)], "layer", "head")
    count = len(report.heads)
    layer = f"layer {layers[0]}" if report.layered else ""
    heads = [head.head for head in report.heads]
    if count <= _ONE_LINE:
        return _Plan(1, count, [(0, k) for k in range(count)], [""], [str(head) for head in heads], layer, "head")
    columns = next(c for c in (8, 16, 32, count) if count <= 4 * c * c / 8 or c == 32)
    rows = math.ceil(count / columns)
    names = [f"{heads[k * columns]}–{heads[min(count, (k + 1) * columns) - 1]}" for k in range(rows)]
    across = [f"+{k}" for k in range(columns)]
    return _Plan(rows, columns, [divmod(k, columns) for k in range(count)], names, across, "heads", layer)


# --------------------------------------------------------------------------- the map


def _new_map(plan: _Plan) -> tuple[Axes, Axes]:
    """A figure of the size that the cells need: the map's axes, and those of its colours."""
    width = plan.columns * min(_WIDTH, max(0.26, 9.0 / plan.columns))
    height = plan.rows * min(_HEIGHT, max(0.2, 7.0 / plan.rows))
    left, right, bottom, top = 0.7, 0.85, 0.75, 0.35
    beside = left + max(width, _LEGEND) + 0.15
    size = (beside + right - 0.15, height + bottom + top)
    figure = _plain_figure(size)
    axes = figure.add_axes((left / size[0], bottom / size[1], width / size[0], height / size[1]))
    tall = max(height, 0.9)  # the colours of a single line reach below it
    low = bottom + height - tall
    bar = figure.add_axes((beside / size[0], low / size[1], 0.12 / size[0], tall / size[1]))
    return axes, bar


def _draw_map(
    axes: Axes, bar: Axes | None, plan: _Plan, values: Array, rings: list[tuple[int, int]], quantity: _Quantity
) -> None:
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    dpi = axes.get_figure(root=True).dpi  # type: ignore[union-attr]
    cell = (axes.bbox.width / dpi / plan.columns, axes.bbox.height / dpi / plan.rows)
    colours, norm = colormaps[_COLOURS].resampled(_SHADES), _norm(values, quantity)
    unknown = [place for place in plan.places if not math.isfinite(values[place])]
    for row, column in unknown:
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=_UNKNOWN, edgecolor="white", lw=0.8))
    mesh = axes.pcolormesh(
        np.arange(plan.columns + 1) - 0.5,
        np.arange(plan.rows + 1) - 0.5,
        np.ma.masked_invalid(values),
        cmap=colours,
        norm=norm,
        edgecolors="white",
        linewidth=min(1.0, 4 * min(cell)),
    )
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlim(-0.5, plan.columns - 0.5)
    axes.set_ylim(plan.rows - 0.5, -0.5)
    for axis, names in ((axes.xaxis, plan.column_names), (axes.yaxis, plan.row_names)):
        places = list(range(0, len(names), math.ceil(len(names) / _TICKS)))
        axis.set_ticks(places, [names[k] for k in places])
        axis.set_tick_params(length=0)
    axes.set_xlabel(plan.horizontal)
    axes.set_ylabel(plan.vertical)
    axes.set_title(quantity.title, loc="left")
    _name_colours(axes, bar, mesh, norm, quantity)

    def ink(place: tuple[int, int]) -> str:
        if not math.isfinite(values[place]):
            return _QUIET
        dark = float(np.dot(colours(norm(values[place]))[:3], (0.299, 0.587, 0.114))) < 0.55
        return "white" if dark else "#222222"

    labelled = cell[0] >= _LABELLED[0] and cell[1] >= _LABELLED[1]
    if labelled:
        for place in plan.places:
            shown = _in_cell(values[place], quantity)
            axes.text(place[1], place[0], shown, ha="center", va="center", fontsize=7, color=ink(place))
    shift = (0.38, -0.5 + 0.08 / cell[1]) if labelled else (0.0, 0.0)
    points = 4.2 if labelled else min(6.0, 30 * min(cell))
    style: dict[str, Any] = {"marker": "o", "s": points**2, "facecolors": "none", "linewidths": 0.9, "zorder": 4}
    if rings:
        at = np.array(rings, dtype=np.float64)
        axes.scatter(at[:, 1] + shift[0], at[:, 0] + shift[1], edgecolors=[ink(place) for place in rings], **style)
    _legend(axes, f"{quantity.ring} ({len(rings)} of {len(plan.places)})", bool(unknown))


def _norm(values: Array, quantity: _Quantity) -> Any:
    """Colour scale: linear, or logarithmic for values over decades."""
    from matplotlib.colors import LogNorm, Normalize, PowerNorm

    known = values[np.isfinite(values)]
    if not known.size:
        return Normalize(0, 1)
    low, high = float(known.min()), float(known.max())
    if quantity.counts:
        return PowerNorm(0.5, 0, high) if high > _MANY else Normalize(0, max(high, 2.0))
    if low > 0 and high > _LOGARITHMIC * low:
        return LogNorm(low, high)
    if quantity.from_zero:
        return Normalize(0, high or 1.0)
    room = max(0.0, 0.1 * abs(high) - (high - low)) / 2  # nearly equal values have nearly one colour
    return Normalize(low - room, (high + room) if high + room > low - room else low + 1.0)


def _name_colours(axes: Axes, bar: Axes | None, mesh: Any, norm: Any, quantity: _Quantity) -> None:
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import MaxNLocator

    figure: Any = axes.get_figure()
    scale = figure.colorbar(mesh, ax=axes) if bar is None else figure.colorbar(mesh, cax=bar)
    scale.outline.set_visible(False)
    scale.solids.set_edgecolor("face")
    if isinstance(norm, LogNorm):
        _plain_ticks(scale.ax.yaxis)
    else:
        scale.locator = MaxNLocator(4, integer=quantity.counts)
        scale.update_ticks()
    scale.ax.tick_params(length=2)


def _in_cell(value: float, quantity: _Quantity) -> str:
    if not math.isfinite(value):
        return "–"
    if quantity.counts:
        return f"{value:.0f}"
    return f"{value:.3f}" if quantity.from_zero and value < 10 else f"{value:.3g}"


def _legend(axes: Axes, ring: str, unknown: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Line2D([], [], ls="none", marker="o", mfc="none", mec="#222222", mew=0.9, ms=4.5, label=ring)]
    if unknown:
        handles.append(Patch(facecolor=_UNKNOWN, label="no value"))
    dpi = axes.get_figure(root=True).dpi  # type: ignore[union-attr]
    below = -0.4 / (axes.bbox.height / dpi)
    axes.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0, below),
        ncols=2,
        frameon=False,
        borderaxespad=0,
        borderpad=0,
        handletextpad=0.4,
        columnspacing=1.4,
    )


# --------------------------------------------------------------------------- one head


def _draw_head(axes: Axes, head: HeadReport) -> None:
    masked = head.mask != "none"
    values = np.sqrt(np.sort(np.asarray(head.spectrum, dtype=np.float64)))
    edges = [math.sqrt(edge) for edge in (head.edge, head.edge_local) if edge is not None]
    bulk = values if masked else _without(values, head.outliers)
    curve = None if head.table is None else law_density(head.table)
    marks = [math.sqrt(outlier.value) for outlier in head.outliers]
    seen = bulk[bulk > 1e-7 * bulk[-1]]
    median = float(np.median(seen))
    right = max([float(bulk[-1]), *marks, *edges])
    logarithmic = right > _FAR * median
    if logarithmic:
        left = float(np.quantile(bulk, _LEFT_OUT))
        if head.table is not None:
            left = min(left, math.sqrt(float(head.table.quantile(np.array([_LEFT_OUT]))[0])))
        left = max(left, 1e-3 * median)
    else:
        left = float(seen[0]) if seen[0] > 0.35 * right else 0.0
    count = int(np.clip(math.sqrt(2 * bulk.size), 12, 60))
    top = float(bulk[-1]) * (1 + 1e-9)
    cuts = np.geomspace(left, top, count + 1) if logarithmic else np.linspace(left, top, count + 1)
    counts, _ = np.histogram(bulk, cuts)
    heights = counts / (bulk.size * np.diff(np.log(cuts) if logarithmic else cuts))
    axes.stairs(heights, cuts, fill=True, color=_BARS, label=f"{bulk.size} singular values")
    highest = float(heights.max())
    if curve is not None:
        s, density = curve
        y = density * s if logarithmic else density
        name = f"law of β = {head.beta:.3g}" if head.law_solved and head.beta is not None else "drawn random heads"
        axes.plot(s, y, color=_LAW, lw=1.4, label=name if head.ks is None else f"{name} (KS {head.ks:.2g})")
        shown = y[(s >= left) & np.isfinite(y)]
        highest = min(max(highest, float(shown.max(initial=0.0))), 1.6 * highest)
    _mark(axes, head, edges, marks, " of rows √kᵢ(A − Ā)ᵢ" if masked else "")
    if logarithmic:
        axes.set_xscale("log")
        axes.set_xlim(left, 1.25 * right)
        _plain_ticks(axes.xaxis)
    else:
        margin = 0.03 * (right - left)
        axes.set_xlim(left - margin * (left > 0), right + margin)
    axes.set_ylim(0, (1.1 + 0.06 * len(axes.get_legend_handles_labels()[0])) * highest)  # room for the legend
    axes.set_xlabel("singular value s")
    axes.set_ylabel("density of ln s" if logarithmic else "density")
    axes.legend(loc="best", borderaxespad=0.2, handlelength=1.8, frameon=True, framealpha=0.85, edgecolor="none")


def _without(values: Array, outliers: Sequence[OutlyingDirection]) -> Array:
    """The bulk: values that are marked are no bars. Column directions are not in the spectrum."""
    for outlier in outliers:
        if outlier.kind != "column" and values.size > 1:
            values = np.delete(values, np.abs(values - math.sqrt(outlier.value)).argmin())
    return values


def _mark(axes: Axes, head: HeadReport, edges: list[float], marks: list[float], whose: str) -> None:
    across = axes.get_xaxis_transform()
    styles = ((0, (4, 2)), "largest by chance"), ((0, (1, 1.5)), "largest by chance, localised")
    for edge, (style, label) in zip(edges, styles, strict=False):
        axes.axvline(edge, color=_REFERENCE, lw=1.0, ls=style, label=label + whose, zorder=3)
    kinds = [outlier.kind == "column" for outlier in head.outliers]
    for column in (False, True):
        places = [mark for mark, kind in zip(marks, kinds, strict=True) if kind == column]
        if not places:
            continue
        label = f"column direction{whose}" if column else f"{len(places)} outside the bulk{whose}"
        axes.vlines(places, 0, 0.2, transform=across, color=_LAW, lw=1.0, ls=":", zorder=3)
        axes.plot(
            places,
            [0.2] * len(places),
            transform=across,
            ls="none",
            marker="D",
            ms=4.5,
            color=_LAW,
            mfc="white" if column else _LAW,
            label=label,
            zorder=4,
        )


def law_density(table: LawTable) -> tuple[Array, Array]:
    """Density of the singular values of a table of their squares, (points, values); what it has at zero is left out.

    From differences of the table's quantiles; that of drawn heads, which are noisy, with a Gaussian kernel in ln s.
    """
    from gequiv.inspection.tables import _levels

    levels = _levels()[::2] if table.solved else (np.arange(4 * _POINTS) + 0.5) / (4 * _POINTS)
    s = np.sqrt(table.quantile(levels))
    kept = s > 1e-7 * s[-1]
    if not table.solved:
        logs = np.log(s[kept])
        width = max(_BLUR * float(np.diff(np.quantile(logs, [0.1, 0.9]))[0]), 1e-3)
        grid = np.linspace(logs[0] - 2 * width, logs[-1] + 2 * width, _POINTS)
        kernel = np.exp(-0.5 * ((grid[:, None] - logs) / width) ** 2) / (math.sqrt(2 * math.pi) * width)
        return np.exp(grid), kernel.sum(axis=1) / levels.size / np.exp(grid)
    s, shares = s[kept], np.diff(levels[kept])
    steps = np.diff(s)
    fine = steps > 1e-12 * s[-1]
    points, density = ((s[1:] + s[:-1]) / 2)[fine], shares[fine] / steps[fine]
    # a gap of the support lies within one step, from end to end of which the density is next to nothing
    wide = np.flatnonzero(steps[1:-1] > _GAP * np.maximum(steps[:-2], steps[2:])) + 1
    ends = np.concatenate([s[wide] + 0.02 * steps[wide], s[wide + 1] - 0.02 * steps[wide]])
    points = np.concatenate([points, ends])
    density = np.concatenate([density, np.tile(shares[wide] / steps[wide], 2)])
    order = np.argsort(points)
    return points[order], density[order]
