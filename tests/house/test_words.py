"""No phrase of the old idiom in what people read."""

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from house.source import HOUSE, ROOT, nodes_of, tree_of

# Phrases of an older idiom of this project, which readers had to decode: write what the
# documentation of PyTorch or scikit-learn would say.
OLD_PHRASES = [
    "always the same:",
    "anew",
    "are told",
    "as it always does",
    "begun",
    "by AdamW",
    "by Muon",
    "fell into",
    "first guess right",
    "for want of",
    "has not cannot",
    "have (?:right|wrong)",
    "hidden tokens?",
    "hidden words?",
    "is told",
    "judged right",
    "looked at by",
    "must bring",
    "no model can have",
    "not looked into",
    "nothing to learn from",
    "nothing was chosen by",
    "once more",
    "reckoned",
    "said to be",
    "similar to nothing",
    "speaks? (?:for|against)",
    "stands nowhere",
    "stand nowhere",
    "told apart",
    "tells? apart",
    "the filler",
    "the very (?:step|moment)",
    "the way back",
    "the way out",
    "there is no such",
    "whatever else is asked",
    "with goodwill",
    "what (?:it|he|she|the \\w+) (?:gave|found|told)",
]


OLD = re.compile(r"(?<![\w-])(?:" + "|".join(OLD_PHRASES) + r")(?![\w-])")


def texts_of(path: Path) -> Iterator[str]:
    """Yield what people read in a file: all of a page; a program's strings and comments."""
    if path.suffix != ".py":
        yield path.read_text("utf-8")
        return
    for node in nodes_of(tree_of(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    with tokenize.open(path) as stream:
        tokens = list(tokenize.generate_tokens(stream.readline))
    yield " ".join(token.string.strip("# ") for token in tokens if token.type == tokenize.COMMENT)


def old_phrases(path: Path) -> list[str]:
    """Return the old phrases in a file."""
    texts = (" ".join(text.split()) for text in texts_of(path))
    return [found for text in texts for found in OLD.findall(text)]


def test_no_phrase_of_the_old_idiom() -> None:
    """README, docs, help, errors and pages are in plain words."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    pages += [path for kind in ("py", "html", "js") for path in HOUSE.rglob(f"*.{kind}")]
    found = {str(path.relative_to(ROOT)): old_phrases(path) for path in sorted(pages)}
    assert {name: phrases for name, phrases in found.items() if phrases} == {}


def test_old_phrases_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Accuracy 76% (always\nthe same: 22%), pre-trained by Muon.", "utf-8")
    assert old_phrases(page) == ["always the same:", "by Muon"]
    page.write_text("Pre-trained with Muon; accuracy 76%, renewed.", "utf-8")
    assert old_phrases(page) == []
