"""Laws to many digits: against the 40-digit references, against the floats, against closed forms."""

from __future__ import annotations

import json
import pathlib
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from gequiv import Attention, GaussianChainPlusNoise, MarchenkoPastur, ParameterError, WeightedChainPlusNoise

CASES = json.loads((pathlib.Path(__file__).parents[1] / "reference" / "limit_law.json").read_text())["cases"]
LAWS = [
    GaussianChainPlusNoise([0.5], 1, 1.0, 0.7),
    GaussianChainPlusNoise([0.02], 2, 3.0, 0.3),
    GaussianChainPlusNoise([0.5, 0.25, 0.5], 0.5, 1.0, 0.7),
    GaussianChainPlusNoise([1, 1, 1], 1, 1.0, 1e-3),
    MarchenkoPastur(2, 1.5),
    MarchenkoPastur(1),
]


@pytest.mark.parametrize("part", range(4))
def test_against_references(part):
    with mpmath.workdps(60):
        for case in CASES[part::20]:
            head = Attention(**{name: case[name] for name in ("tokens", "head_dim", "beta", "keys", "width")})
            law = head.limit_law()
            for point in case["points"]:
                assert abs(law.pdf(point["x"], dps=45) / mpmath.mpf(point["pdf"]) - 1) < 1e-37
            edges = [edge for interval in law.support(dps=45) for edge in interval]
            for edge, text in zip(edges, case["edges"], strict=True):
                expected = mpmath.mpf(text)
                assert abs(edge - expected) <= expected * mpmath.mpf(10) ** -38
            for k, text in enumerate(case["moments"], 1):
                assert abs(law.moment(k, dps=45) / mpmath.mpf(text) - 1) < 1e-37


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_floats_agree_with_fifty_digits(law):
    for a, b in law.support():
        x = a + (b - a) * np.array([1e-3, 0.01, 0.3, 0.5, 0.9, 0.999])
        precise = law.pdf(x, dps=50)
        assert precise.dtype == object
        np.testing.assert_allclose(law.pdf(x), precise.astype(float), rtol=1e-12)
        np.testing.assert_allclose(law.cdf(x), law.cdf(x, dps=50).astype(float), atol=1e-13)
    np.testing.assert_allclose(law.support(), [[float(v) for v in ab] for ab in law.support(dps=50)], rtol=1e-14)
    for k in range(7):
        assert law.moment(k) == pytest.approx(float(law.moment(k, dps=50)), rel=1e-13)


def test_distribution_function_off_the_support_and_at_its_ends():
    law = GaussianChainPlusNoise([Fraction(1, 50)], 2, 3.0, 0.3)
    (a, b), (c, d) = law.support(dps=40)
    with mpmath.workdps(50):
        upper = mpmath.mpf("0.02")  # the signal carries 2 % of the eigenvalues, half of which are exact zeros
        assert [law.cdf(x, dps=40) for x in (-1, 0, a / 2)] == [0, mpmath.mpf("0.5"), mpmath.mpf("0.5")]
        for x in (b, (b + c) / 2, c):
            assert abs(law.cdf(x, dps=40) - (1 - upper)) < mpmath.mpf(10) ** -38
        assert law.cdf(2 * d, dps=40) == 1
    assert law.pdf((b + c) / 2, dps=30) == law.pdf(-1, dps=30) == law.pdf(2 * d, dps=30) == 0


def test_density_is_the_derivative_of_the_distribution_function():
    law = GaussianChainPlusNoise([0.5], 1, 1.0, 0.7)
    with mpmath.workdps(80):
        h = mpmath.mpf(10) ** -20
        for x in (mpmath.mpf("0.3"), mpmath.mpf("2"), mpmath.mpf("7")):
            slope = (law.cdf(x + h, dps=80) - law.cdf(x - h, dps=80)) / (2 * h)
            assert abs(slope / law.pdf(x, dps=80) - 1) < mpmath.mpf(10) ** -37


def test_digits_are_there():
    law = Attention(tokens=2000, head_dim=1000, beta=1.0).limit_law()
    with mpmath.workdps(220):
        few, many = law.pdf(1, dps=50), law.pdf(1, dps=200)
        assert abs(few / many - 1) < mpmath.mpf(10) ** -50
        assert abs(law.pdf(1, dps=190) / many - 1) < mpmath.mpf(10) ** -190


def test_exact_points():
    law = GaussianChainPlusNoise([0.5], 1, 1.0, 0.7)
    third = law.pdf(Fraction(1, 3), dps=40)
    with mpmath.workdps(60):
        assert abs(third - law.pdf(mpmath.mpf(1) / 3, dps=40)) < mpmath.mpf(10) ** -40
        assert abs(law.pdf("0.1", dps=40) - law.pdf(Fraction(1, 10), dps=40)) < mpmath.mpf(10) ** -40
        assert law.pdf("0.1", dps=40) != law.pdf(0.1, dps=40)
    assert law.pdf([], dps=30).shape == (0,)
    assert law.pdf(0, dps=30) == mpmath.inf


def test_marchenko_pastur_in_closed_form():
    law = MarchenkoPastur(Fraction(1, 4), 2)
    with mpmath.workdps(60):
        a, b = mpmath.mpf(1) / 2, mpmath.mpf(9) / 2
        assert [abs(x - y) < 1e-45 for x, y in zip(law.support(dps=45)[0], (a, b), strict=True)] == [True, True]
        x = mpmath.mpf(2)
        assert abs(law.pdf(2, dps=45) - mpmath.sqrt((b - x) * (x - a)) / (mpmath.pi * x)) < mpmath.mpf(10) ** -44


def test_singular_values():
    law = LAWS[0]
    roots = law.singular_values()
    with mpmath.workdps(50):
        assert abs(roots.pdf(2, dps=40) - 4 * law.pdf(4, dps=40)) < mpmath.mpf(10) ** -39
        assert roots.cdf(2, dps=40) == law.cdf(4, dps=40)
        assert abs(roots.support(dps=40)[0][1] ** 2 / law.support(dps=40)[0][1] - 1) < mpmath.mpf(10) ** -40
    assert roots.moment(4, dps=30) == law.moment(2, dps=30)
    assert roots.pdf(-1, dps=20) == roots.cdf(-1, dps=20) == 0
    with pytest.raises(ParameterError, match="k must be even where dps is given"):
        roots.moment(3, dps=30)


def test_bad_digits_and_points():
    law = LAWS[0]
    for bad in (0, -1, 2.5, "a", 201):
        with pytest.raises(ParameterError, match="dps must be"):
            law.pdf(1, dps=bad)
    with pytest.raises(ParameterError, match="x must be real numbers"):
        law.pdf("abc", dps=20)
    with pytest.raises(ParameterError, match="x must be real numbers"):
        law.pdf(1j, dps=20)
    with pytest.raises(ParameterError, match="NaN"):
        law.pdf(float("nan"), dps=20)
    fixed = WeightedChainPlusNoise([0.5], [None], 1, 1.0, 0.7)
    with pytest.raises(ParameterError, match="dps must be None for WeightedChainPlusNoise"):
        fixed.pdf(1, dps=20)
    with pytest.raises(ParameterError, match="dps must be None"):
        fixed.support(dps=20)
