"""Turning what the `tokenizers` library throws into one line that speaks to a person."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from bertsmith.errors import BertsmithError


@contextmanager
def guarded(what: str) -> Iterator[None]:
    """Turn any failure inside, Rust panics too, into a BertsmithError that starts with `what`."""
    try:
        yield
    except (BertsmithError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # PanicException derives from BaseException alone
        raise BertsmithError(f"{what}: {one_line(error)}") from error


@contextmanager
def hushed() -> Iterator[None]:
    """Keep the report that a Rust panic prints off the terminal; the error itself still comes."""
    try:
        saved = os.dup(2)
    except OSError:  # this process has no stderr to keep clean
        yield
        return
    try:
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - a device, not a path of ours
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def one_line(error: BaseException) -> str:
    """Return an error's message on one line of readable length."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]}…"
