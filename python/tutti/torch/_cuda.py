"""Copies gradients from a GPU to the engine, which computes on the host, and back. All CUDA calls are made through
torch; the C library has none.

When a gradient is final on the compute stream, it is copied to pinned host memory on a side stream. A thread waits for
these copies in order and tells the engine of each. So neither the compute stream nor autograd's thread blocks.
Exchanged gradients are copied back on the side stream; the compute stream waits for these copies, and the host does
not.

    compute   grad 2 ──┐ grad 1 ──┐ grad 0 ──┐                      ┌── optimiser
    side               └ copy 2 ──┴ copy 1 ──┴ copy 0 ··· back 2, 1, 0
    thread                      announce 2, 1, 0
    engine                          exchange, step

Only class Cuda calls torch.cuda; tests replace it by another Device. Users: ddp.py (CudaExchange, by exchange_of),
_run.py (HostStaging, Device and Cuda) and hook.py (Cuda).
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
        """Allocates pinned host memory, for asynchronous copies."""

    def record(self) -> Any:
        """Records an event on the compute stream: it completes when all work queued so far is done."""

    def copy(self, to: torch.Tensor, source: torch.Tensor, after: Any | None) -> Any:
        """Queues a copy on the side stream, after event `after` (None: at once). Returns an event that completes with
        the copy. The caller may drop both tensors before that."""

    def synchronize(self, event: Any) -> None:
        """Blocks the calling thread until the event completes; releases the GIL."""

    def stream_wait(self, event: Any) -> None:
        """Makes work queued on the compute stream from now on wait for the event. Does not block the caller."""

    def settle(self, future: torch.futures.Future[Any], result: Any, after: Any) -> None:
        """Sets the future's result. A stream that uses it waits for event `after` first."""


class Cuda:
    """A CUDA device as Device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.side = torch.cuda.Stream(device)

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(tuple(shape), dtype=dtype, device="cpu", pin_memory=True)  # whatever torch's default is

    def record(self) -> torch.cuda.Event:
        return torch.cuda.current_stream(self.device).record_event()

    def copy(self, to: torch.Tensor, source: torch.Tensor, after: torch.cuda.Event | None) -> torch.cuda.Event:
        with torch.cuda.stream(self.side):
            if after is not None:
                self.side.wait_event(after)
            to.copy_(source, non_blocking=True)
            for tensor in (to, source):
                if tensor.is_cuda:
                    tensor.record_stream(self.side)  # the allocator does not reuse it before the copy is made
            # blocking: a thread that waits for it sleeps, and leaves its core to the engine
            return self.side.record_event(torch.cuda.Event(blocking=True))

    def synchronize(self, event: torch.cuda.Event) -> None:
        event.synchronize()

    def stream_wait(self, event: torch.cuda.Event) -> None:
        torch.cuda.current_stream(self.device).wait_event(event)

    def settle(self, future: torch.futures.Future[Any], result: Any, after: torch.cuda.Event) -> None:
        with torch.cuda.stream(self.side):
            self.side.wait_event(after)
            future.set_result(result)


class HostStaging:
    """Copies gradients of a module to the host and back.

    `announce(tensor, host)` is called on this object's thread, once for each `to_host`, in that order. `host` holds
    the gradient in its own dtype until the next call for that tensor, of `to_host` or of `to_device`. The methods are
    not thread-safe. Between `to_host` and the return of `wait_announced` only `announce` may call the engine.
    """

    def __init__(self, device: Device, announce: Callable[[int, torch.Tensor], None]) -> None:
        self._device = device
        self._announce = announce
        self._host: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        self._uploads: dict[torch.Tensor, Any] = {}  # host buffer -> event of the last copy from it to the device
        self._failure: BaseException | None = None
        self._worker: Worker | None = None

    def to_host(self, tensor: int, grad: torch.Tensor) -> None:
        """Queues the copy of a gradient that is final on the compute stream. Does not block."""
        if self._worker is None:
            self._worker = Worker(self._process, "tutti-staging")
        host = self._host_buffer(tensor, grad)
        self._worker.put((tensor, host, self._device.copy(host, grad, self._device.record())))

    def wait_announced(self) -> None:
        """Blocks until every gradient given to `to_host` so far was announced. If `announce` raised, raises that error
        once; later gradients were not announced."""
        if self._worker is None:
            return
        flushed = threading.Event()
        self._worker.put(flushed)
        flushed.wait()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def to_device(self, tensor: int, values: torch.Tensor, to: torch.Tensor) -> None:
        """Copies `values` (host) to `to` (device). Work queued on the compute stream afterwards sees them. `values` may
        be changed on return. Blocks only if the previous copy of this tensor is not finished."""
        host = self._host_buffer(tensor, to)
        if host in self._uploads:
            # normally complete; pending only if a tensor is copied twice in a row
            self._device.synchronize(self._uploads[host])
        host.copy_(values)
        self._uploads[host] = self._device.copy(to, host, self._device.record())
        self._device.stream_wait(self._uploads[host])

    def close(self) -> None:
        """Ends the thread, once all is announced."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _host_buffer(self, tensor: int, like: torch.Tensor) -> torch.Tensor:
        host = self._host.get((tensor, like.dtype))
        if host is None:
            host = self._host[tensor, like.dtype] = self._device.pinned(like.shape, like.dtype)
        return host

    def _process(self, item: threading.Event | tuple[int, torch.Tensor, Any]) -> None:
        if isinstance(item, threading.Event):  # a flush marker of wait_announced()
            item.set()
            return
        tensor, host, event = item
        try:
            if self._failure is None:
                self._device.synchronize(event)
                self._announce(tensor, host)
        except BaseException as failure:  # raised again by wait_announced()
            self._failure = failure


class CudaExchange(Exchange):
    """Exchange for parameters on one GPU. Engine calls never overlap: autograd's thread calls it at the beginning of a
    pass, the staging thread while gradients arrive, and autograd's thread again after wait_announced().

    `views` has no effect: a gradient on a GPU cannot be a view of the engine's memory, which is the host's.
    """

    def __init__(self, binding: Binding, engine: Engine, views: bool = True, device: Device | None = None):
        super().__init__(binding, engine, views)
        self._staging = HostStaging(device or Cuda(binding.bound[0].param.device), weakly(self._announce))

    def _announce(self, tensor: int, host: torch.Tensor) -> None:
        b = self.binding.bound[tensor]
        with torch.no_grad():
            b.g.copy_(host)
        self.engine.grad_ready(tensor)

    def take(self, b: Bound) -> None:
        self._staging.to_host(b.index, b.param.grad)

    def end(self) -> None:
        self._staging.wait_announced()
        super().end()

    def give(self, b: Bound) -> None:
        p = b.param
        if p.grad is None:
            p.grad = torch.empty_like(p)
        self._staging.to_device(b.index, b.g, p.grad)

    def close(self) -> None:
        self._staging.close()


def exchange_of(binding: Binding) -> Callable[..., Exchange]:
    """The Exchange for the device of the module's parameters."""
    return Exchange if device_of(binding).type == "cpu" else CudaExchange
