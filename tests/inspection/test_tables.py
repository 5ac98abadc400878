import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gequiv
from gequiv.inspection.nulls import Sizes, bulk_spectrum, null_table, table_at, width_of
from gequiv.inspection.tables import (
    MASKED_STEP,
    STEP,
    LawTable,
    TableFamily,
    block_threshold,
    empirical_threshold,
    table_of,
    table_of_draws,
)

N, HEAD_DIM = 128, 16


def _head(beta, keys=N, **options):
    return gequiv.Attention(N, HEAD_DIM, beta, keys=keys, **options)


@functools.cache
def _solved(beta, keys=N):
    head = _head(beta, keys)
    law = head.finite_law()
    return head, law, table_of(law)


def _uniform(low, high):
    """Quantiles of the uniform law on [low, high]."""
    levels = np.sin(np.pi * (np.arange(600) + 0.5) / 1200) ** 2
    return LawTable(np.log(low + (high - low) * levels), 0.0)


# -- a table against its law ----------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [N, 200])
@pytest.mark.parametrize("beta", [0.5, 1.3])
def test_distances_agree_with_compare(beta, keys):
    """The exact distances of `gequiv.compare`, for spectra of its own β and of others."""
    _, law, table = _solved(beta, keys)
    for other in (0.5 * beta, beta, 2 * beta):
        spectrum = bulk_spectrum(_head(other, keys).sample(3), _head(other, keys))[:-1]
        found = gequiv.compare(law, spectrum)
        assert table.ks(spectrum) == pytest.approx(found.ks, abs=1e-3)
        mean = law.moment(1)
        assert table.wasserstein(spectrum) == pytest.approx(found.wasserstein, rel=0.02, abs=5e-3 * mean)
        assert table.solved


def test_functions_of_the_law():
    _, law, table = _solved(1.3)
    levels = np.linspace(0.02, 0.98, 25)
    np.testing.assert_allclose(table.quantile(levels), law.ppf(levels), rtol=5e-3)
    x = law.ppf(levels)
    np.testing.assert_allclose(table.cdf(x), levels, atol=5e-4)
    np.testing.assert_array_equal(table.cdf(np.array([0.0, 1e9])), [0, 1])


def test_hand_worked_distances():
    """Against the uniform law on [0, 1] by hand; zeros count as mass, but no gap is looked for at them."""
    table = _uniform(0.0, 1.0)
    assert table.ks(np.array([0.25, 0.5])) == pytest.approx(0.5, abs=1e-3)
    assert table.ks(np.array([0.1, 0.3, 0.5, 0.7, 0.9])) == pytest.approx(0.1, abs=1e-3)
    assert table.wasserstein(np.array([0.5])) == pytest.approx(0.25, abs=1e-3)
    assert table.wasserstein(np.array([0.75, 0.25])) == pytest.approx(0.125, abs=1e-3)
    assert table.wasserstein(np.array([2.0, 2.0])) == pytest.approx(1.5, abs=1e-3)
    assert table.ks(np.array([0.0, 0.5, 1.0])) == pytest.approx(1 / 3, abs=1e-3)
    np.testing.assert_allclose(table.cdf(np.array([0.2, 0.7])), [0.2, 0.7], atol=1e-3)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 60), st.floats(-2, 2))
def test_distances_of_samples(seed, size, log_scale):
    """Blind to order, bounded, and W₁ scales with its unit."""
    sample = np.random.default_rng(seed).uniform(0.2, 1.5, size)
    table, scale = _uniform(0.1, 1.0), math.exp(log_scale)
    scaled = LawTable(table.log_quantiles + log_scale, 0.0)
    assert 1 / (2.1 * size) < table.ks(sample) <= 1  # at least half a step
    assert table.ks(sample[::-1]) == table.ks(sample)
    assert scaled.ks(scale * sample) == pytest.approx(table.ks(sample), abs=1e-9)
    assert scaled.wasserstein(scale * sample) == pytest.approx(scale * table.wasserstein(sample), rel=1e-9)
    assert table.wasserstein(sample) >= abs(sample.mean() - 0.55) - 2e-3


