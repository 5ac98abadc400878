import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gequiv
from gequiv.attention.masks import FrozenArray, Visibility
from gequiv.errors import ParameterError
from gequiv.inspection.rows import Padding, examine

WHERE = "layer 3, head 5"
NAMED = [None, "causal", "window:3", "window:7", "two-sided:3", "two-sided:6", "block:4", "block:5"]


def _softmax(scores, visible=True):
    scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _seen(mask, n_q, n_k=None):
    return Visibility(n_q, n_q if n_k is None else n_k, mask, None).visible(0, n_q)


def _head(n, mask, seed, keys=None):
    return gequiv.Attention(tokens=n, head_dim=8, beta=1.0, mask=mask, keys=keys).sample(seed)


def _padded(real, p, q, kind, rng):
    """A square head with p and q padded tokens around `real`; their rows are as `kind` of software makes them."""
    n = len(real) + p + q
    inside = slice(p, n - q)
    matrix = np.zeros((n, n))
    matrix[inside, inside] = real
    rows = np.r_[0:p, n - q : n]
    if kind == "uniform":
        matrix[rows] = 1 / n
    elif kind == "nan":
        matrix[rows] = np.nan
    elif kind == "others":
        matrix[rows, inside] = rng.dirichlet(np.ones(len(real)), len(rows))
    return matrix


@pytest.mark.parametrize("mask", NAMED)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize(("n_q", "n_k"), [(30, 30), (20, 30)])
def test_named_masks(mask, dtype, n_q, n_k):
    given = _softmax(np.random.default_rng(1).normal(size=(n_q, n_k)), _seen(mask, n_q, n_k)).astype(dtype)
    matrix = given.astype(np.float64)
    before = matrix.copy()
    rows = examine(matrix, dtype, WHERE)
    assert rows.mask == mask
    assert rows.padding == Padding()
    assert rows.underflow == 0
    assert f"mask: {mask or 'none'}" in rows.findings
    assert (rows.kept_rows, rows.kept_keys) == (slice(0, n_q), slice(0, n_k))
    np.testing.assert_allclose(rows.matrix.sum(axis=1), 1, rtol=1e-14)
    np.testing.assert_allclose(rows.matrix, given, rtol=1e-2)
    np.testing.assert_array_equal(matrix, before)
    assert rows.row_sum_error == pytest.approx(abs(matrix.sum(axis=1) - 1).max(), abs=1e-15)


@settings(max_examples=80, deadline=None)
@given(
    n=st.integers(5, 40),
    p=st.integers(0, 6),
    q=st.integers(0, 6),
    mask=st.sampled_from([None, "causal"]),
    kind=st.sampled_from(["uniform", "nan", "zero", "others"]),
    dtype=st.sampled_from(["float64", "float16"]),
    seed=st.integers(0, 1000),
)
def test_padding(n, p, q, mask, kind, dtype, seed):
    if mask == "causal" and kind == "uniform" and p == 0 and q == 1:
        q = 2  # with one, the last row is what a causal mask may give
    real = _head(n, mask, seed)
    matrix = _padded(real, p, q, kind, np.random.default_rng(seed)).astype(dtype).astype(np.float64)
    rows = examine(matrix, dtype, WHERE)
    assert rows.padding == Padding((p, q), (p, q))
    assert rows.mask == mask
    assert rows.kept_rows == rows.kept_keys == slice(p, n + p)
    np.testing.assert_allclose(rows.matrix, real, rtol=4e-3 if dtype == "float16" else 1e-14, atol=1e-7)
    cut = [f"{k} padded token{'s' * (k > 1)} cut at the {end}" for k, end in ((p, "start"), (q, "end")) if k]
    assert [finding for finding in rows.findings if "padded" in finding] == cut


