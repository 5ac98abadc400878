r"""R-, S-, η- and Voiculescu's transform of a law, at real and complex points, each value certified.

Everything rests on one inversion. For a probability measure ν with mean a and Cauchy transform
:math:`G(z) = \int \nu(dx)/(z-x)`, let K be the inverse of G with K(g) ~ 1/g at 0, and R(g) = K(g) - 1/g. The
R-transform of a law is that of ν = μ. For the S-transform ν is the size-biased law :math:`x\,\mu(dx)/m`, m the mean of
μ: with :math:`\psi = zG_\mu(z) - 1 = m\,G_\nu(z)` the equation ψ = u reads :math:`G_\nu(z) = u/m`. Three routes:

- Near 0, a power series. Lagrange's inversion on a circle around the spectrum gives the free cumulants of ν without
  loss of digits, :math:`\kappa_{n+1} = -\frac{1}{2\pi i n} \oint G(z)^{-n}\,dz`. With :math:`\int |\nu| = M` and ν
  within r of a, :math:`|(z-a)G(z) - 1| \le M/(t(t-1))` on |z - a| = tr; for the t that makes this 1/6, Rouché's theorem
  shows that K is analytic in :math:`|g| < 5/(6tr)`, a disk in which the series is used up to about a third of the
  radius.
- On the real axis, right of the spectrum G falls from G(top+) to 0, and Jensen's inequality brackets the root,
  :math:`a + 1/g \le K(g) \le \mathrm{top} + 1/g`; left of it likewise. As (1/G)' >= 1 there, the residual of 1/G bounds
  the error of K.
- At complex g, 1/G(z) = 1/g is followed by Newton's method along the ray from the disk of the series to g, with z in
  the half-plane opposite to g.

Sources: Voiculescu 1986, 1987; Bercovici and Voiculescu 1993 (domains); Speicher 1994 (cumulants).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gequiv import _checks
from gequiv._checks import Array, ComplexArray
from gequiv.errors import CertificationError, ParameterError
from gequiv.laws import Law

_NODES = 128
_TERMS = 44
_SERIES = 0.3  # |g| t r up to which the series is summed; its terms fall at least like 0.36^n
_EPS = float(np.finfo(np.float64).eps)
_RESIDUAL = 1e-12
_AGREEMENT = 1e-9  # of two routes to the variance, where the moments may come from quadrature


def r_transform(law: Law, g: Any) -> Any:
    r"""R-transform :math:`R(g) = K(g) - 1/g`, where :math:`G(K(g)) = g`, :math:`G(z) = \int \mu(dx)/(z-x)`.

    R(0) is the mean, :math:`R(g) = \sum_k \kappa_{k+1} g^k` with the free cumulants; additive under free convolution,
    and R(g) of the law of a·x is a·R(ag).

    Parameters
    ----------
    law : a law.
    g : numbers, lists or arrays of any shape, real or complex. Real values between G(bottom-) < 0 and G(top+) > 0, the
        range of G beyond both ends of the spectrum. Complex values: continued along the ray from 0 with K(g) in the
        half-plane opposite to g, as far as that goes.

    Returns
    -------
    R(g) in the shape of g; real for real g.

    Raises
    ------
    ParameterError : g is not finite, or real and outside that interval.
    CertificationError : a complex g lies beyond what can be reached along its ray.

    Source: Voiculescu 1986.

    Examples
    --------
    >>> from gequiv import MarchenkoPastur
    >>> round(float(r_transform(MarchenkoPastur(ratio=0.5, variance=2), 0.25)), 12)  # v/(1 - cvg)
    2.666666666667
    """
    values = _finite("g", g)
    return _as_given(g, values, _r(_checked(law), values, "g", reciprocal=False))


def voiculescu_transform(law: Law, w: Any) -> Any:
    r"""Voiculescu's transform :math:`\varphi(w) = R(1/w) = F^{-1}(w) - w`, where F = 1/G.

    Parameters
    ----------
    law : a law.
    w : numbers, lists or arrays of any shape, real or complex, other than 0. Real values at least 1/G(top+) or at most
        1/G(bottom-); complex ones as for `r_transform` at g = 1/w.

    Raises
    ------
    ParameterError : w is 0 or not finite, or real and between those two values.
    CertificationError : a complex w cannot be reached along its ray from infinity.

    Source: Bercovici and Voiculescu 1993.

    Examples
    --------
    >>> from gequiv import MarchenkoPastur
    >>> round(float(voiculescu_transform(MarchenkoPastur(ratio=0.5), 10)), 12)  # 1/(1 - c/w)
    1.052631578947
    """
    values = _finite("w", w)
    # below this modulus the reciprocal overflows
    if (np.abs(values) < np.finfo(np.float64).tiny).any():
        raise ParameterError(f"w must not be 0; got {w!r}")
    return _as_given(w, values, _r(_checked(law), 1 / values, "w", reciprocal=True))


def s_transform(law: Law, u: Any) -> Any:
    r"""S-transform :math:`S(u) = \frac{1+u}{u z}`, where :math:`zG(z) - 1 = u`.

    With :math:`\psi(s) = \int sx/(1-sx)\,\mu(dx)` and its inverse χ this is :math:`\chi(u)(1+u)/u`. S(0) is one over
    the mean; S(u) R(u S(u)) = 1; multiplicative under free multiplicative convolution; S of the law of a·x is S/a.

    Parameters
    ----------
    law : a law of mean other than 0.
    u : numbers, lists or arrays of any shape, real or complex. For a law on [0, ∞) with an atom of weight w at 0, real
        values above -1 + w and up to top·G(top+) - 1, and complex ones continued along the ray from 0, with z in the
        half-plane opposite to u. For any other law |u| below a bound around 0, which the message names.

    Returns
    -------
    S(u) in the shape of u; real for real u.

    Raises
    ------
    ParameterError : the law has mean 0; u is not finite, or real and outside the domain.
    CertificationError : a complex u lies beyond what can be reached along its ray.

    Source: Voiculescu 1987; Bercovici and Voiculescu 1993.

    Examples
    --------
    >>> from gequiv import MarchenkoPastur
    >>> round(float(s_transform(MarchenkoPastur(ratio=0.5, variance=2), 1)), 12)  # 1/(v(1 + cu))
    0.333333333333
    """
    values = _finite("u", u)
    return _as_given(u, values, _s(_checked(law), values.reshape(-1)))


def eta_transform(law: Law, z: Any) -> Any:
    r"""η-transform :math:`\eta(z) = \frac{\psi(z)}{1+\psi(z)} = 1 - \frac{z}{G(1/z)}`.

    Here :math:`\psi(z) = \int zx/(1-zx)\,\mu(dx) = G(1/z)/z - 1`; η(0) = 0. Its Taylor coefficients are the Boolean
    cumulants.

    Parameters
    ----------
    law : a law.
    z : numbers, lists or arrays of any shape, real or complex, with 1/z off the support and the atoms.

    Raises
    ------
    ParameterError : z is not finite, 1/z is a real point of the spectrum, or η has a pole at z (G(1/z) = 0, in a gap).
    CertificationError : the Cauchy transform could not be certified.

    Source: Speicher and Woroudi 1997.

    Examples
    --------
    >>> from gequiv import MarchenkoPastur
    >>> law = MarchenkoPastur(ratio=1)
    >>> float(eta_transform(law, 0)), round(float(eta_transform(law, -0.5)), 12)  # G(-2) = (1 - √3)/2
    (0.0, -0.366025403784)
    """
    values = _finite("z", z)
    return _as_given(z, values, _eta(_checked(law), values.reshape(-1)))


# -- from a law to the inversion ----------------------------------------------------------------------


def _r(law: Law, values: ComplexArray, name: str, *, reciprocal: bool) -> ComplexArray:
    g = values.reshape(-1)
    inverse = _plain(law)
    result = np.empty_like(g)

    def show(value: complex) -> str:
        return f"{name} = {1 / value if reciprocal else value:.6g}"

    near, right, left, elsewhere = inverse.routes(g)
    if near.any():
        result[near] = inverse.series(g[near])
    for side, chosen in ((1, right), (-1, left)):
        if not chosen.any():
            continue
        d, limit, good = inverse.beyond(side, g[chosen].real)
        if not good.all():
            bad, other = float(g[chosen].real[~good][0]), inverse.limit(-side)
            low, high = sorted((limit, other))
            if reciprocal:
                allowed = f"at most {1 / low:.9g} or at least {1 / high:.9g}, where 1/w is"
                bad = 1 / bad
            else:
                allowed = f"between {low:.9g} and {high:.9g},"
            raise ParameterError(
                f"{name} must, where it is real, be {allowed} a value of the Cauchy transform beyond the ends of the "
                f"spectrum of {law!r}; got {bad!r}"
            )
        edge = inverse.edge(side)
        result[chosen] = (edge + side * d) - 1 / g[chosen].real
    if elsewhere.any():
        result[elsewhere] = inverse.along_rays(g[elsewhere], show) - 1 / g[elsewhere]
    return result


def _s(law: Law, u: ComplexArray) -> ComplexArray:
    mean = law.mean()
    inverse = _size_biased(law, mean)
    g = u / mean
    result = np.empty_like(u)
    near, right, left, elsewhere = inverse.routes(g)
    if near.any():
        # (1+u)/(uz) with uz = m + u R(u/m): nothing cancels
        result[near] = (1 + u[near]) / (mean + u[near] * inverse.series(g[near]))
    if _bottom(law) < 0 and not near.all():
        bound = inverse.reach * abs(mean)
        raise ParameterError(
            f"u must have a modulus of at most {bound:.6g} for {law!r}, which charges negative numbers; "
            f"got {_shown(u[~near][0])}"
        )
    for side, chosen in ((1, right), (-1, left)):
        if not chosen.any():
            continue
        target = u[chosen].real
        d, limit, good = inverse.beyond(side, g[chosen].real)
        at_zero = sum(weight for location, weight in law.atoms() if location == 0)
        good = good if side > 0 else target > at_zero - 1
        if not good.all():
            high = mean * (limit if side > 0 else inverse.limit(1))
            raise ParameterError(
                f"u must, where it is real, lie above {at_zero - 1:.15g} and up to {high:.9g}, the range of "
                f"zG(z) - 1 off [0, top] of {law!r}; got {float(target[~good][0])!r}"
            )
        deep = target < -0.5
        if deep.any():  # there the small number is 1 + u = zG(z)
            d[deep] = _near_minus_one(law, target[deep], inverse.gap(-1))
        result[chosen] = (1 + target) / (target * (inverse.edge(side) + side * d))
    if elsewhere.any():
        z = inverse.along_rays(g[elsewhere], lambda value: f"u = {value * mean:.6g}")
        result[elsewhere] = (1 + u[elsewhere]) / (u[elsewhere] * z)
    return result


def _near_minus_one(law: Law, u: Array, gap: float) -> Array:
    """d = -z > 0 with zG(z) = 1 + u; by Jensen's inequality zG(z) >= d/(d + mean)."""

    def excess(d: Array, target: Array) -> Array:
        return np.asarray(-d * law.cauchy(-d + 0j).real - target)

    lost = excess(np.full_like(u, gap), 1 + u) >= 0
    if lost.any():
        raise CertificationError(
            f"the S-transform of {law!r} at u = {float(u[lost][0])!r} is too close to its pole to be resolved; take a "
            "larger u"
        )
    high = np.maximum(-law.mean() * (1 + u) / u * (1 + 1e-12), 2 * gap)
    return _root(excess, np.full_like(u, gap), high, 1 + u)


