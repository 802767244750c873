"""The other side of benchmarks/finetune.py: a `transformers` Trainer, as its examples have it.

Batches are padded to their longest sequence; texts are cut at what the model reads, passages read
in windows with a stride, and answers taken from the best of all windows.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from transformers import Trainer, TrainingArguments

from bertsmith.finetuning import RunSettings
from bertsmith.tasks.answering.task import token_span
from bertsmith.tasks.dataset import Dataset

LONGEST, STRIDE = 512, 128
BEST, ANSWER = 20, 30  # starts and ends that are tried, and tokens in an answer
HEADS = {
    "tagging": transformers.AutoModelForTokenClassification,
    "answering": transformers.AutoModelForQuestionAnswering,
}
Rows = list[dict[str, Any]]


class Texts:
    """A label, or a number, for a text or a pair."""

    def __init__(self, words: Any, labels: Sequence[str]) -> None:
        self.words, self.labels = words, list(labels)

    def collator(self) -> Any:
        return transformers.DataCollatorWithPadding(self.words)

    def rows(self, examples: Sequence[Any], gold: bool) -> Rows:
        return [
            {**row, "owner": number}
            for number, example in enumerate(examples)
            for row in self.row(example, gold)
        ]

    def row(self, example: Any, gold: bool) -> Rows:
        inputs = self.words(*example.texts, truncation=True, max_length=LONGEST)
        if gold:
            named = self.labels.index(example.label) if self.labels else example.score
            inputs["labels"] = named
        return [dict(inputs)]

    def values(self, examples: Sequence[Any], rows: Rows, logits: Any) -> list[Any]:
        if not self.labels:
            return [float(row[0]) for row in logits]
        return [self.labels[int(row.argmax())] for row in logits]


def first_tokens(
    offsets: Sequence[tuple[int, int]], words: Sequence[tuple[int, int]]
) -> list[int | None]:
    """For each word (its characters) the first token that begins in it."""
    return [
        next(
            (n for n, (left, right) in enumerate(offsets) if start <= left < min(end, right)), None
        )
        for start, end in words
    ]


class Words(Texts):
    """A tag for every word, at its first token."""

    def collator(self) -> Any:
        return transformers.DataCollatorForTokenClassification(self.words)

    def row(self, example: Any, gold: bool) -> Rows:
        inputs = self.words(
            example.text, truncation=True, max_length=LONGEST, return_offsets_mapping=True
        )
        places = first_tokens(inputs.pop("offset_mapping"), example.offsets)
        marks = [-100] * len(inputs["input_ids"])
        for token, tag in zip(places, example.tags, strict=True):
            if token is not None and gold:
                marks[token] = self.labels.index(tag)
        return [{**inputs, "labels": marks, "places": places}]

    def values(self, examples: Sequence[Any], rows: Rows, logits: Any) -> list[Any]:
        missing = "O" if "O" in self.labels else self.labels[0]
        return [
            tuple(
                missing if token is None else self.labels[int(found[token].argmax())]
                for token in row["places"]
            )
            for row, found in zip(rows, logits, strict=True)
        ]


class Questions(Texts):
    """Where an answer begins and ends."""

    def row(self, example: Any, gold: bool) -> Rows:
        inputs = self.words(
            example.question,
            example.passage,
            truncation="only_second",
            max_length=LONGEST,
            stride=STRIDE,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        made = []
        for number, offsets in enumerate(inputs["offset_mapping"]):
            inside = [source == 1 for source in inputs.sequence_ids(number)]
            shown = [place if own else (0, 0) for place, own in zip(offsets, inside, strict=True)]
            row = {name: inputs[name][number] for name in self.words.model_input_names}
            if gold:
                first = next(answer for answer in example.answers if answer.start >= 0)
                span = token_span(example, shown)
                start, end = span or (0, 0)
                whole = shown[start][0] <= first.start and shown[end][1] >= first.end
                row["start_positions"], row["end_positions"] = (start, end) if whole else (0, 0)
            made.append({**row, "offsets": shown})
        return made

    def values(self, examples: Sequence[Any], rows: Rows, logits: Any) -> list[Any]:
        starts, ends = logits
        best: list[tuple[float, str]] = [(-np.inf, "")] * len(examples)
        for number, row in enumerate(rows):
            offsets, passage = row["offsets"], examples[row["owner"]].passage
            for start in np.argsort(-starts[number][: len(offsets)])[:BEST]:
                for end in np.argsort(-ends[number][: len(offsets)])[:BEST]:
                    value = float(starts[number][start] + ends[number][end])
                    real = offsets[start] != (0, 0) and offsets[end] != (0, 0)
                    if real and start <= end < start + ANSWER and value > best[row["owner"]][0]:
                        best[row["owner"]] = value, passage[offsets[start][0] : offsets[end][1]]
        return [text for _, text in best]


def run(
    start: Path,
    train: Dataset[Any],
    dev: Dataset[Any],
    settings: RunSettings,
    *,
    dtype: str,
    seed: int,
    device: str,
) -> tuple[list[Any], float, float]:
    """What a model that was trained so says of the dev examples; seconds to train and to say it."""
    transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    transformers.set_seed(seed)
    words = transformers.AutoTokenizer.from_pretrained(start)
    numbers = train.task == "regression"
    labels = () if numbers else train.labels
    kind = {"tagging": Words, "answering": Questions}.get(train.task, Texts)(words, labels)
    head = HEADS.get(train.task, transformers.AutoModelForSequenceClassification)
    count = {} if train.task == "answering" else {"num_labels": 1 if numbers else len(labels)}
    model = head.from_pretrained(start, **count)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=folder,
                learning_rate=settings.learning_rate,
                num_train_epochs=settings.epochs,
                per_device_train_batch_size=settings.batch_size,
                per_device_eval_batch_size=settings.batch_size,
                warmup_steps=settings.warmup,
                weight_decay=settings.weight_decay,
                max_grad_norm=settings.clip,
                bf16=dtype == "bfloat16",
                use_cpu=device == "cpu",
                seed=seed,
                save_strategy="no",
                logging_strategy="no",
                report_to=[],
                disable_tqdm=True,
            ),
            train_dataset=kind.rows(train.gold(), gold=True),
            data_collator=_without_places(kind.collator()),
        )
        began = time.perf_counter()
        trainer.train()
        trained = time.perf_counter() - began
        began = time.perf_counter()
        rows = kind.rows(dev.examples, gold=False)
        logits = trainer.predict(rows).predictions  # type: ignore[arg-type]
        values = kind.values(dev.examples, rows, logits)
        return values, trained, time.perf_counter() - began


def _without_places(collate: Any) -> Any:
    """The same collator, which is not shown what only we need."""
    ours = ("owner", "places", "offsets")

    def call(rows: Rows) -> Any:
        return collate([{k: v for k, v in row.items() if k not in ours} for row in rows])

    return call
