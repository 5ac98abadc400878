r"""Free convolutions as trees: one analytic map from the points of the ingredients to the point of the result.

Every node stands for a law and carries its point z and its Cauchy transform g = G(z). A leaf is a law with a Cauchy
transform that can be evaluated at any :math:`\omega` in the closed upper half-plane off its spectrum; its point is
:math:`\omega` itself, an unknown. All other nodes get z and g from their children:

- ``AddFree``, the free sum with a freely infinitely divisible law of rational R-transform
  :math:`R(g) = m + \sum_j c_j g/(1 - a_j g)`: :math:`z' = z + R(g)`, :math:`g' = g`;
- ``Wishart``, the free product with Marchenko–Pastur, :math:`S(u) = 1/(v(1 + c u))`: with :math:`u = zg - 1`,
  :math:`z' = z\,v(1 + cu)`, :math:`g' = zg/z'`;
- ``Power``, the free additive power t >= 1: :math:`z' = tz - (t-1)/g`;
- ``Noise``, a rectangular matrix plus Gaussian noise of variance s and ratio c: :math:`g' = g/(1 + csg)`,
  :math:`z' = (1 + csg)(z + s(1 - c + c\,zg))`;
- ``Sum``, ``Product``, ``RectangularSum`` of several laws, whose g, zg, w agree:
  :math:`z = \sum z_i - (k-1)/g`; :math:`z = \prod z_i\,(u/(1+u))^{k-1}`; :math:`zg - 1 = \sum (z_i g_i - 1)` where
  :math:`w = g(1 - c + c\,zg)`.

With one leaf this is a curve :math:`\omega \mapsto (z, g)`, rational if the leaf is atomic; with more leaves the
agreements are further equations.

The physical sheet. For Im z >= 0 the points :math:`\omega_i` and all points between them and z are the subordination
functions. They are the one solution with all of them in the upper half-plane: each pair is the fixed point of a
composition of two analytic maps of a half-plane (for products: a sector) into itself,
:math:`\omega = z + h_2(z + h_1(\omega))` or :math:`\omega = z H_2(z H_1(\omega))`, which has at most one inside. On the
real axis off the spectrum the fixed point is on the boundary and is the one at which that map contracts, i.e. at which
:math:`dz/d\omega > 0` for every point on the way. So half-planes, or signs of derivatives, certify a solution however
it was found.

Sources: Biane 1998, Belinschi and Bercovici 2007 (subordination), Bercovici and Voiculescu 1993, Silverstein and Choi
1995 (the support from the real axis), Dozier and Silverstein 2007, Vallet, Loubaton and Mestre 2012, Benaych-Georges
2009 (rectangular), Nica and Speicher 1996 (powers).
"""

from __future__ import annotations

import abc
import itertools
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.polynomial import legendre

from gequiv._checks import Array
from gequiv.errors import ParameterError
from gequiv.laws.base import Law, mirrored, rotated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Atoms = list[tuple[float, float]]
_NEAR = 0.1  # of the distance from the spectrum
_KERNEL = 1e-12  # eigenvalues of a drawn matrix that small beside the largest are 0
_SHARES, _SHARE_WEIGHTS = (0.5 * (column + shift) for column, shift in zip(legendre.leggauss(7), (1, 0), strict=True))
_TABLE = 2**14  # entries of a table of points and atoms that are handled at once


@dataclass
class Jet:
    """A node's point and Cauchy transform, with their derivatives in the unknowns.

    z, g are (m,), dz, dg are (m, unknowns); rise_z, rise_g what z and g have beyond an origin, without cancellation.
    """

    z: Any
    g: Any
    dz: Any
    dg: Any
    rise_z: Any = None
    rise_g: Any = None


@dataclass
class Origin:
    """Where each point of an evaluation is reckoned from: a real point of a tree with one leaf.

    Attributes
    ----------
    unknown : (m,) the leaf's point.
    distances : (points, atoms) from an atomic leaf's atoms to all such points, or None.
    place : (m,) row of `distances`.
    jets : of all nodes there, in the order of evaluation.
    done : how many of them were used.
    """

    unknown: Any
    distances: Any
    place: np.ndarray
    jets: list[Jet]
    done: int = 0

    def take(self, index: np.ndarray) -> Origin:
        """That of some of the points."""
        jets = [Jet(jet.z[index], jet.g[index], None, None) for jet in self.jets]
        return Origin(self.unknown[index], self.distances, self.place[index], jets)


@dataclass
class Visit:
    """What an evaluation collects on the way.

    Attributes
    ----------
    jets : those of all nodes, in the order of evaluation.
    points : jets of the nodes whose points lie in the upper half-plane, below the root, each with the number of the
        first unknown that it depends on.
    pairs : (z, g) of partners that the steps stand for, in the upper half-plane and the lower.
    signs : what must be positive at a real solution besides the derivatives.
    matches : residuals (m,) that must vanish besides the root's, with their gradients and first unknowns.
    first : number of the first unknown of the node that is being evaluated.
    origin : where unknowns are reckoned from, or None.
    """

    jets: list[Jet] = field(default_factory=list)
    points: list[tuple[Jet, int]] = field(default_factory=list)
    pairs: list[tuple[Any, Any]] = field(default_factory=list)
    signs: list[Any] = field(default_factory=list)
    matches: list[tuple[Any, Any, int]] = field(default_factory=list)
    first: int = 0
    origin: Origin | None = None

    def match(self, residual: Any, gradient: Any) -> None:
        self.matches.append((residual, gradient, self.first))

    def margins(self, root: Jet) -> Array:
        """Smallest sine of the angles that must be positive for the unknowns to be physical, at each of the points."""
        result = _sine(-root.g)
        for point, _ in self.points:
            result = np.minimum(result, _sine(point.z))
        for above, below in self.pairs:
            result = np.minimum(result, np.minimum(_sine(above), _sine(-below)))
        return np.where(np.isfinite(result), result, -1.0)


