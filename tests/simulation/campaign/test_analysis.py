"""Analyses of made-up draws whose distances are known, through the real store."""

from __future__ import annotations

import dataclasses
import math
import os
import signal
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.linalg import eigvalsh_tridiagonal

from gequiv.attention import Attention
from gequiv.errors import ExecutionError, ParameterError, StorageError
from gequiv.simulation import compare, ks_between, laws_distance
from gequiv.simulation.campaign import measured
from gequiv.simulation.campaign.analysis import analyse, expected_rows
from gequiv.simulation.campaign.measured import TRACY_WIDOM, _top_values, comparison_key, measure, sampling_noise
from gequiv.simulation.campaign.model import Campaign, Claim, Model, Plan
from gequiv.simulation.campaign.store import Store
from gequiv.simulation.campaign.tables import tables
from gequiv.simulation.experiment import marchenko_pastur

HEAD = Attention(200, 100, 0.5)
LAWS = ("limit", "marchenko-pastur")
SEEDS = (3, 5, 8)


def campaign_of(*models, claims=()):
    return Campaign("c", "", "", 0, models, claims, "source")


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "store")
    made.prepare("source")
    return made


@pytest.fixture(scope="module")
def law():
    return HEAD.limit_law()


def quantiles(law, count=200):
    return np.asarray(law.ppf((np.arange(count) + 0.5) / count))


def fill(store, model, law, rng=None, **more):
    """Each draw is the law's own quantiles, or those of noisy levels."""
    for task in model.tasks():
        values = quantiles(law)
        if rng is not None:
            values = values * (1 + 0.01 * rng.standard_normal())
        store.put(task.key, {"values": values, **more})


def texts(analysis):
    return {name: table.text() for name, table in tables(analysis).items()}


def test_quantiles_of_the_law(store, law):
    """Midpoint quantiles are at KS 1/(2 n) from their law, whose distance from another is nearly theirs."""
    model = Model("g", HEAD, Plan(), LAWS, SEEDS)
    fill(store, model, law)
    found = analyse(campaign_of(model), store)
    assert [(row.index, row.seed, row.law) for row in found.rows] == [
        (index, seed, name) for index, seed in enumerate(SEEDS) for name in LAWS
    ]
    limit, other = found.models[0].laws
    assert limit.ks.value == pytest.approx(1 / 400, rel=1e-6)
    assert limit.ks.error == pytest.approx(0, abs=1e-12)
    assert limit.ks_pooled == pytest.approx(1 / 400, rel=1e-6)
    assert other.ks.value == pytest.approx(laws_distance(law, marchenko_pastur(HEAD)), abs=1 / 400 + 1 / 2000)
    assert [moment.order for moment in limit.moments] == [1, 2, 3, 4]
    assert limit.moments[0].sample == pytest.approx(law.moment(1), rel=1e-3)
    assert found.rows[0].largest == pytest.approx(quantiles(law)[-1])
    assert found.missing == found.damaged == 0


def test_every_draw_is_compared_by_itself(store, law):
    model = Model("g", HEAD, Plan(), LAWS, SEEDS)
    fill(store, model, law, np.random.default_rng(1))
    found = analyse(campaign_of(model), store)
    for row in found.rows:
        values = store.get(next(t.key for t in model.tasks() if t.seed == row.seed))["values"]
        alone = compare(law if row.law == "limit" else marchenko_pastur(HEAD), [values])
        assert (row.ks, row.wasserstein) == (alone.ks, alone.wasserstein)
    together = compare(law, [store.get(task.key)["values"] for task in model.tasks()])
    finding = found.models[0].laws[0]
    assert finding.ks.value == pytest.approx(together.ks_mean)
    assert finding.ks.error == pytest.approx(together.ks_error)
    assert finding.ks_pooled == pytest.approx(together.ks)
    for mine, theirs in zip(finding.moments, together.moments, strict=True):
        assert dataclasses.astuple(mine) == pytest.approx(dataclasses.astuple(theirs), rel=1e-9)


def test_numbers_do_not_depend_on_jobs_or_what_was_kept(store, law):
    models = [Model("g", dataclasses.replace(HEAD, beta=beta), Plan(), LAWS, SEEDS) for beta in (0.5, 0.6)]
    for k, model in enumerate(models):
        fill(store, model, law, np.random.default_rng(k))
    claim = Claim("agreement", "n", {}, {"law": "limit", "tolerance": 0.02})
    campaign = campaign_of(*models, claims=(claim,))
    told = []
    first = texts(analyse(campaign, store, progress=lambda done, total: told.append((done, total))))
    assert told == [(0, 2), (1, 2), (2, 2)]
    kept = store.keys(kind="comparisons")
    assert len(kept) == 2
    assert texts(analyse(campaign, store)) == first
    for key in kept:
        store.remove(key, kind="comparisons")
    assert texts(analyse(campaign, store, jobs=2)) == first
    assert store.keys(kind="comparisons") == kept
    turned = [dataclasses.replace(model, seeds=model.seeds[::-1]) for model in models]
    again = analyse(campaign_of(*turned, claims=(claim,)), store)
    by_seed = {(row.model.head.beta, row.seed, row.law): (row.ks, row.wasserstein) for row in again.rows}
    for row in analyse(campaign, store).rows:
        assert by_seed[row.model.head.beta, row.seed, row.law] == (row.ks, row.wasserstein)


