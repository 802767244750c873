"""The folder of a run: recipe, logs and ledger."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.errors import BertsmithError
from bertsmith.files import finite, write_bytes, write_json, write_text, writing
from bertsmith.folders import check_output
from bertsmith.ledger import Ledger

LOGS = ("log.jsonl", "timing.jsonl")


def read_table(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; None if the file is missing or damaged."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


class RunFolder:
    """The files of a run. Only the first rank writes."""

    def __init__(self, path: str | Path, writes: bool = True) -> None:
        self.path, self.writes = Path(path), writes
        self.sums = dict.fromkeys(LOGS, 0)  # CRC-32 of the logs: a line can be added to it

    def begun(self) -> bool:
        """Whether the folder contains a run."""
        with writing(self.path):
            return (self.path / "recipe.toml").is_file()

    def demand_free(self) -> None:
        """Raise an error if the folder is not empty: its files could be overwritten."""
        check_output(self.path)
        if self.path.exists() and not self.path.is_dir():
            raise BertsmithError(f"{self.path}: a file; a run is a folder")
        if (self.path / "recipe.toml").exists():
            raise BertsmithError(f"{self.path}: already contains a run; --resume continues it")
        if self.path.is_dir() and any(not e.name.startswith(".") for e in self.path.iterdir()):
            raise BertsmithError(f"{self.path}: not empty; choose a new folder for the run")

    def make(self, recipe: str, start: Mapping[str, Any] | None = None) -> None:
        """Create the folder of a run; it must be empty. `start` is what `start()` returns."""
        self.demand_free()
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        if start:
            write_json(self.path / "start.json", start)
        write_text(self.path / "recipe.toml", recipe)

    def start(self) -> dict[str, Any]:
        """How the run was started: torchrun's `job`, and the `model` that it continues."""
        return read_table(self.path / "start.json") or {}

    def summary(self) -> dict[str, Any] | None:
        """The summary of a finished run; None if there is none, or if it is damaged."""
        summary = read_table(self.path / "summary.json")
        return summary if summary and summary.get("finished") is True else None

    def recipe(self) -> str:
        """Return the recipe that this run was started with."""
        try:
            return (self.path / "recipe.toml").read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BertsmithError(f"{self.path}: no run to resume") from error

    def cut(self, step: int, evaluated: int) -> int:
        """Remove later steps and evaluations from the logs; returns the number of damaged lines."""
        return sum(self._cut(name, step, evaluated) for name in LOGS)

    def _cut(self, name: str, step: int, evaluated: int) -> int:
        path, self.sums[name] = self.path / name, 0
        if not self.writes or not path.exists():
            return 0
        with writing(path):
            lines = path.read_bytes().splitlines(keepends=True)
        kept, damaged = [], 0
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                training = "loss" in row or "seconds" in row
                if line.endswith(b"\n") and row["step"] <= (step if training else evaluated):
                    kept.append(line)
            except (ValueError, LookupError, TypeError, RecursionError):
                damaged += number < len(lines)  # the last line may be incomplete after a kill
        write_bytes(path, b"".join(kept))
        self.sums[name] = zlib.crc32(b"".join(kept))
        return damaged

    def log(self, row: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """Append the values and the timing of a step to the logs."""
        if self.writes:
            for name, content in zip(LOGS, (row, timing), strict=True):
                path = self.path / name
                line = json.dumps(finite(content), allow_nan=False).encode() + b"\n"
                with writing(path), path.open("ab", buffering=0) as stream:
                    stream.write(line)
                self.sums[name] = zlib.crc32(line, self.sums[name])

    def keep_ledger(self, ledger: Ledger) -> None:
        """Write ledger.json."""
        if self.writes:
            write_json(self.path / "ledger.json", dict(ledger.counts))
