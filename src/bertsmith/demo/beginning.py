"""How the demo's BERT begins: knowing nothing, but with an eye for neighbours.

That neighbours matter most takes a BERT hours to find out, and here it has a minute. So positions
begin as sine waves, as in the first Transformer, and each head begins by looking at the token one
or two places before or after: a step along a wave is a rotation, which a head's matrices can hold.
From there everything is learned, and everything may change.
"""

from __future__ import annotations

import math
from itertools import cycle, islice
from pathlib import Path

import torch
from torch import Tensor

from bertsmith.checkpoint import Sentence, create, save
from bertsmith.demo.pace import Pace
from bertsmith.tokenizer import Tokenizer

DEVIATION = 0.05  # of random weights
POSITIONS = 2.0  # how much stronger positions are than tokens, at first
SHARPNESS = 1.5  # of the first look at neighbours
SLOWEST = 30.0  # how many times slower the slowest wave is than the fastest
LOOKS = (-1, 1, -2, 2)  # where the heads of a layer look at first
HEAD = 32  # width of a head


def begin_model(tokenizer: Tokenizer, out: Path, pace: Pace) -> None:
    """Write the model that pre-training starts from."""
    checkpoint = create(
        "bert-tiny",
        heads=["masked_lm", "next_sentence"],
        vocab_size=tokenizer.size,
        num_hidden_layers=pace.layers,
        hidden_size=pace.width,
        num_attention_heads=pace.width // HEAD,
        intermediate_size=4 * pace.width,
        max_position_embeddings=2 * pace.length,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=DEVIATION,
    )
    parameters = dict(checkpoint.model.named_parameters())
    with torch.no_grad():
        table = parameters["encoder.embedding.marks.position.weight"]
        table.copy_(waves(*table.shape) * POSITIONS * DEVIATION * math.sqrt(2))
        for name, parameter in parameters.items():
            if name.endswith("attention.qkv.weight"):
                parameter[: 2 * pace.width] = torch.cat(neighbour_looks(pace.width))
    save(out, checkpoint, tokenizer, Sentence())


def speeds(width: int) -> Tensor:
    """How far each wave turns from one position to the next: (width / 2,)."""
    return SLOWEST ** -(torch.arange(0, width, 2) / width)


def waves(count: int, width: int) -> Tensor:
    """Sine and cosine of each wave, side by side, at each position: (count, width)."""
    turned = torch.arange(count)[:, None] * speeds(width)
    return torch.stack([turned.sin(), turned.cos()], -1).flatten(1)


def neighbour_looks(width: int) -> tuple[Tensor, Tensor]:
    """Matrices of queries and keys by which each head looks at one neighbour: (width, width)."""
    count = width // HEAD
    query, key = torch.zeros(width, width), torch.zeros(width, width)
    turns = speeds(width)
    for head, look in enumerate(islice(cycle(LOOKS), count)):
        # Every head has fast and slow waves: one tells neighbours, the other far places apart.
        for number, wave in enumerate(range(head, width // 2, count)):
            row, column = head * HEAD + 2 * number, 2 * wave
            turn = float(turns[wave]) * look
            rotation = torch.tensor(
                [[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]]
            )
            query[row : row + 2, column : column + 2] = SHARPNESS * rotation
            key[row : row + 2, column : column + 2] = SHARPNESS * torch.eye(2)
    return query, key
