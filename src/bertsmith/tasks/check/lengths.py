"""Checks with a model's tokenizer: lengths, unknown tokens, words split into many tokens."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unicodedata import category
from unicodedata import name as name_of

from bertsmith.tasks.check.findings import Finding, Lengths, Splits, finding
from bertsmith.tasks.dataset import Dataset
from bertsmith.tokenizer import Tokenizer
from bertsmith.tokenizer.scripts import UNSPACED

FEW_WORDS = 20  # below which fractions of words are unreliable
UNKNOWN = 0.02  # the share of unknown tokens above which the tokenizer does not fit
SHATTERED = 0.1  # likewise of words in pieces of fewer than two characters
COMMON = 5000  # different words that are looked at
SMALL = 1000  # tokens of a vocabulary of letters (proteins, DNA), which shatters every word
# The share of plain words in several tokens. English texts have up to 0.33 with vocabularies of
# English (chats 0.1, film reviews 0.3), texts in other languages 0.63 (French) to 1.
FOREIGN = 0.5
ENOUGH, LEARNED = 40, 8000  # words, and tokens of a vocabulary, from which on that is reliable
ALPHABETS = 3  # with a hundredth of the vocabulary each, which make it multilingual
SCRIPTS = ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA")  # which one language may mix


@dataclass(frozen=True)
class Reader:
    """The tokenizer of a model, and how many tokens it reads at once."""

    tokenizer: Tokenizer
    limit: int


def open_reader(name: str | Path) -> Reader:
    """The tokenizer and the length of a model, without its weights."""
    from bertsmith.checkpoint import locate, read_sentence  # late: a check without a model is quick
    from bertsmith.checkpoint.checkpoint import meaningful
    from bertsmith.checkpoint.files import inside
    from bertsmith.families import family_of
    from bertsmith.foreign import read_json

    directory = locate(name)
    sentence = read_sentence(directory)
    directory = sentence[0] if sentence else directory
    path = inside(directory, "config.json")
    settings = read_json(path)
    with meaningful(path):
        family = family_of(settings)
        limit = family.config(settings).max_length
    tokenizer = Tokenizer.load(directory, family=family.name)
    shorter = sentence[1].max_length if sentence else None
    return Reader(tokenizer, min(limit, tokenizer.max_length or limit, shorter or limit))


def measure(splits: Splits, reader: Reader | None) -> tuple[dict[str, Lengths], list[Finding]]:
    """The lengths of every split, and what a model will not read at once."""
    lengths, findings = {}, []
    for name, dataset in splits.items():
        if reader is None:
            inputs = map(dataset.reading.units, dataset.examples)
            words = [max(len(" ".join(unit).split()) for unit in units) for units in inputs]
            lengths[name] = _spread("words", words)
        else:
            lengths[name], more = _tokens(name, dataset, reader)
            findings.extend(more)
    return lengths, findings


def _tokens(name: str, dataset: Dataset[Any], reader: Reader) -> tuple[Lengths, list[Finding]]:
    tokenizer, limit = reader.tokenizer, reader.limit
    reading = dataset.reading
    inputs = [reading.units(one) for one in dataset.examples]
    texts = list(dict.fromkeys(text for several in inputs for unit in several for text in unit))
    ids = tokenizer.encode_ids(texts)
    size = dict(zip(texts, map(len, ids), strict=True))
    totals, beyond, stuck = [], [], []
    for one, several in zip(dataset.examples, inputs, strict=True):
        parts = [[size[text] for text in unit] for unit in several]
        special = [tokenizer.special_count(pair=len(part) > 1) for part in parts]
        total = max(sum(part) + extra for part, extra in zip(parts, special, strict=True))
        totals.append(total)
        if total > limit:
            room = limit - max(special) - max(part[0] for part in parts)
            # A window holds the whole first text, and some of the second.
            if not reading.windows or (len(parts[0]) > 1 and room < max(1, limit // 4)):
                stuck.append(one.where)
            else:
                beyond.append(one.where)
    unknown = sum(one.count(tokenizer.unk_id) for one in ids) if tokenizer.unk_id is not None else 0
    share = unknown / max(1, sum(map(len, ids)))
    part = len(beyond) / len(dataset)
    what = f"inputs longer than the model's {limit:,} tokens ({part:.1%})"
    advice = f"shorten the {'first texts' if reading.windows else 'prompts'}"
    unreadable = "inputs too long to be read in windows"
    return _spread("tokens", totals, limit, len(beyond) + len(stuck)), [
        *finding("note", "long", name, what, beyond, "they are read in windows"),
        *finding("error", "too-long", name, unreadable, stuck, advice),
        *_words_in_pieces(name, texts, reader, unknown, share),
        *_foreign(name, texts, reader.tokenizer),
    ]


def _words_in_pieces(
    name: str, texts: Sequence[str], reader: Reader, unknown: int, share: float
) -> Iterator[Finding]:
    words = (word for text in texts for word in text.split() if not UNSPACED.search(word))
    counts = Counter(words)  # in scripts without spaces, what is between spaces is no word
    common = dict(counts.most_common(COMMON))
    pieces = reader.tokenizer.encode_ids(list(common)) if common else []
    total = sum(common.values())
    per_word = sum(n * len(ids) for n, ids in zip(common.values(), pieces, strict=True))
    broken = {
        word: count
        for (word, count), ids in zip(common.items(), pieces, strict=True)
        if len(word) > 3 and 2 * len(ids) > len(word)
    }
    shattered = sum(broken.values()) / max(1, total)
    if reader.tokenizer.size < SMALL or total < FEW_WORDS:
        shattered = 0.0
    spread = f"{per_word / max(1, total):.1f} tokens per word"
    if share > UNKNOWN:
        what = f"{name}: {share:.1%} of all tokens are unknown to the model"
        yield Finding("warning", "unknown-tokens", what, unknown)
    if shattered > SHATTERED:
        names = ", ".join(list(broken)[:3])
        what = f"{name}: {shattered:.0%} of the words are split into letters ({spread}): {names}"
        yield Finding("warning", "shattered-words", what, sum(broken.values()))


def _foreign(name: str, texts: Sequence[str], tokenizer: Tokenizer) -> Iterator[Finding]:
    """Texts whose plain words are not in the vocabulary, as those of the model's language are."""
    counts = Counter(word for text in texts for word in _plain_words(text))
    common, total = dict(counts.most_common(COMMON)), counts.total()
    if total < ENOUGH or tokenizer.size < LEARNED:
        return
    # A character of a script without spaces is doubled: two tokens, or three with a leading space.
    spelled = {one: one * 2 if UNSPACED.match(one) else f" {one}" for one in common}
    pieces = tokenizer.encode_ids(list(spelled.values()))
    lost = sum(
        common[word]
        for word, ids in zip(spelled, pieces, strict=True)
        if tokenizer.unk_id in ids or len(ids) > (3 if UNSPACED.match(word) else 1)
    )
    share = lost / sum(common.values())
    if share > FOREIGN and not _multilingual(tokenizer):
        what = f"{name}: {share:.0%} of the plain words are not in the model's vocabulary"
        what += f"; probably a language that it was not trained on{_language(texts)}"
        advice = "use a model for this language, or a multilingual one"
        yield Finding("warning", "wrong-language", what, lost, (), advice)


