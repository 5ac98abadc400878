r"""Masks and additive position biases: which keys a row sees, and its mean attention Ā.

.. math:: \bar A_{ij} = \frac{e^{b_{ij}} 1[\text{row } i \text{ sees key } j]}{\sum_k e^{b_{ik}} 1[\text{row } i
          \text{ sees key } k]} .

Query i stands at position i + n_k - n_q among the keys: the ends of queries and keys are aligned.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gequiv import _checks
from gequiv._checks import Array
from gequiv.errors import ParameterError

Booleans = NDArray[np.bool_]
MaskFunction = Callable[[Array, Array], Any]
BiasFunction = Callable[[NDArray[np.int64]], Any]

_SIZED = ("window", "two-sided", "block")
_ALLOWED = (
    'None, "none", "causal", "window:W", "two-sided:W", "block:B" with an integer of at least 1, a boolean array of '
    "shape (tokens, keys), or a function of (i/tokens, j/keys)"
)
_BLOCK = 2**21  # numbers in a block of rows


class FrozenArray:
    """A read-only array that compares and hashes by content; ``array`` is the array."""

    __slots__ = ("array",)
    array: NDArray[Any]

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = np.array(array)
        self.array.setflags(write=False)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.array, dtype=dtype) if copy else np.asarray(self.array, dtype=dtype)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FrozenArray):
            return NotImplemented
        return self.array.dtype == other.array.dtype and np.array_equal(self.array, other.array)

    def __hash__(self) -> int:
        array = self.array if self.array.dtype == np.bool_ else self.array + 0.0  # -0 equals 0
        return hash((array.shape, array.tobytes()))

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenArray, (self.array,)

    def __repr__(self) -> str:
        return f"<{self.array.dtype} array of shape {self.array.shape}>"


def normalised_mask(mask: Any, tokens: int, keys: int) -> str | FrozenArray | MaskFunction | None:
    """`mask` as `Attention.mask` holds it: None, "causal", "window:256" and the like, an array or a function.

    Raises
    ------
    ParameterError : mask is none of these, or of another shape than (tokens, keys).
    """
    if isinstance(mask, str):
        name, separator, size = mask.replace(" ", "").lower().partition(":")
        if name in ("none", "causal") and not separator:
            return None if name == "none" else name
        if name in _SIZED and size.isdecimal() and int(size) >= 1:
            return f"{name}:{int(size)}"
        raise ParameterError(f"mask must be {_ALLOWED}; got {mask!r}")
    if mask is None or isinstance(mask, FrozenArray) or callable(mask):
        array = mask.array if isinstance(mask, FrozenArray) else None
    else:
        try:
            array = np.asarray(mask)
        except ValueError as error:
            raise ParameterError(f"mask must be {_ALLOWED}; got a ragged list") from error
        if array.dtype != np.bool_:
            raise ParameterError(
                f"mask must be {_ALLOWED}; got {_described(mask, array)}"
                + (", whose entries are not booleans" if array.ndim else "")
            )
    if array is None:
        return mask  # type: ignore[no-any-return]
    if array.shape != (tokens, keys):
        raise ParameterError(
            f"mask must have shape (tokens, keys) = ({tokens}, {keys}); got an array of shape {array.shape}"
        )
    return mask if isinstance(mask, FrozenArray) else FrozenArray(array)


def normalised_bias(bias: Any, tokens: int, keys: int) -> float | FrozenArray | BiasFunction | None:
    """`bias` as `Attention.bias` holds it: None, an ALiBi slope, an array or a function.

    Raises
    ------
    ParameterError : bias is none of these, of another shape than (tokens, keys), or not finite.
    """
    if bias is None or callable(bias):
        return bias  # type: ignore[no-any-return]
    if isinstance(bias, (numbers.Real, np.bool_)):
        slope = _checks.positive_real("bias", bias)
        if not math.isfinite(slope * (tokens + keys)):
            raise ParameterError(
                f"bias must be a slope whose multiples by up to {tokens + keys} are finite; got {bias!r}"
            )
        return slope
    array = bias.array if isinstance(bias, FrozenArray) else _checks.real_array("bias", bias)
    if array.shape != (tokens, keys):
        raise ParameterError(
            "bias must be None, a slope above 0, a function of the relative position, or an array of shape (tokens, "
            f"keys) = ({tokens}, {keys}); got {_described(bias, array)}"
        )
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise ParameterError(
            f"bias must be finite (a mask hides keys); got {float(array[row, column])!r} at row {row}, key {column}"
        )
    return bias if isinstance(bias, FrozenArray) else FrozenArray(array)


def row_blocks(rows: int, columns: int, numbers: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of blocks of rows that cover all, of about `numbers` entries each, one row at least."""
    step = max(1, numbers // columns)
    return ((start, min(start + step, rows)) for start in range(0, rows, step))


class Visibility:
    """What the rows of a head see: keys by a mask, weighted by a bias. Nothing of size tokens × keys is kept.

    Parameters
    ----------
    tokens, keys : rows and columns of the attention matrix.
    mask, bias : as `normalised_mask` and `normalised_bias` return them.

    Attributes
    ----------
    kind : "causal" if row i sees exactly the keys j <= i, tokens = keys, and the bias is none or an ALiBi slope; else
        "general".
    slope : the ALiBi slope, b_ij = -slope |i + keys - tokens - j|; 0 without one.

    Raises
    ------
    ParameterError : a row sees no key; or a function returned something else than booleans (mask) or finite real
        numbers (bias).
    """

    def __init__(
        self,
        tokens: int,
        keys: int,
        mask: str | FrozenArray | MaskFunction | None,
        bias: float | FrozenArray | BiasFunction | None,
    ) -> None:
        self.tokens, self.keys = tokens, keys
        self.mask, self.bias = mask, bias
        self._offset = keys - tokens
        self._name, self._size = "", 0
        if isinstance(mask, str):
            name, _, size = mask.partition(":")
            self._name, self._size = name, int(size or 0)
            if name == "window" and self._size >= keys:
                self._name = "causal"
        self.slope = bias if isinstance(bias, float) else 0.0
        plain = self._name == "causal" and tokens == keys and (bias is None or isinstance(bias, float))
        self.kind = "causal" if plain else "general"
        self._by_relative_position = None if bias is None or isinstance(bias, FrozenArray) else self._bias_rows(bias)

    def __reduce__(self) -> tuple[Any, ...]:
        return Visibility, (self.tokens, self.keys, self.mask, self.bias)

    @property
    def restricts(self) -> bool:
        """Whether anything differs from every row seeing all keys alike; always so for a function as a mask."""
        if self.bias is not None or self._name in ("causal", "window"):
            return True
        if self._name == "two-sided":
            return self._size < max(self.tokens, self.keys)
        if self._name == "block":
            return self._size < self.keys or self._offset < 0
        return not self.mask.array.all() if isinstance(self.mask, FrozenArray) else self.mask is not None

    def refuse_blind_rows(self) -> None:
        """Raise ParameterError if a row sees no key, which for the named masks is row 0 if any."""
        for start, stop in self._blocks(1 if self._name else self.tokens):
            blind = ~self.visible(start, stop).any(axis=1)
            if blind.any():
                named = f" (query i stands at position i + keys - tokens = i + {self._offset} among the keys)"
                raise ParameterError(
                    f"mask must let every row see a key; got {self.mask!r}, by which row "
                    f"{start + int(np.argmax(blind))} of {self.tokens} sees none of the {self.keys} keys"
                    + (named if self._name and self._offset else "")
                )

    def visible(self, start: int, stop: int) -> Booleans:
        """Which keys rows start, …, stop - 1 see, shape (stop - start, keys)."""
        shape = (stop - start, self.keys)
        if self.mask is None:
            return np.ones(shape, dtype=np.bool_)
        if isinstance(self.mask, FrozenArray):
            return self.mask.array[start:stop].copy()
        if callable(self.mask):
            x = (np.arange(start, stop)[:, None] + 0.5) / self.tokens
            y = (np.arange(self.keys)[None, :] + 0.5) / self.keys
            raw = np.asarray(self.mask(x, y))
            try:
                if raw.dtype != np.bool_:
                    raise ValueError
                return np.broadcast_to(raw, shape).copy()
            except ValueError as error:
                raise ParameterError(
                    f"mask, a function, must return booleans that broadcast to the shape of its arguments, {x.shape} "
                    f"and {y.shape}; got {raw.dtype} numbers of shape {raw.shape}"
                ) from error
        position = np.arange(start, stop)[:, None] + self._offset
        key = np.arange(self.keys)
        if self._name == "block":
            same: Booleans = position // self._size == key // self._size
            return same
        low, high = self.reach()
        relative = position - key
        seen: Booleans = (low <= relative) & (relative <= high)
        return seen

    def log_weights(self, start: int, stop: int) -> Array:
        """b_ij where row i sees key j and -inf elsewhere, rows start, …, stop - 1: shape (stop - start, keys)."""
        bias: Array | float = 0.0
        if isinstance(self.bias, FrozenArray):
            bias = self.bias.array[start:stop]
        elif self._by_relative_position is not None:
            bias = self._by_relative_position[self.tokens - stop : self.tokens - start][::-1]
        return np.where(self.visible(start, stop), bias, -np.inf)

    def mean_rows(self, start: int, stop: int) -> Array:
        """Rows start, …, stop - 1 of Ā, shape (stop - start, keys), each of sum one; safe against overflow."""
        if self.bias is None:
            weights = self.visible(start, stop).astype(np.float64)
        else:
            weights = self.log_weights(start, stop)
            with np.errstate(over="ignore"):
                weights -= weights.max(axis=1, keepdims=True)
            np.exp(weights, out=weights)
        weights /= weights.sum(axis=1, keepdims=True)
        return weights

    def effective_keys(self) -> Array:
        """1/Σ_j Ā_ij², shape (tokens,): the number of keys that row i sees, if it weights them alike."""
        if self.kind == "causal":
            weights = np.exp(-self.slope * np.arange(self.keys))
            causal: Array = np.cumsum(weights) ** 2 / np.cumsum(weights**2)
            return causal
        return np.concatenate([1 / (self.mean_rows(*rows) ** 2).sum(axis=1) for rows in self.blocks()])

    def cell_averages(self, row_edges: Any, column_edges: Any) -> tuple[Array, Array]:
        """Averages of keys·Ā_ij and of (keys·Ā_ij)² over cells of tokens, each (row cells, column cells).

        Parameters
        ----------
        row_edges, column_edges : strictly ascending integers from 0 to tokens and from 0 to keys: cell p holds the rows
            row_edges[p], …, row_edges[p + 1] - 1.

        Raises
        ------
        ParameterError : the edges are not such integers.
        """
        first, second = self.cell_moments(row_edges, column_edges, 1)
        return first[0, 0], second

    def cell_moments(self, row_edges: Any, column_edges: Any, order: int) -> tuple[Array, Array]:
        """Averages of φ_a keys·Ā_ij φ_b over cells, (order, order, row cells, column cells), and of (keys·Ā_ij)².

        φ_a is the Legendre polynomial of degree a on a cell's tokens, of mean square one as a function of position.

        Parameters
        ----------
        row_edges, column_edges : as in `cell_averages`.
        order : number of polynomials.

        Raises
        ------
        ParameterError : the edges are not such integers.
        """
        rows = _edges("row_edges", row_edges, self.tokens)
        columns = _edges("column_edges", column_edges, self.keys)
        cell = np.repeat(np.arange(len(rows) - 1), np.diff(rows))
        left, right = _polynomials(rows, order), _polynomials(columns, order)
        first = np.zeros((order, order, len(rows) - 1, len(columns) - 1))
        second = np.zeros(first.shape[2:])
        for start, stop in self.blocks():
            mean = self.mean_rows(start, stop)
            mean *= self.keys
            for b in range(order):
                sums = np.add.reduceat(mean * right[b], columns[:-1], axis=1)
                for a in range(order):
                    np.add.at(first[a, b], cell[start:stop], left[a, start:stop, None] * sums)
            mean *= mean
            np.add.at(second, cell[start:stop], np.add.reduceat(mean, columns[:-1], axis=1))
        size = np.outer(np.diff(rows), np.diff(columns))
        return first / size, second / size

    def blocks(self) -> Iterator[tuple[int, int]]:
        """(start, stop) of blocks of rows that cover all, of a few million entries each."""
        return self._blocks(self.tokens)

    def _blocks(self, rows: int) -> Iterator[tuple[int, int]]:
        return row_blocks(rows, self.keys, _BLOCK)

    def reach(self) -> tuple[int, int]:
        """Smallest and largest position minus key that may be visible."""
        low, high = 1 - self.tokens, self.keys - 1
        if self._name == "causal":
            low = 0
        elif self._name == "window":
            low, high = 0, min(high, self._size - 1)
        elif self._name in ("two-sided", "block"):
            low, high = max(low, 1 - self._size), min(high, self._size - 1)
        return low, high

    def _bias_rows(self, bias: float | BiasFunction) -> Array:
        """A view of which row tokens - 1 - i is the bias of row i; zero where the mask never lets a key be seen."""
        relative = np.arange(self.keys - 1, -self.tokens, -1)
        values = np.zeros(relative.shape)
        low, high = self.reach()
        reached = (low <= relative) & (relative <= high)
        values[reached] = (
            -bias * abs(relative[reached]) if isinstance(bias, float) else _called(bias, relative[reached])
        )
        return np.lib.stride_tricks.sliding_window_view(values, self.keys)


def _called(bias: BiasFunction, relative: NDArray[np.int64]) -> Array:
    with np.errstate(all="ignore"):  # what is not finite is looked at below
        raw = np.asarray(bias(relative))
    if raw.dtype.kind not in "fiu" or raw.shape not in ((), relative.shape):
        raise ParameterError(
            "bias, a function, must map an array of relative positions to real numbers of the same shape; for shape "
            f"{relative.shape} it gave {raw.dtype} numbers of shape {raw.shape}"
        )
    values = np.broadcast_to(raw, relative.shape).astype(np.float64)
    if not np.isfinite(values).all():
        where = int(np.argmin(np.isfinite(values)))
        raise ParameterError(
            f"bias, a function, must be finite at every relative position that the mask allows; it is "
            f"{float(values[where])!r} at {int(relative[where])}"
        )
    return values


def _edges(name: str, value: Any, end: int) -> NDArray[np.int64]:
    array = _checks.real_array(name, value)
    good = array.ndim == 1 and array.size >= 2 and array[0] == 0 and array[-1] == end
    if not good or (np.diff(array) <= 0).any() or (array != np.floor(array)).any():
        raise ParameterError(f"{name} must be strictly ascending integers from 0 to {end}; got {value!r}")
    return array.astype(np.int64)


def _polynomials(edges: NDArray[np.int64], order: int) -> Array:
    """Legendre polynomials of mean square one on each cell, at the middles of its tokens: shape (order, tokens)."""
    widths = np.repeat(np.diff(edges), np.diff(edges))
    y = 2 * (np.arange(edges[-1]) + 0.5 - np.repeat(edges[:-1], np.diff(edges))) / widths - 1
    values = np.polynomial.legendre.legvander(y, order - 1).T
    return np.asarray(values * np.sqrt(2 * np.arange(order)[:, None] + 1))


def _described(value: Any, array: NDArray[Any]) -> str:
    return f"an array of shape {array.shape}" if array.ndim else repr(value)
