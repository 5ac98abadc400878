"""Drawing attention matrices and their linear model, and their squared singular values by the Gram route."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gequiv._checks import Array
from gequiv.attention.score import score_function
from gequiv.errors import CertificationError, ParameterError

if TYPE_CHECKING:
    from gequiv.attention.parameters import Attention


def draw_scores(head: Attention, rng: np.random.Generator) -> Array:
    """S = Q Kᵀ/√d_k, shape (tokens, keys), entries of variance (tr Σ/d)², one without a covariance."""
    if head.width is None:
        queries = rng.standard_normal((head.tokens, head.head_dim))
        keys = rng.standard_normal((head.columns, head.head_dim))
    else:
        root = _covariance_root(head, head.width)
        x_queries = rng.standard_normal((head.tokens, head.width)) * root
        x_keys = x_queries if head.columns == head.tokens else rng.standard_normal((head.columns, head.width)) * root
        scale = 1 / np.sqrt(head.width)
        queries = x_queries @ (rng.standard_normal((head.width, head.head_dim)) * scale)
        keys = x_keys @ (rng.standard_normal((head.width, head.head_dim)) * scale)
    scores: Array = queries @ keys.T
    scores /= np.sqrt(head.head_dim)
    return scores


def _covariance_root(head: Attention, width: int) -> Array | float:
    if head.covariance is None:
        return 1.0
    if width % len(head.covariance):
        raise ParameterError(
            f"covariance has {len(head.covariance)} eigenvalues, which do not divide the width {width}: to draw "
            "tokens, give a number of eigenvalues that does"
        )
    root: Array = np.sqrt(np.repeat(head.covariance, width // len(head.covariance)))
    return root


def softmax_rows(scores: Array, beta: float) -> Array:
    """Row softmax of beta * scores, overflow-safe; `scores` is overwritten."""
    scores -= scores.max(axis=1, keepdims=True)
    scores *= beta
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores


def draw_attention(head: Attention, rng: np.random.Generator) -> Array:
    """A = row-softmax(β S), or f(β S) over its row sums where the head has a score function."""
    scores = draw_scores(head, rng)
    if head.score is None:
        return softmax_rows(scores, head.beta)
    values: Array = np.array(score_function(head.score, head.beta)(scores))
    sums = values.sum(axis=1, keepdims=True)
    if not (np.isfinite(sums).all() and (sums > 0).all()):
        worst = float(sums[~(sums > 0)][0]) if (~(sums > 0)).any() else math.inf
        raise CertificationError(
            f"a row of f(beta S) sums to {worst!r} over {head.columns} keys, so that it cannot be normalised: take "
            "more keys, or a score that vanishes or turns negative less often"
        )
    values /= sums
    return values


def draw_linear_model(head: Attention, rng: np.random.Generator) -> Array:
    """Y = (c₁ S + σ Z)/√keys, the linear model at the head's own size; c₁ = β for the exponential."""
    model = head.linear_model()
    noise_deviation = np.sqrt(model.noise_variance)
    matrix = draw_scores(head, rng)
    matrix *= model.coefficient / head.spread
    matrix += noise_deviation * rng.standard_normal(matrix.shape)
    matrix /= np.sqrt(head.columns)
    return matrix


def centred(attention: Array) -> Array:
    """√keys (A - 1/keys); `attention` is overwritten."""
    keys = attention.shape[1]
    attention -= 1 / keys
    attention *= np.sqrt(keys)
    return attention


def squared_singular_values(matrix: Array) -> Array:
    """Ascending squared singular values, one per row, as eigenvalues of the smaller Gram matrix.

    Rounding may push the smallest ones below zero by about 1e-16 of the largest; they are set to zero. With more rows
    than columns, rows - columns exact zeros come first.
    """
    from scipy.linalg import eigvalsh

    rows, columns = matrix.shape
    gram = matrix @ matrix.T if rows <= columns else matrix.T @ matrix
    # the transpose is the same matrix in the order that LAPACK wants: no copy
    values = eigvalsh(gram.T, overwrite_a=True, check_finite=False)
    np.maximum(values, 0, out=values)
    return np.concatenate([np.zeros(max(0, rows - columns)), values])