def _plain_words(text: str) -> Iterator[str]:
    """Words of four letters and more that are no names; of scripts without spaces, characters."""
    yield from UNSPACED.findall(text)
    for part in text.split():
        word = part.strip(".,;:!?()[]{}'\"«»„“”‘’…-–—،।")
        letters = len(word) >= 4 and all(x.isalpha() or category(x)[0] == "M" for x in word)
        if letters and word == word.lower() and not UNSPACED.search(word):
            yield word


def _multilingual(tokenizer: Tokenizer) -> bool:
    tokens = tokenizer.backend.decode_batch([[number] for number in range(tokenizer.size)])
    words = ("".join(filter(str.isalpha, one)) for one in tokens)
    scripts = Counter(name_of(word[0], "?").partition(" ")[0] for word in words if len(word) > 1)
    known = [one for one, count in scripts.items() if count > 0.01 * scripts.total()]
    return len(set(known).difference(SCRIPTS)) >= ALPHABETS


def _language(texts: Sequence[str]) -> str:
    """The language of some texts, where py3langid is installed to detect it."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        return ""
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    language = identifier.classify("\n".join(texts[:100])[:10_000])[0]
    return f" (detected: {language})"


def _spread(unit: str, values: Sequence[int], limit: int | None = None, beyond: int = 0) -> Lengths:
    ordered = sorted(values)
    middle, most = (ordered[round(share * (len(ordered) - 1))] for share in (0.5, 0.95))
    return Lengths(unit, middle, most, ordered[-1], limit, beyond)
