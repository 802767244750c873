"""What is said of directories that are almost, or not at all, what they should be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertsmith.checkpoint import locate, read, read_sentence
from bertsmith.checkpoint.convert import convert
from bertsmith.errors import BertsmithError
from checkpoint.folders import refused, settings


def renamed(folder: Path, prefix: str) -> dict[str, torch.Tensor]:
    stored = load_file(folder / "model.safetensors")
    return {prefix + name: tensor for name, tensor in stored.items()}


def test_an_unknown_model_type_mentions_family(bert: Path) -> None:
    settings(bert, model_type="brt")
    message = refused(bert, "config.json: model_type 'brt' is not known")
    assert "did you mean bert?" in message
    assert "Set family to one of: bert, " in message


def test_a_misspelled_family_is_not_config_jsons_fault(bert: Path, tmp_path: Path) -> None:
    for call in (
        lambda: read(bert, settings={"model_type": "robrta"}),
        lambda: convert(bert, tmp_path / "out", family="robrta"),
    ):
        with pytest.raises(
            BertsmithError, match=r"unknown family 'robrta'; did you mean roberta\?"
        ) as e:
            call()
        assert "config.json" not in str(e.value)


@pytest.mark.parametrize("prefix", ["module.", "backbone.", "_orig_mod.module.", "model.model."])
def test_the_prefix_of_a_wrapper_is_left_out(
    prefix: str, bert: Path, good: dict[str, Path]
) -> None:
    save_file(renamed(bert, prefix), bert / "model.safetensors")
    found, plain = read(bert), read(good["bert"])
    assert found.report.notes == (
        f"the names of its tensors begin with {prefix!r}, which is left out",
    )
    assert found.report.unused == ()
    for one, other in zip(found.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_another_familys_prefix_is_not_left_out(bert: Path) -> None:
    stored = load_file(bert / "model.safetensors")
    other = {name.replace("bert.", "roberta.", 1): tensor for name, tensor in stored.items()}
    save_file(other, bert / "model.safetensors")
    assert "stored instead: " in refused(bert, "tensors the model needs are missing")


def test_missing_tensors_show_what_is_stored(bert: Path) -> None:
    odd = {name.replace(".", "/"): tensor for name, tensor in renamed(bert, "").items()}
    save_file(odd, bert / "model.safetensors")
    assert "stored instead: bert/embeddings" in refused(bert, "missing: bert.embeddings")


def test_a_pointer_of_git_lfs(bert: Path) -> None:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 440449768\n"
    for name in ("model.safetensors", "pytorch_model.bin"):
        (bert / "model.safetensors").unlink(missing_ok=True)
        (bert / name).write_text(pointer)
        assert "git lfs pull" in refused(bert, "a Git LFS pointer, not the weights")
        (bert / name).unlink()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("model.onnx", "an ONNX model"),
        ("onnx/model.onnx", "an ONNX model"),
        ("tf_model.h5", "weights of TensorFlow"),
        ("flax_model.msgpack", "weights of Flax"),
        ("checkpoint.pt", "a file of torch.save"),
    ],
)
def test_other_weights_are_named(name: str, kind: str, bert: Path) -> None:
    (bert / "model.safetensors").unlink()
    (bert / name).parent.mkdir(exist_ok=True)
    (bert / name).write_bytes(b"x")
    assert kind in refused(bert, "no model.safetensors or pytorch_model.bin here; ")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite(value: float, bert: Path) -> None:
    stored = renamed(bert, "")
    name = "bert.encoder.layer.0.output.dense.weight"
    stored[name][0, 0] = value
    save_file(stored, bert / "model.safetensors")
    assert name in refused(bert, "1 tensors hold NaN or infinite values")


def test_labels_of_one_name(bert: Path) -> None:
    settings(bert, id2label={"0": "A", "1": "A"})
    with pytest.raises(BertsmithError, match="2 are called 'A'"):
        _ = read(bert).labels


@pytest.mark.parametrize("key", ["x", "1.5", "9" * 5000, "²"])
def test_labels_of_odd_numbers(key: str, bert: Path) -> None:
    settings(bert, id2label={"0": "A", key: "B"})
    with pytest.raises(BertsmithError, match=r"config.json: labels: a key of id2label is"):
        _ = read(bert).labels


def test_repeated_keys_of_config_json(bert: Path) -> None:
    text = (bert / "config.json").read_text()
    (bert / "config.json").write_text(text.replace("{", '{"hidden_size": 8, ', 1))
    refused(bert, "the key 'hidden_size' occurs twice")


def test_names_reach_the_terminal_as_text(bert: Path) -> None:
    stored = renamed(bert, "")
    stored["\x1b[2J\x1b]0;title\x07"] = torch.zeros(1)
    stored["bert.embeddings.word_embeddings.\x1b[31mweight"] = stored.pop(
        "bert.embeddings.word_embeddings.weight"
    )
    save_file(stored, bert / "model.safetensors")
    message = refused(bert)
    assert "\x1b" not in message


def test_near_misses_of_built_in_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("bertsmith-smal", "bertsmith_small"):
        with pytest.raises(BertsmithError, match=r"did you mean bertsmith-small\?"):
            locate(name)


@pytest.mark.parametrize(
    ("file", "content", "fault"),
    [
        ("modules.json", ["Transformer"], "not a list of up to 16 modules"),
        ("modules.json", [{}] * 1000, "not a list of up to 16 modules"),
        ("modules.json", {"type": "Transformer"}, "expected a JSON list"),
        ("modules.json", [{"type": "Transformer", "path": 3}], "names a folder outside it"),
        ("modules.json", ["x" * (10 << 20)], "holds more than 1 MiB"),
        (
            "config_sentence_transformers.json",
            {"prompts": {"q": "x" * 20_000}},
            "a prompt has more",
        ),
        ("config_sentence_transformers.json", {"prompts": ["q"]}, "not names with texts"),
        ("config_sentence_transformers.json", {"default_prompt_name": 3}, "not names with texts"),
        ("sentence_bert_config.json", {"max_seq_length": 1e400}, "max_seq_length is inf"),
        ("sentence_bert_config.json", {"max_seq_length": "x"}, "max_seq_length is 'x'"),
    ],
)
def test_files_of_sentence_transformers(
    file: str, content: Any, fault: str, tmp_path: Path
) -> None:
    (tmp_path / "modules.json").write_text('[{"type": "x.Transformer", "path": ""}]')
    (tmp_path / file).write_text(json.dumps(content))
    with pytest.raises(BertsmithError, match=fault):
        read_sentence(tmp_path)
