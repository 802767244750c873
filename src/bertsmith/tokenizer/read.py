"""Readers of published tokenizers: tokenizer.json, vocab.txt, vocab.json, *.model."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import AddedToken, models
from tokenizers import Tokenizer as Backend
from tokenizers.models import Model
from tokenizers.normalizers import BertNormalizer

from bertsmith.errors import BertsmithError
from bertsmith.files import one_line
from bertsmith.foreign import parse_json
from bertsmith.numbers import parse_whole, shown
from bertsmith.tokenizer import sentencepiece
from bertsmith.tokenizer.families import (
    FAMILIES,
    KINDS,
    NAMED,
    ROLES,
    Kind,
    PipelineSettings,
    Role,
    TokenizerFamily,
    assemble,
    fitting,
    named,
    of_kind,
    special_tokens,
)
from bertsmith.tokenizer.guard import guarded, hushed
from bertsmith.tokenizer.limits import check_definition

LARGEST_FILE = 512 << 20  # bytes; the largest published tokenizer.json has some 30 million
SPARSEST = 16  # ids for every token, beyond which a vocabulary's ids are not meant
NEVER = -1000.0  # the score of a piece that is not to be chosen
LARGEST_ID = 10**8
LARGEST_LENGTH = 10**9  # a model_max_length beyond this is a way to say "none"
PROBE = "A probe: é, 你好, \U0010fffd and [MASK]\0"  # words, accents, Chinese, surely unknown

# tokenizer_config.json's names for our Settings.
SETTINGS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "split_chinese",
    "keep_accents": "keep_accents",
    "split_by_punct": "split_punctuation",
    "add_prefix_space": "prefix_space",
    "trim_offsets": "trim_offsets",
}


class Parts(NamedTuple):
    """What a tokenizer is made of, whatever files it came from."""

    backend: Backend
    tokens: dict[Role, str]
    family: str
    segments: bool
    max_length: int | None
    notes: tuple[str, ...] = ()  # what was read differently from what the files say


class Beside(NamedTuple):
    """What the files beside a vocabulary say, and the family that they or the caller name."""

    config: dict[str, Any]  # tokenizer_config.json, with special_tokens_map.json merged in
    added: dict[str, tuple[int, AddedToken]]
    family: TokenizerFamily | None
    notes: list[str]


def read(path: Path, family: str | None = None) -> Parts:
    """Read a tokenizer from a directory or from one of its files."""
    file = _find(path)
    beside = _beside(file.parent, named(family) if family else None)
    with guarded(f"{file} cannot be used as a tokenizer"), hushed():
        backend = _reader(file)(file, beside)
        # A published file may ask for cuts and padding; here nothing is cut in silence.
        backend.no_truncation()
        backend.no_padding()
        vocabulary = backend.get_vocab(with_added_tokens=True)
        _check(backend, vocabulary)
        return _parts(backend, vocabulary, beside)


def _find(path: Path) -> Path:
    if path.is_dir():
        for name in FORMATS:
            if (path / name).is_file():
                return path / name
        raise BertsmithError(f"{path} holds no tokenizer: none of {', '.join(FORMATS)}")
    if not path.is_file():
        raise BertsmithError(f"{path} does not exist")
    return path


def _bytes(path: Path) -> bytes:
    with guarded(f"{path} cannot be read"):
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise BertsmithError(f"{path} has {size:,} bytes, more than any tokenizer's file")
        data = path.read_bytes()
    if not data.strip():
        raise BertsmithError(f"{path} is empty")
    return data


def _object(path: Path) -> dict[str, Any]:
    return parse_json(_bytes(path), path) if path.is_file() else {}


def _beside(folder: Path, family: TokenizerFamily | None) -> Beside:
    config = _object(folder / "tokenizer_config.json")
    listed = _object(folder / "added_tokens.json")
    if "added_tokens_decoder" not in config:  # before 2023, tokens were spread over three files
        config |= _object(folder / "special_tokens_map.json")
    with guarded(f"the added tokens in {folder} cannot be read"):
        if "added_tokens_decoder" in config:
            decoder = config["added_tokens_decoder"].items()
            numbered = [(_id(index), _added_token(value)) for index, value in decoder]
        else:
            special = _stated(config).values()
            tokens = {token: AddedToken(token, normalized=token not in special) for token in listed}
            numbered = [(_id(index), tokens[token]) for token, index in listed.items()]
        numbered.sort(key=lambda entry: entry[0])
        added = {token.content: (index, token) for index, token in numbered}
    return Beside(config, added, family or _declared(folder, config), [])


def _id(value: object) -> int:
    number = parse_whole(value)
    if number is None or not 0 <= number <= LARGEST_ID:
        raise ValueError(f"{shown(value)} is not a token's id")
    return number


def _declared(folder: Path, config: Mapping[str, Any]) -> TokenizerFamily | None:
    """Return the family that config.json, or else the name of transformers' class, speaks of."""
    model_type = _object(folder / "config.json").get("model_type")
    if isinstance(model_type, str) and model_type in NAMED:
        return NAMED[model_type]
    name = str(config.get("tokenizer_class")).removesuffix("Fast").removesuffix("Tokenizer")
    by_class = {known.replace("-", ""): family for known, family in FAMILIES.items()}
    return by_class.get(name.lower())


