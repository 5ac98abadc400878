r"""A derivation that is checked while it is written down: prose, definitions, and equalities that must hold exactly.

Every step is recorded and can be shown in the terminal or as a LaTeX article. A claimed equality is asserted when it is
recorded: the difference of both sides must reduce to 0, or `DerivationError` names the document, the step and both
sides. Nothing here trusts a floating-point number; comparisons with computed numbers are steps of their own kind.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import sympy as sp

from gequiv.errors import GequivError, ParameterError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Reduction = str | Callable[[Any], Any]
KINDS = ("text", "definition", "equation", "series", "limit", "check")


class DerivationError(GequivError, ArithmeticError):
    """A step of a derivation does not hold; the message names the document, the step and both sides."""


# -- reducing a difference to zero --------------------------------------------------------------------


def _rational(expression: Any) -> Any:
    return sp.cancel(sp.together(expression))


def _power(expression: Any) -> Any:
    return sp.expand(sp.powsimp(sp.expand(sp.powdenest(expression, force=False))))


def _gamma(expression: Any) -> Any:
    return sp.simplify(sp.gammasimp(sp.expand_func(sp.combsimp(expression))))


_REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "expand": sp.expand,
    "rational": _rational,
    "power": _power,
    "trig": lambda expression: sp.trigsimp(sp.expand(expression)),
    "gamma": _gamma,
    "simplify": sp.simplify,
}
_AUTOMATIC = ("expand", "rational", "power", "gamma", "simplify")


def _reductions(how: Reduction) -> list[Callable[[Any], Any]]:
    if callable(how):
        return [how]
    if how == "auto":
        return [_REDUCTIONS[name] for name in _AUTOMATIC]
    if how not in _REDUCTIONS:
        raise ParameterError(f"how must be one of auto, {', '.join(_REDUCTIONS)} or a function; got {how!r}")
    return [_REDUCTIONS[how]]


def _vanishes(expression: Any, how: Reduction) -> bool:
    """Whether one of the reductions turns the expression (or every entry of a matrix) into an exact 0."""
    entries = list(expression) if isinstance(expression, sp.MatrixBase) else [expression]
    return all(any(reduce(entry) == 0 for reduce in _reductions(how)) for entry in entries)


# -- the record --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One step: `left` and `right` are sympy expressions (None in prose), `detail` says what was compared."""

    number: int
    kind: str
    text: str = ""
    left: Any = None
    right: Any = None
    detail: str = ""


