"""How a run measures itself on held-out text."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bertsmith.corpus import Corpus
from bertsmith.train import Recipe
from bertsmith.train.building import built, examples_of
from bertsmith.train.evaluate import pseudo_perplexity


@pytest.mark.parametrize(("alone", "least", "most"), [(10**6, 1000, 10**6), (600, 100, 600)])
def test_pseudo_perplexity_reads_no_more_than_it_may(
    alone: int,
    least: int,
    most: int,
    recipe: Callable[..., Recipe],
    prepared: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, corpus = recipe(), Corpus.open(prepared)
    model = built(made, corpus.tokenizer).learner.model
    examples = examples_of(made, corpus, 32, 2)
    read = []
    model.encoder.register_forward_pre_hook(lambda _, inputs: read.append(len(inputs[0].ids)))
    monkeypatch.setattr("bertsmith.train.evaluate.ALONE", alone)
    assert corpus.tokenizer.mask_id is not None
    found = pseudo_perplexity(model, examples, sequences=4, device=torch.device("cpu"), most=256)
    assert found > 1
    assert least < sum(read) <= most
