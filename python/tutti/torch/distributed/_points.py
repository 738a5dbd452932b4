"""Messages between two members: posted at once, beside the group's collectives, and completed by who waits for them.

So a send that was issued before a collective and is received after it blocks neither, and two members that send to
each other before they receive do not wait for each other.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch

from ... import _abi
from ..._library import library as _c
from ...errors import CorruptError, check
from .._ranges import ranged
from ._record import Called
from ._streams import Staged
from ._tensors import flat, put, room
from ._work import NO_LIMIT, Queue, Work, seconds
from ._worlds import Shared

_PORT = b"torch.distributed: message"
_SLICE = 0.1  # seconds, between looks for signals and for the end of the group
_TO = "send to rank {rank} (tag {tag})"
_FROM = "recv of rank {rank} (tag {tag})"


class Point(Work):
    """A message in flight. x: the memory that it is sent from or comes to, which stays as long as it is in flight."""

    def __init__(self, points: Points, what: str, tensor: torch.Tensor, comes: bool):
        super().__init__(points.queue, what, 0, [tensor], points.limit)
        staged = self.staged = Staged()
        host = staged.writes(tensor) if comes else staged.reads(tensor)
        staged.enter()  # what is sent is posted at once
        self._staged = staged
        x, self._host = room(host) if comes else flat(host), host
        self.request = _abi.tutti_request()
        self._points, self.x, self._comes = points, x, comes
        if points.queue.record is not None:
            size = x.numel() * x.element_size()
            self.called = Called(points.queue.name, "recv" if comes else "send", "", size, time.monotonic_ns())
        self._testing = threading.Lock()

    def __str__(self) -> str:
        return self.what

    def _settle(self) -> None:
        """It has arrived, or was taken."""
        size = self.x.numel() * self.x.element_size()
        if self._comes and self.request.note.bytes != size:
            raise CorruptError(
                f"{self.what}: the message has {self.request.note.bytes} bytes, and the tensor {size}; both ends must "
                "agree on shape and dtype"
            )
        if self._comes:
            with torch.inference_mode():
                put(self.x, self._host)
                self._staged.leave()

    def test(self, until: float = 0.0, patient: bool = True) -> bool:
        """Is it over? Waits for it until then (time.monotonic), unless another thread does and this is not patient."""
        if not self._testing.acquire(blocking=patient):
            return False
        try:
            return self._over.is_set() or self._test(until)
        finally:
            self._testing.release()

    def _test(self, until: float) -> bool:
        one = (ctypes.POINTER(_abi.tutti_request) * 1)(ctypes.pointer(self.request))
        error = None
        try:
            check(_c.tutti_wait_some, self._points.at, one, 1, 1, int(until * 1e9), None)
            self._settle()
            if self.called is not None and self._queue.record is not None:
                self._queue.record.made(self.called, time.monotonic_ns())
        except TimeoutError:
            return False
        except Exception as e:  # noqa: BLE001 (raised by wait)
            error = self._points.shared.explain(e, self._queue, collective=False)
        self._points.forget(self)
        self.end(error)
        return True

    def cancel(self, error: BaseException) -> None:
        with self._testing:
            if not self._over.is_set():
                _c.tutti_cancel(self._points.at, self.request)
                self._points.forget(self)
                self.end(error)

    def is_completed(self) -> bool:
        return self.test()

    def wait(self, timeout: timedelta = NO_LIMIT) -> bool:
        with ranged(self.what), self._queue.waiting(self):
            self.settled(seconds(timeout))
        return True

    def settled(self, asked: float | None = None) -> None:
        limit = self._limit if asked is None else asked
        end = self.deadline if asked is None else time.monotonic() + asked
        while not self.test(min(end, time.monotonic() + _SLICE)):
            self._queue.check(self.what)
            if time.monotonic() >= end:
                error = TimeoutError(f"{self.what} has not ended within {limit:g} s; the other end has not come to it")
                self._queue.fail(error)
                self.cancel(error)
        self._raise()
        self._staged.wait()

    def get_future(self) -> torch.futures.Future[Any]:
        future = super().get_future()
        if not self._over.is_set():
            threading.Thread(target=self._wait_for_future, name="tutti message", daemon=True).start()
        return future

    def _wait_for_future(self) -> None:
        try:
            self.settled()
        except Exception:  # noqa: BLE001 (the future has it)
            pass

    def source_rank(self) -> int:
        """In the group, of the message that has come."""
        return self._queue.members.ranks.index(getattr(self.request.note, "from"))

    _source_rank = source_rank


class Points:
    """A group's messages between two. limit: seconds that one may take."""

    def __init__(self, shared: Shared, queue: Queue, limit: float):
        self.shared, self.queue, self.limit = shared, queue, limit
        self._open: set[Point] = set()
        self._lock = threading.Lock()

    @property
    def at(self) -> ctypes.c_void_p:
        return self.shared.world._at

    def forget(self, point: Point) -> None:
        with self._lock:
            self._open.discard(point)

    def _port(self, tag: int) -> int:
        return int(_c.tutti_port_of(_PORT, self.queue.members.context, tag % 2**64))

    def _post(self, point: Point, call: Callable[..., int], *arguments: object) -> Point:
        with self._lock:
            before = list(self._open)
        for other in before:  # those that nobody waits for are over some time, too
            other.test(patient=False)
        with self._lock:
            self._open.add(point)
        try:
            check(call, self.at, point.request, *arguments)
        except Exception:
            self.forget(point)
            raise
        return point

    def _name(self, form: str, index: int, tag: int) -> str:
        rank = "any" if index < 0 else self.shared.ranks[self.queue.members.ranks[index]]
        return form.format(rank=rank, tag=tag)

    def _raw(self, x: torch.Tensor) -> _abi.tutti_buffer:
        return self.shared.world._host(x.data_ptr(), x.numel() * x.element_size(), _abi.TUTTI_U8)

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> Point:
        point = Point(self, self._name(_TO, to, tag), tensor, comes=False)
        rank = self.queue.members.ranks[to]
        return self._post(point, _c.tutti_post_send, rank, self._port(tag), _abi.tutti_header(), self._raw(point.x))

    def recv(self, tensor: torch.Tensor, of: int, tag: int) -> Point:
        """of: -1: of any member."""
        point = Point(self, self._name(_FROM, of, tag), tensor, comes=True)
        rank = self.queue.members.ranks[of] if of >= 0 else -1
        return self._post(point, _c.tutti_post_recv, rank, self._port(tag), self._raw(point.x))

    def close(self, error: BaseException) -> None:
        for point in list(self._open):
            if not point.test():
                point.cancel(error)
