r"""What the attention layers of a transformers model do on given inputs, one layer at a time.

`walk` runs the model once under an attention function of its own, registered with transformers' AttentionInterface.
Every layer that calls it is handed to the visitor as a `LayerCapture` while the forward pass waits, and forgotten
afterwards: queries and keys are kept for one layer, attention matrices for no more than a block of rows.

What is recorded is the attention A of a head with queries q_i, keys k_j,

.. math:: A_{ij} = \frac{e^{s_{ij}}}{\sum_{j'} e^{s_{ij'}} + e^{\text{sink}}}, \qquad
          s_{ij} = c \tanh(\text{scale}\; q_i \cdot k_j / c) + \text{bias}_{ij},

over the visible j; without a softcap c the tanh is absent, without a sink its term. The rows of the first input are
compared with the eager function that transformers keeps beside the layer, so that a layer that does anything else to
its scores is refused.
"""

from __future__ import annotations

import importlib
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gequiv import _checks
from gequiv._checks import Array
from gequiv.errors import GequivError, ParameterError

_NAME = "gequiv"
_BLOCK = 2**21  # scores that are held at once
_EAGER_ROWS = 8
_EAGER_TOLERANCE = 1e-3  # of a row sum
# of the size of queries and keys; in models in float64 cosines are often float32
_TOLERANCE = {"float64": 1e-6, "float32": 1e-4, "float16": 5e-3, "bfloat16": 3e-2}
_CHECKED_TOKENS = 256
_KEY_STATES = ("key_value_states", "encoder_hidden_states", "cross_attention_states", "key_states", "key", "context")
_CACHES = ("cache", "past_key_values", "past_key_value", "layer_past", "use_cache")
_UNKNOWN = ("sinks", "indices", "block_indices", "head_mask")  # arguments that change the attention in other ways
_SUPPORTED = "a transformers model whose attention goes through its AttentionInterface (BERT, GPT-2, Llama, T5, ViT, …)"

Rerun = Callable[[Any, Any], tuple[NDArray[Any], NDArray[Any]]]


@dataclass(frozen=True, eq=False)
class HeadMaps:
    """Weights: queries are states W_Q + b_Q and keys states W_K + b_K, before any rotation by position.

    Shapes: W_Q (heads, d, d_k), b_Q (heads, d_k), W_K (kv_heads, d', d_k), b_K (kv_heads, d_k); d' is the width of the
    key states. Constant factors that the layer multiplies its queries or keys by are part of the weights.
    """

    W_Q: NDArray[Any]
    b_Q: NDArray[Any]
    W_K: NDArray[Any]
    b_K: NDArray[Any]


