"""The command line as a person runs it, and as a function call where that is enough."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from bertsmith import create
from bertsmith.checkpoint import Sentence, save
from bertsmith.cli.app import app, main
from processes import ran
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
        done = ran("-m", "bertsmith.cli", *words, input=text)
        return Output(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the program in this process, errors and exit status included: torch is imported once."""

    def call(*words: str | Path) -> Output:
        monkeypatch.setattr(sys, "argv", ["bertsmith", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        shown = capsys.readouterr()
        return Output(int(end.value.code or 0), shown.out, shown.err)

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


@pytest.fixture(scope="session")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("search")
    (place / "docs").mkdir()
    (place / "docs" / "whales.md").write_text("# Whales\n\nWhales live in the sea.\n")
    (place / "docs" / "cats.txt").write_text("Cats sleep on the sofa all day.\n")
    rows = ['{"_id": "w", "text": "whales of the sea"}', '{"_id": "c", "text": "cats on a sofa"}']
    (place / "corpus.jsonl").write_text("\n".join(rows))
    (place / "queries.jsonl").write_text('{"_id": "1", "text": "sea whales"}\n')
    (place / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n1\tw\t1\n")
    return place


@pytest.fixture(scope="session")
def search_index(documents: Path) -> Path:
    words = ["index", str(documents / "docs"), "--out", str(documents / "index"), "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout.splitlines()[-1])
    assert (report["added"], report["embedded"]) == (2, 2)
    assert report["total"]["model"]["name"] == "bertsmith-embed"
    return documents / "index"
