r"""Support and edges of the law of `ChainEquation`, and the equation solved in variables local to an edge.

The support. The equation is solved on the real axis on a grid in log x that is refined where neighbours disagree and
where the solution comes close to real; each point is certified to lie inside or outside. Between an inside and an
outside neighbour there is an edge: a fold of the real solution, dz/dt = 0, polished in multiprecision.

Near an edge. Every function of :math:`\delta = t - t_e` is carried as value and slope at the edge and an exact second
divided difference, :math:`f = f_e + f_e'\delta + f_2\delta^2`, so that :math:`z - z_e = \delta^2 z_2(\delta)` has no
cancellation and relative accuracy is kept down to the edge itself.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from gequiv._checks import Array, ComplexArray
from gequiv.dyson.chain_equation import ChainEquation
from gequiv.dyson.continuation import Status
from gequiv.dyson.scan import EXTREME, AxisScan
from gequiv.errors import CertificationError
from gequiv.laws._edge_adapted import edge_list
from gequiv.laws.multiprecision import DIGITS, multiprecision

_TINY_ANGLE = 1e-9


@dataclass(frozen=True)
class Fold:
    """A point of the real solution with dz/dt = 0 (or 1 + y = 0 at the hard edge z = 0).

    Numbers are of one floating-point type, double or extended.

    Attributes
    ----------
    z, t, q, slope_q, a, b, slope_y : values there, in units of the mean; a = 1 + y, b = 1 + cy, slopes in t.
    location, residue : z in true units, the nearest float and what is left.
    scale, share, rest, c : parameters of the equation.
    tau, gaps, poles, strengths : for each group τ; and for each eigenvalue m 1 - kappa m τ, kappa m, and m times its
        share.
    certain : all messages rise with t, so that the sheet next to the edge is the physical one.
    """

    z: Any
    t: Any
    q: Any
    slope_q: Any
    a: Any
    b: Any
    slope_y: Any
    location: float
    residue: Any
    scale: Any
    share: Any
    rest: Any
    c: Any
    tau: Any
    gaps: tuple[Any, ...]
    poles: tuple[Any, ...]
    strengths: tuple[Any, ...]
    certain: bool

    def double(self) -> Fold:
        """The same in double precision."""
        changed: dict[str, Any] = {}
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, tuple):
                changed[entry.name] = tuple(part.astype(np.float64) for part in value)
            elif isinstance(value, (np.longdouble, np.ndarray)):
                changed[entry.name] = value.astype(np.float64)
        return replace(self, **changed)


def _extended(value: Any) -> Any:
    """A multiprecision number in extended precision."""
    high = float(value)
    return np.longdouble(high) + np.longdouble(float(value - high))


class _Exact:
    """The reduced equations on the real axis in multiprecision."""

    def __init__(self, equation: ChainEquation) -> None:
        mp = multiprecision().mpf
        self.order = equation._order
        strength, rest = (mp(r.numerator) / r.denominator for r in equation.exact_variances)
        self.scale = strength + rest
        self.share, self.rest = strength / self.scale, rest / self.scale
        self.c = mp(equation.aspect.numerator) / equation.aspect.denominator
        self.groups = []
        for group in equation.groups:
            weighted = [mp(v) * k for v, k in zip(group.raw, group.multiplicities, strict=True)]
            mean = sum(weighted) / group.total
            kappa = self.share * group.ratio.denominator / group.ratio.numerator
            poles = [kappa * mp(v) / mean for v in group.raw]
            strengths = [w / (mean * group.total) for w in weighted]
            self.groups.append((poles, strengths, group.count))

    def transform(self, number: int, tau: Any) -> Any:
        poles, strengths, _ = self.groups[number]
        return sum(s * tau / (1 - p * tau) for p, s in zip(poles, strengths, strict=True))

    def inverse(self, number: int, t: Any, start: Any) -> tuple[Any, Any, Any]:
        """τ with T(τ) = t next to the start, and its first two derivatives in t."""
        poles, strengths, _ = self.groups[number]
        if len(poles) == 1:  # the strength of a single eigenvalue is one
            root = 1 + poles[0] * t
            return t / root, 1 / root**2, -2 * poles[0] / root**3
        sigma = 1 / multiprecision().mpf(start)  # 1/T is nearly linear in 1/τ near its zeros and at infinity
        for _ in range(60):
            value = slope = 0
            for p, s in zip(poles, strengths, strict=True):
                inverse = 1 / (sigma - p)
                term = s * inverse
                value += term
                slope += term * inverse
            change = (1 - value / t) * value / slope
            sigma -= change
            if abs(change) <= abs(sigma) * multiprecision().mpf(10) ** (5 - DIGITS):
                break
        else:
            raise CertificationError(f"an edge of the support could not be polished: {EXTREME}")
        tau = 1 / sigma
        first = second = 0
        for p, s in zip(poles, strengths, strict=True):
            inverse = 1 / (1 - p * tau)
            first += s * inverse**2
            second += 2 * s * p * inverse**3
        return tau, 1 / first, -second / first**3

    def point(self, t: Any, taus: list[Any]) -> dict[str, Any]:
        """Everything at a real t, the τ found next to the given ones."""
        inverses = [self.inverse(number, t, tau) for number, tau in enumerate(taus)]
        q, log1, log2 = t, 1 / t, -1 / t**2
        for (tau, first, second), (_, _, count) in zip(inverses, self.groups, strict=True):
            q *= (tau / t) ** count
            log1 += count * (first / tau - 1 / t)
            log2 += count * (second / tau - (first / tau) ** 2 + 1 / t**2)
        y = self.share * t + self.rest * q
        y1 = self.share + self.rest * q * log1
        y2 = self.rest * q * (log2 + log1**2)
        a, b = 1 + y, 1 + self.c * y
        return {
            "tau": [v[0] for v in inverses],
            "tau1": [v[1] for v in inverses],
            "q": q,
            "log1": log1,
            "a": a,
            "b": b,
            "y1": y1,
            "slope": y1 * (b + self.c * a) - a * b * log1,  # q dz/dt
            "curvature": y2 * (b + self.c * a) + 2 * self.c * y1**2 - y1 * (b + self.c * a) * log1 - a * b * log2,
        }

    def fold(self, taus: Array, pivot: int, t: float, *, hard: bool) -> Fold:
        """Newton for dz/dt = 0, or for 1 + y = 0 at the hard edge."""
        mp = multiprecision().mpf
        state = [mp(float(tau)) for tau in taus]
        here = self.transform(pivot, state[pivot]) if state else mp(t)
        small = mp(10) ** (8 - DIGITS)
        for _ in range(60):
            p = self.point(here, state)
            change = p["a"] / p["y1"] if hard else p["slope"] / p["curvature"]
            state = p["tau"]
            if not abs(change) < 0.5 * abs(here):
                raise CertificationError(f"an edge of the support could not be polished: {EXTREME}")
            here -= change
            if abs(change) <= abs(here) * small:
                break
        else:
            raise CertificationError(f"an edge of the support could not be polished: {EXTREME}")
        p = self.point(here, state)
        z = mp(0) if hard else p["a"] * p["b"] / p["q"]
        location = float(z * self.scale)
        taus_here = p["tau"]
        return Fold(
            z=_extended(z),
            t=_extended(here),
            q=_extended(p["q"]),
            slope_q=_extended(p["q"] * p["log1"]),
            a=np.longdouble(0) if hard else _extended(p["a"]),
            b=np.longdouble(0) if hard else _extended(p["b"]),
            slope_y=_extended(p["y1"]),
            location=location,
            residue=_extended(z * self.scale - location),
            scale=_extended(self.scale),
            share=_extended(self.share),
            rest=_extended(self.rest),
            c=_extended(self.c),
            tau=_array(taus_here),
            gaps=tuple(_array(1 - p * tau for p in g[0]) for g, tau in zip(self.groups, taus_here, strict=True)),
            poles=tuple(_array(g[0]) for g in self.groups),
            strengths=tuple(_array(g[1]) for g in self.groups),
            certain=bool(not hard and z > 0 and self._rising(here, p, z)),
        )

    def _rising(self, t: Any, p: dict[str, Any], z: Any) -> bool:
        """Whether all messages rise with t."""
        g, slope = p["a"] / z, p["y1"] / p["a"]
        messages = [(g, slope), (t / g, 1 / t - slope)]
        ratio, change = 1, 0
        for number in self.order:
            ratio *= t / p["tau"][number]
            change += 1 / t - p["tau1"][number] / p["tau"][number]
            messages += [(g * ratio, slope + change), (t / (g * ratio), 1 / t - slope - change)]
        return all(value * rate > 0 for value, rate in messages)


def _array(values: Any) -> Any:
    return np.array([_extended(value) for value in values], dtype=np.longdouble)


# -- the support --------------------------------------------------------------------------------------


class _Scan(AxisScan):
    """The scan of a chain's equation, and the folds between inside and outside."""

    equation: ChainEquation

    def __init__(self, equation: ChainEquation) -> None:
        hard = equation.aspect == 1
        # the noise alone bounds the smallest singular value from below
        low = 1e-3 * equation.rest**2 if hard else 0.25 * equation.rest * (1 - np.sqrt(equation.c)) ** 2
        super().__init__(equation, low, 1.01 * equation.upper_bound)

    def fold(self, exact: _Exact, inside: int, outside: int) -> Fold:
        """The edge between two neighbours: bisection until multiprecision Newton finds it there."""
        x_in, x_out, state = float(self.x[inside]), float(self.x[outside]), self.state[inside]
        for attempt in range(10):
            for _ in range(10 if attempt == 0 else 4):
                x, found, status, _ = self._solve(np.array([np.sqrt(x_in * x_out)]), state[None])
                if status.size == 0:
                    break
                if status[0] == Status.INSIDE:
                    x_in, state = float(x[0]), found[0]
                else:
                    x_out = float(x[0])
            try:
                fold = exact.fold(state[1:].real, self._pivot(state), float(state[0].real), hard=False)
            except CertificationError:
                if attempt == 9:
                    raise
                continue
            slack = 1e-6
            low, high = min(x_in, x_out) * (1 - slack), max(x_in, x_out) * (1 + slack)
            if low <= fold.z <= high and fold.certain:
                return fold
        raise CertificationError(f"the edge of the support near {x_in!r} (in units of the mean) was lost: {EXTREME}")

    def _pivot(self, state: ComplexArray) -> int:
        """The group whose τ fixes t best."""
        alpha = []
        for number, group in enumerate(self.equation.groups):
            ratio, slope = group.transform(state[1 + number : 2 + number])
            alpha.append(abs(slope[0] / ratio[0]))
        return int(np.argmin(alpha)) if alpha else 0


