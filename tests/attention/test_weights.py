"""Heads of given weights: β and inner weights against dense algebra, draws against their moments."""

from __future__ import annotations

import dataclasses
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import sqrtm

from gequiv import Attention, ParameterError
from gequiv.attention import ensemble
from gequiv.attention.weights import HeadWeights


def weights(d=12, d_k=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((d, d_k)), rng.standard_normal((d, d_k))


def covariance_matrix(d=12, seed=1, rank=None):
    root = np.random.default_rng(seed).standard_normal((d, d if rank is None else rank))
    return root @ root.T / d


def dense(W_Q, W_K, covariance, scale):
    """M by a matrix square root, and its squared singular values as eigenvalues of M Mᵀ."""
    root = np.real(sqrtm(covariance))
    M = scale * root @ W_Q @ W_K.T @ root
    return M, np.sort(np.linalg.eigvalsh(M @ M.T))[::-1]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 1000), st.floats(0.01, 30))
def test_beta_and_inner_weights_against_a_dense_computation(d, d_k, seed, scale):
    W_Q, W_K = weights(d, d_k, seed)
    covariance = covariance_matrix(d, seed + 1)
    head = Attention.from_weights(W_Q, W_K, tokens=30, covariance=covariance, scale=scale)
    M, squares = dense(W_Q, W_K, covariance, scale)
    assert head.beta == pytest.approx(np.linalg.norm(M), rel=1e-9)
    assert head.beta == pytest.approx(math.sqrt(np.sum(np.linalg.svd(M, compute_uv=False) ** 2)), rel=1e-9)
    inner = head.inner_weights
    assert inner.shape == (d_k,)
    assert (np.diff(inner) <= 0).all()
    assert inner.mean() == pytest.approx(1, rel=1e-13)
    assert (inner[d:] == 0).all()
    rank = min(d, d_k)
    np.testing.assert_allclose(inner[:rank] * head.beta**2 / d_k, squares[:rank], rtol=1e-8, atol=1e-9 * squares[0])


def test_sizes():
    W_Q, W_K = weights()
    head = Attention.from_weights(W_Q, W_K, tokens=30, keys=20, mask=None)
    assert (head.tokens, head.columns, head.head_dim, head.width) == (30, 20, 5, 12)
    assert (head.covariance, head.score, head.spread) == (None, None, 1)
    assert head.inner_dimensions == (12, 5, 12)
    assert head.weights.scale == 1 / math.sqrt(5)
    assert head.linear_model().beta == head.beta
    assert Attention(30, 5).inner_weights is None


def test_the_limit_law_takes_sizes_and_beta():
    head = Attention.from_weights(*weights(), tokens=30, scale=0.05)
    same = Attention(30, 5, head.beta, width=12).limit_law()
    x = np.linspace(*same.support()[-1], 9)[1:-1]
    np.testing.assert_allclose(head.limit_law().pdf(x), same.pdf(x), rtol=1e-14)


def test_forms_of_a_covariance_agree():
    W_Q, W_K = weights()
    variances = np.linspace(0, 2, 12)
    plain = Attention.from_weights(W_Q, W_K, tokens=30)
    for one in (np.ones(12), np.eye(12)):
        head = Attention.from_weights(W_Q, W_K, tokens=30, covariance=one)
        assert head.beta == pytest.approx(plain.beta, rel=1e-14)
    vector, matrix = (
        Attention.from_weights(W_Q, W_K, tokens=30, covariance=c) for c in (variances, np.diag(variances))
    )
    assert vector.beta == pytest.approx(matrix.beta, rel=1e-14)
    np.testing.assert_allclose(vector.inner_weights, matrix.inner_weights, rtol=1e-12)
    # absorbed into the weights
    absorbed = Attention.from_weights(*(np.sqrt(variances)[:, None] * w for w in (W_Q, W_K)), tokens=30)
    assert absorbed.beta == pytest.approx(vector.beta, rel=1e-14)
    np.testing.assert_allclose(absorbed.sample(1), vector.sample(1), rtol=1e-12)


