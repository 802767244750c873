"""Tags, answers, choices: aligned by characters, windowed, and all gold counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from bertsmith import BertsmithError, load
from bertsmith.batch import Batch
from bertsmith.bert import Bert
from bertsmith.finetuning import finetune, settings_for
from bertsmith.finetuning.batches import TaskBatch, TaskLoss, batch_of, filled
from bertsmith.finetuning.setup import open_fresh
from bertsmith.tasks.answering.task import AnsweringTraining
from bertsmith.tasks.evaluate import evaluate
from bertsmith.tasks.read import read_data
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.tagging.task import first_tokens
from bertsmith.tasks.training import Sample, Training
from bertsmith.tokenizer import Encoding
from finetuning.conftest import CITIES, FAST, OTHERS, Write
from tasks.models import Maker


def opened(folder: Path, file: Path, **given: Any) -> tuple[Any, Training, list[Sample]]:
    """A fresh model, the training of a file, and its samples."""
    dataset = read_data(file)
    settings = settings_for(dataset.task, **given)
    training = task_named(dataset.task).training(dataset, settings)
    bert = open_fresh(folder, training, settings, "cpu")
    return bert, training, training.samples(bert, dataset.gold())


def mean_loss(bert: Any, training: Training, samples: list[Sample]) -> float:
    items = [item for sample in samples for item in sample]
    batch = batch_of(items).to(bert.device)
    with torch.no_grad():
        loss = training.loss(training.outputs(bert.model, batch), batch, training.targets(items))
    return float(loss) / sum(item.weight for item in items)


# ------------------------------------------------------------------ tags


@pytest.mark.parametrize(
    ("tokens", "given", "firsts"),
    [
        ([(0, 1), (1, 4), (4, 6)], [(0, 1), (2, 6)], [0, 1]),  # a token with the space before it
        ([(0, 3), (3, 5), (6, 9)], [(0, 5), (6, 9)], [0, 2]),
        ([(0, 3), (3, 4), (4, 5)], [(0, 2), (2, 5)], [0, 1]),  # can't as ca n't
        ([(0, 9)], [(0, 4), (5, 9)], [0, 0]),  # one token over two words
        ([(0, 2), (4, 6)], [(0, 2), (2, 4), (4, 6)], [0, None, 1]),
        ([(0, 0), (0, 2)], [(0, 2)], [1]),  # a token of no characters
        ([], [(0, 1)], [None]),
        ([(0, 1), (0, 1), (1, 2)], [(0, 1), (1, 2)], [0, 2]),  # two tokens spell one character
    ],
)
def test_first_tokens(tokens: Any, given: Any, firsts: Any) -> None:
    words = list(range(len(tokens)))
    encoding = Encoding(words, words, tokens, words, words)
    assert first_tokens("a bcdefgh", encoding, given) == firsts


def sentences(count: int = 48, length: int = 6) -> list[dict[str, Any]]:
    """Sentences of words in which cities are places."""
    rows = []
    for number in range(count):
        words = ["the", "old", "river", "flows"] * (length // 4 + 1)
        words = words[:length]
        spot = number * 5 % length
        words[spot] = (CITIES if number % 2 else OTHERS)[number // 2 % 3]
        tags = ["B-LOC" if word in CITIES else "O" for word in words]
        rows.append({"tokens": words, "ner_tags": tags})
    return rows


def test_tags_are_learned(base: Maker, write: Write, tmp_path: Path) -> None:
    file, out = write("t.jsonl", sentences()), tmp_path / "out"
    result = finetune(base().folder, file, out, dev=file, **FAST | {"epochs": 40})
    assert (result.task, result.metric) == ("tagging", "f1")
    assert result.kept.value == 1.0
    bert = load(out, device="cpu")
    text = "the old river Paris"
    found = bert.tag(text)
    assert [(one.label, one.text, one.start, one.end) for one in found] == [
        ("LOC", "Paris", 14, 19)
    ]
    model = transformers.AutoModelForTokenClassification.from_pretrained(out).eval()
    words = transformers.AutoTokenizer.from_pretrained(out)
    with torch.no_grad():
        chances = model(**words([text], return_tensors="pt")).logits[0].softmax(-1)
    best = [model.config.id2label[int(row.argmax())] for row in chances]
    places = words([text], return_offsets_mapping=True)["offset_mapping"][0]
    first = [start for start, _ in places].index(14)
    assert best[first] == "B-LOC"
    assert float(chances[first].max()) == pytest.approx(found[0].score, abs=1e-4)


@pytest.mark.slow
def test_a_long_sentence_is_learned_and_scored_whole(
    made: Maker, write: Write, tmp_path: Path
) -> None:
    """Every word is learned once, and an entity far beyond the model's length is found."""
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    folder = made("bert", "Model", max_position_embeddings=24, **off).folder
    file, out = write("t.jsonl", sentences(12, length=60)), tmp_path / "out"
    bert, _, samples = opened(folder, file)
    assert all(len(sample) > 2 for sample in samples)
    assert [sum(len(item.target) for item in sample) for sample in samples] == [60] * 12
    assert bert.ledger.counts["long texts read in windows"] == 12
    near = write("s.jsonl", sentences(64, 12))
    learned = finetune(folder, near, out, dev=file, **FAST | {"epochs": 24})
    assert learned.kept.value > 0.9
    assert learned.kept.bert.ledger.counts == {
        "dev examples longer than the model reads at once, read in windows": 12
    }
    words = ["the", "old", "river", "flows"] * 175 + ["Prague"]
    last = {"tokens": words, "ner_tags": ["O"] * 700 + ["B-LOC"]}
    far = evaluate(load(out, device="cpu"), read_data(write("f.jsonl", [last]), "tagging"))
    assert far.scores["recall"] == 1.0
    assert len(far.predictions[0].value) == 701


