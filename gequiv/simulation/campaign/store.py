"""Where a campaign's results lie: one checked file a record, written at once or not at all."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gequiv._checks import Array
from gequiv.errors import InputFileError, ParameterError, StorageError
from gequiv.simulation.campaign.model import Campaign

KINDS = ("draws", "comparisons")
"""Kinds of records; each has a folder of its name."""
CAMPAIGN_FILE = "campaign.toml"
"""Name of the copy of the campaign file."""
NAME_FILE = ".campaign-name"
"""Name of the file that holds the campaign's name, which goes by that of its file."""

_MARK = ".gequiv-campaign"
_MARK_TEXT = b"gequiv campaign folder, format 1\n"
_MAGIC = b"gequiv record 1 "
_SUFFIXES = {"draws": ".draw", "comparisons": ".comparison"}
_KEY = re.compile(r"[0-9a-f]{64}")
_TEMPORARY = re.compile(r".+\.[0-9]+-[0-9a-f]{16}\.tmp")
_ATTEMPTS = 5
_FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}


@dataclass(frozen=True)
class Cleaned:
    """What `Store.clean` or `Store.remove_all` took away.

    Attributes
    ----------
    draws, comparisons : sound records that were asked for no more.
    damaged : truncated or corrupt records.
    temporary : left-overs of runs that were killed while writing.
    bytes : sizes of all of these together.
    """

    draws: int
    comparisons: int
    damaged: int
    temporary: int
    bytes: int


