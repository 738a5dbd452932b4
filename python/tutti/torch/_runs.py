"""The runs that are open in this process, and what becomes of them when it ends without having ended them.

Where workers have models of their own a script that forgets finish() leaves one on each rank, none of which is the
model that they agree on. Such a rank tells its peers, says so on stderr, and its exit code is not 0.
"""

from __future__ import annotations

import atexit
import ctypes
import multiprocessing
import multiprocessing.util
import sys
from typing import Any

from torch import nn

runs: dict[nn.Module, Any] = {}
"""Those that are open, by the model that they train: Run, Pipeline."""


def opened(run: Any) -> None:
    """Until it is taken out of `runs`."""
    runs[run.model] = run
    if multiprocessing.parent_process() is not None and not getattr(opened, "hears", False):
        opened.hears = True  # type: ignore[attr-defined]
        multiprocessing.util.Finalize(None, _at_childs_exit, exitpriority=100)  # a forked one has no atexit


def _leave(error: BaseException | None) -> bool:
    """Ends those that are open. Has one been trained, and a finish() forgotten that it needed?"""
    forgot = False
    for run in list(runs.values()):
        rank, why = run.world.rank, error
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
