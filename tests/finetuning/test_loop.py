"""The loop: steps, seeds, parts, freezing, the best epoch, and nothing half-written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from bertsmith import BertsmithError, Classifier, load
from bertsmith.finetuning import finetune, read_splits, settings_for, split_off
from bertsmith.finetuning.batches import micro_batches
from bertsmith.finetuning.setup import open_fresh
from bertsmith.finetuning.tuning import has_ended
from bertsmith.model.attention import Attention
from bertsmith.tasks.read import read_data
from bertsmith.tasks.registry import task_named
from bertsmith.tasks.training import Training
from bertsmith.train import step
from bertsmith.train.activations import CachedEncoder
from bertsmith.train.weights import Best
from finetuning.conftest import FAST, Write, labelled, texts, train
from finetuning.looping import training_of
from tasks.models import Made, Maker

State = dict[str, torch.Tensor]


def trained(folder: Path, file: Path, **given: Any) -> State:
    """The weights after training, on a dev file that is the training file."""
    result = finetune(folder, file, dev=file, device="cpu", **{**FAST, "epochs": 2, **given})
    return {n: p.detach().clone() for n, p in result.kept.bert.model.named_parameters()}


def apart(one: State, other: State) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def test_a_seed_says_it_all(made: Callable[..., Made], write: Write) -> None:
    folder, file = made("bert", "Model").folder, write("t.jsonl", labelled(24))  # with dropout
    first, again = trained(folder, file, seed=1), trained(folder, file, seed=1)
    assert apart(first, again) == 0
    assert apart(first, trained(folder, file, seed=2)) > 1e-3


def test_random_numbers_of_the_caller_stay_as_they_were(
    made: Callable[..., Made], write: Write
) -> None:
    folder, file = made("bert", "Model").folder, write("t.jsonl", labelled(24))
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    trained(folder, file, epochs=1, seed=1)
    assert torch.equal(torch.rand(3), expected)


def test_parts_do_not_change_a_step(base: Maker, write: Write) -> None:
    folder, file = base().folder, write("t.jsonl", labelled(24))
    whole = trained(folder, file, epochs=1)
    parted = trained(folder, file, epochs=1, budget=40)
    # AdamW turns rounding of the smallest gradients into steps of full length: of a few weights.
    gaps = torch.cat([(whole[name] - parted[name]).flatten().abs() for name in whole])
    assert float(gaps.quantile(0.999)) < 1e-4
    assert apart(whole, parted) < 2e-4


def test_parts_fit_their_budget(base: Maker, write: Write) -> None:
    dataset, settings = read_data(write("t.jsonl", labelled(24))), settings_for("classification")
    training = task_named(dataset.task).training(dataset, settings)
    samples = training.samples(open_fresh(base().folder, training, settings, "cpu"), dataset.gold())
    groups = list(micro_batches(samples, 60))
    assert len(groups) > 2
    assert all(sum(item.tokens for item in group) <= 60 for group in groups)
    assert sum(map(len, groups)) == 24
    assert [len(group) for group in micro_batches(samples, 0)] == [24]


def test_states_computed_twice_are_the_same(base: Maker, write: Write) -> None:
    folder, file = base().folder, write("t.jsonl", labelled(24))
    plain = trained(folder, file, epochs=1)
    assert apart(plain, trained(folder, file, epochs=1, checkpointing=True)) < 1e-5


@pytest.mark.parametrize("kind", ["classification", "tagging"])
def test_a_frozen_encoder_reads_each_text_once(
    base: Maker, write: Write, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    rows = labelled(24)
    if kind == "tagging":
        rows = [
            {"tokens": row["text"].split(), "tags": ["O"] * len(row["text"].split())}
            for row in rows
        ]
        for row in rows:
            row["tags"][0] = "B-X"
    dataset = read_data(write("t.jsonl", rows))
    settings = settings_for(kind, freeze="encoder", epochs=4, batch_size=8)
    training = training_of(dataset, settings)
    bert = open_fresh(base().folder, training, settings, "cpu")
    samples, passed = training.samples(bert, dataset.gold()), []
    embed = bert.model.encoder.embedding.forward
    monkeypatch.setattr(
        bert.model.encoder.embedding,
        "forward",
        lambda batch: passed.append(len(batch.layout.lengths)) or embed(batch),
    )
    train(bert, training, samples, settings, None)
    different = {(tuple(item.windows[0].ids)) for sample in samples for item in sample}
    assert len(different) <= sum(passed) <= len(samples)
    assert "forward" not in bert.model.encoder.__dict__


def test_of_many_epochs_some_are_scored(base: Maker, write: Write) -> None:
    file = write("t.jsonl", labelled(8))
    scored = {}
    for given in ({"epochs": 25, "keep": "last"}, {"epochs": 4}, {"epochs": 25, "patience": 30}):
        result = finetune(base().folder, file, dev=file, device="cpu", **{**FAST, **given})
        rows = result.kept.history.epochs
        scored[tuple(given.values())] = [row["epoch"] for row in rows if "accuracy" in row]
    assert scored[25, "last"] == [1, 3, 6, 9, 12, 15, 18, 21, 24, 25]
    assert scored[4,] == [1, 2, 3, 4]
    assert scored[25, 30] == list(range(1, 26))


def test_the_head_alone_may_be_trained_first(base: Maker, write: Write) -> None:
    folder, file = base().folder, write("t.jsonl", labelled(24))
    tiny = {"learning_rate": 1e-9, "weight_decay": 0.0, "epochs": 1}
    plain, after = (trained(folder, file, head_epochs=count, **tiny) for count in (0, 3))
    for name in plain:
        gap = float((plain[name] - after[name]).abs().max())
        assert (gap > 1e-3) if name.startswith("heads") else (gap < 1e-6), name


def test_states_beyond_the_memory_for_them_are_computed_again(
    base: Maker, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, file = base().folder, write("t.jsonl", labelled(24))
    cached = trained(folder, file, freeze="encoder")
    monkeypatch.setattr(CachedEncoder.__init__, "__defaults__", (2000,))
    assert apart(cached, trained(folder, file, freeze="encoder")) < 1e-5


@pytest.mark.parametrize(
    ("dtype", "checkpointing"), [("bfloat16", False), ("bfloat16", True), ("float16", False)]
)
def test_half_precision_learns(
    base: Maker, write: Write, dtype: str, checkpointing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertsmith.train.precision.has_float16_units", lambda: True)
    file = write("t.jsonl", labelled())
    result = finetune(
        base().folder,
        file,
        dev=file,
        device="cpu",
        dtype=dtype,
        checkpointing=checkpointing,
        **FAST,
    )
    assert result.kept.dev is not None
    assert result.kept.dev.scores["accuracy"] == 1.0
    model = result.kept.bert.model
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    kernels = {m.kernel for m in model.modules() if isinstance(m, Attention)}
    assert kernels == {None}  # what training chose does not stay


def test_a_device_without_units_is_noted(
    base: Maker, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for units in ("float16", "bfloat16"):
        monkeypatch.setattr(f"bertsmith.train.precision.has_{units}_units", lambda: False)
    how = {"device": "cpu", "hold_out": 0, **FAST, "epochs": 1}
    file, out = write("t.jsonl", labelled()), tmp_path / "out"
    result = finetune(base().folder, file, out, dtype="float16", **how)
    report, note = (
        json.loads((out / "report.json").read_text()),
        "no float16 units: trained in float32",
    )
    assert (report["settings"]["dtype"], report["precision"]) == ("float16", "float32")
    for notes in (result.notes, report["notes"]):
        assert sum(note in one for one in notes) == 1
    assert note in (out / "README.md").read_text()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_of_large_tables_learn_the_same(
    base: Maker, write: Write, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients that come by rows, also over several parts of a step, are the same gradients."""
    folder, file = base().folder, write("t.jsonl", labelled(24))
    whole = trained(folder, file, dtype=dtype, budget=100)
    monkeypatch.setattr(step, "LARGE", 100)
    name, far = "encoder.embedding.token.weight", 1e-4 if dtype == "float32" else 2e-2
    rows = trained(folder, file, dtype=dtype, budget=100)
    assert apart({name: whole[name]}, {name: rows[name]}) < far
    bert = load(folder, device="cpu")
    assert step.large_tables(bert.model) == [bert.model.encoder.embedding.token]
    bert.model.encoder.embedding.token.requires_grad_(False)
    assert step.large_tables(bert.model) == []


