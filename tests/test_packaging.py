"""What is installed: every room of the library, and the derivations as data of the package."""

from __future__ import annotations

import configparser
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]


def listed() -> set[str]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg")
    return set(parser["options"]["packages"].split())


def test_every_room_is_listed():
    rooms = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "gequiv").rglob("__init__.py")
        if "__pycache__" not in path.parts
    }
    assert listed() == rooms | {"gequiv._derivations"}


def test_import_stays_light():
    """`import gequiv` loads neither sympy nor matplotlib nor the parts of scipy that are slow to load."""
    heavy = ["sympy", "matplotlib", "mpmath", "scipy.stats", "scipy.optimize", "typer", "rich"]
    code = f"import sys, gequiv; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
