"""The single writer of an index: its lock, and the recovery after a killed writer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bertsmith.errors import BertsmithError
from bertsmith.files import locked, sweep, write_json, writing
from bertsmith.search.database import (
    FORMAT,
    POINTER,
    is_index,
    is_leftover,
    is_state,
    pointed,
    remove_folder,
)
from bertsmith.search.store import Store


@contextmanager
def writer(root: Path) -> Iterator[None]:
    """Hold the writer's lock of an index; remove leftovers of killed writers."""
    with writing(root):
        if root.exists() and not root.is_dir():
            raise BertsmithError(f"{root}: a file of this name exists; name a folder")
        strange = root.is_dir() and any(entry.name != ".lock" for entry in root.iterdir())
    if strange and not is_index(root) and not is_leftover(root):
        raise BertsmithError(f"{root}: holds other files; name a new folder for the index")
    with locked(root):
        with writing(root):
            sweep(root)
            kept = pointed(root) if is_index(root) else _found_again(root)
            for entry in root.iterdir():
                if entry.is_dir() and entry.name != kept and is_state(entry):
                    remove_folder(entry)
        yield


def _found_again(root: Path) -> str:
    """Restore the missing pointer to the only state in a folder; "" if there is none."""
    names = [entry.name for entry in root.iterdir() if is_state(entry)]
    if len(names) != 1:
        return ""
    write_json(root / POINTER, {"format": FORMAT, "current": names[0]})
    try:
        Store.open(root).close()
    except BertsmithError:  # a first run was killed before it wrote anything
        (root / POINTER).unlink()
        return ""
    return names[0]
