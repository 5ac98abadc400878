r"""The limit law of a matrix expression: from sympy to a certified law, by its linear pencil and block Dyson equation.

The expression is a polynomial, written as the user likes, in independent real Gaussian matrices (``MatrixSymbol``),
Wigner matrices and deterministic diagonal ones. Its pencil follows the way it is written: a sum put between two spaces
puts each term there, and a product :math:`F_1 \cdots F_k` gets a pair of auxiliary spaces a, b between neighbours,

.. math::
    L_{p a_1} = -F_1, \quad L_{b_j a_{j+1}} = -F_{j+1}, \quad L_{b_{k-1} q} = -F_k, \quad L_{a_j b_j} = 1, \quad
    L = L^* ,

so that common factors, as in (a X W_Q W_Kᵀ Xᵀ + b Z) X W_V, appear once. Self-adjoint expressions Y have the first
block z - Y: a product c F M F* with self-adjoint middle M (nothing, a diagonal matrix, a sum) gets F from the first
space to a, :math:`L_{ab} = 1` and :math:`L_{bb} = -cM`; any other term is written as half of itself and of its adjoint,
which the Hermitian L contains of itself. For all other expressions the eigenvalues are those of :math:`Y Y^*`, from
:math:`L = ((z, -Y), (-Y^*, 1))`.

`gequiv.symbolic.dyson_equation` derives the same equation in symbols, for expressions without diagonal matrices.

Sources: as for `gequiv.dyson.blocks`; Pennington and Worah 2017 for random features.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import sympy as sp
from sympy.matrices.expressions.matexpr import MatrixElement

from gequiv import _checks
from gequiv._checks import Array, ComplexArray
from gequiv.dyson.blocks import BlockEquation, DiagonalTerm, GaussianTerm
from gequiv.errors import CertificationError, ParameterError
from gequiv.laws._equation_solver import Solver, Status
from gequiv.laws._equation_support import ADVICE
from gequiv.laws.base import Law
from gequiv.laws.equation import EquationLaw

ENTRIES, PRODUCTS, COLUMNS = "entries", "products", "columns"

_SAME = 1e-10  # coefficients of one word that differ by less, relative to the largest, are the same
_GROWTH = 3.7  # sizes are multiplied by it to see whether the coefficients make the expression of order one
_MOST_WORDS = 20_000
_ATOM_ERROR = 1e-5
_FLAT = 1e-14  # a second difference of weights that is rounding
_LEAST_ATOM = 1e-9
_CIRCLE = 48
_MOST_SIZES = 4
_MOST_PLACES = 100


class Letter(NamedTuple):
    """A matrix of the expression, perhaps transposed."""

    matrix: Any
    transposed: bool


Term: TypeAlias = tuple[Any, tuple[Any, ...]]
"""A scalar and the factors of a product: letters, and sums in brackets."""
Sum: TypeAlias = tuple[Term, ...]
Polynomial: TypeAlias = dict[tuple[Letter, ...], complex]


# ---------------------------------------------------------------------------------------------------------------------
# Reading
# ---------------------------------------------------------------------------------------------------------------------


def _parse(expr: Any) -> Sum:
    if isinstance(expr, sp.MatrixSymbol):
        return ((sp.Integer(1), (Letter(expr, False),)),)
    if isinstance(expr, sp.Identity):
        return ((sp.Integer(1), ()),)
    if isinstance(expr, sp.ZeroMatrix):
        return ()
    if isinstance(expr, sp.Transpose | sp.Adjoint):
        return _adjoint(_parse(expr.arg), conjugate=isinstance(expr, sp.Adjoint))
    if isinstance(expr, sp.MatAdd):
        return tuple(term for part in expr.args for term in _parse(part))
    if isinstance(expr, sp.MatMul):
        scalar: Any = sp.Integer(1)
        factors: tuple[Any, ...] = ()
        for part in expr.args:
            if not getattr(part, "is_Matrix", False):
                scalar = scalar * part
                continue
            inner = _parse(part)
            if len(inner) == 0:
                return ()
            if len(inner) == 1:
                scalar, factors = scalar * inner[0][0], factors + inner[0][1]
            else:
                factors = (*factors, inner)
        if len(factors) == 1 and not isinstance(factors[0], Letter):
            return tuple((scalar * c, inner) for c, inner in factors[0])
        return ((scalar, factors),)
    if isinstance(expr, sp.MatPow) and expr.exp.is_Integer and expr.exp >= 0:
        if expr.exp == 0:
            return ((sp.Integer(1), ()),)
        return _parse(sp.MatMul(*([expr.base] * int(expr.exp)), evaluate=False))
    raise ParameterError(
        f"expr may contain MatrixSymbol, +, *, .T, Identity, non-negative integer powers and scalar coefficients; "
        f"got {type(expr).__name__}: {expr}"
    )


def _adjoint(total: Sum, *, conjugate: bool) -> Sum:
    return tuple(
        (sp.conjugate(scalar) if conjugate else scalar, tuple(_flip(f, conjugate) for f in reversed(factors)))
        for scalar, factors in total
    )


def _flip(factor: Any, conjugate: bool) -> Any:
    if isinstance(factor, Letter):
        return Letter(factor.matrix, not factor.transposed)
    return _adjoint(factor, conjugate=conjugate)


def _factored(total: Sum) -> Sum:
    """The same sum with common last factors, then common first ones, taken out of brackets: fewer auxiliary spaces."""
    for last in (True, False):
        groups: dict[Any, list[Term]] = {}
        for term in total:
            groups.setdefault(term[1][-1 if last else 0] if term[1] else None, []).append(term)
        if len(groups) == len(total) or (len(groups) == 1 and None in groups):
            continue
        result: list[Term] = []
        for factor, terms in groups.items():
            if factor is None or len(terms) == 1:
                result += terms
                continue
            inner = _factored(tuple((c, f[:-1] if last else f[1:]) for c, f in terms))
            if len(inner) == 1:
                c, factors = inner[0]
                result.append((c, (*factors, factor) if last else (factor, *factors)))
            else:
                result.append((1.0, (inner, factor) if last else (factor, inner)))
        return tuple(result) if not last else _factored(tuple(result))
    return total


def _letters(total: Sum) -> list[Letter]:
    found: list[Letter] = []
    for _, factors in total:
        for factor in factors:
            found += [factor] if isinstance(factor, Letter) else _letters(factor)
    return found


def _scalars(total: Sum) -> list[Any]:
    found: list[Any] = []
    for scalar, factors in total:
        found.append(scalar)
        for factor in factors:
            if not isinstance(factor, Letter):
                found += _scalars(factor)
    return found


def _as_polynomial(total: Sum) -> Polynomial:
    """Expanded, with numbers as scalars."""
    result: Polynomial = {}
    for scalar, factors in total:
        product: Polynomial = {(): scalar}
        for factor in factors:
            other: Polynomial = {(factor,): 1.0} if isinstance(factor, Letter) else _as_polynomial(factor)
            product_next: Polynomial = {}
            for u, a in product.items():
                for v, b in other.items():
                    product_next[u + v] = product_next.get(u + v, 0.0) + a * b
            product = product_next
            if len(product) > _MOST_WORDS:
                raise ParameterError(f"expr has more than {_MOST_WORDS} words when expanded")
        for word, c in product.items():
            result[word] = result.get(word, 0.0) + c
    return result


def _polynomial_adjoint(p: Polynomial, symmetric: frozenset[Any]) -> Polynomial:
    return {
        tuple(x if x.matrix in symmetric else Letter(x.matrix, not x.transposed) for x in reversed(word)): c.conjugate()
        for word, c in ((word, complex(c)) for word, c in p.items())
    }


def _same(p: Polynomial, q: Polynomial) -> bool:
    size = max([abs(c) for c in p.values()] + [abs(c) for c in q.values()] + [0.0])
    return all(abs(p.get(word, 0.0) - q.get(word, 0.0)) <= _SAME * size for word in {*p, *q})


# ---------------------------------------------------------------------------------------------------------------------
# The model: sizes, normalisation, what each symbol is
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Model:
    """An expression with everything that turns it into numbers."""

    expression: Any
    tree: Sum
    sizes: dict[Any, Any]
    normalise: str
    symmetric: frozenset[Any]
    diagonal: dict[Any, tuple[Array, Array]]
    hermitian: bool = False
    numbers: Sum = field(default=())

    def number(self, size: Any, factor: float = 1.0) -> float:
        """A size in numbers, all sizes being multiplied by a factor."""
        return float(size.subs(self.sizes)) * factor

    @property
    def columns(self) -> float:
        return self.number(self.expression.shape[1])

    def letter_factor(self, letter: Letter, factor: float = 1.0) -> float:
        r"""What a letter's matrix of entries of variance 1/N is multiplied by, N the columns of the expression."""
        if letter.matrix in self.diagonal:
            return 1.0
        reference = self.number(self.expression.shape[1], factor)
        if self.normalise == ENTRIES:
            return math.sqrt(reference)
        if self.normalise == COLUMNS:
            return 1.0
        columns = letter.matrix.shape[0 if letter.transposed else 1]
        return math.sqrt(reference / self.number(columns, factor))

    def with_numbers(self, factor: float = 1.0) -> Sum:
        """The tree with numbers as scalars, the factors of the letters included, at sizes times a factor."""
        sizes = {s: value * sp.Float(factor) for s, value in self.sizes.items()}
        mirrored = self.symmetric | frozenset(self.diagonal)  # these are their own transposes

        def convert(total: Sum) -> Sum:
            result = []
            for scalar, factors in total:
                number = _number(scalar, sizes)
                parts: list[Any] = []
                for f in factors:
                    if isinstance(f, Letter):
                        number *= self.letter_factor(f, factor)
                        parts.append(Letter(f.matrix, False) if f.matrix in mirrored else f)
                    else:
                        parts.append(convert(f))
                result.append((number, tuple(parts)))
            return tuple(result)

        return convert(self.tree)


