"""Attention matrices as models and files give them: arrays, tensors, lists of layers, .npy, .npz and .safetensors."""

from __future__ import annotations

import importlib
import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gequiv import _checks
from gequiv._checks import Array
from gequiv.errors import InputFileError, ParameterError

_SHAPES = "(n_q, n_k), (heads, n_q, n_k), (layers, heads, n_q, n_k) or (layers, 1, heads, n_q, n_k)"
_LAYER_SHAPES = "(heads, n_q, n_k) or (1, heads, n_q, n_k)"
_SIZES = "at least one layer, one head and two tokens on either side"
_DTYPES = "float16, bfloat16, float32, float64 or integers"
_EAGER = (
    "; a model of transformers gives its attention only if loaded with attn_implementation='eager' and called with "
    "output_attentions=True"
)
_SUFFIXES = ".npy, .npz or .safetensors"
_FROM_SAFETENSORS = {
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    **{f"{sign}{bits}": f"{kind}{bits}" for sign, kind in (("I", "int"), ("U", "uint")) for bits in (8, 16, 32, 64)},
}


@dataclass(frozen=True)
class _Layer:
    """The heads of one layer within `stored`, which gives the head that `axes` and its number index."""

    stored: Any
    axes: tuple[int, ...]
    shape: tuple[int, int, int]
    has_head_axis: bool
    raw_bfloat16: bool

    def load(self, head: int) -> Array:
        part = self.stored[(*self.axes, head) if self.has_head_axis else self.axes]
        if _is_torch(part):
            part = part.detach().cpu().double().numpy()
        elif self.raw_bfloat16:  # the upper halves of float32 numbers
            part = (np.asarray(part).astype(np.uint32) << 16).view(np.float32)
        return np.array(part, dtype=np.float64, order="C")


@dataclass(frozen=True)
class HeadSource:
    """The heads of one model on one input; one is in memory as float64 at a time, made when it is asked for.

    Iteration yields (layer, head, matrix), the matrix a new float64 array of shape (n_q, n_k); `len` counts heads.

    Attributes
    ----------
    source : "array", "tensor", or the name of the file (and of the array in it).
    dtype : of what was given: "float16", "bfloat16", "float32", …
    layered : whether a layer was told apart: a list of layers, or an array with a layer axis.
    """

    source: str
    dtype: str
    layered: bool
    _layers: tuple[_Layer, ...] = field(repr=False)

    @property
    def layers(self) -> int:
        """Number of layers, one if none were told apart."""
        return len(self._layers)

    @property
    def heads(self) -> tuple[int, ...]:
        """Number of heads of each layer."""
        return tuple(layer.shape[0] for layer in self._layers)

    def shape(self, layer: int) -> tuple[int, int, int]:
        """(heads, n_q, n_k) of a layer, counted from 0.

        Raises
        ------
        ParameterError : there is no such layer.
        """
        return self._layers[_checks.index("layer", layer, self.layers)].shape

    def load(self, layer: int, head: int) -> Array:
        """One head as a new float64 array of shape (n_q, n_k).

        Raises
        ------
        ParameterError : there is no such layer or head.
        """
        heads = self.shape(layer)[0]
        return self._layers[int(layer)].load(_checks.index("head", head, heads))

    def __len__(self) -> int:
        return sum(self.heads)

    def __iter__(self) -> Iterator[tuple[int, int, Array]]:
        for number, layer in enumerate(self._layers):
            for head in range(layer.shape[0]):
                yield number, head, layer.load(head)


def heads_of(attention: Any, *, key: str | None = None) -> HeadSource:
    """The heads in `attention`, read lazily.

    Parameters
    ----------
    attention : an array, nested list or torch tensor of shape (n_q, n_k), (heads, n_q, n_k), (layers, heads, n_q, n_k)
        or (layers, 1, heads, n_q, n_k); a list or tuple with one array or tensor per layer, of shape (heads, n_q, n_k)
        or (1, heads, n_q, n_k), as transformers returns it; or the path of a .npy, .npz or .safetensors file. Files
        are read head by head, but a .npz, which does not allow it.
    key : name of the array in a .npz or .safetensors file that holds several.

    Raises
    ------
    ParameterError : attention is none of these, has another shape or dtype, or more than one input in its batch; key
        does not name an array; or the file needs the package safetensors, which is missing.
    InputFileError : the file cannot be read.
    """
    if isinstance(attention, (str, os.PathLike)):
        return _from_file(Path(os.fspath(attention)), key)
    if key is not None:
        raise ParameterError(f"key must be None unless attention is the path of a .npz or .safetensors; got {key!r}")
    if isinstance(attention, (list, tuple)) and any(_is_layer(item) for item in attention):
        return _from_layers(attention)
    if _is_torch(attention):
        return _source(attention, "tensor")
    return _source(_numpy(attention), "array")


