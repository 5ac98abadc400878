"""Captures against the eager code of transformers, which is not gequiv's, on small models with random weights."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from gequiv.errors import ParameterError
from gequiv.inspection.capture import LayerCapture, walk

os.environ.setdefault("HF_HUB_OFFLINE", "1")

VOCABULARY, LENGTH, IMAGE = 97, 12, 32
SIZES = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48}
TEXT = {**SIZES, "vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = {**TEXT, "num_key_value_heads": 2}
CODERS = {
    f"{side}_{name}": value
    for side in ("encoder", "decoder")
    for name, value in {"attention_heads": 4, "layers": 2, "ffn_dim": 48}.items()
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "BERT": ("Bert", TEXT),
    "DistilBERT": ("DistilBert", {"dim": 32, "n_heads": 4, "n_layers": 2, "hidden_dim": 48, "vocab_size": VOCABULARY}),
    "GPT-2": ("GPT2", {"n_embd": 32, "n_head": 4, "n_layer": 2, "vocab_size": VOCABULARY}),
    "OPT": ("OPT", {**TEXT, "ffn_dim": 48, "word_embed_proj_dim": 32}),
    "Llama": ("Llama", GROUPED),
    "Mistral, window": ("Mistral", {**GROUPED, "sliding_window": 5}),
    "Qwen3": ("Qwen3", {**GROUPED, "head_dim": 8}),
    "GPT-NeoX, partly rotary": ("GPTNeoX", {**TEXT, "rotary_pct": 0.5}),
    "Phi-3": ("Phi3", GROUPED),
    "Gemma 2": ("Gemma2", {**GROUPED, "head_dim": 8, "sliding_window": 5, "attn_logit_softcapping": 0.5}),
    "gpt-oss": (
        "GptOss",
        {**GROUPED, "head_dim": 8, "sliding_window": 5, "num_local_experts": 2, "num_experts_per_tok": 1},
    ),
    "BART": ("Bart", {**CODERS, "d_model": 32, "vocab_size": VOCABULARY, "pad_token_id": 0, "eos_token_id": 2}),
    "T5": ("T5", {"d_model": 32, "d_kv": 8, "num_heads": 4, "num_layers": 2, "d_ff": 48, "vocab_size": VOCABULARY}),
    "ViT": ("ViT", {**SIZES, "image_size": IMAGE, "patch_size": 8}),
}
ROTARY = {"Llama", "Mistral, window", "Qwen3", "GPT-NeoX, partly rotary", "Phi-3", "Gemma 2", "gpt-oss"}


@pytest.fixture(scope="module")
def transformers() -> Any:
    torch = pytest.importorskip("torch", reason="torch is an extra")
    torch.set_num_threads(1)
    return pytest.importorskip("transformers", minversion="5.0", reason="transformers is an extra")


@dataclass
class Case:
    """A model in evaluation mode and inputs for it: two of them, padded on the left and on the right."""

    model: Any
    inputs: dict[str, Any]

    def eager(self) -> Any:
        """The outputs of transformers' eager code, with attention."""
        import torch

        before = self.model.config._attn_implementation
        self.model.set_attn_implementation("eager")
        with torch.no_grad():
            outputs = self.model(**self.inputs, output_attentions=True)
        self.model.set_attn_implementation(before)
        return outputs


def case(transformers: Any, name: str, **changes: Any) -> Case:
    import torch

    prefix, sizes = MODELS[name]
    torch.manual_seed(7)
    model = getattr(transformers, f"{prefix}Model")(getattr(transformers, f"{prefix}Config")(**{**sizes, **changes}))
    for parameter in model.parameters():  # biases, sinks and tables too, and scores that are not all alike
        parameter.data += 0.1 * torch.randn_like(parameter)
    if name == "ViT":
        return Case(model.eval(), {"pixel_values": torch.randn(2, 3, IMAGE, IMAGE)})
    tokens = torch.randint(3, VOCABULARY, (2, LENGTH))
    real = torch.ones_like(tokens)
    real[0, :3] = real[1, -2:] = 0
    inputs = {"input_ids": tokens, "attention_mask": real}
    if name in ("BART", "T5"):
        inputs["decoder_input_ids"] = tokens[:, :7]
    return Case(model.eval(), inputs)