def _number(scalar: Any, sizes: Mapping[Any, Any]) -> complex:
    if scalar.has(MatrixElement):
        raise ParameterError(f"the scalar coefficients of expr must not contain entries of matrices; got {scalar}")
    value = scalar.subs(sizes)
    if value.has(sp.zoo, sp.nan, sp.oo, -sp.oo):
        raise ParameterError(f"the scalar coefficients of expr must be finite; got {scalar}")
    if value.free_symbols:
        raise ParameterError(
            f"expr must have numbers for coefficients, apart from sizes; {sorted(map(str, value.free_symbols))} "
            f"in {scalar} have no value: put numbers in with expr.subs"
        )
    number = complex(sp.N(value))
    if not (math.isfinite(number.real) and math.isfinite(number.imag)):
        raise ParameterError(f"the scalar coefficients of expr must be finite; got {scalar}")
    return number


def _model(expr: Any, sizes: Any, diagonal: Any, symmetric: Any, normalise: Any) -> _Model:
    if not isinstance(expr, sp.MatrixExpr):
        raise ParameterError(f"expr must be a sympy matrix expression; got {type(expr).__name__}: {expr!r}")
    if normalise not in (None, ENTRIES, PRODUCTS, COLUMNS):
        raise ParameterError(f'normalise must be None, "{ENTRIES}", "{PRODUCTS}" or "{COLUMNS}"; got {normalise!r}')
    tree = _parse(expr)
    matrices = sorted({letter.matrix for letter in _letters(tree)}, key=lambda m: str(m.name))
    names = [m.name for m in matrices]
    if len(set(names)) < len(names):
        raise ParameterError(f"expr uses one name for matrices of different shapes: {names}")
    values = _diagonals(diagonal, matrices)
    wigner = _symmetric(symmetric, matrices, values)
    if not any(m not in values for m in matrices):
        raise ParameterError(
            f"expr must contain a Gaussian matrix (a MatrixSymbol that is not in diagonal); got {expr}"
        )
    given = _sizes(sizes, [*(d for m in matrices for d in m.shape), *expr.shape])
    if normalise is None:
        normalise = ENTRIES if _carries_sizes(tree, matrices) else PRODUCTS
    model = _Model(expr, tree, given, normalise, wigner, values)
    numbers = model.with_numbers()
    p = _as_polynomial(numbers)
    for word in p:
        _check_shapes(word, model)
    if not p or not any(abs(c) > 0 for word, c in p.items() if any(x.matrix not in values for x in word)):
        raise ParameterError(f"expr must depend on a Gaussian matrix; {expr} does not")
    if given and normalise == ENTRIES:
        grown = _as_polynomial(model.with_numbers(_GROWTH))
        for word, c in p.items():
            if abs(grown[word] - c) > 1e-6 * abs(c):
                name = "*".join(f"{x.matrix.name}.T" if x.transposed else str(x.matrix.name) for x in word)
                raise ParameterError(
                    "expr must be of order one: the entries have variance one, so the coefficient of "
                    f"{name or 'the identity'} has to decrease like size**(-k/2), k the number of its Gaussian "
                    'factors. Divide by the sizes, or pass normalise="products" or "columns"'
                )
    hermitian = expr.shape[0] == expr.shape[1] and _same(p, _polynomial_adjoint(p, wigner | frozenset(values)))
    return replace(model, hermitian=hermitian, numbers=numbers)


