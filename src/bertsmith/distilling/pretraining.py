"""Distillation in pre-training: a recipe with a teacher, on a corpus that was prepared."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertsmith.checkpoint import locate, read_config
from bertsmith.corpus.manifest import NAME as MANIFEST
from bertsmith.distilling.result import DistillationResult, rows
from bertsmith.distilling.speed import compare_speed, random_texts, size_of
from bertsmith.distilling.task import chosen_layers
from bertsmith.errors import BertsmithError
from bertsmith.files import finite, write_json
from bertsmith.finetuning.work import RESUME, Interrupted
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.opening import open_model
from bertsmith.objectives import MaskedTokens, MultiObjective
from bertsmith.tasks.embedding import embed
from bertsmith.train import Recipe, load_recipe, pretrain
from bertsmith.train.building import examples_of, open_corpus
from bertsmith.train.distributed import Ranks
from bertsmith.train.evaluate import held_out
from bertsmith.train.loggers import LoggerNames
from bertsmith.train.recipe import change

RECIPE = "distilbert"


def is_corpus(data: Any) -> bool:
    """Is this a folder that `bertsmith prepare` wrote?"""
    return isinstance(data, str | Path) and (Path(data) / MANIFEST).is_file()


def taught_recipe(
    teacher: str | Path,
    corpus: str | Path,
    name: str | Path | None = None,
    changes: Sequence[str] = (),
    *,
    student: str | Path | None = None,
    layers: int | Sequence[int] | None = None,
) -> Recipe:
    """A recipe whose teacher and student are named.

    The student is another model, layers of the teacher, or a new model of the recipe's size; a
    recipe without a size gets half of the teacher's layers.
    """
    plain = load_recipe(name or RECIPE, changes)
    lines = [*changes, change("teacher.model", str(teacher)), change("data.corpus", str(corpus))]
    if student is not None:
        if layers is not None:
            raise BertsmithError("a student is another model or layers of the teacher, not both")
        lines.append(change("model.start", str(student)))
    elif layers is not None or not (plain.model.size or plain.model.start):
        kept = chosen_layers(read_config(locate(teacher)), layers)
        lines += [change("model.start", str(teacher)), f"model.keep={list(kept)}"]
    return load_recipe(name or RECIPE, lines)


def distill_text(
    recipe: Recipe, out: Path, *, resume: bool = False, show: Any = None, log: LoggerNames = ()
) -> DistillationResult:
    """Pre-train a student by a recipe with a teacher; the student is in `out`/model at the end."""
    summary = pretrain(recipe, out, resume=resume, show=show, log=log)
    if not summary["finished"]:
        raise Interrupted(f"stopped at step {summary['steps']}; {RESUME} continues")
    student = open_model(out / "model", progress=False)
    if os.environ.get("RANK", "0") != "0":  # the first of several processes measures it
        return DistillationResult(student, {"kind": "pretraining"}, out / "model")
    teacher = open_model(recipe.teacher.model, progress=False)
    content: dict[str, Any] = {
        "kind": "pretraining",
        "about": f"trained on {summary['tokens']:,} tokens with {', '.join(recipe.objectives)}",
        "teacher": size_of(teacher, recipe.teacher.model),
        "student": {**size_of(student), "layers_kept": list(recipe.model.keep) or None},
        "settings": recipe.model_dump(),
        "summary": summary,
        "scores": _held_out(recipe, teacher, student),
        "speed": compare_speed(teacher, student, embed, random_texts(teacher)),
        "notes": ["speed was measured on texts of 24 random tokens"],
    }
    content["table"] = [list(row) for row in rows(content)]
    write_json(out / "distill.json", finite(content))
    return DistillationResult(student, content, out / "model")


def _held_out(recipe: Recipe, teacher: LoadedModel, student: LoadedModel) -> dict[str, Any]:
    """Masked LM of both on the same masks of held-out text, where both can."""
    models = {"teacher": teacher.model, "student": student.model}
    if any("masked_lm" not in model.heads for model in models.values()):
        return {}
    masked = recipe.model_copy(update={"objectives": {"masked_lm": 1.0}})
    try:
        corpus, length = open_corpus(masked, "held_out"), masked.lengths()[-1][0]
        examples = examples_of(masked, corpus, length, teacher.checkpoint.config.segments)
    except BertsmithError:  # nothing was held out, or too little
        return {}
    scores = {}
    for side, model in models.items():
        learner = MultiObjective(model, [MaskedTokens()], {})
        result = held_out(
            learner,
            learner,
            examples,
            tokens=recipe.evaluate.tokens or 4096,
            micro_tokens=recipe.train.micro_tokens,
            ranks=Ranks.alone(next(model.parameters()).device),
            stopped=lambda: False,
        )
        own = result or {}
        model.eval()
        scores[side] = {name: own[name] for name in own if name.startswith("masked_lm")}
    return {"held_out": scores}
