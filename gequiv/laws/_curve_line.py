"""The real part of a one-leaf curve: which real unknowns are physical, and the edges where they end."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gequiv._checks import Array
from gequiv.errors import CertificationError
from gequiv.laws.subordination import Jet, Node, Origin, Visit

_DECADES = 11  # of distance from the leaf's spectrum that the grid resolves
_OUTWARD = 6  # decades beyond the largest length
_PER_DECADE = 6
_MANY = 400  # pieces of the leaf's spectrum beyond which the grid is coarser
_HALVINGS = 6
_GOLDEN = 0.381966
_GOLDEN_STEPS = 40
_POLE_STEPS = 60
_STEPS = 200
_ZERO = 1e-26  # of the top edge: an edge that small is at 0
_INTEGER = 0.02
_BESIDE_ZERO = 1e-30
_BESIDE = 1e-7
_AT_ZERO = 1e-16  # of the largest length: an edge at an atom that small is at 0
_TOUCHING = 1e-13  # a maximum of dz/dω so close to 0 is 0
_HAIR = 1e-25
_SAME = 1e-6  # relative distance of z from an atom through which the curve passes


@dataclass(frozen=True)
class CurveEdge:
    """An edge of the support as a point of the curve.

    Attributes
    ----------
    z : location, in extended precision.
    unknown : the leaf's point there.
    bend : A in z - z_e = A (ω - ω_e)^power next to it.
    power, exponent : p and q as in `gequiv.laws._edge_adapted`.
    """

    z: Any
    unknown: Any
    bend: float
    power: int
    exponent: int


def evaluate(node: Node, point: Any, origin: Origin | None = None) -> tuple[Jet, Visit]:
    """The root's jet and what was met, at unknowns (m,), reckoned from an origin if there is one."""
    visit = Visit(origin=origin)
    with np.errstate(all="ignore"):  # poles: what is not finite is not physical
        jet = node.evaluate(point[:, None], visit)
    return jet, visit


def conditions(jet: Jet, visit: Visit) -> Any:
    """(conditions, m): all positive where a real unknown is physical."""
    rows = [point.dz[:, 0].real for point, _ in visit.points[1:]]
    return np.array([*rows, *visit.signs, jet.dz[:, 0].real])


