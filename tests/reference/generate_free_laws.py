"""Reference values of free convolutions to 40 digits, by routes that share nothing with the library.

    python tests/reference/generate_free_laws.py

writes `free_laws.json` beside this file. Conventions: G(z) = ∫ μ(dx)/(z - x), density = -Im G(x + i0)/π; ⊞ adds R,
with z = R(G) + 1/G; ⊠ multiplies S, with u = zG - 1 and z = (1+u)/(u S(u)). SC(s) is the semicircle of variance s,
R(g) = s g. MP(c, v) is the law of X Xᵀ/n for c = rows/columns and entries of variance v: R(g) = v/(1 - c v g),
S(u) = 1/(v (1 + c u)), an atom 1 - 1/c at 0 if c > 1. Rectangular noise of variance s and ratio c takes the law of
A Aᵀ to that of (A + N)(A + N)ᵀ: with y = ζ G_μ(ζ) - 1 and w = (1+y)(1+cy)/ζ, it is y' = y + s w,
z = (1+y')(1+cy')/w, G = (1+y')/z. Float parameters stand for the exact binary number.

Method. Every law here has z and G as rational functions of one parameter t (G itself, u, y, or 1/ζ or 1/ω of a
subordinate point), t = 0 at z = ∞, with exact rational coefficients. The physical sheet is found by continuation from
a distance of many radii, where t is proportional to 1/z, to the point wanted: a logarithmic tangent predictor, Newton's
method, and a step shortened until prediction and correction agree. Edges: the real critical points of z(t) are isolated
exactly (Descartes' rule of signs and bisection, over the integers) and refined; between neighbouring critical values
the density vanishes throughout or nowhere, so that one value in each gap decides. Moments come from the exact power
series of 1/z and zG in t.

Checks, all of them asserted:
- every density and Cauchy transform twice, along a vertical and along a slanted path, in two precisions, the edges in
  two precisions: equal to 42 digits;
- Cauchy transforms near the axis (Im z a thousandth of the support) against the damped iteration of the law's own
  subordination equations in double precision, nested where the law is, from closed forms of the factors;
- the moments, exactly, against convolution of moment sequences: free cumulants for ⊞, S-series for ⊠, the series y(w)
  for noise, whose first two moments are compared to those of the matrix besides;
- atoms, by the rules for convolutions, against iε G(a + iε);
- mass and six moments by quadrature of the density, in variables in which it is analytic at the edges;
- the closed forms of MP(1) ⊠ MP(1) and of the sum of two projections.
"""

from __future__ import annotations

import bisect
import cmath
import functools
import itertools
import json
import math
import pathlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath as mp
from mpmath.calculus.quadrature import GaussLegendre

DIGITS = 64
MORE_DIGITS = 80
AGREE = 42
WRITTEN = 40
MOMENTS = 6
PRIME = 2**61 - 1
FILE = pathlib.Path(__file__).with_name("free_laws.json")

Polynomial = list[Any]


# --- exact polynomials, lowest coefficient first -------------------------------------------------------------------


def trim(a: Polynomial) -> Polynomial:
    size = len(a)
    while size and a[size - 1] == 0:
        size -= 1
    return a[:size]


def multiply(a: Polynomial, b: Polynomial) -> Polynomial:
    result = [0] * max(len(a) + len(b) - 1, 0)
    for i, x in enumerate(a):
        if x:
            for j, y in enumerate(b):
                result[i + j] += x * y
    return result


def add(a: Polynomial, b: Polynomial) -> Polynomial:
    return trim([x + y for x, y in itertools.zip_longest(a, b, fillvalue=0)])


def slope_of(a: Polynomial) -> Polynomial:
    return [k * a[k] for k in range(1, len(a))]


def divide(a: Polynomial, b: Polynomial) -> tuple[Polynomial, Polynomial]:
    rest, quotient = [Fraction(x) for x in a], [Fraction(0)] * max(len(a) - len(b) + 1, 0)
    for k in range(len(quotient) - 1, -1, -1):
        quotient[k] = rest[k + len(b) - 1] / b[-1]
        for j, y in enumerate(b):
            rest[k + j] -= quotient[k] * y
    return quotient, trim(rest)


