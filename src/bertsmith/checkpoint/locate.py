"""From what a person types to a directory on this machine."""

from __future__ import annotations

from pathlib import Path

from bertsmith.errors import BertsmithError

HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "pytorch_model*.bin"]


def locate(name: str | Path) -> Path:
    """The directory of a model; a hub id is fetched."""
    path = Path(name)
    if path.is_dir():
        return path
    if path.exists():
        raise BertsmithError(f"{name}: a model is a directory, and this is a file")
    parts = str(name).split("/")
    if len(parts) > 2 or not all(parts) or str(name).startswith((".", "~")):
        raise BertsmithError(f"{name}: there is no such directory")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(str(name), allow_patterns=HUB_FILES))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BertsmithError(
            f"{name}: no such directory, and the hub did not give it ({reason})"
        ) from error
