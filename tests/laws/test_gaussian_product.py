"""Products of Gaussian matrices: Fuss–Catalan numbers, the density of Penson and Życzkowski, edges, the S-transform."""

from __future__ import annotations

import math
import pickle
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from gequiv import ParameterError
from gequiv.laws import FussCatalan, GaussianProduct, MarchenkoPastur
from tests.laws.contract import check_contract

ORDER = 7


def exact_moments(ratios, variance, order=ORDER):
    r"""By Lagrange: :math:`m_k = v^k/k\\,[u^{k-1}]\\,((1+u) \\prod (1 + c_i u))^k`, in fractions."""
    result = []
    for k in range(1, order + 1):
        series = [Fraction(1)] + [Fraction(0)] * (k - 1)
        for c in [Fraction(1), *ratios] * k:
            series = [a + c * b for a, b in zip(series, [0, *series], strict=False)]
        result.append(Fraction(variance) ** k * series[k - 1] / k)
    return result


@pytest.mark.parametrize(
    ("sizes", "variance", "tolerance"),
    [
        ([1, 2, 4], 3, 1e-9),
        ([1, 2, 0.5], 0.25, 1e-9),  # an atom of one half: N_2 is the smallest
        ([4, 3, 2, 7], 1e-3, 1e-9),
        ([1, 3], 5, 1e-9),
        ([1, 1, 2], 3, 1e-9),  # one hard edge, x^(-1/2)
    ],
)
def test_contract(sizes, variance, tolerance):
    check_contract(GaussianProduct(sizes, variance), tolerance=tolerance)


@pytest.mark.parametrize(
    ("law", "tolerance"),
    [(FussCatalan(1), 1e-9), (FussCatalan(2), 1e-7), (GaussianProduct([1, 1, 1, 1], 7), 3e-6)],
)
def test_contract_at_hard_edges(law, tolerance):
    """x^(-s/(s+1)) at 0 leaves the contract's quadrature short of digits, not the law."""
    check_contract(law, tolerance=tolerance, slope=1e-6)


@pytest.mark.parametrize(
    ("sizes", "variance"),
    [([1, 2, 1], 1), ([1, 2, 4], 3), ([2, 1, 8], 0.25), ([1, 4, 2, 0.5, 8], 2), ([8, 1, 2, 1], 1), ([1, 3], 5)],
)
def test_moments(sizes, variance):
    law = GaussianProduct(sizes, variance)
    exact = exact_moments([Fraction(sizes[0]) / Fraction(size) for size in sizes[1:]], variance)
    for k, want in enumerate(exact, 1):
        assert law.moment(k) == pytest.approx(float(want), rel=1e-13)
    assert law.mean() == pytest.approx(variance, rel=1e-14)
    # the variance in units of v²: Σ c_i
    assert law.variance() / variance**2 == pytest.approx(sum(sizes[0] / size for size in sizes[1:]), rel=1e-12)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5, 7])
def test_fuss_catalan_numbers_and_edge(order):
    law = FussCatalan(order)
    for k in range(12):
        number = Fraction(math.comb((order + 1) * k, k), order * k + 1)
        assert number.denominator == 1
        assert law.moment(k) == float(number)
        # not by the closed form: from the curve
        assert GaussianProduct.moment(law, k) == pytest.approx(float(number), rel=1e-12)
    ((low, high),) = law.support()
    assert low == 0
    assert high == pytest.approx((order + 1) ** (order + 1) / order**order, rel=1e-15)
    assert law.atoms() == []
    # the top moments: x_max^k up to a power of k
    assert law.moment(60) ** (1 / 60) < high


def penson_zyczkowski(x):
    """P_2 on (0, 27/4), in mpmath."""
    x = mpmath.mpf(x)
    two, base = mpmath.cbrt(2), 27 + 3 * mpmath.sqrt(81 - 12 * x)
    power = mpmath.cbrt(base)
    return (
        two * mpmath.sqrt(3) / (12 * mpmath.pi) * (two * power**2 - 6 * mpmath.cbrt(x)) / (mpmath.cbrt(x) ** 2 * power)
    )


