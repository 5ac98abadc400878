import json
import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gequiv
from gequiv.errors import InputFileError, ParameterError
from gequiv.inspection import inspect_attention

N, HEAD_DIM = 96, 16
QUERIES, KEYS = range(10, 50), range(60, 72)
NAMES = ["cool", "warm", "planted", "constant", "uniform", "identity"]


def _softmax(scores, visible=True):
    scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _scores(seed, beta, n=N, head_dim=HEAD_DIM, keys=None):
    """Scores β Q Kᵀ/√d_k of Gaussian queries and keys."""
    rng = np.random.default_rng(seed)
    queries, others = rng.standard_normal((n, head_dim)), rng.standard_normal((keys or n, head_dim))
    return beta * queries @ others.T / math.sqrt(head_dim)


def _block(queries, keys, n=N):
    """Ones where these queries meet these keys."""
    where = np.zeros((n, n))
    where[np.ix_(list(queries), list(keys))] = 1.0
    return where


def _spread(scores):
    """Standard deviation of doubly centred scores."""
    centred = scores - scores.mean(axis=1, keepdims=True)
    centred -= centred.mean(axis=0)
    return math.sqrt((centred**2).sum() / ((scores.shape[0] - 1) * (scores.shape[1] - 1)))


@pytest.fixture(scope="module")
def scores():
    """Two random heads, one in which QUERIES look at KEYS by e⁴, in place of one inner direction."""
    return {
        "cool": _scores(1, 0.5),
        "warm": _scores(2, 0.8),
        "planted": _scores(3, 0.5, head_dim=HEAD_DIM - 1) + 4.0 * _block(QUERIES, KEYS),
    }


@pytest.fixture(scope="module")
def attention(scores):
    heads = {name: _softmax(values) for name, values in scores.items()}
    heads["constant"] = np.tile(_softmax(_scores(4, 1.0)[:1]), (N, 1))
    heads["uniform"] = np.full((N, N), 1 / N)
    heads["identity"] = _softmax(40.0 * np.eye(N))
    return np.array([heads[name] for name in NAMES])


@pytest.fixture(scope="module")
def calls():
    return []


@pytest.fixture(scope="module")
def report(attention, calls):
    return inspect_attention(attention, jobs=1, progress=lambda *call: calls.append(call))


@pytest.fixture(scope="module")
def heads(report):
    return dict(zip(NAMES, report.heads, strict=True))


# -- six heads ------------------------------------------------------------------------------------------


def test_places(report):
    assert [(head.layer, head.head) for head in report.heads] == [(0, k) for k in range(6)]
    assert {(head.tokens, head.keys, head.mask) for head in report.heads} == {(N, N, "none")}
    assert report.level == 0.05
    assert report.source == "array"
    assert not report.layered


def test_verdicts(report, heads):
    """The random ones pass, which they do with probability 0.95; nothing else does."""
    assert {name: head.random for name, head in heads.items()} == {name: name in ("cool", "warm") for name in NAMES}
    assert report.random == 2
    assert {name: head.state for name, head in heads.items() if not head.random} == {
        "planted": "not random",
        "constant": "not random",
        "uniform": "not random",
        "identity": "untested",
    }
    assert report.untested == 1
    expected = "3 of 6 heads not random, 1 of them with singular values outside the bulk; 1 could not be tested"
    assert report.summary == expected
    for head in report.heads:
        assert head.verdict.startswith(f"{head.state}: ")
        assert head.random == (head.p_adjusted is not None and head.p_adjusted > report.level)


def test_inverse_temperature(heads, scores):
    """By log A the spread of the scores that were drawn, exactly; by the other routes within 5 %."""
    for name in ("cool", "warm"):
        spread = _spread(scores[name])
        assert heads[name].beta_scores == pytest.approx(spread, rel=1e-9)
        assert heads[name].beta == pytest.approx(spread, rel=0.05)
        assert heads[name].beta_entropy == pytest.approx(spread, rel=0.05)
    # without the outlier the bulk of a planted head is as cool as its random part
    assert heads["planted"].beta < heads["planted"].beta_scores
    assert heads["planted"].beta_scores == pytest.approx(_spread(scores["planted"]), rel=1e-9)


