"""Differences between the families' tokenizers, as data."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend
from tokenizers.models import Model
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer
from tokenizers.processors import PostProcessor

from bertsmith.errors import BertsmithError, nearest
from bertsmith.tokenizer.sentencepiece import Normalization

Kind = Literal["wordpiece", "bpe", "unigram"]
KINDS: tuple[Kind, ...] = ("wordpiece", "bpe", "unigram")
Role = Literal["pad", "unk", "cls", "sep", "mask"]
ROLES: tuple[Role, ...] = ("pad", "unk", "cls", "sep", "mask")

BRACKETS: dict[Role, str] = {role: f"[{role.upper()}]" for role in ROLES}
ANGLES: dict[Role, str] = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>"}
ANGLES |= {"sep": "</s>", "mask": "<mask>"}


@dataclass(frozen=True)
class PipelineSettings:
    """What tokenizer_config.json may say about a pipeline; None leaves it to the family."""

    lowercase: bool | None = None
    strip_accents: bool | None = None
    split_chinese: bool = True
    keep_accents: bool = False
    split_punctuation: bool = False
    prefix_space: bool | None = None
    trim_offsets: bool = True
    normalization: Normalization = field(default_factory=Normalization)  # of a SentencePiece file
    byte_fallback: bool = False


class Pipeline(NamedTuple):
    """How text becomes words, and how pieces become text again."""

    normalizer: Normalizer | None
    pre_tokenizer: PreTokenizer
    decoder: decoders.Decoder


class Marks(NamedTuple):
    """The two special tokens that go around a text, each with its id."""

    cls: tuple[str, int]
    sep: tuple[str, int]


@dataclass(frozen=True)
class TokenizerFamily:
    """One family's tokenizer. Roles in `first` open a learned vocabulary, those in `last` end it.

    A role in `last` that a vocabulary file lacks is appended to it: DeBERTa's SentencePiece
    files leave [MASK] out, and its checkpoints keep a row for it behind the last piece.
    """

    name: str
    kind: Kind
    pipeline: Callable[[PipelineSettings], Pipeline]
    finish: Callable[[Marks, PipelineSettings], PostProcessor]
    tokens: Mapping[Role, str]
    first: tuple[Role, ...]
    last: tuple[Role, ...] = ()
    segments: bool = True  # whether the model tells first and second texts apart
    lowercase: bool = False
    mask_takes_space: bool = False  # "is <mask>" is two tokens, not three


def _lowercase(settings: PipelineSettings) -> list[Normalizer]:
    return [normalizers.Lowercase()] if settings.lowercase else []


def wordpiece(settings: PipelineSettings) -> Pipeline:
    """Return BERT's pipeline: clean, split at spaces, punctuation and Chinese characters."""
    normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.split_chinese,
        strip_accents=settings.strip_accents,
        lowercase=bool(settings.lowercase),
    )
    return Pipeline(normalizer, pre_tokenizers.BertPreTokenizer(), decoders.WordPiece(prefix="##"))


def byte_level(settings: PipelineSettings) -> Pipeline:
    """Return RoBERTa's pipeline: bytes spelled as characters, a word keeps the space before it."""
    steps = _lowercase(settings)
    split = pre_tokenizers.ByteLevel(add_prefix_space=bool(settings.prefix_space))
    return Pipeline(normalizers.Sequence(steps) if steps else None, split, decoders.ByteLevel())


def composed_byte_level(settings: PipelineSettings) -> Pipeline:
    """Return ModernBERT's pipeline: as RoBERTa's, on composed characters."""
    normalizer = normalizers.Sequence([normalizers.NFC(), *_lowercase(settings)])
    return byte_level(settings)._replace(normalizer=normalizer)


def albert(settings: PipelineSettings) -> Pipeline:
    """Return ALBERT's pipeline: plain quotes, no accents, the charsmap, one ▁ before each word."""
    steps: list[Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not settings.keep_accents:
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    steps += _lowercase(settings)
    if settings.normalization.charsmap:
        steps.append(normalizers.Precompiled(settings.normalization.charsmap))
    scheme = "never" if settings.prefix_space is False else "always"
    marked = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme)
    split = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), marked])
    return Pipeline(normalizers.Sequence(steps), split, _spm_decoder(settings, scheme))


