"""The law of a multiple of x plus a number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gequiv._checks import Array, ComplexArray
from gequiv.errors import ParameterError
from gequiv.laws.base import Law, finite_moment, finite_real, moment_order
from gequiv.laws.subordination import Increment, Node, Scaled


class Affine(Law):
    r"""The law of :math:`s x + t` when x has a given law; what ``2 * law``, ``law + 1`` and ``-law`` return.

    From density, transform, mean m and variance v of the given law: density :math:`\rho((x-t)/s)/|s|`, Cauchy transform
    :math:`G((z-t)/s)/s`, mean :math:`s m + t`, variance :math:`s^2 v`.

    Parameters
    ----------
    law : any law.
    scale : s, of either sign, not 0.
    shift : t.

    Attributes
    ----------
    law, scale, shift : as given; where `law` is itself such a law, that of its `law` and the product of the two maps.

    Raises
    ------
    ParameterError : law is not a law; scale or shift is not a finite number, or scale is 0; the edges and atoms
        of the new law leave the floats or become equal in them.

    Examples
    --------
    >>> from gequiv.laws.uniform import Uniform
    >>> law = Affine(Uniform(0, 1), scale=-2, shift=1)
    >>> law.support(), law.variance() * 3, float(law.cdf(0.5))
    ([(-1.0, 1.0)], 1.0, 0.75)
    """

    def __init__(self, law: Law, scale: Any, shift: Any = 0.0) -> None:
        if not isinstance(law, Law):
            raise ParameterError(f"law must be a Law; got {law!r}")
        factor, offset = finite_real("scale", scale), finite_real("shift", shift)
        if factor == 0:
            raise ParameterError("scale must not be 0: the multiple by 0 has its whole mass at one point; see Atomic")
        inner = law
        if isinstance(inner, Affine):
            law, factor, offset = inner.law, factor * inner.scale, factor * inner.shift + offset
        self.law: Law = law
        self.scale: float = factor
        self.shift: float = offset
        ends = [x for interval in law.support() for x in interval]
        points = np.unique(np.array([*ends, *(location for location, _ in law.atoms())], dtype=np.float64))
        with np.errstate(over="ignore"):
            outer = factor * points + offset
        if factor < 0:
            points, outer = points[::-1], outer[::-1]
        if factor == 0 or not (np.isfinite(outer).all() and (np.diff(outer) > 0).all()):
            raise ParameterError(
                f"scale and shift must keep the edges and atoms of {law!r} apart and finite; got {factor!r}, {offset!r}"
            )
        self._inner, self._outer = points, outer  # edges and atoms, and their images in ascending order

    def __repr__(self) -> str:
        return f"Affine({self.law!r}, scale={self.scale:g}, shift={self.shift:g})"

    def support(self, dps: int | None = None) -> list[tuple[Any, Any]]:
        """The images of the intervals."""
        if dps is not None:
            return self._precise(dps).support()
        images = [tuple(sorted(self._image(x) for x in interval)) for interval in self.law.support()]
        return [(low, high) for low, high in images][:: 1 if self.scale > 0 else -1]

    def atoms(self) -> list[tuple[float, float]]:
        """The images of the atoms, same weights."""
        images = [(self._image(location), weight) for location, weight in self.law.atoms()]
        return images[:: 1 if self.scale > 0 else -1]

    def moment(self, k: int, dps: int | None = None) -> Any:
        r""":math:`\sum_j \binom kj s^j t^{k-j} m_j` with the moments of the given law.

        Raises
        ------
        ParameterError : k is not an integer >= 0, or the moment exceeds the floats.
        """
        k = moment_order(k)
        if dps is not None:
            return self._precise(dps).moment(k)
        orders = range(k + 1) if self.shift else (k,)
        try:
            terms = (
                math.comb(k, j) * self.scale**j * self.shift ** (k - j) * float(self.law.moment(j)) for j in orders
            )
            return finite_moment(k, math.fsum(terms))
        except (OverflowError, ValueError):
            return finite_moment(k, math.inf)

    def variance(self) -> float:
        """Second moment about the mean: s² times that of the given law."""
        return self.scale**2 * self.law.variance()

    def _image(self, x: Any) -> float:
        return float(self.scale * np.float64(x) + self.shift)

    def _pull_back(self, x: Array) -> Array:
        """(x - t)/s, on the same side of every edge and atom as x is of their images, and equal where x is."""
        # rounding would else carry a point across an edge, or miss an atom
        with np.errstate(over="ignore"):
            y = (x - self.shift) / self.scale
        upward = math.copysign(math.inf, self.scale)
        position = np.searchsorted(self._outer, x)
        after = np.append(-upward, np.nextafter(self._inner, upward))[position]
        before = np.append(np.nextafter(self._inner, -upward), upward)[position]
        y = np.clip(y, *((after, before) if self.scale > 0 else (before, after)))
        nearest = np.minimum(position, self._outer.size - 1)
        return np.where(self._outer[nearest] == x, self._inner[nearest], y)

    def _at_atom(self, x: Array) -> Array:
        """The weight of the atom at each point."""
        places, weights = np.array([*self.atoms(), (math.nan, 0.0)]).T
        return np.where(np.isin(x, places), weights[np.searchsorted(places, x)], 0.0)

    def _pdf(self, x: Array) -> Array:
        density: Array = self.law._pdf(self._pull_back(x)) / abs(self.scale)
        return density

    def _cdf(self, x: Array) -> Array:
        below = self.law._cdf(self._pull_back(x))
        return below if self.scale > 0 else np.clip(1 - below + self._at_atom(x), 0.0, 1.0)

    def _partial_mean(self, x: Array) -> Array:
        y = self._pull_back(x)
        below, mean = self.law._cdf(y), self.law._partial_mean(y)
        if self.scale < 0:
            # P(X >= y) and the mean over it
            weight, everything = self._at_atom(x), np.array([np.inf])
            below = self.law._cdf(everything) - below + weight
            mean = self.law._partial_mean(everything) - mean + weight * np.where(weight > 0, y, 0.0)
        result: Array = self.scale * mean + self.shift * below
        return result

    def _ppf(self, q: Array) -> Array:
        if self.scale > 0:
            return np.asarray(self.scale * self.law._ppf(q) + self.shift)
        result = self.scale * self.law._ppf(1 - q) + self.shift
        places = np.array([location for location, _ in self.atoms()])
        if places.size == 0:
            return np.asarray(result)
        # at the atoms by the distribution function itself: 1 - q is rounded
        top = self._cdf(places)
        bottom = top - self._at_atom(places)
        index = np.minimum(np.searchsorted(top, q), places.size - 1)
        at_atom = (q <= top[index]) & (q > bottom[index]) | (not self.law.support())
        return np.where(at_atom, places[index], result)

    def _cauchy(self, z: ComplexArray) -> ComplexArray:
        return self.law._cauchy(self._pull_back_complex(z)) / self.scale

    def _node(self) -> Node:
        if self.scale < 0:
            return super()._node()
        return Scaled(self.law._node(), self.scale, self.shift)

    def _increment(self) -> Increment | None:
        own = self.law._increment()
        return own.affine(self.scale, self.shift) if own is not None else None

    def _factors(self) -> tuple[float, list[tuple[float, float]]] | None:
        own = self.law._factors()
        return (self.scale * own[0], own[1]) if own is not None and self.scale > 0 and self.shift == 0 else None

    def _cauchy_and_slope(self, z: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        w = self._pull_back_complex(z)
        # a negative scale turns the upper half-plane over
        g, slope = self.law._cauchy_and_slope(w if self.scale > 0 else w.conj())
        if self.scale < 0:
            g, slope = g.conj(), slope.conj()
        return g / self.scale, slope / self.scale**2

    def _pull_back_complex(self, z: ComplexArray) -> ComplexArray:
        with np.errstate(all="ignore"):
            w = np.asarray((z - self.shift) / self.scale)
        real = (z.imag == 0) & np.isfinite(z)
        w[real] = self._pull_back(z.real[real])
        w[~np.isfinite(z)] = np.inf
        return w

    def _breakpoints(self) -> Array:
        return np.sort(self.scale * self.law._breakpoints() + self.shift)

    def _matrix(self, n: int, rng: np.random.Generator) -> Array:
        matrix: Array = self.scale * self.law._matrix(n, rng) + self.shift * np.eye(n)
        return matrix
