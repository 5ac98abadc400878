"""What an analysis found as tidy tables: CSV files whose columns have one type each, and a file that describes them."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gequiv.errors import StorageError
from gequiv.simulation.campaign.findings import Analysis, Estimate
from gequiv.simulation.campaign.model import Model, Scalar
from gequiv.simulation.campaign.store import replace_file

DType = Literal["int64", "float64", "string", "bool"]
DIGITS = 12
"""Significant digits of floats: last-bit differences between machines do not show."""
SCHEMA_FILE = "tables.json"


@dataclass(frozen=True)
class Column:
    """Name, type and meaning of a column; a missing value is None, an empty field in the file."""

    name: str
    dtype: DType
    description: str


@dataclass(frozen=True)
class Table:
    """Rows of plain values, in the order of the columns."""

    name: str
    description: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Scalar, ...], ...]

    def text(self) -> str:
        r"""As CSV, RFC 4180 but for "\n"; floats have 12 significant digits in their shortest form."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow([column.name for column in self.columns])
        writer.writerows([[_field(value) for value in row] for row in self.rows])
        return buffer.getvalue()


_MODEL = (
    Column("group", "string", "name of the table in the campaign file"),
    Column("tokens", "int64", "number of tokens, rows of the matrix"),
    Column("keys", "int64", "number of keys, columns of the matrix"),
    Column("head_dim", "int64", "width of the head"),
    Column("width", "int64", "width of Gaussian tokens; empty for orthonormal ones"),
    Column("beta", "float64", "inverse temperature"),
    Column("gamma", "float64", "beta^2 / log keys, if beta was given so"),
    Column("mask", "string", "name of the mask"),
    Column("alibi", "float64", "slope of the ALiBi bias"),
    Column("score", "string", "score function of x = beta S"),
    Column("covariance", "string", "eigenvalues of the tokens' covariance, separated by spaces"),
    Column("token_entries", "string", "distribution of the entries of tokens"),
    Column("weight_entries", "string", "distribution of the entries of weights"),
    Column("matrix", "string", "attention or linear-model"),
    Column("method", "string", "gram, svd or lanczos"),
)
_LAW = Column("law", "string", "law compared with")


def _estimate_columns(name: str, description: str) -> tuple[Column, ...]:
    return (
        Column(name, "float64", description),
        Column(f"{name}_error", "float64", f"standard error of {name}; empty with one draw"),
        Column(f"{name}_low", "float64", f"lower end of the 95 % confidence interval of {name}"),
        Column(f"{name}_high", "float64", f"upper end of the 95 % confidence interval of {name}"),
    )


def tables(analysis: Analysis) -> dict[str, Table]:
    """The tables by name: results, models, moments, outliers, rows, rates, claims."""
    found = (
        _results(analysis),
        _models(analysis),
        _moments(analysis),
        _outliers(analysis),
        _rows(analysis),
        _rates(analysis),
        _claims(analysis),
    )
    return {table.name: table for table in found}


def write_tables(analysis: Analysis, folder: str | os.PathLike[str]) -> list[Path]:
    """Write NAME.csv of every table, and tables.json with columns, types and descriptions; returns the paths.

    A file is replaced by the whole new one or stays. The same analysis gives the same bytes.

    Raises
    ------
    StorageError : a file cannot be written.
    """
    place = Path(folder)
    found = tables(analysis)
    texts = {f"{name}.csv": table.text() for name, table in found.items()}
    schema = {
        table.name: {
            "file": f"{table.name}.csv",
            "description": table.description,
            "columns": [dataclasses.asdict(column) for column in table.columns],
        }
        for table in found.values()
    }
    texts[SCHEMA_FILE] = json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
    for name, text in texts.items():
        write_text(place / name, text)
    return [place / name for name in texts]


def write_text(path: Path, text: str) -> None:
    """Write a file of a report; an earlier one is replaced by the whole new one or stays.

    Raises
    ------
    StorageError : it cannot be written.
    """
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise StorageError(f"cannot write {str(path)!r}: {error.strerror or error}") from error


def _field(value: Scalar) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(float(f"{value:.{DIGITS}g}"))
    return str(value)


def _head(model: Model) -> tuple[Scalar, ...]:
    values: dict[str, Scalar] = {"group": model.group, **model.parameters()}
    return tuple(_typed(values[column.name], column.dtype) for column in _MODEL)


def _typed(value: Any, dtype: DType) -> Scalar:
    if value is None or (dtype == "float64" and math.isnan(value)):
        return None
    return float(value) if dtype == "float64" else int(value) if dtype == "int64" else value


def _ends(found: Estimate | None) -> tuple[float | None, ...]:
    return (None,) * 4 if found is None else (found.value, found.error, found.low, found.high)


def _results(analysis: Analysis) -> Table:
    columns = (
        *_MODEL,
        Column("draw", "int64", "index among the draws of the model"),
        Column("seed", "int64", "seed of the draw"),
        _LAW,
        Column("ks", "float64", "Kolmogorov-Smirnov distance; empty where the law could not be had"),
        Column("wasserstein", "float64", "Wasserstein-1 distance, in squared singular values"),
        Column("largest", "float64", "largest squared singular value"),
    )
    rows = tuple(
        (*_head(row.model), row.index, row.seed, row.law, row.ks, row.wasserstein, row.largest) for row in analysis.rows
    )
    return Table("results", "one row a draw and law", columns, rows)


