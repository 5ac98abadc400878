"""The engine of solved transforms, on scalar equations whose laws are known in closed form."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from gequiv import CertificationError, MarchenkoPastur, ParameterError
from gequiv.laws import FussCatalan, Semicircle, SymmetricRoot
from gequiv.laws._equation_solver import Solver, Status
from gequiv.laws.equation import EquationLaw, SpectralEquation
from tests.laws.contract import check_contract


class Scalar(SpectralEquation):
    """F(z, g) = 0 for g = G itself."""

    width = 1
    atoms: list[tuple[float, float]] = []  # noqa: RUF012

    def __init__(self, low: float, high: float, atoms=()) -> None:
        self.low, self.high, self.atoms = low, high, list(atoms)

    def value(self, z, g):
        raise NotImplementedError

    def by_g(self, z, g):
        raise NotImplementedError

    def by_z(self, z, g):
        raise NotImplementedError

    def start(self, z):
        return 1 / z[:, None]

    def change(self, z, state):
        g = state[:, 0]
        return (-self.value(z, g) / self.by_g(z, g))[:, None]

    def tangent(self, z, state):
        g = state[:, 0]
        return (-self.by_z(z, g) / self.by_g(z, g))[:, None]

    def cauchy(self, z, state):
        return state[:, 0]

    def margin(self, z, state):
        return -state[:, 0].imag / np.abs(state[:, 0])

    def off_spectrum(self, z, state):
        return self.tangent(z, state)[:, 0].real < 0


class SemicircleEquation(Scalar):
    """v g² - z g + 1 = 0."""

    def __init__(self, variance: float) -> None:
        super().__init__(-3 * math.sqrt(variance), 2.5 * math.sqrt(variance))
        self.v = variance

    def value(self, z, g):
        return self.v * g * g - z * g + 1

    def by_g(self, z, g):
        return 2 * self.v * g - z

    def by_z(self, z, g):
        return -g


class MarchenkoPasturEquation(Scalar):
    """c v z g² - (z - v(1 - c)) g + 1 = 0."""

    def __init__(self, c: float, v: float, atoms=None) -> None:
        atoms = [(0.0, 1 - 1 / c)] if atoms is None and c > 1 else atoms or []
        super().__init__(0.0, 1.3 * v * (1 + math.sqrt(c)) ** 2, atoms)
        self.c, self.v = c, v

    def value(self, z, g):
        return self.c * self.v * z * g * g - (z - self.v * (1 - self.c)) * g + 1

    def by_g(self, z, g):
        return 2 * self.c * self.v * z * g - z + self.v * (1 - self.c)

    def by_z(self, z, g):
        return self.c * self.v * g * g - g


class TwoIntervals(Scalar):
    """±√x, x of Marchenko and Pastur's law: c z g² - (z² - 1 + c) g + z = 0."""

    def __init__(self, c: float) -> None:
        super().__init__(-3.0, 3.0)
        self.c = c

    def value(self, z, g):
        return self.c * z * g * g - (z * z - 1 + self.c) * g + z

    def by_g(self, z, g):
        return 2 * self.c * z * g - z * z + 1 - self.c

    def by_z(self, z, g):
        return self.c * g * g - 2 * z * g + 1


class ProductRoots(Scalar):
    """±√x, x of the Fuss–Catalan law of two square factors: z g³ - z g + 1 = 0; ρ ~ |s|^(-1/3) at 0."""

    def __init__(self) -> None:
        super().__init__(-4.0, 4.0)

    def value(self, z, g):
        return z * g**3 - z * g + 1

    def by_g(self, z, g):
        return 3 * z * g * g - z

    def by_z(self, z, g):
        return g**3 - g


class UniformEquation(Scalar):
    """The uniform law on [0, 1]: its density jumps."""

    def __init__(self) -> None:
        super().__init__(0.0, 1.5)

    def value(self, z, g):
        return g - np.log(z / (z - 1))

    def by_g(self, z, g):
        return np.ones_like(g)

    def by_z(self, z, g):
        return 1 / (z - 1) - 1 / z


CASES = {
    "semicircle": (lambda: SemicircleEquation(2.3), lambda: Semicircle(2.3)),
    "marchenko-pastur": (lambda: MarchenkoPasturEquation(0.5, 1.7), lambda: MarchenkoPastur(0.5, 1.7)),
    "hard edge": (lambda: MarchenkoPasturEquation(1.0, 0.6), lambda: MarchenkoPastur(1.0, 0.6)),
    "atom": (lambda: MarchenkoPasturEquation(2.0, 3.0), lambda: MarchenkoPastur(2.0, 3.0)),
    "nearly a hard edge": (lambda: MarchenkoPasturEquation(1.002, 1.0), lambda: MarchenkoPastur(1.002)),
    "two intervals": (lambda: TwoIntervals(0.25), lambda: SymmetricRoot(MarchenkoPastur(0.25))),
    "two intervals nearly touching": (lambda: TwoIntervals(0.999), lambda: SymmetricRoot(MarchenkoPastur(0.999))),
}


