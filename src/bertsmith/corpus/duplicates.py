"""Exact and near duplicates of documents, in bounded memory.

Every document has a digest of 16 bytes, and for near-duplicates a MinHash signature of its
token 5-grams. Both are files, in the order of the documents. Equal keys are grouped by
sorting, some million documents at a time, so that memory does not grow with the corpus.
"""

from collections.abc import Callable, Iterator

import numpy as np

from bertsmith.corpus.encode import Ints

SHINGLE = 5  # tokens that count as one common feature
PERMUTATIONS = 128
RECALL = 0.99  # of pairs with exactly the requested similarity that are compared
EARLIER = 8  # documents with which one is compared, in every band
SEED = 42  # of the permutations; fixed, since documents do not depend on it
CHUNK = 1 << 18  # tokens that are hashed together
AT_ONCE = 2_000_000  # keys that are sorted together
SOME = 1 << 16  # signatures in memory at a time


def signatures(tokens: Ints, sentence_lengths: Ints, counts: Ints, *, near: bool) -> Ints:
    """Return the MinHash signature of each document (D, 128) uint32; (D, 0) if not requested."""
    if not near or not len(counts):
        return np.zeros((len(counts), 0), np.uint32)
    import rensa

    ends = np.concatenate([[0], sentence_lengths.cumsum(dtype=np.int64)])
    bounds = ends[np.concatenate([[0], counts.cumsum(dtype=np.int64)])]
    rows = np.full((len(counts), PERMUTATIONS), np.iinfo(np.uint32).max, np.uint32)
    for start in range(0, len(tokens), CHUNK):
        hashes, owners = _shingles(tokens, bounds, start, min(start + CHUNK, len(tokens)))
        present, firsts = np.unique(owners, return_index=True)
        matrix = rensa.RMinHash.digest_matrix_from_flat_token_hashes(
            hashes, np.append(firsts, len(hashes)), PERMUTATIONS, SEED
        )
        # A document that continues in the next chunk has the minima of both.
        rows[present] = np.minimum(rows[present], np.array(matrix.to_rows(), np.uint32))
    return rows


def _shingles(tokens: Ints, bounds: Ints, start: int, end: int) -> tuple[Ints, Ints]:
    """Hashes of 5-grams that begin in a chunk (one for a short document), and their documents."""
    places = np.arange(start, end)
    owners = np.searchsorted(bounds, places, side="right") - 1
    room = bounds[owners + 1] - places
    following = tokens[start : end + SHINGLE].astype(np.uint64) + np.uint64(1)
    following = np.concatenate([following, np.zeros(SHINGLE, np.uint64)])
    hashes = np.zeros(end - start, np.uint64)
    for place in range(SHINGLE):
        # Tokens of the next document are ignored, so that hashes do not depend on it.
        token = np.where(room > place, following[place : place + end - start], np.uint64(0))
        hashes = mixed(hashes ^ token)
    kept = (room >= SHINGLE) | (places == bounds[owners])
    return hashes[kept], owners[kept]


def mixed(values: Ints) -> Ints:
    """Spread values over 64 bits (SplitMix64)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


Release = Callable[[], None]  # releases the memory of mapped files


def mark_exact(digests: Ints, repeated: Ints, release: Release = lambda: None) -> None:
    """Mark every document whose digest (D, 2) equals that of an earlier one."""
    for members in _alike(digests[:, 0]):
        low, high = digests[members, 0], digests[members, 1]
        order = np.lexsort((members, high, low))
        same = (low[order][1:] == low[order][:-1]) & (high[order][1:] == high[order][:-1])
        repeated[members[order][1:][same]] = 1
        release()


def mark_near(
    signed: Ints, similarity: float, repeated: Ints, keys: Ints, release: Release = lambda: None
) -> None:
    """Mark every document that is similar to an earlier one, itself marked or not.

    Signatures are cut into bands; a document is compared with the first and the last few of the
    earlier ones that have the same values in a band. `keys` (D,) uint64 is a work buffer.
    """
    bands, rows = bands_for(similarity)
    for band in range(bands):
        for first in range(0, len(signed), SOME):
            values = signed[first : first + SOME, band * rows : (band + 1) * rows]
            keys[first : first + SOME] = _band_keys(values)
            release()
        for members in _alike(keys):
            _mark_similar(members, keys[members], signed, similarity, repeated, release)


def bands_for(similarity: float) -> tuple[int, int]:
    """Return the number of bands and their values: as many values as the recall allows."""
    for rows in range(PERMUTATIONS, 1, -1):
        bands = PERMUTATIONS // rows
        if 1 - (1 - similarity**rows) ** bands >= RECALL:
            return bands, rows
    return PERMUTATIONS, 1


def _mark_similar(
    members: Ints, keys: Ints, signed: Ints, similarity: float, repeated: Ints, release: Release
) -> None:
    """Mark those of some documents that are similar to an earlier one with the same key."""
    order = np.lexsort((members, keys))
    keys, members = keys[order], members[order]
    new = np.concatenate([[True], keys[1:] != keys[:-1]])
    leaders = np.maximum.accumulate(np.where(new, np.arange(len(new)), 0))
    later = np.flatnonzero(~new & (repeated[members] == 0))
    for start in range(0, len(later), SOME):
        some = later[start : start + SOME]
        own, first = signed[members[some]], leaders[some]
        alike = _similarity(own, signed[members[first]]) >= similarity
        for back in range(1, EARLIER):
            others = some - back
            inside = np.flatnonzero((others > first) & ~alike)
            if not len(inside):
                break
            similar = _similarity(own[inside], signed[members[others[inside]]])
            alike[inside] = similar >= similarity
        repeated[members[some][alike]] = 1
        release()


def _band_keys(values: Ints) -> Ints:
    keys = np.zeros(len(values), np.uint64)
    for column in values.T:
        keys = mixed(keys ^ column.astype(np.uint64))
    return keys


def _similarity(left: Ints, right: Ints) -> Ints:
    """The estimated Jaccard similarity: the fraction of permutations with equal minima."""
    return (left == right).mean(axis=1)


def _alike(keys: Ints) -> Iterator[Ints]:
    """Yield groups of document numbers; documents with equal keys are in the same group."""
    groups = -(-len(keys) // AT_ONCE)
    for group in range(groups):
        starts = range(0, len(keys), AT_ONCE)
        parts = ((start, keys[start : start + AT_ONCE] % np.uint64(groups)) for start in starts)
        yield np.concatenate([start + np.flatnonzero(part == group) for start, part in parts])
