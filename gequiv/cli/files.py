"""Files named on the command line: checked before the long work, written at its end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from gequiv.errors import InputFileError, ParameterError


def check_writable(option: str, path: Path) -> None:
    """Make sure that `path` can be written, leaving no trace of the trial.

    Raises
    ------
    InputFileError : it cannot; the message names the option, the path and the reason.
    """
    existed = path.exists()
    try:
        with path.open("ab"):
            pass
        if not existed:
            path.unlink()
    except OSError as error:
        raise InputFileError(f"{option}: cannot write {str(path)!r}: {error.strerror or error}") from error


def check_picture(option: str, path: Path) -> None:
    """As `check_writable`, for a figure, whose suffix must be one that figures have.

    Raises
    ------
    ParameterError : the suffix is another one.
    InputFileError : the file cannot be written.
    """
    from gequiv.plotting.figures import SUFFIXES

    if path.suffix.lower() not in SUFFIXES:
        raise ParameterError(f"{option} must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}; got {str(path)!r}")
    check_writable(option, path)


def write(option: str, path: Path, fill: Callable[[IO[Any]], None], *, binary: bool = False) -> None:
    """Open `path` and let `fill` write it.

    Raises
    ------
    InputFileError : it cannot be written after all.
    """
    try:
        with path.open("wb") if binary else path.open("w", encoding="utf-8") as file:
            fill(file)
    except OSError as error:
        raise InputFileError(f"{option}: cannot write {str(path)!r}: {error.strerror or error}") from error
