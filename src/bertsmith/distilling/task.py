"""Task distillation: a fine-tuned teacher labels texts, a smaller student learns its outputs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.checkpoint import check_layers, keep_layers, read, read_config, spread_layers
from bertsmith.distilling.result import rows
from bertsmith.distilling.speed import compare_speed, size_of
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.finetuning.result import TrainingRun
from bertsmith.finetuning.settings import RunSettings
from bertsmith.finetuning.setup import find_encoder, open_fresh, ready
from bertsmith.finetuning.work import model_sum
from bertsmith.infer.loaded import LoadedModel, with_changes
from bertsmith.infer.opening import open_model
from bertsmith.model import Config, Model
from bertsmith.tasks.classifying import vote
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.evaluate import Evaluation, compare, evaluate, labelled
from bertsmith.tasks.labels import texts_of
from bertsmith.tasks.read import open_data, read_data
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.splits import Splits, split_off
from bertsmith.tasks.task import Task
from bertsmith.tasks.training import Sample, Targets, Training, TrainingItem, zero_padded

STATIC = setting_name("to", "static")
Pair = tuple[str, Evaluation, Evaluation]  # of a file: its split, then teacher and student
NO_DEV = (
    "there is no labelled dev file: scores on dev are the share of the teacher's predictions that"
    " the student repeats"
)


@dataclass(frozen=True)
class Soft:
    """A target: that of the labels, and the teacher's outputs for the item's rows."""

    label: Any
    rows: Tensor  # (windows or tokens, outputs)


class SoftTraining(Training):
    """Learns a teacher's outputs, and with a weight also the labels of the file."""

    learned = 0.0

    def __init__(
        self, base: Training, teacher: LoadedModel, temperature: float, labels: float
    ) -> None:
        super().__init__(base.dataset, base.options)
        self.base, self.teacher = base, teacher
        self.temperature, self.label_weight = temperature, labels
        self.head, self.each_token = base.head, base.each_token  # type: ignore[misc]
        self.together, self.exact = base.together, base.exact  # type: ignore[misc]

    def config_changes(self) -> dict[str, Any]:
        """Entries that config.json gets: the names of the teacher's labels."""
        return self.base.config_changes()

    def samples(self, bert: LoadedModel, examples: Sequence[Any]) -> list[Sample]:
        """The samples of the task, each with the outputs of the teacher for it.

        A teacher with the student's tokens reads the very same windows. Otherwise, it reads each
        text in its own way, which is enough where a text has one output.
        """
        samples = self.base.samples(bert, examples)
        targets: Iterator[Tensor]
        if same_tokens(self.teacher, bert) and self.teacher.max_length >= bert.max_length:
            windows = [window for sample in samples for item in sample for window in item.windows]
            needed = self.teacher.head_pass(str(self.head), windows, tokens=self.each_token)
            outputs = iter(self.teacher.run(windows, needed.compute))

            def rows_of(item: TrainingItem) -> Tensor:
                rows = [next(outputs) for _ in item.windows]
                return torch.cat(rows) if self.each_token else torch.stack(rows)

            targets = (rows_of(item) for sample in samples for item in sample)
        else:
            demand_one_output(task_named(self.dataset.task))
            rows = vote(self.teacher, *texts_of(examples), lambda logits: logits)
            pairs = zip(samples, rows, strict=True)
            targets = (torch.tensor([row]) for sample, row in pairs for _ in sample)

        def taught(item: TrainingItem) -> TrainingItem:
            return replace(item, target=Soft(item.target, next(targets)))

        return [tuple(map(taught, sample)) for sample in samples]

    def outputs(self, model: Model, batch: Batch) -> Tensor:
        """The outputs of the task's head."""
        return self.base.outputs(model, batch)

    def targets(self, items: Sequence[TrainingItem]) -> Targets:
        """The targets of the task, and the teacher's outputs."""
        plain = [replace(item, target=item.target.label) for item in items]
        teacher = torch.cat([item.target.rows for item in items])
        return {**self.base.targets(plain), "teacher": teacher}

    def padded(self, targets: Targets, sequences: int, tokens: int) -> Targets:
        """Fillers have outputs of zero, and no weight."""
        rest = dict(targets)
        teacher = zero_padded(rest.pop("teacher"), tokens if self.each_token else sequences)
        return {**self.base.padded(rest, sequences, tokens), "teacher": teacher}

    def loss(self, outputs: Tensor, batch: Batch, targets: Targets) -> Tensor:
        """The divergence from the teacher; with a weight, the loss of the labels."""
        weight, total = self.label_weight, outputs.new_zeros(())
        if weight:
            labels = {name: rows for name, rows in targets.items() if name != "teacher"}
            total = self.base.loss(outputs, batch, labels) * weight
        if weight < 1:
            soft = self.base.soft_loss(outputs, batch, targets, self.temperature)
            total = total + soft * (1 - weight)
        return total

    def start_from_used(self, model: Model) -> None:
        """Make the teacher's head one that can be trained further."""
        self.base.start_from_used(model)

    @contextmanager
    def as_used(self, model: Model) -> Iterator[None]:
        """The model as it will be used."""
        with self.base.as_used(model):
            yield


