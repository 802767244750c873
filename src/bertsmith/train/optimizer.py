"""Optimizers: AdamW from torch; LAMB, StableAdamW, a batched Muon; and learning-rate schedules.

All support sharding. A parameter is a plain tensor, or a DTensor of which this process holds a
shard (FSDP2). Element-wise operations use the local shard; others gather the full tensor.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bertsmith.errors import BertsmithError
from bertsmith.kernels import is_ampere
from bertsmith.model import Encoder
from bertsmith.train.precision import has_matrix_units

Coefficients = tuple[float, float, float]


class AdamVariant(Optimizer):
    """Base class of Adam variants: the moments, and the loop over parameter groups."""

    def __init__(self, params: Any, lr: float, **settings: Any) -> None:
        defaults = {"lr": lr, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.01}
        super().__init__(params, defaults | settings)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                self.update_group(parameters, group)

    def update_group(self, parameters: list[Tensor], group: Mapping[str, Any]) -> None:
        """Update the parameters of one group."""
        raise NotImplementedError

    def moments(
        self, parameters: list[Tensor], group: Mapping[str, Any]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Advance the moments; returns the local shards of both, corrected for their bias."""
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["step"] = torch.zeros(())
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
            state["step"] += 1
        states = [self.state[parameter] for parameter in parameters]
        first = [local_shard(state["exp_avg"]) for state in states]
        second = [local_shard(state["exp_avg_sq"]) for state in states]
        steps = [int(state["step"]) for state in states]
        grads = local_gradients(parameters)
        beta1, beta2 = group["betas"]
        torch._foreach_lerp_(first, grads, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, grads, grads, value=1 - beta2)
        corrected = torch._foreach_div(first, [1 - beta1**step for step in steps])
        squares = torch._foreach_div(second, [1 - beta2**step for step in steps])
        return list(corrected), list(squares)


class Lamb(AdamVariant):
    """LAMB (You et al. 2020): Adam's update of a tensor, scaled to the norm of its weights.

    Groups with `adapt=False` use Adam's update unscaled: biases and norms, as in the paper.
    """

    def __init__(self, params: Any, lr: float, adapt: bool = True, **settings: Any) -> None:
        super().__init__(params, lr, adapt=adapt, **settings)

    def update_group(self, parameters: list[Tensor], group: Mapping[str, Any]) -> None:
        """Update the parameters of one group."""
        weights = [local_shard(parameter) for parameter in parameters]
        updates = adam_updates(*self.moments(parameters, group), group["eps"])
        if group["weight_decay"]:
            torch._foreach_add_(updates, weights, alpha=group["weight_decay"])
        if group["adapt"]:
            sizes, lengths = full_norms([*weights, *updates], parameters[0]).chunk(2)
            usable = (sizes > 0) & (lengths > 0)
            trust = torch.where(usable, sizes / lengths, torch.ones_like(sizes))
            torch._foreach_mul_(updates, list(trust.unbind()))
        torch._foreach_sub_(weights, updates, alpha=group["lr"])


class StableAdamW(AdamVariant):
    """StableAdamW (Wortsman et al. 2023): AdamW with update clipping instead of gradient clipping.

    The learning rate of a tensor is divided by the root mean square of its gradient over the
    square root of its second moment, where that is above 1.
    """

    def update_group(self, parameters: list[Tensor], group: Mapping[str, Any]) -> None:
        """Update the parameters of one group."""
        weights = [local_shard(parameter) for parameter in parameters]
        first, second = self.moments(parameters, group)
        roots = torch._foreach_sqrt(torch._foreach_clamp_min(second, group["eps"] ** 2))
        ratios = list(torch._foreach_div(local_gradients(parameters), list(roots)))
        lengths = full_norms(ratios, parameters[0])
        # Plain numbers: a tensor would have to be copied to the device, which waits for it.
        roots_of_sizes = [math.sqrt(parameter.numel()) for parameter in parameters]
        sizes = torch.stack(torch._foreach_div(list(lengths.unbind()), roots_of_sizes))
        rates = group["lr"] / sizes.clamp(min=1.0)
        updates = adam_updates(first, second, group["eps"])
        torch._foreach_mul_(weights, list((1 - rates * group["weight_decay"]).unbind()))
        torch._foreach_sub_(weights, torch._foreach_mul(updates, list(rates.unbind())))


