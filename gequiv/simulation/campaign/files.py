"""Campaign files: TOML, read and checked key by key; every message begins with the path of the key.

A campaign file gives ``version = 1``, tables ``[[grid]]`` (all combinations of the lists) and ``[[models]]`` (one model
each), ``[defaults]`` for them, and ``[[claims]]``. `FILE_KEYS`, `TABLE_KEYS`, `CLAIM_KEYS` and `CLAIM_KINDS` say what
each may hold. The models of a grid come in the order of `AXES`, the last axis fastest, whatever the order in the table.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gequiv.attention.linear_model import LARGEST_BETA
from gequiv.attention.masks import normalised_mask
from gequiv.attention.parameters import Attention
from gequiv.errors import CertificationError, GequivError, InputFileError, ParameterError
from gequiv.simulation.campaign.model import (
    DTYPES,
    LAWS,
    MATRICES,
    ROUTES,
    ROW_STATISTICS,
    STATISTICS,
    VERSION,
    Campaign,
    Claim,
    Model,
    Plan,
    Scalar,
    spawned_seed,
)

MOST_MODELS = 100_000
MOST_DRAWS = 1_000_000
_MOST_TOKENS = 10**7
_SIZE = re.compile(r"(?:([1-9]\d{0,8})\*)?tokens(?:/([1-9]\d{0,8}))?")

FILE_KEYS = {
    "version": f"{VERSION}, the version of campaign files",
    "name": "text of one line; the name of the file by default",
    "title": "text",
    "description": "text",
    "seed": "an integer of at least 0; 0 by default",
    "defaults": "a table, [defaults], of keys of the models that are no axes of the head",
    "grid": "tables, [[grid]]: a model for every combination of the lists",
    "models": "tables, [[models]]: one model each",
    "claims": "tables, [[claims]]",
}
"""Keys of a campaign file, and what they may be."""

_SIZE_TEXT = 'or a multiple of the tokens such as "tokens/2", "2*tokens", "3*tokens/2"'
_HEAD_AXES = {
    "tokens": f"an integer from 2 to {_MOST_TOKENS}",
    "keys": f"an integer of at least 2, {_SIZE_TEXT}; as many as tokens by default",
    "head_dim": f"an integer of at least 1, {_SIZE_TEXT}",
    "width": f'an integer of at least 1, {_SIZE_TEXT}, or "none" (the default) for orthonormal tokens',
    "beta": "a number above 0",
    "gamma": "a number above 0: beta = sqrt(gamma log keys)",
    "mask": '"none" (the default), "causal", "window:W", "two-sided:W" or "block:B" with an integer of at least 1',
    "alibi": 'a slope above 0, or "none" (the default)',
    "score": '"exp" (the default) or a formula in x, which stands for beta S',
    "token_entries": '"gaussian" (the default), "rademacher", "uniform" or "student:NU"',
    "weight_entries": '"gaussian" (the default), "rademacher", "uniform" or "student:NU"',
}


def _listed(names: Sequence[str]) -> str:
    shown = [f'"{name}"' for name in names]
    return " or ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


_PLAN_AXES = {
    "matrix": f"{_listed(MATRICES)}; the first by default",
    "method": f'{_listed(ROUTES)}; "gram" by default, "svd" with a mask or alibi',
}
AXES = (*_HEAD_AXES, *_PLAN_AXES)
"""Keys that may be lists in a grid, in the order in which they vary: the last is the fastest."""

_SETTINGS = {
    "dtype": f"{_listed(DTYPES)}; the first by default",
    "statistics": f'a list of {_listed(STATISTICS)}; ["spectrum"] by default',
    "probes": 'an integer of at least 1; for method "lanczos"',
    "steps": 'an integer of at least 2; for method "lanczos"',
    "top": 'an integer of at least 1, 4 by default; for "top" among the statistics',
    "threads": "an integer of at least 1, 1 by default: BLAS threads of a draw",
    "draws": f"an integer from 1 to {MOST_DRAWS}",
    "seeds": "a list of integers from 0 to 2**53 - 1, in place of draws",
    "laws": f"a list of {_listed(LAWS)}, may be empty; those that exist by default",
}
TABLE_KEYS = {
    "name": "text of one line, the group of the models",
    **_HEAD_AXES,
    "covariance": "a list of eigenvalues of at least 0, one of them above 0; with a width, which their number divides",
    **_PLAN_AXES,
    **_SETTINGS,
}
"""Keys of [[grid]] and [[models]]; in a grid those of `AXES` may be lists."""
DEFAULTS_KEYS = {**_PLAN_AXES, **_SETTINGS}
"""Keys of [defaults], all single values but for the lists that a model has too."""

_LAW = f"{_listed(LAWS)}, among the laws of the models"
_RATIO = "a number between 0 and 1"
_BOUND = "a number"
CLAIM_KINDS: dict[str, dict[str, str]] = {
    "agreement": {"law": _LAW, "tolerance": f"{_RATIO}: mean KS over draws is at most this"},
    "disagreement": {"law": _LAW, "at_least": f"{_RATIO}: mean KS over draws is at least this"},
    "closer": {
        "law": _LAW,
        "than": f"{_LAW}, another than law",
        "factor": "a number above 0, 1 by default: KS to law times factor is below KS to the other",
    },
    "rate": {
        "law": _LAW,
        "over": '"tokens" (the default), "keys", "head_dim", "width", "beta" or "gamma": n in KS ~ n^exponent',
        "at_least": f"{_BOUND}: the exponent is at least this; at_least or at_most or both",
        "at_most": f"{_BOUND}: the exponent is at most this",
    },
    "moments": {"law": _LAW, "level": f"{_RATIO}, 0.05 by default: family-wise level of moments 1 to 4"},
    "outliers": {
        "law": '"finite" (the default)',
        "tolerance": "a number above 0: relative, of the mean largest squared singular value",
    },
    "statistic": {
        "statistic": f"{_listed((*ROW_STATISTICS, 'log_normaliser_sd'))}",
        "at_least": f"{_BOUND}: the mean is at least this; at_least or at_most or both, or prediction",
        "at_most": f"{_BOUND}: the mean is at most this",
        "prediction": '"log-normal", in place of at_least and at_most',
        "tolerance": "a number above 0: relative, with prediction",
    },
}
"""Kinds of claims and what each asks for."""
CLAIM_KEYS = {
    "kind": _listed(tuple(CLAIM_KINDS)),
    "name": "text of one line; made of the rest by default",
    "where": "a table of conditions on the models: key = value or list of allowed values",
}
"""Keys of every claim."""
WHERE_KEYS = ("group", *AXES)
"""Keys of the conditions of a claim: of the model as it is, with sizes as numbers."""
RATE_AXES = ("tokens", "keys", "head_dim", "width", "beta", "gamma")
FEWEST_RATE_VALUES = 3
"""Values of n below which no rate is fitted: with two, nothing shows whether an exponent describes them."""
_LAW_WORDS = {"finite": "finite-size law", "limit": "limit law", "marchenko-pastur": "Marchenko–Pastur law"}


def read_campaign(path: str | Path) -> Campaign:
    """The campaign of a file; its stem is the name if the file gives none.

    Raises
    ------
    InputFileError : the file cannot be read, or is not TOML in UTF-8.
    ParameterError : as `parse_campaign`.
    """
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputFileError(f"cannot read {str(path)!r}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputFileError(f"{str(path)!r} is not UTF-8, as TOML is: byte {error.start} is none") from error
    return _parse(text, path.stem, repr(str(path)))


def parse_campaign(text: str, name: str = "campaign") -> Campaign:
    """The campaign that a text in TOML describes; see `FILE_KEYS`.

    Seeds of ``draws`` are spawned by `spawned_seed` from the campaign's seed, the model and the index alone.

    Parameters
    ----------
    text : what the file holds.
    name : of the campaign, if the text gives none.

    Raises
    ------
    InputFileError : the text is not TOML; the message has line and column.
    ParameterError : anything else; the message begins with the path of the key, ``grid[0].head_dim[1]`` for example.
    CertificationError : the moments of a score could not be computed to nine digits; begins likewise.
    """
    return _parse(text, name, "the campaign file")


def lines_of(models: Iterable[Model], over: str) -> list[tuple[dict[str, Scalar], list[Model]]]:
    """Lines of models of one group that agree, as written in the file, in all axes but `over`.

    Returns
    -------
    (what they have in common, the models), in the order of the models.
    """
    found: dict[tuple[Any, ...], tuple[dict[str, Scalar], list[Model]]] = {}
    for model in models:
        common = {key: value for key, value in model.axes.items() if key != over}
        found.setdefault((model.group, *sorted(common.items())), (common, []))[1].append(model)
    return list(found.values())


def missing_law(law: str, head: Attention) -> str | None:
    """Why the head has no such law, of "finite", "limit" and "marchenko-pastur"; None if it has."""
    if head.score is None and head.beta * head.spread > LARGEST_BETA:
        return f"laws exist for beta up to {LARGEST_BETA:.4f}"
    if law == "finite" and head.score is not None:
        return "the finite-size law is that of the exponential score"
    if law == "limit" and head.visibility is not None:
        return "the limit law is that of attention without mask and alibi"
    return None


# -- the file ------------------------------------------------------------------------------------------


def _parse(text: str, name: str, source: str) -> Campaign:
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputFileError(f"{source} is not TOML: {reason}") from error
    if "version" not in data:
        raise ParameterError(f"version must be given: version = {VERSION}")
    version = data["version"]
    if isinstance(version, bool) or not isinstance(version, int) or version != VERSION:
        raise ParameterError(f"version must be {VERSION}, which this gequiv reads; got {_shown(version)}")
    _check_keys("", data, FILE_KEYS)
    seed = _integer("seed", data.get("seed", 0), 0, None)
    defaults = _table("defaults", data.get("defaults", {}))
    _check_defaults(defaults)
    grids, singles, claims = (_tables(key, data.get(key, [])) for key in ("grid", "models", "claims"))
    if not grids and not singles:
        raise ParameterError("grid must hold a table, or models must; got neither")
    readers = [_TableReader(path, table, defaults, is_grid=True) for path, table in grids]
    readers += [_TableReader(path, table, defaults, is_grid=False) for path, table in singles]
    _check_names(readers)
    if sum(reader.count for reader in readers) > MOST_MODELS:
        raise ParameterError(f"grid and models must make at most {MOST_MODELS} models together")
    if sum(reader.count * reader.draws for reader in readers) > MOST_DRAWS:
        raise ParameterError(f"draws must be at most {MOST_DRAWS} in all; got more")
    models = _models(readers, seed)
    return Campaign(
        name=_line("name", data["name"]) if "name" in data else name,
        title=_text("title", data.get("title", "")),
        description=_text("description", data.get("description", "")),
        seed=seed,
        models=models,
        claims=tuple(_claim(path, table, models) for path, table in claims),
        source=text,
    )


def _models(readers: Iterable[_TableReader], seed: int) -> tuple[Model, ...]:
    places: dict[tuple[str, str], str] = {}
    models: list[Model] = []
    for reader in readers:
        drafts = list(reader.drafts())
        for draft, laws in zip(drafts, reader.laws_of(drafts), strict=True):
            model = dataclasses.replace(draft.model, laws=laws)
            if (model.group, model.identity) in places:
                raise ParameterError(
                    f"{draft.place} must not be the model that {places[model.group, model.identity]} is already; leave "
                    "it out, or put it in a group of another name"
                )
            places[model.group, model.identity] = draft.place
            seeds = reader.seeds or tuple(spawned_seed(seed, model.identity, k) for k in range(reader.draws))
            models.append(dataclasses.replace(model, seeds=seeds))
    return tuple(models)


def _check_names(readers: Iterable[_TableReader]) -> None:
    seen: dict[str, _TableReader] = {}
    for reader in readers:
        first = seen.setdefault(reader.group, reader)
        if first is not reader and (reader.is_grid or first.is_grid):
            raise ParameterError(
                f"{reader.path}.name must be another than that of {first.path}; got {_shown(reader.group)}"
            )


def _check_defaults(defaults: dict[str, Any]) -> None:
    for key in defaults:
        if key in TABLE_KEYS and key not in DEFAULTS_KEYS:
            raise ParameterError(
                f"defaults.{key} must be given in each table; [defaults] may have {', '.join(DEFAULTS_KEYS)}"
            )
    _check_keys("defaults", defaults, DEFAULTS_KEYS)
    if "draws" in defaults and "seeds" in defaults:
        raise ParameterError("defaults.seeds must not be given beside defaults.draws")
    for key, value in defaults.items():  # also those that no table needs
        path = f"defaults.{key}"
        if key in _PLAN_AXES:
            _AXIS_READERS[key](path, value)
        else:
            _SETTING_READERS[key](path, value)


# -- models --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Draft:
    """A model without laws and seeds, and where in the file it stands."""

    model: Model
    place: str


class _TableReader:
    """A table [[grid]] or [[models]] with the defaults filled in; raises `ParameterError` for what it must not hold."""

    def __init__(self, path: str, table: dict[str, Any], defaults: dict[str, Any], *, is_grid: bool) -> None:
        _check_keys(path, table, TABLE_KEYS)
        self.path, self.is_grid = path, is_grid
        if "name" not in table:
            raise ParameterError(f"{path}.name must be given: {TABLE_KEYS['name']}")
        self.group = _line(f"{path}.name", table["name"])
        if "draws" in table and "seeds" in table:
            raise ParameterError(f"{path}.seeds must not be given beside {path}.draws")
        own_draws = "draws" in table or "seeds" in table
        self.values: dict[str, Any] = {key: table[key] for key in table if key != "name"}
        self.where: dict[str, str] = {key: f"{path}.{key}" for key in self.values}
        for key, value in defaults.items():
            if key not in self.values and not (own_draws and key in ("draws", "seeds")):
                self.values[key], self.where[key] = value, f"defaults.{key}"
        self._check_given()
        self.axes = {key: self._axis(key) for key in AXES if key in self.values}
        self.count = math.prod(len(values) for values in self.axes.values())
        if self.count > MOST_MODELS:
            raise ParameterError(f"{path} must make at most {MOST_MODELS} models; its lists make {self.count}")
        self.settings = {
            key: _SETTING_READERS[key](self.where[key], self.values[key])
            for key in (*_SETTINGS, "covariance")
            if key in self.values
        }
        self.seeds: tuple[int, ...] = self.settings.get("seeds", ())
        self.draws: int = len(self.seeds) or self.settings["draws"]
        self._expressions: dict[str, Any] = {}

    def _check_given(self) -> None:
        path, values = self.path, self.values
        for key in ("tokens", "head_dim"):
            if key not in values:
                raise ParameterError(f"{path}.{key} must be given: {TABLE_KEYS[key]}")
        if ("beta" in values) == ("gamma" in values):
            key, got = ("gamma", "both") if "beta" in values else ("beta", "neither")
            raise ParameterError(f"{path}.{key}: exactly one of beta and gamma must be given; got {got}")
        if "draws" not in values and "seeds" not in values:
            raise ParameterError(f"{path}.draws must be given, or seeds, here or in [defaults]")

    def _axis(self, key: str) -> list[tuple[str, Scalar]]:
        """Paths and values of an axis."""
        path, value = self.where[key], self.values[key]
        if not isinstance(value, list):
            return [(path, _AXIS_READERS[key](path, value))]
        if not self.is_grid or path.startswith("defaults."):
            raise ParameterError(f"{path} must be one value, not a list; [[grid]] has lists. Got {_shown(value)}")
        return _distinct(path, value, _AXIS_READERS[key])

    def drafts(self) -> Iterator[_Draft]:
        """All models of the table, without laws and seeds."""
        unused = {key for key in ("probes", "steps", "top") if self.where.get(key, "").startswith(self.path)}
        for combination in itertools.product(*self.axes.values()):
            places = {key: path for key, (path, _) in zip(self.axes, combination, strict=True)}
            axes = {key: value for key, (_, value) in zip(self.axes, combination, strict=True)}
            plain = all("[" not in path.removeprefix(self.path) for path in places.values())
            place = self.path if plain else f"{self.path} ({_conditions(axes)})"
            model = self._model(places, axes)
            if model.plan.method == "lanczos":
                unused -= {"probes", "steps"}
            if "top" in model.plan.statistics:
                unused -= {"top"}
            yield _Draft(model, place)
        for key in sorted(unused):
            due = '"top" among the statistics' if key == "top" else 'method "lanczos"'
            raise ParameterError(f"{self.where[key]} must not be given without {due}; got {_shown(self.values[key])}")

    def _model(self, places: dict[str, str], axes: dict[str, Scalar]) -> Model:
        at = f" (at {_conditions(axes)})"
        head, gamma, score = self._head(places, axes, at)
        plan = self._plan(places, axes, head, at)
        return Model(self.group, head, plan, (), (), axes, gamma, score)

    def _head(
        self, places: dict[str, str], axes: dict[str, Scalar], at: str
    ) -> tuple[Attention, float | None, str | None]:
        tokens = axes["tokens"]
        assert isinstance(tokens, int)
        sizes = {
            key: _evaluated(places[key], axes[key], tokens, 2 if key == "keys" else 1)
            for key in ("keys", "head_dim", "width")
            if key in axes
        }
        head_dim, keys = sizes["head_dim"], sizes.get("keys")
        assert head_dim is not None
        gamma = axes.get("gamma")
        given: dict[str, Any] = {"beta": axes.get("beta")}
        if isinstance(gamma, float):
            given["beta"] = math.sqrt(gamma * math.log(keys or tokens))
        score = axes.get("score", "exp")
        given["score"] = expression = self._score(str(score), places.get("score", ""))
        given["bias"] = None if axes.get("alibi") == "none" else axes.get("alibi")
        for key in ("mask", "token_entries", "weight_entries"):
            if key in axes:
                given[key] = axes[key]
        covariance = self.settings.get("covariance")
        width = sizes.get("width")
        if covariance is not None and width is not None and width % len(covariance):
            raise ParameterError(
                f"{self.where['covariance']} must have a number of eigenvalues that divides the width; got "
                f"{len(covariance)} with width {width}{at}"
            )
        try:
            head = Attention(
                tokens,
                head_dim,
                keys=None if keys == tokens else keys,
                width=width,
                covariance=covariance,
                **given,
            )
        except (ParameterError, CertificationError) as error:
            raise self._located(error, places, at) from error
        return head, gamma if isinstance(gamma, float) else None, None if expression is None else str(score)

    def _located(self, error: GequivError, places: dict[str, str], at: str) -> GequivError:
        """The error of `Attention` with the path of the key that it begins with."""
        word, _, rest = str(error).partition(" ")
        key = {"bias": "alibi"}.get(word, word)
        path = places.get(key) or self.where.get(key)
        return type(error)(f"{path} {rest}{at}" if path else f"{self.path}: {error}{at}")

    def _score(self, text: str, path: str) -> Any:
        """The expression of a score; None for the exponential, also where it is written as a formula."""
        if text == "exp":
            return None
        if text not in self._expressions:
            from gequiv.attention.score_formula import parse_score

            formula = parse_score(text, path)
            names = sorted(symbol.name for symbol in formula.free_symbols if symbol.name not in ("x", "beta"))
            if names:
                raise ParameterError(
                    f"{path} must be a formula in x, beside which it may have beta; in {text!r} there is also "
                    f"{', '.join(names)}"
                )
            self._expressions[text] = None if _is_exponential(formula) else formula
        return self._expressions[text]

    def _plan(self, places: dict[str, str], axes: dict[str, Scalar], head: Attention, at: str) -> Plan:
        settings = self.settings
        restricted = head.visibility is not None
        method: Any = axes.get("method", "svd" if restricted else "gram")
        matrix: Any = axes.get("matrix", MATRICES[0])
        statistics = settings.get("statistics", ("spectrum",))
        where = self.where.get("statistics", f"{self.path}.statistics")
        if matrix == "linear-model":
            if method == "lanczos":
                raise ParameterError(
                    f'{places["method"]} must be "gram" or "svd" for matrix = "linear-model"; got "lanczos"{at}'
                )
            if statistics != ("spectrum",):
                raise ParameterError(
                    f'{where} must be ["spectrum"] for matrix = "linear-model"; got {_shown(statistics)}{at}'
                )
        dimension = min(head.tokens, head.columns)
        for key, used in (("top", "top" in statistics), ("probes", method == "lanczos")):
            number = settings.get(key, 1)
            if used and number > dimension:
                raise ParameterError(
                    f"{self.where[key]} must be at most {dimension}, the smaller of tokens and keys; got {number}{at}"
                )
        top = min(settings.get("top", Plan.top), dimension) if "top" in statistics else Plan.top
        lanczos = method == "lanczos"
        return Plan(
            matrix=matrix,
            method=method,
            dtype=settings.get("dtype", DTYPES[0]),
            statistics=statistics,
            probes=settings.get("probes") if lanczos else None,
            steps=settings.get("steps") if lanczos else None,
            top=top,
            threads=settings.get("threads", 1),
        )

    def laws_of(self, drafts: Sequence[_Draft]) -> list[tuple[str, ...]]:
        """The laws of each model: those of the table that exist for it."""
        asked: tuple[str, ...] = self.settings.get("laws", LAWS)
        where = self.where.get("laws", f"{self.path}.laws")
        own = where.startswith(self.path) and "laws" in self.values
        if not any(name in self.settings.get("statistics", ("spectrum",)) for name in ("spectrum", "top")):
            if own and asked:
                raise ParameterError(f'{where} must be [] without "spectrum" among the statistics; got {_shown(asked)}')
            return [()] * len(drafts)
        if not asked:
            return [()] * len(drafts)
        found: list[tuple[str, ...]] = []
        existing: set[str] = set()
        for draft in drafts:
            reasons = {law: missing_law(law, draft.model.head) for law in asked}
            laws = tuple(law for law in asked if reasons[law] is None)
            if not laws:
                law, reason = next(iter(reasons.items()))
                path = f"{where}[0]" if "laws" in self.values and len(asked) == 1 else where
                raise ParameterError(
                    f'{path} must hold a law that exists for {draft.place}; "{law}" does not: {reason}. laws = [] '
                    "draws without"
                )
            found.append(laws)
            existing.update(laws)
        if own:
            for index, law in enumerate(asked):
                if law not in existing:
                    raise ParameterError(
                        f"{where}[{index}] must be a law that exists for a model of {self.path}; got {_shown(law)}: "
                        f"{missing_law(law, drafts[0].model.head)}"
                    )
        return found


def _is_exponential(formula: Any) -> bool:
    import sympy as sp

    x, beta = sp.Symbol("x", real=True), sp.Symbol("beta", positive=True)
    return formula in (sp.exp(x), sp.exp(beta * x))


def _evaluated(path: str, value: Scalar, tokens: int, minimum: int) -> int | None:
    """A size: an integer as it is, "3*tokens/2" at that number of tokens, None for "none"."""
    if isinstance(value, int) or value == "none":
        return None if value == "none" else int(value)
    match = _SIZE.fullmatch(str(value))
    assert match is not None
    numerator, denominator = tokens * int(match[1] or 1), int(match[2] or 1)
    size, rest = divmod(numerator, denominator)
    if rest or size < minimum or size > _MOST_TOKENS:
        least = "" if rest else f" from {minimum} to {_MOST_TOKENS}"
        result = f"{numerator}/{denominator}" if rest else str(size)
        raise ParameterError(
            f"{path} must come out an integer{least}; {_shown(value)} is {result} at tokens = {tokens}"
        )
    return size


# -- claims --------------------------------------------------------------------------------------------


def _claim(path: str, table: dict[str, Any], models: Sequence[Model]) -> Claim:
    if "kind" not in table:
        raise ParameterError(f"{path}.kind must be given: {CLAIM_KEYS['kind']}")
    kind = _choice(f"{path}.kind", table["kind"], tuple(CLAIM_KINDS))
    allowed = CLAIM_KINDS[kind]
    _check_keys(path, table, {**CLAIM_KEYS, **allowed}, f'a claim of kind "{kind}"')
    options = _options(path, kind, {key: value for key, value in table.items() if key in allowed})
    where = _where(f"{path}.where", table.get("where", {}), models)
    name = _line(f"{path}.name", table["name"]) if "name" in table else _claim_words(kind, options, where)
    claim = Claim(kind, name, where, options)
    concerned = [model for model in models if claim.concerns(model)]
    if not concerned:
        raise ParameterError(f"{path}.where must select a model; no model meets all of its conditions")
    _check_concerned(path, claim, concerned)
    return claim


def _options(path: str, kind: str, given: dict[str, Any]) -> dict[str, Any]:
    """The claim's options, with what they are by default."""
    kinds: dict[str, dict[str, Any]] = {
        "closer": {"factor": 1.0},
        "rate": {"over": "tokens"},
        "moments": {"level": 0.05},
        "outliers": {"law": "finite"},
    }
    defaults = kinds.get(kind, {})
    options: dict[str, Any] = {}
    for key, allowed in CLAIM_KINDS[kind].items():
        where = f"{path}.{key}"
        if key in given:
            options[key] = _option(where, kind, key, given[key])
        elif key in defaults:
            options[key] = defaults[key]
        elif key not in ("at_least", "at_most", "prediction", "tolerance") or kind in ("agreement", "disagreement"):
            raise ParameterError(f"{where} must be given: {allowed}")
    if kind == "closer" and options["law"] == options["than"]:
        raise ParameterError(f"{path}.than must be another law than law; got {_shown(options['than'])}")
    if kind == "outliers" and "tolerance" not in options:
        raise ParameterError(f"{path}.tolerance must be given: {CLAIM_KINDS[kind]['tolerance']}")
    if kind in ("rate", "statistic"):
        _check_bounds(path, options)
    return options


