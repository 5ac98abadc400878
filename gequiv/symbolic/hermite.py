r"""Hermite coefficients of a score function under the standard Gaussian, and the linear model they give.

Convention. :math:`\mathrm{He}_k` are the monic Hermite polynomials of :math:`g \sim N(0,1)`,
:math:`\mathrm{He}_{k+1} = x\,\mathrm{He}_k - k\,\mathrm{He}_{k-1}`, orthogonal with :math:`E\,\mathrm{He}_k(g)^2 = k!`.
The coefficients returned are those of the orthonormal family,

.. math:: a_k = \frac{E[f(g)\,\mathrm{He}_k(g)]}{\sqrt{k!}}, \qquad \sum_k a_k^2 = E f(g)^2 .

How. f is cut where Abs, Max, Min, sign, Heaviside and Piecewise switch, expanded, and each term of the form
:math:`x^n e^{a x^2 + b x + d}` is integrated exactly: with :math:`\alpha = 1 - 2a` (and :math:`\mathrm{Re}\,a < 1/4`,
or f is not square-integrable) the integrals :math:`I_n = \int_{lo}^{hi} x^n e^{-\alpha x^2/2 + bx}\,dx/\sqrt{2\pi}`
follow from integrating :math:`(x^{n-1} e^{-\alpha x^2/2 + bx})'`,

.. math:: \alpha I_n = (n-1) I_{n-2} + b I_{n-1} - \Bigl[x^{n-1} e^{-\alpha x^2/2 + bx}\Bigr]_{lo}^{hi}/\sqrt{2\pi},
   \qquad I_0 = \frac{e^{b^2/2\alpha}}{2\sqrt\alpha}
   \Bigl[\operatorname{erf}\bigl(\sqrt{\alpha/2}\,(x - b/\alpha)\bigr)\Bigr]_{lo}^{hi} .

sin, cos, sinh and cosh of a linear argument are exponentials. On a half-line that starts at 0 real powers and powers of
log x are exact as well (the Gamma function and its derivatives). A function whose derivative is of that form (erf) is
integrated by parts, :math:`E[f\,\mathrm{He}_k] = E[f'\,\mathrm{He}_{k-1}]`. Of what is left the even and the odd part
are taken apart, and whichever is of that form is exact. Only then does quadrature remain; it is reported.

Sources: Pennington and Worah 2017, Péché 2019 (the first coefficient and the variance decide the limit spectrum of a
nonlinear random matrix); Hayase, Collins and Karakida 2025 (the exponential score).
"""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import mpmath
import sympy as sp
from sympy.core.relational import Relational

from gequiv.errors import ParameterError

__all__ = ["HermiteCoefficients", "SymbolicLinearModel", "hermite_coefficients", "linear_model"]

METHODS = ("parity", "polynomial", "exponential", "half-line", "integration", "quadrature")
"""How a coefficient was found; of several the last one is reported. All but quadrature are exact."""

_DIGITS = 40  # of quadrature, of which at least _PROMISED are right
_PROMISED = 30
_SWITCHES = (sp.Abs, sp.Max, sp.Min, sp.sign, sp.Heaviside, sp.Piecewise)
_ASTRONOMICAL = 10**18  # exponents beyond which a number cannot be worked with
_OFFSET = mpmath.mpf(5) / 16  # of the panels, away from the points where functions have poles
_TOO_LONG = 300  # operations beyond which an expression is not simplified

Piece = tuple[sp.Expr, sp.Expr, sp.Expr]
"""Lower end, upper end, and f between them without switches."""


class HermiteCoefficients(list[sp.Expr]):
    """Coefficients of He_k/√k!, k = 0, 1, …: a list with a record of how each entry was found.

    Attributes
    ----------
    method : for each coefficient one of ``METHODS``.
    exact : for each coefficient whether it is exact; where it is not, it is a Float with at least 30 right digits.
    """

    def __init__(self, values: Iterable[sp.Expr], method: Iterable[str]) -> None:
        super().__init__(values)
        self.method = list(method)
        self.exact = [name != "quadrature" for name in self.method]