def _sine(value: Any) -> Array:
    with np.errstate(all="ignore"):
        sine: Array = (value.imag / np.abs(value)).astype(np.float64)
    return sine


class Node(abc.ABC):
    """One law of the tree."""

    children: tuple[Node, ...] = ()
    half_plane = True
    """Whether the children's points lie in the upper half-plane when the node's own does."""

    def evaluate(self, unknowns: Any, visit: Visit) -> Jet:
        """The node's jet at unknowns of shape (m, leaves), in the floating-point type of the unknowns."""
        jets = []
        first, begin = visit.first, 0
        for child in self.children:
            end = begin + child.width
            visit.first = first + begin
            jet = child.evaluate(unknowns[:, begin:end], visit)
            visit.jets.append(jet)
            if self.half_plane:
                visit.points.append((jet, first + begin))
            jets.append(jet)
            begin = end
        visit.first = first
        jet = self._combine(_widened(jets), visit)
        if visit.origin is not None:
            before, own = visit.origin.jets[visit.origin.done - 1 : visit.origin.done + 1]
            visit.origin.done += 1
            with np.errstate(all="ignore"):
                jet.rise_z, jet.rise_g = self._rise(jets[0], before, jet, own)
        return jet

    @abc.abstractmethod
    def _combine(self, jets: list[Jet], visit: Visit) -> Jet: ...

    def _rise(self, child: Jet, child0: Jet, jet: Jet, jet0: Jet) -> tuple[Any, Any]:
        """What the only child's rises become, without cancellation; the names with 0 are at the origin."""
        raise NotImplementedError

    @cached_property
    def width(self) -> int:
        """Number of leaves, which is that of unknowns."""
        return len(self.leaves())

    def leaves(self) -> list[Leaf]:
        return [leaf for child in self.children for leaf in child.leaves()]

    @abc.abstractmethod
    def mean(self) -> float: ...

    @abc.abstractmethod
    def start(self, z: Any) -> Any:
        """The unknowns (m, leaves) for large points z (m,), to leading order."""

    @abc.abstractmethod
    def atoms(self) -> Atoms:
        """Point masses, ascending, from theory."""

    @abc.abstractmethod
    def bounds(self) -> tuple[float, float]:
        """An interval that holds the spectrum."""

    @abc.abstractmethod
    def matrix(self, n: int, rng: np.random.Generator) -> Any:
        """A random symmetric matrix of this law."""

    def is_point(self) -> bool:
        """Whether the law is a single point mass."""
        return False

    def hints(self) -> list[float]:
        """Values of the single unknown near which the curve turns quickly, besides the leaf's own spectrum."""
        return [hint for child in self.children for hint in child.hints()]

    def lengths(self) -> list[float]:
        """Lengths that matter in the unknowns."""
        return [length for child in self.children for length in child.lengths()]


def _widened(jets: list[Jet]) -> list[Jet]:
    """The same jets with derivatives in the unknowns of all of them."""
    if len(jets) == 1:
        return jets
    widths = [jet.dz.shape[1] for jet in jets]
    result = []
    for k, jet in enumerate(jets):
        before, after = sum(widths[:k]), sum(widths[k + 1 :])
        pad = ((0, 0), (before, after))
        result.append(Jet(jet.z, jet.g, np.pad(jet.dz, pad), np.pad(jet.dg, pad)))
    return result


