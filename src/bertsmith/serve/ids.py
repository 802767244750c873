"""Token ids of OpenAI's clients, which are those of tiktoken's cl100k_base, as text."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from bertsmith.serve.errors import ServeError

# Of tiktoken: the file of cl100k_base in its cache, and the file's SHA-256.
NAME = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"
DIGEST = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"


@cache
def cl100k() -> Any:
    """The tokenizer of OpenAI's embedding models; None if tiktoken or its file is not here.

    tiktoken itself would fetch a file that is missing or changed.
    """
    try:
        import tiktoken
    except ImportError:
        return None
    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    try:
        content = Path(folder or Path(tempfile.gettempdir(), "data-gym-cache"), NAME).read_bytes()
    except OSError:
        return None
    return tiktoken.get_encoding("cl100k_base") if _same(content) else None


def _same(content: bytes) -> bool:
    return hashlib.sha256(content).hexdigest() == DIGEST


def cl100k_text(ids: Sequence[int]) -> str:
    """The text of ids of cl100k_base, which clients may have cut within a character."""
    try:
        text: str = cl100k().decode(list(ids), errors="replace")
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        message = f"{error}: no token id of cl100k_base, nor those of a text with this model"
        raise ServeError(422, message, param="input") from error
    return text
