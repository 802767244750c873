"""BERT in one file: learn to predict masked tokens of a text, then fill masks and classify texts.

python nanobert.py train TEXT.txt MODEL [MINUTES]     # documents with a blank line between them
python nanobert.py fill MODEL "Berlin is the capital of [MASK]."
python nanobert.py classify MODEL ROWS.tsv            # rows of: text, tab, label
Shapes in comments: N texts of T tokens, D numbers for each token, H attention heads of d = D / H.
"""

import json
import random
import re
import sys
import time
import unicodedata
from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


# ------------------------------------------------------------------------------- 1. Text to numbers
def split_words(text: str) -> list[str]:
    """Lower-case words and punctuation marks, without accents."""
    letters = []
    for letter in unicodedata.normalize("NFD", text):  # makes "é" two letters: "e" and an accent
        kind = unicodedata.category(letter)
        if kind == "Mn" or (kind[0] == "C" and not letter.isspace()):
            continue  # accents and control characters
        mark = kind[0] == "P" or (kind[0] == "S" and letter.isascii())  # also $ and +, not €
        # Chinese has no spaces between words, so each of its characters is a word.
        alone = mark or "\u4e00" <= letter <= "\u9fff"
        letters.append(f" {letter} " if alone else letter)
    return "".join(letters).lower().split()


class Tokenizer:
    """WordPiece: frequent words are one token; rare ones are several, continued by "##"."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.ids = tokens, {token: number for number, token in enumerate(tokens)}
        self.pad, self.unknown, self.cls, self.sep, self.mask = map(self.ids.get, SPECIAL)
        self.ordinary = [number for token, number in self.ids.items() if token not in SPECIAL]
        self.pieces = cache(self.pieces)  # text repeats its words: each is split only once

    @classmethod
    def train(cls, text: str, size: int) -> "Tokenizer":
        """Begin with single letters; join the most frequent pair of neighbours, and repeat."""
        # A word that occurs once teaches little, and brings letters of other scripts.
        counts = {word: n for word, n in Counter(split_words(text)).items() if n > 1}
        # How each word is spelled so far: first "c ##a ##t", then "c ##at", at last "cat".
        spelled = {word: " ".join([word[0], *("##" + x for x in word[1:])]) for word in counts}
        tokens = SPECIAL + sorted(set(" ".join(spelled.values()).split()))
        pairs, where = Counter(), defaultdict(set)  # of each pair: how often, and in which words

        def count_pairs(word: str, sign: int) -> None:
            for pair in pairwise(spelled[word].split()):
                pairs[pair] += sign * counts[word]
                where[pair].add(word)

        for word in counts:
            count_pairs(word, +1)
        while len(tokens) < size and pairs:
            most = max(pairs.values())
            best = min(pair for pair, n in pairs.items() if n == most)  # ties by name
            joined = best[0] + best[1].removeprefix("##")
            tokens += [] if joined in tokens else [joined]  # "ab" + "##c" = "a" + "##bc"
            between_spaces = re.compile(rf"(?<!\S){re.escape(' '.join(best))}(?!\S)")
            for word in list(where[best]):  # only these: to count all words again would take hours
                count_pairs(word, -1)
                spelled[word] = between_spaces.sub(joined, spelled[word])
                count_pairs(word, +1)
            del pairs[best], where[best]
        return cls(tokens)

    def pieces(self, word: str) -> list[int]:
        """Greedy: the longest token that the rest of the word begins with, again and again."""
        ids, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in self.ids:
                    break
            else:  # no token fits, not even a single letter: the whole word is unknown
                return [self.unknown]
            ids.append(self.ids[piece])
            start = end
        return ids

    def encode(self, text: str) -> list[int]:
        """The ids of a text, which may contain [MASK]."""
        words = " ".join(split_words(text)).replace("[ mask ]", "[MASK]").split()
        return [number for word in words for number in self.pieces(word)]


# ----------------------------------------------------------------------------------- 2. The network
class Attention(nn.Module):
    """Each token compares its query with all keys, and takes a weighted mean of the values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.query, self.key = heads, nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.output = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        qkv = self.query(x), self.key(x), self.value(x)
        q, k, v = (x.unflatten(2, (self.heads, -1)).transpose(1, 2) for x in qkv)  # (N, H, T, d)
        # Sums of d products grow with √d. Large scores would make softmax a hard choice, and a
        # hard choice has no gradient to learn from.
        scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5  # (N, H, T, T)
        # `real` (N, T) is false at padding, which must get no weight: e to the power of -inf is 0.
        weights = scores.masked_fill(~real[:, None, None, :], -torch.inf).softmax(-1)
        return self.output((weights @ v).transpose(1, 2).flatten(2)), weights