def integral(a: Polynomial) -> list[int]:
    """The multiple of a with coprime integer coefficients."""
    denominator = math.lcm(*(Fraction(x).denominator for x in a))
    numerators = [int(x * denominator) for x in a]
    content = math.gcd(*numerators)
    return [x // content for x in numerators]


def coprime_modulo_prime(a: list[int], b: list[int]) -> bool:
    """Whether a and b have no common factor modulo a prime, and so none at all; False decides nothing."""
    if a[-1] % PRIME == 0 or b[-1] % PRIME == 0:
        return False
    a, b = [x % PRIME for x in a], [x % PRIME for x in b]
    while b:
        inverse = pow(b[-1], -1, PRIME)
        while len(a) >= len(b):
            factor, shift = a[-1] * inverse % PRIME, len(a) - len(b)
            for j, y in enumerate(b):
                a[shift + j] = (a[shift + j] - factor * y) % PRIME
            a = trim(a)
        a, b = b, a
    return len(a) == 1


def common_factor(a: Polynomial, b: Polynomial) -> Polynomial:
    if coprime_modulo_prime(integral(a), integral(b)):
        return [Fraction(1)]
    while b:
        a, b = b, divide(a, b)[1]
    return [Fraction(x) / a[-1] for x in a]


def shifted(a: list[int]) -> list[int]:
    """a(t + 1)."""
    a = list(a)
    for i in range(len(a) - 1):
        for j in range(len(a) - 2, i - 1, -1):
            a[j] += a[j + 1]
    return a


def roots_in_unit_interval(a: list[int]) -> list[tuple[Fraction, Fraction]]:
    """Isolating intervals of the roots in the open (0, 1) of a without repeated roots, a(0) ≠ 0."""
    found = []
    todo = [(a, Fraction(0), Fraction(1))]
    while todo:
        a, low, width = todo.pop()
        degree = len(a) - 1
        signs = [x > 0 for x in shifted(a[::-1]) if x]
        changes = sum(x != y for x, y in itertools.pairwise(signs))
        if changes == 1:
            found.append((low, low + width))
        elif changes > 1:
            left = [x << (degree - k) for k, x in enumerate(a)]  # a(t/2)
            right = shifted(left)
            if right[0] == 0:
                found.append((low + width / 2, low + width / 2))
                right = right[1:]
            todo += [(left, low, width / 2), (right, low + width / 2, width / 2)]
    return found


def real_roots(a: Polynomial) -> list[tuple[Fraction, Fraction]]:
    """Isolating intervals of the real roots of a without repeated roots."""
    a = integral(a)
    found = []
    if a[0] == 0:
        found.append((Fraction(0), Fraction(0)))
        a = a[1:]
    power = 1 + max(abs(x) for x in a).bit_length() - abs(a[-1]).bit_length() + 1
    bound = Fraction(2) ** max(power, 1)
    for sign in (1, -1):
        scaled = integral([x * (sign * bound) ** k for k, x in enumerate(a)])
        for low, high in roots_in_unit_interval(scaled):
            found.append(tuple(sorted((sign * bound * low, sign * bound * high))))
    return found


# --- numbers, jets and rational functions, to which the same formulas apply ----------------------------------------


@functools.cache
def converted(x: Any, precision: int) -> Any:
    return mp.mpf(x.numerator) / x.denominator


class Arithmetic:
    """The operators, from the sum, product and reciprocal of a subclass."""

    def lift(self, other: Any) -> Any:
        raise NotImplementedError

    def plus(self, other: Any) -> Any:
        raise NotImplementedError

    def times(self, other: Any) -> Any:
        raise NotImplementedError

    def reciprocal(self) -> Any:
        raise NotImplementedError

    def __add__(self, other: Any) -> Any:
        return self.plus(self.lift(other))

    def __mul__(self, other: Any) -> Any:
        return self.times(self.lift(other))

    def __sub__(self, other: Any) -> Any:
        return self.plus(self.lift(other).times(self.lift(-1)))

    def __rsub__(self, other: Any) -> Any:
        return self.lift(other) - self

    def __truediv__(self, other: Any) -> Any:
        return self.times(self.lift(other).reciprocal())

    def __rtruediv__(self, other: Any) -> Any:
        return self.lift(other).times(self.reciprocal())

    __radd__ = __add__
    __rmul__ = __mul__


class Jet(Arithmetic):
    """A value and its derivative in t."""

    __slots__ = ("slope", "value")

    def __init__(self, value: Any, slope: Any) -> None:
        self.value, self.slope = value, slope

    def lift(self, other: Any) -> Jet:
        return other if isinstance(other, Jet) else Jet(converted(other, mp.mp.prec), 0)

    def plus(self, other: Jet) -> Jet:
        return Jet(self.value + other.value, self.slope + other.slope)

    def times(self, other: Jet) -> Jet:
        return Jet(self.value * other.value, self.slope * other.value + self.value * other.slope)

    def reciprocal(self) -> Jet:
        inverse = 1 / self.value
        return Jet(inverse, -self.slope * inverse * inverse)


class Ratio(Arithmetic):
    """A rational function of t with exact coefficients."""

    def __init__(self, top: Polynomial, bottom: Polynomial) -> None:
        self.top, self.bottom = trim(top), trim(bottom)

    def lift(self, other: Any) -> Ratio:
        return other if isinstance(other, Ratio) else Ratio([Fraction(other)], [Fraction(1)])

    def plus(self, other: Ratio) -> Ratio:
        if self.bottom == other.bottom:
            return Ratio(add(self.top, other.top), self.bottom)
        top = add(multiply(self.top, other.bottom), multiply(other.top, self.bottom))
        return Ratio(top, multiply(self.bottom, other.bottom))

    def times(self, other: Ratio) -> Ratio:
        if self.top == other.bottom:  # spares a long division of common factors
            return Ratio(other.top, self.bottom)
        if self.bottom == other.top:
            return Ratio(self.top, other.bottom)
        return Ratio(multiply(self.top, other.top), multiply(self.bottom, other.bottom))

    def reciprocal(self) -> Ratio:
        return Ratio(self.bottom, self.top)

    def reduced(self) -> Ratio:
        top, bottom = self.top, self.bottom
        while top[0] == bottom[0] == 0:
            top, bottom = top[1:], bottom[1:]
        factor = common_factor(top, bottom)
        return Ratio(divide(top, factor)[0], divide(bottom, factor)[0])

    def series(self, order: int) -> Polynomial:
        """Coefficients of t⁰ to t^order."""
        return times_series(self.top, inverse_series(self.bottom, order), order)


# --- exact power series --------------------------------------------------------------------------------------------


def times_series(a: Polynomial, b: Polynomial, order: int) -> Polynomial:
    return (multiply(a[: order + 1], b[: order + 1]) + [Fraction(0)] * (order + 1))[: order + 1]


def inverse_series(a: Polynomial, order: int) -> Polynomial:
    result = [1 / Fraction(a[0])]
    for k in range(1, order + 1):
        result.append(-sum(a[j] * result[k - j] for j in range(1, min(k, len(a) - 1) + 1)) / a[0])
    return result


def in_powers_of(a: Polynomial, s: Polynomial, order: int) -> Polynomial:
    """The coefficients b of a = Σ b_k s^k, for s vanishing to first order."""
    rest, power, result = times_series(a, [Fraction(1)], order), [Fraction(1)], []
    for k in range(order + 1):
        power = times_series(power, [Fraction(1)], order)
        result.append(rest[k] / power[k])
        rest = [x - result[k] * y for x, y in zip(rest, power, strict=True)]
        power = times_series(power, s, order)
    return result


def moments_of(cumulants: Polynomial) -> Polynomial:
    """m_n = Σ_s κ_s [x^(n-s)] M(x)^s; both lists start at index 1."""
    moments = [Fraction(1)]
    for n in range(1, len(cumulants) + 1):
        total, power = Fraction(0), [Fraction(1)]
        for s in range(1, n + 1):
            power = times_series(power, moments, n)
            total += cumulants[s - 1] * power[n - s]
        moments.append(total)
    return moments[1:]


def cumulants_of(moments: Polynomial) -> Polynomial:
    cumulants: Polynomial = []
    for n in range(1, len(moments) + 1):
        cumulants.append(moments[n - 1] - moments_of([*cumulants, Fraction(0)])[n - 1])
    return cumulants


# --- the laws as built from their factors: the second route --------------------------------------------------------


def fixed_point(step: Callable[[complex], complex], start: complex) -> complex:
    """Damped iteration to the Denjoy-Wolff point."""
    point = start
    for _ in range(100_000):
        new = (point + step(point)) / 2
        if abs(new - point) <= 2e-15 * abs(new):
            return new
        point = new
    moved = abs(step(point) / point - 1)
    if moved > 1e-12:
        raise ArithmeticError(f"the iteration did not settle: {moved}")
    return point


class Law:
    """Moments exactly, atoms, and the Cauchy transform in the upper half-plane in double precision."""

    def moments(self) -> Polynomial:
        return moments_of(self.cumulants())

    def cumulants(self) -> Polynomial:
        return cumulants_of(self.moments())

    def cauchy(self, z: complex) -> complex:
        raise NotImplementedError

    def atoms(self) -> dict[Fraction, Fraction]:
        return {}

    def kernel(self) -> Fraction:
        return self.atoms().get(Fraction(0), Fraction(0))


class Points(Law):
    def __init__(self, weights: dict[Any, Any]) -> None:
        self.weights = {Fraction(a): Fraction(w) for a, w in weights.items()}

    def moments(self) -> Polynomial:
        return [sum(w * a**k for a, w in self.weights.items()) for k in range(1, MOMENTS + 1)]

    def cauchy(self, z: complex) -> complex:
        return sum(float(w) / (z - float(a)) for a, w in self.weights.items())

    def atoms(self) -> dict[Fraction, Fraction]:
        return self.weights


class Semicircle(Law):
    def __init__(self, variance: Fraction) -> None:
        self.variance = variance

    def cumulants(self) -> Polynomial:
        return [self.variance if k == 2 else Fraction(0) for k in range(1, MOMENTS + 1)]

    def cauchy(self, z: complex) -> complex:
        edge = 2 * math.sqrt(self.variance)
        return 2 / (z + cmath.sqrt(z - edge) * cmath.sqrt(z + edge))


class Marchenko(Law):
    def __init__(self, ratio: Fraction, mean: Fraction = Fraction(1)) -> None:
        self.ratio, self.mean = ratio, mean

    def cumulants(self) -> Polynomial:
        return [self.ratio ** (k - 1) * self.mean**k for k in range(1, MOMENTS + 1)]

    def cauchy(self, z: complex) -> complex:
        c, v = float(self.ratio), float(self.mean)
        low, high = v * (1 - math.sqrt(c)) ** 2, v * (1 + math.sqrt(c)) ** 2
        return 2 / (z - v * (1 - c) + cmath.sqrt(z - low) * cmath.sqrt(z - high))

    def atoms(self) -> dict[Fraction, Fraction]:
        return {Fraction(0): 1 - 1 / self.ratio} if self.ratio > 1 else {}

    def r_transform(self, g: complex) -> complex:
        c, v = float(self.ratio), float(self.mean)
        return v / (1 - c * v * g)


class Sum(Law):
    """Two laws: ω₁ = z + h₂(z + h₁(ω₁)), h(ω) = 1/G(ω) - ω."""

    def __init__(self, first: Law, second: Law) -> None:
        self.first, self.second = first, second

    def cumulants(self) -> Polynomial:
        return [x + y for x, y in zip(self.first.cumulants(), self.second.cumulants(), strict=True)]

    def cauchy(self, z: complex) -> complex:
        def step(point: complex) -> complex:
            other = z + 1 / self.first.cauchy(point) - point
            return z + 1 / self.second.cauchy(other) - other

        return self.first.cauchy(fixed_point(step, z))

    def atoms(self) -> dict[Fraction, Fraction]:
        pairs = itertools.product(self.first.atoms().items(), self.second.atoms().items())
        return {a + b: v + w - 1 for (a, v), (b, w) in pairs if v + w > 1}


class Divisible(Law):
    """Freely infinitely divisible: g = 1/(z - R(g)) maps the lower half-plane to itself."""

    def __init__(self, cumulants: Polynomial, r_transform: Callable[[complex], complex], kernel: Fraction) -> None:
        self.sequence, self.r_transform, self.weight = cumulants, r_transform, kernel

    def cumulants(self) -> Polynomial:
        return self.sequence

    def cauchy(self, z: complex) -> complex:
        return fixed_point(lambda g: 1 / (z - self.r_transform(g)), 1 / z)

    def atoms(self) -> dict[Fraction, Fraction]:
        return {Fraction(0): self.weight} if self.weight > 0 else {}


class Product(Law):
    """Two laws on the half-line: z₁ = z k₂(z₂)/z₂, z₂ = z k₁(z₁)/z₁, k(z) = zG/(zG - 1)."""

    def __init__(self, first: Law, second: Law) -> None:
        self.first, self.second = first, second
        self.last: complex | None = None

    def moments(self) -> Polynomial:
        transform = [Fraction(1)]
        for law in (self.first, self.second):
            psi = [Fraction(0), *law.moments()]
            chi = in_powers_of([Fraction(0), Fraction(1)], psi, MOMENTS)
            transform = times_series(transform, times_series(chi[1:], [Fraction(1), Fraction(1)], MOMENTS), MOMENTS)
        chi = [Fraction(0), *times_series(transform, inverse_series([Fraction(1), Fraction(1)], MOMENTS), MOMENTS)]
        return in_powers_of([Fraction(0), Fraction(1)], chi, MOMENTS)[1:]

    def cauchy(self, z: complex) -> complex:
        def ratio(law: Law, point: complex) -> complex:
            g = law.cauchy(point)
            return g / (point * g - 1)

        def step(point: complex) -> complex:
            return z * ratio(self.second, z * ratio(self.first, point))

        point = fixed_point(step, self.last or z)
        self.last = point
        return point * self.first.cauchy(point) / z

    def atoms(self) -> dict[Fraction, Fraction]:
        weight = max(self.first.kernel(), self.second.kernel())
        result = {Fraction(0): weight} if weight > 0 else {}
        pairs = itertools.product(self.first.atoms().items(), self.second.atoms().items())
        return result | {a * b: v + w - 1 for (a, v), (b, w) in pairs if a and b and v + w > 1}


class Noise(Law):
    """Rectangular noise: with B = 1 - s c g, the fixed point g = B G_μ(B² z - s (1-c) B)."""

    def __init__(self, signal: Law, variance: Fraction, ratio: Fraction) -> None:
        self.signal, self.variance, self.ratio = signal, variance, ratio

    def moments(self) -> Polynomial:
        one, c = Fraction(1), self.ratio
        y = [Fraction(0), *self.signal.moments()]
        w = times_series(multiply(add([one], y), add([one], [c * x for x in y])), [Fraction(0), one], MOMENTS)
        y = in_powers_of(y, w, MOMENTS)  # y as a series in w; noise adds s w
        y[1] += self.variance
        z = multiply(add([one], y), add([one], [c * x for x in y]))  # times w
        return in_powers_of(y, [Fraction(0), *inverse_series(z, MOMENTS)], MOMENTS)[1:]

    def cauchy(self, z: complex) -> complex:
        s, c = float(self.variance), float(self.ratio)

        def step(g: complex) -> complex:
            factor = 1 - s * c * g
            return factor * self.signal.cauchy(factor * (factor * z - s * (1 - c)))

        g = fixed_point(step, 1 / z)
        if g.imag > 0 or (z * g).imag > 0:
            raise ArithmeticError("not the Cauchy transform of a law on the half-line")
        return g

    def check(self) -> None:
        """First two moments from the matrix: E(A + N)(A + N)ᵀ and the planar pairings of its square."""
        s, c = self.variance, self.ratio
        (first, second, *_), result = self.signal.moments(), self.moments()
        if result[0] != first + s or result[1] != second + 2 * s * (1 + c) * first + s**2 * (1 + c):
            raise ArithmeticError("the moments of the noise are not those of the matrix")


class Power(Law):
    """Free additive power t ≥ 1: ω = z + (t - 1) h(ω)."""

    def __init__(self, law: Law, time: Fraction) -> None:
        self.law, self.time = law, time

    def cumulants(self) -> Polynomial:
        return [self.time * x for x in self.law.cumulants()]

    def cauchy(self, z: complex) -> complex:
        more = float(self.time) - 1
        point = fixed_point(lambda p: z + more * (1 / self.law.cauchy(p) - p), z)
        return self.law.cauchy(point)

    def atoms(self) -> dict[Fraction, Fraction]:
        t = self.time
        return {t * a: t * w - t + 1 for a, w in self.law.atoms().items() if t * w > t - 1}


# --- the laws as curves: the first route ---------------------------------------------------------------------------


@dataclass
class Case:
    """One law: `curve` takes t to (z, G), `law` is the same from its factors."""

    name: str
    text: str
    law: Law
    curve: Callable[[Any], tuple[Any, Any]]
    rational: bool = True


def noisy(y: Any, w: Any, s: Fraction, c: Fraction) -> tuple[Any, Any]:
    more = y + s * w
    z = (1 + more) * (1 + c * more) / w
    return z, w / (1 + c * more)


def free_sum(laws: list[Marchenko]) -> Law:
    cumulants = [sum(x) for x in zip(*(law.cumulants() for law in laws), strict=True)]
    kernel = 1 - sum((1 / law.ratio for law in laws), Fraction(0))  # a Poisson law of the total rate
    return Divisible(cumulants, lambda g: sum(law.r_transform(g) for law in laws), kernel)


def cases() -> list[Case]:
    half, third, one = Fraction(1, 2), Fraction(1, 3), Fraction(1)
    mp_half = Marchenko(half)
    noise = Fraction(3, 10)
    root, excess = Fraction(math.sqrt(0.3)), Fraction(math.e - 2)

    def from_transform(r: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, Any]]:
        return lambda g: (r(g) + 1 / g, g)

    def from_ratios(*ratios: Fraction) -> Callable[[Any], tuple[Any, Any]]:
        """Product of MP(c): z = (1+u) Π (1 + c u)/u, G = (1+u)/z."""

        def curve(u: Any) -> tuple[Any, Any]:
            product = functools.reduce(lambda p, c: p * (1 + c * u), ratios[1:], 1 + ratios[0] * u)
            return (1 + u) * product / u, u / product

        return curve

    def subordinate(weights: dict[int, Fraction], rest: Callable[[Any, Any], tuple[Any, Any]]) -> Any:
        """t = 1/ω, and ω and zG - 1 of the point masses passed on."""

        def curve(t: Any) -> tuple[Any, Any]:
            if isinstance(t, Jet):  # the same, faster
                u = Jet(mp.mpc(0), mp.mpc(0))
                for a, w in weights.items():
                    inverse, weight = 1 / (1 - a * t.value), converted(w * a, mp.mp.prec)
                    u.value += weight * t.value * inverse
                    u.slope += weight * inverse * inverse * t.slope
            else:
                u = functools.reduce(lambda s, a: s + weights[a] * a * t / (1 - a * t), weights, 0 * t)
            return rest(1 / t, u)

        return curve

    def sampled(ratio: Fraction) -> Callable[[Any, Any], tuple[Any, Any]]:
        return lambda point, u: (point * (1 + ratio * u), (1 + u) / (1 + ratio * u) / point)

    def powered(time: Fraction) -> Callable[[Any, Any], tuple[Any, Any]]:
        return lambda point, u: (time * point - (time - 1) * point / (1 + u), (1 + u) / point)

    def product_with_semicircle(u: Any) -> tuple[Any, Any]:
        point, g = from_ratios(half, half)(u)
        return point + Fraction(1, 4) * g, g

    def semicircular(variance: Fraction) -> Callable[[Any, Any], tuple[Any, Any]]:
        return lambda point, u: (point + variance * (1 + u) / point, (1 + u) / point)

    six = [(half, one), (third, Fraction(2)), (Fraction(2), half), (Fraction(3, 4), third)]
    six += [(Fraction(1, 5), Fraction(3)), (Fraction(3, 2), Fraction(1, 4))]
    sixty = {a: Fraction(1, 60) for a in range(1, 61)}
    projection = {0: Fraction(4, 5), 1: Fraction(1, 5)}
    jumps = {1: Fraction(3, 10), 5: Fraction(7, 10)}
    jump_cumulants = [half * sum(w * a**k for a, w in jumps.items()) for k in range(1, MOMENTS + 1)]
    product = Product(mp_half, mp_half)

    def mp_transform(g: Any, c: Fraction, v: Fraction = one) -> Any:
        return v / (1 - c * v * g)

    def jump_transform(g: Any) -> Any:
        return sum(half * w * a / (1 - a * g) for a, w in jumps.items())

    def jump_transform_of_number(g: complex) -> complex:
        return 0.5 * sum(float(w) * a / (1 - a * g) for a, w in jumps.items())

    return [
        Case(
            "sc_mp",
            "SC(1) ⊞ MP(1/2)",
            Sum(mp_half, Semicircle(one)),
            from_transform(lambda g: g + mp_transform(g, half)),
        ),
        Case("mp_mp", "MP(1/2) ⊠ MP(1/2)", product, from_ratios(half, half)),
        Case("mp1_mp1", "MP(1) ⊠ MP(1)", Product(Marchenko(one), Marchenko(one)), from_ratios(one, one)),
        Case(
            "mp_mp_noise",
            "MP(1/2) ⊠ MP(1/2), then rectangular noise of variance 3/10 and ratio 1/2",
            Noise(product, noise, half),
            lambda y: noisy(y, y / (1 + half * y), noise, half),
        ),
        Case(
            "mp3_noise",
            "MP(1/2) ⊠ MP(1/2) ⊠ MP(1/2), then rectangular noise of variance 3/10 and ratio 1/2",
            Noise(Product(mp_half, Product(mp_half, mp_half)), noise, half),
            lambda y: noisy(y, y / ((1 + half * y) * (1 + half * y)), noise, half),
        ),
        Case(
            "mp_mp_sc",
            "(MP(1/2) ⊠ MP(1/2)) ⊞ SC(1/4)",
            Sum(Semicircle(Fraction(1, 4)), Product(mp_half, mp_half)),
            product_with_semicircle,
        ),
        Case(
            "six_mps",
            "MP(1/2, 1) ⊞ MP(1/3, 2) ⊞ MP(2, 1/2) ⊞ MP(3/4, 1/3) ⊞ MP(1/5, 3) ⊞ MP(3/2, 1/4)",
            free_sum([Marchenko(c, v) for c, v in six]),
            from_transform(lambda g: sum(mp_transform(g, c, v) for c, v in six)),
        ),
        Case(
            "mp_atoms",
            "MP(1/2) ⊠ (atoms 1, 2, …, 60 of weight 1/60 each)",
            Product(mp_half, Points(sixty)),
            subordinate(sixty, sampled(half)),
        ),
        Case(
            "irrational",
            "MP(math.sqrt(.3)) ⊞ SC(math.e - 2), the floats taken exactly",
            Sum(Marchenko(root), Semicircle(excess)),
            from_transform(lambda g: excess * g + mp_transform(g, root)),
            False,
        ),
        Case(
            "irrational_product",
            "MP(math.sqrt(.3)) ⊠ MP(1/2), then rectangular noise of variance math.e - 2 and ratio math.sqrt(.3), "
            "the floats taken exactly",
            Noise(Product(Marchenko(root), mp_half), excess, root),
            lambda y: noisy(y, y / (1 + half * y), excess, root),
            False,
        ),
        Case(
            "atom_sum",
            "(atoms {0: 4/5, 1: 1/5}) ⊞ the same",
            Sum(Points(projection), Points(projection)),
            subordinate(projection, powered(Fraction(2))),
        ),
        Case(
            "mp2_mp2",
            "MP(2) ⊠ MP(3/2)",
            Product(Marchenko(Fraction(2)), Marchenko(Fraction(3, 2))),
            from_ratios(Fraction(2), Fraction(3, 2)),
        ),
        Case(
            "compound",
            "compound free Poisson of rate 1/2 and jumps {1: 3/10, 5: 7/10}",
            Divisible(jump_cumulants, jump_transform_of_number, 1 - half),
            from_transform(jump_transform),
        ),
        Case(
            "power",
            "free additive power 5/2 of (atoms {-1: 1/2, 2: 1/2})",
            Power(Points({-1: half, 2: half}), Fraction(5, 2)),
            subordinate({-1: half, 2: half}, powered(Fraction(5, 2))),
        ),
        Case(
            "kernel_two_intervals",
            "(atoms {1: 1/2, 10: 1/2}) ⊠ MP(1/20)",
            Product(Marchenko(Fraction(1, 20)), Points({1: half, 10: half})),
            subordinate({1: half, 10: half}, sampled(Fraction(1, 20))),
        ),
        Case(
            "cubic_cusp_near",
            "(atoms {-1: 1/2, 1: 1/2}) ⊞ SC(9/10)",
            Sum(Points({-1: half, 1: half}), Semicircle(Fraction(9, 10))),
            subordinate({-1: half, 1: half}, semicircular(Fraction(9, 10))),
        ),
    ]


