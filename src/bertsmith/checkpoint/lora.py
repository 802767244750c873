"""LoRA: low-rank updates of linear layers, merged into weights or stored in PEFT's layout."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from bertsmith.checkpoint.checkpoint import Checkpoint, shorten
from bertsmith.checkpoint.files import SafeTensors, TensorFiles, readable
from bertsmith.checkpoint.locate import locate
from bertsmith.checkpoint.names import canonical, outputs, unwrapped
from bertsmith.checkpoint.pickles import PickledTensors
from bertsmith.errors import BertsmithError
from bertsmith.families import Family
from bertsmith.files import write_json
from bertsmith.foreign import read_json
from bertsmith.model import Model
from bertsmith.numbers import real_number

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
ROOT = "base_model.model."  # what PEFT puts before a tensor's name
GROUPS = {"all": "", "attention": "attention", "feedforward": "feedforward"}  # of a block's layers
TASK_TYPES = {"classify": "SEQ_CLS", "tag": "TOKEN_CLS", "answer": "QUESTION_ANS"}
CLASSES = {"SEQ_CLS": "ForSequenceClassification", "TOKEN_CLS": "ForTokenClassification"}
CLASSES["QUESTION_ANS"] = "ForQuestionAnswering"
# Settings of PEFT that change the arithmetic, and the only values that are read here.
PLAIN: dict[str, Any] = {"use_dora": False, "fan_in_fan_out": False, "bias": "none"}
PLAIN |= {"trainable_token_indices": None, "lora_bias": False, "layer_replication": None}


@dataclass(frozen=True)
class Lora:
    """Which layers get an update scale · B A, where A is (rank, in) and B (out, rank)."""

    rank: int = 8
    alpha: float = 16.0
    targets: str = "all"  # a group, or names as in the family's checkpoints: "query,value"
    stabilised: bool = False  # rsLoRA: the scale does not shrink as fast with the rank

    @property
    def scale(self) -> float:
        """The factor of the product of the two matrices."""
        return self.alpha / (math.sqrt(self.rank) if self.stabilised else self.rank)


class LoraUpdate(nn.Module):
    """Low-rank updates of a linear layer: one for each of its parts that is a target."""

    def __init__(self, linear: nn.Linear, sizes: list[int], chosen: list[bool], lora: Lora) -> None:
        super().__init__()
        self.sizes, self.chosen, self.scale = sizes, chosen, lora.scale
        new, inner = linear.weight.new_empty, linear.in_features
        self.a = nn.ParameterList([new(lora.rank, inner) for _ in filter(None, chosen)])
        rows = [size for size, target in zip(sizes, chosen, strict=True) if target]
        self.b = nn.ParameterList([torch.zeros_like(new(size, lora.rank)) for size in rows])

    def install(self, linear: nn.Linear) -> None:
        """Add the updates to a layer's outputs from now on."""
        linear.lora = self
        linear.register_forward_hook(self.added)

    def added(self, linear: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        """Add the updates to a layer's output; a forward hook of the layer."""
        (x,) = inputs
        return output + self.scale * torch.cat([(x @ a.T) @ b.T for a, b in self.parts()], dim=-1)

    def parts(self) -> list[tuple[Tensor, Tensor]]:
        """A and B of each part of the layer; of rank 0 where a part is no target."""
        pairs, first = zip(self.a, self.b, strict=True), self.a[0]
        parts = zip(self.sizes, self.chosen, strict=True)
        return [next(pairs) if own else (first[:0], first.new_empty(n, 0)) for n, own in parts]

    def product(self) -> Tensor:
        """What is added to the weight of the layer."""
        return self.scale * torch.cat([b @ a for a, b in self.parts()])


def attach(checkpoint: Checkpoint, lora: Lora, seed: int = 0) -> None:
    """Freeze the encoder and give the chosen layers an update that is zero at first."""
    checkpoint.model.encoder.requires_grad_(False)
    names, known, count = checkpoint.names, set[str](), 0
    device = next(checkpoint.model.parameters()).device
    generator = None if device.type == "meta" else torch.Generator(device).manual_seed(seed)
    for path, linear in list(_layers(checkpoint.model)):
        theirs = [name.removesuffix(".weight") for name in names.theirs(f"{path}.weight")]
        known |= {name.rpartition(".")[2] for name in theirs}
        if lora.targets in GROUPS:
            in_group = lora.targets == "all" or GROUPS[lora.targets] in path.split(".")
            chosen = [in_group] * len(theirs)
        else:
            ends = tuple(f".{end.strip()}" for end in lora.targets.split(","))
            chosen = [f".{name}".endswith(ends) for name in theirs]
        if any(chosen):
            sizes = [len(part) for part in names.part(f"{path}.weight", linear.weight)]
            update = LoraUpdate(linear, sizes, chosen, lora)
            for a in update.a:
                bound = 1 / math.sqrt(linear.in_features)
                nn.init.uniform_(a, -bound, bound, generator=generator)
            update.install(linear)
            count += 1
    if not count:
        listed = ", ".join([*GROUPS, *sorted(known)])
        raise BertsmithError(f"no layer is called {lora.targets[:80]!r}; known: {listed}")


def plain_parameters(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The parameters of a model by their names, with updates merged into the weights."""
    updates = {f"{path}.weight": update for path, update in _updates(model)}
    for name, parameter in model.named_parameters():
        if ".lora." not in name:
            yield name, parameter + updates[name].product() if name in updates else parameter


def _layers(model: Model) -> Iterator[tuple[str, nn.Linear]]:
    for path, module in model.named_modules():
        if path.startswith("encoder.blocks.") and isinstance(module, nn.Linear):
            yield path, module


def _updates(model: nn.Module) -> Iterator[tuple[str, LoraUpdate]]:
    for path, module in model.named_modules():
        if isinstance(module, LoraUpdate):
            yield path.removesuffix(".lora"), module


def write_adapter(checkpoint: Checkpoint, directory: Path, base: str, lora: Lora) -> None:
    """Write the updates and the trained heads of a model, as PEFT would of the same model."""
    names, prefix = checkpoint.names, checkpoint.family.prefix
    bare = not any(kind != "pooler" for kind in checkpoint.entries)
    tensors: dict[str, Tensor] = {}
    targets, heads = [], []

    def called(name: str) -> str:
        return name.removeprefix(prefix) if bare else name

    for path, update in _updates(checkpoint.model):
        parts, ours = update.parts(), f"{path}.weight"
        for theirs, (a, b) in zip(names.theirs(ours), parts, strict=True):
            if len(a):
                module = called(theirs).removesuffix(".weight")
                targets.append(module)
                tensors[f"{ROOT}{module}.lora_A.weight"] = a
                stored = names.part(ours, b)[0] if len(parts) == 1 else b
                tensors[f"{ROOT}{module}.lora_B.weight"] = stored
    for ours, parameter in checkpoint.model.named_parameters():
        if ours.startswith("heads.") and parameter.requires_grad:
            for theirs, part in zip(names.theirs(ours), names.part(ours, parameter), strict=True):
                tensors[ROOT + called(theirs)] = part
                outside = not theirs.startswith(prefix)  # PEFT copies such a module as a whole
                heads.append(theirs.partition(".")[0] if outside else theirs.rpartition(".")[0])
    task_types = [TASK_TYPES[kind] for kind in checkpoint.entries if kind in TASK_TYPES]
    content = {
        "peft_type": "LORA",
        "task_type": task_types[0] if task_types else None,
        "base_model_name_or_path": base,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": 0.0,
        "use_rslora": lora.stabilised,
        "target_modules": targets,
        "modules_to_save": list(dict.fromkeys(heads)) or None,
        "inference_mode": True,
        **PLAIN,
    }
    tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    save_file(tensors, directory / WEIGHTS, metadata={"format": "pt"})
    write_json(directory / CONFIG, content)
    (directory / WEIGHTS).chmod((directory / CONFIG).stat().st_mode)


@dataclass(frozen=True)
class Adapter:
    """A directory with an adapter, and that of the model it belongs to."""

    directory: Path
    base: Path
    config: Mapping[str, Any]

    def settings(self, family: Family, model_type: str) -> dict[str, Any]:
        """What differs in config.json: stored by bertsmith, or concluded from the head."""
        own = self.directory / "bertsmith.json"
        stored = read_json(own).get("config") if own.is_file() else None
        if isinstance(stored, dict):
            return stored
        suffix = CLASSES.get(str(self.config.get("task_type")))
        if suffix is None:
            return {}
        settings: dict[str, Any] = {"architectures": [family.stems[model_type] + suffix]}
        source = self._open()
        heads = family.architectures.get(suffix, ())
        last = {path for head in family.heads if head.kind in heads for path in outputs(head)}
        for name in source.names():
            if name.removeprefix(ROOT).removesuffix(".weight") in last:
                settings |= {"num_labels": source.shape(name)[0], "id2label": None}
        return settings

    def _open(self) -> SafeTensors | PickledTensors:
        for name, kind in ((WEIGHTS, SafeTensors), ("adapter_model.bin", PickledTensors)):
            if (self.directory / name).is_file():
                with readable(self.directory / name):
                    return kind(self.directory / name)
        raise BertsmithError(f"{self.directory}: {CONFIG} is there, but no {WEIGHTS}")


def adapter_in(directory: Path) -> Adapter | None:
    """The adapter in a directory; None if that is a model's."""
    path = directory / CONFIG
    with readable(directory):
        if not path.is_file() or (directory / "model.safetensors").is_file():
            return None
    config = read_json(path)
    if config.get("peft_type") != "LORA":
        raise BertsmithError(f"{path}: {config.get('peft_type')!r:.40} is not supported, only LORA")
    for key, value in PLAIN.items():
        if config.get(key) not in (None, value, [], {}):
            raise BertsmithError(f"{path}: {key} = {config[key]!r:.60} is not supported")
    base = config.get("base_model_name_or_path")
    try:
        place = locate(str(base))
    except BertsmithError as error:
        owner = f"the model {base!r:.200}, which cannot be opened ({error.message})"
        advice = "set base_model_name_or_path to where it is"
        raise BertsmithError(f"{path}: the adapter belongs to {owner}; {advice}") from None
    if (place / CONFIG).is_file() and not (place / "model.safetensors").is_file():
        raise BertsmithError(f"{path}: belongs to {base!r:.200}, which is itself an adapter")
    return Adapter(directory, place, config)


def demand_whole(model: str | Path) -> None:
    """Refuse to train an adapter of an adapter: it needs a model with all weights."""
    if adapter_in(locate(model)):
        advice = f"merge it first: bertsmith convert {model} OUT"
        raise BertsmithError(
            f"{model} is itself an adapter, which no other can belong to; {advice}"
        )


def base_of(directory: Path) -> Path:
    """The directory that has config.json: of an adapter, that of its model."""
    adapter = adapter_in(directory)
    return directory if adapter is None else adapter.base


def tokenizer_folder(directory: Path) -> Path:
    """Where the tokenizer's files are: PEFT leaves them with the model of an adapter."""
    own = any((directory / name).is_file() for name in ("tokenizer.json", "vocab.txt"))
    return directory if own else base_of(directory)


class MergedFiles(TensorFiles):
    """The tensors of a model, with an adapter merged into them as they are read."""

    def __init__(self, base: TensorFiles, adapter: Adapter, family: Family) -> None:
        self.where, self.shapes, self.open = dict(base.where), dict(base.shapes), base.open
        self.notes, self.int8 = [*base.notes], base.int8
        self.source, self.path = adapter._open(), adapter.directory
        self.config = adapter.config
        self.updates: dict[str, tuple[str, str, float]] = {}  # weight → names of A and B, scale
        self.replaced: dict[str, str] = {}  # weight → name in the adapter's file
        stored = canonical(family, self.where)
        halves: dict[str, dict[str, str]] = {}
        unknown = []
        for name in self.source.names():
            inner = re.sub(r"\.(modules_to_save\.)?default(?=\.)", "", name.removeprefix(ROOT))
            if match := re.fullmatch(r"(.+)\.lora_([AB])(\.weight)?", inner):
                halves.setdefault(match[1], {})[match[2]] = name
            elif ".lora_" in inner:
                unknown.append(name)
            else:
                absolute = next(iter(canonical(family, [inner])))
                place = stored.get(absolute, absolute)
                self.replaced[place] = name
                self.where[place] = self.path
                self.shapes[place] = self.source.shape(name)
        for module, pair in halves.items():
            weight = stored.get(next(iter(canonical(family, [f"{module}.weight"]))))
            if weight is None or set(pair) != {"A", "B"}:
                unknown.append(module)
                continue
            rank = self.source.shape(pair["A"])[0]
            shape = (self.source.shape(pair["B"])[0], self.source.shape(pair["A"])[-1])
            if shape != self.shapes[weight]:
                fault = (
                    f"the update of {weight} has shape {list(shape)}, but the weight of the model"
                )
                other = f"{list(self.shapes[weight])}: it belongs to another model"
                raise BertsmithError(f"{self.path}: {fault} {other}")
            self.updates[weight] = (pair["A"], pair["B"], self._scale(module, rank))
        if unknown:
            fault = f"{len(unknown)} tensors of the adapter have no place in the model"
            raise BertsmithError(f"{self.path}: {fault}: {shorten(unknown)}")
        self.notes.append(f"an adapter (LoRA) is merged into {len(self.updates)} weights")

    def _scale(self, module: str, rank: int) -> float:
        alphas = self.config.get("alpha_pattern") or {}
        own = (value for key, value in alphas.items() if re.fullmatch(rf"(.*\.)?({key})", module))
        alpha = next(own, self.config.get("lora_alpha", rank))
        value = real_number(alpha, f"{self.path / CONFIG}: lora_alpha")
        return value / (math.sqrt(rank) if self.config.get("use_rslora") else rank)

    def read(self, name: str) -> Tensor:
        """One tensor, as the model has it with the adapter."""
        if name in self.replaced:
            return self._own(self.replaced[name])
        weight = super().read(name)
        if name in self.updates:
            a, b = self.update(name)
            weight = weight.float() + b @ a
        return weight

    def update(self, name: str) -> tuple[Tensor, Tensor]:
        """The two matrices whose product B A is added to a weight."""
        a, b, scale = self.updates[name]
        return self._own(a).float(), scale * self._own(b).float()

    def _own(self, name: str) -> Tensor:
        with readable(self.path):
            return self.source.get(name)


def share(checkpoint: Checkpoint, directory: Path, others: Iterable[Checkpoint]) -> int:
    """Let a model with an adapter use the weights of others of the same model.

    The updates of its layers are computed beside their weights, as in training, instead of being
    merged into them. Returns how many parameters it shares; none if it has no adapter.
    """
    adapter = adapter_in(directory)
    if adapter is None:
        return 0
    files = MergedFiles(TensorFiles(adapter.base), adapter, checkpoint.family)
    names, stored = checkpoint.names, unwrapped(checkpoint.family, files.where)[1]
    for path, linear in list(_layers(checkpoint.model)):
        ours = f"{path}.weight"
        raws = [stored[theirs] for theirs in names.theirs(ours)]
        chosen = [raw in files.updates for raw in raws]
        if not any(chosen):
            continue
        base = names.join(ours, [TensorFiles.read(files, raw) for raw in raws])
        sizes = [len(part) for part in names.part(ours, base)]
        update = LoraUpdate(linear, sizes, chosen, Lora(rank=1, alpha=1.0))
        for number, raw in enumerate(raw for raw in raws if raw in files.updates):
            a, b = files.update(raw)
            b = names.join(ours, [b]) if len(raws) == 1 else b
            update.a[number] = nn.Parameter(a.to(linear.weight), requires_grad=False)
            update.b[number] = nn.Parameter(b.to(linear.weight), requires_grad=False)
        linear.weight = nn.Parameter(base.to(linear.weight), requires_grad=False)
        update.install(linear)
    return sum(_adopted(checkpoint.model, other.model) for other in others)


def _adopted(model: nn.Module, other: nn.Module) -> int:
    """Replace parameters by the equal ones of another model; return how many elements they have."""
    theirs, count = dict(other.named_parameters()), 0
    for path, module in model.named_modules():
        for name, own in list(module._parameters.items()):
            twin = theirs.get(f"{path}.{name}" if path else name)
            if own is None or twin is None or twin is own:
                continue
            alike = (own.shape, own.dtype, own.device) == (twin.shape, twin.dtype, twin.device)
            if alike and torch.equal(own, twin):
                module._parameters[name] = twin
                count += own.numel()
    return count
