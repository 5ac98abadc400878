r"""Free convolutions, powers and compressions of laws; push-forwards. Results are laws again and compose to any depth.

Laws with rational R- or S-transform (semicircle, Marchenko–Pastur, compound free Poisson, products of Gaussian
matrices) are merged exactly into one rational map; a law that comes from an operation is not evaluated and stored in
between but taken apart into what it was made of. See `gequiv.laws.subordination` for the equations and for what
certifies a result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gequiv import _checks
from gequiv.errors import ParameterError
from gequiv.laws.affine import Affine
from gequiv.laws.atomic import Atomic
from gequiv.laws.base import Law
from gequiv.laws.gaussian_product import GaussianProduct
from gequiv.laws.marchenko_pastur import MarchenkoPastur
from gequiv.laws.pushforward import Inverse, Square, SymmetricRoot
from gequiv.laws.semicircle import Semicircle
from gequiv.laws.subordinated import law_of_tree
from gequiv.laws.subordination import (
    AddFree,
    Increment,
    Leaf,
    MultiplicativePower,
    Node,
    Noise,
    Padded,
    Power,
    Product,
    RectangularSum,
    Scaled,
    Sum,
    Wishart,
    gathered,
)

_ROUNDING = 1e-12


def additive(first: Law, second: Law, *more: Law) -> Law:
    r"""Free additive convolution: the law of A + B for large matrices in general position.

    :math:`R = R_1 + R_2`. With :math:`F = 1/G` and the subordination functions,
    :math:`F(z) = F_1(\omega_1) = F_2(\omega_2)`, :math:`\omega_1 + \omega_2 = z + F(z)`. An atom at a + b where
    :math:`\mu_1\{a\} + \mu_2\{b\} > 1`, of what is beyond 1.

    Parameters
    ----------
    first, second, more : laws, of any support.

    Returns
    -------
    A law: in closed form where it is a semicircle or Marchenko–Pastur law, on a rational curve where all but one of the
    laws have rational R-transforms, else by Newton's method on several subordination functions.

    Raises
    ------
    ParameterError : an argument is not a law.
    CertificationError : the law could not be certified.

    Sources: Voiculescu 1986; Biane 1998; Bercovici and Voiculescu 1998 (atoms).

    Examples
    --------
    >>> from gequiv import laws
    >>> law = additive(laws.Semicircle(variance=1), laws.MarchenkoPastur(ratio=0.5))
    >>> round(law.variance(), 12)
    1.5
    """
    laws = _laws((first, second, *more))
    increment = Increment(0.0, (), ())
    nodes: list[Node] = []
    for law in laws:
        own = law._increment()
        if own is not None:
            increment = increment + own
            continue
        node = law._node()
        if isinstance(node, AddFree):
            increment = increment + node.increment
            node = node.children[0]
        nodes += node.children if isinstance(node, Sum) else (node,)
    name = f"additive({_listed(laws)})"
    if not nodes:
        return _divisible(increment, name)
    terms = [node if count == 1 else Power(node, count) for node, count in gathered(nodes)]
    node = terms[0] if len(terms) == 1 else Sum(terms)
    if not increment.poles:
        plain = laws_without_points(laws)
        base = plain[0] if len(plain) == 1 else law_of_tree(node, name)
        return Affine(base, 1.0, increment.mean) if increment.mean else base
    return law_of_tree(AddFree(node, increment), name)


def laws_without_points(laws: Sequence[Law]) -> list[Law]:
    """Those that are not a single point mass."""
    return [law for law in laws if law.support() or len(law.atoms()) > 1]


def _divisible(increment: Increment, name: str) -> Law:
    """The law of a rational R-transform: in closed form where it has at most one pole."""
    if not increment.poles:
        return Atomic([increment.mean])
    if len(increment.poles) > 1:
        return law_of_tree(AddFree(Leaf(Atomic([0.0])), increment), name)
    (pole,), (weight,) = increment.poles, increment.weights
    if pole == 0:
        return Semicircle(variance=weight, mean=increment.mean)
    mean = weight / pole
    shift = increment.mean - mean
    if abs(shift) <= _ROUNDING * abs(mean):
        shift = 0.0
    law = MarchenkoPastur(abs(pole / mean), abs(mean))
    return law if shift == 0 and pole > 0 else Affine(law, 1.0 if pole > 0 else -1.0, shift)


def multiplicative(first: Law, second: Law, *more: Law) -> Law:
    r"""Free multiplicative convolution: the law of :math:`\sqrt A\,B\sqrt A` for matrices in general position.

    :math:`S = S_1 S_2`. With :math:`u(z) = zG(z) - 1`, :math:`u = u_1(\omega_1) = u_2(\omega_2)`,
    :math:`\omega_1\omega_2 = z\,(1+u)/u`. An atom at 0 of the larger of the two weights there; at ab > 0 where
    :math:`\mu_1\{a\} + \mu_2\{b\} > 1`, of what is beyond 1.

    One factor may be symmetric about 0. Then :math:`(\mu \boxtimes \nu)^{2} = \mu \boxtimes \mu \boxtimes \nu^2` for
    the laws of squares.

    Parameters
    ----------
    first, second, more : laws on [0, ∞), but one, which may be symmetric.

    Raises
    ------
    ParameterError : an argument is not a law, or charges negative numbers without being the one symmetric law.
    CertificationError : the law could not be certified.

    Sources: Voiculescu 1987; Biane 1998; Belinschi 2003 (atoms); Arizmendi and Pérez-Abreu 2009 (symmetric factor).

    Examples
    --------
    >>> from gequiv import laws
    >>> law = multiplicative(laws.MarchenkoPastur(0.5), laws.MarchenkoPastur(0.5))
    >>> round(law.moment(2), 12)
    2.0
    """
    laws = _laws((first, second, *more))
    symmetric = [law for law in laws if _lowest(law) < 0]
    for law in symmetric:
        if len(symmetric) > 1 or not is_symmetric(law):
            raise ParameterError(
                "multiplicative takes laws on [0, inf), but for one that may be symmetric about 0; "
                f"got {law!r}, which reaches {_lowest(law)!r}"
            )
    name = f"multiplicative({_listed(laws)})"
    if symmetric:
        positive = [law for law in laws if law is not symmetric[0]]
        squared = _product([*positive, *positive], [_squared(symmetric[0])], name + "**2")
        return SymmetricRoot(squared)
    return _product(laws, [], name)


def _product(laws: Sequence[Law], nodes: Sequence[Node], name: str) -> Law:
    scale = math.prod(node.bounds()[0] for node in nodes if node.is_point())
    nodes = [node for node in nodes if not node.is_point()]
    factors: list[tuple[float, float]] = []
    single: list[Law] = []
    for law in laws:
        own = law._factors()
        if own is not None:
            scale *= own[0]
            factors += own[1]
            continue
        single.append(law)
        node = law._node()
        while isinstance(node, Wishart) or (isinstance(node, Scaled) and node.shift == 0):
            if isinstance(node, Wishart):
                factors.append((node.ratio, node.variance))
            else:
                scale *= node.scale
            node = node.children[0]
        if node.is_point():
            scale *= node.bounds()[0]
        else:
            nodes += node.children if isinstance(node, Product) else (node,)
    if scale == 0:
        return Atomic([0.0])
    if not nodes:
        scale *= float(np.prod([variance for _, variance in factors]))
        if not factors:
            return Atomic([scale])
        ratios = [ratio for ratio, _ in factors]
        if len(ratios) == 1:
            return MarchenkoPastur(ratios[0], scale)
        return GaussianProduct([1.0, *(1 / ratio for ratio in ratios)], scale)
    if not factors and len(nodes) == 1 and len(single) == 1:
        return Affine(single[0], scale) if scale != 1 else single[0]
    terms = [node if count == 1 else MultiplicativePower(node, count) for node, count in gathered(nodes)]
    node = terms[0] if len(terms) == 1 else Product(terms)
    for k, (ratio, variance) in enumerate(factors):
        node = Wishart(node, ratio, variance * scale if k == 0 else variance)
    if not factors and scale != 1:
        node = Scaled(node, scale, 0.0)
    return law_of_tree(node, name)


def _squared(law: Law) -> Node:
    """The law of x² for a symmetric law."""
    if isinstance(law, Semicircle):
        return Wishart(Leaf(Atomic([1.0])), 1.0, law.variance())
    if not law.support():
        return Leaf(Atomic([a * a for a, _ in law.atoms()], [w for _, w in law.atoms()]))
    return Leaf(Square(law))


def rectangular(signal: Law, other: Law | None = None, *, noise_variance: Any = None, ratio: Any) -> Law:
    r"""Rectangular free convolution: the law of :math:`(A + B)(A + B)^T` for A and B in general position.

    A and B have p rows and n columns, c = p/n. With :math:`y(z) = zG(z) - 1` and :math:`w(z) = (1+y)(1+cy)/z`, the
    inverse functions :math:`y = C(w)` add: :math:`C = C_A + C_B`. For independent entries of variance s/n,
    :math:`C(w) = sw`: information plus noise.

    Parameters
    ----------
    signal : the law of :math:`A A^T`, p eigenvalues.
    other : the law of :math:`B B^T`; in place of it
    noise_variance : s, at least 0: B has independent entries of variance s/n.
    ratio : c = rows/columns, above 0.

    Raises
    ------
    ParameterError : signal or other is not a law on [0, ∞), or has less mass at 0 than the 1 - 1/c that more rows than
        columns leave there; not exactly one of other and noise_variance is given; ratio is not positive.
    CertificationError : the law could not be certified.

    Sources: Benaych-Georges 2009; Dozier and Silverstein 2007.

    Examples
    --------
    >>> from gequiv import laws
    >>> law = rectangular(laws.Atomic([0, 4], [0.9, 0.1]), noise_variance=1, ratio=0.5)
    >>> round(law.mean(), 12)
    1.4
    """
    c = _checks.positive_real("ratio", ratio)
    if (other is None) == (noise_variance is None):
        raise ParameterError(
            f"give either other or noise_variance, not both or none; got other={other!r} and "
            f"noise_variance={noise_variance!r}"
        )
    laws = _laws((signal,) if other is None else (signal, other), ("signal", "other"))
    kernel = max(0.0, 1 - 1 / c)
    for name, law in zip(("signal", "other"), laws, strict=False):
        if _lowest(law) < 0:
            raise ParameterError(f"{name} must be a law on [0, inf); got {law!r}, which reaches {_lowest(law)!r}")
        at_zero = sum(weight for location, weight in law.atoms() if location == 0)
        if at_zero < kernel - _ROUNDING:
            raise ParameterError(
                f"{name} must have an atom of weight at least 1 - 1/ratio = {kernel:.6g} at 0, as there are {c:g} "
                f"times as many rows as columns; got {law!r}, whose atom at 0 has weight {at_zero:.6g}"
            )
    variance = (
        0.0 if noise_variance is None else _checks.positive_real("noise_variance", noise_variance, allow_zero=True)
    )
    rest: list[Node] = []
    plain: list[Law] = []
    for law in laws:
        own = law._factors()
        if own is not None and len(own[1]) == 1 and abs(own[1][0][0] - c) <= _ROUNDING * c:
            variance += own[0] * own[1][0][1]
            continue
        node = law._node()
        if isinstance(node, Noise) and node.ratio == c <= 1:
            variance += node.variance
            node = node.children[0]
        if node.is_point() and node.bounds()[0] == 0:
            continue
        plain.append(law)
        rest.append(node)
    if not rest:
        return MarchenkoPastur(c, variance) if variance else Atomic([0.0])
    if variance == 0 and len(plain) == 1:
        return plain[0]
    node = rest[0] if len(rest) == 1 else RectangularSum([Leaf(law) for law in plain], c)
    described = repr(other) if other is not None else f"noise_variance={variance:g}"
    if variance and c > 1:  # as the transposed matrix, which has no kernel of its own
        node = Padded(Noise(_trimmed(node, c), variance * c, 1 / c), 1 / c)
    elif variance:
        node = Noise(node, variance, c)
    return law_of_tree(node, f"rectangular({signal!r}, {described}, ratio={c:g})")


def _trimmed(node: Node, ratio: float) -> Node:
    """The law of AᵀA from that of A Aᵀ, for A of more rows than columns."""
    if not (isinstance(node, Leaf) and not node.law.support()):
        return Padded(node, ratio)
    weights = [ratio * weight - (ratio - 1 if location == 0 else 0) for location, weight in node.atoms()]
    kept = [(a, w) for (a, _), w in zip(node.atoms(), weights, strict=True) if w > _ROUNDING]
    total = sum(w for _, w in kept)
    return Leaf(Atomic([a for a, _ in kept], [w / total for _, w in kept]))


def power(law: Law, exponent: Any) -> Law:
    r"""Free additive power: R times t.

    For t >= 1 it exists for every law; for t an integer it is the law of a sum of t copies in general position. With
    F = 1/G, :math:`\omega = z/t + (1 - 1/t) F(\omega)`, :math:`F_t(z) = F(\omega)`. An atom a of weight w stays, at ta,
    where :math:`1 - t(1-w) > 0`, of that weight.

    Parameters
    ----------
    law : any law.
    exponent : t, at least 1; above 0 for freely infinitely divisible laws of rational R-transform.

    Raises
    ------
    ParameterError : law is not a law, or exponent is out of range.
    CertificationError : the law could not be certified.

    Sources: Nica and Speicher 1996; Belinschi and Bercovici 2004.
    """
    (law,) = _laws((law,))
    t = _checks.positive_real("exponent", exponent)
    name = f"power({law!r}, {t:g})"
    own = law._increment()
    if own is not None:
        return _divisible(own.power(t), name)
    if t < 1:
        raise ParameterError(f"exponent must be at least 1 for {law!r}; got {exponent!r}")
    if t == 1:
        return law
    node = law._node()
    if isinstance(node, AddFree):  # R adds
        return law_of_tree(AddFree(Power(node.children[0], t), node.increment.power(t)), name)
    return law_of_tree(Power(node, t), name)


def multiplicative_power(law: Law, exponent: Any) -> Law:
    r"""Free multiplicative power of a law on [0, ∞): S to the power t.

    With F = 1/G, :math:`z = \omega\,(\omega - F(\omega))^{t-1}` and zG(z) = ωG(ω). An atom at 0 stays; one at a > 0 of
    weight w becomes :math:`a^t` of weight :math:`1 - t(1-w)` where that is positive.

    Parameters
    ----------
    law : a law on [0, ∞), not the point mass at 0.
    exponent : t, at least 1.

    Raises
    ------
    ParameterError : law is not such a law, or exponent is below 1.
    CertificationError : the law could not be certified.

    Source: Belinschi and Bercovici 2005.
    """
    (law,) = _laws((law,))
    t = _checks.positive_real("exponent", exponent)
    if t < 1:
        raise ParameterError(f"exponent must be at least 1; got {exponent!r}")
    if _lowest(law) < 0:
        raise ParameterError(f"law must be a law on [0, inf); got {law!r}, which reaches {_lowest(law)!r}")
    if not laws_without_points([law]):
        if law.mean() == 0:
            raise ParameterError("law must not be the point mass at 0")
        return Atomic([law.mean() ** t])
    if t.is_integer() and law._factors() is not None:
        return _product([law] * int(t), [], "") if t > 1 else law
    return law if t == 1 else law_of_tree(MultiplicativePower(law._node(), t), f"multiplicative_power({law!r}, {t:g})")


def compression(law: Law, share: Any) -> Law:
    r"""Free compression: the law of the corner of a matrix in general position, of a share α of its rows and columns.

    :math:`R_\alpha(g) = R(\alpha g)`: the law of α x for the free power 1/α.

    Parameters
    ----------
    law : any law.
    share : α, above 0 and at most 1.

    Raises
    ------
    ParameterError : law is not a law, or share is out of range.
    CertificationError : the law could not be certified.

    Source: Nica and Speicher 1996.
    """
    (law,) = _laws((law,))
    alpha = _checks.positive_real("share", share)
    if alpha > 1:
        raise ParameterError(f"share must be at most 1; got {share!r}")
    return law if alpha == 1 else Affine(power(law, 1 / alpha), alpha)


def square(law: Law) -> Law:
    """The law of x²; see `gequiv.laws.pushforward.Square`."""
    (law,) = _laws((law,))
    return Square(law)


def square_root(law: Law) -> Law:
    """The law of √x for a law on [0, ∞); see `gequiv.laws.SingularValueLaw`."""
    (law,) = _laws((law,))
    return law.singular_values()


def inverse(law: Law) -> Law:
    """The law of 1/x for a law that keeps away from 0; see `gequiv.laws.pushforward.Inverse`."""
    (law,) = _laws((law,))
    return Inverse(law)


# -- what the arguments are ---------------------------------------------------------------------------------------


def is_symmetric(law: Law) -> bool:
    """Whether the law is symmetric about 0, to rounding."""
    for k in (1, 3, 5):
        even = float(law.moment(k + 1))
        if abs(float(law.moment(k))) > _ROUNDING * even ** (k / (k + 1)):
            return False
    q = (np.arange(64) + 0.37) / 64
    x = np.asarray(law.ppf(q))
    reach = max(abs(_lowest(law)), 1e-300)
    return bool(np.max(np.abs(x + np.asarray(law.ppf(1 - q)))) <= 1e-9 * reach)


def _lowest(law: Law) -> float:
    ends = [low for low, _ in law.support()] + [location for location, _ in law.atoms()]
    return float(min(ends))


def _laws(values: Sequence[Any], names: Sequence[str] = ()) -> list[Law]:
    for k, value in enumerate(values):
        if not isinstance(value, Law):
            name = names[k] if k < len(names) else "every argument"
            raise ParameterError(f"{name} must be a law, such as gequiv.laws.MarchenkoPastur(0.5); got {value!r}")
    return list(values)


def _listed(laws: Sequence[Law]) -> str:
    return ", ".join(repr(law) for law in laws)
