"""The law of the weighted chain from its Dyson equation, against every other route to the same numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gequiv.attention.linear_model import LinearModel
from gequiv.dyson import ChainEquation, Status, WeightedChainPlusNoise
from gequiv.errors import CertificationError, ParameterError
from gequiv.laws.chain import GaussianChainPlusNoise


def variances(beta):
    model = LinearModel(beta)
    return model.coefficient**2, model.noise_variance


UNWEIGHTED = {
    "square": ([0.5], 1, 1.0, 0.7),
    "wide": ([0.5], 0.3, 2.0, 0.4),
    "tall": ([0.5], 2, *variances(1)),
    "two intervals": ([0.5], 1, *variances(0.01)),
    "smallest beta": ([0.5], 1, *variances(1e-3)),
    "smallest beta, full rank": ([1, 1, 1], 1, *variances(1e-3)),
    "largest beta": ([0.5], 1, *variances(26)),
    "shared": ([1, 0.5, 1], 1, *variances(1)),
    "shared, low rank": ([0.02, 0.5, 0.02], 1, 1.0, 0.7),
    "shared, wide": ([2, 0.5, 2], 0.3, *variances(0.1)),
    "nearly square": ([0.999], 1.001, 1.0, 1e-4),
    "very tall": ([1e-3], 1e3, 1.0, 0.1),
    "very wide": ([1e3], 1e-3, 1.0, 0.1),
    "far scales": ([1e3, 1e-3], 1e-3, 1.0, 5e-7),
    "spread": ([0.1781894465692018, 14.061194372178395, 0.1781894465692018], 0.0376, 8.5e-4, 3.6e-7),
    "empty": ([], 2, 1.0, 1.0),
}

WEIGHTED = {
    "two values": ([2.0, 0.5, 2.0], [[1, 3], None, [1, 3]], 1, 1.0, 0.7),
    "zeros": ([2.0, 0.5, 2.0], [[0, 1, 1, 2], None, [0, 1, 1, 2]], 1, 1.0, 0.1),
    "unequal lists": ([2.0, 0.5, 0.7], [[1, 2, 3], [1, 5], [0.1, 1, 1]], 0.5, 1.0, 0.3),
    "tall": ([2.0, 0.5], [[1, 10, 100], [1, 2]], 3, 1.0, 0.01),
    "separated": ([2.0, 0.5, 2.0], [[1, 300], None, [1, 300]], 1, 1.0, 0.001),
    "geometric": ([0.75, 0.0625, 0.75], [np.geomspace(1e-3, 1, 24), None, np.geomspace(1e-3, 1, 24)], 1, 0.25, 0.03),
}


@pytest.fixture(scope="module")
def laws():
    made = {}

    def get(name):
        if name not in made:
            if name in UNWEIGHTED:
                inner, aspect, signal, noise = UNWEIGHTED[name]
                made[name] = WeightedChainPlusNoise(inner, [None] * len(inner), aspect, signal, noise)
            else:
                made[name] = WeightedChainPlusNoise(*WEIGHTED[name])
        return made[name]

    return get


def interior(law, count=200):
    """Points of the support, those dropped whose distance to an edge is rounding's own."""
    parts = []
    for a, b in law.support():
        parts += [np.linspace(a, b, count)[1:-1], np.geomspace(max(a, 1e-10 * b), b, count)[1:-1]]
    x = np.concatenate(parts)
    ends = np.array(law.support()).reshape(-1)
    return x[np.min(np.abs(x[:, None] - ends), axis=1) > 1e-4 * x]


