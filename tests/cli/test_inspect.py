"""``gequiv inspect``: one object for programs, a table for readers, one line for every mistake."""

from __future__ import annotations

import json
import sys
import types
from contextlib import contextmanager

import numpy as np
import pytest

import gequiv
from gequiv.cli import inspect as command
from tests.plotting import synthetic_inspection as made

KEYS = {"layer", "head", "beta", "beta_entropy", "beta_scores", "ks", "outliers", "effective_rank", "random", "verdict"}


@pytest.fixture(scope="module")
def attention(tmp_path_factory):
    """Two random heads in a file."""
    rng = np.random.default_rng(7)
    path = tmp_path_factory.mktemp("attention") / "heads.npy"
    np.save(path, np.stack([gequiv.Attention(96, 16, 0.7).sample(rng) for _ in range(2)]))
    return path


@pytest.fixture
def inspected(monkeypatch):
    """Stands in for the inspection: the report to give, and what it was asked for."""
    asked = {}

    def pretend(attention, *, progress, **options):
        asked.update(options, attention=attention)
        for what in ("heads", "laws"):
            for done in range(1, 3):
                progress(done, 2, what)
        return asked.get("report", made.grid(2, 3))

    monkeypatch.setattr("gequiv.inspection.inspect_attention", pretend)
    return asked


# -- a real file ---------------------------------------------------------------------------------------


def test_a_file_is_inspected(cli, attention, tmp_path):
    page, picture = tmp_path / "page.html", tmp_path / "map.svg"
    outcome = cli("inspect", attention, "--json", "--html", page, "--plot", picture, "--head-dim", "16", "--jobs", "1")
    assert (outcome.code, outcome.err) == (0, "")
    found = json.loads(outcome.out)
    assert found["source"] == "heads.npy"
    first, second = found["heads"]
    assert set(first) >= KEYS
    assert [head["head"] for head in (first, second)] == [0, 1]
    for head in (first, second):  # the level at which either is called otherwise is 5 %; the seed is fixed
        assert head["random"]
        assert head["verdict"].startswith("random")
        assert head["beta"] == pytest.approx(0.7, abs=0.1)
        assert head["head_dim"] == 16
        assert head["outliers"] == []
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert "<svg" in picture.read_text(encoding="utf-8")


# -- output --------------------------------------------------------------------------------------------


def test_options_are_handed_on(cli, inspected):
    line = "a.npz --key x --head-dim 8 --width 64 --level 0.01 --seed 3 --jobs 2 --json"
    outcome = cli("inspect", *line.split())
    assert (outcome.code, outcome.err) == (0, "")
    assert str(inspected.pop("attention")) == "a.npz"
    assert inspected == {"key": "x", "head_dim": 8, "width": 64, "level": 0.01, "seed": 3, "jobs": 2}
    assert len(json.loads(outcome.out)["heads"]) == 6


def test_there_is_no_infinity_in_json(cli, inspected):
    inspected["report"] = made.report([made.head(ks=float("nan"), edge=float("inf"))])
    outcome = cli("inspect", "a.npy", "--json")

    def refuse(text):
        raise AssertionError(text)

    (head,) = json.loads(outcome.out, parse_constant=refuse)["heads"]
    assert (head["ks"], head["edge"]) == (None, None)


def test_verdicts_do_not_change_the_exit_code(cli, inspected):
    inspected["report"] = made.report([made.head(random=False, outliers=[made.outlier()]), made.lawless(0, 1)])
    outcome = cli("inspect", "a.npy")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.count("● not random") == 2
    assert "2 of 2 heads not random, 1 of them with singular values outside the bulk (level 0.05)" in outcome.out


