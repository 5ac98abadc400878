r"""The law of a Gaussian chain plus noise as a rational curve, exactly, with symbols for parameters.

The model. :math:`Y = (\sqrt{s}\,S + \sqrt{v}\,Z)/\sqrt{n}` has m rows and n columns, c = m/n is the aspect; Z is
Gaussian with independent standard entries, S a product of independent Gaussian matrices normalised to entries of
variance one, with inner dimensions :math:`c_i m`. The law is that of the m eigenvalues of :math:`Y Y^T`;
:math:`G(z) = \int d\mu(x)/(z-x)`.

The curve. The S-transform of the chain gives :math:`T(u) = s\,\frac{1+u}{u}(1+cu)P(u)` with
:math:`P(u) = \prod_i (1+u/c_i)` over the inner dimensions; the rectangular free convolution with the noise adds
:math:`b = T/(T + v c (1+u))` and

.. math:: z = \frac{T + b v (1-c)}{b^2}, \qquad G = \frac{b (1+u)}{T}.

Written out, with :math:`E = s(1+u)P + vu` and :math:`D = s(1+cu)P + cvu`,

.. math:: z = \frac{E D}{s\,u\,P}, \qquad G = \frac{u}{D}, \qquad y = zG - 1 = u + \frac{v u}{s P} .

Elimination of u takes no resultant. :math:`cE - D = s(c-1)P` turns G = u/D into :math:`u = \kappa P(u)` with
:math:`\kappa = sG(1 - c + czG)`, and y becomes linear in u: :math:`u = zG - 1 - v\kappa/s`. So

.. math:: \mathcal{P}(z, G) = u - \kappa \prod_i (1 + u/c_i), \qquad u = zG - 1 - \frac{v\kappa}{s} .

Since u is a rational function of z and G, the curve is birational to the u-line, and a polynomial whose degree in G is
the degree of z(u) is the irreducible one.

Moments. With :math:`\zeta = 1/z`, :math:`\psi = \sum m_k \zeta^k = y`; as a power series in
:math:`w = u/(sP)` the chain has :math:`C(w) = y = \sum \kappa_j w^j`, :math:`\kappa_1 = s + v`,
:math:`\kappa_j = \frac{s^j}{j} [u^{j-1}] P(u)^j`, and :math:`\zeta = w/((1+C)(1+cC))`. Lagrange inversion:

.. math:: m_k = \frac1k\, [w^{k-1}]\; C'(w)\,\bigl((1+C(w))(1+cC(w))\bigr)^k ,

a sum of positive terms.

Sources: Müller 2002; Burda, Jarosz, Livan, Nowak, Swiech 2010 (products of rectangular Gaussian matrices); Dozier and
Silverstein 2007 (signal plus noise); Benaych-Georges 2009 (rectangular free convolution); Rao and Edelman 2008
(algebraic laws, elimination).
"""

from __future__ import annotations

import itertools
import numbers
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property, reduce
from typing import Any

import mpmath
import sympy as sp
from sympy.polys.rings import PolyElement, ring

from gequiv.errors import CertificationError, ParameterError

__all__ = ["SpectralCurve", "spectral_curve"]

_SAMPLES = 7


def spectral_curve(chain: Sequence[Any], noise: Any = None, aspect: Any = 1, signal: Any = None) -> SpectralCurve:
    """Spectral curve of Y Yᵀ, Y = (√signal S + √noise Z)/√n_cols, for a chain S of Gaussian factors.

    Parameters
    ----------
    chain : dimensions along the chain after the rows, each over the number of rows. Either to its end, so that the
        last entry is n_cols/rows = 1/aspect (independent queries and keys: ``[d_k/n, 1]``), or the inner dimensions
        only. An entry at the end that equals 1/aspect is read as the number of columns; so an inner dimension equal to
        the number of columns needs that number written behind it (``[1, 1]``, a square chain with one inner dimension).
    noise : variance of the entries of the noise; default ``sigma**2`` with a positive symbol sigma.
    aspect : rows over columns.
    signal : variance of the entries of the chain's part; default ``beta**2`` with a positive symbol beta.

    Numbers may be Python or sympy numbers; a float is read as the decimal that it prints. Symbols may stand anywhere
    and mean positive reals.

    Raises
    ------
    ParameterError : an entry that is not a positive real (noise may be 0).

    Examples
    --------
    >>> import sympy as sp
    >>> r = sp.Symbol("r", positive=True)
    >>> curve = spectral_curve([r, 1])
    >>> curve.moment(1), curve.degree
    (beta**2 + sigma**2, 4)
    >>> spectral_curve([1, 1], noise=0, signal=1).edges()
    [0, 6.75000000000000]
    """
    if isinstance(chain, (str, bytes)) or not isinstance(chain, Iterable):
        raise ParameterError(f"chain must be a sequence of dimensions over the number of rows; got {chain!r}")
    c = _positive("aspect", aspect)
    entries = [_positive(f"chain[{i}]", entry) for i, entry in enumerate(chain)]
    if entries and sp.simplify(entries[-1] * c - 1) == 0:
        entries.pop()
    s = sp.Symbol("beta", positive=True) ** 2 if signal is None else _positive("signal", signal)
    v = sp.Symbol("sigma", positive=True) ** 2 if noise is None else _positive("noise", noise, allow_zero=True)
    return SpectralCurve(tuple(entries), c, s, v)


