"""The tensors of a pytorch_model.bin, read without unpickling.

Our own interpreter of opcodes makes only plain values and descriptions of tensors, so that a file
can neither run code nor ask for more memory or time than its size explains. Tensors are then read
from their places in the file. Both layouts of `torch.save` are read: a zip archive, and the older
one of pickles followed by raw values.
"""

import math
import os
import pickletools
import struct
import zipfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import torch
from torch import Tensor

from bertsmith.errors import BertsmithError
from bertsmith.files import one_line, open_regular

LARGEST_PICKLE = 64 << 20  # bytes
MOST_OPCODES = 500_000  # in one pickle; a tensor has some 40, and 500,000 take a second
MOST_ENTRIES = 200_000
MOST_AXES = 8
LARGEST_CLAIM = 4  # times the size of the file: tied tensors are stored once and named twice
MAGIC = 0x1950A86A20F9469CFC6C  # with which the older layout begins
DTYPES = {
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "DoubleStorage": torch.float64,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
WRAPPERS = ("state_dict", "model_state_dict", "model")  # keys of training checkpoints


class Storage(NamedTuple):
    """Numbers that lie together in the file, which tensors are views of."""

    key: str
    dtype: torch.dtype
    length: int


class StridedTensor(NamedTuple):
    """A tensor as the pickle describes it."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def span(self) -> int:
        """How many numbers of its storage lie between its first and its last one."""
        if not self.size:
            return 0
        return 1 + sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))


class PickledTensors:
    """Named tensors in a file of `torch.save`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[str] = []
        self.size = path.stat().st_size
        with open_regular(path) as file:
            archived = file.read(4) == b"PK\x03\x04"
            file.seek(0)
            try:
                content, self.places = (_archive if archived else _sequence)(file, self.size)
            except (ValueError, LookupError, struct.error, zipfile.BadZipFile, EOFError) as error:
                why = f"damaged, or a pickle of more than tensors ({one_line(error)})"
                raise BertsmithError(f"{path}: {why}") from error
        self.tensors = self._named(content)
        for name, tensor in self.tensors.items():
            self._check(name, tensor)
        claimed = sum(t.size * t.storage.dtype.itemsize for t in self.tensors.values())
        if claimed > LARGEST_CLAIM * self.size:
            raise BertsmithError(f"{path}: its tensors claim to be larger than the file")

    def _named(self, content: Any) -> dict[str, StridedTensor]:
        """The tensors by name; those of a training checkpoint are one level down."""
        if not isinstance(content, dict):
            kind = "one tensor" if isinstance(content, StridedTensor) else type(content).__name__
            raise BertsmithError(f"{self.path}: holds {kind}, not named tensors")
        for key in WRAPPERS:
            inner = content.get(key)
            values = inner.values() if isinstance(inner, dict) else ()
            if any(isinstance(value, StridedTensor) for value in values):
                kind = f"{self.path.name} is a training checkpoint"
                self.notes.append(f"{kind}: its tensors under {key!r} are read")
                content = inner
                break
        return {str(name): v for name, v in content.items() if isinstance(v, StridedTensor)}

    def _check(self, name: str, tensor: StridedTensor) -> None:
        place, storage = self.places.get(tensor.storage.key), tensor.storage
        fits = place is not None and storage.length * storage.dtype.itemsize <= place[1]
        if tensor.size and not (fits and tensor.offset + tensor.span <= storage.length):
            raise BertsmithError(f"{self.path}: {name!r} exceeds the stored data")

    def names(self) -> list[str]:
        """The names of all tensors."""
        return list(self.tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, which is not read for it."""
        return self.tensors[name].shape

    def get(self, name: str) -> Tensor:
        """Read a tensor from the file."""
        tensor = self.tensors[name]
        dtype = tensor.storage.dtype
        if not tensor.size:
            return torch.zeros(tensor.shape, dtype=dtype)
        start = self.places[tensor.storage.key][0] + tensor.offset * dtype.itemsize
        data = bytearray(tensor.span * dtype.itemsize)
        with open_regular(self.path) as file:
            file.seek(start)
            if file.readinto(data) != len(data):  # type: ignore[attr-defined]
                raise EOFError("the file became shorter while it was read")
        return torch.frombuffer(data, dtype=dtype).as_strided(tensor.shape, tensor.strides)


Places = dict[str, tuple[int, int]]  # of each storage: where it begins, how many bytes it has


def _archive(file: IO[bytes], size: int) -> tuple[Any, Places]:
    """A zip archive: NAME/data.pkl and NAME/data/KEY, none of them compressed."""
    file.seek(-22, os.SEEK_END)
    if file.read(4) != b"PK\x05\x06":  # else other readers may find another archive than zipfile
        raise ValueError("the archive does not end where the file does")
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        if len(entries) > MOST_ENTRIES or len({entry.filename for entry in entries}) < len(entries):
            raise ValueError("an archive with too many or repeated entries")
        if any(entry.compress_type or entry.flag_bits & 1 for entry in entries):
            raise ValueError("it is compressed, which no weights file is")
        (pickled,) = (entry for entry in entries if entry.filename.endswith("/data.pkl"))
        folder = pickled.filename.removesuffix("data.pkl")
        for entry in entries:
            if entry.filename == f"{folder}byteorder" and archive.read(entry) != b"little":
                raise ValueError("its numbers are big-endian")
        data = f"{folder}data/"
        stored = [entry for entry in entries if entry.filename.startswith(data)]
        places = {e.filename.removeprefix(data): _place(file, e, size) for e in stored}
        with archive.open(pickled) as stream:
            return _value(stream, size), places


def _place(file: IO[bytes], entry: zipfile.ZipInfo, size: int) -> tuple[int, int]:
    """Where the content of an entry lies in the file."""
    file.seek(entry.header_offset)
    header = file.read(30)
    name, extra = struct.unpack("<HH", header[26:30])
    start = entry.header_offset + 30 + name + extra
    if header[:4] != b"PK\x03\x04" or start + entry.file_size > size:
        raise ValueError("an entry that is not where the archive says")
    return start, entry.file_size


def _sequence(file: IO[bytes], size: int) -> tuple[Any, Places]:
    """The older layout: five pickles, then each storage as its length and its numbers."""
    if _value(file, size) != MAGIC or _value(file, size) != 1001:
        raise ValueError("not a file of torch.save")
    system = _value(file, size)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise ValueError("its numbers are big-endian")
    storages: dict[str, Storage] = {}
    content = _value(file, size, storages)
    places = {}
    for key in _value(file, size):
        storage = storages[key]
        (count,) = struct.unpack("<q", file.read(8))
        if count != storage.length:
            raise ValueError("a storage of another length than described")
        places[key] = (file.tell(), count * storage.dtype.itemsize)
        if sum(places[key]) > size:
            raise ValueError("the file is cut short")
        file.seek(sum(places[key]))
    return content, places


class _Global(NamedTuple):
    """A name of Python's, which is never looked up."""

    module: str
    name: str


class _Limited:
    """A stream that ends with an error after `LARGEST_PICKLE` bytes."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.left = stream, LARGEST_PICKLE

    def read(self, size: int) -> bytes:
        return self._take(self.stream.read(min(size, self.left + 1)))

    def readline(self) -> bytes:
        return self._take(self.stream.readline(1000))

    def _take(self, data: bytes) -> bytes:
        self.left -= len(data)
        if self.left < 0:
            raise ValueError(f"a pickle of more than {LARGEST_PICKLE:,} bytes")
        return data


def _value(stream: IO[bytes], size: int, storages: dict[str, Storage] | None = None) -> Any:
    """The value of one pickle, in which no number is larger than the file."""
    machine = _Machine(size, {} if storages is None else storages)
    opcodes = pickletools.genops(cast(IO[bytes], _Limited(stream)))
    for opcode, argument, _ in islice(opcodes, MOST_OPCODES):
        if opcode.name == "STOP":
            return machine.stack.pop()
        machine.execute(opcode.name, argument)
    raise ValueError(f"a pickle of more than {MOST_OPCODES:,} opcodes")


class _Machine:
    """The stack and the memo of a pickle that is being read."""

    def __init__(self, largest: int, storages: dict[str, Storage]) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.largest, self.storages = max(largest, 2**20), storages

    def execute(self, opcode: str, argument: Any) -> None:
        """Execute an opcode; those that no file of tensors has are refused."""
        push = self.stack.append
        match opcode:
            case "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = self.stack[-1]
            case "MEMOIZE":
                self.memo[len(self.memo)] = self.stack[-1]
            case "BINGET" | "LONG_BINGET":
                push(self.memo[argument])
            case "BININT" | "BININT1" | "BININT2" | "LONG1":
                if abs(argument) > self.largest and argument != MAGIC:
                    raise ValueError("a number larger than the file")
                push(argument)
            case "BINUNICODE" | "SHORT_BINUNICODE" | "BINUNICODE8" | "BINFLOAT":
                push(argument)
            case "BINSTRING" | "SHORT_BINSTRING":
                push(argument)
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                push({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[opcode])
            case "MARK":
                self.marks.append(len(self.stack))
            case "EMPTY_TUPLE" | "EMPTY_LIST" | "EMPTY_DICT":
                push({"TUPLE": tuple, "LIST": list, "DICT": dict}[opcode[6:]]())
            case "TUPLE":
                push(tuple(self.pop_marked()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                push(tuple(self.pop(int(opcode[-1]))))
            case "APPEND" | "APPENDS":
                self.append(self.pop(1) if opcode == "APPEND" else self.pop_marked())
            case "SETITEM" | "SETITEMS":
                self.set_items(self.pop(2) if opcode == "SETITEM" else self.pop_marked())
            case "GLOBAL":
                push(_known_global(*argument.split(" ", 1)))
            case "STACK_GLOBAL":
                push(_known_global(*map(str, self.pop(2))))
            case "REDUCE":
                push(_call(*self.pop(2)))
            case "BINPERSID":
                push(self.storage(*self.pop(1)))
            case "BUILD":
                self.pop(1)  # attributes of an object: a state dict's notes on versions
            case "PROTO" | "FRAME":
                pass
            case _:
                raise ValueError(f"{opcode} is not an opcode of a file of tensors")

    def pop(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise ValueError("values that were never written")
        return self._pop_from(len(self.stack) - count)

    def pop_marked(self) -> list[Any]:
        return self._pop_from(self.marks.pop())

    def _pop_from(self, start: int) -> list[Any]:
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def append(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise ValueError("values added to what is not a list")
        target += values

    def set_items(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(values) % 2:
            raise ValueError("items added to what is no dict")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if type(key) not in (str, int):
                raise ValueError("keys that are no names")
            target[key] = value

    def storage(self, reference: Any) -> Storage:
        """The storage of ("storage", its type, its key, its device, its number of elements)."""
        word, kind, key, _, count = reference[:5]
        if word != "storage" or type(key) is not str or reference[5:] not in ((), (None,)):
            raise ValueError("a reference that is no storage")
        if not isinstance(kind, _Global) or kind.name not in DTYPES or _whole(count) < 0:
            raise ValueError("a storage of unknown kind")
        storage = Storage(key, DTYPES[kind.name], count)
        if self.storages.setdefault(key, storage) != storage:
            raise ValueError("two storages with one key")
        return storage


def _known_global(module: str, name: str) -> _Global:
    """A name of Python's; only those that make tensors are known."""
    known = _Global(module, name)
    if known not in CALLS and not (module == "torch" and name in DTYPES):
        raise ValueError(f"it names {module}.{name}")
    return known


def _call(target: Any, arguments: Any) -> Any:
    if not isinstance(target, _Global) or target not in CALLS or type(arguments) is not tuple:
        raise ValueError("a call of what is no function")
    return CALLS[target](*arguments)


def _whole(number: Any) -> int:
    if type(number) is not int:
        raise ValueError("a size that is no whole number")
    return number


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> StridedTensor:
    sizes = [_whole(number) for number in (offset, *shape, *strides)]
    if not isinstance(storage, Storage) or min(sizes) < 0 or len(shape) != len(strides):
        raise ValueError("a tensor that is no plain one")
    if len(shape) > MOST_AXES:
        raise ValueError(f"a tensor of {len(shape)} axes")
    return StridedTensor(storage, sizes[0], tuple(shape), tuple(strides))


def _parameter(tensor: Any, *_: Any) -> StridedTensor:
    if not isinstance(tensor, StridedTensor):
        raise ValueError("a parameter that is no tensor")
    return tensor


def _dictionary(*items: Any) -> dict[str, Any]:
    if items:
        raise ValueError("a dict that is made of something else")
    return {}


CALLS: dict[_Global, Callable[..., Any]] = {
    _Global("collections", "OrderedDict"): _dictionary,
    _Global("torch._utils", "_rebuild_tensor"): _tensor,
    _Global("torch._utils", "_rebuild_tensor_v2"): _tensor,
    _Global("torch._utils", "_rebuild_parameter"): _parameter,
}
