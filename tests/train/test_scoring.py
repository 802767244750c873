"""Held-out sets by name and the probe task: reported, and never part of the training."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from bertsmith.corpus import Corpus, prepare
from bertsmith.errors import BertsmithError
from bertsmith.pages.runs import compare_runs, read_run
from bertsmith.tokenizer import train
from bertsmith.train import Recipe, load_recipe, pretrain
from bertsmith.train.evaluate import HeldOut, Probe, scoring
from bertsmith.train.recipe import ProbePart

Make = Callable[..., Recipe]


@pytest.fixture(scope="module")
def named(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of the same vocabulary without held-out text."""
    folder = tmp_path_factory.mktemp("named")
    text = "The statement is executed. Its value is assigned to the name.\n" * 5
    (folder / "text.txt").write_text("\n".join([text] * 20))
    tokenizer = prepared / "tokenizer"
    prepare([folder / "text.txt"], tokenizer, folder / "set", held_out=0, workers=0)
    return folder / "set"


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("probe") / "probe.tsv"
    rows = [("the class is a type", "type"), ("an integer is returned", "value")] * 20
    path.write_text(
        "sentence\tkind\n" + "".join(f"{t} {n}\t{k}\n" for n, (t, k) in enumerate(rows))
    )
    return path


def test_the_loss_is_a_sum_in_a_fixed_order(recipe: Make) -> None:
    """Else the best step of a resumed run could differ, since the order of sets is random."""
    held = HeldOut(cast(Any, object()), {}, None, "", {})
    learner = cast(Any, SimpleNamespace(weights={}))
    found = scoring(recipe(), held, learner, learner, learner, cast(Any, None))
    assert found is not None
    losses = {f"term_{letter}": 10.0 ** (17 - 2 * n) + n for n, letter in enumerate("abcdefgh")}
    row = {f"held_out_{name}": loss for name, loss in reversed(losses.items())}
    row |= {f"held_out_{name}_accuracy": 0.5 for name in losses}
    assert found.value(row) == -sum(losses.values())


def test_they_are_reported_by_name_and_change_nothing(
    recipe: Make, prepared: Path, named: Path, labelled: Path, tmp_path: Path
) -> None:
    train = {"steps": 8, "ema": 0.9}
    evaluate = {"every": 4, "pseudo": 0}
    plain = recipe(train=train, evaluate=evaluate)
    pretrain(plain, tmp_path / "plain", show="none")
    scored = recipe(
        train=train,
        evaluate=evaluate | {"held_out": {"own": str(prepared), "code.v2": str(named)}},
        probe={"data": str(labelled), "text": "sentence", "label": "kind"},
    )
    summary = pretrain(scored, tmp_path / "run", show="none")
    rows = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    evaluations = [row for row in rows if "probe" in row]
    assert [row["step"] for row in evaluations] == [4, 8]
    assert all(row["probe_majority"] == 0.5 for row in evaluations)
    assert evaluations[-1]["probe"] == summary["probe"] > 0.9
    for key in ("held_out_masked_lm/code.v2", "held_out_masked_lm_accuracy/code.v2"):
        assert summary[key] == evaluations[-1][key]
    assert summary["held_out_masked_lm/own"] == summary["held_out_masked_lm"]  # its own held-out

    # A pure read: weights, optimizer and the other numbers are the same bytes.
    names = ["model/model.safetensors", "checkpoints/step-00000008/optimizer.safetensors"]
    for name in [*names, "checkpoints/step-00000008/average.safetensors"]:
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    kept = [{k: v for k, v in row.items() if "/" not in k and "probe" not in k} for row in rows]
    log = (tmp_path / "plain" / "log.jsonl").read_text().splitlines()
    assert kept == [json.loads(line) for line in log]

    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "Probe task" in page
    assert "code.v2" in page
    labels = dict(compare_runs([read_run(tmp_path / "run")]).rows())
    assert labels["accuracy of the probe"][0].endswith("%")
    assert labels["held-out loss, Masked LM (code.v2)"][0].endswith(" nats")
    assert read_run(tmp_path / "run").terms() == ["masked_lm"]


