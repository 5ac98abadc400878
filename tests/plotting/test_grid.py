"""The points at which a law is shown."""

from __future__ import annotations

import numpy as np
import pytest

import gequiv
from gequiv.plotting import support_grid
from gequiv.plotting.grid import interval_masses, spread_out
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
    levels = np.concatenate([[atoms], law.cdf(x), [1.0]])
    assert np.diff(levels[1:]).max() < 0.02
    assert levels[1] - atoms < 0.03  # of which the heavy tail has .024 below rounding


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


@pytest.mark.parametrize("count", [0, -1, 2.5, "three"])
def test_bad_count(count):
    with pytest.raises(gequiv.ParameterError, match="count"):
        support_grid(LAWS["square"], count)