# -- against the rational curve ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", UNWEIGHTED)
def test_agrees_with_the_rational_curve(laws, name):
    law, curve = laws(name), GaussianChainPlusNoise(*UNWEIGHTED[name])
    assert len(law.support()) == len(curve.support())
    np.testing.assert_allclose(law.support(), curve.support(), rtol=1e-13, atol=0)
    assert law.atoms() == curve.atoms()
    x = interior(curve)
    np.testing.assert_allclose(law.pdf(x), curve.pdf(x), rtol=1e-10)
    np.testing.assert_allclose(law.cdf(x), curve.cdf(x), rtol=0, atol=1e-13)
    np.testing.assert_allclose(law.partial_mean(x), curve.partial_mean(x), rtol=1e-10, atol=1e-13 * law.mean())
    if law.scale < 1e20:
        for k in range(13):
            assert law.moment(k) == pytest.approx(curve.moment(k), rel=1e-13)


def exact_transform(case, z, guess):
    """G(z) in 50 digits: Newton on the rational equation in the variable 1/τ of the smallest dimension."""
    import mpmath

    inner, aspect, signal, noise = case
    ctx = mpmath.MPContext()
    ctx.dps = 50
    total = ctx.mpf(signal) + ctx.mpf(noise)
    rho, c = ctx.mpf(signal) / total, ctx.mpf(aspect)
    point = ctx.mpc(complex(z)) / total
    smallest = min(inner) if inner else 1

    def at(p):  # t from p = 1 + rho t/c_min
        t = (p - 1) * ctx.mpf(smallest) / rho
        q = t
        for ci in inner:
            q /= 1 + rho * t / ctx.mpf(ci)
        return q, rho * t + (1 - rho) * q

    def equation(p):
        q, y = at(p)
        return (1 + y) * (1 + c * y) / (point * q) - 1

    root = ctx.findroot(equation, ctx.mpc(complex(guess)), tol=1e-60, maxsteps=100)
    return complex((1 + at(root)[1]) / point / total)


@pytest.mark.parametrize(
    "name", ["square", "tall", "shared", "smallest beta", "far scales", "very tall", "shared, wide"]
)
def test_cauchy_at_random_points(laws, name):
    # the curve loses digits where the noise is tiny, so both are held against 50 digits
    law, case = laws(name), UNWEIGHTED[name]
    rng = np.random.default_rng(11)
    top = law.support()[-1][1]
    z = top * 10 ** rng.uniform(-7, 1, 40) * np.exp(1j * rng.uniform(0.05, np.pi - 0.05, 40))
    value = law.cauchy(z)
    unknowns = law.equation.solve(z).unknowns
    smallest = int(np.argmin(case[0]))
    tau = unknowns[:, 1 + [g.ratio for g in law.equation.groups].index(law.equation.inner[smallest])]
    ratio = unknowns[:, 0] / tau  # t/τ = 1 + rho t/c_min, without cancellation
    reference = np.array([exact_transform(case, *pair) for pair in zip(z, ratio, strict=True)])
    np.testing.assert_allclose(value, reference, rtol=1e-11)


@pytest.mark.parametrize("name", ["square", "tall", "wide", "shared", "shared, low rank"])
def test_cauchy_agrees_with_the_rational_curve(laws, name):
    law, curve = laws(name), GaussianChainPlusNoise(*UNWEIGHTED[name])
    rng = np.random.default_rng(12)
    low, top = law.support()[0][0], law.support()[-1][1]
    z = top * 10 ** rng.uniform(-5, 1, 300) * np.exp(1j * rng.uniform(-np.pi, np.pi, 300))
    np.testing.assert_allclose(law.cauchy(z), curve.cauchy(z), rtol=1e-10)
    real = [-1e-3 * top, -top, -50 * top, 1.001 * top, 2 * top, 1e6 * top, 0.5 * low - 1e-3 * (low == 0)]
    np.testing.assert_allclose(law.cauchy(real), curve.cauchy(real), rtol=1e-11)