def captures(case: Case) -> list[tuple[LayerCapture, np.ndarray]]:
    """Every capture with the attention (inputs, heads, n_q, n_k) of all its heads."""
    found = []

    def visit(capture: LayerCapture) -> None:
        inputs = len(capture.queries)
        heads = [[capture.attention(i, h) for h in range(capture.heads)] for i in range(inputs)]
        found.append((capture, np.array(heads)))

    assert walk(case.model, case.inputs, visit) == len(found)
    return found


def attentions(outputs: Any) -> list[np.ndarray]:
    """In the order of a walk."""
    if outputs.get("attentions") is not None:
        tensors = list(outputs.attentions)
    else:
        decoder = zip(outputs.decoder_attentions, outputs.cross_attentions, strict=True)
        tensors = [*outputs.encoder_attentions, *(tensor for pair in decoder for tensor in pair)]
    return [tensor.double().numpy() for tensor in tensors]


def known(transformers: Any, name: str) -> None:
    if name == "T5" and not transformers.T5Model._can_set_attn_implementation():
        pytest.skip("T5 has eager code of its own in this version of transformers")


@pytest.mark.parametrize("name", MODELS)
def test_attention_is_that_of_the_eager_code(transformers: Any, name: str) -> None:
    known(transformers, name)
    made = case(transformers, name)
    outputs = made.eager()
    found = captures(made)
    expected = attentions(outputs)
    assert len(found) == len(expected)
    for (capture, attention), theirs in zip(found, expected, strict=True):
        seen = np.ones(attention.shape[:3], dtype=bool)
        if capture.visible is not None:
            seen &= capture.visible.any(axis=-1)[:, None]
        np.testing.assert_allclose(attention[seen], theirs[seen], rtol=0, atol=2e-6)
        assert not attention[~seen].any()
        sums = attention[seen].sum(axis=-1)
        if name == "gpt-oss":
            assert sums.max() < 0.99
        else:
            np.testing.assert_allclose(sums, 1, rtol=1e-12)
    assert (found[0][0].softcap == 0.5) is (name == "Gemma 2")
    assert (found[0][0].bias is not None) is (name == "T5")
    assert (found[0][0].visible is None) is (name == "ViT")