def _models(analysis: Analysis) -> Table:
    columns = (
        *_MODEL,
        Column("wanted", "int64", "number of draws that the campaign asks for"),
        Column("draws", "int64", "number of draws that are there"),
        Column("noise", "float64", "sampling noise of KS"),
        Column("estimate_error", "float64", "largest 99 % sampling error of matrix-free distribution functions"),
        Column("zeros", "float64", "share of the values that are 0"),
        _LAW,
        Column("refusal", "string", "why the law could not be had"),
        Column("note", "string", "what was special about the law"),
        Column("outliers_refusal", "string", "why the law predicts no top values, if it might have"),
        *_estimate_columns("ks", "mean Kolmogorov-Smirnov distance over draws"),
        *_estimate_columns("wasserstein", "mean Wasserstein-1 distance over draws"),
        Column("ks_pooled", "float64", "Kolmogorov-Smirnov distance of all draws pooled"),
        Column("atom", "float64", "weight of the law at 0"),
    )

    def rows() -> Iterator[tuple[Scalar, ...]]:
        for model in analysis.models:
            shared = (len(model.model.seeds), model.draws, model.noise, model.estimate_error, model.zeros)
            for law in model.laws:
                distances = (*_ends(law.ks), *_ends(law.wasserstein), law.ks_pooled, law.atom)
                yield (*_head(model.model), *shared, law.law, law.refusal, law.note, law.outliers_refusal, *distances)

    return Table("models", "one row a model and law", columns, tuple(rows()))


def _moments(analysis: Analysis) -> Table:
    columns = (
        *_MODEL,
        _LAW,
        Column("order", "int64", "order of the moment of the squared singular values"),
        Column("sample", "float64", "mean over draws"),
        Column("expected", "float64", "moment of the law"),
        Column("error", "float64", "standard error of the sample over draws"),
        Column("z", "float64", "(sample - expected) / error"),
    )
    rows = tuple(
        (*_head(model.model), law.law, moment.order, moment.sample, moment.law, moment.error, moment.z)
        for model in analysis.models
        for law in model.laws
        for moment in law.moments
    )
    return Table("moments", "one row a model, law and moment", columns, rows)


def _outliers(analysis: Analysis) -> Table:
    columns = (
        *_MODEL,
        _LAW,
        Column("rank", "int64", "1 for the largest value"),
        Column("origin", "string", "what the value belongs to; edge for the bulk's own"),
        Column("predicted", "float64", "squared singular value that is expected"),
        *_estimate_columns("measured", "mean over draws"),
    )
    rows = tuple(
        (*_head(model.model), law.law, outlier.rank, outlier.origin, outlier.predicted, *_ends(outlier.measured))
        for model in analysis.models
        for law in model.laws
        for outlier in law.outliers
    )
    return Table("outliers", "one row a model, law and top value", columns, rows)


def _rows(analysis: Analysis) -> Table:
    columns = (
        *_MODEL,
        Column("draws", "int64", "number of draws that are there"),
        Column("statistic", "string", "name of the row statistic"),
        *_estimate_columns("measured", "mean over draws of the mean over rows"),
        Column("expected", "float64", "value for independent log-normal entries"),
    )
    rows = tuple(
        (*_head(model.model), model.draws, name, *_ends(found), model.expected_rows.get(name))
        for model in analysis.models
        for name, found in model.rows.items()
    )
    return Table("rows", "one row a model and row statistic", columns, rows)


def _rates(analysis: Analysis) -> Table:
    columns = (
        Column("group", "string", "name of the table in the campaign file"),
        Column("line", "string", "what the models of the line have in common, as JSON"),
        _LAW,
        Column("over", "string", "axis along which the line goes"),
        Column("values", "int64", "number of values of that axis"),
        Column("smallest", "float64", "smallest value of the axis"),
        Column("largest", "float64", "largest value of the axis"),
        *_estimate_columns("exponent", "of mean KS as a power of the axis"),
        Column("freedom", "float64", "degrees of freedom of the interval"),
        Column("slack", "float64", "what matrix-free estimates may add to or take from the exponent"),
        Column("curved", "bool", "whether a quadratic term is significant at 5 %"),
    )
    rows = tuple(
        (
            rate.group,
            json.dumps(rate.axes, ensure_ascii=False),
            rate.law,
            rate.over,
            len(rate.points),
            min(place for place, _, _ in rate.points),
            max(place for place, _, _ in rate.points),
            *_ends(rate.exponent),
            None if math.isnan(rate.freedom) else rate.freedom,
            rate.slack,
            rate.curved,
        )
        for rate in analysis.rates
    )
    return Table("rates", "one row a line of models and law", columns, rows)


def _claims(analysis: Analysis) -> Table:
    columns = (
        Column("kind", "string", "kind of the claim"),
        Column("name", "string", "the claim in words"),
        Column("subject", "string", "the model or line of models"),
        *_estimate_columns("measured", "the tested quantity"),
        Column("limit", "string", "what it is held against"),
        Column("verdict", "string", "held, failed, or not enough draws"),
        Column("reason", "string", "the numbers in words"),
        Column("detectable", "float64", "true value that would have failed with probability 95 %"),
        Column("could_fail", "bool", "whether the test could have failed under what the campaign knows of"),
        Column("power", "string", "that in words"),
    )
    rows = tuple(
        (
            *(claim.kind, claim.name, claim.subject),
            *_ends(claim.measured),
            *(claim.limit, claim.verdict, claim.reason),
            *(claim.power.detectable, claim.power.could_fail, claim.power.text),
        )
        for claim in analysis.claims
    )
    return Table("claims", "one row a claim and model or line of models", columns, rows)
