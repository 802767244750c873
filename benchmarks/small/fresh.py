"""The same architecture and vocabulary with weights that learned nothing.

python benchmarks/small/fresh.py bertsmith-small FOLDER
"""

from __future__ import annotations

import sys

import torch

from bertsmith import load
from bertsmith.model import initialise


def main() -> None:
    """Draw all weights anew and store the model."""
    bert = load(sys.argv[1], device="cpu")
    deviation = bert.checkpoint.config.initial_deviation
    initialise(bert.model, deviation, torch.Generator().manual_seed(0))
    bert.save(sys.argv[2])


if __name__ == "__main__":
    main()
