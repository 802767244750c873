"""A film of a pre-training run: the weights of many steps in one page, with a slider over them."""

import math
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertsmith.errors import BertsmithError, setting_name
from bertsmith.explorer.page import check_page, explorer_settings, write_explorer
from bertsmith.explorer.weights import Floats, Packed, pack, scales_of
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.opening import open_model
from bertsmith.pages.charts import Series, line_chart
from bertsmith.pages.runs.page import term_name
from bertsmith.pages.runs.run import HELD, PretrainingRun, read_run, rows
from bertsmith.train.pretraining import FILM
from bertsmith.train.state import Checkpoints

MEGABYTES = 25.0  # of the page: larger ones are slow to open
POINTS = 6  # of a training curve, for each doubling of the steps
BASE64 = 4 / 3


def film(
    run: str | Path,
    path: str | Path,
    *,
    dtype: str = "int8",
    name: str | None = None,
    examples: Sequence[str] = (),
    megabytes: float = MEGABYTES,
) -> dict[str, Any]:
    """Write a pre-training run as one HTML page with a slider over its steps.

    The run's recipe needs `checkpoint.film = true`. Where the page would exceed `megabytes`, the
    first steps after 0 are left out. The other arguments are those of `explorer`.
    """
    check_page(path)
    read, folder = read_run(run), Path(run)
    kept = Checkpoints(folder / FILM)
    if not kept.steps():
        film_on = setting_name("changes", {"checkpoint.film": True}, "--set checkpoint.film=true")
        raise BertsmithError(
            f"{folder}: the run kept no weights for a film: pre-train with {film_on}; "
            f"{folder / 'model'} can be exported alone"
        )
    if not read.finished:
        raise BertsmithError(
            f"{folder}: the run has not ended; {setting_name('resume', True)} continues it"
        )
    bert = open_model(folder / "model", device="cpu", dtype="float32")
    settings = explorer_settings(bert, dtype, examples)  # of the final weights
    steps, packed = _packed_steps(bert, kept, dtype, megabytes)
    return write_explorer(
        path, name or read.name, settings | {"film": steps}, packed, _charts(read)
    )


def _packed_steps(
    bert: LoadedModel, checkpoints: Checkpoints, dtype: str, megabytes: float
) -> tuple[dict[str, Any], Packed]:
    """Pack weights as differences of one step from the one before, all compressed."""
    steps = checkpoints.steps()
    scales = _scales(checkpoints, steps, bert) if dtype == "int8" else None

    @cache
    def packed(step: int) -> Packed:
        load_step(bert, checkpoints, step)
        return pack(bert.model.state_dict(keep_vars=True), dtype, scales)

    @cache
    def difference(step: int, before: int | None) -> bytes:
        data = np.frombuffer(packed(step).data, np.uint8)
        if before is not None:
            data = data - np.frombuffer(packed(before).data, np.uint8)
        return zlib.compress(data.tobytes())

    while True:
        differences = list(map(difference, steps, [None, *steps[:-1]]))
        if sum(map(len, differences)) * BASE64 < megabytes * 1e6 or len(steps) <= 2:
            break
        del steps[1]  # the first steps differ least
    first = packed(steps[0])
    tokens = [checkpoints.read(step).numbers["tokens"] for step in steps]
    return {
        "steps": [{"step": s, "tokens": t} for s, t in zip(steps, tokens, strict=True)],
        "sizes": list(map(len, differences)),
        "left_out": len(checkpoints.steps()) - len(steps),
        "bytes": len(first.data),
    }, Packed(first.entries, b"".join(differences))


def _charts(run: PretrainingRun) -> list[str]:
    chart = partial(line_chart, x_label="step", log_x=True, x_end=run.step)
    curves, charts = _curves(run), list[str]()

    def series(key: str, scale: float = 1.0) -> list[Series]:
        train, held = ([(x, y * scale) for x, y in curves[name]] for name in (key, HELD + key))
        return [Series("training", train), Series("held-out", held, dots=True)]

    for term in run.terms():
        name, accuracy = term_name(term), series(f"{term}_accuracy", 100)
        charts.append(chart(f"{name}: loss", series(term), y_label="nats"))
        charts.append(chart(f"{name}: accuracy", accuracy, unit="%"))
    return charts


def load_step(bert: LoadedModel, checkpoints: Checkpoints, step: int) -> None:
    """Give the model of a run the weights that it had at a step."""
    tensors = checkpoints.read(step).tensors["model"]
    with torch.no_grad():
        for name, parameter in bert.model.named_parameters():
            parameter.copy_(_tensor(tensors, name, checkpoints.path(step)))


def _tensor(tensors: Mapping[str, Tensor], name: str, place: Path) -> Tensor:
    if f"model.{name}" not in tensors:
        raise BertsmithError(f"{place}: no weights of {name}; the folder is of another run")
    return tensors[f"model.{name}"]


def _scales(checkpoints: Checkpoints, steps: Sequence[int], bert: LoadedModel) -> dict[str, Floats]:
    """The scales of all matrices, which fit every step: so differences of codes are small."""
    scales: dict[str, Floats] = {}
    matrices = [name for name, weight in bert.model.named_parameters() if weight.ndim > 1]
    for step in steps:
        tensors = checkpoints.read(step).tensors["model"]
        for name in matrices:
            values = _tensor(tensors, name, checkpoints.path(step)).float().flatten(1).numpy()
            own = scales_of(values)
            scales[name] = np.maximum(scales.get(name, own), own)
    return scales


def _curves(run: PretrainingRun) -> dict[str, list[tuple[float, float]]]:
    """Every number of the log over steps; of training, means over steps that are neighbours."""
    buckets: dict[str, dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for row in rows(run, "log.jsonl"):
        step = row["step"]
        for key, value in row.items():
            if step > 0 and isinstance(value, float) and math.isfinite(value):
                bucket = step if key.startswith(HELD) else int(POINTS * math.log2(step))
                buckets[key][bucket].append((step, value))
    curves: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for key, groups in buckets.items():
        for group in groups.values():
            x, y = np.mean(group, 0).tolist()
            curves[key].append((x, y))
    return curves
