"""The record of a script's run: a trace of all ranks, figures and a summary in a folder (tutti/files.h), of which
`tutti report DIR` makes a page. It is written if trace= or TUTTI_TRACE_DIR names the folder.

Exchanges, updates and waiting are the engine's own events. Forward and backward are spans from hooks of torch.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import dataclasses
import json
import multiprocessing
import multiprocessing.util
import os
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import Variable

from .. import _abi
from .._library import library as _c
from ..errors import Error, PeerError, StateError, check
from . import _log_to, _runs, _thread
from ._runs import weakly

if TYPE_CHECKING:
    from ..engine import Engine, World

_given = 0  # runs of this process that TUTTI_TRACE_DIR has given a folder
_at_end: weakref.WeakSet[Begun] = weakref.WeakSet()  # records that the end of the process closes


def tensors(of: object) -> Iterator[torch.Tensor]:
    """The tensors in what a forward has returned."""
    if isinstance(of, torch.Tensor):
        yield of
    elif isinstance(of, Mapping):
        for value in of.values():
            yield from tensors(value)
    elif isinstance(of, (list, tuple)):
        for value in of:
            yield from tensors(value)
    elif dataclasses.is_dataclass(of) and not isinstance(of, type):
        for field in dataclasses.fields(of):
            yield from tensors(getattr(of, field.name, None))


def folder_of(trace: str | os.PathLike[str] | None) -> str:
    """Returns the folder of the next run's record; "": it has none. The second run of a process that TUTTI_TRACE_DIR
    gives a folder gets DIR/2, the third DIR/3."""
    global _given
    if trace is not None:
        folder = os.fspath(trace)
        if not isinstance(folder, str) or not folder or "\n" in folder:
            raise ValueError(f"trace={trace!r}; it is the name of a folder")
        return folder
    folder = os.environ.get("TUTTI_TRACE_DIR", "")
    _given += bool(folder)
    return os.path.join(folder, str(_given)) if folder and _given > 1 else folder


def fingerprint(folder: str, log_to: _log_to.LogTo) -> str:
    """Returns the lines that all ranks compare before the engine opens, so that none waits for a record that others do
    not open."""
    return f"trace={folder}\n{log_to.fingerprint()}"


def trace_events(folder: str) -> int:
    """Returns the engine's option."""
    return _abi.TUTTI_RECORD_EVENTS if folder else 0


def failed() -> bool:
    """Does the process end by an exception?"""
    return getattr(sys, "last_value", None) is not None or sys.exc_info()[1] is not None


def overwrites(overwrite: bool) -> bool:
    return overwrite or os.environ.get("TUTTI_TRACE_OVERWRITE", "") not in ("", "0")


def open_record(
    engine: Engine, folder: str, overwrite: bool, log_to: _log_to.LogTo, samples: bool, facts: dict[str, str],
    essential: bool = True, report_every: int = 0
) -> Record | None:
    """Opens the record, on all ranks; None: there is no folder. Closes the engine if it is refused.

    samples: the engine counts the batches' samples. facts: of config.json. essential: False: one that is refused, or
    cannot be written, is a warning. report_every: calls of step() between two lines of figures; 0: the library's."""
    if not folder:
        return None
    try:
        return Record(engine, folder, overwrites(overwrite), log_to, samples, facts, report_every)
    except (ValueError, OSError) as e:
        why = str(e).replace("(overwrite)", "(trace_overwrite=True)")
        if not essential:
            warnings.warn(f"these steps have no record: {why}", stacklevel=3)
            return None
        engine.close()
        if isinstance(e, ValueError):
            raise ValueError(why) from None
        raise
    except BaseException:
        engine.close()
        raise


