"""The figure of schedules shows what the sweeps say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gequiv.attention.temperature import LINEAR_SHARE, QUANTILES, context_sweep, schedule
from gequiv.errors import ParameterError
from gequiv.plotting.figures import save_figure
from gequiv.plotting.temperature_figure import temperature_figure

HEAD_DIM, LENGTHS, REFERENCE, BETA = 300, [300, 200], 300, 0.6
NAMES = ("constant", "ssmax")


@pytest.fixture(scope="module")
def figure():
    return temperature_figure(HEAD_DIM, LENGTHS, NAMES, beta=BETA, reference=REFERENCE)


def columns(figure):
    return np.array(figure.axes).reshape(3, len(NAMES)).T


def lines(axes):
    return {line.get_label(): (np.asarray(line.get_xdata()), np.asarray(line.get_ydata())) for line in axes.lines}


def test_what_is_drawn(figure):
    for name, (top, middle, bottom) in zip(NAMES, columns(figure), strict=True):
        sweep = context_sweep(HEAD_DIM, sorted(LENGTHS), name, beta=BETA, reference=REFERENCE)
        n = [point.tokens for point in sweep]
        x, y = lines(top)["β(n)"]
        np.testing.assert_allclose(y, schedule(name, x, beta=BETA, reference=REFERENCE))
        x, y = lines(top)["linear model ends, n → ∞"]
        np.testing.assert_allclose(y, np.sqrt(np.log(x) / 2))
        for axes, label, values in [
            (middle, "Perron value", [point.spectrum.largest for point in sweep]),
            (middle, "second value", [point.spectrum.second for point in sweep]),
            (middle, "median of the bulk", [point.spectrum.quantiles[QUANTILES.index(0.5)] for point in sweep]),
            (bottom, "perplexity / n", [math.exp(point.entropy) / point.tokens for point in sweep]),
            (bottom, "effective rank / n", [point.spectrum.effective_rank / point.tokens for point in sweep]),
        ]:
            x, y = lines(axes)[label]
            assert list(x) == n
            np.testing.assert_allclose(y, values, rtol=1e-12)
        assert len(middle.collections) == 2  # the two bands
        assert middle.get_xscale() == middle.get_yscale() == "log"


def test_what_lies_beyond_the_linear_regime_is_grey():
    figure = temperature_figure(150, [150, 200], ["constant"], beta=3.0, reference=200)
    sweep = context_sweep(150, [150, 200], "constant", beta=3.0, reference=200)
    assert all(point.linear > LINEAR_SHARE for point in sweep)
    for axes in figure.axes:
        assert len(axes.patches) == 2
    assert np.isnan(lines(figure.axes[1])["Perron value"][1]).all()  # no spectrum is drawn
    assert np.isfinite(lines(figure.axes[2])["perplexity / n"][1]).all()


def test_nothing_is_grey_within_it(figure):
    assert not any(axes.patches for axes in figure.axes)


def test_saved(figure, tmp_path):
    save_figure(figure.axes[0], tmp_path / "temperature.svg")
    text = (tmp_path / "temperature.svg").read_text(encoding="utf-8")
    assert text.startswith("<?xml")
    assert figure.axes[0].get_title() == "β constant"
    assert figure.get_suptitle() == "head width 300, β = 0.6 at n₀ = 300"


@pytest.mark.parametrize(
    ("lengths", "names", "message"),
    [
        ([200], ["ssmax"], "lengths must be a sequence of at least two"),
        (200, ["ssmax"], "lengths must be a sequence of at least two"),
        ([200, 300], [], "schedules must be a sequence of at least one name"),
        ([200, 300], "ssmax", "schedules must be a sequence of at least one name"),
        ([200, 300], ["log"], "schedules must be some of 'constant'"),
        ([200, 1], ["ssmax"], "lengths must be an integer of at least 2"),
    ],
)
def test_refusals(lengths, names, message):
    with pytest.raises(ParameterError, match=message):
        temperature_figure(64, lengths, names, reference=200)
