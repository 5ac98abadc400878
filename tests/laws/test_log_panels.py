"""Densities stored in log x against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad

from gequiv.laws import MarchenkoPastur
from gequiv.laws._log_panels import NODES, LogPanels, Panel, interpolate, series


def stored(panels, p, below=0.0):
    """The panels of p(u)."""
    return LogPanels(panels, np.array([p(panel.locate(NODES)) / panel.factor(NODES) for panel in panels]), below)


@pytest.fixture(scope="module")
def marchenko_pastur():
    """Both edges square roots."""
    law = MarchenkoPastur(0.5)
    (low, high) = np.log(law.support()[0])
    cuts = np.linspace(low, high, 7)
    panels = [Panel(low, cuts[1], 1), *[Panel(*cuts[k : k + 2]) for k in range(1, 5)], Panel(cuts[5], high, -1)]
    return law, stored(panels, lambda u: np.exp(u) * law.pdf(np.exp(u)))


def power():
    """F = √x on (0, 1], stored from e^{-20}."""
    cuts = np.linspace(-20, 0, 9)
    panels = [Panel(*cuts[k : k + 2]) for k in range(8)]
    return stored(panels, lambda u: 0.5 * np.exp(u / 2), math.exp(-10))


def logarithmic():
    """F = 1/(1 - u) on u <= 0, stored from u = -30."""
    cuts = -np.geomspace(31, 1, 13) + 1
    panels = [Panel(*cuts[k : k + 2]) for k in range(12)]
    return stored(panels, lambda u: (1 - u) ** -2.0, 1 / 31)


def test_panels_map_there_and_back():
    s = np.linspace(-1, 1, 21)
    for panel in (Panel(-2.0, 1.5), Panel(-2.0, 1.5, 1), Panel(-2.0, 1.5, -1)):
        u = panel.locate(s)
        np.testing.assert_allclose(panel.place(u), s, atol=1e-12)
        assert [min(u), max(u)] == pytest.approx([-2.0, 1.5])
        first, second = panel.halves()
        assert (first.low, second.high) == (-2.0, 1.5)
        assert first.high == second.low
        assert (first.edge, second.edge) == (max(panel.edge, 0), min(panel.edge, 0))
    np.testing.assert_allclose(Panel(1.0, 5.0, 1).factor(s) ** 2, Panel(1.0, 5.0, 1).locate(s) - 1, atol=1e-14)
    np.testing.assert_allclose(Panel(1.0, 5.0, -1).factor(s) ** 2, 5 - Panel(1.0, 5.0, -1).locate(s), atol=1e-14)


def test_series_and_interpolation_of_polynomials():
    s = np.linspace(-1, 1, 9)
    values = NODES**5 - 2 * NODES
    np.testing.assert_allclose(interpolate(s, values), s**5 - 2 * s, atol=1e-14)
    np.testing.assert_allclose(interpolate(s, values * 1j), 1j * (s**5 - 2 * s), atol=1e-14)
    # x⁵ = (10 T1 + 5 T3 + T5)/16
    expected = np.zeros(NODES.size)
    expected[[1, 3, 5]] = [10 / 16 - 2, 5 / 16, 1 / 16]
    np.testing.assert_allclose(series(values), expected, atol=1e-14)


def test_marchenko_pastur(marchenko_pastur):
    law, panels = marchenko_pastur
    low, high = law.support()[0]
    assert panels.total_mass == pytest.approx(1, abs=1e-9)
    assert panels.total_mean == pytest.approx(law.mean(), rel=1e-9)
    x = np.linspace(low, high, 101)
    np.testing.assert_allclose(panels.density_in_log(np.log(x[1:-1])), (x * law.pdf(x))[1:-1], rtol=1e-7)
    np.testing.assert_allclose(panels.mass(np.log(x)), law.cdf(x), atol=1e-9)
    np.testing.assert_allclose(panels.partial_mean(np.log(x)), law.partial_mean(x), atol=1e-9)
    for k in (1, 2, 3, 5):
        assert panels.moment(k) == pytest.approx(law.moment(k), rel=1e-9)
    outside = np.log([0.1 * low, 0.99 * low, 1.01 * high, 10 * high])
    assert panels.density_in_log(outside).tolist() == [0, 0, 0, 0]
    np.testing.assert_allclose(panels.mass(outside), [0, 0, 1, 1], atol=1e-9)
    np.testing.assert_allclose(panels.partial_mean(outside), [0, 0, law.mean(), law.mean()], atol=1e-9)
    q = np.linspace(0.001, 0.999, 97)
    np.testing.assert_allclose(panels.mass(np.log(panels.quantile(q))), q, atol=1e-13)
    np.testing.assert_allclose(panels.quantile(q), law.ppf(q), rtol=1e-7)
    assert panels.quantile(np.array([1.0, 2.0])) == pytest.approx([high, high], rel=1e-14)


def test_a_power_of_x_is_continued_exactly():
    panels = power()
    u = np.linspace(-200, 0, 401)
    np.testing.assert_allclose(panels.mass(u), np.exp(u / 2), rtol=1e-7)
    np.testing.assert_allclose(panels.density_in_log(u), 0.5 * np.exp(u / 2), rtol=1e-7)
    np.testing.assert_allclose(panels.partial_mean(u), np.exp(1.5 * u) / 3, rtol=1e-5)
    q = np.geomspace(1e-40, 1, 50)
    np.testing.assert_allclose(panels.quantile(q), q**2, rtol=1e-5)
    for k in (1, 2, 4):  # ∫ x^k d√x
        assert panels.moment(k) == pytest.approx(1 / (2 * k + 1), rel=1e-9)
    assert panels.quantile(np.array([0.0])) == [0.0]


def test_the_reciprocal_of_a_logarithm_is_continued_exactly():
    panels = logarithmic()
    u = np.concatenate([-np.geomspace(1e6, 1e-3, 200), [0.0]])
    np.testing.assert_allclose(panels.mass(u), 1 / (1 - u), rtol=1e-4)
    np.testing.assert_allclose(panels.density_in_log(u), (1 - u) ** -2.0, rtol=1e-4)
    stored_part = u > -30
    np.testing.assert_allclose(panels.mass(u[stored_part]), 1 / (1 - u[stored_part]), rtol=1e-8)
    q = 1 / (1 + np.array([500.0, 100.0, 31.0, 10.0, 1.0, 0.1]))
    np.testing.assert_allclose(np.log(panels.quantile(q)), 1 - 1 / q, rtol=1e-4)
    assert panels.quantile(np.array([1e-5])) == [0.0]  # e^{-99999}
    for k in (1, 3):
        exact = quad(lambda t, k=k: math.exp(k * t) / (1 - t) ** 2, -60, 0, epsabs=1e-13)[0]
        assert panels.moment(k) == pytest.approx(exact, rel=1e-8)
    assert panels.total_mean == pytest.approx(panels.moment(1), rel=1e-10)
    x = np.array([-40.0, -10.0, -1.0])
    partial = [quad(lambda t: math.exp(t) / (1 - t) ** 2, -90, end, epsabs=0)[0] for end in x]
    np.testing.assert_allclose(panels.partial_mean(x)[1:], partial[1:], atol=1e-12)
    assert panels.partial_mean(x)[0] == pytest.approx(partial[0], rel=0.1)  # the order of magnitude, of 4e-21


def test_gaps_carry_no_mass():
    # even in u on [-3, -1] and on [2, 3]: densities 1/4 and 1/2
    panels = stored([Panel(-3.0, -2.0), Panel(-2.0, -1.0), Panel(2.0, 3.0)], lambda u: np.where(u < 0, 0.25, 0.5))
    u = np.array([-4, -3, -2.5, -1, -0.5, 1.9, 2, 2.5, 3, 4])
    np.testing.assert_allclose(panels.mass(u), [0, 0, 0.125, 0.5, 0.5, 0.5, 0.5, 0.75, 1, 1], atol=1e-14)
    np.testing.assert_allclose(panels.density_in_log(u), [0, 0.25, 0.25, 0.25, 0, 0, 0.5, 0.5, 0.5, 0], atol=1e-14)
    low_mean, high_mean = 0.25 * (math.exp(-1) - math.exp(-3)), 0.5 * (math.exp(3) - math.exp(2))
    np.testing.assert_allclose(
        panels.partial_mean(np.array([-0.5, 1.9, 4.0])), [low_mean, low_mean, low_mean + high_mean], rtol=1e-13
    )
    assert panels.total_mean == pytest.approx(low_mean + high_mean, rel=1e-13)
    q = np.array([0.25, 0.499999, 0.500001, 0.75])
    np.testing.assert_allclose(np.log(panels.quantile(q)), [-2, -1.000004, 2.000002, 2.5], atol=1e-12)
    assert panels.moment(2) == pytest.approx(
        0.125 * (math.exp(-2) - math.exp(-6)) + 0.25 * (math.exp(6) - math.exp(4)), rel=1e-10
    )
