r"""Choosing the inverse temperature of a head: the β with a wanted property, and schedules β(n) of the context length.

Everything is predicted at the head's own size, nothing is drawn. Scores S = Q Kᵀ/√d_k have variance one and
A = row-softmax(βS): scores q·k of entries of variance one are multiplied by ``scale`` = β/√d_k, so that β is the
multiple of the usual 1/√d_k; scores q·k of another standard deviation τ are multiplied by β/τ.

**Rows.** Given its query, a row that sees k keys has iid Gaussian scores of variance
:math:`r = |q|^2/d_k \sim \chi^2_{d_k}/d_k`. With :math:`w_j = e^{b x_j}`, :math:`b = \beta\sqrt r`,
:math:`L(b) = E\log\sum_j w_j` and :math:`Y_1(b) = E\sum_j A_j^2` (`gequiv.attention.freezing`), the entropy of a row is

.. math:: E H = L - b L'(b) = \log k - \frac{b^2}{2} + E\log\frac{\sum_j w_j}{k e^{b^2/2}} + b^2\,Y_1(b),

because :math:`L' = E\sum_j A_j x_j = b\,E\sum_j A_j(1 - A_j)` by Gaussian integration by parts. The formula is exact
for orthonormal tokens; so are the means over r and, with a mask, over the numbers of keys that rows see, up to
quadratures of which two must agree to 1e-6. H falls strictly with β: each row has
:math:`dH/db = -b\,\mathrm{Var}_A(x)`.

**Linear regime.** The linear model holds as long as no few entries carry the energy of a row. Their share is
:math:`Y_2 = E\sum_j A_{ij}^4/(\sum_j A_{ij}^2)^2`, 1/k at β = 0 and one in the end. As n grows it stays 0 for
:math:`\beta^2 < \frac12\log n`; at finite size it rises gradually. At 500 and 1000 tokens a share of `LINEAR_SHARE`
goes with a Kolmogorov–Smirnov distance of about 0.01 between attention and its finite-size law, a share of
`SPECTRUM_SHARE` with two to four times that.

**Spectrum**, of A itself and without a mask, from `Attention.finite_law`: :math:`s_1` is the Perron value, the bulk
:math:`\mu` has the right edge x₊, and the second singular value is
:math:`s_2^2 = (x_+ + m\,\Delta)/n_k` with the edge's scale Δ (`HeadLaw.edge_scale`) and the mean m = -1.2065 of the
Tracy–Widom law for β = 1. (The column direction of A - 11ᵀ/n_k is no second value of A: it is part of the Perron
direction.)

- spectral gap: :math:`1 - s_2/s_1`, one at β = 0 and falling with β;
- effective rank: :math:`\exp(-\sum_i p_i\log p_i)`, :math:`p_i = s_i/\sum_j s_j`, over the Perron value and n - 1
  values of the bulk. It rises from one to a maximum, which lies beyond the linear regime.

The law is a model of the head, so that these two are its predictions (within one per cent of drawn matrices at a
thousand tokens), where the entropy is exact.

Sources: Roy, Vetterli 2007 (effective rank); Tracy, Widom 1996; Derrida 1981 (freezing); Hayase, Collins, Karakida 2025
(linear model). The formula for the entropy is this project's. Schedules: see `schedule`.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import chebvander

from gequiv import _checks
from gequiv._checks import Array
from gequiv.attention.freezing import log_normaliser_mean, participation
from gequiv.attention.inner_weights import norm_nodes
from gequiv.attention.parameters import Attention
from gequiv.errors import CertificationError, ParameterError

LINEAR_SHARE = 0.05
"""Share of the energy of a row in its few largest entries up to which the linear regime is taken to reach."""
SPECTRUM_SHARE = 0.15
"""The same share beyond which the spectrum is not predicted."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Of the bulk, in `Spectrum.quantiles`."""

