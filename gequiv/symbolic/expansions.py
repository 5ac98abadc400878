r"""Closed forms for the right edge of the limit law of attention, derived as series, and a proof of its gap.

Convention. Independent queries and keys, square: :math:`Y = (\beta S + \sigma Z)/\sqrt n`,
:math:`\sigma^2 = e^{\beta^2} - 1 - \beta^2`, one inner dimension of ratio :math:`r = d_k/n`. The right edge of the law
of :math:`Y Y^T` is the value of

.. math:: z(u) = s\,\frac{(1+y)(1+cy)P}{u}, \qquad y = u + q\,\frac uP, \qquad P = \prod_i (1 + u/c_i),
   \qquad q = \frac vs,

with signal variance s, noise variance v and aspect c, at its first critical point u > 0: right of the support G is real
and positive, u runs upwards from 0 as z comes down from infinity, and the law has a square-root edge where dz/du = 0
(see `gequiv.symbolic.curve`). Here :math:`s = \beta^2`, :math:`v = \sigma^2`, c = 1, P = 1 + u/r.

- Small β: :math:`z = \beta^2 F(u, q)` with :math:`q = \beta^2/2 + \beta^4/6 + \ldots`; at q = 0 it is the product of
  two Gaussian matrices, with critical point :math:`u_0 = (\sqrt{r^2 + 8r} - r)/4`, and Newton's method on power series
  gives the rest.
- Large β: with :math:`\tau^2 = e^{\beta^2} - 1` and the share :math:`\rho = \beta^2/\tau^2`, u = ρt,
  :math:`z = \tau^2 H(t, \rho)`; at ρ = 0 it is Marchenko–Pastur, critical at t = 1 with value 4.
- Gap: an identity with positive terms, for any chain and aspect.

Source of the statement about the gap (not of this proof): Hayase, Collins and Karakida 2025.
"""

from __future__ import annotations

import numbers
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import sympy as sp

from gequiv.errors import CertificationError, ParameterError

__all__ = ["EdgeExpansion", "EdgeGap", "edge_gap", "right_edge_large_beta", "right_edge_small_beta"]

_BETA = sp.Symbol("beta", positive=True)
_RATIO = sp.Symbol("r", positive=True)


@dataclass(frozen=True)
class EdgeExpansion:
    """A truncated expansion of the right edge, with what is needed to check it.

    Attributes
    ----------
    coefficients : of ``small**k``, k = 0, 1, …, in units of ``prefactor``.
    critical : coefficients of the critical point, of ``small**k``.
    small : the small quantity, in β.
    prefactor : the common factor of the expansion, in β.
    beta, ratio : the symbol β and the ratio r = d_k/n.
    regime : "small" or "large".
    """

    coefficients: tuple[sp.Expr, ...]
    critical: tuple[sp.Expr, ...]
    small: sp.Expr
    prefactor: sp.Expr
    beta: sp.Symbol
    ratio: sp.Expr
    regime: str

    @property
    def expression(self) -> sp.Expr:
        """The expansion as an expression in β, without the terms that were left out."""
        terms = sum((value * self.small**k for k, value in enumerate(self.coefficients)), sp.Integer(0))
        return sp.Mul(self.prefactor, sp.Add(*sp.Add.make_args(terms)))

    def verify(self) -> None:
        """Puts the series into the equations again: dz/du = 0 and z = edge must hold to every order that is claimed.

        Raises
        ------
        CertificationError : naming the equation and the power where the two sides differ.
        """
        field = _Field(self.regime, self.ratio)
        order = len(self.coefficients)
        critical = [field.element(value) for value in self.critical]
        edge = [field.element(value) for value in self.coefficients]
        top, bottom, slope = _equations(field, critical, order)
        raised = [a - b for a, b in zip(top, _times(edge, bottom), strict=True)]
        for name, series in (("dz/du = 0", slope), ("z(u) = edge", raised)):
            for k, remainder in enumerate(series):
                if remainder != field.zero:
                    raise CertificationError(f"{name} fails at power {k} of the small quantity")


