r"""Laws as tables of quantiles, and tables for every inverse temperature between those of a few solved laws.

A head is held against the law of its own β, and so is every random head that says what distances chance alone makes:
hundreds of laws of one family that differ in β alone. They are solved at knots, powers of 1.15 without a mask and of
1.25 with one; between two knots the logarithm of the quantile function is interpolated linearly in log β. The error, of
second order in the step, is below 0.002 in the distribution function up to β = 1.5 and a few thousandths beyond, a part
of the distance that the random heads have as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from gequiv._checks import Array
from gequiv.attention.finite import HeadLaw
from gequiv.laws.base import Law

STEP, MASKED_STEP = math.log(1.15), math.log(1.25)
_LEVELS = 600
_TINY = 1e-300


def _levels() -> Array:
    """Levels of the quantiles, crowded at both ends."""
    return np.asarray(np.sin(np.pi * (np.arange(_LEVELS) + 0.5) / (2 * _LEVELS)) ** 2)


@dataclass(frozen=True, eq=False)
class LawTable:
    """The law of the squared singular values of √n_k (A - Ā), as quantiles.

    Attributes
    ----------
    log_quantiles : log of the quantile function at the levels sin²(π (i + 1/2)/(2 m)), i < m.
    log_threshold : log of the least strength θ at which a direction θ u vᵀ added to √n_k A, u and v unit vectors in
        general position, leaves the bulk: :math:`\\theta^{-2} = \\varphi\\tilde\\varphi` at the edge, φ and φ̃ the
        resolvents s G(s²) of rows and of columns (Benaych-Georges, Nadakuditi 2012). The edge is the right one of the
        support; with a mask, whose law has a heavy tail, the quantile above which less than one value is expected.
    solved : whether it is a solved law; else the pooled spectra of random matrices, where no law could be certified or
        the law fails.
    """

    log_quantiles: Array
    log_threshold: float
    solved: bool = True

    def cdf(self, x: Array) -> Array:
        """Distribution function at points of at least 0."""
        logs = np.log(np.maximum(np.asarray(x, dtype=np.float64), _TINY))
        return np.interp(logs, self.log_quantiles, _levels(), left=0.0, right=1.0)

    def ks(self, sample: Array) -> float:
        """Kolmogorov–Smirnov distance of a sample, zeros of rounding size left out on both sides."""
        values = np.sort(np.asarray(sample, dtype=np.float64))
        law = self.cdf(values)
        seen = values > 1e-12 * values[-1]
        steps = np.arange(values.size + 1) / values.size
        gaps = np.maximum(np.abs(steps[1:] - law), np.abs(steps[:-1] - law))
        return float(gaps[seen].max(initial=0.0))

    def wasserstein(self, sample: Array) -> float:
        """∫ |quantile function of the sample - that of the law|, in squared singular values."""
        values = np.sort(np.asarray(sample, dtype=np.float64))
        levels = _levels()
        ends = np.concatenate([[0.0], (levels[1:] + levels[:-1]) / 2, [1.0]])
        own = values[np.minimum((levels * values.size).astype(int), values.size - 1)]
        return float(np.diff(ends) @ np.abs(own - np.exp(self.log_quantiles)))

    def quantile(self, levels: Array) -> Array:
        """Quantile function."""
        return np.asarray(np.exp(np.interp(levels, _levels(), self.log_quantiles)))

    def toward(self, other: LawTable, share: float) -> LawTable:
        """The table at that share of the way to another."""
        return LawTable(
            (1 - share) * self.log_quantiles + share * other.log_quantiles,
            (1 - share) * self.log_threshold + share * other.log_threshold,
            self.solved and other.solved,
        )


def table_of(law: HeadLaw) -> LawTable:
    """The table of a solved law."""
    quantiles = np.maximum(np.asarray(law.ppf(_levels()), dtype=np.float64), _TINY)
    masked = law.head.visibility is not None
    edge = float(law.ppf(1 - 1 / law.head.tokens)) if masked else law.support()[-1][1]
    aspect = float(law.head.aspect)
    return LawTable(np.log(quantiles), _log_threshold(law, edge, aspect, masked))


def table_of_draws(spectra: list[Array], aspect: float) -> LawTable:
    """The table of pooled spectra of random matrices; the edge is the mean of the largest values (of their logs)."""
    pool = np.sort(np.concatenate(spectra))
    quantiles = np.maximum(np.quantile(pool, _levels()), _TINY)
    edge = math.exp(float(np.mean([math.log(max(spectrum.max(), _TINY)) for spectrum in spectra])))
    return LawTable(np.log(quantiles), empirical_threshold(pool, edge, aspect), solved=False)


def _log_threshold(law: Law, edge: float, aspect: float, masked: bool) -> float:
    if masked:  # inside the heavy tail: of the values below
        return empirical_threshold(np.asarray(law.ppf((np.arange(4000) + 0.5) / 4000)), edge, aspect)
    g = float(np.real(law.cauchy(edge * (1 + 1e-9))))
    return _from_resolvent(g, edge, aspect)


def empirical_threshold(values: Array, edge: float, aspect: float) -> float:
    """log θ of `LawTable.log_threshold`, from the values below the edge."""
    below = values[values < edge]
    if not below.size or not edge > 0:
        return math.inf
    return _from_resolvent(float(np.mean(1 / (edge * (1 + 0.5 / values.size) - below))), edge, aspect)


def block_threshold(matrices: Iterable[Array], edge: float) -> float:
    """log θ of a direction θ u vᵀ expected at squared singular value `edge`, u on the later half of the rows, v on the
    earlier half of the columns, from random matrices; values of theirs beyond the edge are left out.

    With a mask rows and columns differ, so that the resolvents of just these count: those where a causal mask is full.
    """
    found = []
    for matrix in matrices:
        left, values, right = np.linalg.svd(matrix, full_matrices=False)
        kept = values**2 < 0.98 * edge
        weights = 1 / (edge - values[kept] ** 2)
        late = left[len(left) // 2 :, kept].T ** 2
        early = right[kept, : matrix.shape[1] // 2] ** 2
        # directions outside the row or column space see the bare resolvent
        rows, columns = (float((weights @ part + (1 - part.sum(axis=0)) / edge).mean()) for part in (late, early))
        found.append(-0.5 * math.log(edge * rows * columns))
    return float(np.mean(found))


def _from_resolvent(g: float, edge: float, aspect: float) -> float:
    """log θ from G(s²) of the rows; the columns' resolvent has 1 - aspect more zeros a column."""
    rows = math.sqrt(edge) * g
    columns = aspect * rows + (1 - aspect) / math.sqrt(edge)
    return -0.5 * math.log(rows * columns)


class TableFamily:
    """Tables for every β, from those at the knots that were asked for.

    Parameters
    ----------
    solve : the table at one β.
    step : between knots, in log β.
    """

    def __init__(self, solve: Callable[[float], LawTable], step: float = STEP) -> None:
        self._solve = solve
        self._step = step
        self._knots: dict[int, LawTable] = {}

    def knots(self, betas: list[float]) -> list[int]:
        """The knots that these β need and that are not there yet."""
        wanted = {k for beta in betas for k in self._around(beta)}
        return sorted(wanted - self._knots.keys())

    def put(self, knot: int, table: LawTable) -> None:
        """Keep a table that was solved elsewhere."""
        self._knots[knot] = table

    def beta_of(self, knot: int) -> float:
        """β of a knot."""
        return math.exp(self._step * knot)

    def _around(self, beta: float) -> tuple[int, int]:
        low = math.floor(math.log(beta) / self._step)
        return low, low + 1

    def at(self, beta: float) -> LawTable:
        """The table at β."""
        low, high = self._around(beta)
        for knot in (low, high):
            if knot not in self._knots:
                self._knots[knot] = self._solve(self.beta_of(knot))
        return self._knots[low].toward(self._knots[high], math.log(beta) / self._step - low)
