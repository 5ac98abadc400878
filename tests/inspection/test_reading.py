import subprocess
import sys

import numpy as np
import pytest

from gequiv.errors import InputFileError, ParameterError
from gequiv.inspection.reading import heads_of

STACK = np.arange(2 * 3 * 4 * 5, dtype=np.float64).reshape(2, 3, 4, 5)


def _same(source, stack):
    """Whether a source gives exactly the heads of an array (layers, heads, n_q, n_k)."""
    assert len(source) == stack.shape[0] * stack.shape[1]
    assert source.layers == len(stack)
    assert source.heads == (stack.shape[1],) * len(stack)
    seen = [(layer, head) for layer, head, _ in source]
    assert seen == [(layer, head) for layer in range(len(stack)) for head in range(stack.shape[1])]
    for layer, head, matrix in source:
        assert matrix.dtype == np.float64
        assert matrix.flags.writeable
        assert matrix.flags.c_contiguous
        np.testing.assert_array_equal(matrix, stack[layer, head])
        np.testing.assert_array_equal(source.load(layer, head), stack[layer, head])
        assert source.shape(layer) == stack.shape[1:]


@pytest.mark.parametrize(
    ("given", "stack", "layered"),
    [
        (STACK[0, 0], STACK[:1, :1], False),
        (STACK[0], STACK[:1], False),
        (STACK, STACK, True),
        (STACK[:, None], STACK, True),
        (list(STACK), STACK, True),
        (tuple(STACK[:, None]), STACK, True),
        (STACK.tolist(), STACK, True),
        (STACK[0, 0].tolist(), STACK[:1, :1], False),
        ([row for row in STACK[0, 0]], STACK[:1, :1], False),  # noqa: C416 (a list of arrays is the point)
        (np.asfortranarray(STACK), STACK, True),
    ],
)
def test_shapes(given, stack, layered):
    source = heads_of(given)
    assert source.layered is layered
    assert source.source == "array"
    assert source.dtype == "float64"
    _same(source, stack)


@pytest.mark.parametrize("dtype", ["float16", "float32", ">f4", "int64", "uint8"])
def test_dtypes(dtype):
    source = heads_of(STACK.astype(dtype))
    assert source.dtype == np.dtype(dtype).name
    _same(source, STACK)


def test_heads_are_copies():
    given = STACK.copy()
    source = heads_of(given)
    source.load(1, 2)[:] = -1
    np.testing.assert_array_equal(given, STACK)


def test_layers_of_different_sizes():
    layers = [np.ones((2, 3, 4)), np.full((1, 5, 6, 6), 2.0)]
    source = heads_of(layers)
    assert source.heads == (2, 5)
    assert [source.shape(layer) for layer in range(2)] == [(2, 3, 4), (5, 6, 6)]
    assert len(source) == 7
    assert [matrix.shape for _, _, matrix in source] == [(3, 4)] * 2 + [(6, 6)] * 5


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.ones(3), r"shape .*\(3,\)"),
        (1.0, r"shape .*got \(\)"),
        (np.ones((1, 1, 1, 1, 2, 2)), r"\(1, 1, 1, 1, 2, 2\)"),
        (np.ones((2, 2, 1, 4, 4)), "batch of one"),
        (np.ones((0, 4, 4)), "at least one layer, one head"),
        (np.ones((0, 3, 4, 4)), "at least one layer"),
        (np.ones((3, 0, 4, 4)), "one head"),
        (np.ones((1, 4)), "two tokens.*one token"),
        (np.ones((2, 4, 1)), r"two tokens.*\(2, 4, 1\)"),
        (np.ones((4, 0)), "two tokens"),
        (np.ones((4, 4), dtype=complex), "complex128"),
        (np.ones((4, 4), dtype=bool), "bool"),
        (np.array([["a", "b"], ["c", "d"]]), "str"),
        (np.array([[None, 1], [1, 1]]), "object"),
        (np.zeros((4, 4), dtype="V2"), "void"),
        ([[1.0], [1.0, 2.0]], "ragged"),
        ([], r"got \[\].*eager"),
        ((), r"got \(\).*eager"),
        ([[]], r"got \(1, 0\)"),
        (None, "got None.*eager"),
        ([None, None], "layer 0 of attention.*None.*eager"),
        ([np.ones((2, 4, 4)), None], "layer 1 of attention.*None"),
        ([np.ones((2, 2, 4, 4))], "layer 0.*batch of one.*select one input"),
        ([np.ones((2, 4, 4)), np.ones((4, 4))], r"layer 1.*\(4, 4\)"),
        ([np.ones((2, 4, 4)), np.ones((0, 4, 4))], r"layer 1.*\(0, 4, 4\)"),
        ([np.ones((2, 4, 4)), np.ones((2, 4, 4), dtype=bool)], "layer 1.*bool"),
        ([np.ones((2, 4, 4)), np.ones((2, 4, 4), dtype=np.float32)], "one dtype.*float32, float64"),
        ([[np.ones((1, 2, 4, 4))]], "list of lists"),
        ({"a": 1}, "object"),
    ],
)
def test_bad_input(bad, message):
    with pytest.raises(ParameterError, match=message) as error:
        heads_of(bad)
    assert "attention" in str(error.value)


