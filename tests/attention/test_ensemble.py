"""Drawing attention matrices, and their spectra by the Gram route."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.linalg import svdvals

from gequiv import Attention, ParameterError
from gequiv.attention import ensemble

SIZES = [
    {"tokens": 60, "head_dim": 20},
    {"tokens": 60, "head_dim": 20, "keys": 40},
    {"tokens": 40, "head_dim": 90, "keys": 60},
    {"tokens": 60, "head_dim": 20, "width": 30},
    {"tokens": 60, "head_dim": 20, "width": 30, "keys": 40},
    {"tokens": 60, "head_dim": 20, "width": 30, "covariance": [0.5, 1.0, 1.5]},
]


@pytest.mark.parametrize("sizes", SIZES)
def test_rows_sum_to_one(sizes):
    head = Attention(beta=1.5, **sizes)
    matrix = head.sample(np.random.default_rng(1))
    assert matrix.shape == (head.tokens, head.columns)
    assert (matrix > 0).all()
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-14)


@pytest.mark.parametrize("sizes", SIZES)
def test_spectrum_is_that_of_the_centred_matrix(sizes):
    head = Attention(beta=1.5, **sizes)
    matrix = head.sample(np.random.default_rng(2))
    values = head.spectrum(np.random.default_rng(2))
    direct = np.sort(svdvals(math.sqrt(head.columns) * (matrix - 1 / head.columns)) ** 2)
    assert values.shape == (head.tokens,)
    surplus = max(0, head.tokens - head.columns)
    assert (values[:surplus] == 0).all()
    np.testing.assert_allclose(values[surplus:], direct, atol=1e-12 * direct[-1])
    assert (np.diff(values) >= 0).all()
    assert (values >= 0).all()


def test_a_seed_is_a_generator():
    head = Attention(tokens=30, head_dim=10, beta=1.0)
    assert (head.sample(5) == head.sample(np.random.default_rng(5))).all()
    for bad in (None, -1, 1.5, "a", np.random.RandomState(1)):
        with pytest.raises(ParameterError, match="rng must be a numpy"):
            head.sample(bad)


@pytest.mark.parametrize("sizes", SIZES)
def test_scores_have_variance_one(sizes):
    head = Attention(beta=1.0, **sizes)
    rng = np.random.default_rng(3)
    squares = [np.mean(ensemble.draw_scores(head, rng) ** 2) for _ in range(400)]
    error = np.std(squares, ddof=1) / math.sqrt(len(squares))
    # off-diagonal entries have variance one; with shared tokens the n diagonal ones have 1 + O(1) more
    diagonal = 2 / head.tokens if head.width is not None and head.columns == head.tokens else 0
    assert np.mean(squares) == pytest.approx(1, abs=5 * error + diagonal + 1e-3)


def test_shared_tokens_are_shared_only_in_self_attention():
    """E S_ii over the weights vanishes, but S_ii² sees x_i twice: E S_ii² = 1 + 2/d against 1 with two token sets."""
    rng = np.random.default_rng(4)
    own = Attention(tokens=50, head_dim=4, beta=1.0, width=2)
    two = Attention(tokens=50, head_dim=4, beta=1.0, width=2, keys=51)
    own_diagonal, two_diagonal = [], []
    for _ in range(4000):
        own_diagonal.append(np.mean(np.diag(ensemble.draw_scores(own, rng)) ** 2))
        two_diagonal.append(np.mean(np.diag(ensemble.draw_scores(two, rng)) ** 2))
    # E (x'W_Q W_K'x)²/d_k = E |x|⁴/d² = 1 + 2/d
    for values, expected in ((own_diagonal, 2.0), (two_diagonal, 1.0)):
        error = np.std(values, ddof=1) / math.sqrt(len(values))
        assert np.mean(values) == pytest.approx(expected, abs=5 * error)


def test_large_beta_does_not_overflow():
    matrix = Attention(tokens=50, head_dim=5, beta=1e4).sample(np.random.default_rng(6))
    assert np.isfinite(matrix).all()
    np.testing.assert_allclose(matrix.sum(axis=1), 1)


def test_covariance_must_divide_the_width_to_draw():
    head = Attention(tokens=50, head_dim=5, beta=1.0, width=10, covariance=[0.5, 1.0, 1.5])
    with pytest.raises(ParameterError, match="covariance has 3 eigenvalues, which do not divide the width 10"):
        head.sample(np.random.default_rng(1))
    assert head.limit_law().moment(1) > 0


def test_linear_model_has_the_variance_of_attention():
    head = Attention(tokens=400, head_dim=200, beta=0.8)
    rng = np.random.default_rng(8)
    matrices = [ensemble.draw_linear_model(head, rng) for _ in range(10)]
    total = [np.sum(m**2) / head.tokens for m in matrices]
    error = np.std(total, ddof=1) / math.sqrt(len(total))
    assert np.mean(total) == pytest.approx(math.expm1(0.64), abs=5 * error)
