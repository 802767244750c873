"""Labelling: which text a person gets next, what they may answer, and what the model suggests."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from threading import Lock, RLock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from bertsmith import store
from bertsmith.data.annotations import ABOUT
from bertsmith.data.tables import Row
from bertsmith.errors import BertsmithError
from bertsmith.label.choosing import chosen, doubt, fraction
from bertsmith.label.file import LabelFile, agreement_of, opened
from bertsmith.ledger import Ledger
from bertsmith.settings.labelling import LabellingSettings
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.labelling import Labelling
from bertsmith.tasks.read import open_data, read_data
from bertsmith.tasks.reading import Reading
from bertsmith.tasks.splits import grouped

if TYPE_CHECKING:
    from bertsmith.label.learner import LabellingModel

AWAY = 120.0  # seconds after which a text that another tab shows is given to others
LOOKED_AT = 5000  # texts that the model reads for a batch; of more, a random part
LONGEST_NAME = 60  # characters of a person's name
MOST_SHOWN = 200  # disagreements in the view
NO_SUGGESTION = {"answer": None, "confidence": None}


class Conflict(BertsmithError):  # noqa: N818 - a state that a page meets
    """An answer to a text that was answered in the meantime, as in another tab."""


@dataclass(frozen=True)
class Item:
    """A text to label, or several with the same content: they are one."""

    name: str  # a fingerprint of its texts, by which the file knows it
    example: Any
    held: bool  # are its labels for evaluation only?
    shared: bool  # does everyone label it?

    @property
    def part(self) -> str:
        """The part of the file that its labels belong to."""
        return "test" if self.held else "train"


def read_items(
    source: Any, task: str | None, settings: LabellingSettings, ledger: Ledger, **options: Any
) -> tuple[Reading, dict[str, Item]]:
    """Read the texts of a source; what is held out depends on the texts and the seed alone.

    Texts that finetune would keep on one side of a split are held out together.
    """
    data = open_data(source, task, ledger=ledger, **options)
    rows = [example for portion in data.portions() for example in portion.examples]
    examples = [example for example in rows if example is not None]
    reading = Dataset(data.path, str(data.task), []).reading
    if reading.labelling is None:
        raise BertsmithError(f"labels of {reading.name} cannot be made on a page")
    unique = dict[str, Any]()
    for example in examples:
        unique.setdefault(fingerprint(example.texts), example)
    ledger.note("texts that are there more than once, asked only once", len(examples) - len(unique))
    keys = reading.kept_apart(list(unique.values()))[1]
    groups = grouped(keys)
    if max(map(len, groups)) > max(1, len(unique) // 2):  # a prompt before every text, say
        groups = [[number] for number in range(len(unique))]
    names, held = list(unique), set[int]()
    for group in groups:
        first = min(names[number] for number in group)
        if fraction(first, settings.seed, "held out") < settings.held_out:
            held.update(group)
    items = {}
    for number, (name, example) in enumerate(unique.items()):
        shared = fraction(name, settings.seed, "overlap") < settings.overlap
        items[name] = Item(name, example, number in held, shared)
    return reading, items


def fingerprint(texts: Sequence[str]) -> str:
    """The name of texts: equal if they differ in case and spaces only."""
    return store.fingerprint([" ".join(text.casefold().split()) for text in texts])[:16]


class Session:
    """Texts, people and a model; every method may be called by several threads."""

    def __init__(
        self,
        reading: Reading,
        items: dict[str, Item],
        file: LabelFile,
        settings: LabellingSettings,
        learner: "LabellingModel | None" = None,
    ) -> None:
        assert reading.labelling is not None
        self.reading, self.items, self.file, self.settings = reading, items, file, settings
        self.form: Labelling = reading.labelling
        self.learner, self.lock, self.training = learner, RLock(), Lock()
        # Held-out texts come in this order too, so that those with labels are a random sample.
        self.order = sorted(items, key=lambda name: fraction(name, settings.seed, "order"))
        self.batch: list[str] = []
        self.suggestions: dict[str, tuple[Any, float]] = {}
        self.score: dict[str, Any] | None = None
        self.shown: dict[str, tuple[str, float]] = {}  # tab → its text, since when
        self.learned = 0  # labels for training when the model was last trained
        self.thread: Thread | None = None  # which trains
        self.closed = False

    @property
    def labels(self) -> list[str]:
        """The labels to choose from."""
        return list(self.file.annotations.plan["labels"])

    # ------------------------------------------------------------------ people

    def state(self, by: str, tab: str, name: str | None = None) -> dict[str, Any]:
        """What a tab of a person shows: the next text (or the named one), and how far all is."""
        by = person(by)
        with self.lock:
            if name is None:
                name = self._next(by, tab)
            self.shown[tab] = (name or "", monotonic())
            marked = self.file.annotations
            mine = [answers[by] for answers in marked.answers.values() if by in answers]
            labelled = sum(row is not None for name, row in marked.rows() if name in self.items)
            return {
                "text": None if name is None else self._text(name, by),
                "mine": sum(row.cells["event"] == "label" for row in mine),
                "skipped": sum(row.cells["event"] == "skip" for row in mine),
                "labelled": labelled,
                "total": len(self.items),
                "guidelines": marked.guidelines,
                "training": self.training.locked(),
                "score": self.score,
            }

    def _text(self, name: str, by: str) -> dict[str, Any]:
        item, before = self.items[name], self.file.annotations.answers.get(name, {}).get(by)
        content: dict[str, Any] = {
            "name": name,
            "passages": list(item.example.texts),
            "choices": self.form.choices(item.example),
            "words": getattr(item.example, "offsets", None),
            "seen": None if before is None else before.cells["event_id"],
            "answer": None,
        }
        if content["choices"] is not None:
            content["passages"] = content["passages"][:1]
        if before is not None and before.cells["event"] == "label":
            content["answer"] = self.form.answer(before.cells)
        return content | {"suggestion": None if self.settings.blind else self._suggested(item)}

    def _suggested(self, item: Item) -> dict[str, Any] | None:
        """The model's suggestion; none for held-out texts, whose labels are to be honest."""
        if item.held or item.name not in self.suggestions:
            return None
        answer, confidence = self.suggestions[item.name]
        return {"answer": answer, "confidence": confidence}

    def _open(self, name: str, by: str) -> bool:
        """Is this person still to label a text?"""
        answers = self.file.annotations.answers.get(name, {})
        settled = name in self.file.annotations.decisions
        return not settled and by not in answers and (self.items[name].shared or not answers)

    def _next(self, by: str, tab: str) -> str | None:
        now = monotonic()
        others = [shown for other, shown in self.shown.items() if other != tab]
        busy = {name for name, since in others if now - since < AWAY}
        names = [name for name in chain(self.batch, self.order) if self._open(name, by)]
        # What others labelled too comes first: agreement is known early.
        names.sort(key=lambda name: not self.file.annotations.answers.get(name))
        return next((name for name in names if name not in busy), names[0] if names else None)

    def answer(self, number: str, by: str, name: str, answer: Any, **more: Any) -> dict[str, Any]:
        """Store an answer; when this returns, it is on the disk.

        `number` is the answer's own: sent again, it is not stored again. `seen` is the number of
        the answer that the person replaces. A `skip` has no answer; a `final` one settles a text.
        """
        by, seen, skip, final = person(by), more.get("seen"), more.get("skip"), more.get("final")
        item = self.items.get(name)
        if item is None:
            raise BertsmithError("this text is not in the data")
        cells: dict[str, Any] = {}
        if not skip:
            labels = self.labels if self.form.named else []
            cells = self.form.inputs(item.example)
            cells[self.form.column] = self.form.cell(answer, item.example, labels)
        with self.lock:
            marked = self.file.annotations
            before = marked.answers.get(name, {}).get(by)
            if final:
                before = marked.decisions.get(name)
            known = None if before is None else before.cells["event_id"]
            if number not in marked.ids and known != seen:
                raise Conflict("this text was labelled in another tab")
            if suggestion := self._suggested(item):
                cells["suggested"], cells["confidence"] = suggestion.values()
            about = {"row_id": name, "split": item.part, "final": final or None}
            self.file.add("skip" if skip else "label", number, by, **about, **cells)
        if len(self._settled("train")) - self.learned >= self.settings.batch:
            self.start()
        return {"seen": number, "suggestion": suggestion}

    def undo(self, number: str, by: str) -> str | None:
        """Take back the last answer of a person; return the name of its text, if there was one."""
        by = person(by)
        with self.lock:
            marked = self.file.annotations
            if number in marked.ids:
                return str(marked.ids[number].cells.get("row_id"))
            mine = [answers[by] for answers in marked.answers.values() if by in answers]
            last = max(mine, key=lambda row: row.number, default=None)
            if last is None:
                return None
            name = str(last.cells["row_id"])
            self.file.add("undo", number, by, row_id=name)
            return name if name in self.items else None

    def write_guidelines(self, number: str, by: str, text: str) -> None:
        """Store what people should agree on; everyone sees it."""
        self.file.add("guidelines", number, person(by), guidelines=text[:20_000])

    # ------------------------------------------------------------------ the model

    def start(self) -> None:
        """Train and choose a batch in the background; until then, any text comes."""
        if self.learner and not self.training.locked():
            self.thread = Thread(target=self.refresh)
            self.thread.start()

    def close(self) -> None:
        """Wait for the end of a training: a process must not end in the middle of it."""
        self.closed = True
        if self.thread is not None:
            self.thread.join()

    def _settled(self, part: str) -> list[Row]:
        with self.lock:
            rows = [row for _, row in self.file.annotations.rows() if row is not None]
        return [row for row in rows if row.cells.get("split") == part]

    def dataset(self, part: str) -> Dataset[Any] | None:
        """The examples of a part with their labels, as `finetune` reads them; None without any."""
        cells = [
            {key: cell for key, cell in row.cells.items() if key not in ABOUT}
            for row in self._settled(part)
        ]
        return read_data(cells, self.reading.name) if cells else None

    def refresh(self) -> None:
        """Train on all labels, score the held-out ones, and choose the next batch."""
        with self.training:
            done = len(self._settled("train"))
            if self.learner is None or self.closed or (self.batch and done == self.learned):
                return
            self.learned = done
            dataset, held = self.dataset("train"), self.dataset("test")
            if dataset is not None:
                self.learner.learn(dataset)
            self.score = None if held is None else self.learner.score(held)
            self.batch = self.choose(self.settings.batch)

    def choose(self, count: int) -> list[str]:
        """The texts to label next: some that are held out, and those that teach the model most."""
        with self.lock:
            done = {name for name, _ in self.file.annotations.rows()}
        fresh = [name for name in self.order if name not in done]
        if self.learner is None or self.settings.order == "random":
            return fresh[:count]
        held = [name for name in fresh if self.items[name].held]
        pool = [name for name in fresh if not self.items[name].held][:LOOKED_AT]
        if not pool:
            return held[:count]
        taught = [n for n in self.order if n in done and not self.items[n].held][-LOOKED_AT:]
        honest = held[: round(count * self.settings.held_out)]
        names = [*pool, *taught]
        examples = [self.items[name].example for name in names]
        vectors = self.learner.vectors(examples)
        predictions = self.learner.predictions(examples[: len(pool)])
        doubts = None
        if predictions is not None:
            doubts = np.array([*map(doubt, predictions), *[0.0] * len(taught)])
            self.suggestions = {
                name: (self.form.suggested(prediction), prediction.confidence)
                for name, prediction in zip(pool, predictions, strict=True)
            }
        known = list(range(len(pool), len(names)))
        numbers = chosen(vectors, known, count - len(honest), doubts, seed=self.settings.seed)
        batch = [*honest, *(names[number] for number in numbers)]
        return sorted(batch, key=lambda name: fraction(name, self.settings.seed, len(done)))

    def disagreements(self) -> dict[str, Any]:
        """How far people agree, and the texts that they label differently."""
        with self.lock:
            marked = self.file.annotations
            names, shown = [name for name in self.items if marked.disagreed(name)], []
            for name in names[:MOST_SHOWN]:
                decision = marked.decisions.get(name)
                labels = {
                    "suggestion": None,
                    "answers": {
                        by: self.form.answer(row.cells)
                        for by, row in marked.labels_of(name).items()
                    },
                    "decision": decision and self.form.answer(decision.cells),
                    "seen": decision and decision.cells["event_id"],
                }
                shown.append(self._text(name, "") | labels)
            return {**agreement_of(marked), "shown": shown}