def _check_shapes(word: tuple[Letter, ...], model: _Model) -> None:
    """The factors of a product, and the product in its place, fit together at the given sizes."""
    shapes = [(x.matrix.T if x.transposed else x.matrix).shape for x in word]
    rows, columns = model.expression.shape
    inner = [(left[1], right[0]) for left, right in itertools.pairwise(shapes)]
    ends = [(rows, shapes[0][0]), (shapes[-1][1], columns)] if shapes else [(rows, columns)]
    for a, b in [*inner, *ends]:
        if not math.isclose(model.number(a), model.number(b), rel_tol=1e-12):
            name = "*".join(f"{x.matrix.name}.T" if x.transposed else str(x.matrix.name) for x in word)
            raise ParameterError(
                f"sizes must make the shapes of expr fit together; in {name or 'the identity'} a dimension is {a} = "
                f"{model.number(a):g} on one side and {b} = {model.number(b):g} on the other"
            )


def _carries_sizes(tree: Sum, matrices: list[Any]) -> bool:
    """As for `gequiv.symbolic.dyson_equation`: whether the coefficients contain the sizes."""
    sizes = {s for m in matrices for d in m.shape for s in d.free_symbols}
    scalars = _scalars(tree)
    if sizes:
        return any(c.free_symbols & sizes for c in scalars)
    rooted = any(power.base.is_number for c in scalars for power in c.atoms(sp.Pow))
    return rooted or any(abs(c.as_coeff_Mul()[0]) < sp.Rational(1, 8) for c in scalars)