def test_the_loss_of_tags_is_transformers_own(base: Maker, write: Write, tmp_path: Path) -> None:
    bert, training, samples = opened(base().folder, write("t.jsonl", sentences(6)))
    bert.save(tmp_path / "fresh")
    model = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "fresh").eval()
    items = [item for sample in samples for item in sample]
    longest = max(len(item.windows[0].ids) for item in items)
    ids, mask = torch.zeros(2, len(items), longest, dtype=torch.int64)
    labels = torch.full_like(ids, -100)
    for row, item in enumerate(items):
        size = len(item.windows[0].ids)
        ids[row, :size], mask[row, :size] = torch.tensor(item.windows[0].ids), 1
        for place, label in item.target:
            labels[row, place] = label
    with torch.no_grad():
        theirs = model(input_ids=ids, attention_mask=mask, labels=labels).loss
    assert mean_loss(bert, training, samples) == pytest.approx(float(theirs), abs=1e-5)


def test_parts_of_speech(base: Maker, tmp_path: Path) -> None:
    lines = "".join(
        f"the\tDET\nold\tADJ\n{word}\tNOUN\n\n" for word in ("river", "storm", "violin") * 8
    )
    (tmp_path / "t.conll").write_text(lines)
    result = finetune(base().folder, tmp_path / "t.conll", dev=tmp_path / "t.conll", **FAST)
    assert result.metric == "accuracy"
    assert result.kept.value == 1.0


