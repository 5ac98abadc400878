"""FromDensity: contract, laws in closed form read back from their densities, singular ends, refusals."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gequiv import CertificationError, ParameterError
from gequiv.laws import Arcsine, FromDensity, KestenMcKay, MarchenkoPastur, Semicircle, Uniform, Wachter
from tests.laws.contract import check_contract


def steps(x):
    return np.where(x < 1, 0.2, 0.1)


CASES = [
    FromDensity(MarchenkoPastur(4, 2.0).pdf, MarchenkoPastur(4, 2.0).support(), [(0, 0.75)]),
    FromDensity(steps, [(-1, 1), (2, 3)], [(1.5, 0.25), (-0.5, 0.25)]),
    FromDensity(lambda x: 0.75 * (1 - x**2), (-1, 1)),
    FromDensity(lambda x: np.sin(x) / 2, [(0, 1), (1, math.pi)]),
]


@pytest.mark.parametrize("law", CASES, ids=repr)
def test_contract(law):
    check_contract(law)


# accuracy of the transform and of its slope; at an end other than 0 the density's own rounding counts
KNOWN = [
    (Semicircle(0.3, 0.7), 1e-13, 1e-9),
    (Uniform(-1, 2), 1e-13, 1e-10),
    (MarchenkoPastur(1, 2), 1e-13, 1e-9),
    (MarchenkoPastur(0.3, 2), 1e-13, 1e-9),
    (MarchenkoPastur(1.001, 1), 3e-13, 1e-9),
    (KestenMcKay(3), 1e-11, 1e-8),
    (Wachter(0.5, 1.5), 1e-11, 1e-8),
    (Wachter(1, 1), 1e-11, 1e-7),
    (Arcsine(-2, 2), 1e-11, 1e-7),
]


@pytest.mark.parametrize(("known", "accuracy", "slope_accuracy"), KNOWN, ids=[repr(case[0]) for case in KNOWN])
def test_laws_in_closed_form(known, accuracy, slope_accuracy):
    law = FromDensity(known.pdf, known.support(), known.atoms())
    low, high = known.support()[0]
    extent = high - low
    x = low + extent * (1.4 * np.random.default_rng(4).random(80) - 0.2)
    near = extent * 10.0 ** np.arange(-8, 0)
    points = [x + 1j * eta * extent for eta in (1, 1e-2, 1e-4, 1e-6, 1e-8)]
    points += [low + near * np.exp(1j * turn) for turn in (0.1, 1.5, 3)]
    points += [high + near * np.exp(1j * turn) for turn in (0.1, 1.5, 3)]
    points += [low - near, high + near, np.array([1e6j, -1e9, 1e200 * (1 + 1j)]) * extent]
    z = np.concatenate(points)
    z = z[~np.isin(z, [location for location, _ in known.atoms()])]
    g, slope = law._cauchy_and_slope(z)
    exact, exact_slope = known._cauchy_and_slope(z)
    np.testing.assert_allclose(g, exact, rtol=accuracy)
    usual = np.abs(z) < 1e100
    np.testing.assert_allclose(slope[usual], exact_slope[usual], rtol=slope_accuracy)
    np.testing.assert_allclose(law.cauchy(z.conj()), exact.conj(), rtol=accuracy)
    q = np.concatenate([np.linspace(1e-3, 1 - 1e-3, 101), 10.0 ** np.arange(-12, -3), 1 - 10.0 ** np.arange(-12, -3)])
    x = known.ppf(q)
    np.testing.assert_allclose(law.cdf(x), known.cdf(x), atol=2e-14)
    np.testing.assert_allclose(law.partial_mean(x), known.partial_mean(x), atol=2e-14 * max(abs(low), abs(high)))
    np.testing.assert_allclose(law.ppf(q), x, atol=1e-11 * extent)
    for k in (1, 2, 5, 20, 60):
        unit = max(abs(low), abs(high)) ** k
        assert law.moment(k) / unit == pytest.approx(known.moment(k) / unit, abs=1e-14)


def power_law(alpha, anchor, sign):
    return FromDensity(
        lambda x: (1 + alpha) * np.abs(x - anchor) ** alpha, tuple(sorted([anchor, anchor + sign])), atoms=[]
    )


@pytest.mark.parametrize("alpha", [-0.9, -2 / 3, -0.5, -0.123, 0.5, 1 / 3, 2.5])
@pytest.mark.parametrize(("anchor", "sign"), [(0, 1), (0, -1), (1, 1), (-3, -1)])
def test_powers_at_the_ends(alpha, anchor, sign):
    law = power_law(alpha, anchor, sign)
    t = np.array([1e-30, 1e-9, 1e-4, 0.1, 0.5, 0.9]) if anchor == 0 else np.array([1e-4, 0.1, 0.5, 0.9])
    expected = t ** (1 + alpha)
    found = law.cdf(anchor + sign * t)
    np.testing.assert_allclose(found if sign > 0 else 1 - found, expected, rtol=1e-8, atol=1e-12)
    assert law.mean() == pytest.approx(anchor + sign * (1 + alpha) / (2 + alpha), rel=1e-12)
    assert law.pdf(anchor) == (math.inf if alpha < 0 else pytest.approx(0, abs=1e-15))
    # next to the end, against a series: ∫ (1+α) t^α/(w - t) dt = ₂F₁(1, 1+α; 2+α; 1/w)/w
    for w in (-1e-7 + 1e-7j, 0.3 + 1e-5j, 0.001 + 0.002j, -5 + 1j):
        with mpmath.workdps(30):
            exact = complex(mpmath.hyp2f1(1, 1 + alpha, 2 + alpha, 1 / mpmath.mpc(w)) / w)
        z = anchor + sign * w
        w = sign * (z - anchor)  # as rounded
        if abs(w) > 1e-4 or anchor == 0:
            assert sign * law.cauchy(z) == pytest.approx(exact, rel=1e-10)


def test_square_root_edges_written_without_care():
    law = FromDensity(lambda x: 1 / (np.pi * np.sqrt(4 - x**2)), (-2, 2))
    z = np.linspace(-2.5, 2.5, 200) + 1e-6j
    np.testing.assert_allclose(law.cauchy(z), Arcsine().cauchy(z), rtol=1e-11)
    assert [law.moment(k) for k in (0, 2, 4)] == pytest.approx([1, 2, 6], rel=1e-13)
    assert (
        FromDensity(lambda x: 1 / (np.pi * np.sqrt(2 - x**2)), (-(2**0.5), 2**0.5)).pdf(np.nextafter(2**0.5, 0)) > 1e7
    )


def test_features_inside():
    # kinks, jumps and narrow peaks are found by bisection
    tent = FromDensity(lambda x: 1 - np.abs(x - 0.1), (-0.9, 1.1))
    assert tent.moment(2) == pytest.approx(1 / 6 + 0.01, rel=1e-12)
    jump = FromDensity(lambda x: np.where(x < 0.3, 1.5, 0.55 / 0.7), (0, 1))
    assert jump.cdf([0.3, 0.65]) == pytest.approx([0.45, 0.725], abs=1e-13)
    width = 1e-4
    scale = (math.atan(0.7 / width) + math.atan(0.3 / width)) / width
    peak = FromDensity(lambda x: 1 / ((x - 0.3) ** 2 + width**2) / scale, (0, 1))
    low, high = math.atan(0.3 / width), math.atan(0.7 / width)
    assert peak.cdf(0.3) == pytest.approx(low / (low + high), abs=1e-13)
    # a density that is flat to all orders at its ends
    flat = FromDensity(lambda x: np.exp(-1 / (x * (1 - x))) / 0.007029858406609658, (0, 1))
    assert flat.mean() == pytest.approx(0.5, abs=1e-13)


def test_support_wider_than_the_density():
    law = FromDensity(Semicircle().pdf, (-3, 4))
    assert law.support() == [(-3.0, 4.0)]
    z = np.array([1 + 1e-3j, 2.5 + 1e-2j])
    np.testing.assert_allclose(law.cauchy(z), Semicircle().cauchy(z), rtol=1e-9)
    assert law.ppf(0.5) == pytest.approx(0, abs=1e-12)


def test_normalisation_and_pieces():
    law = FromDensity(lambda x: np.full_like(x, 0.25 * (1 + 4e-9)), [(0, 2), (2, 3), (5, 6)])
    assert law.support() == [(0.0, 3.0), (5.0, 6.0)]
    assert law.pdf(1) == pytest.approx(0.25, rel=1e-15)
    assert law.cdf([2, 3, 4, 5, 5.5]) == pytest.approx([0.5, 0.75, 0.75, 0.75, 0.875], abs=1e-15)
    assert law.ppf([0, 0.25, 0.8, 1]) == pytest.approx([0, 1, 5.2, 6], abs=1e-14)
    assert law.pdf([2, 3, 3.5, 4.99, 5, 6.01]).tolist() == pytest.approx([0.25, 0.25, 0, 0, 0.25, 0])


@settings(max_examples=20, deadline=None)
@given(st.floats(0.5, 6), st.floats(0.5, 6))
def test_beta_laws(a, b):
    scale = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b))
    law = FromDensity(lambda x: scale * x ** (a - 1) * (1 - x) ** (b - 1), (0, 1))
    expected = 1.0
    for k in range(6):
        assert law.moment(k) == pytest.approx(expected, rel=1e-9)
        expected *= (a + k) / (a + b + k)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, (0, 1)), "density must be a function"),
        ((lambda x: 1.0, (0, 1)), "density must return as many real numbers"),
        ((lambda x: x[:-1], (0, 1)), "as many real numbers"),
        ((lambda x: 1j * x, (0, 1)), "density must return"),
        ((lambda x: x - 0.5, (0, 1)), "density must be finite and at least 0; got -"),
        ((lambda x: np.where(x > 0.9, np.nan, 1), (0, 1)), "density must be finite and at least 0; got nan"),
        ((lambda x: 2 * np.ones_like(x), (0, 1)), r"mass 1; found 2\.0 for the density"),
        ((lambda x: np.ones_like(x), (0, 1), [(2, 0.5)]), r"0\.5 for the atoms"),
        ((lambda x: 1 / x, (0, 1)), "density must be integrable"),
        ((np.ones_like, (1, 0)), "support must be finite intervals"),
        ((np.ones_like, (0, math.inf)), "support must be finite intervals"),
        ((np.ones_like, [(0, 1), (0.5, 2)]), "do not overlap"),
        ((np.ones_like, []), "support must be a pair"),
        ((np.ones_like, "ab"), "support must be"),
        ((np.ones_like, (0, 1), [(1, 0)]), "atoms must be a finite real number above 0"),
        ((np.ones_like, (0, 1), [(1, 0.1), (1, 0.1)]), "atoms must have different locations"),
        ((np.ones_like, (0, 1), [1]), "atoms must be pairs"),
    ],
)
def test_bad_parameters(arguments, message):
    with pytest.raises(ParameterError, match=message):
        FromDensity(*arguments)


@pytest.mark.parametrize(
    "density",
    [
        lambda x: 1 + 0.5 * np.sign(np.sin(1e3 * x)),
        lambda x: 1 + 1e-6 * np.sin(1e9 * x),
        lambda x: 1 / (np.abs(x - 0.3) + 1e-300),
    ],
    ids=["many jumps", "noise", "pole"],
)
def test_what_does_not_converge_is_refused(density):
    with pytest.raises(CertificationError, match="end one interval of support there and begin the next"):
        FromDensity(density, (0, 1))
