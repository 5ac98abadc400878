r"""Attention as a linear map: √keys (A - Ā) applied to blocks of vectors, a tile at a time; A is never stored.

A needs its factors and one number a row, log Z_i, found in a first pass with the largest score of each row taken out:

.. math:: A_{ij} = \exp(\beta S_{ij} + b_{ij} - \log Z_i), \qquad S = L R^T .

As another column of L that number costs nothing: a tile is a product of matrices, its exponential, and less Ā. Knowing
Z, tiles may be blocks of rows or of columns, so that either Gram matrix takes a vector in one pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gequiv import _checks
from gequiv._checks import Array
from gequiv.attention import ensemble
from gequiv.attention.masks import row_blocks
from gequiv.attention.score import score_function
from gequiv.errors import CertificationError, ParameterError

if TYPE_CHECKING:
    from gequiv.attention.parameters import Attention

TILE = 2**21
"""Numbers in a tile on the CPU."""
DEVICE_TILE = 2**27
"""Numbers in a tile on another device."""


class AttentionOperator:
    r"""B = √keys (A - Ā), or √keys A, of one draw: shape (tokens, keys), applied without being formed.

    Memory: O((tokens + keys)(d_k + vectors)) and one tile, of which a mask or bias takes up to four more; time: a pass
    is 2 tokens·keys (d_k + 1 + 2 vectors) operations and as many exponentials as A has entries. Keys out of the
    reach of a causal or windowed mask are left out.

    Parameters
    ----------
    head : the `Attention`.
    rng : numpy Generator, or an int that seeds one: the factors are then those of ``head.sample(rng)``.
    factors : L (tokens, r) and R (keys, r) with S = L Rᵀ, in place of drawn ones.
    centered : False for √keys A.
    dtype : "float64" or "float32", of the tiles. What goes in and comes out is float64, and so are sums over tiles.
    device : None for numpy; a device of torch such as "cuda" (pip install 'gequiv[torch]').
    tile : numbers in a tile; None for 2²¹, 2²⁷ on a device other than the CPU.

    Attributes
    ----------
    shape : (tokens, keys).
    left, right : L and R.

    Raises
    ------
    ParameterError : neither or both of rng and factors are given, or either is not as above; dtype, device or tile is
        out of range; or a head with a score function, which numpy evaluates, is to go on a device.
    CertificationError : from every product, a row of the score function sums to nothing positive.
    """

    def __init__(
        self,
        head: Attention,
        rng: Any = None,
        *,
        factors: tuple[Any, Any] | None = None,
        centered: bool = True,
        dtype: str = "float64",
        device: Any = None,
        tile: int | None = None,
    ) -> None:
        from gequiv.attention.parameters import Attention

        if not isinstance(head, Attention):
            raise ParameterError(f"head must be a gequiv.Attention; got {head!r}")
        if (rng is None) == (factors is None):
            raise ParameterError(f"give rng or factors, and not both; got rng={rng!r}, factors={factors!r}")
        ensemble.check_dtype(dtype)
        self.head, self.centered = head, bool(centered)
        self.shape = (head.tokens, head.columns)
        if factors is None:
            self.left, self.right = ensemble.draw_factors(head, _checks.generator(rng))
        else:
            self.left, self.right = _factors(factors, self.shape)
        self._backend = _Numpy(dtype) if device is None else _Torch(dtype, device)
        if device is not None and head.score is not None:
            raise ParameterError(f"device must be None with a score function, which numpy evaluates; got {device!r}")
        usual = TILE if self._backend.on_cpu else DEVICE_TILE
        self._numbers = max(*self.shape, usual if tile is None else _checks.positive_integer("tile", tile))
        self._visibility = head.visibility
        self._function = None if head.score is None else score_function(head.score, head.beta)
        scale = head.beta if self._function is None else 1.0
        self._left = self._backend.array(np.column_stack([scale * self.left, np.zeros(head.tokens)]))
        self._right = self._backend.array(np.column_stack([self.right, np.ones(head.columns)]))
        self._buffer = self._backend.empty(self._numbers)
        self._root = math.sqrt(head.columns)

    # -- products ----------------------------------------------------------------------------------

    def matmat(self, vectors: Any) -> Array:
        """B V, shape (tokens, p), for V of shape (keys, p); or (tokens,) for (keys,)."""
        given, shape = self._block(vectors, 1)
        found = self._backend.zeros((self.shape[0], given.shape[1]))
        for rows, columns, tile in self._tiles():
            found[rows] += tile @ given[columns]
        return (self._root * self._backend.numpy(found)).reshape(self.shape[0], *shape)

    def rmatmat(self, vectors: Any) -> Array:
        """Bᵀ U, shape (keys, p), for U of shape (tokens, p); or (keys,) for (tokens,)."""
        given, shape = self._block(vectors, 0)
        found = self._backend.zeros((self.shape[1], given.shape[1]))
        for rows, columns, tile in self._tiles():
            found[columns] += tile.T @ given[rows]
        return (self._root * self._backend.numpy(found)).reshape(self.shape[1], *shape)

    def gram(self, vectors: Any) -> Array:
        """The smaller Gram matrix times V, of the shape of V, (order, p) or (order,): B Bᵀ if tokens < keys, else Bᵀ B.

        One pass over the tiles; two for B Bᵀ under a mask or bias, which are known by rows.
        """
        wide = self.shape[0] < self.shape[1]
        if wide and self._visibility is not None:
            return self.matmat(self.rmatmat(vectors))
        given, shape = self._block(vectors, 0 if wide else 1)
        found = self._backend.zeros(tuple(given.shape))
        for _, columns, tile in self._tiles(by_columns=wide):
            if wide:
                found += tile @ (tile.T @ given)
            else:
                found[columns] += tile.T @ (tile @ given[columns])
        return (float(self.shape[1]) * self._backend.numpy(found)).reshape(self.order, *shape)

    @property
    def order(self) -> int:
        """Of the matrix that `gram` applies: the smaller of tokens and keys."""
        return min(self.shape)

    def squared_singular_values(self, method: str) -> Array:
        """All of them, ascending, one a row, by "gram" or "svd" on the operator's device, for which B is stored."""
        backend, (tokens, keys) = self._backend, self.shape
        whole = backend.empty(tokens * keys).reshape(self.shape)
        whole[...] = 0
        for rows, columns, tile in self._tiles():
            whole[rows, columns] = tile
        whole *= self._root
        if method == "svd":
            found = backend.numpy(backend.xp.linalg.svdvals(whole)) ** 2
        else:
            gram = whole @ whole.T if tokens <= keys else whole.T @ whole
            found = backend.numpy(backend.xp.linalg.eigvalsh(gram))
        return np.concatenate([np.zeros(max(0, tokens - keys)), np.sort(np.maximum(found, 0))])

    # -- rows --------------------------------------------------------------------------------------

    def row_statistics(self) -> dict[str, Array]:
        r"""Statistics of the rows of A, arrays of shape (tokens,), found in the pass that normalises the rows.

        "log_normaliser" : :math:`\log \sum_j \bar A_{ij} e^{\beta S_{ij}} - s^2/2`, s² the variance of β S_ij: the
            logarithm of the normaliser over its Gaussian mean; with a score function
            :math:`\log \sum_j \bar A_{ij} f(\beta S_{ij})/E f`.
        "participation" : Σ_j A_ij². "energy_participation" : Σ_j A_ij⁴/(Σ_j A_ij²)². "largest" : max_j A_ij.
        """
        return {name: values.copy() for name, values in self._normalised.items()}

    @cached_property
    def _normalised(self) -> dict[str, Array]:
        """The statistics; puts -log Z into the last column of L, or keeps 1/Z of a score function."""
        head, backend, tokens = self.head, self._backend, self.shape[0]
        kept = {name: np.empty(tokens) for name in ("log_sum", "visible", *STATISTICS[1:])}
        for start, stop, columns in self._row_blocks():
            rows = slice(start, stop)
            tile, mean = self._scores(rows, columns)
            if self._function is None:
                top = backend.xp.amax(tile, axis=1)
                tile -= top[:, None]
                backend.xp.exp(tile, out=tile)
                sums = tile.sum(axis=1)
                kept["log_sum"][rows] = backend.numpy(top) + np.log(backend.numpy(sums))
            else:
                sums = tile.sum(axis=1, dtype=np.float64)
                self._refuse_sums(sums, start)
                kept["log_sum"][rows] = np.log(sums)
                sums = sums.astype(tile.dtype)
            kept["visible"][rows] = math.log(self.shape[1]) if mean is None else mean[1]
            tile /= sums[:, None]
            kept["largest"][rows] = backend.numpy(backend.xp.amax(tile, axis=1))
            tile *= tile
            square = backend.numpy(tile.sum(axis=1))
            tile *= tile
            kept["participation"][rows] = square
            kept["energy_participation"][rows] = backend.numpy(tile.sum(axis=1)) / square**2
        log_sum, visible = kept.pop("log_sum"), kept.pop("visible")
        if self._function is None:
            self._left[:, -1] = backend.array(-log_sum)
            variance = (head.beta * head.spread) ** 2
            if head.weights is not None:
                variance += head.weights.column_bias_variance
            expected = variance / 2
        else:
            self._inverse_sums = np.exp(-log_sum).astype(backend.dtype)
            expected = math.log(head.linear_model().mean)  # type: ignore[union-attr]
        return {"log_normaliser": log_sum - visible - expected, **kept}

    def _refuse_sums(self, sums: Array, start: int) -> None:
        good = np.isfinite(sums) & (sums > 0)
        if not good.all():
            row = int(np.argmin(good))
            raise CertificationError(
                f"row {start + row} of f(beta S) sums to {float(sums[row])!r} and cannot be normalised: take "
                "more keys, or a score that vanishes or turns negative less often"
            )

    # -- tiles -------------------------------------------------------------------------------------

    def _tiles(self, by_columns: bool = False) -> Iterator[tuple[slice, slice, Any]]:
        """Tiles of A - Ā, or of A, that cover it; each lives until the next."""
        _ = self._normalised
        tokens, keys = self.shape
        if by_columns:
            for start, stop in row_blocks(keys, tokens, self._numbers):
                columns, rows = slice(start, stop), slice(0, tokens)
                yield rows, columns, self._attention(rows, columns)
        else:
            for start, stop, columns in self._row_blocks():
                rows = slice(start, stop)
                yield rows, columns, self._attention(rows, columns)

    def _row_blocks(self) -> Iterator[tuple[int, int, slice]]:
        tokens, keys = self.shape
        low, high = (-keys, tokens + keys) if self._visibility is None else self._visibility.reach()
        offset = keys - tokens
        for start, stop in row_blocks(tokens, keys, self._numbers):
            first, last = max(0, start + offset - high), min(keys, stop + offset - low)
            yield start, stop, slice(first, last)

    def _scores(self, rows: slice, columns: slice) -> tuple[Any, tuple[Any, Any] | None]:
        """β S + b - log Z, -inf where hidden, or f(β S); and Ā with log Σ_j e^{b_ij - max b}, or None if uniform."""
        backend = self._backend
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        tile = self._buffer[: shape[0] * shape[1]].reshape(shape)
        backend.xp.matmul(self._left[rows], self._right[columns].T, out=tile)
        if self._function is not None:
            tile[...] = self._function(tile)
        if self._visibility is None:
            return tile, None
        visible = None
        if self._visibility.bias is None:
            visible = self._visibility.visible(rows.start, rows.stop)[:, columns]
            counts = visible.sum(axis=1)
            mean = visible / counts[:, None]
            backend.fill(tile, ~visible, 0.0 if self._function is not None else -math.inf)
            return tile, (mean, np.log(counts))
        weights = self._visibility.log_weights(rows.start, rows.stop)[:, columns]
        with np.errstate(over="ignore"):
            weights -= weights.max(axis=1, keepdims=True)
        tile += backend.array(weights)
        np.exp(weights, out=weights)
        sums = weights.sum(axis=1)
        weights /= sums[:, None]
        return tile, (weights, np.log(sums))

    def _attention(self, rows: slice, columns: slice) -> Any:
        tile, mean = self._scores(rows, columns)
        if self._function is None:
            self._backend.xp.exp(tile, out=tile)
        else:
            tile *= self._inverse_sums[rows, None]
        if self.centered:
            tile -= 1 / self.shape[1] if mean is None else self._backend.array(mean[0])
        return tile

    def _block(self, vectors: Any, side: int) -> tuple[Any, tuple[int, ...]]:
        """Vectors as a matrix of the backend's, and what their shape has beyond its first number."""
        array, size = _checks.real_array("vectors", vectors), self.shape[side]
        if array.ndim not in (1, 2) or array.shape[0] != size or array.size == 0:
            raise ParameterError(f"vectors must have shape ({size},) or ({size}, p), p >= 1; got {array.shape}")
        return self._backend.array(array.reshape(size, -1)), array.shape[1:]


