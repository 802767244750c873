"""results.json: scores, tests, costs and curves; the same on a CPU for a spec and its seeds."""

import math
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertsmith import __version__
from bertsmith.checkpoint import locate, read_config
from bertsmith.compare.parts import PRETRAIN, SCORE, ComparisonPart, best_rate, parts_of, rate_parts
from bertsmith.compare.static import measure
from bertsmith.compare.summary import summarised
from bertsmith.compare.tasks import metric_of
from bertsmith.compare.work import PartRunner, cpu_name
from bertsmith.corpus import Corpus
from bertsmith.metrics import MultiBootstrap, holm, multi_bootstrap
from bertsmith.metrics.intervals import percentiles
from bertsmith.model import Config, Model, build
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.task import Prediction
from bertsmith.train.building import Built, built
from bertsmith.train.flops import encoder_flops, inference_memory, parameters_of, training_memory

LENGTH, BATCH = 128, 8  # of memory and speed
DRAWS_OF_A_PAIR = 50


def results_of(worker: PartRunner) -> dict[str, Any]:
    """The content of results.json, from the parts that are finished."""
    spec = worker.spec
    budgets = spec.budget.kinds() if any(spec.recipe(v) for v in spec.variants) else ("none",)
    content: dict[str, Any] = {
        "bertsmith": __version__,
        "spec": spec.model_dump(exclude={"device"}),
        "corpus": Corpus.open(Path(spec.corpus)).fingerprint() if spec.corpus else None,
        "tasks": {name: _task(worker, name) for name in spec.tasks},
        "variants": {name: _variant(worker, name) for name in spec.variants},
        "pretraining": {
            budget: {name: _pretrained(worker, name, budget) for name in spec.variants}
            for budget in budgets
        },
        "learning_rates": {
            budget: {task: _rates(worker, budget, task) for task in spec.tasks}
            for budget in budgets
        },
        "scores": {},
        "mean": {},
        "comparisons": {},
        "missing": [part.key for part in parts_of(spec) if worker.store.read(part) is None],
    }
    for budget in budgets:
        every = {task: _bootstrap(worker, budget, task) for task in spec.tasks}
        drawn = {task: one for task, one in every.items() if one is not None}
        content["scores"][budget] = {
            task: {name: _score(worker, budget, task, name, one) for name in one.scores}
            for task, one in drawn.items()
        }
        content["mean"][budget] = _means(drawn)
        content["comparisons"][budget] = {task: _pairs(one) for task, one in drawn.items()}
    return content | {"summary": summarised(spec, content)}


def _task(worker: PartRunner, name: str) -> dict[str, Any]:
    splits = worker.splits(name)
    files = {"train": splits.train, "dev": splits.dev, "test": splits.test}
    counts = {split: len(file) for split, file in files.items() if file is not None}
    metric = metric_of(worker.spec, name, splits)
    return {"task": splits.train.task, "metric": metric, **counts}


def _built(worker: PartRunner, name: str) -> Built:
    recipe = worker.spec.recipe(name)
    assert recipe is not None
    return built(recipe, Corpus.open(Path(worker.spec.corpus)).tokenizer, device="meta")


def _config(worker: PartRunner, name: str) -> Config | None:
    """The config of a variant's encoder; None if it is not known yet."""
    part = worker.spec.variants[name]
    if part.recipe:
        return _built(worker, name).checkpoint.config
    directory = Path(worker.model(ComparisonPart(PRETRAIN, name, worker.spec.budgets(name)[0])))
    if part.static and not directory.is_dir():
        return None
    return read_config(locate(str(directory)))