def test_order_two_has_the_density_of_penson_and_zyczkowski():
    law = FussCatalan(2)
    x = np.concatenate([10.0 ** -np.arange(0, 30, 3), [0.3, 1.7, 4.0, 6.0, 6.7, 6.7499]])
    with mpmath.workdps(40):
        exact = np.array([float(penson_zyczkowski(float(value))) for value in x])
    np.testing.assert_allclose(law.pdf(x), exact, rtol=2e-13)
    # mass from the density: x = t³ takes the hard edge out
    with mpmath.workdps(30):
        for value in (1e-6, 0.1, 3.0):
            mass = mpmath.quad(lambda t: 3 * t**2 * penson_zyczkowski(t**3), [0, mpmath.cbrt(value)])
            assert law.cdf(value) == pytest.approx(float(mass), rel=1e-13)
            mean = mpmath.quad(lambda t: 3 * t**5 * penson_zyczkowski(t**3), [0, mpmath.cbrt(value)])
            assert law.partial_mean(value) == pytest.approx(float(mean), rel=1e-12)
    assert law.pdf(0) == np.inf
    assert law.pdf([-1e-300, np.nextafter(6.75, 7)]).tolist() == [0, 0]


@pytest.mark.parametrize("order", [2, 3, 5])
def test_density_on_the_parametrised_curve(order):
    r"""x = sin^{s+1}((s+1)φ)/(sin φ sin^s(sφ)), density sin²φ sin^{s-1}(sφ)/(π sin^s((s+1)φ)) (Haagerup and Möller)."""
    law, s = FussCatalan(order), order
    phi = np.pi / (s + 1) * np.array([1e-3, 0.05, 0.3, 0.5, 0.8, 0.97])
    top, middle = np.sin((s + 1) * phi), np.sin(s * phi)
    x = top ** (s + 1) / (np.sin(phi) * middle**s)
    np.testing.assert_allclose(law.pdf(x), np.sin(phi) ** 2 * middle ** (s - 1) / (np.pi * top**s), rtol=1e-9)
    np.testing.assert_allclose(
        law.pdf(x[1:]), (np.sin(phi) ** 2 * middle ** (s - 1) / (np.pi * top**s))[1:], rtol=1e-11
    )


def test_order_one_is_marchenko_pastur():
    law, same = FussCatalan(1), MarchenkoPastur(1)
    x = np.array([1e-12, 1e-3, 0.5, 2, 3.9, 3.9999])
    np.testing.assert_allclose(law.pdf(x), same.pdf(x), rtol=1e-12)
    np.testing.assert_allclose(law.cdf(x), same.cdf(x), rtol=1e-12, atol=1e-16)
    np.testing.assert_allclose(law.partial_mean(x), same.partial_mean(x), rtol=1e-12, atol=1e-16)
    q = np.array([1e-6, 0.1, 0.5, 0.999])
    np.testing.assert_allclose(law.ppf(q), same.ppf(q), rtol=1e-10)


@pytest.mark.parametrize(("ratio", "variance"), [(0.5, 3), (2, 0.25)])
def test_one_factor_is_marchenko_pastur(ratio, variance):
    law, same = GaussianProduct([ratio, 1], variance), MarchenkoPastur(ratio, variance)
    (low, high), = same.support()  # fmt: skip
    assert law.support()[0] == pytest.approx((low, high), rel=1e-14)
    np.testing.assert_allclose(np.reshape(law.atoms(), -1), np.reshape(same.atoms(), -1), rtol=1e-15)
    x = low + (high - low) * np.linspace(0.01, 0.99, 23)
    np.testing.assert_allclose(law.pdf(x), same.pdf(x), rtol=1e-12)
    np.testing.assert_allclose(law.cdf(x), same.cdf(x), rtol=0, atol=1e-14)


@pytest.mark.parametrize("sizes", [[1, 2, 4], [3, 2, 1], [1, 1, 2], [2, 1, 1]])
def test_transform_solves_its_equation(sizes):
    """zu = v (1+u) Π (1 + c_i u) for u = zG - 1."""
    v = 0.5
    law = GaussianProduct(sizes, v)
    top = law.support()[-1][1]
    for z in top * np.array([0.3 + 1e-12j, 0.9 + 1e-9j, 0.2 + 0.2j, 5 + 1j, -3.0, 2.0, 1e4j, 0.4 - 0.1j]):
        u = z * law.cauchy(z) - 1
        right = v * (1 + u) * math.prod(1 + sizes[0] / size * u for size in sizes[1:])
        assert z * u == pytest.approx(right, rel=1e-9)


def test_order_of_the_inner_sizes_does_not_matter():
    first, second = GaussianProduct([2, 3, 5, 7]), GaussianProduct([2, 7, 3, 5])
    assert first.support()[0] == pytest.approx(second.support()[0], rel=1e-13)
    x = np.linspace(*first.support()[0], 20)[1:-1]
    np.testing.assert_allclose(first.pdf(x), second.pdf(x), rtol=1e-12)
    scaled = GaussianProduct([20, 30, 50, 70])
    np.testing.assert_allclose(scaled.pdf(x), first.pdf(x), rtol=1e-12)


