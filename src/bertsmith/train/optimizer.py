"""Optimizers: torch's own where it has them, and the two of this field that it lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bertsmith.train.precision import has_matrix_units

Named = Mapping[str, nn.Parameter]
Tensors = tuple[Tensor, ...]


class AdamKind(Optimizer):
    """What Adam's kin share: their settings, and the walk over parameters with a gradient."""

    def __init__(
        self,
        params: Any,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, settings)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Change the weights once."""
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                states = [self.state[parameter] for parameter in parameters]
                grads = [parameter.grad for parameter in parameters]
                self.change(parameters, adam_updates(states, grads, group), group)

    def change(self, parameters: list[Tensor], updates: Tensors, group: Mapping[str, Any]) -> None:
        """Change the parameters of a group, given Adam's steps for them."""
        raise NotImplementedError


class Lamb(AdamKind):
    """AdamW whose step is as long, layer by layer, as a share of the weights (You et al. 2020)."""

    def change(self, parameters: list[Tensor], updates: Tensors, group: Mapping[str, Any]) -> None:
        """Scale the steps to the weights; biases and norms are not adapted, as in the paper."""
        if group["weight_decay"]:
            updates = torch._foreach_add(updates, parameters, alpha=group["weight_decay"])
            size = torch.stack(torch._foreach_norm(parameters))
            length = torch.stack(torch._foreach_norm(updates))
            trust = torch.where((size > 0) & (length > 0), size / length, torch.ones_like(size))
            updates = torch._foreach_mul(updates, list(trust.unbind()))
        torch._foreach_sub_(parameters, list(updates), alpha=group["lr"])


class StableAdamW(AdamKind):
    """AdamW whose step is shortened where gradients outgrow their second moment.

    (Wortsman et al. 2023.) It needs no clipping of gradients.
    """

    def change(self, parameters: list[Tensor], updates: Tensors, group: Mapping[str, Any]) -> None:
        """Shorten the steps by the root mean square of gradients over their usual size."""
        states = [self.state[parameter] for parameter in parameters]
        rest = [1 - group["betas"][1] ** int(state["step"]) for state in states]
        second = torch._foreach_div([state["exp_avg_sq"] for state in states], rest)
        usual = torch._foreach_sqrt(torch._foreach_clamp_min(second, group["eps"] ** 2))
        grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
        length = torch.stack(torch._foreach_norm(torch._foreach_div(grads, list(usual))))
        counts = torch.tensor([parameter.numel() for parameter in parameters])
        surprise = length / counts.to(length).sqrt()
        rate = group["lr"] / surprise.clamp(min=1.0)
        torch._foreach_mul_(parameters, list((1 - rate * group["weight_decay"]).unbind()))
        torch._foreach_sub_(parameters, torch._foreach_mul(updates, list(rate.unbind())))


class Muon(torch.optim.Muon):
    """torch's Muon for matrices of equal shape together: a few kernels instead of hundreds.

    Groups may differ by their rates and decays, and by nothing else. On a CPU without bf16 matrix
    units products are in the weights' precision: others take many times as long there.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Change the weights once."""
        alike: dict[torch.Size, list[tuple[Tensor, Mapping[str, Any]]]] = {}
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    alike.setdefault(parameter.shape, []).append((parameter, group))
        for shape, pairs in alike.items():
            parameters = [parameter for parameter, _ in pairs]
            rates = [group["lr"] for _, group in pairs]
            kept = [1 - group["lr"] * group["weight_decay"] for _, group in pairs]
            longer = max(1.0, shape[0] / shape[1]) ** 0.5
            steps = list(self._steps(parameters, pairs[0][1]).unbind())
            torch._foreach_mul_(parameters, kept)
            torch._foreach_mul_(steps, [rate * longer for rate in rates])
            torch._foreach_sub_(parameters, steps)

    def _steps(self, parameters: list[Tensor], group: Mapping[str, Any]) -> Tensor:
        """Where to go from each of these, in steps that stretch nothing."""
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        buffers = [self.state[parameter]["momentum_buffer"] for parameter in parameters]
        grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
        torch._foreach_lerp_(buffers, grads, 1 - group["momentum"])
        steps = torch.stack(torch._foreach_lerp(grads, buffers, group["momentum"]))
        half = steps.is_cuda or has_matrix_units()
        return orthogonal(steps.bfloat16() if half else steps, group).to(steps.dtype)


def orthogonal(steps: Tensor, group: Mapping[str, Any]) -> Tensor:
    """For each matrix the nearest one that stretches nothing, about: some Newton-Schulz steps."""
    tall = steps.shape[-2] > steps.shape[-1]
    found = (steps.mT if tall else steps).contiguous()
    found = found / found.norm(dim=(-2, -1), keepdim=True).clamp(min=group["eps"])
    # Powers of powers round too much in half precision.
    iterate = newton_schulz if found.dtype is torch.bfloat16 else newton_schulz_by_gram
    found = iterate(found, group["ns_coefficients"], group["ns_steps"])
    return found.mT.contiguous() if tall else found


def newton_schulz(found: Tensor, coefficients: tuple[float, float, float], count: int) -> Tensor:
    """The iteration as it is written: each step is a polynomial of the matrix."""
    first, second, third = coefficients
    for _ in range(count):
        gram = found @ found.mT
        change = torch.baddbmm(gram, gram, gram, beta=second, alpha=third)
        found = torch.baddbmm(found, change, found, beta=first)
    return found


