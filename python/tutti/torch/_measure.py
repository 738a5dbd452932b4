"""Times a pass of a module: when forward reaches each parameter, and when its gradient is ready. For tutti.plan.

The pass is the module's own, on the CPU, with the threads that PyTorch has. A parameter is reached when the first
module that has it is called; a parameter of a module that is never called by itself (the output projection of
nn.MultiheadAttention), or of one that is compiled, when the next module around it is. Its gradient is ready when
PyTorch has accumulated it.
"""

from __future__ import annotations

import contextlib
import copy
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ._bind import check_trainable, is_compiled, memory_order, short

WARM = 2  # passes before those that are timed: the first ones allocate, and choose kernels


def measure(module: nn.Module, sample: Any, *, loss: Callable[[Any], Any] | None, optimizer: Any, batch: int | None,
            passes: int) -> dict[str, Any]:
    """Returns what the file of a measured network has (docs/PLAN.md), as medians over `passes` passes."""
    params = params_of(module)
    args, kwargs = _arguments(sample)
    if isinstance(passes, bool) or not isinstance(passes, int) or passes < 1:
        raise ValueError(f"passes is {passes!r}; it must be a whole number from 1 on")
    if batch is None:
        batch = samples_of([*args, *kwargs.values()])
    elif isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise ValueError(f"batch is {batch!r}; it must be a whole number from 1 on")
    _check_optimizer(optimizer, params)
    with _as_before(module, optimizer):
        clock = Clock(module, params)
        with clock:
            for k in range(WARM + passes):
                for p in params.values():
                    p.grad = None
                clock.begin(kept=k == 0)
                with torch.enable_grad(), clock.saved():
                    value = _loss_of(module(*args, **kwargs), loss)
                clock.middle()
                value.backward()
                clock.end()
                del value
                if optimizer is not None:
                    clock.step(optimizer)
        return clock.content(batch)


def params_of(module: nn.Module) -> dict[str, nn.Parameter]:
    """Returns the parameters that are trained, each once, by its first name."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"tutti.plan is for a torch.nn.Module, and was given a {type(module).__name__}")
    if isinstance(module, nn.parallel.DistributedDataParallel):  # tutti.torch's is one, too
        raise ValueError("the module is wrapped for distributed training; give tutti.plan the module inside")
    found = {name: p for name, p in module.named_parameters() if p.requires_grad}
    for name, p in found.items():
        check_trainable(name, p)
        if p.device.type != "cpu":
            raise ValueError(f"parameter '{name}' is on {p.device}, and tutti.plan times passes on the CPU alone; "
                             "give it a module on the CPU, or write the file of `tutti plan` yourself (docs/PLAN.md)")
    found = {name: p for name, p in found.items() if p.numel() > 0}
    if not found:
        raise ValueError("the module has no parameter that requires a gradient; there is nothing to exchange")
    return found


def _arguments(sample: Any) -> tuple[list[Any], dict[str, Any]]:
    if isinstance(sample, Mapping):
        return [], dict(sample)
    return (list(sample), {}) if isinstance(sample, (tuple, list)) else ([sample], {})


def samples_of(values: list[Any]) -> int:
    first = next((v for v in values if isinstance(v, torch.Tensor) and v.dim() > 0 and v.size(0) > 0), None)
    if first is None:
        raise ValueError("the sample has no tensor whose first size could be its number of samples; give batch=N")
    return first.size(0)


def _check_optimizer(optimizer: Any, params: dict[str, nn.Parameter]) -> None:
    if optimizer is None:
        return
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer is a {type(optimizer).__name__}; give a torch.optim.Optimizer, or None")
    ours = set(params.values())
    if not any(p in ours for group in optimizer.param_groups for p in group["params"]):
        raise ValueError("the optimizer has no parameter of the module that requires a gradient; make it with "
                         "module.parameters()")


def _loss_of(output: Any, loss: Callable[[Any], Any] | None) -> torch.Tensor:
    value = loss(output) if loss is not None else output
    if loss is None and not isinstance(value, torch.Tensor):
        value = value.get("loss") if isinstance(value, Mapping) else getattr(value, "loss", None)
    if not isinstance(value, torch.Tensor):
        what = "loss(output)" if loss is not None else "the module's output"
        given = type(value if loss is not None else output).__name__
        raise TypeError(f"{what} is a {given} without a loss; give loss=f, from the output to a tensor of one number")
    if loss is None and value.numel() != 1:
        value = value.float().mean()
    if value.numel() != 1:
        raise ValueError(f"loss(output) has the shape {tuple(value.shape)}; it must be one number, say its mean()")
    if not value.requires_grad:
        raise ValueError("the loss does not depend on a parameter that requires a gradient; is the module frozen, or "
                         "called under no_grad?")
    return value


@contextlib.contextmanager
def _as_before(module: nn.Module, optimizer: Any) -> Iterator[None]:
    """Puts values, gradients, buffers, the optimizer's state and random numbers back."""
    params = list(module.parameters())
    gradients = [p.grad for p in params]
    values = [p.detach().clone() for p in params] if optimizer is not None else []
    buffers = [(b, b.detach().clone()) for b in module.buffers()]
    state = copy.deepcopy(optimizer.state_dict()) if optimizer is not None else None
    for p in params:
        p.grad = None
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        with torch.no_grad():
            for p, old in zip(params, values):
                p.copy_(old)
            for b, old in buffers:
                b.copy_(old)
        for p, g in zip(params, gradients, strict=True):
            p.grad = g
        if optimizer is not None:
            optimizer.load_state_dict(state)


