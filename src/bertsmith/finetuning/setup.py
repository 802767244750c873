"""The model before its first step, with new head and frozen layers, and the settings of a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bertsmith.checkpoint import (
    Checkpoint,
    Lora,
    Sentence,
    attach,
    demand_float,
    keep_layers,
    locate,
    read,
    read_config,
    read_notes,
    read_sentence,
    tokenizer_folder,
)
from bertsmith.errors import BertsmithError
from bertsmith.finetuning.settings import RunSettings, checked, rate_for, settings_for, spoken
from bertsmith.infer.loaded import LoadedModel, pick_device
from bertsmith.model import Config, Model, initialise
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.registry import TASKS, task_named
from bertsmith.tasks.splits import Splits
from bertsmith.tasks.task import FITTED, Task
from bertsmith.tasks.training import Training
from bertsmith.tokenizer import Tokenizer
from bertsmith.train.activations import freeze, train_biases


def open_fresh(
    model: str | Path,
    training: Training,
    settings: RunSettings,
    device: str | torch.device | None = None,
    layers: Sequence[int] = (),
) -> LoadedModel:
    """Read a model, or some of its layers, and give it the head that a task needs."""
    directory, sentence = find_encoder(model)
    changes = training.config_changes()
    how: Any = {"dropout": settings.dropout, "device": pick_device(device)}
    if training.head is not None:
        how |= {"new": [training.head], "settings": changes, "seed": settings.seed}
        checkpoint = read(directory, heads=(), **how)
    else:
        checkpoint = read(directory, **how)
        if checkpoint.entries.keys() - {"pooler"}:
            kept = checkpoint.entries.keys() & {"pooler"}
            checkpoint = read(directory, heads=kept, **how)
        checkpoint = replace(checkpoint, settings={**checkpoint.settings, **changes})
    if layers:
        checkpoint = keep_layers(checkpoint, layers)
    return ready(checkpoint, directory, sentence, settings)


def ready(
    checkpoint: Checkpoint, directory: Path, sentence: Sentence, settings: RunSettings
) -> LoadedModel:
    """A model with its tokenizer, some parameters frozen or reset as the settings say."""
    demand_float(checkpoint.settings, directory)
    tokenizer = Tokenizer.load(tokenizer_folder(directory), family=checkpoint.family.name)
    reinitialise(checkpoint.model, checkpoint.config, settings.reinitialise, settings.seed)
    freeze(checkpoint.model, settings.freeze)
    if settings.trained == "lora":
        attach(checkpoint, lora_of(settings), settings.seed)
    elif settings.trained == "biases":
        train_biases(checkpoint.model)
    return LoadedModel(checkpoint, tokenizer, sentence=sentence, progress=False)


def lora_of(settings: RunSettings) -> Lora:
    """The shape of the updates that the settings ask for."""
    return Lora(settings.lora_rank, settings.lora_alpha, settings.lora_targets, settings.rslora)


def forget_former(bert: LoadedModel, training: Training) -> None:
    """Drop thresholds that were fitted on the model's outputs, and what former tasks stored."""
    former = {*FITTED, *(name for task in TASKS.values() for name in task.stored)}
    former -= training.config_changes().keys()
    settings = bert.checkpoint.settings
    kept = {name: settings[name] for name in settings if name not in former}
    bert.checkpoint = replace(bert.checkpoint, settings=kept)


def limit_length(bert: LoadedModel, most: int) -> None:
    """Read texts in windows of at most `most` tokens, in training and ever after; 0: as before."""
    if most:
        most = min(most, bert.checkpoint.config.max_length)
        bert.tokenizer.max_length = most
        bert.sentence = replace(bert.sentence, max_length=most)


def find_encoder(model: str | Path) -> tuple[Path, Sentence]:
    """The directory of the encoder, and how it makes vectors of texts."""
    directory = locate(model)
    return read_sentence(directory) or (directory, Sentence())


def reinitialise(model: Model, config: Config, count: int, seed: int) -> None:
    """Give the top layers new weights."""
    if not count:
        return
    plan = [number for number, _ in model.encoder.plan]
    if count > len(plan):
        raise BertsmithError(f"{count} layers cannot be reinitialised: the model has {len(plan)}")
    kept, top = set(plan[:-count]), set(plan[-count:])
    if kept & top:
        raise BertsmithError("the layers of this model share weights: reinitialise none of them")
    prefixes = tuple(f"encoder.blocks.{number}." for number in top)
    names = {name for name, _ in model.named_parameters() if name.startswith(prefixes)}
    device = next(model.parameters()).device
    generator = torch.Generator(device=device).manual_seed(seed)
    initialise(model, config.initial_deviation, generator, only=names)


STORABLE = (
    *("learning_rate", "optimizer", "matrix_learning_rate", "layer_decay", "dropout"),
    *("epochs", "batch_size"),
)

