"""The weights of a page: tensors packed as int8 or float16."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.errors import BertsmithError

Floats = NDArray[np.float32]
GROUP = 32  # neighbours in a row that share a scale
PART = 3 * 2**20  # bytes in a part of base64; a multiple of 3, so that parts need no padding


@dataclass(frozen=True)
class Packed:
    """Tensors end to end, each at a multiple of 4 bytes; of a film, several sets, compressed."""

    entries: dict[str, dict[str, Any]]
    data: bytes

    def parts(self) -> list[str]:
        """The bytes in base64, in parts that a browser decodes one at a time."""
        places = range(0, len(self.data), PART)
        return [base64.b64encode(self.data[at : at + PART]).decode() for at in places]


def pack(
    tensors: Mapping[str, Tensor],
    dtype: str = "int8",
    scales: Mapping[str, Floats] | None = None,
) -> Packed:
    """Pack the tensors of a model; vectors (biases and norms) stay float32.

    A tensor that several names share, such as a tied output matrix, is stored once. `scales` are
    those of int8 matrices by name; by default each has its own.
    """
    if dtype not in ("int8", "float16"):
        raise BertsmithError(f'dtype must be "int8" or "float16", not {dtype!r}')
    entries: dict[str, dict[str, Any]] = {}
    known: dict[tuple[int, tuple[int, ...]], str] = {}
    data = bytearray()

    def place(array: NDArray[Any]) -> int:
        start = len(data)
        data.extend(np.ascontiguousarray(array).tobytes())
        data.extend(bytes(-len(data) % 4))
        return start

    for name, tensor in tensors.items():
        identity = (tensor.data_ptr(), tuple(tensor.shape))
        if tensor.numel() and identity in known:
            entries[name] = {"alias": known[identity]}
            continue
        known[identity] = name
        values = tensor.detach().float().cpu().numpy()
        if not np.isfinite(values).all():
            raise BertsmithError(f"the weights of {name} are not finite: the model is broken")
        if values.ndim == 1:
            entries[name] = {"kind": "float32", "shape": [len(values)], "at": place(values)}
            continue
        values = values.reshape(len(values), -1)
        entry: dict[str, Any] = {"kind": dtype, "shape": list(values.shape)}
        if dtype == "int8":
            codes, own = quantise(values, scales=None if scales is None else scales[name])
            entry |= {"group": GROUP, "scales": place(own), "at": place(codes)}
        elif np.abs(values).max(initial=0) > np.finfo(np.float16).max:
            entry |= {"kind": "float32", "at": place(values)}
        else:
            entry["at"] = place(values.astype(np.float16))
        entries[name] = entry
    return Packed(entries, bytes(data))


def quantise(
    values: Floats, group: int = GROUP, scales: Floats | None = None
) -> tuple[NDArray[np.int8], Floats]:
    """A matrix (R, C) as int8 codes (R, C), and scales (R, G) of each group of neighbours."""
    rows, columns = values.shape
    grid = grouped(values, group)
    scales = scales_of(values, group) if scales is None else scales
    safe = np.where(scales > 0, scales, 1)[..., None]
    codes = np.clip(np.rint(grid / safe), -127, 127).astype(np.int8)
    return codes.reshape(rows, -1)[:, :columns], scales


def scales_of(values: Floats, group: int = GROUP) -> Floats:
    """The scales (R, G) with which the largest value of each group becomes 127."""
    return (np.abs(grouped(values, group)).max(-1) / 127).astype(np.float32)


def grouped(values: Floats, group: int) -> Floats:
    """A matrix (R, C) in groups of neighbours (R, G, group), with zeros after the last."""
    gap = -values.shape[1] % group
    return np.pad(values, ((0, 0), (0, gap))).reshape(len(values), -1, group)
