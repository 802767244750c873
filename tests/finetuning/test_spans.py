"""Spans that overlap: read from characters and words, scored, learned, found in long texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from bertsmith import BertsmithError, load
from bertsmith.finetuning import finetune
from bertsmith.finetuning.batches import batch_of
from bertsmith.tasks.evaluate import evaluate
from bertsmith.tasks.read import read_data
from bertsmith.tasks.registry import task_named, task_of
from bertsmith.tasks.spans.task import ABSENT, DEPTH, _turned, best_window, span_scores
from finetuning.conftest import CITIES, FAST, Write, labelled
from finetuning.test_words import opened
from tasks.models import Maker


def nested(count: int = 24) -> list[dict[str, Any]]:
    """Texts with a city inside of a longer span."""
    rows = []
    for number in range(count):
        city = CITIES[number % 3]
        before, after = number % 5 * (number > 4), number // 5 % 5
        text = f"the old river of {city} flows" if number % 4 else "the storm of bees"
        filler = "the storm of bees "
        text = f"{filler * before}{text} {filler * after}".strip()
        at = text.find(city)
        spans = [[at - 13, at + len(city), "RIVER"], [at, at + len(city), "CITY"]]
        rows.append({"text": text, "entities": spans if number % 4 else []})
    return rows


def test_overlapping_spans_are_kept(write: Write) -> None:
    dataset = read_data(write("nested.jsonl", nested()))
    assert dataset.task == "spans"
    assert dataset.guessed == "it has texts with spans that overlap"
    assert dataset.examples[1].spans == ((4, 23, "RIVER"), (17, 23, "CITY"))
    assert dataset.labels == ("CITY", "RIVER")


def test_spans_that_do_not_overlap_are_for_tagging(write: Write) -> None:
    rows = [{"text": "in Paris", "entities": [[3, 8, "CITY"]]}]
    assert read_data(write("flat.jsonl", rows)).task == "tagging"
    assert read_data(write("flat.jsonl", rows), "spans").examples[0].spans == ((3, 8, "CITY"),)


def test_spans_of_words_are_read(write: Write) -> None:
    tokens = ["the", "river", "of", "Paris"]
    spans = [{"start": 1, "end": 4, "type": "RIVER"}, {"start": 3, "end": 4, "type": "CITY"}]
    dataset = read_data(write("words.jsonl", [{"tokens": tokens, "entities": spans}]))
    assert (dataset.task, dataset.guessed) == ("spans", "it has words with spans")
    assert dataset.examples[0].text == "the river of Paris"
    assert dataset.examples[0].spans == ((4, 18, "RIVER"), (13, 18, "CITY"))


def test_a_span_beyond_the_words_is_refused(write: Write) -> None:
    rows = [{"tokens": ["a", "b"], "entities": [{"start": 1, "end": 3, "type": "X"}]}]
    with pytest.raises(BertsmithError, match="line 1: 'entities' has a span from 1 to 3"):
        read_data(write("words.jsonl", rows))


def test_scores_are_those_written_out() -> None:
    torch.manual_seed(0)
    types, width = 3, 4
    outputs = torch.randn(9, 2 * DEPTH + 2 * types)
    firsts, lasts = torch.tensor([0, 2, 3, 6, 7]), torch.tensor([1, 2, 5, 6, 8])
    owners = torch.tensor([0, 0, 0, 1, 1])
    scores = span_scores(outputs, firsts, lasts, owners, types, width)
    assert scores.shape == (5, width, types)
    places = torch.arange(5)
    query = _turned(outputs[firsts, :DEPTH], places)
    key = _turned(outputs[lasts, DEPTH : 2 * DEPTH], places)
    for first in range(5):
        for more in range(width):
            last = first + more
            if last > 4 or owners[first] != owners[last]:
                assert (scores[first, more] == ABSENT).all()
                continue
            begin = outputs[firsts[first], 2 * DEPTH : 2 * DEPTH + types]
            end = outputs[lasts[last], 2 * DEPTH + types :]
            wanted = query[first] @ key[last] / DEPTH**0.5 + begin + end
            torch.testing.assert_close(scores[first, more], wanted)


def test_products_depend_on_distances_alone() -> None:
    rows = torch.randn(2, DEPTH)
    near = _turned(rows, torch.tensor([3, 5]))
    far = _turned(rows, torch.tensor([40, 42]))
    torch.testing.assert_close(near[0] @ near[1], far[0] @ far[1], rtol=1e-4, atol=1e-4)


def test_the_loss_is_the_one_written_out(base: Maker, write: Write) -> None:
    bert, training, samples = opened(base().folder, write("nested.jsonl", nested(6)))
    items = [item for sample in samples for item in sample]
    batch = batch_of(items).to(bert.device)
    with torch.no_grad():
        outputs = training.outputs(bert.model, batch)
        targets = training.targets(items)
        ours = float(training.loss(outputs, batch, targets))
        scores = training.scores(outputs, targets)
    theirs = 0.0
    for number, item in enumerate(items):
        own = targets["owners"] == number
        gold = {(row, width, kind) for row, width, kind in item.target[1]}
        for kind in range(len(training.labels)):
            right, wrong = 1.0, 1.0
            for row, values in enumerate(scores[own, :, kind]):
                for width, score in enumerate(values.tolist()):
                    if score == ABSENT:
                        continue
                    if (row, width, kind) in gold:
                        right += 2.718281828459045**-score
                    else:
                        wrong += 2.718281828459045**score
            theirs += float(torch.tensor([right, wrong]).log().sum())
    assert ours == pytest.approx(theirs, rel=1e-4)


def test_fillers_change_nothing(base: Maker, write: Write) -> None:
    bert, training, samples = opened(base().folder, write("nested.jsonl", nested(6)))
    items = [item for sample in samples for item in sample]
    batch = batch_of(items).to(bert.device)
    targets = training.targets(items)
    with torch.no_grad():
        outputs = training.outputs(bert.model, batch)
        plain = float(training.loss(outputs, batch, targets))
        more = torch.cat([outputs, torch.randn(16, outputs.shape[1])])
        padded = training.padded(targets, len(items) + 1, len(more))
        assert float(training.loss(more, batch, padded)) == pytest.approx(plain, rel=1e-5)


@pytest.mark.slow
def test_a_tiny_model_learns_nested_spans(base: Maker, write: Write, tmp_path: Path) -> None:
    file, out = write("nested.jsonl", nested(100)), tmp_path / "nested"
    more = {**FAST, "epochs": 16, "max_length": 16}  # so that long texts are read in windows
    finetune(base().folder, file, out, dev=file, device="cpu", **more)
    bert = load(out, device="cpu")
    assert task_of(bert) is task_named("spans")
    scores = evaluate(bert, read_data(file)).scores
    assert scores["f1"] > 0.95
    found = bert.find_spans("the old river of Paris flows")
    assert {(one.text, one.label) for one in found} == {
        ("old river of Paris", "RIVER"),
        ("Paris", "CITY"),
    }
    import transformers

    theirs = transformers.AutoModelForTokenClassification.from_pretrained(out)
    assert theirs.config.num_labels == 2 * DEPTH + 4
    # A text far longer than the model reads: the same spans wherever they are.
    filler = "the storm of bees " * 6
    for before in range(7):
        long = f"{filler[: 18 * before]}the old river of Paris flows {filler}"
        texts = [one.text for one in bert.find_spans(long)]
        assert texts == ["old river of Paris", "Paris"]


def test_a_span_is_taken_from_its_best_window() -> None:
    windows = [range(10), range(5, 15), range(10, 20)]
    assert best_window(windows, range(2), 20) == windows[0]
    assert best_window(windows, range(8, 10), 20) == windows[1]
    assert best_window(windows, range(18, 20), 20) == windows[2]


def test_a_file_without_spans_is_refused(base: Maker, write: Write) -> None:
    file = write("none.jsonl", [{"text": "a b", "entities": []}] * 4)
    with pytest.raises(BertsmithError, match="contains no spans to learn"):
        finetune(base().folder, file, task="spans", dev=file, device="cpu")


def test_another_task_forgets_what_this_one_stored(
    base: Maker, write: Write, tmp_path: Path
) -> None:
    few = {**FAST, "epochs": 1}
    file, first, second = write("nested.jsonl", nested()), tmp_path / "one", tmp_path / "two"
    finetune(base().folder, file, first, dev=file, device="cpu", **few)
    texts = write("texts.jsonl", labelled())
    finetune(first, texts, second, dev=texts, device="cpu", **few)
    bert = load(second, device="cpu")
    assert task_of(bert).name == "classification"
    assert "span_types" not in bert.checkpoint.settings
    with pytest.raises(BertsmithError, match="this model cannot find spans: no such head"):
        bert.find_spans("a text")