_COLDEST, _HOTTEST = 10.0, 1e-3  # β between which is searched
_HOTTEST_SPECTRUM = 5e-3
_ACCURACY = 1e-6  # between two quadratures over rows
_LEVELS = ((10, 5), (14, 8), (20, 14), (28, 24))  # nodes of numbers of keys and of norms, of rules tried in turn
_COARSE = (8, 4)
_STEEPEST = 30.0  # β√r up to which rows are computed
_ROWS_TOLERANCE, _SPECTRUM_TOLERANCE = 1e-6, 1e-4
_TRACY_WIDOM = -1.2065336  # mean, β = 1
_POINTS = 800  # of each interval of the bulk
_RANK_ACCURACY = 5e-5
_CHUNK = 2**16


# -- schedules ------------------------------------------------------------------------------------------


def _logarithm(ratio: Array, reference: float) -> Array:
    """log n/log n₀ from log(n/n₀)."""
    return 1 + ratio / math.log(reference)


_SCHEDULES: dict[str, Callable[[Array, float], Array]] = {
    "constant": lambda ratio, reference: np.ones_like(ratio),
    "sqrt-log": lambda ratio, reference: np.sqrt(_logarithm(ratio, reference)),
    "ssmax": _logarithm,
    "qwen": lambda ratio, reference: np.maximum(_logarithm(ratio, reference), 1.0),
    "swan": lambda ratio, reference: np.maximum(_logarithm(ratio, reference), 1.0),
    "yarn": lambda ratio, reference: (0.1 * np.maximum(ratio, 0.0) + 1) ** 2,
}
SCHEDULES = tuple(_SCHEDULES)
"""Names of schedules; see `schedule`."""


def schedule(name: str, tokens: Any, *, beta: float = 1.0, reference: float) -> Any:
    r"""β(n) of a context of n tokens under a schedule that has β(n₀) = ``beta`` at the reference length n₀.

    ========  =====================================  ==================================================================
    constant  :math:`1`                              what softmax(q·k/√d_k) does
    sqrt-log  :math:`\sqrt{\log n/\log n_0}`         keeps γ = β²/log n, and with it the distance from both thresholds
                                                     of Gaussian scores (linear model 1/2, freezing 2; Derrida 1981)
    ssmax     :math:`\log n/\log n_0`                Scalable-Softmax, scores times s log n (Nakanishi 2025, arXiv
                                                     2501.19399); critical for tokens whose inner products do not
                                                     spread (Chen, Lin, Polyanskiy, Rigollet 2025, arXiv 2510.05554)
    qwen      :math:`\max(1, \log n/\log n_0)`       the same beyond the training length alone, as Qwen's log n
                                                     attention does
    swan      :math:`\max(1, \log n/\log n_0)`       SWAN-GPT (Puvvada et al. 2025, arXiv 2504.08719) scales the scores
                                                     logarithmically, at inference; that the factor is one up to the
                                                     training length and log n/log n₀ beyond is this project's reading
    yarn      :math:`(0.1\ln s + 1)^2`               YaRN (Peng et al. 2023, arXiv 2309.00071): queries and keys times
              :math:`s = \max(1, n/n_0)`             √(1/t) = 0.1 ln s + 1 each
    ========  =====================================  ==================================================================

    The table has β(n)/β(n₀).

    Parameters
    ----------
    name : one of `SCHEDULES`.
    tokens : n, numbers above 1, of any shape.
    beta : β(n₀), above 0.
    reference : n₀ above 1, the training length as a rule.

    Returns
    -------
    A float, or an array of the shape of tokens.

    Raises
    ------
    ParameterError : the name is unknown, or a number is out of range.

    >>> float(schedule("ssmax", 4096, beta=0.5, reference=64))
    1.0
    """
    if name not in _SCHEDULES:
        raise ParameterError(f"schedule must be one of {', '.join(map(repr, SCHEDULES))}; got {name!r}")
    lengths = _checks.real_array("tokens", tokens)
    if not (np.isfinite(lengths) & (lengths > 1)).all():
        raise ParameterError(f"tokens must be finite numbers above 1; got {tokens!r}")
    beta = _checks.positive_real("beta", beta)
    reference = _checks.positive_real("reference", reference)
    if reference <= 1:
        raise ParameterError(f"reference must be a finite real number above 1; got {reference!r}")
    factors = beta * _SCHEDULES[name](np.log(lengths / reference), reference)
    return float(factors) if lengths.ndim == 0 else factors


