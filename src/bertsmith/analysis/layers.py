"""The logit lens (predictions at each depth) and CKA (similarity of depths and models)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from bertsmith.analysis.maps import Floats, encoded
from bertsmith.batch import Batch
from bertsmith.errors import BertsmithError
from bertsmith.infer.loaded import LoadedModel
from bertsmith.infer.states import hidden_states
from bertsmith.infer.texts import listed_strings
from bertsmith.model import Hidden, Trace
from bertsmith.tasks.registry import USES


@dataclass(frozen=True)
class DepthGuess:
    """Predictions for a mask by the masked-LM head at one depth."""

    depth: int  # 0 is the output of the embeddings, k that of block k
    mask: int  # which mask of the text, from 0
    tokens: list[str]
    scores: list[float]
    final: list[float]  # probabilities at this depth of the tokens predicted at the last depth


def lens(bert: LoadedModel, text: str, top: int = 5) -> list[DepthGuess]:
    """Return the predictions for each mask at every depth (the logit lens).

    The masked-LM head was trained on the last depth only, so its predictions at other depths are
    only an indication.
    """
    USES["fill-mask"].demand(bert)
    if top < 1:
        raise BertsmithError(f"top must be a whole number of at least 1, not {top}")
    encoding = encoded(bert, text, masks=True)
    masks = [row for row, id_ in enumerate(encoding.ids) if id_ == bert.tokenizer.mask_id]
    if not masks:
        raise BertsmithError(
            f"the text has no mask token: write {bert.tokenizer.mask_token} where a word is missing"
        )
    batch = Batch.of([encoding.ids], [encoding.segments]).to(bert.device)
    rows = torch.tensor(masks, device=bert.device)
    trace, size = Trace(states=True), bert.tokenizer.size
    chances = []
    with torch.inference_mode():
        context = bert.model.encoder(batch, trace).context
        for depth, states in enumerate(trace.hidden):
            before = trace.hidden[max(0, depth - 1)]
            hidden = Hidden(bert.model.encoder.norm(states), before, context)
            logits = bert.model.heads["masked_lm"](hidden, batch, rows)[:, :size]
            chances.append(logits.float().softmax(-1).cpu())
    last = chances[-1].topk(min(top, size)).indices
    guesses = []
    for depth, table in enumerate(chances):
        scores, ids = table.topk(min(top, size))
        final = table.gather(1, last)
        for mask, best in enumerate(ids.tolist()):
            words = [bert.tokenizer.decode([id_], skip_special=False).strip() for id_ in best]
            guesses.append(
                DepthGuess(depth, mask, words, scores[mask].tolist(), final[mask].tolist())
            )
    return guesses


def cka(first: Floats, second: Floats) -> float:
    """Return the similarity of two sets of vectors: linear CKA (Kornblith et al. 2019).

    It is 1 if one is a rotated and scaled copy of the other, and near 0 if they are unrelated.
    """
    if len(first) != len(second) or len(first) < 2:
        raise BertsmithError("CKA needs the vectors of the same inputs, at least two")
    x, y = (one.astype(np.float64) - one.mean(0, dtype=np.float64) for one in (first, second))
    # Of the two equal ways to compute it, the one with the smaller matrices.
    if len(x) < max(x.shape[1], y.shape[1]):
        a, b = x @ x.T, y @ y.T
        shared, own, other = (a * b).sum(), np.square(a).sum(), np.square(b).sum()
    else:
        shared = np.square(x.T @ y).sum()
        own, other = np.square(x.T @ x).sum(), np.square(y.T @ y).sum()
    return float(shared / max(np.sqrt(own * other), 1e-30))


def alike(bert: LoadedModel, texts: Sequence[str], other: LoadedModel | None = None) -> Floats:
    """Return CKA between all depths of a model, or of two models, over mean states of texts.

    Special tokens are left out of the means: their states have much larger norms than those of
    words, so that a mean with them depends mostly on the length of the text.
    """
    texts = listed_strings(texts)
    if len(texts) < 2:
        raise BertsmithError("CKA needs at least two texts")

    def mean_states(bert: LoadedModel) -> Floats:
        """The mean state of each text at every depth: (depths, N, D)."""
        states = hidden_states(bert, texts, pool="mean")
        return np.concatenate([text.vectors for text in states], axis=1)

    first = mean_states(bert)
    second = first if other is None else mean_states(other)
    return np.array([[cka(x, y) for y in second] for x in first], np.float32)


def few_texts(texts: int, *berts: LoadedModel) -> list[str]:
    """Return a note if there are fewer texts than CKA needs."""
    width = max(bert.checkpoint.config.width for bert in berts)
    note = (
        f"{texts:,} texts are few for vectors of {width:,} numbers: CKA is biased towards 1; give "
        f"{width:,} texts or more"
    )
    return [note] if texts < width else []
