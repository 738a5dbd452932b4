"""This process's place in the run: rank, size, and where the ranks meet.

Where torch.distributed is initialised, rank and size are those of its process group. So a script trains as one run
however it was started: by torch.multiprocessing.spawn, by a launcher of Lightning's or Accelerate's, from a notebook.
Without a process group they come from a launcher's variables (launch.h).

The ranks of a group meet over its store: each writes its host there and whether a launcher's variables contradict the
group, and rank 0 where it listens. The library gets this as torchrun's variables, while the world is opened.
Tutti's own launcher, MPI and Slurm have a wire of their own: there the world is opened by their variables, once all
ranks have agreed.

A key is not sent over the store: ranks of one host need none, and between hosts the script must name it, as under
torchrun.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import multiprocessing
import os
import pathlib
import secrets
import socket
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch.distributed as dist

from .. import _abi, errors
from .._library import library as _c
from ..engine import Engine, Param
from ..errors import PeerError, StateError
from ..world import World
from ._ranges import ProfiledEngine

_free: tuple[World, tuple[str, str]] | None = None  # whose engine was refused, and what was asked for
_of_parts: weakref.WeakSet[World] = weakref.WeakSet()  # worlds of a part of torch.distributed's ranks
_passing: weakref.WeakSet[World] = weakref.WeakSet()  # worlds that no other engine takes over
# Of launchers that watch their processes, or carry their messages.
_WATCHERS = (
    ("TUTTI_RANK", "TUTTI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
)
_MEND = (
    "workers would train apart. Start the script by one launcher (torchrun, tutti run, srun, mpirun) and leave rank= "
    "and world_size= of init_process_group out, or unset the launcher's variables"
)
# By these the library would see another run than that of a process group.
_OF_LAUNCHERS = (
    "TUTTI_RANK", "TUTTI_SIZE", "TUTTI_SHM_FD", "TUTTI_MEET", "TUTTI_MEET_AT_RANK_0", "TUTTI_TAKE_PART",
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMIX_RANK", "MV2_COMM_WORLD_RANK",
    "MV2_COMM_WORLD_SIZE", "SLURM_STEP_ID", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
    "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_USE_AGENT_STORE",
)  # fmt: skip


# ---- torch.distributed ----
class _Members(NamedTuple):
    """The ranks of a process group, and this one's place among them."""

    group: dist.ProcessGroup
    rank: int
    size: int
    whole: bool  # all ranks of torch.distributed, in their order


def _members(group: dist.ProcessGroup | None = None) -> _Members | None:
    """Of a process group, or of the default one. None: torch.distributed is not initialised."""
    if not dist.is_available() or not dist.is_initialized():
        return None
    every = list(range(dist.get_world_size()))
    ranks = every if group is None else dist.get_process_group_ranks(group)
    default = dist.distributed_c10d._get_default_group()
    return _Members(default if group is None else group, dist.get_rank(group), len(ranks), ranks == every)


# ---- launchers ----
def _found(environment: Mapping[str, str]) -> _abi.tutti_launch_place:
    """What a launcher's variables state. ValueError: they cannot be."""
    words = [os.fsencode(f"{name}={value}") for name, value in environment.items()]
    place = _abi.tutti_launch_place()
    errors.check(_c.tutti_launch_find_place, (ctypes.c_char_p * (len(words) + 1))(*words), place)
    return place


def _halves() -> dict[str, str | None]:
    """Variables of torch's that do not give a place: a launcher of a framework's sets one of the two, and its script
    tells the rest to init_process_group."""
    names = ("RANK", "WORLD_SIZE")
    return {} if all(name in os.environ for name in names) else dict.fromkeys(names)


def _launched() -> _abi.tutti_launch_place | None:
    """The launcher that has started the ranks of the process group. None: there is none, or it has started one process
    only, or one a node, which has started the others."""
    halves = _halves()
    place = _found({name: value for name, value in os.environ.items() if name not in halves})
    if place.by == _abi.TUTTI_BY_NOBODY or (place.size == 1 and place.by != _abi.TUTTI_BY_TUTTI):
        return None
    if place.by == _abi.TUTTI_BY_SLURM and place.size < dist.get_world_size():
        nodes = os.environ.get("SLURM_STEP_NUM_NODES") or os.environ.get("SLURM_NNODES")
        if nodes == str(place.size):
            return None
    return place


def _contradiction(rank: int, size: int, place: _abi.tutti_launch_place | None) -> str:
    """What torch.distributed and a launcher's variables state of this process. "": they agree."""
    if place is None or (place.rank, place.size) == (rank, size):
        return ""
    name = place.name.decode() if place.by > _abi.TUTTI_BY_TUTTI else "Tutti"
    found = f" ({place.found.decode()})" if place.found else ""
    return (
        f"torch.distributed reports that this is rank {rank} of {size}, and {name}'s launcher that it is rank "
        f"{place.rank} of {place.size}{found}"
    )


