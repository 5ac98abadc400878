"""The contract that every law passes, written once; law classes call `check_contract`."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest

from gequiv import Law, ParameterError

UPPER = np.array([0.3 + 0.2j, 1.0 + 1.0j, -0.5 + 0.1j, 2.0 + 1e-4j, 0.01 + 0.5j])


SMOOTH = [0, 1, 2, 4]  # of those, where quadrature in panels that know nothing of the point is exact


def _next_step(law: Law, x: np.ndarray) -> np.ndarray:
    """How much mass the rounding of x may hide: it counts where the density diverges at an edge other than 0."""
    return law.cdf(np.nextafter(x, np.inf)) - law.cdf(x)


def integrate(law: Law, function, low: float, high: float) -> complex:
    """Integral of function(x) pdf(x) over part of the support, by composite Gauss–Legendre quadrature.

    In x = a + (b-a) sin²(θ/2), which takes out the square roots at both ends, on panels that shrink towards the ends.
    """
    nodes, weights = np.polynomial.legendre.leggauss(40)
    shrinking = 0.5 ** np.arange(1, 40)
    total = 0.0
    for a, b in law.support():
        left, right = max(a, low), min(b, high)
        if left >= right:
            continue
        start, end = (2 * math.asin(math.sqrt(min(1.0, (x - a) / (b - a)))) for x in (left, right))
        cuts = np.unique(np.concatenate([shrinking, 1 - shrinking, np.linspace(0, 1, 41)]))
        cuts = start + (end - start) * cuts
        theta = (0.5 * (cuts[1:] + cuts[:-1])[:, None] + 0.5 * np.diff(cuts)[:, None] * nodes).reshape(-1)
        measure = (0.5 * np.diff(cuts)[:, None] * weights).reshape(-1)
        x = a + (b - a) * np.sin(theta / 2) ** 2
        inside = (x > a) & (x < b)
        x, theta, measure = x[inside], theta[inside], measure[inside]
        total += np.sum(function(x) * law.pdf(x) * (b - a) * np.sin(theta) / 2 * measure)
    return total


def check_contract(law: Law, *, tolerance: float = 1e-9, slope: float = 1e-8, matrix: float = 8.0) -> None:
    """Everything that holds for any law: positive or not, with atoms anywhere, with or without a density.

    `tolerance` is that of the quadrature here, relative to the law's extent; `slope` that of dG/dz; `matrix` how many
    of n eigenvalues may lie on the wrong side of any point.
    """
    support, atoms = law.support(), law.atoms()
    points = [x for interval in support for x in interval] + [location for location, _ in atoms]
    bottom, top = min(points), max(points)  # of the whole spectrum
    unit = max(abs(bottom), abs(top))
    weight = sum(w for _, w in atoms)
    assert all(a < b for a, b in support)
    assert all(first[1] < second[0] for first, second in itertools.pairwise(support))
    assert all(w > 0 for _, w in atoms)
    assert all(first[0] < second[0] for first, second in itertools.pairwise(atoms))

    # mass one, distribution function the integral of the density, moments by two routes
    assert integrate(law, np.ones_like, bottom, top) + weight == pytest.approx(1, abs=tolerance)
    for x in (bottom + 0.3 * (top - bottom), bottom + 0.8 * (top - bottom)):
        below = sum(w for location, w in atoms if location <= x)
        assert law.cdf(x) == pytest.approx(integrate(law, np.ones_like, bottom, x) + below, abs=tolerance)
        mean_below = sum(w * location for location, w in atoms if location <= x)
        partial = integrate(law, lambda t: t, bottom, x) + mean_below
        assert law.partial_mean(x) == pytest.approx(partial, abs=tolerance * unit)
    for k in (0, 1, 2, 3, 4):
        direct = integrate(law, lambda t, k=k: (t / unit) ** k, bottom, top)
        direct += sum(w * (location / unit) ** k for location, w in atoms)
        # moments of a positive law are positive, and small ones are held to their own size
        allowed = {"rel": tolerance * 10} if bottom >= 0 else {"abs": tolerance * 10}
        assert law.moment(k) / unit**k == pytest.approx(direct, **allowed)

    # the distribution function: monotone, from 0 to 1, right-continuous at the atoms
    grid = np.linspace(min(bottom, 0) - 0.1 * unit, max(top, 0) + 0.1 * unit, 2001)
    values = law.cdf(grid)
    assert (np.diff(values) >= -1e-15).all()
    assert law.cdf(-np.inf) == 0
    assert law.cdf(np.inf) == pytest.approx(1, abs=1e-14)
    for location, w in atoms:
        jump = law.cdf(location) - law.cdf(np.nextafter(location, -np.inf))
        assert jump == pytest.approx(w, abs=1e-12)
    assert law.partial_mean(-np.inf) == 0
    assert law.partial_mean(np.inf) == pytest.approx(law.mean(), rel=1e-9, abs=1e-13 * unit)

    # density: zero outside exactly, non-negative inside
    assert (law.pdf(grid) >= 0).all()
    outside = np.ones_like(grid, dtype=bool)
    for a, b in support:
        outside &= (grid < a) | (grid > b)
    assert (law.pdf(grid[outside]) == 0).all()
    assert law.pdf(np.inf) == law.pdf(-np.inf) == 0

    # quantiles
    q = np.linspace(1e-6, 1 - 1e-9, 57)
    if weight < 0.99:
        q = np.sort(np.concatenate([q, np.linspace(weight + 1e-6, 1 - 1e-9, 57)]))
    x = law.ppf(q)
    assert (law.cdf(x) - q >= -1e-13 - _next_step(law, x)).all()
    assert (law.cdf(np.nextafter(x, -np.inf)) - q <= 1e-13).all()
    assert law.ppf(1) == pytest.approx(top, rel=1e-14)
    assert law.ppf(0) == bottom
    np.testing.assert_allclose(law.ppf(law.cdf(x)), x, rtol=1e-7, atol=1e-9 * unit if bottom < 0 else 0)
    for location, _ in atoms:
        assert law.ppf(law.cdf(location)) == location
    assert (np.diff(x) >= 0).all()

    # Cauchy transform
    z = UPPER * unit
    g = law.cauchy(z)
    assert (g.imag < 0).all()
    np.testing.assert_allclose(law.cauchy(z.conj()), g.conj(), rtol=1e-13)
    far = np.array([1e9j, -1e9, 1e9 + 1e9j]) * unit
    np.testing.assert_allclose(far * law.cauchy(far), 1, rtol=1e-8)
    same, derivative = law._cauchy_and_slope(z)
    np.testing.assert_allclose(same, g, rtol=1e-13)
    for point, value, change in zip(z[SMOOTH], g[SMOOTH], derivative[SMOOTH], strict=True):
        total = integrate(law, lambda t, w=point: 1 / (w - t), bottom, top)
        total += sum(w / (point - location) for location, w in atoms)
        assert abs(value - total) < 10 * tolerance * abs(total)
        total = -integrate(law, lambda t, w=point: 1 / (w - t) ** 2, bottom, top)
        total -= sum(w / (point - location) ** 2 for location, w in atoms)
        assert abs(change - total) < (10 * tolerance + slope) * max(abs(total), abs(value) ** 2)
    beyond = np.array([min(bottom, 0) - unit, 2 * unit])
    real_line = law.cauchy(beyond)
    assert (real_line.imag == 0).all()
    assert real_line[0].real < 0 < real_line[1].real
    assert (law._cauchy_and_slope(beyond.astype(complex))[1].real < 0).all()
    for a, b in support[:1]:
        inside = 0.5 * (a + b)
        near = law.cauchy(inside + 1e-9j * (b - a))
        assert -near.imag / math.pi == pytest.approx(law.pdf(inside), rel=1e-6)
        with pytest.raises(ParameterError, match="off the support"):
            law.cauchy(inside)
    for location, _ in atoms:
        with pytest.raises(ParameterError, match="off the"):
            law.cauchy(location)

    # what may be passed, and what comes back
    assert np.ndim(law.pdf(1)) == 0
    assert isinstance(law.cdf(0.5), float)
    assert law.pdf([]).shape == law.cdf([]).shape == law.ppf([]).shape == law.cauchy([]).shape == (0,)
    assert law.pdf([[1, 2], [3, 4]]).shape == (2, 2)
    assert law.pdf([1, 2])[0] == law.pdf(np.array([1.0, 2.0]))[0] == law.pdf(1.0)
    for call in (law.pdf, law.cdf, law.ppf, law.cauchy):
        with pytest.raises(ParameterError, match="NaN"):
            call(math.nan)
    for bad in (-0.1, 1.1, math.inf):
        with pytest.raises(ParameterError, match=r"q must lie in \[0, 1\]"):
            law.ppf(bad)
    with pytest.raises(ParameterError, match="x must be real"):
        law.pdf(1j)
    with pytest.raises(ParameterError, match="x must be real"):
        law.pdf("a")
    for bad in (-1, 1.5, "a", True):
        with pytest.raises(ParameterError, match="k must be an integer"):
            law.moment(bad)
    assert law.variance() == pytest.approx(law.moment(2) - law.mean() ** 2)

    # draws: DKW at significance 1e-6
    sample = np.sort(law.rvs(20000, np.random.default_rng(7)))
    upper = np.searchsorted(sample, sample, side="right") / sample.size  # ties at the atoms
    lower = np.searchsorted(sample, sample, side="left") / sample.size
    bound = math.sqrt(math.log(2 / 1e-6) / (2 * sample.size))
    assert np.max(np.abs(law.cdf(sample) - upper)) < bound
    assert np.max(np.abs(law.cdf(np.nextafter(sample, -np.inf)) - lower)) < bound
    assert law.rvs((2, 3), np.random.default_rng(1)).shape == (2, 3)
    assert np.ndim(law.rvs(rng=np.random.default_rng(1))) == 0
    assert law.rvs(3, 5).tolist() == law.rvs(3, np.random.default_rng(5)).tolist()
    with pytest.raises(ParameterError, match="rng must be"):
        law.rvs(3)
    with pytest.raises(ParameterError, match="size must be"):
        law.rvs("a", np.random.default_rng(1))

    # a matrix with that spectrum: symmetric, and its eigenvalues on the right side of every point but for a few
    n = 150
    drawn = law.matrix(n, 3)
    assert drawn.shape == (n, n)
    assert (drawn == drawn.T).all()
    eigenvalues, slack = np.linalg.eigvalsh(drawn), 1e-9 * unit  # an atom's eigenvalues are rounded
    assert np.max(np.arange(1, n + 1) - n * law.cdf(eigenvalues + slack)) < matrix
    assert np.max(n * law.cdf(np.nextafter(eigenvalues - slack, -np.inf)) - np.arange(n)) < matrix
    assert (law.matrix(4, np.random.default_rng(3)) == law.matrix(4, 3)).all()
    assert law.matrix(1, 1).shape == (1, 1)
    with pytest.raises(ParameterError, match="n must be an integer of at least 1"):
        law.matrix(0, 1)
    with pytest.raises(ParameterError, match="rng must be"):
        law.matrix(3, None)


def transform_errors(law: Law, exact, points) -> tuple[float, float]:
    """Largest relative errors of G and dG/dz at points, against a transform in mpmath at 60 digits."""
    points = np.asarray(points, dtype=complex)
    values, slopes = law._cauchy_and_slope(points)
    errors = []
    with mpmath.workdps(60):
        for z, value, slope in zip(points, values, slopes, strict=True):
            w, step = mpmath.mpc(z), mpmath.mpf(10) ** -22 * max(1, abs(z))
            true = exact(w)
            change = (exact(w + step) - exact(w - step)) / (2 * step)
            errors.append((abs(mpmath.mpc(value) / true - 1), abs(mpmath.mpc(slope) / change - 1)))
    return tuple(float(max(column)) for column in zip(*errors, strict=True))


def check_densities(law: Law, density, *, fractions=(0.03, 0.4, 0.9)) -> None:
    """pdf, cdf and partial mean of a law on one interval against quadrature of an mpmath density."""
    low, high = law.support()[0]
    for fraction in fractions:
        x = low + fraction * (high - low)
        with mpmath.workdps(40):
            a, b, right = (mpmath.mpf(float(value)) for value in (low, high, x))
            assert law.pdf(x) == pytest.approx(float(density(right)), rel=1e-13)
            # x = a + (b - a) sin²(θ/2) takes the square roots at both ends out of the integrand
            end = 2 * mpmath.asin(mpmath.sqrt((right - a) / (b - a)))

            def mass(theta, a=a, b=b):
                t = a + (b - a) * mpmath.sin(theta / 2) ** 2
                value = density(t) * (b - a) * mpmath.sin(theta) / 2
                return mpmath.mpc(value, value * t)

            # at the edge itself a density may be infinite, and there may be a pole just beyond it
            cuts = [mpmath.mpf(10) ** -15, *(end / 8**k for k in range(8, -1, -1))]
            both = mpmath.quad(mass, cuts, method="gauss-legendre", maxdegree=5)
            below = sum(weight for location, weight in law.atoms() if location <= x)
            mean = sum(weight * location for location, weight in law.atoms() if location <= x)
        assert law.cdf(x) - below == pytest.approx(float(both.real), abs=1e-14)
        assert law.partial_mean(x) - mean == pytest.approx(float(both.imag), abs=1e-14 * max(abs(low), abs(high)))
