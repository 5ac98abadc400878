"""Support of the law of `ProfileEquation`, and the equation solved at the nodes of its edges."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from gequiv._checks import Array, ComplexArray
from gequiv.dyson.continuation import Status
from gequiv.dyson.profile import ProfileEquation
from gequiv.dyson.scan import EXTREME, AxisScan, MissedGapError
from gequiv.errors import CertificationError
from gequiv.laws._edge_adapted import edge_list

_PER_DECADE = 20
_FOLD_STEPS = 40
_BETWEEN = 7  # points of a bracket that are solved at once where the fold is not found
_FARTHEST_STEP = 50.0  # in log x: a secant step beyond it is lost
_NEXT_TO_EDGE = 1e-5  # in the edge variable: closer points may lie outside by the rounding of the edge
_SETTLED = 1e-9  # relative move of the parameter: its square moves the edge


class Support:
    """Intervals of the support and exponents of their edges, ascending, in true units.

    The equation is scanned along the real axis; between an inside and an outside neighbour the edge is a fold of the
    real solution, where z as a function of one of the unknowns is stationary.

    Raises
    ------
    CertificationError : the edges could not be found.
    """

    def __init__(self, equation: ProfileEquation) -> None:
        self.equation = equation
        aspect = equation.aspect
        self.hard = equation.atom == 0 and abs(aspect - 1) <= 1e-12
        least = float(equation.noise[equation.noise > 0].min())
        low = 1e-3 * least**2 if self.hard else 0.25 * least * (1 - math.sqrt(min(aspect, 1 / aspect))) ** 2
        self.scan = AxisScan(equation, low, 1.01 * equation.upper_bound, _PER_DECADE)
        self._known: dict[tuple[float, float], float] = {}
        self._find()

    def add(self, x: float) -> None:
        """Scan around a point, in units of the mean, at which a gap was missed."""
        self.scan.add(x)
        self._find()

    def halve(self) -> None:
        """Scan twice as finely, where intervals or gaps were missed."""
        self.scan.halve()
        self._find()

    def _find(self) -> None:
        equation, scan = self.equation, self.scan
        folds = [0.0] if self.hard else []
        for k in np.flatnonzero(scan.status[1:] != scan.status[:-1]):
            inside, outside = (k, k + 1) if scan.status[k] == Status.INSIDE else (k + 1, k)
            bracket = float(scan.x[inside]), float(scan.x[outside])
            if bracket not in self._known:
                self._known[bracket] = _edge(equation, *bracket, scan.state[outside])
            folds.append(self._known[bracket])
        if scan.x.size == 0:
            raise CertificationError(f"no point of the real axis could be certified: {EXTREME}")
        starts = scan.status[0] == (Status.INSIDE if self.hard else Status.OUTSIDE)
        ends_outside = scan.status[-1] == Status.OUTSIDE
        if not (starts and ends_outside) or len(folds) % 2 or any(a >= b for a, b in itertools.pairwise(folds)):
            raise CertificationError(
                f"the edges {folds} of the support (in units of the mean) do not alternate: {EXTREME}"
            )
        ends = [fold * equation.scale for fold in folds]
        self.intervals = list(zip(ends[::2], ends[1::2], strict=True))
        self.exponents = [(-1 if self.hard and k == 0 else 1, 1) for k in range(len(self.intervals))]


def _edge(equation: ProfileEquation, inside: float, outside: float, state: ComplexArray) -> float:
    """The edge between two points of the real axis, the second off the support with its solution given."""
    for attempt in range(10):
        if attempt > 0:
            between = np.geomspace(inside, outside, _BETWEEN + 2)[1:-1]
            found = equation._solve(between.astype(np.complex128), None)
            off = np.flatnonzero(found.status == Status.OUTSIDE)
            if off.size:
                outside, state = float(between[off[0]]), found.unknowns[off[0]]
                between = between[: off[0]]
            within = np.flatnonzero(found.status[: between.size] == Status.INSIDE)
            if within.size:
                inside = float(between[within[-1]])
        edge = _fold(equation, inside, outside, state)
        if edge is not None:
            return edge
    raise CertificationError(f"the edge of the support near {outside!r} (in units of the mean) was lost: {EXTREME}")


def _fold(equation: ProfileEquation, inside: float, outside: float, state: ComplexArray) -> float | None:
    """The stationary point of log z as a function of log of the unknown that moves most, by the secant method.

    With a the second derivative there, log z - log z_e = slope²/(2a) next to the fold, so that the bracket gives the
    first step.
    """
    x, logs = outside, np.log(np.abs(state.real))
    signs = np.sign(state.real)
    with np.errstate(all="ignore"):
        tangent = equation._tangent(np.array([x], dtype=np.complex128), state[None])[0].real
    pivot = int(np.argmax(np.abs(tangent)))
    slope = 1 / tangent[pivot]
    step = -2 * math.log(outside / inside) / slope
    best = x
    for _ in range(_FOLD_STEPS):
        target = logs[pivot] + step
        if not abs(slope * step) < _FARTHEST_STEP:
            return None
        moved = _along(equation, pivot, target, x * math.exp(slope * step), logs + tangent * slope * step, signs)
        if moved is None:
            return None
        x_new, logs_new = moved
        with np.errstate(all="ignore"):
            tangent_new = equation._bordered(x_new, signs * np.exp(logs_new), pivot)
        slope_new, bend = tangent_new[-1], slope
        if not np.isfinite(slope_new) or slope_new == bend:
            return None
        secant = -slope_new * step / (slope_new - bend)
        x, logs, slope = x_new, logs_new, float(slope_new)
        tangent = tangent_new[:-1] / slope if slope != 0 else tangent_new[:-1]
        best = x
        if abs(secant) <= _SETTLED or slope == 0:
            break
        step = secant
    else:
        return None
    low, high = min(inside, outside), max(inside, outside)
    return best if low * (1 - 1e-9) <= best <= high * (1 + 1e-9) else None


def _along(
    equation: ProfileEquation, pivot: int, target: float, x: float, logs: Array, signs: Array
) -> tuple[float, Array] | None:
    """z and the solution where the logarithm of one unknown is `target`, by Newton's method from the given ones."""
    logs = logs.copy()
    logs[pivot] = target
    for _ in range(20):
        with np.errstate(all="ignore"):
            change = equation._bordered(x, signs * np.exp(logs), pivot, newton=True)
        if not np.isfinite(change).all() or np.abs(change).max() > 1:
            return None
        logs = logs + change[:-1]
        x *= math.exp(change[-1])
        if np.abs(change).max() < 3e-15:
            break
        if np.abs(change).max() < 1e-13:  # one more step cannot help beyond rounding
            break
    return x, logs


