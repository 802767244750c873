"""`embed` and `predict` over folders of parquet files, on one machine or on a Ray cluster.

A file is the unit of work. Each becomes a file of the same name in the output folder, with the
same rows as the verb writes for this file alone. An output file appears when it is complete, and is
not computed again: the same command continues after an interruption.
"""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertsmith.bert import Bert, load
from bertsmith.corpus.engines import cores, run
from bertsmith.corpus.worker import serve
from bertsmith.data.predictions import open_predictions
from bertsmith.data.vectors import open_vectors
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.files import make_folder, write_json, writing
from bertsmith.foreign import read_json
from bertsmith.tasks.evaluate import state_coverage
from bertsmith.tasks.read import open_data
from bertsmith.tasks.registry import task_of
from bertsmith.tasks.stream import embed_rows, predict_rows

CORES = 4  # of a worker on a CPU: more threads gain little
RECORD = "_bertsmith.json"  # readers of parquet folders skip names that begin with _
LOADING = ("device", "dtype", "family")
READING = ("columns", "header", "encoding", "format", "split")
ELSEWHERE = f"choose another {setting_name('out')}"
File = tuple[str, str]  # the file that is read, and the one that is written
Progress = Callable[..., None]


@dataclass(frozen=True)
class FolderRun:
    """What was done with the files of a folder."""

    out: Path
    files: int  # written now
    skipped: int  # written by an earlier run
    rows: int  # written now
    failed: dict[str, str]  # file → why it could not be processed

    def check(self) -> None:
        """Raise an error if files could not be processed."""
        if self.failed:
            reasons = "; ".join(list(self.failed.values())[:3])
            more = " ..." if len(self.failed) > 3 else ""
            total = self.files + self.skipped + len(self.failed)
            failed = f"{len(self.failed):,} of {total:,} files failed, the others are in {self.out}"
            raise BertsmithError(f"{failed}: {reasons}{more}")


@dataclass(frozen=True)
class FileWork:
    """What workers compute for each file, as plain values."""

    verb: str  # "embed" or "predict"
    model: str
    loading: dict[str, Any]
    options: dict[str, Any]  # of the verb
    reading: dict[str, Any]
    threads: int = 0  # of a worker; 0: as many as torch likes
    gpus: tuple[str, ...] = ()  # of this machine, one for each worker

    @property
    def main(self) -> str:
        """The Python code of a worker process."""
        return "from bertsmith.bulk import main; main()"

    def start(self) -> Callable[[File], bytes]:
        """Load the model; returns what computes a file, and describes the result as JSON."""
        bert = load(self.model, progress=False, **self.loading)
        write = self.embed if self.verb == "embed" else self.predict

        def compute(file: File) -> bytes:
            source, out = map(Path, file)
            try:
                return json.dumps({"rows": write(bert, source, out)}).encode()
            except BertsmithError as error:
                return json.dumps({"error": error.for_everyone()}).encode()

        return compute

    def embed(self, bert: Bert, source: Path, out: Path) -> int:
        """Write the rows of a file with their vectors; return their number."""
        data, count = open_data(source, "text", ledger=bert.ledger, **self.reading), 0
        with open_vectors(out) as writer:
            for portion in embed_rows(bert, data, **self.options):
                writer.write(portion.rows, portion.vectors)
                count += len(portion.rows)
        return count

    def predict(self, bert: Bert, source: Path, out: Path) -> int:
        """Write the rows of a file with their predictions; return their number."""
        options, count = dict(self.options), 0
        task = task_of(bert, options.pop("labels", None))
        if (coverage := options.pop("coverage", None)) is not None:
            state_coverage(bert, coverage)
        reading = {"usual": bert.columns, "ledger": bert.ledger, **self.reading}
        data = open_data(source, task.reading.name, **reading)
        with open_predictions(out, None, bert.ledger, data) as writer:
            for portion in predict_rows(bert, data, task=task, **options):
                writer.write(portion.rows)
                count += len(portion.rows)
        return count

    def packed(self, file: File) -> tuple[dict[str, Any], list[bytes]]:
        """The names of a file as a message."""
        return {"file": file}, []

    def environment(self, number: int) -> dict[str, str]:
        """A GPU of its own, or some of the cores."""
        if self.gpus:
            return {"CUDA_VISIBLE_DEVICES": self.gpus[number % len(self.gpus)]}
        return {"OMP_NUM_THREADS": str(self.threads)} if self.threads else {}

    def needs(self, free: Mapping[str, float]) -> dict[str, float]:
        """A GPU of a Ray cluster that has some, or a group of cores."""
        if free.get("GPU", 0) >= 1 and self.loading.get("device") != "cpu":
            return {"num_cpus": 1, "num_gpus": 1}
        return {"num_cpus": max(1, min(CORES, int(free.get("CPU", 1))))}


