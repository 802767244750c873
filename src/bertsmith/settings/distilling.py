"""Settings of a distillation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bertsmith.settings import setting


@dataclass(frozen=True)
class DistillationSettings:
    """What a student is, what it learns from its teacher, and how it is scored."""

    to: Literal["layers", "static"] = setting(
        "layers", "The student: layers of the teacher, or static vectors."
    )
    layers: int | Sequence[int] | None = setting(
        None,
        "Layers that the student keeps, of the teacher or of --student: a number, or 0,2,4 "
        "[default: half of the teacher's, or all of the student's].",
        written=str | None,
    )
    student: str | Path | None = setting(None, "Another model as the student.", written=str | None)
    also: Sequence[str | Path] | None = setting(
        None, "A further teacher of vectors; repeatable.", written=list[str] | None
    )
    combine: Literal["join", "average"] = setting(
        "join", "How the vectors of several teachers become one: end to end, or their mean."
    )
    pieces: int | None = setting(
        None,
        "Learn the vectors of pieces of each text, of up to so many words: titles, sentences and "
        "passages.",
    )
    cache: str | Path | None = setting(
        None,
        "Keep the teachers' vectors in this folder, for further runs on the same texts.",
        written=str | None,
    )
    learn: Literal["task", "vectors"] | None = setting(
        None, "What the student learns [default: the teacher's task, if it has a head for one]."
    )
    dev: Any = setting(None, "A labelled file to choose the epoch on.", written=Path | None)
    test: Any = setting(None, "A labelled file to score on.", written=Path | None)
    temperature: float = setting(
        2.0, "Temperature of the teacher's probabilities.", ge=0.01, le=1000
    )
    labels: float = setting(
        0.0, "Weight of the file's own labels, from 0 (not read) to 1.", ge=0, le=1
    )
    loss: Literal["cosine", "mse"] = setting(
        "cosine", "Loss between the vectors of student and teacher."
    )
    hold_out: float = setting(
        0.1, "Fraction of the texts to choose the epoch on, without --dev.", ge=0, le=0.9
    )
    width: int | None = setting(
        None,
        "Dimensions of the student's vectors; fewer than the teacher's are its principal "
        "components [default: the student's width; 256 for static vectors].",
    )
    smoothing: float = setting(1e-4, "Constant a of the token weights a / (a + frequency).")
    recipe: str | Path | None = setting(
        None,
        "For a prepared corpus: distilbert, minilm or a file [default: distilbert].",
        written=str | None,
    )
    changes: Sequence[str] | None = setting(
        None,
        "Change a key of the recipe: train.steps=2000.",
        option="--set",
        written=list[str] | None,
    )
    show: Any = setting(
        None,
        "Progress view of a run by recipe: live, lines or none.",
        option="--view",
        written=str | None,
    )
