"""Edge-adapted panels against a density in closed form, and the refusal of a solver that is wrong between the nodes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gequiv import CertificationError, MarchenkoPastur
from gequiv.laws._edge_adapted import ORDER, EdgeAdaptedDensity, edge_list


class ClosedForm:
    """Marchenko–Pastur as a node solver; it can be made to lie at its n-th call."""

    precision = np.float64

    def __init__(self, law, exponents, spoil=None):
        self.law = law
        self.edges = edge_list(law.support(), exponents)
        self.spoil = spoil
        self.calls = 0

    def solve(self, edge, xi, start):
        self.calls += 1
        x = np.array([self.edges[k].location + self.edges[k].sign * self.edges[k].width * t**2
                      for k, t in zip(edge, xi, strict=True)])  # fmt: skip
        exponent = np.array([self.edges[k].exponent for k in edge])
        values = self.law.pdf(x) / xi**exponent
        if self.spoil and xi.size % ORDER:
            values = values * (1 + self.spoil)
        return values, np.zeros((len(xi), 1), dtype=complex)


@pytest.mark.parametrize(("ratio", "exponents"), [(0.3, [(1, 1)]), (1.0, [(-1, 1)])])
def test_reproduces_a_density(ratio, exponents):
    law = MarchenkoPastur(ratio, 1.7)
    density = EdgeAdaptedDensity(law.support(), exponents, ClosedForm(law, exponents), tolerance=1e-11)
    (a, b) = law.support()[0]
    x = a + (b - a) * np.linspace(1e-4, 1 - 1e-4, 999)
    np.testing.assert_allclose(density.density(x), law.pdf(x), rtol=1e-9)
    np.testing.assert_allclose(density.mass(x), law.cdf(x), atol=1e-10)
    np.testing.assert_allclose(density.partial_mean(x), law.partial_mean(x), atol=1e-10)
    q = np.linspace(0, 1, 101)
    np.testing.assert_allclose(law.cdf(density.quantile(q)), q, atol=1e-9)
    points, weights = density.quadrature()
    assert np.sum(weights) == pytest.approx(1, abs=1e-10)
    assert np.sum(weights * points**2) == pytest.approx(law.moment(2), rel=1e-9)
    outside = np.array([a - 1, np.nextafter(a, -np.inf), np.nextafter(b, np.inf), b + 1, -math.inf, math.inf])
    assert density.density(outside).tolist() == [0] * 6


def test_a_solver_that_disagrees_with_itself_is_refused():
    law = MarchenkoPastur(0.3)
    with pytest.raises(CertificationError, match="misses its equation"):
        EdgeAdaptedDensity(law.support(), [(1, 1)], ClosedForm(law, [(1, 1)], spoil=1e-6), tolerance=1e-11)


def test_a_density_with_the_wrong_edge_behaviour_is_refused():
    law = MarchenkoPastur(0.3)
    with pytest.raises(CertificationError, match="does not settle"):
        EdgeAdaptedDensity(law.support(), [(-1, 1)], _Noisy(law), tolerance=1e-13)


class _Noisy(ClosedForm):
    def __init__(self, law):
        super().__init__(law, [(-1, 1)])

    def solve(self, edge, xi, start):
        values, states = super().solve(edge, xi, start)
        return values * (1 + 1e-6 * np.sin(1e9 * xi)), states
