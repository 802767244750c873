"""examples/nanobert.py is the package's BERT: same outputs, masks, losses, gradients and steps."""

import ast
import random
import sys
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch

import bertsmith as bs
from bertsmith.batch import Batch
from bertsmith.examples import Example
from bertsmith.examples.draw import uniform
from bertsmith.examples.masking import Masking
from bertsmith.examples.sources import Sequences
from bertsmith.model import Model
from bertsmith.objectives import EncoderPass, MaskedTokens, NextSentence
from bertsmith.tokenizer import train

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "examples" / "nanobert.py"
CLASSIC = ROOT / "src" / "bertsmith" / "models" / "bertsmith-classic"
sys.path.insert(0, str(FILE.parent))
import nanobert  # noqa: E402 - an example, not a package

TEXTS = [
    "The old river flows past the town and under the bridge.",
    "Café naïve: 5€ (or $6)!  Don't_stop…",
    "東京 is Tokyo; the zero-width\u200bspace\tand a tab.",
    "Unbelievably, hydroxychloroquine-like words. Ünïcödé ß İstanbul",
]
DOCUMENTS = """The cat sat on the mat. It was warm. The dog came in, and the cat ran away.

A river flows to the sea. Ships sail on it. They bring wood and iron. The town is old.

She plays the violin. He sings. Later they both travel by train to the next town."""


@pytest.fixture(scope="module")
def classic() -> tuple[nanobert.Bert, nanobert.Tokenizer]:
    return nanobert.load(CLASSIC)


@pytest.fixture(scope="module")
def package() -> bs.Bert:
    return bs.load("bertsmith-classic", device="cpu", progress=False)


def test_it_is_short_and_needs_only_torch() -> None:
    text = FILE.read_text("utf-8")
    assert len(text.splitlines()) <= 350
    modules = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(str(node.module).partition(".")[0])
    assert modules - {"torch"} <= sys.stdlib_module_names


def test_same_tokens(classic: tuple, package: bs.Bert) -> None:
    _, tokenizer = classic
    for text in TEXTS:
        theirs = list(package.tokenizer.encode(text).ids)
        assert [tokenizer.cls, *tokenizer.encode(text), tokenizer.sep] == theirs, text


def test_same_vocabulary_as_the_library_learns(tmp_path: Path) -> None:
    """Pairs are joined in the same order, but for ties, which each breaks in its own way."""
    from pydoc_data.topics import topics

    text = "\n\n".join(list(topics.values())[:20])
    (tmp_path / "text.txt").write_text(text, "utf-8")
    theirs = train([str(tmp_path / "text.txt")], "wordpiece", size=600)
    ours = nanobert.Tokenizer.train(f"{text}\n{text}", 600)  # what occurs once is left out
    assert len(ours.tokens) == 600
    assert len(set(ours.tokens) & set(theirs.vocabulary())) >= 0.93 * 600


def test_it_opens_classic_with_equal_outputs(classic: tuple, package: bs.Bert) -> None:
    model, tokenizer = classic
    model.eval()
    with torch.no_grad():
        ids, states, maps = nanobert.read(model, tokenizer, TEXTS)  # of different lengths: padded
    theirs = package.model
    for row, text in enumerate(TEXTS):
        encoding = list(package.tokenizer.encode(text).ids)
        batch = Batch.of([encoding])
        with torch.no_grad():
            hidden = theirs.encoder(batch)
            masked = theirs.heads["masked_lm"](hidden, batch, torch.arange(len(encoding)))
            follows = theirs.heads["next_sentence"](hidden, batch)
        mine = states[row, : len(encoding)]
        assert ids[row, : len(encoding)].tolist() == encoding
        assert torch.allclose(mine, hidden.last, atol=2e-5)
        with torch.no_grad():
            assert torch.allclose(model.guess(mine), masked, atol=2e-4)
            pooled = model.pooled(states[row : row + 1])
            assert torch.allclose(model.follows(pooled), follows, atol=2e-5)
        view = package.attention(text)
        weights = torch.stack(maps)[:, row, :, : len(encoding), : len(encoding)]
        assert np.allclose(weights.numpy(), view.maps(), atol=2e-5)
    best = package.fill_mask("Berlin is the capital of [MASK].")[0]
    assert nanobert.fill(model, tokenizer, "Berlin is the capital of [MASK].")[0] == (
        best.token,
        pytest.approx(best.score, abs=1e-4),
    )


