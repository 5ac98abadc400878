"""The law of a density given as a function."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gequiv import _checks
from gequiv._checks import Array, ComplexArray
from gequiv.errors import CertificationError, ParameterError
from gequiv.laws.base import Law, finite_moment, finite_real, moment_order
from gequiv.laws.semicircle import solve_increasing
from gequiv.laws.uniform import log_ratio

_ORDER = 24  # nodes of a panel
_TOLERANCE = 1e-13  # last Legendre coefficients of a panel, relative to its largest value
_NEGLIGIBLE = 1e-17  # or this mass
_BLURRED = 1e-12  # or this one, where the density varies so fast that the rounding of x hides more
_DEPTH = 45  # bisections of a panel
_PANELS = 2000
_CHUNK = 2**20
_DEGREES = np.arange(_ORDER)
_NODES = np.polynomial.legendre.leggauss(_ORDER)[0]
_VALUES = np.polynomial.legendre.legvander(_NODES, _ORDER - 1)
_WEIGHTS = 1 / np.sum((_DEGREES + 0.5) * _VALUES**2, axis=1)  # numpy's own are good to 1e-13 only
_TO_SERIES = ((_DEGREES + 0.5) * _VALUES * _WEIGHTS[:, None]).T
_EPS = float(np.finfo(float).eps)


class FromDensity(Law):
    r"""The law with a given density on given intervals, and given atoms.

    The density is read once, in Gauss–Legendre panels that shrink geometrically towards both ends of each interval and
    are halved until their Legendre series have converged; masses, moments, quantiles and the Cauchy transform are those
    of the series, :math:`G(z) = \sum_{\text{panels}} \sum_k c_k \int P_k(x)/(z - x)\,dx + \sum_j w_j/(z - a_j)`: by the
    quadrature itself far from the panel, by Legendre functions of the second kind near it. ``pdf`` is the given
    function.

    At the ends the density may vanish or diverge like a power above -1 of the distance. At an end other than 0 the
    distance is known to the accuracy of x only, so that the last 1e-6 of it is continued from what lies before.

    Parameters
    ----------
    density : function that takes an array of points inside the intervals to the densities there, finite and >= 0.
    support : (low, high), or a list of such pairs, ascending and disjoint; where the density jumps or is not smooth,
        end one interval and begin the next.
    atoms : pairs (location, weight).

    Raises
    ------
    ParameterError : density is not a function of arrays, or takes a value that is not a finite number >= 0; an
        interval or atom is invalid; the whole mass differs from 1 by more than 1e-8 (within that it is normalised).
    CertificationError : the series do not converge.

    Source: Trefethen 2019, chapters 8 and 19, for convergence; Gautschi 1981 for the functions of the second kind.

    Examples
    --------
    >>> law = FromDensity(lambda x: 2 * x, (0, 1))
    >>> round(law.mean(), 12), round(float(law.ppf(0.25)), 12)
    (0.666666666667, 0.5)
    """

    def __init__(self, density: Callable[[Array], Any], support: Any, atoms: Any = ()) -> None:
        if not callable(density):
            raise ParameterError(f"density must be a function of an array; got {density!r}")
        self._function = density
        self._pieces = _intervals(support)
        self._points = _atoms(atoms)
        self._factor = 1.0
        self._sides: list[_Side] = []
        for low, high in self._pieces:
            middle = low + 0.5 * (high - low)
            self._sides.append(_Side(self._evaluate, low, 1, middle - low))
            self._sides.append(_Side(self._evaluate, high, -1, high - middle))
        charged = math.fsum(weight for _, weight in self._points)
        mass = math.fsum(side.total for side in self._sides)
        if not abs(mass + charged - 1) <= 1e-8:
            raise ParameterError(
                f"density and atoms must have mass 1; found {mass!r} for the density and {charged!r} for the atoms"
            )
        self._factor = (1 - charged) / mass if mass > 0 else 1.0
        for side in self._sides:
            side.rescale(self._factor)

    def __repr__(self) -> str:
        name = getattr(self._function, "__name__", repr(self._function))
        return f"FromDensity({name}, {self.support()}, atoms={self._points})"

    def support(self, dps: int | None = None) -> list[tuple[Any, Any]]:
        """The intervals as given; those that touch are joined."""
        if dps is not None:
            return self._precise(dps).support()
        joined: list[tuple[float, float]] = []
        for low, high in self._pieces:
            if joined and joined[-1][1] == low:
                low = joined.pop()[0]
            joined.append((low, high))
        return joined

    def atoms(self) -> list[tuple[float, float]]:
        """The point masses as given, ascending."""
        return list(self._points)

    def moment(self, k: int, dps: int | None = None) -> Any:
        r"""The moment :math:`\int x^k \mu(dx)` by quadrature.

        Raises
        ------
        ParameterError : k is not an integer >= 0, or the moment exceeds the floats.
        """
        k = moment_order(k)
        if dps is not None:
            return self._precise(dps).moment(k)
        try:
            parts = [side.moment(k) for side in self._sides]
            parts += [weight * location**k for location, weight in self._points]
            return finite_moment(k, math.fsum(parts))
        except (OverflowError, ValueError):
            return finite_moment(k, math.inf)

    def _pairs(self) -> list[tuple[_Side, _Side]]:
        """The lower and upper half of each interval."""
        return list(zip(self._sides[::2], self._sides[1::2], strict=True))

    def _evaluate(self, x: Array, *, infinite: bool = False) -> Array:
        """The given function at points inside the intervals, checked; next to an end it may round to infinity."""
        with np.errstate(all="ignore"):
            raw = np.asarray(self._function(x))
        if raw.shape != x.shape or raw.dtype.kind not in "fiu":
            raise ParameterError(
                f"density must return as many real numbers as it is given; got {raw.dtype} of shape {raw.shape} for "
                f"shape {x.shape}"
            )
        values = raw.astype(np.float64)
        bad = ~((np.isfinite(values) | infinite) & (values >= 0))
        if bad.any():
            raise ParameterError(
                f"density must be finite and at least 0; got {float(values[bad][0])!r} at x = {float(x[bad][0])!r}"
            )
        return values

    def _pdf(self, x: Array) -> Array:
        result = np.zeros_like(x)
        for low, high in self._pieces:
            inside = (x > low) & (x < high)
            if inside.any():
                result[inside] = self._factor * self._evaluate(x[inside], infinite=True)
        for side in self._sides:
            result[x == side.anchor] = np.maximum(result[x == side.anchor], side.limit)
        return result

    def _cdf(self, x: Array) -> Array:
        return np.clip(self._add_atoms(x, self._continuous(x)), 0.0, 1.0)

    def _continuous(self, x: Array) -> Array:
        result = np.zeros_like(x)
        for lower, upper in self._pairs():
            first = lower.mass(x - lower.anchor)
            result = result + np.where(
                x - lower.anchor <= lower.length, first, lower.total + (upper.total - upper.mass(upper.anchor - x))
            )
        return result

    def _partial_mean(self, x: Array) -> Array:
        result = np.zeros_like(x)
        for lower, upper in self._pairs():
            beyond = upper.first(np.array([upper.length]))[0] - upper.first(upper.anchor - x)
            result = result + lower.first(x - lower.anchor)
            result = result + np.where(x - lower.anchor <= lower.length, 0.0, beyond)
        for location, weight in self._points:
            result = result + weight * location * (x >= location)
        return result

    def _ppf(self, q: Array) -> Array:
        below = np.zeros_like(q)  # weight of the atoms further down
        jumps: list[tuple[float, np.ndarray]] = []
        total = 0.0
        for location, weight in self._points:
            before = float(self._continuous(np.array([location]))[0]) + total
            reached = (q > before) | (before <= 0)
            below = np.where(reached, total + weight, below)
            jumps.append((location, reached & (q <= before + weight)))
            total += weight
        x = self._quantile(np.maximum(q - below, 0.0))
        for location, chosen in jumps:
            x = np.where(chosen, location, x)
        top = max([high for _, high in self._pieces] + [location for location, _ in self._points])
        return np.where(q >= 1, top, x)

    def _quantile(self, mass: Array) -> Array:
        """The lowest point with that continuous mass below it."""
        pairs = self._pairs()
        ends = np.cumsum([lower.total + upper.total for lower, upper in pairs])
        index = np.minimum(np.searchsorted(ends, mass), len(pairs) - 1)
        result = np.zeros_like(mass)
        for k, (lower, upper) in enumerate(pairs):
            here = index == k
            within = np.clip(mass[here] - (ends[k - 1] if k else 0.0), 0.0, None)
            above = np.clip(lower.total + upper.total - within, 0.0, None)
            result[here] = np.where(
                within <= lower.total, lower.anchor + lower.quantile(within), upper.anchor - upper.quantile(above)
            )
        return result

    def _cauchy(self, z: ComplexArray) -> ComplexArray:
        return self._cauchy_and_slope(z)[0]

    def _cauchy_and_slope(self, z: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        g, slope = np.zeros_like(z), np.zeros_like(z)
        finite = np.isfinite(z)
        points = z[finite]
        with np.errstate(all="ignore"):
            for side in self._sides:
                value, derivative = side.cauchy_and_slope(side.sign * (points - side.anchor))
                g[finite] += side.sign * value
                slope[finite] += derivative
            for location, weight in self._points:
                g[finite] += weight / (points - location)
                slope[finite] -= weight / (points - location) ** 2
        return g, slope

    def _breakpoints(self) -> Array:
        return np.unique(np.concatenate([side.anchor + side.sign * side.cuts for side in self._sides]))


class _Side:
    """One half of an interval, in the distance t from its end: panels of Legendre series, ascending.

    x = anchor + sign * t for t in [0, length]. The panels shrink towards t = 0, where either one of them begins, or
    below the first of them the density is taken as t**power.
    """

    def __init__(self, evaluate: Callable[[Array], Array], anchor: float, sign: int, length: float) -> None:
        self.anchor, self.sign, self.length = anchor, sign, length
        self._evaluate = evaluate
        self._stub, self._power = 0.0, 0.0  # mass below the first panel, and the power there
        self._panels: list[tuple[float, float, Array]] = []  # (low, high, coefficients)
        self._grade()
        self._panels.sort(key=lambda panel: panel[0])
        self.cuts = np.array([low for low, _, _ in self._panels] + [length])
        self._half, self._centre = 0.5 * np.diff(self.cuts), 0.5 * (self.cuts[1:] + self.cuts[:-1])
        self._set(np.array([coefficients for _, _, coefficients in self._panels]).T)

    def _set(self, series: Array) -> None:
        self._series = series  # (order, panels)
        moments = _times_argument(series) * self._half
        moments[:_ORDER] += series * self._centre
        self._mass_series = _integrated(series) * self._half
        self._first_series = _integrated(moments) * self._half
        # P_0 alone does not vanish over a panel
        self._masses = self._stub + np.append(0.0, np.cumsum(2 * series[0] * self._half))
        stub_mean = self._stub * (1 + self._power) / (2 + self._power) * self.cuts[0]
        self._firsts = stub_mean + np.append(0.0, np.cumsum(2 * moments[0] * self._half))
        self._stub_place = stub_mean / self._stub if self._stub > 0 else 0.0
        self.total = float(self._masses[-1])
        nodes = np.polynomial.legendre.legval(_NODES, series)  # (panels, order)
        self._charges = (nodes * _WEIGHTS * self._half[:, None]).reshape(-1)
        self._places = (self._centre[:, None] + self._half[:, None] * _NODES).reshape(-1)

    def rescale(self, factor: float) -> None:
        self._stub *= factor
        self._set(self._series * factor)

    @property
    def limit(self) -> float:
        """The density at the end itself."""
        if self.cuts[0] > 0:
            if self._power < -0.01:
                return math.inf
            return 0.0 if self._power > 0.01 else self._stub / float(self.cuts[0])
        ends = (-1.0) ** _DEGREES
        return max(0.0, float(ends @ self._series[:, 0]))

    # -- building ----------------------------------------------------------------------------------

    def _noise(self, t: float) -> float:
        """Relative error of the density at distance t, from the rounding of x."""
        return 16 * _EPS * abs(self.anchor) / t

    def _values(self, t: Array) -> Array:
        return self._evaluate(self.anchor + self.sign * t)

    def _series_on(self, low: float, high: float) -> tuple[Array, bool, bool]:
        """Coefficients of a panel; whether they have converged, and whether what they miss is negligible."""
        t = 0.5 * (low + high) + 0.5 * (high - low) * _NODES
        values = self._values(t)
        series: Array = _TO_SERIES @ values
        peak, tail = float(values.max()), float(np.abs(series[-3:]).max())
        allowed = peak * max(_TOLERANCE, self._noise(float(t[0])))
        if tail * (high - low) < _BLURRED:
            # the rounding of x moves the density by its slope times that, whatever the series
            steepest = float(np.abs(np.diff(values) / np.diff(t)).max())
            allowed = max(allowed, 8 * _EPS * (abs(self.anchor) + high) * steepest)
        # coefficients at the end that are rounding only would make panels disagree where they meet
        meaningful = np.nonzero(np.abs(series) > 8 * _EPS * peak)[0]
        series[meaningful[-1] + 1 if meaningful.size else 0 :] = 0.0
        return series, tail <= allowed, tail * (high - low) <= _NEGLIGIBLE

    def _halve(self, low: float, high: float) -> None:
        """Panels of [low, high], by bisection."""
        waiting = [(low, high, 0)]
        while waiting:
            start, end, depth = waiting.pop()
            series, converged, negligible = self._series_on(start, end)
            if converged or negligible:
                self._panels.append((start, end, series))
                continue
            if depth >= _DEPTH or len(self._panels) > _PANELS:
                place = self.anchor + self.sign * 0.5 * (start + end)
                raise CertificationError(
                    f"the density does not converge in panels near x = {place!r}: if it jumps or has a pole there, "
                    "end one interval of support there and begin the next; if it is noisy, compute it more accurately"
                )
            middle = 0.5 * (start + end)
            waiting += [(start, middle, depth + 1), (middle, end, depth + 1)]

    def _grade(self) -> None:
        """Panels that halve towards t = 0, until one reaches it or all that is left is a power."""
        t = self.length
        nearest = min(2.0**-20 * abs(self.anchor), 2.0**-10 * self.length)  # x tells nothing of the distance below
        nearest = max(nearest, 2.0**-100 * self.length)
        while True:
            series, converged, _ = self._series_on(0.0, t)
            if converged:
                self._panels.append((0.0, t, series))
                return
            self._halve(0.5 * t, t)
            t *= 0.5
            if t <= nearest:
                break
        if self.anchor == 0 or t <= 2.0**-99 * self.length:
            near, far = self._values(np.array([t, 2 * t]))
            self._power = math.log2(far / near) if near > 0 and far > 0 else 0.0
            self._close(t, float(near))
            return
        continued, self._power = _continuation(t, *self._samples(t), self._noise(t))
        lowest = 2.0 ** (-60 if self._power > -0.01 else -100) * self.length
        while t > lowest:
            points = 0.75 * t + 0.25 * t * _NODES
            self._panels.append((0.5 * t, t, _TO_SERIES @ continued(points)))
            t *= 0.5
        self._close(t, float(continued(np.array([t]))[0]))

    def _samples(self, t: float) -> tuple[Array, Array]:
        x = self.anchor + self.sign * t * 2.0 ** (1.5 + 1.5 * _NODES)
        return np.abs(x - self.anchor), self._evaluate(x)

    def _close(self, t: float, density: float) -> None:
        if self._power <= -1:
            raise ParameterError(
                f"density must be integrable; it grows like the power {self._power:.3g} of the distance from "
                f"{self.anchor!r}"
            )
        self._stub = density * t / (1 + self._power)

    # -- reading -----------------------------------------------------------------------------------

    def _read(self, series: Array, before: Array, power: float, stub: float, t: Array) -> Array:
        index = np.clip(np.searchsorted(self.cuts, t, side="right") - 1, 0, self._half.size - 1)
        s = np.clip((np.clip(t, 0.0, self.length) - self._centre[index]) / self._half[index], -1.0, 1.0)
        result = before[index] + _legendre_sum(series, index, s)
        if self.cuts[0] > 0:
            ratio = np.clip(t / self.cuts[0], 0.0, 1.0)
            result = np.where(t < self.cuts[0], stub * ratio**power, result)
        return np.where(t <= 0, 0.0, result)

    def mass(self, t: Array) -> Array:
        """Mass within distance t of the end."""
        return self._read(self._mass_series, self._masses, 1 + self._power, self._stub, t)

    def first(self, t: Array) -> Array:
        """The integral of x over the same."""
        distance = self._read(self._first_series, self._firsts, 2 + self._power, float(self._firsts[0]), t)
        return self.anchor * self.mass(t) + self.sign * distance

    def quantile(self, mass: Array) -> Array:
        """Distance within which that mass lies."""
        inside = (mass > self._stub) & (mass < self.total)
        wanted = mass[inside]
        index = np.clip(np.searchsorted(self._masses, wanted) - 1, 0, self._half.size - 1)

        def excess(s: Array, at: np.ndarray) -> tuple[Array, Array]:
            value = self._masses[index[at]] - wanted[at] + _legendre_sum(self._mass_series, index[at], s)
            return value, _legendre_sum(self._series, index[at], s) * self._half[index[at]]

        t = np.where(mass >= self.total, self.length, 0.0)
        t[inside] = self._centre[index] + self._half[index] * solve_increasing(excess, wanted.size, -1.0, 1.0)
        if self._stub > 0:
            ratio = np.clip(mass / self._stub, 0.0, 1.0)
            t = np.where(mass <= self._stub, self.cuts[0] * ratio ** (1 / (1 + self._power)), t)
        return np.where(mass <= 0, 0.0, t)

    def moment(self, k: int) -> float:
        """The integral of x**k."""
        # the nodes integrate x**k for k up to the order; beyond, on parts of the panels
        parts = 1 + k // 16
        s = (2 * np.arange(parts)[:, None] + 1 + _NODES).reshape(-1) / parts - 1
        values = np.polynomial.legendre.legval(s, self._series)
        t = self._centre[:, None] + self._half[:, None] * s
        weights = np.tile(_WEIGHTS, parts) / parts * self._half[:, None]
        with np.errstate(over="ignore"):
            total = float(np.sum((self.anchor + self.sign * t) ** k * values * weights))
            return total + self._stub * (self.anchor + self.sign * self._stub_place) ** k

    def cauchy_and_slope(self, w: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        """The integral of density/(w - t) over this side, and its derivative."""
        value = np.asarray(self._stub / (w - self._stub_place), dtype=np.complex128)
        slope = -value / (w - self._stub_place)
        panels = self._half.size
        rows = max(1, _CHUNK // self._places.size)
        for start in range(0, w.size, rows):
            part = w[start : start + rows]
            inverse = 1 / (part[:, None] - self._places)
            terms = inverse * self._charges
            zeta = (part[:, None] - self._centre) / self._half
            # the quadrature converges like 2.2**-48 outside the ellipse of that parameter
            near = np.abs(zeta - 1) + np.abs(zeta + 1) < 2.2 + 1 / 2.2
            far = np.add.reduce(terms.reshape(-1, panels, _ORDER), axis=2)
            terms *= inverse
            far_slope = np.add.reduce(terms.reshape(-1, panels, _ORDER), axis=2)
            row, panel = np.nonzero(near)
            far[row, panel], near_slope = _second_kind(
                self._series, panel, part[row], self.cuts[panel], self.cuts[panel + 1]
            )
            far_slope[row, panel] = -near_slope / self._half[panel]
            value[start : start + rows] += far.sum(axis=1)
            slope[start : start + rows] -= far_slope.sum(axis=1)
        return value, slope


def _second_kind(
    series: Array, index: np.ndarray, w: ComplexArray, low: Array, high: Array
) -> tuple[ComplexArray, ComplexArray]:
    """∫ p(t)/(w - t) over [low, high] for the series p of each point, and its derivative in ζ, near that interval."""
    # 2Q_k by the forward recurrence; its errors grow like those of P_k(ζ), which the coefficients outweigh there
    half = 0.5 * (high - low)
    zeta = (w - 0.5 * (low + high)) / half
    older, newer = np.zeros_like(zeta), log_ratio(w, low, high)
    slope_older, slope_newer = np.zeros_like(zeta), half / (w - low) - half / (w - high)
    value, slope = np.zeros_like(zeta), np.zeros_like(zeta)
    for k in range(_ORDER):
        value += series[k].take(index) * newer
        slope += series[k].take(index) * slope_newer
        following = ((2 * k + 1) * zeta * newer - k * older) / (k + 1) - (2.0 if k == 0 else 0.0)
        slope_following = newer + zeta * slope_newer if k == 0 else slope_older + (2 * k + 1) * newer
        older, newer, slope_older, slope_newer = newer, following, slope_newer, slope_following
    return value, slope


def _legendre_sum(series: Array, index: np.ndarray, s: Array) -> Array:
    """Sum of series[k, index] P_k(s) over k."""
    older, newer = np.zeros_like(s), np.ones_like(s)
    total = np.zeros_like(s)
    for k in range(len(series)):
        total += series[k].take(index) * newer
        older, newer = newer, ((2 * k + 1) * s * newer - k * older) / (k + 1)
    return total


def _integrated(series: Array) -> Array:
    """Legendre coefficients of the integral from -1, column by column."""
    count = len(series)
    result = np.zeros((count + 1, series.shape[1]))
    result[0] = series[0]
    scaled = series / (2 * np.arange(count)[:, None] + 1)
    result[1:] += scaled
    result[: count - 1] -= scaled[1:]
    return result


def _times_argument(series: Array) -> Array:
    """Legendre coefficients of s p(s), column by column."""
    k = np.arange(len(series))[:, None]
    result = np.zeros((len(series) + 1, series.shape[1]))
    result[1:] += series * (k + 1) / (2 * k + 1)
    result[:-2] += (series * k / (2 * k + 1))[1:]
    return result


def _continuation(t: float, points: Array, values: Array, noise: float) -> tuple[Callable[[Array], Array], float]:
    """The density below t from samples above: exp of a combination of log t and powers of t, and the power of t."""
    if not (values > 0).all():
        raise CertificationError(
            "the density vanishes near an end of its support, but not on a whole panel; let the support end there"
        )
    logs, u = np.log(values), points / t
    target = max(noise, _TOLERANCE)

    def fit(powers: Sequence[float], fixed: float | None) -> tuple[float, float, Array]:
        columns = [np.ones_like(u), *(u**p for p in powers)]
        right = logs
        if fixed is None:
            columns.append(np.log(u))
        else:
            right = logs - fixed * np.log(u)
        found = np.linalg.lstsq(np.array(columns).T, right, rcond=None)[0]
        residual = float(np.abs(np.array(columns).T @ found - right).max())
        return residual, float(found[-1]) if fixed is None else fixed, found[: len(powers) + 1]

    guess = fit((1.0,), None)[1]
    best: tuple[float, float, Array, Sequence[float]] | None = None
    # powers that are sixths first: the fewer unknowns, the less of the noise is carried on
    tried: list[Sequence[float]] = [(1.0,), (1.0, 2.0), (0.5, 1.0, 1.5), (1 / 3, 2 / 3, 1.0)]
    for powers in tried:
        for fixed in (round(6 * guess) / 6, None):
            if fixed is None or abs(fixed - guess) < 0.05:
                residual, power, found = fit(powers, fixed)
                if best is None or residual < 0.5 * best[0]:
                    best = (residual, power, found, powers)
                if residual <= target:
                    break
        else:
            continue
        break
    assert best is not None
    _, power, found, powers = best

    def continued(points: Array) -> Array:
        ratio = points / t
        exponent = found[0] + power * np.log(ratio)
        for coefficient, p in zip(found[1:], powers, strict=True):
            exponent = exponent + coefficient * ratio**p
        return np.asarray(np.exp(exponent))

    return continued, power


def _intervals(support: Any) -> list[tuple[float, float]]:
    array = _checks.real_array("support", support)
    if array.shape == (2,):
        array = array[None, :]
    if array.ndim != 2 or array.shape[1] != 2 or array.shape[0] == 0:
        raise ParameterError(f"support must be a pair (low, high) or a list of such pairs; got {support!r}")
    if not (np.isfinite(array).all() and (np.diff(array, axis=1) > 0).all()):
        raise ParameterError(f"support must be finite intervals with low < high; got {support!r}")
    if (array[1:, 0] < array[:-1, 1]).any():
        raise ParameterError(f"support must be ascending intervals that do not overlap; got {support!r}")
    return [(float(low) + 0.0, float(high) + 0.0) for low, high in array]


def _atoms(atoms: Any) -> list[tuple[float, float]]:
    try:
        pairs = [(finite_real("atoms", place), _checks.positive_real("atoms", weight)) for place, weight in atoms]
    except (TypeError, ValueError) as error:
        if isinstance(error, ParameterError):
            raise
        raise ParameterError(f"atoms must be pairs (location, weight); got {atoms!r}") from error
    pairs.sort()
    if any(first[0] == second[0] for first, second in itertools.pairwise(pairs)):
        raise ParameterError(f"atoms must have different locations; got {atoms!r}")
    return pairs
