"""World and engine: the public API of the C library (comm.h, tutti.h), a method a call.

Calls block where the headers say so; other Python threads run meanwhile. Calls of one engine never overlap. An open
object is closed when it is no longer referenced, at the latest when the interpreter ends. Memory of an engine is handed
out as views, and each view keeps the engine and its world open: memory that can still be read is never freed.

A forked child has copies of these objects and no workers behind them. There every call is refused, nothing is closed,
and the connections of the run are closed at once, so that the other workers notice when the parent dies.
"""

import atexit
import contextlib
import ctypes
import os
import signal
import stat
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import _abi
from ._library import library as _c
from .errors import Error, StateError, check
from .model import Stages, described

_held: "weakref.WeakSet[_Held]" = weakref.WeakSet()
_DTYPES = {"fp32": 0, "bf16": 1, "fp16": 2}  # tutti_dtype


def _text(value: object) -> bytes | None:
    return None if value is None else os.fsencode(str(value))


# ---- ownership of open objects of the library ----
class _Held:
    """A pointer of the library's and the call that closes it. It is closed with its last holder, in this process only.

    What depends on it (an engine on its world) is closed before, in whichever order the collector finds them.

    An engine with exchanges in flight is closed when they are over, which is up to the peers. Where this rank has
    failed (failure report) it must not wait for them: then it stays open and ends with the process.
    """

    def __init__(self, end: Callable[[ctypes.c_void_p], None], below: "_Held | None" = None):
        self.at, self.below, self.pid = ctypes.c_void_p(), below, os.getpid()
        self._end, self._above, self._over = end, 0, False
        self.under_way = self.failed = False
        if below is not None:
            below._above += 1
        _held.add(self)

    def end(self) -> None:
        self._over = True
        if self._above > 0:
            return  # the last of those does it
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


class _Owner:
    """What has a _Held until it is closed."""

    _hold: _Held | None = None
    _what = "engine"

    @property
    def _at(self) -> ctypes.c_void_p:
        hold = self._hold
        if hold is None or not hold.at:
            raise StateError(f"the {self._what} is closed")
        if hold.pid != os.getpid():
            raise StateError(
                f"the {self._what} belongs to process {hold.pid}, from which this one was forked; only that one is a "
                "worker of the run"
            )
        return hold.at

    def _mine(self) -> None:
        """Raises where it is closed, or another process's."""
        _ = self._at

    def is_mine(self) -> bool:
        """Is it open, and this process's?"""
        hold = self._hold
        return hold is not None and bool(hold.at) and hold.pid == os.getpid()

    @property
    def closed(self) -> bool:
        return self._hold is None or not self._hold.at

    def close(self) -> None:
        """Releases it. It is closed now, or with the last view of its memory that is still referenced."""
        self._hold = None

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _sockets() -> dict[int, tuple[int, int]]:
    """The open sockets of this process, and what distinguishes each from a later one with the same number."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            about = os.fstat(int(name))
            if stat.S_ISSOCK(about.st_mode):
                found[int(name)] = (about.st_dev, about.st_ino)
    return found


def _forked() -> None:
    """In a child: closes its copies of the run's connections. Otherwise a peer would take a dead parent for alive."""
    for world in list(_worlds):
        for number, mark in world._connections.items():
            with contextlib.suppress(OSError):
                about = os.fstat(number)
                if (about.st_dev, about.st_ino) == mark:
                    os.close(number)
        world._connections = {}


def _leave() -> None:
    """At the end of the interpreter: engines first, then their worlds. An exception that ended it is sent to the peers.

    What lies in engines is copied out before, for code that reads it even later.
    """
    error = getattr(sys, "last_value", None)
    for world in list(_worlds):
        if error is not None and not hasattr(sys, "ps1") and not world.closed:
            with contextlib.suppress(StateError):
                world.failure_report(error)
    for tenant in list(tenants):
        tenant.detach()
    for hold in sorted(_held, key=lambda h: h.below is None):
        hold.end()


