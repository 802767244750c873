"""Counted operations are those that really run, by torch's own counter."""

from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from bertsmith.checkpoint import create
from bertsmith.families import preset
from bertsmith.train import load_recipe
from bertsmith.train.building import built
from bertsmith.train.flops import encoder_flops, head_flops, training_flops, visible_keys
from bertsmith.train.planning import random_example

LENGTH, SEQUENCES, VOCABULARY = 16, 3, 512
SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "vocab_size": VOCABULARY,
}
MORE: dict[str, dict[str, Any]] = {
    "albert-base-v2": {"embedding_size": 16},
    "electra-small": {"embedding_size": 16},
    "distilbert-base-uncased": {"dim": 32, "n_layers": 3, "n_heads": 2, "hidden_dim": 48},
    "deberta-v2-xlarge": {"conv_kernel_size": 3, "conv_act": "gelu"},
}
SIZES = ["bert-tiny", "roberta-base", "albert-base-v2", "distilbert-base-uncased"]
SIZES += ["electra-small", "deberta-base", "deberta-v2-xlarge", "deberta-v3-small"]
SIZES += ["modernbert-base"]


class Sized:
    """A tokenizer without words."""

    pad_id = cls_id = sep_id = None
    size = VOCABULARY


def counted(run: Any) -> int:
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


@pytest.mark.parametrize("size", SIZES)
def test_a_forward_pass_of_every_family(size: str) -> None:
    checkpoint = create({**preset(size), **SMALL, **MORE.get(size, {})}, heads=["masked_lm"])
    model = checkpoint.model
    example = random_example(SEQUENCES, LENGTH, load_recipe("tiny-bert"), VOCABULARY)
    with torch.no_grad():
        ran = counted(lambda: model(example.batch, "masked_lm", example.rows))
    expected = encoder_flops(model.encoder, LENGTH, SEQUENCES)
    head = model.heads["masked_lm"]
    expected += head_flops(head, len(example.rows), model.encoder, LENGTH, SEQUENCES)
    assert ran == expected


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [
        ("tiny-bert", []),
        ("tiny-roberta", []),
        ("tiny-albert", []),
        ("tiny-electra", []),
        ("tiny-electra", ["objectives.masked_lm=1.0", "generator.fills=0.5"]),
        ("tiny-electra", ["objectives.masked_lm=1.0"]),
        ("tiny-electra", ["objectives.sentence_order=1.0", "data.format=order"]),
        ("tiny-deberta-v3", []),
        ("tiny-modernbert", []),
        ("tiny-bert-left-to-right", []),
    ],
)
def test_a_training_step_of_every_objective(recipe: str, changes: list[str]) -> None:
    sizes = [f"model.settings.{key}=32" for key in ("hidden_size", "intermediate_size")]
    resolved = load_recipe(recipe, [*sizes, *changes])
    learner = built(resolved, Sized()).learner  # type: ignore[arg-type]
    example = random_example(SEQUENCES, LENGTH, resolved, VOCABULARY)

    def step() -> None:
        learner(example, learner.counts(example))[0].backward()

    tokens = SEQUENCES * LENGTH
    masked = len(example.rows) / tokens
    expected = training_flops(learner, LENGTH, tokens=tokens, masked=masked) * tokens
    # Which masked tokens are left to predict depends on how many each sequence has.
    exact = resolved.generator.fills == 1
    assert counted(step) == pytest.approx(expected, rel=1e-12 if exact else 0.1)


def test_local_attention_sees_its_window() -> None:
    for length, window in ((5, 8), (9, 8), (10, 8), (40, 8), (7, 0)):
        seen = sum(abs(i - j) <= window for i in range(length) for j in range(length))
        assert visible_keys(length, window) == pytest.approx(seen / length)
    assert visible_keys(7, None) == 7
    settings = {**preset("modernbert-base"), **SMALL, "local_attention": 8}
    encoder = create(settings).model.encoder
    example = random_example(SEQUENCES, LENGTH, load_recipe("tiny-bert"), VOCABULARY)
    with torch.no_grad():
        ran = counted(lambda: encoder(example.batch))
    # The kernel computes whole tiles of scores, of which those outside the window are masked.
    assert encoder_flops(encoder, LENGTH, SEQUENCES) < ran