# -- rows -----------------------------------------------------------------------------------------------


def row_entropy(head: Attention) -> float:
    """Mean entropy of the rows of A, in nats, between 0 and `largest_entropy`; the module has the equation.

    Parameters
    ----------
    head : with orthonormal tokens (no width), without a bias, a score function or weights; any mask. beta is at most
        10.

    Raises
    ------
    ParameterError : the head is another one.
    CertificationError : two quadratures differ by more than 1e-6 (relative to what the entropy lacks), as they may
        where head_dim is below ten.
    """
    rows = _Rows.of(head)
    return rows.largest_entropy - rows.mean(_deficit, _within(head.beta))


def largest_entropy(head: Attention) -> float:
    """Mean over rows of log k, k the number of keys that a row sees: the entropy at β = 0."""
    return _Rows.of(head).largest_entropy


def row_concentration(head: Attention) -> float:
    r"""Mean over rows of :math:`Y_2 = E\sum_j A_{ij}^4/(\sum_j A_{ij}^2)^2`, the share of the few largest entries.

    Between 1/keys and 1. Parameters and errors as `row_entropy`.
    """
    return _Rows.of(head).mean(_concentration, _within(head.beta))


def _within(beta: float) -> float:
    if not beta <= _COLDEST:
        raise ParameterError(f"beta must be at most {_COLDEST:g}; got {beta!r}")
    return beta


def _deficit(keys: int, b: float) -> float:
    """log k - E H of a row over k keys, with relative accuracy."""
    if keys == 1:
        return 0.0
    return b * b * (0.5 - participation(keys, b)) - log_normaliser_mean(keys, b)


def _concentration(keys: int, b: float) -> float:
    return participation(keys, b, 2)


class _Rows:
    """What rows see: numbers of keys with their shares of the rows, and means over them and over the norms of queries.

    Means of functions of log k over many k are those of their Chebyshev interpolants, at Chebyshev points rounded to
    integers; those over the norms are Gauss quadratures.
    """

    def __init__(self, keys: Array, shares: Array, head_dim: int) -> None:
        self.keys, self.shares, self.head_dim = keys, shares, head_dim
        self.largest_entropy = float(shares @ np.log(keys))
        self._rules: dict[int, tuple[Array, Array]] = {}

    @classmethod
    def of(cls, head: Attention) -> _Rows:
        """Those of a head."""
        for name in ("width", "bias", "score", "weights"):
            if getattr(head, name) is not None:
                raise ParameterError(
                    f"{name} must be None: rows are predicted for orthonormal tokens and softmax without a bias; got "
                    f"{getattr(head, name)!r}"
                )
        return _rows(head.tokens, head.columns, head.mask, head.head_dim)

    def mean(self, function: Callable[[int, float], float], beta: float) -> float:
        """Mean of function(k, β√r); two rules must agree."""
        before = math.nan
        for level in _LEVELS:
            found = self._mean(function, beta, *level)
            if abs(found - before) <= _ACCURACY * abs(found):
                return found
            before = found
        raise CertificationError(
            f"the mean over rows is not certain to six digits at head_dim={self.head_dim}, beta={beta:g}: try a "
            "larger head_dim, or a smaller beta"
        )

    def coarse(self, function: Callable[[int, float], float], beta: float) -> float:
        """The same by few nodes, to find one's way."""
        return self._mean(function, beta, *_COARSE)

    def _mean(self, function: Callable[[int, float], float], beta: float, nodes: int, norms: int) -> float:
        keys, weights = self._rule(nodes)
        norm = norm_nodes(self.head_dim / 2, norms)
        if beta * math.sqrt(norm.nodes[-1]) > _STEEPEST:
            raise CertificationError(
                f"norms of queries at head_dim={self.head_dim} spread too far for beta={beta:g}: try a larger "
                "head_dim, or a smaller beta"
            )
        with np.errstate(over="ignore"):  # e^-inf = 0 where scores are far apart
            values = [[function(int(k), beta * math.sqrt(r)) for r in norm.nodes] for k in keys]
        return float(weights @ np.array(values) @ norm.shares)

    def _rule(self, size: int) -> tuple[Array, Array]:
        if self.keys.size <= size:
            return self.keys, self.shares
        if size not in self._rules:
            low, high = math.log(self.keys[0]), math.log(self.keys[-1])
            points = np.cos(np.pi * np.arange(size) / (size - 1))
            nodes: Array = np.unique(np.rint(np.exp((low + high) / 2 + (high - low) / 2 * points)))

            def basis(keys: Array) -> Array:
                place = (2 * np.log(keys) - low - high) / (high - low)
                return np.asarray(chebvander(place, nodes.size - 1), dtype=np.float64)

            moments: Array = np.zeros(nodes.size)
            for start in range(0, self.keys.size, _CHUNK):
                part = slice(start, start + _CHUNK)
                moments += self.shares[part] @ basis(self.keys[part])
            weights: Array = np.asarray(np.linalg.solve(basis(nodes).T, moments), dtype=np.float64)
            self._rules[size] = nodes, weights
        return self._rules[size]


