"""Laws of free convolutions: the density, the support and the transform of a tree of subordination functions."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from gequiv._checks import Array, ComplexArray
from gequiv.errors import CertificationError
from gequiv.laws._batched import solve_each
from gequiv.laws._beyond import Series, SeriesLaw
from gequiv.laws._curve_arcs import Arcs
from gequiv.laws._curve_line import Line
from gequiv.laws._edge_adapted import EdgeAdaptedDensity
from gequiv.laws.affine import Affine
from gequiv.laws.base import Certificate
from gequiv.laws.equation import EquationLaw, SpectralEquation
from gequiv.laws.subordination import AddFree, Increment, Jet, Node, Scaled, Visit

_MASS_LIMIT = 1e-9
_TOLERANCES = (3e-14, 1e-12, 1e-11, 1e-10)
_FINENESS = (1.0, 4.0)
_CIRCLE = 512
_RADIUS = 1.15


class CurveLaw(SeriesLaw):
    r"""The law of a tree with one leaf: the curve :math:`\omega \mapsto (z, G)` of `gequiv.laws.subordination`.

    The real axis off the spectrum is the image of the physical real :math:`\omega`; where these end, at the zeros of
    :math:`dz/d\omega`, are the edges. Between them the density is stored in edge-adapted Chebyshev panels whose nodes
    solve :math:`z(\omega) = x` in extended precision. That their mass and that of the atoms, which come from theory,
    make 1 certifies that no interval was missed.

    Parameters
    ----------
    node : the tree.
    name : what ``repr`` shows.

    Attributes
    ----------
    certificate : `gequiv.laws.base.Certificate`, what was verified before the constructor returned.

    Raises
    ------
    CertificationError : the law could not be certified.

    Source: see `gequiv.laws.subordination`.
    """

    def __init__(self, node: Node, name: str | None = None) -> None:
        self._tree, self._name = node, name
        self._points = node.atoms()
        for fineness in _FINENESS:
            try:
                self._arcs = Arcs(node, Line(node, fineness))
                self._density = self._store()
                self.certificate = self._certify()
                break
            except CertificationError:
                if fineness == _FINENESS[-1]:
                    raise
        low, high = self._arcs.intervals[0][0], self._arcs.intervals[-1][1]
        ends = [low, high, *(location for location, _ in self._points)]
        low, high = self._hull = min(ends), max(ends)
        self._centre, self.scale = 0.5 * (low + high), 0.5 * (high - low)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._tree, self._name)

    def __repr__(self) -> str:
        return self._name or f"{type(self).__name__}({self._tree!r})"

    def _node(self) -> Node:
        return self._tree

    def _store(self) -> EdgeAdaptedDensity:
        """The stored density at the finest of the tolerances at which it settles."""
        arcs = self._arcs

        def build(tolerance: float) -> EdgeAdaptedDensity:
            return EdgeAdaptedDensity(
                arcs.intervals,
                arcs.exponents,
                arcs,
                tolerance=tolerance,
                residues=arcs.residues,
                powers=arcs.powers,
            )

        for tolerance in [level for level in _TOLERANCES[:-1] if level >= arcs.finest]:
            try:
                return build(tolerance)
            except CertificationError:
                continue
        return build(_TOLERANCES[-1])

    def _certify(self) -> Certificate:
        mass = self._density.total_mass + sum(weight for _, weight in self._points)
        error = float(abs(mass - 1))
        if not error <= _MASS_LIMIT:
            raise CertificationError(
                f"the mass of the intervals {self._arcs.intervals} and of the atoms {self._points} misses 1 by "
                f"{error:.1e}, where {_MASS_LIMIT:.0e} is allowed: move the parameters slightly"
            )
        return Certificate(
            mass_error=error,
            density_error=self._density.check,
            residual=self._arcs.worst_step,
            half_plane=self._arcs.margin,
            nodes=self._density.nodes,
        )

    def support(self, dps: int | None = None) -> list[tuple[Any, Any]]:
        """The intervals of the density, ascending, correct to the last digits; two that touch in a cusp are one."""
        merged: list[tuple[Any, Any]] = []
        for low, high in super().support(dps):
            if merged and merged[-1][1] == low:
                merged[-1] = merged[-1][0], high
            else:
                merged.append((low, high))
        return merged

    def _scaled_moment(self, k: int) -> float:
        r"""In units of ``scale``: :math:`\oint z^k G(z)\,dz/2\pi i`, by the trapezoidal rule."""
        z, value = self._on_circle
        with np.errstate(over="ignore", invalid="ignore"):
            result = float(((self._centre / self.scale + z) ** k * value * z).real.mean())
        return result if np.isfinite(result) else float("inf")

    @cached_property
    def _on_circle(self) -> tuple[ComplexArray, ComplexArray]:
        """(z - centre)/scale on half a circle about the spectrum, and G scale."""
        z = _RADIUS * np.exp(1j * np.pi * (np.arange(_CIRCLE) + 0.5) / _CIRCLE)
        return z, self._arcs.cauchy(self._centre + self.scale * z)[0] * self.scale

    @cached_property
    def _series(self) -> Series:
        radius = abs(self._centre) + self.scale
        return Series(
            self._arcs.cauchy,
            self._arcs.intervals,
            self._points,
            lambda k: self._scaled_moment(k) * (self.scale / radius) ** k,
            radius,
        )

    def _increment(self) -> Increment | None:
        node = self._tree
        if isinstance(node, AddFree) and node.children[0].is_point():
            return node.increment + Increment(node.children[0].bounds()[0], (), ())
        return None

    def _matrix(self, n: int, rng: np.random.Generator) -> Array:
        matrix: Array = self._tree.matrix(n, rng)
        return 0.5 * (matrix + matrix.T)


class TreeEquation(SpectralEquation):
    """The equations of a tree with several leaves, in their points: the agreements, and that the root's point is z."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.width = node.width
        self.low, self.high = node.bounds()
        self.atoms = node.atoms()

    def start(self, z: ComplexArray) -> ComplexArray:
        return np.asarray(self.node.start(z))

    def change(self, z: ComplexArray, state: ComplexArray) -> ComplexArray:
        jet, visit = self._evaluate(state)
        residual = np.stack([*(match[0] for match in visit.matches), jet.z - z], axis=1)
        return -_solved(self._jacobian(jet, visit), residual)

    def tangent(self, z: ComplexArray, state: ComplexArray) -> ComplexArray:
        return self._tangent(*self._evaluate(state))

    def _tangent(self, jet: Jet, visit: Visit) -> ComplexArray:
        along = np.zeros((jet.z.size, self.width), dtype=np.complex128)
        along[:, -1] = 1
        return _solved(self._jacobian(jet, visit), along)

    def cauchy(self, z: ComplexArray, state: ComplexArray) -> ComplexArray:
        return np.asarray(self._evaluate(state)[0].g)

    def slope(self, z: ComplexArray, state: ComplexArray) -> ComplexArray:
        jet, visit = self._evaluate(state)
        return np.asarray((jet.dg * self._tangent(jet, visit)).sum(axis=1))

    def margin(self, z: ComplexArray, state: ComplexArray) -> Array:
        jet, visit = self._evaluate(state)
        margin: Array = visit.margins(jet)
        return margin

    def off_spectrum(self, z: ComplexArray, state: ComplexArray) -> np.ndarray:
        jet, visit = self._evaluate(state)
        tangent = self._tangent(jet, visit)
        good = (jet.dg * tangent).sum(axis=1).real < 0
        for point, first in visit.points:
            along = tangent[:, first : first + point.dz.shape[1]]
            good &= (point.dz * along).sum(axis=1).real > 0
        for sign in visit.signs:
            good &= sign > 0
        return np.asarray(good)

    def _evaluate(self, state: ComplexArray) -> tuple[Jet, Visit]:
        visit = Visit()
        with np.errstate(all="ignore"):  # what is not finite is not certified
            return self.node.evaluate(state, visit), visit

    def _jacobian(self, jet: Jet, visit: Visit) -> ComplexArray:
        jacobian = np.zeros((jet.z.size, self.width, self.width), dtype=np.complex128)
        for row, (_, gradient, first) in enumerate(visit.matches):
            jacobian[:, row, first : first + gradient.shape[1]] = gradient
        jacobian[:, -1] = jet.dz
        return jacobian