class Curve:
    def __init__(self, case: Case) -> None:
        self.case = case
        z, g = case.curve(Ratio([Fraction(0), Fraction(1)], [Fraction(1)]))
        self.z, self.g = z.reduced(), g.reduced()
        if self.z.bottom[0] != 0 or self.z.top[0] == 0 or self.z.bottom[1] == 0:
            raise ArithmeticError("t = 0 is not a simple pole of z")
        self.lead = Fraction(self.z.top[0]) / self.z.bottom[1]  # of z t
        self.scale = 2 * float(max(abs(m) ** (1 / k) for k, m in enumerate(map(float, case.law.moments()), 1)))

    def moments(self) -> Polynomial:
        order = MOMENTS + 1
        s = Ratio(self.z.bottom, self.z.top).series(order)
        product = (self.z * self.g).reduced()
        return in_powers_of(product.series(order), s, order)[1 : MOMENTS + 1]

    def solve(self, z: Any, t: Any, digits: int) -> tuple[Any, Any, list[Any]]:
        """Newton's method for z(t) = z from t to that many digits; dt/dz and the sizes of the steps."""
        steps = []
        for _ in range(60):
            there = self.case.curve(Jet(t, 1))[0]
            step = (there.value - z) / there.slope
            t -= step
            steps.append(abs(step))
            if steps[-1] <= abs(t) * mp.mpf(10) ** -digits:
                break
        return t, 1 / there.slope, steps

    def parameter(self, z: Any, digits: int, angle: Any = None, working: int = 26) -> Any:
        """The physical t at z, in the upper half-plane or on the axis, along the ray of that angle from z."""
        direction = mp.mpc(0, 1) if angle is None else mp.expj(angle)
        radius = mp.mpf(200) * (self.scale + abs(z))
        near = mp.mpf(self.scale) * mp.mpf(10) ** -7
        with mp.workdps(working):
            point = z + radius * direction
            guess = converted(self.lead, mp.mp.prec) / point
            t, slope, _ = self.solve(point, guess, working // 2)  # the last step doubles the digits
            if abs(t / guess - 1) > 0.1:
                raise ArithmeticError(f"no start at z = {point}")
            factor = mp.mpf("0.5")
            while radius > 0:
                target = mp.mpf(0) if radius < near else radius * factor
                goal = z + target * direction
                if target == 0:
                    predicted = t + slope * (goal - point)
                else:
                    predicted = t * mp.exp(slope * point / t * mp.log(goal / point))  # exact for a power law
                new, new_slope, steps = self.solve(goal, predicted, working // 2)
                tiny = abs(t) * mp.mpf(10) ** -(working // 2)
                good = abs(new - predicted) <= 0.1 * abs(new - t) + tiny
                good = good and (steps[0] <= tiny or len(steps) < 3 or steps[1] <= 0.1 * steps[0])
                if good:
                    t, slope, point, radius = new, new_slope, goal, target
                    factor = max(mp.mpf("0.1"), factor**2)
                elif target == 0:
                    near /= 100
                else:
                    factor = mp.sqrt(factor)
                if factor > 1 - mp.mpf(10) ** -7 or near < mp.mpf(10) ** -22:
                    raise ArithmeticError(f"continuation stuck at {mp.nstr(point, 20)}")
        with mp.workdps(digits + 10):
            return self.solve(z, t, digits)[0]

    def follow(self, start: Any, t: Any, goal: Any) -> Any:
        """From t at one point of an interval of the support to another point of it, along the axis."""
        point, step = start, goal - start
        slope = 1 / self.case.curve(Jet(t, mp.mpf(1)))[0].slope
        while point != goal:
            target = goal if abs(goal - point) <= abs(step) else point + step
            predicted = t + slope * (target - point)
            new, new_slope, steps = self.solve(target, predicted, mp.mp.dps // 2)
            tiny = abs(t) * mp.mpf(10) ** -(mp.mp.dps // 2)
            sure = abs(new - predicted) <= 0.1 * abs(new - t) + tiny
            sure = sure and (steps[0] <= tiny or len(steps) < 3 or steps[1] <= 0.1 * steps[0])
            if sure and mp.im(self.case.curve(Jet(new, mp.mpf(1)))[1].value) < 0:
                t, slope, point, step = new, new_slope, target, 2 * step
            else:
                step /= 2
                if abs(step) < self.scale * mp.mpf(10) ** -12:
                    raise ArithmeticError(f"stuck on the axis at {mp.nstr(point, 20)}")
        return t

    def cauchy(self, z: Any, digits: int, angle: Any = None, working: int = 26) -> Any:
        t = self.parameter(z, digits, angle, working)
        with mp.workdps(digits + 10):
            return self.case.curve(Jet(t, 1))[1].value

    def checked(self, z: Any) -> Any:
        """The Cauchy transform along two paths, in two precisions."""
        with mp.workdps(MORE_DIGITS + 10):
            z = mp.mpmathify(z)
        first = self.cauchy(z, DIGITS)
        second = self.cauchy(z, MORE_DIGITS, mp.pi / 3 if mp.re(z) < self.scale / 4 else 2 * mp.pi / 3, 34)
        with mp.workdps(MORE_DIGITS):
            same_real = agree(mp.re(first), mp.re(second), abs(second))
            imaginary = (mp.im(first), mp.im(second))
            if not same_real or not agree(*imaginary, abs(imaginary[1]) + abs(second) * mp.mpf(10) ** -10):
                raise ArithmeticError(f"{self.case.name}: two paths disagree at {mp.nstr(z, 20)}")
        return second

    def density(self, x: Any, digits: int) -> Any:
        """Zero where the imaginary part is rounding."""
        g = self.cauchy(x, digits)
        return -mp.im(g) / mp.pi if abs(mp.im(g)) > abs(g) * mp.mpf(10) ** (3 - digits) else mp.mpf(0)

    def critical_values(self) -> list[Any]:
        """Real critical values of z, ascending and distinct."""
        top, bottom = self.z.top, self.z.bottom
        slope = add(multiply(slope_of(top), bottom), [-x for x in multiply(top, slope_of(bottom))])
        if len(top) <= len(bottom) and len(slope) < 2 * len(bottom) - 3:
            raise ArithmeticError("z is critical at t = ∞")
        repeated = common_factor(slope, slope_of(slope))
        critical = integral(divide(slope, repeated)[0])
        values = []
        for low, high in real_roots(critical):
            found = []
            for digits in (DIGITS, MORE_DIGITS):
                with mp.workdps(digits + 200):  # cancellation between coefficients of high degree
                    t = refined(critical, low, high)
                    if abs(mp.polyval(bottom_at(bottom), t)) < mp.mpf(10) ** (-digits - 90):
                        continue  # a multiple pole
                    found.append(mp.polyval(bottom_at(top), t) / mp.polyval(bottom_at(bottom), t))
            if found:
                if not agree(found[0], found[1], max(abs(found[1]), mp.mpf(self.scale) * mp.mpf(10) ** -10)):
                    raise ArithmeticError(f"{self.case.name}: an edge moves with the precision")
                small = abs(found[1]) < mp.mpf(self.scale) * mp.mpf(10) ** (-DIGITS + 10)
                values.append(mp.mpf(0) if small else found[1])
        distinct: list[Any] = []
        for z in sorted(values):
            if not distinct or z - distinct[-1] > self.scale * mp.mpf(10) ** (-AGREE):
                distinct.append(z)
        return distinct

    def edges(self) -> list[tuple[Any, Any]]:
        values = self.critical_values()
        middles = [values[0] - self.scale / 8]
        middles += [a + (b - a) * mp.mpf("0.47") for a, b in itertools.pairwise(values)]  # by symmetry t = ∞ at 1/2
        middles += [values[-1] + self.scale / 8]
        inside = [self.density(x, 20) > 0 for x in middles]
        if inside[0] or inside[-1]:
            raise ArithmeticError("unbounded support")
        changes = [z for z, (left, right) in zip(values, itertools.pairwise(inside), strict=True) if left != right]
        return list(zip(changes[::2], changes[1::2], strict=True))


def agree(first: Any, second: Any, size: Any) -> bool:
    return bool(abs(first - second) <= size * mp.mpf(10) ** -AGREE)


def bottom_at(a: Polynomial) -> list[Any]:
    """Coefficients for polyval, in the working precision."""
    return [mp.mpf(Fraction(x).numerator) / Fraction(x).denominator for x in a[::-1]]


def refined(a: list[int], low: Fraction, high: Fraction) -> Any:
    """The root of a in the isolating interval: bisection, then Newton's method, kept inside the bracket."""
    left, right = (mp.mpf(x.numerator) / x.denominator for x in (low, high))
    if low == high:
        return left
    coefficients, slopes = bottom_at(a), bottom_at(slope_of(a))
    sign = mp.sign(mp.polyval(coefficients, left)) or -mp.sign(mp.polyval(coefficients, right))
    if sign == 0:
        raise ArithmeticError("roots at both ends of an isolating interval")
    t = (left + right) / 2
    for _ in range(2000):
        value = mp.polyval(coefficients, t)
        if value == 0:
            return t
        if mp.sign(value) == sign:
            left = t
        else:
            right = t
        step = value / mp.polyval(slopes, t)
        following = t - step
        if abs(step) <= abs(t) * mp.mpf(10) ** (-mp.mp.dps + 60):
            return following
        if not (left < following < right) or abs(step) > (right - left) / 2:
            following = (left + right) / 2
        t = following
    raise ArithmeticError("a critical point did not settle")


# --- checks --------------------------------------------------------------------------------------------------------


def check_subordination(curve: Curve, edges: list[tuple[Any, Any]]) -> tuple[int, float]:
    """Largest relative difference from the damped iteration near the axis."""
    height = float(edges[-1][1] - edges[0][0]) * 1e-3
    places = [float(a + (b - a) * f) for a, b in edges for f in (0.02, 0.37, 0.81)]
    places += [float(edges[-1][1]) + 100 * height, float(edges[0][0]) - 50 * height]
    worst = 0.0
    for x in places:
        z = complex(x, height)
        g = complex(curve.cauchy(mp.mpc(z), 20))
        worst = max(worst, abs(curve.case.law.cauchy(z) / g - 1))
    if worst > 1e-9:
        raise ArithmeticError(f"{curve.case.name}: {worst} from the subordination iteration")
    return len(places), worst


def check_atoms(curve: Curve, edges: list[tuple[Any, Any]]) -> None:
    atoms = curve.case.law.atoms()
    for a, weight in atoms.items():
        height = mp.mpf(10) ** -9
        found = mp.mpc(0, height) * curve.cauchy(mp.mpc(mp.mpf(a.numerator) / a.denominator, height), 20)
        if abs(found - converted(weight, mp.mp.prec)) > 1e-7:
            raise ArithmeticError(f"{curve.case.name}: atom at {a}: {found} is not {weight}")
        if any(low <= converted(a, mp.mp.prec) <= high for low, high in edges):
            raise ArithmeticError("an atom inside an interval")


def integrals(curve: Curve, low: Any, high: Any) -> list[Any]:
    """∫ x^k ρ(x) dx over one interval, k = 0, …, MOMENTS, halving panels until two Gauss-Legendre rules agree."""
    known: list[tuple[Any, Any]] = []  # points of the axis and their t, ascending
    rule = GaussLegendre(mp.mp)

    def integrands(angle: Any) -> list[Any]:
        if low == 0:  # the hard edge: G is analytic in x^(1/3)
            s = mp.sin(angle / 2)
            x, slope = high * s**3, high * 3 * s**2 * mp.cos(angle / 2) / 2
        else:
            x, slope = low + (high - low) * mp.sin(angle / 2) ** 2, (high - low) / 2 * mp.sin(angle)
        if known:
            place = bisect.bisect(known, x, key=lambda pair: pair[0])
            near = min(known[max(place - 1, 0) : place + 1], key=lambda pair: abs(pair[0] - x))
            t = curve.follow(*near, x)
        else:
            t = curve.parameter(x, 20)
        bisect.insort(known, (x, t), key=lambda pair: pair[0])
        density = -mp.im(curve.case.curve(Jet(t, mp.mpf(1)))[1].value) / mp.pi
        return [x**k * density * slope for k in range(MOMENTS + 1)]

    def panel(left: Any, right: Any) -> list[Any]:
        totals = [mp.mpf(0)] * (MOMENTS + 1)
        for angle, weight in sorted(rule.get_nodes(left, right, degree=4, prec=mp.mp.prec)):
            totals = [total + weight * value for total, value in zip(totals, integrands(angle), strict=True)]
        return totals

    totals = [mp.mpf(0)] * (MOMENTS + 1)
    todo = [(mp.mpf(0), +mp.pi, panel(mp.mpf(0), +mp.pi))]
    while todo:
        left, right, coarse = todo.pop()
        middle = (left + right) / 2
        halves = [(left, middle, panel(left, middle)), (middle, right, panel(middle, right))]
        fine = [a + b for a, b in zip(halves[0][2], halves[1][2], strict=True)]
        sizes = [mp.mpf(10) ** -15 * curve.scale**k for k in range(MOMENTS + 1)]
        if all(abs(a - b) <= size for a, b, size in zip(coarse, fine, sizes, strict=True)):
            totals = [a + b for a, b in zip(totals, fine, strict=True)]
        elif right - left < 1e-4:
            raise ArithmeticError(f"{curve.case.name}: the quadrature did not settle")
        else:
            todo += halves
    return totals


def check_integrals(curve: Curve, edges: list[tuple[Any, Any]]) -> float:
    """Largest relative error of mass and moments of the density."""
    atoms, wanted = curve.case.law.atoms(), [Fraction(1), *curve.case.law.moments()]
    with mp.workdps(24):
        parts = [integrals(curve, low, high) for low, high in edges]
        totals = [sum(column) for column in zip(*parts, strict=True)]
        for a, w in atoms.items():
            for k in range(MOMENTS + 1):
                totals[k] += converted(w * a**k, mp.mp.prec)
        worst = 0.0
        for k, (found, exact) in enumerate(zip(totals, wanted, strict=True)):
            size = max(abs(exact), Fraction(curve.scale) ** k / 2**k)
            worst = max(worst, float(abs(found - converted(exact, mp.mp.prec)) / converted(size, mp.mp.prec)))
    if worst > 1e-12:
        raise ArithmeticError(f"{curve.case.name}: mass or a moment is off by {worst}")
    return worst


def check_closed_forms(name: str, x: Any, density: Any) -> bool:
    """MP(1) ⊠ MP(1) and two projections of trace 1/5."""
    with mp.workdps(DIGITS):
        if name == "mp1_mp1":
            # z = (1+u)³/u: q = 1 + u solves q³ - x q + x = 0, by Cardano's formula
            shift = mp.sqrt(mp.mpf(x) ** 2 / 4 - mp.mpf(x) ** 3 / 27)
            p, q = mp.cbrt(mp.mpf(x) / 2 + shift), mp.cbrt(mp.mpf(x) / 2 - shift)
            exact = mp.sqrt(3) / 2 * (p - q) / (mp.pi * x)
        elif name == "atom_sum":
            square = (mp.mpf(x) - mp.mpf(1) / 5) * (mp.mpf(9) / 5 - x)
            exact = mp.sqrt(square) / (mp.pi * x * (2 - mp.mpf(x)))
        else:
            return False
        if not agree(exact, density, exact):
            raise ArithmeticError(f"{name}: {mp.nstr(density, 20)} at {x} is not {mp.nstr(exact, 20)}")
    return True


# --- the file ------------------------------------------------------------------------------------------------------


def written(value: Any) -> str:
    with mp.workdps(MORE_DIGITS):
        return mp.nstr(value, WRITTEN)


def fractions_of_interval(intervals: int) -> list[float]:
    inner = [0.01, 0.04, 0.1, 0.17, 0.25, 0.33, 0.41, 0.47, 0.53, 0.6, 0.66, 0.72, 0.78, 0.84, 0.89, 0.93, 0.96, 0.99]
    if intervals > 1:
        inner = [0.02, 0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 0.97]
    return [1e-6, 1e-3, *inner, 0.999, 0.999999]


def reference(case: Case) -> tuple[dict[str, Any], str]:
    start = time.perf_counter()
    curve = Curve(case)
    moments = curve.moments()
    if moments != case.law.moments():
        raise ArithmeticError(f"{case.name}: the moments by two routes differ")
    if isinstance(case.law, Noise):
        case.law.check()
    edges = curve.edges()
    low, high = edges[0][0], edges[-1][1]
    span = high - low

    points, closed = [], 0
    for a, b in edges:
        for fraction in fractions_of_interval(len(edges)):
            x = float(a + (b - a) * mp.mpf(fraction))
            density = -mp.im(curve.checked(x)) / mp.pi
            if not (a < x < b and density > 0):
                raise ArithmeticError(f"{case.name}: no density at {x}")
            closed += check_closed_forms(case.name, x, density)
            points.append({"x": x, "pdf": written(density)})

    atoms = case.law.atoms()
    masses = [converted(a, mp.mp.prec) for a in atoms]
    places = [low - 10 * span, low - span / 7, low - span / 1000, high + span / 1000, high + span / 7, high + 10 * span]
    for (_, left), (right, _) in itertools.pairwise(edges):
        places += [left + (right - left) * mp.mpf(f) for f in (0.01, 0.3, 0.8)]
    places += [(low + a) / 2 for a in masses if a < low]
    outside = []
    places = [x for x in places if all(abs(x - a) > span / 5000 for a in masses)]
    for x in sorted(map(float, places)):
        g = curve.checked(x)
        if abs(mp.im(g)) > abs(g) * mp.mpf(10) ** -(AGREE + 8):
            raise ArithmeticError(f"{case.name}: {x} is not outside")
        outside.append({"x": x, "cauchy": written(mp.re(g))})

    spots = [((low + high) / 2, span / 2), (low + span / 50, span / 1000), (high + span / 5, span / 100)]
    upper = []
    for x, y in spots:
        z = complex(float(x), float(y))
        g = curve.checked(z)
        upper.append({"z": [z.real, z.imag], "cauchy": [written(mp.re(g)), written(mp.im(g))]})

    check_atoms(curve, edges)
    count, subordination = check_subordination(curve, edges)
    quadrature = check_integrals(curve, edges)
    degree = max(len(curve.z.top), len(curve.z.bottom)) - 1
    row = (
        f"{case.name:21}{degree:>4}{len(edges):>5}{len(atoms):>6}{len(points):>7}{len(outside):>5}"
        f"{closed:>7}{count:>5}{subordination:>10.1e}{quadrature:>10.1e}{time.perf_counter() - start:>7.1f}"
    )
    result = {
        "name": case.name,
        "law": case.text,
        "edges": [[written(a), written(b)] for a, b in edges],
        "atoms": [[str(a), str(w)] for a, w in sorted(atoms.items())],
        "points": points,
        "outside": outside,
        "complex": upper,
        "moments": [str(m) if case.rational else written(mp.mpf(m.numerator) / m.denominator) for m in moments],
    }
    return result, row


def main() -> None:
    print(f"values along two paths and in two precisions agree to {AGREE} digits, moments by two routes exactly;")
    print("then: degree, intervals, atoms, densities, points outside, densities by closed form, points and largest")
    print("difference of the subordination iteration, largest error of mass and moments by quadrature, seconds")
    results = []
    for case in cases():
        with mp.workdps(MORE_DIGITS + 10):
            result, row = reference(case)
        results.append(result)
        print(row, flush=True)
    FILE.write_text(json.dumps({"digits": WRITTEN, "cases": results}, indent=1) + "\n")
    print(f"{len(results)} laws written to {FILE.name}")


if __name__ == "__main__":
    main()
