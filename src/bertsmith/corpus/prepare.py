"""`prepare`: text files → a folder of token shards; resumable.

Finished pieces of work are kept in `work/` until the shards are written. After an interruption,
the same call continues from there, with a result that is equal byte for byte.
"""

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bertsmith.corpus.corpus import Corpus
from bertsmith.corpus.engines import run
from bertsmith.corpus.files import InputFile, find_files
from bertsmith.corpus.manifest import Manifest, SplitSize, is_finished, measure
from bertsmith.corpus.merge import Merging, merge, piece_name
from bertsmith.corpus.overlap import Benchmarks
from bertsmith.corpus.pieces import Piece, cut
from bertsmith.corpus.workshop import TextJob, check_extras
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.files import write_bytes, write_json, writing
from bertsmith.foreign import read_table
from bertsmith.ledger import Ledger
from bertsmith.settings import picked, taking
from bertsmith.settings.corpus import SPLITS, CorpusSettings, EngineSettings
from bertsmith.store import LARGEST, Sentences, WorkFolder
from bertsmith.tokenizer import Tokenizer

Progress = Callable[[str, int, int], None]  # step, amount done, total
RULES = 2  # how text becomes tokens; raised when that changes, so that old and new do not mix


@dataclass(frozen=True)
class PreparedCorpus:
    """The result of `prepare`."""

    directory: Path
    splits: dict[str, SplitSize]
    ledger: dict[str, int]
    text_files: int = 0  # if all files are plain text, divided by blank lines
    added: int | None = None  # documents that were added


@taking(CorpusSettings)
@taking(EngineSettings)
def prepare(
    files: Iterable[str | Path],
    tokenizer: Tokenizer | str | Path,
    out: str | Path,
    *,
    progress: Progress | None = None,
    **given: Any,
) -> PreparedCorpus:
    """Turn text, jsonl and parquet files, or folders of them, into token shards in `out`.

    Plain text is divided into documents by blank lines; with `documents` "files", each file is one
    document. `sentences` is the language whose rules split lines into sentences, or "lines".
    Documents are left out if they are shorter or longer than requested (in characters), not in
    `language`, or `duplicates` ("exact", or "near" for at least this similarity) of earlier
    ones. A fraction `held_out` of the others becomes a separate split, chosen by `seed` and text
    alone. Documents that share `overlap` words in a row with a text of the files `decontaminate`
    are removed or only counted (`contaminated`).

    The result depends neither on the number of `workers` (0: this process only) nor on the `engine`
    ("local" or "ray"). Call it again after an interruption to continue.
    """
    looked_for = given.get("decontaminate", ())
    looked_for = [looked_for] if isinstance(looked_for, str | Path) else looked_for
    given["decontaminate"] = tuple(str(Path(path).resolve()) for path in looked_for)
    running, settings = picked(EngineSettings, given), CorpusSettings(**given)
    settings.check()
    loaded = tokenizer if isinstance(tokenizer, Tokenizer) else Tokenizer.load(tokenizer)
    work = WorkFolder(out)
    with writing(out):  # files that cannot be read are found before a lock makes the folder
        job = _preparation(Path(out), settings, files, loaded, progress)
    with writing(out), work.held():
        _begin(work, job.plan())
        if not is_finished(Path(out)):
            try:
                job.run(running)
            except BertsmithError:
                if not any(job.work.glob("*.npz")):  # the first piece failed: for a corrected call
                    job.discard()
                raise
        divided = all(file.kind == "text" for file in job.inputs)
        return replace(job.finish(), text_files=len(job.inputs) if divided else 0)


