"""`plan`: time, memory, operations and useful work of a run, before it starts."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch

from bertsmith.batch import Batch, Layout
from bertsmith.checkpoint import locate
from bertsmith.errors import BertsmithError
from bertsmith.examples import Example
from bertsmith.examples.division import divide
from bertsmith.examples.draw import Numbers
from bertsmith.examples.sources import mean_length
from bertsmith.kernels.float8 import ALIGNED
from bertsmith.model import Encoder
from bertsmith.tokenizer import Tokenizer
from bertsmith.train.building import built, corpus_folders, examples_of, open_corpus, source_of
from bertsmith.train.captured import CapturedStep, can_replay, inputs_of
from bertsmith.train.compiling import compile_rows
from bertsmith.train.distributed import Ranks, device_named
from bertsmith.train.flops import now, parameters_of, training_flops, training_memory
from bertsmith.train.optimizer import optimizer_for
from bertsmith.train.precision import Precision, supported
from bertsmith.train.recipe import MOST_TOKENS, Recipe, change_name
from bertsmith.train.step import MicroBatch, TrainingStep

LEAST = 0.95  # share of the tokens that ranks compute which must be tokens of samples
FILL = 64  # micro-batches are padded to a multiple of so many tokens: fewer shapes to compile
SHORT = 0.1  # share of sequences that are not full, if no corpus is available
DRAWS = 2  # steps that are checked
TRIES = 16  # step sizes that are tried before the advice is to use fewer devices
Draw = Callable[[int, int], Iterable[Numbers]]  # (length, tokens in a step) → lengths of some steps


def fill_of(recipe: Recipe, length: int, tokens: int, ranks: int) -> int:
    """Return the multiple of tokens to which micro-batches are padded.

    A compiled graph fits one shape, the largest that a micro-batch of the step can have. Else the
    padding is at most 1/64 of a micro-batch.
    """
    count = ranks * max(1, -(-tokens // (ranks * recipe.train.micro_tokens)))
    if not recipe.train.compile:
        return int(min(FILL, 2 ** max(0, (tokens // (count * FILL)).bit_length() - 1)))
    if count > 1:
        even = -(-(tokens // length) // count) * length
        # Sequences of several lengths divide less evenly than full ones.
        spare = 0 if recipe.data.format == "joined" else length // 2
        tokens = max(even, -(-tokens // count)) + spare
    return tokens + (-tokens % ALIGNED if recipe.train.precision == "fp8" else 0)


def full(length: int, tokens: int) -> list[Numbers]:
    """A step of full sequences."""
    return [np.full(max(1, tokens // length), length)]


def mixed(length: int, tokens: int) -> list[Numbers]:
    """Some steps in which every tenth sequence is of any length."""
    random, steps = np.random.default_rng(0), []
    for _ in range(DRAWS):
        count = 2 * tokens // length + 32
        lengths = random.integers(8, length, count, endpoint=True)
        lengths[random.random(count) >= SHORT] = length
        steps.append(lengths[: max(1, int(np.searchsorted(lengths.cumsum(), tokens, "right")))])
    return steps


def demand_busy(recipe: Recipe, ranks: int, draw: Draw | None = None) -> None:
    """Refuse steps that leave ranks idle; `draw` returns their lengths, by default assumed ones."""
    if ranks == 1:
        return
    draws = [draw] if draw else [full] if recipe.data.format == "joined" else [full, mixed]

    def share(length: int, tokens: int, ranks: int) -> float:
        """The share of the ranks' tokens that belong to samples, in steps of this size."""
        sizes = {"micro_tokens": recipe.train.micro_tokens, "ranks": ranks}
        sizes["fill"] = fill_of(recipe, length, tokens, ranks)
        steps = [[divide(lengths, **sizes) for lengths in draw(length, tokens)] for draw in draws]
        return min(float(np.mean([division.useful for division in some])) for some in steps)

    sizes = _sizes(recipe)
    shares = {key: min(share(n, tokens, ranks) for n in ns) for key, (tokens, ns) in sizes.items()}
    if min(shares.values()) >= LEAST:
        return
    changes = []
    for key, (tokens, lengths) in sizes.items():
        if shares[key] < LEAST:
            even = ranks * max(lengths)
            first = -(-tokens // even) * even
            batches = range(first, min(first + TRIES * even, MOST_TOKENS), even)
            enough = (b for b in batches if all(share(n, b, ranks) >= LEAST for n in lengths))
            changes.append((key, next(enough, 0)))
    larger = " ".join(change_name(f"{key}={batch}") for key, batch in changes)
    pairs = [(length, tokens) for tokens, lengths in sizes.values() for length in lengths]
    fewer = (2**n for n in reversed(range(ranks.bit_length())) if 2**n < ranks)
    busy = (count for count in fewer if all(share(*pair, count) >= LEAST for pair in pairs))
    raise BertsmithError(
        f"{ranks:,} devices would wait for one another: at most {min(shares.values()):.0%} of their"
        f" work would be useful, and {LEAST:.0%} is required; use"
        f" {f'{larger}, or' if all(batch for _, batch in changes) else 'only'}"
        f" {next(busy, 1):,} of the devices"
    )


def _sizes(recipe: Recipe) -> dict[str, tuple[int, list[int]]]:
    """The settings that determine the size of a step: tokens and sequence lengths."""
    train, sizes = recipe.train, dict[str, tuple[int, list[int]]]()
    for number, (length, tokens, _) in enumerate(recipe.lengths()):
        own = recipe.stages and recipe.stages[number].batch_tokens
        key = f"stages.{number}.batch_tokens" if own else "train.batch_tokens"
        sizes.setdefault(key, (tokens, []))[1].append(length)
    if train.ramp_from and train.ramp_steps:
        sizes["train.ramp_from"] = (train.ramp_from, [recipe.lengths()[0][0]])
    return sizes


@dataclass(frozen=True)
class Device:
    """A device by its specification; bandwidths are per direction, in bytes per second."""

    peak: float  # dense bfloat16 operations per second
    memory: float  # bytes
    memory_bandwidth: float
    link: float  # to the other devices of a node: NVLink or PCIe
    network: float  # to other nodes, for each device


# Nodes have eight devices. Networks are those of common clusters and cloud machines: one
# InfiniBand adapter a device for the A100 and later NVLink machines, 25 to 400 Gbit/s a node else.
DEVICES = {
    "a100": Device(312e12, 80e9, 2.0e12, 300e9, 25e9),
    "h100": Device(989e12, 80e9, 3.35e12, 450e9, 50e9),
    "h200": Device(989e12, 141e9, 4.8e12, 450e9, 50e9),
    "l4": Device(121e12, 24e9, 0.3e12, 16e9, 1.5e9),
    "l40s": Device(362e12, 48e9, 0.86e12, 32e9, 6e9),
    "rtx4090": Device(165e12, 24e9, 1.0e12, 16e9, 0.4e9),
    "t4": Device(65e12, 16e9, 0.32e12, 8e9, 1.5e9),
    "v100": Device(125e12, 32e9, 0.9e12, 150e9, 1.5e9),
}
OTHER = Device(math.inf, math.inf, 50e9, 8e9, 1.25e9)  # a computer with 10 Gbit/s Ethernet
BERT_SIZE = 30522  # tokens
NODE = 8  # devices
SHARE = 0.35  # fraction of the peak that training reaches, if not measured
# Minimum seconds of a pass per layer: Python launches some hundred
# kernels for each; a compiled graph is launched as a whole.
LEAST_EAGER, LEAST_COMPILED = 2.5e-3, 0.25e-3
OVERLAP = 0.5  # of communication that happens during the backward pass, unless it is one graph
LATENCY = 20e-6  # seconds; of a collective, times log2 of the devices
MEASURED_TOKENS = {"cpu": 16384, "cuda": 131072}  # of a pass that is measured
MEASURED = 8  # steps to measure, if the GPU replays them
UPDATE_BYTES = 40  # bytes per parameter: read and write weight, gradient, two moments; the norm


class Speed(NamedTuple):
    """The speed of one device."""

    operations: float  # per second, in forward and backward passes
    least: float  # minimum seconds of a pass
    update: float  # seconds of an optimizer step
    memory: int | None = None  # bytes in use, where measured


class StepTime(NamedTuple):
    """Where the time of a step goes, in seconds."""

    useful: float  # for the step's tokens, evenly divided over fully used devices
    total: float
    communication: float


def plan(
    recipe: Recipe, tokenizer_size: int | None = None, device: str = "", count: int = 1
) -> dict[str, Any]:
    """Tokens, operations, memory and time of a run on one device or several.

    The vocabulary is that of the model which the run continues or of the corpus, unless its size
    is given; without any of them it is BERT's. With no device, or "cpu" or "cuda", a few steps
    are measured here; for a name such as "h200" the time is estimated from its specification.

    A step takes as long as the passes of its slowest rank, the part of the all-reduce that the
    backward pass does not hide, and the optimizer.
    """
    if count < 1:
        raise BertsmithError("a run needs at least one device")
    here = device in ("", "cpu", "cuda")
    if not here and device not in DEVICES:
        raise BertsmithError(f"unknown device {device!r}; known: cpu, cuda, {', '.join(DEVICES)}")
    if device == "cuda" and not torch.cuda.is_available():
        raise BertsmithError("no GPU found: name one to estimate for, such as h200")
    demand_busy(recipe, count)
    tokenizer = _tokenizer(recipe, tokenizer_size)
    setup = built(recipe, tokenizer, device="cpu" if here else "meta")
    module = setup.learner
    parameters = parameters_of(module)
    train, stages = recipe.train, recipe.lengths()
    micro, masked = train.micro_tokens, recipe.masking.rate
    half, shards = train.precision != "float32", _shards(recipe, count)
    memory = training_memory(module, micro_tokens=micro, masked=masked, half=half, shards=shards)
    cost = [training_flops(module, length, tokens=micro, masked=masked) for length, _, _ in stages]
    if here:
        example = None
        if tokenizer_size is None and corpus_folders(recipe) and device_named(device).type == "cpu":
            example = _sample(recipe, setup.checkpoint.config.segments)
        speed = _measured(recipe, module, device, tokenizer.size, count, example)
        kind = _named(device)
    else:
        kind = DEVICES[device]
        update = UPDATE_BYTES * parameters / kind.memory_bandwidth
        speed = Speed(SHARE * kind.peak, _least(recipe, module), update)
    shared = (speed, kind, parameters, count)
    times = [_step_time(recipe, stage, each, *shared) for stage, each in enumerate(cost)]
    steps = _steps(recipe, [each.total for each in times])
    batches = [tokens for _, tokens, _ in stages]
    tokens = int(np.dot(steps, batches))
    useful, seconds, waiting = np.dot(steps, np.array(times)).tolist()
    return {
        "parameters": parameters,
        "vocabulary": tokenizer.size,
        "steps": sum(steps),
        "tokens": tokens,
        "operations": float(np.dot(steps, np.multiply(cost, batches))),
        "tokens_per_second": tokens / seconds if seconds else 0.0,
        "measured": here,
        "devices": count,
        "devices_useful": useful / seconds if seconds else 0.0,
        "communication_share": waiting / seconds if seconds else 0.0,
        "seconds_per_step": seconds / max(sum(steps), 1),
        "hours": train.minutes / 60 if train.minutes else seconds / 3600,
        "memory_bytes": memory,
        "measured_memory_bytes": speed.memory,
        "fits": None if here else memory < kind.memory,
        "corpora": _corpora(recipe, tokens) if tokenizer_size is None else [],
    }


def _corpora(recipe: Recipe, tokens: int) -> list[dict[str, Any]]:
    """How much of each corpus a run reads: its share of the tokens, and how often its text."""
    if not corpus_folders(recipe):
        return []
    rows, length = [], recipe.lengths()[0][0]
    for part, share in open_corpus(recipe).parts:
        source = source_of(recipe, part, length)
        epochs = tokens * share / (source.count * mean_length(source))
        rows.append({"path": str(part.directory), "share": share, "epochs": epochs})
    return rows


def _step_time(
    recipe: Recipe,
    stage: int,
    cost: float,
    speed: Speed,
    device: Device,
    parameters: int,
    ranks: int,
) -> StepTime:
    """Return the time of a step of a stage on this number of devices, with full sequences."""
    length, tokens, _ = recipe.lengths()[stage]
    fill = fill_of(recipe, length, tokens, ranks)
    (lengths,) = full(length, tokens)
    division = divide(lengths, ranks=ranks, micro_tokens=recipe.train.micro_tokens, fill=fill)
    padded = [
        [-(-int(lengths[batch].sum()) // fill) * fill for batch in batches]
        for batches in division.micro_batches
    ]
    compute = max(sum(max(n * cost / speed.operations, speed.least) for n in own) for own in padded)
    waiting = _communication(recipe, parameters, len(padded[0]), device, ranks)
    total = compute + waiting + speed.update / _shards(recipe, ranks)
    return StepTime(tokens * cost / speed.operations / ranks, total, waiting)


def _shards(recipe: Recipe, ranks: int) -> int:
    """The number of devices that weights and optimizer states are divided over."""
    return {"ddp": 1, "fsdp": ranks, "hsdp": min(ranks, NODE)}[recipe.train.parallel]


def _communication(
    recipe: Recipe, parameters: int, passes: int, device: Device, ranks: int
) -> float:
    """Return the seconds of a step spent waiting for gradients and, with FSDP, weights."""
    if ranks == 1:
        return 0.0
    train, shards, seconds = recipe.train, _shards(recipe, ranks), 0.0
    bandwidth = device.link if ranks <= NODE else device.network
    if shards > 1:  # gradients once; weights before each forward and backward
        near = bandwidth if shards == ranks else device.link
        seconds = (1.0 + 2.0 * passes) * (shards - 1) / shards * 4 * parameters / near
    if (copies := ranks // shards) > 1:  # an all-reduce: a reduce-scatter and an all-gather
        seconds += 2.0 * (copies - 1) / copies * 4 * parameters / shards / bandwidth
    seen = 1.0 if train.compile and train.parallel == "ddp" else 1 - OVERLAP
    return seen * seconds + LATENCY * math.log2(ranks)


def _steps(recipe: Recipe, seconds: list[float]) -> list[int]:
    """Return the number of steps of each stage, given the time of a step in each."""
    train, counts = recipe.train, list[int]()
    left: float = train.steps or 60 * train.minutes
    for number, (each, (_, _, asked)) in enumerate(zip(seconds, recipe.lengths(), strict=True)):
        fit = int(left) if train.steps else int(left / each)
        last = number == len(seconds) - 1
        counts.append(fit if last else min(asked, fit))
        left -= counts[-1] * (1 if train.steps else each)
    return counts


def _tokenizer(recipe: Recipe, size: int | None) -> Any:
    """Return the tokenizer of the corpus or of the continued model, else one of this size."""
    if size is not None:
        if recipe.model.start:
            raise BertsmithError("a continued model keeps its own vocabulary: do not set another")
        if size < 1:
            raise BertsmithError(f"a vocabulary needs at least one token, not {size}")
    elif corpus_folders(recipe):
        return open_corpus(recipe).tokenizer
    elif recipe.model.start:
        return Tokenizer.load(locate(recipe.model.start))
    # The part of a tokenizer that determines a model's shape.
    return SimpleNamespace(size=size or BERT_SIZE, pad_id=None, cls_id=None, sep_id=None)


def _least(recipe: Recipe, module: torch.nn.Module) -> float:
    layers = sum(len(part.plan) for part in module.modules() if isinstance(part, Encoder))
    return layers * (LEAST_COMPILED if recipe.train.compile else LEAST_EAGER)


def _named(device: str) -> Device:
    """Return the specification of this computer's GPU, if known."""
    if device != "cpu" and torch.cuda.is_available():
        name = torch.cuda.get_device_name().lower().replace(" ", "")
        return next((known for key, known in DEVICES.items() if key in name), DEVICES["h100"])
    return OTHER


def _measured(
    recipe: Recipe, module: Any, device: str, vocabulary: int, count: int, example: Example | None
) -> Speed:
    """Measure the speed of this computer over a few steps, by default with random tokens."""
    chosen = device_named(device)
    on_gpu = chosen.type == "cuda"
    length = recipe.lengths()[0][0]
    if example is None:
        sequences = max(1, min(recipe.train.micro_tokens, MEASURED_TOKENS[chosen.type]) // length)
        example = random_example(sequences, length, recipe, vocabulary)
    tokens = example.tokens
    module.to(chosen).train()
    cost = training_flops(module, length, tokens=tokens, masked=recipe.masking.rate) * tokens
    if count == 1 and can_replay(recipe, module, Ranks.alone(chosen)):
        seconds = _replayed(recipe, module, example, chosen)  # the optimizer included
        used = torch.cuda.max_memory_allocated() if on_gpu else None
        return Speed(cost / seconds, 0.0, 0.0, used)
    example = example.to(chosen)
    name = supported(recipe.train.precision, chosen)
    if recipe.train.compile and on_gpu:  # which takes half a minute; on a CPU, longer
        compile_rows(module, half=name != "float32", float8=name == "fp8")
    alone, precision = Ranks.alone(chosen), Precision.of(name, chosen)
    step = TrainingStep(
        alone.wrap(module, "ddp", precision, checkpointing=recipe.train.checkpointing),
        optimizer_for(module, recipe.train),
        alone,
        clip=recipe.train.clip,
        compiled=recipe.train.compile and on_gpu,
    )
    passes, updates, inputs = [], [], (example, module.counts(example))
    for _ in range(6):
        began = time.perf_counter()
        (between,) = step([MicroBatch(inputs)], lambda: [now(chosen)]).extras
        passes.append(between - began)
        updates.append(now(chosen) - between)
    used = torch.cuda.max_memory_allocated() if on_gpu else None
    passing, updating = median(passes[1:]), median(updates[1:])  # the first allocates memory
    return Speed(cost / passing, _least(recipe, module) if on_gpu else 0, updating, used)


def _sample(recipe: Recipe, segments: int) -> Example:
    """A first micro-batch of the corpus: its short sequences cost a CPU more for each token."""
    length = recipe.lengths()[0][0]
    tokens = max(length, min(recipe.train.micro_tokens, MEASURED_TOKENS["cpu"]))
    examples = examples_of(recipe, open_corpus(recipe), length, segments)
    return examples.make(examples.plan(0, tokens=tokens, micro_tokens=tokens).samples)


def _replayed(recipe: Recipe, module: Any, example: Example, device: torch.device) -> float:
    """Measure the seconds of a step that is replayed as a CUDA graph."""
    name = supported(recipe.train.precision, device)
    if recipe.train.compile:
        compile_rows(module, captured=True, float8=name == "fp8")
    call = Precision.of(name, device).wrap(module)
    steps = CapturedStep(call, optimizer_for(module, recipe.train), device, clip=recipe.train.clip)
    inputs = inputs_of(example, module.counts(example))
    began = 0.0
    for number in range(3 + MEASURED):
        if number == 3:  # the first as usual, the second captured, the third replayed
            steps.finish()
            began = time.perf_counter()
        steps([inputs], 1.0, number)
    steps.finish()
    return (time.perf_counter() - began) / MEASURED


def random_example(sequences: int, length: int, recipe: Recipe, vocabulary: int) -> Example:
    """Return full sequences of random tokens, masked at the recipe's rate."""
    random = torch.Generator().manual_seed(0)
    crops = recipe.data.format == "crops"  # two sequences each, and both in one batch
    sequences += sequences % 2 if crops else 0
    total = sequences * length
    ids = torch.randint(0, vocabulary, (total,), generator=random)
    batch = Batch(ids, torch.zeros_like(ids), Layout.of([length] * sequences, most=length))
    rows = torch.randperm(total, generator=random)[: max(1, int(recipe.masking.rate * total))]
    rows = rows.sort().values
    labels, pairs = torch.randint(0, 2, (sequences,), generator=random), None
    if crops:
        numbers = torch.arange(sequences)
        labels, pairs = numbers // 2, torch.stack([numbers // 2, numbers], 1)
    example = Example(batch, rows, ids[rows], labels, sequences, total, pairs=pairs)
    return example.partly_filled(recipe.generator.fills)
