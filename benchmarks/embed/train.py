"""Make `bertsmith-embed`: vectors of tokens, trained on pairs of texts of one document.

    python benchmarks/embed/train.py --corpus CORPUS --out FOLDER
    python benchmarks/embed/train.py --corpus CORPUS --out FOLDER --seconds 20 --batch 256
    python benchmarks/embed/train.py --corpus CORPUS --out FOLDER --table TABLE.npy

CORPUS is a folder that `bertsmith prepare` or benchmarks/small/corpus.py made, with one title or
sentence to a line. A pair is a passage of a document, and its title, a sentence or a crop of the
text around the passage. Both are embedded as benchmarks/embed/build.py says; the passage is to be
nearer to its own partner than to those of all other pairs of the batch, and the other way round.

Each token has 512 trained numbers and 400 random ones, which only get a trained length: they tell
words apart that the trained ones take for the same. `--save-table` stores both as float16 (V, 513);
`--table` builds the model from such a file without training. Batches lie on the device with the
corpus; --seconds 62 was 2,127 steps of one H200.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from build import CONTENT, random_columns, write_model
from torch import Tensor

from bertsmith.corpus import Corpus


@dataclass(frozen=True)
class Settings:
    """How pairs are drawn and how vectors are trained."""

    trained: int = 512  # columns; the others are random
    power: float = 0.5  # a token that occurs n times counts n**power
    rarity: float = 0.75  # exponent of the logarithmic rarity in the first lengths
    batch: int = 8192  # pairs
    learning_rate: float = 0.006
    temperature: float = 0.03
    warmup: int = 20  # steps
    titles: float = 0.3  # pairs whose first text is the title, where there is one
    sentences: float = 0.5  # pairs whose first text is a sentence; the others have a crop
    inside: float = 0.5  # sentences that are taken from the passage itself
    overlap: float = 0.25  # pairs whose passage keeps the tokens of the first text
    window: int = 512  # tokens of a document that both texts are taken from
    least: int = 96  # tokens of a passage
    most: int = 256
    longest: int = 64  # tokens of the first text
    shortest_crop: int = 8
    longest_title: int = 12
    smallest_document: int = 48
    seed: int = 0


NONE = -1  # no token


def options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, required=True, help="a prepared corpus")
    parser.add_argument("--out", type=Path, required=True, help="the model's folder")
    parser.add_argument("--seconds", type=float, default=62.0)
    parser.add_argument("--steps", type=int, default=0, help="so many steps instead of seconds")
    parser.add_argument("--batch", type=int, default=Settings.batch, help="pairs in a step")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--table", type=Path, help="build from this trained table")
    parser.add_argument("--save-table", type=Path, help="store the trained table (.npy)")
    return parser.parse_args()


# ------------------------------------------------------------------ pairs of texts


class Pairs:
    """Draws pairs of texts of one document; the corpus lies on the device."""

    def __init__(self, corpus: Corpus, device: str, settings: Settings) -> None:
        folder = corpus.directory / corpus.split
        shards = [np.load(path) for path in sorted(folder.glob("tokens-*.npy"))]
        self.vocabulary = corpus.tokenizer.size
        self.counts = sum(np.bincount(shard, minlength=self.vocabulary) for shard in shards)
        tokens = np.concatenate([shard.astype(np.int32) for shard in shards])
        self.tokens = torch.from_numpy(tokens).to(device)
        self.documents = torch.from_numpy(np.array(corpus.document_starts)).to(device)
        self.sentences = torch.from_numpy(np.array(corpus.sentence_starts)).to(device)
        self.device, self.settings = device, settings
        first, end = self.documents[:-1], self.documents[1:]
        # A short first sentence is the title: passages begin after it.
        self.title_lengths = self.sentences[self._sentence(first) + 1] - first
        self.titled = self.title_lengths <= settings.longest_title
        self.starts = torch.where(self.titled, first + self.title_lengths, first)
        # A document is drawn about as often as it has passages.
        size = end - self.starts
        passages = (size + settings.most - 1) // settings.most
        passages = torch.where(size >= settings.smallest_document, passages, 0)
        self.passages = passages.cumsum(0)

    def _sentence(self, places: Tensor) -> Tensor:
        """Return the numbers of the sentences at places of the corpus."""
        return torch.searchsorted(self.sentences, places, right=True) - 1

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return ids (B, 64) of titles, sentences and crops, and (B, 256) of their passages."""
        c, count = self.settings, self.settings.batch

        def uniform() -> Tensor:
            return torch.rand(count, generator=generator, device=self.device)

        def within(start: Tensor, choices: Tensor) -> Tensor:
            return start + (uniform() * choices).long()

        def length(low: Tensor, high: Tensor) -> Tensor:
            return (low * (high / low) ** uniform()).round().long()

        place = (uniform().double() * self.passages[-1]).long()
        document = torch.searchsorted(self.passages, place, right=True)
        size = self.documents[document + 1] - self.starts[document]
        wide = size.clamp(max=c.window)
        window = within(self.starts[document], size - wide + 1)
        number = length(wide.clamp(max=c.least), wide.clamp(max=c.most)).clamp(max=c.most)
        passage = within(window, wide - number + 1)
        # A sentence of the passage, or of the window around it.
        inside = uniform() < c.inside
        from_passage, from_window = within(passage, number), within(window, wide)
        sentence = self._sentence(torch.where(inside, from_passage, from_window))
        sentence_start = self.sentences[sentence]
        sentence_length = self.sentences[sentence + 1] - sentence_start
        low, high = torch.full_like(wide, c.shortest_crop), torch.full_like(wide, c.longest)
        crop_length = torch.minimum(length(low, high), wide)
        crop = within(window, wide - crop_length + 1)
        kind = uniform()
        title = (kind < c.titles) & self.titled[document]
        chosen = kind < c.titles + c.sentences
        start = torch.where(chosen, sentence_start, crop)
        start = torch.where(title, self.documents[document], start)
        first = torch.where(chosen, sentence_length, crop_length)
        first = torch.where(title, self.title_lengths[document], first).clamp(max=c.longest)
        one, _ = self._texts(start, first, c.longest)
        two, places = self._texts(passage, number, c.most)
        hidden = (places >= start[:, None]) & (places < (start + first)[:, None])
        two[(uniform() >= c.overlap)[:, None] & hidden] = NONE
        return one, two

    def _texts(self, start: Tensor, lengths: Tensor, longest: int) -> tuple[Tensor, Tensor]:
        """Return the ids (B, longest) of texts, and their places in the corpus."""
        columns = torch.arange(longest, device=self.device)
        places = start[:, None] + columns
        ids = self.tokens[places.clamp(max=len(self.tokens) - 1)].long()
        ids[columns >= lengths[:, None]] = NONE
        return ids, places


