"""Read data: any file, table or list as examples that know their file and line."""

from bertsmith.data.conll import Treebank, read_treebank
from bertsmith.data.dataset import TASKS, Dataset, has_gold, label_names, ordered
from bertsmith.data.examples import (
    Annotated,
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
from bertsmith.data.folders import find_splits
from bertsmith.data.glue import GLUE, Benchmark, glue_folders, read_glue
from bertsmith.data.read import Data, Portion, open_data, read_data, read_texts
from bertsmith.data.schemes import Chunk, chunks, convert, detect, faults, strict_chunks
from bertsmith.data.splits import Splits, read_splits, split_off
from bertsmith.data.tables import draw

__all__ = [
    "GLUE",
    "TASKS",
    "Annotated",
    "Benchmark",
    "Chunk",
    "Data",
    "Dataset",
    "Example",
    "Labelled",
]
__all__ += ["MultiLabelled", "Options", "Portion", "Question", "Related", "Scored", "Span"]
__all__ += ["Splits", "Tagged", "Treebank", "Where", "chunks", "convert", "detect", "draw"]
__all__ += [
    "faults",
    "find_splits",
    "glue_folders",
    "has_gold",
    "label_names",
    "open_data",
    "ordered",
]
__all__ += ["read_data", "read_glue", "read_splits", "read_texts", "read_treebank"]
__all__ += ["split_off", "strict_chunks"]
