r"""The operator-valued Dyson equation of a Hermitian linear pencil in Gaussian and diagonal matrices, in numbers.

The pencil. :math:`L(z) = z\,e_{00} + L_0 - \sum_M (A_M \otimes M + A_M^* \otimes M^T) - \sum_D P_D \otimes D`, a
B × B matrix of blocks with :math:`L_0` and :math:`P_D` Hermitian. Each M of size rN × sN has independent real entries
of variance 1/N; D is diagonal, with given values on the coordinates of a space.

The equation. The block traces :math:`g_{ab} = \frac1{N_a}\operatorname{tr}(L^{-1})_{ab}` converge to the solution of

.. math::
    g = \sum_i w_i \Bigl(z\,e_{00} + L_0 - \sum_D d_i P_D - \eta(g)\Bigr)^{-1}, \qquad
    \eta(g) = \sum_M s\,A_M\, g\, A_M^* + r\,A_M^*\, g\, A_M ,

the mean taken for the blocks of each space over its coordinates i with weights w_i. Blocks of different spaces never
couple, so the matrix falls into components, each inverted for itself. :math:`G = g_{00}`.

Unknowns. On the real axis off the spectrum g is Hermitian. It is written as
:math:`\sum_k u_k E_k` with the Hermitian matrices :math:`e_{aa}`, :math:`e_{ab} + e_{ba}` and
:math:`i(e_{ab} - e_{ba})`, so that the u_k are real there and analytic elsewhere; only those that can be non-zero are
kept, the third kind for pencils with complex entries alone.

The physical solution. :math:`\operatorname{Im} L = \operatorname{Im} z\, e_{00} \ge 0` gives
:math:`\frac1{2i}(g - g^*) \le 0`, with Im G < 0; at real z off the spectrum
:math:`g' = -E[L^{-1} e_{00} L^{-1}] \le 0`.

Sources: Helton, Rashidi Far, Speicher 2007; Belinschi, Mai, Speicher 2017; Alt, Erdős, Krüger, Nemish 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gequiv import _checks
from gequiv._checks import Array, ComplexArray
from gequiv.errors import CertificationError, ParameterError
from gequiv.laws._batched import solve_each
from gequiv.laws.equation import SpectralEquation

_ENTRIES = 400_000  # complex numbers of the largest array of a batch
_ROUNDING = 1e-7  # a semidefinite matrix of unit diagonal may look indefinite by this much
_HERMITIAN = 1e-12
_PRESENT = 1e-9
_START_ROUNDS = 60
_SEED = 20240607


@dataclass(frozen=True)
class GaussianTerm:
    r"""The term :math:`-(A \otimes M + A^* \otimes M^T)` of a pencil.

    Attributes
    ----------
    pattern : A, shape (B, B): A[a, b] is the coefficient of M in block (a, b), up to the sign.
    rows, columns : size of M in units of N; its entries have variance 1/N.
    """

    pattern: ComplexArray
    rows: float
    columns: float


@dataclass(frozen=True)
class DiagonalTerm:
    r"""The term :math:`-P \otimes D` of a pencil.

    Attributes
    ----------
    pattern : P, Hermitian, shape (B, B).
    values : of D at the coordinates of its space.
    weights : of the coordinates, positive, of sum one; the same for all diagonal matrices of the space.
    """

    pattern: ComplexArray
    values: Array
    weights: Array


@dataclass(frozen=True)
class _Component:
    """Blocks that couple with one another, all of one space."""

    blocks: np.ndarray
    constant: ComplexArray  # (T, n, n): L_0 - Σ d_i P for each coordinate
    weights: Array  # (T,)
    first: bool  # whether block 0 is among them; it is the first then
    unknowns: np.ndarray  # (J,) which unknowns live here
    row: np.ndarray  # (J,) their place
    column: np.ndarray
    phase: ComplexArray  # (J,) the unknown is (phase g_ab + conj(phase) g_ba)/2
    covariance: ComplexArray  # (K, n, n): η(E_k) for all unknowns
    inner_row: np.ndarray  # places where one of them is not zero
    inner_column: np.ndarray
    inner: ComplexArray  # (places, K)


class BlockEquation(SpectralEquation):
    r"""The equation of the module's text, its unknowns being the block pairs that can be non-zero.

    Parameters
    ----------
    constant : :math:`L_0`, Hermitian, shape (B, B); z is added to its first entry.
    gaussians : `GaussianTerm` objects.
    diagonals : `DiagonalTerm` objects.
    low, high : bounds of the spectrum; low = 0 for a law on the half-line.
    atoms : point masses, as (location, weight).

    Attributes
    ----------
    width : number of unknowns.
    pairs : for each unknown its (a, b), and whether it is of the antisymmetric kind.

    Raises
    ------
    ParameterError : a matrix is not square, not of the common size or not Hermitian; diagonal matrices of one space
        have different weights.
    """

    def __init__(
        self,
        constant: Any,
        gaussians: Sequence[GaussianTerm],
        diagonals: Sequence[DiagonalTerm] = (),
        *,
        low: float,
        high: float,
        atoms: Sequence[tuple[float, float]] = (),
    ) -> None:
        self.constant = _checks.complex_array("constant", constant)
        size = len(self.constant)
        for name, matrix in [("constant", self.constant), *(("diagonals", d.pattern) for d in diagonals)]:
            if matrix.shape != (size, size) or np.abs(matrix - matrix.conj().T).max() > _HERMITIAN:
                raise ParameterError(f"{name} must be Hermitian of shape ({size}, {size}); got shape {matrix.shape}")
        if any(term.pattern.shape != (size, size) for term in gaussians):
            raise ParameterError(f"gaussians must have patterns of shape ({size}, {size})")
        self.gaussians, self.diagonals = list(gaussians), list(diagonals)
        self.low, self.high, self.atoms = float(low), float(high), list(atoms)
        self._size = size
        self.pairs = self._present()
        self.width = len(self.pairs)
        self._basis = np.array([self._matrix(*pair) for pair in self.pairs])
        covariance = np.array([self._covariance(matrix) for matrix in self._basis])
        self._components = [self._component(blocks, covariance) for blocks in self._split(covariance)]

    def __repr__(self) -> str:
        return f"BlockEquation({self._size} blocks, {self.width} unknowns)"

    # -- structure ------------------------------------------------------------------------------------

    def _matrix(self, a: int, b: int, odd: bool) -> ComplexArray:
        matrix = np.zeros((self._size, self._size), dtype=np.complex128)
        matrix[a, b], matrix[b, a] = (1j, -1j) if odd else (1, 1)
        return matrix

    def _covariance(self, g: ComplexArray) -> ComplexArray:
        """η(g)."""
        total = np.zeros((self._size, self._size), dtype=np.complex128)
        for term in self.gaussians:
            a, adjoint = term.pattern, term.pattern.conj().T
            total += term.columns * (a @ g @ adjoint) + term.rows * (adjoint @ g @ a)
        return total

    def _present(self) -> list[tuple[int, int, bool]]:
        """The unknowns that are not always zero: the smallest set closed under the equation, at random values."""
        rng = np.random.default_rng(_SEED)
        found: list[tuple[int, int, bool]] = []
        for _ in range(self._size**2 + 2):
            g = np.zeros((self._size, self._size), dtype=np.complex128)
            for pair in found:
                g += rng.uniform(0.5, 1.5) * rng.choice([-1, 1]) * self._matrix(*pair)
            eta = self._covariance(g)
            mean = np.zeros_like(g)
            for _ in range(3):
                matrix = self.constant - eta
                matrix[0, 0] += rng.uniform(3.0, 5.0)
                for term in self.diagonals:
                    matrix = matrix - rng.choice(term.values) * rng.uniform(0.5, 1.5) * term.pattern
                try:
                    mean += rng.uniform(0.5, 1.5) * np.linalg.inv(matrix)
                except np.linalg.LinAlgError as error:
                    raise ParameterError("constant must be invertible apart from its first block") from error
            size = _PRESENT * np.abs(mean).max()
            new = list(found)
            for a in range(self._size):
                for b in range(a, self._size):
                    if abs(mean[a, b].real) > size and (a, b, False) not in new:
                        new.append((a, b, False))
                    if abs(mean[a, b].imag) > size and a < b and (a, b, True) not in new:
                        new.append((a, b, True))
            if len(new) == len(found):
                return sorted(found)
            found = new
        raise CertificationError("the block pairs of the Dyson equation do not settle")

    def _split(self, covariance: ComplexArray) -> list[list[int]]:
        """Blocks that couple, in L or in g."""
        joined = np.abs(self.constant) + np.abs(self._basis).sum(axis=0) + np.abs(covariance).sum(axis=0)
        for term in self.diagonals:
            joined = joined + np.abs(term.pattern)
        left, result = set(range(self._size)), []
        while left:
            stack, part = [min(left)], set()
            while stack:
                a = stack.pop()
                part.add(a)
                stack.extend(b for b in range(self._size) if joined[a, b] > 0 and b not in part)
            left -= part
            result.append(sorted(part))
        return result

    def _component(self, blocks: list[int], covariance: ComplexArray) -> _Component:
        inside = np.ix_(blocks, blocks)
        constant, weights = self.constant[inside][None], np.ones(1)
        for term in self.diagonals:
            part = term.pattern[inside]
            if not np.abs(part).any():
                continue
            if weights.size == 1:
                weights = term.weights
            if not (weights.shape == term.weights.shape and np.array_equal(weights, term.weights)):
                raise ParameterError("diagonals of one space must have the same number of values and the same weights")
            constant = constant - term.values[:, None, None] * part
        place = {block: number for number, block in enumerate(blocks)}
        here = [k for k, (a, _, _) in enumerate(self.pairs) if a in place]
        eta = covariance[:, np.array(blocks)[:, None], np.array(blocks)]
        inner_row, inner_column = np.nonzero(np.abs(eta).sum(axis=0))
        return _Component(
            blocks=np.array(blocks),
            constant=constant,
            weights=weights,
            first=blocks[0] == 0,
            unknowns=np.array(here, dtype=int),
            row=np.array([place[self.pairs[k][0]] for k in here], dtype=int),
            column=np.array([place[self.pairs[k][1]] for k in here], dtype=int),
            phase=np.array([-1j if self.pairs[k][2] else 1 for k in here], dtype=np.complex128),
            covariance=eta,
            inner_row=inner_row,
            inner_column=inner_column,
            inner=eta[:, inner_row, inner_column].T.copy(),
        )

    # -- the equation -----------------------------------------------------------------------------------

    def _inverses(self, part: _Component, z: ComplexArray, state: ComplexArray) -> ComplexArray:
        """L^{-1} of a component at each coordinate, (m, T, n, n)."""
        n = part.blocks.size
        eta = (state @ part.covariance.reshape(self.width, -1)).reshape(-1, 1, n, n)
        matrix = part.constant - eta
        if part.first:
            matrix[:, :, 0, 0] += z[:, None]
        return _inverse(matrix)

    @staticmethod
    def _mean(part: _Component, values: ComplexArray) -> ComplexArray:
        """Over the coordinates, axis 1."""
        return values[:, 0] if part.weights.size == 1 else np.einsum("t,mt...->m...", part.weights, values)

    def _image(self, z: ComplexArray, state: ComplexArray) -> ComplexArray:
        """The right-hand side of the equation."""
        image = np.empty_like(state)
        for part in self._components:
            g = self._mean(part, self._inverses(part, z, state))
            forth, back = g[:, part.row, part.column], g[:, part.column, part.row]
            image[:, part.unknowns] = 0.5 * (part.phase * forth + part.phase.conj() * back)
        return image

    def _linearise(self, z: ComplexArray, state: ComplexArray) -> tuple[ComplexArray, ComplexArray, ComplexArray]:
        """Image, Jacobian of u - image, and derivative of the image in z."""
        m = z.size
        image, along = np.empty_like(state), np.zeros_like(state)
        jacobian = np.zeros((m, self.width, self.width), dtype=np.complex128)
        jacobian[:] = np.eye(self.width)
        for part in self._components:
            if part.unknowns.size == 0:
                continue
            inverse = self._inverses(part, z, state)
            rows = np.zeros((m, part.unknowns.size, part.inner_row.size), dtype=np.complex128)
            values = np.zeros((m, part.unknowns.size), dtype=np.complex128)
            slopes = np.zeros_like(values)
            odd = bool((part.phase.imag != 0).any())
            # of a symmetric pencil both halves of each unknown are the same
            turns = [(part.row, part.column, part.phase)]
            if odd:
                turns = [
                    (part.row, part.column, 0.5 * part.phase),
                    (part.column, part.row, 0.5 * part.phase.conj()),
                ]
            elif np.abs(part.constant.imag).any() or np.abs(part.covariance.imag).any():
                turns = [(part.row, part.column, 0.5 * part.phase), (part.column, part.row, 0.5 * part.phase)]
            for row, column, phase in turns:
                left = inverse[:, :, row[:, None], part.inner_row]  # (m, T, J, places)
                right = inverse[:, :, part.inner_column, column[:, None]]
                rows += phase[:, None] * self._mean(part, left * right)
                values += phase * self._mean(part, inverse[:, :, row, column])
                if part.first:
                    slopes -= phase * self._mean(part, inverse[:, :, row, 0] * inverse[:, :, 0, column])
            jacobian[:, part.unknowns] -= rows @ part.inner
            image[:, part.unknowns], along[:, part.unknowns] = values, slopes
        return image, jacobian, along

    def _parts(self, count: int) -> list[slice]:
        largest = max(
            [self.width**2]
            + [part.weights.size * part.blocks.size**2 for part in self._components]
            + [part.weights.size * part.unknowns.size * part.inner_row.size for part in self._components]
        )
        chunk = max(1, _ENTRIES // max(largest, 1))
        return [slice(begin, begin + chunk) for begin in range(0, count, chunk)]

    def change(self, z: ComplexArray, state: ComplexArray) -> ComplexArray:
        """Newton's change of the unknowns."""
        result = np.empty_like(state)
        for part in self._parts(z.size):
            image, jacobian, _ = self._linearise(z[part], state[part])
            result[part] = _solve(jacobian, image - state[part], state[part])
        return result

    def tangent(self, z: ComplexArray, state: ComplexArray) -> ComplexArray:
        """du/dz along the solution."""
        result = np.empty_like(state)
        for part in self._parts(z.size):
            _, jacobian, along = self._linearise(z[part], state[part])
            result[part] = _solve(jacobian, along, state[part])
        return result

    def start(self, z: ComplexArray) -> ComplexArray:
        """By iteration of the equation, which converges far from the spectrum."""
        state = np.zeros((z.size, self.width), dtype=np.complex128)
        for _ in range(_START_ROUNDS):
            new = np.concatenate([self._image(z[part], state[part]) for part in self._parts(z.size)])
            settled = np.abs(new - state).max() <= 1e-12 * np.abs(new).max()
            state = new
            if settled:
                break
        return state

    def cauchy(self, z: ComplexArray, state: ComplexArray) -> ComplexArray:
        """The first unknown."""
        return np.asarray(state[:, 0])

    def slope(self, z: ComplexArray, state: ComplexArray) -> ComplexArray:
        """The derivative of the first unknown."""
        return np.asarray(self.tangent(z, state)[:, 0])

    # -- certificates -----------------------------------------------------------------------------------

    def margin(self, z: ComplexArray, state: ComplexArray) -> Array:
        """-Im G/\\|G\\| if (g - g*)/2i <= 0 within rounding, else minus its largest eigenvalue (diagonal one)."""
        worst = self._largest(state.imag, np.abs(state))
        first = state[:, 0]
        return np.where(worst <= _ROUNDING, -first.imag / np.abs(first), -worst)

    def off_spectrum(self, z: ComplexArray, state: ComplexArray) -> np.ndarray:
        """Whether dg/dz <= 0 within rounding and dG/dz < 0."""
        tangent = self.tangent(z, state).real
        good = np.asarray(np.isfinite(tangent).all(axis=1))
        good[good] = self._largest(tangent[good], np.abs(tangent[good])) <= _ROUNDING
        return np.asarray(good & (tangent[:, 0] < 0))

    def _largest(self, numbers: Array, sizes: Array) -> Array:
        """Largest eigenvalue of Σ numbers_k E_k over the components, rows and columns divided by the diagonal."""
        largest = np.full(len(numbers), -np.inf)
        for part in self._components:
            if part.unknowns.size == 0:
                continue
            n = part.blocks.size
            matrix = np.zeros((len(numbers), n, n), dtype=np.complex128)
            own, size = numbers[:, part.unknowns], sizes[:, part.unknowns]
            for chosen in (part.phase.imag == 0, part.phase.imag != 0):  # no pair twice
                row, column, phase = part.row[chosen], part.column[chosen], part.phase[chosen]
                matrix[:, row, column] += phase.conj() * own[:, chosen]
                off = row < column
                matrix[:, column[off], row[off]] += (phase * own[:, chosen])[:, off]
            diagonal = np.full((len(numbers), n), 1e-12) * size.max(axis=1, keepdims=True)
            on = part.row == part.column
            diagonal[:, part.row[on]] = np.maximum(diagonal[:, part.row[on]], size[:, on])
            root = 1 / np.sqrt(np.maximum(diagonal, 1e-300))
            matrix *= root[:, :, None] * root[:, None, :]
            finite = np.isfinite(matrix).all(axis=(1, 2))
            value = np.full(len(numbers), np.inf)
            value[finite] = np.linalg.eigvalsh(matrix[finite])[:, -1]
            largest = np.maximum(largest, value)
        return largest


