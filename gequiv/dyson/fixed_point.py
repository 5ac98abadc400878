r"""Fixed points of Dyson type by Anderson's acceleration, in the logarithms of unknowns of the lower half-plane.

For equations with more unknowns than Newton's method can afford: :math:`u = \Phi(u)` where Φ maps the lower half-plane into
itself. A step that leaves the half-plane is replaced by half of the plain one, which never does.

Source: Anderson 1965; Walker and Ni 2011.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gequiv._checks import Array, ComplexArray

_MEMORY = 20
_LONGEST = 3.0
_REGULARISED = 1e-13
_KEPT = 0.75  # share of rows still at work below which the finished ones are dropped

Map = Callable[[np.ndarray, ComplexArray], ComplexArray]


@dataclass(frozen=True)
class FixedPoint:
    """Result of `accelerate`: logarithms of the unknowns, last relative residual, iterations, one row a point."""

    logs: ComplexArray
    residual: Array
    iterations: np.ndarray


def accelerate(
    step: Map, start: ComplexArray, *, tolerance: float, most: int, plain: int = 0, memory: int = _MEMORY
) -> FixedPoint:
    """Iterate every row of `start` to a fixed point; rows that are done leave the batch.

    Parameters
    ----------
    step : (indices of rows, unknowns) -> Φ(unknowns), for the rows that are still at work.
    start : logarithms of the unknowns, shape (points, unknowns), imaginary parts in (-π, 0).
    tolerance : largest change of a logarithm by Φ at which a row is done.
    most : iterations after which to stop, converged or not.
    plain : number of damped iterations to begin with.
    """
    logs = start.copy()
    residual = np.full(len(logs), np.inf)
    iterations = np.zeros(len(logs), dtype=int)
    active = np.arange(len(logs))
    history = _History(len(logs), logs.shape[1], memory)
    for count in range(most):
        here = logs[active]
        with np.errstate(all="ignore"):  # a row that runs away never converges
            change = np.log(step(active, np.exp(here))) - here
        size = np.abs(change).max(axis=1)
        residual[active] = size
        iterations[active] += 1
        left = ~(size < tolerance)
        if not left.any():
            break
        if left.mean() < _KEPT:
            active, here, change, left = active[left], here[left], change[left], left[left]
            history.keep(np.flatnonzero(residual[history.rows] >= tolerance))
        update = history.mix(here, change, learn=count > plain)
        logs[active[left]] = (here + update)[left]
    return FixedPoint(logs, residual, iterations)


class _History:
    """Differences of the last points and of their changes, and the Gram matrices of the latter."""

    def __init__(self, points: int, unknowns: int, memory: int) -> None:
        self.rows = np.arange(points)
        self._moves = np.zeros((points, memory, unknowns), dtype=np.complex64)  # differences: seven digits do
        self._changes = np.zeros_like(self._moves)
        self._gram = np.zeros((points, memory, memory), dtype=np.complex128)
        self._count = self._next = 0
        self._before: tuple[ComplexArray, ComplexArray] | None = None

    def keep(self, chosen: np.ndarray) -> None:
        """Go on with these rows only."""
        self.rows = self.rows[chosen]
        self._moves, self._changes, self._gram = self._moves[chosen], self._changes[chosen], self._gram[chosen]
        if self._before is not None:
            self._before = self._before[0][chosen], self._before[1][chosen]

    def mix(self, here: ComplexArray, change: ComplexArray, *, learn: bool) -> ComplexArray:
        """The step to take from `here`."""
        damped = 0.5 * change
        if self._before is not None and learn:
            k, memory = self._next, self._gram.shape[1]
            self._moves[:, k] = here - self._before[0]
            self._changes[:, k] = change - self._before[1]
            self._count, self._next = min(self._count + 1, memory), (k + 1) % memory
            row = _products(self._changes, self._changes[:, k].conj()).astype(np.complex128)  # Σ new* old
            self._gram[:, k, :] = row
            self._gram[:, :, k] = row.conj()
        self._before = here, change
        used = self._count
        if used == 0:
            return damped
        changes, moves = self._changes[:, :used], self._moves[:, :used]
        gram = self._gram[:, :used, :used].copy()
        ridge = _REGULARISED * np.trace(gram, axis1=1, axis2=2).real
        gram += np.maximum(ridge, 1e-300)[:, None, None] * np.eye(used)
        right = _products(changes, change.conj().astype(np.complex64)).astype(np.complex128).conj()[:, :, None]
        good = np.isfinite(gram).all(axis=(1, 2)) & np.isfinite(right).all(axis=(1, 2))
        weights = np.zeros_like(right)
        weights[good] = np.linalg.solve(gram[good], right[good])
        full: ComplexArray = change.copy()
        for k in range(used):
            full -= weights[:, k].astype(np.complex64) * (moves[:, k] + changes[:, k])
        angle = here.imag + full.imag
        inside = ((angle < 0) & (angle > -np.pi)).all(axis=1) & (np.abs(full).max(axis=1) < _LONGEST)
        return np.where(inside[:, None], full, damped)


def _products(rows: ComplexArray, vector: ComplexArray) -> ComplexArray:
    """Σ_d rows_zmd vector_zd; without BLAS, whose threads cost more than they bring on such batches."""
    return np.asarray(np.einsum("zmd,zd->zm", rows, vector))
