"""A model directory: read, write, create, convert. The layout is the ecosystem's own."""

from bertsmith.checkpoint.checkpoint import Checkpoint, Report, create
from bertsmith.checkpoint.read import read
from bertsmith.checkpoint.write import write

__all__ = ["Checkpoint", "Report", "create", "read", "write"]