class SpectralCurve:
    """z(u) and G(u) of a Gaussian chain plus noise: exact rational functions of one parameter.

    Built by `spectral_curve`; the equations are in the text of this module.

    Attributes
    ----------
    inner, aspect, signal, noise : the parameters as sympy expressions; ``inner`` without rows and columns.
    u, z_symbol, G_symbol : the symbols that the results are written in.
    """

    def __init__(self, inner: tuple[sp.Expr, ...], aspect: sp.Expr, signal: sp.Expr, noise: sp.Expr) -> None:
        self.inner, self.aspect, self.signal, self.noise = inner, aspect, signal, noise
        used = {symbol.name for value in (*inner, aspect, signal, noise) for symbol in value.free_symbols}
        self.u, self.z_symbol, self.G_symbol = (sp.Symbol(_unused(name, used)) for name in ("u", "z", "G"))
        self._opaque: dict[sp.Symbol, sp.Expr] = {}  # stand-ins for parameters that are no rational functions
        self._s, self._v, self._c = (self._stand_in(value) for value in (signal, noise, aspect))
        self._inner = tuple(self._stand_in(value) for value in inner)

    def __repr__(self) -> str:
        inner = ", ".join(map(str, self.inner))
        return f"SpectralCurve(inner=[{inner}], aspect={self.aspect}, signal={self.signal}, noise={self.noise})"

    def _stand_in(self, value: sp.Expr) -> sp.Expr:
        if value.is_rational_function() and not value.has(sp.I) and not (value.is_number and not value.is_Rational):
            return value
        for symbol, known in self._opaque.items():
            if known == value:
                return symbol
        symbol = sp.Dummy(f"p{len(self._opaque)}", positive=True)
        self._opaque[symbol] = value
        return symbol

    def _restored(self, expression: sp.Expr) -> sp.Expr:
        return expression.xreplace(self._opaque) if self._opaque else expression

    # -- the parametrisation ------------------------------------------------------------------------

    def z(self, u: Any = None) -> sp.Expr:
        """The point z of the curve, a rational function of u (default: the symbol ``u``)."""
        return self._at(self._z, u)

    def cauchy(self, u: Any = None) -> sp.Expr:
        """The Cauchy transform G at z(u), a rational function of u (default: the symbol ``u``)."""
        return self._at(self._cauchy, u)

    def _at(self, function: sp.Expr, u: Any) -> sp.Expr:
        value = self.u if u is None else sp.sympify(u)
        return self._restored(function if value == self.u else function.subs(self.u, value))

    @cached_property
    def _factors(self) -> tuple[sp.Expr, sp.Expr, sp.Expr]:
        """E, D and P, each polynomial in u."""
        u, s, v, c = self.u, self._s, self._v, self._c
        chain = sp.prod([1 + u / d for d in self._inner])
        return s * (1 + u) * chain + v * u, s * (1 + c * u) * chain + c * v * u, chain

    @cached_property
    def _z(self) -> sp.Expr:
        top, other, chain = self._factors
        return sp.factor(top * other / (self._s * self.u * chain))

    @cached_property
    def _cauchy(self) -> sp.Expr:
        return sp.cancel(self.u / self._factors[1])

    # -- elimination --------------------------------------------------------------------------------

    @cached_property
    def _relation(self) -> tuple[sp.Expr, sp.Expr]:
        """u and kappa as polynomials in z and G."""
        z, g, c = self.z_symbol, self.G_symbol, self._c
        kappa = self._s * g * (1 - c + c * z * g)
        return z * g - 1 - self._v * kappa / self._s, kappa

    @cached_property
    def _implicit(self) -> sp.Poly:
        u, kappa = self._relation
        z, g = self.z_symbol, self.G_symbol
        expression = u - kappa * sp.prod([1 + u / d for d in self._inner])
        top, _ = sp.fraction(sp.together(expression))
        result = _primitive(sp.Poly(top, g, z))
        self._check_implicit(result)
        return result

    def _check_implicit(self, polynomial: sp.Poly) -> None:
        """P(z(u), G(u)) = 0, exactly: u(z, G) = u and u = kappa P(u) as rational functions of u."""
        point = {self.z_symbol: self._z, self.G_symbol: self._cauchy}
        u, kappa = (sp.cancel(part.subs(point)) for part in self._relation)
        if sp.cancel(u - self.u) != 0 or sp.cancel(self.u - kappa * self._factors[2]) != 0:
            raise CertificationError(f"{self!r}: the elimination of u left a remainder; report the parameters")
        degree = max(sp.degree(part, self.u) for part in sp.fraction(sp.together(self._z)))
        if polynomial.degree(self.G_symbol) != degree:
            raise CertificationError(
                f"{self!r}: P(z, G) has degree {polynomial.degree(self.G_symbol)} in G where z(u) has {degree}; "
                "for the curve of special parameters put the numbers in, rather than symbols"
            )

    @property
    def polynomial(self) -> sp.Expr:
        """P(z, G), irreducible, without a common factor of its coefficients; P(z, G(z)) = 0."""
        return self._restored(self._implicit.as_expr())

    @property
    def degree(self) -> int:
        """Degree of P in G: the number of sheets over a point z."""
        return int(self._implicit.degree(self.G_symbol))

    # -- edges --------------------------------------------------------------------------------------

    def _scale_free(self) -> tuple[sp.Expr, sp.Expr, sp.Expr, sp.Expr, sp.Symbol]:
        """E/s, D/s and P with a symbol for v/s (0 stays 0), and numerator of d log z/du without repeated factors."""
        u, c = self.u, self._c
        ratio = sp.Dummy("q", positive=True) if self._v != 0 else sp.Integer(0)
        counts = Counter(self._inner)
        distinct = sp.prod([d + u for d in counts])  # P'/P = slopes/distinct
        slopes = sum((m * sp.prod([e + u for e in counts if e != d]) for d, m in counts.items()), sp.Integer(0))
        chain = sp.prod([1 + u / d for d in self._inner])
        top, other = (1 + u) * chain + ratio * u, (1 + c * u) * chain + c * ratio * u
        if ratio == 0:  # E and P have a factor in common
            poles = distinct - u * slopes  # of P/u, times u distinct
            slope = u * distinct * ((1 + c * u) + c * (1 + u)) - (1 + u) * (1 + c * u) * poles
        elif c == 1:
            slope = top * (2 * sp.diff(top, u) * u * distinct - top * (distinct + u * slopes))
        else:
            slope = sp.diff(top * other, u) * u * distinct - top * other * (distinct + u * slopes)
        return top, other, chain, slope, ratio

    @cached_property
    def _critical(self) -> sp.Expr:
        """Numerator of dz/du in u and v/s, primitive."""
        *_, slope, _ = self._scale_free_parts
        if self._v == 0 and self._c == 1:
            return slope
        return _primitive(sp.Poly(sp.fraction(sp.together(slope))[0], self.u)).as_expr()

    @cached_property
    def _scale_free_parts(self) -> tuple[sp.Expr, sp.Expr, sp.Expr, sp.Expr, sp.Symbol]:
        return self._scale_free()

    @cached_property
    def critical_polynomial(self) -> sp.Expr:
        """Polynomial in u whose roots are the finite critical points of z(u), simple unless they coincide."""
        return self._restored(self._critical_exact.as_expr())

    @cached_property
    def _critical_exact(self) -> sp.Poly:
        ratio = self._scale_free_parts[4]
        expression = sp.together(self._critical.subs(ratio, self._v / self._s)) if ratio != 0 else self._critical
        return _primitive(sp.Poly(sp.fraction(expression)[0], self.u))

    @cached_property
    def edge_polynomial(self) -> sp.Expr:
        """Square-free polynomial in z whose roots are the critical values of z(u); every edge is one of them."""
        u, z = self.u, self.z_symbol
        top, other, chain, _, ratio = self._scale_free_parts
        value = sp.Dummy("z")  # in units of the signal
        result: sp.Expr = sp.Integer(1)
        critical = sp.Poly(self._critical, u)
        if ratio == 0:
            numerator, denominator = (1 + u) * (1 + self._c * u) * chain, u
        else:
            numerator, denominator = top * other, u * chain
        if self._c == 1:  # the double zero of z
            result = value
            double = sp.Poly(sp.fraction(sp.together(top if ratio != 0 else 1 + u))[0], u)
            critical = sp.quo(critical, double)
        equation = sp.fraction(sp.together(numerator - value * denominator))[0]
        eliminated = sp.resultant(sp.Poly(equation, u), critical)
        simple = _square_free(sp.fraction(sp.together(eliminated))[0], value)
        expression = (result * simple).subs({value: z / self._s, ratio: self._v / self._s})
        polynomial = _primitive(sp.Poly(sp.fraction(sp.together(expression))[0], z))
        return self._restored(sp.factor_list(polynomial)[0] * _square_free(polynomial.as_expr(), z))

    def edges(self, dps: Any = 15) -> list[sp.Expr]:
        """Edges of the support of the continuous part, ascending, for numeric parameters.

        An edge is a real critical value of z(u), but not every one is an edge. Between two neighbouring critical
        values x the physical root u of z(u) = x + i0 is selected by the sheet conditions: Im u < 0, Im y < 0 and
        :math:`0 < \\arg(1+u) + \\arg(1+cu) + \\sum_i \\arg(1+u/c_i) - \\arg u < \\pi`, with principal arguments (u in
        the image of the upper half-plane under the moment transform of the chain alone, on which T is one to one; the
        half-plane of y then leaves one solution). Where that root is not real there is a density. An edge is where
        that changes.

        Raises
        ------
        ParameterError : parameters with symbols.
        CertificationError : not exactly one physical root, or one that is neither real nor clearly complex.
        """
        if isinstance(dps, bool) or not isinstance(dps, numbers.Integral) or int(dps) < 1:
            raise ParameterError(f"dps must be a positive integer; got {dps!r}")
        self._need_numbers("the edges")
        digits = int(dps)
        for working in (2 * digits + 50, 4 * digits + 150):
            found = self._numerical_edges(working)
            if found is not None:
                return [sp.Integer(0) if value == 0 else sp.Float(value, digits) for value in found]
        raise CertificationError(f"{self!r}: the support could not be certified; move the parameters slightly")

    def _need_numbers(self, what: str) -> None:
        symbols = set().union(*(value.free_symbols for value in (*self.inner, self.aspect, self.signal, self.noise)))
        if symbols:
            names = ", ".join(sorted(str(symbol) for symbol in symbols))
            raise ParameterError(f"{what} need numeric parameters; {names} are symbols: put numbers in their place")

    def _numerical_edges(self, digits: int) -> list[Any] | None:
        """Edges with about half the given digits; None where the sheet is not clear at this precision."""
        ctx = mpmath.mp.clone()
        ctx.dps = digits
        values = self._critical_values(ctx)
        signal, noise, aspect = (_number(ctx, p) for p in (self.signal, self.noise, self.aspect))
        sheet = _Sheet(ctx, signal, noise, aspect, self._numbers(ctx))
        inside = [sheet.has_density((low + high) / 2, high - low) for low, high in itertools.pairwise(values)]
        if any(flag is None for flag in inside):
            return None
        flags = [False, *inside, False]
        return [
            value for value, (before, after) in zip(values, itertools.pairwise(flags), strict=True) if before != after
        ]

    def _numbers(self, ctx: Any) -> list[Any]:
        return [_number(ctx, value) for value in self.inner]

    def _critical_values(self, ctx: Any) -> list[Any]:
        """Real critical values of z(u) that are not negative, ascending; coinciding ones once."""
        exact = self._critical_exact
        factors = [exact] if self._opaque else [factor for factor, _ in exact.sqf_list()[1]]
        values = []
        for factor in factors:
            coefficients = [_number(ctx, self._restored(coefficient)) for coefficient in factor.all_coeffs()]
            for root in ctx.polyroots(coefficients, maxsteps=2000, extraprec=8 * ctx.prec) if factor.degree() else []:
                if abs(ctx.im(root)) <= abs(root) * ctx.mpf(10) ** (-ctx.dps * 3 // 4):
                    values.append(self._value(ctx, ctx.re(root)))
        values.sort()
        tiny = ctx.mpf(10) ** (-ctx.dps * 2 // 3) * max(map(abs, values))
        values = [ctx.mpf(0) if abs(value) < tiny else value for value in values if value > -tiny]
        return [value for i, value in enumerate(values) if i == 0 or value - values[i - 1] > tiny]

    def _value(self, ctx: Any, u: Any) -> Any:
        s, v, c = (_number(ctx, p) for p in (self.signal, self.noise, self.aspect))
        chain = ctx.fprod(1 + u / d for d in self._numbers(ctx))
        if v == 0:
            return s * (1 + u) * (1 + c * u) * chain / u
        return (s * (1 + u) * chain + v * u) * (s * (1 + c * u) * chain + c * v * u) / (s * u * chain)

    # -- moments ------------------------------------------------------------------------------------

    def moment(self, k: Any) -> sp.Expr:
        """Moment of order k of the law, m_k = lim E tr (Y Yᵀ)^k / m: a polynomial in s, v, c and 1/c_i, expanded.

        Raises
        ------
        ParameterError : k is not an integer of at least 0.
        """
        if isinstance(k, bool) or not isinstance(k, numbers.Integral) or k < 0:
            raise ParameterError(f"k must be an integer of at least 0; got {k!r}")
        if k == 0:
            return sp.Integer(1)
        algebra = _MomentAlgebra((self._s, self._v, self._c, *(1 / d for d in self._inner)))
        s, v, c, *weights = algebra.parameters
        return self._restored(algebra.expression(_moment(int(k), s, v, c, weights, algebra.one)))


class _MomentAlgebra:
    """Polynomial ring of the parameters that are symbols; the others enter as rational coefficients."""

    def __init__(self, values: tuple[sp.Expr, ...]) -> None:
        symbolic = [value for value in dict.fromkeys(values) if not value.is_Rational]
        self._generators = symbolic
        names = [f"g{i}" for i in range(len(symbolic))] or ["g"]
        ring_, *elements = ring(names, sp.QQ)
        self.one = ring_.one
        table = dict(zip(symbolic, elements, strict=False))
        self.parameters = [table[value] if value in table else ring_(sp.QQ(value.p, value.q)) for value in values]

    def expression(self, element: PolyElement) -> sp.Expr:
        terms = []
        for powers, coefficient in element.terms():
            factors = [value**power for value, power in zip(self._generators, powers, strict=False) if power]
            terms.append(sp.Mul(sp.Rational(coefficient.numerator, coefficient.denominator), *factors))
        return sp.Add(*terms)


def _moment(k: int, s: Any, v: Any, c: Any, weights: list[Any], one: Any) -> Any:
    """m_k by Lagrange inversion; see the module's text."""
    chain = [one] + [0 * one] * (k - 1)  # P(u)^j to order k-1
    series = [0 * one]
    strength = one
    for j in range(1, k + 1):
        strength = strength * s
        for w in weights:
            chain = [chain[0], *(chain[i] + w * chain[i - 1] for i in range(1, k))]
        series.append(strength * chain[j - 1] * sp.QQ(1, j))
    series[1] = series[1] + v
    factor = _product([one, *series[1:k]], [one, *(c * term for term in series[1:k])])
    power = _power(factor, k)
    total = sum((j * series[j] * power[k - j] for j in range(1, k + 1)), 0 * one)
    return total * sp.QQ(1, k)


def _product(a: list[Any], b: list[Any]) -> list[Any]:
    return [reduce(lambda x, y: x + y, [a[j] * b[i - j] for j in range(i + 1)]) for i in range(len(a))]


def _power(series: list[Any], k: int) -> list[Any]:
    """series^k for a series that starts with 1, by p' f = k p f'."""
    result = [series[0]]
    for n in range(1, len(series)):
        term = sum(((k * j - (n - j)) * series[j] * result[n - j] for j in range(1, n + 1)), 0 * series[0])
        result.append(term * sp.QQ(1, n))
    return result


class _Sheet:
    """Selects the physical root of z(u) = x + i0."""

    def __init__(self, ctx: Any, signal: Any, noise: Any, aspect: Any, inner: list[Any]) -> None:
        self.ctx, self.s, self.v, self.c, self.inner = ctx, signal, noise, aspect, inner
        chain = [ctx.mpf(1)]
        for d in inner:
            chain = self._multiply(chain, [ctx.mpf(1), 1 / d])
        if noise == 0:
            self.top = self._multiply(self._multiply([signal, signal], [1, aspect]), chain)
            self.bottom = [ctx.mpf(0), ctx.mpf(1)]
        else:
            add = self._add
            e = add(self._multiply([signal, signal], chain), [0, noise])
            d = add(self._multiply([signal, signal * aspect], chain), [0, aspect * noise])
            self.top, self.bottom = self._multiply(e, d), [0, *(signal * coefficient for coefficient in chain)]

    @staticmethod
    def _add(a: list[Any], b: list[Any]) -> list[Any]:
        return [x + y for x, y in itertools.zip_longest(a, b, fillvalue=0)]

    @staticmethod
    def _multiply(a: list[Any], b: list[Any]) -> list[Any]:
        result = [0 * a[0]] * (len(a) + len(b) - 1)
        for i, x in enumerate(a):
            for j, y in enumerate(b):
                result[i + j] = result[i + j] + x * y
        return result

    def has_density(self, x: Any, width: Any) -> bool | None:
        """Whether the density at x, at the middle of an interval of that width, is positive; None if unclear."""
        ctx = self.ctx
        height = width * ctx.mpf(10) ** (-ctx.dps // 3)
        z = ctx.mpc(x, height)
        coefficients = self._add(self.top, [-z * coefficient for coefficient in self.bottom])[::-1]
        roots = ctx.polyroots(coefficients, maxsteps=2000, extraprec=8 * ctx.prec)
        transforms = [(1 + self._y(root)) / z for root in roots if self._physical(root)]
        if len(transforms) != 1:
            return None
        # outside the support Im G is -height times the integral of 1/(x-λ)², inside it tends to -π density
        imaginary = -ctx.im(transforms[0]) * width**2 / height
        bar = ctx.mpf(10) ** (ctx.dps // 6)
        if imaginary < bar:
            return False
        return True if imaginary > bar**2 / 10**3 else None

    def _y(self, u: Any) -> Any:
        return u + self.v * u / (self.s * self.ctx.fprod(1 + u / d for d in self.inner))

    def _physical(self, u: Any) -> bool:
        ctx = self.ctx
        if not (ctx.im(u) < 0 and ctx.im(self._y(u)) < 0):
            return False
        turn = ctx.arg(1 + u) + ctx.arg(1 + self.c * u) - ctx.arg(u) + sum(ctx.arg(1 + u / d) for d in self.inner)
        return bool(0 < turn < ctx.pi)


def _number(ctx: Any, value: sp.Expr) -> Any:
    if value.is_Rational:
        return ctx.mpf(int(value.p)) / int(value.q)
    digits = ctx.dps + 10
    return ctx.mpf(sp.Float(sp.N(value, digits), digits)._mpf_)


def _positive(name: str, value: Any, *, allow_zero: bool = False) -> sp.Expr:
    """`value` as an exact sympy expression that is not known to be outside the positive reals."""
    allowed = "a positive number or an expression in positive symbols" + (" (or 0)" if allow_zero else "")
    refusal = f"{name} must be {allowed}; got {value!r}"
    if isinstance(value, (bool, str)) or value is None:
        raise ParameterError(refusal)
    try:
        expression = sp.sympify(value)
    except (sp.SympifyError, TypeError) as error:
        raise ParameterError(refusal) from error
    if not isinstance(expression, sp.Expr) or expression.has(sp.zoo, sp.nan, sp.oo, -sp.oo):
        raise ParameterError(refusal)
    expression = expression.xreplace({number: sp.Rational(str(number)) for number in expression.atoms(sp.Float)})
    if expression.is_zero and allow_zero:
        return sp.Integer(0)
    if expression.is_number and not expression.is_Rational:
        simplified = sp.nsimplify(expression) if expression.is_rational else expression
        expression = simplified if simplified.is_Rational else expression
    if expression.is_positive is False or expression.is_real is False:
        raise ParameterError(refusal)
    return expression


def _unused(name: str, used: set[str]) -> str:
    while name in used:
        name += "_"
    return name


def _primitive(polynomial: sp.Poly) -> sp.Poly:
    """Polynomial with coefficients without denominators and common factors; the leading one not negative."""
    _, cleared = polynomial.clear_denoms(convert=True)
    _, result = cleared.primitive()
    lead = result.LC()
    number = lead if lead.is_number else sp.Poly(lead).LC()
    return -result if number.is_negative else result


def _square_free(expression: sp.Expr, symbol: sp.Symbol) -> sp.Expr:
    """Product of the distinct factors of a polynomial that contain the symbol."""
    factors = [factor for factor, _ in sp.factor_list(expression)[1] if factor.has(symbol)]
    return sp.prod(factors)
