"""`bertsmith serve`: requests → token-budget batches → answers; a client; the playground."""

from bertsmith.settings.serving import ServingSettings

__all__ = ["ServingSettings"]
