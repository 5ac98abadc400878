"""Masks and position biases: what rows see, mean attention, and the matrices drawn under them."""

from __future__ import annotations

import dataclasses
import math
import pickle

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import svdvals

from gequiv import Attention, CertificationError, ParameterError
from gequiv.attention import ensemble, masks
from gequiv.attention.masks import Visibility


def naive(tokens, keys, mask):
    """The masks by their definitions, one entry at a time."""
    name, _, size = mask.partition(":")
    w = int(size or 0)
    seen = np.zeros((tokens, keys), dtype=bool)
    for i in range(tokens):
        p = i + keys - tokens
        for j in range(keys):
            seen[i, j] = {
                "causal": lambda p, j: j <= p,
                "window": lambda p, j: p - w < j <= p,
                "two-sided": lambda p, j: abs(p - j) < w,
                "block": lambda p, j: p // w == j // w,
            }[name](p, j)
    return seen


def naive_softmax(scores, seen):
    out = np.zeros(scores.shape)
    for i, row in enumerate(scores):
        values = row[seen[i]]
        values = np.exp(values - values.max())
        out[i, seen[i]] = values / values.sum()
    return out


def decay(relative):
    return -0.3 * np.sqrt(relative + 1.0)


def far(x, y):
    return (np.abs(x - y) > 0.3) | (x == y)


rng_array = np.random.default_rng(99)
RANDOM = rng_array.random((24, 24)) < 0.4
RANDOM[:, 3] = True
HEADS = [
    {"mask": "causal"},
    {"mask": "causal", "keys": 31},
    {"mask": "causal", "width": 9, "covariance": [0.5, 1.0, 1.5]},
    {"mask": "causal", "width": 9, "keys": 31},
    {"mask": "causal", "bias": 0.25},
    {"mask": "causal", "bias": decay},
    {"mask": "causal", "score": np.exp},
    {"mask": "window:5"},
    {"mask": "window:5", "bias": decay, "keys": 31},
    {"mask": "two-sided:4", "keys": 22},
    {"mask": "block:7", "bias": 0.1},
    {"mask": RANDOM},
    {"mask": RANDOM, "bias": rng_array.standard_normal((24, 24))},
    {"mask": far},
    {"bias": 0.05},
    {"bias": lambda r: np.cos(r), "keys": 17},
]


def make(options):
    return Attention(**{"tokens": 24, "head_dim": 8, "beta": 1.2, **options})


# -- what rows see ----------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["causal", "window", "two-sided", "block"]),
    st.integers(2, 12),
    st.integers(2, 12),
    st.integers(1, 14),
)
def test_named_masks_against_their_definitions(name, tokens, keys, size):
    mask = name if name == "causal" else f"{name}:{size}"
    expected = naive(tokens, keys, mask)
    if not expected.any(axis=1).all():
        row = int(np.argmin(expected.any(axis=1)))
        with pytest.raises(ParameterError, match=f"row {row} of {tokens} sees none of the {keys} keys"):
            Attention(tokens, 3, keys=keys, mask=mask)
        return
    head = Attention(tokens, 3, keys=keys, mask=mask)
    visibility = head.visibility
    if expected.all():
        assert visibility is None
        return
    assert (visibility.visible(0, tokens) == expected).all()
    weights = visibility.log_weights(1, tokens)
    assert ((weights == 0) == expected[1:]).all()
    assert ((weights == -np.inf) == ~expected[1:]).all()
    np.testing.assert_allclose(head.mean_attention(), expected / expected.sum(axis=1, keepdims=True), rtol=1e-15)
    np.testing.assert_allclose(visibility.effective_keys(), expected.sum(axis=1), rtol=1e-14)


def test_spelling_is_normalised():
    for given_mask, kept in [
        ("none", None),
        (" Causal", "causal"),
        ("window: 016", "window:16"),
        ("Two-Sided:3", "two-sided:3"),
        ("block:5", "block:5"),
    ]:
        assert Attention(24, 8, mask=given_mask).mask == kept
    assert Attention(24, 8, mask="none") == Attention(24, 8)


def test_no_mask_has_no_visibility():
    for mask in (None, "none", np.ones((24, 24), dtype=bool), "two-sided:24", "block:24"):
        assert Attention(24, 8, mask=mask).visibility is None
    assert (Attention(24, 8, keys=10).mean_attention() == 1 / 10).all()


