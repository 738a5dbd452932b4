"""World and engine: the C library's API (comm.h, tutti.h), with a method for each function.

Calls block where the headers say so; other Python threads run meanwhile. Calls of one engine must not overlap. An open
object is closed when it is no longer referenced, at the latest when the interpreter ends. Memory of an engine is
returned as views, and each view keeps the engine and its world open, so memory that can still be read is never freed.

In a forked child these objects cannot be used: every call raises StateError, and nothing of the library is closed. Only
the child's copies of the run's connections are closed at once, so that the other workers notice when the parent dies.
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
from .errors import Error, PeerError, StateError, check
from .model import Stages, described

_held: "weakref.WeakSet[_Held]" = weakref.WeakSet()
_DTYPES = {"fp32": 0, "bf16": 1, "fp16": 2}  # tutti_dtype


def _text(value: object) -> bytes | None:
    return None if value is None else os.fsencode(str(value))


# ---- ownership of open objects of the library ----
class _Held:
    """A pointer to an object of the library, and the function that closes it.

    The object is closed when the _Held is no longer referenced, in the process that opened it only. An object that
    depends on another (an engine on its world, `below`) is closed first, whatever the order of garbage collection.

    Closing an engine waits for its exchanges in flight, and so for the peers. After a failure report this rank must
    not wait for them: then the engine stays open until the process ends.
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


class _Owner:
    """Base of World and Engine: an object with a _Held until it is closed."""

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
        """Raises StateError if it is closed or belongs to another process."""
        _ = self._at

    def is_mine(self) -> bool:
        """Returns whether it is open and belongs to this process."""
        hold = self._hold
        return hold is not None and bool(hold.at) and hold.pid == os.getpid()

    @property
    def closed(self) -> bool:
        return self._hold is None or not self._hold.at

    def close(self) -> None:
        """Releases it. It is closed at once, or when the last view of its memory is no longer referenced."""
        self._hold = None

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _sockets() -> dict[int, tuple[int, int]]:
    """Returns the open sockets of this process: number -> (device, inode), which a later socket does not share."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            about = os.fstat(int(name))
            if stat.S_ISSOCK(about.st_mode):
                found[int(name)] = (about.st_dev, about.st_ino)
    return found


def _forked() -> None:
    """In a forked child: closes its copies of the run's connections. Else a peer would not notice a dead parent."""
    for world in list(_worlds):
        for number, mark in world._connections.items():
            with contextlib.suppress(OSError):
                about = os.fstat(number)
                if (about.st_dev, about.st_ino) == mark:
                    os.close(number)
        world._connections = {}


def _leave() -> None:
    """At the end of the interpreter: closes engines, then worlds. Reports an exception that ended it to the peers.

    Before that `tenants` copy their tensors out of the engines, for code that reads them even later.
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
    """Calls check() on another thread, so that signal handlers run meanwhile. If a handler raises, this function
    raises at once, and what the call opens is closed when it returns."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            check(call, *arguments)
        except BaseException as e:  # noqa: BLE001 (raised below)
            raised.append(e)

    thread = threading.Thread(target=run, name="tutti opening", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.2)  # a signal just before a wait does not end the wait
    if raised:
        raise raised[0]


class _Signals:
    """Delays signal handlers during one call of the library that may call back into Python.

    Python runs handlers as soon as it runs again, so before the first line of a callback. An exception there, such as
    KeyboardInterrupt, cannot be caught: ctypes would print and drop it, and the callback would return nothing. A
    delayed handler runs once the callback has begun (`within`), or after the call.
    """

    _HELD = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGCHLD")

    def __init__(self) -> None:
        self.within = True  # a handler may run
        self._was: dict[int, Callable[[int, Any], Any]] = {}
        self._came: list[tuple[int, Any]] = []

    def _handle(self, number: int, frame: Any) -> None:
        if self.within:
            self._was[number](number, frame)
        else:
            self._came.append((number, frame))

    def begin(self) -> None:
        """Call at the beginning of a callback, within a try: runs delayed handlers, which may raise."""
        self.within = True
        while self._came:
            number, frame = self._came.pop(0)
            self._was[number](number, frame)

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # Python runs handlers on the main thread only
        self.within = False
        try:
            for name in self._HELD:
                handler = signal.getsignal(number := getattr(signal, name))
                if callable(handler):
                    self._was[number] = handler
                    signal.signal(number, self._handle)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self.begin()
        finally:
            for number, handler in self._was.items():
                if signal.getsignal(number) == self._handle:
                    signal.signal(number, handler)


