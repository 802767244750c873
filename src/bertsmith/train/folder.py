"""The folder of a run: its recipe, its logs, its ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger

LOGS = ("log.jsonl", "timing.jsonl")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A full disk or a folder that may not be written is one line."""
    try:
        yield
    except OSError as error:
        raise BertsmithError(f"{path}: cannot be written ({error.strerror})") from error


class RunFolder:
    """What a run leaves on the disk. Only the first rank writes."""

    def __init__(self, path: str | Path, writes: bool = True) -> None:
        self.path, self.writes = Path(path), writes

    def make(self, recipe: str) -> None:
        """Begin a run here; a folder that has one is refused."""
        if (self.path / "recipe.toml").exists():
            raise BertsmithError(
                f"{self.path}: there is a run in it already; --resume goes on with it"
            )
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / "recipe.toml.part").write_text(recipe, "utf-8")
            (self.path / "recipe.toml.part").replace(self.path / "recipe.toml")

    def recipe(self) -> str:
        """The recipe that this run was begun with."""
        try:
            return (self.path / "recipe.toml").read_text("utf-8")
        except OSError as error:
            raise BertsmithError(f"{self.path}: there is no run to go on with") from error

    def cut(self, step: int) -> None:
        """Forget what the logs say of later steps."""
        if self.writes:
            for name in LOGS:
                with writing(self.path / name):
                    self._cut(self.path / name, step)

    def _cut(self, path: Path, step: int) -> None:
        if not path.exists():
            return
        kept = []
        for line in path.read_bytes().splitlines(keepends=True):
            try:
                if not line.endswith(b"\n") or json.loads(line)["step"] > step:
                    break
            except (ValueError, LookupError, TypeError):
                break  # a line that was being written when the run was killed
            kept.append(line)
        part = path.with_name(path.name + ".part")
        part.write_bytes(b"".join(kept))
        part.replace(path)

    def log(self, row: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """Write what happened in a step, apart from how long it took."""
        if self.writes:
            for name, content in zip(LOGS, (row, timing), strict=True):
                path = self.path / name
                with writing(path), path.open("ab", buffering=0) as stream:
                    stream.write(json.dumps(content).encode() + b"\n")

    def keep_ledger(self, ledger: Ledger) -> None:
        """Write ledger.json."""
        if self.writes:
            part = self.path / "ledger.json.part"
            with writing(part):
                part.write_text(json.dumps(dict(ledger.counts), indent=1) + "\n", "utf-8")
                part.replace(self.path / "ledger.json")
