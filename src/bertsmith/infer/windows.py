"""Windows: inputs longer than the model, split with overlap."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise

from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.tokenizer import Tokenizer


@dataclass(frozen=True)
class Window:
    """One model input: a whole text (or pair), or a part of one that is too long."""

    number: int  # which input it came from
    ids: Sequence[int]
    segments: Sequence[int]
    tokens: range  # the tokens of the text (of a pair: of the one that is split) in it
    first: int  # the row of the first of them
    masks: tuple[int, ...] = ()  # the rows of masked tokens to predict

    def row(self, token: int) -> int:
        """The row of a token of the text."""
        return self.first + token - self.tokens.start


@dataclass(frozen=True)
class Windower:
    """How inputs become windows: the model's limit, and what to do beyond it."""

    tokenizer: Tokenizer
    limit: int  # tokens a model reads at once, special tokens included
    overlap: int  # tokens that neighbouring windows share
    long: str = "window"  # or "refuse", "cut" (the end is left out), "cut_left" (the beginning)
    ledger: Ledger = field(default_factory=Ledger)  # what became of long inputs

    def single(self, number: int, ids: Sequence[int]) -> list[Window]:
        """The windows of one text."""
        room = self.limit - self.tokenizer.special_count()
        return [self._around(number, ids, None, part) for part in self._parts(number, ids, room)]

    def pair(self, number: int, ids: Sequence[int], second: Sequence[int]) -> list[Window]:
        """The windows of a pair: the first text whole, the second in parts."""
        texts = "first", "second", "shorten it or swap the two"
        room = self._room_beside(number, ids, second, *texts)
        ranges = self._parts(number, second, room)
        return [self._around(number, ids, second, part) for part in ranges]

    def beside(self, number: int, ids: Sequence[int], second: Sequence[int]) -> list[Window]:
        """The windows of a pair whose second text is whole beside parts of the first."""
        room = self._room_beside(number, second, ids, "second", "first", "shorten it")
        first = self.tokenizer.build([-1], [])[0].index(-1)
        return [
            Window(number, *self.tokenizer.build(ids[part.start : part.stop], second), part, first)
            for part in self._parts(number, ids, room)
        ]

    def _room_beside(
        self, number: int, whole: Sequence[int], parted: Sequence[int], *texts: str
    ) -> int:
        """The tokens of a text in a window, beside the one that is whole."""
        room = self.limit - self.tokenizer.special_count(pair=True) - len(whole)
        if len(parted) > room and room < max(1, self.limit // 4):
            own, other, advice = texts
            many = f"its {own} text has {len(whole)} tokens, too many beside the {other}"
            most = f"in a model that reads {self.limit}"
            raise BertsmithError(f"input {number}: {many} {most}; {advice}")
        return room

    def around(self, number: int, ids: Sequence[int], row: int, masks: int = 1) -> Window:
        """One window with the token at `row` as near to its middle as the text allows."""
        self.ledger.note("masks read in a window of a long text", masks)
        room = self.limit - self.tokenizer.special_count()
        start = max(0, min(row - room // 2, len(ids) - room))
        return self._around(number, ids, None, range(start, min(start + room, len(ids))))

    def _parts(self, number: int, ids: Sequence[int], room: int) -> list[range]:
        if len(ids) <= room:
            return [range(len(ids))]
        if self.long == "refuse":
            most = f"the model reads {room:,} at once: shorten it"
            raise BertsmithError(f"input {number} has {len(ids):,} tokens, but {most}")
        if self.long in ("cut", "cut_left"):
            self.ledger.note("long texts cut")
            return [range(room) if self.long == "cut" else range(len(ids) - room, len(ids))]
        self.ledger.note("long texts read in windows")
        return cut(len(ids), room, min(self.overlap, room // 2))

    def _around(
        self, number: int, ids: Sequence[int], second: Sequence[int] | None, part: range
    ) -> Window:
        if second is None:
            built, first = self.tokenizer.build(ids[part.start : part.stop]), self._before
        else:
            built = self.tokenizer.build(ids, second[part.start : part.stop])
            first = self._before_second + len(ids)
        if not built[0]:  # no text, and no special tokens around it: read as one pad token
            built = [self.tokenizer.pad_id or 0], [0]
        return Window(number, *built, part, first)

    @cached_property
    def _before(self) -> int:  # a text: how many special tokens
        return self.tokenizer.build([-1])[0].index(-1)

    @cached_property
    def _before_second(self) -> int:  # the second text of a pair
        return self.tokenizer.build([], [-1])[0].index(-1)


def mask_rows(windows: Sequence[Window]) -> list[int]:
    """The rows of masked tokens in the batch of these windows."""
    starts = accumulate((len(window.ids) for window in windows), initial=0)
    return [start + row for start, one in zip(starts, windows, strict=False) for row in one.masks]


def cut(length: int, room: int, overlap: int) -> list[range]:
    """Return ranges of `room` tokens that overlap by `overlap`; the last ends at the end."""
    starts = list(range(0, max(1, length - overlap), room - overlap))
    ends = [min(start + room, length) for start in starts]
    # The last window moves back, so that it too has as much context as there is.
    return [range(max(0, end - room), end) for end in ends]


def clearest(ranges: Sequence[range], length: int) -> list[int]:
    """For each token the window in which it is furthest from an edge that cuts the text."""
    seams = [(left.stop + right.start + 1) // 2 for left, right in pairwise(ranges)]
    return [bisect_right(seams, token) for token in range(length)]
