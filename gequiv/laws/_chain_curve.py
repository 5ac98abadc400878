"""The rational curve of `GaussianChainPlusNoise` as a source of certified points of the density.

The curve is taken in units where the law has mean one; intervals, and what `EdgeAdaptedDensity` reads, in true units.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from gequiv._checks import Array, ComplexArray
from gequiv.errors import CertificationError
from gequiv.laws import _polynomials as poly
from gequiv.laws._chain_algebra import EXTREME, ChainAlgebra
from gequiv.laws._chain_expansions import ChainExpansions, inverse_companion_roots, on_sheet
from gequiv.laws._edge_adapted import edge_list

_DOUBT = 3e-15


class ChainCurve:
    """z(t) = (1+y)(1+cy) P/t with y = rho t + (1-rho) t/P and P = prod(1 + rho t/c_i): support, sheet, density.

    Parameters
    ----------
    inner : c_i, inner dimensions over rows.
    aspect : c, rows over columns.
    signal, noise : variances.

    Attributes
    ----------
    intervals, exponents, residues : the support and the kind of its edges, as `EdgeAdaptedDensity` takes them.
    worst_error, margin : largest estimated relative error of a solution and smallest -Im G/|G| met so far.
    """

    precision = np.longdouble

    def __init__(self, inner: tuple[Fraction, ...], aspect: Fraction, signal: Fraction, noise: Fraction) -> None:
        self.algebra = algebra = ChainAlgebra(inner, aspect, signal, noise)
        self.aspect = aspect
        self.c, self.share, self.rest = float(algebra.c), float(algebra.share), float(algebra.rest)
        self.weights = [float(w) for w in algebra.weights]
        self.factors = [poly.to_floats(p) for p in algebra.factors]
        self._top, self._bottom = poly.to_floats(algebra.top), poly.to_floats(algebra.bottom)
        self.worst_error, self.margin = 0.0, 1.0

        scaled = poly.scaled(algebra.values, algebra.scale)
        ends = [float(v) for v in scaled]
        self.residues = [float(v - end) for v, end in zip(scaled, ends, strict=True)]
        self.intervals = list(zip(ends[::2], ends[1::2], strict=True))
        self.exponents = [(-1 if aspect == 1 and i == 0 else 1, 1) for i in range(len(self.intervals))]
        edges = edge_list(self.intervals, self.exponents)
        self._exponents = np.array([e.exponent for e in edges])

        self.expansions = ChainExpansions(algebra)
        self._centres = self.expansions.centres.astype(np.float64)
        # edges and widths in units of the mean, to extended precision and to double
        self.fine_scale = poly.to_extended([algebra.scale])[0]
        self._fine_widths = poly.to_extended([e.sign * e.width / algebra.scale for e in edges])
        self.locations = self.expansions.locations.astype(np.float64)
        self.widths = self._fine_widths.astype(np.float64)

    # -- the sheet ----------------------------------------------------------------------------------

    def excess(self, t: ComplexArray) -> ComplexArray:
        """y = zG - 1 at t."""
        return self.share * t + self.rest * self.ratio(t)

    def ratio(self, t: ComplexArray) -> ComplexArray:
        """t/P(t) = (1+y)(1+cy)/z."""
        chain = np.ones_like(t)
        for w in self.weights:
            chain = chain * (1 + w * t)
        return t / chain

    def physical(self, t: ComplexArray) -> np.ndarray:
        """Whether t, a solution for a z in the upper half-plane or inside the support, is the physical one."""
        with np.errstate(divide="ignore", invalid="ignore"):  # a root at a pole of the curve fails the test
            factors = (1 + w * t for w in (*self.weights, self.share, self.c * self.share))
            return on_sheet(t, factors, self.excess(t))

    def all_roots(self, z: ComplexArray) -> ComplexArray:
        """All solutions of z(t) = z, shape (m, degree); those at infinity, or nearly so, are given as inf."""
        coefficients = np.tile(self._top.astype(np.complex128), (len(z), 1))
        coefficients[:, : len(self._bottom)] -= z[:, None] * self._bottom
        return inverse_companion_roots(coefficients)

    # -- density ------------------------------------------------------------------------------------

    def solve(self, edge: np.ndarray, xi: Any, start: ComplexArray | None) -> tuple[Array, ComplexArray]:
        """Node solver of `EdgeAdaptedDensity`; the state is the one number t."""
        x = (self.expansions.locations[edge] + self._fine_widths[edge] * xi**2).astype(np.float64)
        first = self._companion_start(edge, xi) if start is None else start[:, 0]
        t, y, fine = self._newton(edge, xi, first)
        for retry in (self._companion_start, self._march):
            lost = np.flatnonzero(~fine)
            if lost.size == 0:
                break
            t[lost], y[lost], fine[lost] = self._newton(edge[lost], xi[lost], retry(edge[lost], xi[lost]))
        if not fine.all():
            where = float(x[~fine][0])
            raise CertificationError(f"no certified solution at x = {where!r} times the mean: {EXTREME}")
        self.margin = min(self.margin, float(np.min(-y.imag / np.abs(1 + y))))
        density = -y.imag / (np.pi * x) / float(self.algebra.scale)
        return density / xi.astype(np.float64) ** self._exponents[edge], t[:, None]

    def parameter(self, edge: int, xi: Any) -> complex:
        """The physical t at z_e + width xi^2, inside the support, to double precision."""
        edges, point = np.array([edge]), np.array([xi], dtype=np.longdouble)
        for start in (self._companion_start, self._march):
            t, _, fine = self._newton(edges, point, start(edges, point))
            if fine[0]:
                return complex(t[0])
        raise CertificationError(f"no certified solution at xi = {float(xi)!r} from edge {edge}: {EXTREME}")

    def _companion_start(self, edge: np.ndarray, xi: Any) -> ComplexArray:
        """Approximate solutions from the companion matrix; not certified."""
        z = (self.locations[edge] + self.widths[edge] * xi**2).astype(np.complex128)
        roots = self.all_roots(z)
        usable = np.isfinite(roots)
        safe = np.where(usable, roots, -1j)
        # rounding may lift a real double root off the axis by a hair: of those that pass, take the one deepest inside
        depth = np.where(usable & self.physical(safe), -np.angle(safe) * (np.pi + np.angle(safe)), -1.0)
        chosen: ComplexArray = np.take_along_axis(safe, np.argmax(depth, axis=1)[:, None], axis=1)[:, 0]
        return chosen

    def _march(self, edge: np.ndarray, xi: Any) -> ComplexArray:
        """Continuation along the support from the edge itself, where the solution is explicit, to each point."""
        result = np.full(edge.shape, -1j)
        bottoms, quotients = self.expansions.bottoms, self.expansions.quotients
        for number in np.unique(edge):
            here = np.array([number])
            length = abs(self._centres[number])
            eta = -np.sqrt(complex(self.widths[number] * bottoms[number, 0] / quotients[number, 0]))
            eta = eta if eta.imag < 0 else -eta
            at, step = 0.0, 1e-9
            for k in [k for k in np.argsort(xi) if edge[k] == number]:
                target = float(xi[k])
                while at < target:
                    following = min(target, at + step)
                    start = self._centres[number] + length * following * eta
                    point = np.array([following], dtype=np.longdouble)
                    t, _, fine = self._newton(here, point, np.array([start]))
                    new = (t[0] - self._centres[number]) / (length * following)
                    if fine[0] and abs(new - eta) < 0.2 * abs(eta):
                        at, eta = following, new
                        step *= 2
                    else:
                        step /= 4
                        if step < 1e-13 * max(at, 1e-9):
                            return result
                result[k] = self._centres[number] + length * at * eta
        return result

    def _newton(self, edge: np.ndarray, xi: Any, start: ComplexArray) -> tuple[ComplexArray, ComplexArray, np.ndarray]:
        """Newton for z(t) = z_e + width xi^2 in eta = (t - t_e)/(|t_e| xi), regular also at the edge itself.

        In double precision until it stands, then one step in extended precision, or in multiprecision where the
        rounding of that would show. Returns t, y and whether each point converged onto the physical sheet.
        """
        quotient, bottom = self.expansions.quotients[edge].T, self.expansions.bottoms[edge].T
        centre, width, coarse = self._centres[edge], self.widths[edge], xi.astype(np.float64)
        eta = (start - centre) / (np.abs(centre) * coarse)
        step = np.full(eta.shape, np.inf)
        finished = np.zeros(eta.shape, dtype=bool)
        for _ in range(40):
            delta = coarse * eta
            q, dq = poly.horner_with_derivative(quotient, delta)
            b, db = poly.horner_with_derivative(bottom, delta)
            with np.errstate(all="ignore"):  # a point that runs away is caught by the test of `finished`
                change = (eta**2 * q - width * b) / (2 * eta * q + coarse * (eta**2 * dq - width * db))
                eta = np.where(finished, eta, eta - change)
                new_step = np.where(finished, step, np.abs(change) / np.abs(eta.imag))
            # the step to come squares what is left
            finished |= new_step < 1e-9
            step = new_step
            if finished.all():
                break
        fine = finished & np.isfinite(eta)
        offset = self._fine_widths[edge] * xi**2
        found = self.expansions.refine(edge, offset, xi * np.where(fine, eta, -1j), steps=1, trust=1e-7)
        fine &= found.physical
        with np.errstate(divide="ignore", invalid="ignore"):
            doubtful = found.error > _DOUBT * np.abs(found.y.imag)
        self.expansions.exactly(found, np.flatnonzero(fine & doubtful), offset)
        if fine.any():
            left = found.step[fine] ** 2 + found.error[fine] / np.abs(found.y.imag[fine])
            self.worst_error = max(self.worst_error, float(left.max()))
        return np.where(fine, found.t, -1j), np.where(fine, found.y, -1j), fine
