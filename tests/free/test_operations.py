"""Free convolutions against closed forms, exact recursions of moments, and slow fixed-point twins."""

from __future__ import annotations

import functools
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gequiv import CertificationError, Comparison, ParameterError, free
from gequiv.free.cumulants import (
    free_cumulants,
    moments,
    moments_from_rectangular,
    rectangular_cumulants,
    s_series,
)
from gequiv.laws import (
    Affine,
    Arcsine,
    Atomic,
    CompoundFreePoisson,
    Empirical,
    FussCatalan,
    GaussianProduct,
    Inverse,
    KestenMcKay,
    MarchenkoPastur,
    Semicircle,
    Square,
    SymmetricRoot,
    Uniform,
    Wachter,
)

MP, SC = MarchenkoPastur, Semicircle
ORDER = 8
UPPER = np.array([0.3 + 0.2j, 1.0 + 1.0j, -0.5 + 0.15j, 2.0 + 0.1j, 0.05 + 0.5j, 6 + 2j])
PM = Atomic([-1, 1])

# -- exact moments, in fractions ----------------------------------------------------------------------------------


def atomic_moments(pairs, order=ORDER):
    return [sum(Fraction(w) * Fraction(a) ** k for a, w in pairs) for k in range(1, order + 1)]


def uniform_moments(low, high, order=ORDER):
    a, b = Fraction(low), Fraction(high)
    return [(b ** (k + 1) - a ** (k + 1)) / ((k + 1) * (b - a)) for k in range(1, order + 1)]


def semicircle_moments(variance, order=ORDER):
    return moments([0, Fraction(variance), *[0] * (order - 2)])


def wishart_moments(ratio, variance=1, order=ORDER):
    return moments([Fraction(ratio) ** (k - 1) * Fraction(variance) ** k for k in range(1, order + 1)])


def exact_sum(*parts):
    return moments([sum(column) for column in zip(*map(free_cumulants, parts), strict=True)])


def exact_power(part, t):
    return moments([Fraction(t) * kappa for kappa in free_cumulants(part)])


def exact_product(*parts):
    r"""S multiplies; back by Lagrange: :math:`m_n = [u^{n-1}] ((1+u)/S(u))^n / n`."""
    order = len(parts[0])
    series = [Fraction(1)] + [Fraction(0)] * (order - 1)
    for part in parts:
        series = _times(series, s_series(part))
    inverse = [1 / series[0]]  # 1/S
    for n in range(1, order):
        inverse.append(-sum(series[k] * inverse[n - k] for k in range(1, n + 1)) / series[0])
    base = [a + b for a, b in zip(inverse, [0, *inverse], strict=False)]
    result, power = [], [Fraction(1)] + [Fraction(0)] * (order - 1)
    for n in range(1, order + 1):
        power = _times(power, base)
        result.append(power[n - 1] / n)
    return result


def _times(first, second):
    return [sum(first[j] * second[k - j] for j in range(k + 1)) for k in range(len(first))]


def exact_wishart(part, ratio):
    """Product with Marchenko–Pastur without the S-transform: cumulants of the companion are c times the moments."""
    c = Fraction(ratio)
    return [m / c for m in moments([c * m for m in part])]


def exact_rectangular(ratio, *parts):
    c = Fraction(ratio)
    columns = zip(*(rectangular_cumulants(part, c) for part in parts), strict=True)
    return moments_from_rectangular([sum(column) for column in columns], c)


def check_moments(law, exact, tolerance=2e-12):
    for k, want in enumerate(exact, 1):
        even = k + k % 2 if k + k % 2 <= len(exact) else k - 1
        size = abs(float(exact[even - 1])) ** (k / even)
        assert abs(law.moment(k) - float(want)) <= tolerance * size, k


# -- slow twins -----------------------------------------------------------------------------------------------------


def additive_twin(first, second, z):
    """G of the sum at Im z > 0: ω = z + h_2(z + h_1(ω)) with h = 1/G - id, damped."""
    omega = z
    for _ in range(4000):
        inner = z + 1 / first(omega) - omega
        new = z + 1 / second(inner) - inner
        if abs(new - omega) < 1e-15 * abs(new):
            break
        omega = 0.5 * (omega + new)
    return first(omega)


def multiplicative_twin(first, second, z):
    """G of the product: ω_1 ω_2 = z (1 + u)/u, u = u_1(ω_1) = u_2(ω_2), damped."""

    def other(cauchy, omega):
        q = omega * cauchy(omega)
        return z * q / ((q - 1) * omega), q

    omega = z
    for _ in range(8000):
        partner, _ = other(first, omega)
        new, q = other(second, partner)
        if abs(new - omega) < 1e-15 * abs(new):
            break
        omega = 0.5 * (omega + new)
    return q / z


def rectangular_twin(first, second, ratio, z):
    """From one point to the other through w = G(1 - c + czG) and zw = q(1 - c + cq), q in the lower half-plane."""

    def other(cauchy, point):
        q = point * cauchy(point)
        w = cauchy(point) * (1 - ratio + ratio * q)
        root = np.sqrt((1 - ratio) ** 2 + 4 * ratio * z * w)
        total = ((root if root.imag < 0 else -root) - (1 - ratio)) / (2 * ratio)
        rest = 1 + total - q
        return rest * (1 - ratio + ratio * rest) / w, total / z

    point = z
    for _ in range(8000):
        partner, _ = other(first, point)
        new, g = other(second, partner)
        if abs(new - point) < 1e-15 * abs(new):
            break
        point = 0.5 * (point + new)
    return g


def cauchy_of(pairs):
    return lambda z: sum(w / (z - a) for a, w in pairs)


def uniform_cauchy(low, high):
    return lambda z: np.log((z - low) / (z - high)) / (high - low)


def semicircle_cauchy(variance):
    edge = 2 * math.sqrt(variance)
    return lambda z: (z - np.sqrt(z - edge) * np.sqrt(z + edge)) / (2 * variance)


def wishart_cauchy(c, v=1.0):
    low, high = v * (1 - math.sqrt(c)) ** 2, v * (1 + math.sqrt(c)) ** 2
    return lambda z: (z - v * (1 - c) - np.sqrt(z - low) * np.sqrt(z - high)) / (2 * c * v * z)


def same_law(first, second, tolerance=1e-11):
    """Two routes to one law: support, atoms, density in the bulk, mass, transform."""
    assert len(first.support()) == len(second.support())
    unit = max(abs(end) for interval in first.support() for end in interval)
    for mine, other in zip(first.support(), second.support(), strict=True):
        assert mine == pytest.approx(other, abs=1e-13 * unit)
        x = mine[0] + (mine[1] - mine[0]) * np.linspace(0.04, 0.96, 13)
        np.testing.assert_allclose(first.pdf(x), second.pdf(x), rtol=tolerance)
        np.testing.assert_allclose(first.cdf(x), second.cdf(x), rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        np.reshape(first.atoms(), -1), np.reshape(second.atoms(), -1), rtol=1e-13, atol=1e-13 * unit
    )
    z = UPPER * unit
    np.testing.assert_allclose(first.cauchy(z), second.cauchy(z), rtol=tolerance)


