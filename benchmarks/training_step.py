"""What learning rate, warm-up, batch and masking rate do: nanobert, 200 steps on Python's manual.

python benchmarks/training_step.py      # the curves of docs/understand/training-step.md
"""

import json
import random
import re
import sys
from pathlib import Path
from pydoc_data.topics import topics  # English text that every Python has

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))
import nanobert  # noqa: E402 - an example, not a package

STEPS = 200


def documents(tokenizer: nanobert.Tokenizer) -> list[list[list[int]]]:
    texts = [re.split(r"(?<=[.!?])\s+", text.strip()) for text in topics.values()]
    return [[tokenizer.encode(one) for one in document] for document in texts if document[1:]]


def masked_at(rate: float):
    """Masks at another rate than 15%."""

    def masks(ids: list[int], tokenizer: nanobert.Tokenizer, draw: random.Random) -> tuple:
        seen, targets = list(ids), [-100] * len(ids)
        for place, one in enumerate(ids):
            if tokenizer.tokens[one] in nanobert.SPECIAL or draw.random() >= rate:
                continue
            targets[place], fate = one, draw.random()
            if fate < 0.8:
                seen[place] = tokenizer.mask
            elif fate < 0.9:
                seen[place] = draw.choice(tokenizer.ordinary)
        return seen, targets

    return masks


def run(
    tokenizer: nanobert.Tokenizer,
    texts: list,
    rate: float = 2e-3,
    warmup: int = 20,
    batch: int = 8,
    masking: float = 0.15,
    steps: int = STEPS,
) -> list[tuple[int, float]]:
    """(step, loss of masked tokens on text that is held out and masked at 15%)."""
    torch.manual_seed(0)
    model = nanobert.Bert(len(tokenizer.tokens), width=64, layers=2, inner=256)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    nanobert.mask_tokens = masked_at(0.15)
    test = nanobert.make_batch(texts[::20], tokenizer, 64, random.Random(1))
    learned = [text for number, text in enumerate(texts) if number % 20]
    nanobert.mask_tokens = masked_at(masking)
    draw, points = random.Random(0), []
    for step in range(steps + 1):
        if step % max(1, steps // 10) == 0:
            with torch.no_grad():
                states, _ = model(*test[:2])
                masked = test[2] != -100
                guesses = model.guess(states[masked])
                loss = torch.nn.functional.cross_entropy(guesses, test[2][masked])
            points.append((step, round(loss.item(), 3)))
        loss, _ = nanobert.pretraining_loss(
            model, *nanobert.make_batch(learned, tokenizer, batch, draw)
        )
        nanobert.update(model, loss, optimizer, rate * min(1.0, (step + 1) / max(warmup, 1)))
    return points


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
    tokenizer = nanobert.Tokenizer.train("\n\n".join(topics.values()), 2000)
    texts = documents(tokenizer)
    curves = {
        "learning rate": {f"{rate:g}": run(tokenizer, texts, rate) for rate in (1e-4, 2e-3, 3e-2)},
        "warm-up": {
            name: run(tokenizer, texts, 1e-2, steps)
            for name, steps in {"none": 0, "20 steps": 20, "100 steps": 100}.items()
        },
        "batch": {f"{size} pairs": run(tokenizer, texts, batch=size) for size in (2, 8, 32)},
        "masking rate": {
            f"{rate:.0%}": run(tokenizer, texts, masking=rate) for rate in (0.05, 0.15, 0.4, 0.8)
        },
    }
    path = ROOT / "benchmarks" / "results" / "training-step.json"
    path.write_text(json.dumps(curves, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
