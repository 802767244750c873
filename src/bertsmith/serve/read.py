"""The characters of a text that a result is based on."""

from collections.abc import Sequence

from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.windows import Window
from bertsmith.tokenizer import Spelled

Spans = list[tuple[int, int]]  # text[start:end] of each part that was read
PARTIAL = ("long texts cut", "masks read in a window of a long text")


def read_spans(
    bert: LoadedModel, texts: Sequence[str], windows: Sequence[Window], prompt: int = 0
) -> list[Spans]:
    """Return the characters of each text that the model has read; usually all of them.

    `prompt` is the number of characters that the model puts before each text.
    """
    spans_of_texts: list[Spans] = [[(0, len(text))] for text in texts]
    if not any(bert.ledger.counts[what] for what in PARTIAL):
        return spans_of_texts
    spelled: Spelled = "mask" if bert.ledger.counts[PARTIAL[1]] else "text"
    token_ranges: dict[int, set[tuple[int, int]]] = {}
    for window in windows:
        token_ranges.setdefault(window.number, set()).add((window.tokens.start, window.tokens.stop))
    for number, ranges in token_ranges.items():
        if number >= len(texts):
            continue
        text = bert.sentence.prepared(texts[number]) if prompt else texts[number]
        encoded = bert.tokenizer.encode(text, special=False, spelled=spelled).offsets
        offsets = [(max(0, start - prompt), max(0, end - prompt)) for start, end in encoded]
        spans: Spans = []
        for start, stop in sorted(ranges):
            if start == stop:
                continue
            first = offsets[start][0] if start < len(offsets) else len(texts[number])
            last = offsets[min(stop, len(offsets)) - 1][1]
            begin = 0 if start == 0 else first
            end = len(texts[number]) if stop >= len(offsets) else last
            if spans and begin <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
            else:
                spans.append((begin, end))
        spans_of_texts[number] = spans
    return spans_of_texts
