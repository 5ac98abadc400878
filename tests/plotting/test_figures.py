"""Figures: what is drawn is what the law and the draws say, in every regime."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

import gequiv
from gequiv.attention.outliers import Outlier
from gequiv.errors import InputFileError
from gequiv.plotting import density_figure, save_figure, validation_figure
from tests.simulation.heavy_tail import HeavyTail

HEADS = {
    "square": gequiv.Attention(120, 60, 1.0),
    "gap": gequiv.Attention(120, 6, 0.5),
    "two scales": gequiv.Attention(120, 6, 0.02),
    "far interval": gequiv.Attention(120, 1, 1.0),
    "atom": gequiv.Attention(120, 30, 0.7, keys=70),
    "wide": gequiv.Attention(60, 20, 0.2, keys=300),
}
LAWS = {name: head.limit_law() for name, head in HEADS.items()}
LAWS["huge"] = gequiv.Attention(120, 60, 26.0).limit_law()
LAWS["finite size"] = gequiv.Attention(200, 16, 0.5).finite_law()
LAWS["tiny"] = gequiv.Attention(120, 240, 1e-3).limit_law()


def density_lines(axes):
    return [line for line in axes.lines if line.get_marker() == "None" and len(line.get_xdata()) > 3]


def drawn_mass(axes, lines):
    """Area under the curves; the axis variable is the logarithm where the axis is logarithmic."""
    total = 0.0
    for line in lines:
        x, y = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
        total += np.trapezoid(y, np.log(x) if axes.get_xscale() == "log" else x)
    return total


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("singular", [False, True])
def test_density(name, singular, tmp_path):
    law = LAWS[name].singular_values() if singular else LAWS[name]
    axes = density_figure(law, title=name)
    assert axes.get_title() == name
    lines = density_lines(axes)
    assert len(lines) == len(law.support())
    for line in lines:
        assert np.isfinite(line.get_ydata()).all()
        assert (np.asarray(line.get_ydata()) >= 0).all()
    atoms = sum(weight for _, weight in law.atoms())
    assert drawn_mass(axes, lines) == pytest.approx(1 - atoms, abs=0.03)  # the curve starts just off a divergence
    low, high = axes.get_ylim()
    assert high > low >= 0
    save_figure(axes, tmp_path / "law.png")
    assert (tmp_path / "law.png").stat().st_size > 5000


@pytest.mark.parametrize("name", LAWS)
def test_edges_are_marked(name):
    law = LAWS[name]
    axes = density_figure(law)
    (marks,) = [line for line in axes.lines if line.get_marker() == "^"]
    edges = np.array([edge for interval in law.support() for edge in interval])
    label = axes.get_xlabel()
    unit = 10.0 ** int(label.split("{")[1].split("}")[0]) if "10^" in label else 1.0
    shown = edges[edges > 0] / unit if axes.get_xscale() == "log" else edges / unit
    np.testing.assert_allclose(marks.get_xdata(), shown, rtol=1e-12)


def test_scales():
    assert density_figure(LAWS["square"]).get_xscale() == "linear"
    assert density_figure(LAWS["square"]).get_yscale() == "linear"
    assert density_figure(LAWS["gap"].singular_values()).get_yscale() == "log"
    assert density_figure(LAWS["two scales"]).get_xscale() == "log"
    assert "10^{294}" in density_figure(LAWS["huge"]).get_xlabel()


def test_a_divergence_is_cut_off():
    axes = density_figure(LAWS["square"])
    (line,) = density_lines(axes)
    assert axes.get_ylim()[1] < 0.1 * np.max(line.get_ydata())


def test_atoms_are_named():
    axes = density_figure(LAWS["atom"])
    assert "atom of weight 0.4167 at 0" in [text.get_text() for text in axes.get_legend().get_texts()]


def test_given_axes_are_drawn_on():
    axes = Figure().add_subplot()
    assert density_figure(LAWS["square"], axes=axes) is axes
    above, below = Figure().subplots(2, 1)
    drawn = validation_figure(LAWS["square"], HEADS["square"].spectrum(0), axes=(above, below))
    assert drawn == (above, below)
    assert above.has_data()
    assert below.has_data()


@pytest.mark.parametrize("name", HEADS)
def test_validation(name, tmp_path):
    head, law = HEADS[name], LAWS[name]
    draws = [head.spectrum(seed) for seed in range(3)]
    believed = gequiv.MarchenkoPastur(float(head.aspect), law.mean())
    above, below = validation_figure(law, draws, reference=believed, title=name)
    labels = [text.get_text() for text in above.get_legend().get_texts()]
    assert labels[:3] == ["3 draws", "law", "Marchenko–Pastur"]

    (bars,) = [patch for patch in above.patches if isinstance(patch, StepPatch)]
    values, cuts, _ = bars.get_data()
    width = np.diff(np.log(cuts)) if above.get_xscale() == "log" else np.diff(cuts)
    surplus = max(0, head.tokens - head.columns) / head.tokens
    singular = np.sqrt(np.concatenate(draws))
    if above.get_xscale() == "log":  # nearly all; what is rounding alone lies far to the left
        assert (values * width).sum() == pytest.approx(np.mean(singular >= cuts[0]), abs=1e-9)
        assert np.mean(singular >= cuts[0]) > 0.9
    else:  # all but the atom's zeros, of which there is one more, as the rows of the centred matrix sum to zero
        zeros = surplus + (1 / head.tokens if surplus else 0)
        assert (values * width).sum() == pytest.approx(1 - zeros, abs=1e-9)

    difference = max(
        (line for line in below.lines if line.get_linestyle() == "-"), key=lambda line: len(line.get_xdata())
    )
    measured = gequiv.compare(law, np.concatenate(draws)).ks
    assert np.abs(difference.get_ydata()).max() == pytest.approx(measured, abs=0.02)
    assert np.abs(difference.get_ydata()).max() <= measured + 1e-9
    save_figure(above, tmp_path / "validate.pdf")
    assert (tmp_path / "validate.pdf").read_bytes().startswith(b"%PDF")


class WithOutliers(HeavyTail):
    """Two outliers of its own, of which one is seen, and the Perron value of A, which its matrix does not have."""

    def outliers(self):
        return [
            Outlier(1e6, True, "Perron value of A", 9.0),
            Outlier(1e4, True, "column direction", 2.0),
            Outlier(3000.0, False, "row direction", 0.5),
        ]


@pytest.mark.parametrize("singular", [False, True])
def test_heavy_tail(singular):
    squares = WithOutliers()
    law = squares.singular_values() if singular else squares
    power = 0.5 if singular else 1
    axes = density_figure(law)
    assert axes.get_xscale() == "log"
    assert axes.get_yscale() == "linear"
    low, high = axes.get_xlim()
    assert law.cdf(low) == pytest.approx(0.05, abs=1e-6)
    assert [text.get_text() for text in axes.texts] == ["← 5 % below"]
    (line,) = density_lines(axes)
    x, y = line.get_xdata(), line.get_ydata()
    np.testing.assert_allclose(y, law.pdf(x) * x, rtol=1e-12)
    assert drawn_mass(axes, [line]) == pytest.approx(1 - law.cdf(x[0]), abs=2e-3)
    (mark,) = [line for line in axes.lines if line.get_marker() == "D"]
    assert mark.get_xdata()[0] == pytest.approx(1e4**power)
    assert high == pytest.approx(1.4 * 1e4**power)
    assert "expected outlier" in [text.get_text() for text in axes.get_legend().get_texts()]


def test_validation_of_a_heavy_tail_beside_the_limit(tmp_path):
    law, rng = WithOutliers(), np.random.default_rng(4)
    draws = [np.append(law.rvs(499, rng), 1e4) for _ in range(2)]
    above, below = validation_figure(
        law, draws, reference=gequiv.MarchenkoPastur(1, law.mean()), theorem=LAWS["square"], theorem_label="the theorem"
    )
    assert above.get_xscale() == "log"
    labels = [text.get_text() for text in above.get_legend().get_texts()]
    assert labels == ["2 draws", "law", "the theorem", "Marchenko–Pastur", "expected outlier"]
    (bars,) = [patch for patch in above.patches if isinstance(patch, StepPatch)]
    values, cuts, _ = bars.get_data()
    shown = np.mean(np.sqrt(np.concatenate(draws)) >= cuts[0])
    assert (values * np.diff(np.log(cuts))).sum() == pytest.approx(shown, abs=1e-9)
    assert shown > 0.9
    assert cuts[-1] >= 100
    assert len(below.lines) == 4  # zero, the draws and two laws
    save_figure(above, tmp_path / "validate.png")


def test_outliers_that_cannot_be_certified_are_left_out():
    class Refusing(HeavyTail):
        def outliers(self):
            raise gequiv.CertificationError("too far out")

    assert density_figure(Refusing()).get_legend() is None


def test_one_array_is_one_draw():
    above, _ = validation_figure(LAWS["square"], HEADS["square"].spectrum(0))
    assert "1 draw" in [text.get_text() for text in above.get_legend().get_texts()]


@pytest.mark.parametrize("spectra", [[], [[]], [[1.0, -0.5]], [[1.0, np.inf]], [[1.0, np.nan]]])
def test_bad_spectra(spectra):
    with pytest.raises(gequiv.ParameterError, match="spectra"):
        validation_figure(LAWS["square"], spectra)


def test_saving_where_it_cannot_be(tmp_path):
    axes = density_figure(LAWS["square"])
    with pytest.raises(gequiv.ParameterError, match="path"):
        save_figure(axes, tmp_path / "law.gif")
    with pytest.raises(InputFileError, match="cannot write"):
        save_figure(axes, tmp_path / "absent" / "law.png")
