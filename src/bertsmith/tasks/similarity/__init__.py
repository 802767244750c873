"""Vectors of texts that belong together."""
