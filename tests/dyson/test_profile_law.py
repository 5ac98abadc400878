"""The law of the profiled equation: the contract of every law, closed forms, refusals."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from gequiv import CertificationError, ParameterError
from gequiv.dyson import Component, ProfileEquation, ProfileLaw, WeightedChainPlusNoise
from gequiv.laws import GaussianChainPlusNoise, MarchenkoPastur
from tests.laws.contract import check_contract

CORES = [[[1.0, 0.3], [-0.5, 0.8]], [[0.5, 1.0], [1.0, -0.4]]]
NOISE = np.array([[0.1, 0.5], [0.3, 0.2]])
MODELS = {
    "square": ([0.3, 0.7], [0.6, 0.4], [Component(CORES[0], 0.25), Component(CORES[1], 1.5, [1, 4], [2, 1])], NOISE),
    "wide": ([0.2, 0.3], [0.6, 0.4], [Component(CORES[0], 0.25)], NOISE),
    "tall": ([1.2, 0.5], [0.6, 0.4], [Component(CORES[0], 0.25, [0.5, 1.5])], 2.5 * NOISE),
    "two intervals": ([0.5, 0.5], [0.5, 0.5], [Component([[1.0, 0.8], [0.8, 0.6]], 0.1)], 0.02 * NOISE),
}
INTERVALS = {"square": 1, "wide": 1, "tall": 1, "two intervals": 2}


@pytest.fixture(scope="module")
def laws():
    made = {}

    def get(name):
        if name not in made:
            made[name] = ProfileLaw(*MODELS[name])
        return made[name]

    return get


@pytest.mark.parametrize("name", MODELS)
def test_contract(laws, name):
    law = laws(name)
    assert len(law.support()) == INTERVALS[name]
    rows = sum(MODELS[name][0])
    atoms = law.atoms()
    if rows > 1:
        assert len(atoms) == 1
        assert atoms[0] == (0, pytest.approx(1 - 1 / rows, rel=1e-14))
    else:
        assert len(atoms) == 0
    assert (law.support()[0][0] == 0) == (rows == 1)
    check_contract(law)


@pytest.mark.parametrize("name", MODELS)
def test_moments_in_closed_form(laws, name):
    # With V = σ² + Σ C², m₁ = Σ δ_p δ_q V/Σ δ_p. In tr (YYᵀ)² = Σ Y_ij Y_kj Y_kl Y_il the terms i = k and j = l are
    # sums of squares, and a product has besides them Σ δδδδ C_pq C_p'q C_p'q' C_pq' (mean m⁴)/λ.
    rows, columns, components, noise = MODELS[name]
    rows, columns = np.array(rows), np.array(columns)
    variances = noise + sum(c.core**2 for c in components)
    mean = rows @ variances @ columns / rows.sum()
    second = rows @ (variances @ columns) ** 2 + columns @ (rows @ variances) ** 2
    for part in components:
        gram = part.core @ np.diag(columns) @ part.core.T
        fourth = part.shares @ part.weights**2 / part.inner
        second += fourth * np.einsum("p,r,pr,pr", rows, rows, gram, gram)
    law = laws(name)
    assert law.scale == pytest.approx(mean, rel=1e-14)
    assert law.moment(0) == pytest.approx(1, rel=1e-14)
    assert law.moment(1) == pytest.approx(mean, rel=1e-12)
    assert law.moment(2) == pytest.approx(second / rows.sum(), rel=1e-12)


ONE_CELL = {
    "square": ([0.5], 1, 1.0, 0.7),
    "wide": ([0.5], 0.3, 2.0, 0.4),
    "tall": ([0.5], 2, 1.0, 0.7),
    "two intervals": ([0.5], 1, 1e-4, 5e-9),
    "low rank": ([0.03], 1, 0.3, 0.05),
    "nearly square": ([2.0], 1.01, 1.0, 0.5),
}


@pytest.mark.parametrize("name", ONE_CELL)
def test_one_cell_is_the_rational_curve(name):
    inner, aspect, signal, noise = ONE_CELL[name]
    curve = GaussianChainPlusNoise(inner, aspect, signal, noise)
    law = ProfileLaw([aspect], [1.0], [Component([[math.sqrt(signal)]], inner[0] * aspect)], noise)
    assert len(law.support()) == len(curve.support())
    np.testing.assert_allclose(law.support(), curve.support(), rtol=1e-12, atol=0)
    assert sum(w for _, w in law.atoms()) == pytest.approx(sum(w for _, w in curve.atoms()), abs=1e-15)
    for a, b in curve.support():
        x = np.linspace(a, b, 40)[1:-1]
        np.testing.assert_allclose(law.pdf(x), curve.pdf(x), rtol=1e-8)
        np.testing.assert_allclose(law.cdf(x), curve.cdf(x), atol=1e-10)
    for k in range(1, 9):
        assert law.moment(k) == pytest.approx(curve.moment(k), rel=1e-11)


def test_noise_alone_is_marchenko_pastur():
    law, exact = ProfileLaw([0.2, 0.3], [0.5, 0.5], [], 0.8), MarchenkoPastur(0.5, 0.8)
    np.testing.assert_allclose(law.support(), exact.support(), rtol=1e-12)
    x = np.linspace(*exact.support()[0], 20)
    np.testing.assert_allclose(law.cdf(x), exact.cdf(x), atol=1e-10)


def test_weights_are_those_of_the_weighted_chain():
    exact = WeightedChainPlusNoise([0.6], [[1, 3, 0]], 1, 2.0, 0.3)
    law = ProfileLaw([1.0], [1.0], [Component([[math.sqrt(2)]], 0.6, [1, 3, 0])], 0.3)
    np.testing.assert_allclose(law.support(), exact.support(), rtol=1e-12)
    np.testing.assert_allclose(law.moment(3), exact.moment(3), rtol=1e-11)
    x = exact.ppf(np.linspace(0.05, 0.95, 19))
    np.testing.assert_allclose(law.pdf(x), exact.pdf(x), rtol=1e-8)


def test_the_transform_is_that_of_the_equation(laws):
    law = laws("square")
    equation = ProfileEquation(*MODELS["square"])
    z = np.array([0.5 + 0.1j, 3j, -1 + 1e-3j])
    np.testing.assert_allclose(law.cauchy(z), equation.solve(z).value, rtol=1e-12)
    a, b = law.support()[0]
    x = np.linspace(a, b, 9)[1:-1]
    np.testing.assert_allclose(law.pdf(x), -equation.solve(x).value.imag / np.pi, rtol=1e-8)


def test_gap_mass_is_the_inner_dimension(laws):
    # next to vanishing noise the chain has D = 0.1 n eigenvalues that do not vanish
    law = laws("two intervals")
    (_, low), (high, _) = law.support()
    assert 1 - law.cdf((low + high) / 2) == pytest.approx(0.1, abs=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_certificate(laws, name):
    certificate = laws(name).certificate
    assert 0 <= certificate.mass_error <= 1e-9
    assert certificate.residual < 1e-10
    assert certificate.density_error < 1e-7
    assert 0 < certificate.half_plane <= 1
    assert certificate.nodes >= 16


def test_pickle_and_repr(laws):
    law = laws("tall")
    again = pickle.loads(pickle.dumps(law))
    assert again.support() == law.support()
    assert again.pdf(1.0) == law.pdf(1.0)
    assert repr(again) == repr(law)
    assert repr(law).startswith("ProfileLaw(2 × 2 cells, inner=[0.25], aspect=1.7, scale=")


@pytest.mark.parametrize("noise", [0.0, [[0.0, 1.0]]])
def test_noise_must_be_positive(noise):
    with pytest.raises(ParameterError, match="noise must be above 0"):
        ProfileLaw([1.0], [0.5, 0.5], [Component([[1.0, 1.0]], 0.5)], noise)


def test_bad_models_are_refused():
    with pytest.raises(ParameterError, match="columns must sum to one"):
        ProfileLaw([1.0], [0.5], [], 1.0)


@pytest.mark.parametrize("noise", [1e-6, 1e-9, 1e-12])
def test_hardly_any_noise(noise):
    """A law or a refusal, and the law is right."""
    curve = GaussianChainPlusNoise([0.5], 1, 1.0, noise)
    try:
        law = ProfileLaw([0.5, 0.5], [1.0], [Component([[1.0], [1.0]], 0.5)], noise)
    except CertificationError:
        assert noise < 1e-6
    else:
        np.testing.assert_allclose(law.support(), curve.support(), rtol=1e-10)
        assert law.cdf(0.1) == pytest.approx(curve.cdf(0.1), abs=1e-9)
