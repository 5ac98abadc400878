"""The law of a noisy Gaussian chain: contract, 40-digit references, exact identities, refusals."""

from __future__ import annotations

import json
import math
import pathlib
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gequiv import Attention, GaussianChainPlusNoise, MarchenkoPastur, ParameterError
from gequiv.laws._chain_curve import ChainCurve
from tests.laws.contract import check_contract

PATH = pathlib.Path(__file__).parents[1] / "reference" / "limit_law.json"
REFERENCE = json.loads(PATH.read_text()) if PATH.exists() else {"cases": []}

CASES = {
    "square, hard edge": GaussianChainPlusNoise([0.5], 1, 1.0, 0.7),
    "two intervals": GaussianChainPlusNoise([0.05], 1, 1.0, 0.2),
    "more columns": GaussianChainPlusNoise([0.5], 0.4, 2.0, 0.7),
    "more rows, atom": GaussianChainPlusNoise([0.5], 2.5, 0.3, 0.7),
    "two intervals and an atom": GaussianChainPlusNoise([0.02], 2, 3.0, 0.3),
    "shared tokens": GaussianChainPlusNoise([1, 0.5, 1], 1, 1.0, 0.7),
    "shared tokens, rectangular": GaussianChainPlusNoise([0.5, 0.25, 0.5], 0.5, 1.0, 0.7),
    "three factors": GaussianChainPlusNoise([0.3, 0.7], 1.5, 1.0, 0.1),
    "nearly noiseless": GaussianChainPlusNoise([1], 1, 1.0, 1e-4),
}


@pytest.mark.parametrize("name", CASES)
def test_contract(name):
    check_contract(CASES[name])


def test_references_cover_the_ranges():
    cases = REFERENCE["cases"]
    assert len(cases) >= 300
    assert min(case["beta"] for case in cases) < 2e-3
    assert max(case["beta"] for case in cases) > 20
    assert sum(len(case["edges"]) > 2 for case in cases) > 30
    assert sum(case["width"] is not None for case in cases) > 100
    assert sum(case["keys"] is not None for case in cases) > 100


@pytest.mark.parametrize("part", range(10))
def test_density_edges_moments_mass_against_40_digits(part):
    for case in REFERENCE["cases"][part::10]:
        head = Attention(**{name: case[name] for name in ("tokens", "head_dim", "beta", "keys", "width")})
        law = head.limit_law()
        edges = [edge for interval in law.support() for edge in interval]
        np.testing.assert_allclose(edges, [float(e) for e in case["edges"]], rtol=1e-12, err_msg=str(head))
        points = [point["x"] for point in case["points"]]
        expected = [float(point["pdf"]) for point in case["points"]]
        np.testing.assert_allclose(law.pdf(points), expected, rtol=1e-12, err_msg=str(head))
        for k, text in enumerate(case["moments"], 1):
            if math.isfinite(float(text)):
                assert law.moment(k) == pytest.approx(float(text), rel=1e-12)
            else:
                with pytest.raises(ParameterError, match="exceeds the largest float"):
                    law.moment(k)
        atom = max(0.0, 1 - (case["keys"] or case["tokens"]) / case["tokens"])
        assert law.cdf(2 * edges[-1]) == pytest.approx(1, abs=1e-10)
        assert sum(w for _, w in law.atoms()) == pytest.approx(atom, abs=1e-15)
        assert law.certificate.mass_error < 1e-10


def test_empty_chain_is_marchenko_pastur():
    for aspect in (0.3, 1, 4):
        chain, closed = GaussianChainPlusNoise([], aspect, 0.5, 0.8), MarchenkoPastur(aspect, 1.3)
        x = np.linspace(0.01, 1.1 * closed.support()[0][1], 500)
        np.testing.assert_allclose(chain.pdf(x), closed.pdf(x), rtol=1e-11, atol=1e-14)
        np.testing.assert_allclose(chain.cdf(x), closed.cdf(x), atol=1e-14)
        np.testing.assert_allclose(chain.support(), closed.support(), rtol=1e-14, atol=1e-300)
        for k in range(6):
            assert chain.moment(k) == pytest.approx(closed.moment(k), rel=1e-14)
        z = np.array([1j, -1, 3 + 0.1j, 40])
        np.testing.assert_allclose(chain.cauchy(z), closed.cauchy(z), rtol=1e-13)