# Below so many steps, classifiers of a model whose default is Muon are better with AdamW, at twice
# the learning rate and for so many steps (docs/bertsmith-small-experiments.md), but not for more
# epochs than MOST: of hundreds of examples, the task's `least_steps` are enough.
MUON_STEPS, FACTOR, MOST = 1000, 2, 20
PARTIAL = 10  # times the learning rate where few parameters are trained
NOTED = ("epochs", "optimizer", "learning_rate")
SWEPT = ("epochs", "learning_rate")  # of which a sweep tries several


def chosen_settings(
    model: str | Path,
    splits: Splits,
    given: Mapping[str, Any],
    *,
    examples: int | None = None,
    swept: Collection[str] = (),
    own: bool = True,
) -> tuple[RunSettings, list[str]]:
    """The settings of a run, and notes on those that the data or the model decided.

    `examples` are those that are learned from, by default the labelled ones. Settings that are
    `swept` have no notes. Without `own`, the model's bertsmith.json is not read.
    """
    defaults = default_settings(model, given, own)
    if given.get("trained") in ("lora", "biases"):  # what suits full training does not suit these
        rate = default_settings(model, {}, own=False)["learning_rate"]
        defaults = {"learning_rate": PARTIAL * rate, "layer_decay": 1.0}
    usual = with_metric(splits, settings_for(splits.train.task, defaults, **given))
    count = len(learned_from(splits.train, usual)) if examples is None else examples
    settings = settings_by_steps(usual, splits.train.task, count, given, defaults)
    final = settings.model_dump(include=set(STORABLE) - set(swept))
    few = {n: final[n] for n in NOTED if n in final and final[n] != getattr(usual, n)}
    stored = (stored_settings(model, given) if own else {}).items()
    reasons = {
        "because of few examples": few,
        "settings in the model's bertsmith.json": {n: v for n, v in stored if final.get(n) == v},
    }
    return settings, [f"{why}: {spoken(values)}" for why, values in reasons.items() if values]


def learned_from(train: Dataset[Any], settings: RunSettings) -> list[Any]:
    """The labelled examples of a training file; with `both_orders`, every pair twice."""
    examples = train.gold()
    if not settings.both_orders:
        return examples
    if any(example.pair is None for example in examples):
        raise BertsmithError(f"{train.path}: both_orders needs pairs of texts")
    return examples + [replace(row, text=row.pair, pair=row.text) for row in examples]


def with_metric(splits: Splits, settings: RunSettings) -> RunSettings:
    """The settings with the score that selects the best epoch; it must be one of the task's."""
    known = task_named(splits.train.task).metrics(splits.train)
    metric = settings.metric or known[0]
    if metric not in known:
        raise BertsmithError(f"cannot select by {metric!r}; known: {', '.join(known)}")
    return settings.changed(metric=metric)


def default_settings(
    model: str | Path, given: Mapping[str, Any], own: bool = True
) -> dict[str, Any]:
    """The default settings of a model; see `stored_settings`."""
    rate = {"learning_rate": rate_for(read_config(find_encoder(model)[0]).width)}
    return rate | stored_settings(model, given) if own else rate


def stored_settings(model: str | Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """The table "finetune" of a model's bertsmith.json, without settings that are given."""
    directory = find_encoder(model)[0]
    where = f"{directory / 'bertsmith.json'}: finetune"
    defaults = read_notes(directory).get("finetune", {})
    if not isinstance(defaults, dict):
        raise BertsmithError(f"{where} is not a table of settings")
    for name in (name for name in defaults if name not in STORABLE):
        known = ", ".join(STORABLE)
        raise BertsmithError(f"{where}: a model may not set {name!r}, only {known}")
    try:
        checked({name: value for name, value in defaults.items() if value is not None})
    except BertsmithError as error:
        raise BertsmithError(f"{where}: {error.message}") from error
    return {name: value for name, value in defaults.items() if given.get(name) is None}


def settings_by_steps(
    settings: RunSettings,
    task: str,
    examples: int,
    given: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> RunSettings:
    """More epochs for few examples, and AdamW instead of Muon, unless these were given."""
    kind = task_named(task)
    if not kind.least_steps:
        return settings
    each = max(1, -(-examples // settings.batch_size))  # steps in an epoch
    least = kind.least_steps
    if each * settings.epochs < MUON_STEPS and may_leave_muon(settings, kind, given):
        least = max(least, min(MUON_STEPS, MOST * each))
        rate = settings.learning_rate * (FACTOR if given.get("learning_rate") is None else 1)
        settings = settings.changed(optimizer="adamw", learning_rate=rate, matrix_learning_rate=0.0)
    if fixes_epochs(given, defaults):
        return settings
    return settings.changed(epochs=min(10_000, max(settings.epochs, -(-least // each))))


def fixes_epochs(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> bool:
    """Whether the number of epochs does not depend on the number of examples."""
    return given.get("epochs") is not None or "epochs" in defaults


def may_leave_muon(settings: RunSettings, task: Task, given: Mapping[str, Any]) -> bool:
    """Whether AdamW replaces Muon where there are few steps."""
    chosen = any(given.get(name) is not None for name in ("optimizer", "matrix_learning_rate"))
    return settings.optimizer == "muon" and task.adamw_for_few and not chosen
