"""Campaign files: what they mean, and what their errors point at."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gequiv.errors import InputFileError, ParameterError
from gequiv.simulation.campaign.files import (
    AXES,
    CLAIM_KINDS,
    DEFAULTS_KEYS,
    TABLE_KEYS,
    lines_of,
    parse_campaign,
    read_campaign,
)
from gequiv.simulation.campaign.model import LAWS, spawned_seed

GRID = 'version = 1\n[[grid]]\nname = "g"\ntokens = [64, 128, 256]\nhead_dim = "tokens/2"\nbeta = 1\ndraws = 2\n'
PLAIN = 'version = 1\n[[models]]\nname = "m"\ntokens = 64\nhead_dim = 8\nbeta = 1\ndraws = 1\n'


def claim(text, base=GRID):
    return f"{base}[[claims]]\n{text}\n"


def test_grid_in_order():
    campaign = parse_campaign(
        GRID.replace("beta = 1", 'mask = ["none", "window: 64"]\nbeta = [0.5, 1]\nkeys = "3*tokens/2"'), "stem"
    )
    assert (campaign.name, campaign.seed, len(campaign.models)) == ("stem", 0, 12)
    found = [(m.head.tokens, m.head.beta, m.head.mask) for m in campaign.models[:5]]
    assert found == [
        (64, 0.5, None),
        (64, 0.5, "window:64"),
        (64, 1.0, None),
        (64, 1.0, "window:64"),
        (128, 0.5, None),
    ]
    first, second = campaign.models[:2]
    assert (first.head.head_dim, first.head.columns) == (32, 96)
    assert first.axes == {"tokens": 64, "keys": "3*tokens/2", "head_dim": "tokens/2", "beta": 0.5, "mask": "none"}
    assert (first.plan.method, second.plan.method) == ("gram", "svd")
    assert (first.laws, second.laws) == (LAWS, ("finite", "marchenko-pastur"))  # no limit law with a mask


def test_temperature_by_gamma():
    (model,) = parse_campaign(PLAIN.replace("beta = 1", "gamma = 0.5\nkeys = 100")).models
    assert model.head.beta == pytest.approx(math.sqrt(0.5 * math.log(100)), rel=1e-15)
    assert (model.gamma, model.axes["gamma"]) == (0.5, 0.5)


def test_scores():
    score = 'score = ["exp", "softplus(x)"]'
    models = parse_campaign(GRID.replace("beta = 1", f"beta = 1\n{score}")).models
    assert [model.score for model in models[:2]] == [None, "softplus(x)"]
    assert models[0].laws == LAWS
    assert models[1].laws == ("limit", "marchenko-pastur")
    (model,) = parse_campaign(PLAIN + 'score = "exp(beta*x)"').models
    assert model.head.score is None


def test_defaults_and_settings():
    text = """
    version = 1
    name = "n"
    seed = 5
    [defaults]
    draws = 3
    laws = ["finite", "limit"]
    probes = 8
    threads = 2
    [[grid]]
    name = "g"
    tokens = 64
    head_dim = 8
    width = ["none", 16]
    beta = 1
    method = ["gram", "lanczos"]
    [[models]]
    name = "m"
    tokens = 64
    head_dim = 8
    width = 16
    covariance = [1.5, 0.5]
    alibi = 0.5
    beta = 1
    seeds = [7, 9]
    statistics = ["rows"]
    """
    campaign = parse_campaign(text)
    assert len(campaign.tasks()) == 14
    assert [m.plan.probes for m in campaign.models] == [None, 8, None, 8, None]
    assert [m.head.width for m in campaign.models] == [None, None, 16, 16, 16]
    last = campaign.models[-1]
    assert (last.seeds, last.laws, last.plan.threads, last.head.bias) == ((7, 9), (), 2, 0.5)
    assert campaign.models[0].seeds == tuple(spawned_seed(5, campaign.models[0].identity, k) for k in range(3))


def test_claims():
    texts = {
        "agreement": 'law = "finite"\ntolerance = 0.02',
        "disagreement": 'law = "marchenko-pastur"\nat_least = 0.1',
        "closer": 'law = "finite"\nthan = "limit"',
        "rate": 'law = "limit"\nat_least = -1.2\nat_most = -0.5',
        "moments": 'law = "finite"',
        "outliers": "tolerance = 0.05",
        "statistic": 'statistic = "largest"\nat_most = 0.5',
    }
    assert set(texts) == set(CLAIM_KINDS)
    base = GRID + 'statistics = ["spectrum", "rows"]\n'
    base += "".join(f'[[claims]]\nkind = "{kind}"\n{text}\n' for kind, text in texts.items())
    base += '[[claims]]\nkind = "moments"\nlaw = "finite"\nwhere = {tokens = [64, 256], group = "g"}\n'
    claims = parse_campaign(base).claims
    assert [c.kind for c in claims] == [*texts, "moments"]
    assert claims[2].options == {"law": "finite", "than": "limit", "factor": 1.0}
    assert claims[3].options == {"law": "limit", "over": "tokens", "at_least": -1.2, "at_most": -0.5}
    assert claims[4].options["level"] == 0.05
    assert "tokens = 64 or 256" in claims[7].name


def test_same_model_in_two_groups_is_drawn_once():
    campaign = parse_campaign(GRID + PLAIN.removeprefix("version = 1\n").replace("head_dim = 8", "head_dim = 32"))
    assert len(campaign.models) == 4
    assert campaign.models[3].seeds == campaign.models[0].seeds[:1]
    assert len(campaign.tasks()) == 6


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(16, 40), min_size=1, max_size=3, unique=True),
    st.lists(st.floats(0.1, 3), min_size=1, max_size=3, unique=True),
    st.lists(st.sampled_from(["none", "causal", "window:5"]), min_size=1, max_size=3, unique=True),
    st.randoms(),
)
def test_grids_are_products_and_seeds_depend_on_nothing_else(tokens, betas, masks, random):
    def text(items):
        return "[" + ", ".join(f'"{item}"' if isinstance(item, str) else repr(item) for item in items) + "]"

    def file(tokens, betas, masks, before=""):
        return (
            f'version = 1\nseed = 3\n{before}[[grid]]\nname = "g"\ntokens = {text(tokens)}\nhead_dim = 4\n'
            f"beta = {text(betas)}\nmask = {text(masks)}\ndraws = 2\n"
        )

    models = parse_campaign(file(tokens, betas, masks)).models
    assert len(models) == len(tokens) * len(betas) * len(masks) == len({m.identity for m in models})
    assert len({seed for m in models for seed in m.seeds}) == 2 * len(models)
    lines = lines_of(models, "tokens")
    assert len(lines) == len(betas) * len(masks)
    assert all([m.head.tokens for m in line] == tokens for _, line in lines)
    shuffled = [random.sample(items, len(items)) for items in (tokens, betas, masks)]
    other = parse_campaign(file(*shuffled, PLAIN.removeprefix("version = 1\n"))).models
    assert {m.identity: m.seeds for m in models}.items() <= {m.identity: m.seeds for m in other}.items()


def edit(old, new, base=PLAIN):
    assert old in base
    return base.replace(old, new)


BAD = {
    "version must be given": PLAIN.removeprefix("version = 1\n"),
    "version must be 1": edit("version = 1", "version = 2"),
    'tilte is no key of a campaign file; did you mean "title"?': "tilte = 1\n" + PLAIN,
    "seed must be an integer of at least 0; got -1": "seed = -1\n" + PLAIN,
    "grid must hold a table": "version = 1",
    "grid must be tables [[grid]]; got [grid]": edit("[[grid]]", "[grid]", GRID),
    'models[0].head_dmi is no key of models[0]; did you mean "head_dim"?': edit("head_dim", "head_dmi"),
    "models[0].name must be given": edit('name = "m"\n', ""),
    "models[0].tokens must be given": edit("tokens = 64\n", ""),
    "models[0].tokens must be an integer from 2 to": edit("tokens = 64", "tokens = 1"),
    "models[0].tokens must be one value, not a list": edit("tokens = 64", "tokens = [64]"),
    "models[0].beta must be a number above 0; got true": edit("beta = 1", "beta = true"),
    "models[0].beta must be a number above 0; got 1": edit("beta = 1", "beta = " + "1" * 400),
    "models[0].beta: exactly one of beta and gamma must be given; got neither": edit("beta = 1\n", ""),
    "models[0].gamma: exactly one": PLAIN + "gamma = 1",
    "models[0].draws must be given": edit("draws = 1\n", ""),
    "models[0].seeds must not be given beside": PLAIN + "seeds = [1]",
    "models[0].seeds[1] must not be that of models[0].seeds[0]": edit("draws = 1", "seeds = [1, 1]"),
    "models[0].seeds[0] must be an integer from 0 to": edit("draws = 1", "seeds = [9007199254740992]"),
    "models[0].mask must be": PLAIN + 'mask = "casual"',
    "models[0].mask must let every row see a key": PLAIN + 'mask = "causal"\nkeys = 32',
    "models[0].covariance needs a width": PLAIN + "covariance = [1]",
    "models[0].covariance must have a number of eigenvalues that divides": PLAIN + "width = 9\ncovariance = [1, 2]",
    "models[0].covariance[1] must be at least 0": PLAIN + "width = 8\ncovariance = [1, -2]",
    "models[0].alibi is added to scores": PLAIN + 'alibi = 1\nscore = "1+x^2"',
    "models[0].score must be a formula in x": PLAIN + 'score = "foo(x)"',
    "models[0].score must be a formula in x, beside which": PLAIN + 'score = "1 + p*x^2"',
    "models[0].score must not be affine": PLAIN + 'score = "1 + x"',
    "models[0].token_entries must be": PLAIN + 'width = 9\ntoken_entries = "cauchy"',
    'models[0].method must be "gram", "svd" or "lanczos"; got "gramm"; did you mean "gram"?': PLAIN
    + 'method = "gramm"',
    'models[0].method must be "gram" or "svd" for matrix': PLAIN + 'method = "lanczos"\nmatrix = "linear-model"',
    'models[0].statistics must be ["spectrum"]': PLAIN + 'statistics = ["rows"]\nmatrix = "linear-model"',
    "models[0].statistics must not be empty": PLAIN + "statistics = []",
    'models[0].probes must not be given without method "lanczos"': PLAIN + "probes = 4",
    "models[0].top must be at most 64": PLAIN + 'statistics = ["top"]\ntop = 65',
    "models[0].laws[1] must be a law that exists": PLAIN + 'laws = ["finite", "limit"]\nmask = "causal"',
    "models[0].laws[0] must hold a law that exists": PLAIN + 'laws = ["limit"]\nmask = "causal"',
    "models[0].laws must hold a law that exists": edit("beta = 1", "beta = 27"),
    "models[0].laws must be [] without": PLAIN + 'laws = ["limit"]\nstatistics = ["rows"]',
    "models[1] must not be the model that models[0] is already": PLAIN + PLAIN.removeprefix("version = 1\n"),
    "grid[0].head_dim must come out an integer": edit("[64, 128, 256]", "[64, 65]", GRID),
    "grid[0].head_dim[1] must be an integer of at least 1": edit('"tokens/2"', '[4, "keys/2"]', GRID),
    "grid[0].tokens[2] must not be that of grid[0].tokens[0] again": edit("256", "64", GRID),
    "grid[0].tokens must not be empty": edit("[64, 128, 256]", "[]", GRID),
    "grid[0] (tokens = 64, head_dim = tokens/2, beta = 1)": edit('"tokens/2"', '[32, "tokens/2"]', GRID),
    "grid[0] must make at most 100000 models": edit("beta = 1", f"beta = {list(range(1, 40001))}", GRID),
    "grid[1].name must be another": GRID + GRID.removeprefix("version = 1\n"),
    "defaults must be a table": "defaults = 1\n" + PLAIN,
    "defaults.tokens must be given in each table": PLAIN + "[defaults]\ntokens = 5",
    "defaults.draws must be an integer": PLAIN + "[defaults]\ndraws = 0",
    "defaults.laws[0] must hold": PLAIN + 'mask = "causal"\n[defaults]\nlaws = ["limit"]',
    "claims[0].kind must be given": claim('law = "finite"'),
    "claims[0].kind must be": claim('kind = "agrement"'),
    "claims[0].law must be given": claim('kind = "agreement"'),
    "claims[0].tolerance must be given": claim('kind = "agreement"\nlaw = "finite"'),
    "claims[0].tolerance must be a number above 0 and below 1": claim(
        'kind = "agreement"\nlaw = "finite"\ntolerance = 1'
    ),
    'claims[0].at_least is no key of a claim of kind "agreement"': claim('kind = "agreement"\nat_least = 1'),
    "claims[0].than must be another law": claim('kind = "closer"\nlaw = "finite"\nthan = "finite"'),
    "claims[0].law must be among the laws": claim('kind = "moments"\nlaw = "limit"', GRID + 'laws = ["finite"]\n'),
    "claims[0].where.tokens[1] must be that of a model": claim(
        'kind = "moments"\nlaw = "limit"\nwhere = {tokens = [64, 65]}'
    ),
    "claims[0].where.group must be that of a model": claim('kind = "moments"\nlaw = "limit"\nwhere = {group = "x"}'),
    "claims[0].where must select a model": claim(
        'kind = "moments"\nlaw = "limit"\nwhere = {tokens = 64, head_dim = 64}'
    ),
    "claims[0].where.token is no key": claim('kind = "moments"\nlaw = "limit"\nwhere = {token = 64}'),
    "claims[0].at_most must be given": claim('kind = "rate"\nlaw = "limit"'),
    "claims[0].at_least must be below": claim('kind = "rate"\nlaw = "limit"\nat_most = -1\nat_least = 1'),
    "claims[0].over needs at least 3 values": claim(
        'kind = "rate"\nlaw = "limit"\nat_most = 1\nwhere = {tokens = [64, 128]}'
    ),
    'claims[0].statistic needs "rows"': claim('kind = "statistic"\nstatistic = "largest"\nat_most = 1'),
    "claims[0].tolerance must be given with prediction": claim(
        'kind = "statistic"\nstatistic = "largest"\nprediction = "log-normal"'
    ),
}


@pytest.mark.parametrize("start", BAD)
def test_errors_point_at_the_key(start):
    with pytest.raises(ParameterError) as caught:
        parse_campaign(BAD[start])
    assert str(caught.value).startswith(start)


def test_files(tmp_path):
    path = tmp_path / "stem.toml"
    with pytest.raises(InputFileError, match=r"cannot read .*stem\.toml"):
        read_campaign(path)
    path.write_text("version = \n")
    with pytest.raises(InputFileError, match=r"stem\.toml' is not TOML: .*line 1, column 11"):
        read_campaign(path)
    path.write_bytes(b"# \xff")
    with pytest.raises(InputFileError, match="not UTF-8"):
        read_campaign(path)
    path.write_text(PLAIN)
    campaign = read_campaign(str(path))
    assert (campaign.name, campaign.source) == ("stem", PLAIN)
    assert parse_campaign(PLAIN, "stem") == campaign


def test_schema_is_complete():
    assert set(DEFAULTS_KEYS) < set(TABLE_KEYS)
    assert set(AXES) < set(TABLE_KEYS)
