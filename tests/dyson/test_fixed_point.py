"""Accelerated fixed points against equations with known solutions."""

from __future__ import annotations

import numpy as np
import pytest

from gequiv.dyson.fixed_point import accelerate


def semicircle(z):
    """1/G of the semicircle of variance one: w = z - 1/w."""
    return 0.5 * (z + np.sqrt(z - 2) * np.sqrt(z + 2))


def test_linear_contraction():
    rng = np.random.default_rng(1)
    size, points = 12, 5
    matrix = rng.uniform(0, 1, (size, size))
    matrix *= 0.95 / matrix.sum(axis=1, keepdims=True)  # positive, so that the half-plane is kept; slow on its own
    constant = rng.standard_normal((points, size)) + 1j * rng.uniform(0.1, 1, (points, size))
    exact = np.linalg.solve(np.eye(size) - matrix, constant.T).T
    found = accelerate(
        lambda active, w: w @ matrix.T + constant[active], np.full((points, size), 1j), tolerance=1e-12, most=200
    )
    np.testing.assert_allclose(found.unknowns, exact, rtol=1e-9)
    assert (found.residual < 1e-12).all()
    assert found.iterations.max() < 60  # the plain iteration would need log(1e-12)/log(0.95) = 539


def test_many_points_of_the_semicircle():
    x = np.linspace(-3, 3, 60)
    z = np.concatenate([x + 1e-3j, x + 0.1j, x + 3j])
    found = accelerate(lambda active, w: z[active, None] - 1 / w, z[:, None] + 1j, tolerance=1e-11, most=400)
    np.testing.assert_allclose(found.unknowns[:, 0], semicircle(z), rtol=1e-7)
    assert (found.unknowns.imag > 0).all()


def test_marchenko_pastur_in_two_unknowns():
    # 1/g = z - h, 1/h = 1 - c g of Y Yᵀ, entries of variance 1/columns: c z g² + (1 - c - z) g + 1 = 0
    c = 0.5
    z = np.linspace(0.01, 4, 40) * np.exp(0.02j)

    def step(active, w):
        g, h = 1 / w.T
        return np.stack([z[active] - h, 1 - c * g], axis=1)

    found = accelerate(step, np.stack([z, 1 + 0.1j + 0 * z], axis=1), tolerance=1e-11, most=400, plain=5)
    low, high = (1 - np.sqrt(c)) ** 2, (1 + np.sqrt(c)) ** 2
    g = (z + c - 1 - np.sqrt(z - low) * np.sqrt(z - high)) / (2 * c * z)
    np.testing.assert_allclose(1 / found.unknowns[:, 0], g, rtol=1e-7)
    assert (found.residual < 1e-11).all()


def test_rows_leave_the_batch_when_they_are_done():
    z = np.array([10j, 8j, 6j, 5 + 5j, 0.5 + 1e-3j])
    sizes, last = [], {}

    def step(active, w):
        sizes.append(active.size)
        for row in active:
            last[int(row)] = len(sizes)
        assert (w.imag > 0).all()
        return z[active, None] - 1 / w

    found = accelerate(step, z[:, None] + 1j, tolerance=1e-10, most=300)
    assert sizes[0] == 5
    assert sizes[-1] == 1
    assert (np.diff(sizes) <= 0).all()
    # rows that are done may stay until a quarter of the batch is, but are not counted any more
    assert found.iterations[4] == last[4] == len(sizes)
    assert found.iterations[:3].max() < found.iterations[4]
    assert (found.residual < 1e-10).all()
    np.testing.assert_allclose(found.unknowns[:, 0], semicircle(z), rtol=1e-8)


@pytest.mark.parametrize("most", [1, 3, 7])
def test_most_iterations(most):
    calls = []

    def step(active, w):
        calls.append(active.size)
        return 0.5 + 1e-4j - 1 / w

    found = accelerate(step, np.full((2, 1), 3 + 1e-2j), tolerance=1e-14, most=most)
    assert len(calls) == most
    assert found.iterations.tolist() == [most, most]
    assert (found.residual > 1e-14).all()


def test_a_map_out_of_the_floats_is_no_fixed_point():
    found = accelerate(lambda active, w: w * np.nan, np.full((1, 2), 1j), tolerance=1e-6, most=5)
    assert not (found.residual < 1e-6).any()


def test_plain_iterations_are_halfway_steps_of_logarithms():
    seen = []

    def step(active, w):
        seen.append(complex(w[0, 0]))
        return np.full_like(w, 4j)

    accelerate(step, np.full((1, 1), 1j), tolerance=1e-12, most=4, plain=10)
    np.testing.assert_allclose(seen, 1j * 4 ** (1 - 0.5 ** np.arange(4)), rtol=1e-14)