def deberta_v2(settings: PipelineSettings) -> Pipeline:
    """Return the DeBERTa-v2 pipeline, with the normalization of its SentencePiece file.

    Version 5 of transformers leaves that out, and reads ½ and ligatures as [UNK]; version 4 and
    SentencePiece itself, with which the models were trained, do not.
    """
    steps = _lowercase(settings) + spm_normalizers(settings.normalization)
    unmarked = settings.prefix_space is False or not settings.normalization.dummy_prefix
    scheme = "first" if unmarked else "always"
    splits: list[PreTokenizer] = []
    if settings.split_punctuation:
        splits.append(pre_tokenizers.Punctuation(behavior="isolated"))
    splits.append(pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme))
    decoder = _spm_decoder(settings, scheme)
    return Pipeline(normalizers.Sequence(steps), pre_tokenizers.Sequence(splits), decoder)


def _spm_decoder(settings: PipelineSettings, scheme: str) -> decoders.Decoder:
    decoder = decoders.Metaspace(replacement="▁", prepend_scheme=scheme)
    fallback = decoders.Sequence([decoders.ByteFallback(), decoder])
    return fallback if settings.byte_fallback else decoder


def spm_normalizers(rules: Normalization) -> list[Normalizer]:
    """Return the steps that do what SentencePiece does to a text."""
    if not rules.charsmap:
        spaces = normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " ")
        return [spaces, normalizers.NFC(), normalizers.Strip(left=False, right=True)]
    steps: list[Normalizer] = [normalizers.Precompiled(rules.charsmap)]
    if rules.is_nfkc:
        # The library applies the rules to what a person sees as one character, and only if that
        # has fewer than six bytes: decomposed letters and syllables must be composed before.
        steps.insert(0, normalizers.NFC())
    if rules.remove_extra_spaces:
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    return steps


def bert_pairs(marks: Marks, settings: PipelineSettings) -> PostProcessor:
    """Return [CLS] A [SEP] B [SEP], the second text and its [SEP] in segment 1."""
    cls, sep = marks.cls[0], marks.sep[0]
    single = f"{cls}:0 $A:0 {sep}:0"
    pair = f"{single} $B:1 {sep}:1"
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=list(marks))


def roberta_pairs(marks: Marks, settings: PipelineSettings) -> PostProcessor:
    """Return <s> A </s></s> B </s>, with offsets that leave out the space before a word."""
    prefix_space = bool(settings.prefix_space)
    return processors.RobertaProcessing(marks.sep, marks.cls, settings.trim_offsets, prefix_space)


def unmarked(marks: Marks, settings: PipelineSettings) -> PostProcessor:
    """Return the texts as they are, with no special token around them."""
    return processors.TemplateProcessing(single="$A:0", pair="$A:0 $B:0", special_tokens=[])


BERT = TokenizerFamily(
    name="bert",
    kind="wordpiece",
    pipeline=wordpiece,
    finish=bert_pairs,
    tokens=BRACKETS,
    first=("pad", "unk", "cls", "sep", "mask"),
    lowercase=True,
)
ROBERTA = TokenizerFamily(
    name="roberta",
    kind="bpe",
    pipeline=byte_level,
    finish=roberta_pairs,
    tokens=ANGLES,
    first=("cls", "pad", "sep", "unk"),
    last=("mask",),
    segments=False,
    mask_takes_space=True,
)
ALBERT = TokenizerFamily(
    name="albert",
    kind="unigram",
    pipeline=albert,
    finish=bert_pairs,
    tokens=BRACKETS | {"pad": "<pad>", "unk": "<unk>"},
    first=("pad", "unk", "cls", "sep", "mask"),
    lowercase=True,
)
# transformers 5 writes DeBERTa's pairs with two [SEP] between the texts; its authors, and
# transformers 4, write one (huggingface/transformers#10703), and so do we.
DEBERTA = replace(
    ROBERTA,
    name="deberta",
    finish=bert_pairs,
    tokens=BRACKETS,
    first=("pad", "cls", "sep", "unk"),
    segments=True,
)
DEBERTA_V2 = TokenizerFamily(
    name="deberta-v2",
    kind="unigram",
    pipeline=deberta_v2,
    finish=bert_pairs,
    tokens=BRACKETS,
    first=("pad", "cls", "sep", "unk"),
    last=("mask",),
)
MODERNBERT = replace(
    DEBERTA,
    name="modernbert",
    pipeline=composed_byte_level,
    first=(),
    last=("unk", "cls", "sep", "pad", "mask"),
    segments=False,
)

