"""JSON from foreign files: bounded in size, type-checked, without repeated keys."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bertsmith.errors import BertsmithError
from bertsmith.files import one_line, read_whole

LARGEST_JSON = 16 << 20  # bytes; a config with 100,000 labels has 5 million


def read_json(path: Path, kind: type = dict, limit: int = LARGEST_JSON) -> Any:
    """The JSON object (or list) in a file; anything else is a one-line error."""
    return parse_json(read_whole(path, limit), path, kind)


def parse_json(data: bytes | str, name: str | Path, kind: type = dict) -> Any:
    """JSON of this kind; `name` says in errors where it comes from."""
    try:
        content = json.loads(data, object_pairs_hook=_distinct)
    except RecursionError:
        raise BertsmithError(f"{name}: not valid JSON (nested too deeply)") from None
    except ValueError as error:  # not UTF-8, or numbers of thousands of digits, too
        raise BertsmithError(f"{name}: not valid JSON ({one_line(error)})") from None
    if not isinstance(content, kind):
        found = type(content).__name__
        raise BertsmithError(f"{name}: expected a JSON {kind.__name__}, not {found}")
    return content


def read_table(path: Path, limit: int = 4 * LARGEST_JSON) -> dict[str, Any] | None:
    """The JSON object in a file of ours; None if the file is missing or damaged."""
    try:
        return parse_table(read_whole(path, limit))
    except (BertsmithError, ValueError):  # of names that no file can have
        return None


def parse_table(text: bytes) -> dict[str, Any] | None:
    """A JSON object, such as a line of a log; None if it is damaged or something else."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _distinct(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """An object, unless a key occurs twice: readers would not agree on which counts."""
    listed = list(pairs)
    content = dict(listed)
    if len(content) != len(listed):
        seen: set[str] = set()
        for key, _ in listed:
            if key in seen:
                raise ValueError(f"the key {key[:80]!r} occurs twice in one object")
            seen.add(key)
    return content
