"""The limit law of an attention head: which law serves which parameters."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from gequiv.attention.linear_model import LinearModel, exact_parts
from gequiv.attention.score import ScoreLinearModel
from gequiv.errors import ParameterError
from gequiv.laws import GaussianChainPlusNoise, MarchenkoPastur

if TYPE_CHECKING:
    from gequiv.attention.parameters import Attention
    from gequiv.laws.base import Law

# share of the signal of which no digit of the law has anything left: beta above 26.1, even scores
_NEGLIGIBLE = 1e-290
METHODS = ("curve", "fixed-point")


def limit_law(head: Attention, method: str | None, *, rescaled: bool) -> Law:
    """The law that `Attention.limit_law` describes."""
    if method is None:
        method = "curve" if head.covariance is None else "fixed-point"
    if method not in METHODS:
        raise ParameterError(f"method must be one of {', '.join(map(repr, METHODS))} or None; got {method!r}")
    model = head.linear_model()
    if model.signal_share < _NEGLIGIBLE and (rescaled or isinstance(model, ScoreLinearModel)):
        return MarchenkoPastur(head.aspect, 1.0 if rescaled else model.total_variance)
    if rescaled and isinstance(model, LinearModel):  # also where the variances leave the floats
        signal, noise = exact_parts(model.beta)
    else:
        signal, noise = model.exact_variances()
    if rescaled:
        signal, noise = signal / (signal + noise), noise / (signal + noise)
    inner = [Fraction(dimension, head.tokens) for dimension in head.inner_dimensions]
    if method == "curve":
        if head.covariance is not None:
            raise ParameterError('method must be "fixed-point" when there is a covariance; got "curve"')
        return GaussianChainPlusNoise(inner, head.aspect, signal, noise)

    from gequiv.dyson import WeightedChainPlusNoise

    # the covariance sits between each token matrix and its weight matrix: on the first and the last inner space
    weights = [None] * len(inner) if head.covariance is None else [head.covariance, None, head.covariance]
    return WeightedChainPlusNoise(inner, weights, head.aspect, signal, noise)