# ---- signals ----
def _apart(call: Callable[..., Any], *arguments: object) -> None:
    """check(), on a thread of its own, so that signal handlers run meanwhile. If a handler raises, the call is not
    waited for any more, and what it opens is closed when it returns."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            check(call, *arguments)
        except BaseException as e:  # noqa: BLE001 (raised below)
            raised.append(e)

    thread = threading.Thread(target=run, name="tutti opening", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.2)  # what comes just before a wait begins does not end it
    if raised:
        raise raised[0]


class _Signals:
    """Holds signals back during one call of the library that may call functions of the client's.

    Their handlers run wherever Python next runs anything, so before the first line of such a function. An exception
    there, such as KeyboardInterrupt, cannot be caught: ctypes would print it and forget it, and the library would have
    no answer. Held back, a handler runs once the function has begun (`within`), or when the call is over.
    """

    _HELD = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGCHLD")

    def __init__(self) -> None:
        self.within = True  # a handler may run
        self._was: dict[int, Callable[[int, Any], Any]] = {}
        self._came: list[tuple[int, Any]] = []

    def _hear(self, number: int, frame: Any) -> None:
        if self.within:
            self._was[number](number, frame)
        else:
            self._came.append((number, frame))

    def begin(self) -> None:
        """A function of the client's has begun, and its caller catches what is raised."""
        self.within = True
        while self._came:
            number, frame = self._came.pop(0)
            self._was[number](number, frame)

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # on no other does Python run handlers
        self.within = False
        try:
            for name in self._HELD:
                handler = signal.getsignal(number := getattr(signal, name))
                if callable(handler):
                    self._was[number] = handler
                    signal.signal(number, self._hear)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self.begin()
        finally:
            for number, handler in self._was.items():
                if signal.getsignal(number) == self._hear:
                    signal.signal(number, handler)


_worlds: "weakref.WeakSet[World]" = weakref.WeakSet()
tenants: "weakref.WeakSet[Any]" = weakref.WeakSet()  # their detach() is called before engines end with the interpreter
os.register_at_fork(after_in_child=_forked)
atexit.register(_leave)


# ---- the world ----
def _by_mpi(transport: str) -> bool:
    """MPI is to be opened and closed by one thread, and its launcher ends a rank that waits in it."""
    return transport.startswith("mpi") if transport else any(k.startswith(("OMPI_", "PMI", "MV2_")) for k in os.environ)


