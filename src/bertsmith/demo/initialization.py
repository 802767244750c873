"""The initialization of the demo's BERT: heads attend to neighbours, biases are token frequencies.

With random weights a BERT learns for hours that neighbouring tokens matter most; the demo has a
minute. Position embeddings are therefore initialized as sine waves, as in the first Transformer,
and each head attends to the token one or two places to the left or right: a step along a wave is a
rotation, which a head's matrices can represent. The bias of the masked-LM head is initialized with
the log frequencies of the tokens, so that no steps are spent on learning them. All parameters are
trained afterwards.
"""

import math
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bertsmith.checkpoint import Sentence, create, save
from bertsmith.corpus import Corpus
from bertsmith.demo.budget import Budget
from bertsmith.tokenizer import Tokenizer

DEVIATION = 0.05  # standard deviation of random weights
POSITIONS = 2.0  # scale of position embeddings, relative to token embeddings
SHARPNESS = 1.5  # scale of the queries and keys that attend to neighbours
SLOWEST = 30.0  # frequency of the fastest wave divided by that of the slowest
LOOKS = (-1, 1, -2, 2)  # offsets to which the heads of a layer attend
HEAD = 32  # width of a head


def write_initial_model(tokenizer: Tokenizer, corpus: Path, out: Path, budget: Budget) -> None:
    """Write the model that pre-training on a corpus starts from."""
    checkpoint = create(
        "bert-tiny",
        heads=["masked_lm", "next_sentence"],
        vocab_size=tokenizer.size,
        num_hidden_layers=budget.layers,
        hidden_size=budget.width,
        num_attention_heads=budget.width // HEAD,
        intermediate_size=4 * budget.width,
        max_position_embeddings=2 * budget.length,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=DEVIATION,
    )
    parameters = dict(checkpoint.model.named_parameters())
    with torch.no_grad():
        table = parameters["encoder.embedding.marks.position.weight"]
        table.copy_(waves(*table.shape) * POSITIONS * DEVIATION * math.sqrt(2))
        parameters["heads.masked_lm.output.bias"].copy_(log_frequencies(corpus, tokenizer.size))
        for name, parameter in parameters.items():
            if name.endswith("attention.qkv.weight"):
                parameter[: 2 * budget.width] = torch.cat(neighbour_looks(budget.width))
    save(out, checkpoint, tokenizer, Sentence())


def log_frequencies(corpus: Path, size: int) -> Tensor:
    """Return the log of each token's relative frequency in a corpus, with one added to counts."""
    tokens = Corpus.open(corpus)
    ids = tokens.gather(np.array([0]), np.array([tokens.tokens]))
    counts = torch.from_numpy(np.bincount(ids, minlength=size) + 1.0)
    return (counts / counts.sum()).log().float()


def speeds(width: int) -> Tensor:
    """Return the angle by which each wave turns from one position to the next: (width / 2,)."""
    return SLOWEST ** -(torch.arange(0, width, 2) / width)


def waves(count: int, width: int) -> Tensor:
    """Return sine and cosine of each wave, side by side, at each position: (count, width)."""
    turned = torch.arange(count)[:, None] * speeds(width)
    return torch.stack([turned.sin(), turned.cos()], -1).flatten(1)


def neighbour_looks(width: int) -> tuple[Tensor, Tensor]:
    """Return query and key matrices with which each head attends to one offset: (width, width)."""
    count = width // HEAD
    query, key = torch.zeros(width, width), torch.zeros(width, width)
    turns = speeds(width)
    for head, look in enumerate(islice(cycle(LOOKS), count)):
        # Every head has fast waves, which separate neighbours, and slow ones for distant places.
        for number, wave in enumerate(range(head, width // 2, count)):
            row, column = head * HEAD + 2 * number, 2 * wave
            turn = float(turns[wave]) * look
            rotation = torch.tensor(
                [[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]]
            )
            query[row : row + 2, column : column + 2] = SHARPNESS * rotation
            key[row : row + 2, column : column + 2] = SHARPNESS * torch.eye(2)
    return query, key