@dataclass(frozen=True, slots=True)
class _Pass:
    """Times of a pass, in seconds; of each parameter since forward, or backward, began."""

    forward: float
    backward: float
    needed: dict[str, float]
    ready: dict[str, float]


def _called_one_by_one(module: nn.Module) -> Iterator[nn.Module]:
    """The module and those inside, but none that is compiled: its hooks would be compiled with it."""
    if not is_compiled(module):
        yield module
        for child in module.children():
            yield from _called_one_by_one(child)


class Clock:
    """The times of passes. Within `with` it has hooks on the module."""

    def __init__(self, module: nn.Module, params: dict[str, nn.Parameter]):
        self._module, self._params = module, params
        self._owners = self._modules_of_params()
        self._hooks: list[Any] = []
        self._began = self._middle = 0.0
        self._needed: dict[nn.Module, float] = {}
        self._ready: dict[str, float] = {}
        self._passes: list[_Pass] = []
        self._steps: list[float] = []
        self._bytes: dict[int, int] | None = None
        self._activation_bytes = 0

    def _modules_of_params(self) -> dict[str, list[list[nn.Module]]]:
        """For each parameter, for each module that has it: this module, the one around it, and so on."""
        modules = dict(self._module.named_modules(remove_duplicate=False))
        names = {p: name for name, p in self._params.items()}
        found: dict[str, list[list[nn.Module]]] = {name: [] for name in self._params}
        for path, m in modules.items():
            parts = path.split(".") if path else []
            around = [modules[".".join(parts[:k])] for k in range(len(parts), -1, -1)]
            for p in m._parameters.values():
                if p is not None and p in names:
                    found[names[p]].append(around)
        return found

    def __enter__(self) -> Clock:
        for m in _called_one_by_one(self._module):
            self._hooks.append(m.register_forward_pre_hook(self._reached))
        for name, p in self._params.items():
            self._hooks.append(p.register_post_accumulate_grad_hook(lambda _, name=name: self._is_ready(name)))
        return self

    def __exit__(self, *_: object) -> None:
        for h in self._hooks:
            h.remove()

    def _reached(self, m: nn.Module, _: Any) -> None:
        self._needed.setdefault(m, time.perf_counter() - self._began)

    def _is_ready(self, name: str) -> None:
        self._ready[name] = time.perf_counter() - self._middle

    def begin(self, kept: bool) -> None:
        """kept: what forward keeps for backward is counted, in a pass that is not timed."""
        self._bytes = {} if kept else None
        self._needed, self._ready = {}, {}
        self._began = time.perf_counter()

    @contextlib.contextmanager
    def saved(self) -> Iterator[None]:
        if self._bytes is None:
            yield
            return
        with torch.autograd.graph.saved_tensors_hooks(self._keep, lambda t: t):
            yield

    def _keep(self, t: torch.Tensor) -> torch.Tensor:
        if self._bytes is not None and t.layout == torch.strided:
            memory = t.untyped_storage()
            self._bytes[memory.data_ptr()] = memory.nbytes()
        return t

    def middle(self) -> None:
        self._middle = time.perf_counter()

    @property
    def went_back(self) -> bool:
        """Has backward begun in this pass?"""
        return bool(self._ready)

    def end(self, at_last: bool = False) -> None:
        """at_last: the pass has ended when its last gradient was ready; else it ends now."""
        now = self._middle + max(self._ready.values()) if at_last else time.perf_counter()
        self._passes.append(_Pass(self._middle - self._began, now - self._middle, self._times_needed(), self._ready))
        if self._bytes is not None:
            for t in (*self._module.parameters(), *self._module.buffers()):
                self._bytes.pop(t.untyped_storage().data_ptr(), None)
            self._activation_bytes = sum(self._bytes.values())
            self._bytes = None

    def _times_needed(self) -> dict[str, float]:
        def reached(around: list[nn.Module]) -> float:
            return next((self._needed[m] for m in around if m in self._needed), 0.0)

        return {name: min(map(reached, owners)) for name, owners in self._owners.items()}

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        began = time.perf_counter()
        optimizer.step()
        self.stepped(time.perf_counter() - began)

    def stepped(self, seconds: float) -> None:
        self._steps.append(seconds)

    def content(self, batch: int) -> dict[str, Any]:
        timed = self._passes[WARM:]
        forward, backward = (statistics.median(times) for times in zip(*((p.forward, p.backward) for p in timed),
                                                                       strict=True))
        unused = [name for name in self._params if any(name not in p.ready for p in timed)]
        if unused:
            warnings.warn(f"the pass gave {len(unused)} parameters no gradient, '{unused[0]}' first; the plan has "
                          "theirs at the end of backward", stacklevel=4)
        tensors = []
        for name, p in self._params.items():
            order = memory_order(p) or range(p.dim())
            tensors.append({
                "name": name.replace("_orig_mod.", ""),  # of torch.compile
                "shape": [p.size(d) for d in order],  # as the engine has them: in the order of memory
                "dtype": short(p.dtype),
                "needed_seconds": min(forward, statistics.median(q.needed[name] for q in timed)),
                "ready_seconds": min(backward, statistics.median(q.ready.get(name, backward) for q in timed)),
            })
        return {
            "schema": "tutti-measured-1",
            "module": type(getattr(self._module, "_orig_mod", self._module)).__name__,
            "batch": batch,
            "forward_seconds": forward,
            "backward_seconds": backward,
            "optimizer_seconds": statistics.median(self._steps[WARM:] or self._steps) if self._steps else 0.0,
            "activation_bytes": self._activation_bytes,
            "tensors": sorted(tensors, key=lambda t: t["ready_seconds"]),
        }
