"""Outliers: planted directions in drawn matrices, the Perron value, the column direction."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from gequiv import Attention, CertificationError
from gequiv.attention.outliers import Outlier, find_outliers
from gequiv.dyson import Component, ProfileLaw
from tests.attention.test_finite import random_weights
from tests.dyson.test_profile import PROFILED, drawn


def resolvents_of(law):
    def resolvents(x):
        found = law.equation.solve(complex(x))
        return law.equation.rows * found.rows.real, law.equation.columns * found.columns.real

    return resolvents


def test_an_outlier_is_a_pair():
    outlier = Outlier(3.5, True, "somewhere", 2.0)
    location, visible = outlier
    assert (location, visible) == (outlier.location, outlier.visible) == outlier == (3.5, True)
    assert len(outlier) == 2
    again = pickle.loads(pickle.dumps(outlier))
    assert again == outlier
    assert (again.origin, again.strength) == ("somewhere", 2.0)
    assert repr(again) == "Outlier(location=3.5, visible=True, origin='somewhere', strength=2)"


@pytest.mark.parametrize("theta", [0.5, 0.99, 1.01, 2.0, 30.0])
@pytest.mark.parametrize("aspect", [0.4, 1.0, 3.0])
def test_spikes_of_white_noise(theta, aspect):
    """Benaych-Georges and Nadakuditi: θ > c^{1/4} leaves at (1+θ²)(c+θ²)/θ²."""
    theta *= aspect**0.25
    law = ProfileLaw([aspect], [1.0], [], 1.0)
    edge = law.support()[-1][1]
    assert edge == pytest.approx((1 + math.sqrt(aspect)) ** 2, rel=1e-12)
    n = 1000  # a constant E/√n on m × n has the singular value E √(mn)/√n = E √m
    (found,) = find_outliers(resolvents_of(law), np.array([[theta / math.sqrt(aspect * n)]]), n, law.support(), "spike")
    assert found.origin == "spike"
    if theta <= aspect**0.25:
        assert found == (edge, False)
        assert found.strength < 1
    else:
        assert found.visible
        assert found.strength > 1
        assert found.location == pytest.approx((1 + theta**2) * (aspect + theta**2) / theta**2, rel=1e-9)


@pytest.mark.parametrize("size", [0.4, 4.0])
def test_planted_in_a_profile(size):
    # two directions, one of rows and columns of its own cells, in the drawn matrix of tests.dyson.test_profile; spikes
    # fluctuate by O(1/√n): 1 % of the location for each of 8 draws, 2 % allowed for their mean of largest values
    n = 500
    E = size * np.array([[3.0, 1.0], [-1.0, 2.0], [0.5, 0.0]]) / math.sqrt(n)
    law = ProfileLaw(*PROFILED)
    edge = law.support()[-1][1]
    found = find_outliers(resolvents_of(law), E, n, law.support(), "planted")
    rng = np.random.default_rng(77)
    tops = []
    for _ in range(8):
        Y, row_cells, column_cells = drawn(PROFILED, n, rng)
        Y += E[np.ix_(row_cells, column_cells)] / math.sqrt(n)
        tops.append(np.linalg.eigvalsh(Y @ Y.T)[::-1][:3])
    tops = np.mean(tops, axis=0)
    visible = [outlier.location for outlier in found if outlier.visible]
    assert [outlier.visible for outlier in found] == sorted((o.visible for o in found), reverse=True)
    if size == 4.0:
        assert len(visible) == 2
        np.testing.assert_allclose(tops[:2], visible, rtol=0.02)
        assert tops[2] < 1.01 * edge
    else:
        assert visible == []
        assert found == [(edge, False)]
        assert tops[0] < 1.01 * edge


def test_a_direction_without_end_is_refused():
    law = ProfileLaw([1.0], [1.0], [Component([[1.0]], 0.5)], 0.5)
    with pytest.raises(CertificationError, match="part is too large"):
        find_outliers(resolvents_of(law), np.array([[1e9]]), 100, law.support(), "planted")


@pytest.mark.parametrize("head", [Attention(1000, 64, 0.5), Attention(1000, 500, 1.0), Attention(4000, 400, 0.7)])
def test_perron_value_against_the_expansion(head):
    # n + e^{β²} - 1 + n β⁴/(2 d_k), next orders being β²/d_k and 1/n of the excess
    excess = math.expm1(head.beta**2) + head.columns * head.beta**4 / (2 * head.head_dim)
    perron = head.finite_law().outliers()[0]
    assert perron.origin == "Perron value of A"
    assert perron.visible
    assert perron.location - head.columns == pytest.approx(excess, rel=0.02 if head.beta < 1 else 0.04)


@pytest.mark.parametrize(
    "head",
    [Attention(600, 32, 0.5), Attention(400, 64, 1.0), Attention(300, 32, 0.7, keys=500), random_weights(tokens=400)],
)
def test_perron_value_of_draws(head):
    # six draws, whose excess over `tokens` scatters; five standard errors and 5 % for orders left out
    predicted = next(o for o in head.finite_law().outliers() if o.origin == "Perron value of A").location - head.tokens
    excess = np.array([head.spectrum(seed, centered=False)[-1] for seed in range(6)]) - head.tokens
    error = excess.std(ddof=1) / math.sqrt(excess.size)
    assert abs(excess.mean() - predicted) < 5 * error + 0.05 * predicted
    assert error < 0.1 * predicted


@pytest.mark.parametrize(("tokens", "head_dim"), [(600, 64)])
def test_the_column_direction_in_a_gap(tokens, head_dim):
    # A narrow head has a gap, and its key norms push one value into it, which goes when the columns are centred. Six
    # draws: it scatters by 5 %, and is held to 5 standard errors of its mean.
    head = Attention(tokens, head_dim, 0.5)
    law = head.finite_law()
    (_, low), (high, _) = law.support()
    outlier = law.outliers()[1]
    assert outlier.origin == "column direction"
    assert outlier.visible
    assert low < outlier.location < high
    seen = []
    for seed in range(6):
        A = head.sample(seed)
        values, left = (np.linalg.eigvalsh(tokens * (B @ B.T)) for B in (A - 1 / tokens, A - A.mean(axis=0)))
        # the two bulks next to the gap spill into it by their edges' fluctuations
        inside = [v[(v > 1.5 * low) & (v < 0.8 * high)] for v in (values, left)]
        assert inside[1].size == 0
        assert inside[0].size == 1
        seen.append(inside[0][0])
    error = np.std(seen, ddof=1) / math.sqrt(len(seen))
    assert abs(np.mean(seen) - outlier.location) < 5 * error
    assert error < 0.03 * outlier.location


def test_the_column_direction_of_wide_heads_stays_inside():
    head = Attention(600, 300, 0.5)
    law = head.finite_law()
    outlier = law.outliers()[1]
    edge = law.support()[-1][1]
    assert outlier == (edge, False)
    assert (outlier.origin, outlier.strength < 1) == ("column direction", True)
    # the largest value is at the edge, Tracy–Widom: mean -1.2, deviation 1.3; six deviations either way, and 3 % for
    # what the row energies add
    tops = np.array([head.spectrum(seed)[-1] for seed in range(3)])
    assert (tops < edge + 6 * 1.3 * law.edge_scale() + 0.03 * edge).all()
    assert (tops > edge - (1.2 + 6 * 1.3) * law.edge_scale() - 0.03 * edge).all()


def test_the_column_direction_of_a_mean_is_seen():
    head = random_weights(mean=0.6, tokens=700)
    law = head.finite_law()
    outlier = law.outliers()[1]
    assert outlier.origin == "column direction"
    assert outlier.visible
    assert outlier.location > 3 * law.support()[-1][1]
    assert outlier.strength > 1
    spectra = [head.spectrum(seed) for seed in range(6)]
    tops = np.array([s[-1] for s in spectra])
    # Σ(e^{b}-1)² over 700 keys scatters by about √(2/700) (1 + ...) ≈ 7 %: five errors of the mean of six, about 15 %
    error = tops.std(ddof=1) / math.sqrt(tops.size)
    assert abs(tops.mean() - outlier.location) < 5 * error
    assert error < 0.05 * outlier.location
    assert max(s[-2] for s in spectra) < 1.1 * law.support()[-1][1]  # one direction, not two
