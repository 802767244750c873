"""Task distillation: a fine-tuned teacher labels texts, a smaller student learns its outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bertsmith.checkpoint import check_layers, keep_layers, read, spread_layers
from bertsmith.distilling.result import rows
from bertsmith.distilling.soft import LOSSES, SoftTraining, demand_label_task, same_tokens
from bertsmith.distilling.speed import compare_speed, size_of
from bertsmith.errors import BertsmithError
from bertsmith.finetuning.result import Result, Run
from bertsmith.finetuning.run import Command
from bertsmith.finetuning.settings import Settings
from bertsmith.finetuning.setup import find_encoder, freeze, open_fresh, open_model, reinitialise
from bertsmith.finetuning.trials import model_sum
from bertsmith.infer.loaded import LoadedModel, pick_device
from bertsmith.model import Config
from bertsmith.tasks.answering.reading import Span
from bertsmith.tasks.classification.reading import Labelled
from bertsmith.tasks.dataset import Dataset
from bertsmith.tasks.evaluate import Evaluation, compare, evaluate, labelled
from bertsmith.tasks.multilabel.reading import MultiLabelled
from bertsmith.tasks.read import open_data, read_data
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.regression.reading import Scored
from bertsmith.tasks.splits import Splits, split_off
from bertsmith.tasks.tagging.examples import Annotated, Tagged
from bertsmith.tasks.tagging.task import tag_words
from bertsmith.tasks.task import Prediction
from bertsmith.tasks.training import Training
from bertsmith.tokenizer import Tokenizer

NO_DEV = (
    "there is no labelled dev file: scores on dev are the share of the teacher's predictions that"
    " the student repeats"
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
    ) -> Student:
        """The student that a person asks for; by default half of the teacher's layers."""
        config = teacher.checkpoint.config
        if model is not None:
            if layers is not None:
                raise BertsmithError(
                    "a student is another model or layers of the teacher, not both"
                )
            return cls(path, model)
        return cls(path, None, chosen_layers(config, layers))

    @property
    def start(self) -> str | Path:
        """The model that the student's weights are from."""
        return self.teacher if self.model is None else self.model

    def describe(self) -> str:
        """The student in a few words."""
        if self.made is not None:
            return "static vectors, one for each token"
        if self.model is not None:
            return f"the model {Path(self.model).name}"
        return f"layers {', '.join(map(str, self.layers))} of the teacher"

    def open(self, training: Training, settings: Settings, device: str | None) -> LoadedModel:
        """The student with the head of a task, before its first step."""
        if self.made is not None:
            return self.made()
        if self.model is not None:
            return open_fresh(self.model, training, settings, device)
        directory, sentence = find_encoder(self.teacher)
        kept = () if training.head is None else (training.head,)
        whole = read(directory, heads=kept, device=pick_device(device))
        checkpoint = keep_layers(whole, self.layers)
        training.start_from_used(checkpoint.model)
        tokenizer = Tokenizer.load(directory, family=checkpoint.family.name)
        reinitialise(checkpoint.model, checkpoint.config, settings.reinitialise, settings.seed)
        freeze(checkpoint.model, settings.freeze)
        return LoadedModel(checkpoint, tokenizer, sentence=sentence, progress=False)