class Store:
    """A campaign's folder: records by kind and key, a copy of the campaign file, and its name.

    A record is a dict of float64 arrays in FOLDER/KIND/ab/KEY.suffix, where the key has 64 hexadecimal digits and
    begins with ab. The file has a line with the SHA-256 of all that follows, a line of JSON with kind, key, names and
    shapes, and the numbers themselves, little-endian. What does not agree with its checksum, or lies under another
    key's name, is as if it were not there; writing the record again replaces it. Files appear whole or not at all, so
    that any number of processes may use one store at once.

    Parameters
    ----------
    folder : where it lies; nothing is made before `prepare` or `put`.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._damaged: set[tuple[str, str]] = set()

    # -- the folder ---------------------------------------------------------------------------------

    def prepare(self, source: str, name: str = "campaign") -> None:
        """Make the folder, if need be, and keep `source`, the text of the campaign file, and the name in it.

        Those of another campaign are replaced. Its draws stay, as they go by what they depend on and not by the
        campaign.

        Raises
        ------
        InputFileError : the folder has other files in it and is no campaign's, or is of another format.
        StorageError : it cannot be written.
        """
        mark = self.folder / _MARK
        with self._explained("make"):
            self.folder.mkdir(parents=True, exist_ok=True)
            found = [name for name in os.listdir(self.folder) if not _TEMPORARY.fullmatch(name)]
            if found and not mark.exists():  # looked for after the listing: another run writes it first of all
                raise InputFileError(
                    f"folder {str(self.folder)!r} is no campaign's and not empty, so that nothing is written there: "
                    "name a new or an empty one"
                )
        if not found:
            self._write(mark, _MARK_TEXT)
        self._check_mark()
        for path, text in ((self.folder / CAMPAIGN_FILE, source), (self.folder / NAME_FILE, name)):
            try:
                same = path.read_bytes() == text.encode()
            except OSError:
                same = False
            if not same:
                self._write(path, text.encode())

    def source(self) -> str:
        """The text of the campaign file.

        Raises
        ------
        InputFileError : the folder is no campaign's, or the text cannot be read.
        """
        self._check_mark()
        try:
            return (self.folder / CAMPAIGN_FILE).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputFileError(
                f"cannot read {str(self.folder / CAMPAIGN_FILE)!r}: {_reason(error)}; run the campaign file again with "
                "this folder, which keeps its draws"
            ) from error

    def name(self) -> str:
        """The campaign's name, as `prepare` was told; "campaign" if that cannot be read."""
        try:
            return (self.folder / NAME_FILE).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return "campaign"

    @property
    def exists(self) -> bool:
        """Whether the folder is a campaign's, as far as it can be read."""
        return os.path.exists(self.folder / _MARK)

    def _check_mark(self) -> None:
        try:
            mark = (self.folder / _MARK).read_bytes()
        except OSError as error:
            raise InputFileError(
                f"folder {str(self.folder)!r} is no campaign's: gequiv campaign run makes one"
            ) from error
        if mark != _MARK_TEXT:
            raise InputFileError(
                f"folder {str(self.folder)!r} is of a format that this release of gequiv does not know: "
                f"{mark[:80].decode(errors='replace').strip()!r}"
            )

    # -- records ------------------------------------------------------------------------------------

    def path(self, key: str, kind: str = "draws") -> Path:
        """Where the record lies, or would lie.

        Raises
        ------
        ParameterError : the key has not 64 hexadecimal digits, or the kind is unknown.
        """
        if kind not in _SUFFIXES:
            raise ParameterError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")
        if not _KEY.fullmatch(key):
            raise ParameterError(f"key must have 64 hexadecimal digits; got {key!r}")
        return self.folder / kind / key[:2] / (key + _SUFFIXES[kind])

    def get(self, key: str, kind: str = "draws") -> dict[str, Array] | None:
        """The record, or None if there is none, or none that is sound."""
        try:
            data = self.path(key, kind).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:  # of a broken disk, say: writing it again is what may help
            data = b""
        arrays = _decoded(data, key, kind)
        if arrays is None:
            self._damaged.add((kind, key))
        return arrays

    def has(self, key: str, kind: str = "draws") -> bool:
        """Whether there is a sound record; the file is read and checked."""
        return self.get(key, kind) is not None

    def put(self, key: str, arrays: Mapping[str, Array], kind: str = "draws") -> None:
        """Write a record, in place of an earlier one.

        It is on the disk when this returns: file and folder are synchronised.

        Raises
        ------
        ParameterError : numbers of a draw that are not finite.
        StorageError : it cannot be written, as on a full disk; nothing that was there before is lost.
        """
        path = self.path(key, kind)
        if kind == "draws":
            for name, array in arrays.items():
                if not np.isfinite(array).all():
                    raise ParameterError(f"{name} of a draw must be finite numbers; got {array!r}")
        self._write(path, _encoded(arrays, key, kind))

    def remove(self, key: str, kind: str = "draws") -> None:
        """Take a record away, if it is there.

        Raises
        ------
        StorageError : it cannot be removed.
        """
        with self._explained("remove"):
            self.path(key, kind).unlink(missing_ok=True)

    def keys(self, kind: str = "draws") -> list[str]:
        """Keys of the records that are there, in order; they have not been checked."""
        return sorted(path.stem for path in self._files(kind) if path.suffix == _SUFFIXES[kind])

    @property
    def damaged(self) -> int:
        """How many damaged records this object has come upon."""
        return len(self._damaged)

    def _files(self, kind: str) -> Iterator[Path]:
        """Records and temporary files of a kind; what else lies there is not ours."""
        suffix = _SUFFIXES[kind]
        for inner in _listed(self.folder / kind):
            if re.fullmatch("[0-9a-f]{2}", inner.name):
                for path in _listed(inner):
                    record = path.suffix == suffix and _KEY.fullmatch(path.stem) and path.name[:2] == inner.name
                    if record or _TEMPORARY.fullmatch(path.name):
                        yield path

    # -- cleaning -----------------------------------------------------------------------------------

    def clean(self, campaign: Campaign, *, comparisons: Collection[str] | None = None) -> Cleaned:
        """Take away the draws that the campaign does not ask for, damaged records and left-overs of killed runs.

        Parameters
        ----------
        campaign : whose draws stay.
        comparisons : keys of the comparisons that stay; None for all.

        Raises
        ------
        InputFileError : the folder is no campaign's.
        StorageError : a file cannot be removed.
        """
        return self._cleaned({"draws": {task.key for task in campaign.tasks()}, "comparisons": comparisons})

    def remove_all(self) -> Cleaned:
        """Take away everything that the store made, and nothing else.

        The folder goes if that leaves it empty. Otherwise it stays a campaign's folder, which can be used again.

        Raises
        ------
        InputFileError : the folder is no campaign's.
        StorageError : a file cannot be removed.
        """
        cleaned = self._cleaned({"draws": (), "comparisons": ()})
        with self._explained("remove"):
            for name in (CAMPAIGN_FILE, NAME_FILE):
                (self.folder / name).unlink(missing_ok=True)
            for kind in KINDS:
                with contextlib.suppress(OSError):
                    (self.folder / kind).rmdir()
            if os.listdir(self.folder) == [_MARK]:
                (self.folder / _MARK).unlink()
                with contextlib.suppress(OSError):
                    self.folder.rmdir()
        return cleaned

    def _cleaned(self, keep: Mapping[str, Collection[str] | None]) -> Cleaned:
        self._check_mark()
        counts = dict.fromkeys((*KINDS, "damaged", "temporary"), 0)
        size = 0

        def take(path: Path, why: str) -> None:
            nonlocal size
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                length = path.stat().st_size
                path.unlink()
                size += length
                counts[why] += 1

        with self._explained("remove"):
            for path in _listed(self.folder):
                if _TEMPORARY.fullmatch(path.name):
                    take(path, "temporary")
            for kind, kept in keep.items():
                for path in self._files(kind):
                    if path.suffix == ".tmp":
                        take(path, "temporary")
                    elif not self.has(path.stem, kind):
                        take(path, "damaged")
                    elif kept is not None and path.stem not in kept:
                        take(path, kind)
                for inner in _listed(self.folder / kind):
                    if re.fullmatch("[0-9a-f]{2}", inner.name):
                        with contextlib.suppress(OSError):
                            inner.rmdir()  # if empty
        return Cleaned(counts["draws"], counts["comparisons"], counts["damaged"], counts["temporary"], size)

    # -- writing ------------------------------------------------------------------------------------

    def _write(self, path: Path, data: bytes) -> None:
        """`replace_file`, with the folders that it needs and an error that says what became of the rest."""
        for attempt in range(_ATTEMPTS):
            try:
                new = _make(path.parent)
                replace_file(path, data)
                for folder in new:
                    _synchronise(folder)
                return
            except FileNotFoundError as error:  # cleaned by another process in between
                if attempt == _ATTEMPTS - 1:
                    raise self._unwritten(len(data), error) from error
            except OSError as error:
                raise self._unwritten(len(data), error) from error

    def _unwritten(self, size: int, error: OSError) -> StorageError:
        what = "disk full" if error.errno in _FULL else "cannot write"
        return StorageError(
            f"{what}: {size:,} bytes for folder {str(self.folder)!r} could not be written ({_reason(error)}); all "
            "finished draws are kept, and the same command goes on from there"
        )

    @contextlib.contextmanager
    def _explained(self, verb: str) -> Iterator[None]:
        try:
            yield
        except InputFileError:
            raise
        except OSError as error:
            raise StorageError(f"cannot {verb} {error.filename or str(self.folder)!r}: {_reason(error)}") from error