def _sizes(sizes: Any, dimensions: list[Any]) -> dict[Any, Any]:
    symbols = sorted({s for d in dimensions for s in sp.sympify(d).free_symbols}, key=lambda s: str(s.name))
    if sizes is not None and not isinstance(sizes, Mapping):
        raise ParameterError(f"sizes must be a dict of numbers, such as {{n: 1000, m: 2000}}; got {sizes!r}")
    given = dict(sizes or {})
    for s in given:
        if s not in symbols:
            raise ParameterError(f"sizes gives {s}, which is none of the sizes {symbols} of expr")
    missing = [s for s in symbols if s not in given]
    if missing:
        raise ParameterError(f"sizes must give a number for each of {symbols}; {missing} are missing")
    result = {}
    for s, value in given.items():
        try:
            number = sp.sympify(value)
        except sp.SympifyError as error:
            raise ParameterError(f"sizes[{s}] must be a finite number above 0; got {value!r}") from error
        if not (
            isinstance(number, sp.Expr) and number.is_number and number.is_real and number.is_finite and number > 0
        ):
            raise ParameterError(f"sizes[{s}] must be a finite number above 0; got {value!r}")
        result[s] = number
    for d in dimensions:
        if not sp.sympify(d).subs(result) > 0:
            raise ParameterError(f"sizes must make every dimension positive; {d} is {sp.sympify(d).subs(result)}")
    return result


def _symmetric(symmetric: Any, matrices: list[Any], diagonal: Mapping[Any, Any]) -> frozenset[Any]:
    try:
        chosen = list(symmetric)
    except TypeError as error:
        raise ParameterError(f"symmetric must be a list of matrix symbols of expr; got {symmetric!r}") from error
    for matrix in chosen:
        if matrix not in matrices or matrix.shape[0] != matrix.shape[1] or matrix in diagonal:
            raise ParameterError(
                f"symmetric must hold square matrix symbols of expr that are not in diagonal; got {matrix}"
            )
    return frozenset(chosen)


def _diagonals(diagonal: Any, matrices: list[Any]) -> dict[Any, tuple[Array, Array]]:
    if diagonal is not None and not isinstance(diagonal, Mapping):
        raise ParameterError(f"diagonal must be a dict from matrix symbols to values; got {diagonal!r}")
    result: dict[Any, tuple[Array, Array]] = {}
    for matrix, given in dict(diagonal or {}).items():
        name = f"diagonal[{matrix}]"
        if matrix not in matrices or matrix.shape[0] != matrix.shape[1]:
            raise ParameterError(f"diagonal must name square matrix symbols of expr; got {matrix}")
        pair = isinstance(given, tuple) and len(given) == 2 and np.ndim(given[0]) == 1
        values = _checks.real_array(name, given[0] if pair else given)
        weights = _checks.real_array(name, given[1]) if pair else np.ones_like(values)
        if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
            raise ParameterError(f"{name} must be a non-empty 1-D array of finite numbers, or (locations, weights)")
        if weights.shape != values.shape or not (np.isfinite(weights).all() and (weights > 0).all()):
            raise ParameterError(f"{name} must have one positive weight for each location")
        result[matrix] = values, weights / weights.sum()
    by_space: dict[Any, tuple[Any, Array]] = {}
    for matrix, (_, weights) in result.items():
        other, known = by_space.setdefault(matrix.shape[0], (matrix, weights))
        if not np.array_equal(known, weights):
            raise ParameterError(
                f"diagonal[{matrix}] must have as many values as diagonal[{other}], with the same weights: the two "
                "are diagonal in the same basis"
            )
    # the same value many times is one coordinate
    for space, (_, weights) in by_space.items():
        here = [matrix for matrix in result if matrix.shape[0] == space]
        joint = np.stack([result[matrix][0] for matrix in here])
        distinct, index = np.unique(joint, axis=1, return_inverse=True)
        total = np.bincount(index.reshape(-1), weights=weights)
        for row, matrix in zip(distinct, here, strict=True):
            result[matrix] = row, total / total.sum()
    return result


# ---------------------------------------------------------------------------------------------------------------------
# The pencil
# ---------------------------------------------------------------------------------------------------------------------


