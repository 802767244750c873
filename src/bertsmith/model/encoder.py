"""The encoder loop, and the model with its heads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bertsmith.batch import Batch, Layout
from bertsmith.model.attend import Scores, maps
from bertsmith.model.attention import Attention, Change, Context, Look


class Hidden(NamedTuple):
    """The output of the encoder, as heads read it."""

    last: Tensor  # (T, D) final states
    before: Tensor  # (T, D) the input of the last block; empty after a program
    context: Context  # the context of the last block


@dataclass
class Trace:
    """What to record in a forward pass, and the recorded tensors."""

    states: bool = False  # keep the hidden states of every depth
    heads: Mapping[int, Sequence[int] | None] = field(default_factory=dict)  # None: all heads
    looks: Mapping[int, Look] = field(default_factory=dict)  # depth → observer of queries and keys
    hidden: list[Tensor] = field(default_factory=list)  # the embedding's, then each depth's
    maps: dict[int, list[Tensor]] = field(default_factory=dict)  # depth → (H, n, n) a sequence

    def look(self, depth: int, layout: Layout) -> Look | None:
        """Return the observer of this depth: a named one, or the recorder of attention maps."""
        if depth not in self.heads:
            return self.looks.get(depth)

        def keep(query: Tensor, key: Tensor, scores: Scores) -> None:
            self.maps[depth] = maps(query, key, layout, scores, self.heads[depth])

        return keep

    def keep(self, x: Tensor) -> Tensor:
        """Record these states if states are wanted."""
        if self.states:
            self.hidden.append(x)
        return x


class Encoder(nn.Module):
    """An embedding and a list of blocks."""

    def __init__(
        self,
        embedding: nn.Module,
        signals: Iterable[nn.Module],
        blocks: Iterable[nn.Module],
        norm: nn.Module,
        plan: Iterable[tuple[int, int]],
    ) -> None:
        super().__init__()
        self.embedding, self.norm = embedding, norm
        self.signals, self.blocks = nn.ModuleList(signals), nn.ModuleList(blocks)
        self.plan = tuple(plan)  # at each depth, which block runs and which signal it gets
        self.changes: dict[int, Change] = {}  # depth → change of its heads' outputs
        self.skipped: dict[int, Tensor] = {}  # depth → a vector (D,) to add instead of its block
        # Another implementation of all blocks (see cpu/), if nothing is recorded or changed.
        self.program: Any = None

    def forward(self, batch: Batch, trace: Trace | None = None) -> Hidden:
        """Batch → hidden states (T, D)."""
        program = self.program if trace is None and self._is_plain_inference() else None
        if program is not None and program.takes(batch.layout):
            last = program(self.embedding(batch), batch.layout)
            return Hidden(last, last.new_empty(0), Context(batch.layout))
        for part in self.signals:  # before `run`, which may be compiled or captured
            part.prepare(batch.layout)  # type: ignore[operator]
        last, before, signal = self.run(self.embedding(batch), batch.layout, trace or Trace())
        return Hidden(
            last, before, Context(batch.layout, signal, None, self.changes.get(len(self.plan) - 1))
        )

    def _is_plain_inference(self) -> bool:
        """Is nothing changed, on a CPU, for inference in float32?"""
        plain = not self.changes and not self.skipped and torch.is_inference_mode_enabled()
        return plain and self.table.device.type == "cpu" and self.table.dtype == torch.float32

    @property
    def table(self) -> Tensor:
        """The token vectors; their device and data type are those of the encoder."""
        return self.embedding.token.weight  # type: ignore[union-attr, return-value]

    def run(self, x: Tensor, layout: Layout, trace: Trace) -> tuple[Tensor, Tensor, Any]:
        """Run all blocks on the embedded states; return the last block's input and context too.

        Only tensors are returned: a graph that returned the layout would depend on its lengths.
        """
        signals = [part(layout) for part in self.signals] or [None]
        before = trace.keep(x)
        for depth, (number, signal) in enumerate(self.plan):
            arguments = (signals[signal], trace.look(depth, layout), self.changes.get(depth))
            before, skip = x, self.skipped.get(depth)  # now, so that older states are freed
            x = trace.keep(
                self.blocks[number](x, Context(layout, *arguments)) if skip is None else x + skip
            )
        return self.norm(x), before, signals[self.plan[-1][1] if self.plan else 0]


class Model(nn.Module):
    """An encoder with the heads of its checkpoint."""

    def __init__(self, encoder: Encoder, heads: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.encoder, self.heads = encoder, nn.ModuleDict(heads)

    def forward(
        self, batch: Batch, head: str, rows: Tensor | None = None, trace: Trace | None = None
    ) -> Tensor:
        """Batch → the outputs of one head."""
        return self.heads[head](self.encoder(batch, trace), batch, rows)

    def use_kernel(self, kernel: str | None) -> None:
        """Set the attention kernel of every layer; None selects it by device and dtype."""
        for module in self.modules():
            if isinstance(module, Attention):
                module.kernel = kernel
