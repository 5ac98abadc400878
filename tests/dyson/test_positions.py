"""Kernels and the equation on positions against dense algebra, the profiled equation and a slow twin."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gequiv.dyson import Component, ProfileEquation
from gequiv.dyson.positions import CausalKernel, CellKernel, PositionedComponent, PositionedEquation

EDGES = np.array([0.0, 0.05, 0.2, 0.45, 0.7, 1.0])


def densities(cells, seed=3, size=1.5):
    """v and r as they are next to the axis: of either sign in the real part, negative in the imaginary part."""
    rng = np.random.default_rng(seed)
    shape = 3, cells
    v, r = (size * (rng.uniform(-1, 1, shape) - 1j * rng.uniform(0.1, 1, shape)) for _ in range(2))
    return v, r


def fine_causal(edges, decay, sub):
    """The kernel on cells cut into `sub` parts: matrix (half on the diagonal) and widths."""
    cuts = np.concatenate([[0.0], *[np.linspace(a, b, sub + 1)[1:] for a, b in itertools.pairwise(edges)]])
    middle, widths = 0.5 * (cuts[1:] + cuts[:-1]), np.diff(cuts)
    matrix = np.tril(np.exp(-decay * np.maximum(middle[:, None] - middle, 0)))
    return matrix - 0.5 * np.diag(np.diag(matrix)), widths


@pytest.mark.parametrize("decay", [0.0, 2.0, 8.0])
def test_causal_response_is_that_of_a_fine_grid(decay):
    sub = 80
    kernel = CausalKernel(EDGES, decay)
    cells = EDGES.size - 1
    v, r = densities(cells)
    s, t = kernel.respond(v, r)
    logs = kernel.log_determinant(v, r)
    matrix, widths = fine_causal(EDGES, decay, sub)
    for z in range(len(v)):
        big_v, big_r = np.repeat(v[z], sub) * widths, np.repeat(r[z], sub) * widths
        p = (matrix * big_v) @ matrix.T
        inverse = np.linalg.inv(np.eye(len(p)) - big_r[:, None] * p)
        # the average of M² over a diagonal cell is 1/2, the square of its average 1/4
        dense_s = np.diag(p @ inverse) + big_v / 4
        dense_t = np.diag(matrix.T @ (inverse * big_r) @ matrix) + big_r / 4
        sign, size = np.linalg.slogdet(np.eye(len(p)) - big_r[:, None] * p)
        correction = np.sum(big_r * big_v) / 4
        average = np.reshape([dense_s, dense_t], (2, cells, sub)).mean(axis=2)
        np.testing.assert_allclose(s[z], average[0], rtol=1e-3, atol=1e-3 * abs(average[0]).max())
        np.testing.assert_allclose(t[z], average[1], rtol=1e-3, atol=1e-3 * abs(average[1]).max())
        dense = np.log(sign) + size - correction
        assert np.exp(logs[z] - decay - dense) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("decay", [0.0, 5.0])
def test_causal_averages_by_brute_force(decay):
    sub = 60
    kernel = CausalKernel(EDGES, decay)
    cells = EDGES.size - 1
    for found, rate in ((kernel.averages, decay), (kernel.smoothing, 2 * decay)):
        matrix, _ = fine_causal(EDGES, rate, sub)
        average = matrix.reshape(cells, sub, cells, sub).mean(axis=(1, 3))
        np.testing.assert_allclose(found, average, atol=2e-4)
    assert kernel.rows.sum() == kernel.columns.sum() == pytest.approx(1)


def test_small_decay_is_continuous():
    v, r = densities(5)
    none, little = CausalKernel(EDGES), CausalKernel(EDGES, 1e-7)
    for one, other in zip(none.respond(v, r), little.respond(v, r), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5)
    v, r = 1e-5 * v, 1e-5 * r  # next to ω = 0: the first terms, S = ∫_0^t v and T = ∫_s^1 r
    s, t = none.respond(v, r)
    np.testing.assert_allclose(s, (v * none.widths) @ none.smoothing.T, rtol=1e-8)
    np.testing.assert_allclose(t, (r * none.widths) @ none.smoothing, rtol=1e-8)


def moments(edges, order, sub=400):
    """Averages of φ_a M φ_b for M = 1[s <= t], exactly: on a diagonal cell by the integral of each polynomial."""
    cells = edges.size - 1
    first = np.zeros((order, order, cells, cells))
    first[0, 0] = np.tril(np.ones((cells, cells)), -1)
    y = 2 * (np.arange(sub) + 0.5) / sub - 1
    basis = [np.ones(sub), np.sqrt(3) * y][:order]
    own = np.tril(np.ones((sub, sub))) - 0.5 * np.eye(sub)
    for a in range(order):
        for b in range(order):
            first[a, b] += np.eye(cells) * (basis[a] @ own @ basis[b]) / sub**2
    return first


def general(kernel_edges, order):
    """The causal kernel as a general one."""
    first = moments(kernel_edges, order)
    return CellKernel(np.diff(kernel_edges), np.diff(kernel_edges), first, CausalKernel(kernel_edges).smoothing)


KERNELS = {
    "causal": lambda: CausalKernel(EDGES),
    "decay": lambda: CausalKernel(EDGES, 3.0),
    "cells": lambda: general(EDGES, 1),
    "polynomials": lambda: general(EDGES, 2),
}


@pytest.mark.parametrize("name", KERNELS)
def test_response_is_the_derivative_of_the_determinant(name):
    kernel = KERNELS[name]()
    v, r = densities(5, seed=8)
    s, t = kernel.respond(v, r)
    step = 1e-5
    for i in range(5):
        shift = step * np.eye(5)[i]
        in_r = kernel.log_determinant(v, r + shift) - kernel.log_determinant(v, r - shift)
        in_v = kernel.log_determinant(v + shift, r) - kernel.log_determinant(v - shift, r)
        np.testing.assert_allclose(in_r / (2 * step * kernel.rows[i]), -s[:, i], rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(in_v / (2 * step * kernel.columns[i]), -t[:, i], rtol=1e-6, atol=1e-7)
    nothing = np.zeros((1, 5), dtype=complex)
    assert kernel.log_determinant(v[:1], nothing).imag == pytest.approx(0, abs=1e-14)


def test_one_polynomial_is_the_profiled_formula_with_its_diagonal_corrected():
    rng = np.random.default_rng(4)
    rows, columns = rng.uniform(0.1, 0.4, (2, 5))
    core = rng.uniform(0.2, 1, (5, 5))
    second = core**2 + rng.uniform(0, 0.5, (5, 5))
    kernel = CellKernel(rows, columns, core[None, None], second)
    v, r = densities(5, seed=6)
    s, t = kernel.respond(v, r)
    for z in range(len(v)):
        big_v, big_r = v[z] * columns, r[z] * rows
        p = core @ np.diag(big_v) @ core.T
        dense_s = np.diag(np.linalg.inv(np.linalg.inv(p) - np.diag(big_r)))
        dense_t = np.diag(core.T @ np.linalg.inv(np.diag(1 / big_r) - p) @ core)
        np.testing.assert_allclose(s[z], dense_s + (second - core**2) @ big_v, rtol=1e-9)
        np.testing.assert_allclose(t[z], dense_t + (second - core**2).T @ big_r, rtol=1e-9)
        logs = kernel.log_determinant(v[z : z + 1], r[z : z + 1])[0]
        determinant = np.linalg.det(np.eye(5) - np.diag(big_r) @ p)
        assert np.exp(logs) == pytest.approx(determinant * np.exp(-big_r @ (second - core**2) @ big_v), rel=1e-9)


@pytest.mark.parametrize("order", [1, 2])
def test_cells_converge_to_the_continuum_in_second_order(order):
    errors = []
    for cells in (8, 16, 32):
        edges = np.linspace(0, 1, cells + 1)
        t = 0.5 * (edges[1:] + edges[:-1])
        v, r = (2 - 1j) * (1 + t[None]), (1 - 2j) * (2 - t[None] ** 2)
        exact, found = CausalKernel(edges).respond(v, r), general(edges, order).respond(v, r)
        errors.append(max(np.abs(a - b).max() / np.abs(a).max() for a, b in zip(exact, found, strict=True)))
    assert errors[0] / errors[1] > 3
    assert errors[1] / errors[2] > 3
    assert errors[2] < 0.01


# -- the equation -----------------------------------------------------------------------------------------


def component(positions, seed):
    rng = np.random.default_rng(seed)
    weights, shares = np.array([0.5, 2.0]), np.array([2 / 3, 1 / 3])
    rows, columns = np.tile(rng.uniform(0.5, 2, 2), (positions, 1)), rng.uniform(0.5, 2, 3)
    return PositionedComponent(rows, columns, rng.uniform(0.2, 1), weights, shares)


def test_a_constant_kernel_is_the_profiled_equation():
    row_masses, column_masses = np.array([0.1, 0.5, 0.1, 0.3]) * 0.7, np.array([0.25, 0.25, 0.4, 0.1])
    first = np.zeros((2, 2, 4, 4))
    first[0, 0] = 1
    kernel = CellKernel(row_masses, column_masses, first, np.ones((4, 4)))
    parts = [component(4, 1), component(4, 2)]
    rows, columns, noise = np.array([0.4, 0.6]), np.array([0.2, 0.5, 0.3]), np.array([[0.1, 0.2, 0.3], [0.5, 0.4, 0.1]])
    energy = np.array([0.7, 1.6])
    equation = PositionedEquation(kernel, rows, columns, parts, noise, np.tile(energy, (4, 1)))
    profiled = ProfileEquation(
        0.7 * rows,
        columns,
        [Component(np.sqrt(np.outer(p.rows[0], p.columns)), p.inner, p.weights, p.shares) for p in parts],
        noise * energy[:, None],
    )
    assert equation.scale == pytest.approx(profiled.scale, rel=1e-12)
    assert equation.aspect == pytest.approx(0.7)
    z = profiled.scale * np.array([0.05, 0.5, 1, 3, 20]) * np.exp([0.1j, 0.02j, 0.3j, 2j, 1j])
    found = equation.solve(z, None, tolerance=1e-9)
    assert (found.residual < 1e-9).all()
    exact = profiled.solve(z)
    np.testing.assert_allclose(equation.resolvent(found.unknowns), exact.value, rtol=1e-6)
    g, h = equation.resolvents(found.unknowns)
    np.testing.assert_allclose(g, np.repeat(exact.rows[:, None], 4, axis=1), rtol=1e-6)
    np.testing.assert_allclose(h, np.repeat(exact.columns[:, None], 4, axis=1), rtol=1e-6)


def dense_twin(z, masses, m, x, y, inner, noise):
    """g, h of 1/g = z - ..., 1/h = 1 - ... by the damped iteration at √z with dense inverses, no positions."""
    rows, columns = masses
    core = m * np.sqrt(np.outer(x, y))
    root = np.sqrt(z)
    g, h = np.full(rows.size, 1 / root), np.full(columns.size, 1 / root)
    for _ in range(5000):
        p = (core * (columns * h)) @ core.T
        right = rows * g / inner
        inverse = np.linalg.inv(np.eye(rows.size) - right[:, None] * p)
        new_g = 1 / (root - noise @ (columns * h) - np.diag(p @ inverse))
        new_h = 1 / (root - noise.T @ (rows * g) - inner * np.diag(core.T @ (inverse * right) @ core))
        change = max(np.abs(new_g / g - 1).max(), np.abs(new_h / h - 1).max())
        g, h = 0.5 * (g + new_g), 0.5 * (h + new_h)
        if change < 1e-12:
            return g / root, h * root
    raise AssertionError("the damped iteration did not converge")


@pytest.fixture(scope="module")
def masked():
    """Twelve cells of positions times two of norms, with a random kernel, and the same as one dense profile."""
    rng = np.random.default_rng(12)
    count = 12
    row_masses, column_masses = rng.uniform(0.5, 1.5, (2, count))
    row_masses, column_masses = 0.8 * row_masses / row_masses.sum(), column_masses / column_masses.sum()
    m = rng.uniform(0, 1, (count, count)) * (rng.uniform(size=(count, count)) < 0.6) + np.eye(count)
    kernel = CellKernel(row_masses, column_masses, m[None, None], m**2)
    norms, keys = np.array([0.3, 0.7]), np.array([0.5, 0.5])
    x, y = rng.uniform(0.5, 2, (count, 2)), np.array([0.6, 1.5])
    noise, energy = np.array([[0.2, 0.4], [0.1, 0.3]]), rng.uniform(0.5, 1.5, (count, 2))
    part = PositionedComponent(x, y, 0.4, np.ones(1), np.ones(1))
    equation = PositionedEquation(kernel, norms, keys, [part], noise, energy)
    twin = {
        "masses": (np.outer(row_masses, norms).ravel(), np.outer(column_masses, keys).ravel()),
        "m": np.kron(m, np.ones((2, 2))),
        "x": x.ravel(),
        "y": np.tile(y, count),
        "inner": 0.4,
        "noise": np.kron(m**2, np.ones((2, 2))) * np.tile(noise, (count, count)) * energy.ravel()[:, None],
    }
    return equation, twin


def test_against_the_slow_twin(masked):
    equation, twin = masked
    z = equation.scale * np.array([0.3, 1.0, 4.0]) * np.exp([0.5j, 0.3j, 1.5j])
    found = equation.solve(z, None, tolerance=1e-10)
    g, h = equation.resolvents(found.unknowns)
    for k, point in enumerate(z):
        slow_g, slow_h = dense_twin(point, **twin)
        np.testing.assert_allclose(g[k].ravel(), slow_g, rtol=1e-7)
        np.testing.assert_allclose(h[k].ravel(), slow_h, rtol=1e-7)
    shares = twin["masses"][0] / 0.8
    np.testing.assert_allclose(equation.resolvent(found.unknowns), g.reshape(3, -1) @ shares, rtol=1e-12)
    assert (found.unknowns.imag > 0).all()
    # z G → 1 with the mean behind it
    far = 1e4 * equation.scale * np.exp(0.7j)
    value = equation.resolvent(equation.solve(np.array([far]), None, tolerance=1e-12).unknowns)[0]
    assert (far * value - 1) * far == pytest.approx(equation.scale, rel=1e-3)


@pytest.mark.parametrize("kind", ["cells", "causal"])
def test_the_functional_has_the_resolvent_for_derivative(kind, masked):
    equation = masked[0]
    if kind == "causal":
        kernel = CausalKernel(EDGES, 2.0)
        part = component(5, 9)
        equation = PositionedEquation(
            kernel, np.array([0.4, 0.6]), np.array([0.2, 0.5, 0.3]), [part], np.full((2, 3), 0.4), np.ones((5, 2))
        )
    # along a ray: d F/d log|z| = -Im(z G)/π
    step = 1e-3
    for angle in (1e-3, 0.4):
        z = equation.scale * np.array([0.2, 1.0, 2.0]) * np.exp(1j * angle)
        values = []
        for factor in (np.exp(-step), 1.0, np.exp(step)):
            found = equation.solve(z * factor, None, tolerance=1e-10)
            values.append((equation.distribution(z * factor, found.unknowns), equation.resolvent(found.unknowns)))
        slope = (values[2][0] - values[0][0]) / (2 * step)
        np.testing.assert_allclose(slope, -(z * values[1][1]).imag / np.pi, rtol=1e-4, atol=1e-6)
    far = np.array([1e6 * equation.scale * np.exp(1e-9j)])
    assert equation.distribution(far, equation.solve(far, None, tolerance=1e-10).unknowns) == pytest.approx(1, abs=1e-6)
    near = np.array([1e-9 * equation.scale * np.exp(1e-9j)])
    lowest = float(equation.distribution(near, equation.solve(near, None, tolerance=1e-8).unknowns)[0])
    assert -1e-4 < lowest < 0.2


def test_solutions_are_carried_to_finer_cells():
    def equation(count):
        kernel = CausalKernel(np.linspace(0, 1, count + 1))
        return PositionedEquation(kernel, np.ones(1), np.ones(1), [], np.ones((1, 1)), np.ones((count, 1)))

    coarse, fine = equation(16), equation(32)
    z = np.array([0.3 + 0.2j, 1 + 0.5j])
    one, two = (e.solve(z, None, tolerance=1e-10) for e in (coarse, fine))
    np.testing.assert_allclose(coarse.carry(coarse, one.unknowns), one.unknowns, rtol=1e-12)
    carried = fine.carry(coarse, one.unknowns)
    assert np.abs(carried / two.unknowns - 1).max() < 0.05
    again = fine.solve(z, carried, tolerance=1e-10)
    np.testing.assert_allclose(again.unknowns, two.unknowns, rtol=1e-8)
    # second order in the size of the cells
    finest = equation(64).solve(z, None, tolerance=1e-10)
    values = [e.resolvent(f.unknowns) for e, f in ((coarse, one), (fine, two), (equation(64), finest))]
    ratio = np.abs(values[1] - values[0]) / np.abs(values[2] - values[1])
    assert (ratio > 3).all()
