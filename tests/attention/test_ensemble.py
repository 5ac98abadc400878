"""Drawing attention matrices, and their spectra by the Gram route."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.linalg import svdvals
from scipy.special import logsumexp

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


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("beta", [1.0, 1e4])
def test_softmax_rows_return_the_logarithms_of_their_sums(weighted, beta):
    rng = np.random.default_rng(9)
    scores = rng.standard_normal((20, 30))
    log_weights = None
    exponents = beta * scores
    if weighted:
        log_weights = np.where(rng.random((20, 30)) < 0.5, -np.inf, 50 * rng.standard_normal((20, 30)))
        log_weights[:, 0] = 1.0
        exponents = exponents + log_weights
    found = ensemble.softmax_rows(scores, beta, log_weights)
    expected = logsumexp(exponents, axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    np.testing.assert_allclose(
        scores, np.exp(exponents - expected[:, None]), atol=1e-15 * np.abs(exponents[:, 0]).max()
    )


MASKED = [
    Attention(40, 12, 1.0),
    Attention(40, 12, 1.0, keys=60),
    Attention(60, 12, 1.0, keys=40),
    Attention(40, 12, 1.0, mask="causal"),
    Attention(40, 12, 1.0, mask="window:6", bias=0.2),
    Attention(40, 12, 1.0, score=lambda x: np.maximum(x, 0) + 0.1),
]
NAMES = ["plain", "wide", "tall", "causal", "window and bias", "score"]


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("head", MASKED, ids=NAMES)
def test_routes_to_the_spectrum_agree(head, centered):
    """Gram, float32 and SVD: absolute errors of squares and of singular values as `Attention.spectrum` states."""
    expected = head.spectrum(3, centered, method="svd")
    largest = expected[-1]
    gram = head.spectrum(3, centered, method="gram")
    np.testing.assert_allclose(gram, expected, atol=5e-14 * largest)
    single = head.spectrum(3, centered, method="gram", dtype="float32")
    assert single.dtype == np.float64
    np.testing.assert_allclose(single, expected, atol=1e-6 * largest)
    single = head.spectrum(3, centered, method="svd", dtype="float32")
    np.testing.assert_allclose(np.sqrt(single), np.sqrt(expected), atol=1e-6 * math.sqrt(largest))
    for values in (gram, single):
        assert values.shape == (head.tokens,)
        assert (np.diff(values) >= 0).all()
        assert (values[: max(0, head.tokens - head.columns)] == 0).all()
    usual = "gram" if head.visibility is None else "svd"
    np.testing.assert_array_equal(head.spectrum(3, centered), head.spectrum(3, centered, method=usual))


def test_single_precision_of_a_bulk():
    """Without an eigenvalue that stands alone; LAPACK's own iteration in float32 is off by 6e-6 of the largest."""
    head = Attention(512, 256, 1.0)
    expected = head.spectrum(0)
    np.testing.assert_allclose(head.spectrum(0, dtype="float32"), expected, atol=3e-6 * expected[-1])


@pytest.mark.parametrize("head", MASKED[:5], ids=NAMES[:5])
def test_spectrum_by_torch(head):
    pytest.importorskip("torch", reason="torch is an extra")
    for method in ("gram", "svd"):
        expected = head.spectrum(3, method=method)
        found = head.spectrum(3, method=method, device="cpu")
        np.testing.assert_allclose(found, expected, atol=5e-14 * expected[-1])
        single = head.spectrum(3, method=method, device="cpu", dtype="float32")
        np.testing.assert_allclose(single, expected, atol=1e-6 * expected[-1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "eig"}, 'method must be "gram", "svd" or None; got \'eig\''),
        ({"dtype": "float16"}, 'dtype must be "float64" or "float32"; got \'float16\''),
        ({"dtype": np.float32}, "dtype must be"),
        ({"device": "nowhere"}, "device must be None"),
    ],
)
def test_bad_routes_are_refused(options, message):
    with pytest.raises(ParameterError, match=message):
        MASKED[0].spectrum(1, **options)
