"""Write complete model directories with a model card; convert readable layouts to them."""

from pathlib import Path
from typing import Any

import torch

from bertsmith import __version__
from bertsmith.checkpoint.checkpoint import Checkpoint
from bertsmith.checkpoint.locate import locate
from bertsmith.checkpoint.lora import Lora, base_of, tokenizer_folder, write_adapter
from bertsmith.checkpoint.read import read
from bertsmith.checkpoint.sentence import Sentence, read_sentence, write_sentence
from bertsmith.checkpoint.write import stored_settings, write
from bertsmith.cpu import int8_weights
from bertsmith.errors import BertsmithError
from bertsmith.files import write_json, write_text
from bertsmith.folders import check_replaceable, marking, replace_directory
from bertsmith.foreign import read_json
from bertsmith.tokenizer import Tokenizer

CARD = """---
library_name: bertsmith
{tag}tags: [{family}]
---

# {name}

{family}: {layers} layers, {width} wide, {heads_each} attention heads, {parameters:,} parameters,
vocabulary of {vocabulary:,}, inputs of up to {length:,} tokens. Heads: {heads}.

```python
import bertsmith as bs

bert = bs.load("{name}")
```

Written by bertsmith {version}. {others}
"""
OPENS = "`{library}` opens this directory too."
ADAPTER = """This is an adapter (LoRA) of `{base}`: it needs that model."""
INT8 = """Its weights are int8 values with a scale for each row.
For `{library}`, write them as float32:

```
bertsmith convert {name} {name}-float32
```"""


def save(
    directory: str | Path,
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    sentence: Sentence,
    dtype: torch.dtype | None = None,
) -> None:
    """Write a complete model directory: weights, config, tokenizer, pooling and model card."""
    directory = Path(directory)
    config = checkpoint.config
    with marking(directory):
        write(checkpoint, directory, dtype)
        tokenizer.save(directory, segments=config.segments > 1, longest=config.max_length)
        write_sentence(directory, sentence, config.width, static=not config.plan)
        write_card(directory, checkpoint)


def save_adapter(
    directory: Path,
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    sentence: Sentence,
    base: str | Path,
    lora: Lora,
) -> None:
    """Write what was trained beside the frozen `base` (a path, name or hub id), as PEFT does."""
    config = checkpoint.config
    former = read_json(base_of(locate(base)) / "config.json")
    stored = stored_settings(checkpoint).items()
    settings = {key: value for key, value in stored if former.get(key) != value}
    name = str(Path(base).resolve()) if Path(base).is_dir() else str(base)
    with marking(directory):
        write_adapter(checkpoint, directory, name, lora)
        notes = {**checkpoint.notes, "version": __version__, "config": settings}
        write_json(directory / "bertsmith.json", notes)
        tokenizer.save(directory, segments=config.segments > 1, longest=config.max_length)
        write_sentence(directory, sentence, config.width)
        write_card(directory, checkpoint, base=Path(base).name)


def convert(
    source: str | Path,
    out: str | Path,
    *,
    dtype: torch.dtype | None = None,
    family: str | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Rewrite a model, read it back, and return the largest difference of any weight.

    The directory gets its name only after it was read back. With `overwrite` it may replace a
    directory that bertsmith wrote.
    """
    check_replaceable(out, overwrite)
    directory = locate(source)
    directory, sentence = read_sentence(directory) or (directory, Sentence())
    checkpoint = read(directory, settings={"model_type": family} if family else None, dtype=None)
    tokenizer = Tokenizer.load(tokenizer_folder(directory), family=checkpoint.family.name)
    if dtype is not None:
        largest = max(float(p.detach().abs().max()) for p in checkpoint.model.parameters())
        if largest > torch.finfo(dtype).max:
            kind = str(dtype).removeprefix("torch.")
            raise BertsmithError(
                f"{out}: not all weights fit in {kind}; bfloat16 holds larger ones"
            )
    difference, kinds = 0.0, ""

    def write_and_compare(part: Path) -> None:
        nonlocal difference, kinds
        save(part, checkpoint, tokenizer, sentence, dtype)
        again = read(part, heads=checkpoint.entries, dtype=None)
        kinds = ", ".join(sorted({str(p.dtype)[6:] for p in again.model.parameters()}))
        before = dict(checkpoint.model.named_parameters())
        difference = max(
            float((before[name].detach().double() - after.detach().double()).abs().max())
            for name, after in again.model.named_parameters()
        )

    replace_directory(out, write_and_compare, overwrite)
    return {
        "out": str(out),
        "family": checkpoint.family.name,
        "heads": list(checkpoint.entries),
        "tensors": checkpoint.report.loaded,
        "parameters": sum(p.numel() for p in checkpoint.model.parameters()),
        "dtype": kinds,
        "bytes": (Path(out) / "model.safetensors").stat().st_size,
        "largest_difference": difference,
        "unused": list(checkpoint.report.unused),
        "notes": checkpoint.report.lines(),
    }


def write_card(directory: Path, checkpoint: Checkpoint, base: str = "") -> None:
    """Write the model card, unless there is one; with `base`, that of an adapter of this model."""
    path = directory / "README.md"
    if path.exists():
        return
    config, name = checkpoint.config, directory.resolve().name
    others = ADAPTER if base else INT8 if int8_weights(checkpoint.model) else OPENS
    library = "transformers" if config.plan else "sentence-transformers"
    text = CARD.format(
        tag="pipeline_tag: fill-mask\n" if "masked_lm" in checkpoint.entries else "",
        family=checkpoint.family.name,
        name=name,
        layers=config.layers,
        width=config.width,
        heads_each=config.attention_heads,
        parameters=sum(parameter.numel() for parameter in checkpoint.model.parameters()),
        vocabulary=config.vocabulary,
        length=config.max_length,
        heads=", ".join(checkpoint.entries) or "none",
        version=__version__,
        others=others.format(base=base, name=name, library=library),
    )
    write_text(path, text)
