"""Packed linear layers are linear layers: same outputs, same names, never stale."""

import copy

import pytest
import torch
from torch import nn

from bertsmith.batch import Batch
from bertsmith.checkpoint import create
from bertsmith.cpu.packed import PackedLinear, can_pack, prepare

pytestmark = pytest.mark.skipif(not can_pack(), reason="this torch has no packed linear layers")
TINY = {"model_type": "bert", "vocab_size": 50, "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": 128}  # fmt: skip


def packed_layer() -> PackedLinear:
    torch.manual_seed(0)
    layer = nn.Sequential(nn.Linear(64, 96)).bfloat16()
    prepare(layer)
    assert isinstance(layer[0], PackedLinear)
    return layer[0]


@pytest.mark.parametrize("rows", [1, 7, 64, 300])
def test_same_outputs(rows: int) -> None:
    layer, x = packed_layer(), torch.randn(rows, 64).bfloat16()
    plain = layer(x)
    with torch.inference_mode():
        assert torch.allclose(layer(x), plain, atol=0.02)


def test_uses_the_packed_weight_only_while_it_is_fresh() -> None:
    layer, x = packed_layer(), torch.randn(5, 64).bfloat16()
    assert layer.packed is not None
    with torch.no_grad():
        layer.weight.mul_(2)
    with torch.inference_mode():
        assert torch.allclose(
            layer(x), nn.functional.linear(x, layer.weight, layer.bias), atol=0.05
        )


def test_copies_casts_and_trains() -> None:
    layer = packed_layer()
    twin = copy.deepcopy(layer)
    assert twin.packed is None
    assert torch.equal(twin.weight, layer.weight)
    with torch.inference_mode():
        assert copy.deepcopy(layer).float()(torch.randn(2, 64)).dtype == torch.float32
    layer(torch.randn(2, 64).bfloat16()).sum().backward()
    assert layer.weight.grad is not None


def test_a_whole_model() -> None:
    model = create(TINY).model.bfloat16()
    batch = Batch.of([[1, 2, 3], [4, 5], list(range(40))])
    names = [name for name, _ in model.named_parameters()]
    with torch.inference_mode():
        before = model(batch, "masked_lm")
        prepare(model)
        assert sum(isinstance(module, PackedLinear) for module in model.modules()) > 8
        assert torch.allclose(model(batch, "masked_lm"), before, atol=0.02)
    assert [name for name, _ in model.named_parameters()] == names


@pytest.mark.parametrize("act", ["gelu", "gelu_new", "relu"])
def test_feed_forward_does_its_activation_once(act: str) -> None:
    model = create({**TINY, "hidden_act": act, "initializer_range": 0.08}).model.bfloat16()
    batch = Batch.of([list(range(40)), [3]])
    with torch.inference_mode():
        before = model.encoder(batch).last
        prepare(model)
        after = model.encoder(batch).last
    assert torch.allclose(after, before, atol=0.1)
    assert torch.allclose(model.encoder(batch).last, before, atol=0.1)  # and outside inference
    assert (before - model.double().encoder(batch).last).abs().max() < 0.2


def test_float32_is_left_alone() -> None:
    model = create(TINY).model
    prepare(model)
    assert not any(isinstance(module, PackedLinear) for module in model.modules())