def find_support(equation: ChainEquation) -> tuple[list[tuple[float, float]], list[tuple[int, int]], list[Fold]]:
    """Intervals, exponents and folds (two for each interval), ascending, in true units."""
    scan = _Scan(equation)
    exact = _Exact(equation)
    hard = equation.aspect == 1
    brackets = scan.brackets()
    folds = [scan.fold(exact, inside, outside) for inside, outside in brackets]
    if hard:
        x = -1e-6 * equation.rest**2
        found = equation._solve(np.array([x], dtype=np.complex128), None)
        if found.status[0] == Status.FAILED:
            raise CertificationError(f"the hard edge at 0 could not be found: {EXTREME}")
        state = found.unknowns[0]
        folds.insert(0, exact.fold(state[1:].real, scan._pivot(state), float(state[0].real), hard=True))
    right_ends = scan.status[0] == (Status.INSIDE if hard else Status.OUTSIDE) and scan.status[-1] == Status.OUTSIDE
    ends = [fold.location for fold in folds]
    if not right_ends or len(ends) % 2 or len(ends) == 0 or any(a >= b for a, b in itertools.pairwise(ends)):
        raise CertificationError(f"the edges {ends} of the support do not alternate: {EXTREME}")
    intervals = list(zip(ends[::2], ends[1::2], strict=True))
    exponents = [(-1 if hard and k == 0 else 1, 1) for k in range(len(intervals))]
    return intervals, exponents, folds