def test_only_the_product_of_the_weights_counts():
    W_Q, W_K = weights()
    covariance = covariance_matrix()
    head = Attention.from_weights(W_Q, W_K, tokens=30, covariance=covariance)
    scaled = Attention.from_weights(2 * W_Q, W_K / 2, tokens=30, covariance=covariance)
    assert scaled.beta == pytest.approx(head.beta, rel=1e-14)
    np.testing.assert_allclose(scaled.inner_weights, head.inner_weights, rtol=1e-12)
    np.testing.assert_allclose(scaled.sample(1), head.sample(1), rtol=1e-11)
    rotation = np.linalg.qr(np.random.default_rng(5).standard_normal((5, 5)))[0]
    turned = Attention.from_weights(W_Q @ rotation, W_K @ rotation, tokens=30, covariance=covariance)
    np.testing.assert_allclose(turned.sample(1), head.sample(1), rtol=1e-11)
    twice = Attention.from_weights(W_Q, W_K, tokens=30, covariance=covariance, scale=2 / math.sqrt(5))
    assert twice.beta == pytest.approx(2 * head.beta, rel=1e-14)
    np.testing.assert_allclose(twice.inner_weights, head.inner_weights, rtol=1e-14)


def test_random_weights_are_those_of_the_random_ensemble():
    """W of iid N(0, 1/d) entries: β² concentrates at one, and S has the law of the head without weights."""
    d, d_k = 300, 100
    W_Q, W_K = (w / math.sqrt(d) for w in weights(d, d_k))
    head = Attention.from_weights(W_Q, W_K, tokens=30)
    assert head.beta == pytest.approx(1, abs=5 * math.sqrt(2 / (d * d_k)) + 0.02)


@pytest.mark.parametrize("keys", [None, 25])
@pytest.mark.parametrize("biased", [False, True])
def test_variance_of_drawn_scores(keys, biased):
    """β S has variance β² plus that of the column bias; at five standard errors over 400 draws."""
    W_Q, W_K = weights()
    rng = np.random.default_rng(3)
    extra = {"mean": rng.standard_normal(12), "b_Q": rng.standard_normal(5), "b_K": rng.standard_normal(5)}
    head = Attention.from_weights(
        W_Q, W_K, tokens=30, keys=keys, covariance=covariance_matrix(), scale=0.1, **(extra if biased else {})
    )
    off = ~np.eye(30, head.columns, dtype=bool) if keys is None else np.ones((30, keys), dtype=bool)
    squares, columns = [], []
    for _ in range(400):
        scores = head.beta * ensemble.draw_scores(head, rng)
        squares.append(np.mean(scores[off] ** 2))
    expected = head.beta**2 + head.weights.column_bias_variance
    assert np.mean(squares) == pytest.approx(expected, abs=5 * np.std(squares, ddof=1) / 20)
    # the column bias b_j is what all rows share: pairs of distinct rows have covariance Var b_j in one column
    for _ in range(400):
        scores = head.beta * ensemble.draw_scores(head, rng)
        first, second = scores[:5, 10:], scores[5:10, 10:]
        columns.append(np.mean(first * second))
    assert np.mean(columns) == pytest.approx(head.weights.column_bias_variance, abs=5 * np.std(columns, ddof=1) / 20)
    assert (head.weights.column_bias_variance > 0) == biased


def test_draws_are_softmax_of_the_weights_on_tokens():
    """The matrix from raw tokens, with every mean and bias in place; its covariance root reproduces the draw."""
    W_Q, W_K = weights()
    rng = np.random.default_rng(8)
    mean, b_Q, b_K, variances = rng.standard_normal(12), rng.standard_normal(5), rng.standard_normal(5), rng.random(12)
    for keys in (None, 9):
        head = Attention.from_weights(
            W_Q, W_K, tokens=14, keys=keys, covariance=variances, mean=mean, b_Q=b_Q, b_K=b_K, scale=0.2
        )
        draw = np.random.default_rng(4)
        x = mean + draw.standard_normal((14, 12)) * np.sqrt(variances)
        y = x if keys is None else mean + draw.standard_normal((keys, 12)) * np.sqrt(variances)
        scores = 0.2 * (x @ W_Q + b_Q) @ (y @ W_K + b_K).T
        expected = np.exp(scores - scores.max(axis=1, keepdims=True))
        expected /= expected.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(head.sample(4), expected, rtol=1e-11)


