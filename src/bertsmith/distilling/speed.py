"""Size and speed of a teacher and its student, measured side by side on the same texts."""

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from statistics import median
from typing import Any

import numpy as np
import torch

from bertsmith.examples.draw import bits
from bertsmith.infer.loaded import LoadedModel, with_changes

ROUNDS = 5  # in which teacher and student take turns, so that both see the same load
SECONDS = 0.2  # that a model runs in a round, at least
MOST = 128  # texts
LENGTH = 24  # tokens of a text, where there is no data to measure on

Use = Callable[[LoadedModel, Sequence[Any]], Any]


def size_of(bert: LoadedModel, name: str = "") -> dict[str, Any]:
    """What a model is, and how large: its parameters are counted once where they are shared."""
    config = bert.checkpoint.config
    parameters = list(bert.model.parameters())
    return {
        **({"model": name} if name else {}),
        "family": bert.checkpoint.family.name,
        "layers": len(config.plan),
        "width": config.width,
        "parameters": sum(weight.numel() for weight in parameters),
        # Without embedding tables, which cost no time.
        "encoder_parameters": sum(w.numel() for w in bert.model.encoder.blocks.parameters()),
        "bytes": sum(weight.numel() * weight.element_size() for weight in parameters),
    }


def compare_speed(
    teacher: LoadedModel, student: LoadedModel, use: Use, inputs: Sequence[Any]
) -> list[dict[str, Any]]:
    """Inputs per second of both models in `use`, tokenization included, on the CPU and on a GPU."""
    inputs, results = list(inputs)[:MOST], []
    for device in ["cpu", *["cuda"] * torch.cuda.is_available()]:
        models = [_on_device(bert, device) for bert in (teacher, student)]
        rates: list[list[float]] = [[], []]
        for model in models:
            use(model, inputs[: 1 + len(inputs) // 8])  # the first pass prepares
        for _ in range(ROUNDS):
            for model, own in zip(models, rates, strict=True):
                began, passes = time.perf_counter(), 0
                while not passes or time.perf_counter() - began < SECONDS:
                    use(model, inputs)
                    passes += 1
                own.append(passes * len(inputs) / (time.perf_counter() - began))
        first, second = map(median, rates)
        results.append(
            {
                "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
                "threads": torch.get_num_threads() if device == "cpu" else None,
                "inputs": len(inputs),
                "teacher_per_second": round(first, 1),
                "student_per_second": round(second, 1),
                "ratio": round(second / first, 2),
            }
        )
    return results


def _on_device(bert: LoadedModel, device: str) -> LoadedModel:
    there = bert.device.type == device
    return with_changes(bert, None if there else deepcopy(bert.model).to(device))


def random_texts(bert: LoadedModel, count: int = MOST, length: int = LENGTH) -> list[str]:
    """Texts of random tokens, to measure speed where there is no data."""
    plain = sorted(set(range(bert.tokenizer.size)) - bert.tokenizer.special_ids)
    random = np.random.default_rng(int(bits(0, "texts")))
    drawn = random.choice(plain, (count, length))
    return [bert.tokenizer.decode(row.tolist()) for row in drawn]
