"""Compound free Poisson laws."""

from __future__ import annotations

from typing import Any

from gequiv import _checks
from gequiv.errors import ParameterError
from gequiv.laws.atomic import Atomic
from gequiv.laws.subordinated import CurveLaw
from gequiv.laws.subordination import AddFree, Increment, Leaf


class CompoundFreePoisson(CurveLaw):
    r"""The free analogue of the compound Poisson law: free cumulants :math:`\lambda \sum_j w_j a_j^k`.

    .. math:: R(g) = \lambda \sum_j \frac{w_j a_j}{1 - a_j g}.

    It is the limit law of :math:`X D X^T/n` for X of n rows and :math:`\lambda n` columns of independent standard
    entries and D diagonal with the given locations in the given shares: a sample covariance matrix. Mean
    :math:`\lambda \sum w_j a_j`, variance :math:`\lambda \sum w_j a_j^2`; an atom at 0 of weight :math:`1 - \lambda`
    for :math:`\lambda < 1` (jumps at 0 count as none). With one jump a it is Marchenko–Pastur of ratio
    :math:`1/\lambda` and mean :math:`\lambda a`.

    Parameters
    ----------
    rate : λ, above 0.
    locations : the jumps a_j, finite, of either sign, not all 0.
    weights : their shares w_j, of sum 1 to 1e-12; equal by default.

    Raises
    ------
    ParameterError : rate is not a positive finite number; locations and weights do not make an `Atomic` law; every
        location is 0.
    CertificationError : the law could not be certified.

    Sources: Speicher 1998; Nica and Speicher 2006, Lecture 12; Marchenko and Pastur 1967.

    Examples
    --------
    >>> law = CompoundFreePoisson(0.5, [1, 5], [0.3, 0.7])
    >>> law.atoms(), round(law.mean(), 12)
    ([(0.0, 0.5)], 1.9)
    """

    def __init__(self, rate: Any, locations: Any, weights: Any = None) -> None:
        self.rate = _checks.positive_real("rate", rate)
        self.jumps = Atomic(locations, weights)
        jumps = [(a, w) for a, w in self.jumps.atoms() if a != 0]
        if not jumps:
            raise ParameterError(f"locations must not all be 0: then the law is the point mass at 0; got {locations!r}")
        self._own = Increment(
            self.rate * sum(a * w for a, w in jumps),
            tuple(a for a, _ in jumps),
            tuple(self.rate * w * a * a for a, w in jumps),
        )
        super().__init__(AddFree(Leaf(Atomic([0.0])), self._own))

    def __reduce__(self) -> tuple[Any, ...]:
        locations, weights = zip(*self.jumps.atoms(), strict=True)
        return type(self), (self.rate, locations, weights)

    def __repr__(self) -> str:
        return f"CompoundFreePoisson(rate={self.rate:g}, {self.jumps!r})"

    def _increment(self) -> Increment:
        return self._own
