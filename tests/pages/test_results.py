"""Results that a notebook shows: every text escaped, values where they belong."""

from html.parser import HTMLParser

import pytest

from bertsmith.distilling.result import DistillationResult
from bertsmith.finetuning.result import FinetuningResult, TrainingRun
from bertsmith.tasks.answering.task import Answer, Answers
from bertsmith.tasks.classifying import Classification
from bertsmith.tasks.filling import Guess, Guesses
from bertsmith.tasks.tagging.task import Entities, Entity
from bertsmith.tokenizer.tokenizer import TextToken, TokenSplit

EVIL = "<script>alert(1)</script>"


class Reader(HTMLParser):
    """The tags and the texts of a piece of HTML, without its style."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] != ["style"] or "{" not in data:
            self.text += f"{data} "


def guess(token: str, score: float, mask: int = 0) -> Guess:
    return Guess(token, score, "", 1, mask)


def run(scores: dict[str, dict[str, float] | None]) -> TrainingRun:
    return TrainingRun(settings=None, history=None, scores=scores)  # type: ignore[arg-type]


SIDE = {"layers": 9, "width": 320, "parameters": 15_700_000}
SHOWN = {
    "guesses": (Guesses([guess(EVIL, 0.75), guess("a", 0.25)]), ["75.0%", "25.0%"]),
    "two masks": (Guesses([guess(EVIL, 0.5), guess("a", 0.4, 1)]), ["mask 1", "mask 2", "40.0%"]),
    "label": (Classification(EVIL, 0.9, {"b": 0.1, EVIL: 0.9}), ["90.0%", "b", "10.0%"]),
    "value": (Classification(EVIL, 3.5, {EVIL: 3.5}), ["3.5000"]),
    "entities": (Entities([Entity("PER", EVIL, 0, 25, 0.9)], f"{EVIL} here"), ["PER", "here"]),
    "answer": (Answers([Answer(EVIL, 2, 27, 0.8)], f"a {EVIL}!"), ["80.0%"]),
    "tokens": (
        TokenSplit([TextToken(EVIL, 7, 0, 1, "x"), TextToken("b", 8, 1, 2, "y")], 1, 7),
        ["7", "8"],
    ),
    "run": (
        FinetuningResult(
            EVIL, "accuracy", run({"dev": {"accuracy": 0.5}, "test": {"accuracy": 0.4}})
        ),
        ["dev", "test", "0.5000", "0.4000"],
    ),
    "distilled": (
        DistillationResult(
            None,  # type: ignore[arg-type]
            {
                "teacher": SIDE,
                "student": SIDE,
                "speed": [
                    {
                        "device": EVIL,
                        "threads": 1,
                        "teacher_per_second": 1.0,
                        "student_per_second": 2.0,
                        "ratio": 2,
                    }
                ],
            },
        ),
        ["15,700,000", "2 (2 ×)"],
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_results_are_shown_and_escaped(name: str) -> None:
    result, texts = SHOWN[name]
    page = Reader(result._repr_html_())  # type: ignore[attr-defined]
    assert "script" not in page.tags
    assert EVIL in page.text
    for text in texts:
        assert text in page.text


def test_an_unknown_token_is_marked() -> None:
    split = TokenSplit([TextToken("[UNK]", 1, 0, 1, "☃"), TextToken("b", 2, 1, 2, "b")], 1, 1)
    assert split._repr_html_().count('class="bad"') == 1


def test_lists_of_results_are_lists() -> None:
    entity = Entity("PER", "Ada", 0, 3, 0.9)
    assert Entities([entity], "Ada") == [entity]
    assert Answers([], "a passage") == []
    assert "no answer" in Answers([Answer("", 0, 0, 0.9)], "a passage")._repr_html_()