def test_kind_and_slope():
    kinds = {"causal": [], "general": []}
    for options in HEADS:
        kinds[make(options).visibility.kind].append(options)
    assert kinds["causal"] == [HEADS[i] for i in (0, 2, 4, 6)]
    assert make({"mask": "window:24", "bias": 1}).visibility.kind == "causal"
    assert make({"mask": "window:23"}).visibility.kind == "general"
    assert make(HEADS[4]).visibility.slope == 0.25
    assert make(HEADS[5]).visibility.slope == 0


def test_a_wide_window_is_causal():
    for keys in (24, 31):
        wide, causal = (Attention(24, 8, keys=keys, mask=mask) for mask in (f"window:{keys}", "causal"))
        assert (wide.sample(1) == causal.sample(1)).all()


def test_arrays_and_functions_agree_with_names():
    tokens = 24
    seen = naive(tokens, tokens, "causal")
    by_name = Attention(tokens, 8, mask="causal")
    by_array = Attention(tokens, 8, mask=seen)
    by_list = Attention(tokens, 8, mask=seen.tolist())
    by_function = Attention(tokens, 8, mask=lambda x, y: y <= x)
    for head in (by_array, by_list, by_function):
        assert (head.sample(5) == by_name.sample(5)).all()
        np.testing.assert_allclose(head.spectrum(5), by_name.spectrum(5), rtol=1e-12, atol=1e-16)
    slope = Attention(tokens, 8, mask="causal", bias=0.3)
    relative = np.subtract.outer(np.arange(tokens), np.arange(tokens))
    for bias in (lambda r: -0.3 * np.abs(r), -0.3 * np.abs(relative)):
        np.testing.assert_allclose(
            Attention(tokens, 8, mask="causal", bias=bias).sample(5), slope.sample(5), rtol=1e-13
        )


def test_functions_are_called_with_positions():
    calls = []

    def everything(x, y):
        calls.append((x, y))
        return True

    head = Attention(4, 8, keys=5, mask=everything)
    x, y = calls[0]
    np.testing.assert_allclose(x, np.array([[0.125], [0.375], [0.625], [0.875]]))
    np.testing.assert_allclose(y, [[0.1, 0.3, 0.5, 0.7, 0.9]])
    np.testing.assert_allclose(head.mean_attention(), 0.2)


def test_a_bias_function_is_asked_for_what_the_mask_allows():
    seen = {}
    for mask in (None, "causal", "window:3", "two-sided:3", "block:3"):
        asked = []
        Attention(5, 8, keys=6, mask=mask, bias=lambda r, asked=asked: asked.extend(r.tolist()) or 0.0)
        seen[mask] = sorted(set(asked))
    assert seen[None] == list(range(-4, 6))
    assert seen["causal"] == list(range(6))
    assert seen["window:3"] == [0, 1, 2]
    assert seen["two-sided:3"] == seen["block:3"] == [-2, -1, 0, 1, 2]


# -- matrices ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", HEADS)
def test_draws_against_naive_softmax(options):
    head = make(options)
    matrix = head.sample(11)
    visibility = head.visibility
    seen = visibility.visible(0, head.tokens)
    assert matrix.shape == (head.tokens, head.columns)
    assert (matrix[~seen] == 0).all()
    assert (matrix[seen] > 0).all()
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-14)
    bias = np.where(seen, visibility.log_weights(0, head.tokens), 0)
    scores = head.beta * ensemble.draw_scores(head, np.random.default_rng(11)) + bias
    np.testing.assert_allclose(matrix, naive_softmax(scores, seen), rtol=1e-12)
    mean = naive_softmax(bias, seen)
    np.testing.assert_allclose(head.mean_attention(), mean, rtol=1e-13)
    np.testing.assert_allclose(visibility.effective_keys(), 1 / (mean**2).sum(axis=1), rtol=1e-13)