def test_the_best_weights_are_chosen_on_named_sets_where_there_are_no_others(
    recipe: Make, named: Path, prepared: Path, tmp_path: Path
) -> None:
    evaluate = {"every": 1, "keep": "best", "held_out": {"a": str(prepared)}, "pseudo": 0}
    made = recipe(data={"corpus": str(named)}, train={"steps": 3}, evaluate=evaluate)
    summary = pretrain(made, tmp_path / "run", show="none")
    rows = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    losses = {r["step"]: r["held_out_masked_lm/a"] for r in rows if "held_out_masked_lm/a" in r}
    assert summary["best_step"] == min(losses, key=lambda step: losses[step])
    assert "held_out_masked_lm" not in summary


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_the_probe_reads_what_is_linear_in_the_states(
    prepared: Path, tmp_path: Path, pooling: str
) -> None:
    """States that hold the label in one coordinate are read; random labels are not."""
    tokenizer = Corpus.open(prepared).tokenizer
    draw = torch.Generator().manual_seed(0)
    for kind in ("told", "random"):
        labels = torch.randint(0, 3, (300,), generator=draw).tolist()
        rows = [{"text": f"x{n}", "label": label} for n, label in enumerate(labels)]
        path = tmp_path / f"{kind}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        part = ProbePart(data=str(path), pooling=pooling)  # type: ignore[arg-type]
        probe = Probe.read(part, tokenizer, 16)
        states = torch.randn(300, 8, generator=draw, dtype=torch.float64)
        if kind == "told":
            states[torch.arange(300), torch.tensor(labels)] += 12
        fake = type("Fake", (Probe,), {"_states": lambda *_, states=states: states})
        accuracy = fake(probe.texts, probe.labels, pooling).accuracy(
            torch.nn.Identity(), torch.device("cpu"), False
        )
        assert (accuracy > 0.98) == (kind == "told")
        assert accuracy > 0.98 or abs(accuracy - 1 / 3) < 0.12


def test_mistakes(recipe: Make, prepared: Path, named: Path, tmp_path: Path) -> None:
    def fault(**tables: Any) -> str:
        with pytest.raises(BertsmithError) as caught:
            pretrain(recipe(**tables), tmp_path / "run", show="none")
        assert not (tmp_path / "run").exists()
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def probed(name: str, text: str, **more: Any) -> str:
        (tmp_path / name).write_text(text)
        return fault(probe={"data": str(tmp_path / name)} | more)

    assert "no such folder" in fault(evaluate={"held_out": {"a": str(tmp_path / "none")}})
    assert "evaluate.held_out.a b" in fault(evaluate={"held_out": {"a b": str(named)}})
    assert "needs evaluate.tokens" in fault(evaluate={"held_out": {"a": "b"}, "tokens": 0})
    own = fault(data={"corpus": str(named)}, evaluate={"held_out": {"a": str(named)}})
    assert "the run is trained on it, and no text was held out" in own
    text = tmp_path / "text.txt"
    text.write_text("one two three four\n" * 20)
    foreign = train([text], "wordpiece", size=60)
    prepare([text], foreign, tmp_path / "foreign", workers=0, held_out=0)
    other = fault(evaluate={"held_out": {"a": str(tmp_path / "foreign")}})
    assert "its vocabulary is not that of" in other
    assert "none.tsv" in fault(probe={"data": str(tmp_path / "none.tsv")})
    assert "a probe is a table of texts and labels" in probed("a.txt", "a\n")
    assert "no 'text' (it has sentence, label; set probe.text" in probed(
        "a.tsv", "sentence\tlabel\na\t1\n"
    )
    assert "it has 2 and 2" in probed("b.csv", "text,label\na,1\nb,2\n")
    assert "a.jsonl: cannot be read" in probed("a.jsonl", "{\n")
    with pytest.raises(BertsmithError, match=r"did you mean probe\.pooling"):
        load_recipe("tiny-bert", ["probe.poolng=cls"])
