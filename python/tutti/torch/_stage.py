"""A worker's stage of a model: forward and backward of micro-batches, unit by unit, through autograd (model.Stages).

The parameters that a unit runs with are leaves that are views of the memory which the method gives to forward. The
method does not change that memory until the micro-batch's backward is over. So backward has the values that forward
had, whatever newer versions the method has made meanwhile, and nothing is copied. While a unit runs, forward or
backward, its modules have these leaves in place of their parameters.

The input of a unit is detached from the graph before it, so each unit of each slot has a graph of its own, which ends
with its backward.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .. import _abi, model
from ._bind import Bound
from ._layers import Layers, described, lost

if TYPE_CHECKING:
    from ..engine import Engine

Fetch = Callable[[_abi.tutti_pass], tuple[Any, Any]]


def _view(address: int, count: int) -> torch.Tensor:
    return torch.frombuffer((ctypes.c_float * count).from_address(address), dtype=torch.float32)


@dataclass(slots=True, eq=False)
class _Slot:
    """A micro-batch in progress."""

    samples: int
    leaves: dict[Bound, nn.Parameter]  # the values of its forward
    x: Any  # input of the next unit
    y: Any = None  # target
    out: int | None = None  # address for the output of the stage; None: the last stage
    ran: list[tuple[Any, Any]] = field(default_factory=list)  # input and output of each unit that has run forward
    loss: float = 0.0  # sum over the samples
    back: bool = False  # backward has begun
    slope: torch.Tensor | None = None  # gradient of the output of the unit whose backward is next; None: 1
    gradient: int | None = None  # address for the gradient of the values
    entered: int | None = None  # address for the gradient of the stage's input; None: the first stage
    written: set[Bound] = field(default_factory=set)  # parameters to whose gradient the next one is added


class Stage(model.Stages):
    """The units of a model; a range of them is this worker's stage. fetch: returns a micro-batch's input and target."""

    def __init__(
        self,
        units: list[Layers],
        costs: Sequence[float] | None,
        bound: list[Bound],
        samples: int,
        loss: Callable[[Any, Any], Any],
        fetch: Fetch,
    ):
        self.units = described(units, costs)
        self.samples = samples
        self._layers, self._loss, self._fetch = units, loss, fetch
        self._bound = bound
        self._engine: Engine | None = None
        self._slots: dict[int, _Slot] = {}
        self._leaves: dict[int | None, dict[Bound, nn.Parameter]] = {}  # address of values: leaves on them
        self._places: list[list[tuple[nn.Module, str, Bound]]] = []
        self.lost = [0.0, 0.0]  # sum of losses; number of their samples

    def attach(self, engine: Engine) -> None:
        self._engine = engine

    def close(self) -> None:
        """Drops all references to the engine's memory."""
        self._slots, self._leaves, self._engine = {}, {}, None

    # ---- the callbacks of model.Stages ----

    def open(self, first: int, end: int, slots: int, samples: int, apart: bool) -> None:
        self.first, self.end = first, end
        of = {b.param: b for b in self._bound}
        for unit in self._layers:
            inner = (m for module in unit.modules for m in module.modules())
            self._places.append(
                [(m, name, of[p]) for m in dict.fromkeys(inner) for name, p in m._parameters.items() if p in of]
            )

    def forward(
        self, slot: int, now: _abi.tutti_pass, values: int | None, entered: int | None, leaves: int | None
    ) -> bool:
        x = y = None
        if self.first == 0 or self.end == len(self._layers):
            x, y = self._fetch(now)
        s = self._slots[slot] = _Slot(now.samples, self._leaves_at(values), x, y, leaves)
        if entered is not None:
            shape = (now.samples, *self._layers[self.first].shape)
            s.x = _view(entered, math.prod(shape)).clone().view(shape)
        return self._forward(s)

    def backward(
        self, slot: int, now: _abi.tutti_pass, values: int | None, slope: int | None, gradient: int | None,
        back: int | None
    ) -> tuple[bool, float]:  # fmt: skip
        s = self._slots[slot]
        s.back, s.gradient, s.entered = True, gradient, back
        s.written = set(self._own()) if now.keep else set()
        out = s.ran[-1][1]
        if slope is None:  # the last stage: out is the mean loss, and the gradient of sum / divisor is requested
            factor = s.samples / now.divisor
            s.slope = torch.full_like(out, factor) if factor != 1 else None
        else:
            s.slope = _view(slope, out.numel()).view(out.shape)
        return self._backward(slot, s)

    def go_on(self, slot: int) -> tuple[bool, float]:
        s = self._slots[slot]
        return self._backward(slot, s) if s.back else (self._forward(s), 0.0)

    def held(self) -> int:
        units = self._layers
        return sum(s.samples * units[self.first + k].kept for s in self._slots.values() for k in range(len(s.ran)))

    # ---- a unit ----

    def _own(self) -> list[Bound]:
        return [b for b in self._bound if self.first <= b.unit < self.end]

    def _at(self, address: int | None, b: Bound) -> torch.Tensor:
        """Returns a parameter's part of the memory of this stage's range, with the shape of the parameter."""
        assert self._engine is not None and address is not None, "a stage has an engine, and its parameters memory"
        m = self._engine.method
        first = m.layout.contents.tensor[b.index].first - m.own.first
        flat = _view(address + 4 * first, b.param.numel())
        return flat.as_strided(b.param.shape, b.strides)

    def _leaves_at(self, values: int | None) -> dict[Bound, nn.Parameter]:
        leaves = self._leaves.get(values)
        if leaves is None:
            leaves = {b: nn.Parameter(self._at(values, b)) for b in self._own()}
            self._leaves[values] = leaves
        return leaves

    @contextmanager
    def _there(self, unit: int, leaves: dict[Bound, nn.Parameter]) -> Iterator[None]:
        """Context in which the modules of a unit have these leaves as parameters."""
        places = self._places[unit]
        try:
            for m, name, b in places:
                m._parameters[name] = leaves[b]
            with torch.inference_mode(False), torch.enable_grad():
                yield
        finally:
            for m, name, b in places:
                m._parameters[name] = b.param

    def _forward(self, s: _Slot) -> bool:
        u = self.first + len(s.ran)
        unit, last = self._layers[u], u + 1 == self.end
        x = s.x.detach().requires_grad_() if u > 0 else s.x
        with self._there(u, s.leaves):
            out = unit.run(x)
            if u + 1 == len(self._layers):
                out = lost(self._loss, out, s.y)
                s.loss = float(out.detach()) * s.samples
            elif out.numel() != s.samples * unit.leaves:
                raise ValueError(
                    f"module '{unit.names[-1]}' gives a tensor of shape {tuple(out.shape)} for {s.samples} samples, "
                    f"and gave {unit.leaves} numbers a sample before; a pipeline needs the same of every sample"
                )
        s.ran.append((x, out))
        s.x = out
        if last:
            s.x = s.y = None
        if last and s.out is not None:
            _view(s.out, out.numel()).view(out.shape).copy_(out.detach())
        return last

    def _backward(self, slot: int, s: _Slot) -> tuple[bool, float]:
        x, out = s.ran.pop()
        u = self.first + len(s.ran)
        with self._there(u, s.leaves):
            out.backward(s.slope)
        for b in dict.fromkeys(b for _, _, b in self._places[u]):
            grad, s.leaves[b].grad = s.leaves[b].grad, None
            if grad is not None:
                self._write(s, b, grad)
        if u > 0:
            s.slope, x.grad = x.grad if x.grad is not None else torch.zeros_like(x), None
        if u > self.first:
            return False, 0.0
        if s.entered is not None:
            assert s.slope is not None, "a stage with an input has a gradient of it"
            _view(s.entered, x.numel()).view(x.shape).copy_(s.slope)
        for b in self._own():
            if b not in s.written:
                self._at(s.gradient, b).zero_()
        del self._slots[slot]
        if self.end == len(self._layers):
            self.lost = [self.lost[0] + s.loss, self.lost[1] + s.samples]
        return True, s.loss

    def _write(self, s: _Slot, b: Bound, grad: torch.Tensor) -> None:
        to = self._at(s.gradient, b)
        if b in s.written:
            to.add_(grad)
        else:
            to.copy_(grad)
        s.written.add(b)
