"""Laws of trees of subordination functions: the contract, certificates, slopes, points far out and next to the axis."""

from __future__ import annotations

import functools
import math
import pickle

import mpmath
import numpy as np
import pytest

from gequiv import ParameterError, free
from gequiv.laws import (
    Affine,
    Arcsine,
    Atomic,
    CompoundFreePoisson,
    Empirical,
    FussCatalan,
    MarchenkoPastur,
    Semicircle,
    Uniform,
)
from gequiv.laws.subordinated import CurveLaw, TreeLaw, law_of_tree
from gequiv.laws.subordination import Leaf, Power, Sum
from tests.laws.contract import check_contract

MP, SC = MarchenkoPastur, Semicircle
PM = Atomic([-1, 1])

CURVES = {
    "sum": lambda: SC(0.3) + MP(0.5, 2),
    "two intervals": lambda: Atomic([-3, 2], [0.3, 0.7]) + SC(0.5),
    "product": lambda: MP(0.25) * Uniform(1, 2),
    "kernel": lambda: MP(2, 3) * Atomic([1, 5], [0.75, 0.25]),
    "noise": lambda: free.rectangular(Atomic([0, 8], [0.9, 0.1]), noise_variance=2, ratio=0.5),
    "noise and kernel": lambda: free.rectangular(Atomic([0, 8], [0.8, 0.2]), noise_variance=2, ratio=1.25),
    "power": lambda: free.power(Uniform(-1, 3), 1.5),
    "power with atoms": lambda: free.power(Atomic([-1, 2], [0.3, 0.7]), 1.25),
    "compression": lambda: free.compression(Atomic([-1, 4], [0.6, 0.4]), 0.75),
    "multiplicative power": lambda: free.multiplicative_power(Uniform(1, 3), 1.5),
    "negative": lambda: -MP(0.5) - Uniform(3, 4),
    "scaled": lambda: Affine(MP(0.5) * Atomic([1, 2]), 100, -3),
    "small": lambda: (SC(0.3) + MP(0.5, 2)) / 1e6,
}
TREES = {
    "sum": lambda: Uniform(-1, 1) + Uniform(0, 3),
    "atoms": lambda: Atomic([0, 1], [0.4, 0.6]) + Atomic([0, 1], [0.7, 0.3]),
    "product": lambda: Uniform(1, 2) * Uniform(3, 9),
    "product with atoms": lambda: Atomic([0, 1], [0.4, 0.6]) * Atomic([0, 3], [0.7, 0.3]),
    "three intervals": lambda: Atomic([0, 1], [1 / 3, 2 / 3]) + Atomic([0, 1, 2], [0.5, 0.25, 0.25]),
    "composed": lambda: (Uniform(1, 2) + Atomic([1, 2])) * MP(0.25),
    "rectangular": lambda: free.rectangular(Atomic([1, 4]), Uniform(1, 2), ratio=0.5),
}


@functools.cache
def curve(name):
    return CURVES[name]()


NAMES = [*CURVES, *(f"tree {name}" for name in TREES)]


@functools.cache
def tree(name):
    return TREES[name]()


def law_of(name):
    return tree(name[5:]) if name.startswith("tree ") else curve(name)


@pytest.mark.parametrize("name", list(CURVES))
def test_contract_of_curves(name, monkeypatch):
    law = curve(name)
    if name == "multiplicative power":
        with pytest.raises(ParameterError, match="no natural matrix"):
            law.matrix(5, 1)
        monkeypatch.setattr(law, "_matrix", functools.partial(super(CurveLaw, law)._matrix))
    check_contract(law, tolerance=1e-8)


@pytest.mark.parametrize("name", list(TREES))
def test_contract_of_trees(name):
    law = tree(name)
    assert isinstance(law, TreeLaw)
    check_contract(law, tolerance=1e-8)