@pytest.mark.parametrize("case", CASES)
def test_closed_forms(case: str) -> None:
    equation, exact = (build() for build in CASES[case])
    law = EquationLaw(equation)
    unit = exact.support()[-1][1]
    for (a, b), (c, d) in zip(law.support(), exact.support(), strict=True):
        assert (a, b) == pytest.approx((c, d), rel=1e-13, abs=2e-16)
        inside = c + (d - c) * np.concatenate([np.linspace(0.003, 0.997, 301), 1e-5 + np.zeros(1)])
        # next to an edge of relative error 1e-13 the density's own is larger
        np.testing.assert_allclose(law.pdf(inside), exact.pdf(inside), rtol=1e-11 if d - c > 0.01 * unit else 1e-9)
        np.testing.assert_allclose(law.cdf(inside), exact.cdf(inside), atol=2e-13)
        np.testing.assert_allclose(law.partial_mean(inside), exact.partial_mean(inside), atol=1e-12 * unit)
    np.testing.assert_allclose(np.reshape(law.atoms(), (-1, 2)), np.reshape(exact.atoms(), (-1, 2)), rtol=1e-15)
    for k in range(0, 41, 4):
        assert law.moment(k) == pytest.approx(exact.moment(k), rel=1e-11)
    z = unit * np.array([0.3 + 0.4j, -0.2 + 1e-3j, -1.4, 1.6, 1.5 + 1e-9j, 0.5 - 0.2j, 1e6j])
    np.testing.assert_allclose(law.cauchy(z), exact.cauchy(z), rtol=1e-12)
    certificate = law.certificate
    assert certificate.mass_error < 1e-12
    assert certificate.density_error < 1e-9
    assert certificate.half_plane > 0
    assert certificate.residual < 1e-14


@pytest.mark.parametrize("case", ["semicircle", "marchenko-pastur", "hard edge", "atom", "two intervals"])
def test_contract(case: str) -> None:
    check_contract(EquationLaw(CASES[case][0]()))


def test_intervals_that_touch_at_a_singular_point() -> None:
    law = EquationLaw(ProductRoots())
    edge = math.sqrt(6.75)
    assert law.support() == [(pytest.approx(-edge, rel=1e-13), 0.0), (0.0, pytest.approx(edge, rel=1e-13))]
    squares = FussCatalan(2)
    s = edge * np.array([1e-9, 1e-4, 0.1, 0.5, 0.99])
    for sign in (-1, 1):
        np.testing.assert_allclose(law.pdf(sign * s), s * squares.pdf(s**2), rtol=1e-9)
    np.testing.assert_allclose(law.cdf(s), 0.5 + 0.5 * squares.cdf(s**2), atol=1e-12)
    assert law.moment(4) == pytest.approx(3.0, rel=1e-12)
    assert law.moment(3) == pytest.approx(0.0, abs=1e-12)
    assert law.ppf(0.5) == pytest.approx(0.0, abs=1e-12)


def test_slope_without_a_formula_agrees_with_the_tangent() -> None:
    equation = MarchenkoPasturEquation(0.5, 1.7)
    law = EquationLaw(equation)
    z = np.array([0.3 + 0.2j, -1.0 + 0j, 9.0 + 0j, 2.0 + 0.01j])
    _, slope = law._cauchy_and_slope(z)
    state = Solver(equation).solve(z).state
    np.testing.assert_allclose(slope, equation.tangent(z, state)[:, 0], rtol=1e-9)


def test_status() -> None:
    solver = Solver(SemicircleEquation(1.0))
    found = solver.solve(np.array([0.0, 1.9, 2.1, -5.0, 0.3 + 1e-12j, 2.5 + 1e-12j, 1e9 + 1e-3j]))
    wanted = [Status.INSIDE, Status.INSIDE, Status.OUTSIDE, Status.OUTSIDE, Status.UPPER, Status.UPPER, Status.UPPER]
    assert found.status.tolist() == wanted
    # from the wrong sheet Newton's method stays there, and is not believed
    wrong = solver.solve(np.array([0.3 + 0.1j]), np.array([[1 + 1j]]))
    exact = SemicircleEquation(1.0)
    assert wrong.status[0] == Status.UPPER
    assert abs(exact.value(wrong.z, wrong.state[:, 0])[0]) < 1e-14
    assert wrong.state[0, 0].imag < 0


def test_what_cannot_be_certified_is_refused() -> None:
    with pytest.raises(CertificationError, match="jumps at 0"):
        EquationLaw(UniformEquation())
    with pytest.raises(CertificationError, match="mass of the intervals"):
        EquationLaw(MarchenkoPasturEquation(2.0, 1.0, atoms=[(0.0, 0.4)]))
    equation = SemicircleEquation(1.0)
    equation.low, equation.high = 1.0, 1.0
    with pytest.raises(ParameterError, match="finite low < high"):
        EquationLaw(equation)


def test_a_density_that_is_regular_at_zero_is_not_cut_there() -> None:
    law = EquationLaw(TwoIntervals(1.0))  # the semicircle
    assert law.support() == [pytest.approx((-2.0, 2.0), rel=1e-13)]


def test_bounds_need_not_be_tight() -> None:
    equation = MarchenkoPasturEquation(0.5, 1.0)
    equation.high = 4000.0
    law = EquationLaw(equation)
    assert law.support()[0] == pytest.approx(MarchenkoPastur(0.5).support()[0], rel=1e-13)
    assert law.certificate.mass_error < 1e-12


def test_name_and_pickle() -> None:
    law = EquationLaw(SemicircleEquation(1.0), name="a semicircle")
    assert repr(law) == "a semicircle"
    again = pickle.loads(pickle.dumps(law))
    assert again.support() == law.support()
    assert again.cauchy(1j) == law.cauchy(1j)
    assert "SemicircleEquation" in repr(EquationLaw(SemicircleEquation(1.0)))
