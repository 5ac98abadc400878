r"""One head as it comes out of a model: checked, freed of padding, and its mask found from the exact zeros.

A softmax is never zero. A zero is a key that the row does not see, a padded token, or underflow: a weight below the
smallest number of the dtype. The three are told apart by where the zeros are; see `padding_of` and `mask_of`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gequiv._checks import Array
from gequiv.attention.masks import Visibility
from gequiv.errors import ParameterError

Booleans = NDArray[np.bool_]
Indices = NDArray[np.intp]


class _Precision(NamedTuple):
    """What a dtype does to a row: spacing of numbers at one, numbers that may come out as zero, error of a sum.

    Rounded to nearest, entries carry relative errors of at most eps/2, and so does their sum. The tolerance is larger
    by a factor of 40 in float16 and of 10 in bfloat16, for a softmax that was itself computed in that dtype, and of
    about 10³ and more in the others, for what was scaled or stored as text on the way.
    """

    eps: float
    floor: float
    tolerance: float


_PRECISIONS = {
    "float64": _Precision(2.0**-52, 2.0**-1022, 1e-6),
    "float32": _Precision(2.0**-23, 2.0**-126, 1e-4),
    "bfloat16": _Precision(2.0**-7, 2.0**-126, 5e-2),
    "float16": _Precision(2.0**-10, 2.0**-24, 2e-2),
}
_GAP = 16  # entries above so many times the floor are far from underflow
_RUN = 16  # a sink is looked for in rows that see so many keys


class Padding(NamedTuple):
    """Numbers of padded tokens, (leading, trailing), of the rows and of the keys."""

    rows: tuple[int, int] = (0, 0)
    keys: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Rows:
    """The rows of a head that stand for tokens; made by `examine`.

    Attributes
    ----------
    matrix : (n_q, n_k) without padding, float64, rows of sum one.
    mask : None, "causal", "window:W", "two-sided:W", "block:B", or a boolean array of the shape of the matrix.
    padding : what was cut.
    kept_rows, kept_keys : what was kept, as slices of the original.
    underflow : the share of zeros among entries that the mask lets a row see.
    row_sum_error : largest |sum - 1| of a row before rows were divided by their sums.
    identical_rows : all rows are equal, to rounding.
    uniform : each row weighs all keys that it sees alike, to rounding.
    one_hot : the share of rows with an entry above 0.99.
    sink : (key in the numbering of the original, its mean share) if a key has more than half of the attention on
        average over the rows that see 16 keys or more; else None.
    findings : sentences that say what was found.
    """

    matrix: Array = field(repr=False)
    mask: str | Booleans | None
    padding: Padding
    kept_rows: slice
    kept_keys: slice
    underflow: float
    row_sum_error: float
    identical_rows: bool
    uniform: bool
    one_hot: float
    sink: tuple[int, float] | None
    findings: tuple[str, ...]


def examine(matrix: Array, dtype: str, where: str) -> Rows:
    """Check one head and find its padding and its mask.

    Parameters
    ----------
    matrix : (n_q, n_k), float64, as the model gave it; left as it is.
    dtype : in which the model gave it. Numbers that were converted from half precision to a wider dtype are recognised.
    where : which head this is, for messages: "layer 3, head 5".

    Raises
    ------
    ParameterError : an entry is negative, infinite or not a number; a row does not sum to one within 1e-6 in float64
        and integers, 1e-4 in float32, 2e-2 in float16, 5e-2 in bfloat16; a row is zero and is not padding; or fewer
        than two tokens are not padding.
    """
    matrix, dead = _without_dead_rows(matrix, where)
    with np.errstate(over="ignore"):
        sums = matrix.sum(axis=1)
    name = dtype if dtype in _PRECISIONS else "float64"
    errors = np.where(dead, 0.0, abs(sums - 1))
    if errors.max() > _tolerance(name, matrix):
        name = _converted_from(matrix, name)
    if errors.max() > _tolerance(name, matrix):
        _refuse_sums(matrix, sums, errors, dead, _tolerance(name, matrix), name, where)
    eps = _PRECISIONS[name].eps
    alike = (2 if name in ("float16", "bfloat16") else 16) * eps
    top = matrix.max(axis=1)
    padding = padding_of(matrix > 0, dead, ~dead & (top - matrix.min(axis=1) <= alike * top))
    rows, keys = (slice(before, size - after) for (before, after), size in zip(padding, matrix.shape, strict=True))
    if dead[rows].any():
        row = rows.start + int(np.argmax(dead[rows]))
        raise ParameterError(
            f"attention must have rows of sum one; {where}, row {row} of {len(dead)} is all zero or NaN and is not "
            "padding at either end (padded rows come with keys that no other row sees)"
        )
    if rows.stop - rows.start < 2 or keys.stop - keys.start < 2:
        raise ParameterError(
            f"attention must have at least two tokens on either side; {where} of shape {matrix.shape} has "
            f"{rows.stop - rows.start} rows and {keys.stop - keys.start} keys that are not padding"
        )
    kept = matrix[rows, keys] / sums[rows, None]
    seen = kept > 0
    mask = None if seen.all() else mask_of(kept, seen, _converted_from(matrix, name))
    numbers = _numbers_seen(mask, *kept.shape)
    hidden = float(1 - np.count_nonzero(seen) / numbers.sum())
    top = top[rows] / sums[rows]
    one_hot = float(np.mean(top > 0.99))
    sink = _sink(kept, numbers, keys.start)
    low = kept.min(axis=0)
    identical = bool((kept.max(axis=0) - low <= alike * low + _PRECISIONS[name].floor).all())
    uniform = hidden == 0 and bool((kept.min(axis=1, where=seen, initial=1.0) >= (1 - alike) * top).all())
    error = float(errors[rows].max())
    findings = [
        *([f"the numbers were converted from {name} to {dtype}"] if name != dtype and dtype in _PRECISIONS else []),
        *_padding_findings(padding, *matrix.shape),
        "mask: " + ("none" if mask is None else mask if isinstance(mask, str) else "a pattern without a name"),
        *([f"{_percent(hidden)} of the visible entries underflow to zero in {name}"] if hidden else []),
        *([f"rows sum to one within {error:.1g}"] if error > eps * np.sqrt(kept.shape[1]) else []),
        *_rows_findings(identical, uniform, one_hot, sink),
        *_blind_findings(seen, rows.start),
    ]
    return Rows(kept, mask, padding, rows, keys, hidden, error, identical, uniform, one_hot, sink, tuple(findings))


def _without_dead_rows(matrix: Array, where: str) -> tuple[Array, Booleans]:
    """The matrix with NaN rows set to zero, and which rows are zero now; refuses entries that are no weights."""
    with np.errstate(all="ignore"):
        sums, low = matrix.sum(axis=1), matrix.min()
    if np.isfinite(sums).all() and low >= 0:
        return matrix, np.asarray(sums == 0)
    dead: Booleans = np.asarray(np.isnan(matrix).all(axis=1))
    finite = np.isfinite(matrix)
    finite[dead] = True
    if not finite.all():
        masked = (matrix == -np.inf).any()
        _refuse_entry(matrix, ~finite, "finite", where, "scores before the softmax, masked" if masked else "")
    if dead.any():
        matrix = matrix.copy()
        matrix[dead] = 0.0
    negative = matrix < 0
    if negative.any():
        many = np.count_nonzero(negative) > 0.01 * matrix.size
        _refuse_entry(matrix, negative, "at least 0", where, "scores before the softmax" if many else "")
    return matrix, np.asarray(matrix.max(axis=1) == 0)


def _refuse_entry(matrix: Array, bad: Booleans, allowed: str, where: str, likeness: str) -> None:
    row, key = np.unravel_index(int(np.argmax(bad)), bad.shape)
    raise ParameterError(
        f"attention must be {allowed}; got {float(matrix[row, key])!r} in {where}, row {row}, key {key}"
        + (f"; these look like {likeness}" if likeness else "")
    )


def _tolerance(name: str, matrix: Array) -> float:
    """How far a row may sum from one: the constant of the dtype, and keys rounded to zero, half a floor each."""
    precision = _PRECISIONS[name]
    keys: int = matrix.shape[1]
    return precision.tolerance + 0.5 * keys * precision.floor


def _converted_from(matrix: Array, name: str) -> str:
    """The half precision that all entries fit into, if any; else `name`."""
    if name not in ("float32", "float64") or matrix.max() > 2:
        return name
    for half, fits in (("float16", _fits_float16), ("bfloat16", _fits_bfloat16)):
        if fits(matrix[len(matrix) // 2]) and fits(matrix):
            return half
    return name


def _fits_float16(numbers: Array) -> bool:
    return np.array_equal(numbers.astype(np.float16), numbers)


def _fits_bfloat16(numbers: Array) -> bool:
    single = numbers.astype(np.float32)
    return not (single.view(np.uint32) & 0xFFFF).any() and np.array_equal(single, numbers)


def _refuse_sums(
    matrix: Array, sums: Array, errors: Array, dead: Booleans, tolerance: float, name: str, where: str
) -> None:
    row = int(np.argmax(errors > tolerance))
    live = sums[~dead]
    with np.errstate(all="ignore"):
        middle = float(np.median(live))
        alike = abs(live - middle).max() <= tolerance * middle < np.inf
        columns = abs(matrix.sum(axis=0) - 1).max() <= tolerance
    hint = ""
    if columns:
        hint = "; the columns do sum to one: transpose it, so that rows are queries"
    elif alike:
        hint = f"; all rows sum to {middle:.6g}: divide by it" + (", for percentages" if round(middle) == 100 else "")
    elif 0.5 < middle < 2 and (matrix == 0).any():
        hint = "; dropout on the weights would do this: call model.eval()"
    raise ParameterError(
        f"attention must have rows of sum one within {tolerance:.2g} for {name}; got {float(sums[row])!r} in {where}, "
        f"row {row}{hint}"
    )


def padding_of(seen: Booleans, dead: Booleans, constant: Booleans) -> Padding:
    """The padded tokens at either end.

    Queries and keys of a square head are the same tokens. Tokens are padding if the rows of the others give them
    nothing and their own rows are what software makes of them:

    - blank, which is zero or NaN (`dead`), or `constant` over all n_k keys, the softmax of a row that is masked
      throughout. Constant rows alone are no evidence in a head in which no row looks ahead, whose last row may be
      uniform and whose last key only the last row sees (and likewise in which no row looks back);
    - or rows over the other tokens only, so that no row sees these keys. Underflow can do this too, hence the run at
      the end must be longer than any run of unseen keys inside; and if no row looks ahead, longer than the largest
      distance of a row to the last key that it sees;
    - or, for leading tokens, rows that see the first key and keys beyond the padding, as a causal mask and a padding
      mask make together if they are added rather than combined.

    A row that sees its own kind only, as of a block or a window, is not padding.

    For a head that is not square, rows at the ends are cut if they are zero or NaN, and keys if no row sees them, the
    run is longer than any inside, and its edge does not move with the rows as that of a window does: the first key kept
    is seen by a row in the last quarter, the last by a row in the first quarter.
    """
    n_q, n_k = seen.shape
    blank = dead | constant
    if blank.all():
        return Padding()
    square = n_q == n_k
    edge = blank if square else dead
    a, b = _run(edge), _run(edge[::-1])
    first: Indices = np.where(dead, n_k, seen.argmax(axis=1))
    last: Indices = np.where(dead, -1, n_k - 1 - seen[:, ::-1].argmax(axis=1))
    position = np.arange(n_q) + (n_k - n_q)
    core = seen[a : n_q - b]
    used = np.flatnonzero(core.any(axis=0))
    low, high, gap = int(used[0]), int(used[-1]), _longest_gap(core)
    if not square:
        some = (n_q - a - b + 3) // 4
        p = low if low > gap and first[n_q - b - some : n_q - b].min() == low else 0
        q = n_k - 1 - high if n_k - 1 - high > gap and last[a : a + some].max() == high else 0
        return Padding((a, b), (p, q)) if n_k - p - q >= 2 else Padding((a, b))

    looks_back = (first < position)[~dead].any()
    unseen = max(low - a, 0)
    if unseen <= gap or n_q - b - low < 2:
        unseen = 0
    if a:
        p = a + unseen if low >= a and (looks_back or dead[:a].any()) else 0
    elif low:
        p = unseen
    else:
        p = _mixed_rows(first[: n_q - b], last[: n_q - b]) if looks_back else 0
        p = p if p > _longest_gap(seen[p : n_q - b]) else 0
    unseen = max(n_k - b - 1 - high, 0)
    ahead = (last > position)[p : high + 1].any()
    if high + 1 - p < 2 or unseen <= (gap if ahead else (position - last)[p : high + 1].max()):
        unseen = 0
    q = b + unseen
    looks_ahead = (last > position)[p:][~dead[p:]].any()
    if b and (high >= n_k - b or not (p or looks_ahead or dead[n_q - b :].any())):
        q = 0
    if (a and not p) or (b and not q):  # a constant row that stands for a token, which thus sees all tokens
        return Padding()
    return Padding((p, q), (p, q))


def _run(flags: Booleans) -> int:
    """How many flags are set before the first that is not."""
    return len(flags) if flags.all() else int(np.argmin(flags))


def _longest_gap(seen: Booleans) -> int:
    """Length of the longest run of keys that no row sees, with keys that are seen on both sides."""
    return int(np.diff(np.flatnonzero(seen.any(axis=0))).max(initial=1)) - 1


def _mixed_rows(first: Indices, last: Indices) -> int:
    """The largest p for which rows from p on see nothing below p, and rows below p see key 0 and something from p."""
    beyond = np.minimum.accumulate(first[::-1])[::-1]
    inside = np.minimum.accumulate(np.where(first == 0, last, -1))
    p = np.arange(1, len(first) - 1)
    good = p[(beyond[p] >= p) & (inside[p - 1] >= p)]
    return int(good[-1]) if len(good) else 0


def mask_of(matrix: Array, seen: Booleans, dtype: str) -> str | Booleans | None:
    """The mask behind the zeros of a head without padding: what `Attention` takes as its mask.

    The wide mask is "causal" if all that is seen lies in it, else none. Zeros beyond it are, in this order:

    - a named mask within the wide one, "window:W", "two-sided:W" or "block:B" of the smallest size of at least 2 that
      holds all that is seen, the one of fewest entries, if it is filled to three quarters, its outermost diagonals to
      a half (weights that decay with distance underflow gradually, and leave these all but empty), and if zeros
      outside of it are five times those inside, at least 1 or, in float16, 3;
    - the pattern itself, as a boolean array, if it is structured: neighbours along rows, columns or diagonals differ in
      less than a quarter of the pairs in which they would if zeros were scattered at random, and at least nine of ten
      rows with zeros have two entries or more, the smallest of them far above underflow (16 times the smallest
      number), and there are 3 zeros or, in float16, 9;
    - else underflow, and the wide mask is returned.

    Parameters
    ----------
    matrix : (n_q, n_k), rows of sum one.
    seen : where it is not zero.
    dtype : whose smallest number counts.
    """
    n_q, n_k = seen.shape
    count = int(np.count_nonzero(seen))
    if count == seen.size:
        return None
    offset = n_k - n_q
    position = np.arange(n_q) + offset
    first, last = seen.argmax(axis=1), n_k - 1 - seen[:, ::-1].argmax(axis=1)
    wide = "causal" if (last <= position).all() else None
    area = int(_numbers_seen(wide, n_q, n_k).sum())
    if count == area:
        return wide
    back, ahead = int((position - first).max()) + 1, int((last - position).max()) + 1
    names = [f"window:{back}"] if wide and 2 <= back < n_k else []
    if offset >= 0:
        width = max(back, ahead)
        names += [f"two-sided:{width}"] if 2 <= width < n_k else []
        names += [f"block:{size}" for size in [_block_size(first, last, position, n_k)] if 2 <= size < n_k]
    areas = {name: int(_numbers_seen(name, n_q, n_k).sum()) for name in names}
    least = 3 if dtype == "float16" else 1  # fewer zeros are chance
    fitting = [
        name
        for name in names
        if count >= 0.75 * areas[name]
        and area - areas[name] >= max(least, 5 * (areas[name] - count))
        and (name.startswith("block") or _edge_is_full(seen, name))
    ]
    if fitting:
        return min(fitting, key=lambda name: areas[name])
    return seen if area - count >= 3 * least and _is_structured(matrix, seen, wide, dtype) else wide


def _numbers_seen(mask: str | Booleans | None, n_q: int, n_k: int) -> NDArray[np.int64]:
    """How many keys each row sees, shape (n_q,)."""
    if mask is None:
        return np.full(n_q, n_k)
    if not isinstance(mask, str):
        return np.asarray(np.count_nonzero(mask, axis=1))
    name, _, size = mask.partition(":")
    position = np.arange(n_q) + (n_k - n_q)
    start, stop = np.zeros_like(position), position + 1
    if name in ("window", "two-sided"):
        start = position - int(size) + 1
    if name == "two-sided":
        stop = position + int(size)
    if name == "block":
        start = position - position % int(size)
        stop = start + int(size)
    return np.asarray(np.minimum(stop, n_k) - np.maximum(start, 0))


def _block_size(first: Indices, last: Indices, position: Indices, n_k: int) -> int:
    """The smallest B whose blocks hold all that is seen; n_k if none below does."""
    crossed = np.zeros(n_k + 1, dtype=np.intp)  # by how many rows, between key t - 1 and key t
    np.add.at(crossed, np.minimum(first, position) + 1, 1)
    np.add.at(crossed, np.maximum(last, position) + 1, -1)
    crossed = np.cumsum(crossed)
    return next(
        (int(size) for size in np.flatnonzero(crossed[2:n_k] == 0) + 2 if not crossed[size:n_k:size].any()), n_k
    )


def _edge_is_full(seen: Booleans, name: str) -> bool:
    """Whether half of the outermost diagonals of a window are seen."""
    n_q, n_k = seen.shape
    kind, _, size = name.partition(":")
    sides = (1,) if kind == "window" else (1, -1)
    edges = np.concatenate([np.diagonal(seen, n_k - n_q - side * (int(size) - 1)) for side in sides])
    return bool(edges.mean() >= 0.5)


def _is_structured(matrix: Array, seen: Booleans, wide: str | None, dtype: str) -> bool:
    """Whether zeros within the wide mask are neither scattered nor explained by underflow; see `mask_of`."""
    n_q, n_k = seen.shape
    inside = Visibility(n_q, n_k, wide, None).visible(0, n_q)
    cut = np.count_nonzero(seen, axis=1)
    rows = cut < np.count_nonzero(inside, axis=1)
    smallest = matrix.min(axis=1, where=seen, initial=np.inf)
    floor = _PRECISIONS[dtype].floor
    if np.mean((cut >= 2)[rows] & (smallest[rows] > _GAP * floor)) < 0.9:
        return False
    zeros = 1 - np.count_nonzero(seen) / np.count_nonzero(inside)
    here, there = slice(1, None), slice(None, -1)
    everywhere = slice(None)
    for one, other in (
        ((here, everywhere), (there, everywhere)),
        ((everywhere, here), (everywhere, there)),
        ((here, here), (there, there)),
    ):
        pairs = inside[one] & inside[other]
        differ = np.count_nonzero((seen[one] != seen[other]) & pairs)
        if differ < 0.25 * 2 * zeros * (1 - zeros) * np.count_nonzero(pairs):
            return True
    return False


def _sink(matrix: Array, numbers: NDArray[np.int64], start: int) -> tuple[int, float] | None:
    wide = (numbers >= _RUN).astype(np.float64)
    if not wide.any():
        return None
    shares = (wide / wide.sum()) @ matrix
    key = int(shares.argmax())
    return (start + key, float(shares[key])) if shares[key] > 0.5 else None


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.4g} %"


def _padding_findings(padding: Padding, n_q: int, n_k: int) -> list[str]:
    named = [("token", padding.rows)] if n_q == n_k else [("query", padding.rows), ("key", padding.keys)]
    plural = {"token": "tokens", "query": "queries", "key": "keys"}
    return [
        f"{number} padded {what if number == 1 else plural[what]} cut at the {end}"
        for what, numbers in named
        for number, end in zip(numbers, ("start", "end"), strict=True)
        if number
    ]


def _rows_findings(identical: bool, uniform: bool, one_hot: float, sink: tuple[int, float] | None) -> list[str]:
    found = []
    if uniform:
        found.append("each row weighs all keys that it sees alike")
    elif identical:
        found.append("all rows are equal")
    if one_hot >= 0.5:
        found.append(f"{_percent(one_hot)} of the rows give more than 0.99 to one key")
    if sink is not None:
        found.append(f"key {sink[0]} takes {_percent(sink[1])} of the attention")
    return found


def _blind_findings(seen: Booleans, start: int) -> list[str]:
    lonely = np.flatnonzero(np.count_nonzero(seen, axis=1) == 1)
    if not len(lonely):
        return []
    if len(lonely) == 1:
        return [f"row {start + lonely[0]} sees one key"]
    return [f"{len(lonely)} rows see one key, row {start + lonely[0]} the first"]
