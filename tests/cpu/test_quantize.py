"""The verb quantize: directories with int8 weights, and the proof on a file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import bertsmith as bs
from bertsmith import BertsmithError
from bertsmith.cli.app import app
from bertsmith.cpu import int8_weights
from bertsmith.infer.opening import open_model
from bertsmith.reports.quantize import layer_errors, quantize
from cpu.texts import TEXTS
from serve.live import tiny


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, str(result.exception or "") + result.output


@pytest.fixture
def labelled(plain: Path, tmp_path: Path) -> Path:
    """Texts with the labels that the classifier gives them, so that it scores 100."""
    found = bs.load(plain, dtype="float32").classify(TEXTS)
    lines = [f"{text},{one.label}" for text, one in zip(TEXTS, found, strict=True)]
    path = tmp_path / "dev.csv"
    path.write_text("text,label\n" + "\n".join(lines) + "\n")
    return path


# ------------------------------------------------------------------ directories


def test_a_directory_keeps_int8_and_gives_float32_back(plain: Path, tmp_path: Path) -> None:
    done = bs.quantize(plain, tmp_path / "q")
    stored = load_file(tmp_path / "q" / "model.safetensors")
    assert {str(one.dtype) for one in stored.values()} == {"torch.int8", "torch.float32"}
    config = json.loads((tmp_path / "q" / "config.json").read_text())
    assert config["quantization_config"]["quant_method"] == "bertsmith"
    assert "bertsmith convert" in (tmp_path / "q" / "README.md").read_text()
    assert done.proof is None
    assert done.megabytes[1] < done.megabytes[0] / 2
    again = bs.load(tmp_path / "q")
    assert int8_weights(again.model)
    assert np.array_equal(again.embed(TEXTS), bs.load(plain, dtype="int8").embed(TEXTS))
    again.save(tmp_path / "again")
    assert np.array_equal(bs.load(tmp_path / "again").embed(TEXTS), again.embed(TEXTS))
    status, said = run("convert", str(tmp_path / "q"), str(tmp_path / "f"))
    assert status == 0, said
    back = load_file(tmp_path / "f" / "model.safetensors")
    assert {one.dtype for one in back.values()} == {torch.float32}
    assert "quantization_config" not in (tmp_path / "f" / "config.json").read_text()
    assert back.keys() == load_file(plain / "model.safetensors").keys()


def test_an_int8_model_is_not_quantized_or_trained(
    plain: Path, labelled: Path, tmp_path: Path
) -> None:
    bs.quantize(plain, tmp_path / "q")
    with pytest.raises(BertsmithError, match="int8 already"):
        bs.quantize(tmp_path / "q", tmp_path / "r")
    for train in (bs.finetune, bs.distill):
        with pytest.raises(BertsmithError, match="int8 already; start from the float32 model"):
            train(tmp_path / "q", labelled, out=tmp_path / "r", epochs=1)
    assert not (tmp_path / "r").exists()
    assert int8_weights(bs.load(tmp_path / "q", dtype="int8").model)
    assert not int8_weights(bs.load(tmp_path / "q", dtype="float32").model)


def test_a_tied_head_is_stored_once_with_the_table(tmp_path: Path) -> None:
    bert = tiny(("masked_lm",), vocab_size=1100, hidden_size=128)
    bert.save(tmp_path / "m")
    int8 = bs.load(tmp_path / "m", dtype="int8")
    int8.save(tmp_path / "q")
    tensors = load_file(tmp_path / "q" / "model.safetensors")
    scales = [one.shape for one in tensors.values() if len(one.shape) == 2 and one.shape[1] == 2]
    assert scales == [(1100, 2)]
    again = bs.load(tmp_path / "q")
    text = f"{TEXTS[0]} {again.tokenizer.mask_token}"
    assert [one.token for one in again.fill_mask(text)] == [
        one.token for one in int8.fill_mask(text)
    ]


@pytest.mark.parametrize("damage", ["missing", "short", "nan", "negative", "deep"])
def test_a_damaged_scale_is_one_line(damage: str, plain: Path, tmp_path: Path) -> None:
    bs.quantize(plain, tmp_path / "q")
    path = tmp_path / "q" / "model.safetensors"
    tensors = load_file(path)
    name = next(one for one in tensors if one.endswith(".scale"))
    match damage:
        case "missing":
            del tensors[name]
        case "short":
            tensors[name] = tensors[name][:-1].contiguous()
        case "deep":
            tensors[name] = tensors[name].flatten()[:, None, None].repeat(1, 1, 2)
        case "nan":
            tensors[name][0] = float("nan")
        case "negative":
            tensors[name][0] = -1
    save_file(tensors, path)
    with pytest.raises(BertsmithError, match="damaged; quantize the float32 model again") as error:
        bs.load(tmp_path / "q")
    assert "\n" not in str(error.value)


def test_nothing_is_replaced(plain: Path, tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "mine.txt").write_text("mine")
    status, said = run("quantize", str(plain), "--out", str(tmp_path / "q"))
    assert status != 0
    assert "not empty" in said
    assert [one.name for one in (tmp_path / "q").iterdir()] == ["mine.txt"]


# ------------------------------------------------------------------ the proof


def spoil(folder: Path) -> Path:
    """Give the first block an outlier channel: a large value that no layer after it reads."""
    bert = open_model(folder, dtype="float32", device="cpu")
    block: Any = bert.model.encoder.blocks[0]
    with torch.no_grad():
        block.attention_norm.bias[0] = 300
        block.feedforward.up.weight[:, 0] = 0
        block.feedforward_norm.weight.mul_(300 / len(block.feedforward_norm.weight) ** 0.5)
        block.feedforward_norm.weight[0] = 0
    bert.save(folder.with_name("spoiled"))
    return folder.with_name("spoiled")


def test_the_proof_on_labelled_data(plain: Path, labelled: Path, tmp_path: Path) -> None:
    status, said = run(
        *("quantize", str(plain), "--out", str(tmp_path / "q")),
        *("--data", str(labelled), "--at-most", "5", "--json"),
    )
    assert status == 0, said
    result = json.loads(said.strip().splitlines()[-1])
    proof = result["proof"]
    assert proof["measure"] == "accuracy"
    assert proof["scores"]["float32"] == 1
    assert proof["agreement"] >= 0.95
    assert proof["scores"]["low"] <= proof["scores"]["difference"] <= proof["scores"]["high"]
    assert proof["cosine"]["minimum"] > 0.98
    assert 0 < proof["neighbours"]["shared"] <= 1
    assert result["float32"] == []
    errors = [one["error"] for one in result["layers"]]
    assert errors == sorted(errors, reverse=True)


def test_texts_without_labels(plain: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    proof = quantize(plain, tmp_path / "q", data=tmp_path / "texts.txt").proof
    assert proof is not None
    assert proof.measure == "agreement"
    assert proof.agreement is not None
    assert proof.agreement > 0.9


def test_predicted_numbers_are_compared_by_their_vectors(tmp_path: Path) -> None:
    """Two numbers are never equal, so there is no agreement."""
    bert = tiny(("classify",), id2label={"0": "score"}, problem_type="regression")
    bert.save(tmp_path / "m")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[:20]))
    proof = quantize(tmp_path / "m", tmp_path / "q", data=tmp_path / "texts.txt").proof
    assert proof is not None
    assert proof.measure == "cosine"
    assert proof.agreement is None
    assert proof.largest_change is not None
    assert proof.lost == pytest.approx(100 * (1 - proof.cosine["mean"]))


def test_outlier_channels_are_mended_or_refused(plain: Path, tmp_path: Path) -> None:
    spoiled = spoil(plain)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    worst = quantize(spoiled, tmp_path / "q0", data=tmp_path / "texts.txt")
    assert worst.proof is not None
    assert worst.proof.cosine["mean"] < 0.99
    bound = worst.proof.lost / 4
    mended = quantize(spoiled, tmp_path / "q1", data=tmp_path / "texts.txt", at_most=bound)
    assert "encoder.blocks.0.feedforward.up" in mended.float32
    assert mended.proof is not None
    assert mended.proof.lost <= bound
    again = bs.load(tmp_path / "q1")
    assert len(int8_weights(again.model)) == len(mended.layers) - len(mended.float32)


def test_what_cannot_be_mended_is_refused(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    monkeypatch.setattr("bertsmith.reports.quantize.agreement", lambda *_: {"agreement": 0.5})
    status, said = run(
        *("quantize", str(plain), "--out", str(tmp_path / "q")),
        *("--data", str(tmp_path / "texts.txt"), "--at-most", "0.5"),
    )
    assert status != 0
    assert "was not written" in said
    assert not (tmp_path / "q").exists()


def test_at_most_needs_data(plain: Path, tmp_path: Path) -> None:
    status, said = run("quantize", str(plain), "--out", str(tmp_path / "q"), "--at-most", "1")
    assert status != 0
    assert "needs data" in said


def test_errors_of_layers(plain: Path) -> None:
    errors = layer_errors(open_model(plain, dtype="float32"), TEXTS[:20])
    assert all(0 < one.error < 0.05 for one in errors)


# ------------------------------------------------------------------ verbs and the server


def test_verbs_take_int8(plain: Path, labelled: Path) -> None:
    for words in (
        ("embed", str(plain), TEXTS[0], "--dtype", "int8", "--json"),
        ("predict", str(plain), TEXTS[0], "--dtype", "int8"),
        ("evaluate", str(plain), str(labelled), "--dtype", "int8", "--json"),
    ):
        status, said = run(*words)
        assert status == 0, said


def test_export_to_onnx_in_int8(plain: Path, tmp_path: Path) -> None:
    status, said = run("export", str(plain), "--onnx", str(tmp_path / "o"), "--int8", "--json")
    assert status == 0, said
    assert json.loads(said.strip().splitlines()[-1])["int8_cosine"] > 0.97
    assert {one.name for one in (tmp_path / "o").glob("*.onnx")} == {"model.onnx"}
