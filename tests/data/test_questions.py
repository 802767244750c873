"""Questions and choices: SQuAD's layouts, answers in their place, choices by letter or number."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertsmith.errors import BertsmithError
from bertsmith.tasks.answering.reading import Span
from bertsmith.tasks.read import read_data

PASSAGE = "The cat sat. The cat ran."


def squad(*asked: dict[str, Any]) -> str:
    paragraph = {"context": PASSAGE, "qas": list(asked)}
    return json.dumps({"version": "v2.0", "data": [{"title": "Cats", "paragraphs": [paragraph]}]})


def question(name: str, *answers: tuple[str, int], **more: Any) -> dict[str, Any]:
    listed = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": name, "question": f"{name}?", "answers": listed, **more}


def test_squad(tmp_path: Path) -> None:
    content = squad(
        question("a", ("cat", 4), ("The cat", 13), is_impossible=False),
        question("b", is_impossible=True),
        question("moved", ("cat", 15)),
        question("nowhere", ("dog", 3)),
        {"id": "unsaid", "question": "unsaid?"},
        question("forgotten"),
    )
    (tmp_path / "a.json").write_text(content)
    found = read_data(tmp_path / "a.json")
    assert (found.task, len(found)) == ("answering", 6)
    gold = {one.id: one.answers for one in found.examples}
    assert gold == {
        "a": (Span("cat", 4), Span("The cat", 13)),
        "b": (),
        "moved": (Span("cat", 17),),
        "nowhere": (Span("dog", -1),),
        "unsaid": None,
        "forgotten": None,
    }
    for one in found.examples:
        for span in one.answers or ():
            assert span.start < 0 or one.passage[span.start : span.end] == span.text
    assert [one.impossible for one in found.examples] == [False, True, *[False] * 4]
    assert found.examples[0].title == "Cats"
    assert str(found.examples[1].where).endswith("a.json, question 2")
    assert found.ledger.counts.total() == 5  # and the two without answers
    assert len(found.gold()) == 4
    with pytest.raises(BertsmithError, match="is for answering, not for tagging"):
        read_data(tmp_path / "a.json", "tagging")


def test_rows_of_questions(tmp_path: Path) -> None:
    rows = [
        {"id": "1", "answers": {"text": ["cat"], "answer_start": [17]}},
        {"id": "2", "answers": {"text": [], "answer_start": []}},
        {"id": "3", "answers": ["ran"]},
        {"id": "4", "answers": "sat"},
        {"id": "5", "answers": ""},
        {"id": "4", "answers": "cat sat"},
    ]
    text = "\n".join(json.dumps({"question": "q?", "context": PASSAGE, **row}) for row in rows)
    (tmp_path / "a.jsonl").write_text(text)
    found = read_data(tmp_path / "a.jsonl")
    assert [one.answers for one in found.examples] == [
        (Span("cat", 17),),
        (),
        (Span("ran", 21),),
        (Span("sat", 8), Span("cat sat", 4)),
        (),
    ]


def test_reviews_with_a_mark_at_their_end(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "question,review,human_ans_spans,human_ans_indices\n"
        'q?,I can\'t go. ANSWERNOTFOUND,"ca n\'t go","(2, 10)"\n'
        'q?,I can\'t go. ANSWERNOTFOUND,ANSWERNOTFOUND,"(12, 26)"\n'
    )
    first, second = read_data(tmp_path / "a.csv").examples
    assert (first.passage, first.answers) == ("I can't go.", (Span("can't go", 2),))
    assert second.impossible


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ({"data": [{"paragraphs": 5}]}, "'paragraphs' is not a list of objects"),
        ({"data": [{"paragraphs": [{"qas": [1]}]}]}, "'qas' is not a list of objects"),
        ({"data": [{"paragraphs": [{"qas": [{}]}]}]}, "question 1: no text field"),
        ({"data": [{"paragraphs": []}]}, "contains no examples"),
        ({"data": []}, "contains no rows"),
        ({"rows": []}, "neither SQuAD's layout nor a list of objects"),
        ([1, 2], "neither SQuAD's layout nor a list of objects"),
    ],
)
def test_bad_documents(content: Any, fault: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(BertsmithError, match=fault):
        read_data(tmp_path / "a.json")


@pytest.mark.parametrize(
    "row",
    [
        {"Question Stem": "p", "Choices": "(A) one (B) two (A) x (C) three", "Answer Key": "B"},
        {
            "question": {
                "stem": "p",
                "choices": [
                    {"text": "one", "label": "A"},
                    {"text": "two (A) x", "label": "B"},
                    {"text": "three", "label": "C"},
                ],
            },
            "answerKey": "B",
        },
        {
            "question_stem": "p",
            "choices": {"text": ["one", "two (A) x", "three"], "label": ["A", "B", "C"]},
            "answerKey": "B",
        },
        {"ctx": "p", "endings": ["one", "two (A) x", "three"], "label": "1"},
        {"prompt": "p", "options": ["one", "two (A) x", "three"], "label": 1},
        {"prompt": "p", "options": ["one", "two (A) x", "three"], "label": "two (A) x"},
        {
            "premise": "p",
            "choice1": "one",
            "choice2": "two (A) x",
            "choice3": "three",
            "label": 1.0,
        },
    ],
)
def test_choices_of_every_layout(row: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    one = read_data(tmp_path / "a.jsonl", "choice").examples[0]
    assert (one.prompt, one.options, one.label) == ("p", ("one", "two (A) x", "three"), 1)


def test_swag(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        ",video-id,startphrase,sent1,sent2,ending0,ending1,ending2,ending3,label\n"
        "0,v,He sits. He,He sits.,He,eats,runs,sleeps,flies,2\n"
    )
    one = read_data(tmp_path / "a.csv").examples[0]
    assert (one.prompt, one.options[one.label]) == ("He sits.", "He sleeps")


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"ctx": "p", "endings": ["a", "b"], "label": 2}, "is '2', not one of the choices"),
        ({"ctx": "p", "endings": ["a"], "label": 0}, "1 choices; at least two are needed"),
        ({"ctx": "p", "endings": 5, "label": 0}, "'endings' is not a list"),
    ],
)
def test_bad_choices(row: dict[str, Any], fault: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    with pytest.raises(BertsmithError, match=f"a.jsonl, line 1: .*{fault}"):
        read_data(tmp_path / "a.jsonl", "choice")
