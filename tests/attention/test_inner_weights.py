"""Inner weights: Gauss quadratures of discrete measures, from moments, of untrained heads, of products and of norms."""

from __future__ import annotations

import itertools
import math
import time
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gequiv.attention.inner_weights import (
    Quadrature,
    compress,
    effective_dimension,
    expected_weights,
    from_moments,
    norm_nodes,
    of_weights,
    products,
    squared_products,
)
from gequiv.errors import CertificationError, ParameterError

NARROW, SQUARE, WIDE = (768, 64), (64, 64), (32, 64)
COVARIANCE = (1.6, 0.9, 0.5)


def assert_measure(rule, count, low=0.0, high=math.inf):
    assert 1 <= rule.nodes.size == rule.shares.size <= count
    assert rule.nodes[0] >= low
    assert rule.nodes[-1] <= high
    assert (np.diff(rule.nodes) > 0).all()
    assert (rule.shares > 0).all()
    assert rule.shares.sum() == pytest.approx(1, abs=1e-14)


def assert_moments(rule, nodes, shares, count):
    """Moments below 2 count, to rounding of (largest node)^k."""
    nodes, shares = np.asarray(nodes), np.asarray(shares) / np.sum(shares)
    top = nodes.max() or 1.0
    for k in range(2 * count):
        assert rule.shares @ (rule.nodes / top) ** k == pytest.approx(shares @ (nodes / top) ** k, abs=1e-13), k


def fuss_catalan(k):
    return math.comb(3 * k, k) // (2 * k + 1)


# -- compress -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 5, 10, 20])
def test_many_atoms(count):
    rng = np.random.default_rng(1)
    nodes, shares = rng.gamma(2.0, size=100_000), rng.uniform(size=100_000)
    rule = compress(nodes, shares, count)
    assert rule.nodes.size == count
    assert_measure(rule, count, nodes.min(), nodes.max())
    assert_moments(rule, nodes, shares, count)


@pytest.mark.parametrize("count", [3, 8, 16])
def test_widely_spread_scales(count):
    nodes = np.append(np.geomspace(1e-8, 1e3, 3000), 0.0)
    rule = compress(nodes, np.ones(nodes.size), count)
    assert_measure(rule, count, 0.0, 1e3)
    assert_moments(rule, nodes, np.ones(nodes.size), count)


def test_few_atoms_come_back():
    rule = compress([3.0, 0.0, 1.0, 3.0, 7.0], [1.0, 2.0, 4.0, 1.0, 0.0], 3)
    np.testing.assert_array_equal(rule.nodes, [0.0, 1.0, 3.0])
    np.testing.assert_array_equal(rule.shares, [0.25, 0.5, 0.25])


@pytest.mark.parametrize("spread", [1e-16, 1e-12, 1e-6])
def test_clusters_are_atoms(spread):
    """Three clusters that are narrow against their distances: Lanczos breaks down, or finds more nodes of no share."""
    nodes = np.concatenate([c * (1 + spread * np.linspace(-1, 1, 50)) for c in (0.5, 1.0, 4.0)])
    rule = compress(nodes, np.ones(150), 8)
    assert_measure(rule, 8, nodes.min(), nodes.max())
    assert_moments(rule, nodes, np.ones(150), 8)
    for centre in (0.5, 1.0, 4.0):
        close = np.abs(rule.nodes / centre - 1) <= 2 * spread + 1e-14
        assert rule.shares[close].sum() == pytest.approx(1 / 3, abs=1e-13)


def test_legendre():
    """The Riemann sum of [0, 2] on the nodes of a fine Gauss rule has the Gauss–Legendre rule for its quadrature."""
    fine, weights = np.polynomial.legendre.leggauss(60)
    rule = compress(1 + fine, weights, 7)
    nodes, shares = np.polynomial.legendre.leggauss(7)
    np.testing.assert_allclose(rule.nodes, 1 + nodes, atol=1e-14)
    np.testing.assert_allclose(rule.shares, shares / 2, atol=1e-14)


