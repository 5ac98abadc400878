"""Inspection of attention matrices: of an array, a file or tensors."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from gequiv import _checks
from gequiv._checks import Array
from gequiv.attention.masks import normalised_mask
from gequiv.errors import InputFileError, ParameterError
from gequiv.inspection.engine import Progress, SizesJudge, Subject
from gequiv.inspection.head import measure, workers
from gequiv.inspection.reading import HeadSource, heads_of
from gequiv.inspection.report import Report
from gequiv.inspection.rows import Rows, examine

_SOFTMAX_OFF = 5e-3  # what half precision leaves


def inspect_attention(
    attention: Any,
    *,
    key: str | None = None,
    scores: Any = None,
    head_dim: int | None = None,
    width: int | None = None,
    level: float = 0.05,
    seed: int = 0,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Report:
    r"""What is random in attention matrices, and what is not: each head against the random head of its sizes.

    For every head: the rows are checked, padding is cut and the mask found; β comes from the second moment of A, from
    the entropy of its rows and from the scores (`gequiv.inspection.estimates`); the bulk of the squared singular values
    of √n_k (A - Ā), without a mask with its columns centred, is held against the finite-size law of that one β
    (`Attention.finite_law`), nothing else being fitted; singular values beyond what chance allows are told with their
    vectors; and drawn random heads say how likely such distances are (`gequiv.inspection.calibration`).

    The head width and the tokens' width, if they are not given, are read off the logarithm of A, whose rank and second
    moment they determine.

    Parameters
    ----------
    attention : probabilities of shape (heads, n_q, n_k), (layers, heads, n_q, n_k) or (n_q, n_k): an array, nested
        lists, a torch tensor, a list of such layers, or the path of a .npy, .npz or .safetensors file. Files are read
        head by head.
    key : name of the array in a file of several.
    scores : of the same shape: that of which each row's softmax the attention is (β times the scores of `Attention`);
        taken for the estimate of β by scores in place of log A. Where attention is zero they may be -∞.
    head_dim, width : d_k; and d of Gaussian tokens.
    level : probability with which any of the heads may be called not random although all are.
    seed : of the draws of random heads; the same seed repeats the report.
    jobs : processes and threads; all cores by default.
    progress : called with (done, total, what) as the work goes on.

    Returns
    -------
    `Report` with one `HeadReport` a head.

    Raises
    ------
    ParameterError : the array has another shape; entries are negative or NaN, a row does not sum to one or is zero;
        scores are not finite; or a parameter is out of range.
    InputFileError : the file cannot be read.

    Sources: Hayase, Collins, Karakida 2025 (arXiv 2510.06685); Baik, Ben Arous, Péché 2005; Holm 1979.
    """
    judge = SizesJudge(checked_level(level), checked_seed(seed), checked_jobs(jobs), progress)
    head_dim = None if head_dim is None else _checks.positive_integer("head_dim", head_dim, minimum=2)
    width = None if width is None else _checks.positive_integer("width", width)
    source = heads_of(attention, key=key)
    given = None if scores is None else _scores_of(scores)
    if given is not None and (given.layers, len(given)) != (source.layers, len(source)):
        raise ParameterError(
            f"scores must have as many layers and heads as attention, {len(source)} in all; got {len(given)}"
        )

    def one(layer: int, head: int, matrix: Array) -> Subject:
        where = f"layer {layer}, head {head}" if source.layered else f"head {head}"
        rows = examine(matrix, source.dtype, where)
        known = None
        if given is not None:
            known = given.load(layer, head)
            if known.shape != matrix.shape:
                raise ParameterError(
                    f"scores must have the shape of attention, {matrix.shape} in {where}; got {known.shape}"
                )
            known = known[rows.kept_rows, rows.kept_keys]
            rows = _with_scores(rows, known, where)
        return subject_of(layer, head, rows, scores=known, head_dim=head_dim, width=width)

    subjects = []
    at_once = min(workers(judge.jobs, *source.shape(layer)[1:]) for layer in range(source.layers))
    with threadpool_limits(1 if at_once > 1 else None):
        found = Parallel(n_jobs=at_once, prefer="threads", return_as="generator", pre_dispatch="n_jobs")(
            delayed(one)(*item) for item in source
        )
        for subject in found:
            subjects.append(subject)
            if progress is not None:
                progress(len(subjects), len(source), "heads")
    return Report(judge.judge(subjects), source.source, judge.level, source.layered)


def _scores_of(scores: Any) -> HeadSource:
    """`heads_of`, its messages speaking of scores."""
    try:
        return heads_of(scores)
    except (ParameterError, InputFileError) as error:
        raise type(error)(str(error).replace("attention", "scores", 1)) from error


def _with_scores(rows: Rows, scores: Array, where: str) -> Rows:
    """The rows, with a finding where the softmax of the scores is not the attention.

    Raises
    ------
    ParameterError : a score is NaN or +∞, or -∞ where there is attention.
    """
    bad = ~np.isfinite(scores) & ((rows.matrix > 0) | ~np.isneginf(scores))
    if bad.any():
        row, key = np.unravel_index(int(np.argmax(bad)), bad.shape)
        raise ParameterError(f"scores must be finite where there is attention; got {scores[row, key]} in {where}")
    weights = np.where(rows.matrix > 0, scores, -np.inf)
    weights -= weights.max(axis=1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(axis=1, keepdims=True)
    off = float(np.abs(weights - rows.matrix).max())
    if off <= _SOFTMAX_OFF:
        return rows
    return replace(
        rows, findings=(*rows.findings, f"the softmax of the scores differs from the attention by {off:.2g}")
    )


def subject_of(layer: int, head: int, rows: Rows, **known: Any) -> Subject:
    """A head whose rows were examined, measured; `known` as for `measure`."""
    mask = _shared(normalised_mask(rows.mask, *rows.matrix.shape))
    degenerate = ""
    if rows.uniform:
        degenerate = "every query weighs all keys alike"
    elif rows.identical_rows:
        degenerate = "all queries look at the keys alike"
    offsets = (rows.kept_rows.start or 0, rows.kept_keys.start or 0)
    return Subject(layer, head, measure(rows.matrix, mask, **known), rows.findings, offsets, degenerate)


@lru_cache(maxsize=4)
def _shared(mask: Any) -> Any:
    """The first mask equal to this one: heads that have a pattern in common keep it once."""
    return mask


def checked_level(level: Any) -> float:
    """A probability strictly between 0 and 1/2."""
    probability = _checks.positive_real("level", level)
    if not probability < 0.5:
        raise ParameterError(f"level must be a probability below 0.5; got {level!r}")
    return probability


def checked_jobs(jobs: Any) -> int:
    """Number of processes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if jobs is None else _checks.positive_integer("jobs", jobs)


def checked_seed(seed: Any) -> int:
    """An integer of at least 0."""
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ParameterError(f"seed must be an integer of at least 0; got {seed!r}")
    return seed