@dataclass(frozen=True)
class SymbolicLinearModel:
    """Linear model c₁ S + σ Z of a score function f, the scores being standard Gaussian.

    Attributes
    ----------
    coefficient : c₁ = E f′(g)/E f(g), computed as E[g f(g)]/E f(g).
    noise_variance : σ² = Var f(g)/(E f(g))² − c₁².
    mean, variance : of f(g).
    exact : whether all of them are exact; else they are Floats with about 30 right digits.
    """

    coefficient: sp.Expr
    noise_variance: sp.Expr
    mean: sp.Expr
    variance: sp.Expr
    exact: bool


def hermite_coefficients(f: Any, x: Any, order: Any) -> HermiteCoefficients:
    """Coefficients a_0, …, a_order of He_k/√k! in the expansion of f under the standard Gaussian.

    Parameters
    ----------
    f : sympy expression in x; other symbols are parameters (declare them real or positive where a sign matters).
        Floats are read as the decimals that they print.
    x : the symbol that stands for the Gaussian.
    order : highest k.

    Raises
    ------
    ParameterError : f is not square-integrable, not real, or undefined on part of the line; a switch of f depends on
        the unknown sign of a parameter; f has symbols and no exact route.

    Examples
    --------
    >>> x, beta = sp.symbols("x beta")
    >>> hermite_coefficients(sp.exp(beta * x - beta**2 / 2), x, 3)
    [1, beta, sqrt(2)*beta**2/2, sqrt(6)*beta**3/6]
    >>> hermite_coefficients(1 + sp.tanh(x), x, 2).method
    ['polynomial', 'quadrature', 'polynomial']
    """
    expression, variable = _score(f, x)
    if isinstance(order, bool) or not isinstance(order, numbers.Integral) or order < 0:
        raise ParameterError(f"order must be an integer of at least 0; got {order!r}")
    found = _Expectations(expression, variable, int(order), squares=True)
    values = [_tidy(value / sp.sqrt(sp.factorial(k))) for k, value in enumerate(found.values)]
    return HermiteCoefficients(values, found.methods)


def linear_model(f: Any, x: Any) -> SymbolicLinearModel:
    """First Hermite coefficient and noise variance of the row-normalised score f(S_ij)/Σ_k f(S_ik).

    Parameters as for `hermite_coefficients`. The mean of f must be positive; where that depends on symbols and cannot
    be decided it is assumed.

    Raises
    ------
    ParameterError : the mean of f is zero or negative, and all reasons of `hermite_coefficients`.

    Examples
    --------
    >>> x, beta = sp.symbols("x beta")
    >>> model = linear_model(sp.exp(beta * x), x)
    >>> model.coefficient, model.noise_variance
    (beta, -beta**2 + exp(beta**2) - 1)
    """
    expression, variable = _score(f, x)
    first = _Expectations(expression, variable, 1, squares=True)
    mean = _compact(first.values[0])
    if _sign(mean) in (-1, 0):
        kind = "vanish" if _sign(mean) == 0 else "are negative"
        raise ParameterError(
            f"f must have a positive mean under the standard Gaussian; got f = {f} with mean {mean}: the row sums of "
            f"f(S_ij) {kind} in the limit, so dividing by them gives no probabilities (for a vanishing mean nothing "
            "finite at all)"
        )
    second = _Expectations(expression**2, variable, 0, squares=False)
    exact = all(method != "quadrature" for method in (*first.methods, *second.methods))
    coefficient = _compact(first.values[1] / mean)
    ratio = _compact(sp.expand(second.values[0] / mean**2))
    variance = _compact(second.values[0] - mean**2)
    return SymbolicLinearModel(coefficient, _compact(ratio - 1 - coefficient**2), mean, variance, exact)


def _score(f: Any, x: Any) -> tuple[sp.Expr, sp.Symbol]:
    """f with a real symbol in the place of x and exact numbers in the place of floats."""
    if not isinstance(x, sp.Symbol):
        raise ParameterError(f"x must be a sympy Symbol; got {x!r}")
    if isinstance(f, (bool, str)) or not isinstance(f, (sp.Expr, numbers.Number)):
        raise ParameterError(f"f must be a sympy expression in {x}; got {f!r}")
    expression = sp.sympify(f)
    if expression.has(sp.zoo, sp.nan, sp.oo, -sp.oo, sp.DiracDelta):
        raise ParameterError(f"f must be a finite function of {x}; got {f}")
    variable = sp.Symbol(x.name, real=True)
    if variable != x and expression.has(variable):
        variable = sp.Dummy(x.name, real=True)
    exact = {number: sp.Rational(str(number)) for number in expression.atoms(sp.Float)}
    return expression.xreplace(exact).xreplace({x: variable}), variable


