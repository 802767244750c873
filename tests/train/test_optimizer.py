"""Optimizers against torch's, and against their papers written out; schedules."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from bertsmith.train.guard import ENOUGH, fault
from bertsmith.train.optimizer import (
    Lamb,
    Muon,
    StableAdamW,
    newton_schulz,
    newton_schulz_by_gram,
    optimizer_for,
)
from bertsmith.train.schedule import SCHEDULES, Shape, rate_at


def options(**changes: Any) -> Any:
    base = {
        "optimizer": "adamw",
        "learning_rate": 0.01,
        "matrix_learning_rate": 0.02,
        "weight_decay": 0.1,
        "betas": (0.9, 0.99),
        "epsilon": 1e-6,
    }
    return SimpleNamespace(**{**base, **changes})


def walked(kind: Any, steps: int = 5, **more: Any) -> list[torch.Tensor]:
    """The weights of a tiny regression after some steps."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(4, 3))
    data = torch.randn(10, 3), torch.randn(10, 4)
    optimizer = kind([weight], lr=0.01, betas=(0.9, 0.99), eps=1e-6, **more)
    path = []
    for _ in range(steps):
        optimizer.zero_grad()
        ((data[0] @ weight.T - data[1]) ** 2).sum().backward()
        optimizer.step()
        path.append(weight.detach().clone())
    return path


def test_lamb_is_adam_scaled_by_the_weights() -> None:
    """Written out from the paper, with numbers instead of tensors in place."""
    torch.manual_seed(0)
    weight = torch.randn(4, 3)
    x, y = torch.randn(10, 3), torch.randn(10, 4)
    m = v = torch.zeros(4, 3)
    for step, found in enumerate(walked(Lamb, weight_decay=0.1), 1):
        gradient = 2 * (weight @ x.T - y.T) @ x
        m, v = 0.9 * m + 0.1 * gradient, 0.99 * v + 0.01 * gradient**2
        r = (m / (1 - 0.9**step)) / ((v / (1 - 0.99**step)).sqrt() + 1e-6)
        update = r + 0.1 * weight
        weight = weight - 0.01 * weight.norm() / update.norm() * update
        assert torch.allclose(found, weight, atol=1e-5)


def test_stable_adamw_is_adamw_while_gradients_are_usual() -> None:
    plain, stable = (walked(kind, 1, weight_decay=0.1) for kind in (torch.optim.AdamW, StableAdamW))
    assert torch.allclose(plain[0], stable[0], atol=1e-6)


def test_stable_adamw_takes_shorter_steps_when_gradients_grow() -> None:
    def last_step(kind: Any) -> float:
        weight = nn.Parameter(torch.zeros(1))
        optimizer = kind([weight], lr=0.1, betas=(0.0, 0.99), eps=1e-6, weight_decay=0.0)
        for size in [1.0] * 50 + [10.0]:
            weight.grad = torch.tensor([size])
            before = weight.item()
            optimizer.step()
        return before - weight.item()

    # Adam's step is g / rms = 10 / sqrt(1 + 0.99 / ...) , StableAdamW's is 1 / that root shorter.
    assert last_step(torch.optim.AdamW) > 2.5 * last_step(StableAdamW)
    assert last_step(StableAdamW) == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize("name", ["adamw", "lamb", "stable_adamw", "muon"])
def test_every_optimizer_learns_and_spares_biases_from_decay(name: str) -> None:
    torch.manual_seed(0)
    model = nn.Module()
    model.blocks = nn.ModuleList([nn.Linear(8, 8)])  # type: ignore[assignment]
    model.head = nn.Linear(8, 2)
    rate = 0.1 if name == "lamb" else 0.01  # LAMB's is a share of the weights
    optimizer = optimizer_for(model, options(optimizer=name, learning_rate=rate))
    seen = [p for one in optimizer.optimizers for g in one.param_groups for p in g["params"]]
    assert {id(p) for p in seen} == {id(p) for p in model.parameters()}
    for one in optimizer.optimizers:
        for group in one.param_groups:
            for parameter in group["params"]:
                assert (group["weight_decay"] > 0) == (parameter.ndim > 1)
    x, y = torch.randn(64, 8), torch.randint(0, 2, (64,))
    losses = []
    for _ in range(60):
        loss = nn.functional.cross_entropy(model.head(model.blocks[0](x).tanh()), y)  # type: ignore[index]
        losses.append(loss.item())
        optimizer.clear()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.8 * losses[0]


