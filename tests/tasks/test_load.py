"""Opening models: what is wrong is said in one line, and soon."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from bertsmith import Bert, create, load
from bertsmith.checkpoint import Sentence, locate, read_sentence
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import pick_device, pick_dtype
from tasks.models import Made, Maker, save, tokenizer


@pytest.fixture(scope="module")
def plain(made: Maker) -> Made:
    return made("bert", "ForMaskedLM")


@pytest.fixture
def folder(plain: Made, tmp_path: Path) -> Path:
    """A copy of a good model directory, to be spoiled."""
    return shutil.copytree(plain.folder, tmp_path / "model")


def refused(use: Any, *given: Any, **more: Any) -> str:
    """The one line with which something is refused."""
    with pytest.raises(BertsmithError) as caught:
        use(*given, **more)
    assert str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    return str(caught.value)


def test_a_model_knows_itself(plain: Made) -> None:
    bert = load(str(plain.folder), device="cpu", heads=["masked_lm"])
    assert repr(bert).startswith("<bert 2x32, 0.0 M parameters, heads: masked_lm")
    assert bert.max_length == 128
    assert bert.device == torch.device("cpu")
    assert [*load(plain.folder, heads="masked_lm").checkpoint.entries] == ["masked_lm"]


def test_the_shorter_limit_counts(folder: Path) -> None:
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"model_max_length": 50}))
    assert load(folder).max_length == 50
    config.write_text(json.dumps(json.loads(config.read_text()) | {"model_max_length": 5000}))
    assert load(folder).max_length == 128


# ------------------------------------------------------------------ names of models


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("/no/such/place", "/no/such/place: no such directory"),
        ("./nowhere", "./nowhere: no such directory"),
        ("~/no-such-model", "~/no-such-model: no such directory"),
        ("a/b/c", "a/b/c: no such directory"),
        ("what is this", "what is this: no such directory"),
        ("a\0b", "no such directory"),
        (Path("no-such-model"), "no-such-model: no such directory"),
        ("x" * 300, "File name too long"),
        ("", "expected a model directory or a hub id, not ''"),
        (None, "expected a model directory or a hub id, not None"),
        (7, "expected a model directory or a hub id, not 7"),
    ],
)
def test_names_that_lead_nowhere(name: Any, fault: str) -> None:
    assert fault in refused(locate, name)


def test_a_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("x")
    assert refused(locate, tmp_path / "model").endswith(
        "expected a model directory, but this is a file"
    )


def test_the_folder_of_a_run_names_its_model(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    for name in ("recipe.toml", "model/config.json"):
        (tmp_path / name).write_text("")
    model = tmp_path / "model"
    assert refused(locate, tmp_path) == f"{tmp_path}: a pre-training run; its model is {model}"


@pytest.mark.parametrize("name", ["nobody-at-all/no-such-model", "no-such-model"])
def test_a_hub_id_without_the_hub(name: str) -> None:
    import huggingface_hub.constants

    assert huggingface_hub.constants.HF_HUB_OFFLINE, "tests never ask the network"
    assert refused(locate, name) == (
        f"{name}: no such directory, not a built-in model (bertsmith-classic, bertsmith-embed,"
        " bertsmith-small), not in the hub's cache, and the hub cannot be reached"
    )


def test_a_hub_id_in_the_cache(plain: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def download(name: str, allow_patterns: Any) -> str:
        asked.append(allow_patterns)
        return str(plain.folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert locate("someone/some-model") == plain.folder
    assert len(asked) == 1, "safetensors were there: no old weights are fetched"
    assert "pytorch_model*.bin" not in asked[0]


# ------------------------------------------------------------------ devices and dtypes


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "meta", "cpu:x", "hpu", 3.5, [1], "mps"])
def test_devices_that_are_not_here(device: Any) -> None:
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        pytest.skip("this machine has more devices")
    assert "(available: cpu" in refused(pick_device, device)


def test_devices_that_are_here() -> None:
    assert pick_device("cpu") == pick_device(torch.device("cpu")) == torch.device("cpu")
    assert pick_device(None).type in ("cpu", "cuda")


@pytest.mark.parametrize("dtype", ["int8", "float64", "", None, 16, torch.int64, torch.float64])
def test_unknown_dtypes(dtype: Any) -> None:
    assert "known: float32, bfloat16, float16" in refused(pick_dtype, dtype)


def test_dtypes_reach_the_weights(plain: Made) -> None:
    bert = load(plain.folder, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in bert.model.parameters()} == {torch.bfloat16}
    assert bert.fill_mask("the [MASK]")[0].score > 0


@pytest.mark.parametrize("budget", [0, -5, 1.5, "many"])
def test_a_bad_budget(budget: Any, plain: Made) -> None:
    fault = "budget must be a whole number of at least 1"
    assert fault in refused(load, plain.folder, budget=budget)


# ------------------------------------------------------------------ directories


def test_a_tokenizer_that_is_too_large(plain: Made, folder: Path) -> None:
    tokenizer("roberta").save(folder)
    fault = refused(load, folder)
    assert "the tokenizer has" in fault
    assert "they do not belong together" in fault
    checkpoint = create("bert-tiny", vocab_size=50)
    assert "the model only 50" in refused(Bert, checkpoint, tokenizer("bert"))


def test_a_directory_without_a_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    assert "holds no tokenizer: none of tokenizer.json, vocab.txt" in refused(load, folder)


def test_a_tokenizer_that_is_broken(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    assert "cannot be used as a tokenizer" in refused(load, folder)


def test_a_directory_without_a_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    assert "'config.json' is missing" in refused(load, folder)


def test_a_head_that_is_not_there(plain: Made) -> None:
    refused(load, plain.folder, heads=["classify"])
    refused(load, plain.folder, heads=["nonsense"])
    bert = load(plain.folder)
    for use in (bert.classify, bert.tag):
        assert "no such head (it has: masked_lm" in refused(use, "a")
    assert "cannot answer questions" in refused(bert.answer, "a", "b")
    assert "cannot choose" in refused(bert.choose, "a", ["b"])


def test_a_config_that_does_not_say_what_it_is(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    del config["model_type"]
    (folder / "config.json").write_text(json.dumps(config))
    refused(load, folder)
    assert load(folder, family="bert").fill_mask("the [MASK]")
    refused(load, folder, family="nonsense")


def test_a_directory_that_cannot_be_written(plain: Made, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    refused(plain.ours.save, tmp_path / "file")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "1_Pooling").write_text("x")
    assert "cannot be written" in refused(plain.ours.save, tmp_path / "out")
    refused(plain.ours.save, tmp_path / "new", dtype="int8")


def test_what_is_saved_has_a_card(plain: Made, tmp_path: Path) -> None:
    plain.ours.save(tmp_path / "river")
    card = (tmp_path / "river" / "README.md").read_text()
    assert 'bs.load("river")' in card
    assert "pipeline_tag: fill-mask" in card
    assert "bert: 2 layers, 32 wide, 4 attention heads" in card
    (tmp_path / "river" / "README.md").write_text("mine")
    plain.ours.save(tmp_path / "river")
    assert (tmp_path / "river" / "README.md").read_text() == "mine", "a person's own stays"


# ------------------------------------------------------------------ hostile modules.json

TRANSFORMER = {"path": "", "type": "sentence_transformers.models.Transformer"}
POOLING = {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}


@pytest.mark.parametrize(
    ("modules", "fault"),
    [
        ("{", "not valid JSON"),
        ("{}", "expected a JSON list, not dict"),
        ('"x"', "expected a JSON list, not str"),
        ("[1]", "not a list of up to 16 modules"),
        ("[null]", "not a list of up to 16 modules"),
        ("[[]]", "not a list of up to 16 modules"),
        ("[" * 100_000, "not valid JSON"),
        ([{"type": "sentence_transformers.models.LSTM"}], "the module 'LSTM' is not supported"),
        ([{"type": "sentence_transformers.models.Dense"}], "has no tensor linear.weight"),
        ([{"type": "x.Dense", "path": "../other"}], "names a folder outside it"),
        ([{"type": "x.Dense", "path": "2_Dense"}], "cannot be read (No such file or directory)"),
        ([{"type": "os.system", "path": "x"}], "the module 'system' is not supported"),
        ([{"type": ["Transformer"]}], "is not supported"),
        ([{"path": ""}], "the module 'None' is not supported"),
        ([TRANSFORMER | {"path": "../.."}], "names a folder outside it: '../..'"),
        ([TRANSFORMER | {"path": "/etc"}], "names a folder outside it: '/etc'"),
        ([TRANSFORMER | {"path": "a/../../b"}], "names a folder outside it"),
        ([TRANSFORMER | {"path": "a\0b"}], "names a folder outside it"),
        ([TRANSFORMER | {"path": 5}], "names a folder outside it: 5"),
        ([TRANSFORMER | {"path": None}], "names a folder outside it: None"),
        ([POOLING | {"path": "../other"}], "names a folder outside it"),
        ([POOLING | {"path": "nowhere"}], "cannot be read (No such file or directory)"),
        ([POOLING | {"path": "link"}], "names a folder outside it"),
    ],
)
def test_hostile_modules(modules: Any, fault: str, folder: Path) -> None:
    text = modules if isinstance(modules, str) else json.dumps(modules)
    (folder / "modules.json").write_text(text)
    (folder / "link").symlink_to(folder.parent)
    assert fault in refused(load, folder)


@pytest.mark.parametrize(
    "pooling",
    [
        "[]",
        "{",
        {"pooling_mode_max_tokens": True},
        {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
        {"pooling_mode": "lasttoken"},
        {"pooling_mode": ["mean", "cls"]},
        {"pooling_mode": 7},
        {"pooling_mode": {"mean": 1}},
        {"pooling_mode": [["mean"]]},
    ],
)
def test_pooling_that_is_not_ours(pooling: Any, folder: Path) -> None:
    (folder / "modules.json").write_text(json.dumps([TRANSFORMER, POOLING]))
    (folder / "1_Pooling").mkdir()
    text = pooling if isinstance(pooling, str) else json.dumps(pooling)
    (folder / "1_Pooling" / "config.json").write_text(text)
    refused(load, folder)


@pytest.mark.parametrize(
    ("pooling", "pool"),
    [
        ({}, "mean"),
        ({"pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "first"),
        ({"pooling_mode": "cls"}, "first"),
        ({"pooling_mode": ["mean"]}, "mean"),
        ({"pooling_mode": "cls", "pooling_mode_mean_tokens": True}, "first"),
    ],
)
def test_pooling_that_is_ours(pooling: Any, pool: str, folder: Path) -> None:
    (folder / "modules.json").write_text(json.dumps([TRANSFORMER, POOLING]))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    assert read_sentence(folder) == (folder, Sentence(pool))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("sentence_bert_config.json", '{"max_seq_length": "long"}'),
        ("sentence_bert_config.json", '{"max_seq_length": 0}'),
        ("sentence_bert_config.json", '{"max_seq_length": true}'),
        ("sentence_bert_config.json", "[]"),
        ("config_sentence_transformers.json", '{"prompts": 5}'),
        ("config_sentence_transformers.json", '{"prompts": {"a": 5}}'),
        ("config_sentence_transformers.json", '{"default_prompt_name": "a"}'),
        ("config_sentence_transformers.json", '{"prompts": {"a": "b"}, "default_prompt_name": []}'),
    ],
)
def test_bad_settings_beside_modules(name: str, content: str, folder: Path) -> None:
    (folder / "modules.json").write_text(json.dumps([TRANSFORMER]))
    (folder / name).write_text(content)
    assert name in refused(load, folder)


def test_a_limit_that_leaves_no_room(folder: Path) -> None:
    (folder / "modules.json").write_text(json.dumps([TRANSFORMER]))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 2}')
    assert "no room for a text" in refused(load(folder).embed, "a")


def test_ids_beyond_the_model_never_reach_it(tmp_path: Path) -> None:
    model = save(tmp_path, "bert", "ForMaskedLM", vocab_size=tokenizer("bert").size + 5)
    assert model.ours.fill_mask("the [MASK]")
