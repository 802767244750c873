"""How long each part of the journey may take, how large the model is, and on how many threads."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Pace:
    """What a run is given."""

    vocabulary: int = 4000
    layers: int = 2
    width: int = 128
    length: int = 64  # tokens in a sequence
    batch_tokens: int = 1024
    minutes: float = 1.5  # of pre-training, by the clock
    steps: int = 0  # of pre-training, instead of minutes
    classifier_seconds: float = 45.0  # as far as speed can be told beforehand
    tagger_seconds: float = 25.0  # its task is easier
    epochs: int = 5
    most_items: int = 6000  # for each task
    few: int = 160  # labelled examples, to compare starts
    few_epochs: int = 3
    few_tests: int = 150
    occurrences: int = 300  # of the word whose senses are shown


FULL = Pace()
QUICK = Pace(
    minutes=0.3,
    classifier_seconds=15.0,
    tagger_seconds=6.0,
    few=96,
    few_epochs=3,
    few_tests=100,
    occurrences=150,
)


def fastest_threads() -> int:
    """How many threads compute a layer of this size fastest: more are slower on busy cores."""
    most = torch.get_num_threads()
    rows, table = torch.randn(1024, 128), torch.randn(128, 512)
    times = {}
    for count in {1, min(2, most), min(4, most)}:
        torch.set_num_threads(count)
        began = time.perf_counter()
        for _ in range(60):
            torch.nn.functional.gelu(rows @ table)
        times[count] = time.perf_counter() - began
    torch.set_num_threads(most)
    return min(times, key=times.__getitem__)
