"""`bertsmith serve`: requests → token-budget batches → answers; a client; the playground."""

from bertsmith.settings.serving import Settings

__all__ = ["Settings"]
