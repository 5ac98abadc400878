"""What the package offers, and that importing it is cheap."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gequiv.simulation import campaign


def test_every_name_is_there():
    for name in campaign.__all__:
        assert getattr(campaign, name).__name__ == name
    assert dir(campaign) == sorted(campaign.__all__) == sorted(campaign._LAZY)
    with pytest.raises(AttributeError, match="nothing"):
        _ = campaign.nothing


def test_import_stays_light():
    heavy = [
        "sympy",
        "matplotlib",
        "joblib",
        "distributed",
        "psutil",
        "threadpoolctl",
        "gequiv.simulation.campaign.cost",
    ]
    code = f"import sys, gequiv.simulation.campaign; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