@settings(max_examples=80, deadline=None)
@given(
    n=st.integers(2, 24),
    extra=st.integers(0, 6),
    mask=st.sampled_from(NAMED),
    seed=st.integers(0, 1000),
    beta=st.sampled_from([0.0, 1.0, 3.0]),
)
def test_what_a_mask_hides_is_not_padding(n, extra, mask, seed, beta):
    scores = beta * np.random.default_rng(seed).normal(size=(n, n + extra))
    seen = _seen(mask, n, n + extra)
    rows = examine(_softmax(scores, seen), "float64", WHERE)
    assert rows.padding.rows == (0, 0)
    lost = rows.padding.keys[0]
    if lost:  # few rows, most in one block or within reach of one key: nothing tells them from padding
        assert extra > 0
        assert not seen[:, :lost].any()
        assert mask.startswith("block") or int(mask.partition(":")[2]) > 3 * n / 4
        return
    assert rows.padding == Padding()
    # the mask found hides exactly the same keys, by whatever name
    found = FrozenArray(rows.mask) if isinstance(rows.mask, np.ndarray) else rows.mask
    if n >= 8:
        np.testing.assert_array_equal(_seen(found, n, n + extra), rows.matrix > 0)
        assert rows.underflow == 0


def test_left_padding_of_added_masks():
    """Rows of padding that see the keys before them and all real keys, as two masks of -10⁴ leave them."""
    rng = np.random.default_rng(0)
    n, p = 20, 4
    key, query = np.arange(n), np.arange(n)[:, None]
    scores = rng.normal(size=(n, n)) - 1e4 * (key > query) - 1e4 * (key < p)
    matrix = _softmax(scores)
    assert (matrix[p:, :p] == 0).all()
    assert (matrix[:p, 0] > 0).all()
    rows = examine(matrix, "float32", WHERE)
    assert rows.padding == Padding((p, 0), (p, 0))
    assert rows.mask == "causal"


@pytest.mark.parametrize(("mask", "p", "q"), [("window:4", 0, 9), ("two-sided:4", 9, 0), ("two-sided:4", 8, 9)])
def test_padded_rows_near_and_far_under_a_window(mask, p, q):
    """Near padding sees real tokens; far padding sees nothing, so that its softmax is uniform over all keys."""
    n = 20 + p + q
    key = np.arange(n)
    visible = _seen(mask, n) & (p <= key) & (key < n - q)
    blind = ~visible.any(axis=1)
    assert 0 < blind.sum() < p + q
    matrix = _softmax(np.random.default_rng(0).normal(size=(n, n)) * ~blind[:, None], visible | blind[:, None])
    rows = examine(matrix, "float64", WHERE)
    assert rows.padding == Padding((p, q), (p, q))
    assert rows.mask == mask


def test_both_ends_of_a_causal_head_may_be_uniform_rows():
    rows = examine(_padded(_head(12, "causal", 0), 3, 1, "uniform", None), "float64", WHERE)
    assert rows.padding == Padding((3, 1), (3, 1))


def test_keys_of_cross_attention_are_cut():
    real = _head(9, None, 0, keys=14)
    matrix = np.zeros((9, 20))
    matrix[:, 2:16] = real
    rows = examine(matrix, "float64", WHERE)
    assert rows.padding == Padding((0, 0), (2, 4))
    assert (rows.kept_rows, rows.kept_keys) == (slice(0, 9), slice(2, 16))
    assert rows.findings[:2] == ("2 padded keys cut at the start", "4 padded keys cut at the end")
    np.testing.assert_allclose(rows.matrix, real, rtol=1e-14)
    dead = np.vstack([np.full((1, 20), np.nan), matrix, np.zeros((2, 20))])
    rows = examine(dead, "float64", WHERE)
    assert rows.padding == Padding((1, 2), (2, 4))
    assert rows.findings[:2] == ("1 padded query cut at the start", "2 padded queries cut at the end")


def test_previous_token_head_is_not_padding():
    """All but the previous token underflow, so that no row sees the last key."""
    n = 40
    scores = np.where(np.arange(n) == np.arange(n)[:, None] - 1, 40.0, 0.0)
    matrix = _softmax(scores, _seen("causal", n)).astype(np.float16).astype(np.float64)
    assert (matrix[:, -1] == 0).all()
    rows = examine(matrix, "float16", WHERE)
    assert rows.padding == Padding()
    assert rows.mask == "causal"
    visible = n * (n + 1) / 2
    assert rows.underflow == pytest.approx(1 - n / visible)
    assert rows.one_hot == 1
    assert f"{n} rows see one key, row 0 the first" in rows.findings