@pytest.mark.parametrize("name", MODELS)
def test_the_walk_leaves_model_and_outputs_as_they_are(transformers: Any, name: str) -> None:
    import torch

    known(transformers, name)
    made = case(transformers, name)
    if name == "Gemma 2":  # without it some versions leave out the softcap
        made.model.set_attn_implementation("eager")
    before = made.model.config._attn_implementation
    with torch.no_grad():
        normal = made.model(**made.inputs).last_hidden_state
    made.model.train()
    made.model.get_submodule(next(name for name, _ in made.model.named_children())).eval()
    modes = [module.training for module in made.model.modules()]
    kept = []
    handle = made.model.register_forward_hook(lambda module, args, output: kept.append(output.last_hidden_state))
    walk(made.model, made.inputs, lambda capture: None)
    handle.remove()
    assert made.model.config._attn_implementation == before
    assert [module.training for module in made.model.modules()] == modes
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in made.model.modules())
    real = torch.ones(normal.shape[:2], dtype=torch.bool)
    if name not in ("BART", "T5", "ViT"):
        real = made.inputs["attention_mask"].bool()
    assert not kept[0].requires_grad
    torch.testing.assert_close(kept[0][real], normal[real], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_queries_keys_and_weights(transformers: Any, name: str) -> None:
    known(transformers, name)
    made = case(transformers, name)
    kinds = []

    def visit(capture: LayerCapture) -> None:
        kinds.append(capture.kind)
        assert made.model.get_submodule(capture.name) is not None
        assert capture.layer == len(kinds) - 1
        queries, keys = capture.redraw(capture.states, capture.key_states)
        np.testing.assert_array_equal(queries, capture.queries)
        np.testing.assert_array_equal(keys, capture.keys)
        own = None if capture.key_states is None else capture.key_states[1]
        queries, keys = capture.redraw(capture.states[1], own, input=1)
        np.testing.assert_array_equal(queries, capture.queries[1])
        np.testing.assert_array_equal(keys, capture.keys[1])
        assert capture.rotary is (name in ROTARY)
        if name == "Qwen3":
            assert capture.weights is None
            assert "q_norm, k_norm" in str(capture.unmapped)
            return
        weights, given = capture.weights, capture.states if capture.key_states is None else capture.key_states
        assert weights is not None
        assert capture.unmapped is None
        queries = np.einsum("ind,hdk->ihnk", capture.states, weights.W_Q) + weights.b_Q[:, None]
        keys = np.einsum("ind,hdk->ihnk", given, weights.W_K) + weights.b_K[:, None]
        if capture.rotary:
            queries, keys = (np.linalg.norm(part, axis=-1) for part in (queries, keys))
            placed = [np.linalg.norm(part, axis=-1) for part in (capture.queries, capture.keys)]
        else:
            placed = [capture.queries, capture.keys]
        np.testing.assert_allclose(queries, placed[0], rtol=0, atol=1e-4 * np.abs(queries).max())
        np.testing.assert_allclose(keys, placed[1], rtol=0, atol=1e-4 * np.abs(keys).max())

    walk(made.model, made.inputs, visit)
    assert kinds == (["self", "self", *["self", "cross"] * 2] if name in ("BART", "T5") else ["self"] * 2)


def test_weights_are_the_parameters(transformers: Any) -> None:
    found = captures(case(transformers, "BERT"))
    made = case(transformers, "BERT")
    for capture, _ in found:
        module = made.model.get_submodule(capture.name)
        assert capture.weights is not None
        for linear, weight, offset in (
            (module.query, capture.weights.W_Q, capture.weights.b_Q),
            (module.key, capture.weights.W_K, capture.weights.b_K),
        ):
            split = linear.weight.detach().numpy().reshape(4, 8, 32).transpose(0, 2, 1)
            np.testing.assert_allclose(weight, split, rtol=0, atol=1e-6)
            np.testing.assert_allclose(offset, linear.bias.detach().numpy().reshape(4, 8), rtol=0, atol=1e-6)
    made = case(transformers, "Llama")
    for capture, _ in captures(made):
        module = made.model.get_submodule(capture.name)
        assert capture.weights is not None
        split = module.k_proj.weight.detach().numpy().reshape(2, 8, 32).transpose(0, 2, 1)
        np.testing.assert_allclose(capture.weights.W_K, split, rtol=0, atol=1e-6)


def test_factors_of_the_queries_are_in_the_weights(transformers: Any) -> None:
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "rope_theta": 1e4}
    made = case(transformers, "Llama", rope_scaling=rope)
    capture, _ = captures(made)[0]
    assert capture.weights is not None
    split = made.model.get_submodule(capture.name).q_proj.weight.detach().numpy().reshape(4, 8, 32).transpose(0, 2, 1)
    factor = 0.1 * np.log(4) + 1  # of YaRN, on cosines and sines
    np.testing.assert_allclose(capture.weights.W_Q, factor * split, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["BERT", "GPT-2", "Llama", "ViT"])
@pytest.mark.parametrize("precision", ["bfloat16", "float16", "float64"])
def test_other_precisions(transformers: Any, name: str, precision: str) -> None:
    import torch

    made = case(transformers, name)
    made.model.to(getattr(torch, precision))
    made.inputs = {
        key: value.to(getattr(torch, precision)) if value.is_floating_point() else value
        for key, value in made.inputs.items()
    }
    if precision == "float64":  # under it the eager code makes NaN of rows that see nothing
        made.inputs.pop("attention_mask", None)
    expected = attentions(made.eager())
    atol = {"bfloat16": 2e-2, "float16": 4e-3, "float64": 1e-6}[precision]  # the eager softmax is in float32
    for (capture, attention), theirs in zip(captures(made), expected, strict=True):
        assert capture.queries.dtype == capture.states.dtype == ("float64" if precision == "float64" else "float32")
        seen = np.ones(attention.shape[:3], dtype=bool)
        if capture.visible is not None:
            seen &= capture.visible.any(axis=-1)[:, None]
        np.testing.assert_allclose(attention[seen], theirs[seen], rtol=0, atol=atol)
        assert capture.weights is not None, capture.unmapped


def test_padding(transformers: Any) -> None:
    for name in ("BERT", "Llama", "Mistral, window", "BART"):
        made = case(transformers, name)
        padding = made.inputs["attention_mask"].bool().numpy()
        for capture, _ in captures(made):
            encoder = capture.states.shape[1] == LENGTH
            np.testing.assert_array_equal(capture.real, padding if encoder else np.ones((2, 7), dtype=bool))
            encoder |= capture.kind == "cross"
            np.testing.assert_array_equal(capture.real_keys, padding if encoder else np.ones((2, 7), dtype=bool))


