"""What an inspection found: one report a head, and one of all heads."""

from __future__ import annotations

import importlib
import math
from dataclasses import asdict, dataclass, field
from typing import Any

from gequiv.errors import ParameterError

UNTESTED = "untested"
"""How the verdict on a head begins that could not be held against any law."""


@dataclass(frozen=True)
class Direction:
    """A singular value with its vectors.

    Attributes
    ----------
    value : squared singular value, of √n_k (A - Ā); with a mask, of the matrix of rows √k_i (A - Ā)_i, entries beyond
        the root of half the mean energy of a row cut to it unless kind is "local".
    kind : "column" if its left vector is nearly constant: every query looks more at the same keys; "local" if one of
        the vectors sits on fewer than √n/2 of the n tokens; else "direction". Chance makes local ones where β is large,
        by single huge entries, so that others are held to a lower edge.
    keys, key_weights : the keys of the largest entries of the right vector, and those entries; positive entries draw
        the attention of the queries of positive entries.
    queries, query_weights : the same of the left vector.
    spread_keys, spread_queries : effective number of tokens that a vector sits on, 1/Σ v_i⁴.
    """

    value: float
    kind: str
    keys: tuple[int, ...]
    key_weights: tuple[float, ...]
    queries: tuple[int, ...]
    query_weights: tuple[float, ...]
    spread_keys: float
    spread_queries: float


@dataclass(frozen=True)
class OutlyingDirection(Direction):
    """A singular value outside the bulk, with its vectors, numbered as in the input.

    Attributes
    ----------
    over_edge : the value over the largest of its kind that chance allows at the level of the inspection.
    """

    over_edge: float

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return {
            "value": self.value,
            "over_edge": self.over_edge,
            "kind": self.kind,
            "keys": list(self.keys),
            "key_weights": list(self.key_weights),
            "queries": list(self.queries),
            "query_weights": list(self.query_weights),
            "spread_keys": self.spread_keys,
            "spread_queries": self.spread_queries,
        }


