"""Randomly initialised attention layers of PyTorch and transformers follow the law of their weights, head by head.

Needs the extra ``models``: PyTorch and transformers; nothing is downloaded. Four models, initialised by their own
libraries and run in double precision on 1024 random tokens, embedding 256, 8 heads (d_k = 32):

- torch.nn.MultiheadAttention on N(0, 1) tokens;
- the same on tokens N(mean, covariance), covariance eigenvalues falling as k^(-1/2), mean of entries N(0, 0.3^2);
- a GPT-2 of two layers (causal) and a BERT of two layers, eager attention, random token ids.

Of four heads of each layer the weights, biases and scale are taken from the model; mean and covariance are those of the
states that its layer attends over (in GPT-2 behind the layer norm), from 32 inputs of the same kind, the covariance
about the mean of each input. ``Attention.from_weights`` of these gives the law; nothing is fitted. It is held against
the squared singular values of the head's attention matrix on 4 further inputs: of sqrt(n) (I - 11'/n) A (I - 11'/n)
without a mask, where centring the columns removes the direction that the mean of the queries adds; of
sqrt(n) (A - Abar) under the causal mask, where centring columns has no meaning: few rows see the late ones. As many
matrices of Gaussian tokens through the same weights, gequiv's own draws, say what distance the size alone explains.

Claims. The mean Kolmogorov-Smirnov distance over the inputs is at most 0.02 for every head, and its mean over the heads
of a layer at most 1.3 times that of gequiv's own draws. Without a mask the inverse temperature of the weights is that
of the matrix, sqrt(log(1 + m)), m the mean squared singular value, within 5 %. Every law is certified at the number of
norm nodes that it chooses itself.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import gequiv
from gequiv.attention import Attention, ensemble
from gequiv.simulation import sampling_noise
from validation import _common
from validation._common import Claim

TOKENS, QUICK_TOKENS = 1024, 512
WIDTH, HEADS = 256, 8
HEAD_DIM = WIDTH // HEADS
MODELS = {  # name: layers, heads tested of each layer
    "MHA": (1, 4),
    "MHA, covariance": (1, 4),
    "GPT-2": (2, 4),
    "BERT": (2, 4),
}
QUICK_HEADS = 1
INPUTS, QUICK_INPUTS = 4, 2
STATISTICS = 32
LIMIT, QUICK_LIMIT = 0.02, 0.04
TIMES_OWN, QUICK_TIMES_OWN, BETA_WITHIN = 1.3, 2.0, 0.05
DECAY, MEAN_SIZE = 0.5, 0.3
LOWEST, HIGHEST = 0.1, 0.9999  # quantiles that the figure shows
MISSING = (
    "validation.models needs PyTorch and transformers ({error}): pip install -e '.[models]', then run it again with "
    "that Python"
)


@dataclass(frozen=True, eq=False)
class Layer:
    """What one layer is: weights (d, d) and biases (d,) of queries and keys, statistics of its inputs, attention.

    ``attention`` has shape (inputs, heads, tokens, tokens).
    """

    W_Q: np.ndarray
    W_K: np.ndarray
    b_Q: np.ndarray
    b_K: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    attention: np.ndarray

    def head(self, index: int, mask: str | None) -> Attention:
        """The head as gequiv sees it."""
        own = slice(index * HEAD_DIM, (index + 1) * HEAD_DIM)
        return Attention.from_weights(
            self.W_Q[:, own],
            self.W_K[:, own],
            tokens=self.attention.shape[-1],
            covariance=self.covariance,
            mean=self.mean,
            b_Q=self.b_Q[own],
            b_K=self.b_K[own],
            scale=1 / math.sqrt(HEAD_DIM),
            mask=mask,
        )


@lru_cache(maxsize=1)
def layers(model: str, tokens: int, inputs: int, seed: int) -> list[Layer]:
    """The layers of a freshly initialised model, run on random tokens."""
    import torch

    index = list(MODELS).index(model)
    torch.manual_seed(1000 * seed + index)
    rng = np.random.default_rng([seed, index])
    with torch.no_grad():
        if model.startswith("MHA"):
            return [_multihead(rng, tokens, inputs, plain=model == "MHA")]
        return _transformer(model, rng, tokens, inputs)


def _statistics(states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean of states of shape (inputs, tokens, width), and covariance within an input."""
    centred = (states - states.mean(axis=1, keepdims=True)).reshape(-1, WIDTH)
    return states.mean(axis=(0, 1)), centred.T @ centred / (len(states) * (states.shape[1] - 1))


