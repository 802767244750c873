"""float16 with a loss scale: its logic, on a CPU, which computes float16 slowly but rightly."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from bertsmith.batch import Layout
from bertsmith.model.attend import Scores, attend, choose
from bertsmith.model.attention import Attention
from bertsmith.train import Recipe, pretrain
from bertsmith.train.compiling import reads_boundaries
from bertsmith.train.distributed import Ranks
from bertsmith.train.guard import GROWTH, OVERFLOW, LossScale
from bertsmith.train.loop import Trainer
from bertsmith.train.precision import supported
from bertsmith.train.state import Checkpoints
from bertsmith.train.step import MicroBatch, TrainingStep

CPU = torch.device("cpu")
MakeRecipe = Callable[..., Recipe]


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


@pytest.fixture
def units(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this CPU had units for float16, which are not needed for correct results."""
    monkeypatch.setattr("bertsmith.train.precision.has_float16_units", lambda: True)


def test_the_scale_halves_when_gradients_overflow_and_doubles_after_good_steps() -> None:
    scale = LossScale(8.0)
    assert scale.overflows(math.inf, 1.0)
    assert scale.overflows(math.nan, 1.0)
    assert (scale.value, scale.good) == (2.0, 0)
    assert not scale.overflows(math.nan, math.nan)  # a smaller scale does not mend a loss
    assert scale.value == 2.0
    for _ in range(GROWTH - 1):
        assert not scale.overflows(1.0, 1.0)
    assert scale.value == 2.0
    assert not scale.overflows(1.0, 1.0)
    assert (scale.value, scale.good) == (4.0, 0)
    scale.value = 1.0
    assert not scale.overflows(math.inf, 1.0)  # the guard's business: it rolls back


def step_of(scale: LossScale | None, factor: float = 1.0) -> tuple[nn.Linear, Any, TrainingStep]:
    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
    optimizer.clear = lambda: optimizer.zero_grad()  # type: ignore[attr-defined]

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            return (module(x).square().mean() * factor), {}

    given: Any = optimizer
    return module, given, TrainingStep(Whole(), given, Ranks.alone(CPU), clip=0.5, scale=scale)


def test_a_scaled_step_is_the_same_step_to_the_bit() -> None:
    """Scales are powers of 2: in float32 they round nothing, nor does the clipping."""
    both = []
    for scale in (None, LossScale()):
        module, _, step = step_of(scale)
        results = [step([MicroBatch((torch.full((4, 3), float(n)),))]) for n in range(1, 6)]
        both.append((module.weight.detach(), [one.gradient_norm for one in results]))
    assert torch.equal(both[0][0], both[1][0])
    assert both[0][1] == both[1][1]
    assert max(both[0][1]) > 0.5


def test_a_step_that_overflows_changes_nothing_but_the_scale() -> None:
    scale = LossScale(2.0**16)
    module, optimizer, step = step_of(scale, factor=1e16)  # squares end at 3.4e38
    before = module.weight.detach().clone()
    results = [step([MicroBatch((torch.ones(4, 3),))]) for _ in range(16)]
    skipped = [one.skipped for one in results]
    good = skipped.index("")
    assert good > 3  # more bad steps in a row than lead to a rollback
    assert set(skipped[:good]) == {OVERFLOW}
    assert [one.scale for one in results[: good + 1]] == [2.0 ** (16 - n) for n in range(good + 1)]
    assert step.guard.skipped == 0
    assert not torch.equal(module.weight, before)
    assert all(torch.isfinite(one).all() for one in (module.weight, module.bias))
    assert optimizer.state[module.weight]["step"] == skipped.count("")


