"""The rational curve of a noisy Gaussian chain in exact algebra: edges, sheet of the edges, masses, refinement.

Units: the law has mean one. The equations are in the text of `gequiv.laws.chain`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from gequiv.errors import CertificationError
from gequiv.laws import _polynomials as poly
from gequiv.laws.multiprecision import DIGITS, multiprecision

EXTREME = "the parameters are too extreme; move them slightly, or bring the ratios closer to one"
_SPARE = 28  # digits that the count of real roots may lose


class ChainAlgebra:
    """z(t) = (1+y)(1+cy) P/t with y = rho t + (1-rho) t/P and P = prod(1 + rho t/c_i), in multiprecision.

    Parameters
    ----------
    inner : c_i, inner dimensions over rows.
    aspect : c, rows over columns.
    signal, noise : variances.
    digits : decimal digits of the arithmetic.

    Attributes
    ----------
    points, values : t and z at the edges of the support, ascending in z.
    factors : (1+y)P, (1+cy)P and tP as polynomials.
    """

    def __init__(
        self,
        inner: tuple[Fraction, ...],
        aspect: Fraction,
        signal: Fraction,
        noise: Fraction,
        digits: int = DIGITS,
    ) -> None:
        self.digits = digits
        self.ctx = multiprecision(digits)
        mp = self.ctx.mpf
        strength, rest, self.c = (mp(r.numerator) / r.denominator for r in (signal, noise, aspect))
        self.scale = strength + rest
        self.share, self.rest = strength / self.scale, rest / self.scale
        # a factor whose weight rho/c_i is that small is 1 to the last digit, and would strain Sturm's count
        negligible = mp(10) ** (_SPARE - digits)
        self.inner = tuple(r for r in inner if self.share * r.denominator > negligible * r.numerator)
        self.aspect = aspect
        self.weights = [self.share * r.denominator / r.numerator for r in self.inner]  # rho / c_i

        chain = [mp(1)]
        for w in self.weights:
            chain = poly.multiply(chain, [mp(1), w])
        excess = poly.add(poly.multiply(chain, [mp(0), self.share]), [mp(0), self.rest])  # y P
        bottom = poly.multiply([mp(0), mp(1)], chain)
        self.factors = (poly.add(chain, excess), poly.add(chain, poly.scaled(excess, self.c)), bottom)
        self.top, self.bottom = poly.multiply(self.factors[0], self.factors[1]), bottom
        self.points, self.values = self._find_edges()
        self._check_sheet()

    # -- edges --------------------------------------------------------------------------------------

    def _find_edges(self) -> tuple[list[Any], list[Any]]:
        """Edges are critical values of z on the physical part of the real t-axis, where dz/dt < 0.

        The physical part: (0, t_b) right of the support; (t_a, 0) left of it, t_a the first critical point below 0;
        and, when an inner dimension is the smallest one, a pair of critical points between the first pole of z and the
        branch point of the chain's own curve bounds a gap.
        """
        roots = poly.RealRoots(self._logarithmic_slope(), self.digits)
        pole = -1 / max(self.weights) if self.weights else None
        right = roots.within(self.ctx.mpf(0), None)
        left = roots.within(pole, self.ctx.mpf(0))
        if not right or not left:
            raise CertificationError(f"the outer edges of the support could not be found: {EXTREME}")
        points = [left[-1], *self._gap(roots, pole), right[0]]
        values = [poly.evaluate(self.top, t) / poly.evaluate(self.bottom, t) for t in points]
        if self.aspect == 1:
            values[0] = self.ctx.mpf(0)  # (1+y)^2 has its double zero there
        if any(not a < b for a, b in itertools.pairwise(values)) or values[0] < 0:
            raise CertificationError(f"the edges {[float(v) for v in values]} are out of order: {EXTREME}")
        return points, values

    def _logarithmic_slope(self) -> poly.Polynomial:
        """Numerator of d log z/dt, without the factors that several inner dimensions have in common."""
        product, sums = self._simple_poles(self.inner)
        distinct = [0, *product]  # t times the product
        poles = poly.add(product, [0, *sums])
        if self.aspect == 1:  # top is a square: its root is critical, once
            root = self.factors[0]
            inner = poly.subtract(
                poly.scaled(poly.multiply(poly.derivative(root), distinct), 2), poly.multiply(root, poles)
            )
            return poly.multiply(root, inner)
        return poly.subtract(poly.multiply(poly.derivative(self.top), distinct), poly.multiply(self.top, poles))

    def _simple_poles(self, dimensions: Iterable[Fraction]) -> tuple[poly.Polynomial, poly.Polynomial]:
        """prod (1 + w_j t) and its product with sum m_j w_j/(1 + w_j t), over distinct w_j = rho/c_j, m_j of each."""
        one = self.ctx.mpf(1)
        counts = Counter(dimensions)
        weight = {d: self.share * d.denominator / d.numerator for d in counts}
        product: poly.Polynomial = [one]
        for d in counts:
            product = poly.multiply(product, [one, weight[d]])
        sums: poly.Polynomial = [0 * one]
        for d, multiplicity in counts.items():
            term: poly.Polynomial = [multiplicity * weight[d]]
            for other in counts.keys() - {d}:
                term = poly.multiply(term, [one, weight[other]])
            sums = poly.add(sums, term)
        return product, sums

    def _gap(self, roots: poly.RealRoots, pole: Any) -> list[Any]:
        """The two critical points that bound a gap, lower edge of the gap first, or none."""
        if pole is None:
            return []
        dimensions = sorted([*self.inner, Fraction(1), 1 / self.aspect])
        if dimensions[0] == dimensions[1] or dimensions[0] != min(self.inner):
            return []  # the chain has full rank, or its spectrum reaches down to 0
        mp = self.ctx.mpf
        following = -mp(dimensions[1].numerator) / dimensions[1].denominator / self.share
        # branch point of the chain's own curve, prod(1 + u/c_i)/u over all its dimensions
        product, sums = self._simple_poles(dimensions)
        branch = poly.RealRoots(poly.subtract([0, *sums], product), self.digits).within(following, pole)
        if len(branch) != 1:
            raise CertificationError(f"the chain has {len(branch)} branch points where one was expected: {EXTREME}")
        pair = roots.within(branch[0], pole, about=pole)
        if len(pair) not in (0, 2):
            raise CertificationError(f"a gap of the support has {len(pair)} ends: {EXTREME}")
        return pair[::-1]

    def _check_sheet(self) -> None:
        """Every edge must have arg z = 0 as a sum of principal arguments, from the lower half t-plane."""
        for t, value in zip(self.points, self.values, strict=True):
            if value != 0 and self._arguments(t)[2] != 0:
                raise CertificationError(f"the edge at {float(value)!r} is on the wrong sheet: {EXTREME}")

    def _arguments(self, t: Any) -> tuple[Any, Any, int]:
        """y and t/P at a real t, and arg z/pi there."""
        chain = poly.evaluate(self.bottom[1:], t)
        ratio = t / chain
        y = self.share * t + self.rest * ratio
        angle_ratio = _turn(t) - sum(_turn(1 + w * t) for w in self.weights)
        return y, ratio, _turn(1 + y) + _turn(1 + self.c * y) - angle_ratio

    def masses(self) -> list[float]:
        """Mass of each interval from the closed form of the integral of G."""
        above = [self.mass_above_edge(t) for t in self.points]
        return [float(a - b) for a, b in zip(above[::2], above[1::2], strict=True)]

    def mass_above_edge(self, t: Any) -> Any:
        """Mass right of the edge at t: Im/pi of (1+y) log z - int log z dy, where log z is real."""
        y, ratio, _ = self._arguments(t)
        angle_ratio = _turn(t) - sum(_turn(1 + w * t) for w in self.weights)
        mass = self.rest * ratio * angle_ratio + self.share * t * _turn(t)
        mass -= (1 + y) * _turn(1 + y) + (1 + self.c * y) / self.c * _turn(1 + self.c * y)
        for w in self.weights:
            mass -= (self.share * t + self.share / w) * _turn(1 + w * t)
        return mass

    def refine(self, z: Any, start: Any) -> tuple[Any, Any]:
        """t and y at z by Newton's method with all digits, from nearby."""
        t = self.ctx.mpc(start)
        for _ in range(12):
            y, ratio, sums = self._at(t)
            dy = self.share + self.rest * ratio * (1 / t - sums)
            value = (1 + y) * (1 + self.c * y) - z * ratio
            slope = dy * (1 + self.c * y) + (1 + y) * self.c * dy - z * ratio * (1 / t - sums)
            step = value / slope
            t = t - step
            if abs(step) < (abs(t.imag) or abs(t)) * self.ctx.mpf(10) ** (-self.digits // 2):
                break
        return t, self._at(t)[0]

    def physical(self, t: Any, y: Any) -> bool:
        """The sheet test of `gequiv.laws.chain`, for a solution at a point inside the support."""
        angle = -self.ctx.arg(t)
        for w in (*self.weights, self.share, self.c * self.share):
            angle += self.ctx.arg(1 + w * t)
        return bool(t.imag < 0 and y.imag < 0 and 0 < angle < self.ctx.pi)

    def _at(self, t: Any) -> tuple[Any, Any, Any]:
        """y, t/P and the logarithmic derivative of P at t."""
        chain, sums = self.ctx.mpf(1), self.ctx.mpf(0)
        for w in self.weights:
            factor = 1 + w * t
            chain, sums = chain * factor, sums + w / factor
        ratio = t / chain
        return self.share * t + self.rest * ratio, ratio, sums

    def mass_above(self, t: Any) -> Any:
        """Mass right of the point of the support at t, Im t < 0: Im/pi of (1+y) log z - int log z dy.

        log z is real there, the sum of the principal logarithms of 1+y, 1+cy and P/t.
        """
        log = self.ctx.log
        y, ratio, _ = self._at(t)
        first, second, log_t = log(1 + y), log(1 + self.c * y), log(t)
        logs = [log(1 + w * t) for w in self.weights]
        log_ratio = log_t - sum(logs)
        integral_of_log_ratio = (
            t * log_t - t - sum((t + 1 / w) * value - t for w, value in zip(self.weights, logs, strict=True))
        )
        phi = (1 + y) * (first + second - log_ratio).real
        phi -= (1 + y) * first - y + (1 + self.c * y) / self.c * second - y
        phi += self.share * integral_of_log_ratio + self.rest * ratio * (log_ratio - 1)
        return phi.imag / self.ctx.pi


def _turn(value: Any) -> int:
    """Argument over pi of a real number reached from the lower half-plane."""
    return -1 if value < 0 else 0
