"""``gequiv derive``: list, one document, all of them, LaTeX, and the user's own score."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sympy as sp

from gequiv.cli import derive as command
from gequiv.cli.derive import parse_score
from gequiv.errors import ParameterError

GOOD = """
import sympy as sp
from gequiv.symbolic.derivation import Derivation

TITLE = "Squares"

def derive():
    x = sp.Symbol("x")
    document = Derivation(TITLE)
    document.equation((x + 1) ** 2, x**2 + 2 * x + 1)
    document.check("two", 2, 2.0)
    return document
"""
BAD = GOOD.replace("+ 2 * x", "- 2 * x").replace("Squares", "Wrong squares")


@pytest.fixture
def small(tmp_path, monkeypatch) -> Path:
    """Two small documents, of which the second does not hold."""
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "01_squares.py").write_text(GOOD)
    (folder / "02_wrong_squares.py").write_text(BAD)
    (folder / "README.md").write_text("no document")
    monkeypatch.setattr(command, "folder", lambda: folder)
    return folder


def assert_refused(outcome, *fragments):
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    for fragment in fragments:
        assert fragment in outcome.err


def test_list(cli):
    outcome = cli("derive")
    assert (outcome.code, outcome.err) == (0, "")
    for number, name in [(1, "exponential"), (5, "rational-curve"), (9, "threshold")]:
        assert re.search(rf"^ +{number} +{name} +\w", outcome.out, flags=re.MULTILINE)


@pytest.mark.parametrize(
    "name", ["3", "03", "linear-model", "linear_model", "linear", "03_linear_model", "3-linear-model"]
)
def test_find(name):
    assert command.find(name).path.name == "03_linear_model.py"


@pytest.mark.parametrize("name", ["11", "0", "nonsense", "", "e x", "3-dyson", "../x"])
def test_unknown_document(cli, name):
    assert_refused(cli("derive", name), "document", "5 rational-curve", "all")


def test_ambiguous_document(cli):
    assert_refused(cli("derive", "e"), "1 exponential, 7 edges-moments")


def test_one_document(cli):
    outcome = cli("derive", "linear-model")
    assert (outcome.code, outcome.err) == (0, "")
    assert "The linear model of a score function" in outcome.out
    assert "✓" in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 100


def test_a_document_that_fails(cli, small):
    outcome = cli("derive", "2")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == "failed: Wrong squares, step 1: (x + 1)**2 is not x**2 - 2*x + 1\n"


@pytest.mark.parametrize("arguments", [["all"], ["--all"], ["all", "--all"]])
def test_all(cli, small, arguments):
    outcome = cli("derive", *arguments)
    assert (outcome.code, outcome.err) == (1, "")
    first, second, last = outcome.out.splitlines()
    assert re.fullmatch(r"passed  1 squares: 1 asserted, 1 compared, [\d.]+ s", first)
    assert second == "failed  2 wrong-squares: Wrong squares, step 1: (x + 1)**2 is not x**2 - 2*x + 1"
    assert re.fullmatch(r"1 of 2 derivations hold; \d+ s", last)
    (small / "02_wrong_squares.py").unlink()
    assert cli("derive", *arguments).code == 0


def test_latex(cli, small, tmp_path):
    outcome = cli("derive", "squares", "--latex", "squares.tex")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    text = (tmp_path / "squares.tex").read_text(encoding="ascii")
    assert text.startswith(r"\documentclass")
    assert text.rstrip().endswith(r"\end{document}")
    assert cli("derive", "--score", "exp(beta*x)", "--latex", "score.tex").code == 0
    assert r"\beta" in (tmp_path / "score.tex").read_text(encoding="ascii")


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["--latex", "x.tex"], ["--latex", "--score"]),
        (["all", "--latex", "x.tex"], ["--latex"]),
        (["1", "--all"], ["--all"]),
        (["1", "--score", "x"], ["--score"]),
        (["--all", "--score", "x"], ["--score"]),
        (["1", "--latex", "absent/x.tex"], ["--latex", "absent/x.tex"]),
        (["1", "--latex", "."], ["--latex"]),
    ],
)
def test_contradictions_and_files(cli, monkeypatch, arguments, fragments):
    def long_work(*_):
        raise AssertionError("the work began before the file was checked")

    monkeypatch.setattr(command, "_show", long_work)
    assert_refused(cli("derive", *arguments), *fragments)


def test_documents_inside_the_package_come_first(tmp_path, monkeypatch):
    import gequiv

    package = tmp_path / "gequiv"
    (package / "_derivations").mkdir(parents=True)
    monkeypatch.setattr(gequiv, "__file__", str(package / "__init__.py"))
    with pytest.raises(OSError, match="missing from this installation"):
        command.folder()
    (package / "_derivations" / "01_squares.py").write_text(GOOD)
    assert command.folder() == package / "_derivations"


# -- the score -----------------------------------------------------------------------------------------

X = sp.Symbol("x", real=True)
BETA = sp.Symbol("beta", positive=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("exp(beta*x)", sp.exp(BETA * X)),
        ("exp(β*x)", sp.exp(BETA * X)),
        ("(1 + x)^2", (1 + X) ** 2),
        ("1 + 0.1*x**2", 1 + X**2 / 10),
        ("relu(x) + 1e-3", sp.Max(X, 0) + sp.Rational(1, 1000)),
        ("max(x, 0, -x)", sp.Max(X, 0, -X)),
        ("-ln(1/(1+exp(-lambda*x)))", sp.log(1 + sp.exp(-sp.Symbol("lambda", positive=True) * X))),
        ("2*pi*abs(x)", 2 * sp.pi * sp.Abs(X)),
    ],
)
def test_formulas(text, expected):
    assert sp.simplify(parse_score(text) - expected) == 0


@pytest.mark.parametrize(
    "text",
    [
        "", "exp(", "2", "beta", "x = 1", "x; x", "x.real", "x[0]", "'x'", "b'x'", "True*x", "1j*x",
        "x if x else 1",
        "lambda x: x", "[x]", "x < 1", "x and x", "x // 2", "x % 2", "x @ x", "~x", "not x", "exp", "exp(x, x)",
        "exp()",
        "exp(x=x)", "exp(*x)", "foo(x)", "__import__('os').system('true')", "open('f')", "eval('x')",
        "_x*x",
        "x.__class__", "(lambda: x)()", "9**9**9 * x", "x**1000", "1e400*x", "10000000*x", "x/0", "log(0)*x",
        "sqrt(-1)*x",
        "x" * 300, "(" * 150 + "x", "...", "None", "x:=1", "f'{x}'", "{x}", "\0x", "9**(9**(1/2)*99)*x",
    ],
)  # fmt: skip
def test_what_is_no_formula_is_refused(text):
    with pytest.raises(ParameterError, match="--score must be a formula"):
        parse_score(text)


def test_exponential_score(cli):
    outcome = cli("derive", "--score", "exp(beta*x)")
    assert (outcome.code, outcome.err) == (0, "")
    assert "Positive parameters: beta" in outcome.out
    assert "✓" in outcome.out
    model = command.score_derivation(parse_score("exp(beta*x)"))
    found = {str(step.left): step.right for step in model.steps if step.kind == "definition"}
    assert sp.simplify(found["c1"] - BETA) == 0
    assert sp.simplify(found["sigma**2"] - (sp.exp(BETA**2) - 1 - BETA**2)) == 0


@pytest.mark.parametrize("text", ["1 + tanh(x)", "relu(x)", "(1+p*x)^2", "1 + x^2"])
def test_other_scores(cli, text):
    outcome = cli("derive", "--score", text)
    assert (outcome.code, outcome.err) == (0, "")
    assert "computed" in outcome.out


@pytest.mark.parametrize(
    ("text", "fragments"),
    [("-exp(x)", ["mean"]), ("x", ["mean"]), ("exp(x^2)", ["square-integrable"]), ("__import__('os')", ["__import__"])],
)
def test_scores_without_a_model(cli, text, fragments):
    assert_refused(cli("derive", "--score", text), "--score", *fragments)
