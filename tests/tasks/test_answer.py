"""Answers: the stretches and their probabilities are those of `transformers`' own scores."""

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch

from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.infer.spans import trimmed
from tasks.models import LINES, STEMS, Made, Maker, save

QUESTION = "Where does Anna Karlsson live?"
PASSAGE = " Anna Karlsson lives in Uppsala, Sweden 😀, and works (for a bakery). In 1997 e\u0301."


def by_hand(made: Made, longest: int, empty: bool = False) -> list[tuple[str, float]]:
    """Every stretch of the passage with its probability, best first, from `transformers` alone."""
    out = made.logits(QUESTION, PASSAGE)
    encoding = made.their_tokenizer([QUESTION], [PASSAGE], return_offsets_mapping=True).encodings[0]
    start, end = out.start_logits[0], out.end_logits[0]
    rows = [row for row, source in enumerate(encoding.sequence_ids) if source == 1]
    pairs = [(i, j) for i in rows for j in rows if i <= j < i + longest]
    values = [float(start[i] + end[j]) for i, j in pairs] + [float(start[0] + end[0])] * empty
    chances = torch.tensor(values).softmax(0).tolist()
    best: dict[tuple[int, int], float] = defaultdict(float)
    for (i, j), chance in zip(pairs, chances, strict=False):
        span = trimmed(PASSAGE, encoding.offsets[i][0], encoding.offsets[j][1])
        best[span] = max(chance, best[span])
    found = [(PASSAGE[slice(*span)], chance) for span, chance in best.items()]
    found = [(text, chance) for text, chance in found if text] + [("", chances[-1])] * empty
    return sorted(found, key=lambda item: -item[1])


@pytest.mark.parametrize("family", STEMS)
@pytest.mark.parametrize("longest", [1, 5, 1000])
def test_answers_are_those_of_transformers(family: str, longest: int, made: Maker) -> None:
    model = made(family, "ForQuestionAnswering")
    found = model.ours.answer(QUESTION, PASSAGE, top=7, longest=longest)
    expected = by_hand(model, longest)[:7]
    assert [one.text for one in found] == [text for text, _ in expected]
    assert [one.score for one in found] == pytest.approx([s for _, s in expected], abs=1e-4)
    for one in found:
        assert PASSAGE[one.start : one.end] == one.text == one.text.strip() != ""


def test_the_score_does_not_depend_on_how_many_are_asked_for(made: Maker) -> None:
    bert = made("bert", "ForQuestionAnswering").ours
    (one,) = bert.answer(QUESTION, PASSAGE)
    assert bert.answer(QUESTION, PASSAGE, top=50)[0] == one
    everything = bert.answer(QUESTION, PASSAGE, top=10**6, longest=10**6)
    assert 0.98 < sum(each.score for each in everything) <= 1 + 1e-6


def test_no_answer_competes_where_it_may(made: Maker) -> None:
    model = made("roberta", "ForQuestionAnswering")
    found = model.ours.answer(QUESTION, PASSAGE, top=10**6, empty=True)
    expected = by_hand(model, 30, empty=True)
    assert [one.text for one in found[:20]] == [text for text, _ in expected[:20]]
    (none,) = [one for one in found if one.text == ""]
    assert (none.start, none.end) == (0, 0)
    assert none.score == pytest.approx(dict(expected)[""], abs=1e-4)


@pytest.mark.parametrize("passage", ["", "   ", "\0"])
def test_an_empty_passage_has_no_answer(passage: str, made: Maker) -> None:
    bert = made("bert", "ForQuestionAnswering").ours
    assert bert.answer("Who?", passage) == []
    (none,) = bert.answer("Who?", passage, empty=True)
    assert (none.text, none.start, none.end, none.score) == ("", 0, 0, pytest.approx(1.0))
    assert bert.answer("", "The river.")


