import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gequiv.inspection.calibration import STEP, Calibration, Moments, holm, pooled_moments, statistics
from gequiv.inspection.head import Held


def _held(values):
    """A head of these statistics: log D, edge excesses, β excess."""
    log_ks, edge, local, beta = map(float, values)
    return Held(1.0, None, (), 0, math.exp(log_ks), 0.1, edge, local, beta, 0.0)


def test_statistics():
    held = _held([-3.0, 0.1, 0.2, -0.3])
    np.testing.assert_allclose(statistics(held), [-3.0, 0.1, 0.2, -0.3])
    assert statistics(Held(1.0, None, (), 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0))[0] < -20  # a distance of zero has a log


# -- many heads -----------------------------------------------------------------------------------------


def test_holm_by_hand():
    """Sorted 0.005·4, 0.01·3, 0.03·2, 0.04·1, each at least the one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([0.2]) == [0.2]
    assert holm([]) == []
    assert holm([0.02, 0.02]) == pytest.approx([0.04, 0.04])


@given(st.lists(st.floats(0, 1), max_size=12), st.floats(0.01, 0.5))
def test_holm_is_the_step_down_procedure(p_values, level):
    """Adjusted p ≤ level just where Holm 1979 rejects: the smallest first, while p_(k) ≤ level/(m - k)."""
    adjusted = holm(p_values)
    m = len(p_values)
    rejected = set()
    for rank, k in enumerate(sorted(range(m), key=lambda k: p_values[k])):
        if (m - rank) * p_values[k] > level:
            break
        rejected.add(k)
    assert {k for k in range(m) if adjusted[k] <= level} == rejected
    assert all(p <= a <= min(1, m * p) for p, a in zip(p_values, adjusted, strict=True))


# -- heads of few draws ---------------------------------------------------------------------------------


def test_pooled_moments_keep_the_level():
    """Kinds of one scatter and any means: p of a further draw is uniform. 40 kinds of 6 draws, 60 times; p > 1e-3."""
    rng = np.random.default_rng(7)
    found = []
    for _ in range(60):
        means = rng.uniform(-4, 0, (40, 4))
        kinds = [
            (0.1 * rng.standard_normal(), [_held(row) for row in m + 0.3 * rng.standard_normal((6, 4))]) for m in means
        ]
        for mean, moments in zip(means, pooled_moments(kinds, 0.25), strict=True):
            found.append(moments.p_values(_held(mean + 0.3 * rng.standard_normal(4))))
    values = np.array(found)
    for k in (0, 3):
        for level in (0.01, 0.05, 0.2):  # at most the level: the tails are those of a skew variable
            assert stats.binomtest(int((values[:, k] <= level).sum()), len(values), level, "greater").pvalue > 1e-3
        assert (values[:, k] <= 0.2).mean() > 0.12  # and not idle


def test_pooled_moments_tell_kinds_apart():
    """What is usual for one kind is not for another of the same place; a kind far away has no say in the scatter."""
    rng = np.random.default_rng(8)
    low = [_held([-3.5, 0, 0, 0] + 0.1 * rng.standard_normal(4)) for _ in range(12)]
    high = [_held([-1.0, 0, 0, 0] + 0.1 * rng.standard_normal(4)) for _ in range(12)]
    wild = [_held([-3.5, 0, 0, 0] + 2 * rng.standard_normal(4)) for _ in range(12)]
    moments = pooled_moments([(0.0, low), (0.0, high), (5.0, wild)], 0.25)
    own = _held([-1.0, 0, 0, 0])
    assert moments[0].p_values(own)[0] < 1e-6
    assert moments[1].p_values(own)[0] > 0.05
    assert np.exp(moments[0].log_deviation) == pytest.approx(np.full(4, 0.1 * math.sqrt(13 / 12)), rel=0.5)
    assert np.exp(moments[2].log_deviation).min() > 1


def test_pooled_moments_of_draws_without_beta():
    """Where all draws are one-hot, a head that is so too is as expected; one that is not, or among others, is not."""
    one_hot = [_held([-1.0 + 0.1 * k, 0, 0, math.inf]) for k in range(4)]
    plain = [_held([-1.0 + 0.1 * k, 0, 0, 0.05 * k]) for k in range(4)]
    first, second = pooled_moments([(0.0, one_hot), (9.0, plain)], 0.25)
    assert first.p_values(one_hot[0])[3] > 0.9
    assert first.p_values(plain[0])[3] < 1e-6
    assert second.p_values(one_hot[0])[3] == 0.0


# -- p-values -------------------------------------------------------------------------------------------


def test_moments_of_draws():
    """Mean, deviation and skewness of numpy and scipy."""
    rng = np.random.default_rng(0)
    values = np.column_stack([rng.gamma(3, size=40) - 5, *rng.standard_normal((2, 40)), rng.exponential(size=40)])
    moments = Moments.of([_held(row) for row in values])
    deviation = values.std(axis=0, ddof=1)
    np.testing.assert_allclose(moments.mean, values.mean(axis=0))
    np.testing.assert_allclose(moments.log_deviation, np.log(deviation))
    # scipy's divides by the deviation over n
    np.testing.assert_allclose(moments.skewness, stats.skew(values) * (39 / 40) ** 1.5)
    assert moments.draws == 40


def test_p_values_of_the_stated_law():
    """Statistics of Pearson type III with known moments: p uniform (KS test at level 1e-4); β by both sides."""
    rng = np.random.default_rng(1)
    mean, deviation, skewness = np.array([-3.0, 0.1, 0.4, 0.0]), np.array([0.2, 0.05, 0.3, 0.01]), 1.2
    moments = Moments(mean, np.log(deviation), np.full(4, skewness), 10**7)
    z = stats.pearson3.rvs(skewness, size=(1500, 4), random_state=rng)
    found = np.array([moments.p_values(_held(row)) for row in mean + deviation * z])
    for k in range(3):
        assert stats.kstest(found[:, k], "uniform").pvalue > 1e-4
    expected = np.minimum(1, 2 * stats.pearson3.sf(np.abs(z[:, 3]), skewness))
    np.testing.assert_allclose(found[:, 3], expected, rtol=1e-4)


def test_p_values_with_moments_from_draws():
    """Gaussian statistics, moments from 24 draws: p < α in at most α of 1000, and not in far fewer (5 deviations)."""
    rng = np.random.default_rng(2)
    number, draws = 1000, 24
    mean, deviation = np.array([-3.0, 0.1, 0.4, 0.0]), np.array([0.2, 0.05, 0.3, 0.01])
    found = []
    for _ in range(number):
        values = mean + deviation * rng.standard_normal((draws + 1, 4))
        found.append(Moments.of([_held(row) for row in values[1:]]).p_values(_held(values[0])))
    found = np.array(found)
    for level in (0.01, 0.05, 0.1):
        shares = (found < level).mean(axis=0)
        assert (shares <= level + 5 * math.sqrt(level / number)).all()
        # the allowance for skewness makes them rarer: not by more than a factor of ten
        assert (shares >= level / 10 - 5 * math.sqrt(level / 10 / number)).all()
    assert (found < 0.1).mean() > 0.03
    assert ((found >= 0) & (found <= 1)).all()


@settings(max_examples=40, deadline=None)
@given(
    st.floats(1e-4, 0.12),
    st.integers(5, 200),
    st.tuples(st.floats(-2, 2), st.floats(-2, 2)),
    st.tuples(st.floats(-6, 1), st.floats(-6, 1)),
    st.floats(-3, 3),
)
def test_margins_are_where_p_is_the_level(level, draws, means, log_deviations, skewness):
    moments = Moments(
        np.array([0.0, *means, 0.0]),
        np.array([0.0, *log_deviations, 0.0]),
        np.full(4, skewness),
        draws,
    )
    edge, local = moments.edge_margins(level)
    _, p_edge, p_local, _ = moments.p_values(_held([0.0, edge, local, 0.0]))
    assert p_edge == pytest.approx(level, rel=1e-4)
    assert p_local == pytest.approx(level, rel=1e-4)


def test_fewer_draws_are_less_sure():
    """The same statistic is less unlikely where moments are known from fewer draws; the edge has
    at least a skewness of 1."""
    held = _held([0.0, 3.0, 3.0, 3.0])
    found = [Moments(np.zeros(4), np.zeros(4), np.zeros(4), draws).p_values(held)[1] for draws in (6, 12, 48, 10**6)]
    assert found == sorted(found, reverse=True)
    assert found[-1] == pytest.approx(stats.pearson3.sf(3.0, 1.0), rel=1e-3)
    score = stats.norm.isf(stats.t.sf(3 / math.sqrt(1 + 1 / 6), 5))
    assert found[0] == pytest.approx(stats.pearson3.sf(score, 1.0), rel=1e-9)


def test_p_values_at_the_ends():
    moments = Moments(np.zeros(4), np.zeros(4), np.zeros(4), 48)
    assert moments.p_values(_held([0.0, math.inf, math.inf, math.inf])) == (pytest.approx(0.5, abs=0.1), 0, 0, 0)
    assert moments.p_values(_held([0.0, -math.inf, -math.inf, 0.0]))[1:3] == (1, 1)
    found = moments.p_values(_held([500.0, 1e8, 1e300, -1e8]))
    assert max(found) < 1e-9


# -- between anchors ------------------------------------------------------------------------------------


def _planted(beta):
    x = math.log(beta)
    return Moments(np.array([x, 2 * x, 0, 1]), np.full(4, -x), np.full(4, 0.5 * x), 48, log_threshold=3 * x)


def test_between_anchors():
    """What is linear in log β is interpolated exactly; each anchor is drawn once; anchors are powers of 1.25."""
    asked = []

    def draw(beta):
        asked.append(beta)
        return _planted(beta)

    calibration = Calibration(draw)
    for beta in (1.1, 0.3, 1.2, 1.2499, 3.0):
        found, expected = calibration.at(beta), _planted(beta)
        np.testing.assert_allclose(found.mean, expected.mean, atol=1e-12)
        np.testing.assert_allclose(found.log_deviation, expected.log_deviation, atol=1e-12)
        np.testing.assert_allclose(found.skewness, expected.skewness, atol=1e-12)
        assert found.log_threshold == pytest.approx(expected.log_threshold)
        assert found.draws == 48
    assert len(asked) == len(set(asked)) == 6
    steps = np.log(asked) / math.log(1.25)
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-9)
    assert pytest.approx(math.log(1.25)) == STEP


@given(st.lists(st.floats(0.01, 50), min_size=1, max_size=5))
def test_anchors_enclose(betas):
    anchors = Calibration.anchors(betas)
    assert anchors == sorted(set(anchors))
    for beta in betas:
        lows = [k for k in anchors if Calibration.beta_of(k) <= beta * (1 + 1e-12)]
        highs = [k for k in anchors if Calibration.beta_of(k) >= beta * (1 - 1e-12)]
        assert min(highs) - max(lows) <= 1


def test_toward_ends():
    a, b = _planted(0.5), _planted(2.0)
    for share, end in ((0, a), (1, b)):
        np.testing.assert_array_equal(a.toward(b, share).mean, end.mean)
        np.testing.assert_array_equal(a.toward(b, share).log_deviation, end.log_deviation)
    few = Moments(a.mean, a.log_deviation, a.skewness, 10)
    assert few.toward(b, 0.5).draws == b.toward(few, 0.5).draws == 10