def test_atom():
    """1 - min N_i/N_0."""
    assert GaussianProduct([1, 2, 3]).atoms() == []
    assert GaussianProduct([1, 1, 1]).atoms() == []
    np.testing.assert_allclose(GaussianProduct([8, 6, 2, 4]).atoms(), [(0, 0.75)], rtol=1e-15)
    law = GaussianProduct([8, 6, 2, 4])
    assert law.cdf(0) == pytest.approx(0.75, abs=1e-15)
    assert law.support()[0][0] > 0


def test_equal_smallest_sizes_diverge():
    """k of the N_i equal to N_0, none smaller: x^(-k/(k+1)); the slope of log ρ between 1e-30 and 1e-24."""
    for sizes, k in (([1, 1, 3], 1), ([1, 1, 3, 1], 2), ([1, 2, 1, 1, 1], 3), ([1, 1, 1, 1, 1, 1, 1], 6)):
        law = GaussianProduct(sizes, 2)
        assert law.support()[0][0] == 0
        low, high = law.pdf([1e-30, 1e-24])
        assert math.log(high / low) / math.log(1e6) == pytest.approx(-k / (k + 1), abs=2e-3)


def test_nearly_equal_sizes():
    """A small gap, but no singularity in double precision: one factor alone and [1, 1.01, 3] are accepted."""
    size = 1.001
    law = GaussianProduct([1, size, 3])
    assert law.support()[0][0] > 0
    for k, want in enumerate(exact_moments([1 / Fraction(size), Fraction(1, 3)], 1), 1):
        assert law.moment(k) == pytest.approx(float(want), rel=1e-12)


@pytest.mark.parametrize(("sizes", "variance"), [([1, 2, 1], 3), ([4, 8, 2], 0.5)])
def test_matrix(sizes, variance):
    """Moments of four matrices of size 300: within 8/n of the law's."""
    law, n = GaussianProduct(sizes, variance), 300
    drawn = np.concatenate([np.linalg.eigvalsh(law.matrix(n, seed)) for seed in range(4)])
    for k in (1, 2, 3):
        assert np.mean(drawn**k) == pytest.approx(law.moment(k), rel=8 * k * k / n)
    weight = sum(w for _, w in law.atoms())
    assert (np.abs(drawn) < 1e-10 * drawn.max()).sum() == 4 * round(weight * n)


def test_repr_and_pickle():
    law = GaussianProduct([1, 2.5, 1], 3)
    assert repr(law) == "GaussianProduct([1, 2.5, 1], variance=3)"
    again = pickle.loads(pickle.dumps(law))
    assert (type(again), repr(again), again.pdf(0.7)) == (GaussianProduct, repr(law), law.pdf(0.7))
    square = FussCatalan(2)
    assert repr(square) == "FussCatalan(2)"
    again = pickle.loads(pickle.dumps(square))
    assert (type(again), again.order, again.pdf(0.7)) == (FussCatalan, 2, square.pdf(0.7))


def test_empty_input():
    for law in (FussCatalan(2), GaussianProduct([1, 2, 0.5])):
        for method in (law.pdf, law.cdf, law.ppf, law.partial_mean, law.cauchy):
            assert method([]).shape == (0,)
            assert method(np.empty((2, 0))).shape == (2, 0)


@pytest.mark.parametrize("sizes", [[], [1], 5, "12", None])
def test_sizes_are_at_least_two(sizes):
    with pytest.raises(ParameterError, match="sizes must be at least two"):
        GaussianProduct(sizes)


@pytest.mark.parametrize("bad", [0, -1, math.inf, math.nan, "a", True, None, 1j])
def test_numbers_are_checked(bad):
    with pytest.raises(ParameterError, match=r"sizes\[1\]"):
        GaussianProduct([1, bad, 2])
    with pytest.raises(ParameterError, match="variance"):
        GaussianProduct([1, 2], bad)


@pytest.mark.parametrize("order", [0, -1, 1.5, "a", True, None])
def test_order_is_checked(order):
    with pytest.raises(ParameterError, match="order"):
        FussCatalan(order)


def test_moment_order_is_checked():
    with pytest.raises(ParameterError, match="k must be an integer"):
        FussCatalan(2).moment(-1)
    with pytest.raises(ParameterError, match="too large"):
        FussCatalan(2).moment(2000)
