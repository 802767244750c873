"""Files → documents → sentences → token shards that are mapped into memory.

`prepare` makes a folder of shards, in parallel, in bounded memory, and goes on where it was
interrupted. `Corpus` opens a folder: all tokens of a split as one long row, and where sentences
and documents begin in it. `check` verifies every sum of the manifest.
"""

from bertsmith.corpus.corpus import Corpus, check
from bertsmith.corpus.documents import text_lines
from bertsmith.corpus.manifest import Manifest, Split
from bertsmith.corpus.prepare import Summary, prepare

__all__ = ["Corpus", "Manifest", "Split", "Summary", "check", "prepare", "text_lines"]
