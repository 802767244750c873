"""The one exception that speaks to a person."""


class BertsmithError(Exception):
    """A person's mistake or a bad file: one line that says what, where, and what to do.

    The command line prints the message and exits with status 2; no traceback is shown.
    """
