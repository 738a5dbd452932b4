"""Calls in progress: what they return, and the thread of a group that makes them one after the other.

A call fails in one of two ways. Who waits for its Work gets the exception. A Future that DistributedDataParallel asks
for within backward is never failed, since PyTorch 2.13 ends with SIGSEGV then: it is completed with what the tensors
hold, and backward itself raises the exception at its end, before an optimizer uses the gradients.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work as TorchWork

from ...errors import PeerError, StateError
from .._ranges import ranged
from .._thread import Worker
from ._calls import Members
from ._record import Called, CallRecord, waiting
from ._streams import Staged, devices

NO_LIMIT = timedelta(0)
_LONGEST = 1e8  # seconds, three years: Python can wait no longer than to the end of time_t
_CLOSING = 10.0  # seconds for calls that nobody has waited for, when a group is destroyed
_BROKEN = 1.0  # where it has failed: for the notice to come back from the peers


def seconds(limit: timedelta | None) -> float | None:
    """torch's -1 ms and 0 mean that there is no limit here."""
    value = 0.0 if limit is None else limit.total_seconds()
    return min(value, _LONGEST) if value > 0 else None


class Work(TorchWork):
    """A call of a group. `tensors`: its results. number: of the group's collectives, from 1. label: in a profile."""

    what: str
    number: int

    def __init__(self, queue: Queue, what: str, number: int, tensors: Sequence[torch.Tensor], limit: float,
                 label: str = ""):
        super().__init__()
        self._label = label or what
        self.called: Called | None = None  # with a record
        self.staged: Staged | None = None  # its tensors, where they are on an accelerator
        self.what, self.number = what, number
        self.run: Callable[[], Any] | None = None
        self._queue, self._tensors, self._limit = queue, list(tensors), limit
        self.deadline: float = time.monotonic() + limit
        self.half: float = time.monotonic() + limit / 2  # then its group's ranks write what they are in, once
        self.error: BaseException | None = None
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._future: torch.futures.Future[Any] | None = None
        self._quiet = False  # its future is DistributedDataParallel's

    def __str__(self) -> str:
        return f"{self.what}, call {self.number} of this group,"

    def end(self, error: BaseException | None) -> None:
        """Only the first one counts."""
        with self._lock:
            if self._over.is_set():
                return
            self.error, self.run = error, None
            self._over.set()
            future = self._future
        if future is not None:
            self._complete(future)

    def _complete(self, future: torch.futures.Future[Any]) -> None:
        if self.error is None or self._quiet:
            with contextlib.nullcontext() if self.staged is None else self.staged.settle():
                future.set_result(self._tensors)
        else:
            future.set_exception(self.error)

    def _late(self, limit: float) -> None:
        self._queue.late(self, limit)

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error.with_traceback(None)

    def wait(self, timeout: timedelta = NO_LIMIT) -> bool:
        with ranged(self._label), self._queue.waiting(self):
            self.settled(seconds(timeout))
        return True

    def settled(self, asked: float | None = None) -> None:
        """Waits, in a thread of this package."""
        if not self._over.wait(self.deadline - time.monotonic() if asked is None else asked):
            self._late(self._limit if asked is None else asked)
        self._raise()
        if self.staged is not None:
            self.staged.wait()

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self._over.is_set()

    def is_over(self) -> bool:
        return self._over.is_set()

    def is_success(self) -> bool:
        return self.is_completed() and self.error is None

    def exception(self) -> BaseException | None:
        return self.error

    def result(self) -> list[torch.Tensor]:
        return self._tensors

    def source_rank(self) -> int:
        raise StateError(f"{self.what} has no source; only recv has")

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future[Any]:
        with self._lock:
            if self._future is not None:
                return self._future
            future = self._future = torch.futures.Future(devices=devices(self._tensors))
            self._quiet = self._queue.backward.takes(self)
            over = self._over.is_set()
        if over:
            self._complete(future)
        return future

    get_future_result = get_future


class Backward:
    """The works of a backward that is in progress. It ends when they have, and raises what they raise."""

    def __init__(self) -> None:
        self._task = -1
        self._works: list[Work] = []

    def takes(self, work: Work) -> bool:
        """False: it is not asked for by a backward of this thread."""
        task = torch._C._current_graph_task_id()
        if task == -1:
            return False
        if task != self._task:
            self._task, self._works = task, []
            torch.autograd.Variable._execution_engine.queue_callback(self._ends)
        self._works.append(work)
        return True

    def _ends(self) -> None:
        works, self._task, self._works = self._works, -1, []
        for work in works:
            work.wait()


def _again(what: str, error: BaseException) -> BaseException:
    """What a call of a group gets that has failed before."""
    told = f"{what}: this group cannot be used any more, since an earlier call of it failed: {error}"
    if isinstance(error, PeerError):
        return PeerError(told, error.rank)
    return TimeoutError(told) if isinstance(error, TimeoutError) else StateError(told)