class _Expectations:
    """E[f He_k] for k up to the order, with the method of each; `squares`: f must be square-integrable.

    Attributes
    ----------
    values, methods : lists of length order + 1.
    """

    def __init__(self, f: sp.Expr, x: sp.Symbol, order: int, *, squares: bool) -> None:
        self.f, self.x, self.order, self.squares = f, x, order, squares
        self.polynomials = _hermite_polynomials(x, order)
        self.values: list[sp.Expr] = [sp.Integer(0)] * (order + 1)
        self._methods = [-1] * (order + 1)  # nothing added yet
        pieces = _split(f, x, -sp.oo, sp.oo)
        rest: list[Piece] = []
        for low, high, part in pieces:
            left = self._add_exact(low, high, part, range(order + 1), "half-line" if len(pieces) > 1 else None)
            if left != 0:
                rest.append((low, high, left))
        if rest:
            self._add_rest(rest, whole=len(pieces) == 1)

    @property
    def methods(self) -> list[str]:
        return [METHODS[i] if i >= 0 else "polynomial" for i in self._methods]

    def _add(self, k: int, value: sp.Expr, method: str) -> None:
        self.values[k] = self.values[k] + value
        self._methods[k] = max(self._methods[k], METHODS.index(method))

    # -- exact ----------------------------------------------------------------------------------------

    def _add_exact(self, low: sp.Expr, high: sp.Expr, f: sp.Expr, orders: Iterable[int], method: str | None) -> sp.Expr:
        """Adds the terms of f that can be integrated exactly; returns the sum of the others."""
        if low.has(sp.Float) or high.has(sp.Float):
            return f
        half = {(sp.Integer(0), sp.oo): 1, (-sp.oo, sp.Integer(0)): -1}.get((low, high), 0)
        x = self.x
        if half:
            x = sp.Dummy("x", positive=True)
            f = sp.expand_log(f.xreplace({self.x: half * x}))
        groups: dict[tuple[Any, ...], sp.Expr] = {}
        rest: list[sp.Expr] = []
        for term in sp.Add.make_args(sp.expand(f, power_base=False, power_exp=False, log=False)):
            parsed = _parse(term, x, half_line=bool(half))
            if parsed is None:
                rest.append(term)
                continue
            constant, power, key = parsed
            groups[key] = groups.get(key, sp.Integer(0)) + constant * x**power
        groups = {key: sp.expand(total) for key, total in groups.items()}
        for (a, b, shift, logs), total in groups.items():
            if total == 0:
                continue
            self._check_growth(a, low, high)
            label = method or ("polynomial" if a == 0 and b == 0 else "exponential")
            for k in orders:
                polynomial = self.polynomials[k].xreplace({self.x: half * x}) if half else self.polynomials[k]
                product = sp.expand(total * polynomial)
                if half:
                    value = self._half_line(product, x, a, b, shift, logs)
                else:
                    value = _between(sp.Poly(product, x), a, b, shift, low, high)
                self._add(k, value, label)
        return sp.Add(*rest).xreplace({x: half * self.x}) if half else sp.Add(*rest)

    def _check_growth(self, a: sp.Expr, low: sp.Expr, high: sp.Expr) -> None:
        if a == 0 or (low != -sp.oo and high != sp.oo):
            return
        bound = sp.Rational(1, 4) if self.squares else sp.Rational(1, 2)
        margin = sp.expand(bound - sp.re(a))
        sign = _sign(margin)
        if sign is None:
            raise ParameterError(
                f"f has the factor exp(({a})*x**2), square-integrable only where {margin} > 0, which is not decided: "
                "give numbers, or symbols with assumptions"
            )
        if sign <= 0:
            raise ParameterError(
                "f must be square-integrable under the standard Gaussian; it grows like "
                f"exp(({a})*x**2), and exp(a*x**2) is only for a < 1/4"
            )

    def _half_line(self, f: sp.Expr, x: sp.Symbol, a: sp.Expr, b: sp.Expr, shift: sp.Expr, logs: int) -> sp.Expr:
        """E[f(|g|) log(|g|)^logs e^{a g² + b |g| + shift}; g > 0], f a sum of real powers of x."""
        if logs == 0 and f.is_polynomial(x):
            return _between(sp.Poly(f, x), a, b, shift, sp.Integer(0), sp.oo)
        m = sp.Dummy("m")
        alpha = 1 - 2 * a
        moment = 2 ** ((m - 1) / 2) * alpha ** (-(m + 1) / 2) * sp.gamma((m + 1) / 2) / sp.sqrt(2 * sp.pi)
        moment = sp.diff(moment, m, logs) if logs else moment
        total = sp.Integer(0)
        for term in sp.Add.make_args(f):
            constant, power = term.as_independent(x)
            exponent = sp.Integer(0) if power == 1 else power.as_base_exp()[1]
            total += constant * moment.subs(m, exponent)
        return sp.exp(shift) * total

    # -- the rest -------------------------------------------------------------------------------------

    def _add_rest(self, rest: list[Piece], *, whole: bool) -> None:
        orders = set(range(self.order + 1))
        if whole:
            f = rest[0][2]
            even, odd = self._halves(f)
            if even is not None:
                orders -= self._add_half(even, 0)
            if odd is not None:
                orders -= self._add_half(odd, 1)
            derivative = sp.diff(f, self.x)
            if any(orders) and f.has(sp.erf, sp.erfc) and _is_exact(derivative, self.x):
                inner = _Expectations(derivative, self.x, self.order, squares=False)
                for k in sorted(orders - {0}):
                    self._add(k, inner.values[k - 1], "integration")
                orders &= {0}
        else:
            mirrored = self.f.xreplace({self.x: -self.x})
            for parity, sign in ((1, 1), (0, -1)):  # even functions have no odd coefficients, odd ones no even
                if sp.expand(self.f - sign * mirrored) == 0:
                    for k in range(parity, self.order + 1, 2):
                        self.values[k] = sp.Integer(0)
                        self._methods[k] = METHODS.index("parity")
                    orders -= set(range(parity, self.order + 1, 2))
        if orders or self.squares:
            self._add_quadrature(rest, sorted(orders))

    def _halves(self, f: sp.Expr) -> tuple[sp.Expr | None, sp.Expr | None]:
        """Even and odd part of f, each where it can be integrated exactly, else None."""
        mirrored = f.xreplace({self.x: -self.x})
        halves = []
        for sign in (1, -1):
            candidates = _simpler((f + sign * mirrored) / 2, self.x)
            halves.append(next((part for part in candidates if _is_exact(part, self.x)), None))
        return halves[0], halves[1]

    def _add_half(self, part: sp.Expr, parity: int) -> set[int]:
        orders = set(range(parity, self.order + 1, 2))
        if part != 0:
            self._add_exact(-sp.oo, sp.oo, part, sorted(orders), None)
        else:
            for k in orders:
                self._add(k, sp.Integer(0), "parity")
        return orders

    def _add_quadrature(self, rest: list[Piece], orders: list[int]) -> None:
        symbols = set().union(*(part.free_symbols for piece in rest for part in piece)) - {self.x}
        if symbols:
            if not orders:
                return
            names = ", ".join(sorted(str(symbol) for symbol in symbols))
            raise ParameterError(
                f"f has no exact Gaussian integral that this function knows, and quadrature needs numbers in the place "
                f"of {names}"
            )
        with mpmath.workdps(_DIGITS):
            for k, value in zip(orders, _quadrature(rest, self.x, orders, squares=self.squares), strict=True):
                self._add(k, sp.Float(value, _DIGITS), "quadrature")
                self.values[k] = sp.Float(sp.N(self.values[k], _DIGITS), _DIGITS)


