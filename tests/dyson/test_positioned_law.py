"""Laws of masked models against closed forms: the triangular Gaussian matrix, Marchenko–Pastur, the rational curve."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from gequiv import CertificationError, ParameterError
from gequiv.dyson.positioned_law import PositionedLaw
from gequiv.dyson.positions import CausalKernel, CellKernel, PositionedComponent, PositionedEquation
from gequiv.laws import GaussianChainPlusNoise, MarchenkoPastur


def noisy(kernel, noise=1.0):
    """One kind of rows and of columns, noise alone."""
    return PositionedEquation(
        kernel, np.ones(1), np.ones(1), [], np.full((1, 1), noise), np.ones((kernel.rows.size, 1))
    )


def constant(cells, aspect):
    """M = 1."""
    first = np.ones((1, 1, cells, cells))
    return CellKernel(np.full(cells, aspect / cells), np.full(cells, 1 / cells), first, first[0, 0])


@pytest.fixture(scope="module")
def triangular():
    """Strictly lower triangular, entries of variance 1/n."""
    return PositionedLaw([noisy(CausalKernel(np.linspace(0, 1, n + 1))) for n in (8, 16, 32, 64, 128)])


def triangular_curve(v):
    r"""x, density and distribution function of the triangular matrix, v in (0, π).

    x = (sin v/v) e^{v cot v} and ρ = sin v e^{-v cot v}/π; with dx = -(x/v)(sin²v - v sin 2v + v²)/sin²v dv,
    dF = -(1/π)(sin²v/v² - sin 2v/v + 1) dv, of which F = 1 - v/π + sin²v/(πv) is the integral.
    Source: Dykema, Haagerup 2004.
    """
    cotangent = v / np.tan(v)
    x = np.sin(v) / v * np.exp(cotangent)
    return x, np.sin(v) * np.exp(-cotangent) / math.pi, 1 - v / math.pi + np.sin(v) ** 2 / (math.pi * v)


def test_triangular_curve_is_a_law():
    # the formulas of this file: F' = ρ, and the moments n^n/(n + 1)!
    v = np.linspace(0.1, 3.0, 30)
    (x, density, _), step = triangular_curve(v), 1e-5
    ahead, behind = triangular_curve(v + step), triangular_curve(v - step)
    np.testing.assert_allclose((ahead[2] - behind[2]) / (ahead[0] - behind[0]), density, rtol=1e-6)
    v = np.linspace(1e-6, math.pi - 0.02, 200001)
    x, _, F = triangular_curve(v)
    for n in (1, 2, 3):
        moment = -np.sum(0.5 * (x[1:] ** n + x[:-1] ** n) * np.diff(F))
        assert moment == pytest.approx(n**n / math.factorial(n + 1), rel=1e-6)


def test_triangular_density_and_distribution(triangular):
    v = np.linspace(1e-3, 2.99, 4001)
    x, density, F = triangular_curve(v)
    bulk = (F > 0.12) & (F < 0.9)
    np.testing.assert_allclose(triangular.pdf(x[bulk]), density[bulk], rtol=1e-4)
    near = (F > 0.05) & (F < 0.97)
    np.testing.assert_allclose(triangular.pdf(x[near]), density[near], rtol=1e-3)
    assert x[-1] < 1e-9
    np.testing.assert_allclose(triangular.cdf(x[x > 1e-9]), F[x > 1e-9], atol=1e-4)
    # below, where no more than 1/log(1/x) of the mass is left
    u = np.linspace(2.99, math.pi - 0.01, 50)
    x, _, F = triangular_curve(u)
    np.testing.assert_allclose(triangular.cdf(x), F, atol=2e-3)


def test_triangular_quantiles(triangular):
    v = np.linspace(0.3, 2.6, 60)
    x, _, F = triangular_curve(v)
    np.testing.assert_allclose(triangular.ppf(F), x, rtol=1e-4)


def test_triangular_edge_and_moments(triangular):
    ((low, high),) = triangular.support()
    assert low == 0
    assert high == pytest.approx(math.e, rel=1e-3)
    assert triangular.atoms() == []
    for n in (1, 2, 3, 4):
        assert triangular.moment(n) == pytest.approx(n**n / math.factorial(n + 1), rel=1e-3)
    assert triangular.certificate.mass_error < 1e-5
    assert 0 < triangular.certificate.half_plane < 1
    assert triangular.certificate.density_error < 1e-3
    assert triangular.certificate.residual < 1e-5


def test_triangular_cauchy_transform(triangular):
    v = np.linspace(1e-6, math.pi - 0.01, 400001)
    x, _, F = triangular_curve(v)
    middle, mass, rest = 0.5 * (x[1:] + x[:-1]), -np.diff(F), F[-1]
    for z in (1 + 0.5j, -0.3 + 0.1j, 2.9 + 0.01j, 3.5, -1.0):
        exact = np.sum(mass / (z - middle)) + rest / z
        assert triangular.cauchy(z) == pytest.approx(exact, rel=1e-3)


def test_units(triangular):
    scaled = PositionedLaw([noisy(CausalKernel(np.linspace(0, 1, n + 1)), 100.0) for n in (8, 16, 32, 64, 128)])
    x = np.geomspace(1e-6, 2.6, 40)
    np.testing.assert_allclose(scaled.cdf(100 * x), triangular.cdf(x), atol=1e-5)
    assert scaled.scale == pytest.approx(50, rel=1e-3)


@pytest.mark.parametrize("aspect", [0.5, 1.0, 2.0])
def test_a_constant_kernel_gives_marchenko_pastur(aspect):
    law = PositionedLaw([noisy(constant(n, aspect), 3.0) for n in (2, 4)])
    exact = MarchenkoPastur(aspect, 3.0)
    assert np.ravel(law.atoms()) == pytest.approx(np.ravel(exact.atoms()))
    np.testing.assert_allclose(law.support(), exact.support(), rtol=1e-3, atol=1e-12)
    (a, b) = exact.support()[0]
    x = a + (b - a) * np.sin(np.linspace(0.02, 1.5, 60)) ** 2
    np.testing.assert_allclose(law.pdf(x[:-8]), exact.pdf(x[:-8]), rtol=2e-3)
    np.testing.assert_allclose(law.cdf(x), exact.cdf(x), atol=1e-4)
    q = np.linspace(exact.cdf(a) + 0.01, 0.99, 40)
    np.testing.assert_allclose(law.ppf(q), exact.ppf(q), rtol=1e-3)
    np.testing.assert_allclose(law.partial_mean(x), exact.partial_mean(x), atol=1e-3)
    for k in (1, 2, 3):
        assert law.moment(k) == pytest.approx(exact.moment(k), rel=1e-3)
    if aspect > 1:
        assert law.cdf(0.0) == pytest.approx(0.5, abs=1e-12)
        assert law.cdf(-1e-9) == 0
        assert law.ppf([0, 0.2, 0.5]).tolist() == [0, 0, 0]


@pytest.mark.parametrize("inner", [0.1, 0.7])
def test_a_constant_kernel_gives_the_rational_curve(inner):
    """At inner = 0.1 with a gap."""
    part = PositionedComponent(np.full((8, 1), 2.0), np.ones(1), inner, np.ones(1), np.ones(1))

    def equation(cells):
        return PositionedEquation(
            constant(cells, 1.0),
            np.ones(1),
            np.ones(1),
            [PositionedComponent(part.rows[:cells], part.columns, inner, part.weights, part.shares)],
            np.full((1, 1), 0.2),
            np.ones((cells, 1)),
        )

    law, exact = PositionedLaw([equation(2), equation(4)]), GaussianChainPlusNoise([inner], 1, 2.0, 0.2)
    assert len(law.support()) == len(exact.support()) == (2 if inner == 0.1 else 1)
    np.testing.assert_allclose(law.support(), exact.support(), rtol=2e-3, atol=1e-12)
    q = np.linspace(0.01, 0.995, 80)
    x = exact.ppf(q)
    np.testing.assert_allclose(law.cdf(x), q, atol=2e-4)
    z = exact.mean() * np.array([0.1 + 0.1j, 1 + 1j, -1 + 0.01j])
    np.testing.assert_allclose(law.cauchy(z), exact.cauchy(z), rtol=1e-5)
    assert law.moment(1) == pytest.approx(2.2, rel=1e-3)


def test_pickle_repr_and_refusals(triangular):
    again = pickle.loads(pickle.dumps(triangular))
    x = np.geomspace(1e-12, 3, 30)
    assert again.support() == triangular.support()
    assert (again.cdf(x) == triangular.cdf(x)).all()
    assert (again.pdf(x) == triangular.pdf(x)).all()
    np.testing.assert_allclose(again.cauchy(1 + 1j), triangular.cauchy(1 + 1j), rtol=1e-12)
    assert repr(triangular).startswith("PositionedLaw(128 cells, scale=0.5")
    with pytest.raises(ParameterError, match="k must be an integer"):
        triangular.moment(-1)
    with pytest.raises(ParameterError, match="off the support"):
        triangular.cauchy(1.0)


def test_equations_of_different_models_are_refused():
    """The bound of the support is that of the last one, and the one before still has a density there."""
    with pytest.raises(CertificationError, match="the right end of the support was not found"):
        PositionedLaw([noisy(constant(4, 1.0), 3.0), noisy(constant(4, 1.0), 1.0)])
