"""Optimizers against torch's, and against their papers written out; schedules."""

import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bertsmith.train import optimizer as module
from bertsmith.train.guard import ENOUGH, Guard
from bertsmith.train.optimizer import (
    OPTIMIZERS,
    Lamb,
    Muon,
    StableAdamW,
    newton_schulz,
    newton_schulz_by_gram,
    optimizer_for,
    rate_at,
)


def options(**changes: Any) -> Any:
    base = {
        "optimizer": "adamw",
        "learning_rate": 0.01,
        "matrix_learning_rate": 0.02,
        "weight_decay": 0.1,
        "betas": (0.9, 0.99),
        "epsilon": 1e-6,
        "precision": "float32",
        "layer_decay": 1.0,
    }
    return SimpleNamespace(**{**base, **changes})


SHAPES = ((4, 3), (1, 5), (3,))


def walked(kind: Any, steps: int = 6, **more: Any) -> list[list[Tensor]]:
    """The weights of three tensors after each step, with gradients that grow."""
    weights = [nn.Parameter(weight) for weight in drawn(0)]
    optimizer = kind(weights, lr=0.02, betas=(0.9, 0.99), eps=1e-6, **more)
    path = []
    for step in range(1, steps + 1):
        for weight, gradient in zip(weights, drawn(step), strict=True):
            weight.grad = gradient * step**2
        optimizer.step()
        path.append([weight.detach().clone() for weight in weights])
    return path


def drawn(seed: int) -> list[Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=random) for shape in SHAPES]


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("adapt", [True, False])
def test_lamb_is_algorithm_2_of_its_paper(decay: float, adapt: bool) -> None:
    """You et al. 2020, with φ(x) = x; without adaptation the ratio is 1."""
    path = walked(Lamb, weight_decay=decay, adapt=adapt)
    for which, x in enumerate(drawn(0)):
        m = v = torch.zeros_like(x)
        for t, weights in enumerate(path, 1):
            g = drawn(t)[which] * t**2
            m = 0.9 * m + (1 - 0.9) * g
            v = 0.99 * v + (1 - 0.99) * g**2
            r = (m / (1 - 0.9**t)) / ((v / (1 - 0.99**t)).sqrt() + 1e-6)
            update = r + decay * x
            ratio = x.norm() / update.norm() if adapt else 1.0
            x = x - 0.02 * ratio * update
            torch.testing.assert_close(weights[which], x)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_stable_adamw_is_algorithm_2_of_its_paper(decay: float) -> None:
    """Wortsman et al. 2023: the corrected betas debias the averages."""
    path = walked(StableAdamW, weight_decay=decay)
    clipped = 0
    for which, theta in enumerate(drawn(0)):
        v = u = torch.zeros_like(theta)
        for t, weights in enumerate(path, 1):
            g = drawn(t)[which] * t**2
            beta1 = 0.9 * (1 - 0.9 ** (t - 1)) / (1 - 0.9**t)
            beta2 = 0.99 * (1 - 0.99 ** (t - 1)) / (1 - 0.99**t)
            v = beta1 * v + (1 - beta1) * g
            u = beta2 * u + (1 - beta2) * g**2
            rms = float((g**2 / u.clamp(min=1e-6**2)).mean().sqrt())
            clipped += rms > 1.1
            eta = 0.02 / max(1.0, rms)
            theta = theta - eta * decay * theta - eta * v / (u.sqrt() + 1e-6)
            torch.testing.assert_close(weights[which], theta)
    assert clipped > 5


def test_lamb_adapts_matrices_without_decay_too() -> None:
    """The trust ratio does not hang on weight decay."""
    model = nn.Linear(4, 4)
    optimizer = optimizer_for(model, options(optimizer="lamb", weight_decay=0.0))
    before = model.weight.detach().clone(), model.bias.detach().clone()
    model(torch.randn(8, 4)).square().sum().backward()
    optimizer.step()
    moved = (model.weight.detach() - before[0]).norm() / before[0].norm()
    assert float(moved) == pytest.approx(0.01, rel=1e-3)  # the learning rate, of the weights' norm
    assert torch.allclose((model.bias - before[1]).abs(), torch.tensor(0.01), rtol=1e-3)


