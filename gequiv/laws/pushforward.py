"""Laws of images of a spectrum: roots of both signs, squares, inverses."""

from __future__ import annotations

import abc
import itertools
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.polynomial import legendre

from gequiv._checks import Array, ComplexArray
from gequiv.errors import CertificationError, ParameterError
from gequiv.laws.base import Law, finite_moment, mirrored, moment_order
from gequiv.laws.semicircle import solve_increasing

_ORDER = 20  # nodes of a panel
_DEGREES = np.arange(_ORDER)
_NODES = legendre.leggauss(_ORDER)[0]
_VALUES = legendre.legvander(_NODES, _ORDER - 1)
_WEIGHTS = 1 / np.sum((_DEGREES + 0.5) * _VALUES**2, axis=1)
_TO_SERIES = ((_DEGREES + 0.5) * _VALUES * _WEIGHTS[:, None]).T
_GRADING = 0.5 ** np.arange(1, 44)  # of panels towards a point where the density is not smooth
_EPS = float(np.finfo(float).eps)
_LIMIT = 1e-11  # by which two finenesses may differ, relative to the whole
_HALVINGS = 4
_TERMS, _CIRCLE = 64, 64  # of the series about 0, and points on half the circle that it is read from
_NEAR = 0.25  # it is used within this share of the distance to the spectrum


