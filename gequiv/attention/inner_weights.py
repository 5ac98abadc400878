r"""Weights of the inner directions of a head, and laws of norms, as discrete measures of few nodes.

The scores of a head are :math:`x_i^T M x_j` up to scale; the weights of its :math:`d_k` inner directions are the
squared singular values :math:`m_a^2` of M, in units of their mean. What enters the Dyson equation are probability
measures on :math:`[0, \infty)`, each replaced by its Gauss quadrature: with `count` nodes it keeps the moments of order
0 to 2 count - 1.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from gequiv._checks import Array
from gequiv.errors import CertificationError, ParameterError
from gequiv.laws.multiprecision import exact, multiprecision

_EPS = float(np.finfo(np.float64).eps)
_AGREEMENT = 4 * _EPS


@dataclasses.dataclass(frozen=True, eq=False)
class Quadrature:
    """A discrete probability measure on [0, inf): Σ shares_i δ(nodes_i).

    Attributes
    ----------
    nodes : ascending, distinct, of at least 0; read-only.
    shares : positive, of sum one; of the shape of nodes; read-only.
    """

    nodes: Array
    shares: Array

    def __post_init__(self) -> None:
        self.nodes.setflags(write=False)
        self.shares.setflags(write=False)

    def moment(self, order: int) -> float:
        """Σ shares_i nodes_i^order."""
        return float(self.shares @ self.nodes**order)


def compress(nodes: Any, shares: Any, count: int) -> Quadrature:
    r"""Gauss quadrature of a discrete measure: its moments of order 0 to 2 count - 1 in at most count nodes.

    Lanczos on diag(nodes) started at √shares, with full reorthogonalisation, gives the measure's Jacobi matrix; its
    eigenvalues are the nodes, the squares of the first components of its eigenvectors the shares (Golub, Welsch 1969).
    Moments of order k are kept to rounding of (largest node)^k. A measure of at most count atoms is returned as it is.

    Parameters
    ----------
    nodes, shares : shape (N,), in any order, repetitions allowed; nodes of at least 0, shares of at least 0, of any
        positive sum, which is scaled to one.
    """
    measure = _measure(np.asarray(nodes, dtype=np.float64), np.asarray(shares, dtype=np.float64))
    if measure.nodes.size <= count:
        return measure
    low, high = measure.nodes[0], measure.nodes[-1]
    diagonal, off_diagonal = _lanczos(measure.nodes / high, np.sqrt(measure.shares), count)
    values, weights = _golub_welsch(diagonal, off_diagonal)
    return _measure(np.clip(high * values, low, high), weights)


def from_moments(moments: Sequence[Any], count: int, dps: int) -> Quadrature:
    r"""Gauss quadrature of a measure on [0, inf) from its moments, by Chebyshev's algorithm in dps decimal digits.

    With σ_{-1,l} = 0, σ_{0,l} = m_l and β_0 = 0,

    .. math:: \sigma_{k,l} = \sigma_{k-1,l+1} - \alpha_{k-1}\sigma_{k-1,l} - \beta_{k-1}\sigma_{k-2,l}, \qquad
        \beta_k = \frac{\sigma_{k,k}}{\sigma_{k-1,k-1}}, \qquad
        \alpha_k = \frac{\sigma_{k,k+1}}{\sigma_{k,k}} - \frac{\sigma_{k-1,k}}{\sigma_{k-1,k-1}}

    are the entries of the Jacobi matrix (diagonal α_k, off-diagonal √β_k). A measure of r < count atoms has β_r = 0,
    and its r atoms are returned; the test is |β_r| ≤ 10^{-dps/2} in units of (m_{2 count - 1}/m_{2 count - 2})².

    Parameters
    ----------
    moments : m_0 = 1, m_1, ..., m_{2 count - 1} or more; int, Fraction or mpf, good to dps digits. The algorithm loses
        about 1.5 digits a node on an interval from 0, more on a narrow one.

    Raises
    ------
    CertificationError : some β_k < 0: no measure has these moments, or they are not known well enough.

    Source: Gautschi, Orthogonal Polynomials: Computation and Approximation (2004), section 2.1.7.
    """
    values, weights = _golub_welsch(*_chebyshev(moments, count, dps))
    return _measure(np.maximum(values, 0.0), weights)


def of_weights(weights: Any, count: int) -> Quadrature:
    """Law of a list of weights m_a² with equal shares, compressed to count nodes, of mean one.

    Raises
    ------
    ParameterError : the weights are all zero.
    """
    values = _unit_mean(weights)
    return _with_unit_mean(compress(values, np.ones(values.size), count))


def expected_weights(head_dim: int, width: int, covariance: tuple[float, ...] | None, count: int) -> Quadrature:
    r"""Law of the inner weights of an untrained head, of mean one: its limit as d, d_k → ∞ at fixed d_k/d.

    With W_Q, W_K of shape (d, d_k) and iid N(0, 1/d) entries and M = Σ^{1/2} W_Q W_Kᵀ Σ^{1/2}, the d_k weights are the
    eigenvalues of (W_Qᵀ Σ W_Q)(W_Kᵀ Σ W_K). One factor has the free cumulants κ_j = (d_k/d)^{j-1} tr Σ^j/d, and with
    C(z) = Σ κ_j z^j the product of two free ones has the moments

    .. math:: m_k = \frac1k \sum_{n=0}^{k-1} \binom{k}{n+1} \frac{2k}{2k-n}\, [z^n] \Bigl(\frac{C(z)}{z}\Bigr)^{2k-n} ,

    which is Lagrange inversion of ψ⁻¹(u) = (C⁻¹(u))²/(u(1+u)), twice. For d = d_k, Σ = 1: Fuss–Catalan numbers
    binom(3k, k)/(2k+1). Where r = rank Σ < d_k, the law has an atom 1 - r/d_k at zero and a density of order x^{-1/2}
    next to it: the least node tends to zero, its share to the atom's from above, by O(1/count). At finite sizes the
    expected weights differ from their limit by O(1/d): with s = tr Σ²/d, tr Σ = d, the second moment is
    1 + 2(d_k+1)s/d + (d_k+3)(s/d)² instead of 1 + 2 d_k s/d.

    Parameters
    ----------
    head_dim, width : d_k and d.
    covariance : eigenvalues of Σ, with equal shares and any scale; None for the identity.

    Raises
    ------
    ParameterError : the covariance is zero.
    CertificationError : the quadrature did not settle in multiprecision.

    Source: free compound Poisson laws and the S-transform, Nica, Speicher, Lectures on the Combinatorics of Free
    Probability (2006), lectures 12 and 18.
    """
    spectrum = of_weights((1.0,) if covariance is None else covariance, count)
    ratio = Fraction(head_dim, width)
    previous = None
    for digits in (30 + 6 * count, 60 + 12 * count, 120 + 24 * count, 240 + 48 * count):
        jacobi = _chebyshev(_product_moments(digits, ratio, spectrum, 2 * count - 1), count, digits)
        if previous is not None and all(map(_agree, jacobi, previous)):
            values, weights = _golub_welsch(*jacobi)
            return _with_unit_mean(_measure(np.maximum(values, 0.0), weights))
        previous = jacobi
    raise CertificationError(f"the weights' quadrature of {count} nodes did not settle in multiprecision; take fewer")


def products(quadrature: Quadrature, degree: int, count: int) -> Quadrature:
    """Law of the product of `degree` independent draws, compressed to count nodes, of mean one.

    Its moments of order k < 2 count are those of the quadrature to the power `degree`, in units of its mean.

    Raises
    ------
    ParameterError : the quadrature is an atom at zero.
    """
    factor = compress(_unit_mean(quadrature.nodes, quadrature.shares), quadrature.shares, count)
    result = factor
    for _ in range(degree - 1):
        result = compress(
            np.multiply.outer(result.nodes, factor.nodes).ravel(),
            np.multiply.outer(result.shares, factor.shares).ravel(),
            count,
        )
    return _with_unit_mean(result)


def squared_products(weights: Any, count: int) -> Quadrature:
    """Law of m_a² m_b² over a ≤ b with equal shares, compressed to count nodes, of mean one.

    Parameters
    ----------
    weights : the d_k weights m_a², in any order.

    Raises
    ------
    ParameterError : the weights are all zero.
    """
    values = _unit_mean(weights)
    first, second = np.triu_indices(values.size)
    pairs = values[first] * values[second]
    return _with_unit_mean(compress(pairs, np.ones(pairs.size), count))


def effective_dimension(weights: Any, head_dim: int) -> float:
    """Effective number of inner directions, d_k (mean w)²/mean(w²): d_k if all weights are equal.

    Parameters
    ----------
    weights : a `Quadrature`, or a list of weights with equal shares.

    Raises
    ------
    ParameterError : the weights are all zero.
    """
    if isinstance(weights, Quadrature):
        return head_dim / float(weights.shares @ _unit_mean(weights.nodes, weights.shares) ** 2)
    return head_dim / float(np.mean(_unit_mean(weights) ** 2))


def norm_nodes(shape: float, count: int) -> Quadrature:
    """Gauss quadrature of Gamma(shape)/shape, of mean one; χ²_{d_k}/d_k has shape d_k/2.

    Golub–Welsch on the Jacobi matrix of the generalised Laguerre polynomials of α = shape - 1: diagonal 2k + 1 + α,
    off-diagonal √(k(k+α)), both over shape. Shares are 1/Σ_k p_k(node)², p_k the orthonormal polynomials, k < count.
    Beyond about 150 nodes the polynomials overflow.
    """
    k: Array = np.arange(1.0, count)
    diagonal: Array = 2.0 * np.arange(0.0, count) / shape  # less one
    off_diagonal: Array = np.sqrt(k * (k + (shape - 1.0))) / shape
    values, _ = _golub_welsch(diagonal, off_diagonal)
    before, here, total = np.zeros(count), np.ones(count), np.ones(count)
    for j in range(count - 1):
        below = off_diagonal[j - 1] if j else 0.0
        before, here = here, ((values - diagonal[j]) * here - below * before) / off_diagonal[j]
        total += here**2
    return _with_unit_mean(_measure(1.0 + values, 1.0 / total))


# -- Jacobi matrices ------------------------------------------------------------------------------------


def _lanczos(nodes: Array, start: Array, count: int) -> tuple[Array, Array]:
    """Diagonal and off-diagonal of the Jacobi matrix, of order count or less where the residual is only rounding."""
    basis = np.zeros((count, nodes.size))
    basis[0] = start / np.linalg.norm(start)
    diagonal, off_diagonal = [], []
    for j in range(count):
        residual = nodes * basis[j]
        size = float(np.linalg.norm(residual))
        diagonal.append(float(basis[j] @ residual))
        if j + 1 == count:
            break
        known = basis[: j + 1]
        for _ in range(2):
            residual -= (known @ residual) @ known
        norm = float(np.linalg.norm(residual))
        if norm <= 8 * _EPS * size:
            break
        off_diagonal.append(norm)
        basis[j + 1] = residual / norm
    return np.array(diagonal), np.array(off_diagonal)


def _chebyshev(moments: Sequence[Any], count: int, dps: int) -> tuple[Array, Array]:
    """Diagonal α_k and off-diagonal √β_k of the Jacobi matrix of `from_moments`."""
    ctx = multiprecision(dps)
    raw = [exact(ctx, "moments", m) for m in moments[: 2 * count]]
    if not raw[1]:
        return np.zeros(1), np.zeros(0)
    scale = raw[-1] / raw[-2]
    before, here = [ctx.mpf(0)] * (2 * count), [m / scale**k for k, m in enumerate(raw)]
    tolerance = ctx.mpf(10) ** (-dps // 2)
    diagonal, squares = [here[1] / here[0]], [ctx.mpf(0)]
    for k in range(1, count):
        after = [ctx.mpf(0)] * (2 * count)
        for j in range(k, 2 * count - k):
            after[j] = here[j + 1] - diagonal[-1] * here[j] - squares[-1] * before[j]
        square = after[k] / here[k - 1]
        if square < -tolerance:
            raise CertificationError(f"no measure has these moments up to order {2 * k}, at {dps} digits")
        if square <= tolerance:
            break
        squares.append(square)
        diagonal.append(after[k + 1] / after[k] - here[k] / here[k - 1])
        before, here = here, after
    off_diagonal = [float(scale * ctx.sqrt(b)) for b in squares[1:]]
    return np.array([float(scale * a) for a in diagonal]), np.array(off_diagonal)


def _golub_welsch(diagonal: Array, off_diagonal: Array) -> tuple[Array, Array]:
    """Eigenvalues of a Jacobi matrix, and the squares of the first components of its eigenvectors."""
    if diagonal.size == 1:
        return diagonal, np.ones(1)
    from scipy.linalg import eigh_tridiagonal  # loaded on use: it is slow to load

    values, vectors = eigh_tridiagonal(diagonal, off_diagonal)
    return values, vectors[0] ** 2


# -- measures -------------------------------------------------------------------------------------------


def _measure(nodes: Array, shares: Array) -> Quadrature:
    """Equal nodes merged, those without a share left out, the shares scaled to sum one."""
    parts = shares / shares.sum()
    present = parts > 0
    distinct, where = np.unique(nodes[present], return_inverse=True)
    merged = np.bincount(where, weights=parts[present])
    return Quadrature(distinct, merged / merged.sum())


def _unit_mean(weights: Any, shares: Array | None = None) -> Array:
    """Weights over their mean; equal shares where none are given."""
    values = np.asarray(weights, dtype=np.float64)
    largest = values.max()
    if not largest > 0:
        raise ParameterError("the inner weights must not all be zero: a head without scores has no law")
    scaled: Array = values / largest
    return scaled / np.average(scaled, weights=shares)


def _with_unit_mean(rule: Quadrature) -> Quadrature:
    return Quadrature(_unit_mean(rule.nodes, rule.shares), rule.shares.copy())


def _agree(values: Array, others: Array) -> bool:
    return values.size == others.size and np.allclose(values, others, rtol=_AGREEMENT, atol=0.0)


# -- free probability -----------------------------------------------------------------------------------


def _product_moments(digits: int, ratio: Fraction, spectrum: Quadrature, order: int) -> list[Any]:
    """m_0 to m_order of `expected_weights`, for Σ of that spectrum; every term of the sum is positive."""
    ctx = multiprecision(digits)
    step = exact(ctx, "ratio", ratio)
    values = [ctx.mpf(float(v)) for v in spectrum.nodes]
    parts = [ctx.mpf(float(s)) for s in spectrum.shares]
    mean = ctx.fdot(parts, values)
    parts = [p * v / mean for p, v in zip(parts, values, strict=True)]
    series = []  # C(z)/z
    for _ in range(order):
        series.append(ctx.fsum(parts))
        parts = [p * v * step for p, v in zip(parts, values, strict=True)]
    moments = [ctx.mpf(1)] + [ctx.mpf(0)] * order
    power = [ctx.mpf(1)] + [ctx.mpf(0)] * (order - 1)
    for exponent in range(1, 2 * order + 1):
        length = min(order, 2 * order - exponent + 1)
        power = [ctx.fdot(power[: j + 1], series[j::-1]) for j in range(length)]
        for n in range(exponent % 2, min(length, exponent - 1), 2):
            k = (exponent + n) // 2
            moments[k] += math.comb(k, n + 1) * power[n] * 2 / exponent
    return moments
