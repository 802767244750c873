"""The model card of a fine-tuned model: data, scores, settings and usage."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.checkpoint import Checkpoint, built_in
from bertsmith.files import write_text
from bertsmith.pages.page import markdown
from bertsmith.tasks.registry import task_named

MOST = 40  # labels that are named


def write_result_card(
    folder: Path,
    checkpoint: Checkpoint,
    content: Mapping[str, Any],
    defaults: Mapping[str, Any],
    base: str | Path | None = None,
) -> None:
    """Write README.md from report.json, for an adapter of `base`; default settings are left out."""
    config, teacher = checkpoint.config, content.get("distillation")
    splits = {split: scores for split, scores in content["scores"].items() if scores}
    text = markdown(
        "card.md",
        name=folder.name,
        content=content,
        task=task_named(content["task"]),
        base=Path(content["model"]).name,
        family=checkpoint.family.name,
        adapter=None if base is None else _adapter(base, checkpoint, bool(content["labels"])),
        layers=config.layers,
        width=config.width,
        parameters=sum(parameter.numel() for parameter in checkpoint.model.parameters()),
        longest=min(config.max_length, content["settings"]["max_length"] or config.max_length),
        most=MOST,
        splits=splits,
        scores=list(dict.fromkeys(name for scores in splits.values() for name in scores)),
        baseline=_baseline(content),
        teacher=teacher and {**teacher, "name": Path(teacher["teacher"]["model"]).name},
        settings=_settings(content, defaults),
    )
    write_text(folder / "README.md", text)


def _adapter(base: str | Path, checkpoint: Checkpoint, named: bool) -> dict[str, Any]:
    directory, settings = Path(base).is_dir(), checkpoint.settings
    return {
        "base": Path(base).resolve() if directory else base,
        "built_in": not directory and str(base) in built_in(),  # only bertsmith knows it
        "labels": checkpoint.labels if named else [],
        "count": settings.get("num_labels") or len(settings.get("id2label") or ()),
        # `transformers` gives these layers other names in memory than in files.
        "peft": checkpoint.family.name != "nomic_bert",
    }


def _baseline(content: Mapping[str, Any]) -> str:
    simple, metric = content.get("baseline") or {}, content["metric"]
    for split in ("test", "dev"):
        scores = (simple.get("scores") or {}).get(split)
        if scores and metric in scores:
            return f"{simple['name']}: {split} {metric} {scores[metric]:.4g}."
    return ""


def _settings(content: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    if chosen := (content.get("auto") or {}).get("chosen"):
        return f"Chosen by cross-validation (fine-tuning with `auto`): {chosen}."
    always = ("learning_rate", "optimizer", "epochs", "batch_size", "seed")
    text = ", ".join(
        f"{name.replace('_', ' ')} {f'{value:.4g}' if isinstance(value, float) else value}"
        for name, value in content["settings"].items()
        if name in always or (value != defaults[name] and name != "metric")
    )
    epoch = f"epoch {content['kept_epoch']} was kept"
    if content["scores"]["dev"] and content["settings"]["keep"] == "best":
        epoch += f", by {content['metric']}"
    return f"{text[0].upper()}{text[1:]}; {content['steps']:,} steps; {epoch}."
