"""Gradients in half precision are those of float32, in every family, objective and on ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bertsmith.corpus import Corpus
from bertsmith.examples import Example
from bertsmith.objectives import replaced
from bertsmith.train import Recipe
from bertsmith.train.building import Built, built, examples_of
from bertsmith.train.precision import Precision, slots_of, supported
from model.tiny import TINY
from sampled import sampled
from train.test_pretrain import OBJECTIVES

CPU = torch.device("cpu")
HALF = Precision.of("bfloat16", CPU)
# Gradients below this share of all are compared with the share: of some parameters, such as the
# bias of a key projection, the true gradient is 0.
FLOOR = 1e-3


@pytest.fixture
def same_draws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replaced tokens: the generator's choices, made by rounded logits, would differ."""
    drawn: list[Tensor] = []
    sample = replaced.sample

    def again(logits: Tensor, temperature: float = 1.0) -> Tensor:
        drawn.append(sample(logits, temperature))
        return drawn[0]

    monkeypatch.setattr(replaced, "sample", again)
    yield
    assert len(drawn) in (0, 2, 3)  # in float32, and once or twice in half precision


def small(recipe: Callable[..., Recipe], family: str, objective: str) -> Recipe:
    """A small model of a family, with weights as they are drawn by default."""
    given = TINY[family].items()
    settings = {k: v for k, v in given if k not in ("vocab_size", "initializer_range")}
    settings |= {"is_decoder": True} if objective == "left to right" else {}
    return recipe(model={"size": "bert-tiny", "settings": settings}, **OBJECTIVES[objective])


def example_of(made: Recipe, parts: Built, prepared: Path, tokens: int) -> Example:
    examples = examples_of(made, Corpus.open(prepared), 32, parts.checkpoint.config.segments)
    return examples.make(examples.plan(0, tokens=tokens, micro_tokens=tokens).samples, fill=64)


def gradients(
    module: nn.Module, example: Example, counts: Any, scale: float = 1.0
) -> dict[str, Tensor]:
    """Those of a scaled loss, divided by the scale."""
    module.zero_grad()
    torch.manual_seed(0)
    loss, _ = module(example, counts)
    (loss * scale).backward()
    named = module.named_parameters()
    return {n.removeprefix("inner."): p.grad / scale for n, p in named if p.grad is not None}


def errors(half: dict[str, Tensor], whole: dict[str, Tensor]) -> dict[str, float]:
    """The relative L2 error of each parameter's gradient."""
    assert half.keys() == whole.keys()
    total = float(torch.stack([one.norm() for one in whole.values()]).norm())
    return {
        name: float((half[name] - one).norm()) / max(float(one.norm()), FLOOR * total)
        for name, one in whole.items()
    }


def learner_and_example(made: Recipe, prepared: Path) -> tuple[nn.Module, Any, Any]:
    """The learner of a recipe, an example for it, and the counts of its predictions."""
    parts = built(made, Corpus.open(prepared).tokenizer)
    learner = parts.learner.eval()
    example = example_of(made, parts, prepared, 1000)
    return learner, example, learner.counts(example)


@pytest.mark.usefixtures("same_draws")
@pytest.mark.parametrize("family", TINY)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_half_precision_changes_no_gradient_by_much(
    family: str, objective: str, recipe: Callable[..., Recipe], prepared: Path
) -> None:
    learner, example, counts = learner_and_example(small(recipe, family, objective), prepared)
    whole = gradients(learner, example, counts)
    found = errors(gradients(HALF.wrap(learner), example, counts), whole)
    assert max(found.values()) < 0.02, sorted(found.items(), key=lambda one: -one[1])[:5]


CASES = [(family, objective) for family in TINY for objective in OBJECTIVES]
QUICK = {("bert", "masked"), ("bert", "replaced"), ("deberta", "next"), ("modernbert", "crops")}


@pytest.mark.usefixtures("same_draws")
@pytest.mark.parametrize(("family", "objective"), sampled(CASES, QUICK))
def test_gradients_of_a_scaled_loss_in_float16_are_nearer(
    family: str, objective: str, recipe: Callable[..., Recipe], prepared: Path
) -> None:
    """float16 has three bits more than bfloat16, and a scale keeps gradients in its range."""
    learner, example, counts = learner_and_example(small(recipe, family, objective), prepared)
    whole = gradients(learner, example, counts)
    half = Precision.of("float16", CPU).wrap(learner)
    scaled, plain = (gradients(half, example, counts, scale) for scale in (4096.0, 1.0))
    most, without = (max(errors(one, whole).values()) for one in (scaled, plain))
    assert most < 0.003
    assert without > most


def test_a_small_mean_over_many_rows_is_not_lost() -> None:
    """16,384 rows whose gradients nearly cancel out: a LayerNorm's bias was off by 69%."""
    torch.manual_seed(0)
    norm = nn.LayerNorm(8)
    rows = torch.randn(16_384, 8)
    pull = torch.randn(16_384, 8) + 0.05
    both = []
    for module, dtype in ((norm, torch.float32), (HALF.wrap(norm), torch.bfloat16)):
        norm.zero_grad()
        module(rows.to(dtype)).backward(pull.to(dtype))
        both.append([p.grad.clone() for p in norm.parameters() if p.grad is not None])
    for whole, half in zip(*both, strict=True):
        assert float((half - whole).norm() / whole.norm()) < 0.005


def test_the_policy_says_what_stays_in_float32() -> None:
    gpu = Precision.of("bfloat16", torch.device("cuda"))
    table, norm, dense = nn.Embedding(4, 2), nn.LayerNorm(2), nn.Linear(2, 2)
    module = nn.ModuleList([table, norm, dense])
    assert HALF.exact(module) == {table: True, norm: True}
    assert gpu.exact(module) == {}
    assert slots_of(module.named_modules(), HALF.exact(module)).keys() == {"2.weight", "2.bias"}
    assert Precision.of("float32", CPU).wrap(module) is module


def test_emulated_bfloat16_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertsmith.train.precision.has_bfloat16_units", lambda: False)
    assert supported("bfloat16", CPU) == "float32"
    monkeypatch.setattr("bertsmith.train.precision.is_ampere", lambda device: True)
    assert supported("bfloat16", torch.device("cuda")) == "bfloat16"
    assert supported("fp8", CPU) == "float32"
    monkeypatch.setattr("bertsmith.train.precision.has_bfloat16_units", lambda: True)
    assert supported("bfloat16", CPU) == supported("fp8", CPU) == "bfloat16"
    monkeypatch.setattr("bertsmith.train.precision.has_float8", lambda device: True)
    assert supported("fp8", torch.device("cuda")) == "fp8"
