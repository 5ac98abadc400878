"""The Cauchy transform of a noisy Gaussian chain off its spectrum, certified point by point."""

from __future__ import annotations

from typing import Any

import numpy as np

from gequiv._checks import Array, ComplexArray
from gequiv.errors import CertificationError
from gequiv.laws import _polynomials as poly
from gequiv.laws._chain_algebra import EXTREME
from gequiv.laws._chain_curve import ChainCurve
from gequiv.laws._chain_expansions import Solutions

_ROWS = 4096
_DOUBT = 1e-14
_CLOSE = 1e-7  # of the distance from the support: there G is linear in Im z
_NEAR = 1e-4  # of the interval's width
_FAR = 1e-3  # of the t of the nearest edge: closer to t = 0 no factor of the curve cancels


def cauchy_transform(curve: ChainCurve, z: ComplexArray) -> ComplexArray:
    """G(z) in true units for z off the support and the atoms.

    For each z in the upper half-plane all roots of z(t) = z are found and refined; exactly one must pass the sheet
    test. On the real axis t is bracketed instead: dz/dt < 0 on one real interval of t for each gap of the spectrum.

    Raises
    ------
    CertificationError : none or several of the roots pass, also after continuation from above.
    """
    result = np.zeros_like(z)
    finite = np.isfinite(z)
    for begin in range(0, z.size, _ROWS):
        part = np.arange(begin, min(begin + _ROWS, z.size))
        real = part[finite[part] & (z[part].imag == 0)]
        rest = part[finite[part] & (z[part].imag != 0)]
        if real.size:
            scaled = z[real].astype(np.clongdouble) / curve.fine_scale
            result[real] = _on_axis(curve, scaled).real
        if rest.size:
            above = np.where(z[rest].imag > 0, z[rest], z[rest].conj())
            scaled = above.astype(np.clongdouble) / curve.fine_scale
            value = _above(curve, scaled)
            result[rest] = np.where(z[rest].imag > 0, value, value.conj())
    return result / float(curve.algebra.scale)


def _transform(curve: ChainCurve, z: ComplexArray, found: Solutions) -> ComplexArray:
    """G by the form that does not cancel."""
    y, ratio = found.y, found.ratio
    if curve.aspect == 1:  # zG^2 = t/P exactly, so that 1+y need not be formed where it vanishes
        root = np.sqrt(ratio / z)
        return np.where((root * (1 + y).conj() * z).real < 0, -root, root)
    return (1 + y) / z if curve.aspect > 1 else ratio / (1 + curve.c * y)


def _above(curve: ChainCurve, z: Any) -> ComplexArray:
    """G in the upper half-plane.

    A hair above the real axis and off the support, Im G is proportional to Im z and Re G is its value on the axis:
    there the root is real but for its last digits, and the sheet test is made at a point farther up.
    """
    distance = np.min(np.abs(z.real[:, None] - curve.expansions.locations), axis=1)
    inside = (np.searchsorted(curve.locations, z.real.astype(np.float64)) % 2).astype(bool)
    close = ~inside & (z.imag < _CLOSE * distance)
    result = np.empty(z.shape, dtype=np.complex128)
    result[~close] = _by_roots(curve, z[~close])
    if close.any():
        x, height = z.real[close], _CLOSE * distance[close]
        slope = _by_roots(curve, x + 1j * height).imag / height.astype(np.float64)
        result[close] = _on_axis(curve, x + 0j).real + 1j * slope * z.imag[close].astype(np.float64)
    return result


def _by_roots(curve: ChainCurve, z: Any) -> ComplexArray:
    """G in the upper half-plane from all roots of z(t) = z.

    The roots come from a companion matrix: that of the curve itself, then, where it fails, that of the expansion about
    the nearest edge, which tells roots apart that lie close together there; last, by continuation from above.
    """
    coarse = z.astype(np.complex128)
    found, certain = _choose(curve, z, *_global_roots(curve, coarse))
    lost = np.flatnonzero(~certain)
    if lost.size:
        edge = np.argmin(np.abs(z[lost, None] - curve.expansions.locations), axis=1)
        offset = (z[lost] - curve.expansions.locations[edge]).astype(np.complex128)
        roots = curve.expansions.local_roots(edge, offset).astype(np.clongdouble)
        others, certain[lost] = _choose(curve, z[lost], np.repeat(edge[:, None], roots.shape[1], axis=1), roots)
        found.put(lost, others)
    for k in np.flatnonzero(~certain):
        found.put(np.array([k]), _descend(curve, z[k]))
    _last_digits(curve, found, z)
    return _transform(curve, coarse, found)


