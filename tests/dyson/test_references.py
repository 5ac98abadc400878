"""The Dyson equation against the 40-digit references of the rational curve, which it shares nothing with."""

from __future__ import annotations

import json
import math
import pathlib

import numpy as np
import pytest

from gequiv import Attention

CASES = json.loads((pathlib.Path(__file__).parents[1] / "reference" / "limit_law.json").read_text())["cases"]


@pytest.mark.parametrize("part", range(4))
def test_density_edges_and_moments(part):
    for case in CASES[part::24]:
        head = Attention(**{name: case[name] for name in ("tokens", "head_dim", "beta", "keys", "width")})
        law = head.limit_law(method="fixed-point")
        edges = [edge for interval in law.support() for edge in interval]
        np.testing.assert_allclose(edges, [float(e) for e in case["edges"]], rtol=1e-10, err_msg=str(head))
        expected = [float(point["pdf"]) for point in case["points"]]
        computed = law.pdf([point["x"] for point in case["points"]])
        np.testing.assert_allclose(computed, expected, rtol=1e-10, err_msg=str(head))
        if math.isfinite(third := float(case["moments"][2])):
            assert law.moment(3) == pytest.approx(third, rel=1e-12)
