"""The part of a passage that answers a question."""
