"""Figures: what is drawn is what the law and the draws say, in every regime."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

import gequiv
from gequiv import laws
from gequiv.attention.outliers import Outlier
from gequiv.errors import InputFileError
from gequiv.laws.subordinated import law_of_tree
from gequiv.laws.subordination import AddFree, Increment, Leaf, Power
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


# -- laws on the whole line --------------------------------------------------------------------------------------------


def of_atoms(locations, weights, semicircle):
    return law_of_tree(AddFree(Leaf(laws.Atomic(locations, weights)), Increment(0.0, (0.0,), (semicircle,))))


SIGNED = {
    "semicircle": laws.Semicircle(),
    "Marchenko-Pastur": laws.MarchenkoPastur(2),
    "uniform": laws.Uniform(-1, 3),
    "arcsine": laws.Arcsine(),
    "mirrored": laws.Affine(laws.FussCatalan(2), -1, 0),
    "shifted": laws.Affine(laws.MarchenkoPastur(1), -1, 2),
    "hard edge": laws.FussCatalan(2),
    "far from 0": laws.Semicircle(variance=1, mean=1e6),
    "tiny": laws.Affine(laws.Semicircle(), 1e-200, 0),
    "four intervals": of_atoms([-6, -1, 2, 9], [0.1, 0.4, 0.3, 0.2], 0.1),
    "two atoms": law_of_tree(Power(Leaf(laws.Atomic([-1, 2], [0.55, 0.45])), 1.2)),
    "atoms and gaps": law_of_tree(Power(Leaf(laws.Atomic([-1, 0, 2, 5], [0.4, 0.2, 0.3, 0.1])), 1.2)),
    "atoms everywhere": laws.FromDensity(
        lambda x: np.full_like(x, 0.125), [(-4, -1), (2, 3)], [(-5, 0.1), (-2, 0.2), (0, 0.1), (2.5, 0.05), (3, 0.05)]
    ),
    "many atoms": laws.FromDensity(
        lambda x: np.full_like(x, 0.25), (-1, 1), [(k - 30.5, 0.5 / 60) for k in range(60)]
    ),
}  # fmt: skip
POINTS_ONLY = {
    "one": laws.Atomic([3.0]),
    "at 0": laws.Atomic([0.0]),
    "three": laws.Atomic([-1, 0.5, 2], [0.2, 0.5, 0.3]),
    "thirty": laws.Atomic(np.arange(30) - 9.5, (np.arange(30) + 1) / 465),
    "decades": laws.Atomic(10.0 ** np.arange(-2, 5), [0.4, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]),
    "two thousand": laws.Empirical(np.random.default_rng(0).standard_normal(2000)),
}


def unit_of(axes):
    label = axes.get_xlabel()
    return 10.0 ** int(label.split("{")[1].split("}")[0]) if "10^" in label else 1.0


@pytest.mark.parametrize("name", SIGNED)
def test_density_on_the_line(name, tmp_path):
    law = SIGNED[name]
    axes = law.plot(title=name)
    lines = density_lines(axes)
    assert len(lines) == len(law.support())
    assert axes.get_xscale() == "linear"
    atoms = sum(weight for _, weight in law.atoms())
    assert drawn_mass(axes, lines) == pytest.approx(1 - atoms, abs=0.01)
    low, high = axes.get_xlim()
    places = [edge for interval in law.support() for edge in interval] + [location for location, _ in law.atoms()]
    margins = min(places) / unit_of(axes) - low, high - max(places) / unit_of(axes)
    assert min(margins) > 0  # nothing is cut
    assert max(margins) < 0.05 * (high - low)  # and nothing empty, but from 0
    save_figure(axes, tmp_path / "law.png")


@pytest.mark.parametrize("name", SIGNED)
def test_edges_on_the_line(name):
    axes = SIGNED[name].plot()
    (marks,) = [line for line in axes.lines if line.get_marker() == "^"]
    edges = np.array([edge for interval in SIGNED[name].support() for edge in interval])
    np.testing.assert_allclose(marks.get_xdata(), edges / unit_of(axes), rtol=1e-12)


@pytest.mark.parametrize("name", ["arcsine", "mirrored", "shifted", "hard edge"])
def test_a_divergence_anywhere_is_cut_off(name):
    axes = SIGNED[name].plot()
    (line,) = density_lines(axes)
    assert 0.1 < axes.get_ylim()[1] < 0.3 * np.max(line.get_ydata())


def test_a_jump_is_drawn():
    axes = SIGNED["uniform"].plot()
    jumps = [line for line in axes.lines if len(line.get_xdata()) == 2 and line.get_marker() == "None"]
    assert [(line.get_xdata()[0], max(line.get_ydata())) for line in jumps] == [(-1, 0.25), (3, 0.25)]


def test_several_stems_are_as_high_as_their_weights():
    law = SIGNED["two atoms"]
    stems = [line for line in law.plot().lines if line.get_marker() == "o"]
    heights = np.array([np.nanmax(line.get_ydata()) for line in stems])
    weights = np.array([weight for _, weight in law.atoms()])
    np.testing.assert_allclose(heights / heights.max(), weights / weights.max(), rtol=1e-12)


@pytest.mark.parametrize("name", POINTS_ONLY)
def test_atoms_only(name, tmp_path):
    law = POINTS_ONLY[name]
    axes = law.plot(title=name)
    assert density_lines(axes) == []
    assert axes.get_ylabel() == "weight"
    assert not [line for line in axes.lines if line.get_marker() == "^"]
    weights = [weight for _, weight in law.atoms()]
    assert axes.get_ylim()[1] > max(weights)
    low, high = axes.get_xlim()
    assert low < law.atoms()[0][0] <= law.atoms()[-1][0] < high
    assert len(axes.get_legend().get_texts()) <= 4
    assert axes.get_xscale() == ("log" if name == "decades" else "linear")
    save_figure(axes, tmp_path / "law.png")


def test_many_atoms_share_a_legend_entry():
    (text,) = POINTS_ONLY["two thousand"].plot().get_legend().get_texts()
    assert text.get_text() == "2000 atoms, weight 0.0005 each"
    texts = [text.get_text() for text in SIGNED["atoms everywhere"].plot().get_legend().get_texts()]
    assert texts == ["density", "5 atoms, weights 0.05 to 0.2, 0.5 in all"]
    texts = [text.get_text() for text in SIGNED["many atoms"].plot().get_legend().get_texts()]
    assert texts == ["density", "60 atoms, weight 0.00833 each, 0.5 in all"]


def test_options_of_plot():
    ax = Figure().add_subplot()
    assert laws.Semicircle().plot(ax, title="Wigner", variable="\\lambda") is ax
    assert ax.get_title() == "Wigner"
    assert ax.get_xlabel() == "$\\lambda$"
    assert laws.Semicircle().plot(ax=ax) is ax


def test_panels_side_by_side(tmp_path):
    """An artist without an extent would make constrained layout give up, with a warning."""
    figure = Figure(figsize=(9, 6), layout="constrained")
    for ax, law in zip(figure.subplots(2, 2).flat, [*POINTS_ONLY.values()][2:], strict=True):
        law.plot(ax, title="a law")
    figure.savefig(tmp_path / "panels.png")
