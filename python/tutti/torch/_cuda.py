"""Gradients between a GPU and the engine, which computes on the host. No CUDA code is in the C library.

A gradient that is final on the compute stream is copied to pinned host memory on a side stream. A thread waits for the
copies in order and announces each: so neither the compute stream nor autograd's thread waits. What is exchanged goes
back on the side stream, and the compute stream waits for that, the host does not.

    compute   grad 2 ──┐ grad 1 ──┐ grad 0 ──┐                      ┌── optimiser
    side               └ copy 2 ──┴ copy 1 ──┴ copy 0 ··· back 2, 1, 0
    thread                      announce 2, 1, 0
    engine                          exchange, step

Everything that is CUDA's is in `Cuda`, a few short calls. Tests put streams of their own in its place. The seam to the
rest is CudaExchange, which DistributedDataParallel takes where the module is on a GPU.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from ..engine import Engine
from ._bind import Binding, Bound, Exchange, device_of
from ._runs import weakly
from ._thread import Worker


class Device(Protocol):
    """A device whose work is asynchronous, in two streams: compute, which is torch's current one, and side."""

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Host memory that copies from and to the device can go by without waiting."""

    def mark(self) -> Any:
        """An event: all that the compute stream has been given so far."""

    def copy(self, to: torch.Tensor, source: torch.Tensor, after: Any | None) -> Any:
        """Copies on the side stream, once `after` has come to pass. Gives the event of its end. Both tensors may be
        dropped by the caller before that."""

    def wait(self, event: Any) -> None:
        """This thread waits. Other Python threads run."""

    def hold(self, event: Any) -> None:
        """What the compute stream is given from now on waits. This thread does not."""


class Cuda:
    """A CUDA device as Device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.side = torch.cuda.Stream(device)

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(tuple(shape), dtype=dtype, pin_memory=True)

    def mark(self) -> torch.cuda.Event:
        return torch.cuda.current_stream(self.device).record_event()

    def copy(self, to: torch.Tensor, source: torch.Tensor, after: torch.cuda.Event | None) -> torch.cuda.Event:
        with torch.cuda.stream(self.side):
            if after is not None:
                self.side.wait_event(after)
            to.copy_(source, non_blocking=True)
            for tensor in (to, source):
                if tensor.is_cuda:
                    tensor.record_stream(self.side)  # the allocator does not reuse it before the copy is made
            return self.side.record_event()

    def wait(self, event: torch.cuda.Event) -> None:
        event.synchronize()

    def hold(self, event: torch.cuda.Event) -> None:
        torch.cuda.current_stream(self.device).wait_event(event)

    def settle(self, future: torch.futures.Future[Any], result: Any, after: torch.cuda.Event) -> None:
        """Sets the result of a future of this device: the stream of any waiter then waits for `after`."""
        with torch.cuda.stream(self.side):
            self.side.wait_event(after)
            future.set_result(result)


class Ferry:
    """Takes gradients of a module to the host and back.

    `announce(tensor, host)` is called by a thread of the ferry, in the order of `bring`, never twice at once. `host`
    holds the gradient in its own dtype until the next `bring` of that tensor. The calls below are for one thread at a
    time. A call of the engine between `bring` and `brought` would overlap with others.
    """

    def __init__(self, device: Device, announce: Callable[[int, torch.Tensor], None]) -> None:
        self._device = device
        self._announce = announce
        self._host: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        self._left: dict[torch.Tensor, Any] = {}  # of host memory: when the last copy from it has been made
        self._failure: BaseException | None = None
        self._worker: Worker | None = None

    def bring(self, tensor: int, grad: torch.Tensor) -> None:
        """The gradient is final on the compute stream. Does not wait."""
        if self._worker is None:
            self._worker = Worker(self._arrived, "tutti-ferry")
        host = self._place(tensor, grad)
        self._worker.put((tensor, host, self._device.copy(host, grad, self._device.mark())))

    def brought(self) -> None:
        """Waits until all that was brought has been announced. Raises what `announce` raised first; what came after
        that was not announced."""
        if self._worker is None:
            return
        over = threading.Event()
        self._worker.put(over)
        over.wait()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def take(self, tensor: int, values: torch.Tensor, to: torch.Tensor) -> None:
        """Copies the host's `values` to the device's `to`: an exchanged gradient. What the compute stream is given from
        now on finds them there. `values` may change when this returns. Does not wait for the device."""
        host = self._place(tensor, to)
        if host in self._left:
            self._device.wait(self._left[host])  # long past, but for a tensor that is taken twice in a row
        host.copy_(values)
        self._left[host] = self._device.copy(to, host, self._device.mark())
        self._device.hold(self._left[host])

    def close(self) -> None:
        """Ends the thread, once all is announced."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _place(self, tensor: int, like: torch.Tensor) -> torch.Tensor:
        host = self._host.get((tensor, like.dtype))
        if host is None:
            host = self._host[tensor, like.dtype] = self._device.pinned(like.shape, like.dtype)
        return host

    def _arrived(self, item: threading.Event | tuple[int, torch.Tensor, Any]) -> None:
        if isinstance(item, threading.Event):
            item.set()
            return
        tensor, host, event = item
        try:
            if self._failure is None:
                self._device.wait(event)
                self._announce(tensor, host)
        except BaseException as failure:  # raised in the thread that waits for it
            self._failure = failure


class CudaExchange(Exchange):
    """Gradients of parameters on one GPU. The engine is called by autograd's thread as a pass begins, then by the
    ferry's thread alone, and again by autograd's when that one has nothing left: calls never overlap."""

    def __init__(self, binding: Binding, engine: Engine, views: bool = True, device: Device | None = None):
        super().__init__(binding, engine, views)
        self._ferry = Ferry(device or Cuda(binding.bound[0].param.device), weakly(self._announce))

    def _announce(self, tensor: int, host: torch.Tensor) -> None:
        b = self.binding.bound[tensor]
        with torch.no_grad():
            b.g.copy_(host)
        self.engine.grad_ready(tensor)

    def take(self, b: Bound) -> None:
        self._ferry.bring(b.index, b.param.grad)

    def end(self) -> None:
        self._ferry.brought()
        super().end()

    def give(self, b: Bound) -> None:
        p = b.param
        if p.grad is None:
            p.grad = torch.empty_like(p)
        self._ferry.take(b.index, b.g, p.grad)

    def close(self) -> None:
        self._ferry.close()


def exchange_of(binding: Binding) -> Callable[..., Exchange]:
    """The Exchange for the device of the module's parameters."""
    return Exchange if device_of(binding).type == "cpu" else CudaExchange
