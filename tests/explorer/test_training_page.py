"""The page that trains: its gradients and updates are torch's, and it learns in a browser."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
import torch

from analysis.browser import Watched, chromium
from bertsmith.explorer import training_page
from explorer.node import worker

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import nanobert

TOKENS = [*nanobert.SPECIAL, *(f"t{n}" for n in range(30))]
SIZES = {"width": 16, "layers": 2, "heads": 2}


def batch() -> list[dict[str, list[int]]]:
    """Texts of different lengths with masks."""
    draw, rows = random.Random(0), []
    tokenizer = nanobert.Tokenizer(TOKENS)
    for length in (5, 9, 3):
        ids = [2, *(draw.randrange(5, len(TOKENS)) for _ in range(length)), 3]
        seen, targets = nanobert.mask_tokens(ids, tokenizer, draw)
        rows.append({"ids": seen, "targets": [-1 if one == -100 else one for one in targets]})
    return rows


def test_loss_and_gradients_are_those_of_torch(tmp_path: Path) -> None:
    training_page(tmp_path / "train.html")
    torch.manual_seed(1)
    model = nanobert.Bert(len(TOKENS), positions=32, width=16, layers=2, heads=2, inner=64)
    model = model.double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.3)
        model.segment.weight.zero_()  # the page has no segments
    rows, losses = batch(), []
    for row in rows:
        states, _ = model(torch.tensor([row["ids"]]), torch.zeros(1, len(row["ids"]), dtype=int))
        targets = torch.tensor(row["targets"])
        at_masks = states[0][targets >= 0]
        losses.append(
            torch.nn.functional.cross_entropy(
                model.guess(at_masks), targets[targets >= 0], reduction="sum"
            )
        )
    masks = sum(one >= 0 for row in rows for one in row["targets"])
    loss = torch.stack(losses).sum() / masks
    loss.backward()
    parameters = dict(model.named_parameters())
    with worker(tmp_path / "train.html") as page:
        names = {n for n in parameters if not n.startswith(("segment", "pooler", "follows"))}
        weights = {n: parameters[n].detach().flatten().tolist() for n in names}
        answer = page.ask("gradients", tokens=TOKENS, sizes=SIZES, weights=weights, batch=rows)
    assert answer["loss"] == pytest.approx(loss.item(), abs=1e-5)
    assert set(answer["gradients"]) == names
    for name, gradient in answer["gradients"].items():
        expected = parameters[name].grad
        assert expected is not None
        ours = torch.tensor(gradient, dtype=torch.float64).view(expected.shape)
        # The page's error function is exact to 1e-7.
        assert torch.allclose(ours, expected, atol=2e-6), name


def test_it_learns_in_a_browser(tmp_path: Path) -> None:
    training_page(tmp_path / "train.html")
    with chromium() as browser:
        shown = Watched(browser, tmp_path / "train.html")
        page = shown.page
        page.click("#train")
        page.wait_for_selector("#guesses li", timeout=120_000)  # after 20 steps
        page.click("#train")  # Stop
        first, last = page.evaluate("[curves[0].train, curves.at(-1).train]")
        assert last < first - 0.5
        assert page.locator("#guesses li").count() == 5
        assert page.locator("#curves polyline").count() == 2
        page.wait_for_selector("#train:has-text('Train')")
        page.fill("#text", "Too short.")
        page.click("#train")
        page.wait_for_selector("#status:has-text('too short')")
        assert all(url.startswith(("file:", "blob:")) for url in shown.requests)
        assert shown.faults == []
        shown.context.close()
