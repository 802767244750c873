"""Work that can be interrupted and continued: its plan, its finished parts, its lock.

The plan holds everything that determines the result: settings by name, and SHA-256 sums of models
and data. Whoever continues the work must ask for the same; the error names the first setting that
differs. The result of a finished part is a JSON file that appears whole or not at all, so that
nothing is lost or done twice wherever a process is killed.
"""

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from typing import Any

from bertsmith.errors import BertsmithError
from bertsmith.files import locked, make_folder, sweep, write_json, write_text, writing
from bertsmith.foreign import read_json, read_table

LARGEST = 1 << 29  # bytes of a plan or a result: it may list every file, or every prediction
Sentences = Mapping[str, str | Callable[[Any, Any], str]]


class WorkFolder:
    """A folder of work that may be unfinished."""

    def __init__(self, path: str | Path, plan: str = "plan.json") -> None:
        self.path = Path(path)
        self.plan = self.path / plan

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes out and remove their leftovers; an empty folder is removed."""
        try:
            with locked(self.path):
                sweep(self.path)
                yield
        finally:
            with suppress(OSError):
                self.path.rmdir()

    def begun(self) -> bool:
        """Does the folder hold work of this kind?"""
        with writing(self.path):  # names that are too long
            return self.plan.is_file()

    def occupied(self) -> bool:
        """Does the folder hold any file, hidden ones aside?"""
        names = (entry.name for entry in self.path.iterdir()) if self.path.is_dir() else ()
        return not all(name.startswith(".") for name in names)

    def begin(self, plan: Mapping[str, Any]) -> None:
        """Make the folder and store the plan."""
        make_folder(self.path)
        write_json(self.plan, plan)

    def demand_same(
        self,
        plan: Mapping[str, Any],
        advice: str,
        sentences: Sentences | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        """Refuse a plan that differs from the stored one; the error ends with what to do.

        `sentences` say what it means that an entry of the plan differs, where its values mean
        nothing to a person. `defaults` are the values of settings that older plans do not have.
        """
        stored, plan = read_table(self.plan, LARGEST), as_stored(plan)
        if stored is None:
            raise BertsmithError(f"{self.plan} is damaged; remove the folder to start again")
        # Usually they are equal, and a plan may list a million files.
        for name, before, now in differences(stored, plan, defaults) if stored != plan else ():
            entry = name.replace(" ", ".").partition(".")[0]
            sentence = (sentences or {}).get(entry)
            if callable(sentence):
                sentence = sentence(stored.get(entry), plan.get(entry))
            setting = name.rpartition(".")[2]
            sentence = sentence or f"it was started with {setting} {before}, not {now}"
            raise BertsmithError(f"{self.path}: {sentence}; {advice}")

    def file(self, name: str) -> Path:
        """Where the result of a part is stored."""
        return self.path / f"{name}.json"

    def finished(self, name: str, **kinds: type) -> dict[str, Any] | None:
        """The stored result of a part, with entries of these kinds; None if it is not finished."""
        path = self.file(name)
        if not path.is_file():
            return None
        content: dict[str, Any] = read_json(path, limit=LARGEST)
        if not all(isinstance(content.get(key), kind) for key, kind in kinds.items()):
            raise BertsmithError(f"{path}: not the result of a part; remove it")
        return content

    def finish(self, name: str, content: Mapping[str, Any]) -> None:
        """Store the result of a part. Numbers need not be finite: losses may be NaN."""
        path = self.file(name)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(content, indent=2) + "\n")

    def remove(self) -> None:
        """Remove the folder."""
        rmtree(self.path, ignore_errors=True)


def fingerprint(content: Any) -> str:
    """A SHA-256 sum of plain values; what JSON does not know counts by its text."""
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def as_stored(content: Mapping[str, Any]) -> dict[str, Any]:
    """A table as it comes back from the disk: with lists for tuples, and texts for paths."""
    return dict(json.loads(json.dumps(content, default=str)))


def differences(
    before: Mapping[str, Any], now: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> list[tuple[str, Any, Any]]:
    """Where two tables differ: (dotted name, value before, value now); None where there is none."""
    old, new = {**flat(defaults or {}), **flat(before)}, flat(now)
    pairs = {name: (old.get(name), new.get(name)) for name in {**new, **old}}
    return [(name, *pair) for name, pair in pairs.items() if pair[0] != pair[1]]


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one, with dotted names such as train.steps."""
    values: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            values |= flat(value, f"{prefix}{key}.")
        elif value and isinstance(value, list) and all(isinstance(v, Mapping) for v in value):
            for number, entry in enumerate(value, 1):
                values |= flat(entry, f"{prefix}{key} {number}.")
        else:
            values[prefix + key] = value
    return values


def append_line(path: Path, content: Mapping[str, Any], flush: bool = False) -> bytes:
    """Add a JSON object to a file of lines at once, so that several processes may share it."""
    line = json.dumps(content).encode() + b"\n"
    with writing(path), path.open("ab", buffering=0) as stream:
        if stream.write(line) != len(line):  # the disk is full
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if flush:
            os.fsync(stream.fileno())
    return line
