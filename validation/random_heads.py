"""Inspection of heads that are random: beta recovered, false alarms kept, a planted direction found, quick enough.

Heads of 512 tokens, d_k = 64, beta drawn uniformly from [0.3, 1.2], in four kinds: orthonormal tokens and Gaussian ones
of width 512, without a mask and causal. `gequiv.inspect_attention` is given the matrices alone. A planted direction
adds t x y' to the scores, x and y Gaussian (causal: x on the later half of the queries, y on the earlier half of the
keys, where the mask is full), with t such that its strength is 1.3 times the detection threshold that the inspection of
the head without it has told.

Claims.
- beta from the second moment is within 5 % of the true one for every head.
- At most 5 % of the heads are called not random at the 5 % level, each taken for itself; and of all heads of one
  inspection together, called so with Holm's correction, at most one.
- The planted direction is among the outliers of at least 95 % of the heads without a mask, and as many causal ones.
- 144 heads without a mask take less than 60 seconds, and as many causal ones too.
"""

from __future__ import annotations

import itertools
import sys
import time
from functools import partial
from typing import Any

import numpy as np

import gequiv
from gequiv.attention import Attention
from gequiv.attention.ensemble import draw_scores
from validation import _common
from validation._common import Claim

TOKENS, HEAD_DIM, WIDTH = 512, 64, 512
LOWEST, HIGHEST = 0.3, 1.2
HEADS, QUICK_HEADS = 100, 16
MANY = 144
TIMES = 1.3
BETA_WITHIN, LEVEL, FOUND, SECONDS = 0.05, 0.05, 0.95, 60.0
MASKS = (None, "causal")
WIDTHS = (None, WIDTH)


def softmax(scores: np.ndarray, mask: str | None) -> np.ndarray:
    if mask:
        scores = np.where(np.tri(len(scores), dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def direction(mask: str | None, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
    """x, y and the strength in rows sqrt(k_i) A_i of x y' added to the scores."""
    x, y = rng.standard_normal(TOKENS), rng.standard_normal(TOKENS)
    keys = np.full(TOKENS, TOKENS)
    if mask:
        x[: TOKENS // 2], y[TOKENS // 2 :], keys = 0, 0, np.arange(1, TOKENS + 1)
    else:
        y -= y.mean()
    return x, y, float(np.linalg.norm(x / np.sqrt(keys)) * np.linalg.norm(y))


def run_cell(mask: str | None, width: int | None, heads: int, seed: int) -> dict[str, Any]:
    """Heads of one kind, as they are and with a planted direction."""
    rng = np.random.default_rng([seed, MASKS.index(mask), WIDTHS.index(width)])
    betas = rng.uniform(LOWEST, HIGHEST, heads)
    scores = [b * draw_scores(Attention(TOKENS, HEAD_DIM, b, width=width, mask=mask), rng) for b in betas]
    plain = gequiv.inspect_attention(np.array([softmax(s, mask) for s in scores]), level=LEVEL)
    planted = []
    for one, report in zip(scores, plain.heads, strict=True):
        x, y, strength = direction(mask, rng)
        assert report.detection_threshold is not None
        planted.append(softmax(one + TIMES * report.detection_threshold / strength * np.outer(x, y), mask))
    found = gequiv.inspect_attention(np.array(planted), level=LEVEL)
    return {
        "mask": mask,
        "width": width,
        "beta": betas.tolist(),
        "beta_found": [head.beta for head in plain.heads],
        "p_values": [head.p_value for head in plain.heads],
        "not_random": len(plain.heads) - plain.random,
        "planted_found": [any(o.kind != "local" for o in head.outliers) for head in found.heads],
    }


def run_time(mask: str | None, heads: int, seed: int) -> dict[str, Any]:
    """Seconds for many heads of one kind, drawing them left out."""
    rng = np.random.default_rng([seed, 7])
    betas = rng.uniform(LOWEST, HIGHEST, heads)
    matrices = np.array([Attention(TOKENS, HEAD_DIM, b, width=WIDTH, mask=mask).sample(rng) for b in betas])
    start = time.perf_counter()
    gequiv.inspect_attention(matrices)
    return {"mask": mask, "heads": heads, "seconds": time.perf_counter() - start}


def claims(cells: list[dict[str, Any]]) -> list[Claim]:
    kinds = [cell for cell in cells if "p_values" in cell]
    found = []
    off = max(abs(b / t - 1) for cell in kinds for b, t in zip(cell["beta_found"], cell["beta"], strict=True))
    found.append(Claim("beta of every head", f"off by at most {off:.1%}", f"{BETA_WITHIN:.0%}", off <= BETA_WITHIN))
    p_values = np.array([p for cell in kinds for p in cell["p_values"]])
    share = float((p_values < LEVEL).mean())
    found.append(Claim(f"{p_values.size} heads, each for itself", f"{share:.1%} called so", "5%", share <= LEVEL))
    called = max(cell["not_random"] for cell in kinds)
    found.append(Claim("not random, of one inspection", f"{called}", "1", called <= 1))
    for mask in MASKS:
        seen = [s for cell in kinds if cell["mask"] == mask for s in cell["planted_found"]]
        share = float(np.mean(seen))
        title = f"planted direction, {mask or 'no mask'}, {len(seen)} heads"
        found.append(Claim(title, f"found in {share:.1%}", f"{FOUND:.0%}", share >= FOUND))
    for cell in (cell for cell in cells if "seconds" in cell):
        title = f"{cell['heads']} heads, {cell['mask'] or 'no mask'}"
        found.append(Claim(title, f"{cell['seconds']:.0f} s", f"{SECONDS:.0f} s", cell["seconds"] < SECONDS))
    return found


def main(argv: list[str] | None = None) -> int:
    quick = f"{QUICK_HEADS} heads of each kind and no timing"
    options = _common.resumable(_common.arguments("random_heads", __doc__ or "", quick=quick)).parse_args(argv)
    heads = QUICK_HEADS if options.quick else HEADS
    wanted = {
        f"{mask or 'no mask'}, width {width}": partial(run_cell, mask, width, heads, options.seed)
        for mask, width in itertools.product(MASKS, WIDTHS)
    }
    if not options.quick:
        wanted |= {f"time, {mask or 'no mask'}": partial(run_time, mask, MANY, options.seed) for mask in MASKS}
    path = _common.folder(options) / "random_heads.json"
    cells = _common.run_cells(path, options, wanted)
    code = _common.conclude(path, __doc__ or "", options, claims(cells), {"cells": cells})
    _common.discard_partial(path)
    return code


if __name__ == "__main__":
    sys.exit(main())
