"""`distill`: a teacher, and text if there is any → the directory of a student."""

import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertsmith.distilling.pretraining import distill_text, is_corpus, taught_recipe
from bertsmith.distilling.result import DistillationResult, rows, write_distilled
from bertsmith.distilling.speed import compare_speed, random_texts, size_of
from bertsmith.distilling.static import WIDTH, to_static, token_frequencies
from bertsmith.distilling.task import (
    STATIC,
    Student,
    TaskDistillation,
    demand_distillable,
    teacher_splits,
)
from bertsmith.distilling.vectors import Teachers, VectorDistillation, headless, read_plain
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.files import make_folder
from bertsmith.finetuning.plan import TrainingPlan, logs_of
from bertsmith.finetuning.run import carry_out
from bertsmith.finetuning.settings import RunSettings, settings_for
from bertsmith.finetuning.setup import chosen_settings, default_settings, with_metric
from bertsmith.finetuning.tuning import TrainingCallback
from bertsmith.finetuning.work import PartialFolder, check_out, model_sum
from bertsmith.folders import reserved
from bertsmith.infer.loaded import LoadedModel, pick_device, with_changes
from bertsmith.infer.opening import open_model
from bertsmith.settings import picked, taking
from bertsmith.settings.distilling import DistillationSettings
from bertsmith.tasks.embedding import embed
from bertsmith.tasks.evaluate import labelled
from bertsmith.tasks.read import read_data
from bertsmith.tasks.registry import task_of
from bertsmith.tasks.splits import Splits
from bertsmith.tasks.task import Task
from bertsmith.train.distributed import Ranks
from bertsmith.train.loggers import LoggerNames

RATE = 0.01  # learning rate of static vectors that are tuned on text


@taking(DistillationSettings)
def distill(
    teacher: str | Path,
    data: Any = None,
    out: str | Path | None = None,
    *,
    reading: dict[str, Any] | None = None,
    device: str | None = None,
    dtype: str = "float32",
    overwrite: bool = False,
    resume: bool = False,
    watch: TrainingCallback | None = None,
    log: LoggerNames = (),
    **given: Any,
) -> DistillationResult:
    """Train a smaller or faster student of a teacher, and measure it beside the teacher.

    `to="static"` computes static vectors, without data or tuned on it. Otherwise the student, some
    `layers` of the teacher or another model, learns the teacher's predictions for the texts in
    `data` (`learn="task"`) or its vectors (`learn="vectors"`). `reading` has options of
    `open_data`; further arguments are those of `finetuning.RunSettings`.

    With a corpus from `prepare`, the student is pre-trained with a `recipe` ("distilbert", "minilm"
    or a file), of which `changes` overrides keys, and `out` is the folder of the run. `log` names
    loggers: tensorboard, wandb, mlflow.
    """
    own = picked(DistillationSettings, given)
    logged = {"log": log, "place": logs_of(log, out)}
    if own.recipe is not None or is_corpus(data):
        if out is None or data is None or own.to == "static":
            needed = f"a corpus that `bertsmith prepare` wrote, and {setting_name('out')}"
            raise BertsmithError(f"a recipe needs {needed}")
        scored = own.dev is not None or own.test is not None
        if given or scored or own.learn is not None:
            example = setting_name("changes", ["train.steps=100"], "--set train.steps=100")
            names = ", ".join([*given, *["dev or test"] * scored]) or "learn"
            raise BertsmithError(f"a recipe sets {names}: change its keys with {example}")
        kept: Any = {"student": own.student, "layers": own.layers}
        recipe = taught_recipe(teacher, data, own.recipe, own.changes or (), **kept)
        return distill_text(recipe, Path(out), resume=resume, show=own.show, log=log)
    if own.changes:
        changes = setting_name("changes", option="--set")
        raise BertsmithError(f"{changes} is for a recipe, which needs a prepared corpus")
    if data is None and own.to != "static":
        raise BertsmithError(f"give texts to learn from: a file, or {STATIC}, which needs none")
    folder = None if out is None else Path(out)
    if folder is not None:
        check_out(folder, overwrite, resume)
    ranks = Ranks(pick_device(device))
    with ranks.process_group():
        bert = _opened(teacher, ranks, dtype if own.to == "static" and data is None else None)
        if dtype != "float32" and data is not None:
            given["dtype"] = dtype  # of the student's training: the teacher's outputs stay exact
        cache = None if folder is None else PartialFolder(folder).folder
        if own.cache is not None:
            cache = Path(own.cache)
            make_folder(cache)
        job = DistillationJob(
            teacher, bert, data, own, reading or {}, ranks, watch, cache, given, logged
        )
        if own.to == "static":
            if own.layers is not None or own.student is not None:
                names = f"{setting_name('layers')} or {setting_name('student')}"
                raise BertsmithError(f"{STATIC} cannot be combined with {names}")
            return job.static(folder, overwrite, resume)
        student, task = Student.of(bert, teacher, own.student, own.layers), task_of(bert)
        if (own.learn or ("vectors" if task.head is None else "task")) == "vectors":
            plan = job.vectors(student)
        elif own.also or own.pieces or own.width or own.cache:
            raise BertsmithError("also, pieces, width and cache are for learning vectors")
        else:
            plan = job.task(student, task)
        return _run(plan, folder, overwrite, resume)


