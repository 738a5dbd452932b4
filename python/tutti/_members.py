"""Members: the part of a process in a run whose workers come and go (tutti_elastic, comm.h)."""

import ctypes
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from . import _abi
from ._library import library as _c
from ._owner import Held, Owner, members, sockets
from ._signals import apart
from .engine import Engine
from .errors import PeerError, StateError, check
from .world import World


class Epoch(NamedTuple):
    """An epoch of the run: fixed members, in a world of theirs, from a step on."""

    world: World
    number: int
    step: int
    state: bytes  # of that step; empty: no step is done. The engine's is loaded by load()


class Members(Owner):
    """This process among the others. most: bytes that a state may have. facts: what all processes of the run have in
    common; one that comes with others is refused by next()."""

    _what = "run"

    def __init__(self, most: int, facts: dict[str, str]):
        hold = Held(lambda at: _c.tutti_elastic_close(at, False))
        lines = "".join(f"{name}: {value}".replace("\n", " ") + "\n" for name, value in facts.items())
        apart(_c.tutti_elastic_open, hold.at, most, lines.encode())
        self._hold = hold
        self.last: Epoch | None = None  # the run has ended, and this process is to save this state, in its own world
        self._connections: dict[int, tuple[int, int]] = {}  # as a World's, at the last fork
        self._changes = threading.Lock()  # held where connections may be closed all at once
        self._within = False  # a thread is within a call; after a signal also without one that waits for it
        members.add(self)

    def _alone(self) -> Held:
        if self._within:
            raise StateError("a signal has interrupted a call of this run, so this process can only end")
        return self._mine()

    def _apart(self, call: Callable[..., int], *arguments: Any) -> None:
        """As apart(). After an exception of a signal's handler a thread is within the call: there is no other one
        meanwhile, and the run stays open until the process ends."""
        hold = self._alone()

        def alone(*given: Any) -> int:
            try:
                return call(*given)
            finally:
                self._within = False

        self._within = True
        try:
            apart(alone, hold.at, *arguments)
        except BaseException:
            if self._within:
                hold._above += 1
            raise

    def next(self) -> Epoch | None:
        """Waits for the next epoch with this process as a member. None: it has left the run. PeerError: too few are
        left. After these two there may be a `last`."""
        self._alone()
        found, before = _abi.tutti_elastic_epoch(), sockets()
        self._changes.acquire()
        try:
            self._apart(_c.tutti_elastic_next, found)
        except PeerError:
            self._changes.release()
            self._take(found, before)
            raise
        except BaseException:
            if not self._within:
                self._changes.release()
            raise
        self._changes.release()
        return self._take(found, before)

    def _take(self, found: _abi.tutti_elastic_epoch, before: dict[int, tuple[int, int]]) -> Epoch | None:
        if not found.world:
            return None
        world = World.of(ctypes.c_void_p(found.world), self._mine(), before)
        state = ctypes.string_at(found.state, found.bytes) if found.state else b""
        epoch = Epoch(world, found.number, found.step, state)
        if found.number == 0:
            self.last = epoch
            return None
        return epoch

    def commit(self, step: int) -> bool:
        return bool(_c.tutti_elastic_commit(self._at, step))

    def acts(self) -> bool:
        """False: the epoch ends, so that to compute a step of it would be in vain."""
        return bool(_c.tutti_elastic_acts(self._at))

    def renew(self) -> None:
        """Asks for the next epoch, also with the same members."""
        _c.tutti_elastic_renew(self._at)

    def load(self, engine: Engine) -> None:
        """Gives an engine its state of the step at which the epoch begins. Before the first step."""
        self._alone()
        check(_c.tutti_elastic_engine_load, self._at, engine._at)

    def over(self, step: int, state: bytes | None, engine: Engine | None = None) -> None:
        """The world of the last epoch is not used any more. state: that of a whole step that is left; None: the one
        with which the epoch began. engine: its state is left, too. It and the world are closed after this."""
        if engine is None:
            self._apart(_c.tutti_elastic_over, step, state, len(state or b""))
        else:  # it waits for no other; a signal's handler runs after it
            self._alone()
            check(_c.tutti_elastic_engine_over, self._at, step, engine._at, state, len(state or b""))

    def list_connections(self) -> None:
        if not self.is_mine() or not self._changes.acquire(blocking=False):
            return  # then a child keeps them, and others find its parent's end by the silence
        try:
            found = (ctypes.c_int * 4096)()
            mine = set(found[: _c.tutti_elastic_sockets(self._at, found, len(found))])
        finally:
            self._changes.release()
        self._connections = {number: mark for number, mark in sockets().items() if number in mine}

    def leave(self) -> None:
        """This process is to leave between two steps. Does not wait."""
        if self.is_mine():
            _c.tutti_elastic_leave(self._at)

    def fail(self) -> None:
        """This process ends by an error: leaves the run in order, in 2 s, or in 20 s if others fetch its state. Its
        last world may be open."""
        if self.is_mine() and not self._within:
            _c.tutti_elastic_fail(self._at)

    def end(self) -> None:
        """The run has ended here. After its worlds are closed."""
        hold = self._alone()
        at, hold.at = hold.at, ctypes.c_void_p()
        _c.tutti_elastic_close(at, True)
        self.close()