def _added_token(value: Mapping[str, Any], special: bool = False) -> AddedToken:
    flags = {key: bool(value.get(key)) for key in ("single_word", "lstrip", "rstrip", "normalized")}
    return AddedToken(value["content"], special=special or bool(value.get("special")), **flags)


def _content(value: object) -> str | None:
    content = value.get("content") if isinstance(value, Mapping) else value
    return content if isinstance(content, str) and content else None


def _stated(config: Mapping[str, Any]) -> dict[Role, str]:
    tokens = {role: _content(config.get(f"{role}_token")) for role in ROLES}
    return {role: token for role, token in tokens.items() if token}


def _settings(config: Mapping[str, Any]) -> PipelineSettings:
    stated = {name: config[key] for key, name in SETTINGS.items() if config.get(key) is not None}
    for name, value in stated.items():
        if not isinstance(value, bool):
            raise ValueError(f"tokenizer_config.json says {value!r} for {name}, not true/false")
    return PipelineSettings(**stated)


def _read_tokenizer_json(file: Path, beside: Beside) -> Backend:
    data = _bytes(file)
    check_definition(parse_json(data, file))
    backend = Backend.from_str(data.decode("utf-8"))
    if getattr(backend.model, "dropout", None):
        # Meant for training: the same text would have other tokens every time.
        beside.notes.append(f"{file}: the tokenizer's dropout is not used, so results repeat")
        backend.model.dropout = None
    if isinstance(backend.normalizer, BertNormalizer):
        # As in transformers, what tokenizer_config.json says outright has the last word.
        stated = _settings(beside.config)
        if stated.lowercase is not None:
            backend.normalizer.lowercase = stated.lowercase
        if "strip_accents" in beside.config:
            backend.normalizer.strip_accents = stated.strip_accents
        if "tokenize_chinese_chars" in beside.config:
            backend.normalizer.handle_chinese_chars = stated.split_chinese
    return backend


def _read_vocab_txt(file: Path, beside: Beside) -> Backend:
    lines = _bytes(file).decode("utf-8").splitlines()
    tokens = models.WordPiece.read_file(str(file))
    if repeated := [token for token, count in Counter(map(str.rstrip, lines)).items() if count > 1]:
        beside.notes.append(
            f"{file}: {len(repeated)} tokens occur more than once, and the last line of each"
            f" counts: {one_line(', '.join(map(repr, repeated[:4])))}"
        )
    for token in (beside.family or of_kind("wordpiece")).tokens.values():
        # A widespread copy of the uncased vocabulary was lower-cased as a whole.
        if token not in tokens and token.lower() in tokens:
            tokens[token] = tokens.pop(token.lower())
    return _build(beside, "wordpiece", tokens, lambda unk: models.WordPiece(tokens, unk_token=unk))


def _read_vocab_json(file: Path, beside: Beside) -> Backend:
    merges_file = file.with_name(file.name.replace("vocab.json", "merges.txt"))
    if merges_file == file or not merges_file.is_file():
        raise ValueError("a vocab.json needs its merges.txt beside it")
    parse_json(_bytes(file), file)
    _bytes(merges_file)
    tokens, merges = models.BPE.read_file(str(file), str(merges_file))
    model = models.BPE(tokens, merges, continuing_subword_prefix="", end_of_word_suffix="")
    return _build(beside, "bpe", tokens, lambda _: model)


def _read_sentencepiece(file: Path, beside: Beside) -> Backend:
    pieces, unknown_id, normalization, byte_fallback = sentencepiece.parse(_bytes(file))
    # As in transformers 5. SentencePiece itself splits at its symbols, such as ALBERT's "(" and
    # ".", after words are marked: it has no ▁ behind a symbol, and one before it after a space.
    matched_first = tuple(
        AddedToken(piece.text, normalized=False, special=piece.type == sentencepiece.CONTROL)
        for piece in pieces
        if piece.type in (sentencepiece.CONTROL, sentencepiece.USER_DEFINED)
    )
    # A text that spells out a byte, "<0x0A>", is no byte.
    scores = [
        (piece.text, NEVER if piece.type == sentencepiece.BYTE else piece.score) for piece in pieces
    ]
    model = models.Unigram(scores, unknown_id, byte_fallback)
    tokens = {piece.text: index for index, piece in enumerate(pieces)}
    pipeline = {"normalization": normalization, "byte_fallback": byte_fallback}
    return _build(beside, "unigram", tokens, lambda _: model, matched_first, **pipeline)


