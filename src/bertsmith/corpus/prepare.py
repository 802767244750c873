"""`prepare`: text files → a folder of token shards; resumable.

Finished pieces of work are kept in `work/` until the shards are written. After an interruption,
the same call continues from there, with a result that is equal byte for byte.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bertsmith.corpus.clean import check_extras
from bertsmith.corpus.engines import run
from bertsmith.corpus.files import Input, find_files
from bertsmith.corpus.manifest import Manifest, Split, is_finished, measure
from bertsmith.corpus.merge import merge, piece_name
from bertsmith.corpus.pieces import Piece, cut
from bertsmith.corpus.workshop import Job
from bertsmith.errors import BertsmithError
from bertsmith.files import write_bytes, write_json, writing
from bertsmith.ledger import Ledger
from bertsmith.settings import picked, taking
from bertsmith.settings.corpus import SPLITS, EngineSettings, Settings
from bertsmith.store import Sentences, WorkFolder
from bertsmith.tokenizer import Tokenizer

Progress = Callable[[str, int, int], None]  # step, amount done, total
RULES = 2  # how text becomes tokens; raised when that changes, so that old and new do not mix


@dataclass(frozen=True)
class Summary:
    """The result of `prepare`."""

    directory: Path
    splits: dict[str, Split]
    ledger: dict[str, int]
    text_files: int = 0  # if all files are plain text, divided by blank lines


@taking(Settings)
@taking(EngineSettings)
def prepare(
    files: Iterable[str | Path],
    tokenizer: Tokenizer | str | Path,
    out: str | Path,
    *,
    progress: Progress | None = None,
    **given: Any,
) -> Summary:
    """Turn text, jsonl and parquet files, or folders of them, into token shards in `out`.

    Plain text is divided into documents by blank lines; with `documents` "files", each file is one
    document. `sentences` is the language whose rules split lines into sentences, or "lines".
    Documents are left out if they are shorter or longer than requested (in characters), not in
    `language`, or `duplicates` ("exact", or "near" for at least this similarity) of earlier
    ones. A fraction `held_out` of the others becomes a separate split, chosen by `seed` and text
    alone.

    The result depends neither on the number of `workers` (0: this process only) nor on the `engine`
    ("local" or "ray"). Call it again after an interruption to continue.
    """
    running, settings = picked(EngineSettings, given), Settings(**given)
    settings.check()
    check_extras(settings)
    inputs, left = find_files(files)
    if settings.documents == "files":
        inputs = [replace(one, kind="whole") if one.kind == "text" else one for one in inputs]
    loaded = tokenizer if isinstance(tokenizer, Tokenizer) else Tokenizer.load(tokenizer)
    work = WorkFolder(out)
    with writing(out), work.held():
        _begin(work, _plan(settings, inputs, loaded))
        made = Preparation(Path(out), settings, inputs, loaded, progress or (lambda *_: None))
        if not is_finished(Path(out)):
            try:
                made.run(running, left)
            except BertsmithError:
                if not any(made.work.glob("*.npz")):  # the first piece failed: for a corrected call
                    made.discard()
                raise
        divided = all(one.kind == "text" for one in inputs)
        return replace(made.finish(), text_files=len(inputs) if divided else 0)


@dataclass(frozen=True)
class Preparation:
    """The work on one folder."""

    out: Path
    settings: Settings
    inputs: list[Input]
    tokenizer: Tokenizer
    progress: Progress

    @property
    def work(self) -> Path:
        """The folder of finished pieces."""
        return self.out / "work"

    def run(self, running: EngineSettings, left: int) -> None:
        """Do the remaining work; the corpus is complete once it has a manifest."""
        self.work.mkdir(exist_ok=True)
        shutil.rmtree(self.out / "tokenizer", ignore_errors=True)  # also leftovers of a kill
        self.tokenizer.save(self.out / "tokenizer")
        ledger = Ledger()
        ledger.note("files of other kinds, left out", left)
        dtype = "<u2" if self.tokenizer.size <= 1 << 16 else "<u4"
        count, step = self._pieces(running, dtype), partial(self.progress, "shards")
        splits = merge(self.work, self.out, count, self.settings, dtype, ledger, step)
        if not splits["train"].documents:
            self.discard()
            why = "; ".join(ledger.lines()) or "there is no text in the files"
            raise BertsmithError(f"no documents left to train on ({why})")
        write_json(self.out / "ledger.json", dict(sorted(ledger.counts.items())))
        stored = [self.out / "ledger.json"]
        for folder in (*SPLITS, "tokenizer"):
            stored += sorted((self.out / folder).iterdir())
        sums = measure(self.out, stored)
        said = Manifest(asdict(self.settings), dtype, splits, sums, dict(ledger.counts))
        said.write(self.out)

    def _pieces(self, running: EngineSettings, dtype: str) -> int:
        """Process the remaining pieces; returns the number of all pieces."""
        work = WorkFolder(self.work)
        if counted := work.finished("pieces", pieces=int):
            known: int = counted["pieces"]
            if all((self.work / piece_name(number)).exists() for number in range(known)):
                return known
        total = sum(file.size for file in self.inputs)
        count = furthest = 0

        def reach(piece: Piece) -> None:
            nonlocal furthest
            furthest = max(furthest, piece.position)
            self.progress("tokens", furthest, total)

        def missing() -> Iterator[Piece]:
            nonlocal count
            for piece in cut(self.inputs, self.settings.piece_bytes, self.settings.text_field):
                count += 1
                if (self.work / piece_name(piece.number)).exists():
                    reach(piece)
                else:
                    yield piece

        definition = self.tokenizer.reader("text").to_str()
        special = tuple(self.tokenizer.parts.tokens.values())
        job = Job(self.settings, definition, special, self.tokenizer.unk_id, dtype)
        with closing(run(missing(), job, running.engine, running.workers)) as done:
            for piece, outcome in done:
                write_bytes(self.work / piece_name(piece.number), outcome)
                reach(piece)
        work.finish("pieces", {"pieces": count})
        return count

    def finish(self) -> Summary:
        """Remove temporary files and return the summary."""
        shutil.rmtree(self.work, ignore_errors=True)
        manifest = Manifest.read(self.out)
        if complaints := manifest.damaged(self.out, sums=False):
            raise BertsmithError(f"{complaints[0]}; remove {self.out} to prepare it again")
        return Summary(self.out, manifest.splits, manifest.ledger)

    def discard(self) -> None:
        """Remove everything, so that other settings can be tried."""
        for name in ("work", "tokenizer", *SPLITS):
            shutil.rmtree(self.out / name, ignore_errors=True)
        WorkFolder(self.out).plan.unlink(missing_ok=True)


# ------------------------------------------------------------------ the same again, or not


def _plan(settings: Settings, inputs: list[Input], tokenizer: Tokenizer) -> dict[str, Any]:
    """Return all settings that determine the result."""
    used = ["tokenizers", "sentencex"]
    used += ["ftfy"] * settings.repair + ["py3langid"] * (settings.language is not None)
    used += ["rensa"] * (settings.duplicates == "near")
    return {
        "rules": RULES,
        "settings": asdict(settings),
        "tokenizer": hashlib.sha256(tokenizer.backend.to_str().encode()).hexdigest(),
        "inputs": [asdict(file) for file in inputs],
        "libraries": {name: version(name) for name in used},
    }


def _begin(work: WorkFolder, plan: dict[str, Any]) -> None:
    """Start in a folder, or continue the same work there."""
    if work.begun():
        advice = "name another folder, or remove this one"
        work.demand_same(plan, advice, SENTENCES, {"settings": asdict(Settings())})
    elif work.occupied():
        raise BertsmithError(f"{work.path}: not an empty folder; name a new one")
    else:
        work.begin(plan)


def _other_inputs(before: Any, now: list[dict[str, Any]]) -> str:
    """How the input files differ: they changed, or they are others."""
    for old, new in zip(before or [], now, strict=False):
        if old["path"] == new["path"] and old != new:
            return f"it was started with another content of {new['path']}"
    return "it was started with other input files"


SENTENCES: Sentences = {
    "rules": "it was started with another version of bertsmith",
    "tokenizer": "it was started with another tokenizer",
    "inputs": _other_inputs,
}
