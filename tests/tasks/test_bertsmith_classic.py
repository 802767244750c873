"""bertsmith-classic is BERT as published: two heads, segments, and transformers agrees."""

import pytest
import torch

from bertsmith import Bert, load
from bertsmith.checkpoint import locate

FOLLOWS = [
    ("She studied the violin in Vienna.", "Later she played in an orchestra."),
    ("He was born in a small village in Poland.", "In 1920 he moved to Warsaw to study law."),
    ("The river flooded the town in spring.", "Hundreds of families lost their homes."),
]
ELSEWHERE = [
    ("She studied the violin in Vienna.", "The engine has four cylinders."),
    ("He was born in a small village in Poland.", "It is found in Brazil and Peru."),
]
CLOZES = {
    "The capital of Japan is [MASK].": "tokyo",
    "Paris is the [MASK] of France.": "capital",
    "Water freezes at zero [MASK] Celsius.": "degrees",
}


@pytest.fixture(scope="module")
def classic() -> Bert:
    return load("bertsmith-classic", device="cpu")


def test_it_knows_what_follows(classic: Bert) -> None:
    for first, second in FOLLOWS:
        assert classic.follows(first, second) > 0.9
    for first, second in ELSEWHERE:
        assert classic.follows(first, second) < 0.2


@pytest.mark.parametrize("text", CLOZES)
def test_it_fills_masks(classic: Bert, text: str) -> None:
    assert classic.fill_mask(text)[0].token == CLOZES[text]


def test_transformers_agrees_on_both_heads(classic: Bert) -> None:
    transformers = pytest.importorskip("transformers")
    folder = locate("bertsmith-classic")
    theirs = transformers.BertForPreTraining.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.model_max_length == 128
    for first, second in (*FOLLOWS, *ELSEWHERE):
        with torch.no_grad():
            output = theirs(**tokenizer(first, second, return_tensors="pt"))
        own = classic.follows(first, second)
        chance = output.seq_relationship_logits.softmax(-1)[0, 0]
        assert abs(float(chance) - own) < 1e-4