class Block(nn.Module):
    """Attention moves information between tokens; then a small network works on each token."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.attention, self.attention_norm = Attention(width, heads), nn.LayerNorm(width, 1e-12)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.feedforward_norm = nn.LayerNorm(width, 1e-12)

    def forward(self, x: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        mixed, weights = self.attention(x, real)
        # "x +": a block computes only a change. The gradient has a way around every block.
        x = self.attention_norm(x + mixed)
        return self.feedforward_norm(x + self.down(F.gelu(self.up(x)))), weights


class Bert(nn.Module):
    """Three embeddings, a stack of blocks, and two heads; so short a training needs no dropout."""

    def __init__(self, tokens: int, positions=128, width=128, layers=3, heads=4, inner=512) -> None:
        super().__init__()
        self.sizes = tokens, positions, width, layers, heads, inner
        self.token, self.position = nn.Embedding(tokens, width), nn.Embedding(positions, width)
        self.segment, self.embedding_norm = nn.Embedding(2, width), nn.LayerNorm(width, 1e-12)
        self.blocks = nn.ModuleList(Block(width, heads, inner) for _ in range(layers))
        self.transform, self.transform_norm = nn.Linear(width, width), nn.LayerNorm(width, 1e-12)
        self.vocabulary = nn.Linear(width, tokens)
        # One matrix with two uses ("tied"): the vector of a token in the input, and what a state
        # is compared with when the token is predicted. In a small model it is the largest matrix.
        self.vocabulary.weight = self.token.weight
        self.pooler, self.follows = nn.Linear(width, width), nn.Linear(width, 2)
        for table in (self.token, self.position, self.segment):
            nn.init.normal_(table.weight, std=0.02)  # small: at first no token is favoured

    def forward(self, ids: Tensor, segments: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Ids (N, T) to states (N, T, D), and the attention weights (N, H, T, T) of each block."""
        # Attention sees a set of tokens. Without positions "dog bites man" is "man bites dog".
        positions, maps = torch.arange(ids.shape[1]), []
        x = self.embedding_norm(self.token(ids) + self.position(positions) + self.segment(segments))
        for block in self.blocks:
            x, weights = block(x, ids != 0)  # 0 is [PAD]
            maps.append(weights)
        return x, maps

    def guess(self, states: Tensor) -> Tensor:
        """States (M, D) at masks to scores (M, V) for all V tokens of the vocabulary."""
        return self.vocabulary(self.transform_norm(F.gelu(self.transform(states))))

    def pooled(self, states: Tensor) -> Tensor:
        """A vector for each text, (N, D): [CLS] is no word, so its state can describe the text."""
        return torch.tanh(self.pooler(states[:, 0]))


# --------------------------------------------------------------------------- 3. What it learns from
def mask_tokens(ids: list[int], tokenizer: Tokenizer, draw: random.Random) -> tuple[list, list]:
    """The input with masks, and the targets: the original ids, at the chosen places only."""
    places = [place for place, id in enumerate(ids) if tokenizer.tokens[id] not in SPECIAL]
    order = {place: draw.random() for place in places}
    mean = max(1.0, 0.15 * len(places))
    count = int(mean) + (draw.random() < mean % 1)  # of 30 tokens four or five: 4.5 on average
    seen, targets = list(ids), [-100] * len(ids)  # cross_entropy ignores -100
    for place in sorted(sorted(places, key=order.get)[:count]):
        targets[place], chance = ids[place], draw.random()
        # [MASK] never occurs after pre-training. As 10% become a random token and 10% stay, the
        # model cannot know which tokens are targets, so it needs a good vector for each of them.
        if chance < 0.8:
            seen[place] = tokenizer.mask
        elif chance < 0.9:
            seen[place] = tokenizer.ordinary[int(draw.random() * len(tokenizer.ordinary))]
    return seen, targets


def padded(rows: list[list[int]], filler: int = 0) -> Tensor:
    """Texts of different lengths as one rectangle, because a tensor is one."""
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], True, filler)