class Draws:
    """The package's draws for one sample, in the order in which nanobert asks for them."""

    def __init__(self, seed: int, sample: int, ids: list[int], special: set[int]) -> None:
        whole = np.arange(len(ids))
        places = np.array([place for place in whole if ids[place] not in special])
        key = np.array([sample])
        order = uniform(seed, key, np.arange(len(places)), "order")
        wanted = max(1.0, 0.15 * len(places))
        ranked = np.argsort(order, kind="stable")
        rest = uniform(seed, key, ranked[int(wanted)] if int(wanted) < len(places) else 0, "last")
        count = int(wanted) + bool(rest[0] < wanted % 1)
        fates = []
        for place in sorted(places[ranked[:count]]):
            fate = float(uniform(seed, key, np.array([place]), "fate")[0])
            fates.append(fate)
            if 0.8 <= fate < 0.9:
                fates.append(float(uniform(seed, key, np.array([place]), "other")[0]))
        self.numbers = chain(map(float, order), map(float, rest), fates)

    def random(self) -> float:
        return next(self.numbers)


def test_same_masks_from_the_same_draws(classic: tuple, package: bs.Bert) -> None:
    _, tokenizer = classic
    theirs = package.tokenizer
    masking = Masking(theirs, rate=0.15, seed=3)
    kinds = set()
    for sample in range(300):
        ids = list(theirs.encode(TEXTS[sample % 4], TEXTS[(sample + 1) % 4]).ids)
        sequences = Sequences(np.array(ids), np.zeros(len(ids), int), np.array([len(ids)]))
        expected = masking(sequences, np.array([sample]))
        draws = Draws(3, sample, ids, set(theirs.special_ids))
        seen, targets = nanobert.mask_tokens(ids, tokenizer, draws)
        assert seen == expected.ids.tolist()
        places = [place for place, one in enumerate(targets) if one != -100]
        assert places == expected.rows.tolist()
        assert [targets[place] for place in places] == expected.targets.tolist()
        kinds |= {
            "mask" if seen[p] == tokenizer.mask else "same" if seen[p] == ids[p] else "other"
            for p in places
        }
        assert next(draws.numbers, None) is None  # all were used
    assert kinds == {"mask", "same", "other"}


def paired_batch(tokenizer: nanobert.Tokenizer) -> tuple[list[torch.Tensor], Example]:
    """A batch of nanobert, and the same as the package has it: end to end, without padding."""
    documents = [
        [tokenizer.encode(sentence + ".") for sentence in document.split(".") if sentence.strip()]
        for document in DOCUMENTS.split("\n\n")
    ]
    batch = nanobert.make_batch(documents, tokenizer, 6, random.Random(0))
    ids, segments, targets, labels = batch
    real = ids != 0
    assert not real.all()  # the texts differ in length
    packed = Batch.of(
        [row[keep].tolist() for row, keep in zip(ids, real, strict=True)],
        [row[keep].tolist() for row, keep in zip(segments, real, strict=True)],
    )
    goals = targets[real]
    rows = (goals != -100).nonzero().flatten()
    return batch, Example(packed, rows, goals[rows], labels, len(ids), int(real.sum()))


def their_loss(model: Model, example: Example) -> torch.Tensor:
    one_pass = EncoderPass(model, example)
    terms = [
        objective.terms(one_pass, example)[0] for objective in (MaskedTokens(), NextSentence())
    ]
    return terms[0].sum / len(example.rows) + terms[1].sum / example.samples


def compared(name: str) -> str:
    """A parameter's name here as the package calls it; queries, keys and values are one there."""
    old = ("embedding_norm", "token.", "position.", "segment.", ".up.", ".down.")
    new = ("embedding.finish.norm", "embedding.token.", "embedding.marks.position.")
    new += ("embedding.marks.segment.", ".feedforward.up.", ".feedforward.down.")
    for a, b in zip(old, new, strict=True):
        name = name.replace(a, b)
    return name


