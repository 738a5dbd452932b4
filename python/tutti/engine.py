"""World and engine: the C library's API (comm.h, tutti.h), with a method for each function. World is in world.py.

Calls block where the headers say so; other Python threads run meanwhile. Calls of one engine must not overlap. An open
object is closed when it is no longer referenced, at the latest when the interpreter ends (_owner.py). Memory of an
engine is returned as views, and each view keeps the engine and its world open, so memory that can still be read is
never freed.
"""

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import _abi
from ._library import library as _c
from ._library import members
from ._owner import Held, Owner
from ._signals import Signals
from .errors import check
from .model import Stages, described
from .world import World

__all__ = ["Engine", "Event", "Param", "World"]

_DTYPES = {"fp32": 0, "bf16": 1, "fp16": 2}  # tutti_dtype


def _text(value: object) -> bytes | None:
    return None if value is None else os.fsencode(str(value))


@dataclass
class Param:
    """A tensor of the client (tutti_param)."""

    name: str
    shape: tuple[int, ...]
    unit: int = 0  # layer group, from the input: 0, 1, ...
    dtype: str = "fp32"  # of the client's memory: "fp32", "bf16" or "fp16"
    values: int | None = None  # address of the client's memory; None: the engine's memory is used
    gradient: int | None = None  # likewise
    row_sparse: bool = False  # a table; a pass has gradients of some of its rows
    asks_rows: bool = False  # a pass names the rows that it will read (rows_acquire)


class Event(NamedTuple):
    """An event of the run, such as a skipped step or a lost worker (tutti_event_record)."""

    step: int
    kind: str
    text: str
    worker: int