def test_weights_of_zero_are_not_adapted() -> None:
    weight = nn.Parameter(torch.zeros(2, 2))
    weight.grad = torch.ones(2, 2)
    Lamb([weight], lr=0.1).step()
    assert torch.allclose(weight, torch.tensor(-0.1), atol=1e-4)


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
    def walk(kind: Any) -> list[Tensor]:
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

    def walk(apart: bool) -> list[Tensor]:
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


@pytest.mark.parametrize(
    ("given", "used"),
    [(None, torch.float32), (torch.bfloat16, torch.bfloat16), (torch.float64, torch.float64)],
)
def test_muon_computes_in_the_precision_it_is_given(
    given: torch.dtype | None, used: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def spy(matrices: Tensor, group: Any) -> Tensor:
        seen.append(matrices.dtype)
        return matrices

    monkeypatch.setattr(module, "orthogonalise", spy)
    weight = nn.Parameter(torch.randn(3, 4))
    weight.grad = torch.randn(3, 4)
    Muon([weight], compute_dtype=given).step()
    assert seen == [used]


@pytest.mark.parametrize("units", [True, False])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_pretraining_in_float32_keeps_muon_in_float32_on_a_cpu(
    precision: str, units: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "has_matrix_units", lambda: units)
    net = nn.Module()
    net.blocks = nn.ModuleList([nn.Linear(4, 4)])  # type: ignore[assignment]
    muon, _ = optimizer_for(net, options(optimizer="muon", precision=precision)).optimizers
    half = precision == "bfloat16" and units
    assert muon.compute_dtype is (torch.bfloat16 if half else None)  # type: ignore[attr-defined]
    muon, _ = optimizer_for(net, options(optimizer="muon"), half=True).optimizers  # fine-tuning
    assert muon.compute_dtype is (torch.bfloat16 if units else None)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def weights_of_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that optimizer_ranks.py writes, with one for each number of processes."""
    folder = tmp_path_factory.mktemp("ranks")
    script = Path(__file__).with_name("optimizer_ranks.py")
    done = subprocess.run(
        [sys.executable, str(script), str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("world", ["2", "4"])
@pytest.mark.parametrize("how", ["ddp", "fsdp"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_many_processes_give_the_weights_of_one(
    name: str, how: str, world: str, weights_of_ranks: Path
) -> None:
    folder = weights_of_ranks / world
    alone, other = (torch.load(folder / f"{name}-{way}.pt") for way in ("alone", how))
    for parameter, weight in alone.items():
        error = (other[parameter] - weight).norm() / weight.norm()
        assert float(error) < 1e-6, parameter


@pytest.mark.parametrize("name", ["linear", "cosine", "stable", "constant"])
def test_schedules_rise_and_stay_in_bounds(name: str) -> None:
    rates = [rate_at(name, done / 1000, 0.1, 0.2) for done in range(1001)]
    assert rates[0] == 0
    assert rates[100] == pytest.approx(1.0)
    assert rates[:101] == sorted(rates[:101])
    assert rates[100:] == sorted(rates[100:], reverse=True)
    assert rates[-1] == pytest.approx(1.0 if name == "constant" else 0.0)
    assert rate_at(name, 7.0, 0.1, 0.2) == rates[-1]


def test_schedules_at_known_places() -> None:
    assert rate_at("linear", 0.55, 0.1, 0.2) == pytest.approx(0.5)
    assert rate_at("cosine", 0.55, 0.1, 0.2) == pytest.approx(0.5)
    assert rate_at("stable", 0.79, 0.1, 0.2) == 1.0
    assert rate_at("stable", 0.85, 0.1, 0.2) == pytest.approx(1 - math.sqrt(0.25))


def test_what_may_not_reach_the_weights() -> None:
    usual = [1.0, 2.0, 3.0] * ENOUGH
    assert Guard(20, usual).check(1.0, 1.0) == ""
    assert "not a number" in Guard(20, usual).check(1.0, math.nan)
    assert "not numbers" in Guard(20, usual).check(math.inf, 1.0)
    assert "20 times" in Guard(20, usual).check(41.0, 1.0)
    assert Guard(20, usual).check(39.0, 1.0) == ""
    assert Guard(20, usual[: ENOUGH - 1]).check(1e9, 1.0) == ""