def make_batch(documents: list, tokenizer: Tokenizer, size: int, draw: random.Random) -> list:
    """Masked pairs: ids, segments, targets; and whether the second text follows (0) or not (1)."""
    pairs = []
    for _ in range(size):
        document, label = draw.choice(documents), int(draw.random() < 0.5)
        cut = draw.randrange(1, len(document))
        first = [id for sentence in document[:cut] for id in sentence][-30:]  # 30 + 31 + 3 = 64
        if label:  # from anywhere else
            document = draw.choice(documents)
            cut = draw.randrange(len(document))
        second = [id for sentence in document[cut:] for id in sentence][:31]
        ids = [tokenizer.cls, *first, tokenizer.sep, *second, tokenizer.sep]
        segments = [0] * (len(first) + 2) + [1] * (len(second) + 1)
        pairs.append((*mask_tokens(ids, tokenizer, draw), segments, label))
    seen, targets, segments, labels = zip(*pairs, strict=True)
    return [padded(seen), padded(segments), padded(targets, -100), torch.tensor(labels)]


# -------------------------------------------------------------------------------------- 4. Learning
def pretraining_loss(model: Bert, ids, segments, targets, labels) -> tuple[Tensor, float]:
    """The loss of both tasks, and the accuracy at masks."""
    states, _ = model(ids, segments)
    # Only at masks: scores for the whole vocabulary at every token would take most of the time.
    states_at_masks, targets = states[targets != -100], targets[targets != -100]
    guesses, follows = model.guess(states_at_masks), model.follows(model.pooled(states))
    loss = F.cross_entropy(guesses, targets) + F.cross_entropy(follows, labels)
    return loss, (guesses.argmax(-1) == targets).float().mean().item()


def update(model: nn.Module, loss: Tensor, optimizer: torch.optim.Optimizer, rate: float) -> None:
    """One step down the slope of the loss."""
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # one odd batch must not undo many steps
    optimizer.param_groups[0]["lr"] = rate
    optimizer.step()


def pretrain(model: Bert, tokenizer: Tokenizer, text: str, minutes: float) -> float:
    """Learn from a text for some minutes; return the accuracy on held-out documents."""
    documents = [re.split(r"(?<=[.!?])\s+", part.strip()) for part in re.split(r"\n\s*\n", text)]
    # A document of one sentence has no next sentence.
    documents = [list(map(tokenizer.encode, parts)) for parts in documents if len(parts) > 1]
    test = make_batch(documents[::20], tokenizer, 256, random.Random(1))
    del documents[::20]
    # Adam makes steps of about the same size for all weights, however small their gradients are.
    optimizer, draw = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98)), random.Random(0)
    start, done, report = time.monotonic(), 0.0, 0.0
    while done < 1:
        # A small batch: in two minutes, many inexact steps teach more than a few exact ones.
        loss, accuracy = pretraining_loss(model, *make_batch(documents, tokenizer, 8, draw))
        # Small steps first, as the gradients of random weights are not to be trusted; small steps
        # last, as large ones would jump around the minimum.
        update(model, loss, optimizer, 2e-3 * min(1.0, 0.02 + 10 * done, 1.02 - done))
        if done >= report:
            print(f"{done:4.0%}  loss {loss:.2f}  accuracy at masks {accuracy:5.1%}", flush=True)
            report += 0.1
        done = (time.monotonic() - start) / (60 * minutes)
    return pretraining_loss(model, *test)[1]


def finetune(model: Bert, tokenizer: Tokenizer, rows: list, epochs: int = 4) -> None:
    """Learn to classify texts: a new output layer on the pre-trained model, and all is trained."""
    model.classes = sorted({label for _, label in rows})
    model.classifier = nn.Linear(model.pooler.out_features, len(model.classes))
    optimizer, steps = torch.optim.Adam(model.parameters()), epochs * len(rows) // 16 + 1
    for step in range(steps):
        texts, labels = zip(*random.sample(rows, min(16, len(rows))), strict=True)
        targets = torch.tensor([model.classes.index(label) for label in labels])
        loss = F.cross_entropy(class_scores(model, tokenizer, texts), targets)
        # Smaller steps than before: to keep what pre-training has learned.
        update(model, loss, optimizer, 3e-4 * (1 - step / steps))


