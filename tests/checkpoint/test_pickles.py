"""The reader of torch.save's files: equal to torch.load, bounded on anything else."""

from __future__ import annotations

import io
import os
import pickle
import pickletools
import random
import struct
import time
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.checkpoint.pickles import DTYPES, PickledTensors
from bertsmith.errors import BertsmithError

LAYOUTS = pytest.mark.parametrize("modern", [True, False], ids=["zip", "older"])


def saved(path: Path, content: Any, modern: bool = True) -> Path:
    torch.save(content, path, _use_new_zipfile_serialization=modern)
    return path


def refused(path: Path, seconds: float = 3) -> str:
    """The one line that says why not, soon and in little memory."""
    began = time.process_time()
    with pytest.raises(BertsmithError) as error:
        PickledTensors(path)
    assert time.process_time() - began < seconds
    assert "\n" not in str(error.value)
    return str(error.value)


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """A tensor of any dtype and up to four axes; views and parameters among them."""
    dtype = draw(st.sampled_from([*DTYPES.values()]))
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    made = (torch.rand(shape) * 10).to(dtype)
    if shape and draw(st.booleans()):
        made = made.transpose(0, -1)
    if shape and draw(st.booleans()):
        made = made[draw(st.integers(0, shape[-1] if len(shape) > 1 else shape[0])) :]
    if dtype.is_floating_point and draw(st.booleans()):
        made = torch.nn.Parameter(made)
    return made


@settings(max_examples=150, deadline=None)
@given(
    content=st.dictionaries(st.text(max_size=8), tensors(), max_size=6),
    modern=st.booleans(),
    ordered=st.booleans(),
    shared=st.booleans(),
)
def test_what_torch_saves_is_read_as_torch_reads_it(
    content: dict[str, torch.Tensor],
    modern: bool,
    ordered: bool,
    shared: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    if shared and content:
        content["again"] = next(iter(content.values()))
    stored: Any = OrderedDict(content) if ordered else content
    if ordered:
        stored._metadata = OrderedDict({"": {"version": 1}})
    path = saved(tmp_path_factory.mktemp("saved") / "x.bin", stored, modern)
    expected = torch.load(path, weights_only=True)
    ours = PickledTensors(path)
    assert ours.names() == list(expected)
    for name, tensor in expected.items():
        assert ours.shape(name) == tuple(tensor.shape)
        assert torch.equal(ours.get(name), tensor)
        assert ours.get(name).dtype == tensor.dtype


@LAYOUTS
@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model"])
def test_training_checkpoints_are_named_as_such(key: str, modern: bool, tmp_path: Path) -> None:
    content = {"epoch": 3, "loss": 0.5, key: {"a": torch.ones(2)}, "names": ["x", None, True]}
    ours = PickledTensors(saved(tmp_path / "x.bin", content, modern))
    assert ours.names() == ["a"]
    assert f"under {key!r} are read" in ours.notes[0]


# ------------------------------------------------------------------ hostile


def archive(path: Path, pickled: bytes, compression: int = zipfile.ZIP_STORED) -> Path:
    """A zip archive as torch.save makes them, with this pickle."""
    with zipfile.ZipFile(path, "w", compression) as made:
        made.writestr("archive/data.pkl", pickled)
        made.writestr("archive/data/0", bytes(16))
    return path


def older(path: Path, pickled: bytes) -> Path:
    """A file of the older layout, with this pickle."""
    head = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}]
    path.write_bytes(b"".join(pickle.dumps(one, 2) for one in head) + pickled)
    return path


DEEP = b"\x80\x02})" + b"\x85" * 200_000 + b"K\x01s."  # {((((...),),),): 1}
ENDLESS = b"\x80\x02})" + b"".join(b"q%cq%ch%c\x86" % (n, n, n) for n in range(100)) + b"K\x01s."
HUGE = b"\x80\x02cbuiltins\nbytearray\n\x8a\x05\x00\x00\x00\x00\x02\x85R."