@functools.lru_cache(maxsize=64)
def _rows(tokens: int, columns: int, mask: Any, head_dim: int) -> _Rows:
    head = Attention(tokens, head_dim, keys=columns, mask=mask)
    visibility = head.visibility
    if visibility is None:
        return _Rows(np.array([float(columns)]), np.ones(1), head_dim)
    name, _, size = mask.partition(":") if isinstance(mask, str) else ("", "", "")
    if name in ("causal", "window"):
        seen = np.arange(columns - tokens + 1, columns + 1)
        counts = np.minimum(seen, int(size)) if size else seen
    else:
        counts = np.concatenate([visibility.visible(*block).sum(axis=1) for block in visibility.blocks()])
    keys, numbers = np.unique(counts, return_counts=True)
    return _Rows(keys.astype(np.float64), numbers / tokens, head_dim)


# -- spectrum -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spectrum:
    """What the finite-size law predicts of the singular values of A; see the module for the equations.

    Attributes
    ----------
    largest : s₁, the Perron value.
    second : s₂, the expected largest value of the bulk.
    edge : √(x₊/keys), the right edge of the bulk.
    quantiles : of the bulk, at `QUANTILES`.
    spectral_gap : 1 - s₂/s₁.
    effective_rank : of Roy and Vetterli.
    """

    largest: float
    second: float
    edge: float
    quantiles: tuple[float, ...]
    spectral_gap: float
    effective_rank: float


def spectrum(head: Attention) -> Spectrum:
    """The singular values of A, predicted by ``head.finite_law()``.

    Parameters
    ----------
    head : without mask, bias and score function.

    Raises
    ------
    ParameterError : the head has one of these.
    CertificationError : the law could not be certified; the Perron value does not leave the bulk; or the effective rank
        is uncertain by more than 5e-5, relative.
    """
    if head.visibility is not None:
        raise ParameterError(
            "mask must be None, and bias too, for the spectrum of A: with them Ā has many singular values of order "
            f"one; got mask={head.mask!r}, bias={head.bias!r}"
        )
    law: Any = head.finite_law()
    perron = law.outliers()[0]
    if not perron.visible:
        raise CertificationError(
            f"the Perron value of A does not leave the bulk at beta={head.beta:g}: try a smaller beta"
        )
    edge = law.support()[-1][1]
    return _summary(
        law,
        (head.tokens, head.columns),
        perron.location,
        edge,
        max(edge + _TRACY_WIDOM * law.edge_scale(), 0.0),
    )


