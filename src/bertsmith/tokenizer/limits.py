"""Limits on a tokenizer.json, checked before the library reads it.

The library does whatever a file says: a dozen `Replace` rules that each double a text make a
gigabyte of a sentence, and a template may put thousands of tokens around it.
"""

import re
from collections.abc import Iterator
from typing import Any

LARGEST_GROWTH = 1000  # times the length of a text
MOST_STEPS = 200  # of one part of the pipeline
MOST_SLOTS = 64  # in all templates around texts
LONGEST_INSERT = 1000  # characters
LONGEST_PATTERN = 2000  # characters of a regular expression
# Escapes, classes of characters, repetitions with how they end, and all other characters.
PATTERN_PARTS = re.compile(
    r"\\(?:[pPx]\{[^}]*\}|.)|\[(?:\\.|[^]\\])*\]|(?:[*+]|\{\d*,\d*\})[?+]?|.", re.DOTALL
)
REPEATED = re.compile(r"[*+][?+]?|\{\d*,\d*\}[?+]?")
LONGEST_WORD = 10_000  # characters that WordPiece tries to match: its work is quadratic


def check_definition(definition: dict[str, Any]) -> None:
    """Raise ValueError for a tokenizer.json whose work has no sensible bound."""
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        steps, growth = list(_steps(definition.get(part))), 1.0
        if len(steps) > MOST_STEPS:
            raise ValueError(f"its {part} has {len(steps):,} steps")
        for step in steps:
            _check_pattern(step.get("pattern"))
            growth *= _growth(step)
            if growth > LARGEST_GROWTH:
                raise ValueError(f"its {part} makes texts more than {LARGEST_GROWTH} times longer")
    slots = sum(map(_slots, _steps(definition.get("post_processor"))))
    if slots > MOST_SLOTS:
        raise ValueError(f"its template around texts has {slots:,} places")
    model = definition.get("model")
    longest = model.get("max_input_chars_per_word") if isinstance(model, dict) else None
    if isinstance(longest, int) and longest > LONGEST_WORD:
        raise ValueError(f"it splits words of up to {longest:,} characters")


def _steps(part: Any) -> Iterator[dict[str, Any]]:
    """The steps of a part of a pipeline; sequences within sequences laid out."""
    waiting = [part]
    while waiting:
        step = waiting.pop()
        if isinstance(step, list):
            waiting += step
        elif isinstance(step, dict):
            yield step
            if step.get("type") == "Sequence":
                waiting += [value for value in step.values() if isinstance(value, list)]


def _check_pattern(pattern: Any) -> None:
    """Refuse regular expressions that may take exponential time, such as `(a+)+`."""
    text = pattern.get("Regex") if isinstance(pattern, dict) else None
    if not isinstance(text, str):
        return
    if len(text) > LONGEST_PATTERN:
        raise ValueError(f"one of its patterns has {len(text):,} characters")
    open_groups = [False]  # does a group hold a repetition or alternatives?
    closed = False  # does the group that just ended?
    for part in PATTERN_PARTS.findall(text):
        if part == "(":
            open_groups.append(False)
        elif part == ")" and len(open_groups) > 1:
            closed = open_groups.pop()
            open_groups[-1] |= closed
            continue
        elif part == "|" or (REPEATED.fullmatch(part) and not part.endswith("+", 1)):
            if part != "|" and closed:
                raise ValueError(f"its pattern {text[:100]!r} may take exponential time")
            open_groups[-1] = True
        closed = False


def _growth(step: dict[str, Any]) -> float:
    inserted = [step.get(key) for key in ("content", "prepend", "replacement")]
    length = max(len(text) for text in ["", *inserted] if isinstance(text, str))
    if length > LONGEST_INSERT:
        raise ValueError(f"one of its steps inserts {length:,} characters")
    if step.get("type") != "Replace":
        return 1.0
    pattern = step.get("pattern")
    text = pattern.get("String") if isinstance(pattern, dict) else pattern
    if isinstance(text, str) and text:
        return max(1.0, length / len(text))
    return 1.0 + length  # a regular expression may match nothing, before every character


def _slots(step: dict[str, Any]) -> int:
    """How many tokens a step puts around texts."""
    special = step.get("special_tokens")
    sizes = special.values() if isinstance(special, dict) else []
    ids = [len(token["ids"]) for token in sizes if isinstance(token, dict) and "ids" in token]
    places = [len(step[key]) for key in ("single", "pair") if isinstance(step.get(key), list)]
    return sum(places) * max([1, *ids])