def test_sizes(heads):
    """Rank 16 of the scores, orthonormal tokens; 15 and the planted direction make 16 as well."""
    assert [heads[name].head_dim for name in ("cool", "warm", "planted")] == [HEAD_DIM] * 3
    for name in ("cool", "warm"):
        assert heads[name].directions == pytest.approx(HEAD_DIM, rel=0.15)


def test_bulk_and_edge(heads, attention):
    """KS and W₁ against the exact finite-size law of the β that was found, by `compare`; values recomputed."""
    for number, name in ((0, "cool"), (1, "warm")):
        head = heads[name]
        deviation = attention[number] - 1 / N
        deviation = math.sqrt(N) * (deviation - deviation.mean(axis=0))
        values = np.sort(np.linalg.svd(deviation, compute_uv=False)[: N - 1] ** 2)
        np.testing.assert_allclose(np.sort(head.spectrum), values, rtol=1e-6, atol=1e-9)
        law = gequiv.Attention(N, head.head_dim, head.beta, width=head.width).finite_law()
        expected = gequiv.compare(law, values)
        assert head.ks == pytest.approx(expected.ks, abs=5e-3)
        assert head.wasserstein == pytest.approx(expected.wasserstein, abs=0.02 * law.moment(1))
        assert head.outliers == []
        assert head.law_solved
        assert values[-1] < head.edge <= head.edge_local
        assert 0 < head.detection_threshold**2 < head.edge


def test_p_values(heads):
    for name in ("cool", "warm", "planted"):
        head = heads[name]
        each = [head.p_bulk, head.p_edge, head.p_edge_local, head.p_beta]
        assert all(0 <= p <= 1 for p in each)
        assert head.p_value == min(1.0, 4 * min(each))
        assert head.p_value <= head.p_adjusted <= 1


def test_effective_rank(heads, attention):
    """exp of the entropy of numpy's singular values; 1 where all rows are alike, n for the identity."""
    for name, matrix in zip(NAMES, attention, strict=True):
        singular = np.linalg.svd(matrix, compute_uv=False)
        shares = singular / singular.sum()
        shares = shares[shares > 1e-12]
        expected = math.exp(-(shares * np.log(shares)).sum())
        # eigenvalues of a Gram matrix: zero singular values come out as 1e-8 of the largest
        assert heads[name].effective_rank == pytest.approx(expected, rel=1e-4)
    assert heads["uniform"].effective_rank == pytest.approx(1, rel=1e-4)
    assert heads["identity"].effective_rank == pytest.approx(N, rel=1e-6)


def test_planted_direction_is_found(heads):
    head = heads["planted"]
    first = head.outliers[0]
    assert "outside the bulk" in head.verdict
    assert first.over_edge > 1.5
    assert first.kind in ("direction", "column")
    assert set(first.keys) <= set(KEYS)
    assert set(first.queries) <= set(QUERIES)
    assert min(first.key_weights) > 0
    assert min(first.query_weights) > 0  # they look at the keys, not away from them
    assert first.spread_keys == pytest.approx(len(KEYS), rel=0.35)
    assert max(head.p_edge, head.p_adjusted) < 0.01
    values = [outlier.value for outlier in head.outliers]
    assert values == sorted(values, reverse=True)


def test_degenerate_heads_are_findings(heads):
    for name, words in (("constant", "all queries look at the keys alike"), ("uniform", "weighs all keys alike")):
        assert words in heads[name].verdict
    assert "one-hot" in heads["identity"].verdict
    for name in ("constant", "uniform", "identity"):
        head = heads[name]
        assert not head.random
        assert head.ks is head.p_value is head.p_adjusted is head.edge is None
        assert head.outliers == []
    assert heads["identity"].beta is None
    assert heads["uniform"].beta == pytest.approx(0, abs=1e-6)


def test_what_is_left_without_outliers_may_be_nothing():
    """Exact rank one, found and called so; scores of 1e-7 are none; their softmax has β below what rounding leaves."""
    rng = np.random.default_rng(12)
    u, v = rng.standard_normal((2, 64))
    plane = 1 / 64 + np.outer(np.sign(u), np.sign(v - np.median(v))) / 200
    faint = _softmax(1e-7 * rng.standard_normal((64, 64)))
    exact, none = inspect_attention(np.array([plane, faint]), head_dim=12, width=10_000, jobs=1).heads
    assert exact.verdict.startswith("not random: 1 singular value outside the bulk")
    assert exact.beta > 0.1
    assert none.verdict == "not random: every query weighs all keys alike, to rounding"
    assert none.beta == 0


