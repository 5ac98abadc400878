"""What a head would be if it were random: the law of its sizes at every inverse temperature, and draws of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gequiv._checks import Array
from gequiv.attention import Attention
from gequiv.attention.ensemble import centred, squared_singular_values
from gequiv.attention.finite import FiniteLaw, HeadLaw
from gequiv.attention.head_model import head_model
from gequiv.errors import CertificationError, ParameterError
from gequiv.inspection.tables import MASKED_STEP, STEP, LawTable, TableFamily, table_of, table_of_draws

_MOST_DRAWS, _FEWEST_DRAWS, _DRAWN_VALUES = 24, 2, 8192
_FEWEST_TOKENS, _DRAWS_OF_FEW = 16, 384
_CHECKED_BETA, _LARGEST_BETA = 1.2, 1.6
_FAR = 0.025
_LEAST_RATIO = 0.02
_FEW_DIRECTIONS = 12
_MASKED_NODES = {"norm_nodes": 2, "inner_points": 3}  # 0.001 off in the distribution function, in half of the time


@dataclass(frozen=True)
class Sizes:
    """Sizes of a random head: what the null hypothesis knows besides β.

    Attributes
    ----------
    rows, keys, mask : as `Attention` takes them.
    head_dim : d_k.
    width : d of Gaussian tokens; None for orthonormal tokens.
    """

    rows: int
    keys: int
    mask: Any
    head_dim: int
    width: int | None

    @property
    def ratio(self) -> float:
        """d_k/d, zero for orthonormal tokens."""
        return 0.0 if self.width is None else self.head_dim / self.width

    def head(self, beta: float) -> Attention:
        """The random head at β."""
        return Attention(self.rows, self.head_dim, beta, keys=self.keys, width=self.width, mask=self.mask)


def width_of(head_dim: int, ratio: float) -> int | None:
    """d of tokens with d_k/d = ratio; None for next to nothing, orthonormal tokens."""
    return None if ratio < _LEAST_RATIO else max(head_dim, round(head_dim / ratio))


def null_table(head: Attention, *, patient: bool = True) -> LawTable:
    """Its finite-size law, or pooled draws where that is refused or wrong.

    The law's score weights and noise cease to be independent as β grows: above β = 1.2, column bias included, it is
    held against draws, and where it is at a distance of more than 0.025 from them, or β is above 1.6, the draws take
    its place; of heads of fewer than 16 queries or keys too.

    Parameters
    ----------
    patient : try other nodes where the first ones are refused.
    """
    bias = 0.0 if head.weights is None else head.weights.column_bias_variance
    beta = math.sqrt(head.beta**2 + bias)
    tiny = min(head.tokens, head.columns) < _FEWEST_TOKENS
    spectra = _drawn_spectra(head) if beta > _CHECKED_BETA or tiny else None
    if beta <= _LARGEST_BETA and not tiny:
        try:
            table = table_of(_law(head, patient))
            if spectra is None or table.ks(np.concatenate(spectra)) < _FAR:
                return table
        except (CertificationError, ParameterError):
            pass
    return table_of_draws(spectra or _drawn_spectra(head), float(head.aspect))


def _law(head: Attention, patient: bool) -> HeadLaw:
    if head.visibility is None and not patient:
        return FiniteLaw(head, head_model(head), patient=False)
    law = head.finite_law() if head.visibility is None else head.finite_law(**_MASKED_NODES)
    assert isinstance(law, HeadLaw)
    return law


def _drawn_spectra(head: Attention) -> list[Array]:
    size = min(head.tokens, head.columns)
    most = _DRAWS_OF_FEW if size < _FEWEST_TOKENS else _MOST_DRAWS
    count = min(most, max(_FEWEST_DRAWS, _DRAWN_VALUES // size))
    return [bulk_spectrum(head.sample(child), head) for child in np.random.default_rng(0).spawn(count)]


def table_at(sizes: Sizes, beta: float) -> LawTable:
    """`null_table` of random heads of these sizes; patient unless they have few directions, whose laws are refused."""
    return null_table(sizes.head(beta), patient=sizes.head_dim >= _FEW_DIRECTIONS)


def centre(matrix: Array, head: Attention) -> Array:
    """A - Ā; without a mask with its columns centred as well, which takes the column direction out."""
    deviation = centred(matrix, head.visibility)
    if head.visibility is None:
        deviation -= deviation.mean(axis=0)
    return deviation


def bulk_spectrum(matrix: Array, head: Attention) -> Array:
    """Squared singular values of √n_k times `centre`, descending; matrix is overwritten."""
    return np.sort(squared_singular_values(centre(matrix, head)))[::-1]


class SizeFamilies:
    """Table families by sizes, their knots solved side by side."""

    def __init__(self) -> None:
        self._families: dict[Sizes, TableFamily] = {}

    def of(self, sizes: Sizes) -> TableFamily:
        """The family of these sizes."""
        if sizes not in self._families:
            step = STEP if sizes.mask is None else MASKED_STEP
            self._families[sizes] = TableFamily(partial(table_at, sizes), step)
        return self._families[sizes]

    def missing(self, wanted: Sequence[tuple[Sizes, float]]) -> list[tuple[Sizes, int]]:
        """(sizes, knot) that these (sizes, β) need and that are not solved yet."""
        found: dict[tuple[Sizes, int], None] = {}
        for sizes, beta in wanted:
            if 0 < beta < math.inf:
                found.update(dict.fromkeys((sizes, knot) for knot in self.of(sizes).knots([beta])))
        return list(found)