def _summary(law: Any, shape: tuple[int, int], perron: float, edge: float, second: float) -> Spectrum:
    """From the bulk and from squared singular values of √keys A."""
    rows, keys = shape
    largest = math.sqrt(perron / keys)
    others = rows * (1 - 1 / min(rows, keys))
    ranks = []
    for points in (_POINTS // 2, _POINTS):
        values, shares = _bulk_points(law, points)
        values = np.sqrt(values / keys)
        total = largest + others * float(shares @ values)
        logs = largest * math.log(largest) + others * float(shares @ (values * np.log(values)))
        ranks.append(total * math.exp(-logs / total))
    if not abs(ranks[1] - ranks[0]) <= _RANK_ACCURACY * ranks[1]:
        raise CertificationError(
            f"two quadratures of the effective rank differ, {ranks[0]!r} and {ranks[1]!r}: try another beta"
        )
    second = math.sqrt(second / keys)
    quantiles = np.sqrt(np.maximum(law.ppf(np.array(QUANTILES)), 0.0) / keys)
    return Spectrum(
        largest,
        second,
        math.sqrt(edge / keys),
        tuple(float(value) for value in quantiles),
        1 - second / largest,
        ranks[1],
    )


def _bulk_points(law: Any, points: int) -> tuple[Array, Array]:
    """Points above 0 with shares, by which means over the law without its atom at 0 are taken.

    Midpoints in t of the probability (1 - cos πt)/2 of each interval, which crowd at its edges.
    """
    nodes, shares = [], []
    cuts = np.pi * np.arange(points + 1) / points
    for low, high in law.support():
        mass = (float(law.cdf(low)) if low > 0 else sum(weight for _, weight in law.atoms()), float(law.cdf(high)))
        middle = 0.5 - 0.5 * np.cos(0.5 * (cuts[1:] + cuts[:-1]))
        values = np.asarray(law.ppf(np.clip(mass[0] + (mass[1] - mass[0]) * middle, 0.0, 1.0)))
        weights = (mass[1] - mass[0]) * (0.5 * np.diff(-np.cos(cuts)))
        nodes.append(values[values > 0])
        shares.append(weights[values > 0])
    return np.concatenate(nodes), np.concatenate(shares)


@functools.lru_cache(maxsize=256)
def _spectrum(tokens: int, keys: int, head_dim: int, beta: float) -> Spectrum:
    return spectrum(Attention(tokens, head_dim, beta, keys=keys))


def _rough_spectrum(tokens: int, keys: int, head_dim: int, beta: float) -> Spectrum:
    """From the limit law, of the linear model of the same size: quick, and near."""
    law = Attention(tokens, head_dim, beta, keys=keys).limit_law()
    edge = law.support()[-1][1]
    return _summary(law, (tokens, keys), max(tokens + math.expm1(beta**2), 1.01 * edge), edge, edge)


# -- the wanted property --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Temperature:
    """The inverse temperature with a wanted property, and what else follows from it.

    Attributes
    ----------
    beta : β of A = row-softmax(βS), scores of variance one; the multiple of the usual scale 1/√d_k.
    tokens, head_dim, keys, mask : of the head; keys is a number also for self-attention.
    wanted : (name, value) as it was asked for.
    achieved : the property predicted at beta.
    """

    beta: float
    tokens: int
    head_dim: int
    keys: int
    mask: Any
    wanted: tuple[str, float]
    achieved: float

    @property
    def scale(self) -> float:
        """β/√d_k, what scores q·k of entries of variance one are multiplied by."""
        return self.beta / math.sqrt(self.head_dim)

    @property
    def gamma(self) -> float:
        """γ = β²/log keys: as keys grow the linear model ends at 1/2 and rows freeze at 2."""
        return self.beta**2 / math.log(self.keys)

    @property
    def linear_limit(self) -> float:
        """√(½ log keys), the β at which the linear model ends as keys grow."""
        return math.sqrt(0.5 * math.log(self.keys))

    @property
    def head(self) -> Attention:
        """The head at this temperature."""
        return Attention(self.tokens, self.head_dim, self.beta, keys=self.keys, mask=self.mask)

    def predicted(self) -> dict[str, float | None]:
        """All properties by name: those of rows, and of the spectrum.

        The latter are None with a mask, beyond `SPECTRUM_SHARE`, or where the law could not be certified, of which
        ``spectrum(self.head)`` tells the reason.

        Raises
        ------
        CertificationError : a number of the rows could not be certified.
        """
        head = self.head
        entropy, largest, share = row_entropy(head), largest_entropy(head), row_concentration(head)
        found: Spectrum | None = None
        if head.visibility is None and share <= SPECTRUM_SHARE:
            with contextlib.suppress(CertificationError):
                found = _spectrum(self.tokens, self.keys, self.head_dim, self.beta)
        return {
            "entropy": entropy,
            "normalised_entropy": entropy / largest,
            "perplexity": math.exp(entropy),
            "linear": share,
            "largest": None if found is None else found.largest,
            "second": None if found is None else found.second,
            "spectral_gap": None if found is None else found.spectral_gap,
            "effective_rank": None if found is None else found.effective_rank,
        }

    def to_dict(self) -> dict[str, Any]:
        """Numbers and names, ready for JSON; of the mask its name, or that it is the user's own."""
        return {
            "beta": self.beta,
            "scale": self.scale,
            "gamma": self.gamma,
            "linear_limit": self.linear_limit,
            "tokens": self.tokens,
            "head_dim": self.head_dim,
            "keys": self.keys,
            "mask": self.mask if self.mask is None or isinstance(self.mask, str) else "own",
            "wanted": {"name": self.wanted[0], "value": self.wanted[1]},
            "achieved": self.achieved,
        }


def temperature(
    tokens: int,
    head_dim: int,
    *,
    entropy: float | None = None,
    normalised_entropy: float | None = None,
    perplexity: float | None = None,
    effective_rank: float | None = None,
    spectral_gap: float | None = None,
    linear: float | None = None,
    keys: int | None = None,
    mask: Any = None,
) -> Temperature:
    r"""The inverse temperature β at which attention has one wanted property; orthonormal tokens, random weights.

    The module has the equations. The property is predicted again at the β found, and agrees to 1e-6 in the logarithm of
    :math:`\log k - H` or of the share (rows), to 1e-4 in that of 1 - gap or of the logarithm of the rank (spectrum).

    Parameters
    ----------
    tokens, head_dim, keys, mask : as for `Attention`. A mask goes with the properties of rows alone.
    entropy : mean entropy of the rows, in nats, below the mean of log k over rows that see k keys.
    normalised_entropy : the same over that mean, between 0 and 1.
    perplexity : e to the mean entropy, the number of keys that a row attends to.
    effective_rank : of A, above 1, on the rising branch.
    spectral_gap : 1 - s₂/s₁ of A, between 0 and 1.
    linear : the largest β that keeps the share of the energy of a row in its few largest entries at most this;
        `LINEAR_SHARE` is a sensible one. `Temperature.linear_limit` is what it tends to as keys grow, slowly.

    Rows are searched for β from 0.001 to 10; the spectrum from 0.005 to where the linear regime ends, linear =
    `LINEAR_SHARE`.

    Raises
    ------
    ParameterError : not exactly one property is given; it cannot be reached (the message has the range); or a mask
        comes with a property of the spectrum.
    CertificationError : the law or a quadrature could not be certified, or no β has the property to the tolerance.

    >>> found = temperature(4096, 128, normalised_entropy=0.95)
    >>> round(found.beta, 3), round(found.scale, 4)
    (0.912, 0.0806)
    """
    wishes = {
        "entropy": entropy,
        "normalised_entropy": normalised_entropy,
        "perplexity": perplexity,
        "effective_rank": effective_rank,
        "spectral_gap": spectral_gap,
        "linear": linear,
    }
    given = {name: value for name, value in wishes.items() if value is not None}
    if len(given) != 1:
        raise ParameterError(
            f"exactly one of {', '.join(wishes)} must be given; got {' and '.join(given) if given else 'none'}"
        )
    ((name, raw),) = given.items()
    value = _checks.positive_real(name, raw)
    head = Attention(tokens, head_dim, 1.0, keys=keys, mask=mask)
    if name in ("effective_rank", "spectral_gap"):
        beta, achieved = _by_spectrum(head, name, value)
    else:
        beta, achieved = _by_rows(head, name, value)
    return Temperature(beta, head.tokens, head.head_dim, head.columns, head.mask, (name, value), achieved)


def _by_rows(head: Attention, name: str, value: float) -> tuple[float, float]:
    rows = _Rows.of(head)
    largest = rows.largest_entropy
    function = _concentration if name == "linear" else _deficit

    def property_of(mean: float) -> float:
        if name == "linear":
            return mean
        entropy = largest - mean
        return {"entropy": entropy, "perplexity": math.exp(entropy)}.get(name, entropy / largest)

    entropy = {"entropy": value, "perplexity": math.log(value)}.get(name, value * largest)
    target = value if name == "linear" else largest - entropy

    def unreachable() -> ParameterError:
        ends = sorted(property_of(rows.coarse(function, beta)) for beta in (_HOTTEST, _COLDEST))
        return ParameterError(
            f"{name} must be between {ends[0]:.6g} and {ends[1]:.6g}, which inverse temperatures from {_HOTTEST:g} to "
            f"{_COLDEST:g} reach at tokens={head.tokens}, head_dim={head.head_dim}; got {value!r}"
        )

    if not target > 0:
        raise unreachable()
    typical = max(largest, 0.1)
    guess = math.sqrt(0.25 * typical) if name == "linear" else math.sqrt(2 * min(target, 2 * typical))
    wanted = math.log(target)
    place = _root(
        lambda t: math.log(rows.coarse(function, math.exp(t))) - wanted, guess, (_HOTTEST, _COLDEST), 1.25, 1e-7
    )
    if place is None:
        raise unreachable()
    # from the quick rule to the certified one, by its slope
    step = 1e-3
    slope = (
        math.log(rows.coarse(function, math.exp(place + step)))
        - math.log(rows.coarse(function, math.exp(place - step)))
    ) / (2 * step)
    for _ in range(4):
        beta = math.exp(place)
        found = rows.mean(function, beta)
        error = math.log(found) - wanted
        if abs(error) <= _ROWS_TOLERANCE * 0.1:
            break
        place -= error / slope
    if not (abs(error) <= _ROWS_TOLERANCE and _HOTTEST / 2 <= beta <= 2 * _COLDEST):
        raise _missed(name, value, property_of(found), beta)
    return beta, property_of(found)


def _by_spectrum(head: Attention, name: str, value: float) -> tuple[float, float]:
    if head.visibility is not None:
        raise ParameterError(
            f"mask must be None with {name}: with a mask the mean attention has many singular values of order one; got "
            f"{head.mask!r}. entropy, perplexity and linear serve masks"
        )
    sizes = (head.tokens, head.columns, head.head_dim)
    fewest = min(sizes[:2])
    if name == "spectral_gap" and not value < 1:
        raise ParameterError(f"spectral_gap must be a real number between 0 and 1; got {value!r}")
    if name == "effective_rank" and not 1 < value < fewest:
        raise ParameterError(f"effective_rank must be a real number between 1 and {fewest}; got {value!r}")
    coldest = temperature(head.tokens, head.head_dim, linear=LINEAR_SHARE, keys=head.keys).beta
    wanted = math.log1p(-value) if name == "spectral_gap" else math.log(math.log(value))

    def error(found: Spectrum) -> float:
        if name == "spectral_gap":
            return math.log(found.second / found.largest) - wanted
        return math.log(math.log(found.effective_rank)) - wanted

    bounds = (_HOTTEST_SPECTRUM, coldest)
    near = _root(lambda t: error(_rough_spectrum(*sizes, math.exp(t))), math.sqrt(bounds[0] * coldest), bounds, 2, 1e-3)
    guess = near if near is not None else math.log(coldest)
    place = _root(
        lambda t: error(_spectrum(*sizes, math.exp(t))), math.exp(guess), bounds, 1.02, 0.1 * _SPECTRUM_TOLERANCE
    )
    if place is None:
        ends = sorted(getattr(_spectrum(*sizes, math.exp(math.log(beta))), name) for beta in bounds)
        raise ParameterError(
            f"{name} must be between {ends[0]:.6g} and {ends[1]:.6g}, which inverse temperatures from {bounds[0]:g} to "
            f"{coldest:.4g}, the end of the linear regime, reach at tokens={head.tokens}, head_dim={head.head_dim}; "
            f"got {value!r}"
        )
    beta = math.exp(place)
    found = _spectrum(*sizes, beta)
    if not abs(error(found)) <= _SPECTRUM_TOLERANCE:
        raise _missed(name, value, getattr(found, name), beta)
    return beta, float(getattr(found, name))


def _missed(name: str, value: float, achieved: float, beta: float) -> CertificationError:
    return CertificationError(
        f"no inverse temperature has {name}={value!r} to the tolerance; beta={beta:.6g} has {achieved!r}: try a value "
        "beside it"
    )


def _root(
    function: Callable[[float], float], guess: float, bounds: tuple[float, float], growth: float, tolerance: float
) -> float | None:
    """log β of the root of a rising function of log β, bracketed from a guess; None if the bounds hold none."""
    low, high = (math.log(bound) for bound in bounds)
    known: dict[float, float] = {}

    def value(place: float) -> float:
        if place not in known:
            known[place] = function(place)
        return known[place]

    here = min(max(math.log(guess), low), high)
    if value(here) == 0:
        return here
    up, step = value(here) < 0, math.log(growth)
    while True:
        ahead = min(here + step, high) if up else max(here - step, low)
        if ahead == here:
            return None
        if (value(ahead) < 0) != up:
            break
        here, step = ahead, 2 * step
    from scipy.optimize import brentq

    root = float(brentq(value, min(here, ahead), max(here, ahead), xtol=tolerance, rtol=1e-14))
    return min(known, key=lambda place: abs(known[place])) if root not in known else root


# -- along the context length ---------------------------------------------------------------------------


@dataclass(frozen=True)
class ContextPoint:
    """What is predicted at one context length.

    Attributes
    ----------
    tokens, beta : n and β(n).
    entropy : mean entropy of the rows, in nats.
    linear : share of the energy of a row in its few largest entries; up to `LINEAR_SHARE` the regime is linear.
    spectrum : None beyond `SPECTRUM_SHARE`, or where the law could not be certified.
    refusal : why there is no spectrum; None where there is one.
    """

    tokens: int
    beta: float
    entropy: float
    linear: float
    spectrum: Spectrum | None
    refusal: str | None

    @property
    def perplexity(self) -> float:
        """e to the mean entropy."""
        return math.exp(self.entropy)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        found = self.spectrum
        return {
            "tokens": self.tokens,
            "beta": self.beta,
            "entropy": self.entropy,
            "perplexity": self.perplexity,
            "linear": self.linear,
            "largest": None if found is None else found.largest,
            "second": None if found is None else found.second,
            "edge": None if found is None else found.edge,
            "quantiles": None if found is None else dict(zip(map(str, QUANTILES), found.quantiles, strict=True)),
            "spectral_gap": None if found is None else found.spectral_gap,
            "effective_rank": None if found is None else found.effective_rank,
            "refusal": self.refusal,
        }


def context_sweep(
    head_dim: int, lengths: Sequence[int], name: str, *, beta: float = 1.0, reference: int
) -> list[ContextPoint]:
    """Rows and spectrum of self-attention without a mask at several context lengths, under a schedule of β.

    Parameters
    ----------
    head_dim : d_k.
    lengths : numbers of tokens.
    name, beta, reference : as for `schedule`.

    Raises
    ------
    ParameterError : a parameter is out of range, or a schedule leads to a β above 10.
    CertificationError : a number of the rows could not be certified; a law that could not is told in ``refusal``.
    """
    if isinstance(lengths, (str, bytes)) or not isinstance(lengths, Sequence) or not lengths:
        raise ParameterError(f"lengths must be a sequence of at least one number of tokens; got {lengths!r}")
    sizes = [_checks.positive_integer("lengths", length, minimum=2) for length in lengths]
    betas = [float(schedule(name, size, beta=beta, reference=reference)) for size in sizes]
    return [_context_point(size, head_dim, b) for size, b in zip(sizes, betas, strict=True)]


@functools.lru_cache(maxsize=256)
def _context_point(tokens: int, head_dim: int, beta: float) -> ContextPoint:
    head = Attention(tokens, head_dim, beta)
    entropy, share = row_entropy(head), row_concentration(head)
    found: Spectrum | None = None
    refusal: str | None = None
    if share > SPECTRUM_SHARE:
        refusal = f"few entries carry {share:.2g} of the energy of a row, which the law does not resolve"
    else:
        try:
            found = _spectrum(tokens, tokens, head.head_dim, beta)
        except CertificationError as error:
            refusal = str(error)
    return ContextPoint(tokens, beta, entropy, share, found, refusal)