def _eta(law: Law, z: ComplexArray) -> ComplexArray:
    inverse = _plain(law)
    result = z * inverse.mean  # all there is where the reciprocal overflows
    rest = np.flatnonzero(np.abs(z) > np.finfo(np.float64).tiny)
    points = 1 / z[rest]
    real = points.imag == 0
    for low, high in [*law.support(), *((location, location) for location, _ in law.atoms())]:
        inside = real & (points.real >= low) & (points.real <= high)
        if inside.any():
            raise ParameterError(
                f"z must be such that 1/z lies off the spectrum: at z = {_shown(z[rest][inside][0])} it lies in "
                f"[{low!r}, {high!r}]; take z + 1j*eta with a small eta"
            )
    far = np.abs(points - inverse.mean) > 2 * inverse.circle  # the coefficients fall at least like 0.54^k
    if far.any():
        result[rest[far]] = z[rest[far]] * (inverse.mean + inverse.boolean_series(points[far] - inverse.mean))
    near = rest[~far]
    if near.size:
        value = law.cauchy(points[~far])
        if (value == 0).any():
            raise ParameterError(f"z must not be a pole of the η-transform; got {_shown(z[near][value == 0][0])}")
        result[near] = 1 - z[near] / value
    return result


def _bottom(law: Law) -> float:
    return float(min([a for a, _ in law.support()] + [location for location, _ in law.atoms()]))


