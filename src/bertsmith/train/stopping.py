"""Signals that end a run: the state is saved first."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from bertsmith.train.distributed import Ranks

Asks = Callable[[], bool]
GRACE = 10  # seconds that several ranks have to end a step together after a signal


class Stop(BaseException):
    """Raised by a signal within a step: its gradients are lost, the weights unchanged."""


class StopSignal:
    """Handles SIGTERM and Ctrl-C; true once one has arrived. A second Ctrl-C stops at once.

    On a CPU, where a step may take minutes, the current step is aborted: at once by a single
    process, by several after a grace period in which they can finish it. Shards of a model (FSDP)
    cannot be saved by one rank, so there the step is completed. A single process also aborts an
    evaluation. `computing` and `evaluating` tell where the run is.
    """

    def __init__(self, ranks: Ranks, sharded: bool, computing: Asks, evaluating: Asks) -> None:
        self.number = 0  # of the signal
        self.alone = ranks.count == 1
        self.may_abort_steps = ranks.device.type == "cpu" and not sharded
        self.computing, self.evaluating = computing, evaluating

    def __bool__(self) -> bool:
        return self.number != 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Context manager: handle the signals."""
        alarm = getattr(signal, "SIGALRM", None)  # which Windows has not

        def give_up(number: int, frame: FrameType | None) -> None:
            if (self.may_abort_steps and self.computing()) or (self.alone and self.evaluating()):
                raise Stop

        def stop(number: int, frame: FrameType | None) -> None:
            if self.number and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.number = number
            if self.alone:
                give_up(number, frame)
            elif self.may_abort_steps and alarm is not None:
                signal.alarm(GRACE)

        handlers: dict[int, Any] = {signal.SIGTERM: stop, signal.SIGINT: stop}
        handlers |= {} if alarm is None else {alarm: give_up}
        before: dict[int, Any] = {}
        try:
            for number, handler in handlers.items():
                before[number] = signal.signal(number, handler)
        except ValueError:  # signal handlers can only be set in the main thread
            pass
        try:
            yield
        finally:
            if alarm in before:
                signal.alarm(0)
            for number, handler in before.items():
                signal.signal(number, handler)
