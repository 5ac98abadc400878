"""The real axis scanned for the support of a law: which points lie inside, and between which points its edges lie."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from gequiv._checks import Array, ComplexArray
from gequiv.dyson.continuation import Status, Work
from gequiv.errors import CertificationError

_PER_DECADE = 24
_COARSE = 4  # every fourth point is solved from nothing, the others from their neighbours
_MISMATCH = 0.1
_FINEST = 1e-6
EXTREME = "the parameters are too extreme; move them slightly, or bring the ratios closer to one"


class ScannedEquation(Protocol):
    """What the scan asks of an equation; see `gequiv.dyson.continuation.Continuation`."""

    def _solve(self, z: ComplexArray, start: ComplexArray | None) -> Work: ...

    def _tangent(self, z: ComplexArray, state: ComplexArray) -> ComplexArray: ...

    def margin(self, z: ComplexArray, state: ComplexArray) -> Array: ...


class AxisScan:
    """Certified points of the real axis between two positive bounds, ascending, in units of the mean.

    The grid is even in log x and refined where neighbours disagree about the solution and where the solution comes
    close to real; points that cannot be certified are left out.

    Attributes
    ----------
    x, state, status, openness : points, solutions, `Status` inside or outside, and the half-plane margin.

    Raises
    ------
    CertificationError : the refinement does not end.
    """

    def __init__(self, equation: ScannedEquation, low: float, high: float, per_decade: int = _PER_DECADE) -> None:
        self.equation = equation
        count = max(40, int(per_decade * np.log10(high / low)))
        grid = np.geomspace(low, high, count)
        self.x, self.state, self.status, self.openness = self._solve(grid[::_COARSE], None)
        fine = np.delete(grid, slice(None, None, _COARSE))
        self.insert(fine, self.nearest(fine) if self.x.size else None)
        self._refine()

    def nearest(self, x: Array, status: Status | None = None) -> ComplexArray:
        """Solutions at the nearest points (of that status), as starts; at least one point must be there."""
        chosen = np.arange(self.x.size) if status is None else np.flatnonzero(self.status == status)
        middle = np.sqrt(self.x[chosen[1:]] * self.x[chosen[:-1]])
        return self.state[chosen[np.searchsorted(middle, x)]]

    def _solve(self, x: Array, start: ComplexArray | None) -> tuple[Array, ComplexArray, np.ndarray, Array]:
        found = self.equation._solve(x.astype(np.complex128), start)
        good = found.status != Status.FAILED
        x, state, status = x[good], found.unknowns[good], found.status[good]
        openness = np.where(status == Status.INSIDE, self.equation.margin(found.z[good], state), 0.0)
        return x, state, status, openness

    def _refine(self) -> None:
        for _ in range(30):
            lower = self._suspicious()
            if lower.size == 0:
                break
            if self.x.size > 20000:
                raise CertificationError(f"the support could not be found: {EXTREME}")
            if not self.insert(np.sqrt(self.x[lower] * self.x[lower + 1]), self.state[lower]):
                break

    def insert(self, x: Array, start: ComplexArray | None) -> bool:
        """Add points, from solutions nearby; False if none of them could be certified."""
        x, state, status, openness = self._solve(x, start)
        order = np.argsort(np.concatenate([self.x, x]), kind="stable")
        self.x = np.concatenate([self.x, x])[order]
        self.state = np.concatenate([self.state, state])[order]
        self.status = np.concatenate([self.status, status])[order]
        self.openness = np.concatenate([self.openness, openness])[order]
        return x.size > 0

    def halve(self) -> None:
        """Add a point between all neighbours, and refine again."""
        self.insert(np.sqrt(self.x[1:] * self.x[:-1]), self.state[1:])
        self._refine()

    def add(self, x: float) -> None:
        """Add a point that the refinement passed by, and refine again around it."""
        self.insert(np.array([x]), None)
        self._refine()

    def _suspicious(self) -> np.ndarray:
        """Lower ends of the pairs between which something may hide."""
        length = np.log(self.x[1:] / self.x[:-1])
        with np.errstate(all="ignore"):
            tangent = self.equation._tangent(self.x.astype(np.complex128), self.state)
            jump = np.log(self.state[1:] / self.state[:-1])
            jump = jump - 0.5 * (tangent[1:] + tangent[:-1]) * length[:, None]
            mismatch = np.abs(jump).max(axis=1)
        same = self.status[1:] == self.status[:-1]
        pairs = same & ~(mismatch <= _MISMATCH) & (length > _FINEST)
        o = self.openness
        dip = np.zeros(o.size, dtype=bool)
        inside = self.status == Status.INSIDE
        dip[1:-1] = inside[1:-1] & inside[:-2] & inside[2:] & (o[1:-1] <= o[:-2]) & (o[1:-1] <= o[2:])
        dip[1:-1] &= o[1:-1] < 0.95 * np.maximum(o[:-2], o[2:])
        pairs |= (dip[1:] | dip[:-1]) & (length > 1e-3 * _FINEST)
        return np.flatnonzero(pairs)

    def brackets(self) -> list[tuple[int, int]]:
        """(inside, outside) neighbours, ascending."""
        change = np.flatnonzero(self.status[1:] != self.status[:-1])
        return [(int(k), int(k + 1)) if self.status[k] == Status.INSIDE else (int(k + 1), int(k)) for k in change]


class MissedGapError(CertificationError):
    """A point that should lie inside the support does not.

    Attributes
    ----------
    x : the point, in units of the mean.
    """

    def __init__(self, x: float) -> None:
        super().__init__(f"the support has a gap at {x!r} (in units of the mean) that the scan missed: {EXTREME}")
        self.x = x
