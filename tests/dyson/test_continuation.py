"""Newton's method with continuation, and the scan of the real axis, on an equation whose solution is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gequiv.dyson.continuation import Continuation, Status
from gequiv.dyson.scan import AxisScan


class SquareMarchenkoPastur(Continuation):
    """z g (1 - g) = 1: two sheets, g and 1 - g, that meet at z = 4; the support is [0, 4]."""

    upper_bound = 4.0
    width = 1

    def _asymptotic(self, z):
        return (1 / z)[:, None]

    def _change(self, z, state):
        g = state[:, 0]
        return ((1 - z * g * (1 - g)) / (z * g * (1 - 2 * g)))[:, None]

    def _residual(self, z, state):
        g = state[:, 0]
        return np.abs(1 - z * g * (1 - g)), np.abs(self._change(z, state)[:, 0])

    def _tangent(self, z, state):
        del z
        return -(1 - state) / (1 - 2 * state)

    def margin(self, z, state):
        del z
        return (-state.imag / np.abs(state)).min(axis=1)

    def _status(self, z, state, residual, step):
        status = np.full(z.size, int(Status.FAILED))
        solved = (residual < 1e-9) & (step < 1e-9)
        sine = self.margin(z, state)
        below = solved & (sine > 1e-9)
        status[below] = np.where(z[below].imag == 0, Status.INSIDE, Status.UPPER)
        falling = (state[:, 0] * self._tangent(z, state)[:, 0] / z).real < 0
        level = solved & ~below & (np.abs(sine) < 1e-9) & falling
        status[level] = np.where(z[level].imag == 0, Status.OUTSIDE, Status.UPPER)
        return status, np.where((level & (z.imag == 0))[:, None], state.real, state)


class WithoutSolution(SquareMarchenkoPastur):
    """Certifies nothing."""

    def _status(self, z, state, residual, step):
        return np.full(z.size, int(Status.FAILED)), state


def exact(z):
    z = np.asarray(z, dtype=complex) + 0j
    root = np.sqrt(z - 4) / np.sqrt(z)
    g = (1 - root) / 2
    other = (1 + root) / 2
    # boundary values from above; real off the support
    return np.where((g.imag > 0) | ((g.imag == 0) & (np.abs(g) > np.abs(other))), other, g)


def test_statuses():
    assert [int(status) for status in Status] == [0, 1, 2, 3]
    assert [status.name for status in Status] == ["UPPER", "INSIDE", "OUTSIDE", "FAILED"]


def test_it_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        Continuation()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-30, 30), st.sampled_from([0.0, 1e-8, 1e-3, 0.1, 2.0, 1e4])), min_size=1, max_size=9)
)
def test_certified_solutions(points):
    z = np.array([complex(x, y) for x, y in points])
    z = z[(np.abs(z) > 1e-3) & (np.abs(z - 4) > 1e-3)]
    found = SquareMarchenkoPastur()._solve(z, None)
    np.testing.assert_allclose(found.unknowns[:, 0], exact(z), rtol=1e-11)
    inside = (z.real > 0) & (z.real < 4)
    expected = np.where(z.imag > 0, Status.UPPER, np.where(inside, Status.INSIDE, Status.OUTSIDE))
    np.testing.assert_array_equal(found.status, expected)
    assert (found.unknowns.imag[found.status == Status.OUTSIDE] == 0).all()
    assert (found.residual < 1e-9).all()
    assert (found.iterations > 0).all()


def test_a_start_on_the_other_sheet_costs_time_only():
    equation = SquareMarchenkoPastur()
    z = np.array([1.0, 3.9, 4.1, 7.0, -2.0, 1 + 1j])
    wrong = (1 - exact(z))[:, None]
    found = equation._solve(z, wrong)
    np.testing.assert_allclose(found.unknowns[:, 0], exact(z), rtol=1e-11)
    right = equation._solve(z, exact(z)[:, None])
    np.testing.assert_allclose(right.unknowns[:, 0], exact(z), rtol=1e-11)
    assert (right.iterations < found.iterations).all()


@pytest.mark.parametrize("start", [None, np.nan, np.inf, 0.0, 1e300])
def test_bad_starts_do_not_matter(start):
    z = np.array([2.0, 5.0, 1j])
    begin = None if start is None else np.full((3, 1), complex(start))
    found = SquareMarchenkoPastur()._solve(z, begin)
    np.testing.assert_allclose(found.unknowns[:, 0], exact(z), rtol=1e-11)


def test_points_do_not_influence_each_other():
    z = np.array([0.5, 3.0, 6.0, 4.0, 1e-6 + 1e-9j, 1e6])  # an edge among them
    together = SquareMarchenkoPastur()._solve(z, None)
    for k, point in enumerate(z):
        alone = SquareMarchenkoPastur()._solve(z[k : k + 1], None)
        assert alone.status[0] == together.status[k]
        if point == 4:  # the sheets meet: half of the digits are left
            assert alone.unknowns[0, 0] == pytest.approx(0.5, abs=1e-7)
            assert together.unknowns[k, 0] == pytest.approx(0.5, abs=1e-7)
        else:
            assert alone.unknowns[0, 0] == pytest.approx(together.unknowns[k, 0], rel=1e-10)
            assert together.unknowns[k, 0] == pytest.approx(complex(exact(point)), rel=1e-9)


def test_nothing_certified_is_failed():
    found = WithoutSolution()._solve(np.array([1.0, 5.0, 1e3, 1 + 1j]), None)
    assert (found.status == Status.FAILED).all()
    assert np.isinf(found.residual).all()
    assert (found.iterations > 0).all()


def test_no_points():
    found = SquareMarchenkoPastur()._solve(np.zeros(0, dtype=complex), None)
    assert found.unknowns.shape == (0, 1)


def test_the_scan_brackets_the_edge():
    scan = AxisScan(SquareMarchenkoPastur(), 1e-3, 20.0)
    assert (np.diff(scan.x) > 0).all()
    np.testing.assert_array_equal(scan.status, np.where(scan.x < 4, Status.INSIDE, Status.OUTSIDE))
    np.testing.assert_allclose(scan.state[:, 0], exact(scan.x), rtol=1e-9)
    ((inside, outside),) = scan.brackets()
    assert scan.x[inside] < 4 < scan.x[outside]
    assert abs(outside - inside) == 1
    before = scan.x.size
    scan.halve()
    assert scan.x.size >= 2 * before - 1
    scan.add(4.01)
    assert 4.01 in scan.x
    ((inside, outside),) = scan.brackets()
    assert scan.x[outside] <= 4.01
    near = scan.nearest(np.array([1.0, 100.0]), Status.INSIDE)
    assert near[1, 0] == scan.state[scan.status == Status.INSIDE][-1, 0]
    assert (near.imag < 0).all()
