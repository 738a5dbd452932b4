"""This process's place in the run, where torch.distributed knows it and no launcher's variables do.

A script for torch.multiprocessing.spawn gives rank and size to init_process_group alone. Its processes would each be
a run of one worker, and train separately without any error. So where there is a process group and no launcher's
variables are set, the library gets rank and size in a launcher's variables, while the world is opened. The ranks
exchange by the group's store how many of them are on which host, and a port to meet at. A key is not sent there: ranks
of one host need none, and between hosts the script must name it, as under torchrun.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import torch.distributed as dist

from ..engine import Engine, Param, World
from ..errors import StateError

_opened = 0  # worlds by this way; all ranks open them in the same order
_free: tuple[World, str] | None = None  # whose engine was refused, and what transport was asked for
_WATCHERS = (
    ("TUTTI_RANK", "TUTTI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
)
_OF_LAUNCHERS = (
    *(name for names in _WATCHERS for name in names),
    "TUTTI_SHM_FD", "TUTTI_MEET", "TUTTI_MEET_AT_RANK_0", "TUTTI_TAKE_PART", "SLURM_STEP_ID",
)
_MEND = (
    "workers would train apart. Start the script by one launcher (torchrun, tutti run, srun, mpirun) and leave rank= "
    "and world_size= of init_process_group out, or unset the launcher's variables"
)


def _group() -> tuple[int, int] | None:
    """Rank and size of torch's default process group."""
    if not dist.is_available() or not dist.is_initialized():
        return None
    return dist.get_rank(), dist.get_world_size()


def check(world: World, opening: bool = False) -> None:
    """StateError: torch.distributed says something else."""
    group = _group()
    if group is None or group == (world.rank, world.size):
        return
    if world.size == 1 and group[1] > 1 and not opening:
        raise StateError(
            f"torch.distributed has {group[1]} ranks, and Tutti's world has size 1: the process group was made after "
            "it. Call init_process_group before tutti.torch.prepare() or DistributedDataParallel()"
        )
    raise StateError(
        f"torch.distributed reports that this is rank {group[0]} of {group[1]}, and Tutti's launcher that it is rank "
        f"{world.rank} of {world.size}: {_MEND}"
    )


def _host() -> str:
    """The same for processes that can share memory."""
    with contextlib.suppress(OSError):
        return socket.gethostname() + pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return socket.gethostname()


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("", 0))
        return s.getsockname()[1]


def _address(store: dist.Store) -> str:
    """Where the other hosts reach rank 0."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return os.environ.get("MASTER_ADDR") or getattr(store, "host", "") or socket.gethostname()


def _words(store: dist.Store, rank: int, size: int) -> dict[str, str | None]:
    """As torchrun would tell the place. The ranks tell each other over the store, under keys of this world's own."""
    store.set(f"host of {rank}", _host())
    hosts = [store.get(f"host of {r}").decode() for r in range(size)]
    if rank == 0:
        alone = all(h == hosts[0] for h in hosts)
        store.set("meet", "127.0.0.1" if alone else _address(store))
        store.set("port", str(_free_port()))
        store.set("run", secrets.token_hex(16))
    meet, port, run = (store.get(name).decode() for name in ("meet", "port", "run"))
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(hosts[:rank].count(hosts[rank])),
        "LOCAL_WORLD_SIZE": str(hosts.count(hosts[rank])),
        "MASTER_ADDR": meet,
        "MASTER_PORT": port,
        "TORCHELASTIC_RUN_ID": run,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }


def _tell(words: dict[str, str | None]) -> None:
    for name, value in words.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextlib.contextmanager
def _told(words: dict[str, str | None]) -> Iterator[None]:
    """Sets these variables meanwhile; None: it is not set."""
    before = {name: os.environ.get(name) for name in words}
    _tell(words)
    try:
        yield
    finally:
        _tell(before)


def _checked(world: World) -> World:
    try:
        check(world, opening=True)
    except StateError as e:
        world.failure_report(e)
        world.close()
        raise
    return world


def open_world(transport: str | None) -> World:
    """The run that this process is in. One whose engine was refused is there for the next engine."""
    global _free, _opened
    asked, (kept, before) = transport or "", _free or (None, "")
    _free = None
    if kept is not None and kept.is_mine():
        if before == asked:
            return _checked(kept)
        kept.close()
    world = World(asked)
    group = _group()
    if group is not None and world.size == 1 and group[1] > 1:
        world.close()
        _opened += 1
        store = dist.PrefixStore(f"tutti {_opened}", dist.distributed_c10d._get_default_store())
        with _told(_words(store, *group)):
            world = World(asked)
    return _checked(world)


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
    words = _words(dist.PrefixStore(f"world {turn}", store), rank, size)
    # by the run's name alone: the processes may have been started by different ones
    words |= {"TUTTI_RUN_ID": words["TORCHELASTIC_RUN_ID"], "TORCHELASTIC_RUN_ID": None}
    if os.environ.get("TUTTI_TRANSPORT", "").startswith("mpi"):  # whose world is the whole job
        words["TUTTI_TRANSPORT"] = None
    with _told(dict.fromkeys(_OF_LAUNCHERS) | words):
        return World(transport)


def open_engine(world: World, params: Sequence[Param], transport: str | None, **options: Any) -> Engine:
    """The run's engine. Bad options are refused on all ranks or on none, and no rank waits for this one. So the world
    is kept: a script that catches the ValueError may call prepare() again, and is not lost to the others."""
    global _free
    try:
        return Engine(world, params, **options)
    except ValueError:
        if world.is_free():
            _free = (world, transport or "")
        raise


def give_up(world: World, error: BaseException) -> None:
    """What was to be opened on the world is not: leaves the run with this failure report, or keeps the world."""
    if world.closed or (_free is not None and _free[0] is world):
        return
    if world.size > 1:
        world.failure_report(error)
    world.close()