def test_table_of_draws():
    """Pooled spectra, and a distance from the law of what the pool's size allows."""
    _, law, table = _solved(0.8)
    head = _head(0.8)
    spectra = [bulk_spectrum(head.sample(k), head)[:-1] for k in range(8)]
    drawn = table_of_draws(spectra, 1.0)
    assert not drawn.solved
    np.testing.assert_allclose(
        np.sort(np.concatenate(spectra))[256:768:64], drawn.quantile(np.arange(256, 768, 64) / 1015), rtol=0.02
    )
    x = law.ppf(np.linspace(0.02, 0.98, 40))
    assert np.abs(drawn.cdf(x) - table.cdf(x)).max() < 0.02
    assert drawn.log_threshold == pytest.approx(table.log_threshold, abs=0.15)


# -- between knots --------------------------------------------------------------------------------------


def test_toward():
    a, b = _solved(0.5)[2], _solved(1.3)[2]
    for share, end in ((0, a), (1, b)):
        found = a.toward(b, share)
        np.testing.assert_array_equal(found.log_quantiles, end.log_quantiles)
        assert found.log_threshold == end.log_threshold
    middle = a.toward(b, 0.25)
    expected = np.exp(a.log_threshold) ** 0.75 * np.exp(b.log_threshold) ** 0.25
    np.testing.assert_allclose(np.exp(middle.log_threshold), expected)
    assert middle.solved
    unsolved = LawTable(a.log_quantiles, a.log_threshold, solved=False)
    assert not a.toward(unsolved, 0.5).solved
    assert not unsolved.toward(a, 0.5).solved


@pytest.mark.parametrize("beta", [0.42, 0.93, 1.1])
def test_family_between_knots(beta):
    """Against the law solved at that β: 0.002 in the distribution function, as is said; 3 % in θ_c."""
    sizes = Sizes(N, N, None, HEAD_DIM, None)
    found = TableFamily(functools.partial(table_at, sizes)).at(beta)
    _, law, table = _solved(beta)
    x = law.ppf(np.linspace(0.005, 0.995, 200))
    assert np.abs(found.cdf(x) - law.cdf(x)).max() < 2e-3
    assert found.log_threshold == pytest.approx(table.log_threshold, abs=0.03)


def test_family_solves_only_what_it_needs():
    asked = []

    def solve(beta):
        asked.append(beta)
        return _uniform(0.5 * beta**2, 4 * beta**2)

    family = TableFamily(solve, MASKED_STEP)
    knots = family.knots([1.1, 1.2])
    assert [family.beta_of(k) for k in knots] == pytest.approx([1.0, 1.25])
    family.put(knots[0], solve(family.beta_of(knots[0])))
    assert family.knots([1.1]) == [knots[1]]
    # quantiles proportional to β² are interpolated exactly
    assert family.at(1.1).quantile(np.array([0.5]))[0] == pytest.approx(1.1**2 * 2.25, rel=1e-3)
    family.at(1.2)
    assert asked == pytest.approx([1.0, 1.25])
    assert family.knots([1.1, 1.2]) == []
    assert pytest.approx((math.log(1.15), math.log(1.25))) == (STEP, MASKED_STEP)


# -- sizes ----------------------------------------------------------------------------------------------


def test_sizes():
    sizes = Sizes(60, 80, "causal", 12, 48)
    head = sizes.head(0.9)
    assert (head.tokens, head.columns, head.head_dim, head.width, head.mask) == (60, 80, 12, 48, "causal")
    assert sizes.ratio == 0.25
    assert Sizes(60, 80, None, 12, None).ratio == 0
    assert width_of(12, 0.25) == 48
    assert width_of(12, 0.0) is width_of(12, 0.01) is None
    assert width_of(12, 1.0) == 12


def test_null_table_where_no_law_is_found(monkeypatch):
    """Pooled random heads stand in; they follow the law that was refused."""

    def refuse(*_, **__):
        raise gequiv.CertificationError("no law today")

    head, law, _ = _solved(0.8)
    monkeypatch.setattr(gequiv.Attention, "finite_law", refuse)
    table = null_table(head)
    assert not table.solved
    x = law.ppf(np.linspace(0.02, 0.98, 40))
    assert np.abs(table.cdf(x) - law.cdf(x)).max() < 0.02


# -- detection thresholds -------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [N, 256])
def test_threshold_of_white_scores(keys):
    """β → 0, d_k → ∞: √n_k (A - Ā) is white of variance β², edge β²(1 + √c)², θ_c = β c^{1/4} (BBP), to n/d_k."""
    beta, aspect = 0.05, N / keys
    law = gequiv.Attention(N, 40_000, beta, keys=keys).finite_law()
    table = table_of(law)
    assert law.support()[-1][1] == pytest.approx((beta * (1 + math.sqrt(aspect))) ** 2, rel=0.02)
    assert math.exp(table.log_threshold) == pytest.approx(beta * aspect**0.25, rel=0.02)


