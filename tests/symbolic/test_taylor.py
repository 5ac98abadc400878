"""The expansion of attention: every step is derived again, wrong steps are caught, and the law of δ is simulated."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import sympy as sp

from gequiv.errors import ParameterError
from gequiv.symbolic.taylor import BETA, D, N, TaylorStep, leading_orders, taylor_attention


def by_name(order: int) -> dict[str, TaylorStep]:
    return {step.name: step for step in taylor_attention(order)}


@pytest.fixture(scope="module")
def second_order() -> dict[str, TaylorStep]:
    return by_name(2)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_every_step_holds(order: int) -> None:
    steps = taylor_attention(order)
    assert len({step.name for step in steps}) == len(steps)
    assert [step.name for step in steps if not step.check()] == []


def test_steps_say_what_they_are(second_order: dict[str, TaylorStep]) -> None:
    kinds = {"expansion", "moment", "rank", "operator norm", "Hilbert-Schmidt norm"}
    assert {step.kind for step in second_order.values()} == kinds
    assert all(step.text and isinstance(step.equation, sp.Eq) for step in second_order.values())


def test_a_wrong_equation_is_caught(second_order: dict[str, TaylorStep]) -> None:
    for step in second_order.values():
        wrong = sp.Eq(step.equation.lhs, step.equation.rhs + BETA**6 / (N * D) ** 3, evaluate=False)
        assert not dataclasses.replace(step, equation=wrong).check(), step.name


def test_a_wrong_order_is_caught(second_order: dict[str, TaylorStep]) -> None:
    ordered = [step for step in second_order.values() if step.order]
    assert len(ordered) > 10
    for step in ordered:
        wrong = tuple((a + 1, b) for a, b in step.order)
        assert not dataclasses.replace(step, order=wrong).check(), step.name


def test_the_variance_of_the_normaliser(second_order: dict[str, TaylorStep]) -> None:
    w = sp.exp(BETA**2)
    expanded = second_order["variance, expanded"]
    assert expanded.order == ((1, 0), (0, 1))
    leading = (w - 1) / N + BETA**4 / (2 * D)
    rest = sp.expand(expanded.equation.rhs - leading)
    assert all(a + b == 2 for a, b in leading_orders(rest))
    exact = second_order["variance, exact"].equation.rhs
    numbers = {BETA: sp.Float("0.5", 40), N: sp.Float(10**5, 40), D: sp.Float(10**5, 40)}
    assert 0 < abs((exact - expanded.equation.rhs).evalf(40, subs=numbers)) < 1e-14


def test_higher_orders_extend_lower_ones() -> None:
    previous = by_name(1)
    for order in (2, 3, 4):
        steps = by_name(order)
        for name in ("mean shift", "variance, expanded", "mean of the inverse normaliser"):
            new = sp.expand(steps[name].equation.rhs - previous[name].equation.rhs)
            assert {a + b for a, b in leading_orders(new)} == {order}, (name, order)
        previous = steps


def test_which_parts_keep_their_structure(second_order: dict[str, TaylorStep]) -> None:
    totals = {degree: second_order[f"row covariance of degree {degree}"].order[0] for degree in (1, 2, 3)}
    assert totals == {1: (-1, 1), 2: (-1, 2), 3: (-1, 3)}
    noise = second_order["variance of the noise"].equation.rhs
    assert sp.simplify(noise - (sp.exp(BETA**2) - 1 - BETA**2)) == 0
    assert sp.simplify(noise - second_order["variance of degree two and more"].equation.rhs) == 0


def test_leading_orders() -> None:
    assert leading_orders(3 / N**2 + 5 / (N * D) + 7 / D**3) == ((2, 0), (1, 1))
    assert leading_orders(N / (D + 2)) == ((-1, 1),)
    assert leading_orders(sp.Integer(0)) == ()
    with pytest.raises(ParameterError, match="rational function"):
        leading_orders(sp.exp(1 / N))
    with pytest.raises(ParameterError, match="monomials"):
        leading_orders(1 / (N + D))


@pytest.mark.parametrize("order", [0, 5, -1, 1.5, "2", None, True])
def test_a_bad_order_is_refused(order: object) -> None:
    with pytest.raises(ParameterError, match="order must be an integer from 1 to 4; got"):
        taylor_attention(order)  # type: ignore[arg-type]


def test_against_simulated_normalisers(second_order: dict[str, TaylorStep]) -> None:
    """Mean and variance of δ over the rows of one matrix, within 5 standard errors (fixed seed)."""
    n, width, beta = 2000, 500, 1.0
    generator = np.random.default_rng(20)
    scores = generator.standard_normal((n, width)) @ generator.standard_normal((width, n)) / np.sqrt(width)
    delta = np.exp(beta * scores - beta**2 / 2).mean(axis=1) - 1
    numbers = {BETA: beta, N: n, D: width}

    def value(name: str) -> float:
        return float(second_order[name].equation.rhs.subs(numbers))

    variance, covariance = value("variance, expanded"), value("covariance of two rows")
    centred = delta - delta.mean()
    fluctuation = np.sqrt((np.mean(centred**4) - np.mean(centred**2) ** 2) / n)
    assert abs(np.var(delta) - (variance - covariance)) < 5 * fluctuation
    # each half alone is far off: the test can tell
    assert abs(np.var(delta) - value("variance from the entries")) > 5 * fluctuation
    assert abs(np.var(delta) - value("variance from the query's norm")) > 5 * fluctuation
    # the rows share the keys: the mean over rows fluctuates by the covariance too
    assert abs(delta.mean() - value("mean shift")) < 5 * np.sqrt(variance / n + covariance)
    inverse = value("mean of the inverse normaliser")
    assert abs(np.mean(1 / (1 + delta)) - inverse) < 5 * np.sqrt(variance / n + covariance)
