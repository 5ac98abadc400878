r"""Inspection of the heads of a transformers model: each against three nested nulls.

For one input of the model every head is held against

1. **sizes**: a random head of its n, d_k and d, its β fitted;
2. **weights**: its own weights on tokens of independent entries, of the mean size that its tokens have;
3. **weights and tokens**: its own weights on Gaussian tokens with the mean and the covariance of its tokens.

In the second and third nothing is fitted. With the joint covariance C of a token's query and key, 2 d_k × 2 d_k, the
scores are those of Gaussian pairs of this covariance (`Attention.from_weights`):
:math:`\beta^2 = s^2\,\mathrm{tr}\,C_{QQ} C_{KK}`, inner weights the eigenvalues of :math:`C_{QQ} C_{KK}`; and the mean
of the queries q̄ adds the column bias :math:`s\,\bar q\cdot k_j`, of variance :math:`s^2\,\bar q^T C_{KK}\,\bar q`. In
the third null q̄ is the mean over the input and C the covariance of queries and keys over all inputs, each about its
mean; in the second they follow from the weights, or, where positions turn queries and keys, from what the layer itself
makes of such tokens. What chance does to the distances is learned from the layer itself, run on Gaussian tokens, in the
third null with the mean and the covariance of the input alone, so that what inputs differ by is no evidence. Every
head has a few draws, whose mean is its own; how they scatter is learned from all heads of similar β together
(`pooled_moments`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from gequiv import _checks
from gequiv._checks import Array
from gequiv.attention import Attention
from gequiv.errors import ParameterError
from gequiv.inspection.arrays import checked_jobs, checked_level, checked_seed, subject_of
from gequiv.inspection.calibration import holm, is_large, pooled_moments
from gequiv.inspection.capture import LayerCapture, walk
from gequiv.inspection.directions import LARGEST
from gequiv.inspection.engine import Progress, SizesJudge, Subject
from gequiv.inspection.head import Held, Measured, hold, measure, workers
from gequiv.inspection.nulls import null_table
from gequiv.inspection.report import UNTESTED, HeadReport, NullReport, Report
from gequiv.inspection.rows import examine
from gequiv.inspection.tables import LawTable
from gequiv.inspection.texts import text_config, tokenised

NULLS = ("sizes", "weights", "weights and tokens")
_DRAWS = 72  # random heads of a null, of all heads of a layer together
_FEWEST_DRAWS, _LARGE_DRAWS = 6, 3  # of each head, and of large ones
_BANDWIDTH = 0.25  # in log β
_COVARIANCE_ROWS = 16  # tokens a direction, for covariances that the layer itself must tell
_STATISTICS = 4


def inspect_model(
    model: Any,
    inputs: Any,
    *,
    tokenizer: Any = None,
    max_tokens: int | None = None,
    layers: Sequence[int] | None = None,
    level: float = 0.05,
    seed: int = 0,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Report:
    r"""What is random in the heads of a model, and what was learned: each against three nested nulls.

    The first input's attention is inspected, without its padding; the others serve to tell the covariance of the
    tokens, for which a few thousand tokens in all are enough. Layers are inspected one after another while the model
    runs, with one head's matrix at a time.

    Parameters
    ----------
    model : a transformers.PreTrainedModel that attends through transformers' AttentionInterface: encoder, decoder or
        both, grouped queries, rotary positions, any precision.
    inputs : what the model takes: a mapping of tensors, or token ids of shape (inputs, n); or, with a tokenizer, a
        text, which is cut into inputs of one length, see `gequiv.inspection.texts.tokenised`.
    tokenizer : a transformers tokenizer; it also names the tokens in the report.
    max_tokens : length of the inputs that a text is cut into; by default the greatest that the model takes, up to 1024.
    layers : numbers of the attention layers to inspect; None for all.
    level, seed, jobs, progress : as for `gequiv.inspect_attention`.

    Returns
    -------
    `Report`; its heads have `NullReport` s, and pass as random if they pass one of the nulls.

    Raises
    ------
    ParameterError : PyTorch or transformers is missing; the model or a layer cannot be captured, see
        `gequiv.inspection.capture.walk`; a text without a tokenizer; or a parameter is out of range.

    Sources: as for `gequiv.inspect_attention`; Nait Saada, Naderi, Tanner 2024 for spectra at initialisation.
    """
    judge = SizesJudge(checked_level(level), checked_seed(seed), checked_jobs(jobs), progress)
    if isinstance(inputs, str):
        inputs = tokenised(tokenizer, inputs, model, max_tokens)
    elif max_tokens is not None:
        raise ParameterError(f"max_tokens must be None unless inputs is a text; got {max_tokens!r}")
    wanted = _wanted(layers)
    seen: list[_Seen] = []
    passed = 0

    def visit(capture: LayerCapture) -> None:
        nonlocal passed
        if wanted is None or capture.layer in wanted:
            seen.extend(_look(capture, judge.seed))
        passed += 1
        if progress is not None:
            progress(passed, max(passed, _layers(model)), "layers")

    walk(model, inputs, visit)
    if not seen or max(wanted or {0}) >= passed:
        raise ParameterError(f"layers must be numbers below {passed}, at least one; got {layers!r}")
    reports = judge.judge([one.subject for one in seen])
    against = [_against(name, seen, judge) for name in NULLS[1:]]
    heads = []
    for report, *others in zip(reports, *against, strict=True):
        heads.append(_conclude(report, [_of_sizes(report), *others], judge.level))
    name = type(model).__name__
    return Report(heads, name, judge.level, layered=True, tokens=_token_texts(tokenizer, inputs))


# -- inputs ---------------------------------------------------------------------------------------------


def _wanted(layers: Any) -> set[int] | None:
    if layers is None:
        return None
    if isinstance(layers, str) or not isinstance(layers, Iterable):
        raise ParameterError(f"layers must be None or numbers of layers, such as [0, 3]; got {layers!r}")
    return {_checks.positive_integer("layers", layer, minimum=0) for layer in layers}


def _token_texts(tokenizer: Any, inputs: Any) -> tuple[str, ...] | None:
    ids = inputs.get("input_ids") if isinstance(inputs, Mapping) else inputs
    if tokenizer is None or ids is None:
        return None
    first = np.asarray(ids)
    return tuple(tokenizer.convert_ids_to_tokens([int(k) for k in (first[0] if first.ndim == 2 else first)]))


def _layers(model: Any) -> int:
    return int(getattr(text_config(model), "num_hidden_layers", 0) or 0)


# -- while the model runs -------------------------------------------------------------------------------


@dataclass(eq=False)
class _Seen:
    """A head, the random heads that its nulls are, and draws of them by the layer itself."""

    subject: Subject
    nulls: dict[str, Attention] = field(default_factory=dict)
    draws: dict[str, list[Measured]] = field(default_factory=dict)


def _look(capture: LayerCapture, seed: int) -> list[_Seen]:
    """All heads of a layer, on the first input."""
    rng = np.random.default_rng([seed, capture.layer])
    rows, keys = capture.real[0], capture.real_keys[0]
    plain = capture.bias is None and capture.softcap is None and capture.sinks is None
    notes = [] if plain else ["scores have a bias, a softcap or sinks, which the nested nulls do not know"]
    large = is_large(int(rows.sum()), int(keys.sum()))
    draws = _LARGE_DRAWS if large else max(_FEWEST_DRAWS, math.ceil(_DRAWS / capture.heads))
    made = {} if not plain else {name: _redrawn(capture, name, draws, rng) for name in NULLS[1:]}
    found = []
    for head in range(capture.heads):
        where = f"layer {capture.layer}, head {head}"
        examined = examine(capture.attention(0, head)[np.ix_(rows, keys)], "float64", where)
        known = {"head_dim": int(capture.queries.shape[-1]), "width": int(capture.states.shape[-1])}
        subject = subject_of(capture.layer, head, examined, **known)
        kind = [] if capture.kind == "self" else ["cross-attention"]
        first = (int(np.argmax(rows)), int(np.argmax(keys)))
        subject = replace(subject, findings=(*kind, *subject.findings, *notes), offsets=first)
        one = _Seen(subject)
        if plain and not subject.degenerate:
            mask = subject.measured.mask
            for name in NULLS[1:]:
                null = _null(capture, head, name, made[name], mask)
                if null is not None:
                    one.nulls[name] = null
                    one.draws[name] = [_drawn(capture, head, pair, null) for pair in made[name]]
        found.append(one)
    return found


def _redrawn(capture: LayerCapture, name: str, draws: int, rng: np.random.Generator) -> list[tuple[Array, Array]]:
    """Queries and keys that the layer makes of Gaussian tokens, of the first input's real ones."""
    rows, keys = capture.real[0], capture.real_keys[0]
    moments = _moments(capture.states, capture.real, name)
    other = None
    if capture.key_states is not None:
        other = _moments(capture.key_states, capture.real_keys, name)
    found = []
    for _ in range(draws):
        states = _gaussian(capture.states.shape[1], moments, rng)
        key_states = None
        if other is not None and capture.key_states is not None:
            key_states = _gaussian(capture.key_states.shape[1], other, rng)
        queries, made = capture.redraw(states, key_states, input=0)
        found.append((queries[:, rows].astype(np.float64), made[:, keys].astype(np.float64)))
    return found