class _Pencil:
    """Collects the entries of a Hermitian pencil, in numbers."""

    def __init__(self, model: _Model) -> None:
        self.model = model
        self.mirrored = model.symmetric | frozenset(model.diagonal)
        self.size = 0
        self.constant: dict[tuple[int, int], complex] = {}
        self.patterns: dict[Any, dict[tuple[int, int], complex]] = {}
        first = self._block()
        if model.hermitian:
            self._hermitian(model.numbers, first)
        else:
            second = self._block()
            self._scalar(second, second, 0.5)
            self._sum(_factored(model.numbers), first, second, 1.0)

    def _block(self) -> int:
        self.size += 1
        return self.size - 1

    def _add(self, entries: dict[tuple[int, int], complex], a: int, b: int, value: complex) -> None:
        entries[a, b] = entries.get((a, b), 0.0) + value

    def _scalar(self, a: int, b: int, value: complex) -> None:
        """value into (a, b) and its conjugate into (b, a): twice the real part on the diagonal."""
        self._add(self.constant, a, b, value)
        self._add(self.constant, b, a, value.conjugate())

    def _factor(self, factor: Any, a: int, b: int, c: complex) -> None:
        """-c factor into (a, b) and its adjoint into (b, a)."""
        if not isinstance(factor, Letter):
            self._sum(factor, a, b, c)
            return
        entries = self.patterns.setdefault(factor.matrix, {})
        if factor.matrix in self.mirrored:
            self._add(entries, a, b, c)
            self._add(entries, b, a, c.conjugate())
        elif factor.transposed:
            self._add(entries, b, a, c.conjugate())
        else:
            self._add(entries, a, b, c)

    def _sum(self, total: Sum, start: int, end: int, c: complex) -> None:
        for scalar, factors in total:
            if factors:
                self._product(factors, start, end, c * scalar)
            else:
                self._scalar(start, end, -c * scalar)

    def _product(self, factors: tuple[Any, ...], start: int, end: int, c: complex) -> None:
        for factor in factors[:-1]:
            a, b = self._block(), self._block()
            self._factor(factor, start, a, c)
            self._scalar(a, b, 1.0)
            start, c = b, 1.0
        self._factor(factors[-1], start, end, c)

    def _hermitian(self, total: Sum, block: int) -> None:
        """-total, which is self-adjoint, into the diagonal of a block."""
        total = self._between_common_ends(total)
        expanded = [_as_polynomial((term,)) for term in total]
        adjoints = [_polynomial_adjoint(p, self.mirrored) for p in expanded]
        done: set[int] = set()
        for k, (scalar, factors) in enumerate(total):
            if k in done:
                continue
            done.add(k)
            if _same(expanded[k], adjoints[k]) and self._palindrome(scalar, factors, block):
                continue
            partners = [j for j in range(len(total)) if j not in done and _same(expanded[j], adjoints[k])]
            done.update(partners[:1])
            self._sum(((scalar, factors),), block, block, 1.0 if partners else 0.5)

    def _between_common_ends(self, total: Sum) -> Sum:
        """The same sum with F a F* + F b F* written as F (a + b) F*."""
        groups: dict[Any, list[Term]] = {}
        rest: list[Term] = []
        for term in total:
            factors = term[1]
            if len(factors) >= 2 and isinstance(factors[0], Letter) and self._are_adjoint(factors[0], factors[-1]):
                groups.setdefault(factors[0], []).append(term)
            else:
                rest.append(term)
        for factor, terms in groups.items():
            if len(terms) == 1:
                rest += terms
            else:
                rest.append((1.0, (factor, tuple((c, f[1:-1]) for c, f in terms), terms[0][1][-1])))
        return tuple(rest)

    def _are_adjoint(self, left: Any, right: Any) -> bool:
        p, q = (_as_polynomial(((1.0, (f,)),)) for f in (left, right))
        return _same(_polynomial_adjoint(p, self.mirrored), q)

    def _palindrome(self, scalar: complex, factors: tuple[Any, ...], block: int) -> bool:
        """c F M F* with M self-adjoint; False if the product is not of this kind, with F not empty."""
        half = 0
        while 2 * (half + 1) <= len(factors):
            if not self._are_adjoint(factors[half], factors[-1 - half]):
                break
            half += 1
        if half == 0 or abs(scalar.imag) > _SAME * abs(scalar):
            return False
        middle: Sum = ((scalar.real, factors[half : len(factors) - half]),)
        inner = _as_polynomial(middle)
        if not _same(inner, _polynomial_adjoint(inner, self.mirrored)):
            return False
        c: complex = 1.0
        start = block
        for factor in factors[: half - 1]:
            a, b = self._block(), self._block()
            self._factor(factor, start, a, c)
            self._scalar(a, b, 1.0)
            start = b
        last = self._block()
        self._factor(factors[half - 1], start, last, c)
        if not middle[0][1]:
            self._scalar(last, last, 0.5 / scalar.real)
            return True
        b = self._block()
        self._scalar(last, b, 1.0)
        inside = middle[0][1]
        if len(inside) == 1 and not isinstance(inside[0], Letter):
            self._hermitian(tuple((scalar.real * s, f) for s, f in inside[0]), b)
        else:
            self._hermitian(middle, b)
        return True

    def matrix(self, entries: Mapping[tuple[int, int], complex]) -> ComplexArray:
        result = np.zeros((self.size, self.size), dtype=np.complex128)
        for place, value in entries.items():
            result[place] = value
        return result

    def equation(self, low: float, high: float, atoms: Iterable[tuple[float, float]] = ()) -> BlockEquation:
        model = self.model
        gaussians, diagonals = [], []
        for matrix, entries in self.patterns.items():
            pattern = self.matrix(entries)
            if matrix in model.diagonal:
                diagonals.append(DiagonalTerm(pattern, *model.diagonal[matrix]))
                continue
            if matrix in model.symmetric:
                pattern = pattern / math.sqrt(2)
            rows, columns = (model.number(d) / model.columns for d in matrix.shape)
            gaussians.append(GaussianTerm(pattern, rows, columns))
        return BlockEquation(self.matrix(self.constant), gaussians, diagonals, low=low, high=high, atoms=list(atoms))


