"""What people are asked when they label a text: to choose labels, or to mark words. No PyTorch.

A reading has one such value, `labelling`; the page and the file of labels ask nothing else of it.
"""

import itertools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

from bertsmith.errors import BertsmithError
from bertsmith.numbers import parse_number

Cells = dict[str, Any]


class Labelling:
    """How people label the examples of a task."""

    asks: ClassVar[str]  # the form of the page: "choose" or "mark"
    column: str = "label"  # of the label in the file
    named = True  # does a person give the labels?
    several = False  # any number of labels, or none
    numeric = False  # labels are numbers
    overlap = False  # marks may lie in one another
    at = 0  # which of an example's texts is marked

    def inputs(self, example: Any) -> Cells:
        """What the file has of an example beside the label, so that it can be read again."""
        return dict(zip(("text", "pair"), example.texts, strict=False))

    def choices(self, example: Any) -> list[str] | None:
        """The choices of an example, where they are its own."""
        return None

    def cell(self, answer: Any, example: Any, labels: Sequence[str]) -> Any:
        """An answer of the page as the file has it; one that cannot be is an error."""
        raise NotImplementedError

    def answer(self, cells: Mapping[str, Any]) -> Any:
        """A label of the file as the page has it."""
        return cells.get(self.column)

    def suggested(self, prediction: Any) -> Any:
        """A prediction of a model as the page has it."""
        return prediction.value

    def units(self, cells: Mapping[str, Any], labels: Sequence[str]) -> list[Hashable]:
        """The values of a label that are compared between annotators."""
        return [self.answer(cells)]


class Choose(Labelling):
    """One label, or several of them."""

    asks = "choose"

    def __init__(
        self, column: str = "label", *, several: bool = False, numeric: bool = False
    ) -> None:
        self.column, self.several, self.numeric = column, several, numeric

    def cell(self, answer: Any, example: Any, labels: Sequence[str]) -> Any:
        """A label, a number, or a list of labels."""
        listed = answer if self.several else [answer]
        if not isinstance(listed, list) or any(one not in labels for one in listed):
            raise BertsmithError(f"not among the labels: {str(answer)[:100]!r}")
        if self.numeric:
            return parse_number(answer)
        return [name for name in labels if name in listed] if self.several else answer

    def answer(self, cells: Mapping[str, Any]) -> Any:
        """The label by its name."""
        value = cells.get(self.column)
        return f"{value:g}" if self.numeric and isinstance(value, int | float) else value

    def units(self, cells: Mapping[str, Any], labels: Sequence[str]) -> list[Hashable]:
        """A label; whether each of several applies."""
        answer = self.answer(cells)
        return [name in answer for name in labels] if self.several else [answer]


class MarkSpans(Labelling):
    """Marked words, each part with a label."""

    asks = "mark"
    text = "text"  # the column of the text in which words are marked

    def __init__(self, column: str = "spans", *, overlap: bool = False) -> None:
        self.column, self.overlap = column, overlap

    def cell(self, answer: Any, example: Any, labels: Sequence[str]) -> Any:
        """Objects with start, end and label, counted in characters."""
        text, spans = example.texts[self.at], set()
        listed: list[Any] = answer if isinstance(answer, list) else [None]
        for one in listed:
            right = isinstance(one, list) and len(one) == 3 and one[2] in labels
            if not right or not all(type(place) is int for place in one[:2]):
                raise BertsmithError(f"not a part with a label: {str(one)[:100]!r}")
            if not 0 <= one[0] < one[1] <= len(text):
                raise BertsmithError(f"the text has no characters {one[0]} to {one[1]}")
            spans.add(tuple(one))
        ordered = sorted(spans)
        if not self.overlap and any(b[0] < a[1] for a, b in itertools.pairwise(ordered)):
            raise BertsmithError("parts must not overlap")
        return [dict(zip(("start", "end", "label"), one, strict=True)) for one in ordered]

    def answer(self, cells: Mapping[str, Any]) -> Any:
        """Lists of start, end and label."""
        spans = cells.get(self.column) or ()
        return [[one["start"], one["end"], one["label"]] for one in spans]

    def suggested(self, prediction: Any) -> Any:
        """The entities of a prediction."""
        entities = prediction.output.get("entities", ())
        return [[one["start"], one["end"], one["label"]] for one in entities]

    def units(self, cells: Mapping[str, Any], labels: Sequence[str]) -> list[Hashable]:
        """The labels of every word, "" where it has none."""
        text, answer, units, place = cells[self.text], self.answer(cells), list[Hashable](), 0
        for word in text.split():
            start = text.index(word, place)
            place = start + len(word)
            over = {label for left, right, label in answer if left < place and right > start}
            units.append(" ".join(sorted(over)))
        return units
