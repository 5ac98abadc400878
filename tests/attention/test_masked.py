"""Laws of masked heads: the contract, drawn spectra, and masks whose law is known otherwise.

Bounds on distances to draws, as in test_finite: the counting function of one draw is rigid up to about log n
eigenvalues, and the norms of queries and keys move √d_k more, so that a true law is within (√d_k + log n)/n in KS:
.023 for 512 rows of heads of width 32. Rows over few keys add what the Gaussian equivalent of a row over k keys misses,
1/k; hence no window is shorter than 64. Seeds are fixed.
"""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from gequiv import Attention, ParameterError, compare
from gequiv.attention.masked import _edges

N, D_K, BETA = 512, 32, 0.5
CELLS = 24


def bound(head, rows=None):
    rows = rows or head.tokens
    return (math.sqrt(head.head_dim) + math.log(rows)) / rows


def mean_distance(law, head, seeds=(0, 1)):
    return compare(law, [head.spectrum(seed) for seed in seeds]).ks_mean


def between(one, other):
    """Kolmogorov distance between two laws, on 2001 quantiles of each."""
    q = np.linspace(0, 1, 2001)
    x = np.concatenate([one.ppf(q), other.ppf(q)])
    return np.abs(one.cdf(x) - other.cdf(x)).max()


@pytest.fixture(scope="module")
def laws():
    """Laws by name, each made once."""
    heads = {
        "causal": Attention(N, D_K, BETA, mask="causal"),
        "rectangular": Attention(150, D_K, BETA, keys=200, mask="causal"),
    }
    return {name: (head, head.finite_law(cells=CELLS)) for name, head in heads.items()}


@pytest.mark.parametrize("name", ["causal", "rectangular"])
def test_contract(laws, name):
    """That of tests/laws/contract.py at the three or four digits that these laws are certified to."""
    law = laws[name][1]
    bottom, top = law.support()[0][0], law.support()[-1][1]
    assert all(a < b for a, b in law.support())
    assert law.atoms() == []
    assert law.certificate.mass_error < 1e-3
    assert law.certificate.half_plane > 0
    # mass, moments and the Cauchy transform from the density, on a grid in log x
    low = max(bottom, 1e-14 * law.mean())
    u = np.linspace(math.log(low), math.log(top), 40001)
    x = np.exp(u)
    x[-1] = top
    inner = 0.5 * (x[1:] + x[:-1])
    mass = law.pdf(np.exp(0.5 * (u[1:] + u[:-1]))) * np.exp(0.5 * (u[1:] + u[:-1])) * np.diff(u)
    rest = law.cdf(low)
    assert mass.sum() + rest == pytest.approx(1, abs=1e-3)
    np.testing.assert_allclose(np.cumsum(mass) + rest, law.cdf(x[1:]), atol=1e-3)
    np.testing.assert_allclose(np.cumsum(mass * inner), law.partial_mean(x[1:]), atol=1e-3 * law.mean())
    for k in (0, 1, 2, 3, 4):
        assert law.moment(k) / top**k == pytest.approx(mass @ (inner / top) ** k + (rest if k == 0 else 0), rel=1e-3)
    assert law.variance() == pytest.approx(law.moment(2) - law.mean() ** 2)
    z = law.mean() * np.array([0.3 + 0.2j, 1 + 1j, -0.5 + 0.1j, 5 + 0.5j])
    g = law.cauchy(z)
    np.testing.assert_allclose(g, [np.sum(mass / (point - inner)) + rest / point for point in z], rtol=1e-3)
    assert (g.imag < 0).all()
    np.testing.assert_allclose(law.cauchy(z.conj()), g.conj(), rtol=1e-12)
    far = np.array([1e8j, -1e8, 1e8 + 1e8j]) * top
    np.testing.assert_allclose(far * law.cauchy(far), 1, rtol=1e-6)
    real = law.cauchy([-top, 2 * top])
    assert (real.imag == 0).all()
    assert real[0].real < 0 < real[1].real
    # the distribution function and its inverse
    grid = np.concatenate([[-1.0, 0.0], np.geomspace(1e-300, 2 * top, 2001)])
    values = law.cdf(grid)
    assert (np.diff(values) >= -1e-12).all()
    assert (values[0], law.cdf(-np.inf), law.cdf(np.inf)) == (0, 0, 1)
    assert (law.pdf(grid) >= 0).all()
    assert (law.pdf(grid[grid > top]) == 0).all()
    q = np.linspace(0.06 if bottom == 0 else 1e-6, 1 - 1e-9, 57)
    np.testing.assert_allclose(law.cdf(law.ppf(q)), q, atol=1e-12)
    assert (np.diff(law.ppf(q)) >= 0).all()
    assert law.ppf(1) == pytest.approx(top, rel=1e-12)
    assert law.ppf(0) == bottom


