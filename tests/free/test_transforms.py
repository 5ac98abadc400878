"""R-, S-, η- and Voiculescu's transform: closed forms, the curve of the chain in mpmath, identities, domains."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gequiv import CertificationError, GaussianChainPlusNoise, MarchenkoPastur, ParameterError, SingularValueLaw
from gequiv.free.cumulants import eta_series, free_cumulants, s_series
from gequiv.free.transforms import eta_transform, r_transform, s_transform, voiculescu_transform
from gequiv.laws import Arcsine, Atomic, Semicircle, Uniform

CASES = [(1, 1), (0.3, 2.5), (4, 0.7), (0.999, 3), (2, 0.01), (1e-4, 1)]
CLOSE_TO_THE_END = np.array([1e-12, 1e-6, 1e-3, 0.03, 0.1, 0.3, 0.7, 0.99, 1 - 1e-8, 1 - 1e-13])
ANGLES = np.exp(1j * np.linspace(-3.1, 3.1, 10))


@pytest.mark.parametrize(("c", "v"), CASES)
def test_marchenko_pastur_on_the_real_line(c, v):
    """R(g) = v/(1 - cvg), S(u) = 1/(v(1 + cu)); ends at G(top) = 1/(v√c(1+√c)), zG - 1 = 1/√c there."""
    law, root = MarchenkoPastur(c, v), math.sqrt(c)
    g = CLOSE_TO_THE_END / (v * root * (1 + root))
    np.testing.assert_allclose(r_transform(law, g), v / (1 - c * v * g), rtol=3e-14)
    # left of the spectrum: down to G(bottom) without an atom at 0, else without end
    g = -CLOSE_TO_THE_END / (v * root * (1 - root)) if c < 1 else -np.array([1e-9, 0.01, 0.3, 1, 7, 1e3, 1e6, 1e12]) / v
    np.testing.assert_allclose(r_transform(law, g), v / (1 - c * v * g), rtol=3e-14)
    u = CLOSE_TO_THE_END / root
    np.testing.assert_allclose(s_transform(law, u), 1 / (v * (1 + c * u)), rtol=1e-14)
    u = -CLOSE_TO_THE_END[:-2] * min(1, 1 / c)
    np.testing.assert_allclose(s_transform(law, u), 1 / (v * (1 + c * u)), rtol=1e-13)


@pytest.mark.parametrize(("c", "v"), CASES)
def test_marchenko_pastur_off_the_real_line(c, v):
    """On rays along which the inverse stays in the opposite half-plane; beyond them, refused."""
    law, root = MarchenkoPastur(c, v), math.sqrt(c)
    along = np.linspace(0.02, 1, 200)
    moduli = np.array([0.01, 0.1, 0.5, 0.9, 1.5, 4])[:, None]

    g = (moduli * ANGLES).ravel() / (v * root * (1 + root))
    ray = g[:, None] * along
    inside = ((v / (1 - c * v * ray) + 1 / ray).imag * ray.imag < 0).all(axis=1)
    np.testing.assert_allclose(r_transform(law, g[inside]), v / (1 - c * v * g[inside]), rtol=3e-14)
    for bad in g[~inside]:
        with pytest.raises(CertificationError, match="could not be reached along its ray"):
            r_transform(law, bad)

    u = (moduli * ANGLES).ravel() / root
    ray = u[:, None] * along
    inside = ((v * (1 + ray) * (1 + c * ray) / ray).imag * ray.imag < 0).all(axis=1)
    np.testing.assert_allclose(s_transform(law, u[inside]), 1 / (v * (1 + c * u[inside])), rtol=3e-14)
    for bad in u[~inside]:
        with pytest.raises(CertificationError, match="could not be reached along its ray"):
            s_transform(law, bad)


@pytest.mark.parametrize(("variance", "mean"), [(1, 0), (2.5, -3), (1e-6, 1), (4, 2.1)])
def test_semicircle(variance, mean):
    """R(g) = m + s g; from u = g R(g), S(u) = 2/(m + √(m² + 4su))."""
    law, size = Semicircle(variance, mean), math.sqrt(variance)
    g = np.concatenate([[0.0], CLOSE_TO_THE_END, -CLOSE_TO_THE_END]) / size
    np.testing.assert_allclose(r_transform(law, g), mean + variance * g, atol=2e-14 * (size + abs(mean)))
    g = np.array([0.01, 0.2, 0.95])[:, None] * ANGLES / size
    np.testing.assert_allclose(r_transform(law, g), mean + variance * g, atol=2e-14 * (size + abs(mean)))
    if mean:
        u = 1e-3 * np.array([0, 1, -0.5, 0.5j, 0.3 - 0.2j])
        root = np.sqrt(mean**2 + 4 * variance * u + 0j)
        np.testing.assert_allclose(s_transform(law, u), 2 / (mean + np.sign(mean) * root), rtol=1e-14)


def test_two_points():
    """Weights 1-p at 0 and p at 1: g R² + (1 - g) R = p, and S(u) = (1+u)/(p+u)."""
    p, law = 0.25, Atomic([0, 1], [0.75, 0.25])
    g = np.array([-300, -30, -3, -0.3, 0.05, 0.4, 2, 30])
    with mpmath.workdps(40):
        expected = [(x - 1 + mpmath.sqrt((x - 1) ** 2 + 4 * p * x)) / (2 * x) for x in map(mpmath.mpf, g)]
    np.testing.assert_allclose(r_transform(law, g), np.array(expected, dtype=float), rtol=1e-13)
    u = np.array([-0.24, -0.2, -0.1, -0.01, 0, 0.01, 0.1, 1, 100, 1e6, 1e12])
    np.testing.assert_allclose(s_transform(law, u), (1 + u) / (p + u), rtol=1e-13)
    # a projection compared with its mirror image: the lower half of the line
    mirrored = Atomic([-1, 0], [0.25, 0.75])
    np.testing.assert_allclose(r_transform(mirrored, -g), -np.array(expected, dtype=float), rtol=1e-13)


def test_edges_of_every_kind():
    """Edges at which G diverges leave no end to the real values."""
    g = np.array([-600, -5.5, -0.1, 0.1, 1, 40, 600])
    # R of the uniform law: K = 1/(1 - e^{-g}); of the arcsine law on (-a, a): (√(1 + a²g²) - 1)/g
    np.testing.assert_allclose(r_transform(Uniform(0, 1), g), -1 / np.expm1(-g) - 1 / g, rtol=1e-13)
    radius = 1.5
    law = Arcsine(-radius, radius)
    np.testing.assert_allclose(r_transform(law, g), (np.hypot(1, radius * g) - 1) / g, rtol=1e-11, atol=1e-14)
    point = Atomic([3.0])
    assert r_transform(point, [0, 1, -7, 1j]).tolist() == [3, 3, 3, 3]
    np.testing.assert_allclose(s_transform(point, [0, 1, -0.3]), 1 / 3, rtol=1e-15)


def chain_curve(law, t):
    """z, G and zG - 1 of the chain at the parameter t of its rational curve, in mpmath."""
    share = mpmath.mpf(law.signal) / (mpmath.mpf(law.signal) + mpmath.mpf(law.noise))
    c = mpmath.mpf(law.aspect.numerator) / law.aspect.denominator
    product = mpmath.fprod(1 + share * t * w.denominator / w.numerator for w in law.inner)
    y = share * t + (1 - share) * t / product
    z = (mpmath.mpf(law.signal) + mpmath.mpf(law.noise)) * (1 + y) * (1 + c * y) * product / t
    return z, (1 + y) / z, y


@pytest.mark.parametrize(
    "parameters",
    [
        ([Fraction(1, 2)], 1, 1.0, 0.7),
        ([Fraction(1, 2), 2], Fraction(3, 10), 2.0, 0.1),
        ([3, Fraction(1, 5)], 4, 1, 0.01),
    ],
)
def test_chain_against_its_curve(parameters):
    """The curve gives g, R(g) = z - 1/g, u and S(u) to 40 digits, with no root to be found."""
    law = GaussianChainPlusNoise(*parameters)
    with mpmath.workdps(40):
        for sign in (1, -1):
            points = []
            for k in range(1, 200):
                t = sign * mpmath.mpf(2) ** (-20 + k / mpmath.mpf(8))
                z, g, y = chain_curve(law, t)
                # on t > 0 z falls from infinity to the top, on t < 0 it rises from -infinity to 0
                if y <= -1 or z * sign <= 0 or (points and z * sign >= points[-1][0] * sign):
                    break
                points.append((z, z - 1 / g, g, y, (1 + y) / (y * z)))
            points = points[:-1]
            assert len(points) > 130
            # from points of the curve rounded to floats
            _, r, g, u, s = np.array(points, dtype=float).T
            np.testing.assert_allclose(r_transform(law, g), r, rtol=2e-13)
            np.testing.assert_allclose(s_transform(law, u), s, rtol=2e-13)


def test_chain_at_complex_points():
    law = GaussianChainPlusNoise([0.5], aspect=0.6, signal=1.0, noise=0.7)
    top = law.support()[-1][1]
    z = law.mean() + top * (np.array([1.1, 1.6, 4, 30])[:, None] * np.exp(1j * np.linspace(-3, 3, 8))).ravel()
    g = law.cauchy(z)
    np.testing.assert_allclose(r_transform(law, g), z - 1 / g, atol=3e-14 * top)
    u = z * g - 1
    np.testing.assert_allclose(s_transform(law, u), (1 + u) / (u * z), rtol=3e-13)
    inverse = r_transform(law, g) + 1 / g
    np.testing.assert_allclose(law.cauchy(inverse), g, rtol=1e-13)


@pytest.mark.parametrize(
    "law", [MarchenkoPastur(0.4, 1.7), GaussianChainPlusNoise([0.5, 2], 0.3, 2.0, 0.1), Uniform(0.5, 3)], ids=repr
)
def test_identities(law):
    """S(u) R(u S(u)) = 1, and the series of cumulants near 0."""
    u = np.array([-0.5, -0.3, -1e-3, 0, 1e-9, 0.2, 0.4, 0.1 + 0.1j, -0.2j])
    s = s_transform(law, u)
    np.testing.assert_allclose(s * r_transform(law, u * s), 1, rtol=1e-13)
    moments = [law.moment(k) for k in range(1, 7)]
    small = np.array([1e-4, -1e-4, 1e-4j]) / law.support()[-1][1]
    for function, series in ((r_transform, free_cumulants(moments)), (s_transform, s_series(moments))):
        expected = np.polynomial.polynomial.polyval(small, series)
        np.testing.assert_allclose(function(law, small), expected, rtol=1e-13)
    expected = np.polynomial.polynomial.polyval(small, [0.0, *eta_series(moments)])
    np.testing.assert_allclose(eta_transform(law, small), expected, rtol=1e-13)


@settings(deadline=None, max_examples=25)
@given(
    c=st.floats(0.05, 10),
    v=st.floats(1e-3, 1e3),
    share=st.floats(-0.99, 0.99),
    scale=st.floats(0.01, 100),
)
def test_scaling(c, v, share, scale):
    """R(g) of a·x is a R(ag), S of a·x is S/a; additivity over the variance of the noise."""
    law, scaled = MarchenkoPastur(c, v), MarchenkoPastur(c, v * scale)
    g = share / (v * math.sqrt(c) * (1 + math.sqrt(c)))
    assert r_transform(scaled, g / scale) == pytest.approx(scale * r_transform(law, g), rel=1e-12)
    u = share * min(1 / math.sqrt(c), 1 / c, 1)
    assert s_transform(scaled, u) == pytest.approx(s_transform(law, u) / scale, rel=1e-12)


@settings(deadline=None, max_examples=25)
@given(x=st.floats(1.001, 1e6), angle=st.floats(-3.1, 3.1))
def test_eta(x, angle):
    """η = 1 - z/G(1/z) with the closed form of G, to 40 digits."""
    law = MarchenkoPastur(0.4, 1.7)
    top = law.support()[-1][1]
    for z in (1 / (top * x), -1 / (top * x), np.exp(1j * angle) / (top * x)):
        with mpmath.workdps(40):
            w = 1 / mpmath.mpmathify(z)
            c, v = mpmath.mpf(law.ratio), mpmath.mpf(law.variance_parameter)
            a, b = v * (1 - mpmath.sqrt(c)) ** 2, v * (1 + mpmath.sqrt(c)) ** 2
            root = mpmath.sqrt(w - a) * mpmath.sqrt(w - b)
            g = (w - v * (1 - c) - root) / (2 * c * v * w)
            expected = complex(1 - 1 / (w * g))
        assert abs(eta_transform(law, z) - expected) < 1e-13 * abs(expected)


def test_eta_at_special_points():
    law = MarchenkoPastur(1, 2)
    assert eta_transform(law, 0) == 0
    assert eta_transform(law, 1e-320) == pytest.approx(2e-320)
    assert eta_transform(law, 1e-30) == pytest.approx(2e-30, rel=1e-14)
    assert eta_transform(law, 1 / 9) == pytest.approx(1 / 3, rel=1e-14)  # G(9) = 1/6
    with pytest.raises(ParameterError, match=r"1/z lies off the spectrum: at z = 1\.0"):
        eta_transform(law, [0.01, 1])
    with pytest.raises(ParameterError, match="pole of the η-transform"):
        eta_transform(Atomic([-1, 1]), 1e300)


def test_voiculescu():
    law = MarchenkoPastur(0.5, 1.5)
    w = np.array([-100, -5, 5, 1e9, 3 + 2j, -1e-3 - 9j])
    np.testing.assert_allclose(voiculescu_transform(law, w), 1.5 / (1 - 0.75 / w), rtol=1e-14)


def test_other_laws():
    """A law of which G comes from quadrature: the residual."""
    law = SingularValueLaw(MarchenkoPastur(0.5))
    g = np.array([-0.8, 0.01, 0.3, 0.5])
    z = r_transform(law, g) + 1 / g
    np.testing.assert_allclose(law.cauchy(z).real, g, rtol=1e-10)


def test_what_may_be_passed():
    law = MarchenkoPastur(0.5, 2)
    for function, point in ((r_transform, 0.1), (s_transform, 0.1), (eta_transform, 0.1), (voiculescu_transform, 10)):
        value = function(law, point)
        assert isinstance(value, float)
        assert isinstance(function(law, point + 0.01j), complex)
        assert function(law, []).shape == (0,)
        grid = function(law, [[point, point], [-point, point]])
        assert grid.shape == (2, 2)
        assert grid.dtype == np.float64
        assert grid[0, 0] == grid[1, 1] == pytest.approx(value, rel=1e-15)
        assert function(law, np.array([point], dtype=complex)).dtype == np.complex128
        assert function(law, Fraction(point)) == pytest.approx(value, rel=1e-15)
        pair = function(law, np.array([point + 0.01j, point - 0.01j]))
        assert pair[0] == pytest.approx(pair[1].conj(), rel=1e-13)
        for bad, message in ((math.nan, "NaN"), (math.inf, "finite"), ("a", "numbers"), (True, "numbers")):
            with pytest.raises(ParameterError, match=message):
                function(law, bad)
        with pytest.raises(ParameterError, match="law must be"):
            function(3, point)
    assert r_transform(law, 0) == law.mean()
    assert s_transform(law, 0) == 1 / law.mean()
    assert s_transform(law, 1) == pytest.approx(1 / 3, rel=1e-15)


def test_outside_the_domain():
    law = MarchenkoPastur(2)
    with pytest.raises(ParameterError, match=r"g must.* between -inf and 0\.2928932\d*, .*got 0\.3"):
        r_transform(law, [0.1, 0.3])
    with pytest.raises(ParameterError, match=r"g must.*got -1\.1"):
        r_transform(Semicircle(), -1.1)
    with pytest.raises(ParameterError, match=r"w must.* at least 0\.99999\d*, .*got 0\.5"):
        voiculescu_transform(Semicircle(), 0.5)
    with pytest.raises(ParameterError, match="w must not be 0"):
        voiculescu_transform(law, [1, 0])
    for bad in (-0.5, -0.7, -1, 0.8):
        with pytest.raises(ParameterError, match=rf"u must.* above -0\.5 and up to 0\.70710\d*, .*got {bad}"):
            s_transform(law, bad)
    with pytest.raises(ParameterError, match="law must have a mean other than 0"):
        s_transform(Semicircle(), 0)
    with pytest.raises(ParameterError, match="u must have a modulus of at most"):
        s_transform(Semicircle(1, 0.7), 0.5)
    with pytest.raises(CertificationError, match=r"w = .* could: stop there or before"):
        voiculescu_transform(Semicircle(), 0.2 + 0.1j)
    # the last digits of the real values at an end are those of the rounded edge, and accepted
    assert r_transform(MarchenkoPastur(1), 0.5) == pytest.approx(2, rel=1e-14)
