"""One short run that all tests of the demo look at."""

import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bertsmith.demo import run as demo
from bertsmith.demo.budget import Budget
from bertsmith.demo.page import page as render
from bertsmith.train.loop import Trainer
from demo.library import write_library

TINY = Budget(
    vocabulary=260,
    width=32,
    length=32,
    batch_tokens=256,
    steps=8,
    classifier_seconds=0.01,
    tagger_seconds=0.01,
    epochs=1,
    few=24,
    few_epochs=1,
    few_tests=8,
    occurrences=40,
)


@dataclass(frozen=True)
class Made:
    """A folder that the demo made, its results, and what a person saw."""

    out: Path
    results: dict[str, Any]
    parts: Any  # all that its page was rendered from
    shown: str
    trained: float  # seconds on the wall that pre-training took


@contextmanager
def small_library(folder: Path) -> Iterator[Path]:
    """A small standard library in the place of Python's own, for as long as this lasts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertsmith.demo.text.library_root", lambda: folder)
        patch.setattr("bertsmith.demo.text.help_topics", dict)
        yield folder


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of that library."""
    return write_library(tmp_path_factory.mktemp("library"))


@pytest.fixture
def library(written: Path) -> Iterator[Path]:
    """That library, during a test."""
    with small_library(written) as folder:
        yield folder


@pytest.fixture(scope="session")
def made(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A run as short as it can be."""
    out, shown = tmp_path_factory.mktemp("demo") / "demo", io.StringIO()
    loop, trained = Trainer.run, [0.0]

    def timed(trainer: Trainer) -> bool:
        began = time.monotonic()
        done = loop(trainer)
        trained[0] = time.monotonic() - began
        return done

    parts: list[Any] = []

    def page(*rendered: Any) -> str:
        parts.extend(rendered)
        return render(*rendered)

    with small_library(written), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "run", timed)
        patch.setattr(demo, "page", page)
        results = demo.run(out, None, TINY, Console(file=shown, width=80))
    return Made(out, results, parts, shown.getvalue(), trained[0])
