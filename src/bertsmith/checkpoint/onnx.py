"""A model directory → an ONNX graph of padded batches, checked against torch.

The graph reads `input_ids`, `attention_mask` and, where the model knows segments,
`token_type_ids`, each (batch, length) with any sizes. It returns `last_hidden_state`,
`sentence_embedding` (pooled, and normalised where the model says so), and an output for each head,
named after it.
"""

import copy
import io
import logging
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.batch import Batch
from bertsmith.checkpoint.checkpoint import Checkpoint
from bertsmith.checkpoint.sentence import Sentence
from bertsmith.checkpoint.write import STORED
from bertsmith.errors import BertsmithError
from bertsmith.files import import_package, write_json
from bertsmith.folders import check_replaceable, replace_directory
from bertsmith.kernels import distance_rows, onnx_session
from bertsmith.model import Model
from bertsmith.model.attend import KERNELS, Scores
from bertsmith.model.block import ConvolutionBlock
from bertsmith.model.heads import Head
from bertsmith.model.pooling import POOLS
from bertsmith.model.position import RelativeSignal
from bertsmith.tokenizer import Tokenizer

CLOSE = 1e-4  # the largest difference from torch that is accepted, relative to the outputs' size
LENGTHS = (1, 2, 512)  # tokens of the sequences that are compared
KERNEL = "padded"
LARGEST = 1_900_000_000  # bytes of weights: one ONNX file holds 2 GB


@dataclass(frozen=True)
class Grid:
    """A padded batch in the place of a `Layout`: rows are tokens, padding included."""

    mask: Tensor  # (B, n) where tokens are real
    positions: Tensor  # (B * n,)
    first: Tensor  # (B,) the row of each sequence's first token
    owner: Tensor  # (B * n,) the sequence of each row
    longest: Any  # n, which the graph leaves open
    most: int = 0

    @classmethod
    def of(cls, mask: Tensor) -> Self:
        """Where each token is, by an attention mask."""
        count, length = mask.shape
        real = mask > 0
        places = (real.long().cumsum(1) - 1).clamp(min=0)
        sequences = torch.arange(count, device=mask.device)
        owner = sequences[:, None].expand(count, length)
        first = sequences * length + real.long().argmax(1)
        return cls(real, places.flatten(), first, owner.flatten(), length)


class PaddedModel(nn.Module):
    """The encoder and all heads on padded batches; pooling and normalisation included."""

    def __init__(self, model: Model, sentence: Sentence) -> None:
        super().__init__()
        self.model, self.sentence = model, sentence
        model.use_kernel(KERNEL)
        for module in model.modules():
            if isinstance(module, Head) and module.pool is POOLS["mean"]:
                module.pool = mean_of_grid
            if isinstance(module, ConvolutionBlock):
                module.convolve = _convolve(module)  # type: ignore[method-assign]
            if isinstance(module, RelativeSignal):
                module.rows = _rows(module)  # type: ignore[method-assign]

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor | None = None) -> tuple[Tensor, ...]:
        """(B, n) → states (B, n, D), vectors (B, D), and the outputs of heads."""
        grid: Any = Grid.of(mask)
        flat = ids.flatten()
        batch = Batch(flat, torch.zeros_like(flat) if types is None else types.flatten(), grid)
        hidden = self.model.encoder(batch)
        last = hidden.last * grid.mask.flatten()[:, None]
        hidden = hidden._replace(last=last)
        pool = POOLS["first"] if self.sentence.pool == "first" else mean_of_grid
        vectors = self.sentence.project(pool(last, grid, None))
        if self.sentence.normalise:
            vectors = F.normalize(vectors, dim=-1)
        shape = grid.mask.shape
        outputs = [last.unflatten(0, shape), vectors]
        for head in self.model.heads.values():
            output = head(hidden, batch)
            outputs.append(output.unflatten(0, shape) if _reads_all(head) else output)
        return tuple(outputs)


def _reads_all(head: nn.Module) -> bool:
    """Has a head an output for every token?"""
    return isinstance(head, Head) and head.pool is POOLS["every"]


def mean_of_grid(x: Tensor, grid: Any, rows: Tensor | None = None) -> Tensor:
    """The mean state of each sequence, without its padding: (B * n, D) → (B, D)."""
    mask = grid.mask[:, :, None].to(x.dtype)
    states = x.unflatten(0, grid.mask.shape) * mask
    return states.sum(1) / mask.sum(1).clamp(min=1)