# -- sums -------------------------------------------------------------------------------------------------------------


def test_semicircles_add():
    law = SC(1, mean=2) + SC(0.5, mean=-0.5)
    assert isinstance(law, Semicircle)
    assert (law.mean(), law.variance()) == (1.5, 1.5)


@pytest.mark.parametrize(("c", "v", "d", "w"), [(0.5, 2, 1, 1), (0.25, 4, 0.5, 2), (2, 1, 4, 0.5)])
def test_marchenko_pastur_laws_of_equal_jump_add(c, v, d, w):
    """Jumps c v = d w: rates add, means add."""
    law = MP(c, v) + MP(d, w)
    assert isinstance(law, MarchenkoPastur)
    assert law.ratio == pytest.approx(1 / (1 / c + 1 / d), rel=1e-15)
    assert law.variance_parameter == pytest.approx(v + w, rel=1e-15)


def test_points_shift():
    law = free.additive(Atomic([3]), SC(2), Atomic([-1]))
    assert isinstance(law, Semicircle)
    assert (law.mean(), law.variance()) == (2, 2)
    assert free.additive(Atomic([3]), Atomic([-1])).atoms() == [(2, 1)]
    same_law(Atomic([3]) + MP(0.5), MP(0.5) + 3)
    same_law(Atomic([2]) + PM + SC(0.5), Affine(PM + SC(0.5), 1, 2))


