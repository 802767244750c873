"""`bertsmith follows`, for a person and for a machine."""

from pathlib import Path

import pytest

from bertsmith import create, load
from bertsmith.checkpoint import Sentence, save
from bertsmith.errors import BertsmithError
from cli.conftest import Run
from tasks.words import tokenizer

PAIRS = [("The river flows.", "It is long."), ("The mayor asked.", "A river.")]


@pytest.fixture(scope="module")
def pair_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    words = tokenizer("bert")
    small = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    heads = ("masked_lm", "next_sentence")
    checkpoint = create("bert-tiny", heads=heads, vocab_size=words.size, **small)
    save(folder, checkpoint, words, Sentence())
    return folder


def test_one_pair_and_a_file(run: Run, pair_model: Path, tmp_path: Path) -> None:
    expected = load(pair_model).follows(*([*side] for side in zip(*PAIRS, strict=True)))
    assert run("follows", pair_model, *PAIRS[0]).out.strip() == f"{expected[0]:.2%}"
    file = tmp_path / "pairs.tsv"
    file.write_text("text\tpair\n" + "".join(f"{a}\t{b}\n" for a, b in PAIRS), "utf-8")
    rows = run("follows", pair_model, "--file", file, "--json").rows
    assert [row["probability"] for row in rows] == pytest.approx(expected, abs=1e-6)
    assert [(row["first"], row["second"]) for row in rows] == PAIRS
    lines = run("follows", pair_model, "--file", file).out.splitlines()
    assert lines[0].endswith("The river flows. / It is long.")


def test_mistakes(run: Run, pair_model: Path, model: Path, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("one text\n", "utf-8")
    for words in ([], ["one"], [*PAIRS[0], "--file", tmp_path / "x.txt"]):
        with pytest.raises(BertsmithError, match="give two texts, or a file"):
            run("follows", pair_model, *words)
    with pytest.raises(BertsmithError, match="two texts in each row"):
        run("follows", pair_model, "--file", tmp_path / "x.txt")
    with pytest.raises(BertsmithError, match="no next-sentence"):
        run("follows", model, *PAIRS[0])