def person(name: str) -> str:
    """A person's name as the file has it."""
    plain = " ".join(str(name).split())[:LONGEST_NAME]
    if not plain or not plain.isprintable():
        raise BertsmithError("who labels? Give a name")
    return plain


@contextmanager
def labelling(
    source: Any,
    out: str | Path,
    *,
    task: str | None = None,
    labels: Sequence[str] = (),
    model: str | Path | None = None,
    settings: LabellingSettings | None = None,
    ledger: Ledger | None = None,
    **options: Any,
) -> Iterator[Session]:
    """Open texts and their file of labels, which no other process can write meanwhile.

    `options` are those of `bertsmith.tasks.read.open_data`.
    """
    settings, ledger = settings or LabellingSettings(), ledger or Ledger()
    if settings.order not in ("active", "random"):
        raise BertsmithError(f"order must be active or random, not {settings.order!r:.40}")
    reading, items = read_items(source, task, settings, ledger, **options)
    form = reading.labelling
    assert form is not None
    names = list(dict.fromkeys(label.strip() for label in labels if label.strip()))
    if form.numeric and any(not name.replace(".", "", 1).lstrip("-").isdigit() for name in names):
        raise BertsmithError(f"labels of {reading.name} are numbers, such as 0,1,2")
    plan = {"format": 1, "task": reading.name, "columns": [form.column], "labels": names}
    with opened(out, plan) as file:
        known = file.plan["labels"]
        if form.named and len(known) < (1 if form.several or form.asks == "mark" else 2):
            raise BertsmithError("name the labels to choose from, such as praise,complaint")
        learner = None
        if settings.order == "active" or model is not None:
            from bertsmith.label.learner import ENCODER, LabellingModel

            learner = LabellingModel(model or ENCODER, reading.name)
        file.begin()
        session = Session(reading, items, file, settings, learner)
        try:
            yield session
        finally:
            session.close()


def texts_to_label(
    source: Any, out: str | Path, count: int = 20, **options: Any
) -> list[dict[str, Any]]:
    """Return the rows of a source to label next, with their line and the model's suggestion."""
    with labelling(source, out, **options) as session:
        session.refresh()
        rows = []
        for name in session.choose(count):
            item = session.items[name]
            answer, confidence = (session._suggested(item) or NO_SUGGESTION).values()
            row = {"row_id": name, "line": item.example.where.number, "split": item.part}
            row |= session.form.inputs(item.example)
            rows.append(row | {"suggested": answer, "confidence": confidence})
        return rows