@dataclass(frozen=True)
class NullReport:
    """A head against one of the nested nulls of `gequiv.inspect_model`; nothing is fitted but to the first.

    Attributes
    ----------
    name : "sizes", "weights" (with isotropic tokens) or "weights and tokens" (with their covariance and mean).
    beta : β that the null predicts; that of "sizes" is fitted to the head.
    directions : effective number of inner directions, (Σ m_a²)²/Σ m_a⁴.
    column_bias : standard deviation of the column bias that the mean of the queries adds to the scores.
    ks, wasserstein : distances of the bulk from the null's law; None where there is none.
    p_value, p_adjusted : of bulk, edge and β together in draws of the null, alone and of all heads (Holm).
    passes : whether p_adjusted is above the level.
    """

    name: str
    beta: float | None
    directions: float | None
    column_bias: float
    ks: float | None
    wasserstein: float | None
    p_value: float | None
    p_adjusted: float | None
    passes: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class HeadReport:
    r"""One head.

    Attributes
    ----------
    layer, head : its place, from 0.
    tokens, keys, mask : n_q and n_k after padding is cut, and the mask that was found ("none", "causal", …).
    beta : β of the bulk, from the second moment of A without the outliers; None where rows are all but one-hot.
    beta_entropy, beta_scores : β from the entropy of rows, and from the scores or log A; None where there is none.
    head_dim, width : sizes of the random head that it is held against; width None means orthonormal tokens.
    directions : effective number of inner directions that the scores show, at most head_dim; None if unknown.
    ks, wasserstein : distances of the bulk from the law of β, see `gequiv.compare`; None where there is no law.
    law_solved : False where no law holds at this β and these sizes (`null_table`): drawn random heads stand in for it.
    edge : the largest squared singular value that chance allows at the level, of vectors that are not localised.
    edge_local : the same of any vectors.
    detection_threshold : strength θ of the weakest direction θ u vᵀ in √n_k A that leaves the bulk, u and v unit
        vectors in general position (`LawTable.log_threshold`). With a mask: in rows √k_i A_i, u on the later half of
        the queries and v on the earlier half of the keys, the weakest that is expected beyond `edge`.
    outliers : list of `OutlyingDirection`, largest first.
    effective_rank : of A, exp of the entropy of its singular values over their sum (Roy, Vetterli 2007).
    p_bulk, p_edge, p_edge_local, p_beta : probabilities in a random head of such a distance, of such a largest value
        with vectors that are not localised and with any vectors, and of such a disagreement between the two β.
    p_value : of all four together (Bonferroni).
    p_adjusted : the same, of all heads of the inspection together (Holm).
    random : whether p_adjusted is above the level.
    verdict : in words.
    findings : what else was seen, in words.
    nulls : of `gequiv.inspect_model`, the nested nulls from the crudest on; empty for arrays.
    """

    layer: int
    head: int
    tokens: int
    keys: int
    mask: str
    beta: float | None
    beta_entropy: float | None
    beta_scores: float | None
    head_dim: int | None
    width: int | None
    directions: float | None
    ks: float | None
    wasserstein: float | None
    law_solved: bool
    edge: float | None
    edge_local: float | None
    detection_threshold: float | None
    outliers: list[OutlyingDirection]
    effective_rank: float
    p_bulk: float | None
    p_edge: float | None
    p_edge_local: float | None
    p_beta: float | None
    p_value: float | None
    p_adjusted: float | None
    random: bool
    verdict: str
    findings: tuple[str, ...]
    nulls: tuple[NullReport, ...] = ()
    spectrum: Any = field(repr=False, compare=False, default=None)
    table: Any = field(repr=False, compare=False, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and None, ready for JSON; without the spectrum."""
        return {
            "layer": self.layer,
            "head": self.head,
            "tokens": self.tokens,
            "keys": self.keys,
            "mask": self.mask,
            "beta": self.beta,
            "beta_entropy": self.beta_entropy,
            "beta_scores": self.beta_scores,
            "head_dim": self.head_dim,
            "width": self.width,
            "directions": self.directions,
            "ks": self.ks,
            "wasserstein": self.wasserstein,
            "law_solved": self.law_solved,
            "edge": self.edge,
            "edge_local": self.edge_local,
            "detection_threshold": self.detection_threshold,
            "outliers": [outlier.to_dict() for outlier in self.outliers],
            "effective_rank": self.effective_rank,
            "p_bulk": self.p_bulk,
            "p_edge": self.p_edge,
            "p_edge_local": self.p_edge_local,
            "p_beta": self.p_beta,
            "p_value": self.p_value,
            "p_adjusted": self.p_adjusted,
            "random": self.random,
            "verdict": self.verdict,
            "findings": list(self.findings),
            "explained_by": self.explained_by,
            "nulls": [null.to_dict() for null in self.nulls],
        }

    @property
    def state(self) -> str:
        """Whether the head is "random", "not random", or "untested" where there is no law to hold it against."""
        return "random" if self.random else UNTESTED if self.verdict.startswith(UNTESTED) else "not random"

    @property
    def explained_by(self) -> str | None:
        """Name of the crudest null that the head passes; None if it passes none."""
        return next((null.name for null in self.nulls if null.passes), None)


@dataclass(frozen=True)
class Report:
    """All heads of an inspection.

    Attributes
    ----------
    heads : list of `HeadReport`, layer by layer.
    source : what was inspected.
    level : probability with which any of the heads may be called not random although all are.
    layered : whether the input had layers.
    tokens : texts of the tokens of the inspected input, where a tokenizer gave them.
    """

    heads: list[HeadReport]
    source: str
    level: float
    layered: bool
    tokens: tuple[str, ...] | None = None

    @property
    def random(self) -> int:
        """Number of heads that pass as random."""
        return sum(head.random for head in self.heads)

    @property
    def untested(self) -> int:
        """Number of heads that could not be tested."""
        return sum(head.state == UNTESTED for head in self.heads)

    @property
    def summary(self) -> str:
        """One sentence on all heads."""
        count, untested = len(self.heads), self.untested
        heads = f"{count} heads" if count > 1 else "the head"
        away = count - self.random - untested
        if untested == count:
            return f"none of {heads} could be tested" if count > 1 else "the head could not be tested"
        if away:
            text = f"{away} of {heads} not random" if count > 1 else "the head is not random"
            outlying = sum(bool(head.outliers) for head in self.heads if head.state == "not random")
            if outlying and count > 1:
                text += f", {outlying} of them with singular values outside the bulk"
        elif untested:
            text = f"{self.random} of {heads} pass as random"
        elif count > 1:
            text = f"{'both heads' if count == 2 else f'all {heads}'} pass as random"
        else:
            text = "the head passes as random"
        return text + (f"; {untested} could not be tested" if untested else "")

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and None, ready for JSON."""
        return {
            "source": self.source,
            "level": self.level,
            "summary": self.summary,
            "random": self.random,
            "untested": self.untested,
            "heads": [head.to_dict() for head in self.heads],
        }

    def to_frame(self) -> Any:
        """A pandas DataFrame of one row a head, outliers as their number.

        Raises
        ------
        ParameterError : pandas is not installed.
        """
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as error:
            raise ParameterError("to_frame needs pandas: pip install pandas; to_dict() needs nothing") from error
        rows = []
        for head in self.heads:
            row = head.to_dict()
            row["outliers"] = len(head.outliers)
            row["findings"] = "; ".join(head.findings)
            rows.append(row)
        return pandas.DataFrame(rows)

    def plot(self, what: str = "ks", *, axes: Any = None) -> Any:
        """Heat map of layers × heads; see `gequiv.plotting.inspection_figure`.

        Parameters
        ----------
        what : "ks", "beta", "outliers", "effective_rank" or "directions"; with nulls "ks:weights" and the like.
        axes : where to draw; None makes a figure.
        """
        # found by name: plotting is the room above
        return importlib.import_module("gequiv.plotting").inspection_figure(self, what, axes=axes)


def finite_or_none(value: float | None) -> float | None:
    """The number, or None where JSON has none for it."""
    return None if value is None or not math.isfinite(value) else float(value)