@pytest.mark.parametrize("kind", ["tags", "answers", "choices"])
def test_fillers_cost_nothing(kind: str, base: Maker, write: Write, tmp_path: Path) -> None:
    """Sequences that only fill a batch up change no loss, and are no longer than others."""
    file = {
        "tags": lambda: write("t.jsonl", sentences(5)),
        "answers": lambda: stored(tmp_path / "q.json", asked(5)),
        "choices": lambda: write("c.jsonl", chosen(5)),
    }[kind]()
    bert, training, samples = opened(base().folder, file)
    items = [item for sample in samples for item in sample]
    batch = batch_of(items).to(bert.device)
    more = filled(batch, 64)
    assert more.layout.total % 64 == 0
    assert more.layout.total > batch.layout.total
    assert more.layout.longest == batch.layout.longest
    example = TaskBatch(batch, training.targets(items), 2.0, batch.layout.total)
    with torch.no_grad():
        (plain, _), (full, _) = (
            TaskLoss(bert.model, training, step)(example, {}) for step in (1, 64)
        )
    assert float(full) == pytest.approx(float(plain), rel=1e-5)


# ------------------------------------------------------------------ answers


def asked(
    count: int = 40, impossible: bool = False, padding: int = 0, lead: int = 0
) -> dict[str, Any]:
    """Questions in SQuAD's layout: which city flows beside the river?"""
    paragraphs = []
    for number in range(count):
        word = CITIES[number % 3]
        before = "river " * (lead * number % 80)
        passage = f"{before}the old {word} flows " + "river " * (padding + number % 4)
        gold = [{"text": word, "answer_start": len(before) + 8}]
        none = impossible and number % 2 == 1
        if none:
            passage = "the old river flows " + "storm " * (number % 4 + 1)
        qas = {"id": str(number), "question": "Why the river?", "answers": [] if none else gold}
        paragraphs.append({"context": passage, "qas": [{**qas, "is_impossible": none}]})
    return {"version": "1", "data": [{"title": "t", "paragraphs": paragraphs}]}