class World(_Owner):
    """This process's view of the run: its rank among all. Its place comes from the launcher's environment (comm.h).

    transport: "shm", "tcp", "mpi", with options; "": that of `tutti run --transport`, or by the launcher. A process
    may open several worlds, all ranks in the same order. The memory that `tutti run` has made is for the first one;
    where nothing is asked for, later ones use tcp.
    """

    _what = "world"
    _memory_taken = False

    def __init__(self, transport: str = ""):
        before = _sockets()
        told = os.environ.get("TUTTI_TRANSPORT", "")
        if not transport and World._memory_taken:
            transport = told if told.startswith("tcp") else "tcp"
        hold = _Held(_c.tutti_world_close)
        (check if _by_mpi(transport or told) else _apart)(_c.tutti_world_open, hold.at, _text(transport))
        self._hold = hold
        self._connections = {k: mark for k, mark in _sockets().items() if before.get(k) != mark}
        World._memory_taken = World._memory_taken or "TUTTI_SHM_FD" in os.environ
        _worlds.add(self)
        self.rank: int = _c.tutti_world_rank(hold.at)
        self.size: int = _c.tutti_world_size(hold.at)
        self.transport: str = _c.tutti_world_transport(hold.at).decode()
        self._group = _c.tutti_group_of(hold.at, None, self.size, _c.tutti_port_of(b"python", 0, 0))
        self._group.uncounted = True

    def _host(self, address: int, count: int, dtype: int) -> _abi.tutti_buffer:
        return _abi.tutti_buffer(_c.tutti_world_device(self._at), address, count, dtype)

    def broadcast(self, address: int, size: int, root: int = 0) -> None:
        """`size` bytes of the root's come to that address of all ranks. All call it in the same order."""
        check(_c.tutti_broadcast, self._group, root, self._host(address, size, _abi.TUTTI_U8))

    def reduce(self, values: Sequence[float], operation: str = "sum") -> list[float]:
        """A few numbers of each rank, reduced by "sum", "mean", "max" or "min"; the same on all ranks."""
        names = {"sum": _abi.TUTTI_SUM, "mean": _abi.TUTTI_MEAN, "max": _abi.TUTTI_MAX, "min": _abi.TUTTI_MIN}
        self._mine()
        x = (ctypes.c_double * len(values))(*values)
        check(_c.tutti_reduce_double, self._group, names[operation], x, len(values))
        return list(x)

    def barrier(self) -> None:
        self._mine()
        check(_c.tutti_barrier, self._group)

    def survives(self) -> bool:
        """Does the transport report losses one by one, and continue after them?"""
        return _c.tutti_world_survives(self._at)

    def lost(self, rank: int) -> str | None:
        """How a lost rank ended; None: it is not lost."""
        why = ctypes.create_string_buffer(256)
        return why.value.decode(errors="replace") if _c.tutti_world_lost(self._at, rank, why, len(why)) else None

    def host(self, rank: int) -> int:
        """Ranks with equal numbers share a host."""
        return _c.tutti_world_host(self._at, rank)

    def find_checkpoint(self, path: str | os.PathLike) -> str:
        """That checkpoint, or the newest whole one in that directory (tutti.h). One rank at a time may call."""
        found = ctypes.create_string_buffer(4096)
        check(_c.tutti_checkpoint_find, _c.tutti_world_runtime(self._at), os.fsencode(path), found, len(found), None, 0)
        return os.fsdecode(found.value)

    def sent(self, to: int = -1) -> tuple[int, int]:
        """Payload bytes and messages that this rank has sent to another; -1: to all others."""
        size, messages = ctypes.c_uint64(), ctypes.c_uint64()
        _c.tutti_world_sent(self._at, to, size, messages)
        return size.value, messages.value

    def is_free(self) -> bool:
        """May an engine be opened on it? It has none, and has had none but such as were refused (tutti.h)."""
        free = bool(_c.tutti_world_take(self._at))
        if free:
            _c.tutti_world_give_back(self._at)
        return free

    def abandon(self) -> None:
        """It stays open until the process ends: a thread is within a call of it whose end is up to the peers."""
        self._hold._above += 1

    def failure_report(self, error: BaseException) -> None:
        """On failure, before close: why this rank ends, for its launcher and its peers."""
        words = _abi.tutti_error(status=_abi.TUTTI_ERR_STATE, rank=self.rank)
        text = f"{type(error).__name__}: {error}" if not isinstance(error, Error) else str(error)
        if isinstance(error, Error) and getattr(error, "rank", None) is not None:
            words.status, words.rank = _abi.TUTTI_ERR_PEER, error.rank  # not by itself: because of that one
        words.text = text.splitlines()[0].encode()[:479] if text.strip() else type(error).__name__.encode()
        _c.tutti_world_failure_report(self._at, words)
        self._hold.failed = True


# ---- the engine ----
@dataclass
class Param:
    """A tensor of the client's (tutti_param). values, gradient: addresses of the client's memory; None: the engine's.

    dtype: of the client's memory: "fp32", "bf16", "fp16".
    """

    name: str
    shape: tuple[int, ...]
    unit: int = 0
    dtype: str = "fp32"
    values: int | None = None
    gradient: int | None = None
    row_sparse: bool = False
    asks_rows: bool = False


class Event(NamedTuple):
    """What happened: skipped steps, workers that were lost (tutti_event_record)."""

    step: int
    kind: str
    text: str
    worker: int


