"""Entries of tokens and weights: their moments, and heads that draw from them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gequiv import Attention, ParameterError
from gequiv.attention import ensemble
from gequiv.attention.entries import draw_entries, normalised_entries

KURTOSIS = {"gaussian": 3.0, "rademacher": 1.0, "uniform": 1.8, "student:12": 3 + 6 / 8}
EIGHTH = {"gaussian": 105.0, "rademacher": 1.0, "uniform": 81 / 9, "student:12": 105 * 10**4 / (10 * 8 * 6 * 4)}
"""E x⁸; of Student's t 105 (ν - 2)⁴/((ν - 2)(ν - 4)(ν - 6)(ν - 8))."""


@pytest.mark.parametrize("kind", KURTOSIS)
def test_moments(kind):
    """Mean, variance and fourth moment within five standard errors, which fails by chance once in 10⁵."""
    count = 200_000
    x = draw_entries(kind, (count // 100, 100), np.random.default_rng(1))
    assert x.shape == (count // 100, 100)
    assert x.dtype == np.float64
    fourth = KURTOSIS[kind]
    for power, expected, variance in ((1, 0.0, 1.0), (2, 1.0, fourth - 1), (4, fourth, EIGHTH[kind] - fourth**2)):
        assert np.mean(x**power) == pytest.approx(expected, abs=5 * math.sqrt(variance / count) + 1e-12), power


def test_supports():
    rng = np.random.default_rng(2)
    assert set(draw_entries("rademacher", (500,), rng)) == {-1.0, 1.0}
    assert np.abs(draw_entries("uniform", (500,), rng)).max() < math.sqrt(3)


def test_student_quantile():
    """ν = 3, of infinite fourth moment: P(|t| < 0.764892 ) = 1/2 for t of scale one, five standard errors."""
    count = 40_000
    x = draw_entries("student:3", (count,), np.random.default_rng(3)) * math.sqrt(3)
    assert np.mean(np.abs(x) < 0.764892328) == pytest.approx(0.5, abs=5 * math.sqrt(0.25 / count))


def test_gaussian_entries_are_numpys():
    head = Attention(tokens=12, head_dim=5, beta=1.0)
    rng = np.random.default_rng(4)
    queries, keys = rng.standard_normal((12, 5)), rng.standard_normal((12, 5))
    left, right = ensemble.draw_factors(head, np.random.default_rng(4))
    np.testing.assert_allclose(left, queries / math.sqrt(5), rtol=1e-15)
    np.testing.assert_array_equal(right, keys)
    shared = Attention(tokens=12, head_dim=5, beta=1.0, width=7)
    rng = np.random.default_rng(4)
    x, w_q, w_k = rng.standard_normal((12, 7)), rng.standard_normal((7, 5)), rng.standard_normal((7, 5))
    left, right = ensemble.draw_factors(shared, np.random.default_rng(4))
    np.testing.assert_allclose(left @ right.T, x @ w_q @ w_k.T @ x.T / (7 * math.sqrt(5)), atol=1e-13)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("Gaussian", "gaussian"),
        (" rademacher ", "rademacher"),
        ("student:5.0", "student:5"),
        ("student:2.5", "student:2.5"),
    ],
)
def test_names_are_normalised(given, kept):
    assert normalised_entries("weight_entries", given) == kept
    head = Attention(tokens=6, head_dim=2, weight_entries=given)
    assert head.weight_entries == kept
    assert head == Attention(tokens=6, head_dim=2, weight_entries=kept)


@pytest.mark.parametrize(
    "bad", ["normal", "student", "student:2", "student:x", "student:inf", "student:nan", "", 3, None]
)
def test_unknown_entries_are_refused(bad):
    with pytest.raises(ParameterError, match=r'weight_entries must be "gaussian".*above 2; got'):
        Attention(tokens=6, head_dim=2, weight_entries=bad)


def test_entries_need_what_they_are_entries_of():
    with pytest.raises(ParameterError, match=r"token_entries must be .gaussian. without a width.*got 'rademacher'"):
        Attention(tokens=6, head_dim=2, token_entries="rademacher")
    rng = np.random.default_rng(5)
    given = Attention.from_weights(rng.standard_normal((4, 2)), rng.standard_normal((4, 2)), tokens=6)
    for name in ("token_entries", "weight_entries"):
        parameters = {"head_dim": 2, "beta": given.beta, "width": 4, "weights": given.weights, name: "uniform"}
        with pytest.raises(ParameterError, match=f'{name} must be "gaussian" with given weights'):
            Attention(6, **parameters)


@pytest.mark.parametrize("keys", [None, 30])
def test_scores_have_variance_one(keys):
    """Within five standard errors and O(1/n) of shared tokens, one set for queries and keys."""
    head = Attention(40, 10, 1.0, width=20, keys=keys, token_entries="uniform", weight_entries="rademacher")
    rng = np.random.default_rng(6)
    squares = [np.mean(ensemble.draw_scores(head, rng) ** 2) for _ in range(300)]
    error = np.std(squares, ddof=1) / math.sqrt(len(squares))
    assert np.mean(squares) == pytest.approx(1, abs=5 * error + (2 / 40 if keys is None else 0))


def test_rademacher_queries_of_orthonormal_tokens():
    head = Attention(tokens=20, head_dim=4, weight_entries="rademacher")
    left, right = ensemble.draw_factors(head, np.random.default_rng(7))
    assert set(np.unique(np.round(left, 12))) == {-0.5, 0.5}
    assert set(np.unique(right)) == {-1.0, 1.0}
    np.testing.assert_allclose(head.sample(7).sum(axis=1), 1, rtol=1e-14)
