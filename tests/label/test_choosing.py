"""Which texts come next: doubtful ones that differ, no near-duplicates; and a learner."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith.label import labelling, texts_to_label
from bertsmith.label.choosing import chosen, doubt, fraction
from bertsmith.settings.labelling import LabellingSettings
from bertsmith.tasks.task import Prediction

DRAWS = np.random.default_rng(0)
ROWS: list[dict[str, Any]] = [
    {"text": f"{start} the {thing}."}
    for start in ("Where is", "The courier has lost", "I want my money back for", "Please refund")
    for thing in ("lamp", "kettle", "radio", "chair", "watch", "tent", "drill", "camera")
]


def label_of(text: str) -> str:
    return "money" if "money" in text or "refund" in text else "post"


def test_groups_are_all_asked_before_one_is_asked_twice() -> None:
    centres = np.eye(5, 32)
    rows = np.concatenate([one + DRAWS.normal(0, 0.1, (40, 32)) for one in centres])
    picked = chosen(rows.astype(np.float32), [], 5)
    assert sorted(number // 40 for number in picked) == [0, 1, 2, 3, 4]


def test_near_duplicates_come_last() -> None:
    rows = DRAWS.normal(size=(60, 32)).astype(np.float32)
    rows[10:50] = rows[10]  # forty copies, one of which is enough
    for done in ([], [10]):
        picked = chosen(rows, done, 20)
        assert len(set(picked)) == 20
        assert not set(picked) & set(done)
        assert sum(10 <= number < 50 for number in picked) == (0 if done else 1)
    assert len(set(chosen(rows, [], 55))) == 55


def test_doubtful_texts_come_first() -> None:
    rows = DRAWS.normal(size=(500, 16)).astype(np.float32)
    doubts = np.where(np.arange(500) % 5 == 0, 0.9, 0.1)
    assert all(number % 5 == 0 for number in chosen(rows, [0, 5], 10, doubts))
    assert chosen(rows, list(range(497)), 10, doubts) == [497, 498, 499]
    assert chosen(rows, list(range(500)), 10, doubts) == []


def test_choices_repeat_with_their_seed() -> None:
    rows = DRAWS.normal(size=(300, 16)).astype(np.float32)
    assert chosen(rows, [], 10, seed=1) == chosen(rows, [], 10, seed=1)
    assert chosen(rows, [], 10, seed=1) != chosen(rows, [], 10, seed=2)
    drawn = [fraction(str(number), 0) for number in range(2000)]
    assert abs(np.mean(drawn) - 0.5) < 0.03
    assert min(drawn) >= 0
    assert max(drawn) < 1


def test_doubt() -> None:
    even, sure = ({"scores": {"a": a, "b": b, "c": 0.0}} for a, b in ((0.5, 0.5), (0.9, 0.1)))
    assert doubt(Prediction("a", 0.5, even)) == 1.0
    assert doubt(Prediction("a", 0.9, sure)) == pytest.approx(0.2)
    several = {"scores": {"a": 0.9, "b": 0.8}}
    assert doubt(Prediction(("a", "b"), 0.8, several)) == pytest.approx(0.2)


def test_a_model_learns_between_batches(tmp_path: Path) -> None:
    out = tmp_path / "labels.jsonl"
    names = ["money", "post"]
    settings = LabellingSettings(batch=8, held_out=0.25)
    more: dict[str, Any] = {"task": "classification", "labels": names, "settings": settings}
    with labelling(ROWS, out, **more) as session:
        session.refresh()
        first = list(session.batch)
        assert len(first) == 8
        assert session.suggestions == {}
        assert session.score is None
        assert sum(session.items[name].held for name in first) == 2
        for number in range(16):
            text = session.state("me", "t")["text"]
            if number < 8:
                assert text["name"] == first[number]
                assert text["suggestion"] is None
            session.answer(str(number), "me", text["name"], label_of(text["passages"][0]))
        session.refresh()  # waits for the training that the labels have started
        score = session.score
        assert score is not None
        assert score["metric"] == "accuracy"
        assert score["value"] >= 0.5
        held = {name for name, item in session.items.items() if item.held}
        assert not held & session.suggestions.keys()
        right = [
            answer == label_of(session.items[name].example.text)
            for name, (answer, _) in session.suggestions.items()
        ]
        assert np.mean(right) > 0.7
    rows = texts_to_label(ROWS, out, 4, **more)
    assert [row["split"] for row in rows].count("test") == 1
    assert {row["suggested"] for row in rows if row["split"] == "train"} <= {*names}
    assert all(0.5 <= row["confidence"] <= 1 for row in rows if row["split"] == "train")
