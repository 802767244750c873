"""All results of a demo run, for the page and for --json."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bertsmith.demo.forging import Lesson, Piece
from bertsmith.demo.looking import Group, Looked
from bertsmith.demo.meeting import Met
from bertsmith.demo.tuning import Shown, Tuned, Words
from bertsmith.demo.worth import Worth


@dataclass(frozen=True)
class Reading:
    """What was read, and the vocabulary that was learned from it."""

    source: str
    own: bool  # a person's own text
    documents: int
    characters: int
    areas: dict[str, int]  # items of each
    vocabulary: int
    pieces: list[Piece]


@dataclass(frozen=True)
class Pretraining:
    """The model, and how it learned."""

    layers: int
    width: int
    parameters: int
    lesson: Lesson
    summary: dict[str, Any]
    longer: list[list[tuple[str, float]]]  # predictions of a model that was trained for longer

    @property
    def speed(self) -> float:
        """Tokens a second."""
        return float(self.summary["tokens"] / max(60 * self.summary["minutes"], 1e-9))


@dataclass(frozen=True)
class Tuning:
    """Two fine-tuned models with some predictions, and the comparison of three starts."""

    classifier: Tuned
    texts: list[Shown]
    tagger: Tuned
    words: list[Words]
    worth: Worth


@dataclass(frozen=True)
class Inside:
    """What was seen inside."""

    looked: Looked
    word: str  # whose senses were looked at; "" for none
    groups: list[Group]


@dataclass
class Story:
    """One run."""

    met: Met
    reading: Reading
    pretraining: Pretraining
    tuning: Tuning
    inside: Inside
    commands: list[str]  # to try next
    seconds: float = 0.0

    def described(self) -> dict[str, Any]:
        """The story for machines, without what is only drawn."""
        reading, pretraining, lesson = self.reading, self.pretraining, self.pretraining.lesson
        first, last = lesson.rounds[0], lesson.rounds[-1]
        guesses = zip(lesson.sentences, first.guesses, last.guesses, strict=True)
        return {
            "finished": True,
            "met": {
                "model": self.met.name,
                "guesses": [
                    {"text": text, "best": ranked[0][0]}
                    for text, ranked in zip(self.met.sentences, self.met.guesses, strict=True)
                ],
                "near": [asdict(one) for one in self.met.near],
            },
            "text": reading.source,
            "documents": reading.documents,
            "characters": reading.characters,
            "vocabulary": reading.vocabulary,
            "layers": pretraining.layers,
            "width": pretraining.width,
            "parameters": pretraining.parameters,
            "pretraining": pretraining.summary,
            "guesses": [
                {"text": text, "before": before[0][0], "after": after[0][0]}
                for text, before, after in guesses
            ],
            "classifier": asdict(self.tuning.classifier),
            "tagger": asdict(self.tuning.tagger),
            "few_labels": asdict(self.tuning.worth),
            "senses": {
                "word": self.inside.word,
                "groups": [asdict(one) for one in self.inside.groups],
            },
            "seconds": round(self.seconds, 1),
            "commands": self.commands,
        }
