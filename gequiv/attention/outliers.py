r"""Singular values outside the bulk: deterministic directions of low rank seen through the Dyson equation.

Let T be the deterministic part that the bulk's model leaves out, :math:`T_{ij} = E(p,q)/\sqrt n` between cells. With
the cells' resolvents g, h of the Dyson equation a singular value lies at a point x outside the support where the matrix

.. math::
    K(x) = n\,\mathrm{diag}(\sqrt{\delta_p g_p})\, E\,\mathrm{diag}(\delta_q h_q)\,E^T
        \mathrm{diag}(\sqrt{\delta_p g_p})

has an eigenvalue one. Its eigenvalues fall with x, so that one lies outside exactly if it exceeds one at the edge
(Baik, Ben Arous and Péché's condition; Benaych-Georges and Nadakuditi 2012 for rectangular matrices).
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Protocol

import numpy as np
from scipy.optimize import brentq

from gequiv._checks import Array
from gequiv.errors import CertificationError

_FARTHEST = 1e12
_IN_GAP = 16  # points of a gap at which the determinant's sign is looked at


class Outlier(tuple[float, bool]):
    """(location, visible): where a squared singular value is expected, and whether it leaves the bulk.

    Attributes
    ----------
    location : in squared singular values of √keys (A - Ā), or of √keys A for the Perron value; the right edge of the
        bulk where it is not visible.
    visible : whether it lies outside the bulk.
    origin : which direction it belongs to.
    strength : eigenvalue of K at the right edge of the bulk; above one, it lies outside. One below one may still lie in
        a gap.
    """

    origin: str
    strength: float

    def __new__(cls, location: float, visible: bool, origin: str, strength: float) -> Outlier:
        self = super().__new__(cls, (location, visible))
        self.origin, self.strength = origin, strength
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self[0], self[1], self.origin, self.strength)

    @property
    def location(self) -> float:
        """Where it is expected."""
        return self[0]

    @property
    def visible(self) -> bool:
        """Whether it leaves the bulk."""
        return self[1]

    def __repr__(self) -> str:
        return (
            f"Outlier(location={self[0]:.6g}, visible={self[1]}, origin={self.origin!r}, strength={self.strength:.4g})"
        )


class Resolvents(Protocol):
    """δ_p g_p and δ_q h_q of all cells at a real point right of the support, in true units."""

    def __call__(self, x: float) -> tuple[Array, Array]: ...


def find_outliers(
    resolvents: Resolvents,
    part: Array,
    columns: float,
    intervals: list[tuple[float, float]],
    origin: str,
    constant: Array | None = None,
    rest: str | None = None,
) -> list[Outlier]:
    """Outliers of one deterministic part E, largest first; if none is visible, its strongest direction at the edge.

    Parameters
    ----------
    resolvents : of the bulk.
    part : E, shape (row cells, column cells).
    columns : n.
    intervals : the support of the bulk; gaps between its intervals are searched too.
    origin : name of the direction.
    rest : name of the further directions of the same part, the same by default.
    constant : (row cells, k) vectors u to be added as Σ u_k v_kᵀ/√n with v_k in the kernel of the bulk, for which h is
        one: for rows of A, which sum to one, u = v = 1.
    """

    def sides(x: float) -> tuple[Array, Array]:
        g, h = resolvents(x)
        columns_h = np.ones(0) if constant is None else np.ones(constant.shape[1])
        whole = part if constant is None else np.hstack([constant, part])
        return g, columns * (whole * np.concatenate([columns_h, h])) @ whole.T

    def eigenvalues(x: float) -> Array:
        g, inner = sides(x)
        root = np.sqrt(g)
        return np.asarray(np.linalg.eigvalsh(root[:, None] * inner * root)[::-1])

    def determinant(x: float) -> float:
        g, inner = sides(x)
        return float(np.linalg.det(np.eye(g.size) - inner * g))

    edge = intervals[-1][1]
    above = edge * (1 + 1e-7)
    strengths = eigenvalues(above)
    found = []
    for k in range(int(np.count_nonzero(strengths > 1))):
        high = 2 * edge
        while eigenvalues(high)[k] > 1:
            high *= 2
            if high > _FARTHEST * edge:
                raise CertificationError(f"the outlier of the {origin} lies beyond {high!r}: its part is too large")
        root = brentq(lambda t, k=k: math.log(eigenvalues(math.exp(t))[k]), math.log(above), math.log(high), xtol=1e-10)
        name = origin if k == 0 or rest is None else rest
        found.append(Outlier(math.exp(root), True, name, float(strengths[k])))
    for lower, upper in itertools.pairwise(intervals):
        x = lower[1] + (upper[0] - lower[1]) * 0.5 * (1 - np.cos(np.pi * (np.arange(_IN_GAP) + 0.5) / _IN_GAP))
        values = np.array([determinant(float(point)) for point in x])
        for left in np.flatnonzero(values[1:] * values[:-1] < 0):
            root = brentq(determinant, float(x[left]), float(x[left + 1]), xtol=1e-12 * edge)
            found.append(Outlier(float(root), True, origin, float(strengths[0])))
    if not found:
        found.append(Outlier(edge, False, origin, float(strengths[0])))
    return sorted(found, key=lambda outlier: -outlier.location)