def check(world: World, opening: bool = False) -> None:
    """StateError: torch.distributed says something else."""
    members = None if world in _of_parts else _members()
    if members is None or (members.rank, members.size) == (world.rank, world.size):
        return
    if world.size == 1 and members.size > 1 and not opening:
        raise StateError(
            f"torch.distributed has {members.size} ranks, and Tutti's world has size 1: the process group was made "
            "after it. Call init_process_group before tutti.torch.prepare() or DistributedDataParallel()"
        )
    place = _abi.tutti_launch_place(rank=world.rank, size=world.size)
    with contextlib.suppress(ValueError):
        there = _found(os.environ)
        place = there if (there.rank, there.size) == (world.rank, world.size) else place
    raise StateError(f"{_contradiction(members.rank, members.size, place)}: {_MEND}")


# ---- where the ranks of a group meet ----
def _host() -> str:
    """The same for processes that can share memory."""
    with contextlib.suppress(OSError):
        return socket.gethostname() + pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return socket.gethostname()


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("", 0))
        return int(s.getsockname()[1])


def _address(store: dist.Store) -> str:
    """Where the other hosts reach this process: its address on the way to the store, or the store's if that is here."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    there = os.environ.get("MASTER_ADDR") or getattr(store, "host", "") or socket.gethostname()
    if not dist.is_initialized() or dist.get_rank() == 0:  # the default group is only being made: its rank 0
        return there
    with contextlib.suppress(OSError):
        family, kind, protocol, _, address = socket.getaddrinfo(there, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as s:
            s.connect(address)  # sends nothing
            mine = s.getsockname()[0]
        return there if mine.startswith("127.") or mine == "::1" else mine
    return socket.gethostname()


def _read_all(store: dist.Store, size: int, calls: str) -> list[Any]:
    """What each rank has stored. StateError: some have not come within the store's time."""
    keys = [f"rank {r}" for r in range(size)]
    try:
        store.wait(keys)
    except RuntimeError:
        missing = [str(r) for r, key in enumerate(keys) if not store.check([key])]
        raise StateError(
            f"rank {', '.join(missing) or '?'} of the process group's {size} has not come: all of them {calls}"
        ) from None
    return [json.loads(store.get(key)) for key in keys]


def _meet(store: dist.Store, rank: int, size: int, calls: str, contradicts: str = "") -> dict[str, str | None]:
    """All ranks of a group tell each other where they are, over a store that nothing else uses. Returns variables as of
    torchrun, for the library.

    calls: what all of them do in order to come here. StateError, on all of them: a launcher's variables contradict the
    group on one."""
    mine: dict[str, Any] = {"host": _host(), "contradicts": contradicts}
    if rank == 0:
        mine |= {"address": _address(store), "port": _free_port(), "run": secrets.token_hex(16)}
    store.set(f"rank {rank}", json.dumps(mine))
    stored = _read_all(store, size, calls)
    for r, of in enumerate(stored):
        text = contradicts or (of["contradicts"] and f"on rank {r} " + of["contradicts"])
        if text:
            raise StateError(f"{text}: {_MEND}")
    hosts, first = [of["host"] for of in stored], stored[0]
    alone = all(h == hosts[0] for h in hosts)
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(hosts[:rank].count(hosts[rank])),
        "LOCAL_WORLD_SIZE": str(hosts.count(hosts[rank])),
        "MASTER_ADDR": "127.0.0.1" if alone else first["address"],
        "MASTER_PORT": str(first["port"]),
        # Not torchrun's name of its run: with that, ranks look for a process that has started
        # all of them, and one of Lightning's ranks has started the others.
        "TUTTI_RUN_ID": first["run"],
    }


@contextlib.contextmanager
def _told(words: Mapping[str, str | None]) -> Iterator[None]:
    """The environment with these variables; None: without this one."""
    before = {name: os.environ.get(name) for name in words}

    def put(values: Mapping[str, str | None]) -> None:
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    put(words)
    try:
        yield
    finally:
        put(before)