def test_every_head_has_a_line(cli, inspected):
    lines = [line.split() for line in cli("inspect", "a.npy").out.splitlines() if "random:" in line]
    assert [line[:2] for line in lines] == [[str(layer), str(head)] for layer in range(2) for head in range(3)]
    assert [line[3] for line in lines] == ["0.01", "0.02", "0.03", "0.04", "0.05", "0.06"]
    assert [line[7] for line in lines] == ["●", "○", "○", "●", "○", "○"]


def test_many_heads_are_summed_up_by_layer(cli, inspected):
    inspected["report"] = made.grid(8, 9)
    out = cli("inspect", "a.npy").out
    rows = [line.split() for line in out.splitlines()]
    assert ["0", "9", "6", "0", "0.7", "0.05", "0.09"] in rows  # 0.01 … 0.09, every third not random
    assert ["7", "9", "6", "21", "0.7", "0.68", "0.72"] in rows
    assert "the 12 furthest from random; --all prints all heads" in out
    assert out.count("not random:") == 12
    assert cli("inspect", "a.npy", "--all").out.count("random:") == 72


def test_nulls_have_columns(cli, inspected):
    """KS of each, p and β of the last, and which of them explains the head, within 80 columns."""
    ladder = (made.null("sizes", 0.2, passes=False), made.null("weights and tokens", 0.1, passes=True))
    inspected["report"] = made.report([made.head(nulls=ladder), made.head(0, 1, random=False, nulls=ladder[:1])])
    lines = cli("inspect", "a.npy").out.splitlines()
    assert max(map(len, lines)) <= 80
    (first,) = (line.split() for line in lines if "○" in line)
    (second,) = (line.split() for line in lines if "●" in line)
    assert first[3:5] == ["0.2", "0.1"]
    assert first[first.index("○") + 1 :] == ["weights", "and", "tokens"]
    assert second[3:5] == ["0.2", "–"]
    assert second[-2:] == ["●", "none"]
    assert any("Verdicts in words" in line for line in lines)


def test_furthest_from_the_last_null_come_first(cli, inspected):
    heads = [
        made.head(
            0,
            k,
            random=False,
            nulls=[made.null("sizes", 0.9 - k / 99, passes=False), made.null("weights", k / 99, passes=False)],
        )
        for k in range(64)
    ]
    inspected["report"] = made.report(heads)
    told = [line.split() for line in cli("inspect", "a.npy").out.splitlines() if "●" in line]
    assert len(told) == 12
    assert [line[4] for line in told[:3]] == [f"{k / 99:.3g}" for k in (63, 62, 61)]


def test_every_phase_has_a_bar_of_its_own(cli, inspected, monkeypatch):
    shown = []

    @contextmanager
    def bar(task, **_):
        shown.append(task)
        yield lambda done, total: shown.append((done, total))
        shown.append("end")

    monkeypatch.setattr(command, "progress_bar", bar)
    assert cli("inspect", "a.npy", "--json").code == 0
    assert shown == ["heads", (1, 2), (2, 2), "end", "laws", (1, 2), (2, 2), "end"]


