"""A model and the training of its task as one module: from a batch to its loss."""

from __future__ import annotations

from torch import Tensor, nn

from bertsmith.batch import Batch
from bertsmith.finetuning.batches import filled
from bertsmith.model import Model
from bertsmith.tasks.training import Targets, Training

SHORT = 128  # tokens


class Learner(nn.Module):
    """Batches are filled up to a multiple of `step` tokens, for kernels that want few sizes."""

    def __init__(self, model: Model, training: Training, step: int = 1) -> None:
        super().__init__()
        self.model, self.training_task, self.step = model, training, step

    def forward(
        self, batch: Batch, targets: Targets, weight: float | Tensor, rows: int = 0
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The sum of losses over the weight of all items of a step, computed in float32.

        `rows` is the number of outputs that have targets, if not all have.
        """
        self.model.use_kernel(_kernel(batch))
        task = self.training_task
        outputs = task.outputs(self.model, filled(batch, self.step))
        real = batch.layout.total if task.each_token else len(batch.layout.lengths)
        return task.loss(outputs[: rows or real].float(), batch, targets) / weight, {}


def _kernel(batch: Batch) -> str | None:
    """On a CPU short sequences are padded a little: few large calls beat many small ones.

    Captured steps that come with a padded grid use it.
    """
    short = batch.layout.longest <= SHORT and batch.ids.device.type == "cpu"
    return "grouped" if short or batch.layout.padded is not None else None
