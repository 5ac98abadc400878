"""Polynomials with multiprecision coefficients, lowest degree first; real roots counted by Sturm's theorem."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gequiv._checks import Array
from gequiv.errors import CertificationError
from gequiv.laws.multiprecision import DIGITS, multiprecision

Polynomial = list[Any]


def multiply(a: Polynomial, b: Polynomial) -> Polynomial:
    result = [0] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            result[i + j] += x * y
    return result


def add(a: Polynomial, b: Polynomial) -> Polynomial:
    if len(a) < len(b):
        a, b = b, a
    return [x + b[i] if i < len(b) else x for i, x in enumerate(a)]


def scaled(a: Polynomial, factor: Any) -> Polynomial:
    return [factor * x for x in a]


def subtract(a: Polynomial, b: Polynomial) -> Polynomial:
    return add(a, scaled(b, -1))


def derivative(a: Polynomial) -> Polynomial:
    return [k * a[k] for k in range(1, len(a))]


def evaluate(a: Polynomial, t: Any) -> Any:
    value = a[-1]
    for coefficient in a[-2::-1]:
        value = value * t + coefficient
    return value


def shifted(a: Polynomial, centre: Any, length: Any) -> Polynomial:
    """Coefficients of a(centre + length * delta) in delta."""
    rest = list(a)
    result = []
    power = 1
    while rest:
        for k in range(len(rest) - 2, -1, -1):
            rest[k] = rest[k] + centre * rest[k + 1]
        result.append(rest.pop(0) * power)
        power = power * length
    return result


def to_floats(a: Polynomial) -> Array:
    return np.array([float(x) for x in a])


def to_extended(a: Polynomial) -> NDArray[np.longdouble]:
    """The numbers in numpy's extended precision: 64 bits of mantissa on x86, 53 on some platforms."""
    high = [float(x) for x in a]
    low = [float(x - h) for x, h in zip(a, high, strict=True)]
    return np.array(high, dtype=np.longdouble) + np.array(low, dtype=np.longdouble)


def from_extended(x: Any) -> Any:
    """An extended-precision number as a multiprecision one, exactly."""
    high = float(x)
    return multiprecision().mpf(high) + multiprecision().mpf(float(x - np.longdouble(high)))


def horner(coefficients: Any, t: Any) -> Any:
    """Value at t of a float polynomial, or of one polynomial per point when coefficients are (degree + 1, m)."""
    value: Any = np.zeros_like(t) + coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        value = value * t + coefficient
    return value


def horner_with_derivative(coefficients: Any, t: Any) -> tuple[Any, Any]:
    """Value and derivative at t, by Horner's rule."""
    value: Any = np.zeros_like(t) + coefficients[-1]
    slope: Any = np.zeros_like(value)
    for coefficient in coefficients[-2::-1]:
        slope = slope * t + value
        value = value * t + coefficient
    return value, slope


