"""Runs on several corpora: shares, resuming to the byte, what is reported, and mistakes."""

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pytest
from typer.testing import CliRunner

import bertsmith as bs
from bertsmith.cli.app import app
from bertsmith.corpus import Corpus, prepare
from bertsmith.errors import BertsmithError
from bertsmith.tokenizer import train
from bertsmith.train import Recipe, load_recipe, plan, pretrain

Make = Callable[..., Recipe]


@pytest.fixture(scope="module")
def other(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second corpus of the same vocabulary, with short documents."""
    folder = tmp_path_factory.mktemp("other")
    import pydoc_data.topics

    topics = list(pydoc_data.topics.topics.values())[40:]
    lines = [line for topic in topics for line in topic.splitlines() if len(line) > 40]
    (folder / "lines.txt").write_text("\n\n".join(lines[:600]))
    prepare([folder / "lines.txt"], prepared / "tokenizer", folder / "corpus", workers=0)
    return folder / "corpus"


def mixture(*pairs: tuple[Path, float]) -> dict[str, Any]:
    return {"corpus": "", "corpora": [{"path": str(p), "weight": w} for p, w in pairs]}


def files(run: Path) -> dict[str, bytes]:
    last = max((run / "checkpoints").glob("step-*"))
    names = [run / "log.jsonl", run / "ledger.json", run / "model" / "model.safetensors"]
    names += [last / "model.safetensors", last / "optimizer.safetensors"]
    return {str(path.relative_to(run)): path.read_bytes() for path in names}


def test_a_mixture_is_read_in_its_shares_and_resumed_to_the_byte(
    recipe: Make, prepared: Path, other: Path, tmp_path: Path
) -> None:
    made = recipe(
        data=mixture((prepared, 3), (other, 1)),
        train={"steps": 30},
        checkpoint={"every": 10, "keep": 9},
        evaluate={"every": 15},
    )
    summary = pretrain(made, tmp_path / "run", show="none")
    rows = summary["corpora"]
    assert [row["path"] for row in rows] == [str(prepared), str(other)]
    assert [row["weight"] for row in rows] == [0.75, 0.25]
    assert rows[0]["share"] == pytest.approx(0.75, abs=0.0075)
    assert sum(row["tokens"] for row in rows) == summary["tokens"]
    ledger = json.loads((tmp_path / "run" / "ledger.json").read_text())
    assert ledger[f"tokens read from {other}"] == rows[1]["tokens"]
    assert str(other) in (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "held_out_masked_lm" in summary  # of both, in the same shares

    # As after a kill: nothing is left that is newer than the checkpoint of step 10.
    copytree(tmp_path / "run", tmp_path / "killed")
    for gone in ("checkpoints/step-00000020", "checkpoints/step-00000030", "model"):
        rmtree(tmp_path / "killed" / gone)
    (tmp_path / "killed" / "summary.json").unlink()
    log = (tmp_path / "killed" / "log.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "killed" / "log.jsonl").write_bytes(b"".join(log[:16]))
    again = pretrain(made, tmp_path / "killed", resume=True, show="none")
    assert again["corpora"] == rows
    assert files(tmp_path / "killed") == files(tmp_path / "run")

    others = recipe(data=mixture((prepared, 1), (other, 1)), train={"steps": 30})
    with pytest.raises(BertsmithError, match="started with another corpus or other weights"):
        pretrain(others, tmp_path / "run", resume=True, show="none")


def test_a_mixture_of_one_is_that_corpus(recipe: Make, prepared: Path, tmp_path: Path) -> None:
    train = {"steps": 3}
    pretrain(recipe(train=train), tmp_path / "plain", show="none")
    made = recipe(data=mixture((prepared, 5)), train=train)
    summary = pretrain(made, tmp_path / "alone", show="none")
    assert files(tmp_path / "alone") == files(tmp_path / "plain")
    assert "corpora" not in summary


@pytest.mark.parametrize("form", ["joined", "next", "order", "crops"])
def test_every_format_can_be_mixed(
    recipe: Make, prepared: Path, other: Path, tmp_path: Path, form: str
) -> None:
    objectives = {"next": "next_sentence", "order": "sentence_order", "crops": "contrastive"}
    made = recipe(
        data=mixture((prepared, 1), (other, 1)) | {"format": form},
        objectives={objectives.get(form, "masked_lm"): 1.0},
        masking={"smoothing": 0.5},
        train={"steps": 2},
        evaluate={"tokens": 256, "pseudo": 0},
    )
    assert pretrain(made, tmp_path / "run", show="none")["finished"]


def test_the_plan_says_what_is_read_of_each(recipe: Make, prepared: Path, other: Path) -> None:
    made = recipe(data=mixture((prepared, 3), (other, 1)), train={"steps": 100})
    rows = plan(made, None, "h200")["corpora"]
    assert [row["share"] for row in rows] == [0.75, 0.25]
    tokens = 100 * 512 * 0.25  # spans have two special tokens beside their text
    text = Corpus.open(other)
    assert rows[1]["epochs"] == pytest.approx(tokens / (text.tokens + 2 * text.documents), rel=0.1)
    assert plan(recipe(), None, "h200")["corpora"][0]["share"] == 1
    assert plan(recipe(data={"corpus": ""}), 600, "h200")["corpora"] == []


def test_mixtures_from_the_command_line_and_python(
    prepared: Path, other: Path, tmp_path: Path
) -> None:
    small = ["--set", "train.batch_tokens=256", "--set", "model.settings.hidden_size=32"]
    small += ["--set", "train.steps=2", "--set", "evaluate.tokens=0", "--set", "evaluate.pseudo=0"]
    both = ["--data", f"{prepared}=0.9", "--data", f"{other}=0.1"]
    command = ["pretrain", "tiny-roberta", *both, "--out", tmp_path / "run", *small]
    shown = CliRunner().invoke(app, [*map(str, command), "--view", "none"])
    assert shown.exit_code == 0, shown.output
    assert "(weight 10.00%)" in shown.output
    words = ["plan", "tiny-roberta", *both, *small, "--device", "h200"]
    planned = CliRunner().invoke(app, words)
    assert f"corpus       {other}: 10.0% of the tokens" in planned.output
    stored = load_recipe(tmp_path / "run" / "recipe.toml")
    assert [part.weight for part in stored.data.corpora] == [0.9, 0.1]
    changes = {"train.steps": 2, "train.batch_tokens": 256, "evaluate.tokens": 0}
    made = bs.pretrain(
        "tiny-roberta",
        {str(prepared): 9, str(other): 1},
        tmp_path / "python",
        changes=changes | {"evaluate.pseudo": 0, "model.settings.hidden_size": 32},
        show="none",
    )
    assert made.summary["corpora"][1]["weight"] == 0.1


def test_mistakes(prepared: Path, other: Path, tmp_path: Path, recipe: Make) -> None:
    def fault(*changes: str) -> str:
        with pytest.raises(BertsmithError) as caught:
            load_recipe("tiny-roberta", changes)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "did you mean data.corpora.0.weight" in fault("data.corpora=[{path='a', wieght=1}]")
    assert "did you mean data.corpora" in fault("data.corporas=[]")
    assert "data.corpora.0.weight" in fault("data.corpora=[{path='a', weight=0}]")
    assert "data.corpora.0.path" in fault("data.corpora=[{weight=1}]")
    assert "names a folder twice" in fault("data.corpora=[{path='a'}, {path='a'}]")
    assert "not both" in fault("data.corpus=a", "data.corpora=[{path='b'}]")
    text = tmp_path / "text.txt"
    text.write_text("one two three four\n" * 20)
    foreign = train([text], "wordpiece", size=60)
    prepare([text], foreign, tmp_path / "foreign", workers=0, held_out=0)
    with pytest.raises(BertsmithError, match="its vocabulary is not that of"):
        pretrain(recipe(data=mixture((prepared, 1), (tmp_path / "foreign", 1))), tmp_path / "run")
    with pytest.raises(BertsmithError, match="a file, not a corpus"):
        pretrain(recipe(data=mixture((prepared, 1), (text, 1))), tmp_path / "run")
    with pytest.raises(BertsmithError, match="no such folder"):
        pretrain(recipe(data=mixture((prepared, 1), (tmp_path / "no", 1))), tmp_path / "run")
    assert not (tmp_path / "run").exists()
