"""Splits a sequence of modules into units, with which stages may begin (pipeline.h), and measures the units.

A unit begins with a module that has a trainable parameter which no module before it has; other modules belong to the
unit before them. A stage receives one float32 tensor whose first dimension is the samples. Modules between which
something else is passed are one unit, and so are all modules from the first to the last that use the same parameter
(tied weights). Shapes, bytes and FLOPs are found by one run of all modules on two samples.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from .. import model as _model
from ._bind import is_compiled

_TIMES = 4  # measurements of a unit; the first is not counted, since torch prepares kernels in it


@dataclass(slots=True, eq=False)
class Layers:
    """A unit: modules that run one after another. Figures are of one sample."""

    names: list[str]
    modules: list[nn.Module] = field(default_factory=list)
    why: str | None = None  # why no stage can begin with this unit; None: one can
    shape: torch.Size = torch.Size()  # of the input
    leaves: int = 0  # floats of the output
    kept: int = 0  # bytes that autograd keeps from forward to backward
    operations: float = 0.0  # multiply-adds of forward

    def run(self, x: Any) -> Any:
        for module in self.modules:
            x = module(x)
        return x


def sequence(model: nn.Module | Sequence[nn.Module]) -> nn.Sequential:
    """Returns the model as a torch.nn.Sequential. Modules of a list are named by their numbers."""
    if isinstance(model, (list, tuple, nn.ModuleList)) and all(isinstance(m, nn.Module) for m in model):
        return nn.Sequential(*model)
    if not isinstance(model, nn.Sequential) or type(model).forward is not nn.Sequential.forward:
        raise ValueError(
            f"the model is a {type(model).__name__}, whose forward cannot be split into stages; give its layers in "
            "their order, as torch.nn.Sequential or as a list of modules"
        )
    if _hooked(model):
        raise ValueError("the model has hooks, and a pipeline calls its layers, not itself; hook on to a layer")
    return model


def _hooked(m: nn.Module) -> bool:
    return bool(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks or m._backward_pre_hooks)


def _flat(model: nn.Sequential, prefix: str = "") -> Iterable[tuple[str, nn.Module]]:
    """Yields the modules and their names. A Sequential within the model is split, too, if it has no hooks."""
    for name, child in model._modules.items():
        if type(child) is nn.Sequential and not _hooked(child) and len(child) > 0:
            yield from _flat(child, f"{prefix}{name}.")
        else:
            yield prefix + name, child


def cut(model: nn.Sequential) -> list[Layers]:
    """Returns the units that follow from the parameters alone. `why` is set for those that tied weights join."""
    units: list[Layers] = []
    of: dict[torch.Tensor, int] = {}
    for name, module in _flat(model):
        used = [p for p in module.parameters() if p.requires_grad and p.numel() > 0]
        before = {of[p] for p in used if p in of}
        new = [p for p in used if p not in of]
        if not units or (new and of):
            units.append(Layers([]))
        units[-1].names.append(name)
        units[-1].modules.append(module)
        of |= dict.fromkeys(new, len(units) - 1)
        for u in range(min(before, default=len(units)) + 1, len(units)):
            units[u].why = units[u].why or f"module '{name}' has parameters of '{units[min(before)].names[0]}', too"
    return units


def joined(units: list[Layers]) -> tuple[list[Layers], dict[torch.Tensor, int], list[str]]:
    """Joins units with which no stage can begin to those before them. Returns the units, the unit of each trainable
    parameter, and the reasons for joining."""
    kept: list[Layers] = []
    said = []
    for u in units:
        if not u.why:
            kept.append(u)
            continue
        said.append(f"no stage can begin with module '{u.names[0]}': {u.why}")
        last = kept[-1]
        last.names, last.modules, last.leaves = last.names + u.names, last.modules + u.modules, u.leaves
        last.kept, last.operations = last.kept + u.kept, last.operations + u.operations
    of: dict[torch.Tensor, int] = {}
    for k, u in enumerate(kept):
        for p in (p for module in u.modules for p in module.parameters() if p.requires_grad and p.numel() > 0):
            of.setdefault(p, k)
    return kept, of, said


def check(model: nn.Module) -> None:
    """Refuses modules that keep running statistics, and compiled modules."""
    for name, m in model.named_modules():
        if isinstance(m, nn.modules.batchnorm._NormBase) and m.running_mean is not None and m.training:
            raise ValueError(
                f"module '{name}' ({type(m).__name__}) keeps running statistics of its batches, which are no "
                "parameters, and of a stage each worker would have others; take GroupNorm or LayerNorm, make it with "
                "track_running_stats=False, or freeze it with eval()"
            )
        if is_compiled(m):
            raise ValueError(
                f"module '{name or type(m).__name__}' is compiled, and would continue with the parameters that it was "
                "compiled with; give the model without torch.compile or torch.jit"
            )


def _boundary(x: Any, samples: int) -> str | None:
    """Returns why the output x of a module cannot be sent from stage to stage; None: it can."""
    if not isinstance(x, torch.Tensor):
        return f"gives a {type(x).__name__}, and a stage sends one tensor"
    if x.dtype != torch.float32:
        return f"gives a tensor of {str(x.dtype).removeprefix('torch.')}, and a stage sends float32"
    if x.dim() == 0 or x.size(0) != samples:
        return f"gives a tensor of shape {tuple(x.shape)} for {samples} samples, and its first dimension must be they"
    if not x.requires_grad:
        return "gives a tensor without a gradient"
    return None


def try_out(model: nn.Module, units: list[Layers], loss: Callable[[Any, Any], Any], x: Any, y: Any, n: int) -> None:
    """Runs all units once on n samples and sets their figures. ValueError: that changes a buffer of the model."""
    buffers = [(name, b, b.clone()) for name, b in model.named_buffers()]
    values = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}  # by storage

    def pack(t: torch.Tensor) -> torch.Tensor:
        if t.layout == torch.strided and (at := t.untyped_storage().data_ptr()) not in values:
            kept[at] = t.untyped_storage().nbytes()
        return t

    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        for u, unit in enumerate(units):
            if u > 0:
                before, why = units[u - 1], _boundary(x, n)
                unit.why = unit.why or (why and f"module '{before.names[-1]}' {why}")
                if why is None:
                    unit.shape, before.leaves = x.shape[1:], x.numel() // n
            kept.clear()
            with FlopCounterMode(display=False) as counted, torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
                x = unit.run(x)
                if u + 1 == len(units):
                    x = lost(loss, x, y)
            unit.kept = -(-sum(kept.values()) // n)
            unit.operations = (counted.get_total_flops() / 2 + (x.numel() if isinstance(x, torch.Tensor) else 1)) / n
    for name, b, was in buffers:
        if not torch.equal(b, was):
            b.copy_(was)
            raise ValueError(
                f"buffer '{name}' is changed by a forward in training mode. It is no parameter, so the workers of a "
                "pipeline would not exchange it; take a layer without, or freeze it with eval()"
            )


def lost(loss: Callable[[Any, Any], Any], x: Any, y: Any) -> torch.Tensor:
    value = loss(x, y)
    if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.requires_grad:
        raise ValueError(
            "the loss function gives "
            + (f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__)
            + "; it has to give the mean loss of a micro-batch, a tensor of one element with a gradient"
        )
    return value


def measured(units: list[Layers], loss: Callable[[Any, Any], Any], x: Any, y: Any, n: int) -> list[float]:
    """Returns the seconds of forward and backward of a sample for each unit, measured on this worker."""
    seconds = []
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        for u, unit in enumerate(units):
            best = float("inf")
            for k in range(_TIMES):
                begin = time.perf_counter()
                out = unit.run(x)
                out = lost(loss, out, y) if u + 1 == len(units) else out
                out.backward(torch.ones_like(out))
                if k > 0:
                    best = min(best, time.perf_counter() - begin)
            seconds.append(max(best / n, 1e-9))
            for p in (p for m in unit.modules for p in m.parameters()):
                p.grad = None
            x = out.detach().requires_grad_()
    return seconds


def described(units: list[Layers], costs: Sequence[float] | None) -> list[_model.Unit]:
    """Returns the units as model.Unit. costs: of forward, for each unit; None: operations. Backward costs twice as much
    as forward: one product for each operand."""
    if costs is not None and (len(costs) != len(units) or not all(c >= 0 for c in costs)):
        names = ", ".join(f"'{u.names[0]}'" for u in units)
        raise ValueError(
            f"costs has {len(costs)} numbers, and the model has {len(units)} units, which begin with the modules "
            f"{names}; give each what it takes, 0 or more"
        )
    return [
        _model.Unit(cut=True, forward=work, backward=2 * work, enters=enters, kept=u.kept)
        for u, work, enters in zip(
            units, costs or [u.operations for u in units], [0, *(u.leaves for u in units[:-1])], strict=True
        )
    ]
