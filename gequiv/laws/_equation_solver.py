"""Newton's method with continuation in Im z for a `gequiv.laws.equation.SpectralEquation`.

The unknowns may vanish, so steps are additive, measured against the size of each unknown. The loop owns iteration, step
lengths and the bookkeeping of the points that are done; the equation says what it certifies.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gequiv._checks import Array, ComplexArray
from gequiv.errors import CertificationError

if TYPE_CHECKING:
    from gequiv.laws.equation import SpectralEquation

STRICT = 1e-9  # a half-plane margin that rounding cannot imitate
STEP = 1e-8  # largest Newton step left; the error is its square, and rounding
_ENOUGH = 3e-11  # step after which to stop: the next one would be rounding
_ON_THE_WAY = 1e-6  # the same where the descent goes on
_SMALL = 1e-3  # an unknown this small beside the largest one may change sign in one step
_FLOOR = 1e-2  # the size below which an unknown counts as zero, relative to its own far above the spectrum
_NEARLY_REAL = 1e-4
_STEEPEST = 1.5  # a power of z of which a prediction can be made
_ITERATIONS = 30
_FEW = 12  # from a prediction
_ROUNDS = 200
_SLOWEST = 0.995  # a point that can only come down by less than this factor in Im z is given up
_JUMP = 0.7  # farthest that Newton may carry a predicted state
_HEIGHTS = (8.0, 80.0, 800.0, 8e4, 8e6)  # where the descent begins, in units of the reach


class Status(enum.IntEnum):
    """What a point of a solution is certified to be."""

    UPPER = 0
    """Im z > 0."""
    INSIDE = 1
    """z real, inside the support: -Im G/π is the density."""
    OUTSIDE = 2
    """z real, off the support: G is real."""
    FAILED = 3
    """Nothing certified."""


@dataclass
class Solution:
    """States at points z, one row each, with `Status` and the Newton step that was left."""

    z: ComplexArray
    state: ComplexArray
    status: np.ndarray
    step: Array

    def put(self, index: np.ndarray, state: ComplexArray, status: np.ndarray, step: Array) -> None:
        good = status != Status.FAILED
        chosen = index[good]
        self.state[chosen], self.status[chosen], self.step[chosen] = state[good], status[good], step[good]


class Solver:
    """Certified solutions of one equation on flat arrays of points with Im z >= 0.

    Parameters
    ----------
    equation : the `SpectralEquation`.
    """

    def __init__(self, equation: SpectralEquation) -> None:
        self.equation = equation
        self.reach = max(abs(equation.low), abs(equation.high))
        with np.errstate(all="ignore"):
            far = np.abs(equation.start(np.array([1j * _HEIGHTS[0] * self.reach])))
        self._floor = _FLOOR * np.where(np.isfinite(far), far, 0.0) + 1e-300

    def scales(self, state: ComplexArray) -> Array:
        """The size of each unknown against which its changes are measured."""
        size: Array = np.abs(state)
        return np.asarray(size + _SMALL * size.max(axis=1, keepdims=True) + self._floor)

    def solve(self, z: ComplexArray, start: ComplexArray | None = None) -> Solution:
        """The certified solution; points without one are FAILED.

        Parameters
        ----------
        z : (m,), finite, Im z >= 0.
        start : (m, width) states to try first, or None to come down from large Im z.
        """
        found = Solution(
            z,
            np.zeros((z.size, self.equation.width), dtype=np.complex128),
            np.full(z.size, int(Status.FAILED)),
            np.full(z.size, np.inf),
        )
        with np.errstate(all="ignore"):  # points that run away are caught by the certificate
            if start is not None:
                self._attempt(found, np.arange(z.size), start)
            far = np.flatnonzero((found.status == Status.FAILED) & (np.abs(z) > _HEIGHTS[1] * self.reach))
            if far.size:
                self._attempt(found, far, self.equation.start(z[far]))
            self._descend(found, np.flatnonzero(found.status == Status.FAILED))
        return found

    def _attempt(self, found: Solution, index: np.ndarray, start: ComplexArray) -> None:
        z = found.z[index]
        state, step, _ = self.newton(z, start)
        found.put(index, *self._certify(z, state, step))

    def _certify(self, z: ComplexArray, state: ComplexArray, step: Array) -> tuple[ComplexArray, np.ndarray, Array]:
        """States, made exactly real where the status says so, `Status`, and steps."""
        status = np.full(z.size, int(Status.FAILED))
        solved = np.isfinite(state).all(axis=1) & (step < STEP)
        margin = np.full(z.size, -np.inf)
        margin[solved] = self.equation.margin(z[solved], state[solved])
        above = solved & (margin > STRICT)
        status[above] = np.where(z[above].imag > 0, Status.UPPER, Status.INSIDE)
        # too close to real to tell by the sign (of rounding, where G is 0): by the derivative, on the real axis
        flat = (np.abs(state.imag) / self.scales(state)).max(axis=1)
        close = np.flatnonzero(solved & (flat < np.where(above, np.where(z.imag > 0, 0.0, STRICT), _NEARLY_REAL)))
        if close.size:
            x = z[close].real.astype(np.complex128)
            real = state[close].real.astype(np.complex128)
            off_axis = z[close].imag > 0
            real, left, _ = self.newton(x, real)
            good = (left < STEP) & self.equation.off_spectrum(x, real) & np.isfinite(real).all(axis=1)
            good &= (np.abs(real - state[close]) / self.scales(real)).max(axis=1) < 100 * _NEARLY_REAL
            chosen = close[good]
            status[chosen] = np.where(off_axis[good], Status.UPPER, Status.OUTSIDE)
            state = state.copy()
            state[chosen] = np.where(off_axis[good, None], state[chosen], real[good])
        return state, status, step

    def _descend(self, found: Solution, index: np.ndarray) -> None:
        """Continuation in Im z, adaptive for each point."""
        if index.size == 0:
            return
        target = found.z[index]
        height, state, begun = self._begin(target)
        factor = np.full(index.size, 0.3)
        active = np.flatnonzero(begun)
        for _ in range(_ROUNDS):
            if active.size == 0:
                break
            z0 = target[active].real + 1j * height[active]
            lowest = target[active].imag
            following = height[active] * factor[active]
            local = np.maximum(np.abs(target[active].real), 1e-13 * self.reach)
            last = (following <= lowest) | (following < 1e-7 * local)
            following = np.where(last, lowest, following)
            z1 = target[active].real + 1j * following
            guess = self._predict(z0, state[active], z1)
            new, step, iterations = self.newton(z1, guess, np.where(last, _ENOUGH, _ON_THE_WAY), _FEW)
            certified, status, _ = self._certify(z1, new, np.where(last, step, step * (STEP / _ON_THE_WAY)))
            moved = np.abs(certified - guess) / (self.scales(guess) + self.scales(state[active]))
            good = (status != Status.FAILED) & (last | (moved.max(axis=1) < _JUMP))
            done = good & last
            if done.any():
                found.put(index[active[done]], certified[done], status[done], step[done])
            kept = active[good]
            state[kept], height[kept] = certified[good], following[good]
            factor[kept] = np.maximum(1e-3, factor[kept] ** np.where(iterations[good] <= 4, 2.0, 1.2))
            lost = active[~good]
            # a last jump that was too long is tried again from further down
            factor[lost] = factor[lost] ** 0.4
            active = active[~done & (factor[active] < _SLOWEST) & (height[active] > 1e-30 * self.reach)]

    def _predict(self, z0: ComplexArray, state: ComplexArray, z1: ComplexArray) -> ComplexArray:
        """To first order: like a power of z, as at infinity and at hard edges, unless the power is a large one."""
        tangent = self.equation.tangent(z0, state)
        power = z0[:, None] * tangent / state
        tame = (np.abs(power) <= _STEEPEST) & (z1 != 0)[:, None]
        log = np.where(tame, np.log(np.where(z1 == 0, 1, z1) / z0)[:, None] * np.where(tame, power, 0), 0)
        return np.where(tame, state * np.exp(log), state + tangent * (z1 - z0)[:, None])

    def _begin(self, target: ComplexArray) -> tuple[Array, ComplexArray, np.ndarray]:
        """Heights above the targets, solutions there, and whether they are certified."""
        height = np.empty(target.size)
        state = np.zeros((target.size, self.equation.width), dtype=np.complex128)
        begun = np.zeros(target.size, dtype=bool)
        for factor in _HEIGHTS:
            left = np.flatnonzero(~begun)
            if left.size == 0:
                break
            height[left] = np.maximum(factor * self.reach, np.abs(target[left]))
            z = target[left].real + 1j * height[left]
            new, step, _ = self.newton(z, self.equation.start(z))
            new, status, _ = self._certify(z, new, step)
            state[left] = new
            begun[left] = status != Status.FAILED
        return height, state, begun

    def newton(
        self, z: ComplexArray, start: ComplexArray, enough: Array | float = _ENOUGH, most: int = _ITERATIONS
    ) -> tuple[ComplexArray, Array, np.ndarray]:
        """Solutions, the relative step that was left, and iterations; `enough` is the step after which to stop."""
        state = start.astype(np.complex128)
        iterations = np.zeros(z.size, dtype=int)
        before = np.full(z.size, np.inf)
        active = np.arange(z.size)
        enough = np.broadcast_to(enough, z.shape)
        for _ in range(most):
            if active.size == 0:
                break
            here = state[active]
            change = self.equation.change(z[active], here)
            size = (np.abs(change) / self.scales(here)).max(axis=1)
            state[active] = here + change * np.minimum(1, 1 / np.maximum(size, 1e-300))[:, None]
            iterations[active] += 1
            settled = (size < enough[active]) | ((size < 1e-7) & (size > 0.2 * before[active])) | ~np.isfinite(size)
            before[active] = size
            active = active[~settled]
        return state, np.where(np.isfinite(before), before, np.inf), iterations

    # -- along the real branch --------------------------------------------------------------------------

    def along(self, pivot: int, target: float, x: float, state: Array) -> tuple[float, Array, Array] | None:
        """z, the real solution and dstate/dz where one unknown is `target`, by Newton's method; None if it fails.

        With the pivot held the step is change + tangent dz, dz = (target - pivot - change_pivot)/tangent_pivot: regular
        at a fold, where tangent and change grow without bounds in the same proportion.
        """
        state = state.copy()
        for _ in range(25):
            z = np.array([x], dtype=np.complex128)
            point = state[None].astype(np.complex128)
            change = self.equation.change(z, point)[0].real
            tangent = self.equation.tangent(z, point)[0].real
            rise = (target - state[pivot] - change[pivot]) / tangent[pivot]
            change = change + tangent * rise
            size = max(float((np.abs(change) / self.scales(point)[0]).max()), abs(rise) / max(abs(x), 1e-30))
            if not np.isfinite(size) or size > 3:
                return None
            state += change
            state[pivot] = target
            x += float(rise)
            if size < 1e-13:
                break
        else:
            return None if size > 1e-9 else (x, state, tangent)
        tangent = self.equation.tangent(np.array([x], dtype=np.complex128), state[None].astype(np.complex128))[0].real
        return x, state, tangent

    def fold(self, inside: float, outside: float, state: Array) -> float | None:
        """The edge between a point inside and one off the support, whose real solution is given; None if lost.

        z as a function of one unknown s is stationary at the edge, by the secant method on dz/ds. With a its second
        derivative there z - z_e = (dz/ds)²/(2a), so that the bracket gives the first step.
        """
        x = outside
        with np.errstate(all="ignore"):
            point = np.array([x], dtype=np.complex128), state[None].astype(np.complex128)
            tangent = self.equation.tangent(*point)[0].real
            pivot = int(np.argmax(np.abs(tangent) / self.scales(point[1])[0]))
            slope = 1 / tangent[pivot]
            step = -2 * (outside - inside) / slope
            for _ in range(40):
                if not abs(step) < 10 * max(abs(state[pivot]), _SMALL * np.abs(state).max()):
                    return None
                target = state[pivot] + step
                moved = self.along(pivot, target, x + 0.5 * slope * step, state + tangent * slope * step)
                if moved is None:
                    return None
                x, state, tangent = moved
                new = float(1 / tangent[pivot])
                if new == slope or not np.isfinite(new):
                    return None if abs(new) > 1e-9 else self._between(x, inside, outside)
                step *= -new / (new - slope)
                slope = new
                if abs(step) <= 1e-9 * abs(target) or slope == 0:
                    return self._between(x, inside, outside)
        return None

    @staticmethod
    def _between(x: float, inside: float, outside: float) -> float | None:
        low, high = min(inside, outside), max(inside, outside)
        slack = 1e-9 * max(abs(low), abs(high))
        return x if low - slack <= x <= high + slack else None

    def cauchy(self, z: ComplexArray, start: ComplexArray | None = None) -> tuple[ComplexArray, Solution]:
        """G at finite z with Im z >= 0 off the support, and the solution.

        Raises
        ------
        CertificationError : a point could not be certified.
        """
        found = self.solve(z, start)
        failed = (found.status == Status.FAILED) | (found.status == Status.INSIDE)
        if failed.any():
            raise CertificationError(
                f"the Cauchy transform could not be certified at z = {complex(z[failed][0])!r}; "
                "move away from the edge of the support"
            )
        value = self.equation.cauchy(z, found.state)
        return np.where(found.status == Status.OUTSIDE, value.real, value), found
