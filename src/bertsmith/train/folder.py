"""The folder of a run: recipe, logs and ledger."""

import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertsmith.errors import BertsmithError, setting_name
from bertsmith.files import finite, make_folder, write_bytes, write_json, write_text, writing
from bertsmith.folders import check_output
from bertsmith.foreign import parse_table, read_table
from bertsmith.ledger import Ledger
from bertsmith.store import WorkFolder, append_line
from bertsmith.train.state import RunProgress

LOGS = ("log.jsonl", "timing.jsonl")


class RunFolder(WorkFolder):
    """The files of a run; its plan is the recipe. Only the first rank writes."""

    def __init__(self, path: str | Path, writes: bool = True) -> None:
        super().__init__(path, "recipe.toml")
        self.writes = writes
        self.sums = dict.fromkeys(LOGS, 0)  # CRC-32 of the logs: a line can be added to it

    def demand_free(self) -> None:
        """Raise an error if the folder is not empty: its files could be overwritten."""
        check_output(self.path)
        if self.path.exists() and not self.path.is_dir():
            raise BertsmithError(f"{self.path}: a file; a run is a folder")
        if self.begun():
            resume = setting_name("resume", True)
            raise BertsmithError(f"{self.path}: already contains a run; {resume} continues it")
        if self.occupied():
            raise BertsmithError(f"{self.path}: not empty; choose a new folder for the run")

    def make(
        self,
        recipe: str,
        start: Mapping[str, Any] | None = None,
        fill: Callable[[], None] | None = None,
    ) -> None:
        """Create the folder of a run, with what `start()` returns; `fill` adds a branch's files."""
        self.demand_free()
        make_folder(self.path)
        if start:
            write_json(self.path / "start.json", start)
        if fill is not None:
            fill()
        write_text(self.plan, recipe)

    @contextmanager
    def discarded(self, unless: Callable[[], bool]) -> Iterator[None]:
        """Remove the files of a new run that an error ends, unless training has started."""
        try:
            yield
        except BertsmithError:
            files = [] if unless() or not self.writes else list(self.path.iterdir())
            # Hidden are the lock, and what was there before the run.
            for path in (path for path in files if not path.name.startswith(".")):
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
            raise

    def start(self) -> dict[str, Any]:
        """How the run was started: torchrun's `job`, the `model` or `branch` that it continues."""
        return read_table(self.path / "start.json") or {}

    def summary(self) -> dict[str, Any] | None:
        """The summary of a finished run; None if there is none, or if it is damaged."""
        summary = read_table(self.path / "summary.json")
        return summary if summary and summary.get("finished") is True else None

    def recipe(self) -> str:
        """Return the recipe that this run was started with."""
        try:
            return self.plan.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BertsmithError(f"{self.path}: no run to resume") from error

    def kept(self) -> dict[str, Any]:
        """Sums of the logs, for a checkpoint."""
        return self.sums

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Nothing: the logs are in the folder."""

    def cut(self, progress: RunProgress) -> tuple[dict[str, int], list[str]]:
        """Remove from the logs what is newer than a checkpoint; notes and messages of damage."""
        step, messages = progress.step, []
        damaged = sum(self._cut(name, step, progress.evaluated) for name in LOGS)
        notes = {"damaged lines of the logs that were dropped": damaged}
        for name, known in progress.record.items():
            if self.writes and self.sums[name] != known:
                lost = f"lines up to step {step} are damaged or missing"
                messages.append(f"{self.path / name}: {lost}; the run continues without them")
                notes[f"logs that were damaged or cut when the run resumed: {name}"] = 1
        return notes, messages

    def _cut(self, name: str, step: int, evaluated: int) -> int:
        path, self.sums[name] = self.path / name, 0
        if not self.writes or not path.exists():
            return 0
        with writing(path):
            lines = path.read_bytes().splitlines(keepends=True)
        kept, damaged = [], 0
        for number, line in enumerate(lines, 1):
            row = parse_table(line) or {}
            last = step if "loss" in row or "seconds" in row else evaluated
            if not isinstance(row.get("step"), int):
                damaged += number < len(lines)  # the last line may be incomplete after a kill
            elif line.endswith(b"\n") and row["step"] <= last:
                kept.append(line)
        content = b"".join(kept)
        write_bytes(path, content)
        self.sums[name] = zlib.crc32(content)
        return damaged

    def log(self, row: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """Append the values and the timing of a step to the logs."""
        if self.writes:
            for name, content in zip(LOGS, (row, timing), strict=True):
                line = append_line(self.path / name, finite(content))
                self.sums[name] = zlib.crc32(line, self.sums[name])

    def keep_ledger(self, ledger: Ledger) -> None:
        """Write ledger.json."""
        if self.writes:
            write_json(self.path / "ledger.json", dict(ledger.counts))