# -- local to an edge -----------------------------------------------------------------------------------


class _Jet:
    """f(δ) = f0 + f1 δ + r δ², with r and dr/dδ at each point; f0 and f1 belong to the edge."""

    def __init__(self, f0: float, f1: float, r: Any, dr: Any, delta: ComplexArray) -> None:
        self.f0, self.f1, self.r, self.dr, self.delta = f0, f1, r, dr, delta
        self.first = f1 + r * delta  # first divided difference
        self.value = f0 + self.first * delta

    def slope(self) -> ComplexArray:
        return np.asarray(self.first + (self.r + self.dr * self.delta) * self.delta)

    def __mul__(self, other: _Jet) -> _Jet:
        r = self.f0 * other.r + self.f1 * other.first + self.r * other.value
        dr = (
            self.f0 * other.dr
            + self.f1 * (other.r + other.dr * self.delta)
            + self.dr * other.value
            + self.r * other.slope()
        )
        return _Jet(self.f0 * other.f0, self.f0 * other.f1 + self.f1 * other.f0, r, dr, self.delta)

    def reciprocal(self) -> _Jet:
        bottom = self.value * self.f0**2
        r = (self.f1 * self.first - self.r * self.f0) / bottom
        dr = (self.f1 * (self.r + self.dr * self.delta) - self.dr * self.f0) / bottom - r * self.slope() / self.value
        return _Jet(1 / self.f0, -self.f1 / self.f0**2, r, dr, self.delta)


