r"""The expansion of softmax attention in the fluctuation of its normaliser, with machine-checked orders.

The setting. Rows :math:`q_i, k_j` of independent standard Gaussians in dimension :math:`d_k`,
:math:`S_{ij} = q_i \cdot k_j/\sqrt{d_k}`, and

.. math::
    F_{ij} = e^{\beta S_{ij} - \beta^2/2}, \qquad 1 + \delta_i = \frac1n \sum_j F_{ij}, \qquad
    n A_{ij} = \frac{F_{ij}}{1+\delta_i}, \qquad r_i = |q_i|^2/d_k, \quad \rho_j = |k_j|^2/d_k .

Given :math:`q_i` the scores of row i are independent :math:`N(0, r_i)`, so that every moment is a sum over set
partitions, :math:`E[F_{ij}^m \mid q_i] = e^{-m\beta^2/2} e^{m^2\beta^2 r_i/2}`, followed by one
:math:`\chi^2` integral, :math:`E e^{t r} = (1 - 2t/d_k)^{-d_k/2}`. The moments of :math:`\delta_i` are therefore exact
functions of n and :math:`d_k` (for :math:`d_k` large against :math:`\beta^2`: a moment of order k exists when
:math:`k^2\beta^2 < d_k`), and the expansions in 1/n and :math:`1/d_k` are those of explicit functions.

What is shown. Subtracting the mean and dividing by the normaliser changes :math:`\sqrt n (A - 11^T/n)` by matrices of
rank one and by matrices :math:`\operatorname{diag}(\delta)M` that are small; the Hermite parts of F of degree
:math:`\ell \ge 2` have row covariances whose distance to a multiple of the identity is of order
:math:`n d_k^{-\ell}`. What is left is :math:`(\beta S + \sigma Z)/\sqrt n`,
:math:`\sigma^2 = e^{\beta^2} - 1 - \beta^2`. That a matrix with independent columns and such a covariance acts as
Gaussian noise next to S is a universality theorem, which is quoted and not derived here.

A step holds an equation and the exponents of its leading terms; ``check`` computes the left-hand side again from the
definitions (Gaussian moments, set partitions, integrals, ranks) and compares.

Sources: Hayase, Collins, Karakida 2025 (the linear model and the chain of replacements); Mehler 1866 (Hermite
kernel); Hoffman and Wielandt 1953 (spectra and the Hilbert–Schmidt distance); Lu and Yau 2022, Dubova, Lu, McKenna and
Yau 2023 (universality of the parts of degree two and more).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from numbers import Integral
from typing import Any, TypeAlias

import sympy as sp
from sympy.polys.rings import ring
from sympy.utilities.iterables import partitions

from gequiv.errors import ParameterError

Order: TypeAlias = tuple[tuple[int, int], ...]
"""Exponents (a, b) of the leading terms n^-a d_k^-b, in increasing order of b."""

BETA = sp.Symbol("beta", positive=True)
N = sp.Symbol("n", positive=True)
D = sp.Symbol("d_k", positive=True)
DELTA = sp.Symbol("delta_i", real=True)
_R = sp.Symbol("r_i", positive=True)
_RHO = sp.Symbol("rho_j", positive=True)
_X, _Y, _OVERLAP = sp.Symbol("x", real=True), sp.Symbol("y", real=True), sp.Symbol("tau", real=True)
_F = sp.Symbol("F_ij", positive=True)

# x = 1/n, y = 1/d_k, b = β², w = e^{β²}
_RING, _x, _y, _b, _w = ring("x,y,b,w", sp.QQ)

_MAX_ORDER = 4


@dataclass(frozen=True)
class TaylorStep:
    r"""One step of the expansion.

    Attributes
    ----------
    name : a short name.
    text : what the equation says and why.
    equation : a sympy ``Eq``; the left-hand side names a quantity, the right-hand side is its value.
    order : the exponents (a, b) of the leading terms :math:`n^{-a} d_k^{-b}` of the right-hand side; several where
        they are of equal rank in the proportional limit, empty where the statement has no order.
    kind : ``"expansion"``, ``"moment"``, ``"rank"``, ``"Hilbert-Schmidt norm"`` or ``"operator norm"``.
    """

    name: str
    text: str
    equation: Any
    order: Order
    kind: str
    _derive: Callable[[], Any] = field(repr=False, compare=False)

    def check(self) -> bool:
        """Whether the right-hand side and the order are what a derivation from the definitions gives."""
        derived = self._derive()
        if not _vanishes(self.equation.rhs - derived):
            return False
        return not self.order or self.order == leading_orders(derived)


def _vanishes(expr: Any) -> bool:
    if expr == 0:
        return True
    expr = sp.expand(expr)
    return bool(expr == 0 or sp.simplify(expr) == 0 or sp.simplify(sp.gammasimp(expr.rewrite(sp.gamma))) == 0)


def leading_orders(expr: Any) -> Order:
    r"""The exponents (a, b) of the terms :math:`n^{-a} d_k^{-b}` that lead when n and d_k grow in proportion.

    Computed from the lowest power of ε at :math:`n = 1/(\epsilon\nu), d_k = 1/(\epsilon\kappa)`;
    ``expr`` must be a rational function of n and d_k.

    >>> leading_orders(3 / N + 1 / D + 1 / (N * D))
    ((1, 0), (0, 1))
    """
    epsilon, nu, kappa = sp.symbols("epsilon nu kappa", positive=True)
    scaled = sp.sympify(expr).subs({N: 1 / (epsilon * nu), D: 1 / (epsilon * kappa)}, simultaneous=True)
    scaled = sp.expand(scaled)
    if scaled == 0:
        return ()
    if not scaled.is_rational_function(epsilon):
        raise ParameterError(f"leading_orders needs a rational function of n and d_k; got {expr}")
    low = [_lowest(sp.expand(part), epsilon) for part in sp.fraction(sp.together(scaled))]
    lead = sp.cancel(low[0] / low[1])
    numerator, denominator = sp.fraction(sp.together(lead))
    bottom = sp.Poly(sp.expand(denominator), nu, kappa).monoms()
    if len(bottom) != 1:
        raise ParameterError(f"leading_orders needs an expression that leads with monomials in n and d_k; got {expr}")
    exponents = {(a - bottom[0][0], e - bottom[0][1]) for a, e in sp.Poly(sp.expand(numerator), nu, kappa).monoms()}
    return tuple(sorted(exponents, key=lambda pair: (pair[1], pair[0])))


def _lowest(polynomial: Any, variable: Any) -> Any:
    parts = sp.Poly(polynomial, variable).all_terms()
    exponent, coefficient = next((e[0], c) for e, c in reversed(parts) if c != 0)
    return coefficient * variable**exponent


# ---------------------------------------------------------------------------------------------------------------------
# Exact moments
# ---------------------------------------------------------------------------------------------------------------------


def gaussian_mean(polynomial: Any, variable: Any, variance: Any = 1) -> Any:
    """E p(variable) of a polynomial under N(0, variance), from the moments (2k-1)!! variance^k."""
    total = sp.Integer(0)
    for (exponent,), coefficient in sp.Poly(polynomial, variable).terms():
        if exponent % 2 == 0:
            total += coefficient * sp.factorial2(exponent - 1) * sp.sympify(variance) ** (exponent // 2)
    return sp.expand(total)


def chi_square_mgf(t: Any) -> Any:
    r""":math:`E e^{t r} = (1 - 2t/d_k)^{-d_k/2}` for :math:`r \sim \chi^2_{d_k}/d_k`."""
    return (1 - 2 * t / D) ** (-D / 2)


def _hermite(degree: int, x: Any) -> Any:
    """Probabilists' Hermite polynomial by its recursion."""
    previous, current = sp.Integer(0), sp.Integer(1)
    for k in range(degree):
        previous, current = current, sp.expand(x * current - k * previous)
    return current


