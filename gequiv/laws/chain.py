r"""A chain of Gaussian factors plus Gaussian noise: the law of a rational curve.

The model. :math:`Y = (\sqrt{s}\,S + \sqrt{v}\,Z)/\sqrt{n}` has m rows and n columns; Z has independent standard
entries; :math:`S = F_1 F_2 \cdots F_L/\sqrt{N_1 \cdots N_{L-1}}` is a product of independent Gaussian matrices of sizes
:math:`m \times N_1, N_1 \times N_2, \ldots, N_{L-1} \times n`, so that its entries too have variance one. The law is
that of the eigenvalues of :math:`Y Y^T` (m of them) as all sizes grow in proportion.

The equations. Write c = m/n, :math:`c_i = N_i/m`, total variance :math:`\tau^2 = s + v`, signal share
:math:`\rho = s/\tau^2`, and :math:`P(t) = \prod_i (1 + \rho t/c_i)`. The S-transform of :math:`S S^T/n` and the
rectangular free convolution with the noise give, with one parameter t,

.. math::
    y = \rho t + (1-\rho)\, t/P(t), \qquad
    z = \tau^2\, \frac{(1+y)(1+cy)\,P(t)}{t}, \qquad
    z\,G(z) = 1 + y .

Both z and G are rational functions of t: a curve of genus zero. (In words: v(y) = (1+y)(1+cy)/z is the inverse of the
rectangular R-transform, which is additive: t for the chain contributes :math:`\rho t`, the noise
:math:`(1-\rho)t/P`.)

The sheet. For z in the upper half-plane the physical t is the only solution with Im t < 0, Im y < 0 and
:math:`0 < -\arg t + \arg(1+\rho t) + \arg(1 + c\rho t) + \sum_i \arg(1+\rho t/c_i) < \pi`, each argument in
:math:`(-\pi, 0)`. The last condition says that t lies in the image of the upper half-plane under the chain's own
moment transform: the sum of arguments is harmonic and bounded in the lower half-plane, its boundary values on the real
line are positive on one single interval, so it is positive on one connected domain, which :math:`\log T` maps one to
one onto the strip of height :math:`\pi`. Given that, the signal-plus-noise equation has one solution in the half-plane.
Every number that this module returns has passed this test.

The distribution function is elementary as well, :math:`\int G\,dz = (1+y)\log z - \int \log z\,dy` with
:math:`\log z` a sum of logarithms of linear functions of y and t: this certifies the mass of every interval.

Sources: Müller 2002 and Burda, Jarosz, Livan, Nowak, Swiech 2010 (products of rectangular Gaussian matrices);
Dozier and Silverstein 2007 (signal plus noise: equation, uniqueness, support); Benaych-Georges 2009 (rectangular free
convolution); Rao and Edelman 2008 (algebraic laws).
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from gequiv import _checks
from gequiv._checks import Array, ComplexArray
from gequiv.errors import CertificationError, ParameterError
from gequiv.laws._chain_cauchy import cauchy_transform
from gequiv.laws._chain_curve import ChainCurve
from gequiv.laws._edge_adapted import EdgeAdaptedDensity
from gequiv.laws.atomic import Atomic
from gequiv.laws.base import Certificate, PreciseLaw
from gequiv.laws.stored import StoredLaw
from gequiv.laws.subordination import Leaf, Node, Noise, Wishart

if TYPE_CHECKING:
    from collections.abc import Sequence

_MASS_LIMIT = 1e-11
_TOLERANCE = 3e-14


class GaussianChainPlusNoise(StoredLaw):
    r"""Law of Y Yᵀ for a chain of Gaussian factors plus Gaussian noise, in the proportional limit.

    See the module's text for the model and the equations. Mean :math:`s + v`; the continuous part has mass
    min(1, 1/aspect), the rest is an atom at 0.

    Parameters
    ----------
    inner : inner dimensions over the number of rows, :math:`c_i = N_i/m`; may be empty (then the law is
        Marchenko–Pastur). Integers, floats or exact fractions.
    aspect : rows over columns, c = m/n.
    signal : variance s > 0 of the entries of the chain's part.
    noise : variance v > 0 of the entries of the noise. Both may be fractions, where the last digit of a float is not
        enough: next to an edge it moves the density.

    Raises
    ------
    ParameterError : a parameter is not a positive finite number.
    CertificationError : the law could not be certified (see ``certificate``).

    Examples
    --------
    >>> law = GaussianChainPlusNoise(inner=[0.5], aspect=1, signal=1.0, noise=0.7)
    >>> round(law.moment(1), 12)
    1.7
    """

    def __init__(self, inner: Sequence[Any], aspect: Any, signal: Any, noise: Any) -> None:
        self.inner = tuple(_checks.exact_positive(f"inner[{i}]", value) for i, value in enumerate(inner))
        self.aspect = _checks.exact_positive("aspect", aspect)
        strength, rest = _checks.exact_positive("signal", signal), _checks.exact_positive("noise", noise)
        try:
            self.signal, self.noise, self.scale = float(strength), float(rest), float(strength + rest)
        except OverflowError:
            raise ParameterError(f"signal + noise must be a finite float; got {signal!r} + {noise!r}") from None
        self._exact = (strength, rest)
        self._curve = curve = ChainCurve(self.inner, self.aspect, strength, rest)
        self._density = EdgeAdaptedDensity(
            curve.intervals, curve.exponents, curve, tolerance=_TOLERANCE, residues=curve.residues
        )
        self._atom = float(max(Fraction(0), 1 - 1 / self.aspect))
        self.certificate = self._certify()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.inner, self.aspect, *self._exact)

    def __repr__(self) -> str:
        inner = ", ".join(f"{float(value):g}" for value in self.inner)
        return (
            f"{type(self).__name__}(inner=[{inner}], aspect={float(self.aspect):g}, "
            f"signal={self.signal:g}, noise={self.noise:g})"
        )

    def _certify(self) -> Certificate:
        stored = self._density.masses
        exact = self._curve.algebra.masses()
        error = max(abs(a - b) for a, b in zip(stored, exact, strict=True))
        error = max(error, abs(sum(stored) + self._atom - 1), abs(sum(exact) + self._atom - 1))
        if not error <= _MASS_LIMIT:
            raise CertificationError(
                f"{self!r}: the masses of the intervals {stored} and of the atom {self._atom} miss the closed form "
                f"{exact} or the total 1 by {error:.1e}, where {_MASS_LIMIT:.0e} is allowed: move the parameters "
                "slightly"
            )
        return Certificate(
            mass_error=float(error),
            density_error=self._density.check,
            residual=self._curve.worst_error,
            half_plane=self._curve.margin,
            nodes=self._density.nodes,
        )

    def _precise(self, dps: int) -> PreciseLaw:
        from gequiv.laws._precise import PreciseChain

        return PreciseChain(self.inner, self.aspect, *self._exact, dps, curve=self._curve)

    def _node(self) -> Node:
        node: Node = Leaf(Atomic([1.0]))
        for k, ratio in enumerate([*(float(1 / value) for value in self.inner), float(self.aspect)]):
            node = Wishart(node, ratio, self.signal if k == 0 else 1.0)
        return Noise(node, self.noise, float(self.aspect))

    def _scaled_moment(self, k: int) -> float:
        """By an exact recursion without cancellation.

        With C(v) = Σ κ_j v^j, κ_1 = s + v and κ_j = s^j/j · [u^{j-1}] ∏(1+u/c_i)^j (all positive), Lagrange
        inversion of z = (1+C)(1+cC)/v gives m_k = 1/k · [v^{k-1}] C'(v) ((1+C(v))(1+cC(v)))^k.
        """
        return _moment_of_mean_one(self._curve, k)

    def _cauchy(self, z: ComplexArray) -> ComplexArray:
        return cauchy_transform(self._curve, z)


def _moment_of_mean_one(curve: ChainCurve, k: int) -> float:
    """Moment of order k in units of the mean; inf where it leaves the floats."""
    if k == 0:
        return 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        series = np.zeros(k + 1)
        chain = np.zeros(k)
        chain[0] = 1.0
        for j in range(1, k + 1):  # chain is now prod(1 + w v)^j, to order k-1
            for w in curve.weights:
                chain[1:] = chain[1:] + w * chain[:-1]
            series[j] = curve.share * chain[j - 1] / j
        series[1] += curve.rest
        factor = np.convolve(_plus_one(series), _plus_one(curve.c * series))[:k]
        power = np.zeros(k)
        power[0] = 1.0
        for _ in range(k):
            power = np.convolve(power, factor)[:k]
        slope = series[1:] * np.arange(1, k + 1)
        value = float(slope @ power[::-1]) / k
    return value if np.isfinite(value) else float("inf")


def _plus_one(series: Array) -> Array:
    result = series.copy()
    result[0] += 1.0
    return result
