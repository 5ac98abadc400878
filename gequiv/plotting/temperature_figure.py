"""How the predicted spectrum moves with the context length, under schedules of the inverse temperature."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gequiv.attention.temperature import LINEAR_SHARE, QUANTILES, SCHEDULES, ContextPoint, context_sweep, schedule
from gequiv.errors import ParameterError
from gequiv.plotting.campaign_figures import house_style
from gequiv.plotting.figures import _LAW, _QUIET, _REFERENCE, _THEOREM

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMN = 2.35  # inches
_FEW = 5  # lengths that have a tick each
_SHADE = "#ececee"
_FORMULAS = {
    "constant": "β constant",
    "sqrt-log": "√log n",
    "ssmax": "SSMax: log n",
    "qwen": "Qwen: log n beyond n₀",
    "swan": "SWAN-GPT: log n beyond n₀",
    "yarn": "YaRN: (0.1 log(n/n₀) + 1)²",
}


def temperature_figure(
    head_dim: int,
    lengths: Sequence[int],
    schedules: Sequence[str] = ("constant", "sqrt-log", "ssmax", "yarn"),
    *,
    beta: float = 1.0,
    reference: int,
) -> Figure:
    """One column a schedule: β(n), singular values of A, and entropy and effective rank, against the context length n.

    Above, β with the two thresholds of Gaussian scores: √(½ log n), where the linear model ends as n grows, and
    √(2 log n), where rows freeze. In the middle the Perron value, the expected second value and the bulk: its median,
    and bands of half and of nine tenths of it (that the outer band bends where n passes twenty head widths is the band
    of d_k linear directions leaving it). Below, the perplexity of rows, which is exact, and the effective rank of A,
    both over n. Grey lengths are outside the linear regime: few entries carry more than `LINEAR_SHARE` of the energy of
    a row. Where a spectrum is missing they carry more than `SPECTRUM_SHARE`, or the law could not be certified.

    Parameters
    ----------
    head_dim, lengths, beta, reference : as for `gequiv.attention.temperature.context_sweep`; at least two lengths.
    schedules : names of schedules, one column each.

    Raises
    ------
    ParameterError : a schedule is unknown or a parameter out of range.
    CertificationError : a number of the rows could not be certified.
    """
    from matplotlib.figure import Figure

    if isinstance(schedules, str) or not schedules:
        raise ParameterError(f"schedules must be a sequence of at least one name; got {schedules!r}")
    for name in schedules:
        if name not in SCHEDULES:
            raise ParameterError(f"schedules must be some of {', '.join(map(repr, SCHEDULES))}; got {name!r}")
    if isinstance(lengths, (str, bytes)) or not isinstance(lengths, Sequence) or len(set(lengths)) < 2:
        raise ParameterError(f"lengths must be a sequence of at least two numbers of tokens; got {lengths!r}")
    sizes = sorted(set(lengths))
    sweeps = {name: context_sweep(head_dim, sizes, name, beta=beta, reference=reference) for name in schedules}
    with house_style():
        figure = Figure(figsize=(max(4.2, 1.1 + _COLUMN * len(sweeps)), 6.6), layout="constrained")
        grid = figure.subplots(3, len(sweeps), sharex=True, sharey="row", squeeze=False, height_ratios=(1, 1.7, 1.3))
        for column, (name, sweep) in zip(grid.T, sweeps.items(), strict=True):
            column[0].set_title(_FORMULAS[name])
            _draw_beta(column[0], name, sweep, beta, reference)
            _draw_spectrum(column[1], sweep)
            _draw_shares(column[2], sweep)
            for axes in column:
                _draw_regime(axes, sweep)
                axes.axvline(reference, color=_QUIET, lw=0.7, ls=(0, (1, 2)), zorder=1)
            _name_lengths(column[2], sizes)
        grid[0, 0].set_ylabel("β")
        grid[1, 0].set_ylabel("singular values of A")
        grid[2, 0].set_ylabel("share of n")
        for row in grid:
            _note(row[-1])
        figure.suptitle(f"head width {head_dim}, β = {beta:g} at n₀ = {reference}", fontsize=9)
        _settle(figure)
    return figure


def _draw_beta(axes: Axes, name: str, sweep: list[ContextPoint], beta: float, reference: int) -> None:
    n = np.geomspace(sweep[0].tokens, sweep[-1].tokens, 200)
    axes.set_xscale("log")
    axes.plot(n, schedule(name, n, beta=beta, reference=reference), color=_LAW, lw=1.6, label="β(n)")
    axes.plot(n, np.sqrt(0.5 * np.log(n)), color=_REFERENCE, lw=1.0, ls=(0, (5, 2)), label="linear model ends, n → ∞")
    axes.plot(n, np.sqrt(2 * np.log(n)), color=_THEOREM, lw=1.0, ls=(0, (6, 1.5, 1, 1.5)), label="rows freeze, n → ∞")
    axes.plot([point.tokens for point in sweep], [point.beta for point in sweep], "o", ms=3, color=_LAW)
    axes.set_ylim(bottom=0)


def _draw_spectrum(axes: Axes, sweep: list[ContextPoint]) -> None:
    axes.set_yscale("log")
    n = np.array([point.tokens for point in sweep], dtype=np.float64)

    def line(value: Callable[[Any], float]) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array([math.nan if point.spectrum is None else value(point.spectrum) for point in sweep])

    rows = [(math.nan,) * len(QUANTILES) if point.spectrum is None else point.spectrum.quantiles for point in sweep]
    low, quarter, median, three, high = np.array(rows).T
    axes.fill_between(n, low, high, color=_REFERENCE, alpha=0.16, lw=0, label="nine tenths of the bulk")
    axes.fill_between(n, quarter, three, color=_REFERENCE, alpha=0.3, lw=0, label="half of the bulk")
    axes.plot(n, median, color=_REFERENCE, lw=1.2, label="median of the bulk")
    axes.plot(n, line(lambda s: s.second), color=_THEOREM, lw=1.4, marker="o", ms=2.5, label="second value")
    axes.plot(n, line(lambda s: s.largest), color=_LAW, lw=1.6, marker="o", ms=2.5, label="Perron value")


def _draw_shares(axes: Axes, sweep: list[ContextPoint]) -> None:
    n = [point.tokens for point in sweep]
    rank = [math.nan if point.spectrum is None else point.spectrum.effective_rank / point.tokens for point in sweep]
    perplexity = [point.perplexity / point.tokens for point in sweep]
    axes.plot(n, perplexity, color=_LAW, lw=1.5, marker="o", ms=2.5, label="perplexity / n")
    axes.plot(n, rank, color=_REFERENCE, lw=1.5, marker="s", ms=2.5, label="effective rank / n")
    axes.set_ylim(0, 1)


def _draw_regime(axes: Axes, sweep: list[ContextPoint]) -> None:
    """Grey behind lengths outside the linear regime, with borders halfway between lengths."""
    n = [point.tokens for point in sweep]
    cuts = [n[0], *(math.sqrt(a * b) for a, b in itertools.pairwise(n)), n[-1]]
    axes.set_xlim(n[0] / 1.12, n[-1] * 1.12)
    for k, point in enumerate(sweep):
        if point.linear > LINEAR_SHARE:
            left = cuts[k] / 1.12 if k == 0 else cuts[k]
            right = cuts[k + 1] * 1.12 if k == len(sweep) - 1 else cuts[k + 1]
            axes.axvspan(left, right, color=_SHADE, lw=0, zorder=0)


def _name_lengths(axes: Axes, sizes: list[int]) -> None:
    from matplotlib.ticker import NullFormatter

    step = math.ceil(len(sizes) / _FEW)
    shown = sizes[::-1][::step][::-1]
    axes.set_xticks(shown, [_short(size) for size in shown])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks([], minor=True)
    axes.set_xlabel("context length n")


def _short(size: int) -> str:
    return f"{size // 1024}K" if size % 1024 == 0 else str(size)


def _note(axes: Axes) -> None:
    """The row's legend, beside its last panel."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.03), handlelength=1.8)


def _settle(figure: Figure) -> None:
    """Numbers on logarithmic axes written out, without mathematics."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    for axes in figure.axes:
        if axes.get_yscale() == "log":
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.yaxis.set_minor_formatter(NullFormatter())
