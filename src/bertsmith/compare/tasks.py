"""The labelled data of a comparison: training, selection and scoring splits."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from bertsmith.compare.spec import Spec, TaskPart
from bertsmith.data.folders import BENCHMARKS, benchmark_folder, find_splits
from bertsmith.errors import BertsmithError, nearest
from bertsmith.finetuning.benchmarks import squad_files
from bertsmith.finetuning.settings import settings_for
from bertsmith.tasks.answering.task import TASK as ANSWERING
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.evaluate import labelled, sample_of
from bertsmith.tasks.glue import GLUE as GLUE_TASKS
from bertsmith.tasks.glue import glue_folders, read_glue
from bertsmith.tasks.read import read_data
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.splits import Splits, read_splits, split_off
from bertsmith.tasks.tagging.task import TASK as TAGGING

HELD = 0.2  # of data without a file to score on


@cache
def read_task(spec_json: str, name: str) -> Splits:
    """The data of a task: `dev` is part of the training data, `test` the file that is scored."""
    spec = Spec.model_validate_json(spec_json)
    part = spec.tasks[name]
    try:
        train, test = _files(part, name)
        train, test = sample_of(train, part.train), sample_of(test, part.test)
        learned, dev, _ = split_off(train, spec.finetune.dev)
    except BertsmithError as error:
        raise BertsmithError(f"tasks.{name}: {error.message}") from error
    if task_named(learned.task).head is None:
        raise BertsmithError(f"tasks.{name}: {learned.task} data is not supported yet")
    if learned.scheme and test.scheme is None:
        test = replace(test, scheme=learned.scheme)
    return Splits(learned, dev, labelled(test))


def metric_of(spec: Spec, name: str, splits: Splits) -> str:
    """The score by which variants are compared on a task."""
    part = spec.tasks[name]
    known = task_named(splits.train.task).metrics(splits.train)
    if part.data == "glue" and not part.metric:
        return GLUE_TASKS[part.name or name].metrics[0]
    if part.metric and part.metric not in known:
        raise BertsmithError(
            f"tasks.{name}.metric: no score {part.metric!r}; known: {', '.join(known)}"
        )
    return part.metric or known[0]


def finetune_settings(spec: Spec, name: str, splits: Splits) -> dict[str, Any]:
    """The settings of finetune for a task, checked; the last epoch is scored, not the best."""
    settings = {**spec.finetune.settings, **spec.tasks[name].settings}
    for key in ("learning_rate", "seed", "keep", "metric"):
        if key in settings:
            raise BertsmithError(f"finetune.settings.{key} is chosen by compare itself")
    settings |= {"keep": "last", "metric": metric_of(spec, name, splits)}
    try:
        task = task_named(splits.train.task)
        task.training(splits.train, settings_for(task.name, {}, **settings))  # such as one label
    except BertsmithError as error:
        raise BertsmithError(f"tasks.{name}: {error.message}") from error
    if task.numeric:
        for part, data in (("dev", splits.dev), ("test", splits.test)):
            if data is not None and len({task.label_of(one) for one in data.examples}) < 3:
                raise BertsmithError(
                    f"tasks.{name}: its {part} data has fewer than 3 different scores; add examples"
                )
    return settings


def _files(part: TaskPart, name: str) -> tuple[Dataset[Any], Dataset[Any]]:
    if part.data not in BENCHMARKS:
        return _own(part)
    folder = Path(part.folder) if part.folder else benchmark_folder(part.data, "set folder")
    if not folder.is_dir():
        raise BertsmithError(f"{folder}: no such folder")
    if part.data == "glue":
        task = part.name or name
        if task not in GLUE_TASKS:
            raise BertsmithError(f"unknown GLUE task {task!r}{nearest(task, GLUE_TASKS)}")
        here = glue_folders(folder)
        if task not in here:
            raise BertsmithError(f"{folder}: there is no folder of {task} in it")
        dev = GLUE_TASKS[task].dev[0]  # the test files have no labels
        return read_glue(here[task], task, "train"), read_glue(here[task], task, dev)
    if part.data == "conll":
        files = find_splits(folder)
        test = files.get("test") or files.get("dev")
        if test is None:
            raise BertsmithError(f"{folder}: no file in it is called test, dev or valid")
        return read_data(files["train"], TAGGING.name), read_data(test, TAGGING.name)
    squad = squad_files(folder)
    if ("1.1", "dev") not in squad:
        raise BertsmithError(f"{folder}: there is no dev-v1.1.json in it")
    scored = read_data(squad["1.1", "dev"], ANSWERING.name)
    if ("1.1", "train") in squad:
        return read_data(squad["1.1", "train"], ANSWERING.name), scored
    return split_off(scored, HELD)[:2]


def _own(part: TaskPart) -> tuple[Dataset[Any], Dataset[Any]]:
    """A person's own data: the test file, else the dev file, else a fifth of the examples."""
    if not Path(part.data).exists():
        near = nearest(part.data, BENCHMARKS)
        raise BertsmithError(
            f"{part.data}: no such file or folder, and no such benchmark{near}"
            f"; known: {', '.join(BENCHMARKS)}"
        )
    splits = read_splits(
        part.data, task=part.kind or None, hold_out=0, columns=part.columns or None
    )
    scored = splits.test or splits.dev
    return split_off(splits.train, HELD)[:2] if scored is None else (splits.train, scored)
