"""Draw the pictures of docs/understand with the package's own models, as SVG in the site's style.

python scripts/pictures.py [NAME...]
python scripts/pictures.py demo     # docs/pictures: the pages of a demo in this folder, in Chromium
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import drawing as d
import numpy as np

import bertsmith as bs
from bertsmith.analysis.heads import measure, texts

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "understand" / "pictures"
RESULTS = ROOT / "benchmarks" / "results"
SENTENCE = "The cat sat on the mat because it was tired."
RIVER = ["She sat on the bank of the river.", "They walked along the bank and watched the water."]
MONEY = ["He put his money in the bank.", "The bank raised its interest rates."]


def small() -> Any:
    return bs.load("bertsmith-small", device="cpu", progress=False)


def classic() -> Any:
    return bs.load("bertsmith-classic", device="cpu", progress=False)


def stack(x: float, bottom: float, rows: list[tuple[str, str]], width: float) -> list[str]:
    """Boxes from the bottom to the top, with arrows between them and the shapes beside those."""
    parts = []
    for n, (words, shape) in enumerate(rows):
        height = 26 + 16 * words.count("\n")
        bottom -= height
        parts.append(d.box(x, bottom, width, height, words))
        if n < len(rows) - 1 or shape:
            parts.append(d.arrow(x + width / 2, bottom, x + width / 2, bottom - 26))
            parts.append(d.text(x + width / 2 + 10, bottom - 9, shape, "soft small"))
        bottom -= 26
    return parts


def architecture() -> str:
    """BERT with shapes: a text of 6 tokens in BERT-base, and one block opened."""
    whole = [
        ("“A warm day.”", ""),
        ("tokenizer", "6 ids: [CLS] a warm day . [SEP]"),
        ("token + segment + position,\nlayer norm", "6 × 768"),
        ("block 0", "6 × 768"),
        ("… blocks 1 to 10 …", "6 × 768"),
        ("block 11", "6 × 768: states"),
        ("head: 768 → 30,522", "a score for each token, at [MASK]"),
    ]
    parts = stack(20, 400, whole, 200)
    parts.append(d.text(350, 76, "one block", "big"))
    inner = [
        ("query, key, value", "12 heads × 6 × 64, three times"),
        ("scores, softmax", "12 × 6 × 6: who looks at whom"),
        ("mean of values, output", "6 × 768"),
        ("+ input, layer norm", "6 × 768"),
        ("768 → 3,072, gelu, → 768", "6 × 768"),
        ("+ input, layer norm", "6 × 768"),
    ]
    return d.picture(680, 410, parts + stack(350, 400, inner, 190), "BERT's parts, with shapes")


def grid(x: float, y: float, words: list[str], seen: Any, title: str) -> list[str]:
    parts = [d.text(x + 44, 22, title, "big")]
    values = [[0.75 if seen(i, j) else 0.0 for j in range(len(words))] for i in range(len(words))]
    parts += d.heat(x + 44, y, 28, values)
    for n, word in enumerate(words):
        parts.append(d.text(x + 38, y + 28 * n + 19, word, "mono", "end"))
        parts.append(d.text(x + 44 + 28 * n + 14, y - 7, word, "mono small", "middle"))
    return parts


def encoder_decoder() -> str:
    """An encoder beside a decoder: what goes in and out, and which tokens each token sees."""
    words, parts = ["the", "cat", "sat", "down"], []
    for x, title, rows, seen, use in (
        (
            10,
            "encoder (BERT): both sides",
            [("4 tokens", "4 × 768"), ("12 blocks", "4 × 768"), ("head", "label, tag or vector")],
            lambda i, j: True,
            "reads the text once",
        ),
        (
            330,
            "decoder (GPT): the left side",
            [("4 tokens", "4 × 768"), ("12 blocks", "1 × 768: the last"), ("head", "next token")],
            lambda i, j: j <= i,
            "once for each token that it writes",
        ),
    ):
        parts += stack(x + 44, 206, rows, 112)
        parts.append(d.text(x + 44, 230, use, "soft"))
        parts += grid(x, 270, words, seen, title)
    for x in (54, 374):
        parts.append(d.text(x, 402, "a row: what this token attends to", "soft small"))
    return d.picture(620, 412, parts, "An encoder sees both sides, a decoder the left side")


def padding() -> str:
    """Two texts as a rectangle with padding, and end to end without."""
    texts = [["[CLS]", "warm", "[SEP]"], ["[CLS]", "a", "very", "cold", "day", "[SEP]"]]
    parts = [d.text(10, 18, "padded: a rectangle, and a mask that hides [PAD]", "big")]
    for n, words in enumerate(texts):
        for column in range(6):
            word = words[column] if column < len(words) else "[PAD]"
            kind = "mono small" if column < len(words) else "mono small soft"
            parts.append(d.box(10 + 58 * column, 30 + 34 * n, 54, 28, word, kind))
        mask = " ".join("1" if column < len(words) else "0" for column in range(6))
        parts.append(d.text(372, 49 + 34 * n, f"mask {mask}", "mono small"))
    parts.append(d.text(10, 124, "end to end, as bertsmith does it: no [PAD]", "big"))
    for n, word in enumerate(texts[0] + texts[1]):
        parts.append(d.box(10 + 58 * n, 136, 54, 28, word, "mono small"))
    parts.append(d.text(10, 184, "boundaries: 0, 3, 9", "mono small"))
    return d.picture(540, 194, parts, "Padding with a mask, and sequences end to end")


def row(words: list[str], x: float, y: float, kind: str = "mono small", gap: int = 6) -> list[str]:
    """Boxes side by side, as wide as their words."""
    parts = []
    for word in words:
        width = 7.4 * max(map(len, word.split("\n"))) + 14
        parts.append(d.box(x, y, width, 26 + 16 * word.count("\n"), word, kind))
        x += width + gap
    return parts


def pieces() -> str:
    """A sentence, its tokens, its ids."""
    tokenizer = small().tokenizer
    ids = tokenizer.encode_ids(["The giraffe tokenizes."])[0]
    words = [f"{tokenizer.token(one)}\n{one}" for one in ids]
    parts = [d.text(10, 22, "The giraffe tokenizes.", "big"), d.arrow(60, 32, 60, 56)]
    return d.picture(520, 112, parts + row(words, 10, 60), "A sentence as tokens, with their ids")


def embedding_sum() -> str:
    """Three embeddings, added."""
    tokens = ["[CLS]", "dog", "bites", "man", "[SEP]"]
    parts = []
    for y, (name, words) in enumerate(
        {
            "token": tokens,
            "+ segment": ["0"] * 5,
            "+ position": [str(n) for n in range(5)],
            "= input": ["256 numbers"] * 5,
        }.items()
    ):
        parts.append(d.text(82, 28 + 38 * y, name, "", "end"))
        parts += [
            d.box(94 + 92 * n, 10 + 38 * y, 86, 28, one, "mono small")
            for n, one in enumerate(words)
        ]
    return d.picture(560, 164, parts, "The input: token, segment and position vectors, added")


def positions() -> str:
    """How alike the position vectors of a trained BERT are."""
    weights = dict(classic().model.encoder.named_parameters())
    table = weights["embedding.marks.position.weight"].detach().float().numpy()[:32]
    table = table / np.linalg.norm(table, axis=1, keepdims=True)
    parts = d.heat(60, 30, 8, (table @ table.T).clip(0).tolist())
    for n in range(0, 32, 8):
        parts.append(d.text(54, 30 + 8 * n + 8, str(n), "soft small", "end"))
        parts.append(d.text(60 + 8 * n + 4, 24, str(n), "soft small", "middle"))
    parts.append(d.text(330, 48, "darker: more alike (cosine)", "soft"))
    return d.picture(
        520, 296, parts, "Cosine similarity of position vectors: dark along the diagonal"
    )


def attention() -> str:
    """Two heads of bertsmith-small: those that look most at the previous and at the next token."""
    view = small().attention(SENTENCE)
    maps, tokens = view.maps(), [one.token for one in view.tokens]
    parts: list[str] = []
    x, height = 0.0, 0.0
    for offset in (-1, 1):
        share = np.diagonal(maps, offset, 2, 3).mean(-1)
        layer, head = np.unravel_index(share.argmax(), share.shape)
        drawn, width, height = d.attention_map(
            x, 0, tokens, maps[layer, head].tolist(), f"layer {layer}, head {head}"
        )
        parts, x = parts + drawn, x + width + 10
    return d.picture(
        round(x),
        round(height),
        parts,
        "Two heads: one looks at the previous token, one at the next",
    )


def notable() -> str:
    """Four heads of bertsmith-small, each the clearest of its kind."""
    view = small().attention("The dog that I saw was old.")
    maps, tokens = view.maps(), [one.token for one in view.tokens]
    last = maps[..., -1].mean(-1)
    entropy = -(maps * np.log(maps.clip(1e-9))).sum(-1).mean(-1)
    kinds = {
        "previous token": np.diagonal(maps, -1, 2, 3).mean(-1),
        "next token": np.diagonal(maps, 1, 2, 3).mean(-1),
        "[SEP]: nothing": last,
        "everything": entropy,
    }
    parts: list[str] = []
    width = height = 0.0
    for n, (name, numbers) in enumerate(kinds.items()):
        layer, head = np.unravel_index(numbers.argmax(), numbers.shape)
        drawn, width, height = d.attention_map(
            n % 2 * 290, n // 2 * 262, tokens, maps[layer, head].tolist(), f"{layer}.{head} {name}"
        )
        parts += drawn
    return d.picture(round(290 + width), round(262 + height), parts, "Four heads, each with a job")


def masking() -> str:
    """What happens to a chosen token."""
    parts = row(["the", "old", "river", "flows", "past", "the", "town"], 10, 8)
    parts.append(d.arrow(110, 38, 110, 62))
    parts.append(d.text(122, 54, "15% are chosen: “river”", "soft"))
    for n, (share, seen) in enumerate({"80%": "[MASK]", "10%": "piano", "10% ": "river"}.items()):
        parts.append(d.text(16, 86 + 34 * n, share, "big"))
        parts += row(["the", "old", seen, "flows", "past", "the", "town"], 60, 68 + 34 * n)
    parts.append(d.text(10, 192, "the label is always “river”", "soft"))
    return d.picture(
        560, 202, parts, "Of the chosen tokens 80% become [MASK], 10% another token, 10% stay"
    )


def loss() -> str:
    """The first run of bertsmith-small: masked LM."""
    curve = json.loads((RESULTS / "small-curve.json").read_text())
    end = curve["ends"][0]  # where the second run begins, too: its first evaluation comes later
    lines = {}
    for key, label in {"training": "training", "held_out": "held-out"}.items():
        points = {row[0]: row[1] for row in reversed(curve[key]) if row[0] <= end}
        lines[label] = sorted(points.items())
    return d.chart(
        lines,
        "millions of tokens read",
        "loss of masked tokens",
        "Both losses fall",
    )


def pairs() -> str:
    """Two texts as one input."""
    parts = row(
        ["[CLS]", "she", "studied", "music", "[SEP]", "later", "she", "sang", "[SEP]"], 10, 40
    )
    parts += [d.text(14, 84, "segment 0", "soft"), d.text(300, 84, "segment 1", "soft")]
    parts += [d.arrow(36, 40, 36, 14), d.text(48, 22, "does the second follow the first?", "soft")]
    return d.picture(540, 96, parts, "A pair of texts, with a question answered at [CLS]")


def three_poolings() -> str:
    """From the vectors of all tokens to one vector for the text, in three ways."""
    words = ["[CLS]", "a", "warm", "day", ".", "[SEP]"]
    parts = [d.box(10, 118, 370, 30, "encoder", "big")]
    parts += [d.box(10 + 63 * n, 156, 55, 26, word, "mono small") for n, word in enumerate(words)]
    parts += [d.arrow(37 + 63 * n, 118, 37 + 63 * n, 96) for n in range(len(words))]
    parts += [d.box(10, 70, 55, 24, "vector", "small"), d.box(10, 10, 110, 36, "[CLS]")]
    parts += [d.box(130, 10, 120, 36, "pooler:\ntanh(W [CLS] + b)", "small")]
    parts += [d.box(73 + 63 * n, 70, 55, 24, "vector", "small") for n in range(5)]
    parts += [d.box(260, 10, 120, 36, "mean of all")]
    parts += [d.arrow(x, 70, x, 48) for x in (37, 320)] + [d.arrow(190, 60, 190, 48)]
    parts.append('<path class="arrow" d="M37 60H190V54"/>')
    return d.picture(392, 190, parts, "Three ways from the vectors of all tokens to one vector")


def four_heads() -> str:
    """One encoder, four heads."""
    parts = [d.box(10, 106, 576, 34, "encoder: one vector for each token", "big")]
    parts += row(["[CLS]", "anna", "lives", "in", "paris", "[SEP]"], 130, 162)
    for n, (name, reads) in enumerate(
        {
            "class": "[CLS] or mean",
            "tag": "each token",
            "answer": "each token",
            "word": "[MASK]",
        }.items()
    ):
        x = 10 + 146 * n
        parts.append(d.box(x, 8, 138, 46, f"{name}\nfrom {reads}"))
        parts.append(d.arrow(x + 69, 104, x + 69, 58))
    return d.picture(596, 196, parts, "Four heads that read one encoder's vectors")


def bank() -> str:
    """How alike one word is in the same and in another sense, at every depth."""
    bert = small()
    same, other = [], []
    for depth in range(bert.checkpoint.config.layers + 1):
        vectors = []
        for sentence in RIVER + MONEY:
            states = bert.states(sentence, depth=depth, pool="words")
            found = states.vectors[states.pieces.index("bank")]
            vectors.append(found / np.linalg.norm(found))
        alike = np.array(vectors) @ np.array(vectors).T
        same.append((depth, float((alike[0, 1] + alike[2, 3]) / 2)))
        other.append((depth, float(alike[:2, 2:].mean())))
    lines = {"same sense": same, "other sense": other}
    label = "At depth 0 all are equal; then the two senses drift apart"
    return d.chart(
        lines, "depth (0: the embedding)", "cosine similarity of “bank”", label, dots=True
    )


def heads() -> str:
    """Every head: how far and how broadly it looks."""
    lines = [SENTENCE, *RIVER, *MONEY, "The keys to the cabinet are on the table."]
    bert = small()
    numbers = measure(bert, texts(bert, lines)).metrics
    layers = len(numbers["entropy"])
    x = d.axis_over(numbers["distance"].ravel().tolist(), 52, 380, False, False)
    y = d.axis_over(numbers["entropy"].ravel().tolist(), 258, 30, False, True)
    parts = d.axes(x, y, 380, 258, "mean distance, in tokens", "entropy of the weights")
    for layer in range(layers):
        for far, broad in zip(numbers["distance"][layer], numbers["entropy"][layer], strict=True):
            place = f'cx="{x.place(float(far)):g}" cy="{y.place(float(broad)):g}"'
            parts.append(f'<circle class="f{3 * layer // layers}" {place} r="5" opacity=".8"/>')
    for n, name in enumerate(("first layers", "middle", "last")):
        parts.append(f'<circle class="f{n}" cx="{170 + 78 * n}" cy="12" r="5"/>')
        parts.append(d.text(178 + 78 * n, 16, name, "soft small"))
    return d.picture(400, 300, parts, "Each head of bertsmith-small: mean distance and entropy")


def variants() -> str:
    """When which family appeared, and what it changed."""
    rows = {
        "2018 BERT": "masked LM, next sentences",
        "2019 RoBERTa": "more text, no next sentences",
        "2019 ALBERT": "one block for all depths",
        "2019 DistilBERT": "half of the layers, learned from BERT",
        "2020 ELECTRA": "finds replaced tokens",
        "2020 MPNet": "a bias for each distance",
        "2021 DeBERTa-v3": "content and distance apart",
        "2024 ModernBERT": "rotary positions, 8,192 tokens",
    }
    parts = []
    for n, (name, change) in enumerate(rows.items()):
        parts += [d.box(10, 6 + 34 * n, 150, 28, name), d.text(172, 25 + 34 * n, change)]
    return d.picture(470, 282, parts, "Families by year, each with what it changed")


def negation() -> str:
    """The same words with and without a negation."""
    bert = small()
    rows = {}
    for sentence in ("An eagle is a [MASK].", "An eagle is not a [MASK]."):
        guess = next(one for one in bert.fill_mask(sentence, top=20) if one.token == "bird")
        rows[sentence.replace("[MASK]", "bird")] = guess.score
    return d.bars(rows, "“bird” is almost as probable after “not a” as after “a”")


def one_step() -> str:
    """What a training step does, forward and back."""
    words = ["She drank a cup of [MASK].", "BERT", "a probability for each token"]
    parts = []
    for n, line in enumerate([*words, "loss: −log p(tea)"]):
        parts.append(d.box(4, 10 + 56 * n, 186, 32, line))
        if n < 3:
            parts.append(d.arrow(97, 42 + 56 * n, 97, 65 + 56 * n))
    parts += [d.box(222, 172, 174, 44, "backward: a gradient\nfor each weight")]
    parts += [d.box(222, 60, 174, 44, "update: weight − rate\n× gradient")]
    parts += [d.arrow(190, 194, 220, 194), d.arrow(309, 172, 309, 106), d.arrow(222, 82, 192, 82)]
    return d.picture(400, 222, parts, "A training step: forward to the loss, back to the weights")


def step() -> str:
    """The probabilities of one mask before and after one step, as the chapter computes them."""
    import torch

    sys.path.insert(0, str(ROOT / "examples"))
    import nanobert

    model, tokenizer = nanobert.load(ROOT / "src/bertsmith/models/bertsmith-classic")
    before = nanobert.fill(model, tokenizer, "She drank a cup of [MASK].")
    ids, states, _ = nanobert.read(model, tokenizer, ["She drank a cup of [MASK]."])
    logits = model.guess(states[ids == tokenizer.mask])
    goal = torch.tensor([tokenizer.ids["tea"]])
    torch.nn.functional.cross_entropy(logits, goal).backward()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.grad is not None:
                weight -= 0.0002 * weight.grad
    names = [token for token, _ in before]
    names += ["tea"] * ("tea" not in names)
    after = model.guess(
        nanobert.read(model, tokenizer, ["She drank a cup of [MASK]."])[1][ids == tokenizer.mask]
    )
    parts = []
    numbers = [logits.softmax(-1)[0], after.softmax(-1)[0]]
    for row_number, name in enumerate(names):
        parts.append(d.text(90, 50 + 34 * row_number, name, "mono", "end"))
        for n, one in enumerate(numbers):
            p = one[tokenizer.ids[name]].item()
            y = 34 + 34 * row_number + 12 * n
            parts.append(f'<rect class="f{n}" x="100" y="{y}" width="{1000 * p:.1f}" height="11"/>')
            parts.append(d.text(106 + 1000 * p, y + 10, f"{p:.1%}", "soft small"))
    for n, name in enumerate(("before the step", "after it")):
        parts.append(f'<rect class="f{n}" x="{100 + 140 * n}" y="8" width="12" height="12"/>')
        parts.append(d.text(118 + 140 * n, 18, name, "soft"))
    title = "One step: the correct token gains, and others lose"
    return d.picture(400, 40 + 34 * len(names), parts, title)


def experiments(name: str, label: str) -> str:
    """One experiment of benchmarks/training_step.py."""
    curves = json.loads((RESULTS / "training-step.json").read_text())[name]
    start = 40 if name in ("batch", "masking rate") else 0  # they differ little at first
    lines = {key: [(x, y) for x, y in points if x >= start] for key, points in curves.items()}
    title = f"held-out loss, by {name}" + (f", from step {start}" if start else "")
    return d.chart(lines, "steps", title, label)


def cross_and_bi() -> str:
    """A cross-encoder and a bi-encoder."""
    parts = [d.text(10, 18, "cross-encoder", "big"), d.text(300, 18, "bi-encoder", "big")]
    parts += stack(
        10, 190, [("[CLS] question [SEP] text [SEP]", ""), ("encoder", ""), ("one score", "")], 230
    )
    for n, name in enumerate(("question", "text")):
        x = 300 + 140 * n
        parts += stack(x, 190, [(name, ""), ("encoder", ""), ("vector", "")], 120)
    parts.append('<path class="arrow" d="M360 60V44H500V60"/>')
    parts.append(d.text(430, 38, "cosine of both vectors", "soft", "middle"))
    parts.append(d.text(10, 214, "exact; reads each pair anew", "soft"))
    parts.append(d.text(300, 214, "fast; a text's vector is computed once", "soft"))
    return d.picture(
        580, 222, parts, "A cross-encoder reads both texts together, a bi-encoder each alone"
    )


def distillation() -> str:
    """A student learns from a teacher's probabilities."""
    parts = [d.box(10, 70, 150, 34, "a text, no label")]
    parts += [
        d.box(220, 20, 130, 34, "teacher: 12 layers"),
        d.box(220, 120, 130, 34, "student: 3 layers"),
    ]
    parts += [d.arrow(190, 37, 218, 37), d.arrow(190, 137, 218, 137)]
    parts.append('<path class="arrow" d="M160 87H190M190 137V37"/>')
    parts += [d.arrow(350, 37, 400, 37), d.arrow(350, 137, 400, 137)]
    for n, name in enumerate(("good 81%, fine 18%, bad 1%", "good 33%, fine 33%, bad 33%")):
        parts.append(d.text(408, 42 + 100 * n, name, "mono small"))
    parts += [d.arrow(480, 120, 480, 54), d.text(492, 92, "loss: cross entropy", "soft")]
    return d.picture(620, 170, parts, "The student is trained to give the teacher's probabilities")


