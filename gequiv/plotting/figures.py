"""The two figures: the density of a law, and drawn singular values against a law.

Figures are made without pyplot, so that no backend, display or global state is involved; every function takes axes to
draw on, or makes its own, and returns them. ``axes.figure.savefig`` or `save_figure` writes the file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gequiv import _checks
from gequiv._checks import Array
from gequiv.errors import CertificationError, InputFileError, ParameterError
from gequiv.laws import SingularValueLaw
from gequiv.laws.base import Law
from gequiv.plotting.grid import DensityPart, interval_masses, rounding, spread_out, support_grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".png", ".pdf", ".svg")

_LAW = "#b2182b"
_REFERENCE = "#2166ac"
_THEOREM = "#e08214"
_BARS = "#c9cdd2"
_QUIET = "#6b7177"

_POINTS = 1200
_POINTS_PER_INTERVAL = 120  # on average, where the intervals are many
_LOG_AXIS = 300.0  # top edge over median beyond which a linear axis shows nothing but a spike
_LEGEND_LINE = 0.11  # height of a legend's line in a small panel, relative
_NAMED = 4  # atoms with a legend entry each; more of them share one
_EDGES = 12  # edges beyond which their triangles are small
_STEMS = 40  # stems that have heads; more of them are thin lines
_LEFT_OUT = 2e-3  # share of the mass left of a logarithmic axis
_LEFT_OUT_SPREAD = 0.05  # the same where an interval from 0 has no scale at its left end
_LOG_DENSITY = 12.0  # ratio of the intervals' peaks beyond which the lower one would vanish on a linear axis


def density_figure(law: Law, *, axes: Axes | None = None, title: str | None = None, variable: str = "x") -> Axes:
    r"""Density of a law; triangles mark the edges of its support, stems its atoms, diamonds its visible outliers.

    The axis is linear where that shows the law. Where the top edge is hundreds of medians away it is logarithmic, and
    the curve is the density of ln x, :math:`x\rho(x)`; where one interval's peak dwarfs another's, the density axis is
    logarithmic. A divergence at an edge or at 0 is cut off by the frame, as are the lowest five per cent of an interval
    of many orders of magnitude from 0. The stems of several atoms are as high as their weights, relative to the
    heaviest; of a law without a density they are all there is, and the vertical axis is the weight. Of a law with
    ``outliers()`` those of A - Ā are marked, not those of A.

    Parameters
    ----------
    law : any law.
    axes : where to draw; None makes a figure of one panel.
    title : of the panel.
    variable : name of the variable in the axis labels.
    """
    if axes is None:
        axes = _new_figure((6.4, 3.9)).add_subplot()
    view = _View(law)
    curve = view.draw_law(axes, law, color=_LAW, lw=1.6, label="density")
    view.frame(axes, [curve])
    view.mark_edges(axes, law)
    named = view.mark_atoms(axes, law) + view.mark_outliers(axes)
    view.note_left_out(axes)
    view.name_axes(axes, axes, f"${variable}$", variable)
    if named:
        view.add_legend(axes)
    if title:
        axes.set_title(title, fontsize=10)
    return axes


def validation_figure(
    law: Law,
    spectra: Any,
    *,
    reference: Law | None = None,
    theorem: Law | None = None,
    axes: tuple[Axes, Axes] | None = None,
    title: str | None = None,
    law_label: str = "law",
    draws_label: str | None = None,
    reference_label: str = "Marchenko–Pastur",
    theorem_label: str = "limit law",
) -> tuple[Axes, Axes]:
    """Drawn singular values against the law: a histogram above, differences of distribution functions below.

    The horizontal axis is the singular value, on which a square matrix's law is finite at 0 and Marchenko–Pastur a
    quarter of an ellipse. Exact zeros of tall matrices are the atom's; they are left out of the histogram, which is
    normalised to the mass that the density carries. The lower panel's largest excursions are the Kolmogorov–Smirnov
    distances. Axes and marks are those of `density_figure`.

    Parameters
    ----------
    law : law of the squared singular values.
    spectra : squared singular values, one array or a list of draws.
    reference, theorem : other laws of the squares, drawn beside it dashed and dash-dotted.
    axes : where to draw, (above, below); None makes a figure.
    title : of the upper panel.
    law_label, draws_label, reference_label, theorem_label : for the legend; draws_label None counts the draws.

    Raises
    ------
    ParameterError : spectra is empty or holds negative numbers or NaN.
    """
    draws = _draws(spectra)
    singular = np.sort(np.sqrt(np.concatenate(draws)))
    law = law.singular_values()
    others = [
        (squares.singular_values(), {"color": color, "lw": 1.4, "ls": style}, label)
        for squares, color, style, label in (
            (theorem, _THEOREM, (0, (6, 1.5, 1, 1.5)), theorem_label),
            (reference, _REFERENCE, (0, (5, 2)), reference_label),
        )
        if squares is not None
    ]
    if axes is None:
        figure = _new_figure((6.8, 5.2))
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    else:
        above, below = axes

    view = _View(law)
    visible = singular[singular > 1e-7 * singular[-1]] if law.atoms() else singular
    cuts = view.bins(law, visible)
    counts, _ = np.histogram(visible, cuts)
    width = np.diff(np.log(cuts)) if view.log else np.diff(cuts / view.unit)
    heights = counts / (singular.size * width)
    if draws_label is None:
        draws_label = f"{len(draws)} draw" + ("s" if len(draws) > 1 else "")
    above.stairs(heights, cuts / view.unit, fill=True, color=_BARS, label=draws_label)
    curves = [view.draw_law(above, law, color=_LAW, lw=1.7, label=law_label)]
    curves += [view.draw_law(above, other, **style, label=label) for other, style, label in others]
    view.frame(above, curves, sample=visible, bars=heights)
    view.mark_edges(above, law)
    view.mark_atoms(above, law)
    view.mark_outliers(above)
    view.note_left_out(above)
    above.legend(frameon=False)
    if title:
        above.set_title(title, fontsize=10)

    low, high = above.get_xlim()
    even = np.geomspace(low, high, 1500) if view.log else np.linspace(low, high, 1500)
    points = np.unique(np.concatenate([even * view.unit, support_grid(law, 500)]))
    expected = law.cdf(points)
    drawn = np.searchsorted(singular, points, side="right") / singular.size
    shown = points / view.unit
    below.axhline(0, color=_LAW, lw=1.2)
    below.plot(shown, drawn - expected, color=_QUIET, lw=1.0)
    for other, style, _ in others:
        below.plot(shown, other.cdf(points) - expected, **{**style, "lw": 1.2})
    view.name_axes(above, below, "singular value $s$", "s")
    below.set_ylabel(r"$F - F_{\mathrm{law}}$")
    return above, below


def save_figure(axes: Axes, path: str | Path) -> None:
    """Write the figure that `axes` belong to; the suffix says the format.

    Raises
    ------
    ParameterError : the suffix is not .png, .pdf or .svg.
    InputFileError : the file cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ParameterError(f"path must end in one of {', '.join(SUFFIXES)}; got {str(path)!r}")
    figure = axes.get_figure(root=True)
    if figure is None:
        raise ParameterError("axes must belong to a figure; got axes that were removed from theirs")
    try:
        figure.savefig(path, dpi=160)
    except OSError as error:
        raise InputFileError(f"cannot write {str(path)!r}: {error.strerror or error}") from error


