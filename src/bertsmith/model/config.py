"""What a model is, as a value: families produce a Config, `build` turns it into modules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from bertsmith.errors import BertsmithError


@dataclass(frozen=True)
class Rotary:
    """Positions as rotations of queries and keys; one base for each depth."""

    bases: tuple[float, ...]


@dataclass(frozen=True)
class Disentangled:
    """Positions as learned vectors of relative distance that queries and keys attend to."""

    span: int  # distances lie in [-span, span): the table has 2 * span rows
    buckets: int = 0  # > 0: far distances share logarithmic buckets
    furthest: int = 512  # the distance at which the buckets end
    keys: bool = True  # content attends to position
    queries: bool = True  # position attends to content
    shared: bool = False  # the content projections also project positions
    key_bias: bool = True
    norm: bool = False  # layer norm on the table


@dataclass(frozen=True)
class Convolution:
    """A convolution over the embeddings, added after the first block."""

    size: int
    groups: int = 1
    activation: str = "tanh"


@dataclass(frozen=True)
class HeadConfig:
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
class Config:
    """An encoder and its heads: numbers and choices, no names of families."""

    vocabulary: int = 30522
    width: int = 768
    layers: int = 12
    attention_heads: int = 12
    feedforward: int = 3072
    max_length: int = 512
    order: tuple[int, ...] = ()  # the block at each depth if they share; (0,) * 12 is ALBERT's
    head_width: int = 0  # 0: width / attention_heads
    embedding_width: int = 0  # 0: width
    project_embedding: bool = False  # a linear map from embedding_width to width
    norm_after_projection: bool = False
    segments: int = 2
    positions: int = 512  # rows of the learned position table; 0 for none
    position_offset: int = 0
    signal: Rotary | Disentangled | None = None
    windows: tuple[int | None, ...] = ()  # half-width of local attention at each depth
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
        for item in fields(self):
            value, kind = getattr(self, item.name), KINDS.get(str(item.type))
            if kind and not isinstance(value, kind):
                raise BertsmithError(f"model setting {item.name} is {value!r}, not a {item.type}")
            if item.type == "int" and not 0 <= value <= LIMITS.get(item.name, 10_000_000):
                raise BertsmithError(f"model size out of range: {item.name} is {value}")
        for name in (
            "vocabulary",
            "width",
            "layers",
            "attention_heads",
            "feedforward",
            "max_length",
        ):
            if not getattr(self, name):
                raise BertsmithError(f"model size out of range: {name} is 0")
        if not self.head_width and self.width % self.attention_heads:
            raise BertsmithError(
                f"width {self.width} is not a multiple of {self.attention_heads} attention heads"
            )

    @property
    def plan(self) -> tuple[int, ...]:
        """The number of the block that runs at each depth."""
        return self.order or tuple(range(self.layers))

    @property
    def token_width(self) -> int:
        """The width of the token table."""
        return self.embedding_width or self.width

    @property
    def per_head(self) -> int:
        """d, the width of one attention head."""
        return self.head_width or self.width // self.attention_heads


KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
}
# A config file that asks for more than this is a mistake or an attack, not a model.
LIMITS = {"layers": 1000, "attention_heads": 1024}
