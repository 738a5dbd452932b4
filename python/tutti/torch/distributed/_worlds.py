"""The worlds of groups, and the thread of each that says how far this process is.

A group of the job's default group, where that one is on 'tutti', is a value in the world that the default group has
opened: it costs no socket and no thread of the library, and its ranks are the job's. Else the default group is another
backend's (`backend_override` of one axis of a mesh), and asking ranks outside of the group to join is not possible,
since they are not told of it. Then the group opens a world of its own, of its members alone.

The default group's world is the launcher's where that watches its processes (`tutti run`) or carries their messages
(mpirun). In all other cases the members meet over the group's store, so it is the same whoever has started them.

The thread answers other ranks that ask how many collectives of a group this one has called. So a call that takes too
long names those that have not come to it.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import re
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch.distributed as dist

from ... import _abi
from ..._library import library as _c
from ..._owner import tenants
from ...errors import Error, PeerError, StateError, check
from ...world import World
from .. import _place
from .._record import failed
from . import _record
from ._options import Options
from ._work import Queue

_PORT = b"torch.distributed: how far"
_ASKS, _ANSWERS, _ENDS, _RECALLS, _CALL, _RECALLED, _LOST, _UNLIKE = 1, 2, 3, 4, 5, 6, 7, 8
_WORDS = 184  # most bytes of a note: such a message travels at once on every transport
_RECALL_S = 0.3  # seconds, for the others to answer
_SLICE = 100_000_000  # nanoseconds between looks for the end of the world
_CLOSING_S = 2.0  # for the threads that are within a call of the world, until it stays open
_PAUSE_S = 0.02  # between looks for a loss, which the library does not report by itself
_LOOK = 500_000_000  # nanoseconds between looks for calls whose time is over
_ABSENT, _FAILED = -1, -2  # instead of a number of calls
_spanning: weakref.ref[Shared] | None = None  # the default group's


def _signed(context: int) -> int:
    return context - 2**64 if context >= 2**63 else context


class Shared:
    """A world that one or more groups have. ranks: of the job, by those of the world."""

    def __init__(self, world: World, ranks: list[int], options: Options, default: bool):
        self.world, self.ranks, self.transport = world, ranks, options.transport
        self.record = _record.open_record(world, options, ranks, default)
        self._ended = True  # no group has failed
        self._groups: dict[int, Queue] = {}
        self._stuck: list[Queue] = []  # destroyed, and perhaps still within a call of the library
        self._times: dict[str, int] = {}  # how often a group of that name was made
        self._heard: dict[tuple[int, int], int] = {}
        self._lost: dict[int, dict[int, str]] = {}  # by reporter: the lost ranks, and why
        self._calls: dict[tuple[int, int], dict[int, str]] = {}  # of an answer that is coming
        self._recalled: dict[tuple[int, int], dict[int, str]] = {}
        self._differs: dict[tuple[int, int], dict[int, str]] = {}  # calls that have failed there, since they differ
        self._gone: set[int] = set()  # take no note any more
        self._spread: dict[int, threading.Thread] = {}  # by lost rank: the thread that reports it
        self._inside = 0  # threads that use the world: _close() waits for them
        self._changed = threading.Condition()
        self._over = threading.Event()
        self._port = _c.tutti_port_of(_PORT, 0, 0)
        self._thread: threading.Thread | None = None
        if world.size > 1:
            self._thread = threading.Thread(target=self._listen, name="tutti how far", daemon=True)
            self._thread.start()
        tenants.add(self)

    # ---- groups ----

    def context(self, name: str) -> int:
        """A number for the messages of a group, the same on all its members."""
        self._times[name] = self._times.get(name, -1) + 1
        return int(_c.tutti_port_of(b"torch.distributed: " + name.encode(), self._times[name], 0))

    def join(self, queue: Queue) -> None:
        if not self._groups:
            queue.measures_clocks()  # the group that has opened it, with all ranks
        self._groups[_signed(queue.members.context)] = queue

    def leave(self, queue: Queue) -> None:
        """The last one closes the world."""
        if queue.close():
            queue.members.close()
        else:
            self._stuck.append(queue)
        self._ended = self._ended and queue.error is None
        self._groups.pop(_signed(queue.members.context), None)
        if not self._groups:
            self._close()

    def _close(self) -> None:
        until = time.monotonic() + _CLOSING_S
        with self._changed:
            self._over.set()  # from now on no thread begins to use it
        thread, self._thread = self._thread, None
        if thread is not None and self.world.is_mine():
            with contextlib.suppress(Error):
                self._send([self.world.rank], _ENDS, 0, 0, b"", until)
            thread.join(until - time.monotonic())
        with self._changed:
            within = not self._changed.wait_for(lambda: self._inside == 0, max(until - time.monotonic(), 0))
        if any(queue.is_stuck() for queue in self._stuck) or within or (thread is not None and thread.is_alive()):
            self.world.abandon()
        if self.record is not None and self.world.is_mine():
            if any(queue.is_stuck() for queue in self._stuck):
                self.record.abandon()
            else:
                self.record.close(self._ended and not self._stuck and not failed())
        tenants.discard(self)
        self.world.close()

    def detach(self) -> None:
        """The interpreter ends (_owner.py)."""
        if not self.world.is_mine():
            return
        for queue in list(self._groups.values()):
            self.leave(queue)

    def is_open(self) -> bool:
        return not self._over.is_set() and self.world.is_mine()

    # ---- who is late ----

    @contextlib.contextmanager
    def _using(self) -> Iterator[bool]:
        """Within it the world stays open. False: it does not, and is not to be used."""
        with self._changed:
            there = self.is_open()
            self._inside += there
        try:
            yield there
        finally:
            with self._changed:
                self._inside -= there
                self._changed.notify_all()

    def _send(self, ranks: Iterable[int], kind: int, context: int, number: int, words: bytes, until: float) -> set[int]:
        """Sends a note to all of them at once, and returns those that are gone. It is small, so none waits for a thread
        of the other rank, which may be sending itself. until: for ranks that stand still and have no space for it."""
        words, gone, posted = words[:_WORDS], set(), {}
        note = _abi.tutti_header(kind=kind, a=context, b=number)
        memory = ctypes.create_string_buffer(words, max(len(words), 1))
        payload = self.world._host(ctypes.addressof(memory), len(words), _abi.TUTTI_U8)
        try:
            for rank in ranks:
                request = _abi.tutti_request()
                try:
                    check(_c.tutti_post_send, self.world._at, request, rank, self._port, note, payload)
                    posted[rank] = request
                except PeerError:
                    gone.add(rank)
            for rank in list(posted):
                try:
                    if self._wait(posted[rank], until):
                        del posted[rank]
                except PeerError:
                    gone.add(rank)
        finally:
            for request in posted.values():
                _c.tutti_cancel(self.world._at, request)
        return gone

    def _wait(self, request: _abi.tutti_request, until: float) -> bool:
        """Waits for a note that is posted. False: not until then, or until the world is closed."""
        one = (ctypes.POINTER(_abi.tutti_request) * 1)(ctypes.pointer(request))
        while True:
            try:
                check(_c.tutti_wait_some, self.world._at, one, 1, 1, time.monotonic_ns() + _SLICE, None)
                return True
            except TimeoutError:
                if self._over.is_set() or time.monotonic() > until:
                    return False

    def _tell(self, ranks: Iterable[int], kind: int, context: int, number: int, words: bytes = b"",
              until: float = math.inf) -> None:
        with self._using() as there, contextlib.suppress(Error):
            gone = self._send(ranks, kind, context, number, words, until) if there else set()
            with self._changed:
                self._gone |= gone
                self._changed.notify_all()

    def _listen(self) -> None:
        note, memory = _abi.tutti_header(), ctypes.create_string_buffer(_WORDS)
        room = self.world._host(ctypes.addressof(memory), _WORDS, _abi.TUTTI_U8)
        while not self._over.is_set():
            try:
                until = time.monotonic_ns() + _LOOK
                if check(_c.tutti_recv, self.world._at, -1, self._port, note, room, until):
                    self._hear(getattr(note, "from"), note.kind, note.a, note.b, memory.raw[:note.bytes])
            except TimeoutError:
                pass
            except PeerError:  # all others are gone
                self._over.wait(0.2)
            except Error:
                return
            self._look()

    def _hear(self, rank: int, kind: int, context: int, number: int, words: bytes) -> None:
        until = time.monotonic() + _RECALL_S  # to answer: a rank that stands still may not take it, and others ask
        if kind == _ASKS:
            queue = self._groups.get(context)
            number = _ABSENT if queue is None else queue.issued if queue.error is None else _FAILED
            self._tell([rank], _ANSWERS, context, number, until=until)
        elif kind == _ANSWERS:
            with self._changed:
                self._heard[context, rank] = number
                self._changed.notify_all()
        elif kind == _RECALLS:
            queue = self._groups.get(context)
            for n, text in [] if queue is None else list(queue.members.made):
                self._tell([rank], _CALL, context, n, text.encode(), until)
            self._tell([rank], _RECALLED, context, 0, until=until)
        elif kind == _CALL:
            self._calls.setdefault((context, rank), {})[number] = words.decode(errors="replace")
        elif kind == _RECALLED:
            with self._changed:
                self._recalled[context, rank] = self._calls.pop((context, rank), {})
                self._changed.notify_all()
        elif kind == _UNLIKE:
            with self._changed:
                self._differs.setdefault((context, rank), {})[number] = words.decode(errors="replace")
        elif kind == _LOST:
            with self._changed:
                self._lost.setdefault(rank, {})[number] = words.decode(errors="replace")

    def _look(self) -> None:
        """Fails calls that have taken too long, and that no thread waits for but a future's."""
        now = time.monotonic()
        for queue in list(self._groups.values()):
            work = queue.half_over(now)
            if work is not None and (path := self.world.flight()):
                sys.stderr.write(f"tutti: {work} has used half of its {work._limit:g} s; the last events of rank "
                                 f"{self.ranks[self.world.rank]} are in {path}\n")
                sys.stderr.flush()
            work = queue.overdue(now)
            if work is not None:
                threading.Thread(target=work._late, args=(work._limit,), name="tutti late", daemon=True).start()

    def missing(self, queue: Queue, number: int, patience: float) -> str:
        """Which ranks have not come to that collective of the group, as a sentence."""
        with self._using() as there:
            return self._missing(queue, number, patience) if there else "the group has been destroyed meanwhile"

    def _missing(self, queue: Queue, number: int, patience: float) -> str:
        heard = self._asked(self._others(queue), (_ASKS, _signed(queue.members.context), number), self._heard, patience)
        late = [(r, self._of_one(r, of_r, number, patience)) for r, of_r in heard.items()]
        found = [f"rank {self.ranks[r]} {text}" for r, text in late if text]
        told = "; ".join(found[:8]) + ("; and others" if len(found) > 8 else "") or "all ranks have called it"
        return told + self._unlike(queue, [r for r, of_r in heard.items() if of_r is not None], patience)

    def _asked(self, others: list[int], note: tuple[int, int, int], answers: dict[tuple[int, int], Any],
               patience: float) -> dict[int, Any]:
        """By ranks what they answer; None: nothing within that time, or it is gone."""
        what, context, number = note
        with self._changed:
            for rank in others:
                answers.pop((context, rank), None)
        end = time.monotonic() + patience
        threading.Thread(target=self._tell, args=(others, what, context, number, b"", end), name="tutti asks",
                         daemon=True).start()  # a rank that stands still may not take it
        with self._changed:
            while (time.monotonic() < end and not self._over.is_set()
                   and not all((context, r) in answers or self._is_gone(r) for r in others)):
                self._changed.wait(_PAUSE_S)
            return {r: answers.get((context, r)) for r in others}

    def _is_gone(self, rank: int) -> bool:
        return rank in self._gone or self.world.lost(rank) is not None

    def _unlike(self, queue: Queue, others: list[int], patience: float) -> str:
        """The first calls of the group that differ on its members, as far back as they are remembered."""
        context, mine, found = _signed(queue.members.context), dict(queue.members.made), []
        told = self._asked(others, (_RECALLS, context, 0), self._recalled, patience)
        for rank, answer in told.items():
            theirs = answer or self._differs.get((context, rank), {})
            first = next((n for n, text in theirs.items() if mine.get(n, text) != text), None)
            if first is not None:
                found.append((first, f"{theirs[first]} on rank {self.ranks[rank]}"))
        if not found:
            return ""
        first = min(n for n, _ in found)
        # One that comes to it later asks in vain if this rank has left by then.
        self._tell(others, _UNLIKE, context, first, mine[first].encode(), time.monotonic() + _RECALL_S)
        return (f"; they differ in what is {mine[first]} on rank {self.ranks[self.world.rank]}, and "
                f"{', '.join([text for n, text in found if n == first][:8])}")

    def _of_one(self, rank: int, heard: int | None, number: int, patience: float) -> str:
        lost = self.world.lost(rank)
        if lost is not None:
            return f"is lost: {lost}"
        if heard is None and rank in self._gone:
            return "has left"
        if heard is None:
            return f"does not answer within {patience:.3g} s"
        if heard == _ABSENT:
            return "has not made this group yet, or has destroyed it"
        if heard == _FAILED:
            return "has failed in an earlier call of this group"
        return f"has called {heard} collectives of this group and not this one" if heard < number else ""

    # ---- ranks ----

    def explain(self, error: BaseException, queue: Queue, collective: bool = True) -> BaseException:
        """The library's exception with the ranks of the job, where those of the world are others.

        A peer that has left, or given up, has had a reason: that calls of the queue's group do not fit together, which
        this then says, or the loss of another rank, which then is the one that is named. collective: it is of one.
        """
        told = self._with_ranks(error)
        if not isinstance(error, (PeerError, StateError)) or not self.is_open():
            return told
        with self._using() as there:  # else a call that was left behind has ended now
            return self._explained(error, told, queue, collective) if there else told

    def _explained(self, error: PeerError | StateError, told: BaseException, queue: Queue,
                   collective: bool) -> BaseException:
        cause = self._cause(error, queue)
        if cause is None and isinstance(error, PeerError):
            # Its report of a cause comes before its answer. If it has left, its report comes before
            # this rank's answer to itself.
            self._asked([error.rank, self.world.rank], (_ASKS, _signed(queue.members.context), 0), self._heard,
                        _RECALL_S)
            cause = self._cause(error, queue)
        if cause is None:
            unlike = self._unlike(queue, self._others(queue), _RECALL_S) if collective else ""
            return StateError(f"{told}{unlike}") if unlike else told
        self._tell_loss(*cause)
        if isinstance(error, PeerError) and error.rank != cause[0]:
            return self._with_ranks(PeerError(f"{error}; the cause: {cause[1]}", cause[0]))
        return told

    def _others(self, queue: Queue) -> list[int]:
        return [r for r in queue.members.ranks if r != self.world.rank]

    def _tell_loss(self, rank: int, why: str) -> None:
        """Notifies the others, whose groups with this rank it leaves because of that loss. Once."""
        with self._changed:
            thread = self._spread.get(rank)
            if thread is None:
                others = [r for r in range(self.world.size) if r not in (self.world.rank, rank)]
                thread = threading.Thread(target=self._tell, args=(others, _LOST, 0, rank, why.encode()),
                                          name="tutti tells", daemon=True)
                self._spread[rank] = thread
                thread.start()  # a rank that stands still may not take it
        thread.join(_RECALL_S)

    def _cause(self, error: BaseException, queue: Queue) -> tuple[int, str] | None:
        """A lost rank and the reason: a member, or one for which the peer that the error names has left. Others' losses
        are no cause of this group's errors."""
        if not isinstance(error, PeerError):
            return None
        for rank in (error.rank, *queue.members.ranks):
            if (why := self.world.lost(rank)) is not None:
                return rank, why
        lost = self._lost.get(error.rank, {})
        return next(((rank, lost[rank]) for rank in (*queue.members.ranks, *list(lost)) if rank in lost), None)

    def _with_ranks(self, error: BaseException) -> BaseException:
        if self.ranks == list(range(len(self.ranks))) or not isinstance(error, Error):
            return error

        def of_job(found: re.Match[str]) -> str:
            rank = int(found[2])
            return f"{found[1]} {self.ranks[rank]}" if rank < len(self.ranks) else str(found[0])

        text = re.sub(r"\b([Rr]ank|[Ww]orker) (\d+)\b", of_job, str(error))
        if not isinstance(error, PeerError):
            return type(error)(text)
        return PeerError(text, self.ranks[error.rank] if 0 <= error.rank < len(self.ranks) else error.rank)