_worlds: "weakref.WeakSet[World]" = weakref.WeakSet()
tenants: "weakref.WeakSet[Any]" = weakref.WeakSet()  # their detach() is called before engines end with the interpreter
os.register_at_fork(after_in_child=_forked)
atexit.register(_leave)


# ---- the world ----
def _by_mpi(transport: str) -> bool:
    """Returns whether the transport is MPI, which has to be opened and closed by the same thread."""
    return transport.startswith("mpi") if transport else any(k.startswith(("OMPI_", "PMI", "MV2_")) for k in os.environ)


class World(_Owner):
    """The run, as this process has it: its rank and the number of ranks, from the launcher's environment (comm.h).

    transport: "shm", "tcp" or "mpi", with options; "": that of `tutti run --transport`, or the launcher's. A process
    may open several worlds, all ranks in the same order. The shared memory that `tutti run` has made is for the first
    world; later ones use tcp if transport is "".
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
        self._hold, self._folder = hold, ""
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
        return _c.tutti_world_survives(self._at)

    def lost(self, rank: int) -> str | None:
        """Returns why a rank was lost; None: it is not lost."""
        why = ctypes.create_string_buffer(256)
        return why.value.decode(errors="replace") if _c.tutti_world_lost(self._at, rank, why, len(why)) else None

    def host(self, rank: int) -> int:
        """Returns the number of a rank's host. Ranks with equal numbers share a host."""
        return _c.tutti_world_host(self._at, rank)

    def find_checkpoint(self, path: str | os.PathLike) -> str:
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
        """It stays open until the process ends: a thread is within a call of it whose end is up to the peers."""
        self._hold._above += 1

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
        if isinstance(error, Error) and getattr(error, "rank", None) is not None:
            words.status, words.rank = _abi.TUTTI_ERR_PEER, error.rank  # it fails because of that rank
        words.text = text.splitlines()[0].encode()[:479] if text.strip() else type(error).__name__.encode()
        _c.tutti_world_failure_report(self._at, words)
        if isinstance(error, (PeerError, TimeoutError)) and (path := self.flight()):
            print(f"tutti: the last events of rank {self.rank} are in {path}", file=sys.stderr, flush=True)
        self._hold.failed = True


# ---- the engine ----
@dataclass
class Param:
    """A tensor of the client (tutti_param)."""

    name: str
    shape: tuple[int, ...]
    unit: int = 0
    dtype: str = "fp32"  # of the client's memory: "fp32", "bf16" or "fp16"
    values: int | None = None  # address of the client's memory; None: the engine's memory is used
    gradient: int | None = None  # likewise
    row_sparse: bool = False
    asks_rows: bool = False


class Event(NamedTuple):
    """An event of the run, such as a skipped step or a lost worker (tutti_event_record)."""

    step: int
    kind: str
    text: str
    worker: int