@pytest.mark.parametrize("options", HEADS)
def test_spectrum_against_numpy(options):
    head = make(options)
    matrix, root = head.sample(12), math.sqrt(head.columns)
    for centered, target in ((True, root * (matrix - head.mean_attention())), (False, root * matrix)):
        values = head.spectrum(12, centered=centered)
        direct = np.sort(np.linalg.svd(target, compute_uv=False))
        surplus = max(0, head.tokens - head.columns)
        assert values.shape == (head.tokens,)
        assert (values[:surplus] == 0).all()
        assert (np.diff(values) >= 0).all()
        np.testing.assert_allclose(np.sqrt(values[surplus:]), direct, atol=1e-13 * direct[-1])


def test_uncentred_spectrum_without_a_mask_has_the_perron_value():
    head = Attention(60, 20, 0.5)
    values = head.spectrum(3, centered=False)
    direct = np.sort(svdvals(math.sqrt(60) * head.sample(3)) ** 2)
    np.testing.assert_allclose(values, direct, atol=1e-12 * direct[-1])
    assert values[-1] > 60 > values[-2] * 5


def test_alibi_is_the_published_bias():
    """b_ij = -slope (i - j) over the keys j <= i."""
    head = Attention(10, 4, mask="causal", bias=0.5)
    distance = np.arange(10)[:, None] - np.arange(10)[None, :]
    expected = np.where(distance >= 0, np.exp(-0.5 * distance), 0)
    np.testing.assert_allclose(head.mean_attention(), expected / expected.sum(axis=1, keepdims=True), rtol=1e-14)
    assert (head.sample(1)[0] == np.eye(10)[0]).all()
    # queries that continue a sequence of 6: the last rows of the square
    longer = Attention(16, 4, mask="causal", bias=0.5).mean_attention()
    np.testing.assert_allclose(
        Attention(10, 4, keys=16, mask="causal", bias=0.5).mean_attention(), longer[6:], rtol=1e-14
    )


@pytest.mark.parametrize("bias", [1e300, lambda r: 1e300 * np.cos(r), lambda r: np.full(r.shape, -1e308)])
@pytest.mark.parametrize("mask", [None, "causal", "two-sided:5"])
def test_huge_biases_do_not_overflow(bias, mask):
    matrix = Attention(24, 8, 1e4, mask=mask, bias=bias).sample(2)
    assert np.isfinite(matrix).all()
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-14)


def test_a_bias_that_is_the_same_for_all_keys_changes_nothing():
    plain, shifted = (Attention(24, 8, mask="causal", bias=bias) for bias in (None, np.full((24, 24), 1e20)))
    np.testing.assert_allclose(shifted.sample(4), plain.sample(4), rtol=1e-13)
    spread = np.full((24, 24), 1e308)
    spread[:, ::2] = -1e308
    matrix = Attention(24, 8, bias=spread).sample(4)
    assert (matrix[:, ::2] == 0).all()
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-14)


def test_scores_are_masked_after_the_score_function():
    """Keys outside the mask do not enter the row sums, whatever f gives them."""
    head = Attention(24, 8, mask="causal", score=lambda s: 0.5 + s**2)
    matrix = head.sample(3)
    scores = ensemble.draw_scores(head, np.random.default_rng(3))
    expected = np.tril(0.5 + scores**2)
    np.testing.assert_allclose(matrix, expected / expected.sum(axis=1, keepdims=True), rtol=1e-13)
    rectified = Attention(24, 8, mask="block:1", score=lambda s: np.maximum(s, 0))
    with pytest.raises(CertificationError, match=r"sums to 0\.0 over 1 keys"):
        rectified.sample(0)  # some of 24 rows sees a negative score alone


@pytest.mark.parametrize("options", [{"mask": "window:5"}, {"mask": "causal", "bias": 0.2}, {"bias": 0.1, "keys": 30}])
def test_linear_model_has_the_variance_that_the_mask_lays_on_it(options):
    """E |Y_ij|² = keys Ā_ij² (e^{β²} - 1); the total over a row is keys/effective keys of that."""
    head = make({"tokens": 40, "head_dim": 40, **options})
    rng = np.random.default_rng(7)
    totals = np.array([np.sum(ensemble.draw_linear_model(head, rng) ** 2) for _ in range(200)])
    expected = head.columns * np.sum(1 / head.visibility.effective_keys()) * math.expm1(head.beta**2)
    assert totals.mean() == pytest.approx(expected, abs=5 * totals.std(ddof=1) / math.sqrt(len(totals)))
    assert (ensemble.draw_linear_model(head, rng)[~head.visibility.visible(0, 40)] == 0).all()


