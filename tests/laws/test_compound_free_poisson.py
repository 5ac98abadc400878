"""Compound free Poisson laws: exact free cumulants, the scaled Marchenko–Pastur law, the defining equation."""

from __future__ import annotations

import pickle
from fractions import Fraction

import numpy as np
import pytest

from gequiv import CertificationError, ParameterError, laws
from gequiv.free.cumulants import moments
from gequiv.laws import CompoundFreePoisson, MarchenkoPastur
from tests.laws.contract import check_contract

ORDER = 8


@pytest.mark.parametrize(
    ("rate", "locations", "weights"),
    [
        (2.5, [0.5, 3.0], [0.75, 0.25]),  # one interval away from 0
        (0.5, [1, 5], [0.3, 0.7]),  # an atom of one half
        (0.25, [1, 40], [0.5, 0.5]),  # two intervals and an atom
        (1.5, [-1, 2], [0.5, 0.5]),  # jumps of both signs
        (0.75, [-30, -1], [0.1, 0.9]),  # below 0
        (1, [1, 3], None),  # a hard edge at 0
    ],
)
def test_contract(rate, locations, weights):
    check_contract(CompoundFreePoisson(rate, locations, weights), tolerance=1e-8)


def exact_moments(rate, jumps, order=ORDER):
    """From the free cumulants λ Σ w_j a_j^k, in fractions."""
    return moments([rate * sum(w * a**k for a, w in jumps) for k in range(1, order + 1)])


@pytest.mark.parametrize(
    ("rate", "jumps"),
    [
        (Fraction(5, 2), [(Fraction(1, 2), Fraction(3, 4)), (Fraction(3), Fraction(1, 4))]),
        (Fraction(1, 2), [(-1, Fraction(1, 2)), (2, Fraction(1, 4)), (5, Fraction(1, 4))]),
        (Fraction(1), [(Fraction(1), Fraction(1, 2)), (Fraction(3), Fraction(1, 2))]),
        (Fraction(1, 8), [(Fraction(-1), Fraction(1, 2)), (Fraction(1), Fraction(1, 2))]),
        (Fraction(64), [(Fraction(1), Fraction(1, 2)), (Fraction(-3), Fraction(1, 2))]),
    ],
)  # fmt: skip
def test_moments_from_free_cumulants(rate, jumps):
    law = CompoundFreePoisson(rate, [float(a) for a, _ in jumps], [float(w) for _, w in jumps])
    exact = exact_moments(rate, jumps)
    for k in range(1, ORDER + 1):
        even = k + k % 2
        size = float(exact[even - 1]) ** (k / even) if even <= ORDER else float(exact[k - 2]) ** (k / (k - 1))
        assert abs(law.moment(k) - float(exact[k - 1])) <= 2e-13 * size
    assert law.mean() == pytest.approx(float(rate * sum(a * w for a, w in jumps)), abs=1e-13 * float(exact[1]) ** 0.5)
    assert law.variance() == pytest.approx(float(rate * sum(a * a * w for a, w in jumps)), rel=1e-11)


@pytest.mark.parametrize(("rate", "jump"), [(2, 0.5), (0.5, 3), (4, -0.25), (0.125, -8), (1.5, 1)])
def test_one_jump_is_marchenko_pastur(rate, jump):
    """Ratio 1/λ and mean λa."""
    law, same = CompoundFreePoisson(rate, [jump]), MarchenkoPastur(1 / rate, rate * abs(jump))
    sign = np.sign(jump)
    ((low, high),) = same.support()
    assert law.support()[0] == pytest.approx(tuple(sorted((sign * low, sign * high))), rel=1e-14)
    np.testing.assert_allclose(law.atoms(), same.atoms(), rtol=1e-14)
    x = low + (high - low) * np.array([1e-6, 0.01, 0.3, 0.7, 0.99, 1 - 1e-6])
    np.testing.assert_allclose(law.pdf(sign * x), same.pdf(x), rtol=1e-8)  # the edge's last digit
    np.testing.assert_allclose(law.pdf(sign * x[1:-1]), same.pdf(x[1:-1]), rtol=1e-12)
    mass = same.cdf(x)
    if sign > 0:
        np.testing.assert_allclose(law.cdf(x), mass, rtol=0, atol=1e-13)
    else:
        np.testing.assert_allclose(law.cdf(-x), 1 - mass, rtol=0, atol=1e-13)
    z = np.array([0.3 + 0.2j, 2 + 1e-3j, -5 + 1j, 1e6j]) * high
    np.testing.assert_allclose(law.cauchy(z), sign * same.cauchy(sign * z), rtol=1e-12)


def test_weak_jumps_of_both_signs_make_the_semicircle():
    """Many small jumps ±a with λa² = 1: κ_4 = a² vanishes."""
    jump = 1e-4
    law = CompoundFreePoisson(1 / jump**2, [-jump, jump])
    x = np.linspace(-1.9, 1.9, 41)
    np.testing.assert_allclose(law.pdf(x), laws.Semicircle().pdf(x), rtol=1e-6)


