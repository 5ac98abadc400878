r"""Newton's method with continuation in Im z: one loop for every Dyson equation here.

An equation supplies its Newton change in the logarithms of its unknowns, their slopes in log z, what it certifies, and
where it starts at large z; this module owns iteration, step lengths and the bookkeeping of the points that are done.
"""

from __future__ import annotations

import abc
import enum
from dataclasses import dataclass
from typing import Any

import numpy as np

from gequiv import _checks
from gequiv._checks import Array, ComplexArray
from gequiv.errors import CertificationError, ParameterError

STRICT = 1e-9  # an angle to the real axis that rounding cannot imitate
RESIDUAL = 1e-9
STEP = 1e-10
_SENSITIVE = 1e6  # largest d log(unknowns)/d log z: beyond it rounding z alone leaves less than ten digits


class Status(enum.IntEnum):
    """What a point of a solution is certified to be."""

    UPPER = 0
    """Im z > 0."""
    INSIDE = 1
    """z real, inside the support: -Im G/π is the density."""
    OUTSIDE = 2
    """z real, off the support: G is real."""
    FAILED = 3
    """Nothing certified; the value is NaN."""


class Continuation(abc.ABC):
    """An equation F(state, z) = 0 with nowhere vanishing unknowns, in units in which the law has mean one."""

    upper_bound: float
    """No eigenvalue lies above this number."""
    width: int
    """Number of unknowns at a point."""

    # -- what an equation supplies --------------------------------------------------------------------

    @abc.abstractmethod
    def _asymptotic(self, z: ComplexArray) -> ComplexArray:
        """The solution for large \\|z\\|, to leading order."""

    @abc.abstractmethod
    def _change(self, z: ComplexArray, state: ComplexArray) -> ComplexArray:
        """Newton's change in log(state)."""

    @abc.abstractmethod
    def _residual(self, z: ComplexArray, state: ComplexArray) -> tuple[Array, Array]:
        """Largest relative residual, and the Newton step that is left."""

    @abc.abstractmethod
    def _tangent(self, z: ComplexArray, state: ComplexArray) -> ComplexArray:
        """d log(state)/d log z along the solution."""

    @abc.abstractmethod
    def _status(
        self, z: ComplexArray, state: ComplexArray, residual: Array, step: Array
    ) -> tuple[np.ndarray, ComplexArray]:
        """`Status` of each point, and the state, made exactly real where the status says so."""

    # -- what users ask -------------------------------------------------------------------------------

    @staticmethod
    def _points(z: Any, on_failure: str) -> ComplexArray:
        """The arguments of a public ``solve``, validated: z as an array.

        Raises
        ------
        ParameterError : z contains NaN, 0, infinity or a point of the lower half-plane; on_failure is unknown.
        """
        points = _checks.complex_array("z", z)
        if on_failure not in ("raise", "status"):
            raise ParameterError(f'on_failure must be "raise" or "status"; got {on_failure!r}')
        wrong = ~np.isfinite(points) | (points == 0) | (points.imag < 0)
        if wrong.any():
            raise ParameterError(
                f"z must be finite, not 0 and have Im z >= 0 (use G(conj z) = conj G(z) below the axis); "
                f"got {points[wrong][0]!r}"
            )
        return points

    def _certified(self, points: ComplexArray, scale: float, start: ComplexArray | None, on_failure: str) -> Work:
        """`_solve` at points in true units, FAILED also where the last digit of z moves the solution visibly.

        Raises
        ------
        CertificationError : a point failed, unless on_failure is "status".
        """
        flat = points.reshape(-1)
        found = self._solve(flat / scale, start)
        with np.errstate(all="ignore"):
            sensitive = ~(np.abs(self._tangent(found.z, found.unknowns)).max(axis=1) < _SENSITIVE)
        found.status[sensitive] = Status.FAILED
        failed = found.status == Status.FAILED
        if failed.any() and on_failure == "raise":
            raise CertificationError(
                f"the Dyson equation could not be certified at z = {flat[failed][0]!r} (and {int(failed.sum()) - 1} "
                "other points); take a larger Im z, or move away from the edge of the support"
            )
        return found

    # -- the loop -------------------------------------------------------------------------------------

    def _solve(self, z: ComplexArray, start: ComplexArray | None) -> Work:
        """The certified solution on a flat array; points without one are FAILED."""
        work = Work.empty(z, self.width)
        with np.errstate(all="ignore"):  # points that run away are caught by the certificate
            if start is not None:
                self._attempt(work, np.arange(z.size), start)
            far = np.flatnonzero((work.status == Status.FAILED) & (np.abs(z) > 4 * self.upper_bound))
            self._attempt(work, far, self._asymptotic(z[far]))
            self._descend(work, np.flatnonzero(work.status == Status.FAILED))
        return work

    def _attempt(self, work: Work, index: np.ndarray, start: ComplexArray) -> None:
        if index.size == 0:
            return
        state, iterations = self._newton(work.z[index], start)
        residual, step = self._residual(work.z[index], state)
        status, state = self._status(work.z[index], state, residual, step)
        work.put(index, state, status, residual, step, iterations)

    def _descend(self, work: Work, index: np.ndarray) -> None:
        """Continuation in Im z, adaptive for each point."""
        if index.size == 0:
            return
        target = work.z[index]
        height = np.maximum(4 * self.upper_bound, np.abs(target))
        state = self._asymptotic(target.real + 1j * height)
        state, iterations = self._newton(target.real + 1j * height, state)
        work.iterations[index] += iterations
        factor = np.full(index.size, 0.3)
        active = np.arange(index.size)
        for _ in range(400):
            if active.size == 0:
                break
            z0 = target[active].real + 1j * height[active]
            lowest = target[active].imag
            following = height[active] * factor[active]
            last = (following <= lowest) | (following < 1e-7 * np.abs(target[active]))
            following = np.where(last, lowest, following)
            z1 = target[active].real + 1j * following
            guess = state[active] * np.exp(self._tangent(z0, state[active]) * np.log(z1 / z0)[:, None])
            new, iterations = self._newton(z1, guess, np.where(last, 1e-15, 1e-6))
            residual, step = self._residual(z1, new)
            status, new = self._status(z1, new, residual, step)
            work.iterations[index[active]] += iterations
            good = status != Status.FAILED
            done = good & last
            if done.any():
                chosen = active[done]
                work.put(
                    index[chosen], new[done], status[done], residual[done], step[done], np.zeros(chosen.size, dtype=int)
                )
            moved = active[good]
            state[moved], height[moved] = new[good], following[good]
            factor[moved] = np.maximum(1e-3, factor[moved] ** np.where(iterations[good] <= 4, 2.0, 1.2))
            lost = active[~good]
            # a last jump that was too long is tried again from further down
            factor[lost] = factor[lost] ** 0.4
            active = active[~done & (factor[active] < 1 - 1e-4) & (height[active] > 1e-30 * np.abs(target[active]))]

    def _newton(
        self, z: ComplexArray, start: ComplexArray, enough: Array | float = 1e-15
    ) -> tuple[ComplexArray, np.ndarray]:
        """Solutions and iterations; `enough` is the relative step after which to stop (its square is the error)."""
        state = start.copy()
        iterations = np.zeros(z.size, dtype=int)
        active = np.arange(z.size)
        before = np.full(z.size, np.inf)
        enough = np.broadcast_to(enough, z.shape)
        for _ in range(30):
            change = self._change(z[active], state[active])
            size = np.abs(change).max(axis=1)
            state[active] *= np.exp(change * np.minimum(1, 1 / np.maximum(size, 1e-300))[:, None])
            iterations[active] += 1
            settled = (size < enough[active]) | ((size < 1e-9) & (size > 0.2 * before[active])) | ~np.isfinite(size)
            before[active] = size
            active = active[~settled]
            if active.size == 0:
                break
        return state, iterations


@dataclass
class Work:
    """Results under construction, in units of the mean."""

    z: ComplexArray
    unknowns: ComplexArray
    status: np.ndarray
    residual: Array
    step: Array
    iterations: np.ndarray

    @classmethod
    def empty(cls, z: ComplexArray, width: int) -> Work:
        return cls(
            z,
            np.full((z.size, width), complex(1, -1)),
            np.full(z.size, int(Status.FAILED)),
            np.full(z.size, np.inf),
            np.full(z.size, np.inf),
            np.zeros(z.size, dtype=int),
        )

    def put(
        self,
        index: np.ndarray,
        unknowns: ComplexArray,
        status: np.ndarray,
        residual: Array,
        step: Array,
        iterations: np.ndarray,
    ) -> None:
        self.iterations[index] += iterations
        good = status != Status.FAILED
        chosen = index[good]
        self.unknowns[chosen], self.status[chosen] = unknowns[good], status[good]
        self.residual[chosen], self.step[chosen] = residual[good], step[good]
