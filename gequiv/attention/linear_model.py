"""The linear model that the attention matrix is equivalent to: a multiple of the scores plus noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

from gequiv import _checks
from gequiv.errors import ParameterError
from gequiv.laws.multiprecision import multiprecision, to_fraction

LARGEST_BETA = math.sqrt(math.log(1.7976931348623157e308)) * (1 - 1e-15)
"""e^{beta^2} leaves the floats just above this inverse temperature, about 26.64."""


@dataclass(frozen=True)
class LinearModel:
    r"""√n (A - 11ᵀ/n) ≈ (β S + σ Z)/√n with :math:`\sigma^2 = e^{\beta^2} - 1 - \beta^2`.

    :math:`\beta` is the first Hermite coefficient of :math:`f(x) = e^{\beta x - \beta^2/2}` and
    :math:`\sigma^2 = \mathrm{Var} f - \beta^2` the sum of the squares of all higher ones. S has entries of variance
    one, Z independent standard entries.

    Parameters
    ----------
    beta : inverse temperature, above 0.

    Attributes
    ----------
    coefficient : β, of the scores S.
    total_variance, log_total_variance : :math:`\tau^2 = e^{\beta^2} - 1`, the mean of the limit law, and its logarithm.
    signal_share, noise_share : :math:`\beta^2/\tau^2` and :math:`\sigma^2/\tau^2`; they add up to one.

    Raises
    ------
    ParameterError : beta is not above 0; or, from ``noise_variance`` and ``total_variance``, beta is above 26.64, where
        they exceed the largest float. The logarithm and the shares exist for every beta.

    Source: Hayase, Collins, Karakida 2025 (arXiv 2510.06685).
    """

    beta: float
    coefficient: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta", _checks.positive_real("beta", self.beta))
        object.__setattr__(self, "coefficient", self.beta)

    @property
    def noise_variance(self) -> float:
        """σ² = e^{β²} - 1 - β², without cancellation for small β (σ² ≈ β⁴/2)."""
        self._refuse_overflow()
        square, rest = exact_square(self.beta)
        # to first order in what beta^2 has beyond its nearest float, which e^{beta^2} feels where it is large
        return exponential_remainder(square) + math.expm1(square) * rest

    @property
    def total_variance(self) -> float:
        """τ² = e^{β²} - 1."""
        self._refuse_overflow()
        square, rest = exact_square(self.beta)
        return math.expm1(square) + math.exp(square) * rest

    @property
    def log_total_variance(self) -> float:
        """log(e^{β²} - 1), finite for every β > 0."""
        square = self.beta**2
        return math.log(math.expm1(square)) if square < 1 else square + math.log(-math.expm1(-square))

    @property
    def signal_share(self) -> float:
        """β²/(e^{β²} - 1); 0 where it is below the smallest float."""
        square = self.beta**2
        return square / self.total_variance if self.beta <= LARGEST_BETA else square * math.exp(-square)

    @property
    def noise_share(self) -> float:
        """(e^{β²} - 1 - β²)/(e^{β²} - 1)."""
        return self.noise_variance / self.total_variance if self.beta <= LARGEST_BETA else 1.0

    def exact_variances(self) -> tuple[Fraction, Fraction]:
        """(β², e^{β²} - 1 - β²) to 400 digits, for laws whose edges depend on the last digits of a float.

        Raises
        ------
        ParameterError : beta is above 26.64.
        """
        self._refuse_overflow()
        return exact_parts(self.beta)

    def _refuse_overflow(self) -> None:
        if self.beta > LARGEST_BETA:
            raise ParameterError(
                f"beta must be at most {LARGEST_BETA:.4f}, beyond which e^(beta^2) exceeds the largest float; got "
                f"{self.beta!r}. The shape of the law exists for every beta: limit_law(rescaled=True), with "
                "log_total_variance for its scale"
            )


def exact_parts(beta: float) -> tuple[Fraction, Fraction]:
    """β² exactly and e^{β²} - 1 - β² to more digits than any law is asked for."""
    context = multiprecision(500)  # enough for laws with dps=200; the first two terms of the exponential cancel
    square = Fraction(beta) ** 2
    value = context.mpf(square.numerator) / square.denominator
    return square, to_fraction(context.expm1(value) - value)


def exact_square(beta: float) -> tuple[float, float]:
    """β² as a float and what is left of it."""
    square = beta * beta
    return square, float(Fraction(beta) ** 2 - Fraction(square))


def exponential_remainder(x: float) -> float:
    """e^x - 1 - x for x >= 0, to full relative accuracy."""
    if x > 1.5:
        return math.expm1(x) - x
    term = total = x * x / 2
    k = 3
    while term > 1e-18 * total:
        term *= x / k
        total += term
        k += 1
    return total