def replace_file(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: a temporary one beside it takes its place once it is on the disk.

    Raises
    ------
    OSError : as the system has it; what was there before stays.
    """
    temporary = path.with_name(f"{path.stem}.{os.getpid()}-{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    _synchronise(path.parent)


def _encoded(arrays: Mapping[str, Array], key: str, kind: str) -> bytes:
    little = {name: np.asarray(arrays[name], dtype="<f8") for name in sorted(arrays)}
    header = {"arrays": {name: list(array.shape) for name, array in little.items()}, "key": key, "kind": kind}
    body = b"\n".join([json.dumps(header).encode(), b"".join(array.tobytes() for array in little.values())])
    return _MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def _decoded(data: bytes, key: str, kind: str) -> dict[str, Array] | None:
    """The arrays; None if anything is not as `_encoded` has it."""
    first, _, body = data.partition(b"\n")
    if first != _MAGIC + hashlib.sha256(body).hexdigest().encode():
        return None
    line, _, numbers = body.partition(b"\n")
    header = json.loads(line)  # ours, as the checksum says
    if header["key"] != key or header["kind"] != kind:
        return None
    arrays: dict[str, Array] = {}
    start = 0
    for name, shape in header["arrays"].items():
        count = math.prod(shape)
        arrays[name] = np.frombuffer(numbers, "<f8", count, start).astype(np.float64).reshape(shape)
        start += 8 * count
    return arrays


def _listed(folder: Path) -> list[Path]:
    """What is in a folder, in order; nothing if there is no such folder."""
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except PermissionError as error:
        raise InputFileError(f"cannot read folder {str(folder)!r}: {_reason(error)}") from error


def _make(folder: Path) -> list[Path]:
    """Make a folder and those above it; the folders in which there is a new one."""
    changed = []
    missing = folder
    while not missing.exists():
        missing = missing.parent
        changed.append(missing)
    folder.mkdir(parents=True, exist_ok=True)
    return changed


def _synchronise(folder: Path) -> None:
    """Bring a folder's entries to the disk, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # of file systems that cannot
            raise
    finally:
        os.close(descriptor)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