class Engine(_Owner):
    """An engine: one method on one world. params: in the order in which gradients become ready.

    options: members of tutti_engine_options by name; texts as str, arrays as sequences. initial(tensor, address),
    evaluate() -> float, update(factor) and values() are callbacks, and model is a model.Stages. An exception in a
    callback is raised by the call of the engine during which the callback was called.
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

    _values = _update

    def _failed(self, e: BaseException, error: Any) -> int:
        self._signals.within = False
        self._raised = self._raised or e
        if error:
            error[0].status = _abi.TUTTI_ERR_STATE
            error[0].rank = -1
            error[0].text = (f"{type(e).__name__}: {e}").encode()[:479]
        return _abi.TUTTI_ERR_STATE

    def _calling(self, call: Callable[..., int], *arguments: object) -> bool:
        """Calls check(), and raises instead what a callback has raised meanwhile."""
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
        """Returns a view of a tensor's values in the engine, float32, which keeps the engine open."""
        return self._memory(_c.tutti_engine_values(self._at, tensor), self._count(tensor), ctypes.c_float)

    def gradient(self, tensor: int) -> ctypes.Array | None:
        """Returns a view of a tensor's gradient in the engine, float32; None: the engine has no memory for it, and
        gradients are handed over (grad_ready_from)."""
        address = _c.tutti_engine_gradient(self._at, tensor)
        return self._memory(address, self._count(tensor), ctypes.c_float) if address else None

    def handed(self) -> int:
        """Returns how many times values were handed out so far (tutti_engine_handed)."""
        return _c.tutti_engine_handed(self._at)

    def vectors(self) -> list[tuple[int, int]]:
        """Returns address and bytes of all values and of all gradients, as far as the engine has them as a whole."""
        size = ctypes.sizeof(ctypes.c_float) * self.method.n
        return [(ctypes.addressof(v.contents), size) for v in (self.method.x, self.method.g) if v]

    def gradients(self) -> ctypes.Array:
        """Returns a view of all gradients, one tensor after another."""
        return self._memory(self.method.g, self.method.layout.contents.used, ctypes.c_float)

    def firsts(self) -> list[int]:
        """Returns the index in gradients() at which each tensor begins."""
        return [self.method.layout.contents.tensor[k].first for k in range(len(self.params))]

    def client_state(self) -> ctypes.Array | None:
        """Returns a view of the client state, own_values floats; None: there is none."""
        at = _c.tutti_engine_client_state(self._at)
        return self._memory(at, self._options.own_values, ctypes.c_float) if at else None

    def _count(self, tensor: int) -> int:
        self._mine()
        if not 0 <= tensor < len(self.params):
            raise IndexError(f"tensor {tensor}; there are {len(self.params)}")
        return self.method.layout.contents.tensor[tensor].count

    # -- a step --
    def pass_begin(self) -> _abi.tutti_pass | None:
        """Begins the next pass of this step; None: the step has no more."""
        p = _abi.tutti_pass()
        return p if self._calling(_c.tutti_engine_pass_begin, self._at, p) else None

    def unit_acquire(self, unit: int, backward: bool) -> None:
        check(_c.tutti_engine_unit_acquire, self._at, unit, backward)

    def unit_release(self, unit: int, backward: bool) -> bool:
        """Returns False if the step begins again (tutti_engine_unit_release)."""
        return check(_c.tutti_engine_unit_release, self._at, unit, backward)

    @staticmethod
    def _ids(ids: Sequence[int] | ctypes.Array) -> ctypes.Array:
        return ids if isinstance(ids, ctypes.Array) else (ctypes.c_uint32 * len(ids))(*ids)

    def rows_acquire(self, tensor: int, ids: Sequence[int] | ctypes.Array) -> None:
        """Call before this pass reads these rows of a table with asks_rows. ids: ascending; an array of c_uint32."""
        check(_c.tutti_engine_rows_acquire, self._at, tensor, self._ids(ids), len(ids))

    def _announce(self, call: Callable[..., int], *arguments: object) -> None:
        at = self._at
        self._hold.under_way = True
        check(call, at, *arguments)

    def grad_ready(self, tensor: int) -> None:
        self._announce(_c.tutti_engine_grad_ready, tensor)

    def grad_ready_from(self, tensor: int, address: int, dtype: str = "fp32") -> None:
        """grad_ready, with the gradient at `address`, which is read during the call only."""
        self._announce(_c.tutti_engine_grad_ready_from, tensor, address, _DTYPES[dtype])

    def grad_ready_rows(self, tensor: int, ids: Sequence[int] | ctypes.Array) -> None:
        """grad_ready, for a table in which this pass has touched these rows only. ids: ascending."""
        self._announce(_c.tutti_engine_grad_ready_rows, tensor, self._ids(ids), len(ids))

    def grad_ready_rows_from(
        self, tensor: int, ids: Sequence[int] | ctypes.Array, address: int, dtype: str = "fp32"
    ) -> None:
        """grad_ready_rows, with the rows, one after another, at `address`, which is read during the call only."""
        self._announce(_c.tutti_engine_grad_ready_rows_from, tensor, self._ids(ids), len(ids), address, _DTYPES[dtype])

    def pass_end(self, loss_sum: float = 0.0) -> None:
        check(_c.tutti_engine_pass_end, self._at, loss_sum)

    def step(self) -> None:
        at, hold = self._at, self._hold
        try:
            self._calling(_c.tutti_engine_step, at)
        except Exception:  # the call has waited for all exchanges; an interrupt may come before the call
            hold.under_way = False
            raise
        hold.under_way = False

    def drive(self, until: int) -> None:
        """With a method that runs the passes of stages itself: trains until the run has `until` steps, and calls the
        option model meanwhile."""
        self._calling(_c.tutti_engine_drive, self._at, until)

    def lr(self, lr: float) -> None:
        """Sets the base learning rate, from the next update on."""
        check(_c.tutti_engine_lr, self._at, lr)

    def doing(self, what: int) -> int:
        """Tells the clock what the client does now (_abi.TUTTI_DOING_...), and returns what it did before."""
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
        """Returns whether the method decides how many samples a step has; 0: no; 1, 2, 3: tutti_engine_takes."""
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
        """Context in which this worker's model is replaced by the one that the workers would agree on now."""
        self.eval_begin()
        try:
            yield
        finally:
            self.eval_end()

    def apart(self) -> float:
        return _c.tutti_engine_apart(self._at)

    def swap(self) -> bool:
        return _c.tutti_engine_swap(self._at)

    def save(self, directory: str | os.PathLike, facts: str = "{}", keep: int = 0, wait: bool = True) -> None:
        """Saves a checkpoint. All ranks, between steps. facts: a JSON object that is stored in it. wait=False: returns
        when it is copied to memory, and a thread writes it. It is there after the next save(), save_end() or finish(),
        which raise what has failed."""
        call = _c.tutti_engine_save if wait else _c.tutti_engine_save_begin
        self._calling(call, self._at, os.fsencode(directory), facts.encode(), keep)

    def save_end(self) -> None:
        """Waits for the checkpoint of save(wait=False), if one is under way. All ranks, between steps."""
        check(_c.tutti_engine_save_end, self._at)

    def saves(self) -> dict[str, int | bool]:
        """Returns figures of save(wait=False) on this rank: tutti_saves."""
        s = _abi.tutti_saves()
        _c.tutti_engine_saves(self._at, s)
        return {name: getattr(s, name) for name, _ in s._fields_}

    def load(self, checkpoint: str | os.PathLike) -> None:
        """Loads every declared state from a checkpoint. All ranks, before the first pass."""
        at = ctypes.c_void_p()
        check(_c.tutti_checkpoint_open, at, _c.tutti_world_runtime(self.world._at), os.fsencode(checkpoint))
        try:
            self._calling(_c.tutti_engine_load, self._at, at)
        finally:
            _c.tutti_checkpoint_close(at)

    def state(self) -> list[_abi.tutti_saved]:
        """Returns this rank's declared state, with addresses that are valid until the next call. Between steps. If
        the method has services all ranks must call it."""
        at, n = ctypes.POINTER(_abi.tutti_saved)(), ctypes.c_size_t()
        self._calling(_c.tutti_engine_state, self._at, at, n)
        return [at[k] for k in range(n.value)]

    def state_written(self) -> None:
        """Call when the client has written all that state() returned. All ranks, before the first pass."""
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
        """Returns the events, oldest first, from number `first` on."""
        at = ctypes.POINTER(_abi.tutti_event_record)()
        n = _c.tutti_engine_events(self._at, at)
        return [
            Event(e.step, e.kind.decode(), e.text.decode(errors="replace"), e.worker)
            for e in (at[k] for k in range(first, n))
        ]

    def metrics(self) -> list[tuple[str, int, float, int]]:
        """Returns (name, worker, value, at) of each figure that the method has reported."""
        at = ctypes.POINTER(_abi.tutti_metric_record)()
        n = _c.tutti_engine_metrics(self._at, at)
        return [(m.name.decode(), m.worker, m.value, m.at) for m in (at[k] for k in range(n))]

    def payload(self) -> list[int] | None:
        """Returns the bytes to which each tensor's gradients were encoded in this process; None: no codec."""
        at = _c.tutti_engine_payload(self._at)
        return [at[k] for k in range(len(self.params))] if at else None