# In the order in which a directory is searched.
FORMATS: dict[str, Callable[[Path, Beside], Backend]] = {
    "tokenizer.json": _read_tokenizer_json,
    "vocab.txt": _read_vocab_txt,
    "vocab.json": _read_vocab_json,
    "spiece.model": _read_sentencepiece,
    "spm.model": _read_sentencepiece,
}


def _reader(file: Path) -> Callable[[Path, Beside], Backend]:
    by_name = [reader for name, reader in FORMATS.items() if file.name.endswith(name)]
    by_ending = [reader for name, reader in FORMATS.items() if file.suffix == Path(name).suffix]
    if not by_name + by_ending:
        raise ValueError(f"its name is none of {', '.join(FORMATS)}")
    return (by_name + by_ending)[0]


def _build(
    beside: Beside,
    kind: Kind,
    tokens: Mapping[str, int],
    make_model: Callable[[str], Model],  # from the unknown token
    matched_first: Iterable[AddedToken] = (),  # pieces that are never split
    **pipeline: Any,  # further settings
) -> Backend:
    family = _family(kind, tokens, beside)
    specials = _specials(family, beside)
    settings = replace(_settings(beside.config), **pipeline)
    added = [token for _, token in beside.added.values()]
    model = make_model(specials["unk"].content)
    backend = assemble(model, family, settings, specials, [*added, *matched_first])
    for content, (wanted, _) in beside.added.items():
        if (got := backend.token_to_id(content)) != wanted:
            raise ValueError(f"{content!r} gets the id {got}, but the files beside say {wanted}")
    return backend


def _family(kind: Kind, vocabulary: Mapping[str, int], beside: Beside) -> TokenizerFamily:
    if beside.family and beside.family.kind == kind:
        return beside.family
    return fitting(kind, vocabulary) or of_kind(kind)


def _specials(family: TokenizerFamily, beside: Beside) -> dict[Role, AddedToken]:
    """Return the special tokens as the files beside a vocabulary describe them, or the family."""
    specials = special_tokens(family)
    for role in specials:
        value = beside.config.get(f"{role}_token")
        content = _content(value) or family.tokens[role]
        if isinstance(value, Mapping) and _content(value):
            specials[role] = _added_token(value, special=True)
        elif content in beside.added:
            specials[role] = beside.added[content][1]
            specials[role].special = True
        else:
            specials[role].content = content
    return specials


def _kind(backend: Backend) -> Kind:
    kind = type(backend.model).__name__.lower()
    if kind not in KINDS:
        raise ValueError(f"its model is of the kind {kind}, not one of {', '.join(KINDS)}")
    return kind


def _check(backend: Backend, vocabulary: Mapping[str, int]) -> None:
    """Refuse a tokenizer that would fail, or whose ids make no sense, once it is used."""
    kind, ids = _kind(backend), vocabulary.values()
    if len(set(ids)) != len(ids):
        raise ValueError(f"its {kind} vocabulary gives two tokens the same id")
    if max(ids, default=0) > SPARSEST * len(ids) + 1000:
        raise ValueError(f"it has {len(ids)} tokens, but ids up to {max(ids)}")
    for pair in (None, PROBE):
        for number in backend.encode(PROBE, pair).ids:
            if backend.id_to_token(number) is None:
                raise ValueError(f"it produces the id {number}, which no token has")


def _parts(backend: Backend, vocabulary: Mapping[str, int], beside: Beside) -> Parts:
    kind = _kind(backend)
    family = beside.family or _family(kind, vocabulary, beside)
    fitted = fitting(kind, vocabulary) or family
    tokens: dict[Role, str] = {}
    for named_tokens in (fitted.tokens, family.tokens, _stated(beside.config)):  # later ones win
        tokens |= {role: token for role, token in named_tokens.items() if token in vocabulary}
    segments, inputs = family.segments, beside.config.get("model_input_names")
    if isinstance(inputs, list) and not beside.family:
        segments = "token_type_ids" in inputs
    length = beside.config.get("model_max_length")
    stated = length if type(length) is int and 0 < length < LARGEST_LENGTH else None
    return Parts(backend, tokens, family.name, segments, stated, tuple(beside.notes))