@dataclass
class Derivation:
    r"""A document under construction.

    Prose (`text`, `note`, `assumptions`, `title`) is plain text with inline formulas between dollar signs.

    Parameters
    ----------
    title : the title of the document.
    assumptions : sentences.

    Examples
    --------
    >>> import sympy
    >>> x = sympy.Symbol("x")
    >>> document = Derivation("Squares")
    >>> document.equation((x + 1) ** 2, x**2 + 2 * x + 1)
    >>> document.equation((x + 1) ** 2, x**2 + 1)
    Traceback (most recent call last):
    ...
    gequiv.symbolic.derivation.DerivationError: Squares, step 2: (x + 1)**2 is not x**2 + 1
    """

    title: str
    assumptions: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.assumptions = list(self.assumptions)
        for prose in (self.title, *self.assumptions):
            _pieces(prose)

    # -- steps ----------------------------------------------------------------------------------------

    def text(self, prose: str) -> None:
        """Record a paragraph of prose."""
        self._record("text", " ".join(prose.split()))

    def define(self, symbol: Any, expression: Any, note: str = "") -> Any:
        """Record that `symbol` stands for `expression`, and return the expression."""
        expression = sp.sympify(expression)
        self._record("definition", note, sp.sympify(symbol), expression)
        return expression

    def equation(
        self, left: Any, right: Any, note: str = "", *, how: Reduction = "auto", shown: tuple[Any, Any] | None = None
    ) -> None:
        """Assert that both sides are the same expression, exactly.

        Parameters
        ----------
        left, right : expressions, or matrices of the same shape; unevaluated integrals, sums, derivatives and limits
            are evaluated for the comparison and shown as they are.
        note : what the equality says.
        how : "auto", or one of "expand", "rational", "power", "trig", "gamma", "simplify", or a function that reduces
            the difference.
        shown : formulas to show in the place of both sides, where these would fill pages; the note should say what is
            asserted.

        Raises
        ------
        DerivationError : the difference does not reduce to 0.
        """
        left, right = sp.sympify(left), sp.sympify(right)
        difference = left.doit() - right.doit()
        if not _vanishes(difference, how):
            self._fail(f"{left} is not {right}")
        self._record("equation", note, *((left, right) if shown is None else map(sp.sympify, shown)))

    def series(
        self,
        expression: Any,
        variable: Any,
        point: Any,
        order: int,
        expected: Any,
        note: str = "",
        how: Reduction = "auto",
    ) -> None:
        """Assert the terms below `order` of the expansion of `expression` in `variable` about `point`.

        Raises
        ------
        DerivationError : the terms are others than `expected`.
        """
        expression, expected = sp.sympify(expression), sp.sympify(expected)
        found = sp.series(expression, variable, point, order)
        terms = found.removeO()
        if not _vanishes(terms - expected, how):
            self._fail(f"the series of {expression} in {variable} about {point} is {found}, not {expected}")
        small = variable if point == 0 else 1 / variable if point in (sp.oo, -sp.oo) else variable - point
        error = sp.Function("O")(small**order)
        shown = error if expected == 0 else sp.Add(expected, error, evaluate=False)
        self._record("series", note, expression, shown, f"{variable} to {point}")

    def limit(
        self, expression: Any, variable: Any, point: Any, expected: Any, note: str = "", *, direction: str = "+"
    ) -> None:
        """Assert a limit.

        Raises
        ------
        DerivationError : it is another one.
        """
        expression, expected = sp.sympify(expression), sp.sympify(expected)
        found = sp.limit(expression, variable, point, direction)
        if found != expected and not _vanishes(found - expected, "auto"):
            self._fail(f"the limit of {expression} as {variable} tends to {point} is {found}, not {expected}")
        self._record("limit", note, sp.Limit(expression, variable, point, direction), expected)

    def check(self, name: str, symbolic: Any, numeric: Any, tolerance: float = 1e-12) -> None:
        """Compare a derived value with a computed number.

        Parameters
        ----------
        name : what is compared.
        symbolic : an expression without free symbols.
        numeric : the computed number, real or complex.
        tolerance : largest allowed difference relative to the derived value; absolute where that is 0.

        Raises
        ------
        ParameterError : the derived value has free symbols.
        DerivationError : the two differ by more.
        """
        exact = sp.sympify(symbolic)
        if exact.free_symbols:
            raise ParameterError(
                f"symbolic must be a number; {exact} depends on {sorted(map(str, exact.free_symbols))}"
            )
        value, number = sp.N(exact, 40), sp.N(sp.sympify(numeric), 40)
        distance = abs(value - number)
        if not distance.is_finite:
            self._fail(f"{name} is {sp.N(value, 17)}, and not {numeric} as computed")
        scale = abs(value) if value != 0 else sp.Integer(1)
        if not bool(distance <= tolerance * scale):
            shown = f"{sp.N(value, 17)}, and not {numeric} as computed"
            self._fail(f"{name} is {shown} (tolerance {tolerance:g})")
        error = float(distance / scale)
        self._record(
            "check", name, sp.N(value, 15), sp.N(number, 15), f"differs by {error:.1e}, allowed {tolerance:.0e}"
        )

    def count(self, *kinds: str) -> int:
        """Number of steps of these kinds."""
        return sum(step.kind in kinds for step in self.steps)

    def _record(self, kind: str, text: str, left: Any = None, right: Any = None, detail: str = "") -> None:
        _pieces(text)
        self.steps.append(Step(len(self.steps) + 1, kind, text, left, right, detail))

    def _fail(self, complaint: str) -> None:
        raise DerivationError(f"{self.title}, step {len(self.steps) + 1}: {complaint}")

    # -- showing it -----------------------------------------------------------------------------------

    def render(self, width: int = 100) -> list[RenderableType]:
        """The document as rich renderables, formulas in Unicode."""
        from rich.padding import Padding
        from rich.text import Text

        parts: list[RenderableType] = [Text(plain(self.title), style="bold"), Text()]
        if self.assumptions:
            parts.append(Text("Assumptions", style="bold"))
        for k, sentence in enumerate(self.assumptions):
            parts.append(Padding(Text(f"A{k + 1}. {plain(sentence)}", style="dim"), (0, 0, 0, 4)))
        if self.assumptions:
            parts.append(Text())
        for step in self.steps:
            label = f"{step.number:3d}  "
            if step.kind == "text":
                parts += [_hanging(label, Text(plain(step.text)), ""), Text()]
                continue
            head = _MARKS[step.kind] + (" " + plain(step.text) if step.text else "")
            parts.append(_hanging(label, Text(head), _STYLES[step.kind]))
            if step.kind == "check":
                body = f"derived  {step.left}\ncomputed {step.right}   ({step.detail})"
            else:
                sign = ":=" if step.kind == "definition" else "="
                body = _pretty(step.left, sign, step.right, max(width - 10, 30))
            parts += [Padding(Text(body, no_wrap=True, overflow="fold"), (0, 0, 0, 8)), Text()]
        return parts

    def show(self, console: Console | None = None) -> None:
        """Print the document in the terminal, or on another console."""
        from rich.console import Console

        console = console or Console(highlight=False)
        for part in self.render(console.width):
            console.print(part)

    def to_latex(self) -> str:
        """The document as a self-contained LaTeX article (amsmath only, ASCII throughout)."""
        lines = [
            r"\documentclass[11pt]{article}",
            r"\usepackage{amsmath}",
            r"\allowdisplaybreaks",
            r"\sloppy",
            r"\setlength{\textwidth}{6.6in}",
            r"\setlength{\oddsidemargin}{-0.05in}",
            rf"\title{{{to_tex(self.title)}}}",
            r"\author{}",
            r"\date{}",
            r"\begin{document}",
            r"\maketitle",
        ]
        if self.assumptions:
            lines += [r"\section*{Assumptions}", r"\begin{enumerate}"]
            lines += [rf"\item {to_tex(sentence)}" for sentence in self.assumptions]
            lines += [r"\end{enumerate}"]
        lines.append(r"\section*{Derivation}")
        for step in self.steps:
            lines.append("")
            label = rf"\noindent\textbf{{{step.number}.}} "
            if step.kind == "text":
                lines.append(label + to_tex(step.text))
            elif step.kind == "check":
                lines.append(
                    label + rf"\emph{{Check:}} {to_tex(step.text)}: derived \texttt{{{to_tex(str(step.left))}}},"
                )
                lines.append(rf"computed \texttt{{{to_tex(str(step.right))}}} ({to_tex(step.detail)}).")
            else:
                word = _WORDS[step.kind]
                lines.append(label + rf"\emph{{{word}}}" + (f": {to_tex(step.text)}" if step.text else ""))
                sign = ":=" if step.kind == "definition" else "="
                lines += _display(step.left, sign, step.right)
        lines += ["", r"\end{document}", ""]
        return "\n".join(lines)


