"""The record of a world's groups (tutti/files.h): their calls, what waits for them, and an optimizer's steps.

    trace.json    each group is a thread of a rank, with its calls: bytes, codec, time in the queue. Messages between
                  two are instants, when they are over. What waits for calls is a span of the thread that does.

It is written if the options of the group that opens the world have trace=, or by TUTTI_TRACE_DIR.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from ... import _abi
from ..._library import library as _c
from ...engine import World
from .. import _log_to, _record
from ...errors import check

if TYPE_CHECKING:
    from ._options import Options

_NONE = contextlib.nullcontext()
_SYNCHRONOUS = ("all_reduce", "all_gather", "reduce_scatter", "barrier")  # calls that end after all have begun
_times: dict[str, int] = {}  # worlds of a folder, in this process


@dataclass(frozen=True)
class Called:
    """A call, as the record has it."""

    group: str
    name: str
    codec: str
    size: int
    asked_ns: int

    def is_synchronous(self) -> bool:
        return self.name.startswith(_SYNCHRONOUS)


class CallRecord(_record.Begun):
    _hook: Any = None

    def __init__(self, world: World, folder: str, overwrite: bool, log_to: _log_to.LogTo, facts: dict[str, Any]):
        self._lock = threading.Lock()  # what is within is over before the record is closed
        super().__init__(world._at, world, folder, overwrite, log_to, False, facts)
        self._hook = register_optimizer_step_post_hook(lambda *_: self.step())

    @staticmethod
    def _functions() -> tuple[Any, ...]:
        return (_c.tutti_call_record_open, _c.tutti_call_record_loss, _c.tutti_call_record_log,
                _c.tutti_call_record_step, _c.tutti_call_record_close)

    def close(self, ended: bool) -> None:
        if self._hook is not None:
            self._hook.remove()
        with self._lock:
            super().close(ended)

    def abandon(self) -> None:
        """Of a world with a thread that is within a call whose end is up to the peers: the files stay as they are."""
        self._hook.remove()
        with self._lock:
            self._at = None

    @contextlib.contextmanager
    def _open(self) -> Iterator[bool]:
        """Within, it is not closed. False: it is, or this process was forked from the record's."""
        with self._lock:
            yield self._at is not None and self._world.is_mine()

    def loss(self, loss: float) -> None:
        with self._open() as is_open:
            if is_open:
                super().loss(loss)

    def log(self, figures: bytes) -> None:
        with self._open() as is_open:
            if is_open:
                super().log(figures)

    def step(self) -> None:
        with self._open() as is_open:
            if is_open:
                super().step()

    @staticmethod
    def _as_call(of: Called, begin_ns: int, end_ns: int) -> _abi.tutti_call:
        return _abi.tutti_call(group=of.group.encode(errors="replace"), name=of.name.encode(), codec=of.codec.encode(),
                               bytes=of.size, asked_ns=of.asked_ns, begin_ns=begin_ns, end_ns=end_ns)

    def made(self, of: Called, begin_ns: int) -> None:
        """That call is over."""
        with self._open() as is_open:
            if is_open:
                self._call(_c.tutti_call_record_call, self._at, self._as_call(of, begin_ns, time.monotonic_ns()))

    @contextlib.contextmanager
    def _waiting(self, of: Called) -> Iterator[None]:
        with self._open() as is_open:
            begin = _c.tutti_call_record_wait(self._at) if is_open else 0
        try:
            yield
        finally:
            thread = threading.current_thread()
            name = None if thread is threading.main_thread() else thread.name.encode(errors="replace")
            with self._open() as is_open:
                if is_open and begin:
                    self._call(_c.tutti_call_record_waited, self._at, self._as_call(of, begin, begin), name)

    def compare_clocks(self, number: int) -> None:
        """After a call of that number, the same on all ranks, if it is a power of two."""
        if self._at is not None and number & (number - 1) == 0:
            check(_c.tutti_call_record_clock, self._at)


def waiting(record: CallRecord | None, of: Called | None) -> AbstractContextManager[None]:
    """Within, the client waits for that call."""
    return _NONE if record is None or of is None or record._at is None else record._waiting(of)


def _part(ranks: Sequence[int]) -> str:
    """The name of a folder for a world of some of the job's ranks."""
    named = "-".join(map(str, ranks)) if len(ranks) <= 8 else f"{ranks[0]}-to-{ranks[-1]}-of-{len(ranks)}"
    return f"ranks-{named}"


def _folder(options: Options, ranks: Sequence[int], default: bool) -> str:
    if default:
        return _record.folder_of(options.trace)
    folder = os.fspath(options.trace) if options.trace is not None else os.environ.get("TUTTI_TRACE_DIR", "")
    if not folder:
        return ""
    folder = os.path.join(folder, _part(ranks))
    _times[folder] = _times.get(folder, 0) + 1
    return folder if _times[folder] == 1 else os.path.join(folder, str(_times[folder]))


def open_record(world: World, options: Options, ranks: Sequence[int], default: bool) -> CallRecord | None:
    """Opens the record of a world that was opened just now, on all its ranks; None: there is none."""
    folder = _folder(options, ranks, default)
    options.log_to.check_folder(folder)
    try:
        if not folder:
            _none(world)
            return None
        facts = {"method": "torch.distributed", "codec": options.codec}
        return CallRecord(world, folder, _record.overwrites(options.trace_overwrite), options.log_to, facts)
    except ValueError as e:
        raise ValueError(str(e).replace("(overwrite)", "(trace_overwrite=True)")) from None


def _none(world: World) -> None:
    """This rank wants no record; the others must not either."""
    at = ctypes.c_void_p()
    check(_c.tutti_call_record_open, at, world._at, _abi.tutti_record_options())