def _moments(states: Any, real: Any, name: str) -> tuple[Array, Array | None, float]:
    """Mean of the first input's tokens; R and s with s² RᵀR their covariance, R = None for the identity.

    Of tokens of independent entries, the mean is zero and R the identity.
    """
    tokens = states[0][real[0]].astype(np.float64)
    mean = tokens.mean(axis=0)
    if name == "weights":
        return np.zeros_like(mean), None, math.sqrt(_size(states, real))
    root = tokens - mean
    scale = 1 / math.sqrt(max(1, len(tokens) - 1))
    return mean, np.asarray(np.linalg.qr(root, mode="r")) if len(root) > mean.size else root, scale


def _gaussian(count: int, moments: tuple[Array, Array | None, float], rng: np.random.Generator) -> Array:
    """Gaussian tokens (count, d) of these moments."""
    mean, root, scale = moments
    white = rng.standard_normal((count, mean.size if root is None else len(root)))
    return np.asarray(mean + scale * (white if root is None else white @ root))


def _null(capture: LayerCapture, head: int, name: str, made: list[tuple[Array, Array]], mask: Any) -> Attention | None:
    """The random head: pairs of query and key with the null's mean and joint covariance."""
    group = head * capture.keys.shape[1] // capture.heads
    n_q, n_k = int(capture.real[0].sum()), int(capture.real_keys[0].sum())
    cross = capture.kind == "cross"
    if name == "weights" and capture.weights is not None and not capture.rotary:
        maps = capture.weights
        W_Q, W_K = maps.W_Q[head].astype(np.float64), maps.W_K[group].astype(np.float64)
        size = _size(capture.states, capture.real)
        if cross:
            assert capture.key_states is not None
            key_size = _size(capture.key_states, capture.real_keys)
            covariance = _blocks(size * W_Q.T @ W_Q, key_size * W_K.T @ W_K)
        else:
            both = np.hstack([W_Q, W_K])
            covariance = size * both.T @ both
        mean = maps.b_Q[head].astype(np.float64)
    else:
        if name == "weights":
            queries, keys = [q[head] for q, _ in made], [k[group] for _, k in made]
        else:
            queries = [q[head][m].astype(np.float64) for q, m in zip(capture.queries, capture.real, strict=True)]
            keys = [k[group][m].astype(np.float64) for k, m in zip(capture.keys, capture.real_keys, strict=True)]
        mean = queries[0].mean(axis=0) if name != "weights" else np.concatenate(queries).mean(axis=0)
        if cross or capture.rotary:  # no token's query meets its own key in what matters
            covariance = _blocks(_covariance(queries), _covariance(keys))
        else:
            covariance = _covariance([np.hstack(pair) for pair in zip(queries, keys, strict=True)])
    values, vectors = np.linalg.eigh(covariance)
    root = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
    d_k = capture.queries.shape[-1]
    try:
        return Attention.from_weights(
            root[:, :d_k],
            root[:, d_k:],
            tokens=n_q,
            keys=None if n_q == n_k and not cross else n_k,
            b_Q=mean,
            scale=capture.scale,
            mask=mask,
        )
    except ParameterError:  # scores that do not vary
        return None


