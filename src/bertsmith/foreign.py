"""JSON from foreign files: bounded in size, type-checked, without repeated keys."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from bertsmith.errors import BertsmithError
from bertsmith.files import one_line, read_whole

LARGEST_JSON = 16 << 20  # bytes; a config with 100,000 labels has 5 million


def read_json(path: Path, kind: type = dict, limit: int = LARGEST_JSON) -> Any:
    """The JSON object (or list) in a file; anything else is a one-line error."""
    return parse_json(read_whole(path, limit), path, kind)


def parse_json(data: bytes | str, where: object, kind: type = dict, constant: Any = None) -> Any:
    """JSON of this kind (`object`: any), from `where`; `constant` reads NaN and infinities."""
    try:
        content = json.loads(data, object_pairs_hook=_distinct, parse_constant=constant)
    except json.JSONDecodeError as error:
        line = f", line {error.lineno}" if error.lineno > 1 else ""
        raise BertsmithError(f"{where}{line}: not valid JSON ({error.msg})") from None
    except RecursionError:
        raise BertsmithError(f"{where}: not valid JSON (nested too deeply)") from None
    except ValueError as error:  # not UTF-8, or numbers of thousands of digits, too
        raise BertsmithError(f"{where}: not valid JSON ({one_line(error)})") from None
    if not isinstance(content, kind):
        found = type(content).__name__
        raise BertsmithError(f"{where}: expected a JSON {kind.__name__}, not {found}")
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


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, unless a key occurs twice: readers would not agree on which counts."""
    content = dict(pairs)
    if len(content) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {twice[:60]!r} occurs twice in one object")
    return content
