"""Time budgets of the demo's steps, the size of its model, and the number of threads."""

import time
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Budget:
    """Sizes and time budgets of one run."""

    vocabulary: int = 4000
    layers: int = 2
    width: int = 128
    length: int = 64  # tokens in a sequence
    batch_tokens: int = 1024
    minutes: float = 1.5  # of pre-training, by the clock
    steps: int = 0  # of pre-training, instead of minutes
    classifier_seconds: float = 40.0  # as estimated from the speed of pre-training
    tagger_seconds: float = 20.0  # its task is easier
    epochs: int = 5
    most_items: int = 6000  # for each task
    few: int = 120  # labelled sentences of the comparison of starts
    few_epochs: int = 10
    few_tests: int = 250
    occurrences: int = 300  # of the word whose senses are shown


FULL = Budget()
QUICK = Budget(
    minutes=0.3, classifier_seconds=15.0, tagger_seconds=6.0, few=60, few_tests=100, occurrences=150
)


def fastest_threads(most: int) -> int:
    """Return the number of threads, up to `most`, that compute a layer of this size fastest."""
    before = torch.get_num_threads()
    rows, table = torch.randn(1024, 128), torch.randn(128, 512)
    times = {}
    for count in {1, min(2, most), min(4, most)}:
        torch.set_num_threads(count)
        began = time.perf_counter()
        for _ in range(60):
            torch.nn.functional.gelu(rows @ table)
        times[count] = time.perf_counter() - began
    torch.set_num_threads(before)
    return min(times, key=times.__getitem__)
