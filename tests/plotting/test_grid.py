"""The points at which a law is shown."""

from __future__ import annotations

import numpy as np
import pytest

import gequiv
from gequiv import laws
from gequiv.plotting import support_grid
from gequiv.plotting.grid import DensityPart, interval_masses, spread_out
from tests.simulation.heavy_tail import HeavyTail

LAWS = {
    "square": gequiv.Attention(1000, 500, 1.0).limit_law(),
    "gap": gequiv.Attention(1000, 50, 0.5).limit_law(),
    "two scales": gequiv.Attention(1000, 50, 0.02).limit_law(),
    "far interval": gequiv.Attention(1000, 1, 1.0).limit_law(),
    "atom": gequiv.Attention(1000, 300, 0.7, keys=600).limit_law(),
    "huge": gequiv.Attention(1000, 500, 26.0).limit_law(),
    "singular values": gequiv.Attention(1000, 50, 0.5).limit_law().singular_values(),
    "closed form": gequiv.MarchenkoPastur(2, 3),
    "finite size": gequiv.Attention(200, 16, 0.5).finite_law(),
    "heavy tail": HeavyTail(),
    "heavy tail, singular values": HeavyTail().singular_values(),
    "semicircle": laws.Semicircle(),
    "far from 0": laws.Semicircle(variance=1, mean=-1e6),
    "arcsine": laws.Arcsine(),
    "mirrored": laws.Affine(laws.MarchenkoPastur(1), -1, 0),
    "atoms everywhere": laws.FromDensity(
        lambda x: np.full_like(x, 0.125), [(-4, -1), (2, 3)], [(-5, 0.1), (-2, 0.2), (0, 0.1), (2.5, 0.05), (3, 0.05)]
    ),
}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize("count", [1, 2, 3, 10, 333])
def test_points_are_inside_and_finite(law, count):
    x = support_grid(law, count)
    assert x.shape == (count,)
    assert (np.diff(x) >= 0).all()
    assert all(any(low < point < high for low, high in law.support()) for point in x)
    assert np.isfinite(law.pdf(x)).all()


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_every_interval_is_seen_and_the_mass_followed(law):
    x = support_grid(law, 400)
    assert all(((x > low) & (x < high)).sum() >= 10 for low, high in law.support())
    atoms = sum(weight for _, weight in law.atoms())
    levels = np.concatenate([DensityPart(law).cdf(x), [1 - atoms]])
    assert np.diff(levels).max() < 0.02
    assert levels[0] < 0.03  # of which the heavy tail has .024 below rounding


@pytest.mark.parametrize("power", [1, 0.5])
def test_heavy_tails_are_followed_over_their_decades(power):
    law = HeavyTail() if power == 1 else HeavyTail().singular_values()
    x = support_grid(law, 400)
    assert x[0] > 3e-9**power
    visible = x[x > 1e-3**power]
    assert np.diff(np.log(visible)).max() < 0.3 * power
    assert (x > 1000**power).sum() >= 20


def test_which_laws_are_spread_out():
    spread = {name for name, law in LAWS.items() if any(spread_out(law, *interval) for interval in law.support())}
    assert spread == {"heavy tail", "heavy tail, singular values"}
    assert not spread_out(HeavyTail(80.0), 0.0, 80.0)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_masses_add_up(law):
    assert sum(interval_masses(law)) + sum(weight for _, weight in law.atoms()) == pytest.approx(1, abs=1e-10)


def test_the_density_without_its_atoms():
    part = DensityPart(LAWS["atoms everywhere"])
    assert part.mass == pytest.approx(0.5)
    np.testing.assert_allclose(part.cdf([-5, -2, 0, 2.5, 4]), [0, 0.25, 0.375, 0.4375, 0.5], atol=1e-12)
    np.testing.assert_allclose(part.ppf([0.125, 0.25, 0.4, 0.4375, 0.5]), [-3, -2, 2.2, 2.5, 3], atol=1e-9)
    assert interval_masses(LAWS["atoms everywhere"]) == pytest.approx([0.375, 0.125])


def test_a_divergence_at_0_inside_an_interval_is_followed():
    class Cusp(laws.FromDensity):
        def _pdf(self, x):
            return np.where(x == 0, np.inf, super()._pdf(x))

    x = support_grid(Cusp(lambda x: np.where(np.abs(x) <= 1, 1 - np.abs(x), 0.0), [(-1, 0), (0, 1)]), 400)
    assert np.isfinite(x).all()
    assert np.abs(x).min() < 1e-4


def test_no_density_no_points():
    assert support_grid(laws.Atomic([-1, 2]), 10).size == 0
    assert interval_masses(laws.Atomic([-1, 2])) == []
    assert DensityPart(laws.Atomic([-1, 2])).mass == 0


def test_only_half_lines_are_spread_out():
    assert not spread_out(laws.Semicircle(), -2.0, 2.0)
    assert not spread_out(laws.Affine(HeavyTail(), -1, 0), -3000.0, 0.0)


@pytest.mark.parametrize("count", [0, -1, 2.5, "three"])
def test_bad_count(count):
    with pytest.raises(gequiv.ParameterError, match="count"):
        support_grid(LAWS["square"], count)
