"""A tag for every word, and entities from BIO tags."""
