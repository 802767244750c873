"""`verify-resume`: check that killed and resumed runs equal an uninterrupted one."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bertsmith.errors import BertsmithError
from bertsmith.files import digest
from bertsmith.train.recipe import Recipe
from bertsmith.train.state import Checkpoints

Process = subprocess.Popen[bytes]


def verify_resume(
    recipe: Recipe,
    *,
    steps: int = 40,
    kills: int = 3,
    ranks: int = 1,
    folder: str | Path | None = None,
    seed: int = 0,
    say: Any = lambda message: None,
) -> dict[str, Any]:
    """Run a recipe uninterrupted, and killed at random moments: all bytes must be equal."""
    if recipe.train.minutes:
        raise BertsmithError("a time budget differs from run to run: set train.steps")
    warmup = min(recipe.train.warmup, steps / 2)
    train = recipe.train.model_copy(update={"steps": steps, "warmup": warmup})
    checkpoint = recipe.checkpoint.model_copy(update={"every": max(1, steps // 8)})
    short = recipe.model_copy(update={"train": train, "checkpoint": checkpoint})
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(folder or scratch)
        base.mkdir(parents=True, exist_ok=True)
        file = base / "recipe.toml"
        file.write_text(short.toml(), "utf-8")
        began = time.monotonic()
        _finish(file, base / "peace", ranks)
        duration = time.monotonic() - began
        say(f"uninterrupted: {duration:.1f} s")
        draw = random.Random(seed)
        for number in range(kills):
            resume = (base / "killed" / "recipe.toml").exists()
            process = _start(file, base / "killed", ranks, resume)
            log = base / "killed" / "timing.jsonl"
            _wait(process, log, draw, duration, anywhere=number % 2 == 0)
            if process.poll() is None:
                with process:
                    os.killpg(process.pid, signal.SIGKILL)  # its children, too
                say(f"killed; its last checkpoint is of step {_step(base / 'killed')}")
            elif process.returncode:
                raise BertsmithError(f"the run ended with status {process.returncode}")
        _finish(file, base / "killed", ranks, (base / "killed" / "recipe.toml").exists())
        sums = [_sums(base / name) for name in ("peace", "killed")]
    return {"equal": sums[0] == sums[1], "steps": steps, "kills": kills, "sums": sums}


def _wait(
    process: Process, log: Path, draw: random.Random, duration: float, anywhere: bool
) -> None:
    """Wait until a random moment, within the run's time or soon after its next logged step."""
    before = log.stat().st_mtime_ns if log.exists() else 0
    while not anywhere and process.poll() is None:
        if log.exists() and log.stat().st_mtime_ns != before:
            break
        time.sleep(0.01)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=draw.uniform(0, duration if anywhere else duration / 10))


def _start(recipe: Path, run: Path, ranks: int, resume: bool) -> Process:
    command = [sys.executable, "-m", "bertsmith.cli", "pretrain", str(recipe), "--out", str(run)]
    if ranks > 1:
        launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command[1:3] = [*launch, "-m", "bertsmith.cli"]
    command += ["--view", "none", *(["--resume"] if resume else [])]
    pipes: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, start_new_session=True, **pipes)


def _finish(recipe: Path, run: Path, ranks: int, resume: bool = False) -> None:
    process = _start(recipe, run, ranks, resume)
    _, error = process.communicate()
    if process.returncode:
        last = error.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        why = last[0].removeprefix("bertsmith: ")
        raise BertsmithError(f"the run ended with status {process.returncode}: {why}")


def _step(run: Path) -> int:
    steps = Checkpoints(run / "checkpoints").steps()
    return steps[-1] if steps else 0


def _sums(run: Path) -> dict[str, str]:
    last = Checkpoints(run / "checkpoints").path(_step(run))
    files = [run / "log.jsonl", run / "model" / "model.safetensors", *last.glob("*.safetensors")]
    return {str(path.relative_to(run)): digest(path) for path in sorted(files)}
