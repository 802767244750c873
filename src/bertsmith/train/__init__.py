"""Training: the loop, optimizers, schedules, guards, run state, and pre-training by recipe.

    pretrain(load_recipe("recipes/bert-tiny.toml"), "run")   # from shards to a model directory
    pretrain(..., resume=True)                               # goes on where it was

A run is a folder: recipe.toml, log.jsonl (a line a step, the same bytes however often the run
was interrupted), timing.jsonl, ledger.json, checkpoints/, and at the end model/.
"""

from bertsmith.train.optimizer import OPTIMIZERS
from bertsmith.train.plan import plan
from bertsmith.train.pretrain import pretrain
from bertsmith.train.recipe import Recipe, load_recipe, recipe_names
from bertsmith.train.schedule import SCHEDULES
from bertsmith.train.verify import verify_resume

__all__ = ["OPTIMIZERS", "SCHEDULES", "Recipe", "load_recipe", "plan", "pretrain"]
__all__ += ["recipe_names", "verify_resume"]
