"""How a run continues: itself after an interruption, or as another run that branches off."""

from pathlib import Path
from shutil import copyfile
from typing import Any, NamedTuple

from bertsmith.errors import BertsmithError, setting_name
from bertsmith.files import writing
from bertsmith.store import differences
from bertsmith.train.folder import LOGS, RunFolder
from bertsmith.train.recipe import Recipe, checked, load_recipe, parsed
from bertsmith.train.state import Checkpoints

# Keys that older runs do not have; a teacher's objectives ask for one.
LATER = {"teacher", "contrastive", "model.keep", "train.freeze", "train.layer_decay"}
LATER |= {"train.checkpointing", "evaluate.keep", "evaluate.patience", "checkpoint.film"}
LATER |= {"train.trained", "train.adapter", "lora", "data.corpora", "evaluate.held_out", "probe"}
# What a checkpoint's tensors belong to.
SAME, SAME_TRAIN = {"model", "generator", "lora"}, {"optimizer", "trained", "freeze"}


def stored_recipe(recipe: Recipe, folder: RunFolder) -> Recipe:
    """Return the recipe that a run was started with; a truncated one is an error."""
    where = str(folder.path / "recipe.toml")
    values = parsed(folder.recipe(), where)
    # All keys were written: a default in place of a lost one would change the run.
    known = Recipe().model_dump(exclude={"stages"})
    lost = [key for key in known if key not in values and key not in LATER]
    lost += [
        f"{key}.{own}"
        for key, table in known.items()
        if isinstance(table, dict) and key in values and key != "objectives"
        for own in table
        if own not in values[key] and f"{key}.{own}" not in LATER
    ]
    if lost:
        raise BertsmithError(f"{where}: damaged, since {lost[0]} is missing")
    begun = checked(values, where)
    # Device and threads may change when a run is resumed, and its data may be elsewhere.
    free = {"device": recipe.train.device, "threads": recipe.train.threads}
    places = {key: getattr(recipe.data, key) for key in ("corpus", "corpora")}
    train = begun.train.model_copy(update=free)
    data = begun.data.model_copy(update=places if any(places.values()) else {})
    return begun.model_copy(update={"train": train, "data": data})


def differing(recipe: Recipe, begun: Recipe) -> list[str]:
    """Return the keys in which a recipe differs from that of the run."""
    if not recipe.data.corpus and not recipe.data.corpora:  # use the corpus of the run
        places = {key: getattr(begun.data, key) for key in ("corpus", "corpora")}
        recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update=places)})
    before, now = (values.model_dump(exclude={"about"}) for values in (begun, recipe))
    return [f"{key} is {old!r}, not {new!r}" for key, old, new in differences(before, now)]


class Branch(NamedTuple):
    """A checkpoint of a run, from which another run starts."""

    run: Path
    step: int


def find_branch(place: str | Path) -> Branch:
    """Find the checkpoint that RUN@STEP names, or without a step the last one."""
    name, _, step = str(place).rpartition("@")
    if not name or not step.isdecimal() or Path(place).is_dir():
        name, step = str(place), ""
    run = Path(name)
    if not RunFolder(run).begun():
        raise BertsmithError(f"{run}: contains no run to branch from")
    steps = Checkpoints(run / "checkpoints").steps()
    if not steps or (step and int(step) not in steps):
        kept = f"there are {', '.join(map(str, steps))}" if steps else "there are none"
        which = f"checkpoint of step {int(step):,}" if step else "checkpoint"
        raise BertsmithError(f"{run}: no {which}; {kept} (checkpoint.keep says how many are kept)")
    return Branch(run, int(step) if step else steps[-1])


def branch_recipe(recipe: Recipe | None, branch: Branch, cool_down: int | None) -> Recipe:
    """The recipe of a branch: by default that of its run, or its cool-down of so many steps."""
    run = branch.run
    before = load_recipe(run / "recipe.toml")
    recipe = recipe or before
    if not recipe.data.corpus and not recipe.data.corpora:
        recipe = recipe.model_copy(update={"data": before.data})
    if cool_down is not None:
        _demand_constant(before, branch)
        train = recipe.train
        values: dict[str, Any] = {
            "steps": branch.step + cool_down,
            "minutes": 0.0,
            "schedule": "stable",
            "decay": float(cool_down),
            # In steps, as the whole run is now shorter or longer.
            "warmup": train.warmup if train.warmup >= 1 else train.warmup * train.steps,
        }
        changed = recipe.model_copy(update={"train": train.model_copy(update=values)})
        recipe = checked(changed.model_dump(), "the cool-down")
    if 0 < recipe.train.steps <= branch.step:
        steps = f"train.steps is {recipe.train.steps:,}: set more"
        raise BertsmithError(f"{run}: the branch starts at step {branch.step:,}, and {steps}")
    for key, old, now in differences(_fixed(before), _fixed(recipe)):
        start = setting_name("model.start", f"{run / 'model'}", option=f"--from {run / 'model'}")
        advice = f"with other settings, start a run from its model ({start})"
        raise BertsmithError(
            f"{run}: a branch keeps {key}, which is {old!r}, not {now!r}; {advice}"
        )
    return recipe


def _demand_constant(before: Recipe, branch: Branch) -> None:
    """Refuse a cool-down from a step at which the learning rate falls: it would jump up first."""
    train, falls = before.train, ""
    if train.schedule not in ("stable", "constant"):
        falls = f'(train.schedule = "{train.schedule}")'
    elif train.schedule == "stable" and train.steps:
        decay = train.decay if train.decay > 1 else train.decay * train.steps
        last = round(train.steps - decay)
        falls = f"from step {last:,} on" if branch.step > last else ""
    if falls:
        fault = f"at step {branch.step:,} that of this run falls {falls}"
        advice = 'branch before that, from a run with train.schedule = "stable" or "constant"'
        rule = f"{branch.run}: a cool-down begins at a constant learning rate"
        raise BertsmithError(f"{rule}, and {fault}; {advice}")


def _fixed(recipe: Recipe) -> dict[str, Any]:
    """The settings that a branch cannot change."""
    train = recipe.train.model_dump(include=SAME_TRAIN) | {"ema above 0": recipe.train.ema > 0}
    fixed = recipe.model_dump(include=SAME)
    return fixed | {"train": train, "objectives": sorted(recipe.objectives)}


def branch_off(branch: Branch, folder: RunFolder, corpus: str) -> None:
    """Copy a checkpoint and its logs to a new run, which resumes them; `corpus` may be another."""
    saved = Checkpoints(branch.run / "checkpoints").read(branch.step)
    numbers = saved.numbers | {"closed": False, "ended": False, "corpus": corpus}
    if corpus != saved.numbers["corpus"]:
        numbers["corpora"] = []
    Checkpoints(folder.path / "checkpoints").save(branch.step, saved.tensors, numbers)
    for name in LOGS:
        with writing(folder.path / name):
            if (log := branch.run / name).exists():
                copyfile(log, folder.path / name)
