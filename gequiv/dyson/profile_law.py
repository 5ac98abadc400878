r"""The law of a profiled sum of Gaussian products plus noise, from its Dyson equation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from gequiv._checks import ComplexArray
from gequiv.dyson._profile_edges import ProfileNodes, Support
from gequiv.dyson._solved import SolvedLaw
from gequiv.dyson.profile import Component, ProfileEquation
from gequiv.dyson.scan import MissedGapError
from gequiv.errors import CertificationError, ParameterError

_TOLERANCES = (1e-10, 1e-9, 1e-8)
_CIRCLE = 96
_MOST_MISSED = 40
_MOST_HALVINGS = 2


class ProfileLaw(SolvedLaw):
    r"""Law of Y Yᵀ for the profiled model of `gequiv.dyson.profile`, every variance of the noise being above 0.

    The continuous part has mass min(1, columns/rows), the rest is an atom at 0. The density is stored in edge-adapted
    Chebyshev panels whose nodes solve the equation; edges are folds of its real solution.

    Parameters
    ----------
    rows, columns, components, noise : as for `ProfileEquation`.

    Attributes
    ----------
    equation : the `ProfileEquation`.
    certificate : `gequiv.laws.base.Certificate`, what was verified before the constructor returned.

    Raises
    ------
    ParameterError : a parameter is of the wrong kind, shape or range.
    CertificationError : the law could not be certified.

    Examples
    --------
    >>> law = ProfileLaw([0.5, 0.5], [0.5, 0.5], [Component([[1.0, 0.8], [0.8, 0.6]], inner=0.2)], noise=0.3)
    >>> round(law.moment(1), 12)
    0.96
    """

    equation: ProfileEquation
    _patient = True
    """Whether to scan more finely where the law cannot be certified at first."""

    def __init__(self, rows: Any, columns: Any, components: Sequence[Component], noise: Any) -> None:
        self._arguments = (rows, columns, components, noise)
        self.equation = ProfileEquation(rows, columns, components, noise)
        if not (self.equation.noise > 0).all():
            raise ParameterError("noise must be above 0 in every pair of cells: the law needs it")
        self.scale = self.equation.scale
        self._atom = self.equation.atom
        self._build(Support(self.equation))

    def _build(self, support: Support) -> None:
        """Store and certify; where that shows that the scan missed something, scan more finely."""
        halvings = 0
        for attempt in range(_MOST_MISSED + 1):
            self._intervals = support.intervals
            self._local = ProfileNodes(self.equation, support)
            try:
                self._density = self._store(support.exponents, None, _TOLERANCES)
                self.certificate = self._certify()
                return
            except MissedGapError as missed:
                if attempt == _MOST_MISSED:
                    raise
                support.add(missed.x)
            except CertificationError:
                if halvings == _MOST_HALVINGS or not self._patient:
                    raise
                halvings += 1
                support.halve()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments

    def __repr__(self) -> str:
        return repr(self.equation).replace("ProfileEquation", type(self).__name__)

    @cached_property
    def _on_circle(self) -> tuple[ComplexArray, ComplexArray]:
        """z and G(z) on the upper half of a circle around the support, in units of the mean."""
        radius = 2 * self._intervals[-1][1] / self.scale
        z = radius * np.exp(1j * np.pi * (np.arange(_CIRCLE) + 0.5) / _CIRCLE)
        return z, self._local.cauchy(z)

    def _scaled_moment(self, k: int) -> float:
        r""":math:`m_k = \oint z^k G(z)\,dz/2\pi i` by the trapezoidal rule, which converges exponentially."""
        z, value = self._on_circle
        with np.errstate(over="raise"):
            try:
                return float((z ** (k + 1) * value).real.mean())
            except FloatingPointError:
                return float("inf")