@taking(EngineSettings)
def add(
    files: Iterable[str | Path],
    corpus: str | Path,
    *,
    progress: Progress | None = None,
    **given: Any,
) -> PreparedCorpus:
    """Add text files to a prepared corpus, with its tokenizer and its settings.

    What it has is not tokenized again. Files that it was made of are skipped. If it was prepared
    without duplicates, new documents are compared with those that are there, by their tokens. The
    corpus is complete and readable all the time; call it again after an interruption to continue.
    """
    running, out = picked(EngineSettings, given), Path(corpus)
    Manifest.read(out)  # before a lock makes the folder
    work = WorkFolder(out / "work")
    with writing(out), WorkFolder(out).held():
        manifest = Manifest.read(out)
        settings = CorpusSettings(**manifest.settings)
        plan = read_table(out / "plan.json", LARGEST) or {}
        if plan.get("rules", RULES) != RULES:
            raise BertsmithError(f"{out}: {SENTENCES['rules']}; prepare the corpus again")
        job = _preparation(out, settings, files, Tokenizer.load(out / "tokenizer"), progress)
        known = [plan.get("inputs", []), *manifest.additions]
        job = replace(job, inputs=_new_inputs(job.inputs, known, settings, out))
        if not job.inputs:
            work.remove()
            return PreparedCorpus(out, manifest.splits, {}, added=0)
        wanted = job.plan() | {"corpus": manifest.fingerprint()}
        begun = (read_table(work.plan, LARGEST) or {}) if work.begun() else {}
        if begun.get("corpus") == wanted["corpus"]:
            work.demand_same(wanted, f"add those files first, or remove {work.path}", SENTENCES)
        else:  # leftovers of something that is finished
            work.remove()
            work.begin(wanted)
        try:
            return job.extend(running, manifest)
        except BertsmithError:
            if not any(job.work.glob("*.npz")):  # the first piece failed: for a corrected call
                work.remove()
            raise


def _new_inputs(
    inputs: list[InputFile], known: list[list[dict[str, Any]]], settings: CorpusSettings, out: Path
) -> list[InputFile]:
    before = {file["path"]: file for group in known for file in group}
    new = [file for file in inputs if asdict(file) != before.get(file.path)]
    for file in new:
        if file.path in before and settings.duplicates is None:
            raise BertsmithError(
                f"{file.path} was changed since it became a part of {out}: its text would be there"
                " twice; put the new text into another file, or use a corpus prepared with"
                f" {setting_name('duplicates', 'exact')}"
            )
    return new


