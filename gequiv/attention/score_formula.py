"""Score functions written as formulas, read without evaluating them as Python."""

from __future__ import annotations

import ast
import re
import unicodedata
from collections.abc import Callable
from typing import Any

from gequiv.errors import ParameterError

_LONGEST = 200
_LARGEST = 10**6
_HIGHEST_POWER = 64
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
}


def _functions() -> dict[str, tuple[int | None, Callable[..., Any]]]:
    """Functions a score may use: number of arguments (None for any) and what they are."""
    import sympy as sp

    return {
        "exp": (1, sp.exp),
        "log": (1, sp.log),
        "ln": (1, sp.log),
        "sqrt": (1, sp.sqrt),
        "sin": (1, sp.sin),
        "cos": (1, sp.cos),
        "sinh": (1, sp.sinh),
        "cosh": (1, sp.cosh),
        "tanh": (1, sp.tanh),
        "atan": (1, sp.atan),
        "erf": (1, sp.erf),
        "abs": (1, sp.Abs),
        "max": (None, sp.Max),
        "min": (None, sp.Min),
        "relu": (1, lambda v: sp.Max(v, 0)),
        "sigmoid": (1, lambda v: 1 / (1 + sp.exp(-v))),
        "softplus": (1, lambda v: sp.log(1 + sp.exp(v))),
    }


def parse_score(text: str, name: str = "score") -> Any:
    """The score function as a sympy expression in x.

    The formula is read node by node: numbers, names, + - * / and powers, and the functions of a fixed list. Nothing in
    it is evaluated as Python. Names besides x are positive symbols.

    Parameters
    ----------
    text : the formula.
    name : what messages call it.

    Raises
    ------
    ParameterError : the formula holds anything else, or does not depend on x.
    """
    import sympy as sp

    def refuse(reason: str) -> ParameterError:
        return ParameterError(f"{name} must be a formula in x such as exp(beta*x); in {text[:_LONGEST]!r} {reason}")

    if len(text) > _LONGEST:
        raise refuse(f"there are more than {_LONGEST} characters")
    source = re.sub(r"\blambda\b", "lambda_", text.strip().replace("^", "**"))
    try:
        tree = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise refuse("something is not well formed") from None
    functions = _functions()
    constants = {"pi": sp.pi, "e": sp.E, "E": sp.E}

    def symbol(identifier: str) -> Any:
        if len(identifier) == 1 and unicodedata.name(identifier, "").startswith("GREEK SMALL LETTER "):
            identifier = (
                unicodedata.name(identifier).removeprefix("GREEK SMALL LETTER ").lower().replace("lamda", "lambda")
            )
        identifier = "lambda" if identifier == "lambda_" else identifier
        if identifier in functions:
            raise refuse(f"the function {identifier} has no argument")
        if identifier in constants:
            return constants[identifier]
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*(_[A-Za-z0-9]+)?", identifier):
            raise refuse(f"{identifier!r} is no name of a parameter")
        return sp.Symbol("x", real=True) if identifier == "x" else sp.Symbol(identifier, positive=True)

    def power(base: Any, exponent: Any) -> Any:
        if base.is_number and exponent.is_number and not abs(sp.N(exponent)) <= _HIGHEST_POWER:
            raise refuse(f"the power of a number exceeds {_HIGHEST_POWER}")
        if exponent.is_Integer and abs(exponent) > _HIGHEST_POWER:
            raise refuse(f"a power exceeds {_HIGHEST_POWER}")
        return base**exponent

    def read(node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                if isinstance(value, bool) or not isinstance(value, (int, float)):
                    raise refuse(f"{value!r} is no real number")
                if not abs(value) <= _LARGEST:
                    raise refuse(f"{value!r} is too large")
                return sp.Rational(repr(value))
            case ast.Name(id=identifier):
                return symbol(identifier)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -read(operand)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return read(operand)
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return power(read(left), read(right))
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
                return _OPERATORS[type(operator)](read(left), read(right))
            case ast.Call(func=ast.Name(id=called), args=arguments, keywords=[]) if called in functions:
                count, function = functions[called]
                if not arguments or (count is not None and len(arguments) != count):
                    raise refuse(f"{called} has {len(arguments)} arguments")
                return function(*map(read, arguments))
            case ast.Call(func=ast.Name(id=called)):
                raise refuse(f"{called!r} is not one of the functions {', '.join(functions)}")
        raise refuse(f"{ast.unparse(node)!r} is not allowed")

    formula = read(tree)
    if formula.has(sp.zoo, sp.nan, sp.oo, -sp.oo, sp.I):
        raise refuse("something is infinite, undefined or not real")
    if sp.Symbol("x", real=True) not in formula.free_symbols:
        raise refuse("x does not occur")
    return formula