def test_interrupted(cli, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("gequiv.inspection.inspect_attention", stop)
    assert cli("inspect", "a.npy").code == 130


# -- mistakes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "give either FILE, attention matrices, or --model DIR with --text FILE"),
        ("a.npy --model m --text t.txt", "give either FILE"),
        ("a.npy --text t.txt", "--text belongs to --model"),
        ("a.npy --max-tokens 9", "--max-tokens belongs to --model"),
        ("a.npy --random-init", "--random-init belongs to --model"),
        ("--model m", "--model needs --text FILE"),
        ("--model m --text t.txt --head-dim 8", "--head-dim belongs to FILE"),
        ("--model m --text t.txt --key k", "--key belongs to FILE"),
        ("missing.npy", "cannot read 'missing.npy': No such file or directory"),
        ("missing.txt", "FILE, a path, must end in .npy, .npz or .safetensors"),
        ("broken.npy", "cannot read 'broken.npy'"),
        ("ones.npy", "FILE"),
        ("heads.npy --key k", "--key must be left out for a .npy"),
        ("heads.npy --level 0.7", "--level must be a probability below 0.5; got 0.7"),
        ("heads.npy --head-dim 1", "--head-dim must be an integer of at least 2; got 1"),
        ("heads.npy --jobs 0", "--jobs"),
        ("heads.npy --plot map.gif", "--plot must end in .png, .pdf or .svg"),
        ("heads.npy --html no/page.html", "--html: cannot write 'no/page.html'"),
    ],
)
def test_mistakes_are_one_line(cli, tmp_path, line, message):
    (tmp_path / "broken.npy").write_bytes(b"no array")
    np.save(tmp_path / "ones.npy", np.ones((4, 4)))
    np.save(tmp_path / "heads.npy", np.full((4, 4), 0.25))
    outcome = cli("inspect", *line.split())
    assert (outcome.code, outcome.out) == (2, "")
    assert len(outcome.err.splitlines()) == 1
    assert message in outcome.err.replace("'--jobs' / '-j'", "--jobs")
    assert "--tokens" not in outcome.err


# -- models --------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """A folder that looks like a model's, and texts."""
    place = tmp_path / "model"
    place.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (place / name).write_text("{}", encoding="utf-8")
    (tmp_path / "text.txt").write_text("word " * 500, encoding="utf-8")
    return place


@pytest.fixture
def libraries(monkeypatch):
    """Stand-ins for torch, transformers, safetensors and the inspection; yields what was called."""
    called = {}
    torch, transformers, safetensors = (types.ModuleType(name) for name in ("torch", "transformers", "safetensors"))
    torch.manual_seed = lambda seed: called.update(seed=seed)
    safetensors.SafetensorError = type("SafetensorError", (Exception,), {})
    called["SafetensorError"] = safetensors.SafetensorError
    quiet = types.SimpleNamespace(set_verbosity_error=lambda: None, disable_progress_bar=lambda: None)
    transformers.logging = quiet

    def tokenizer(text, truncation, max_length, return_overflowing_tokens):
        assert truncation
        assert return_overflowing_tokens
        ids = list(range(len(text.split())))
        return {"input_ids": [ids[start : start + max_length] for start in range(0, len(ids), max_length)]}

    tokenizer.model_max_length = int(1e30)

    class Model:
        config = types.SimpleNamespace(max_position_embeddings=300)

        def eval(self):
            return self

    def loader(kind, made_of):
        def load(place, *, local_files_only):
            assert local_files_only
            if kind in called.get("broken", {}):
                raise called["broken"][kind]
            called[kind] = place
            return made_of

        return types.SimpleNamespace(
            from_pretrained=load, from_config=lambda config: called.update(fresh=config) or made_of
        )

    transformers.AutoConfig = loader("config", "the config")
    transformers.AutoModel = loader("model", Model())
    transformers.AutoTokenizer = loader("tokenizer", tokenizer)
    models = types.ModuleType("gequiv.inspection.models")

    def inspect_model(model, inputs, *, tokenizer, level, seed, jobs, progress):
        progress(1, 1, "layers")
        called.update(shape=np.shape(inputs["input_ids"]), level=level, inspection_seed=seed, jobs=jobs)
        return made.grid(2, 2)

    models.inspect_model = inspect_model
    for module in (torch, transformers, safetensors, models):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return called