# -- terms and pieces -----------------------------------------------------------------------------------


def _hermite_polynomials(x: sp.Symbol, order: int) -> list[sp.Expr]:
    result: list[sp.Expr] = [sp.Integer(1), x]
    for k in range(1, order):
        result.append(sp.expand(x * result[k] - k * result[k - 1]))
    return result[: order + 1]


def _parse(term: sp.Expr, x: sp.Symbol, *, half_line: bool) -> tuple[sp.Expr, sp.Expr, tuple[Any, ...]] | None:
    """(constant, n, (a, b, d, j)) of constant x^n log(x)^j exp(a x² + b x + d); None for other terms."""
    constant, power, exponent, logs = sp.Integer(1), sp.Integer(0), sp.Integer(0), 0
    for factor in sp.Mul.make_args(term):
        base, index = factor.as_base_exp()
        if not factor.has(x):
            constant *= factor
        elif base == x and not index.has(x):
            power += index
        elif not base.has(x) and base.is_positive:
            exponent += index if base == sp.E else index * sp.log(base)
        elif half_line and isinstance(base, sp.log) and base.args[0] == x and index.is_Integer and index.is_positive:
            logs += int(index)
        else:
            return None
    exponent = sp.expand(exponent)
    if not exponent.is_polynomial(x):
        return None
    polynomial = sp.Poly(exponent, x)
    if polynomial.degree() > 2:
        return None
    d, b, a = (polynomial.coeff_monomial(x**i) for i in range(3))
    whole = power.is_Integer and power.is_nonnegative
    if not whole or logs:
        if not half_line or b != 0 or power.is_real is not True or (2 * power + 1).is_positive is not True:
            return None
        if not whole and not power.is_number:
            return None
    return constant, power, (a, b, d, logs)


