"""All results of a demo run, for the page and for --json."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bertsmith.demo.budget import Budget
from bertsmith.demo.finetuning import Starts, Tuned
from bertsmith.demo.inspection import Inspection
from bertsmith.demo.introduction import Introduction
from bertsmith.demo.pretraining import Pretraining
from bertsmith.demo.vocabulary import Reading


@dataclass
class Results:
    """One run."""

    budget: Budget
    introduction: Introduction
    reading: Reading
    pretraining: Pretraining
    classifier: Tuned
    tagger: Tuned
    starts: Starts
    inspection: Inspection
    commands: list[str]  # to try next
    seconds: float = 0.0

    def described(self) -> dict[str, Any]:
        """All that is not only drawn, for machines."""
        reading, run, shown = self.reading, self.pretraining, self.introduction
        guesses = zip(run.sentences, run.rounds[0].guesses, run.rounds[-1].guesses, strict=True)
        return {
            "finished": True,
            "met": {
                "model": shown.name,
                "guesses": [
                    {"text": text, "best": ranked[0][0]}
                    for text, ranked in zip(shown.sentences, shown.guesses, strict=True)
                ],
                "near": [asdict(one) for one in shown.near],
            },
            "text": reading.source,
            "documents": reading.documents,
            "characters": reading.characters,
            "vocabulary": reading.vocabulary,
            "layers": self.budget.layers,
            "width": self.budget.width,
            "parameters": run.parameters,
            "pretraining": run.summary,
            "guesses": [
                {"text": text, "before": before[0][0], "after": after[0][0]}
                for text, before, after in guesses
            ],
            "classifier": self.classifier.described(),
            "tagger": self.tagger.described(),
            "few_labels": asdict(self.starts),
            "senses": {
                "word": self.inspection.word,
                "groups": [asdict(one) for one in self.inspection.groups],
            },
            "seconds": round(self.seconds, 1),
            "commands": self.commands,
        }
