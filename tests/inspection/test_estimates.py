import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gequiv.attention.freezing import log_normaliser_mean, participation
from gequiv.inspection.estimates import FEWEST_KEYS, counted, largest_entry, routes, score_shape, single_entries

KEYS, HEAD_DIM = 96, 12


def _simulated(keys, head_dim, beta, number, rng):
    """Energies and entropies of softmax rows of Gaussian scores, queries Gaussian in head_dim directions."""
    norms = np.sqrt(rng.chisquare(head_dim, number) / head_dim)
    scores = beta * norms[:, None] * rng.standard_normal((number, keys))
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    energies = keys * (weights**2).sum(axis=1) - 1
    entropies = -(weights * np.log(weights)).sum(axis=1)
    return energies, entropies


def _mean_and_error(values):
    return values.mean(), values.std(ddof=1) / math.sqrt(values.size)


@pytest.mark.parametrize("beta", [0.3, 1.0, 2.0])
def test_routes_invert_simulated_rows(beta):
    """Half of the rows over 24 keys, half over 96; β lies between the inverses of mean ± 5 standard errors (1e-6)."""
    rng = np.random.default_rng(int(10 * beta))
    few, many = (_simulated(keys, HEAD_DIM, beta, 20_000, rng) for keys in (24, KEYS))
    way = routes(((24, 50), (KEYS, 50)), HEAD_DIM)
    for small, large, inverse, direction in (
        (few[0], many[0], way.beta_of_energy, 1),
        (few[1], many[1], way.beta_of_entropy, -1),
    ):
        (a, error_a), (b, error_b) = _mean_and_error(small), _mean_and_error(large)
        mean, error = (a + b) / 2, math.hypot(error_a, error_b) / 2
        low, high = (inverse(mean + sign * direction * 5 * error) for sign in (-1, 1))
        assert low < beta < high
        assert high - low < 0.1 * beta  # so that the interval says something


def test_entropy_falls_and_energy_grows_apart_for_two_temperatures():
    """Rows of β = 0.5 and of β = 2 mixed are not those of any β: the routes differ, energy weighing the hot ones."""
    rng = np.random.default_rng(5)
    cool, hot = (_simulated(KEYS, 64, b, 4000, rng) for b in (0.5, 2.0))
    mixed = [np.concatenate(pair) for pair in zip(cool, hot, strict=True)]
    way = routes(((KEYS, 1),), 64)
    by_energy, by_entropy = way.beta_of_energy(mixed[0].mean()), way.beta_of_entropy(mixed[1].mean())
    assert 0.5 < by_entropy < 0.95 * by_energy < 2


@pytest.mark.parametrize("beta", [0.01, 0.05, 0.4, 1.0, 2.5])
def test_routes_invert_closed_forms(beta):
    """Energy k p - 1, entropy L - βL' by a central difference of L: quadratures of another module."""
    way = routes(((KEYS, 7),), HEAD_DIM)
    energy = KEYS * participation(KEYS, beta, head_dim=HEAD_DIM) - 1
    assert way.beta_of_energy(energy) == pytest.approx(beta, rel=1e-3)

    def normaliser(b):
        return math.log(KEYS) + b**2 / 2 + log_normaliser_mean(KEYS, b, head_dim=HEAD_DIM)

    step = 1e-3 * beta
    slope = (normaliser(beta + step) - normaliser(beta - step)) / (2 * step)
    assert way.beta_of_entropy(normaliser(beta) - beta * slope) == pytest.approx(beta, rel=2e-3)


@pytest.mark.parametrize("keys", [16, 200])
def test_routes_at_high_temperature(keys):
    """A = (1 + βS - βS̄)/k to first order: energy β²(1 - 1/k), entropy log k - β²(1 - 1/k)/2."""
    way = routes(((keys, 3),), HEAD_DIM)
    for beta in (1e-4, 1e-3, 5e-3):
        energy = beta**2 * (1 - 1 / keys)
        assert way.beta_of_energy(energy) == pytest.approx(beta, rel=1e-3)
        assert way.beta_of_entropy(math.log(keys) - energy / 2) == pytest.approx(beta, rel=1e-3)


def test_routes_beyond_their_range():
    way = routes(((KEYS, 1),), HEAD_DIM)
    assert way.beta_of_energy(0.0) == way.beta_of_energy(-0.1) == 0
    assert way.beta_of_entropy(math.log(KEYS)) == way.beta_of_entropy(5.0) == 0
    assert way.beta_of_energy(KEYS - 1) == math.inf  # one-hot rows
    assert way.beta_of_entropy(0.0) == math.inf
    assert way.cold == pytest.approx(math.log(KEYS))