def _is_torch(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")


def _is_layer(item: Any) -> bool:
    """Whether an item of a list is a layer, or nothing in place of one, rather than rows of a nested list."""
    return item is None or _is_torch(item) or getattr(item, "ndim", 0) > 1


def _holds_layers(item: Any) -> bool:
    inner = item if isinstance(item, (list, tuple)) else ()
    return any(_is_torch(array) or getattr(array, "ndim", 0) > 2 for array in inner)


def _numpy(value: Any) -> NDArray[Any]:
    if value is None or (isinstance(value, (list, tuple)) and not value):
        raise ParameterError(f"attention must be an array, a tensor, a list of layers or a path; got {value!r}{_EAGER}")
    if isinstance(value, (list, tuple)) and any(_holds_layers(item) for item in value[:1]):
        raise ParameterError(
            "attention must have one array or tensor per layer; got a list of lists of them, as transformers' generate "
            "returns, one per step: pass one of its items"
        )
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"attention must be an array of shape {_SHAPES}, or a list of layers; got a {type(value).__name__} that is "
            f"ragged or holds something else than numbers"
        ) from error


def _from_layers(items: Sequence[Any]) -> HeadSource:
    layers, dtypes = [], []
    for number, item in enumerate(items):
        name = f"layer {number} of attention"
        if item is None:
            raise ParameterError(f"{name} must be an array or tensor; got None{_EAGER}")
        array = item if _is_torch(item) else _numpy(item)
        shape = tuple(array.shape)
        if len(shape) == 4 and shape[0] > 1:
            raise ParameterError(f"{name} must have a batch of one; got shape {shape}: select one input")
        if len(shape) not in (3, 4):
            raise ParameterError(f"{name} must have shape {_LAYER_SHAPES}; got {shape}")
        dtypes.append(_dtype(array, name))
        _refuse_sizes(name, shape, _LAYER_SHAPES)
        axes = (0,) if len(shape) == 4 else ()
        layers.append(_layer(array, axes, shape[-3:], dtypes[-1]))
    if len(set(dtypes)) > 1:
        raise ParameterError(f"attention must have one dtype for all layers; got {', '.join(sorted(set(dtypes)))}")
    return HeadSource("tensor" if _is_torch(items[0]) else "array", dtypes[0], True, tuple(layers))


def _source(array: Any, source: str, dtype: str | None = None, shape: Sequence[int] | None = None) -> HeadSource:
    """The heads of one array, tensor or slice of a file; `dtype` and `shape` are for what does not tell its own."""
    shape = tuple(array.shape if shape is None else shape)
    if dtype is None:
        dtype = _dtype(array, "attention")
    _refuse_sizes("attention", shape, _SHAPES)
    if len(shape) == 5 and shape[1] != 1:
        raise ParameterError(
            f"attention must have a batch of one, its second axis; got shape {shape}: select one input"
        )
    if len(shape) not in (2, 3, 4, 5):
        raise ParameterError(f"attention must have shape {_SHAPES}; got {shape}")
    if len(shape) < 4:
        whole = shape if len(shape) == 3 else (1, *shape)
        return HeadSource(source, dtype, False, (_layer(array, (), whole, dtype, len(shape) == 3),))
    batch = (0,) if len(shape) == 5 else ()
    layers = tuple(_layer(array, (number, *batch), shape[-3:], dtype) for number in range(shape[0]))
    return HeadSource(source, dtype, True, layers)


def _layer(stored: Any, axes: tuple[int, ...], shape: Sequence[int], dtype: str, has_head_axis: bool = True) -> _Layer:
    heads, queries, keys = map(int, shape)
    raw = dtype == "bfloat16" and getattr(stored, "dtype", None) == np.uint16
    return _Layer(stored, axes, (heads, queries, keys), has_head_axis, raw)


def _refuse_sizes(name: str, shape: Sequence[int], allowed: str) -> None:
    if len(shape) >= 2 and (min(shape) < 1 or min(shape[-2:]) < 2):
        raise ParameterError(
            f"{name} must have shape {allowed} with {_SIZES}; got {tuple(shape)}"
            + (", over one token" if min(shape) == 1 else "")
        )


