"""Config: the architecture of a model as a value."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from bertsmith.errors import BertsmithError

MOST = 10_000_000  # a config file that asks for more is a mistake or an attack, not a model
# The least and the most that a number may be, where that is not 0 and MOST.
RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("vocabulary", "width", "feedforward", "max_length"), (1, MOST)),
    **dict.fromkeys(("span", "furthest", "size", "groups"), (1, MOST)),
    "layers": (0, 1000),
    "attention_heads": (1, 1024),
}
KINDS: dict[str, Any] = {"int": int, "float": (int, float), "bool": bool, "str": str}


def demand(fine: bool, fault: str) -> None:
    """Raise an error for a model that cannot be built."""
    if not fine:
        raise BertsmithError(f"model settings: {fault}")


class Checked:
    """A value that validates its fields: their types, and the range of each number."""

    def __post_init__(self) -> None:
        for item in fields(self):  # type: ignore[arg-type]
            name, value = item.name, getattr(self, item.name)
            kind = getattr(item.type, "__name__", str(item.type))
            if kind in KINDS:
                known = isinstance(value, KINDS[kind])
                known &= isinstance(value, bool) == (kind == "bool")  # True is an int to Python
                demand(known, f"{name} is {value!r}, which is no {kind}")
            if kind in ("int", "float"):
                least, most = RANGES.get(name, (0, 1 if name.endswith("dropout") else MOST))
                demand(least <= value <= most, f"{name} is {value}, which is out of range")


@dataclass(frozen=True)
class Rotary:
    """Positions as rotations of queries and keys; one base for each depth."""

    bases: tuple[float, ...]

    def __post_init__(self) -> None:
        demand(all(0 < base < math.inf for base in self.bases), f"rotary bases {self.bases}")


@dataclass(frozen=True)
class Disentangled(Checked):
    """Positions as learned vectors of relative distance that queries and keys attend to."""

    span: int  # distances lie in [-span, span): the table has 2 * span rows
    buckets: int = 0  # > 0: far distances share logarithmic buckets
    furthest: int = 512  # the distance at which the buckets end
    keys: bool = True  # content attends to position
    queries: bool = True  # position attends to content
    shared: bool = False  # the content projections also project positions
    key_bias: bool = True
    norm: bool = False  # layer norm on the table

    def __post_init__(self) -> None:
        super().__post_init__()
        demand(self.buckets != 1, "one bucket of distances is too few")


@dataclass(frozen=True)
class DistanceBias(Checked):
    """Positions as a learned bias on scores, for each head and bucket of relative distances."""

    buckets: int  # half of them for each direction
    furthest: int  # from this distance on, all are in the last bucket

    def __post_init__(self) -> None:
        super().__post_init__()
        fine = self.buckets % 4 == 0 and 0 < self.buckets < 4 * self.furthest
        demand(fine, f"{self.buckets} buckets of distances up to {self.furthest}")


@dataclass(frozen=True)
class Convolution(Checked):
    """A convolution over the embeddings, added after the first block."""

    size: int
    groups: int = 1
    activation: str = "tanh"

    def __post_init__(self) -> None:
        super().__post_init__()
        demand(self.size % 2 == 1, f"a convolution needs a middle: its size {self.size} is even")


@dataclass(frozen=True)
class HeadConfig(Checked):
    """One head: pick rows, transform them, map them to outputs."""

    outputs: int  # 0: the transformed rows are the result
    pool: str = "every"  # "every" row, the "first" of each sequence, or their "mean"
    dense: int = 0  # width of the dense layer before the output; 0 for none
    dense_bias: bool = True
    activation: str = "gelu"
    norm: bool = False
    bias: bool = True
    tied: bool = False  # the output matrix is the token table
    dropout: float = 0.0
    anchored: bool = False  # add the first state and normalise before the dense layer
    enhanced: int = 0  # > 0: an enhanced mask decoder with that many absolute positions


@dataclass(frozen=True)
class Config(Checked):
    """The configuration of an encoder and its heads, without names of families."""

    vocabulary: int = 30522
    width: int = 768
    layers: int = 12
    attention_heads: int = 12
    feedforward: int = 3072
    max_length: int = 512
    order: tuple[int, ...] = ()  # the block at each depth if they share; (0,) * 12 is ALBERT's
    head_width: int = 0  # 0: width / attention_heads
    kept: tuple[int, ...] = ()  # attention heads left in each block, if some were pruned
    embedding_width: int = 0  # 0: width
    project_embedding: bool = False  # a linear map from embedding_width to width
    norm_after_projection: bool = False
    embedding_norm: bool = True
    segments: int = 2
    positions: int = 512  # rows of the learned position table; 0 for none
    position_offset: int = 0
    signal: Rotary | Disentangled | DistanceBias | None = None
    windows: tuple[int | None, ...] = ()  # half-width of local attention at each depth
    causal: bool = False  # a token sees only what stands to its left
    scale_terms: int = 1  # attention scores are divided by sqrt(head_width * scale_terms)
    attention_bias: bool = True
    partial_bias: bool = False  # biases on queries and values only
    feedforward_bias: bool = True
    gated: bool = False
    activation: str = "gelu"
    pre_norm: bool = False
    norm_epsilon: float = 1e-12
    norm_bias: bool = True
    convolution: Convolution | None = None
    embedding_dropout: float = 0.1
    attention_dropout: float = 0.1
    attention_output_dropout: float = 0.1
    feedforward_inner_dropout: float = 0.0
    feedforward_output_dropout: float = 0.1
    initial_deviation: float = 0.02
    pad_id: int = 0
    heads: Mapping[str, HeadConfig] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        width, heads, conv = self.width, self.attention_heads, self.convolution
        even = bool(self.head_width) or width % heads == 0
        demand(even, f"width {width} is not a multiple of {heads} attention heads")
        demand(not conv or width % conv.groups == 0, f"width {width} does not fit {conv}")
        turned = isinstance(self.signal, Rotary)
        demand(not turned or self.per_head % 2 == 0, f"{self.per_head} is odd: nothing to rotate")
        shared = isinstance(self.signal, DistanceBias) and bool(self.kept)
        demand(not shared, "heads that share biases of distances cannot be pruned; zero them")

    @property
    def plan(self) -> tuple[int, ...]:
        """The block that runs at each depth."""
        return self.order or tuple(range(self.layers))

    @property
    def token_width(self) -> int:
        """The width of the token table."""
        return self.embedding_width or self.width

    @property
    def per_head(self) -> int:
        """d, the width of one attention head."""
        return self.head_width or self.width // self.attention_heads