MPNET = replace(
    BERT,
    name="mpnet",
    finish=roberta_pairs,
    tokens=ANGLES | {"unk": "[UNK]"},
    first=("cls", "pad", "sep", "unk"),
    last=("mask",),
    segments=False,
    mask_takes_space=True,
)

DISTILBERT = replace(BERT, name="distilbert", segments=False)
ELECTRA, NOMIC_BERT = replace(BERT, name="electra"), replace(BERT, name="nomic_bert")
# By the name that config.json calls model_type. The first of a kind stands for the kind.
LISTED = (BERT, ROBERTA, ALBERT, DISTILBERT, ELECTRA, DEBERTA, DEBERTA_V2, MODERNBERT, MPNET)
FAMILIES: dict[str, TokenizerFamily] = {family.name: family for family in (*LISTED, NOMIC_BERT)}
# Static vectors keep the vocabulary of the model that they were made from.
STATIC = replace(BERT, name="static", segments=False, finish=unmarked)
NAMED = {**FAMILIES, STATIC.name: STATIC}


def named(name: str) -> TokenizerFamily:
    """Return the family of a name."""
    if name not in NAMED:
        near = nearest(name, FAMILIES)
        raise BertsmithError(f"unknown family {name!r}{near or ';'} known: {', '.join(FAMILIES)}")
    return NAMED[name]


def of_kind(kind: Kind) -> TokenizerFamily:
    """Return the family that stands for a kind of vocabulary."""
    return next(family for family in FAMILIES.values() if family.kind == kind)


def fitting(kind: Kind, vocabulary: Collection[str]) -> TokenizerFamily | None:
    """Return the first family of a kind whose special tokens, except mask and unknown, are here."""
    for family in FAMILIES.values():
        needed = [family.tokens[role] for role in ROLES if role not in ("mask", "unk")]
        if family.kind == kind and all(token in vocabulary for token in needed):
            return family
    return None


def special_tokens(family: TokenizerFamily) -> dict[Role, AddedToken]:
    """Return a family's special tokens in the order of their ids in a learned vocabulary."""
    tokens = {}
    for role in family.first + family.last:
        strip = role == "mask" and family.mask_takes_space
        tokens[role] = AddedToken(family.tokens[role], lstrip=strip, normalized=False, special=True)
    return tokens


def assemble(
    model: Model,
    family: TokenizerFamily,
    settings: PipelineSettings,
    specials: Mapping[Role, AddedToken],
    added: Iterable[AddedToken] = (),
) -> Backend:
    """Put a model, a family's pipeline and special tokens together into a working tokenizer.

    `added` are further tokens that are matched before the model sees the text, in the order
    in which those that the model lacks take the ids behind its last one.
    """
    if settings.lowercase is None:
        settings = replace(settings, lowercase=family.lowercase)
    backend = Backend(model)
    normalizer, backend.pre_tokenizer, backend.decoder = family.pipeline(settings)
    if normalizer is not None:
        backend.normalizer = normalizer
    kept = {token.content: token for token in added}
    for role, token in specials.items():
        known = token.content in kept or backend.token_to_id(token.content) is not None
        if role in family.last or known:
            kept[token.content] = token  # where both are given, a role's own flags count
    backend.add_tokens(list(kept.values()))
    marks = Marks(_mark(backend, specials["cls"]), _mark(backend, specials["sep"]))
    backend.post_processor = family.finish(marks, settings)
    return backend


def _mark(backend: Backend, token: AddedToken) -> tuple[str, int]:
    index = backend.token_to_id(token.content)
    if index is None:
        raise ValueError(f"its vocabulary has no {token.content}")
    return token.content, index
