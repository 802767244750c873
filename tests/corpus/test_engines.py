"""A Ray cluster that others use too: only workers that run are given work."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bertsmith.corpus import prepare
from bertsmith.errors import BertsmithError
from bertsmith.tokenizer import Tokenizer
from corpus.texts import documents, files, write


class FakeRay:
    """As much of Ray as the engine uses, on a cluster of 64 CPUs of which some are free."""

    def __init__(self, free: int) -> None:
        self.free, self.actors, self.options = free, 0, {}
        self.exceptions = SimpleNamespace(RayActorError=RuntimeError)

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 64.0}

    def available_resources(self) -> dict[str, float]:
        return {"CPU": float(self.free)} if self.free else {}

    def remote(self, **options: Any) -> Any:
        self.options = options

        def decorate(kind: Any) -> Any:
            return SimpleNamespace(remote=lambda job: self._actor(kind, job))

        return decorate

    def _actor(self, kind: Any, job: Any) -> Any:
        running = self.actors < self.free
        self.actors += 1
        made = kind(job) if running else None

        def method(name: str) -> Any:
            def call(*arguments: Any) -> Any:
                return Reference(getattr(made, name), arguments) if running else Reference()

            return SimpleNamespace(remote=call)

        return SimpleNamespace(ready=method("ready"), do=method("do"))

    def wait(self, waiting: list[Any], num_returns: int, timeout: float | None = None) -> Any:
        done = [one for one in waiting if one.call]
        assert done or timeout, "this would wait for ever"
        return done[:1], []

    def get(self, done: Any) -> Any:
        return done.call(*done.arguments)


class Reference:
    def __init__(self, call: Any = None, arguments: Any = ()) -> None:
        self.call, self.arguments = call, arguments


@pytest.mark.parametrize("workers", [None, 5])
def test_work_goes_to_the_workers_that_run(
    workers: int | None, words: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = FakeRay(free=2)
    monkeypatch.setitem(sys.modules, "ray", ray)
    source = write(tmp_path / "a.txt", documents(60))
    options = {"held_out": 0.1, "piece_bytes": 2000}
    prepare([source], words, tmp_path / "ray", engine="ray", workers=workers, **options)
    prepare([source], words, tmp_path / "local", workers=0, **options)
    assert files(tmp_path / "ray") == files(tmp_path / "local")
    assert ray.actors == (workers or 2)
    assert ray.options["max_restarts"] == ray.options["max_task_retries"] > 0


def test_a_cluster_without_a_free_cpu(
    words: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", FakeRay(free=0))
    source = write(tmp_path / "a.txt", documents(5))
    with pytest.raises(BertsmithError, match="no free CPU for 60 seconds"):
        prepare([source], words, tmp_path / "out", engine="ray")
