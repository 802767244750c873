"""Annotated spans of spaCy, Prodigy and doccano: read, tagged in any words, and written back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.data.tables import Where
from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.metrics.schemes import chunks
from bertsmith.tasks.read import read_data
from bertsmith.tasks.tagging.examples import read_spans, spans_record, tags_of_spans

TEXT = "Ada Lovelace met Charles in London."
SPANS = [[0, 12, "PER"], [17, 24, "PER"], [28, 34, "LOC"]]
OBJECTS = [{"start": s, "end": e, "label": label} for s, e, label in SPANS]
WORDS = ("Ada", "Lovelace", "met", "Charles", "in", "London", ".")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("spacy.json", [[TEXT, {"entities": SPANS}]]),
        ("spacy3.json", {"classes": ["PER"], "annotations": [[TEXT, {"entities": SPANS}]]}),
        ("spacy.jsonl", [TEXT, {"entities": SPANS}]),
        ("docs.jsonl", {"text": TEXT, "ents": OBJECTS, "tokens": []}),
        ("prodigy.jsonl", spans_record("prodigy", TEXT, WORDS, OBJECTS, {"id": 1})),
        ("doccano.jsonl", {"id": 4, "text": TEXT, "label": SPANS}),
        (
            "doccano2.jsonl",
            {
                "text": TEXT,
                "entities": [
                    {"id": 1, "start_offset": s, "end_offset": e, "label": label}
                    for s, e, label in SPANS
                ],
            },
        ),
    ],
)
def test_every_tool(name: str, content: Any, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(json.dumps(content))
    dataset = read_data(path)
    assert (dataset.task, dataset.scheme) == ("tagging", "bio")
    (one,) = dataset.examples
    assert one.text == TEXT
    assert one.spans == tuple(map(tuple, SPANS))
    assert dataset.labels == ("O", "B-LOC", "B-PER", "I-LOC", "I-PER")
    assert dataset.ledger.counts == {}


def test_what_is_no_span_of_the_text_is_counted() -> None:
    spans = [[0, 5, "PER"], [4, 12, "PER"], [16, 17, "X"], [40, 50, "X"], [20, 19, "X"]]
    dataset = read_data([{"text": TEXT, "entities": [*spans, [12, 17, "O"], [4, 12, "PER"]]}])
    # Overlapping spans stay: they are true, though tags cannot say both.
    assert dataset.examples[0].spans == ((0, 5, "PER"), (4, 12, "PER"), (13, 16, "O"))
    assert dataset.ledger.counts == {
        "spans outside their text, left out": 1,
        "spans that contain no word, left out": 2,
        "spans with blanks around them, which are cut off": 1,
    }


def test_what_tags_cannot_say_is_counted() -> None:
    words = [(0, 3), (4, 12), (13, 16), (17, 24)]
    spans = [(0, 5, "PER"), (4, 12, "PER"), (14, 16, "X"), (24, 30, "X")]
    ledger = Ledger()
    assert tags_of_spans(words, spans, ledger) == ("O", "B-PER", "B-X", "O")
    assert ledger.counts == {
        "entities that share a word with a longer one, not trained on": 1,
        "entities that end inside a word, trained on as whole words": 1,
        "entities in which the tokenizer sees no word, not trained on": 1,
    }


@pytest.mark.parametrize("span", [["x", 3, "PER"], [0, float("nan"), "PER"], [0, 10**30, "PER"]])
def test_bad_spans(span: list[Any]) -> None:
    with pytest.raises(BertsmithError, match="row 1: 'entities' has a span that is not start"):
        read_data([{"text": TEXT, "entities": [span]}], "tagging")


words = st.lists(st.text("abé", min_size=1, max_size=4), min_size=1, max_size=8)


@given(words, st.data())
def test_spans_of_words_are_kept(listed: list[str], data: st.DataObject) -> None:
    """Spans at the borders of words come back as they were, through every format."""
    text = " ".join(listed)
    starts = [len(" ".join(listed[:n])) + (n > 0) for n in range(len(listed))]
    cuts = sorted(data.draw(st.sets(st.integers(0, len(listed)), max_size=6)))
    spans = [
        {"start": starts[a], "end": starts[b - 1] + len(listed[b - 1]), "label": "X"}
        for a, b in zip(cuts[::2], cuts[1::2], strict=False)
    ]
    for kind in ("spacy", "prodigy", "doccano"):
        record = spans_record(kind, text, listed, spans, {})
        fields = record[1] if kind == "spacy" else record
        value = next(fields[key] for key in ("entities", "label", "spans") if key in fields)
        ledger = Ledger()
        read = read_spans(text, value, Where("x", 1), "entities", ledger)
        assert read is not None
        offsets = [(at, at + len(word)) for at, word in zip(starts, listed, strict=True)]
        tags = tags_of_spans(offsets, read, ledger)
        assert not ledger.counts
        again = [(offsets[c.start][0], offsets[c.stop - 1][1]) for c in chunks(tags)]
        assert again == [(one["start"], one["end"]) for one in spans]


@pytest.mark.parametrize("key", ["spans", "label"])
def test_rows_that_were_not_accepted_are_left_out(key: str, tmp_path: Path) -> None:
    value: Any = OBJECTS[:1] if key == "spans" else "PER"
    rows = [
        {"text": f"{TEXT} {number}", key: value, "answer": answer}
        for number, answer in enumerate(["accept", "reject", "ignore", "accept"])
    ]
    path = tmp_path / "prodigy.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    dataset = read_data(path)
    assert [one.texts[0][-1] for one in dataset.examples] == ["0", "3"]
    assert dataset.ledger.counts == {"rows that the annotator did not accept, left out": 2}
    assert dataset.columns["decision"] == "answer"
    assert dataset.unused == ()


def test_other_answers_are_no_decisions(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"text": "a", "label": "x", "answer": "accept"}\n{"text": "b", "label": "y"}\n'
    )
    assert len(read_data(path)) == 2
