"""BertsmithError, and foreign text made safe for a terminal."""

from collections.abc import Iterable
from difflib import get_close_matches


class BertsmithError(Exception):
    """A user error or a bad file: one line that says what is wrong, where, and what to do.

    The command line prints the message and exits with status 2, without a traceback. Names from
    files may contain escape codes, so messages are always shown as `printable` writes them.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class SettingError(BertsmithError):
    """A value that a setting cannot have. The message begins with the setting's name in Python,
    for which the command line writes the option.
    """


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known name a person may have meant, if one is near."""
    close = get_close_matches(name[:100], list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def printable(text: str) -> str:
    r"""The same text with control characters spelled out, as in \x1b; line feeds stay."""
    if text.isprintable():
        return text
    return "".join(
        char
        if char.isprintable() or char == "\n"
        else char.encode("unicode_escape", "backslashreplace").decode("ascii")
        for char in text
    )
