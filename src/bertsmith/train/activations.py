"""Which layers are trained, and their hidden states: recomputed, or cached (frozen encoder)."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.model import Encoder, Model
from bertsmith.model.attention import Context
from bertsmith.model.encoder import Hidden, Trace

CACHE = 4 << 30  # bytes of hidden states that are kept for a frozen encoder


def freeze(model: Model, which: str) -> None:
    """Freeze the embedding, that and the lowest layers, or the whole encoder."""
    if which == "none":
        return
    encoder = model.encoder
    frozen: list[nn.Module] = [encoder.embedding]
    if which == "encoder":
        frozen = [encoder]
    elif which != "embedding":
        depth = len(encoder.plan)
        if int(which) > depth:
            raise BertsmithError(f"{which} layers cannot be frozen: the model has {depth}")
        lower = {number for number, _ in encoder.plan[: int(which)]}
        if lower & {number for number, _ in encoder.plan[int(which) :]}:
            raise BertsmithError("the layers of this model share their weights: freeze encoder")
        frozen += [encoder.blocks[number] for number in sorted(lower)]
    for module in frozen:
        module.requires_grad_(False)


def train_biases(model: Model) -> None:
    """Freeze all parameters of the encoder but its biases, those of norms included (BitFit)."""
    for name, parameter in model.encoder.named_parameters():
        parameter.requires_grad_(name.endswith("bias"))


def blocks_of(module: nn.Module) -> list[Any]:
    """The layers of all encoders in a module."""
    encoders = (part for part in module.modules() if isinstance(part, Encoder))
    return [block for encoder in encoders for block in encoder.blocks]


def checkpoint_blocks(module: nn.Module) -> None:
    """Let each block recompute its activations in the backward pass instead of storing them."""
    for block in blocks_of(module):
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def restore_forward(model: Model) -> None:
    """Undo `checkpoint_blocks` and `CachedEncoder`."""
    for module in (model.encoder, *model.encoder.blocks):
        module.__dict__.pop("forward", None)


class CachedEncoder:
    """Replaces the forward of a frozen encoder: in training, each text passes through it once.

    States are those of evaluation, without dropout. What does not fit into CACHE bytes is
    computed again each time.
    """

    def __init__(self, model: Model) -> None:
        self.encoder, self.bytes = model.encoder, 0
        self.forward = model.encoder.forward
        self.states: dict[tuple[bytes, bytes], Tensor] = {}  # ids and segments → (length, D)
        model.encoder.forward = self  # type: ignore[method-assign]

    def fill(self, batches: Iterable[Batch]) -> None:
        """Compute the states of batches, while there is room for them."""
        device = next(self.encoder.parameters()).device
        for batch in batches:
            if self.bytes >= CACHE:
                return
            self(batch.to(device))

    def __call__(self, batch: Batch, trace: Trace | None = None) -> Hidden:
        """Batch → hidden states (T, D)."""
        if not self.encoder.training:
            return self.forward(batch, trace)
        rows = [row.cpu().split(batch.layout.lengths) for row in (batch.ids, batch.segments)]
        texts = list(zip(*rows, strict=True))
        keys = [(ids.numpy().tobytes(), segments.numpy().tobytes()) for ids, segments in texts]
        fresh: dict[tuple[bytes, bytes], Tensor] = {}
        if new := [place for place, key in enumerate(keys) if key not in self.states]:
            both = ([row.tolist() for row in texts[place]] for place in new)
            missing = Batch.of(*zip(*both, strict=True))
            self.encoder.eval()
            with torch.no_grad():
                hidden = self.forward(missing.to(batch.ids.device))
            self.encoder.train()
            for place, states in zip(new, hidden.last.split(missing.layout.lengths), strict=True):
                fresh[keys[place]] = states
                if keys[place] not in self.states and self.bytes + states.nbytes <= CACHE:
                    self.states[keys[place]] = states.clone()
                    self.bytes += states.nbytes
        last = torch.cat([fresh[key] if key in fresh else self.states[key] for key in keys])
        return Hidden(last, last, Context(batch.layout, None, None, None))
