"""The parameters of an attention head, validated once, and what follows from them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from gequiv import _checks
from gequiv._checks import Array
from gequiv.attention.linear_model import LinearModel
from gequiv.attention.score import ScoreLinearModel, score_linear_model
from gequiv.errors import ParameterError

if TYPE_CHECKING:
    from gequiv.laws.base import Law


@dataclass(frozen=True)
class Attention:
    r"""A head with random weights: A = row-softmax(β S), S = Q Kᵀ/√d_k with entries of variance one.

    Parameters
    ----------
    tokens : n_q, number of queries: rows of A.
    head_dim : d_k, columns of Q and K.
    beta : inverse temperature β > 0, 1 by default.
    keys : n_k, number of keys: columns of A. None means self-attention, n_k = tokens; a number means cross-attention
        with its own set of key tokens unless it equals ``tokens``.
    width : None for orthonormal tokens, for which Q and K are independent with iid N(0,1) entries (the setting of the
        theorem); a number d for Gaussian tokens X (rows of d iid N(0,1) entries) with Q = X W_Q, K = X W_K and weights
        of iid N(0,1/d) entries. Queries and keys share X in self-attention; in cross-attention each has its own.
    covariance : eigenvalues of the tokens' feature covariance Σ (x = Σ^{1/2} g), with equal weights; needs a width.
        S then has entries of variance (tr Σ/d)², so that tr Σ = d keeps the scores at variance one. Any number of
        eigenvalues describes the limit law; to draw matrices their number must divide the width.
    score : None for the exponential; else a score function f, a callable on arrays or a sympy expression in one symbol:
        A_ij = f(β S_ij)/Σ_k f(β S_ik), of which the exponential is the softmax. If the expression has a symbol named
        beta besides its variable, that is β and the variable is S_ij itself. f may vanish or be negative in places, but
        its mean under the Gaussian must be positive; where f < 0 the rows sum to one without being probabilities.

    Raises
    ------
    ParameterError : a parameter is of the wrong kind or out of range, or two of them contradict each other; or the
        score is not square-integrable, affine, or of a mean that is not positive.
    CertificationError : the moments of the score could not be computed to nine digits.

    Source: Hayase, Collins, Karakida 2025 (arXiv 2510.06685).
    """

    tokens: int
    head_dim: int
    beta: float = 1.0
    keys: int | None = None
    width: int | None = None
    covariance: tuple[float, ...] | None = None
    score: Any = None

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        put("tokens", _checks.positive_integer("tokens", self.tokens, minimum=2))
        put("head_dim", _checks.positive_integer("head_dim", self.head_dim))
        put("beta", _checks.positive_real("beta", self.beta))
        if self.keys is not None:
            put("keys", _checks.positive_integer("keys", self.keys, minimum=2))
        if self.width is not None:
            put("width", _checks.positive_integer("width", self.width))
        if self.covariance is not None:
            put("covariance", covariance_eigenvalues(self.covariance, self.width))
        if self.score is not None:
            self.linear_model()  # refuses what has none

    # -- sizes --------------------------------------------------------------------------------------

    @property
    def columns(self) -> int:
        """n_k, the number of keys, also where ``keys`` is None."""
        return self.tokens if self.keys is None else self.keys

    @property
    def aspect(self) -> Fraction:
        """n_q/n_k, rows over columns."""
        return Fraction(self.tokens, self.columns)

    @property
    def inner_dimensions(self) -> tuple[int, ...]:
        """Inner dimensions of the chain of Gaussian factors whose product the scores are: (d_k) or (d, d_k, d)."""
        if self.width is None:
            return (self.head_dim,)
        return (self.width, self.head_dim, self.width)

    # -- what follows -------------------------------------------------------------------------------

    @property
    def spread(self) -> float:
        """Standard deviation of the entries of S: tr Σ/d, one without a covariance."""
        return 1.0 if self.covariance is None else float(np.mean(self.covariance))

    def linear_model(self) -> LinearModel | ScoreLinearModel:
        """Coefficient and noise variance of the equivalent linear model, see `LinearModel` and `ScoreLinearModel`.

        They belong to scores of variance one. With a covariance, whose scores have standard deviation tr Σ/d, that is
        absorbed into the model's β.
        """
        if self.score is None:
            return LinearModel(self.beta * self.spread)
        return score_linear_model(self.score, self.beta, self.spread)

    def limit_law(self, method: str | None = None, *, rescaled: bool = False, covariance: Any = None) -> Law:
        r"""Limit law of the squared singular values of √n_k (A - 11ᵀ/n_k), as all dimensions grow in proportion.

        Parameters
        ----------
        method : "curve" for the rational curve (`gequiv.laws.GaussianChainPlusNoise`), "fixed-point" for the
            Stieltjes fixed-point equation (`gequiv.dyson.WeightedChainPlusNoise`); None takes the curve, or the fixed
            point where there is a covariance, which the curve cannot serve.
        rescaled : the law of the squared singular values over e^{β²} - 1 instead, of mean one; it exists for every β.
        covariance : eigenvalues of the tokens' covariance, in place of ``Attention.covariance``.

        Raises
        ------
        ParameterError : the method is unknown or cannot serve a covariance; or beta is above 26.64 and the law is not
            rescaled.
        CertificationError : the law could not be certified.
        """
        from gequiv.attention.limit import limit_law

        head = self if covariance is None else dataclasses.replace(self, covariance=covariance)
        return limit_law(head, method, rescaled=rescaled)

    def sample(self, rng: Any) -> Array:
        """One attention matrix, shape (tokens, keys); its rows sum to one.

        Parameters
        ----------
        rng : numpy Generator, or an int that seeds one.

        Raises
        ------
        ParameterError : rng is neither; or the number of covariance eigenvalues does not divide the width.
        """
        from gequiv.attention import ensemble

        return ensemble.draw_attention(self, _checks.generator(rng))

    def spectrum(self, rng: Any) -> Array:
        """Ascending squared singular values of √keys (A - 1/keys) of one draw, `tokens` of them.

        They are the eigenvalues of a Gram matrix: absolute errors are about 1e-15 of the largest. Where there are more
        tokens than keys, the surplus values are exact zeros.

        Raises
        ------
        ParameterError : as `sample`.
        """
        from gequiv.attention import ensemble

        return ensemble.squared_singular_values(ensemble.centred(self.sample(rng)))


def covariance_eigenvalues(values: Any, width: int | None) -> tuple[float, ...]:
    """Validated covariance eigenvalues, descending."""
    if width is None:
        raise ParameterError(
            "covariance needs a width: it describes Gaussian tokens, and with width=None the tokens are orthonormal"
        )
    array = _checks.real_array("covariance", values)
    if array.ndim != 1 or array.size == 0:
        raise ParameterError(f"covariance must be a non-empty list of eigenvalues; got an array of shape {array.shape}")
    if not np.isfinite(array).all() or (array < 0).any() or not (array > 0).any():
        raise ParameterError(
            f"covariance must hold finite eigenvalues of at least 0, one of them above 0; got {values!r}"
        )
    return tuple(float(v) for v in np.sort(array)[::-1])