class Engine(_Owner):
    """One method on one world. `params` stand in the order in which gradients become ready.

    `options` are the members of tutti_engine_options by their names. Texts are str. Sequences are handed over as
    arrays. initial(tensor, address), evaluate() -> float and update(factor) are functions, and model a model.Stages; an
    exception in one of them ends the call during which it was called.
    """

    def __init__(self, world: World, params: Sequence[Param], **options: Any):
        self._raised: BaseException | None = None
        self._kept: list[object] = []
        self._signals = _Signals()
        self._calls_back = any(callable(value) or isinstance(value, Stages) for value in options.values())
        self._options = self._options_of(options)
        hold = _Held(_c.tutti_engine_close, world._hold)
        self.world = world
        self.params = list(params)
        self._calling(_c.tutti_engine_open, hold.at, world._at, self._params_of(params), len(params), self._options)
        self._hold = hold
        self.method: _abi.tutti_method = _c.tutti_engine_method(hold.at).contents
        self.workers: int = self.method.workers
        self.rank: int = self.method.rank

    # -- opening --
    @staticmethod
    def _params_of(params: Sequence[Param]) -> ctypes.Array:
        array = (_abi.tutti_param * max(len(params), 1))()
        for to, p in zip(array, params, strict=False):
            shape = tuple(p.shape) or (1,)
            to.name, to.dims, to.unit = _text(p.name), min(len(shape), 4), p.unit
            to.row_sparse, to.asks_rows = p.row_sparse, p.asks_rows
            for k, d in enumerate(shape[:4]):
                to.dim[k] = d
            for d in shape[4:]:  # the engine knows four dimensions and reads the first two
                to.dim[3] *= d
            for member in ("values", "gradient"):
                address = getattr(p, member)
                if address is not None:
                    kind = dict(_abi.tutti_param._fields_)[member]
                    setattr(to, member, ctypes.cast(ctypes.c_void_p(address), kind))
            if p.dtype != "fp32":
                to.dtype = _DTYPES[p.dtype]
        return array

    def _options_of(self, options: Mapping[str, Any]) -> _abi.tutti_engine_options:
        kinds = dict(_abi.tutti_engine_options._fields_)
        o = _abi.tutti_engine_options()
        for name, value in options.items():
            if name not in kinds or name == "user":
                raise TypeError(f"Engine: there is no option '{name}'")
            if value is None:
                continue
            if callable(value):
                value = getattr(self, "_" + name)(kinds[name], value)
                self._kept.append(value)
            elif isinstance(value, str):
                value = _text(value)
            elif isinstance(value, Stages):
                value = ctypes.pointer(described(value, self._guarded))
                self._kept.append(value)
            elif isinstance(value, Sequence):
                value = (kinds[name]._type_ * len(value))(*value)
                self._kept.append(value)
            setattr(o, name, value)
        return o

    def _initial(self, kind: type, function: Callable[[int, int], None]) -> object:
        def call(_user: object, tensor: int, values: Any) -> None:
            try:
                self._signals.begin()
                function(tensor, ctypes.addressof(values.contents))
                self._signals.within = False
            except BaseException as e:  # noqa: BLE001 (raised again by the call that led here)
                self._signals.within = False
                self._raised = self._raised or e

        return kind(call)

    def _guarded(self, function: Callable[..., None]) -> Callable[..., int]:
        def call(_user: object, *arguments: Any) -> int:
            try:
                self._signals.begin()
                function(*arguments[:-1])
                self._signals.within = False
            except BaseException as e:  # noqa: BLE001
                return self._failed(e, arguments[-1])
            return _abi.TUTTI_OK

        return call

    def _evaluate(self, kind: type, function: Callable[[], float]) -> object:
        def evaluate(loss: Any) -> None:
            loss[0] = function()

        return kind(self._guarded(evaluate))

    def _update(self, kind: type, function: Callable[[float], None]) -> object:
        return kind(self._guarded(function))

    def _failed(self, e: BaseException, error: Any) -> int:
        self._signals.within = False
        self._raised = self._raised or e
        if error:
            error[0].status = _abi.TUTTI_ERR_STATE
            error[0].rank = -1
            error[0].text = (f"{type(e).__name__}: {e}").encode()[:479]
        return _abi.TUTTI_ERR_STATE

    def _calling(self, call: Callable[..., int], *arguments: object) -> bool:
        """check(), but what a function of the client's has raised meanwhile comes first."""
        try:
            if not self._calls_back:
                return check(call, *arguments)
            self._signals = _Signals()
            with self._signals:
                return check(call, *arguments)
        finally:
            raised, self._raised = self._raised, None
            if raised is not None:
                raise raised

    # -- its memory --
    def _memory(self, address: Any, count: int, kind: type) -> ctypes.Array:
        if not address:
            raise ValueError(f"rank {self.rank} only serves, and has no such memory")
        memory = (kind * count).from_address(ctypes.addressof(address.contents))
        memory._hold = self._hold  # the engine stays while this can be read
        return memory

    def values(self, tensor: int) -> ctypes.Array:
        """The values of a tensor in the engine's memory, float32. It keeps the engine open."""
        return self._memory(_c.tutti_engine_values(self._at, tensor), self._count(tensor), ctypes.c_float)

    def gradient(self, tensor: int) -> ctypes.Array | None:
        """None: the method holds gradients by piece, and they are handed over (ready_from)."""
        address = _c.tutti_engine_gradient(self._at, tensor)
        return self._memory(address, self._count(tensor), ctypes.c_float) if address else None

    def gradients(self) -> ctypes.Array:
        """All gradients, one tensor behind the other."""
        return self._memory(self.method.g, self.method.layout.contents.used, ctypes.c_float)

    def firsts(self) -> list[int]:
        """Where each tensor begins in gradients()."""
        return [self.method.layout.contents.tensor[k].first for k in range(len(self.params))]

    def client_state(self) -> ctypes.Array | None:
        """The client state: own_values floats of this worker."""
        at = _c.tutti_engine_client_state(self._at)
        return self._memory(at, self._options.own_values, ctypes.c_float) if at else None

    def _count(self, tensor: int) -> int:
        self._mine()
        if not 0 <= tensor < len(self.params):
            raise IndexError(f"tensor {tensor}; there are {len(self.params)}")
        return self.method.layout.contents.tensor[tensor].count

    # -- a step --
    def pass_begin(self) -> _abi.tutti_pass | None:
        """The next pass of this step; None: they are over."""
        p = _abi.tutti_pass()
        return p if self._calling(_c.tutti_engine_pass_begin, self._at, p) else None

    def unit_acquire(self, unit: int, backward: bool) -> None:
        check(_c.tutti_engine_unit_acquire, self._at, unit, backward)

    def unit_release(self, unit: int, backward: bool) -> bool:
        """False: the step begins again (tutti_engine_unit_release)."""
        return check(_c.tutti_engine_unit_release, self._at, unit, backward)

    @staticmethod
    def _ids(ids: Sequence[int] | ctypes.Array) -> ctypes.Array:
        return ids if isinstance(ids, ctypes.Array) else (ctypes.c_uint32 * len(ids))(*ids)

    def rows_acquire(self, tensor: int, ids: Sequence[int] | ctypes.Array) -> None:
        """Before this pass reads these rows of a table with asks_rows, ascending. An array is one of c_uint32."""
        check(_c.tutti_engine_rows_acquire, self._at, tensor, self._ids(ids), len(ids))

    def _announce(self, call: Callable[..., int], *arguments: object) -> None:
        at = self._at
        self._hold.under_way = True
        check(call, at, *arguments)

    def grad_ready(self, tensor: int) -> None:
        self._announce(_c.tutti_engine_grad_ready, tensor)

    def grad_ready_from(self, tensor: int, address: int, dtype: str = "fp32") -> None:
        """grad_ready, with a gradient that lies at `address` for this call only."""
        self._announce(_c.tutti_engine_grad_ready_from, tensor, address, _DTYPES[dtype])

    def grad_ready_rows(self, tensor: int, ids: Sequence[int] | ctypes.Array) -> None:
        """grad_ready, of a table where this pass has touched only these rows, ascending."""
        self._announce(_c.tutti_engine_grad_ready_rows, tensor, self._ids(ids), len(ids))

    def grad_ready_rows_from(
        self, tensor: int, ids: Sequence[int] | ctypes.Array, address: int, dtype: str = "fp32"
    ) -> None:
        """grad_ready_rows, with those rows one behind the other at `address` for this call only."""
        self._announce(_c.tutti_engine_grad_ready_rows_from, tensor, self._ids(ids), len(ids), address, _DTYPES[dtype])

    def pass_end(self, loss_sum: float = 0.0) -> None:
        check(_c.tutti_engine_pass_end, self._at, loss_sum)

    def step(self) -> None:
        at, hold = self._at, self._hold
        try:
            self._calling(_c.tutti_engine_step, at)
        except Exception:  # it has waited for all; what is none, an interrupt, may come before the call
            hold.under_way = False
            raise
        hold.under_way = False

    def drive(self, until: int) -> None:
        """Under a method that drives, which calls the option model: continues to `until` steps of the run."""
        self._calling(_c.tutti_engine_drive, self._at, until)

    def lr(self, lr: float) -> None:
        """The base learning rate from the next update on."""
        check(_c.tutti_engine_lr, self._at, lr)

    def doing(self, what: int) -> int:
        """What the client is doing, for the clock (_abi.TUTTI_DOING_...); returns what it was."""
        return _c.tutti_engine_doing(self._at, what)

    # -- is there another? --
    def _more(self, call: Callable[..., int], until: int) -> bool:
        more = ctypes.c_bool()
        self._calling(call, self._at, until, more)
        return more.value

    def more(self, until: int) -> bool:
        return self._more(_c.tutti_engine_more, until)

    def more_epochs(self, epochs: int) -> bool:
        return self._more(_c.tutti_engine_more_epochs, epochs)

    def more_samples(self, samples: int) -> bool:
        return self._more(_c.tutti_engine_more_samples, samples)

    def ended(self) -> bool:
        return _c.tutti_engine_ended(self._at)

    def reshare(self, batch_of: Sequence[int]) -> None:
        check(_c.tutti_engine_reshare, self._at, (ctypes.c_int64 * len(batch_of))(*batch_of))

    def takes(self) -> int:
        """Does the method decide how many samples a step has? 1: a batch or none. 3: not known before it is over."""
        return int(_c.tutti_engine_takes(self._at))

    def share(self) -> _abi.tutti_share:
        return _c.tutti_engine_share(self._at).contents

    # -- the model --
    def finish(self) -> None:
        self._calling(_c.tutti_engine_finish, self._at)

    def eval_begin(self) -> None:
        self._calling(_c.tutti_engine_eval_begin, self._at)

    def eval_end(self) -> None:
        check(_c.tutti_engine_eval_end, self._at)

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Within it this worker's own model is replaced by the one that the workers would agree on now."""
        self.eval_begin()
        try:
            yield
        finally:
            self.eval_end()

    def apart(self) -> float:
        return _c.tutti_engine_apart(self._at)

    def swap(self) -> bool:
        return _c.tutti_engine_swap(self._at)

    def save(self, directory: str | os.PathLike, facts: str = "{}", keep: int = 0) -> None:
        """A checkpoint by all ranks, between steps. facts: a JSON object that is stored with it."""
        self._calling(_c.tutti_engine_save, self._at, os.fsencode(directory), facts.encode(), keep)

    def load(self, checkpoint: str | os.PathLike) -> None:
        """Every declared state of that checkpoint, by all ranks, before the first pass."""
        at = ctypes.c_void_p()
        check(_c.tutti_checkpoint_open, at, _c.tutti_world_runtime(self.world._at), os.fsencode(checkpoint))
        try:
            self._calling(_c.tutti_engine_load, self._at, at)
        finally:
            _c.tutti_checkpoint_close(at)

    def state(self) -> list[_abi.tutti_saved]:
        """Declared state of this rank where it lies, between steps, until the next call. Where the method has services
        all ranks must call it."""
        at, n = ctypes.POINTER(_abi.tutti_saved)(), ctypes.c_size_t()
        self._calling(_c.tutti_engine_state, self._at, at, n)
        return [at[k] for k in range(n.value)]

    def state_written(self) -> None:
        """All that state() gives has been written, by all ranks, before the first pass."""
        check(_c.tutti_engine_state_written, self._at)

    # -- fault-tolerant runs --
    def fault_tolerant(self) -> bool:
        return _c.tutti_engine_fault_tolerant(self._at)

    def has(self, worker: int) -> bool:
        return _c.tutti_engine_has(self._at, worker)

    def part(self) -> None:
        check(_c.tutti_engine_part, self._at)

    # -- figures --
    def figures(self) -> dict[str, int | float]:
        f = _abi.tutti_figures()
        _c.tutti_engine_figures(self._at, f)
        return {name: getattr(f, name) for name, _ in f._fields_ if name != "staleness"}

    def heard(self) -> dict[str, int | float]:
        h = _abi.tutti_received()
        _c.tutti_engine_received(self._at, h)
        return {name: getattr(h, name) for name, _ in h._fields_}

    def events(self, first: int = 0) -> list[Event]:
        """What happened, oldest first, from number `first` on."""
        at = ctypes.POINTER(_abi.tutti_event_record)()
        n = _c.tutti_engine_events(self._at, at)
        return [
            Event(e.step, e.kind.decode(), e.text.decode(errors="replace"), e.worker)
            for e in (at[k] for k in range(first, n))
        ]

    def metrics(self) -> list[tuple[str, int, float, int]]:
        """(name, worker, value, at) of the figures that the method reports."""
        at = ctypes.POINTER(_abi.tutti_metric_record)()
        n = _c.tutti_engine_metrics(self._at, at)
        return [(m.name.decode(), m.worker, m.value, m.at) for m in (at[k] for k in range(n))]

    def payload(self) -> list[int] | None:
        """Bytes that each tensor's gradients were encoded to in this process; None: there is no codec."""
        at = _c.tutti_engine_payload(self._at)
        return [at[k] for k in range(len(self.params))] if at else None
