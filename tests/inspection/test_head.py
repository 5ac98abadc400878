"""What is measured of one matrix, against numpy on the matrix itself."""

import math

import numpy as np
import pytest

from gequiv.inspection.arrays import subject_of
from gequiv.inspection.head import balanced, measure
from gequiv.inspection.rows import examine

N, BETA = 200, 0.5


def _causal(scores):
    weights = np.where(np.tri(len(scores), dtype=bool), np.exp(scores - scores.max()), 0.0)
    return weights / weights.sum(axis=1, keepdims=True)


def _rows(matrix):
    """√i (A - Ā)_i of a causal matrix, i the number of keys."""
    keys = np.arange(1, len(matrix) + 1)[:, None]
    return np.sqrt(keys) * np.tril(matrix - 1 / keys)


@pytest.fixture(scope="module")
def attention():
    """Causal, random but for 60 late queries that look at 40 early keys, and for one query that looks at one key."""
    rng = np.random.default_rng(3)
    scores = BETA * rng.standard_normal((N, 30)) @ rng.standard_normal((30, N)) / math.sqrt(30)
    scores[np.ix_(range(130, 190), range(10, 50))] += 1.2
    scores[100, 60] += 6.0
    return _causal(scores)


def test_masked_edge_values_are_of_capped_entries(attention):
    rows = _rows(attention)
    energy = (rows**2).sum(axis=1)[15:].mean()
    cap = math.sqrt(energy / 2)
    assert (np.abs(rows) > cap).any()
    expected = np.linalg.svd(np.clip(rows, -cap, cap), compute_uv=False) ** 2
    whole = np.linalg.svd(rows, compute_uv=False) ** 2
    full, light = measure(attention, "causal"), measure(attention, "causal", head_dim=30, light=True)
    assert full.energy == pytest.approx(energy, rel=1e-12)
    np.testing.assert_allclose(full.edge_spectrum, expected, rtol=1e-8, atol=1e-10)
    for found in (full, light):
        np.testing.assert_allclose([d.value for d in found.largest], expected[: len(found.largest)], rtol=1e-8)
        assert found.largest_value == pytest.approx(whole[0], rel=1e-8)
    np.testing.assert_allclose(light.edge_spectrum, expected[: len(light.largest)], rtol=1e-8)
    np.testing.assert_allclose(balanced(attention.copy(), "causal", energy), np.clip(rows, -cap, cap), atol=1e-12)


def test_masked_directions_by_kind(attention):
    """The spread one is told with capped entries, the single entry with its own; none of them twice."""
    measured = measure(attention, "causal")
    first = measured.largest[0]
    assert first.kind != "local"
    assert set(first.queries) <= set(range(130, 190))
    assert set(first.keys) <= set(range(10, 50))
    single = measured.localised[0]
    assert (single.kind, single.queries[0], single.keys[0]) == ("local", 100, 60)
    assert single.value == pytest.approx((_rows(attention)[100] ** 2).sum(), rel=0.2)
    assert all(d.kind != "local" for d in measured.largest)
    assert all(d.kind == "local" for d in measured.localised)
    assert not any(set(d.queries) <= set(range(130, 190)) for d in measured.localised)


def test_without_a_mask_nothing_is_capped():
    rng = np.random.default_rng(5)
    weights = np.exp(BETA * rng.standard_normal((N, N)))
    weights[100, 60] = 200.0
    attention = weights / weights.sum(axis=1, keepdims=True)
    deviation = math.sqrt(N) * (attention - attention.mean(axis=0))
    expected = np.linalg.svd(deviation, compute_uv=False)[: N - 1] ** 2
    measured = measure(attention, None)
    np.testing.assert_allclose(measured.edge_spectrum, expected, rtol=1e-6, atol=1e-9)
    assert measured.largest_value == pytest.approx(expected[0], rel=1e-9)
    assert measured.localised == ()
    assert measured.largest[0].kind == "local"


def test_heads_of_one_pattern_keep_it_once():
    """A boolean array of the size of the matrix, of which a model has as many as heads."""
    n = 24
    position = np.arange(n)
    seen = (position[:, None] - position) % 3 == 0
    weights = np.random.default_rng(1).exponential(size=(2, n, n)) * seen
    subjects = [
        subject_of(0, head, examine(matrix / matrix.sum(axis=1, keepdims=True), "float64", "head"), head_dim=4)
        for head, matrix in enumerate(weights)
    ]
    np.testing.assert_array_equal(subjects[0].measured.mask.array, seen)
    assert subjects[0].measured.mask is subjects[1].measured.mask