# ------------------------------------------------------------------ training


def pooled(table: Tensor, ids: Tensor, power: float) -> Tensor:
    """Return unit vectors of texts: a token that occurs n times counts n**power."""
    ids = ids.sort(1).values.contiguous()
    repeats = torch.searchsorted(ids, ids, right=True) - torch.searchsorted(ids, ids)
    weights = repeats.float() ** (power - 1) * (ids != NONE)
    ids = ids.clamp(min=0)
    sums = F.embedding_bag(ids, table, mode="sum", per_sample_weights=weights, padding_idx=0)
    return F.normalize(sums, dim=-1, eps=1e-6)


def rarity(counts: np.ndarray) -> Tensor:
    """Return the logarithm of how rare passages of 110 tokens with a token are."""
    share = torch.from_numpy(counts / counts.sum())
    return torch.log(1 / (1 - (1 - share) ** 110 + 1e-6)).clamp(min=0).float()


def train(pairs: Pairs, settings: Settings, seconds: float, steps: int = 0) -> Tensor:
    """Return the trained table (V, 513): trained columns, and the length of the random ones."""
    c, device = settings, pairs.device
    generator = torch.Generator(device).manual_seed(c.seed)
    weight = (rarity(pairs.counts) ** c.rarity).to(device)
    start = torch.Generator().manual_seed(c.seed)
    draws = torch.randn(pairs.vocabulary, c.trained, generator=start).to(device)
    trained = (draws / c.trained**0.5 * weight[:, None]).requires_grad_()
    random = random_columns(pairs.vocabulary, CONTENT - c.trained).to(device)
    lengths = weight.clone().requires_grad_()
    optimizer = torch.optim.Adam(
        [trained, lengths], lr=c.learning_rate, betas=(0.9, 0.98), fused=device != "cpu"
    )
    own = torch.arange(c.batch, device=device)
    began, step = time.perf_counter(), 0
    while True:
        past = time.perf_counter() - began
        done = step / steps if steps else past / seconds
        if done >= 1:
            return torch.cat([trained, lengths[:, None]], 1).detach()
        for group in optimizer.param_groups:
            group["lr"] = c.learning_rate * min(1, (step + 1) / c.warmup) * (1 - done)
        table = torch.cat([trained, random * lengths[:, None]], 1)
        one, two = (pooled(table, ids, c.power) for ids in pairs.draw(generator))
        logits = one @ two.T / c.temperature
        loss = (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0 or past > seconds - 1 or device == "cpu":
            accuracy = (logits.argmax(1) == own).float().mean()
            print(
                f"step {step}, {past:.0f} s: loss {loss:.3f}, accuracy {accuracy:.3f}", flush=True
            )
        step += 1


def main() -> None:
    asked = options()
    torch.set_float32_matmul_precision("high")
    corpus = Corpus.open(asked.corpus)
    if asked.table:
        table = torch.from_numpy(np.load(asked.table))
    else:
        settings = replace(Settings(), batch=asked.batch)
        pairs = Pairs(corpus, asked.device, settings)
        table = train(pairs, settings, asked.seconds, asked.steps).half().cpu()
    if asked.save_table:
        np.save(asked.save_table, table.numpy())
    write_model(asked.out, table, corpus.tokenizer)
    print(f"{asked.out}: written")


if __name__ == "__main__":
    main()
