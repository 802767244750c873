"""Division of a step's samples over ranks and micro-batches."""

import heapq
from typing import NamedTuple

import numpy as np

from bertsmith.examples.draw import Numbers


class Division(NamedTuple):
    """The samples of a step that each rank reads, and the number of passes."""

    micro_batches: list[list[Numbers]]  # rank → its micro-batches → offsets of samples in the step
    useful: float  # tokens of samples over ranks × the tokens that the slowest rank computes


def divide(lengths: Numbers, *, ranks: int, micro_tokens: int, fill: int = 1) -> Division:
    """Divide samples of these lengths over ranks by tokens, then into micro-batches.

    Every rank makes the same number of passes of about `micro_tokens` each. Batches are padded to a
    multiple of `fill` tokens. If there are fewer samples than ranks, some micro-batches are empty.
    """
    total = int(lengths.sum())
    passes = max(1, -(-total // (ranks * micro_tokens)))
    bins = balance(lengths, ranks * passes)
    shares = [bins[rank::ranks] for rank in range(ranks)]
    work = [sum(-(-int(lengths[part].sum()) // fill) * fill for part in share) for share in shares]
    return Division(shares, total / (ranks * max(work)))


def balance(lengths: Numbers, count: int) -> list[Numbers]:
    """Divide indices into groups of nearly equal sums: at most one sequence over the mean."""
    if count == 1:
        return [np.arange(len(lengths))]
    groups: list[list[int]] = [[] for _ in range(count)]
    sums = [(0, group) for group in range(count)]
    for number in np.argsort(-lengths, kind="stable").tolist():
        least, group = sums[0]
        groups[group].append(number)
        heapq.heapreplace(sums, (least + int(lengths[number]), group))
    return [np.array(sorted(group), dtype=np.int64) for group in groups]
