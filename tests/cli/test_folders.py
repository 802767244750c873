"""`embed` and `predict` over a folder of parquet files: by files, resumable, with workers."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertsmith import BertsmithError
from bertsmith.bulk import RECORD, FileWork, run_folder
from cli.conftest import Run
from cli.test_predict import tuned
from processes import python

EMBEDDER = "bertsmith-embed"
NAMES = ("a.parquet", "b.parquet", "inner/c.parquet")


def write(path: Path, rows: int, seed: int = 0) -> Path:
    """A parquet file of texts of different lengths."""
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [f"row {n} of file {seed} " + "river " * (n % 7) for n in range(rows)]
    pq.write_table(pa.table({"id": list(range(rows)), "text": texts}), path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed, name in enumerate(NAMES):
        write(tmp_path / "texts" / name, 5 + seed, seed)
    return tmp_path / "texts"


def contents(folder: Path) -> dict[str, Any]:
    return {
        path.relative_to(folder).as_posix(): pq.read_table(path).to_pydict()
        for path in sorted(folder.rglob("*.parquet"))
    }


def stamps(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.parquet")}


def damaged(folder: Path) -> Path:
    path = folder / "bad.parquet"
    path.write_bytes(b"PAR1, but nothing else")
    return path


@pytest.mark.parametrize("workers", ["0", "2"])
def test_vectors_are_those_of_each_file_alone(
    run: Run, folder: Path, tmp_path: Path, workers: str
) -> None:
    out = tmp_path / "vectors"
    done = run("embed", EMBEDDER, "--file", folder, "--out", out, "--workers", workers, "--json")
    summary = {"out": str(out), "files": 3, "skipped": 0, "rows": 18, "failed": {}}
    assert (done.status, json.loads(done.out)) == (0, summary)
    for name in NAMES:
        alone = tmp_path / "alone.npy"
        run("embed", EMBEDDER, "--file", folder / name, "--out", alone)
        found = pq.read_table(out / name).to_pydict()
        assert np.array_equal(np.array(found["vector"], np.float32), np.load(alone))
        assert found["id"] == list(range(len(found["id"])))
    before = stamps(out)
    done = run("embed", EMBEDDER, "--file", folder, "--out", out)
    assert done.out == f"0 rows in 0 files written to {out}; 3 were there before\n"
    assert stamps(out) == before


@pytest.mark.slow
def test_a_damaged_file_is_named_and_the_others_are_done(
    shell: Run, folder: Path, tmp_path: Path
) -> None:
    bad, out = damaged(folder), tmp_path / "vectors"
    done = shell("embed", EMBEDDER, "--file", folder, "--out", out)
    assert done.status == 2
    assert "1 of 4 files failed" in done.err
    assert f"{bad}: not a parquet file" in done.err
    assert list(contents(out)) == list(NAMES)
    before = stamps(out)
    write(bad, 2)
    done = shell("embed", EMBEDDER, "--file", folder, "--out", out)
    assert done.status == 0
    assert {path: stamp for path, stamp in stamps(out).items() if path in before} == before
    assert len(contents(out)["bad.parquet"]["vector"]) == 2


def test_a_killed_run_continues(folder: Path, tmp_path: Path) -> None:
    """After the first file, in the middle of the second: half a file does not count."""
    write(folder / "b.parquet", 60_000)
    out = tmp_path / "vectors"
    words = ["embed", EMBEDDER, "--file", folder, "--out", out, "--workers", "1"]
    process = python("-m", "bertsmith.cli", *words)
    end = time.monotonic() + 120
    while not any(out.glob(".b.parquet*.part")) and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert list(contents(out)) == ["a.parquet"]
    before = stamps(out)
    write(folder / "b.parquet", 9)
    done = run_folder("embed", EMBEDDER, folder, out, long="window", **OPTIONS)
    assert (done.files, done.skipped, done.rows) == (2, 1, 16)
    assert stamps(out).items() >= before.items()
    assert [len(one["vector"]) for one in contents(out).values()] == [5, 9, 7]


# What the command line records for a run without options.
OPTIONS: dict[str, Any] = {
    **dict.fromkeys(("pooling", "normalise", "prompt", "prompt_name")),
    "columns": {},
}


def test_predictions(run: Run, folder: Path, model: Path, tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"text": f"a river {n}", "label": "ab"[n % 2]} for n in range(8)
    ]
    classifier = tuned(tmp_path, model, rows)
    out = tmp_path / "predicted"
    done = run("predict", classifier, folder, "--out", out, "--json")
    assert json.loads(done.out)["rows"] == 18
    run("predict", classifier, folder / "a.parquet", "--out", tmp_path / "alone.parquet")
    assert contents(out)["a.parquet"] == pq.read_table(tmp_path / "alone.parquet").to_pydict()
    done = run("predict", classifier, folder / "a.parquet", "--out", tmp_path / "b.csv", "--json")
    assert json.loads(done.out) == {"out": str(tmp_path / "b.csv"), "rows": 5}


def test_mistakes(run: Run, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "vectors"

    def embed(message: str, *words: Any, source: Path = folder, place: Path = out) -> None:
        with pytest.raises(BertsmithError, match=message):
            run("embed", EMBEDDER, "--file", source, "--out", place, *words)

    embed("lies in the folder that is read", place=folder / "out")
    embed("workers must be from 0 to", "--workers", "-1")
    embed("unknown engine 'spark'", "--engine", "spark")
    (tmp_path / "empty").mkdir()
    embed("contains no .parquet file", source=tmp_path / "empty")
    embed("need a folder of .parquet files", "--workers", "2", place=tmp_path / "v.npy")
    run("embed", EMBEDDER, "--file", folder, "--out", out)
    embed("was written with another options", "--prompt", "query: ")
    (out / RECORD).write_text("{")
    embed(RECORD)
    (out / RECORD).unlink()
    embed("was not written by this command")
    with pytest.raises(BertsmithError, match="unknown verb 'search'"):
        run_folder("search", EMBEDDER, folder, out)
    with pytest.raises(BertsmithError, match="no such folder"):
        run_folder("embed", EMBEDDER, tmp_path / "none", tmp_path / "other")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_model_that_cannot_be_loaded_is_one_line(
    folder: Path, tmp_path: Path, workers: int
) -> None:
    (tmp_path / "nothing").mkdir()
    with pytest.raises(BertsmithError, match="nothing"):
        run_folder("embed", tmp_path / "nothing", folder, tmp_path / "out", workers=workers)


def test_workers_get_a_gpu_or_cores() -> None:
    loading: dict[str, Any] = {"device": None, "dtype": "float32", "family": None}
    work = FileWork("embed", EMBEDDER, loading, {}, {}, threads=3)
    assert work.environment(5) == {"OMP_NUM_THREADS": "3"}
    assert work.needs({"CPU": 64.0}) == {"num_cpus": 4}
    assert work.needs({"CPU": 64.0, "GPU": 8.0}) == {"num_cpus": 1, "num_gpus": 1}
    gpus = FileWork("embed", EMBEDDER, {**loading, "device": "cpu"}, {}, {}, gpus=("2", "5"))
    assert [gpus.environment(n)["CUDA_VISIBLE_DEVICES"] for n in range(3)] == ["2", "5", "2"]
    assert gpus.needs({"CPU": 2.0, "GPU": 8.0}) == {"num_cpus": 2}


@pytest.fixture
def cluster() -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="ray is an extra")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_ray_gives_the_same_files(folder: Path, tmp_path: Path) -> None:
    bad, texts = damaged(folder), {"columns": {"text": "text"}}
    show: Callable[..., None] = lambda *_: None  # noqa: E731
    here = run_folder("embed", EMBEDDER, folder, tmp_path / "here", workers=0, **texts)
    there = run_folder(
        "embed", EMBEDDER, folder, tmp_path / "ray", engine="ray", progress=show, **texts
    )
    assert contents(tmp_path / "ray") == contents(tmp_path / "here")
    assert (there.files, list(there.failed)) == (here.files, list(here.failed))
    assert list(there.failed) == [str(bad)]
    with pytest.raises(BertsmithError, match="1 of 4 files failed"):
        there.check()
