"""What every spectral law offers, whatever the way in which it is computed."""

from __future__ import annotations

import abc
import importlib
import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gequiv import _checks
from gequiv._checks import Array, ComplexArray
from gequiv.errors import ParameterError

if TYPE_CHECKING:
    from gequiv.laws.singular import SingularValueLaw
    from gequiv.laws.subordination import Increment, Node


@dataclass(frozen=True)
class Certificate:
    """What was verified before a law was handed out.

    Attributes
    ----------
    mass_error : |mass of the intervals + mass of the atoms - 1|.
    density_error : largest relative difference between the stored density and the equation solved anew at
        points between the nodes.
    residual : largest relative error left at a node: the square of Newton's last step, or that step, and rounding.
    half_plane : smallest margin -Im G / |G| over the nodes; positive means that every node lies on the
        physical sheet.
    nodes : number of points at which the defining equation was solved.
    """

    mass_error: float
    density_error: float
    residual: float
    half_plane: float
    nodes: int


class PreciseLaw(Protocol):
    """A law in multiprecision: one exact point in, one mpmath number out."""

    def pdf(self, x: Any) -> Any: ...

    def cdf(self, x: Any) -> Any: ...

    def support(self) -> list[tuple[Any, Any]]: ...

    def moment(self, k: int) -> Any: ...


