"""The page's own tokenizer, encoder and heads give what the package gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith.batch import Batch
from bertsmith.explorer import explorer
from bertsmith.model import Trace
from explorer.models import MODELS, tiny
from explorer.node import worker

FIRST = "The river Vltava flows through Prague; nobody could answer her question."
SECOND = "My sister's dog chased the cats."


@pytest.mark.parametrize("family", MODELS)
def test_states_and_logits_are_those_of_torch(family: str, tmp_path: Path) -> None:
    """Every family: the states of a pair, the logits of its mask, the attention of every head."""
    bert = tiny(family)
    bert.model.half().float()  # so that the page stores all weights exactly
    explorer(bert, tmp_path / "page.html", dtype="float16")
    mask = bert.tokenizer.mask_token
    text = FIRST.replace("Prague", str(mask))
    encoding = bert.tokenizer.encode(text, SECOND)
    trace = Trace(states=True, heads=dict.fromkeys(range(len(bert.checkpoint.config.plan))))
    with torch.inference_mode():
        batch = Batch.of([encoding.ids], [encoding.segments])
        hidden = bert.model.encoder(batch, trace)
        logits = bert.model.heads["masked_lm"](hidden, batch)
    with worker(tmp_path / "page.html") as page:
        run = page.ask("run", first=text, second=SECOND)
        rows = page.ask("logits", head="masked_lm", first=text, second=SECOND)["logits"]
        last = page.ask("logits", head="states", first=text, second=SECOND)["logits"][0]
    assert [token["id"] for token in run["tokens"]] == encoding.ids
    assert [token["segment"] for token in run["tokens"]] == encoding.segments
    width = bert.checkpoint.config.width
    np.testing.assert_allclose(np.reshape(last, (-1, width)), hidden.last, atol=2e-4)
    np.testing.assert_allclose(np.array(rows), logits, atol=1e-2)
    for depth, ours in enumerate(run["maps"]):
        theirs = trace.maps[depth][0].numpy()
        np.testing.assert_allclose(np.reshape(ours, theirs.shape), theirs, atol=1e-4)
    place = encoding.ids.index(bert.tokenizer.mask_id or 0)
    best = [guess["id"] for guess in run["answers"]["masked_lm"][0]["best"][:3]]
    assert best == logits[place, : bert.tokenizer.size].topk(3).indices.tolist()
