"""Encodes on two and on three gloo processes, and compares with one process.

    python encode_ranks.py

Run by test_devices.py in a process of its own. Exits with status 1 if a rank failed.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo  # sharding would import it, in every process
import torch.distributed.fsdp

from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.tasks.answering.task import find_answers
from bertsmith.tasks.masked_lm import score_masked_lm
from bertsmith.train.distributed import Ranks
from bertsmith.train.precision import Precision
from serve.live import tiny
from train.forked import forked

torch.set_num_threads(1)
TEXTS = ["lorem ipsum " * (number % 7) + "dolor" for number in range(13)]


def answers(bert: Any) -> list[Any]:
    """What a model says of texts, with and without heads."""
    masked = [f"{text} [MASK]" for text in TEXTS[:9]]
    vectors = bert.embed(TEXTS)
    spans = [one.answers(2, True) for one in find_answers(bert, ["dolor"] * 9, TEXTS[:9])]
    scores = score_masked_lm(bert, TEXTS)
    return [vectors.tolist(), bert.classify(TEXTS), bert.fill_mask(masked), spans, scores]


def check_division(ranks: Ranks) -> None:
    """All ranks have the results of one process, and each has encoded a part of the batches."""
    bert = tiny()
    bert.budget = 24
    sizes: list[int] = []
    bert.model.encoder.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0].ids)))
    alone = answers(bert)
    whole = len(sizes)
    bert.ranks = ranks
    sizes.clear()
    assert answers(bert) == alone
    assert whole / ranks.count <= len(sizes) <= whole / ranks.count + 5  # five passes
    assert np.array_equal(bert.embed([TEXTS[0]]), tiny().embed([TEXTS[0]]))  # fewer than ranks
    assert bert.embed([]).shape == (0, bert.vector_width)


def check_errors(ranks: Ranks) -> None:
    """An error of one rank is an error of all, and they go on together."""
    bert = tiny()
    bert.budget, bert.ranks = 24, ranks

    def fail(model: Any, hidden: Any, batch: Any, group: Any) -> list[int]:
        if ranks.rank == 1:
            raise ValueError("no such thing")
        return [0] * len(group)

    own = ranks.rank == 1
    message = "no such thing" if own else "rank 1 failed with ValueError: no such thing"
    with pytest.raises(ValueError if own else BertsmithError, match=f"^{message}$"):
        bert.run(bert.windows(TEXTS), fail)
    assert ranks.collect(ranks.rank) == list(range(ranks.count))


def check_shards(ranks: Ranks) -> None:
    """Sharded weights, between two steps of training: every pass is a collective."""
    whole, bert = tiny(), tiny()
    whole.budget = bert.budget = 24
    bert.ranks = ranks
    model: Any = bert.model
    ranks.wrap(model, "fsdp", Precision.of("float32", torch.device("cpu")))
    batch = Batch.of([[5, 6, 7]])
    for _ in range(2):
        model(batch, "classify").sum().backward()
        model.unshard()  # what is in no block: passes call the encoder and heads, not the model
        vectors = bert.embed(TEXTS)
        model.reshard()
        assert np.abs(vectors - whole.embed(TEXTS)).max() < 1e-6


def main(rank: int) -> None:
    """All checks of one rank."""
    ranks = Ranks(torch.device("cpu"))
    with ranks.process_group():
        check_division(ranks)
        check_errors(ranks)
        check_shards(ranks)


if __name__ == "__main__":
    sys.exit(any([*forked(2, main), *forked(3, main)]))