def test_where_random_heads_have_no_beta():
    """At β = 4 most rows over 30 keys are one-hot, so that the energy tells little of β: untested."""
    (head,) = inspect_attention(_softmax(_scores(5, 3.9, 30, 4))[None], head_dim=4, jobs=1).heads
    assert head.state == "untested"
    assert "one-hot" in head.verdict


@pytest.mark.parametrize("mask", [None, "causal"])
@settings(max_examples=8, deadline=None)
@given(st.integers(2, 10), st.integers(0, 8), st.floats(-6, 2.5), st.integers(0, 2**32))
def test_small_heads(mask, rows, more, log_beta, seed):
    """Any head over few tokens has a report, whatever β is."""
    scores = math.exp(log_beta) * np.random.default_rng(seed).standard_normal((rows, rows + more))
    matrix = _softmax(scores, np.tri(rows, rows + more, more, dtype=bool) if mask else True)
    (head,) = inspect_attention(matrix[None], head_dim=16, jobs=1).heads
    assert head.verdict.startswith(f"{head.state}: ")
    json.dumps(head.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (["random"], "the head passes as random"),
        (["not random"], "the head is not random"),
        (["untested"], "the head could not be tested"),
        (["random"] * 2, "both heads pass as random"),
        (["untested"] * 2, "none of 2 heads could be tested"),
        (["random"] * 3 + ["untested"], "3 of 4 heads pass as random; 1 could not be tested"),
        (["random", "not random"], "1 of 2 heads not random"),
        (["not random", "random", "untested"], "1 of 3 heads not random; 1 could not be tested"),
    ],
)
def test_summary(report, states, words):
    one = replace(report.heads[0], outliers=[])
    heads = [replace(one, random=state == "random", verdict=f"{state}: because") for state in states]
    found = replace(report, heads=heads)
    assert found.summary == words
    assert found.to_dict()["untested"] == states.count("untested")


def test_to_dict_is_json(report):
    """Strict JSON, the same again when read back, None for what there is not."""
    parts = report.to_dict()
    assert json.loads(json.dumps(parts, allow_nan=False)) == parts
    assert len(parts["heads"]) == 6
    for head, part in zip(report.heads, parts["heads"], strict=True):
        assert part["verdict"] == head.verdict
        assert part["outliers"] == [outlier.to_dict() for outlier in head.outliers]
        assert part["nulls"] == []
        assert part["explained_by"] is None
    assert parts["heads"][5]["beta"] is None


def test_to_frame_without_pandas(report, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ParameterError, match=r"to_frame needs pandas: pip install pandas"):
        report.to_frame()


def test_to_frame(report):
    pytest.importorskip("pandas", reason="pandas is an extra")
    frame = report.to_frame()
    assert len(frame) == 6
    assert list(frame["verdict"]) == [head.verdict for head in report.heads]
    assert list(frame["outliers"]) == [len(head.outliers) for head in report.heads]


def test_progress(report, calls):
    """Every kind of work ends where its total says; heads and verdicts are all of them."""
    assert report.heads
    last = {what: (done, total) for done, total, what in calls}
    assert set(last) == {"heads", "laws", "random heads", "verdicts"}
    assert all(done == total for done, total in last.values())
    assert last["heads"] == last["verdicts"] == (6, 6)
    assert [done for done, _, what in calls if what == "heads"] == list(range(1, 7))


# -- one law of small heads, and what may be given --------------------------------------------------------

SMALL, SMALL_DIM, SMALL_BETA = 64, 12, 0.7


@pytest.fixture(scope="module")
def small():
    return np.array([_softmax(_scores(100 + k, SMALL_BETA, SMALL, SMALL_DIM)) for k in range(24)])


@pytest.fixture(scope="module")
def pair(small):
    return inspect_attention(small[:2], head_dim=SMALL_DIM, jobs=1)


