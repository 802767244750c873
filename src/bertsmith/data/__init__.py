"""Data files for fine-tuning: any known format → examples that know their file and line."""

from bertsmith.data.dataset import TASKS, Dataset, has_gold, label_names, ordered
from bertsmith.data.examples import (
    Example,
    Labelled,
    MultiLabelled,
    Options,
    Question,
    Related,
    Scored,
    Span,
    Tagged,
    Where,
)
from bertsmith.data.glue import GLUE, Benchmark, glue_folders, read_glue
from bertsmith.data.read import read_data
from bertsmith.data.schemes import Chunk, chunks, convert, detect, faults, strict_chunks
from bertsmith.data.splits import find_splits

__all__ = ["GLUE", "TASKS", "Benchmark", "Chunk", "Dataset", "Example", "Labelled"]
__all__ += ["MultiLabelled", "Options", "Question", "Related", "Scored", "Span", "Tagged"]
__all__ += ["Where", "chunks", "convert", "detect", "faults", "find_splits", "glue_folders"]
__all__ += ["has_gold", "label_names", "ordered", "read_data", "read_glue", "strict_chunks"]
