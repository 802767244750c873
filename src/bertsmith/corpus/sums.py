"""Check files of a corpus against its manifest when they are opened, and when they change."""

from __future__ import annotations

import os
from pathlib import Path
from queue import Queue
from threading import Lock, Thread

from bertsmith.corpus.manifest import Manifest, complaint
from bertsmith.errors import BertsmithError
from bertsmith.files import reading

AT_ONCE = 256 << 20  # bytes whose sums are compared before they are used


class Sums:
    """Compares the SHA-256 sum of each file once, when it is first used.

    A run reads all shards in its first steps, and summing a large corpus takes minutes. So small
    corpora are compared before they are used; beyond `AT_ONCE` bytes, a thread compares files while
    they are in use, and damage ends the next read. Of several ranks on one machine, the first
    compares. A file that changes later is compared again, at once.
    """

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        self.directory, self.files = directory, manifest.files
        self.compares = os.environ.get("LOCAL_RANK", "0") == "0"
        self.left, self.lock = AT_ONCE, Lock()
        self.known: dict[str, tuple[int, int]] = {}  # inode and time of change
        self.queue: Queue[str] = Queue()
        self.thread: Thread | None = None
        self.fault: str | None = None

    def demand(self, name: str) -> None:
        """Raise an error if this file, or one compared since the last call, is damaged."""
        path, stored = self.directory / name, self.files[name]
        with reading(path):
            status = path.stat()
        if status.st_size != stored.bytes:  # reading beyond its end would crash the process
            raise BertsmithError(str(complaint(path, stored, sums=False)))
        now = (status.st_ino, status.st_mtime_ns)
        with self.lock:
            before, self.known[name] = self.known.get(name), now
            if before != now and self.compares:
                if before is not None or stored.bytes <= self.left:
                    self.left -= stored.bytes
                    self._compare(name)
                else:
                    self._order(name)
        if self.fault:
            raise BertsmithError(self.fault)

    def finish(self) -> None:
        """Wait until every file that was opened is compared; raise an error if one is damaged."""
        self.queue.join()
        if self.fault:
            raise BertsmithError(self.fault)

    def _order(self, name: str) -> None:
        self.queue.put(name)
        if self.thread is None:
            self.thread = Thread(target=self._work, name="sums", daemon=True)
            self.thread.start()

    def _work(self) -> None:
        while True:
            self._compare(self.queue.get())
            self.queue.task_done()

    def _compare(self, name: str) -> None:
        found = complaint(self.directory / name, self.files[name], sums=True)
        self.fault = self.fault or found