def _option(path: str, kind: str, key: str, value: Any) -> Any:
    if key in ("law", "than"):
        return _choice(path, value, ("finite",) if kind == "outliers" else LAWS)
    if key == "over":
        return _choice(path, value, RATE_AXES)
    if key == "statistic":
        return _choice(path, value, (*ROW_STATISTICS, "log_normaliser_sd"))
    if key == "prediction":
        return _choice(path, value, ("log-normal",))
    if key == "factor" or (key == "tolerance" and kind != "agreement"):
        return _number(path, value, above=0)
    if kind in ("rate", "statistic"):
        return _number(path, value)
    return _number(path, value, above=0, below=1)


def _check_bounds(path: str, options: dict[str, Any]) -> None:
    bounds = [key for key in ("at_least", "at_most") if key in options]
    if "prediction" in options:
        if bounds:
            raise ParameterError(f"{path}.{bounds[0]} must not be given beside prediction")
        if "tolerance" not in options:
            raise ParameterError(f"{path}.tolerance must be given with prediction: a number above 0")
        return
    if "tolerance" in options:
        raise ParameterError(f"{path}.tolerance must not be given without prediction")
    if not bounds:
        alternative = ", or prediction" if "statistic" in options else ""
        raise ParameterError(f"{path}.at_most must be given, or at_least or both{alternative}")
    if len(bounds) == 2 and not options["at_least"] < options["at_most"]:
        raise ParameterError(
            f"{path}.at_least must be below at_most; got {options['at_least']!r} and {options['at_most']!r}"
        )