def same_tokens(first: LoadedModel, second: LoadedModel) -> bool:
    """Do two models read a text as the same ids?"""
    one, other = first.tokenizer, second.tokenizer
    templates = all(one.template(pair) == other.template(pair) for pair in (False, True))
    backends = one.backend, other.backend
    pipelines = [(type(b.model), str(b.normalizer), str(b.pre_tokenizer)) for b in backends]
    return templates and pipelines[0] == pipelines[1] and one.vocabulary() == other.vocabulary()


def demand_one_output(task: Task) -> None:
    """Refuse a task with outputs for tokens, where teacher and student have other tokens."""
    if not task.one_output:
        raise BertsmithError(
            "teacher and student split texts into different tokens, or read different lengths, and"
            f" {task.name} is learned token by token: take a student with the teacher's tokenizer"
        )


@dataclass(frozen=True)
class Student:
    """What a student is before it learns: another model, or some layers of the teacher."""

    teacher: str | Path
    model: str | Path | None = None
    layers: tuple[int, ...] = ()
    made: Callable[[], LoadedModel] | None = None  # where it is neither

    @classmethod
    def of(
        cls,
        teacher: LoadedModel,
        path: str | Path,
        model: str | Path | None,
        layers: int | Sequence[int] | None,
    ) -> Self:
        """The student that a person asks for; by default half of the teacher's layers."""
        if model is not None and layers is None:
            return cls(path, model)
        config = teacher.checkpoint.config if model is None else read_config(find_encoder(model)[0])
        return cls(path, model, chosen_layers(config, layers))

    @property
    def start(self) -> str | Path:
        """The model that the student's weights are from."""
        return self.teacher if self.model is None else self.model

    def describe(self) -> str:
        """The student in a few words."""
        if self.made is not None:
            return "static vectors, one for each token"
        source = "the teacher" if self.model is None else f"the model {Path(self.model).name}"
        return f"layers {', '.join(map(str, self.layers))} of {source}" if self.layers else source

    def open(self, training: Training, settings: RunSettings, device: torch.device) -> LoadedModel:
        """The student with the head of a task, before its first step."""
        if self.made is not None:
            return self.made()
        if self.model is not None:
            return open_fresh(self.model, training, settings, device, self.layers)
        directory, sentence = find_encoder(self.teacher)
        kept = () if training.head is None else (training.head,)
        checkpoint = keep_layers(read(directory, heads=kept, device=device), self.layers)
        training.start_from_used(checkpoint.model)
        return ready(checkpoint, directory, sentence, settings)


