"""Hard negatives of queries: which passages are, and which are left out."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertsmith.errors import BertsmithError
from bertsmith.search import Index, Reranker, mine
from bertsmith.search.build import BuildSettings, add_documents
from bertsmith.search.mining import MiningQuestion, judged_questions, read_questions
from bertsmith.tasks.read import read_data
from search.conftest import HashedWords
from tasks.models import Maker

ROWS = [
    {"id": "fish", "text": "Cats eat fish and mice."},
    {"id": "copy", "text": "Cats  eat fish and MICE."},
    {"id": "near", "text": "Cats eat fish and mice daily."},
    {"id": "purr", "text": "Cats purr when they eat in the sun near a warm wall."},
    {"id": "dogs", "text": "Dogs eat bones, and they bark loudly at night when cats pass by."},
]


def made_index(path: Path, **options: Any) -> Index:
    encoder = None if options else HashedWords()
    add_documents(path, ROWS, BuildSettings(encoder=encoder, **options))
    return Index(path, model=encoder)


def negatives(index: Index, question: MiningQuestion, **options: Any) -> list[str]:
    [row] = mine(index, [question], **options)
    assert (row["anchor"], row["positive"]) == (question.query, list(question.positives))
    return [text.split(".")[0] for text in row["negative"]]


QUESTION = MiningQuestion("what do cats eat, fish and mice", ("Cats eat fish and mice.",))


def test_negatives_are_neither_copies_nor_too_near(tmp_path: Path) -> None:
    index = made_index(tmp_path / "i")
    found = negatives(index, QUESTION, relative_margin=0.0)
    assert "Cats  eat fish and MICE" not in found  # the positive in other letters
    assert "Cats eat fish and mice daily" not in found  # it holds the positive
    assert len(found) == 2
    assert negatives(index, QUESTION, negatives=1) == found[:1]
    assert negatives(index, QUESTION, skip=100) == []
    other = MiningQuestion("cats eat fish and mice daily", ("Cats purr a lot at home.",))
    assert "Cats eat fish and mice daily" not in negatives(index, other)
    assert negatives(index, other, margin=2.0) == []


@pytest.mark.parametrize("mode", ["hybrid", "keywords", "vectors"])
def test_the_ranking_can_be_chosen(tmp_path: Path, mode: str) -> None:
    index = made_index(tmp_path / "i")
    found = negatives(index, QUESTION, mode=mode, relative_margin=0.0)
    assert len(found) == 2


def test_an_index_without_vectors_mines_by_keywords(tmp_path: Path) -> None:
    index = made_index(tmp_path / "i", keywords_only=True)
    assert len(negatives(index, QUESTION)) == 2
    with pytest.raises(BertsmithError, match="without vectors: mine by keywords"):
        negatives(index, QUESTION, mode="vectors")


def test_judged_queries_have_their_documents(tmp_path: Path) -> None:
    index = made_index(tmp_path / "i")
    queries = {"q": "what do cats eat", "other": "no judgement"}
    [one] = judged_questions(index, queries, {"q": {"fish": 2, "purr": 1, "dogs": 0, "gone": 1}})
    assert one.positives == (ROWS[0]["text"], ROWS[3]["text"])
    found = negatives(index, one, relative_margin=0.0)
    assert found
    assert not any("purr" in text for text in found)
    with pytest.raises(BertsmithError, match="no relevant document of any query"):
        judged_questions(index, queries, {"q": {"gone": 1}})


def test_rows_of_pairs_keep_their_negatives(tmp_path: Path) -> None:
    index, file = made_index(tmp_path / "i"), tmp_path / "pairs.jsonl"
    row = {"anchor": QUESTION.query, "positive": QUESTION.positives[0], "negative": "A stone."}
    file.write_text(json.dumps(row) + "\n")
    [question] = read_questions(file)
    assert negatives(index, question)[0] == "A stone"
    file.write_text('{"sentence1": "a", "sentence2": "b", "score": 1}\n')
    with pytest.raises(BertsmithError, match="pairs with scores; mining needs queries"):
        read_questions(file)


def test_a_teacher_scores_and_filters(tmp_path: Path, made: Maker) -> None:
    index = made_index(tmp_path / "i")
    teacher = Reranker(made("bert", "ForSequenceClassification", num_labels=1).ours)
    [row] = mine(index, [QUESTION], teacher=teacher)
    texts = [*row["positive"], *row["negative"]]
    assert row["scores"] == pytest.approx(teacher.scores(QUESTION.query, texts), abs=1e-5)
    assert all(score < row["scores"][0] for score in row["scores"][1:])
    [strict] = mine(index, [QUESTION], teacher=teacher, margin=1000)
    assert strict["negative"] == []
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({**row, "negative": ["x"], "scores": [2, 1]}) + "\n")
    assert read_data(file, "similarity").examples[0].scores == (2.0, 1.0)
    with pytest.raises(BertsmithError, match="a teacher is a reranker"):
        list(mine(index, [QUESTION], teacher=Reranker(made("bert", "Model").ours)))


def test_mistakes(tmp_path: Path) -> None:
    index = made_index(tmp_path / "i")
    with pytest.raises(BertsmithError, match="negatives is 0, not a number from 1"):
        list(mine(index, [QUESTION], negatives=0))
    with pytest.raises(BertsmithError, match="mode must be hybrid or keywords or vectors"):
        list(mine(index, [QUESTION], mode="bm25"))
    with pytest.raises(BertsmithError, match="unknown setting 'depht'"):
        list(mine(index, [QUESTION], depht=3))
