"""Settings that a model names for itself: when they hold, and what cannot be one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertsmith import BertsmithError
from bertsmith.finetuning import finetune, read_splits, settings_for
from bertsmith.finetuning.setup import (
    default_settings,
    learned_from,
    settings_by_steps,
    stored_settings,
)
from finetuning.conftest import Write
from tasks.models import Made

Own = Callable[..., Path]
ROWS = [{"text": f"{word} {n}", "label": word} for n in range(4) for word in ("old", "new")]


@pytest.fixture
def own(base: Callable[..., Made], tmp_path: Path) -> Own:
    """Makes a model whose bertsmith.json says so."""

    def make(**said: Any) -> Path:
        folder = tmp_path / "own"
        shutil.copytree(base().folder, folder, dirs_exist_ok=True)
        (folder / "bertsmith.json").write_text(json.dumps(said))
        return folder

    return make


def test_a_model_may_name_settings(own: Own, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertsmith.finetuning.setup.MUON_STEPS", 0)
    folder = own(finetune={"learning_rate": 3e-4, "optimizer": "muon"})
    data = write("t.jsonl", ROWS)
    result = finetune(folder, data, hold_out=0, epochs=1)
    found = result.kept.settings
    assert (found.learning_rate, found.optimizer) == (3e-4, "muon")
    assert (
        "settings in the model's bertsmith.json: learning rate 0.0003, optimizer muon"
        in result.notes
    )
    given = {"learning_rate": 1e-5, "optimizer": "adamw"}
    result = finetune(folder, data, hold_out=0, epochs=1, **given)
    found = result.kept.settings
    assert (found.learning_rate, found.optimizer) == (1e-5, "adamw")
    assert not any("names" in note for note in result.notes)


def test_the_report_has_the_rate_that_muon_had(own: Own, write: Write, tmp_path: Path) -> None:
    folder, out = own(), tmp_path / "out"
    finetune(folder, write("t.jsonl", ROWS), out, hold_out=0, epochs=1, optimizer="muon")
    assert (
        json.loads((out / "report.json").read_text())["settings"]["matrix_learning_rate"] == 0.012
    )
    card = (out / "README.md").read_text()
    assert "optimizer muon, matrix learning rate 0.012" in card
    assert "epoch 1 was kept." in card  # by no score: there was none


def test_both_orders_of_pairs_and_dropout(own: Own, write: Write) -> None:
    folder = own(finetune={})
    rows = [{"text": f"one {n}", "pair": f"two {n}", "label": "ab"[n % 2]} for n in range(6)]
    data = write("pairs.jsonl", rows)
    result = finetune(folder, data, hold_out=0, epochs=1, both_orders=True, dropout=0.25)
    train = read_splits(data, hold_out=0).train
    texts = [one.texts for one in learned_from(train, result.kept.settings)]
    assert len(texts) == 12
    assert texts[6:] == [(second, first) for first, second in texts[:6]]
    kept = result.kept.bert.checkpoint
    assert kept.config.attention_dropout == kept.config.embedding_dropout == 0.25
    with pytest.raises(BertsmithError, match="both_orders needs pairs of texts"):
        finetune(folder, write("t.jsonl", ROWS), hold_out=0, epochs=1, both_orders=True)
    with pytest.raises(BertsmithError, match="both_orders has no effect on tagging"):
        settings_for("tagging", both_orders=True)
    with pytest.raises(BertsmithError, match=r"dropout should be less than or equal to 0\.9"):
        settings_for("classification", dropout=1.5)


def test_what_is_given_comes_first(own: Own) -> None:
    usual = {"learning_rate": 4e-4, "optimizer": "muon", "matrix_learning_rate": 0.02}
    folder = own(finetune=usual)
    assert stored_settings(folder, {}) == stored_settings(folder, {"epochs": 1}) == usual
    given = {"optimizer": "adamw"}
    assert stored_settings(folder, given) == {k: usual[k] for k in usual.keys() - given.keys()}
    found = settings_for("tagging", default_settings(folder, given), **given)
    assert found.matrix_learning_rate == 0.0


def test_few_examples_get_more_epochs() -> None:
    settings = settings_for("classification")

    def epochs(task: str, examples: int, **defaults: Any) -> int:
        return settings_by_steps(settings, task, examples, {}, defaults).epochs

    assert epochs("classification", 64) == epochs("regression", 64) == 250  # two steps each
    assert epochs("classification", 100_000) == 3
    assert epochs("tagging", 64) == 100  # 200 steps
    assert epochs("tagging", 14_041) == epochs("answering", 64) == 3
    assert epochs("classification", 64, epochs=3) == 3  # as the model says
    assert settings_by_steps(settings, "classification", 64, {"epochs": 3}, {}) == settings


@pytest.mark.parametrize(
    ("task", "examples", "given", "expected"),
    [
        ("classification", 8551, {}, ("adamw", 8e-4, 4)),  # CoLA: 268 steps in an epoch
        ("classification", 2490, {}, ("adamw", 8e-4, 13)),  # RTE: 78
        ("classification", 1_000, {}, ("adamw", 8e-4, 20)),  # 32
        ("classification", 320, {}, ("adamw", 8e-4, 50)),  # 10
        ("classification", 67_349, {}, ("muon", 4e-4, 3)),  # SST-2
        ("regression", 5_749, {}, ("muon", 4e-4, 4)),  # STS-B
        ("tagging", 100, {}, ("muon", 4e-4, 50)),
        ("classification", 2490, {"optimizer": "muon"}, ("muon", 4e-4, 7)),
        ("classification", 2490, {"matrix_learning_rate": 0.02}, ("muon", 4e-4, 7)),
        ("classification", 2490, {"learning_rate": 4e-4}, ("adamw", 4e-4, 13)),
        ("classification", 2490, {"epochs": 3}, ("adamw", 8e-4, 3)),
        ("classification", 2490, {"epochs": 3, "learning_rate": 1e-4}, ("adamw", 1e-4, 3)),
        ("classification", 2490, {"epochs": 30}, ("muon", 4e-4, 30)),  # 2,340 steps
    ],
)
def test_few_steps_are_made_by_adamw(
    task: str, examples: int, given: dict[str, Any], expected: tuple[str, float, int]
) -> None:
    usual = {"learning_rate": 4e-4, "optimizer": "muon", "matrix_learning_rate": 0.02}
    settings = settings_for(task, usual, **{"batch_size": 32, **given})
    found = settings_by_steps(settings, task, examples, given, usual)
    assert (found.optimizer, found.learning_rate, found.epochs) == expected
    assert found.matrix_learning_rate == (0.02 if found.optimizer == "muon" else 0.0)


def test_notes_say_what_follows_from_few_examples(
    own: Own, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertsmith.tasks.labels.LabelTask.least_steps", 6)
    folder = own(finetune={"learning_rate": 4e-4, "optimizer": "muon", "layer_decay": 0.9})
    notes = finetune(folder, write("t.jsonl", ROWS), hold_out=0).notes
    assert "because of few examples: epochs 20, learning rate 0.0008, optimizer adamw" in notes
    assert "settings in the model's bertsmith.json: layer decay 0.9" in notes


def test_a_given_number_of_epochs_does_not_change_the_optimizer(own: Own, write: Write) -> None:
    folder = own(finetune={"learning_rate": 4e-4, "optimizer": "muon"})
    result = finetune(folder, write("t.jsonl", ROWS), hold_out=0, epochs=2)
    assert (result.kept.settings.optimizer, result.kept.settings.epochs) == ("adamw", 2)
    assert "because of few examples: learning rate 0.0008, optimizer adamw" in result.notes


def test_settings_of_the_model_may_be_ignored(own: Own, write: Write) -> None:
    folder = own(finetune={"layer_decay": 0.5, "epochs": 1, "learning_rate": 4e-4})
    data = write("t.jsonl", ROWS)
    found = finetune(folder, data, hold_out=0, own_settings=False, batch_size=1, epochs=1)
    assert found.kept.settings.layer_decay == 0.8
    assert not any("bertsmith.json" in note for note in found.notes)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            {"finetune": {"learning_rate": "fast"}},
            "finetune: learning_rate should be a valid number, not 'fast'",
        ),
        (
            {"finetune": {"layer_decay": True}},
            "finetune: layer_decay should be a valid number, not True",
        ),
        (
            {"finetune": {"learning_rate": 7}},
            "finetune: learning_rate should be less than or equal to 1, not 7",
        ),
        (
            {"finetune": {"optimizer": "sgd"}},
            "finetune: optimizer should be 'adamw' or 'muon', not 'sgd'",
        ),
        ({"finetune": {"epochs": 2.5}}, "finetune: epochs should be a valid integer, not 2.5"),
        (
            {"finetune": {"seed": 3}},
            "finetune: a model may not set 'seed', only learning_rate, optimizer",
        ),
        (
            {"finetune": {"matrix_learning_rate": 0.1}},
            "finetune: matrix_learning_rate is for the optimizer muon",
        ),
        ({"finetune": []}, "finetune is not a table of settings"),
    ],
)
def test_what_cannot_be_named(own: Own, said: dict[str, Any], message: str) -> None:
    with pytest.raises(BertsmithError, match=rf"own/bertsmith\.json: {message}"):
        default_settings(own(**said), {})


def test_a_rate_of_muon_needs_muon() -> None:
    with pytest.raises(BertsmithError, match="matrix_learning_rate is for the optimizer muon"):
        settings_for("tagging", matrix_learning_rate=0.01)
