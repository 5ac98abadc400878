r"""The Dyson equation of a sum of Gaussian products with a profile, plus Gaussian noise with a variance profile.

The model. Rows lie in cells p of weight :math:`\delta_p` and columns in cells q of weight :math:`\delta_q`, both
relative to the number n of columns (:math:`\sum_q \delta_q = 1`, :math:`\sum_p \delta_p` = rows/columns). With
independent standard Gaussian :math:`\Phi_\ell, \Psi_\ell, Z` and diagonal :math:`M_\ell` on an inner space of dimension
:math:`D_\ell = \lambda_\ell n`, the mean of :math:`m_a^2` being one,

.. math::
    Y_{ij} = \sum_\ell C_\ell(p,q)\,\frac{(\Phi_\ell M_\ell \Psi_\ell^T)_{ij}}{\sqrt{D_\ell\,n}}
        + \frac{\sigma(p,q)}{\sqrt n} Z_{ij}, \qquad i \in p,\ j \in q .

The equation. Let :math:`g_p(z)` be the mean over the rows of p of the diagonal of :math:`(z - YY^T)^{-1}`, and
:math:`h_q(z)` that of :math:`z(z - Y^TY)^{-1}` over the columns of q. With
:math:`R = \mathrm{diag}(\delta_p g_p)/\lambda_\ell`, :math:`P = C_\ell\,\mathrm{diag}(\delta_q h_q)\,C_\ell^T`,
:math:`S_a = m_a^2 P(1 - m_a^2 RP)^{-1}`, :math:`B_a = (1 - m_a^2 PR)^{-1}C_\ell`, and :math:`\langle\cdot\rangle_a` the
mean over the inner space,

.. math::
    g_p &= 1/\bigl(z - \textstyle\sum_q \sigma^2(p,q)\delta_q h_q - \sum_\ell \langle [S_a]_{pp}\rangle_a\bigr), \\
    h_q &= 1/\bigl(1 - \textstyle\sum_p \sigma^2(p,q)\delta_p g_p
        - \sum_\ell \lambda_\ell\langle m_a^2 [C_\ell^T R B_a]_{qq}\rangle_a\bigr),
    \qquad G(z) = \frac{\sum_p \delta_p g_p}{\sum_p \delta_p} .

It is the equation of the symmetrised resolvent, for :math:`g = \tilde g/\zeta`, :math:`h = \zeta\tilde h` with
:math:`\zeta = \sqrt z`; only z enters.

Newton's method. The derivative is made of entrywise squares of matrices that the equation needs anyway:
:math:`\partial [S_a]_{pp}/\partial R_{p'} = [S_a]_{pp'}^2`,
:math:`\partial [S_a]_{pp}/\partial(\delta_q h_q) = m_a^2 [B_a]_{pq}^2`, and likewise for columns. In logarithms the
Jacobian is :math:`\mathrm{diag}(E) - \mathrm{diag}(g,h)\,W\,\mathrm{diag}(\delta_p g_p, \delta_q h_q)`, W symmetric.

The sheet. For Im z > 0 the right-hand sides map :math:`(\mathbb C^-)` into itself, so there is one solution with all
:math:`g_p, h_q` in the lower half-plane (Earle and Hamilton), and it is the resolvent. On the real axis: inside the
support all lie strictly below; off it they are real, with negative derivatives.

Sources: Girko 2001; Hachem, Loubaton, Najim 2007 (variance profiles); Ajanki, Erdős, Krüger 2017 (Dyson equation);
Earle and Hamilton 1970 (uniqueness).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gequiv import _checks
from gequiv._checks import Array, ComplexArray
from gequiv.dyson.continuation import RESIDUAL, STEP, STRICT, Continuation, Status
from gequiv.errors import ParameterError
from gequiv.laws._batched import solve_each

_FAR = 1e6  # from here on the solution next to the asymptotic one is the only one there
_RANK = 1e-14  # singular values of a core below it, relative to the largest, are rounding
_NUMBERS = 1 << 20  # entries of the batched matrices worked on at once


@dataclass(frozen=True, eq=False)
class Component:
    r"""One Gaussian product :math:`C(p,q)\,(\Phi M \Psi^T)_{ij}/\sqrt{D n}` of the model.

    Parameters
    ----------
    core : C, real, shape (row cells, column cells).
    inner : D/n, inner dimension over number of columns, above 0.
    weights : :math:`m_a^2`, at least 0 and not all 0; normalised to mean one. None for an isotropic inner space.
    shares : share of the inner dimension that each weight has; normalised to sum one. None for equal shares.

    Raises
    ------
    ParameterError : a parameter is of the wrong kind, shape or range.
    """

    core: Array
    inner: float
    weights: Array | None = None
    shares: Array | None = None

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        put("core", _finite("core", self.core, 2))
        put("inner", _checks.positive_real("inner", self.inner))
        if self.weights is None:
            if self.shares is not None:
                raise ParameterError("shares need weights: an isotropic inner space has none")
            weights, shares = np.ones(1), np.ones(1)
        else:
            weights = _finite("weights", self.weights, 1)
            shares = np.ones(weights.size) if self.shares is None else _finite("shares", self.shares, 1)
            if shares.shape != weights.shape:
                raise ParameterError(f"shares must be one for each of the {weights.size} weights; got {shares.size}")
            for name, values in (("weights", weights), ("shares", shares)):
                if (values < 0).any() or not (values > 0).any():
                    raise ParameterError(f"{name} must be at least 0, one of them above 0; got {values.tolist()!r}")
            shares = shares / shares.sum()
            if not shares @ weights > 0:
                raise ParameterError("weights must not vanish wherever their shares are positive")
            weights = weights / (shares @ weights)
            keep = (weights > 0) & (shares > 0)
            weights, shares = weights[keep], shares[keep]
        put("weights", weights)
        put("shares", shares)

    @property
    def measure(self) -> tuple[Array, Array]:
        """Weights that are not zero, of mean one, and their shares."""
        assert self.weights is not None
        assert self.shares is not None
        return self.weights, self.shares


@dataclass(frozen=True, eq=False)
class ProfileSolution:
    """Solution of the profiled Dyson equation at an array of points; arrays have the shape of z, then cells.

    Attributes
    ----------
    z : where.
    value : Cauchy transform G(z) of the eigenvalues of Y Yᵀ; NaN where the status is FAILED.
    status : `Status` of each point, as an integer array.
    residual : largest relative residual of the equations.
    step : last relative Newton step in the unknowns.
    half_plane : smallest sine of the angle by which a cell's g or h lies below the real axis; 0 where they are real.
        Cells in which noise and components vanish do not count: there g = 1/z and h = 1.
    iterations : Newton iterations spent, all heights together.
    rows, columns : g of every row cell, h of every column cell.
    """

    z: ComplexArray
    value: ComplexArray
    status: np.ndarray
    residual: Array
    step: Array
    half_plane: Array
    iterations: np.ndarray
    rows: ComplexArray
    columns: ComplexArray


class ProfileEquation(Continuation):
    """The profiled Dyson equation; see the module's text.

    Parameters
    ----------
    rows : weights δ_p of the row cells, above 0: rows of the cell over the number of columns n.
    columns : weights δ_q of the column cells, above 0, of sum one.
    components : `Component` objects; may be empty.
    noise : σ²(p,q), shape (row cells, column cells), at least 0; a number stands for a constant profile.

    Attributes
    ----------
    scale : mean of the law: Σ δ_p δ_q (σ² + Σ_l C_l²)/Σ δ_p.
    atom : weight of the atom at 0 where there are more rows than columns.

    Raises
    ------
    ParameterError : a parameter is of the wrong kind, shape or range; or the model is zero.
    """

    def __init__(self, rows: Any, columns: Any, components: Sequence[Component], noise: Any) -> None:
        self.rows, self.columns = _positive("rows", rows), _positive("columns", columns)
        total = self.columns.sum()
        if abs(total - 1) > 1e-9:
            raise ParameterError(f"columns must sum to one (they are shares of the columns); got a sum of {total!r}")
        shape = (self.rows.size, self.columns.size)
        components = _list_of_components(components)
        for k, component in enumerate(components):
            if component.core.shape != shape:
                raise ParameterError(f"components[{k}].core must have shape {shape}; got {component.core.shape}")
        profile = _checks.real_array("noise", noise)
        if profile.shape not in ((), shape) or not np.isfinite(profile).all() or (profile < 0).any():
            raise ParameterError(f"noise must be finite variances of at least 0, one or of shape {shape}")
        profile = np.broadcast_to(profile, shape)
        with np.errstate(over="ignore"):
            variances = profile + sum((c.core**2 for c in components), np.zeros(shape))
            self.scale = float(self.rows @ variances @ self.columns / self.rows.sum())
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ParameterError("noise and components must not all be zero, and their variances finite")
        alive = variances > 0
        # where everything vanishes g = 1/z and h = 1, whatever the others are
        self._alive = np.concatenate([alive.any(axis=1), alive.any(axis=0)])
        self.components = tuple(components)
        self.noise = profile / self.scale
        self._factors = [_Factors(c, c.core / math.sqrt(self.scale)) for c in components]
        self.width = sum(shape)
        self.aspect = float(self.rows.sum())
        self.atom = max(0.0, 1 - 1 / self.aspect) if abs(self.aspect - 1) > 1e-12 else 0.0
        self._cells = np.concatenate([self.rows, self.columns])
        self.upper_bound = self._upper_bound()

    def __repr__(self) -> str:
        inner = ", ".join(f"{c.inner:.4g}" for c in self.components)
        return (
            f"{type(self).__name__}({self.rows.size} × {self.columns.size} cells, inner=[{inner}], "
            f"aspect={self.aspect:g}, scale={self.scale:g})"
        )

    def _upper_bound(self) -> float:
        """Square of a sum of norms of cell matrices whose entries bound the norms of the blocks."""
        p, q = np.sqrt(self.rows)[:, None], np.sqrt(self.columns)[None, :]
        total = float(np.linalg.norm(np.sqrt(self.noise) * (p + q), 2))
        for component in self.components:
            inner = math.sqrt(component.inner)
            blocks = np.abs(component.core) / math.sqrt(self.scale) * (p + inner) * (inner + q) / inner
            total += float(np.linalg.norm(blocks, 2)) * math.sqrt(float(component.measure[0].max()))
        return total**2

    # -- solving ------------------------------------------------------------------------------------

    def solve(self, z: Any, start: Any = None, *, on_failure: str = "raise") -> ProfileSolution:
        """The certified solution at points of the closed upper half-plane, z = 0 and infinity excepted.

        Newton's method from the start where there is one, else by continuation from large Im z down to the point. On
        the real axis the boundary value from above is meant.

        Parameters
        ----------
        z : complex numbers with Im z >= 0, any shape.
        start : a `ProfileSolution` at points nearby, of the same shape; it costs time if it is wrong, not correctness.
        on_failure : "raise", or "status" to get NaN and `Status.FAILED` instead.

        Raises
        ------
        ParameterError : z contains NaN, 0, infinity or a point of the lower half-plane; start has another shape.
        CertificationError : a point could not be certified, as happens next to an edge of the support.
        """
        points = self._points(z, on_failure)
        unknowns = None
        if start is not None:
            if not isinstance(start, ProfileSolution) or start.z.shape != points.shape:
                raise ParameterError(f"start must be a ProfileSolution at points of shape {points.shape}")
            unknowns = np.concatenate([start.rows * self.scale, start.columns], axis=-1).reshape(points.size, -1)
            unknowns = np.where(np.isfinite(unknowns), unknowns, 1 - 1j)
        found = self._certified(points, self.scale, unknowns, on_failure)
        failed = found.status == Status.FAILED
        state = found.unknowns
        state[failed] = complex(np.nan, np.nan)
        value = self.resolvent(state) / self.scale
        value = np.where(found.status == Status.OUTSIDE, value.real, value)
        depth = self.margin(found.z, state)
        depth[found.status == Status.OUTSIDE] = 0.0
        shape, cut = points.shape, self.rows.size
        return ProfileSolution(
            points,
            value.reshape(shape),
            found.status.reshape(shape),
            found.residual.reshape(shape),
            found.step.reshape(shape),
            depth.reshape(shape),
            found.iterations.reshape(shape),
            (state[:, :cut] / self.scale).reshape(*shape, cut),
            state[:, cut:].reshape(*shape, self.width - cut),
        )

    def resolvent(self, state: ComplexArray) -> ComplexArray:
        """G in units of the mean."""
        value: ComplexArray = state[:, : self.rows.size] @ self.rows / self.aspect
        return value

    def margin(self, z: ComplexArray, state: ComplexArray) -> Array:
        """Smallest sine of the angle by which an unknown lies below the real axis; positive on the physical sheet."""
        del z
        return np.asarray(self._sines(state).min(axis=1))

    def _sines(self, state: ComplexArray) -> Array:
        alive = state[:, self._alive]
        return np.asarray(-alive.imag / np.abs(alive), dtype=np.float64)

    # -- the equations ------------------------------------------------------------------------------

    def _asymptotic(self, z: ComplexArray) -> ComplexArray:
        state = np.ones((z.size, self.width), dtype=np.complex128)
        state[:, : self.rows.size] = 1 / z[:, None]
        return state

    def _terms(self, state: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        """Σ σ²δh + <S> and Σ σ²δg + λ<..>, side by side, and the symmetric matrix W of the Jacobian."""
        cut = self.rows.size
        weighted = state * self._cells
        g, h = weighted[:, :cut], weighted[:, cut:]
        sums = np.concatenate([h @ self.noise.T, g @ self.noise], axis=1)
        w = np.zeros((len(state), self.width, self.width), dtype=np.complex128)
        w[:, :cut, cut:] = self.noise
        for factors in self._factors:
            rows, columns, cross = factors.add(g, h, sums)
            w[:, :cut, :cut] += rows
            w[:, cut:, cut:] += columns
            w[:, :cut, cut:] += cross
        w[:, cut:, :cut] = w[:, :cut, cut:].transpose(0, 2, 1)
        return sums, w

    def _linearise(self, z: ComplexArray, state: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        """E = unknown × (z or 1, less the sums), which is one at the solution, and the Jacobian in logarithms."""
        sums, w = self._terms(state)
        equal = state * (self._left(z) - sums)
        jacobian = -state[:, :, None] * w * (state * self._cells)[:, None, :]
        diagonal = np.arange(self.width)
        jacobian[:, diagonal, diagonal] += equal
        return equal, jacobian

    def _left(self, z: ComplexArray) -> ComplexArray:
        left = np.ones((z.size, self.width), dtype=np.complex128)
        left[:, : self.rows.size] = z[:, None]
        return left

    def _parts(self, count: int) -> list[slice]:
        heaviest = max((f.weights.size for f in self._factors), default=1)
        size = max(1, _NUMBERS // (self.width**2 * heaviest))
        return [slice(begin, begin + size) for begin in range(0, count, size)]

    def _change(self, z: ComplexArray, state: ComplexArray) -> ComplexArray:
        return self._step(z, state)[1]

    def _step(self, z: ComplexArray, state: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        residual, change = np.empty_like(state), np.empty_like(state)
        for part in self._parts(z.size):
            equal, jacobian = self._linearise(z[part], state[part])
            residual[part] = 1 - equal
            change[part] = solve_each(jacobian, residual[part])
        return residual, change

    def _residual(self, z: ComplexArray, state: ComplexArray) -> tuple[Array, Array]:
        residual, change = self._step(z, state)
        return np.abs(residual).max(axis=1), np.abs(change).max(axis=1)

    def _tangent(self, z: ComplexArray, state: ComplexArray) -> ComplexArray:
        slope = np.empty_like(state)
        for part in self._parts(z.size):
            _, jacobian = self._linearise(z[part], state[part])
            right = np.zeros_like(state[part])
            cut = self.rows.size
            right[:, :cut] = -state[part][:, :cut] * z[part][:, None]
            slope[part] = solve_each(jacobian, right)
        return slope

    def _bordered(self, x: float, state: Array, pivot: int, *, newton: bool = False) -> Array:
        """The change of (log state, log x) at real x.

        Newton's change with log state[pivot] held, or the tangent d(log state, log x)/d log state[pivot].
        """
        z = np.array([x], dtype=np.complex128)
        equal, jacobian = self._linearise(z, state[None].astype(np.complex128))
        size = self.width
        matrix = np.zeros((size + 1, size + 1))
        matrix[:size, :size] = jacobian[0].real
        matrix[: self.rows.size, size] = state[: self.rows.size] * x
        matrix[size, pivot] = 1
        right = np.zeros(size + 1)
        if newton:
            right[:size] = 1 - equal[0].real
        else:
            right[size] = 1
        try:
            return np.asarray(np.linalg.solve(matrix, right), dtype=np.float64)
        except np.linalg.LinAlgError:
            return np.full(size + 1, np.nan)

    def _status(
        self, z: ComplexArray, state: ComplexArray, residual: Array, step: Array
    ) -> tuple[np.ndarray, ComplexArray]:
        status = np.full(z.size, int(Status.FAILED))
        solved = np.isfinite(state).all(axis=1) & (residual < RESIDUAL) & (step < STEP)
        depth = self._sines(state)
        below = solved & (depth > STRICT).all(axis=1)
        real, positive = z.imag == 0, z.real > 0
        status[below & ~real] = Status.UPPER
        status[below & real & positive] = Status.INSIDE
        close = np.flatnonzero(solved & ~below & (depth > -STRICT).all(axis=1))
        if close.size:  # too close to the real axis to tell by the sign: by the derivative
            points, on_axis = z[close], real[close]
            unknowns = np.where(on_axis[:, None], state[close].real.astype(np.complex128), state[close])
            falling = (unknowns * self._tangent(points, unknowns) / points[:, None]).real < 0
            good = (falling[:, self._alive] | (depth[close] > STRICT)).all(axis=1)
            near = (np.abs(unknowns / self._asymptotic(points) - 1) < 0.5).all(axis=1)
            good |= near & (np.abs(points) > _FAR * self.upper_bound)
            good &= ~on_axis | (np.abs(depth[close]) < STRICT).all(axis=1)
            status[close[good]] = np.where(on_axis[good], Status.OUTSIDE, Status.UPPER)
            state = state.copy()
            state[close[good]] = unknowns[good]
        return status, state


class _Factors:
    r"""A component with its core factored, :math:`C = X Y^T` of rank r.

    With :math:`\hat V = Y^T\mathrm{diag}(\delta h)Y`, :math:`\hat R = X^T\mathrm{diag}(\delta g)X/\lambda` and
    :math:`N_a = (1 - m_a^2\hat V\hat R)^{-1}`, r × r,

    .. math:: S_a = X\,m_a^2 N_a\hat V\,X^T, \qquad B_a = X N_a Y^T, \qquad
        m_a^2 C^T R B_a = Y\,m_a^2\hat R N_a\,Y^T .
    """

    def __init__(self, component: Component, core: Array) -> None:
        self.inner = component.inner
        self.weights, self.shares = component.measure
        left, values, right = np.linalg.svd(core, full_matrices=False)
        rank = max(1, int(np.count_nonzero(values > _RANK * values[0])))
        root = np.sqrt(values[:rank])
        x, y = left[:, :rank] * root, right[:rank].T * root
        self.rank = rank
        # of r × r matrices to cells × cells
        self._rows, self._columns, self._cross = _Symmetric(x), _Symmetric(y), np.kron(x, y).T
        self._row_squares, self._column_squares = _squares(x), _squares(y)

    def add(
        self, g: ComplexArray, h: ComplexArray, sums: ComplexArray
    ) -> tuple[ComplexArray, ComplexArray, ComplexArray]:
        """Add the component's part to the sums, and return its parts of W: rows, columns, cross."""
        count, p, q, r = len(g), g.shape[1], h.shape[1], self.rank
        v = (h @ self._column_squares).reshape(count, 1, r, r)
        c = (g @ self._row_squares).reshape(count, 1, r, r) / self.inner
        weight = self.weights[:, None, None]
        n = _inverse(np.eye(r) - weight * (v @ c))
        rows = _expand((weight * (n @ v)).reshape(count, -1, r * r), self._rows.matrix)
        columns = _expand((weight * (c @ n)).reshape(count, -1, r * r), self._columns.matrix)
        cross = _expand(n.reshape(count, -1, r * r), self._cross)
        sums[:, :p] += _mean(self.shares, rows[:, :, self._rows.diagonal])
        sums[:, p:] += self.inner * _mean(self.shares, columns[:, :, self._columns.diagonal])
        return (
            _mean(self.shares / self.inner, rows**2)[:, self._rows.place],
            _mean(self.shares * self.inner, columns**2)[:, self._columns.place],
            _mean(self.shares * self.weights, cross**2).reshape(count, p, q),
        )