class Engine(Owner):
    """An engine: one method on one world. params: in the order in which gradients become ready.

    options: members of tutti_engine_options by name; texts as str, arrays as sequences. initial(tensor, address),
    evaluate() -> float, update(factor), values() and commit(step) -> bool are callbacks, and model is a model.Stages.
    An exception in a callback is raised by the call of the engine during which the callback was called.

    A method here without a docstring, NAME, is tutti_engine_NAME of tutti.h.
    """

    def __init__(self, world: World, params: Sequence[Param], **options: Any):
        self._raised: BaseException | None = None  # the first exception of a callback during this call of the engine
        self._kept: list[object] = []  # what the options point to, as long as the engine may read it
        self._signals = Signals()  # of this call of the engine
        self._calls_back = any(callable(value) or isinstance(value, Stages) for value in options.values())
        self._options = self._options_of(options)
        hold = Held(_c.tutti_engine_close, world._hold)
        self.world = world
        self.params: list[Param] = list(params)
        self._calling(_c.tutti_engine_open, hold.at, world._at, self._params_of(params), len(params), self._options)
        self._hold = hold
        self._method: _abi.tutti_method = _c.tutti_engine_method(hold.at).contents
        self.workers: int = self._method.workers
        self.rank: int = self._method.rank

    @property
    def method(self) -> _abi.tutti_method:
        """The method's struct, memory of the engine until it is closed."""
        self._mine()
        return self._method

    # -- opening --
    @staticmethod
    def _params_of(params: Sequence[Param]) -> ctypes.Array[_abi.tutti_param]:
        kinds = members(_abi.tutti_param)
        array = (_abi.tutti_param * max(len(params), 1))()
        for to, p in zip(array, params, strict=False):
            shape = tuple(p.shape) or (1,)
            to.name, to.dims, to.unit = _text(p.name), min(len(shape), 4), p.unit
            to.row_sparse, to.asks_rows = p.row_sparse, p.asks_rows
            for k, d in enumerate(shape[:4]):
                to.dim[k] = d
            for d in shape[4:]:  # tutti_param has four; a tensor is a matrix of the first by all others
                to.dim[3] *= d
            for member in ("values", "gradient"):
                address = getattr(p, member)
                if address is not None:
                    setattr(to, member, ctypes.cast(ctypes.c_void_p(address), kinds[member]))
            if p.dtype != "fp32":
                to.dtype = _DTYPES[p.dtype]
        return array

    def _options_of(self, options: Mapping[str, Any]) -> _abi.tutti_engine_options:
        kinds = members(_abi.tutti_engine_options)
        o = _abi.tutti_engine_options()
        for name, value in options.items():
            if name not in kinds or name == "user":
                raise TypeError(f"Engine: there is no option '{name}'")
            if value is None:
                continue
            if callable(value):  # by the method here that makes a function for C of it: _initial, _evaluate ...
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

    # Each of these makes a function of type `kind` for C, which calls `function`. C cannot pass an
    # exception on: _calling() raises it when the call of the engine has returned.
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
        """Returns a function with the arguments and the result of a callback that can fail: (user, ..., error)."""

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

    def _commit(self, kind: type, function: Callable[[int], bool]) -> object:
        def call(_user: object, step: int) -> bool:
            try:
                self._signals.begin()
                return function(step)
            except BaseException as e:  # noqa: BLE001 (raised again by the call that led here)
                self._raised = self._raised or e
                return False
            finally:
                self._signals.within = False

        return kind(call)

    def _update(self, kind: type, function: Callable[[float], None]) -> object:
        return kind(self._guarded(function))

    _values = _update  # the option values, which has no arguments; not values() below

    def _failed(self, e: BaseException, error: Any) -> int:
        """Keeps the exception, and returns it to C as a status and a text."""
        self._signals.within = False
        self._raised = self._raised or e
        if error:
            error[0].status = _abi.TUTTI_ERR_STATE
            error[0].rank = -1
            error[0].text = (f"{type(e).__name__}: {e}").encode()[: _abi.tutti_error.text.size - 1]
        return _abi.TUTTI_ERR_STATE

    def _calling(self, call: Callable[..., int], *arguments: object) -> bool:
        """Calls check(), and raises instead what a callback has raised meanwhile."""
        try:
            if not self._calls_back:
                return check(call, *arguments)
            self._signals = Signals()
            with self._signals:
                return check(call, *arguments)
        finally:
            raised, self._raised = self._raised, None
            if raised is not None:
                raise raised

    # -- its memory --
    def _memory(self, address: Any, count: int) -> ctypes.Array[ctypes.c_float]:
        if not address:
            raise ValueError(
                f"rank {self.rank} has no such memory now: it only serves, or its method holds it in pieces"
            )
        memory = (ctypes.c_float * count).from_address(ctypes.addressof(address.contents))
        setattr(memory, "_hold", self._hold)  # the engine stays while this can be read
        return memory

    def values(self, tensor: int) -> ctypes.Array[ctypes.c_float]:
        """Returns a view of a tensor's values in the engine, float32, which keeps the engine open."""
        return self._memory(_c.tutti_engine_values(self._at, tensor), self._count(tensor))

    def gradient(self, tensor: int) -> ctypes.Array[ctypes.c_float] | None:
        """Returns a view of a tensor's gradient in the engine, float32; None: the engine has no memory for it, and
        gradients are handed over (grad_ready_from)."""
        address = _c.tutti_engine_gradient(self._at, tensor)
        return self._memory(address, self._count(tensor)) if address else None

    def handed(self) -> int:
        """Returns how many times values were handed out so far (tutti_engine_handed)."""
        return int(_c.tutti_engine_handed(self._at))

    def vectors(self) -> list[tuple[int, int]]:
        """Returns address and bytes of all values, and of all gradients, each if the engine has them in one piece."""
        self._mine()
        size = ctypes.sizeof(ctypes.c_float) * self.method.n
        return [(ctypes.addressof(v.contents), size) for v in (self.method.x, self.method.g) if v]

    def gradients(self) -> ctypes.Array[ctypes.c_float]:
        """Returns a view of all gradients, one tensor after another."""
        self._mine()
        return self._memory(self.method.g, self.method.layout.contents.used)

    def firsts(self) -> list[int]:
        """Returns the index in gradients() at which each tensor begins."""
        self._mine()
        return [self.method.layout.contents.tensor[k].first for k in range(len(self.params))]

    def client_state(self) -> ctypes.Array[ctypes.c_float] | None:
        """Returns a view of the client state, own_values floats; None: there is none."""
        at = _c.tutti_engine_client_state(self._at)
        return self._memory(at, self._options.own_values) if at else None

    def _count(self, tensor: int) -> int:
        """Returns the number of elements of a tensor."""
        self._mine()
        if not 0 <= tensor < len(self.params):
            raise IndexError(f"tensor {tensor}; there are {len(self.params)}")
        return int(self.method.layout.contents.tensor[tensor].count)

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
    def _ids(ids: Sequence[int] | ctypes.Array[ctypes.c_uint32]) -> ctypes.Array[ctypes.c_uint32]:
        return ids if isinstance(ids, ctypes.Array) else (ctypes.c_uint32 * len(ids))(*ids)

    def rows_acquire(self, tensor: int, ids: Sequence[int] | ctypes.Array[ctypes.c_uint32]) -> None:
        """Call before this pass reads these rows of a table with asks_rows. ids: ascending; an array of c_uint32."""
        check(_c.tutti_engine_rows_acquire, self._at, tensor, self._ids(ids), len(ids))

    def _announce(self, call: Callable[..., int], *arguments: object) -> None:
        """Calls a function of the engine that announces a gradient. Its exchange may begin with it."""
        hold = self._mine()
        hold.under_way = True  # until step() has waited for all exchanges: see Held
        check(call, hold.at, *arguments)

    def grad_ready(self, tensor: int) -> None:
        self._announce(_c.tutti_engine_grad_ready, tensor)

    def grad_ready_from(self, tensor: int, address: int, dtype: str = "fp32") -> None:
        """grad_ready, with the gradient at `address`, which is read during the call only."""
        self._announce(_c.tutti_engine_grad_ready_from, tensor, address, _DTYPES[dtype])

    def grad_ready_rows(self, tensor: int, ids: Sequence[int] | ctypes.Array[ctypes.c_uint32]) -> None:
        """grad_ready, for a table in which this pass has touched these rows only. ids: ascending."""
        self._announce(_c.tutti_engine_grad_ready_rows, tensor, self._ids(ids), len(ids))

    def grad_ready_rows_from(
        self, tensor: int, ids: Sequence[int] | ctypes.Array[ctypes.c_uint32], address: int, dtype: str = "fp32"
    ) -> None:
        """grad_ready_rows, with the rows, one after another, at `address`, which is read during the call only."""
        self._announce(_c.tutti_engine_grad_ready_rows_from, tensor, self._ids(ids), len(ids), address, _DTYPES[dtype])

    def pass_end(self, loss_sum: float = 0.0) -> None:
        check(_c.tutti_engine_pass_end, self._at, loss_sum)

    def step(self) -> None:
        hold = self._mine()
        try:
            self._calling(_c.tutti_engine_step, hold.at)
        except Exception:  # raised by the call, which has waited for all exchanges
            # KeyboardInterrupt and the like are no Exception: they may come before the call
            hold.under_way = False
            raise
        hold.under_way = False

    def drive(self, until: int) -> None:
        """With a pipeline-schedule method, which runs the passes by itself: trains until the run has `until` steps, and
        calls the stages of the option `model` meanwhile."""
        self._calling(_c.tutti_engine_drive, self._at, until)

    def lr(self, lr: float) -> None:
        """Sets the base learning rate, from the next update on."""
        check(_c.tutti_engine_lr, self._at, lr)

    def doing(self, what: int) -> int:
        """Tells the clock what the client does now (_abi.TUTTI_DOING_...), and returns what it did before."""
        return int(_c.tutti_engine_doing(self._at, what))

    # -- is there another? --
    def _more(self, call: Callable[..., int], until: int) -> bool:
        more = ctypes.c_bool()
        self._calling(call, self._at, until, more)
        return more.value

    def more(self, until: int) -> bool:
        """Returns whether there is another step before the run has `until` steps (asynchronous: gradients)."""
        return self._more(_c.tutti_engine_more, until)

    def more_epochs(self, epochs: int) -> bool:
        return self._more(_c.tutti_engine_more_epochs, epochs)

    def more_samples(self, samples: int) -> bool:
        return self._more(_c.tutti_engine_more_samples, samples)

    def ended(self) -> bool:
        """Returns whether the method has ended the run before it had what more() was asked for."""
        return bool(_c.tutti_engine_ended(self._at))

    # -- shares of the batch --
    def reshare(self, batch_of: Sequence[int]) -> None:
        """Gives the workers new shares of the batch. All ranks, between steps; the sum stays."""
        check(_c.tutti_engine_reshare, self._at, (ctypes.c_int64 * len(batch_of))(*batch_of))

    def takes(self) -> int:
        """Returns 0 if each step has `batch` samples; else the method decides how many: 1, 2, 3 of
        tutti_engine_takes."""
        return int(_c.tutti_engine_takes(self._at))

    def share(self) -> _abi.tutti_share:
        """Returns the shares as they are now. What it points to is the engine's."""
        found: _abi.tutti_share = _c.tutti_engine_share(self._at).contents
        return found

    def round_begins(self) -> bool:
        """Returns whether a round of local steps of a logical share begins with this pass."""
        return bool(_c.tutti_engine_round_begins(self._at))

    # -- the model --
    def finish(self) -> None:
        """Makes the final model, equal on all workers. Other workers must call it, too."""
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
        """Within shown(), and after finish(): the distance of this worker's own model from the common one. Overwrites
        gradients."""
        return float(_c.tutti_engine_apart(self._at))

    def swap(self) -> bool:
        """Within shown(), and after finish(): puts this worker's own model in place of the common one, or back. False:
        nothing was done, since they are equal. Overwrites gradients."""
        return bool(_c.tutti_engine_swap(self._at))

    def save(self, directory: str | os.PathLike[str], facts: str = "{}", keep: int = 0, wait: bool = True) -> None:
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
        return {name: getattr(s, name) for name in members(_abi.tutti_saves)}

    def load(self, checkpoint: str | os.PathLike[str]) -> None:
        """Loads every declared state from a checkpoint. All ranks, before the first pass."""
        at = ctypes.c_void_p()
        check(_c.tutti_checkpoint_open, at, _c.tutti_world_runtime(self.world._at), os.fsencode(checkpoint))
        try:
            self._calling(_c.tutti_engine_load, self._at, at)
        finally:
            _c.tutti_checkpoint_close(at)

    def whole(self) -> int | None:
        """Returns after how many steps its state is; None: it is within a step, whose update has begun if there is
        `commit`."""
        step = ctypes.c_uint64()
        return step.value if _c.tutti_engine_whole(self._at, step) else None

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
        return bool(_c.tutti_engine_fault_tolerant(self._at))

    def has(self, worker: int) -> bool:
        """Returns whether this worker still takes part."""
        return bool(_c.tutti_engine_has(self._at, worker))

    def part(self) -> None:
        """Leaves the other ranks: waits until all are done, so that none takes another's end for a loss."""
        check(_c.tutti_engine_part, self._at)

    # -- figures --
    def figures(self) -> dict[str, int | float]:
        """Returns what tutti_figures has of this rank, but the histogram of staleness."""
        f = _abi.tutti_figures()
        _c.tutti_engine_figures(self._at, f)
        return {name: getattr(f, name) for name in members(_abi.tutti_figures) if name != "staleness"}

    def heard(self) -> dict[str, int | float]:
        """Returns what worker 0 has received about the current phase of more() (tutti_engine_received)."""
        h = _abi.tutti_received()
        _c.tutti_engine_received(self._at, h)
        return {name: getattr(h, name) for name in members(_abi.tutti_received)}

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