@settings(max_examples=150, deadline=None)
@given(
    atoms=st.lists(
        st.tuples(st.just(0.0) | st.floats(1e-8, 1e3), st.floats(0.0, 1.0) | st.floats(1e-12, 1e-6)),
        min_size=1,
        max_size=60,
    ).filter(lambda atoms: sum(s for _, s in atoms) > 1e-12),
    count=st.integers(1, 12),
    scale=st.sampled_from([1e-150, 1.0, 1e150]),
)
def test_compress_properties(atoms, count, scale):
    nodes, shares = scale * np.array([x for x, _ in atoms]), np.array([s for _, s in atoms])
    present = nodes[shares > 0]
    rule = compress(nodes, shares, count)
    assert_measure(rule, count, present.min(), present.max())
    assert_moments(rule, nodes, shares, count)


# -- from_moments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 6, 15])
def test_moments_of_the_exponential_law(count):
    """m_k = k!: Gauss–Laguerre."""
    rule = from_moments([math.factorial(k) for k in range(2 * count)], count, 80)
    nodes, shares = np.polynomial.laguerre.laggauss(count)
    np.testing.assert_allclose(rule.nodes, nodes, rtol=1e-12)
    np.testing.assert_allclose(rule.shares, shares, atol=1e-14)


@pytest.mark.parametrize("count", [4, 5, 9])
def test_finitely_many_atoms_are_found(count):
    nodes, shares = [Fraction(0), Fraction(1, 3), Fraction(2), Fraction(7, 2)], [Fraction(n, 10) for n in (1, 2, 3, 4)]
    moments = [sum(s * x**k for x, s in zip(nodes, shares, strict=True)) for k in range(2 * count)]
    rule = from_moments(moments, count, 60)
    np.testing.assert_allclose(rule.nodes, [0, 1 / 3, 2, 3.5], atol=1e-14)
    np.testing.assert_allclose(rule.shares, [0.1, 0.2, 0.3, 0.4], atol=1e-14)


def test_atom_at_zero_alone():
    rule = from_moments([1, 0, 0, 0], 2, 30)
    assert (rule.nodes.tolist(), rule.shares.tolist()) == ([0.0], [1.0])


def test_moments_of_no_measure_are_refused():
    with pytest.raises(CertificationError, match="no measure has these moments up to order 2"):
        from_moments([1, 1, Fraction(1, 2), 1], 2, 30)


@settings(max_examples=60, deadline=None)
@given(
    atoms=st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 100)), min_size=2, max_size=30),
    count=st.integers(1, 8),
)
def test_moments_and_lanczos_agree(atoms, count):
    total = sum(s for _, s in atoms)
    moments = [Fraction(sum(s * x**k for x, s in atoms), total) for k in range(2 * count)]
    nodes, shares = [float(x) for x, _ in atoms], [float(s) for _, s in atoms]
    rule = from_moments(moments, count, 150)
    assert_measure(rule, count, high=max(nodes) * (1 + 1e-14))
    assert_moments(rule, nodes, shares, count)
    twin = compress(nodes, shares, count)
    assert rule.nodes.size == twin.nodes.size
    np.testing.assert_allclose(rule.nodes, twin.nodes, atol=1e-7 * (1 + max(nodes)))


# -- expected_weights -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 8, 20])
def test_square_heads_are_fuss_catalan(count):
    rule = expected_weights(64, 64, None, count)
    assert_measure(rule, count, high=27 / 4)
    for k in range(2 * count):
        assert rule.moment(k) == pytest.approx(fuss_catalan(k), rel=1e-13)


