r"""The law of a transform that solves equations: an engine for laws on the whole real line.

A `SpectralEquation` says, for each z, what n complex unknowns solve: Newton's change, the derivative along z, the
Cauchy transform, and two certificates, one off the real axis and one for real solutions. `EquationLaw` does the rest.
It comes down from large Im z, where the solution is known, to the real axis; scans the axis for the support; finds the
edges, where the real solution folds back on itself; and stores the density in panels adapted to them.

At 0 the density may be singular, :math:`\rho \sim |x|^{q/p}`: the hard edge of k + 1 = p square factors has
q = -k, a cusp p = 3 and q = 1. What it is is measured, and refused if it is none of these. Elsewhere all edges are
square roots; a cusp, where two intervals touch, is refused there.

Sources: the continuation is classical; edges as folds: Silverstein and Choi 1995, Alt, Erdős and Krüger 2020.
"""

from __future__ import annotations

import abc
import itertools
import math
from collections.abc import Callable
from functools import cached_property

import numpy as np

from gequiv._checks import Array, ComplexArray
from gequiv.errors import CertificationError, ParameterError
from gequiv.laws._beyond import Series, SeriesLaw
from gequiv.laws._edge_adapted import EdgeAdaptedDensity
from gequiv.laws._equation_solver import Solver, Status
from gequiv.laws._equation_support import ADVICE, EquationNodes, EquationSupport, MissedGapError
from gequiv.laws.base import Certificate

MASS_LIMIT = 1e-9
_TOLERANCES = (1e-13, 1e-12, 1e-11, 1e-10, 1e-9)
_CONTOURS = ((8, 2.0, 96), (200, 1.25, 256), (math.inf, 1.05, 1024))
"""Up to which moment, Joukowski radius of the ellipse, points on its upper half: high orders lose digits far out."""
_MOST_MISSED = 40
_MOST_HALVINGS = 1
_CLOSE = 1e-8  # of the distance from the support, there G is linear in Im z
_DIFFERENCE = 1e-3  # step of the differences of G along z, relative to its own scale


class SpectralEquation(abc.ABC):
    r"""Equations F(z, u) = 0 whose solution u(z) gives the Cauchy transform of a law; all methods are vectorised.

    z has shape (m,), a state shape (m, width). The solution must be real for real z off the spectrum, so that
    u(conj z) = conj u(z), and analytic elsewhere. NaN and infinities are allowed where something is singular: the
    engine runs with floating-point warnings switched off and trusts only what the certificates confirm.

    Attributes
    ----------
    width : number of complex unknowns.
    low, high : the spectrum lies between; low = 0 says that the law lives on the half-line, and may reach 0.
    atoms : the point masses from theory, as (location, weight).
    """

    width: int
    low: float
    high: float
    atoms: list[tuple[float, float]]

    @abc.abstractmethod
    def start(self, z: ComplexArray) -> ComplexArray:
        r"""The solution for \|z\| far above the spectrum, near enough for Newton's method; shape (m, width)."""

    @abc.abstractmethod
    def change(self, z: ComplexArray, state: ComplexArray) -> ComplexArray:
        """Newton's change :math:`-F_u^{-1} F`, to be added to the state."""

    @abc.abstractmethod
    def tangent(self, z: ComplexArray, state: ComplexArray) -> ComplexArray:
        """du/dz = :math:`-F_u^{-1} F_z` along the solution."""

    @abc.abstractmethod
    def cauchy(self, z: ComplexArray, state: ComplexArray) -> ComplexArray:
        """G(z) of the state; shape (m,)."""

    @abc.abstractmethod
    def margin(self, z: ComplexArray, state: ComplexArray) -> Array:
        """Positive if and only if the complex state is the physical one, for Im z >= 0; of order one in the bulk.

        The half-plane conditions, divided by the sizes of what they are about, such as min(-Im G/\\|G\\|, …).
        """

    @abc.abstractmethod
    def off_spectrum(self, z: ComplexArray, state: ComplexArray) -> np.ndarray:
        """Whether a real state at real z is the physical one: dG/dz < 0 and whatever else it takes."""

    def slope(self, z: ComplexArray, state: ComplexArray) -> ComplexArray:
        """dG/dz along the solution; by differences of `cauchy`, which is right for any formula and short of digits."""
        tangent = self.tangent(z, state)
        size = np.abs(state).max(axis=1) / np.maximum(np.abs(tangent).max(axis=1), 1e-300)
        h = _DIFFERENCE * np.minimum(size, np.abs(z) + 1e-300)
        total = np.zeros_like(z)
        for turn in (1, 1j, -1, -1j):
            total += self.cauchy(z + turn * h, state + turn * h[:, None] * tangent) / turn
        return np.asarray(total / (4 * h))


