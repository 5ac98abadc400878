"""Expansions of the right edge and the proof of the gap: against 40-digit edges, and with planted errors."""

from __future__ import annotations

import dataclasses

import pytest
import sympy as sp

from gequiv import Attention, ParameterError
from gequiv.errors import CertificationError
from gequiv.symbolic import edge_gap, right_edge_large_beta, right_edge_small_beta, spectral_curve

r = sp.Symbol("r", positive=True)
BETA = sp.Symbol("beta", positive=True)
RATIOS = [sp.Rational(1, 4), sp.Integer(1), sp.Rational(5, 2)]


def exact_edge(beta, ratio, digits=40):
    share = sp.Rational(beta) ** 2
    return spectral_curve([ratio, 1], noise=sp.exp(share) - 1 - share, signal=share).edges(digits)[-1]


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("order", [2, 4, 6])
def test_small_beta_error_falls_with_the_next_power(ratio, order):
    expansion = right_edge_small_beta(order, ratio=ratio)
    betas = [sp.Rational(1, 20), sp.Rational(1, 40)]
    errors = [abs(exact_edge(beta, ratio) - expansion.expression.subs(BETA, beta)) for beta in betas]
    observed = float(sp.log(errors[0] / errors[1], 2))
    assert observed == pytest.approx(order + 2, abs=0.15)


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("order", [0, 2, 3, 5])
def test_large_beta_error_falls_with_the_next_power(ratio, order):
    expansion = right_edge_large_beta(order, ratio=ratio)
    sizes = []
    for beta in (4, 5):
        small, total = (sp.N(part.subs(BETA, beta), 110) for part in (expansion.small, expansion.prefactor))
        error = abs(exact_edge(beta, ratio, 90) - sp.N(expansion.expression.subs(BETA, beta), 110)) / total
        sizes.append((sp.log(error), sp.log(small)))
    observed = float((sizes[0][0] - sizes[1][0]) / (sizes[0][1] - sizes[1][1]))
    following = right_edge_large_beta(order + 1, ratio=ratio).coefficients[-1]
    assert observed == pytest.approx(order + 1 if following != 0 else order + 2, abs=0.05)


def test_leading_terms():
    assert right_edge_small_beta(2, ratio=1).expression == sp.Rational(27, 4) * BETA**2
    product = spectral_curve([r, 1], noise=0, signal=1)  # no noise: product of two Gaussian matrices
    edge = right_edge_small_beta(2).coefficients[0]
    assert sp.simplify(sp.expand(product.edge_polynomial.subs(product.z_symbol, edge))) == 0
    assert right_edge_large_beta(2).coefficients == (4, 0, 4 / r)


def test_symbolic_ratio_agrees_with_numbers():
    for build, order in ((right_edge_small_beta, 6), (right_edge_large_beta, 4)):
        general, special = build(order), build(order, ratio=sp.Rational(1, 3))
        for a, b in zip(general.coefficients, special.coefficients, strict=True):
            assert sp.expand(sp.radsimp(a.subs(r, sp.Rational(1, 3)) - b)) == 0
    for a, b in zip(right_edge_small_beta(6).coefficients, right_edge_small_beta(6, ratio=1).coefficients, strict=True):
        assert sp.limit(a, r, 1) == b


def test_library_between_the_expansions():
    edge = Attention(tokens=1000, head_dim=500, beta=0.05).limit_law().support()[-1][1]
    expected = right_edge_small_beta(8, ratio=sp.Rational(1, 2)).expression.subs(BETA, 0.05)
    assert edge == pytest.approx(float(expected), rel=1e-11)
    edge = Attention(tokens=1000, head_dim=500, beta=4).limit_law().support()[-1][1]
    expected = right_edge_large_beta(3, ratio=sp.Rational(1, 2)).expression.subs(BETA, 4)
    assert edge == pytest.approx(float(expected), rel=1e-14)


