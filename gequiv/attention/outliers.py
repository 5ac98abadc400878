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

import math
from typing import Any, Protocol

import numpy as np
from scipy.optimize import brentq

from gequiv._checks import Array
from gequiv.errors import CertificationError

_FARTHEST = 1e12


class Outlier(tuple[float, bool]):
    """(location, visible): where a squared singular value is expected, and whether it leaves the bulk.

    Attributes
    ----------
    location : in squared singular values of √keys (A - Ā), or of √keys A for the Perron value; the right edge of the
        bulk where it is not visible.
    visible : whether it lies outside the bulk.
    origin : which direction it belongs to.
    strength : eigenvalue of K at the right edge of the bulk; visible means above one.
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
    resolvents: Resolvents, part: Array, columns: float, edge: float, origin: str, constant: Array | None = None
) -> list[Outlier]:
    """Outliers of one deterministic part E, largest first, and the strongest of its directions that stay inside.

    Parameters
    ----------
    resolvents : of the bulk.
    part : E, shape (row cells, column cells).
    columns : n.
    edge : right edge of the bulk.
    origin : name of the direction.
    constant : (row cells, k) vectors u to be added as Σ u_k v_kᵀ/√n with v_k in the kernel of the bulk, for which h is
        one: for rows of A, which sum to one, u = v = 1.
    """

    def eigenvalues(x: float) -> Array:
        g, h = resolvents(x)
        sides = part * np.sqrt(h)
        matrix = np.sqrt(g)[:, None] * (sides if constant is None else np.hstack([constant, sides]))
        return np.asarray(columns * np.linalg.svd(matrix, compute_uv=False) ** 2, dtype=np.float64)

    above = edge * (1 + 1e-7)
    strengths = eigenvalues(above)
    found = []
    for k, strength in enumerate(strengths):
        if strength <= 1:
            if k == 0:
                found.append(Outlier(edge, False, origin, float(strength)))
            break
        high = 2 * edge
        while eigenvalues(high)[k] > 1:
            high *= 2
            if high > _FARTHEST * edge:
                raise CertificationError(f"the outlier of the {origin} lies beyond {high!r}: its part is too large")
        root = brentq(lambda t, k=k: math.log(eigenvalues(math.exp(t))[k]), math.log(above), math.log(high), xtol=1e-13)
        found.append(Outlier(math.exp(root), True, origin, float(strength)))
    return found