def test_same_loss_gradient_and_step(classic: tuple) -> None:
    model, tokenizer = nanobert.load(CLASSIC)
    theirs = bs.load("bertsmith-classic", device="cpu", progress=False).model.float().train()
    batch, example = paired_batch(tokenizer)
    theirs.requires_grad_(True)
    loss, _ = nanobert.pretraining_loss(model, *batch)
    expected = their_loss(theirs, example)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-5)
    expected.backward()
    loss.backward()
    named = dict(theirs.encoder.named_parameters())
    for name, weight in model.named_parameters():
        if not name.startswith(("blocks", "token", "position", "segment", "embedding_norm")):
            continue
        if ".attention.query" in name:
            kind = name.rpartition(".")[2]
            parts = [
                model.get_parameter(name.replace("query", part)).grad
                for part in ("query", "key", "value")
            ]
            other = named[compared(name).replace("query", "qkv")].grad
            assert torch.allclose(torch.cat(parts), other, atol=1e-5), (name, kind)
        elif ".attention.key" not in name and ".attention.value" not in name:
            assert torch.allclose(weight.grad, named[compared(name)].grad, atol=1e-5), name
    # One step of each: the norm is clipped, then Adam.
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    nanobert.update(model, nanobert.pretraining_loss(model, *batch)[0], optimizer, 1e-3)
    torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
    torch.optim.Adam(theirs.parameters(), lr=1e-3, betas=(0.9, 0.98)).step()
    with torch.no_grad():
        after, _ = nanobert.pretraining_loss(model, *batch)
        assert after.item() == pytest.approx(their_loss(theirs, example).item(), abs=2e-3)
        assert after < loss


def test_it_trains_saves_opens_fills_and_classifies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, model = tmp_path / "text.txt", tmp_path / "model"
    text.write_text("\n\n".join([DOCUMENTS] * 12), "utf-8")
    nanobert.main("train", str(text), str(model), "0.1")
    shown = capsys.readouterr().out.splitlines()
    first, last = (float(line.split("loss")[1].split()[0]) for line in (shown[0], shown[-2]))
    assert last < first - 0.5
    assert shown[-1].startswith("accuracy at masks of held-out documents: ")
    nanobert.main("fill", str(model), "The cat sat on the [MASK].")
    guesses = capsys.readouterr().out.splitlines()
    assert len(guesses) == 5
    rows = tmp_path / "rows.tsv"
    pairs = [("the cat sat on the mat", "home"), ("ships sail on the river", "water")] * 100
    rows.write_text("\n".join("\t".join(pair) for pair in pairs), "utf-8")
    nanobert.main("classify", str(model), str(rows))
    right, of, count, *_ = capsys.readouterr().out.split()
    assert (of, count) == ("of", "40")
    assert int(right) > 0.8 * int(count)


def test_padding_changes_nothing(classic: tuple) -> None:
    model, tokenizer = classic
    with torch.no_grad():
        alone = nanobert.read(model, tokenizer, [TEXTS[0]])[1][0]
        beside = nanobert.read(model, tokenizer, [TEXTS[0], " ".join(TEXTS)])[1][0]
    assert torch.allclose(alone, beside[: len(alone)], atol=1e-5)


def test_masks_have_the_right_shares() -> None:
    _, ours = nanobert.load(CLASSIC)
    ids, draw = ours.encode(TEXTS[0] * 5), random.Random(0)
    total = hidden = kept = 0
    for _ in range(2000):
        seen, targets = nanobert.mask_tokens(ids, ours, draw)
        places = [place for place, one in enumerate(targets) if one != -100]
        total += len(places)
        hidden += sum(seen[place] == ours.mask for place in places)
        kept += sum(seen[place] == ids[place] for place in places)
    assert total / (2000 * len(ids)) == pytest.approx(0.15, abs=0.002)
    assert hidden / total == pytest.approx(0.8, abs=0.01)
    assert kept / total == pytest.approx(0.1, abs=0.01)