def _global_roots(curve: ChainCurve, z: ComplexArray) -> tuple[np.ndarray, Any]:
    roots = curve.all_roots(z)
    t = np.where(np.isfinite(roots), roots, 1.0)  # anything that fails the sheet test
    t = _polish(curve, np.repeat(z[:, None], roots.shape[1], axis=1), t)
    t = np.where(np.isfinite(t), t, 1.0)
    edge = curve.expansions.nearest(t)
    centre = curve.expansions.centres[edge]
    return edge, (t - centre) / np.abs(centre)


def _choose(curve: ChainCurve, z: Any, edge: np.ndarray, delta: Any) -> tuple[Solutions, np.ndarray]:
    """Of several candidates a row the one that passes the sheet test, and whether it is the only one."""
    shape = delta.shape
    edge, target = edge.reshape(-1), np.repeat(z, shape[1])
    start = np.where(np.isfinite(delta), delta, 1.0).reshape(-1)
    found = curve.expansions.refine(edge, target - curve.expansions.locations[edge], start, steps=5, trust=0.5)
    good = (found.physical & (found.step < 1e-9)).reshape(shape)
    first = np.argmax(good, axis=1)
    best = found.take(np.arange(shape[0]) * shape[1] + first)
    # one root may have been found twice
    others = good & (np.abs(found.y.reshape(shape) - best.y[:, None]) > 1e-9 * np.abs(best.y.imag)[:, None])
    return best, np.asarray(good.any(axis=1) & ~others.any(axis=1))


def _last_digits(curve: ChainCurve, found: Solutions, z: Any) -> None:
    """In place: far out by plain arithmetic, and in multiprecision where rounding would show."""
    centre = np.abs(curve.expansions.centres[found.edge].astype(np.float64))
    far = np.flatnonzero(np.abs(found.t) < _FAR * centre)
    t = _polish(curve, z[far].astype(np.complex128), found.t[far])
    found.t[far], found.y[far], found.ratio[far], found.error[far] = t, curve.excess(t), curve.ratio(t), 0
    scale = np.minimum(np.abs(1 + found.y), np.abs(1 + curve.c * found.y) / curve.c)
    doubtful = np.flatnonzero(found.error > _DOUBT * scale)
    curve.expansions.exactly(found, doubtful, z - curve.expansions.locations[found.edge])


def _refine(curve: ChainCurve, z: Any, t: ComplexArray) -> Solutions:
    """Solutions near t, about the nearest edges."""
    edge = curve.expansions.nearest(t)
    centre = curve.expansions.centres[edge]
    delta = (t - centre) / np.abs(centre)
    return curve.expansions.refine(edge, z - curve.expansions.locations[edge], delta, steps=4, trust=0.5)


def _polish(curve: ChainCurve, z: ComplexArray, t: ComplexArray) -> ComplexArray:
    one_plus_y, one_plus_cy, bottom = curve.factors
    with np.errstate(all="ignore"):  # roots at infinity run off; the sheet test drops them
        for _ in range(4):
            a, da = poly.horner_with_derivative(one_plus_y, t)
            b, db = poly.horner_with_derivative(one_plus_cy, t)
            d, dd = poly.horner_with_derivative(bottom, t)
            t = t - (a * b - z * d) / (da * b + a * db - z * dd)
    return t