def _is_exact(f: sp.Expr, x: sp.Symbol) -> bool:
    if f.has(*_SWITCHES):
        return False
    terms = sp.Add.make_args(sp.expand(_exponentials(f, x), power_base=False, power_exp=False, log=False))
    return all(term == 0 or _parse(term, x, half_line=False) is not None for term in terms)


def _between(f: sp.Poly, a: sp.Expr, b: sp.Expr, shift: sp.Expr, low: sp.Expr, high: sp.Expr) -> sp.Expr:
    """E[f(g) e^{a g² + b g + shift}; low < g < high] for a polynomial f; see the module's text."""
    alpha = 1 - 2 * a

    def level(point: sp.Expr) -> sp.Expr:  # of the error function
        if point in (sp.oo, -sp.oo):
            return sp.sign(point)
        return sp.erf(sp.expand(sp.sqrt(alpha / 2) * (point - b / alpha)))

    def boundary(n: int) -> sp.Expr:  # without e^shift
        total = sp.Integer(0)
        for point, sign in ((high, 1), (low, -1)):
            if point not in (sp.oo, -sp.oo):
                total += sign * point**n * sp.exp(sp.expand(-alpha * point**2 / 2 + b * point))
        return total / sp.sqrt(2 * sp.pi)

    n = max(f.degree(), 0)
    shares = [sp.Integer(1), b / alpha]  # I_n = shares I_0 + edges
    edges = [sp.Integer(0), -boundary(0) / alpha]
    for i in range(2, n + 1):
        shares.append(sp.expand(((i - 1) * shares[i - 2] + b * shares[i - 1]) / alpha))
        edges.append(sp.expand(((i - 1) * edges[i - 2] + b * edges[i - 1] - boundary(i - 1)) / alpha))
    coefficients = {power: value for (power,), value in f.as_dict(native=False).items()}
    share = sp.expand(sum((value * shares[i] for i, value in coefficients.items()), sp.Integer(0)))
    edge = sp.expand(sum((value * edges[i] for i, value in coefficients.items()), sp.Integer(0)))
    zero = (level(high) - level(low)) / (2 * sp.sqrt(alpha))
    return share * zero * sp.exp(sp.expand(shift + b**2 / (2 * alpha))) + edge * sp.exp(shift)


def _split(f: sp.Expr, x: sp.Symbol, low: sp.Expr, high: sp.Expr) -> list[Piece]:
    """f on (low, high), cut where Abs, Max, Min, sign, Heaviside and Piecewise switch."""
    for atom in sorted(f.atoms(*_SWITCHES), key=sp.default_sort_key):
        switches = _switching(atom)
        if any(switch.has(*_SWITCHES) for switch in switches) or not any(switch.has(x) for switch in switches):
            continue
        ends = [low, *_roots_between(switches, x, low, high), high]
        pieces: list[Piece] = []
        for left, right in itertools.pairwise(ends):
            branch = _branch(atom, x, _inside(left, right))
            pieces.extend(_split(f.xreplace({atom: branch}), x, left, right))
        return pieces
    return [(low, high, _exponentials(f, x))]


