"""Every document holds, asserts and compares; a planted error anywhere is noticed; the LaTeX is sound."""

from __future__ import annotations

import configparser
import functools
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gequiv.cli.derive import Document, documents
from gequiv.symbolic import DerivationError

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = documents()
NAMES = [document.name for document in DOCUMENTS]


@functools.cache
def derived(name):
    return DOCUMENTS[NAMES.index(name)].load().derive()


def test_there_are_ten():
    assert [document.number for document in DOCUMENTS] == list(range(1, 11))


@pytest.mark.parametrize("name", NAMES)
def test_it_holds(name):
    document = derived(name)
    assert document.title == DOCUMENTS[NAMES.index(name)].load().TITLE
    assert document.assumptions
    assert document.count("equation") >= 5
    assert document.count("check") >= 3
    assert document.count("text") >= 3
    assert [step.number for step in document.steps] == list(range(1, len(document.steps) + 1))


PLANTED = [
    ("exponential", "beta * x - beta**2 / 2)", "beta * x + beta**2 / 2)"),
    ("exponential", "second - 1,", "second + 1,"),
    ("normaliser", "(-d / 2), r", "(d / 2), r"),
    ("normaliser", "sp.exp(beta**2) - 1, r", "sp.exp(beta**2) + 1, r"),
    ("linear-model", "m2 / m0**2 - 1 - c1**2", "m2 / m0**2 - 1 + c1**2"),
    ("linear-model", "beta**4 / 2 + beta**6 / 6", "beta**4 / 2 - beta**6 / 6"),
    ("score-spectrum", "u / ((1 + u) * (1 + u / c))", "u / ((1 + u) * (1 - u / c))"),
    ("score-spectrum", "3 / (c1 * c2)", "2 / (c1 * c2)"),
    ("rational-curve", "1 - noise * c * big_g)", "1 + noise * c * big_g)"),
    ("rational-curve", "u + noise * u / (s * p))", "u - noise * u / (s * p))"),
    ("dyson", "column = zeta - sigma**2", "column = zeta + sigma**2"),
    ("dyson", "y_u = u + sigma**2", "y_u = u - sigma**2"),
    ("edges-moments", "(1 - root * y_p) ** 2", "(1 + root * y_p) ** 2"),
    ("edges-moments", "(6 + 16 * c + 6 * c**2)", "(6 + 15 * c + 6 * c**2)"),
    ("chaos-weights", "(k + 2 * nu - 2) * before", "(k + 2 * nu - 1) * before"),
    ("chaos-weights", "** nu * (nu + ell) * bessel", "** nu * (nu - ell) * bessel"),
    ("threshold", "bound = beta + big_l", "bound = beta - big_l"),
    ("profiles-masks", "lam * column_term[j, j]", "column_term[j, j]"),
    ("profiles-masks", "v * bottom - kappa * top", "v * bottom + kappa * top"),
    ("threshold", "doc.equation(t * square", "doc.equation(square"),
    ("threshold", "scale * sp.exp(-(y**2)", "scale * sp.exp((y**2)"),
    ("threshold", "-((sp.sqrt(2) - sp.sqrt(gamma)) ** 2)", "-((sp.sqrt(2) + sp.sqrt(gamma)) ** 2)"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "right", "wrong"), PLANTED)
def test_a_planted_error_is_noticed(tmp_path, name, right, wrong):
    document = DOCUMENTS[NAMES.index(name)]
    source = document.path.read_text(encoding="utf-8")
    assert source.count(right) == 1
    copy = tmp_path / document.path.name
    copy.write_text(source.replace(right, wrong), encoding="utf-8")
    with pytest.raises(DerivationError, match=re.escape(document.load().TITLE) + r", step \d+: "):
        Document(document.number, document.name, copy).load().derive()


def test_a_wrong_number_of_the_library_is_noticed(monkeypatch):
    from gequiv.attention import LinearModel

    right = LinearModel.noise_variance.fget
    monkeypatch.setattr(LinearModel, "noise_variance", property(lambda self: right(self) * (1 + 1e-9)))
    with pytest.raises(DerivationError, match="noise variance"):
        DOCUMENTS[NAMES.index("linear-model")].load().derive()


@pytest.mark.parametrize("name", NAMES)
def test_latex_is_balanced(name):
    text = derived(name).to_latex()
    assert text.isascii()
    depth = 0
    for character in re.sub(r"\\[{}\\]", "", text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0
    stack = []
    for kind, environment in re.findall(r"\\(begin|end)\{([a-z*]+)\}", text):
        if kind == "begin":
            stack.append(environment)
        else:
            assert stack.pop() == environment
    assert stack == []
    assert text.count(r"\[") == text.count(r"\]")
    for line in text.splitlines():
        assert len(re.findall(r"(?<!\\)\$", line)) % 2 == 0
        assert line.count(r"\left") - line.count(r"\leftarrow") == line.count(r"\right")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex on this machine")
@pytest.mark.parametrize("name", NAMES)
def test_latex_compiles(tmp_path, name):
    (tmp_path / "document.tex").write_text(derived(name).to_latex(), encoding="ascii")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "document.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout[-2000:]


def test_a_document_is_a_program():
    path = DOCUMENTS[NAMES.index("linear-model")].path
    done = subprocess.run(
        [sys.executable, "-W", "error", path], capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "The linear model of a score function" in done.stdout


def test_every_package_is_installed_and_the_documents_with_them():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    listed = setup["options"]["packages"].split()
    there = [".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "gequiv").rglob("__init__.py")]
    assert sorted(listed) == sorted([*there, "gequiv._derivations"])
    assert setup["options"]["package_dir"].strip() == "gequiv._derivations = derivations"


def test_the_library_does_not_import_the_documents():
    for path in (ROOT / "gequiv").rglob("*.py"):
        assert not re.search(r"^\s*(?:from|import) derivations", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