def _multihead(rng: np.random.Generator, tokens: int, inputs: int, *, plain: bool) -> Layer:
    import torch

    layer = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).double().eval()
    states = rng.standard_normal((STATISTICS + inputs, tokens, WIDTH))
    if not plain:
        variances = np.arange(1, WIDTH + 1) ** -DECAY
        variances /= variances.mean()
        turn = np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))[0]
        states = states * np.sqrt(variances) @ turn + MEAN_SIZE * rng.standard_normal(WIDTH)
    asked = torch.from_numpy(states[STATISTICS:])
    _, attention = layer(asked, asked, asked, need_weights=True, average_attn_weights=False)
    weight, bias = layer.in_proj_weight.numpy(), layer.in_proj_bias.numpy()
    return Layer(
        weight[:WIDTH].T,
        weight[WIDTH : 2 * WIDTH].T,
        bias[:WIDTH],
        bias[WIDTH : 2 * WIDTH],
        *_statistics(states[:STATISTICS]),
        attention.numpy(),
    )


def _transformer(name: str, rng: np.random.Generator, length: int, inputs: int) -> list[Layer]:
    import torch
    from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

    depth = MODELS[name][0]
    model: Any
    if name == "GPT-2":
        gpt = GPT2Config(n_embd=WIDTH, n_head=HEADS, n_layer=depth, n_positions=length, attn_implementation="eager")
        model, vocabulary = GPT2Model(gpt), gpt.vocab_size
        modules = [block.attn for block in model.h]
    else:
        bert = BertConfig(
            hidden_size=WIDTH,
            num_attention_heads=HEADS,
            num_hidden_layers=depth,
            intermediate_size=4 * WIDTH,
            max_position_embeddings=length,
            attn_implementation="eager",
        )
        model, vocabulary = BertModel(bert), bert.vocab_size
        modules = [block.attention.self for block in model.encoder.layer]
    model.double().eval()

    seen: list[list[np.ndarray]] = [[] for _ in modules]
    attention: list[list[np.ndarray]] = [[] for _ in modules]

    def keep(index: int, _: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        states = arguments[0] if arguments else named["hidden_states"]
        seen[index].append(states[0].numpy())

    for index, module in enumerate(modules):
        module.register_forward_pre_hook(partial(keep, index), with_kwargs=True)
    for turn in range(STATISTICS + inputs):
        tokens = torch.from_numpy(rng.integers(0, vocabulary, (1, length)))
        output = model(tokens, output_attentions=turn >= STATISTICS)
        if turn >= STATISTICS:
            for matrices, found in zip(attention, output.attentions, strict=True):
                matrices.append(found[0].numpy())

    result = []
    for module, states, matrices in zip(modules, seen, attention, strict=True):
        if name == "GPT-2":  # x W, of queries, keys and values side by side
            W_Q, W_K, _ = np.split(module.c_attn.weight.numpy(), 3, axis=1)
            b_Q, b_K, _ = np.split(module.c_attn.bias.numpy(), 3)
        else:  # x Wᵀ
            W_Q, W_K = module.query.weight.numpy().T, module.key.weight.numpy().T
            b_Q, b_K = module.query.bias.numpy(), module.key.bias.numpy()
        mean, covariance = _statistics(np.array(states[:STATISTICS]))
        result.append(Layer(W_Q, W_K, b_Q, b_K, mean, covariance, np.array(matrices)))
    return result


def _centred_spectrum(matrix: np.ndarray, head: Attention) -> np.ndarray:
    """Squared singular values of sqrt(n) (A - Abar), without a mask with its columns centred too."""
    centred = ensemble.centred(matrix, head.visibility)
    if head.visibility is None:
        centred -= centred.mean(axis=0)
    return ensemble.squared_singular_values(centred, "svd")


def run_cell(model: str, depth: int, index: int, tokens: int, inputs: int, seed: int) -> dict[str, Any]:
    """Distances of one head. The model and its inputs depend on the seed and the model alone."""
    layer = layers(model, tokens, inputs, seed)[depth]
    causal = model == "GPT-2"
    head = layer.head(index, "causal" if causal else None)
    law, forced = _common.finite_law(head)
    stream = np.random.default_rng([seed, 100 + list(MODELS).index(model), depth, index])
    spectra = [_centred_spectrum(matrix.copy(), head) for matrix in layer.attention[:, index]]
    own = [_centred_spectrum(head.sample(child), head) for child in stream.spawn(inputs)]
    found = gequiv.compare(law, spectra)
    pooled = np.concatenate(spectra)
    spread = float(np.sqrt(np.log1p(pooled.mean())))
    low, high = float(np.quantile(pooled, LOWEST)), 1.2 * float(np.quantile(pooled, HIGHEST))
    weights = head.inner_weights
    assert weights is not None
    assert head.weights is not None
    return {
        "model": model,
        "tokens": tokens,
        "layer": depth,
        "head": index,
        "beta": head.beta,
        "beta_of_matrix": None if causal else spread,
        "column_bias_deviation": math.sqrt(head.weights.column_bias_variance),
        "effective_inner_directions": float(weights.sum() ** 2 / (weights**2).sum()),
        "ks_per_input": list(found.ks_per_draw),
        "ks_mean": found.ks_mean,
        "ks_error": found.ks_error,
        "own_draws_ks_mean": gequiv.compare(law, own).ks_mean,
        "sampling_noise": sampling_noise(spectra),
        "norm_nodes_forced": forced,
        "figure": _common.log_density(spectra, low, high, law=law),
    }


def rows(cells: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Cells by model and layer."""
    found: dict[str, list[dict[str, Any]]] = {}
    for cell in cells:
        deep = MODELS[cell["model"]][0] > 1
        name = cell["model"] + (f", layer {cell['layer'] + 1}" if deep else "")
        found.setdefault(name, []).append(cell)
    return found


def claims(cells: list[dict[str, Any]], limit: float, times_own: float) -> list[Claim]:
    found = []
    for name, row in rows(cells).items():
        values = [cell["ks_mean"] for cell in row]
        heads = "head" if len(row) == 1 else "heads"
        found.append(
            Claim(
                f"{name}, {len(row)} {heads}: KS of every head, mean over inputs",
                f"{min(values):.4f} to {max(values):.4f}",
                f"{limit:g}",
                max(values) <= limit,
            )
        )
        own = float(np.mean([cell["own_draws_ks_mean"] for cell in row]))
        times = float(np.mean(values)) / own
        found.append(
            Claim(
                f"{name}: mean KS over that of gequiv's own draws, {own:.4f}",
                f"{times:.2f}",
                f"{times_own:g}",
                times <= times_own,
            )
        )
        ratios = [cell["beta_of_matrix"] / cell["beta"] - 1 for cell in row if cell["beta_of_matrix"] is not None]
        if ratios:
            off = max(abs(ratio) for ratio in ratios)
            found.append(
                Claim(
                    f"{name}: beta of the matrix against that of the weights",
                    f"off by at most {off:.1%}",
                    f"{BETA_WITHIN:.0%}",
                    off <= BETA_WITHIN,
                )
            )
    found.append(_common.helped_claim(cells))
    return found


def figure(path: Path, cells: list[dict[str, Any]]) -> None:
    """One panel a layer: singular values of the first head beside its law; and the distances of all heads."""
    plt = _common.pyplot()
    grouped = rows(cells)
    fig = plt.figure(figsize=(10.6, 4.8))
    grid = fig.add_gridspec(2, 4, wspace=0.14, hspace=0.5)
    places = [grid[k // 4, k % 4] for k in range(len(grouped))]
    for place, (name, row) in zip(places, grouped.items(), strict=True):
        axis, cell = fig.add_subplot(place), row[0]
        _common.draw_density(axis, cell["figure"], law={"color": _common.LAW})
        axis.set_title(name)
        axis.text(0.03, 0.97, f"KS {cell['ks_mean']:.4f}\n$\\beta$ = {cell['beta']:.3f}", transform=axis.transAxes,
                  va="top", fontsize=8, color=_common.LAW)  # fmt: skip
        axis.set_xlabel("squared singular value $x$")
        if place.colspan.start == 0:
            axis.set_ylabel("density in $\\log_{10} x$")
    last = fig.add_subplot(grid[1, len(grouped) - 4 :])
    for k, row in enumerate(grouped.values()):
        last.plot([cell["ks_mean"] for cell in row], np.full(len(row), -k), "o", color=_common.LAW, markersize=3.5,
                  alpha=0.7, markeredgewidth=0)  # fmt: skip
        own = float(np.mean([cell["own_draws_ks_mean"] for cell in row]))
        last.plot([own, own], [-k - 0.3, -k + 0.3], color=_common.COLOURS[1], linewidth=1.4)
    last.axvline(LIMIT, color=_common.BELIEVED, linestyle="--", linewidth=1)
    last.set_yticks([-k for k in range(len(grouped))], list(grouped))
    last.yaxis.tick_right()
    last.spines["left"].set_visible(False)
    last.spines["right"].set_visible(True)
    last.set_xlim(0, max(1.1 * LIMIT, 1.05 * max(cell["ks_mean"] for cell in cells)))
    last.set_xticks(np.arange(0, LIMIT + 1e-9, LIMIT / 4))
    last.set_xlabel("KS of every head")
    handles = [
        plt.Rectangle((0, 0), 1, 1, color=_common.SOFT),
        plt.Line2D([], [], color=_common.LAW),
        plt.Line2D([], [], color=_common.LAW, linestyle="", marker="o", markersize=3.5),
        plt.Line2D([], [], color=_common.COLOURS[1], linestyle="", marker="|", markersize=9, markeredgewidth=1.4),
        plt.Line2D([], [], color=_common.BELIEVED, linestyle="--", linewidth=1),
    ]
    labels = ["attention, first head", "law of its weights", "every head", "mean of gequiv's own draws", "claim"]
    fig.legend(handles, labels, loc="lower center", bbox_to_anchor=(0.5, -0.07), ncols=5)
    fig.savefig(path)
    plt.close(fig)


def main(argv: list[str] | None = None) -> int:
    quick = f"{QUICK_HEADS} head of each layer, {QUICK_INPUTS} inputs of {QUICK_TOKENS} tokens, limits doubled"
    options = _common.resumable(_common.arguments("models", __doc__ or "", quick=quick)).parse_args(argv)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is to be downloaded
    try:
        import torch
        import transformers
    except ImportError as error:
        print(MISSING.format(error=error), file=sys.stderr)
        return 1
    tokens, inputs, limit, times_own = TOKENS, INPUTS, LIMIT, TIMES_OWN
    if options.quick:
        tokens, inputs, limit, times_own = QUICK_TOKENS, QUICK_INPUTS, QUICK_LIMIT, QUICK_TIMES_OWN
    wanted = {
        f"{model}, layer {depth + 1}, head {index + 1}": partial(
            run_cell, model, depth, index, tokens, inputs, options.seed
        )
        for model, (count, heads) in MODELS.items()
        for depth, index in itertools.product(range(count), range(QUICK_HEADS if options.quick else heads))
    }
    path = _common.folder(options) / "models.json"
    cells = _common.run_cells(path, options, wanted)
    for cell in cells:
        if cell["head"] > 0:
            cell.pop("figure", None)  # not drawn
    figure(path.with_suffix(".png"), cells)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    code = _common.conclude(
        path, __doc__ or "", options, claims(cells, limit, times_own), {"models": versions, "cells": cells}
    )
    _common.discard_partial(path)
    return code


if __name__ == "__main__":
    sys.exit(main())