class RealRoots:
    """The real roots of a polynomial without repeated roots, counted by Sturm's theorem on any interval.

    Approximate roots come from a companion matrix in double precision; each is bracketed by a change of sign in
    multiprecision and refined there. On each interval the number found is held against Sturm's count; where they
    differ, the interval is bisected by the count alone.
    """

    def __init__(self, polynomial: Polynomial, digits: int = DIGITS) -> None:
        self._ctx, self._digits = multiprecision(digits), digits
        while polynomial[-1] == 0:
            polynomial = polynomial[:-1]
        self.polynomial = polynomial
        self._chain = _sturm_chain(polynomial)
        self._slope = derivative(polynomial)
        self._counted: dict[Any, int] = {}
        self._candidates = _approximate_real_roots(polynomial)

    def count(self, low: Any, high: Any) -> int:
        """Number of roots in the open interval, whose ends are not roots; None stands for infinity."""
        return self._variations(low, -1) - self._variations(high, 1)

    def within(self, low: Any, high: Any, about: Any = 0) -> list[Any]:
        """The roots in the open interval, ascending, to the digits of the context.

        `about` is a number, itself no root, next to which roots may crowd: they are sought by their distance from it.
        """
        brackets: list[tuple[Any, Any]] = []
        distances = self._candidates
        if about:
            distances = _approximate_real_roots(shifted(self.polynomial, about, 1))
        separators = [(a + b) / 2 for a, b in itertools.pairwise(distances)]
        for k, distance in enumerate(distances):
            reach = 1e-6 * abs(distance)
            near = distance - reach if k == 0 else max(distance - reach, separators[k - 1])
            far = distance + reach if k == len(separators) else min(distance + reach, separators[k])
            near, far = about + self._ctx.mpf(near), about + self._ctx.mpf(far)
            inside = (low is None or near > low) and (high is None or far < high)
            if inside and evaluate(self.polynomial, near) * evaluate(self.polynomial, far) < 0:
                brackets.append((near, far))
        expected = self.count(low, high)
        if len(brackets) != expected:
            # roots too close for the approximate ones to tell apart: if all are near those, look only there
            near, far = self._neighbourhood(low, high)
            brackets = self._isolate(near, far) if self.count(near, far) == expected else self._isolate(low, high)
        return [self._refine(*bracket) for bracket in brackets]

    def _neighbourhood(self, low: Any, high: Any) -> tuple[Any, Any]:
        """A narrow interval about the approximate roots in (low, high), or that one itself if there are none."""
        inside = [t for t in self._candidates if (low is None or t > low) and (high is None or t < high)]
        if not inside:
            return low, high
        near = self._ctx.mpf(inside[0] - 1e-4 * abs(inside[0]))
        far = self._ctx.mpf(inside[-1] + 1e-4 * abs(inside[-1]))
        return near if low is None else max(near, low), far if high is None else min(far, high)

    def _variations(self, point: Any, side: int) -> int:
        key = (point, side if point is None else 0)
        if key not in self._counted:
            self._counted[key] = self._count_variations(point, side)
        return self._counted[key]

    def _count_variations(self, point: Any, side: int) -> int:
        if point is None:
            signs = [p[-1] * (side ** (len(p) - 1)) for p in self._chain]
        else:
            signs = [evaluate(p, point) for p in self._chain]
        signs = [s for s in signs if s != 0]
        return sum(1 for a, b in itertools.pairwise(signs) if (a < 0) != (b < 0))

    def _isolate(self, low: Any, high: Any) -> list[tuple[Any, Any]]:
        ctx = self._ctx
        bound = 2 * max(abs(c / self.polynomial[-1]) ** (ctx.mpf(1) / (len(self.polynomial) - 1 - k))
                        for k, c in enumerate(self.polynomial[:-1]))  # fmt: skip
        low = -bound if low is None else low
        high = bound if high is None else high
        todo, found = [(low, high, self._variations(low, -1), self._variations(high, 1))], []
        for _ in range(4000):
            if not todo:
                break
            a, b, at_a, at_b = todo.pop()
            if at_a - at_b == 1:
                found.append((a, b))
            elif at_a - at_b > 1:
                middle = (a + b) / 2
                at_middle = self._variations(middle, 1)
                todo += [(middle, b, at_middle, at_b), (a, middle, at_a, at_middle)]
        else:
            raise CertificationError(
                "two critical points of the curve cannot be told apart; move the parameters slightly"
            )
        return sorted(found)

    def _refine(self, low: Any, high: Any) -> Any:
        """Newton safeguarded by bisection; a step of half the digits leaves the next one exact to all of them."""
        rising = evaluate(self.polynomial, high) > 0
        t = (low + high) / 2
        half_the_digits = self._ctx.mpf(10) ** -(self._digits // 2 + 2)
        for _ in range(400):
            value = evaluate(self.polynomial, t)
            if value == 0:
                return t
            if (value > 0) == rising:
                high = t
            else:
                low = t
            slope = evaluate(self._slope, t)
            new = t - value / slope if slope != 0 else low
            if not low < new < high:
                new = (low + high) / 2
            elif abs(new - t) <= half_the_digits * abs(new):
                return new - evaluate(self.polynomial, new) / evaluate(self._slope, new)
            t = new
        return t


def _sturm_chain(polynomial: Polynomial) -> list[Polynomial]:
    chain = [polynomial, derivative(polynomial)]
    while len(chain[-1]) > 1:
        remainder = list(chain[-2])
        divisor = chain[-1]
        while len(remainder) >= len(divisor):
            factor = remainder[-1] / divisor[-1]
            offset = len(remainder) - len(divisor)
            for k in range(len(divisor) - 1):
                remainder[offset + k] -= factor * divisor[k]
            remainder.pop()
        while remainder and remainder[-1] == 0:
            remainder.pop()
        if not remainder:
            break
        chain.append(scaled(remainder, -1))
    return chain


def _approximate_real_roots(polynomial: Polynomial) -> list[float]:
    """Real roots in double precision, ascending; the polynomial has a non-zero constant term."""
    coefficients = to_floats([c / polynomial[0] for c in polynomial])
    degree = len(coefficients) - 1
    companion = np.zeros((degree, degree))
    companion[0] = -coefficients[1:]
    companion[np.arange(1, degree), np.arange(degree - 1)] = 1
    inverse = np.linalg.eigvals(companion)
    real = inverse[(np.abs(inverse.imag) < 1e-4 * np.abs(inverse.real))].real
    return sorted(float(1 / value) for value in real if value != 0 and np.isfinite(1 / value))