def _padded(
    query: Tensor, key: Tensor, value: Tensor, grid: Any, scores: Scores, dropout: float
) -> Tensor:
    """Attention on a padded grid: three (B * n, H, d) → (B * n, H, d)."""
    shape, length = grid.mask.shape, grid.mask.shape[1]
    q, k, v = (x.unflatten(0, shape).transpose(1, 2) for x in (query, key, value))
    q, bias = q * scores.scale, scores.bias
    total = q @ k.transpose(-1, -2)  # (B, H, n, n)
    places = torch.arange(length, device=q.device)
    distance = places[:, None] - places[None, :]
    if bias is not None:
        row = bias.rows[length - 1 + distance].expand(total.shape)
        if bias.keys is not None:
            total = total + (q @ bias.keys.permute(1, 2, 0)).gather(3, row)
        if bias.queries is not None:
            met = (k * scores.scale) @ bias.queries.permute(1, 2, 0)
            total = total + met.gather(3, row.transpose(-1, -2)).transpose(-1, -2)
        if bias.levels is not None:
            total = total + bias.levels[row[0, 0]].permute(2, 0, 1)
    hidden = ~grid.mask[:, None, None, :]
    if scores.window is not None:
        hidden = hidden | (distance.abs() > scores.window)
    weights = total.masked_fill(hidden, torch.finfo(total.dtype).min).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(0, 1)


KERNELS[KERNEL] = _padded


def _rows(signal: RelativeSignal) -> Any:
    """The row of each distance, computed in the graph for any length."""
    return lambda grid: distance_rows(grid.longest, *signal.distances.how)


def _convolve(block: ConvolutionBlock) -> Any:
    def convolve(x: Tensor, grid: Any) -> Tensor:
        conv = block.convolution
        rows = (x * grid.mask.flatten()[:, None]).unflatten(0, grid.mask.shape).transpose(-1, -2)
        gap = conv.kernel_size[0] // 2
        out = F.conv1d(rows, conv.weight, conv.bias, padding=gap, groups=conv.groups)
        return out.transpose(-1, -2).flatten(0, 1)

    return convolve


