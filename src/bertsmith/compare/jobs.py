"""Parts in parallel processes, each started when its inputs are finished."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import connection, parent_process
from typing import Any

from bertsmith.compare.parts import Part
from bertsmith.compare.work import Stopped, Worker

_worker: Worker | None = None  # of a process that this file started


def run_jobs(worker: Worker, parts: list[Part], jobs: int, say: Callable[[str], None]) -> None:
    """Run parts, `jobs` at once; those that need others wait for them."""
    total, done = len(parts), 0

    def finished(part: Part) -> None:
        nonlocal done
        done += 1
        say(f"[{done}/{total}] {described(worker, part)}")

    if jobs == 1 or total == 1:
        for part in parts:
            worker.run(part)
            finished(part)
        return
    pool = ProcessPoolExecutor(
        min(jobs, total or 1),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=(worker,),
    )
    try:
        _schedule(worker, parts, jobs, pool, finished)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)  # interrupted runs save their state


def _schedule(
    worker: Worker,
    parts: list[Part],
    jobs: int,
    pool: ProcessPoolExecutor,
    finished: Callable[[Part], None],
) -> None:
    waiting, running = list(parts), dict[Future[Any], Part]()
    while waiting or running:
        unfinished = {*waiting, *running.values()}
        ready = [one for one in waiting if not unfinished & {*one.needs(worker.spec)}]
        for part in ready[: max(0, jobs - len(running))]:
            waiting.remove(part)
            running[pool.submit(_run, part)] = part
        ended, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in ended:
            part = running.pop(future)
            if future.result() == "stopped":
                raise Stopped
            finished(part)


def _begin(worker: Worker) -> None:
    """Prepare a process that runs parts; it ends with the one that started it."""
    global _worker
    _worker = worker
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent.sentinel,), daemon=True).start()


def _follow(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


def _run(part: Part) -> str:
    assert _worker is not None
    try:
        _worker.run(part)
    except KeyboardInterrupt:
        return "stopped"
    return ""


def described(worker: Worker, part: Part) -> str:
    """A finished part in a line."""
    content = worker.store.read(part) or {"result": {}, "measured": {}}
    result, seconds = content["result"], content["measured"].get("seconds", 0.0)
    text = part.key.replace("/", " ")
    if part.task:
        score = result.get("test", result.get("dev"))
        text += "" if score is None else f": {score:.4f}"
    elif result.get("held_out"):
        losses = result["held_out"][-1]
        terms = [key for key in losses if f"{key}_accuracy" in losses]
        text += ": held-out " + ", ".join(f"{key} {losses[key]:.3f}" for key in terms)
    return f"{text} ({seconds:.0f} s)"
