"""The complex part of a one-leaf curve: the physical unknown at points of the upper half-plane and of the support."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gequiv._checks import Array, ComplexArray
from gequiv.errors import CertificationError
from gequiv.laws._curve_line import CurveEdge, Line, evaluate
from gequiv.laws._edge_adapted import edge_list
from gequiv.laws.subordination import Jet, Leaf, Node, Origin

_ANGLE = 1e-13  # to the real axis: beyond what rounding imitates in extended precision
_ITERATIONS = 40
_CLOSE = 1e-8  # of the distance from the support
_COARSE = 1e-12
_MANY = 64  # atoms of the leaf beyond which double precision has to do
_STEP = 1e-9  # relative step that the next one squares


class Arcs:
    """`gequiv.laws._edge_adapted.NodeSolver` for a one-leaf curve, and its Cauchy transform; states are unknowns.

    Attributes
    ----------
    worst_step : largest square of a relative Newton step left at a node.
    margin : smallest half-plane margin over the nodes.
    """

    precision: type[np.floating[Any]] = np.longdouble
    finest: float = 0.0
    """Tolerance of panels below which rounding would show."""

    def __init__(self, node: Node, line: Line) -> None:
        self.node, self.line = node, line
        ends: list[CurveEdge] = [edge for pair in line.edges for edge in pair]
        self.intervals = [(float(a.z), float(b.z)) for a, b in line.edges]
        self.exponents = [(a.exponent, b.exponent) for a, b in line.edges]
        self.powers = [(a.power, b.power) for a, b in line.edges]
        self.residues = [float(edge.z - np.longdouble(float(edge.z))) for edge in ends]
        edges = edge_list(self.intervals, self.exponents, self.residues, self.powers)
        self._z = np.array([edge.z for edge in ends], dtype=np.longdouble)
        self._unknown = np.array([edge.unknown for edge in ends], dtype=np.longdouble)
        self._reach = np.array([edge.sign * edge.width for edge in edges], dtype=np.longdouble)
        self._power = np.array([edge.power for edge in edges])
        self._exponent = np.array([edge.exponent for edge in edges])
        # ω - ω_e is about this times ξ, in the upper half-plane
        size = np.abs(self._reach / np.array([edge.bend for edge in ends])) ** (1 / self._power)
        lower = np.arange(len(ends)) % 2 == 0
        cusp = (self._power == 3) & (self._exponent == 1)
        turn = np.pi * np.where(lower != cusp, 1 - 1 / self._power, 1 / self._power)
        self._direction = size * np.exp(1j * turn)
        (leaf,) = node.leaves()
        many = len(leaf.law.atoms()) > _MANY
        self._real: Any = np.float64 if many else np.longdouble
        self._complex: Any = np.complex128 if many else np.clongdouble
        self.finest = _COARSE if many else 0.0
        self._soft = self._exponent > 0
        self._place = np.cumsum(self._soft) - 1
        self._reach = self._reach.astype(self._real)
        self._origin = self._origins(leaf)
        self._ends = np.array([end for interval in self.intervals for end in interval])
        self.top = float(np.abs(self._ends).max())
        self.worst_step, self.margin = 0.0, math.inf

    def _origins(self, leaf: Leaf) -> Origin:
        """The soft edges."""
        unknown = self._unknown[self._soft]
        distances = leaf.distances(unknown)
        jet, visit = evaluate(self.node, unknown.astype(np.clongdouble))
        jets = [
            Jet(here.z.real.astype(self._real), here.g.real.astype(self._real), None, None)
            for here in (*visit.jets, jet)
        ]
        if distances is not None:
            distances = distances.astype(self._real)
        return Origin(unknown.astype(self._real), distances, np.arange(unknown.size), jets)

    # -- nodes of the stored density ------------------------------------------------------------------

    def solve(self, edge: np.ndarray, xi: Any, start: ComplexArray | None) -> tuple[Array, ComplexArray]:
        """Smooth factor of the density, and unknowns less those of the edges; see `NodeSolver`."""
        xi = xi.astype(self._real)
        rise = self._reach[edge] * xi ** self._power[edge]
        if start is None:
            unknown, g, good = self._march(edge, xi, rise)
        else:
            unknown, g, good = self._near_edges(edge, rise, start[:, 0])
        if not good.all():
            lost = np.flatnonzero(~good)
            z = self._z[edge[lost]] + rise[lost]
            found, jet = self._descend(z.astype(np.clongdouble))
            unknown[lost], g[lost] = found - self._unknown[edge[lost]], jet.g
        density = -(g.imag / np.pi) / xi ** self._exponent[edge]
        return density.astype(np.float64), unknown.astype(np.complex128)[:, None]

    def _march(self, edge: np.ndarray, xi: Any, rise: Any) -> tuple[Any, Any, np.ndarray]:
        """From each edge inwards, node after node, all edges at once."""
        order = np.lexsort((xi, edge))
        steps = np.split(order, np.flatnonzero(np.diff(edge[order])) + 1)
        unknown = np.zeros(xi.size, dtype=self._complex)
        g, good = np.zeros_like(unknown), np.zeros(xi.size, dtype=bool)
        ratio = self._direction.astype(self._complex)
        for rank in range(max(len(step) for step in steps)):
            now = np.array([step[rank] for step in steps if rank < len(step)])
            e = edge[now]
            unknown[now], g[now], fine = self._near_edges(e, rise[now], ratio[e] * xi[now])
            good[now] = fine
            ratio[e[fine]] = (unknown[now] / xi[now])[fine]
        return unknown, g, good

    def _near_edges(self, edge: np.ndarray, rise: Any, start: Any) -> tuple[Any, Any, np.ndarray]:
        """Unknowns less those of the edges, g, and which are certified: z - z_e as given, by Newton's method.

        Points of soft edges are reckoned from the edge, so that nothing cancels; at a hard edge z itself is small.
        """
        unknown = start.astype(self._complex)
        g, good = np.empty_like(unknown), np.zeros(unknown.size, dtype=bool)
        for soft in (True, False):
            part = np.flatnonzero(self._soft[edge] == soft)
            if part.size == 0:
                continue
            e = edge[part]
            if soft:
                found = self._newton(rise[part], unknown[part], self._origin.take(self._place[e]))
            else:
                here = self._unknown[e].astype(self._real)
                found = self._newton(self._z[e] + rise[part], here + unknown[part])
                found = (found[0] - here, *found[1:])
            unknown[part], jet, good[part] = found
            g[part] = jet.g
        return unknown, g, good

    # -- Newton ---------------------------------------------------------------------------------------

    def _newton(self, target: Any, unknown: Any, origin: Origin | None = None) -> tuple[Any, Jet, np.ndarray]:
        """Unknowns near the given ones where z is the target, their jets, and which are certified.

        With an origin, unknowns and target are what there is beyond it.
        """
        eps = float(np.finfo(unknown.real.dtype).eps)
        unknown = unknown.copy()
        active = np.arange(unknown.size)
        last = np.full(unknown.size, np.inf)
        for _ in range(_ITERATIONS):
            jet, _ = evaluate(self.node, unknown[active], origin.take(active) if origin is not None else None)
            with np.errstate(all="ignore"):
                step = ((jet.z if origin is None else jet.rise_z) - target[active]) / jet.dz[:, 0]
                # no step towards the real axis by more than most of the height
                height = unknown[active].imag
                short = np.where(step.imag > 0.9 * height, 0.9 * height / step.imag, 1.0)
                size = (np.abs(step) / np.abs(height)).astype(np.float64)
            unknown[active] -= step * short
            # the step to come squares what is left
            settled = ~(size > min(eps**0.5, 0.1 * _STEP)) | ((size < _STEP) & (size > 0.3 * last[active]))
            last[active] = size
            active = active[~settled]
            if active.size == 0:
                break
        jet, visit = evaluate(self.node, unknown, origin)
        margin = visit.margins(jet)
        good = (margin > _ANGLE) & (last < _STEP)
        if good.any():
            self.worst_step = max(self.worst_step, float(last[good].max()) ** 2)
            self.margin = min(self.margin, float(margin[good].min()))
        if origin is not None:
            jet.g = origin.jets[-1].g + jet.rise_g
        return unknown, jet, good

    def _descend(self, z: Any) -> tuple[Any, Jet]:
        """By continuation in Im z from far above, adaptive for each point.

        Raises
        ------
        CertificationError : a point was not reached.
        """
        far = 1e3 * (self.top + self.line.length)
        base, _ = evaluate(self.node, np.array([1j * far], dtype=z.dtype))
        slope, offset = base.dz[0, 0], base.z[0] - base.dz[0, 0] * (1j * far)
        height = np.maximum(30 * self.top, np.abs(z)).astype(z.real.dtype)
        above = z.real + 1j * height
        unknown, jet, good = self._newton(above, (above - offset) / slope)
        beside = np.abs(z.real.astype(np.float64)[:, None] - self._ends).min(axis=1)
        factor = np.full(z.size, 0.25)
        final = np.zeros(z.size, dtype=bool)
        active = np.flatnonzero(good)
        for _ in range(400):
            if active.size == 0:
                break
            following = height[active] * factor[active]
            last = (following <= z[active].imag) | (following < 0.03 * beside[active] * factor[active] ** 2)
            following = np.where(last, z[active].imag, following)
            target = z[active].real + 1j * following
            now, _ = evaluate(self.node, unknown[active])
            guess = unknown[active] + 1j * (following - height[active]) / now.dz[:, 0]
            guess = np.where(guess.imag > 0, guess, unknown[active])
            new, found, good = self._newton(target, guess)
            jump = np.abs(new - unknown[active]) < 0.5 * (np.abs(new.imag) + np.abs(unknown[active].imag))
            good &= jump | last
            moved = active[good]
            unknown[moved], height[moved] = new[good], following[good]
            jet.g[moved], jet.dz[moved], jet.dg[moved] = found.g[good], found.dz[good], found.dg[good]
            final[moved] = last[good]
            factor[moved] = np.maximum(0.02, factor[moved] ** 1.3)
            lost = active[~good]
            factor[lost] = factor[lost] ** 0.4
            active = active[~final[active] & (factor[active] < 1 - 1e-4)]
        if not final.all():
            where = complex(z[~final][0])
            raise CertificationError(
                f"the subordination function at z = {where!r} could not be certified; take a larger Im z, or move away "
                "from the edge of the support"
            )
        return unknown, jet

    # -- the Cauchy transform -------------------------------------------------------------------------

    def cauchy(self, z: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        """G and dG/dz at finite points with Im z >= 0 off the spectrum."""
        g, slope = np.empty_like(z), np.empty_like(z)
        place = np.searchsorted(self._ends, z.real)
        padded = np.concatenate([[-np.inf], self._ends, [np.inf]])
        distance = np.minimum(z.real - padded[place], padded[place + 1] - z.real)
        # a hair above the axis and off the support G is linear in Im z
        close = (place % 2 == 0) & (z.imag <= _CLOSE * distance)
        if close.any():
            jet = self._on_axis(z.real[close])
            slope[close] = jet.dg[:, 0] / jet.dz[:, 0]
            g[close] = jet.g + 1j * z.imag[close] * slope[close]
        if not close.all():
            jet = self._descend(z[~close].astype(np.clongdouble))[1]
            g[~close], slope[~close] = jet.g, jet.dg[:, 0] / jet.dz[:, 0]
        return g, slope

    def _on_axis(self, points: Array) -> Jet:
        """At real points off the support, from the run that holds them."""
        x = points.astype(np.longdouble)
        run = (np.searchsorted(self._ends, points) + 1) // 2
        unknown = np.empty(x.size, dtype=np.longdouble)
        for number in np.unique(run):
            part = run == number
            unknown[part] = self._in_run(x[part], int(number))
        return evaluate(self.node, unknown.astype(np.clongdouble))[0]

    def _in_run(self, x: Any, number: int) -> Any:
        points, values = (column.astype(np.longdouble) for column in self.line.runs[number])
        if number > 0:  # the upper edge of the interval below
            edge = self.line.edges[number - 1][1]
            points, values = np.append(edge.unknown, points), np.append(edge.z, values)
        if number < len(self.line.edges):
            edge = self.line.edges[number][0]
            points, values = np.append(points, edge.unknown), np.append(values, edge.z)
        k = np.searchsorted(values, x)
        outside = (k == 0) | (k == values.size)
        low, high = points[np.maximum(k - 1, 0)], points[np.minimum(k, points.size - 1)]
        low = np.where(k == 0, -np.inf, low)
        high = np.where(k == values.size, np.inf, high)
        t = np.where(k == 0, points[0], np.where(k == values.size, points[-1], 0.5 * (low + high)))
        for iteration in range(200):
            jet, _ = evaluate(self.node, t.astype(np.clongdouble))
            excess = jet.z.real - x
            high, low = np.where(excess > 0, np.minimum(high, t), high), np.where(excess > 0, low, np.maximum(low, t))
            with np.errstate(all="ignore"):
                new = t - excess / jet.dz[:, 0].real
                middle = np.where(outside & ~(np.isfinite(low) & np.isfinite(high)), new, 0.5 * (low + high))
            usable = (new > low) & (new < high) & (iteration % 8 != 7)
            new = np.where(excess == 0, t, np.where(usable, new, middle))
            moved = np.abs(new - t)
            t = new
            if (moved <= 4 * np.finfo(np.longdouble).eps * np.abs(t)).all():
                return t
        raise CertificationError(f"the Cauchy transform at the real points {x.astype(float)!r} did not settle")