def test_second_moment_in_closed_form():
    """m2 = (1+c)(s+v)² + s²/c_1: the planar pairings of tr (YYᵀ)², of which the last crosses the inner space once."""
    for s, v, c, inner in [(0.8, 0.3, 0.6, 0.25), (1.0, 0.7, 1.0, 0.5), (2.0, 1e-3, 3.0, 1.7)]:
        law = GaussianChainPlusNoise([inner], c, s, v)
        assert law.moment(1) == pytest.approx(s + v, rel=1e-15)
        assert law.moment(2) == pytest.approx((1 + c) * (s + v) ** 2 + s**2 / inner, rel=1e-14)


def test_second_moment_by_simulation():
    s, v, m, n, d = 0.8, 0.3, 300, 500, 75
    law = GaussianChainPlusNoise([Fraction(d, m)], Fraction(m, n), s, v)
    rng = np.random.default_rng(3)
    values = []
    for _ in range(40):
        q, key, z = (rng.standard_normal(shape) for shape in ((m, d), (n, d), (m, n)))
        y = (math.sqrt(s / d) * q @ key.T + math.sqrt(v) * z) / math.sqrt(n)
        values.append(np.sum((y @ y.T) ** 2) / m)
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    assert law.moment(2) == pytest.approx(np.mean(values), abs=5 * error + 4 / d)  # 5 sigma and the 1/size bias


def test_gap_closes_continuously():
    # as the inner dimension grows the two intervals of the square chain merge; mass and edges stay continuous
    counts = []
    previous_top = None
    for inner in np.linspace(0.02, 0.4, 39):
        law = GaussianChainPlusNoise([float(inner)], 1, 1.0, 0.3)
        counts.append(len(law.support()))
        if previous_top is not None:
            assert abs(law.support()[-1][1] / previous_top - 1) < 0.35
        previous_top = law.support()[-1][1]
        assert law.certificate.mass_error < 1e-11
    assert counts[0] == 2
    assert counts[-1] == 1
    assert counts == sorted(counts, reverse=True)


def test_interval_masses_are_exact_when_signal_dominates():
    # d_k/n = r: the signal carries exactly d_k eigenvalues, so the upper interval has mass r
    law = GaussianChainPlusNoise([0.05], 1, 1.0, 0.01)
    (_, b), (c, _) = law.support()
    assert law.cdf(0.5 * (b + c)) == pytest.approx(0.95, abs=1e-13)


@settings(max_examples=60, deadline=None)
@given(
    inner=st.lists(st.floats(-3, 3), min_size=1, max_size=3),
    aspect=st.one_of(st.just(0.0), st.floats(-3, 3)),
    noise=st.floats(-6, 6),
    scale=st.floats(-100, 100),
)
def test_scaling_and_certificate_for_random_parameters(inner, aspect, noise, scale):
    ratios = [10.0**value for value in inner]
    factor = 10.0**scale
    law = GaussianChainPlusNoise(ratios, 10.0**aspect, 1.0, 10.0**noise)
    scaled = GaussianChainPlusNoise(ratios, 10.0**aspect, factor, factor * 10.0**noise)
    assert law.certificate.mass_error < 1e-10
    assert law.certificate.half_plane > 0
    np.testing.assert_allclose(scaled.support(), np.array(law.support()) * factor, rtol=1e-11)
    q = np.linspace(0.05, 0.95, 7)
    x = law.ppf(q)
    x = x[x > 0]
    np.testing.assert_allclose(scaled.cdf(x * factor), law.cdf(x), atol=1e-11)
    assert law.moment(1) == pytest.approx(1 + 10.0**noise, rel=1e-14)
    # transposing the matrix changes the law by zeros only
    other = GaussianChainPlusNoise(
        [ratio * 10.0**aspect for ratio in reversed(ratios)], 10.0**-aspect, 1.0, 10.0**noise
    )
    transposed = np.array(other.support()) * 10.0**aspect
    np.testing.assert_allclose(transposed[:, 1], np.array(law.support())[:, 1], rtol=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    real=st.floats(-3, 3),
    height=st.floats(-9, 2),
    name=st.sampled_from(sorted(CASES)),
)
def test_cauchy_satisfies_the_fixed_point_equation(real, height, name):
    """G against the signal-plus-noise fixed point written from scratch, everywhere in the upper half-plane."""
    law = CASES[name]
    top = law.support()[-1][1]
    z = complex(real * top, 10.0**height * top)
    g = law.cauchy(z)
    assert g.imag < 0
    y = z * g - 1
    c, share = float(law.aspect), law.signal / law.scale
    # v(y) = (1+y)(1+cy) τ²/z solves y = ρ t + (1-ρ) v with t = v P(t)
    v = (1 + y) * (1 + c * y) * law.scale / z
    t = (y - (1 - share) * v) / share
    product = np.prod([1 + share * t / float(ratio) for ratio in law.inner])
    assert abs(t - v * product) < 1e-7 * (abs(t) + abs(v * product))


