"""Copies between an accelerator and host memory on a stream of their own, beside the one that computes.

    compute   values ──┐                              ┌── what uses the result
    side               └─ copy to host ····· copy back
    a thread              synchronize, work on the host

The calls are those of torch.accelerator and of torch.Stream, which are the same for CUDA, ROCm and XPU. Tests replace
`of_device` by a stand-in whose streams take their time. Users: _local.py, distributed/_work.py.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any, Protocol

import torch


class Streams(Protocol):
    """A device whose work is asynchronous: the stream that is torch's current one, and a side stream."""

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Host memory for asynchronous copies."""

    def record(self) -> Any:
        """An event that completes when all work queued so far on the current stream is done."""

    def aside(self) -> contextlib.AbstractContextManager[Any]:
        """Within, the side stream is this thread's current one."""

    def copy(self, to: torch.Tensor, source: torch.Tensor, after: Any | None) -> Any:
        """Queues a copy on the side stream, after event `after` (None: at once). Returns an event that completes with
        it. The caller may drop both tensors before that."""

    def synchronize(self, event: Any) -> None:
        """Blocks the calling thread until the event completes, without the interpreter's lock."""

    def stream_wait(self, event: Any) -> None:
        """Work queued on the current stream from now on waits for the event. Does not block the caller."""


class _Accelerator:
    """A device of torch.accelerator as Streams."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.side = torch.Stream(device=device)

    def pinned(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(tuple(shape), dtype=dtype, device="cpu", pin_memory=True)

    def _event(self, stream: torch.Stream) -> torch.Event:
        # blocking: a thread that waits for it sleeps, and leaves its core to the exchange
        event = torch.Event(device=self.device, blocking=True)
        event.record(stream)
        return event

    def record(self) -> torch.Event:
        return self._event(torch.accelerator.current_stream(self.device))

    def aside(self) -> contextlib.AbstractContextManager[Any]:
        return self.side

    def copy(self, to: torch.Tensor, source: torch.Tensor, after: torch.Event | None) -> torch.Event:
        with self.side:
            if after is not None:
                self.side.wait_event(after)
            to.copy_(source, non_blocking=True)
            for tensor in (to, source):
                if tensor.device.type != "cpu":
                    tensor.record_stream(self.side)  # the allocator does not reuse it before the copy is made
            return self._event(self.side)

    def synchronize(self, event: torch.Event) -> None:
        event.synchronize()

    def stream_wait(self, event: torch.Event) -> None:
        torch.accelerator.current_stream(self.device).wait_event(event)


@functools.cache
def _made(device: torch.device) -> Streams:
    return _Accelerator(device)


def of_device(device: torch.device) -> Streams | None:
    """The streams of a device, the same at each call; None: it is the host. Tests replace this function."""
    return None if device.type == "cpu" else _made(device)