class _View:
    """How one law is looked at: axes and unit, shared by everything that is drawn into the panel.

    ``unit`` is a power of ten that keeps what is drawn near one, however large or small the law: far out, plotting
    libraries take the limits of an axis for equal.
    """

    def __init__(self, law: Law) -> None:
        self.law = law
        self.density = DensityPart(law)
        self.mass = self.density.mass
        self.atoms = law.atoms()
        locations = [location for location, _ in self.atoms]
        ends = [edge for interval in law.support() for edge in interval] + locations
        self.low, self.high = float(min(ends)), float(max(ends))
        self.top = self.high
        self.median = self._median()
        self.spread = any(spread_out(law, low, high) for low, high in law.support())
        self.log = self.low >= 0 and (self.spread or self.top > _LOG_AXIS * self.median > 0)
        self.outliers = _outliers(law)
        reach, width = max(abs(self.low), abs(self.high)) or 1.0, self.high - self.low
        decade = math.floor(math.log10(width if 0 < width < 1e-3 * reach else reach))
        self.exponent = 0 if -3 <= decade <= 3 or (self.log and -100 < decade < 100) else decade
        self.unit = 10.0**self.exponent
        # of many stems, or of stems alone, no place is free of them: the legend stands above
        entries = len(self.atoms) if len(self.atoms) <= _NAMED else 1 + bool(law.support())
        self.crowded = len(self.atoms) > _NAMED or not law.support()
        self.stems = 0.95 - 0.065 * entries if self.crowded else 1.0

    def _median(self) -> float:
        """Of the density; of a law without one, of what it has above 0."""
        if self.law.support():
            return float(self.density.ppf(0.5 * self.mass))
        at_most_zero = float(self.law.cdf(0.0))
        return float(self.law.ppf(0.5 + 0.5 * at_most_zero))

    def values(self, law: Law, x: Array) -> Array:
        """Density of the axis variable, x in its unit or ln x; not finite at an edge where it diverges."""
        density: Array = np.asarray(law.pdf(x))
        return density * (x if self.log else self.unit)

    def name_axes(self, vertical: Axes, horizontal: Axes, name: str, variable: str) -> None:
        """Labels; the unit is named where it is not one."""
        horizontal.set_xlabel(name if self.exponent == 0 else f"{name} / $10^{{{self.exponent}}}$")
        if not self.law.support():
            vertical.set_ylabel("weight")
        else:
            vertical.set_ylabel(rf"density of $\ln {variable}$" if self.log else "density")

    def draw_law(self, axes: Axes, law: Law, **style: Any) -> list[tuple[Array, Array]]:
        """One line per interval, all of one style; returns the (points, values) drawn.

        A density that jumps at an edge has a line of its own down to 0, but for singular values at 0.
        """
        curves = []
        intervals = law.support()
        grid = support_grid(law, max(_POINTS, _POINTS_PER_INTERVAL * len(intervals)))
        label = style.pop("label", None)
        for low, high in intervals:
            x = grid[np.searchsorted(grid, low, side="right") : np.searchsorted(grid, high, side="left")]
            x = x[np.isfinite(law.pdf(x))]
            ends = [end for end in (low, high) if (end > 0 or not self.log) and np.isfinite(law.pdf(end))]
            x = np.sort(np.concatenate([x, ends]))
            if x.size == 0:  # narrower than floats tell apart
                continue
            y = self.values(law, x)
            x = x / self.unit
            axes.plot(x, y, label=label, **style)
            label = None
            for end in (0, -1):
                edge = (low, high)[end]
                wall = edge != 0 or not isinstance(law, SingularValueLaw)
                if wall and edge in ends and y[end] > 1e-3 * y.max():
                    axes.plot([x[end]] * 2, [0, y[end]], **style)
            curves.append((x, y))
        return curves

    def frame(
        self,
        axes: Axes,
        drawn: list[list[tuple[Array, Array]]],
        *,
        sample: Array | None = None,
        bars: Array | None = None,
    ) -> None:
        """Limits and scales, from the law that the view is of (the first of those drawn) and from the others."""
        peaks = [self._peak(x, y) for x, y in drawn[0]]
        highest = max([self._peak(x, y) for curves in drawn for x, y in curves], default=0.0)
        if not peaks:
            highest = max([highest, *(weight for _, weight in self.atoms)])
        if bars is not None:  # a bar may stand above the curves, within reason
            highest = max(highest, min(float(bars.max()), 2 * highest))
        right = max(
            [self.high / self.unit, 0.0 if sample is None else float(sample[-1]) / self.unit]
            + [float(x[-1]) for curves in drawn for x, _ in curves]
            + [location / self.unit for location in self.outliers]
        )
        left = min([self.low / self.unit] + [location / self.unit for location in self.outliers])
        if self.log:
            axes.set_xscale("log")
            axes.set_xlim(self.start(sample) / self.unit, right * 1.4)
        else:
            if 0 <= left <= 0.35 * right:
                left = 0.0
            elif 0.35 * left <= right <= 0:
                right = 0.0
            width = right - left
            if width <= 1e-12 * max(abs(left), abs(right)):  # one atom
                width = 10 * (abs(right) or 1.0)
            margin = (0.03 if peaks else 0.05) * width
            axes.set_xlim(left - margin, right + margin)
        positive = [peak for peak in peaks if peak > 0]
        if positive and max(positive) > _LOG_DENSITY * min(positive):
            axes.set_yscale("log")
            bottom = min(positive) / 30
            if bars is not None and (bars > 0).any():
                bottom = min(bottom, 0.5 * float(bars[bars > 0].min()))
            axes.set_ylim(bottom, 3 * highest)
        else:
            axes.set_ylim(0, 1.12 * highest / self.stems)

    def start(self, sample: Array | None) -> float:
        """Left end of a logarithmic axis: all but 0.2 % of the law, and all but a fiftieth of the sample, is above.

        Of a law of many orders of magnitude from 0, all but 5 %, of which most would be below all that is drawn.
        """
        atoms = [location for location, _ in self.atoms if location > 0]
        if not self.law.support():
            return min(atoms) / 1.6
        if self.spread:
            lowest = float(self.density.ppf(_LEFT_OUT_SPREAD * self.mass))
            lowest = max(lowest, float(rounding(self.law) * self.law.support()[-1][1]))
            return min([lowest, *(location / 1.6 for location in atoms)])
        start = min(float(self.density.ppf(_LEFT_OUT * self.mass)), self.median / 10)
        start = max(start, float(self.law.support()[0][0]) / 1.6)
        start = min([start, *(location / 1.6 for location in atoms)])
        if sample is None:
            return start
        positive = sample[sample > 0]
        return min(start, float(positive[len(positive) // 50]) * (1 - 1e-12)) if positive.size else start

    def _peak(self, x: Array, y: Array) -> float:
        """Largest value of a curve; of one that diverges, the value exceeded on no more than a thirtieth of its length.

        It diverges where the value at an edge of the interval, or at 0 inside it, is infinite, and where the first or
        the last is twenty times the value a third of the way along the points.
        """
        if self.log or y.size < 3:
            return float(y.max(initial=0.0))
        inside = y[len(y) // 3], y[-1 - len(y) // 3]
        steep = y[0] > 20 * inside[0] or y[-1] > 20 * inside[1]
        if not (steep or self._diverges(x)):
            return float(y.max())
        even = np.interp(np.linspace(x[0], x[-1], 601), x, y)
        return float(np.sort(even)[-21])

    def _diverges(self, x: Array) -> bool:
        low, high = x[0] * self.unit, x[-1] * self.unit
        places = [edge for a, b in self.law.support() if a <= low and high <= b for edge in (a, b)]
        if low < 0 < high:
            places.append(0.0)
        return bool(places) and not np.isfinite(self.law.pdf(places)).all()

    def bins(self, law: Law, sample: Array) -> Array:
        """Histogram cuts: even within each interval of the support, in the gaps, from 0 up, and beyond the top edge."""
        count = min(75, max(15, int(sample.size**0.5)))
        largest = float(sample[-1]) * (1 + 1e-12)
        if self.log:
            return np.geomspace(self.start(sample), max(largest, self.top), count + 1)
        intervals, masses = law.support(), interval_masses(law)
        span = self.top
        if not intervals:
            return np.linspace(0.0, max(largest, self.top), count + 1)
        shares = [max((b - a) / span, mass / sum(masses) / 3) for (a, b), mass in zip(intervals, masses, strict=True)]
        numbers = [max(6, round(count * share)) for share in shares]
        steps = [min(span / count, (b - a) / number) for (a, b), number in zip(intervals, numbers, strict=True)]
        cuts = [_even(0.0, intervals[0][0], steps[0], count)]
        for k, (low, high) in enumerate(intervals):
            cuts.append(np.linspace(low, high, numbers[k] + 1))
            if k + 1 < len(intervals):
                cuts.append(_even(high, intervals[k + 1][0], min(steps[k : k + 2]), count))
        cuts.append(_even(self.top, max(largest, self.top), steps[-1], count))
        return np.unique(np.concatenate(cuts))

    def mark_edges(self, axes: Axes, law: Law) -> None:
        """A triangle under every edge of the support that the frame shows."""
        low, high = axes.get_xlim()
        edges = [edge / self.unit for interval in law.support() for edge in interval]
        edges = [edge for edge in edges if low <= edge <= high]
        if not edges:  # an empty line would count as one at the figure's corner
            return
        axes.plot(
            edges,
            np.zeros(len(edges)),
            transform=axes.get_xaxis_transform(),
            ls="none",
            marker="^",
            ms=5.5 if len(edges) <= _EDGES else 3.5,
            color=_LAW,
            clip_on=False,
            zorder=5,
        )

    def mark_outliers(self, axes: Axes) -> bool:
        """A diamond on a dotted stem where an outlier is expected."""
        for k, location in enumerate(self.outliers):
            axes.plot(
                [location / self.unit] * 2,
                [0, 0.3],
                transform=axes.get_xaxis_transform(),
                color=_LAW,
                lw=1.1,
                ls=":",
                marker="D",
                markevery=[1],
                ms=5,
                label="expected outlier" + "s" * (len(self.outliers) > 1) if k == 0 else None,
                zorder=4,
            )
        return bool(self.outliers)

    def note_left_out(self, axes: Axes) -> None:
        """How much of the law lies left of a logarithmic axis, where that is worth a word."""
        share = float(self.density.cdf(axes.get_xlim()[0] * self.unit)) if self.mass else 0.0
        if self.log and share > 2 * _LEFT_OUT:
            axes.text(
                0.015,
                0.04,
                f"← {100 * share:.2g} % below",
                transform=axes.transAxes,
                fontsize=8,
                color=_QUIET,
                va="bottom",
            )

    def mark_atoms(self, axes: Axes, law: Law) -> bool:
        """A stem at every atom, a few weights in the legend; at the left frame where a logarithmic axis cannot show 0.

        Beside a density a stem is as high as its weight relative to the heaviest, without one as high as its weight.
        """
        atoms = law.atoms()
        if not atoms:
            return False
        low, _ = axes.get_xlim()
        at = np.array([location for location, _ in atoms]) / self.unit
        if self.log:
            at = np.maximum(at, low)
        weights = np.array([weight for _, weight in atoms])
        heaviest, total = weights.max(), weights.sum()
        if law.support():
            height, across = 0.93 * self.stems * weights / heaviest, axes.get_xaxis_transform()
        else:
            height, across = weights, axes.transData
        if len(atoms) <= _NAMED:
            labels = [f"atom of weight {weight:.4g} at {location:g}" for location, weight in atoms]
            groups = [(slice(k, k + 1), label) for k, label in enumerate(labels)]
        else:
            lightest = weights.min()
            each = (
                f"weight {heaviest:.3g} each"
                if heaviest - lightest < 1e-9
                else f"weights {lightest:.3g} to {heaviest:.3g}"
            )
            share = f", {total:.4g} in all" if law.support() else ""
            groups = [(slice(None), f"{len(atoms)} atoms, {each}{share}")]
        if len(atoms) > _STEMS:
            axes.vlines(
                at,
                0,
                height,
                transform=across,
                color=_LAW,
                lw=float(np.clip(150 / len(atoms), 0.4, 1.8)),
                alpha=float(np.clip(250 / len(atoms), 0.05, 1.0)),
                label=groups[0][1],
                zorder=4,
            )
            return True
        for which, label in groups:
            x, y = at[which], height[which]
            # one line for all stems: up, down, and a gap
            axes.plot(
                np.stack([x, x, np.full(x.size, np.nan)], axis=1).reshape(-1),
                np.stack([np.zeros(x.size), y, np.full(x.size, np.nan)], axis=1).reshape(-1),
                transform=across,
                color=_LAW,
                lw=2.4 if len(atoms) <= _NAMED else 1.8,
                solid_capstyle="butt",
                marker="o",
                markevery=(1, 3),
                ms=6 if len(atoms) <= _NAMED else 4,
                label=label,
                clip_on=False,
                zorder=4,
            )
        return True

    def add_legend(self, axes: Axes) -> None:
        """Where a curve and one stem leave room for it; above several."""
        several = 1 < len(self.atoms) <= _NAMED and bool(self.law.support()) and axes.get_yscale() == "linear"
        if several:
            bottom, top = axes.get_ylim()
            axes.set_ylim(bottom, top + (top - bottom) * _LEGEND_LINE * (1 + len(self.atoms)))
        legend = axes.legend(frameon=False, loc="upper right" if self.crowded or several else "best")
        for handle in legend.legend_handles:
            if handle is not None:
                handle.set_alpha(1.0)


def _outliers(law: Law) -> list[float]:
    """Locations of the visible outliers of the law's own matrix; none where they cannot be certified."""
    squares = law.squares if isinstance(law, SingularValueLaw) else law
    find: Any = getattr(squares, "outliers", None)
    if find is None:
        return []
    try:
        found = [o.location for o in find() if o.visible and not o.origin.endswith("of A")]
    except CertificationError:
        return []
    return [math.sqrt(x) if squares is not law else float(x) for x in found]


def _new_figure(size: tuple[float, float]) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")


def _even(low: float, high: float, step: float, count: int) -> Array:
    """Cuts from low to high about `step` apart, at most 4 * count of them; none where there is no room."""
    if not high > low:
        return np.empty(0)
    return np.linspace(low, high, min(4 * count, math.ceil((high - low) / step)) + 1)


def _draws(spectra: Any) -> list[Array]:
    many = isinstance(spectra, Sequence) and len(spectra) > 0 and np.ndim(spectra[0]) > 0
    draws = [_checks.real_array("spectra", draw).reshape(-1) for draw in (spectra if many else [spectra])]
    if not draws or any(draw.size == 0 for draw in draws):
        raise ParameterError("spectra must hold at least one squared singular value per draw; got an empty draw")
    lowest = min(float(draw.min()) for draw in draws)
    if lowest < 0 or not all(np.isfinite(draw).all() for draw in draws):
        raise ParameterError("spectra must hold finite squared singular values of at least 0")
    return draws