@pytest.mark.parametrize("ratio", [r, sp.Integer(1), sp.Rational(1, 3)])
@pytest.mark.parametrize("build", [right_edge_small_beta, right_edge_large_beta])
def test_verify_accepts_the_derived_and_refuses_a_wrong_coefficient(build, ratio):
    expansion = build(6 if build is right_edge_small_beta else 3, ratio=ratio)
    expansion.verify()
    for name in ("coefficients", "critical"):
        for k, value in enumerate(getattr(expansion, name)):
            wrong = list(getattr(expansion, name))
            wrong[k] = value + sp.Rational(1, 1000)
            with pytest.raises(CertificationError, match="power"):
                dataclasses.replace(expansion, **{name: tuple(wrong)}).verify()


A, C = sp.symbols("a c", positive=True)


@pytest.mark.parametrize(
    ("chain", "aspect"), [(None, 1), ([r, A], C), ([1, sp.Rational(1, 2), 1], 1), ([sp.Rational(1, 3)], 4)]
)
def test_gap_is_proved(chain, aspect):
    gap = edge_gap(chain, aspect)
    gap.verify()
    assert gap.statement.rhs.subs(BETA, 2) - (1 + sp.sqrt(aspect)) ** 2 * (sp.exp(4) - 1) == 0
    assert all(isinstance(text, str) and relation not in (sp.true, sp.false) for text, relation in gap.steps)


def test_every_planted_error_in_the_proof_is_found():
    gap = edge_gap()
    for k, (text, relation) in enumerate(gap.steps):
        if isinstance(relation, sp.Eq):
            wrong = sp.Eq(relation.lhs, relation.rhs + sp.Rational(1, 1000) * BETA, evaluate=False)
        else:
            wrong = relation.func(relation.rhs, relation.lhs, evaluate=False)
        steps = (*gap.steps[:k], (text, wrong), *gap.steps[k + 1 :])
        with pytest.raises(CertificationError, match=f"step {k + 1} "):
            dataclasses.replace(gap, steps=steps).verify()


def test_a_statement_that_is_no_relation_is_not_accepted():
    gap = edge_gap()
    for claim in (sp.false, sp.Symbol("claim"), sp.Ne(1, 2, evaluate=False)):
        with pytest.raises(CertificationError):
            dataclasses.replace(gap, steps=(("a claim", claim),)).verify()


@pytest.mark.parametrize("beta", ["1/10", "1", "3"])
@pytest.mark.parametrize("ratio", RATIOS)
def test_gap_and_its_bound_hold_in_numbers(beta, ratio):
    beta = sp.Rational(beta)
    edge = exact_edge(beta, ratio)
    curve = spectral_curve([ratio, 1], noise=sp.exp(beta**2) - 1 - beta**2, signal=beta**2)
    derivative = sp.diff(curve.z(), curve.u)
    point = sp.nsolve(sp.fraction(sp.together(derivative))[0], curve.u, (1e-9, 10), solver="anderson", prec=40)
    assert abs(curve.z(point) - edge) < 1e-25 * edge
    gap = edge_gap(ratio=ratio)
    bound = gap.bound.subs({BETA: beta, sp.Symbol("u", positive=True): point})
    assert 0 < bound < edge - gap.statement.rhs.subs(BETA, beta)


@pytest.mark.parametrize("order", [1, -2, 2.5, True, None])
def test_bad_orders(order):
    with pytest.raises(ParameterError, match="order"):
        right_edge_small_beta(order)
    if order != 1:
        with pytest.raises(ParameterError, match="order"):
            right_edge_large_beta(order)


@pytest.mark.parametrize("ratio", [0, -1, sp.Symbol("q"), "1", None, sp.pi, sp.oo, BETA])
def test_bad_ratios(ratio):
    for build in (right_edge_small_beta, right_edge_large_beta):
        with pytest.raises(ParameterError, match="ratio"):
            build(ratio=ratio)


def test_bad_gaps():
    with pytest.raises(ParameterError, match="at least one inner"):
        edge_gap([])
    with pytest.raises(ParameterError, match=r"chain\[1\]"):
        edge_gap([1, -1])
    with pytest.raises(ParameterError, match="aspect"):
        edge_gap(aspect=0)
    with pytest.raises(ParameterError, match="names"):
        edge_gap([sp.Symbol("u", positive=True)])