@pytest.mark.usefixtures("units")
@pytest.mark.parametrize("checkpointing", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_run_in_float16_learns_and_resumes_with_its_scale(
    recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpointing: bool
) -> None:
    """Scales that overflow, and grow again within three steps, are those of one run in peace."""
    monkeypatch.setattr("bertsmith.train.guard.GROWTH", 3)
    monkeypatch.setattr(LossScale.__init__, "__defaults__", (2.0**24, 0))
    made = recipe(train={"precision": "float16", "steps": 16, "checkpointing": checkpointing})
    whole = pretrain(made, tmp_path / "whole", show="none")
    assert whole["precision"] == "float16"
    steps = [row for row in rows(tmp_path / "whole") if "loss" in row]
    skipped = [row for row in steps if "skipped" in row]
    assert {row["skipped"] for row in skipped} == {OVERFLOW}
    assert len({row["loss_scale"] for row in steps}) > 3
    ledger = json.loads((tmp_path / "whole" / "ledger.json").read_text())
    assert ledger[f"steps skipped because {OVERFLOW}"] == len(skipped) > 3
    assert "rollbacks after three bad steps in a row" not in ledger
    plain = pretrain(recipe(train={"steps": 16}), tmp_path / "float32", show="none")
    assert abs(plain["held_out_masked_lm"] - whole["held_out_masked_lm"]) < 0.5

    advance, seen = Trainer._advance, []

    def stopping(self: Trainer, *given: Any) -> Any:
        seen.append(1)
        if len(seen) == 7:
            self.stopped.number = 15
        return advance(self, *given)

    monkeypatch.setattr(Trainer, "_advance", stopping)
    part = tmp_path / "part"
    assert not pretrain(made, part, show="none")["finished"]
    numbers = Checkpoints(part / "checkpoints").newest()[0].numbers  # type: ignore[union-attr]
    last = [row for row in rows(part) if "loss" in row][-1]
    assert numbers["step"] == last["step"] < 16
    value, good = numbers["loss_scale"]
    assert value / last["loss_scale"] in (0.5, 1.0, 2.0)
    assert good < 3
    pretrain(made, part, resume=True, show="none")
    assert (part / "log.jsonl").read_bytes() == (tmp_path / "whole" / "log.jsonl").read_bytes()
    files = [run / "model" / "model.safetensors" for run in (part, tmp_path / "whole")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_cpu_without_units_computes_in_float32_and_says_so(
    recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertsmith.train.precision.has_float16_units", lambda: False)
    monkeypatch.setattr("bertsmith.train.precision.has_bfloat16_units", lambda: False)
    made = recipe(train={"precision": "float16", "steps": 2})
    assert pretrain(made, tmp_path / "run", show="none")["precision"] == "float32"
    ledger = json.loads((tmp_path / "run" / "ledger.json").read_text())
    assert ledger["computed in float32: this device has no float16 units"] == 1
    assert not any("loss_scale" in row for row in rows(tmp_path / "run"))


@pytest.mark.parametrize("capability", [(7, 0), (7, 5), (8, 0)])
def test_the_attention_kernel_fits_the_gpu(
    capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """V100 and T4 get torch's own attention: flash attention and Triton need Ampere."""
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda *_: capability)
    early = capability < (8, 0)
    with FakeTensorMode():
        query = torch.empty((64, 2, 64), dtype=torch.float16, device="cuda")
        attention = nn.Module()
        attention.inner = Attention.__new__(Attention)
        nn.Module.__init__(attention.inner)
        output = nn.Linear(128, 8, bias=False, device="meta")
        output.weight = nn.Parameter(torch.empty((8, 128), device="cuda"))
        attention.inner.heads, attention.inner.output = 2, output
    assert choose(query, Scores(1.0), most=0) == ("grouped" if early else "varlen")
    assert reads_boundaries(attention) is not early
    assert supported("float16", query.device) == "float16"


def test_the_kernel_of_early_gpus_is_right_in_float16() -> None:
    torch.manual_seed(0)
    layout = Layout.of([5, 17, 64, 1])
    rows = [torch.randn(layout.total, 2, 16).half() for _ in range(3)]
    found = attend(*rows, layout, Scores(0.25), kernel="grouped")
    expected = attend(*(x.double() for x in rows), layout, Scores(0.25), kernel="reference")
    assert found.dtype == torch.float16
    assert float((found.double() - expected).abs().max()) < 2e-3
