"""Ownership of what the library has opened: when it is closed, in which process, and in which order.

An open object is closed when it is no longer referenced, at the latest when the interpreter ends: engines, then their
worlds. In a forked child these objects cannot be used: every call raises StateError, and nothing of the library is
closed. Only the child's copies of the run's connections are closed at once, so that the other workers notice when the
parent dies.
"""

import atexit
import contextlib
import ctypes
import os
import stat
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .errors import StateError

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._members import Members
    from .world import World

_held: "weakref.WeakSet[Held]" = weakref.WeakSet()
worlds: "weakref.WeakSet[World]" = weakref.WeakSet()
members: "weakref.WeakSet[Members]" = weakref.WeakSet()
tenants: "weakref.WeakSet[Any]" = weakref.WeakSet()  # their detach() is called before engines end with the interpreter


class Held:
    """A pointer to an object of the library, and the function that closes it.

    The object is closed when the Held is no longer referenced, in the process that opened it only. An object that
    depends on another (an engine on its world, `below`) is closed first, whatever the order of garbage collection.

    Closing an engine waits for its exchanges in flight, and so for the peers. After a failure report this rank must
    not wait for them: then the engine stays open until the process ends.
    """

    def __init__(self, end: Callable[[ctypes.c_void_p], None], below: "Held | None" = None):
        self.at, self.below, self.pid = ctypes.c_void_p(), below, os.getpid()
        self._end, self._above, self._over = end, 0, False
        self.under_way = self.failed = False
        if below is not None:
            below._above += 1
        _held.add(self)

    def end(self) -> None:
        self._over = True
        if self._above > 0:
            return  # the last object that depends on this one calls end() again
        if self.under_way and self.below is not None and self.below.failed:
            return
        at, self.at = self.at, ctypes.c_void_p()
        if at and self.pid == os.getpid():
            self._end(at)
        below, self.below = self.below, None
        if below is not None:
            below._above -= 1
            if below._over:
                below.end()

    def __del__(self) -> None:
        self.end()


class Owner:
    """Base of World and Engine: an object with a Held until it is closed."""

    _hold: Held | None = None
    _what = "engine"

    @property
    def _at(self) -> ctypes.c_void_p:
        return self._mine().at

    def _mine(self) -> Held:
        """Raises StateError if it is closed or belongs to another process."""
        hold = self._hold
        if hold is None or not hold.at:
            raise StateError(f"the {self._what} is closed")
        if hold.pid != os.getpid():
            raise StateError(
                f"the {self._what} belongs to process {hold.pid}, from which this one was forked; only that one is a "
                "worker of the run"
            )
        return hold

    def is_mine(self) -> bool:
        """Returns whether it is open and belongs to this process."""
        hold = self._hold
        return hold is not None and bool(hold.at) and hold.pid == os.getpid()

    def is_foreign(self) -> bool:
        """Returns whether it belongs to a process that this one was forked from."""
        hold = self._hold
        return hold is not None and hold.pid != os.getpid()

    @property
    def closed(self) -> bool:
        return self._hold is None or not self._hold.at

    def close(self) -> None:
        """Releases it. It is closed at once, or when the last view of its memory is no longer referenced."""
        self._hold = None

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def sockets() -> dict[int, tuple[int, int]]:
    """Returns the open sockets of this process: number -> (device, inode), which a later socket does not share."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            about = os.fstat(int(name))
            if stat.S_ISSOCK(about.st_mode):
                found[int(name)] = (about.st_dev, about.st_ino)
    return found


def _forks() -> None:
    """Before a fork: a member's connections come and go, so they are listed now."""
    for one in list(members):
        one.list_connections()


def _forked() -> None:
    """In a forked child: closes its copies of the run's connections. Else a peer would not notice a dead parent."""
    ones: list[World | Members] = [*worlds, *members]
    for one in ones:
        for number, mark in one._connections.items():
            with contextlib.suppress(OSError):
                about = os.fstat(number)
                if (about.st_dev, about.st_ino) == mark:
                    os.close(number)
        one._connections = {}


def _leave() -> None:
    """At the end of the interpreter: closes engines, then worlds. Reports an exception that ended it to the peers.

    Before that `tenants` copy their tensors out of the engines, for code that reads them even later.
    """
    error = getattr(sys, "last_value", None)
    for world in list(worlds):
        if error is not None and not hasattr(sys, "ps1") and not world.closed:
            with contextlib.suppress(StateError):
                world.failure_report(error)
    for tenant in list(tenants):
        tenant.detach()
    for hold in sorted(_held, key=lambda h: h.below is None):
        hold.end()


os.register_at_fork(before=_forks, after_in_child=_forked)
atexit.register(_leave)
