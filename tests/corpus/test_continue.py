"""Stopped at any moment, it goes on, and what comes out is the same byte for byte."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bertsmith.corpus import Corpus, prepare
from bertsmith.corpus.pieces import Piece
from bertsmith.corpus.worker import WATCH
from bertsmith.corpus.workshop import Outcome, Workshop
from bertsmith.errors import BertsmithError
from bertsmith.tokenizer import Tokenizer
from corpus.texts import documents, files, write
from sampled import sampled
from tasks.words import tokenizer

OPTIONS = {"held_out": 0.1, "shard_tokens": 5000, "duplicates": "near", "piece_bytes": 8000}
CALL = """
import json, sys
from bertsmith.corpus import prepare
source, words, out, workers, options = sys.argv[1:]
prepare([source], words, out, workers=int(workers), **json.loads(options))
"""


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory, words: Tokenizer) -> tuple[Path, Path, Path]:
    """A source, a tokenizer's folder, and the corpus that was made of them in one go."""
    folder = tmp_path_factory.mktemp("case")
    source = write(folder / "a.txt.xz", documents(600))
    words.save(folder / "words")
    prepare([source], folder / "words", folder / "whole", workers=0, **OPTIONS)
    return source, folder / "words", folder / "whole"


def start(case: tuple[Path, Path, Path], out: Path, workers: int) -> subprocess.Popen[bytes]:
    source, words, _ = case
    return subprocess.Popen(
        [sys.executable, "-c", CALL, source, words, out, str(workers), json.dumps(OPTIONS)],
        stderr=subprocess.PIPE,
    )


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task")
    return [int(c) for task in tasks.iterdir() for c in (task / "children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks into /proc")
@pytest.mark.parametrize("workers", sampled([0, 2], {0}))
def test_killed_again_and_again(
    case: tuple[Path, Path, Path], workers: int, tmp_path: Path
) -> None:
    """SIGKILL, each time a little later, until it gets through."""
    rng = random.Random(workers)
    out = tmp_path / "out"
    kills, wait = 0, 0.25
    while True:
        process = start(case, out, workers)
        try:
            process.wait(wait)
            break
        except subprocess.TimeoutExpired:
            team = children(process.pid)
            process.kill()
            process.wait()
            kills += 1
            assert all_gone(team), "workers end with their parent"
        wait *= rng.uniform(1.1, 1.5)  # it gets through on slow machines too
    assert process.returncode == 0, process.stderr and process.stderr.read()
    assert kills >= 2
    assert files(out) == files(case[2])


def all_gone(pids: list[int], within: float = 10.0) -> bool:
    end = time.monotonic() + within
    while time.monotonic() < end:
        alive = [pid for pid in pids if Path(f"/proc/{pid}/stat").exists() and not zombie(pid)]
        if not alive:
            return True
        time.sleep(0.05)
    return False


def zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize("step", range(0, 60, 7))
def test_stopped_at_every_kind_of_write(
    step: int, case: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The n-th file that should get its name does not: as if power had gone just then."""
    source, words, whole = case
    real, left = Path.replace, step

    def replace(self: Path, target: Path) -> Path:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        prepare([source], words, tmp_path / "out", workers=0, **OPTIONS)
    monkeypatch.undo()
    assert not (tmp_path / "out" / "manifest.json").exists()
    prepare([source], words, tmp_path / "out", workers=0, **OPTIONS)
    assert files(tmp_path / "out") == files(whole)


def test_finished_pieces_are_not_done_again(
    case: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, words, whole = case
    done: list[int] = []
    real = Workshop.process

    def process(self: Workshop, piece: Piece) -> Outcome:
        if len(done) == 5:
            raise KeyboardInterrupt
        done.append(piece.number)
        return real(self, piece)

    monkeypatch.setattr(Workshop, "process", process)
    for _ in range(40):
        try:
            prepare([source], words, tmp_path / "out", workers=0, **OPTIONS)
            break
        except KeyboardInterrupt:
            numbers = sorted(int(p.stem) for p in (tmp_path / "out" / "work").glob("*.npz"))
            assert numbers == list(range(len(numbers)))
            done.clear()
    assert 0 < len(done) <= 5, "the last call did only what was left"
    assert files(tmp_path / "out") == files(whole)


def test_a_finished_corpus_is_left_alone(case: tuple[Path, Path, Path]) -> None:
    source, words, whole = case
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    made = prepare([source], words, whole, workers=0, **OPTIONS)
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before
    assert made.splits["train"].tokens == Corpus.open(whole).tokens


def test_a_damaged_piece_is_made_anew(
    case: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, words, whole = case
    monkeypatch.setattr(sys.modules["bertsmith.corpus.prepare"], "merge", interrupt)
    with pytest.raises(KeyboardInterrupt):
        prepare([source], words, tmp_path / "out", workers=0, **OPTIONS)
    monkeypatch.undo()
    piece = tmp_path / "out" / "work" / "00000003.npz"
    data = bytearray(piece.read_bytes())
    data[len(data) // 2] ^= 4
    piece.write_bytes(data)
    with pytest.raises(BertsmithError, match=r"00000003\.npz was damaged"):
        prepare([source], words, tmp_path / "out", workers=0, **OPTIONS)
    prepare([source], words, tmp_path / "out", workers=0, **OPTIONS)
    assert files(tmp_path / "out") == files(whole)


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"min_length": 5}, "min_length 1, not 5"),
        ({"seed": 3}, "seed 0, not 3"),
        ({"duplicates": None}, "duplicates near, not None"),
    ],
)
def test_other_settings(
    case: tuple[Path, Path, Path], change: dict[str, object], message: str
) -> None:
    source, words, whole = case
    with pytest.raises(BertsmithError, match=message) as caught:
        prepare([source], words, whole, workers=0, **{**OPTIONS, **change})
    assert str(whole) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_files_or_tokenizer(case: tuple[Path, Path, Path], tmp_path: Path) -> None:
    _, words, _ = case
    source = write(tmp_path / "a.txt", documents(5))
    other = write(tmp_path / "b.txt", documents(6))
    out = tmp_path / "out"
    prepare([source], words, out, workers=0)
    for given, by, message in [
        ([other], words, "other input files"),
        ([source, other], words, "other input files"),
        ([source], tokenizer("roberta"), "another tokenizer"),
    ]:
        with pytest.raises(BertsmithError, match=message):
            prepare(given, by, out, workers=0)
    os.utime(source, ns=(1, 1))
    with pytest.raises(BertsmithError, match=r"another content of .*a\.txt"):
        prepare([source], words, out, workers=0)


def test_two_at_once(case: tuple[Path, Path, Path], tmp_path: Path) -> None:
    source, words, whole = case
    process = start(case, tmp_path / "out", 1)
    try:
        while not (tmp_path / "out" / "work").exists() and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(BertsmithError, match="another bertsmith process is working in it"):
            prepare([source], words, tmp_path / "out", workers=0, **OPTIONS)
    finally:
        process.send_signal(signal.SIGCONT)
    assert process.wait() == 0
    assert files(tmp_path / "out") == files(whole)


def test_a_worker_that_dies(case: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """Killed by the system for want of memory, say: one line, and the same call goes on."""
    process = start(case, tmp_path / "out", 1)
    team: list[int] = []
    while not team and process.poll() is None:
        team = children(process.pid)
    os.kill(team[0], signal.SIGKILL)
    _, said = process.communicate()
    assert process.returncode == 1
    assert b"BertsmithError: a worker process died (status -9)" in said
    process = start(case, tmp_path / "out", 1)
    assert process.wait() == 0
    assert files(tmp_path / "out") == files(case[2])


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks into /proc")
def test_workers_end_with_their_parent_whatever_they_do() -> None:
    """Not only when they read their next message: a piece may take long."""
    start_busy = f"""
import os, subprocess, sys, time
busy = {WATCH!r} + "time.sleep(600)"
print(subprocess.Popen([sys.executable, "-c", busy, str(os.getpid())]).pid, flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", start_busy], stdout=subprocess.PIPE)
    assert parent.stdout
    worker = int(parent.stdout.readline())
    assert not zombie(worker)
    parent.kill()
    parent.wait()
    try:
        assert all_gone([worker], within=60)
    finally:
        if not all_gone([worker], within=0.01):
            os.kill(worker, signal.SIGKILL)


def test_an_older_version_is_not_continued(case: tuple[Path, Path, Path], tmp_path: Path) -> None:
    source, words, _ = case
    prepare([source], words, tmp_path / "out", workers=0, **OPTIONS)
    plan = json.loads((tmp_path / "out" / "plan.json").read_text())
    del plan["rules"]
    (tmp_path / "out" / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(BertsmithError, match="another version of bertsmith"):
        prepare([source], words, tmp_path / "out", workers=0, **OPTIONS)


def test_pieces_are_stored_as_plain_arrays(case: tuple[Path, Path, Path]) -> None:
    tokens = np.load(case[2] / "train" / "tokens-00000.npy", allow_pickle=False)
    assert tokens.dtype == np.uint16
    assert len(tokens) == 5000
