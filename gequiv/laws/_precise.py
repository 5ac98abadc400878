"""Laws in multiprecision: the same curve, closed forms where there are any, as many digits as are asked for."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from gequiv.errors import CertificationError, ParameterError
from gequiv.laws import _polynomials as poly
from gequiv.laws._chain_algebra import ChainAlgebra
from gequiv.laws._chain_curve import ChainCurve
from gequiv.laws.base import PreciseLaw
from gequiv.laws.multiprecision import digits_wanted, exact, multiprecision, public


class PreciseChain:
    """`GaussianChainPlusNoise` to dps digits: t by Newton's method from the certified double, F(x) in closed form.

    Parameters
    ----------
    inner, aspect, signal, noise : the law's exact parameters.
    dps : decimal digits of the results; the arithmetic carries twice as many and thirty more.
    curve : the law's curve in double precision, if there is one already.
    """

    def __init__(
        self,
        inner: tuple[Fraction, ...],
        aspect: Fraction,
        signal: Fraction,
        noise: Fraction,
        dps: int,
        curve: ChainCurve | None = None,
    ) -> None:
        digits = 2 * digits_wanted(dps) + 30
        self._algebra = ChainAlgebra(inner, aspect, signal, noise, digits)
        self._curve = ChainCurve(inner, aspect, signal, noise) if curve is None else curve
        self._ctx = self._algebra.ctx
        self._atom = (
            self._ctx.mpf(max(Fraction(0), 1 - 1 / aspect).numerator) / max(Fraction(0), 1 - 1 / aspect).denominator
        )

    def pdf(self, x: Any) -> Any:
        z = self._scaled(x)
        place = self._place(z)
        if place is None:
            return public(self._ctx.mpf(0))
        if z in self._algebra.values:
            return public(self._ctx.inf if z == 0 else self._ctx.mpf(0))
        _, y = self._solve(place, z)
        return public(-y.imag / (self._ctx.pi * z * self._algebra.scale))

    def cdf(self, x: Any) -> Any:
        z, values = self._scaled(x), self._algebra.values
        place = self._place(z)
        if place is not None and z not in values:
            t, _ = self._solve(place, z)
            return public(1 - self._algebra.mass_above(t))
        if z < 0:
            return public(self._ctx.mpf(0))
        if z >= values[-1]:
            return public(self._ctx.mpf(1))
        above = next(k for k, value in enumerate(values) if z <= value)
        if above == 0:
            return public(self._atom)
        edge = above if z == values[above] else above - 1
        return public(1 - self._algebra.mass_above_edge(self._algebra.points[edge]))

    def support(self) -> list[tuple[Any, Any]]:
        ends = [public(value * self._algebra.scale) for value in self._algebra.values]
        return list(zip(ends[::2], ends[1::2], strict=True))

    def moment(self, k: int) -> Any:
        """The recursion of `GaussianChainPlusNoise`, in multiprecision."""
        if k == 0:
            return public(self._ctx.mpf(1))
        algebra, zero, one = self._algebra, self._ctx.mpf(0), self._ctx.mpf(1)
        chain, cumulants = [one] + [zero] * (k - 1), [zero] * (k + 1)
        for j in range(1, k + 1):
            for w in algebra.weights:
                chain = [chain[0], *(chain[i] + w * chain[i - 1] for i in range(1, k))]
            cumulants[j] = algebra.share * chain[j - 1] / j
        cumulants[1] += algebra.rest
        factor = poly.multiply([one, *cumulants[1:]], [one, *(algebra.c * value for value in cumulants[1:])])[:k]
        power = [one]
        for _ in range(k):
            power = poly.multiply(power, factor)[:k]
        slope = poly.derivative(cumulants)
        total = sum((slope[i] * power[k - 1 - i] for i in range(k)), zero)
        return public(total / k * algebra.scale**k)

    def _scaled(self, x: Any) -> Any:
        """x over the mean; an edge of the support, handed back in, is that edge in spite of the division."""
        z = exact(self._ctx, "x", x) / self._algebra.scale
        for value in self._algebra.values:
            if abs(z - value) <= abs(value) * self._ctx.mpf(10) ** (8 - self._algebra.digits):
                return value
        return z

    def _place(self, z: Any) -> int | None:
        """Index of the interval's lower edge, None off the support."""
        values = self._algebra.values
        for k in range(0, len(values), 2):
            if values[k] <= z <= values[k + 1]:
                return k
        return None

    def _solve(self, lower: int, z: Any) -> tuple[Any, Any]:
        values, ctx = self._algebra.values, self._ctx
        width = values[lower + 1] - values[lower]
        nearer_above = z - values[lower] > width / 2
        edge = lower + 1 if nearer_above else lower
        xi = ctx.sqrt(abs(z - values[edge]) / width)
        start = self._curve.parameter(edge, poly.to_extended([xi])[0])
        t, y = self._algebra.refine(z, start)
        residual = abs((1 + y) * (1 + self._algebra.c * y) - z * (y - self._algebra.share * t) / self._algebra.rest)
        solved = residual < abs(y.imag) * ctx.mpf(10) ** (-self._algebra.digits // 2)
        if not (solved and self._algebra.physical(t, y)):
            raise CertificationError(
                f"no certified value at x = {float(z * self._algebra.scale)!r}; take a point farther from the edge"
            )
        return t, y


class PreciseRoots:
    """The law of √x when the law of x is known to many digits.

    Parameters
    ----------
    squares : the law of x.
    dps : decimal digits of the results.
    """

    def __init__(self, squares: PreciseLaw, dps: int) -> None:
        self._squares = squares
        self._ctx = multiprecision(2 * digits_wanted(dps) + 30)

    def pdf(self, x: Any) -> Any:
        s = exact(self._ctx, "x", x)
        if s <= 0:
            return public(self._ctx.mpf(0))
        return public(2 * s * self._ctx.mpf(self._squares.pdf(s * s)))

    def cdf(self, x: Any) -> Any:
        s = exact(self._ctx, "x", x)
        return public(self._ctx.mpf(0)) if s < 0 else self._squares.cdf(s * s)

    def support(self) -> list[tuple[Any, Any]]:
        return [
            (public(self._ctx.sqrt(self._ctx.mpf(a))), public(self._ctx.sqrt(self._ctx.mpf(b))))
            for a, b in self._squares.support()
        ]

    def moment(self, k: int) -> Any:
        if k % 2:
            raise ParameterError(
                f"k must be even where dps is given: odd moments of roots have no exact form; got {k!r}"
            )
        return self._squares.moment(k // 2)
