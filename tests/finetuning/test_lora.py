"""Fine-tuning of few parameters: what is trained, what is written, and that it can be continued."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from bertsmith import Bert, BertsmithError, load
from bertsmith.checkpoint import read
from bertsmith.finetuning import Interrupted, finetune
from finetuning.conftest import FAST, Write, labelled
from finetuning.test_resume import Stopper
from tasks.models import Maker

LORA: dict[str, Any] = {**FAST, "trained": "lora", "lora_rank": 4, "learning_rate": 1e-2}


def test_an_adapter_is_the_trained_model(base: Maker, write: Write, tmp_path: Path) -> None:
    folder, file = base().folder, write("t.jsonl", labelled())
    kept = {"dev": file, "device": "cpu", **LORA}
    result = finetune(folder, file, tmp_path / "adapter", adapter=True, **kept)
    finetune(folder, file, tmp_path / "merged", **kept)
    assert result.kept.scores["dev"]["accuracy"] == 1
    counts = result.content["trained_parameters"]
    assert counts["trained"] < 0.4 * counts["all"]  # of a tiny model
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["base_model_name_or_path"]) == (4, str(folder))
    with pytest.raises(BertsmithError, match="is itself an adapter"):
        finetune(tmp_path / "adapter", file, tmp_path / "second", adapter=True, **kept)
    opened, merged = (load(tmp_path / name, device="cpu") for name in ("adapter", "merged"))
    assert opened.checkpoint.labels == merged.checkpoint.labels == ["city", "thing"]
    for name, weights in merged.model.named_parameters():
        torch.testing.assert_close(dict(opened.model.named_parameters())[name], weights)
    texts = [row["text"] for row in labelled(8)]
    scores = [
        [one.scores["city"] for one in bert.classify(texts)]
        for bert in (opened, merged, Bert.of(result.bert))
    ]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)
    assert scores[0] == pytest.approx(scores[2], abs=1e-6)


def test_the_encoder_stays_as_it_was(base: Maker, write: Write) -> None:
    folder, file = base().folder, write("t.jsonl", labelled())
    before = dict(read(folder).model.encoder.named_parameters())
    lora, biases = (
        dict(finetune(folder, file, dev=file, **LORA | more).bert.model.encoder.named_parameters())
        for more in ({"epochs": 1}, {"trained": "biases", "epochs": 1})
    )
    assert all(torch.equal(lora[name], weights) for name, weights in before.items())
    changed = {name for name, weights in before.items() if not torch.equal(biases[name], weights)}
    assert changed
    assert all(name.endswith("bias") for name in changed)


@pytest.mark.parametrize("trained", ["lora", "biases"])
def test_the_head_can_be_trained_first(base: Maker, write: Write, trained: str) -> None:
    folder, file = base().folder, write("t.jsonl", labelled(24))
    more = {**LORA, "trained": trained, "head_epochs": 1, "epochs": 1}
    before = dict(read(folder).model.encoder.named_parameters())
    bert = finetune(folder, file, dev=file, device="cpu", **more).bert
    counts = [weight.requires_grad for weight in bert.model.encoder.parameters()]
    assert any(counts)
    after = dict(bert.model.encoder.named_parameters())
    changed = {name for name, old in before.items() if not torch.equal(after[name], old)}
    assert all(name.endswith("bias") for name in changed)
    assert (trained == "lora") != bool(changed)


@pytest.mark.parametrize("more", [{}, pytest.param({"seeds": 2}, marks=pytest.mark.slow)])
def test_resuming_gives_the_same_adapter(
    made: Maker, write: Write, tmp_path: Path, more: dict[str, Any]
) -> None:
    folder, file = made("bert", "Model").folder, write("t.jsonl", labelled(24))
    how = {**LORA, "epochs": 3, "batch_size": 8, "device": "cpu", "dev": file, "adapter": True}
    finetune(folder, file, tmp_path / "whole", **how, **more)
    with pytest.raises(Interrupted):
        finetune(folder, file, tmp_path / "out", watch=Stopper(5), **how, **more)
    finetune(folder, file, tmp_path / "out", resume=True, **how, **more)
    name = "adapter_model.safetensors"
    assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_the_card_of_an_adapter_opens_it_with_peft(
    made: Maker, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("peft")
    folder = made("bert", "Model").folder
    rows = [*labelled(16), *[{"text": "a big river", "label": "water"}] * 4]
    finetune(folder, write("t.jsonl", rows), tmp_path / "ad", adapter=True, hold_out=0, **LORA)
    card = (tmp_path / "ad" / "README.md").read_text()
    assert f"an adapter (LoRA) in the layout of PEFT: low-rank updates of `{folder.name}`" in card
    assert "tags: [bert, classification, lora]" in card
    codes = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    there: dict[str, Any] = {}
    for code in codes:
        exec(code, there)
    assert len(codes) == 2
    model, texts = there["model"].eval(), [row["text"] for row in rows[::4]]
    assert list(model.config.id2label.values()) == ["city", "thing", "water"]
    with torch.no_grad():
        logits = model(**there["tokenizer"](texts, return_tensors="pt", padding=True)).logits
    found = load("ad", device="cpu").classify(texts)
    expected = [[one.scores[name] for name in there["labels"]] for one in found]
    torch.testing.assert_close(logits.softmax(-1), torch.tensor(expected), atol=1e-5, rtol=1e-5)


SCORED = [{"text": f"about {n} bees", "score": n / 9} for n in range(12)]
PAIRS = [{"anchor": row["text"], "positive": row["label"]} for row in labelled(24)]


@pytest.mark.parametrize(
    ("rows", "shown"), [(SCORED, "    num_labels=1,\n"), (PAIRS, "-merged` writes")]
)
def test_cards_of_adapters_of_other_tasks(
    base: Maker, write: Write, tmp_path: Path, rows: list[Any], shown: str
) -> None:
    how = LORA | {"epochs": 1}
    finetune(
        base().folder, write("t.jsonl", rows), tmp_path / "ad", adapter=True, hold_out=0, **how
    )
    card = (tmp_path / "ad" / "README.md").read_text()
    assert shown in card
    assert "SentenceTransformer" not in card
    assert ("PeftModel" in card) == ("num_labels" in shown)


@pytest.mark.slow
def test_an_adapter_is_trained_further(base: Maker, write: Write, tmp_path: Path) -> None:
    """The model with the adapter is the start, and the new model is whole."""
    folder, file = base().folder, write("t.jsonl", labelled())
    finetune(folder, file, tmp_path / "one", adapter=True, device="cpu", **LORA)
    finetune(tmp_path / "one", file, tmp_path / "two", device="cpu", **FAST | {"epochs": 1})
    assert (tmp_path / "two" / "model.safetensors").exists()
    texts = [row["text"] for row in labelled(8)]
    found = [one.label for one in load(tmp_path / "two", device="cpu").classify(texts)]
    assert found == [row["label"] for row in labelled(8)]


def test_tags_and_vectors(base: Maker, write: Write, tmp_path: Path) -> None:
    rows = [{"words": [w, "Paris"], "tags": ["O", "B-LOC"]} for w in ("in", "to", "the", "old")] * 6
    finetune(
        base().folder, write("w.jsonl", rows), tmp_path / "tags", adapter=True, hold_out=0, **LORA
    )
    assert [one.text for one in load(tmp_path / "tags").tag("in Paris")] == ["Paris"]
    pairs = [{"anchor": row["text"], "positive": row["label"]} for row in labelled(24)]
    out = tmp_path / "vectors"
    finetune(base().folder, write("p.jsonl", pairs), out, adapter=True, **LORA)
    assert load(out).embed("in Paris").shape == (32,)


def test_mistakes(base: Maker, write: Write, tmp_path: Path) -> None:
    folder, file = base().folder, write("t.jsonl", labelled())
    for more, message in (
        ({"trained": "some"}, "trained should be 'all', 'lora' or 'biases', not 'some'"),
        ({**LORA, "lora_rank": 0}, "lora_rank should be greater than or equal to 1, not 0"),
        ({**LORA, "freeze": "embedding"}, "freeze is for training all parameters, not lora"),
        ({**LORA, "lora_targets": "w"}, "no layer is called 'w'; known: all, attention"),
        ({"adapter": True}, "adapter stores what LoRA trains"),
    ):
        with pytest.raises(BertsmithError, match=message):
            finetune(folder, file, tmp_path / "out", **more)
    assert not (tmp_path / "out").exists()