class LocalSolver:
    """The equation in the edge variable ξ, x = x_e + width ξ², as `EdgeAdaptedDensity` wants it solved.

    Newton's method in double precision, and its last steps in extended precision (where the platform has it).

    Attributes
    ----------
    residues : what the edges have beyond their nearest floats.
    worst_step, margin : largest last relative Newton step, smallest -Im G/|G|, over all nodes so far.
    """

    precision = np.longdouble

    def __init__(
        self,
        equation: ChainEquation,
        intervals: list[tuple[float, float]],
        exponents: list[tuple[int, int]],
        folds: list[Fold],
    ) -> None:
        self.equation, self.extended = equation, folds
        self.folds = [fold.double() for fold in folds]
        self.residues = [float(fold.residue) for fold in folds]
        edges = edge_list(intervals, exponents)
        self.locations = np.array([float(fold.z) for fold in folds])
        self._true_widths = np.array([e.sign * e.width for e in edges])
        self.widths = self._true_widths / equation.scale
        self._exponents = np.array([e.exponent for e in edges])
        self.worst_step, self.margin = 0.0, 1.0
        nothing, zero = np.zeros((1, len(equation.groups)), dtype=np.complex128), np.zeros(1, dtype=np.complex128)
        self._curvature = [float(self._expand(fold, zero, nothing)[0].real[0]) for fold in self.folds]
        if any(w * c >= 0 for w, c in zip(self.widths, self._curvature, strict=True)):
            raise CertificationError(f"an edge of the support bends the wrong way: {EXTREME}")

    # -- expansion ------------------------------------------------------------------------------------

    @staticmethod
    def _differences(fold: Fold, number: int, shift: Any) -> tuple[Any, Any, Any, Any, Any, Any]:
        """T'(τ_e), T[τ_e, τ] and its slope, T[τ_e, τ_e, τ] and its slope, T'(τ), at τ = τ_e + shift."""
        gaps, strengths, poles = fold.gaps[number], fold.strengths[number], fold.poles[number]
        inverse = 1 / (gaps - poles * shift[:, None])
        square = inverse**2
        relative = poles / gaps
        once = inverse @ np.stack([strengths / gaps, strengths * relative / gaps], axis=1).astype(shift.dtype)
        columns = [strengths, strengths * relative, strengths * relative**2]
        twice = square @ np.stack(columns, axis=1).astype(shift.dtype)
        return np.sum(strengths / gaps**2), once[:, 0], twice[:, 1], once[:, 1], twice[:, 2], twice[:, 0]

    def _settle(self, fold: Fold, delta: Any, shifts: Any) -> tuple[Any, Array, Any]:
        """One Newton step for T(τ_e + shift) - t_e = δ (single eigenvalues exactly), its relative size, and dτ/dδ."""
        shifts = shifts.copy()
        size = np.zeros(delta.size)
        rates = np.zeros_like(shifts)
        for number, gaps in enumerate(fold.gaps):
            if gaps.size == 1:
                bottom = 1 + fold.poles[number][0] * gaps[0] * delta
                shifts[:, number] = delta * gaps[0] ** 2 / bottom
                rates[:, number] = (gaps[0] / bottom) ** 2
            else:
                _, first, _, _, _, slope = self._differences(fold, number, shifts[:, number])
                change = (shifts[:, number] * first - delta) / slope
                shifts[:, number] -= change
                size = np.maximum(size, (np.abs(change) / np.abs(shifts[:, number])).astype(np.float64))
                rates[:, number] = 1 / slope
        return shifts, size, rates

    def _expand(self, fold: Fold, delta: Any, shifts: Any) -> tuple[Any, Any, Any, Any]:
        """z_2(δ), its slope, and the first divided differences of q and y."""
        zero = np.zeros_like(delta)
        t = _Jet(fold.t, fold.t / fold.t, zero, zero, delta)
        inverse_t = t.reciprocal()
        q = t
        for number, group in enumerate(self.equation.groups):
            gaps = fold.gaps[number]
            if gaps.size == 1:  # τ/t = 1/(1 + κ m t)
                ratio = _Jet(1 / gaps[0], fold.poles[number][0], zero, zero, delta).reciprocal()
            else:
                at_edge, first, d_first, second, d_second, slope = self._differences(fold, number, shifts[:, number])
                r = -second / (at_edge * first**2)
                dr = (-d_second / (at_edge * first**2) + 2 * second * d_first / (at_edge * first**3)) / slope
                ratio = _Jet(fold.tau[number], 1 / at_edge, r, dr, delta) * inverse_t
            for _ in range(group.count):
                q = q * ratio
        q = _Jet(fold.q, fold.slope_q, q.r, q.dr, delta)
        a = _Jet(fold.a, fold.slope_y, fold.rest * q.r, fold.rest * q.dr, delta)
        b = _Jet(fold.b, fold.c * fold.slope_y, fold.c * a.r, fold.c * a.dr, delta)
        z = a * b * q.reciprocal()
        return z.r, z.dr, q.first, a.first

    def _newton(
        self, edge: int, offset: Any, delta: ComplexArray, shifts: ComplexArray, *, real: bool = False
    ) -> tuple[ComplexArray, ComplexArray, ComplexArray, Array, np.ndarray]:
        """δ² z_2(δ) = offset. Returns δ, the shifts of τ, δ times y's divided difference, last step, converged."""
        finished = np.zeros(delta.shape, dtype=bool)
        step = np.full(delta.shape, np.inf)
        fold, here = self.folds[edge], offset.astype(np.complex128)
        with np.errstate(all="ignore"):  # a point that runs away is caught by `finished`
            for _ in range(40):
                shifts, inner, rates = self._settle(fold, delta, shifts)
                change, size = self._step(fold, here, delta, shifts, real=real)
                new = np.maximum(size, inner)
                change[finished] = 0
                delta = delta - change
                shifts = shifts - change[:, None] * rates
                finished |= (new < 1e-15) | ((new < 1e-10) & (new > 0.25 * step))
                step = np.where(finished & (step < new), step, new)
                if finished.all():
                    break
            fold, delta, shifts = self.extended[edge], delta.astype(np.clongdouble), shifts.astype(np.clongdouble)
            for _ in range(2):
                shifts, inner, rates = self._settle(fold, delta, shifts)
                change, size = self._step(fold, offset, delta, shifts, real=real)
                delta, shifts = delta - change, shifts - change[:, None] * rates
            _, _, _, first = self._expand(fold, delta, shifts)
            y = delta * first
            delta, shifts, y = (part.astype(np.complex128) for part in (delta, shifts, y))
        step = np.where(finished, np.maximum(size, inner), np.inf)
        finished &= np.isfinite(delta) & np.isfinite(shifts).all(axis=1) & (step < 1e-9)
        return delta, shifts, y, step, finished

    def _step(self, fold: Fold, offset: Any, delta: Any, shifts: Any, *, real: bool) -> tuple[Any, Array]:
        """Newton step in δ, at most half of it, and the relative size of the whole step."""
        curve, slope, _, _ = self._expand(fold, delta, shifts)
        change = (delta**2 * curve - offset) / (2 * delta * curve + delta**2 * slope)
        size = np.abs(change)
        change = change * np.minimum(1, 0.5 * np.abs(delta) / np.maximum(size, 1e-300))
        return change, (size / (np.abs(delta) if real else np.abs(delta.imag))).astype(np.float64)

    def _start(self, edge: int, offset: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        """δ and shifts to leading order, on the physical side."""
        delta = np.sqrt(offset / self._curvature[edge] + 0j)
        flip = np.where(delta.imag != 0, delta.imag > 0, delta.real * self._curvature[edge] > 0)
        delta = np.where(flip, -delta, delta)
        fold = self.folds[edge]
        rates = [1 / np.sum(s / d**2) for s, d in zip(fold.strengths, fold.gaps, strict=True)]
        return delta, delta[:, None] * np.array(rates, dtype=np.complex128)

    def _from_state(self, edge: int, state: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        """δ and shifts of given unknowns; δ from the τ that fixes t best."""
        fold = self.folds[edge]
        if not self.equation.groups:
            return state[:, 0] - fold.t, np.zeros((len(state), 0), dtype=np.complex128)
        shifts = state[:, 1:] - fold.tau
        parts = zip(fold.strengths, fold.gaps, fold.tau, strict=True)
        pivot = int(np.argmin([abs(np.sum(s / d**2) * tau / fold.t) for s, d, tau in parts]))
        _, first, _, _, _, _ = self._differences(fold, pivot, shifts[:, pivot])
        return shifts[:, pivot] * first, shifts

    def _unknowns(self, edge: int, delta: ComplexArray, shifts: ComplexArray) -> ComplexArray:
        fold = self.folds[edge]
        return np.concatenate([(fold.t + delta)[:, None], fold.tau + shifts], axis=1)

    # -- density --------------------------------------------------------------------------------------

    def solve(self, edge: np.ndarray, xi: Any, start: ComplexArray | None) -> tuple[Array, ComplexArray]:
        """Node solver of `EdgeAdaptedDensity`; the state is δ/ξ and the shifts of all τ over ξ."""
        values = np.empty(xi.size)
        states = np.empty((xi.size, 1 + len(self.equation.groups)), dtype=np.complex128)
        for number in np.unique(edge):
            chosen = np.flatnonzero(edge == number)
            begin = None if start is None else start[chosen]
            values[chosen], states[chosen] = self._solve_edge(int(number), xi[chosen], begin)
        return values, states

    def _solve_edge(self, edge: int, exact: Any, start: ComplexArray | None) -> tuple[Array, ComplexArray]:
        fold = self.extended[edge]
        offset = exact.astype(np.longdouble) ** 2 * self._true_widths[edge] / fold.scale
        x = (fold.z + offset).astype(np.float64)
        xi = exact.astype(np.float64)
        if start is None:
            delta, shifts = self._start(edge, offset.astype(np.complex128))
        else:
            delta, shifts = start[:, 0] * xi, start[:, 1:] * xi[:, None]
        delta, shifts, y, step, fine = self._newton(edge, offset, delta, shifts)
        fine &= self._physical(edge, x, xi, delta, shifts, y)
        lost = np.flatnonzero(~fine)
        if lost.size:
            found = self.equation._solve(x[lost].astype(np.complex128), None)
            inside = found.status == Status.INSIDE
            if not inside.all():
                where = float(x[lost[~inside]][0])
                raise CertificationError(f"no certified solution at x = {where!r} (in units of the mean): {EXTREME}")
            begin, moved = self._from_state(edge, found.unknowns)
            delta[lost], shifts[lost], y[lost], step[lost], fine[lost] = self._newton(edge, offset[lost], begin, moved)
            fine[lost] &= self._physical(edge, x[lost], xi[lost], delta[lost], shifts[lost], y[lost])
            again = ~fine[lost]  # far from an edge of a much smaller scale: the global form serves
            delta[lost[again]], shifts[lost[again]] = begin[again], moved[again]
        values: Array = -y.imag / (np.pi * x)
        self._refine(edge, x, (delta, shifts, y), values, step, fine)
        if fine.any():
            self.margin = min(self.margin, float(np.min(-y.imag[fine] / np.abs(self.folds[edge].a + y[fine]))))
        self.worst_step = max(self.worst_step, float(step.max()))
        states: ComplexArray = np.concatenate([delta[:, None], shifts], axis=1) / xi[:, None]
        return values / (xi ** self._exponents[edge] * self.equation.scale), states

    def _refine(
        self,
        edge: int,
        x: Array,
        local: tuple[ComplexArray, ComplexArray, ComplexArray],
        values: Array,
        step: Array,
        fine: np.ndarray,
    ) -> None:
        """The global form, in logarithms, in place where it carries less rounding than the expansion about the edge."""
        equation, z = self.equation, x.astype(np.complex128)
        with np.errstate(all="ignore"):
            state = self._unknowns(edge, *local[:2])
            rounding = np.where(fine, self._cancellation(edge, *local), np.inf)
            worth = np.flatnonzero(self._rounding(z, state) < rounding)
            state, _ = equation._newton(z[worth], state[worth])
            residual, last = equation._residual(z[worth], state)
            status, state = equation._status(z[worth], state, residual, last)
            better = (status == Status.INSIDE) & (self._rounding(z[worth], state) < rounding[worth])
            value, _ = equation.resolvents(z[worth], state)
        chosen = worth[better]
        values[chosen], step[chosen] = -value.imag[better] / np.pi, last[better]
        left = ~fine
        left[chosen] = False
        if left.any():
            raise CertificationError(
                f"no certified solution at x = {float(x[left][0])!r} (in units of the mean): {EXTREME}"
            )

    def _cancellation(self, edge: int, delta: ComplexArray, shifts: ComplexArray, y: ComplexArray) -> Array:
        """Rounding of the expansion about the edge, relative to Im y, in digits of double precision."""
        fold = self.folds[edge]
        _, _, q, _ = self._expand(fold, delta, shifts)
        pairs = [(fold.t, delta), (fold.q, q * delta), (fold.a, y), (fold.b, fold.c * y)]
        pairs += [(tau, shifts[:, number]) for number, tau in enumerate(fold.tau)]
        worst = np.ones(delta.size)
        for value, change in pairs:
            worst = np.maximum(worst, (abs(value) + np.abs(change)) / np.abs(value + change))
        terms = np.abs(delta) * (fold.share + fold.rest * np.abs(q))
        gain = np.finfo(np.longdouble).eps / np.finfo(np.float64).eps
        return np.asarray(1 + float(gain) * worst * np.maximum(1, terms / np.abs(y.imag)))

    def _rounding(self, z: ComplexArray, state: ComplexArray) -> Array:
        """Factor by which the equation in logarithms amplifies rounding, in Im y."""
        equation = self.equation
        t, q, y = equation._parts(state)
        tangent = equation._tangent(z, state)
        slope_q = (1 - equation._counts.sum()) * tangent[:, 0] + tangent[:, 1:] @ equation._counts
        slope = np.abs(equation.share * t * tangent[:, 0] + equation.rest * q * slope_q)
        size = np.abs(equation.share * t) + np.abs(equation.rest * q)
        scale = 1 + (1 + size) * (1 + equation.c * size) / np.abs(z * q)
        return np.asarray((slope * scale + size) / np.abs(y.imag))

    def _physical(
        self, edge: int, x: Array, xi: Array, delta: ComplexArray, shifts: ComplexArray, y: ComplexArray
    ) -> np.ndarray:
        """All messages strictly in the lower half-plane, or so close to a certified edge that δ decides."""
        with np.errstate(all="ignore"):
            margin = self.equation.margin(x.astype(np.complex128), self._unknowns(edge, delta, shifts))
        near = self.folds[edge].certain & (xi < 1e-4) & (margin > -_TINY_ANGLE)
        good = (y.imag < 0) & (delta.imag < 0) & ((margin > _TINY_ANGLE) | near)
        return np.asarray(good)

    # -- Cauchy transform -------------------------------------------------------------------------------

    def cauchy(self, z: ComplexArray) -> ComplexArray:
        """G at finite z with Im z >= 0, off the support; in units of the mean."""
        unknowns = np.empty((z.size, 1 + len(self.equation.groups)), dtype=np.complex128)
        done = np.zeros(z.size, dtype=bool)
        edge = np.argmin(np.abs(z[:, None] - self.locations) / np.abs(self.widths), axis=1)
        offset = z - self.locations[edge]
        xi = np.sqrt(np.abs(offset / self.widths[edge]))
        close = (xi < 0.2) & (z != 0)
        for on_axis in (False, True):
            for number in np.unique(edge[close]):
                part = np.flatnonzero(close & (edge == number) & ((z.imag == 0) == on_axis))
                if part.size == 0:
                    continue
                delta, shifts = self._start(int(number), offset[part])
                delta, shifts, _, _, fine = self._newton(int(number), offset[part], delta, shifts, real=True)
                state = self._unknowns(int(number), delta, shifts)
                with np.errstate(all="ignore"):
                    residual, step = self.equation._residual(z[part], state)
                    status, _ = self.equation._status(z[part], state, residual, step)
                right = delta.real * self._curvature[int(number)] < 0 if on_axis else delta.imag < 0
                near = self.folds[number].certain & (xi[part] < 1e-3)
                fine &= (status != Status.FAILED) | (near & right)
                unknowns[part[fine]], done[part[fine]] = state[fine], True
        rest = np.flatnonzero(~done)
        if rest.size:
            found = self.equation._solve(z[rest], None)
            failed = found.status == Status.FAILED
            if failed.any():
                raise CertificationError(
                    f"the Cauchy transform at z = {complex(z[rest][failed][0])!r} (in units of the mean) could not be "
                    "certified; take a larger |Im z|"
                )
            unknowns[rest] = found.unknowns
        with np.errstate(all="ignore"):
            value, _ = self.equation.resolvents(z, unknowns)
        return np.where(z.imag == 0, value.real, value)
