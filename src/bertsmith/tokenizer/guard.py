"""Exceptions of the `tokenizers` library as one-line errors."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock

from bertsmith.errors import BertsmithError
from bertsmith.files import cause


@contextmanager
def guarded(what: str) -> Iterator[None]:
    """Turn any failure inside, Rust panics too, into a BertsmithError that starts with `what`."""
    try:
        yield
    except (BertsmithError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # PanicException derives from BaseException alone
        raise BertsmithError(f"{what}: {cause(error)}") from error


class _Stderr:
    """The stderr of this process, silent while any thread wants it to be."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.users = 0
        self.saved: int | None = None

    def silence(self) -> None:
        with self.lock:
            if self.users == 0:
                with suppress(OSError):  # this process has no stderr to keep clean
                    self.saved = os.dup(2)
                    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - a device, not a path
                        os.dup2(nowhere.fileno(), 2)
            self.users += 1

    def restore(self) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0 and self.saved is not None:
                os.dup2(self.saved, 2)
                os.close(self.saved)
                self.saved = None


STDERR = _Stderr()  # a process has one, so it is shared


@contextmanager
def hushed() -> Iterator[None]:
    """Keep the report that a Rust panic prints off the terminal; the error itself still comes."""
    STDERR.silence()
    try:
        yield
    finally:
        STDERR.restore()
