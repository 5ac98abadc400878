"""Tables: types, bytes, what is in them."""

from __future__ import annotations

import csv
import io
import json
import math

import pytest

from gequiv.attention import Attention
from gequiv.errors import StorageError
from gequiv.simulation.campaign.findings import (
    Analysis,
    ClaimFinding,
    DrawRow,
    Estimate,
    LawFinding,
    ModelFinding,
    MomentRow,
    OutlierRow,
    Power,
    Rate,
)
from gequiv.simulation.campaign.model import Campaign, Model, Plan
from gequiv.simulation.campaign.tables import tables, write_tables

HOSTILE = 'a "b", c\n=d'
THIRD = Estimate(1 / 3, 0.1, 0.2, 0.4)


def analysis(ks=1 / 3):
    model = Model(HOSTILE, Attention(20, 10, 0.5), Plan(), ("finite", "limit"), (7, 2**53 - 1))
    laws = (
        LawFinding(
            "finite",
            None,
            THIRD,
            Estimate(0.1, None, None, None),
            0.3,
            (MomentRow(1, 1.0, 1.1, None, None),),
            (OutlierRow(1, 4.0, "edge", THIRD),),
        ),
        LawFinding("limit", HOSTILE),
    )
    finding = ModelFinding(model, 2, laws, None, None, None, {"largest": THIRD}, {})
    rate = Rate(HOSTILE, "finite", "tokens", {"beta": 0.5, "mask": None}, ((20.0, 0.1, None),), THIRD, True)
    claim = ClaimFinding("agreement", HOSTILE, "s", None, "l", "held", "r", Power(math.inf, False, "t"))
    rows = tuple(
        DrawRow(model, k, seed, law, ks if law == "finite" else None, None, 1e-300)
        for k, seed in enumerate(model.seeds)
        for law in model.laws
    )
    campaign = Campaign("c", "", "", 0, (model,), (), "")
    return Analysis(campaign, rows, (finding,), (rate,), (claim,), 0, 0)


def test_columns_of_results():
    columns = [column.name for column in tables(analysis())["results"].columns]
    assert {"tokens", "head_dim", "beta", "mask", "seed", "law", "ks", "wasserstein"} <= set(columns)
    assert not any("time" in name or "seconds" in name or "path" in name for name in columns)


def test_every_field_is_of_its_columns_type():
    readers = {"int64": int, "float64": float, "string": str, "bool": {"true": True, "false": False}.__getitem__}
    types = {"int64": int, "float64": float, "string": str, "bool": bool}
    for table in tables(analysis()).values():
        assert table.rows
        head, *lines = csv.reader(io.StringIO(table.text()))
        assert head == [column.name for column in table.columns]
        for fields, row in zip(lines, table.rows, strict=True):
            for field, value, column in zip(fields, row, table.columns, strict=True):
                if value is None:
                    assert field == ""
                    continue
                assert type(value) is types[column.dtype], (table.name, column.name)
                read = readers[column.dtype](field)
                assert read == (pytest.approx(value, rel=1e-11) if column.dtype == "float64" else value)


def test_last_bits_do_not_show():
    texts = {tables(analysis(ks))["results"].text() for ks in (1 / 3, math.nextafter(1 / 3, 1))}
    assert len(texts) == 1
    assert "0.333333333333," in texts.pop()


def test_files(tmp_path):
    paths = write_tables(analysis(), tmp_path)
    before = [path.read_bytes() for path in paths]
    assert write_tables(analysis(), tmp_path) == paths
    assert [path.read_bytes() for path in paths] == before
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    schema = json.loads((tmp_path / "tables.json").read_text())
    for name, table in schema.items():
        header = next(csv.reader((tmp_path / table["file"]).read_text().splitlines()))
        assert header == [column["name"] for column in table["columns"]]
        assert all(column["description"] for column in table["columns"]), name
    assert b"\r" not in b"".join(before)


def test_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        write_tables(analysis(), tmp_path / "file")