STATISTICS = ("log_normaliser", "participation", "energy_participation", "largest")


class _Numpy:
    """What the operator asks of an array library, by numpy."""

    xp: Any = np
    on_cpu = True

    def __init__(self, dtype: str) -> None:
        self.dtype = np.dtype(dtype)

    def array(self, values: Array) -> Any:
        return np.ascontiguousarray(values, dtype=self.dtype)

    def empty(self, size: int) -> Any:
        return np.empty(size, dtype=self.dtype)

    def zeros(self, shape: tuple[int, ...]) -> Any:
        return np.zeros(shape)

    def numpy(self, values: Any) -> Array:
        return np.asarray(values, dtype=np.float64)

    def fill(self, tile: Any, where: Any, value: float) -> None:
        np.copyto(tile, value, where=where)


class _Torch(_Numpy):
    """The same by torch, on a device."""

    def __init__(self, dtype: str, device: Any) -> None:
        try:
            import torch
        except ImportError as error:
            raise ParameterError(
                f"device must be None without torch; got {device!r}. To have it: pip install 'gequiv[torch]'"
            ) from error
        super().__init__(dtype)
        self.xp = torch
        self.kind = torch.float64 if dtype == "float64" else torch.float32
        try:
            self.device = torch.device(device)
            torch.zeros(1, dtype=torch.float64, device=self.device)
        except (RuntimeError, TypeError, AssertionError) as error:
            raise ParameterError(f"device must be None or a device that torch has here; got {device!r}") from error
        self.on_cpu = self.device.type == "cpu"

    def array(self, values: Array) -> Any:
        return self.xp.as_tensor(np.ascontiguousarray(values)).to(self.device, self.kind)

    def empty(self, size: int) -> Any:
        return self.xp.empty(size, dtype=self.kind, device=self.device)

    def zeros(self, shape: tuple[int, ...]) -> Any:
        return self.xp.zeros(shape, dtype=self.xp.float64, device=self.device)

    def numpy(self, values: Any) -> Array:
        return np.asarray(values.to("cpu", self.xp.float64).numpy())

    def fill(self, tile: Any, where: Any, value: float) -> None:
        tile.masked_fill_(self.xp.as_tensor(where).to(self.device), value)


def _factors(factors: Any, shape: tuple[int, int]) -> tuple[Array, Array]:
    try:
        left, right = factors
    except (TypeError, ValueError) as error:
        raise ParameterError(f"factors must be two matrices; got {factors!r}") from error
    left, right = _checks.real_array("factors", left), _checks.real_array("factors", right)
    good = left.ndim == right.ndim == 2 and (len(left), len(right)) == shape and left.shape[1] == right.shape[1] > 0
    if not good or not (np.isfinite(left).all() and np.isfinite(right).all()):
        raise ParameterError(
            f"factors must be finite matrices of shapes ({shape[0]}, r) and ({shape[1]}, r); got shapes {left.shape} "
            f"and {right.shape}"
        )
    return left, right