class Law(abc.ABC):
    r"""A probability measure on the real line: finitely many intervals with a density, and atoms.

    The measure is :math:`\mu(dx) = \rho(x)\,dx + \sum_j w_j \delta_{a_j}(dx)`. Conventions:

    - ``cauchy`` is :math:`G(z) = \int \mu(dx)/(z - x)`, so that Im G < 0 in the upper half-plane and
      :math:`\rho(x) = -\mathrm{Im}\,G(x + i0)/\pi`;
    - ``cdf`` is right-continuous, :math:`F(x) = \mu((-\infty, x])`, atoms included;
    - ``ppf`` is the left-continuous inverse, :math:`\inf\{x : F(x) \ge q\}`.

    Numbers, lists and arrays of any shape are accepted; a number gives a number back. NaN is refused.
    """

    # -- what a subclass supplies: arrays in, arrays out, already validated ---------------------------

    @abc.abstractmethod
    def support(self, dps: int | None = None) -> list[tuple[Any, Any]]:
        """The intervals that carry the density, ascending; atoms are not included. With dps, to that many digits."""

    @abc.abstractmethod
    def atoms(self) -> list[tuple[float, float]]:
        """The point masses as (location, weight), ascending; empty where there are none."""

    @abc.abstractmethod
    def moment(self, k: int, dps: int | None = None) -> Any:
        r"""The moment :math:`\int x^k \mu(dx)` for an integer k >= 0. With dps, to that many digits."""

    @abc.abstractmethod
    def _pdf(self, x: Array) -> Array: ...

    @abc.abstractmethod
    def _cdf(self, x: Array) -> Array: ...

    @abc.abstractmethod
    def _ppf(self, q: Array) -> Array: ...

    @abc.abstractmethod
    def _partial_mean(self, x: Array) -> Array: ...

    @abc.abstractmethod
    def _cauchy(self, z: ComplexArray) -> ComplexArray: ...

    def _breakpoints(self) -> Array:
        """Points between which the density is smooth enough to integrate, beyond the edges: where it varies fast."""
        return np.empty(0)

    # -- the public contract ------------------------------------------------------------------------

    def pdf(self, x: Any, dps: int | None = None) -> Any:
        r"""Density :math:`\rho(x)` of the absolutely continuous part.

        Zero outside the support; infinite at an edge where the density diverges.

        Parameters
        ----------
        x : points; with dps also fractions, mpmath numbers and decimal strings, taken exactly.
        dps : None for floats; a number of decimal digits, up to 200, for mpmath numbers of that accuracy.

        Raises
        ------
        ParameterError : x is not real, or contains NaN; or the law cannot be computed to more digits than a float has.
        """
        if dps is not None:
            return _each(self._precise(dps).pdf, x)
        return _apply(self._pdf, _checks.real_array("x", x))

    def cdf(self, x: Any, dps: int | None = None) -> Any:
        r"""Distribution function :math:`F(x) = \mu((-\infty, x])`, atoms included.

        Parameters
        ----------
        x, dps : as for `pdf`; the digits are absolute, not relative, in the lower tail.

        Raises
        ------
        ParameterError : x is not real, or contains NaN; or the law cannot be computed to more digits than a float has.
        """
        if dps is not None:
            return _each(self._precise(dps).cdf, x)
        return _apply(self._cdf, _checks.real_array("x", x))

    def ppf(self, q: Any) -> Any:
        r"""Quantile :math:`\inf\{x : F(x) \ge q\}` for probabilities q in [0, 1].

        q = 0 gives the lowest point of the support, q = 1 the highest.

        Raises
        ------
        ParameterError : q is not real, contains NaN, or leaves [0, 1].
        """
        array = _checks.real_array("q", q)
        if array.size and (array.min() < 0 or array.max() > 1):
            bad = array[(array < 0) | (array > 1)].flat[0]
            raise ParameterError(f"q must lie in [0, 1]; got {bad!r}")
        return _apply(self._ppf, array)

    def partial_mean(self, x: Any) -> Any:
        r"""Lower partial expectation :math:`\int_{(-\infty, x]} t\,\mu(dt)`, atoms included.

        With the distribution function it gives :math:`\int_{-\infty}^x F = x F(x) -` ``partial_mean(x)``, from
        which the Wasserstein distance to a sample follows without quadrature.

        Raises
        ------
        ParameterError : x is not real, or contains NaN.
        """
        return _apply(self._partial_mean, _checks.real_array("x", x))

    def cauchy(self, z: Any) -> Any:
        r"""Cauchy transform :math:`G(z) = \int \mu(dx)/(z - x)` for complex z off the support and the atoms.

        Raises
        ------
        ParameterError : z contains NaN, or is a real point of the support or an atom, where G has no value
            (take z = x + 1j*eta with a small eta > 0, or ``pdf`` for the density).
        CertificationError : the value could not be certified.
        """
        array = _checks.complex_array("z", z)
        self._refuse_spectrum(array)
        return _apply(self._cauchy, array)

    def rvs(self, size: Any = None, rng: Any = None) -> Any:
        """Independent draws from the law (not the eigenvalues of one matrix, which repel each other).

        Parameters
        ----------
        size : None for one number, an int or a tuple of ints for an array of that shape.
        rng : numpy Generator, or an int that seeds one; required, so that a run can be repeated.

        Raises
        ------
        ParameterError : rng is neither, or size is not a shape.
        """
        source = _checks.generator(rng)
        try:
            uniform = source.random(size)
        except (TypeError, ValueError) as error:
            raise ParameterError(f"size must be None, an int or a tuple of ints; got {size!r}") from error
        return _apply(self._ppf, np.asarray(uniform, dtype=np.float64))

    def _precise(self, dps: int) -> PreciseLaw:
        """The same law with that many digits."""
        raise ParameterError(
            f"dps must be None for {type(self).__name__}: it is computed in double precision only; got {dps!r}"
        )

    def mean(self) -> float:
        """First moment."""
        return float(self.moment(1))

    def variance(self) -> float:
        """Second moment about the mean."""
        return float(self.moment(2) - self.moment(1) ** 2)

    # -- matrices, pictures, algebra ------------------------------------------------------------------

    def matrix(self, n: Any, rng: Any) -> Array:
        r"""A random symmetric n × n matrix whose eigenvalues follow the law as n grows.

        Laws with a natural ensemble draw from it (Wigner, Wishart, products of Gaussian matrices, sums and products of
        matrices in general position). Any other law gives :math:`U D U^T` with U uniform on the orthogonal group and D
        the quantiles of the law at (i + 1/2)/n.

        Parameters
        ----------
        n : size, an integer of at least 1.
        rng : numpy Generator, or an int that seeds one; required, so that a run can be repeated.

        Raises
        ------
        ParameterError : n is not such an integer, or rng is neither.
        """
        return self._matrix(_checks.positive_integer("n", n), _checks.generator(rng))

    def _matrix(self, n: int, rng: np.random.Generator) -> Array:
        return rotated(self._ppf((np.arange(n) + 0.5) / n), rng)

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """The density with the edges of the support and the atoms marked; see `gequiv.plotting.density_figure`.

        Parameters
        ----------
        ax : matplotlib axes to draw on; None makes a figure of one panel.
        options : ``title`` and ``variable``, as for `gequiv.plotting.density_figure`.

        Returns
        -------
        The axes; ``law.plot().figure.savefig("law.png")`` writes a file.
        """
        # found by name: laws know nothing of the rooms above them
        return importlib.import_module("gequiv.plotting").density_figure(self, axes=ax, **options)

    def __add__(self, other: Any) -> Any:
        """Free additive convolution with a law; a shift by a number."""
        if isinstance(other, Law):
            return importlib.import_module("gequiv.free").additive(self, other)
        return self._affine(1.0, other) if _is_number(other) else NotImplemented

    __radd__ = __add__

    def __mul__(self, other: Any) -> Any:
        """Free multiplicative convolution with a law; the law of the multiple by a number other than 0."""
        if isinstance(other, Law):
            return importlib.import_module("gequiv.free").multiplicative(self, other)
        return self._affine(other, 0.0) if _is_number(other) else NotImplemented

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self._affine(-1.0, 0.0)

    def __sub__(self, other: Any) -> Any:
        """The law of the free difference; a shift by a number."""
        return self + -other if isinstance(other, Law) or _is_number(other) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return -self + other if _is_number(other) else NotImplemented

    def __truediv__(self, other: Any) -> Any:
        return self._affine(1.0 / other, 0.0) if _is_number(other) and other != 0 else NotImplemented

    def _affine(self, scale: Any, shift: Any) -> Law:
        from gequiv.laws.affine import Affine

        return Affine(self, scale, shift)

    # -- what free convolutions ask ------------------------------------------------------------------

    def _cauchy_and_slope(self, z: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        r"""G and dG/dz at points with Im z >= 0 off the support and the atoms; NaN where they have no value.

        By Cauchy's integral over a circle of twelve points; laws in closed form do better.
        """
        circle = np.exp(2j * np.pi * np.arange(12) / 12)
        radius = 0.04 * self._distance(z)
        points = z[:, None] + radius[:, None] * circle
        values = self._cauchy(points.reshape(-1)).reshape(points.shape)
        return self._cauchy(z), (values @ circle.conj()) / (12 * radius)

    def _node(self) -> Node:
        """The law as a tree of free convolutions: itself as a leaf, unless it is made of others."""
        from gequiv.laws.subordination import Leaf

        return Leaf(self)

    def _increment(self) -> Increment | None:
        """Its R-transform where that is rational and the law freely infinitely divisible."""
        return None

    def _factors(self) -> tuple[float, list[tuple[float, float]]] | None:
        """(scale, [(ratio, variance), ...]) of a free product of Marchenko–Pastur laws and a positive number."""
        return None

    def _distance(self, z: ComplexArray) -> Array:
        """Distance of each point from the spectrum, a lower bound."""
        nearest = np.full(z.shape, np.inf)
        intervals = [*self.support(), *((location, location) for location, _ in self.atoms())]
        for low, high in intervals:
            beside = np.maximum(np.maximum(low - z.real, z.real - high), 0.0)
            nearest = np.minimum(nearest, np.hypot(beside, z.imag))
        return nearest

    def singular_values(self) -> SingularValueLaw:
        """The law of √x when x has this law: singular values from squared singular values.

        Raises
        ------
        ParameterError : the law charges negative numbers.
        """
        from gequiv.laws.singular import SingularValueLaw

        return SingularValueLaw(self)

    # -- helpers for subclasses ---------------------------------------------------------------------

    def _refuse_spectrum(self, z: ComplexArray) -> None:
        on_axis = z.real[z.imag == 0]
        if on_axis.size == 0:
            return
        for low, high in self.support():
            inside = on_axis[(on_axis >= low) & (on_axis <= high)]
            if inside.size:
                raise ParameterError(
                    f"z must lie off the support: the Cauchy transform has no value at z = {inside[0]!r}, inside "
                    f"[{low!r}, {high!r}]; take z = x + 1j*eta with eta > 0, or pdf(x) for the density"
                )
        poles = on_axis[np.isin(on_axis, [location for location, _ in self.atoms()])]
        if poles.size:
            pole = float(poles[0])
            raise ParameterError(f"z must lie off the atoms: the Cauchy transform has a pole at z = {pole!r}")

    def _add_atoms(self, x: Array, continuous: Array) -> Array:
        for location, weight in self.atoms():
            continuous = continuous + weight * (x >= location)
        return continuous


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))