def _where(path: str, value: Any, models: Sequence[Model]) -> dict[str, tuple[Scalar, ...]]:
    table = _table(path, value)
    _check_keys(path, table, dict.fromkeys(WHERE_KEYS, ""))
    where: dict[str, tuple[Scalar, ...]] = {}
    for key, allowed in table.items():
        place = f"{path}.{key}"
        read = _WHERE_READERS[key]
        items = _distinct(place, allowed, read) if isinstance(allowed, list) else [(place, read(place, allowed))]
        where[key] = tuple(item for _, item in items)
        for item_path, item in items:
            probe = Claim("", "", {key: (item,)}, {})
            if not any(probe.concerns(model) for model in models):
                raise ParameterError(f"{item_path} must be that of a model; got {_shown(item)}, {_known(key, models)}")
    return where


def _known(key: str, models: Sequence[Model]) -> str:
    """The values that models have, in words."""
    values = dict.fromkeys(model.group if key == "group" else model.parameters()[key] for model in models)
    shown = [_shown("none" if value is None else value) for value in itertools.islice(values, 8)]
    return f"and the models have {', '.join(shown)}" + (", …" if len(values) > 8 else "")


def _check_concerned(path: str, claim: Claim, concerned: Sequence[Model]) -> None:
    """Raise ParameterError unless some of the models have what the claim is about."""
    for key in ("law", "than"):
        law = claim.options.get(key)
        if law is None:
            continue
        having = [model for model in concerned if law in model.laws]
        if not having:
            laws = dict.fromkeys(itertools.chain.from_iterable(model.laws for model in concerned))
            raise ParameterError(
                f"{path}.{key} must be among the laws of a model that the claim is about; got {_shown(law)}, and "
                f"they have {', '.join(map(_shown, laws)) or 'none'}"
            )
        concerned = having
    if claim.kind == "statistic":
        if not any("rows" in model.plan.statistics for model in concerned):
            raise ParameterError(
                f'{path}.statistic needs "rows" among the statistics of a model that the claim is about; got '
                f"{_shown(claim.options['statistic'])}"
            )
    elif claim.kind != "outliers":
        concerned = [model for model in concerned if "spectrum" in model.plan.statistics]
    if not concerned:
        raise ParameterError(
            f'{path}.kind must be "outliers" or "statistic" where no model has "spectrum" among its statistics; got '
            f"{_shown(claim.kind)}"
        )
    if claim.kind == "rate":
        over = claim.options["over"]
        for common, models in lines_of(concerned, over):
            values = {model.parameters()[over] for model in models}
            if None in values or len(values) < FEWEST_RATE_VALUES:
                count = 0 if None in values else len(values)
                raise ParameterError(
                    f"{path}.over needs at least {FEWEST_RATE_VALUES} values of {over} in each line of models; the "
                    f"line of group {_shown(models[0].group)} with {_conditions(common)} has {count}; where = "
                    "{...} selects models"
                )