def _variant(worker: PartRunner, name: str) -> dict[str, Any]:
    config = _config(worker, name)
    content: dict[str, Any] = {"kind": worker.spec.variants[name].kinds()[0]}
    if config is not None:
        with torch.device("meta"):
            encoder = Model(build(config).encoder, {})
        tokens = LENGTH * BATCH
        content |= {
            "parameters": parameters_of(encoder),
            "flops_per_token": encoder_flops(encoder.encoder, LENGTH, BATCH) / tokens,
            "inference_memory_bytes": inference_memory(encoder, tokens=tokens),
        }
    if recipe := worker.spec.recipe(name):
        content["training_memory_bytes"] = training_memory(
            _built(worker, name).learner,
            micro_tokens=recipe.train.micro_tokens,
            masked=recipe.masking.rate,
            half=recipe.train.precision != "float32",
        )
        content["budgets"] = {k: vars(cost) for k, cost in worker.costs[name].items()}
    return content


def _pretrained(worker: PartRunner, name: str, budget: str) -> list[dict[str, Any]]:
    if worker.spec.variants[name].model:
        return []
    seeds = worker.spec.pretraining_seeds(name)
    stored = [worker.store.result(ComparisonPart(PRETRAIN, name, budget, seed)) for seed in seeds]
    return [{"seed": seed, **run} for seed, run in zip(seeds, stored, strict=True) if run]


def _rates(worker: PartRunner, budget: str, task: str) -> dict[str, Any]:
    spec, rows = worker.spec, {}
    for name in spec.variants:
        part = ComparisonPart(SCORE, name, _own(worker, name, budget), 0, task)
        trials = {one.rate: worker.store.result(one) for one in rate_parts(spec, part)}
        if all(trials.values()):
            rows[name] = {
                "dev": {f"{rate:g}": (one or {}).get("dev") for rate, one in trials.items()},
                "chosen": best_rate(spec, worker.store, part),
            }
    return rows


def _own(worker: PartRunner, name: str, budget: str) -> str:
    """The budget under which a variant's parts are stored: trained models have none."""
    return "none" if worker.spec.variants[name].model else budget


def runs_of(
    worker: PartRunner, budget: str, task: str, name: str, at: float = 1.0
) -> dict[int, dict[int, dict[str, Any]]]:
    """The results of fine-tuning: pre-training seed → fine-tuning seed → result."""
    spec = worker.spec
    runs: dict[int, dict[int, dict[str, Any]]] = {}
    for seed in spec.pretraining_seeds(name):
        for number in range(spec.finetune.seeds):
            part = ComparisonPart(
                SCORE, name, _own(worker, name, budget), seed, task, at, 0.0, number
            )
            if (result := worker.store.result(part)) is not None:
                runs.setdefault(seed, {})[number] = result
    return runs


def _bootstrap(worker: PartRunner, budget: str, task: str) -> MultiBootstrap | None:
    spec, test = worker.spec, worker.test(task)
    metric, kind = metric_of(spec, task, worker.splits(task)), task_named(test.task)

    def scorer(values: list[Any]) -> Callable[[Any], float]:
        predictions = [Prediction(plain(value), 1.0) for value in values]
        score = kind.scorer(test, predictions)
        # A correlation with predictions that are all the same is undefined: it counts as 0.
        return lambda weights: float(np.nan_to_num(score(weights)[metric]))

    def mean(scorers: list[Callable[[Any], float]]) -> Callable[[Any], float]:
        return lambda weights: math.fsum(one(weights) for one in scorers) / len(scorers)

    procedures = {}
    for name in spec.variants:
        if runs := runs_of(worker, budget, task, name):
            procedures[name] = [
                mean([scorer(result["values"]) for result in numbers.values()])
                for numbers in runs.values()
            ]
    if not procedures:
        return None
    # With fewer draws no p-value could remain below 0.05 after the correction for all pairs.
    pairs = math.comb(len(procedures), 2)
    return multi_bootstrap(procedures, len(test), draws=max(spec.draws, DRAWS_OF_A_PAIR * pairs))


def plain(value: Any) -> Any:
    """A prediction as it was before it was stored as JSON."""
    return tuple(map(plain, value)) if isinstance(value, list) else value