def _switching(atom: sp.Expr) -> list[sp.Expr]:
    """Expressions at whose zeros the atom changes from one formula to another."""
    if isinstance(atom, sp.Piecewise):
        relations = set().union(*(condition.atoms(Relational) for _, condition in atom.args))
        return [relation.lhs - relation.rhs for relation in sorted(relations, key=sp.default_sort_key)]
    if isinstance(atom, (sp.Max, sp.Min)):
        entries = atom.args
        return [entries[i] - entries[j] for i in range(len(entries)) for j in range(i)]
    return [atom.args[0]]


def _branch(atom: sp.Expr, x: sp.Symbol, point: sp.Expr) -> sp.Expr:
    """The formula that the atom has around the point."""
    if isinstance(atom, sp.Piecewise):
        for value, condition in atom.args:
            truth = condition.xreplace({x: point})
            if truth == sp.true:
                return value
            if truth != sp.false:
                raise ParameterError(f"f switches where {condition}, which is not decided: {_ASSUME}")
        raise ParameterError(f"f must be defined on the whole line; {atom} has no value at {point}")
    if isinstance(atom, (sp.Max, sp.Min)):
        best = atom.args[0]
        for other in atom.args[1:]:
            larger = _decided(other - best, x, point) > 0
            best = other if larger == isinstance(atom, sp.Max) else best
        return best
    sign = sp.Integer(_decided(atom.args[0], x, point))
    if isinstance(atom, sp.Heaviside):
        return (1 + sign) / 2
    return sign * atom.args[0] if isinstance(atom, sp.Abs) else sign


_ASSUME = "give numbers, or symbols with assumptions (positive=True)"


def _decided(switch: sp.Expr, x: sp.Symbol, point: sp.Expr) -> int:
    value = sp.expand(switch.xreplace({x: point}))
    sign = _sign(value)
    if sign is None:
        raise ParameterError(f"f switches with the sign of {value}, which is not decided: {_ASSUME}")
    return sign


def _inside(low: sp.Expr, high: sp.Expr) -> sp.Expr:
    if low == -sp.oo:
        return sp.Integer(0) if high == sp.oo else high - 1
    return low + 1 if high == sp.oo else (low + high) / 2


def _roots_between(switches: list[sp.Expr], x: sp.Symbol, low: sp.Expr, high: sp.Expr) -> list[sp.Expr]:
    roots: list[sp.Expr] = []
    for root in (root for switch in switches if switch.has(x) for root in _roots(switch, x)):
        after = low == -sp.oo or _decided(root - low, x, sp.Integer(0)) > 0
        before = high == sp.oo or _decided(high - root, x, sp.Integer(0)) > 0
        if not (after and before):
            continue
        place = len(roots)
        for i, other in enumerate(roots):
            order = _decided(root - other, x, sp.Integer(0))
            if order <= 0:
                place = -1 if order == 0 else i
                break
        if place >= 0:
            roots.insert(place, root)
    return roots


def _roots(switch: sp.Expr, x: sp.Symbol) -> list[sp.Expr]:
    """Real roots: exact of polynomials, else found between the points of a grid, as Floats."""
    if switch.is_polynomial(x):
        polynomial = sp.Poly(switch, x)
        if polynomial.degree() == 1:
            a, b = polynomial.all_coeffs()
            return [sp.cancel(-b / a)]
        if polynomial.domain.is_QQ or polynomial.domain.is_ZZ:
            return list(dict.fromkeys(sp.real_roots(polynomial)))
    symbols = switch.free_symbols - {x}
    if symbols:
        names = ", ".join(sorted(str(symbol) for symbol in symbols))
        raise ParameterError(f"f switches where {switch} = 0, which needs numbers in the place of {names}")
    function = sp.lambdify(x, switch, modules="mpmath")
    roots = []
    with mpmath.workdps(_DIGITS + 10):
        points = [mpmath.mpf(i) / 16 + mpmath.mpf(1) / 97 for i in range(-768, 768)]
        values = [function(point) for point in points]
        for left, right, before, after in zip(points, points[1:], values, values[1:], strict=False):
            if mpmath.sign(before) != mpmath.sign(after):
                root = mpmath.findroot(function, (left, right), solver="anderson", tol=mpmath.mpf(10) ** (-2 * _DIGITS))
                roots.append(sp.Float(root, _DIGITS + 10))
    return roots