def test_positions_of_each_input(transformers: Any) -> None:
    import torch

    made = case(transformers, "Llama")
    made.inputs["position_ids"] = torch.stack([torch.arange(LENGTH), 5 + torch.arange(LENGTH)])

    def visit(capture: LayerCapture) -> None:
        states = np.random.default_rng(3).standard_normal((LENGTH, 32))
        first, second = (capture.redraw(states, input=input)[0] for input in (0, 1))
        np.testing.assert_allclose(np.linalg.norm(first, axis=-1), np.linalg.norm(second, axis=-1), rtol=1e-5)
        assert np.abs(first - second).max() > 0.1 * np.abs(first).max()
        both = capture.redraw(np.array([states, states]))[0]
        np.testing.assert_array_equal(both, [first, second])

    walk(made.model, made.inputs, visit)


def test_cross_attention_of_other_key_states(transformers: Any) -> None:
    made = case(transformers, "BART")
    visited = []

    def visit(capture: LayerCapture) -> None:
        if capture.kind == "self":
            with pytest.raises(ParameterError, match="key_states must be None"):
                capture.redraw(capture.states, capture.states)
            return
        visited.append(capture.name)
        assert capture.key_states is not None
        queries, keys = capture.redraw(capture.states[0], -capture.key_states[0])
        weights = capture.weights
        assert weights is not None
        np.testing.assert_array_equal(queries, capture.queries[0])
        expected = -np.einsum("nd,hdk->hnk", capture.key_states[0], weights.W_K) + weights.b_K[:, None]
        np.testing.assert_allclose(keys, expected, rtol=0, atol=1e-5)

    walk(made.model, made.inputs, visit)
    assert visited == ["decoder.layers.0.encoder_attn", "decoder.layers.1.encoder_attn"]


def test_a_model_of_models(transformers: Any) -> None:
    """The layers of its encoder keep a configuration that the encoder itself no longer has."""
    config = transformers.BertConfig(**TEXT)
    crossing = transformers.BertConfig(**TEXT, is_decoder=True, add_cross_attention=True)
    model = transformers.EncoderDecoderModel(
        encoder=transformers.BertModel(config), decoder=transformers.BertLMHeadModel(crossing)
    )
    tokens = case(transformers, "BERT").inputs["input_ids"]
    kinds = []
    walk(model, {"input_ids": tokens, "decoder_input_ids": tokens[:, :5]}, lambda capture: kinds.append(capture.kind))
    assert kinds == ["self", "self", *["self", "cross"] * 2]
    implementations = {module.config._attn_implementation for module in model.modules() if hasattr(module, "config")}
    assert implementations == {"sdpa"}


def test_inputs_of_every_kind(transformers: Any) -> None:
    made = case(transformers, "BERT")
    tokens = made.inputs["input_ids"]
    found = []
    for inputs in (tokens[:1], tokens[0], tokens[0].tolist(), tokens[:1].numpy(), {"input_ids": tokens[0].tolist()}):
        walk(made.model, inputs, lambda capture: found.append(np.array(capture.queries)), weights=False)
    assert len(found) == 10
    for layer in (0, 1):
        for queries in found[layer::2]:
            np.testing.assert_array_equal(queries, found[layer])


def test_after_an_error_everything_is_as_before(transformers: Any) -> None:
    made = case(transformers, "BERT")
    made.model.train()
    kept = []

    def visit(capture: LayerCapture) -> None:
        kept.append(capture)
        raise ValueError("from the visitor")

    with pytest.raises(ValueError, match=r"^from the visitor$"):
        walk(made.model, made.inputs, visit)
    assert made.model.training
    assert made.model.config._attn_implementation == "sdpa"
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in made.model.modules())


def test_redraw_is_for_the_visit(transformers: Any) -> None:
    made = case(transformers, "BERT")
    kept = []

    def visit(capture: LayerCapture) -> None:
        kept.append(capture)
        with pytest.raises(ParameterError, match=r"states must have shape \(2, 12, 32\) or \(12, 32\); got \(3, 32\)"):
            capture.redraw(np.zeros((3, 32)))
        with pytest.raises(ParameterError, match="input must be below 2; got 2"):
            capture.redraw(capture.states, input=2)

    walk(made.model, made.inputs, visit, weights=False)
    assert kept[0].unmapped == "not asked for"
    with pytest.raises(ParameterError, match="redraw must be called while layer 0 is visited"):
        kept[0].redraw(kept[0].states)