def context() -> str:
    """benchmarks/context.py: how well a masked word is predicted from parts of its sentence."""
    result = json.loads((RESULTS / "context.json").read_text())
    return d.bars(
        result["accuracy"], "Both sides of a word tell far more than the left one", "{:.1%}"
    )


def pooling() -> str:
    """benchmarks/context.py: accuracy with three poolings, before and after fine-tuning."""
    result = json.loads((RESULTS / "context.json").read_text())["pooling"]
    rows = {
        f"{pool}, {when}": score
        for when, scores in result.items()
        for pool, score in scores.items()
    }
    return d.bars(rows, "Poolings before and after fine-tuning", "{:.1%}")


DRAWN: dict[str, Any] = {
    one.__name__.replace("_", "-"): one
    for one in (
        *(architecture, encoder_decoder, padding, pieces, embedding_sum, positions, attention),
        *(notable, masking, loss, pairs, four_heads, three_poolings, bank, heads, variants),
        *(negation, one_step, step, cross_and_bi, distillation, context, pooling),
    )
}
for NAME, LABEL in {
    "learning rate": "Too small a rate learns slowly, too large a one ends at a higher loss",
    "warm-up": "Warm-up delays the fall and ends at the same loss here",
    "batch": "A larger batch learns more in a step, and a step costs more",
    "masking rate": "At the start of training more masks mean more labels, and a lower loss",
}.items():
    DRAWN[NAME.replace(" ", "-")] = lambda name=NAME, label=LABEL: experiments(name, label)


