"""Texts with annotated spans: words are the tokenizer's, scores are of the true characters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bertsmith import load, predict
from bertsmith.cli.app import app
from bertsmith.data.tables import Where
from bertsmith.finetuning import finetune
from bertsmith.infer.spans import words
from bertsmith.ledger import Ledger
from bertsmith.tasks.evaluate import evaluate
from bertsmith.tasks.read import read_data
from bertsmith.tasks.tagging.examples import Annotated
from bertsmith.tasks.tagging.task import TASK, first_tokens, in_words, spans_of
from bertsmith.tokenizer import Tokenizer, train
from finetuning.conftest import FAST, Write
from parity.compare import make
from tasks.models import SMALL

Texts = list[tuple[str, tuple[tuple[int, int, str], ...]]]
SCRIPTS: Texts = [
    ("我住在北京市朝阳区。", ((3, 6, "LOC"), (6, 9, "LOC"))),
    ("東京都に住む田中さんはトヨタで働く。", ((0, 3, "LOC"), (6, 8, "PER"), (11, 14, "ORG"))),
    ("मैं दिल्ली में रहता हूँ", ((4, 10, "LOC"),)),
    ("ผมอยู่กรุงเทพมหานคร", ((6, 19, "LOC"),)),
    ("Zu\u0308rich is nice", ((0, 7, "LOC"),)),
    ("Ada (Lovelace), London.", ((0, 13, "PER"), (16, 22, "LOC"))),
]
FAMILIES = {"bert": "wordpiece", "roberta": "bpe", "albert": "unigram"}


def learned(lines: list[str], folder: Path, family: str = "bert") -> Tokenizer:
    """A tokenizer that knows the characters of some lines, and few words."""
    spelled = [" ".join(line) for line in lines]
    (folder / "lines.txt").write_text("\n".join(lines + spelled * 9), "utf-8")
    size = {"wordpiece": 150, "bpe": 300, "unigram": 160}[FAMILIES[family]]
    return train([folder / "lines.txt"], FAMILIES[family], size=size, family=family)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("text", "spans"), SCRIPTS)
def test_every_script_keeps_its_entities(
    text: str, spans: Any, family: str, tmp_path: Path
) -> None:
    tokenizer = learned([text for text, _ in SCRIPTS], tmp_path, family)
    encoding, ledger = tokenizer.encode(text, special=False), Ledger()
    (one,) = in_words([Annotated(text, spans, Where("x", 1))], [encoding], ledger)
    assert spans_of(one) == set(spans)
    assert ledger.counts == {}
    # Training and prediction read a word at the same token.
    places = words(text, encoding)
    assert first_tokens(text, encoding, one.offsets) == [token for token, _, _ in places]


CITIES, OTHERS = ("北京", "上海", "広島"), ("苹果", "学校", "音楽")


def rows(count: int) -> list[dict[str, Any]]:
    """Chinese sentences without spaces, in which cities are places."""
    made = []
    for number in range(count):
        city = number % 2 == 0
        name = (CITIES if city else OTHERS)[number // 2 % 3]
        before = "我们喜欢"[: 1 + number % 4]
        spans = [[len(before), len(before) + 2, "LOC"]] if city else []
        made.append({"text": f"{before}{name}的。", "entities": spans})
    return made


@pytest.fixture
def chinese(tmp_path: Path) -> Path:
    """A tiny encoder with a vocabulary of Chinese characters."""
    tokenizer = learned([row["text"] for row in rows(24)], tmp_path)
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = make("Bert", "Model", vocab_size=tokenizer.size, **SMALL, **off)
    model.save_pretrained(tmp_path / "base")
    tokenizer.save(tmp_path / "base")
    return tmp_path / "base"


def test_entities_inside_a_clause_are_learned_scored_and_predicted(
    chinese: Path, write: Write, tmp_path: Path
) -> None:
    file, out = write("spans.jsonl", rows(24)), tmp_path / "out"
    result = finetune(chinese, file, out, dev=file, **FAST | {"epochs": 40})
    assert (result.metric, result.kept.value) == ("f1", 1.0)
    bert, gold = load(out, device="cpu"), read_data(file).examples
    found = evaluate(bert, read_data(file))
    assert found.scores == {"count": 24.0, "f1": 1.0, "precision": 1.0, "recall": 1.0}
    assert found.correctness() == [1.0] * 24
    assert found.details()["per_class"]["LOC"]["support"] == 12
    for row, example, prediction in zip(predict(bert, file), gold, found.predictions, strict=True):
        entities = row["entities_predicted"]
        assert [(x["start"], x["end"], x["label"]) for x in entities] == list(example.spans)
        assert row["words"] == prediction.output["words"] == list(example.text)
        tagged = bert.tag(example.text)
        assert [(x.start, x.end, x.label) for x in tagged] == list(example.spans)
    for example, prediction in list(zip(gold, found.predictions, strict=True))[:4]:
        explained = TASK.explain(bert, example, prediction)
        assert [(x["start"], x["end"], x["label"]) for x in explained] == list(example.spans)
    report = (out / "report.html").read_text("utf-8")
    assert "100.0" in report


def test_an_entity_that_is_no_word_counts_as_missed(
    chinese: Path, write: Write, tmp_path: Path
) -> None:
    """The score is of what annotators marked, not of what words can say."""
    plain = rows(24)
    # The tokenizer has no z: the word is one unknown token, of which an entity is a part.
    plain += [{"text": "zzzz", "entities": [[1, 3, "LOC"]]}] * 12
    file, out = write("spans.jsonl", plain), tmp_path / "out"
    result = finetune(chinese, file, out, dev=file, **FAST)
    bert = load(out, device="cpu")
    found = evaluate(bert, read_data(file))
    assert found.scores["recall"] <= 0.5
    assert "12 of 24 entities are not words of this model: missed" in found.notes
    what = "entities that end inside a word, trained on as whole words"
    assert json.loads((out / "ledger.json").read_text())[what] == 12
    assert result.kept.value == found.scores["f1"]


def test_prodigy_gets_the_words_of_the_model(chinese: Path, write: Write, tmp_path: Path) -> None:
    file, out = write("spans.jsonl", rows(24)), tmp_path / "out"
    finetune(chinese, file, out, dev=file, **FAST | {"epochs": 8})
    to = tmp_path / "p.jsonl"
    told = CliRunner().invoke(
        app, ["predict", str(out), str(file), "--out", str(to), "--format", "prodigy"]
    )
    assert told.exit_code == 0, told.output
    for line in to.read_text("utf-8").splitlines():
        record = json.loads(line)
        assert [one["text"] for one in record["tokens"]] == list(record["text"])
        for span in record["spans"]:
            first, last = record["tokens"][span["token_start"]], record["tokens"][span["token_end"]]
            assert (first["start"], last["end"]) == (span["start"], span["end"])
