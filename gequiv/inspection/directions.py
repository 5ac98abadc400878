"""The largest singular values of a matrix with their vectors, told by the tokens on which they sit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from gequiv._checks import Array
from gequiv.inspection.report import Direction

LARGEST = 8
"""Number of singular values of which vectors are kept."""
_TOKENS = 5
_CONSTANT = 0.5  # of a vector's square, in the constant part
_SMALL = 64


def column_direction(column: Array, rows: int) -> Direction | None:
    """The direction 1 columnᵀ of so many rows; None if it is zero."""
    size = float(np.linalg.norm(column))
    return _direction(rows * size**2, np.full(rows, 1 / np.sqrt(rows)), column / size) if size > 0 else None


@dataclass(frozen=True, eq=False)
class Pairs:
    """Squared singular values, descending, with left and right vectors as rows."""

    values: Array
    left: Array
    right: Array

    def directions(self) -> tuple[Direction, ...]:
        """In words."""
        return tuple(_direction(float(v), u, w) for v, u, w in zip(self.values, self.left, self.right, strict=True))

    def found_in(self, other: Pairs) -> Array:
        """Largest share of each pair, (u'u)²(v'v)², that is one of the other."""
        if not len(other.values):
            return np.zeros(len(self.values))
        shares = (self.left @ other.left.T) ** 2 * (self.right @ other.right.T) ** 2
        return np.asarray(shares.max(axis=1))

    def kept(self, which: Array) -> Pairs:
        """Some of them."""
        return Pairs(self.values[which], self.left[which], self.right[which])


def largest_directions(matrix: Array) -> tuple[Direction, ...]:
    """The largest singular values (squared) of a matrix (n_q, n_k), descending, with their vectors."""
    return largest_pairs(matrix).directions()


def largest_pairs(matrix: Array, count: int = LARGEST) -> Pairs:
    """At most so many of the largest; fewer where they are zero to rounding, and never the least."""
    rows, keys = matrix.shape
    count = min(count, min(rows, keys) - 1)
    if count < 1 or not np.abs(matrix).max() > 0:
        return Pairs(np.empty(0), np.empty((0, rows)), np.empty((0, keys)))
    wide = rows <= keys
    gram = matrix @ matrix.T if wide else matrix.T @ matrix
    values, vectors = _top(gram, count)
    fine = values > 1e-12 * np.trace(gram)
    values, vectors = values[fine], vectors[fine]
    others = vectors @ (matrix if wide else matrix.T) / np.sqrt(values)[:, None]
    return Pairs(values, vectors, others) if wide else Pairs(values, others, vectors)


def _top(gram: Array, count: int) -> tuple[Array, Array]:
    """The largest eigenvalues, descending, and their vectors as rows."""
    n = len(gram)
    if n > _SMALL:
        start = np.random.default_rng(0).standard_normal(n)
        try:
            values, vectors = eigsh(gram, k=count, which="LA", v0=start)
            return values[::-1], vectors.T[::-1]
        except ArpackNoConvergence:
            pass
    values, vectors = eigh(gram, subset_by_index=[n - count, n - 1])
    return values[::-1], vectors.T[::-1]


def _direction(value: float, left: Array, right: Array) -> Direction:
    sign = 1.0 if right[np.argmax(np.abs(right))] > 0 else -1.0
    left, right = sign * left, sign * right
    spreads = [float(1 / np.sum(vector**4)) for vector in (left, right)]
    kind = "direction"
    if float(left.sum()) ** 2 / left.size > _CONSTANT:
        kind = "column"
    elif 4 * spreads[0] ** 2 < left.size or 4 * spreads[1] ** 2 < right.size:
        kind = "local"
    queries, keys = _largest(left), _largest(right)
    return Direction(
        value,
        kind,
        keys,
        tuple(float(right[k]) for k in keys),
        queries,
        tuple(float(left[q]) for q in queries),
        spreads[1],
        spreads[0],
    )


def _largest(vector: Array) -> tuple[int, ...]:
    return tuple(int(k) for k in np.argsort(-np.abs(vector), kind="stable")[:_TOKENS])