def test_a_table_that_an_output_shares_is_left_alone(
    made: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "LARGE", 100)
    assert step.large_tables(made("bert", "ForMaskedLM").ours.model) == []


def test_a_step_has_as_many_examples_as_were_asked_for(base: Maker, write: Write) -> None:
    file = write("t.jsonl", labelled(50))
    result = finetune(base().folder, file, hold_out=0, batch_size=16, epochs=3)
    assert result.kept.history.steps == 3 * 4
    assert result.kept.history.examples == 150


def scripted(
    base: Maker, file: Path, scores: list[float], **given: Any
) -> tuple[int, int, list[float]]:
    """Epochs run, the one kept, and how far the kept weights are from each epoch's."""
    settings = settings_for("classification", **{**FAST, "metric": "accuracy", **given})
    training = training_of(read_data(file), settings)
    bert = open_fresh(base().folder, training, settings, "cpu")
    seen: list[State] = []

    def look() -> dict[str, float]:
        seen.append({n: p.detach().clone() for n, p in bert.model.named_parameters()})
        return {"accuracy": scores[len(seen) - 1]}

    history = train(bert, training, training.samples(bert, training.dataset.gold()), settings, look)
    now = {name: value.detach() for name, value in bert.model.named_parameters()}
    return len(seen), history.best, [apart(now, one) for one in seen]