class Call:
    """A pickle that calls something."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.function, self.arguments


PICKLES = {
    "keys nested deep": DEEP,
    "keys hashed without end": ENDLESS,
    "a bytearray of 8 GB": HUGE,
    "an allocation": pickle.dumps({"x": Call(bytearray, 8 << 30)}),
    "a power": pickle.dumps({"x": Call(pow, 10, 10**9)}),
    "a string of 4 GB": b"\x80\x02X\xff\xff\xff\xff" + b"x" * 100 + b".",
    "a long number": b"\x80\x02\x8b\xff\xff\xff\x7f" + b"\x01" * 100 + b".",
    "numbers without end": b"\x80\x02" + b"I1\n" * 1000 + b".",
    "nothing": b".",
    "never ends": b"\x80\x02" + b"N" * 1000,
    "recalls what is not there": b"\x80\x02h\x07.",
    "a command": pickle.dumps({"x": Call(os.system, "true")}),
    "a persistent id of nothing": b"\x80\x02)Q.",
    "a storage that is none": b"\x80\x02(X\x07\x00\x00\x00storageNNNNtQ.",
    "builds on nothing": b"\x80\x02Nb.",
    "marks without end": b"\x80\x02" + b"(" * 100_000 + b".",
}


@LAYOUTS
@pytest.mark.parametrize("case", PICKLES)
def test_hostile_pickles(case: str, modern: bool, tmp_path: Path) -> None:
    make = archive if modern else older
    assert "x.bin" in refused(make(tmp_path / "x.bin", PICKLES[case]))


@LAYOUTS
@pytest.mark.parametrize("opcodes", [b"]" * 400_000 + b"a" * 399_999, b"]" + b"\x85" * 600_000])
def test_pickles_of_endless_work(opcodes: bytes, modern: bool, tmp_path: Path) -> None:
    """Lists in lists and tuples in tuples: their bytes are few, their opcodes take long."""
    path = (archive if modern else older)(tmp_path / "x.bin", b"\x80\x02" + opcodes + b".")
    assert "a pickle of more than 500,000 opcodes" in refused(path, seconds=15)


@LAYOUTS
def test_numbers_larger_than_the_file(modern: bool, tmp_path: Path) -> None:
    path = saved(tmp_path / "x.bin", {"a": torch.ones(4)}, modern)
    data = path.read_bytes()
    for number in (b"K\x05", b"K\xff"):
        path.write_bytes(data.replace(b"K\x04", number))
        assert "x.bin" in refused(path)


def test_archives_that_readers_see_differently(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.bin", {"a": torch.ones(4)})
    data = path.read_bytes()
    path.write_bytes(data + b"\0" * 100)
    assert "does not end where the file does" in refused(path)
    archive(path, pickle.dumps({}, 2), zipfile.ZIP_DEFLATED)
    assert "compressed" in refused(path)
    path.write_bytes(path.read_bytes() + b"\0" * 70_000)
    refused(path)
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("archive/data.pkl", pickle.dumps({}, 2))
        with pytest.warns(UserWarning, match="Duplicate name"):
            made.writestr("archive/data.pkl", pickle.dumps({}, 2))
    assert "repeated entries" in refused(path)


@LAYOUTS
def test_a_file_that_shrinks_while_it_is_read(modern: bool, tmp_path: Path) -> None:
    path = saved(tmp_path / "x.bin", {"a": torch.ones(10_000)}, modern)
    ours = PickledTensors(path)
    os.truncate(path, 2_000)
    with pytest.raises((EOFError, OSError)):
        ours.get("a")


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=200), modern=st.booleans())
def test_any_bytes(data: bytes, modern: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("any") / "x.bin"
    (archive if modern else older)(path, b"\x80\x02" + data)
    with pytest.raises(BertsmithError):
        PickledTensors(path)


CODES = [one.code.encode("latin-1") for one in pickletools.opcodes if one.arg is None]


@settings(max_examples=300, deadline=None)
@given(codes=st.lists(st.sampled_from(CODES), max_size=60), seed=st.integers(0, 99))
def test_any_opcodes(
    codes: list[bytes], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Programs of opcodes after those of a real file: one line, or tensors that fit the file."""
    stream = io.BytesIO()
    torch.save({"a": torch.ones(3)}, stream)
    with zipfile.ZipFile(stream) as real:
        pickled = real.read("archive/data.pkl")
    cut = random.Random(seed).randrange(2, len(pickled))
    path = archive(tmp_path_factory.mktemp("any") / "x.bin", pickled[:cut] + b"".join(codes) + b".")
    try:
        ours = PickledTensors(path)
    except BertsmithError:
        return
    for name in ours.names():
        ours.get(name)


def test_the_older_layout_says_how_long_storages_are(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.bin", {"a": torch.ones(4)}, modern=False)
    data = path.read_bytes()
    place = data.rindex(struct.pack("<q", 4))
    path.write_bytes(data[:place] + struct.pack("<q", 1 << 40) + data[place + 8 :])
    assert "another length" in refused(path)
