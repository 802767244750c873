"""A model → a Hugging Face directory that `transformers` opens with the same outputs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from bertsmith import __version__
from bertsmith.checkpoint.checkpoint import Checkpoint, declared
from bertsmith.checkpoint.files import INT8, SCALE
from bertsmith.checkpoint.lora import plain_parameters
from bertsmith.cpu import int8_candidates, int8_weights
from bertsmith.errors import BertsmithError
from bertsmith.files import cause, write_json
from bertsmith.folders import write_into
from bertsmith.kernels import quantize_weight

METHOD = "bertsmith"  # of quantization, in config.json
CODE = ("auto_map", "custom_pipelines")  # names of code that we neither need nor pass on
FOREIGN = (*CODE, "_name_or_path", "torch_dtype", "dtype", "transformers_version")
STORED = "quantization_config"  # how weights were stored, not how they are now


def write(checkpoint: Checkpoint, directory: str | Path, dtype: torch.dtype | None = None) -> None:
    """Write config.json, model.safetensors and bertsmith.json; without `dtype`, int8 stays int8."""
    directory = Path(directory)
    int8 = int8_weights(checkpoint.model) if dtype is None else {}
    tensors = stored_tensors(checkpoint, dtype, int8)
    stored = {str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()}
    settings = stored_settings(checkpoint)
    settings["dtype"] = stored.pop() if len(stored) == 1 else "float32"
    if int8:
        settings[STORED] = quantization(checkpoint, int8)
    ours = {**checkpoint.notes, "version": __version__, "family": checkpoint.family.name}
    ours["heads"] = sorted(checkpoint.entries)

    def fill(part: Path) -> None:
        save_file(tensors, part / "model.safetensors", metadata={"format": "pt"})
        write_json(part / "config.json", dict(sorted(settings.items())))
        write_json(part / "bertsmith.json", dict(sorted(ours.items())))
        # save_file lets only the owner read; whoever may read the config may read it all.
        (part / "model.safetensors").chmod((part / "config.json").stat().st_mode)

    try:
        write_into(directory, fill)
    except (SafetensorError, TypeError, ValueError) as error:
        raise BertsmithError(f"{directory}: cannot be written ({cause(error)})") from error


def quantization(checkpoint: Checkpoint, int8: Mapping[str, int]) -> dict[str, Any]:
    """What config.json says of int8 weights, and of the layers that stay in float32."""
    layers = [path for path, _ in int8_candidates(checkpoint.model)]
    return {
        "quant_method": METHOD,
        "bits": 8,
        "weights": "int8, with scales for rows or blocks of columns: NAME.int8, NAME.scale",
        "activations": "int8, with scales computed at run time",
        "float32": [path for path in layers if f"{path}.weight" not in int8],
    }


def kept_float32(settings: Mapping[str, Any]) -> list[str] | None:
    """The layers that stay in float32 in a model that is stored as int8; None if it is not."""
    entry = settings.get(STORED)
    if not isinstance(entry, dict) or entry.get("quant_method") != METHOD:
        return None
    paths = entry.get("float32")
    return [str(path) for path in paths] if isinstance(paths, list) else []


def demand_float(settings: Mapping[str, Any], model: str | Path) -> None:
    """Refuse a model whose weights are rounded to int8, before it is trained or quantized."""
    if kept_float32(settings) is not None:
        raise BertsmithError(f"{model}: its weights are int8 already; start from the float32 model")


def stored_tensors(
    checkpoint: Checkpoint, dtype: torch.dtype | None = None, int8: Mapping[str, int] | None = None
) -> dict[str, Tensor]:
    """All tensors under their stored names; those in `int8` as values and scales."""
    family, names = checkpoint.family, checkpoint.names
    bare = architecture(checkpoint).endswith("Model")
    tensors = {}
    for ours, parameter in plain_parameters(checkpoint.model):
        tensor = parameter.detach().to("cpu", dtype)
        for theirs, part in zip(names.theirs(ours), names.part(ours, tensor), strict=True):
            name = theirs.removeprefix(family.prefix) if bare else theirs
            if name in tensors or name + INT8 in tensors:
                raise BertsmithError(f"two heads cannot be stored in one model: both are {name}")
            if int8 and ours in int8:
                values, scale = quantize_weight(part, int8[ours])
                tensors[name + INT8], tensors[name + SCALE] = values, scale
            else:
                tensors[name] = part.contiguous()
    return tensors


def stored_settings(checkpoint: Checkpoint) -> dict[str, Any]:
    """config.json's content: what was read or chosen, without names of foreign code."""
    settings = {key: v for key, v in checkpoint.settings.items() if key not in (*FOREIGN, STORED)}
    settings["architectures"] = [architecture(checkpoint)]
    for entry in checkpoint.entries.values():
        settings.update(entry.settings)
    return settings


def architecture(checkpoint: Checkpoint) -> str:
    """The class by which `transformers` knows a model with these heads."""
    family = checkpoint.family
    stem = family.stems[checkpoint.settings.get("model_type", family.name)]
    own = set(checkpoint.entries) - {"pooler"}
    classes = {suffix: set(heads) for suffix, heads in family.architectures.items()}
    for suffix, heads in classes.items():
        if heads == own:
            return stem + suffix
    stored = declared(checkpoint.settings)
    best = max(classes, key=lambda suffix: (len(classes[suffix] & own), stem + suffix == stored))
    return stem + best
