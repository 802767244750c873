"""`bertsmith serve`: requests → token-budget batches → answers; a client; the playground."""

from bertsmith.serve.settings import Settings

__all__ = ["Settings"]
