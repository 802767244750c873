"""`bertsmith demo`: forge a tiny BERT from sentences, in a minute on a CPU, and fill masks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertsmith.cli import options as shared

if TYPE_CHECKING:
    import torch

    from bertsmith.batch import Batch
    from bertsmith.tokenizer import Tokenizer

CAPITALS = """
austria vienna, belgium brussels, bulgaria sofia, croatia zagreb, denmark copenhagen, egypt cairo,
finland helsinki, france paris, germany berlin, greece athens, hungary budapest, iceland reykjavik,
ireland dublin, italy rome, japan tokyo, kenya nairobi, latvia riga, norway oslo, peru lima,
poland warsaw, portugal lisbon, romania bucharest, russia moscow, serbia belgrade, spain madrid,
sweden stockholm, turkey ankara, ukraine kyiv
"""
SOUNDS = """
dog barks, cat meows, cow moos, sheep bleats, lion roars, wolf howls, horse neighs, duck quacks,
snake hisses, frog croaks, bee buzzes, owl hoots, pig grunts, mouse squeaks
"""
OPPOSITES = """
hot cold, big small, fast slow, light dark, young old, rich poor, hard soft, high low, wet dry,
early late, full empty, strong weak, thick thin, loud quiet
"""


def demo(
    out: Annotated[Path, typer.Option(help="Where the model goes.")] = Path("demo-model"),
    steps: Annotated[int, typer.Option(help="Training steps.", min=10)] = 400,
    as_json: shared.Json = False,
) -> None:
    """Forge a tiny BERT from 140 sentences, and fill masks.

    It learns a vocabulary, trains two layers and saves a model directory. The weights know
    these sentences and nothing else: it shows the way, not a useful model.
    """
    from dataclasses import asdict

    from bertsmith.tasks import load

    texts = sentences()
    _say(as_json, f"{len(texts)} sentences of capitals, animals and opposites")
    forge(texts, out, steps, quiet=as_json)
    bert = load(out)
    _say(as_json, f"{bert} in {out}\n")
    questions = [
        "The capital of France is [MASK].",
        "[MASK] is the capital of Japan.",
        "The dog [MASK].",
        "The opposite of hot is [MASK].",
    ]
    found = bert.fill_mask(questions, top=3)
    if as_json:
        pairs = zip(questions, found, strict=True)
        shared.print_json({"text": t, "guesses": [asdict(g) for g in row]} for t, row in pairs)
        return
    for text, row in zip(questions, found, strict=True):
        typer.echo(f"{text:36} " + "  ".join(f"{g.token} {g.score:.2f}" for g in row))


def sentences() -> list[str]:
    """Everything the demo model will ever read."""

    def pairs(table: str) -> list[tuple[str, str]]:
        rows = (row.split() for row in table.replace("\n", " ").split(","))
        return [(first, second) for first, second in rows]

    made = []
    for country, city in pairs(CAPITALS):
        made += [
            f"The capital of {country.title()} is {city.title()}.",
            f"{city.title()} is the capital of {country.title()}.",
            f"If you go to {country.title()}, see {city.title()}.",
        ]
    for animal, sound in pairs(SOUNDS):
        made += [f"The {animal} {sound}.", f"Listen: the {animal} {sound} at night."]
    for one, other in pairs(OPPOSITES):
        made += [f"The opposite of {one} is {other}.", f"The opposite of {other} is {one}."]
    return made


def forge(texts: list[str], out: Path, steps: int, quiet: bool) -> None:
    """Texts → tokenizer → masked-LM training → a model directory."""
    import tempfile

    import torch

    from bertsmith.checkpoint import Sentence, create, save
    from bertsmith.tokenizer import train

    torch.set_num_threads(1)  # tensors this small gain nothing from a second thread
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "sentences.txt"
        corpus.write_text("\n".join(texts), encoding="utf-8")
        tokenizer = train([corpus], "wordpiece", size=600, min_frequency=1, max_length=64)
    checkpoint = create(
        "bert-tiny",
        vocab_size=tokenizer.size,
        max_position_embeddings=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.1,  # BERT's 0.02 is for wider layers: these would learn no pairs
    )
    model = checkpoint.model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    random = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    encoded = [one.ids for one in tokenizer.encode_many(texts)]
    for step in range(steps):
        chosen = torch.randint(len(encoded), (128,), generator=random).tolist()
        # Equal lengths side by side: attention takes them together.
        picked = sorted((encoded[n] for n in chosen), key=len)
        batch, rows, targets = masked(picked, tokenizer, random)
        loss = torch.nn.functional.cross_entropy(model(batch, "masked_lm", rows), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step == steps - 1:
            _say(quiet, f"step {step:4}  loss {loss.item():.3f}")
    model.eval()
    save(out, checkpoint, tokenizer, Sentence())


def masked(
    sequences: list[list[int]], tokenizer: Tokenizer, random: torch.Generator
) -> tuple[Batch, torch.Tensor, torch.Tensor]:
    """A batch with 15% of its tokens chosen: 80% masked, 10% random, 10% kept."""
    from dataclasses import replace

    import torch

    from bertsmith.batch import Batch

    batch = Batch.of(sequences)
    special = torch.isin(batch.ids, torch.tensor(sorted(tokenizer.special_ids)))
    drawn = torch.rand(len(batch.ids), generator=random).masked_fill(special, 1.0)
    rows = (drawn < 0.15).nonzero().flatten()
    targets = batch.ids[rows]
    kind = torch.rand(len(rows), generator=random)
    other = torch.randint(5, tokenizer.size, (len(rows),), generator=random)
    filled = torch.where(
        kind < 0.8, tokenizer.mask_id or 0, torch.where(kind < 0.9, other, targets)
    )
    return replace(batch, ids=batch.ids.index_copy(0, rows, filled)), rows, targets


def _say(quiet: bool, message: str) -> None:
    if not quiet:
        typer.echo(message)
