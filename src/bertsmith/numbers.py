"""Numbers from foreign files and options: parsed, checked and bounded."""

import math
import re

from bertsmith.errors import BertsmithError

LONGEST = 40  # characters of a number; Python itself stops at 4,300 digits, with a traceback
MANY = 10**15  # far beyond any count, and exact as a float
WHOLE = re.compile(r"[+-]?[0-9]+")
REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")


def parse_whole(value: object) -> int | None:
    """A whole number, also written as a string or as 3.0; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if abs(value) <= MANY else None
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= MANY else None
    if isinstance(value, str) and len(value) <= LONGEST and WHOLE.fullmatch(value.strip()):
        return parse_whole(int(value))
    return None


def parse_number(value: object) -> float | None:
    """A finite number, also written as a string; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return float(value) if abs(value) <= MANY else None
    if isinstance(value, str):
        stripped = value.strip()
        if len(stripped) > LONGEST or not REAL.fullmatch(stripped):
            return None
        value = float(stripped)
    return value if isinstance(value, float) and math.isfinite(value) else None


def whole_number(value: object, name: str, low: int = 0, high: int = MANY) -> int:
    """A whole number from `low` to `high`, or an error that says what `name` should be."""
    number = parse_whole(value)
    if number is None or not low <= number <= high:
        raise BertsmithError(f"{name} is {shown(value)}, not a whole number{_range(low, high)}")
    return number


def real_number(value: object, name: str, low: float = -MANY, high: float = MANY) -> float:
    """A finite number from `low` to `high`, or an error that says what `name` should be."""
    number = parse_number(value)
    if number is None or not low <= number <= high:
        raise BertsmithError(f"{name} is {shown(value)}, not a number{_range(low, high)}")
    return number


def shown(value: object) -> str:
    """A value as an error message repeats it: short, and on one line."""
    if isinstance(value, int) and abs(value) > MANY:
        return "too large"
    text = repr(value[:LONGEST] if isinstance(value, str) else value)
    return text if len(text) <= LONGEST + 2 else f"{text[:LONGEST]}…"


def counted(number: int, noun: str) -> str:
    """A count with its noun: 1 row, 2,000 rows."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _range(low: float, high: float) -> str:
    if low <= -MANY and high >= MANY:
        return ""
    return f" from {low:g} up" if high >= MANY else f" from {low:g} to {high:g}"