def _claim_words(kind: str, options: dict[str, Any], where: dict[str, tuple[Scalar, ...]]) -> str:
    """What the claim says, in words."""
    law = _LAW_WORDS.get(options.get("law", ""), "")
    bounds = " and ".join(
        f"{word} {options[key]:g}" for key, word in (("at_least", "at least"), ("at_most", "at most")) if key in options
    )
    match kind:
        case "agreement":
            words = f"KS to the {law} is at most {options['tolerance']:g}"
        case "disagreement":
            words = f"KS to the {law} is at least {options['at_least']:g}"
        case "closer":
            factor = "" if options["factor"] == 1 else f", {options['factor']:g} times and more"
            words = f"the {law} is closer than the {_LAW_WORDS[options['than']]}{factor}"
        case "rate":
            words = f"KS to the {law} goes as a power of {options['over']} with an exponent of {bounds}"
        case "moments":
            words = f"moments 1 to 4 are those of the {law}, at level {options['level']:g}"
        case "outliers":
            words = f"the largest squared singular value is that of the {law} within {options['tolerance']:g}, relative"
        case _:
            name = options["statistic"].replace("_", " ")
            if "prediction" in options:
                bounds = f"that of independent log-normal entries within {options['tolerance']:g}, relative"
            words = f"{name} is {bounds}"
    conditions = ", ".join(
        f"{key} = {' or '.join('none' if v is None else _plain(v) for v in values)}" for key, values in where.items()
    )
    return words + (f" ({conditions})" if conditions else "")