def _size(states: Any, real: Any) -> float:
    """Mean variance of an entry of a token."""
    tokens: list[Array] = [s[m].astype(np.float64) for s, m in zip(states, real, strict=True)]
    centred = np.concatenate([t - t.mean(axis=0) for t in tokens])
    return float(np.einsum("ij,ij->", centred, centred)) / max(1, len(centred) - len(tokens)) / int(centred.shape[1])


def _covariance(samples: list[Array]) -> Array:
    centred = np.concatenate([sample - sample.mean(axis=0) for sample in samples])
    return np.asarray(centred.T @ centred / max(1, len(centred) - len(samples)))


def _blocks(first: Array, second: Array) -> Array:
    zero = np.zeros_like(first)
    return np.block([[first, zero], [zero, second]])


def _drawn(capture: LayerCapture, head: int, pair: tuple[Array, Array], null: Attention) -> Measured:
    """The head on Gaussian tokens, measured."""
    group = head * capture.keys.shape[1] // capture.heads
    scores = capture.scale * pair[0][head] @ pair[1][group].T
    visibility = null.visibility
    if visibility is not None:
        scores = np.where(visibility.visible(0, null.tokens), scores, -np.inf)
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    drawn = measure(scores, null.mask, head_dim=null.head_dim, light=True)
    # many are kept until all layers are seen
    return replace(
        drawn, spectrum=drawn.spectrum.astype(np.float32), edge_spectrum=drawn.edge_spectrum[:LARGEST].copy()
    )


