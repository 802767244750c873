"""Cross entropy: on a CPU, Triton's interpreter runs the same programs."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", reason="Triton comes with torch's CUDA builds")

from bertsmith.kernels.entropy import summed_entropy

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize(("rows", "outputs"), [(1, 2), (7, 100), (3, 9000), (0, 50)])
def test_losses_gradients_and_hits_are_torchs(rows: int, outputs: int) -> None:
    random = torch.Generator().manual_seed(rows)
    logits = (5 * torch.randn(rows, outputs, generator=random)).to(DEVICE).requires_grad_()
    targets = torch.randint(outputs, (rows,), generator=random).to(DEVICE)
    targets[: rows // 2] = logits.detach()[: rows // 2].argmax(-1)
    if rows > 2:
        targets[-1] = -100
    expected = F.cross_entropy(logits, targets, reduction="sum")
    loss, hits = summed_entropy(logits, targets)
    torch.testing.assert_close(loss, expected)
    assert int(hits) == int((logits.argmax(-1) == targets).sum())
    grads = [torch.autograd.grad(3 * x, logits)[0] for x in (loss, expected)]
    torch.testing.assert_close(*grads)


def test_of_equal_logits_the_first_is_the_guess() -> None:
    logits = torch.tensor([[1.0, 2.0, 2.0], [2.0, 2.0, 0.0]], device=DEVICE)
    assert summed_entropy(logits, torch.tensor([2, 0], device=DEVICE))[1] == 1


def test_the_operator_is_what_torch_expects_of_operators() -> None:
    logits = torch.randn(4, 20, device=DEVICE, requires_grad=True)
    torch.library.opcheck(
        torch.ops.bertsmith.entropy.default,
        (logits, torch.randint(20, (4,), device=DEVICE)),
        test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
    )