@pytest.mark.parametrize(
    ("build", "tolerance"),
    [
        (lambda: MP(1) * Atomic([1, 3]), 1e-8),  # x^(-1/2)
        (lambda: free.multiplicative(MP(1), MP(1), Uniform(1, 2)), 3e-7),  # x^(-2/3)
        (lambda: free.multiplicative(MP(1, 3), FussCatalan(2)), 5e-6),  # x^(-3/4)
        (lambda: free.rectangular(Atomic([0, 4]), noise_variance=1, ratio=1), 1e-8),
    ],
)
def test_contract_at_hard_edges(build, tolerance):
    """The contract's quadrature is what is inexact there."""
    law = build()
    assert law.support()[0][0] == 0
    check_contract(law, tolerance=tolerance, slope=1e-6)


@pytest.mark.parametrize(("power", "build"), [
    (1, lambda: MP(1) * Atomic([1, 3])),
    (2, lambda: free.multiplicative(MP(1), MP(1), Uniform(1, 2))),
    (3, lambda: free.multiplicative(MP(1, 3), FussCatalan(2))),
])  # fmt: skip
def test_mass_next_to_hard_edges(power, build):
    """In x = t^(k+1) the density is smooth: mass and mean from 0 to an inner point by Gauss–Legendre quadrature."""
    law = build()
    top = 0.02 * law.support()[0][1]
    for x in (top, 1e-6 * top, 1e-15 * top):
        node, weight = np.polynomial.legendre.leggauss(60)
        t = 0.5 * x ** (1 / (power + 1)) * (node + 1)
        measure = 0.5 * x ** (1 / (power + 1)) * weight * (power + 1) * t**power
        point = t ** (power + 1)
        assert law.cdf(x) == pytest.approx(np.sum(measure * law.pdf(point)), rel=1e-10)
        assert law.partial_mean(x) == pytest.approx(np.sum(measure * point * law.pdf(point)), rel=1e-10)
        assert law.ppf(law.cdf(x)) == pytest.approx(x, rel=1e-9)


def two_sided_arcsine():
    return PM + PM


