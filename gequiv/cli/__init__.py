"""The command ``gequiv``: a terminal in front of the library; see ``gequiv --help``."""

from __future__ import annotations


def main() -> None:
    """Run the command line and exit: 0 done, 1 verdict failed, 2 bad input, 3 not certified, 130 interrupted."""
    from gequiv.cli.app import app

    app(prog_name="gequiv")