def _norm(total: Sum, model: _Model) -> float:
    """A bound of the operator norm in the limit."""
    bound = 0.0
    for scalar, factors in total:
        product = abs(scalar)
        for factor in factors:
            if not isinstance(factor, Letter):
                product *= _norm(factor, model)
            elif factor.matrix in model.diagonal:
                product *= float(np.abs(model.diagonal[factor.matrix][0]).max())
            else:
                r, s = (model.number(d) / model.columns for d in factor.matrix.shape)
                product *= 2.0 * math.sqrt(r) if factor.matrix in model.symmetric else math.sqrt(r) + math.sqrt(s)
        bound += product
    return bound


# ---------------------------------------------------------------------------------------------------------------------
# The law
# ---------------------------------------------------------------------------------------------------------------------


def law_of(
    expr: Any,
    sizes: Mapping[Any, Any] | None = None,
    *,
    diagonal: Mapping[Any, Any] | None = None,
    symmetric: Iterable[Any] = (),
    normalise: str | None = None,
) -> Law:
    r"""The limit law of the eigenvalues of a matrix expression in independent Gaussian matrices.

    If the expression Y is self-adjoint, the law of its eigenvalues; otherwise that of the eigenvalues of Y Y*, the
    squared singular values, one for each row (``law.singular_values()`` for their roots). All sizes grow in proportion.

    Parameters
    ----------
    expr : sympy matrix expression: ``MatrixSymbol`` objects combined by ``+``, ``*``, ``.T``, powers and numbers, which
        may be complex, as in ``I*(X*Y - Y*X)``. Each symbol is an independent real matrix of independent standard
        Gaussian entries. Write common factors once where they are not at the ends of products: the equation grows
        with what is written.
    sizes : a number for each symbol in the shapes; only their ratios matter. None where the shapes are integers.
    diagonal : deterministic diagonal matrices: ``{D: values}`` with a 1-D array of equal weights, or
        ``{D: (locations, weights)}``. Those of one dimension are diagonal in one basis, entry by entry.
    symmetric : square symbols that are Wigner matrices, (W + Wᵀ)/√2: entries of variance one off the diagonal.
    normalise : ``"entries"``: the coefficients of expr carry the sizes, as in ``X*X.T/n``. ``"products"``: every
        Gaussian factor, as it stands, transposed or not, is divided by the root of its number of columns, so that
        ``W*X + b*Z`` of d inner and m outer columns stands for WX/√(dm) + bZ/√m. ``"columns"``: all entries have
        variance one over the number of columns of expr. None takes the first if a size occurs in a coefficient, else
        the second, as `gequiv.symbolic.dyson_equation` does.

    Returns
    -------
    `gequiv.laws.equation.EquationLaw`; where a self-adjoint expression is written as one plus c times the identity,
    that law shifted by c.

    Raises
    ------
    ParameterError : an argument is of the wrong kind, a size or a coefficient has no value, the coefficients do not
        make the expression of order one.
    CertificationError : the law could not be certified: it sits at a singular limit, or has an atom elsewhere than
        at 0.

    Examples
    --------
    >>> import sympy as sp
    >>> n, m = sp.symbols("n m", positive=True)
    >>> X, Y = sp.MatrixSymbol("X", n, m), sp.MatrixSymbol("Y", n, m)
    >>> law = law_of((X * X.T + Y * Y.T) / m, {n: 1000, m: 2000})
    >>> [round(float(edge), 12) for edge in law.support()[0]]  # Marchenko and Pastur's, of ratio 1/4, doubled
    [0.5, 4.5]
    """
    model = _model(expr, sizes, diagonal, symmetric, normalise)
    shift = 0.0
    if model.hermitian:
        shift = float(sum(scalar.real for scalar, factors in model.numbers if not factors))
        if shift != 0:
            model = replace(model, numbers=tuple(term for term in model.numbers if term[1]))
    pencil = _Pencil(model)
    norm = 1.02 * _norm(model.numbers, model)
    half_line = not model.hermitian or _is_positive(model)
    low, high = (0.0 if half_line else -norm), (norm if model.hermitian else norm**2)
    equation = pencil.equation(low, high)
    equation.atoms = _atoms(equation, model)
    law: Law = EquationLaw(equation, name=_name(model, diagonal), draw=_Draw(model))
    return law + shift if shift != 0 else law


