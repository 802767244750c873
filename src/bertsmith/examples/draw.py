"""Random numbers as pure functions of their keys, without state.

The keys are mixed one after the other by the finaliser of splitmix64, which turns a counter into
numbers that pass the usual tests of randomness.
"""

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.corpus.duplicates import mixed

Numbers = NDArray[Any]
Key = int | str | Numbers
ROUNDS = 4


def bits(*keys: Key) -> Numbers:
    """Return 64 random bits for each key; keys that are arrays are broadcast."""
    state = np.zeros((), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for key in keys:  # a string counts by its checksum
            word = zlib.crc32(key.encode()) if isinstance(key, str) else key
            state = mixed(state ^ np.asarray(word).astype(np.uint64))
    return state


def uniform(*keys: Key) -> Numbers:
    """Numbers from 0 to just under 1."""
    return (bits(*keys) >> np.uint64(11)) * 2.0**-53


def below(limit: int | Numbers, *keys: Key) -> Numbers:
    """Whole numbers from 0 to just under a limit."""
    return (uniform(*keys) * limit).astype(np.int64)


def shuffled(places: Numbers, count: int, *keys: Key) -> Numbers:
    """Return the new positions of `places` in a shuffle of 0 to count-1, without shuffling all.

    Keys that are arrays have a value for each place. A Feistel network permutes the next power of
    two; a result outside the range is permuted again until it is inside.
    """
    size = max(2, int(count - 1).bit_length())
    low = size // 2

    def once(place: Numbers, chosen: Numbers | slice) -> Numbers:
        own = [key[chosen] if isinstance(key, np.ndarray) else key for key in keys]
        left, right, width = place >> np.uint64(low), place & _ones(low), size - low
        for turn in range(ROUNDS):  # an even number of rounds, since the halves may differ by a bit
            left, right = right, left ^ (bits(*own, turn, right) & _ones(width))
            width = size - width
        return (left << np.uint64(low)) | right

    positions = once(places.astype(np.uint64), slice(None))
    while (outside := positions >= count).any():
        positions[outside] = once(positions[outside], outside)
    return positions.astype(np.int64)


def _ones(width: int) -> np.uint64:
    return np.uint64((1 << width) - 1)
