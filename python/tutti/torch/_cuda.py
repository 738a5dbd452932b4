"""Copies gradients from a GPU to the engine, which computes on the host, and back. All CUDA calls are made through
torch; the C library has none.

When a gradient is final on the compute stream, it is copied to the host on a side stream. A thread waits for these
copies in order and tells the engine of each. So neither the compute stream nor autograd's thread blocks. Exchanged
gradients are copied back on the side stream; the compute stream waits for these copies, and the host does not.

The engine's memory is page-locked once (Windows). So float32 numbers are copied to and from where the exchange reads
and writes them, and the host makes no copy of its own. Gradients in 16 bits travel as such, through pinned buffers: the
host widens and rounds them. If the memory cannot be locked float32 numbers go through such buffers as well.

    compute   grad 2 ──┐ grad 1 ──┐ grad 0 ──┐                      ┌── optimiser
    side               └ copy 2 ──┴ copy 1 ──┴ copy 0 ··· back 2, 1, 0
    thread                      announce 2, 1, 0
    engine                          exchange, step

Only class Cuda calls torch.cuda (ROCm's, too) and torch.xpu; tests replace it by another Device. Users: ddp.py
(CudaExchange, by exchange_of), _run.py (HostStaging, Device and Cuda), _values.py (Windows, Device) and hook.py (Cuda).
"""

from __future__ import annotations

import logging
import mmap
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from ..engine import Engine
from ._bind import Binding, Bound, Exchange, device_of
from ._runs import weakly
from ._thread import Worker


_log = logging.getLogger("tutti")


class Device(Protocol):
    """A device whose work is asynchronous, in two streams: compute, which is torch's current one, and side."""

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Allocates pinned host memory, for asynchronous copies."""

    def lock(self, address: int, size: int) -> str:
        """Page-locks host memory, so that copies to and from it are asynchronous. Returns why it cannot; "": done."""

    def unlock(self, address: int) -> None:
        """Ends what `lock` did to the memory that begins at this address."""

    def record(self) -> Any:
        """Records an event on the compute stream: it completes when all work queued so far is done."""

    def copy(self, to: torch.Tensor, source: torch.Tensor, after: Any | None) -> Any:
        """Queues a copy on the side stream, after event `after` (None: at once). Returns an event that completes with
        the copy. The caller may drop both tensors before that."""

    def synchronize(self, event: Any) -> None:
        """Blocks the calling thread until the event completes; releases the GIL."""

    def done(self, event: Any) -> bool:
        """Returns whether the event has completed."""

    def stream_wait(self, event: Any) -> None:
        """Makes work queued on the compute stream from now on wait for the event. Does not block the caller."""

    def settle(self, future: torch.futures.Future[Any], result: Any, after: Any) -> None:
        """Sets the future's result. A stream that uses it waits for event `after` first."""