@dataclass(frozen=True)
class Preparation:
    """The work on one folder."""

    out: Path
    settings: CorpusSettings
    inputs: list[InputFile]
    tokenizer: Tokenizer
    progress: Progress
    ledger: Ledger
    benchmarks: Benchmarks | None

    @property
    def work(self) -> Path:
        """The folder of finished pieces."""
        return self.out / "work"

    def run(self, running: EngineSettings) -> None:
        """Do the remaining work; the corpus is complete once it has a manifest."""
        self.work.mkdir(exist_ok=True)
        shutil.rmtree(self.out / "tokenizer", ignore_errors=True)  # also leftovers of a kill
        self.tokenizer.save(self.out / "tokenizer")
        dtype = "<u2" if self.tokenizer.size <= 1 << 16 else "<u4"
        splits = self._merged(running, dtype)
        if not splits["train"].documents:
            self.discard()
            why = "; ".join(self.ledger.lines()) or "there is no text in the files"
            raise BertsmithError(f"no documents left to train on ({why})")
        write_json(self.out / "ledger.json", dict(sorted(self.ledger.counts.items())))
        stored = [self.out / "ledger.json"]
        for folder in (*SPLITS, "tokenizer"):
            stored += sorted((self.out / folder).iterdir())
        sums = measure(self.out, stored)
        counts = dict(self.ledger.counts)
        Manifest(asdict(self.settings), dtype, splits, sums, counts).write(self.out)

    def extend(self, running: EngineSettings, manifest: Manifest) -> PreparedCorpus:
        """Add documents in new files, so that the new manifest replaces the corpus at once."""
        names = [name for name in SPLITS if manifest.splits[name].documents]
        there = tuple(Corpus.open(self.out, name) for name in names)
        suffix = f".{len(manifest.additions) + 1}"
        splits = self._merged(running, manifest.dtype, there, suffix)
        new = measure(self.out, sorted(self.out.glob(f"*/*{suffix}.npy")))
        replaced = {name.partition(".")[0] for name in new} | {"ledger"}  # the manifest has that
        kept = {n: s for n, s in manifest.files.items() if n.partition(".")[0] not in replaced}
        total = dict(Counter(manifest.ledger) + self.ledger.counts)
        additions = [*manifest.additions, [asdict(file) for file in self.inputs]]
        files = dict(sorted((kept | new).items()))
        Manifest(manifest.settings, manifest.dtype, splits, files, total, additions).write(self.out)
        write_json(self.out / "ledger.json", dict(sorted(total.items())))
        before = sum(split.documents for split in manifest.splits.values())
        added = sum(split.documents for split in splits.values()) - before
        return replace(self.finish(), ledger=dict(self.ledger.counts), added=added)

    def _merged(
        self, running: EngineSettings, dtype: str, there: tuple[Corpus, ...] = (), suffix: str = ""
    ) -> dict[str, SplitSize]:
        """Process the remaining pieces, and write the shards of both splits."""
        how = Merging(self.settings, dtype, self.ledger, self.benchmarks, there, suffix)
        count, step = self._pieces(running, dtype), partial(self.progress, "shards")
        return merge(self.work, self.out, count, how, step)

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
        packed = self.benchmarks.packed() if self.benchmarks else ""
        job = TextJob(self.settings, definition, special, self.tokenizer.unk_id, dtype, packed)
        with closing(run(missing(), job, running.engine, running.workers)) as done:
            for piece, outcome in done:
                write_bytes(self.work / piece_name(piece.number), outcome)
                reach(piece)
        work.finish("pieces", {"pieces": count})
        return count

    def finish(self) -> PreparedCorpus:
        """Remove temporary files and return the summary."""
        shutil.rmtree(self.work, ignore_errors=True)
        manifest = Manifest.read(self.out)
        for path in self.out.glob("*/*.npy"):  # those that an addition replaced or began
            if path.relative_to(self.out).as_posix() not in manifest.files:
                path.unlink()
        if complaints := manifest.damaged(self.out, sums=False):
            raise BertsmithError(f"{complaints[0]}; remove {self.out} to prepare it again")
        return PreparedCorpus(self.out, manifest.splits, manifest.ledger)

    def discard(self) -> None:
        """Remove everything, so that other settings can be tried."""
        for name in ("work", "tokenizer", *SPLITS):
            shutil.rmtree(self.out / name, ignore_errors=True)
        WorkFolder(self.out).plan.unlink(missing_ok=True)

    def plan(self) -> dict[str, Any]:
        """All settings that determine the result."""
        settings, used = self.settings, ["tokenizers", "sentencex"]
        used += ["ftfy"] * settings.repair + ["py3langid"] * (settings.language is not None)
        used += ["rensa"] * (settings.duplicates == "near")
        looked_for = {"benchmarks": self.benchmarks.fingerprint()} if self.benchmarks else {}
        return looked_for | {
            "rules": RULES,
            "settings": asdict(settings),
            "tokenizer": hashlib.sha256(self.tokenizer.backend.to_str().encode()).hexdigest(),
            "inputs": [asdict(file) for file in self.inputs],
            "libraries": {name: version(name) for name in used},
        }


def _preparation(
    out: Path,
    settings: CorpusSettings,
    files: Iterable[str | Path],
    tokenizer: Tokenizer,
    progress: Progress | None,
) -> Preparation:
    check_extras(settings)
    ledger, benchmarks = Ledger(), None
    inputs, left = find_files(files)
    ledger.note("files of other kinds, left out", left)
    if settings.documents == "files":
        inputs = [replace(f, kind="whole") if f.kind == "text" else f for f in inputs]
    if settings.decontaminate:
        benchmarks = Benchmarks.read(settings.decontaminate, settings.overlap, ledger)
    step = progress or (lambda *_: None)
    return Preparation(out, settings, inputs, tokenizer, step, ledger, benchmarks)


def _begin(work: WorkFolder, plan: dict[str, Any]) -> None:
    if work.begun():
        advice = "name another folder, or remove this one"
        work.demand_same(plan, advice, SENTENCES, {"settings": asdict(CorpusSettings())})
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
    "benchmarks": "it was started with other texts to look for",
    "inputs": _other_inputs,
}