def rotated(eigenvalues: Array, rng: np.random.Generator) -> Array:
    """U D U^T with U uniform on the orthogonal group."""
    # Q of a Gaussian matrix, with the signs that make R's diagonal positive, is uniform (Mezzadri 2007)
    q, r = np.linalg.qr(rng.standard_normal((eigenvalues.size, eigenvalues.size)))
    q *= np.sign(np.diag(r))
    matrix: Array = (q * eigenvalues) @ q.T
    return 0.5 * (matrix + matrix.T)


def finite_real(name: str, value: Any) -> float:
    """A finite number of any sign, validated."""
    if not _is_number(value) or not math.isfinite(value):
        raise ParameterError(f"{name} must be a finite real number; got {value!r}")
    return float(value)


def mirrored(
    transform: Callable[[ComplexArray], tuple[ComplexArray, ...]], z: ComplexArray
) -> tuple[ComplexArray, ...]:
    """Functions with f(conj z) = conj f(z) at any z, from their values at Im z >= 0."""
    below = z.imag < 0
    return tuple(np.where(below, value.conj(), value) for value in transform(np.where(below, z.conj(), z)))


def moment_order(k: Any) -> int:
    """A moment's order, validated."""
    return _checks.positive_integer("k", k, minimum=0)


def finite_moment(k: int, value: float) -> float:
    """`value`, unless it left the floating-point range."""
    if not math.isfinite(value):
        raise ParameterError(
            f"k = {k} is too large for this law: its moment exceeds the largest float (1.8e308); "
            "take a lower order, or the moment of the rescaled law"
        )
    return value


def _apply(function: Any, array: Any) -> Any:
    result = function(array.reshape(-1)).reshape(array.shape)
    return result[()] if result.ndim == 0 else result


def _each(function: Any, values: Any) -> Any:
    """The function of each number in a scalar, list or array; an array of objects unless a scalar came in."""
    array = np.asarray(values, dtype=object)
    result = np.empty(array.shape, dtype=object)
    for index in np.ndindex(array.shape):
        result[index] = function(array[index])
    return result[()]
