"""bertsmith: train, fine-tune, inspect, compare, search with and serve BERT-family encoders."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from bertsmith.bert import Bert, load, predict
    from bertsmith.checkpoint import create
    from bertsmith.errors import BertsmithError
    from bertsmith.families import presets
    from bertsmith.finetuning.classifier import Classifier
    from bertsmith.search import Index
    from bertsmith.serve.client import connect
    from bertsmith.tokenizer import Tokenizer
    from bertsmith.verbs import distill, evaluate, finetune, pretrain

# Found when first used, so that `import bertsmith` costs nothing.
_HOMES = {
    "Bert": "bert",
    "BertsmithError": "errors",
    "Classifier": "finetuning.classifier",
    "Index": "search",
    "Tokenizer": "tokenizer",
    "connect": "serve.client",
    "create": "checkpoint",
    "distill": "verbs",
    "evaluate": "verbs",
    "finetune": "verbs",
    "load": "bert",
    "predict": "bert",
    "presets": "families",
    "pretrain": "verbs",
}
__all__ = ["Bert", "BertsmithError", "Classifier", "Index", "Tokenizer", "connect", "create"]
__all__ += ["distill", "evaluate", "finetune", "load", "predict", "presets", "pretrain"]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bertsmith' has no attribute {name!r}")
    return getattr(import_module(f"bertsmith.{_HOMES[name]}"), name)
