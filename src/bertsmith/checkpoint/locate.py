"""From a model's name, path or hub id to a directory on this machine."""

import re
from pathlib import Path

from bertsmith.checkpoint.files import readable
from bertsmith.checkpoint.sentence import read_sentence
from bertsmith.errors import BertsmithError, nearest
from bertsmith.files import one_line
from bertsmith.folders import files_hash

HUB_ID = re.compile(r"[\w-][\w.-]{0,95}(/[\w-][\w.-]{0,95})?", re.ASCII)
HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*_Dense/*.bin"]
OLD_WEIGHTS = "pytorch_model*.bin"  # only where there are no others
MODEL_HAS = ("config.json", "modules.json")
BUILT_IN = Path(__file__).resolve().parent.parent / "models"


def built_in() -> dict[str, Path]:
    """Return the directory of each model that comes with the package, by name."""
    return {path.parent.name: path.parent for path in sorted(BUILT_IN.glob("*/config.json"))}


def locate(name: str | Path) -> Path:
    """Return the directory of a model: a path, a model of the package, or a downloaded hub id."""
    if not isinstance(name, str | Path) or not str(name):
        raise BertsmithError(f"expected a model directory or a hub id, not {name!r}")
    with readable(Path(one_line(name)), "cannot be a directory"):
        path = Path(name).expanduser()
        own = built_in().get(name) if isinstance(name, str) else None
        if own and not any((path / file).is_file() for file in MODEL_HAS):
            return own  # not a folder that is called so and holds something else, such as a run
        if path.is_dir():
            if (path / "recipe.toml").is_file() and (path / "model" / "config.json").is_file():
                raise BertsmithError(f"{name}: a pre-training run; its model is {path / 'model'}")
            return path
        if path.exists():
            raise BertsmithError(f"{name}: expected a model directory, but this is a file")
    if isinstance(name, Path) or not HUB_ID.fullmatch(name):
        raise BertsmithError(f"{one_line(name)}: no such directory")
    return _fetch(name)


def model_hash(name: str | Path) -> str:
    """Return the SHA-256 sum of the files of a model that determine its results."""
    directory = locate(name)
    sentence = read_sentence(directory)
    return files_hash({directory, sentence[0]} if sentence else {directory})


def _fetch(name: str) -> Path:
    """A model of the hub: from the cache on this machine, else over the network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    near = nearest(name, built_in())
    nowhere = f"{name}: no such directory, not a built-in model ({', '.join(built_in())})"
    try:
        folder = Path(snapshot_download(name, allow_patterns=HUB_FILES))
        if not any(folder.rglob("*.safetensors")):
            snapshot_download(name, allow_patterns=OLD_WEIGHTS)
    except LocalEntryNotFoundError:
        why = f"not in the hub's cache, and the hub cannot be reached{near}"
        raise BertsmithError(f"{nowhere}, {why}") from None
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        why = one_line(str(error).strip().partition("\n")[0])
        raise BertsmithError(f"{nowhere}, and the hub says: {why}{near}") from None
    return folder