def _set_partitions(count: int) -> Iterator[tuple[int, int, int]]:
    """(number of set partitions, blocks, sum of squared block sizes) for every type of partition of count "
    "elements."""
    if count == 0:
        yield 1, 0, 0
        return
    for kind in partitions(count):
        ways = math.factorial(count)
        for size, times in kind.items():
            ways //= math.factorial(size) ** times * math.factorial(times)
        yield ways, sum(kind.values()), sum(times * size**2 for size, times in kind.items())


def _row_moment(a: int, b: int = 0) -> dict[int, Any]:
    r"""E[(1+δ_i)^a F_ij^b] as {s: polynomial in 1/n}, the sum of polynomial · e^{-(a+b)β²/2} E e^{sβ²r/2}.

    Of the a indices t coincide with j; the others fall into blocks at distinct places.
    """
    result: dict[int, Any] = {}
    taken = 1 if b else 0
    for t in range(a + 1 if b else 1):
        for ways, blocks, squares in _set_partitions(a - t):
            weight = _x ** (a - blocks) * ways * math.comb(a, t)
            for k in range(blocks):
                weight = weight * (1 - (k + taken) * _x)
            s = squares + (b + t) ** 2
            result[s] = result.get(s, _RING.zero) + weight
    return result


@cache
def _norm_series(s: int, order: int) -> Any:
    """E e^{sβ²(r-1)/2} as a polynomial in y = 1/d_k up to the given power: exp(Σ_{j≥2} (sβ²)^j y^{j-1}/(2j))."""
    exponent = sum(((s * _b) ** j * _y ** (j - 1) / (2 * j) for j in range(2, order + 2)), _RING.zero)
    total, term = _RING.one, _RING.one
    for k in range(1, order + 1):
        term = _truncated(term * exponent, order) / k
        total += term
    return total


def _truncated(p: Any, order: int) -> Any:
    return _RING.from_dict({m: c for m, c in p.items() if m[0] + m[1] <= order})


