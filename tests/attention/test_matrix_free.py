"""The operator against the dense matrix of the same seed."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from scipy.special import logsumexp

from gequiv import Attention, CertificationError, ParameterError
from gequiv.attention import ensemble
from gequiv.attention.matrix_free import AttentionOperator

_RNG = np.random.default_rng(0)


def _relu(x):
    return np.maximum(x, 0) + 0.1


HEADS = {
    "plain": Attention(30, 7, 1.3),
    "tall": Attention(30, 7, 1.3, keys=20),
    "wide": Attention(20, 7, 1.3, keys=30),
    "shared tokens": Attention(30, 7, 0.9, width=12),
    "covariance": Attention(30, 7, 0.9, width=12, covariance=[0.5, 1.0, 1.5]),
    "causal": Attention(30, 7, 0.9, mask="causal"),
    "causal, wide": Attention(30, 7, 0.9, keys=44, mask="causal"),
    "causal, ALiBi": Attention(30, 7, 0.9, mask="causal", bias=0.1),
    "window": Attention(30, 7, 0.9, mask="window:5"),
    "two-sided, tall": Attention(60, 7, 30.0, keys=44, mask="two-sided:25"),
    "block": Attention(30, 7, 1.0, mask="block:4"),
    "array": Attention(30, 7, 1.0, mask=(_RNG.random((30, 30)) < 0.3) | np.eye(30, dtype=bool)),
    "array, wide": Attention(20, 7, 1.0, keys=30, mask=_RNG.random((20, 30)) < 0.6),
    "array bias": Attention(30, 7, 0.9, keys=44, bias=5 * _RNG.standard_normal((30, 44))),
    "bias function": Attention(30, 7, 0.9, mask="window:9", bias=lambda relative: np.cos(relative)),
    "score": Attention(30, 7, 0.9, score=_relu),
    "score, causal": Attention(30, 7, 1.0, mask="causal", score=_relu),
    "beta 30": Attention(30, 7, 30.0),
    "weights": Attention.from_weights(
        _RNG.standard_normal((9, 4)), _RNG.standard_normal((9, 4)), tokens=30, mean=_RNG.standard_normal(9)
    ),
    "weights, tall": Attention.from_weights(
        _RNG.standard_normal((9, 4)),
        _RNG.standard_normal((9, 4)),
        tokens=30,
        keys=21,
        covariance=np.cov(_RNG.standard_normal((9, 40))),
    ),
}


def _dense(head, seed=5, centered=True):
    matrix = head.sample(seed)
    return math.sqrt(head.columns) * (matrix - head.mean_attention() if centered else matrix)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("tile", [None, 200])
def test_products_are_those_of_the_dense_matrix(name, centered, tile):
    head = HEADS[name]
    dense = _dense(head, centered=centered)
    operator = AttentionOperator(head, 5, centered=centered, tile=tile)
    assert operator.shape == dense.shape
    rng = np.random.default_rng(1)
    v, u = rng.standard_normal((head.columns, 3)), rng.standard_normal((head.tokens, 3))
    scale = np.linalg.norm(dense, 2)
    gram, w = (dense @ dense.T, u) if head.tokens < head.columns else (dense.T @ dense, v)
    assert operator.order == len(w)
    for product, matrix, given, size in (
        (operator.matmat, dense, v, scale),
        (operator.rmatmat, dense.T, u, scale),
        (operator.gram, gram, w, scale**2),
    ):
        expected = matrix @ given
        np.testing.assert_allclose(product(given), expected, atol=2e-14 * size)
        one = product(given[:, 0])
        assert one.shape == expected.shape[:1]
        np.testing.assert_allclose(one, expected[:, 0], atol=2e-14 * size)


@pytest.mark.parametrize("name", ["plain", "wide", "causal, wide", "score", "array bias", "beta 30"])
def test_single_precision(name):
    """Products within 1e-5 of the norm: rounding of scores of up to 100 in the exponent, 24 bits."""
    head = HEADS[name]
    dense = _dense(head)
    operator = AttentionOperator(head, 5, dtype="float32", tile=200)
    v = np.random.default_rng(1).standard_normal((head.columns, 3))
    found = operator.matmat(v)
    assert found.dtype == np.float64
    limit = 2e-5 * max(1.0, head.beta / 3) * np.linalg.norm(dense, 2)
    np.testing.assert_allclose(found, dense @ v, atol=limit)
    assert np.abs(found - dense @ v).max() > 1e-9


@pytest.mark.parametrize("name", HEADS)
def test_row_statistics(name):
    head = HEADS[name]
    matrix = head.sample(5)
    found = AttentionOperator(head, 5, tile=200).row_statistics()
    squares = (matrix**2).sum(axis=1)
    np.testing.assert_allclose(found["participation"], squares, rtol=1e-12)
    np.testing.assert_allclose(found["energy_participation"], (matrix**4).sum(axis=1) / squares**2, rtol=1e-12)
    np.testing.assert_allclose(found["largest"], matrix.max(axis=1), rtol=1e-12)
    scores = ensemble.draw_scores(head, np.random.default_rng(5))
    mean = head.mean_attention()
    if head.score is not None:
        values = np.where(mean > 0, _relu(head.beta * scores), 0)
        expected = np.log((mean * values).sum(axis=1) / head.linear_model().mean)
    else:
        variance = head.beta**2 * head.spread**2
        if head.weights is not None:
            variance += head.weights.column_bias_variance
        with np.errstate(divide="ignore"):
            expected = logsumexp(head.beta * scores + np.log(mean), axis=1) - variance / 2
    np.testing.assert_allclose(found["log_normaliser"], expected, atol=1e-11)


def test_row_statistics_are_copies():
    operator = AttentionOperator(HEADS["plain"], 5)
    operator.row_statistics()["largest"][:] = 7
    assert operator.row_statistics()["largest"].max() < 1


@pytest.mark.parametrize("name", ["plain", "tall", "wide", "causal, ALiBi", "score"])
@pytest.mark.parametrize("method", ["gram", "svd"])
def test_all_squared_singular_values(name, method):
    head = HEADS[name]
    found = AttentionOperator(head, 5, tile=200).squared_singular_values(method)
    expected = np.linalg.svd(_dense(head), compute_uv=False) ** 2
    assert found.shape == (head.tokens,)
    surplus = max(0, head.tokens - head.columns)
    assert (found[:surplus] == 0).all()
    np.testing.assert_allclose(found[surplus:], expected[::-1], atol=1e-13 * expected[0])


def test_given_factors():
    head = Attention(20, 3, 0.7, keys=25)
    rng = np.random.default_rng(8)
    left, right = rng.standard_normal((20, 6)), rng.standard_normal((25, 6))
    operator = AttentionOperator(head, factors=(left, right), centered=False)
    a = np.exp(0.7 * left @ right.T)
    a /= a.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(operator.matmat(np.eye(25)), 5 * a, atol=1e-13)


def test_a_matrix_that_vanishes():
    """Each row sees itself alone: A = Ā."""
    operator = AttentionOperator(Attention(12, 3, 1.0, mask="window:1"), 1, tile=12)
    assert (operator.gram(np.ones((12, 2))) == 0).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give rng or factors, and not both; got rng=None, factors=None"),
        ({"rng": 1, "factors": (1, 2)}, "give rng or factors, and not both"),
        ({"rng": -1}, "rng must be a numpy"),
        ({"rng": 1, "dtype": "float16"}, 'dtype must be "float64" or "float32"; got \'float16\''),
        ({"rng": 1, "dtype": np.float64}, "dtype must be"),
        ({"rng": 1, "tile": 0}, "tile must be an integer of at least 1; got 0"),
        ({"factors": 3}, "factors must be two matrices; got 3"),
        ({"factors": (np.ones((30, 2)), np.ones((30, 3)))}, r"factors must be finite matrices of shapes \(30, r\)"),
        ({"factors": (np.ones((30, 2)), np.ones((29, 2)))}, r"got shapes \(30, 2\) and \(29, 2\)"),
        ({"factors": (np.full((30, 2), np.inf), np.ones((30, 2)))}, "factors must be finite"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ParameterError, match=message):
        AttentionOperator(HEADS["plain"], **arguments)


def test_bad_head_and_vectors():
    with pytest.raises(ParameterError, match=r"head must be a gequiv\.Attention; got 3"):
        AttentionOperator(3, 1)
    operator = AttentionOperator(HEADS["tall"], 1)
    for bad in (np.ones(19), np.ones((20, 0)), np.ones((20, 1, 1)), 1.0):
        with pytest.raises(ParameterError, match=r"vectors must have shape \(20,\) or \(20, p\)"):
            operator.matmat(bad)
    with pytest.raises(ParameterError, match=r"vectors must have shape \(30,\)"):
        operator.rmatmat(np.ones(20))
    with pytest.raises(ParameterError, match="vectors must not contain NaN"):
        operator.gram(np.full(20, np.nan))


def test_rows_that_cannot_be_normalised():
    head = Attention(40, 7, 1.0, keys=3, score=lambda x: np.maximum(x, 0))
    with pytest.raises(CertificationError, match=r"row \d+ of f\(beta S\) sums to 0.0 and cannot be normalised"):
        AttentionOperator(head, 1, tile=9).matmat(np.ones(3))


def test_device_that_is_not_there(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(ParameterError, match=r"device must be None without torch; got 'cuda'.*gequiv\[torch\]"):
        AttentionOperator(HEADS["plain"], 1, device="cuda")


def test_torch():
    pytest.importorskip("torch", reason="torch is an extra")
    for name in ("plain", "tall", "wide", "causal, wide", "window", "array bias", "weights", "beta 30"):
        head = HEADS[name]
        dense = _dense(head)
        scale = np.linalg.norm(dense, 2)
        operator = AttentionOperator(head, 5, tile=200, device="cpu")
        v, u = np.eye(head.columns), np.eye(head.tokens)
        np.testing.assert_allclose(operator.matmat(v), dense, atol=2e-14 * scale)
        np.testing.assert_allclose(operator.rmatmat(u), dense.T, atol=2e-14 * scale)
        wide = head.tokens < head.columns
        expected = dense @ dense.T if wide else dense.T @ dense
        np.testing.assert_allclose(operator.gram(u if wide else v), expected, atol=2e-14 * scale**2)
        ours = AttentionOperator(head, 5).row_statistics()
        for key, values in operator.row_statistics().items():
            np.testing.assert_allclose(values, ours[key], rtol=1e-11, atol=1e-12)
    for bad in ("nowhere", 3.5):
        with pytest.raises(ParameterError, match="device must be None or a device that torch has here"):
            AttentionOperator(HEADS["plain"], 1, device=bad)
    with pytest.raises(ParameterError, match="device must be None with a score function"):
        AttentionOperator(HEADS["score"], 1, device="cpu")


@pytest.mark.parametrize("mask", [None, "window:300"])
def test_memory_is_a_tile_and_grows_with_tokens_alone(mask):
    """Twice the tokens cost at most twice what is not the tile: half a dozen numbers per token, width and vector."""
    tile, head_dim, vectors = 2**18, 16, 4
    peaks = []
    for tokens in (1500, 3000):
        head = Attention(tokens, head_dim, 1.0, mask=mask)
        given = np.ones((tokens, vectors))
        tracemalloc.start()
        try:
            AttentionOperator(head, 1, tile=tile).gram(given)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    allowed = 8 * 1500 * 6 * (head_dim + vectors + 4)
    assert peaks[1] - peaks[0] <= allowed
    assert peaks[1] <= 8 * (1 if mask is None else 5) * tile + 2 * allowed
    assert peaks[1] < 8 * 3000**2 / 4
