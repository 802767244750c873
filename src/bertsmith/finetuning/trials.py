"""Training runs of benchmark tasks, and the file that stores finished ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from bertsmith.checkpoint import locate, read_sentence
from bertsmith.checkpoint.files import readable
from bertsmith.errors import BertsmithError
from bertsmith.files import digest, writing
from bertsmith.foreign import parse_table
from bertsmith.store import append_line, differences, fingerprint

MADE_OF = {".json", ".txt", ".model", ".safetensors", ".bin"}
BEGINNING = b'{"task": '
KINDS: dict[str, Any] = {
    "task": str,
    "seed": int,
    "dev": dict,
    "test": dict | None,
    "minutes": float,
    "model": dict,
    "settings": dict,
    "data": str,
}


@dataclass(frozen=True)
class Trial:
    """What a task scored with one seed."""

    task: str
    seed: int
    dev: dict[str, float]
    test: dict[str, float] | None  # of the second file that is scored, where there is one
    minutes: float


class TrialFile:
    """Finished trials in a file that several commands may share: a line each, added at once."""

    def __init__(
        self, path: Path, model: str | Path, settings: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Read the file, if it is there: trials of this model, and made with a task's settings."""
        self.path, self.settings = path, settings
        self.model = {"name": str(model), "sha256": model_sum(model)}
        self.rows: list[dict[str, Any]] = []
        with writing(path):
            if path.exists() and not path.is_file():  # a device may have no end
                raise BertsmithError(f"{path}: not a regular file; name a .jsonl file")
        with readable(path, "not a file of scores"):
            content = path.read_bytes() if path.exists() else b""
            end = content.rfind(b"\n") + 1
            # The beginning of a line that was cut short when it was written is removed.
            cut = BEGINNING.startswith(content[end:][: len(BEGINNING)])
            lines = content[:end] if cut else content
            for number, line in enumerate(lines.splitlines(), 1):
                self.rows.append(_row(path, number, line))
        for row in self.rows:
            self._check(row)
        # Here, and not hours later, it turns out that there is nowhere to write.
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            if len(lines) < len(content):
                os.truncate(path, len(lines))

    def finished(self, task: str, data: str) -> dict[int, Trial]:
        """The trials of a task by their seeds; `data` is the sum of its files."""
        rows = [row for row in self.rows if row["task"] == task]
        if any(row["data"] != data for row in rows):
            raise BertsmithError(
                f"{self.path}: the files of {task} have changed since; choose another file"
            )
        names = [one.name for one in fields(Trial)]
        return {row["seed"]: Trial(**{name: row[name] for name in names}) for row in rows}

    def add(self, trial: Trial, data: str) -> None:
        """Store a trial that is finished."""
        made_of = {"model": self.model, "settings": self.settings[trial.task], "data": data}
        append_line(self.path, asdict(trial) | made_of, flush=True)

    def _check(self, row: dict[str, Any]) -> None:
        """Refuse a trial that this command would not have made."""
        model, task = row["model"], row["task"]
        if model["sha256"] != self.model["sha256"]:
            same = model["name"] == self.model["name"]
            other = "this model as it was before" if same else f"another model, {model['name']}"
            raise BertsmithError(f"{self.path}: holds scores of {other}; choose another file")
        expected = self.settings.get(task, row["settings"])
        for name, then, now in differences(row["settings"], expected):
            raise BertsmithError(
                f"{self.path}: {task} was trained with {name} {then}, not {now}; "
                "choose another file"
            )


def sum_of(paths: Iterable[Path]) -> str:
    """One SHA-256 sum for several files."""
    return fingerprint({path.name: digest(path) for path in paths})


def model_sum(model: str | Path) -> str:
    """The sum of all that a model is made of: weights, config, vocabulary."""
    directory = locate(model)
    directory, _ = read_sentence(directory) or (directory, None)
    with readable(directory):
        files = [path for path in directory.iterdir() if path.suffix in MADE_OF and path.is_file()]
        return sum_of(files)


def _row(path: Path, number: int, line: bytes) -> dict[str, Any]:
    """A line of the file, if it is one of ours."""
    row = parse_table(line) or {}
    typed = "test" in row and all(isinstance(row.get(name), kind) for name, kind in KINDS.items())
    if typed and {"name", "sha256"} <= row["model"].keys():
        return row
    raise BertsmithError(
        f"{path}, line {number}: not a finished seed of a benchmark; choose another file"
    )