def test_hard_edges_away_from_zero():
    """±1 twice: the contract, whose quadrature sees x^(-1/2) at points that are rounded by 4e-16."""
    check_contract(two_sided_arcsine(), tolerance=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_certificates(name):
    law = law_of(name)
    law = law.law if isinstance(law, Affine) else law
    certificate = law.certificate
    assert 0 <= certificate.mass_error < 1e-11
    assert 0 <= certificate.density_error < 1e-9
    assert 0 <= certificate.residual < 1e-9
    assert certificate.half_plane > 0
    assert certificate.nodes >= 32


@pytest.mark.parametrize("name", NAMES)
def test_slopes_are_difference_quotients(name):
    """Central differences of fourth order: h⁴ of truncation, 1e-13/h of rounding."""
    law = law_of(name)
    ends = [end for interval in law.support() for end in interval]
    unit = max(abs(end) for end in ends)
    low, high = ends[0], ends[-1]
    z = np.concatenate([
        unit * np.array([0.3 + 0.2j, -0.4 + 0.5j, 1.5 + 0.1j, 20 + 20j]),
        np.array([high + 0.5 * (high - low), low - (high - low), high + 30 * unit]) + 0j,
        0.5 * (high + low) + 0.2j * (high - low) * np.ones(1),
    ])  # fmt: skip
    value, slope = law._cauchy_and_slope(z)
    np.testing.assert_allclose(value, law._cauchy(z), rtol=1e-13)
    h = 1e-3 * np.where(np.abs(z) > 5 * unit, np.abs(z), unit)
    quotient = (8 * (law._cauchy(z + h) - law._cauchy(z - h)) - (law._cauchy(z + 2 * h) - law._cauchy(z - 2 * h))) / (
        12 * h
    )
    np.testing.assert_allclose(slope, quotient, rtol=2e-8)


TURNS = np.array([1, np.exp(1e-9j), np.exp(0.3j), 1j, np.exp(3j), -1])


def series(law, z):
    """zG = 1 + Σ m_k z^{-k}, to k = 4."""
    return 1 + sum(law.moment(k) / z**k for k in (1, 2, 3, 4))


@pytest.mark.parametrize("name", NAMES)
def test_far_points(name):
    """In every direction and on the axis; the mean is seen up to 1e6."""
    law = law_of(name)
    unit = max(abs(end) for interval in law.support() for end in interval)
    for size in (1e3, 1e4, 1e6):
        z = size * unit * TURNS
        allowed = 3e-13
        np.testing.assert_allclose(z * law.cauchy(z), series(law, z), rtol=0, atol=allowed)
        assert (law.cauchy(z[1:-1]).imag < 0).all()
        assert (law.cauchy(z[[0, -1]]).imag == 0).all()
    assert law.cauchy(np.inf) == 0


@pytest.mark.parametrize("name", NAMES)
def test_very_far_points(name):
    law = law_of(name)
    unit = max(abs(end) for interval in law.support() for end in interval)
    for size in (1e8, 1e10, 1e12):
        z = size * unit * TURNS
        np.testing.assert_allclose(z * law.cauchy(z), series(law, z), rtol=0, atol=3e-13)


@pytest.mark.parametrize("name", ["two intervals", "product", "noise", "tree sum", "tree three intervals"])
def test_a_hair_above_the_axis(name):
    """Above the support Im G is -π ρ; off it Im G is Im z dG/dz, to relative accuracy."""
    law = law_of(name)
    for low, high in law.support():
        x = low + (high - low) * np.array([0.1, 0.5, 0.85])
        x = x[np.abs(x - 1) > 0.05]
        for height in (1e-9, 1e-13, 1e-16):
            g = law.cauchy(x + 1j * height * (high - low))
            np.testing.assert_allclose(-g.imag / math.pi, law.pdf(x), rtol=1e-6 if height == 1e-9 else 1e-9)
    ends = [end for interval in law.support() for end in interval]
    gaps = [ends[0] - 1.0, ends[-1] + 0.7, *(0.5 * (a + b) for a, b in zip(ends[1:-1:2], ends[2::2], strict=True))]
    points = np.array([x for x in gaps if all(abs(x - a) > 0.01 for a, _ in law.atoms())])
    value, slope = law._cauchy_and_slope(points + 0j)
    for height in (1e-7, 1e-10, 1e-14, 1e-20):
        g = law.cauchy(points + 1j * height)
        np.testing.assert_allclose(g.real, value.real, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(g.imag / height, slope.real, rtol=1e-6)


def test_sign_of_the_imaginary_part_at_the_axis():
    law = tree("sum")
    points = np.array([law.support()[0][0] - 0.7, law.support()[-1][1] + 0.7])
    assert (law.cauchy(points + 1e-40j).imag <= 0).all()


@pytest.mark.parametrize(
    "build",
    [
        TREES["atoms"],
        TREES["product with atoms"],
        lambda: free.multiplicative(MP(2), MP(2)),
        CURVES["kernel"],
        CURVES["noise and kernel"],
        CURVES["power with atoms"],
        lambda: MP(2, 3) * Uniform(1, 2),
        lambda: CompoundFreePoisson(0.5, [-1, 5]),
    ],
)
def test_next_to_atoms(build):
    """G is w/(z - a) near the atom, from every side."""
    law = build()
    location, weight = law.atoms()[0]
    for size in (1e-8, 1e-9, 1e-10, 1e-12):
        step = size * np.array([1j, -1, 1 + 1j, 1 + 0.1j, -1 + 0.01j])
        z = location + step
        np.testing.assert_allclose((z - location) * law.cauchy(z), weight, rtol=1e-3)


def test_next_to_an_atom_beside_zero():
    law = tree("atoms")
    z = 1 + np.array([1e-6j, 1e-9j, 1e-12j])
    np.testing.assert_allclose((z - 1) * law.cauchy(z), law.atoms()[1][1], rtol=1e-4)


def test_density_to_the_edge():
    """ρ/√(x_e - x) has a limit: relative accuracy down to a distance of 1e-12 of the interval."""
    law = curve("sum")
    low, high = law.support()[0]
    distance = (high - low) * np.array([1e-4, 1e-6, 1e-8])
    ratio = law.pdf(high - distance) / np.sqrt(distance)
    assert ratio[1] == pytest.approx(ratio[2], rel=1e-4)
    assert law.pdf(np.nextafter(high, np.inf)) == law.pdf(np.nextafter(low, -np.inf)) == 0


def test_semicircle_plus_marchenko_pastur_in_many_digits():
    """The cubic in mpmath: z = 1/G + sG + v/(1 - cvG)."""
    law, s, c, v = curve("sum"), mpmath.mpf("0.3"), mpmath.mpf("0.5"), 2
    low, high = law.support()[0]
    with mpmath.workdps(40):
        s = mpmath.mpf(0.3)
        for share in (0.01, 0.3, 0.6, 0.95):
            x = mpmath.mpf(float(low + share * (high - low)))
            # (1 - cvg)(1 + sg² - xg) + vg = 0
            roots = mpmath.polyroots([-c * v * s, s + c * v * x, -x - c * v + v, 1], maxsteps=200, extraprec=200)
            exact = max(abs(root.imag) for root in roots) / mpmath.pi
            assert law.pdf(float(x)) == pytest.approx(float(exact), rel=1e-13)


def test_law_of_tree_takes_the_fitting_class():
    one = law_of_tree(Power(Leaf(Uniform(0, 1)), 2))
    assert isinstance(one, CurveLaw)
    two = law_of_tree(Sum([Leaf(Uniform(0, 1)), Leaf(Arcsine(0, 1))]), "a name")
    assert isinstance(two, TreeLaw)
    assert repr(two) == "a name"
    assert repr(one).startswith("CurveLaw(")


@pytest.mark.parametrize("law", [CURVES["noise"], TREES["sum"]])
def test_pickle(law):
    law = law()
    again = pickle.loads(pickle.dumps(law))
    assert type(again) is type(law)
    assert repr(again) == repr(law)
    assert again.support() == law.support()
    assert again.certificate == law.certificate
    x = law.ppf(np.linspace(0.05, 0.95, 7))
    assert again.pdf(x).tolist() == law.pdf(x).tolist()


def test_moments_of_high_order():
    """Relative to the top edge's power: Σ of the quadrature in quantiles of the arcsine law, C(2k, k)."""
    law = two_sided_arcsine()
    for k in (10, 20, 40, 60):
        assert law.moment(k) == pytest.approx(math.comb(k, k // 2), rel=1e-13 * 1.15**k)
    with pytest.raises(ParameterError, match="too large"):
        curve("kernel").moment(2000)


def test_many_atoms_make_many_intervals():
    """Integers 0..99 and little noise: 100 intervals of mass 1/100, equally spaced to the eye."""
    law = Empirical(np.arange(100.0)) + SC(1e-3)
    assert len(law.support()) == 100
    np.testing.assert_allclose([law.cdf(b) - law.cdf(a) for a, b in law.support()], 0.01, rtol=0, atol=1e-13)
    np.testing.assert_allclose([0.5 * (a + b) for a, b in law.support()], np.arange(100), atol=5e-3)
    # each is nearly a semicircle of variance s/n
    np.testing.assert_allclose([b - a for a, b in law.support()], 4 * math.sqrt(1e-3 / 100), rtol=5e-3)
    assert law.mean() == pytest.approx(49.5, rel=1e-12)
    assert law.variance() == pytest.approx(np.var(np.arange(100.0)) + 1e-3, rel=1e-10)


def test_real_points_of_the_spectrum_are_refused():
    law = CompoundFreePoisson(0.5, [1, 5], [0.3, 0.7])
    with pytest.raises(ParameterError, match="off the support"):
        (curve("two intervals") + 1).cauchy(0.5 * sum(curve("two intervals").support()[1]) + 1)
    with pytest.raises(ParameterError, match="off the atoms"):
        law.cauchy(0)
    with pytest.raises(ParameterError, match="dps must be None"):
        curve("sum").pdf(1, dps=30)
