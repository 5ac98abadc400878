r"""Fixed points of Dyson type by Anderson's acceleration, for unknowns of the upper half-plane.

For equations with more unknowns than Newton's method can afford: :math:`w = \Psi(w)` where w are reciprocals of
resolvents and Ψ maps the upper half-plane into itself. The acceleration works on the logarithms of w, in which the slow
directions of such equations (g and 1/h multiplied by one smooth function) are straight. A step that leaves the
half-plane is replaced by half of the plain one, which never does.

Source: Anderson 1965; Walker and Ni 2011.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gequiv._checks import Array, ComplexArray

_MEMORY = 20
_SAMPLE = 3  # every third unknown decides about the mixture
_REGULARISED = 1e-13
_LONGEST = 3.0
_KEPT = 0.75  # share of rows still at work below which the finished ones are dropped

Map = Callable[[np.ndarray, ComplexArray], ComplexArray]


@dataclass(frozen=True)
class FixedPoint:
    """Result of `accelerate`: the unknowns, last relative change by Ψ, iterations, one row a point."""

    unknowns: ComplexArray
    residual: Array
    iterations: np.ndarray


def accelerate(
    step: Map, start: ComplexArray, *, tolerance: float, most: int, plain: int = 0, memory: int = _MEMORY
) -> FixedPoint:
    """Iterate every row of `start` to a fixed point; rows that are done leave the batch.

    Parameters
    ----------
    step : (indices of rows, unknowns) -> Ψ(unknowns), for the rows that are still at work.
    start : unknowns of positive imaginary part, shape (points, unknowns).
    tolerance : largest change of an unknown by Ψ, relative to it, at which a row is done.
    most : iterations after which to stop, converged or not.
    plain : number of damped iterations to begin with.
    """
    logs = np.log(start)
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
            history.keep(left)
            active, here, change, left = active[left], here[left], change[left], left[left]
        update = history.mix(here, change, learn=count > plain)
        logs[active[left]] = (here + update)[left]
    return FixedPoint(np.exp(logs), residual, iterations)


class _History:
    """What the last differences of points and of changes add up to, samples of the latter and their Gram matrices."""

    def __init__(self, points: int, unknowns: int, memory: int) -> None:
        self._steps = np.zeros((points, memory, unknowns), dtype=np.complex128)  # moves and changes together
        self._changes = np.zeros((points, memory, -(-unknowns // _SAMPLE)), dtype=np.complex128)
        self._gram = np.zeros((points, memory, memory), dtype=np.complex128)
        self._count = self._next = 0
        self._before: tuple[ComplexArray, ComplexArray] | None = None

    def keep(self, chosen: np.ndarray) -> None:
        """Go on with these rows only."""
        used = max(self._count, 1)
        for name in ("_steps", "_changes"):
            old = getattr(self, name)
            new = np.zeros((int(chosen.sum()), *old.shape[1:]), dtype=np.complex128)
            new[:, :used] = old[chosen, :used]
            setattr(self, name, new)
        self._gram = self._gram[chosen]
        if self._before is not None:
            self._before = self._before[0][chosen], self._before[1][chosen]

    def mix(self, here: ComplexArray, change: ComplexArray, *, learn: bool) -> ComplexArray:
        """The step to take from `here`."""
        sample = np.ascontiguousarray(change[:, ::_SAMPLE])
        if self._before is not None and learn:
            k, memory = self._next, self._gram.shape[1]
            difference = change - self._before[1]
            self._steps[:, k] = (here - self._before[0]) + difference
            self._changes[:, k] = difference[:, ::_SAMPLE]
            self._count, self._next = min(self._count + 1, memory), (k + 1) % memory
            used = self._count
            row = _products(self._changes[:, :used], self._changes[:, k].conj())
            self._gram[:, k, :used] = row
            self._gram[:, :used, k] = row.conj()
        self._before = here, change
        used = self._count
        if used == 0:
            return 0.5 * change
        gram = self._gram[:, :used, :used].copy()
        ridge = _REGULARISED * np.trace(gram, axis1=1, axis2=2).real
        gram += np.maximum(ridge, 1e-300)[:, None, None] * np.eye(used)
        right = _products(self._changes[:, :used], sample.conj()).conj()[:, :, None]
        good = np.isfinite(gram).all(axis=(1, 2)) & np.isfinite(right).all(axis=(1, 2))
        weights = np.zeros_like(right)
        weights[good] = np.linalg.solve(gram[good], right[good])
        full: ComplexArray = change.copy()
        for k in range(used):
            full -= weights[:, k] * self._steps[:, k]
        angle = here.imag + full.imag
        inside = ((angle > 0) & (angle < np.pi)).all(axis=1) & (np.abs(full).max(axis=1) < _LONGEST)
        full[~inside] = 0.5 * change[~inside]
        return full


def _products(rows: ComplexArray, vector: ComplexArray) -> ComplexArray:
    """Σ_d rows_zmd vector_zd; without BLAS, whose threads cost more than they bring on such batches."""
    return np.asarray(np.einsum("zmd,zd->zm", rows, vector))
