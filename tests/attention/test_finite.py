"""The finite-size law of heads without a mask: contract, limits, drawn spectra, refusals.

Bounds on distances to draws. The eigenvalue counting function of one draw is rigid: it fluctuates by O(log n)
eigenvalues, so that a true law is a few/n away in KS. The norms of queries and keys scale whole rows and columns and
move eigenvalues by O(√d_k) places more. The bounds are of that size, √d_k/n = .004 at (2048, 64) and .006 at
(1000, 32), and the limit law, wrong by .14 and .27 there, is held to ten times the distance. Seeds are fixed.
"""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from gequiv import Attention, CertificationError, ParameterError
from gequiv.attention.inner_weights import effective_dimension
from tests.laws.contract import check_contract


def distance(law, values):
    """Kolmogorov distance between a law and a spectrum."""
    values = np.sort(values)
    upper = np.searchsorted(values, values, side="right") / values.size
    lower = np.searchsorted(values, values, side="left") / values.size
    below = law.cdf(np.nextafter(values, -np.inf))
    return max(np.abs(law.cdf(values) - upper).max(), np.abs(below - lower).max())


def between(one, other):
    """Kolmogorov distance between two laws, on 4001 quantiles of each."""
    q = np.linspace(0, 1, 4001)
    x = np.concatenate([one.ppf(q), other.ppf(q)])
    return np.abs(one.cdf(x) - other.cdf(x)).max()


def random_weights(d=768, d_k=64, tokens=1024, beta=0.5, seed=5, mean=0.0):
    """Independent Gaussian weights, scaled to beta."""
    rng = np.random.default_rng(seed)
    W_Q, W_K = rng.standard_normal((2, d, d_k)) / math.sqrt(d)
    unscaled = Attention.from_weights(W_Q, W_K, tokens=tokens)
    scale = unscaled.weights.scale * beta / unscaled.beta
    mean = mean * rng.standard_normal(d)
    return Attention.from_weights(W_Q, W_K, tokens=tokens, scale=scale, mean=mean)


@pytest.mark.parametrize(
    "head",
    [
        Attention(500, 250, 0.5),
        Attention(1000, 64, 0.5),
        Attention(300, 32, 0.5, keys=500),
        Attention(500, 32, 0.5, keys=300),
        Attention(400, 40, 0.5, width=200),
    ],
    ids=["proportional", "two intervals", "wide", "tall", "width"],
)
def test_contract(head):
    law = head.finite_law()
    check_contract(law, tolerance=3e-9)
    assert law.certificate.mass_error < 1e-9
    assert law.head == head
    # the mean is the energy of a row: e^{β²} - 1 up to O(1/keys + 1/d_k)
    assert law.moment(1) == pytest.approx(math.expm1(head.beta**2), rel=0.05)