class _Field:
    """The field that the coefficients lie in.

    For small β and a symbol r the rational functions of the critical point u at q = 0: 2u² + ru − r = 0 gives
    r = 2u²/(1−u) and √(r² + 8r) = 4u + r. For a number r the rationals, with that root where it is none of them. For
    large β the rational functions of r.
    """

    def __init__(self, regime: str, r: sp.Expr) -> None:
        self.regime, self._symbol = regime, r
        self._root = sp.sqrt(sp.expand(r**2 + 8 * r))
        self._generator = sp.Dummy("u", positive=True) if regime == "small" else r
        if r.is_Symbol:
            self.domain = sp.QQ.frac_field(self._generator)
        elif regime == "small" and not self._root.is_Rational:
            self.domain = sp.QQ.algebraic_field(self._root)
        else:
            self.domain = sp.QQ
        self.zero, self.one = self.domain.zero, self.domain.one
        self.ratio = self.element(r)
        self.start = self.element((self._root - r) / 4) if regime == "small" else self.one

    def element(self, value: sp.Expr) -> Any:
        if self.regime == "small" and self._symbol.is_Symbol:
            u = self._generator
            ratio = 2 * u**2 / (1 - u)
            value = sp.cancel(sp.together(value.xreplace({self._root: 4 * u + ratio}).xreplace({self._symbol: ratio})))
        return self.domain.from_sympy(sp.sympify(value))

    def expression(self, element: Any) -> sp.Expr:
        value = self.domain.to_sympy(element)
        if self.regime == "large" or not self._symbol.is_Symbol:
            return sp.factor(value)
        # A + B u modulo the quadratic that u solves, A and B rational in r
        u, r = self._generator, self._symbol
        rational = sp.QQ.frac_field(r)
        minimal = sp.Poly(2 * u**2 + r * u - r, u, domain=rational)
        top, bottom = (sp.Poly(part, u, domain=rational) for part in sp.fraction(sp.cancel(value)))
        result = (top * bottom.rem(minimal).invert(minimal)).rem(minimal)
        a, b = result.coeff_monomial(1), result.coeff_monomial(u)
        return sp.factor(sp.cancel(a - b * r / 4)) + sp.factor(sp.cancel(b / 4)) * self._root


def _times(a: list[Any], b: list[Any]) -> list[Any]:
    return [reduce(operator.add, [a[j] * b[i - j] for j in range(i + 1)]) for i in range(min(len(a), len(b)))]


def _equations(field: _Field, point: list[Any], order: int) -> tuple[list[Any], list[Any], list[Any]]:
    """Series in the small quantity e of numerator and denominator of z/prefactor and of the numerator of its slope.

    z/prefactor = B²/(t P) with B = (1+y)P; small β: e = β², P = 1 + t/r, B = (1+t)P + q t, q = (e^e − 1 − e)/e;
    large β: e = ρ, P = 1 + et/r, B = (1+et)P + (1−e)t. Slope: 2B′ tP − B (tP)′ (B itself is positive).
    """
    one, zero, r = field.one, field.zero, field.ratio

    def constant(*values: Any) -> list[Any]:
        return [*values, *[zero] * order][:order]

    def plus(*series: list[Any]) -> list[Any]:
        return [reduce(operator.add, terms) for terms in zip(*series, strict=True)]

    unit = constant(one)
    if field.regime == "small":
        share, rest = unit, constant(zero, *(field.element(1 / sp.factorial(k + 1)) for k in range(1, order + 1)))
    else:
        share, rest = constant(zero, one), constant(one, -one)
    weighted = _times(share, point)
    chain = plus(unit, [value / r for value in weighted])
    chain_slope = [value / r for value in share]
    base = plus(_times(plus(unit, weighted), chain), _times(rest, point))
    base_slope = plus(_times(share, chain), _times(plus(unit, weighted), chain_slope), rest)
    bottom, bottom_slope = _times(point, chain), plus(chain, _times(point, chain_slope))
    rising, falling = _times(base_slope, bottom), _times(base, bottom_slope)
    return _times(base, base), bottom, [a + a - b for a, b in zip(rising, falling, strict=True)]


def _solve(field: _Field, order: int) -> tuple[list[Any], list[Any]]:
    """Series of the critical point and of the edge, one coefficient after the other."""
    zero = field.zero
    flat = _equations(field, [field.start, zero], 2)[2][1]
    rate = _equations(field, [field.start, field.one], 2)[2][1] - flat
    critical = [field.start, *[zero] * (order - 1)]
    for k in range(1, order):
        critical[k] = -_equations(field, critical, order)[2][k] / rate
    top, bottom, _ = _equations(field, critical, order)
    edge: list[Any] = []
    for k in range(order):
        known = reduce(operator.add, [edge[i] * bottom[k - i] for i in range(k)], zero)
        edge.append((top[k] - known) / bottom[0])
    return critical, edge


def _expansion(regime: str, r: sp.Expr, order: int, small: sp.Expr, prefactor: sp.Expr) -> EdgeExpansion:
    field = _Field(regime, r)
    critical, edge = (tuple(map(field.expression, series)) for series in _solve(field, order))
    return EdgeExpansion(edge, critical, small, prefactor, _BETA, r, regime)


def _ratio(value: Any) -> sp.Expr:
    ratio = _positive("ratio", value)
    if not (ratio.is_Rational or (ratio.is_Symbol and ratio != _BETA)):
        raise ParameterError(f"ratio must be a positive rational number or a positive symbol; got {value!r}")
    return ratio


