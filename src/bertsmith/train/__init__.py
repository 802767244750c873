"""Training: the loop, optimizers, schedules, guards, run state, and pre-training by recipe.

    pretrain(load_recipe("bert-tiny-cpu"), "run")   # from shards to a model directory
    pretrain(..., resume=True)                      # continues from the last checkpoint

A run is a folder: recipe.toml, log.jsonl (one line per step, the same bytes even if the run
was interrupted), timing.jsonl, ledger.json, checkpoints/, and at the end model/.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertsmith.train.planning import plan
    from bertsmith.train.pretraining import pretrain
    from bertsmith.train.recipe import Recipe, load_recipe, recipe_names
    from bertsmith.train.verify import verify_resume

# Imported lazily: recipes can be listed without torch, blocks compiled without recipes.
_HOMES = {
    "Recipe": "recipe",
    "load_recipe": "recipe",
    "plan": "planning",
    "pretrain": "pretraining",
    "recipe_names": "recipe",
    "verify_resume": "verify",
}
__all__ = ["Recipe", "load_recipe", "plan", "pretrain", "recipe_names", "verify_resume"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bertsmith.train' has no attribute {name!r}")
    return getattr(import_module(f"bertsmith.train.{_HOMES[name]}"), name)