class Muon(torch.optim.Muon):
    """torch's Muon for all matrices of one shape at once: a few kernels instead of hundreds.

    Groups may differ in learning rate and weight decay only. `compute_dtype` is the precision of
    the Newton-Schulz iterations; None is bfloat16 on an accelerator that has units for it, and
    elsewhere the parameters' own precision. Of sharded matrices every rank orthogonalises some.
    Learning rates that are tensors, and `found_inf`, are used as in torch's fused optimizers: a
    CUDA graph reads both on the device, and a step whose `found_inf` is 1 changes nothing.
    """

    found_inf: Tensor | None = None

    def __init__(
        self, params: Any, *, compute_dtype: torch.dtype | None = None, **settings: Any
    ) -> None:
        super().__init__(params, **settings)
        self.compute_dtype = compute_dtype

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all matrices that have a gradient."""
        by_shape: dict[torch.Size, list[tuple[Tensor, Mapping[str, Any]]]] = {}
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape.setdefault(parameter.shape, []).append((parameter, group))
                    if not self.state[parameter]:
                        self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        for (rows, columns), pairs in by_shape.items():
            parameters = [parameter for parameter, _ in pairs]
            scale = max(1.0, rows / columns) ** 0.5
            groups = [group for _, group in pairs]
            if self.found_inf is not None:
                self._update_on_device(parameters, groups, scale)
                continue
            rates = [group["lr"] for group in groups]
            kept = [1 - group["lr"] * group["weight_decay"] for group in groups]
            updates = list(self._updates(parameters, groups[0]).unbind())
            weights = [local_shard(parameter) for parameter in parameters]
            torch._foreach_mul_(weights, kept)
            torch._foreach_mul_(updates, [rate * scale for rate in rates])
            torch._foreach_sub_(weights, updates)

    def _update_on_device(
        self, parameters: list[Tensor], groups: list[Mapping[str, Any]], scale: float
    ) -> None:
        """Update with learning rates that are tensors; no change if `found_inf` is 1."""
        assert self.found_inf is not None
        skipped, group = self.found_inf > 0, groups[0]
        buffers = [self.state[parameter]["momentum_buffer"] for parameter in parameters]
        grads, before = torch.stack(local_gradients(parameters)), torch.stack(buffers)
        momentum = before.lerp(grads, 1 - group["momentum"])
        torch._foreach_copy_(buffers, list(torch.where(skipped, before, momentum).unbind()))
        updates = self._orthogonal(grads.lerp(momentum, group["momentum"]), group)
        rates = torch.stack([group["lr"] for group in groups])[:, None, None]
        decays = torch.stack([group["lr"] * group["weight_decay"] for group in groups])
        weights = torch.stack(parameters)
        after = weights * (1 - decays[:, None, None]) - updates * (rates * scale)
        torch._foreach_copy_(parameters, list(torch.where(skipped, weights, after).unbind()))

    def _updates(self, parameters: list[Tensor], group: Mapping[str, Any]) -> Tensor:
        """Advance the momentum; returns the local shards (N, rows, columns) of the updates."""
        buffers = [local_shard(self.state[p]["momentum_buffer"]) for p in parameters]
        grads = local_gradients(parameters)
        torch._foreach_lerp_(buffers, grads, 1 - group["momentum"])
        updates = torch.stack(torch._foreach_lerp(grads, buffers, group["momentum"]))
        return on_full_matrices(lambda full: self._orthogonal(full, group), updates, parameters[0])

    def _orthogonal(self, updates: Tensor, group: Mapping[str, Any]) -> Tensor:
        device = updates.device
        emulated = device.type == "cpu" or (device.type == "cuda" and not is_ampere(device))
        dtype = self.compute_dtype or (updates.dtype if emulated else torch.bfloat16)
        return orthogonalise(updates.to(dtype), group).to(updates.dtype)


def orthogonalise(updates: Tensor, group: Mapping[str, Any]) -> Tensor:
    """Matrices with about the same singular vectors, all singular values about 1."""
    tall = updates.shape[-2] > updates.shape[-1]
    wide = (updates.mT if tall else updates).contiguous()
    wide = wide / wide.norm(dim=(-2, -1), keepdim=True).clamp(min=group["eps"])
    # Products of Gram matrices lose too many digits in bfloat16.
    iterate = newton_schulz if wide.dtype is torch.bfloat16 else newton_schulz_by_gram
    wide = iterate(wide, group["ns_coefficients"], group["ns_steps"])
    return wide.mT.contiguous() if tall else wide


def newton_schulz(matrices: Tensor, coefficients: Coefficients, count: int) -> Tensor:
    """Newton-Schulz iterations as they are defined: X → a X + b (X Xᵀ) X + c (X Xᵀ)² X."""
    a, b, c = coefficients
    for _ in range(count):
        gram = matrices @ matrices.mT
        factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        matrices = torch.baddbmm(matrices, factor, matrices, beta=a)
    return matrices


def newton_schulz_by_gram(matrices: Tensor, coefficients: Coefficients, count: int) -> Tensor:
    """The same with fewer operations: iterates on the small X Xᵀ, and multiplies by X once.

    An iteration is X → Z X with Z = a + b X Xᵀ + c (X Xᵀ)². So X Xᵀ → Z (X Xᵀ) Z, and all Z
    commute.
    """
    a, b, c = coefficients
    gram = matrices @ matrices.mT
    product: Tensor | None = None
    for step in range(count):
        factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        factor.diagonal(dim1=-2, dim2=-1).add_(a)
        product = factor if product is None else factor @ product
        if step < count - 1:
            gram = factor @ (gram @ factor)
    return matrices if product is None else product @ matrices


def adam_updates(first: list[Tensor], second: list[Tensor], eps: float) -> list[Tensor]:
    """Adam's updates before the learning rate: first moments over the roots of the second."""
    roots = torch._foreach_add(torch._foreach_sqrt(second), eps)
    return list(torch._foreach_div(first, list(roots)))