class Begun:
    """A record that is open, on one rank. Subclasses have the functions of the library."""

    _functions: Callable[[], tuple[Any, ...]]  # to open it, of a loss, of figures, of a step, to close it

    def __init__(self, of: Any, world: World, folder: str, overwrite: bool, log_to: _log_to.LogTo, samples: bool,
                 facts: dict[str, Any], report_every: int = 0):
        command = [os.path.basename(sys.executable or "python"), *sys.orig_argv[1:]]
        facts = {"script": os.path.basename(sys.argv[0]) if sys.argv else "", "command": command, **facts}
        options = _abi.tutti_record_options()
        options.folder, options.facts = os.fsencode(folder), json.dumps(facts).encode()
        options.overwrite, options.samples, options.log_to = overwrite, samples, log_to.files.encode()
        options.metrics_port, options.report_every = log_to.port.encode(), report_every
        self._at: ctypes.c_void_p | None = None
        at = ctypes.c_void_p()
        opens, self._c_loss, self._c_log, self._c_step, self._c_close = self._functions()
        check(opens, at, of, options)
        self._at, self._world, self._folder = at, world, folder
        self._sent: _log_to.Sender | None = None
        if world.rank == 0:
            self._send(log_to, facts)
        world.folder(folder)

    def _send(self, log_to: _log_to.LogTo, facts: dict[str, Any]) -> None:
        try:
            self._sent = log_to.begin(self._folder, facts)
        except BaseException:  # Ctrl-C, while a package waits for its server
            self.close(False)
            raise
        for last in (_runs.at_exit, _end, _thread.end_all):  # the last one first, and all before what a package has now
            atexit.unregister(last)
            atexit.register(last)

    def close_at_end(self) -> None:
        """The end of the process closes the record, if nothing else has done so."""
        _at_end.add(self)
        if multiprocessing.parent_process() is not None and not getattr(_end, "hears", False):
            _end.hears = True  # type: ignore[attr-defined]  # once a process
            multiprocessing.util.Finalize(None, _end, exitpriority=100)  # a forked process has no atexit

    def _call(self, call: Any, *arguments: object) -> None:
        """A failure to write is a warning: the run goes on without the record."""
        try:
            check(call, *arguments)
        except PeerError:
            raise
        except (Error, OSError, MemoryError) as e:
            warnings.warn(f"the trace in {self._folder} is not complete: {e}", stacklevel=3)

    def loss(self, loss: float) -> None:
        """The mean loss of a batch."""
        if self._at is not None:
            self._c_loss(self._at, loss)

    def is_over(self) -> bool:
        return self._at is None

    def log(self, figures: bytes) -> None:
        """Figures of an evaluation, as the library takes them."""
        if self._at is not None:
            self._call(self._c_log, self._at, figures)
            if self._sent is not None:
                self._sent.send()

    def step(self) -> None:
        if self._at is not None:
            self._call(self._c_step, self._at)
            if self._sent is not None:
                self._sent.send()

    def close(self, ended: bool) -> None:
        """Before the engine, or the world, is closed. ended: the run has come to its end, and did not fail."""
        at, self._at = self._at, None
        _at_end.discard(self)
        if at is not None:
            with contextlib.suppress(PeerError):
                self._call(self._c_close, at, ended)
            if self._sent is not None:
                self._sent.close(ended)


class Record(Begun):
    """The record of an engine's run, with forward and backward of a module."""

    def __init__(self, engine: Engine, folder: str, overwrite: bool, log_to: _log_to.LogTo, samples: bool,
                 facts: dict[str, Any], report_every: int = 0):
        super().__init__(engine._at, engine.world, folder, overwrite, log_to, samples, facts, report_every)
        self._forward_ns: int | None = None
        self._backward_ns = 0
        self._task: int | None = None  # the backward (graph task) that is under way

    @staticmethod
    def _functions() -> tuple[Any, ...]:
        return (_c.tutti_record_open, _c.tutti_record_loss, _c.tutti_record_log, _c.tutti_record_step,
                _c.tutti_record_close)

    def _span(self, what: bytes, begin_ns: int) -> None:
        if self._at is not None:
            self._call(_c.tutti_record_span, self._at, what, begin_ns, time.monotonic_ns())

    def forward_begins(self) -> None:
        self._forward_ns = time.monotonic_ns()

    def forward_ends(self, outputs: Iterable[torch.Tensor]) -> None:
        """outputs: a backward that comes to one of them is a span."""
        if self._forward_ns is not None:
            self._span(b"forward", self._forward_ns)
        self._forward_ns = None
        for t in outputs:
            if t.grad_fn is not None:
                t.grad_fn.register_prehook(weakly(self._backward_begins))

    def _backward_begins(self, _grads: object) -> None:
        task = torch._C._current_graph_task_id()
        if self._task != task:
            self._task, self._backward_ns = task, time.monotonic_ns()
            Variable._execution_engine.queue_callback(self._backward_ends)

    def _backward_ends(self) -> None:
        self._task = None
        self._span(b"backward", self._backward_ns)


@atexit.register
def _end() -> None:
    of_it = failed()
    for record in list(_at_end):
        with contextlib.suppress(StateError):  # of the process that this one was forked from
            record._world._mine()
            record.close(not of_it)
