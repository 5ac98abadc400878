"""Costs: extrapolation of known times is exact, and memory is at least what draws take."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from gequiv.errors import CertificationError
from gequiv.simulation.campaign.cost import estimate_cost, memory_needed, stored_bytes
from gequiv.simulation.campaign.files import parse_campaign


class Machine:
    """A clock, and draws of squares of n tokens that take cube n³ + square n² + fixed seconds."""

    def __init__(self, cube, square, fixed):
        self.coefficients, self.now, self.draws = (cube, square, fixed), 0.0, 0

    def clock(self):
        return self.now

    def seconds(self, n):
        cube, square, fixed = self.coefficients
        return cube * n**3 + square * n**2 + fixed

    def compute(self, task):
        self.draws += 1
        self.now += self.seconds(task.model.head.tokens)
        return {}


def campaign(text="", draws=2):
    return parse_campaign(
        f'version = 1\n[[grid]]\nname = "g"\ntokens = [512, 2048, 8192]\nhead_dim = "tokens/2"\nbeta = 1\n'
        f"draws = {draws}\n{text}"
    )


@pytest.mark.parametrize("coefficients", [(1e-10, 2e-8, 1e-3), (1e-10, 0, 0), (0, 1e-8, 0)])
@pytest.mark.parametrize("method", ["gram", "svd"])
def test_known_times(coefficients, method):
    machine = Machine(*coefficients)
    plan = campaign(f'method = "{method}"')
    cost = estimate_cost(plan, plan.tasks()[1:], compute=machine.compute, clock=machine.clock)
    assert [row.missing for row in cost.rows] == [1, 2, 2]
    for row in cost.rows:
        assert row.seconds == pytest.approx(machine.seconds(row.model.head.tokens), rel=1e-6)
    total = machine.seconds(512) + 2 * machine.seconds(2048) + 2 * machine.seconds(8192)
    assert (cost.draws, cost.seconds) == (5, pytest.approx(total, rel=1e-6))
    assert cost.wall(1) == pytest.approx(total, rel=1e-6)
    assert cost.wall(1000) == pytest.approx(machine.seconds(8192), rel=1e-6)
    assert cost.memory(1) == memory_needed(plan.models[2])
    assert cost.memory(3) == 2 * memory_needed(plan.models[2]) + memory_needed(plan.models[1])
    assert cost.memory(100) == cost.memory(5)
    assert cost.measuring == machine.now < 20


def test_nothing_missing_measures_nothing():
    machine = Machine(1, 1, 1)
    cost = estimate_cost(campaign(), [], compute=machine.compute, clock=machine.clock)
    assert (cost.rows, cost.seconds, cost.memory(2), machine.draws) == ((), 0, 0, 0)


def test_many_kinds_stay_within_the_budget():
    machine = Machine(1e-10, 2e-8, 1e-3)
    masks = ", ".join(f'"window:{w}"' for w in range(1, 31))
    plan = campaign(f"mask = [{masks}]")
    cost = estimate_cost(plan, plan.tasks(), compute=machine.compute, clock=machine.clock, budget=1.0)
    assert cost.measuring < 2
    assert all(row.seconds is not None for row in cost.rows)


@pytest.mark.parametrize("error", [CertificationError, np.linalg.LinAlgError, MemoryError, OverflowError])
def test_draws_that_cannot_be_measured(error):
    def compute(task):
        raise error("no")

    plan = campaign()
    cost = estimate_cost(plan, plan.tasks(), compute=compute)
    assert [row.seconds for row in cost.rows] == [None] * 3
    assert cost.seconds == 0


@pytest.mark.parametrize(
    "text",
    ["", 'method = "svd"', 'mask = "causal"', "width = 3000", "keys = 300", "keys = 1600", 'dtype = "float32"',
     'score = "softplus(x) + exp(x)"'],
)  # fmt: skip
def test_memory_is_enough_and_not_far_too_much(text):
    (model,) = parse_campaign(
        f'version = 1\n[[models]]\nname = "m"\ntokens = 800\nhead_dim = 64\nbeta = 1\ndraws = 1\n{text}'
    ).models
    tracemalloc.start()
    try:
        model.head.spectrum(1, method=model.plan.method, dtype=model.plan.dtype)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= memory_needed(model) <= 3 * peak + 80 * 2**20


def test_stored_bytes_hold_the_numbers():
    for model in campaign().models:
        assert 8 * model.head.tokens <= stored_bytes(model) <= 8 * model.head.tokens + 8192
