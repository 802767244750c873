"""Texts are compared with all of a step: gradients that are cached over micro-batches."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bertsmith.corpus import Corpus
from bertsmith.objectives.contrastive import TextVectors
from bertsmith.train import Recipe
from bertsmith.train.building import built, examples_of
from bertsmith.train.distributed import Ranks
from bertsmith.train.optimizer import optimizer_for
from bertsmith.train.precision import Precision
from bertsmith.train.step import MicroBatch, TrainingStep

ALONE = Ranks.alone(torch.device("cpu"))
CROPS: dict[str, Any] = {"objectives": {"contrastive": 1.0}, "data": {"format": "crops"}}


def parts_of(made: Recipe, prepared: Path, micro_tokens: int) -> tuple[Any, list[Any]]:
    """A model with its objectives, and the micro-batches of a step of 1,024 tokens."""
    corpus = Corpus.open(prepared)
    torch.manual_seed(0)
    learner = built(made, corpus.tokenizer).learner
    examples = examples_of(made, corpus, 32, 2)
    plan = examples.plan(0, tokens=1024, micro_tokens=micro_tokens)
    return learner, [examples.make(part) for part in plan.micro_batches[0]]


def gradients(learner: Any, parts: list[Any], made: Recipe) -> tuple[dict[str, Tensor], Any]:
    """The gradients of a step, and its sums."""
    counts = {"contrastive": sum(example.samples for example in parts)}
    module = ALONE.wrap(learner, "ddp", Precision.of(made.train.precision, ALONE.device))
    optimizer = optimizer_for(learner, made.train)
    step = TrainingStep(module, optimizer, ALONE, objectives=learner.objectives)
    torch.manual_seed(3)
    _, row = step._gradients([MicroBatch((example, counts)) for example in parts])
    return {name: p.grad for name, p in learner.named_parameters() if p.grad is not None}, row


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_micro_batches_are_as_one(
    recipe: Callable[..., Recipe], prepared: Path, precision: str
) -> None:
    made = recipe(**CROPS, train={"precision": precision})
    whole, one = gradients(*_still(made, prepared, 4096), made)
    parts, several = gradients(*_still(made, prepared, 200), made)
    close = 1e-5 if precision == "float32" else 2e-2
    torch.testing.assert_close(several, one, rtol=close, atol=close)
    total = torch.cat([x.flatten() for x in whole.values()])
    gap = torch.cat([x.flatten() for x in parts.values()]) - total
    assert float(gap.norm() / total.norm()) < close


def _still(made: Recipe, prepared: Path, micro_tokens: int) -> tuple[Any, list[Any]]:
    learner, parts = parts_of(made, prepared, micro_tokens)
    assert len(parts) == 1 if micro_tokens > 1024 else len(parts) > 3
    return learner.eval(), parts


def test_both_passes_draw_the_same_dropout(recipe: Callable[..., Recipe], prepared: Path) -> None:
    """Cached gradients are those of one graph over all micro-batches."""
    made = recipe(**CROPS)
    learner, parts = parts_of(made, prepared, 200)
    assert learner.training
    cached, row = gradients(learner, parts, made)
    cached = {name: one.clone() for name, one in cached.items()}
    learner.zero_grad()
    torch.manual_seed(3)
    texts = TextVectors(*map(torch.cat, zip(*(learner(one, None) for one in parts), strict=True)))
    loss, correct = learner.objectives[0].losses(texts)
    (loss / len(texts.vectors)).backward()
    for name, parameter in learner.named_parameters():
        if name in cached:
            torch.testing.assert_close(cached[name], parameter.grad, rtol=1e-4, atol=1e-6)
    values = [loss / len(texts.vectors), loss, correct.float()]
    torch.testing.assert_close(row, torch.stack(values).detach())
