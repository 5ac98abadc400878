"""The page of an inspection: one file that holds all heads, escapes all text, and stays small."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser

import pytest

from gequiv.errors import ParameterError, StorageError
from gequiv.inspection.report import Report
from gequiv.plotting import write_inspection
from gequiv.plotting.inspection_page import _notable, page_text
from tests.plotting import synthetic_inspection as made


class _Page(HTMLParser):
    """Rows of tables, by section; sections; tags that must be balanced."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.section, self.cells, self.open = {}, "", None, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br", "path", "use", "rect"):
            self.open.append(tag)
        if tag == "section":
            self.section = dict(attrs)["id"]
        elif tag == "tr":
            self.rows.setdefault(self.section, []).append([])
        elif tag in ("td", "th"):
            self.rows[self.section][-1].append("")
            self.cells = self.rows[self.section][-1]

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if tag in self.open:
            assert self.open.pop() == tag
        if tag in ("td", "th"):
            self.cells = None

    def handle_data(self, data):
        if self.cells is not None:
            self.cells[-1] += data


def body(page, section):
    """Rows of a section's table below its headings."""
    rows = page.rows[section]
    headings = next(k for k, row in enumerate(rows) if "head" in row)
    return [dict(zip(rows[headings], row, strict=True)) for row in rows[headings + 1 :]]


def test_every_head_has_a_row():
    report = made.grid(3, 4)
    page = _Page(page_text(report))
    assert page.open == []
    rows = body(page, "heads")
    assert [(row["layer"], row["head"]) for row in rows] == [(str(h.layer), str(h.head)) for h in report.heads]
    assert [row["KS"] for row in rows] == [f"{0.01 * k:.4f}" for k in range(1, 13)]
    assert [int(row["outside"]) for row in rows] == [len(head.outliers) for head in report.heads]
    assert [row["verdict"].startswith("○ random") for row in rows] == [head.random for head in report.heads]
    assert {(row["energy"], row["entropy"], row["scores"]) for row in rows} == {("0.7", "0.71", "0.72")}


def test_summary_level_and_definitions_are_told():
    text = page_text(made.grid(2, 3))
    assert "2 of 6 heads not random, 1 of them with singular values outside the bulk." in text
    assert "at most 5 %" in text
    for word in ("β by energy", "β by entropy", "β by scores", "Directions", "KS", "Rank", "Edge, outside"):
        assert f"<dt>{word}</dt>" in text
    assert "<dt>With a mask</dt>" not in text
    assert "<dt>With a mask</dt>" in page_text(made.report([made.head(mask="causal")]))


def test_missing_values_are_dashes():
    (row,) = body(_Page(page_text(made.report([made.lawless()], layered=False))), "heads")
    assert (row["KS"], row["energy"], row["p"]) == ("–", "–", "–")


def test_outliers_have_their_tokens():
    tokens = ("a", " b", "c\n", "<i>", "e", made.HOSTILE)
    heads = [made.head(outliers=[made.outlier(keys=(3, 5, 1), queries=(2, 40))], random=False)]
    (row,) = body(_Page(page_text(Report(heads, "x", 0.05, layered=False, tokens=tokens))), "outliers")
    assert row["keys"] == "<i> 3 (+0.80), <script>alert('x')</scr… 5 (−0.40), ␣b 1 (+0.27)"
    assert row["queries"] == "c⏎ 2 (+0.50), 40 (+0.50)"  # no text is known of token 40
    assert float(row["s"]) == 3
    (row,) = body(_Page(page_text(made.report(heads))), "outliers")
    assert row["keys"] == "3 (+0.80), 5 (−0.40), 1 (+0.27)"


def test_outliers_without_vectors_and_of_columns():
    heads = [made.head(outliers=[made.outlier(16.0, "column"), made.outlier(9.0, keys=(), queries=())])]
    first, second = body(_Page(page_text(made.report(heads))), "outliers")
    assert first["queries"] == "all alike"
    assert second["keys"] == "–"


def test_nulls_are_counted_and_told():
    names = ("sizes", "weights", "weights and tokens")
    heads = []
    for number, passing in enumerate((0, 1, 1, 3)):
        ladder = tuple(made.null(name, 0.1 * (k + 1), passes=k >= passing) for k, name in enumerate(names))
        heads.append(made.head(0, number, random=passing == 0, nulls=ladder))
    page = _Page(page_text(made.report(heads)))
    counted = {row[0]: row[1:] for row in page.rows["nulls"]}
    assert counted["sizes"] == ["1", "1", "0.1000"]
    assert counted["weights"] == ["2", "3", "0.2000"]
    assert counted["weights and tokens"] == ["0", "3", "0.3000"]
    assert counted["none of them"][0] == "1"
    assert "nulls" not in _Page(page_text(made.grid(1, 2))).rows
    verdicts = [row["verdict"] for row in body(page, "heads")]
    assert [text.rpartition("explained by ")[2] for text in verdicts] == ["sizes", "weights", "weights", "no null"]


def test_text_is_escaped():
    report = made.report([made.head(verdict=f"random: {made.HOSTILE}", findings=(made.HOSTILE,))], source=made.HOSTILE)
    for text in (page_text(report), page_text(report, made.HOSTILE)):
        assert "<script" not in text
        assert "&lt;script&gt;" in text


def test_page_needs_nothing_else():
    text = page_text(made.grid(2, 3))
    assert not re.search(r'(?:src|href)="(?!#)', text)
    assert "@import" not in text
    assert "url(http" not in text
    assert text == page_text(made.grid(2, 3))
    names = re.findall(r' id="([^"]*)"', text)
    assert len(names) == len(set(names))
    assert all(f'id="{name}"' in text for name in re.findall(r'href="#([^"]*)"', text))


def test_notable_heads_are_told_once():
    report = made.grid(4, 8)
    chosen = _notable(report)
    assert len(chosen) == 6
    assert len({(head.layer, head.head) for head, _ in chosen}) == 6
    assert chosen[0][0].ks == max(head.ks for head in report.heads)
    assert len(chosen[1][0].outliers) == 3
    assert chosen[2][0].random
    two = made.report([made.head(0, 0), made.lawless(0, 1)])
    assert len(_notable(two)) == 2
    assert _notable(made.report([made.head(spectrum=None)])) == []
    assert 'id="spectra"' not in page_text(made.report([made.head(spectrum=None)]))


def test_a_thousand_heads_are_a_small_page(tmp_path):
    path = tmp_path / "page.html"
    report = made.grid(32, 32)
    start = time.perf_counter()
    write_inspection(report, str(path), title="Many")
    assert time.perf_counter() - start < 30
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) < 5e6
    page = _Page(text)
    assert len(body(page, "heads")) == 1024
    assert len(body(page, "outliers")) == 300
    total = sum(len(head.outliers) for head in report.heads)
    assert f"The 300 of {total} that are furthest outside" in text
    assert "<title>Many</title>" in text


def test_what_cannot_be_written_is_said(tmp_path):
    with pytest.raises(StorageError, match="cannot write"):
        write_inspection(made.grid(1, 1), tmp_path / "nowhere" / "page.html")
    with pytest.raises(ParameterError, match="at least one head"):
        write_inspection(made.report([]), tmp_path / "page.html")
