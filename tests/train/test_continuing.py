"""A run that continues a model: its shape is kept, whatever the recipe's own sizes are."""

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import torch

from bertsmith.checkpoint import Sentence, create, locate, read, save
from bertsmith.corpus import Corpus
from bertsmith.errors import BertsmithError
from bertsmith.model import Config
from bertsmith.objectives import TAUGHT
from bertsmith.reports.quantize import quantize
from bertsmith.tokenizer import Tokenizer
from bertsmith.train import Recipe, load_recipe, pretrain, recipe_names
from bertsmith.train.building import built

SIZES: dict[str, dict[str, Any]] = {
    "bert": {"model_type": "bert", "intermediate_size": 64},
    "electra": {"model_type": "electra", "intermediate_size": 64, "embedding_size": 16},
    "modernbert": {
        "model_type": "modernbert",
        "intermediate_size": 48,
        "global_attn_every_n_layers": 1,
    },
}
COMMON = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": None,
}
Store = Callable[..., Path]


@pytest.fixture(scope="module")
def tokenizer(prepared: Path) -> Tokenizer:
    return Corpus.open(prepared).tokenizer


@pytest.fixture(scope="module")
def store(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Save a tiny model of a family, with only a masked-LM head."""

    def make(family: str, **changes: Any) -> Path:
        folder = tmp_path_factory.mktemp(family)
        special = {"pad_token_id": tokenizer.pad_id, "vocab_size": tokenizer.size}
        settings = {**SIZES[family], **COMMON, **special, **changes}
        checkpoint = create(settings, heads=["masked_lm"], seed=3)
        save(folder, checkpoint, tokenizer, Sentence())
        return folder

    return make


def shape(config: Config) -> Config:
    """A config but for its dropout and its heads."""
    dropout = {name: 0.0 for name in Config.__dataclass_fields__ if name.endswith("_dropout")}
    return replace(config, **dropout, heads={})  # type: ignore[arg-type]


def continued(name: str, start: Path | str, *changes: str) -> Recipe:
    return load_recipe(name, [f"model.start={start}", *changes])


NAMES = [
    name
    for name in recipe_names()
    if not name.endswith("left-to-right") and not load_recipe(name).objectives.keys() & TAUGHT
]


@pytest.mark.parametrize(("name", "family"), list(zip(NAMES, cycle(SIZES), strict=False)))
def test_every_recipe_continues_a_model_of_any_family(
    name: str, family: str, store: Store, tokenizer: Tokenizer
) -> None:
    start = store(family)
    short = "stages=[{length=64}]" if load_recipe(name).stages else "data.length=64"
    before = read(start)
    changes = (short, "generator.sharing=shared", "model.keep=[]", "generator.model=")
    made = built(continued(name, start, *changes), tokenizer)
    after = made.checkpoint
    assert shape(after.config) == shape(before.config)
    assert after.family == before.family
    stored = dict(before.model.encoder.named_parameters())
    for path, parameter in after.model.encoder.named_parameters():
        torch.testing.assert_close(parameter, stored[path], rtol=0, atol=0, msg=path)


def test_what_is_ignored_is_reported(store: Store, tokenizer: Tokenizer) -> None:
    start = store("bert")
    made = built(continued("small-bert", start), tokenizer)
    assert made.ignored == (
        "model.settings.hidden_size",
        "model.settings.num_hidden_layers",
        "model.settings.num_attention_heads",
        "model.settings.intermediate_size",
    )
    assert made.checkpoint.config.embedding_dropout == 0.0  # as small-bert says
    assert read(start).config.embedding_dropout == 0.1
    # A key of another family (DistilBERT): nothing is lost in silence.
    other = built(continued("adapt", start, "model.settings.dropout=0.2"), tokenizer)
    assert other.ignored == ("model.settings.dropout",)
    assert built(continued("adapt", start), tokenizer).ignored == ()


def test_a_model_of_int8_weights_is_not_continued(
    store: Store, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    quantize(store("bert"), tmp_path / "q")
    with pytest.raises(BertsmithError, match="int8 already; start from the float32 model"):
        built(continued("adapt", tmp_path / "q"), tokenizer)


def test_the_recipe_of_a_model_continues_it_and_ignores_nothing() -> None:
    own = Tokenizer.load(locate("bertsmith-classic"))
    made = built(continued("bertsmith-classic", "bertsmith-classic"), own)
    assert made.ignored == ()
    assert made.checkpoint.config == read(locate("bertsmith-classic")).config


def test_new_objectives_bring_new_heads(store: Store, tokenizer: Tokenizer) -> None:
    start = store("bert")
    assert "next_sentence" not in read(start).entries
    pairs = built(continued("bert-base", start), tokenizer)
    assert set(pairs.checkpoint.model.heads) == {"masked_lm", "next_sentence"}
    assert pairs.extra == ()
    replaced = built(continued("small-electra", start), tokenizer)
    assert replaced.extra == ("replaced",)
    assert replaced.ignored == ("model.size",)


def test_the_generator_can_be_the_model_that_a_run_starts_from(
    store: Store, tokenizer: Tokenizer
) -> None:
    start = store("modernbert")
    layers = read(start).config.layers
    twice = f"model.keep={[*range(layers), layers - 1]}"
    made = built(
        continued("bertsmith-small-replaced", start, twice, "stages=[{length=64}]"), tokenizer
    )
    assert made.checkpoint.config.layers == layers + 1
    replaced = next(one for one in made.learner.objectives if one.kind == "replaced")
    stored = dict(read(start).model.encoder.named_parameters())
    for path, parameter in replaced.outside[0].encoder.named_parameters():
        torch.testing.assert_close(parameter, stored[path], rtol=0, atol=0, msg=path)
    assert made.generator is None  # it is not stored with the run's result


def test_what_cannot_be_continued_is_one_line(store: Store, tokenizer: Tokenizer) -> None:
    short = store("bert", max_position_embeddings=64)
    for name, key in (("adapt", "lower data.length"), ("bert-base", "lower the length of its st")):
        with pytest.raises(BertsmithError, match=f"reads at most 64 tokens.*{key}"):
            built(continued(name, short), tokenizer)
    with pytest.raises(BertsmithError, match="needs a model that was trained from left to right"):
        built(continued("tiny-bert-left-to-right", store("bert")), tokenizer)
    with pytest.raises(BertsmithError, match=r"name it with model.start, or a size"):
        built(load_recipe("adapt"), tokenizer)
    with pytest.raises(BertsmithError, match=r"name it with model.start$"):
        built(load_recipe("bertsmith-small-replaced"), tokenizer)
    with pytest.raises(BertsmithError, match='"start" is the model that the run starts from'):
        built(load_recipe("tiny-electra", ["generator.model=start"]), tokenizer)
    with pytest.raises(BertsmithError, match="embedding_dropout is 7"):
        built(continued("adapt", short, "model.settings.hidden_dropout_prob=7"), tokenizer)


def test_a_run_continues_and_notes_what_it_ignored(
    store: Store, prepared: Path, tmp_path: Path
) -> None:
    start, run = store("bert"), tmp_path / "run"
    changes = [f"data.corpus={prepared}", "train.steps=2", "train.minutes=0", "data.length=32"]
    changes += ["train.compile=false", "train.batch_tokens=256", "evaluate.tokens=128"]
    result = pretrain(continued("small-bert", start, *changes), run, show="none")
    assert result["finished"]
    assert shape(read(run / "model").config) == shape(read(start).config)
    ledger = (run / "ledger.json").read_text()
    for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"):
        assert f"model.settings.{key}" in ledger
    assert "dropout" not in ledger
