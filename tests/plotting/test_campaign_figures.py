"""Figures of a campaign: what is drawn is what the analysis says, whatever the user's settings and names are."""

from __future__ import annotations

import math
import re

import matplotlib
import numpy as np
import pytest
from matplotlib.patches import Rectangle, StepPatch

from gequiv.plotting import campaign_figures as figures
from gequiv.simulation.campaign.findings import Rate
from tests.plotting.synthetic_campaign import HOSTILE, estimate, made_up

SOURCE = """
version = 1
[[grid]]
name = "a"
tokens = [64, 128, 256]
head_dim = "tokens/2"
beta = 0.5
draws = 3
"""


@pytest.fixture(scope="module")
def finding():
    return made_up(SOURCE).models[0]


def test_histogram_is_the_finding_s(finding):
    with figures.house_style():
        (axes,) = figures.model_figure(finding).axes
    (bars,) = [patch for patch in axes.patches if isinstance(patch, StepPatch)]
    assert np.array_equal(bars.get_data().values, finding.heights)
    labels = axes.get_legend_handles_labels()[1]
    assert labels[0] == "3 draws"
    assert "finite-size law (KS 0.025)" in labels  # 0.3/64^0.6 = 0.0247
    assert "predicted outlier" in labels
    (stem,) = [line for line in axes.lines if line.get_marker() == "D"]
    assert stem.get_xdata()[0] ** 2 == pytest.approx(finding.laws[0].outliers[0].predicted, rel=1e-12)


def test_curves_are_thinned_within_their_shape(finding):
    law = finding.laws[0]
    x, y = figures._thinned(law.grid, law.density)
    assert x.size < law.grid.size
    assert y.max() == law.density.max()
    assert np.trapezoid(y, x) == pytest.approx(np.trapezoid(law.density, law.grid), rel=5e-3)
    gap = np.where((law.grid > 0.3) & (law.grid < 0.4), np.nan, law.density)
    x, y = figures._thinned(law.grid, gap)
    assert not np.isfinite(y[(x > 0.3) & (x < 0.4)]).any()
    assert np.isnan(y).any()


def test_logarithmic_bins_have_the_density_of_the_logarithm(finding):
    import dataclasses

    edges = np.geomspace(0.01, 10.0, 31)
    heights = 1 / np.diff(edges) / 30
    with figures.house_style():
        (axes,) = figures.model_figure(dataclasses.replace(finding, edges=edges, heights=heights)).axes
    (bars,) = [patch for patch in axes.patches if isinstance(patch, StepPatch)]
    assert axes.get_xscale() == "log"
    assert np.allclose(bars.get_data().values, 1 / math.log(1000))  # uniform in ln s over three decades


def test_map_has_every_number(finding):
    values = np.array([[0.0123, math.nan], [0.2, 0.0004]])
    cells = [figures.Cells(HOSTILE, values, {(0, 1): "refused"})]
    with figures.house_style():
        (axes,) = figures.map_figure(cells, ["1", "2"], ["3", "4"], "n", "β", 3).axes
    assert {text.get_text() for text in axes.texts} == {"0.012", "refused", "0.200", "4e−4"}
    assert sum(isinstance(patch, Rectangle) for patch in axes.patches) == 4


def test_fit_goes_through_exact_powers():
    points = tuple((float(n), 3 * n**-0.5, 0.001) for n in (100, 400, 1600))
    rate = Rate("a", "limit", "tokens", {}, points, estimate(-0.5, 0.02), curved=False)
    with figures.house_style():
        (axes,) = figures.rate_figure([rate], [""], "limit law", "n").axes
    (line,) = [line for line in axes.lines if line.get_label() == "−0.50"]
    assert np.allclose(line.get_ydata(), 3 * np.asarray(line.get_xdata()) ** -0.5)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["100", "400", "1600"]


def test_curved_line_has_no_exponent():
    rate = Rate("a", "limit", "tokens", {}, ((10.0, 0.1, None), (20.0, 0.1, None)), estimate(0.0, None), curved=True)
    with figures.house_style():
        (axes,) = figures.rate_figure([rate], ["$\\foo$"], HOSTILE, "n").axes
    assert axes.get_legend_handles_labels()[1] == ["$\\foo$: curved"]


def test_text_is_the_same_under_other_settings(finding):
    def drawn():
        return figures.svg_text(lambda: figures.model_figure(finding), "f1", HOSTILE)

    plain = drawn()
    with matplotlib.rc_context({"font.size": 20, "svg.fonttype": "path", "axes.grid": True}):
        assert drawn() == plain
    assert plain.startswith('<svg role="img" aria-label="&lt;script&gt;')
    assert plain.endswith("</svg>")
    assert "<text" in plain
    identifiers = re.findall(r' id="([^"]*)"', plain)
    assert all(re.fullmatch(r"f1-\d+", name) for name in identifiers)
    assert set(re.findall(r'(?:url\(#|href="#)([^")]+)', plain)) == set(identifiers)
    assert not re.search(r"http|<style|<metadata|<!--", plain)


@pytest.mark.parametrize("label", ["$\\foo$", HOSTILE, "日本語", "]]>"])
def test_any_label(label):
    line = figures.Line(label, (1.0, 2.0), (3.0, 4.0), (None, 0.1), (None, 3.5))
    text = figures.svg_text(lambda: figures.rows_figure([line], label, label, logarithmic=True), "f1", label)
    assert "<script" not in text
