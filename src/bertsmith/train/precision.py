"""Mixed precision: which parameters compute in bfloat16 or float16."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call

from bertsmith.kernels import is_ampere
from bertsmith.kernels.float8 import has_float8
from bertsmith.model.heads import Head
from bertsmith.model.pooling import POOLS
from bertsmith.model.position import RelativeSignal

MANY_CLASSES = 1024  # heads with more outputs predict a vocabulary
GROUP = 16  # parameters cast in one call: about a block, to overlap communication
Name = Literal["float32", "bfloat16", "float16", "fp8"]
Hook = tuple[Callable[..., Any], Callable[..., Any]]  # how it is registered, and the hook


def has_matrix_units() -> bool:
    """Return whether this CPU has bfloat16 matrix instructions (AMX)."""
    return torch.cpu._is_amx_tile_supported()


def has_bfloat16_units() -> bool:
    """Return whether this CPU has bfloat16 instructions; others emulate it, far slower."""
    known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # newer than 2.11
    return has_matrix_units() or torch.cpu._is_avx512_bf16_supported() or bool(known.get("bf16"))


def has_float16_units() -> bool:
    """Return whether this CPU has float16 matrix instructions."""
    return torch.cpu._is_amx_fp16_supported()


def supported(name: Name, device: torch.device) -> Name:
    """Return the precision to use for a requested one: the next that is not emulated."""
    if name == "fp8" and not has_float8(device):
        name = "bfloat16"
    if device.type == "cuda":  # all have units for float16
        return "float32" if name == "bfloat16" and not is_ampere(device) else name
    if device.type == "cpu" and name != "float32":
        if name == "float16" and has_float16_units():
            return name
        return "bfloat16" if has_bfloat16_units() else "float32"
    return name


@dataclass(frozen=True)
class Precision:
    """A mixed-precision policy; parameters are stored, reduced and updated in float32 always.

    Matrices compute in `compute`. In float32 stay
    - heads on one row a sequence, and outputs of few classes: their gradients nearly cancel out
      over a batch, and rounding each of them to eight bits leaves noise;
    - norms and tables, if `exact_sums`: on a CPU torch adds up their gradients over all tokens in
      the precision of the parameter. GPU kernels add up in float32;
    - rotation angles, which are no parameters, and losses.
    """

    compute: torch.dtype = torch.float32
    exact_sums: bool = False

    @classmethod
    def of(cls, name: Name, device: torch.device) -> Self:
        """The policy that a recipe names. FP8 is a matter of the compiled graph (compiling.py)."""
        if name == "float32":
            return cls()
        dtype = torch.float16 if name == "float16" else torch.bfloat16
        return cls(dtype, exact_sums=device.type == "cpu")

    def wrap(self, module: nn.Module, tables: Sequence[nn.Embedding] = ()) -> nn.Module:
        """The module as it computes under this policy; of `tables` only rows are cast."""
        return module if self.compute is torch.float32 else MixedPrecision(module, self, tables)

    def exact(self, module: nn.Module) -> dict[nn.Module, bool]:
        """The modules that stay in float32, and whether their output is cast."""
        sums = (nn.LayerNorm, nn.Embedding) if self.exact_sums else ()
        parts = [part for part in module.modules() if isinstance(part, sums)]
        kept: dict[nn.Module, bool] = dict.fromkeys(parts, True)
        for head in (part for part in module.modules() if isinstance(part, Head)):
            if getattr(head.output, "out_features", 0) > MANY_CLASSES:
                continue
            per_sequence = head.pool is not POOLS["every"]
            kept |= dict.fromkeys(head.modules() if per_sequence else head.output.modules(), False)
        return kept

    def hooks(self, module: nn.Module, exact: Mapping[nn.Module, bool]) -> list[Hook]:
        """Return hooks that cast the inputs, and if requested the outputs, of exact modules."""
        narrow = _narrow(self.compute)
        hooks: list[Hook] = [(part.register_forward_pre_hook, _widen) for part in exact]
        hooks += [(part.register_forward_hook, narrow) for part, cast in exact.items() if cast]
        # These read a table without calling it.
        signals = (part for part in module.modules() if isinstance(part, RelativeSignal))
        reading = [signal for signal in signals if signal.table in exact]
        return hooks + [(signal.register_forward_hook, narrow) for signal in reading]


class Autocast(nn.Module):
    """A module whose products are in half precision, but whose weights stay in place.

    What is computed again in the backward pass must find the same weights as before.
    """

    def __init__(self, inner: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.inner, self.device, self.dtype = inner, device, dtype

    def forward(self, *inputs: Any) -> Any:
        """The output of the module inside."""
        with torch.autocast(self.device.type, self.dtype):
            return self.inner(*inputs)


def slots_of(
    modules: Iterable[tuple[str, nn.Module]], exact: Container[nn.Module]
) -> dict[str, tuple[nn.Module, str]]:
    """Each parameter that is cast, by its full name: the module that holds it, and its name."""
    return {
        f"{prefix}.{name}" if prefix else name: (owner, name)
        for prefix, owner in modules
        if owner not in exact
        for name, parameter in owner._parameters.items()
        if parameter is not None
    }


@contextmanager
def hooked(hooks: Iterable[Hook]) -> Iterator[None]:
    """Context manager: register the hooks."""
    with ExitStack() as stack:
        for register, hook in hooks:
            stack.enter_context(register(hook))
        yield


class MixedPrecision(nn.Module):
    """A module computed in half precision; parameters, gradients and updates are float32.

    Parameters are cast once a pass, and everything in between stays in it; autocast, which
    casts at every matrix multiplication, would keep the states between blocks in float32 and read
    them twice. Of `tables` only the rows are cast that a pass reads.
    """

    def __init__(
        self, inner: nn.Module, precision: Precision, tables: Sequence[nn.Embedding] = ()
    ) -> None:
        super().__init__()
        self.inner, self.precision = inner, precision
        exact = precision.exact(inner) | dict.fromkeys(tables, True)
        self.slots = slots_of(inner.named_modules(), exact)
        self.hooks = precision.hooks(inner, exact)
        # Casts keep their address, since CUDA graphs read them there.
        self.casts: dict[str, Tensor] = {}

    def forward(self, *inputs: Any) -> Any:
        """The output of the module inside."""
        names: dict[Any, str] = {}  # tied parameters are cast once
        for name, (owner, own) in self.slots.items():
            names.setdefault(owner._parameters[own], name)
        for weight, name in names.items():
            if name not in self.casts or self.casts[name].device != weight.device:
                self.casts[name] = torch.empty_like(weight, dtype=self.precision.compute)
        half: dict[Any, Tensor] = {}
        weights = list(names)
        for first in range(0, len(weights), GROUP):
            group = weights[first : first + GROUP]
            buffers = [self.casts[names[weight]] for weight in group]
            half |= zip(group, cast(buffers, group), strict=True)
        casts = {name: half[owner._parameters[own]] for name, (owner, own) in self.slots.items()}
        with hooked(self.hooks):
            return functional_call(self.inner, casts, inputs, tie_weights=False)


def cast_in_units(root: nn.Module, units: Sequence[nn.Module], precision: Precision) -> None:
    """The same for a model that FSDP shards: each unit casts its parameters once it has them.

    FSDP gathers parameters in float32, and its own hooks run first. What a unit has cast stays in
    memory until the backward pass: two bytes a parameter.
    """
    if precision.compute is torch.float32:
        return
    exact = precision.exact(root)
    nested = {module for unit in units for module in unit.modules()}
    rest = [(name, module) for name, module in root.named_modules() if module not in nested]
    for unit in units:
        _cast_in_unit(unit, precision, list(slots_of(unit.named_modules(), exact).values()))
    _cast_in_unit(root, precision, list(slots_of(rest, exact).values()), exact)


def _cast_in_unit(
    unit: nn.Module,
    precision: Precision,
    slots: Sequence[tuple[nn.Module, str]],
    exact: Mapping[nn.Module, bool] | None = None,
) -> None:
    stack, hooks = ExitStack(), precision.hooks(unit, exact) if exact is not None else []

    def enter(module: nn.Module, inputs: Any) -> None:
        weights: list[Any] = [owner._parameters[name] for owner, name in slots]
        buffers = [torch.empty_like(weight, dtype=precision.compute) for weight in weights]
        for (owner, name), half in zip(slots, cast(buffers, weights), strict=True):
            owner.__dict__[name] = half  # found before the parameter of that name
        stack.enter_context(hooked(hooks))

    def leave(module: nn.Module, inputs: Any, output: Any) -> None:
        stack.close()
        for owner, name in slots:
            owner.__dict__.pop(name, None)

    unit.register_forward_pre_hook(enter)
    unit.register_forward_hook(leave, always_call=True)


def _widen(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    first, *others = inputs
    half = isinstance(first, Tensor) and first.is_floating_point()
    return (first.float() if half else first, *others)


def _narrow(dtype: torch.dtype) -> Callable[..., Any]:
    def hook(module: nn.Module, inputs: Any, output: Any) -> Any:
        several = isinstance(output, tuple)
        return (output[0].to(dtype), *output[1:]) if several else output.to(dtype)

    return hook


def cast(buffers: Sequence[Tensor], weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Weights cast into buffers, in few kernels; gradients come back in the weights' precision."""
    return Cast.apply(list(buffers), *weights) if weights else ()  # type: ignore[no-untyped-call]


class Cast(torch.autograd.Function):
    """Cast many tensors at once, and their gradients in backward."""

    @staticmethod
    def forward(ctx: Any, buffers: list[Tensor], *weights: Tensor) -> tuple[Tensor, ...]:
        """The weights, cast into the buffers."""
        ctx.set_materialize_grads(False)
        ctx.dtypes = [weight.dtype for weight in weights]
        torch._foreach_copy_(buffers, list(weights))
        return tuple(buffer.detach() for buffer in buffers)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients in the precision of the weights, of those that have one."""
        present = [(g, d) for g, d in zip(grads, ctx.dtypes, strict=True) if g is not None]
        cast_grads = [torch.empty_like(grad, dtype=dtype) for grad, dtype in present]
        if cast_grads:
            torch._foreach_copy_(cast_grads, [grad for grad, _ in present])
        rest = iter(cast_grads)
        return None, *(None if grad is None else next(rest) for grad in grads)
