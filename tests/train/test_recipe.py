"""Recipes: all that come with bertsmith are good; mistakes are one line with the nearest key."""

import math
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from bertsmith.errors import BertsmithError
from bertsmith.families import preset
from bertsmith.objectives import OBJECTIVES
from bertsmith.train import load_recipe, recipe_names
from bertsmith.train.recipe import Recipe, change, checked

NAMES = recipe_names()


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_good_and_says_what_it_is(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.about
    continues = ("adapt", "distilbert", "bertsmith-small-replaced", "bertsmith-small-pairs")
    assert name in continues or recipe.model.start or preset(recipe.model.size)
    assert recipe.objectives.keys() <= OBJECTIVES.keys()


@pytest.mark.parametrize("name", NAMES)
def test_what_a_run_saves_is_the_same_recipe(name: str) -> None:
    recipe = load_recipe(name, ["data.corpus=a folder", "train.seed=7"])
    again = checked(tomllib.loads(recipe.toml()), "saved")
    assert again == recipe


TEXT = some.text()  # every character that UTF-8 can hold: control characters and emoji, too
NUMBER = some.floats(allow_nan=False, allow_infinity=False)
VALUE = some.recursive(
    TEXT | NUMBER | some.booleans() | some.integers(-(2**63), 2**63),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(TEXT, inner, max_size=3),
)
SETTINGS = some.dictionaries(TEXT, VALUE, max_size=4)
STAGE = some.builds(dict, length=some.integers(8, 8192), batch_tokens=some.integers(0, 2**31))


@settings(max_examples=200, deadline=None)
@given(TEXT, TEXT, SETTINGS, some.lists(STAGE, max_size=1), some.floats(1e-300, 1))
def test_a_recipe_of_any_values_is_read_as_it_was_written(
    about: str, path: str, values: dict[str, Any], stages: list[Any], rate: float
) -> None:
    recipe = checked(
        {
            "about": about,
            "model": {"settings": values, "start": path},
            "data": {"corpus": path},
            "stages": stages,
            "train": {"steps": 1, "learning_rate": rate},
        },
        "drawn",
    )
    stored = recipe.toml().encode().decode()
    assert checked(tomllib.loads(stored), "stored") == recipe


@given(TEXT)
def test_a_path_is_taken_as_it_is(path: str) -> None:
    recipe = load_recipe("tiny-bert", [change("data.corpus", path)])
    assert recipe.data.corpus == path


def test_paths_with_emoji_and_paths_like_numbers_are_read_again(tmp_path: Path) -> None:
    for path in ("texts/😀", "2024", "true", "[a]", '"'):
        file = tmp_path / "recipe.toml"
        file.write_text(load_recipe("tiny-bert", [change("data.corpus", path)]).toml(), "utf-8")
        assert load_recipe(file).data.corpus == path


def test_there_are_recipes_for_laptops_gpus_and_as_published() -> None:
    families = {"bert", "roberta", "albert", "electra", "deberta-v3", "modernbert"}
    assert {name.removeprefix("tiny-") for name in NAMES if name.startswith("tiny-")} >= families
    assert {f"{family}-base" for family in families} <= set(NAMES)
    assert sum(name.startswith("small-") for name in NAMES) >= 4


PUBLISHED = {  # steps, sequences, learning rate, warm-up, second beta, weight decay, clipping
    "bert-base": (1_000_000, 256, 1e-4, 10_000, 0.999, 0.01, 1.0),
    "bert-large": (1_000_000, 256, 1e-4, 10_000, 0.999, 0.01, 1.0),
    "roberta-base": (500_000, 8192, 6e-4, 24_000, 0.98, 0.01, 0.0),
    "roberta-large": (500_000, 8192, 4e-4, 30_000, 0.98, 0.01, 0.0),
    "albert-base": (125_000, 4096, 1.76e-3, 3125, 0.999, 0.01, 1.0),
    "electra-small": (1_000_000, 128, 5e-4, 10_000, 0.999, 0.01, 1.0),
    "electra-base": (766_000, 256, 2e-4, 10_000, 0.999, 0.01, 1.0),
    "deberta-v3-base": (500_000, 8192, 6e-4, 10_000, 0.98, 0.01, 1.0),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_recipes_as_published_are_those_of_the_papers(name: str) -> None:
    recipe = load_recipe(name)
    train, (length, tokens, _) = recipe.train, recipe.lengths()[-1]
    found = (train.steps, tokens // length, train.learning_rate, train.warmup)
    assert (*found, train.betas[1], train.weight_decay, train.clip) == PUBLISHED[name]
    assert (train.epsilon, train.betas[0], train.schedule) == (1e-6, 0.9, "linear")
    assert "as published" in recipe.about


def test_modernbert_clips_updates_and_warms_up_for_3b_tokens() -> None:
    train = load_recipe("modernbert-base").train
    assert (train.optimizer, train.clip, train.learning_rate) == ("stable_adamw", 0.0, 8e-4)
    growth = (train.batch_tokens - train.ramp_from) / train.ramp_steps
    warmed = train.warmup * (train.ramp_from + growth * train.warmup / 2)
    assert warmed == pytest.approx(3e9, rel=0.02)


def test_albert_as_published_is_the_first_version() -> None:
    assert load_recipe("albert-base").model.size == "albert-base-v1"  # with the paper's dropout


def test_keys_can_be_changed() -> None:
    recipe = load_recipe(
        "tiny-bert",
        ["train.learning_rate=5e-4", "model.settings.hidden_size=64", "data.corpus=my/corpus=1"],
    )
    assert recipe.train.learning_rate == 5e-4
    assert recipe.model.settings["hidden_size"] == 64
    assert recipe.data.corpus == "my/corpus=1"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "[train]\nlerning_rate = 1",
            "unknown key train.lerning_rate; did you mean train.learning_rate?",
        ),
        ("[trian]\nsteps = 1", "unknown key trian; did you mean train?"),
        ("seed = 3", "unknown key seed; did you mean train.seed?"),
        ("[[stages]]\nlenght = 128", "unknown key stages.0.lenght; did you mean stages.0.length?"),
        ("[train]\nsteps = 'many'", "train.steps: input should be a valid integer"),
        ("[train]\nsteps = -1", "train.steps: input should be greater than or equal to 0"),
        (
            "[train]\noptimizer = 'sgd'\nsteps = 1",
            "train.optimizer: input should be 'adamw', 'lamb'",
        ),
        (
            "[train]\nsteps = 5\nminutes = 5",
            "train.steps is 5 and train.minutes 5; set one of the two to 0",
        ),
        ("", "how long? Set train.steps or train.minutes above 0"),
        (
            "[train]\nsteps = 5\n[masking]\nmask = 0.9\nrandom = 0.2",
            "masking.mask + masking.random is more than 1",
        ),
        (
            "[train]\nsteps = 5\n[masking]\nsmoothing = 0.7\nunit = 'word'",
            'masking.smoothing needs masking.unit = "token"',
        ),
        (
            "[train]\nsteps = 5\nprecision = 'fp8'",
            'train.precision = "fp8" needs train.compile = true',
        ),
        ("[train]\nsteps = 5\n[objectives]\nnext_sentence = 1", 'needs data.format = "next"'),
        ("[train]\nsteps = 5\n[[stages]]\nlength = 9\n[[stages]]\nlength = 9", "only the last"),
        ("steps = = 1", "not TOML"),
        (f"[train]\nsteps = {'9' * 5000}", "not TOML"),
        ("x = " + "[" * 5_000, "not TOML"),
        ("[train]\nlearning_rate = inf", "train.learning_rate: input should be a finite number"),
        ("[train]\nlearning_rate = nan", "train.learning_rate: input should be a finite number"),
        ("[train]\nlearning_rate = 1e400", "train.learning_rate: input should be a finite number"),
        ("[train]\nbetas = [0.9, nan]", "train.betas.1: input should be a finite number"),
        ("[train]\nbetas = [0.9, 1.0]", "train.betas.1: input should be less than 1"),
        ("[train]\nminutes = inf", "train.minutes: input should be a finite number"),
        ("[train]\nclip = inf", "train.clip: input should be a finite number"),
        ("[train]\nclip = -1", "train.clip: input should be greater than or equal to 0"),
        ("[objectives]\nmasked_lm = inf", "objectives.masked_lm: input should be a finite number"),
        ("[objectives]\nmasked_lm = -1", "objectives.masked_lm: input should be greater than"),
        ("[model.settings]\na = {b = [inf]}", "model.settings: a: b: inf is not a finite number"),
        ("[model.settings]\na = 2020-01-01", "is not text, a number, a list or a table"),
        ("[data]\nworkers = 1025", "data.workers: input should be less than or equal to 1024"),
        ("[train]\nthreads = 9999", "train.threads: input should be less than or equal to 1024"),
        ("[train]\nmicro_tokens = 2147483649", "train.micro_tokens: input should be less than"),
        ("[train]\nbatch_tokens = 2147483649", "train.batch_tokens: input should be less than"),
        ("[train]\nseed = -1", "train.seed: input should be greater than or equal to 0"),
        ('["a\\nb"]\nx = 1', "unknown key a b"),
    ],
)
def test_mistakes_are_one_line(text: str, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(BertsmithError) as caught:
        load_recipe(path)
    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)


