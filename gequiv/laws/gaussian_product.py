"""Squared singular values of products of Gaussian matrices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gequiv import _checks
from gequiv._checks import Array
from gequiv.errors import ParameterError
from gequiv.laws.atomic import Atomic
from gequiv.laws.base import finite_moment, moment_order
from gequiv.laws.subordinated import CurveLaw
from gequiv.laws.subordination import Increment, Leaf, Node, Wishart


class GaussianProduct(CurveLaw):
    r"""Law of Y Yᵀ for :math:`Y = \sqrt v\,F_1 F_2 \cdots F_L/\sqrt{N_1 \cdots N_L}`, a chain of Gaussian matrices.

    F_i has :math:`N_{i-1}` rows and :math:`N_i` columns of independent standard entries; all sizes grow in proportion.
    With :math:`u = zG(z) - 1` and :math:`c_i = N_0/N_i`

    .. math:: z = v\,\frac{1+u}{u} \prod_{i=1}^{L} (1 + c_i u), \qquad S(u) = \frac1v \prod_i \frac1{1 + c_i u} .

    Mean v; an atom at 0 of weight :math:`1 - \min_i N_i/N_0` where that is positive. If k of the N_i equal the smallest
    size :math:`N_0`, the density diverges at 0 like :math:`x^{-k/(k+1)}`.

    Parameters
    ----------
    sizes : :math:`N_0, N_1, \ldots, N_L`, positive numbers; only their ratios matter.
    variance : v, above 0.

    Raises
    ------
    ParameterError : fewer than two sizes, or a number that is not positive and finite.
    CertificationError : the law could not be certified.

    Sources: Müller 2002; Burda, Jarosz, Livan, Nowak and Swiech 2010.

    Examples
    --------
    >>> law = GaussianProduct([1, 2, 1])
    >>> round(law.moment(2), 12)  # 1 + c_1 + c_2
    2.5
    """

    def __init__(self, sizes: Sequence[Any], variance: Any = 1.0) -> None:
        if isinstance(sizes, str) or not hasattr(sizes, "__len__") or len(sizes) < 2:
            raise ParameterError(f"sizes must be at least two positive numbers, N_0, N_1, ...; got {sizes!r}")
        self.sizes = tuple(_checks.positive_real(f"sizes[{k}]", size) for k, size in enumerate(sizes))
        self.variance_parameter = _checks.positive_real("variance", variance)
        super().__init__(product_node(self._ratios(), self.variance_parameter))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.sizes, self.variance_parameter)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{size:g}" for size in self.sizes)
        return f"{type(self).__name__}([{sizes}], variance={self.variance_parameter:g})"

    def _ratios(self) -> list[float]:
        return [self.sizes[0] / size for size in self.sizes[1:]]

    def _factors(self) -> tuple[float, list[tuple[float, float]]]:
        return self.variance_parameter, [(ratio, 1.0) for ratio in self._ratios()]

    def _increment(self) -> Increment | None:
        ratios = self._ratios()
        if len(ratios) > 1:
            return None
        pole = ratios[0] * self.variance_parameter
        return Increment(self.variance_parameter, (pole,), (pole * self.variance_parameter,))

    def _matrix(self, n: int, rng: np.random.Generator) -> Array:
        dimensions = [n, *(max(1, round(n * size / self.sizes[0])) for size in self.sizes[1:])]
        product = np.eye(n)
        for rows, columns in itertools.pairwise(dimensions):
            product = product @ rng.standard_normal((rows, columns)) / math.sqrt(columns)
        matrix: Array = self.variance_parameter * (product @ product.T)
        return matrix


class FussCatalan(GaussianProduct):
    r"""Law of squared singular values of a product of s square Gaussian matrices, of entries of variance 1/n each.

    Its moments are the Fuss–Catalan numbers :math:`\frac{1}{sk+1}\binom{(s+1)k}{k}`. With u = zG - 1,
    :math:`z = (1+u)^{s+1}/u`, on :math:`[0, (s+1)^{s+1}/s^s]`; the density diverges like :math:`x^{-s/(s+1)}` at 0.
    Order 1 is Marchenko–Pastur of ratio 1, order s its s-th free multiplicative power.

    Parameters
    ----------
    order : s, an integer of at least 1.

    Raises
    ------
    ParameterError : order is not such an integer.
    CertificationError : the law could not be certified: the order is too high.

    Sources: Banica, Belinschi, Capitaine and Collins 2011; Penson and Życzkowski 2011.

    Examples
    --------
    >>> law = FussCatalan(2)
    >>> law.support(), law.moment(3)
    ([(0.0, 6.75)], 12.0)
    """

    def __init__(self, order: Any) -> None:
        self.order = _checks.positive_integer("order", order)
        super().__init__([1] * (self.order + 1))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.order,)

    def __repr__(self) -> str:
        return f"FussCatalan({self.order})"

    def moment(self, k: int, dps: int | None = None) -> Any:
        r""":math:`\frac{1}{sk+1}\binom{(s+1)k}{k}`, exact.

        Raises
        ------
        ParameterError : k is not an integer >= 0, or the moment exceeds the floats.
        """
        k = moment_order(k)
        if dps is not None:
            return self._precise(dps).moment(k)
        try:
            return float(math.comb((self.order + 1) * k, k) // (self.order * k + 1))
        except OverflowError:
            return finite_moment(k, math.inf)


def product_node(ratios: Sequence[float], variance: float) -> Node:
    """The tree of a product of Marchenko–Pastur laws of these ratios times a number."""
    node: Node = Leaf(Atomic([1.0]))
    for k, ratio in enumerate(ratios):
        node = Wishart(node, ratio, variance if k == 0 else 1.0)
    return node