def _exponentials(f: sp.Expr, x: sp.Symbol) -> sp.Expr:
    """sin, cos, sinh and cosh of linear arguments as exponentials, erfc as 1 − erf."""
    table = {}
    for atom in f.atoms(sp.sin, sp.cos, sp.sinh, sp.cosh):
        if atom.has(x) and atom.args[0].is_polynomial(x) and sp.degree(atom.args[0], x) <= 1:
            table[atom] = atom.rewrite(sp.exp)
    for atom in f.atoms(sp.erfc):
        table[atom] = 1 - sp.erf(atom.args[0])
    return f.xreplace(table)


def _simpler(f: sp.Expr, x: sp.Symbol) -> list[sp.Expr]:
    """f and simplified forms of it; each is checked by value where f has no other symbols."""
    forms = [f, sp.expand(f)]
    if f.count_ops() <= _TOO_LONG:
        forms.append(sp.simplify(f))
        forms.append(sp.cancel(sp.together(f.rewrite(sp.exp))))
        if f.has(sp.log) and f.free_symbols <= {x}:
            forms.append(sp.simplify(sp.logcombine(sp.expand(f), force=True)))
            forms.append(sp.expand_log(sp.factor(forms[-1]), force=True))
    if f.free_symbols <= {x}:
        forms = [form for form in forms if _agree(f, form, x)]
    return list(dict.fromkeys(forms))


def _agree(f: sp.Expr, form: sp.Expr, x: sp.Symbol) -> bool:
    points = (sp.Rational(-17, 7), sp.Rational(-3, 11), sp.Rational(5, 13), sp.Rational(31, 9))
    gaps = [sp.N((f - form).xreplace({x: point}), 30, chop=False) for point in points]
    return all(gap.is_number and abs(gap) < sp.Float("1e-25") for gap in gaps)


def _sign(value: sp.Expr) -> int | None:
    """-1, 0 or 1; None where it depends on symbols in an unknown way."""
    if value.is_zero:
        return 0
    if value.is_positive:
        return 1
    if value.is_negative:
        return -1
    if value.is_number:
        number = sp.N(value, 30, chop=True)
        return int(sp.sign(sp.re(number)))
    return None


# -- quadrature -----------------------------------------------------------------------------------------


def _quadrature(rest: list[Piece], x: sp.Symbol, orders: list[int], *, squares: bool) -> list[Any]:
    """E[f He_k] of real functions on intervals by tanh-sinh on panels, or a refusal."""
    mp = mpmath.mp
    totals = [mp.mpf(0)] * len(orders)
    for low, high, f in rest:
        scale, evaluate = _scaled(_real_function(f, x), low, high)
        ends = [_real_number(end) if end.is_finite else None for end in (low, high)]
        start = _reach(evaluate, -1, f, squares) if ends[0] is None else ends[0]
        stop = _reach(evaluate, 1, f, squares) if ends[1] is None else ends[1]
        panels = [start, *(i + _OFFSET for i in range(-48, 49, 2) if start < i + _OFFSET < stop), stop]
        stored: dict[Any, tuple[Any, Any]] = {}

        def weighted(t: Any, evaluate: Any = evaluate, stored: Any = stored) -> Any:
            if t not in stored:
                value = evaluate(t)
                stored[t] = value * mp.npdf(t), value
            return stored[t]

        if squares:
            _integral(lambda t, w=weighted: mp.fprod(w(t)), panels, f)
        for i, k in enumerate(orders):
            totals[i] += scale * _integral(lambda t, w=weighted, k=k: w(t)[0] * _hermite(k, t), panels, f)
    return totals


def _scaled(evaluate: Any, low: sp.Expr, high: sp.Expr) -> tuple[Any, Any]:
    """A scale of order E[f²]^(1/2), and f in units of it, so that an absolute error bar is a relative one."""
    points = [mpmath.mpf(4 * i + 1) / 13 for i in range(-16, 17)]
    inside = [
        t for t in points if (low == -sp.oo or t > _real_number(low)) and (high == sp.oo or t < _real_number(high))
    ]
    sizes = [abs(evaluate(t)) * mpmath.exp(-(t**2) / 4) for t in inside]
    scale = max(sizes, default=mpmath.mpf(1)) or mpmath.mpf(1)
    return scale, lambda t: evaluate(t) / scale