def _dtype(array: Any, name: str) -> str:
    """Name of the dtype of an array or tensor, refused if its entries are not real numbers in its own memory."""
    if _is_torch(array):
        dtype = str(array.dtype).removeprefix("torch.")
        if str(array.layout) != "torch.strided" or array.device.type == "meta":
            raise ParameterError(
                f"{name} must be a dense tensor with data; got layout {array.layout} on device {array.device}"
            )
        good = dtype in ("bfloat16", "float16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64")
    else:
        dtype = str(array.dtype.name)
        good = array.dtype.kind in "iuf" or dtype == "bfloat16"  # the latter is registered by other packages
    if not good:
        raise ParameterError(f"{name} must hold real numbers ({_DTYPES}); got {dtype} of shape {tuple(array.shape)}")
    return dtype


def _from_file(path: Path, key: str | None) -> HeadSource:
    readers = {".npy": _from_npy, ".npz": _from_npz, ".safetensors": _from_safetensors}
    suffix = path.suffix.lower()
    if suffix not in readers:
        raise ParameterError(f"attention, a path, must end in {_SUFFIXES}; got {str(path)!r}")
    if key is not None and (suffix == ".npy" or not isinstance(key, str)):
        raise ParameterError(f"key must be None for a .npy, else the name of an array; got {key!r} for {path.name!r}")
    try:
        return readers[suffix](path, key)
    except (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, (ParameterError, InputFileError)):
            raise
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise InputFileError(f"attention cannot be read from {str(path)!r}: {reason}") from error


def _from_npy(path: Path, key: str | None) -> HeadSource:
    try:
        array = np.load(path, mmap_mode="r")
    except ValueError as error:
        if "Python objects" not in str(error):
            raise
        raise ParameterError(f"attention must hold real numbers ({_DTYPES}); got objects in {path.name!r}") from error
    if not isinstance(array, np.ndarray):
        array.close()
        raise InputFileError(f"attention cannot be read from {str(path)!r}: it is a .npz by another name")
    return _source(array, path.name)


def _from_npz(path: Path, key: str | None) -> HeadSource:
    archive = np.load(path)
    if isinstance(archive, np.ndarray):
        raise InputFileError(f"attention cannot be read from {str(path)!r}: it is a .npy by another name")
    with archive:
        key = _key(key, archive.files, path)
        try:
            array = archive[key]
        except ValueError as error:
            if "Object arrays" not in str(error):
                raise
            raise ParameterError(f"attention must hold real numbers ({_DTYPES}); got objects in {key!r}") from error
    if not isinstance(array, np.ndarray):
        raise InputFileError(f"attention cannot be read from {str(path)!r}: {key!r} in it is not a NumPy array")
    return _source(array, f"{path.name}[{key}]")


def _from_safetensors(path: Path, key: str | None) -> HeadSource:
    try:
        safetensors = importlib.import_module("safetensors")
    except ImportError as error:
        raise ParameterError(
            f"attention in a .safetensors file needs the package safetensors: pip install 'gequiv[models]'; got "
            f"{path.name!r}"
        ) from error
    try:
        file = safetensors.safe_open(os.fspath(path), framework="numpy")
    except safetensors.SafetensorError as error:
        raise InputFileError(f"attention cannot be read from {str(path)!r}: {error}") from error
    key = _key(key, list(file.keys()), path)
    part = file.get_slice(key)
    shape, stored = part.get_shape(), part.get_dtype()
    if stored not in _FROM_SAFETENSORS:
        raise ParameterError(f"attention must hold real numbers ({_DTYPES}); got {stored} of shape {tuple(shape)}")
    dtype = _FROM_SAFETENSORS[stored]
    if dtype == "bfloat16" and 0 not in shape:  # which the library does not give as NumPy arrays
        part = _mapped(path, key, shape)
    return _source(part, f"{path.name}[{key}]", dtype, shape)


def _mapped(path: Path, key: str, shape: Sequence[int]) -> NDArray[np.uint16]:
    """The two-byte numbers of a tensor in a valid .safetensors file: length of the header, header, data."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        start = json.loads(file.read(length))[key]["data_offsets"][0]
    return np.memmap(path, dtype="<u2", mode="r", offset=8 + length + start, shape=tuple(shape))


def _key(key: str | None, names: Sequence[str], path: Path) -> str:
    if not names:
        raise ParameterError(f"attention must be a file that holds an array; got {path.name!r}, which holds none")
    if key is None and len(names) == 1:
        return names[0]
    if key is None or key not in names:
        listed = ", ".join(map(repr, sorted(names)[:20])) + (", …" if len(names) > 20 else "")
        raise ParameterError(f"key must name one of the arrays in {path.name!r}: {listed}; got {key!r}")
    return key
