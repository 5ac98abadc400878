"""Roots of both signs, squares, inverses: contract, laws known in closed form, transforms against mpmath, errors."""

from __future__ import annotations

import math
import pickle

import mpmath
import numpy as np
import pytest

from gequiv import CertificationError, Law, ParameterError
from gequiv.laws import (
    Affine,
    Arcsine,
    Atomic,
    Empirical,
    FromDensity,
    FussCatalan,
    GaussianChainPlusNoise,
    Inverse,
    MarchenkoPastur,
    Semicircle,
    SingularValueLaw,
    Square,
    SymmetricRoot,
    Uniform,
    Wachter,
)
from gequiv.simulation import compare
from tests.laws.contract import check_contract, transform_errors

ATOMS = Atomic([-2, 0.1, 1.5], [0.25, 0.3, 0.45])
CHAIN = GaussianChainPlusNoise([1.5, 0.8], 0.9, 0.7, 0.3)


@pytest.mark.parametrize(
    ("law", "tolerance"),
    [
        (SymmetricRoot(MarchenkoPastur(0.4, 2.0)), 1e-9),
        (SymmetricRoot(MarchenkoPastur(4, 2.0)), 1e-9),
        (SymmetricRoot(MarchenkoPastur(1, 2.0)), 1e-9),
        (SymmetricRoot(Atomic([0, 0.3, 2], [0.2, 0.3, 0.5])), 1e-9),
        (SymmetricRoot(Affine(Wachter(0.7, 1.6), 2, 0.5)), 1e-9),
        (SymmetricRoot(CHAIN), 1e-9),
        (Square(Semicircle(3)), 1e-6),
        (Square(Semicircle(0.5, -3)), 1e-9),
        (Square(ATOMS), 1e-9),
        (Square(Affine(Wachter(0.7, 1.6), -1, -0.5)), 1e-9),
        (Square(SymmetricRoot(Uniform(1, 2))), 1e-9),
        # inside the support the density jumps or begins: quadrature knows nothing of that
        (Square(Uniform(-1, 2)), 1e-3),
        (Square(Affine(MarchenkoPastur(4, 2.0), -1.5, 0.7)), 1e-3),
        (Inverse(Uniform(1, 2)), 1e-9),
        (Inverse(MarchenkoPastur(0.5, 3.0)), 1e-9),
        (Inverse(Affine(MarchenkoPastur(4, 2.0), -1, 0.3)), 1e-9),
        (Inverse(ATOMS), 1e-9),
        (Inverse(Inverse(MarchenkoPastur(0.3, 2.0))), 1e-9),
        (Inverse(CHAIN + 0.5), 1e-9),
    ],
    ids=repr,
)
def test_contract(law, tolerance):
    check_contract(law, tolerance=tolerance)