def _by_agent() -> dict[str, str | None]:
    """Of a run of torchrun's whose agent listens on MASTER_PORT: variables with a port that is free where rank 0 is,
    passed on by the agent's store. The library alone takes the port behind it, which another program may have."""
    place = _found(os.environ)
    if (place.by != _abi.TUTTI_BY_TORCHRUN or place.size == 1 or "TUTTI_MEET" in os.environ
            or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") not in ("True", "1")):
        return {}
    agent = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    run = dist.PrefixStore(f"tutti {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", agent)
    # ranks open their worlds in the same order
    key = f"port {run.add(f'worlds of rank {place.rank}', 1)}"
    if place.rank == 0:
        run.set(key, str(_free_port()))
    try:
        port = run.get(key).decode()
    except RuntimeError:
        raise StateError(f"rank 0 of {place.size} has not come: all of them call tutti.torch.prepare() or "
                         "DistributedDataParallel(), in the same order") from None
    return {"MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": None}


# ---- worlds ----
def _by_variables(asked: str) -> World:
    with _told(_by_agent()):
        world = World(asked)
    if world.size == 1 and multiprocessing.parent_process() is not None:
        if _found(os.environ).by == _abi.TUTTI_BY_NOBODY:
            warnings.warn(
                "this process was started by multiprocessing, and nothing gives it a rank, so it trains alone; if it "
                "is one of several call torch.distributed.init_process_group(rank=, world_size=) before "
                "tutti.torch.prepare() or DistributedDataParallel()",
                stacklevel=2,
            )
    return world


def _by_group(asked: str, members: _Members) -> World:
    place = _launched()
    contradicts = _contradiction(dist.get_rank(), dist.get_world_size(), place)
    words: dict[str, str | None] = dict.fromkeys(_OF_LAUNCHERS)
    if members.size > 1:
        store = dist.distributed_c10d._get_process_group_store(members.group)
        # counted in the store, since ranks of several groups open different numbers of worlds
        count = store.add(f"tutti: worlds of rank {members.rank}", 1)
        store = dist.PrefixStore(f"tutti {count}", store)
        calls = "call tutti.torch.prepare() or DistributedDataParallel(), in the same order"
        words |= _meet(store, members.rank, members.size, calls, contradicts)
    elif contradicts:
        raise StateError(f"{contradicts}: {_MEND}")
    if members.whole and place is not None and place.by != _abi.TUTTI_BY_TORCHRUN:
        words = _halves()
    elif members.whole:
        del words["TUTTI_MEET"], words["TUTTI_MEET_AT_RANK_0"]  # a place that the user has named
    with _told(words):
        world = World(asked)
    if not members.whole:
        _of_parts.add(world)
        if (world.rank, world.size) != (members.rank, members.size):
            transport = world.transport
            world.close()
            raise ValueError(
                f"transport '{transport}' has all ranks, and the process group {members.size} of them; leave "
                "transport= out, or give 'tcp' or 'shm'"
            )
    return world


def launched(rank: int, size: int) -> bool:
    """Has a launcher that watches its processes, or whose transport they use, started this one in that place?"""
    for of_rank, of_size in _WATCHERS:
        if of_rank in os.environ:
            return (os.environ[of_rank], os.environ.get(of_size)) == (str(rank), str(size))
    return False


def open_over(store: dist.Store, rank: int, size: int, transport: str) -> World:
    """A world of `size` processes, any of the job's, that meet over a store of their own, whoever has started them.

    A store may have seen worlds before, also of processes that are no longer in this one. Nobody joins the next before
    all have joined the last, so the count of those that have joined tells which one this is.
    """
    turn = (store.add("joined", 1) - 1) // size
    words = _meet(dist.PrefixStore(f"world {turn}", store), rank, size, "make this group")
    if os.environ.get("TUTTI_TRANSPORT", "").startswith("mpi"):  # whose world is the whole job
        words["TUTTI_TRANSPORT"] = None
    with _told(dict.fromkeys(_OF_LAUNCHERS) | words):
        return World(transport)


def open_part(store: dist.Store, rank: int, size: int, transport: str) -> World:
    """open_over() for one engine of some of torch.distributed's ranks."""
    world = open_over(store, rank, size, transport)
    _of_parts.add(world)
    _passing.add(world)
    return world


def _checked(world: World) -> World:
    try:
        check(world, opening=True)
    except StateError as e:
        world.failure_report(e)
        world.close()
        raise
    return world


def _asked(transport: str | None, group: dist.ProcessGroup | None) -> tuple[str, str]:
    members = _members(group)
    return transport or "", "" if members is None or members.whole else members.group.group_name


def open_world(transport: str | None, group: dist.ProcessGroup | None = None) -> World:
    """The run that this process is in, or that of the ranks of a process group, which has this one. A world whose
    engine was refused is there for the next engine."""
    global _free
    if "TUTTI_WORKERS" in os.environ:
        raise ValueError(
            "this process was started by `tutti run --workers`, whose workers come and go; take tutti.torch.prepare("
            "model, optimizer, sampler=..., elastic=True), or start it by `tutti run -n N`"
        )
    asked, kept = _asked(transport, group), _free
    _free = None
    if kept is not None and kept[0].is_mine():
        if kept[1] == asked:
            return _checked(kept[0])
        kept[0].close()
    members = _members(group)
    return _checked(_by_variables(asked[0]) if members is None else _by_group(asked[0], members))


def open_engine(
    world: World,
    params: Sequence[Param],
    transport: str | None,
    group: dist.ProcessGroup | None = None,
    **options: Any,
) -> Engine:
    """The run's engine. Bad options are refused on all ranks or on none, and no rank waits for this one. So the world
    is kept: a script that catches the ValueError may call prepare() again, and is not lost to the others."""
    global _free
    try:
        return ProfiledEngine(world, params, **options)
    except ValueError:
        if world not in _passing and not world.of_epoch and world.is_free():
            _free = (world, _asked(transport, group))
        raise


def give_up(world: World, error: BaseException) -> None:
    """What was to be opened on the world is not: leaves the run with this failure report, or keeps the world."""
    if world.closed or (_free is not None and _free[0] is world):
        return
    if world.of_epoch and isinstance(error, PeerError):  # the next epoch follows
        world.close()
        return
    if world.size > 1 and not (world in _passing and isinstance(error, ValueError)):  # which is raised on all ranks
        world.failure_report(error)
    world.close()
