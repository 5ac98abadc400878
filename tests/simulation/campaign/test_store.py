"""Records: written whole or not at all, never used when damaged, harmed by nobody."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gequiv.errors import InputFileError, ParameterError, StorageError
from gequiv.simulation.campaign import store as store_module
from gequiv.simulation.campaign.store import KINDS, Store, _decoded, _encoded

KEY, OTHER = "ab" * 32, "cd" * 32


def record() -> dict[str, np.ndarray]:
    return {"values": np.linspace(0, 1, 50), "rows": np.arange(12.0).reshape(4, 3)}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "out")
    made.prepare("text")
    return made


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=8),
        arrays.arrays(np.float64, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)),
        max_size=4,
    )
)
def test_any_arrays_come_back_bit_for_bit(found: dict[str, np.ndarray]) -> None:
    back = _decoded(_encoded(found, KEY, "draws"), KEY, "draws")
    assert back is not None
    assert back.keys() == found.keys()
    for name, array in found.items():
        assert back[name].shape == array.shape
        assert back[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip(store: Store, kind: str) -> None:
    assert store.get(KEY, kind) is None
    assert not store.has(KEY, kind)
    store.put(KEY, record(), kind)
    back = store.get(KEY, kind)
    assert back is not None
    np.testing.assert_array_equal(back["rows"], record()["rows"])
    assert store.keys(kind) == [KEY]
    assert store.keys(next(other for other in KINDS if other != kind)) == []
    assert store.damaged == 0
    store.remove(KEY, kind)
    assert not store.has(KEY, kind)


def test_every_flipped_bit_and_every_truncation_is_noticed() -> None:
    data = _encoded({"values": np.array([1.0, 2.0])}, KEY, "draws")
    for place in range(len(data)):
        for bit in (1, 32, 128):
            flipped = data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]
            assert _decoded(flipped, KEY, "draws") is None
        assert _decoded(data[:place], KEY, "draws") is None
    assert _decoded(data + b"\0", KEY, "draws") is None
    assert _decoded(data, OTHER, "draws") is None
    assert _decoded(data, KEY, "comparisons") is None


class Trap:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, int]]:
        return os.open, (str(self.path), os.O_CREAT)


def test_damage_is_counted_once_and_mended_by_writing_again(store: Store, tmp_path: Path) -> None:
    store.put(KEY, record())
    path, whole = store.path(KEY), store.path(KEY).read_bytes()
    trap = tmp_path / "sprung"
    for bad in (b"", whole[:-1], whole[:40], pickle.dumps(Trap(trap)), b"\xff" * 100):
        path.write_bytes(bad)
        assert store.get(KEY) is None
        assert not store.has(KEY)
    assert not trap.exists()
    path.unlink()
    path.mkdir()  # unreadable for anyone, root included
    assert store.get(KEY) is None
    path.rmdir()
    assert store.damaged == 1
    store.put(KEY, record())
    assert path.read_bytes() == whole
    assert store.has(KEY)


def test_a_record_under_another_key_is_not_used(store: Store) -> None:
    store.put(KEY, record())
    path = store.path(OTHER)
    path.parent.mkdir()
    path.write_bytes(store.path(KEY).read_bytes())
    assert store.get(OTHER) is None
    assert store.damaged == 1


def test_numbers_of_a_draw_are_finite(store: Store) -> None:
    with pytest.raises(ParameterError, match="values of a draw must be finite"):
        store.put(KEY, {"values": np.array([1, np.nan])})
    store.put(KEY, {"ks": np.array([np.nan])}, "comparisons")
    assert store.has(KEY, "comparisons")


def test_folder_that_may_not_be_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(folder: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))

    monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(InputFileError, match=r"cannot read folder .*Permission denied"):
        store.keys()


@pytest.mark.parametrize("key", ["../../x", "AB" * 32, "ab"])
def test_bad_keys(store: Store, key: str) -> None:
    with pytest.raises(ParameterError, match="key must have 64"):
        store.get(key)
    with pytest.raises(ParameterError, match="kind must be one of"):
        store.get(KEY, "others")


def test_folders_of_others_are_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "draws").mkdir()
    (tmp_path / "campaign.toml").write_text("mine")
    with pytest.raises(InputFileError, match="no campaign's and not empty"):
        Store(tmp_path).prepare("text")
    with pytest.raises(InputFileError, match="no campaign's"):
        Store(tmp_path).remove_all()
    with pytest.raises(InputFileError, match="no campaign's"):
        Store(tmp_path / "none").source()
    assert sorted(os.listdir(tmp_path)) == ["campaign.toml", "draws"]
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot make"):
        Store(tmp_path / "file").prepare("text")


def test_folder_of_a_later_release_is_refused(store: Store) -> None:
    (store.folder / ".gequiv-campaign").write_text("gequiv campaign folder, format 2\n")
    with pytest.raises(InputFileError, match="format that this release"):
        store.prepare("text")


def test_campaign_text_is_kept_and_replaced(store: Store) -> None:
    assert store.source() == "text"
    store.put(KEY, record())
    assert store.name() == "campaign"
    store.prepare("other β", "β")
    assert store.source() == "other β"
    assert store.name() == "β"
    assert store.has(KEY)
    (store.folder / "campaign.toml").unlink()
    with pytest.raises(InputFileError, match="run the campaign file again"):
        store.source()


def test_clean(small_campaign, store: Store) -> None:  # type: ignore[no-untyped-def]
    campaign = small_campaign(draws=2)
    keys = [task.key for task in campaign.tasks()]
    for key in keys:
        store.put(key, record())
    store.put(KEY, record())
    for key in (KEY, OTHER):
        store.put(key, record(), "comparisons")
    store.path(keys[0]).write_bytes(b"")
    left_over = store.path(KEY).with_name(f"{KEY}.12345-{'0' * 16}.tmp")
    left_over.write_bytes(b"12345")
    foreign = store.path(KEY).with_name("notes.txt")
    foreign.write_text("mine")
    size = len(store.path(KEY).read_bytes()) + len(store.path(OTHER, "comparisons").read_bytes()) + 5
    cleaned = store.clean(campaign, comparisons={KEY})
    assert (cleaned.draws, cleaned.comparisons, cleaned.damaged, cleaned.temporary) == (1, 1, 1, 1)
    assert cleaned.bytes == size
    assert store.keys() == sorted(keys[1:])
    assert store.keys("comparisons") == [KEY]
    assert store.clean(campaign).bytes == 0

    report = store.folder / "report.html"
    report.write_text("mine")
    assert store.remove_all().draws == len(keys) - 1
    assert report.exists()
    assert foreign.exists()
    assert store.exists
    store.prepare("text")
    report.unlink()
    foreign.unlink()
    foreign.parent.rmdir()
    store.remove_all()
    assert not store.folder.exists()


@pytest.mark.parametrize("call", ["fsync", "write"])
def test_full_disk(store: Store, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    store.put(KEY, record())
    before = store.path(KEY).read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if call == "fsync":
        monkeypatch.setattr(store_module.os, "fsync", full)
    else:
        monkeypatch.setattr(Path, "replace", full)
    for key in (KEY, OTHER):
        with pytest.raises(StorageError, match=r"disk full: [\d,]+ bytes for folder .* all finished draws are kept"):
            store.put(key, {"values": np.ones(7)})
    assert store.path(KEY).read_bytes() == before
    assert [path.name for path in store.path(KEY).parent.iterdir()] == [store.path(KEY).name]
    assert not store.path(OTHER).exists()


def test_a_clean_in_the_middle_of_a_write_does_no_harm(
    small_campaign,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,  # type: ignore[no-untyped-def]
) -> None:
    replace, calls = Path.replace, []

    def interrupted(path: Path, target: Path) -> Path:
        if not calls:
            calls.append(Store(store.folder).clean(small_campaign()))
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    store.put(KEY, record())
    assert calls[0].temporary == 1
    assert store.has(KEY)