def test_what_is_refused(transformers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def refused(model: Any, inputs: Any, match: str) -> None:
        with pytest.raises(ParameterError, match=match):
            walk(model, inputs, lambda capture: None)

    bloom = transformers.BloomModel(transformers.BloomConfig(hidden_size=32, n_head=4, n_layer=1, vocab_size=9))
    refused(bloom, [1, 2, 3], "AttentionInterface .*; BloomModel has attention code of its own")
    assert bloom.config._attn_implementation != "gequiv"
    mamba = transformers.MambaModel(transformers.MambaConfig(hidden_size=32, num_hidden_layers=1, vocab_size=9))
    refused(mamba, [1, 2, 3], "MambaModel called it for no layer")
    refused("bert-base", [1], "model must be a transformers model .*; got a builtins.str")
    made = case(transformers, "BERT")
    refused(made.model, [VOCABULARY + 5], "inputs must be what BertModel takes")
    refused(made.model, {"pixels": [1, 2]}, "inputs must be what BertModel takes")
    refused(made.model, [[1, 2], [3]], "padded to one length; input_ids is not a tensor")
    refused(made.model, [], r"inputs must not be empty; got input_ids of shape \(1, 0\)")
    llama = case(transformers, "Llama")
    with torch.no_grad():
        llama.model.layers[0].self_attn.k_proj.weight[3] = np.inf
    refused(llama.model, llama.inputs, r"layers.0.self_attn \(LlamaAttention\) has queries or keys that are not finite")
    llama = case(transformers, "Llama")
    from transformers.models.llama import modeling_llama

    theirs = modeling_llama.eager_attention_forward

    def warmer(*args: Any, scaling: float, **kwargs: Any) -> Any:
        return theirs(*args, scaling=scaling / 2, **kwargs)

    monkeypatch.setattr(modeling_llama, "eager_attention_forward", warmer)
    refused(llama.model, llama.inputs, r"layers.0.self_attn \(LlamaAttention\) attends otherwise")


MEMORY = """
import resource, sys
from gequiv.inspection.capture import walk
assert not {"torch", "transformers"} & set(sys.modules)
import torch
from transformers import LlamaConfig, LlamaModel
torch.set_num_threads(1)
sizes = dict(hidden_size=256, intermediate_size=64, vocab_size=99, num_hidden_layers=1)
model = LlamaModel(LlamaConfig(**sizes, num_attention_heads=32, num_key_value_heads=8))
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
walk(model, torch.arange(64) % 99, lambda capture: capture.attention(0, 5))
before = peak()
walk(model, torch.arange(1536) % 99, lambda capture: capture.attention(0, 5))
print((peak() - before) * 1024)
"""


def test_memory_and_late_imports(transformers: Any) -> None:
    """32 heads of 1536 tokens are 0.30 GB in float32; the one head that the visitor asks for is 0.02 GB in float64."""
    pytest.importorskip("resource", reason="peak memory is asked of POSIX")
    answer = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    assert int(answer.stdout) < 1.5e8


def test_attention_without_a_model() -> None:
    """Two query heads on one key head, a mask with an empty row, a bias, a softcap and sinks, by the formula."""
    rng = np.random.default_rng(11)
    queries, keys = rng.standard_normal((1, 2, 3, 4)), rng.standard_normal((1, 1, 5, 4))
    visible = np.array([[[True] * 5, [False] * 5, [True, False, True, True, False]]])
    bias, sinks = rng.standard_normal((1, 2, 3, 5)), np.array([0.3, -1.0])
    capture = LayerCapture(
        name="made",
        layer=0,
        kind="cross",
        queries=queries,
        keys=keys,
        scale=0.7,
        states=np.zeros((1, 3, 2)),
        real=np.ones((1, 3), dtype=bool),
        real_keys=np.ones((1, 5), dtype=bool),
        visible=visible,
        bias=bias,
        softcap=1.5,
        sinks=sinks,
    )
    for head in range(2):
        powers = np.exp(1.5 * np.tanh(0.7 * queries[0, head] @ keys[0, 0].T / 1.5) + bias[0, head]) * visible[0]
        expected = powers / (powers.sum(axis=1, keepdims=True) + np.exp(sinks[head]))
        np.testing.assert_allclose(capture.attention(0, head), expected, rtol=1e-12)
    with pytest.raises(ParameterError, match="head must be below 2; got 2"):
        capture.attention(0, 2)
    assert "made" in repr(capture)


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_a_missing_extra(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ParameterError, match=r"pip install 'gequiv\[models\]'"):
        walk(object(), [1, 2], lambda capture: None)
