"""The open runs of this process, and the end of runs for which neither finish() nor close() was called: when the
process ends, or when their model and optimizer are no longer referenced.

If workers have models of their own and a script forgets finish(), each rank is left with its own model, and none with
the one that they agree on. Such a rank notifies its peers, reports it on stderr, and its exit code is not 0: the
script's own, or 1.
"""

from __future__ import annotations

import atexit
import multiprocessing
import multiprocessing.util
import sys
import weakref
from collections.abc import Callable
from typing import Any

from torch import nn

from .._library import fail_at_exit
from ..errors import StateError

_open: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # Run, Pipeline; by id() of their model
_with_servers = False  # there has been a run in which ranks only serve
_forgotten = False  # a run was dropped without the finish() that it needed
_registered = False  # _at_childs_exit() is called when this process of multiprocessing ends


def run_of(model: nn.Module) -> Any | None:
    """Returns the open run that trains this model; None: there is none."""
    return _open.get(id(model))


def closed(run: Any) -> None:
    """Call when a run has been closed: it is not open any more."""
    _open.pop(id(run.model), None)


def weakly(method: Callable[..., None], *first: Any) -> Callable[..., None]:
    """Returns a function that calls method(*first, ...) as long as the method's object is referenced elsewhere; for
    hooks of parameters and for threads. `first` must not refer to a parameter, since the garbage collector does not see
    the references of such hooks."""
    there = weakref.WeakMethod(method)

    def call(*arguments: Any) -> None:
        method = there()
        if method is not None:
            method(*first, *arguments)

    return call


def check_second(servers: int) -> None:
    """Refuses a second run in a process if one of the two has ranks that only serve: these join one run only."""
    if _with_servers or (servers and _open):
        raise ValueError(
            "this process is or was in another run, and one of the two has prepare(servers=...): ranks that only serve "
            "are in one run and never come to another. Leave servers= out of both, or start a process for each run"
        )


def opened(run: Any) -> None:
    """Registers an open run, until it is closed."""
    global _with_servers, _registered
    _with_servers = _with_servers or run.servers > 0
    _open[id(run.model)] = run
    if multiprocessing.parent_process() is not None and not _registered:
        _registered = True
        # a forked process of multiprocessing ends by os._exit(), which calls no function of atexit
        multiprocessing.util.Finalize(None, _at_childs_exit, exitpriority=100)


def dropped(run: Any) -> None:
    """Called by __del__ of a run that is no longer referenced: ends it as at the end of the process."""
    global _forgotten
    try:
        run.world._mine()
    except StateError:  # it is closed, or belongs to the process that this one was forked from
        return
    why = RuntimeError(f"rank {run.world.rank} has dropped its run within a step") if run.in_pass else None
    _forgotten = _end(run, why) or _forgotten


def _end(run: Any, error: BaseException | None) -> bool:
    """Ends an open run: closes it, or tells its peers why this rank fails: `error`, or that finish() is missing.
    Returns whether it was trained and the finish() that it needed was not called."""
    world = getattr(run, "whole", run.world)  # of all ranks: with local_group= run.world has one rank of each host
    rank, why, forgot = world.rank, error, False
    if error is None and run.needs_finish:
        why = RuntimeError(f"rank {rank} has ended without {run.finishes}()")
        elastic = getattr(run, "elastic", None) is not None
        if run.trained and (elastic or world.size > 1):
            forgot = True
            so = (
                "so the run does not know that it has ended, and takes this worker for a lost one"
                if elastic
                else f"under method '{run.method}' its model is its own, and not the one that all workers agree on"
            )
            sys.stderr.write(
                f"tutti: rank {rank} of {world.size} has trained and ends without {run.finishes}(): {so}; call "
                f"{run.finishes}() after the last step\n"
            )
    if why is not None:
        run.fail(why)
    else:
        run.close()
    return forgot


def _end_all(error: BaseException | None) -> bool:
    """Ends all open runs of this process, but not those of a process that it was forked from. Returns whether a
    finish() was forgotten, for these or for runs that were dropped."""
    mine = [run for run in list(_open.values()) if not run.world.is_foreign()]
    forgot = [_end(run, error) for run in mine]  # a list: any() would leave out those after the first
    return any(forgot) or _forgotten


@atexit.register
def at_exit() -> None:
    """Ends the open runs of a process that ends without finish(), and notifies the other workers."""
    interactive = hasattr(sys, "ps1")  # an exception there has not ended the session
    if _end_all(None if interactive else getattr(sys, "last_value", None)):
        fail_at_exit()  # the code is not known here


def _at_childs_exit() -> None:
    """at_exit() for a process of multiprocessing, which calls this while it handles the exception, if any, that ended
    its function. An exit code that the script has chosen stays."""
    error = sys.exc_info()[1]
    if isinstance(error, SystemExit):
        forgot = _end_all(None) and not error.code
    else:
        forgot = _end_all(error)
    if forgot:
        sys.exit(1)