def test_arguments(laws):
    law = laws["causal"][1]
    assert np.ndim(law.pdf(1)) == 0
    assert isinstance(law.cdf(0.5), float)
    assert law.pdf([]).shape == law.cdf([]).shape == law.ppf([]).shape == law.cauchy([]).shape == (0,)
    assert law.pdf([[1, 2], [3, 4]]).shape == (2, 2)
    assert law.pdf([1, 2])[0] == law.pdf(np.array([1.0, 2.0]))[0] == law.pdf(1.0)
    for call in (law.pdf, law.cdf, law.ppf, law.cauchy):
        with pytest.raises(ParameterError, match="NaN"):
            call(math.nan)
    with pytest.raises(ParameterError, match=r"q must lie in \[0, 1\]"):
        law.ppf(1.1)
    with pytest.raises(ParameterError, match="x must be real"):
        law.pdf(1j)
    with pytest.raises(ParameterError, match="off the support"):
        law.cauchy(1.0)
    for bad in (-1, 1.5, "a", True):
        with pytest.raises(ParameterError, match="k must be an integer"):
            law.moment(bad)


@pytest.mark.parametrize("name", ["causal", "rectangular"])
def test_draws_of_the_law(laws, name):
    """Dvoretzky–Kiefer–Wolfowitz at significance 1e-6."""
    law = laws[name][1]
    sample = np.sort(law.rvs(20000, np.random.default_rng(7)))
    level = math.sqrt(math.log(2 / 1e-6) / (2 * sample.size))
    assert np.abs(law.cdf(sample) - (np.arange(20000) + 0.5) / 20000).max() < level
    assert law.rvs(3, 5).tolist() == law.rvs(3, np.random.default_rng(5)).tolist()


def test_pickle_repr_and_attributes(laws):
    head, law = laws["causal"]
    again = pickle.loads(pickle.dumps(law))
    assert again.support() == law.support()
    assert (again.head, again.order, again.norm_nodes) == (head, law.order, law.norm_nodes)
    x = np.geomspace(1e-6, 100, 20)
    assert (again.cdf(x) == law.cdf(x)).all()
    assert repr(again) == repr(law)
    assert repr(law).startswith("MaskedFiniteLaw(Attention(tokens=512")


def test_causal_heads_against_draws(laws):
    head, law = laws["causal"]
    distance = mean_distance(law, head)
    assert distance < bound(head)
    # neither the head without its mask, nor the limit theorem's law, is anywhere near
    unmasked = Attention(N, D_K, BETA)
    assert mean_distance(unmasked.finite_law(), head) > 5 * distance
    assert mean_distance(unmasked.limit_law(), head) > 5 * distance


def test_rectangular_heads_against_draws(laws):
    head, law = laws["rectangular"]
    assert mean_distance(law, head) < bound(head)


@pytest.mark.parametrize(
    "head",
    [
        Attention(N, D_K, BETA, mask="causal", bias=1 / 32),
        Attention(N, D_K, BETA, mask="window:64"),
        Attention(N, D_K, BETA, mask="two-sided:96"),
    ],
    ids=["alibi", "window", "two-sided"],
)
def test_masks_against_draws(laws, head):
    law = head.finite_law(cells=CELLS)
    distance = mean_distance(law, head)
    assert distance < bound(head)
    assert between(law, laws["causal"][1]) > 0.05


