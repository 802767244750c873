"""LoRA: zero at first, the same merged and unmerged, and the files of PEFT, both ways."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bertsmith.batch import Batch
from bertsmith.checkpoint import Checkpoint, Lora, attach, convert, read, write
from bertsmith.checkpoint.lora import LoraUpdate, share, write_adapter
from bertsmith.errors import BertsmithError
from parity.compare import make
from parity.test_families import FAMILIES

peft = pytest.importorskip("peft")

TEXTS = [list(range(5, 20)), list(range(7, 12))]
# `transformers` gives NomicBERT's layers other names in memory than in files; PEFT uses the former.
STEMS = [stem for stem in FAMILIES if stem != "NomicBert"]


def logits(checkpoint: Checkpoint, head: str = "classify") -> Tensor:
    batch = Batch.of(TEXTS)
    with torch.no_grad():
        return checkpoint.model.heads[head](checkpoint.model.encoder(batch), batch)


def theirs(model: Any) -> Tensor:
    ids, mask = torch.zeros(2, 15, dtype=torch.long), torch.zeros(2, 15, dtype=torch.long)
    for row, text in enumerate(TEXTS):
        ids[row, : len(text)], mask[row, : len(text)] = torch.tensor(text), 1
    with torch.no_grad():
        return model.eval()(input_ids=ids, attention_mask=mask).logits


def base(stem: str, folder: Path, **more: Any) -> Any:
    torch.manual_seed(0)
    model = make(stem, "ForSequenceClassification", **FAMILIES[stem], num_labels=3, **more).eval()
    model.save_pretrained(folder)
    return type(model).from_pretrained(folder).eval()


def trained(checkpoint: Checkpoint) -> None:
    """Change what training changes."""
    torch.manual_seed(1)
    for name, parameter in checkpoint.model.named_parameters():
        if parameter.requires_grad:
            parameter.data.add_(0.1 * torch.randn_like(parameter))
        else:
            assert not name.startswith("heads.")


@pytest.mark.parametrize("stem", STEMS)
def test_ours_opens_in_peft(stem: str, tmp_path: Path) -> None:
    model = base(stem, tmp_path / "base")
    checkpoint, lora = read(tmp_path / "base"), Lora(rank=4, alpha=6)
    before = logits(checkpoint)
    attach(checkpoint, lora)
    assert torch.equal(logits(checkpoint), before)
    trained(checkpoint)
    after = logits(checkpoint)
    assert not torch.allclose(after, before, atol=1e-3)
    write(checkpoint, tmp_path / "merged")
    assert any(isinstance(module, LoraUpdate) for module in checkpoint.model.modules())
    merged = read(tmp_path / "merged")
    assert not any(isinstance(module, LoraUpdate) for module in merged.model.modules())
    torch.testing.assert_close(logits(merged), after, atol=1e-6, rtol=1e-6)
    (tmp_path / "adapter").mkdir()
    write_adapter(checkpoint, tmp_path / "adapter", str(tmp_path / "base"), lora)
    torch.testing.assert_close(logits(read(tmp_path / "adapter")), after, atol=1e-6, rtol=1e-6)
    opened = peft.PeftModel.from_pretrained(model, tmp_path / "adapter")
    torch.testing.assert_close(theirs(opened), after, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("rslora", [False, True])
def test_theirs_opens_here(stem: str, rslora: bool, tmp_path: Path) -> None:
    model = base(stem, tmp_path / "base")
    linear = {
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and "layer" in name
    }
    config = peft.LoraConfig(
        task_type="SEQ_CLS", r=3, lora_alpha=7, target_modules=sorted(linear - {"classifier"}),
        use_rslora=rslora, init_lora_weights=False,
    )  # fmt: skip
    wrapped = peft.get_peft_model(model, config)
    want = theirs(wrapped)
    wrapped.save_pretrained(tmp_path / "adapter")
    checkpoint = read(tmp_path / "adapter")
    torch.testing.assert_close(logits(checkpoint), want, atol=2e-5, rtol=1e-5)
    assert any("adapter (LoRA)" in line for line in checkpoint.report.lines())


def test_labels_of_an_adapter_made_by_peft(tmp_path: Path) -> None:
    """The model beside it has two labels; how many the adapter has shows its classifier."""
    model = base("Bert", tmp_path / "three")
    plain = make("Bert", "Model", **FAMILIES["Bert"])
    plain.load_state_dict(model.bert.state_dict(), strict=False)
    plain.save_pretrained(tmp_path / "base")
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"])
    model.name_or_path = str(tmp_path / "base")
    wrapped = peft.get_peft_model(model, config)
    wrapped.peft_config["default"].base_model_name_or_path = str(tmp_path / "base")
    wrapped.save_pretrained(tmp_path / "adapter")
    checkpoint = read(tmp_path / "adapter", new=["classify"], heads=())
    assert len(checkpoint.labels) == 3


@pytest.mark.parametrize(
    ("targets", "count"), [("all", 18), ("attention", 12), ("feedforward", 6), ("query,value", 6)]
)
def test_targets(targets: str, count: int, tmp_path: Path) -> None:
    base("Bert", tmp_path)
    checkpoint = read(tmp_path)
    attach(checkpoint, Lora(targets=targets))
    names = [name for name, _ in checkpoint.model.named_parameters() if ".lora.a." in name]
    assert len(names) == count


def test_convert_writes_the_merged_model(tmp_path: Path, made: Any) -> None:
    folder = made("bert", "ForSequenceClassification").folder
    checkpoint, lora = read(folder), Lora(rank=2)
    attach(checkpoint, lora)
    trained(checkpoint)
    (tmp_path / "adapter").mkdir()
    write_adapter(checkpoint, tmp_path / "adapter", str(folder), lora)
    convert(tmp_path / "adapter", tmp_path / "out")
    assert not (tmp_path / "out" / "adapter_config.json").exists()
    torch.testing.assert_close(logits(read(tmp_path / "out")), logits(checkpoint))


@pytest.mark.parametrize("stem", ["Bert", "ModernBert", "DebertaV2"])
def test_several_adapters_share_one_model(stem: str, tmp_path: Path) -> None:
    """Each gives what it gave merged, also side by side; only the updates and heads are its own."""
    base(stem, tmp_path / "base")
    shared = [read(tmp_path / "base")]
    before = logits(shared[0])
    for number in range(3):
        folder, checkpoint = tmp_path / str(number), read(tmp_path / "base")
        lora = Lora(rank=2 + number, alpha=5, targets=("all", "attention", "feedforward")[number])
        attach(checkpoint, lora, seed=number)
        trained(checkpoint)
        folder.mkdir()
        write_adapter(checkpoint, folder, str(tmp_path / "base"), lora)
        shared.append(read(folder))
        assert share(shared[-1], folder, shared[:-1]) > 0
        torch.testing.assert_close(logits(shared[-1]), logits(checkpoint), atol=1e-6, rtol=1e-6)
        own = {id(one) for one in shared[-1].model.parameters()}
        own -= {id(one) for one in shared[0].model.parameters()}
        named = {name for name, one in shared[-1].model.named_parameters() if id(one) in own}
        assert all(".lora." in name or name.startswith("heads.") for name in named)
    merged = [read(tmp_path / str(number)) for number in range(3)]
    for one, other in zip(shared[1:], merged, strict=True):
        torch.testing.assert_close(logits(one), logits(other), atol=1e-6, rtol=1e-6)
    assert torch.equal(logits(shared[0]), before)
    assert share(shared[0], tmp_path / "base", shared[1:]) == 0  # no adapter: it stays


def test_mistakes(tmp_path: Path) -> None:
    base("Bert", tmp_path / "base")
    checkpoint = read(tmp_path / "base")
    with pytest.raises(BertsmithError, match="no layer is called 'q'; known: all, attention"):
        attach(checkpoint, Lora(targets="q"))
    attach(checkpoint, Lora())
    folder = tmp_path / "adapter"
    folder.mkdir()
    write_adapter(checkpoint, folder, str(tmp_path / "base"), Lora())
    path = folder / "adapter_config.json"
    content = json.loads(path.read_text())

    def refused(match: str, **changes: Any) -> None:
        path.write_text(json.dumps({**content, **changes}))
        with pytest.raises(BertsmithError, match=match):
            read(folder)

    refused("'IA3' is not supported, only LORA", peft_type="IA3")
    refused("use_dora = True is not supported", use_dora=True)
    refused("set base_model_name_or_path to where it is", base_model_name_or_path="/nowhere/at")
    refused("which is itself an adapter", base_model_name_or_path=str(folder))
    refused("lora_alpha", lora_alpha="many")
    small = make("Bert", "ForSequenceClassification", **{**FAMILIES["Bert"], "hidden_size": 64})
    small.save_pretrained(tmp_path / "other")
    refused("it belongs to another model", base_model_name_or_path=str(tmp_path / "other"))
    base("Roberta", tmp_path / "roberta")
    refused("have no place in the model", base_model_name_or_path=str(tmp_path / "roberta"))
    (folder / "adapter_model.safetensors").unlink()
    refused("but no adapter_model.safetensors")
