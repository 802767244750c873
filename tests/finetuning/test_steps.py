"""Steps as a GPU replays them: the same steps, whatever is added to batches.

Without a GPU the same code computes them one after the other.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertsmith import BertsmithError
from bertsmith.batch import Batch, Layout
from bertsmith.finetuning import settings_for, tuning
from bertsmith.finetuning.batches import PaddedInputs, TaskLoss, _kernel, padded_lengths
from bertsmith.finetuning.setup import open_fresh
from bertsmith.tasks.read import read_data
from bertsmith.tasks.registry import task_named
from bertsmith.train import compiling
from bertsmith.train.captured import CapturedStep, pack, unpack
from bertsmith.train.distributed import Ranks
from bertsmith.train.optimizer import optimizer_for
from finetuning.conftest import Write, labelled, train
from finetuning.test_words import asked, chosen, sentences, stored
from tasks.models import Maker

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SOON: dict[str, Any] = {"learning_rate": 1e-3, "epochs": 1, "batch_size": 8, "warmup": 0.0}


def data(task: str, write: Write, tmp_path: Path) -> Path:
    """A small file of a task."""
    near = [
        {"sentence1": f"the {n} bees", "sentence2": "a storm", "score": n % 5} for n in range(24)
    ]
    pairs = [
        {"anchor": f"the {n}", "positive": f"a {n}", **({"negative": "bees"} if n % 2 else {})}
        for n in range(24)
    ]
    several = [{"text": f"{n} bees", "labels": ["a", "b"][: n % 3]} for n in range(24)]
    rows = {
        "classification": labelled(24),
        "multilabel": several,
        "regression": [{"text": row["sentence1"], "score": row["score"]} for row in near],
        "tagging": sentences(24),
        "choice": chosen(24),
        "similarity": near,
        "contrast": pairs,
    }
    if task == "answering":
        return stored(tmp_path / "q.json", asked(8))
    return write("t.jsonl", rows[task])


def trained(
    captured: bool,
    folder: Path,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    task: str,
    **more: Any,
) -> tuple[list[float], list[torch.Tensor]]:
    """Losses and weights after some steps, captured or not."""
    settings = settings_for(task, **{**SOON, **more})
    training = task_named(task).training(read_data(file, task=task), settings)
    bert = open_fresh(folder, training, settings, DEVICE)
    monkeypatch.setattr(tuning, "can_replay", lambda *_: captured)
    history = train(bert, training, training.samples(bert, training.dataset.gold()), settings, None)
    assert history.steps == len(history.losses) == history.planned
    return history.losses, [parameter.detach().cpu() for parameter in bert.model.parameters()]


TASKS = ["classification", "multilabel", "regression", "tagging", "answering", "choice"]


@pytest.mark.parametrize(
    ("task", "more"),
    [
        *((task, {}) for task in (*TASKS, "similarity", "contrast")),
        ("classification", {"optimizer": "muon", "layer_decay": 0.9, "clip": 0.01}),
        ("tagging", {"freeze": "1", "class_weights": "balanced", "focal": 1.0, "smoothing": 0.1}),
        ("choice", {"smoothing": 0.2}),
        ("classification", {"budget": 60}),
        ("classification", {"dtype": "bfloat16"}),
    ],
)
def test_captured_steps_are_the_same_steps(
    task: str, more: Any, base: Maker, write: Write, tmp_path: Path, monkeypatch: Any
) -> None:
    folder, file = base().folder, data(task, write, tmp_path)
    name = {"contrast": "similarity"}.get(task, task)
    losses, weights = trained(False, folder, file, monkeypatch, name, **more)
    again, same = trained(True, folder, file, monkeypatch, name, **more)
    half = "dtype" in more
    assert again == pytest.approx(losses, abs=2e-2 if half else 2e-4)
    gaps = torch.cat([(a - b).abs().flatten() for a, b in zip(weights, same, strict=True)])
    # Adam turns rounding into small steps.
    assert float(gaps.quantile(0.999)) < (4e-3 if half else 2e-4)


@pytest.mark.parametrize("family", ["deberta-v2", "modernbert", "albert"])
def test_captured_steps_of_a_family(
    family: str, base: Maker, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, file = base(family).folder, write("t.jsonl", labelled(24))
    one, _ = trained(False, folder, file, monkeypatch, "classification")
    two, _ = trained(True, folder, file, monkeypatch, "classification")
    assert two == pytest.approx(one, abs=1e-3)


def test_captured_steps_with_relative_positions_in_half_precision(
    base: Maker, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads are so wide that a GPU uses the kernel 'relative', without a padded grid."""
    folder = base("deberta-v2", hidden_size=64).folder
    file, more = write("t.jsonl", labelled(64)), {"dtype": "bfloat16", "epochs": 3}
    one, _ = trained(False, folder, file, monkeypatch, "classification", **more)
    two, _ = trained(True, folder, file, monkeypatch, "classification", **more)
    assert two == pytest.approx(one, abs=3e-2)


