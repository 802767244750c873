"""Running one part: pre-training, a trial of a learning rate, or a final score."""

import json
import platform
import re
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from shutil import rmtree
from typing import Any

import torch

from bertsmith.checkpoint import locate
from bertsmith.compare.budget import Cost, with_steps
from bertsmith.compare.parts import PRETRAIN, RATE, ComparisonPart, PartStore, best_rate
from bertsmith.compare.spec import QUARTERS, Spec
from bertsmith.compare.tasks import finetune_settings, read_task
from bertsmith.corpus import Corpus
from bertsmith.distilling.static import WIDTH, to_static
from bertsmith.files import digest
from bertsmith.finetuning import Splits, finetune
from bertsmith.finetuning.work import data_sum
from bertsmith.foreign import read_json
from bertsmith.infer.opening import open_model
from bertsmith.store import fingerprint
from bertsmith.tasks.dataset import Dataset
from bertsmith.train import Recipe, pretrain
from bertsmith.train.pretraining import store_checkpoint

WEIGHTS = (".safetensors", ".bin", ".json")
KEPT = 64  # checkpoints, where models of earlier quarters are fine-tuned too


class PartStopped(KeyboardInterrupt):
    """A signal stopped the part that was running; it can be continued."""


class PartRunner:
    """Runs parts of a comparison, one after the other, in one process."""

    def __init__(self, spec: Spec, costs: dict[str, dict[str, Cost]], out: Path) -> None:
        self.spec, self.costs = spec, costs
        self.json = spec.model_dump_json()
        self.store = PartStore(out / "parts")
        self.sums: dict[str, str] = {}  # of corpus, models and data

    # ------------------------------------------------------------------ what a part depends on

    def inputs(self, part: ComparisonPart) -> dict[str, Any]:
        """All that a part's result depends on; models, data and corpus by their sums."""
        spec, variant = self.spec, self.spec.variants[part.variant]
        if part.kind == PRETRAIN:
            if variant.model:
                return {"kind": "model", "model": self._sum(f"model {variant.model}")}
            # Without defaults: keys that later versions add make no difference.
            recipe = self._recipe(part).model_dump(
                exclude={"about", "checkpoint"}, exclude_defaults=True
            )
            recipe["data"] |= {"corpus": self._sum(f"corpus {spec.corpus}"), "workers": 0}
            recipe["train"].pop("device", None)
            return {"kind": "static" if variant.static else "", "recipe": recipe}
        return {
            "pretraining": fingerprint([*self.inputs(part.trained()).values()]),
            "data": self._sum(f"data {part.task}"),
            "settings": finetune_settings(spec, part.task, self.splits(part.task)),
            "rates": (part.rate,) if part.kind == RATE else spec.finetune.learning_rates,
            "at": part.at,
            "seed": part.finetune_seed,
        }

    def _sum(self, what: str) -> str:
        if what not in self.sums:
            kind, _, name = what.partition(" ")
            if kind == "corpus":
                self.sums[what] = Corpus.open(Path(name)).fingerprint()
            elif kind == "model":
                files = [path for path in locate(name).iterdir() if path.suffix in WEIGHTS]
                self.sums[what] = fingerprint([[digest(path) for path in sorted(files)]])
            else:
                self.sums[what] = data_sum(self.splits(name))
        return self.sums[what]

    def splits(self, task: str) -> Splits:
        """The data of a task."""
        return read_task(self.json, task)

    def test(self, task: str) -> Dataset[Any]:
        """The test data of a task."""
        test = self.splits(task).test
        assert test is not None
        return test

    def _recipe(self, part: ComparisonPart) -> Recipe:
        recipe = self.spec.recipe(part.variant)
        assert recipe is not None
        return with_steps(
            recipe,
            self.costs[part.variant][part.budget],
            part.seed,
            keep=KEPT if len(self.spec.finetune.at) > 1 else 2,
        )

    # ------------------------------------------------------------------ running

    def run(self, part: ComparisonPart) -> None:
        """Run a part and store its result."""
        torch.set_num_threads(self.spec.threads)
        began = time.perf_counter()
        if part.kind == PRETRAIN:
            result, measured = self._pretrain(part)
        else:
            result, measured = self._finetune(part)
        measured["seconds"] = time.perf_counter() - began
        measured["device"] = torch.cuda.get_device_name() if on_gpu(self.spec) else cpu_name()
        self.store.write(part, self.inputs(part), result, measured)
        if part.kind == PRETRAIN:  # a run that was killed before this line can be continued
            rmtree(self.store.path / part.key / "checkpoints", ignore_errors=True)

    def model(self, part: ComparisonPart) -> str:
        """The directory of the model that a part is about."""
        if model := self.spec.variants[part.variant].model:
            return model
        folder = self.store.path / part.trained().key
        return str(folder / ("model" if part.at == 1 else f"model-at-{part.at:g}"))

    def _pretrain(self, part: ComparisonPart) -> tuple[dict[str, Any], dict[str, Any]]:
        variant = self.spec.variants[part.variant]
        if variant.model:
            return {}, {}
        folder = self.store.path / part.key
        if variant.static:
            return self._static(part, folder)
        recipe = self._recipe(part)
        resume = (folder / "recipe.toml").is_file()
        summary = pretrain(recipe, folder, resume=resume, show="none")
        if not summary["finished"]:
            raise PartStopped(summary.get("signal", 2))
        cost = self.costs[part.variant][part.budget]
        rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        held = {row["step"]: _numbers(row) for row in rows if "loss" not in row}
        for fraction in self.spec.finetune.at:
            if fraction < 1:
                step = round(fraction * cost.steps)
                store_checkpoint(recipe, folder, step, folder / f"model-at-{fraction:g}")
        result = {
            "steps": summary["steps"],
            "tokens": summary["tokens"],
            "objectives": dict(recipe.objectives),
            "held_out": [
                {"at": fraction, "step": step, **held[step]}
                for fraction in QUARTERS
                if (step := round(fraction * cost.steps)) in held
            ],
            "pseudo_perplexity": summary.get("pseudo_perplexity"),
            "unigram_entropy": summary.get("unigram_entropy"),
            "ledger": read_json(folder / "ledger.json"),
        }
        return result, {"training_seconds": 60 * summary["minutes"]}

    def _static(self, part: ComparisonPart, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        (source,) = part.needs(self.spec)
        teacher = open_model(self.model(source), device=self.spec.device or None, progress=False)
        student, _ = to_static(teacher, width=min(WIDTH, teacher.vector_width))
        student.save(folder / "model")
        trained = self.store.result(source) or {}
        return {"steps": trained.get("steps"), "tokens": trained.get("tokens")}, {}

    def _finetune(self, part: ComparisonPart) -> tuple[dict[str, Any], dict[str, Any]]:
        splits, spec = self.splits(part.task), self.spec
        trial = part.kind == RATE
        rate = part.rate if trial else best_rate(spec, self.store, part)
        settings = finetune_settings(spec, part.task, splits)
        run = finetune(
            self.model(part),
            Splits(splits.train, splits.dev, None if trial else splits.test),
            device=spec.device or None,
            learning_rate=rate,
            seed=part.finetune_seed,
            own_settings=False,
            progress=False,
            **settings,
        ).kept
        metric = settings["metric"]
        assert run.dev is not None
        result: dict[str, Any] = {"learning_rate": rate, "dev": run.dev.scores.get(metric)}
        if run.test is not None:
            result["test"] = run.test.scores.get(metric)
            result["values"] = run.test.values
        return result, {"training_seconds": run.history.seconds}


def _numbers(row: dict[str, Any]) -> dict[str, float]:
    return {
        key.removeprefix("held_out_"): value
        for key, value in row.items()
        if isinstance(value, int | float) and key != "step"
    }


def on_gpu(spec: Spec) -> bool:
    """Whether the parts of a comparison run on a GPU."""
    return spec.device.startswith("cuda") or (not spec.device and torch.cuda.is_available())


@cache
def cpu_name() -> str:
    """The name of this computer's CPU."""
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text("utf-8")
        if match := re.search(r"^model name\s*:\s*(.+?)\s*$", text, re.MULTILINE):
            return match[1]
    return platform.processor() or platform.machine()
