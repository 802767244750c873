"""Tiny teachers, and small files to distil them on."""

from finetune.conftest import base, write

__all__ = ["base", "write"]