def test_many_counts_are_interpolated():
    """Rows of a causal mask: the mean over all counts of k p(k) - 1, one by one."""
    counts = tuple((k, 1) for k in range(16, 81, 4))
    way = routes(counts, HEAD_DIM)
    energy = np.mean([k * participation(k, 0.7, head_dim=HEAD_DIM) - 1 for k, _ in counts])
    assert way.beta_of_energy(energy) == pytest.approx(0.7, rel=2e-3)


def test_counted():
    assert counted(np.array([1, 2, 15, 16, 40, 40])) == ((16, 1), (40, 2))
    assert counted(np.array([3, 5, 5])) == ((5, 2),)  # none has enough: those of the most keys
    assert counted(np.full(4, 300)) == ((300, 4),)
    assert FEWEST_KEYS == 16


# -- shape of the scores --------------------------------------------------------------------------------


def _scores(n, m, head_dim, rng, width=None):
    """Scores of variance one: of orthonormal tokens, or of n = m Gaussian tokens of that width, x W_Q W_Kᵀ xᵀ."""
    if width is None:
        left, right = rng.standard_normal((n, head_dim)), rng.standard_normal((m, head_dim))
    else:
        tokens = rng.standard_normal((n, width)) / math.sqrt(width)
        other = tokens if n == m else rng.standard_normal((m, width)) / math.sqrt(width)
        left, right = tokens @ rng.standard_normal((width, head_dim)), other @ rng.standard_normal((width, head_dim))
    return left @ right.T / math.sqrt(head_dim)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(16, 40), st.integers(16, 40), st.floats(0.01, 30.0), st.floats(0.0, 100.0))
def test_score_shape_is_blind_to_constants(seed, n, m, size, shift):
    """β² is the doubly centred sum of squares over its (n - 1)(m - 1) degrees of freedom, here by projections."""
    rng = np.random.default_rng(seed)
    scores = size * _scores(n, m, 6, rng)
    left, right = np.eye(n) - 1 / n, np.eye(m) - 1 / m
    beta = math.sqrt(((left @ scores @ right) ** 2).sum() / ((n - 1) * (m - 1)))
    plain = score_shape(scores)
    moved = score_shape(scores + shift * rng.standard_normal((n, 1)) + shift * rng.standard_normal(m))
    assert plain.head_dim == 6
    assert plain.beta == pytest.approx(beta, rel=1e-9)
    assert moved.head_dim == 6
    assert moved.beta == pytest.approx(beta, rel=1e-6)
    assert moved.ratio == pytest.approx(plain.ratio, abs=1e-6)
    assert moved.directions == pytest.approx(plain.directions, rel=1e-6)


@pytest.mark.parametrize(("n", "m"), [(96, 96), (60, 150), (150, 60)])
def test_rank_and_ratio_of_orthonormal_tokens(n, m):
    """Rank d_k, ratio 0: its mean over 20 draws, clipped at 0, is below 0.05; β is 1 to 5 deviations.

    The variance of the scores' mean square is 2/(n d_k) + 2/(m d_k) + 2/(nm), up to smaller terms.
    """
    rng = np.random.default_rng(n)
    head_dim = 16
    shapes = [score_shape(_scores(n, m, head_dim, rng)) for _ in range(20)]
    assert {shape.head_dim for shape in shapes} == {head_dim}
    assert np.mean([shape.ratio for shape in shapes]) < 0.05
    deviation = math.sqrt((2 / n + 2 / m) / head_dim + 2 / (n * m))
    assert np.mean([shape.beta**2 for shape in shapes]) == pytest.approx(1, abs=5 * deviation / math.sqrt(20))
    assert np.mean([shape.directions for shape in shapes]) == pytest.approx(head_dim, rel=0.05)


@pytest.mark.parametrize(("n", "m"), [(160, 160), (100, 160)])
@pytest.mark.parametrize("ratio", [0.25, 0.5, 1.0])
def test_ratio_of_gaussian_tokens(n, m, ratio):
    """Mean over 16 draws within 0.06 and 5 of its standard errors; d_k/(1 + r)² directions within 8 %."""
    rng = np.random.default_rng(round(100 * ratio) + n)
    head_dim = 16
    shapes = [score_shape(_scores(n, m, head_dim, rng, round(head_dim / ratio))) for _ in range(16)]
    assert {shape.head_dim for shape in shapes} == {head_dim}
    mean, error = _mean_and_error(np.array([shape.ratio for shape in shapes]))
    assert error < 0.05
    assert mean == pytest.approx(ratio, abs=0.06 + 5 * error)
    directions = np.mean([shape.directions for shape in shapes])
    assert directions == pytest.approx(head_dim / (1 + ratio) ** 2, rel=0.08 + 5 * error)