def local_shard(tensor: Tensor) -> Tensor:
    """This process's shard of a DTensor, sharing its memory; a plain tensor as it is."""
    to_local = getattr(tensor, "to_local", None)
    return tensor if to_local is None else cast(Tensor, to_local())


def local_gradients(parameters: Iterable[Tensor]) -> list[Tensor]:
    """The local shards of the gradients."""
    return [local_shard(p.grad) for p in parameters if p.grad is not None]


def full_norms(shards: list[Tensor], parameter: Tensor) -> Tensor:
    """L2 norms of tensors with these local shards, laid out like a parameter; one all-reduce."""
    norms = torch.stack(torch._foreach_norm(shards))
    if not hasattr(parameter, "device_mesh"):
        return norms
    from torch.distributed.tensor import DTensor, Partial, Replicate

    mesh, placements = parameter.device_mesh, parameter.placements  # type: ignore[attr-defined]
    sums = [Partial() if placement.is_shard() else Replicate() for placement in placements]
    squares = DTensor.from_local(norms.square(), mesh, sums, run_check=False)
    return squares.full_tensor().sqrt()


def on_full_matrices(
    function: Callable[[Tensor], Tensor], shards: Tensor, parameter: Tensor
) -> Tensor:
    """Apply a function of full matrices to a stack (N, rows, columns) of their local shards.

    Ranks exchange shards until each has a part of the stack in full, and exchange them back.
    """
    if not hasattr(parameter, "device_mesh"):
        return function(shards)
    from torch.distributed.tensor import DTensor, Replicate, Shard

    mesh, placements = parameter.device_mesh, parameter.placements  # type: ignore[attr-defined]
    shape = torch.Size((len(shards), *parameter.shape))
    stride = (parameter.numel(), parameter.shape[1], 1)
    by_shard = [Shard(p.dim + 1) if p.is_shard() else Replicate() for p in placements]
    by_matrix = [Shard(0) if p.is_shard() else Replicate() for p in placements]

    def exchanged(tensor: Tensor, before: list[Any], after: list[Any]) -> Tensor:
        sizes: Any = {"shape": shape, "stride": stride}
        stack = DTensor.from_local(tensor, mesh, before, run_check=False, **sizes)
        if mesh.device_type == "cpu":  # gloo has no all-to-all
            stack = stack.redistribute(placements=[Replicate()] * mesh.ndim)
        return stack.redistribute(placements=after).to_local()

    return exchanged(function(exchanged(shards, by_shard, by_matrix)), by_matrix, by_shard)


