import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gequiv.inspection.directions import LARGEST, column_direction, largest_directions, largest_pairs

ROWS, KEYS = 100, 140


def _noise(rng, rows=ROWS, keys=KEYS):
    """Of largest singular value near 1.8."""
    return rng.standard_normal((rows, keys)) / math.sqrt(keys)


def _unit(values):
    return values / np.linalg.norm(values)


def _spike(size, places, weights):
    vector = np.zeros(size)
    vector[list(places)] = weights
    return _unit(vector)


@pytest.mark.parametrize("shape", [(100, 140), (140, 100), (80, 80), (30, 50), (12, 9), (9, 4), (2, 2)])
def test_against_svd(shape):
    """Values and vectors of numpy's SVD, by both ways of eigenvalues (up to 64 and more), in descending order."""
    matrix = _noise(np.random.default_rng(shape[0]), *shape)
    left, singular, right = np.linalg.svd(matrix, full_matrices=False)
    found = largest_directions(matrix)
    assert len(found) == min(LARGEST, min(shape) - 1)
    np.testing.assert_allclose([d.value for d in found], singular[: len(found)] ** 2, rtol=1e-9)
    for k, direction in enumerate(found):
        for tokens, weights, spread, vector in (
            (direction.keys, direction.key_weights, direction.spread_keys, right[k]),
            (direction.queries, direction.query_weights, direction.spread_queries, left[:, k]),
        ):
            assert spread == pytest.approx(1 / (vector**4).sum(), rel=1e-5)
            assert tokens == tuple(np.argsort(-np.abs(vector))[:5])
            np.testing.assert_allclose(np.abs(weights), np.abs(vector[list(tokens)]), rtol=1e-5)
        # the largest key weight is positive, and the two vectors have the sign that the matrix gives them
        assert direction.key_weights[0] > 0
        row, key = direction.queries[0], direction.keys[0]
        assert direction.query_weights[0] * direction.key_weights[0] == pytest.approx(left[row, k] * right[k, key])


@pytest.mark.parametrize("transposed", [False, True])
def test_planted_kinds(transposed):
    """θ u vᵀ is found at θ² + 1 + c + c/θ² of white noise (Benaych-Georges, Nadakuditi 2012), with its kind."""
    rng = np.random.default_rng(4)
    rows, keys = (KEYS, ROWS) if transposed else (ROWS, KEYS)
    noise = rng.standard_normal((rows, keys)) / math.sqrt(keys)
    aspect, strength = rows / keys, 12.0
    spread_u, spread_v = (_unit(rng.standard_normal(size)) for size in (rows, keys))
    constant = np.full(rows, 1 / math.sqrt(rows))
    local = _spike(keys, [3, 70, 9], [3.0, 2.0, 1.0])
    for u, v, kind in (
        (spread_u, spread_v, "direction"),
        (constant, spread_v, "column"),
        (constant, local, "column"),
        (spread_u, local, "local"),
        (_spike(rows, [11], [1.0]), spread_v, "local"),
    ):
        first, second, *_ = largest_directions(noise + strength * np.outer(u, v))
        # fluctuations of order 2θ/√keys: 5 standard deviations
        value = (strength**2 + 1) * (strength**2 + aspect) / strength**2
        assert first.value == pytest.approx(value, abs=5 * 2 * strength / math.sqrt(keys))
        assert first.kind == kind
        assert second.value < 1.1 * (1 + math.sqrt(aspect)) ** 2
        for vector, tokens, weights, spread in (
            (u, first.queries, first.query_weights, first.spread_queries),
            (v, first.keys, first.key_weights, first.spread_keys),
        ):
            sign = math.copysign(1, v[np.argmax(np.abs(v))])
            np.testing.assert_allclose(weights, sign * vector[list(tokens)], atol=5 / (strength * math.sqrt(keys)))
            assert spread == pytest.approx(1 / (vector**4).sum(), rel=0.15)
        if kind == "local" and v is local:
            assert first.keys[:3] == (3, 70, 9)


def test_signs_tell_who_looks_where():
    """Queries 5, 6 look at keys 20, 21; queries 40, 41 look away from them."""
    u = _spike(ROWS, [5, 6, 40, 41], [3, 2, -3, -2])
    v = _spike(KEYS, [20, 21], [2, 1])
    for sign in (1, -1):
        first = largest_directions(1e-3 * _noise(np.random.default_rng(2)) + np.outer(sign * u, sign * v))[0]
        assert first.keys[:2] == (20, 21)
        assert first.key_weights[0] == pytest.approx(2 / math.sqrt(5), abs=1e-2)
        signs = dict(zip(first.queries, np.sign(first.query_weights), strict=True))
        assert {k: signs[k] for k in (5, 6, 40, 41)} == {5: 1, 6: 1, 40: -1, 41: -1}


def test_exact_low_rank():
    """Values that are zero to rounding are no directions."""
    rng = np.random.default_rng(6)
    for rows, keys in ((30, 40), (100, 90)):
        matrix = rng.standard_normal((rows, 3)) @ rng.standard_normal((3, keys))
        found = largest_directions(matrix)
        np.testing.assert_allclose([d.value for d in found], np.linalg.svd(matrix)[1][:3] ** 2, rtol=1e-9)
    assert largest_directions(np.zeros((20, 20))) == ()
    assert largest_directions(np.ones((1, 20))) == ()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 30), st.integers(2, 30), st.floats(1e-3, 1e3))
def test_column_direction(seed, rows, keys, size):
    """Value, weights and kind of 1 columnᵀ are those of its SVD."""
    column = size * np.random.default_rng(seed).standard_normal(keys)
    found = column_direction(column, rows)
    whole = np.outer(np.ones(rows), column)
    assert found.value == pytest.approx(np.linalg.norm(whole, 2) ** 2, rel=1e-9)
    assert found.kind == "column"
    assert found.spread_queries == pytest.approx(rows)
    # the sign is that of the key of the largest weight
    assert found.keys[0] == np.argmax(np.abs(column))
    product = found.query_weights[0] * np.array(found.key_weights) * math.sqrt(found.value)
    np.testing.assert_allclose(product, column[list(found.keys)], rtol=1e-9)


def test_no_column_direction():
    assert column_direction(np.zeros(7), 5) is None


def test_share_of_one_pair_in_others():
    """(u'u)²(v'v)²: one of a matrix in itself, cos⁴ of the angle in a matrix with turned vectors, zero in none."""
    rng = np.random.default_rng(8)
    u, v = _unit(rng.standard_normal(ROWS)), _unit(rng.standard_normal(KEYS))
    other = _unit(rng.standard_normal(ROWS))
    across = _unit(other - (other @ u) * u)
    pairs = largest_pairs(3 * np.outer(u, v) + 1e-4 * _noise(rng), 2)
    np.testing.assert_allclose(pairs.found_in(pairs), 1, rtol=1e-9)
    turned = largest_pairs(np.outer(0.8 * u + 0.6 * across, v), 1)
    assert turned.found_in(pairs)[0] == pytest.approx(0.64, abs=1e-3)
    assert turned.found_in(pairs.kept(np.array([1])))[0] < 0.1
    none = largest_pairs(np.zeros((ROWS, KEYS)))
    assert (none.directions(), none.found_in(pairs).size, turned.found_in(none).tolist()) == ((), 0, [0.0])
