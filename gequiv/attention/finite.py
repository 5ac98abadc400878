r"""The finite-size law of a head: which model and which equation serve which parameters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gequiv import _checks
from gequiv._checks import Array
from gequiv.attention.head_model import HeadModel, head_model
from gequiv.attention.masked import masked_models
from gequiv.attention.outliers import Outlier, find_outliers
from gequiv.dyson import Component, ProfileLaw
from gequiv.dyson.positioned_law import PositionedLaw
from gequiv.errors import CertificationError
from gequiv.laws.base import Law

if TYPE_CHECKING:
    from gequiv.attention.parameters import Attention

_FEWEST_CELLS = 24
_CUTS = (0.95, 0.96, 0.92)
_MANY = 4


class HeadLaw(Law):
    """What the finite-size laws of a head have beyond other laws.

    Attributes
    ----------
    head : the `Attention`.
    order : L, the highest chaos degree that is a component of its own.
    norm_nodes : number of nodes of the query norms.
    """

    head: Attention
    order: int
    norm_nodes: int

    def outliers(self) -> list[Outlier]:
        """Expected squared singular values outside the bulk, largest first, and whether each is visible.

        - the Perron value, of √keys A itself: A - Ā does not have it;
        - with a mask, further singular values of A that the mean attention Ā brings;
        - the column direction 1vᵀ, v_j = expected column sum less one: keys of large norm are looked at by all rows. It
          is in A - Ā; centring the columns as well removes it. It may lie in a gap of the bulk.

        With a mask the edge is where less than one value of the bulk is expected above.

        Sources: Baik, Ben Arous, Péché 2005; Benaych-Georges, Nadakuditi 2012.
        """
        return list(self._outliers)

    @cached_property
    def _outliers(self) -> list[Outlier]:
        return sorted(self._find_outliers(), key=lambda outlier: -outlier.location)

    def _find_outliers(self) -> list[Outlier]:
        raise NotImplementedError

    def edge_scale(self) -> float:
        r"""Scale of the fluctuations of the largest bulk value: :math:`(\pi a\,n_q)^{-2/3}`, ρ(x) ≈ a √(edge - x).

        The largest eigenvalue of such a bulk is at edge + scale × a Tracy–Widom variable (β = 1: mean -1.21, standard
        deviation 1.27).
        """
        edge = self.support()[-1][1]
        step = 1e-6 * edge
        slope = float(self.pdf(edge - step)) / math.sqrt(step)
        return float((math.pi * slope * self.head.tokens) ** (-2 / 3))

    def _describe(self, head: Attention, model: HeadModel) -> None:
        self.head, self._model = head, model
        self.order, self.norm_nodes = model.order, model.norm_nodes

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.head!r}, order={self.order}, norm_nodes={self.norm_nodes})"


class FiniteLaw(HeadLaw, ProfileLaw):
    r"""The law of the squared singular values of √keys (A - Ā) at the head's own size, without a mask.

    The chaos-resolved, profiled Gaussian equivalent: see `gequiv.attention.chaos` (degrees and norms),
    `gequiv.attention.row_energy` (finitely many keys) and `gequiv.dyson.profile` (the equation).
    """

    def __init__(self, head: Attention, model: HeadModel, *, patient: bool = True) -> None:
        self._describe(head, model)
        self._patient = patient
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

    def _find_outliers(self) -> list[Outlier]:
        ones = np.ones((len(self._mean), 1))
        keys = self.head.columns
        intervals = self.support()
        found = find_outliers(self._resolvents, self._mean, keys, intervals, "Perron value of A", ones)[:1]
        return found + find_outliers(self._resolvents, self._mean, keys, intervals, "column direction")

    def _resolvents(self, x: float) -> tuple[Array, Array]:
        found = self.equation.solve(complex(x))
        return self.equation.rows * found.rows.real, self.equation.columns * found.columns.real


class MaskedFiniteLaw(HeadLaw, PositionedLaw):
    r"""The law of the squared singular values of √keys (A - Ā) at the head's own size, with a mask or a bias.

    As `FiniteLaw`, on positions: see `gequiv.attention.masked` and `gequiv.dyson.positions`. A causal law has a heavy
    right tail, :math:`\rho(x) \sim v/x^2` (row i has norm² near v n/i), up to the first rows, and a left tail whose
    mass falls as 1/log(1/x) only.
    """

    def __init__(self, head: Attention, model: HeadModel, cells: int | None) -> None:
        self._describe(head, model)
        visibility = head.visibility
        assert visibility is not None
        models = masked_models(visibility, model, cells)
        self._averages = models[-2].averages
        super().__init__([masked.equation for masked in models])

    __repr__ = HeadLaw.__repr__

    def _find_outliers(self) -> list[Outlier]:
        equation, averages = self._equations[-2], self._averages
        count = equation.row_shares.size // self._model.rows.size
        mean = np.repeat(self._model.mean, count, axis=0)
        keys = self.head.columns
        # where less than one value is expected above: the support's own end is that of the first few rows
        edge = [(0.0, float(self.ppf(1 - 1 / self.head.tokens)))]
        whole = np.asarray(np.kron(averages, 1 + mean), dtype=np.float64)
        deviation = np.asarray(np.kron(averages, mean), dtype=np.float64)
        found = find_outliers(self._resolvents, whole, keys, edge, "Perron value of A", rest="mean attention, of A")
        return found + find_outliers(self._resolvents, deviation, keys, edge, "column direction")

    def _resolvents(self, x: float) -> tuple[Array, Array]:
        equation, unknowns = self._right_of_support(x)
        g, h = equation.resolvents(unknowns)
        # rows whose own norm exceeds x are left out
        rows = np.maximum(equation.row_widths * g[0].real, 0.0)
        return rows.ravel(), np.maximum(equation.column_widths * h[0].real, 0.0).ravel()


def finite_law(
    head: Attention,
    *,
    order: int | None = None,
    norm_nodes: int | None = None,
    cells: int | None = None,
    inner_points: int | None = None,
) -> HeadLaw:
    """The law that `Attention.finite_law` describes."""
    if cells is not None:
        cells = _checks.positive_integer("cells", cells, minimum=_FEWEST_CELLS)
    model = head_model(head, order, norm_nodes, inner_points)
    if head.visibility is not None:
        return MaskedFiniteLaw(head, model, cells)
    for other in _neighbours(head, model, norm_nodes):
        try:
            return FiniteLaw(head, other, patient=False)
        except CertificationError:
            continue
    return FiniteLaw(head, model)  # as patiently as can be, and with its own refusal


def _neighbours(head: Attention, model: HeadModel, norm_nodes: int | None) -> Iterator[HeadModel]:
    """The model, then the same with its nodes placed otherwise: two bands of one law may all but touch by accident."""
    yield model
    if model.spread:
        for cut in _CUTS:
            yield replace(model, cut=cut)
    if norm_nodes is None:
        count = model.norm_nodes + (1 if model.norm_nodes < _MANY else -1)
        yield head_model(head, model.order, count, model.inner_points)