class Leaf(Node):
    """A law that is evaluated as it is."""

    def __init__(self, law: Law) -> None:
        self.law = law
        points = [*law.atoms()]
        self._rational = not law.support()
        self._locations = np.array([location for location, _ in points], dtype=np.longdouble)
        self._weights = np.array([weight for _, weight in points], dtype=np.longdouble)

    def evaluate(self, unknowns: Any, visit: Visit) -> Jet:
        if visit.origin is not None:
            return self._from_origin(unknowns, visit.origin)
        point = unknowns[:, 0]
        if self._rational:
            g, slope = self._poles(point)
        else:
            g, slope = mirrored(self.law._cauchy_and_slope, point.astype(np.complex128))
        return Jet(point, g.astype(point.dtype), np.ones_like(unknowns), slope.astype(point.dtype)[:, None])

    def _from_origin(self, unknowns: Any, origin: Origin) -> Jet:
        rise = unknowns[:, 0]
        point = origin.unknown + rise
        if origin.distances is None:
            g, slope = self.law._cauchy_and_slope(point.astype(np.complex128))
            g, slope = g.astype(rise.dtype), slope.astype(rise.dtype)
            rise_g = g - origin.jets[0].g
            start = origin.unknown.astype(np.complex128)
            near = np.flatnonzero(np.abs(rise) < _NEAR * self.law._distance(start))
            if near.size:  # the difference would lose digits: the integral of the slope does not
                path = start[near, None] + rise[near, None].astype(np.complex128) * _SHARES
                _, along = self.law._cauchy_and_slope(path.reshape(-1))
                rise_g[near] = rise[near] * (along.reshape(path.shape) @ _SHARE_WEIGHTS)
        else:
            g, slope, over = (np.empty_like(rise) for _ in range(3))
            for part, weights in self._parts(rise):
                distances = origin.distances[origin.place[part]]
                x = distances + rise.real[part, None]
                g[part], slope[part], over[part] = _pole_sums(x, rise.imag[part], weights, distances)
            rise_g = -rise * over
        origin.done = 1
        return Jet(point, g, np.ones_like(unknowns), slope[:, None], rise, rise_g)

    def distances(self, point: Any) -> Any:
        """(m, atoms) from the atoms to the points, for an atomic law; else None."""
        return point[:, None] - self._locations if self._rational else None

    def _parts(self, point: Any) -> Iterator[tuple[slice, Any]]:
        """Slices of the points that make tables of a size that a cache holds, and the weights in the points' type."""
        weights = self._weights.astype(point.real.dtype)
        rows = max(1, _TABLE // weights.size)
        for begin in range(0, point.size, rows):
            yield slice(begin, begin + rows), weights

    def _poles(self, point: Any) -> tuple[Any, Any]:
        g, slope = np.empty_like(point), np.empty_like(point)
        locations = self._locations.astype(point.real.dtype)
        for part, weights in self._parts(point):
            g[part], slope[part], _ = _pole_sums(point.real[part, None] - locations, point.imag[part], weights, None)
        return g, slope

    def _combine(self, jets: list[Jet], visit: Visit) -> Jet:
        raise NotImplementedError

    def leaves(self) -> list[Leaf]:
        return [self]

    def mean(self) -> float:
        return self.law.mean()

    def start(self, z: Any) -> Any:
        return z[:, None]

    def atoms(self) -> Atoms:
        return self.law.atoms()

    def bounds(self) -> tuple[float, float]:
        ends = [end for interval in self.law.support() for end in interval]
        ends += [location for location, _ in self.law.atoms()]
        return min(ends), max(ends)

    def matrix(self, n: int, rng: np.random.Generator) -> Any:
        return self.law._matrix(n, rng)

    def is_point(self) -> bool:
        return self._rational and self._locations.size == 1

    def spectrum(self) -> list[tuple[float, float]]:
        """Disjoint closed intervals, ascending; atoms are intervals of length 0."""
        pieces = sorted([*self.law.support(), *((location, location) for location, _ in self.law.atoms())])
        merged: list[tuple[float, float]] = []
        for low, high in pieces:
            if merged and low <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
            else:
                merged.append((low, high))
        return merged

    def lengths(self) -> list[float]:
        spectrum = self.spectrum()
        return [abs(end) for interval in spectrum for end in interval if end != 0]


def _pole_sums(x: Any, height: Any, weights: Any, over: Any) -> tuple[Any, Any, Any]:
    """Sums of w/d, -w/d² and w/(d * over) for d = x + i height, x of shape (m, atoms); in real arithmetic."""
    y = height[:, None]
    inverse = 1 / (x * x + y * y)
    real = x * inverse
    imaginary = -y * inverse
    g = real @ weights + 1j * (imaginary @ weights)
    cross = real * imaginary
    square = real * real
    square -= imaginary * imaginary
    slope = -(square @ weights) - 2j * (cross @ weights)
    if over is None:
        return g, slope, None
    inverse = weights / over
    return g, slope, (real * inverse).sum(axis=1) + 1j * (imaginary * inverse).sum(axis=1)


@dataclass(frozen=True)
class Increment:
    r"""A freely infinitely divisible law with :math:`R(g) = m + \sum_j c_j g/(1 - a_j g)`, all :math:`c_j > 0`."""

    mean: float
    poles: tuple[float, ...]
    weights: tuple[float, ...]

    def __add__(self, other: Increment) -> Increment:
        merged: dict[float, float] = {}
        for pole, weight in itertools.chain(
            zip(self.poles, self.weights, strict=True), zip(other.poles, other.weights, strict=True)
        ):
            merged[pole] = merged.get(pole, 0.0) + weight
        return Increment(self.mean + other.mean, tuple(merged), tuple(merged.values()))

    def affine(self, scale: float, shift: float) -> Increment:
        """That of scale * x + shift."""
        poles = tuple(scale * pole for pole in self.poles)
        return Increment(scale * self.mean + shift, poles, tuple(scale**2 * weight for weight in self.weights))

    def power(self, t: float) -> Increment:
        """Its free additive power."""
        return Increment(t * self.mean, self.poles, tuple(t * weight for weight in self.weights))

    def atom(self) -> tuple[float, float] | None:
        """Its atom: where no pole is at 0 the law is compound free Poisson, whose rate may be below 1."""
        drift = self.drift()
        if drift is None:
            return None
        rate = sum(weight / pole**2 for pole, weight in zip(self.poles, self.weights, strict=True))
        return (drift, 1 - rate) if rate < 1 - _NOTHING else None

    def drift(self) -> float | None:
        """What the mean has beyond that of the jumps; None if there is a semicircle among the terms."""
        if any(pole == 0 for pole in self.poles):
            return None
        jumps = [weight / pole for pole, weight in zip(self.poles, self.weights, strict=True)]
        drift = self.mean - sum(jumps)
        return 0.0 if abs(drift) <= 4 * _NOTHING * sum(map(abs, jumps)) else drift

    def bounds(self) -> tuple[float, float]:
        """Each term is a shifted Marchenko–Pastur or semicircle law; positive jumps leave the law above their drift."""
        low = high = self.mean
        drift = self.drift()
        for pole, weight in zip(self.poles, self.weights, strict=True):
            deviation = 2 * weight**0.5 + abs(pole)
            low, high = low - deviation, high + deviation
        if drift is not None and self.poles and min(self.poles) > 0:
            low = max(low, drift)
        return low, high


class AddFree(Node):
    """Free sum with a law of rational R-transform."""

    def __init__(self, child: Node, increment: Increment) -> None:
        self.children = (child,)
        self.increment = increment
        self._poles = np.array(increment.poles, dtype=np.longdouble)
        self._weights = np.array(increment.weights, dtype=np.longdouble)
        # m + c g/(1 - a g) = (m - c/a) + (c/a)/(1 - a g): without cancellation where g is large
        jumping = self._poles != 0
        self._jumps = np.where(jumping, self._weights / np.where(jumping, self._poles, 1), 0)
        self._flat = np.where(jumping, 0, self._weights)
        self._base = np.longdouble(increment.mean) - self._jumps.sum()
        if abs(self._base) <= 4 * _NOTHING * np.abs(self._jumps).sum():
            self._base = np.longdouble(0)

    def _combine(self, jets: list[Jet], visit: Visit) -> Jet:
        (jet,) = jets
        real = jet.z.real.dtype
        inverse = 1 / (1 - jet.g[:, None] * self._poles.astype(real))
        terms = inverse * self._weights.astype(real)
        shift = (inverse * self._jumps.astype(real)).sum(axis=1) + real.type(self._base)
        if self._flat.any():
            shift = shift + jet.g * real.type(self._flat.sum())
        slope = (terms * inverse).sum(axis=1)
        return Jet(jet.z + shift, jet.g, jet.dz + slope[:, None] * jet.dg, jet.dg)

    def _rise(self, child: Jet, child0: Jet, jet: Jet, jet0: Jet) -> tuple[Any, Any]:
        real = jet.z.real.dtype
        poles = self._poles.astype(real)
        factor = self._weights.astype(real) / ((1 - child.g[:, None] * poles) * (1 - child0.g[:, None] * poles))
        return child.rise_z + child.rise_g * factor.sum(axis=1), child.rise_g

    def mean(self) -> float:
        return self.children[0].mean() + self.increment.mean

    def start(self, z: Any) -> Any:
        return self.children[0].start(z - self.increment.mean)

    def atoms(self) -> Atoms:
        atom = self.increment.atom()
        return _sum_of_atoms([self.children[0].atoms(), [atom] if atom else []])

    def bounds(self) -> tuple[float, float]:
        low, high = self.children[0].bounds()
        less, more = self.increment.bounds()
        return low + less, high + more

    def hints(self) -> list[float]:
        child = self.children[0]
        found = super().hints()
        if child.is_point():  # 1/g is the unknown less the atom
            found += [child.bounds()[0] + pole for pole in self.increment.poles]
        return found

    def lengths(self) -> list[float]:
        own = [abs(pole) for pole in self.increment.poles if pole] + [weight**0.5 for weight in self.increment.weights]
        return super().lengths() + own

    def matrix(self, n: int, rng: np.random.Generator) -> Any:
        total = self.children[0].matrix(n, rng) + self.increment.mean * np.eye(n)
        for pole, weight in zip(self.increment.poles, self.increment.weights, strict=True):
            if pole == 0:
                entries = rng.standard_normal((n, n))
                total += (entries + entries.T) * (weight / (2 * n)) ** 0.5
                continue
            rate = weight / pole**2  # jumps per row: columns of the Gaussian matrix
            factor = rng.standard_normal((n, max(1, round(rate * n))))
            total += pole / n * (factor @ factor.T) - weight / pole * np.eye(n)
        return total


class Wishart(Node):
    """Free product with the Marchenko–Pastur law of ratio c and mean v."""

    def __init__(self, child: Node, ratio: float, variance: float) -> None:
        self.children = (child,)
        self.ratio, self.variance = ratio, variance

    def _combine(self, jets: list[Jet], visit: Visit) -> Jet:
        (jet,) = jets
        number = jet.z.real.dtype.type
        c, v = number(self.ratio), number(self.variance)
        q = jet.z * jet.g
        u = q - 1
        factor = v * ((1 - c) + c * q)
        du = jet.dz * jet.g[:, None] + jet.z[:, None] * jet.dg
        dfactor = v * c * du
        z, g = jet.z * factor, jet.g / factor
        if not self.children[0].is_point():  # else the partner is this law itself
            visit.pairs.append((factor * q / u, u / factor))
        visit.signs.append((1 - c * u * u).real)
        return Jet(
            z,
            g,
            jet.dz * factor[:, None] + jet.z[:, None] * dfactor,
            (jet.dg - g[:, None] * dfactor) / factor[:, None],
        )

    def _rise(self, child: Jet, child0: Jet, jet: Jet, jet0: Jet) -> tuple[Any, Any]:
        number = jet.z.real.dtype.type
        c, v = number(self.ratio), number(self.variance)
        factor, factor0 = (v * ((1 - c) + c * here.z * here.g) for here in (child, child0))
        rise = v * c * (child.rise_z * child.g + child0.z * child.rise_g)
        rise_g = (child.rise_g * factor0 - child0.g * rise) / (factor * factor0)
        return child.rise_z * factor + child0.z * rise, rise_g

    def mean(self) -> float:
        return self.children[0].mean() * self.variance

    def start(self, z: Any) -> Any:
        return self.children[0].start(z / self.variance)

    def atoms(self) -> Atoms:
        kernel = max(0.0, 1 - 1 / self.ratio)
        return _product_of_atoms([self.children[0].atoms(), [(0.0, kernel)] if kernel else []])

    def bounds(self) -> tuple[float, float]:
        low, high = self.children[0].bounds()
        root = self.ratio**0.5
        return low * self.variance * (1 - root) ** 2 if root < 1 else 0.0, high * self.variance * (1 + root) ** 2

    def matrix(self, n: int, rng: np.random.Generator) -> Any:
        inner = _root(self.children[0].matrix(n, rng))
        factor = inner @ rng.standard_normal((n, max(1, round(n / self.ratio))))
        return self.variance / factor.shape[1] * (factor @ factor.T)


class Power(Node):
    """Free additive power t >= 1."""

    def __init__(self, child: Node, exponent: float) -> None:
        self.children = (child,)
        self.exponent = exponent

    def _combine(self, jets: list[Jet], visit: Visit) -> Jet:
        (jet,) = jets
        t = jet.z.real.dtype.type(self.exponent)
        inverse = 1 / jet.g
        z = t * jet.z - (t - 1) * inverse
        return Jet(z, jet.g, t * jet.dz + ((t - 1) * inverse**2)[:, None] * jet.dg, jet.dg)

    def _rise(self, child: Jet, child0: Jet, jet: Jet, jet0: Jet) -> tuple[Any, Any]:
        t = jet.z.real.dtype.type(self.exponent)
        return t * child.rise_z + (t - 1) * child.rise_g / (child.g * child0.g), child.rise_g

    def mean(self) -> float:
        return self.children[0].mean() * self.exponent

    def start(self, z: Any) -> Any:
        return self.children[0].start(z - (self.exponent - 1) * self.children[0].mean())

    def atoms(self) -> Atoms:
        t = self.exponent
        kept = [(t * location, 1 - t * (1 - weight)) for location, weight in self.children[0].atoms()]
        return [(location, weight) for location, weight in kept if weight > _NOTHING]

    def bounds(self) -> tuple[float, float]:
        low, high = self.children[0].bounds()
        return self.exponent * low, self.exponent * high

    def matrix(self, n: int, rng: np.random.Generator) -> Any:
        # a corner of a larger matrix in general position, enlarged (Nica and Speicher)
        size = max(n, round(n * self.exponent))
        return self.exponent * _turned(self.children[0].matrix(size, rng), rng)[:n, :n]


class MultiplicativePower(Node):
    """Free multiplicative power t >= 1 of a law on [0, ∞)."""

    def __init__(self, child: Node, exponent: float) -> None:
        self.children = (child,)
        self.exponent = exponent

    def _combine(self, jets: list[Jet], visit: Visit) -> Jet:
        (jet,) = jets
        t = jet.z.real.dtype.type(self.exponent)
        q = jet.z * jet.g
        dq = jet.dz * jet.g[:, None] + jet.z[:, None] * jet.dg
        # z u/(1+u), in the lower half-plane; positive at real points
        base = jet.z - 1 / jet.g
        dbase = jet.dz + (1 / jet.g**2)[:, None] * jet.dg
        visit.signs.append(base.real)
        factor = base ** (t - 1)
        z = jet.z * factor
        dz = factor[:, None] * (jet.dz + (jet.z * (t - 1) / base)[:, None] * dbase)
        g = q / z
        return Jet(z, g, dz, (dq - g[:, None] * dz) / z[:, None])

    def _rise(self, child: Jet, child0: Jet, jet: Jet, jet0: Jet) -> tuple[Any, Any]:
        t = jet.z.real.dtype.type(self.exponent)
        base0 = child0.z - 1 / child0.g
        rise = child.rise_z + child.rise_g / (child.g * child0.g)
        factor0 = base0 ** (t - 1)
        rise_factor = factor0 * np.expm1((t - 1) * np.log1p(rise / base0))
        rise_z = child.rise_z * (factor0 + rise_factor) + child0.z * rise_factor
        rise_q = child.rise_z * child.g + child0.z * child.rise_g
        return rise_z, (rise_q * jet0.z - child0.z * child0.g * rise_z) / (jet.z * jet0.z)

    def mean(self) -> float:
        return float(self.children[0].mean() ** self.exponent)

    def start(self, z: Any) -> Any:
        return self.children[0].start(z / self.children[0].mean() ** (self.exponent - 1))

    def atoms(self) -> Atoms:
        t = self.exponent
        kept = [(a**t, w if a == 0 else 1 - t * (1 - w)) for a, w in self.children[0].atoms()]
        return [(location, weight) for location, weight in kept if weight > _NOTHING]

    def bounds(self) -> tuple[float, float]:
        low, high = self.children[0].bounds()
        return low**self.exponent, high**self.exponent

    def matrix(self, n: int, rng: np.random.Generator) -> Any:
        if not float(self.exponent).is_integer():
            raise ParameterError(f"a free multiplicative power of exponent {self.exponent!r} has no natural matrix")
        return Product([self.children[0]] * int(self.exponent)).matrix(n, rng)


class Scaled(Node):
    """The law of scale * x + shift, scale > 0."""

    def __init__(self, child: Node, scale: float, shift: float) -> None:
        self.children = (child,)
        self.scale, self.shift = scale, shift

    def _combine(self, jets: list[Jet], visit: Visit) -> Jet:
        (jet,) = jets
        number = jet.z.real.dtype.type
        a, b = number(self.scale), number(self.shift)
        return Jet(a * jet.z + b, jet.g / a, a * jet.dz, jet.dg / a)

    def _rise(self, child: Jet, child0: Jet, jet: Jet, jet0: Jet) -> tuple[Any, Any]:
        a = jet.z.real.dtype.type(self.scale)
        return a * child.rise_z, child.rise_g / a

    def mean(self) -> float:
        return self.scale * self.children[0].mean() + self.shift

    def start(self, z: Any) -> Any:
        return self.children[0].start((z - self.shift) / self.scale)

    def atoms(self) -> Atoms:
        return [(self.scale * location + self.shift, weight) for location, weight in self.children[0].atoms()]

    def bounds(self) -> tuple[float, float]:
        low, high = self.children[0].bounds()
        return self.scale * low + self.shift, self.scale * high + self.shift

    def matrix(self, n: int, rng: np.random.Generator) -> Any:
        return self.scale * self.children[0].matrix(n, rng) + self.shift * np.eye(n)


class Padded(Node):
    """share * law + (1 - share) * point mass at 0: zeros added, or taken away where share > 1."""

    half_plane = False  # the child's point is the node's own

    def __init__(self, child: Node, share: float) -> None:
        self.children = (child,)
        self.share = share

    def _combine(self, jets: list[Jet], visit: Visit) -> Jet:
        (jet,) = jets
        share = jet.z.real.dtype.type(self.share)
        inverse = (1 - share) / jet.z
        g, dg = share * jet.g + inverse, share * jet.dg - (inverse / jet.z)[:, None] * jet.dz
        return Jet(jet.z, g, jet.dz, dg)

    def _rise(self, child: Jet, child0: Jet, jet: Jet, jet0: Jet) -> tuple[Any, Any]:
        share = jet.z.real.dtype.type(self.share)
        return child.rise_z, share * child.rise_g - (1 - share) * child.rise_z / (child.z * child0.z)

    def mean(self) -> float:
        return self.share * self.children[0].mean()

    def start(self, z: Any) -> Any:
        return self.children[0].start(z)

    def atoms(self) -> Atoms:
        rest = [(location, self.share * weight) for location, weight in self.children[0].atoms()]
        return merged_atoms([*rest, (0.0, 1 - self.share)])

    def bounds(self) -> tuple[float, float]:
        low, high = self.children[0].bounds()
        return min(0.0, low), max(0.0, high)

    def matrix(self, n: int, rng: np.random.Generator) -> Any:
        size = max(1, round(n * self.share))
        inner = self.children[0].matrix(size, rng)
        if size >= n:  # the smallest are the zeros
            return np.diag(np.sort(np.linalg.eigvalsh(inner))[size - n :])
        result = np.zeros((n, n))
        result[:size, :size] = inner
        return result


class Noise(Node):
    """Law of (A + N)(A + N)ᵀ, A of p rows and n columns, c = p/n, N of independent entries of variance s/n."""

    def __init__(self, child: Node, variance: float, ratio: float) -> None:
        self.children = (child,)
        self.variance, self.ratio = variance, ratio

    def _combine(self, jets: list[Jet], visit: Visit) -> Jet:
        (jet,) = jets
        number = jet.z.real.dtype.type
        c, s = number(self.ratio), number(self.variance)
        factor = 1 + c * s * jet.g
        q, dq = jet.z * jet.g, jet.dz * jet.g[:, None] + jet.z[:, None] * jet.dg
        h = (1 - c) + c * q
        moved = jet.z + s * h
        z, g = moved * factor, jet.g / factor
        visit.signs.append((1 - c * (s * jet.g * h) ** 2).real)  # the noise alone is off its spectrum
        # the transform of the smaller side is bounded (Vallet, Loubaton and Mestre 2012)
        smaller = g if c <= 1 else g + (1 / c - 1) / z
        visit.signs.append((1 - 2 * c * s * smaller).real)
        dz = (jet.dz + s * c * dq) * factor[:, None] + (c * s * moved)[:, None] * jet.dg
        return Jet(z, g, dz, jet.dg / (factor**2)[:, None])

    def _rise(self, child: Jet, child0: Jet, jet: Jet, jet0: Jet) -> tuple[Any, Any]:
        number = jet.z.real.dtype.type
        c, s = number(self.ratio), number(self.variance)
        factor, factor0 = 1 + c * s * child.g, 1 + c * s * child0.g
        rise_h = c * (child.rise_z * child.g + child0.z * child.rise_g)
        moved0 = child0.z + s * ((1 - c) + c * child0.z * child0.g)
        rise_z = (child.rise_z + s * rise_h) * factor + moved0 * (c * s) * child.rise_g
        return rise_z, child.rise_g / (factor * factor0)

    def mean(self) -> float:
        return self.children[0].mean() + self.variance

    def start(self, z: Any) -> Any:
        return self.children[0].start(z)

    def atoms(self) -> Atoms:
        return rectangular_atoms([self.children[0].atoms(), [(0.0, max(0.0, 1 - 1 / self.ratio))]], self.ratio)

    def bounds(self) -> tuple[float, float]:
        top = self.children[0].bounds()[1] ** 0.5 + self.variance**0.5 * (1 + self.ratio**0.5)
        return 0.0, top**2

    def matrix(self, n: int, rng: np.random.Generator) -> Any:
        columns = max(1, round(n / self.ratio))
        entries = rng.standard_normal((n, columns)) * (self.variance / columns) ** 0.5
        return _rectangular_square([self.children[0].matrix(n, rng)], entries, rng)


class Sum(Node):
    """Free sum of several laws."""

    def __init__(self, children: Sequence[Node]) -> None:
        self.children = tuple(children)

    def _combine(self, jets: list[Jet], visit: Visit) -> Jet:
        first, *rest = jets
        inverse = 1 / first.g
        z, dz = first.z, first.dz
        for jet in rest:
            # 1/g agree: nearly linear in the unknowns
            other = 1 / jet.g
            gradient = (inverse**2)[:, None] * first.dg - (other**2)[:, None] * jet.dg
            visit.match(other - inverse, gradient)
            z = z + (jet.z - inverse)
            dz = dz + jet.dz + (inverse**2)[:, None] * first.dg
        return Jet(z, first.g, dz, first.dg)

    def mean(self) -> float:
        return sum(child.mean() for child in self.children)

    def start(self, z: Any) -> Any:
        mean = self.mean()
        return np.concatenate([child.start(z - (mean - child.mean())) for child in self.children], axis=1)

    def atoms(self) -> Atoms:
        return _sum_of_atoms([child.atoms() for child in self.children])

    def bounds(self) -> tuple[float, float]:
        pairs = [child.bounds() for child in self.children]
        return sum(low for low, _ in pairs), sum(high for _, high in pairs)

    def matrix(self, n: int, rng: np.random.Generator) -> Any:
        first, *rest = (child.matrix(n, rng) for child in self.children)
        for matrix in rest:
            first = first + _turned(matrix, rng)
        return first


class Product(Node):
    """Free product of several laws on [0, ∞)."""

    def __init__(self, children: Sequence[Node]) -> None:
        self.children = tuple(children)

    def _combine(self, jets: list[Jet], visit: Visit) -> Jet:
        first, *rest = jets
        q = first.z * first.g
        dq = first.dz * first.g[:, None] + first.z[:, None] * first.dg
        k = (q - 1) / q
        dk = dq / (q**2)[:, None]
        z, dz = first.z, first.dz
        for jet in rest:
            other = 1 / (jet.z * jet.g)
            d_other = jet.dz * jet.g[:, None] + jet.z[:, None] * jet.dg
            gradient = -(other**2)[:, None] * d_other + dk
            visit.match(other - 1 / q, gradient)
            factor = jet.z * k
            dz = dz * factor[:, None] + z[:, None] * (jet.dz * k[:, None] + jet.z[:, None] * dk)
            z = z * factor
        g = q / z
        return Jet(z, g, dz, (dq - g[:, None] * dz) / z[:, None])

    def mean(self) -> float:
        return math.prod(child.mean() for child in self.children)

    def start(self, z: Any) -> Any:
        mean = self.mean()
        return np.concatenate([child.start(z * (child.mean() / mean)) for child in self.children], axis=1)

    def atoms(self) -> Atoms:
        return _product_of_atoms([child.atoms() for child in self.children])

    def bounds(self) -> tuple[float, float]:
        low = high = 1.0
        for child in self.children:
            less, more = child.bounds()
            low, high = low * max(0.0, less), high * more
        return low, high

    def matrix(self, n: int, rng: np.random.Generator) -> Any:
        first, *rest = (child.matrix(n, rng) for child in self.children)
        for matrix in rest:
            root = _root(first)
            first = root @ _turned(matrix, rng) @ root
        return first


class RectangularSum(Node):
    """Law of (A + B)(A + B)ᵀ for matrices of p rows and n columns in general position, c = p/n.

    Only the square roots of the children's points stay in the upper half-plane.
    """

    half_plane = False

    def __init__(self, children: Sequence[Node], ratio: float) -> None:
        self.children = tuple(children)
        self.ratio = ratio

    def _combine(self, jets: list[Jet], visit: Visit) -> Jet:
        c = jets[0].z.real.dtype.type(self.ratio)
        parts = [_rectangular(jet, c) for jet in jets]
        q, w, dq, dw = parts[0]
        for other_q, other_w, other_dq, other_dw in parts[1:]:
            gradient = (1 / w**2)[:, None] * dw - (1 / other_w**2)[:, None] * other_dw
            visit.match(1 / other_w - 1 / w, gradient)
            q, dq = q + (other_q - 1), dq + other_dq
        return _from_rectangular(q, w, dq, dw, c)

    def mean(self) -> float:
        return sum(child.mean() for child in self.children)

    def start(self, z: Any) -> Any:
        return np.concatenate([child.start(z) for child in self.children], axis=1)

    def atoms(self) -> Atoms:
        return rectangular_atoms([child.atoms() for child in self.children], self.ratio)

    def bounds(self) -> tuple[float, float]:
        return 0.0, sum(child.bounds()[1] ** 0.5 for child in self.children) ** 2

    def matrix(self, n: int, rng: np.random.Generator) -> Any:
        columns = max(1, round(n / self.ratio))
        return _rectangular_square([child.matrix(n, rng) for child in self.children], np.zeros((n, columns)), rng)


def _rectangular(jet: Jet, c: Any) -> tuple[Any, Any, Any, Any]:
    """q = zg and w = g(1 - c + c q) with derivatives."""
    q = jet.z * jet.g
    dq = jet.dz * jet.g[:, None] + jet.z[:, None] * jet.dg
    factor = (1 - c) + c * q
    return q, jet.g * factor, dq, jet.dg * factor[:, None] + (jet.g * c)[:, None] * dq


def _from_rectangular(q: Any, w: Any, dq: Any, dw: Any, c: Any) -> Jet:
    factor = (1 - c) + c * q
    z, g = q * factor / w, w / factor
    dz = ((factor + c * q)[:, None] * dq - z[:, None] * dw) / w[:, None]
    return Jet(z, g, dz, (dw - (g * c)[:, None] * dq) / factor[:, None])


def gathered(nodes: Sequence[Node]) -> list[tuple[Node, int]]:
    """Equal nodes once, with how often they occur; equal are leaves of the same law."""
    found: list[tuple[Node, int]] = []
    for node in nodes:
        for k, (other, count) in enumerate(found):
            if node is other or (isinstance(node, Leaf) and isinstance(other, Leaf) and _equal(node.law, other.law)):
                found[k] = other, count + 1
                break
        else:
            found.append((node, 1))
    return found


def _equal(first: Law, second: Law) -> bool:
    """Whether two laws are of one class with equal attributes; when in doubt, not."""
    if first is second or type(first) is not type(second):
        return first is second
    mine, other = vars(first), vars(second)
    return mine.keys() == other.keys() and all(
        isinstance(value, (bool, int, float, str, tuple, np.ndarray)) and np.array_equal(value, other[name])
        for name, value in mine.items()
    )


# -- atoms, from theory -----------------------------------------------------------------------------------------

_NOTHING = 1e-15  # a weight that only rounding left


def merged_atoms(atoms: Atoms) -> Atoms:
    """Ascending, equal locations joined, weights above rounding."""
    total: dict[float, float] = {}
    for location, weight in atoms:
        key = location + 0.0
        total[key] = total.get(key, 0.0) + weight
    return sorted((location, weight) for location, weight in total.items() if weight > _NOTHING)


def _sum_of_atoms(parts: list[Atoms]) -> Atoms:
    """An atom at a + b where the weights exceed 1 together, of what is beyond 1 (Bercovici and Voiculescu 1998)."""
    result = parts[0]
    for other in parts[1:]:
        result = [(a + b, v + w - 1) for a, v in result for b, w in other if v + w > 1 + _NOTHING]
    return sorted(result)


def _product_of_atoms(parts: list[Atoms]) -> Atoms:
    """At 0 the larger weight; at a*b != 0 what the weights have beyond 1 (Belinschi 2003)."""
    result = parts[0]
    for other in parts[1:]:
        zero = max([w for a, w in result + other if a == 0], default=0.0)
        rest = [(a * b, v + w - 1) for a, v in result for b, w in other if a * b != 0 and v + w > 1 + _NOTHING]
        result = merged_atoms([(0.0, zero), *rest])
    return result


def rectangular_atoms(parts: list[Atoms], ratio: float) -> Atoms:
    """At 0 what the ranks leave of the rows; at a > 0 the weight less twice the ranks of the other matrices."""
    ranks = [1 - sum(w for a, w in part if a == 0) for part in parts]
    zero = 1 - min(1.0, 1 / ratio, sum(ranks))
    kept = [
        (a, w - 2 * (sum(ranks) - rank)) for part, rank in zip(parts, ranks, strict=True) for a, w in part if a != 0
    ]
    return merged_atoms([(0.0, zero), *((a, w) for a, w in kept if w > _NOTHING)])


# -- matrices ---------------------------------------------------------------------------------------------------


def _root(matrix: Any) -> Any:
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


def _turned(matrix: Any, rng: np.random.Generator) -> Any:
    return rotated(np.linalg.eigvalsh(matrix), rng)


def _rectangular_square(squares: list[Any], start: Any, rng: np.random.Generator) -> Any:
    """(Σ A_i + start)(...)ᵀ for A_i in general position with the given A_i A_iᵀ."""
    n, columns = start.shape
    total = start
    for square in squares:
        squares_of = np.linalg.eigvalsh(square)[::-1]
        values = np.sqrt(np.where(squares_of > _KERNEL * squares_of[0], squares_of, 0.0))
        short = min(n, columns)
        left = np.linalg.qr(rng.standard_normal((n, short)))[0]
        right = np.linalg.qr(rng.standard_normal((columns, short)))[0]
        total = total + (left * values[:short]) @ right.T
    return total @ total.T
