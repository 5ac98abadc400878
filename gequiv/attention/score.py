r"""Score functions other than the exponential, and their linear model by quadrature.

Attention with a score function f has entries :math:`A_{ij} = F(S_{ij})/\sum_k F(S_{ik})`, :math:`F(x) = f(\beta x)`.
With g standard Gaussian its linear model is :math:`(c_1 S + \sigma Z)/\sqrt n`,

.. math:: c_1 = \frac{E[g F(g)]}{E F(g)}, \qquad \sigma^2 = \frac{\mathrm{Var} F(g)}{(E F(g))^2} - c_1^2 ,

:math:`E[g F(g)]` being :math:`E F'(g)` for differentiable F: the first Hermite coefficient of :math:`F/EF`, and the sum
of the squares of the higher ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from gequiv._checks import Array
from gequiv.errors import CertificationError, ParameterError

if TYPE_CHECKING:
    import sympy

ScoreFunction = Callable[[Array], Any]

_REACH = 38.5  # beyond it the Gaussian density is below the smallest float
_DEPTH = 48
_MOST_PANELS = 4000
_ACCURACY = 1e-9


@dataclass(frozen=True)
class ScoreLinearModel:
    """(c₁ S + σ Z)/√n for attention with a score function; the counterpart of `LinearModel`.

    Attributes
    ----------
    coefficient : c₁, of the scores S of variance one; zero for even F, negative for falling F.
    noise_variance : σ².
    mean : E F(g), above 0.
    error : estimated relative error of the quadrature.
    """

    coefficient: float
    noise_variance: float
    mean: float
    error: float

    @property
    def total_variance(self) -> float:
        """c₁² + σ² = Var F/(E F)², the mean of the limit law."""
        return self.coefficient**2 + self.noise_variance

    @property
    def log_total_variance(self) -> float:
        """log(c₁² + σ²)."""
        return math.log(self.total_variance)

    @property
    def signal_share(self) -> float:
        """c₁²/(c₁² + σ²)."""
        return self.coefficient**2 / self.total_variance

    @property
    def noise_share(self) -> float:
        """σ²/(c₁² + σ²)."""
        return self.noise_variance / self.total_variance

    def exact_variances(self) -> tuple[Fraction, Fraction]:
        """(c₁², σ²) as fractions: the floats, exactly."""
        return Fraction(self.coefficient) ** 2, Fraction(self.noise_variance)


def score_function(score: Any, beta: float, spread: float = 1.0) -> ScoreFunction:
    """F(x) as a function of arrays, for scores S = spread * x: f(β S) for a callable or an expression in one symbol.

    An expression that has a symbol named beta besides its variable is taken at that β, and its variable is then S
    itself: exp(beta*x) and exp(x) are the same score function.

    Raises
    ------
    ParameterError : score is neither, or an expression with other free symbols.
    """
    if callable(score) and not hasattr(score, "free_symbols"):
        return _Scaled(score, beta * spread)
    if not hasattr(score, "free_symbols"):
        raise ParameterError(f"score must be a callable or a sympy expression; got {score!r}")
    import sympy

    named = [symbol for symbol in score.free_symbols if symbol.name == "beta"]
    expression = score.subs({symbol: sympy.Float(beta, 30) for symbol in named})
    variables = sorted(expression.free_symbols, key=lambda symbol: str(symbol.name))
    if len(variables) > 1:
        raise ParameterError(
            f"score must have one variable, besides a symbol named beta; got {score}, in "
            f"{', '.join(str(v) for v in variables)}"
        )
    variable = variables[0] if variables else sympy.Symbol("x")
    return _Scaled(_compiled(expression, variable), spread if named else beta * spread)


class _Scaled:
    """x -> f(beta x), evaluated with numpy and checked: real numbers of the argument's shape."""

    def __init__(self, function: ScoreFunction, beta: float) -> None:
        self.function, self.beta = function, beta

    def __call__(self, x: Array) -> Array:
        with np.errstate(all="ignore"):  # what is not finite is looked at by the caller
            raw = np.asarray(self.function(self.beta * x))
        if raw.dtype.kind not in "fiub" or raw.shape not in ((), x.shape):
            raise ParameterError(
                f"score must map an array of real numbers to real numbers of the same shape; for shape {x.shape} it "
                f"gave {raw.dtype} numbers of shape {raw.shape}"
            )
        return np.broadcast_to(raw, x.shape).astype(np.float64)


def _compiled(expression: sympy.Expr, variable: sympy.Symbol) -> ScoreFunction:
    import sympy

    function: ScoreFunction = sympy.lambdify(variable, expression, modules=["scipy", "numpy"])
    return function


