"""Distances of samples from laws, against closed forms, brute force and quadrature."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import quad

from gequiv.errors import ParameterError
from gequiv.laws.chain import GaussianChainPlusNoise
from gequiv.laws.marchenko_pastur import MarchenkoPastur
from gequiv.simulation import compare, ks_between, laws_distance
from tests.simulation.heavy_tail import HeavyTail

LAWS = {
    "square": MarchenkoPastur(1.0, 0.7),
    "gap at zero": MarchenkoPastur(0.3, 2.5),
    "atom at zero": MarchenkoPastur(2.5, 1.3),
    "chain": GaussianChainPlusNoise([0.5], 1, 0.25, 0.034),
    "chain with atom": GaussianChainPlusNoise([0.5, 2], 2, 1.0, 0.7),
    "two intervals": GaussianChainPlusNoise([0.1], 1, 1.0, 0.01),
    "singular values": GaussianChainPlusNoise([0.5], 1, 0.25, 0.034).singular_values(),
    "singular values with atom": MarchenkoPastur(2.5, 1.3).singular_values(),
    "heavy tail": HeavyTail(50.0),
}


@pytest.fixture(params=list(LAWS))
def law(request):
    return LAWS[request.param]


def brute_force_ks(law, sample):
    """Supremum over a dense grid around every point, by definition of the two distribution functions."""
    reach = max(law.support()[-1][1], sample.max())
    points = np.concatenate([sample, np.nextafter(sample, -np.inf), np.linspace(-0.01, 1.1 * reach, 40001)])
    points = np.concatenate([points, [-1e-13, 0.0]])
    empirical = np.array([np.count_nonzero(sample <= x) for x in points]) / sample.size
    return np.abs(empirical - law.cdf(points)).max()


def test_brute_force(law):
    sample = law.rvs(37, 3) * 1.1 + 1e-3
    # the grid of 4e4 points may miss the supremum by the largest step of F between neighbours
    assert compare(law, sample).ks == pytest.approx(brute_force_ks(law, sample), abs=2e-3)
    assert compare(law, sample).ks >= brute_force_ks(law, sample) - 1e-14


def test_scipy_on_a_continuous_law():
    law = LAWS["gap at zero"]
    sample = np.random.default_rng(0).gamma(4.0, 0.6, 200)
    assert compare(law, sample).ks == pytest.approx(stats.kstest(sample, law.cdf).statistic, abs=1e-14)


@pytest.mark.parametrize("n", [1, 2, 7, 100])
@pytest.mark.parametrize("name", ["square", "gap at zero", "chain", "two intervals", "singular values"])
def test_quantile_midpoints_are_as_close_as_can_be(name, n):
    law = LAWS[name]
    middles = law.ppf((np.arange(n) + 0.5) / n)
    assert compare(law, middles).ks == pytest.approx(1 / (2 * n), abs=1e-12)


def test_quantile_midpoints_with_an_atom():
    # 200 points, of which the atom of weight 0.6 takes 120 exactly; the other 80 lie at the midpoints
    law = LAWS["atom at zero"]
    sample = law.ppf((np.arange(200) + 0.5) / 200)
    assert np.count_nonzero(sample == 0) == 120
    assert compare(law, sample).ks == pytest.approx(1 / 400, abs=1e-12)


def test_missing_zeros_cost_the_weight_of_the_atom():
    law = LAWS["atom at zero"]  # 0.6 at zero
    sample = law.ppf(0.6 + 0.4 * (np.arange(50) + 0.5) / 50)
    # just below the first point F = 0.6 + 0.4/100 and F_emp = 0
    assert compare(law, sample).ks == pytest.approx(0.604, abs=1e-12)


def test_only_zeros():
    # F_emp = 1 at and above zero: the distance is the continuous part's weight, W_1 the law's mean
    law = LAWS["atom at zero"]
    result = compare(law, np.zeros(5))
    assert result.ks == pytest.approx(0.4, abs=1e-14)
    assert result.wasserstein == pytest.approx(1.3, rel=1e-13)


def test_rounding_at_an_atom_is_forgiven():
    law = LAWS["atom at zero"]
    sample = law.ppf((np.arange(200) + 0.5) / 200)
    rounded = sample + np.where(sample == 0, 1e-15 * np.random.default_rng(1).standard_normal(200), 0)
    assert np.count_nonzero(rounded < 0) > 20
    assert compare(law, rounded).ks == compare(law, sample).ks
    assert compare(law, rounded).wasserstein == pytest.approx(compare(law, sample).wasserstein, rel=1e-12)


def test_zeros_that_are_not_rounding_are_not_forgiven():
    law = LAWS["atom at zero"]
    assert compare(law, np.full(5, -1e-6)).ks == 1.0


def quadrature_wasserstein(law, sample):
    """∫|F_emp - F| dx piece by piece, each cut where the difference changes sign, by adaptive quadrature."""
    sample = np.sort(sample)
    low = min(law.ppf(0.0), sample[0])
    high = max(law.ppf(1.0), sample[-1])
    knots = np.unique([low, high, *sample, *[e for i in law.support() for e in i]])
    knots = knots[(knots >= low) & (knots <= high)]
    total = 0.0
    for a, b in itertools.pairwise(knots):
        level = np.count_nonzero(sample <= a) / sample.size
        cut = min(max(law.ppf(level), a), b) if 0 < level < 1 else a
        for p, q in ((a, cut), (cut, b)):
            if q > p:
                value, _, *_ = quad(
                    lambda x, level=level: abs(level - law.cdf(x)), p, q, epsabs=1e-12, limit=400, full_output=1
                )
                total += value
    return total


def test_wasserstein_against_quadrature(law):
    sample = np.random.default_rng(5).gamma(1.5, 0.8, 23)
    assert compare(law, sample).wasserstein == pytest.approx(quadrature_wasserstein(law, sample), abs=1e-8)


def test_wasserstein_against_a_large_quantile_sample(law):
    sample = law.rvs(60, 11) + 0.05
    # W_1 of a law to its own m quantile midpoints is at most (range)/(2m)
    many = law.ppf((np.arange(40000) + 0.5) / 40000)
    slack = law.support()[-1][1] / 80000
    assert compare(law, sample).wasserstein == pytest.approx(stats.wasserstein_distance(sample, many), abs=slack)


def test_wasserstein_of_a_point(law):
    # one point beyond the support: the distance of the means
    beyond = 1.5 * law.support()[-1][1]
    assert compare(law, [beyond]).wasserstein == pytest.approx(beyond - law.mean(), rel=1e-12)
    assert compare(law, [-1.0]).wasserstein == pytest.approx(1 + law.mean(), rel=1e-12)
    assert compare(law, [beyond]).ks == 1.0


def test_pooling_and_errors():
    law = LAWS["gap at zero"]
    rng = np.random.default_rng(2)
    draws = [law.rvs(n, rng) for n in (30, 50, 70)]
    result = compare(law, draws)
    single = [compare(law, draw) for draw in draws]
    pooled = compare(law, np.concatenate(draws))
    assert result.draws == 3
    assert result.size == 150
    assert result.ks_per_draw == tuple(s.ks for s in single)
    assert result.wasserstein_per_draw == tuple(s.wasserstein for s in single)
    assert (result.ks, result.wasserstein) == (pooled.ks, pooled.wasserstein)
    assert result.ks_mean == pytest.approx(np.mean([s.ks for s in single]), rel=1e-14)
    assert result.ks_error == pytest.approx(stats.sem([s.ks for s in single]), rel=1e-13)
    assert result.wasserstein_error == pytest.approx(stats.sem([s.wasserstein for s in single]), rel=1e-13)


def test_one_draw_has_no_error():
    result = compare(LAWS["square"], [0.1, 0.4, 2.0])
    assert result.ks_error is None
    assert result.wasserstein_error is None
    assert all(moment.error is None and moment.z is None for moment in result.moments)
    assert compare(LAWS["square"], [np.array([0.1, 0.4, 2.0])]) == result


def test_moments_of_independent_draws():
    """z-scores of the right law: |z| > 4.5 with 40 draws of 500 points has probability below 1e-4 for each of four."""
    law = LAWS["gap at zero"]
    rng = np.random.default_rng(8)
    draws = [law.rvs(500, rng) for _ in range(40)]
    result = compare(law, draws)
    assert [moment.order for moment in result.moments] == [1, 2, 3, 4]
    for moment in result.moments:
        values = [np.mean(draw**moment.order) for draw in draws]
        assert moment.sample == pytest.approx(np.mean(values), rel=1e-13)
        assert moment.error == pytest.approx(stats.sem(values), rel=1e-12)
        assert moment.z == pytest.approx((moment.sample - moment.law) / moment.error, rel=1e-12)
        assert abs(moment.z) < 4.5
    # Narayana: m_2 = v^2 (1 + c)
    assert result.moments[1].law == pytest.approx(2.5**2 * 1.3, rel=1e-14)


def test_moments_beyond_the_floats_are_left_out():
    law = MarchenkoPastur(1.0, 1e200)
    result = compare(law, [[1e200, 2e200], [3e200, 1e199]])
    assert [moment.order for moment in result.moments] == [1]
    assert 0 < result.ks < 1
    assert math.isfinite(result.wasserstein_error)
    json.dumps(result.to_dict(), allow_nan=False)


def test_equal_draws_have_no_z():
    draw = [0.1, 1.0]
    result = compare(LAWS["square"], [draw, draw])
    assert result.ks_error == 0
    assert [moment.z for moment in result.moments] == [None] * 4


def test_singular_values_agree_with_their_squares():
    # the supremum does not see a monotone change of variable
    law = LAWS["square"]
    sample = law.rvs(50, 4)
    assert compare(law.singular_values(), np.sqrt(sample)).ks == pytest.approx(compare(law, sample).ks, abs=1e-12)


def test_input_is_not_changed():
    sample = np.array([2.0, 1e-16, 1.0])
    compare(LAWS["atom at zero"], sample)
    ks_between(sample, sample)
    assert sample.tolist() == [2.0, 1e-16, 1.0]


def test_what_rounding_leaves_undecided_is_one_bin():
    """2.4 % of the law are below 3e-9: where the sample has them down there, or whether at 0, is not seen."""
    law = HeavyTail()
    sample = law.ppf((np.arange(400) + 0.5) / 400)
    few = np.count_nonzero(sample < 3e-9)
    assert few == 10
    expected = compare(law, sample).ks
    # of 400 points 10 are in the bin, where the law has 9.7; elsewhere midpoints are half a point off
    assert expected == pytest.approx(1 / 800, abs=1e-12)
    rng = np.random.default_rng(0)
    for moved in (np.zeros(few), np.full(few, 3e-9), rng.uniform(-3e-9, 3e-9, few)):
        sample[:few] = moved
        assert compare(law, sample).ks == pytest.approx(expected, abs=1e-14)
    sample[:few] = 4e-9
    assert compare(law, sample).ks > 0.02
    sample[:few] = -4e-9
    assert compare(law, sample).ks == pytest.approx(few / 400, abs=1e-14)


def test_the_bin_of_a_sample_that_is_all_rounding():
    law = HeavyTail()
    assert compare(law, np.zeros(7)).ks == pytest.approx(1 - law.cdf(3e-9), abs=1e-14)


def test_uncertified_moments_are_left_out():
    assert [moment.order for moment in compare(HeavyTail(), [0.5, 2.0]).moments] == [1, 2, 4]


def test_distance_of_two_laws():
    a, b = LAWS["gap at zero"], MarchenkoPastur(0.3, 2.0)
    x = np.linspace(0, 7, 200001)
    assert laws_distance(a, b) == pytest.approx(np.abs(a.cdf(x) - b.cdf(x)).max(), abs=1e-5)
    assert laws_distance(a, b) == laws_distance(b, a)
    assert laws_distance(a, a) == 0


def test_distance_of_two_laws_at_their_atoms():
    # .6 and .5 at zero; elsewhere the laws are nearer
    assert laws_distance(LAWS["atom at zero"], MarchenkoPastur(2, 1.3)) == pytest.approx(0.1, abs=1e-12)
    # .999 at zero against 2 % below rounding
    heavy = HeavyTail(50.0)
    assert laws_distance(MarchenkoPastur(1e3, 1e-3), heavy) == pytest.approx(0.999 - heavy.cdf(5e-11), abs=1e-12)


@pytest.mark.parametrize("side", [0, 1])
def test_distance_refuses_what_is_no_law(side):
    pair = [LAWS["square"], LAWS["square"]]
    pair[side] = [1.0]
    with pytest.raises(ParameterError, match=f"{'ab'[side]} must be a gequiv law"):
        laws_distance(*pair)


def test_order_does_not_matter():
    law = LAWS["chain"]
    sample = law.rvs(40, 6)
    assert compare(law, sample) == compare(law, np.sort(sample)[::-1])


def test_dictionary_is_json():
    record = json.loads(json.dumps(compare(LAWS["chain"], [[0.1, 0.2], [0.3]]).to_dict(), allow_nan=False))
    assert record["draws"] == 2
    assert type(compare(LAWS["chain"], [0.1, 9.0]).wasserstein) is float
    assert record["size"] == 3
    assert [moment["order"] for moment in record["moments"]] == [1, 2, 3, 4]


@settings(max_examples=40, deadline=None)
@given(
    scale=st.floats(1e-6, 1e6),
    ratio=st.floats(0.2, 4),
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 60),
)
def test_scaling_and_lower_bound(scale, ratio, seed, n):
    """KS does not see the scale, W_1 is proportional to it and at least the difference of the means."""
    rng = np.random.default_rng(seed)
    law, scaled = MarchenkoPastur(ratio, 1.0), MarchenkoPastur(ratio, scale)
    sample = rng.gamma(1.0, 1.0, n)
    one, other = compare(law, sample), compare(scaled, scale * sample)
    assert other.ks == pytest.approx(one.ks, abs=1e-11)
    assert other.wasserstein == pytest.approx(scale * one.wasserstein, rel=1e-10)
    assert one.wasserstein >= abs(sample.mean() - law.mean()) - 1e-12
    assert 1 / (2 * n) - 1e-12 <= one.ks or law.atoms()
    assert one.ks <= 1


@settings(max_examples=60, deadline=None)
@given(
    a=st.lists(st.integers(0, 12), min_size=1, max_size=40),
    b=st.lists(st.integers(0, 12), min_size=1, max_size=40),
)
def test_two_samples_with_ties(a, b):
    """Integers tie often; the definition is evaluated at every integer."""
    expected = max(abs(sum(v <= x for v in a) / len(a) - sum(v <= x for v in b) / len(b)) for x in range(-1, 14))
    assert ks_between(a, b) == pytest.approx(expected, abs=1e-15)
    assert ks_between(a, b) == ks_between(b, a)
    assert ks_between(a, a + a) == 0


def test_two_samples_against_scipy():
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal(311), rng.standard_normal(97) + 0.2
    assert ks_between(a, b) == pytest.approx(stats.ks_2samp(a, b).statistic, abs=1e-15)
    assert ks_between([a[:100], a[100:]], b) == ks_between(a, b)


def test_two_samples_with_rounded_zeros():
    a = np.array([0.0, 0.0, 0.0, 1.0])
    b = np.array([-1e-17, 3e-18, 1e-17, 1.0])
    assert ks_between(a, b) == 0


@pytest.mark.parametrize(
    ("draws", "message"),
    [
        ([], "draws must hold at least one eigenvalue"),
        (np.array([]), "draws must hold at least one eigenvalue"),
        ([[1.0], []], r"draws\[1\] must hold at least one eigenvalue"),
        ([1.0, math.nan], "draws must not contain NaN"),
        ([[1.0], [math.nan]], r"draws\[1\] must not contain NaN"),
        ([1.0, math.inf], "draws must hold finite eigenvalues; got inf"),
        ([1.0, 1j], "draws must be real numbers"),
        (np.ones((2, 3)), r"array of shape \(2, 3\) \(if its rows are draws, pass list\(array\)\)"),
        (3.0, r"1-D array of eigenvalues or a list of such arrays; got an array of shape \(\)"),
        ([[[1.0]], [2.0]], r"draws\[0\] must be a 1-D array"),
        ([1.0, [2.0]], r"draws\[0\] must be a 1-D array"),
        ("spectrum", "draws must be real numbers"),
        (None, "draws must"),
    ],
)
def test_refusals(draws, message):
    with pytest.raises(ParameterError, match=message):
        compare(LAWS["square"], draws)


def test_refuses_what_is_no_law():
    with pytest.raises(ParameterError, match="law must be a gequiv law"):
        compare(np.array([1.0]), LAWS["square"])


@pytest.mark.parametrize("side", [0, 1])
def test_two_samples_refuse(side):
    pair = [[1.0], [1.0]]
    pair[side] = np.ones((2, 2))
    with pytest.raises(ParameterError, match=f"{'ab'[side]} must be a 1-D array"):
        ks_between(*pair)
