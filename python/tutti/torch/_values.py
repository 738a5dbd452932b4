"""Values of a prepared model on a GPU: which side has the newest ones, and the copies between there and the engine.

The script's optimizer changes them on the GPU. The engine's are older then, and it asks for the new ones when it needs
them (engine_options.values): after each update, or under a method that asks for values (TUTTI_ASKS_FOR_VALUES) only in
the steps in which that method reads or sends them, and for evaluate(), save(), state_dict() and finish(). New values
of the engine are copied to the GPU when it has handed them out (tutti_engine_handed).

    bring     GPU -> host   blocks: the engine reads them at once
    deliver   host -> GPU   on the side stream; the compute stream waits, and the host does not. wait_copied() blocks
                            until these copies are made, before the engine may change what they read
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch

from ..errors import NumberError
from ._bind import Binding, Bound
from ._cuda import Device, Windows


class Finite:
    """Checks on the GPU whether gradients are finite. The host reads the answers when they are there, without waiting,
    and waits for them only before values leave this worker (check)."""

    MOST = 16  # steps whose answer may be outstanding

    def __init__(self, device: Device, rank: int) -> None:
        self._device, self._rank = device, rank
        self._noted: collections.deque[_Noted] = collections.deque()
        self._free: list[torch.Tensor] = []  # pinned memory of answers that were read

    def note(self, grads: Sequence[tuple[Bound, torch.Tensor]], step: int) -> None:
        """Queues the check of a step's gradients. NumberError: those of a step before are not finite."""
        while self._noted and (len(self._noted) > self.MOST or self._device.done(self._noted[0].copied)):
            self._read()
        for dtype in {grad.dtype for _, grad in grads}:
            bound = [b for b, grad in grads if grad.dtype == dtype]
            largest = torch.stack(torch._foreach_norm([g for _, g in grads if g.dtype == dtype], math.inf))
            host = self._memory(largest)
            copied = self._device.copy(host, largest, self._device.record())
            self._noted.append(_Noted(bound, step, host, copied))

    def check(self) -> None:
        """NumberError: a gradient that was noted is not finite. Blocks until all of them are known."""
        while self._noted:
            self._read()

    def _memory(self, like: torch.Tensor) -> torch.Tensor:
        for k, host in enumerate(self._free):
            if host.shape == like.shape and host.dtype == like.dtype:
                return self._free.pop(k)
        return self._device.pinned(like.shape, like.dtype)

    def _read(self) -> None:
        noted = self._noted.popleft()
        self._device.synchronize(noted.copied)
        for k in (~noted.largest.isfinite()).nonzero().flatten().tolist():
            raise NumberError(
                f"worker {self._rank}: the gradient of {noted.bound[k].name} is {float(noted.largest[k]):g} in step "
                f"{noted.step}; lower the learning rate, clip the gradient (clip_norm) or leave such steps out "
                "(nonfinite='skip')"
            )
        self._free.append(noted.largest)


@dataclasses.dataclass
class _Noted:
    """A step whose gradients are being checked."""

    bound: list[Bound]
    step: int
    largest: torch.Tensor  # on the host: the largest magnitude in each gradient
    copied: Any  # event after which it is there


class OnDevice:
    """The values of a binding whose parameters are on a device."""

    def __init__(self, device: Device, binding: Binding) -> None:
        assert binding.engine is not None, "a binding that is not attached"
        self._device, self._bound, self._engine = device, binding.bound, binding.engine
        self.windows = Windows(device, self._engine.vectors())
        self.finite = Finite(device, self._engine.rank)
        self._delivered = 0  # handed() at the last deliver()
        self._copied: Any = None  # event of the last copy of deliver()

    def deliver(self) -> None:
        """Copies the engine's values to the parameters, if it has handed out new ones."""
        handed = self._engine.handed()
        if handed == self._delivered:
            return
        self._delivered = handed
        now = self._device.record()
        for b in self._bound:
            self._copied = self._device.copy(b.param.data, b.window(), now)
        self._device.stream_wait(self._copied)

    def wait_copied(self) -> None:
        """Blocks until the copies of deliver() are made. Call before the engine may change values."""
        if self._copied is not None:
            self._device.synchronize(self._copied)
            self._copied = None

    def bring(self) -> None:
        """Copies the parameters to the engine. NumberError: a gradient with which they were updated is not finite."""
        self.finite.check()
        now, made = self._device.record(), None
        for b in self._bound:
            made = self._device.copy(b.window(), b.param.data, now)
        self._device.synchronize(made)

    def close(self) -> None:
        self.wait_copied()
        self.windows.close()
