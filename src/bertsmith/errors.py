"""The one exception that speaks to a person, and text of others made safe for a terminal."""


class BertsmithError(Exception):
    """A person's mistake or a bad file: one line that says what, where, and what to do.

    The command line prints the message and exits with status 2; no traceback is shown. Names from
    files may hold escape codes, so a message is always shown as `printable` writes it.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


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