class _Symmetric:
    """X F Xᵀ of symmetric F from r × r numbers to the entries on and above the diagonal.

    Attributes
    ----------
    matrix : shape (r², entries).
    diagonal : which entries are on the diagonal.
    place : shape (cells, cells), which entry stands where.
    """

    def __init__(self, factor: Array) -> None:
        cells = len(factor)
        first, second = np.triu_indices(cells)
        self.matrix = (factor[first, :, None] * factor[second, None, :]).reshape(first.size, -1).T.copy()
        self.diagonal = np.flatnonzero(first == second)
        self.place = np.zeros((cells, cells), dtype=int)
        self.place[first, second] = self.place[second, first] = np.arange(first.size)


def _expand(numbers: ComplexArray, matrix: Array) -> ComplexArray:
    """Σ_r numbers_zkr matrix_rm."""
    points, weights, rank = numbers.shape
    result: ComplexArray = numbers.reshape(-1, rank) @ matrix
    return result.reshape(points, weights, -1)


def _mean(shares: Array, values: ComplexArray) -> ComplexArray:
    """Σ_k shares_k values_zkm; without BLAS, whose threads cost more than they bring on such batches."""
    return np.asarray(np.einsum("k,zkm->zm", shares, values))


def _squares(factor: Array) -> Array:
    """Products of the columns of a factor, (cells, r²): Σ_p f_p x_pi x_pj is f @ it."""
    cells, rank = factor.shape
    return np.asarray((factor[:, :, None] * factor[:, None, :]).reshape(cells, rank * rank))


