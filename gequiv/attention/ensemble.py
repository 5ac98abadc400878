"""Drawing attention matrices and their linear model, and their squared singular values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from gequiv._checks import Array
from gequiv.attention.score import score_function
from gequiv.errors import CertificationError, ParameterError

if TYPE_CHECKING:
    from gequiv.attention.masks import Visibility
    from gequiv.attention.parameters import Attention


def draw_scores(head: Attention, rng: np.random.Generator) -> Array:
    """S = Q Kᵀ/√d_k, shape (tokens, keys), entries of variance (tr Σ/d)², one without a covariance.

    Of a head with weights, the scores of the weights over β without the constants of the rows: see
    `HeadWeights.draw_scores`.
    """
    if head.weights is not None:
        return head.weights.draw_scores(head.tokens, head.columns, rng)
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


def masked_softmax_rows(scores: Array, beta: float, visibility: Visibility) -> Array:
    """Row softmax of beta * scores + bias over the keys that each row sees; safe as `softmax_rows`, as is the bias."""
    with np.errstate(over="ignore"):  # of differences from the largest, on the way to e^-inf = 0
        for start, stop in visibility.blocks():
            weights = visibility.log_weights(start, stop)
            rows = scores[start:stop]
            np.copyto(rows, -np.inf, where=np.isneginf(weights))
            rows -= rows.max(axis=1, keepdims=True)
            rows *= beta
            if visibility.bias is not None:
                weights -= weights.max(axis=1, keepdims=True)
                rows += weights
                rows -= rows.max(axis=1, keepdims=True)
            np.exp(rows, out=rows)
            rows /= rows.sum(axis=1, keepdims=True)
    return scores


def draw_attention(head: Attention, rng: np.random.Generator) -> Array:
    """A = row-softmax(β S + bias), or f(β S) over its row sums with a score function; zero where a mask hides keys."""
    scores = draw_scores(head, rng)
    visibility = head.visibility
    if head.score is None:
        if visibility is None:
            return softmax_rows(scores, head.beta)
        return masked_softmax_rows(scores, head.beta, visibility)
    values: Array = np.array(score_function(head.score, head.beta)(scores))
    if visibility is not None:
        for start, stop in visibility.blocks():
            values[start:stop][~visibility.visible(start, stop)] = 0
    sums = values.sum(axis=1, keepdims=True)
    if not (np.isfinite(sums).all() and (sums > 0).all()):
        row = int(np.argmin((sums > 0) & np.isfinite(sums)))
        seen = head.columns if visibility is None else int(visibility.visible(row, row + 1).sum())
        raise CertificationError(
            f"a row of f(beta S) sums to {float(sums[row, 0])!r} over {seen} keys, so that it cannot be normalised: "
            "take more keys, or a score that vanishes or turns negative less often"
        )
    values /= sums
    return values


def draw_linear_model(head: Attention, rng: np.random.Generator) -> Array:
    """Y = √keys Ā ∘ (c₁ S + σ Z), the linear model at the head's own size; c₁ = β for the exponential.

    Without mask and bias, where Ā is uniform, that is (c₁ S + σ Z)/√keys.
    """
    model = head.linear_model()
    noise_deviation = np.sqrt(model.noise_variance)
    matrix = draw_scores(head, rng)
    matrix *= model.coefficient / head.spread
    matrix += noise_deviation * rng.standard_normal(matrix.shape)
    visibility = head.visibility
    if visibility is None:
        matrix /= np.sqrt(head.columns)
        return matrix
    for start, stop in visibility.blocks():
        matrix[start:stop] *= visibility.mean_rows(start, stop)
    matrix *= np.sqrt(head.columns)
    return matrix


def centred(attention: Array, visibility: Visibility | None = None) -> Array:
    """√keys (A - Ā), Ā = 1/keys without a visibility; `attention` is overwritten."""
    keys = attention.shape[1]
    if visibility is None:
        attention -= 1 / keys
    else:
        for start, stop in visibility.blocks():
            attention[start:stop] -= visibility.mean_rows(start, stop)
    attention *= np.sqrt(keys)
    return attention


def squared_singular_values(matrix: Array, method: Literal["gram", "svd"] = "gram") -> Array:
    """Ascending squared singular values, one per row.

    "gram" takes the eigenvalues of the smaller Gram matrix. Rounding may push the smallest ones below zero by about
    1e-16 of the largest; they are set to zero. "svd" squares singular values by LAPACK, which takes two to three times
    as long and has digits of squares down to about 1e-30 of the largest; it overwrites the matrix. With more rows than
    columns, rows - columns exact zeros come first.
    """
    from scipy.linalg import eigvalsh, svdvals

    rows, columns = matrix.shape
    surplus = np.zeros(max(0, rows - columns))
    if method == "svd":
        singular: Array = svdvals(matrix.T, overwrite_a=True, check_finite=False)
        return np.concatenate([surplus, singular[::-1] ** 2])
    gram = matrix @ matrix.T if rows <= columns else matrix.T @ matrix
    # the transpose is the same matrix in the order that LAPACK wants: no copy
    values = eigvalsh(gram.T, overwrite_a=True, check_finite=False)
    np.maximum(values, 0, out=values)
    return np.concatenate([surplus, values])