def score_linear_model(score: Any, beta: float, spread: float = 1.0) -> ScoreLinearModel:
    """The linear model of a score function, by adaptive Gauss–Legendre quadrature on [-38.5, 38.5].

    Panels are halved where two rules disagree, so that kinks and jumps are found wherever they are.

    Raises
    ------
    ParameterError : E F(g) is not above 0, or F is constant or affine on the Gaussian, or F² is not integrable.
    CertificationError : the quadrature does not reach nine digits.
    """
    function = score_function(score, beta, spread)
    x, weight, error = _rule(function)
    value = function(x)
    mean, first = float(value @ weight), float((x * value) @ weight)
    size = float(np.abs(value) @ weight)
    if not mean > 1e-12 * size:
        reason = "negative" if mean < -1e-12 * size else "zero"
        raise ParameterError(
            f"score must have a positive mean under the standard Gaussian, E f(beta g) > 0: with a {reason} mean the "
            f"row sums that normalise attention do not settle above zero; got E f = {mean!r}"
        )
    coefficient = first / mean if abs(first) > 1e-14 * float(np.abs(x * value) @ weight) else 0.0
    # a sum of squares, E (F/EF - 1 - c₁ g)², so that it does not cancel where it is small
    rest = (value / mean - 1 - coefficient * x) * np.sqrt(weight)
    noise = float(rest @ rest)
    if not noise > 1e-13 * max(coefficient**2, 1e-13):
        raise ParameterError(
            f"score must not be affine or constant: its linear model has no noise (c1 = {coefficient!r}), and the law "
            "of a product alone is not served"
        )
    return ScoreLinearModel(coefficient, noise, mean, error)


def _rule(function: ScoreFunction) -> tuple[Array, Array, float]:
    """Points and weights for the standard Gaussian that integrate F, xF and F², and their estimated relative error."""
    low = np.arange(-_REACH, _REACH - 0.5)
    high = low + 1.0
    points, weights = [], []
    error, scale = np.zeros(3), np.full(3, np.nan)
    for depth in range(_DEPTH):
        middle = 0.5 * (low + high)
        whole, _, _ = _panel_integrals(function, low, high)
        left, x_left, w_left = _panel_integrals(function, low, middle)
        right, x_right, w_right = _panel_integrals(function, middle, high)
        if depth == 0:
            total = np.abs(left) + np.abs(right)
            scale = total.sum(axis=0)
            if not scale[2] > 0:
                raise ParameterError("score must not vanish everywhere under the standard Gaussian")
            edge = total[[0, -1], 2].sum()
            if not np.isfinite(scale).all() or edge > 1e-12 * scale[2]:
                raise ParameterError("score must be square-integrable under the standard Gaussian; it is not")
        miss = np.abs(left + right - whole)
        good = (miss <= 2e-15 * scale).all(axis=1)
        last = depth == _DEPTH - 1 or np.count_nonzero(~good) > _MOST_PANELS
        keep = np.ones_like(good) if last else good
        error += miss[keep].sum(axis=0) / scale
        for x, w in ((x_left, w_left), (x_right, w_right)):
            points.append(x[keep].reshape(-1))
            weights.append(w[keep].reshape(-1))
        if last or good.all():
            break
        low, high = np.concatenate([low[~good], middle[~good]]), np.concatenate([middle[~good], high[~good]])
    if not error.max() <= _ACCURACY:
        raise CertificationError(
            f"the Gaussian moments of the score are uncertain by {error.max():.1e} (relative): it varies too wildly"
        )
    return np.concatenate(points), np.concatenate(weights), float(error.max())


def _panel_integrals(function: ScoreFunction, low: Array, high: Array) -> tuple[Array, Array, Array]:
    """Integrals of F, xF and F² on each panel, (panels, 3), and the points and weights they come from."""
    nodes, weights = np.polynomial.legendre.leggauss(16)
    x = 0.5 * (low + high)[:, None] + 0.5 * (high - low)[:, None] * nodes
    weight = 0.5 * (high - low)[:, None] * weights * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    value = function(x)
    if not np.isfinite(value).all():
        where = x[~np.isfinite(value)]
        raise ParameterError(
            f"score must be finite for all scores within {_REACH} standard deviations; it is "
            f"{float(value[~np.isfinite(value)][0])!r} at {float(where[np.argmin(np.abs(where))])!r}"
        )
    squares = (value * np.sqrt(weight)) ** 2
    return np.stack([(value * weight).sum(1), (x * value * weight).sum(1), squares.sum(1)], axis=1), x, weight