def test_causal_spectra_reach_below_what_a_gram_matrix_resolves():
    """Against singular values of the same matrix by mpmath with 60 digits."""
    head = Attention(40, 2, 0.05, mask="causal")
    matrix = ensemble.centred(head.sample(8), head.visibility)
    with mpmath.workdps(60):
        exact = mpmath.svd_r(mpmath.matrix(matrix.tolist()), compute_uv=False)
        squares = np.sort([float(value**2) for value in exact])
    values = head.spectrum(8)
    np.testing.assert_allclose(np.sqrt(values), np.sqrt(squares), atol=1e-15 * math.sqrt(squares[-1]))
    small = (squares > 1e-26 * squares[-1]) & (squares < 1e-16 * squares[-1])
    assert small.any()
    np.testing.assert_allclose(values[small], squares[small], rtol=1e-3)


# -- blocks of rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("options", HEADS)
@pytest.mark.parametrize("block", [1, 100, 2**21])
def test_cell_averages_stream_over_rows(options, block, monkeypatch):
    monkeypatch.setattr(masks, "_BLOCK", block)
    head = make(options)
    rows, columns = [0, 1, 5, 6, 20, 24], [0, 4, 9, head.columns]
    first, second = head.visibility.cell_averages(rows, np.array(columns, dtype=float))
    scaled = head.columns * head.mean_attention()
    for p in range(len(rows) - 1):
        for q in range(len(columns) - 1):
            cell = scaled[rows[p] : rows[p + 1], columns[q] : columns[q + 1]]
            assert first[p, q] == pytest.approx(cell.mean(), rel=1e-12)
            assert second[p, q] == pytest.approx((cell**2).mean(), rel=1e-12)
    np.testing.assert_allclose(head.sample(2).sum(axis=1), 1, rtol=1e-14)


@pytest.mark.parametrize("edges", [[0, 24.5], [0, 12], [1, 24], [0, 5, 5, 24], [0], [], [[0, 24]], [0, 30, 24]])
def test_bad_edges(edges):
    visibility = Attention(24, 8, mask="causal").visibility
    with pytest.raises(ParameterError, match="row_edges must be strictly ascending integers from 0 to 24"):
        visibility.cell_averages(edges, [0, 24])
    with pytest.raises(ParameterError, match="column_edges must be strictly ascending integers from 0 to 24"):
        visibility.cell_averages([0, 24], edges)


def test_nothing_of_the_size_of_the_matrix_is_kept():
    """A million tokens: a matrix would be eight terabytes."""
    for options in ({"mask": "causal", "bias": 0.01}, {"mask": "window:64", "bias": decay}, {"mask": "two-sided:9"}):
        head = Attention(10**6, 64, **options)
        assert head.visibility.mean_rows(500_000, 500_001).sum() == pytest.approx(1, rel=1e-12)
        assert len(pickle.dumps(head)) < 2000
        assert len(pickle.dumps(head.visibility)) < 2000
    effective = Attention(10**6, 64, mask="causal", bias=0.01).visibility.effective_keys()
    assert effective[-1] == pytest.approx(1 / math.tanh(0.005), rel=1e-10)  # (Σ e^{-sk})²/Σ e^{-2sk}


# -- as a dataclass ---------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [o for o in HEADS if o.get("bias") is not HEADS[-1]["bias"]])
def test_pickling_copying_and_comparing(options):
    head = make(options)
    again = pickle.loads(pickle.dumps(head))
    assert again == head
    assert hash(again) == hash(head)
    assert (again.sample(1) == head.sample(1)).all()
    assert head == make(options) == dataclasses.replace(head)
    assert dataclasses.replace(head, beta=3.0) != head
    assert dataclasses.replace(head, mask=None, bias=None) != head
    assert len(repr(head)) < 300


