r"""The finite-size law of a head: which model and which equation serve which parameters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gequiv._checks import Array
from gequiv.attention.head_model import HeadModel, head_model
from gequiv.attention.outliers import Outlier, find_outliers
from gequiv.dyson import Component, ProfileLaw
from gequiv.laws.base import Law

if TYPE_CHECKING:
    from gequiv.attention.parameters import Attention


class FiniteLaw(ProfileLaw):
    r"""The law of the squared singular values of √keys (A - Ā) at the head's own size, without a mask.

    The chaos-resolved, profiled Gaussian equivalent: see `gequiv.attention.chaos` (degrees and norms),
    `gequiv.attention.row_energy` (finitely many keys) and `gequiv.dyson.profile` (the equation).

    Attributes
    ----------
    head : the `Attention`.
    order : L, the highest chaos degree that is a component of its own.
    norm_nodes : number of nodes of the norms.
    """

    def __init__(self, head: Attention, model: HeadModel) -> None:
        self.head, self._model = head, model
        self.order, self.norm_nodes = model.order, model.norm_nodes
        keys = head.columns
        energies, level = model.energies(keys), model.mean_energy(keys)
        count = energies.nodes.size
        # rows: norm nodes times energy nodes
        factor = np.tile(energies.nodes, model.rows.size)[:, None]

        def cells(core: Array) -> Array:
            return np.repeat(core, count, axis=0)

        components = []
        for part in model.degrees:
            core = cells(part.core) * math.sqrt(level)
            if part.degree > model.explained:
                core = core * np.sqrt(factor)
            measure = part.measure
            weights = (None, None) if measure is None else (measure.nodes, measure.shares)
            components.append(Component(core, part.dimension / keys, *weights))
        rows = np.outer(model.rows, energies.shares).ravel() * float(head.aspect)
        self._mean = cells(model.mean)
        super().__init__(rows, model.columns, components, cells(model.noise) * level * factor)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.head, self._model)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.head!r}, order={self.order}, norm_nodes={self.norm_nodes})"

    def outliers(self) -> list[Outlier]:
        """Expected squared singular values outside the bulk, largest first, and whether each is visible.

        - the Perron value, of √keys A itself: A - Ā does not have it;
        - the column direction 1vᵀ, v_j = expected column sum less one: keys of large norm are looked at by all rows. It
          is in A - Ā; centring the columns as well removes it.

        Sources: Baik, Ben Arous, Péché 2005; Benaych-Georges, Nadakuditi 2012.
        """
        edge = self.support()[-1][1]
        keys = self.head.columns
        ones = np.ones((len(self._mean), 1))
        found = find_outliers(self._resolvents, self._mean, keys, edge, "Perron value of A", ones)[:1]
        found += find_outliers(self._resolvents, self._mean, keys, edge, "column direction")
        return sorted(found, key=lambda outlier: -outlier.location)

    def edge_scale(self) -> float:
        r"""Scale of the fluctuations of the largest bulk value: :math:`(\pi a\,n_q)^{-2/3}`, ρ(x) ≈ a √(edge - x).

        The largest eigenvalue of such a bulk is at edge + scale × a Tracy–Widom variable (β = 1: mean -1.21, standard
        deviation 1.27).
        """
        edge = self.support()[-1][1]
        step = 1e-6 * edge
        slope = float(self.pdf(edge - step)) / math.sqrt(step)
        return float((math.pi * slope * self.head.tokens) ** (-2 / 3))

    def _resolvents(self, x: float) -> tuple[Array, Array]:
        found = self.equation.solve(complex(x))
        return self.equation.rows * found.rows.real, self.equation.columns * found.columns.real


def finite_law(
    head: Attention,
    *,
    order: int | None = None,
    norm_nodes: int | None = None,
    cells: int | None = None,
    inner_points: int | None = None,
) -> Law:
    """The law that `Attention.finite_law` describes."""
    model = head_model(head, order, norm_nodes, inner_points)
    del cells
    return FiniteLaw(head, model)
