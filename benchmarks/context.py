"""Numbers of the guide: what context tells, which pooling to take, and what an encoder costs.

python benchmarks/context.py      # BERTSMITH_DATA has the folders ud_english_ewt and glue_sst2
"""

import csv
import json
import lzma
import os
import random
import resource
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from torch import nn

import bertsmith as bs

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))
import nanobert  # noqa: E402 - an example, not a package

DATA = Path(os.environ.get("BERTSMITH_DATA", ROOT / "../shared/data"))
SENTENCES, TRAIN, TEST, EPOCHS = 300, 600, 300, 2


def context() -> dict[str, float]:
    """How often bertsmith-small guesses a hidden word, from parts of its sentence."""
    bert, draw = bs.load("bertsmith-small", device="cpu", progress=False), random.Random(0)
    with lzma.open(next(DATA.glob("ud_english_ewt/*dev*")), "rt", encoding="utf-8") as file:
        lines = [line[9:].strip() for line in file if line.startswith("# text = ")]
    sentences = [line.split() for line in lines if 8 <= len(line.split()) <= 25]
    shown: dict[str, list[tuple[str, int]]] = {}  # a text, and the number of its mask
    words = []
    known = bert.tokenizer.vocabulary()
    while len(words) < SENTENCES:
        sentence = draw.choice(sentences)
        place = draw.randrange(2, len(sentence) - 2)
        word = sentence[place].lower()
        if word not in known or not word.isalpha():
            continue
        left, right = " ".join(sentence[:place]), " ".join(sentence[place + 1 :])
        before, after = place, len(sentence) - place - 1  # words, each hidden by one mask
        words.append(word)
        for name, text, number in (
            ("nothing", "[MASK] " * len(sentence), before),
            ("the left side", f"{left} [MASK]{' [MASK]' * after}", 0),
            ("the right side", f"{'[MASK] ' * before}[MASK] {right}", before),
            ("both sides", f"{left} [MASK] {right}", 0),
        ):
            shown.setdefault(name, []).append((text, number))
    return {
        name: round(
            sum(
                next(guess for guess in guesses if guess.mask == number).token == word
                for guesses, (_, number), word in zip(
                    bert.fill_mask([text for text, _ in texts], top=1), texts, words, strict=True
                )
            )
            / SENTENCES,
            4,
        )
        for name, texts in shown.items()
    }


def sst2() -> tuple[list, list]:
    """Some rows of SST-2's training set to learn from, and of its dev set to be scored on."""
    parts = []
    for name, count in (("train", TRAIN), ("dev", TEST)):
        with lzma.open(next(DATA.glob(f"glue_sst2/{name}*")), "rt", encoding="utf-8") as file:
            rows = [
                (row["sentence"], row["label"])
                for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            ]
        parts.append(random.Random(0).sample(rows, count))
    return parts[0], parts[1]


POOLS = {
    "[CLS]": lambda model, states, ids: states[:, 0],
    "tanh pooler": lambda model, states, ids: model.pooled(states),
    "mean": lambda model, states, ids: (
        (states * (ids != 0)[..., None]).sum(1) / (ids != 0).sum(1, keepdim=True)
    ),
}


def vectors(model: nanobert.Bert, tokenizer: nanobert.Tokenizer, texts: list, pool) -> torch.Tensor:
    parts = []
    for begin in range(0, len(texts), 50):
        ids, states, _ = nanobert.read(model, tokenizer, texts[begin : begin + 50])
        parts.append(pool(model, states, ids))
    return torch.cat(parts)


def pooling(train: list, test: list) -> dict[str, dict[str, float]]:
    """Accuracy with bertsmith-classic's vectors as they are, and after fine-tuning."""
    folder = ROOT / "src/bertsmith/models/bertsmith-classic"
    result: dict[str, dict[str, float]] = {"before": {}, "after": {}}
    texts, labels = [text for text, _ in train], [int(label) for _, label in train]
    test_texts, test_labels = [text for text, _ in test], torch.tensor([int(y) for _, y in test])
    for name, pool in POOLS.items():
        model, tokenizer = nanobert.load(folder)
        with torch.no_grad():
            x, y = (
                vectors(model, tokenizer, texts, pool),
                vectors(model, tokenizer, test_texts, pool),
            )
        linear = LogisticRegression(max_iter=2000).fit(x.numpy(), labels)
        result["before"][name] = round(linear.score(y.numpy(), test_labels.numpy()), 4)
        torch.manual_seed(0)
        head, draw = nn.Linear(256, 2), random.Random(0)
        both, steps = nn.ModuleList([model, head]), EPOCHS * TRAIN // 16
        optimizer = torch.optim.Adam(both.parameters())
        for step in range(steps):
            some, ys = zip(*draw.sample(train, 16), strict=True)
            ids, states, _ = nanobert.read(model, tokenizer, some)
            loss = F.cross_entropy(
                head(pool(model, states, ids)), torch.tensor([int(y) for y in ys])
            )
            nanobert.update(both, loss, optimizer, 3e-4 * (1 - step / steps))
        with torch.no_grad():
            best = head(vectors(model, tokenizer, test_texts, pool)).argmax(-1)
        result["after"][name] = round((best == test_labels).float().mean().item(), 4)
        print(name, result, flush=True)
    return result


def cost(train: list, test: list) -> dict[str, dict[str, float]]:
    """Accuracy on SST-2 and CPU seconds of a million texts: word counts and a fine-tuned BERT."""
    texts, labels = zip(*train, strict=True)
    asked, truth = zip(*test, strict=True)
    words = TfidfVectorizer(ngram_range=(1, 2)).fit(texts)
    linear = LogisticRegression(max_iter=2000).fit(words.transform(texts), labels)
    begin = time.process_time()
    right = linear.score(words.transform(asked), truth)
    rows = {"TF-IDF": {"accuracy": right, "cpu_ms": 1e3 * (time.process_time() - begin) / TEST}}
    for name in ("bertsmith-classic", "bertsmith-small"):
        bert = bs.load(name, device="cpu", progress=False)
        bert.embed(list(asked[:50]))
        begin = time.process_time()
        bert.embed(list(asked))
        parameters = sum(one.numel() for one in bert.model.parameters())
        rows[name] = {
            "cpu_ms": 1e3 * (time.process_time() - begin) / TEST,
            "parameters": parameters,
            "megabytes": parameters * 4 / 1e6,
        }
    return {name: {key: round(x, 4) for key, x in row.items()} for name, row in rows.items()}


def main() -> None:
    torch.set_num_threads(1)
    train, test = sst2()
    result = {"sentences": SENTENCES, "accuracy": context(), "train": TRAIN, "test": TEST}
    print(result, flush=True)
    result["cost"] = cost(train, test)
    print(result, flush=True)
    result["pooling"] = pooling(train, test)
    result["peak_megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000
    path = ROOT / "benchmarks" / "results" / "context.json"
    path.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