def test_constant_weights_are_no_weights():
    plain = WeightedChainPlusNoise([2, 0.5, 2], [None] * 3, 0.7, 1.0, 0.7)
    constant = WeightedChainPlusNoise([2, 0.5, 2], [[3, 3, 3], [0.1], np.full(5, 7.0)], 0.7, 1.0, 0.7)
    assert constant.support() == plain.support()
    nearly = WeightedChainPlusNoise([2, 0.5, 2], [[3, 3 * (1 + 1e-9)], None, None], 0.7, 1.0, 0.7)
    x = interior(plain)
    np.testing.assert_allclose(nearly.pdf(x), plain.pdf(x), rtol=1e-11)
    # zeros only shrink the inner dimension
    zeros = WeightedChainPlusNoise([2, 0.5], [[0, 1], None], 0.7, 1.0, 0.7)
    smaller = WeightedChainPlusNoise([1, 0.5], [None, None], 0.7, 1.0, 0.7)
    np.testing.assert_allclose(zeros.pdf(x), smaller.pdf(x), rtol=1e-10, atol=1e-14)


# -- the slow twin --------------------------------------------------------------------------------------


def damped_fixed_point(inner, weights, aspect, signal, noise, z):
    """G(z) by the half-and-half iteration of the full system in g, h, e_i, f_i; slow, and always the right sheet."""
    c, zeta = float(aspect), np.sqrt(complex(z))
    sizes = np.array([1.0, *inner, 1 / c])
    spectra = [np.ones(1) if w is None else np.asarray(w, float) / np.mean(w) for w in weights]
    layers = len(inner)
    g = h = -1j / abs(zeta)
    e = np.full(layers, -1j / abs(zeta))  # e_0 ... e_{L-2}; e_{L-1} = h
    f = np.full(layers, -1j / abs(zeta))  # f_1 ... f_{L-1}
    for _ in range(20000):
        after = np.append(e[1:], h) if layers else e
        if layers:
            new_e = np.array([np.mean(m / (1 - m * f[i] * after[i])) * after[i] for i, m in enumerate(spectra)])
            out = np.array([np.mean(m / (1 - m * f[i] * after[i])) * f[i] for i, m in enumerate(spectra)])
            new_f = np.append(signal * g / sizes[1], out[:-1] * sizes[1:-2] / sizes[2:-1])
            from_rows, from_columns = signal * e[0], sizes[-2] / sizes[-1] * out[-1]
        else:
            new_e = new_f = e
            from_rows, from_columns = signal * h, signal * c * g
        new_g = 1 / (zeta - noise * h - from_rows)
        new_h = 1 / (zeta - noise * c * g - from_columns)
        change = max(abs(new_g - g) / abs(g), abs(new_h - h) / abs(h))
        g, h, e, f = (g + new_g) / 2, (h + new_h) / 2, (e + new_e) / 2, (f + new_f) / 2
        if change < 1e-14:
            return g / zeta
    raise AssertionError("the slow twin did not settle")