def test_the_mean_of_the_keys_cancels():
    W_Q, W_K = weights()
    head = Attention.from_weights(W_Q, W_K, tokens=14, mask="causal")
    shifted = Attention.from_weights(W_Q, W_K, tokens=14, mask="causal", b_K=np.arange(5.0))
    assert (head.sample(1) == shifted.sample(1)).all()
    assert head != shifted
    moved = Attention.from_weights(W_Q, W_K, tokens=14, mask="causal", b_Q=np.ones(5))
    assert np.abs(head.sample(1) - moved.sample(1)).max() > 0.01
    # b_Q takes the mean of the queries away again
    mean = np.linspace(-1, 1, 12)
    undone = Attention.from_weights(W_Q, W_K, tokens=14, mask="causal", mean=mean, b_Q=-mean @ W_Q)
    np.testing.assert_allclose(undone.sample(1), head.sample(1), rtol=1e-12)
    assert undone.weights.column_bias_variance == pytest.approx(0, abs=1e-25)


@pytest.mark.parametrize("options", [{"mask": "causal"}, {"mask": "window:4", "keys": 20}, {"bias": 0.2}, {}])
def test_masks_and_biases_apply(options):
    head = Attention.from_weights(*weights(), tokens=14, mean=np.ones(12), scale=0.1, **options)
    matrix = head.sample(2)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-14)
    if head.visibility is not None:
        assert ((matrix > 0) == head.visibility.visible(0, 14)).all()
    root = math.sqrt(head.columns)
    direct = np.sort(np.linalg.svd(root * (matrix - head.mean_attention()), compute_uv=False))
    np.testing.assert_allclose(np.sqrt(head.spectrum(2)), direct, atol=1e-7 * direct[-1])
    assert ensemble.draw_linear_model(head, np.random.default_rng(1)).shape == matrix.shape


def test_semidefinite_covariances():
    W_Q, W_K = weights()
    low = covariance_matrix(rank=3)
    head = Attention.from_weights(W_Q, W_K, tokens=30, covariance=low)
    assert np.count_nonzero(head.inner_weights > 1e-12) == 3
    slightly = low - 1e-12 * np.eye(12)
    assert Attention.from_weights(W_Q, W_K, tokens=30, covariance=slightly).beta == pytest.approx(head.beta, rel=1e-9)


def test_as_a_dataclass():
    options = {"covariance": covariance_matrix(), "mean": np.ones(12), "mask": "causal"}
    head = Attention.from_weights(*weights(), tokens=30, **options)
    same = Attention.from_weights(*weights(), tokens=30, **options)
    again = pickle.loads(pickle.dumps(head))
    assert head == same == again
    assert hash(head) == hash(same) == hash(again)
    assert head != Attention.from_weights(*weights(seed=7), tokens=30, **options)
    assert head.weights != "weights"
    longer = dataclasses.replace(head, tokens=50, mask="window:4")
    assert (longer.tokens, longer.beta, longer.weights) == (50, head.beta, head.weights)
    assert longer.sample(1).shape == (50, 50)
    assert len(repr(head)) < 300
    assert (head.sample(1) == again.sample(1)).all()
    with pytest.raises(dataclasses.FrozenInstanceError):
        head.weights.beta = 2.0
    with pytest.raises(ValueError, match="read-only"):
        head.inner_weights[0] = 2.0
    zeros = Attention.from_weights(*weights(), tokens=30, mean=np.zeros(12), b_K=np.zeros(5), covariance=np.ones(12))
    assert zeros == Attention.from_weights(*weights(), tokens=30)