def _inverse(matrices: ComplexArray) -> ComplexArray:
    rank = matrices.shape[-1]
    if rank == 1:
        return np.asarray(1 / matrices)
    if rank == 2:
        result = np.empty_like(matrices)
        a, b, c, d = (matrices[..., i, j] for i in (0, 1) for j in (0, 1))
        determinant = a * d - b * c
        result[..., 0, 0], result[..., 0, 1] = d / determinant, -b / determinant
        result[..., 1, 0], result[..., 1, 1] = -c / determinant, a / determinant
        return result
    try:
        return np.asarray(np.linalg.inv(matrices))
    except np.linalg.LinAlgError:  # one of the batch; the others must not suffer
        flat = matrices.reshape(-1, rank, rank)
        regular = np.linalg.matrix_rank(flat) == rank
        result = np.full_like(flat, complex(np.nan, np.nan))
        result[regular] = np.linalg.inv(flat[regular])
        return result.reshape(matrices.shape)


def solve(
    z: Any, rows: Any, columns: Any, components: Sequence[Component], noise: Any, *, on_failure: str = "raise"
) -> ProfileSolution:
    """Cauchy transform of the eigenvalues of Y Yᵀ for the profiled model; see `ProfileEquation` and its module.

    Parameters
    ----------
    z : points of the closed upper half-plane, any shape: of the squared singular values, not their roots.
    rows, columns, components, noise : as in `ProfileEquation`: cell weights of shape (p,) and (q,), `Component`
        objects (or tuples of their arguments) with cores of shape (p, q), variances σ² of shape (p, q) or a number.
    on_failure : "raise", or "status" for NaN and `Status.FAILED` at points that cannot be certified.

    Returns
    -------
    `ProfileSolution` with value, status, residual, step and half_plane for each z.

    Raises
    ------
    ParameterError, CertificationError : as `ProfileEquation` and its ``solve``.

    Examples
    --------
    >>> solution = solve(1.0 + 1.0j, [1.0], [1.0], [Component([[0.5]], inner=0.5)], noise=0.1)
    >>> solution.status.item() == Status.UPPER
    True
    """
    return ProfileEquation(rows, columns, components, noise).solve(z, on_failure=on_failure)


def _finite(name: str, value: Any, dimensions: int) -> Array:
    array = _checks.real_array(name, value)
    if array.ndim != dimensions or array.size == 0 or not np.isfinite(array).all():
        raise ParameterError(f"{name} must be a non-empty {dimensions}-D array of finite numbers; got {value!r}")
    return array


def _positive(name: str, value: Any) -> Array:
    array = _finite(name, value, 1)
    if not (array > 0).all():
        raise ParameterError(f"{name} must be above 0; got {array.min()!r} among them")
    return array


def _list_of_components(components: Any) -> list[Component]:
    try:
        items = list(components)
    except TypeError as error:
        raise ParameterError(f"components must be a list of Component; got {components!r}") from error
    return [item if isinstance(item, Component) else _component(k, item) for k, item in enumerate(items)]


def _component(number: int, item: Any) -> Component:
    try:
        return Component(*item)
    except TypeError as error:
        raise ParameterError(
            f"components[{number}] must be a Component, or a tuple (core, inner[, weights[, shares]]); got {item!r}"
        ) from error