def _expanded(moment: dict[int, Any], power: int, order: int) -> Any:
    """A row moment with F to the total power, to the given total degree in 1/n and 1/d_k."""
    total = _RING.zero
    for s, weight in moment.items():
        total += _w ** ((s - power) // 2) * _truncated(weight * _norm_series(s, order), order)
    return total


@cache
def _fluctuation_moment(a: int, b: int, order: int) -> Any:
    """E[δ_i^a (F_ij - 1)^b] to the given total degree in 1/n and 1/d_k."""
    total = _RING.zero
    for i in range(a + 1):
        for j in range(b + 1):
            sign = (-1) ** (a - i + b - j)
            total += sign * math.comb(a, i) * math.comb(b, j) * _expanded(_row_moment(i, j), i + j, order)
    return total


def _exact(moment: dict[int, Any], power: int) -> Any:
    """A row moment as an exact function of n, d_k and β."""
    return sum(
        (
            weight.as_expr().subs({sp.Symbol("x"): 1 / N})
            * sp.exp(-power * BETA**2 / 2)
            * chi_square_mgf(s * BETA**2 / 2)
            for s, weight in moment.items()
        ),
        sp.Integer(0),
    )


def _to_expr(p: Any) -> Any:
    """From the ring to sympy."""
    total = sp.Integer(0)
    for (i, j, k, m), c in p.items():
        total += sp.Rational(c.numerator, c.denominator) * N**-i * D**-j * BETA ** (2 * k) * sp.exp(m * BETA**2)
    return total


def _homogeneous(p: Any) -> Any:
    """The part of lowest total degree in 1/n and 1/d_k."""
    low = min(m[0] + m[1] for m in p)
    return _RING.from_dict({m: c for m, c in p.items() if m[0] + m[1] == low})


def _in_inverse_width(expr: Any, order: int) -> Any:
    """Series of a sum of powers and exponentials in 1/d_k to the given power, by sympy, through the logarithms."""
    y = sp.Symbol("y", positive=True)
    total = sp.Integer(0)
    for term in sp.Add.make_args(sp.expand_mul(expr)):
        sign, size = (-1, -term) if term.could_extract_minus_sign() else (1, term)
        logarithm = sp.expand_log(sp.log(size.subs(D, 1 / y)), force=True)
        exponent = sp.expand(sp.series(logarithm, y, 0, order + 1).removeO())
        constant = exponent.subs(y, 0)
        growth = sp.series(sp.exp(sp.expand(exponent - constant)), y, 0, order + 1).removeO()
        total += sign * sp.exp(constant) * sp.expand(growth)
    return sp.expand(total).subs(y, 1 / D)


# ---------------------------------------------------------------------------------------------------------------------
# The steps
# ---------------------------------------------------------------------------------------------------------------------


def _variance() -> Any:
    """The leading variance of δ_i."""
    return (sp.exp(BETA**2) - 1) / N + BETA**4 / (2 * D)


def _exponential_steps(order: int) -> list[TaylorStep]:
    degree = order + 1
    score = sp.exp(BETA * _X - BETA**2 / 2)
    hermite = sum((BETA**k * _hermite(k, _X) / sp.factorial(k) for k in range(degree + 1)), sp.Integer(0))

    def series() -> Any:
        return sp.series(score, BETA, 0, degree + 1).removeO()

    def slope() -> Any:
        return sp.simplify(_gaussian_integral(sp.diff(sp.exp(BETA * _X), _X)) / _gaussian_integral(sp.exp(BETA * _X)))

    def rest() -> Any:
        return _gaussian_integral((score - 1 - BETA * _X) ** 2)

    k = sp.Symbol("l", integer=True, nonnegative=True)
    tail = sp.Sum(BETA ** (2 * k) / sp.factorial(k), (k, 2, sp.oo))
    return [
        TaylorStep(
            "Hermite expansion of the exponential",
            f"The generating function of the Hermite polynomials, to degree {degree} in β: degree and power of β "
            "agree, "
            "so that the Taylor expansion in β is the expansion in orthogonal polynomials of the score.",
            sp.Eq(sp.Function("F")(_X), hermite, evaluate=False),
            (),
            "expansion",
            series,
        ),
        TaylorStep(
            "coefficient of the score",
            "First Hermite coefficient E f'(g)/E f(g) of f = e^{βx}: the factor in front of S.",
            sp.Eq(sp.Symbol("c_1"), BETA, evaluate=False),
            (),
            "moment",
            slope,
        ),
        TaylorStep(
            "variance of degree two and more",
            "E (F - 1 - βg)² = Σ_{l≥2} β^{2l}/l!: what the Hermite parts beyond the first carry together.",
            sp.Eq(tail, sp.exp(BETA**2) - 1 - BETA**2, evaluate=False),
            (),
            "moment",
            rest,
        ),
    ]


@cache
def _gaussian_integral(f: Any) -> Any:
    """E f(g) by the integral against the density."""
    density = sp.exp(-(_X**2) / 2) / sp.sqrt(2 * sp.pi)
    return sp.simplify(sp.integrate(sp.expand(sp.expand(f) * density), (_X, -sp.oo, sp.oo)))


def _normaliser_steps(order: int) -> list[TaylorStep]:
    mean_given_row = N * sp.exp(BETA**2 * _R / 2)

    def row_mean() -> Any:
        density = sp.exp(-(_X**2) / (2 * _R)) / sp.sqrt(2 * sp.pi * _R)
        return N * sp.simplify(sp.integrate(sp.exp(BETA * _X) * density, (_X, -sp.oo, sp.oo)))

    rate = sp.Symbol("rate", positive=True)  # d_k/2 - t, positive where the integral converges

    def mgf() -> Any:
        gamma = sp.integrate(_R ** (D / 2 - 1) * sp.exp(-rate * _R), (_R, 0, sp.oo))
        return sp.simplify((D / 2) ** (D / 2) / sp.gamma(D / 2) * gamma)

    mean = sp.exp(-(BETA**2) / 2) * chi_square_mgf(BETA**2 / 2)
    mean_series = _to_expr(_fluctuation_moment(1, 0, order))

    def mean_exact() -> Any:
        return _exact(_row_moment(1), 1)

    def mean_expanded() -> Any:
        return _in_inverse_width(mean, order) - 1

    # law of total variance, each half from its own integral over r
    entries, row = _split_variance()
    variance = entries / N + row

    def variance_exact() -> Any:
        return _exact(_row_moment(2), 2) - _exact(_row_moment(1), 1) ** 2

    def expanded_variance() -> Any:
        return sp.expand(_in_inverse_width(entries, order - 1) / N + _in_inverse_width(row, order))

    def partition_variance() -> Any:
        shift = _fluctuation_moment(1, 0, order)
        return _to_expr(_fluctuation_moment(2, 0, order) - _truncated(shift * shift, order))

    both = row / N
    x, y = sp.Symbol("s_1", real=True), sp.Symbol("s_2", real=True)

    def covariance_exact() -> Any:
        # one key in common: given k_j the scores of two rows are independent N(0, ρ_j); two keys: independent
        conditional = _normal_mgf(BETA, x, _RHO) * _normal_mgf(BETA, y, _RHO)
        power = sp.simplify(sp.log(conditional) / _RHO)
        common = sp.exp(-(BETA**2)) * chi_square_mgf(power)
        apart = (sp.exp(-(BETA**2) / 2) * chi_square_mgf(BETA**2 / 2)) ** 2
        return common / N + (1 - 1 / N) * apart - apart

    covariance = sp.expand(BETA**4 / (2 * N * D))

    def covariance_leading() -> Any:
        return sp.expand(_in_inverse_width(row, 1) / N)

    steps = [
        TaylorStep(
            "normaliser given the query",
            "Given q_i the scores S_ij are independent N(0, r_i), r_i = |q_i|²/d_k, so E[Z_i | q_i] is n times a "
            "Gaussian integral; Z_i = n e^{β²/2} (1 + δ_i).",
            sp.Eq(sp.Symbol("E[Z_i|q_i]"), mean_given_row, evaluate=False),
            (),
            "moment",
            row_mean,
        ),
        TaylorStep(
            "law of the query's norm",
            "d_k r_i is χ² with d_k degrees of freedom: E e^{t r_i} is a gamma integral, here with d_k/2 - t = "
            "rate > 0.",
            sp.Eq(sp.Symbol("E[exp(t*r_i)]"), (D / (2 * rate)) ** (D / 2), evaluate=False),
            (),
            "moment",
            mgf,
        ),
        TaylorStep(
            "mean of the normaliser",
            "E[1 + δ_i] exactly.",
            sp.Eq(sp.Symbol("E[1+delta_i]"), mean, evaluate=False),
            (),
            "moment",
            mean_exact,
        ),
        TaylorStep(
            "mean shift",
            f"E δ_i to order {order} in 1/d_k; n does not enter.",
            sp.Eq(sp.Symbol("E[delta_i]"), mean_series, evaluate=False),
            ((0, 1),),
            "moment",
            mean_expanded,
        ),
        TaylorStep(
            "variance, exact",
            "Law of total variance: E Var(δ_i | q_i), with the factor 1/n, plus Var E[δ_i | q_i], without.",
            sp.Eq(sp.Symbol("Var[delta_i]"), variance, evaluate=False),
            (),
            "moment",
            variance_exact,
        ),
        TaylorStep(
            "variance from the entries",
            "The n independent entries of a row: leading term of E Var(δ_i | q_i).",
            sp.Eq(sp.Symbol("E[Var[delta_i|q_i]]"), (sp.exp(BETA**2) - 1) / N, evaluate=False),
            ((1, 0),),
            "moment",
            lambda: _in_inverse_width(entries, 0) / N,
        ),
        TaylorStep(
            "variance from the query's norm",
            "The common factor e^{β²(r_i - 1)/2} of a row: leading term of Var E[δ_i | q_i].",
            sp.Eq(sp.Symbol("Var[E[delta_i|q_i]]"), BETA**4 / (2 * D), evaluate=False),
            ((0, 1),),
            "moment",
            lambda: _in_inverse_width(row, 1),
        ),
        TaylorStep(
            "variance, expanded",
            f"Var δ_i to total order {order} in 1/n and 1/d_k; the leading terms are those of the two steps before.",
            sp.Eq(sp.Symbol("Var[delta_i]"), expanded_variance(), evaluate=False),
            ((1, 0), (0, 1)),
            "moment",
            partition_variance,
        ),
        TaylorStep(
            "covariance of two rows, exact",
            "Two rows meet only in a common key: E e^{β(S_ij + S_i'j)} with independent scores given k_j.",
            sp.Eq(sp.Symbol("Cov[delta_i,delta_i']"), both, evaluate=False),
            (),
            "moment",
            covariance_exact,
        ),
        TaylorStep(
            "covariance of two rows",
            "Its leading term: smaller than the variance by one order.",
            sp.Eq(sp.Symbol("Cov[delta_i,delta_i']"), covariance, evaluate=False),
            ((1, 1),),
            "moment",
            covariance_leading,
        ),
    ]
    for k in range(2, order + 1):
        steps.append(_even_moment_step(k))
    return steps


@cache
def _normal_mgf(t: Any, x: Any, variance: Any) -> Any:
    density = sp.exp(-(x**2) / (2 * variance)) / sp.sqrt(2 * sp.pi * variance)
    return sp.simplify(sp.integrate(sp.exp(t * x) * density, (x, -sp.oo, sp.oo)))


def _split_variance() -> tuple[Any, Any]:
    """n E Var(δ_i | q_i) and Var E[δ_i | q_i], exact functions of d_k."""
    square = chi_square_mgf(BETA**2)
    entries = sp.exp(-(BETA**2)) * chi_square_mgf(2 * BETA**2) - sp.exp(-(BETA**2)) * square
    row = sp.exp(-(BETA**2)) * square - sp.exp(-(BETA**2)) * chi_square_mgf(BETA**2 / 2) ** 2
    return entries, row


def _even_moment_step(k: int) -> TaylorStep:
    return TaylorStep(
        f"moment {2 * k} of the fluctuation",
        f"The leading part of E δ_i^{2 * k} is that of a Gaussian of the leading variance: order {k}.",
        sp.Eq(
            sp.Symbol(f"E[delta_i**{2 * k}]"), sp.expand(sp.factorial2(2 * k - 1) * _variance() ** k), evaluate=False
        ),
        tuple((k - b, b) for b in range(k + 1)),
        "moment",
        lambda: _to_expr(_homogeneous(_fluctuation_moment(2 * k, 0, k))),
    )


def _geometric(order: int) -> Any:
    return sum(((-DELTA) ** k for k in range(order + 1)), sp.Integer(0))


def _inverse_given_row(order: int) -> Any:
    """E 1/(1+δ_i) with the geometric series taken around the mean of the row given q_i.

    1/(1+δ) = e^{-β²(r-1)/2}/(1+δ'), and given q_i δ' is the fluctuation of a mean of n independent entries of mean one.
    """
    total = _RING.zero
    for k in range(2 * order + 1):
        for j in range(k + 1):
            sign = (-1) ** j * math.comb(k, j)  # (-1)^k from the series, (-1)^(k-j) from (F' - 1)^k
            for ways, blocks, squares in _set_partitions(j):
                weight = _x ** (j - blocks) * ways
                for i in range(blocks):
                    weight = weight * (1 - i * _x)
                s = squares - j - 1
                total += sign * _w ** ((s + 1) // 2) * _truncated(weight * _norm_series(s, order), order)
    return total


def _inverse_steps(order: int) -> list[TaylorStep]:
    remainder = 1 - (-DELTA) ** (order + 1)
    entry = sp.expand((_F - 1 - DELTA) * _geometric(order))

    def inverse() -> Any:
        return _to_expr(sum(((-1) ** k * _fluctuation_moment(k, 0, order) for k in range(2 * order + 1)), _RING.zero))

    def truncated_entry() -> Any:
        return sp.cancel((_F / (1 + DELTA) - 1) * remainder)

    return [
        TaylorStep(
            "geometric series of the normaliser",
            f"(1 + δ) Σ_(k≤{order}) (-δ)^k, exactly: the relative remainder is δ^{order + 1}.",
            sp.Eq((1 + DELTA) * _geometric(order), remainder, evaluate=False),
            (),
            "expansion",
            lambda: sp.expand((1 + DELTA) * _geometric(order)),
        ),
        TaylorStep(
            "mean of the inverse normaliser",
            f"E 1/(1+δ_i) to total order {order}: the moments of δ_i to order {2 * order} are needed, as even "
            "moments of "
            "order 2k are of order k. On the right the series is taken around the mean given q_i instead.",
            sp.Eq(sp.Symbol("E[1/(1+delta_i)]"), _to_expr(_inverse_given_row(order)), evaluate=False),
            ((0, 0),),
            "moment",
            inverse,
        ),
        TaylorStep(
            "entry of the attention matrix",
            f"n A_ij - 1 = (F_ij - 1 - δ_i)/(1 + δ_i): times 1 - (-δ_i)^{order + 1} it is a polynomial, (F_ij - 1 "
            "- δ_i) "
            f"times the geometric series to order {order}. F_ij - 1 - δ_i has row sums zero: the normaliser takes "
            "the mean "
            "out of every row.",
            sp.Eq(sp.Symbol("(n*A_ij-1)") * remainder, entry, evaluate=False),
            (),
            "expansion",
            truncated_entry,
        ),
    ]


def _rank_steps() -> list[TaylorStep]:
    column = BETA**2 * (_RHO - 1) / 2

    def degree_two_mean() -> Any:
        # given k_j the score is N(0, ρ_j): mean of its Hermite part of degree two
        return sp.expand(BETA**2 / 2 * gaussian_mean(_hermite(2, _X), _X, _RHO))

    def column_mean() -> Any:
        return sp.simplify(sp.exp(-(BETA**2) / 2) * _normal_mgf(BETA, _X, _RHO))

    def norm_variance() -> Any:
        t = sp.Symbol("t", real=True)
        moments = [sp.simplify(sp.diff(chi_square_mgf(t), t, k).subs(t, 0)) for k in (1, 2)]
        return sp.simplify(moments[1] - 2 * moments[0] + 1)

    def rank(matrix: Callable[[Any, Any], Any]) -> Any:
        rows, columns = sp.symbols("r_1:5", positive=True), sp.symbols("rho_1:5", positive=True)
        return sp.Integer(sp.Matrix(4, 4, lambda i, j: matrix(rows[i], columns[j])).rank())

    return [
        TaylorStep(
            "row part",
            "E[F_ij | q_i]/E[1 + δ_i | q_i] = 1: the normaliser divides the factor e^{β²(r_i - 1)/2} of the row away.",
            sp.Eq(sp.Symbol("E[F_ij|q_i]/E[1+delta_i|q_i]"), sp.Integer(1), evaluate=False),
            (),
            "rank",
            lambda: sp.simplify(_normal_mgf(BETA, _X, _R) / (sp.exp(BETA**2 * _R / 2))),
        ),
        TaylorStep(
            "column factor",
            "Averaged over the queries an entry keeps the factor e^{β²(ρ_j - 1)/2} of its key, which no row "
            "normaliser "
            "removes.",
            sp.Eq(sp.Symbol("E[F_ij|k_j]"), sp.exp(BETA**2 * (_RHO - 1) / 2), evaluate=False),
            (),
            "rank",
            column_mean,
        ),
        TaylorStep(
            "column part",
            "Its first order v_j = β²(ρ_j - 1)/2 is the mean over queries of the Hermite part of degree two: the "
            "matrix "
            "1vᵀ, of rank one.",
            sp.Eq(sp.Symbol("v_j"), sp.expand(column), evaluate=False),
            (),
            "rank",
            degree_two_mean,
        ),
        TaylorStep(
            "rank of the column part",
            "1vᵀ has rank one (four generic keys), so it moves the distribution function of the n squared "
            "singular values "
            "by at most 1/n.",
            sp.Eq(sp.Symbol("rank(1*v^T)"), sp.Integer(1), evaluate=False),
            (),
            "rank",
            lambda: rank(lambda r, rho: column.subs(_RHO, rho)),
        ),
        TaylorStep(
            "rank of the row fluctuation",
            "The subtracted δ1ᵀ in n A_ij - 1 = (F_ij - 1 - δ_i)/(1 + δ_i) has rank one.",
            sp.Eq(sp.Symbol("rank(delta*1^T)"), sp.Integer(1), evaluate=False),
            (),
            "rank",
            lambda: rank(lambda r, rho: sp.exp(BETA**2 * (r - 1) / 2) - 1),
        ),
        TaylorStep(
            "norm of the column part",
            "‖1vᵀ‖²/n has the mean Σ_j E v_j² = n β⁴/(2 d_k): of order one, an outlier and no part of the bulk.",
            sp.Eq(sp.Symbol("E[||1*v^T||^2]/n"), N * BETA**4 / (2 * D), evaluate=False),
            ((-1, 1),),
            "operator norm",
            lambda: sp.expand(N * BETA**4 / 4 * norm_variance()),
        ),
        TaylorStep(
            "norm of the row fluctuation",
            "‖δ1ᵀ‖²/n has the mean Σ_i E δ_i², leading part: of order one and rank one.",
            sp.Eq(sp.Symbol("E[||delta*1^T||^2]/n"), sp.expand(N * _variance()), evaluate=False),
            ((0, 0), (-1, 1)),
            "operator norm",
            lambda: sp.expand(N * _to_expr(_homogeneous(_fluctuation_moment(2, 0, 1)))),
        ),
        TaylorStep(
            "product of row and column factors",
            "The bilinear term β²(r_i - 1)(ρ_j - 1)/2 of the exponent β²(r_i ρ_j - 1)/2 has rank one too; its "
            "squared norm "
            "over n is of lower order.",
            sp.Eq(sp.Symbol("E[||(r-1)(rho-1)^T||^2]*beta^4/(4*n)"), N * BETA**4 / D**2, evaluate=False),
            ((-1, 2),),
            "operator norm",
            lambda: sp.expand(N * BETA**4 / 4 * norm_variance() ** 2),
        ),
    ]


def _small_steps(order: int) -> list[TaylorStep]:
    def frobenius() -> Any:
        return _to_expr(_homogeneous(_fluctuation_moment(2, 2, 2)))

    # n E δ^{2k} bounds E max_i |δ_i|^{2k}; k = 2 is the first that vanishes
    steps = [
        TaylorStep(
            f"largest fluctuation, moment {2 * k}",
            f"E max_i |δ_i|^{2 * k} ≤ n E δ_i^{2 * k}, leading part: total order {k - 1}, so max_i |δ_i| → 0 in "
            "probability, "
            "and ‖diag(δ) M‖ ≤ max_i |δ_i| ‖M‖ is of lower order than ‖M‖ in operator norm, M being F - 11ᵀ - δ1ᵀ "
            "over √n "
            "(bounded but for the rank-one column part).",
            sp.Eq(
                sp.Symbol(f"n*E[delta_i**{2 * k}]"),
                sp.expand(N * sp.factorial2(2 * k - 1) * _variance() ** k),
                evaluate=False,
            ),
            tuple((k - 1 - b, b) for b in range(k + 1)),
            "operator norm",
            partial(_largest_bound, k),
        )
        for k in range(2, max(order, 2) + 1)
    ]
    steps.append(
        TaylorStep(
            "first correction of the normaliser",
            "diag(δ)(F - 11ᵀ)/√n: its squared Hilbert-Schmidt norm over n, E δ_i² (F_ij - 1)², leading part. By the "
            "inequality of Hoffman and Wielandt (of Mirsky, for singular values) this bounds the squared distance "
            "of the spectra: order one in 1/n and 1/d_k.",
            sp.Eq(
                sp.Symbol("E[delta_i^2*(F_ij-1)^2]"),
                sp.expand((sp.exp(BETA**2) - 1) * _variance()),
                evaluate=False,
            ),
            ((1, 0), (0, 1)),
            "Hilbert-Schmidt norm",
            frobenius,
        )
    )
    return [*steps, *_norm_steps(order)]


def _norm_steps(order: int) -> list[TaylorStep]:
    root = sp.sqrt(_R)
    degree = order + 1
    given = sum(
        ((BETA * root) ** k * _hermite(k, _X) / sp.factorial(k) for k in range(degree + 1)),
        sp.Integer(0),
    )
    steps = [
        TaylorStep(
            "Hermite expansion given the query",
            "S_ij = √r_i x_ij with x_ij standard given q_i: without the row factor that the normaliser removes, "
            f"e^(βS_ij - β² r_i/2) has the coefficient (β√r_i)^l/l! at degree l (here to degree {degree}).",
            sp.Eq(sp.Symbol("exp(beta*S_ij-beta^2*r_i/2)"), sp.expand(given), evaluate=False),
            (),
            "expansion",
            lambda: sp.series(sp.exp(BETA * root * _X - BETA**2 * _R / 2), BETA, 0, degree + 1).removeO(),
        )
    ]
    for k in range(1, degree + 1):
        steps.append(
            TaylorStep(
                f"norm of the query, degree {k}",
                "Setting r_i = 1 in the coefficient of degree l moves the matrix by a squared Hilbert-Schmidt "
                "norm over n of "
                "β^{2l}/l! E(r_i^{l/2} - 1)² ≤ β^{2l}/l! E(r_i^l - 1)², leading part.",
                sp.Eq(
                    sp.Symbol(f"beta^{2 * k}/{k}!*E[(r_i^{k}-1)^2]"),
                    2 * k**2 * BETA ** (2 * k) / (sp.factorial(k) * D),
                    evaluate=False,
                ),
                ((0, 1),),
                "Hilbert-Schmidt norm",
                partial(_norm_distance, k),
            )
        )
    return steps


def _norm_distance(k: int) -> Any:
    """Leading part of β^{2k}/k! E (r^k - 1)² by the gamma integrals E r^k = (2/d_k)^k Γ(d_k/2 + k)/Γ(d_k/2)."""
    first, second = (sp.gammasimp((2 / D) ** m * sp.gamma(D / 2 + m) / sp.gamma(D / 2)) for m in (k, 2 * k))
    return _leading(BETA ** (2 * k) / sp.factorial(k) * (second - 2 * first + 1))


def _hermite_steps(order: int) -> list[TaylorStep]:
    steps: list[TaylorStep] = []
    for degree in range(2, order + 2):
        steps.append(
            TaylorStep(
                f"Mehler's formula, degree {degree}",
                "For standard Gaussians of correlation τ, Hermite polynomials of different degrees are "
                "uncorrelated and "
                "those of the same degree have the covariance l! τ^l (different degrees up to this one are "
                "checked too).",
                sp.Eq(
                    sp.Symbol(f"E[He_{degree}(x)*He_{degree}(y)]"),
                    sp.factorial(degree) * _OVERLAP**degree,
                    evaluate=False,
                ),
                (),
                "moment",
                partial(_mehler, degree),
            )
        )
    for degree in range(1, order + 2):
        ratio = sp.Integer(1)
        for k in range(degree):
            ratio = ratio * (2 * k + 1) / (D + 2 * k)
        steps.append(
            TaylorStep(
                f"overlap of two queries, degree {degree}",
                "τ = q̂_i · q̂_i' has τ² of Beta(1/2, (d_k - 1)/2) law: E τ^{2l} is a quotient of Beta functions.",
                sp.Eq(sp.Symbol(f"E[tau**{2 * degree}]"), ratio, evaluate=False),
                ((0, degree),),
                "moment",
                partial(_overlap_moment, degree),
            )
        )
    for degree in range(1, order + 2):
        steps.append(
            TaylorStep(
                f"row covariance of degree {degree}",
                "Given the queries the columns of the degree-l part are independent with row covariance β^{2l}/l! "
                "τ^l. The "
                "squared Hilbert-Schmidt distance, over n, of this covariance, divided by β^{2l}/l!, to the "
                "identity is "
                "(n - 1) E τ^{2l}, leading part: "
                + (
                    "of order one for l = 1, so the score itself keeps its structure."
                    if degree == 1
                    else "it vanishes exactly when n is small against d_k^l, so this part acts as noise."
                ),
                sp.Eq(
                    sp.Symbol(f"n*E[tau**{2 * degree}]"),
                    N * sp.factorial2(2 * degree - 1) / D**degree,
                    evaluate=False,
                ),
                ((-1, degree),),
                "Hilbert-Schmidt norm",
                partial(_row_covariance, degree),
            )
        )
    steps.append(
        TaylorStep(
            "variance of the noise",
            "σ² = e^{β²} - 1 - β²: with the β² of the score the entries of √n(A - 11ᵀ/n) have n times the variance "
            "e^{β²} - 1 of F, so the bulk keeps (βS + σZ)/√n and loses no variance.",
            sp.Eq(sp.Symbol("sigma^2"), sp.exp(BETA**2) - 1 - BETA**2, evaluate=False),
            (),
            "moment",
            lambda: _fluctuation_variance() - BETA**2,
        )
    )
    return steps


def _fluctuation_variance() -> Any:
    """Leading term of E (F_ij - 1)² by the moments."""
    return _to_expr(_homogeneous(_fluctuation_moment(0, 2, 1)))


def _mehler(degree: int) -> Any:
    """E He_l(x) He_l(y) for y = τx + √(1-τ²)g, after asserting that lower degrees are orthogonal to degree l."""
    g, root = sp.Symbol("g", real=True), sp.Symbol("root", positive=True)
    y = _OVERLAP * _X + root * g

    def mean(k: int) -> Any:
        inner = gaussian_mean(sp.expand(_hermite(degree, y)), g)
        return sp.expand(gaussian_mean(sp.expand(inner * _hermite(k, _X)), _X).subs(root, sp.sqrt(1 - _OVERLAP**2)))

    return mean(degree) + sum((sp.Abs(mean(k)) for k in range(degree)), sp.Integer(0))


def _overlap_moment(degree: int) -> Any:
    def beta(a: Any, b: Any) -> Any:
        return sp.gamma(a) * sp.gamma(b) / sp.gamma(a + b)

    half = sp.Rational(1, 2)
    return sp.factor(sp.gammasimp(beta(half + degree, (D - 1) / 2) / beta(half, (D - 1) / 2)))


def _row_covariance(degree: int) -> Any:
    """Leading part of (n - 1) E τ^{2l}."""
    return _leading((N - 1) * _overlap_moment(degree))


def _largest_bound(k: int) -> Any:
    """Leading part of n E δ^{2k}."""
    return sp.expand(N * _to_expr(_homogeneous(_fluctuation_moment(2 * k, 0, k))))


def _leading(expr: Any) -> Any:
    """The leading part of a rational function when n and d_k grow in proportion."""
    epsilon = sp.Symbol("epsilon", positive=True)
    scaled = sp.together(sp.sympify(expr).subs({N: N / epsilon, D: D / epsilon}, simultaneous=True))
    numerator, denominator = (_lowest(sp.expand(part), epsilon) for part in sp.fraction(scaled))
    return sp.cancel(numerator / denominator).subs(epsilon, 1)


def _checked(order: Any) -> int:
    if isinstance(order, bool) or not isinstance(order, Integral) or not 1 <= int(order) <= _MAX_ORDER:
        raise ParameterError(f"order must be an integer from 1 to {_MAX_ORDER}; got {order!r}")
    return int(order)


def taylor_attention(order: int = 2) -> list[TaylorStep]:
    r"""The joint expansion of :math:`e^{\beta S_{ij}}` and of the normaliser, as a list of checked steps.

    Parameters
    ----------
    order : 1 to 4: power of δ_i kept in 1/(1+δ_i), total power of 1/n and 1/d_k in the moments; the Hermite parts are
        followed to degree order + 1.

    Raises
    ------
    ParameterError : ``order`` is not an integer from 1 to 4.

    Examples
    --------
    >>> steps = {step.name: step for step in taylor_attention(1)}
    >>> steps["variance, expanded"].equation.rhs
    beta**4/(2*d_k) + exp(beta**2)/n - 1/n
    >>> steps["variance, expanded"].order
    ((1, 0), (0, 1))
    >>> steps["variance, expanded"].check()
    True
    """
    order = _checked(order)
    return [
        *_exponential_steps(order),
        *_normaliser_steps(order),
        *_inverse_steps(order),
        *_rank_steps(),
        *_small_steps(order),
        *_hermite_steps(order),
    ]