def _is_positive(model: _Model) -> bool:
    """Whether the expression is visibly a sum of F F*, which lives on the half-line."""
    mirrored = model.symmetric | frozenset(model.diagonal)
    for scalar, factors in model.numbers:
        count = len(factors)
        if count == 0 or scalar.real < 0 or abs(scalar.imag) > _SAME * abs(scalar):
            return False
        middle = factors[count // 2] if count % 2 else None
        if middle is not None:
            known = isinstance(middle, Letter) and middle.matrix in model.diagonal
            if not (known and (model.diagonal[middle.matrix][0] >= 0).all()):
                return False
        for k in range(count // 2):
            left, right = (_as_polynomial(((1.0, (f,)),)) for f in (factors[k], factors[-1 - k]))
            if not _same(_polynomial_adjoint(left, mirrored), right):
                return False
    return True


def _atoms(equation: BlockEquation, model: _Model) -> list[tuple[float, float]]:
    """The atoms at 0 and where a diagonal term has its values; the mass of the law confirms them.

    Without diagonal matrices the weight at 0 is one minus a whole number of sizes over the number of rows, as ranks
    are; the nearest of these is taken where the limit agrees with it.
    """
    sizes = {model.number(d) for x in _letters(model.numbers) for d in x.matrix.shape}
    rows = model.number(model.expression.shape[0])
    candidates = np.array([0.0, *(1 - k * size / rows for size in sizes for k in range(1, _MOST_SIZES + 1))])
    candidates = candidates[(candidates >= 0) & (candidates < 1)]
    result = []
    for place in [0.0, *(_places(model) if model.hermitian else [])]:
        limit = _weight(equation, place)
        nearest = float(candidates[np.argmin(np.abs(candidates - limit))])
        weight = nearest if place == 0 and abs(nearest - limit) < _ATOM_ERROR else limit
        if weight > _LEAST_ATOM:
            result.append((place, weight))
    return result


def _places(model: _Model) -> list[float]:
    """Values, other than 0, of the sum of the diagonal matrices that are terms of their own."""
    total: Any = 0.0
    for scalar, factors in model.numbers:
        if len(factors) == 1 and isinstance(factors[0], Letter) and factors[0].matrix in model.diagonal:
            total = total + scalar.real * model.diagonal[factors[0].matrix][0]
    return [float(x) for x in np.unique(total) if x != 0][:_MOST_PLACES]


def _weight(equation: BlockEquation, place: float) -> float:
    r"""The weight of an atom: :math:`\oint G\,dz/2\pi i` about it in a gap, else :math:`\lim i\eta\,G(x + i\eta)`."""
    solver = Solver(equation)
    radii = max(abs(equation.low), abs(equation.high)) * 10.0 ** (-0.5 * np.arange(1, 13))
    beside = np.concatenate([place - radii, place + radii])
    status = solver.solve(beside.astype(np.complex128)).status.reshape(2, -1)
    for k in range(radii.size - 1, -1, -1):  # from the smallest
        if (status[:, k] == Status.INSIDE).any():
            break
        if (status[:, k] == Status.FAILED).any():
            continue
        radius = radii[k]
        turn = np.exp(1j * np.pi * (np.arange(_CIRCLE) + 0.5) / _CIRCLE)
        z = np.concatenate([place + radius * turn, place + radius * turn / 3])
        found = solver.solve(z)
        if (found.status != Status.UPPER).any():
            continue
        around = ((z - place) * equation.cauchy(z, found.state)).real.reshape(2, -1).mean(axis=1)
        if abs(around[0] - around[1]) < _LEAST_ATOM:
            return float(around[1])
    return _limit_weight(equation, place)


def _limit_weight(equation: BlockEquation, place: float) -> float:
    """The same by extrapolation, from where it has settled best."""
    reach = max(abs(equation.low), abs(equation.high))
    heights = np.asarray(reach * 10.0 ** -np.arange(2, 25), dtype=np.float64)
    found = Solver(equation).solve(np.asarray(place + 1j * heights, dtype=np.complex128))
    # below the first failure rounding has taken over, whatever the equation says
    count = int(np.argmax(np.append(found.status == Status.FAILED, True)))
    weights = (1j * heights * equation.cauchy(found.z, found.state)).real[:count]
    if count < 4:
        raise CertificationError(f"the resolvent could not be followed to {place!r}: {ADVICE}")
    # they converge like w + C t**k, with 0 < t < 1
    steps = np.diff(weights)
    bend = steps[1:] - steps[:-1]
    quick = np.abs(bend) > _FLAT
    limits = weights[2:] - np.where(quick, steps[1:] ** 2 / np.where(quick, bend, 1.0), 0.0)
    best = int(np.argmin(np.abs(np.diff(limits)))) + 1
    limit = float(limits[best])
    if not (abs(limits[best] - limits[best - 1]) < _ATOM_ERROR and -_ATOM_ERROR < limit < 1):
        raise CertificationError(f"the atom at {place!r} could not be found, its weight is near {limit!r}: {ADVICE}")
    return limit


def _name(model: _Model, diagonal: Mapping[Any, Any] | None) -> str:
    sizes = ", ".join(f"{s}: {value}" for s, value in model.sizes.items())
    extra = f", sizes={{{sizes}}}" if sizes else ""
    extra += f", diagonal={sorted(str(m) for m in diagonal)}" if diagonal else ""
    extra += f", symmetric={sorted(str(m) for m in model.symmetric)}" if model.symmetric else ""
    return f"law_of({model.expression}{extra}, normalise={model.normalise!r})"


# ---------------------------------------------------------------------------------------------------------------------
# Draws
# ---------------------------------------------------------------------------------------------------------------------


def draw(
    expr: Any,
    sizes: Mapping[Any, Any] | None,
    rng: Any,
    *,
    diagonal: Mapping[Any, Any] | None = None,
    symmetric: Iterable[Any] = (),
    normalise: str | None = None,
) -> Any:
    """The expression at matrices drawn at random, as a numpy array, real unless a coefficient is complex.

    Parameters as for `law_of`, with sizes that make every dimension an integer; ``rng`` is a numpy Generator, or an int
    that seeds one. A diagonal matrix takes the quantiles of its values.

    Raises
    ------
    ParameterError : as for `law_of`, or a dimension is not an integer.

    Examples
    --------
    >>> import sympy as sp
    >>> X = sp.MatrixSymbol("X", 200, 400)
    >>> draw(X * X.T / sp.sqrt(200 * 400), None, 1, normalise="entries").shape
    (200, 200)
    """
    model = _model(expr, sizes, diagonal, symmetric, normalise)
    return _evaluate(model, _checks.generator(rng), 1.0)


class _Draw:
    """Draws Y, or Y Y*, with n rows; complex where a coefficient is."""

    def __init__(self, model: _Model) -> None:
        self.model = model

    def __call__(self, n: int, rng: np.random.Generator) -> Array:
        model = self.model
        y = _evaluate(model, rng, n / model.number(model.expression.shape[0]))
        result: Array = 0.5 * (y + y.conj().T) if model.hermitian else y @ y.conj().T
        return result


def _evaluate(model: _Model, rng: np.random.Generator, factor: float) -> Any:
    def dimension(size: Any) -> int:
        number = model.number(size, factor)
        if factor == 1.0 and abs(number - round(number)) > 1e-9 * number:
            raise ParameterError(f"sizes must make every dimension an integer; {size} is {number!r}")
        return max(1, round(number))

    reference = dimension(model.expression.shape[1])
    drawn: dict[Any, Array] = {}
    for matrix in sorted({x.matrix for x in _letters(model.numbers)}, key=lambda m: str(m.name)):
        rows, columns = (dimension(d) for d in matrix.shape)
        if matrix in model.diagonal:
            values, weights = model.diagonal[matrix]
            place = np.searchsorted(np.cumsum(weights), (np.arange(rows) + 0.5) / rows)
            drawn[matrix] = values[np.minimum(place, values.size - 1)]
            continue
        drawn[matrix] = rng.standard_normal((rows, columns)) / math.sqrt(reference)
        if matrix in model.symmetric:
            drawn[matrix] = (drawn[matrix] + drawn[matrix].T) / math.sqrt(2)

    def value(total: Sum, size: int) -> Any:
        result: Any = 0.0
        for scalar, factors in total:
            product: Any = None
            for f in factors:
                if isinstance(f, Letter) and f.matrix in model.diagonal:
                    product = np.diag(drawn[f.matrix]) if product is None else product * drawn[f.matrix]
                    continue
                if isinstance(f, Letter):
                    here: Any = drawn[f.matrix].T if f.transposed else drawn[f.matrix]
                else:
                    here = value(f, product.shape[1] if product is not None else size)
                product = here if product is None else product @ here
            if product is None:
                product = np.eye(size)
            result = result + (scalar.real if scalar.imag == 0 else scalar) * product
        return result

    return value(model.numbers, dimension(model.expression.shape[0]))
