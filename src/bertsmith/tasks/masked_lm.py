"""Masked-LM scores of a model on plain text: loss, accuracy, perplexity, pseudo-perplexity."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from math import exp
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from bertsmith.batch import Batch
from bertsmith.data.streams import Stream
from bertsmith.errors import BertsmithError
from bertsmith.examples import Masking, Sequences
from bertsmith.files import suffix_of
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.run import grouped
from bertsmith.infer.windows import Window, mask_rows
from bertsmith.model import Hidden, Model
from bertsmith.tasks.read import known_formats, open_data, task_of_format

CHARACTERS, TOKENS = 1 << 20, 1 << 19  # that are held at once
ROWS = 4096  # logits that are computed at once


Masked = tuple[Window, list[int]]  # a window in which tokens are masked, and their original ids


@dataclass
class PredictionSums:
    """Sums over predictions."""

    loss: float = 0.0
    correct: int = 0
    count: int = 0

    @property
    def mean_loss(self) -> float:
        """The mean loss in nats."""
        return self.loss / self.count


def score_masked_lm(
    bert: LoadedModel, texts: Iterable[str], seed: int = 0, *, pseudo: bool = False
) -> dict[str, float]:
    """Mask 15% of the tokens as BERT does (80% mask, 10% random, 10% kept); score them.

    The same texts are always masked alike. Texts beyond the model's length are read in windows of
    nearly equal length, so that every token has one place. With `pseudo` every token is also
    masked alone: the pseudo-perplexity of Salazar et al. (2020), as many passes as tokens.
    """
    if "masked_lm" not in bert.model.heads or bert.checkpoint.config.causal:
        has = ", ".join(bert.checkpoint.entries) or "none"
        raise BertsmithError(f"this model has no masked-LM head to score (its heads: {has})")
    masking = Masking(bert.tokenizer, rate=0.15, seed=seed)
    seen = {"texts": 0, "tokens": 0, "unknown": 0}
    sums, alone, first = PredictionSums(), PredictionSums(), 0
    most = TOKENS * len(bert.devices)
    for windows in grouped(_windows(bert, texts, seen), lambda one: len(one.ids), most):
        _score(bert, masked_windows(windows, masking, first), sums)
        first += len(windows)
        if pseudo:
            every = (one for window in windows for one in masked_alone(window, masking))
            for some in grouped(every, lambda one: len(one[0].ids), most):
                _score(bert, some, alone)
    if not sums.count:
        raise BertsmithError("no text to score")
    loss, accuracy = sums.mean_loss, sums.correct / sums.count
    scores = {"loss": loss, "accuracy": accuracy, "perplexity": exp(loss), "scored": sums.count}
    scores |= seen
    if pseudo:
        scores |= {"pseudo_loss": alone.mean_loss, "pseudo_perplexity": exp(alone.mean_loss)}
    return scores


def read_texts(path: str | Path) -> Iterator[str]:
    """The texts of a file, one at a time.

    A plain text file holds documents between blank lines, or without those a text on each line.
    Of tables and records the texts are read, and not the labels.
    """
    path, kind = Path(path), known_formats().get(suffix_of(Path(path)), "txt")
    if kind != "txt" or path.is_dir():
        task = task_of_format(kind) or "classification"
        yield from open_data(path, task).texts(pairs=True)
        return
    apart = _has_blank_lines(path)
    document: list[str] = []
    for _, line in Stream(path).numbered():
        if line.strip():
            document.append(line.strip())
        if document and not (apart and line.strip()):
            yield " ".join(document)
            document = []
    if document:
        yield " ".join(document)


def is_plain_text(path: str | Path) -> bool:
    """Is this a text file without columns?"""
    if suffix_of(Path(path)) != ".txt" or not Path(path).is_file():
        return False
    return not any("\t" in line for line in Stream(Path(path)).head(20).split("\n"))


def masked_windows(windows: list[Window], masking: Masking, first: int) -> list[Masked]:
    """Windows with some tokens masked; `first` is the number of the first window."""
    lengths = np.array([len(window.ids) for window in windows])
    ids = np.concatenate([window.ids for window in windows])
    numbers = np.arange(first, first + len(windows))
    masked = masking(Sequences(ids, np.zeros_like(ids), lengths), numbers)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    cuts = np.searchsorted(masked.rows, starts)
    results = []
    for window, start, begin, end in zip(windows, starts, cuts, cuts[1:], strict=False):
        ids = masked.ids[start : start + len(window.ids)].tolist()
        rows = tuple((masked.rows[begin:end] - start).tolist())
        results.append((replace(window, ids=ids, masks=rows), masked.targets[begin:end].tolist()))
    return results


def masked_alone(window: Window, masking: Masking) -> Iterator[Masked]:
    """A copy of a window for each of its tokens, with this one masked."""
    for place in np.flatnonzero(~masking.special[window.ids]).tolist():
        ids = [*window.ids[:place], masking.mask_id, *window.ids[place + 1 :]]
        yield replace(window, ids=ids, masks=(place,)), [window.ids[place]]


def _windows(bert: LoadedModel, texts: Iterable[str], seen: dict[str, int]) -> Iterator[Window]:
    """All texts as windows that do not overlap; adds to the counts in `seen`."""
    room = bert.windower().limit - bert.tokenizer.special_count()
    number = 0
    for some in grouped(texts, len, CHARACTERS):
        for ids in bert.token_ids(some):
            count = -(-len(ids) // room)
            bert.ledger.note("long texts read in windows", int(count > 1))
            bert.ledger.note("texts without tokens", int(count == 0))
            seen["texts"] += 1
            seen["tokens"] += len(ids)
            seen["unknown"] += sum(id_ == bert.tokenizer.unk_id for id_ in ids)
            for part in range(count):
                span = range(part * len(ids) // count, (part + 1) * len(ids) // count)
                yield Window(number, *bert.tokenizer.build(ids[span.start : span.stop]), span, 0)
            number += 1


def _score(bert: LoadedModel, masked: list[Masked], sums: PredictionSums) -> None:
    # Longest first, as they are encoded: sums are then added in the order of the batches.
    masked = sorted((one for one in masked if one[1]), key=lambda one: -len(one[0].ids))
    targets_of = {id(window): targets for window, targets in masked}

    def compute(
        model: Model, hidden: Hidden, batch: Batch, group: Sequence[Window]
    ) -> list[tuple[float, int]]:
        rows = mask_rows(group)
        targets = [target for window in group for target in targets_of[id(window)]]
        loss, correct = 0.0, 0
        for begin in range(0, len(rows), ROWS):
            some = torch.tensor(rows[begin : begin + ROWS], device=hidden.last.device)
            wanted = torch.tensor(targets[begin : begin + ROWS], device=hidden.last.device)
            logits = model.heads["masked_lm"](hidden, batch, some).float()
            loss += float(F.cross_entropy(logits, wanted, reduction="sum"))
            correct += int((logits.argmax(-1) == wanted).sum())
        return [(loss, correct), *[(0.0, 0)] * (len(group) - 1)]

    for loss, correct in bert.run([window for window, _ in masked], compute):
        sums.loss += loss
        sums.correct += correct
    sums.count += sum(len(targets) for _, targets in masked)


def _has_blank_lines(path: Path) -> bool:
    """Return whether a blank line is between two that hold text."""
    filled = (bool(line.strip()) for _, line in Stream(path).numbered())
    blocks = (text for text, _ in groupby(filled) if text)
    return len(list(islice(blocks, 2))) > 1