def test_level_is_kept(small):
    """Of 24 random heads at most 6 have p < 0.1 (binomial: 0.99 of runs), and none is called otherwise at 0.01."""
    report = inspect_attention(small, head_dim=SMALL_DIM, level=0.01, jobs=1)
    p_values = np.array([head.p_value for head in report.heads])
    assert (p_values < 0.1).sum() <= 6
    assert report.random == 24
    assert report.summary == "all 24 heads pass as random"
    betas = [head.beta for head in report.heads]
    # deviation of β: √((2/n + 2/n)/d_k)/2 from the factors
    error = math.sqrt(4 / SMALL / SMALL_DIM) / 2 / math.sqrt(24)
    assert np.mean(betas) == pytest.approx(SMALL_BETA, abs=5 * error)


def test_another_seed_is_another_draw(small, pair):
    """That the same seed repeats a report is seen by the file below, which has the numbers of the array."""
    other = inspect_attention(small[:2], head_dim=SMALL_DIM, jobs=1, seed=1)
    for a, b in zip(pair.heads, other.heads, strict=True):
        assert (a.ks, a.beta, a.effective_rank) == (b.ks, b.beta, b.effective_rank)  # of the head, not of the draws
        assert a.p_edge != b.p_edge


def test_file_with_layers(small, pair, tmp_path):
    """A .npy file of two layers of one head: the numbers of the array of two heads, in other places."""
    np.save(tmp_path / "heads.npy", small[:2, None])
    report = inspect_attention(str(tmp_path / "heads.npy"), head_dim=SMALL_DIM, jobs=1)
    assert report.source == "heads.npy"
    assert report.layered
    for number, (found, head) in enumerate(zip(report.heads, pair.heads, strict=True)):
        assert found.to_dict() == head.to_dict() | {"layer": number, "head": 0}


def test_scores_change_their_beta_only(small, pair):
    """Twice the scores of the softmax: β by scores doubles, all else stays."""
    given = np.array([2 * _scores(100 + k, SMALL_BETA, SMALL, SMALL_DIM) + 7 for k in range(2)])
    found = inspect_attention(small[:2], scores=given, head_dim=SMALL_DIM, jobs=1)
    for a, b in zip(pair.heads, found.heads, strict=True):
        before, after = a.to_dict(), b.to_dict()
        assert after.pop("beta_scores") == pytest.approx(2 * before.pop("beta_scores"), rel=1e-9)
        before.pop("findings")
        assert any("by the scores" in finding for finding in after.pop("findings"))
        for name, value in before.items():
            assert after[name] == (pytest.approx(value, rel=1e-6) if isinstance(value, float) else value), name


def test_half_precision(small, pair):
    """Entries with relative errors of 2⁻¹¹: the same report within them."""
    found = inspect_attention(small[:2].astype(np.float16), head_dim=SMALL_DIM, jobs=1)
    for a, b in zip(pair.heads, found.heads, strict=True):
        assert b.random
        assert b.beta == pytest.approx(a.beta, rel=2e-3)
        assert b.beta_scores == pytest.approx(a.beta_scores, rel=2e-3)
        assert b.ks == pytest.approx(a.ks, abs=0.01)


def test_head_width_from_rounded_scores(small):
    """In float16 the rank of log A drowns in rounding; the head has d_k = 12 all the same, or says that it has none."""
    head = inspect_attention(small[:1].astype(np.float16), jobs=1).heads[0]
    assert head.head_dim is None or abs(head.head_dim - SMALL_DIM) <= 2
    assert head.random or head.verdict.startswith("untested")


def test_cross_attention():
    """80 queries on 120 keys: random passes, its β and rank are found; a column bias is told as one."""
    plain = _scores(7, 0.6, 80, HEAD_DIM, keys=120)
    bias = np.zeros(120)
    bias[[5, 17]] = 3.0
    report = inspect_attention(np.array([_softmax(plain), _softmax(plain + bias)]), jobs=1)
    first, second = report.heads
    assert (first.tokens, first.keys, first.mask) == (80, 120, "none")
    assert first.random
    assert first.head_dim == second.head_dim == HEAD_DIM
    assert first.beta == pytest.approx(_spread(plain), rel=0.05)
    # constants of columns are no part of the spread of the scores
    assert second.beta_scores == pytest.approx(_spread(plain), rel=1e-9)
    column = second.outliers[0]
    assert column.kind == "column"
    assert set(column.keys[:2]) == {5, 17}
    assert any("column bias" in finding for finding in second.findings)


