"""The runs that are open in this process, and what becomes of those that nobody ends: the process ends, or nobody has
their model and optimizer any more.

Where workers have models of their own a script that forgets finish() leaves one on each rank, none of which is the
model that they agree on. Such a rank tells its peers, says so on stderr, and its exit code is not 0.
"""

from __future__ import annotations

import atexit
import ctypes
import multiprocessing
import multiprocessing.util
import sys
import weakref
from collections.abc import Callable
from typing import Any

from torch import nn

from ..errors import StateError

_open: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # Run, Pipeline; by id() of their model
_with_servers = False  # there has been one in which ranks only serve
_forgotten = False  # one has been dropped without the finish() that it needed


def run_of(model: nn.Module) -> Any | None:
    """The open run that trains this model."""
    return _open.get(id(model))


def closed(run: Any) -> None:
    _open.pop(id(run.model), None)


def weakly(method: Callable[..., None], *first: Any) -> Callable[..., None]:
    """For hooks of parameters and for threads: calls method(*first, ...) while somebody else has its object. `first`
    must not lead to a parameter: what hooks of parameters hold is out of the collector's sight."""
    there = weakref.WeakMethod(method)

    def call(*arguments: Any) -> None:
        method = there()
        if method is not None:
            method(*first, *arguments)

    return call


def check_second(servers: int) -> None:
    """Refuses one that ranks of another can never come to."""
    if _with_servers or (servers and _open):
        raise ValueError(
            "this process is or was in another run, and one of the two has prepare(servers=...): ranks that only serve "
            "are in one run and never come to another. Leave servers= out of both, or start a process for each run"
        )


def opened(run: Any) -> None:
    """Until it is closed."""
    global _with_servers
    _with_servers = _with_servers or run.servers > 0
    _open[id(run.model)] = run
    if multiprocessing.parent_process() is not None and not getattr(opened, "hears", False):
        opened.hears = True  # type: ignore[attr-defined]
        multiprocessing.util.Finalize(None, _at_childs_exit, exitpriority=100)  # a forked one has no atexit


def dropped(run: Any) -> None:
    """Nobody has it any more (its __del__): it is left as at the end of the process."""
    global _forgotten
    try:
        run.world._mine()
    except StateError:  # of the process that this one was forked from
        return
    why = RuntimeError(f"rank {run.world.rank} has dropped its run within a step") if run.in_pass else None
    _forgotten = _end(run, why) or _forgotten


def _end(run: Any, error: BaseException | None) -> bool:
    """Ends one that is open. Has it been trained, and a finish() forgotten that it needed?"""
    rank, why, forgot = run.world.rank, error, False
    if error is None and run.needs_finish:
        why = RuntimeError(f"rank {rank} has ended without {run.finishes}()")
        if run.trained and run.world.size > 1:
            forgot = True
            sys.stderr.write(
                f"tutti: rank {rank} of {run.world.size} has trained and ends without {run.finishes}(): under "
                f"method '{run.method}' its model is its own, and not the one that all workers agree on; call "
                f"{run.finishes}() after the last step\n"
            )
    if why is not None:
        run.fail(why)
    else:
        run.close()
    return forgot


def _leave(error: BaseException | None) -> bool:
    """Ends those that are open. Was a finish() forgotten, by these or by others before?"""
    return any([_end(run, error) for run in list(_open.values())]) or _forgotten


@atexit.register
def _at_exit() -> None:
    """A process that ends without finish() says so to the others, where they may still need it."""
    if _leave(getattr(sys, "last_value", None)):
        _exit_code(1)


def _exit_code(code: int) -> None:
    """Of this process, whose interpreter ends: what calls exit() at its end goes on with the rest of it (glibc)."""
    libc = ctypes.CDLL(None)
    libc.__cxa_atexit(ctypes.cast(libc.exit, ctypes.c_void_p), ctypes.c_void_p(code), None)


def _at_childs_exit() -> None:
    """The same in a process of multiprocessing's, which has caught what ended its function."""
    error = sys.exc_info()[1]
    if isinstance(error, SystemExit):
        forgot = _leave(None) and not error.code
    else:
        forgot = _leave(error)
    if forgot:
        sys.exit(1)
