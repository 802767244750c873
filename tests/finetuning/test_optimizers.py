"""Which parameters learn, how fast, and by which optimizer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from bertsmith import load
from bertsmith.finetuning import finetune, settings_for
from bertsmith.finetuning.settings import matrix_rate_for, rate_for
from bertsmith.finetuning.setup import open_fresh
from bertsmith.finetuning.tuning import Tuning
from bertsmith.tasks.read import read_data
from bertsmith.train.optimizer import optimizer_for
from finetuning.conftest import FAST, Write, labelled, train
from finetuning.looping import groups, training_of
from tasks.models import Made, Maker


@pytest.mark.parametrize(
    ("freeze", "still"),
    [
        ("embedding", ("encoder.embedding.",)),
        ("1", ("encoder.embedding.", "encoder.blocks.0.")),
        ("encoder", ("encoder.",)),
    ],
)
def test_what_is_frozen_stays(base: Maker, write: Write, freeze: str, still: tuple[str]) -> None:
    folder, file = base().folder, write("t.jsonl", labelled(16))
    settings = settings_for("classification", freeze=freeze)
    training = training_of(read_data(file), settings)
    bert = open_fresh(folder, training, settings, "cpu")
    before = {n: p.detach().clone() for n, p in bert.model.named_parameters()}
    train(bert, training, training.samples(bert, training.dataset.gold()), settings, None)
    for name, parameter in bert.model.named_parameters():
        same = torch.equal(parameter, before[name])
        assert same == name.startswith(still), name


def test_top_layers_forget(base: Maker, write: Write) -> None:
    folder = base().folder
    training = training_of(read_data(write("t.jsonl", labelled(8))), settings_for("classification"))
    fresh, kept = (
        open_fresh(folder, training, settings_for("classification", reinitialise=count), "cpu")
        for count in (1, 0)
    )
    changed = {
        name.split(".")[2]
        for (name, one), other in zip(
            fresh.model.named_parameters(), kept.model.parameters(), strict=True
        )
        if name.startswith("encoder.") and not torch.equal(one, other)
    }
    assert changed == {"1"}


def test_lower_layers_learn_slower(base: Maker, write: Write) -> None:
    settings = settings_for("classification")
    training = training_of(read_data(write("t.jsonl", labelled(8))), settings)
    model = open_fresh(base().folder, training, settings, "cpu").model
    rates = {
        id(parameter): group["lr"] for group in groups(model, 0.5) for parameter in group["params"]
    }
    named = {name: rates[id(parameter)] for name, parameter in model.named_parameters()}
    assert named["encoder.embedding.token.weight"] == 0.125
    assert named["encoder.blocks.0.feedforward.up.weight"] == 0.25
    assert named["encoder.blocks.1.feedforward.up.weight"] == 0.5
    assert named["heads.classify.output.weight"] == 1.0
    decays = {id(p): g["weight_decay"] for g in groups(model, 1) for p in g["params"]}
    assert decays[id(model.heads["classify"].output.bias)] == 0
    assert decays[id(model.heads["classify"].output.weight)] == 0.01


def test_muon_moves_matrices_in_layers_and_adamw_the_rest(base: Maker, write: Write) -> None:
    settings = settings_for("classification", optimizer="muon", layer_decay=0.5)
    training = training_of(read_data(write("t.jsonl", labelled(16))), settings)
    bert = open_fresh(base().folder, training, settings, "cpu")
    samples = training.samples(bert, training.dataset.gold())
    model, tuning = bert.model, Tuning(bert, training, samples, settings)
    muon, adamw = optimizer_for(model, tuning._train_part(settings, 6400)).optimizers
    rates = {id(p): g["lr"] for g in muon.param_groups for p in g["params"]}
    named = dict(model.named_parameters())
    inner = {n for n, p in named.items() if n.startswith("encoder.blocks.") and p.ndim == 2}
    assert {n for n, p in named.items() if id(p) in rates} == inner
    assert sum(len(g["params"]) for g in adamw.param_groups) == len(named) - len(inner)
    layers = len(model.encoder.plan)
    for name in inner:
        below = layers - int(name.split(".")[2])
        assert rates[id(named[name])] == pytest.approx(0.006 * 0.5**below)


def test_muon_learns_to_classify(base: Maker, write: Write) -> None:
    given = {**FAST, "optimizer": "muon", "matrix_learning_rate": 0.02}
    result = finetune(base().folder, write("t.jsonl", labelled(48)), hold_out=0, **given)
    losses = result.kept.history.losses
    assert losses[-1] < 0.7 * losses[0]
    frozen = finetune(
        base().folder, write("t.jsonl", labelled(8)), hold_out=0, freeze="encoder", **given
    )
    assert frozen.kept.history.steps > 0


@pytest.mark.parametrize(
    ("width", "rate"), [(768, 1e-4), (1024, 7.5e-5), (320, 2.4e-4), (256, 3e-4)]
)
def test_narrow_models_learn_faster_unless_told(width: int, rate: float) -> None:
    assert rate_for(width) == rate
    usual = {"learning_rate": rate, "optimizer": "muon"}
    assert settings_for("classification", usual).learning_rate == rate
    told = settings_for("tagging", usual, learning_rate=1e-5)
    assert (told.learning_rate, told.optimizer, told.batch_size) == (1e-5, "muon", 16)


@pytest.mark.parametrize(("steps", "rate"), [(1, 0.012), (1600, 0.012), (6400, 0.006)])
def test_muon_goes_slower_in_long_runs(steps: int, rate: float) -> None:
    assert matrix_rate_for(steps) == pytest.approx(rate)


def test_the_usual_rate_is_by_the_width_of_the_model(
    base: Callable[..., Made], write: Write
) -> None:
    made = base()
    result = finetune(made.folder, write("t.jsonl", labelled(8)), hold_out=0, epochs=1)
    width = load(made.folder).checkpoint.config.width
    assert result.kept.settings.learning_rate == pytest.approx(1e-4 * 768 / width, rel=0.05)