def _score(
    worker: PartRunner, budget: str, task: str, name: str, drawn: MultiBootstrap
) -> dict[str, Any]:
    runs, curve = runs_of(worker, budget, task, name), {}
    for at in worker.spec.finetune.at:
        scores = results_at(runs_of(worker, budget, task, name, at), "test")
        if scores and None not in scores:
            curve[f"{at:g}"] = math.fsum(scores) / len(scores)
    return {
        **_bounded(drawn.scores[name], *drawn.interval(name)),
        "deviation": drawn.deviations[name],
        "runs": [[result["test"] for result in numbers.values()] for numbers in runs.values()],
        "at": curve,
    }


def _bounded(mean: float, low: float, high: float) -> dict[str, float]:
    """A score with its interval; none is beyond -1 and 1, but drawn deviations may be."""
    return {"mean": mean, "low": max(low, -1.0), "high": min(high, 1.0)}


def results_at(runs: dict[int, dict[int, dict[str, Any]]], key: str) -> list[Any]:
    """An entry of the results of all runs."""
    return [result[key] for numbers in runs.values() for result in numbers.values()]


def _means(drawn: dict[str, MultiBootstrap]) -> dict[str, Any]:
    """The mean over tasks of each variant that has all of them; tasks are drawn independently."""
    if not drawn:
        return {}
    tasks, content = list(drawn.values()), {}
    for name in tasks[0].scores:
        if all(name in task.scores for task in tasks):
            # Tasks that more variants have finished were drawn more often.
            rows = zip(*(task.draws[name] for task in tasks), strict=False)
            interval = percentiles(np.mean(list(rows), axis=1), 0.95, min(t.length for t in tasks))
            mean = math.fsum(task.scores[name] for task in tasks) / len(tasks)
            content[name] = _bounded(mean, *interval)
    return content


def _pairs(drawn: MultiBootstrap) -> list[dict[str, Any]]:
    """A paired test of every two variants, with p-values corrected for their number."""
    pairs = list(combinations(drawn.scores, 2))
    tests = [drawn.compare(first, second) for first, second in pairs]
    corrected = holm([one.p_value for one in tests])
    rows = []
    for (first, second), test, p_value in zip(pairs, tests, corrected, strict=True):
        needed = drawn.seeds_needed(first, second, 0.05 / len(pairs))  # as if it came first
        seeds = drawn.seeds[first], drawn.seeds[second]
        different = p_value < 0.05
        # None: more seeds do not suffice, or there are none to estimate from.
        estimable = min(seeds) > 1 and math.isfinite(needed) and not different
        rows.append(
            {
                "first": first,
                "second": second,
                "difference": test.difference,
                "low": test.low,
                "high": test.high,
                "p": test.p_value,
                "p_corrected": p_value,
                "different": different,
                "seeds_needed": int(max(needed, max(seeds) + 1)) if estimable else None,
                "test_set_too_small": bool(
                    math.isinf(needed) and not different and test.difference
                ),
            }
        )
    return rows


# ------------------------------------------------------------------ times


def timings_of(worker: PartRunner) -> dict[str, Any]:
    """The content of timings.json: what was measured on this machine."""
    stored = {part.key: worker.store.read(part) for part in parts_of(worker.spec)}
    parts = {key: one["measured"] for key, one in stored.items() if one is not None}
    devices = dict.fromkeys(one["device"] for one in parts.values() if one.get("device"))
    return {
        "device": " and ".join(devices) or cpu_name(),  # parts may be of several machines
        "parts": parts,
        "variants": {name: _speed(worker, name) for name in worker.spec.variants},
    }


def _speed(worker: PartRunner, name: str) -> dict[str, Any]:
    if stored := worker.store.finished(f"{name}/speed"):
        return stored
    config, threads = _config(worker, name), worker.spec.threads
    if config is None:
        return {}
    torch.set_num_threads(threads)
    length = min(LENGTH, config.max_length)
    speed, latency = measure(build(config), vocabulary=config.vocabulary, length=length)
    content: dict[str, Any] = {"tokens_per_second": speed, "latency_ms": latency}
    content |= {"threads": threads, "cpu": cpu_name()}
    worker.store.finish(f"{name}/speed", content)
    return content