class ProfileNodes:
    """`gequiv.laws._edge_adapted.NodeSolver` for a profiled equation; states are unknowns, tame at a hard edge.

    Attributes
    ----------
    worst_step : largest relative Newton step left at a node.
    margin : smallest half-plane margin over the nodes.
    """

    precision: type[np.floating[Any]] = np.float64

    def __init__(self, equation: ProfileEquation, support: Support) -> None:
        self.equation = equation
        self._scan = support.scan
        edges = edge_list(support.intervals, support.exponents)
        scale = equation.scale
        self._location = np.array([edge.location for edge in edges]) / scale
        self._reach = np.array([edge.sign * edge.width for edge in edges]) / scale
        self._exponent = np.array([edge.exponent for edge in edges])
        self.worst_step = 0.0
        self.margin = math.inf

    def solve(self, edge: np.ndarray, xi: Any, start: ComplexArray | None) -> tuple[Array, ComplexArray]:
        """Smooth factor of the density in true units, and solutions; see `NodeSolver`."""
        x = self._location[edge] + self._reach[edge] * xi**2
        tame = np.ones((xi.size, self.equation.width))
        hard = self._exponent[edge] < 0
        cut = self.equation.rows.size
        tame[hard, :cut], tame[hard, cut:] = xi[hard, None], 1 / xi[hard, None]
        begin = self._scan.nearest(x, Status.INSIDE) if start is None else start / tame
        found = self.equation._solve(x.astype(np.complex128), begin)
        wrong = found.status != Status.INSIDE
        gap = (found.status == Status.OUTSIDE) & (xi > _NEXT_TO_EDGE)
        if gap.any():
            raise MissedGapError(float(x[gap][0]))
        if wrong.any():
            raise CertificationError(
                f"no certified solution at x = {float(x[wrong][0])!r} (in units of the mean): {EXTREME}"
            )
        self.worst_step = max(self.worst_step, float(found.step.max()))
        self.margin = min(self.margin, float(self.equation.margin(found.z, found.unknowns).min()))
        density = -self.equation.resolvent(found.unknowns).imag / np.pi
        return density / (xi ** self._exponent[edge] * self.equation.scale), found.unknowns * tame

    def cauchy(self, z: ComplexArray) -> ComplexArray:
        """G at finite z with Im z >= 0, off the support; in units of the mean."""
        found = self.equation._solve(z, None)
        failed = found.status == Status.FAILED
        if failed.any():
            raise CertificationError(
                f"the Cauchy transform could not be certified at z = {z[failed][0] * self.equation.scale!r}; "
                "move away from the edge of the support"
            )
        value = self.equation.resolvent(found.unknowns)
        return np.where(found.status == Status.OUTSIDE, value.real, value)