@pytest.mark.parametrize("with_width", [False, True])
def test_tends_to_the_limit_law(with_width):
    distances = []
    for n in (500, 2000, 8000, 32000):
        head = Attention(n, n // 2, 0.5, width=n if with_width else None)
        distances.append(between(head.finite_law(), head.limit_law()))
    ratios = np.array(distances[:-1]) / distances[1:]
    assert ((ratios > 2.5) & (ratios < 7)).all()  # about 1/n: fourfold
    assert distances[0] < 0.025
    assert distances[-1] < 5e-4


def test_narrow_heads_against_draws():
    for head, bound in ((Attention(2048, 64, 0.5), 0.006), (Attention(1000, 32, 0.5), 0.010)):
        law, limit = head.finite_law(), head.limit_law()
        spectra = [head.spectrum(seed) for seed in (0, 1)]
        mean = np.mean([distance(law, s) for s in spectra])
        assert mean < bound
        assert np.mean([distance(limit, s) for s in spectra]) > 10 * mean


def test_given_weights_against_a_draw():
    head = random_weights()
    law = head.finite_law()
    spectrum = head.spectrum(1)
    assert distance(law, spectrum) < 0.008
    assert distance(head.limit_law(), spectrum) > 10 * distance(law, spectrum)
    # drawn weights have the expected spectrum up to O(1/d_k): the law of the width model is the same to that
    assert between(law, Attention(1024, 64, 0.5, width=768).finite_law()) < 0.003


def test_unequal_weights_matter():
    rng = np.random.default_rng(3)
    d, d_k, n = 100, 30, 500
    W_Q, W_K = rng.standard_normal((2, d, d_k)) * np.geomspace(1, 0.3, d_k)
    head = Attention.from_weights(W_Q, W_K, tokens=n)
    head = Attention.from_weights(W_Q, W_K, tokens=n, scale=head.weights.scale * 0.4 / head.beta)
    flat = Attention(n, d_k, 0.4, width=d)
    spectrum = head.spectrum(0)
    assert effective_dimension(head.inner_weights, d_k) < 12  # far from any limit, and degrees 2 to 4 overlap
    own = distance(head.finite_law(), spectrum)
    assert own < 0.07
    assert distance(flat.finite_law(inner_points=3), spectrum) > 2 * own


def test_weights_know_no_units():
    head = random_weights(d=400, d_k=40, tokens=300)
    weights = head.weights
    other = Attention.from_weights(1e3 * weights.W_Q, 0.1 * weights.W_K, tokens=300, scale=weights.scale / 100)
    assert other.beta == pytest.approx(head.beta, rel=1e-13)
    one, two = head.finite_law(), other.finite_law()
    np.testing.assert_allclose(two.support(), one.support(), rtol=1e-9)
    x = np.linspace(*one.support()[-1], 9)
    np.testing.assert_allclose(two.cdf(x), one.cdf(x), atol=1e-9)


@pytest.mark.parametrize(("tokens", "keys"), [(600, 900), (900, 600)])
def test_cross_attention_against_a_draw(tokens, keys):
    head = Attention(tokens, 32, 0.5, keys=keys)
    law = head.finite_law()
    spectrum = head.spectrum(0)
    assert distance(law, spectrum) < 0.015
    assert distance(head.limit_law(), spectrum) > 10 * distance(law, spectrum)
    assert sum(w for _, w in law.atoms()) == pytest.approx(max(0, 1 - keys / tokens), abs=1e-12)


def test_column_bias_against_a_draw():
    """Tokens of a mean: a bias on the columns. Centred both ways, (I - 11ᵀ/n)A has the law's bulk alone."""
    head = random_weights(mean=0.6)
    assert head.weights.column_bias_variance > 0.05
    law = head.finite_law()
    A = head.sample(3)
    centred = math.sqrt(head.columns) * (A - A.mean(axis=0))
    spectrum = np.linalg.eigvalsh(centred @ centred.T)
    spectrum[0] = 0.0
    assert distance(law, spectrum) < 0.015
    plain = Attention(1024, 64, 0.5, width=768).finite_law()
    assert distance(plain, spectrum) > 2 * distance(law, spectrum)
    assert spectrum[-1] < law.support()[-1][1] * 1.02


def test_overrides():
    head = Attention(400, 40, 0.5, width=200)
    default = head.finite_law()
    same = head.finite_law(order=default.order, norm_nodes=default.norm_nodes, inner_points=10)
    assert same.support() == default.support()
    other = head.finite_law(order=default.order + 1, norm_nodes=default.norm_nodes + 1, inner_points=14)
    assert (other.order, other.norm_nodes) == (default.order + 1, default.norm_nodes + 1)
    assert between(other, default) < 0.01  # what is refined hardly matters: that is why it was chosen so
    coarse = head.finite_law(order=1, norm_nodes=1, inner_points=1)
    assert (coarse.order, coarse.norm_nodes) == (1, 1)
    assert between(coarse, default) > 3 * between(other, default)


@pytest.mark.parametrize("name", ["order", "norm_nodes", "inner_points"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "a", True])
def test_bad_overrides(name, value):
    with pytest.raises(ParameterError, match=f"{name} must be an integer"):
        Attention(400, 32, 0.5).finite_law(**{name: value})


def test_scores_are_refused():
    with pytest.raises(ParameterError, match="score must be None"):
        Attention(400, 32, 0.5, score=np.cosh).finite_law()


@pytest.mark.parametrize("beta", [4.0, 10.0, 26.0, 27.0, 1e3])
def test_large_beta_is_refused_by_name(beta):
    with pytest.raises(ParameterError, match="beta must be"):
        Attention(500, 64, beta).finite_law()


def test_a_single_direction_is_refused_by_name():
    with pytest.raises(ParameterError, match="head_dim must be at least 2"):
        Attention(500, 1, 0.5).finite_law()


@pytest.mark.parametrize(
    "head", [Attention(2, 2, 1.0), Attention(10, 4, 1.5), Attention(64, 64, 2.0), Attention(500, 400, 1e-6)]
)
def test_odd_sizes_have_a_law_or_are_refused(head):
    try:
        law = head.finite_law()
    except CertificationError:
        return
    assert law.cdf(law.support()[-1][1]) == 1
    # energy of a row: Σ (A - 1/k)² ≤ 1, and β²(k-1)/k for small β
    assert law.moment(1) < head.columns
    if head.beta < 1e-3:
        assert law.moment(1) == pytest.approx(head.beta**2 * (1 - 1 / head.columns), rel=0.01)


def test_pickle_and_repr():
    law = Attention(300, 64, 0.5).finite_law()
    again = pickle.loads(pickle.dumps(law))
    assert again.support() == law.support()
    assert again.outliers() == law.outliers()
    assert (again.head, again.order, again.norm_nodes) == (law.head, law.order, law.norm_nodes)
    assert repr(again) == repr(law)
    assert repr(law).startswith("FiniteLaw(Attention(tokens=300")


def test_edge_scale():
    # a wide head is square Marchenko–Pastur of variance v = e^{β²} - 1 up to O(1/n), of density
    # ρ = √(x(4v - x))/(2π v x), so that a = 1/(2π v √(4v)) and the scale is (4 v^{3/2}/n)^{2/3} = 4^{2/3} v n^{-2/3}
    head = Attention(4000, 10**7, 0.3)
    v = math.expm1(0.3**2)
    assert head.finite_law().edge_scale() == pytest.approx(4 ** (2 / 3) * v * 4000 ** (-2 / 3), rel=0.02)