def _solved(matrices: ComplexArray, right: ComplexArray) -> ComplexArray:
    """matrices^{-1} right; NaN where a matrix is singular or not finite."""
    with np.errstate(all="ignore"):
        if right.shape[1] == 2:
            (a, b), (c, d) = matrices[:, 0].T, matrices[:, 1].T
            p, q = right.T
            return np.asarray(np.stack([d * p - b * q, a * q - c * p], axis=1) / (a * d - b * c)[:, None])
        return solve_each(matrices, right)


class TreeLaw(EquationLaw):
    """The law of a tree with several leaves; see `gequiv.laws.equation.EquationLaw` and `gequiv.laws.subordination`."""

    def __init__(self, node: Node, name: str | None = None) -> None:
        self._tree = node
        super().__init__(TreeEquation(node), name=name, draw=self._drawn)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._tree, self._name)

    def _node(self) -> Node:
        return self._tree

    def _drawn(self, n: int, rng: np.random.Generator) -> Array:
        matrix: Array = self._tree.matrix(n, rng)
        return 0.5 * (matrix + matrix.T)


def law_of_tree(node: Node, name: str | None = None) -> CurveLaw | TreeLaw | Affine:
    """The law of a tree, by the way that its number of leaves allows."""
    if isinstance(node, Scaled):
        return Affine(law_of_tree(node.children[0]), node.scale, node.shift)
    return CurveLaw(node, name) if node.width == 1 else TreeLaw(node, name)