class CompositeOptimizer:
    """Several optimizers, each for a part of the parameters, used as one."""

    def __init__(self, optimizers: Iterable[Optimizer]) -> None:
        self.optimizers = list(optimizers)
        self.groups = [group for part in self.optimizers for group in part.param_groups]
        self.peaks = [group["lr"] for group in self.groups]

    def set_rate(self, fraction: float) -> None:
        """Set every group's learning rate to a fraction of its peak."""
        for group, peak in zip(self.groups, self.peaks, strict=True):
            group["lr"] = peak * fraction

    def move_to(self, device: torch.device) -> Tensor:
        """Keep learning rates on a device, and return `found_inf`: if 1, `step` changes nothing."""
        self.found_inf = torch.zeros((), device=device)
        self.device_peaks = torch.tensor(self.peaks, device=device)
        self.device_rates = torch.zeros_like(self.device_peaks)
        for optimizer in self.optimizers:
            optimizer.found_inf = self.found_inf  # type: ignore[attr-defined]
        for group, rate in zip(self.groups, self.device_rates.unbind(), strict=True):
            group["lr"] = rate
            if "capturable" in group:
                group["capturable"] = device.type == "cuda"
        return self.found_inf

    def set_device_rate(self, fraction: Tensor) -> None:
        """`set_rate` with a tensor on the device."""
        torch.mul(self.device_peaks, fraction, out=self.device_rates)

    def step(self) -> None:
        """Update all parameters once."""
        for optimizer in self.optimizers:
            optimizer.step()

    def clear(self) -> None:
        """Free the gradients."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    def states(self) -> Iterable[tuple[nn.Parameter, dict[str, Any]]]:
        """Yield each parameter with its optimizer state."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    yield parameter, optimizer.state[parameter]


class GroupKey(NamedTuple):
    """Where a parameter is: what its learning rate and its weight decay depend on."""

    rate: float  # times the learning rate
    matrix: bool  # matrices decay; biases and norms do not
    inner: bool  # a matrix in a layer


def layered(module: nn.Module, layer_decay: float = 1.0) -> Iterator[tuple[GroupKey, nn.Parameter]]:
    """Yield each trained parameter of a module with its place.

    What is above an encoder learns at the full rate, its top layer at `layer_decay` of it, and so
    on down to the embedding.
    """
    depths = {
        f"{name}." if name else "": {n: depth for depth, (n, _) in enumerate(encoder.plan, 1)}
        for name, encoder in module.named_modules()
        if isinstance(encoder, Encoder)
    }
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        below, inner = 0, parameter.ndim == 2 and ".blocks." in f".{name}"
        for prefix, by_number in depths.items():
            if name.startswith(prefix):
                part, number, *_ = [*name.removeprefix(prefix).split("."), ""]
                depth = by_number[int(number)] if part == "blocks" else 0
                depth = len(by_number) if part == "norm" else depth
                below = len(by_number) + 1 - depth
        yield GroupKey(layer_decay**below, parameter.ndim > 1, inner), parameter