def stored(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_answers_lie_where_they_are_learned(base: Maker, tmp_path: Path) -> None:
    """The tokens that are learned spell the answer; windows without it learn "none"."""
    content = asked(4, padding=200)
    for paragraph in content["data"][0]["paragraphs"]:
        passage = paragraph["context"] + " Boston storm"
        start = passage.index("Boston")
        paragraph["context"] = passage
        paragraph["qas"][0]["answers"] = [{"text": "Boston", "answer_start": start}]
    bert, training, samples = opened(base().folder, stored(tmp_path / "q.json", content))
    assert isinstance(training, AnsweringTraining)
    items = [item for sample in samples for item in sample]
    spelled = [
        bert.tokenizer.decode(item.windows[0].ids[item.target[0] : item.target[1] + 1])
        for item in items
        if item.target != (0, 0)
    ]
    assert {text.lower().replace(" ", "") for text in spelled} == {"boston"}
    assert len(items) > 4
    assert any(item.target == (0, 0) for item in items)


def test_answers_are_learned(base: Maker, tmp_path: Path) -> None:
    content = asked(60, lead=7)
    passage = content["data"][0]["paragraphs"][2]["context"]
    train = stored(tmp_path / "t.json", content)
    out, steps = tmp_path / "out", {"epochs": 14, "batch_size": 8}
    result = finetune(base().folder, train, out, dev=train, **FAST | steps)
    assert (result.task, result.metric) == ("answering", "f1")
    assert result.kept.value > 0.9
    bert = load(out, device="cpu")
    assert "Paris" in bert.answer("Why the river?", passage)[0].text
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(out).eval()
    words = transformers.AutoTokenizer.from_pretrained(out)
    inputs = words(["Why the river?"], [passage], return_tensors="pt")
    with torch.no_grad():
        theirs = model(**inputs)
    batch = Batch.of(inputs["input_ids"].tolist(), inputs["token_type_ids"].tolist())
    with torch.no_grad():
        ours = bert.model(batch, "answer")
    both = torch.stack([theirs.start_logits[0], theirs.end_logits[0]], 1)
    assert torch.allclose(ours, both, atol=1e-4)
    # Beyond the length that the model reads at once:
    long = "river " * 500 + "the old Paris flows river"
    assert "Paris" in bert.answer("Why the river?", long)[0].text


def test_the_threshold_of_no_answer_is_tuned_and_kept(base: Maker, tmp_path: Path) -> None:
    file = stored(tmp_path / "t.json", asked(60, impossible=True))
    out = tmp_path / "out"
    result = finetune(base().folder, file, out, dev=file, **FAST | {"epochs": 20})
    assert result.kept.dev is not None
    assert result.kept.value > 0.9
    bert = load(out, device="cpu")
    limit = result.kept.dev.scores["no_answer_threshold"]
    assert bert.checkpoint.settings["no_answer_threshold"] == limit
    again = evaluate(bert, read_data(file))
    assert again.scores["f1"] == pytest.approx(result.kept.value)
    said = [one.value for one in again.predictions]
    assert "" in said
    assert set(said) - {""}


def test_the_loss_of_answers_is_transformers_own(base: Maker, tmp_path: Path) -> None:
    bert, training, samples = opened(base().folder, stored(tmp_path / "q.json", asked(5)))
    bert.save(tmp_path / "fresh")
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(tmp_path / "fresh").eval()
    total = 0.0
    for ((item,),) in zip(samples, strict=True):
        window = item.windows[0]
        with torch.no_grad():
            total += float(
                model(
                    input_ids=torch.tensor([window.ids]),
                    token_type_ids=torch.tensor([window.segments]),
                    start_positions=torch.tensor([item.target[0]]),
                    end_positions=torch.tensor([item.target[1]]),
                ).loss
            )
    assert mean_loss(bert, training, samples) == pytest.approx(total / len(samples), abs=1e-5)


def test_two_questions_with_one_id(base: Maker, tmp_path: Path) -> None:
    content = asked(6, impossible=True)
    for paragraph in content["data"][0]["paragraphs"]:
        paragraph["qas"][0]["id"] = "same"
    file = stored(tmp_path / "q.json", content)
    with pytest.raises(BertsmithError, match="two questions have the same id"):
        finetune(base().folder, file, dev=file, epochs=1)


# ------------------------------------------------------------------ choices


def chosen(count: int = 48, padding: int = 0) -> list[dict[str, Any]]:
    """Which of three is a city?"""
    rows = []
    for number in range(count):
        options = [OTHERS[number % 3], OTHERS[(number + 1) % 3]]
        options.insert(number % 3, CITIES[number // 3 % 3])
        prompt = "the old river" + " river" * padding
        rows.append({"question": prompt, "choices": options, "label": number % 3})
    return rows


def test_choices_are_learned(base: Maker, write: Write, tmp_path: Path) -> None:
    file, out = write("t.jsonl", chosen()), tmp_path / "out"
    result = finetune(base().folder, file, out, dev=file, **FAST | {"epochs": 20})
    assert result.task == "choice"
    assert result.kept.value > 0.9
    bert = load(out, device="cpu")
    options = ["bees", "Paris", "storm"]
    found = bert.choose("the old river", options)
    assert found.text == "Paris"
    model = transformers.AutoModelForMultipleChoice.from_pretrained(out).eval()
    words = transformers.AutoTokenizer.from_pretrained(out)
    inputs = words(["the old river"] * 3, options, return_tensors="pt", padding=True)
    with torch.no_grad():
        logits = model(**{name: rows[None] for name, rows in inputs.items()}).logits[0]
    assert logits.softmax(0).tolist() == pytest.approx(found.scores, abs=1e-4)


def test_a_long_prompt_is_read_in_windows(base: Maker, write: Write) -> None:
    bert, training, samples = opened(base().folder, write("t.jsonl", chosen(3, padding=300)))
    item = samples[0][0]
    assert [window.number for window in item.windows].count(1) > 2
    assert mean_loss(bert, training, samples) > 0
    found = Bert.of(bert).choose("river " * 300, ["bees", "Paris"])
    assert sum(found.scores) == pytest.approx(1.0, abs=1e-5)