class Cuda:
    """A GPU of torch.cuda, or of torch.xpu, as Device. torch.accelerator has no events that let a waiting thread sleep,
    and memory is locked by torch.cuda alone; so this calls the device's own module."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._api = torch.get_device_module(device)
        self.side = self._api.Stream(device)

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(tuple(shape), dtype=dtype, device="cpu", pin_memory=True)  # whatever torch's default is

    def lock(self, address: int, size: int) -> str:
        if self.device.type != "cuda":
            return f"torch.{self.device.type} has no call for it"
        with torch.cuda.device(self.device):
            refused = int(torch.cuda.cudart().cudaHostRegister(address, size, 0))
            if refused == 0:
                return ""
            try:  # the next kernel would report the refusal as its own
                torch.zeros(1, device=self.device)
            except RuntimeError:
                pass
        return f"cudaHostRegister: error {refused}"

    def unlock(self, address: int) -> None:
        with torch.cuda.device(self.device):
            torch.cuda.cudart().cudaHostUnregister(address)

    def record(self) -> Any:
        return self._api.current_stream(self.device).record_event()

    def copy(self, to: torch.Tensor, source: torch.Tensor, after: Any | None) -> Any:
        with self._api.stream(self.side):
            if after is not None:
                self.side.wait_event(after)
            to.copy_(source, non_blocking=True)
            for tensor in (to, source):
                if tensor.device.type != "cpu":
                    tensor.record_stream(self.side)  # the allocator does not reuse it before the copy is made
            # blocking: a thread that waits for it sleeps, and leaves its core to the engine
            event = torch.cuda.Event(blocking=True) if self.device.type == "cuda" else self._api.Event()
            return self.side.record_event(event)

    def synchronize(self, event: Any) -> None:
        event.synchronize()

    def done(self, event: Any) -> bool:
        return bool(event.query())

    def stream_wait(self, event: Any) -> None:
        self._api.current_stream(self.device).wait_event(event)

    def settle(self, future: torch.futures.Future[Any], result: Any, after: Any) -> None:
        with self._api.stream(self.side):
            self.side.wait_event(after)
            future.set_result(result)


class Windows:
    """Host memory of an engine that is page-locked until close().

    ranges: address and bytes of each piece of memory. A piece of less than a page is left alone: the page has other
    memory, too, and CUDA refuses a copy of memory that is locked in part.
    """

    def __init__(self, device: Device, ranges: Sequence[tuple[int, int]]) -> None:
        self._device = device
        self._locked: list[tuple[int, int]] = []  # begin and end
        for begin, end in _pages(ranges):
            refused = device.lock(begin, end - begin)
            if refused:
                _log.warning("%d bytes of the engine's memory cannot be page-locked (%s): each copy between host and "
                             "device is followed by one on the host", end - begin, refused)
                return
            self._locked.append((begin, end))

    def holds(self, tensor: torch.Tensor) -> bool:
        """Returns whether the tensor, a dense one on the host, lies in this memory."""
        begin = tensor.data_ptr()
        end = begin + tensor.numel() * tensor.element_size()
        return tensor.device.type == "cpu" and any(b <= begin and end <= e for b, e in self._locked)

    def close(self) -> None:
        """Call when all copies are made, before the memory is freed."""
        for begin, _ in self._locked:
            self._device.unlock(begin)
        self._locked = []


def _pages(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns begin and end of the pages of each piece that has pages to itself (tutti_alloc), those that touch as one:
    no page can be locked twice."""
    page = mmap.PAGESIZE
    found: list[tuple[int, int]] = []
    for begin, size in sorted(ranges):
        if size < page or begin % page != 0:
            continue
        end = -(-(begin + size) // page) * page
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Returns whether a copy from one to the other is one of bytes."""
    return a.dtype == b.dtype and a.shape == b.shape and all(
        s == t for n, s, t in zip(a.shape, a.stride(), b.stride(), strict=True) if n > 1
    )


class HostStaging:
    """Copies gradients of a module to the host and back.

    `announce(tensor, host)` is called on this object's thread, once for each `to_host`, in that order. `host` holds
    the gradient: in its own dtype, in a buffer, until the next call for that tensor, of `to_host` or of `to_device`; or
    in the engine's memory itself. The methods are not thread-safe. Between `to_host` and the return of
    `wait_announced` only `announce` may call the engine.
    """

    def __init__(
        self, device: Device, announce: Callable[[int, torch.Tensor], None], windows: Windows | None = None
    ) -> None:
        self._device = device
        self._announce = announce
        self._windows = windows
        self._from_window: Any = None  # event of the last copy from the engine's memory
        self._host: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        self._uploads: dict[torch.Tensor, Any] = {}  # host buffer -> event of the last copy from it to the device
        self._failure: BaseException | None = None
        self._worker: Worker | None = None

    def to_host(self, tensor: int, grad: torch.Tensor, to: torch.Tensor | None = None) -> None:
        """Queues the copy of a gradient that is final on the compute stream. Does not block.

        to: memory of the engine in which the gradient is to land, where that is locked and the types are alike. It must
        be free: the copy is made behind those of `to_device`."""
        if self._worker is None:
            self._worker = Worker(self._process, "tutti-staging")
        host = to if to is not None and self._is_window(to, grad) else self._host_buffer(tensor, grad)
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
        be changed when wait_copied() has returned; on return if they are not in locked memory of the engine. Blocks
        only if the previous copy of this tensor from a buffer is not finished."""
        if self._is_window(values, to):
            self._from_window = self._device.copy(to, values, self._device.record())
            self._device.stream_wait(self._from_window)
            return
        host = self._host_buffer(tensor, to)
        if host in self._uploads:
            # normally complete; pending only if a tensor is copied twice in a row
            self._device.synchronize(self._uploads[host])
        host.copy_(values)
        self._uploads[host] = self._device.copy(to, host, self._device.record())
        self._device.stream_wait(self._uploads[host])

    def wait_copied(self) -> None:
        """Blocks until the copies from the engine's memory are made. Call before the engine may write to it."""
        if self._from_window is not None:
            self._device.synchronize(self._from_window)
            self._from_window = None

    def close(self) -> None:
        """Ends the thread, once all is announced."""
        self.wait_copied()
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _is_window(self, host: torch.Tensor, other: torch.Tensor) -> bool:
        return self._windows is not None and _alike(host, other) and self._windows.holds(host)

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
        device = device or Cuda(binding.bound[0].param.device)
        self._windows = Windows(device, engine.vectors()[1:])  # gradients alone: values stay on the device
        self._staging = HostStaging(device, weakly(self._announce), self._windows)

    def _announce(self, tensor: int, host: torch.Tensor) -> None:
        b = self.binding.bound[tensor]
        if not b.lies_in(host):
            with torch.no_grad():
                b.gradient.copy_(host)
        self.engine.grad_ready(tensor)

    def take(self, b: Bound) -> None:
        grad = b.param.grad
        assert grad is not None, "a gradient that was announced is not there"
        self._staging.to_host(b.index, grad, b.g)

    def end(self) -> None:
        self._staging.wait_announced()
        self._staging.wait_copied()
        super().end()

    def give(self, b: Bound) -> None:
        p = b.param
        if p.grad is None:
            p.grad = torch.empty_like(p)
        self._staging.to_device(b.index, b.gradient, p.grad)

    def close(self) -> None:
        self._staging.close()
        self._windows.close()


def exchange_of(binding: Binding) -> Callable[..., Exchange]:
    """The Exchange for the device of the module's parameters."""
    return Exchange if device_of(binding).type == "cpu" else CudaExchange