class Queue:
    """A group's calls, made in the order of issue on a thread of their own.

    explain: makes the library's exception into one with the ranks of the job. missing: says which ranks have not come
    to a collective of that number.
    """

    members: Members
    backward: Backward
    record: CallRecord | None
    name: str
    issued: int

    def __init__(self, members: Members, name: str, explain: Callable[[BaseException, Queue], BaseException],
                 missing: Callable[[Queue, int, float], str], record: CallRecord | None = None):
        self.members, self.backward = members, Backward()
        self.error: BaseException | None = None
        self.issued = 0
        self._explain, self._missing = explain, missing
        self._open: dict[int, Work] = {}
        self._lock = threading.Lock()
        self._closed = False
        self.record, self.name = record, f"group {name}"
        self._of_all, self._synchronous = False, 0
        self._thread = Worker(self._serve, f"tutti group {name}")

    def is_open(self) -> bool:
        return not self._closed

    def check(self, what: str) -> None:
        """Raises where the group takes no calls any more."""
        if self._closed:
            raise StateError(f"{what}: the group is destroyed")
        if self.error is not None:
            raise _again(what, self.error)

    def waiting(self, work: Work) -> AbstractContextManager[None]:
        return waiting(None if work.is_over() else self.record, work.called)

    def measures_clocks(self) -> None:
        """It has all ranks of the world, and is the one that does it."""
        self._of_all = True

    def _recorded(self, work: Work, begin_ns: int) -> None:
        if self.record is None or work.called is None:
            return
        self.record.made(work.called, begin_ns)
        if self._of_all and work.called.is_synchronous():
            self._synchronous += 1
            self.record.compare_clocks(self._synchronous)

    def issue(self, what: str, run: Callable[[], Any], tensors: Sequence[torch.Tensor], limit: float,
              staged: Staged | None = None, label: str = "", called: Called | None = None) -> Work:
        with self._lock:
            self.check(what)
            self.issued += 1
            work = Work(self, what, self.issued, tensors, limit, label)
            work.run, work.staged, work.called = run, staged, called
            self._open[work.number] = work
            self._thread.put(work)
        return work

    def _serve(self, work: Work) -> None:
        run, error, begin_ns = work.run, self.error, time.monotonic_ns()
        if error is None and run is not None:
            try:
                with torch.inference_mode():  # or a tensor that was made in it could not be written to
                    if work.staged is not None:
                        work.staged.enter()
                    run()
                    if work.staged is not None:
                        work.staged.leave()
                self._recorded(work, begin_ns)
            except BaseException as e:  # noqa: BLE001 (raised where the work is waited for)
                if not isinstance(e, PeerError):
                    self.members.give_up()
                error = self.fail(self._explain(e, self))
        with self._lock:
            self._open.pop(work.number, None)
        work.end(error)

    def fail(self, error: BaseException) -> BaseException:
        """Nothing comes of this group any more. Returns the first reason."""
        with self._lock:
            self.error = self.error or error
            works = list(self._open.values())
        for work in works:
            work.end(self.error)
        return self.error

    def late(self, work: Work, limit: float) -> None:
        """That work has not ended in time: fails the group, and names who is missing."""
        why = self._missing(self, work.number, max(0.003, min(limit / 2, 1.0)))
        if not work.is_completed():
            self.fail(TimeoutError(f"{work} has not ended within {limit:g} s: {why}"))
            self.members.give_up()

    def overdue(self, now: float) -> Work | None:
        """A work whose time is over, and for which nobody seems to wait."""
        with self._lock:
            return next((w for w in self._open.values() if now > w.deadline + 1 and not w.is_completed()), None)

    def half_over(self, now: float) -> Work | None:
        """A work that has used half of its time; each is given once."""
        with self._lock:
            work = next((w for w in self._open.values() if now > w.half and not w.is_completed()), None)
            if work is not None:
                work.half = work.deadline + _LONGEST
        return work

    def drain(self) -> None:
        """Waits for what was issued."""
        with self._lock:
            works = list(self._open.values())
        for work in works:
            work.wait()

    def abort(self) -> None:
        self.fail(StateError("the group was aborted"))
        self.members.give_up()

    def close(self) -> bool:
        """Ends the thread, after what was issued. False: it is still within a call, whose end is up to the peers."""
        with self._lock:
            self._closed = True
        if self._thread.close(_CLOSING if self.error is None else _BROKEN):
            return True
        self.fail(StateError("the group was destroyed with calls in progress"))
        return False

    def is_stuck(self) -> bool:
        """Closed, and yet within a call."""
        return not self._thread.close(0)