@pytest.mark.parametrize(("width", "head_dim"), [NARROW, SQUARE, WIDE, (4096, 128), (1, 10**5), (10**8, 1)])
def test_moments_of_two_marchenko_pasturs(width, head_dim):
    """S-transform (1 + ru)^{-2}, r = d_k/d: ψ⁻¹ = u/((1+u)(1+ru)²), m_k = Σ_i binom(k, i+1) binom(2k, i) r^i / k."""
    ratio = Fraction(head_dim, width)
    rule = expected_weights(head_dim, width, None, 10)
    assert rule.moment(1) == pytest.approx(1, abs=1e-14)
    for k in range(1, 20):
        expected = sum(math.comb(k, i + 1) * math.comb(2 * k, i) * ratio**i for i in range(k)) / k
        assert rule.moment(k) == pytest.approx(float(expected), rel=1e-12)


def test_moments_of_a_covariance():
    """Against the S-transform inverted numerically: ψ at u, the mean of the quadrature's wζ/(1 - wζ), for small ζ."""
    width, head_dim = 48, 64
    rule = expected_weights(head_dim, width, COVARIANCE, 12)
    ratio, eigenvalues = head_dim / width, np.array(COVARIANCE) / np.mean(COVARIANCE)
    for u in (-0.3, -0.05, 0.02):
        chi = mpmath.findroot(lambda z, u=u: np.mean([z * e / (1 - ratio * z * e) for e in eigenvalues]) - u, u)
        zeta = float(chi**2 / (u * (1 + u)))
        assert rule.shares @ (rule.nodes * zeta / (1 - rule.nodes * zeta)) == pytest.approx(u, rel=1e-4)


def test_scale_and_order_of_the_covariance_do_not_matter():
    reference = expected_weights(64, 96, COVARIANCE, 8)
    for covariance in ((0.5, 1.6, 0.9), tuple(1e9 * v for v in COVARIANCE), COVARIANCE * 4):
        rule = expected_weights(64, 96, covariance, 8)
        np.testing.assert_allclose(rule.nodes, reference.nodes, rtol=1e-12)
        np.testing.assert_allclose(rule.shares, reference.shares, rtol=1e-11)
    np.testing.assert_allclose(expected_weights(64, 96, (2.0,), 8).nodes, expected_weights(64, 96, None, 8).nodes)


@pytest.mark.parametrize(
    ("width", "covariance", "atom"),
    [(8, None, 7 / 8), (32, None, 1 / 2), (16, (3.0, 1.0), 3 / 4), (32, (1.0, 1.0, 0.0, 0.0), 3 / 4)],
)
def test_atom_at_zero(width, covariance, atom):
    """Rank r < d_k = 64: the least share exceeds 1 - r/d_k by O(1/count): Richardson's extrapolation."""
    rules = [expected_weights(64, width, covariance, count) for count in (8, 16, 32)]
    shares = [rule.shares[0] for rule in rules]
    assert shares[0] > shares[1] > shares[2] > atom
    extrapolated = [2 * b - a for a, b in itertools.pairwise(shares)]
    assert abs(extrapolated[1] - atom) < abs(extrapolated[0] - atom) / 2
    assert (4 * extrapolated[1] - extrapolated[0]) / 3 == pytest.approx(atom, abs=1e-3)
    assert rules[2].nodes[0] < 1e-2


def test_zero_covariance_is_refused():
    with pytest.raises(ParameterError, match="must not all be zero"):
        expected_weights(64, 96, (0.0, 0.0), 8)


def draw_weights(rng, width, head_dim, covariance):
    """Eigenvalues of (W_Qᵀ Σ W_Q)(W_Kᵀ Σ W_K), tr Σ = d."""
    values = np.resize(np.array([1.0] if covariance is None else covariance), width)
    root = np.sqrt(values / values.mean())[:, None]
    q, k = (root * rng.standard_normal((width, head_dim)) / math.sqrt(width) for _ in range(2))
    left, right = (np.linalg.qr(m, mode="r") for m in (q, k))
    weights = np.zeros(head_dim)
    singular = np.linalg.svd(left @ right.T, compute_uv=False)
    weights[: singular.size] = singular**2
    return weights