def test_arrays_are_copied():
    W_Q, W_K = weights()
    head = Attention.from_weights(W_Q, W_K, tokens=30)
    before = head.sample(1)
    W_Q[:] = 0
    assert (head.sample(1) == before).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"W_Q": np.zeros(12)}, r"W_Q must be a matrix of shape \(d, d_k\); got an array of shape \(12,\)"),
        ({"W_Q": np.zeros((0, 5))}, "W_Q must be a matrix"),
        ({"W_Q": np.full((12, 5), np.nan)}, "W_Q must not contain NaN"),
        ({"W_Q": np.full((12, 5), np.inf)}, r"W_Q must be finite; got inf at \(0, 0\)"),
        ({"W_Q": np.ones((12, 5)) * 1j}, "W_Q must be real numbers"),
        ({"W_K": np.zeros((12, 4))}, r"W_K must have shape \(12, 5\), that of W_Q; got an array of shape \(12, 4\)"),
        ({"W_K": np.zeros((12, 5))}, "W_Q, W_K and covariance must give scores that vary"),
        ({"W_Q": np.full((12, 5), 1e200)}, "W_Q, W_K and covariance must give scores that vary"),
        ({"covariance": np.ones(11)}, r"covariance must be 12 variances or a matrix of shape \(12, 12\)"),
        ({"covariance": -np.ones(12)}, "covariance must be positive semidefinite and not zero"),
        ({"covariance": np.zeros((12, 12))}, "covariance must be positive semidefinite and not zero"),
        ({"covariance": np.diag(np.arange(12.0) - 1)}, "positive semidefinite and not zero; got eigenvalues from -1"),
        ({"covariance": np.tri(12)}, "covariance must be symmetric"),
        ({"covariance": np.full(12, np.inf)}, "covariance must be finite"),
        ({"covariance": "wide"}, "covariance must be real numbers"),
        ({"mean": np.ones(5)}, r"mean must have shape \(12,\); got an array of shape \(5,\)"),
        ({"mean": np.full(12, 1e200)}, "mean and b_Q must give a column bias of finite variance"),
        ({"b_Q": np.ones(12)}, r"b_Q must have shape \(5,\)"),
        ({"b_K": 1.0}, r"b_K must have shape \(5,\); got an array of shape \(\)"),
        ({"b_K": np.full(5, np.nan)}, "b_K must not contain NaN"),
        ({"scale": 0}, "scale must be a finite real number above 0; got 0"),
        ({"scale": -1.0}, "scale must be"),
        ({"tokens": 1}, "tokens must be an integer of at least 2"),
        ({"mask": "casual"}, "mask must be"),
    ],
)
def test_refusals(changes, message):
    W_Q, W_K = weights()
    arguments = {"W_Q": W_Q, "W_K": W_K, "tokens": 30, **changes}
    with pytest.raises(ParameterError, match=message):
        Attention.from_weights(**arguments)


def test_weights_that_cancel_up_to_rounding():
    rotation = np.linalg.qr(np.random.default_rng(2).standard_normal((6, 6)))[0]
    with pytest.raises(ParameterError, match="must give scores that vary"):
        Attention.from_weights(np.ones((4, 3)) @ rotation[:3], np.ones((4, 3)) @ rotation[3:], tokens=30)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beta": 2.0}, r"beta must be .* with these weights, which fix it; got 2\.0\. Attention\.from_weights"),
        ({"head_dim": 6}, "head_dim must be 5 with these weights"),
        ({"width": None}, "width must be 12 with these weights"),
        ({"covariance": [1.0]}, "covariance must be None with these weights"),
        ({"score": np.exp}, "score must be None with these weights"),
        ({"weights": "W"}, "weights must be None or HeadWeights, see Attention.from_weights; got 'W'"),
    ],
)
def test_conflicts(changes, message):
    head = Attention.from_weights(*weights(), tokens=30)
    with pytest.raises(ParameterError, match=message):
        dataclasses.replace(head, **changes)
    with pytest.raises(ParameterError, match="beta must be"):
        Attention(30, 5, width=12, weights=head.weights)


def test_weights_stand_alone():
    W_Q, W_K = weights()
    own = HeadWeights(W_Q, W_K)
    assert Attention(30, 5, own.beta, width=12, weights=own) == Attention.from_weights(W_Q, W_K, tokens=30)
