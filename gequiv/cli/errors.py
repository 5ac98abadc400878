"""Errors as users see them: one line on standard error and an exit code."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from gequiv.errors import CertificationError, ExecutionError, InputFileError, ParameterError

BAD_INPUT = 2
NOT_CERTIFIED = 3
NO_WORKERS = 4
INTERRUPTED = 130
BROKEN_PIPE = 141

_LONGEST = 600
_OPTIONS = {
    "attention": "--tokens",
    "beta": "--beta",
    "bias": "--alibi",
    "count": "--points",
    "covariance": "--covariance",
    "dask": "--dask",
    "head_dim": "--head-dim",
    "jobs": "--jobs",
    "keys": "--keys",
    "law": "--law",
    "limit_law": "--law limit",
    "mask": "--mask",
    "memory": "--memory",
    "method": "--method",
    "path": "--plot",
    "rescaled": "--rescaled",
    "rng": "--seed",
    "samples": "--samples",
    "tokens": "--tokens",
    "tolerance": "--tolerance",
    "width": "--width",
}
_PHRASES = {
    "limit_law(rescaled=True)": "gequiv predict --rescaled",
    "width=None": "no --width",
    "must be None with": "must be left out with",
    "must be False with": "must be left out with",
    "law='finite'": "--law finite",
    'None, "none", "causal"': '"none", "causal"',
    ", a boolean array of shape (tokens, keys), or a function of (i/tokens, j/keys)": "",
    "mask=None and bias=None": "no --mask and no --alibi",
    "finite_law() serves": "--law finite serves",
    "or None; got": "or left out; got",
}

# the class above BadParameter is the base of all complaints about usage; where it lives depends on the release
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]


def in_terms_of_options(message: str) -> str:
    """A library message, whose first word is a parameter, with the option's name in its place."""
    for phrase, replacement in _PHRASES.items():
        message = message.replace(phrase, replacement)
    name = re.match(r"[a-z_]+\b", message)
    if name and name.group() in _OPTIONS:
        return _OPTIONS[name.group()] + message[name.end() :]
    return message


class Stopped(Exception):
    """Ctrl-C with something to say about what was done by then."""


def complain(message: str, kind: str = "error: ") -> None:
    """One line on standard error."""
    line = " ".join(message.split())
    if len(line) > _LONGEST:
        line = line[: _LONGEST - 20] + " ... " + line[-15:]
    print(kind + line, file=sys.stderr)  # noqa: T201


@contextmanager
def quiet_pipe() -> Iterator[None]:
    """A reader that has had enough (``gequiv predict | head``) ends the command without a complaint."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(BROKEN_PIPE) from None


class OneLineErrors(TyperGroup):
    """A command group that turns every expected error into one line on standard error and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run, and exit; ``standalone_mode`` is accepted and ignored."""
        del standalone_mode
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except _USAGE_ERROR as error:
            text = error.format_message() if hasattr(error, "format_message") else str(error)
            context = getattr(error, "ctx", None)
            where = f" (see {context.command_path} --help)" if context is not None else ""
            complain(text.rstrip() + where)
            code = BAD_INPUT
        except ParameterError as error:
            complain(in_terms_of_options(str(error)))
            code = BAD_INPUT
        except InputFileError as error:  # StorageError is one
            complain(str(error))
            code = BAD_INPUT
        except ExecutionError as error:
            complain(in_terms_of_options(str(error)))
            code = NO_WORKERS
        except MemoryError as error:
            complain(f"not enough memory: take fewer --tokens or --keys ({error})")
            code = BAD_INPUT
        except CertificationError as error:
            complain(f"not certified: {error}")
            code = NOT_CERTIFIED
        except (KeyboardInterrupt, typer.Abort, Stopped) as stop:
            complain(str(stop) or "interrupted", kind="")
            code = INTERRUPTED
        else:
            if code == INTERRUPTED:  # what newer releases make of a KeyboardInterrupt
                complain("interrupted", kind="")
        sys.exit(code if isinstance(code, int) else 0)
