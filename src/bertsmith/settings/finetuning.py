"""Settings of one fine-tuning run; `finetuning.RunSettings` validates them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bertsmith.settings import setting

MANY = 10**9
TASK = "by the task"


class FinetuningSettings:
    """What the commands `finetune`, `distill` and the benchmarks, and their functions, can set."""

    learning_rate: float = setting(
        1e-4, "Peak learning rate.", ge=1e-9, le=1, usual="by the model's width"
    )
    optimizer: Literal["adamw", "muon"] = setting(
        "adamw",
        "Optimizer; muon is for the matrices of the layers, with AdamW for the rest.",
        usual="adamw, or the model's own default",
    )
    matrix_learning_rate: float = setting(
        0.0, "Learning rate of Muon.", ge=0, le=1, usual="by the steps"
    )
    epochs: int = setting(3, "Passes over the training file.", ge=1, le=10_000, usual=TASK)
    batch_size: int = setting(32, "Examples in a step.", ge=1, le=1_000_000, usual=TASK)
    seed: int = setting(
        0, "Seed of the new head, the order of examples and dropout.", ge=0, le=MANY
    )
    warmup: float = setting(
        0.1, "Fraction of steps in which the learning rate rises.", ge=0, le=0.9
    )
    schedule: Literal["linear", "cosine", "stable", "constant"] = setting(
        "linear", "Learning-rate schedule after warm-up."
    )
    weight_decay: float = setting(0.01, "Weight decay.", ge=0, le=10)
    clip: float = setting(1.0, "Largest gradient norm.", ge=1e-6, le=1e9)
    spike: float = setting(
        0.0,
        "Skip steps whose gradient norm is this many times the recent one.",
        ge=0,
        le=1e9,
        usual="none is skipped",
    )
    ema: float = setting(
        0.0, "Keep averaged weights, with this decay: 0.999.", ge=0, le=0.999999, usual="no average"
    )
    dropout: float | None = setting(
        None, "Dropout of all layers.", ge=0, le=0.9, usual="the model's own"
    )
    both_orders: bool = setting(False, "Train on both orders of every pair of texts.")
    layer_decay: float = setting(
        0.8, "Learning rate of a layer as a fraction of that of the layer above.", ge=0.01, le=1
    )
    freeze: str = setting(
        "none", "Layers to freeze: none, embedding, encoder or a number of lower layers."
    )
    trained: Literal["all", "lora", "biases"] = setting(
        "all",
        "Parameters to train: all, lora (low-rank updates of layers) or biases; always the head.",
        option="--train",
    )
    lora_rank: int = setting(8, "Rank of the updates of LoRA.", ge=1, le=4096)
    lora_alpha: float = setting(
        16.0, "Scale of the updates of LoRA, times the rank.", ge=1e-3, le=1e6
    )
    lora_targets: str = setting(
        "all",
        "Layers that LoRA updates: all, attention, feedforward, or names such as query,value.",
    )
    rslora: bool = setting(
        False, "Divide the scale of LoRA by the square root of the rank, not by the rank."
    )
    head_epochs: int = setting(
        0, "Epochs in which only the new head is trained, before the whole model.", ge=0, le=10_000
    )
    reinitialise: int = setting(0, "Number of top layers that get new weights.", ge=0, le=1000)
    class_weights: str = setting("", "Weights of classes: balanced, or name=2,other=1.")
    loss: str = setting("", "Which of the task's losses.", usual="its first")
    focal: float = setting(0.0, "Gamma of the focal loss.", ge=0, le=20, usual="0, cross entropy")
    smoothing: float = setting(0.0, "Label smoothing, from 0 to 1.", ge=0, le=0.99, usual="0")
    patience: int = setting(
        0,
        "Stop after this many epochs without a better dev score.",
        ge=0,
        le=MANY,
        usual="never, unless the file is learned",
    )
    keep: Literal["best", "last"] = setting("best", "Save the best epoch on dev, or the last.")
    metric: str = setting("", "Score that selects the best epoch.", usual="the task's")
    max_length: int = setting(
        0, "Tokens in a window, in training and in use.", ge=0, le=MANY, usual="the model's"
    )
    dtype: Literal["float32", "bfloat16", "float16"] = setting(
        "float32", "Data type of the computation; weights are float32. float16: with loss scaling."
    )
    checkpointing: bool = setting(
        False, "Recompute activations to save memory.", option="--gradient-checkpointing"
    )
    graphs: bool = setting(
        True, "Replay steps as CUDA graphs, where an NVIDIA GPU trains (the default)."
    )
    parallel: Literal["ddp", "fsdp"] = setting(
        "ddp", "With torchrun: each device has the whole model, or a shard of it."
    )
    temperature: float = setting(0.05, "Temperature of the contrastive loss.", ge=1e-4, le=100)
    matryoshka: str = setting(
        "", "Also train vectors that are cut to these widths, such as 64,128,256."
    )
    budget: int = setting(
        0,
        "Tokens in one pass of the model; contrastive steps of more tokens cache gradients.",
        ge=0,
        le=MANY,
        usual="by device",
    )


@dataclass(frozen=True)
class TrialSettings:
    """How many runs `finetune` trains, which one it keeps, and what it fits on the dev data."""

    seeds: int = setting(1, "Number of training runs; reports mean ± standard deviation.")
    folds: int = setting(
        0,
        "Cross-validate with this many folds, then train on all rows.",
        ge=0,
        le=100,
        usual="none",
    )
    average: bool = setting(
        False, "Average the weights of seeds, or of epochs of one, where dev scores are higher."
    )
    sweep: bool = setting(False, "Try learning rates × epochs; keep the best.")
    sweep_rates: Sequence[float] = setting(
        "", "Learning rates to try, such as 1e-5,3e-5.", written=str
    )
    sweep_epochs: Sequence[int] = setting(
        "", "Numbers of epochs to try, such as 2,3,4.", written=str
    )
    auto: bool = setting(False, "Compare quick ways to learn on held-out folds, and keep the best.")
    minutes: float = setting(5.0, "Minutes that --auto may take.", ge=0.05, le=10_000)
    calibrate: bool | None = setting(
        None,
        "Fit temperature and thresholds on the dev data, or neither.",
        usual="the temperature, on 50 or more dev examples",
    )
    abstain: float | None = setting(
        None, "Abstain on unsure inputs, so that accuracy on new data is at least this: 0.95, ..."
    )
    coverage: float | None = setting(
        None, "Predict sets of labels that hold the true one this often on new data: 0.9, ..."
    )