# -- after it has run -----------------------------------------------------------------------------------


def _against(name: str, seen: list[_Seen], judge: SizesJudge) -> list[NullReport]:
    """Every head against one null."""
    places = [k for k, one in enumerate(seen) if name in one.nulls]
    tables = _tables([seen[k].nulls[name] for k in places], name, judge)
    helds: dict[int, Held] = {}
    kinds: list[tuple[float, list[Held]]] = []
    for k, table in zip(places, tables, strict=True):
        beta = seen[k].nulls[name].beta
        helds[k] = _held(seen[k].subject.measured, beta, table)
        kinds.append((math.log(beta), [_held(draw, beta, table) for draw in seen[k].draws[name]]))
    moments = pooled_moments(kinds, _BANDWIDTH) if kinds else []
    p_values = [min(1.0, _STATISTICS * min(own.p_values(helds[k]))) for k, own in zip(places, moments, strict=True)]
    adjusted = dict(zip(places, holm(p_values), strict=True))
    alone = dict(zip(places, p_values, strict=True))
    result = []
    for k, one in enumerate(seen):
        if k not in helds:
            result.append(NullReport(name, None, None, 0.0, None, None, None, None, passes=False))
            continue
        null, held = one.nulls[name], helds[k]
        assert null.weights is not None
        weights = null.weights.inner_weights
        result.append(
            NullReport(
                name,
                null.beta,
                float(weights.sum() ** 2 / (weights @ weights)),
                math.sqrt(null.weights.column_bias_variance),
                held.ks,
                held.wasserstein,
                alone[k],
                adjusted[k],
                passes=adjusted[k] > judge.level,
            )
        )
    return result


def _tables(nulls: list[Attention], name: str, judge: SizesJudge) -> list[LawTable]:
    found = []
    jobs = min((workers(judge.jobs, null.tokens, null.columns) for null in nulls), default=1)
    tables = Parallel(n_jobs=jobs, return_as="generator")(delayed(null_table)(null, patient=False) for null in nulls)
    for table in tables:
        found.append(table)
        if judge.progress is not None:
            judge.progress(len(found), len(nulls), f"laws of {name}")
    return found


def _held(measured: Measured, beta: float, table: LawTable) -> Held:
    """Against a law of which nothing is fitted: the β to compare is the law's own."""
    held = hold(measured, beta, table)
    fine = 0 < measured.beta_energy < math.inf
    return replace(held, beta_excess=math.log(measured.beta_energy / beta) if fine else math.inf)


def _of_sizes(report: HeadReport) -> NullReport:
    return NullReport(
        NULLS[0],
        report.beta,
        None,
        0.0,
        report.ks,
        report.wasserstein,
        report.p_value,
        report.p_adjusted,
        passes=report.random,
    )


def _conclude(report: HeadReport, nulls: list[NullReport], level: float) -> HeadReport:
    """The verdict of all nulls together."""
    report = replace(report, nulls=tuple(nulls))
    passed = next((null for null in nulls if null.passes), None)
    if passed is None:
        last = nulls[-1]
        words = report.verdict
        if last.p_adjusted is not None:
            words = words.replace(f"{UNTESTED}: ", "not random: ", 1)
        if last.ks is not None and last.beta is not None and report.beta is not None:
            words += (
                f"; its weights on its tokens' covariance would give beta = {last.beta:.3g} and are at KS {last.ks:.3g}"
            )
        return replace(report, random=False, verdict=words)
    explained = {
        "sizes": "its sizes alone",
        "weights": "its weights on isotropic tokens",
        "weights and tokens": "its weights on Gaussian tokens of this mean and covariance",
    }[passed.name]
    return replace(
        report, random=True, verdict=f"random: {explained} explain it (KS {passed.ks:.3g}, beta = {passed.beta:.3g})"
    )