def page(folder: Path) -> None:
    """Write docs/pictures: parts of the pages that `bertsmith demo` wrote to a folder."""
    from playwright.sync_api import sync_playwright

    # picture: page, and the first and the last section that it shows
    parts = {
        "demo": ("index.html", None, 1),
        "report": ("classifier/report.html", 1, 3),
        "attention": ("attention.html", None, 0),
        "senses": ("senses.html", None, 0),
    }
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"))
        tab = browser.new_page(viewport={"width": 1200, "height": 900}, color_scheme="light")
        for name, (file, first, last) in parts.items():
            tab.goto((folder / file).resolve().as_uri())
            tab.wait_for_selector("html[data-ready=yes]")
            sections = tab.locator("main section")
            top = 0.0 if first is None else sections.nth(first).bounding_box()["y"] - 10
            box = sections.nth(last).bounding_box()
            height = box["y"] + box["height"] + 10 - top
            clip = {"x": 0.0, "y": top, "width": 1200.0, "height": height}
            path = ROOT / "docs" / "pictures" / f"{name}.png"
            tab.screenshot(path=path, full_page=True, clip=clip)  # type: ignore[arg-type]
        browser.close()


def main() -> None:
    """Draw all of them or those that are named, or the page of a demo."""
    names = sys.argv[1:]
    if names and Path(names[0]).is_dir():
        page(Path(names[0]))
        return
    OUT.mkdir(exist_ok=True)
    (OUT / "style.css").write_text(d.SITE, "utf-8")
    for name, draw in DRAWN.items():
        if not names or name in names:
            (OUT / f"{name}.svg").write_text(draw(), "utf-8")


if __name__ == "__main__":
    main()