def _real_number(value: sp.Expr) -> Any:
    return mpmath.mpf(sp.Float(sp.N(value, _DIGITS + 10), _DIGITS + 10)._mpf_)


def _integral(function: Any, panels: list[Any], f: sp.Expr) -> Any:
    value, error = mpmath.quad(function, panels, error=True)
    if not error <= mpmath.mpf(10) ** (-_PROMISED):
        raise ParameterError(
            f"f must be square-integrable under the standard Gaussian and smooth between its switches; the integral of "
            f"the part {f} did not converge (error {mpmath.nstr(error, 3)}): it may have a singularity on the line"
        )
    return value


def _hermite(k: int, t: Any) -> Any:
    before, value = mpmath.mpf(0), mpmath.mpf(1)
    for i in range(k):
        before, value = value, t * value - i * before
    return value


def _exponents(f: sp.Expr, x: sp.Symbol) -> list[sp.Expr]:
    """Exponents that contain an exponential themselves, inner ones first."""
    powers = [power.as_base_exp() for power in f.rewrite(sp.exp).atoms(sp.exp, sp.Pow)]
    found = {index * sp.log(base) for base, index in powers if index.has(x) and not base.has(x)}
    return sorted(found, key=lambda exponent: exponent.count_ops()) if len(found) > 1 else []


def _real_function(f: sp.Expr, x: sp.Symbol) -> Any:
    function = sp.lambdify(x, f, modules="mpmath")
    exponents = [sp.lambdify(x, exponent, modules="mpmath") for exponent in _exponents(f, x)]

    def evaluate(t: Any) -> Any:
        try:
            if any(mpmath.re(exponent(t)) > _ASTRONOMICAL for exponent in exponents):
                raise OverflowError
            value = function(t)
            real, imaginary = mpmath.re(value), mpmath.im(value)
        except OverflowError as error:
            raise ParameterError(f"f must be square-integrable under the standard Gaussian; {f} overflows") from error
        except (NameError, TypeError, ValueError, ZeroDivisionError) as error:
            raise ParameterError(f"f cannot be evaluated at {mpmath.nstr(t, 5)}: {f} ({error})") from error
        if abs(imaginary) > abs(real) * mpmath.mpf(10) ** (-_DIGITS // 2) + mpmath.mpf(10) ** -_DIGITS:
            raise ParameterError(
                f"f must be real on the real line; {f} is {mpmath.nstr(value, 5)} at {mpmath.nstr(t, 5)}"
            )
        return real

    return evaluate


def _reach(evaluate: Any, sign: int, f: sp.Expr, squares: bool) -> Any:
    """A point beyond which the integrand is negligible; refuses a function that grows too fast."""
    fraction = mpmath.mpf(1) / (4 if squares else 2)
    for point in (16, 24, 32, 48):
        levels = [_log_size(evaluate, sign * mpmath.mpf(t)) - fraction * t**2 for t in (point, 48)]
        if levels[-1] > -100:
            raise ParameterError(
                f"f must be square-integrable under the standard Gaussian, with room to spare; {f} grows too fast "
                f"towards {'+' if sign > 0 else '-'}infinity"
            )
        if levels[0] - (mpmath.mpf(1) / 2 - fraction) * point**2 < -115:
            return sign * mpmath.mpf(point)
    return sign * mpmath.mpf(48)


def _log_size(evaluate: Any, t: Any) -> Any:
    value = abs(evaluate(t))
    return mpmath.log(value) if value else -(mpmath.mpf(10) ** 9)


# -- form of the results --------------------------------------------------------------------------------


def _tidy(value: sp.Expr) -> sp.Expr:
    if value.is_Float:
        return value
    if value.has(sp.Float):
        return sp.N(value, _DIGITS)
    expanded = sp.expand(value)
    return sp.factor_terms(expanded) if expanded.is_Add else expanded


def _compact(value: sp.Expr) -> sp.Expr:
    if value.has(sp.Float):
        return sp.N(value, _DIGITS)
    if value.count_ops() > _TOO_LONG:
        return _tidy(value)
    simple = sp.simplify(value)
    forms = [sp.expand(sp.powsimp(sp.expand(simple))), simple]
    return min(forms, key=sp.count_ops)