# -- values --------------------------------------------------------------------------------------------


def _shown(value: Any) -> str:
    """A value as the file would have it, at most 80 characters of it."""
    try:
        text = json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _plain(value: Scalar) -> str:
    return value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)


def _conditions(axes: dict[str, Scalar]) -> str:
    return ", ".join(f"{key} = {_plain(value)}" for key, value in axes.items())


def _check_keys(path: str, table: dict[str, Any], allowed: dict[str, Any], what: str | None = None) -> None:
    for key in table:
        if key not in allowed:
            bare = key if re.fullmatch(r"[A-Za-z0-9_-]{1,60}", key) else _shown(key)
            near = difflib.get_close_matches(key.lower().replace("-", "_"), allowed, n=1, cutoff=0.5)
            hint = f'; did you mean "{near[0]}"? ' if near else "; "
            owner = what or (path if path else "a campaign file")
            raise ParameterError(
                f"{path}{'.' if path else ''}{bare} is no key of {owner}{hint}Allowed are {', '.join(allowed)}"
            )


def _table(path: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ParameterError(f"{path} must be a table; got {_shown(value)}")
    return value


def _tables(path: str, value: Any) -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(value, list):
        got = f"[{path}], with one bracket" if isinstance(value, dict) else _shown(value)
        raise ParameterError(f"{path} must be tables [[{path}]]; got {got}")
    return [(f"{path}[{index}]", _table(f"{path}[{index}]", item)) for index, item in enumerate(value)]


def _distinct(path: str, value: Any, read: Callable[[str, Any], Any]) -> list[tuple[str, Any]]:
    """Paths and values of the items of a list that is not empty and in which nothing stands twice."""
    if not isinstance(value, list):
        raise ParameterError(f"{path} must be a list; got {_shown(value)}")
    if not value:
        raise ParameterError(f"{path} must not be empty")
    places: dict[Any, str] = {}
    for index, item in enumerate(value):
        place = f"{path}[{index}]"
        found = read(place, item)
        if found in places:
            raise ParameterError(f"{place} must not be that of {places[found]} again; got {_shown(item)}")
        places[found] = place
    return [(place, found) for found, place in places.items()]


def _integer(path: str, value: Any, minimum: int, maximum: int | None) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum or value > (maximum or value):
        allowed = f"an integer of at least {minimum}" if maximum is None else f"an integer from {minimum} to {maximum}"
        raise ParameterError(f"{path} must be {allowed}; got {_shown(value)}")
    return value


def _number(path: str, value: Any, above: float = -math.inf, below: float = math.inf) -> float:
    number = math.nan
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= 1e300:  # ints may be longer
        number = float(value)
    if not above < number < below:
        limits = [f"above {above:g}"] * (above > -math.inf) + [f"below {below:g}"] * (below < math.inf)
        raise ParameterError(f"{path} must be a number {' and '.join(limits) or 'that is finite'}; got {_shown(value)}")
    return number


def _text(path: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ParameterError(f"{path} must be text; got {_shown(value)}")
    return value.strip()


def _line(path: str, value: Any) -> str:
    text = _text(path, value)
    if not text or len(text) > 200 or not text.isprintable():
        raise ParameterError(f"{path} must be text of one line, 1 to 200 characters; got {_shown(value)}")
    return text


def _choice(path: str, value: Any, allowed: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in allowed:
        near = difflib.get_close_matches(value, allowed, n=1, cutoff=0.5) if isinstance(value, str) else []
        hint = f'; did you mean "{near[0]}"?' if near and len(allowed) > 1 else ""
        raise ParameterError(f"{path} must be {_listed(allowed)}; got {_shown(value)}{hint}")
    return value


def _choices(path: str, value: Any, allowed: Sequence[str], *, may_be_empty: bool = False) -> tuple[str, ...]:
    if may_be_empty and value == []:
        return ()
    return tuple(item for _, item in _distinct(path, value, partial(_choice, allowed=allowed)))


def _refused(key: str, path: str, value: Any) -> ParameterError:
    return ParameterError(f"{path} must be {TABLE_KEYS[key]}; got {_shown(value)}")


def _size(path: str, value: Any, key: str) -> Scalar:
    if isinstance(value, str):
        text = value.replace(" ", "")
        if _SIZE.fullmatch(text) or (key == "width" and text == "none"):
            return text
    elif isinstance(value, int) and (2 if key == "keys" else 1) <= value <= _MOST_TOKENS and value is not True:
        return value
    raise _refused(key, path, value)


def _mask(path: str, value: Any) -> str:
    try:
        if isinstance(value, str):
            return str(normalised_mask(value, 2, 2) or "none")
    except ParameterError:
        pass
    raise _refused("mask", path, value)


def _slope(path: str, value: Any) -> Scalar:
    if value == "none":
        return "none"
    if isinstance(value, str):
        raise _refused("alibi", path, value)
    return _number(path, value, above=0)


def _formula(path: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _refused("score", path, value)
    return value.strip()


def _eigenvalues(path: str, value: Any) -> tuple[float, ...]:
    if not isinstance(value, list) or not value:
        raise _refused("covariance", path, value)
    values = tuple(_number(f"{path}[{index}]", item) for index, item in enumerate(value))
    for index, item in enumerate(values):
        if item < 0:
            raise ParameterError(f"{path}[{index}] must be at least 0; got {item!r}")
    if not any(values):
        raise _refused("covariance", path, value)
    return values


def _seeds(path: str, value: Any) -> tuple[int, ...]:
    return tuple(item for _, item in _distinct(path, value, partial(_integer, minimum=0, maximum=2**53 - 1)))


_AXIS_READERS: dict[str, Callable[[str, Any], Scalar]] = {
    "tokens": partial(_integer, minimum=2, maximum=_MOST_TOKENS),
    "keys": partial(_size, key="keys"),
    "head_dim": partial(_size, key="head_dim"),
    "width": partial(_size, key="width"),
    "beta": partial(_number, above=0),
    "gamma": partial(_number, above=0),
    "mask": _mask,
    "alibi": _slope,
    "score": _formula,
    "token_entries": _text,
    "weight_entries": _text,
    "matrix": partial(_choice, allowed=MATRICES),
    "method": partial(_choice, allowed=ROUTES),
}
_SETTING_READERS: dict[str, Callable[[str, Any], Any]] = {
    "covariance": _eigenvalues,
    "dtype": partial(_choice, allowed=DTYPES),
    "statistics": partial(_choices, allowed=STATISTICS),
    "probes": partial(_integer, minimum=1, maximum=_MOST_TOKENS),
    "steps": partial(_integer, minimum=2, maximum=_MOST_TOKENS),
    "top": partial(_integer, minimum=1, maximum=_MOST_TOKENS),
    "threads": partial(_integer, minimum=1, maximum=1024),
    "draws": partial(_integer, minimum=1, maximum=MOST_DRAWS),
    "seeds": _seeds,
    "laws": partial(_choices, allowed=LAWS, may_be_empty=True),
}


def _or_none(read: Callable[[str, Any], Scalar], path: str, value: Any) -> Scalar:
    return None if value == "none" else read(path, value)


_WHERE_READERS: dict[str, Callable[[str, Any], Scalar]] = {
    "group": _text,
    **_AXIS_READERS,
    "keys": partial(_integer, minimum=2, maximum=_MOST_TOKENS),
    "head_dim": partial(_integer, minimum=1, maximum=_MOST_TOKENS),
    "width": partial(_or_none, partial(_integer, minimum=1, maximum=_MOST_TOKENS)),
    "gamma": partial(_or_none, partial(_number, above=0)),
    "alibi": partial(_or_none, partial(_number, above=0)),
}
