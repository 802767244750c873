"""Rewriting models: from every layout that `transformers` has ever written."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from bertsmith import load
from bertsmith.checkpoint import convert
from bertsmith.errors import BertsmithError
from cli.conftest import Run
from tasks.models import Made, save


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return save(tmp_path_factory.mktemp("source"), "bert", "ForMaskedLM")


def as_bin(source: Made, folder: Path, shards: int) -> Path:
    """The same model in the old layout, in one file or several."""
    shutil.copytree(source.folder, folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    if shards == 1:
        torch.save(tensors, folder / "pytorch_model.bin")
        return folder
    names = sorted(tensors)
    index: dict[str, str] = {}
    for number in range(shards):
        file = f"pytorch_model-{number + 1:05}-of-{shards:05}.bin"
        part = {name: tensors[name] for name in names[number::shards]}
        torch.save(part, folder / file)
        index |= dict.fromkeys(part, file)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": index}))
    return folder


@pytest.mark.parametrize("shards", [1, 3])
def test_old_weights(shards: int, source: Made, run: Run, tmp_path: Path) -> None:
    folder = as_bin(source, tmp_path / "old", shards)
    shown = run("convert", folder, tmp_path / "new", "--json")
    (done,) = shown.rows
    assert (shown.status, shown.err) == (0, "")
    assert done["largest_difference"] == 0
    assert (done["family"], done["heads"], done["dtype"]) == ("bert", ["masked_lm"], "float32")
    assert done["bytes"] == (tmp_path / "new" / "model.safetensors").stat().st_size
    before, after = (load_file(f / "model.safetensors") for f in (source.folder, tmp_path / "new"))
    assert all(torch.equal(before[name], after[name]) for name in after)
    assert load(tmp_path / "new").fill_mask("a [MASK]") == source.ours.fill_mask("a [MASK]")
    assert not list((tmp_path / "new").glob("*.bin"))


def test_sharded_safetensors(source: Made, run: Run, tmp_path: Path) -> None:
    source.theirs.save_pretrained(tmp_path / "old", max_shard_size="20KB")
    source.ours.tokenizer.save(tmp_path / "old")
    assert len(list((tmp_path / "old").glob("model-*.safetensors"))) > 1
    assert run("convert", tmp_path / "old", tmp_path / "new").status == 0
    assert load(tmp_path / "new").fill_mask("a [MASK]") == source.ours.fill_mask("a [MASK]")
    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "new")
    ids = torch.tensor([[2, 9, 9, 3]])
    with torch.no_grad():
        assert torch.equal(again.eval()(ids).logits, source.theirs(ids).logits)


def test_a_bare_vocabulary_file(source: Made, run: Run, tmp_path: Path) -> None:
    folder = as_bin(source, tmp_path / "old", 1)
    known = source.ours.tokenizer.vocabulary()
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (folder / name).unlink()
    (folder / "vocab.txt").write_text("\n".join(sorted(known, key=known.__getitem__)), "utf-8")
    assert run("convert", folder, tmp_path / "new").status == 0
    text = "Anna Karlsson lives in Kraków."
    again = load(tmp_path / "new").tokenizer.encode(text)
    assert again == source.ours.tokenizer.encode(text)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_another_dtype(dtype: str, source: Made, run: Run, tmp_path: Path) -> None:
    shown = run("convert", source.folder, tmp_path / "new", "--dtype", dtype)
    assert f"written to {tmp_path / 'new'} as {dtype}, " in shown.out
    stored = load_file(tmp_path / "new" / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {getattr(torch, dtype)}
    assert json.loads((tmp_path / "new" / "config.json").read_text())["dtype"] == dtype
    assert load(tmp_path / "new").fill_mask("a [MASK]")


def test_for_a_person(source: Made, run: Run, tmp_path: Path) -> None:
    shown = run("convert", source.folder, tmp_path / "new")
    lines = shown.out.splitlines()
    assert lines[0].startswith("bert: ")
    assert lines[1] == "heads: masked_lm"
    assert lines[-1] == "read back: largest difference 0.0e+00"


def test_weights_that_do_not_fit(source: Made, run: Run, tmp_path: Path) -> None:
    shutil.copytree(source.folder, tmp_path / "old")
    tensors = load_file(tmp_path / "old" / "model.safetensors")
    tensors["cls.predictions.bias"] += 1e6
    save_file(tensors, tmp_path / "old" / "model.safetensors")
    with pytest.raises(BertsmithError, match="not all weights fit in float16"):
        run("convert", tmp_path / "old", tmp_path / "new", "--dtype", "float16")
    assert run("convert", tmp_path / "old", tmp_path / "other").status == 0


def test_nothing_is_overwritten_unasked(source: Made, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "new"
    out.mkdir()
    assert run("convert", source.folder, out).status == 0, "an empty directory is fine"
    (out / "README.md").write_text("mine")
    with pytest.raises(BertsmithError, match="name another folder, or use overwrite=True"):
        run("convert", source.folder, out)
    with pytest.raises(BertsmithError, match=r"but README.md was changed since"):
        run("convert", source.folder, out, "--overwrite")
    assert (out / "README.md").read_text() == "mine"
    (out / "README.md").unlink()
    assert run("convert", source.folder, out, "--overwrite").status == 0
    (tmp_path / "file").write_text("x")
    for more in ([], ["--overwrite"]):
        with pytest.raises(BertsmithError, match="a file of this name exists; name a folder"):
            run("convert", source.folder, tmp_path / "file", *more)
    with pytest.raises(BertsmithError, match="unknown dtype 'int8'"):
        run("convert", source.folder, tmp_path / "other", "--dtype", "int8")
    with pytest.raises(BertsmithError, match="no such directory"):
        run("convert", tmp_path / "nothing" / "here", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_onto_itself(source: Made, run: Run, tmp_path: Path) -> None:
    folder = as_bin(source, tmp_path / "model", 3)
    with pytest.raises(BertsmithError, match="replaces only what bertsmith wrote"):
        run("convert", folder, folder, "--overwrite")
    assert run("convert", folder, tmp_path / "new").status == 0
    assert run("convert", tmp_path / "new", tmp_path / "new", "--overwrite").status == 0
    assert load(tmp_path / "new").fill_mask("a [MASK]") == source.ours.fill_mask("a [MASK]")


def test_pickles_of_more_than_tensors(source: Made, tmp_path: Path) -> None:
    folder = as_bin(source, tmp_path / "old", 1)
    torch.save({"x": shutil.rmtree}, folder / "pytorch_model.bin")
    with pytest.raises(BertsmithError, match="damaged, or a pickle of more than tensors"):
        convert(folder, tmp_path / "new")
    assert not (tmp_path / "new").exists()
