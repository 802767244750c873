"""Labels that people make: nothing is lost, and `finetune` reads what holds in the end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import bertsmith as bs
from bertsmith.label import Session, agreement, labelling, texts_to_label
from bertsmith.label.session import Conflict
from bertsmith.settings.labelling import LabellingSettings
from bertsmith.tasks.read import read_data
from bertsmith.tasks.splits import read_splits

TEXTS = [{"text": f"text number {number}"} for number in range(40)]
LABELS = ["a", "b"]
RANDOM = {"order": "random"}


@contextmanager
def session(out: Path, data: Any = TEXTS, labels: Any = LABELS, **more: Any) -> Iterator[Session]:
    task = more.pop("task", "classification")
    settings = LabellingSettings(**{**RANDOM, **more})
    with labelling(data, out, task=task, labels=labels, settings=settings) as opened:
        yield opened


def label_all(one: Session, by: str, choose: Any) -> None:
    while text := one.state(by, "tab")["text"]:
        one.answer(f"{by} {text['name']}", by, text["name"], choose(text))


def refused(opening: Any, message: str) -> None:
    with pytest.raises(bs.BertsmithError, match=message), opening:
        pass


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_every_label_is_on_the_disk_and_work_continues(tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    with session(out) as one:
        first = one.state("anna", "t")["text"]
        one.answer("1", "anna", first["name"], "a")
        assert lines(out)[-1]["label"] == "a"
        assert one.state("anna", "t")["text"]["name"] != first["name"]
    with session(out) as one:
        assert one.state("anna", "t")["mine"] == 1
        label_all(one, "anna", lambda _: "b")
        assert one.state("anna", "t")["labelled"] == 40
    assert len(lines(out)) == 1 + 40
    found = read_data(out, split="train").examples + read_data(out, split="test").examples
    assert sorted(one.text for one in found) == sorted(row["text"] for row in TEXTS)
    assert [one.label for one in found].count("a") == 1


def test_an_answer_sent_twice_counts_once_and_others_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    with session(out) as one:
        name = one.state("anna", "t")["text"]["name"]
        for _ in range(2):
            assert one.answer("1", "anna", name, "a")["seen"] == "1"
        with pytest.raises(Conflict, match="another tab"):
            one.answer("2", "anna", name, "b")
        one.answer("3", "anna", name, "b", seen="1")
        for bad in ("c", None, ["a"], {}):
            with pytest.raises(bs.BertsmithError, match="not among the labels"):
                one.answer("4", "anna", name, bad, seen="3")
        with pytest.raises(bs.BertsmithError, match="not in the data"):
            one.answer("4", "anna", "unknown", "a")
        with pytest.raises(bs.BertsmithError, match="Give a name"):
            one.answer("4", "  ", name, "a")
    assert [line.get("label") for line in lines(out)] == [None, "a", "b"]


def test_two_tabs_get_two_texts(tmp_path: Path) -> None:
    with session(tmp_path / "labels.jsonl") as one:
        here, there = (one.state("anna", tab)["text"]["name"] for tab in ("1", "2"))
        assert here != there
        assert one.state("anna", "1")["text"]["name"] == here


def test_undo_takes_back_the_last_answers_one_by_one(tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    with session(out) as one:
        names = []
        for number in "12":
            names.append(one.state("anna", "t")["text"]["name"])
            one.answer(number, "anna", names[-1], "a", skip=number == "2")
        assert one.undo("3", "anna") == one.undo("3", "anna") == names[1]
        assert one.undo("4", "anna") == names[0]
        assert one.undo("5", "anna") is None
        assert one.undo("6", "bela") is None
        one.answer("7", "anna", names[0], "b")
    found = [line["event"] for line in lines(out)[1:]]
    assert found == ["label", "skip", "undo", "undo", "label"]
    both = [one for split in ("train", "test") for one in _read(out, split)]
    assert [one.label for one in both] == ["b"]
    part = next(split for split in ("train", "test") if _read(out, split))
    assert not read_data(out, split=part).ledger.lines()  # what was taken back is not skipped


def _read(path: Path, split: str) -> list[Any]:
    try:
        return read_data(path, split=split).examples
    except bs.BertsmithError:
        return []


def test_two_servers_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    with session(out):
        refused(session(out), "another bertsmith process")
    with session(out):
        pass


def test_a_line_that_a_power_cut_left_unfinished(tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    with session(out) as one:
        one.answer("1", "anna", one.state("anna", "t")["text"]["name"], "a")
    whole = out.read_bytes()
    out.write_bytes(whole + b'{"event": "label", "te')
    with session(out) as one:
        assert out.read_bytes() == whole
        assert one.state("anna", "t")["mine"] == 1
    for content, message in (
        (b'{"text": "mine"}\n', "not a file of labels"),
        (b'{"text": "mine"}', "not a file of labels"),
        (b"text,label\nhello,a\n", "not a file of labels"),
        (b"text,label\nhello,a", "not a file of labels"),
        (whole + b"broken\n", "line 3: not valid JSON"),
        (whole + b'{"event": "dance"}\n', "line 3: not an event"),
        (whole + b"\xff\n", "line 3: not valid JSON"),
    ):
        out.write_bytes(content)
        with pytest.raises(bs.BertsmithError, match=message), session(out):
            pass
        assert out.read_bytes() == content
    out.write_bytes(whole[:20])
    with session(out) as one:
        assert one.state("anna", "t")["mine"] == 0
    assert out.read_bytes().startswith(whole[:20])


def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    out = tmp_path / "labels.jsonl"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with session(out) as one:
        before, name = out.read_bytes(), one.state("anna", "t")["text"]["name"]
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, limits[1]))
        try:
            with pytest.raises(bs.BertsmithError, match=r"labels\.jsonl"):
                one.answer("1", "anna", name, "a")
            assert out.read_bytes() == before
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert one.state("anna", "t")["mine"] == 0
        one.answer("1", "anna", name, "a")
    with session(out) as one:
        assert one.state("anna", "t")["mine"] == 1


def test_a_file_is_continued_with_its_task_and_more_labels(tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    with session(out):
        pass
    with session(out, labels=["c"]) as one:
        assert one.labels == ["a", "b", "c"]
    refused(session(out, task="spans"), "holds labels of classification, not of spans")
    refused(session(tmp_path / "new.jsonl", labels=["a"]), "name the labels")
    with session(tmp_path / "new.jsonl", labels=["b", "c"]) as one:
        assert one.labels == ["b", "c"]  # what was refused is not in the file
    refused(session(tmp_path / "new.csv"), "must end with .jsonl")
    assert not (tmp_path / "new.csv").exists()


def test_of_equal_texts_the_first_is_asked(tmp_path: Path) -> None:
    rows = [{"text": text} for text in ("one", "two", "ONE")]
    with session(tmp_path / "labels.jsonl", rows) as one:
        places = [(item.example.text, item.example.where.number) for item in one.items.values()]
    assert places == [("one", 1), ("two", 2)]


def test_held_out_texts_are_fixed_and_finetune_never_trains_on_them(tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    rows = [*TEXTS, {"text": "TEXT  number 1"}]  # but for spaces and case, there already
    with session(out, rows, held_out=0.3) as one:
        held = {item.example.text for item in one.items.values() if item.held}
        assert len(one.items) == 40
        assert 5 < len(held) < 20
        label_all(one, "anna", lambda text: "ab"[int(text["passages"][0].split()[-1]) % 2])
    with session(tmp_path / "other.jsonl", TEXTS[20:], held_out=0.3) as one:
        some = {item.example.text for item in one.items.values() if item.held}
        assert some == held & {row["text"] for row in TEXTS[20:]}
    splits = read_splits(out)
    assert splits.test is not None
    assert splits.dev is not None
    learned = {one.text for part in (splits.train, splits.dev) for one in part.examples}
    assert {one.text.lower() for one in splits.test.examples} == {one.lower() for one in held}
    assert not learned & held
    assert len(learned) + len(held) == 40
    alone = read_data(out)
    assert {one.text for one in alone.examples} == learned
    assert any("held out for evaluation" in line for line in alone.ledger.lines())


def test_several_people(tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    with session(out, overlap=0.5, held_out=0.0) as one:
        shared = [item.name for item in one.items.values() if item.shared]
        label_all(one, "anna", lambda _: "a")
        label_all(one, "bela", lambda text: "b" if text["name"] in shared[:2] else "a")
        label_all(one, "cleo", lambda text: "b" if text["name"] == shared[0] else "a")
        assert one.state("bela", "t")["mine"] == len(shared)
        found = one.disagreements()
        assert found["texts"] == len(shared)
        assert found["disagreed"] == 2
        assert [pair["people"] for pair in found["pairs"]] == [
            ["anna", "bela"], ["anna", "cleo"], ["bela", "cleo"]
        ]  # fmt: skip
        differing = found["shown"][[shown["name"] for shown in found["shown"]].index(shared[1])]
        assert differing["answers"] == {"anna": "a", "bela": "b", "cleo": "a"}
        labels = {one.text: one.label for one in read_data(out).examples}
        text = {name: item.example.text for name, item in one.items.items()}
        assert (labels[text[shared[0]]], labels[text[shared[1]]]) == ("b", "a")  # most say so
        one.answer("d", "anna", shared[1], "b", final=True)
        labels = {one.text: one.label for one in read_data(out).examples}
        assert labels[text[shared[1]]] == "b"
    content = agreement(out)
    assert content["alpha"] == found["alpha"]
    assert content["texts"] == len(shared)


def test_a_tie_is_left_out(tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    with session(out, TEXTS[:3], overlap=1.0, held_out=0.0) as one:
        label_all(one, "anna", lambda _: "a")
        label_all(one, "bela", lambda text: "ab"[text["passages"][0].endswith("2")])
    data = read_data(out)
    assert sorted(one.text for one in data.examples) == ["text number 0", "text number 1"]
    assert any("people disagree" in line for line in data.ledger.lines())


ANSWERS: list[tuple[str, Any, Any, Any, Any]] = [
    ("classification", {"text": "t", "pair": "p"}, LABELS, "b", ("t", "p", "b")),
    ("multilabel", {"text": "t"}, LABELS, ["b", "a"], ("t", None, ("a", "b"))),
    ("multilabel", {"text": "t"}, LABELS, [], ("t", None, ())),
    ("regression", {"text": "t", "pair": "p"}, ["0", "2.5"], "2.5", ("t", "p", 2.5)),
    ("similarity", {"text": "t", "pair": "p"}, ["0", "1"], "1", ("t", "p", 1.0)),
    ("tagging", {"text": "in Rome 🎻"}, ["LOC"], [[3, 7, "LOC"]], ("in Rome 🎻", ((3, 7, "LOC"),))),
    (
        *("spans", {"text": "in Rome"}, ["L"], [[0, 7, "L"], [3, 7, "L"]]),
        ("in Rome", ((0, 7, "L"), (3, 7, "L"))),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("task", "row", "labels", "answer", "expected"), ANSWERS)
def test_every_form_makes_data_of_its_task(
    task: str, row: Any, labels: Any, answer: Any, expected: Any, tmp_path: Path
) -> None:
    out = tmp_path / "labels.jsonl"
    with session(out, [row], labels, task=task, held_out=0.0) as one:
        name = one.state("anna", "t")["text"]["name"]
        one.answer("1", "anna", name, answer)
        one.undo("2", "anna")
        one.answer("3", "anna", name, answer)
        stored = one.file.annotations.answers[name]["anna"]
        assert sorted(one.form.answer(stored.cells)) == sorted(answer)
    data = read_data(out)
    assert data.task == task
    assert data.guessed == "the file says so"
    example = data.examples[0]
    target = {"regression": "score", "similarity": "score", "multilabel": "labels"}
    target |= {"tagging": "spans", "spans": "spans"}
    found = (
        *((*example.texts, None))[: len(expected) - 1],
        getattr(example, target.get(task, "label")),
    )
    assert found == expected


def test_answers_choices_and_grades(tmp_path: Path) -> None:
    passage = {"question": "Who?", "context": "Anna and Bela."}
    with session(out := tmp_path / "1.jsonl", [passage], (), task="answering", held_out=0.0) as one:
        name = one.state("anna", "t")["text"]["name"]
        one.answer("1", "anna", name, [[9, 13, "answer"]])
    assert [span.text for span in read_data(out).examples[0].answers] == ["Bela"]
    choices = {"prompt": "Sky?", "choices": ["red", "blue"]}
    with session(out := tmp_path / "2.jsonl", [choices], (), task="choice", held_out=0.0) as one:
        text = one.state("anna", "t")["text"]
        assert (text["passages"], text["choices"]) == (["Sky?"], ["red", "blue"])
        one.answer("1", "anna", text["name"], "blue")
    assert read_data(out).examples[0].label == 1
    grades = {"query": "bees", "passage": "honey", "grade": 0}
    with session(
        out := tmp_path / "3.jsonl", [grades], "012", task="reranking", held_out=0.0
    ) as one:
        one.answer("1", "anna", one.state("anna", "t")["text"]["name"], "2")
    assert read_data(out).examples[0].grades == (2.0,)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([[0, 99, "L"]], "no characters"),
        ([[0, 2, "M"]], "not a part with a label"),
        ("L", "not a part with a label"),
        ([[0, 5, "L"], [3, 7, "L"]], "must not overlap"),
    ],
)
def test_marks_that_cannot_be(answer: Any, message: str, tmp_path: Path) -> None:
    with session(tmp_path / "l.jsonl", [{"text": "in Rome"}], ["L"], task="tagging") as one:
        name = one.state("anna", "t")["text"]["name"]
        with pytest.raises(bs.BertsmithError, match=message):
            one.answer("1", "anna", name, answer)


def test_numbers_are_asked_for_as_labels_of_scores(tmp_path: Path) -> None:
    refused(session(tmp_path / "l.jsonl", labels=["low", "high"], task="regression"), "are numbers")


def test_texts_to_label_at_random(tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    settings = LabellingSettings(order="random")
    more: dict[str, Any] = {"task": "classification", "labels": LABELS, "settings": settings}
    rows = texts_to_label(TEXTS, out, 5, **more)
    assert [set(row) >= {"row_id", "line", "split", "text"} for row in rows] == [True] * 5
    assert rows == texts_to_label(TEXTS, out, 5, **more)