def optimizer_for(module: nn.Module, train: Any, half: bool | None = None) -> CompositeOptimizer:
    """The optimizer that a recipe names, over all trained parameters.

    With Muon, it is for the matrices of layers, and AdamW for the rest. `half`: Muon computes in
    bfloat16 where that is fast; by default if the recipe's precision is.
    """
    members: dict[GroupKey, list[nn.Parameter]] = {}
    for place, parameter in layered(module, train.layer_decay):
        members.setdefault(place, []).append(parameter)
    if not members:
        raise BertsmithError("every parameter is frozen: nothing can be trained")
    inner: list[dict[str, Any]] = []  # groups of Muon
    rest: list[dict[str, Any]] = []
    for place, parameters in members.items():
        by_muon = place.inner and train.optimizer == "muon"
        rate = train.matrix_learning_rate if by_muon else train.learning_rate
        group: dict[str, Any] = {"params": parameters, "lr": place.rate * rate}
        group["weight_decay"] = train.weight_decay if place.matrix else 0.0
        group["adapt"] = place.matrix  # LAMB scales the updates of matrices
        (inner if by_muon else rest).append(group)
    optimizers: list[Optimizer] = []
    if inner:
        half = train.precision != "float32" if half is None else half
        dtype = torch.bfloat16 if half and has_matrix_units() else None
        optimizers.append(Muon(inner, momentum=0.95, compute_dtype=dtype))
    if rest:
        how = {"lr": train.learning_rate, "betas": train.betas, "eps": train.epsilon}
        kind = OPTIMIZERS[train.optimizer]
        if kind is torch.optim.AdamW:
            # Fused: one pass over the weights, not ten. torch has no fused step for DTensors.
            sharded = any(hasattr(parameter, "device_mesh") for parameter in module.parameters())
            how |= {"foreach": True} if sharded else {"fused": True}
        optimizers.append(kind(rest, **how))
    return CompositeOptimizer(optimizers)


# For all parameters, or for those that Muon leaves.
OPTIMIZERS: dict[str, Any] = dict.fromkeys(("adamw", "muon"), torch.optim.AdamW)
OPTIMIZERS |= {"lamb": Lamb, "stable_adamw": StableAdamW}


def minimise(value: Callable[[], Tensor], parameters: Sequence[Tensor], steps: int) -> None:
    """Minimise a small convex function of all its data with L-BFGS."""
    search = torch.optim.LBFGS(
        parameters,
        max_iter=steps,
        history_size=10,
        tolerance_grad=1e-6,
        tolerance_change=1e-8,
        line_search_fn="strong_wolfe",
    )

    def evaluated() -> Tensor:
        loss = value()
        gradients = torch.autograd.grad(loss, parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        return loss

    search.step(evaluated)


def rate_at(name: str, done: float, warmup: float, decay: float) -> float:
    """The learning rate, as a fraction of its peak, at a fraction of the run.

    `warmup` and `decay` are fractions of the run. After warm-up the rate falls to 0 ("linear",
    "cosine"), stays ("constant"), or stays and then falls by a square root ("stable": WSD).
    """
    done = min(max(done, 0.0), 1.0)
    if done < warmup:
        return done / warmup
    rate = 1.0
    if name == "linear":
        rate = (1 - done) / (1 - warmup)
    elif name == "cosine":
        rate = (1 + math.cos(math.pi * (done - warmup) / (1 - warmup))) / 2
    elif name == "stable" and done > 1 - decay:
        rate = 1 - math.sqrt((done - (1 - decay)) / decay)
    return max(0.0, min(1.0, rate))
