"""The largest singular values of a matrix with their vectors, told by the tokens on which they sit."""

from __future__ import annotations

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


def largest_directions(matrix: Array) -> tuple[Direction, ...]:
    """The largest singular values (squared) of a matrix (n_q, n_k), descending, with their vectors."""
    rows, keys = matrix.shape
    found: list[Direction] = []
    count = min(LARGEST, min(rows, keys) - 1)
    if count < 1 or not np.abs(matrix).max() > 0:
        return ()
    wide = rows <= keys
    gram = matrix @ matrix.T if wide else matrix.T @ matrix
    for value, vector in zip(*_top(gram, count), strict=True):
        if not value > 1e-12 * np.trace(gram):
            break
        other = (matrix.T if wide else matrix) @ vector / np.sqrt(value)
        left, right = (vector, other) if wide else (other, vector)
        found.append(_direction(float(value), left, right))
    return tuple(found)


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