def test_causal():
    """A random causal head passes; one in which late queries look at early keys does not, and tells which."""
    n = 80
    visible = np.tril(np.ones((n, n), bool))
    late, early = range(50, 76), range(10, 20)
    scores = [_scores(23, 0.7, n), _scores(22, 0.3, n) + 2.0 * _block(late, early, n)]
    report = inspect_attention(np.array([_softmax(s, visible) for s in scores]), head_dim=HEAD_DIM, jobs=1)
    random, planted = report.heads
    assert random.mask == planted.mask == "causal"
    assert random.random
    assert random.beta == pytest.approx(0.7, rel=0.1)
    assert random.detection_threshold > 0
    assert not planted.random
    assert set(planted.outliers[0].keys) <= set(early)
    assert set(planted.outliers[0].queries) <= set(late)
    json.dumps(report.to_dict(), allow_nan=False)


# -- what is refused --------------------------------------------------------------------------------------

GOOD = np.full((1, 4, 4), 0.25)


def _with(entry):
    bad = GOOD.copy()
    bad[0, 1, 2] = entry
    return bad


@pytest.mark.parametrize(
    ("attention", "options", "message"),
    [
        (np.ones((1, 1, 1)), {}, "attention must have shape .*one token"),
        (np.zeros((0, 4, 4)), {}, r"attention must have shape .*got \(0, 4, 4\)"),
        (np.zeros(4), {}, "attention must have shape"),
        (None, {}, "attention must be an array"),
        (_with(math.nan), {}, "attention must be finite; got nan in head 0, row 1, key 2"),
        (_with(-0.25), {}, "attention must be at least 0; got -0.25 in head 0, row 1, key 2"),
        (_with(0.5), {}, "attention must have rows of sum one .*got 1.25 in head 0, row 1"),
        (GOOD.astype(complex), {}, "attention must hold real numbers .*got complex128"),
        (GOOD.astype(bool), {}, "attention must hold real numbers .*got bool"),
        (GOOD, {"key": "a"}, "key must be None"),
        (GOOD, {"level": 0.0}, "level must be"),
        (GOOD, {"level": 0.5}, "level must be a probability below 0.5; got 0.5"),
        (GOOD, {"level": "5%"}, "level must be"),
        (GOOD, {"seed": -1}, "seed must be an integer of at least 0; got -1"),
        (GOOD, {"seed": True}, "seed must be"),
        (GOOD, {"seed": 1.5}, "seed must be"),
        (GOOD, {"jobs": 0}, "jobs must be an integer of at least 1; got 0"),
        (GOOD, {"head_dim": 1}, "head_dim must be an integer of at least 2; got 1"),
        (GOOD, {"head_dim": 2.5}, "head_dim must be"),
        (GOOD, {"width": 0}, "width must be an integer of at least 1; got 0"),
        (GOOD, {"scores": np.zeros((2, 4, 4))}, "scores must have as many layers and heads"),
        (GOOD, {"scores": np.zeros((1, 4, 5))}, r"scores must have the shape of attention, \(4, 4\) in head 0"),
    ],
)
def test_refused(attention, options, message):
    with pytest.raises(ParameterError, match=f"(?s)^{message}"):
        inspect_attention(attention, **{"jobs": 1, **options})


@pytest.mark.parametrize("bad", [np.zeros((1, 4, 4), complex), np.zeros((1, 1, 1)), np.zeros(3)])
def test_refused_scores_are_called_scores(bad):
    with pytest.raises(ParameterError, match=r"^scores must"):
        inspect_attention(GOOD, scores=bad, jobs=1)


def test_scores_with_nan_are_refused():
    given = np.zeros((1, 4, 4))
    given[0, 1, 1] = math.nan
    with pytest.raises(ParameterError, match="scores"):
        inspect_attention(_softmax(np.random.default_rng(0).standard_normal((4, 4)))[None], scores=given, jobs=1)


def test_missing_file(tmp_path):
    with pytest.raises(InputFileError, match="attention cannot be read"):
        inspect_attention(tmp_path / "none.npy", jobs=1)