@pytest.mark.parametrize("runs", [True, False])
def test_a_grid_is_made_only_if_lengths_are_needed(
    runs: bool, base: Maker, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "runs_relative", lambda *_: runs)
    settings = settings_for("classification", **SOON, dtype="bfloat16")
    training = task_named("classification").training(
        read_data(write("t.jsonl", labelled(16))), settings
    )
    bert = open_fresh(base("deberta-v2").folder, training, settings, "cpu")
    samples = training.samples(bert, training.dataset.gold())
    padded = PaddedInputs(bert, training, half=True)
    inputs = padded([item for sample in samples for item in sample], 1.0)
    batch = inputs.build(inputs.tensors)[0].batch
    assert (batch.layout.padded is None) is runs


def test_what_is_not_a_number_changes_nothing(base: Maker, write: Write) -> None:
    settings = settings_for("classification", **SOON, optimizer="muon")
    file = write("t.jsonl", labelled(16))
    training = task_named("classification").training(read_data(file), settings)
    bert = open_fresh(base().folder, training, settings, "cpu")
    samples = training.samples(bert, training.dataset.gold())
    padded, learner = PaddedInputs(bert, training, half=False), TaskLoss(bert.model, training)
    train = tuning.Tuning(bert, training, samples, settings)._train_part(settings, 100)
    run = CapturedStep(learner, optimizer_for(learner, train), bert.device)
    items = [item for sample in samples for item in sample]
    bert.model.train()
    output = bert.model.heads["classify"].output
    assert isinstance(output, torch.nn.Linear)
    good, numbers = output.bias.detach().clone(), list[Any]()
    for number in range(4):
        broken = number == 2
        output.bias.data.fill_(float("nan")) if broken else output.bias.data.copy_(good)
        before = [parameter.detach().clone() for parameter in bert.model.parameters()]
        numbers += run([padded(items, float(len(items)))], 1 - number / 100, number)
        after = list(bert.model.parameters())
        same = [
            torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(before, after, strict=True)
        ]
        assert all(same) == broken
    numbers += run.finish()
    assert [not row.skipped for row in numbers] == [True, True, False, True]
    assert [row.loss == row.loss for row in numbers] == [True, True, False, True]


def test_what_diverges_is_told_a_little_later(
    base: Maker, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for("classification", **{**SOON, "epochs": 64})
    file = write("t.jsonl", labelled(16))
    training = task_named("classification").training(read_data(file), settings)
    bert = open_fresh(base().folder, training, settings, "cpu")
    with torch.no_grad():
        bert.model.heads["classify"].output.bias.fill_(float("nan"))  # type: ignore[union-attr]
    monkeypatch.setattr(tuning, "can_replay", lambda *_: True)
    with pytest.raises(BertsmithError, match="was NaN or infinite"):
        train(bert, training, training.samples(bert, training.dataset.gold()), settings, None)


@given(lengths=st.lists(st.integers(1, 64), min_size=1, max_size=80), exact=st.booleans())
def test_batches_are_padded_to_few_sizes(lengths: list[int], exact: bool) -> None:
    more = padded_lengths(lengths, 64, exact)
    total = sum(lengths) + sum(more)
    assert more
    assert all(1 <= length <= 64 for length in more)
    assert total % 64 == 0
    assert total <= 1.15 * sum(lengths) + 80
    assert exact or (len(lengths) + len(more)) % 8 == 0


def test_one_grid_attends_as_many_do() -> None:
    layout = Layout.of([5, 1, 9, 3], most=16)
    (seen,), picked, places = layout.grid
    rows = torch.arange(layout.total)
    assert seen.shape == (4, 16)
    assert torch.equal(rows[picked][places], rows)
    assert torch.equal(picked.view(4, 16)[seen], rows)


def test_a_batch_that_comes_with_a_grid_uses_it() -> None:
    batch = Batch.of([[1] * 200])
    assert _kernel(batch) is None
    layout = replace(batch.layout, padded=batch.layout.grid)
    assert layout.groups is layout.padded
    assert layout.to("cpu").padded is not None
    assert _kernel(replace(batch, layout=layout)) == "grouped"


def test_a_buffer_holds_tensors_of_all_kinds() -> None:
    tensors = [torch.tensor(2.5), torch.arange(5), torch.tensor([True, False]), torch.zeros(0, 3)]
    tensors += [torch.randn(3, 2), torch.arange(3, dtype=torch.int32)]
    buffer, spec = pack(tensors)
    assert all(torch.equal(a, b) for a, b in zip(tensors, unpack(buffer, spec), strict=True))


def test_a_gpu_replays_unless_it_is_told_not_to() -> None:
    def replays(device: str, **more: Any) -> bool:
        settings = settings_for("classification", **more)
        return tuning.can_replay(settings, Ranks.alone(torch.device(device)))

    assert replays("cuda")
    for more in ({"graphs": False}, {"checkpointing": True}, {"freeze": "encoder"}, {"ema": 0.9}):
        assert not replays("cuda", **more)
    assert not replays("cpu")
