"""Recipes: all that come with bertsmith are good; mistakes are one line with the nearest key."""

import tomllib
from pathlib import Path

import pytest

from bertsmith.errors import BertsmithError
from bertsmith.families import preset
from bertsmith.objectives import OBJECTIVES
from bertsmith.train import load_recipe, recipe_names
from bertsmith.train.recipe import checked

NAMES = recipe_names()


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_good_and_says_what_it_is(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.about
    assert preset(recipe.model.size)
    assert recipe.objectives.keys() <= OBJECTIVES.keys()


@pytest.mark.parametrize("name", NAMES)
def test_what_a_run_saves_is_the_same_recipe(name: str) -> None:
    recipe = load_recipe(name, ["data.corpus=a folder", "train.seed=7"])
    again = checked(tomllib.loads(recipe.toml()), "saved")
    assert again == recipe


def test_there_are_recipes_for_laptops_gpus_and_as_published() -> None:
    families = {"bert", "roberta", "albert", "electra", "deberta-v3", "modernbert"}
    assert {name.removeprefix("tiny-") for name in NAMES if name.startswith("tiny-")} >= families
    assert {f"{family}-base" for family in families} <= set(NAMES)
    assert sum(name.startswith("small-") for name in NAMES) >= 4


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
            "unknown key train.lerning_rate; did you mean learning_rate?",
        ),
        ("[trian]\nsteps = 1", "unknown key trian; did you mean train?"),
        ("[[stages]]\nlenght = 128", "unknown key stages.0.lenght; did you mean length?"),
        ("[train]\nsteps = 'many'", "train.steps: input should be a valid integer"),
        ("[train]\nsteps = -1", "train.steps: input should be greater than or equal to 0"),
        (
            "[train]\noptimizer = 'sgd'\nsteps = 1",
            "train.optimizer: input should be 'adamw', 'lamb'",
        ),
        (
            "[train]\nsteps = 5\nminutes = 5",
            "train.steps is 5 and train.minutes 5: one of the two must be 0",
        ),
        ("", "train.steps is 0 and train.minutes 0: one of the two must be 0, and not both"),
        ("[train]\nsteps = 5\n[masking]\nmask = 0.9\nrandom = 0.2", "are more than all"),
        ("[train]\nsteps = 5\n[objectives]\nnext_sentence = 1", 'needs data.format = "next"'),
        ("[train]\nsteps = 5\n[[stages]]\nlength = 9\n[[stages]]\nlength = 9", "only the last"),
        ("steps = = 1", "not TOML"),
    ],
)
def test_mistakes_are_one_line(text: str, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(BertsmithError) as caught:
        load_recipe(path)
    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)


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