def test_missing_and_damaged_draws(store, law):
    model = Model("g", HEAD, Plan(), LAWS, SEEDS)
    complete = campaign_of(model)
    fill(store, model, law, np.random.default_rng(2))
    whole = texts(analyse(complete, store))
    first, second, _ = model.tasks()
    kept = store.get(second.key)
    store.remove(first.key)
    path = store.path(second.key)
    path.write_bytes(path.read_bytes()[:-3])
    found = analyse(complete, store)
    assert (found.missing, found.damaged, found.models[0].draws) == (2, 1, 1)
    assert {row.index for row in found.rows} == {2}
    assert found.models[0].laws[0].ks.error is None
    assert found.models[0].noise is None
    store.put(second.key, kept)
    fill(store, model, law, np.random.default_rng(2))
    assert texts(analyse(complete, store)) == whole


def test_other_draws_under_the_same_seed_are_compared_anew(store, law):
    """What was kept goes by the numbers of the draws."""
    model = Model("g", HEAD, Plan(), LAWS, SEEDS)
    fill(store, model, law)
    before = analyse(campaign_of(model), store).rows[0].ks
    fill(store, model, law, np.random.default_rng(3))
    assert analyse(campaign_of(model), store).rows[0].ks != before


def test_no_draws(store):
    model = Model("g", HEAD, Plan(), LAWS, SEEDS)
    found = analyse(campaign_of(model), store)
    assert (found.missing, found.rows, found.models[0].draws) == (3, (), 0)
    assert found.models[0].laws[0].ks is None
    texts(found)


def test_laws_that_the_head_has_not(store, law):
    """With a mask there is no limit law."""
    model = Model("g", dataclasses.replace(HEAD, mask="causal"), Plan(method="svd"), LAWS, SEEDS)
    fill(store, model, law)
    found = analyse(campaign_of(model), store)
    assert "mask" in found.models[0].laws[0].refusal
    assert all((row.ks is None) == (row.law == "limit") for row in found.rows)


def test_rows_alone(store):
    model = Model("g", HEAD, Plan(statistics=("rows",)), (), SEEDS)
    numbers = np.arange(12.0).reshape(4, 3)
    for k, task in enumerate(model.tasks()):
        store.put(task.key, {"rows": numbers + k})
    found = analyse(campaign_of(model), store)
    assert found.rows == ()
    rows = found.models[0].rows
    assert rows["participation"].value == pytest.approx(4)
    assert rows["log_normaliser_sd"].value == pytest.approx(2)
    assert rows["participation"].error == pytest.approx(1 / math.sqrt(3))
    assert set(found.models[0].expected_rows) == {"log_normaliser", "participation", "energy_participation"}
    assert 1 / 200 < found.models[0].expected_rows["participation"] < 1.1 * math.exp(0.25) / 200


def test_rows_that_see_different_numbers_of_keys_have_no_prediction():
    def expected(**more):
        return expected_rows(Model("g", dataclasses.replace(HEAD, **more), Plan(), (), SEEDS))

    assert expected(mask="block:50") == expected(keys=50) != {}
    assert expected(mask="causal") == expected(mask="window:9") == expected(bias=0.1) == {}


def test_matrix_free_estimates(store, law):
    model = Model("g", HEAD, Plan(method="lanczos", statistics=("spectrum", "top")), LAWS, SEEDS)
    fill(store, model, law, error=np.array([0.004]), top=np.array([9.0, 8.0]))
    mine = measure(model, store)
    assert mine.slack == pytest.approx(0.004 + 1 / 400)
    found = analyse(campaign_of(model), store)
    assert found.models[0].estimate_error == 0.004
    assert found.rows[0].largest == 9
    plain = Model("g", HEAD, Plan(method="lanczos"), LAWS, SEEDS)
    fill(store, plain, law, error=np.array([0.004]))
    assert analyse(campaign_of(plain), store).rows[0].largest is None


def test_histogram_and_densities(store, law):
    model = Model("g", HEAD, Plan(), LAWS, SEEDS)
    for task in model.tasks():
        store.put(task.key, {"values": np.sort(np.concatenate([np.zeros(20), [1e6], quantiles(law, 179)]))})
    found = analyse(campaign_of(model), store).models[0]
    widths = np.diff(found.edges)
    assert found.zeros == pytest.approx(0.1)
    assert found.heights @ widths == pytest.approx(179 / 200)  # the outlier is not on the axis
    assert found.edges[-1] >= math.sqrt(law.support()[-1][1])
    for finding in found.laws:
        assert finding.grid.size == finding.density.size
        mass = finding.density.sum() * (finding.grid[1] - finding.grid[0])
        assert mass == pytest.approx(1 - finding.atom, abs=0.02)