# -------------------------------------------------------------------------------------- 5. Using it
def read(model: Bert, tokenizer: Tokenizer, texts: list[str]) -> tuple[Tensor, Tensor, list]:
    """Ids, states and attention weights of texts; longer ones than the model reads are cut."""
    room = model.position.num_embeddings - 2
    ids = padded([[tokenizer.cls, *tokenizer.encode(text)[:room], tokenizer.sep] for text in texts])
    return ids, *model(ids, torch.zeros_like(ids))


def class_scores(model: Bert, tokenizer: Tokenizer, texts: list[str]) -> Tensor:
    """A score for each text and class, (N, classes)."""
    return model.classifier(model.pooled(read(model, tokenizer, texts)[1]))


def fill(model: Bert, tokenizer: Tokenizer, text: str) -> list[tuple[str, float]]:
    """The five most probable tokens for the first [MASK], with their probabilities."""
    ids, states, _ = read(model, tokenizer, [text])
    best = model.guess(states[ids == tokenizer.mask])[0].softmax(-1).topk(5)
    return [(tokenizer.tokens[n], p.item()) for n, p in zip(best.indices, best.values, strict=True)]


# The names of layers: in this file, then in the files of published BERTs.
NAMES = """ token bert.embeddings.word_embeddings position bert.embeddings.position_embeddings
    segment bert.embeddings.token_type_embeddings embedding_norm bert.embeddings.LayerNorm
    attention.query attention.self.query attention.key attention.self.key
    attention.value attention.self.value attention.output attention.output.dense
    attention_norm attention.output.LayerNorm feedforward_norm output.LayerNorm
    up intermediate.dense down output.dense pooler bert.pooler.dense vocabulary cls.predictions
    transform cls.predictions.transform.dense transform_norm cls.predictions.transform.LayerNorm
    follows cls.seq_relationship """.split()  # noqa: SIM905


def load(path: Path) -> tuple[Bert, Tokenizer]:
    """Open a model that `train` wrote, or a folder with a BERT of bertsmith or transformers."""
    if path.is_file():
        sizes, tokens, weights = torch.load(path)
        model = Bert(*sizes)
        model.load_state_dict(weights)
        return model, Tokenizer(tokens)
    config = json.loads((path / "config.json").read_text())
    sizes = "max_position_embeddings hidden_size num_hidden_layers num_attention_heads"
    model = Bert(*(config[name] for name in f"vocab_size {sizes} intermediate_size".split()))
    tokens = json.loads((path / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    data = bytearray((path / "model.safetensors").read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")  # first a JSON header that says what is where
    contents = json.loads(data[8:start])
    for name, weight in model.named_parameters():
        number, layer, kind = re.fullmatch(r"(?:blocks\.(\d+)\.)?(.+)\.(\w+)", name).groups()
        block = f"bert.encoder.layer.{number}." if number else ""
        entry = contents[f"{block}{NAMES[NAMES.index(layer) + 1]}.{kind}"]
        begin, end = (start + offset for offset in entry["data_offsets"])
        dtype = {"F32": torch.float32, "F16": torch.float16}[entry["dtype"]]
        weight.data = torch.frombuffer(data[begin:end], dtype=dtype).view(entry["shape"]).float()
    return model, Tokenizer(sorted(tokens, key=tokens.get))


def main(verb: str, path: str, argument: str, minutes: str = "2") -> None:
    torch.manual_seed(0), random.seed(0)
    if verb == "train":
        text = Path(path).read_text("utf-8")
        tokenizer = Tokenizer.train(text, 4096)
        model = Bert(len(tokenizer.tokens))
        accuracy = pretrain(model, tokenizer, text, float(minutes))
        print(f"accuracy at masks of held-out documents: {accuracy:.1%}")
        torch.save([model.sizes, tokenizer.tokens, model.state_dict()], argument)
    elif verb == "fill":
        for token, probability in fill(*load(Path(path)), argument):
            print(f"{probability:6.1%}  {token}")
    elif verb == "classify":
        model, tokenizer = load(Path(path))
        rows = [line.split("\t") for line in Path(argument).read_text("utf-8").splitlines()]
        test, train = rows[::5], [row for n, row in enumerate(rows) if n % 5]
        finetune(model, tokenizer, train)
        best = [class_scores(model, tokenizer, [text]).argmax() for text, _ in test]
        right = sum(model.classes[n] == label for n, (_, label) in zip(best, test, strict=True))
        print(f"{right} of {len(test)} held-out rows classified correctly")


if __name__ == "__main__":
    main(*sys.argv[1:])
