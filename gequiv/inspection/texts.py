"""A text as a model takes it."""

from __future__ import annotations

from typing import Any

from gequiv import _checks
from gequiv.errors import ParameterError

MOST_TOKENS = 1024
"""Tokens of an input, where nothing is said."""
_MOST_INPUTS = 16
_ALL_TOKENS = 8192  # of all inputs, where one has fewer
_UNLIMITED = 10**9  # tokenizers without a limit give a huge one


def text_config(model: Any) -> Any:
    """The configuration of the part that reads text."""
    return model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config


def longest_input(model: Any, tokenizer: Any) -> int | None:
    """Number of tokens that model and tokenizer take at most; None without a limit."""
    limits = (
        getattr(text_config(model), "max_position_embeddings", None),
        getattr(tokenizer, "model_max_length", None),
    )
    known = [int(limit) for limit in limits if isinstance(limit, int) and 2 <= limit < _UNLIMITED]
    return min(known, default=None)


def tokenised(tokenizer: Any, text: str, model: Any, max_tokens: int | None = None) -> dict[str, Any]:
    """A text as inputs of one length, with the special tokens that the model expects.

    Parameters
    ----------
    max_tokens : length of an input; by default the greatest that model and tokenizer take, up to 1024. A text that is
        longer makes up to 16 inputs of together up to 8192 tokens, the last one of another length left out.

    Raises
    ------
    ParameterError : there is no tokenizer; the model takes fewer tokens; or the text has fewer than two.
    """
    if tokenizer is None:
        raise ParameterError("tokenizer must be given with a text as inputs; got None")
    longest = longest_input(model, tokenizer)
    if max_tokens is None:
        length = min(MOST_TOKENS, longest or MOST_TOKENS)
    else:
        length = _checks.positive_integer("max_tokens", max_tokens, minimum=2)
        if longest is not None and length > longest:
            raise ParameterError(f"max_tokens must be at most {longest}, which the model takes; got {length}")
    cut = tokenizer(text, truncation=True, max_length=length, return_overflowing_tokens=True)["input_ids"]
    inputs = [list(ids) for ids in (cut if cut and not isinstance(cut[0], int) else [cut])]
    if len(inputs[0]) < 2:
        raise ParameterError(f"inputs must be at least two tokens long; got {len(inputs[0])}")
    most = min(_MOST_INPUTS, max(1, _ALL_TOKENS // len(inputs[0])))
    return {"input_ids": [ids for ids in inputs if len(ids) == len(inputs[0])][:most]}
