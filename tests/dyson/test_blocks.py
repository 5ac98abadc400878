"""The block Dyson equation in numbers: its Jacobian, its certificates, its structure, against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gequiv import MarchenkoPastur, ParameterError
from gequiv.dyson.blocks import BlockEquation, DiagonalTerm, GaussianTerm
from gequiv.laws import Semicircle
from gequiv.laws._equation_solver import Solver, Status
from gequiv.laws.equation import EquationLaw


def _entry(size: int, a: int, b: int, value: complex = 1.0) -> np.ndarray:
    matrix = np.zeros((size, size), dtype=complex)
    matrix[a, b] = value
    return matrix


def wishart(ratio: float) -> BlockEquation:
    """XXᵀ/m for X of n = ratio m rows and m columns."""
    constant = np.diag([0.0, 1.0])
    atoms = [(0.0, 1 - 1 / ratio)] if ratio > 1 else []
    high = 1.2 * (1 + math.sqrt(ratio)) ** 2
    return BlockEquation(constant, [GaussianTerm(_entry(2, 0, 1), ratio, 1.0)], low=0.0, high=high, atoms=atoms)


def commutator(phase: complex) -> BlockEquation:
    """phase·ST + its adjoint for two Wigner matrices, by the blocks rows, a, b."""
    constant = _entry(3, 1, 2) + _entry(3, 2, 1)
    first = (_entry(3, 0, 1, phase) + _entry(3, 1, 0, np.conj(phase))) / math.sqrt(2)
    second = (_entry(3, 0, 2) + _entry(3, 2, 0)) / math.sqrt(2)
    terms = [GaussianTerm(first, 1.0, 1.0), GaussianTerm(second, 1.0, 1.0)]
    return BlockEquation(constant, terms, low=-9.0, high=9.0)


def deformed(values: list[float], weights: list[float]) -> BlockEquation:
    """D + S, D diagonal, S a Wigner matrix; with a term i(D T - T D) that makes the pencil complex."""
    size = 3
    constant = _entry(size, 1, 2) + _entry(size, 2, 1)
    wigner = _entry(size, 0, 0) * math.sqrt(2)
    other = (_entry(size, 0, 2) + _entry(size, 2, 0)) / math.sqrt(2)
    pattern = _entry(size, 0, 0) + _entry(size, 0, 1, 0.5j) + _entry(size, 1, 0, -0.5j)
    diagonal = DiagonalTerm(pattern, np.array(values), np.array(weights))
    terms = [GaussianTerm(wigner, 1.0, 1.0), GaussianTerm(other, 1.0, 1.0)]
    return BlockEquation(constant, terms, [diagonal], low=-20.0, high=20.0)


@pytest.mark.parametrize(
    "equation", [wishart(0.7), commutator(1j), commutator(0.6 + 0.8j), deformed([1.0, -2.0, 0.5], [0.3, 0.4, 0.3])]
)
def test_change_and_tangent_are_derivatives(equation: BlockEquation) -> None:
    z = np.array([0.4 + 0.7j, -3.0 + 0.2j])
    state = Solver(equation).solve(z).state
    rng = np.random.default_rng(3)
    nearby = state + 1e-4 * (rng.standard_normal(state.shape) + 1j * rng.standard_normal(state.shape))
    # Newton's step from nearby leaves an error of second order
    assert np.abs(nearby + equation.change(z, nearby) - state).max() < 2e-3 * np.abs(nearby - state).max()
    h = 1e-5
    above, below = (Solver(equation).solve(z + sign * h).state for sign in (1, -1))
    np.testing.assert_allclose(equation.tangent(z, state), (above - below) / (2 * h), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(equation.slope(z, state), equation.tangent(z, state)[:, 0], rtol=1e-12)
    # the solution is a fixed point: Im g <= 0, and its mirror image is refused
    assert (equation.margin(z, state) > 0).all()
    assert (equation.margin(z, state.conj()) < 0).all()


def test_only_possible_block_pairs_are_unknowns() -> None:
    assert wishart(1.0).pairs == [(0, 0, False), (1, 1, False)]
    # phases of Gaussian matrices drop out: no antisymmetric unknown, and one law for all of them
    assert commutator(1j).pairs == commutator(1.0).pairs == [(0, 0, False), (1, 1, False), (1, 2, False), (2, 2, False)]
    z = np.array([0.3 + 0.1j, 5.0 + 0j])
    states = [Solver(equation).solve(z).state for equation in (commutator(1j), commutator(1.0))]
    np.testing.assert_allclose(*states, rtol=1e-13)
    # those of a diagonal matrix do not
    assert any(odd for _, _, odd in deformed([1.0, 2.0], [0.5, 0.5]).pairs)


def test_wishart() -> None:
    for ratio in (0.4, 1.0, 3.0):
        equation, exact = wishart(ratio), MarchenkoPastur(ratio)
        z = np.array([0.7 + 0.3j, -1.0 + 0j, 1.0 + 1e-8j, 20.0 + 0j])
        found = Solver(equation).solve(z)
        assert found.status.tolist() == [Status.UPPER, Status.OUTSIDE, Status.UPPER, Status.OUTSIDE]
        np.testing.assert_allclose(equation.cauchy(z, found.state), exact.cauchy(z), rtol=1e-12)
        law = EquationLaw(equation)
        assert law.support()[0] == pytest.approx(exact.support()[0], rel=1e-13, abs=1e-16)
        assert law.atoms() == exact.atoms()


def test_deformed_wigner_matrix_against_its_scalar_equation() -> None:
    """D + S alone: G = Σ w/(z - d - G)."""
    values, weights = np.array([-1.0, 0.5, 3.0]), np.array([0.2, 0.5, 0.3])
    pattern = np.ones((1, 1))
    terms = [GaussianTerm(np.full((1, 1), 0.5 * math.sqrt(2)), 1.0, 1.0)]
    equation = BlockEquation(np.zeros((1, 1)), terms, [DiagonalTerm(pattern, values, weights)], low=-6, high=8)
    z = np.array([0.3 + 0.1j, 2.0 + 1e-3j, -5.0 + 0j])
    g = equation.cauchy(z, Solver(equation).solve(z).state)
    np.testing.assert_allclose(g, (weights / (z[:, None] - values - g[:, None])).sum(axis=1), rtol=1e-12)
    law = EquationLaw(equation)
    assert law.mean() == pytest.approx(weights @ values, abs=1e-12)
    assert law.variance() == pytest.approx(weights @ values**2 - (weights @ values) ** 2 + 1, rel=1e-12)


def test_one_value_of_the_diagonal_matrix_shifts() -> None:
    terms = [GaussianTerm(np.full((1, 1), 0.5 * math.sqrt(2)), 1.0, 1.0)]
    diagonal = DiagonalTerm(np.ones((1, 1)), np.array([2.5]), np.ones(1))
    law = EquationLaw(BlockEquation(np.zeros((1, 1)), terms, [diagonal], low=-1.0, high=6.0))
    x = np.linspace(-1.9, 1.9, 11)
    np.testing.assert_allclose(law.pdf(2.5 + x), Semicircle(1.0).pdf(x), rtol=1e-11)


def test_points_that_are_many_are_cut_into_batches() -> None:
    equation = deformed(list(np.linspace(-1, 1, 40)), [0.025] * 40)
    x = np.linspace(-3, 3, 250) + 0.2j
    state = Solver(equation).solve(x).state
    one = Solver(equation).solve(x[100:101]).state
    np.testing.assert_allclose(state[100], one[0], rtol=1e-10, atol=1e-12)


def test_errors() -> None:
    pattern = GaussianTerm(_entry(2, 0, 1), 1.0, 1.0)
    with pytest.raises(ParameterError, match="constant must be Hermitian"):
        BlockEquation([[0, 1], [2, 1]], [pattern], low=0, high=1)
    with pytest.raises(ParameterError, match="constant must be invertible"):
        BlockEquation(np.zeros((2, 2)), [pattern], low=0, high=1)
    with pytest.raises(ParameterError, match="gaussians must have patterns"):
        BlockEquation(np.eye(3), [pattern], low=0, high=1)
    with pytest.raises(ParameterError, match="diagonals must be Hermitian"):
        BlockEquation(np.eye(2), [], [DiagonalTerm(_entry(2, 0, 1), np.ones(1), np.ones(1))], low=0, high=1)
    two = [
        DiagonalTerm(np.eye(1), np.array([1.0, 2.0]), np.array([0.5, 0.5])),
        DiagonalTerm(np.eye(1), np.array([1.0, 2.0]), np.array([0.3, 0.7])),
    ]
    with pytest.raises(ParameterError, match="same weights"):
        BlockEquation(np.zeros((1, 1)), [GaussianTerm(np.eye(1), 1.0, 1.0)], two, low=0, high=1)
