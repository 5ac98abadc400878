r"""Free and rectangular cumulants, and the power series of the transforms, from moments and back.

Only +, - and * are used between moments and cumulants, so that the arithmetic is that of the numbers passed in:
integers and fractions give exact fractions, mpmath numbers the digits of their context, floats floats, and sympy
expressions expanded expressions.

Sources: Speicher 1994 (free cumulants); Benaych-Georges 2009 (rectangular cumulants); Voiculescu 1986, 1987 (R- and
S-transform).
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from gequiv.errors import ParameterError

_ALLOWED = "finite real numbers (int, Fraction, float, mpmath or sympy)"


def free_cumulants(moments: Iterable[Any]) -> list[Any]:
    r"""Free cumulants :math:`\kappa_1, \ldots, \kappa_K` from the moments :math:`m_1, \ldots, m_K`.

    .. math:: M(z) = C(z M(z)), \qquad M(z) = 1 + \sum_k m_k z^k, \quad C(z) = 1 + \sum_k \kappa_k z^k .

    The R-transform is :math:`R(g) = \sum_k \kappa_{k+1} g^k`; it is additive under free convolution.

    Parameters
    ----------
    moments : m_1, ..., m_K, without m_0 = 1; may be empty.

    Raises
    ------
    ParameterError : an entry is not a finite real number, or a result leaves the floats.

    Source: Speicher 1994.

    Examples
    --------
    >>> free_cumulants([0, 1, 0, 2, 0, 5]) == [0, 1, 0, 0, 0, 0]  # the semicircle
    True
    """
    return _cumulants("moments", _numbers("moments", moments), 0)


def moments(cumulants: Iterable[Any]) -> list[Any]:
    r"""Moments :math:`m_1, \ldots, m_K` from the free cumulants; the inverse of `free_cumulants`.

    .. math:: M(z) = C(z M(z)), \qquad M(z) = 1 + \sum_k m_k z^k, \quad C(z) = 1 + \sum_k \kappa_k z^k .

    Parameters
    ----------
    cumulants : κ_1, ..., κ_K; may be empty.

    Raises
    ------
    ParameterError : an entry is not a finite real number, or a result leaves the floats.

    Source: Speicher 1994.

    Examples
    --------
    >>> [int(m) for m in moments([1, 1, 1, 1])]  # Marchenko–Pastur of ratio one: Catalan numbers
    [1, 2, 5, 14]
    """
    return _moments("cumulants", _numbers("cumulants", cumulants), 0)


def rectangular_cumulants(moments: Iterable[Any], ratio: Any) -> list[Any]:
    r"""Rectangular cumulants of the law of :math:`A A^T` from its moments, A with p rows and n columns.

    With c = p/n (rows over columns), :math:`y(z) = z G(z) - 1 = \sum_{k \ge 1} m_k z^{-k}` and
    :math:`w = (1+y)(1+cy)/z`, the cumulants are the coefficients of

    .. math:: y = C(w) = \sum_{k \ge 1} \kappa_k w^k .

    They add when bi-orthogonally independent rectangular matrices do: :math:`C(w) = s w` for Gaussian noise whose
    entries have variance s/n. For c = 0 they are the free cumulants.

    Parameters
    ----------
    moments : m_1, ..., m_K of the law of A Aᵀ, without m_0 = 1; may be empty.
    ratio : c, rows over columns, above 0.

    Raises
    ------
    ParameterError : an entry is not a finite real number, the ratio is not above 0, or a result leaves the floats.

    Source: Benaych-Georges 2009.

    Examples
    --------
    >>> from fractions import Fraction
    >>> [str(k) for k in rectangular_cumulants([2, 6, 22], Fraction(1, 2))]  # Marchenko–Pastur of variance 2
    ['2', '0', '0']
    """
    *values, c = _numbers("moments", moments, ratio)
    return _cumulants("moments", values, c)


def moments_from_rectangular(cumulants: Iterable[Any], ratio: Any) -> list[Any]:
    r"""Moments of the law of :math:`A A^T` from its rectangular cumulants; the inverse of `rectangular_cumulants`.

    .. math:: y = \sum_{k \ge 1} \kappa_k w^k, \qquad w = (1+y)(1+cy)/z, \qquad y = \sum_{k \ge 1} m_k z^{-k} .

    Parameters
    ----------
    cumulants : κ_1, ..., κ_K; may be empty.
    ratio : c, rows over columns of A, above 0.

    Raises
    ------
    ParameterError : an entry is not a finite real number, the ratio is not above 0, or a result leaves the floats.

    Source: Benaych-Georges 2009.

    Examples
    --------
    >>> [int(m) for m in moments_from_rectangular([1, 0, 0], ratio=1)]
    [1, 2, 5]
    """
    *values, c = _numbers("cumulants", cumulants, ratio)
    return _moments("cumulants", values, c)


def r_series(moments: Iterable[Any]) -> list[Any]:
    r"""Coefficients of :math:`R(g) = \sum_{k=0}^{K-1} \kappa_{k+1} g^k`, lowest first: the free cumulants.

    R is defined by :math:`G(R(g) + 1/g) = g` with :math:`G(z) = \int \mu(dx)/(z-x)`.

    Parameters
    ----------
    moments : m_1, ..., m_K, without m_0 = 1; may be empty.

    Raises
    ------
    ParameterError : an entry is not a finite real number, or a result leaves the floats.

    Source: Voiculescu 1986; Speicher 1994.
    """
    return free_cumulants(moments)


def s_series(moments: Iterable[Any]) -> list[Any]:
    r"""Coefficients of the S-transform :math:`S(u) = \sum_{k=0}^{K-1} s_k u^k`, lowest first.

    .. math:: S(u) = \chi(u)\,\frac{1+u}{u}, \qquad \psi(\chi(u)) = u, \qquad \psi(z) = \sum_k m_k z^k .

    Multiplicative under free multiplicative convolution.

    Parameters
    ----------
    moments : m_1, ..., m_K, without m_0 = 1, with m_1 not 0; may be empty.

    Raises
    ------
    ParameterError : an entry is not a finite real number, m_1 is 0, or a result leaves the floats.

    Source: Voiculescu 1987.

    Examples
    --------
    >>> [int(s) for s in s_series([1, 2, 5, 14])]  # 1/(1+u)
    [1, -1, 1, -1]
    """
    values = _numbers("moments", moments)
    if not values:
        return []
    if values[0] == 0:
        raise ParameterError(f"moments must have a first entry other than 0 for an S-transform; got {values[0]!r}")
    inverse = _reverse(values)
    series = [second + first for first, second in zip([inverse[0] - inverse[0], *inverse], inverse, strict=False)]
    return _finite("moments", series)


def eta_series(moments: Iterable[Any]) -> list[Any]:
    r"""Coefficients of :math:`\eta(z) = \psi(z)/(1 + \psi(z)) = \sum_{k=1}^{K} \eta_k z^k` from :math:`\eta_1` on.

    There is no constant term; :math:`\psi(z) = \sum_k m_k z^k`. The coefficients are the Boolean cumulants.

    Parameters
    ----------
    moments : m_1, ..., m_K, without m_0 = 1; may be empty.

    Raises
    ------
    ParameterError : an entry is not a finite real number, or a result leaves the floats.

    Source: Speicher and Woroudi 1997.

    Examples
    --------
    >>> [int(b) for b in eta_series([1, 2, 5, 14])]
    [1, 1, 2, 5]
    """
    values = _numbers("moments", moments)
    result: list[Any] = []
    for n, moment in enumerate(values):
        result.append(_expand(moment - _dot(result, values[:n][::-1])))
    return _finite("moments", result)


# -- the arithmetic -----------------------------------------------------------------------------------


class _Powers:
    """The powers of D(x) = (1+y)(1+cy), y = Σ m_k x^k, as the moments become known one by one.

    Both kinds of cumulants satisfy y = Σ κ_s (x D)^s, free ones with c = 0; so m_n = Σ_{s<=n} κ_s [x^{n-s}] D^s.
    """

    def __init__(self, count: int, ratio: Any) -> None:
        self.count, self.ratio = count, ratio
        self.moments: list[Any] = []
        self.factor: list[Any] = [1]
        self.table: list[list[Any]] = [[1] for _ in range(count + 1)]  # table[s][j] = [x^j] D^s

    def append(self, moment: Any) -> None:
        squares = _dot(self.moments, self.moments[::-1])
        self.moments.append(moment)
        self.factor.append(_expand((1 + self.ratio) * moment + self.ratio * squares))
        n = len(self.moments)
        self.table[0].append(0)
        for s in range(1, self.count - n + 1):
            self.table[s].append(_expand(_dot(self.factor, self.table[s - 1][n::-1])))

    def lower_orders(self, cumulants: list[Any]) -> Any:
        """Σ_{s<n} κ_s [x^{n-s}] D^s for the next n."""
        n = len(cumulants) + 1
        return _dot(cumulants, [self.table[s][n - s] for s in range(1, n)])


def _cumulants(name: str, moments: list[Any], ratio: Any) -> list[Any]:
    powers, result = _Powers(len(moments), ratio), list[Any]()
    for moment in moments:
        result.append(_expand(moment - powers.lower_orders(result)))
        powers.append(moment)
    return _finite(name, result)


def _moments(name: str, cumulants: list[Any], ratio: Any) -> list[Any]:
    powers = _Powers(len(cumulants), ratio)
    for n, cumulant in enumerate(cumulants):
        powers.append(_expand(cumulant + powers.lower_orders(cumulants[:n])))
    return _finite(name, powers.moments)


def _reverse(series: list[Any]) -> list[Any]:
    """b_1, ..., b_K with f(Σ b_k u^k) = u for f = Σ f_k z^k: Σ_s b_s [z^n] f^s is 1 for n = 1 and 0 beyond."""
    count, over = len(series), 1 / series[0]
    unit = [_expand(value * over) for value in series]  # f/f_1
    power, table = unit, [unit]  # table[s-1][j] = [z^{s+j}] (f/f_1)^s
    for s in range(1, count):
        power = [_expand(_dot(unit[: j + 1], power[j::-1])) for j in range(count - s)]
        table.append(power)
    result = [unit[0]]
    for n in range(1, count):
        result.append(_expand(-_dot(result, [table[s][n - s] for s in range(n)])))
    scale = over
    for n in range(count):
        result[n] = _expand(result[n] * scale)
        scale = scale * over
    return result


def _dot(first: list[Any], second: list[Any]) -> Any:
    return sum(a * b for a, b in zip(first, second, strict=True))


def _expand(value: Any) -> Any:
    """Sympy expressions multiplied out, so that they do not swell; everything else as it is."""
    return value.expand() if hasattr(value, "free_symbols") else value


# -- numbers in and out -------------------------------------------------------------------------------


def _numbers(name: str, values: Iterable[Any], *ratio: Any) -> list[Any]:
    """The entries, and the ratio after them where there is one, all in one arithmetic."""
    if isinstance(values, (str, bytes, dict)):
        raise ParameterError(f"{name} must be a sequence of {_ALLOWED}; got {values!r}")
    try:
        entries = list(values)
    except TypeError:
        raise ParameterError(f"{name} must be a sequence of {_ALLOWED}; got {values!r}") from None
    result = [_number(f"{name}[{k}]", value) for k, value in enumerate(entries)]
    for value in ratio:
        number = _number("ratio", value)
        if not hasattr(number, "free_symbols") and not number > 0:
            raise ParameterError(f"ratio must be above 0; got {value!r}")
        result.append(number)
    return _one_arithmetic(result)


def _number(name: str, value: Any) -> Any:
    """One entry, validated; numpy's numbers as Python's."""
    if isinstance(value, np.generic):
        value = value.item()
    symbolic = hasattr(value, "free_symbols") and hasattr(value, "as_real_imag")
    if isinstance(value, bool) or not (isinstance(value, numbers.Real) or symbolic):
        raise ParameterError(f"{name} must be one of {_ALLOWED}; got {value!r}")
    if not _is_finite(value) or getattr(value, "is_real", None) is False:
        raise ParameterError(f"{name} must be finite and real; got {value!r}")
    return value


def _is_finite(value: Any) -> bool:
    return bool(value - value == 0)  # false for nan and the infinities of every arithmetic


def _one_arithmetic(values: list[Any]) -> list[Any]:
    """Integers and fractions as fractions, or as what the first inexact or symbolic number among them is."""
    others = [value for value in values if not isinstance(value, (int, Fraction))]
    if not others:
        return [Fraction(value) for value in values]
    # floats give way to mpmath and sympy
    kind = next((value for value in others if not isinstance(value, float)), others[0])
    zero = kind - kind

    def convert(value: Any) -> Any:
        if not isinstance(value, (int, Fraction)):
            return value
        if isinstance(zero, float):
            return _as_float(value)
        return (zero + value.numerator) / value.denominator

    return [convert(value) for value in values]


def _as_float(value: int | Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ParameterError(f"{value!r} is too large to be mixed with floats; pass fractions only") from None


def _finite(name: str, result: list[Any]) -> list[Any]:
    """The result, unless it left the floats."""
    if not all(_is_finite(value) for value in result):
        raise ParameterError(
            f"{name} must be small enough for the result to fit into floats (up to 1.8e308); pass fractions or mpmath "
            f"numbers, or rescale the law; got {len(result)} entries"
        )
    return result