@pytest.mark.parametrize(
    ("law", "same", "mass"),
    [
        (SymmetricRoot(MarchenkoPastur(1, 3.0)), Semicircle(3), 1e-14),
        (SymmetricRoot(Square(Semicircle(3))), Semicircle(3), 1e-14),
        (SymmetricRoot(FussCatalan(1)), Semicircle(1), 1e-13),
        (Square(Semicircle(3)), MarchenkoPastur(1, 3.0), 1e-14),
        (Square(SymmetricRoot(Uniform(1, 2))), Uniform(1, 2), 1e-14),
        (Square(SymmetricRoot(MarchenkoPastur(4, 2.0))), MarchenkoPastur(4, 2.0), 1e-14),
        (Inverse(Inverse(MarchenkoPastur(0.3, 2.0))), MarchenkoPastur(0.3, 2.0), 1e-14),
        (Inverse(Inverse(Affine(MarchenkoPastur(4, 2.0), -1, 0.3))), Affine(MarchenkoPastur(4, 2.0), -1, 0.3), 1e-14),
        (Inverse(-Uniform(1, 2)), -Inverse(Uniform(1, 2)), 1e-14),
    ],
    ids=repr,
)
def test_known_images(law, same, mass):
    low, high = same.support()[0][0], same.support()[-1][1]
    unit = max(abs(low), abs(high))
    np.testing.assert_allclose(law.support(), same.support(), rtol=1e-13)
    assert np.shape(law.atoms()) == np.shape(same.atoms())
    np.testing.assert_allclose(law.atoms(), same.atoms(), rtol=1e-13)
    x = np.linspace(low - 0.3, high + 0.3, 301)
    inner = x[(x < low) | (x > low + 1e-3 * unit)]
    np.testing.assert_allclose(law.pdf(inner), same.pdf(inner), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(law.cdf(x), same.cdf(x), atol=mass)
    np.testing.assert_allclose(law.partial_mean(x), same.partial_mean(x), atol=4 * mass * unit)
    q = np.array([0, *np.linspace(0.003, 0.997, 41), 1])  # none at the level of a gap
    np.testing.assert_allclose(law.ppf(q), same.ppf(q), atol=1e-12 * unit)
    z = np.array([0.3 + 0.2j, -0.2 + 1e-3j, -0.5 - 2j, low - 1, high + 2, 1e3j, -1e20])
    np.testing.assert_allclose(law.cauchy(z), same.cauchy(z), rtol=1e-11)
    z = z[z.imag >= 0]
    for found, expected in zip(law._cauchy_and_slope(z), same._cauchy_and_slope(z), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    for k in range(9):
        assert law.moment(k) == pytest.approx(same.moment(k), rel=1e-10, abs=1e-13)


def _uniform(low, high):
    return lambda z: (mpmath.log(z - low) - mpmath.log(z - high)) / (high - low)


def _root(g):
    return lambda z: z * g(z * z)


def _square(g):
    return lambda z: (g(mpmath.sqrt(z)) - g(-mpmath.sqrt(z))) / (2 * mpmath.sqrt(z))


def _inverse(g):
    return lambda z: 1 / z - g(1 / z) / z**2


# next to the spectrum, next to 0, far out
POINTS = [0.3 + 0.2j, 1.3 + 1e-9j, -0.3 + 0.1j, 1e-3 + 1e-4j, 0.05j, 1e-9j, 1e4 + 1e5j, 1e8j, -1e12]


@pytest.mark.parametrize(
    ("law", "exact"),
    [
        (SymmetricRoot(Uniform(0.5, 3)), _root(_uniform(0.5, 3))),
        (SymmetricRoot(Uniform(0, 3)), _root(_uniform(0, 3))),
        (Square(Uniform(-1, 2)), _square(_uniform(-1, 2))),
        (Square(Uniform(1, 2)), _square(_uniform(1, 2))),
        (Inverse(Uniform(1, 2)), _inverse(_uniform(1, 2))),
        (Inverse(Uniform(-3, -0.5)), _inverse(_uniform(-3, -0.5))),
    ],
    ids=lambda value: repr(value) if isinstance(value, Law) else "exact",
)
def test_transform_to_the_last_digits(law, exact):
    value, slope = transform_errors(law, exact, POINTS)
    assert value < 2e-15
    assert slope < 2e-14


def test_transform_at_zero_and_at_infinity():
    law = Inverse(Uniform(1, 2))
    np.testing.assert_allclose(law.cauchy([0, 1e-300, 1e300]), [-1.5, -1.5, 1e-300], rtol=1e-15)
    assert law._cauchy_and_slope(np.zeros(1, dtype=complex))[1][0] == pytest.approx(-7 / 3)
    # E[1/x²] = 1/2
    np.testing.assert_allclose(Square(Uniform(1, 2)).cauchy([0, -1e-300, 1e300]), [-0.5, -0.5, 1e-300], rtol=1e-15)
    np.testing.assert_allclose(SymmetricRoot(Uniform(1, 2)).cauchy([0, 1e300, 1e-200j]), [0, 1e-300, 0], atol=1e-199)
    for each in (law, Square(ATOMS), SymmetricRoot(Uniform())):
        assert each.cauchy(np.inf) == 0


def test_inverse_of_the_uniform_law():
    law = Inverse(Uniform(1, 2))
    y = np.linspace(0.5, 1, 30)
    np.testing.assert_allclose(law.pdf(y), 1 / y**2, rtol=1e-15)
    np.testing.assert_allclose(law.cdf(y), 2 - 1 / y, atol=1e-15)
    np.testing.assert_allclose(law.partial_mean(y), np.log(2 * y), atol=1e-15)
    for k in (2, 3, 10, 100):
        assert law.moment(k) == pytest.approx((1 - 2.0 ** (1 - k)) / (k - 1), rel=1e-13)
    assert law.mean() == pytest.approx(math.log(2), rel=1e-15)
    with pytest.raises(ParameterError, match="exceeds the largest float"):
        Inverse(Uniform(1e-9, 2e-9)).moment(40)


@pytest.mark.parametrize("ratio", [0.5, 0.9, 0.999])
def test_inverse_wishart(ratio):
    law, gap = Inverse(MarchenkoPastur(ratio)), 1 - ratio
    assert law.mean() == pytest.approx(1 / gap, rel=1e-13)
    assert law.partial_mean(np.inf) == pytest.approx(1 / gap, rel=1e-12)
    assert law.moment(2) == pytest.approx(1 / gap**3, rel=1e-12)
    assert law.moment(3) == pytest.approx((1 + ratio) / gap**5, rel=1e-12)


def test_zero_in_a_gap():
    law = Inverse(SymmetricRoot(Uniform(1, 4)))
    assert law.support() == [(-1.0, -0.5), (0.5, 1.0)]
    assert law.cdf([-0.5, 0, 0.5]).tolist() == [0.5, 0.5, 0.5]
    assert law.ppf([0, 0.5, 0.5 + 1e-12, 1]) == pytest.approx([-1, -0.5, 0.5, 1], rel=1e-10)
    assert law.moment(2) == pytest.approx(math.log(4) / 3, rel=1e-14)
    assert law.moment(1) == pytest.approx(0, abs=1e-15)


def _mass_between(law):
    """Density integrated between neighbouring breakpoints, against the distribution function there."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    ends = [x for interval in law.support() for x in interval]
    shrinking = [a + (b - a) * 0.5 ** np.arange(1, 40) for a, b in law.support()]
    shrinking += [b - (b - a) * 0.5 ** np.arange(1, 40) for a, b in law.support()]
    cuts = np.unique(np.concatenate([law._breakpoints(), ends, *shrinking]))
    half = 0.5 * np.diff(cuts)
    x = cuts[:-1, None] + half[:, None] * (1 + nodes)
    mass = (law.pdf(x) * weights).sum(axis=1) * half
    # at a crowded point the panel itself is left to the distribution function
    wide = half > 1e-11 * np.abs(cuts).max()
    return mass[wide], np.diff(law.cdf(cuts))[wide]


@pytest.mark.parametrize(
    "law",
    [
        SymmetricRoot(FussCatalan(2)),
        SymmetricRoot(CHAIN),
        SymmetricRoot(Uniform(0, 2)),
        Square(Uniform(-1, 2)),
        Square(Affine(CHAIN, 1, -1.2)),
        Square(Arcsine(-1, 2)),
        Inverse(CHAIN + 0.01),
        Inverse(FromDensity(lambda x: 6 * (x - 1) * (2 - x), (1, 2))),
    ],
    ids=repr,
)
def test_density_is_smooth_between_the_breakpoints(law):
    mass, difference = _mass_between(law)
    np.testing.assert_allclose(mass, difference, rtol=0, atol=1e-12)
    assert mass.sum() == pytest.approx(1, abs=1e-4)


def test_partial_mean_of_the_roots_against_quadrature():
    x = np.array([0.01, 0.1, 0.5, 1, 2, 9])
    for squares in (CHAIN, FussCatalan(2), MarchenkoPastur(3, 0.5)):
        law, one_sided = SymmetricRoot(squares), SingularValueLaw(squares)
        expected = 0.5 * one_sided.partial_mean(x)
        np.testing.assert_allclose(law.partial_mean(x) - law.partial_mean(0), expected, atol=1e-13)
        np.testing.assert_allclose(law.partial_mean(-np.nextafter(x, 9)), law.partial_mean(x), atol=1e-13)


def test_density_at_zero():
    assert SymmetricRoot(Uniform(0, 1)).pdf(0) == 0
    assert SymmetricRoot(MarchenkoPastur(1, 4)).pdf(0) == pytest.approx(1 / (2 * math.pi))
    assert SymmetricRoot(FussCatalan(2)).pdf(0) == math.inf
    assert SymmetricRoot(MarchenkoPastur(0.5)).pdf(0) == 0
    assert Square(Semicircle(2)).pdf(0) == math.inf
    assert Square(SymmetricRoot(Uniform(0, 1))).pdf(0) == pytest.approx(1)
    assert Square(Uniform(1, 2)).pdf(0) == 0


def test_edges_are_met_exactly():
    law = SymmetricRoot(Uniform(0.3, 0.7))
    low, high = law.support()[1]
    outside = np.array([np.nextafter(low, 0), np.nextafter(high, 1)])
    assert law.pdf(np.append(outside, -outside)).tolist() == [0, 0, 0, 0]
    assert (law.pdf([low, high, -low, -high]) > 1).all()
    hard = Square(Arcsine(-1, math.sqrt(3)))
    assert hard.pdf([1, hard.support()[0][1]]).tolist() == [math.inf, math.inf]
    assert hard.pdf(np.nextafter(hard.support()[0][1], 9)) == 0
    third = Inverse(Arcsine(0.3, 0.7))
    assert third.pdf(third.support()[0]).tolist() == [math.inf, math.inf]


def test_atoms_split_and_meet():
    roots = SymmetricRoot(Atomic([0, 4], [0.25, 0.75]))
    assert roots.atoms() == [(-2.0, 0.375), (0.0, 0.25), (2.0, 0.375)]
    assert Square(roots).atoms() == [(0.0, 0.25), (4.0, 0.75)]
    assert Square(roots).support() == []
    assert Inverse(Atomic([-2, 4], [0.25, 0.75])).atoms() == [(-0.5, 0.25), (0.25, 0.75)]
    # neighbouring floats have the same root
    assert SymmetricRoot(Empirical([1, np.nextafter(1, 2)])).atoms() == [(-1.0, 0.5), (1.0, 0.5)]
    # an atom that falls inside an interval
    law = Square(Affine(MarchenkoPastur(4, 1.0), 1, -2))
    assert law.atoms() == [(4.0, 0.75)]
    assert law.ppf(law.cdf(4)) == 4
    assert law.cdf(4) - law.cdf(np.nextafter(4, 0)) == pytest.approx(0.75, abs=1e-14)
    assert law.support() == [(0.0, 49.0)]


def test_matrices():
    root = SymmetricRoot(MarchenkoPastur(0.5)).matrix(6, 3)
    assert (root[:3, :3] == 0).all()
    np.testing.assert_allclose(root[:3, 3:] @ root[3:, :3], MarchenkoPastur(0.5).matrix(3, 3), atol=1e-14)
    inner = Semicircle(2, 5)
    np.testing.assert_allclose(Square(inner).matrix(5, 7), inner.matrix(5, 7) @ inner.matrix(5, 7), rtol=1e-13)
    np.testing.assert_allclose(Inverse(inner).matrix(5, 7) @ inner.matrix(5, 7), np.eye(5), atol=1e-13)


def test_comparison_with_a_sample():
    law = SymmetricRoot(CHAIN)
    result = compare(law, np.linalg.eigvalsh(law.matrix(400, 5)))
    assert result.ks < 0.02
    assert result.wasserstein < 0.02


def test_copies():
    law = pickle.loads(pickle.dumps(Square(Uniform(-1, 2))))
    assert law.partial_mean(9) == pytest.approx(1)
    assert repr(law) == "Square(Uniform(low=-1, high=2))"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SymmetricRoot(3), "squares must be a Law"),
        (lambda: SymmetricRoot(Uniform(-1, 1)), r"squares must be a law on \[0, inf\).*reaches -1.0"),
        (lambda: SymmetricRoot(ATOMS), r"squares must be a law on \[0, inf\)"),
        (lambda: SymmetricRoot(Uniform(1, np.nextafter(1, 2))), "stay apart"),
        (lambda: Square("a"), "law must be a Law"),
        (lambda: Square(Uniform(1, 1e200)), "finite and stay apart"),
        (lambda: Square(Uniform(1e-300, 1e-299)), "finite and stay apart"),
        (lambda: Square(Atomic([1e200])), "atoms whose squares are floats"),
        (lambda: Inverse(None), "law must be a Law"),
        (lambda: Inverse(MarchenkoPastur(1)), "keep away from 0"),
        (lambda: Inverse(Semicircle()), "keep away from 0"),
        (lambda: Inverse(MarchenkoPastur(2)), "must not charge 0"),
        (lambda: Inverse(Atomic([1e-320])), "atoms whose inverses are floats"),
        (lambda: Inverse(Uniform(1, np.nextafter(1, 2))), None),
    ],
)
def test_bad_parameters(build, message):
    if message is None:
        assert build().support()[0][0] < 1
        return
    with pytest.raises(ParameterError, match=message):
        build()


def test_digits_are_refused():
    with pytest.raises(ParameterError, match="dps must be None for Square"):
        Square(Semicircle()).pdf(1, dps=30)


def test_a_rough_law_is_refused_rather_than_integrated_wrongly():
    class Rough(Uniform):
        def _cdf(self, x):
            return np.floor(7 * super()._cdf(x) ** 1.3) / 7

    with pytest.raises(CertificationError, match=r"partial mean of SymmetricRoot.*uncertain"):
        SymmetricRoot(Rough(1, 2)).partial_mean(0.5)
