"""Files → documents → sentences → token shards that are mapped into memory.

`prepare` writes a folder of shards, in parallel, in bounded memory, and can be resumed after an
interruption; `add` adds text to one. `Corpus` opens a folder: all tokens of a split as one array,
and where sentences and documents begin in it. `Mixture` is several of them with shares. `check`
verifies every checksum of the manifest.
"""

from bertsmith.corpus.corpus import Corpus, Mixture, check
from bertsmith.corpus.documents import text_lines
from bertsmith.corpus.manifest import Manifest, SplitSize, is_finished
from bertsmith.corpus.prepare import PreparedCorpus, add, prepare

__all__ = ["Corpus", "Manifest", "Mixture", "PreparedCorpus", "SplitSize", "add", "check"]
__all__ += ["is_finished", "prepare", "text_lines"]
