"""The model card of a fine-tuned model: data, scores, settings and usage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bertsmith import __version__
from bertsmith.checkpoint import Checkpoint
from bertsmith.files import write_text
from bertsmith.tasks.registry import task_named

MOST = 40  # labels that are named


def write_result_card(
    folder: Path, checkpoint: Checkpoint, content: Mapping[str, Any], defaults: Mapping[str, Any]
) -> None:
    """Write README.md from what report.json says; settings as by `defaults` are left out."""
    text = "\n".join(_lines(folder.name, checkpoint, content, defaults))
    write_text(folder / "README.md", text + "\n")


def _lines(
    name: str, checkpoint: Checkpoint, content: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Iterator[str]:
    task, base = content["task"], Path(content["model"]).name
    value = task_named(task)
    hub, opens, use = value.hub_tag, value.opens_as, value.usage
    yield from ("---", "library_name: bertsmith", f"pipeline_tag: {hub}")
    yield from (f"tags: [{checkpoint.family.name}, {task}]", "---", "", f"# {name}", "")
    yield f"`{base}`, fine-tuned for {task}: {value.about}."
    yield ""
    config = checkpoint.config
    count = sum(parameter.numel() for parameter in checkpoint.model.parameters())
    longest = min(config.max_length, content["settings"]["max_length"] or config.max_length)
    yield (
        f"- Model: {checkpoint.family.name}, {config.layers} layers, {config.width} wide, "
        f"{count:,} parameters; inputs of up to {longest:,} tokens at once, longer ones "
        "in windows"
    )
    for split, one in content["files"].items():
        yield f"- Data, {split}: {one['file']}, {one['with_gold']:,} examples"
    if labels := content["labels"]:
        more = f" and {len(labels) - MOST} more" if len(labels) > MOST else ""
        yield f"- Labels ({len(labels)}): {', '.join(labels[:MOST])}{more}"
    yield from ("", "## Scores", "", *_scores(content), *_baseline(content), *_teacher(content))
    yield from ("", "## Training", "")
    yield _settings(content, defaults)
    for note in content["notes"]:
        yield from ("", f"{note[0].upper()}{note[1:]}.")
    yield from ("", "## Use", "", "```python", "import bertsmith as bs", "")
    yield from (f'bs.load("{name}").{use}', "```", "", "```", f"bertsmith predict {name} FILE")
    yield from ("```", "", "```python", *_elsewhere(name, opens))
    if value.pipeline:
        yield from ("", "from transformers import pipeline", "")
        yield f'pipeline("{hub}", "{name}", {value.pipeline})("Ada lived in London.")'
    yield from ("```", "")
    yield f"Written by bertsmith {__version__}; report.html beside this file tells more."


def _scores(content: Mapping[str, Any]) -> Iterator[str]:
    splits = {split: scores for split, scores in content["scores"].items() if scores}
    if not splits:
        yield "There was nothing to score on."
        return
    yield "| | " + " | ".join(splits) + " |"
    yield "| --- " * (len(splits) + 1) + "|"
    for name in dict.fromkeys(name for scores in splits.values() for name in scores):
        cells = (f"{scores[name]:.4g}" if name in scores else "" for scores in splits.values())
        yield f"| {name} | " + " | ".join(cells) + " |"
    for split in splits:
        metric = content["metric"]
        if one := content["intervals"][split]:
            yield ""
            yield (
                f"{split} {metric}: 95 % interval {one['low']:.4f} to {one['high']:.4f} (bootstrap "
                "over examples)."
            )
        if one := content["over_seeds"][split]:
            yield ""
            yield (
                f"{split} {metric} over {one['count']} seeds: {one['mean']:.4f} ± "
                f"{one['deviation']:.4f}, 95 % interval {one['low']:.4f} to {one['high']:.4f}; the "
                "best seed is the one stored."
            )


def _baseline(content: Mapping[str, Any]) -> Iterator[str]:
    """The score of the baseline beside the model's."""
    simple = content.get("baseline") or {}
    for split in ("test", "dev"):
        scores = (simple.get("scores") or {}).get(split)
        if scores and content["metric"] in scores:
            yield ""
            yield f"{simple['name']}: {split} {content['metric']} {scores[content['metric']]:.4g}."
            return


def _teacher(content: Mapping[str, Any]) -> Iterator[str]:
    """A distilled model beside its teacher: size, speed and scores."""
    if one := content.get("distillation"):
        yield from ("", f"Distilled from `{Path(one['teacher']['model']).name}`:", "")
        yield from ("| | teacher | student |", "| --- | --- | --- |")
        yield from (f"| {' | '.join(row)} |" for row in one["table"])


def _settings(content: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """What everyone asks for, and whatever else is not as usual."""
    always = ("learning_rate", "optimizer", "epochs", "batch_size", "seed")
    shown = {
        name: value
        for name, value in content["settings"].items()
        if name in always or (value != defaults[name] and name != "metric")
    }
    text = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown.items())
    kept = f"epoch {content['kept_epoch']} was kept"
    if content["scores"]["dev"] and content["settings"]["keep"] == "best":
        kept += f", by {content['metric']}"
    return f"{text[0].upper()}{text[1:]}; {content['steps']:,} steps; {kept}."


def _elsewhere(name: str, opens: str) -> tuple[str, ...]:
    """How others open it."""
    if not opens:
        library = "from sentence_transformers import SentenceTransformer"
        return library, "", f'SentenceTransformer("{name}").encode(["A text.", "Another."])'
    return (
        f"from transformers import AutoModelFor{opens}, AutoTokenizer",
        "",
        f'model = AutoModelFor{opens}.from_pretrained("{name}")',
        f'tokenizer = AutoTokenizer.from_pretrained("{name}")',
    )
