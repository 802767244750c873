"""The parts of a comparison: independent pieces of work, each with a stored result."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from bertsmith.compare.spec import Spec
from bertsmith.errors import BertsmithError, setting_name
from bertsmith.files import finite
from bertsmith.store import WorkFolder, as_stored, differences, fingerprint

PRETRAIN, RATE, SCORE = "pretrain", "rate", "score"


@dataclass(frozen=True)
class ComparisonPart:
    """One piece of work: pre-train a variant, try a learning rate on a task, or score it."""

    kind: str
    variant: str
    budget: str
    seed: int = 0  # of pre-training
    task: str = ""
    at: float = 1.0  # fraction of the budget after which the model is fine-tuned
    rate: float = 0.0
    finetune_seed: int = 0

    @property
    def key(self) -> str:
        """Its name, which is also the path of its result."""
        place = f"{self.variant}/{self.budget}/"
        if self.kind == PRETRAIN:
            return f"{place}seed-{self.seed}"
        if self.kind == RATE:
            return f"{place}{self.task}.rate-{self.rate:g}"
        early = "" if self.at == 1 else f".at-{self.at:g}"
        return f"{place}{self.task}.seed-{self.seed}-{self.finetune_seed}{early}"

    def trained(self, variant: str = "") -> ComparisonPart:
        """The pre-training that it starts from, or that of another variant."""
        return ComparisonPart(PRETRAIN, variant or self.variant, self.budget, self.seed)

    def needs(self, spec: Spec) -> list[ComparisonPart]:
        """The parts that must be finished before."""
        if self.kind == PRETRAIN:
            source = spec.variants[self.variant].static
            return [self.trained(source)] if source else []
        return [self.trained(), *(rate_parts(spec, self) if self.kind == SCORE else [])]


def rate_parts(spec: Spec, part: ComparisonPart) -> list[ComparisonPart]:
    """The trials of learning rates for a part's variant, budget and task; none for one rate."""
    rates = spec.finetune.learning_rates if len(spec.finetune.learning_rates) > 1 else ()
    return [
        ComparisonPart(RATE, part.variant, part.budget, 0, part.task, 1.0, rate) for rate in rates
    ]


def parts_of(spec: Spec, only: tuple[str, ...] = ()) -> list[ComparisonPart]:
    """All parts of a comparison, or of some variants, in an order in which they can be run."""
    parts: dict[ComparisonPart, None] = {}

    def add(part: ComparisonPart) -> None:
        for other in part.needs(spec):
            add(other)
        parts.setdefault(part)

    for variant in only or spec.variants:
        for budget in spec.budgets(variant):
            for part in _of(spec, variant, budget):
                add(part)
    return sorted(parts, key=lambda part: (PRETRAIN, RATE, SCORE).index(part.kind))


def _of(spec: Spec, variant: str, budget: str) -> Iterator[ComparisonPart]:
    seeds = spec.pretraining_seeds(variant)
    for seed in seeds:
        yield ComparisonPart(PRETRAIN, variant, budget, seed)
    scored_once = bool(spec.variants[variant].model or spec.variants[variant].static)
    fractions = (1.0,) if scored_once else spec.finetune.at
    for task, at, seed in product(spec.tasks, fractions, seeds):
        # Earlier quarters are points of a curve, which no test uses: one run each.
        for number in range(spec.finetune.seeds if at == 1 else 1):
            yield ComparisonPart(SCORE, variant, budget, seed, task, at, 0.0, number)


class PartStore(WorkFolder):
    """The results of finished parts, in a folder."""

    def read(self, part: ComparisonPart) -> dict[str, Any] | None:
        """What was stored of a part; None where it is not finished."""
        return self.finished(part.key, inputs=str, result=dict, measured=dict)

    def result(self, part: ComparisonPart) -> dict[str, Any] | None:
        """The result of a finished part."""
        content = self.read(part)
        return None if content is None else content["result"]

    def demand_inputs(self, part: ComparisonPart, inputs: Mapping[str, Any]) -> None:
        """Refuse the result of a part that was run with other settings or data."""
        content = self.read(part)
        if content is not None and content["inputs"] != fingerprint([*inputs.values()]):
            changed = differences(content.get("made_of", {}), as_stored(inputs))
            what = f" ({changed[0][0]} differs)" if "made_of" in content and changed else ""
            raise BertsmithError(
                f"{self.file(part.key)}: written with other settings, data or corpus{what}; choose"
                f" another {setting_name('out')}, or remove it"
            )

    def write(
        self,
        part: ComparisonPart,
        inputs: Mapping[str, Any],
        result: Mapping[str, Any],
        measured: Mapping[str, Any],
    ) -> None:
        """Store a finished part; `measured` are times, which differ from run to run."""
        content = {
            "part": asdict(part),
            "inputs": fingerprint([*inputs.values()]),
            "made_of": as_stored(inputs),
            "result": result,
            "measured": measured,
        }
        self.finish(part.key, finite(content))

    def merge(self, other: Path) -> int:
        """Take the finished parts of another folder; returns how many were new."""
        source = other / "parts" if (other / "parts").is_dir() else other
        if not source.is_dir():
            raise BertsmithError(f"{other}: no parts of a comparison in this folder")
        paths = [*sorted(source.glob("*/steps.json")), *sorted(source.glob("*/*/*.json"))]
        names = [path.relative_to(source).with_suffix("").as_posix() for path in paths]
        new = [name for name in names if not self.file(name).exists()]
        for name in new:
            self.finish(name, WorkFolder(source).finished(name) or {})
        return len(new)


def best_rate(spec: Spec, store: PartStore, part: ComparisonPart) -> float:
    """The learning rate with the best score on dev data; of equal ones the lowest."""
    scores = {}
    for trial in rate_parts(spec, part):
        score = (store.result(trial) or {}).get("dev")
        # A correlation with predictions that are all the same is undefined.
        scores[trial.rate] = -math.inf if score is None else score
    return max(sorted(scores), key=scores.__getitem__, default=spec.finetune.learning_rates[0])
