r"""From a matrix expression in Gaussian matrices to its linear pencil, its Dyson equation and its polynomial P(z, G).

The model. Y is a polynomial in independent real Gaussian matrices: sympy ``MatrixSymbol`` objects combined by ``+``,
``*``, ``.T``, non-negative powers, the identity and real scalar coefficients. The same symbol used twice, also
transposed, is the same matrix. All shapes grow in proportion.

The law. If :math:`Y = Y^T` as a polynomial, G is the Cauchy transform of the eigenvalues of Y; otherwise that of the
eigenvalues of :math:`Y Y^T` (the squared singular values, one for each row of Y). G(z) is the limit of
:math:`\frac1n \operatorname{tr} (z - \cdot)^{-1}`, so that :math:`G \sim 1/z`.

The pencil. With :math:`\hat M = M/\sqrt N` for one reference size N, Y is written as a linear system with one pair of
auxiliary spaces a, b behind each factor of a product: for :math:`c\,M_1 \cdots M_k` from space p to space q

.. math::
    L_{p a_1} = -c \hat M_1, \quad L_{b_j a_{j+1}} = -\hat M_{j+1}, \quad L_{b_{k-1} q} = -\hat M_k, \quad
    L_{a_j b_j} = 1, \qquad L = L^T .

(A product :math:`c\,W W^T` in a self-adjoint Y needs half of the chain, closed by the block 1/c.) The first block is z,
the block of q is 1. Eliminating everything but the first block leaves :math:`z - Y` or :math:`z - Y Y^T` exactly; the
constructor carries that elimination out in the free algebra and refuses to go on if a single word differs.

The equation. :math:`L = L_0 - \sum_M (A_M \otimes \hat M + A_M^T \otimes \hat M^T)`. For M of size
:math:`r \times s` with independent standard entries :math:`E[M B M^T] = \operatorname{tr}(B)\,1`, and
:math:`E[M B M] = B^T` is smaller by one power of the size, so that the matrix of normalised block traces
:math:`g_{ab} = \lim \frac{1}{N_a}\operatorname{tr}(L^{-1})_{ab}` solves

.. math::
    g = (L_0 - \eta(g))^{-1}, \qquad
    \eta(g) = \sum_M \tfrac{s}{N} A_M\, g\, A_M^T + \tfrac{r}{N} A_M^T g\, A_M .

L is symmetric, hence so is g; :math:`g_{11} = G`. The physical solution is the one that is a power series in 1/z.

Elimination. All polynomials of g (L_0 - η(g)) = 1 vanish on that series. Unknowns are removed one at a time, by
substitution where an equation is linear and by a resultant elsewhere; each result is factored over the integers and
the one irreducible factor that vanishes on the series is kept. So what comes out is the minimal polynomial of G.

Sources: Haagerup and Thorbjørnsen 2005, Anderson 2013 (linearisation), Belinschi, Mai, Speicher 2017 (self-adjoint
linearisation and the operator-valued equation), Helton, Rashidi Far, Speicher 2007 (the physical solution).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import sympy as sp
from sympy.matrices.expressions.matexpr import MatrixElement
from sympy.polys.polyerrors import CoercionFailed, PolynomialError
from sympy.polys.rings import PolyElement, PolyRing

from gequiv.errors import CertificationError, ParameterError

Letter: TypeAlias = tuple[Any, bool]
"""A Gaussian matrix and whether it is transposed."""
Word: TypeAlias = tuple[Letter, ...]
Polynomial: TypeAlias = dict[Word, Any]
"""A noncommutative polynomial: the scalar coefficient of each word."""

EIGENVALUES = "eigenvalues"
SQUARES = "squared singular values"
_ENTRIES, _PRODUCTS, _COLUMNS = "entries", "products", "columns"

_PRIME = 67108859  # largest prime below 2**26: products of residues, thirty of them summed, stay inside int64
_ORDERS = 40
_MAX_ORDERS = 640
_NUMERIC_STEPS = 200_000
_NUMERIC_TOLERANCE = 1e-12


# ---------------------------------------------------------------------------------------------------------------------
# The free algebra
# ---------------------------------------------------------------------------------------------------------------------


def _transpose_word(word: Word) -> Word:
    return tuple((matrix, not transposed) for matrix, transposed in reversed(word))


def _transpose(p: Polynomial) -> Polynomial:
    return {_transpose_word(word): c for word, c in p.items()}


def _clean(p: Polynomial) -> Polynomial:
    cleaned = {word: sp.cancel(c) if c.is_rational_function() else sp.simplify(c) for word, c in p.items()}
    return {word: c for word, c in cleaned.items() if c != 0}


def _add(p: Polynomial, q: Polynomial, factor: Any = 1) -> Polynomial:
    total = dict(p)
    for word, c in q.items():
        total[word] = total.get(word, sp.Integer(0)) + factor * c
    return {word: c for word, c in total.items() if c != 0}


def _multiply(p: Polynomial, q: Polynomial) -> Polynomial:
    total: Polynomial = {}
    for u, a in p.items():
        for v, b in q.items():
            total[u + v] = total.get(u + v, sp.Integer(0)) + a * b
    return {word: c for word, c in total.items() if c != 0}


def _same(p: Polynomial, q: Polynomial) -> bool:
    return not _clean(_add(p, q, -1))


def _word_name(word: Word) -> str:
    return "*".join(f"{m.name}.T" if t else str(m.name) for m, t in word) or "the identity"


def _is_real_scalar(c: Any) -> bool:
    """Real for all real values of its symbols, as far as this can be seen: no imaginary unit, no matrix entries."""
    return not c.has(sp.I, MatrixElement) and c.is_real is not False and not c.has(sp.zoo, sp.nan, sp.oo)


def _parse(expr: Any) -> Polynomial:
    """The noncommutative polynomial of a matrix expression."""
    if isinstance(expr, sp.MatrixSymbol):
        return {((expr, False),): sp.Integer(1)}
    if isinstance(expr, sp.Identity):
        return {(): sp.Integer(1)}
    if isinstance(expr, sp.ZeroMatrix):
        return {}
    if isinstance(expr, sp.Transpose | sp.Adjoint):
        return _transpose(_parse(expr.arg))
    if isinstance(expr, sp.MatAdd):
        total: Polynomial = {}
        for term in expr.args:
            total = _add(total, _parse(term))
        return total
    if isinstance(expr, sp.MatMul):
        product: Polynomial = {(): sp.Integer(1)}
        for term in expr.args:
            product = _multiply(product, _parse(term) if getattr(term, "is_Matrix", False) else {(): _scalar(term)})
        return product
    if isinstance(expr, sp.MatPow) and expr.exp.is_Integer and expr.exp >= 0:
        power: Polynomial = {(): sp.Integer(1)}
        for _ in range(int(expr.exp)):
            power = _multiply(power, _parse(expr.base))
        return power
    raise ParameterError(
        f"expr may contain MatrixSymbol, +, *, .T, Identity, non-negative integer powers and scalar coefficients; "
        f"got {type(expr).__name__}: {expr}"
    )


def _scalar(c: Any) -> Any:
    if not _is_real_scalar(c):
        raise ParameterError(f"the scalar coefficients of expr must be real and finite; got {c}")
    return sp.nsimplify(c, rational=True) if c.has(sp.Float) else c


# ---------------------------------------------------------------------------------------------------------------------
# Shapes
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Shapes:
    """Every size as a ratio times the reference size N."""

    reference: Any
    unit: Any  # N itself where the sizes are integers, else a positive symbol that must drop out
    relative: dict[Any, Any]  # size -> size over N
    ratios: dict[Any, Any]  # ratio symbol -> the quotient of sizes that it stands for
    substitution: dict[Any, Any]  # size symbol -> ratio * unit


def _shapes(matrices: list[Any], columns: Any, sizes: Mapping[Any, Any] | None) -> _Shapes:
    found: list[Any] = [columns]
    for matrix in matrices:
        found.extend(size for size in matrix.shape if size not in found)
    symbols = sorted({s for size in found for s in size.free_symbols}, key=lambda s: str(s.name))
    if not symbols:
        if sizes:
            raise ParameterError(f"sizes are only for symbolic shapes; the shapes are {found}, sizes = {dict(sizes)}")
        return _Shapes(columns, columns, {size: size / columns for size in found}, {}, {})
    if not columns.free_symbols or any(not size.free_symbols for size in found):
        raise ParameterError(
            f"all shapes must grow in proportion: give them all as symbols or all as integers; got {found}"
        )
    reference = columns if columns.is_Symbol else sorted(columns.free_symbols, key=lambda s: str(s.name))[0]
    unit = sp.Dummy("N", positive=True)
    ratios: dict[Any, Any] = {}
    substitution: dict[Any, Any] = {reference: unit}
    given = dict(sizes or {})
    for s in given:
        if s == reference or s not in symbols:
            allowed = [q for q in symbols if q != reference]
            raise ParameterError(f"sizes gives {s} = {given[s]}; the sizes that may be given are {allowed}")
    for s in symbols:
        if s == reference:
            continue
        if s in given:
            ratio = sp.cancel(sp.sympify(given[s]) / reference)
            if ratio.has(*symbols):
                raise ParameterError(f"sizes[{s}] must be a ratio times the size {reference}; got {given[s]}")
        else:
            ratio = sp.Symbol(f"r_{s.name}", positive=True)
            ratios[ratio] = s / reference
        substitution[s] = ratio * unit
    relative = {}
    for size in found:
        relative[size] = sp.cancel(size.subs(substitution, simultaneous=True) / unit)
        if relative[size].has(unit) or relative[size] == 0:
            raise ParameterError(f"all shapes must grow in proportion to {reference}; {size} does not")
    return _Shapes(reference, unit, relative, ratios, substitution)


def _carries_sizes(p: Polynomial, matrices: list[Any]) -> bool:
    """Whether a coefficient depends on a size; for sizes in numbers, whether one has an irrational or small factor."""
    sizes = {s for m in matrices for d in m.shape for s in d.free_symbols}
    if sizes:
        return any(c.free_symbols & sizes for c in p.values())
    # a size in numbers leaves the square root of a number, or a small fraction, in the coefficient
    rooted = any(power.base.is_number for c in p.values() for power in c.atoms(sp.Pow))
    return rooted or any(abs(c.as_coeff_Mul()[0]) < sp.Rational(1, 8) for c in p.values())


def _normalised(p: Polynomial, shapes: _Shapes, normalise: str, columns: Any) -> Polynomial:
    """Coefficients of the words in M/√N, free of the size N."""
    result: Polynomial = {}
    positive = {s: sp.Dummy(s.name, positive=True) for c in p.values() for s in c.free_symbols if s.is_positive is None}
    back = {value: key for key, value in positive.items()}
    for word, c in p.items():
        value = c.subs(shapes.substitution, simultaneous=True)
        if normalise == _PRODUCTS:  # one over the inner sizes and the columns, in units of N
            inner = [(m.T if transposed else m).shape[1] for m, transposed in word[:-1]]
            value = value / sp.sqrt(sp.Mul(*(shapes.relative[size] for size in [*inner, columns])))
        else:
            size = shapes.unit if normalise == _ENTRIES else 1 / shapes.relative[columns]
            value = value * size ** sp.Rational(len(word), 2)
        value = sp.powsimp(sp.powdenest(sp.powsimp(value)))
        if shapes.ratios or shapes.substitution:
            value = sp.powsimp(sp.powdenest(value.subs(positive, simultaneous=True))).subs(back, simultaneous=True)
            if value.has(shapes.unit):
                value = sp.simplify(value)
            if value.has(shapes.unit):
                raise ParameterError(
                    f"the coefficient of {_word_name(word)} must make it of order one: with {len(word)} Gaussian "
                    f"factors of standard entries it has to decrease like {shapes.reference}**(-{len(word)}/2); got "
                    f'{c}. Divide by the sizes, or pass normalise="columns" to give every entry the variance '
                    f"1/{shapes.reference}"
                )
        result[word] = value
    return result


# ---------------------------------------------------------------------------------------------------------------------
# The pencil
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pencil:
    r"""The linear pencil :math:`L = L_0 - \sum_M (A_M \otimes \hat M + A_M^T \otimes \hat M^T)`, blocks of size N_a.

    Attributes
    ----------
    names : what each block stands for: ``rows``, ``columns``, and ``a_w,j``, ``b_w,j`` behind factor j of product w.
    dimensions : the size of each block.
    constant : :math:`L_0`, a matrix of scalars (times identities).
    patterns : for each Gaussian matrix M its :math:`A_M`.
    scale : the number by which M is divided to give :math:`\hat M`.
    """

    names: tuple[str, ...]
    dimensions: tuple[Any, ...]
    constant: Any
    patterns: dict[Any, Any]
    scale: Any = field(default=sp.Integer(1))

    @cached_property
    def matrix(self) -> Any:
        """The pencil as a sympy ``BlockMatrix`` in the matrices of the expression."""
        size = len(self.names)
        rows: list[list[Any]] = []
        for a in range(size):
            row: list[Any] = []
            for b in range(size):
                terms: list[Any] = []
                if self.constant[a, b] != 0:
                    terms.append(self.constant[a, b] * sp.Identity(self.dimensions[a]))
                for m, pattern in self.patterns.items():
                    if pattern[a, b] != 0:
                        terms.append(-pattern[a, b] / self.scale * m)
                    if pattern[b, a] != 0:
                        terms.append(-pattern[b, a] / self.scale * m.T)
                zero = sp.ZeroMatrix(self.dimensions[a], self.dimensions[b])
                row.append(sp.MatAdd(*terms) if len(terms) > 1 else (terms[0] if terms else zero))
            rows.append(row)
        return sp.BlockMatrix(rows)

    def schur_complement(self) -> Polynomial:
        """L_11 - L_1r (L_rr)^{-1} L_r1 in the free algebra, the words being those in M over ``scale``.

        The Gaussian part of L_rr is nilpotent against its constant part, so the Neumann series of the inverse ends.
        """
        size = len(self.names)
        entry = [[self._entry(a, b) for b in range(size)] for a in range(size)]
        if size == 1:
            return _clean(entry[0][0])
        rest = self.constant[1:, 1:].inv()
        gaussian = [[{w: c for w, c in entry[a][b].items() if w} for b in range(size)] for a in range(size)]
        x: list[Polynomial] = [{} for _ in range(size)]
        for _ in range(2 * size + 2):
            right: list[Polynomial] = []
            for a in range(1, size):
                total = {w: -c for w, c in entry[a][0].items()}
                for b in range(1, size):
                    total = _add(total, _multiply(gaussian[a][b], x[b]), -1)
                right.append(total)
            new: list[Polynomial] = [{}]
            for a in range(size - 1):
                total = {}
                for b in range(size - 1):
                    if rest[a, b] != 0:
                        total = _add(total, right[b], rest[a, b])
                new.append(_clean(total))
            if new == x:
                break
            x = new
        else:
            raise CertificationError("the block elimination of the pencil does not end: its auxiliary part is singular")
        total = entry[0][0]
        for b in range(1, size):
            total = _add(total, _multiply(entry[0][b], x[b]))
        return _clean(total)

    def _entry(self, a: int, b: int) -> Polynomial:
        p: Polynomial = {}
        if self.constant[a, b] != 0:
            p[()] = self.constant[a, b]
        for m, pattern in self.patterns.items():
            if pattern[a, b] != 0:
                p = _add(p, {((m, False),): -pattern[a, b]})
            if pattern[b, a] != 0:
                p = _add(p, {((m, True),): -pattern[b, a]})
        return p


class _Builder:
    """Collects the entries of a symmetric pencil."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.dimensions: list[Any] = []
        self.constant: dict[tuple[int, int], Any] = {}
        self.patterns: dict[Any, dict[tuple[int, int], Any]] = {}

    def block(self, name: str, dimension: Any) -> int:
        self.names.append(name)
        self.dimensions.append(dimension)
        return len(self.names) - 1

    def scalar(self, a: int, b: int, value: Any) -> None:
        for key in {(a, b), (b, a)}:
            self.constant[key] = self.constant.get(key, sp.Integer(0)) + value

    def gaussian(self, letter: Letter, a: int, b: int, coefficient: Any) -> None:
        """Put -coefficient * letter into block (a, b) and its transpose into block (b, a)."""
        matrix, transposed = letter
        key = (b, a) if transposed else (a, b)
        pattern = self.patterns.setdefault(matrix, {})
        pattern[key] = pattern.get(key, sp.Integer(0)) + coefficient

    def chain(self, index: int, word: Word, start: int, end: int | None, coefficient: Any) -> None:
        """The product of a word from block start to block end; end None closes W W^T from its first half W."""
        count = len(word) - 1 if end is not None else len(word)
        previous, factor = start, coefficient if end is not None else sp.Integer(1)
        for j in range(count):
            matrix, transposed = word[j]
            dimension = matrix.shape[0 if transposed else 1]
            a = self.block(f"a_{index},{j + 1}", dimension)
            self.gaussian(word[j], previous, a, factor)
            factor = sp.Integer(1)
            if end is None and j == count - 1:
                self.scalar(a, a, 1 / coefficient)
            else:
                b = self.block(f"b_{index},{j + 1}", dimension)
                self.scalar(a, b, sp.Integer(1))
                previous = b
        if end is not None:
            self.gaussian(word[-1], previous, end, factor)

    def finish(self, scale: Any) -> Pencil:
        size = len(self.names)
        return Pencil(
            names=tuple(self.names),
            dimensions=tuple(self.dimensions),
            constant=sp.ImmutableMatrix(size, size, lambda a, b: self.constant.get((a, b), sp.Integer(0))),
            patterns={
                m: sp.ImmutableMatrix(size, size, lambda a, b, p=p: p.get((a, b), sp.Integer(0)))
                for m, p in self.patterns.items()
            },
            scale=scale,
        )