def _inverse(matrices: ComplexArray) -> ComplexArray:
    """Inverses of a batch; NaN where one of it is singular."""
    if matrices.shape[-1] == 1:
        return np.asarray(1 / matrices)
    if matrices.shape[-1] == 2:
        a, b, c, d = (matrices[..., i, j] for i in (0, 1) for j in (0, 1))
        adjugate = np.stack([np.stack([d, -b], axis=-1), np.stack([-c, a], axis=-1)], axis=-2)
        return np.asarray(adjugate / (a * d - b * c)[..., None, None])
    try:
        return np.asarray(np.linalg.inv(matrices))
    except np.linalg.LinAlgError:  # one of the batch; the others must not suffer
        flat = matrices.reshape(-1, *matrices.shape[-2:])
        result = np.full_like(flat, complex(np.nan, np.nan))
        for k, matrix in enumerate(flat):
            try:
                result[k] = np.linalg.inv(matrix)
            except np.linalg.LinAlgError:
                continue
        return result.reshape(matrices.shape)


def _solve(matrices: ComplexArray, right: ComplexArray, state: ComplexArray) -> ComplexArray:
    """Solutions of a batch of linear systems in units of the state; NaN where one of the batch is singular."""
    if matrices.shape[-1] == 1:
        return np.asarray(right / matrices[:, 0])
    unit = np.abs(state)
    unit += 1e-12 * unit.max(axis=1, keepdims=True) + 1e-300
    matrices = matrices * (unit[:, None, :] / unit[:, :, None])
    return unit * solve_each(matrices, right / unit)
