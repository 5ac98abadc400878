"""Figures of an inspection: a cell is a head, a ring one that passes; a histogram and a law have mass one."""

from __future__ import annotations

import dataclasses
import io
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle, StepPatch

import gequiv.plotting
from gequiv.errors import ParameterError
from gequiv.inspection.tables import _levels
from gequiv.plotting.inspection_figures import head_figure, inspection_figure, law_density, maps_of
from tests.plotting import synthetic_inspection as made


def mesh(axes):
    (found,) = [item for item in axes.collections if isinstance(item, QuadMesh)]
    return found


def rings(axes):
    return {
        tuple(round(x) for x in point[::-1])
        for item in axes.collections
        if isinstance(item, PathCollection)
        for point in item.get_offsets() - (0.0, 0.0)
    }


def written(axes):
    """All that the figure is made of can be drawn."""
    buffer = io.BytesIO()
    axes.get_figure(root=True).savefig(buffer, format="png")
    return buffer.getvalue()


def test_cells_are_heads_and_layers_are_rows_from_above():
    report = made.grid(3, 4)
    axes = inspection_figure(report)
    expected = 0.01 * (1 + np.arange(12).reshape(3, 4))
    assert np.allclose(mesh(axes).get_array(), expected)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "1", "2"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("head", "layer")
    assert written(axes).startswith(b"\x89PNG")


def test_rings_are_on_the_heads_that_pass():
    report = made.grid(20, 30)  # too many for labels: rings are in the middle
    axes = inspection_figure(report)
    assert rings(axes) == {(head.layer, head.head) for head in report.heads if head.random}
    assert not axes.texts
    assert "passes as random (400 of 600)" in [text.get_text() for text in axes.get_legend().get_texts()]


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("beta", lambda head: head.beta),
        ("outliers", lambda head: len(head.outliers)),
        ("effective_rank", lambda head: head.effective_rank),
        ("directions", lambda head: head.directions),
    ],
)
def test_what_is_shown(what, value):
    report = made.grid(3, 4)
    shown = mesh(inspection_figure(report, what)).get_array().ravel()
    assert list(shown) == [value(head) for head in report.heads]


def test_numbers_are_in_cells_that_hold_them():
    texts = [text.get_text() for text in inspection_figure(made.grid(2, 2)).texts]
    assert texts == ["0.010", "0.020", "0.030", "0.040"]
    assert [text.get_text() for text in inspection_figure(made.grid(4, 1), "outliers").texts] == ["0", "0", "0", "3"]


def test_a_head_without_law_is_grey():
    axes = inspection_figure(made.report([made.head(0, 0), made.lawless(0, 1)], layered=False))
    assert mesh(axes).get_array().mask.tolist() == [[False, True]]
    (cell,) = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert cell.get_xy() == (0.5, -0.5)
    assert [text.get_text() for text in axes.texts] == ["0.032", "–"]
    assert "no value" in [text.get_text() for text in axes.get_legend().get_texts()]
    written(inspection_figure(made.report([made.lawless()], layered=False)))


def test_heads_without_layers_are_laid_out_in_lines():
    heads = [made.head(0, k, ks=0.001 * (k + 1)) for k in range(20)]
    axes = inspection_figure(made.report(heads, layered=False))
    shown = mesh(axes).get_array()
    assert shown.shape == (3, 8)
    assert np.allclose(shown.compressed(), 0.001 * np.arange(1, 21))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0–7", "8–15", "16–19"]
    one = inspection_figure(made.report(heads[:5], layered=False))
    assert mesh(one).get_array().shape == (1, 5)


def test_layers_may_have_different_numbers_of_heads():
    axes = inspection_figure(made.report([made.head(0, 0), made.head(3, 0), made.head(3, 1)]))
    assert mesh(axes).get_array().mask.tolist() == [[False, True], [False, False]]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "3"]
    assert not axes.patches  # where there is no head, there is nothing


@pytest.mark.parametrize("shape", [(1, 1), (1, 32), (32, 1), (32, 32)])
def test_all_sizes(shape):
    assert written(inspection_figure(made.grid(*shape), "ks")).startswith(b"\x89PNG")


def nulled(number, passes):
    names = ("sizes", "weights", "weights and tokens")
    ladder = [made.null(name, 0.1 * (k + 1), passes=k >= passes) for k, name in enumerate(names)]
    return made.head(0, number, random=passes == 0, nulls=tuple(ladder))


def test_nulls_have_maps_of_their_own():
    report = made.report([nulled(0, 0), nulled(1, 1), nulled(2, 2), made.head(0, 3)])
    assert maps_of(report)[-3:] == ["ks:sizes", "ks:weights", "ks:weights and tokens"]
    axes = inspection_figure(report, "ks:weights")
    assert np.allclose(mesh(axes).get_array().filled(-1), [[0.2, 0.2, 0.2, -1]])
    (text,) = [text.get_text() for text in axes.get_legend().get_texts() if "explained" in text.get_text()]
    assert text == "explained by weights (2 of 4)"


def test_unknown_quantities_are_refused():
    with pytest.raises(ParameterError, match=r"what must be one of 'ks', 'beta'.*got 'ks:weights'"):
        inspection_figure(made.grid(1, 2), "ks:weights")
    with pytest.raises(ParameterError, match="at least one head"):
        inspection_figure(made.report([]))