class Line:
    """Runs of physical real unknowns, ascending, and the edges between them.

    Attributes
    ----------
    runs : for each gap of the spectrum the grid points (unknown, z) of its run, ascending in both; empty at a cusp.
    edges : for each interval of the support its lower and upper `CurveEdge`; a cusp ends one interval and begins the
        next.
    length : the largest length in the unknowns.

    Raises
    ------
    CertificationError : a run ends in something else than an edge.
    """

    def __init__(self, node: Node, fineness: float = 1.0) -> None:
        self.node = node
        (leaf,) = node.leaves()
        self._spectrum = leaf.spectrum()
        lengths = node.lengths() or [1.0]
        self.length, self._shortest = max(lengths), min(lengths)
        self._point, self._segment = self._grid(fineness)
        self._add(*self._beside_atoms())
        z, least = self._conditions(self._point)
        if self._add(*self._between(least)):
            z, least = self._conditions(self._point)
        good = least > 0
        starts, stops = self._runs(z, good)
        self.runs = [(self._point[a : b + 1], z[a : b + 1]) for a, b in zip(starts, stops, strict=True)]
        lower, upper = self._edges(stops[:-1], 1), self._edges(starts[1:], -1)
        self.edges = list(zip(lower, upper, strict=True))
        for cusp in self._cusps:
            self._insert(cusp)
        ordered = [edge for pair in self.edges for edge in pair]
        if not all(a.z < b.z or a.power == b.power == 3 for a, b in itertools.pairwise(ordered)):
            raise CertificationError(
                f"the edges {[float(edge.z) for edge in ordered]} of the support do not ascend: two of them are too "
                "close to be told apart; move the parameters slightly"
            )

    def _grid(self, fineness: float) -> tuple[Array, np.ndarray]:
        """Points off the leaf's spectrum that crowd at its ends and at the hints, and the number of their segment."""
        many = len(self._spectrum) > _MANY
        decades, rate = (5, 3) if many else (_DECADES, _PER_DECADE)
        inward = 0.5 * 10.0 ** -np.linspace(0, decades, int(decades * rate * fineness))
        low, high = math.log10(self._shortest) - _DECADES, math.log10(self.length) + _OUTWARD
        reach = 10.0 ** np.linspace(low, high, int((high - low) * _PER_DECADE * fineness))
        lows, highs = np.array(self._spectrum).T
        gaps = lows[1:] - highs[:-1]
        pieces = [lows[0] - reach, highs[-1] + reach]
        for ends, side in ((highs[:-1], 1), (lows[1:], -1)):
            # by the length of the gap; where an end is much closer to 0, by its size as well
            close = (np.abs(ends) < gaps) & (ends != 0)
            scale = np.append(gaps, np.abs(ends[close]))
            pieces.append(np.append(ends, ends[close])[:, None] + side * scale[:, None] * inward)
        pieces += [hint + side * reach for hint in self.node.hints() for side in (-1, 1)]
        point = np.unique(np.concatenate([piece.reshape(-1) for piece in pieces]))
        begun = np.searchsorted(lows, point, side="right")  # pieces of the spectrum that begin at or before the point
        off = (begun == 0) | (point > highs[np.maximum(begun - 1, 0)])
        return point[off], begun[off]

    def _add(self, point: Array, segment: np.ndarray) -> bool:
        """Put points into the grid; False if there are none."""
        self._point, place = np.unique(np.append(self._point, point), return_index=True)
        self._segment = np.append(self._segment, segment)[place]
        return point.size > 0

    def _beside_atoms(self) -> tuple[Array, np.ndarray]:
        """Points, and their segments, that crowd at the atoms of the laws on the way, where g has a pole.

        There g rises from minus infinity to infinity; elsewhere it falls with the unknown.
        """
        points: list[Array] = [np.empty(0)]
        segments: list[np.ndarray] = [np.empty(0, dtype=int)]
        jet, visit = evaluate(self.node, self._point.astype(np.complex128))
        for number, here in enumerate([*visit.jets[1:], jet]):
            g = here.g.real
            with np.errstate(invalid="ignore"):
                pole = (g[:-1] < 0) & (g[1:] > 0) & (here.dz[1:, 0].real > 0) & (here.dz[:-1, 0].real > 0)
            for k in np.flatnonzero(pole & (self._segment[1:] == self._segment[:-1])):
                low, high = self._point[k], self._point[k + 1]
                a, b = low, high
                for _ in range(_POLE_STEPS):
                    middle = 0.5 * (a + b)
                    jet_there, met = evaluate(self.node, np.array([middle], dtype=np.complex128))
                    there = [*met.jets[1:], jet_there][number]
                    a, b = (middle, b) if there.g[0].real < 0 else (a, middle)
                distance = 10.0 ** -np.arange(0, _DECADES, 1 / _PER_DECADE)
                points += [a + (high - a) * distance, b - (b - low) * distance]
                segments.append(np.full(2 * distance.size, self._segment[k]))
        found = np.concatenate(points)
        return found, np.concatenate(segments)

    def _conditions(self, point: Array) -> tuple[Array, Array]:
        """z, and the least of the conditions, negative where something is not finite."""
        jet, visit = evaluate(self.node, point.astype(np.complex128))
        z = jet.z.real
        least = conditions(jet, visit).min(axis=0)
        return z, np.where(np.isfinite(least) & np.isfinite(z), least, -np.inf)

    def _between(self, least: Array) -> tuple[Array, np.ndarray]:
        """What the grid passes over, and the segments: physical points where others are not, and the reverse.

        The first are narrow peaks of a condition, the second narrow dips, such as next to an atom of an ingredient.
        """
        peaks, segments, low, high, best = self._extremes(least, 1)
        touching = np.abs(best) <= _TOUCHING
        self._cusps = [cusp for cusp in map(self._cusp, low[touching], high[touching]) if cusp is not None]
        parted = (best > 0) & ~touching
        dips, others, _, _, deepest = self._extremes(least, -1)
        below = deepest > 0
        return np.append(peaks[parted], dips[below]), np.append(segments[parted], others[below])

    def _extremes(self, least: Array, sign: int) -> tuple[Array, np.ndarray, Array, Array, Array]:
        """Where sign * least peaks between its neighbours below 0: points, segments, brackets, values.

        Golden-section search, ended where the value is above 0.
        """
        value = sign * least
        inner = (self._segment[2:] == self._segment[1:-1]) & (self._segment[:-2] == self._segment[1:-1])
        peak = inner & (value[1:-1] <= 0) & (value[1:-1] >= value[2:]) & (value[1:-1] >= value[:-2])
        peak &= np.isfinite(value[1:-1])
        k = np.flatnonzero(peak) + 1
        low, middle, high, best = self._point[k - 1], self._point[k], self._point[k + 1], value[k]
        active = np.arange(k.size)
        for _ in range(_GOLDEN_STEPS):
            active = active[best[active] <= 0]
            if active.size == 0:
                break
            a, t, b = low[active], middle[active], high[active]
            upper = b - t > t - a
            probe = t + _GOLDEN * np.where(upper, b - t, a - t)
            found = sign * self._conditions(probe)[1]
            better = found > best[active]
            # the old middle becomes an end where the probe is better, else the probe does
            end, raises = np.where(better, t, probe), upper == better
            low[active], high[active] = np.where(raises, end, a), np.where(raises, b, end)
            middle[active] = np.where(better, probe, t)
            best[active] = np.maximum(best[active], found)
        return middle, self._segment[k], low, high, best

    def _cusp(self, low: float, high: float) -> CurveEdge | None:
        """Where two intervals touch: dz/dω has a maximum that is 0, between the given points."""
        a, b = np.longdouble(low), np.longdouble(high)
        at_a, at_b = self._bend(a), self._bend(b)
        if not at_a > 0 > at_b:
            return None
        for iteration in range(_STEPS):
            t = a + (b - a) * (at_a / (at_a - at_b)) if iteration % 3 < 2 else 0.5 * (a + b)
            value = self._bend(t)
            a, at_a, b, at_b = (t, value, b, at_b) if value > 0 else (a, at_a, t, value)
            if b - a <= 4 * np.finfo(np.longdouble).eps * max(abs(a), self._shortest):
                break
        jet, _ = evaluate(self.node, np.array([a], dtype=np.clongdouble))
        distance = 1e-6 * (high - low)
        third = (self._bend(a + distance) - self._bend(a - distance)) / (2 * distance)
        z = jet.z[0].real
        if abs(z) <= 8 * np.finfo(np.longdouble).eps * self.length:
            z = np.longdouble(0)
        return CurveEdge(z, a, float(third / 6), 3, 1)

    def _bend(self, unknown: Any) -> Any:
        """d²z/dω² at a real unknown: dz/dω a hair above it, without cancellation."""
        hair = _HAIR * self._shortest
        jet, _ = evaluate(self.node, np.array([unknown + 1j * hair], dtype=np.clongdouble))
        return jet.dz[0, 0].imag / hair

    def _insert(self, cusp: CurveEdge) -> None:
        for k, (lower, upper) in enumerate(self.edges):
            if lower.unknown < cusp.unknown < upper.unknown:
                self.edges[k : k + 1] = [(lower, cusp), (cusp, upper)]
                self.runs.insert(k + 1, (np.empty(0), np.empty(0)))
                break

    def _runs(self, z: Array, good: np.ndarray) -> tuple[list[int], list[int]]:
        """First and last index of each run; runs on both sides of an atom through which the curve passes are one."""
        linked = good[1:] & good[:-1] & (self._segment[1:] == self._segment[:-1])
        passing = good[1:] & good[:-1] & (self._segment[1:] == self._segment[:-1] + 1)
        for location, _ in self.node.atoms():
            slack = _SAME * max(abs(location), self._shortest)
            linked |= passing & (z[:-1] <= location + slack) & (z[1:] >= location - slack)
        starts = np.flatnonzero(good & ~np.append(False, linked))
        stops = np.flatnonzero(good & ~np.append(linked, False))
        if not (good[0] and good[-1]) or starts.size < 2:
            raise CertificationError(
                "the support was not found: the curve has no edges, or is not physical far out; bring the parameters "
                "closer to one"
            )
        return starts.tolist(), stops.tolist()

    def _edges(self, inside: list[int], side: int) -> list[CurveEdge]:
        """The edge beyond each end of a run; side +1 for edges above their run."""
        start = np.array(inside)
        folds = self._segment[start] == self._segment[start + side]
        edges: list[Any] = [None] * start.size
        for k in np.flatnonzero(~folds):
            edges[k] = self._at_atom(int(start[k]), side)
        at = np.flatnonzero(folds)
        if at.size == 0:
            return edges
        a, b = (self._point[k].astype(np.clongdouble) for k in (start[at], start[at] + side))
        for _ in range(_HALVINGS):
            middle = 0.5 * (a + b)
            with np.errstate(invalid="ignore"):
                good = (conditions(*evaluate(self.node, middle)) > 0).all(axis=0)
            a, b = np.where(good, middle, a), np.where(good, b, middle)
        unknown = self._root(a.real, b.real)
        jet, _ = evaluate(self.node, unknown.astype(np.clongdouble))
        top = max(abs(run[1][0]) for run in self.runs[1:])
        positive = self.node.bounds()[0] >= 0
        for k, z, point in zip(at, jet.z.real, unknown, strict=True):
            hard = positive and abs(z) <= _ZERO * top
            step = 0.1 * self._back(int(start[k]), side, point)
            edges[k] = self._edge(np.longdouble(0) if hard else z, point, step, hard)
        return edges

    def _back(self, index: int, side: int, edge: Any) -> Any:
        """From an edge to a point of its run that is not right beside it."""
        begin, end = next((run[0], run[-1]) for run, _ in self.runs if run[0] <= self._point[index] <= run[-1])
        enough = _BESIDE * max(abs(edge), self._shortest)
        while abs(self._point[index] - edge) < enough and begin <= self._point[index - side] <= end:
            index -= side
        return self._point[index] - edge

    def _at_atom(self, index: int, side: int) -> CurveEdge:
        """The edge of a run that ends at an atom of the leaf, which is just too light to survive: a hard edge."""
        piece = self._spectrum[self._segment[index] + min(side, 0)]
        point = np.longdouble(piece[0])
        if piece[0] != piece[1]:
            raise CertificationError(
                f"an edge of the support is not of square-root kind: an ingredient's density vanishes at {piece} "
                "faster than a square root; add a little noise"
            )
        step = self._point[index] - point
        jet, _ = evaluate(self.node, np.array([point + step], dtype=np.clongdouble))
        z = jet.z[0].real
        if abs(z) <= _AT_ZERO * self.length:
            z = np.longdouble(0)
        return self._edge(z, point, 1e8 * step, True)

    def _edge(self, z: Any, unknown: Any, step: Any, hard: bool) -> CurveEdge:
        """The edge with its powers, from how z and g behave a little inside the run."""
        distance = step * np.array([1.0, 1e-1, 1e-2]) * (1e-2 if hard else 1.0)
        jet, _ = evaluate(self.node, (unknown + distance).astype(np.clongdouble))
        power, exponent = 2, 1
        if hard:
            behaviour = np.abs(np.array([jet.z.real - z, jet.g.real])).astype(np.float64)
            slopes = np.diff(np.log(behaviour))[:, -1] / np.log(0.1)
            power, exponent = (round(float(slope)) for slope in slopes)
            if np.abs(slopes - (power, exponent)).max() > _INTEGER or exponent >= 0:
                raise CertificationError(
                    f"the density at {float(z)!r} is not a power of the distance, or an atom is close to vanishing "
                    "there: add a little noise, or move the parameters slightly"
                )
        bend = float(jet.dz[0, 0].real / (power * distance[0] ** (power - 1)))
        return CurveEdge(z, unknown, bend, power, exponent)

    def _root(self, a: Any, b: Any) -> Any:
        """Where the first of the conditions vanishes between a, where all hold, and b: secants, kept in the bracket."""
        size = conditions(*evaluate(self.node, a.astype(np.clongdouble)))

        def least(t: Any) -> Any:
            values = conditions(*evaluate(self.node, t.astype(np.clongdouble))) / size
            return np.where(np.isfinite(values), values, -1).min(axis=0)

        value_a, value_b = least(a), least(b)
        eps, inside = np.finfo(a.dtype).eps, np.sign(a)
        kept = np.zeros(a.size, dtype=int)
        slow = np.zeros(a.size, dtype=bool)
        for _ in range(_STEPS):
            with np.errstate(all="ignore"):
                t = a + (b - a) * (value_a / (value_a - value_b))
            middle = 0.5 * (a + b)
            # where conditions vanish together secants creep: halve the bracket after a step that did not
            t = np.where(np.isfinite(t) & ~slow, t, middle)
            value, width = least(t), np.abs(b - a)
            good = value > 0
            # Illinois: halve the value of an end that stays twice
            kept = np.where(good, np.maximum(kept, 0) + 1, np.minimum(kept, 0) - 1)
            value_b = np.where(good & (kept > 1), 0.5 * value_b, value_b)
            value_a = np.where(~good & (kept < -1), 0.5 * value_a, value_a)
            a, value_a = np.where(good, t, a), np.where(good, value, value_a)
            b, value_b = np.where(good, b, t), np.where(good, value_b, value)
            slow = ~slow & (np.abs(b - a) > 0.5 * width)
            if (np.abs(b - a) <= 4 * eps * np.maximum(np.abs(a), self._shortest)).all():
                break
        # an edge at 0, but for rounding; at 0 itself factors of the curve vanish
        return np.where(np.abs(a) <= 8 * eps * self._shortest, inside * _BESIDE_ZERO * self._shortest, a)