SIMULATED = [
    (*NARROW, None, 40),
    (4096, 128, None, 4),
    (*SQUARE, None, 60),
    (*WIDE, None, 60),
    (48, 64, COVARIANCE, 60),
]


@pytest.mark.parametrize(("width", "head_dim", "covariance", "draws"), SIMULATED)
def test_simulated_weights(width, head_dim, covariance, draws):
    """Second moment against its exact value at finite sizes, by a t-like ratio that fails at 5 standard errors (of
    probability below 1e-5 from 40 draws on, 2 % at 4 draws); the distribution function by Chebyshev's inequalities:
    that of the law lies between the partial sums of the shares below and at each node. Allowed on top: 2/d_k, what
    the eigenvalues move by (they are rigid, their number below a point fluctuates by O(√log d_k))."""
    rng = np.random.default_rng(20)
    weights = np.array([draw_weights(rng, width, head_dim, covariance) for _ in range(draws)])
    values = np.array([1.0] if covariance is None else covariance)
    s = np.mean(values**2) / np.mean(values) ** 2 / width
    exact = 1 + 2 * (head_dim + 1) * s + (head_dim + 3) * s**2
    seconds = (weights**2).mean(axis=1)
    assert abs(seconds.mean() - exact) < 5 * seconds.std(ddof=1) / math.sqrt(draws)
    rule = expected_weights(head_dim, width, covariance, 12)
    assert rule.moment(2) == pytest.approx(1 + 2 * head_dim * s, rel=1e-13)
    assert rule.moment(2) == pytest.approx(exact, rel=3 / min(width, head_dim))
    scaled = weights / weights.mean()
    sums = np.append(0.0, np.cumsum(rule.shares))
    for i, node in enumerate(rule.nodes):
        assert sums[i] - 2 / head_dim < np.mean(scaled <= node) < sums[i + 1] + 2 / head_dim


# -- products -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("degree", [1, 2, 3, 5])
def test_products(degree):
    factor = expected_weights(64, 768, None, 12)
    rule = products(factor, degree, 8)
    assert_measure(rule, 8, high=factor.nodes[-1] ** degree)
    for k in range(16):
        assert rule.moment(k) == pytest.approx(factor.moment(k) ** degree, rel=1e-12)


def test_products_of_a_measure_of_other_mean():
    rule = products(Quadrature(np.array([0.0, 2.0, 6.0]), np.array([0.25, 0.25, 0.5])), 2, 10)
    np.testing.assert_allclose(rule.nodes * 3.5**2, [0, 4, 12, 36], atol=1e-14)
    np.testing.assert_allclose(rule.shares, [1 - 0.75**2, 1 / 16, 1 / 4, 1 / 4], rtol=1e-14)


def test_squared_products_listed():
    rule = squared_products([3.0, 1.0, 0.0], 10)
    np.testing.assert_allclose(rule.nodes * 13 / 6, [0, 1, 3, 9], rtol=1e-15)
    np.testing.assert_allclose(rule.shares, [1 / 2, 1 / 6, 1 / 6, 1 / 6], rtol=1e-15)


def test_squared_products_moments():
    """Σ_{a≤b} (w_a w_b)^k = ((Σ w^k)² + Σ w^{2k})/2."""
    weights = np.random.default_rng(3).gamma(2.0, size=512)
    start = time.perf_counter()
    rule = squared_products(weights, 10)
    assert time.perf_counter() - start < 2
    assert_measure(rule, 10)
    raw = [(np.sum(weights**k) ** 2 + np.sum(weights ** (2 * k))) / 2 for k in range(20)]
    for k in range(20):
        assert rule.moment(k) == pytest.approx(raw[k] / raw[0] / (raw[1] / raw[0]) ** k, rel=1e-11)


def test_listed_weights():
    rule = of_weights([2e-200, 6e-200], 5)
    np.testing.assert_allclose(rule.nodes, [0.5, 1.5], rtol=1e-15)
    np.testing.assert_array_equal(rule.shares, [0.5, 0.5])