def chosen_layers(config: Config, layers: int | Sequence[int] | None) -> tuple[int, ...]:
    """The layers that a student keeps: so many, or these; by default half of them."""
    depth = len(config.plan)
    if not depth:
        raise BertsmithError("the teacher has no layers to keep: name another student")
    if layers is None:
        layers = max(1, depth // 2)
    chosen = spread_layers(depth, layers) if isinstance(layers, int) else tuple(layers)
    return check_layers(config, chosen)


class DistillCommand(Command):
    """Fine-tuning whose targets are a teacher's outputs."""

    teacher: LoadedModel
    student: Student
    temperature: float
    label_weight: float
    pseudo: bool  # is the dev data labelled by the teacher, too?

    def training(self, settings: Settings) -> Training:
        """The teacher's outputs, and with a weight the labels of the file."""
        base = super().training(settings)
        warm, weight = self.temperature, self.label_weight
        return SoftTraining(base, self.splits.train.task, self.teacher, warm, weight)

    def opened(self, training: Training, settings: Settings) -> LoadedModel:
        """The student before its first step."""
        return self.student.open(training, settings, self.device)

    def described(self) -> dict[str, Any]:
        """Teacher, student and how much each target counts."""
        return {
            "teacher": model_sum(self.student.teacher),
            "layers": list(self.student.layers),
            "temperature of the teacher": self.temperature,
            "weight of labels": self.label_weight,
        }

    def result(self, kept: Run, interrupted: bool = False, with_baseline: bool = False) -> Result:
        """The result of the runs so far, with the student beside its teacher."""
        self.extras["distillation"] = self.beside(kept)
        return super().result(kept, interrupted)

    def beside(self, kept: Run) -> dict[str, Any]:
        """Size, speed and scores of the student beside its teacher's: distill.json."""
        student, teacher, metric = kept.bert, self.teacher, self.settings.metric
        task = task_named(self.splits.train.task)
        measured = (self.splits.test or self.splits.dev or self.splits.train).examples
        content: dict[str, Any] = {
            "kind": "task",
            "task": task.name,
            "about": f"{self.student.describe()}, trained on its predictions for {task.name}",
            "teacher": size_of(teacher, str(self.student.teacher)),
            "student": {**size_of(student), "layers_kept": list(self.student.layers) or None},
            "settings": {
                "temperature": self.temperature,
                "label_weight": self.label_weight,
                **kept.settings.model_dump(include={"learning_rate", "epochs", "batch_size"}),
            },
            "texts": len(self.splits.train),
            "metric": metric,
            "scores": {},
            "comparison": {},
            "agreement": {},
            "speed": compare_speed(teacher, student, task.predict, measured),
            "notes": [NO_DEV] if self.pseudo else [],
        }
        for split, own, dataset in (
            ("dev", kept.dev, self.splits.dev),
            ("test", kept.test, self.splits.test),
        ):
            if own is None or dataset is None:
                continue
            other = evaluate(teacher, dataset)
            content["agreement"][split] = agreement(other, own)
            if split == "dev" and self.pseudo:
                continue
            content["scores"][split] = {"teacher": other.scores, "student": own.scores}
            content["comparison"][split] = paired(other, own, metric)
        content["table"] = list(rows(content))
        return content


def paired(teacher: Evaluation, student: Evaluation, metric: str) -> dict[str, Any]:
    """The student's score less its teacher's: a paired bootstrap over examples."""
    before = teacher.scores.get(metric)
    kept = student.scores[metric] / before if before else None
    return {"metric": metric, **asdict(compare(teacher, student, metric)), "kept": kept}


def agreement(teacher: Evaluation, student: Evaluation) -> float | None:
    """The share of examples for which both predict the same; None for numbers."""
    if teacher.task.name == "regression":
        return None
    same = [a == b for a, b in zip(teacher.values, student.values, strict=True)]
    return sum(same) / len(same)


# ------------------------------------------------------------------ data


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
    files = [None if one is None else read_data(one, task, **options) for one in (dev, test)]
    for one in filter(None, files):
        labelled(one)  # an error where there are no labels to score on
    for one in filter(None, (train if labels else None, *files)):
        demand_known(teacher, one)
    if files[0] is None and hold_out:
        train, held, how = split_off(train, hold_out)
        return Splits(train, held, files[1], [*notes, how])
    return Splits(train, files[0], files[1], notes)


def read_inputs(data: Any, task: str, labels: bool, **options: Any) -> Dataset[Any]:
    """The examples of a source; without `labels`, its labels are not read at all."""
    if labels:
        return read_data(data, task, **options)
    source = open_data(data, task, **options)
    examples = [one for part in source.portions() for one in part.examples if one is not None]
    return Dataset(
        source.path,
        task,
        examples,
        dict(source.columns),
        ledger=source.ledger,
        unused=source.unused,
    )


def answered(teacher: LoadedModel, dataset: Dataset[Any]) -> Dataset[Any]:
    """The same examples, those without a label with the teacher's prediction."""
    task = task_named(dataset.task)
    missing = [one for one in dataset.examples if not one.labelled or not _fits(one, task.name)]
    task.demand_kind(dataset.examples[0])
    predictions = iter(_predicted(teacher, task, missing) if missing else [])
    examples = [
        next(predictions) if not one.labelled or not _fits(one, task.name) else one
        for one in dataset.examples
    ]
    scheme, names = dataset.scheme, tuple(teacher.checkpoint.labels)
    if task.name == "tagging" and any(name[:2] in ("B-", "I-") for name in names):
        scheme = scheme or "bio"
    known = names if task.name in ("classification", "multilabel", "tagging") else ()
    return replace(dataset, examples=examples, scheme=scheme, known_labels=known)


def _fits(example: Any, task: str) -> bool:
    """Is an example of the kind that carries labels of this task?"""
    kinds = {"multilabel": MultiLabelled, "regression": Scored, "tagging": Tagged | Annotated}
    return isinstance(example, kinds.get(task, object))


def _predicted(teacher: LoadedModel, task: Any, examples: Sequence[Any]) -> list[Any]:
    """Examples with the teacher's predictions as labels."""
    if task.name == "tagging" and not isinstance(examples[0], Tagged | Annotated):
        tagged = tag_words(teacher, [one.text for one in examples])
        return [_tagged(one, words) for one, words in zip(examples, tagged, strict=True)]
    predictions = task.predict(teacher, examples)
    return [
        LABELLED[task.name](one, prediction)
        for one, prediction in zip(examples, predictions, strict=True)
    ]


def _tagged(example: Any, words: Sequence[Any]) -> Tagged:
    return Tagged(
        example.text,
        tuple(word.text for word in words),
        tuple((word.start, word.end) for word in words),
        tuple(word.label for word in words),
        example.where,
    )


def _answer(example: Any, prediction: Prediction) -> Any:
    best = prediction.output["answers"][:1] if prediction.value else []
    return replace(example, answers=tuple(Span(one["text"], one["start"]) for one in best))


LABELLED: dict[str, Callable[[Any, Prediction], Any]] = {
    "classification": lambda one, said: Labelled(one.text, one.pair, said.value, one.where),
    "multilabel": lambda one, said: MultiLabelled(one.text, one.pair, tuple(said.value), one.where),
    "regression": lambda one, said: Scored(one.text, one.pair, float(said.value), one.where),
    "tagging": lambda one, said: replace(
        one, **{"spans" if isinstance(one, Annotated) else "tags": tuple(said.value)}
    ),
    "answering": _answer,
    "choice": lambda one, said: replace(one, label=int(said.value)),
}


def demand_known(teacher: LoadedModel, dataset: Dataset[Any]) -> None:
    """Refuse labels that the teacher does not know."""
    if dataset.task not in ("classification", "multilabel", "tagging"):
        return
    unknown = [name for name in dataset.labels if name not in teacher.checkpoint.labels]
    if unknown:
        known = ", ".join(teacher.checkpoint.labels[:10])
        raise BertsmithError(
            f"{dataset.path}: the teacher does not know the label {unknown[0]!r:.60}; it knows"
            f" {known}"
        )


def demand_tokens(teacher: LoadedModel, student: Student, task: str) -> None:
    """Refuse a student with other tokens than its teacher, where they are needed."""
    if student.model is None:
        return
    if not same_tokens(teacher, open_model(student.model)):
        demand_label_task(task)


def demand_distillable(task: str) -> None:
    """Refuse a teacher without a head for a task."""
    if task not in LOSSES:
        raise BertsmithError("the teacher has no task head: distil its vectors, or --to static")
