"""Token ids as text: those of the model, or of tiktoken's cl100k_base (OpenAI's clients)."""

import hashlib
import os
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from bertsmith.serve.errors import ServeError
from bertsmith.tokenizer import Tokenizer

# Of tiktoken: the file of cl100k_base in its cache, and the file's SHA-256.
NAME = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"
DIGEST = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
HINT = (
    "send text instead (langchain: OpenAIEmbeddings(check_embedding_ctx_length=False)); only ids "
    "that this server's /tokenize returns are accepted"
)


def ids_to_text(tokenizer: Tokenizer, ids: Sequence[int], *, framed: bool) -> str:
    """Return the text of token ids; ids that are not a text of this tokenizer are an error.

    With `framed`, ids must have this model's special tokens around them: those of another
    tokenizer, which may well be in the range of this one, never do. Others are then read as ids of
    cl100k_base, if its file is here.
    """
    size = tokenizer.size
    inner, is_framed = _without_special(tokenizer, list(ids))
    unknown = next((number for number in ids if not 0 <= number < size), None)
    if unknown is not None:
        why = f"token id {unknown} is not in the model's vocabulary of {size:,}, so these are"
        why += " ids of another tokenizer"
    elif framed and not is_framed:
        why = "these token ids do not begin and end with the model's special tokens, so they may be"
        why += " ids of another tokenizer"
    else:
        text = tokenizer.decode(inner, skip_special=False)
        if tokenizer.encode_ids([text])[0] == inner:
            return text
        why = "these token ids are not those of any text with this model"
    if not framed or cl100k() is None:
        raise ServeError(422, f"{why}: {HINT}", param="input")
    try:  # clients may have cut them within a character
        return str(cl100k().decode(list(ids), errors="replace"))
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        message = f"{error}: no token id of cl100k_base, nor those of a text with this model"
        raise ServeError(422, message, param="input") from error


def _without_special(tokenizer: Tokenizer, ids: list[int]) -> tuple[list[int], bool]:
    """Token ids without the special tokens around a text, and whether these were there."""
    built, _ = tokenizer.build([-1])
    place = built.index(-1)
    before, after = built[:place], built[place + 1 :]
    end = len(ids) - len(after)
    framed = place <= end and ids[:place] == before and ids[end:] == after
    return (ids[place:end], True) if framed and before + after else (ids, False)


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
    same = hashlib.sha256(content).hexdigest() == DIGEST
    return tiktoken.get_encoding("cl100k_base") if same else None