def test_sampling_noise_is_the_distance_from_the_other_draws():
    rng = np.random.default_rng(4)
    spectra = [rng.exponential(size=n).round(1) for n in (40, 40, 50, 7)]  # with ties
    direct = [ks_between(spectra[i], spectra[:i] + spectra[i + 1 :]) for i in range(4)]
    assert sampling_noise(spectra) == pytest.approx(np.mean(direct) * math.sqrt(3 / 4))


def test_top_values_of_an_attention_head(store):
    """Predictions against 12 real draws; the interval is 5 standard errors."""
    head = Attention(160, 80, 0.4)
    model = Model("g", head, Plan(), ("finite",), tuple(range(12)))
    for task in model.tasks():
        store.put(task.key, {"values": head.spectrum(np.random.default_rng(task.seed))})
    rows = analyse(campaign_of(model), store).models[0].laws[0].outliers
    assert [row.origin for row in rows] == ["edge", "edge"]
    for row in rows:
        assert abs(row.measured.value - row.predicted) < 5 * row.measured.error + 0.02 * row.predicted
    linear = dataclasses.replace(model, plan=Plan(matrix="linear-model"))
    for task in linear.tasks():
        store.put(task.key, {"values": np.arange(160.0)})
    finding = analyse(campaign_of(linear), store).models[0].laws[0]
    assert finding.outliers == ()
    assert "linear model" in finding.outliers_refusal


def test_tracy_widom_means():
    """Top of 2500 Gaussian orthogonal matrices of size 10⁵ in their tridiagonal form, cut 9 edge lengths in.

    Bounds: four standard errors and a hundredth for the size; 1e-4 for both together.
    """
    rng, size, count = np.random.default_rng(7), 10**5, 400
    found = []
    for _ in range(2500):
        off = np.sqrt(rng.chisquare(size - 1 - np.arange(count - 1)))
        top = eigvalsh_tridiagonal(
            math.sqrt(2) * rng.standard_normal(count), off, select="i", select_range=(count - 2, count - 1)
        )
        found.append((top[::-1] - 2 * math.sqrt(size)) * size ** (1 / 6))
    for mean, error, expected in zip(
        np.mean(found, axis=0), np.std(found, axis=0) / math.sqrt(2500), TRACY_WIDOM, strict=True
    ):
        assert abs(mean - expected) < 4 * error + 0.01


class Edge:
    """A law with a square-root edge at 1 whose values near it are `scale` apart, and an outlier at `outlier`."""

    def __init__(self, scale, outlier=math.inf):
        self.scale = scale
        self.outlier = SimpleNamespace(location=outlier, origin="column direction", visible=True)

    def support(self):
        return [(0.0, 1.0)]

    def outliers(self):
        return [self.outlier]

    def edge_scale(self):
        return self.scale

    def cdf(self, x):
        return 1 - 2 * ((1 - x) / self.scale) ** 1.5 / (3 * math.pi) / HEAD.tokens


def test_top_values_that_make_no_sense_are_refused():
    model = Model("g", HEAD, Plan(), ("finite",), SEEDS)
    found, silence = _top_values(Edge(0.01), "finite", model)
    assert found == [(1 + mean * 0.01, "edge") for mean in TRACY_WIDOM]
    assert silence == ""
    found, silence = _top_values(Edge(0.26), "finite", model)  # four scales reach below 0
    assert found == []
    assert "no square root" in silence
    assert _top_values(Edge(0.5, 2.0), "finite", model)[0] == [(2.0, "column direction")]


def test_comparisons_that_cannot_be_kept_are_made_again(store, law, monkeypatch):
    model = Model("g", HEAD, Plan(), LAWS, SEEDS)
    fill(store, model, law, np.random.default_rng(1))

    def full(*_, **__):
        raise StorageError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "put", full)
        found = texts(analyse(campaign_of(model), store))
    assert store.keys("comparisons") == []
    assert texts(analyse(campaign_of(model), store)) == found
    assert store.keys("comparisons") == [comparison_key(model, store)]


def test_many_values_are_pooled_by_their_quantiles(store, law, monkeypatch):
    model = Model("g", HEAD, Plan(), ("limit",), SEEDS)
    fill(store, model, law, np.random.default_rng(1))
    exact = measure(model, store).laws["limit"].pooled
    for key in store.keys("comparisons"):
        store.remove(key, "comparisons")
    monkeypatch.setattr(measured, "_POOL", 100)
    thinned = measure(model, store).laws["limit"].pooled
    assert 0 < abs(thinned - exact) < 1 / 100


def test_workers_of_an_analysis_that_die_are_an_error():
    class Deadly:
        """A store that kills who asks."""

        damaged = 0

        def get(self, key, kind="draws"):
            os.kill(os.getpid(), signal.SIGKILL)

    models = [Model(name, HEAD, Plan(), LAWS, SEEDS) for name in "ab"]
    with pytest.raises(ExecutionError, match="jobs = 2: a worker process was ended"):
        analyse(campaign_of(*models), Deadly(), jobs=2)


def test_jobs_are_checked(store):
    with pytest.raises(ParameterError, match="jobs"):
        analyse(campaign_of(), store, jobs=0)
