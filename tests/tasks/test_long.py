"""A document of 5,000 words through trained weights: nothing in it is out of reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from bertsmith import Bert
from bertsmith.batch import Batch
from bertsmith.checkpoint import read, read_sentence
from bertsmith.cpu import prepare
from bertsmith.tasks.training import label_config
from bertsmith.tokenizer import Encoding, Tokenizer
from tasks.words import LINES

WORDS = 5000
PLACES = ("Uppsala", "Boston", "Kraków", "Prague", "Leeds")
FILLER = [line for line in LINES.splitlines() if not any(place in line for place in PLACES)]
CITIES = ["Madrid", "Lisbon", "Vienna", "Athens", "Dublin", "Oslo", "Berlin", "Rome", "Cairo"]
ASKED = "In which city does the teacher live?"


def home(city: str) -> str:
    return f"The teacher lives in {city} ."


@pytest.fixture(scope="module")
def reader(minilm_folder: Path) -> Bert:
    """MiniLM as it was trained, and on it three heads that are fitted to a few sentences."""
    found = read_sentence(minilm_folder)
    assert found is not None
    # Where a CPU has units for it, half precision is three times as fast.
    half = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    checkpoint = read(
        found[0],
        heads=(),
        new=["tag", "answer", "classify"],
        settings=label_config(("O", "B-LOC"), "single_label_classification"),
        dtype=torch.bfloat16 if half else torch.float32,
    )
    bert = Bert(checkpoint, Tokenizer.load(found[0], family=checkpoint.family.name))
    texts = [" ".join(mixed(shift)) for shift in range(len(CITIES))]
    alone = bert.tokenizer.encode_many(texts)
    marks = cities(texts, alone, 0)
    fit(bert, "tag", alone, torch.stack([0.5 - marks, marks - 0.5], 1))
    asked = bert.tokenizer.encode_many([ASKED] * len(texts), texts)
    spots = cities(texts, asked, 1)
    fit(bert, "answer", asked, torch.stack([spots, spots], 1))
    topics = bert.tokenizer.encode_many([*FILLER, *map(home, CITIES)])
    sides = torch.tensor([-0.5] * len(FILLER) + [0.5] * len(CITIES))
    fit(bert, "classify", topics, torch.stack([-sides, sides], 1))
    prepare(bert.model)
    return bert


def mixed(shift: int) -> list[str]:
    """Filler with a city here and there."""
    lines = [FILLER[n % len(FILLER)] for n in range(shift, shift + 18)]
    for number in range(3):
        lines.insert(5 * number + shift % 5, home(CITIES[(shift + number) % len(CITIES)]))
    return lines


def cities(texts: Sequence[str], encoded: Sequence[Encoding], source: int) -> Tensor:
    """For every token, one after the other: is it a city of the texts?"""
    return torch.tensor(
        [
            float(own == source and text[slice(*place)] in CITIES)
            for text, one in zip(texts, encoded, strict=True)
            for own, place in zip(one.sources, one.offsets, strict=True)
        ]
    )


def fit(bert: Bert, kind: str, encoded: Sequence[Encoding], aims: Tensor) -> None:
    """Give a head the linear map from what it reads to what is wanted of each row."""
    head, seen = bert.model.heads[kind], []
    output = head.output
    assert isinstance(output, nn.Linear)
    hook = output.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    batch = Batch.of([one.ids for one in encoded], [one.segments for one in encoded])
    with torch.no_grad():
        head(bert.model.encoder(batch), batch)
        hook.remove()
        states = torch.cat([seen[0], torch.ones_like(seen[0][:, :1])], 1).double()
        # Ridge regression in which the few rows that are meant weigh as much as all others;
        # scaled, so that what is wanted becomes near certain.
        meant = aims[:, 1] > 0
        weighed = states * torch.where(meant, len(aims) / meant.sum(), 1.0)[:, None]
        left = weighed.T @ states + 1e-1 * torch.eye(states.shape[1])
        found = torch.linalg.solve(left, weighed.T @ aims.double()) * 40
        output.weight.copy_(found[:-1].T)
        output.bias.copy_(found[-1])


def document(place: Callable[[int], list[str]]) -> str:
    """So many words of filler, with what stands at some of them."""
    words: list[str] = []
    number = 0
    while len(words) < WORDS:
        words += [*FILLER[number % len(FILLER)].split(), *place(number)]
        number += 1
    return " ".join(words)


@pytest.mark.slow
def test_every_entity_is_found(reader: Bert) -> None:
    text = document(lambda n: home(CITIES[n // 30 % len(CITIES)]).split() if n % 30 == 7 else [])
    gold = [(at, at + len(c)) for c in CITIES for at in range(len(text)) if text.startswith(c, at)]
    assert len(gold) >= 10
    found = {(one.start, one.end) for one in reader.tag(text)}
    assert set(gold) <= found
    assert len(found) < 2 * len(gold)


@pytest.mark.slow
def test_the_answer_is_found_wherever_it_stands(reader: Bert) -> None:
    text = document(lambda n: home(CITIES[0]).split() if n == 345 else [])
    (answer,) = reader.answer(ASKED, text)
    assert answer.text == CITIES[0]
    assert answer.start == text.index(CITIES[0])
    assert len(text[: answer.start].split()) > 0.9 * WORDS


@pytest.mark.slow
def test_a_text_is_classified_by_all_of_it(reader: Bert) -> None:
    """The first 512 tokens speak of one thing, all others of another."""
    begin = " ".join(FILLER)
    text = f"{begin} " + " ".join(home(CITIES[n % len(CITIES)]) for n in range(WORDS // 6))
    assert len(reader.encode([begin])[0]) < 512
    assert reader.classify(begin).label == "O"
    assert reader.classify(text).label == "B-LOC"
    assert len(text.split()) > 0.95 * WORDS