@pytest.mark.parametrize("head_dim", [2, 3, 4, 5, 6])
def test_few_inner_directions(head_dim):
    """As many directions as d_k for orthonormal tokens, within a third: 1/Σ shares² of d_k alike shares."""
    rng = np.random.default_rng(head_dim)
    shape = score_shape(_scores(200, 200, head_dim, rng))
    assert shape.head_dim == head_dim
    assert shape.directions == pytest.approx(head_dim, rel=1 / 3)
    assert shape.ratio < 0.2


def test_planted_direction_leaves_the_ratio():
    """A rank-one part twenty times as strong as the others moves the ratio by O(1/d_k), and β by its own energy."""
    rng = np.random.default_rng(8)
    n, head_dim = 128, 20
    for width in (None, 40):
        scores = _scores(n, n, head_dim, rng, width)
        u, v = rng.standard_normal(n), rng.standard_normal(n)
        u, v = (w - w.mean() for w in (u, v))
        u, v = u / np.linalg.norm(u), v / np.linalg.norm(v)
        strength = 20 * np.linalg.norm(scores, 2)
        plain = score_shape(scores, head_dim)
        planted = score_shape(scores + strength * np.outer(u, v), head_dim)
        assert abs(planted.ratio - plain.ratio) < 0.1
        own = strength**2 / (n - 1) ** 2
        assert planted.beta**2 == pytest.approx(plain.beta**2 + own, rel=0.05)
        assert score_shape(scores + strength * np.outer(u, v)).head_dim == head_dim + 1


def test_full_rank_scores():
    """White scores have no rank; there is no inner space, so that the number of directions is large."""
    scores = np.random.default_rng(3).standard_normal((120, 120))
    shape = score_shape(scores)
    assert shape.head_dim is None
    assert shape.ratio == 0
    assert shape.beta == pytest.approx(1, abs=5 * math.sqrt(2) / 120 / 2)  # 5 standard deviations
    assert shape.directions > 500


def test_scores_that_do_not_vary():
    rng = np.random.default_rng(1)
    rows, columns = rng.standard_normal((30, 1)), rng.standard_normal(20)
    assert score_shape(np.full((30, 20), 3.7)) is None
    assert score_shape(np.zeros((30, 20))) is None
    assert score_shape(rows + columns) is None


def test_scores_of_constant_rows_do_not_vary():
    rows = np.random.default_rng(0).standard_normal((30, 1))
    assert score_shape(rows + np.zeros(20)) is None


def test_score_shape_leaves_its_input():
    scores = np.random.default_rng(2).standard_normal((20, 30))
    before = scores.copy()
    score_shape(scores)
    np.testing.assert_array_equal(scores, before)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_few_tokens(n):
    """A shape whose β is the doubly centred one, however small the head is."""
    scores = np.eye(2) if n == 2 else np.random.default_rng(n).standard_normal((n, n))
    centre = np.eye(n) - 1 / n
    shape = score_shape(scores, 2)
    assert shape.beta == pytest.approx(np.linalg.norm(centre @ scores @ centre) / (n - 1), rel=1e-9)
    assert 0 <= shape.ratio <= 1


# -- single entries -------------------------------------------------------------------------------------


def test_single_entries_of_drawn_scores():
    """Counted in 4·10⁶ products of Gaussian vectors, as many of them as the formula says; 5 standard deviations."""
    rng = np.random.default_rng(11)
    directions, beta, keys = 16, 0.8, 300
    scores = np.concatenate(
        [
            np.einsum(
                "ij,ij->i", rng.standard_normal((200_000, directions)), rng.standard_normal((200_000, directions))
            )
            for _ in range(20)
        ]
    ) / math.sqrt(directions)
    log_squares = 2 * (beta * scores - beta**2 / 2) - math.log(keys)  # of √k A_ij
    for level in np.quantile(log_squares, (0.9, 0.999, 0.9999)):
        expected = single_entries(level, beta, ((keys, 1),), directions) / keys * scores.size
        assert np.count_nonzero(log_squares > level) == pytest.approx(expected, abs=5 * math.sqrt(expected))


@given(st.floats(1e-3, 0.1), st.floats(0.05, 3), st.integers(2, 400), st.floats(1.0, 500))
def test_largest_entry_is_the_inverse(expected, beta, keys, directions):
    counts = ((keys, 7), (2 * keys, 5))
    value = largest_entry(expected, beta, counts, directions)
    assert single_entries(value, beta, counts, directions) == pytest.approx(expected, rel=1e-6)
    more = single_entries(value, beta, ((keys, 14), (2 * keys, 10)), directions)
    assert more == pytest.approx(2 * expected, rel=1e-6)
