r"""A density stored once, in variables adapted to the edges of its support, and read off fast.

Near an edge e of the support a density of random-matrix type is :math:`\xi^q` times an analytic function of
:math:`\xi = (|x - e|/w)^{1/p}`: the square-root edge (p = 2, q = 1), the hard edge (p = 2, q = -1), the hard edge of a
product of k square factors (p = k + 1, q = -k), the cusp (p = 3, q = 1). Each interval is cut at its middle;
each half is cut into panels in :math:`\xi`, by bisection, until the Chebyshev series of the analytic factor on every
panel has converged relative to its own size. Densities with features of very different scales cost a few more panels
for each octave.

The distribution function and the lower partial expectation are the integrals of the same series, panel by panel.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gequiv._checks import Array, ComplexArray
from gequiv.errors import CertificationError

ORDER = 16  # nodes of a panel
_MAX_LEVELS = 80
_MAX_PANELS = 512
_CHUNK = 16384
_TINY = np.finfo(float).tiny


@dataclass(frozen=True)
class Edge:
    """One edge of the support and the half-interval that hangs on it.

    x = location + residue + sign * width * xi**power for xi in [0, 2**(-1/power)]; the density is xi**exponent times a
    smooth factor. The residue is what the edge has beyond its nearest float: it matters at points next to the edge.
    """

    location: float
    sign: int
    width: float
    exponent: int
    residue: float = 0.0
    power: int = 2


class NodeSolver(Protocol):
    """Solves the law's defining equation at points given by edge and edge variable.

    `precision` is the floating-point type of the edge variables that it wants: np.float64, or np.longdouble if it can
    make use of the extra digits, which matter where the density varies fast.
    """

    precision: type[np.floating[Any]]

    def solve(self, edge: np.ndarray, xi: Any, start: ComplexArray | None) -> tuple[Array, ComplexArray]:
        """Smooth factor of the density at the points, and the solution there.

        Parameters
        ----------
        edge : (m,) index of each point's edge.
        xi : (m,) edge variables, of type `precision`.
        start : (m, s) approximate solutions to begin from, or None to begin from nothing.

        Returns
        -------
        (m,) smooth factor and (m, s) solutions, certified; raises `CertificationError` otherwise.
        """
        ...


def chebyshev_nodes(count: int) -> Array:
    """Zeros of the Chebyshev polynomial of that degree, ascending."""
    return -np.cos(np.pi * (np.arange(count) + 0.5) / count)


def values_to_coefficients(count: int) -> Array:
    """Chebyshev coefficients are this matrix times the values at the nodes."""
    nodes = chebyshev_nodes(count)
    vandermonde: Array = np.polynomial.chebyshev.chebvander(nodes, count - 1).T.astype(np.float64)
    vandermonde *= 2.0 / count
    vandermonde[0] *= 0.5
    return vandermonde


def _integration_matrix(count: int) -> Array:
    """Coefficients of a series to those of its integral (constant term left at zero)."""
    matrix = np.zeros((count + 1, count))
    matrix[1, 0] = 1.0
    for k in range(1, count):
        matrix[k + 1, k] += 0.5 / (k + 1)
        if k > 1:
            matrix[k - 1, k] -= 0.5 / (k - 1)
    return matrix


_NODES = chebyshev_nodes(ORDER)
_TO_COEFFICIENTS = values_to_coefficients(ORDER)
_INTEGRATE = _integration_matrix(ORDER)
_HALVES = np.stack(
    [np.polynomial.chebyshev.chebvander(0.5 * (_NODES + shift), ORDER - 1) @ _TO_COEFFICIENTS for shift in (-1.0, 1.0)]
)
_CHECK_POINTS = np.array([-0.97, -0.31, 0.41, 0.985])
_CHECK = np.polynomial.chebyshev.chebvander(_CHECK_POINTS, ORDER - 1)


def _clenshaw(columns: Array, index: np.ndarray, s: Array) -> Array:
    """Sum of columns[k, index] * T_k(s) over k."""
    twice = s + s
    older = np.zeros_like(s)
    newer = columns[-1].take(index)
    for k in range(len(columns) - 2, 0, -1):
        term = twice * newer
        term -= older
        term += columns[k].take(index)
        older, newer = newer, term
    result: Array = s * newer
    result -= older
    result += columns[0].take(index)
    return result


class EdgeAdaptedDensity:
    """A density on finitely many intervals as edge-adapted Chebyshev panels.

    Parameters
    ----------
    intervals : ascending, disjoint (a, b).
    exponents : for each interval the exponents q of its lower and upper edge, such as +1 (square root) or -1 (hard).
    solver : where the values come from.
    residues : what each edge (lower, upper, lower, ...) has beyond its nearest float; zero by default.
    powers : for each interval the powers p of its lower and upper edge; 2 by default.
    tolerance : size of the last Chebyshev coefficients at which a panel is accepted, relative to its largest.

    Attributes
    ----------
    intervals : as given.
    masses : mass of each interval, by integration of the panels.
    check : largest relative difference at check points between the nodes, against the solver.
    nodes : number of points solved.
    breakpoints : ends of the panels in x, ascending: they crowd where the density varies fast.

    Raises
    ------
    CertificationError : bisection does not lead to convergence, or the check fails.
    """

    def __init__(
        self,
        intervals: list[tuple[float, float]],
        exponents: list[tuple[int, int]],
        solver: NodeSolver,
        *,
        tolerance: float,
        residues: Sequence[float] | None = None,
        powers: list[tuple[int, int]] | None = None,
    ) -> None:
        self.intervals = intervals
        self.edges = edge_list(intervals, exponents, residues, powers)
        self._solver = solver
        edge, low, high, values = self._refine(tolerance)
        self._assemble(intervals, edge, low, high, values)

    # -- construction -------------------------------------------------------------------------------

    def _refine(self, tolerance: float) -> tuple[np.ndarray, Any, Any, Array]:
        edge = np.arange(len(self.edges))
        low = np.zeros(len(edge), dtype=np.longdouble)
        halves = [0.5 ** (1 / e.power) for e in self.edges]
        high = self._on_grid(edge, np.array(halves, dtype=np.longdouble))
        start: ComplexArray | None = None
        done: list[tuple[np.ndarray, Any, Any, Array, ComplexArray]] = []
        self.nodes = 0
        for _ in range(_MAX_LEVELS):
            xi = self._points(low, high, _NODES)
            values, states = self._solver.solve(np.repeat(edge, ORDER), xi, start)
            self.nodes += xi.size
            values = values.reshape(-1, ORDER)
            states = states.reshape(len(edge), ORDER, -1)
            size = np.abs(values @ _TO_COEFFICIENTS.T)
            bad = size[:, -2:].max(axis=1) > tolerance * size.max(axis=1) + self._rounding(size, low, high)
            good = ~bad
            done.append((edge[good], low[good], high[good], values[good], states[good]))
            if not bad.any() or np.count_nonzero(bad) > max(_MAX_PANELS, 4 * len(self.edges)):
                break
            # children start from their parent's series
            start = np.einsum("hij,pjs->phis", _HALVES, states[bad]).reshape(-1, states.shape[2])
            middle = self._on_grid(edge[bad], 0.5 * (low[bad] + high[bad]))
            ends = np.stack([low[bad], middle, high[bad]], axis=1)
            edge = np.repeat(edge[bad], 2)
            low, high = ends[:, :2].reshape(-1), ends[:, 1:].reshape(-1)
        if bad.any():
            first = int(np.argmax(bad))
            where = float(self._locate(edge[first : first + 1], 0.5 * (low + high)[first : first + 1])[0])
            raise CertificationError(
                f"the density does not settle near x = {where!r} "
                "however finely it is cut; the parameters sit too close to a singular limit: move them slightly"
            )
        edge, low, high, values, states = (np.concatenate(parts) for parts in zip(*done, strict=True))
        self.check = self._check(edge, low, high, values, states, max(32 * tolerance, 1e-12))
        return edge, low, high, values

    def _points(self, low: Any, high: Any, nodes: Array) -> Any:
        xi = 0.5 * (low + high)[:, None] + 0.5 * (high - low)[:, None] * nodes
        return xi.reshape(-1).astype(self._solver.precision)

    def _locate(self, edge: np.ndarray, xi: Any) -> Array:
        """x as a float."""
        location, residue, sign, width, power = self._columns(edge)
        x: Array = (location + (residue + sign * width * xi**power)).astype(np.float64)
        return x

    def _on_grid(self, edge: np.ndarray, xi: Any) -> Any:
        """The edge variable next to xi whose x is a float exactly."""
        location, residue, sign, width, power = self._columns(edge)
        beyond = (self._locate(edge, xi) - location - residue) * sign / width
        return np.sqrt(beyond) if (power == 2).all() else beyond ** (1 / power)

    def _columns(self, edge: np.ndarray) -> Any:
        chosen = [self.edges[k] for k in edge]
        return np.array([(e.location, e.residue, e.sign, e.width, e.power) for e in chosen], dtype=np.longdouble).T

    def _rounding(self, size: Array, low: Any, high: Any) -> Array:
        """What the last digit of xi moves the smooth factor by: no series can settle below that."""
        slope = size @ np.arange(ORDER) * ((low + high) / (high - low)).astype(np.float64)
        return np.asarray(4 * float(np.finfo(self._solver.precision).eps) * slope)

    def _check(self, edge: np.ndarray, low: Any, high: Any, values: Array, states: ComplexArray, limit: float) -> float:
        """Largest relative difference between the series and the equation solved anew between the nodes."""
        points = self._points(low, high, _CHECK_POINTS)
        interpolate = _CHECK @ _TO_COEFFICIENTS
        start = np.einsum("ij,pjs->pis", interpolate, states).reshape(-1, states.shape[2])
        fresh, _ = self._solver.solve(np.repeat(edge, len(_CHECK_POINTS)), points, start)
        stored = (values @ interpolate.T).reshape(-1)
        difference = np.abs(stored - fresh) / fresh
        rounding = self._rounding(np.abs(values @ _TO_COEFFICIENTS.T), low, high)
        allowed = limit + 8 * np.repeat(rounding, len(_CHECK_POINTS)) / fresh
        worst = int(np.argmax(difference / allowed))
        if not difference[worst] <= allowed[worst]:
            panel = worst // len(_CHECK_POINTS)
            where = float(self._locate(edge[panel : panel + 1], points[worst : worst + 1])[0])
            raise CertificationError(
                f"the stored density misses its equation by {difference[worst]:.1e} (relative) at x = {where!r} "
                f", where {allowed[worst]:.1e} is allowed: move the parameters slightly"
            )
        return float(difference.max())

    def _assemble(
        self, intervals: list[tuple[float, float]], edge: np.ndarray, low: Any, high: Any, values: Array
    ) -> None:
        location, residue, sign, width, power = (column.astype(np.float64) for column in self._columns(edge))
        exponent = np.array([e.exponent for e in self.edges])[edge]
        ends = self._locate(edge, low), self._locate(edge, high)
        half = (0.5 * (high - low)).astype(np.float64)
        low, high = low.astype(np.float64), high.astype(np.float64)
        xi = 0.5 * (low + high)[:, None] + half[:, None] * _NODES
        x = location[:, None] + (sign * width)[:, None] * xi ** power[:, None]
        rise = power + exponent - 1.0
        slope = values * xi ** rise[:, None] * (power * width * half)[:, None]  # d(mass)/ds, positive
        mass, mean = (self._integrals(integrand, sign) for integrand in (slope, slope * x))

        # ascending in x; for an upper edge the panels run downwards in xi
        order = np.lexsort((sign * low, sign < 0, edge // 2))
        columns: dict[str, list[Array]] = {"density": [], "mass": [], "mean": []}
        # the edge's location and residue, sign/width, 1/half-width of the panel in xi, its start in xi, in x, and the
        # residue of that, exponent, power
        rows: list[tuple[float, ...]] = []
        breaks: list[float] = []
        empty = np.zeros(ORDER + 1)
        total_mass = total_mean = 0.0
        upper_mass: list[float] = []
        self.masses: list[float] = []

        def gap() -> None:
            rows.append((0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 2.0))
            upper_mass.append(total_mass)
            for name, constant in (("density", 0.0), ("mass", total_mass), ("mean", total_mean)):
                column = empty.copy()
                column[0] = constant
                columns[name].append(column)

        density = values @ _TO_COEFFICIENTS.T
        for number, (a, _) in enumerate(intervals):
            gap()
            breaks.append(a)
            before = total_mass
            panels = [p for p in order if edge[p] // 2 == number]
            for p in panels:
                anchor_residue = residue[p] if low[p] == 0 else 0.0
                edge_row = (location[p], residue[p], sign[p] / width[p])
                rows.append((*edge_row, 1 / half[p], low[p], ends[0][p], anchor_residue, exponent[p], power[p]))
                columns["density"].append(np.append(density[p], 0.0))
                for name, integral, total in (("mass", mass, total_mass), ("mean", mean, total_mean)):
                    column = integral[0][p].copy()
                    column[0] += total
                    columns[name].append(column)
                total_mass += mass[1][p]
                total_mean += mean[1][p]
                upper_mass.append(total_mass)
                breaks.append(ends[1 if sign[p] > 0 else 0][p])
            self.masses.append(total_mass - before)
        gap()
        self.breakpoints = np.array(breaks)
        columns_of_rows = (np.array(column) for column in zip(*rows, strict=True))
        self._location, self._residue, self._factor, self._slope, self._start = itertools.islice(columns_of_rows, 5)
        self._anchor, self._anchor_residue, self._exponent, self._power = columns_of_rows
        self._plain, self._roots = bool((self._exponent == 1).all()), bool((self._power == 2).all())
        self._density = np.ascontiguousarray(np.array(columns["density"]).T[:ORDER])
        self._mass = np.ascontiguousarray(np.array(columns["mass"]).T)
        self._mean = np.ascontiguousarray(np.array(columns["mean"]).T)
        self._rising = self._factor >= 0
        self._upper_mass = np.array(upper_mass)
        self.total_mass, self.total_mean = total_mass, total_mean

    @staticmethod
    def _integrals(integrand: Array, sign: Array) -> tuple[Array, Array]:
        """Series of the integral from the lower end in x, and its value at the upper end, for each panel."""
        series = (integrand @ _TO_COEFFICIENTS.T) @ _INTEGRATE.T
        at_end = series.sum(axis=1)
        at_start = series @ ((-1.0) ** np.arange(ORDER + 1))
        # the panel's lower end in x is s = -1 at a lower edge, s = +1 at an upper edge (where x falls with s)
        series *= sign[:, None]
        series[:, 0] -= np.where(sign > 0, at_start, -at_end)
        return series, at_end - at_start

    # -- evaluation ---------------------------------------------------------------------------------

    def density(self, x: Array) -> Array:
        result = self._evaluate(x, self._density, weighted=True)
        for edge in self.edges[1::2]:
            if edge.exponent < 0:  # a point on an upper edge is looked for beyond it
                result[x == edge.location] = np.inf
        return result

    def mass(self, x: Array) -> Array:
        """Mass of (-inf, x]."""
        return self._evaluate(x, self._mass, weighted=False)

    def partial_mean(self, x: Array) -> Array:
        """Integral of t over (-inf, x]."""
        return self._evaluate(x, self._mean, weighted=False)

    def _evaluate(self, x: Array, columns: Array, *, weighted: bool) -> Array:
        result = np.empty_like(x)
        first, last = self.breakpoints[0], self.breakpoints[-1]
        for begin in range(0, x.size, _CHUNK):
            part = slice(begin, begin + _CHUNK)
            point = np.clip(x[part], np.nextafter(first, -np.inf), np.nextafter(last, np.inf))
            panel = np.searchsorted(self.breakpoints, point, side="right")
            factor = self._factor.take(panel)
            xi = point - self._location.take(panel)
            xi -= self._residue.take(panel)
            xi *= factor
            np.maximum(xi, 0.0, out=xi)
            xi = np.sqrt(xi) if self._roots else xi ** (1 / self._power.take(panel))
            # xi - start = (x - anchor)/(width (xi + start)): exact differences, however narrow the panel
            s = point - self._anchor.take(panel)
            s -= self._anchor_residue.take(panel)
            s *= factor
            s /= np.maximum(self._spread(panel, xi, self._start.take(panel)), _TINY)
            s *= self._slope.take(panel)
            s -= 1.0
            np.clip(s, -1.0, 1.0, out=s)
            value = _clenshaw(columns, panel, s)
            if weighted:
                if self._plain:
                    value *= xi
                else:
                    with np.errstate(divide="ignore", invalid="ignore"):  # xi = 0: infinite at a hard edge
                        value *= xi ** self._exponent.take(panel)
            result[part] = value
        return result

    def quantile(self, mass: Array) -> Array:
        """Smallest x with mass of (-inf, x] at least `mass`, for 0 <= mass <= total mass (rounding is forgiven)."""
        mass = np.clip(mass, 0.0, self.total_mass)
        panel = np.searchsorted(self._upper_mass, mass, side="left")
        panel = np.clip(panel, 1, len(self._upper_mass) - 2)
        rising = self._rising.take(panel)
        low, high = np.full(mass.shape, -1.0), np.full(mass.shape, 1.0)
        s = np.zeros_like(mass)
        last_move = np.full(mass.shape, np.inf)
        active = np.arange(mass.size)
        for _ in range(200):
            k, here = panel[active], s[active]
            excess = _clenshaw(self._mass, k, here) - mass[active]
            active, k, here, excess = (part[excess != 0] for part in (active, k, here, excess))
            if active.size == 0:
                break
            above = (excess > 0) == rising[active]
            high[active] = np.where(above, here, high[active])
            low[active] = np.where(above, low[active], here)
            slope = np.where(rising[active], 1.0, -1.0) * self._mass_slope(k, here)
            with np.errstate(divide="ignore", invalid="ignore"):
                newton = here - excess / slope
            # Newton while it stays inside the bracket and at least halves its step, else bisection
            usable = (newton > low[active]) & (newton < high[active])
            usable &= np.abs(newton - here) < 0.5 * last_move[active]
            new = np.where(usable, newton, 0.5 * (low[active] + high[active]))
            last_move[active] = np.where(usable, np.abs(new - here), np.inf)
            s[active] = new
            active = active[(np.abs(new - here) > 2e-16) & (high[active] - low[active] > 4e-16)]
            if active.size == 0:
                break
        else:
            raise CertificationError(
                f"the quantile of mass {mass[active[0]]!r} did not settle in 200 steps; please report the law"
            )
        x = self._position(panel, s)
        x = np.where(mass <= 0.0, self.breakpoints[0], x)
        x = np.where(mass >= self.total_mass * (1 - 4e-16), self.breakpoints[-1], x)
        return np.clip(x, self.breakpoints[panel - 1], self.breakpoints[panel])

    def quadrature(self) -> tuple[Array, Array]:
        """Points and weights: sum(weights * f(points)) is the integral of f for f smooth in the edge variables."""
        k = np.flatnonzero(self._factor != 0)
        panel = np.repeat(k, ORDER)
        s = np.tile(_NODES, len(k))
        return self._position(panel, s), self._mass_slope(panel, s) * np.tile(_FEJER, len(k))

    def _position(self, panel: np.ndarray, s: Array) -> Array:
        """x at s on the panels."""
        beyond = (s + 1) / self._slope[panel]
        start = self._start[panel]
        x: Array = self._anchor[panel] + beyond * self._spread(panel, start + beyond, start) / self._factor[panel]
        return x

    def _spread(self, panel: np.ndarray, xi: Array, start: Array) -> Array:
        """(xi**p - start**p)/(xi - start) for the panel's power p."""
        if self._roots:
            return xi + start
        power = self._power[panel]
        total = np.zeros_like(xi)
        for k in range(int(power.max(initial=0))):
            total += np.where(k < power, xi ** np.maximum(power - 1 - k, 0) * start**k, 0.0)
        return total

    def _mass_slope(self, panel: np.ndarray, s: Array) -> Array:
        """|d mass/ds| on the panels."""
        xi = self._start[panel] + (s + 1) / self._slope[panel]
        smooth = _clenshaw(self._density, panel, s)
        power = self._power[panel]
        slope: Array = power * smooth * xi ** (self._exponent[panel] + power - 1)
        slope /= np.abs(self._factor[panel]) * self._slope[panel]
        return slope


def edge_list(
    intervals: list[tuple[float, float]],
    exponents: list[tuple[int, int]],
    residues: Sequence[float] | None = None,
    powers: list[tuple[int, int]] | None = None,
) -> list[Edge]:
    """Lower and upper edge of each interval, in order."""
    rest = iter(residues) if residues is not None else itertools.repeat(0.0)
    if powers is None:
        powers = [(2, 2)] * len(intervals)
    edges = []
    for (a, b), (lower, upper), (p, q) in zip(intervals, exponents, powers, strict=True):
        edges += [Edge(a, 1, b - a, lower, next(rest), p), Edge(b, -1, b - a, upper, next(rest), q)]
    return edges


def _fejer_weights(count: int) -> Array:
    integrals = np.array([2.0 / (1 - k * k) if k % 2 == 0 else 0.0 for k in range(count)])
    weights: Array = integrals @ values_to_coefficients(count)
    return weights


_FEJER = _fejer_weights(ORDER)