def _descend(curve: ChainCurve, z: Any) -> Solutions:
    """Continuation from large Im z, where t is about 1/z, down to z; raises when it cannot be certified."""
    height = 4 * max(abs(z), float(curve.locations[-1]))
    point = np.array([np.clongdouble(complex(z.real, height))])
    roots = curve.all_roots(point.astype(np.complex128))[0]
    t = roots[np.argmin(np.abs(roots * complex(point[0]) - 1))]
    target, factor = z.imag, 0.5
    for _ in range(4000):
        following = np.array([z.real + 1j * max(target, point[0].imag * np.longdouble(factor))])
        new = _refine(curve, following, np.array([t]))
        if new.physical[0] and new.step[0] < 1e-9 and abs(new.t[0] - t) < 0.3 * abs(t):
            if following[0].imag <= target:
                return new
            t, point, factor = new.t[0], following, max(0.05, factor**1.5)
        else:
            factor = factor**0.5
            if factor > 1 - 1e-6:
                break
    raise CertificationError(
        f"the Cauchy transform at z = {complex(z)!r} times the mean could not be certified; take a larger |Im z|"
    )


def _on_axis(curve: ChainCurve, z: Any) -> ComplexArray:
    """G at real points off the support, t from the edge's own expansion where one is near, else by bisection."""
    x = z.real.astype(np.float64)
    result = np.empty(z.shape, dtype=np.complex128)
    edge = np.argmin(np.abs(z.real[:, None] - curve.expansions.locations), axis=1)
    offset = z.real - curve.expansions.locations[edge]
    near = np.abs(offset) < _NEAR * np.abs(curve.widths[edge])
    for chosen, solve in ((near, _from_the_edge), (~near, _from_the_bracket)):
        if chosen.any():
            found = solve(curve, z[chosen], edge[chosen])
            if not (found.step < 1e-9).all():
                where = float(x[chosen][~(found.step < 1e-9)][0])
                raise CertificationError(f"the Cauchy transform at z = {where!r} times the mean could not be certified")
            result[chosen] = _transform(curve, x[chosen].astype(np.complex128), found)
    return result


def _from_the_edge(curve: ChainCurve, z: Any, edge: np.ndarray) -> Solutions:
    expansions = curve.expansions
    offset = z - expansions.locations[edge]
    size = np.sqrt(np.abs(offset * (expansions.bottoms[edge, 0] / expansions.quotients[edge, 0])))
    # z falls with t: below a lower edge t is above the edge's t, above an upper edge below it
    delta = np.where(edge % 2 == 0, size, -size).astype(np.clongdouble)
    found = expansions.refine(edge, offset, delta, steps=8, trust=0.5)
    _last_digits(curve, found, z)
    return found


def _from_the_bracket(curve: ChainCurve, z: Any, edge: np.ndarray) -> Solutions:
    points = curve.expansions.centres.astype(np.float64)
    lows = [points[0], *(points[k + 1] for k in range(1, len(points) - 1, 2)), 0.0]
    highs = [0.0, *(points[k] for k in range(1, len(points) - 1, 2)), points[-1]]
    x = z.real.astype(np.float64)
    ends = np.array([-np.inf, *curve.locations, np.inf])
    number = (np.searchsorted(ends, x) - 1) // 2
    t = _bisect(curve, x, np.array(lows)[number], np.array(highs)[number])
    found = _refine(curve, z, t.astype(np.complex128))
    _last_digits(curve, found, z)
    return found


def _bisect(curve: ChainCurve, x: Array, low: Array, high: Array) -> Array:
    """The t in (low, high) with z(t) = x, where z falls from one end to the other."""
    one_plus_y, one_plus_cy, bottom = curve.factors
    t = 0.5 * (low + high)
    for iteration in range(200):
        a, da = poly.horner_with_derivative(one_plus_y, t)
        b, db = poly.horner_with_derivative(one_plus_cy, t)
        d, dd = poly.horner_with_derivative(bottom, t)
        value, slope = a * b - x * d, da * b + a * db - x * dd
        too_large = value / d > 0  # z(t) > x: t must grow
        low, high = np.where(too_large, t, low), np.where(too_large, high, t)
        with np.errstate(all="ignore"):
            new = t - value / slope
        new = np.where((new > low) & (new < high) & (iteration % 3 != 2), new, 0.5 * (low + high))
        moved = np.abs(new - t)
        t = new
        if np.all((moved <= 4e-16 * np.abs(t)) | (high - low <= 4e-16 * np.abs(t))):
            return t
    raise CertificationError(f"the Cauchy transform at the real points {x!r} did not settle: {EXTREME}")