class _Image(Law):
    """A law whose density and mass come from another's; what the images below share.

    A subclass calls `_prepare` and supplies the mass, a candidate for the quantile and the transform for Im z >= 0.
    """

    _inner: Law

    def _prepare(self, inner: Law, intervals: list[tuple[float, float]], ends: Array, images: Array) -> None:
        """Keep the intervals, the images of all edges (also inside an interval), and the atoms with their images."""
        self._inner = inner
        places, weights = _columns(inner.atoms())
        self._inner_places, self._inner_sums = places, np.append(0.0, np.cumsum(weights))
        self._intervals, self._ends = intervals, np.unique(ends)
        self._places, where = np.unique(images[0], return_inverse=True)
        self._weights = np.bincount(where, images[1], minlength=self._places.size).astype(np.float64)
        self._sums = np.append(0.0, np.cumsum(self._weights))
        self._first = np.append(0.0, np.cumsum(self._weights * self._places))

    # -- what a subclass supplies -------------------------------------------------------------------

    @abc.abstractmethod
    def _mass(self, x: Array) -> Array:
        """Distribution function of the part with a density."""

    @abc.abstractmethod
    def _candidate(self, q: Array) -> Array:
        """Quantiles, possibly at the wrong end of a gap or next to an atom instead of on it."""

    @abc.abstractmethod
    def _direct(self, z: ComplexArray) -> ComplexArray:
        """G at finite points with Im z >= 0."""

    @abc.abstractmethod
    def _direct_and_slope(self, z: ComplexArray) -> tuple[ComplexArray, ComplexArray]: ...

    _cancels = False
    """Whether the formula for G loses digits near 0 where 0 lies off the spectrum."""

    # -- the contract ------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inner!r})"

    def support(self, dps: int | None = None) -> list[tuple[Any, Any]]:
        """The images of the intervals, ascending; those that meet are joined."""
        return list(self._intervals) if dps is None else self._precise(dps).support()

    def atoms(self) -> list[tuple[float, float]]:
        """The images of the atoms, ascending; those that meet are joined."""
        return list(zip(self._places.tolist(), self._weights.tolist(), strict=True))

    def _inner_mass(self, x: Array) -> Array:
        """Distribution function of the inner law without its atoms."""
        if not self._intervals:
            return np.zeros_like(x)
        below = self._inner_sums[np.searchsorted(self._inner_places, x, side="right")]
        mass: Array = np.maximum(self._inner._cdf(x) - below, 0.0)
        return mass

    @cached_property
    def _whole(self) -> float:
        """Mass of the part with a density."""
        return float(self._inner_mass(np.array([math.inf]))[0])

    def _cdf(self, x: Array) -> Array:
        atoms = self._sums[np.searchsorted(self._places, x, side="right")]
        mass: Array = np.clip(self._mass(x) + atoms, 0.0, 1.0)
        return mass

    def _ppf(self, q: Array) -> Array:
        starts, ends, levels, _ = self._pieces
        at = np.searchsorted(levels[:-1], q)
        result = np.clip(self._candidate(q), starts[at], ends[at]) if self._intervals else starts[at]
        return np.where(q <= 0, starts[0], np.where(q >= 1, ends[-1], result))

    @cached_property
    def _pieces(self) -> tuple[Array, Array, Array, Array]:
        """Atoms, and intervals cut at the atoms: starts, ends, the distribution function at the ends, the atoms below.

        Up to the end of an interval an atom there is not counted.
        """
        pieces = [(place, place) for place in self._places.tolist()]
        for low, high in self._intervals:
            inside = self._places[(self._places > low) & (self._places < high)].tolist()
            pieces += itertools.pairwise([low, *inside, high])
        starts, ends = np.array(sorted(pieces)).T
        point = starts == ends
        below = self._sums[np.searchsorted(self._places, ends)]
        through = self._sums[np.searchsorted(self._places, ends, side="right")]
        levels = np.clip(self._mass(ends) + np.where(point, through, below), 0.0, 1.0)
        return starts, ends, np.maximum.accumulate(levels), below

    def _partial_mean(self, x: Array) -> Array:
        result = self._first[np.searchsorted(self._places, x, side="right")]
        if not self._intervals:
            return result
        point = np.clip(x, self._intervals[0][0], self._intervals[-1][1])
        mass, integral = self._mass(point), self._tails(point)
        # ∫ t dC = y C(y) - ∫ C, beyond 0 with the mass above instead: no cancellation
        beyond = integral - 2 * self._tails(np.zeros(1)) - point * (self._whole - mass)
        continuous = np.where(point <= 0, point * mass - integral, beyond)
        return result + np.where(x <= self._intervals[0][0], 0.0, continuous)

    @cached_property
    def _tails(self) -> _Integral:
        """The integral of the mass below each point up to 0, of the mass above it from there."""

        def tail(x: Array) -> Array:
            mass = self._mass(x)
            return np.where(x < 0, mass, self._whole - mass)

        corners = np.unique(np.append(self._ends, 0.0))
        breaks = self._breakpoints()
        cuts = [corners, breaks[(breaks > corners[0]) & (breaks < corners[-1])]]
        for low, high in itertools.pairwise(corners.tolist()):
            if any(a <= low and high <= b for a, b in self._intervals):
                cuts.append(_graded(low, high))
        return _Integral(tail, np.unique(np.concatenate(cuts)), repr(self))

    def _cauchy(self, z: ComplexArray) -> ComplexArray:
        return self._transform(z, 1, lambda upper: (self._direct(upper),))[0]

    def _cauchy_and_slope(self, z: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        value, slope = self._transform(z, 2, self._direct_and_slope)
        return value, slope

    def _transform(
        self, z: ComplexArray, count: int, direct: Callable[[ComplexArray], tuple[ComplexArray, ...]]
    ) -> list[ComplexArray]:
        """G, or G and its slope, from formulas for the upper half-plane; by the series about 0 near there."""
        results = [np.zeros_like(z) for _ in range(count)]
        upper = np.where(z.imag < 0, z.conj(), z)
        near = np.zeros(z.shape, dtype=bool)
        if self._cancels:
            distance = float(self._distance(np.zeros(1, dtype=np.complex128))[0])
            near = np.abs(z) < _NEAR * distance
            if near.any():
                radius, series = self._about_zero
                t = upper[near] / radius
                results[0][near] = np.polynomial.polynomial.polyval(t, series)
                if count > 1:
                    results[1][near] = np.polynomial.polynomial.polyval(t, series[1:] * np.arange(1, _TERMS)) / radius
        rest = np.isfinite(z) & ~near
        if rest.any():
            for result, part in zip(results, direct(upper[rest]), strict=True):
                result[rest] = part
        return [np.where(z.imag < 0, result.conj(), result) for result in results]

    @cached_property
    def _about_zero(self) -> tuple[float, Array]:
        """Radius of a circle about 0 off the spectrum, and the series of G in units of it."""
        radius = 0.5 * float(self._distance(np.zeros(1, dtype=np.complex128))[0])
        return radius, np.array([_coefficient(self._direct, radius, k, _CIRCLE) for k in range(_TERMS)])


class SymmetricRoot(_Image):
    r"""Law of :math:`\pm\sqrt x`, x from a law on [0, ∞) and the sign by a fair coin.

    Density :math:`|s|\,\rho(s^2)`, Cauchy transform :math:`G(z) = z\,G_{sq}(z^2)`, even moments those of the squares,
    odd ones 0. It is the law of :math:`\begin{pmatrix} 0 & R \\ R^T & 0 \end{pmatrix}` when :math:`R R^T` and
    :math:`R^T R` have the law of the squares. An atom of the squares at 0 stays; any other splits in halves.

    Parameters
    ----------
    squares : the law of the squares.

    Raises
    ------
    ParameterError : squares is not a law, or charges negative numbers; its edges have roots that are equal floats.

    Examples
    --------
    >>> from gequiv.laws.marchenko_pastur import MarchenkoPastur
    >>> law = SymmetricRoot(MarchenkoPastur(ratio=1, variance=4))  # the semicircle law of variance 4
    >>> law.support(), law.variance(), float(law.cdf(0))
    ([(-4.0, 4.0)], 4.0, 0.5)
    """

    def __init__(self, squares: Law) -> None:
        _check_law("squares", squares)
        ends, (places, weights) = _edges(squares), _columns(squares.atoms())
        lowest = min([*ends.tolist(), *places.tolist()])
        if lowest < 0:
            raise ParameterError(f"squares must be a law on [0, inf); got {squares!r}, which reaches {lowest!r}")
        self.squares = squares
        roots = np.sqrt(ends)
        _check_edges("squares", squares, ends, roots)
        self._follow = _Follow(np.append(roots, np.sqrt(places)), np.append(ends, places))
        right = [(math.sqrt(a), math.sqrt(b)) for a, b in squares.support()]
        intervals = [(-b, -a) for a, b in reversed(right)] + right
        if right and right[0][0] == 0:
            half = len(right)
            intervals[half - 1 : half + 1] = [(-right[0][1], right[0][1])]
        both = np.append(0.0 - np.sqrt(places), np.sqrt(places)), np.append(0.5 * weights, 0.5 * weights)
        self._prepare(squares, intervals, np.append(-roots, roots), np.array(both))

    def moment(self, k: int, dps: int | None = None) -> Any:
        r""":math:`\int x^{k/2}` of the squares for even k, 0 for odd k.

        Raises
        ------
        ParameterError : k is not an integer >= 0, or the moment exceeds the floats.
        """
        k = moment_order(k)
        if dps is not None:
            return self._precise(dps).moment(k)
        return 0.0 if k % 2 else float(self.squares.moment(k // 2))

    def _square(self, x: Array) -> Array:
        with np.errstate(over="ignore", under="ignore"):
            return self._follow(np.abs(x), x * x)

    def _pdf(self, x: Array) -> Array:
        result = np.zeros_like(x)
        square = self._square(x)
        density = self.squares._pdf(square)
        inside = (density > 0) & (x != 0)
        result[inside] = np.abs(x[inside]) * density[inside]
        middle = x == 0
        if middle.any() and np.isinf(density[middle]).any():
            result[middle] = _limit(lambda s: s * self.squares._pdf(s * s), float(self._ends[-1]))
        return result

    def _mass(self, x: Array) -> Array:
        return 0.5 * (self._whole + np.copysign(1.0, x) * self._inner_mass(self._square(x)))

    def _candidate(self, q: Array) -> Array:
        root = np.sqrt(self.squares._ppf(np.abs(2 * q - 1)))
        return np.where(q <= 0.5, -root, root)

    def _pull_back(self, z: ComplexArray) -> ComplexArray:
        """z², on the same side of edges and atoms; the zero of a real one has a plus sign."""
        with np.errstate(all="ignore"):
            w = np.asarray(z * z + 0.0)
        w.imag[z.imag == 0] = 0.0
        real = z.imag == 0
        w.real[real] = self._square(z.real[real])
        return w

    def _direct(self, z: ComplexArray) -> ComplexArray:
        w = self._pull_back(z)
        with np.errstate(all="ignore"):
            return np.where(np.isfinite(w), z * self.squares._cauchy(w), 1 / z)

    def _direct_and_slope(self, z: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        w = self._pull_back(z)
        g, slope = mirrored(self.squares._cauchy_and_slope, w)
        with np.errstate(all="ignore"):
            far = ~np.isfinite(w)
            return np.where(far, 1 / z, z * g), np.where(far, -1 / z / z, g + 2 * w * slope)

    def _breakpoints(self) -> Array:
        roots = np.sqrt(np.maximum(self.squares._breakpoints(), 0.0))
        if (self._ends == 0).any():  # there the density may behave like any power
            roots = np.append(roots, _graded(0.0, float(self._ends[self._ends > 0][0])))
        return np.unique(np.concatenate([-roots, roots, [0.0]]))

    def _matrix(self, n: int, rng: np.random.Generator) -> Array:
        if n % 2:
            return super()._matrix(n, rng)
        values, vectors = np.linalg.eigh(self.squares._matrix(n // 2, rng))
        values[values < n * _EPS * values[-1]] = 0.0  # rounding would grow in the root
        root = (vectors * np.sqrt(values)) @ vectors.T
        root = 0.5 * (root + root.T)
        zero = np.zeros_like(root)
        return np.block([[zero, root], [root, zero]])


class Square(_Image):
    r"""Law of :math:`x^2` when x has a given law, of either sign.

    Density :math:`(\rho(\sqrt y) + \rho(-\sqrt y))/(2\sqrt y)`, distribution function
    :math:`F(\sqrt y) - F((-\sqrt y)-)`, Cauchy transform :math:`(G(\sqrt z) - G(-\sqrt z))/(2\sqrt z)`, moment of order
    k that of order 2k of the given law.

    Parameters
    ----------
    law : any law.

    Raises
    ------
    ParameterError : law is not a law; the squares of its edges leave the floats or become equal in them.

    Examples
    --------
    >>> from gequiv.laws.semicircle import Semicircle
    >>> law = Square(Semicircle(variance=4))  # the Marchenko–Pastur law of ratio 1 and variance 4
    >>> law.support(), law.mean(), law.moment(2)
    ([(0.0, 16.0)], 4.0, 32.0)
    """

    _cancels = True

    def __init__(self, law: Law) -> None:
        _check_law("law", law)
        self.law = law
        ends, (places, weights) = _edges(law), _columns(law.atoms())
        with np.errstate(all="ignore"):
            squares, charged = ends**2, places**2
        _check_edges("law", law, np.abs(ends), squares)
        if not np.isfinite(charged).all():
            raise ParameterError(f"law must have atoms whose squares are floats; got {law!r}")
        self._follow = _Follow(np.append(squares, charged), np.abs(np.append(ends, places)))
        intervals: list[tuple[float, float]] = []
        for low, high in sorted(_folded(a, b) for a, b in law.support()):
            if intervals and low <= intervals[-1][1]:
                intervals[-1] = intervals[-1][0], max(high, intervals[-1][1])
            else:
                intervals.append((low, high))
        starts = [low for low, _ in intervals]
        self._prepare(law, intervals, np.append(squares, starts), np.array([charged, weights]))
        self._sign = 1 if min([*ends, *places]) >= 0 else -1 if max([*ends, *places]) <= 0 else 0

    def moment(self, k: int, dps: int | None = None) -> Any:
        r"""The moment of order 2k of the given law.

        Raises
        ------
        ParameterError : k is not an integer >= 0, or the moment exceeds the floats.
        """
        k = moment_order(k)
        if dps is not None:
            return self._precise(dps).moment(k)
        return float(self.law.moment(2 * k))

    def _root(self, y: Array) -> Array:
        return self._follow(y, np.sqrt(np.maximum(y, 0.0)))

    def _both(self, s: Array) -> Array:
        density: Array = self.law._pdf(s) + self.law._pdf(-s)
        return density

    def _pdf(self, x: Array) -> Array:
        result = np.zeros_like(x)
        s = self._root(x)
        density = self._both(s)
        inside = (x > 0) & (density > 0)
        result[inside] = density[inside] / (2 * s[inside])
        if self._intervals and self._intervals[0][0] == 0:
            result[x == 0] = _limit(lambda t: self._both(t) / (2 * t), math.sqrt(self._intervals[0][1]))
        return result

    def _mass(self, x: Array) -> Array:
        s = self._root(x)
        return np.where(x <= 0, 0.0, self._inner_mass(s) - self._inner_mass(-s))

    def _candidate(self, q: Array) -> Array:
        if self._sign:
            root: Array = self.law._ppf(q if self._sign > 0 else 1 - q)
            return root**2
        starts, ends, levels, below = self._pieces
        at = np.searchsorted(levels[:-1], q)
        result = starts[at]
        moving = np.nonzero(starts[at] < ends[at])[0]
        at = at[moving]
        low, width = np.sqrt(starts[at]), np.sqrt(ends[at]) - np.sqrt(starts[at])
        target = q[moving] - below[at]

        # s = low + width sin²(φ/2) takes out square roots at both ends
        def excess(phi: Array, which: np.ndarray) -> tuple[Array, Array]:
            s = low[which] + width[which] * np.sin(0.5 * phi) ** 2
            mass = self._inner_mass(s) - self._inner_mass(-s)
            return mass - target[which], self._both(s) * 0.5 * width[which] * np.sin(phi)

        phi = solve_increasing(excess, moving.size, 0.0, math.pi)
        result[moving] = (low + width * np.sin(0.5 * phi) ** 2) ** 2
        return result

    def _pull_back(self, z: ComplexArray) -> ComplexArray:
        r = np.asarray(np.sqrt(z))
        positive = (z.imag == 0) & (z.real > 0)
        r[positive] = self._root(z.real[positive])
        return r

    def _direct(self, z: ComplexArray) -> ComplexArray:
        r = self._pull_back(z)
        right, left = self.law._cauchy(r), self.law._cauchy(-r.conj()).conj()
        with np.errstate(all="ignore"):
            return self._on_axis(z, r, right, (right - left) / (2 * r))

    @staticmethod
    def _on_axis(z: ComplexArray, r: ComplexArray, right: ComplexArray, value: ComplexArray) -> ComplexArray:
        """The value, real for z < 0."""
        return np.where((z.imag == 0) & (z.real < 0), right.imag / np.abs(r), value)

    def _direct_and_slope(self, z: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        r = self._pull_back(z)
        right, right_slope = self.law._cauchy_and_slope(r)
        left, left_slope = (part.conj() for part in self.law._cauchy_and_slope(-r.conj()))
        with np.errstate(all="ignore"):
            value = self._on_axis(z, r, right, (right - left) / (2 * r))
            slope = (0.5 * (right_slope + left_slope) - value) / (2 * z)
        return value, slope

    def _breakpoints(self) -> Array:
        own = self.law._breakpoints() ** 2
        graded = []
        if self._ends.size > 2 * len(self._intervals):  # an edge of one sign inside an interval of the other
            graded = [_graded(low, high) for low, high in itertools.pairwise(self._ends.tolist())]
        return np.unique(np.concatenate([own, self._ends, *graded]))

    def _matrix(self, n: int, rng: np.random.Generator) -> Array:
        matrix = self.law._matrix(n, rng)
        square: Array = matrix @ matrix
        return 0.5 * (square + square.T)


class Inverse(_Image):
    r"""Law of 1/x when x has a given law whose spectrum keeps away from 0: it lies in a gap, or outside.

    Density :math:`\rho(1/y)/y^2`, Cauchy transform :math:`G(z) = 1/z - G_x(1/z)/z^2`, moments
    :math:`\int x^{-k}\mu(dx) = -\frac{1}{2\pi i}\oint G_x(z)\,z^{-k}\,dz` around 0.

    Parameters
    ----------
    law : the law of x.

    Raises
    ------
    ParameterError : law is not a law; 0 lies in its support or is an atom; the inverses of its edges leave the floats
        or become equal in them.

    Examples
    --------
    >>> from gequiv.laws.marchenko_pastur import MarchenkoPastur
    >>> law = Inverse(MarchenkoPastur(ratio=0.25))
    >>> round(law.mean(), 12)  # 1/(1 - c)
    1.333333333333
    """

    _cancels = True

    def __init__(self, law: Law) -> None:
        _check_law("law", law)
        self.law = law
        ends, (places, weights) = _edges(law), _columns(law.atoms())
        if (places == 0).any():
            raise ParameterError(f"law must not charge 0, where 1/x has no value; {law!r} has an atom there")
        for low, high in law.support():
            if low <= 0 <= high:
                raise ParameterError(
                    f"law must keep away from 0, where 1/x has no value; the support of {law!r} has [{low!r}, {high!r}]"
                )
        with np.errstate(all="ignore"):
            inverses, images = 1 / ends, 1 / places
        _check_edges("law", law, ends, inverses)
        if not np.isfinite(images).all():
            raise ParameterError(f"law must have atoms whose inverses are floats; got {law!r}")
        everything, mapped = np.append(ends, places), np.append(inverses, images)
        negative = everything < 0
        self._follow_left = _Follow(-mapped[negative], everything[negative])
        self._follow_right = _Follow(mapped[~negative], -everything[~negative])
        self._highest_negative = float(max(everything[negative], default=-math.inf))
        self._lowest_positive = float(min(everything[~negative], default=math.inf))
        self._nearest = min(-self._highest_negative, self._lowest_positive)
        intervals = sorted((1 / b, 1 / a) for a, b in law.support())
        self._prepare(law, intervals, inverses, np.array([images, weights]))
        zero = np.zeros(1)
        self._negative, self._below = float(law._cdf(zero)[0]), float(self._inner_mass(zero)[0])

    def moment(self, k: int, dps: int | None = None) -> Any:
        r""":math:`\int x^{-k}` of the given law: by the trapezoidal rule on a circle about 0, or from its atoms.

        Raises
        ------
        ParameterError : k is not an integer >= 0, or the moment exceeds the floats.
        CertificationError : two numbers of points on the circle disagree.
        """
        k = moment_order(k)
        if dps is not None:
            return self._precise(dps).moment(k)
        if k == 0:
            return 1.0
        try:
            if not self._intervals:
                return finite_moment(k, math.fsum(weight * place**k for place, weight in self.atoms()))
            # the higher the order, the nearer to the spectrum, lest the rounding of G outweigh the coefficient
            radius, points = self._nearest * (k + 1) / (k + 3), 10 * (k + 3)
            return finite_moment(k, -_coefficient(self.law._cauchy, radius, k - 1, points) * radius ** (1 - k))
        except (OverflowError, ValueError):
            return finite_moment(k, math.inf)

    def _reciprocal(self, y: Array) -> Array:
        with np.errstate(all="ignore"):
            x = 1 / y
        left = y < 0
        x[left] = self._follow_left(-y[left], x[left])
        right = y > 0
        x[right] = -self._follow_right(y[right], -x[right])
        return x

    def _pdf(self, x: Array) -> Array:
        result = np.zeros_like(x)
        density = self.law._pdf(self._reciprocal(x))
        inside = (density > 0) & (x != 0)
        with np.errstate(over="ignore"):
            result[inside] = density[inside] / x[inside] / x[inside]
        return result

    def _mass(self, x: Array) -> Array:
        below = self._inner_mass(np.where(x == 0, math.inf, self._reciprocal(x)))
        return np.where(x < 0, np.maximum(self._below - below, 0.0), self._below + (self._whole - below))

    def _candidate(self, q: Array) -> Array:
        left = q <= self._negative
        x = self.law._ppf(np.clip(np.where(left, self._negative - q, 1 + self._negative - q), 0.0, 1.0))
        x = np.where(left, np.minimum(x, self._highest_negative), np.maximum(x, self._lowest_positive))
        with np.errstate(all="ignore"):
            return np.asarray(1 / x)

    def _pull_back(self, z: ComplexArray) -> ComplexArray:
        """The conjugate of 1/z, in the upper half-plane like z."""
        u = np.asarray((1 / z).conj() + 0.0)
        real = z.imag == 0
        u.imag[real] = 0.0
        u.real[real] = self._reciprocal(z.real[real])
        return u

    def _direct(self, z: ComplexArray) -> ComplexArray:
        with np.errstate(all="ignore"):
            u = self._pull_back(z)
            return np.asarray((u - u * u * self.law._cauchy(u)).conj())

    def _direct_and_slope(self, z: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        with np.errstate(all="ignore"):
            u = self._pull_back(z)
            g, slope = self.law._cauchy_and_slope(u)
            return (u - u * u * g).conj(), (u * u * (u * (2 * g + u * slope) - 1)).conj()

    def _breakpoints(self) -> Array:
        own = self.law._breakpoints()
        with np.errstate(all="ignore"):
            images = 1 / own[own != 0]
        return np.sort(images[np.isfinite(images)])

    def _matrix(self, n: int, rng: np.random.Generator) -> Array:
        values, vectors = np.linalg.eigh(self.law._matrix(n, rng))
        if not np.abs(values).min() > 1e-9 * self._nearest:
            return super()._matrix(n, rng)
        matrix: Array = (vectors / values) @ vectors.T
        return 0.5 * (matrix + matrix.T)


# -- helpers -----------------------------------------------------------------------------------------


class _Integral:
    """The integral of a function from the first cut, from its Legendre series between the cuts.

    Certified by halving the panels.
    """

    def __init__(self, function: Callable[[Array], Array], cuts: Array, name: str) -> None:
        self._set(function, cuts)
        for _ in range(_HALVINGS):
            middles = cuts[:-1] + 0.5 * np.diff(cuts)
            cuts = np.unique(np.concatenate([cuts, middles]))
            coarse = self(cuts)
            self._set(function, cuts)
            difference = float(np.abs(coarse - self._sums).max())
            whole = float(np.abs(self._sums).max())
            if difference <= _LIMIT * whole:
                return
        raise CertificationError(
            f"the partial mean of {name} is uncertain by {difference / whole:.1e} of the whole: its distribution "
            "function is not smooth between the breakpoints"
        )

    def _set(self, function: Callable[[Array], Array], cuts: Array) -> None:
        self._cuts, self._half = cuts, 0.5 * np.diff(cuts)
        centre = cuts[:-1] + self._half
        values = function((centre[:, None] + self._half[:, None] * _NODES).reshape(-1)).reshape(-1, _ORDER)
        series = (_TO_SERIES @ values.T) * self._half
        self._series = legendre.legint(series, lbnd=-1, axis=0)
        self._sums = np.append(0.0, np.cumsum(2 * series[0]))

    def __call__(self, x: Array) -> Array:
        at = np.clip(np.searchsorted(self._cuts, x, side="right") - 1, 0, self._half.size - 1)
        t = np.clip((x - self._cuts[at]) / self._half[at] - 1, -1.0, 1.0)
        value: Array = self._sums[at] + legendre.legval(t, self._series[:, at], tensor=False)
        return value


class _Follow:
    """Corrects an increasing map of floats: on the same side of special points, and equal where the argument is."""

    def __init__(self, outer: Array, inner: Array) -> None:
        self._outer, first = np.unique(outer, return_index=True)
        self._inner = inner[first]

    def __call__(self, x: Array, y: Array) -> Array:
        if self._outer.size == 0:
            return y
        position = np.searchsorted(self._outer, x)
        after = np.append(-np.inf, np.nextafter(self._inner, np.inf))[position]
        before = np.append(np.nextafter(self._inner, -np.inf), np.inf)[position]
        nearest = np.minimum(position, self._outer.size - 1)
        return np.where(self._outer[nearest] == x, self._inner[nearest], np.clip(y, after, before))


def _check_law(name: str, law: Any) -> None:
    if not isinstance(law, Law):
        raise ParameterError(f"{name} must be a Law; got {law!r}")


def _check_edges(name: str, law: Law, edges: Array, images: Array) -> None:
    """The images of different edges are different floats."""
    if not np.isfinite(images).all() or np.unique(images).size < np.unique(edges).size:
        raise ParameterError(f"{name} must have edges whose images are finite and stay apart; got {law!r}")


def _edges(law: Law) -> Array:
    return np.array([x for interval in law.support() for x in interval], dtype=np.float64)


def _columns(atoms: list[tuple[float, float]]) -> tuple[Array, Array]:
    places, weights = np.array(atoms, dtype=np.float64).reshape(-1, 2).T
    return places, weights


def _folded(low: float, high: float) -> tuple[float, float]:
    bottom = 0.0 if low <= 0 <= high else min(low * low, high * high)
    return bottom, max(low * low, high * high)


def _graded(low: float, high: float) -> Array:
    """Points that crowd at both ends."""
    half = 0.5 * (high - low)
    return np.concatenate([low + half * _GRADING[::-1], [low + half], high - half * _GRADING])


def _limit(function: Callable[[Array], Array], unit: float) -> float:
    """The value towards 0 of a function that behaves like a power there: 0, infinite, or between."""
    with np.errstate(all="ignore"):
        before, value = function(unit * np.array([1e-40, 1e-43]))
    if value > 1.5 * before:
        return math.inf
    return 0.0 if value < before / 1.5 else float(value)


def _coefficient(function: Callable[[ComplexArray], ComplexArray], radius: float, k: int, points: int) -> float:
    """Coefficient of (z/radius)^k in the series about 0 of a function that is real on the real axis."""

    def mean(count: int) -> tuple[float, float]:
        angles = np.pi * (np.arange(count) + 0.5) / count
        values = function(radius * np.exp(1j * angles))
        return float((values * np.exp(-1j * k * angles)).real.mean()), float(np.abs(values).max())

    (coarse, _), (fine, size) = mean(points), mean(2 * points)
    if not abs(fine - coarse) <= _LIMIT * size:
        raise CertificationError(
            f"an integral around 0 is uncertain by {abs(fine - coarse) / size:.1e}: the spectrum comes too near to 0"
        )
    return fine
