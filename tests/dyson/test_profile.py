"""The profiled Dyson equation against closed forms, a slow twin of it and a drawn matrix."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gequiv import CertificationError, ParameterError
from gequiv.dyson import ChainEquation, Component, ProfileEquation, ProfileLaw, Status, WeightedChainPlusNoise, solve
from gequiv.laws import GaussianChainPlusNoise

seeds = st.integers(0, 10**6)


def random_model(seed, *, components=None, noise_zeros=False):
    """(rows, columns, components, noise) with up to four cells on each side."""
    rng = np.random.default_rng(seed)
    p, q = rng.integers(1, 5, 2)
    rows, columns = rng.uniform(0.1, 1, p), rng.uniform(0.1, 1, q)
    rows *= 10 ** rng.uniform(-0.7, 0.7) / rows.sum()
    columns /= columns.sum()
    parts = []
    for _ in range(rng.integers(0, 3) if components is None else components):
        core = rng.standard_normal((p, q))
        inner = 10 ** rng.uniform(-1, 0.7)
        if rng.random() < 0.5:
            parts.append(Component(core, inner))
        else:
            size = rng.integers(1, 4)
            parts.append(Component(core, inner, rng.uniform(0.1, 3, size), rng.uniform(0.2, 1, size)))
    noise = rng.uniform(0.05, 1, (p, q))
    if noise_zeros:
        noise *= rng.random((p, q)) < 0.7
    return rows, columns, parts, noise


def right_sides(model, left, g, h):
    """1/g and 1/h of the profiled equation with dense inverses; `left` stands before the sums, of rows and of columns.

    With left = (z, z) it is the symmetrised equation at z, with left = (z, 1) that of the squares.
    """
    rows, columns, components, noise = model
    first = left[0] - noise @ (columns * h)
    second = left[1] - noise.T @ (rows * g)
    for part in components:
        C, inner = part.core, part.inner
        R, V = np.diag(rows * g) / inner, np.diag(columns * h)
        P = C @ V @ C.T
        unit = np.eye(len(rows))
        for m2, share in zip(part.weights, part.shares, strict=True):
            inverse = np.linalg.inv(unit - m2 * R @ P)
            first = first - share * m2 * np.diag(P @ inverse)
            second = second - share * m2 * inner * np.diag(C.T @ inverse @ R @ C)
    return first, second


def slow_twin(model, z):
    """g, h of the squares at z: damped fixed point of the symmetrised equation at √z."""
    rows, columns = model[:2]
    root = np.sqrt(complex(z))
    root = root if root.imag > 0 else -root
    g, h = np.full(len(rows), 1 / root), np.full(len(columns), 1 / root)
    for _ in range(20000):
        first, second = right_sides(model, (root, root), g, h)
        g_new, h_new = 0.5 * (g + 1 / first), 0.5 * (h + 1 / second)
        change = max(np.abs(g_new / g - 1).max(), np.abs(h_new / h - 1).max())
        g, h = g_new, h_new
        if change < 1e-14:
            break
    else:
        raise AssertionError("the damped iteration did not converge")
    return g / root, h * root


def scale_of(model):
    rows, columns, components, noise = model
    return rows @ (noise + sum(c.core**2 for c in components)) @ columns / rows.sum()


# -- one cell ---------------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(st.floats(0.05, 20), st.floats(0.1, 10), st.floats(0.01, 10), st.floats(0.01, 10), seeds)
def test_one_cell_is_the_rational_curve(inner, aspect, signal, noise, seed):
    curve = GaussianChainPlusNoise([inner], aspect, signal, noise)
    equation = ProfileEquation([aspect], [1.0], [Component([[math.sqrt(signal)]], inner * aspect)], noise)
    assert equation.scale == pytest.approx(signal + noise, rel=1e-14)
    assert equation.atom == pytest.approx(sum(weight for _, weight in curve.atoms()), abs=1e-12)
    low, top = curve.support()[0][0], curve.support()[-1][1]
    rng = np.random.default_rng(seed)
    z = top * 10 ** rng.uniform(-3, 1, 20) * np.exp(1j * rng.uniform(0.05, np.pi - 0.05, 20))
    np.testing.assert_allclose(equation.solve(z).value, curve.cauchy(z), rtol=1e-10)
    outside = np.array([1.05 * top, 3 * top, -0.1 * top])
    found = equation.solve(outside)
    assert (found.status == Status.OUTSIDE).all()
    np.testing.assert_allclose(found.value, curve.cauchy(outside), rtol=1e-10)
    a, b = curve.support()[-1]
    x = a + (b - a) * rng.uniform(0.05, 0.95, 10)
    found = equation.solve(x)
    assert (found.status == Status.INSIDE).all()
    np.testing.assert_allclose(-found.value.imag / np.pi, curve.pdf(x), rtol=1e-9)
    assert low >= 0


@pytest.mark.parametrize("aspect", [0.4, 1.0, 2.5])
@pytest.mark.parametrize("weights", [[1.0, 3.0], [0.0, 0.5, 1.0, 9.0], [2.0]])
def test_a_weighted_inner_space_is_the_weighted_chain(aspect, weights):
    law = WeightedChainPlusNoise([0.6], [weights], aspect, signal=2.0, noise=0.3)
    model = [aspect], [1.0], [Component([[math.sqrt(2.0)]], 0.6 * aspect, weights)], 0.3
    top = law.support()[-1][1]
    z = top * np.array([0.1 + 0.05j, 0.5 + 0.3j, -0.5 + 0.01j, 1 + 1j, 2, -0.3])
    np.testing.assert_allclose(solve(z, *model).value, law.cauchy(z), rtol=1e-10)
    a, b = law.support()[-1]
    x = np.linspace(a, b, 12)[1:-1]
    np.testing.assert_allclose(-solve(x, *model).value.imag / np.pi, law.pdf(x), rtol=1e-9)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 4), st.floats(0.2, 5), st.floats(0.2, 5), seeds)
def test_random_weights_and_shares_against_the_chain_equation(size, inner, aspect, seed):
    rng = np.random.default_rng(seed)
    weights, counts = rng.uniform(0.1, 5, size), rng.integers(1, 4, size)
    chain = ChainEquation([inner], [np.repeat(weights, counts)], aspect, 1.0, 0.4)
    model = [aspect], [1.0], [Component([[1.0]], inner * aspect, weights, counts)], 0.4
    z = rng.uniform(-3, 10, 12) + 1j * 10 ** rng.uniform(-3, 1, 12)
    np.testing.assert_allclose(solve(z, *model).value, chain.solve(z).value, rtol=1e-10)


# -- several cells ----------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(seeds, st.booleans())
def test_against_the_slow_twin(seed, zeros):
    model = random_model(seed, noise_zeros=zeros)
    scale = scale_of(model)
    if not scale > 1e-3:
        return
    rng = np.random.default_rng(seed)
    angle, size = rng.uniform(0.4, 2.6, 2), 10 ** rng.uniform(-0.5, 1, 2)
    for z in scale * size * np.exp(1j * angle):
        g, h = slow_twin(model, z)
        found = solve(z, *model)
        np.testing.assert_allclose(found.rows, g, rtol=1e-10)
        np.testing.assert_allclose(found.columns, h, rtol=1e-10)
        assert found.value == pytest.approx(model[0] @ g / model[0].sum(), rel=1e-10)
        assert found.status == Status.UPPER
        variances = model[3] + sum(c.core**2 for c in model[2])
        g, h = g[variances.any(axis=1)], h[variances.any(axis=0)]
        sines = -np.concatenate([g.imag / abs(g), h.imag / abs(h)])
        assert found.half_plane == pytest.approx(sines.min(), rel=1e-8)
        assert found.half_plane > 0


@settings(max_examples=20, deadline=None)
@given(seeds, st.integers(2, 3))
def test_splitting_cells_changes_nothing(seed, parts):
    rows, columns, components, noise = random_model(seed)
    split = (
        np.repeat(rows / parts, parts),
        np.repeat(columns / 2, 2),
        [Component(np.kron(c.core, np.ones((parts, 2))), c.inner, c.weights, c.shares) for c in components],
        np.kron(noise, np.ones((parts, 2))),
    )
    whole = ProfileEquation(rows, columns, components, noise)
    z = whole.scale * np.array([0.3 + 0.01j, 1 + 1j, -2.0, 1e3])
    one, other = whole.solve(z), ProfileEquation(*split).solve(z)
    np.testing.assert_allclose(other.value, one.value, rtol=1e-10)
    np.testing.assert_allclose(other.rows, np.repeat(one.rows, parts, axis=-1), rtol=1e-10)
    np.testing.assert_allclose(other.columns, np.repeat(one.columns, 2, axis=-1), rtol=1e-10)


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_transposition(seed):
    # m G_{YYᵀ} - n G_{YᵀY} = (m - n)/z; with n' = m the model of Yᵀ has cores √aspect Cᵀ and shares over m
    rows, columns, components, noise = random_model(seed)
    aspect = rows.sum()
    turned = (
        columns / aspect,
        rows / aspect,
        [Component(math.sqrt(aspect) * c.core.T, c.inner / aspect, c.weights, c.shares) for c in components],
        aspect * noise.T,
    )
    equation, other = ProfileEquation(rows, columns, components, noise), ProfileEquation(*turned)
    assert other.scale == pytest.approx(equation.scale * aspect, rel=1e-13)
    z = equation.scale * np.array([0.5 + 0.05j, 2 + 1j, -1 + 0.5j, -3.0])
    one, two = equation.solve(z), other.solve(z)
    np.testing.assert_allclose(aspect * z * one.value - z * two.value, aspect - 1, atol=1e-10 * max(1, aspect))
    np.testing.assert_allclose(two.rows * z[:, None], one.columns, rtol=1e-10)
    np.testing.assert_allclose(one.rows * z[:, None], two.columns, rtol=1e-10)


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_scaling(seed):
    rows, columns, components, noise = random_model(seed)
    z = np.array([0.4 + 0.2j, -1.0, 30 + 1e-3j])
    one = solve(z, rows, columns, components, noise)
    larger = [Component(1e3 * c.core, c.inner, 7 * c.weights, c.shares) for c in components]
    other = solve(1e6 * z, rows, columns, larger, 1e6 * noise)
    np.testing.assert_allclose(1e6 * other.value, one.value, rtol=1e-11)
    np.testing.assert_allclose(other.columns, one.columns, rtol=1e-11)


def quarter_differences(function, state, step=2e-3):
    """Jacobian of a holomorphic function in log(state), from four points on a circle: error O(step⁴)."""
    result = []
    for k in range(state.size):
        turns = 1j ** np.arange(4)
        moved = np.repeat(state[None], 4, axis=0)
        moved[:, k] *= np.exp(step * turns)
        result.append(sum(function(m) / t for m, t in zip(moved, turns, strict=True)) / (4 * step))
    return np.array(result).T


@pytest.mark.parametrize("seed", range(6))
def test_jacobian_and_tangent(seed):
    model = random_model(seed, components=2)
    equation = ProfileEquation(*model)
    z = np.array([0.7 + 0.6j])
    state = equation.solve(z * equation.scale)
    # away from the solution too, as Newton's method needs it there
    rng = np.random.default_rng(seed)
    u = np.concatenate([state.rows[0] * equation.scale, state.columns[0]])
    u = u * np.exp(0.05 * (rng.standard_normal(u.size) + 1j * rng.standard_normal(u.size)))
    cut = model[0].size
    unit = model[0], model[1], [Component(c.core / math.sqrt(equation.scale), c.inner, c.weights, c.shares)
                                for c in model[2]], model[3] / equation.scale  # fmt: skip

    def equal(u):
        first, second = right_sides(unit, (z[0], 1.0), u[:cut], u[cut:])
        return u * np.concatenate([first, second])

    found, jacobian = equation._linearise(z, u[None])
    np.testing.assert_allclose(found[0], equal(u), rtol=1e-12)
    np.testing.assert_allclose(jacobian[0], quarter_differences(equal, u), rtol=1e-8, atol=1e-8)

    step = 1e-3  # the tangent along the solution, as differences of solutions
    at = equation.solve(equation.scale * z * np.exp(step * 1j ** np.arange(4)))
    logs = np.log(np.concatenate([at.rows, at.columns], axis=1))
    slope = (logs / (step * 1j ** np.arange(4))[:, None]).sum(axis=0) / 4
    here = np.concatenate([state.rows * equation.scale, state.columns], axis=1)
    np.testing.assert_allclose(equation._tangent(z, here)[0], slope, rtol=1e-7, atol=1e-8)


def test_far_away():
    model = random_model(3, components=2)
    scale = scale_of(model)
    for size in (1e4, 1e8, 1e12):
        z = scale * size * np.array([1, -1, 1j, -1 + 1e-9j])
        found = solve(z, *model)
        # zG = 1 + m₁/z + m₂/z² + ...
        assert (np.abs(z * found.value - 1 - scale / z) < 1e3 / size**2 + 4e-16).all()
        assert (found.status == [Status.OUTSIDE, Status.OUTSIDE, Status.UPPER, Status.UPPER]).all()


# -- a drawn matrix ---------------------------------------------------------------------------------------


def drawn(model, columns_count, rng):
    """The matrix itself, and the cells of its rows and columns."""
    rows, columns, components, noise = model
    n = columns_count
    row_cells = np.repeat(np.arange(len(rows)), np.rint(rows * n).astype(int))
    column_cells = np.repeat(np.arange(len(columns)), np.rint(columns * n).astype(int))
    m = row_cells.size
    assert column_cells.size == n
    Y = np.sqrt(noise)[np.ix_(row_cells, column_cells)] * rng.standard_normal((m, n)) / math.sqrt(n)
    for part in components:
        D = round(part.inner * n)
        M = np.sqrt(np.repeat(part.weights, np.rint(part.shares * D).astype(int)))
        assert M.size == D
        product = (rng.standard_normal((m, D)) * M) @ rng.standard_normal((n, D)).T
        Y += part.core[np.ix_(row_cells, column_cells)] * product / math.sqrt(D * n)
    return Y, row_cells, column_cells


PROFILED = (
    np.array([0.1, 0.4, 0.2]),
    np.array([0.65, 0.35]),
    [
        Component([[1.0, 0.3], [-0.5, 0.8], [0.2, 0.1]], 0.25, [0.5, 3.0], [0.8, 0.2]),
        Component([[0.5, 1.0], [1.0, -0.4], [0.3, 0.9]], 1.5),
    ],
    np.array([[0.1, 0.5], [0.3, 0.05], [1.0, 0.2]]),
)


def test_a_drawn_matrix():
    # linear statistics of eigenvalues fluctuate by O(1/n) and are biased by O(1/n), counting functions by O(log n/n):
    # bounds of 5/n resp. 5/rows for a fixed seed
    n = 800
    Y, row_cells, column_cells = drawn(PROFILED, n, np.random.default_rng(2024))
    values, vectors = np.linalg.eigh(Y @ Y.T)
    law = ProfileLaw(*PROFILED)
    m = values.size
    cdf = law.cdf(values)
    distance = max(np.abs(cdf - np.arange(m) / m).max(), np.abs(cdf - np.arange(1, m + 1) / m).max())
    assert distance < 5 / m
    wrong = ProfileLaw(*PROFILED[:2], [Component(c.core, c.inner) for c in PROFILED[2]], PROFILED[3])
    assert np.abs(wrong.cdf(values) - np.arange(m) / m).max() > 3 * distance  # the weights matter

    # cell by cell: diagonals of the resolvents
    z = law.scale * (0.5 + 1j)
    found = law.equation.solve(z)
    resolvent = (np.abs(vectors) ** 2) @ (1 / (z - values))
    rows = np.bincount(row_cells, resolvent.real) + 1j * np.bincount(row_cells, resolvent.imag)
    rows /= np.bincount(row_cells)
    np.testing.assert_allclose(found.rows, rows, rtol=0, atol=30 / n * np.abs(found.rows).max())
    diagonal = np.diag(z * np.linalg.inv(z * np.eye(n) - Y.T @ Y))
    columns = np.array([diagonal[column_cells == q].mean() for q in range(2)])
    np.testing.assert_allclose(found.columns, columns, rtol=0, atol=30 / n)


# -- what is solved, and what is refused ----------------------------------------------------------------------


def one_cell(noise=0.5):
    return [1.0], [1.0], [Component([[1.0]], 0.1)], noise


def test_status_and_shapes():
    equation = ProfileEquation(*PROFILED)
    single = equation.solve(1.0 + 1.0j)
    assert single.value.shape == single.status.shape == single.residual.shape == single.half_plane.shape == ()
    assert single.rows.shape == (3,)
    assert single.columns.shape == (2,)
    z = np.array([[0.5, 1 + 1j, -1.0], [1e3, 0.2 + 1e-3j, 2j]])
    found = equation.solve(z)
    assert found.value.shape == found.step.shape == found.iterations.shape == (2, 3)
    assert found.rows.shape == (2, 3, 3)
    assert found.columns.shape == (2, 3, 2)
    assert found.status.tolist() == [
        [Status.INSIDE, Status.UPPER, Status.OUTSIDE],
        [Status.OUTSIDE, Status.UPPER, Status.UPPER],
    ]
    assert (found.value.imag[found.status == Status.OUTSIDE] == 0).all()
    assert (found.value.imag[found.status != Status.OUTSIDE] < 0).all()
    assert (found.half_plane[found.status == Status.OUTSIDE] == 0).all()
    assert (found.half_plane[found.status != Status.OUTSIDE] > 0).all()
    assert (found.residual < 1e-9).all()
    assert (found.step < 1e-10).all()
    assert (found.iterations >= 1).all()
    for index in np.ndindex(z.shape):  # points do not influence each other
        assert equation.solve(z[index]).value == pytest.approx(found.value[index], rel=1e-11)
    empty = equation.solve(np.zeros((0, 4)))
    assert empty.value.shape == (0, 4)
    assert empty.rows.shape == (0, 4, 3)
    assert equation.solve([1, 2]).value.tolist() == equation.solve(np.array([1.0, 2.0])).value.tolist()
    assert equation.solve(1).status == Status.INSIDE


def test_inside_a_gap():
    curve = GaussianChainPlusNoise([0.1], 1, 1.0, 0.05)
    (_, low), (high, _) = curve.support()
    found = solve((low + high) / 2, *one_cell(0.05))
    assert found.status == Status.OUTSIDE
    assert found.value == pytest.approx(curve.cauchy((low + high) / 2), rel=1e-10)


def test_a_cell_without_anything():
    # a row and a column of zeros: the law of the rest, with other numbers of rows and columns
    curve = GaussianChainPlusNoise([0.5], 1.5, 1.0, 0.25)
    rows, columns, noise = [0.75, 0.25], [0.5, 0.5], [[0.5, 0], [0, 0]]
    core = [[math.sqrt(2), 0], [0, 0]]  # over n/2 columns in place of n
    for z in (0.5 + 0.3j, 1.0, 20.0, -1.0):
        found = solve(z, rows, columns, [Component(core, 0.5 * 0.75)], noise)
        assert found.rows[1] == pytest.approx(1 / z, rel=1e-13)
        assert found.columns[1] == pytest.approx(1, rel=1e-13)
        if z == 1:
            assert found.status == Status.INSIDE
            assert -found.rows[0].imag / np.pi == pytest.approx(curve.pdf(z), rel=1e-9)
        else:
            assert found.rows[0] == pytest.approx(curve.cauchy(z), rel=1e-10)


def test_a_start_changes_only_the_time():
    equation = ProfileEquation(*PROFILED)
    z = np.linspace(0.1, 3, 7) + 0j
    found = equation.solve(z)
    near = equation.solve(z * 1.01, start=found)
    far = equation.solve(z * 1.01, start=equation.solve(z[::-1] * 5 + 1j))
    fresh = equation.solve(z * 1.01)
    for other in (near, far):
        np.testing.assert_allclose(other.value, fresh.value, rtol=1e-10)
    assert near.iterations.sum() < fresh.iterations.sum()


def test_failures_are_raised_or_marked():
    edge = GaussianChainPlusNoise([0.1], 1, 1.0, 0.5).support()[-1][1]
    z = np.array([edge, 1.0, 2 * edge])
    found = solve(z, *one_cell(), on_failure="status")
    assert found.status.tolist() == [Status.FAILED, Status.INSIDE, Status.OUTSIDE]
    assert np.isnan(found.value).tolist() == [True, False, False]
    assert np.isnan(found.rows[0]).all()
    assert np.isnan(found.half_plane[0])
    with pytest.raises(CertificationError, match="could not be certified at z"):
        solve(z, *one_cell())
    again = ProfileEquation(*one_cell()).solve(z * 1.001, start=found)  # a start with NaN in it is no harm
    assert again.status[1:].tolist() == [Status.INSIDE, Status.OUTSIDE]


@pytest.mark.parametrize("z", [np.nan, np.inf, 0, 1 - 1j, [1, 0]])
def test_z_is_checked(z):
    with pytest.raises(ParameterError, match=r"^z must"):
        solve(z, *one_cell())


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (([], [1.0], [], 1.0), "rows"),
        (([0.0, 1.0], [1.0], [], 1.0), "rows"),
        (([[1.0]], [1.0], [], 1.0), "rows"),
        (([1.0], [0.5], [], 1.0), "columns must sum to one"),
        (([1.0], [1.5, -0.5], [], 1.0), "columns"),
        (([1.0], ["a"], [], 1.0), "columns"),
        (([1.0], [1.0], 3, 1.0), "components"),
        (([1.0], [1.0], [3], 1.0), r"components\[0\]"),
        (([1.0], [1.0], [([[1.0]], 1.0, None, None, 5)], 1.0), r"components\[0\]"),
        (([1.0], [1.0], [Component([[1.0, 2.0]], 1.0)], 1.0), r"components\[0\].core must have shape \(1, 1\)"),
        (([1.0], [1.0], [], -1.0), "noise"),
        (([1.0], [1.0], [], [[1.0, 2.0]]), "noise"),
        (([1.0], [1.0], [], [[np.inf]]), "noise"),
        (([1.0], [1.0], [], 0.0), "noise and components must not all be zero"),
        (([1.0], [1.0], [Component([[1e200]], 1.0)], 1.0), "noise and components .* finite"),
    ],
)
def test_models_are_checked(arguments, name):
    with pytest.raises(ParameterError, match=name):
        ProfileEquation(*arguments)


def test_solve_checks_its_options():
    equation = ProfileEquation(*one_cell())
    with pytest.raises(ParameterError, match="on_failure"):
        equation.solve(1.0, on_failure="ignore")
    for start in (3, equation.solve([1.0, 2.0])):
        with pytest.raises(ParameterError, match="start"):
            equation.solve(1.0, start=start)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (([1.0], 1.0), "core"),
        (([[np.nan]], 1.0), "core"),
        (([[1j]], 1.0), "core"),
        (([[1.0]], 0.0), "inner"),
        (([[1.0]], -1.0), "inner"),
        (([[1.0]], 1.0, None, [1.0]), "shares need weights"),
        (([[1.0]], 1.0, [1.0, -1.0]), "weights"),
        (([[1.0]], 1.0, [0.0]), "weights"),
        (([[1.0]], 1.0, [1.0], [0.5, 0.5]), "shares"),
        (([[1.0]], 1.0, [1.0, 2.0], [-1.0, 2.0]), "shares"),
        (([[1.0]], 1.0, [0.0, 2.0], [1.0, 0.0]), "weights must not vanish"),
    ],
)
def test_components_are_checked(arguments, name):
    with pytest.raises(ParameterError, match=name):
        Component(*arguments)


def test_components_are_normalised():
    part = Component([[1, 2]], 3, [0, 1, 3], [1, 1, 2])
    assert part.core.dtype == np.float64
    assert part.shares @ part.weights == pytest.approx(1, rel=1e-15)
    np.testing.assert_allclose(part.weights, np.array([1, 3]) * 4 / 7, rtol=1e-15)  # the zero is left out,
    np.testing.assert_allclose(part.shares, [1 / 4, 1 / 2], rtol=1e-15)  # its share is not given to the others
    tuples = ProfileEquation([1.0], [1.0], [([[1.0]], 0.5), ([[1.0]], 0.5, [1, 2])], 0.1)
    objects = ProfileEquation([1.0], [1.0], [Component([[1.0]], 0.5), Component([[1.0]], 0.5, [1, 2])], 0.1)
    assert tuples.solve(1 + 1j).value == objects.solve(1 + 1j).value
    assert "1 × 1 cells" in repr(tuples)
