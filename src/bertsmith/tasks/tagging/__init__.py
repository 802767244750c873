"""A tag for every word, and the entities that tags spell."""