def newton_schulz_by_gram(
    found: Tensor, coefficients: tuple[float, float, float], count: int
) -> Tensor:
    """The same in fewer products: all steps on the small square X Xᵀ, and X itself only at the end.

    A step is X → Z X with Z = a + b X Xᵀ + c (X Xᵀ)². So X Xᵀ → Z (X Xᵀ) Z, and all Z commute.
    """
    first, second, third = coefficients
    gram = found @ found.mT
    whole: Tensor | None = None
    for step in range(count):
        change = torch.baddbmm(gram, gram, gram, beta=second, alpha=third)
        change.diagonal(dim1=-2, dim2=-1).add_(first)
        whole = change if whole is None else change @ whole
        if step < count - 1:
            gram = change @ (gram @ change)
    return found if whole is None else whole @ found


def adam_updates(
    states: list[dict[str, Any]], grads: list[Tensor], group: Mapping[str, Any]
) -> Tensors:
    """Adam's steps before the rate: first moments over the roots of the second."""
    for state, grad in zip(states, grads, strict=True):
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"] = torch.zeros_like(grad)
            state["exp_avg_sq"] = torch.zeros_like(grad)
        state["step"] += 1
    means, squares = ([state[key] for state in states] for key in ("exp_avg", "exp_avg_sq"))
    steps = [int(state["step"]) for state in states]
    first, second = group["betas"]
    torch._foreach_lerp_(means, grads, 1 - first)
    torch._foreach_mul_(squares, second)
    torch._foreach_addcmul_(squares, grads, grads, value=1 - second)
    roots = torch._foreach_sqrt(torch._foreach_div(squares, [1 - second**step for step in steps]))
    torch._foreach_add_(roots, group["eps"])
    return torch._foreach_div(
        torch._foreach_div(means, [1 - first**step for step in steps]), list(roots)
    )


class Several:
    """Optimizers that share the parameters of a model, used as one."""

    def __init__(self, optimizers: Iterable[Optimizer]) -> None:
        self.optimizers = list(optimizers)
        self.peaks = [[group["lr"] for group in one.param_groups] for one in self.optimizers]

    def set_rate(self, share: float) -> None:
        """Set every group's learning rate to a share of its peak."""
        for one, peaks in zip(self.optimizers, self.peaks, strict=True):
            for group, peak in zip(one.param_groups, peaks, strict=True):
                group["lr"] = peak * share

    def step(self) -> None:
        """Change all weights once."""
        for one in self.optimizers:
            one.step()

    def clear(self) -> None:
        """Forget the gradients."""
        for one in self.optimizers:
            one.zero_grad(set_to_none=True)

    def states(self) -> Iterable[tuple[nn.Parameter, dict[str, Any]]]:
        """Each parameter with what its optimizer remembers of it."""
        for one in self.optimizers:
            for group in one.param_groups:
                for parameter in group["params"]:
                    yield parameter, one.state[parameter]


def groups(named: Named, decay: float) -> list[dict[str, Any]]:
    """Matrices decay; biases and norms do not."""
    matrices = [parameter for parameter in named.values() if parameter.ndim > 1]
    others = [parameter for parameter in named.values() if parameter.ndim < 2]
    made = [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in made if group["params"]]


def _adamw(named: Named, train: Any) -> list[Optimizer]:
    # One pass over the weights instead of ten; shares of a matrix (FSDP) are no plain tensors.
    fused = all(type(parameter) is nn.Parameter for parameter in named.values())
    return [
        torch.optim.AdamW(
            groups(named, train.weight_decay),
            lr=train.learning_rate,
            betas=train.betas,
            eps=train.epsilon,
            fused=fused or None,
        )
    ]


def _own(kind: Callable[..., Optimizer]) -> Callable[[Named, Any], list[Optimizer]]:
    def make(named: Named, train: Any) -> list[Optimizer]:
        return [
            kind(
                groups(named, train.weight_decay),
                lr=train.learning_rate,
                betas=train.betas,
                eps=train.epsilon,
            )
        ]

    return make


def _muon(named: Named, train: Any) -> list[Optimizer]:
    """Muon for the matrices inside blocks, AdamW for tables, norms, biases and outputs."""
    inner = {n: p for n, p in named.items() if p.ndim == 2 and ".blocks." in f".{n}"}
    rest = {name: parameter for name, parameter in named.items() if name not in inner}
    muon = Muon(
        list(inner.values()),
        lr=train.matrix_learning_rate,
        weight_decay=train.weight_decay,
        momentum=0.95,
        nesterov=True,
        adjust_lr_fn="original",
    )
    return [muon, *_adamw(rest, train)]


OPTIMIZERS: dict[str, Callable[[Named, Any], list[Optimizer]]] = {
    "adamw": _adamw,
    "lamb": _own(Lamb),
    "stable_adamw": _own(StableAdamW),
    "muon": _muon,
}


def optimizer_for(module: nn.Module, train: Any) -> Several:
    """The optimizer that a recipe names, over all parameters that learn."""
    named = {name: p for name, p in module.named_parameters() if p.requires_grad}
    return Several(OPTIMIZERS[train.optimizer](named, train))
