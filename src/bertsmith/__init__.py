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
    from bertsmith.label import agreement, texts_to_label
    from bertsmith.label.curve import learning_curve
    from bertsmith.label.errors import find_wrong_labels
    from bertsmith.reports.hub import push
    from bertsmith.search import Index
    from bertsmith.serve.client import connect
    from bertsmith.tokenizer import Tokenizer
    from bertsmith.verbs import distill, evaluate, finetune, pretrain, quantize

# Found when first used, so that `import bertsmith` costs nothing.
_HOMES = {
    "Bert": "bert",
    "BertsmithError": "errors",
    "Classifier": "finetuning.classifier",
    "Index": "search",
    "Tokenizer": "tokenizer",
    "agreement": "label",
    "connect": "serve.client",
    "create": "checkpoint",
    "distill": "verbs",
    "evaluate": "verbs",
    "find_wrong_labels": "label.errors",
    "finetune": "verbs",
    "learning_curve": "label.curve",
    "load": "bert",
    "predict": "bert",
    "presets": "families",
    "pretrain": "verbs",
    "push": "reports.hub",
    "quantize": "verbs",
    "texts_to_label": "label",
}
__all__ = ["Bert", "BertsmithError", "Classifier", "Index", "Tokenizer", "connect", "create"]
__all__ += ["distill", "evaluate", "finetune", "load", "predict", "presets", "pretrain"]
__all__ += ["agreement", "find_wrong_labels", "learning_curve", "push", "quantize"]
__all__ += ["texts_to_label"]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bertsmith' has no attribute {name!r}")
    return getattr(import_module(f"bertsmith.{_HOMES[name]}"), name)
