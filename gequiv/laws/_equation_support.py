"""Support of the law of a `gequiv.laws.equation.SpectralEquation`, and the equation at the nodes of its edges."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gequiv._checks import Array, ComplexArray
from gequiv.errors import CertificationError
from gequiv.laws._edge_adapted import chebyshev_nodes, edge_list
from gequiv.laws._equation_solver import Solution, Solver, Status

_PER_DECADE = 6  # points of the first scan, from the bounds towards 0
_DEEPEST = 1e-13  # in units of the bounds
_EVEN = 180  # and evenly spread over what may be support
_COARSE = 4  # every fourth point is solved from nothing, the others from their neighbours
_MISMATCH = 0.1
_FINEST = 1e-6
_MOST_POINTS = 20000
_BETWEEN = 7  # points of a bracket that are solved at once
_NEXT_TO_EDGE = 1e-5  # in the edge variable: closer points may lie outside by the rounding of the edge
_SLOPE_POINTS = (1e-9, 1e-10, 1e-11)  # where the exponent of the density at 0 is measured, in units of the extent
_DEPTHS = (1.0, 1e2, 1e4)
_SLOPE_ERROR = 0.006
_LARGEST_POWER = 8
_LEVELS = {1e-13: 16, 1e-12: 20}  # bisections after which a tolerance is given up: below it is rounding
_MOST_LEVELS = 50
_NOISE_AT = 1e-6  # where rounding next to an edge is measured, in units of the interval
_NOISE_WANTED = 2e-13
_NOISE_ALLOWED = 1e-7
_WINDOW = 16  # of the series about an edge: from t to (1 + _WINDOW) t
_DEGREE = 8
_FARTHEST = 0.02
ADVICE = "the law sits too close to a singular limit: move its parameters slightly"


class MissedGapError(CertificationError):
    """A point that should lie inside the support does not.

    Attributes
    ----------
    x : the point.
    """

    def __init__(self, x: float) -> None:
        super().__init__(f"the support has a gap at {x!r} that the scan missed: {ADVICE}")
        self.x = x


class AxisScan:
    """Certified points of the real axis, ascending, refined where neighbours disagree or the solution is nearly real.

    Points that cannot be certified are left out.

    Attributes
    ----------
    x, state, status, margin : points, solutions, `Status` inside or outside, and the half-plane margin (0 outside).
    extent : largest magnitude in the support, roughly.

    Raises
    ------
    CertificationError : the refinement does not end.
    """

    def __init__(self, solver: Solver) -> None:
        self.solver = solver
        equation = solver.equation
        width = equation.width
        self.x = np.empty(0)
        self.state = np.empty((0, width), dtype=np.complex128)
        self.status = np.empty(0, dtype=int)
        self.margin = np.empty(0)
        self._cover(self._towards_zero())
        self._cover(self._evenly())
        inside = self.x[self.status == Status.INSIDE]
        if inside.size == 0:
            raise CertificationError(f"no point inside the support could be certified: {ADVICE}")
        self.extent = float(np.abs(inside).max())
        self._refine()

    def _towards_zero(self) -> Array:
        equation, reach = self.solver.equation, self.solver.reach
        steps = reach * np.geomspace(_DEEPEST, 1, int(-_PER_DECADE * math.log10(_DEEPEST)))
        points = np.concatenate([-steps[::-1], steps])
        return points[(points > equation.low) & (points < equation.high)]

    def _evenly(self) -> Array:
        """Over the hull of the points that do not lie off the support, and at both ends of it."""
        low, high = self.solver.equation.low, self.solver.equation.high
        out = self.status == Status.OUTSIDE
        if not out.all():
            first, last = int(np.argmin(out)), out.size - 1 - int(np.argmin(out[::-1]))
            low = float(self.x[first - 1]) if first > 0 else low
            high = float(self.x[last + 1]) if last < out.size - 1 else high
        points = low + (high - low) * (np.arange(_EVEN) + 0.5) / _EVEN
        beyond = 0.01 * (self.solver.equation.high - self.solver.equation.low)
        ends = [self.solver.equation.high + beyond]
        if self.solver.equation.low != 0:
            ends.append(self.solver.equation.low - beyond)
        points = np.append(points, ends)
        return np.asarray(points[points != 0], dtype=np.float64)

    def _cover(self, points: Array) -> None:
        """Every fourth point from nothing, the others from their neighbours."""
        self.insert(points[::_COARSE], None)
        fine = np.delete(points, slice(None, None, _COARSE))
        self.insert(fine, self.nearest(fine) if self.x.size else None)

    def nearest(self, x: Array, status: Status | None = None) -> ComplexArray:
        """Solutions at the nearest points (of that status), as starts; at least one point must be there."""
        chosen = np.arange(self.x.size) if status is None else np.flatnonzero(self.status == status)
        middle = _middle(self.x[chosen[:-1]], self.x[chosen[1:]])
        return self.state[chosen[np.searchsorted(middle, x)]]

    def insert(self, x: Array, start: ComplexArray | None) -> bool:
        """Add points, from solutions nearby; False if none of them could be certified."""
        found = self.solver.solve(x.astype(np.complex128), start)
        good = found.status != Status.FAILED
        state, status = found.state[good], found.status[good]
        margin = np.zeros(status.size)
        inside = status == Status.INSIDE
        if inside.any():
            margin[inside] = self.solver.equation.margin(found.z[good][inside], state[inside])
        self.x, keep = np.unique(np.concatenate([self.x, x[good]]), return_index=True)
        self.state = np.concatenate([self.state, state])[keep]
        self.status = np.concatenate([self.status, status])[keep]
        self.margin = np.concatenate([self.margin, margin])[keep]
        return bool(good.any())

    def halve(self) -> None:
        """Add a point between all neighbours, and refine again."""
        self.insert(_middle(self.x[:-1], self.x[1:]), self.state[1:])
        self._refine()

    def add(self, x: float) -> None:
        """Add a point that the refinement passed by, and refine again around it."""
        self.insert(np.array([x]), None)
        self._refine()

    def _refine(self) -> None:
        for _ in range(30):
            lower = self._suspicious()
            if lower.size == 0:
                break
            if self.x.size > _MOST_POINTS:
                raise CertificationError(f"the support could not be found: {ADVICE}")
            if not self.insert(_middle(self.x[lower], self.x[lower + 1]), self.state[lower]):
                break

    def _suspicious(self) -> np.ndarray:
        """Lower ends of the pairs between which something may hide."""
        x, state = self.x, self.state
        length = np.diff(x)
        local = np.maximum(np.abs(x[1:]), np.abs(x[:-1]))
        relative = length / np.maximum(local, 1e-8 * self.extent)
        with np.errstate(all="ignore"):
            tangent = self.solver.equation.tangent(x.astype(np.complex128), state)
            jump = state[1:] - state[:-1] - 0.5 * (tangent[1:] + tangent[:-1]) * length[:, None]
            mismatch = (np.abs(jump) / (self.solver.scales(state[1:]) + self.solver.scales(state[:-1]))).max(axis=1)
        same = self.status[1:] == self.status[:-1]
        straddling = (x[1:] > 0) & (x[:-1] < 0) & (local < 1e-8 * self.extent)
        pairs = same & ~straddling & ~(mismatch <= _MISMATCH) & (relative > _FINEST)
        m, inside = self.margin, self.status == Status.INSIDE
        dip = np.zeros(m.size, dtype=bool)
        dip[1:-1] = inside[1:-1] & inside[:-2] & inside[2:] & (m[1:-1] <= m[:-2]) & (m[1:-1] <= m[2:])
        dip[1:-1] &= m[1:-1] < 0.95 * np.maximum(m[:-2], m[2:])
        pairs |= (dip[1:] | dip[:-1]) & ~straddling & (relative > 1e-3 * _FINEST)
        return np.flatnonzero(pairs)


class EquationSupport:
    """Intervals of the support with the exponents and powers of their edges, ascending.

    Between an inside and an outside neighbour of the scan the edge is a fold of the real solution. At 0 the density
    may be singular: there its exponent is read off the slope of log ρ against log \\|x\\|.

    Raises
    ------
    CertificationError : the edges could not be found, or the density behaves at one in another way.
    """

    def __init__(self, solver: Solver) -> None:
        self.solver = solver
        self.scan = AxisScan(solver)
        self._known: dict[tuple[float, float], float] = {}
        self.depth = 1.0  # how much farther from 0 its exponent had to be measured
        self._find()

    def add(self, x: float) -> None:
        """Scan around a point at which a gap was missed."""
        self.scan.add(x)
        self._find()

    def halve(self) -> None:
        """Scan twice as finely, where intervals or gaps were missed."""
        self.scan.halve()
        self._find()

    def _find(self) -> None:
        equation = self.solver.equation
        sides = [side for side, beyond in ((-1, equation.low), (1, equation.high)) if side * beyond > 0]
        at_zero = {side: self._at_zero(side) for side in sides if equation.low <= 0 <= equation.high}
        regular = all(kind == (1, 0) for kind in at_zero.values()) and len(at_zero) == 2
        ends: list[tuple[float, int, int, int]] = []  # location, sign, exponent, power
        brackets = self._brackets()
        for bracket in brackets:
            if bracket not in self._known:
                self._known[bracket] = self._edge(*bracket)
            ends.append((self._known[bracket], 1 if bracket[0] > bracket[1] else -1, 1, 2))
        for side, kind in at_zero.items():
            if kind is not None and not regular:
                power, exponent = kind
                if exponent == 0:
                    raise CertificationError(f"the density jumps at 0, which cannot be stored: {ADVICE}")
                ends.append((0.0, side, exponent, power))
        ends.sort(key=lambda end: (end[0], end[1]))
        signs = [end[1] for end in ends]
        if len(ends) % 2 or signs != [1, -1] * (len(ends) // 2):
            raise CertificationError(f"the edges {[end[0] for end in ends]} of the support do not alternate: {ADVICE}")
        pairs = list(zip(ends[::2], ends[1::2], strict=True))
        self.intervals = [(float(lower[0]), float(upper[0])) for lower, upper in pairs]
        self.exponents = [(lower[2], upper[2]) for lower, upper in pairs]
        self.powers = [(lower[3], upper[3]) for lower, upper in pairs]
        if any(a >= b for a, b in self.intervals) or any(p[1] > q[0] for p, q in itertools.pairwise(self.intervals)):
            raise CertificationError(f"the intervals {self.intervals} of the support overlap: {ADVICE}")

    def _brackets(self) -> list[tuple[float, float]]:
        """(inside, outside) neighbours, not across 0, ascending, narrowed by points in between."""
        scan = self.scan
        for _ in range(2):
            change = np.flatnonzero(scan.status[1:] != scan.status[:-1])
            change = change[[self._pair(int(k)) not in self._known for k in change]] if change.size else change
            if change.size == 0:
                break
            a, b = scan.x[change], scan.x[change + 1]
            shares = np.arange(1, _BETWEEN + 1) / (_BETWEEN + 1)
            with np.errstate(all="ignore"):
                geometric = np.sign(b)[:, None] * np.abs(a[:, None]) ** (1 - shares) * np.abs(b[:, None]) ** shares
            even = a[:, None] + (b - a)[:, None] * shares
            points = np.where(_far_apart(a, b)[:, None], geometric, even).reshape(-1)
            scan.insert(points, scan.nearest(points))
        change = np.flatnonzero(scan.status[1:] != scan.status[:-1])
        return [self._pair(int(k)) for k in change if not scan.x[k] < 0 < scan.x[k + 1]]

    def _pair(self, k: int) -> tuple[float, float]:
        a, b = float(self.scan.x[k]), float(self.scan.x[k + 1])
        return (a, b) if self.scan.status[k] == Status.INSIDE else (b, a)

    def _edge(self, inside: float, outside: float) -> float:
        state = self.scan.state[np.searchsorted(self.scan.x, outside)].real
        for attempt in range(6):
            if attempt > 0:
                between = inside + (outside - inside) * np.arange(1, _BETWEEN + 1) / (_BETWEEN + 1)
                found = self.solver.solve(between.astype(np.complex128))
                off = np.flatnonzero(found.status == Status.OUTSIDE)
                if off.size:
                    outside, state = float(between[off[0]]), found.state[off[0]].real
                    between = between[: off[0]]
                within = np.flatnonzero(found.status[: between.size] == Status.INSIDE)
                if within.size:
                    inside = float(between[within[-1]])
            edge = self.solver.fold(inside, outside, state)
            if edge is not None:
                return edge
        raise CertificationError(f"the edge of the support near {outside!r} was lost: {ADVICE}")

    def _at_zero(self, side: int) -> tuple[int, int] | None:
        """(power, exponent) of the density next to 0 on one side, (1, 0) if it is regular; None if it is zero there."""
        scan = self.scan
        beside = np.flatnonzero(scan.x * side > 0)
        if beside.size == 0:
            return None
        nearest = beside[np.argmin(np.abs(scan.x[beside]))]
        if scan.status[nearest] == Status.OUTSIDE:
            return None
        slope = math.nan
        for depth in _DEPTHS:  # nearer to 0 the exponent is clearer, but rounding may hide it
            points = side * depth * scan.extent * np.array(_SLOPE_POINTS)
            found = self.solver.solve(points.astype(np.complex128), scan.nearest(points, Status.INSIDE))
            if not (found.status == Status.INSIDE).all():
                continue
            density = -self.solver.equation.cauchy(found.z, found.state).imag
            before, slope = np.diff(np.log(density)) / np.diff(np.log(np.abs(points)))
            for power in range(1, _LARGEST_POWER + 1):
                exponent = round(power * slope)
                if abs(exponent / power - slope) < _SLOPE_ERROR and abs(slope - before) < _SLOPE_ERROR:
                    if not -power < exponent <= power or (power == 1 and exponent != 0):
                        break
                    self.depth = depth
                    return power, exponent
        if math.isnan(slope):
            raise CertificationError(f"the density next to 0 could not be certified: {ADVICE}")
        raise CertificationError(
            f"the density behaves at 0 like |x|**{slope:.3f}, which is none of the known kinds of edges: {ADVICE}"
        )


def _far_apart(a: Array, b: Array) -> np.ndarray:
    """Pairs of one sign whose magnitudes differ by more than a factor of 2."""
    small, large = np.minimum(np.abs(a), np.abs(b)), np.maximum(np.abs(a), np.abs(b))
    return np.asarray((a * b > 0) & (large > 2 * small))


def _middle(a: Array, b: Array) -> Array:
    """Between neighbours: the geometric mean where they differ by more than a factor of 2, else the arithmetic one."""
    with np.errstate(all="ignore"):
        return np.where(_far_apart(a, b), np.sign(b) * np.sqrt(np.abs(a)) * np.sqrt(np.abs(b)), 0.5 * (a + b))


class EquationNodes:
    """`gequiv.laws._edge_adapted.NodeSolver` for a `SpectralEquation`.

    States are unknowns; one that grows at a hard edge like a power of the edge variable is kept without that power.

    Attributes
    ----------
    worst_step : largest relative error left at a node: Newton's last step squared, or rounding.
    margin : smallest half-plane margin over the nodes.
    """

    precision: type[np.floating[Any]] = np.float64

    def __init__(self, solver: Solver, support: EquationSupport) -> None:
        self.solver, self._scan = solver, support.scan
        edges = edge_list(support.intervals, support.exponents, powers=support.powers)
        self._location = np.array([edge.location for edge in edges])
        self._reach = np.array([edge.sign * edge.width for edge in edges])
        self._exponent = np.array([edge.exponent for edge in edges])
        self._power = np.array([edge.power for edge in edges])
        self._levels = _MOST_LEVELS
        self.worst_step = 0.0
        self.margin = math.inf
        self._growth = np.zeros((len(edges), solver.equation.width))
        for number, edge in enumerate(edges):
            if edge.location == 0 and edge.exponent < 0:
                x = edge.sign * support.depth * support.scan.extent * np.array(_SLOPE_POINTS[1:])
                found = solver.solve(x.astype(np.complex128), self._scan.nearest(x, Status.INSIDE))
                with np.errstate(all="ignore"):
                    slope = np.diff(np.log(np.abs(found.state)), axis=0)[0] / math.log(x[1] / x[0])
                growth = np.round(np.nan_to_num(slope, posinf=0.0, neginf=0.0) * edge.power)
                self._growth[number] = np.clip(growth, -2 * edge.power, 0)
        soft = [number for number, edge in enumerate(edges) if (edge.power, edge.exponent) == (2, 1)]
        self._series: dict[int, _EdgeSeries] = {}
        for number in soft:
            try:
                series = self._next_to_edge(number)
            except MissedGapError:
                raise
            except CertificationError:  # as without: the nodes will show whether it matters
                continue
            if series is not None:
                self._series[number] = series

    def begin(self, tolerance: float) -> None:
        """A new attempt, at this tolerance."""
        self._levels = _LEVELS.get(tolerance, _MOST_LEVELS)

    def solve(self, edge: np.ndarray, xi: Any, start: ComplexArray | None) -> tuple[Array, ComplexArray]:
        """Smooth factor of the density, and solutions; see `NodeSolver`."""
        self._levels -= 1
        if self._levels < 0:
            raise CertificationError(f"the density does not settle: {ADVICE}")
        tame = xi[:, None] ** self._growth[edge]
        x = self._place(edge, xi)
        values, found = self._solved(edge, xi, self._scan.nearest(x, Status.INSIDE) if start is None else start * tame)
        self.worst_step = max(self.worst_step, float((found.step**2).max()), float(np.finfo(float).eps))
        self.margin = min(self.margin, float(self.solver.equation.margin(found.z, found.state).min()))
        for number, series in self._series.items():
            near = np.flatnonzero((edge == number) & (xi**2 < series.start))
            if near.size:
                t = np.asarray(xi[near] ** 2, dtype=np.float64)
                smooth = series(t)
                if not (np.abs(values[near] - smooth) <= series.allowed(t) * smooth).all():
                    raise CertificationError(f"the density next to {self._location[number]!r} is uncertain: {ADVICE}")
                values[near] = smooth
        return values, found.state / tame

    def _place(self, edge: np.ndarray, xi: Any) -> Array:
        x: Array = self._location[edge] + self._reach[edge] * np.asarray(xi, dtype=np.float64) ** self._power[edge]
        return x

    def _solved(self, edge: np.ndarray, xi: Any, begin: ComplexArray) -> tuple[Array, Solution]:
        """Smooth factor of the density by the equation alone."""
        x = self._place(edge, xi)
        found = self.solver.solve(x.astype(np.complex128), begin)
        gap = (found.status == Status.OUTSIDE) & (xi > _NEXT_TO_EDGE)
        if gap.any():
            raise MissedGapError(float(x[gap][0]))
        wrong = found.status != Status.INSIDE
        if wrong.any():
            raise CertificationError(f"no certified solution at x = {float(x[wrong][0])!r}: {ADVICE}")
        density = -self.solver.equation.cauchy(found.z, found.state).imag / np.pi
        return density / np.asarray(xi, dtype=np.float64) ** self._exponent[edge], found

    def _next_to_edge(self, number: int) -> _EdgeSeries | None:
        """The series about a square-root edge; None where the density has structure too close to it."""

        def smooth(t: Array) -> Array:
            edge, xi = np.full(t.size, number), np.sqrt(t)
            return self._solved(edge, xi, self._scan.nearest(self._place(edge, xi), Status.INSIDE))[0]

        t = _NOISE_AT * (1 + 3e-4 * np.arange(16))
        values = smooth(np.asarray(t, dtype=np.float64))
        fit = np.polynomial.Chebyshev.fit(t, values, 4)(t)
        noise = max(float(np.abs(values / fit - 1).max()), float(np.finfo(float).eps)) * _NOISE_AT
        begin = min(_FARTHEST, noise / _NOISE_WANTED)
        while noise / begin < _NOISE_ALLOWED:
            t = begin * (1 + 0.5 * _WINDOW * (1 + chebyshev_nodes(24)))
            values = smooth(np.asarray(t, dtype=np.float64))
            series = np.polynomial.Chebyshev.fit(t, values, _DEGREE, domain=[begin, (1 + _WINDOW) * begin])
            size = np.abs(series.coef).max()
            error = max(float(np.abs(series(t) - values).max()), float(np.abs(series.coef[-2:]).max())) / size
            if error < 10 * noise / begin + 1e-13:
                return _EdgeSeries(begin, series, noise)
            begin /= 4
        return None


@dataclass(frozen=True)
class _EdgeSeries:
    """The smooth factor of the density next to a square-root edge, free of the rounding that spoils it there.

    It is analytic in t, the distance from the edge in units of the interval, while the equation solved at t leaves an
    error of order rounding/t. The series is fitted from `start` to a multiple of it and used below `start`.
    """

    start: float
    series: Any
    noise: float

    def __call__(self, t: Array) -> Array:
        return np.asarray(self.series(t), dtype=np.float64)

    def allowed(self, t: Array) -> Array:
        """Relative difference to the equation that rounding explains."""
        return np.asarray(1e-9 + 100 * self.noise / t)
