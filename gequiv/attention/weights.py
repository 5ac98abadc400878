r"""Heads of given weights: the inverse temperature and the inner weights that they amount to on Gaussian tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gequiv import _checks
from gequiv._checks import Array
from gequiv.errors import ParameterError

_TOLERANCE = 1e-10
_ROUNDING = 1e-13


@dataclass(frozen=True, eq=False, repr=False)
class HeadWeights:
    r"""Weights of a head and the law of its tokens: x = μ + Σ^{1/2} g, q = x W_Q + b_Q, k = x W_K + b_K, scores q·k s.

    With x̃ = x - μ and q̄ = μ W_Q + b_Q the scores are, up to a constant for each row, which softmax does not see,

    .. math:: \tilde x_i^T W_Q W_K^T \tilde x_j s + b_j, \qquad b_j = s\, \bar q \cdot W_K^T \tilde x_j ;

    b_K and the mean of the keys are in that constant. The singular values m_a of
    :math:`M = s \Sigma^{1/2} W_Q W_K^T \Sigma^{1/2}` say the rest: β² = Σ m_a² is the variance of the first part.

    Parameters
    ----------
    W_Q, W_K : shape (d, d_k).
    covariance : Σ: None for the identity, d variances, or a symmetric positive semidefinite matrix of shape (d, d).
        Negative eigenvalues of up to 1e-10 of the largest count as zero.
    mean : μ, shape (d,); None for zero.
    b_Q, b_K : shape (d_k,); None for zero.
    scale : s, above 0; None for 1/√d_k.

    Attributes
    ----------
    width, head_dim : d and d_k.
    beta : ||M||_F.
    inner_weights : m_a² d_k/β², descending, shape (d_k,): mean one; zeros beyond the d-th if d < d_k.
    column_bias_variance : s² q̄ᵀ W_Kᵀ Σ W_K q̄, the variance of b_j.
    query_mean : q̄, shape (d_k,).
    query_factor, key_factor : Lᵀ W_Q and Lᵀ W_K for a root L of Σ = L Lᵀ, shape (d, d_k).

    Raises
    ------
    ParameterError : an array is of a wrong shape or not finite; the covariance is not symmetric, not positive
        semidefinite or zero; or M vanishes, is only rounding beside the sizes of its factors, or leaves the floats.
    """

    W_Q: Array
    W_K: Array
    covariance: Array | None = None
    mean: Array | None = None
    b_Q: Array | None = None
    b_K: Array | None = None
    scale: float | None = None
    beta: float = field(init=False)
    inner_weights: Array = field(init=False)
    column_bias_variance: float = field(init=False)
    query_mean: Array = field(init=False)
    query_factor: Array = field(init=False)
    key_factor: Array = field(init=False)

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> Any:
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
            object.__setattr__(self, name, value)
            return value

        W_Q = put("W_Q", _finite("W_Q", self.W_Q))
        if W_Q.ndim != 2 or 0 in W_Q.shape:
            raise ParameterError(f"W_Q must be a matrix of shape (d, d_k); got an array of shape {W_Q.shape}")
        width, head_dim = W_Q.shape
        W_K = put("W_K", _finite("W_K", self.W_K, W_Q.shape, "that of W_Q"))
        mean = put("mean", _vector("mean", self.mean, width))
        b_Q = put("b_Q", _vector("b_Q", self.b_Q, head_dim))
        put("b_K", _vector("b_K", self.b_K, head_dim))
        scale = put(
            "scale", 1 / math.sqrt(head_dim) if self.scale is None else _checks.positive_real("scale", self.scale)
        )
        root = _root(put("covariance", _covariance(self.covariance, width)))
        with np.errstate(over="ignore", invalid="ignore"):
            query_factor, key_factor = (root[:, None] * w if root.ndim == 1 else root.T @ w for w in (W_Q, W_K))
            query_mean = mean @ W_Q + b_Q
            beta, inner_weights = _inner_weights(query_factor, key_factor, scale)
            column_bias = scale * (key_factor @ query_mean)
            variance = float(column_bias @ column_bias)
        if not math.isfinite(variance):
            raise ParameterError(
                f"mean and b_Q must give a column bias of finite variance; got {variance!r}, with scale={scale!r}"
            )
        put("beta", beta)
        put("inner_weights", inner_weights)
        put("column_bias_variance", variance)
        put("query_mean", query_mean)
        put("query_factor", query_factor)
        put("key_factor", key_factor)

    @property
    def width(self) -> int:
        """d."""
        return int(self.W_Q.shape[0])

    @property
    def head_dim(self) -> int:
        """d_k."""
        return int(self.W_Q.shape[1])

    def draw_factors(self, tokens: int, keys: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """L (tokens, d_k) and R (keys, d_k) of freshly drawn tokens: L Rᵀ are their scores over β.

        The scores are without the constant of each row, of variance 1 + column_bias_variance/β². Queries and keys share
        their tokens if tokens = keys.
        """
        own = rng.standard_normal((tokens, self.width))
        others = own if keys == tokens else rng.standard_normal((keys, self.width))
        assert self.scale is not None
        left = own @ self.query_factor
        left += self.query_mean
        left *= self.scale / self.beta
        return left, others @ self.key_factor

    def _content(self) -> tuple[Any, ...]:
        return (self.W_Q, self.W_K, self.covariance, self.mean, self.b_Q, self.b_K, self.scale)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HeadWeights):
            return NotImplemented
        return all(np.array_equal(a, b) for a, b in zip(self._content(), other._content(), strict=True))

    def __hash__(self) -> int:
        return hash((self.W_Q.shape, self.scale, self.beta, self.column_bias_variance))

    def __repr__(self) -> str:
        return f"HeadWeights(<d={self.width}, d_k={self.head_dim}>, scale={self.scale!r}, beta={self.beta!r})"


def _finite(name: str, value: Any, shape: tuple[int, ...] | None = None, whose: str = "") -> Array:
    array = _checks.real_array(name, value)
    if shape is not None and array.shape != shape:
        raise ParameterError(
            f"{name} must have shape {shape}{', ' if whose else ''}{whose}; got an array of shape {array.shape}"
        )
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ParameterError(f"{name} must be finite; got {float(array[where])!r} at {where}")
    return array


def _vector(name: str, value: Any, size: int) -> Array:
    return np.zeros(size) if value is None else _finite(name, value, (size,))


def _covariance(value: Any, width: int) -> Array:
    """Validated d variances, or a symmetric (d, d) matrix."""
    if value is None:
        return np.ones(width)
    array = _finite("covariance", value)
    if array.shape not in ((width,), (width, width)):
        raise ParameterError(
            f"covariance must be {width} variances or a matrix of shape {(width, width)}, {width} being the rows "
            f"of W_Q; got an array of shape {array.shape}"
        )
    if array.ndim == 2:
        skew = float(np.abs(array / 2 - array.T / 2).max()) * 2
        if skew > _TOLERANCE * float(np.abs(array).max()):
            raise ParameterError(f"covariance must be symmetric; got one that differs from its transpose by {skew!r}")
        array = array / 2 + array.T / 2
    return array


def _root(covariance: Array) -> Array:
    """The diagonal of L, or L itself, with L Lᵀ the covariance."""
    if covariance.ndim == 1:
        eigenvalues, vectors = covariance, None
    else:
        eigenvalues, vectors = np.linalg.eigh(covariance)
    largest = float(eigenvalues.max())
    if not largest > 0 or eigenvalues.min() < -_TOLERANCE * largest:
        raise ParameterError(
            "covariance must be positive semidefinite and not zero; got eigenvalues from "
            f"{float(eigenvalues.min())!r} to {largest!r}"
        )
    root: Array = np.sqrt(np.maximum(eigenvalues, 0))
    return root if vectors is None else vectors * root


def _inner_weights(query_factor: Array, key_factor: Array, scale: float) -> tuple[float, Array]:
    """||M||_F and the squared singular values of M over their mean, M = scale · query_factor · key_factorᵀ."""
    head_dim = query_factor.shape[1]
    sizes = [float(np.linalg.norm(factor)) for factor in (query_factor, key_factor)]
    values = np.zeros(head_dim)
    if all(math.isfinite(size) and size > 0 for size in sizes):
        _, r_query = np.linalg.qr(query_factor / sizes[0])
        _, r_key = np.linalg.qr(key_factor / sizes[1])
        found = np.linalg.svd(r_query @ r_key.T, compute_uv=False)
        values[: len(found)] = found
    norm = float(np.linalg.norm(values))
    beta = norm * scale * sizes[0] * sizes[1]
    if not norm > _ROUNDING or not beta > 0 or not math.isfinite(beta):
        raise ParameterError(
            "W_Q, W_K and covariance must give scores that vary, of standard deviation beta above 0 and finite; "
            f"got beta={beta!r}, {norm!r} of the product of the sizes of Σ^(1/2) W_Q, Σ^(1/2) W_K and scale"
        )
    return beta, head_dim * (values / norm) ** 2
