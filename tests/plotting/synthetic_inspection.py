"""Reports made up by hand: a bulk that is a quarter of a circle, and what is told of it."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np

from gequiv.inspection.report import HeadReport, NullReport, OutlyingDirection, Report
from gequiv.inspection.tables import LawTable, _levels
from gequiv.laws import MarchenkoPastur

HOSTILE = "<script>alert('x')</script> & $\\frac{1}$"
SIZE = 400
LAW = MarchenkoPastur(1.0)
"""Of the squares; singular values have the density √(4 - s²)/π on (0, 2)."""
QUANTILES = np.asarray(LAW.ppf((np.arange(SIZE) + 0.5) / SIZE))


def quarter_circle(s):
    return np.sqrt(np.maximum(4 - np.asarray(s) ** 2, 0)) / np.pi


@cache
def table(*, solved=True):
    levels = _levels()
    return LawTable(np.log(np.asarray(LAW.ppf(levels))), 0.0, solved)


def outlier(value=9.0, kind="direction", keys=(3, 5, 1), queries=(2, 4)):
    count = len(keys)
    return OutlyingDirection(
        value,
        kind,
        keys,
        tuple(0.8 / (k + 1) * (-1) ** k for k in range(count)),
        queries,
        tuple(0.5 for _ in queries),
        1.9,
        40.0,
        value / 4.2,
    )


def null(name, ks, *, passes):
    p_value = 0.6 if passes else 1e-6
    return NullReport(name, 0.7, 20.0, 0.1, ks, 0.02, p_value, p_value, passes)


def head(layer=0, number=0, *, random=True, outliers=(), **changes):
    parts = {
        **{field.name: None for field in dataclasses.fields(HeadReport)},
        "layer": layer,
        "head": number,
        "tokens": SIZE,
        "keys": SIZE,
        "mask": "none",
        "beta": 0.7,
        "beta_entropy": 0.71,
        "beta_scores": 0.72,
        "head_dim": 32,
        "width": None,
        "directions": 31.0,
        "ks": 0.0321,
        "wasserstein": 0.02,
        "law_solved": True,
        "edge": 4.2,
        "edge_local": 5.5,
        "detection_threshold": 1.4,
        "outliers": list(outliers),
        "effective_rank": 123.4,
        "p_bulk": 0.5,
        "p_edge": 0.5,
        "p_beta": 0.5,
        "p_value": 1.0,
        "p_adjusted": 1.0 if random else 1e-4,
        "random": random,
        "verdict": "random: the bulk follows the law" if random else "not random: something is outside the bulk",
        "findings": ("mask: none",),
        "nulls": (),
        "spectrum": np.sort(np.concatenate([QUANTILES, [o.value for o in outliers]]))[::-1],
        "table": table(),
        **changes,
    }
    return HeadReport(**parts)


def lawless(layer=0, number=0):
    return head(
        layer,
        number,
        random=False,
        beta=None,
        ks=None,
        edge=None,
        edge_local=None,
        p_adjusted=None,
        law_solved=False,
        table=None,
    )


def report(heads, *, layered=True, source="made up"):
    return Report(list(heads), source, 0.05, layered)


def grid(layers, heads):
    """Every third head is not random, with as many outliers as its layer has a number, and distances all different."""
    made = []
    for layer in range(layers):
        for number in range(heads):
            strange = (layer * heads + number) % 3 == 0
            found = [outlier(9.0 + k) for k in range(layer)] if strange else []
            ks = 0.01 * (1 + layer * heads + number)
            made.append(head(layer, number, random=not strange, outliers=found, ks=ks))
    return report(made)
