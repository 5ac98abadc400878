"""The contract that every law passes, written once; law classes call `check_contract`."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from gequiv import Law, ParameterError

UPPER = np.array([0.3 + 0.2j, 1.0 + 1.0j, -0.5 + 0.1j, 2.0 + 1e-4j, 0.01 + 0.5j])


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


def check_contract(law: Law, *, tolerance: float = 1e-9) -> None:
    support, atoms = law.support(), law.atoms()
    bottom, top = support[0][0], support[-1][1]
    weight = sum(w for _, w in atoms)
    assert all(a < b for a, b in support)
    assert all(first[1] < second[0] for first, second in itertools.pairwise(support))
    assert all(w > 0 for _, w in atoms)

    # mass one, distribution function the integral of the density, moments by two routes
    assert integrate(law, np.ones_like, bottom, top) + weight == pytest.approx(1, abs=tolerance)
    for x in (bottom + 0.3 * (top - bottom), bottom + 0.8 * (top - bottom)):
        below = sum(w for location, w in atoms if location <= x)
        assert law.cdf(x) == pytest.approx(integrate(law, np.ones_like, bottom, x) + below, abs=tolerance)
        mean_below = sum(w * location for location, w in atoms if location <= x)
        partial = integrate(law, lambda t: t, bottom, x) + mean_below
        assert law.partial_mean(x) == pytest.approx(partial, abs=tolerance * top)
    for k in (0, 1, 2, 3, 4):
        direct = integrate(law, lambda t, k=k: (t / top) ** k, bottom, top)
        direct += sum(w * (location / top) ** k for location, w in atoms)
        assert law.moment(k) / top**k == pytest.approx(direct, rel=tolerance * 10)

    # the distribution function: monotone, from 0 to 1, right-continuous at the atoms
    grid = np.linspace(min(bottom, 0) - 0.1 * top, 1.1 * top, 2001)
    values = law.cdf(grid)
    assert (np.diff(values) >= -1e-15).all()
    assert law.cdf(-np.inf) == 0
    assert law.cdf(np.inf) == pytest.approx(1, abs=1e-14)
    for location, w in atoms:
        assert law.cdf(location) - law.cdf(np.nextafter(location, -np.inf)) == pytest.approx(w, abs=1e-12)

    # density: zero outside exactly, non-negative inside
    assert (law.pdf(grid) >= 0).all()
    outside = np.ones_like(grid, dtype=bool)
    for a, b in support:
        outside &= (grid < a) | (grid > b)
    assert (law.pdf(grid[outside]) == 0).all()
    assert law.pdf(np.inf) == law.pdf(-np.inf) == 0

    # quantiles
    q = np.linspace(weight + 1e-6, 1 - 1e-9, 57)
    np.testing.assert_allclose(law.cdf(law.ppf(q)), q, atol=1e-13)
    assert law.ppf(1) == pytest.approx(top, rel=1e-14)
    assert law.ppf(0) == min([bottom] + [location for location, _ in atoms])
    x = law.ppf(q)
    np.testing.assert_allclose(law.ppf(law.cdf(x)), x, rtol=1e-7)
    assert (np.diff(x) >= 0).all()

    # Cauchy transform
    z = UPPER * top
    g = law.cauchy(z)
    assert (g.imag < 0).all()
    np.testing.assert_allclose(law.cauchy(z.conj()), g.conj(), rtol=1e-13)
    far = np.array([1e9j, -1e9, 1e9 + 1e9j]) * top
    np.testing.assert_allclose(far * law.cauchy(far), 1, rtol=1e-8)
    for point, value in zip(z[[0, 1, 2, 4]], g[[0, 1, 2, 4]], strict=True):
        total = integrate(law, lambda t, w=point: 1 / (w - t), bottom, top)
        total += sum(w / (point - location) for location, w in atoms)
        assert abs(value - total) < 10 * tolerance * abs(total)
    inside = 0.5 * (support[0][0] + support[0][1])
    near = law.cauchy(inside + 1e-9j * (support[0][1] - support[0][0]))
    assert -near.imag / math.pi == pytest.approx(law.pdf(inside), rel=1e-6)
    real_line = law.cauchy([-top, 2 * top])
    assert (real_line.imag == 0).all()
    assert real_line[0].real < 0 < real_line[1].real
    with pytest.raises(ParameterError, match="off the support"):
        law.cauchy(inside)

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
