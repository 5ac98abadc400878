"""The law of the square roots: contract, quarter circle, consistency with the law of the squares."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gequiv import GaussianChainPlusNoise, MarchenkoPastur, ParameterError, SingularValueLaw
from gequiv.laws.base import Law
from tests.laws.contract import check_contract


@pytest.mark.parametrize(
    "law",
    [
        MarchenkoPastur(1, 2.3),
        MarchenkoPastur(0.4, 0.7),
        MarchenkoPastur(3),
        GaussianChainPlusNoise([0.5], 1, 1.0, 0.7),
        GaussianChainPlusNoise([0.05], 2, 1.0, 0.1),
    ],
)
def test_contract(law):
    check_contract(law.singular_values(), tolerance=1e-8)


def test_quarter_circle():
    """Square Marchenko–Pastur has the quarter circle √(4-s²)/π as its singular-value law."""
    law = MarchenkoPastur(1).singular_values()
    s = np.linspace(0.001, 1.999, 301)
    np.testing.assert_allclose(law.pdf(s), np.sqrt(4 - s**2) / math.pi, rtol=1e-12)
    assert law.pdf(0) == pytest.approx(2 / math.pi, rel=1e-8)
    np.testing.assert_allclose(law.cdf(s), (s * np.sqrt(4 - s**2) / 2 + 2 * np.arcsin(s / 2)) / math.pi, atol=1e-14)
    assert law.moment(1) == pytest.approx(8 / (3 * math.pi), rel=1e-10)
    assert law.moment(3) == pytest.approx(64 / (15 * math.pi), rel=1e-10)
    assert law.moment(2) == 1


def test_scaling_at_a_size_where_squares_overflow():
    law = GaussianChainPlusNoise([0.5], 1, 1e290, 1e293).singular_values()
    unit = GaussianChainPlusNoise([0.5], 1, 1e-3, 1.0).singular_values()
    factor = math.sqrt(1e293)
    assert law.moment(1) == pytest.approx(unit.moment(1) * factor, rel=1e-10)
    assert law.pdf(factor) == pytest.approx(unit.pdf(1.0) / factor, rel=1e-10)
    assert law.cdf(1e300) == 1


def test_negative_support_is_refused():
    class Shifted(MarchenkoPastur):
        def support(self):
            return [(-1.0, 2.0)]

    law: Law = Shifted(1)
    with pytest.raises(ParameterError, match=r"squares must be a law on \[0, inf\)"):
        SingularValueLaw(law)


def test_symmetrised_transform():
    """G₊(z) - G₊(-z) = 2z G(z²) ties the two laws together at any z."""
    law = GaussianChainPlusNoise([0.3], 0.8, 1.0, 0.4)
    roots = law.singular_values()
    for z in (0.5 + 0.3j, -0.2 + 1j, 2 + 1e-3j, 1j):
        assert roots.cauchy(z) - roots.cauchy(-z) == pytest.approx(2 * z * law.cauchy(z * z), rel=1e-8)
