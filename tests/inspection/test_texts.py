"""Texts as inputs, with tokenizers and models of a few lines: a word is a token."""

from __future__ import annotations

import types

import pytest

from gequiv.errors import ParameterError
from gequiv.inspection.texts import MOST_TOKENS, longest_input, tokenised


class Words:
    """A tokenizer that cuts as fast ones of transformers do, with a mark before every input."""

    def __init__(self, model_max_length=int(1e30)):
        self.model_max_length = model_max_length

    def __call__(self, text, truncation, max_length, return_overflowing_tokens):
        assert truncation
        assert return_overflowing_tokens
        ids = [1 + k for k, _ in enumerate(text.split())]
        step = max_length - 1
        return {"input_ids": [[0, *ids[k : k + step]] for k in range(0, len(ids), step)] or [[0]]}


def model(longest=None):
    return types.SimpleNamespace(config=types.SimpleNamespace(max_position_embeddings=longest))


def test_inputs_have_one_length_and_all_marks():
    inputs = tokenised(Words(), "word " * 100, model(31))["input_ids"]
    assert [len(ids) for ids in inputs] == [31, 31, 31]  # ten words are left out
    assert [ids[:2] for ids in inputs] == [[0, 1], [0, 31], [0, 61]]


def test_short_text_is_one_input():
    assert tokenised(Words(), "two words", model(31))["input_ids"] == [[0, 1, 2]]


def test_number_of_inputs_is_limited():
    assert len(tokenised(Words(), "word " * 2000, model(21))["input_ids"]) == 16
    long = tokenised(Words(), "word " * 20000, model())["input_ids"]
    assert (len(long), len(long[0])) == (8192 // MOST_TOKENS, MOST_TOKENS)
    whole = tokenised(Words(), "word " * 20000, model(), 10000)["input_ids"]
    assert (len(whole), len(whole[0])) == (1, 10000)


def test_slow_tokenizers_give_one_input():
    def slow(text, **_):
        return {"input_ids": [0, 1, 2], "overflowing_tokens": [3, 4]}

    assert tokenised(slow, "any", model(3))["input_ids"] == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("of_model", "of_tokenizer", "longest"), [(None, int(1e30), None), (9, 7, 7), (7, int(1e30), 7)]
)
def test_longest_input(of_model, of_tokenizer, longest):
    assert longest_input(model(of_model), Words(of_tokenizer)) == longest


@pytest.mark.parametrize(
    ("tokenizer", "text", "most", "message"),
    [
        (None, "two words", None, "tokenizer must be given with a text as inputs; got None"),
        (Words(), "", None, "inputs must be at least two tokens long; got 1"),
        (Words(), "two words", 32, "max_tokens must be at most 31, which the model takes; got 32"),
        (Words(), "two words", 1, "max_tokens must be an integer of at least 2; got 1"),
    ],
)
def test_refused(tokenizer, text, most, message):
    with pytest.raises(ParameterError, match=f"^{message}"):
        tokenised(tokenizer, text, model(31), most)
