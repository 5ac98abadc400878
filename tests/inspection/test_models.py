"""Small models with random weights against the nested nulls; what they predict is known from their own scores."""

from __future__ import annotations

import json
import math
import os
from typing import Any

import numpy as np
import pytest

from gequiv.errors import ParameterError
from gequiv.inspection import inspect_model

os.environ.setdefault("HF_HUB_OFFLINE", "1")

VOCABULARY = 400
SIZES = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 96}
TEXT = {**SIZES, "vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
NULLS = ["sizes", "weights", "weights and tokens"]
SPREAD = 0.16
"""Standard deviation of weights that gives scores of order one at these sizes."""


@pytest.fixture(scope="module")
def transformers() -> Any:
    torch = pytest.importorskip("torch", reason="torch is an extra")
    torch.set_num_threads(1)
    return pytest.importorskip("transformers", minversion="5.0", reason="transformers is an extra")


def _model(transformers: Any, name: str, options: dict[str, Any]) -> Any:
    torch = pytest.importorskip("torch")
    torch.manual_seed(3)
    config = getattr(transformers, f"{name}Config")(**{**options, "initializer_range": SPREAD})
    return getattr(transformers, f"{name}Model")(config).eval()


def _tokens(inputs: int = 6, length: int = 96, *, words: int = VOCABULARY) -> Any:
    torch = pytest.importorskip("torch")
    ids = np.random.default_rng(5).integers(3, words, (inputs, length))
    return torch.tensor(ids)


@pytest.fixture(scope="module")
def bert(transformers):
    model = _model(transformers, "Bert", TEXT)
    return model, inspect_model(model, {"input_ids": _tokens()}, layers=[1], jobs=2)


def test_random_encoder_passes(bert):
    """Every head passes the last null, whose β is that of its scores: 96² entries of 16 directions, 10 %."""
    _, report = bert
    assert [(head.layer, head.head) for head in report.heads] == [(1, h) for h in range(4)]
    assert report.random == 4
    for head in report.heads:
        assert [null.name for null in head.nulls] == NULLS
        last = head.nulls[-1]
        assert last.passes
        assert head.explained_by in NULLS
        assert head.verdict.startswith("random: ")
        assert last.beta == pytest.approx(head.beta_scores, rel=0.15)
        assert 1 < last.directions <= 16
        assert (head.tokens, head.keys, head.mask, head.head_dim, head.width) == (96, 96, "none", 16, 64)
    json.dumps(report.to_dict(), allow_nan=False)


def test_nulls_of_the_weights_by_hand(bert):
    """β² = s² tr C_QQ C_KK, bias² = s² q̄ᵀ C_KK q̄ from the hidden states that the model itself returns."""
    model, report = bert
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        states = model(_tokens(), output_hidden_states=True).hidden_states[1].double().numpy()
    inner = model.encoder.layer[1].attention.self
    queries, keys = (
        states @ part.weight.detach().double().numpy().T + part.bias.detach().double().numpy()
        for part in (inner.query, inner.key)
    )
    centred = states - states.mean(axis=1, keepdims=True)
    size = np.mean(centred**2) * 96 / 95
    for head in range(4):
        part = slice(16 * head, 16 * head + 16)
        q, k = queries[..., part], keys[..., part]
        q0, k0 = ((x - x.mean(axis=1, keepdims=True)).reshape(-1, 16) for x in (q, k))
        count = len(q0) - 6
        found = {null.name: null for null in report.heads[head].nulls}
        covariance = (q0.T @ q0 / count) @ (k0.T @ k0 / count)
        assert found["weights and tokens"].beta == pytest.approx(math.sqrt(np.trace(covariance) / 16), rel=1e-3)
        mean = q[0].mean(axis=0)  # of the input that is inspected
        bias = math.sqrt(mean @ (k0.T @ k0 / count) @ mean / 16)
        assert found["weights and tokens"].column_bias == pytest.approx(bias, rel=1e-3)
        W_Q, W_K = (x.weight.detach().double().numpy()[part] for x in (inner.query, inner.key))
        isotropic = size * np.linalg.norm(W_Q.T @ W_K) / 4
        assert found["weights"].beta == pytest.approx(isotropic, rel=1e-3)


def test_tokens_of_few_words_are_not_random(transformers):
    """Eight words and hardly any positions: eight different rows and columns, whatever the weights."""
    model = _model(transformers, "Bert", TEXT)
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        model.embeddings.position_embeddings.weight *= 0.01
    report = inspect_model(model, {"input_ids": _tokens(words=11)}, layers=[0], jobs=2)
    assert report.random == 0
    assert {head.explained_by for head in report.heads} == {None}
    assert all(head.verdict.startswith("not random: ") for head in report.heads)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("GPT2", {"n_embd": 64, "n_head": 4, "n_layer": 1, "vocab_size": VOCABULARY}),
        ("Llama", {**TEXT, "num_key_value_heads": 2, "num_hidden_layers": 1}),
    ],
    ids=["GPT-2", "Llama, grouped and rotary"],
)
def test_random_decoders_pass(transformers, name, options):
    report = inspect_model(_model(transformers, name, options), _tokens(length=48), jobs=2)
    assert [head.mask for head in report.heads] == ["causal"] * 4
    assert report.random == 4
    for head in report.heads:
        assert head.nulls[-1].beta == pytest.approx(head.beta_scores, rel=0.35)  # scores of the later half alone


def test_padding_is_left_out(transformers):
    torch = pytest.importorskip("torch")
    mask = torch.ones(2, 40, dtype=torch.long)
    mask[0, 30:] = 0
    seen: list[tuple[int, int, str]] = []
    report = inspect_model(
        _model(transformers, "Bert", TEXT),
        {"input_ids": _tokens(2, 40), "attention_mask": mask},
        layers=[1],
        jobs=1,
        progress=lambda *told: seen.append(told),
    )
    assert {(head.layer, head.tokens, head.keys) for head in report.heads} == {(1, 30, 30)}
    assert {"layers", "laws", "random heads", "verdicts", "laws of weights", "laws of weights and tokens"} == {
        what for _, _, what in seen
    }
    assert all(0 < done <= total for done, total, _ in seen)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": [2]}, r"layers must be numbers below 2, at least one; got \[2\]"),
        ({"layers": [0, 2]}, r"layers must be numbers below 2, at least one; got \[0, 2\]"),
        ({"layers": []}, r"layers must be numbers below 2, at least one; got \[\]"),
        ({"layers": [-1]}, "layers must be an integer of at least 0; got -1"),
        ({"layers": 1}, r"layers must be None or numbers of layers, such as \[0, 3\]; got 1"),
        ({"level": 2}, "level must be"),
        ({"max_tokens": 9}, "max_tokens must be None unless inputs is a text; got 9"),
    ],
)
def test_refused(bert, options, message):
    model, _ = bert
    with pytest.raises(ParameterError, match=message):
        inspect_model(model, _tokens(2, 16), **options)


def test_text_needs_a_tokenizer(bert):
    model, _ = bert
    with pytest.raises(ParameterError, match="tokenizer must be given"):
        inspect_model(model, "some text")
