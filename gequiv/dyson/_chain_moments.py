"""Moments of the law of `ChainEquation` by power series in multiprecision."""

from __future__ import annotations

from typing import Any

from gequiv.dyson.chain_equation import ChainEquation
from gequiv.errors import CertificationError
from gequiv.laws.multiprecision import multiprecision

_AGREEMENT = 1e-16


def chain_moment(equation: ChainEquation, k: int) -> float:
    """Moment of order k in units of the mean; inf where it leaves the floats."""
    if k == 0:
        return 1.0
    if k == 1:
        return 1.0
    previous = None
    for digits in (30 + k, 60 + 2 * k, 120 + 4 * k, 240 + 8 * k):
        value = _moment(multiprecision(digits), equation, k)
        if previous is not None and abs(value - previous) <= _AGREEMENT * abs(value):
            return float(value)
        previous = value
    raise CertificationError(f"the moment of order {k} did not settle in multiprecision; take a lower order")


def _moment(ctx: Any, equation: ChainEquation, k: int) -> Any:
    mp = ctx.mpf
    strength, rest = (mp(r.numerator) / r.denominator for r in equation.exact_variances)
    total = strength + rest
    share, rest = strength / total, rest / total
    c = mp(equation.aspect.numerator) / equation.aspect.denominator
    product = [mp(1)] + [mp(0)] * (k - 1)  # P(t) to order k - 1
    for group in equation.groups:
        kappa = share * group.ratio.denominator / group.ratio.numerator
        factor = _layer(ctx, group, kappa, k)
        for _ in range(group.count):
            product = _multiply(product, factor)
    # t(w) = w P(t): [w^j] t = [t^{j-1}] P^j / j
    series = [mp(0)] * (k + 1)
    power = [mp(1)] + [mp(0)] * (k - 1)
    for j in range(1, k + 1):
        power = _multiply(power, product)
        series[j] = share * power[j - 1] / j
    series[1] += rest
    top = [1 + series[0], *series[1:k]]
    other = [1 + c * series[0], *[c * value for value in series[1:k]]]
    power = _power(_multiply(top, other), k)
    return sum((j + 1) * series[j + 1] * power[k - 1 - j] for j in range(k)) / k


def _layer(ctx: Any, group: Any, kappa: Any, k: int) -> list[Any]:
    """t/τ(t) to order k - 1, where t = T(τ) = Σ_j kappa^{j-1} <m^j> τ^j."""
    mp = ctx.mpf
    if len(group.raw) == 1:
        zeros = mp(group.total) / group.multiplicities[0]
        return [mp(1), kappa * zeros, *[mp(0)] * (k - 2)][:k]
    mean = sum(mp(v) * n for v, n in zip(group.raw, group.multiplicities, strict=True)) / group.total
    values = [mp(v) / mean for v in group.raw]
    powers = [mp(n) / group.total for n in group.multiplicities]
    ratio = []  # T(τ)/τ
    for j in range(k):
        powers = [p * v for p, v in zip(powers, values, strict=True)]
        ratio.append(kappa**j * sum(powers))
    # Lagrange, for φ = t/τ: [t^n] φ = -1/(n-1) [τ^n] (T/τ)^{-(n-1)}, n >= 2
    result = [mp(1)]
    if k > 1:
        result.append(ratio[1])
    for n in range(2, k):
        result.append(-_power(ratio[: n + 1], 1 - n)[n] / (n - 1))
    return result


def _multiply(a: list[Any], b: list[Any]) -> list[Any]:
    return [sum(a[i] * b[j - i] for i in range(j + 1)) for j in range(len(a))]


def _power(a: list[Any], exponent: int) -> list[Any]:
    """The power of a series with constant term 1, by Euler's recurrence."""
    result = [a[0] ** exponent]
    for n in range(1, len(a)):
        result.append(sum((exponent * i - (n - i)) * a[i] * result[n - i] for i in range(1, n + 1)) / (n * a[0]))
    return result
