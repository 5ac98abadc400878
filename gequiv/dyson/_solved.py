"""What the laws of all Dyson equations share: certificate, Cauchy transform, the value at 0."""

from __future__ import annotations

import itertools
import math
from typing import Protocol

import numpy as np

from gequiv._checks import Array, ComplexArray
from gequiv.dyson.continuation import Continuation, Status
from gequiv.dyson.scan import MissedGapError
from gequiv.errors import CertificationError
from gequiv.laws._edge_adapted import EdgeAdaptedDensity, NodeSolver
from gequiv.laws.base import Certificate
from gequiv.laws.stored import StoredLaw

MASS_LIMIT = 1e-9


class LocalSolver(NodeSolver, Protocol):
    """A node solver that also gives the Cauchy transform and keeps a record of what it certified."""

    worst_step: float
    margin: float

    def cauchy(self, z: ComplexArray) -> ComplexArray:
        """G at finite z with Im z >= 0, off the support; in units of the mean."""
        ...


class SolvedLaw(StoredLaw):
    """A stored law whose nodes and Cauchy transform come from a Dyson equation; see `StoredLaw`."""

    equation: Continuation
    _intervals: list[tuple[float, float]]
    _local: LocalSolver

    def _store(
        self, exponents: list[tuple[int, int]], residues: list[float] | None, tolerances: tuple[float, ...]
    ) -> EdgeAdaptedDensity:
        """The stored density at the finest of the tolerances at which it settles."""

        def build(tolerance: float) -> EdgeAdaptedDensity:
            return EdgeAdaptedDensity(self._intervals, exponents, self._local, tolerance=tolerance, residues=residues)

        for tolerance in tolerances[:-1]:
            try:
                return build(tolerance)
            except MissedGapError:
                raise
            except CertificationError:
                continue
        return build(tolerances[-1])

    def _certify(self) -> Certificate:
        error = float(abs(self._density.total_mass + self._atom - 1))
        if not error <= MASS_LIMIT:
            raise CertificationError(
                f"{self!r}: the mass of the intervals {self._intervals} and of the atom misses 1 by {error:.1e}, where "
                f"{MASS_LIMIT:.0e} is allowed: move the parameters slightly"
            )
        pairs = list(itertools.pairwise(self._intervals))
        gaps = np.array([math.sqrt(below[1] * above[0]) for below, above in pairs] + [2 * self._intervals[-1][1]])
        status = self.equation._solve((gaps / self.scale).astype(np.complex128), None).status
        if not (status == Status.OUTSIDE).all():
            where = float(gaps[status != Status.OUTSIDE][0])
            raise CertificationError(
                f"{self!r}: {where!r} should lie in a gap of the support, but the Dyson equation has no real solution "
                "there: move the parameters slightly"
            )
        return Certificate(
            mass_error=error,
            density_error=self._density.check,
            residual=self._local.worst_step,
            half_plane=self._local.margin,
            nodes=self._density.nodes,
        )

    # the stored mass misses 1 by rounding: not at the right edge, where it would be visible in quantiles

    def _cdf(self, x: Array) -> Array:
        return np.where(x >= self._intervals[-1][1], 1.0, super()._cdf(x))

    def _ppf(self, q: Array) -> Array:
        return np.where(q >= 1, self._intervals[-1][1], super()._ppf(q))

    def _cauchy(self, z: ComplexArray) -> ComplexArray:
        result = np.zeros_like(z)
        zero = z == 0
        finite = np.isfinite(z) & ~zero
        if zero.any():  # 0 lies left of the support: G is analytic there
            result[zero] = self._at_zero() / self.scale
        point = z[finite] / self.scale
        below = point.imag < 0
        value = self._local.cauchy(np.where(below, point.conj(), point))
        result[finite] = np.where(below, value.conj(), value) / self.scale
        return result

    def _at_zero(self) -> float:
        """G(0) = -∫ρ(x)/x dx by the mean of G over a circle around 0 that misses the support."""
        radius = 0.5 * self._intervals[0][0] / self.scale
        angles: Array = np.pi * (np.arange(32) + 0.5) / 32
        return float(self._local.cauchy(radius * np.exp(1j * angles)).real.mean())
