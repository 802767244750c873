"""Trained checkpoints: bertsmith against `transformers`, in float32 and float64.

    python benchmarks/parity_trained.py CHECKPOINT_DIRECTORY...

With trained weights, rounding alone moves hidden states by more than 1e-5 in some models, in
`transformers` as in bertsmith. The float64 column tells rounding from error: there both must
agree to far less. Random token ids in ragged batches; writes JSON.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
import transformers

from bertsmith.batch import Batch
from bertsmith.checkpoint import read


def compare(directory: Path, family: str | None) -> dict[str, Any]:
    settings = {"model_type": family} if family else None
    checkpoint = read(directory, settings=settings)
    kind = checkpoint.settings["model_type"]
    stem = checkpoint.family.stems[kind]
    config = getattr(transformers, f"{stem}Config").from_pretrained(directory)
    theirs = getattr(transformers, f"{stem}Model")
    single = theirs.from_pretrained(directory, config=config, dtype=torch.float32).eval()
    double = theirs.from_pretrained(directory, config=config, dtype=torch.float64).eval()
    longest = min(checkpoint.config.max_length, 300)
    random = torch.Generator().manual_seed(0)
    lengths = [5, longest, 1, 33, 33, longest // 2]
    vocabulary = checkpoint.config.vocabulary
    low = min(5, vocabulary - 2)
    ids = [torch.randint(low, vocabulary, (n,), generator=random).tolist() for n in lengths]
    width = max(lengths)
    pad = checkpoint.config.pad_id
    rows = torch.tensor([row + [pad] * (width - len(row)) for row in ids])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in ids])
    batch = Batch.of(ids)

    def flat(model: Any) -> torch.Tensor:
        states = model(input_ids=rows, attention_mask=mask).last_hidden_state
        return torch.cat([states[n, :length] for n, length in enumerate(lengths)]).double()

    with torch.no_grad():
        ours = checkpoint.model.encoder(batch).last.double()
        their_single, exact = flat(single), flat(double)
        ours_double = checkpoint.model.double().encoder(batch).last
    return {
        "family": checkpoint.family.name,
        "largest_state": float(exact.abs().max()),
        "ours_to_theirs": float((ours - their_single).abs().max()),
        "ours_to_their_float64": float((ours - exact).abs().max()),
        "theirs_to_their_float64": float((their_single - exact).abs().max()),
        "float64_to_float64": float((ours_double - exact).abs().max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directories", nargs="+", type=Path)
    parser.add_argument("--family", help="for config.json files without model_type")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/parity_trained.json"))
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    found = {}
    for directory in options.directories:
        found[directory.name] = row = compare(directory, options.family)
        numbers = "  ".join(f"{key} {value:.1e}" for key, value in row.items() if key != "family")
        print(f"{directory.name[:36]:36} {row['family']:10} {numbers}", flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