def test_transform_solves_its_equation():
    """z = 1/G + λ Σ w a/(1 - aG), and the density is its imaginary part."""
    rate, jumps = 0.7, [(-2.0, 0.3), (0.5, 0.3), (3.0, 0.4)]
    law = CompoundFreePoisson(rate, [a for a, _ in jumps], [w for _, w in jumps])
    inside = np.concatenate([a + (b - a) * np.linspace(0.05, 0.95, 9) for a, b in law.support()])
    for z in [*(inside + 1e-12j), 0.3 + 0.2j, -4.0 + 0j, 40.0 + 0j, 1e-3 - 1j]:
        g = law.cauchy(z)
        assert 1 / g + rate * sum(w * a / (1 - a * g) for a, w in jumps) == pytest.approx(z, rel=1e-10, abs=1e-10)
    np.testing.assert_allclose(law.pdf(inside), -law.cauchy(inside + 1e-13j).imag / np.pi, rtol=1e-9)


def test_atom_is_at_zero_exactly():
    law = CompoundFreePoisson(0.7, [-2.0, 0.5, 3.0], [0.3, 0.3, 0.4])
    assert law.cdf(0) - law.cdf(-1e-300) == pytest.approx(0.3, abs=1e-14)
    assert law.atoms()[0][0] == 0


def test_jumps_at_zero_count_as_none():
    law, same = CompoundFreePoisson(2, [0, 1, 3], [0.5, 0.25, 0.25]), CompoundFreePoisson(1, [1, 3])
    assert law.support()[0] == pytest.approx(same.support()[0], rel=1e-14, abs=1e-18)
    np.testing.assert_allclose(law.pdf([0.5, 2, 8]), same.pdf([0.5, 2, 8]), rtol=1e-13)
    light = CompoundFreePoisson(1.5, [0, 2], [0.5, 0.5])
    np.testing.assert_allclose(light.atoms(), [(0.0, 0.25)], rtol=1e-14)


@pytest.mark.parametrize(("rate", "locations"), [(0.5, [1, 5]), (1.5, [-1, 2])])
def test_matrix_is_a_sample_covariance(rate, locations):
    """Moments of 4 matrices of size 300: within 8/n of the law's, relative."""
    law, n = CompoundFreePoisson(rate, locations), 300
    drawn = np.concatenate([np.linalg.eigvalsh(law.matrix(n, seed)) for seed in range(4)])
    assert (np.abs(drawn) < 1e-9).sum() == (4 * round((1 - rate) * n) if rate < 1 else 0)
    for k in (1, 2, 3):
        assert np.mean(drawn**k) == pytest.approx(law.moment(k), abs=8 / n * law.moment(4) ** (k / 4))


def test_repr_pickle_and_attributes():
    law = CompoundFreePoisson(0.5, [5, 1], [0.7, 0.3])
    assert repr(law) == "CompoundFreePoisson(rate=0.5, Atomic(1: 0.3, 5: 0.7))"
    again = pickle.loads(pickle.dumps(law))
    assert (type(again), repr(again)) == (CompoundFreePoisson, repr(law))
    assert again.support() == law.support()
    assert again.pdf(1.3) == law.pdf(1.3)
    assert law.rate == 0.5
    assert law.certificate.mass_error < 1e-12
    assert law.certificate.half_plane > 0


@pytest.mark.parametrize("rate", [0, -1, "a", True, np.inf, np.nan, None, [1]])
def test_rate_is_checked(rate):
    with pytest.raises(ParameterError, match="rate"):
        CompoundFreePoisson(rate, [1])


@pytest.mark.parametrize(
    ("locations", "weights", "message"),
    [
        ([0], None, "locations must not all be 0"),
        ([0, 1], [1, 0], "locations must not all be 0"),
        ([], None, "locations"),
        ([1, np.nan], None, "locations"),
        ([1, np.inf], None, "locations"),
        (1, None, "locations"),
        ([1, 2], [0.5, 0.4], "weights must sum to 1"),
        ([1, 2], [1.5, -0.5], "weights must be at least 0"),
        ([1, 2], [1.0], "weights must be as many"),
    ],
)
def test_jumps_are_checked(locations, weights, message):
    with pytest.raises(ParameterError, match=message):
        CompoundFreePoisson(1.5, locations, weights)


def test_lower_edge_at_rate_one_is_zero():
    """Positive jumps make a positive law: its hard edge is 0 itself, where the density is infinite."""
    for jumps in ([2], [1, 3], [0.1, 7]):
        law = CompoundFreePoisson(1, jumps)
        assert law.support()[0][0] == 0
        assert law.cdf(0) == pytest.approx(0, abs=1e-16)
        assert law.pdf(0) == np.inf
        assert law.singular_values().support()[0][0] == 0


def test_gap_closes_at_the_cusp():
    """λ Σ w t² = 1 and λ Σ w t³ = -1 with t = aG/(1 - aG): for jumps 1 and 3, G and λ in closed form."""
    root = 9 ** (1 / 3)
    g = (1 + root) / (3 + root)
    rate = 1 / sum(0.5 * (a * g / (1 - a * g)) ** 2 for a in (1, 3))
    assert len(CompoundFreePoisson(rate * 0.999, [1, 3]).support()) != len(
        CompoundFreePoisson(rate * 1.001, [1, 3]).support()
    )
    try:
        law = CompoundFreePoisson(rate, [1, 3])
    except CertificationError:
        return  # refused, which is allowed at the cusp itself; a wrong law is not
    inside = 1 / g + rate * sum(0.5 * a / (1 - a * g) for a in (1, 3)) + 1e-3
    value = law.cauchy(inside + 1e-13j)
    assert 1 / value + rate * sum(0.5 * a / (1 - a * value) for a in (1, 3)) == pytest.approx(inside, rel=1e-9)
    assert -value.imag / np.pi == pytest.approx(law.pdf(inside), rel=1e-8)