@pytest.mark.parametrize(("layer", "head"), [(2, 0), (-1, 0), (0, 3), (0, -1), (0.5, 0), (True, 0), ("0", 0)])
def test_bad_index(layer, head):
    with pytest.raises(ParameterError, match=r"^(layer|head) must"):
        heads_of(STACK).load(layer, head)


def test_npy_is_mapped(tmp_path):
    np.save(tmp_path / "a.npy", STACK.astype(np.float16))
    for path in (tmp_path / "a.npy", str(tmp_path / "a.npy")):
        source = heads_of(path)
        assert (source.source, source.dtype) == ("a.npy", "float16")
        assert isinstance(source._layers[0].stored, np.memmap)
        _same(source, STACK)


def test_npz(tmp_path):
    np.savez(tmp_path / "one.npz", only=STACK)
    np.savez(tmp_path / "two.npz", a=STACK[:1], b=STACK)
    np.savez(tmp_path / "zero.npz")
    assert heads_of(tmp_path / "one.npz").source == "one.npz[only]"
    _same(heads_of(tmp_path / "one.npz"), STACK)
    _same(heads_of(tmp_path / "two.npz", key="b"), STACK)
    with pytest.raises(ParameterError, match=r"key must name .*'a', 'b'; got None"):
        heads_of(tmp_path / "two.npz")
    with pytest.raises(ParameterError, match=r"key must name .*'a', 'b'; got 'c'"):
        heads_of(tmp_path / "two.npz", key="c")
    with pytest.raises(ParameterError, match="key must be"):
        heads_of(tmp_path / "two.npz", key=1)
    with pytest.raises(ParameterError, match="holds none"):
        heads_of(tmp_path / "zero.npz")


def test_key_needs_a_file_of_arrays(tmp_path):
    np.save(tmp_path / "a.npy", STACK)
    with pytest.raises(ParameterError, match="key must be None"):
        heads_of(tmp_path / "a.npy", key="a")
    with pytest.raises(ParameterError, match="key must be None"):
        heads_of(STACK, key="a")


def test_unreadable_files(tmp_path):
    np.save(tmp_path / "cut.npy", STACK)
    whole = (tmp_path / "cut.npy").read_bytes()
    (tmp_path / "cut.npy").write_bytes(whole[:-8])
    (tmp_path / "npy.npz").write_bytes(whole)
    np.savez_compressed(tmp_path / "good.npz", a=STACK)
    packed = bytearray((tmp_path / "good.npz").read_bytes())
    (tmp_path / "npz.npy").write_bytes(packed)
    packed[80:120] = b"\xff" * 40
    (tmp_path / "broken.npz").write_bytes(packed)
    for name in ("text.npy", "text.npz"):
        (tmp_path / name).write_text("garbage")
    for name in ("empty.npy", "empty.npz"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "folder.npy").mkdir()
    names = ["cut.npy", "npy.npz", "npz.npy", "broken.npz", "text.npy", "text.npz", "empty.npy", "empty.npz"]
    for name in [*names, "folder.npy", "missing.npy", "missing.npz"]:
        with pytest.raises(InputFileError, match=f"attention cannot be read from .*{name}"):
            heads_of(tmp_path / name)


def test_unfit_files(tmp_path):
    objects = np.array([[None, 1], [1, 1]])
    np.save(tmp_path / "objects.npy", objects)
    np.savez(tmp_path / "objects.npz", a=objects)
    np.save(tmp_path / "empty.npy", np.ones((0, 4, 4)))
    for name in ("objects.npy", "objects.npz", "empty.npy", "a.txt", "a"):
        with pytest.raises(ParameterError, match="attention"):
            heads_of(tmp_path / name)


def test_safetensors_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ParameterError, match=r"pip install 'gequiv\[models\]'"):
        heads_of(tmp_path / "a.safetensors")


