"""The Cauchy transform where solving an equation would lose digits: far out, and next to an atom."""

from __future__ import annotations

import abc
from collections.abc import Callable

import numpy as np

from gequiv._checks import Array, ComplexArray
from gequiv.errors import CertificationError
from gequiv.laws.base import mirrored
from gequiv.laws.stored import StoredLaw

Transform = Callable[[ComplexArray], tuple[ComplexArray, ComplexArray]]

_FAR = 300.0  # radii of the spectrum beyond which the moments give G
_MOMENTS = 8
_CIRCLE = 64
_TERMS = 32
_NEAR = 0.1  # of the distance of an atom from the rest, within which its series gives G
_WEIGHT_ERROR = 1e-9


class Series:
    r"""G by series around a transform that is good in between.

    Far out :math:`G(z) = \sum_k m_k z^{-k-1}`. Next to an atom a of weight w that stands apart,
    :math:`(z - a)G(z)` is analytic and w at a; its Taylor coefficients come from a circle about a.

    Parameters
    ----------
    transform : G and dG/dz at finite points with Im z >= 0 off the spectrum.
    intervals, atoms : of the law.
    moment : the moment of order k in units of `radius`.
    radius : largest magnitude of the spectrum.

    Raises
    ------
    CertificationError : the series finds another weight of an atom than theory.
    """

    def __init__(
        self,
        transform: Transform,
        intervals: list[tuple[float, float]],
        atoms: list[tuple[float, float]],
        moment: Callable[[int], float],
        radius: float,
    ) -> None:
        self._transform, self._radius = transform, radius
        self._moments = np.array([moment(k) for k in range(_MOMENTS)])
        self._atoms: list[tuple[float, float, Array]] = []
        for location, weight in atoms:
            apart = min(
                [max(a - location, location - b, 0.0) for a, b in intervals]
                + [abs(other - location) for other, _ in atoms if other != location]
            )
            if apart > 0:
                self._atoms.append((location, apart, self._coefficients(location, weight, apart)))

    def _coefficients(self, location: float, weight: float, apart: float) -> Array:
        turn = np.exp(1j * np.pi * (np.arange(_CIRCLE // 2) + 0.5) / (_CIRCLE // 2))
        step = 0.5 * apart * turn
        value = step * self._transform(location + step)[0]
        coefficients = np.array([(value * turn**-k).real.mean() for k in range(_TERMS)])
        if not abs(coefficients[0] - weight) <= _WEIGHT_ERROR:
            raise CertificationError(
                f"the atom at {location!r} should have weight {weight!r}, but the Cauchy transform about it gives "
                f"{coefficients[0]!r}: move the parameters slightly"
            )
        coefficients[0] = weight
        return coefficients

    def __call__(self, z: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        """G and dG/dz at points with Im z >= 0, off the spectrum."""
        value, slope = np.zeros_like(z), np.zeros_like(z)
        rest = np.isfinite(z)
        with np.errstate(over="ignore"):
            far = rest & (np.abs(z) > _FAR * self._radius)
        rest &= ~far
        value[far], slope[far] = self._far(z[far])
        for location, apart, coefficients in self._atoms:
            near = rest & (np.abs(z - location) < _NEAR * apart)
            rest &= ~near
            if near.any():
                step = z[near] - location
                share = step / (0.5 * apart)
                product = np.polynomial.polynomial.polyval(share, coefficients)
                rise = np.polynomial.polynomial.polyval(share, coefficients[1:] * np.arange(1, _TERMS)) / (0.5 * apart)
                value[near] = product / step
                slope[near] = (rise - value[near]) / step
        if rest.any():
            value[rest], slope[rest] = self._transform(z[rest])
        return value, slope

    def _far(self, z: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        share = self._radius / z
        value = np.polynomial.polynomial.polyval(share, self._moments) / z
        orders = self._moments * np.arange(1, _MOMENTS + 1)
        return value, -np.polynomial.polynomial.polyval(share, orders) / z / z


class SeriesLaw(StoredLaw, abc.ABC):
    """A stored law with any atoms, whose transform is a `Series`.

    A subclass sets `_points`, the atoms, and `_hull`, the lowest and the highest point of the spectrum.
    """

    _points: list[tuple[float, float]]
    _hull: tuple[float, float]

    @property
    @abc.abstractmethod
    def _series(self) -> Series: ...

    def atoms(self) -> list[tuple[float, float]]:
        """The point masses as (location, weight), ascending, from theory."""
        return list(self._points)

    # the stored mass misses 1 by rounding: not at the right edge, where it would be visible in quantiles

    def _cdf(self, x: Array) -> Array:
        return np.where(x >= self._hull[1], 1.0, super()._cdf(x))

    def _ppf(self, q: Array) -> Array:
        return np.where(q >= 1, self._hull[1], super()._ppf(q))

    def _cauchy(self, z: ComplexArray) -> ComplexArray:
        return self._cauchy_and_slope(z)[0]

    def _cauchy_and_slope(self, z: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        value, slope = mirrored(self._series, z)
        return value, slope
