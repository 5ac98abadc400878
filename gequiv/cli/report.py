"""How numbers and parameters are put into words, JSON and tables; shared by both commands."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gequiv.cli.errors import quiet_pipe

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from gequiv.attention import Attention


def matrix(head: Attention) -> str:
    """The matrix whose singular values are meant."""
    return "√keys (A - 1/keys)" if head.visibility is None else "√keys (A - Ā)"


def number(value: float | None, digits: int = 4) -> str:
    """Short text of a number; a dash for None."""
    return "–" if value is None else f"{value:.{digits}g}"


def plain(value: Any) -> Any:
    """`value` in the types of JSON: numpy numbers become Python's, infinities and NaN become null."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (bool, int, str)) or value is None:
        return value
    converted = float(value)
    return converted if math.isfinite(converted) else None


def print_json(value: dict[str, Any]) -> None:
    """One JSON object on standard output."""
    with quiet_pipe():
        sys.stdout.write(json_text(value))


def json_text(value: dict[str, Any]) -> str:
    """One JSON object, with a line end."""
    return json.dumps(plain(value), allow_nan=False, ensure_ascii=False, indent=2) + "\n"


def print_rich(parts: Iterable[RenderableType], console: Console | None = None) -> None:
    """Tables and text on standard output, or on another console."""
    if console is None:
        from rich.console import Console

        console = Console(highlight=False)
    with quiet_pipe():
        for part in parts:
            console.print(part)