def test_the_best_epoch_is_kept(base: Maker, write: Write) -> None:
    file = write("t.jsonl", labelled(16))
    count, best, gaps = scripted(base, file, [0.1, 0.9, 0.9, 0.2], epochs=4)
    assert (count, best) == (4, 3)  # of equals the later
    assert [gap == 0 for gap in gaps] == [False, False, True, False]
    count, best, gaps = scripted(base, file, [0.1, 0.9, 0.2], epochs=3, keep="last")
    assert (best, gaps[-1]) == (3, 0)


def test_training_stops_early(base: Maker, write: Write) -> None:
    file = write("t.jsonl", labelled(16))
    count, best, _ = scripted(base, file, [0.5, 0.4, 0.3, 0.9], epochs=4, patience=2)
    assert (count, best) == (3, 1)


def test_many_epochs_end_early_where_dev_scores_do_not_rise(base: Maker, write: Write) -> None:
    rows = labelled(24)
    noise = [{**row, "label": ("city", "thing")[n // 2 % 2]} for n, row in enumerate(labelled(24))]
    file, dev = write("t.jsonl", rows), write("dev.jsonl", noise)
    given = {**FAST, "epochs": 40, "learning_rate": 1e-6}  # which learns next to nothing
    result = finetune(base().folder, file, dev=dev, device="cpu", **given)
    done = result.kept.history.done
    assert 40 / 3 <= done < 40
    assert any("a third of all epochs" in note for note in result.notes)
    last = finetune(base().folder, file, dev=dev, device="cpu", keep="last", **given)
    assert last.kept.history.done == 40


FALLS = [0.6, 0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2]


STANDS = [0.6, 0.59, 0.61, 0.58, 0.6, 0.59, 0.58, 0.57]


@pytest.mark.parametrize(
    ("scores", "losses", "ended"),
    [
        ([0.0] * 5, FALLS, False),  # nothing is found yet
        ([0.0] * 5, STANDS, True),
        ([math.nan] * 5, STANDS, False),  # there is no score
        ([None] * 5, STANDS, False),  # as a checkpoint has it
        ([None] * 5, [*FALLS[:-1], 0.0001], True),  # the file is learned
        ([0.5, 0.4, 0.4, 0.4, 0.4], FALLS, True),
        ([0.4, 0.4, 0.5, 0.4, 0.4], STANDS, False),  # two scores since the best
    ],
)
def test_a_score_that_never_changed_may_yet_rise(
    write: Write, scores: list[float | None], losses: list[float], ended: bool
) -> None:
    settings = settings_for("classification", **{**FAST, "metric": "accuracy", "epochs": 12})
    training = training_of(read_data(write("t.jsonl", labelled(8))), settings)
    best, rows, left = Best(), [], list(scores)
    for epoch, loss in enumerate(losses, 1):
        rows.append({"epoch": epoch, "loss": loss})
        if epoch in (1, 2, 4, 6, 8):
            score = rows[-1]["accuracy"] = left.pop(0)
            best.consider(math.nan if score is None else score, epoch, {})
    assert has_ended(best, settings, training, rows) is ended


def test_a_run_that_has_learned_its_file_ends(
    base: Maker, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write("t.jsonl", labelled(16))
    scores = [0.5, 0.9, 0.9, 0.8, 0.9, 1.0]
    assert scripted(base, file, scores, epochs=6)[:2] == (6, 6)  # its loss is too high
    monkeypatch.setattr(Training, "learned", 100.0)
    assert scripted(base, file, scores, epochs=6)[:2] == (5, 5)  # of equals the later
    assert scripted(base, file, scores, epochs=6, keep="last")[:2] == (6, 6)
    assert scripted(base, file, scores, epochs=6, patience=5)[:2] == (6, 6)
    result = finetune(base().folder, file, dev=file, **FAST | {"epochs": 40})
    done = len(result.kept.history.epochs)
    assert done < 40
    assert any(
        note.startswith(f"stopped after {done} of 40 epochs: ") and "below 0.001" in note
        for note in result.notes
    )


@pytest.mark.slow
def test_the_length_of_windows_is_kept(base: Maker, write: Write, tmp_path: Path) -> None:
    rows = [{"text": f"{text} {'the old river ' * 20}", "label": x} for text, x in texts(16)]
    out, again = tmp_path / "out", tmp_path / "again"
    result = finetune(base().folder, write("t.jsonl", rows), out, epochs=1, max_length=16)
    assert result.kept.bert.windower().limit == 16
    assert load(out, device="cpu").windower().limit == 16
    assert AutoTokenizer.from_pretrained(out).model_max_length == 16
    assert "inputs of up to 16 tokens" in (out / "README.md").read_text()
    assert finetune(out, write("t.jsonl", rows), epochs=1).kept.bert.max_length == 16
    finetune(out, write("t.jsonl", rows), again, epochs=1, max_length=32)
    assert load(again, device="cpu").windower().limit == 32
    pairs = write("p.jsonl", [{"query": a, "positive": f"{a} x"} for a, _ in texts(8)])
    vectors = finetune(base().folder, pairs, task="similarity", hold_out=0, max_length=12)
    assert vectors.kept.bert.sentence.max_length == 12


def test_progress_is_shown(
    base: Maker, write: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich draws bars on terminals only
    file = write("t.jsonl", labelled(16))
    finetune(base().folder, file, hold_out=0, epochs=1)
    assert capsys.readouterr().err == ""  # not a terminal
    finetune(base().folder, file, hold_out=0, epochs=2, progress=True)
    assert "of 2 steps" in capsys.readouterr().err
    Classifier(base().folder, epochs=2, progress=True).fit(*zip(*texts(16), strict=True))
    assert "of 2 steps" in capsys.readouterr().err


def test_what_diverges_is_told(base: Maker, write: Write) -> None:
    settings = settings_for("classification", **FAST)
    training = training_of(read_data(write("t.jsonl", labelled(48))), settings)
    bert = open_fresh(base().folder, training, settings, "cpu")
    with torch.no_grad():
        bert.model.heads["classify"].output.bias.fill_(float("nan"))
    with pytest.raises(BertsmithError, match="was NaN or infinite"):
        train(bert, training, training.samples(bert, training.dataset.gold()), settings, None)


def test_seeds_and_sweep(base: Maker, write: Write, tmp_path: Path) -> None:
    file = write("t.jsonl", labelled(24))
    result = finetune(
        base().folder,
        file,
        tmp_path / "out",
        dev=file,
        test=file,
        seeds=2,
        sweep=True,
        sweep_rates=(1e-6, 3e-3),
        sweep_epochs=(1, 12),
        batch_size=8,
        warmup=0.0,
    )
    assert len(result.sweep) == 4
    assert len(result.seeds) == 2
    assert result.kept.settings.learning_rate == 3e-3
    summary = result.summary()
    assert summary is not None
    values = [run.value for run in result.seeds]
    assert summary.mean == pytest.approx(sum(values) / 2)
    assert result.kept.value == max(values)
    assert result.kept.test is not None


def test_nothing_is_overwritten_unasked(base: Maker, write: Write, tmp_path: Path) -> None:
    file, out = write("t.jsonl", labelled(8)), tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(BertsmithError, match=r"not empty|only what bertsmith wrote"):
            finetune(base().folder, file, out, epochs=1, overwrite=overwrite)
    assert (out / "mine.txt").read_text() == "mine"
    (out / "mine.txt").unlink()
    finetune(base().folder, file, out, epochs=1)
    with pytest.raises(BertsmithError, match="not empty"):
        finetune(base().folder, file, out, epochs=1)
    finetune(base().folder, file, out, epochs=2, overwrite=True)
    assert json.loads((out / "report.json").read_text())["settings"]["epochs"] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "t.jsonl"]
    with pytest.raises(BertsmithError, match="a file of this name exists"):
        finetune(base().folder, file, file, epochs=1)


def test_a_failure_leaves_nothing(base: Maker, write: Write, tmp_path: Path) -> None:
    class Broken:
        def step(self, done: int, total: int, loss: float) -> None:
            raise KeyboardInterrupt

        def epoch(self, row: dict[str, Any]) -> None: ...

    file = write("t.jsonl", labelled(8))
    with pytest.raises(KeyboardInterrupt):
        finetune(base().folder, file, tmp_path / "out", epochs=1, watch=Broken())
    assert [path.name for path in tmp_path.iterdir()] == ["t.jsonl"]


def test_held_out_texts_are_not_learned_from(write: Write) -> None:
    rows = labelled(40) + labelled(40)  # every text twice
    splits = read_splits(write("t.jsonl", rows), hold_out=0.25)
    assert splits.dev is not None
    assert len(splits.train) + len(splits.dev) == 80
    assert not {e.text for e in splits.train.examples} & {e.text for e in splits.dev.examples}
    assert "held out" in splits.notes[0]


def test_questions_are_split_by_articles(write: Write) -> None:
    rows = [
        {
            "id": str(n),
            "question": "who",
            "context": f"a {n}",
            "title": f"t{n % 10}",
            "answers": {"text": ["a"], "answer_start": [0]},
        }
        for n in range(60)
    ]
    rest, held, how = split_off(read_data(write("q.jsonl", rows)), 0.2)
    assert not {e.title for e in rest.examples} & {e.title for e in held.examples}
    assert "no article is in both" in how
    assert len(held) == 12
