"""A probe task during pre-training: a linear classifier of labelled texts on pooled states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.corpus.records import records
from bertsmith.errors import BertsmithError
from bertsmith.model import Model
from bertsmith.model.pooling import mean
from bertsmith.tokenizer import Tokenizer
from bertsmith.train.recipe import ProbePart

FOLDS = 5  # each row is scored by a classifier that was fitted on the other folds
PENALTY = 0.1  # of the squared weights, beside the mean squared error on standardised states
AT_ONCE = 16384  # tokens in a pass


@dataclass(frozen=True)
class Probe:
    """Labelled texts, as ids."""

    texts: list[list[int]]
    labels: Tensor  # (N,) int64
    pooling: str

    @classmethod
    def read(cls, part: ProbePart, tokenizer: Tokenizer, length: int) -> Probe:
        """Read the first rows of a file; texts are cut to `length` tokens."""
        rows = list(islice(_rows(part), part.most))
        names = {label: number for number, label in enumerate(sorted({row[1] for row in rows}))}
        if len(names) < 2 or len(rows) < 2 * FOLDS:
            raise BertsmithError(
                f"{part.data}: a probe needs {2 * FOLDS} texts and two labels; it has"
                f" {len(rows)} and {len(names)}"
            )
        special = tokenizer.special_count()
        plain = tokenizer.encode_ids([text for text, _ in rows])
        texts = [tokenizer.build(ids[: length - special])[0] for ids in plain]
        return cls(texts, torch.tensor([names[label] for _, label in rows]), part.pooling)

    @property
    def majority(self) -> float:
        """The accuracy of the most frequent label."""
        return float(self.labels.bincount().max()) / len(self.labels)

    @torch.no_grad()
    def accuracy(self, model: Model, device: torch.device, dtype: torch.dtype) -> float:
        """Cross-validated accuracy of linear classifiers on the model's states."""
        states = self._states(model.eval(), device, dtype)
        targets = torch.nn.functional.one_hot(self.labels).double()
        fold, correct = torch.arange(len(states)) % FOLDS, 0
        for number in range(FOLDS):
            rest, own = fold != number, fold == number
            center, scale = states[rest].mean(0), states[rest].std(0).clamp_min(1e-6)
            x, others = (states[rest] - center) / scale, (states[own] - center) / scale
            means = targets[rest].mean(0)
            penalty = PENALTY * len(x) * torch.eye(x.shape[1], dtype=x.dtype)
            weights = torch.linalg.solve(x.T @ x + penalty, x.T @ (targets[rest] - means))
            correct += int(((others @ weights + means).argmax(-1) == self.labels[own]).sum())
        return correct / len(states)

    def _states(self, model: Model, device: torch.device, dtype: torch.dtype) -> Tensor:
        """A vector for each text (N, D), as float64 on the CPU."""
        rows: list[Tensor] = []
        step = max(1, AT_ONCE // max(map(len, self.texts)))
        for start in range(0, len(self.texts), step):
            batch = Batch.of(self.texts[start : start + step]).to(device)
            with torch.autocast(device.type, dtype, enabled=dtype is not torch.float32):
                states = model.encoder(batch).last.float()
            first = states[batch.layout.first]
            rows.append(mean(states, batch.layout) if self.pooling == "mean" else first)
        return torch.cat(rows).cpu().double()


def _rows(part: ProbePart) -> Iterator[tuple[str, str]]:
    """The text and the label of each row of a file."""
    columns: list[str] = []
    for number, row in enumerate(records(Path(part.data)), 1):
        if isinstance(row, list) and not columns:
            columns = row
            continue
        cells = dict(zip(columns, row, strict=False)) if isinstance(row, list) else row
        if not isinstance(cells, dict):
            raise BertsmithError(
                f"{part.data}: a probe is a table of texts and labels: .csv, .tsv, .jsonl, .parquet"
            )
        text, label = (cells.get(key) for key in (part.text, part.label))
        if not isinstance(text, str) or label is None:
            missing = part.label if isinstance(text, str) else part.text
            raise BertsmithError(
                f"{part.data}, row {number}: no {missing!r} (it has {', '.join(map(str, cells))};"
                " set probe.text and probe.label)"
            )
        yield text, str(label)
