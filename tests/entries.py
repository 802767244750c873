"""The files of a folder, a full disk, and errors in one line."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bertsmith.errors import BertsmithError

FULL = os.strerror(errno.ENOSPC)


def entries(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, hidden ones too."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing reaches the disk any more."""

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, FULL)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        yield


def refused(call: Callable[[], Any]) -> str:
    """The one line of an error."""
    with pytest.raises(BertsmithError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert "None" not in message
    return message
