r"""The law of a model whose rows see columns through a mask, from `gequiv.dyson.positions`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gequiv._checks import Array, ComplexArray
from gequiv.dyson.positions import CausalKernel, PositionedEquation
from gequiv.errors import CertificationError
from gequiv.laws._log_panels import NODES, LogPanels, Panel, interpolate, series
from gequiv.laws.base import Certificate, Law, finite_moment, moment_order

_AXIS = 1e-9  # angle above the real axis at which boundary values are taken
_ROUGH, _TOLERANCE = 1e-3, 1e-6
_ACCEPTED = 1e-4
_THIN = 1e-2
_DEPTH = 30.0  # the stored range begins this far below the mean, in log x
_CHECK: Array = np.array([-0.9, 0.35])
_POINTS: Array = np.concatenate([NODES, _CHECK])
_SCAN_BELOW, _SCANNED_FINELY, _SCAN_STEP = 24, 9.0, 0.2
_ROUGH_MOST = 100
_OPEN = 1e-5  # xρ(x) below it, at the angle of the axis, is no density
_FAINT = 1e-3  # xρ(x) below it may be an error of a rough solution
_PANEL_ERROR = 1e-4
_MOST_ROUNDS = 5
_TAIL = 4.0
_EDGE_POINTS = 9
_RISEN = 0.05  # below that part of what it is inside, a density next to an edge may be an error
_DIP, _DIP_ROUNDS = 0.97, 4
_MASS_LIMIT = 1e-3
_NEGLIGIBLE, _WEIGHTY = 1e-7, 1e-3  # mass
_DENSITY_LIMIT = 0.1


class PositionedLaw(Law):
    r"""Law of Y Yᵀ for the masked model: certified to about four digits, on as many decades as it spans.

    Every point is solved with the cells of the last equation and with those of the one before, half as many, and the
    values are extrapolated (error of second order in the cell size: (4 fine - coarse)/3); next to the right end, where
    the rows of the first cells stand for themselves, the fine values are taken. The distribution function at a point
    comes from a stationary functional of the solution, independently of the stored density, and certifies its mass.

    The density is stored in log x from e^{-30} of the mean to the right end; below, a law of a mask such as the causal
    one has a mass that falls as 1/log(1/x) only, and its known mass is spread by that law. See
    `gequiv.laws._log_panels`.

    Parameters
    ----------
    equations : equations of one model, from coarse to fine, at least two.

    Attributes
    ----------
    equation : the finest.
    scale : the mean.
    certificate : `Certificate`; density_error is the largest relative difference of the stored density from the
        equation solved anew, or of the two numbers of cells after extrapolation, in units of its largest value nearby:
        between the 1 % and the 99 % quantile, where there is more than a thousandth of the mass.

    Raises
    ------
    CertificationError : the law could not be certified.
    """

    def __init__(self, equations: Sequence[PositionedEquation]) -> None:
        self._equations = list(equations)
        self.equation = self._equations[-1]
        before = self._equations[-2]
        self.scale = self.equation.scale + (self.equation.scale - before.scale) / 3
        aspect = self.equation.aspect
        self._atom = 1 - 1 / aspect if aspect > 1 + 1e-12 else 0.0
        self._reaches_zero = abs(aspect - 1) < 1e-12
        self._scan: tuple[Array, ComplexArray, int] | None = None
        # a coarse causal kernel is good enough to see the support by, a coarse projection of another is not
        self._scan_level = 0 if isinstance(self.equation.kernel, CausalKernel) else len(self._equations) - 2
        self._nodes = 0
        self._right: ComplexArray | None = None
        self._worst, self._margin = 0.0, math.inf
        self._build()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.equation.kernel.rows.size} cells, scale={self.scale:g})"

    # -- construction -------------------------------------------------------------------------------

    def _solve(
        self, z: ComplexArray, levels: list[ComplexArray] | None = None
    ) -> tuple[ComplexArray, Array, Array, list[ComplexArray]]:
        """G extrapolated, F extrapolated, size of the extrapolation in Im G, and the solutions of the last two levels.

        `levels` are starts for the last two equations.
        """
        coarse, fine = self._equations[-2:]
        first = self._start(z, coarse) if levels is None else levels[0]
        one = coarse.solve(z, first, tolerance=_TOLERANCE)
        two = fine.solve(z, fine.carry(coarse, one.unknowns) if levels is None else levels[1], tolerance=_TOLERANCE)
        residual = np.maximum(one.residual, two.residual)
        values = [equation.resolvent(s.unknowns) for equation, s in ((coarse, one), (fine, two))]
        masses = [equation.distribution(z, s.unknowns) for equation, s in ((coarse, one), (fine, two))]
        # above the last few rows, and next to other edges, the iteration is slow and little hangs on the value
        tail = 1 - masses[1] < _TAIL * float(fine.kernel.rows.min()) / fine.aspect
        thin = (np.abs(values[1].imag) * np.abs(z) < _THIN) & (residual < _THIN)
        good = (residual < _ACCEPTED) | thin | (tail & np.isfinite(values[1]))
        if not good.all():
            bad = int(np.argmax(~good))
            raise CertificationError(
                f"the Dyson equation could not be solved at z = {z[bad]!r}: residual {residual[bad]:.1e} where "
                f"{_ACCEPTED:.0e} is allowed; take other cells"
            )
        self._nodes += z.size
        self._worst = max(self._worst, float(residual[~tail & ~thin].max(initial=0.0)))
        inside = ~tail & (values[1].imag < -_OPEN / np.abs(z))
        self._margin = min(self._margin, float(np.sin(np.angle(two.unknowns[inside])).min(initial=1.0)))
        shift = np.where(tail, 0.0, (values[1] - values[0]) / 3)
        mass = masses[1] + np.where(tail, 0.0, (masses[1] - masses[0]) / 3)
        return values[1] + shift, mass, np.abs(shift.imag), [one.unknowns, two.unknowns]

    def _start(self, z: ComplexArray, target: PositionedEquation) -> ComplexArray | None:
        """A start for one of the equations: from the scan next to the axis, from nothing elsewhere, level by level."""
        state, previous = None, None
        equations = self._equations
        if self._scan is not None and np.angle(z).max(initial=0.0) < 2 * _AXIS:
            u, (scan, logs, level) = np.log(np.abs(z)), self._scan
            right = np.clip(np.searchsorted(scan, u), 1, scan.size - 1)
            share = np.clip((u - scan[right - 1]) / (scan[right] - scan[right - 1]), 0.0, 1.0)[:, None]
            state, previous = np.exp((1 - share) * logs[right - 1] + share * logs[right]), equations[level]
            equations = equations[level:]
        for equation in equations:
            start = None if state is None or previous is None else equation.carry(previous, state)
            if equation is target:
                return start
            state, previous = equation.solve(z, start, tolerance=_ROUGH, most=_ROUGH_MOST).unknowns, equation
        return None

    def _on_axis(self, u: Array) -> ComplexArray:
        return np.asarray(np.exp(u) * np.exp(1j * _AXIS))

    def _build(self) -> None:
        low = math.log(self.scale) - _DEPTH
        intervals = self._intervals(low)
        panels: list[Panel] = []
        for number, (a, b) in enumerate(intervals):
            panels += _cut(a, b, math.log(self.scale), open_below=number == 0 and self._reaches_zero)
        done: list[tuple[Panel, Array]] = []
        errors: list[float] = []
        starts: list[ComplexArray] | None = None
        below = 0.0
        for round_ in range(_MOST_ROUNDS):
            u = np.concatenate([panel.locate(_POINTS) for panel in panels])
            lowest = [intervals[0][0]] if starts is None else []
            value, mass, shift, levels = self._solve(self._on_axis(np.concatenate([u, lowest])), starts)
            if lowest:
                below = max(0.0, float(mass[-1]) - self._atom) if self._reaches_zero else 0.0
                value, mass, shift, levels = value[:-1], mass[:-1], shift[:-1], [level[:-1] for level in levels]
            count = _POINTS.size
            factor = np.array([panel.factor(_POINTS) for panel in panels])
            p = (-value.imag / np.pi * np.exp(u)).reshape(-1, count)
            stored, checks = p[:, : NODES.size] / factor[:, : NODES.size], p[:, NODES.size :]
            again = interpolate(_CHECK, stored.T).T * factor[:, NODES.size :]
            size = np.maximum(np.abs(p).max(axis=1), _OPEN)
            error = np.abs(again - checks).max(axis=1) / size
            error = np.maximum(error, 0.1 * np.abs(series(stored)[:, -1]) / np.abs(stored).max(axis=1))
            weight = np.abs(p).mean(axis=1) * np.array([panel.high - panel.low for panel in panels])
            good = (error < _PANEL_ERROR) | (error * weight < _NEGLIGIBLE)
            last = round_ == _MOST_ROUNDS - 1
            for k in np.flatnonzero(good | last):
                done.append((panels[k], stored[k]))
                inside = (mass.reshape(-1, count)[k] > 0.01) & (mass.reshape(-1, count)[k] < 0.99)
                relative = (shift * np.exp(u) / np.pi).reshape(-1, count)[k] / size[k]
                if inside.any() and weight[k] > _WEIGHTY:
                    errors.append(float(error[k]))
                    # what extrapolation leaves is of the order of the square of what it took off
                    errors.append(float((relative[inside] ** 2).max()))
            bad = np.flatnonzero(~good)
            if bad.size == 0 or last:
                break
            halves = [(k, half) for k in bad for half in panels[k].halves()]
            places = [(k, panels[k].place(half.locate(_POINTS))) for k, half in halves]
            starts = [
                np.concatenate(
                    [interpolate(s, level.reshape(-1, count, level.shape[1])[k, : NODES.size]) for k, s in places]
                )
                for level in levels
            ]
            panels = [half for _, half in halves]
        done.sort(key=lambda item: item[0].low)
        self._panels = LogPanels([item[0] for item in done], np.array([item[1] for item in done]), below)
        error = abs(self._panels.total_mass + self._atom - 1)
        if not error < _MASS_LIMIT:
            raise CertificationError(
                f"{self!r}: the mass of the stored density misses 1 by {error:.1e}, where {_MASS_LIMIT:.0e} is "
                "allowed: take more cells"
            )
        if max(errors, default=0.0) > _DENSITY_LIMIT:
            raise CertificationError(
                f"{self!r}: the density is uncertain by {max(errors):.1e} (relative), where {_DENSITY_LIMIT:g} is "
                "allowed: take more cells"
            )
        self._share = (1 - self._atom) / self._panels.total_mass  # the mass error is spread evenly
        self._support = [(math.exp(a), math.exp(b)) for a, b in intervals]
        if self._reaches_zero:
            self._support[0] = (0.0, self._support[0][1])
        self.certificate = Certificate(
            mass_error=error,
            density_error=max(errors, default=0.0),
            residual=self._worst,
            half_plane=self._margin,
            nodes=self._nodes,
        )

    def _intervals(self, low: float) -> list[tuple[float, float]]:
        """Intervals of the support above e^low, in log x: scanned with one equation, ends polished with the finest."""
        high, mean = math.log(self._largest()) + _SCAN_STEP, math.log(self.scale)  # the bound may be the edge itself
        middle = max(low, mean - _SCANNED_FINELY)
        count = int((high - middle) / _SCAN_STEP)
        u = np.concatenate([np.linspace(low, middle, _SCAN_BELOW)[:-1], np.linspace(middle, high, count)])
        z = self._on_axis(u)
        level = self._scan_level
        chosen = self._equations[level]
        p, unknowns = self._seen(z, chosen)
        self._scan = u, np.log(unknowns), level
        u, p = self._dips(u, p, chosen)
        inside = p > _OPEN
        if not inside.any() or inside[-1]:
            raise CertificationError(f"{self!r}: the right end of the support was not found")
        if self._reaches_zero:  # below the first point with a density it is continued
            first = int(np.argmax(inside))
            u, inside = u[first:], inside[first:]
        ends = [float(u[0])] if inside[0] else []
        changes = np.flatnonzero(inside[1:] != inside[:-1])
        for number, k in enumerate(changes):
            rising = bool(inside[k + 1])
            other = changes[max(number - 1, 0)] if rising else changes[min(number + 1, changes.size - 1)]
            # no further out than the middle of a gap
            limit = math.inf if other == k else abs(float(u[other + rising] - u[k + 1 - rising])) / 2
            ends.append(self._end(float(u[k]), float(u[k + 1]), limit, rising=rising))
        return list(zip(ends[::2], ends[1::2], strict=True))

    def _dips(self, u: Array, p: Array, equation: PositionedEquation) -> tuple[Array, Array]:
        """The scan with points added around its minima inside, so that narrow gaps do not slip through."""
        for _ in range(_DIP_ROUNDS):
            low = (p[1:-1] <= p[:-2]) & (p[1:-1] <= p[2:]) & (p[1:-1] > _OPEN)
            k = np.flatnonzero(low & (p[1:-1] < _DIP * np.maximum(p[:-2], p[2:]))) + 1
            if k.size == 0:
                break
            added = np.unique(np.concatenate([u[k - 1] + u[k], u[k] + u[k + 1]]) / 2)
            u, p = np.append(u, added), np.append(p, self._seen(self._on_axis(added), equation)[0])
            order = np.argsort(u)
            u, p = u[order], p[order]
        return u, p

    def _end(self, low: float, high: float, limit: float, *, rising: bool) -> float:
        """The edge between an outside and an inside point of the scan, for the finest equation.

        Where p², smooth in log x next to a square-root edge, would vanish: from points over the bracket and its
        neighbourhood first, at most `limit` outside, then from points next to the edge.
        """
        sign = 1.0 if rising else -1.0
        edge, reach = 0.5 * (low + high), 2 * (high - low)
        for width in (reach, 0.15):
            begin = max(sign * edge - width, sign * (low if rising else high) - limit)
            u = sign * np.linspace(begin, sign * edge + width, _EDGE_POINTS)
            p = self._seen(self._on_axis(u), self.equation, math.inf)[0]
            inside = np.flatnonzero(p > max(_OPEN, _RISEN * float(p.max())))
            if inside.size < 3:
                continue
            before = u[max(inside[0] - 1, 0)]
            u, squares = u[inside[:3]], p[inside[:3]] ** 2
            slopes = np.diff(squares) / np.diff(u)
            bend = (slopes[1] - slopes[0]) / (u[2] - u[0])
            slope = slopes[0] - bend * (u[1] - u[0])
            root = sign * math.sqrt(max(0.0, slope**2 - 4 * bend * squares[0]))
            guess = u[0] - 2 * squares[0] / (slope + root) if slope * sign > 0 else u[0]
            edge = float(np.clip(guess, min(before, u[0]), max(before, u[0])))
        return edge

    def _seen(
        self, z: ComplexArray, equation: PositionedEquation, doubtful: float = _FAINT
    ) -> tuple[Array, ComplexArray]:
        """xρ(x) and the unknowns, roughly where it is above `doubtful`; else so that the outside is told from it."""
        found = equation.solve(z, self._start(z, equation), tolerance=_ROUGH, most=_ROUGH_MOST)
        unknowns = found.unknowns
        faint = np.flatnonzero(-equation.resolvent(unknowns).imag / np.pi * np.abs(z) < doubtful)
        if faint.size:
            unknowns[faint] = equation.solve(z[faint], unknowns[faint], tolerance=_TOLERANCE, most=_ROUGH_MOST).unknowns
        return np.asarray(-equation.resolvent(unknowns).imag / np.pi * np.abs(z)), unknowns

    def _right_of_support(self, x: float) -> tuple[PositionedEquation, ComplexArray]:
        """The last equation but one and its solution at a real point right of the support."""
        equation = self._equations[-2]
        z = self._on_axis(np.array([math.log(x)]))
        found = equation.solve(z, self._right, tolerance=_TOLERANCE)
        if not found.residual[0] < _ACCEPTED:
            raise CertificationError(f"the Dyson equation could not be solved at z = {x!r}; move away from the edge")
        self._right = found.unknowns
        return equation, found.unknowns

    def _largest(self) -> float:
        """A bound for the support, from the energies of rows and columns."""
        equation = self.equation
        kernel, weights = equation.kernel, equation.noise_rows
        smoothing = kernel.smoothing
        by_row = weights * ((smoothing @ equation.column_widths) @ equation.noise.T)
        by_column = (smoothing.T @ (equation.row_widths * weights)) @ equation.noise
        norm = math.sqrt(by_row.max()) + math.sqrt(by_column.max())
        for part in equation.components:
            row = part.rows.max(axis=1) * (smoothing @ kernel.columns) * float(equation.column_shares @ part.columns)
            column = (smoothing.T @ (kernel.rows * (part.rows @ equation.row_shares))) * float(part.columns.max())
            largest = math.sqrt(float(part.weights.max()))
            norm += (math.sqrt(row.max()) + math.sqrt(column.max())) * (1 + 1 / math.sqrt(part.inner)) * largest
        return norm**2

    # -- the contract -------------------------------------------------------------------------------

    def support(self, dps: int | None = None) -> list[tuple[Any, Any]]:
        """The intervals of the density, ascending; the right end is that of the first rows at this number of tokens."""
        if dps is not None:
            return self._precise(dps).support()
        return list(self._support)

    def atoms(self) -> list[tuple[float, float]]:
        """An atom at 0 of weight 1 - columns/rows where there are more rows than columns, else none."""
        return [(0.0, self._atom)] if self._atom > 0 else []

    def moment(self, k: int, dps: int | None = None) -> Any:
        r"""The moment :math:`\int x^k` for an integer k >= 0, from the stored density.

        Raises
        ------
        ParameterError : k is not an integer >= 0, or the moment exceeds the floats.
        """
        k = moment_order(k)
        if dps is not None:
            return self._precise(dps).moment(k)
        if k == 0:
            return 1.0
        return finite_moment(k, (self._panels.moment(k) if k > 1 else self._panels.total_mean) * self._share)

    def _pdf(self, x: Array) -> Array:
        result = np.zeros_like(x)
        positive = (x > 0) & np.isfinite(x)
        result[positive] = self._panels.density_in_log(np.log(x[positive])) / x[positive] * self._share
        result[x == 0] = np.inf if self._support[0][0] == 0 else 0.0
        return result

    def _cdf(self, x: Array) -> Array:
        result = np.where(x > 0, 1.0, np.where(x == 0, self._atom, 0.0))
        positive = (x > 0) & np.isfinite(x)
        mass = self._panels.mass(np.log(x[positive])) * self._share
        result[positive] = np.clip(self._atom + mass, 0.0, 1.0)
        return result

    def _partial_mean(self, x: Array) -> Array:
        result = np.where(x > 0, self._panels.total_mean, 0.0)
        positive = (x > 0) & np.isfinite(x)
        result[positive] = self._panels.partial_mean(np.log(x[positive]))
        return result * self._share

    def _ppf(self, q: Array) -> Array:
        continuous = np.maximum(q - self._atom, 0.0) / self._share
        lowest = 0.0 if self._atom else self._support[0][0]
        return np.where(q <= self._atom, lowest, self._panels.quantile(continuous))

    def _breakpoints(self) -> Array:
        return np.asarray(np.exp([panel.low for panel in self._panels.panels]))

    def _cauchy(self, z: ComplexArray) -> ComplexArray:
        result = np.zeros_like(z)
        finite = np.isfinite(z) & (z != 0)
        point = z[finite]
        flipped = point.imag < 0
        point = np.where(flipped, point.conj(), point)
        real = point.imag == 0
        # off the support and next to it the upper side stands for the axis
        shifted = np.where(real, np.abs(point) * np.exp(1j * np.where(point.real > 0, _AXIS, np.pi - _AXIS)), point)
        value = self._solve(shifted)[0] if point.size else point
        value = np.where(real, value.real, value)
        result[finite] = np.where(flipped, value.conj(), value)
        return result


def _cut(low: float, high: float, mean: float, *, open_below: bool) -> list[Panel]:
    """Panels of an interval: long ones far below the mean, and the ends' own."""
    end = min(1.4, 0.4 * (high - low))
    begin = low if open_below else low + min(1.4, 0.4 * (high - low))
    points = [begin]
    while points[-1] < high - end - 1e-9:
        here = points[-1]
        length = 4.5 if here < mean - 12 else 2.4
        points.append(min(here + length, high - end))
    panels = [] if open_below else [Panel(low, begin, 1)]
    panels += [Panel(a, b) for a, b in itertools.pairwise(points) if b > a]
    return [*panels, Panel(high - end, high, -1)]
