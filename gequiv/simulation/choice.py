"""Which law a head is held against: the limit theorem's, or that of its own size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from gequiv.attention.parameters import Attention
from gequiv.errors import CertificationError, ParameterError
from gequiv.laws.base import Law
from gequiv.simulation.comparison import laws_distance

Wish = Literal["auto", "finite", "limit"]
Kind = Literal["finite-size", "limit", "given"]

WISHES = ("auto", "finite", "limit")
NOISE = 4.0
"""Distance in units of 1/min(tokens, keys) that the spectra of a few draws do not resolve."""


@dataclass(frozen=True)
class LawChoice:
    """The law that `choose_law` took, beside what it chose from.

    Attributes
    ----------
    law : the one taken.
    kind : "finite-size", "limit" or "given".
    limit, finite : the limit and the finite-size law; None where there is none or it was not asked for.
    distance : Kolmogorov–Smirnov distance between these two; None without both.
    refusal : why there is no finite-size law where there should be one; else None.
    """

    law: Law
    kind: Kind
    limit: Law | None = None
    finite: Law | None = None
    distance: float | None = None
    refusal: str | None = None


def choose_law(head: Attention, wish: Wish = "auto", *, method: str | None = None, rescaled: bool = False) -> LawChoice:
    """The finite-size law of a head or its limit law.

    Parameters
    ----------
    head : the head.
    wish : "finite" or "limit" for that law; "auto" for the finite-size law if the head has a mask, a bias or given
        weights, or if the two laws are more than 4/min(tokens, keys) apart, which is more than sampling noise; else, or
        if the finite-size law cannot be had, for the limit law.
    method, rescaled : as for `Attention.limit_law`; with either, "auto" is the limit law. There is no rescaled
        finite-size law.

    Raises
    ------
    ParameterError : wish is none of these; method or rescaled with "finite", a mask or a bias; or as the laws that are
        needed.
    CertificationError : the limit law could not be certified; or the finite-size law could not where it is the only
        one to take.
    """
    if wish not in WISHES:
        raise ParameterError(f"law must be one of {', '.join(map(repr, WISHES))}; got {wish!r}")
    restricted = head.visibility is not None
    for name, value, none in (("method", method, None), ("rescaled", rescaled, False)):
        if value != none and (wish == "finite" or restricted):
            reason = "law='finite'" if wish == "finite" else "a mask or a bias"
            raise ParameterError(f"{name} belongs to the limit law and must be {none} with {reason}; got {value!r}")
    limit = None if restricted and wish != "limit" else head.limit_law(method, rescaled=rescaled)
    finite, refusal = None, None
    if wish == "finite" or not (rescaled or head.score is not None) or limit is None:
        try:
            finite = head.finite_law()
        except (CertificationError, ParameterError) as error:
            if wish == "finite" or limit is None:
                raise
            refusal = str(error)
    distance = laws_distance(finite, limit) if finite is not None and limit is not None else None
    if finite is not None and (wish == "finite" or (wish == "auto" and _needed(head, method, distance))):
        return LawChoice(finite, "finite-size", limit, finite, distance)
    assert limit is not None
    return LawChoice(limit, "limit", limit, finite, distance, refusal)


def _needed(head: Attention, method: str | None, distance: float | None) -> bool:
    if distance is None or head.weights is not None:
        return method is None
    return method is None and distance > NOISE / min(head.tokens, head.columns)


def expected_outliers(law: Law) -> tuple[tuple[float, bool, str], ...]:
    """(location, visible, origin) of ``law.outliers()``; empty for a law without, or if they cannot be certified."""
    find: Any = getattr(law, "outliers", None)
    try:
        return () if find is None else tuple((float(o.location), bool(o.visible), str(o.origin)) for o in find())
    except CertificationError:
        return ()
