"""Kesten–McKay: contract, mpmath at 40 digits, walks on the tree counted one by one, a random regular graph."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from gequiv import ParameterError
from gequiv.laws import Arcsine, KestenMcKay, Semicircle
from tests.laws.contract import check_contract, check_densities, transform_errors


@pytest.mark.parametrize(("degree", "tolerance"), [(2, 1e-7), (2.5, 1e-9), (7, 1e-9), (1e5, 1e-9)])
def test_contract(degree, tolerance):
    check_contract(KestenMcKay(degree), tolerance=tolerance)


@pytest.mark.parametrize("degree", [2.0, 2.01, 3.0, 40.0, 1e7])
def test_against_mpmath(degree):
    law = KestenMcKay(degree)

    with mpmath.workdps(40):
        assert law.support()[0][1] == pytest.approx(float(2 * mpmath.sqrt(mpmath.mpf(degree) - 1)), rel=1e-15)

    def density(x):
        # between the edges that the law has in floats, or the difference in the roots would count
        d, edge = mpmath.mpf(degree), mpmath.mpf(law.support()[0][1])
        return d * mpmath.sqrt((edge - x) * (edge + x)) / (2 * mpmath.pi * (d**2 - x**2))

    check_densities(law, density, fractions=(0.1, 0.9))

    def exact(z):
        d = mpmath.mpf(degree)
        edge = 2 * mpmath.sqrt(d - 1)
        return 2 * (d - 1) / ((d - 2) * z + d * mpmath.sqrt(z - edge) * mpmath.sqrt(z + edge))

    edge = law.support()[0][1]
    points = edge * np.array([0.3 + 0.1j, -0.7 + 1e-7j, 1.5, -1.001, 1e-9j, 1 + 1e-4j, -30, 1e6 + 1e5j, -1e12, 1e15j])
    g, slope = transform_errors(law, exact, points)
    assert g < 2e-13  # next to an edge the rounding of the edge counts, most where the poles d are near
    assert slope < 1e-12


@pytest.mark.parametrize("degree", [2, 3, 6])
def test_walks_on_the_tree(degree):
    # the number of walks of each length that end at each distance from the root
    distances = np.zeros(20, dtype=object)
    distances[0] = 1
    law = KestenMcKay(degree)
    for k in range(16):
        assert law.moment(k) == distances[0]
        following = np.zeros(20, dtype=object)
        following[1] += degree * distances[0]
        following[2:] += (degree - 1) * distances[1:-1]
        following[:-1] += distances[1:]
        distances = following


def test_limits():
    x = np.linspace(-2.1, 2.1, 43)
    np.testing.assert_allclose(KestenMcKay(2).cdf(x), Arcsine().cdf(x), atol=1e-15)
    np.testing.assert_allclose(KestenMcKay(2).pdf(x), Arcsine().pdf(x), rtol=1e-13)
    assert KestenMcKay(2).pdf(2) == math.inf
    # many neighbours: the semicircle in units of √d, with a correction of order 1/d
    scaled = KestenMcKay(1e9)
    np.testing.assert_allclose(scaled.cdf(x * math.sqrt(1e9)), Semicircle().cdf(x), atol=2e-9)


def test_random_regular_graph():
    # a permutation and its inverse, twice: degree 4, with the trivial eigenvalue 4 apart
    rng, n = np.random.default_rng(3), 400
    graph = np.zeros((n, n))
    for _ in range(2):
        image = rng.permutation(n)
        np.add.at(graph, (np.arange(n), image), 1)
        np.add.at(graph, (image, np.arange(n)), 1)
    values = np.linalg.eigvalsh(graph)
    assert values[-1] == pytest.approx(4)
    assert np.max(np.abs(KestenMcKay(4).cdf(values) - np.arange(1, n + 1) / n)) < 0.03


@pytest.mark.parametrize("degree", [1.99, -3, math.nan, math.inf, "3", True])
def test_bad_degree(degree):
    with pytest.raises(ParameterError, match="degree must be a finite real number"):
        KestenMcKay(degree)