@dataclass(frozen=True)
class DistillationJob:
    """What is to be distilled and how, with the teacher opened."""

    path: str | Path
    teacher: LoadedModel
    data: Any
    own: DistillationSettings
    reading: dict[str, Any]
    ranks: Ranks
    watch: TrainingCallback | None
    cache: Path | None  # folder that keeps the teachers' vectors
    given: dict[str, Any]
    logged: dict[str, Any]  # loggers and the place of their files

    def task(self, student: Student, task: Task) -> TrainingPlan:
        """Task distillation: the teacher's predictions for texts are learned."""
        demand_distillable(self.teacher, student, task)
        own, files = self.own, (self.data, self.own.dev, self.own.test)
        how: Any = {"labels": own.labels > 0, "hold_out": own.hold_out, **self.reading}
        splits = teacher_splits(self.teacher, task.name, *files, **how)
        count = len(splits.train)
        settings, reasons = chosen_settings(student.start, splits, self.given, examples=count)
        weights = own.temperature, own.labels
        distillation = TaskDistillation(self.teacher, student, splits, *weights, own.dev is None)
        return self.plan(distillation, settings, reasons)

    def vectors(
        self, student: Student, project: Any = None, texts: Any = None, **defaults: Any
    ) -> TrainingPlan:
        """Vectors: those that the teacher gives to texts are learned."""
        own = self.own
        train, held = texts or read_plain(self.data, own.pieces, **self.reading)
        files = (own.dev, own.test)
        dev, test = (None if f is None else labelled(read_data(f, train.task)) for f in files)
        splits = Splits(train, dev, test)
        usual = {**default_settings(student.start, self.given), **defaults}
        settings = settings_for(train.task, usual, **self.given)
        metric = with_metric(replace(splits, train=dev or train), settings).metric
        # On a GPU the teachers compute in the type that the student is trained in.
        kind = settings.dtype if self.ranks.device.type == "cuda" else None
        first = self.teacher if kind in (None, "float32") else _opened(self.path, self.ranks, kind)
        further = tuple(str(one) for one in own.also or ())
        others = [headless(_opened(one, self.ranks, kind)) for one in further]
        sums = tuple(model_sum(one) for one in (self.path, *further))
        teachers = Teachers((headless(first), *others), own.combine, self.cache, sums)
        static = student.made is not None
        loss, width = ("cosine", None) if static else (own.loss, own.width)
        parts = teachers.models[0], student, splits
        distillation = VectorDistillation(*parts, loss, project, held, teachers, further, width)
        return self.plan(distillation, settings.changed(metric=metric))

    def plan(
        self,
        distillation: TaskDistillation | VectorDistillation,
        settings: RunSettings,
        notes: Sequence[str] = (),
    ) -> TrainingPlan:
        """Fine-tuning in which the student learns from its teacher."""
        return TrainingPlan(
            distillation.student.start,
            distillation.splits,
            settings,
            learn=distillation.learn,
            open=lambda training, own: distillation.open(training, own, self.ranks.device),
            ranks=self.ranks,
            watch=self.watch,
            notes=tuple(notes),
            same=distillation.same(),
            compared=lambda kept: distillation.alone().compared(kept),
            **self.logged,
        )

    def static(self, out: Path | None, overwrite: bool, resume: bool) -> DistillationResult:
        """Static vectors; with text, they are weighted by its frequencies and tuned on it."""
        own, teacher, texts, counts = self.own, self.teacher, None, None
        sizes: dict[str, Any] = {"width": own.width or WIDTH, "smoothing": own.smoothing}
        if self.data is not None:
            texts = read_plain(self.data, own.pieces, **self.reading)
            counts = token_frequencies(teacher, (row.text for row in texts[0].examples))
        elif self.given or own.dev is not None or own.test is not None:
            raise BertsmithError("training settings need texts to train on: name a file")
        began = time.perf_counter()
        vectors, projection = to_static(teacher, **sizes, frequencies=counts)
        seconds = round(time.perf_counter() - began, 1)
        if texts is not None:

            def project(vectors: Any) -> Any:  # from the centre of texts, not of single tokens
                return projection(vectors, vectors.mean(0, dtype="float64"))

            def copied() -> LoadedModel:
                return with_changes(vectors, deepcopy(vectors.model))

            student = Student(self.path, made=copied)
            plan = self.vectors(student, project, texts, learning_rate=RATE, layer_decay=1.0)
            return _run(plan, out, overwrite, resume)
        content = {
            "kind": "static",
            "about": "static vectors, one for each token, of which a text's vector is the mean",
            "teacher": size_of(teacher, str(self.path)),
            "student": size_of(vectors),
            "settings": sizes,
            "explained_variance": projection.explained,
            "seconds": seconds,
            "speed": compare_speed(teacher, vectors, embed, random_texts(teacher)),
            "notes": ["speed was measured on texts of 24 random tokens"],
        }
        content["table"] = list(rows(content))
        if out is not None and self.ranks.first:
            with reserved(out):
                write_distilled(vectors, content, out, overwrite)
        self.ranks.barrier()
        return DistillationResult(vectors, content, out)


def _run(plan: TrainingPlan, out: Path | None, overwrite: bool, resume: bool) -> DistillationResult:
    result = carry_out(plan, out, overwrite, resume)
    return DistillationResult(result.bert, result.extras["distillation"], out, list(result.notes))


def _opened(model: str | Path, ranks: Ranks, dtype: str | None = None) -> LoadedModel:
    bert = open_model(model, device=ranks.device, dtype=dtype or "float32", progress=False)
    return with_changes(bert, ranks=ranks)