def test_given_axes_are_drawn_on():
    left, right = Figure(figsize=(9, 3)).subplots(1, 2)
    assert made.grid(2, 3).plot("beta", axes=left) is left
    assert head_figure(made.head(), axes=right) is right
    written(left)


# -- one head ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("solved", "right", "tolerance"), [(True, 1.9, 0.004), (False, 1.4, 0.03)])
def test_density_of_the_law_is_the_quarter_circle(solved, right, tolerance):
    s, density = law_density(made.table(solved=solved))
    inside = (s > 0.2) & (s < right)  # a kernel blurs the edge
    assert np.abs(density - made.quarter_circle(s))[inside].max() < tolerance
    assert np.trapezoid(density, s) == pytest.approx(1, abs=0.01)


def test_density_in_a_gap_is_next_to_nothing():
    levels = _levels()
    quantiles = (
        np.where(levels < 0.5, 0.5 + levels, 3 + levels) ** 2
    )  # half of the mass even on (.5, 1), half on (3.5, 4)
    table = dataclasses.replace(made.table(), log_quantiles=np.log(quantiles))
    s, density = law_density(table)
    assert np.interp([0.75, 3.75], s, density) == pytest.approx([1, 1], abs=0.01)
    assert np.interp([1.2, 2.25, 3.3], s, density).max() < 0.01


def bars(axes):
    (found,) = [patch for patch in axes.patches if isinstance(patch, StepPatch)]
    return found.get_data()


def test_histogram_has_mass_one_and_follows_the_law():
    axes = head_figure(made.head())
    heights, edges, _ = bars(axes)
    assert heights @ np.diff(edges) == pytest.approx(1)
    middle = (edges[1:] + edges[:-1]) / 2
    assert np.abs(heights - made.quarter_circle(middle)).max() < 0.05  # a bin has about 14 of 400 quantiles
    assert "law of β = 0.7 (KS 0.032)" in axes.get_legend_handles_labels()[1]
    assert axes.get_xlabel() == "singular value s"


def test_outliers_are_marks_and_not_bars():
    found = [made.outlier(9.0), made.outlier(6.25), made.outlier(16.0, "column")]
    spectrum = np.sort(np.concatenate([made.QUANTILES, [9.0, 6.25]]))[::-1]  # column directions are not in it
    axes = head_figure(made.head(random=False, outliers=found, spectrum=spectrum))
    _, edges, _ = bars(axes)
    assert edges[-1] == pytest.approx(np.sqrt(made.QUANTILES.max()))
    diamonds = {tuple(line.get_xdata()): line.get_mfc() for line in axes.lines if line.get_marker() == "D"}
    assert set(diamonds) == {(3.0, 2.5), (4.0,)}
    assert diamonds[(4.0,)] == "white"
    assert axes.get_xlim()[1] > 4
    labels = axes.get_legend_handles_labels()[1]
    assert {"400 singular values", "2 outside the bulk", "column direction"} <= set(labels)


def test_edges_are_marked():
    lines = {line.get_label(): line.get_xdata()[0] for line in head_figure(made.head()).lines}
    assert lines["largest by chance"] == pytest.approx(4.2**0.5)
    assert lines["largest by chance, localised"] == pytest.approx(5.5**0.5)


def test_with_a_mask_the_marks_are_of_other_rows_and_all_values_are_bars():
    axes = head_figure(made.head(mask="causal", outliers=[made.outlier()]))
    labels = axes.get_legend_handles_labels()[1]
    assert "401 singular values" in labels
    assert "1 outside the bulk of rows √kᵢ(A − Ā)ᵢ" in labels


def test_far_outliers_make_the_axis_logarithmic():
    axes = head_figure(made.head(outliers=[made.outlier(1e4)]))
    assert (axes.get_xscale(), axes.get_ylabel()) == ("log", "density of ln s")
    heights, edges, _ = bars(axes)
    assert heights @ np.diff(np.log(edges)) == pytest.approx(0.98, abs=0.01)  # a fiftieth is left of the axis
    written(axes)


def test_heads_without_law_or_spectrum():
    axes = head_figure(made.lawless())
    assert axes.get_legend_handles_labels()[1] == ["400 singular values"]
    written(axes)
    for spectrum in (None, np.zeros(5), np.empty(0)):
        with pytest.raises(ParameterError, match="head_report must have singular values"):
            head_figure(made.head(spectrum=spectrum))


def test_drawn_heads_are_told_apart_from_a_law():
    labels = head_figure(made.head(law_solved=False, table=made.table(solved=False))).get_legend_handles_labels()[1]
    assert "drawn random heads (KS 0.032)" in labels


def test_settings_of_the_user_do_not_matter():
    import matplotlib

    plain = written(inspection_figure(made.grid(2, 3)))
    with matplotlib.rc_context({"figure.dpi": 37, "font.size": 30, "axes.facecolor": "red"}):
        axes = inspection_figure(made.grid(2, 3))
    assert [text.get_text() for text in axes.texts] == [f"0.0{k}0" for k in range(1, 7)]
    assert written(axes) == plain


def test_importing_the_library_or_the_room_does_not_load_matplotlib():
    code = "import sys, gequiv, gequiv.plotting; assert 'matplotlib' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert gequiv.plotting.inspection_figure is inspection_figure
