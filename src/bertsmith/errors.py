"""BertsmithError, names of settings in its messages, and foreign text made safe for a terminal."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

# A setting in a message, as the command line writes it and as Python does.
SETTING = re.compile("\x02([^\x02\x1f]*)\x1f([^\x03]*)\x03")


class BertsmithError(Exception):
    """A user error or a bad file: one line that says what is wrong, where, and what to do.

    The command line prints the message and exits with status 2, without a traceback. Names from
    files may contain escape codes, so messages are always shown as `printable` writes them.
    """

    def __str__(self) -> str:
        return printable(SETTING.sub(r"\2", super().__str__()))

    @property
    def message(self) -> str:
        """The message for another error, in which settings keep both names."""
        return str(self.args[0])

    def for_command_line(self) -> str:
        """The message with options, as in --hold-out 0, in place of Python's hold_out=0."""
        return printable(SETTING.sub(r"\1", super().__str__()))

    def for_everyone(self) -> str:
        """The message with both names of settings, for results of Python and the command line."""
        return printable(SETTING.sub(r"\1 (in Python \2)", super().__str__()))


def setting_name(name: str, value: Any = None, option: str = "") -> str:
    """The name of a setting in the message of a BertsmithError.

    Python shows `overwrite=True`, the command line `--overwrite`. `option` is what the command
    line shows where that does not follow from the name.
    """
    if not option:
        words = name.replace("_", "-")
        option = f"--no-{words}" if value is False else f"--{words}"
        option += "" if value is None or isinstance(value, bool) else f" {value}"
    return f"\x02{option}\x1f{name}{'' if value is None else f'={value!r}'}\x03"


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known name a person may have meant, if one is near."""
    close = get_close_matches(name[:100], list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def printable(text: str) -> str:
    r"""The same text with control characters spelled out, as in \x1b; line feeds stay."""
    if text.isprintable():
        return text
    spelled = (char.encode("unicode_escape", "backslashreplace").decode("ascii") for char in text)
    pairs = zip(text, spelled, strict=True)
    return "".join(char if char.isprintable() or char == "\n" else code for char, code in pairs)
