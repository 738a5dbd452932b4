"""The backward of a DistributedDataParallel (ddp.py): gradients go to the engine as they come, and `.grad` gets theirs.

**Used parameters.** A worker without a gradient of a parameter counts as zero. If no worker has one, `.grad` stays as
it was, and the workers have to agree on that. They do so without a message: if the exchanged gradient of a tensor has
one element that is not zero, some worker used it, and all workers see the same. Only where all elements are zero do
they ask each other, by one small reduction.
"""

import contextlib
from collections.abc import Iterable, Iterator
from typing import NoReturn

import torch
from torch.autograd import Variable

from ..engine import Engine
from ..errors import Error, StateError
from ..world import World
from . import _codec, _comm, _record
from ._bind import Binding, Bound, warn_unused
from ._runs import weakly
from ._torchs import Torchs


class Joining:
    """Within join(): which workers still have inputs, as of the last forward."""

    def __init__(self, by_all: bool, throw: bool):
        self.by_all, self.throw = by_all, throw
        self.active: list[int] = []


class Backward(Torchs):
    """The lowest part of a DistributedDataParallel, which opens and closes what is named here."""

    world: World
    engine: Engine
    _binding: Binding
    _record: _record.Record | None
    _costs: int
    _alone: bool  # one worker, and nothing on the way that would change a gradient
    _flat: torch.Tensor  # all gradients, one tensor after another
    _firsts: list[int]  # of each tensor the index in _flat at which it begins
    _probe: torch.Tensor  # of each tensor the place of an element that was not zero lately
    _taken: bytearray  # in this backward
    _used: bytearray  # since the last exchange: by those without one as well
    _armed: bool  # a forward wants its backward exchanged
    _task: int | None  # the backward (graph task) that has come through an output
    _active: bool  # the engine is within a pass
    _failure: Error | None
    _told_unused: bool
    _join: Joining | None

    def _arm(self, outputs: Iterable[torch.Tensor]) -> None:
        """The next backward is exchanged, and those through these outputs."""
        if self._alone or not torch.is_grad_enabled():
            return
        self._armed = True
        for t in outputs:
            if t.grad_fn is not None:
                t.grad_fn.register_prehook(weakly(self._through))

    def _through(self, _grads: object) -> None:
        """A backward has come to an output of the forward. That is before any gradient below it."""
        task = torch._C._current_graph_task_id()
        if self._task != task and not self._active:
            self._task = task
            Variable._execution_engine.queue_callback(self._end)

    def _final(self, tensor: int, _param: torch.Tensor) -> None:
        """The gradient of a parameter is final in this backward."""
        b = self._binding.bound[tensor]
        if self._alone:
            return
        self._used[b.index] = 1
        if not self._active:
            if not self._armed and self._task is None:
                return  # within no_sync, or the backward of another forward than ours
            self._begin()
        if self._taken[b.index]:
            self._fail(
                StateError(
                    f"parameter '{b.name}' got its gradient twice in one backward, and the first may be exchanged "
                    "already; of a checkpointed layer that is used twice this is so with use_reentrant=True: use False"
                )
            )
        grad = b.param.grad
        assert grad is not None, "a gradient that was announced is not there"
        if grad.requires_grad:
            self._fail(
                StateError(
                    "backward(create_graph=True): gradients are exchanged as numbers and have no graph; compute "
                    "them by torch.autograd.grad(..., create_graph=True) and call backward without it"
                )
            )
        if grad.layout not in (torch.strided, torch.sparse_coo):
            self._fail(
                StateError(
                    f"the gradient of '{b.name}' is {grad.layout}; dense and sparse_coo ones can be exchanged"
                )
            )
        self._taken[b.index] = 1
        if not self._comm_hooks:
            with self._failing(), torch.no_grad():
                self._exchange.take(b)

    def _begin(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._task is None:
            Variable._execution_engine.queue_callback(self._end)
        self._active = True
        if not self._comm_hooks:
            with self._failing():
                self._exchange.begin()

    def _end(self) -> None:
        """The backward is over."""
        self._task = None
        if self._active and self._failure is None:
            with self._failing(), torch.no_grad():
                self._finish()
            self._active = self._armed = False

    def _finish(self) -> None:
        """Ends the step and gives each parameter its gradient."""
        bound = self._binding.bound
        missing = [b for b in bound if not self._taken[b.index]] if 0 in self._taken else []
        if self._comm_hooks:
            self._by_hook()
        else:
            self._by_engine(missing)
        if missing and not self._told_unused:
            self._told_unused = True
            warn_unused([b.name for b in missing])
        n = len(bound)
        self._taken, self._used = bytearray(n), bytearray(n)
        if self._record is not None:
            self._record.step()
        if self._costs:
            self._costs = 0
            _codec.tell(self.engine)

    def _by_hook(self, shadow: bool = False) -> None:
        """The exchange by a communication hook of torch's. shadow: this worker has no gradients, and wants none."""
        used = self.world.reduce([float(u) for u in self._used], "max")
        hook, state = self._comm_hooks[0]
        for b, grad in _comm.exchange(hook, state, self._binding.bound, shadow):
            if shadow or used[b.index] == 0:
                continue
            if b.param.grad is None:
                b.param.grad = grad.to(b.param.dtype, copy=True)
            else:
                b.param.grad.copy_(grad)

    def _by_engine(self, missing: list[Bound]) -> None:
        bound = self._binding.bound
        kept: dict[int, torch.Tensor] = {}
        if missing:
            for b in missing:  # what an earlier backward has left in .grad counts, as it does under torch
                if b.param.grad is not None:
                    if b.lies_in(b.param.grad):
                        kept[b.index] = b.gradient.clone()
                    self._exchange.take(b)
        self._exchange.end()
        nobodys = self._used_by_nobody()
        for b in bound:
            if b.index not in nobodys:
                self._exchange.give(b)
            elif b.index in kept:
                b.gradient.copy_(kept[b.index])

    def _used_by_nobody(self) -> frozenset[int]:
        """The same on all workers: see the head of this file."""
        zero = (self._flat[self._probe] == 0).nonzero().flatten().tolist()
        suspects = []
        for k in zero:
            first = self._firsts[k]
            other = self._flat[first : first + self._binding.bound[k].param.numel()] != 0
            at = int(other.to(torch.uint8).argmax())
            if other[at]:
                self._probe[k] = first + at
            else:
                suspects.append(k)
        if self._join is not None and not self._join.by_all:
            self._flat.mul_(self.world.size / len(self._join.active))
        if not suspects:
            return frozenset()
        used = self.world.reduce([float(self._used[k]) for k in suspects], "max")
        return frozenset(k for k, by in zip(suspects, used, strict=True) if by == 0)

    def _fail(self, error: Error) -> NoReturn:
        self._failure = error
        raise error

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """A failure of the engine is final: later calls fail with the same sentence."""
        try:
            yield
        except Error as e:
            self._failure = e
            raise