@pytest.mark.parametrize(
    "call",
    [
        lambda: of_weights([0.0, 0.0], 3),
        lambda: squared_products([0.0, 0.0], 3),
        lambda: effective_dimension([0.0], 1),
        lambda: products(Quadrature(np.zeros(1), np.ones(1)), 2, 3),
    ],
)
def test_weights_all_zero_are_refused(call):
    with pytest.raises(ParameterError, match="must not all be zero"):
        call()


def test_effective_dimension():
    assert effective_dimension(np.full(32, 0.3), 32) == pytest.approx(32, rel=1e-14)
    assert effective_dimension([1.0, 0.0, 0.0, 0.0], 4) == pytest.approx(1, rel=1e-14)
    assert effective_dimension([1.0, 3.0], 2) == pytest.approx(2 * 4 / 5, rel=1e-14)
    assert effective_dimension(Quadrature(np.array([1.0, 3.0]), np.array([0.5, 0.5])), 2) == pytest.approx(1.6)
    assert effective_dimension(expected_weights(64, 64, None, 4), 64) == pytest.approx(64 / 3, rel=1e-13)


def test_quadratures_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        norm_nodes(2.0, 3).nodes[0] = 1.0


# -- norms ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 4, 12, 40, 150])
@pytest.mark.parametrize("shape", [0.25, 0.5, 1.0, 16.0, 32.0, 5e3, 1e8])
def test_moments_of_norms(shape, count):
    """E r^k = Γ(shape + k)/(Γ(shape) shape^k); the sum in 50 digits, as the largest nodes have the least shares."""
    rule = norm_nodes(shape, count)
    assert rule.nodes.size == count
    assert_measure(rule, count)
    with mpmath.workdps(50):
        s = mpmath.mpf(shape)
        for k in range(0, 2 * count, 1 + count // 10):
            terms = (mpmath.mpf(w) * mpmath.mpf(x) ** k for x, w in zip(rule.nodes, rule.shares, strict=True))
            assert abs(mpmath.fsum(terms) / (mpmath.rf(s, k) / s**k) - 1) < 1e-12 * count


def test_laguerre():
    nodes, shares = np.polynomial.laguerre.laggauss(15)
    rule = norm_nodes(1.0, 15)
    np.testing.assert_allclose(rule.nodes, nodes, rtol=1e-12)
    np.testing.assert_allclose(rule.shares, shares, rtol=1e-11)


def test_hermite():
    """χ²_1 is the square of a Gaussian: the even Gauss–Hermite rule of 2 count nodes."""
    nodes, shares = np.polynomial.hermite_e.hermegauss(20)
    rule = norm_nodes(0.5, 10)
    np.testing.assert_allclose(rule.nodes, nodes[10:] ** 2, rtol=1e-12)
    np.testing.assert_allclose(rule.shares, 2 * shares[10:] / math.sqrt(2 * math.pi), rtol=1e-11)


def test_large_shape_is_gaussian():
    """√shape (r - 1) → N(0,1), with corrections of O(shape^{-1/2})."""
    nodes, shares = np.polynomial.hermite_e.hermegauss(7)
    rule = norm_nodes(1e8, 7)
    np.testing.assert_allclose(1e4 * (rule.nodes - 1), nodes, atol=3e-3)
    np.testing.assert_allclose(rule.shares, shares / math.sqrt(2 * math.pi), atol=3e-3)


@settings(max_examples=60, deadline=None)
@given(shape=st.floats(0.25, 1e8), count=st.integers(1, 30))
def test_norm_nodes_properties(shape, count):
    rule = norm_nodes(shape, count)
    assert rule.nodes.size == count
    assert_measure(rule, count)
    assert rule.moment(1) == pytest.approx(1, abs=1e-14)
    if count > 1:
        assert rule.moment(2) == pytest.approx(1 + 1 / shape, rel=1e-13)