def test_cauchy_next_to_the_axis_and_the_edges():
    for law in CASES.values():
        for a, b in law.support():
            for x in (a + 1e-7 * (b - a), b - 1e-7 * (b - a), 0.5 * (a + b)):
                value = law.cauchy(complex(x, 1e-14 * (b - a)))
                assert -value.imag / math.pi == pytest.approx(law.pdf(x), rel=1e-4)
            above, below = law.cauchy(b * (1 + 1e-6)), law.cauchy(b * (1 + 1e-6) + 1e-300j)
            assert below == pytest.approx(above, rel=1e-9)
    law = CASES["two intervals"]
    (_, b), (c, _) = law.support()
    middle = 0.5 * (b + c)
    assert law.cauchy(middle).real == pytest.approx(law.cauchy(middle + 1e-9j).real, rel=1e-6)


def test_wrong_root_is_refused():
    curve = CASES["square, hard edge"]._curve
    x = np.array([0.5 + 0j])
    roots = curve.all_roots(x)[0]
    good = curve.physical(roots)
    assert good.sum() == 1
    # the root of largest |Im G| is the famous wrong choice: it is another one than the physical root for some x
    wrong = 0
    for law in CASES.values():
        low, high = law.support()[-1]
        for value in np.linspace(low, high, 42)[1:-1] / law.scale:
            roots = law._curve.all_roots(np.array([value + 0j]))[0]
            roots = roots[np.isfinite(roots)]
            cauchy = (1 + law._curve.excess(roots)) / value
            wrong += int(np.argmin(cauchy.imag)) != int(np.argmax(law._curve.physical(roots)))
    assert wrong > 0


def test_exact_parameters_are_used_exactly():
    exact = GaussianChainPlusNoise([Fraction(1, 3)], Fraction(1000, 1001), Fraction(1), Fraction(1, 10))
    assert exact.aspect == Fraction(1000, 1001)
    # lower edge of order ((1-c)/2)², lost if c were rounded to a float first
    assert 0 < exact.support()[0][0] < 1e-6
    assert isinstance(exact._curve, ChainCurve)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.5], 0, 1, 1), "aspect must be a finite real number above 0; got 0"),
        (([0.5], -1, 1, 1), "aspect must be"),
        (([0.5, -1], 1, 1, 1), r"inner\[1\] must be"),
        (([math.nan], 1, 1, 1), r"inner\[0\] must be .*; got nan"),
        (([0.5], 1, 0, 1), "signal must be"),
        (([0.5], 1, 1, 0), "noise must be"),
        (([0.5], 1, 1, math.inf), "noise must be"),
        (([0.5], 1, 1e308, 1e308), r"signal \+ noise must be a finite float"),
        (([0.5], "1", 1, 1), "aspect must be"),
        (([Fraction(-1)], 1, 1, 1), r"inner\[0\]"),
    ],
)
def test_bad_parameters(arguments, message):
    with pytest.raises(ParameterError, match=message):
        GaussianChainPlusNoise(*arguments)


def test_almost_no_noise():
    """Noise of 1e-16: that of the chain alone but next to 0; the upper edge in the product's closed form.

    Two square factors and v → 0: free multiplicative square of Marchenko–Pastur, edge 27/4.
    """
    law = GaussianChainPlusNoise([1], 1, 1, Fraction(1, 10**16))
    assert law.certificate.mass_error < 1e-11
    assert law.support()[0][1] == pytest.approx(27 / 4, rel=1e-12)
    rectangular = GaussianChainPlusNoise([Fraction(1, 2)], Fraction(4, 5), 1, Fraction(1, 10**16))
    assert rectangular.certificate.mass_error < 1e-11


def test_moment_beyond_the_floats():
    law = GaussianChainPlusNoise([0.001], 1, 1e200, 1e200)
    with pytest.raises(ParameterError, match="k = 5 is too large"):
        law.moment(5)
