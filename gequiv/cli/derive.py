"""``gequiv derive``: the derivations, run step by step, in the terminal or as LaTeX."""

from __future__ import annotations

import importlib.util
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from gequiv.attention import score_formula
from gequiv.cli import files, report
from gequiv.cli.errors import complain, quiet_pipe
from gequiv.cli.progress import spinner
from gequiv.errors import InputFileError, ParameterError

if TYPE_CHECKING:
    from types import ModuleType

    from rich.console import RenderableType

    from gequiv.symbolic.derivation import Derivation

FAILED = 1
_NAME = re.compile(r"(\d\d)_(\w+)\.py")


def derive(
    document: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME|NUMBER|all]", show_default="list them", help="Which derivation to run and print."
        ),
    ] = None,
    run_all: Annotated[bool, typer.Option("--all", help="Run all derivations; a line for each.")] = False,
    latex: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the derivation as a LaTeX article instead of printing it."),
    ] = None,
    score: Annotated[
        str | None,
        typer.Option(
            metavar="FORMULA",
            help="Derive the linear model of your own score function of x; other names are positive parameters.",
        ),
    ] = None,
) -> None:
    """Derive the law from first principles: every equality is asserted, then gequiv's numbers are checked.

    Without an argument the derivations are listed. The exit code is 1 if a
    step does not hold.

    Examples:

    [cyan]gequiv derive
    gequiv derive linear-model
    gequiv derive 5 --latex curve.tex
    gequiv derive all
    gequiv derive --score "exp(beta*x)"[/cyan]
    """
    run_all = run_all or document == "all"
    if run_all and document not in (None, "all"):
        raise ParameterError(f"--all runs every derivation; leave {document!r} or --all out")
    if score is not None and (run_all or document is not None):
        raise ParameterError("--score derives the model of that score; leave the document out")
    if latex is not None:
        if run_all or (document is None and score is None):
            raise ParameterError("--latex writes one derivation; name the document or give a --score")
        files.check_writable("--latex", latex)
    if run_all:
        raise typer.Exit(_run_all())
    if score is not None:
        formula = parse_score(score)
        _show(lambda: score_derivation(formula), f"deriving the linear model of {score}", latex)
    elif document is not None:
        chosen = find(document)
        _show(lambda: chosen.load().derive(), f"deriving {chosen.name}", latex)
    else:
        report.print_rich([_table()])