class EquationLaw(SeriesLaw):
    r"""The law whose Cauchy transform solves a `SpectralEquation`.

    The density is stored in edge-adapted Chebyshev panels whose nodes solve the equation; moments are
    :math:`\oint z^k G(z)\,dz/2\pi i` about the spectrum.

    Parameters
    ----------
    equation : the equation.
    name : what ``repr`` shows; the equation's own ``repr`` by default.
    draw : (n, rng) to a random n × n matrix of this law, for ``matrix``; a rotated diagonal matrix by default.

    Attributes
    ----------
    equation : as given.
    certificate : `gequiv.laws.base.Certificate`, what was verified before the constructor returned.

    Raises
    ------
    CertificationError : the law could not be certified.
    """

    def __init__(
        self,
        equation: SpectralEquation,
        *,
        name: str | None = None,
        draw: Callable[[int, np.random.Generator], Array] | None = None,
    ) -> None:
        if not (math.isfinite(equation.low) and math.isfinite(equation.high) and equation.low < equation.high):
            raise ParameterError(f"equation must have finite low < high; got {equation.low!r} and {equation.high!r}")
        self.equation = equation
        self._name, self._draw = name, draw
        self._solver = Solver(equation)
        self._points = sorted((float(location), float(weight)) for location, weight in equation.atoms if weight > 0)
        self._contours: dict[tuple[float, int], tuple[ComplexArray, ComplexArray]] = {}
        self._build(EquationSupport(self._solver))
        ends = [*itertools.chain(*self._intervals), *(location for location, _ in self._points)]
        self._hull = min(ends), max(ends)
        self.scale = max(abs(end) for end in self._hull)

    def _build(self, support: EquationSupport) -> None:
        """Store and certify; where that shows that the scan missed something, scan more finely."""
        halvings = 0
        for attempt in range(_MOST_MISSED + 1):
            self._intervals = support.intervals
            try:
                nodes = EquationNodes(self._solver, support)
                self._density = self._store(support, nodes)
                self.certificate = self._certify(nodes)
                return
            except MissedGapError as missed:
                if attempt == _MOST_MISSED:
                    raise
                support.add(missed.x)
            except CertificationError:
                if halvings == _MOST_HALVINGS:
                    raise
                halvings += 1
                support.halve()

    def _store(self, support: EquationSupport, nodes: EquationNodes) -> EdgeAdaptedDensity:
        """The stored density at the finest of the tolerances at which it settles."""

        def build(tolerance: float) -> EdgeAdaptedDensity:
            nodes.begin(tolerance)
            return EdgeAdaptedDensity(
                support.intervals, support.exponents, nodes, tolerance=tolerance, powers=support.powers
            )

        for tolerance in _TOLERANCES[:-1]:
            try:
                return build(tolerance)
            except MissedGapError:
                raise
            except CertificationError:
                continue
        return build(_TOLERANCES[-1])

    def _certify(self, nodes: EquationNodes) -> Certificate:
        weight = sum(weight for _, weight in self._points)
        error = float(abs(self._density.total_mass + weight - 1))
        if not error <= MASS_LIMIT:
            raise CertificationError(
                f"{self!r}: the mass of the intervals {self._intervals} and of the atoms {self._points} misses 1 by "
                f"{error:.1e}, where {MASS_LIMIT:.0e} is allowed: {ADVICE}"
            )
        if not nodes.margin > 0:
            raise CertificationError(f"{self!r}: a node lies on the wrong side of the real axis: {ADVICE}")
        self._check_gaps()
        return Certificate(
            mass_error=error,
            density_error=self._density.check,
            residual=nodes.worst_step,
            half_plane=nodes.margin,
            nodes=self._density.nodes,
        )

    def _check_gaps(self) -> None:
        """The equation has a real solution in every gap, beside the atoms."""
        bottom, top = self._intervals[0][0], self._intervals[-1][1]
        walls = [bottom - 0.5 * (top - bottom), *itertools.chain(*self._intervals), top + 0.5 * (top - bottom)]
        gaps = []
        for a, b in zip(walls[::2], walls[1::2], strict=True):
            poles = [a, *(location for location, _ in self._points if a < location < b), b]
            gaps += [c + 0.4 * (d - c) for c, d in itertools.pairwise(poles) if d > c]
        points = np.array(gaps)
        status = self._solver.solve(points.astype(np.complex128)).status
        if not (status == Status.OUTSIDE).all():
            raise CertificationError(
                f"{self!r}: {float(points[status != Status.OUTSIDE][0])!r} should lie in a gap of the support, but no "
                f"real solution is there: {ADVICE}"
            )

    def __repr__(self) -> str:
        return self._name if self._name is not None else f"EquationLaw({self.equation!r})"

    @cached_property
    def _series(self) -> Series:
        return Series(self._solved, self._intervals, self._points, self._scaled_moment, self.scale)

    def _solved(self, z: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        """G and dG/dz at finite points with Im z >= 0; a hair above the axis and off the support from the axis."""
        distance = np.min([np.maximum(np.maximum(a - z.real, z.real - b), 0.0) for a, b in self._intervals], axis=0)
        close = z.imag <= _CLOSE * distance
        point = np.where(close, z.real, z)
        value, found = self._solver.cauchy(point)
        with np.errstate(all="ignore"):
            slope = self.equation.slope(point, found.state)
        slope = np.where(found.status == Status.OUTSIDE, slope.real, slope)
        return np.where(close, value + 1j * z.imag * slope, value), slope

    def _on_contour(self, k: int) -> tuple[ComplexArray, ComplexArray]:
        """z and G(z) dz/dθ/i on the upper half of an ellipse about the spectrum, near enough for order k."""
        shape, count = next((shape, count) for order, shape, count in _CONTOURS if k <= order)
        count = max(count, k)
        if (shape, count) not in self._contours:
            centre, half = 0.5 * (self._hull[0] + self._hull[1]), 0.5 * (self._hull[1] - self._hull[0])
            turn = shape * np.exp(1j * np.pi * (np.arange(count) + 0.5) / count)
            z = centre + 0.5 * half * (turn + 1 / turn)
            value, _ = self._solver.cauchy(z)
            self._contours[shape, count] = z, value * 0.5 * half * (turn - 1 / turn)
        return self._contours[shape, count]

    def _scaled_moment(self, k: int) -> float:
        """By the trapezoidal rule on an ellipse, which converges exponentially."""
        if k == 0:
            return 1.0
        z, weight = self._on_contour(k)
        return float(((z / self.scale) ** k * weight).real.mean())

    def _matrix(self, n: int, rng: np.random.Generator) -> Array:
        return super()._matrix(n, rng) if self._draw is None else self._draw(n, rng)