@dataclass(eq=False, repr=False)
class LayerCapture:
    """What one attention layer does. Arrays are float32, or float64 for a model in float64; read-only, some of them
    views of the model's own: copy what is to be kept after the visit.

    Attributes
    ----------
    name : path of the attention module, "encoder.layer.3.attention.self" for example.
    layer : running number of the visit, from 0.
    kind : "self" or "cross".
    queries : (inputs, heads, n_q, d_k), as they enter the scores: after rotation and after any norm.
    keys : (inputs, kv_heads, n_k, d_k). Query head h uses key head h // (heads / kv_heads).
    scale : scores are scale q·k.
    states : (inputs, n_q, d), what the attention module was given.
    real : (inputs, n_q), False for padding: in self-attention the tokens that some query sees, in cross-attention those
        of the last self-attention before it on as many queries.
    real_keys : (inputs, n_k), the keys that some query sees.
    visible : (inputs, n_q, n_k), the mask with the padding; None if everything is seen.
    bias : (inputs, 1 or heads, n_q, n_k), added to the scores, 0 where nothing is seen; None if there is none.
    key_states : (inputs, n_k, d'), in cross-attention alone.
    weights : the maps from states to queries and keys, found by asking the layer and certified on the states of the
        first input; None if it has none, and ``unmapped`` says why.
    rotary : whether the place of a token changes its query or its key.
    softcap : c, of scores c tanh(scale q·k / c); None without.
    sinks : (heads,), the logit of a further key of value zero that takes its share of every row; None without.
    """

    name: str
    layer: int
    kind: str
    queries: NDArray[Any]
    keys: NDArray[Any]
    scale: float
    states: NDArray[Any]
    real: NDArray[np.bool_]
    real_keys: NDArray[np.bool_]
    visible: NDArray[np.bool_] | None = None
    bias: NDArray[Any] | None = None
    key_states: NDArray[Any] | None = None
    weights: HeadMaps | None = None
    unmapped: str | None = None
    rotary: bool = False
    softcap: float | None = None
    sinks: NDArray[Any] | None = None
    _rerun: Rerun | None = None

    @property
    def heads(self) -> int:
        """Number of query heads."""
        return int(self.queries.shape[1])

    def __repr__(self) -> str:
        return f"LayerCapture({self.name!r}, {self.kind}, queries {self.queries.shape}, keys {self.keys.shape})"

    def attention(self, input: int, head: int) -> Array:
        """A of one input and one query head, shape (n_q, n_k), float64. Rows that see nothing are zero.

        Raises
        ------
        ParameterError : there is no such input or head.
        """
        inputs, heads = self.queries.shape[:2]
        input, head = _checks.index("input", input, inputs), _checks.index("head", head, heads)
        q = self.queries[input, head].astype(np.float64)
        k = self.keys[input, head * self.keys.shape[1] // heads].astype(np.float64)
        scores: Array = (q * self.scale) @ k.T
        if self.softcap is not None:
            scores /= self.softcap
            np.tanh(scores, out=scores)
            scores *= self.softcap
        if self.bias is not None:
            scores += self.bias[input, head % self.bias.shape[1]]
        if self.visible is not None:
            np.copyto(scores, -np.inf, where=~self.visible[input])
        sink = -np.inf if self.sinks is None else float(self.sinks[head])
        peak = np.maximum(scores.max(axis=1, keepdims=True), sink)
        peak[np.isneginf(peak)] = 0
        scores -= peak
        np.exp(scores, out=scores)
        total = scores.sum(axis=1, keepdims=True) + np.exp(sink - peak)
        scores /= np.where(total > 0, total, 1)
        return scores

    def redraw(self, states: Any, key_states: Any = None, *, input: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
        """Queries (heads, n_q, d_k) and keys (kv_heads, n_k, d_k) that the layer makes of other states.

        The layer's own code runs again in its own precision, with the positions of the given input.

        Parameters
        ----------
        states : (n_q, d) as in the capture; or (inputs, n_q, d), and the answers have the axis of the inputs too.
        key_states : likewise (n_k, d') or (inputs, n_k, d'), in cross-attention; None for the layer's own.
        input : whose positions the tokens have; of no matter for states of shape (inputs, n_q, d).

        Raises
        ------
        ParameterError : a shape differs from that of the capture, or the visit is over.
        """
        if self._rerun is None:
            raise ParameterError(f"redraw must be called while layer {self.layer} is visited; its visit is over")
        input = _checks.index("input", input, len(self.states))
        if key_states is not None:
            if self.key_states is None:
                raise ParameterError("key_states must be None in self-attention; got key states")
            key_states = _like("key_states", key_states, self.key_states)
        queries, keys = self._rerun(_like("states", states, self.states), key_states)
        return (queries[input], keys[input]) if np.ndim(states) == 2 else (queries, keys)


def walk(model: Any, inputs: Any, visit: Callable[[LayerCapture], None], *, weights: bool = True) -> int:
    """Runs the model once and hands every attention layer to ``visit``; returns how many layers it visited.

    Layers are visited in the order in which they run, shared ones as often as they run. Passed over are layers without
    softmax attention (state space, linear attention), and single ones in code of their own beside the others (a pooling
    head). The model is in evaluation mode and without gradients meanwhile; its attention implementation and its mode
    are then what they were, also after an error.

    Parameters
    ----------
    model : a transformers.PreTrainedModel, in any precision, on any device.
    inputs : what the model takes: a mapping of tensors, arrays or lists (input_ids, attention_mask, pixel_values, …),
        or token ids, of shape (inputs, n) or (n,).
    visit : called with the `LayerCapture` of each layer.
    weights : False leaves out the search for the weights, which sends d further tokens through each layer.

    Raises
    ------
    ParameterError : PyTorch or transformers is missing; the model is not one of transformers, or a part of it has its
        own attention code; a layer does more to its scores than is recorded here; or the inputs do not suit the model.
    """
    torch, transformers = _libraries()
    if not isinstance(model, transformers.PreTrainedModel):
        raise ParameterError(f"model must be {_SUPPORTED}; got a {type(model).__module__}.{type(model).__name__}")
    arguments = _arguments(torch, model, inputs)
    walker = _Walker(torch, model, visit, weights)
    with _attending(transformers, model), walker.hooked(), torch.no_grad():
        try:
            model(**arguments)
        except (TypeError, ValueError, IndexError, RuntimeError) as error:
            if walker.visiting or isinstance(error, GequivError):
                raise
            raise ParameterError(f"inputs must be what {type(model).__name__} takes; it says: {error}") from error
    if walker.count == 0:
        raise ParameterError(f"model must be {_SUPPORTED}; {type(model).__name__} called it for no layer")
    return walker.count


def _libraries() -> tuple[Any, Any]:
    try:
        torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    except ImportError as error:
        raise ParameterError(
            f"model needs PyTorch and transformers to run ({error}); they come with pip install 'gequiv[models]'"
        ) from error
    if not hasattr(transformers, "AttentionMaskInterface"):
        raise ParameterError(f"model needs transformers 5.0 or later to run; got version {transformers.__version__}")
    return torch, transformers


def _arguments(torch: Any, model: Any, inputs: Any) -> dict[str, Any]:
    """The arguments of the model: tensors with an axis of the inputs, on its device, and no cache."""
    if not isinstance(inputs, Mapping):
        inputs = {"input_ids": inputs}
    found: dict[str, Any] = {}
    for name, value in inputs.items():
        if value is None or isinstance(value, bool):
            found[name] = value
            continue
        try:
            tensor = torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ParameterError(
                f"inputs must be tensors by name, or token ids (inputs, n) or (n,), all padded to one length; "
                f"{name} is not a tensor: {error}"
            ) from error
        if tensor.ndim == 1 and name.endswith(("_ids", "_mask")):
            tensor = tensor[None]
        if tensor.numel() == 0:
            raise ParameterError(f"inputs must not be empty; got {name} of shape {tuple(tensor.shape)}")
        found[name] = tensor.to(model.device, model.dtype if tensor.is_floating_point() else None)
    if "use_cache" in inspect.signature(model.forward).parameters:
        found["use_cache"] = False
    return found


@contextmanager
def _attending(transformers: Any, model: Any) -> Iterator[None]:
    """The model under the attention function of this module; restores implementation and mode."""
    transformers.AttentionInterface.register(_NAME, _attend)
    transformers.AttentionMaskInterface.register(_NAME, _mask)
    models = [module for module in model.modules() if isinstance(module, transformers.PreTrainedModel)]
    owned = [module.config for module in model.modules() if hasattr(module, "config")]  # some layers keep their own
    configs = {id(config): config for own in owned for config in _configs(own)}
    before = [(config, config._attn_implementation_internal) for config in configs.values()]
    modes = [(module, module.training) for module in model.modules()]
    try:
        try:
            model.set_attn_implementation(_NAME)
        except ValueError as error:
            raise ParameterError(f"model must be {_SUPPORTED}; got {type(model).__name__}: {error}") from error
        stuck = sorted({type(module).__name__ for module in models if module.config._attn_implementation != _NAME})
        if stuck:
            where = f"in transformers {transformers.__version__}"
            raise ParameterError(
                f"model must be {_SUPPORTED}; {', '.join(stuck)} has attention code of its own {where}"
            )
        for config in configs.values():
            config._attn_implementation_internal = _NAME
        model.eval()
        yield
    finally:
        for config, implementation in before:
            config._attn_implementation_internal = implementation
        for module, training in modes:
            module.training = training


def _configs(config: Any) -> Iterator[Any]:
    """A configuration and its parts, those that say how to attend."""
    if hasattr(config, "_attn_implementation_internal"):
        yield config
    for name in getattr(config, "sub_configs", ()):
        part = getattr(config, name, None)
        if part is not None:
            yield from _configs(part)


def _mask(*args: Any, **kwargs: Any) -> Any:
    """The boolean mask (inputs, 1, n_q, n_k), True where a key is seen; None only if all of them are."""
    masking = importlib.import_module("transformers.masking_utils")
    return masking.sdpa_mask(*args, **{**kwargs, "allow_is_causal_skip": False})


@dataclass
class _Call:
    """A call of the attention function: tensors, before anything is converted."""

    query: Any
    key: Any
    value: Any
    scale: float
    visible: Any  # (1 or inputs, 1, n_q or 1, n_k), boolean; or None
    bias: Any  # (1 or inputs, 1 or heads, n_q or 1, n_k); or None
    softcap: float | None
    sinks: Any

    def rows(self, torch: Any, input: int, rows: slice) -> tuple[Any, Any]:
        """Attention (heads, rows, n_k) of some rows of one input, at least in float32, and its product with values."""
        groups = self.key.shape[1]
        dtype = torch.promote_types(self.query.dtype, torch.float32)
        q = self.query[input, :, rows].to(dtype)
        heads, n, width = q.shape
        scores = (q * self.scale).reshape(groups, -1, width) @ self.key[input].to(dtype).transpose(-1, -2)
        scores = scores.view(heads, n, -1)
        if self.softcap is not None:
            scores = scores.div_(self.softcap).tanh_().mul_(self.softcap)
        if self.bias is not None:
            scores += _part(self.bias, input, rows)
        if self.visible is not None:
            scores.masked_fill_(~_part(self.visible, input, rows), -math.inf)
        if self.sinks is not None:
            scores = torch.cat([scores, self.sinks.to(dtype)[:, None, None].expand(-1, n, 1)], dim=-1)
        attention = scores.softmax(dim=-1)
        if self.sinks is not None:
            attention = attention[..., :-1]
        if self.visible is not None:  # rows that see nothing
            attention = attention.nan_to_num_(nan=0.0)
        product = attention.reshape(groups, -1, attention.shape[-1]) @ self.value[input].to(dtype)
        return attention, product.view(heads, n, -1)


def _part(tensor: Any, input: int, rows: slice) -> Any:
    """The rows of one input of (1 or inputs, 1 or heads, 1 or n_q, n_k)."""
    own = tensor[input % tensor.shape[0]]
    return own if own.shape[-2] == 1 else own[..., rows, :]


_current: ContextVar[_Walker] = ContextVar("_current")


def _attend(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **kwargs: Any) -> tuple[Any, None]:
    """The attention function that the layers call; its output has shape (inputs, n_q, heads, d_v)."""
    return _current.get().attend(module, query, key, value, attention_mask, kwargs), None


class _Walker:
    """One walk: remembers what the running modules were given, and builds the captures."""

    def __init__(self, torch: Any, model: Any, visit: Callable[[LayerCapture], None], weights: bool) -> None:
        self.torch, self.visit, self.weights = torch, visit, weights
        self.names = {module: name for name, module in model.named_modules()}
        self.given: dict[Any, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self.calls: dict[Any, _Call] = {}
        self.redrawn: list[tuple[Any, Any]] | None = None  # queries and keys of a layer that runs again
        self.real: NDArray[np.bool_] | None = None
        self.count = 0
        self.visiting = False

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Hooks on all modules, since which of them attend is known when they do."""

        def before(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self.given[module] = (args, kwargs)

        def after(module: Any, args: Any, output: Any) -> None:
            given, call = self.given.pop(module), self.calls.pop(module, None)
            if call is not None:
                self.leave(_Layer(self, module, *given), call)

        handles = []
        token = _current.set(self)
        try:
            for module in self.names:
                handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
                handles.append(module.register_forward_hook(after))
            yield
        finally:
            _current.reset(token)
            for handle in handles:
                handle.remove()

    def refusal(self, module: Any, why: str) -> ParameterError:
        where = f"{self.names.get(module, '?')} ({type(module).__name__})"
        return ParameterError(f"model must have attention that is a softmax of scores alone; {where} {why}")

    def attend(self, module: Any, query: Any, key: Any, value: Any, mask: Any, kwargs: dict[str, Any]) -> Any:
        """Output of the attention; records the call, or only queries and keys if a layer runs again."""
        inputs, heads, n_q, width = query.shape
        if self.redrawn is not None:
            self.redrawn.append((query, key))
            return value.new_zeros(inputs, n_q, heads, value.shape[-1])
        if module not in self.given or module in self.calls:
            raise self.refusal(module, "attends more than once in its forward pass, or outside of it")
        if key.shape[0] != inputs or heads % key.shape[1] or key.shape[-1] != width:
            raise self.refusal(module, f"has queries of shape {tuple(query.shape)} and keys of {tuple(key.shape)}")
        if not (query.isfinite().all() and key.isfinite().all()):
            raise self.refusal(module, "has queries or keys that are not finite")
        for name in _UNKNOWN:
            if kwargs.get(name) is not None:
                raise self.refusal(module, f"changes its attention by {name}")
        scaling, softcap, sinks = (kwargs.get(name) for name in ("scaling", "softcap", "s_aux"))
        visible, bias = self.split(module, mask, key.shape[2])
        call = _Call(
            query, key, value, width**-0.5 if scaling is None else float(scaling), visible, bias, softcap, sinks
        )
        position_bias = kwargs.get("position_bias")
        if position_bias is not None:
            call.bias = position_bias if bias is None else position_bias + bias
        self.compare(module, call, bias, kwargs)
        self.calls[module] = call
        output = value.new_empty(inputs, n_q, heads, value.shape[-1])
        step = max(1, _BLOCK // (heads * key.shape[2]))
        for input in range(inputs):
            for start in range(0, n_q, step):
                rows = slice(start, start + step)
                output[input, rows] = call.rows(self.torch, input, rows)[1].transpose(0, 1)
        return output

    def split(self, module: Any, mask: Any, n_k: int) -> tuple[Any, Any]:
        """A mask (1 or inputs, 1 or heads, n_q, n_k) as what is visible, (1 or inputs, 1, …), and a finite bias."""
        if mask is None:
            return None, None
        if mask.ndim != 4:
            raise self.refusal(module, f"has a mask of shape {tuple(mask.shape)}")
        mask = mask[..., :n_k]
        bias = None
        if mask.dtype == self.torch.bool:
            visible = mask
        else:
            visible = mask > self.torch.finfo(mask.dtype).min / 2
            bias = mask.masked_fill(~visible, 0)
            bias = bias if bias.any() else None
        if visible.shape[1] > 1 and not (visible == visible[:, :1]).all():
            raise self.refusal(module, "masks its heads differently")
        visible = visible[:, :1]
        return None if visible.all() else visible, bias

    def compare(self, module: Any, call: _Call, bias: Any, kwargs: dict[str, Any]) -> None:
        """Refuses a layer whose own eager function, under the mask alone, finds other rows in the first input."""
        torch = self.torch
        eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
        if eager is None:
            return
        dtype = torch.promote_types(call.query.dtype, torch.float32)
        step = -(-call.query.shape[2] // _EAGER_ROWS)
        rows = slice(step - 1, None, step)
        query, key, value = call.query[:1, :, rows].to(dtype), call.key[:1].to(dtype), call.value[:1].to(dtype)
        own = call.rows(torch, 0, rows)[0]
        mask: Any = None
        if bias is not None or call.visible is not None:
            mask = own.new_zeros(1, 1, query.shape[2], key.shape[2])
        if bias is not None:
            mask = mask + _part(bias, 0, rows)
        if call.visible is not None:
            mask = mask.masked_fill(~_part(call.visible, 0, rows), torch.finfo(torch.float32).min)
        named = {**kwargs, "scaling": call.scale, "dropout": 0.0}
        if named.get("position_bias") is not None:
            named["position_bias"] = _part(named["position_bias"], 0, rows)[None]
        theirs = eager(module, query, key, value, mask, **named)[1]
        if theirs is None:
            return
        off = float((theirs[0] - own).abs().sum(dim=-1).where(own.sum(dim=-1) > 0, 0).max())
        if not off <= _EAGER_TOLERANCE:
            raise self.refusal(module, f"attends otherwise: a row differs from its eager function's by {off:.2g}")

    def leave(self, layer: _Layer, call: _Call) -> None:
        """Builds the capture of a layer that has run, and visits it."""
        torch = self.torch
        inputs, _, n_q, _ = call.query.shape
        n_k = call.key.shape[2]
        crossed = layer.key_name is not None
        visible = None if call.visible is None else _numpy(torch, call.visible[:, 0].expand(inputs, n_q, n_k))
        real, real_keys = np.ones((inputs, n_q), dtype=bool), np.ones((inputs, n_k), dtype=bool)
        if visible is not None:
            real_keys = np.any(visible, axis=1, out=real_keys)
        if not crossed and n_q == n_k:
            real = self.real = real_keys
        elif self.real is not None and self.real.shape == real.shape:
            real = self.real
        capture = LayerCapture(
            name=self.names[layer.module],
            layer=self.count,
            kind="cross" if crossed else "self",
            queries=_numpy(torch, call.query),
            keys=_numpy(torch, call.key),
            scale=call.scale,
            states=layer.given(layer.name, inputs, n_q),
            real=real,
            real_keys=real_keys,
            visible=visible,
            bias=None if call.bias is None else _numpy(torch, call.bias.expand(inputs, -1, n_q, n_k)),
            key_states=layer.given(layer.key_name, inputs, n_k) if crossed else None,
            softcap=call.softcap,
            sinks=None if call.sinks is None else _numpy(torch, call.sinks),
            _rerun=layer.run,
        )
        tolerance = _TOLERANCE[str(call.query.dtype).removeprefix("torch.")]
        capture.rotary = layer.rotary(capture, tolerance)
        capture.weights, capture.unmapped = layer.maps(capture, tolerance) if self.weights else (None, "not asked for")
        self.count += 1
        self.visiting = True
        self.visit(capture)
        self.visiting = False
        capture._rerun = None


class _Layer:
    """An attention module with the arguments that it was called with."""

    def __init__(self, walker: _Walker, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.walker, self.module, self.torch = walker, module, walker.torch
        self.signature = inspect.signature(module.forward)
        bound = self.signature.bind(*args, **kwargs).arguments
        kinds = self.signature.parameters.values()
        extra = bound.pop(next((item.name for item in kinds if item.kind is item.VAR_KEYWORD), ""), {})
        self.arguments: dict[str, Any] = {**bound, **extra}
        tensors = {name: value for name, value in self.arguments.items() if self.torch.is_tensor(value)}
        self.name = next((name for name in tensors if tensors[name].is_floating_point() and tensors[name].ndim > 1), "")
        if not self.name:
            raise walker.refusal(module, "is given no states")
        others = [name for name in _KEY_STATES if name in tensors and name != self.name]
        self.same = [name for name in others if tensors[name] is tensors[self.name]]
        self.key_name = next((name for name in others if name not in self.same), None)

    def given(self, name: str | None, inputs: int, tokens: int) -> NDArray[Any]:
        """An argument as (inputs, tokens, width)."""
        assert name is not None
        tensor = self.arguments[name]
        if tensor.numel() % (inputs * tokens):
            shape = tuple(tensor.shape)
            raise self.walker.refusal(
                self.module, f"is given {name} of shape {shape} for {inputs} inputs of {tokens} tokens"
            )
        return _numpy(self.torch, tensor.reshape(inputs, tokens, -1))

    def run(self, states: Any, key_states: Any = None, *, neutral: bool = False) -> tuple[NDArray[Any], NDArray[Any]]:
        """Queries and keys (inputs, heads, tokens, d_k) of other states; neutral: with all tokens at position 0."""
        changed: dict[str, Any] = {name: None for name in _CACHES if name in self.arguments}
        for name, value in ((self.name, states), (self.key_name, key_states)):
            if value is not None and name is not None:
                own = self.arguments[name]
                changed[name] = self.torch.as_tensor(np.array(value, order="C")).to(own).reshape(own.shape)
        changed |= dict.fromkeys(self.same, changed[self.name])
        if neutral:
            changed |= self.unplaced()
        walker = self.walker
        before, walker.redrawn = walker.redrawn, []
        token = _current.set(walker)
        try:
            with self.torch.no_grad():
                self.module.forward(**{**self.arguments, **changed})
            ((query, key),) = walker.redrawn
        finally:
            _current.reset(token)
            walker.redrawn = before
        return _numpy(self.torch, query), _numpy(self.torch, key)

    def unplaced(self) -> dict[str, Any]:
        """Arguments that put every token at position 0: sines of 0, cosines that are sizes, so that factors stay."""
        torch, found = self.torch, {}
        for name, value in self.arguments.items():
            if isinstance(value, tuple) and len(value) == 2 and all(torch.is_tensor(part) for part in value):
                size = torch.hypot(*value)
                found[name] = (size, torch.zeros_like(size))
            elif torch.is_tensor(value) and value.is_complex():
                found[name] = value.abs().to(value.dtype)
            elif torch.is_tensor(value) and name == "position_ids":
                found[name] = torch.zeros_like(value)
        return found

    def rotary(self, capture: LayerCapture, tolerance: float) -> bool:
        """Whether equal states at different places have different queries or keys."""
        equal = []
        for given in _sides(capture):
            largest = given[0, np.linalg.norm(given[0], axis=-1).argmax()]
            equal.append(np.broadcast_to(largest, given.shape))
        return any(_off(answer[0], answer[0, :, :1]) > tolerance for answer in self.run(*equal))

    def maps(self, capture: LayerCapture, tolerance: float) -> tuple[HeadMaps | None, str | None]:
        """The affine maps of the layer, or why it has none.

        Positions are set to 0. The maps must give the queries and keys of the first input's states there, and these
        must have the norms of the captured ones: then all that positions do is to rotate them.
        """
        sides = _sides(capture)
        level = self.run(*sides, neutral=True)
        maps = self.probe(sides)
        named = ("queries", capture.queries, sides[0]), ("keys", capture.keys, sides[-1])
        for (name, placed, given), answer, (weight, offset) in zip(named, level, maps, strict=True):
            count = given.shape[1]
            some = np.linspace(0, count - 1, min(count, _CHECKED_TOKENS)).astype(int)
            off = _off(given[0, some].astype(np.float64) @ weight + offset[:, None], answer[0][:, some])
            if not off <= tolerance:
                norms = ", ".join(part for part, _ in self.module.named_children() if "norm" in part)
                cause = f" ({norms} in {type(self.module).__name__})" if norms else ""
                return (
                    None,
                    f"{name} are not an affine map of the states{cause}: the nearest is off by {off:.2g} of their size",
                )
            off = _off(*(np.linalg.norm(part[0][:, some], axis=-1) for part in (placed, answer)))
            if not off <= tolerance:
                return (
                    None,
                    f"positions do more to the {name} than rotate them: norms differ by {off:.2g} of their size",
                )
        (W_Q, b_Q), (W_K, b_K) = maps
        return HeadMaps(W_Q, b_Q, W_K, b_K), None

    def probe(self, sides: list[NDArray[Any]]) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """(W, b) of queries and of keys: the answers to 0 and to multiples of unit vectors, one a token."""
        offsets = [answer[0, :, 0] for answer in self.run(*map(np.zeros_like, sides), neutral=True)]
        which = (0, len(sides) - 1)
        weights = [np.empty((sides[k].shape[-1], *b.shape), b.dtype) for k, b in zip(which, offsets, strict=True)]
        steps = [2.0 ** round(math.log2(max(float(np.linalg.norm(given[0], axis=-1).max()), 1e-6))) for given in sides]
        rooms = [given.shape[0] * given.shape[1] for given in sides]
        for turn in range(max(-(-given.shape[-1] // room) for given, room in zip(sides, rooms, strict=True))):
            asked = [np.zeros((room, given.shape[-1])) for room, given in zip(rooms, sides, strict=True)]
            for states, room, step in zip(asked, rooms, steps, strict=True):
                np.fill_diagonal(states[:, turn * room :], step)
            answers = self.run(*asked, neutral=True)
            for k, weight, offset, answer in zip(which, weights, offsets, answers, strict=True):
                own = weight[turn * rooms[k] : (turn + 1) * rooms[k]]
                flat = answer.transpose(0, 2, 1, 3).reshape(rooms[k], *offset.shape)
                own[:] = (flat[: len(own)] - offset) / steps[k]
        return [(weight.transpose(1, 0, 2), offset) for weight, offset in zip(weights, offsets, strict=True)]


def _sides(capture: LayerCapture) -> list[NDArray[Any]]:
    """The states that queries are made of, then those of the keys if they are others."""
    return [given for given in (capture.states, capture.key_states) if given is not None]


def _off(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    """Largest ||found - wanted||/||wanted|| over the heads, the first axis."""
    apart, size = (np.linalg.norm(part.reshape(len(part), -1), axis=1) for part in (found - wanted, wanted + 0 * found))
    return float((apart / np.maximum(size, np.finfo(np.float32).tiny)).max())


def _numpy(torch: Any, tensor: Any) -> NDArray[Any]:
    """Read-only, on the CPU; boolean, float64, or float32 for every other precision."""
    if tensor.dtype not in (torch.bool, torch.float64):
        tensor = tensor.to(torch.float32)
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    array.setflags(write=False)
    return array


def _like(name: str, value: Any, other: NDArray[Any]) -> NDArray[Any]:
    """`value` with the shape of `other`, or without its first axis, along which it is then repeated."""
    array = _checks.real_array(name, value)
    if array.shape not in (other.shape, other.shape[1:]):
        raise ParameterError(f"{name} must have shape {other.shape} or {other.shape[1:]}; got {array.shape}")
    return np.broadcast_to(array, other.shape)