def test_nothing_heavy_is_imported():
    code = (
        "import sys, gequiv.inspection.reading as r; r.heads_of([[1, 0], [0, 1]]);"
        "assert not {'torch', 'safetensors', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_safetensors(tmp_path):
    pytest.importorskip("safetensors", reason="safetensors is an extra")
    from safetensors.numpy import save_file

    path = tmp_path / "a.safetensors"
    names = {"h": "float16", "s": "float32", "d": "float64", "i": "int64"}
    refused = {"c": np.ones((4, 4), dtype=np.complex64), "o": np.ones((4, 4), dtype=bool), "z": np.ones((0, 3, 3))}
    head = {"m": STACK[0, 0].copy(), "five": STACK[:, None].copy()}
    save_file({**{key: STACK.astype(dtype) for key, dtype in names.items()}, **refused, **head}, path)
    for key, dtype in names.items():
        source = heads_of(path, key=key)
        assert (source.source, source.dtype, source.layered) == (f"a.safetensors[{key}]", dtype, True)
        assert not isinstance(source._layers[0].stored, np.ndarray)  # a slice: nothing is read yet
        _same(source, STACK)
    _same(heads_of(path, key="m"), STACK[:1, :1])
    _same(heads_of(path, key="five"), STACK)
    for key in refused:
        with pytest.raises(ParameterError, match="attention must"):
            heads_of(path, key=key)
    with pytest.raises(ParameterError, match="key must name"):
        heads_of(path)
    for number, content in enumerate([b"", b"hello", b"\xff" * 40]):
        bad = tmp_path / f"{number}.safetensors"
        bad.write_bytes(content)
        with pytest.raises(InputFileError, match=bad.name):
            heads_of(bad)
    (tmp_path / "folder.safetensors").mkdir()
    for name in ("missing.safetensors", "folder.safetensors"):
        with pytest.raises(InputFileError, match=name):
            heads_of(tmp_path / name)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64", "int64"])
def test_torch(tmp_path, dtype):
    torch = pytest.importorskip("torch", reason="torch is an extra")
    tensor = torch.tensor(STACK / 64 if dtype != "int64" else STACK).to(getattr(torch, dtype))  # without rounding
    stack = STACK / 64 if dtype != "int64" else STACK
    if dtype != "int64":
        tensor.requires_grad_(True)
    for given in (tensor, list(tensor), tuple(layer[None] for layer in tensor), tensor[:, None], tensor.mT.mT):
        source = heads_of(given)
        assert (source.source, source.dtype, source.layered) == ("tensor", dtype, True)
        _same(source, stack)
    _same(heads_of(tensor[0, 0]), stack[:1, :1])
    source = heads_of(tensor)
    source.load(0, 0)[:] = -1
    np.testing.assert_array_equal(tensor.detach().double().numpy(), stack)


def test_torch_safetensors(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is an extra")
    pytest.importorskip("safetensors", reason="safetensors is an extra")
    from safetensors.torch import save_file

    tensor = torch.tensor(STACK).bfloat16()
    quarter = torch.ones((3, 3)).to(torch.float8_e4m3fn)
    other = {"float": torch.ones((3, 3)), "quarter": quarter, "none": torch.zeros((0, 3, 3)).bfloat16()}
    save_file({"all": tensor, "one": tensor[1, 2].clone(), **other}, tmp_path / "b.safetensors")
    source = heads_of(tmp_path / "b.safetensors", key="all")
    assert source.dtype == "bfloat16"
    _same(source, STACK)
    _same(heads_of(tmp_path / "b.safetensors", key="one"), STACK[1:, 2:])
    for key in ("quarter", "none"):
        with pytest.raises(ParameterError, match="attention must"):
            heads_of(tmp_path / "b.safetensors", key=key)


def test_bad_torch():
    torch = pytest.importorskip("torch", reason="torch is an extra")
    ones = torch.ones((4, 4))
    bad = [
        (ones.bool(), "bool"),
        (ones.to(torch.complex64), "complex64"),
        (ones.to(torch.float8_e4m3fn), "float8"),
        (ones.to_sparse(), "sparse"),
        (ones.to("meta"), "meta"),
        (torch.ones(4), r"\(4,\)"),
        (torch.tensor(1.0), r"\(\)"),
        ([ones, ones], r"layer 0.*\(4, 4\)"),
        ([torch.ones((2, 2, 4, 4))], "batch of one"),
        ([torch.ones((2, 4, 4)), None], "layer 1.*None"),
        ([[torch.ones((1, 2, 4, 4), requires_grad=True)]], "list of lists"),
    ]
    for value, message in bad:
        with pytest.raises(ParameterError, match=message):
            heads_of(value)
