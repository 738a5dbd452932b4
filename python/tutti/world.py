"""World: the C library's API of a run (comm.h), with a method for each function. Calls are as in engine.py."""

import ctypes
import os
import sys
from collections.abc import Sequence

from . import _abi
from ._library import library as _c
from ._owner import Held, Owner, sockets, worlds
from ._signals import apart
from .errors import Error, PeerError, check


def _by_mpi(transport: str) -> bool:
    """Returns whether the transport is MPI, which has to be opened and closed by the same thread."""
    return transport.startswith("mpi") if transport else any(k.startswith(("OMPI_", "PMI", "MV2_")) for k in os.environ)


class World(Owner):
    """The run, as this process has it: its rank and the number of ranks, from the launcher's environment (comm.h).

    transport: "shm", "tcp" or "mpi", with options; "": that of `tutti run --transport`, or the launcher's. A process
    may open several worlds, all ranks in the same order. The shared memory that `tutti run` has made is for the first
    world; later ones use tcp if transport is "".
    """

    _what = "world"
    _memory_taken = False
    of_epoch = False  # of a run whose workers come and go

    def __init__(self, transport: str = ""):
        before = sockets()
        told = os.environ.get("TUTTI_TRANSPORT", "")
        if not transport and World._memory_taken:
            transport = told if told.startswith("tcp") else "tcp"
        hold = Held(_c.tutti_world_close)
        (check if _by_mpi(transport or told) else apart)(_c.tutti_world_open, hold.at, os.fsencode(transport))
        World._memory_taken = World._memory_taken or "TUTTI_SHM_FD" in os.environ
        self._take(hold, before)

    @classmethod
    def of(cls, at: ctypes.c_void_p, members: Held, before: dict[int, tuple[int, int]]) -> "World":
        """The world of an epoch (_members.py), which is open. before: sockets of this process before it was opened."""
        hold = Held(_c.tutti_world_close, members)
        hold.at = at
        world = cls.__new__(cls)
        world.of_epoch = True
        world._take(hold, before)
        return world

    def _take(self, hold: Held, before: dict[int, tuple[int, int]]) -> None:
        self._hold, self._folder = hold, ""
        self._connections = {k: mark for k, mark in sockets().items() if before.get(k) != mark}
        worlds.add(self)
        self.rank: int = _c.tutti_world_rank(hold.at)
        self.size: int = _c.tutti_world_size(hold.at)
        self.transport: str = _c.tutti_world_transport(hold.at).decode()
        self._group = _c.tutti_group_of(hold.at, None, self.size, _c.tutti_port_of(b"python", 0, 0))
        self._group.uncounted = True

    def _host(self, address: int, count: int, dtype: int) -> _abi.tutti_buffer:
        return _abi.tutti_buffer(_c.tutti_world_device(self._at), address, count, dtype)

    def broadcast(self, address: int, size: int, root: int = 0) -> None:
        """Copies `size` bytes from that address of the root to that of all other ranks. Collective."""
        check(_c.tutti_broadcast, self._group, root, self._host(address, size, _abi.TUTTI_U8))

    def reduce(self, values: Sequence[float], operation: str = "sum") -> list[float]:
        """Reduces a few numbers over the ranks, by "sum", "mean", "max" or "min". Collective; all get the result."""
        names = {"sum": _abi.TUTTI_SUM, "mean": _abi.TUTTI_MEAN, "max": _abi.TUTTI_MAX, "min": _abi.TUTTI_MIN}
        self._mine()
        x = (ctypes.c_double * len(values))(*values)
        check(_c.tutti_reduce_double, self._group, names[operation], x, len(values))
        return list(x)

    def barrier(self) -> None:
        self._mine()
        check(_c.tutti_barrier, self._group)

    def survives(self) -> bool:
        """Returns whether the transport reports each loss of a rank and continues after it."""
        return bool(_c.tutti_world_survives(self._at))

    def lost(self, rank: int) -> str | None:
        """Returns why a rank was lost; None: it is not lost."""
        why = ctypes.create_string_buffer(256)
        return why.value.decode(errors="replace") if _c.tutti_world_lost(self._at, rank, why, len(why)) else None

    def host(self, rank: int) -> int:
        """Returns the number of a rank's host. Ranks with equal numbers share a host."""
        return int(_c.tutti_world_host(self._at, rank))

    def find_checkpoint(self, path: str | os.PathLike[str]) -> str:
        """Returns `path` if it is a checkpoint, else the newest valid one in that directory (tutti.h). Local."""
        found = ctypes.create_string_buffer(4096)
        check(_c.tutti_checkpoint_find, _c.tutti_world_runtime(self._at), os.fsencode(path), found, len(found), None, 0)
        return os.fsdecode(found.value)

    def sent(self, to: int = -1) -> tuple[int, int]:
        """Returns the payload bytes and messages that this rank has sent to rank `to`; -1: to all others."""
        size, messages = ctypes.c_uint64(), ctypes.c_uint64()
        _c.tutti_world_sent(self._at, to, size, messages)
        return size.value, messages.value

    def is_free(self) -> bool:
        """Returns whether an engine may be opened on it: it has none, and has only had refused ones (tutti.h)."""
        free = bool(_c.tutti_world_take(self._at))
        if free:
            _c.tutti_world_give_back(self._at)
        return free

    def abandon(self) -> None:
        """It stays open until the process ends: a thread is within a call of it whose end is up to the peers.

        Does nothing where it is closed, or in a process that was forked from the worker and so never closes it.
        """
        if self.is_mine():
            self._mine()._above += 1

    def folder(self, path: str) -> None:
        """Names the run's directory, by which `tutti why DIR` finds this rank."""
        self._folder = path
        _c.tutti_world_folder(self._at, os.fsencode(path))

    def flight(self) -> str:
        """Writes this rank's last events next to the run's record, or to TUTTI_TRACE_DIR. Returns the file's path; "":
        neither is given, or it cannot be written."""
        path = self._folder or os.environ.get("TUTTI_TRACE_DIR", "")
        if not path:
            return ""
        try:
            os.makedirs(path, exist_ok=True)
            check(_c.tutti_world_flight, self._at, os.fsencode(path))
        except (Error, OSError):
            return ""  # the error that ends the run is what counts
        return os.path.join(path, f"flight-{self.rank}.json")

    def failure_report(self, error: BaseException) -> None:
        """Call on failure, before close(): reports why this rank ends to its launcher and its peers."""
        words = _abi.tutti_error(status=_abi.TUTTI_ERR_STATE, rank=self.rank)
        text = f"{type(error).__name__}: {error}" if not isinstance(error, Error) else str(error)
        if isinstance(error, Error) and (lost := getattr(error, "rank", None)) is not None:
            words.status, words.rank = _abi.TUTTI_ERR_PEER, lost  # it fails because of that rank
        words.text = text.splitlines()[0].encode()[:479] if text.strip() else type(error).__name__.encode()
        _c.tutti_world_failure_report(self._at, words)
        if isinstance(error, (PeerError, TimeoutError)) and (path := self.flight()):
            sys.stderr.write(f"tutti: the last events of rank {self.rank} are in {path}\n")
            sys.stderr.flush()
        self._mine().failed = True