def test_everything_visible_is_no_mask():
    head = Attention(N, D_K, BETA, mask=lambda x, y: x + y > -1)
    law, plain = head.finite_law(cells=CELLS), Attention(N, D_K, BETA).finite_law()
    assert between(law, plain) < 0.003
    assert len(law.support()) == len(plain.support()) == 2
    np.testing.assert_allclose(law.support(), plain.support(), rtol=0.005)
    assert law.moment(1) == pytest.approx(plain.moment(1), rel=1e-3)


def test_blocks_are_heads_of_their_own():
    """Four blocks of 128 keys: √512 A⊥ consists of four heads √128 A⊥ times two. The support has a narrow gap."""
    head = Attention(N, D_K, BETA, mask="block:128")
    law = head.finite_law(cells=CELLS)
    assert mean_distance(law, head) < bound(head, 128)
    single = Attention(128, D_K, BETA).finite_law()
    x = single.ppf(np.linspace(0, 1, 2001))
    assert (
        np.abs(law.cdf(4 * x) - single.cdf(x)).max() < 0.015
    )  # cores of rank one in the norms, where D_1 is a quarter
    assert len(law.support()) == len(single.support()) == 2
    assert law.support()[-1][1] == pytest.approx(4 * single.support()[-1][1], rel=0.01)


def test_width_and_given_weights():
    head = Attention(N, D_K, BETA, mask="causal", width=256)
    law = head.finite_law(cells=CELLS)
    assert mean_distance(law, head) < bound(head)
    rng = np.random.default_rng(5)
    W_Q, W_K = rng.standard_normal((2, 256, D_K)) / 16
    unscaled = Attention.from_weights(W_Q, W_K, tokens=N, mask="causal")
    scale = unscaled.weights.scale * BETA / unscaled.beta
    given = Attention.from_weights(W_Q, W_K, tokens=N, scale=scale, mask="causal")
    own = given.finite_law(cells=CELLS)
    assert mean_distance(own, given) < bound(given)
    # drawn weights have the expected spectrum up to O(1/d_k)
    assert between(own, law) < 0.01


@pytest.mark.parametrize("cells", [23, 1, 0, -1, 24.5, "a", True])
def test_few_cells_are_refused(cells):
    with pytest.raises(ParameterError, match="cells must be an integer"):
        Attention(100, D_K, BETA, mask="causal").finite_law(cells=cells)


def test_one_key_a_row_has_no_law():
    with pytest.raises(ParameterError, match="more than one key"):
        Attention(tokens=64, head_dim=16, mask="window:1").finite_law()


@pytest.mark.parametrize(("tokens", "keys"), [(2, 2), (3, 40), (5, 9), (7, 7), (40, 3)])
def test_no_more_cells_than_tokens(tokens, keys):
    """Fewer than eight tokens or keys: cells of at least one, as many of rows as of columns."""
    mask = np.tri(tokens, keys, max(0, keys - tokens), dtype=bool) | (np.arange(keys) == 0)
    visibility = Attention(tokens, 4, BETA, keys=keys, mask=mask).visibility
    rows, columns = _edges(visibility, 32)
    assert len(rows) == len(columns) == min(8, tokens, keys) + 1
    for edges, end in ((rows, tokens), (columns, keys)):
        assert (edges[0], edges[-1]) == (0, end)
        assert (np.diff(edges) >= 1).all()


def test_few_tokens():
    """Mean of the law of five queries on nine keys against 400 draws, to what 1/k terms are worth there, a tenth."""
    head = Attention(5, 16, BETA, keys=9, mask="causal")
    drawn = np.mean([head.spectrum(seed).mean() for seed in range(400)])
    assert head.finite_law().mean() == pytest.approx(drawn, rel=0.1)
