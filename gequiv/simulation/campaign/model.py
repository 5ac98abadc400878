"""What a campaign is: heads, the matrices drawn of them, the laws and claims that these are held against."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from gequiv.attention.parameters import Attention

VERSION = 1
"""Version of campaign files."""
FORMAT = 1
"""Version of what is stored of a draw: a higher one makes earlier draws unknown."""

Matrix = Literal["attention", "linear-model"]
Route = Literal["gram", "svd", "lanczos"]
Scalar = str | int | float | bool | None

MATRICES: tuple[Matrix, ...] = ("attention", "linear-model")
ROUTES: tuple[Route, ...] = ("gram", "svd", "lanczos")
DTYPES = ("float64", "float32")
STATISTICS = ("spectrum", "rows", "top")
LAWS = ("finite", "limit", "marchenko-pastur")
ROW_STATISTICS = ("log_normaliser", "participation", "energy_participation", "largest")


@dataclass(frozen=True)
class Plan:
    """How matrices of a model are drawn and what is kept of each; part of what a result depends on.

    Attributes
    ----------
    matrix : "attention", √keys (A - Ā), or "linear-model", `gequiv.attention.ensemble.draw_linear_model`.
    method : "gram" or "svd", as for `Attention.spectrum`; "lanczos", as for `gequiv.simulation.spectral_estimate`.
    dtype : "float64" or "float32".
    statistics : of "spectrum" (squared singular values), "rows" (means over rows of what
        `AttentionOperator.row_statistics` finds), "top" (the largest squared singular values by Lanczos; of a
        dense spectrum they are known anyway).
    probes, steps : of "lanczos"; None for the defaults.
    top : how many largest values "top" asks for.
    threads : BLAS threads of one draw; the last bits of a result may depend on it.
    """

    matrix: Matrix = "attention"
    method: Route = "gram"
    dtype: str = "float64"
    statistics: tuple[str, ...] = ("spectrum",)
    probes: int | None = None
    steps: int | None = None
    top: int = 4
    threads: int = 1


@dataclass(frozen=True)
class Model:
    """One head of a campaign.

    Attributes
    ----------
    group : name of the table in the campaign file.
    head : the `Attention`.
    plan : how it is drawn.
    laws : of `LAWS`, those it is compared with.
    seeds : of the draws, 53-bit integers: ``head.spectrum(rng=seed)`` repeats a draw.
    axes : the model as written in the file, before "tokens/2" and gamma are evaluated: what lines of models that differ
        in one axis have in common.
    gamma : β² = γ log keys, if β was given so.
    score : text of the score function in the file, None for the exponential.
    """

    group: str
    head: Attention
    plan: Plan
    laws: tuple[str, ...]
    seeds: tuple[int, ...]
    axes: dict[str, Scalar] = field(hash=False, compare=False, default_factory=dict)
    gamma: float | None = None
    score: str | None = None

    def parameters(self) -> dict[str, Scalar]:
        """The head in plain numbers and names, as a row of a table has them."""
        head = self.head
        covariance = None if head.covariance is None else " ".join(repr(value) for value in head.covariance)
        return {
            "tokens": head.tokens,
            "keys": head.columns,
            "head_dim": head.head_dim,
            "width": head.width,
            "beta": head.beta,
            "gamma": self.gamma,
            "mask": head.mask if isinstance(head.mask, str) else "none",
            "alibi": head.bias if isinstance(head.bias, float) else None,
            "score": self.score or "exp",
            "covariance": covariance,
            "token_entries": head.token_entries,
            "weight_entries": head.weight_entries,
            "matrix": self.plan.matrix,
            "method": self.plan.method,
        }

    @cached_property
    def identity(self) -> str:
        """JSON text of all that a draw depends on besides its seed; γ, laws and the group are not among it."""
        parameters = self.parameters()
        del parameters["gamma"], parameters["matrix"], parameters["method"]
        plan = {**dataclasses.asdict(self.plan), "statistics": sorted(self.plan.statistics)}
        return json.dumps({"format": FORMAT, "head": parameters, "plan": plan}, sort_keys=True)

    @property
    def title(self) -> str:
        """The head in one line."""
        from gequiv.simulation.description import describe

        text = describe(self.head) + (f", score {self.score}" if self.score else "")
        return text + (", linear model" if self.plan.matrix == "linear-model" else "")

    def tasks(self) -> Iterator[Task]:
        """One for each draw."""
        return (Task(self, index, seed) for index, seed in enumerate(self.seeds))


@dataclass(frozen=True)
class Task:
    """One draw of a model: its index among the model's draws, and its seed."""

    model: Model
    index: int
    seed: int

    @cached_property
    def key(self) -> str:
        """64 hexadecimal digits, under which the draw is stored; equal draws of different campaigns have equal keys."""
        return hashlib.sha256(f"{self.model.identity}\n{self.seed}".encode()).hexdigest()


@dataclass(frozen=True)
class Claim:
    """A statement that the campaign puts to the test.

    Attributes
    ----------
    kind : "agreement", "disagreement", "closer", "rate", "moments", "outliers" or "statistic".
    name : in words, for the report.
    where : conditions on the model, key to allowed values; keys are those of `Model.parameters` and "group".
    options : what the kind needs, see `gequiv.simulation.campaign.files`.
    """

    kind: str
    name: str
    where: dict[str, tuple[Scalar, ...]]
    options: dict[str, Any]

    def concerns(self, model: Model) -> bool:
        """Whether the claim is about this model."""
        found: dict[str, Scalar] = {"group": model.group, **model.parameters()}
        return all(any(_same(found.get(key), value) for value in allowed) for key, allowed in self.where.items())


def _same(a: Scalar, b: Scalar) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        return isinstance(a, (int, float)) and isinstance(b, (int, float)) and math.isclose(a, b, rel_tol=1e-12)
    return a == b


@dataclass(frozen=True)
class Campaign:
    """A campaign file, read and validated.

    Attributes
    ----------
    name, title, description : of the file; the name is its stem if it gives none.
    seed : of the campaign.
    models : in the order of the file.
    claims : as the file states them.
    source : the text of the file.
    """

    name: str
    title: str
    description: str
    seed: int
    models: tuple[Model, ...]
    claims: tuple[Claim, ...]
    source: str

    def tasks(self) -> list[Task]:
        """All draws, each once, in the order of the file."""
        found: dict[str, Task] = {}
        for model in self.models:
            for task in model.tasks():
                found.setdefault(task.key, task)
        return list(found.values())


def spawned_seed(seed: int, identity: str, index: int) -> int:
    """Seed of draw `index` of the model with this identity in a campaign with this seed: 53 bits.

    It comes from ``SeedSequence(seed, spawn_key=(words of the identity, index))``: a child that depends on the seed,
    the model and the index alone, not on the other models, their order or their number.
    """
    words = np.frombuffer(hashlib.sha256(identity.encode()).digest(), dtype="<u4")
    sequence = np.random.SeedSequence(seed, spawn_key=(*(int(word) for word in words), index))
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(11))