def _top(law: Law) -> float:
    return float(max([b for _, b in law.support()] + [location for location, _ in law.atoms()]))


def _plain(law: Law) -> _Inverse:
    mean = law.mean()
    return _Inverse(repr(law), law.cauchy, mean, law.variance(), _bottom(law), _top(law), 1.0)


def _size_biased(law: Law, mean: float) -> _Inverse:
    second, bottom, top = float(law.moment(2)), _bottom(law), _top(law)
    size = math.sqrt(second)
    if not abs(mean) > 4 * _EPS * size:
        raise ParameterError(f"law must have a mean other than 0 for an S-transform; got {law!r}, of mean {mean!r}")

    def transform(z: ComplexArray) -> ComplexArray:
        value: ComplexArray = (z * law.cauchy(z) - 1) / mean
        return value

    centre = second / mean
    variance = float(law.moment(3)) / mean - centre**2
    mass = 1.0 if bottom >= 0 else size / abs(mean)  # ∫|x| <= √∫x²
    return _Inverse(repr(law), transform, centre, variance, min(bottom, 0.0), top, mass)


# -- the inversion ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Inverse:
    """The inverse of G for a measure of total 1: its transform, mean, variance, ends, and total variation."""

    label: str
    transform: Callable[[Any], Any]
    mean: float
    variance: float
    bottom: float
    top: float
    mass: float

    @property
    def radius(self) -> float:
        return max(self.top - self.mean, self.mean - self.bottom)

    @property
    def circle(self) -> float:
        """tr, the radius of the circle of the series: M/(t(t-1)) = 1/6."""
        return 0.5 * (1 + math.sqrt(1 + 24 * self.mass)) * self.radius

    @property
    def reach(self) -> float:
        """|g| up to which the series is summed."""
        return _SERIES / self.circle if self.radius > 0 else math.inf

    def routes(self, g: ComplexArray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Which points are near 0, real and right, real and left, and complex."""
        near, real = np.abs(g) <= self.reach, g.imag == 0
        return near, ~near & real & (g.real > 0), ~near & real & (g.real < 0), ~near & ~real

    def edge(self, side: int) -> float:
        return self.top if side > 0 else self.bottom

    # -- near 0 ------------------------------------------------------------------------------------

    def _on_circle(self) -> tuple[ComplexArray, ComplexArray]:
        """Points z - a of the upper half of the circle, and G there in units of 1/(z - a)."""
        angles = (np.arange(_NODES // 2) + 0.5) * (2 * math.pi / _NODES)
        offset = self.circle * np.exp(1j * angles)
        return offset, offset * self.transform(self.mean + offset)

    def series(self, g: ComplexArray) -> ComplexArray:
        """R(g) for |g| within reach."""
        if self.radius == 0:
            return np.full_like(g, self.mean)
        offset, ratio = self._on_circle()
        orders = np.arange(1, _TERMS + 1)
        # in units of the circle: κ_{n+1}/(tr)^{n+1} = -1/n times the mean of G^{-n} w over the circle, w = z/(tr)
        unit = offset / self.circle
        terms = (unit / ratio) ** orders[:, None] * unit
        cumulants = -terms.real.mean(axis=1) / orders
        self._agree(cumulants[0] * self.circle**2)
        total = np.polynomial.polynomial.polyval(g * self.circle, np.concatenate([[0.0], cumulants]))
        return np.asarray(self.mean + self.circle * total)

    def boolean_series(self, offset: ComplexArray) -> ComplexArray:
        """(z - a) - 1/G(z) at z - a = offset, far out."""
        if self.radius == 0:
            return np.zeros_like(offset)
        around, ratio = self._on_circle()
        unit = around / self.circle
        difference = unit - unit / ratio  # Σ β_k w^{1-k}, k >= 2
        orders = np.arange(1, _TERMS + 1)
        coefficients = (difference * unit ** orders[:, None]).real.mean(axis=1)
        self._agree(coefficients[0] * self.circle**2)
        total = np.polynomial.polynomial.polyval(self.circle / offset, np.concatenate([[0.0], coefficients]))
        return np.asarray(self.circle * total)

    def _agree(self, variance: float) -> None:
        """Both series begin with the variance; the moments know it by another route."""
        if not abs(variance - self.variance) <= _AGREEMENT * self.circle**2:
            raise CertificationError(
                f"the Cauchy transform of {self.label} has variance {variance!r} on a circle around the spectrum, but "
                f"its moments say {self.variance!r}; please report this law"
            )

    # -- real points beyond the ends ---------------------------------------------------------------

    def gap(self, side: int) -> float:
        """The smallest distance from an end at which G is evaluated."""
        edge = abs(self.edge(side))
        return max(2 * float(np.spacing(edge)), 1e-30 * self.radius)

    def limit(self, side: int) -> float:
        """G at an end of the spectrum, from outside; infinite where it diverges there."""
        gap = self.gap(side)
        points = self.edge(side) + side * gap * np.array([1.0, 4.0, 16.0])
        near, middle, far = (float(value) for value in self.transform(points + 0j).real)
        # a square root doubles its difference from one pair to the next, a logarithm keeps it, poles halve it or more
        if abs(near - middle) > max(0.75 * abs(middle - far), 1e-13 * abs(near)):
            return math.copysign(math.inf, side)
        # at a square root the limit is near + (near - middle), and as much more as the rounding of the edge makes
        # uncertain: K is flat there
        return near + 2 * (near - middle)

    def beyond(self, side: int, g: Array) -> tuple[Array, float, np.ndarray]:
        """Distances d > 0 from the end with G(edge + side d) = g, G at the end, and which g were within."""
        edge, size = self.edge(side), np.abs(g)
        limit = self.limit(side)

        def excess(d: Array, target: Array) -> Array:
            return np.asarray(side / self.transform(edge + side * d + 0j).real - target)

        low = np.maximum(self.gap(side), (1 / size - abs(self.mean - edge)) * (1 - 1e-14))
        high = np.maximum(low, (1 + 1e-12) / size)
        good = size <= abs(limit) * (1 + 4 * _EPS)
        d = low.copy()
        start = excess(low, 1 / size)
        inside = good & (start < 0)
        lost = good & ~inside & (edge == 0) & (low * size > 1e-14)
        if lost.any():
            raise CertificationError(
                f"the inverse of the Cauchy transform of {self.label} at {float(g[lost][0])!r} is too close to 0 to be "
                "resolved; take a smaller modulus"
            )
        if inside.any():
            d[inside] = _root(excess, low[inside], high[inside], 1 / size[inside])
        return d, limit, good

    # -- complex points ----------------------------------------------------------------------------

    def along_rays(self, g: ComplexArray, show: Callable[[complex], str]) -> ComplexArray:
        """K(g), followed along w = 1/g from the disk of the series."""
        above = np.where(g.imag < 0, g, g.conj())  # K is then in the upper half-plane
        target = 1 / above
        w: ComplexArray = np.asarray(target / np.abs(target) / self.reach, dtype=np.complex128)
        z: ComplexArray = w + self.series(1 / w)
        z, _, step, accepted = self._newton(z, w)
        lost = ~accepted
        slope, factor = np.ones_like(z), np.full(z.shape, 0.5)
        for _ in range(400):
            rest = np.flatnonzero((w != target) & ~lost)
            if rest.size == 0:
                break
            shorter = w[rest] * factor[rest]
            following = np.where(np.abs(shorter) > np.abs(target[rest]), shorter, target[rest])
            start = z[rest] + (following - w[rest]) * slope[rest]
            new, inverse_slope, last, good = self._newton(start, following)
            kept = rest[good]
            z[kept], w[kept], slope[kept], step[kept] = new[good], following[good], inverse_slope[good], last[good]
            factor[rest] = np.where(good, np.maximum(0.3, factor[rest] ** 1.5), np.sqrt(factor[rest]))
            lost[rest] = factor[rest] > 1 - 1e-5
        lost |= w != target
        if lost.any():
            first = int(np.argmax(lost))
            reached = 1 / w[first] if g[first].imag < 0 else 1 / w[first].conj()
            raise CertificationError(
                f"{show(complex(g[first]))} could not be reached along its ray: the inverse of the Cauchy transform of "
                f"{self.label} leaves the opposite half-plane; {show(complex(reached))} could: stop there or before"
            )
        return np.where(g.imag < 0, z, z.conj())

    def _newton(self, start: ComplexArray, w: ComplexArray) -> tuple[ComplexArray, ComplexArray, Array, np.ndarray]:
        """Solutions of 1/G(z) = w near start, 1/(1/G)', the last relative step, and whether all of it is certain."""
        z, good = start.copy(), start.imag > 0
        first, slope = np.full(z.shape, np.inf), np.ones_like(z)
        step = np.full(z.shape, np.inf)
        for iteration in range(8):
            active = np.flatnonzero(good & (step > 0))
            if active.size == 0:
                break
            distance = self._distance(z[active])
            h = 1e-3 * distance
            points = np.concatenate([z[active], z[active] + h, z[active] - h])
            value, right, left = np.split(1 / self.transform(points), 3)
            inverse_slope = 2 * h / (right - left)
            move = (value - w[active]) * inverse_slope
            size = np.abs(move)
            residual = np.abs(value - w[active]) / np.abs(w[active])
            if iteration == 0:
                first[active] = size / distance
            slope[active] = inverse_slope
            improving = size < 0.25 * step[active]
            settled = (size <= 8 * _EPS * np.abs(z[active])) | (residual <= 2 * _EPS)
            settled |= ~improving & (size <= _RESIDUAL * np.abs(z[active]))  # rounding is all that is left
            z[active] = np.where(improving, z[active] - move, z[active])
            step[active] = np.where(settled, 0.0, size)
            good[active] = (z[active].imag > 0) & (first[active] < 0.2) & (improving | settled)
        good &= step <= _RESIDUAL * np.abs(z)
        return z, slope, step, good

    def _distance(self, z: ComplexArray) -> Array:
        """From the hull of the spectrum: G is analytic that far around z."""
        beside = np.maximum(np.maximum(self.bottom - z.real, z.real - self.top), 0.0)
        return np.hypot(beside, z.imag)


def _root(excess: Callable[[Array, Array], Array], low: Array, high: Array, target: Array) -> Array:
    """The d in [low, high] at which an increasing function passes 0, by Chandrupatla's method.

    In √d, in which the functions are smooth at square-root edges. Certified by a change of sign over a few units in the
    last place; an end is returned where rounding has moved the root there.
    """
    a, b = np.sqrt(high), np.sqrt(low)
    fa, fb = excess(a * a, target), excess(b * b, target)
    tolerance = 4 * _EPS
    # the ends are roots themselves where rounding has them on the wrong side
    result = np.where(fb >= 0, b, a)
    active = np.flatnonzero((fa > 0) & (fb < 0))
    a, b, fa, fb = a[active], b[active], fa[active], fb[active]
    c, fc = a.copy(), fa.copy()
    share = np.full(a.shape, 0.5)
    for _ in range(200):
        if active.size == 0:
            return result * result
        middle = a + share * (b - a)
        value = excess(middle * middle, target[active])
        same = np.sign(value) == np.sign(fa)
        c, fc = np.where(same, a, b), np.where(same, fa, fb)
        b, fb = np.where(same, b, a), np.where(same, fb, fa)
        a, fa = middle, value
        best = np.where(np.abs(fa) < np.abs(fb), a, b)
        width = tolerance * np.abs(best) / np.maximum(np.abs(b - a), np.finfo(np.float64).tiny)
        done = (width > 0.5) | (fa == 0)
        result[active[done]] = np.where(fa == 0, a, best)[done]
        with np.errstate(all="ignore"):
            xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
            quadratic = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        usable = (phi * phi < xi) & ((1 - phi) ** 2 < 1 - xi) & np.isfinite(quadratic)
        share = np.clip(np.where(usable, quadratic, 0.5), width, 1 - width)
        keep = ~done
        active, a, b, c, fa, fb, fc, share = (x[keep] for x in (active, a, b, c, fa, fb, fc, share))
    raise CertificationError("the inverse of the Cauchy transform did not settle in 200 steps; please report this law")


# -- what comes in and goes out -----------------------------------------------------------------------


def _checked(law: Any) -> Law:
    if not isinstance(law, Law):
        raise ParameterError(f"law must be a gequiv Law; got {law!r}")
    if not (math.isfinite(_bottom(law)) and math.isfinite(_top(law))):
        raise ParameterError(f"law must have a bounded spectrum; got {law!r}")
    return law


def _finite(name: str, value: Any) -> ComplexArray:
    if np.asarray(value).dtype.kind not in "iufcO":
        raise ParameterError(f"{name} must be finite numbers; got {value!r}")
    array = _checks.complex_array(name, value)
    if not np.isfinite(array).all():
        raise ParameterError(f"{name} must be finite; got {_shown(array[~np.isfinite(array)].flat[0])}")
    return array


def _shown(value: complex) -> str:
    return repr(float(value.real)) if value.imag == 0 else repr(complex(value))


def _as_given(value: Any, given: ComplexArray, result: ComplexArray) -> Any:
    """Real for real input, a number for a number."""
    kind = np.asarray(value).dtype.kind
    answer = result if kind == "c" or given.imag.any() else result.real
    return answer.reshape(given.shape)[()]