def main() -> None:
    """Process files: the process of a worker."""
    serve(lambda job: FileWork(**job), lambda head, _: tuple(head["file"]))


def run_folder(
    verb: str,
    model: str | Path,
    folder: str | Path,
    out: str | Path,
    *,
    engine: str = "local",
    workers: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> FolderRun:
    """Write each .parquet file of a folder, with vectors or predictions, to another folder.

    `verb` is "embed" or "predict". `options` are those of `bertsmith.load` (device, dtype, family),
    of `Bert.embed` or `bertsmith.predict` (pooling, prompt, ...; top, labels), and of
    `bertsmith.tasks.read.open_data` (columns, ...). With the engine "ray", both folders must be on
    storage that all nodes share. Files that cannot be processed are named in the result.
    """
    if verb not in ("embed", "predict"):
        raise BertsmithError(f"unknown verb {verb!r}: embed or predict")
    folder, out = Path(folder), Path(out)
    sources = _sources(folder, out)
    loading = {key: options.pop(key, None) for key in LOADING}
    reading = {key: options.pop(key, None) for key in READING}
    local = Path(model).expanduser()
    name = str(local.resolve()) if local.exists() else str(model)  # workers may be elsewhere
    work = FileWork(verb, name, loading, options, reading)
    _claim(out, work)
    targets = [(source, out / source.relative_to(folder)) for source in sources]
    missing = [(source, target) for source, target in targets if not target.exists()]
    if engine == "local":
        work, workers = _divided(work, workers, len(missing))
    files = rows = 0
    skipped, failed = len(sources) - len(missing), {}

    def prepared() -> Any:
        for source, target in missing:
            with writing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
            yield str(source.resolve()), str(target.resolve())

    with closing(run(prepared(), work, engine, workers)) as results:
        for (source, _), outcome in results if missing else ():
            answer = json.loads(outcome)
            if "error" in answer:
                failed[source] = answer["error"]
            else:
                files, rows = files + 1, rows + answer["rows"]
            if progress is not None:
                done, total = skipped + files + len(failed), len(sources)
                progress("files", done, total, f"{done:,} of {total:,} files, {rows:,} rows")
    return FolderRun(out, files, skipped, rows, failed)


def _sources(folder: Path, out: Path) -> list[Path]:
    if not folder.is_dir():
        raise BertsmithError(f"{folder}: no such folder")
    if out.resolve().is_relative_to(folder.resolve()):
        raise BertsmithError(f"{out}: lies in the folder that is read; {ELSEWHERE}")
    names = (path.relative_to(folder) for path in sorted(folder.rglob("*.parquet")))
    visible = [name for name in names if not any(part[0] in "._" for part in name.parts)]
    if not visible:
        raise BertsmithError(f"{folder}: contains no .parquet file")
    return [folder / name for name in visible]


def _claim(out: Path, work: FileWork) -> None:
    """Record the model and options in the output folder; refuse one that has another record."""
    record: dict[str, Any] = {"verb": work.verb, "model": work.model}
    record |= {key: work.loading[key] for key in ("dtype", "family")}
    record["options"] = {key: value for key, value in work.options.items() if value is not None}
    record["reading"] = work.reading
    if (out / RECORD).exists():
        stored = read_json(out / RECORD)
        for key, value in record.items():
            if stored.get(key) != value:
                fault = f"was written with another {key} ({stored.get(key)!r}, not {value!r})"
                raise BertsmithError(f"{out}: {fault}; {ELSEWHERE}")
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BertsmithError(f"{out}: was not written by this command; {ELSEWHERE}")
    make_folder(out)
    write_json(out / RECORD, record)


def _divided(work: FileWork, workers: int | None, files: int) -> tuple[FileWork, int]:
    """Divide the GPUs or cores of this machine among workers; 0 workers: use this process."""
    import torch

    device, count = work.loading.get("device"), torch.cuda.device_count()
    if device is None and count > 1:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = visible.split(",") if visible else [str(number) for number in range(count)]
        return replace(work, gpus=tuple(names)), count if workers is None else workers
    if workers is None:
        on_cpu = device == "cpu" or (device is None and count == 0)
        workers = min(cores() // CORES, files) if on_cpu else 0
        workers = workers if workers > 1 else 0
    return replace(work, threads=max(1, cores() // workers) if workers else 0), workers