# -- the documents -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Document:
    """A file NN_name.py with ``TITLE`` and ``derive()``."""

    number: int
    name: str
    path: Path

    def load(self) -> ModuleType:
        """The document's module; nothing is derived yet."""
        spec = importlib.util.spec_from_file_location(f"gequiv_derivation_{self.path.stem}", self.path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


def folder() -> Path:
    """Where the documents are: inside the installed package, or beside the package in a checkout."""
    import gequiv

    package = Path(gequiv.__file__).resolve().parent
    for place in (package / "_derivations", package.parent / "derivations"):
        if any(_NAME.fullmatch(path.name) for path in place.glob("*.py")):
            return place
    raise InputFileError(
        f"the derivations are missing from this installation: none in {str(package / '_derivations')!r}"
    )


def documents() -> list[Document]:
    """All documents, by number."""
    found = ((_NAME.fullmatch(path.name), path) for path in sorted(folder().glob("*.py")))
    return [Document(int(match[1]), match[2].replace("_", "-"), path) for match, path in found if match]


def find(text: str) -> Document:
    """The document of that number or name; the start of a name will do where it is unambiguous.

    Raises
    ------
    ParameterError : there is none, or more than one.
    """
    known = documents()
    wanted = text.strip().lower().removesuffix(".py").replace("_", "-")
    numbered = re.fullmatch(r"(\d+)(?:-(.+))?", wanted)
    if numbered:
        chosen = [item for item in known if item.number == int(numbered[1]) and (numbered[2] or item.name) == item.name]
    else:
        chosen = [item for item in known if item.name == wanted] or [
            item for item in known if wanted and item.name.startswith(wanted)
        ]
    if len(chosen) == 1:
        return chosen[0]
    names = ", ".join(f"{item.number} {item.name}" for item in chosen or known)
    raise ParameterError(
        f"the document must be {'one of' if not chosen else 'one alone of'} {names}, or all; got {text!r}"
    )


def _table() -> RenderableType:
    from rich import box
    from rich.table import Table

    from gequiv.symbolic.derivation import plain

    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("number", "name", "title"):
        table.add_column(heading, justify="right" if heading == "number" else "left", overflow="fold")
    for item in documents():
        table.add_row(str(item.number), item.name, plain(item.load().TITLE))
    return table


# -- running them --------------------------------------------------------------------------------------


def _show(run: Callable[[], Derivation], task: str, latex: Path | None) -> None:
    from rich.console import Console

    from gequiv.symbolic.derivation import DerivationError

    try:
        with spinner(task):
            result = run()
    except DerivationError as error:
        complain(str(error), kind="failed: ")
        raise typer.Exit(FAILED) from None
    if latex is not None:
        _write(latex, result.to_latex())
        return
    console = Console(highlight=False)
    report.print_rich(result.render(console.width), console)


def _write(path: Path, text: str) -> None:
    def fill(file: IO[str]) -> None:
        file.write(text)

    files.write("--latex", path, fill)


def _run_all() -> int:
    from gequiv.symbolic.derivation import DerivationError

    known, failures, begun = documents(), 0, time.perf_counter()
    for k, item in enumerate(known):
        start = time.perf_counter()
        try:
            with spinner(f"{k + 1} of {len(known)}: {item.name}"):
                result = item.load().derive()
        except DerivationError as error:
            failures += 1
            line = f"failed  {item.number} {item.name}: {error}"
        else:
            exact, compared = result.count("equation", "series", "limit"), result.count("check")
            seconds = time.perf_counter() - start
            line = f"passed  {item.number} {item.name}: {exact} asserted, {compared} compared, {seconds:.1f} s"
        _print(" ".join(line.split("\n")))
    _print(f"{len(known) - failures} of {len(known)} derivations hold; {time.perf_counter() - begun:.0f} s")
    return FAILED if failures else 0


def _print(line: str) -> None:
    with quiet_pipe():
        sys.stdout.write(line + "\n")


# -- the user's own score ------------------------------------------------------------------------------


def parse_score(text: str) -> Any:
    """The formula after --score as a sympy expression in x; see `gequiv.attention.score_formula`.

    Raises
    ------
    ParameterError : the formula is none, or does not depend on x.
    """
    return score_formula.parse_score(text, "--score")


def score_derivation(f: Any) -> Derivation:
    """The linear model of a score function of the symbol x (real), as a derivation.

    Raises
    ------
    ParameterError : the score has no linear model (negative mean, infinite variance), or it cannot be found.
    """
    import sympy as sp

    from gequiv.symbolic import Derivation, hermite_coefficients, linear_model

    x = sp.Symbol("x", real=True)
    try:
        model = linear_model(f, x)
        coefficients = hermite_coefficients(f, x, 4)
    except ParameterError as error:
        raise ParameterError(f"--score: {error}") from error
    names = sorted((symbol.name for symbol in f.free_symbols if symbol != x), key=str)
    where = ["$g$ is a standard Gaussian variable; the scores have variance 1."]
    if names:
        where.append(f"Positive parameters: {', '.join(names)}.")
    document = Derivation("The linear model of your score function", where)
    document.define(sp.Symbol("f"), f, "your score function")
    document.text(
        "The attention matrix, its rows divided by their sums, minus $1/n$ and times $\\sqrt{n}$, has in the limit the "
        "singular values of $(c_1 S + \\sigma Z)/\\sqrt{n}$, $S$ the scores and $Z$ noise, with "
        "$c_1 = E f'/E f$ and $\\sigma^2 = \\mathrm{Var} f/(E f)^2 - c_1^2$ (document 3)."
    )
    for k, value in enumerate(coefficients):
        how = "exact" if coefficients.exact[k] else "by quadrature"
        document.define(sp.Symbol(f"a{k}"), value, f"coefficient of $He_{k}/\\sqrt{{{k}!}}$, {how}")
    if model.exact and all(coefficients.exact):
        document.equation(coefficients[0], model.mean, "the mean $E f$")
        document.equation(coefficients[1] / coefficients[0], model.coefficient, "$c_1 = a_1/a_0$")
        document.equation(
            model.variance / model.mean**2 - model.coefficient**2,
            model.noise_variance,
            "$\\sigma^2$, from the variance",
        )
    document.define(sp.Symbol("c1"), model.coefficient, "" if model.exact else "by quadrature, about 30 digits")
    document.define(
        sp.Symbol("sigma") ** 2, model.noise_variance, "" if model.exact else "by quadrature, about 30 digits"
    )
    _check_by_summation(document, f, x, model)
    return document


def _check_by_summation(document: Derivation, f: Any, x: Any, model: Any) -> None:
    """Compare mean, coefficient and noise variance with plain sums over a fine grid, parameters at small numbers."""
    import numpy as np
    import sympy as sp

    symbols = sorted(f.free_symbols - {x}, key=str)
    values = {symbol: sp.Rational(5 + k, 40) for k, symbol in enumerate(symbols)}
    c1, noise = model.coefficient.subs(values), model.noise_variance.subs(values)
    if abs(sp.N(c1)) > 10 or sp.N(noise) > 1e6:
        document.text("The score grows too fast for a check by summation over a grid.")
        return
    step = 1 / 1024
    grid = np.arange(-24, 24, step) + step / 2
    function = sp.lambdify(x, f.subs(values), modules=["scipy", "numpy"])
    with np.errstate(all="ignore"):
        heights = np.broadcast_to(np.asarray(function(grid), dtype=float), grid.shape)
    weights = np.exp(-(grid**2) / 2) * step / np.sqrt(2 * np.pi)
    mean, slope, square = (float(weights @ part) for part in (heights, grid * heights, heights**2))
    if not np.isfinite([mean, slope, square]).all():
        document.text("The score leaves the floats on the grid, so there is no check by summation.")
        return
    at = "" if not values else " at " + ", ".join(f"{symbol} = {value}" for symbol, value in values.items())
    found = slope / mean
    where = " (midpoint rule, step 1/1024)" + at
    if c1 == 0:
        document.check("$c_1$" + where, 0, found, 1e-6)
    else:
        document.check("$c_1$" + where, c1, found, 1e-3)
    exact_total = noise + c1**2
    document.check("$\\mathrm{Var} f/(E f)^2$" + where, exact_total, square / mean**2 - 1, 1e-3)
