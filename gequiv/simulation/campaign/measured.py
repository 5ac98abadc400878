"""What is measured of one model: its draws against its laws. The unit of parallel work, kept in the store."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from gequiv._checks import Array
from gequiv._version import __version__
from gequiv.attention.finite import MaskedFiniteLaw
from gequiv.attention.parameters import Attention
from gequiv.errors import CertificationError, ParameterError, StorageError
from gequiv.laws.base import Law
from gequiv.simulation.campaign.model import ROW_STATISTICS, Model
from gequiv.simulation.comparison import ROUNDING, compare, laws_distance, sampling_noise

MEASURED_FORMAT = 1
"""Version of what is kept of a model: a higher one makes earlier records unknown."""
ALTERNATIVE = "marchenko-pastur"
"""Law that every model is compared with, as an alternative for claims, whether it is listed or not."""
TRACY_WIDOM = (-1.206533574582093, -3.262427902820476)
"""Means of the largest and second largest eigenvalue at a soft edge of real symmetric matrices (Bornemann 2010)."""
BINS, POINTS = 48, 300
_NORM_NODES = (5, 6, 7)
_OF_ATTENTION = ("Perron value of A", "mean attention, of A")
_TAIL = 0.999
_NEAR = 4.0
_SQUARE_ROOT = 0.25
_POOL = 2**19
"""Values of pooled draws beyond which every so many-th stands for its neighbours, which KS notices by 2e-6."""


class Records(Protocol):
    """What is asked of a store; see `gequiv.simulation.campaign.store.Store`."""

    def get(self, key: str, kind: str = "draws") -> dict[str, Array] | None: ...

    def put(self, key: str, arrays: Mapping[str, Array], kind: str = "draws") -> None: ...

    @property
    def damaged(self) -> int: ...


@dataclass(frozen=True)
class LawMeasured:
    """A law and the draws' distances from it; arrays over draws are in the order of the draws.

    Attributes
    ----------
    refusal : why there is no law; else "".
    note : number of norm nodes that was forced, in words; else "".
    ks, wasserstein : (draws,).
    pooled : KS of all draws pooled; beyond `_POOL` values to 2e-6.
    orders, moments, expected : orders of moments, the law's, and those of the draws (draws, orders).
    predicted, origins : top values, descending, and what each belongs to.
    silence : why there are none; else "".
    grid, density, atom : as in `gequiv.simulation.campaign.findings.LawFinding`.
    """

    refusal: str = ""
    note: str = ""
    ks: Array = field(default_factory=lambda: np.empty(0))
    wasserstein: Array = field(default_factory=lambda: np.empty(0))
    pooled: float = math.nan
    orders: tuple[int, ...] = ()
    expected: Array = field(default_factory=lambda: np.empty(0))
    moments: Array = field(default_factory=lambda: np.empty((0, 0)))
    predicted: Array = field(default_factory=lambda: np.empty(0))
    origins: tuple[str, ...] = ()
    silence: str = ""
    grid: Array = field(default_factory=lambda: np.empty(0))
    density: Array = field(default_factory=lambda: np.empty(0))
    atom: float = 0.0


@dataclass(frozen=True)
class Measured:
    """What was measured of a model.

    Attributes
    ----------
    indices : of the draws that are there.
    missing, damaged : keys of draws that are not, and of those of them that were found damaged.
    laws : by name, `ALTERNATIVE` always among them if there are spectra.
    distances : KS distance of two laws, by names in alphabetical order.
    noise : sampling noise of KS; None with one draw or without spectra.
    edges, heights, zeros : as in `gequiv.simulation.campaign.findings.ModelFinding`; empty without spectra.
    tops : largest values, descending, (draws, number); no columns where they are not known.
    rows : (draws, statistics, 3), mean, standard deviation, median; no draws where they are not known.
    errors : 99 % sampling errors of Lanczos estimates, (draws,); empty for dense draws.
    step : half a step of their quantiles, which stand for their distribution functions.
    """

    indices: tuple[int, ...]
    missing: tuple[str, ...]
    damaged: tuple[str, ...]
    laws: dict[str, LawMeasured]
    distances: dict[tuple[str, str], float]
    noise: float | None
    edges: Array
    heights: Array
    zeros: float
    tops: Array
    rows: Array
    errors: Array
    step: float

    @property
    def draws(self) -> int:
        """Number of draws that are there."""
        return len(self.indices)

    @property
    def slack(self) -> float:
        """What the mean over draws of a KS distance may be off by, for matrix-free estimates."""
        return math.fsum(self.errors) / len(self.errors) + self.step if self.errors.size else 0.0

    def ks(self, law: str) -> Array:
        """KS of each draw; empty where the law could not be had."""
        found = self.laws.get(law)
        return np.empty(0) if found is None or found.refusal else found.ks

    def distance(self, a: str, b: str) -> float:
        """KS distance of two laws; NaN if unknown."""
        return self.distances.get((min(a, b), max(a, b)), math.nan)


def measure(model: Model, store: Records) -> Measured:
    """Compare the draws of a model that are in the store with its laws; what was found is kept there.

    The result depends on model and draws alone. BLAS has one thread. What cannot be kept, on a full disk for example,
    is measured again the next time.
    """
    from threadpoolctl import threadpool_limits

    found = _read(model, store)
    record = store.get(found.key, kind="comparisons") if found.draws else None
    if record is None:
        with threadpool_limits(limits=1):
            record = _record(model, found.draws)
        if found.draws:
            with suppress(StorageError):
                store.put(found.key, record, kind="comparisons")
    return _measured(record, found)


def comparison_key(model: Model, store: Records) -> str:
    """Key under which `measure` keeps what it finds of the draws that are there now."""
    return _read(model, store).key


@dataclass(frozen=True)
class _Found:
    """Draws of a model that are there, the key of their comparison, and what is not there."""

    draws: list[dict[str, Array]]
    key: str
    indices: tuple[int, ...]
    missing: tuple[str, ...]
    damaged: tuple[str, ...]


def _read(model: Model, store: Records) -> _Found:
    draws: list[dict[str, Array]] = []
    indices, missing, damaged = [], [], []
    digest = hashlib.sha256()
    for task in model.tasks():
        before = store.damaged
        arrays = store.get(task.key)
        if arrays is None:
            missing.append(task.key)
            if store.damaged > before:
                damaged.append(task.key)
            continue
        indices.append(task.index)
        draws.append(arrays)
        for name in sorted(arrays):
            digest.update(f"{name} {arrays[name].shape}\n".encode() + np.ascontiguousarray(arrays[name]).tobytes())
    question = {
        "format": MEASURED_FORMAT,
        "version": __version__,
        "model": model.identity,
        "laws": list(model.laws),
        "seeds": [model.seeds[index] for index in indices],
        "draws": digest.hexdigest(),
    }
    key = hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()
    return _Found(draws, key, tuple(indices), tuple(missing), tuple(damaged))


# -- laws ---------------------------------------------------------------------------------------------


def law_of(name: str, head: Attention) -> tuple[Law, str]:
    """The law of this name, and a note if it took more norm nodes than it chooses itself.

    Raises
    ------
    ParameterError : the head has no such law.
    CertificationError : it could not be certified, nor with 5, 6 or 7 norm nodes.
    """
    if name == "limit":
        return head.limit_law(), ""
    if name == "marchenko-pastur":
        from gequiv.simulation.experiment import marchenko_pastur

        return marchenko_pastur(head), ""
    try:
        return head.finite_law(), ""
    except CertificationError:
        for nodes in _NORM_NODES:
            try:
                return head.finite_law(norm_nodes=nodes), f"with {nodes} norm nodes, as its own number was refused"
            except CertificationError:
                continue
        raise


def _laws(model: Model) -> tuple[dict[str, tuple[Law, str]], dict[str, str]]:
    found, refused = {}, {}
    for name in dict.fromkeys((*model.laws, ALTERNATIVE)):
        try:
            found[name] = law_of(name, model.head)
        except (CertificationError, ParameterError) as error:
            refused[name] = str(error)
    return found, refused


def _top_values(law: Law, name: str, model: Model) -> tuple[list[tuple[float, str]], str]:
    """(location, origin) of the largest values of A - Ā that a law predicts, descending, or why it does not.

    Visible outliers above the edge, then the edge's own as Tracy and Widom have them, if it is a square root.
    """
    if name != "finite":
        return [], ""
    if model.plan.matrix != "attention":
        return [], "the finite-size law's top values are those of attention, not of its linear model"
    assert hasattr(law, "outliers")
    assert hasattr(law, "edge_scale")
    edge = float(law.support()[-1][1])
    masked = isinstance(law, MaskedFiniteLaw)
    try:
        everything = law.outliers()
        # a masked law's edge is where less than one value is expected above
        above = float(law.ppf(1 - 1 / model.head.tokens)) if masked else edge
        scale = math.nan if masked else law.edge_scale()
    except CertificationError as error:
        return [], str(error)
    seen = [o for o in everything if o.visible and o.origin not in _OF_ATTENTION and above < o.location < math.inf]
    found = [(float(o.location), str(o.origin)) for o in seen]
    if masked and not found:
        return [], "a masked head's bulk has no edge of Tracy and Widom's kind, and no outlier leaves it"
    if masked:
        return found, ""
    if not _is_soft(law, edge, scale, model.head.tokens):
        return found, "" if found else "the bulk's edge is no square root on the scale of its largest value"
    return found + [(edge + mean * scale, "edge") for mean in TRACY_WIDOM], ""


def _is_soft(law: Law, edge: float, scale: float, tokens: int) -> bool:
    r"""Whether the density is a square root down to `_NEAR` scales below the edge, which are above 0.

    Then :math:`2 s^{3/2}/(3\pi)` values are within s scales of it, as scales are made.
    """
    if not (0 < scale < math.inf and edge > _NEAR * scale):
        return False
    count = tokens * (1 - float(law.cdf(edge - _NEAR * scale)))
    return bool(abs(count / (2 * _NEAR**1.5 / (3 * math.pi)) - 1) < _SQUARE_ROOT)


# -- measuring ----------------------------------------------------------------------------------------


def _record(model: Model, draws: list[dict[str, Array]]) -> dict[str, Array]:
    """All that is measured, as arrays for the store."""
    record: dict[str, Array] = {}
    rows = [arrays["rows"] for arrays in draws if "rows" in arrays]
    record["rows"] = np.array(rows).reshape(len(rows), len(ROW_STATISTICS), 3)
    record["errors"] = np.array([arrays["error"][0] for arrays in draws if "error" in arrays])
    record["tops"] = _tops(model, draws)
    sizes = [arrays["values"].size for arrays in draws if "values" in arrays and "error" in arrays]
    record["step"] = np.array([0.5 / min(sizes) if sizes else 0.0])
    spectra = [np.asarray(arrays["values"], dtype=np.float64) for arrays in draws if "values" in arrays]
    if spectra:
        record.update(_spectral_record(model, spectra))
    return record


def _tops(model: Model, draws: list[dict[str, Array]]) -> Array:
    found = []
    for arrays in draws:
        if "top" in arrays:
            found.append(arrays["top"])
        elif "values" in arrays and model.plan.method != "lanczos":
            found.append(arrays["values"][::-1][: max(model.plan.top, len(TRACY_WIDOM))])
    if len(found) < len(draws) or not found:
        return np.empty((len(draws), 0))
    return np.array([top[: min(len(other) for other in found)] for top in found])


def _spectral_record(model: Model, spectra: list[Array]) -> dict[str, Array]:
    record: dict[str, Array] = {}
    if len(spectra) > 1:
        record["noise"] = np.array([sampling_noise(spectra)], dtype=np.float64)
    laws, refused = _laws(model)
    for name, reason in refused.items():
        record[f"{name}.refusal"] = _coded(reason)
    pool = np.sort(np.concatenate(spectra))
    top = _histogram_top(pool, [law for law, _ in laws.values()])
    edges = np.linspace(0.0, top, BINS + 1)
    nonzero = pool[pool > ROUNDING * pool[-1]]
    record["edges"] = edges
    record["heights"] = np.histogram(np.sqrt(nonzero), edges)[0] / (pool.size * np.diff(edges))
    record["zeros"] = np.array([1 - nonzero.size / pool.size])
    for name, (law, note) in list(laws.items()):
        try:
            found = _compared(law, spectra, pool)
        except CertificationError as error:
            record[f"{name}.refusal"] = _coded(str(error))
            del laws[name]
            continue
        predicted, silence = _top_values(law, name, model)
        found |= _density(law, top)
        found["predicted"] = np.array([location for location, _ in predicted])
        found["origins"] = _coded("\n".join(origin for _, origin in predicted))
        found["silence"], found["note"] = _coded(silence), _coded(note)
        record.update({f"{name}.{part}": array for part, array in found.items()})
    for a, b in itertools.combinations(sorted(laws), 2):
        try:
            record[f"{a}|{b}"] = np.array([laws_distance(laws[a][0], laws[b][0])])
        except CertificationError:
            continue
    return record


def _compared(law: Law, spectra: list[Array], pool: Array) -> dict[str, Array]:
    """Each draw by itself, so that its numbers depend on no other draw, and all pooled, in ascending order."""
    each = [compare(law, [spectrum]) for spectrum in spectra]
    stride = -(-pool.size // _POOL)
    pooled = each[0].ks if len(each) == 1 else compare(law, [pool[stride // 2 :: stride]]).ks
    common = set.intersection(*({moment.order for moment in comparison.moments} for comparison in each))
    orders = sorted(common)
    by_order = [{moment.order: moment for moment in comparison.moments} for comparison in each]
    return {
        "ks": np.array([comparison.ks for comparison in each]),
        "wasserstein": np.array([comparison.wasserstein for comparison in each]),
        "pooled": np.array([pooled]),
        "orders": np.array(orders, dtype=np.float64),
        "expected": np.array([by_order[0][order].law for order in orders]),
        "moments": np.array([[moments[order].sample for order in orders] for moments in by_order]),
    }


def _histogram_top(pool: Array, laws: list[Law]) -> float:
    """Right end of the histogram, in singular values: edges that are not far out, nearly all values up to twice that.

    Laws always include Marchenko–Pastur, of the variance of the entries, unless β is out of range.
    """
    tops = []
    for law in laws:
        edge = max([high for _, high in law.support()] + [location for location, _ in law.atoms()])
        body = float(law.ppf(_TAIL))
        tops.append(float(edge) if edge <= 2 * body else body)
    reached = float(np.quantile(pool, _TAIL))
    top = max(max(tops), min(reached, 4 * max(tops))) if tops else reached
    return 1.05 * math.sqrt(max(top, np.finfo(float).tiny))


def _density(law: Law, top: float) -> dict[str, Array]:
    grid = top * (np.arange(POINTS) + 0.5) / POINTS  # never at 0, where it may be infinite
    atom = sum(weight for location, weight in law.atoms() if location == 0)
    try:
        density = np.asarray(law.singular_values().pdf(grid), dtype=np.float64)
    except CertificationError:
        grid, density = np.empty(0), np.empty(0)
    return {"grid": grid, "density": np.where(np.isfinite(density), density, np.nan), "atom": np.array([float(atom)])}


# -- records ------------------------------------------------------------------------------------------


def _coded(text: str) -> Array:
    return np.array([ord(character) for character in text], dtype=np.float64)


def _text(array: Array | None) -> str:
    return "" if array is None else "".join(chr(int(code)) for code in array)


def _measured(record: Mapping[str, Array], found: _Found) -> Measured:
    empty = np.empty(0)
    laws: dict[str, dict[str, Any]] = {}
    distances: dict[tuple[str, str], float] = {}
    for name, array in record.items():
        if "|" in name:
            a, b = name.split("|")
            distances[a, b] = float(array[0])
        elif "." in name:
            law, part = name.split(".")
            laws.setdefault(law, {})[part] = array
    return Measured(
        indices=found.indices,
        missing=found.missing,
        damaged=found.damaged,
        laws={name: _law_measured(parts) for name, parts in laws.items()},
        distances=distances,
        noise=float(record["noise"][0]) if "noise" in record else None,
        edges=record.get("edges", empty),
        heights=record.get("heights", empty),
        zeros=float(record["zeros"][0]) if "zeros" in record else 0.0,
        tops=record["tops"],
        rows=record["rows"],
        errors=record["errors"],
        step=float(record["step"][0]),
    )


def _law_measured(parts: dict[str, Any]) -> LawMeasured:
    if "refusal" in parts:
        return LawMeasured(refusal=_text(parts["refusal"]))
    origins = _text(parts["origins"])
    return LawMeasured(
        note=_text(parts["note"]),
        ks=parts["ks"],
        wasserstein=parts["wasserstein"],
        pooled=float(parts["pooled"][0]),
        orders=tuple(int(order) for order in parts["orders"]),
        expected=parts["expected"],
        moments=parts["moments"],
        predicted=parts["predicted"],
        origins=tuple(origins.split("\n")) if origins else (),
        silence=_text(parts["silence"]),
        grid=parts["grid"],
        density=parts["density"],
        atom=float(parts["atom"][0]),
    )
