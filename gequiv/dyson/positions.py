r"""The Dyson equation of a model whose rows see columns through a mask, position by position.

The model. Rows and columns lie at positions t, s in [0, 1] and, at each, in cells a and b of shares
:math:`\delta_a, \delta_b`. With a kernel :math:`M(t, s) \ge 0` and independent standard Gaussian
:math:`\Phi_\ell, \Psi_\ell, Z`,

.. math::
    Y_{ij} = M(t,s)\Bigl[\sum_\ell x_\ell(t,a)\,y_\ell(b)\,\frac{(\Phi_\ell M_\ell\Psi_\ell^T)_{ij}}{\sqrt{D_\ell n}}
        + \frac{\sqrt{\nu(t,a)}\,\sigma(a,b)}{\sqrt n} Z_{ij}\Bigr],

the cores of `gequiv.dyson.profile` being :math:`M(t,s)x(t,a)y(b)`: of rank one in the cells. What the equation needs of
the kernel is the map from :math:`v(s) = \sum_b y_b^2\delta_b h` and :math:`r(t) = \sum_a x_a^2\delta_a g/\lambda` to

.. math::
    S(t) = \Bigl[m^2 P(1 - m^2 rP)^{-1}\Bigr](t,t), \qquad T(s) = \Bigl[M^T r(1 - m^2 Pr)^{-1}M\Bigr](s,s), \qquad
    P = M v M^T,

and the smoothing of the noise by :math:`M^2`. Two kernels are served:

- `CausalKernel`, :math:`M = e^{-\kappa(t-s)}1[s \le t]`. Then S and T come from two Riccati equations,

  .. math:: f' = m^2 v + r f^2 - 2\kappa f, \quad -e' = r + m^2 v e^2 - 2\kappa e, \quad S = \frac{f}{1-fe}, \quad
      T = \frac{e}{1-fe},

  with f(0) = e(1) = 0: forward the variance of a running sum, backward the information about it (Kalman's filter and
  smoother). With f = Y/X they are linear, :math:`X' = \kappa X - rY`, :math:`Y' = m^2 vX - \kappa Y`, and are solved
  exactly with v and r constant in each cell: O(cells) for each z and component, of second order in their size, with
  :math:`\log\det(1 - m^2rP) = \log X(1) - \kappa`;
- `CellKernel`, any kernel by its moments over cells: S and T from inverses, with the diagonal of P from the averages of
  :math:`M^2`; where the kernel jumps, the error is of second order in the size of the cells.

The distribution function. With W the mean of :math:`\log(z - \lambda)` and c = rows/columns, up to a real constant,

.. math::
    cW = \int\!\!\sum_a\delta_a(zg - \log g)\,dt + \int\!\!\sum_b\delta_b(h - \log h)\,ds
        - \langle g\,\nu\sigma^2 M^2 h\rangle + \sum_\ell\lambda_\ell\langle\log\det(1 - m^2 rP)\rangle

is stationary at the solution, W' = G, so that :math:`F(x) = 1 - \mathrm{Im}\,W(x + i0)/\pi` has the square of the
solution's error.

Sources: Girko 2001; Hachem, Loubaton, Najim 2007; Kalman 1960; Rauch, Tung, Striebel 1965; Dykema and Haagerup 2004
(the triangular case without components).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gequiv._checks import Array, ComplexArray
from gequiv.dyson.fixed_point import FixedPoint, accelerate

_ANGLES = (1.2, 0.6, 0.3, 0.1)
_LOOSE = 1e-2
_SMALL = 1e-3  # ω below which sin ω/ω is taken from its series
_NUMBERS = 1 << 23


@dataclass(frozen=True, eq=False)
class PositionedComponent:
    """One component of rank one in the cells.

    Attributes
    ----------
    rows : x², shape (positions, row cells).
    columns : y², shape (column cells,).
    inner : λ = D/n.
    weights, shares : m² (mean one) and their shares.
    """

    rows: Array
    columns: Array
    inner: float
    weights: Array
    shares: Array


class Kernel(Protocol):
    """A mask's kernel on cells of positions."""

    rows: Array
    """Rows of each cell over the number of columns."""
    columns: Array
    """Columns of each cell over their number."""
    coordinate: Array
    """Ascending; solutions are smooth in it, and are carried from one kernel to a finer one by interpolation in it."""
    smoothing: Array
    """Averages of M² over pairs of cells, rows first: a row of cell i receives Σ_j smoothing_ij columns_j h_j."""

    def respond(self, v: ComplexArray, r: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        """S and T averaged over cells, for densities v (with m²) and r of shape (batch, cells)."""
        ...

    def log_determinant(self, v: ComplexArray, r: ComplexArray) -> ComplexArray:
        """log det(1 - rP), on the branch that vanishes with r."""
        ...


class CausalKernel:
    """M = e^{-κ(t-s)} 1[s <= t], with v and r constant in each cell.

    Parameters
    ----------
    edges : ends of the cells, ascending from 0 to 1.
    decay : κ.
    """

    def __init__(self, edges: Array, decay: float = 0.0) -> None:
        self.widths = np.diff(edges)
        self.rows = self.columns = self.widths
        middle = 0.5 * (edges[1:] + edges[:-1])
        self.coordinate = np.log(middle)
        self._decay = decay * self.widths
        rate = 2 * self._decay
        spread, own = _mean_decay(rate), _own_decay(rate)
        gone = np.maximum(0.0, edges[:-1, None] - edges[None, 1:])  # from the end of column cell j to row cell i
        self.averages = np.tril(
            np.exp(-decay * gone) * _mean_decay(self._decay)[:, None] * _mean_decay(self._decay), -1
        )
        self.averages += np.diag(_own_decay(self._decay))
        self.smoothing = np.tril(np.exp(-2 * decay * gone) * spread[:, None] * spread, -1) + np.diag(own)

    def respond(self, v: ComplexArray, r: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        """S and T; see `_cross`."""
        s, t, _, _ = self._cross(v, r)
        return s, t

    def log_determinant(self, v: ComplexArray, r: ComplexArray) -> ComplexArray:
        """log X(1), up to the real κ."""
        _, _, grown, omega = self._cross(v, r)
        return np.asarray((np.log(grown) - 1j * omega).sum(axis=0))

    def _cross(self, v: ComplexArray, r: ComplexArray) -> tuple[ComplexArray, ...]:
        """Both Riccati equations solved exactly for constant v and r, cell by cell.

        Returns S, T, and for each cell the growth of X times e^{iω}, and ω.

        With :math:`\\omega^2 = VR - \\kappa^2` over a cell, (X, Y) is multiplied by
        :math:`\\cos\\omega + \\omega^{-1}\\sin\\omega\\,A`, A = ((κ, -R), (V, -κ)). S and T are derivatives of
        log X(1) in the R and V of the cell, divided by -1.
        """
        big_v, big_r = (v * self.widths).T, (r * self.widths).T
        decay = self._decay[:, None]
        square = big_v * big_r - decay**2
        omega = np.sqrt(square)
        omega = np.where(omega.imag < 0, -omega, omega)
        # everything times e^{iω}, so that nothing overflows
        turn = np.exp(1j * omega)
        cosine = (1 + turn**2) / 2
        small = np.abs(omega) < _SMALL
        safe = np.where(small, 1.0, omega)
        sine = np.where(small, (1 - square / 6) * turn, (turn**2 - 1) / (2j * safe))  # sin ω/ω
        sine_slope = np.where(small, (square / 60 - 1 / 6) * turn, (cosine - sine) / (2 * safe**2))  # in ω²
        cosine_slope = -sine / 2
        first, second = cosine + decay * sine, cosine - decay * sine
        up, down = sine * big_v, sine * big_r
        f, e, grown = np.empty_like(big_v), np.empty_like(big_v), np.empty_like(big_v)
        now = np.zeros(v.shape[0], dtype=np.complex128)
        for i in range(self.widths.size):
            f[i] = now
            grown[i] = first[i] - now * down[i]
            now = (up[i] + now * second[i]) / grown[i]
        now = np.zeros(v.shape[0], dtype=np.complex128)
        for i in range(self.widths.size - 1, -1, -1):
            e[i] = now
            now = (down[i] + now * second[i]) / (first[i] - now * up[i])
        both = e * f
        total = first - f * down - e * up - both * second
        inner = (cosine_slope + decay * sine_slope) - both * (cosine_slope - decay * sine_slope)
        inner -= sine_slope * (f * big_r + e * big_v)
        s = (f * sine - inner * big_v) / total
        t = (e * sine - inner * big_r) / total
        return s.T, t.T, grown, omega


class CellKernel:
    """Any kernel, by its moments over pairs of cells.

    v and r are constant in a cell; the kernel is projected on polynomials of some degree in each, of mean square one.

    Parameters
    ----------
    rows, columns : rows of each cell over the number of columns, and columns over their number.
    first : averages of φ_a M φ_b, shape (degrees, degrees, row cells, column cells), as many row as column cells.
    second : averages of M², shape (row cells, column cells).
    """

    def __init__(self, rows: Array, columns: Array, first: Array, second: Array) -> None:
        self.rows, self.columns = rows, columns
        self.coordinate = (np.cumsum(columns) - 0.5 * columns) / columns.sum()
        self.averages, self.smoothing = first[0, 0], second
        degrees, cells = first.shape[0], rows.size
        self._degrees = degrees
        self._first = first.transpose(0, 2, 1, 3).reshape(degrees * cells, degrees * cells)
        self._excess = second - (first**2).sum(axis=(0, 1))

    def _batches(self, v: ComplexArray, r: ComplexArray) -> Iterator[tuple[slice, ComplexArray, ComplexArray]]:
        """Parts of the batch, with v and r as masses of the cells."""
        step = max(1, _NUMBERS // self._first.shape[0] ** 2)
        for begin in range(0, len(v), step):
            part = slice(begin, begin + step)
            yield part, v[part] * self.columns, r[part] * self.rows

    def _products(self, v: ComplexArray, r: ComplexArray) -> tuple[ComplexArray, ComplexArray, ComplexArray]:
        """P, PR and the diagonal of R, for masses v and r."""
        degrees = self._degrees
        p = (self._first * np.tile(v, degrees)[:, None, :]) @ self._first.T
        right = np.tile(r, degrees)
        return p, p * right[:, None, :], right

    def respond(self, v: ComplexArray, r: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        """By inverses. The first term of each series has the average of M² in it, not that of the projection."""
        s, t = np.empty_like(v), np.empty_like(v)
        shape = -1, self._degrees, self.rows.size
        for part, mass_v, mass_r in self._batches(v, r):
            p, pr, right = self._products(mass_v, mass_r)
            inverse = np.linalg.inv(np.eye(len(self._first)) - pr)
            s[part] = np.einsum("zij,zji->zi", inverse, p).reshape(shape).sum(axis=1) + mass_v @ self._excess.T
            seen = (self._first.T * right[:, None, :]) @ inverse
            t[part] = np.einsum("zij,ji->zi", seen, self._first).reshape(shape).sum(axis=1) + mass_r @ self._excess
        return s, t

    def log_determinant(self, v: ComplexArray, r: ComplexArray) -> ComplexArray:
        """log det(1 - rP), on the branch that vanishes with r."""
        logs = np.empty(len(v), dtype=np.complex128)
        for part, mass_v, mass_r in self._batches(v, r):
            eigenvalues = np.linalg.eigvals(self._products(mass_v, mass_r)[1])
            logs[part] = np.log(1 - eigenvalues).sum(axis=1)
            logs[part] -= np.einsum("zi,ij,zj->z", mass_r, self._excess, mass_v)
        return logs


def _mean_decay(rate: Array) -> Array:
    """Mean of e^{-rate u} over u in [0, 1]."""
    safe = np.where(rate > 0, rate, 1.0)
    return np.asarray(np.where(rate > 0, -np.expm1(-safe) / safe, 1.0))


def _own_decay(rate: Array) -> Array:
    """∫∫ e^{-rate (t-s)} over 0 < s < t < 1."""
    safe = np.where(rate > _SMALL, rate, 1.0)
    return np.asarray(np.where(rate > _SMALL, (1 - _mean_decay(safe)) / safe, 0.5 - rate / 6 + rate**2 / 24))


class PositionedEquation:
    """The equation; see the module's text. Unknowns are 1/g (positions × row cells)
    and 1/h (positions × column cells), in the upper half-plane.

    Parameters
    ----------
    kernel : `CausalKernel` or `CellKernel`.
    rows, columns : shares δ_a and δ_b of the cells at each position, of sum one.
    components : `PositionedComponent` objects; may be empty.
    noise : σ²(a,b), shape (row cells, column cells).
    noise_rows : ν(t,a), shape (positions, row cells).

    Attributes
    ----------
    scale : mean of the law.
    """

    def __init__(
        self,
        kernel: Kernel,
        rows: Array,
        columns: Array,
        components: list[PositionedComponent],
        noise: Array,
        noise_rows: Array,
    ) -> None:
        self.kernel = kernel
        self.components = components
        self.noise, self.noise_rows = noise, noise_rows
        self.row_shares, self.column_shares = rows, columns
        self.row_widths = kernel.rows[:, None] * rows
        self.column_widths = kernel.columns[:, None] * columns
        self.aspect = float(kernel.rows.sum())
        self._shape = kernel.rows.size, rows.size, columns.size
        self._cut = kernel.rows.size * rows.size
        smoothed = kernel.smoothing @ self.column_widths
        total = np.sum(self.row_widths * self.noise_rows * (smoothed @ noise.T))
        for part in components:
            total += np.sum(self.row_widths * part.rows * (smoothed @ part.columns)[:, None])
        self.scale = float(total) / self.aspect

    # -- unknowns -----------------------------------------------------------------------------------

    def split(self, unknowns: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        """The part of the rows and that of the columns, shapes (points, positions, cells)."""
        positions, rows, columns = self._shape
        return (
            unknowns[:, : self._cut].reshape(-1, positions, rows),
            unknowns[:, self._cut :].reshape(-1, positions, columns),
        )

    def start(self, z: ComplexArray) -> ComplexArray:
        """A rough solution, by its behaviour at 0 and at infinity."""
        root = np.sqrt(z / self.scale)
        inverse_g, inverse_h = root * (1 + root) * self.scale, (1 + root) / root
        positions, rows, columns = self._shape
        parts = [
            np.repeat(inverse_g[:, None], positions * rows, 1),
            np.repeat(inverse_h[:, None], positions * columns, 1),
        ]
        rough = np.concatenate(parts, axis=1)
        # 1/h has its imaginary part below the axis there: reflected, as a start only
        return np.asarray(rough.real + 1j * np.maximum(np.abs(rough.imag), 1e-3 * np.abs(rough)))

    # -- the equation -------------------------------------------------------------------------------

    def step(self, z: ComplexArray, unknowns: ComplexArray) -> ComplexArray:
        """Ψ: 1/g and 1/h by the right-hand sides of the equations."""
        g, h = self.split(1 / unknowns)
        weighted_g, weighted_h = g * self.row_widths, h * self.column_widths
        smoothing = self.kernel.smoothing
        row_sums = self.noise_rows * (_along(smoothing, weighted_h) @ self.noise.T)
        column_sums = _along(smoothing.T, weighted_g * self.noise_rows) @ self.noise
        if self.components:
            s, t = self.kernel.respond(*self._densities(g, h))
            for part, chosen in self._blocks(len(g)):
                shape = part.weights.size, len(g), -1
                averaged = np.einsum("k,kzi->zi", part.shares, s[chosen].reshape(shape))
                row_sums = row_sums + averaged[:, :, None] * part.rows
                averaged = np.einsum("k,kzi->zi", part.shares * part.weights, t[chosen].reshape(shape))
                column_sums = column_sums + part.inner * averaged[:, :, None] * part.columns
        rows, columns = z[:, None, None] - row_sums, 1 - column_sums
        return np.concatenate([rows.reshape(len(z), -1), columns.reshape(len(z), -1)], axis=1)

    def _densities(self, g: ComplexArray, h: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        """m²v and r of every weight of every component, one after the other."""
        positions = self._shape[0]
        stack_v, stack_r = [], []
        for part in self.components:
            v = (h * self.column_shares) @ part.columns
            r = np.einsum("zia,ia->zi", g, self.row_shares * part.rows) / part.inner
            stack_v.append((part.weights[:, None, None] * v).reshape(-1, positions))
            stack_r.append(np.repeat(r[None], part.weights.size, axis=0).reshape(-1, positions))
        return np.concatenate(stack_v), np.concatenate(stack_r)

    def _blocks(self, points: int) -> list[tuple[PositionedComponent, slice]]:
        """Each component and its rows in the stack of `_densities`."""
        ends = np.cumsum([0] + [part.weights.size * points for part in self.components])
        return [(part, slice(a, b)) for part, a, b in zip(self.components, ends[:-1], ends[1:], strict=True)]

    def solve(self, z: ComplexArray, start: ComplexArray | None, *, tolerance: float, most: int = 300) -> FixedPoint:
        """Solutions at z with Im z > 0 (next to the axis for boundary values), from unknowns nearby or from nothing.

        From nothing: at the moduli of z and falling angles, each from the one before.
        """
        if start is None:
            start = self.start(np.abs(z) * np.exp(1j * np.maximum(_ANGLES[0], np.angle(z))))
            for k, angle in enumerate(_ANGLES):
                turned = np.abs(z) * np.exp(1j * np.maximum(angle, np.angle(z)))
                start = self._iterate(turned, start, _LOOSE, most, 10 if k == 0 else 0).unknowns
        return self._iterate(z, start, tolerance, most, 0)

    def _iterate(self, z: ComplexArray, start: ComplexArray, tolerance: float, most: int, plain: int) -> FixedPoint:
        return accelerate(
            lambda active, unknowns: self.step(z[active], unknowns), start, tolerance=tolerance, most=most, plain=plain
        )

    def carry(self, other: PositionedEquation, unknowns: ComplexArray) -> ComplexArray:
        """Solutions of an equation with other cells, their logarithms interpolated to these."""
        target, source = self.kernel.coordinate, other.kernel.coordinate
        weights = np.stack([np.interp(target, source, row) for row in np.eye(source.size)], axis=1)
        g, h = (np.exp(weights @ part) for part in other.split(np.log(unknowns)))
        return np.concatenate([g.reshape(len(unknowns), -1), h.reshape(len(unknowns), -1)], axis=1)

    # -- what follows -------------------------------------------------------------------------------

    def resolvents(self, unknowns: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        """g and h, shapes (points, positions, cells)."""
        return self.split(1 / unknowns)

    def resolvent(self, unknowns: ComplexArray) -> ComplexArray:
        """G, the mean of g over the rows."""
        value: ComplexArray = np.einsum("zia,ia->z", self.resolvents(unknowns)[0], self.row_widths)
        return value / self.aspect

    def distribution(self, z: ComplexArray, unknowns: ComplexArray) -> Array:
        """F at z next to the real axis, from the stationary functional."""
        g, h = self.resolvents(unknowns)
        log_g, log_h = self.split(-np.log(unknowns))
        total = np.einsum("zia,ia->z", z[:, None, None] * g - log_g, self.row_widths)
        total += np.einsum("zib,ib->z", h - log_h, self.column_widths)
        received = _along(self.kernel.smoothing, h * self.column_widths) @ self.noise.T
        total -= np.einsum("zia,zia->z", g * self.row_widths * self.noise_rows, received)
        if self.components:
            logs = self.kernel.log_determinant(*self._densities(g, h))
            for part, chosen in self._blocks(len(z)):
                total += part.inner * (part.shares @ logs[chosen].reshape(part.weights.size, -1))
        return np.asarray(1 - total.imag / (np.pi * self.aspect))


def _along(matrix: Array, values: ComplexArray) -> ComplexArray:
    """matrix_ij values_zjb as one product of matrices; many small ones would set BLAS threads against each other."""
    points, positions, cells = values.shape
    flat = np.ascontiguousarray(values.transpose(1, 0, 2)).reshape(positions, -1)
    parts = matrix @ flat.view(np.float64)
    return np.ascontiguousarray(parts).view(np.complex128).reshape(-1, points, cells).transpose(1, 0, 2)
