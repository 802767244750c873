"""bertsmith-small is what a person expects of a trained model."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bertsmith import Bert, load
from bertsmith.analysis.heads import measure, texts
from bertsmith.analysis.senses import senses
from bertsmith.checkpoint import write
from bertsmith.demo.steps import PAIRS, introduce
from bertsmith.finetuning import finetune
from bertsmith.finetuning.setup import default_settings

# A word that must be among the first five guesses.
FACTS = {
    "Berlin is the capital of [MASK].": "germany",
    "He was born in 1950 and [MASK] in 2001.": "died",
    "World War [MASK] ended in 1945.": "ii",
    "She studied law at the [MASK] of Oxford.": "university",
    "Barack Obama was president of the United [MASK].": "states",
    "Water is made of hydrogen and [MASK].": "oxygen",
    "The Pacific [MASK] lies between Asia and America.": "ocean",
    "A week has seven [MASK].": "days",
}
MONEY = [
    "She opened an account at the bank to save some money.",
    "The bank raised its interest rates last year.",
    "He asked the bank for a loan to buy a house.",
    "Customers of the bank lost their savings in the crisis.",
    "The central bank prints the money of the country.",
    "He paid the cheque into his bank on Monday.",
    "The bank was founded in 1850 and has offices in London.",
    "Shares of the bank fell after the merger was announced.",
]
RIVER = [
    "They walked along the bank of the river until sunset.",
    "The village lies on the left bank of the stream.",
    "Willows grow on the muddy bank beside the water.",
    "The boat was tied to the southern bank of the lake.",
    "A castle stands on the eastern bank of the Rhine.",
    "The flood carried away trees from the river bank.",
    "Otters dig their holes in the bank of the creek.",
    "The road follows the north bank of the river for miles.",
]


@pytest.fixture(scope="module")
def small() -> Bert:
    return load("bertsmith-small", device="cpu")


def test_it_knows_a_capital(small: Bert) -> None:
    best, *_ = small.fill_mask("The capital of France is [MASK].")
    assert best.token == "paris"


@pytest.mark.parametrize("text", FACTS)
def test_it_knows_facts(small: Bert, text: str) -> None:
    assert FACTS[text] in [guess.token for guess in small.fill_mask(text, top=5)]


def test_a_head_looks_at_the_token_before(small: Bert) -> None:
    (_, _, share), *_ = measure(small, texts(small, MONEY + RIVER)).strongest("previous")
    assert share > 0.5


def test_two_senses_of_bank_are_told_apart(small: Bert) -> None:
    found = senses(small, "bank", MONEY + RIVER, groups=2)
    gold = [place.text in MONEY for place in found.places]
    same = sum(money == (group == 0) for money, group in zip(gold, found.groups, strict=True))
    assert max(same, len(gold) - same) >= len(gold) - 1


def test_sentences_on_one_subject_are_near() -> None:
    right = [
        one["nearest"] == second
        for one, (_, second) in zip(introduce()["near"], PAIRS, strict=True)
    ]
    assert sum(right) >= 3


def test_it_names_the_settings_that_it_was_measured_with(small: Bert, tmp_path: Path) -> None:
    usual = {"learning_rate": 4e-4, "optimizer": "muon"}
    assert default_settings("bertsmith-small", {}) == usual
    write(small.checkpoint, tmp_path)  # as `convert` and `finetune` do
    assert default_settings(tmp_path, {}) == usual


def test_it_is_fine_tuned_in_single_precision(tmp_path: Path) -> None:
    rows = [
        f"{text},{label}" for label, one in (("money", MONEY), ("river", RIVER)) for text in one
    ]
    (tmp_path / "train.csv").write_text("\n".join(["text,label", *rows]), "utf-8")
    finetune("bertsmith-small", tmp_path / "train.csv", tmp_path / "out", device="cpu", epochs=1)
    stored = load_file(tmp_path / "out" / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.float32}
    assert load(tmp_path / "out").classify(MONEY[0]).label in {"money", "river"}
