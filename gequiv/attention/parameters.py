"""The parameters of an attention head, validated once, and what follows from them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gequiv import _checks
from gequiv._checks import Array
from gequiv.attention.entries import normalised_entries
from gequiv.attention.linear_model import LinearModel
from gequiv.attention.masks import Visibility, normalised_bias, normalised_mask
from gequiv.attention.score import ScoreLinearModel, score_linear_model
from gequiv.attention.weights import HeadWeights
from gequiv.errors import ParameterError

if TYPE_CHECKING:
    from gequiv.laws.base import Law


@dataclass(frozen=True)
class Attention:
    r"""A head with random weights: A = row-softmax(β S + b), S = Q Kᵀ/√d_k with entries of variance one.

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
    mask : which keys j row i sees; the others have A_ij = 0. With i' = i + n_k - n_q (the ends of queries and keys
        are aligned): None or "none", all; "causal", j <= i'; "window:W", i' - W < j <= i'; "two-sided:W", |i' - j| < W;
        "block:B", i' and j in the same of consecutive blocks of B; a boolean array (tokens, keys); or a function that
        is called with arrays x = (i + 1/2)/n_q, a column, and y = (j + 1/2)/n_k, a row, and returns booleans. Every row
        must see a key, for which "causal", "window:W" and "block:B" need keys >= tokens.
    bias : b, added to β S before the softmax: None; an ALiBi slope above 0, b_ij = -slope |i' - j|; a function of an
        array of integers i' - j, those that the mask allows; or an array (tokens, keys). Only without a score function.
    weights : given weights in place of random ones; see `from_weights`, which makes such heads.
    token_entries, weight_entries : what the entries of X and of the weights are drawn from in place of N(0,1), scaled
        alike: "gaussian", "rademacher", "uniform" or "student:NU" with NU above 2. Entries of tokens need a width;
        without one, tokens are one-hot where weights are not Gaussian, so that Q and K have such entries. Draws alone
        depend on them: the laws are those of Gaussian entries, and whether they are universal is seen by simulation.

    Functions compare by identity, arrays by content.

    Raises
    ------
    ParameterError : a parameter is of the wrong kind or out of range, or two of them contradict each other; a row sees
        no key; or the score is not square-integrable, affine, or of a mean that is not positive.
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
    mask: Any = None
    bias: Any = None
    weights: HeadWeights | None = None
    token_entries: str = "gaussian"
    weight_entries: str = "gaussian"

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
        if self.weights is not None:
            refuse_conflicts(self, self.weights)
        for name in ("token_entries", "weight_entries"):
            put(name, normalised_entries(name, getattr(self, name)))
            if self.weights is not None and getattr(self, name) != "gaussian":
                raise ParameterError(
                    f'{name} must be "gaussian" with given weights, on Gaussian tokens; got {getattr(self, name)!r}'
                )
        if self.token_entries != "gaussian" and self.width is None:
            raise ParameterError(
                f'token_entries must be "gaussian" without a width, by which tokens are orthonormal; got '
                f"{self.token_entries!r}"
            )
        if self.score is not None:
            self.linear_model()  # refuses what has none
        put("mask", normalised_mask(self.mask, self.tokens, self.columns))
        put("bias", normalised_bias(self.bias, self.tokens, self.columns))
        if self.bias is not None and self.score is not None:
            raise ParameterError(
                f"bias is added to scores under the exponential and needs score=None; got bias={self.bias!r} with "
                f"score={self.score!r}"
            )
        visibility = Visibility(self.tokens, self.columns, self.mask, self.bias)
        if self.mask is not None:
            visibility.refuse_blind_rows()

    @classmethod
    def from_weights(
        cls,
        W_Q: Any,
        W_K: Any,
        *,
        tokens: int,
        keys: int | None = None,
        covariance: Any = None,
        mean: Any = None,
        b_Q: Any = None,
        b_K: Any = None,
        scale: float | None = None,
        mask: Any = None,
        bias: Any = None,
    ) -> Attention:
        r"""A head of given weights on random tokens: scores (x_i W_Q + b_Q)·(x_j W_K + b_K) scale, x ~ N(mean, Σ).

        Its ``beta`` is ||M||_F for M = scale Σ^{1/2} W_Q W_Kᵀ Σ^{1/2}, its ``head_dim`` and ``width`` are those of the
        weights, and each draw draws tokens only: one set for queries and keys in self-attention, two in
        cross-attention.

        Parameters
        ----------
        W_Q, W_K : real arrays of shape (d, d_k).
        tokens, keys, mask, bias : as for `Attention`.
        covariance : Σ: None for the identity, d variances, or a symmetric positive semidefinite matrix of shape (d, d).
        mean : of the tokens, shape (d,); None for zero.
        b_Q, b_K : shape (d_k,); None for zero. Softmax does not see b_K.
        scale : above 0; None for 1/√d_k.

        Raises
        ------
        ParameterError : an array is of a wrong shape or not finite; the covariance is not symmetric or not positive
            semidefinite; M vanishes; or as `Attention`.
        """
        weights = HeadWeights(W_Q, W_K, covariance, mean, b_Q, b_K, scale)
        return cls(
            tokens,
            weights.head_dim,
            weights.beta,
            keys=keys,
            width=weights.width,
            mask=mask,
            bias=bias,
            weights=weights,
        )

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

    @property
    def inner_weights(self) -> Array | None:
        """Squared singular values of M over their mean, d_k, descending (`from_weights`); None without weights."""
        return None if self.weights is None else self.weights.inner_weights

    @property
    def visibility(self) -> Visibility | None:
        """Which keys rows see and how a bias weights them; None if all rows see all keys alike."""
        visibility = Visibility(self.tokens, self.columns, self.mask, self.bias)
        return visibility if visibility.restricts else None

    def mean_attention(self) -> Array:
        """Ā, shape (tokens, keys): e^{b_ij} over its row sum where row i sees key j, 1/keys without mask and bias."""
        visibility = self.visibility
        if visibility is None:
            return np.full((self.tokens, self.columns), 1 / self.columns)
        return visibility.mean_rows(0, self.tokens)

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

        Of given weights the law takes the sizes and β alone.

        Raises
        ------
        ParameterError : the head has a mask or a bias; the method is unknown or cannot serve a covariance; or beta is
            above 26.64 and the law is not rescaled.
        CertificationError : the law could not be certified.
        """
        from gequiv.attention.limit import limit_law

        if self.visibility is not None:
            raise ParameterError(
                "limit_law is the law of unmasked attention and needs mask=None and bias=None; got "
                f"mask={self.mask!r}, bias={self.bias!r}. finite_law() serves masks and biases"
            )
        head = self if covariance is None else dataclasses.replace(self, covariance=covariance)
        return limit_law(head, method, rescaled=rescaled)

    def finite_law(
        self,
        *,
        order: int | None = None,
        norm_nodes: int | None = None,
        cells: int | None = None,
        inner_points: int | None = None,
    ) -> Law:
        r"""Law of the squared singular values of √n_k (A - Ā) at the head's own sizes, masks and biases included.

        No limit in the head width is taken. The exponential is resolved into spherical harmonics
        (`gequiv.attention.chaos`): degree ℓ acts as a product of Gaussian matrices of inner dimension D_ℓ up to
        ℓ = L, as noise beyond; norms of queries and keys and the energies of rows over finitely many keys are
        profiles (`gequiv.attention.row_energy`); a width enters through the spectrum of W_Q W_Kᵀ, expected or given
        (`gequiv.attention.inner_weights`); masks and biases through Ā (`gequiv.attention.masks`). As all sizes grow in
        proportion it tends to `limit_law`. Ā is uniform over the keys that a row may see, weighted by the bias.

        Parameters
        ----------
        order : L; None for the least that leaves a remainder like noise, see `gequiv.attention.chaos.choose_order`.
        norm_nodes : nodes of the norms of queries and of keys; None for the least that keep the moments of row norms.
        cells : cells of positions, with a mask or bias; None for a number that the accuracy asks for.
        inner_points : nodes of the weights of an inner space, 10 by default; only with a width or weights.

        Returns
        -------
        A law with the methods of every law and ``outliers()``; see `gequiv.attention.finite`.

        Raises
        ------
        ParameterError : a parameter is no positive integer; the head has a score function; or beta is above 26.64.
        CertificationError : the law could not be certified; other numbers of nodes may help.
        """
        from gequiv.attention.finite import finite_law

        return finite_law(self, order=order, norm_nodes=norm_nodes, cells=cells, inner_points=inner_points)

    def sample(self, rng: Any) -> Array:
        """One attention matrix, shape (tokens, keys); its rows sum to one, with exact zeros where the mask hides keys.

        Parameters
        ----------
        rng : numpy Generator, or an int that seeds one.

        Raises
        ------
        ParameterError : rng is neither; or the number of covariance eigenvalues does not divide the width.
        CertificationError : a row of the score function sums to nothing positive.
        """
        from gequiv.attention import ensemble

        return ensemble.draw_attention(self, _checks.generator(rng))

    def spectrum(
        self,
        rng: Any,
        centered: bool = True,
        *,
        method: Literal["gram", "svd"] | None = None,
        dtype: Literal["float64", "float32"] = "float64",
        device: Any = None,
    ) -> Array:
        """Ascending squared singular values of √keys (A - Ā) of one draw, `tokens` of them; Ā is `mean_attention`.

        Where there are more tokens than keys, the surplus values are exact zeros.

        Parameters
        ----------
        rng : as `sample`.
        centered : False for those of √keys A itself, of which the largest is near keys without a mask.
        method : "gram", eigenvalues of the smaller Gram matrix: absolute errors are about 1e-15 of the largest. "svd",
            squares of singular values, two to three times as slow: singular values have absolute errors of about 1e-15
            of the largest, so that their squares, which reach far below 1e-16 of the largest under a causal mask,
            have digits down to 1e-30 of it. None: "gram" without mask and bias, "svd" with either.
        dtype : "float64"; or "float32", which halves memory and about halves time: absolute errors are then some 1e-6
            of the largest by "gram", and of singular values within 1e-5 of the largest by "svd" or on a device.
        device : None for numpy; a device of torch, such as "cuda" or "cpu", on which all but the drawing of queries and
            keys is done (needs the extra: pip install 'gequiv[torch]').

        Memory: two matrices of tokens × keys at the peak, 16 tokens·keys bytes (half with float32), by "gram" with
        tokens ≤ keys; 0.27 GB at 4096 tokens, 1.1 GB at 8192. See `gequiv.simulation.spectral_cdf` for more tokens.

        Raises
        ------
        ParameterError : as `sample`; method, dtype or device is unknown or not to be had.
        CertificationError : as `sample`.
        """
        from gequiv.attention import ensemble

        return ensemble.draw_spectrum(
            self, _checks.generator(rng), centered=centered, method=method, dtype=dtype, device=device
        )


def refuse_conflicts(head: Attention, weights: HeadWeights) -> None:
    """Raise ParameterError where parameters contradict the weights."""
    if not isinstance(weights, HeadWeights):
        raise ParameterError(f"weights must be None or HeadWeights, see Attention.from_weights; got {weights!r}")
    due = {
        "head_dim": weights.head_dim,
        "beta": weights.beta,
        "width": weights.width,
        "covariance": None,
        "score": None,
    }
    for name, value in due.items():
        if getattr(head, name) != value:
            raise ParameterError(
                f"{name} must be {value!r} with these weights, which fix it; got {getattr(head, name)!r}. "
                "Attention.from_weights(W_Q, W_K, tokens=..., covariance=..., scale=...) sets it"
            )


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