def test_arrays_compare_by_content_and_are_copied():
    seen = RANDOM.copy()
    head = Attention(24, 8, mask=seen, bias=np.zeros((24, 24)))
    other = Attention(24, 8, mask=seen.copy(), bias=-np.zeros((24, 24)))
    assert head == other
    assert hash(head) == hash(other)
    seen[:] = True
    assert (np.asarray(head.mask) == RANDOM).all()
    with pytest.raises(ValueError, match="read-only"):
        head.mask.array[0, 0] = True
    np.array(head.mask, copy=True)[0, 0] = True
    assert head != Attention(24, 8, mask=seen, bias=np.zeros((24, 24)))
    assert head.mask != "causal"
    assert isinstance(head.visibility, Visibility)


def test_replacing_sizes():
    assert dataclasses.replace(Attention(24, 8, mask="window:30"), tokens=100).visibility.kind == "general"
    with pytest.raises(ParameterError, match=r"mask must have shape \(tokens, keys\) = \(25, 25\)"):
        dataclasses.replace(Attention(24, 8, mask=RANDOM), tokens=25)


# -- refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask": "casual"}, 'mask must be None, "none", "causal", "window:W".*got \'casual\''),
        ({"mask": "window"}, "mask must be .* got 'window'"),
        ({"mask": "window:0"}, "mask must be .* got 'window:0'"),
        ({"mask": "window:-3"}, "mask must be .* got 'window:-3'"),
        ({"mask": "block:2.5"}, "mask must be .* got 'block:2.5'"),
        ({"mask": "causal:3"}, "mask must be .* got 'causal:3'"),
        ({"mask": ""}, "mask must be .* got ''"),
        ({"mask": 5}, "mask must be .* got 5"),
        ({"mask": True}, r"mask must have shape \(tokens, keys\) = \(24, 24\)"),
        ({"mask": np.ones((24, 24))}, r"an array of shape \(24, 24\), whose entries are not booleans"),
        ({"mask": [[True], [True, False]]}, "mask must be .* got a ragged list"),
        (
            {"mask": RANDOM[:-1]},
            r"mask must have shape \(tokens, keys\) = \(24, 24\); got an array of shape \(23, 24\)",
        ),
        ({"mask": RANDOM & (np.arange(24) != 5)[:, None]}, "row 5 of 24 sees none of the 24 keys"),
        ({"mask": lambda x, y: (x < 0.5) & (y < 0.5)}, "row 12 of 24 sees none"),
        ({"mask": lambda x, y: x - y}, "mask, a function, must return booleans"),
        ({"mask": lambda x, y: np.ones(7, dtype=bool)}, "mask, a function, must return booleans"),
        (
            {"mask": "causal", "keys": 20},
            r"row 0 of 24 sees none of the 20 keys \(query i stands at position i \+ keys",
        ),
        ({"bias": 0}, "bias must be a finite real number above 0; got 0"),
        ({"bias": -0.5}, "bias must be a finite real number above 0; got -0.5"),
        ({"bias": math.inf}, "bias must be"),
        ({"bias": True}, "bias must be a finite real number above 0; got True"),
        ({"bias": 1e308}, "bias must be a slope whose multiples by up to 48 are finite"),
        ({"bias": "alibi"}, "bias must be"),
        ({"bias": 1j}, "bias must be real numbers"),
        ({"bias": np.zeros(24)}, r"bias must be None, a slope above 0, .*\(24, 24\); got an array of shape \(24,\)"),
        (
            {"bias": np.where(np.eye(24), -np.inf, 0)},
            r"bias must be finite \(a mask hides keys\); got -inf at row 0, key 0",
        ),
        ({"bias": np.full((24, 24), np.nan)}, "bias must not contain NaN"),
        ({"bias": lambda r: np.log(r)}, r"bias, a function, must be finite at every .*; it is -?(nan|inf) at"),
        ({"bias": lambda r: r[1:]}, "bias, a function, must map an array of relative positions"),
        ({"bias": lambda r: r + 1j}, "bias, a function, must map"),
        ({"bias": 0.5, "score": np.exp}, "bias is added to scores under the exponential and needs score=None"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ParameterError, match=message):
        make(options)


def test_the_limit_law_is_that_of_unmasked_attention():
    for options in ({"mask": "causal"}, {"bias": 0.1}):
        with pytest.raises(ParameterError, match=r"limit_law is the law of unmasked attention .*finite_law\(\)"):
            make(options).limit_law()
    assert Attention(24, 8, mask="none").limit_law().moment(1) > 0