@pytest.mark.parametrize("mask", [None, "causal"])
@pytest.mark.parametrize("beta", [4.0, 8.0, 40.0])
@pytest.mark.parametrize("n", [24, 100])
def test_sharp_heads_underflow(mask, beta, n):
    for seed in range(10):
        scores = beta * np.random.default_rng(seed).normal(size=(n, n))
        matrix = _softmax(scores, _seen(mask, n)).astype(np.float16).astype(np.float64)
        for dtype in ("float16", "float32"):  # the latter as after .float()
            rows = examine(matrix, dtype, WHERE)
            assert rows.padding == Padding()
            assert rows.mask == mask
            visible = _seen(mask, n)
            assert rows.underflow == pytest.approx(np.mean(matrix[visible] == 0), abs=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_decay_with_distance_is_underflow(dtype):
    n = 200
    distance = np.arange(n)[:, None] - np.arange(n)
    scores = np.random.default_rng(0).normal(size=(n, n)) - 0.5 * abs(distance)
    for mask in (None, "causal"):
        matrix = _softmax(scores, _seen(mask, n)).astype(np.float16).astype(np.float64)
        rows = examine(matrix, dtype, WHERE)
        assert rows.mask == mask
        assert rows.underflow > 0.5


def test_windows_with_some_underflow_keep_their_name():
    n = 300
    for mask in ("window:60", "two-sided:60", "block:60"):
        scores = 4.0 * np.random.default_rng(0).normal(size=(n, n))
        matrix = _softmax(scores, _seen(mask, n)).astype(np.float16).astype(np.float64)
        rows = examine(matrix, "float16", WHERE)
        assert rows.mask == mask
        assert 0 < rows.underflow < 0.1


def test_one_zero_in_float16_is_underflow():
    scores = np.random.default_rng(0).normal(size=(50, 50))
    scores[-1, 0] = -30.0
    rows = examine(_softmax(scores, _seen("causal", 50)).astype(np.float16).astype(np.float64), "float16", WHERE)
    assert rows.mask == "causal"
    assert rows.underflow == pytest.approx(1 / (25 * 51))
    assert "0.078 % of the visible entries underflow to zero in float16" in rows.findings


def _patterns(n):
    row, key = np.arange(n)[:, None], np.arange(n)
    document = np.searchsorted([n // 5, n // 2], np.arange(n), side="right")
    return {
        "prefix": (key <= row) | (key < n // 4),
        "documents": document[:, None] == document,
        "causal documents": (document[:, None] == document) & (key <= row),
        "strided": (key <= row) & ((row - key) % 4 == 0),
        "hidden keys": np.broadcast_to((key % 7 != 3) | (key == 0), (n, n)),
        "sink and window": (key <= row) & ((row - key < n // 6) | (key < 2)),
        "two blocks, the second sees all": (key < n // 2) | (row >= n // 2),
    }


@pytest.mark.parametrize("name", _patterns(8))
@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_patterns_without_a_name(name, dtype):
    visible = _patterns(48)[name]
    for seed in range(3):
        scores = np.random.default_rng(seed).normal(size=(48, 48))
        rows = examine(_softmax(scores, visible).astype(dtype).astype(np.float64), dtype, WHERE)
        assert isinstance(rows.mask, np.ndarray)
        np.testing.assert_array_equal(rows.mask, visible)
        assert rows.padding == Padding()
        assert rows.underflow == 0
        assert "mask: a pattern without a name" in rows.findings


def test_scattered_zeros_are_no_mask():
    rng = np.random.default_rng(3)
    rows = examine(_softmax(rng.normal(size=(40, 40)), rng.random((40, 40)) < 0.8), "float64", WHERE)
    assert rows.mask is None
    assert rows.underflow == pytest.approx(0.2, abs=0.05)


def test_uniform_and_identical_rows():
    for mask in (None, "causal", "window:4"):
        seen = _seen(mask, 20)
        rows = examine(seen / seen.sum(axis=1, keepdims=True), "float32", WHERE)
        assert (rows.mask, rows.uniform, rows.identical_rows) == (mask, True, mask is None)
        assert "each row weighs all keys that it sees alike" in rows.findings
    row = np.random.default_rng(0).dirichlet(np.ones(20))
    rows = examine(np.tile(row, (20, 1)), "float64", WHERE)
    assert (rows.uniform, rows.identical_rows) == (False, True)
    assert "all rows are equal" in rows.findings
    rows = examine(_head(20, None, 0), "float64", WHERE)
    assert (rows.uniform, rows.identical_rows, rows.one_hot, rows.sink) == (False, False, 0, None)


@pytest.mark.parametrize("mask", [None, "causal"])
def test_sink(mask):
    n, p = 40, 5
    scores = np.zeros((n, n))
    scores[:, 3] = 5.0
    real = _softmax(scores, _seen(mask, n))
    rows = examine(_padded(real, p, 0, "uniform", None), "float64", WHERE)
    key, share = rows.sink
    assert key == 3 + p
    assert share == pytest.approx(real[:, 3].mean() if mask is None else real[15:, 3].mean())
    assert any("key 8 takes" in finding for finding in rows.findings)


def test_one_hot():
    matrix = np.full((10, 10), 0.002 / 9)
    np.fill_diagonal(matrix, 0.998)
    matrix[:4] = 0.1
    rows = examine(matrix, "float64", WHERE)
    assert rows.one_hot == pytest.approx(0.6)
    identity = examine(np.eye(10), "float32", WHERE)
    assert identity.one_hot == 1
    assert identity.padding == Padding()
    assert identity.mask == "causal"  # one key each is one-hot, not a window


def _with(value, row=2, key=1, dtype=np.float64):
    matrix = _head(6, None, 0).astype(dtype).astype(np.float64)
    matrix[row, key] = value
    return matrix


@pytest.mark.parametrize(
    ("bad", "dtype", "message"),
    [
        (_with(np.nan), "float64", "finite; got nan in layer 3, head 5, row 2, key 1"),
        (_with(np.inf), "float64", "finite; got inf in layer 3, head 5, row 2, key 1"),
        (_with(-np.inf), "float64", "finite; got -inf in .*row 2, key 1; .*scores before the softmax, masked"),
        (_with(1e308), "float64", r"sum one within 1e-06 for float64; got 1e\+308 in .*row 2"),
        (np.full((4, 4), 1e308), "float64", "sum one .*got inf in .*row 0"),
        (_with(-1e-3), "float64", "at least 0; got -0.001 in layer 3, head 5, row 2, key 1"),
        (np.log(_head(6, None, 0)), "float64", "at least 0; .*row 0, key 0; .*scores before the softmax"),
        (2 * _head(6, None, 0), "float64", r"sum one .*row 0; all rows sum to 2: divide by it$"),
        (100 * _head(6, None, 0), "float32", "all rows sum to 100: divide by it, for percentages"),
        (_head(6, None, 0).T, "float64", "the columns do sum to one: transpose"),
        (_with(0.0, row=3), "float64", "sum one .*in layer 3, head 5, row 3"),
        (np.zeros((4, 4)), "float64", "row 0 of 4 is all zero or NaN and is not padding"),
        (np.full((4, 4), np.nan), "float64", "row 0 of 4 is all zero or NaN and is not padding"),
    ],
)
def test_bad_heads(bad, dtype, message):
    with pytest.raises(ParameterError, match=f"attention must .*{message}") as error:
        examine(bad, dtype, WHERE)
    assert WHERE in str(error.value)


@pytest.mark.parametrize("row", [0, 3, 9])
@pytest.mark.parametrize("value", [0.0, np.nan])
@pytest.mark.parametrize("mask", [None, "two-sided:3"])
def test_empty_rows_that_are_no_padding(row, value, mask):
    """The other rows see the key of the empty row."""
    matrix = _head(10, mask, 0)
    matrix[row] = value
    with pytest.raises(ParameterError, match=f"row {row} of 10 is all zero or NaN and is not padding"):
        examine(matrix, "float64", WHERE)


def test_dropout_is_suspected():
    rng = np.random.default_rng(0)
    matrix = _head(50, None, 0) * (rng.random((50, 50)) < 0.9) / 0.9
    with pytest.raises(ParameterError, match=r"dropout .*model.eval\(\)"):
        examine(matrix, "float32", WHERE)


def test_a_single_token_is_refused():
    matrix = np.full((5, 5), 0.2)
    matrix[3] = [0, 0, 0, 1, 0]
    with pytest.raises(ParameterError, match="at least two tokens"):
        examine(matrix, "float64", WHERE)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [("float64", 1e-6), ("int64", 1e-6), ("float32", 1e-4), ("float16", 2e-2), ("bfloat16", 5e-2)],
)
def test_tolerance(dtype, tolerance):
    head = _head(12, None, 0)
    error = examine(head * (1 + 0.9 * tolerance), dtype, WHERE).row_sum_error
    assert error == pytest.approx(0.9 * tolerance)
    with pytest.raises(ParameterError, match=f"within {tolerance:.2g} for"):
        examine(head * (1 + 1.2 * tolerance), dtype, WHERE)


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_half_precision_is_recognised_in_a_wider_dtype(half, dtype):
    head = _head(300, None, 0).astype(np.float32)
    if half == "float16":
        matrix = head.astype(np.float16).astype(np.float64)
    else:  # cut to the upper 16 bits
        matrix = (head.view(np.uint32) & 0xFFFF0000).view(np.float32).astype(np.float64)
    assert abs(matrix.sum(axis=1) - 1).max() > 1e-6
    rows = examine(matrix, dtype, WHERE)
    assert rows.row_sum_error < 1e-2
    if rows.row_sum_error > {"float32": 1e-4, "float64": 1e-6}[dtype]:
        assert rows.findings[0] == f"the numbers were converted from {half} to {dtype}"


def test_integers_are_one_hot():
    permutation = np.random.default_rng(0).permutation(30)
    rows = examine(np.eye(30)[permutation], "int64", WHERE)
    assert rows.mask is None
    assert rows.one_hot == 1


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_head_of_sum_one_is_examined_or_refused(data):
    """Whatever zeros there are, the result is consistent or a ParameterError is raised."""
    n_q, n_k = data.draw(st.integers(2, 7)), data.draw(st.integers(2, 7))
    bits = data.draw(st.lists(st.booleans(), min_size=n_q * n_k, max_size=n_q * n_k))
    fill = data.draw(st.sampled_from([0.0, np.nan]))
    seen = np.array(bits).reshape(n_q, n_k)
    weights = np.where(seen, np.random.default_rng(0).random((n_q, n_k)) + 0.1, 0.0)
    with np.errstate(all="ignore"):
        matrix = weights / weights.sum(axis=1, keepdims=True)
    matrix[~seen.any(axis=1)] = fill
    try:
        rows = examine(matrix, data.draw(st.sampled_from(["float16", "float32", "float64"])), WHERE)
    except ParameterError:
        assert not seen.any(axis=1).all()
        return
    kept = matrix[rows.kept_rows, rows.kept_keys]
    np.testing.assert_allclose(rows.matrix, kept, rtol=1e-12)
    assert kept.shape[0] >= 2
    assert kept.shape[1] >= 2
    mask = FrozenArray(rows.mask) if isinstance(rows.mask, np.ndarray) else rows.mask
    visible = _seen(mask, *kept.shape)
    assert not (visible < (kept > 0)).any()
    assert rows.underflow == pytest.approx(np.mean(kept[visible] == 0), abs=1e-12)
    assert rows.padding.keys == (rows.kept_keys.start, n_k - rows.kept_keys.stop)
    assert rows.padding.rows == (rows.kept_rows.start, n_q - rows.kept_rows.stop)
