"""The report of a campaign: complete, self-contained, escaped, the same bytes every time."""

from __future__ import annotations

import dataclasses
import math
import re
from html.parser import HTMLParser

import pytest

from gequiv.errors import StorageError
from gequiv.plotting import campaign_page
from gequiv.plotting.campaign_page import page_text, write_page
from gequiv.simulation.campaign.files import parse_campaign
from gequiv.simulation.campaign.findings import Analysis, ClaimFinding, Estimate, Power, Rate
from tests.plotting.synthetic_campaign import HOSTILE, SOURCE, made_up, model_finding

VOID = {"meta", "br", "path", "use", "rect", "line", "circle", "image"}


class Page(HTMLParser):
    """Elements, texts by section, and whether everything that is opened is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.identifiers: list[str] = []
        self.section = ""
        self.texts: dict[str, str] = {}
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.identifiers += [value for name, value in attrs if name == "id"]
        if tag == "section":
            self.section = dict(attrs)["id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.identifiers += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts[self.section] = self.texts.get(self.section, "") + data


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return made_up()


@pytest.fixture(scope="module")
def text(analysis) -> str:
    return page_text(analysis)


@pytest.fixture(scope="module")
def page(text) -> Page:
    return Page(text)


def analysis_of(source: str, draws: int | None = None) -> Analysis:
    campaign = parse_campaign(source)
    models = tuple(model_finding(model, draws) for model in campaign.models)
    return Analysis(campaign, (), models, (), (), 0, 0)


def test_sections_and_identifiers(page):
    sections = ["verdicts", "overview", "maps", "rates", "rows", "models", "reading", "run"]
    assert [name for name in page.identifiers if not re.fullmatch(r"f\d+-\d+", name)] == sections
    assert len(set(page.identifiers)) == len(page.identifiers)
    targets = [str(value)[1:] for name, value in page.attributes if name.endswith("href")]
    assert set(targets) <= set(page.identifiers)


def test_needs_nothing_else(text, page):
    assert "http" not in text
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name == "src" or name.startswith("on")]
    assert re.findall(r"url\((?!#)|@import", text) == []


def test_users_text_is_escaped(text, page):
    assert HOSTILE not in text
    assert "<b>&" not in text
    assert HOSTILE in page.texts["verdicts"]
    assert HOSTILE in page.texts["overview"]
    assert SOURCE.strip() in page.texts["run"]


def test_verdicts(page):
    told = " ".join(page.texts["verdicts"].split())
    assert "✗ failed 1" in told
    assert "? not enough draws 1" in told
    assert "✓ held 18" in told
    assert "○ could not have failed 1" in told
    assert "16 held, 1 failed, 1 not enough draws" in told
    assert "a true mean KS of 0.0231 would have failed" in told
    assert "all 18 verdicts" in told


def test_numbers_are_those_of_the_analysis(analysis, page):
    for finding in analysis.models:
        for law in finding.laws:
            if law.ks is not None:
                assert f"{law.ks.value:.4f}" in page.texts["overview"]
            if law.ks is not None and law.ks.low is not None:
                assert f"{law.ks.low:.4f} … {law.ks.high:.4f}" in page.texts["overview"]
    for rate in analysis.rates:
        assert f"−{abs(rate.exponent.value):.3f}" in page.texts["rates"]
    assert page.texts["rates"].count("curved") >= sum(rate.curved for rate in analysis.rates)


def test_what_is_missing_is_told(text, page):
    assert "5 draws are missing" in text
    assert "1 stored result was damaged" in text
    assert "3 of 4" in page.texts["overview"]
    assert "No draws are there yet" in page.texts["models"]
    assert "one draw" in page.texts["overview"]


def test_refused_law_has_its_reason():
    analysis = analysis_of('version = 1\n[[grid]]\nname = "a"\ntokens = 64\nhead_dim = 8\nbeta = 1.0\ndraws = 2\n')
    finding = analysis.models[0]
    laws = (dataclasses.replace(finding.laws[0], refusal="it <diverges>", ks=None, wasserstein=None), *finding.laws[1:])
    analysis = dataclasses.replace(analysis, models=(dataclasses.replace(finding, laws=laws),))
    page = Page(page_text(analysis))
    assert "finite-size law of 64 tokens, head width 8, β = 1: it <diverges>" in page.texts["overview"]
    assert {"verdicts", "overview", "models", "reading", "run"} == set(page.texts) - {""}
    assert "states no claims" in page.texts["verdicts"]


def test_same_bytes_and_small_figures(text, tmp_path):
    path, small = tmp_path / "report.html", analysis_of(SMALL)
    write_page(small, path)
    assert path.read_bytes() == page_text(small).encode()
    assert list(tmp_path.iterdir()) == [path]
    models = text[text.index('<section id="models">') :]
    sizes = [len(figure) for figure in re.findall(r"<svg.*?</svg>", models, flags=re.DOTALL)]
    assert sizes
    assert max(sizes) < 17_000
    assert sum(sizes) < 15_000 * len(sizes)


@pytest.mark.parametrize("many", [False, True])
def test_many_models_are_folded_and_drawn_small(monkeypatch, many):
    for name, value in (("_OPEN_MODELS", 1), ("_SMALL", 2), ("_FIGURES", 2), ("_LONG", 2)):
        monkeypatch.setattr(campaign_page, name, value if many else 3)
    source = 'version = 1\n[[grid]]\nname = "a"\ntokens = 64\nhead_dim = 8\nbeta = [0.1, 0.2, 0.3]\ndraws = 2\n'
    text = page_text(analysis_of(source))
    assert text.count('<details class="card">') == (3 if many else 0)
    assert text.count("<svg") == (2 if many else 3)
    assert text.count("max-width:3.40in") == (2 if many else 0)
    assert ("<summary>3 models</summary>" in text) == many
    assert ("The first 2 models have figures" in text) == many


def test_no_draws_at_all():
    source = 'version = 1\n[[grid]]\nname = "a"\ntokens = [64, 128]\nhead_dim = 8\nbeta = [1.0, 2.0]\ndraws = 2\n'
    page = Page(page_text(analysis_of(source, 0)))
    assert page.texts["models"].count("No draws are there yet") == 4
    assert "maps" not in page.texts


def test_unwritable(tmp_path):
    with pytest.raises(StorageError, match=r"nowhere/report\.html"):
        write_page(analysis_of(SMALL), tmp_path / "nowhere" / "report.html")


def test_what_is_special_about_a_model_is_told():
    analysis = analysis_of(SMALL)
    finding = analysis.models[0]
    law = finding.laws[0]
    laws = (dataclasses.replace(law, note="with 5 <nodes>", outliers=(), outliers_refusal="no <edge>", atom=0.25),)
    found = dataclasses.replace(finding, laws=laws, zeros=0.125, estimate_error=0.01)
    power = Power(-math.inf, False, "no")
    claim = ClaimFinding("rate", "c", "s", None, "l", "not enough draws", "r", power)
    points = ((10.0, 0.1, None), (20.0, 0.05, None), (40.0, 0.02, None))
    rate = Rate("a", "limit", "tokens", {}, points, Estimate(-1.0, 0.1, -1.4, -0.6), False, 1.0, math.inf)
    page = Page(page_text(dataclasses.replace(analysis, models=(found,), claims=(claim,), rates=(rate,))))
    for told in ("with 5 <nodes>", "No top values of the limit law: no <edge>.", "share at 0", "0.2500", "12.5 %"):
        assert told in page.texts["models"]
    assert "−∞" in page.texts["verdicts"]
    assert "and ± ∞ of estimates" in page.texts["rates"]


@pytest.mark.parametrize("gap", [slice(None), slice(0, 40)])
def test_densities_with_gaps(gap):
    analysis = analysis_of(SMALL)
    finding = analysis.models[0]
    density = finding.laws[0].density.copy()
    density[gap] = math.nan
    laws = (dataclasses.replace(finding.laws[0], density=density),)
    text = page_text(dataclasses.replace(analysis, models=(dataclasses.replace(finding, laws=laws),)))
    assert "nan" not in text.lower().replace("name", "")


SMALL = """
version = 1
[[models]]
name = "a"
tokens = 32
head_dim = 8
beta = 1.0
draws = 4
laws = ["limit"]
"""