def test_a_model_reads_a_text(cli, folder, libraries):
    outcome = cli("inspect", "--model", folder, "--text", "text.txt", "--level", "0.01", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    assert len(json.loads(outcome.out)["heads"]) == 4
    assert libraries["model"] == libraries["tokenizer"] == str(folder)
    assert "fresh" not in libraries
    assert (libraries["shape"], libraries["level"], libraries["jobs"]) == ((1, 300), 0.01, None)


def test_fresh_weights_are_drawn_by_the_seed(cli, folder, libraries):
    line = ("--text", "text.txt", "--random-init", "--seed", "5", "--max-tokens", "40")
    outcome = cli("inspect", "--model", folder, *line)
    assert (outcome.code, outcome.err) == (0, "")
    assert "model" not in libraries
    assert (libraries["fresh"], libraries["seed"], libraries["inspection_seed"]) == ("the config", 5, 5)
    assert libraries["shape"] == (12, 40)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (" \n", "", "--text: 'it.txt' is empty"),
        ("word", "", "--text: 'it.txt' must be at least two tokens long; got 1"),
        ("a few words", "--max-tokens 301", "--max-tokens must be at most 300, which the model takes; got 301"),
        (None, "", "--text: cannot read 'it.txt': No such file or directory"),
    ],
)
def test_mistakes_about_texts(cli, folder, libraries, tmp_path, text, line, message):
    if text is not None:
        (tmp_path / "it.txt").write_text(text, encoding="utf-8")
    outcome = cli("inspect", "--model", folder, "--text", "it.txt", *line.split())
    assert (outcome.code, outcome.out, outcome.err) == (2, "", f"error: {message}\n")


def test_text_must_be_text(cli, folder, tmp_path):
    (tmp_path / "it.txt").write_bytes(b"\xff\xfe\x00")
    outcome = cli("inspect", "--model", folder, "--text", "it.txt")
    assert outcome.code == 2
    assert outcome.err.startswith("error: --text: 'it.txt' is not UTF-8 text")


def test_mistakes_about_folders(cli, folder, libraries):
    def told(place):
        outcome = cli("inspect", "--model", place, "--text", "text.txt")
        assert (outcome.code, outcome.out) == (2, "")
        (line,) = outcome.err.splitlines()
        return line

    assert told("nowhere") == "error: --model: 'nowhere' is not a folder; nothing is downloaded"
    for kind in ("model", "tokenizer"):
        for error in (OSError("first\nsecond"), libraries["SafetensorError"]("first"), ValueError("first")):
            libraries["broken"] = {kind: error}
            assert told("model") == f"error: --model: no {kind} could be loaded from 'model': first"
    (folder / "tokenizer.json").write_text("{", encoding="utf-8")
    assert told("model").startswith("error: --model: cannot read 'model/tokenizer.json': Expecting property name")
    (folder / "tokenizer.json").unlink()
    assert told("model") == "error: --model: there is no tokenizer in 'model'"
    (folder / "config.json").unlink()
    assert told("model") == "error: --model: there is no config.json in 'model'"


def test_the_missing_extra_is_named(cli, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    outcome = cli("inspect", "--model", folder, "--text", "text.txt")
    assert outcome.code == 2
    assert outcome.err.endswith("pip install 'gequiv[models]'\n")


def test_a_real_model_is_loaded(folder, tmp_path):
    reason = "needs gequiv[models]"
    pytest.importorskip("torch", reason=reason)
    transformers = pytest.importorskip("transformers", reason=reason)
    tokenizers = pytest.importorskip("tokenizers", reason=reason)
    words = {"[UNK]": 0, "word": 1}
    split = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    split.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=split, unk_token="[UNK]").save_pretrained(folder)
    config = transformers.GPT2Config(
        n_layer=1, n_head=2, n_embd=16, n_positions=64, vocab_size=2, bos_token_id=0, eos_token_id=0
    )
    saved = transformers.GPT2Model(config)
    saved.save_pretrained(folder)
    model, tokenizer = command._load(folder, False, 0)
    assert (model.wte.weight == saved.wte.weight).all()
    inputs = command._tokens("word " * 100, tmp_path / "text.txt", model, tokenizer, None)
    assert np.shape(inputs["input_ids"]) == (1, 64)
    fresh = [command._load(folder, True, seed)[0].wte.weight for seed in (1, 1, 2)]
    assert (fresh[0] == fresh[1]).all()
    assert not (fresh[0] == fresh[2]).all()
