"""Choosing β: entropies against closed cases, other routes and draws; the spectrum against draws; schedules."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import dblquad, quad
from scipy.stats import gamma, norm

import gequiv
from gequiv.attention import temperature as module
from gequiv.attention.freezing import log_normaliser_mean, participation
from gequiv.attention.temperature import (
    LINEAR_SHARE,
    SCHEDULES,
    context_sweep,
    largest_entropy,
    row_concentration,
    row_entropy,
    schedule,
    spectrum,
    temperature,
)
from gequiv.errors import CertificationError, ParameterError

SIGMAS = 5.0  # two-sided significance 6e-7 for each comparison with draws; the seeds are fixed


# -- rows -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("head_dim", "beta"), [(20, 1.2)])
def test_entropy_of_two_keys(head_dim, beta):
    # A = (p, 1 - p), log p/(1 - p) ~ N(0, 2β²r)
    def entropy(g, r):
        u = beta * math.sqrt(2 * r) * g
        p = 1 / (1 + math.exp(-u))
        return -p * math.log(p) - (1 - p) * math.log1p(-p) if abs(u) < 30 else 0.0

    law = gamma(head_dim / 2, scale=2 / head_dim)
    expected, _ = dblquad(
        lambda g, r: 2 * entropy(g, r) * norm.pdf(g) * law.pdf(r), law.ppf(1e-10), law.isf(1e-10), 0, 9, epsabs=1e-9
    )
    assert row_entropy(gequiv.Attention(2, head_dim, beta)) == pytest.approx(expected, abs=3e-7)


@pytest.mark.parametrize(("keys", "head_dim", "beta"), [(50, 64, 0.7), (4096, 128, 1.5), (10**6, 64, 4.0)])
def test_entropy_by_another_route(keys, head_dim, beta):
    # E r Y₁(β√r) is the mean of Y₁ over the size-biased norm, χ² of two more degrees of freedom
    y = participation(keys, beta * math.sqrt(1 + 2 / head_dim), head_dim=head_dim + 2)
    level = math.log(keys) + log_normaliser_mean(keys, beta, head_dim=head_dim)
    head = gequiv.Attention(2, head_dim, beta, keys=keys)
    assert row_entropy(head) == pytest.approx(level - beta**2 / 2 + beta**2 * y, rel=3e-6)
    # and H = L - β L', the derivative by differences
    step = 1e-3
    ends = [log_normaliser_mean(keys, beta * math.exp(t), head_dim=head_dim) for t in (-step, step)]
    slope = beta**2 + (ends[1] - ends[0]) / (2 * step)
    assert row_entropy(head) == pytest.approx(level + beta**2 / 2 - slope, abs=3e-5)


def test_entropy_of_many_keys():
    # log n - H = β²/2 + (q - 1)/(2n) - β² q/n + O(1/n²), q = e^{β²}, by the expansions of both means
    n, beta = 10**6, 1.0
    q = math.exp(beta**2)
    head = gequiv.Attention(2, 10**8, beta, keys=n)
    assert math.log(n) - row_entropy(head) == pytest.approx(beta**2 / 2 + (q - 1) / (2 * n) - beta**2 * q / n, abs=1e-7)


MASKS = {"none": None, "causal": "causal", "window": "window:7", "two-sided": "two-sided:9", "block": "block:10"}


@pytest.mark.parametrize("name", MASKS)
def test_entropy_under_masks(name):
    # row by row, with the norms averaged over by the other route
    n, head_dim, beta = 28, 32, 0.9
    head = gequiv.Attention(n, head_dim, beta, mask=MASKS[name])
    visibility = head.visibility
    counts = np.full(n, n) if visibility is None else visibility.visible(0, n).sum(axis=1)

    def row(k):
        if k == 1:
            return 0.0
        y = participation(k, beta * math.sqrt(1 + 2 / head_dim), head_dim=head_dim + 2)
        return math.log(k) - beta**2 / 2 + log_normaliser_mean(k, beta, head_dim=head_dim) + beta**2 * y

    table = {k: row(int(k)) for k in set(counts)}
    assert row_entropy(head) == pytest.approx(np.mean([table[k] for k in counts]), rel=2e-6)
    assert largest_entropy(head) == pytest.approx(np.log(counts).mean(), rel=1e-13)
    shares = {k: participation(int(k), beta, 2, head_dim=head_dim) for k in set(counts)}
    assert row_concentration(head) == pytest.approx(np.mean([shares[k] for k in counts]), rel=5e-6)


def test_named_masks_count_as_arrays():
    for mask, keys in [("causal", None), ("causal", 130), ("window:20", None), ("window:20", 130)]:
        head = gequiv.Attention(80, 32, 0.8, keys=keys, mask=mask)
        own = gequiv.Attention(80, 32, 0.8, keys=keys, mask=head.visibility.visible(0, 80))
        assert row_entropy(head) == pytest.approx(row_entropy(own), rel=1e-12)


@pytest.mark.parametrize(("mask", "beta"), [(None, 1.0), (None, 2.5), ("causal", 1.0), ("window:40", 1.5)])
def test_draws_of_rows(mask, beta):
    head = gequiv.Attention(250, 16, beta, mask=mask)
    entropies, shares = [], []
    for seed in range(16):
        a = head.sample(rng=seed)
        entropies.append(-(a * np.log(np.where(a > 0, a, 1))).sum(axis=1).mean())
        shares.append(((a**4).sum(axis=1) / (a**2).sum(axis=1) ** 2).mean())
    for drawn, expected in [(entropies, row_entropy(head)), (shares, row_concentration(head))]:
        assert abs(np.mean(drawn) - expected) < SIGMAS * np.std(drawn, ddof=1) / math.sqrt(len(drawn))


@settings(max_examples=4, deadline=None)
@given(st.integers(2, 10**6), st.integers(16, 256), st.floats(0.01, 4), st.floats(1.05, 1.5))
def test_order(keys, head_dim, beta, factor):
    heads = [gequiv.Attention(2, head_dim, b, keys=keys) for b in (beta, factor * beta)]
    entropies = [row_entropy(head) for head in heads]
    assert 0 < entropies[1] < entropies[0] < math.log(keys)
    shares = [row_concentration(head) for head in heads]
    assert 1 / keys < shares[0] < shares[1] < 1


# -- β from rows ----------------------------------------------------------------------------------------


def test_one_entropy_in_three_ways():
    by = temperature(4096, 128, normalised_entropy=0.9)
    entropy = 0.9 * math.log(4096)
    assert temperature(4096, 128, entropy=entropy).beta == pytest.approx(by.beta, rel=1e-6)
    assert temperature(4096, 128, perplexity=math.exp(entropy)).beta == pytest.approx(by.beta, rel=1e-6)
    assert row_entropy(by.head) == pytest.approx(entropy, abs=1e-6)
    assert by.achieved == pytest.approx(0.9, abs=1e-6)
    assert by.scale == by.beta / math.sqrt(128)
    assert by.gamma == by.beta**2 / math.log(4096)
    assert by.wanted == ("normalised_entropy", 0.9)


@pytest.mark.parametrize(
    ("tokens", "share", "mask"), [(1000, 0.02, None), (1000, 0.5, None), (64, 0.05, None), (1000, 0.05, "causal")]
)
def test_linear(tokens, share, mask):
    found = temperature(tokens, 64, linear=share, mask=mask)
    assert row_concentration(found.head) == pytest.approx(share, rel=2e-6)
    if mask is None:
        assert participation(tokens, found.beta, 2, head_dim=64) == pytest.approx(share, rel=2e-6)


def test_the_linear_regime_tends_to_its_limit():
    # β² at a small share over ½ log n rises towards one, slowly
    sizes = [10**2, 10**4, 10**6, 10**9]
    found = [temperature(2, 10**6, linear=0.02, keys=n) for n in sizes]
    ratios = [(one.beta / one.linear_limit) ** 2 for one in found]
    assert all(a < b < 1 for a, b in itertools.pairwise(ratios))
    assert found[0].linear_limit == math.sqrt(math.log(100) / 2)


@pytest.mark.parametrize(
    ("tokens", "head_dim", "share", "mask"),
    [
        (8, 16, 0.7, None),
        (10**5, 256, 0.4, None),
        (2048, 64, 0.9999, None),
        (8, 16, 0.9, "causal"),
        (10**5, 64, 0.97, "causal"),
    ],
)
def test_round_trip(tokens, head_dim, share, mask):
    found = temperature(tokens, head_dim, normalised_entropy=share, mask=mask)
    assert row_entropy(found.head) == pytest.approx(share * largest_entropy(found.head), abs=2e-6)


def test_predicted_and_to_dict():
    found = temperature(300, 150, perplexity=200)
    predicted = found.predicted()
    assert predicted["perplexity"] == pytest.approx(200, rel=1e-6)
    assert predicted["entropy"] == pytest.approx(math.log(200), rel=1e-6)
    told = spectrum(found.head)
    assert predicted["spectral_gap"] == told.spectral_gap == 1 - told.second / told.largest
    assert predicted["effective_rank"] == told.effective_rank
    assert found.to_dict()["wanted"] == {"name": "perplexity", "value": 200.0}
    assert found.to_dict()["keys"] == 300
    masked = temperature(300, 150, perplexity=100, mask="causal")
    assert masked.predicted()["spectral_gap"] is None
    assert masked.to_dict()["mask"] == "causal"
    own = temperature(300, 150, perplexity=100, mask=np.tri(300, dtype=bool))
    assert own.beta == pytest.approx(masked.beta, rel=1e-9)
    assert own.to_dict()["mask"] == "own"
    cold = temperature(300, 150, perplexity=5)
    assert cold.predicted()["effective_rank"] is None  # beyond the linear regime


# -- spectrum -------------------------------------------------------------------------------------------


def drawn_spectrum(head, draws):
    ranks, gaps, largest, second = [], [], [], []
    for seed in range(draws):
        s = np.linalg.svd(head.sample(rng=seed), compute_uv=False)
        p = s[s > 0] / s.sum()
        ranks.append(math.exp(-(p * np.log(p)).sum()))
        gaps.append(1 - s[1] / s[0])
        largest.append(s[0])
        second.append(s[1])
    return [np.array(values) for values in (ranks, gaps, largest, second)]


@pytest.mark.parametrize(
    ("tokens", "keys", "head_dim", "beta"), [(500, 500, 250, 0.8), (500, 500, 40, 0.4), (300, 600, 150, 0.6)]
)
def test_spectrum_against_draws(tokens, keys, head_dim, beta):
    head = gequiv.Attention(tokens, head_dim, beta, keys=keys)
    told = spectrum(head)
    ranks, gaps, largest, second = drawn_spectrum(head, 6)
    # beyond the noise of draws the law, a model, is off by a per cent, a value at the edge by a fraction of its scale
    for drawn, expected, share in [
        (ranks, told.effective_rank, 0.012),
        (gaps, told.spectral_gap, 0.004),
        (largest, told.largest, 5e-4),
        (second, told.second, 0.015),
    ]:
        noise = SIGMAS * drawn.std(ddof=1) / math.sqrt(drawn.size)
        assert abs(drawn.mean() - expected) < noise + share * expected
    assert told.second < told.edge
    assert list(told.quantiles) == sorted(told.quantiles)


def test_effective_rank_of_a_known_bulk():
    # singular values of a quarter circle on [0, 2/√n], and a Perron value one: E s = 8/(3π), E s log s by quadrature
    n = 700
    context = mpmath.MPContext()
    density = lambda s: context.sqrt(4 - s * s) / context.pi  # noqa: E731
    mean = context.quad(lambda s: s * density(s), [0, 2])
    logs = context.quad(lambda s: s * context.log(s) * density(s), [0, 1, 2])
    root = context.sqrt(n)
    total = 1 + (n - 1) * mean / root
    sum_of_logs = (n - 1) * (logs - mean * context.log(root)) / root
    expected = float(total * context.exp(-sum_of_logs / total))
    told = module._summary(gequiv.MarchenkoPastur(1), (n, n), n, 4.0, 3.9)
    assert told.effective_rank == pytest.approx(expected, rel=1e-5)
    assert told.largest == 1
    assert told.spectral_gap == pytest.approx(1 - math.sqrt(3.9 / n), rel=1e-13)


@pytest.mark.parametrize(("name", "value"), [("spectral_gap", 0.85), ("effective_rank", 100.0)])
def test_beta_of_a_spectrum(name, value, monkeypatch):
    calls = []
    solve = module.spectrum
    monkeypatch.setattr(module, "spectrum", lambda head: calls.append(head) or solve(head))
    found = temperature(300, 300, **{name: value})
    assert len(calls) <= 8  # laws solved
    assert getattr(spectrum(found.head), name) == pytest.approx(found.achieved, rel=1e-12)
    assert found.achieved == pytest.approx(value, rel=1e-3)
    ranks, gaps, *_ = drawn_spectrum(found.head, 4)
    drawn = gaps if name == "spectral_gap" else ranks
    noise = SIGMAS * drawn.std(ddof=1) / math.sqrt(drawn.size)
    assert abs(drawn.mean() - value) < noise + 0.012 * value


# -- refusals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: temperature(100, 64), "exactly one of entropy, .* must be given; got none"),
        (lambda: temperature(100, 64, entropy=1, linear=0.1), "got entropy and linear"),
        (lambda: temperature(100, 64, entropy=5.0), r"entropy must be between 0\.\d+ and 4\.60517, which inverse"),
        (lambda: temperature(100, 64, entropy=0.01), "entropy must be between"),
        (lambda: temperature(100, 64, normalised_entropy=1.0), "normalised_entropy must be between"),
        (lambda: temperature(100, 64, perplexity=0.5), "perplexity must be between"),
        (lambda: temperature(100, 64, linear=0.001), r"linear must be between 0\.01\d* and 0\.\d+, which"),
        (lambda: temperature(100, 64, linear=True), "linear must be a finite real number"),
        (lambda: temperature(100, 64, spectral_gap=1.5), "spectral_gap must be a real number between 0 and 1"),
        (lambda: temperature(300, 300, spectral_gap=0.1), r"spectral_gap must be between 0\.\d+ and 0\.99\d+, which"),
        (lambda: temperature(300, 150, effective_rank=1.0), "effective_rank must be a real number between 1 and 300"),
        (lambda: temperature(300, 300, effective_rank=299.0), "effective_rank must be between"),
        (lambda: temperature(100, 64, effective_rank=20, mask="causal"), "mask must be None with effective_rank"),
        (lambda: temperature(1, 64, entropy=1.0), "tokens must be an integer of at least 2"),
        (lambda: row_entropy(gequiv.Attention(9, 4, width=20)), "width must be None: rows are predicted"),
        (lambda: row_concentration(gequiv.Attention(9, 4, bias=0.1)), "bias must be None"),
        (lambda: row_entropy(gequiv.Attention(9, 64, 11.0)), "beta must be at most 10"),
        (lambda: spectrum(gequiv.Attention(90, 64, mask="causal")), "mask must be None"),
        (lambda: schedule("log", 10, reference=5), "schedule must be one of 'constant'"),
        (lambda: schedule("ssmax", [10, 1], reference=5), "tokens must be finite numbers above 1"),
        (lambda: schedule("ssmax", 10, reference=1), "reference must be a finite real number above 1"),
        (lambda: schedule("ssmax", 10, beta=0, reference=5), "beta must be a finite real number above 0"),
        (lambda: context_sweep(8, [], "ssmax", reference=5), "lengths must be a sequence"),
        (lambda: context_sweep(8, "512", "ssmax", reference=5), "lengths must be a sequence"),
        (lambda: context_sweep(8, [1.5], "ssmax", reference=5), "lengths must be an integer"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ParameterError, match=message):
        call()


def test_what_is_not_certain_is_refused(monkeypatch):
    with pytest.raises(CertificationError, match="try a larger head_dim"):
        row_entropy(gequiv.Attention(50, 1, 3.0))
    with pytest.raises(CertificationError, match="spread too far"):
        row_entropy(gequiv.Attention(50, 1, 9.0))
    monkeypatch.setattr(module, "_LEVELS", ((2, 2), (3, 3)))
    with pytest.raises(CertificationError, match="not certain to six digits"):
        row_entropy(gequiv.Attention(311, 16, 1.0, mask="causal"))


def test_a_property_that_jumps_is_refused(monkeypatch):
    told = module.Spectrum(1.0, 0.1, 0.1, (0.0,) * 5, 0.9, 50.0)

    def jumping(tokens, keys, head_dim, beta):
        return told if beta < 0.4 else module.Spectrum(1.0, 0.2, 0.2, (0.0,) * 5, 0.8, 80.0)

    monkeypatch.setattr(module, "_spectrum", jumping)
    with pytest.raises(CertificationError, match=r"no inverse temperature has spectral_gap=0\.85"):
        temperature(400, 200, spectral_gap=0.85)


# -- schedules ------------------------------------------------------------------------------------------


def test_schedules():
    n = np.array([512, 4096, 32768])
    log = np.log(n) / math.log(4096)
    expected = {
        "constant": [1, 1, 1],
        "sqrt-log": np.sqrt(log),
        "ssmax": log,
        "qwen": [1, 1, 1.25],
        "swan": [1, 1, 1.25],
        "yarn": [1, 1, (1 + 0.1 * math.log(8)) ** 2],
    }
    assert set(expected) == set(SCHEDULES)
    for name, factors in expected.items():
        np.testing.assert_allclose(schedule(name, n, beta=1.7, reference=4096), 1.7 * np.array(factors), rtol=1e-14)
        assert schedule(name, 4096, beta=0.3, reference=4096) == 0.3
        assert isinstance(schedule(name, 100, reference=4096), float)
    assert schedule("ssmax", [[10, 20]], reference=10).shape == (1, 2)


def test_sweep():
    sweep = context_sweep(300, [200, 300], "ssmax", beta=0.5, reference=200)
    assert [point.tokens for point in sweep] == [200, 300]
    for point in sweep:
        head = gequiv.Attention(point.tokens, 300, point.beta)
        assert point.beta == schedule("ssmax", point.tokens, beta=0.5, reference=200)
        assert point.entropy == row_entropy(head)
        assert point.linear == row_concentration(head) < LINEAR_SHARE
        assert point.spectrum == spectrum(head)
        assert point.to_dict()["perplexity"] == math.exp(point.entropy)
        assert point.refusal is None
    (cold,) = context_sweep(150, [200], "constant", beta=3.0, reference=200)
    assert cold.spectrum is None
    assert "few entries carry" in cold.refusal
    assert cold.to_dict()["effective_rank"] is None


def test_sweep_tells_why_a_law_is_refused(monkeypatch):
    def refuse(*sizes):
        raise CertificationError("no certified solution: try something else")

    monkeypatch.setattr(module, "_spectrum", refuse)
    (point,) = context_sweep(151, [201], "constant", beta=0.5, reference=200)
    assert (point.spectrum, point.refusal) == (None, "no certified solution: try something else")
    assert temperature(201, 151, perplexity=150).predicted()["spectral_gap"] is None


def test_gaussian_integration_by_parts():
    # E Σ A_j x_j = b E Σ A_j(1 - A_j), which the entropy rests on, for two keys
    b = 1.3
    share = lambda u: 1 / (1 + math.exp(-b * u))  # noqa: E731
    scale = math.sqrt(2)
    left = quad(lambda g: scale * g * (share(scale * g) - 0.5) * norm.pdf(g), -9, 9)[0]
    right = b * quad(lambda g: 2 * share(scale * g) * (1 - share(scale * g)) * norm.pdf(g), -9, 9)[0]
    assert left == pytest.approx(right, abs=1e-10)