def _linearise(p: Polynomial, kind: str, shape: tuple[Any, Any], z: Any, scale: Any) -> Pencil:
    builder = _Builder()
    rows = builder.block("rows", shape[0])
    builder.scalar(rows, rows, z)
    if kind == SQUARES:
        columns = builder.block("columns", shape[1])
        builder.scalar(columns, columns, sp.Integer(1))
        for index, (word, c) in enumerate(p.items(), 1):
            if not word:
                builder.scalar(rows, columns, -c)
            else:
                builder.chain(index, word, rows, columns, c)
        return builder.finish(scale)
    done: set[Word] = set()
    for index, (word, c) in enumerate(p.items(), 1):
        if word in done:
            continue
        done |= {word, _transpose_word(word)}
        if not word:
            builder.scalar(rows, rows, -c)
        elif word == _transpose_word(word):
            builder.chain(index, word[: len(word) // 2], rows, None, c)
        else:
            builder.chain(index, word, rows, rows, c)
    return builder.finish(scale)


def _verify(pencil: Pencil, p: Polynomial, kind: str, z: Any) -> None:
    target = p if kind == EIGENVALUES else _multiply(p, _transpose(p))
    expected = _add({(): z}, target, -1)
    if not _same(pencil.schur_complement(), expected):
        raise CertificationError(f"the Schur complement of the pencil is {pencil.schur_complement()}, not {expected}")


# ---------------------------------------------------------------------------------------------------------------------
# The operator-valued equation
# ---------------------------------------------------------------------------------------------------------------------


def _covariance(pencil: Pencil, relative: Mapping[Any, Any], g: Any) -> Any:
    """The map η of the module's text, applied to a matrix g."""
    total = sp.zeros(len(pencil.names))
    for m, a in pencil.patterns.items():
        total += relative[m.shape[1]] * a * g * a.T + relative[m.shape[0]] * a.T * g * a
    return total


def _residues(size: int, generator: np.random.Generator) -> Any:
    return generator.integers(2, _PRIME - 1, size=size)


def _support(pencil: Pencil) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """The block pairs in which g can be non-zero: the smallest set closed under g -> (L_0 - η(g))^{-1}.

    Non-zero entries are replaced by unrelated residues, so cancellations can only be accidental.
    """
    size = len(pencil.names)
    generator = np.random.default_rng(1)
    constant = np.array([[pencil.constant[a, b] != 0 for b in range(size)] for a in range(size)])
    patterns = [
        np.array([[m[a, b] != 0 for b in range(size)] for a in range(size)], dtype=int)
        for m in pencil.patterns.values()
    ]
    support = np.zeros((size, size), dtype=bool)
    for _ in range(size * size + 1):
        eta = sum((a @ support @ a.T + a.T @ support @ a for a in patterns), np.zeros((size, size), dtype=int)) > 0
        random = _residues(size * size, generator).reshape(size, size).astype(object)
        inverse = _inverse_mod((constant | eta) * (random + random.T))
        new = support | (inverse != 0)
        if bool((new == support).all()):
            return support
        support = new
    raise CertificationError("the block pairs of the Dyson equation do not settle")  # pragma: no cover


def _inverse_mod(matrix: Any) -> Any:
    """Inverse over the field of _PRIME elements, by elimination."""
    size = len(matrix)
    work = np.concatenate([np.array(matrix, dtype=object) % _PRIME, np.eye(size, dtype=int).astype(object)], axis=1)
    for k in range(size):
        rows = [i for i in range(k, size) if work[i, k] != 0]
        if not rows:
            raise ZeroDivisionError("singular matrix over the prime field")
        work[[k, rows[0]]] = work[[rows[0], k]]
        work[k] = work[k] * pow(int(work[k, k]), -1, _PRIME) % _PRIME
        for i in range(size):
            if i != k and work[i, k] != 0:
                work[i] = (work[i] - work[i, k] * work[k]) % _PRIME
    return work[:, size:]


@dataclass(frozen=True)
class DysonEquation:
    r"""The Dyson equation :math:`g = (L_0 - \eta(g))^{-1}` of a Gaussian matrix expression; see the module's text.

    Attributes
    ----------
    expression : what it was made from.
    kind : ``"eigenvalues"`` (of a self-adjoint expression Y) or ``"squared singular values"`` (eigenvalues of YYᵀ).
    z, cauchy : the symbols z and G of the polynomial.
    pencil : the linear pencil; its Schur complement at the first block is z - Y, or z - YYᵀ (verified).
    resolvent : the symmetric matrix g of unknowns; its first entry is G.
    unknowns : one symbol for each block pair that can be non-zero, the first is G's.
    ratios : for each ratio symbol that was introduced the quotient of sizes that it stands for.
    parameters : the symbols that the equations depend on besides z and the unknowns.
    """

    expression: Any
    kind: str
    z: Any
    cauchy: Any
    pencil: Pencil
    resolvent: Any
    unknowns: tuple[Any, ...]
    ratios: dict[Any, Any]
    parameters: tuple[Any, ...]
    _polynomial: Polynomial = field(repr=False)
    _relative: dict[Any, Any] = field(repr=False)

    def covariance(self, g: Any) -> Any:
        """The covariance map η applied to a matrix of block traces."""
        return _covariance(self.pencil, self._relative, g)

    @cached_property
    def eta(self) -> Any:
        """η(g), a matrix of linear forms in the unknowns."""
        return self.covariance(self.resolvent)

    @cached_property
    def equations(self) -> list[Any]:
        """One equation Eq(g_ab, right-hand side) for each unknown, the right-hand sides rational."""
        size = len(self.pencil.names)
        matrix = self.pencil.constant - self.eta
        inverse = sp.zeros(size)
        for blocks in _components(self.resolvent):
            part = matrix.extract(blocks, blocks)
            adjugate, determinant = part.adjugate(), part.det(method="berkowitz")
            for i, a in enumerate(blocks):
                for j, b in enumerate(blocks):
                    inverse[a, b] = sp.factor(adjugate[i, j]) / sp.factor(determinant)
        place = {self.resolvent[a, b]: (a, b) for a in range(size) for b in range(a, size)}
        return [sp.Eq(g, sp.cancel(inverse[place[g]]), evaluate=False) for g in self.unknowns]

    def eliminate(self, values: Mapping[Any, Any] | None = None) -> Any:
        """The minimal polynomial P(z, G) of the Cauchy transform, as a sympy ``Poly`` in z and G.

        Parameters
        ----------
        values : exact numbers for some of the parameters, put in before the elimination. Expressions with many
            products and parameters are out of reach without.

        Raises
        ------
        ParameterError : ``values`` names something that is no parameter, or is not an exact rational number.
        CertificationError : no factor of an eliminant vanishes on the physical series.
        """
        chosen = self._values(values or {}, exact=True)
        return _Eliminator(self, chosen).run()

    def numeric(self, z: complex, values: Mapping[Any, Any]) -> complex:
        """G(z) by damped iteration of the equation, for checks: slow near the real axis.

        Parameters
        ----------
        z : in the upper half-plane.
        values : a number for each of ``parameters``; instead of ratios the sizes themselves may be given.

        Raises
        ------
        ParameterError : z is not in the upper half-plane, or a parameter is missing or not a real number.
        CertificationError : no convergence, or the solution found is not the resolvent (Im g is not negative).
        """
        z = complex(z)
        if not z.imag > 0:
            raise ParameterError(f"z must lie in the upper half-plane; got {z}")
        numbers = self._values(values, exact=False)
        missing = [s for s in self.parameters if s not in numbers]
        if missing:
            raise ParameterError(f"values must give every parameter of {list(self.parameters)}; {missing} missing")

        def matrix(m: Any) -> Any:
            replaced = sp.Matrix(m).subs({**numbers, self.z: sp.sympify(z)})
            return np.array(replaced.evalf(20).tolist(), dtype=complex)

        constant = matrix(self.pencil.constant)
        terms = [
            (
                matrix(a),
                float(self._relative[m.shape[0]].subs(numbers)),
                float(self._relative[m.shape[1]].subs(numbers)),
            )
            for m, a in self.pencil.patterns.items()
        ]
        g = -1j * np.eye(len(constant)) / abs(z)
        for _ in range(_NUMERIC_STEPS):
            eta = sum((s * a @ g @ a.T + r * a.T @ g @ a for a, r, s in terms), np.zeros_like(constant))
            new = np.linalg.inv(constant - eta)
            change = float(np.abs(new - g).max())
            g = (g + new) / 2
            if change < _NUMERIC_TOLERANCE * (1 + float(np.abs(g).max())):
                break
        else:
            raise CertificationError(f"the iteration at z = {z} did not settle (last change {change:.1e}): raise Im z")
        if not (g[0, 0].imag < 0 and np.linalg.eigvalsh((g - g.conj().T) / 2j).max() < 1e-8 * (1 + np.abs(g).max())):
            raise CertificationError(f"the iteration at z = {z} found a solution that is no resolvent: raise Im z")
        return complex(g[0, 0])

    def _values(self, values: Mapping[Any, Any], *, exact: bool) -> dict[Any, Any]:
        given = {sp.sympify(key): sp.sympify(value) for key, value in values.items()}
        for key, value in given.items():
            if not value.is_number or value.is_real is not True or value.is_finite is False:
                raise ParameterError(f"values[{key}] must be a real number; got {value}")
        sizes = {s for ratio in self.ratios.values() for s in ratio.free_symbols}
        for symbol, ratio in self.ratios.items():
            if symbol not in given and ratio.free_symbols <= given.keys():
                given[symbol] = ratio.subs(given)
        given = {key: value for key, value in given.items() if key not in sizes or key in self.parameters}
        for key, value in given.items():
            if key not in self.parameters:
                raise ParameterError(f"values names {key}; the parameters are {list(self.parameters)}")
            if exact and not value.is_Rational:
                raise ParameterError(f"values[{key}] must be an exact rational number; got {value}")
        return given


def _components(resolvent: Any) -> list[list[int]]:
    """Blocks joined by non-zero entries of g."""
    size = resolvent.shape[0]
    left, result = set(range(size)), []
    while left:
        stack, part = [min(left)], set()
        while stack:
            a = stack.pop()
            part.add(a)
            stack.extend(b for b in range(size) if resolvent[a, b] != 0 and b not in part)
        left -= part
        result.append(sorted(part))
    return result


def _resolvent(pencil: Pencil) -> tuple[Any, tuple[Any, ...]]:
    support = _support(pencil)
    size = len(pencil.names)
    comma = "," if size > 9 else ""
    symbols = {
        (a, b): sp.Symbol(f"g_{a + 1}{comma}{b + 1}") for a in range(size) for b in range(a, size) if support[a, b]
    }
    matrix = sp.ImmutableMatrix(size, size, lambda a, b: symbols.get((min(a, b), max(a, b)), sp.Integer(0)))
    return matrix, tuple(symbols.values())


def dyson_equation(
    expr: Any,
    *,
    normalise: str | None = None,
    sizes: Mapping[Any, Any] | None = None,
    kind: str | None = None,
) -> DysonEquation:
    r"""The linear pencil and the Dyson equation of a matrix expression in independent Gaussian matrices.

    Parameters
    ----------
    expr : a sympy matrix expression; each distinct ``MatrixSymbol`` is an independent real matrix with independent
        Gaussian entries.
    normalise : ``"entries"``: the entries have variance one and the coefficients carry the sizes, a product of k
        factors having a coefficient of order size^(-k/2), such as ``a*Q*K.T/sqrt(d*m)``. ``"products"``: the
        coefficients are free of sizes; the entries have variance one and every product is divided by the square roots
        of its inner sizes and of the number of columns of expr, so that ``a*Q*K.T + b*Z`` stands for
        aQKᵀ/√(dm) + bZ/√m. ``"columns"``: the entries of all matrices have variance one over the number of columns of
        expr. None takes the first if a size occurs in a coefficient, else the second.
    sizes : how sizes are to be written as ratios times the reference size (the number of columns of expr), as in
        ``{n: c*m, d: c1*c*m}``. A size that is not given gets a ratio symbol ``r_n``.
    kind : ``"eigenvalues"`` or ``"squared singular values"``; by default the first if expr is self-adjoint.

    Returns
    -------
    DysonEquation

    Raises
    ------
    ParameterError : expr contains something else than Gaussian matrices, or no such matrix; shapes do not grow in
        proportion; a coefficient is complex, or does not make its product of order one.

    Examples
    --------
    >>> import sympy as sp
    >>> n, m, s = sp.symbols("n m s", positive=True)
    >>> Z = sp.MatrixSymbol("Z", n, m)
    >>> equation = dyson_equation(s * Z / sp.sqrt(m), sizes={n: sp.Symbol("c") * m})
    >>> equation.kind
    'squared singular values'
    >>> equation.equations[0]
    Eq(g_11, 1/(-g_22*s**2 + z))
    >>> sp.collect(equation.eliminate().as_expr(), equation.cauchy)
    G**2*c*s**2*z + G*(-c*s**2 + s**2 - z) + 1
    """
    if not isinstance(expr, sp.MatrixExpr):
        raise ParameterError(f"expr must be a sympy matrix expression; got {type(expr).__name__}: {expr!r}")
    if normalise not in (None, _ENTRIES, _PRODUCTS, _COLUMNS):
        raise ParameterError(f'normalise must be None, "{_ENTRIES}", "{_PRODUCTS}" or "{_COLUMNS}"; got {normalise!r}')
    if kind not in (None, EIGENVALUES, SQUARES):
        raise ParameterError(f'kind must be None, "{EIGENVALUES}" or "{SQUARES}"; got {kind!r}')
    raw = _clean(_parse(expr))
    matrices = sorted({m for word in raw for m, _ in word}, key=lambda m: str(m.name))
    if not matrices:
        raise ParameterError(f"expr must contain a Gaussian matrix (a MatrixSymbol); got {expr}")
    names = [m.name for m in matrices]
    if len(set(names)) < len(names):
        raise ParameterError(f"expr uses one name for matrices of different shapes: {names}")
    z, cauchy = sp.Symbol("z"), sp.Symbol("G")
    used = {s for c in raw.values() for s in c.free_symbols} | {
        s for m in matrices for d in m.shape for s in d.free_symbols
    }
    if {z, cauchy} & used:
        raise ParameterError(f"expr must not use the symbols z and G, which name the result; it uses {used}")
    shapes = _shapes(matrices, expr.shape[1], sizes)
    normalise = normalise or (_ENTRIES if _carries_sizes(raw, matrices) else _PRODUCTS)
    p = _clean(_normalised(raw, shapes, normalise, expr.shape[1]))
    if not p:
        raise ParameterError(f"expr must not vanish; got {expr}")
    self_adjoint = expr.shape[0] == expr.shape[1] and _same(p, _transpose(p))
    if kind == EIGENVALUES and not self_adjoint:
        raise ParameterError(f'kind = "{EIGENVALUES}" needs an expression equal to its transpose; got {expr}')
    kind = kind or (EIGENVALUES if self_adjoint else SQUARES)
    columns = shapes.relative[expr.shape[1]]
    scale = 1 / sp.sqrt(columns) if normalise == _COLUMNS else sp.sqrt(shapes.reference)
    pencil = _linearise(p, kind, expr.shape, z, scale)
    _verify(pencil, p, kind, z)
    resolvent, unknowns = _resolvent(pencil)
    parameters = {s for c in p.values() for s in c.free_symbols} | {
        s for m in matrices for d in m.shape for s in shapes.relative[d].free_symbols
    }
    if shapes.substitution and kind == SQUARES:
        parameters |= columns.free_symbols
    return DysonEquation(
        expression=expr,
        kind=kind,
        z=z,
        cauchy=cauchy,
        pencil=pencil,
        resolvent=resolvent,
        unknowns=unknowns,
        ratios=shapes.ratios,
        parameters=tuple(sorted(parameters, key=lambda s: str(s.name))),
        _polynomial=p,
        _relative=shapes.relative,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Elimination
# ---------------------------------------------------------------------------------------------------------------------


def _is_rational(c: Any) -> bool:
    """A quotient of polynomials with rational coefficients in its symbols."""
    symbols = sorted(c.free_symbols, key=lambda s: str(s.name))
    if not symbols:
        return bool(c.is_Rational)
    for part in sp.fraction(sp.together(c)):
        try:
            sp.Poly(part, *symbols, domain=sp.QQ)
        except (CoercionFailed, PolynomialError):
            return False
    return True


class _Eliminator:
    """Removes the unknowns one at a time, keeping of every result the factor that vanishes on the physical series."""

    def __init__(self, equation: DysonEquation, values: Mapping[Any, Any]) -> None:
        self.equation = equation
        self.back: dict[Any, Any] = {}
        p: Polynomial = {}
        for word, c in equation._polynomial.items():
            value = c.subs(values)
            p[word] = value if _is_rational(value) else self._symbol_for(value)
        self.relative = {size: sp.cancel(r.subs(values)) for size, r in equation._relative.items()}
        for size, r in self.relative.items():
            if not _is_rational(r):
                raise ParameterError(f"elimination needs ratios that are rational functions; {size} has the ratio {r}")
        expr = equation.expression
        self.pencil = _linearise(p, equation.kind, expr.shape, equation.z, sp.Integer(1))
        g = equation.resolvent
        system = sp.Matrix(g * (self.pencil.constant - _covariance(self.pencil, self.relative, g))) - sp.eye(
            len(g[0, :])
        )
        equations = [sp.numer(sp.together(e)) for e in system if e != 0]
        if equation.kind == SQUARES:
            # exact for every matrix: Y Y^T and Y^T Y have the same non-zero eigenvalues
            rows, columns = self.relative[expr.shape[0]], self.relative[expr.shape[1]]
            identity = rows * (equation.z * g[0, 0] - 1) - columns * (g[1, 1] - 1)
            equations.append(sp.numer(sp.together(identity)))
        self.target = g[0, 0]
        free: set[Any] = set().union(*(e.free_symbols for e in equations))
        others = sorted(free - set(equation.unknowns) - {equation.z}, key=lambda s: str(s.name))
        self.hidden = [u for u in equation.unknowns if u != self.target]
        self.generators = [*self.hidden, self.target, equation.z, *others]
        self.ring = PolyRing(self.generators, sp.ZZ)
        self.index = {s: i for i, s in enumerate(self.generators)}
        self.others = others
        self.system = [self.ring.from_expr(sp.expand(e)) for e in equations]
        self.series = _PhysicalSeries(self)

    def _symbol_for(self, value: Any) -> Any:
        """A symbol for a coefficient that is not rational, such as one with the root of a ratio."""
        for symbol, known in self.back.items():
            quotient = sp.simplify(value / known)
            if quotient.is_Rational:
                return quotient * symbol
        symbol = sp.Dummy(f"k{len(self.back) + 1}")
        self.back[symbol] = value
        return symbol

    # -- the loop -----------------------------------------------------------------------------------------------------

    def run(self) -> Any:
        system = self._reduced(self.system)
        while True:
            finished = [f for f in system if not any(self._degree(f, u) for u in self.hidden)]
            if finished:
                return self._result(min(finished, key=len))
            present = [u for u in self.hidden if any(self._degree(f, u) for f in system)]
            if not present or len(system) < 2:
                raise CertificationError("the equations do not determine the Cauchy transform")
            choice = self._linear(system) or self._nonlinear(system, present)
            unknown, pivot = choice
            rest = [f for f in system if f != pivot]
            touched = [f for f in rest if self._degree(f, unknown)]
            kept = [f for f in rest if not self._degree(f, unknown)]
            system = self._reduced(kept + [self._remove(f, pivot, unknown) for f in touched])

    def _linear(self, system: list[Any]) -> tuple[Any, Any] | None:
        """An equation linear in an unknown, the cheapest to substitute; its leading coefficient must not vanish."""
        best: tuple[int, Any, Any] | None = None
        for f in system:
            for u in self.hidden:
                if self._degree(f, u) != 1:
                    continue
                slope = self._coefficients(f, u)[1]
                others = [h for h in system if h != f and self._degree(h, u)]
                cost = sum(len(h) * len(f) ** self._degree(h, u) for h in others) * (1 + len(slope))
                if (best is None or cost < best[0]) and not self.series.vanishes(slope):
                    best = (cost, u, f)
        return None if best is None else best[1:]

    def _nonlinear(self, system: list[Any], present: list[Any]) -> tuple[Any, Any]:
        best: tuple[int, Any, Any] | None = None
        for u in present:
            holding = [f for f in system if self._degree(f, u)]
            if len(holding) < 2:
                continue
            pivot = min(holding, key=lambda f: (self._degree(f, u), len(f)))
            cost = sum(
                len(f) ** self._degree(pivot, u) * len(pivot) ** self._degree(f, u) for f in holding if f != pivot
            )
            if best is None or cost < best[0]:
                best = (cost, u, pivot)
        if best is None:
            raise CertificationError("the equations do not determine the Cauchy transform")
        return best[1:]

    def _remove(self, f: Any, pivot: Any, unknown: Any) -> Any:
        if self._degree(pivot, unknown) == 1:
            constant, slope = self._coefficients(pivot, unknown)
            coefficients = self._coefficients(f, unknown)
            degree = len(coefficients) - 1
            return sum(
                (c * (-constant) ** k * slope ** (degree - k) for k, c in enumerate(coefficients)), self.ring.zero
            )
        order = [unknown, *(s for s in self.generators if s != unknown)]
        dense = PolyRing(order, sp.ZZ)
        result = dense.dmp_resultant(f.set_ring(dense), pivot.set_ring(dense))
        return result.set_ring(self.ring)

    def _reduced(self, system: list[Any]) -> list[Any]:
        result: list[Any] = []
        for f in system:
            if f == 0:
                continue
            factor = self._physical_factor(f)
            if factor not in result and -factor not in result:
                result.append(factor)
        return result

    def _physical_factor(self, f: Any) -> Any:
        factors = [h for h, _ in f.factor_list()[1]]
        while True:
            physical = [h for h in factors if self.series.vanishes(h)]
            if len(physical) == 1 or len(factors) == 1 == len(physical):
                return physical[0]
            if not physical:
                raise CertificationError(f"no factor of {f.as_expr()} vanishes on the physical series")
            self.series.refine()

    def _result(self, f: Any) -> Any:
        expr = f.as_expr().subs(self.target, self.equation.cauchy)
        z, cauchy = self.equation.z, self.equation.cauchy
        if self.back:
            expr = sp.expand(expr.subs(self.back))
            coefficients = sp.Poly(expr, z, cauchy).coeffs()
            expr = sp.numer(sp.together(expr)) if all(_is_rational(c) for c in coefficients) else expr
        p = sp.Poly(expr, z, cauchy)
        _, p = p.primitive() if p.domain != sp.EX else (1, p)
        constant = p.as_expr().subs({z: 0, cauchy: 0})
        return -p if constant.could_extract_minus_sign() else p

    # -- polynomials --------------------------------------------------------------------------------------------------

    def _degree(self, f: Any, unknown: Any) -> int:
        i = self.index[unknown]
        return max((monomial[i] for monomial in f), default=0)

    def _coefficients(self, f: Any, unknown: Any) -> list[Any]:
        i = self.index[unknown]
        parts: list[dict[Any, Any]] = [{} for _ in range(self._degree(f, unknown) + 1)]
        for monomial, c in f.items():
            parts[monomial[i]][(*monomial[:i], 0, *monomial[i + 1 :])] = c
        return [self.ring.from_dict(part) for part in parts]


class _PhysicalSeries:
    """The solution as power series in 1/z over a prime field, at random values of the parameters."""

    def __init__(self, parent: _Eliminator) -> None:
        self.parent = parent
        self.orders = _ORDERS // 2
        self.seed = 0
        self.refine()

    def refine(self) -> None:
        """Twice as many orders, at new values of the parameters."""
        self.orders *= 2
        if self.orders > _MAX_ORDERS:
            raise CertificationError(f"{_MAX_ORDERS} orders of the physical series do not single out one factor")
        for _ in range(8):
            self.seed += 1
            generator = np.random.default_rng(self.seed)
            self.values = dict(
                zip(self.parent.others, map(int, _residues(len(self.parent.others), generator)), strict=True)
            )
            try:
                self.series = self._solve()
            except ZeroDivisionError:
                continue
            self.powers: dict[tuple[int, int], Any] = {}
            return
        raise CertificationError("the Dyson equation has no power series in 1/z: its constant part is singular")

    def _residue(self, c: Any) -> int:
        numerator, denominator = sp.fraction(sp.together(c.subs(self.values)))
        if int(denominator) % _PRIME == 0:
            raise ZeroDivisionError("denominator divisible by the prime")
        return int(numerator) * pow(int(denominator), -1, _PRIME) % _PRIME

    def _solve(self) -> dict[Any, Any]:
        pencil, z = self.parent.pencil, self.parent.equation.z
        size = len(pencil.names)
        constant = np.zeros((size, size), dtype=object)
        for i in range(size):
            for j in range(size):
                constant[i, j] = self._residue(pencil.constant[i, j].subs(z, 0))
        constant = constant.astype(np.int64)
        terms = []
        for matrix, pattern in pencil.patterns.items():
            entries = np.array([[self._residue(c) for c in row] for row in pattern.tolist()], dtype=np.int64)
            rows, columns = (self._residue(self.parent.relative[length]) for length in matrix.shape)
            terms.append((entries, rows, columns))

        def times(a: Any, b: Any) -> Any:
            return (a @ b) % _PRIME

        def eta(g: Any) -> Any:
            total = np.zeros_like(g)
            for a, rows, columns in terms:
                total = total + columns * times(times(a, g), a.T) + rows * times(times(a.T, g), a)
                total %= _PRIME
            return total

        # rows of the first block are multiplied by w = 1/z: M = S (L_0 - η), g = M^{-1} S
        orders = self.orders
        g = np.zeros((orders, size, size), dtype=np.int64)
        for _ in range(8 * (orders + size)):
            full = -eta(g) % _PRIME
            full[0] = (full[0] + constant) % _PRIME
            scaled = full.copy()
            scaled[0, 0, :] = 0
            scaled[1:, 0, :] = full[:-1, 0, :]
            scaled[0, 0, 0] = 1
            first = _inverse_mod(scaled[0]).astype(np.int64)
            inverse = np.zeros_like(g)
            inverse[0] = first
            for k in range(1, orders):
                total = np.zeros((size, size), dtype=np.int64)
                for j in range(1, k + 1):
                    total += times(scaled[j], inverse[k - j])
                inverse[k] = -times(first, total % _PRIME) % _PRIME
            new = inverse.copy()
            new[0, :, 0] = 0
            new[1:, :, 0] = inverse[:-1, :, 0]
            if bool((new == g).all()):
                break
            g = new
        else:
            raise CertificationError("the power series of the Dyson equation does not settle")
        resolvent = self.parent.equation.resolvent
        return {resolvent[a, b]: g[:, a, b] for a in range(size) for b in range(a, size) if resolvent[a, b] != 0}

    def _power(self, i: int, exponent: int) -> Any:
        key = (i, exponent)
        if key not in self.powers:
            base = self.series[self.parent.generators[i]]
            product = base if exponent == 1 else np.convolve(self._power(i, exponent - 1), base)[: self.orders] % _PRIME
            self.powers[key] = product
        return self.powers[key]

    def vanishes(self, f: PolyElement) -> bool:
        """Whether f is zero on the series, to the number of orders at hand."""
        parent = self.parent
        place = parent.index[parent.equation.z]
        unknowns = len(parent.hidden) + 1
        top = max(monomial[place] for monomial in f)
        while top >= self.orders // 2:
            self.refine()
        grouped: dict[tuple[int, ...], Any] = {}
        for monomial, c in f.items():
            scalar = int(c) % _PRIME
            for symbol, e in zip(parent.others, monomial[place + 1 :], strict=True):
                scalar = scalar * pow(self.values[symbol], e, _PRIME) % _PRIME
            shift = top - monomial[place]
            coefficients = grouped.setdefault(monomial[:unknowns], np.zeros(self.orders, dtype=np.int64))
            coefficients[shift] = (coefficients[shift] + scalar) % _PRIME
        total = np.zeros(self.orders, dtype=np.int64)
        for exponents, coefficients in grouped.items():
            product = coefficients
            for i, e in enumerate(exponents):
                if e:
                    product = np.convolve(product, self._power(i, e))[: self.orders] % _PRIME
            total = (total + product) % _PRIME
        return not total.any()
