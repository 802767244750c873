"""Checkpoints written by a thread, while training goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from threading import Event, Thread
from typing import Any

import torch

from bertsmith.errors import BertsmithError
from bertsmith.files import write_json
from bertsmith.train.distributed import Ranks
from bertsmith.train.state import Checkpoints, TensorState

POLL = 0.05  # seconds between two looks for the shards of other ranks


class BackgroundWriter:
    """Writes the checkpoints of a run, one at a time.

    `start` copies the tensors and returns; a thread of each rank writes its shards, and the first
    rank's thread completes the checkpoint when all shards are there. So it is whole or not there,
    whenever the processes end. An error is raised by the next `settle`.
    """

    def __init__(self, checkpoints: Checkpoints, state: TensorState, ranks: Ranks) -> None:
        self.checkpoints, self.state, self.ranks = checkpoints, state, ranks
        self.thread: Thread | None = None
        self.fault: Exception | None = None
        self.given_up = Event()  # another rank's shards will not come
        self.took = 0.0  # seconds that the last checkpoint took to write

    def start(self, step: int, numbers: Mapping[str, Any]) -> None:
        """Copy the tensors as they are now, and write them in the background; on all ranks."""
        self.settle()
        self.ranks.run_on_first(lambda: self.checkpoints.begin(step))
        parts = self.state.copied(self.ranks)
        device, copied = self.ranks.device, None
        if device.type == "cuda":
            copied = torch.cuda.current_stream(device).record_event()

        def write() -> None:
            began = time.monotonic()
            try:
                if copied is not None:
                    copied.synchronize()
                self._write(step, parts, numbers)
            except Exception as error:  # noqa: BLE001 - the main thread raises it
                self.fault = error
            self.took = time.monotonic() - began

        if parts:
            self.thread = Thread(target=write, name="checkpoint", daemon=True)
            self.thread.start()

    def settle(self) -> None:
        """Wait until the last checkpoint is written; an error of any rank is raised on all."""
        faults: list[str] = []
        if self.state.shards > 1:
            own = None if self.ranks.first else self._joined()
            faults = [fault for fault in self.ranks.collect(own and str(own)) if fault]

        def end() -> None:
            if faults:
                self.given_up.set()
            fault = self._joined()
            if faults:
                raise BertsmithError(faults[0])
            if fault is not None:
                raise fault

        self.ranks.run_on_first(end)

    def save_alone(self, step: int, numbers: Mapping[str, Any]) -> None:
        """Write a checkpoint at once, without the other ranks."""
        self._joined()
        self.checkpoints.save(step, self.state.copied(self.ranks), numbers)

    def _joined(self) -> Exception | None:
        """Wait for the own thread; returns its error."""
        if self.thread is not None:
            self.thread.join()
            self.thread = None
        fault, self.fault = self.fault, None
        return fault

    def _write(self, step: int, parts: Any, numbers: Mapping[str, Any]) -> None:
        sums = self.checkpoints.write(step, parts)
        if not self.ranks.first:
            write_json(self.checkpoints.listed(step, self.ranks.rank), sums)
            return
        for rank in range(1, self.state.shards):
            listed = self.checkpoints.listed(step, rank)
            while not listed.exists():
                if self.given_up.wait(POLL):
                    raise BertsmithError(f"{listed}: not written by its rank")
            sums |= json.loads(listed.read_text("utf-8"))
            listed.unlink()
        self.checkpoints.commit(step, sums, numbers)

    def __enter__(self) -> BackgroundWriter:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Wait for the own thread: nothing is written once the run is left."""
        if error is not None:
            self.given_up.set()
        self._joined()
