"""The model card: contents of a directory and how to open it."""

from __future__ import annotations

from pathlib import Path

from bertsmith import __version__
from bertsmith.checkpoint.checkpoint import Checkpoint
from bertsmith.cpu import int8_weights
from bertsmith.files import write_text

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


def write_card(directory: Path, checkpoint: Checkpoint, base: str = "") -> None:
    """Write README.md, unless the directory has one; with `base`, of an adapter of this model."""
    path = directory / "README.md"
    if path.exists():
        return
    config = checkpoint.config
    others = ADAPTER if base else INT8 if int8_weights(checkpoint.model) else OPENS
    text = CARD.format(
        tag="pipeline_tag: fill-mask\n" if "masked_lm" in checkpoint.entries else "",
        family=checkpoint.family.name,
        name=directory.resolve().name,
        layers=config.layers,
        width=config.width,
        heads_each=config.attention_heads,
        parameters=sum(parameter.numel() for parameter in checkpoint.model.parameters()),
        vocabulary=config.vocabulary,
        length=config.max_length,
        heads=", ".join(checkpoint.entries) or "none",
        version=__version__,
        others=others.format(
            base=base,
            name=directory.resolve().name,
            library="transformers" if config.plan else "sentence-transformers",
        ),
    )
    write_text(path, text)