@pytest.mark.parametrize("aspect", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("variance", [0.04, 3.0])
def test_empirical_threshold_of_white_noise(aspect, variance):
    """θ_c = √v c^{1/4} from quantiles of the Marchenko–Pastur law and its edge, where G has a root: to √(1/values)."""
    law = gequiv.MarchenkoPastur(ratio=aspect, variance=variance)
    values = law.ppf((np.arange(4000) + 0.5) / 4000)
    edge = variance * (1 + math.sqrt(aspect)) ** 2
    found = math.exp(empirical_threshold(values, edge, aspect))
    assert found == pytest.approx(math.sqrt(variance) * aspect**0.25, rel=0.04)
    # the strength that is seen at x beyond the edge: x = (θ² + v)(θ² + c v)/θ²
    strength = 2 * math.sqrt(variance) * aspect**0.25
    place = (strength**2 + variance) * (strength**2 + aspect * variance) / strength**2
    assert math.exp(empirical_threshold(values, place, aspect)) == pytest.approx(strength, rel=3e-3)


def test_empirical_threshold_without_values():
    assert empirical_threshold(np.array([2.0, 3.0]), 1.0, 1.0) == math.inf
    assert empirical_threshold(np.array([0.0]), 0.0, 1.0) == math.inf


def test_threshold_by_planting():
    """Twice θ_c leaves the bulk of a softmax matrix where φφ̃ = θ⁻² says, half of θ_c does not; 6 draws each."""
    head, law, table = _solved(0.8)
    edge, threshold = law.support()[-1][1], math.exp(table.log_threshold)
    rng = np.random.default_rng(9)
    strong, weak, plain = [], [], []
    for k in range(6):
        matrix = head.sample(k)
        matrix -= 1 / N
        u, v = (w / np.linalg.norm(w) for w in (w - w.mean() for w in rng.standard_normal((2, N))))
        plane = np.outer(u, v) / math.sqrt(N)
        strong, weak, plain = (
            [*values, bulk_spectrum(matrix + size * threshold * plane, head)[0]]
            for values, size in ((strong, 2), (weak, 0.5), (plain, 0))
        )
    assert min(strong) > 1.1 * edge
    assert np.mean(np.array(weak) / plain) < 1.05
    quantiles = law.ppf((np.arange(4000) + 0.5) / 4000)
    expected = math.exp(empirical_threshold(quantiles, float(np.mean(strong)), 1.0))
    assert expected == pytest.approx(2 * threshold, rel=0.05)


@pytest.mark.parametrize("shape", [(240, 240), (200, 400), (400, 200)])
def test_block_threshold_of_white_noise(shape):
    """White noise of variance 1/n_k: θ is seen at (θ² + 1)(θ² + c)/θ², wherever its vectors sit; 2 % of 3 draws."""
    rng = np.random.default_rng(shape[0])
    rows, keys = shape
    aspect = rows / keys
    strength = 1.7 * aspect**0.25
    place = (strength**2 + 1) * (strength**2 + aspect) / strength**2
    matrices = [rng.standard_normal(shape) / math.sqrt(keys) for _ in range(3)]
    assert math.exp(block_threshold(matrices, place)) == pytest.approx(strength, rel=0.02)


def test_block_threshold_by_planting():
    """Rows of two variances: θ on the later, quiet rows is seen at the place for which it was asked; 8 draws."""
    rng = np.random.default_rng(3)
    n = 240
    scale = np.repeat([1.5, 0.6], n // 2)[:, None] / math.sqrt(n)
    matrices = [scale * rng.standard_normal((n, n)) for _ in range(8)]
    place = 1.3 * max(float(np.linalg.norm(matrix, 2)) ** 2 for matrix in matrices)
    strength = math.exp(block_threshold(matrices, place))
    u, v = np.zeros(n), np.zeros(n)
    tops = []
    for matrix in matrices:
        u[n // 2 :], v[: n // 2] = rng.standard_normal((2, n // 2))
        planted = matrix + strength * np.outer(u, v) / (np.linalg.norm(u) * np.linalg.norm(v))
        tops.append(float(np.linalg.norm(planted, 2)) ** 2)
    assert np.mean(tops) == pytest.approx(place, rel=0.05)