def _terms(name: str, order: Any, minimum: int) -> int:
    if isinstance(order, bool) or not isinstance(order, numbers.Integral) or order < minimum:
        raise ParameterError(f"{name} must be an integer of at least {minimum}; got {order!r}")
    return int(order)


def _positive(name: str, value: Any) -> sp.Expr:
    if isinstance(value, (bool, str)) or value is None:
        raise ParameterError(f"{name} must be a positive number or expression; got {value!r}")
    try:
        expression = sp.sympify(value)
    except (sp.SympifyError, TypeError) as error:
        raise ParameterError(f"{name} must be a positive number or expression; got {value!r}") from error
    if not isinstance(expression, sp.Expr) or expression.is_positive is not True or not expression.is_finite:
        raise ParameterError(f"{name} must be positive (a symbol declared positive=True); got {value!r}")
    return expression.xreplace({number: sp.Rational(str(number)) for number in expression.atoms(sp.Float)})


def right_edge_small_beta(order: Any = 4, ratio: Any = _RATIO) -> EdgeExpansion:
    """Right edge for β → 0 up to β^order; what is left out is of order β^(order+2).

    Parameters
    ----------
    order : highest power of β, at least 2 (only even powers occur).
    ratio : r = d_k/n, a positive rational number or a positive symbol; default the symbol r. From β⁶ on the terms in
        r have the form (A + B√(r² + 8r))/(r−1)^k, which is finite at r = 1: ask for ``ratio=1`` itself there.

    Raises
    ------
    ParameterError : order below 2 or no integer, ratio not positive.

    Examples
    --------
    >>> right_edge_small_beta(2, ratio=1).expression
    27*beta**2/4
    """
    count = _terms("order", order, 2) // 2
    return _expansion("small", _ratio(ratio), count, _BETA**2, _BETA**2)


def right_edge_large_beta(order: Any = 3, ratio: Any = _RATIO) -> EdgeExpansion:
    """Right edge for β → ∞ in powers of ε = β²/(e^{β²} − 1) up to ε^order, in units of e^{β²} − 1.

    The first power is absent: signal and noise of the same total variance differ first at ε², by 4 ε²/r.

    Parameters
    ----------
    order : highest power of ε, at least 0.
    ratio : r = d_k/n, a positive rational number or a positive symbol; default the symbol r.

    Raises
    ------
    ParameterError : order negative or no integer, ratio not positive.

    Examples
    --------
    >>> right_edge_large_beta(2).coefficients
    (4, 0, 4/r)
    """
    count = _terms("order", order, 0) + 1
    total = sp.exp(_BETA**2) - 1
    return _expansion("large", _ratio(ratio), count, _BETA**2 / total, total)


# -- the gap ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EdgeGap:
    """Proof that the right edge is strictly above Marchenko–Pastur's of the same variance.

    Attributes
    ----------
    statement : the inequality, for the right edge x₊ of the law.
    bound : a lower bound of x₊ − (1+√c)² τ² in terms of the critical point u > 0, positive.
    steps : pairs of a text and an equation, in the order of the proof; s is the signal variance, q = noise/signal.
    """

    statement: sp.Basic
    bound: sp.Expr
    steps: tuple[tuple[str, sp.Basic], ...]

    def verify(self) -> None:
        """Checks every step again: an equality must expand to 0 = 0, an inequality to positive terms or squares.

        Raises
        ------
        CertificationError : naming the first step that does not hold.
        """
        for number, (text, relation) in enumerate(self.steps, 1):
            if not _holds(relation):
                raise CertificationError(f"step {number} does not hold: {text} [{relation}]")


