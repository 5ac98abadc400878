"""The recorder: what holds is recorded, what does not hold is refused, and both renderings are well formed."""

from __future__ import annotations

import io
import re

import pytest
import sympy as sp

from gequiv.errors import ParameterError
from gequiv.symbolic import Derivation, DerivationError
from gequiv.symbolic.derivation import plain, run_document, to_tex

x, y = sp.symbols("x y")
n = sp.Symbol("n", integer=True, positive=True)


@pytest.fixture
def document():
    return Derivation("A document", [r"$x$ is a number & a 100 % real one."])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (x**2, x**2 + 1),
        (sp.sqrt(x**2), x),  # wrong for negative x
        (sp.log(x * y), sp.log(x) + sp.log(y)),  # wrong on the other side of the cut
        (sp.exp(x), 1 + x + x**2 / 2),
        (sp.gamma(x + 1), x * sp.gamma(x) + sp.Rational(1, 10**30)),
        (sp.Integral(sp.exp(-(x**2)), (x, -sp.oo, sp.oo)), sp.pi),
        (sp.Derivative(x**3, x), 3 * x),
        (sp.Matrix([[1, x], [0, 1]]), sp.Matrix([[1, x], [x, 1]])),
        (sp.nan, sp.nan),
        (sp.oo, sp.oo),
    ],
)
def test_a_wrong_equality_is_refused(document, left, right):
    document.text("first")
    with pytest.raises(DerivationError, match="A document, step 2: ") as caught:
        document.equation(left, right)
    assert str(left) in str(caught.value)
    assert str(right) in str(caught.value)
    assert len(document.steps) == 1


@pytest.mark.parametrize(
    ("left", "right", "how"),
    [
        ((x + 1) ** 2, x**2 + 2 * x + 1, "expand"),
        (1 / x - 1 / (x + 1), 1 / (x * (x + 1)), "rational"),
        (sp.exp(x) * sp.exp(y), sp.exp(x + y), "power"),
        (sp.sin(x) ** 2, 1 - sp.cos(x) ** 2, "trig"),
        (sp.gamma(x + 2), x * (x + 1) * sp.gamma(x), "gamma"),
        (sp.Integral(sp.exp(-(x**2)), (x, -sp.oo, sp.oo)), sp.sqrt(sp.pi), "auto"),
        (sp.Sum(2**-n, (n, 1, sp.oo)), 1, "auto"),
        (sp.Matrix([[x, 1]]) * sp.Matrix([[1], [x]]), sp.Matrix([[2 * x]]), "auto"),
        (x, x + 0, lambda difference: difference),
    ],
)
def test_a_right_equality_is_recorded(document, left, right, how):
    document.equation(left, right, how=how)
    assert [step.kind for step in document.steps] == ["equation"]
    assert document.count("equation") == 1


def test_too_weak_a_reduction_is_refused(document):
    with pytest.raises(DerivationError):
        document.equation(sp.sin(x) ** 2, 1 - sp.cos(x) ** 2, how="expand")
    with pytest.raises(ParameterError, match="how must be"):
        document.equation(x, x, how="magic")


def test_series(document):
    document.series(sp.exp(x), x, 0, 3, 1 + x + x**2 / 2)
    with pytest.raises(DerivationError, match="step 2"):
        document.series(sp.exp(x), x, 0, 3, 1 + x - x**2 / 2)
    with pytest.raises(DerivationError, match="step 2"):
        document.series(sp.exp(x), x, 0, 2, 1 + x + x**2 / 2)


def test_limit(document):
    document.limit(sp.sin(x) / x, x, 0, 1)
    document.limit(1 / x, x, 0, -sp.oo, direction="-")
    with pytest.raises(DerivationError, match="step 3"):
        document.limit(sp.sin(x) / x, x, 0, 0)
    with pytest.raises(DerivationError, match="step 3"):
        document.limit(1 / x, x, 0, -sp.oo)


def test_check_is_relative(document):
    document.check("pi", sp.pi, 3.141592653589793)
    document.check("complex", sp.exp(sp.I), complex(0.5403023058681398, 0.8414709848078965))
    document.check("zero", 0, 1e-14)
    for symbolic, numeric in [(sp.pi, 3.1415926), (sp.Float("1e-9"), 1.1e-9), (sp.Integer(1), float("nan")), (0, 1e-6)]:
        with pytest.raises(DerivationError, match="step 4: a number is"):
            document.check("a number", symbolic, numeric)
    with pytest.raises(ParameterError, match="x"):
        document.check("symbol", x, 1.0)


def test_prose_with_an_odd_dollar_sign_is_refused(document):
    for write in (document.text, lambda prose: document.equation(x, x, prose), lambda prose: Derivation("t", [prose])):
        with pytest.raises(ParameterError, match="dollar"):
            write("costs $5")


def test_prose_in_the_terminal():
    assert plain(r"$\beta^2 \le \frac{1}{n+1}$ and \beta stays") == r"β² ≤ 1/(n+1) and \beta stays"
    assert plain(r"$\sqrt{\gamma}\, x_{ij}$") == "√γ xᵢⱼ"
    assert plain(r"$\sqrt n + \sqrt\lambda$") == "√n + √λ"
    assert plain(r"$e^{\beta^2} - 1$") == "e^(β²) - 1"


def test_prose_in_latex():
    assert to_tex("50 % of #1 & a_b ~ {c} \\ ^") == (
        r"50 \% of \#1 \& a\_b \textasciitilde{} \{c\} \textbackslash{} \textasciicircum{}"
    )
    assert to_tex("β of Szegő – “é”") == r"$\beta$ of Szeg\H{o} -- ``\'{e}''"
    assert to_tex("$β_i ≤ x_1$") == r"$\beta _i \le  x_1$"
    assert to_tex("漢").isascii()


def test_both_renderings(document):
    document.define(sp.Symbol("f"), sp.exp(sp.Symbol("beta") * x), "a function")
    document.equation((x + 1) ** 2, x**2 + 2 * x + 1, "a square")
    document.equation((x + 1) ** 30, sp.expand((x + 1) ** 30))
    document.series(sp.exp(x), x, 0, 3, 1 + x + x**2 / 2)
    document.limit(sp.sin(x) / x, x, 0, 1)
    document.check("pi", sp.pi, 3.141592653589793)
    from rich.console import Console

    for width in (40, 100):
        out = io.StringIO()
        document.show(Console(file=out, width=width))
        lines = out.getvalue().splitlines()
        assert max(map(len, lines)) <= width
        assert "A document" in lines
        assert "definition: a function" in out.getvalue()
    text = document.to_latex()
    assert text.isascii()
    assert text.count(r"\\") > 3  # the long sum is broken
    assert not re.search(r"(?<!\\)%", text)


def test_shown_formulas_do_not_weaken_the_assertion(document):
    document.equation(x + x, 2 * x, shown=(sp.Symbol("A"), sp.Symbol("B")))
    assert (document.steps[0].left, document.steps[0].right) == (sp.Symbol("A"), sp.Symbol("B"))
    with pytest.raises(DerivationError):
        document.equation(x + x, 3 * x, shown=(sp.Symbol("A"), sp.Symbol("B")))


def test_run_as_a_program(capsys):
    def right():
        return Derivation("Right")

    def wrong():
        document = Derivation("Wrong")
        document.equation(x**2, x**2 + 1)
        return document

    assert run_document(right) == 0
    assert "Right" in capsys.readouterr().out
    assert run_document(wrong) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Wrong, step 1" in captured.err