def export_model(
    out: str | Path,
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    sentence: Sentence,
    *,
    longest: int,
    int8: bool = False,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a directory with model.onnx, config.json and the tokenizer; return its description.

    The directory gets its name only after the graph's output was compared with torch. With `int8`,
    its linear layers are then quantized, with a scale for each output.
    """
    extra = "'bertsmith[onnx]'"
    import_package("onnx", "the export needs onnx", extra)
    import_package("onnxruntime", "the export needs onnxruntime", extra)
    import_package("onnxscript", "the export needs onnxscript", extra)
    check_replaceable(out, overwrite)
    size = sum(p.numel() for p in checkpoint.model.parameters()) * 4
    if size > LARGEST:
        many = f"{size / 1e9:.1f} GB of weights"
        raise BertsmithError(f"the model has {many}, but an ONNX file holds at most 2 GB")
    differences: dict[str, float] = {}
    cosine: dict[str, float] = {}

    def fill(part: Path) -> None:
        differences.update(export_onnx(checkpoint, sentence, part / "model.onnx", longest))
        if int8:
            cosine["int8_cosine"] = quantize_onnx(checkpoint, part / "model.onnx", longest)
        config = checkpoint.config
        tokenizer.save(part, segments=config.segments > 1, longest=config.max_length)
        settings = {key: v for key, v in checkpoint.settings.items() if key != STORED}
        write_json(part / "config.json", settings)

    replace_directory(out, fill, overwrite)
    inputs, outputs = _names(checkpoint)
    return {
        "out": str(out),
        "inputs": inputs,
        "outputs": outputs,
        "differences": {name: differences[name] for name in outputs},
        "lengths": sorted({min(length, longest) for length in LENGTHS}),
        "bytes": (Path(out) / "model.onnx").stat().st_size,
        **cosine,
    }


def _names(checkpoint: Checkpoint) -> tuple[list[str], list[str]]:
    """The names of the graph's inputs and of its outputs."""
    segments = ["token_type_ids"] if checkpoint.config.segments > 1 else []
    outputs = ["last_hidden_state", "sentence_embedding", *checkpoint.model.heads]
    return ["input_ids", "attention_mask", *segments], outputs


def export_onnx(
    checkpoint: Checkpoint, sentence: Sentence, path: Path, longest: int
) -> dict[str, float]:
    """Write the graph to a file; return how far each output is from torch's.

    Tracing takes a second, but some graphs (DeBERTa's) only work for the lengths that were traced.
    Those are captured with `torch.export`, which takes a minute.
    """
    try:
        _write(checkpoint, sentence, path, traced=True)
        return check_onnx(checkpoint, sentence, path, longest)
    except Exception:  # noqa: BLE001 - whatever it was, the other way may work
        pass
    try:
        _write(checkpoint, sentence, path, traced=False)
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        kind = f"this {checkpoint.family.name} model"
        raise BertsmithError(f"{kind} cannot be expressed in ONNX ({reason})") from error
    return check_onnx(checkpoint, sentence, path, longest)


def _write(checkpoint: Checkpoint, sentence: Sentence, path: Path, *, traced: bool) -> None:
    """Write the graph of a copy of the model: tracing leaves marks on the one that it is given."""
    model = copy.deepcopy(checkpoint.model).float().cpu().eval()
    ids = torch.randint(0, checkpoint.config.vocabulary, (2, 5))
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    names, outputs = _names(checkpoint)
    arguments = (ids, mask, torch.zeros_like(ids))[: len(names)]
    axes: dict[str, Any]
    if traced:
        every = {name for name, head in model.heads.items() if _reads_all(head)}
        long = {*names, "last_hidden_state", *every}
        sizes = {name: {0: "batch", 1: "length"} for name in long}
        axes = {"dynamic_axes": {name: {0: "batch"} for name in outputs} | sizes}
    else:
        dims = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
        axes = {"dynamic_shapes": tuple(dict(dims) for _ in arguments), "external_data": False}
    with warnings.catch_warnings(), torch.enable_grad(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        torch.onnx.export(
            PaddedModel(model, sentence),
            arguments,
            str(path),
            input_names=names,
            output_names=outputs,
            dynamo=not traced,
            verbose=False,
            **axes,
        )


def quantize_onnx(checkpoint: Checkpoint, path: Path, longest: int) -> float:
    """Quantize a graph in place; return the mean cosine of its vectors to those of float32."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    float32 = path.with_name("float32.onnx")
    path.rename(float32)
    logging.disable(logging.WARNING)  # it advises to change the graph first
    try:
        # Signed weights saturate without a word on x86 CPUs without VNNI instructions.
        quantize_dynamic(float32, path, per_channel=True, weight_type=QuantType.QUInt8)
    finally:
        logging.disable(logging.NOTSET)
    rows = _random_rows(checkpoint, [min(length, longest) for length in (16, 64, 128)])
    runs = [_run(onnx_session(str(file)), rows) for file in (float32, path)]
    float32.unlink()
    before, after = (torch.from_numpy(outputs["sentence_embedding"]) for outputs in runs)
    return float(F.cosine_similarity(before, after).mean())


def _random_rows(checkpoint: Checkpoint, lengths: Sequence[int]) -> list[list[int]]:
    generator, most = np.random.default_rng(0), checkpoint.config.vocabulary
    return [generator.integers(0, most, length).tolist() for length in lengths]


def check_onnx(
    checkpoint: Checkpoint, sentence: Sentence, path: Path, longest: int
) -> dict[str, float]:
    """Compare the graph in onnxruntime with our own ragged encoder; refuse one that differs."""
    session = onnx_session(str(path), log_severity_level=4)  # an exception reports what fails
    model = copy.deepcopy(checkpoint.model).float().cpu().eval()
    model.use_kernel(None)
    rows = _random_rows(checkpoint, [min(length, longest) for length in LENGTHS])
    differences: dict[str, float] = {}
    for group in (rows, rows[:1], rows[1:2], rows[2:]):
        batch = Batch.of(group)
        with torch.inference_mode():
            hidden = model.encoder(batch)
            pool = POOLS[sentence.pool]
            vectors = sentence.project(pool(hidden.last.float(), batch.layout, None))
            vectors = F.normalize(vectors, dim=-1) if sentence.normalise else vectors
            expected = {"sentence_embedding": vectors, "last_hidden_state": hidden.last}
            expected |= {name: head(hidden, batch) for name, head in model.heads.items()}
        outputs = _run(session, group)
        for name, ours in expected.items():
            theirs = torch.from_numpy(outputs[name])
            if theirs.ndim > 2 or name == "last_hidden_state":
                theirs = torch.cat([theirs[row, : len(ids)] for row, ids in enumerate(group)])
            scale = max(1.0, float(ours.abs().max()))
            apart = float((theirs.reshape(ours.shape) - ours).abs().max()) / scale
            differences[name] = max(differences.get(name, 0.0), apart)
            if not apart <= CLOSE:
                fault = f"{name} of the ONNX graph differs from torch by {apart:.1e}"
                raise BertsmithError(f"{fault}: not exported")
    return differences


def _run(session: Any, rows: Sequence[Sequence[int]]) -> dict[str, Any]:
    longest = max(map(len, rows))
    ids, mask = np.zeros((len(rows), longest), np.int64), np.zeros((len(rows), longest), np.int64)
    for number, row in enumerate(rows):
        ids[number, : len(row)], mask[number, : len(row)] = row, 1
    feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    names = [one.name for one in session.get_outputs()]
    inputs = [one.name for one in session.get_inputs()]
    return dict(zip(names, session.run(None, {name: feeds[name] for name in inputs}), strict=True))
