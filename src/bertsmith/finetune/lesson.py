"""What the loop asks of a task: how examples become pieces, and what a mistake costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from torch import Tensor, nn

from bertsmith.batch import Batch
from bertsmith.data import Dataset
from bertsmith.finetune.pieces import Piece, Sample, filled
from bertsmith.finetune.settings import Settings
from bertsmith.model import Model
from bertsmith.tasks.loaded import LoadedModel
from bertsmith.tasks.windows import Windower

SHORT = 128  # tokens


class Lesson:
    """One task as it is learned; made for one training file and one run's settings."""

    head: ClassVar[str | None]  # the head that it trains, if any
    each_token: ClassVar[bool] = False  # are there outputs for every token, or for sequences?
    together: ClassVar[bool] = False  # must all pieces of a step pass at once?

    def __init__(self, dataset: Dataset[Any], settings: Settings) -> None:
        self.dataset, self.settings = dataset, settings

    def changes(self) -> dict[str, Any]:
        """What config.json is to say of it."""
        return {}

    def windower(self, bert: LoadedModel) -> Windower:
        """How its inputs become windows."""
        return bert.windower(limit=self.settings.max_length or None)

    def samples(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Sample]:
        """Examples with gold as samples; those that cannot be learned from are left out."""
        raise NotImplementedError

    def outputs(self, model: Model, batch: Batch) -> Tensor:
        """What the model makes of a batch."""
        return model(batch, self.head)

    def loss(self, outputs: Tensor, batch: Batch, pieces: Sequence[Piece]) -> Tensor:
        """The sum of all pieces' losses, each times its weight."""
        raise NotImplementedError

    @contextmanager
    def settled(self, model: Model) -> Iterator[None]:
        """The model as it is to be used, while it is looked at or copied."""
        yield


class Learner(nn.Module):
    """A model and its task as one module: from a batch to its loss.

    Batches are filled up to a multiple of `step` tokens, for kernels that want few sizes.
    """

    def __init__(self, model: Model, lesson: Lesson, step: int = 1) -> None:
        super().__init__()
        self.model, self.lesson, self.step = model, lesson, step

    def forward(
        self, batch: Batch, pieces: Sequence[Piece], weight: float
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The sum of losses over the weight of all of a step's pieces, computed in float32."""
        self.model.use_kernel(_kernel(batch))
        outputs = self.lesson.outputs(self.model, filled(batch, self.step))
        real = batch.layout.total if self.lesson.each_token else len(batch.layout.lengths)
        return self.lesson.loss(outputs[:real].float(), batch, pieces) / weight, {}


def _kernel(batch: Batch) -> str | None:
    """On a CPU short sequences are padded a little: few large calls beat many small ones."""
    short = batch.layout.longest <= SHORT and batch.ids.device.type == "cpu"
    return "grouped" if short else None
