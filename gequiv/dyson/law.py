r"""The law of a weighted chain of Gaussian factors plus Gaussian noise, from its Dyson equation."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from gequiv.dyson._chain_edges import LocalSolver, find_support
from gequiv.dyson._chain_moments import chain_moment
from gequiv.dyson._solved import SolvedLaw
from gequiv.dyson.chain_equation import ChainEquation

if TYPE_CHECKING:
    from collections.abc import Sequence

_TOLERANCES = (1e-13, 1e-12)  # the second where widely spread scales leave more rounding in the density


class WeightedChainPlusNoise(SolvedLaw):
    r"""Law of Y Yᵀ for Y = (√s S + √v Z)/√n, S a chain of Gaussian factors with deterministic weights between them.

    Model and equation are in the text of `gequiv.dyson.chain_equation`. Mean s + v; the continuous part has mass
    min(1, 1/aspect), the rest is an atom at 0. Without weights the law is that of
    `gequiv.laws.chain.GaussianChainPlusNoise`, computed independently of it.

    Parameters
    ----------
    inner : inner dimensions over the number of rows, N_i/m; may be empty. Integers, floats or exact fractions.
    weights : for each inner space None (identity) or the eigenvalues of D_i² (equal shares, at least 0, one above 0);
        normalised to mean one, so a mean other than one belongs into ``signal``.
    aspect : rows over columns, m/n.
    signal, noise : variances s > 0 and v > 0 of the entries of √s S and √v Z; fractions where the last digit of a float
        is not enough.

    Attributes
    ----------
    equation : the `ChainEquation`.
    certificate : `gequiv.laws.base.Certificate`, what was verified before the constructor returned.

    Raises
    ------
    ParameterError : a parameter is of the wrong kind or out of range.
    CertificationError : the law could not be certified.

    Examples
    --------
    >>> law = WeightedChainPlusNoise([2.0, 0.5, 2.0], [[1.0, 3.0], None, [1.0, 3.0]], 1, signal=1.0, noise=0.7)
    >>> round(law.moment(1), 12)
    1.7
    """

    equation: ChainEquation

    def __init__(self, inner: Sequence[Any], weights: Sequence[Any], aspect: Any, signal: Any, noise: Any) -> None:
        self._arguments = (inner, weights, aspect, signal, noise)
        self.equation = ChainEquation(inner, weights, aspect, signal, noise)
        self.scale = self.equation.scale
        self._intervals, exponents, folds = find_support(self.equation)
        self._local = LocalSolver(self.equation, self._intervals, exponents, folds)
        self._density = self._store(exponents, self._local.residues, _TOLERANCES)
        self._atom = float(max(Fraction(0), 1 - 1 / self.equation.aspect))
        self.certificate = self._certify()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments

    def __repr__(self) -> str:
        return repr(self.equation).replace("ChainEquation", type(self).__name__)

    def _scaled_moment(self, k: int) -> float:
        r"""From power series in multiprecision.

        With :math:`C(w) = \rho\, t(w) + (1-\rho)\, w` in units of the mean, where t solves t = w P(t) with
        P = ∏ t/τ_i(t), Lagrange inversion of 1/z = w/((1+C)(1+cC)) gives
        m_k = 1/k · [w^{k-1}] C'(w) ((1+C)(1+cC))^k. The working precision is raised until the digits agree.
        """
        return chain_moment(self.equation, k)
