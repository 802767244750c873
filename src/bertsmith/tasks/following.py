"""The probability that one text follows another: next-sentence and sentence-order heads."""

from __future__ import annotations

from collections.abc import Sequence

from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import EncoderTask, LoadedModel
from bertsmith.infer.run import EncoderPass, Steps
from bertsmith.infer.windows import Window
from bertsmith.model import Hidden

HEADS = ("next_sentence", "sentence_order")
FOLLOWS = 0  # the output that stands for "follows", or "in order"


@EncoderTask
def follows(
    loaded: LoadedModel, firsts: Sequence[str], seconds: Sequence[str]
) -> Steps[list[float]]:
    """For each pair the probability that the second text follows the first.

    Of a long pair the mean over its windows is taken.
    """
    head = next((name for name in HEADS if name in loaded.model.heads), None)
    if head is None:
        has = ", ".join(loaded.checkpoint.entries) or "none"
        raise BertsmithError(
            "this model has no next-sentence or sentence-order head (it has: "
            f"{has}); models that were pre-trained with pairs of texts have one"
        )
    windows = loaded.windows(firsts, seconds)

    def compute(hidden: Hidden, batch: Batch, _: Sequence[Window]) -> list[float]:
        logits = loaded.model.heads[head](hidden, batch).float()
        chances: list[float] = logits.softmax(-1)[:, FOLLOWS].tolist()
        return chances

    chances: list[list[float]] = [[] for _ in firsts]
    outputs = yield EncoderPass(windows, compute, head)
    for window, chance in zip(windows, outputs, strict=True):
        chances[window.number].append(chance)
    return [sum(one) / len(one) for one in chances]
