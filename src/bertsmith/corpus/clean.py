"""Filters and repairs of documents."""

from __future__ import annotations

from collections.abc import Callable

from bertsmith.corpus.documents import Document, lines_of
from bertsmith.errors import BertsmithError
from bertsmith.ledger import Ledger
from bertsmith.settings.corpus import Settings

SAMPLE = 2000  # characters from which the language is detected


class Cleaner:
    """Repairs and filters documents according to the settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.repair = _repairer() if settings.repair else None
        self.language = _detector(settings.language) if settings.language else None

    def clean(self, document: Document, ledger: Ledger) -> Document | None:
        """Return the document as it is stored, or None if a filter removes it."""
        if self.repair is not None:
            text = "\n".join(document)
            repaired = self.repair(text)
            if repaired != text:
                ledger.note("documents whose Unicode was repaired")
                document = lines_of(repaired)
        length = sum(map(len, document)) + len(document) - 1
        if length < self.settings.min_length:
            ledger.note(f"documents shorter than {self.settings.min_length:,} characters, left out")
            return None
        if self.settings.max_length is not None and length > self.settings.max_length:
            ledger.note(f"documents longer than {self.settings.max_length:,} characters, left out")
            return None
        if self.language is not None and self.language(document) != self.settings.language:
            ledger.note(f"documents not in the language {self.settings.language}, left out")
            return None
        return document


def check_extras(settings: Settings) -> None:
    """Raise an error if a library is not installed, or does not support the language."""
    Cleaner(settings)
    if settings.duplicates == "near":
        try:
            import rensa  # noqa: F401
        except ImportError:
            raise _missing("near-duplicates are found by rensa", "rensa") from None


def _repairer() -> Callable[[str], str]:
    try:
        import ftfy
    except ImportError:
        raise _missing("Unicode is repaired by ftfy", "ftfy") from None
    return ftfy.fix_text


def _detector(wanted: str) -> Callable[[Document], str]:
    """Return a function that detects the language of a document."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise _missing("language detection needs py3langid", "py3langid") from None
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    if wanted not in identifier.labels:
        known = ", ".join(sorted(identifier.labels))
        raise BertsmithError(f"the language {wanted!r} is unknown; known: {known}")
    return lambda document: str(identifier.classify(_beginning(document))[0])


def _beginning(document: Document) -> str:
    text = ""
    for line in document:
        text += line + "\n"
        if len(text) > SAMPLE:
            break
    return text[:SAMPLE]


def _missing(why: str, name: str) -> BertsmithError:
    return BertsmithError(f"{why}: pip install {name}")
