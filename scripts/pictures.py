"""Draw the pictures of docs/understand with the package's own models (needs the dev packages).

python scripts/pictures.py
python scripts/pictures.py demo     # docs/pictures: the pages of a demo in this folder, in Chromium
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

import bertsmith as bs
from bertsmith.analysis.heads import measure, texts

mpl.use("svg")
mpl.rcParams.update({"svg.hashsalt": "bertsmith", "svg.fonttype": "none", "font.size": 10})
from matplotlib import pyplot as plt  # noqa: E402 - after the backend is chosen

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "understand" / "pictures"
SENTENCE = "The cat sat on the mat because it was tired."
RIVER = ["She sat on the bank of the river.", "They walked along the bank and watched the water."]
MONEY = ["He put his money in the bank.", "The bank raised its interest rates."]


def save(figure: Any, name: str) -> None:
    """Write a picture without a date, so that the same numbers give the same file."""
    figure.savefig(OUT / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def positions() -> None:
    """How alike the position vectors of a trained BERT are."""
    bert = bs.load("bertsmith-classic", device="cpu")
    weights = dict(bert.model.encoder.named_parameters())
    table = weights["embedding.marks.position.weight"].detach().numpy()[:64]
    table = table / np.linalg.norm(table, axis=1, keepdims=True)
    figure, axes = plt.subplots(figsize=(4.6, 3.8))
    image = axes.imshow(table @ table.T, cmap="viridis", vmin=-0.2, vmax=1)
    axes.set(xlabel="position", ylabel="position")
    figure.colorbar(image, label="cosine similarity")
    save(figure, "positions")


def attention(bert: Any) -> None:
    """Two heads of bertsmith-small: those that look most at the previous and at the next token."""
    view = bert.attention(SENTENCE)
    maps, tokens = view.maps(), [one.token for one in view.tokens]
    figure, panels = plt.subplots(1, 2, figsize=(9.5, 4.6))
    for axes, offset in zip(panels, (-1, 1), strict=True):
        share = np.diagonal(maps, offset, 2, 3).mean(-1)
        layer, head = np.unravel_index(share.argmax(), share.shape)
        axes.imshow(maps[layer, head], cmap="Blues", vmin=0, vmax=1)
        axes.set_xticks(range(len(tokens)), tokens, rotation=60, ha="right")
        axes.set_yticks(range(len(tokens)), tokens)
        axes.set(title=f"layer {layer}, head {head}", xlabel="looks at", ylabel="token")
    figure.subplots_adjust(wspace=0.35)
    save(figure, "attention")


def loss() -> None:
    """The first run of bertsmith-small: masked LM."""
    curve = json.loads((ROOT / "benchmarks" / "results" / "small-curve.json").read_text())
    figure, axes = plt.subplots(figsize=(6, 3.2))
    names = {"training": "training", "held_out": "held-out text"}
    end = curve["ends"][0]  # where the second run begins, too: its first evaluation comes later
    for key, label in names.items():
        points = {row[0]: row[1] for row in reversed(curve[key]) if row[0] <= end}
        axes.plot(*zip(*sorted(points.items()), strict=True), label=label)
    axes.set(xlabel="millions of tokens read", ylabel="masked-LM loss")
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    save(figure, "loss")


def bank(bert: Any) -> None:
    """How alike one word is in the same and in another sense, at every depth."""
    depths = range(bert.checkpoint.config.layers + 1)
    same, other = [], []
    for depth in depths:
        vectors = []
        for sentence in RIVER + MONEY:
            states = bert.states(sentence, depth=depth, pool="words")
            found = states.vectors[states.pieces.index("bank")]
            vectors.append(found / np.linalg.norm(found))
        alike = np.array(vectors) @ np.array(vectors).T
        same.append((alike[0, 1] + alike[2, 3]) / 2)
        other.append(alike[:2, 2:].mean())
    figure, axes = plt.subplots(figsize=(6, 3.2))
    axes.plot(depths, same, marker="o", label="same sense")
    axes.plot(depths, other, marker="o", label="river against money")
    axes.set(xlabel="depth (0: the embedding)", ylabel='cosine similarity of "bank"')
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    save(figure, "bank")


def heads(bert: Any) -> None:
    """Every head: how far and how broadly it looks."""
    lines = [SENTENCE, *RIVER, *MONEY, "The keys to the cabinet are on the table."]
    numbers = measure(bert, texts(bert, lines)).metrics
    figure, axes = plt.subplots(figsize=(6, 3.6))
    layers = np.arange(numbers["entropy"].shape[0])[:, None] + np.zeros_like(numbers["entropy"])
    dots = axes.scatter(
        numbers["distance"], numbers["entropy"], c=layers, cmap="viridis", s=36, alpha=0.9
    )
    axes.set(xlabel="mean distance, in tokens", ylabel="entropy of the weights")
    axes.grid(alpha=0.3)
    figure.colorbar(dots, label="layer")
    save(figure, "heads")


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
    """Draw all of them, or the page of a demo."""
    if len(sys.argv) > 1:
        page(Path(sys.argv[1]))
        return
    OUT.mkdir(exist_ok=True)
    bert = bs.load("bertsmith-small", device="cpu", progress=False)
    positions()
    attention(bert)
    loss()
    bank(bert)
    heads(bert)


if __name__ == "__main__":
    main()
