"""Drawing attention matrices and their linear model, and their squared singular values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from gequiv._checks import Array
from gequiv.attention.entries import draw_entries
from gequiv.attention.masks import row_blocks
from gequiv.attention.score import score_function
from gequiv.errors import CertificationError, ParameterError

if TYPE_CHECKING:
    from gequiv.attention.masks import Visibility
    from gequiv.attention.parameters import Attention

Reals = NDArray[Any]
TILE = 2**18
"""Entries of a block of rows that stays in the cache while it is worked on."""


def draw_factors(head: Attention, rng: np.random.Generator) -> tuple[Array, Array]:
    """L (tokens, d_k) and R (keys, d_k) with S = L Rᵀ = Q Kᵀ/√d_k, entries of variance (tr Σ/d)².

    Of a head with weights, L Rᵀ are the scores of the weights over β without the constants of the rows: see
    `HeadWeights.draw_factors`.
    """
    if head.weights is not None:
        return head.weights.draw_factors(head.tokens, head.columns, rng)
    if head.width is None:
        queries = draw_entries(head.weight_entries, (head.tokens, head.head_dim), rng)
        keys = draw_entries(head.weight_entries, (head.columns, head.head_dim), rng)
    else:
        root = _covariance_root(head, head.width)
        x_queries = draw_entries(head.token_entries, (head.tokens, head.width), rng) * root
        x_keys = x_queries
        if head.columns != head.tokens:
            x_keys = draw_entries(head.token_entries, (head.columns, head.width), rng) * root
        scale = 1 / np.sqrt(head.width)
        queries = x_queries @ (draw_entries(head.weight_entries, (head.width, head.head_dim), rng) * scale)
        keys = x_keys @ (draw_entries(head.weight_entries, (head.width, head.head_dim), rng) * scale)
    queries /= np.sqrt(head.head_dim)
    return queries, keys


def draw_scores(head: Attention, rng: np.random.Generator) -> Array:
    """S = L Rᵀ of `draw_factors`, shape (tokens, keys)."""
    left, right = draw_factors(head, rng)
    scores: Array = left @ right.T
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


def softmax_rows(scores: Reals, beta: float, log_weights: Array | None = None) -> Array:
    """Row softmax of beta * scores + log_weights, in place; returns the logarithms of the row sums of its exponentials.

    Safe against overflow, also where both are huge. Keys of log weight -inf get exact zeros.
    """
    if log_weights is None:
        top = scores.max(axis=1, keepdims=True)
        scores -= top
        scores *= beta
        shift = beta * top[:, 0].astype(np.float64)
    else:
        with np.errstate(over="ignore", invalid="ignore"):  # of differences from the largest, on the way to e^-inf = 0
            np.copyto(scores, -np.inf, where=np.isneginf(log_weights))
            top = scores.max(axis=1, keepdims=True)
            scores -= top
            scores *= beta
            highest = log_weights.max(axis=1, keepdims=True)
            scores += (log_weights - highest).astype(scores.dtype, copy=False)
            rest = scores.max(axis=1, keepdims=True)
            scores -= rest
            shift = (beta * top.astype(np.float64) + highest + rest)[:, 0]
    np.exp(scores, out=scores)
    sums = scores.sum(axis=1, keepdims=True)
    scores /= sums
    log_sums: Array = shift + np.log(sums[:, 0].astype(np.float64))
    return log_sums


class RowKernel:
    """Turns rows of scores S into rows of A, in place, whatever the head's mask, bias or score function.

    Parameters
    ----------
    head : the head.
    """

    def __init__(self, head: Attention) -> None:
        self.head = head
        self.visibility = head.visibility
        self.function = None if head.score is None else score_function(head.score, head.beta)

    def __call__(self, scores: Reals, start: int) -> None:
        """Rows start, … of A in place of those of S.

        Raises
        ------
        CertificationError : a row of the score function sums to nothing positive.
        """
        stop = start + len(scores)
        if self.function is None:
            weights = None if self.visibility is None else self.visibility.log_weights(start, stop)
            softmax_rows(scores, self.head.beta, weights)
            return
        scores[...] = self.function(scores.astype(np.float64, copy=False))
        if self.visibility is not None:
            scores[~self.visibility.visible(start, stop)] = 0
        sums: Array = scores.sum(axis=1, keepdims=True, dtype=np.float64)
        if not (np.isfinite(sums).all() and (sums > 0).all()):
            row = int(np.argmin((sums > 0) & np.isfinite(sums)))
            seen = scores.shape[1]
            if self.visibility is not None:
                seen = int(self.visibility.visible(start + row, start + row + 1).sum())
            raise CertificationError(
                f"a row of f(beta S) sums to {float(sums[row, 0])!r} over {seen} keys and cannot be normalised: "
                "take more keys, or a score that vanishes or turns negative less often"
            )
        scores /= sums.astype(scores.dtype, copy=False)


def draw_attention(head: Attention, rng: np.random.Generator, dtype: str = "float64") -> Reals:
    """A = row-softmax(β S + bias), or f(β S) over its row sums with a score function; zero where a mask hides keys."""
    left, right = draw_factors(head, rng)
    matrix: Reals = left.astype(dtype, copy=False) @ right.astype(dtype, copy=False).T
    kernel = RowKernel(head)
    for start, stop in row_blocks(head.tokens, head.columns, TILE):
        kernel(matrix[start:stop], start)
    return matrix


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


def centred(attention: Reals, visibility: Visibility | None = None) -> Reals:
    """√keys (A - Ā), Ā = 1/keys without a visibility; `attention` is overwritten."""
    rows, keys = attention.shape
    for start, stop in row_blocks(rows, keys, TILE):
        attention[start:stop] -= 1 / keys if visibility is None else visibility.mean_rows(start, stop)
        attention[start:stop] *= np.sqrt(keys).astype(attention.dtype)
    return attention


def draw_spectrum(
    head: Attention,
    rng: np.random.Generator,
    *,
    centered: bool = True,
    method: Any = None,
    dtype: Any = "float64",
    device: Any = None,
) -> Array:
    """Ascending squared singular values of √keys (A - Ā), or of √keys A; see `Attention.spectrum`."""
    if method not in (None, "gram", "svd"):
        raise ParameterError(f'method must be "gram", "svd" or None; got {method!r}')
    check_dtype(dtype)
    chosen: Literal["gram", "svd"] = method or ("gram" if head.visibility is None else "svd")
    if device is not None:
        from gequiv.attention.matrix_free import AttentionOperator

        operator = AttentionOperator(head, rng, centered=centered, dtype=dtype, device=device)
        return operator.squared_singular_values(chosen)
    matrix = draw_attention(head, rng, dtype)
    if centered:
        centred(matrix, head.visibility)
    else:
        matrix *= np.sqrt(head.columns).astype(dtype)
    return squared_singular_values(matrix, chosen)


def check_dtype(dtype: Any) -> None:
    """Raise ParameterError unless `dtype` is "float64" or "float32"."""
    if not (isinstance(dtype, str) and dtype in ("float64", "float32")):
        raise ParameterError(f'dtype must be "float64" or "float32"; got {dtype!r}')


def squared_singular_values(matrix: Reals, method: Literal["gram", "svd"] = "gram") -> Array:
    """Ascending squared singular values, one per row, as float64.

    "gram" takes the eigenvalues of the smaller Gram matrix. Rounding may push the smallest ones below zero by about
    1e-16 of the largest (1e-7 with float32); they are set to zero. "svd" squares singular values by LAPACK, which takes
    two to three times as long and has digits of squares down to about 1e-30 of the largest; it overwrites the matrix.
    With more rows than columns, rows - columns exact zeros come first.
    """
    from scipy.linalg import eigvalsh, svdvals

    rows, columns = matrix.shape
    surplus = np.zeros(max(0, rows - columns))
    if method == "svd":
        singular: Array = svdvals(matrix.T, overwrite_a=True, check_finite=False).astype(np.float64)
        return np.concatenate([surplus, singular[::-1] ** 2])
    gram = matrix @ matrix.T if rows <= columns else matrix.T @ matrix
    # the transpose is the same matrix in the order that LAPACK wants: no copy
    if gram.dtype == np.float32:
        values = _single_eigenvalues(gram.T)
    else:
        values = eigvalsh(gram.T, overwrite_a=True, check_finite=False)
    np.maximum(values, 0, out=values)
    return np.concatenate([surplus, values])


def _single_eigenvalues(gram: Reals) -> Array:
    """Ascending eigenvalues of a symmetric float32 matrix, which is overwritten.

    It is brought to tridiagonal form in float32, where nearly all of the time goes; the iteration on it in float64.
    In float32 (LAPACK's sterf) it would add errors of 1e-5 of the largest, sixty times those of all else.
    """
    from scipy.linalg import eigvalsh_tridiagonal, lapack

    work, _ = lapack.ssytrd_lwork(len(gram), lower=1)
    _, diagonal, beside, _, _ = lapack.ssytrd(gram, lower=1, lwork=int(work), overwrite_a=1)
    values: Array = eigvalsh_tridiagonal(diagonal.astype(np.float64), beside.astype(np.float64), lapack_driver="sterf")
    return values