def test_muon_takes_the_matrices_of_blocks_only() -> None:
    model = nn.Module()
    model.blocks = nn.ModuleList([nn.Linear(8, 8)])  # type: ignore[assignment]
    model.table = nn.Embedding(5, 8)
    muon, adamw = optimizer_for(model, options(optimizer="muon")).optimizers
    assert [p.shape for p in muon.param_groups[0]["params"]] == [(8, 8)]
    assert sum(len(g["params"]) for g in adamw.param_groups) == 2


def test_muon_is_torchs() -> None:
    def walk(kind: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        weights = [nn.Parameter(torch.randn(shape)) for shape in ((6, 4), (4, 6), (6, 4))]
        optimizer = kind(weights, lr=0.1, weight_decay=0.1, momentum=0.95, nesterov=True)
        for _ in range(4):
            for weight in weights[:2]:  # the third has no gradient
                weight.grad = torch.randn(weight.shape)
            optimizer.step()
        return [weight.detach() for weight in weights]

    # torch rounds to bfloat16 on the way: three digits.
    torch.testing.assert_close(walk(Muon), walk(torch.optim.Muon), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 8, 40), (1, 24, 200)])
@pytest.mark.parametrize("lowest", [0.0, -4.0])  # powers of ten of the smallest stretch
def test_fewer_products_give_the_same_steps(shape: tuple[int, ...], lowest: float) -> None:
    torch.manual_seed(0)
    stretch = torch.logspace(0, lowest, shape[-2])[:, None]
    wide = stretch * torch.linalg.qr(torch.randn(shape[0], shape[-1], shape[-2])).Q.mT
    wide = wide / wide.norm(dim=(-2, -1), keepdim=True)
    given = ((3.4445, -4.7750, 2.0315), 5)
    exact = newton_schulz(wide.double(), *given)
    torch.testing.assert_close(newton_schulz_by_gram(wide.double(), *given), exact)
    torch.testing.assert_close(
        newton_schulz_by_gram(wide, *given).double(), exact, rtol=0, atol=1e-3
    )
    if lowest == 0:
        ends = torch.linalg.svdvals(newton_schulz_by_gram(wide, *given))
        assert 0.6 < ends.min() <= ends.max() < 1.3


def test_muon_of_several_groups_is_several_muons() -> None:
    torch.manual_seed(0)
    start = [torch.randn(shape) for shape in ((6, 4), (4, 6), (6, 4))]
    grads = [torch.randn(weight.shape) for weight in start]
    parts = [{"lr": 0.1, "weight_decay": 0.5}, {"lr": 0.01}, {"lr": 0.003, "weight_decay": 0.0}]

    def walk(apart: bool) -> list[torch.Tensor]:
        weights = [nn.Parameter(weight.clone()) for weight in start]
        given = [{"params": [w], **part} for w, part in zip(weights, parts, strict=True)]
        for groups in [[one] for one in given] if apart else [given]:
            optimizer = Muon(groups, momentum=0.95, nesterov=True)
            for _ in range(3):
                for weight, grad in zip(weights, grads, strict=True):
                    weight.grad = grad.clone()
                optimizer.step()
        return [weight.detach() for weight in weights]

    torch.testing.assert_close(walk(apart=True), walk(apart=False))


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_rise_and_stay_in_bounds(name: str) -> None:
    shape = Shape(warmup=0.1, decay=0.2)
    rates = [rate_at(name, done / 1000, shape) for done in range(1001)]
    assert rates[0] == 0
    assert rates[100] == pytest.approx(1.0)
    assert rates[:101] == sorted(rates[:101])
    assert rates[100:] == sorted(rates[100:], reverse=True)
    assert rates[-1] == pytest.approx(1.0 if name == "constant" else 0.0)
    assert rate_at(name, 7.0, shape) == rates[-1]


def test_schedules_at_known_places() -> None:
    shape = Shape(warmup=0.1, decay=0.2)
    assert rate_at("linear", 0.55, shape) == pytest.approx(0.5)
    assert rate_at("cosine", 0.55, shape) == pytest.approx(0.5)
    assert rate_at("stable", 0.79, shape) == 1.0
    assert rate_at("stable", 0.85, shape) == pytest.approx(1 - math.sqrt(0.25))


def test_what_may_not_reach_the_weights() -> None:
    usual = [1.0, 2.0, 3.0] * ENOUGH
    assert fault(1.0, 1.0, usual, 20) == ""
    assert "not a number" in fault(1.0, math.nan, usual, 20)
    assert "not numbers" in fault(math.inf, 1.0, usual, 20)
    assert "20 times" in fault(41.0, 1.0, usual, 20)
    assert fault(39.0, 1.0, usual, 20) == ""
    assert fault(1e9, 1.0, usual[: ENOUGH - 1], 20) == ""