class Marker(torch.nn.Module):
    """A head that knows where the answer is: between two ids."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__()
        self.first, self.last = first, last

    def forward(self, hidden: Any, batch: Batch, rows: Any = None) -> torch.Tensor:
        return torch.stack([batch.ids == self.first, batch.ids == self.last], 1).float() * 20


@pytest.mark.parametrize("family", ["bert", "roberta", "deberta-v2", "modernbert"])
@pytest.mark.parametrize("place", [1, 50, 333, 999])
def test_an_answer_beyond_the_limit_is_found(family: str, place: int, tmp_path: Path) -> None:
    bert = save(tmp_path, family, "ForQuestionAnswering").ours
    words = ["and"] * 1000
    words[place] = "bees 12 %"
    passage = " ".join(words)
    alone = bert.tokenizer.encode(" bees 12 %", special=False).ids
    bert.model.heads["answer"] = Marker(alone[0], alone[-1])
    if family == "deberta-v2":  # its first token is a mere ▁, which every word has
        bert.model.heads["answer"] = Marker(alone[1], alone[-1])
    before = bert.ledger.counts["long texts read in windows"]
    (found,) = bert.answer("Which animal?", passage)
    assert passage[found.start : found.end] == found.text
    assert found.text.endswith("12 %")
    assert found.end == passage.index("%") + 1
    assert bert.ledger.counts["long texts read in windows"] == before + 1


def test_windows_change_nothing_for_a_passage_that_fits(made: Maker) -> None:
    model = made("bert", "ForQuestionAnswering")
    whole = model.ours.answer(QUESTION, PASSAGE, top=5)
    ids = model.ours.tokenizer.encode(QUESTION, PASSAGE).ids
    assert len(ids) <= model.ours.max_length
    assert model.ours.answer(QUESTION, PASSAGE, top=5) == whole


@pytest.mark.parametrize("empty", [False, True])
def test_windows_compete(empty: bool, made: Maker) -> None:
    model = made("bert", "ForQuestionAnswering")
    bert, longest = model.ours, 9
    passage = " ".join(random.Random(3).choices(LINES.split(), k=150))
    asked, read = bert.encode([QUESTION, passage])
    values: dict[tuple[int, int], float] = {}
    none = []
    for window in bert.windower().pair(0, asked.ids, read.ids):
        ids, segments = torch.tensor([window.ids]), torch.tensor([window.segments])
        with torch.no_grad():
            out = model.theirs(ids, token_type_ids=segments)
        none.append(float(out.start_logits[0, 0] + out.end_logits[0, 0]))
        for i in window.tokens:
            for j in range(i, min(i + longest, window.tokens.stop)):
                shift = window.first - window.tokens.start
                value = float(out.start_logits[0, i + shift] + out.end_logits[0, j + shift])
                values[i, j] = max(value, values.get((i, j), value))
    assert len(none) > 2
    scores = torch.tensor([*values.values(), *([min(none)] if empty else [])]).softmax(0)
    spans = [(read.offsets[i][0], read.offsets[j][1]) for i, j in values] + [(0, 0)] * empty
    best = sorted(zip(scores.tolist(), spans, strict=True), reverse=True)
    found = bert.answer(QUESTION, passage, top=10**6, longest=longest, empty=empty)
    assert [(one.start, one.end) for one in found[:25]] == [span for _, span in best[:25]]
    assert [one.score for one in found] == pytest.approx([score for score, _ in best], abs=1e-6)
    assert min(none) < min(none[0], none[-1]), "the middle decides, so that order cannot"
    assert ((0, 0) in [(one.start, one.end) for one in found]) == empty
    chances = {(one.start, one.end): one.score for one in found}
    assert chances.get((0, 0)) == (pytest.approx(float(scores[-1]), 1e-3) if empty else None)


@pytest.mark.parametrize(
    ("question", "passage", "more", "fault"),
    [
        ("who " * 200, "a b", {}, "its first text has 600 tokens, too many beside the second"),
        ("a", "b", {"top": 0}, "top must be a whole number of at least 1, not 0"),
        ("a", "b", {"longest": 0}, "longest must be a whole number of at least 1, not 0"),
        (None, "b", {}, "text 0 is a NoneType, not a string"),
        ("a", ["b"], {}, "text 1 is a list, not a string"),
        ("a", "\udc00", {}, "half of a surrogate pair"),
    ],
)
def test_bad_inputs(question: Any, passage: Any, more: Any, fault: str, made: Maker) -> None:
    with pytest.raises(BertsmithError, match=fault):
        made("bert", "ForQuestionAnswering").ours.answer(question, passage, **more)