def of_group(opts: Any, options: Options) -> tuple[Shared, list[int]]:
    """The world for a group of torch's, and the group's members as ranks of that world."""
    global _spanning
    default = not opts.global_ranks_in_group
    ranks = list(opts.global_ranks_in_group) or list(range(opts.group_size))
    shared = _spanning() if _spanning is not None else None
    if not default and shared is not None and shared.is_open() and options.transport in ("", shared.transport):
        if options.trace is not None:
            raise ValueError(
                f"trace={os.fspath(options.trace)!r} of a group within the default group's world, whose record has all "
                "groups: give trace= to init_process_group, or set TUTTI_TRACE_DIR"
            )
        return shared, ranks
    transport = options.transport
    if default and _place.launched(opts.group_rank, opts.group_size):
        world = World(transport)
    else:
        store = dist.PrefixStore("tutti", opts.store)
        world = _place.open_over(store, opts.group_rank, opts.group_size, transport)
    if (world.rank, world.size) != (opts.group_rank, opts.group_size):
        world.close()
        raise StateError(
            f"torch.distributed has this as rank {opts.group_rank} of {opts.group_size}, and Tutti's launcher as rank "
            f"{world.rank} of {world.size}; start the script by one launcher"
        )
    try:
        shared = Shared(world, ranks, options, default)
    except BaseException:
        world.close()
        raise
    if default:
        _spanning = weakref.ref(shared)
    return shared, list(range(opts.group_size))