_MARKS = {"definition": "definition:", "equation": "✓", "series": "✓ series:", "limit": "✓ limit:", "check": "✓ check:"}
_STYLES = {"definition": "cyan", "equation": "green", "series": "green", "limit": "green", "check": "yellow"}
_WORDS = {"definition": "Definition", "equation": "Asserted", "series": "Series", "limit": "Limit"}


def run_document(derive: Callable[[], Derivation]) -> int:
    """Run a document as a program: print it; the exit code, 1 where a step does not hold."""
    from rich.console import Console

    try:
        derive().show()
    except DerivationError as error:
        Console(stderr=True, highlight=False, markup=False).print(f"error: {error}", soft_wrap=True)
        return 1
    return 0


# -- prose: plain text with formulas between dollar signs ----------------------------------------------


def _pieces(prose: str) -> list[tuple[bool, str]]:
    """The prose cut at its dollar signs, as (is a formula, text)."""
    parts = prose.split("$")
    if len(parts) % 2 == 0:
        raise ParameterError(f"prose must have an even number of dollar signs; got {prose!r}")
    return [(k % 2 == 1, part) for k, part in enumerate(parts)]


_GREEK = {
    name: chr(code)
    for name, code in {
        "alpha": 0x3B1, "beta": 0x3B2, "gamma": 0x3B3, "delta": 0x3B4, "epsilon": 0x3B5, "zeta": 0x3B6,
        "eta": 0x3B7, "theta": 0x3B8, "kappa": 0x3BA, "lambda": 0x3BB, "mu": 0x3BC, "nu": 0x3BD, "xi": 0x3BE,
        "pi": 0x3C0, "rho": 0x3C1, "sigma": 0x3C3, "tau": 0x3C4, "varphi": 0x3C6, "phi": 0x3D5, "chi": 0x3C7,
        "psi": 0x3C8, "omega": 0x3C9, "Gamma": 0x393, "Delta": 0x394, "Lambda": 0x39B, "Sigma": 0x3A3,
        "Phi": 0x3A6, "Psi": 0x3A8, "Omega": 0x3A9,
    }.items()
}  # fmt: skip
_MATH = {
    "cdot": "·", "times": "×", "le": "≤", "ge": "≥", "ne": "≠", "approx": "≈", "to": "→", "infty": "∞", "sum": "Σ",
    "prod": "∏", "int": "∫", "partial": "∂", "pm": "±", "in": "∈", "sim": "~", "ll": "≪", "gg": "≫", "langle": "⟨",
    "rangle": "⟩", "ldots": "…", "mid": "|", "top": "ᵀ", "propto": "∝", "circ": "∘", "quad": "  ", "log": "log",
    "exp": "exp", "max": "max", "min": "min", "cos": "cos", "det": "det", "Im": "Im", "Re": "Re", "operatorname": "",
    "mathrm": "", "text": "", "left": "", "right": "", "ell": "ℓ", "Rightarrow": "⇒", "lim": "lim",
}  # fmt: skip
_RAISED = dict(zip("0123456789+-=()niTkℓd", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱᵀᵏˡᵈ", strict=True)) | {"ᵀ": "ᵀ", "ν": "ᵛ", "β": "ᵝ"}
_LOWERED = dict(zip("0123456789+-=()aeijkmnprx", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑᵢⱼₖₘₙₚᵣₓ", strict=True))
_GROUP = r"\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"


def plain(prose: str) -> str:
    """Prose for the terminal: formulas in Unicode as far as they go, in simple linear notation beyond."""
    return "".join(_linear(part) if formula else part for formula, part in _pieces(prose))


def _linear(formula: str) -> str:
    def fraction(match: re.Match[str]) -> str:
        above, below = (_linear(group) for group in match.groups())
        return f"{_bracketed(above)}/{_bracketed(below)}"

    formula = re.sub(r"\\[,;:! ] *", " ", formula)
    formula = re.sub(r"\\[td]?frac" + _GROUP + _GROUP, fraction, formula)
    formula = re.sub(r"\\sqrt" + _GROUP, lambda match: "√" + _bracketed(_linear(match.group(1))), formula)
    formula = re.sub(r"\\sqrt *(\\[A-Za-z]+|\w)", lambda match: "√" + _linear(match.group(1)), formula)
    formula = re.sub(r"\\tilde" + _GROUP, lambda match: _linear(match.group(1)) + "̃", formula)
    names = {**_GREEK, **_MATH}
    for command in (rf"\\({'|'.join(_GREEK)})(?![A-Za-z])(?: (?=\w))?", r"\\([A-Za-z]+)"):
        formula = re.sub(command, lambda match: names.get(match.group(1), match.group(1)), formula)
    formula = re.sub(r"([_^])(?:" + _GROUP + r"|(.))", _script, formula)
    formula = formula.replace("\\{", "{").replace("\\}", "}")
    return re.sub(r"(?<!\\)[{}]", "", formula)


def _bracketed(text: str) -> str:
    return text if re.fullmatch(r"[\w√]+[⁰-⁹²³¹]*|[\w]*\([^()]*\)", text) else f"({text})"


def _script(match: re.Match[str]) -> str:
    sign, group, single = match.groups()
    body = _linear(group if group is not None else single)
    table = _RAISED if sign == "^" else _LOWERED
    if all(character in table for character in body):
        return "".join(table[character] for character in body)
    return sign + (body if len(body) == 1 else f"({body})")


def _hanging(label: str, text: Any, style: str) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=0)
    grid.add_column(width=len(label), no_wrap=True)
    grid.add_column(overflow="fold")
    text.stylize(style)
    grid.add_row(Text(label, style="bold"), text)
    return grid


def _pretty(left: Any, sign: str, right: Any, width: int) -> str:
    """Both sides in two-dimensional Unicode, side by side where they fit and below each other where not."""
    if sign == "=" and not isinstance(left, sp.MatrixBase):
        joined: str = sp.pretty(sp.Eq(left, right, evaluate=False), use_unicode=True, wrap_line=False)
        if max(map(len, joined.splitlines())) <= width:
            return joined
    sides = [sp.pretty(side, use_unicode=True, num_columns=width) for side in (left, right)]
    if sign == ":=" and "\n" not in sides[0]:
        return _beside(f"{sides[0]} := ", sides[1], width)
    return f"{sides[0]}\n  {sign}\n{sides[1]}"


def _beside(label: str, block: str, width: int) -> str:
    lines = block.splitlines()
    if len(label) + max(map(len, lines)) > width:
        return label.rstrip() + "\n" + block
    middle = len(lines) // 2
    return "\n".join((label if k == middle else " " * len(label)) + line for k, line in enumerate(lines))


# -- LaTeX -------------------------------------------------------------------------------------------

_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "#": r"\#", "%": r"\%", "&": r"\&", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "|": r"$|$",
    "–": "--", "—": "---", "’": "'", "‘": "`", "“": "``", "”": "''", "…": r"\ldots{}", "\xa0": "~",
}  # fmt: skip
_SYMBOLS = {
    "·": r"\cdot", "×": r"\times", "≤": r"\le", "≥": r"\ge", "≠": r"\ne", "≈": r"\approx", "→": r"\to",
    "∞": r"\infty", "√": r"\sqrt{\ }", "∫": r"\int", "∂": r"\partial", "±": r"\pm", "∈": r"\in", "²": "{}^2",
    "³": "{}^3", "⁴": "{}^4", "ᵀ": r"{}^\top", "ℓ": r"\ell", "⊥": r"\perp", "∏": r"\prod", "−": "-",
}  # fmt: skip
_ACCENTS = {"\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0308": '"', "\u030b": "H", "\u030c": "v"}


def to_tex(prose: str) -> str:
    """Prose for LaTeX: special characters escaped, formulas kept, everything in ASCII."""
    return "".join(
        "$" + _ascii(part, formula=True) + "$" if formula else _ascii(part, formula=False)
        for formula, part in _pieces(prose)
    )


def _ascii(text: str, *, formula: bool) -> str:
    return "".join(_ascii_character(character, formula) for character in text)


def _ascii_character(character: str, formula: bool) -> str:
    if not formula and character in _ESCAPES:
        return _ESCAPES[character]
    if character.isascii():
        return character
    for name, letter in _GREEK.items():
        if character == letter:
            return rf"\{name} " if formula else rf"$\{name}$"
    if character in _SYMBOLS:
        return _SYMBOLS[character] + " " if formula else f"${_SYMBOLS[character]}$"
    base, *marks = list(unicodedata.normalize("NFD", character))
    if base.isascii() and marks and all(mark in _ACCENTS for mark in marks):
        for mark in marks:
            base = rf"\{_ACCENTS[mark]}{{{base}}}"
        return rf"\text{{{base}}}" if formula else base
    code = f"U+{ord(character):04X}"
    return rf"\text{{{code}}}" if formula else code


_LINE = 64  # visible characters, roughly


def _display(left: Any, sign: str, right: Any) -> list[str]:
    """A display that breaks after the sign and between summands where a line would be too long."""
    first, second = _tex(left), [_tex(right)]
    if _length(second[0]) > _LINE:
        second = _broken(right)
    if len(second) == 1 and _length(first) + _length(second[0]) <= _LINE:
        return [r"\[", f"{first} {sign} {second[0]}", r"\]"]
    head = _broken(left) if _length(first) > _LINE else [first]
    rows = [rf"&{line}" for line in head]
    rows += [rf"&\quad {sign} {second[0]}", *(rf"&\qquad {line}" for line in second[1:])]
    return [r"\begin{align*}", " \\\\\n".join(rows), r"\end{align*}"]


def _tex(expression: Any) -> str:
    text: str = sp.latex(expression, mul_symbol=None, mat_delim="(")
    return _ascii(text.replace(r"\limits", ""), formula=True)


def _length(text: str) -> int:
    """Characters that are seen, roughly: a command counts as one, a fraction as the longer of its parts."""
    text = re.sub(r"\\(?:left|right|quad|qquad|operatorname)(?![A-Za-z])", "", text).replace(r"\frac", "\x01")
    text = re.sub(r"\\[A-Za-z]+", "x", text)
    text = re.sub(r"[ ^_\\]", "", text)
    before = ""
    while before != text:
        before = text
        text = re.sub("\x01" + r"\{([^{}]*)\}\{([^{}]*)\}", lambda match: max(match.groups(), key=len), text)
        text = re.sub("(?<![\x01}])" + r"\{([^{}]*)\}", r"\1", text)
    return len(re.sub("[{}\x01]", "", text))


def _broken(expression: Any) -> list[str]:
    """A sum in several lines, each a whole number of summands; a product likewise where a summand is too long."""
    summands: Iterable[Any] = expression.as_ordered_terms() if isinstance(expression, sp.Add) else [expression]
    pieces: list[str] = []
    for summand in summands:
        text = _tex(summand)
        parts = [text] if _length(text) <= _LINE else _factors(summand)
        if pieces and not parts[0].startswith("-"):
            parts[0] = "+ " + parts[0]
        pieces += parts
    lines = pieces[:1]
    for piece in pieces[1:]:
        if _length(lines[-1]) + _length(piece) <= _LINE:
            lines[-1] += " " + piece
        else:
            lines.append(piece)
    return lines


def _factors(product: Any) -> list[str]:
    """The factors of a product, after the first with a sign of multiplication; sums in brackets, broken too."""
    if not isinstance(product, sp.Mul):
        return [_tex(product)]
    sign, rest = (-1, -product) if product.could_extract_minus_sign() else (1, product)
    above, below = sp.fraction(rest)
    texts = [] if below == 1 else [[_tex(1 / below)]]
    for factor in sp.Mul.make_args(above):
        if isinstance(factor, sp.Add):
            lines = _broken(factor)
            texts.append(["(" + lines[0], *lines[1:]])
            texts[-1][-1] += ")"
        else:
            texts.append([_tex(factor)])
    for k in range(1, len(texts)):
        texts[k][0] = r"\times " + texts[k][0]
    parts = [line for lines in texts for line in lines]
    return [("- " if sign < 0 else "") + parts[0], *parts[1:]]
