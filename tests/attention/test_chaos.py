"""The exponential resolved into spherical harmonics: mpmath, closed identities, sanity of what is chosen."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gequiv.attention import chaos


def harmonics(d, degree):
    """D_ℓ for integer d by the definition: homogeneous polynomials of degree ℓ less those of degree ℓ - 2."""
    return math.comb(d + degree - 1, degree) - (math.comb(d + degree - 3, degree - 2) if degree > 1 else 0)


def reference(context, d, kappa, degree):
    """log w_ℓ(κ) from the modified Bessel function."""
    nu, kappa = context.mpf(d) / 2 - 1, context.mpf(kappa)
    value = context.loggamma(nu + 1) + nu * context.log(2 / kappa) + context.log(context.besseli(nu + degree, kappa))
    return value + context.log(context.mpf(harmonics(d, degree))) / 2


@pytest.fixture(scope="module")
def context():
    made = mpmath.MPContext()
    made.dps = 40
    return made


@pytest.mark.parametrize("d", [2, 3, 64, 100_000])
@pytest.mark.parametrize("beta", [0.01, 0.5, 2.0, 20.0])
def test_weights_in_40_digits(context, d, beta):
    # at beta = 20 the weights of a typical pair reach e^200; far norms make κ three times larger still
    kappa = beta * math.sqrt(d) * np.array([0.5, 1.0, 3.0])
    degrees = (0, 1, 2, 3, 8, 20)
    found = np.array([chaos.log_weights(d, kappa, range(k, k + 1))[0] for k in degrees])
    exact = np.array([[float(reference(context, d, k, degree)) for k in kappa] for degree in degrees])
    np.testing.assert_allclose(found, exact, rtol=3e-14, atol=3e-14)


def test_one_direction(context):
    # e^{±κ} = cosh κ ± sinh κ: two harmonics on the two points of the sphere
    kappa = np.array([0.01, 1.0, 20.0, 300.0])
    found = chaos.log_weights(1, kappa, range(4))
    np.testing.assert_allclose(found[0], [float(context.log(context.cosh(k))) for k in kappa], rtol=1e-14)
    np.testing.assert_allclose(found[1], [float(context.log(context.sinh(k))) for k in kappa], rtol=1e-13)
    assert (found[2:] == -np.inf).all()
    assert [chaos.log_harmonics(1, k) for k in range(4)] == [0, 0, -math.inf, -math.inf]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 10**6), st.integers(0, 40))
def test_numbers_of_harmonics(d, degree):
    exact = harmonics(d, degree)
    found = chaos.log_harmonics(float(d), degree)
    if exact == 0:
        assert found == -math.inf
    else:
        assert found == pytest.approx(float(mpmath.log(exact)), rel=1e-13, abs=1e-14)


@settings(max_examples=40, deadline=None)
@given(st.floats(1.05, 500), st.floats(1e-3, 60))
def test_squares_add_up(d, kappa):
    # Σ w_ℓ(κ)² = ∫ e^{2κ cos θ} = w_0(2κ), in any real dimension
    degrees = range(int(3 * kappa) + 60)
    squares = np.exp(2 * chaos.log_weights(d, kappa, degrees) - chaos.log_weights(d, 2 * kappa, range(1)))
    assert squares.sum() == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize(("d", "kappa"), [(3, 0.5), (3, 12.0), (8, 3.0), (64, 8.0), (64, 40.0)])
@pytest.mark.parametrize("cosine", [-0.9, 0.0, 0.3, 1.0])
def test_the_exponential_is_rebuilt(context, d, kappa, cosine):
    # Σ_a Y_a(q)Y_a(k) = D_ℓ C_ℓ^ν(cos θ)/C_ℓ^ν(1) (addition theorem), so that the sum is Σ w_ℓ √D_ℓ C_ℓ/C_ℓ(1), with
    # (ℓ + 2ν) p_{ℓ+1} = 2(ℓ + ν) cos θ p_ℓ - ℓ p_{ℓ-1} for p_ℓ = C_ℓ/C_ℓ(1)
    before, ratio = context.mpf(0), context.mpf(1)
    logs = chaos.log_weights(d, kappa, range(130))
    total = context.mpf(0)
    for degree, log_weight in enumerate(logs):
        total += context.exp(float(log_weight)) * context.sqrt(harmonics(d, degree)) * ratio
        following = ((2 * degree + d - 2) * cosine * ratio - degree * before) / (degree + d - 2)
        before, ratio = ratio, following
    largest = math.exp(kappa)  # what cancels at negative cosines
    assert abs(total - context.exp(kappa * cosine)) < 1e-13 * largest


@settings(max_examples=25, deadline=None)
@given(st.floats(0.01, 3), st.floats(2, 300), st.integers(1, 5), st.integers(1, 5), st.integers(1, 5))
def test_resolve(beta, dimension, order, row_nodes, column_nodes):
    found = chaos.resolve(beta, dimension, order, (row_nodes, column_nodes))
    shape = (row_nodes, column_nodes)
    assert found.mean.shape == found.noise.shape == shape
    assert found.cores.shape == (order, *shape)
    assert found.rows.sum() == pytest.approx(1, rel=1e-14)
    np.testing.assert_allclose(found.mean @ found.columns, 1, rtol=1e-12)
    # the expected square of e^{βS} over the angle, pair by pair of norms
    kappa = beta * np.sqrt(dimension * np.multiply.outer(found.row_nodes, found.column_nodes))
    first, second = (np.exp(chaos.log_weights(dimension, factor * kappa, range(1))[0]) for factor in (1, 2))
    squares = second / (first @ found.columns)[:, None] ** 2
    variance = (found.cores**2).sum(axis=0) + found.noise
    np.testing.assert_allclose(found.mean**2 + variance, squares, rtol=1e-11)
    assert (found.cores > 0).all()
    assert (found.noise > 0).all()
    assert found.shares.sum() == pytest.approx(1, rel=1e-12)
    level = found.rows @ variance @ found.columns
    for degree in range(1, order + 1):
        part = found.rows @ found.cores[degree - 1] ** 2 @ found.columns
        assert found.shares[degree - 1] == pytest.approx(part / level, rel=1e-10)
    assert found.log_dimensions == [chaos.log_harmonics(dimension, k) for k in range(1, order + 1)]


@pytest.mark.parametrize("beta", [0.3, 1.0, 2.0])
def test_many_nodes_integrate_the_norms(beta):
    # over all norms and angles E e^{βS} = E e^{β²r/2} = (1 - β²/d)^{-d/2}: Gaussian keys, then χ² queries
    dimension = 64
    found = chaos.resolve(beta, dimension, 2, (14, 14))
    kappa = beta * np.sqrt(dimension * np.multiply.outer(found.row_nodes, found.column_nodes))
    values = np.exp(chaos.log_weights(dimension, kappa, range(1))[0])
    np.testing.assert_allclose(values @ found.columns, np.exp(beta**2 * found.row_nodes / 2), rtol=1e-8)
    total = found.rows @ values @ found.columns
    assert total == pytest.approx((1 - beta**2 / dimension) ** (-dimension / 2), rel=1e-9)


def test_shares_of_a_wide_head_are_hermite():
    # d → ∞: degree ℓ has β^{2ℓ}/ℓ! of e^{β²} - 1, with corrections of order 1/d
    beta, d = 0.8, 1e7
    shares = chaos.resolve(beta, d, 1, (1, 1)).shares
    expected = [beta ** (2 * k) / math.factorial(k) / math.expm1(beta**2) for k in range(1, 6)]
    np.testing.assert_allclose(shares[:5], expected, rtol=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.05, 2.5), st.floats(2, 200), st.integers(10, 10**5), st.integers(2, 20))
def test_more_keys_ask_for_more(beta, dimension, keys, factor):
    few, many = (chaos.choose_order(beta, dimension, k) for k in (keys, keys * factor))
    assert 1 <= few <= many <= chaos.MAX_ORDER
    assert chaos.explained_degrees(dimension, keys) <= chaos.explained_degrees(dimension, keys * factor)
    assert chaos.explained_degrees(dimension * factor, keys) <= chaos.explained_degrees(dimension, keys)


@settings(max_examples=15, deadline=None)
@given(st.floats(2, 200), st.integers(10, 10**5))
def test_explained_degrees_by_definition(dimension, keys):
    degree = chaos.explained_degrees(dimension, keys)
    sizes = [math.exp(chaos.log_harmonics(dimension, k)) for k in range(1, chaos.MAX_ORDER + 1)]
    assert degree == max([1] + [k for k, size in enumerate(sizes, 1) if size <= 4 * keys * (1 + 1e-12)])


def test_orders_of_the_regimes():
    assert chaos.choose_order(0.5, 1000, 2000) == 1  # proportional: the theorem's own
    assert chaos.choose_order(0.5, 64, 2048) == 2  # keys ≍ D_2
    assert chaos.choose_order(0.5, 32, 1000) == 3  # keys beyond d_k²/2
    assert chaos.explained_degrees(64, 2048) == 2
    assert chaos.explained_degrees(2000, 100) == 1


def test_nodes():
    assert chaos.choose_nodes(1e-3, 64, 10**6) == 2
    wide, narrow = chaos.choose_nodes(1.0, 10_000, 10**6), chaos.choose_nodes(1.0, 16, 10**6)
    assert 2 <= wide <= narrow <= 12
    assert chaos.choose_nodes(1.0, 16, 10**6) >= chaos.choose_nodes(0.2, 16, 10**6)
    for size in (2, 30, 1000):  # no node stands for less than a row
        count = chaos.choose_nodes(2.0, 16, size)
        assert count == 2 or chaos.norm_nodes(8, count).shares.min() * size >= 1
    # the second moments of row and column norms are those of many nodes, to 2e-3
    for beta, dimension in ((0.5, 64), (1.0, 64), (1.0, 16)):
        exact, found = (
            chaos.resolve(beta, dimension, 1, (k, k)) for k in (24, chaos.choose_nodes(beta, dimension, 10**9))
        )
        levels = []
        for one in (exact, found):
            variance = one.cores[0] ** 2 + one.noise
            by_row, by_column = variance @ one.columns, one.rows @ variance
            levels.append([one.rows @ by_row, one.rows @ by_row**2, one.columns @ by_column**2])
        np.testing.assert_allclose(levels[1], levels[0], rtol=2e-3)
