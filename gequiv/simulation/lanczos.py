r"""Distribution function and largest singular values of matrices that are never stored.

Two stages. Block Lanczos finds the largest squared singular values, those that stand alone and those of a heavy tail,
to small residuals; they are split off and count 1/N each. In what is orthogonal to them stochastic Lanczos quadrature
takes over: for unit vectors v the measure :math:`\mu_v = \sum_i |\langle v, u_i\rangle|^2 \delta_{\lambda_i}` has the
spectrum's own for its mean over the sphere, and m steps of Lanczos from v give its Gauss quadrature, exact for
polynomials of degree 2m - 1. Split off, the large values no longer cost the steps that resolve the bulk.

Sources: Golub, Meurant 2010; Lin, Saad, Yang 2016; Chen, Trogdon, Ubaru 2021.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gequiv import _checks
from gequiv._checks import Array
from gequiv.attention.matrix_free import AttentionOperator
from gequiv.attention.parameters import Attention
from gequiv.errors import CertificationError, ParameterError

Progress = Callable[[int, int], object]

STEPS = 96
"""Steps of Lanczos quadrature by default."""
PROBES = 16
"""Probes by default, at least."""
SAMPLES = 2**19
"""Tokens times probes by default, at least: a sampling error of the distribution function below .0032 at 99 %."""
KOLMOGOROV = 1.6276
"""0.99 quantile of the largest value of a Brownian bridge in absolute value."""
BLOCK, BLOCK_STEPS = 128, 5
"""Width and steps of block Lanczos that finds what is split off."""
UNRESOLVED = 0.05
"""Share of the values piled up below the lowest nodes from which on the distribution function there is refused."""
ROUNDING = {"float64": 1e-13, "float32": 1e-6}
"""What squared singular values are known to, of the largest: those below are zero as far as Lanczos can tell."""
_SPLIT = 1e-5  # residual, relative to the value, of what is split off
_RESIDUAL = 1e-7
_LARGEST_BASIS = 3000


@dataclass(frozen=True)
class SpectralEstimate:
    r"""Distribution function of the squared singular values of a matrix, from its largest ones and quadratures.

    The values that are split off are steps of 1/N. The distribution function of a probe is interpolated linearly in
    the singular value √x through the middle of each step of its quadrature, :math:`F(\theta_k) = w_1 + … + w_{k-1} +
    w_k/2`, and averaged over probes. Nodes that are zero to rounding are steps at 0, and so are all nodes of a
    quadrature that is exact, as of a matrix with fewer distinct values than there are steps.

    Attributes
    ----------
    size : number of squared singular values of the matrix, one per row.
    surplus : how many of them are exact zeros, as there are more rows than columns.
    largest : values that were split off, ascending.
    singular_values, levels : ascending points √x and the distribution function there, of all but the exact zeros.
    probes, steps : number of probes, and of steps of the quadratures.
    truncation : largest change of the distribution function when half of the steps are left out.
    unresolved, floor : by how much the share of the values that the lowest node of a probe stands for exceeds that of
        the second, means over probes, and the largest of these second nodes. Where many values pile up at zero, as
        under a causal mask, the excess is large, and the distribution function between 0 and the floor is not known.
        Of a smooth density the two weigh about the same; values that are zero to rounding are resolved.
    rounding : squared singular values up to it are zero to rounding.
    """

    size: int
    surplus: int
    largest: Array = field(repr=False)
    singular_values: Array = field(repr=False)
    levels: Array = field(repr=False)
    probes: int
    steps: int
    truncation: float
    unresolved: float
    floor: float
    rounding: float

    @property
    def sampling_error(self) -> float:
        r"""What the distribution function is off at most by the choice of probes, at 99 %.

        For p orthonormal probes of dimension M = N - (number split off) it fluctuates about that of the matrix as a
        Brownian bridge of variance :math:`2 F (1 - F) (1 - p/M)/(M p)`; the bound is 1.628 of its scale.
        """
        dimension = self.size - self.surplus - len(self.largest)
        if dimension <= self.probes:
            return 0.0
        spread = math.sqrt(2 * (1 - self.probes / dimension) / (dimension * self.probes))
        return KOLMOGOROV * spread * dimension / self.size

    @property
    def error(self) -> float:
        """Sampling error at 99 %, plus truncation, plus what is unresolved at zero; for x up to rounding."""
        return self.sampling_error + self.truncation + self.unresolved

    def cdf(self, x: Any) -> Array:
        """Estimated share of squared singular values ≤ x; same shape as x."""
        points = _checks.real_array("x", x)
        root = np.sqrt(np.maximum(points, 0))
        inside = np.interp(root, self.singular_values, self.levels, left=0.0, right=1.0)
        dimension = self.size - self.surplus
        found: Array = np.where(points < 0, 0.0, (self.surplus + dimension * inside) / self.size)
        return found

    def ppf(self, levels: Any) -> Array:
        """Estimated quantiles: x with cdf(x) = level; 0 up to the share of exact zeros; same shape as levels.

        Raises
        ------
        ParameterError : a level is not in [0, 1].
        """
        given = _checks.real_array("levels", levels)
        if ((given < 0) | (given > 1)).any():
            raise ParameterError(f"levels must lie in [0, 1]; got {float(given[(given < 0) | (given > 1)][0])!r}")
        dimension = self.size - self.surplus
        inside = (given * self.size - self.surplus) / dimension
        rising = np.concatenate([[True], np.diff(self.levels) > 0])
        found: Array = np.interp(inside, self.levels[rising], self.singular_values[rising]) ** 2
        return np.where(inside <= 0, 0.0, found)

    def quantiles(self, count: int) -> Array:
        """Ascending quantiles of the levels (i + 1/2)/count: what stands for ``count`` squared singular values."""
        number = _checks.positive_integer("count", count)
        return self.ppf((np.arange(number) + 0.5) / number)


def spectral_estimate(
    a: Attention,
    rng: Any,
    *,
    probes: int | None = None,
    steps: int | None = None,
    centered: bool = True,
    dtype: str = "float64",
    device: Any = None,
    progress: Progress | None = None,
) -> SpectralEstimate:
    """Spectrum of √keys (A - Ā) of one draw by Lanczos, A never stored.

    Parameters
    ----------
    a : the head.
    rng : as for `Attention.spectrum`; the same seed is the same matrix. The probes are drawn after it.
    probes : number of orthonormal random vectors p; None for 2¹⁹/tokens, 16 at least.
    steps : m, of the quadratures, 96 by default. Each step is one pass over the matrix (two under a mask with fewer
        tokens than keys), after five for the largest values.
    centered : False for √keys A.
    dtype, device : as for `AttentionOperator`.
    progress : called with (done, total) after each pass.

    Cost: (m + 5) tokens keys (2 d_k + 4 p + some 50) operations. Memory: tokens (2 d_k + 6 p + 1000) numbers and two
    tiles.

    Raises
    ------
    ParameterError : a, rng, probes, steps, dtype or device is not as above.
    CertificationError : a row of a score function cannot be normalised.
    """
    _refuse_no_head(a)
    generator = _checks.generator(rng)
    dimension = min(a.tokens, a.columns)
    count = min(dimension, max(PROBES, -(-SAMPLES // dimension)))
    if probes is not None:
        count = _checks.positive_integer("probes", probes)
        if count > dimension:
            raise ParameterError(f"probes must be at most {dimension}, the smaller of tokens and keys; got {probes!r}")
    depth = STEPS if steps is None else _checks.positive_integer("steps", steps, minimum=2)
    operator = AttentionOperator(a, generator, centered=centered, dtype=dtype, device=device)
    gram = operator.gram
    width = min(BLOCK, dimension)
    total = min(BLOCK_STEPS, -(-dimension // width)) + depth

    lanczos = BlockLanczos(gram, np.linalg.qr(generator.standard_normal((dimension, width)))[0])
    while lanczos.steps < BLOCK_STEPS and not lanczos.ended:
        lanczos.step()
        if progress is not None:
            progress(lanczos.steps, total)
    largest, vectors = lanczos.converged(_SPLIT)
    left = dimension - len(largest)
    del lanczos
    count = min(count, left)
    if count == 0:
        rounding = ROUNDING[dtype] * max(float(largest[-1]), 0.0)
        curve = _curve(largest, [], 0, rounding)
        return SpectralEstimate(a.tokens, a.tokens - dimension, largest, *curve, 0, 0, 0.0, 0.0, 0.0, rounding)
    start = generator.standard_normal((dimension, count))
    start -= vectors @ (vectors.T @ start)
    start, _ = np.linalg.qr(start)
    top = float(largest[-1]) if largest.size else 0.0
    quadratures = _Quadratures(gram, start, vectors, min(depth, left), 10 * ROUNDING[dtype], top)
    for step in quadratures:
        if progress is not None:
            progress(total - depth + step, total)
    fine = quadratures.rules(quadratures.steps)
    rounding = ROUNDING[dtype] * max(top, *(float(rule.nodes[-1]) for rule in fine))
    curve = _curve(largest, fine, left, rounding)
    truncation = unresolved = floor = 0.0
    if not all(rule.exact for rule in fine):
        # where all steps take a node down to zero, half of them take it down to the root of what is zero
        zeros = any(rule.nodes[0] <= rounding for rule in fine)
        loose = rounding / math.sqrt(ROUNDING[dtype]) if zeros else rounding
        coarse = _curve(largest, quadratures.rules(max(1, quadratures.steps // 2)), left, loose)
        truncation = float(np.abs(curve[1] - np.interp(curve[0], *coarse)).max()) * dimension / a.tokens
        lowest = [rule.lowest(rounding) for rule in fine]
        excess = math.fsum(first - second for first, second, _ in lowest) / count
        unresolved, floor = max(0.0, excess) * left / a.tokens, max(node for *_, node in lowest)
    return SpectralEstimate(
        a.tokens,
        a.tokens - dimension,
        largest,
        *curve,
        count,
        quadratures.steps,
        truncation,
        unresolved,
        floor,
        rounding,
    )


@dataclass(frozen=True)
class _Rule:
    """A Gauss quadrature: ascending nodes, their weights, and whether it is exact."""

    nodes: Array
    weights: Array
    exact: bool

    def lowest(self, rounding: float) -> tuple[float, float, float]:
        """Weights of the lowest node above rounding and of the next one, and that one."""
        first = int(np.searchsorted(self.nodes, rounding, side="right"))
        if self.exact or first == len(self.nodes):
            return 0.0, 0.0, 0.0
        if first == len(self.nodes) - 1:
            return float(self.weights[first]), 0.0, float(self.nodes[first])
        return float(self.weights[first]), float(self.weights[first + 1]), float(self.nodes[first + 1])

    def curve(self, rounding: float) -> tuple[Array, Array]:
        """Singular values and the distribution function there, to be interpolated."""
        ends = np.cumsum(self.weights)
        zero = int(np.searchsorted(self.nodes, rounding, side="right"))
        if self.exact:
            s = np.sqrt(np.where(np.arange(len(self.nodes)) < zero, 0.0, self.nodes))
            below = np.maximum(np.nextafter(s, -np.inf), 0)
            return np.column_stack([below, s]).reshape(-1), np.column_stack([ends - self.weights, ends]).reshape(-1)
        s = np.sqrt(self.nodes[zero:])
        mass = float(ends[zero - 1]) if zero else 0.0
        last = np.nextafter(s[-1], np.inf) if s.size else np.nextafter(0.0, np.inf)
        middle = ends[zero:] - self.weights[zero:] / 2
        return np.concatenate([[0.0], s, [last]]), np.concatenate([[mass], middle, [1.0]])


def _curve(largest: Array, rules: list[_Rule], remaining: int, rounding: float) -> tuple[Array, Array]:
    """Singular values, ascending, and the distribution function there, of those split off and the quadratures."""
    top = np.sqrt(np.where(largest > rounding, largest, 0.0))
    curves = [rule.curve(rounding) for rule in rules]
    grid = np.unique(np.concatenate([[0.0], *(s for s, _ in curves), np.maximum(np.nextafter(top, -np.inf), 0), top]))
    total = np.zeros(grid.shape)
    for s, levels in curves:
        # the last of equal points holds: several values at 0
        last = np.append(s[1:] > s[:-1], True)
        total += np.interp(grid, s[last], levels[last], left=0.0, right=1.0)
    apart = np.searchsorted(np.sort(top), grid, side="right")
    share = remaining * total / max(1, len(curves))
    return grid, np.maximum.accumulate((apart + share) / (len(top) + remaining))


def spectral_cdf(
    a: Attention,
    rng: Any,
    grid: Any,
    method: str = "lanczos",
    *,
    probes: int | None = None,
    steps: int | None = None,
    centered: bool = True,
    dtype: Any = "float64",
    device: Any = None,
) -> Array:
    """Distribution function of the squared singular values of √keys (A - Ā) of one draw, on a grid.

    Parameters
    ----------
    a, rng, centered, dtype, device : as for `spectral_estimate`; the matrix is that of ``a.spectrum(rng)``.
    grid : points x, any shape.
    method : "lanczos", stochastic Lanczos quadrature without storing A; or "dense", exact, from ``a.spectrum(rng)``.
    probes, steps : as for `spectral_estimate`; for "lanczos" only.

    Returns
    -------
    Share of the squared singular values that are ≤ x, of the shape of the grid.

    Raises
    ------
    ParameterError : method is unknown, grid holds NaN or no real numbers, or as `spectral_estimate`.
    CertificationError : a twentieth of the values and more pile up at zero unresolved, and the grid has points there.
    """
    _refuse_no_head(a)
    points = _checks.real_array("grid", grid)
    if method == "dense":
        if probes is not None or steps is not None:
            raise ParameterError(f'probes and steps belong to method="lanczos"; got probes={probes!r}, steps={steps!r}')
        values = a.spectrum(rng, centered, dtype=dtype, device=device)
        found: Array = np.searchsorted(values, points, side="right") / values.size
        return found
    if method != "lanczos":
        raise ParameterError(f'method must be "lanczos" or "dense"; got {method!r}')
    estimate = spectral_estimate(a, rng, probes=probes, steps=steps, centered=centered, dtype=dtype, device=device)
    below = (points > 0) & (points < estimate.floor)
    if estimate.unresolved > UNRESOLVED and below.any():
        raise CertificationError(
            f"{100 * estimate.unresolved:.0f} % of the squared singular values lie about or below "
            f"{estimate.floor:.3g}, where {estimate.steps} steps do not resolve them, and grid has points there, such "
            f"as {float(points[below][0])!r}: "
            'take more steps, points above, or method="dense"'
        )
    return estimate.cdf(points)


def top_singular_values(
    a: Attention, rng: Any, k: int, *, centered: bool = True, dtype: str = "float64", device: Any = None
) -> Array:
    """The k largest singular values of √keys (A - Ā) of one draw, descending, by block Lanczos, A never stored.

    Their squares are the last of ``a.spectrum(rng)``. The number of passes over the matrix grows with tokens, as
    neighbours at the edge of the bulk come closer: some ten for values that stand alone, tens at the edge.

    Parameters
    ----------
    a, rng, centered, dtype, device : as for `spectral_estimate`.
    k : from 1 to min(tokens, keys).

    Returns
    -------
    Array of shape (k,). The residuals of the squares are at most 1e-7 (float64) or 1e-4 (float32) of the largest
    square, which bounds their errors; these are as a rule of the order of the squares of the residuals.

    Raises
    ------
    ParameterError : k is out of range, or as `spectral_estimate`.
    CertificationError : the residuals stay above their bound.
    """
    _refuse_no_head(a)
    number = _checks.positive_integer("k", k)
    generator = _checks.generator(rng)
    dimension = min(a.tokens, a.columns)
    if number > dimension:
        raise ParameterError(f"k must be at most {dimension}, the smaller of tokens and keys; got {k!r}")
    operator = AttentionOperator(a, generator, centered=centered, dtype=dtype, device=device)
    width = min(dimension, number + 16)
    start, _ = np.linalg.qr(generator.standard_normal((dimension, width)))
    lanczos = BlockLanczos(operator.gram, start)
    allowed = _RESIDUAL * (1e3 if dtype == "float32" else 1.0)
    while True:
        lanczos.step()
        values, residuals = lanczos.largest(number)
        if len(values) == number and residuals.max() <= allowed * max(values[0], np.finfo(np.float64).tiny):
            return np.sqrt(np.maximum(values, 0))
        if lanczos.ended or lanczos.size > max(_LARGEST_BASIS, 8 * width):
            raise CertificationError(
                f"the {number} largest singular values have not converged after {lanczos.steps} passes: the residual "
                f"of their squares is {residuals.max() / values[0]:.1e} of the largest, where "
                f"{allowed:.0e} is asked for. Ask for fewer, or take the dense spectrum, Attention.spectrum"
            )


def _refuse_no_head(a: Any) -> None:
    if not isinstance(a, Attention):
        raise ParameterError(f"a must be a gequiv.Attention; got {a!r}")


class _Quadratures:
    """Lanczos from all columns of `start` at once, orthogonal to given vectors; iterating makes the steps.

    A column ends, exact, where what is new is within `tolerance` of what is known or of `largest`.
    """

    def __init__(
        self,
        gram: Callable[[Array], Array],
        start: Array,
        apart: Array,
        steps: int,
        tolerance: float,
        largest: float,
    ) -> None:
        self.gram, self.start, self.apart, self.steps = gram, start, apart, steps
        self.tolerance, self.largest = tolerance, largest
        count = start.shape[1]
        self.diagonal, self.beside = np.zeros((steps, count)), np.zeros((steps, count))
        self.length, self.ended = np.full(count, steps), np.zeros(count, dtype=np.bool_)

    def __iter__(self) -> Iterator[int]:
        previous, current, last = np.zeros_like(self.start), self.start.copy(), np.zeros(self.start.shape[1])
        for step in range(self.steps):
            image = self.gram(current)
            image -= self.apart @ (self.apart.T @ image)
            self.diagonal[step] = np.einsum("ij,ij->j", current, image)
            previous *= last
            image -= previous
            image -= self.diagonal[step] * current
            last = np.linalg.norm(image, axis=0)
            scale = np.abs(self.diagonal[: step + 1]).max(axis=0) + self.beside[: step + 1].max(axis=0)
            ended = (last <= self.tolerance * np.maximum(scale, self.largest)) & ~self.ended
            self.length[ended] = step + 1
            self.ended |= ended
            self.beside[step] = last
            last = np.where(self.ended, 0.0, last)
            image /= np.where(last > 0, last, np.inf)
            previous, current = current, image
            yield step + 1
            if self.ended.all():
                self.steps = step + 1
                return
        if self.steps == self.start.shape[0] - self.apart.shape[1]:
            self.ended[:] = True

    def rules(self, steps: int) -> list[_Rule]:
        """The quadrature of each probe after some of the steps."""
        from scipy.linalg import eigh_tridiagonal

        found = []
        for k in range(len(self.length)):
            m = min(steps, int(self.length[k]))
            values, vectors = eigh_tridiagonal(self.diagonal[:m, k], self.beside[: m - 1, k])
            exact = bool(self.ended[k]) and m == self.length[k]
            found.append(_Rule(np.maximum(values, 0), vectors[0] ** 2, exact))
        return found


class BlockLanczos:
    """Block Lanczos with full reorthogonalisation; blocks shrink where directions are exhausted.

    Attributes
    ----------
    steps : number of steps done.
    size : dimension of the Krylov space so far.
    ended : whether the Krylov space is invariant: the quadrature is exact.
    """

    def __init__(self, gram: Callable[[Array], Array], start: Array) -> None:
        self.gram = gram
        self.dimension, self.probes = start.shape
        self.basis = [start]
        self.diagonal: list[Array] = []
        self.beside: list[Array] = []
        self.scale = 0.0
        self.ended = False

    @property
    def steps(self) -> int:
        return len(self.diagonal)

    @property
    def size(self) -> int:
        return sum(len(block) for block in self.diagonal)

    def step(self) -> None:
        """One more block."""
        from scipy.linalg import qr

        current = self.basis[-1]
        image = self.gram(current)
        block = current.T @ image
        self.diagonal.append((block + block.T) / 2)
        self.scale = max(self.scale, float(np.abs(block).max()))
        for _ in range(2):
            for earlier in reversed(self.basis):
                image -= earlier @ (earlier.T @ image)
        free = self.dimension - sum(block.shape[1] for block in self.basis)
        if free == 0:
            self.ended = True
            return
        q, r, order = qr(image, mode="economic", pivoting=True, overwrite_a=True, check_finite=False)
        rank = min(free, int(np.count_nonzero(np.abs(np.diag(r)) > 1e-14 * self.dimension * self.scale)))
        if rank == 0:
            self.ended = True
            return
        beside = np.empty((rank, r.shape[1]))
        beside[:, order] = r[:rank]
        self.beside.append(beside)
        self.basis.append(np.ascontiguousarray(q[:, :rank]))

    def matrix(self) -> Array:
        """The block tridiagonal matrix of all steps."""
        steps, ends = self.steps, np.cumsum([0, *(len(block) for block in self.diagonal)])
        whole = np.zeros((ends[-1], ends[-1]))
        for k in range(steps):
            whole[ends[k] : ends[k + 1], ends[k] : ends[k + 1]] = self.diagonal[k]
            if k + 1 < steps:
                whole[ends[k + 1] : ends[k + 2], ends[k] : ends[k + 1]] = self.beside[k]
                whole[ends[k] : ends[k + 1], ends[k + 1] : ends[k + 2]] = self.beside[k].T
        return whole

    def converged(self, bound: float) -> tuple[Array, Array]:
        """Ritz values whose residuals are at most `bound` of them, ascending, without gaps from the top, and vectors.

        At most half of the Krylov space is taken, unless it is invariant.
        """
        whole = self.matrix()
        values, vectors = np.linalg.eigh(whole)
        if self.ended:
            first = 0
        else:
            residuals = np.linalg.norm(self.beside[-1] @ vectors[-len(self.diagonal[-1]) :], axis=0)
            bad = np.flatnonzero(residuals > bound * np.abs(values))
            first = max(len(values) // 2, int(bad[-1]) + 1 if bad.size else 0)
        kept = vectors[:, first:]
        ends = np.cumsum([0, *(len(block) for block in self.diagonal)])
        full = np.zeros((self.dimension, kept.shape[1]))
        for k in range(self.steps):
            full += self.basis[k] @ kept[ends[k] : ends[k + 1]]
        return values[first:], full

    def largest(self, number: int) -> tuple[Array, Array]:
        """The largest Ritz values, descending, and their residuals."""
        from scipy.linalg import eigh

        whole = self.matrix()
        first = max(0, len(whole) - number)
        values, vectors = eigh(whole, subset_by_index=(first, len(whole) - 1))
        residuals = np.zeros(len(values))
        if not self.ended:
            residuals = np.linalg.norm(self.beside[-1] @ vectors[-len(self.diagonal[-1]) :], axis=0)
        return values[::-1], residuals[::-1]
