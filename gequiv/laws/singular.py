"""The law of √x: singular values from squared singular values."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gequiv._checks import Array, ComplexArray
from gequiv.errors import CertificationError, ParameterError
from gequiv.laws.base import Law, PreciseLaw, finite_moment, moment_order

_LEGENDRE = np.polynomial.legendre.leggauss(24)
_LIMIT = 1e-9


class SingularValueLaw(Law):
    r"""Law of :math:`s = \sqrt x` when x has a given law on [0, ∞).

    Density :math:`2 s \rho(s^2)`, distribution function :math:`F(s^2)`, quantiles :math:`\sqrt{Q(q)}`, moments
    :math:`\int x^{k/2} \mu(dx)`. The law is on s >= 0; it is not symmetrised.

    Parameters
    ----------
    squares : the law of the squares.

    Raises
    ------
    ParameterError : the law of the squares charges negative numbers.
    """

    def __init__(self, squares: Law) -> None:
        lowest = min([a for a, _ in squares.support()] + [location for location, _ in squares.atoms()])
        if lowest < 0:
            raise ParameterError(f"squares must be a law on [0, inf); got {squares!r}, which reaches {lowest!r}")
        self.squares = squares

    def __repr__(self) -> str:
        return f"SingularValueLaw({self.squares!r})"

    def support(self, dps: int | None = None) -> list[tuple[Any, Any]]:
        """Square roots of the edges of the squares' law; with dps, to that many digits."""
        if dps is not None:
            return self._precise(dps).support()
        return [(math.sqrt(a), math.sqrt(b)) for a, b in self.squares.support()]

    def atoms(self) -> list[tuple[float, float]]:
        """Square roots of the locations, same weights."""
        return [(math.sqrt(location), weight) for location, weight in self.squares.atoms()]

    def moment(self, k: int, dps: int | None = None) -> Any:
        r""":math:`\int s^k`: exact for even k; for odd k by quadrature, certified to 1e-9 relative.

        Raises
        ------
        ParameterError : k is not an integer >= 0, or the moment exceeds the floats; or k is odd and dps is given.
        CertificationError : two quadratures of different fineness disagree.
        """
        k = moment_order(k)
        if dps is not None:
            return self._precise(dps).moment(k)
        if k % 2 == 0:
            return self.squares.moment(k // 2)
        # in units of the highest point no power overflows
        top = max([end for _, end in self.support()] + [location for location, _ in self.atoms()]) or 1.0

        def integrand(s: Array) -> Array:
            return (s / top) ** k

        atoms = sum(weight * (location / top) ** k for location, weight in self.atoms())
        value = self._integrate(integrand, 0.0).real + atoms
        try:
            return finite_moment(k, value * top**k)
        except OverflowError:
            return finite_moment(k, math.inf)

    def _precise(self, dps: int) -> PreciseLaw:
        from gequiv.laws._precise import PreciseRoots

        return PreciseRoots(self.squares._precise(dps), dps)

    def _pdf(self, x: Array) -> Array:
        positive = np.maximum(x, 0.0)
        with np.errstate(over="ignore"):
            square = positive * positive
        density = self.squares._pdf(square)
        result = np.zeros_like(density)
        inside = (density > 0) & (x > 0)
        result[inside] = 2 * x[inside] * density[inside]
        edge = (x == 0) & np.isinf(density)
        if edge.any():  # hard edge: 2 s rho(s^2) tends to a number
            tiny = np.array([self.support()[0][1] * 1e-9])
            result[edge] = 2 * tiny * self.squares._pdf(tiny**2)
        return result

    def _cdf(self, x: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.where(x < 0, 0.0, self.squares._cdf(np.maximum(x, 0.0) ** 2))

    def _ppf(self, q: Array) -> Array:
        return np.sqrt(self.squares._ppf(q))

    def _partial_mean(self, x: Array) -> Array:
        # integral of t dF = x F(x) - integral of F, by quadrature in pieces that end at each x
        result = np.zeros_like(x)
        for k, point in enumerate(x):
            result[k] = self._integrate(lambda s: s, 0.0, upper=float(point)).real
            result[k] += sum(weight * location for location, weight in self.atoms() if location <= point)
        return result

    def _cauchy(self, z: ComplexArray) -> ComplexArray:
        r"""G(z) = ∫ μ(ds)/(z - s).

        Left of the imaginary axis by quadrature, as s >= 0 keeps away from z; right of it from the squares,
        ∫ 2z/(z² - s²) - ∫ 1/(z + s), where the second integral keeps away in turn.
        """
        result = np.empty_like(z)
        for k, point in enumerate(z):
            if not np.isfinite(point):
                result[k] = 0
                continue
            left = point.real < 0
            mirrored = point if left else -point
            value = self._integrate(functools.partial(_pole, mirrored), abs(point))
            value += sum(weight / (mirrored - location) for location, weight in self.atoms())
            if not left:
                twice = 2 * point * self.squares._cauchy(np.array([point * point]))[0]
                value = twice + value
            result[k] = value
        return result

    def _integrate(self, function: Callable[[Array], Any], nearness: float, upper: float = math.inf) -> complex:
        """Integral of function(s) times the density up to `upper`, in panels that shrink towards the edges and s = 0.

        `nearness` is the distance from 0 at which the function has a singularity, 0 for none.
        """
        coarse, fine = (self._panels(function, nearness, upper, refine) for refine in (1, 2))
        if not abs(coarse - fine) <= _LIMIT * max(abs(fine), 1e-300):
            raise CertificationError(
                f"an integral against {self!r} is uncertain by {abs(coarse - fine):.1e}; take a point farther from "
                "0, or a lower order"
            )
        return fine

    def _panels(self, function: Callable[[Array], Any], nearness: float, upper: float, refine: int) -> complex:
        total: complex = 0.0
        nodes, weights = _LEGENDRE
        for a, b in self.support():
            top = min(b, upper)
            if top <= a:
                continue
            cuts = self._cuts(a, b, nearness, self.squares._breakpoints())
            cuts = np.append(cuts[cuts < top], top)
            if refine > 1:
                cuts = np.sort(np.concatenate([cuts, 0.5 * (cuts[1:] + cuts[:-1])]))
            s = (0.5 * (cuts[1:] + cuts[:-1])[:, None] + 0.5 * np.diff(cuts)[:, None] * nodes).reshape(-1)
            w = (0.5 * np.diff(cuts)[:, None] * weights).reshape(-1)
            total += np.sum(function(s) * self._pdf(s) * w)
        return total

    @staticmethod
    def _cuts(a: float, b: float, nearness: float, breakpoints: Array) -> Array:
        """Geometric panels from both edges and from the singularity's distance, cut where the density needs it."""
        ratio = 0.5 ** np.arange(1, 40)
        half = 0.5 * (b - a)
        cuts = [a + half * ratio[::-1], b - half * ratio]
        if nearness > 0:
            depth = nearness * 2.0 ** np.arange(-3, 60)
            cuts.append(depth[(depth > a) & (depth < b)])
        own = np.sqrt(breakpoints)
        cuts.append(own[(own > a) & (own < b)])
        return np.unique(np.concatenate([[a, b, a + half], *cuts]))


def _pole(w: complex, s: Array) -> ComplexArray:
    return np.asarray(1 / (w - s), dtype=np.complex128)
