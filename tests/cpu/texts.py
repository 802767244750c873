"""Words and texts of these tests."""

from itertools import product

from tasks.words import LINES

WORDS = LINES.replace(",", "").split()
TEXTS = [" ".join(pair) for pair in product(WORDS[:12], WORDS[4:12])]
TEXTS += [" ".join(WORDS[n : n + 9]) for n in range(10)]