def edge_gap(chain: Sequence[Any] | None = None, aspect: Any = 1, ratio: Any = _RATIO) -> EdgeGap:
    """Proof that the right edge lies above (1+√c)²(e^{β²} − 1), 4(e^{β²} − 1) for a square matrix, for every β > 0.

    Parameters
    ----------
    chain : inner dimensions over rows, positive numbers or expressions; default ``[ratio]`` (independent queries and
        keys). At least one: without an inner dimension the law is Marchenko–Pastur itself and there is no gap.
    aspect : rows over columns, c.
    ratio : r = d_k/n, where no chain is given.

    Raises
    ------
    ParameterError : an empty chain, an entry that is not positive.

    Examples
    --------
    >>> gap = edge_gap()
    >>> gap.verify()
    >>> gap.bound
    4*beta**2*u/r
    """
    entries = [ratio] if chain is None else list(chain)
    if not entries:
        raise ParameterError(f"chain must have at least one inner dimension; got {chain!r}, which has no gap")
    inner = [_positive(f"chain[{i}]" if chain is not None else "ratio", value) for i, value in enumerate(entries)]
    c = _positive("aspect", aspect)
    used = {symbol.name for value in (*inner, c) for symbol in value.free_symbols}
    if used & {"u", "s", "q", "b", "y", "beta", "x_+"}:
        raise ParameterError(f"chain and aspect must not use the names u, s, q, b, y, beta, x_+; got {sorted(used)}")
    u, s, b = sp.symbols("u s b", positive=True)
    q = sp.Symbol("q", nonnegative=True)
    edge = sp.Symbol("x_+", positive=True)
    p = sp.prod([1 + u / d for d in inner])
    y = u + q * u / p
    z = s * (1 + y) * (1 + c * y) * p / u
    root = sp.sqrt(c)
    weight = (1 + root) ** 2
    growth = weight * s * sp.expand(p - 1)
    free = sp.Symbol("y", positive=True)
    share = sp.exp(b) - 1 - b
    # as they are written: sympy would turn what it can decide into True
    eq, gt, ge, lt = (partial(kind, evaluate=False) for kind in (sp.Eq, sp.Gt, sp.Ge, sp.Lt))
    steps = (
        (
            "The right edge is the value of z(u) at a critical point: near u = 0 it comes down from infinity,",
            eq(sp.Subs(sp.cancel(u * z), u, 0), s),
        ),
        (
            "and the slope times u² starts from a negative value, so the physical branch is 0 < u < u_b;",
            lt(sp.Subs(sp.cancel(u**2 * sp.diff(z, u)), u, 0), 0),
        ),
        ("z grows again for large u, so the critical point u_b > 0 is there.", gt(_leading(z, u), 0)),
        (
            "For any y the product of the two factors is a square above its lower bound;",
            eq((1 + free) * (1 + c * free) - weight * free, (1 - root * free) ** 2),
        ),
        ("a square is not negative.", ge((1 - root * free) ** 2, 0)),
        (
            "With y = u + q u/P, q = noise/signal, the lower bound is explicit:",
            eq(s * weight * y * p / u, weight * s * (1 + q) + weight * s * (p - 1)),
        ),
        (
            "So z exceeds (1+√c)² times the total variance τ² = s(1+q) by a sum of two terms,",
            eq(z - weight * s * (1 + q), s * p / u * (1 - root * y) ** 2 + weight * s * (p - 1)),
        ),
        ("of which the first is not negative for u > 0,", ge(s * p / u * (1 - root * y) ** 2, 0)),
        ("and the second, expanded, has positive terms only.", gt(growth, 0)),
        (
            "For the exponential score s = b = β² and the noise is e^b − 1 − b: it vanishes at b = 0,",
            eq(sp.Subs(share, b, 0), 0),
        ),
        ("so does its derivative,", eq(sp.Subs(sp.Derivative(share, b), b, 0), 0)),
        ("and its second derivative is positive: q ≥ 0, as was used.", gt(sp.Derivative(share, (b, 2)), 0)),
        ("The total variance is then e^b − 1.", eq(b + share, sp.exp(b) - 1)),
    )
    statement = sp.Gt(edge, weight * (sp.exp(_BETA**2) - 1))
    return EdgeGap(statement, growth.subs(s, _BETA**2), steps)


def _leading(expression: sp.Expr, u: sp.Symbol) -> sp.Expr:
    """Ratio of the leading coefficients of a rational function whose numerator has the higher degree in u."""
    top, bottom = (sp.Poly(part, u) for part in sp.fraction(sp.together(expression)))
    if top.degree() <= bottom.degree():
        raise CertificationError(f"{expression} does not grow without bound in {u}")
    return top.LC() / bottom.LC()


def _holds(relation: sp.Basic) -> bool:
    if relation in (sp.true, True):
        return True
    if not isinstance(relation, (sp.Eq, sp.Gt, sp.Ge, sp.Lt, sp.Le)):
        return False
    difference = relation.lhs.doit() - relation.rhs.doit()
    if isinstance(relation, sp.Eq):
        return bool(sp.expand(sp.cancel(sp.together(difference))) == 0)
    if isinstance(relation, (sp.Lt, sp.Le)):
        difference = -difference
    return _is_positive(difference, strict=isinstance(relation, (sp.Gt, sp.Lt)))


def _is_positive(expression: sp.Expr, *, strict: bool) -> bool:
    """Every factor is an even power of a real expression, or a sum of terms that are not negative (one positive)."""
    sign = True
    for factor in sp.Mul.make_args(sp.factor(expression)):
        base, index = factor.as_base_exp()
        if not strict and index.is_even and base.is_real:
            continue
        terms = sp.Add.make_args(sp.expand(base))
        positive = any(term.is_positive for term in terms) and all(term.is_nonnegative for term in terms)
        negative = any(term.is_negative for term in terms) and all(term.is_nonpositive for term in terms)
        if not positive and not negative:
            return False
        sign = sign != (negative and index.is_odd is True)
        if negative and not index.is_integer:
            return False
    return sign
