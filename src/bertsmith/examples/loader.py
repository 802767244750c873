"""Batches made ahead of time, by threads, in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from bertsmith.examples.example import Example, Examples, StepPlan


class Wanted(NamedTuple):
    """What a step asks for."""

    examples: Examples
    tokens: int  # of all ranks together
    most: int  # of one part
    fill: int = 1


class Loaded(NamedTuple):
    """A step's own parts; `idle` ones only keep this rank in step with the others."""

    plan: StepPlan
    parts: list[Example]
    idle: list[bool]


class Loader:
    """Steps from a position on, for one of several ranks.

    Part p of a step belongs to rank p modulo their number, so any number of ranks sees the
    same steps. Where parts run out, a rank gets its step's first part again, marked idle.
    """

    def __init__(
        self,
        wanted: Callable[[int], Wanted | None],
        *,
        step: int = 0,
        position: int = 0,
        rank: int = 0,
        ranks: int = 1,
        workers: int = 2,
        ahead: int = 4,
        pin: bool = False,
    ) -> None:
        self.wanted, self.step, self.position = wanted, step, position
        self.rank, self.ranks, self.pin = rank, ranks, pin
        self.ahead = ahead
        self.pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="examples")
        self.queue: deque[tuple[StepPlan, list[Future[Example]], list[bool]]] = deque()

    def __iter__(self) -> Iterator[Loaded]:
        """Yield step after step, while `wanted` asks for them."""
        try:
            while True:
                while len(self.queue) < self.ahead and self._order():
                    pass
                if not self.queue:
                    return
                plan, parts, idle = self.queue.popleft()
                yield Loaded(plan, [part.result() for part in parts], idle)
        finally:
            self.close()

    def close(self) -> None:
        """Stop making batches."""
        self.pool.shutdown(wait=True, cancel_futures=True)

    def _order(self) -> bool:
        """Have the next step made; False where there is none."""
        wanted = self.wanted(self.step)
        if wanted is None:
            return False
        plan = wanted.examples.plan(self.position, tokens=wanted.tokens, most=wanted.most)
        rounds = -(-len(plan.parts) // self.ranks)
        mine = range(self.rank, rounds * self.ranks, self.ranks)
        idle = [number >= len(plan.parts) for number in mine]
        chosen = [plan.parts[0 if number >= len(plan.parts) else number] for number in mine]
        parts = [self.pool.submit(self._make, wanted, part) for part in chosen]
        self.queue.append((plan, parts, idle))
        self.step, self.position = self.step + 1, plan.end
        return True

    def _make(self, wanted: Wanted, part: tuple[int, int]) -> Example:
        made = wanted.examples.make(part, wanted.fill)
        return made.pinned() if self.pin else made