def test_signs_add_to_the_arcsine_law():
    law, exact = PM + PM, Arcsine(-2, 2)
    assert law.support() == [(-2, 2)]
    assert law.atoms() == []
    x = np.concatenate([[-2 + 1e-9, -1.999], np.linspace(-1.9, 1.9, 12), [2 - 1e-6]])
    np.testing.assert_allclose(law.pdf(x), 1 / (np.pi * np.sqrt((2 - x) * (2 + x))), rtol=1e-11)
    np.testing.assert_allclose(law.cdf(x), np.arccos(-x / 2) / np.pi, rtol=0, atol=1e-12)
    check_moments(law, [0 if k % 2 else math.comb(k, k // 2) for k in range(1, 13)])
    z = np.array([0.3 + 0.2j, 1e-3j, 3.0, -2.5, 1e5j])
    np.testing.assert_allclose(law.cauchy(z), exact.cauchy(z), rtol=1e-12)


def test_density_is_infinite_at_both_hard_edges():
    law = PM + PM
    assert law.pdf(-2) == np.inf
    assert law.pdf(2) == np.inf


@pytest.mark.parametrize("degree", [3, 4, 7])
def test_signs_add_to_kesten_mckay(degree):
    """d pairs of ±1: the spectral measure of the free product of d groups of order two, the d-regular tree."""
    law, exact = free.additive(*[PM] * degree), KestenMcKay(degree)
    ((low, high),) = law.support()
    assert high == pytest.approx(2 * math.sqrt(degree - 1), rel=1e-14)
    x = np.linspace(0.98 * low, 0.98 * high, 19)
    np.testing.assert_allclose(
        law.pdf(x), degree * np.sqrt(4 * (degree - 1) - x**2) / (2 * np.pi * (degree**2 - x**2)), rtol=1e-12
    )
    np.testing.assert_allclose(law.cdf(x), exact.cdf(x), rtol=0, atol=1e-13)


def projection_product_density(x, a, b):
    """Of the product of projections of ranks a and b, without atoms."""
    middle, spread = a + b - 2 * a * b, math.sqrt(4 * a * b * (1 - a) * (1 - b))
    inside = np.maximum((middle + spread - x) * (x - middle + spread), 0)
    return np.sqrt(inside) / (2 * np.pi * x * (1 - x))


@pytest.mark.parametrize(("a", "b"), [(0.6, 0.3), (0.6, 0.7)])
def test_two_projections(a, b):
    """Voiculescu: the product; the sum has 1 ± √λ where the product has λ (in generic blocks of two)."""
    first, second = Atomic([0, 1], [1 - a, a]), Atomic([0, 1], [1 - b, b])
    middle, spread = a + b - 2 * a * b, math.sqrt(4 * a * b * (1 - a) * (1 - b))
    low, high = middle - spread, middle + spread
    product, total = first * second, first + second

    assert product.support()[0] == pytest.approx((low, high), rel=1e-13)
    x = low + (high - low) * np.linspace(0.02, 0.98, 17)
    density = projection_product_density(x, a, b)
    np.testing.assert_allclose(product.pdf(x), density, rtol=1e-11)
    want = [(0, 1 - min(a, b)), (1, a + b - 1)]
    np.testing.assert_allclose(product.atoms(), want if a + b > 1 else want[:1], atol=1e-15)

    np.testing.assert_allclose(
        total.support(), [(1 - high**0.5, 1 - low**0.5), (1 + low**0.5, 1 + high**0.5)], rtol=1e-12
    )
    for sign in (1, -1):
        np.testing.assert_allclose(total.pdf(1 + sign * np.sqrt(x)), 2 * np.sqrt(x) * density, rtol=1e-10)
    atoms = [(0, 1 - a - b), (1, abs(a - b)), (2, a + b - 1)]
    np.testing.assert_allclose(total.atoms(), [(y, w) for y, w in atoms if w > 0], rtol=1e-13, atol=1e-15)


def test_halves_multiply_to_an_arcsine():
    """Projections of rank one half: half the mass at 0, half the arcsine law on [0, 1]."""
    law = Atomic([0, 1]) * Atomic([0, 1])
    x = np.linspace(0.01, 0.99, 15)
    np.testing.assert_allclose(law.pdf(x), 0.5 / (np.pi * np.sqrt(x * (1 - x))), rtol=1e-12)
    np.testing.assert_allclose(law.atoms(), [(0, 0.5)], rtol=1e-15)


def test_hard_edges_at_zero_are_exact():
    for law in (Atomic([0, 1]) * Atomic([0, 1]), Atomic([0, 1]) + Atomic([0, 1]), MP(2, 1) + MP(2, 2)):
        assert law.support()[0][0] == 0
        assert law.singular_values().support()[0][0] == 0


def cubic_density(x, variance):
    """±1 plus a semicircle: w³ - zw² + (s-1)w + z = 0 for w = z - sG."""
    return np.array([max(np.roots([1, -t, variance - 1, t]).imag) / (np.pi * variance) for t in x])


@pytest.mark.parametrize("variance", [0.3, 0.9, 1.1, 3])
def test_signs_plus_a_semicircle(variance):
    law = PM + SC(variance)
    assert len(law.support()) == (2 if variance < 1 else 1)
    x = np.concatenate([a + (b - a) * np.linspace(0.02, 0.98, 11) for a, b in law.support()])
    np.testing.assert_allclose(law.pdf(x), cubic_density(x, variance), rtol=1e-10)
    outside = np.array([1.02 * law.support()[-1][1], -9.0])
    assert (law.pdf(outside) == 0).all()
    assert (cubic_density(outside, variance) == 0).all()


def test_cusp_at_zero():
    """Variance 1: the two intervals touch, and the density is |x|^(1/3) √3/(2π) to leading order."""
    law = PM + SC(1)
    assert law.support()[0][0] == pytest.approx(-1.5 * math.sqrt(3), rel=1e-14)
    x = np.array([-2.5, -1, -0.1, 1e-3, 0.2, 1.7, 2.59])
    np.testing.assert_allclose(law.pdf(x), cubic_density(x, 1), rtol=1e-11)
    small = np.array([1e-9, 1e-15, 1e-24])
    np.testing.assert_allclose(law.pdf(small), small ** (1 / 3) * math.sqrt(3) / (2 * np.pi), rtol=1e-6)
    assert law.cdf(0) == pytest.approx(0.5, abs=1e-14)


UNIFORM_SUMS = {
    "uniform twice": (
        lambda: Uniform(-1, 1) + Uniform(-1, 1),
        exact_sum(uniform_moments(-1, 1), uniform_moments(-1, 1)),
        (uniform_cauchy(-1, 1), uniform_cauchy(-1, 1)),
    ),
    "two uniforms": (
        lambda: Uniform(-1, 1) + Uniform(0, 4),
        exact_sum(uniform_moments(-1, 1), uniform_moments(0, 4)),
        (uniform_cauchy(-1, 1), uniform_cauchy(0, 4)),
    ),
    "difference": (
        lambda: MP(0.5) - Uniform(0, 1),
        exact_sum(wishart_moments(Fraction(1, 2)), uniform_moments(-1, 0)),
        (wishart_cauchy(0.5), uniform_cauchy(-1, 0)),
    ),
    "semicircle": (
        lambda: Uniform(-1, 1) + SC(0.25),
        exact_sum(uniform_moments(-1, 1), semicircle_moments(Fraction(1, 4))),
        (uniform_cauchy(-1, 1), semicircle_cauchy(0.25)),
    ),
    "atoms": (
        lambda: Atomic([-2, 0, 3], [0.25, 0.25, 0.5]) + Atomic([0, 1], [0.625, 0.375]),
        exact_sum(
            atomic_moments([(-2, 0.25), (0, 0.25), (3, 0.5)]), atomic_moments([(0, 0.625), (1, 0.375)])
        ),
        (cauchy_of([(-2, 0.25), (0, 0.25), (3, 0.5)]), cauchy_of([(0, 0.625), (1, 0.375)])),
    ),
    "free Poisson laws": (
        lambda: MP(0.5, 1) + MP(2, 0.5),
        exact_sum(wishart_moments(Fraction(1, 2)), wishart_moments(2, Fraction(1, 2))),
        (wishart_cauchy(0.5), wishart_cauchy(2, 0.5)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNIFORM_SUMS)
def test_sums_against_cumulants_and_the_fixed_point(name):
    build, exact, (first, second) = UNIFORM_SUMS[name]
    law = build()
    check_moments(law, exact)
    unit = max(abs(end) for interval in law.support() for end in interval)
    z = unit * UPPER
    twin = np.array([additive_twin(first, second, point) for point in z])
    np.testing.assert_allclose(law.cauchy(z), twin, rtol=1e-11)
    # a little above the axis
    x = sum(law.support()[0]) / 2
    near = additive_twin(first, second, x + 1e-2j * unit)
    assert law.cauchy(x + 1e-2j * unit) == pytest.approx(near, rel=1e-9)


def test_sum_of_three_laws():
    law = free.additive(Uniform(0, 1), Atomic([0, 1], [0.75, 0.25]), Arcsine(-1, 1))
    arcsine = [0 if k % 2 else Fraction(math.comb(k, k // 2), 2**k) for k in range(1, ORDER + 1)]
    check_moments(law, exact_sum(uniform_moments(0, 1), atomic_moments([(0, 0.75), (1, 0.25)]), arcsine))


# -- products -------------------------------------------------------------------------------------------------------


PRODUCTS = {
    "wishart uniform": (
        lambda: MP(0.5) * Uniform(1, 2),
        exact_product(wishart_moments(Fraction(1, 2)), uniform_moments(1, 2)),
        (wishart_cauchy(0.5), uniform_cauchy(1, 2)),
    ),
    "wishart of more rows": (
        lambda: MP(2, 3) * Uniform(1, 2),
        exact_product(wishart_moments(2, 3), uniform_moments(1, 2)),
        (wishart_cauchy(2, 3), uniform_cauchy(1, 2)),
    ),
    "hard edge": (
        lambda: MP(1) * Uniform(1, 2),
        exact_product(wishart_moments(1), uniform_moments(1, 2)),
        (wishart_cauchy(1), uniform_cauchy(1, 2)),
    ),
    "two wisharts": (
        lambda: MP(0.5) * MP(0.25, 2),
        exact_product(wishart_moments(Fraction(1, 2)), wishart_moments(Fraction(1, 4), 2)),
        (wishart_cauchy(0.5), wishart_cauchy(0.25, 2)),
    ),
    "two uniforms": (
        lambda: Uniform(1, 2) * Uniform(0.5, 4),
        exact_product(uniform_moments(1, 2), uniform_moments(Fraction(1, 2), 4)),
        (uniform_cauchy(1, 2), uniform_cauchy(0.5, 4)),
    ),
    "atoms": (
        lambda: Atomic([0, 1, 3], [0.25, 0.25, 0.5]) * Atomic([1, 2], [0.875, 0.125]),
        exact_product(
            atomic_moments([(0, 0.25), (1, 0.25), (3, 0.5)]), atomic_moments([(1, 0.875), (2, 0.125)])
        ),
        (cauchy_of([(0, 0.25), (1, 0.25), (3, 0.5)]), cauchy_of([(1, 0.875), (2, 0.125)])),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_against_the_s_transform_and_the_fixed_point(name):
    build, exact, (first, second) = PRODUCTS[name]
    law = build()
    check_moments(law, exact)
    unit = law.support()[-1][1]
    z = unit * UPPER
    twin = np.array([multiplicative_twin(first, second, point) for point in z])
    np.testing.assert_allclose(law.cauchy(z), twin, rtol=1e-10)


def test_wishart_factor_without_the_s_transform():
    law = free.multiplicative(MP(0.5), Atomic([1, 4], [0.75, 0.25]), MP(0.25, 3))
    inner = exact_wishart(atomic_moments([(1, 0.75), (4, 0.25)]), Fraction(1, 2))
    exact = [3**k * m for k, m in enumerate(exact_wishart(inner, Fraction(1, 4)), 1)]
    check_moments(law, exact)
    check_moments(law, exact_product(inner, wishart_moments(Fraction(1, 4), 3)))


@pytest.mark.parametrize(("first", "second", "other"), [(0.75, 0.8, MP(0.5, 2)), (2, 1.5, Uniform(1, 2))])
def test_wachter_factors(first, second, other):
    """Moments in floats by the same recursion, and the fixed point."""
    wachter = Wachter(first, second)
    law = wachter * other
    parts = [[Fraction(part.moment(k)) for k in range(1, 7)] for part in (wachter, other)]
    check_moments(law, exact_product(*parts), 1e-11)
    z = law.support()[-1][1] * UPPER
    twin = np.array([multiplicative_twin(wachter.cauchy, other.cauchy, point) for point in z])
    np.testing.assert_allclose(law.cauchy(z), twin, rtol=1e-9)
    # at 0 the larger atom
    zero = max([w for a, w in wachter.atoms() if a == 0], default=0)
    assert sum(w for _, w in law.atoms()) == pytest.approx(zero, abs=1e-15)


def test_fisher_matrices():
    """W_1 W_2^{-1}: the density of Silverstein (1985), by an inverse and a product."""
    c, d = 0.5, 0.25
    law = free.inverse(MP(d)) * MP(c)
    h = math.sqrt(c + d - c * d)
    low, high = ((1 - h) / (1 - d)) ** 2, ((1 + h) / (1 - d)) ** 2
    assert law.support()[0] == pytest.approx((low, high), rel=1e-12)
    x = low + (high - low) * np.linspace(0.01, 0.99, 23)
    exact = (1 - d) * np.sqrt((high - x) * (x - low)) / (2 * np.pi * x * (c + d * x))
    np.testing.assert_allclose(law.pdf(x), exact, rtol=1e-10)


def test_closed_forms_of_products():
    assert isinstance(MP(0.5) * Atomic([3]), MarchenkoPastur)
    assert (MP(0.5) * Atomic([3])).mean() == 3
    assert (Atomic([2]) * Atomic([3])).atoms() == [(6, 1)]
    assert (Atomic([0]) * MP(2)).atoms() == [(0, 1)]
    product = free.multiplicative(MP(0.5, 2), MP(0.25), Atomic([3]))
    assert isinstance(product, GaussianProduct)
    same_law(product, GaussianProduct([1, 2, 4], 6))
    same_law(free.multiplicative(MP(1), MP(1)), FussCatalan(2))
    same_law(Uniform(1, 2) * Atomic([3]), Uniform(3, 6))


def test_arguments_may_be_products_already():
    deep = free.multiplicative(free.multiplicative(MP(0.5), Uniform(1, 2)), GaussianProduct([1, 2, 4], 3))
    exact = exact_product(
        wishart_moments(Fraction(1, 2)), uniform_moments(1, 2),
        wishart_moments(Fraction(1, 2), 3), wishart_moments(Fraction(1, 4)),
    )  # fmt: skip
    check_moments(deep, exact)
    same_law(deep, free.multiplicative(MP(0.5), MP(0.5, 3), MP(0.25), Uniform(1, 2)))


# -- one symmetric factor ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("symmetric", "positive", "squares", "exact"),
    [
        (SC(1), MP(0.5), wishart_moments(1), wishart_moments(Fraction(1, 2))),
        (SC(0.25), Uniform(1, 2), wishart_moments(1, Fraction(1, 4)), uniform_moments(1, 2)),
        (Atomic([-2, -1, 1, 2]), MP(0.5), atomic_moments([(1, 0.5), (4, 0.5)]), wishart_moments(Fraction(1, 2))),
        (SC(1), Atomic([1, 2]), wishart_moments(1), atomic_moments([(1, 0.5), (2, 0.5)])),
    ],
)
def test_symmetric_factor(symmetric, positive, squares, exact):
    law = symmetric * positive
    even = exact_product(squares, exact, exact)
    for k in range(1, 9):
        assert law.moment(k) == (0 if k % 2 else pytest.approx(float(even[k // 2 - 1]), rel=1e-12))
    assert law.support()[0][0] == -law.support()[-1][1]
    assert law.cdf(0) == pytest.approx(0.5, abs=1e-14)
    same_law(law, positive * symmetric)


def test_semicircular_factor_as_a_quadratic_form():
    """τ((√A s √A)^{2k}) = τ((sAs A)^k), and sAs, free of A, has the moments of A as free cumulants."""
    base = uniform_moments(1, 2, 5)
    even = exact_product(moments(base), base)
    law = SC(1) * Uniform(1, 2)
    assert [law.moment(2 * k) for k in range(1, 6)] == pytest.approx([float(m) for m in even], rel=1e-12)


def test_symmetric_factor_by_simulation():
    """Two matrices of size 500: the distance of rigid eigenvalues is of order 1/n; 6/n is allowed."""
    law, n, rng = Atomic([-2, -1, 1, 2]) * MP(0.5), 500, np.random.default_rng(11)
    for _ in range(2):
        x = rng.standard_normal((n, 2 * n)) / math.sqrt(2 * n)
        values, vectors = np.linalg.eigh(x @ x.T)
        root = (vectors * np.sqrt(values)) @ vectors.T
        eigenvalues = np.linalg.eigvalsh(root @ np.diag(np.repeat([-2.0, -1, 1, 2], n // 4)) @ root)
        distance = np.abs(law.cdf(eigenvalues) - (np.arange(n) + 0.5) / n).max()
        assert distance < 6 / n


@pytest.mark.parametrize("positive", [MP(0.5), Uniform(1, 2), FussCatalan(2)])
def test_signs_times_a_positive_law(positive):
    """The law of squares is the product of the positive law with itself."""
    law = PM * positive
    assert law.variance() == pytest.approx(positive.mean() ** 2, rel=1e-12)
    same_law(law, SymmetricRoot(positive * positive))


def test_symmetric_factor_with_a_density():
    symmetric = PM + SC(0.1)
    law = symmetric * MP(0.5)
    assert law.moment(2) == pytest.approx(symmetric.moment(2), rel=1e-12)


@pytest.mark.parametrize("symmetric", [Uniform(-1, 1), Arcsine(-1, 1)])
def test_symmetric_factor_with_a_density_at_zero_is_refused(symmetric):
    """The law of its squares has a hard edge at 0, next to which the curve is no power series."""
    with pytest.raises(CertificationError, match="not of square-root kind"):
        _ = symmetric * MP(0.5)


# -- rectangular sums ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ratio", "noise"), [(0.5, 1), (1, 0.25), (0.125, 3), (1.25, 0.5)])
def test_information_plus_noise(ratio, noise):
    signal = [(0, 0.75), (4, 0.25)]
    law = free.rectangular(Atomic([0, 4], [0.75, 0.25]), noise_variance=noise, ratio=ratio)
    exact = exact_rectangular(
        ratio, atomic_moments(signal), [Fraction(m) for m in wishart_moments(ratio, noise)]
    )  # fmt: skip
    check_moments(law, exact)
    assert sum(w for _, w in law.atoms()) == pytest.approx(max(0, 1 - 1 / ratio), abs=1e-15)
    z = law.support()[-1][1] * UPPER[1:]
    twin = [rectangular_twin(cauchy_of(signal), wishart_cauchy(ratio, noise), ratio, point) for point in z]
    np.testing.assert_allclose(law.cauchy(z), twin, rtol=1e-10)


@pytest.mark.parametrize(
    ("signal", "noise", "ratio"),
    [
        ([(1, 0.25), (4, 0.75)], 2, 0.5),
        ([(1, 0.25), (4, 0.75)], 1, 1),
        ([(1, 0.25), (4, 0.75)], 2.5, 1),
        ([(1, 0.5), (2, 0.5)], 4, 0.875),
    ],
)
def test_noise_that_outweighs_the_signal(signal, noise, ratio):
    law = free.rectangular(Atomic(*zip(*signal, strict=True)), noise_variance=noise, ratio=ratio)
    exact = exact_rectangular(ratio, atomic_moments(signal), wishart_moments(ratio, noise))
    check_moments(law, exact)
    assert law.atoms() == []
    z = law.support()[-1][1] * UPPER[1:]
    twin = [rectangular_twin(cauchy_of(signal), wishart_cauchy(ratio, noise), ratio, point) for point in z]
    np.testing.assert_allclose(law.cauchy(z), twin, rtol=1e-10)


@pytest.mark.parametrize(("atoms", "noise", "ratio"), [([0, 4], 1, 1), ([1, 4], 0.125, 0.25), ([1, 100], 1, 0.5)])
def test_noise_on_two_equal_atoms(atoms, noise, ratio):
    law = free.rectangular(Atomic(atoms), noise_variance=noise, ratio=ratio)
    exact = exact_rectangular(ratio, atomic_moments([(a, 0.5) for a in atoms]), wishart_moments(ratio, noise))
    check_moments(law, exact)


def test_marchenko_pastur_of_the_ratio_is_noise():
    signal = Uniform(1, 2)
    first = free.rectangular(signal, MP(0.5, 0.75), ratio=0.5)
    same_law(first, free.rectangular(signal, noise_variance=0.75, ratio=0.5))
    same_law(first, free.rectangular(MP(0.5, 0.75), signal, ratio=0.5))
    twice = free.rectangular(free.rectangular(signal, noise_variance=0.5, ratio=0.5), noise_variance=0.25, ratio=0.5)
    same_law(first, twice)
    noise = free.rectangular(MP(0.5, 1), noise_variance=2, ratio=0.5)
    assert isinstance(noise, MarchenkoPastur)
    assert noise.mean() == 3
    assert free.rectangular(signal, noise_variance=0, ratio=0.5) is signal
    assert free.rectangular(Atomic([0]), noise_variance=0, ratio=0.5).atoms() == [(0, 1)]
    assert free.rectangular(Atomic([0]), signal, ratio=0.5) is signal
    # another ratio is no noise
    other = free.rectangular(Atomic([1, 4]), MP(0.25, 1), ratio=0.5)
    check_moments(
        other,
        exact_rectangular(Fraction(1, 2), atomic_moments([(1, 0.5), (4, 0.5)]), wishart_moments(Fraction(1, 4))),
    )


@pytest.mark.parametrize(
    ("build", "exact", "cauchys", "ratio"),
    [
        (
            lambda: free.rectangular(Atomic([1, 4]), Uniform(1, 2), ratio=0.5),
            (atomic_moments([(1, 0.5), (4, 0.5)]), uniform_moments(1, 2)),
            (cauchy_of([(1, 0.5), (4, 0.5)]), uniform_cauchy(1, 2)),
            0.5,
        ),
        (
            lambda: free.rectangular(
                Atomic([0, 4], [0.625, 0.375]), Atomic([0, 1, 2], [0.375, 0.3125, 0.3125]), ratio=1.5
            ),
            (atomic_moments([(0, 0.625), (4, 0.375)]), atomic_moments([(0, 0.375), (1, 0.3125), (2, 0.3125)])),
            (cauchy_of([(0, 0.625), (4, 0.375)]), cauchy_of([(0, 0.375), (1, 0.3125), (2, 0.3125)])),
            1.5,
        ),
    ],
)
def test_two_general_rectangular_laws(build, exact, cauchys, ratio):
    law = build()
    check_moments(law, exact_rectangular(ratio, *exact))
    assert sum(w for _, w in law.atoms()) == pytest.approx(max(0, 1 - 1 / ratio), abs=1e-15)
    z = law.support()[-1][1] * UPPER[[0, 1, 3, 5]]
    twin = [rectangular_twin(*cauchys, ratio, point) for point in z]
    np.testing.assert_allclose(law.cauchy(z), twin, rtol=1e-9)


def test_square_matrices_plus_noise_are_symmetrised_sums():
    """Ratio 1: the symmetrised singular values add freely."""
    signal = Atomic([0, 1, 4], [0.25, 0.25, 0.5])
    law = free.rectangular(signal, noise_variance=0.5, ratio=1)
    total = SymmetricRoot(signal) + SC(0.5)
    roots = SymmetricRoot(law)
    assert roots.support()[-1] == pytest.approx(total.support()[-1], rel=1e-13)
    x = np.linspace(0.05, 0.97, 17) * total.support()[-1][1]
    np.testing.assert_allclose(roots.pdf(x), total.pdf(x), rtol=1e-10)
    np.testing.assert_allclose(roots.cdf(x), total.cdf(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("signal", "other"), [(Atomic([1, 4]), Atomic([0.5, 3])), (Uniform(1, 3), Uniform(1, 2)), (Atomic([1, 4]), MP(0.5))]
)
def test_two_square_matrices_are_symmetrised_sums(signal, other):
    law = free.rectangular(signal, other, ratio=1)
    total = SymmetricRoot(signal) + SymmetricRoot(other)
    x = np.linspace(0.05, 0.97, 17) * total.support()[-1][1]
    np.testing.assert_allclose(SymmetricRoot(law).pdf(x), total.pdf(x), rtol=1e-10)


def test_rectangular_atom_beside_zero():
    """B keeps a singular value where A vanishes on both sides: weight 0.7 - 2 * 0.1."""
    law = free.rectangular(Atomic([0, 4], [0.9, 0.1]), Atomic([1, 2], [0.7, 0.3]), ratio=0.5)
    np.testing.assert_allclose(law.atoms(), [(1, 0.5), (2, 0.1)], rtol=1e-12)


def test_rectangular_sum_of_atoms():
    law = free.rectangular(Atomic([1, 4], [0.5, 0.5]), Atomic([0, 1, 2], [0.5, 0.25, 0.25]), ratio=0.5)
    exact = (atomic_moments([(1, 0.5), (4, 0.5)]), atomic_moments([(0, 0.5), (1, 0.25), (2, 0.25)]))
    check_moments(law, exact_rectangular(Fraction(1, 2), *exact))


# -- powers and compressions ------------------------------------------------------------------------------------


def test_powers_of_closed_forms():
    law = free.power(SC(2, mean=1), 1.5)
    assert (type(law), law.mean(), law.variance()) == (Semicircle, 1.5, 3)
    law = free.power(MP(0.5, 3), 0.25)  # freely infinitely divisible: any exponent
    assert (type(law), law.ratio, law.mean()) == (MarchenkoPastur, 2, 0.75)
    assert free.power(Atomic([3]), 0.5).atoms() == [(1.5, 1)]
    light = free.power(CompoundFreePoisson(2, [-1, 2]), 0.25)
    same_law(light, CompoundFreePoisson(0.5, [-1, 2]))
    law = Uniform(0, 1)
    assert free.power(law, 1) is law
    assert free.compression(law, 1) is law


def test_power_of_a_sum_of_divisible_laws():
    law = free.power(SC(1) + MP(0.5), 0.5)
    assert law.mean() == pytest.approx(0.5)
    assert law.variance() == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("law", "exact"),
    [
        (Uniform(-1, 2), uniform_moments(-1, 2)),
        (Atomic([-1, 3], [0.3125, 0.6875]), atomic_moments([(-1, 0.3125), (3, 0.6875)])),
        (SC(1) + MP(0.5), exact_sum(semicircle_moments(1), wishart_moments(Fraction(1, 2)))),
    ],
)
def test_powers(law, exact):
    third = free.power(law, 1.75)
    check_moments(third, exact_power(exact, Fraction(7, 4)))
    check_moments(free.power(third, 2), exact_power(exact, Fraction(7, 2)))
    same_law(free.power(third, 2), free.power(law, 3.5))
    same_law(free.power(law, 2), law + law)
    same_law(free.power(law, 3), free.additive(law, law, law))
    same_law(free.compression(law, 0.5), Affine(law + law, 0.5))


def test_power_whose_edge_is_on_the_grid():
    law = free.power(Atomic([-1, 3], [0.25, 0.75]), 1.75)
    np.testing.assert_allclose(law.atoms(), [(5.25, 0.5625)], rtol=1e-14)
    check_moments(law, exact_power(atomic_moments([(-1, 0.25), (3, 0.75)]), Fraction(7, 4)))


def test_atoms_of_powers():
    law = free.power(Atomic([-1, 2], [0.3, 0.7]), 1.25)
    np.testing.assert_allclose(law.atoms(), [(-1.25, 0.125), (2.5, 0.625)], rtol=1e-13)
    law = free.power(Atomic([-1, 2], [0.3, 0.7]), 2.5)
    np.testing.assert_allclose(law.atoms(), [(5, 0.25)], rtol=1e-13)
    assert free.power(Atomic([-1, 2], [0.3, 0.7]), 4).atoms() == []


@pytest.mark.parametrize(("weight", "share"), [(0.5, 0.3), (0.7, 0.5), (0.8, 0.9)])
def test_compression_of_a_projection(weight, share):
    """The corner of a projection is the product of projections in the corner: Jacobi, weights divided by the share."""
    law = free.compression(Atomic([0, 1], [1 - weight, weight]), share)
    middle, spread = (
        weight + share - 2 * weight * share,
        math.sqrt(4 * weight * share * (1 - weight) * (1 - share)),
    )
    ((low, high),) = law.support()
    assert (low, high) == pytest.approx((middle - spread, middle + spread), rel=1e-12, abs=1e-14)
    x = low + (high - low) * np.linspace(0.02, 0.98, 17)
    np.testing.assert_allclose(law.pdf(x), projection_product_density(x, weight, share) / share, rtol=1e-11)
    atoms = [(0, 1 - weight / share), (1, (weight + share - 1) / share)]
    np.testing.assert_allclose(np.reshape(law.atoms(), -1), [y for a in atoms if a[1] > 1e-15 for y in a], rtol=1e-12)


def test_compression_of_the_semicircle_and_of_wishart():
    law = free.compression(SC(2), 0.25)
    assert law.variance() == pytest.approx(0.5, rel=1e-15)
    # a corner of a Wishart matrix is one, of fewer rows
    same_law(free.compression(MP(0.5, 2), 0.25), MP(0.125, 2))


def test_multiplicative_powers():
    half = free.multiplicative_power(MP(0.5), 1.5)
    third = free.multiplicative_power(half, 2)
    same_law(third, free.multiplicative(MP(0.5), MP(0.5), MP(0.5)))
    uniform = Uniform(1, 2)
    same_law(free.multiplicative_power(uniform, 2), uniform * uniform)
    same_law(
        free.multiplicative_power(free.multiplicative_power(uniform, 1.25), 2), free.multiplicative_power(uniform, 2.5)
    )
    check_moments(free.multiplicative_power(uniform, 3), exact_product(*[uniform_moments(1, 2)] * 3))
    same_law(free.multiplicative_power(MP(1), 2), FussCatalan(2))
    np.testing.assert_allclose(free.multiplicative_power(Atomic([3]), 2.5).atoms(), [(3**2.5, 1)], rtol=1e-15)
    assert free.multiplicative_power(uniform, 1) is uniform
    law = free.multiplicative_power(Atomic([1, 2], [0.75, 0.25]), 1.25)
    np.testing.assert_allclose(law.atoms(), [(1, 1 - 1.25 * 0.25), (2**1.25, 1 - 1.25 * 0.75)], rtol=1e-13)
    # projections of rank one half: an arcsine law and the atom
    law = free.multiplicative_power(Atomic([0, 1]), 2)
    np.testing.assert_allclose(
        law.pdf([0.1, 0.7]), [0.5 / (np.pi * math.sqrt(x * (1 - x))) for x in (0.1, 0.7)], rtol=1e-12
    )
    assert law.atoms() == [(0, 0.5)]
    # else the density at the atom is x^(1/t - 1)
    with pytest.raises(CertificationError, match="not a power"):
        free.multiplicative_power(Atomic([0, 1]), 1.25)


# -- images ------------------------------------------------------------------------------------------------------------


def test_images():
    assert isinstance(free.square(SC(2)), Square)
    same_law(free.square(SC(2)), MP(1, 2))
    law = free.inverse(MP(0.25, 2))
    assert isinstance(law, Inverse)
    assert law.support()[0] == pytest.approx((1 / (2 * 1.5**2), 1 / (2 * 0.5**2)), rel=1e-14)
    assert law.mean() == pytest.approx(1 / (2 * 0.75), rel=1e-13)
    assert law.moment(2) == pytest.approx(1 / (4 * 0.75**3), rel=1e-13)
    x = np.array([0.3, 0.7, 1.9])
    density = np.sqrt((2 * 2.25 - 1 / x) * (1 / x - 0.5)) / (2 * np.pi * 0.25 * 2 / x) / x**2
    np.testing.assert_allclose(law.pdf(x), density, rtol=1e-13)
    root = free.square_root(MP(1, 4))  # the quarter circle
    np.testing.assert_allclose(
        root.pdf([0.5, 2, 3]), np.sqrt(16 - np.array([0.5, 2, 3]) ** 2) / (4 * np.pi), rtol=1e-13
    )


# -- compositions -----------------------------------------------------------------------------------------------------


def test_depth_four_on_a_curve():
    """((MP ⊠ atoms) ⊞ MP) ⊠ MP, noise, power: one leaf."""
    c = Fraction(1, 2)
    law = (MP(0.5) * Atomic([1, 2])) + MP(0.25, 2)
    exact = exact_sum(exact_wishart(atomic_moments([(1, 0.5), (2, 0.5)]), c), wishart_moments(Fraction(1, 4), 2))
    law, exact = law * MP(0.5), exact_wishart(exact, c)
    check_moments(law, exact)
    law, exact = (
        free.rectangular(law, noise_variance=0.75, ratio=0.5),
        exact_rectangular(c, exact, wishart_moments(c, Fraction(3, 4))),
    )
    check_moments(law, exact)
    law, exact = free.power(law, 1.5), exact_power(exact, Fraction(3, 2))
    check_moments(law, exact)
    assert type(law).__name__ == "CurveLaw"


def test_depth_four_on_a_tree():
    """(((MP ⊠ atoms) ⊞ SC) ⊞ uniform) ⊠ uniform' ⊠ MP: three leaves."""
    law = (((MP(0.5) * Atomic([1, 2])) + SC(0.25)) + Uniform(4, 5)) * Uniform(1, 2) * MP(0.25)
    exact = exact_sum(
        exact_wishart(atomic_moments([(1, 0.5), (2, 0.5)]), Fraction(1, 2)),
        semicircle_moments(Fraction(1, 4)),
        uniform_moments(4, 5),
    )
    exact = exact_wishart(exact_product(exact, uniform_moments(1, 2)), Fraction(1, 4))
    check_moments(law, exact)


def test_results_are_taken_apart():
    """Sums of sums are merged, whatever the brackets."""
    first = (MP(0.5) + SC(0.5)) + (SC(0.25) + Atomic([0, 1]))
    second = free.additive(MP(0.5), SC(0.75), Atomic([0, 1]))
    same_law(first, second)
    third = (MP(0.5) + Atomic([0, 1])) + (Atomic([0, 1]) + MP(2, 0.5))
    same_law(third, free.additive(MP(0.5), MP(2, 0.5), free.power(Atomic([0, 1]), 2)))


def test_numbers_scale_and_shift():
    base = MP(0.5) + Uniform(0, 1)
    same_law(2 * base - 3, 2 * MP(0.5) + Uniform(0, 2) + -3)
    same_law(base / 4, MP(0.5, 0.25) + Uniform(0, 0.25))
    same_law(1 - base, (1 - MP(0.5)) + Uniform(-1, 0))
    same_law(-base, -Uniform(0, 1) - MP(0.5))
    product = MP(0.5) * Uniform(1, 2)
    same_law(3 * product, MP(0.5, 3) * Uniform(1, 2))
    same_law(3 * product, MP(0.5) * (3 * Uniform(1, 2)))
    with pytest.raises(TypeError):
        base / 0
    with pytest.raises(TypeError):
        1 / base
    with pytest.raises(TypeError):
        base + "a"
    with pytest.raises(TypeError):
        base * [2]


@functools.cache
def many_eigenvalues():
    return np.sort(np.random.default_rng(5).standard_normal(100))


def test_many_intervals():
    """100 eigenvalues of a matrix and little noise: each gap well above 4 √(s/n) stays open."""
    values = many_eigenvalues()
    law = Empirical(values) + SC(1e-4)
    gaps = np.diff(values)
    assert 1 + np.sum(gaps > 6 * math.sqrt(1e-4 / 100)) <= len(law.support()) <= 100
    assert law.certificate.mass_error < 1e-11
    # every interval has a whole number of eigenvalues
    masses = np.array([law.cdf(b) - law.cdf(a) for a, b in law.support()]) * 100
    np.testing.assert_allclose(masses, np.round(masses), rtol=0, atol=1e-8)
    inside = [np.sum((values > a) & (values < b)) for a, b in law.support()]
    np.testing.assert_allclose(masses, inside, rtol=0, atol=1e-8)
    exact = exact_sum(
        [Fraction(float(np.mean(values**k))) for k in range(1, 7)], semicircle_moments(Fraction(1, 10000), 6)
    )
    check_moments(law, exact, 1e-11)


# -- properties on random parameters ----------------------------------------------------------------------------------

NUMBERS = st.floats(0.1, 3).map(lambda x: round(x, 3))
FEW = settings(max_examples=4, deadline=None, derandomize=True)


@FEW
@given(NUMBERS, NUMBERS, NUMBERS)
def test_sum_commutes_and_associates(ratio, variance, length):
    parts = [MP(ratio), Uniform(-length, 1), SC(variance)]
    first = free.additive(*parts)
    same_law(first, parts[2] + (parts[1] + parts[0]))
    assert first.mean() == pytest.approx(sum(part.mean() for part in parts), abs=1e-12)
    assert first.variance() == pytest.approx(sum(part.variance() for part in parts), rel=1e-11)


@FEW
@given(NUMBERS, NUMBERS, NUMBERS)
def test_product_commutes_and_associates(ratio, other, length):
    parts = [MP(ratio), MP(other, 2), Uniform(1, 1 + length)]
    first = free.multiplicative(*parts)
    same_law(first, parts[2] * (parts[1] * parts[0]), 1e-10)
    means = [part.mean() for part in parts]
    spread = sum(part.variance() / part.mean() ** 2 for part in parts)
    assert first.mean() == pytest.approx(math.prod(means), rel=1e-12)
    assert first.variance() == pytest.approx(math.prod(means) ** 2 * spread, rel=1e-10)


@FEW
@given(NUMBERS, NUMBERS, NUMBERS)
def test_rectangular_scaling(ratio, noise, factor):
    c, noise = min(ratio, 1), 0.1 * noise
    law = free.rectangular(Atomic([1, 4], [0.25, 0.75]), noise_variance=noise, ratio=c)
    scaled = free.rectangular(Atomic([factor, 4 * factor], [0.25, 0.75]), noise_variance=factor * noise, ratio=c)
    x = np.concatenate([a + (b - a) * np.linspace(0.05, 0.95, 7) for a, b in law.support()])
    np.testing.assert_allclose(scaled.pdf(factor * x), law.pdf(x) / factor, rtol=1e-9)
    assert law.mean() == pytest.approx(3.25 + noise, rel=1e-12)


# -- what comes back, what may be passed ------------------------------------------------------------------------------

RESULTS = {
    "curve": lambda: MP(0.5) * Uniform(1, 2),
    "tree": lambda: Uniform(-1, 1) + Uniform(0, 1),
    "atoms": lambda: Atomic([0, 1], [0.4, 0.6]) + Atomic([0, 1], [0.7, 0.3]),
    "root": lambda: SC(1) * MP(0.5),
    "noise": lambda: free.rectangular(Atomic([0, 4], [0.9, 0.1]), noise_variance=1, ratio=0.5),
    "power": lambda: free.compression(Uniform(0, 1), 0.5),
    "fuss": lambda: FussCatalan(2),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_pickle_and_take_any_numbers(name):
    law = RESULTS[name]()
    again = pickle.loads(pickle.dumps(law))
    assert type(again) is type(law)
    assert repr(again) == repr(law)
    assert again.support() == law.support()
    x = law.ppf([0.2, 0.5, 0.9])
    assert again.pdf(x).tolist() == law.pdf(x).tolist()
    for method in (law.pdf, law.cdf, law.ppf, law.partial_mean, law.cauchy):
        assert method([]).shape == (0,)
        assert method(np.empty((3, 0))).shape == (3, 0)
    assert np.ndim(law.pdf(1)) == np.ndim(law.ppf(0)) == np.ndim(law.cauchy(1j)) == 0
    assert law.cdf([[1, 2], [3, 4]]).shape == (2, 2)
    assert law.pdf(np.float32(1)) == law.pdf(np.int64(1)) == law.pdf(1)
    assert law.cauchy(0) == law.cauchy(0.0) if law.support()[0][0] > 0 and not law.atoms() else True
    for bad in (math.nan, "a", None):
        with pytest.raises(ParameterError):
            law.pdf(bad)


def test_repr_names_the_operation():
    assert repr(MP(0.5) * Uniform(1, 2)) == (
        "multiplicative(MarchenkoPastur(ratio=0.5, variance=1), Uniform(low=1, high=2))"
    )
    assert repr(PM + SC(0.5)) == "additive(Atomic(-1: 0.5, 1: 0.5), Semicircle(variance=0.5, mean=0))"
    assert repr(free.power(Uniform(0, 1), 1.5)) == "power(Uniform(low=0, high=1), 1.5)"
    assert "noise_variance=1, ratio=0.5" in repr(RESULTS["noise"]())


def test_fractions_and_numpy_numbers_are_parameters():
    same_law(free.power(Uniform(0, 1), Fraction(3, 2)), free.power(Uniform(0, 1), np.float64(1.5)))
    law = free.rectangular(Uniform(1, 2), noise_variance=Fraction(1, 2), ratio=np.float32(0.5))
    assert law.mean() == pytest.approx(2, rel=1e-13)
    assert (Fraction(1, 2) * MP(0.5)).mean() == 0.5


@pytest.mark.parametrize("bad", [1, "a", None, [0, 1], MarchenkoPastur])
def test_arguments_must_be_laws(bad):
    law = Uniform(0, 1)
    for call in (
        lambda: free.additive(law, bad), lambda: free.additive(bad, law), lambda: free.additive(law, law, bad),
        lambda: free.multiplicative(law, bad), lambda: free.multiplicative(bad, law), lambda: free.power(bad, 2),
        lambda: free.multiplicative_power(bad, 2), lambda: free.compression(bad, 0.5), lambda: free.square(bad),
        lambda: free.square_root(bad), lambda: free.inverse(bad), lambda: free.check(bad),
    ):  # fmt: skip
        with pytest.raises(ParameterError, match="must be a law"):
            call()
    with pytest.raises(ParameterError, match="signal must be a law"):
        free.rectangular(bad, noise_variance=1, ratio=1)
    if bad is not None:
        with pytest.raises(ParameterError, match="other must be a law"):
            free.rectangular(law, bad, ratio=1)


def test_negative_laws_are_no_factors():
    for first, second in ((Uniform(-1, 2), MP(0.5)), (SC(1), SC(1)), (MP(0.5), SC(1, mean=0.5)), (PM, -MP(0.5))):
        with pytest.raises(ParameterError, match=r"multiplicative takes laws on \[0, inf\)"):
            first * second
    with pytest.raises(ParameterError, match=r"law must be a law on \[0, inf\)"):
        free.multiplicative_power(SC(1), 2)
    with pytest.raises(ParameterError, match=r"signal must be a law on \[0, inf\)"):
        free.rectangular(SC(1), noise_variance=1, ratio=0.5)
    with pytest.raises(ParameterError, match=r"other must be a law on \[0, inf\)"):
        free.rectangular(MP(1), PM, ratio=0.5)
    with pytest.raises(ParameterError):
        free.square_root(SC(1))
    with pytest.raises(ParameterError):
        free.inverse(Uniform(0, 1))


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, "a", None, True, 1j])
def test_numbers_must_be_positive(bad):
    law = Uniform(1, 2)
    for call, name in (
        (lambda: free.power(law, bad), "exponent"), (lambda: free.multiplicative_power(law, bad), "exponent"),
        (lambda: free.compression(law, bad), "share"),
        (lambda: free.rectangular(law, noise_variance=1, ratio=bad), "ratio"),
    ):  # fmt: skip
        with pytest.raises(ParameterError, match=name):
            call()
    if bad is not None and bad != 0:
        with pytest.raises(ParameterError, match="noise_variance"):
            free.rectangular(law, noise_variance=bad, ratio=1)


def test_ranges_of_numbers():
    law = Uniform(1, 2)
    with pytest.raises(ParameterError, match="exponent must be at least 1"):
        free.power(law, 0.99)
    with pytest.raises(ParameterError, match="exponent must be at least 1"):
        free.multiplicative_power(MP(0.5), 0.5)
    with pytest.raises(ParameterError, match="share must be at most 1"):
        free.compression(law, 1.01)
    with pytest.raises(ParameterError, match="either other or noise_variance"):
        free.rectangular(law, ratio=1)
    with pytest.raises(ParameterError, match="either other or noise_variance"):
        free.rectangular(law, law, noise_variance=1, ratio=1)
    with pytest.raises(ParameterError, match=r"signal must have an atom of weight at least 1 - 1/ratio = 0\.5 at 0"):
        free.rectangular(law, noise_variance=1, ratio=2)
    with pytest.raises(ParameterError, match="other must have an atom"):
        free.rectangular(MP(2), Atomic([0, 1], [0.25, 0.75]), ratio=2)
    with pytest.raises(TypeError):
        free.rectangular(law, noise_variance=1)


def test_multiplicative_power_of_zero():
    with pytest.raises(ParameterError, match="law"):
        free.multiplicative_power(Atomic([0]), 2)


def test_singular_products_are_refused():
    """A uniform density that reaches 0 makes the product's density logarithmic there."""
    with pytest.raises(CertificationError):
        MP(0.5) * Uniform(0, 1)


# -- against matrices -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [
        lambda: SC(1) + MP(0.5),
        lambda: MP(0.5) * Uniform(1, 2),
        lambda: Uniform(-1, 1) + Arcsine(0, 2),
        lambda: free.rectangular(Uniform(1, 4), noise_variance=0.5, ratio=0.5),
        lambda: free.compression(Atomic([-1, 1]), 0.5),
        lambda: free.rectangular(Atomic([1, 4]), Uniform(1, 2), ratio=0.5),
    ],
)
def test_check_draws_the_ensemble(build):
    """Rigid eigenvalues: distance of order 1/n, of which 6 are allowed and 2 to 3 are usual."""
    result = free.check(build(), n=400, draws=2, rng=4)
    assert isinstance(result, Comparison)
    assert result.ks < 6 / 400


def test_check_depends_on_the_seed_alone():
    law = PM + SC(0.5)
    first = free.check(law, n=60, draws=2, rng=1)
    assert first.ks == free.check(law, n=60, draws=2, rng=np.random.default_rng(1)).ks
    assert first.ks != free.check(law, n=60, draws=2, rng=2).ks
    # another law is told apart
    drawn = [np.linalg.eigvalsh((PM + SC(0.6)).matrix(400, 3))]
    from gequiv.simulation import compare

    assert compare(law, drawn).ks > 10 / 400


@pytest.mark.parametrize("name", ["n", "draws"])
@pytest.mark.parametrize("bad", [0, -1, 1.5, "a", True, None])
def test_check_checks_its_numbers(name, bad):
    with pytest.raises(ParameterError, match=name):
        free.check(SC(1), **{name: bad})
    with pytest.raises(ParameterError, match="rng"):
        free.check(SC(1), n=10, rng="a")