CASES = {
    **WEIGHTED,
    "no weights": ([0.5], [None], 0.6, 1.0, 0.7),
    "shared": ([1, 0.5, 1], [None] * 3, 1, 1.0, 0.7),
    "mp": ([], [], 2, 1.0, 0.3),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_the_damped_iteration(name):
    case = CASES[name]
    z = np.array([-1 + 0.5j, 0.3 + 0.2j, 2 + 1j, 6 + 0.4j])
    slow = [damped_fixed_point(*case, point) for point in z]
    solution = ChainEquation(*case).solve(z)
    np.testing.assert_allclose(solution.value, slow, rtol=1e-11)
    assert (solution.status == Status.UPPER).all()
    assert (solution.residual < 1e-12).all()
    assert (solution.step < 1e-12).all()


# -- against simulated matrices ---------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "columns"), [(1200, 1200), (1000, 600)])
def test_simulated_matrices(rows, columns):
    # eigenvalues repel, so the distance is a few times 1/n. Over 200 seeds at a quarter of the size n times it was
    # 2.3 +- 0.4, at most 3.5 (square), and 1.2 +- 0.2 (tall): a right law fails here at four standard deviations.
    # Without the weights of one side n times the distance is 6 and more, without any 21 and more
    rng = np.random.default_rng(20)
    width, head, other = 800, 400, 1000
    first, last = np.repeat([0.2, 1.0, 4.0], [400, 200, 200]), np.repeat([0.0, 1.0, 3.0], [250, 500, 250])
    s, v = 1.0, 0.2
    factors = rng.standard_normal((rows, width)) * np.sqrt(first / first.mean())
    chain = factors @ rng.standard_normal((width, head)) @ rng.standard_normal((head, other))
    chain = (chain * np.sqrt(last / last.mean())) @ rng.standard_normal((other, columns))
    chain /= math.sqrt(width * head * other)
    y = (math.sqrt(s) * chain + math.sqrt(v) * rng.standard_normal((rows, columns))) / math.sqrt(columns)
    values = np.linalg.eigvalsh(y @ y.T if rows <= columns else y.T @ y)
    law = WeightedChainPlusNoise([width / rows, head / rows, other / rows], [first, None, last], rows / columns, s, v)
    atom = max(0.0, 1 - columns / rows)
    expected = law.cdf(values)
    empirical = atom + (1 - atom) * (np.arange(values.size) + 0.5) / values.size
    assert np.abs(expected - empirical).max() < 4 / min(rows, columns)


# -- the law's contract -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*WEIGHTED, "tall", "shared", "two intervals"])
def test_contract(laws, name):
    law = laws(name)
    rng = np.random.default_rng(3)
    top = law.support()[-1][1]
    z = top * 10 ** rng.uniform(-3, 1, 60) * np.exp(1j * rng.uniform(0, np.pi, 60))
    value = law.cauchy(z)
    assert (value.imag < 0).all()
    assert ((z * value).imag < 0).all()
    np.testing.assert_array_equal(law.cauchy(z.conj()), value.conj())
    far = top * 1e9 * np.exp(1j * np.array([0.0, 1.0, 2.0, np.pi]))
    np.testing.assert_allclose(far * law.cauchy(far), 1, rtol=1e-8)
    assert law.cdf(2 * top) == pytest.approx(1, abs=1e-12)
    assert law.cdf(-1e-300) == 0
    q = np.linspace(0, 1, 41)
    x = law.ppf(q)
    atom = sum(weight for _, weight in law.atoms())
    np.testing.assert_allclose(law.cdf(x), np.maximum(q, atom), rtol=0, atol=1e-12)
    # cdf is the integral of pdf: midpoint differences
    inside = interior(law, 12)
    step = 1e-5 * np.min(np.abs(inside[:, None] - np.array(law.support()).reshape(-1)), axis=1)
    slope = (law.cdf(inside + step) - law.cdf(inside - step)) / (2 * step)
    np.testing.assert_allclose(slope, law.pdf(inside), rtol=1e-6, atol=1e-15 / step.min())
    # and the density is the boundary value of the transform
    solution = law.equation.solve(inside)
    assert (solution.status == Status.INSIDE).all()
    np.testing.assert_allclose(-solution.value.imag / np.pi, law.pdf(inside), rtol=1e-9)
    certificate = law.certificate
    assert certificate.mass_error < 1e-12
    assert certificate.density_error < 1e-10
    assert certificate.half_plane > 0


@pytest.mark.parametrize("name", WEIGHTED)
def test_moments_by_two_routes(laws, name):
    law = laws(name)
    x, weight = law._density.quadrature()
    for k in range(1, 9):
        assert law.moment(k) == pytest.approx(float(weight @ x**k), rel=1e-12)
    assert law.moment(0) == 1
    assert law.mean() == pytest.approx(law.equation.signal + law.equation.noise, rel=1e-15)
    assert float(law.partial_mean(np.inf)) == pytest.approx(law.mean(), rel=1e-12)


def test_second_moment_by_hand():
    # a tree count for one weighted layer, m = n: m_2 = 2 (s+v)^2 + s^2 <m^4>/c_1
    s, v, ratio, weights = 1.5, 0.25, 0.4, np.array([1.0, 2.0, 6.0])
    law = WeightedChainPlusNoise([ratio], [weights], 1, s, v)
    spread = np.mean(weights**2) / np.mean(weights) ** 2
    assert law.moment(2) == pytest.approx(2 * (s + v) ** 2 + s**2 * spread / ratio, rel=1e-14)


def test_transform_by_quadrature_and_in_gaps(laws):
    law = laws("separated")
    (_, low), (high, top) = law.support()
    z = np.array([0.5 * (low + high), 0.8 * low + 0.2 * high, -0.1, 1.2 * top, 2j, 1 - 1j])
    x, weight = law._density.quadrature()
    np.testing.assert_allclose(law.cauchy(z), (weight / (z[:, None] - x)).sum(axis=1), rtol=1e-11)
    wide = WeightedChainPlusNoise([2.0], [[1, 3]], 0.3, 1.0, 0.2)
    x, weight = wide._density.quadrature()
    assert wide.cauchy(0.0) == pytest.approx(-float(np.sum(weight / x)), rel=1e-12)


@pytest.mark.parametrize("share", [1e-9, 1e-6, 1e-3])
def test_transform_next_to_edges(laws, share):
    law, case = laws("two intervals"), UNWEIGHTED["two intervals"]
    (_, low), (high, top) = law.support()
    for edge, side in ((low, 1), (high, -1), (top, 1)):
        for offset in (share * side * edge, 1j * share * edge):
            unknowns = law.equation.solve(edge + offset).unknowns
            exact = exact_transform(case, edge + offset, unknowns[0] / unknowns[1])
            assert law.cauchy(edge + offset) == pytest.approx(exact, rel=1e-11)


def test_scaling(laws):
    law = laws("unequal lists")
    inner, weights, aspect, signal, noise = WEIGHTED["unequal lists"]
    scaled = WeightedChainPlusNoise(inner, [[10 * m for m in w] for w in weights], aspect, 7 * signal, 7 * noise)
    x = interior(law, 30)
    np.testing.assert_allclose(7 * scaled.pdf(7 * x), law.pdf(x), rtol=1e-10)
    assert scaled.moment(3) == pytest.approx(343 * law.moment(3), rel=1e-13)


def test_shapes_of_input(laws):
    law = laws("two values")
    assert np.ndim(law.pdf(1)) == 0
    assert law.pdf([1, 2]).shape == (2,)
    assert law.cdf(np.ones((2, 3))).shape == (2, 3)
    for method in (law.pdf, law.cdf, law.ppf, law.partial_mean, law.cauchy):
        assert method([]).shape == (0,)
        with pytest.raises(ParameterError):
            method(np.nan)
    assert law.cauchy(np.inf) == 0
    with pytest.raises(ParameterError):
        law.cauchy(1.0)
    solution = law.equation.solve(np.full((2, 3), 1j))
    assert solution.value.shape == solution.status.shape == (2, 3)
    assert law.equation.solve([]).value.shape == (0,)


# -- refusals -----------------------------------------------------------------------------------------------


def test_wrong_roots_are_refused():
    equation = ChainEquation([0.5], [None], 1, 1.0, 0.7)
    rho, c = equation.share, equation.c
    z = np.array([1 + 0.3j, 0.2 + 0.1j, 2 + 0j])
    right = equation.solve(z)
    refused = 0
    for k, point in enumerate(z / equation.scale):
        # all roots: z q = (1+y)(1+cy), with q = t/P, P = 1 + rho t/c_1, y = rho t + (1-rho) t/P
        factor = np.polynomial.Polynomial([1, rho / 0.5])
        t = np.polynomial.Polynomial([0, 1])
        excess = rho * t * factor + (1 - rho) * t
        for root in (point * t * factor - (factor + excess) * (factor + c * excess)).roots():
            state = np.array([root, root / factor(root)])
            status = equation.certify(z[k], state)
            if np.allclose(state, right.unknowns[k], rtol=1e-8):
                assert status == right.status[k]
            else:
                assert status == Status.FAILED
                refused += 1
            # a start on the wrong sheet costs time only
            again = equation.solve(z[k], state)
            np.testing.assert_allclose(again.value, right.value[k], rtol=1e-12)
    assert refused == 9
    assert (equation.certify(z, right.unknowns.conj()) == Status.FAILED).all()
    assert (equation.certify(z, 1.01 * right.unknowns) == Status.FAILED).all()


def test_wrong_real_roots_are_refused():
    equation = ChainEquation([0.5], [None], 1, 1.0, 0.7)
    law = WeightedChainPlusNoise([0.5], [None], 1, 1.0, 0.7)
    point = 1.5 * law.support()[-1][1]
    right = equation.solve(point)
    assert right.status == Status.OUTSIDE
    rho, x = equation.share, point / equation.scale
    factor, t = np.polynomial.Polynomial([1, rho / 0.5]), np.polynomial.Polynomial([0, 1])
    excess = rho * t * factor + (1 - rho) * t
    statuses = []
    for root in (x * t * factor - (factor + excess) ** 2).roots():
        statuses.append(int(equation.certify(point, np.array([root, root / factor(root)]))))
    assert sorted(statuses) == [Status.OUTSIDE, Status.FAILED, Status.FAILED, Status.FAILED]


def test_failures_raise_or_report():
    law = WeightedChainPlusNoise([], [], 1, 0.5, 0.5)
    edge = law.support()[-1][1] * (1 + 1e-14)  # Marchenko-Pastur: 4, where the solution is double
    with pytest.raises(CertificationError, match="Im z"):
        law.equation.solve([1j, edge])
    found = law.equation.solve([1j, edge], on_failure="status")
    assert found.status.tolist() == [Status.UPPER, Status.FAILED]
    assert np.isnan(found.value[1])
    assert not np.isnan(found.value[0])


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (([0.5], [], 1, 1, 1), "weights"),
        (([0.5], [[]], 1, 1, 1), "weights"),
        (([0.5], [[0, 0]], 1, 1, 1), "weights"),
        (([0.5], [[1, -1]], 1, 1, 1), "weights"),
        (([0.5], [[1, np.nan]], 1, 1, 1), "weights"),
        (([0.5], [["a"]], 1, 1, 1), "weights"),
        (([0.5], 3, 1, 1, 1), "weights"),
        (([0], [None], 1, 1, 1), "inner"),
        ((3, [None], 1, 1, 1), "inner"),
        (([0.5], [None], -1, 1, 1), "aspect"),
        (([0.5], [None], 1, 0, 1), "signal"),
        (([0.5], [None], 1, 1, True), "noise"),
        (([0.5], [None], 1, 1e308, 1e308), "signal"),
    ],
)
def test_parameters_are_refused_by_name(arguments, name):
    with pytest.raises(ParameterError, match=name):
        WeightedChainPlusNoise(*arguments)


def test_solve_refuses_by_name():
    equation = ChainEquation([0.5], [[1, 2]], 1, 1, 1)
    for z in (0, -1j, np.inf, np.nan):
        with pytest.raises(ParameterError, match="z must"):
            equation.solve(z)
    with pytest.raises(ParameterError, match="start"):
        equation.solve(1j, start=[1.0])
    with pytest.raises(ParameterError, match="on_failure"):
        equation.solve(1j, on_failure="ignore")
    with pytest.raises(ParameterError, match="k must"):
        WeightedChainPlusNoise([0.5], [[1, 2]], 1, 1, 1).moment(-1)
