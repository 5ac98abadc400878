"""Affine: contract, laws whose images are known in closed form, edges and atoms under rounding."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gequiv import ParameterError
from gequiv.laws import Affine, Arcsine, Atomic, MarchenkoPastur, Semicircle, Uniform, Wachter
from tests.laws.contract import check_contract

ATOMS = Atomic([-2, 0.1, 1.5], [0.25, 0.3, 0.45])


@pytest.mark.parametrize(
    ("law", "tolerance"),
    [
        (Affine(MarchenkoPastur(4, 2.0), -1.5, 0.7), 1e-9),
        (Affine(MarchenkoPastur(0.4, 2.0), 2, -1), 1e-9),
        (Affine(MarchenkoPastur(1, 0.5), -3, 1), 1e-7),
        (Affine(Semicircle(2, 1), -1, 3), 1e-9),
        (Affine(ATOMS, -0.3, 0.1), 1e-9),
        (Affine(Wachter(0.7, 0.6), -0.3, 0.1), 1e-9),
        (Affine(Wachter(0.7, 0.6), 0.3, 0.1), 1e-9),
    ],
    ids=repr,
)
def test_contract(law, tolerance):
    check_contract(law, tolerance=tolerance)


@pytest.mark.parametrize(
    ("law", "image"),
    [
        (Affine(Semicircle(0.5, 1), -2, 0.3), Semicircle(2, -1.7)),
        (Affine(Uniform(0, 1), -3, 1), Uniform(-2, 1)),
        (Affine(Arcsine(0, 1), 4, -2), Arcsine(-2, 2)),
        (Affine(Wachter(0.7, 1.6), -1, 1), Wachter(1.6, 0.7)),
        (Affine(MarchenkoPastur(3, 1), 2.5), MarchenkoPastur(3, 2.5)),
    ],
    ids=repr,
)
def test_known_images(law, image):
    (low, high), *_ = image.support()
    np.testing.assert_allclose(law.support(), image.support(), rtol=1e-14)
    np.testing.assert_allclose(law.atoms(), image.atoms(), rtol=1e-14)
    x = np.linspace(low - 0.3, high + 0.3, 60)
    np.testing.assert_allclose(law.pdf(x), image.pdf(x), rtol=1e-12)
    np.testing.assert_allclose(law.cdf(x), image.cdf(x), atol=1e-14)
    np.testing.assert_allclose(law.partial_mean(x), image.partial_mean(x), atol=1e-14 * max(abs(low), abs(high)))
    q = np.linspace(0, 1, 41)
    np.testing.assert_allclose(law.ppf(q), image.ppf(q), atol=1e-13)
    z = np.array([0.3 + 0.2j, -0.2 + 1e-6j, low - 1, high + 2, 1e8j, -1e20])
    for found, expected in zip(law._cauchy_and_slope(z), image._cauchy_and_slope(z), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(law.cauchy(z.conj()), image.cauchy(z.conj()), rtol=1e-12)
    for k in range(9):
        assert law.moment(k) == pytest.approx(image.moment(k), rel=1e-11, abs=1e-13)
    assert law.variance() == pytest.approx(image.variance(), rel=1e-14)


@settings(max_examples=60, deadline=None)
@given(st.floats(-1e3, 1e3).filter(lambda s: abs(s) > 1e-3), st.floats(-1e3, 1e3))
def test_edges_and_atoms_are_met_exactly(scale, shift):
    law = Affine(Wachter(0.7, 0.6), scale, shift)
    (low, high), atoms = law.support()[0], law.atoms()
    assert law.pdf([np.nextafter(low, -np.inf), low, high, np.nextafter(high, np.inf)]).tolist() == [0, 0, 0, 0]
    total = 0.0
    for location, weight in atoms:
        assert law.ppf(law.cdf(location)) == location
        below, at = law.cdf([np.nextafter(location, -np.inf), location])
        assert at - below == pytest.approx(weight, abs=1e-14)
        total += weight
    assert law.cdf(high) - law.cdf(low) == pytest.approx(1 - total, abs=1e-14)
    assert law.ppf(0) == atoms[0][0]
    assert law.ppf(1) == atoms[1][0]
    hard = Affine(MarchenkoPastur(1, 1), scale, shift)
    assert hard.pdf(hard._image(0.0)) == math.inf


def test_nested_maps_collapse():
    inner = Semicircle()
    law = 3 * (-5 * inner + 2)
    assert law.law is inner
    assert (law.scale, law.shift) == (-15, 6)
    assert (-law).scale == 15
    assert (inner + 1).shift == 1


def test_matrix_is_the_map_of_the_matrix():
    inner = MarchenkoPastur(2, 3)
    np.testing.assert_array_equal((-2 * inner + 1).matrix(5, 7), np.eye(5) - 2 * inner.matrix(5, 7))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, 1), "law must be a Law"),
        ((Semicircle(), 0), "scale must not be 0"),
        ((Semicircle(), math.inf), "scale must be a finite"),
        ((Semicircle(), "2"), "scale must be"),
        ((Semicircle(), 1, math.nan), "shift must be a finite"),
        ((Semicircle(1e-40), 1, 1), "keep the edges and atoms"),
        ((Semicircle(1e300), 1e300), "apart and finite"),
    ],
)
def test_bad_parameters(arguments, message):
    with pytest.raises(ParameterError, match=message):
        Affine(*arguments)


def test_moment_too_large():
    with pytest.raises(ParameterError, match="exceeds the largest float"):
        Affine(Uniform(), 1e200).moment(2)