def _numbers(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Every number in a JSON schema."""
    here = [schema] if schema.get("type") in ("number", "integer") else []
    inner = [value for value in schema.values() if isinstance(value, dict)]
    listed = [v for value in schema.values() if isinstance(value, list) for v in value]
    inner += [value for value in listed if isinstance(value, dict)]
    return here + [number for value in inner for number in _numbers(value)]


def test_every_number_has_a_least_and_a_most() -> None:
    numbers = _numbers(Recipe.model_json_schema())
    assert len(numbers) > 30
    for number in numbers:
        assert {"minimum", "exclusiveMinimum"} & number.keys(), number
        assert {"maximum", "exclusiveMaximum"} & number.keys(), number


def test_a_recipe_that_is_cut_or_not_text_is_one_line(tmp_path: Path) -> None:
    file, whole = tmp_path / "recipe.toml", load_recipe("bert-base").toml()
    begins = whole.index("[train]")
    for end in range(0, begins, 37):  # without its steps, a recipe is none
        file.write_text(whole[:end])
        with pytest.raises(BertsmithError, match=r"^[^\n]+$"):
            load_recipe(file)
    file.write_bytes(whole.encode("utf-16"))
    with pytest.raises(BertsmithError, match=r"recipe\.toml: not UTF-8 text"):
        load_recipe(file)


def test_gradient_clipping_can_be_switched_off() -> None:
    assert load_recipe("tiny-bert", ["train.clip=0"]).train.clip == 0
    assert math.isfinite(load_recipe("tiny-bert").train.clip)


def test_stages_are_changed_by_their_number() -> None:
    recipe = load_recipe("bert-base", ["stages.1.batch_tokens=262144", "stages.0.steps=5"])
    assert recipe.lengths() == [(128, 32768, 5), (512, 262_144, 0)]
    for bad, fault in (("stages.2.steps=1", "there are 2"), ("stages.1=1", "name a key")):
        with pytest.raises(BertsmithError, match=fault):
            load_recipe("bert-base", [bad])


def test_unknown_names_and_bad_changes() -> None:
    with pytest.raises(BertsmithError, match="did you mean tiny-bert"):
        load_recipe("tiny-brt")
    with pytest.raises(BertsmithError, match="it should look like"):
        load_recipe("tiny-bert", ["train.steps"])
    with pytest.raises(BertsmithError, match="steps is not a table"):
        load_recipe("tiny-bert", ["train.steps.more=1"])


def test_stages_and_their_batches() -> None:
    recipe = load_recipe("bert-base")
    assert recipe.lengths() == [(128, 32768, 900_000), (512, 131_072, 0)]
    assert load_recipe("tiny-bert").lengths() == [(64, 4096, 0)]


@pytest.mark.parametrize(
    "change",
    [
        "train.threads=100000",
        "data.workers=99999",
        "train.learning_rate=inf",
        "train.learning_rate=nan",
        "train.seed=1e400",
        f"train.steps={'9' * 5000}",
        "data.length=1e99",
        "model.settings.hidden_size=inf",
        f"train.steps={'[' * 5000}",
        f"{'x' * 100_000}=1",
    ],
    ids=lambda change: change[:30],
)
def test_absurd_values_are_one_line(change: str) -> None:
    with pytest.raises(BertsmithError) as error:
        load_recipe("adapt", [change])
    assert len(str(error.value)) < 400
    assert "\n" not in str(error.value)
