"""The command line as a person runs it, and as a function call where that is enough."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from bertsmith import create
from bertsmith.checkpoint import Sentence, save
from bertsmith.cli.app import app
from tasks.words import tokenizer


class Output(NamedTuple):
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[Any]:
        """Standard output as JSON, a line each."""
        return [json.loads(line) for line in self.out.split("\n")[:-1]]


Run = Callable[..., Output]


@pytest.fixture
def run() -> Run:
    """Run a verb in this process; an error of ours is raised."""

    def call(*words: str | Path, text: str | bytes | None = None) -> Output:
        done = CliRunner().invoke(app, [str(word) for word in words], input=text)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Output(done.exit_code, done.stdout, done.stderr)

    return call


@pytest.fixture
def shell() -> Run:
    """Run the real program in a process of its own."""

    def call(*words: str | Path, text: str | None = None) -> Output:
        command = [sys.executable, "-m", "bertsmith.cli", *map(str, words)]
        done = subprocess.run(command, input=text, capture_output=True, encoding="utf-8")
        return Output(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with a masked-LM head, fresh and of ours."""
    folder = tmp_path_factory.mktemp("model")
    words = tokenizer("bert")
    small = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    checkpoint = create("bert-tiny", vocab_size=words.size, max_position_embeddings=64, **small)
    save(folder, checkpoint, words, Sentence())
    return folder
