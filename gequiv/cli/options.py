"""Options that both commands share, and the head that they describe."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gequiv.errors import InputFileError, ParameterError

if TYPE_CHECKING:
    from gequiv.attention import Attention


class MethodName(enum.StrEnum):
    """Ways to compute the law."""

    CURVE = "curve"
    FIXED_POINT = "fixed-point"


class LawName(enum.StrEnum):
    """Which law to take."""

    AUTO = "auto"
    FINITE = "finite"
    LIMIT = "limit"


class Format(enum.StrEnum):
    """Forms in which a prediction is printed or written."""

    TABLE = "table"
    CSV = "csv"
    NPZ = "npz"
    JSON = "json"


@dataclass(frozen=True)
class Defaults:
    """Sizes at which the law is visible, differs plainly from Marchenko–Pastur, and takes seconds to check."""

    tokens: int = 1000
    head_dim: int = 500
    beta: float = 0.5
    samples: int = 8


DEFAULTS = Defaults()

_PANEL = "The attention head"

Tokens = Annotated[
    int, typer.Option(metavar="N", rich_help_panel=_PANEL, help="Number of queries: rows of the attention matrix.")
]
HeadDim = Annotated[
    int, typer.Option(metavar="N", rich_help_panel=_PANEL, help="Head width: columns of the query and key matrices.")
]
Beta = Annotated[float, typer.Option(metavar="X", rich_help_panel=_PANEL, help="Inverse temperature β, above 0.")]
Keys = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        show_default="as many as tokens",
        rich_help_panel=_PANEL,
        help="Number of keys; another number than --tokens is cross-attention.",
    ),
]
Width = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        show_default="orthonormal tokens",
        rich_help_panel=_PANEL,
        help="Embedding width of Gaussian tokens, which queries and keys share in self-attention.",
    ),
]
Covariance = Annotated[
    str | None,
    typer.Option(
        metavar="LIST|FILE",
        show_default="the identity",
        rich_help_panel=_PANEL,
        help="Eigenvalues of the tokens' feature covariance, with equal weights: separated by commas, or a text or "
        ".npy file of them. Needs --width.",
    ),
]
Mask = Annotated[
    str | None,
    typer.Option(
        metavar="MASK",
        show_default="none",
        rich_help_panel=_PANEL,
        help="Which keys a row sees: causal, window:W (the last W), two-sided:W (nearer than W), block:B (in its block "
        "of B), or none.",
    ),
]
Alibi = Annotated[
    float | None,
    typer.Option(
        metavar="SLOPE",
        show_default="no bias",
        rich_help_panel=_PANEL,
        help="ALiBi: subtract SLOPE times the distance of query and key from the scores.",
    ),
]
LawOption = Annotated[
    LawName,
    typer.Option(
        "--law",
        help="The finite-size law, the limit theorem's, or, by auto, the finite-size law if a mask or bias needs it or "
        "if the two differ by more than sampling noise.",
    ),
]
Method = Annotated[
    MethodName | None,
    typer.Option(
        show_default="curve, with a covariance fixed-point",
        rich_help_panel=_PANEL,
        help="How to compute the limit law, which this selects: from its rational curve, or from the Stieltjes "
        "fixed-point equation.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else on standard output.")]


def head_from(
    tokens: int,
    head_dim: int,
    beta: float,
    keys: int | None,
    width: int | None,
    covariance: str | None,
    mask: str | None,
    alibi: float | None,
) -> Attention:
    """The head that the options describe.

    Raises
    ------
    ParameterError : an option is out of range.
    InputFileError : the covariance file cannot be read.
    """
    from gequiv.attention import Attention

    eigenvalues = None if covariance is None else read_eigenvalues(covariance)
    return Attention(tokens, head_dim, beta, keys=keys, width=width, covariance=eigenvalues, mask=mask, bias=alibi)


def read_eigenvalues(text: str) -> tuple[float, ...]:
    """Numbers separated by commas, or the numbers in the file of that name.

    A text file holds them separated by white space or commas, with comments from # to the end of the line.

    Raises
    ------
    ParameterError : it is neither, or the file holds something else than real numbers.
    InputFileError : the file exists and cannot be read.
    """
    try:
        return tuple(float(item) for item in text.split(","))
    except ValueError:
        path = Path(text)
    if not path.exists():
        raise ParameterError(
            f"covariance must be numbers separated by commas, or a text or .npy file of them; got {text!r}"
        )
    try:
        if path.suffix.lower() == ".npy":
            import numpy as np

            return tuple(np.asarray(np.load(path, allow_pickle=False), dtype=np.float64).reshape(-1).tolist())
        lines = path.read_text(encoding="utf-8").splitlines()
        return tuple(float(item) for line in lines for item in line.partition("#")[0].replace(",", " ").split())
    except OSError as error:
        raise InputFileError(f"--covariance: cannot read {text!r}: {error.strerror or error}") from error
    except (ValueError, TypeError, EOFError) as error:
        raise ParameterError(f"covariance must hold real numbers alone; in the file {text!r}: {error}") from error