def chosen_layers(config: Config, layers: int | Sequence[int] | None) -> tuple[int, ...]:
    """The layers that a student keeps: so many, or these; by default half of them."""
    depth = len(config.plan)
    if not depth:
        raise BertsmithError("the teacher has no layers to keep: name another student")
    if layers is None:
        layers = max(1, depth // 2)
    chosen = spread_layers(depth, layers) if isinstance(layers, int) else tuple(layers)
    return check_layers(config, chosen)


@dataclass(frozen=True)
class Distillation:
    """A teacher, its student and the data: what all kinds of distillation have in common."""

    teacher: LoadedModel
    student: Student
    splits: Splits

    def same(self) -> dict[str, Any]:
        """What must be the same when an interrupted command is resumed."""
        teacher, layers = self.student.teacher, self.student.layers
        return {"teacher": model_sum(teacher), "layers": list(layers)}

    def open(self, training: Training, settings: RunSettings, device: torch.device) -> LoadedModel:
        """The student before its first step."""
        return self.student.open(training, settings, device)

    def alone(self) -> Self:
        """The same for the one process that compares teacher and student."""
        return replace(self, teacher=with_changes(self.teacher))

    def pairs(self, kept: TrainingRun) -> list[Pair]:
        """The evaluations of teacher and student on each file that has labels."""
        files = ("dev", kept.dev, self.splits.dev), ("test", kept.test, self.splits.test)
        pairs = []
        for split, own, dataset in files:
            if own is not None and dataset is not None:
                pairs.append((split, evaluate(self.teacher, dataset), own))
        return pairs

    def report(
        self,
        kept: TrainingRun,
        about: dict[str, Any],
        settings: dict[str, Any],
        pairs: Sequence[Pair],
        **more: Any,
    ) -> dict[str, Any]:
        """Size and scores of the student beside its teacher's: the content of distill.json."""
        metric = kept.settings.metric
        usual = kept.settings.model_dump(include={"learning_rate", "epochs", "batch_size"})
        content = {
            **about,
            "teacher": size_of(self.teacher, str(self.student.teacher)),
            "student": {**size_of(kept.bert), "layers_kept": list(self.student.layers) or None},
            "settings": settings | usual,
            "texts": len(self.splits.train),
            "metric": metric,
            "scores": {
                split: {"teacher": other.scores, "student": own.scores}
                for split, other, own in pairs
            },
            "comparison": {split: paired(other, own, metric) for split, other, own in pairs},
            **more,
        }
        return {**content, "table": list(rows(content))}


@dataclass(frozen=True)
class TaskDistillation(Distillation):
    """A student that learns its teacher's outputs for a task."""

    temperature: float
    label_weight: float
    pseudo: bool  # is the dev data labelled by the teacher, too?

    def learn(self, train: Dataset[Any], settings: RunSettings) -> SoftTraining:
        """The teacher's outputs, and with a weight the labels of the file."""
        base = task_named(train.task).training(train, settings)
        return SoftTraining(base, self.teacher, self.temperature, self.label_weight)

    def same(self) -> dict[str, Any]:
        """Teacher, student and how much each target counts."""
        own = {"temperature of the teacher": self.temperature}
        return super().same() | own | {"weight of labels": self.label_weight}

    def compared(self, kept: TrainingRun) -> dict[str, Any]:
        """The student beside its teacher: the content of distill.json."""
        task, pairs = task_named(self.splits.train.task), self.pairs(kept)
        texts = (self.splits.test or self.splits.dev or self.splits.train).examples
        about = f"{self.student.describe()}, trained on its predictions for {task.name}"
        return self.report(
            kept,
            {"kind": "task", "task": task.name, "about": about},
            {"temperature": self.temperature, "label_weight": self.label_weight},
            [one for one in pairs if one[0] != "dev" or not self.pseudo],
            agreement={split: agreement(other, own) for split, other, own in pairs},
            speed=compare_speed(self.teacher, kept.bert, task.predict, texts),
            notes=[NO_DEV] if self.pseudo else [],
        )


def paired(teacher: Evaluation, student: Evaluation, metric: str) -> dict[str, Any]:
    """The student's score less its teacher's: a paired bootstrap over examples."""
    before = teacher.scores.get(metric)
    kept = student.scores[metric] / before if before else None
    return {"metric": metric, **asdict(compare(teacher, student, metric)), "kept": kept}


def agreement(teacher: Evaluation, student: Evaluation) -> float | None:
    """The share of examples for which both predict the same; None for numbers."""
    if teacher.task.numeric:
        return None
    same = [a == b for a, b in zip(teacher.values, student.values, strict=True)]
    return sum(same) / len(same)


def teacher_splits(
    teacher: LoadedModel,
    task: str,
    data: Any,
    dev: Any = None,
    test: Any = None,
    *,
    labels: bool = False,
    hold_out: float = 0.1,
    **options: Any,
) -> Splits:
    """What a student learns from: texts with the teacher's predictions in place of labels.

    With `labels` the file's own labels are kept, and only examples without any get a prediction.
    Without a dev file some of the texts are held out.
    """
    train = read_inputs(data, task, labels, **options)
    own = len(train.gold()) if labels else 0
    train = answered(teacher, train)
    notes = [f"{len(train) - own:,} examples labelled by the teacher"] if own < len(train) else []
    options = {"separator": train.separator, **options}
    dev, test = (None if f is None else read_data(f, task, **options) for f in (dev, test))
    for dataset in filter(None, (dev, test)):
        labelled(dataset)  # an error where there are no labels to score on
    for dataset in filter(None, (train if labels else None, dev, test)):
        demand_known(teacher, dataset)
    if dev is None and hold_out:
        train, dev, how = split_off(train, hold_out)
        notes.append(how)
    return Splits(train, dev, test, notes)


def read_inputs(data: Any, task: str, labels: bool, **options: Any) -> Dataset[Any]:
    """The examples of a source; without `labels`, its labels are not read at all."""
    if labels:
        return read_data(data, task, **options)
    source = open_data(data, task, **options)
    rows = [row for portion in source.portions() for row in portion.examples if row is not None]
    about: Any = {"ledger": source.ledger, "unused": source.unused}
    return Dataset(source.path, task, rows, dict(source.columns), **about)


def answered(teacher: LoadedModel, dataset: Dataset[Any]) -> Dataset[Any]:
    """The same examples, those without a label with the teacher's prediction."""
    task, names = task_named(dataset.task), tuple(teacher.checkpoint.labels)
    task.demand_kind(dataset.examples[0])
    missing = [row for row in dataset.examples if not task.carries_label(row)]
    predicted = iter(task.labelled_by(teacher, missing) if missing else [])
    return replace(
        dataset,
        examples=[row if task.carries_label(row) else next(predicted) for row in dataset.examples],
        scheme=dataset.scheme or task.scheme(names),
        known_labels=names if task.names_labels else (),
    )


def demand_known(teacher: LoadedModel, dataset: Dataset[Any]) -> None:
    """Refuse labels that the teacher does not know."""
    if not task_named(dataset.task).names_labels:
        return
    unknown = [name for name in dataset.labels if name not in teacher.checkpoint.labels]
    if unknown:
        known = ", ".join(teacher.checkpoint.labels[:10])
        fault = f"the teacher does not know the label {unknown[0]!r:.60}"
        raise BertsmithError(f"{dataset.path}: {fault}; it knows {known}")


def demand_distillable(teacher: LoadedModel, student: Student, task: Task) -> None:
    """Refuse a teacher without a task head, and a student with other tokens where they matter."""
    if task.head is None:
        raise BertsmithError(f"the teacher has no task head: distil its vectors, or {STATIC}")
    model = student.model
    if model is not None and not same_tokens(teacher, open_model(model, progress=False)):
        demand_one_output(task)
