"""DistributedDataParallel: torch's, with Tutti's methods and codecs between the backward and the optimiser.

A backward that goes through this module's forward takes part in a step of the engine. The first gradient that becomes
final begins it. Each is handed over as it comes, so the exchange of the first ones overlaps with the rest of the
backward. When the backward is over the engine ends the step, and `.grad` has what was exchanged. The user's optimiser
does the rest, as without this module.

**Used parameters.** A worker without a gradient of a parameter counts as zero. If no worker has one, `.grad` stays as
it was, and the workers have to agree on that. They do so without a message: if the exchanged gradient of a tensor has
one element that is not zero, some worker used it, and all workers see the same. Only where all elements are zero do
they ask each other, by one small reduction.
"""

import contextlib
import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import torch
from torch import nn
from torch.autograd import Variable
from torch.nn.parallel import DistributedDataParallel as _Torch

from .. import _abi
from .._library import library as _c
from ..errors import Error, StateError
from . import _place
from ._bind import Binding, warn_unused
from ._buffers import Copies
from ._cuda import exchange_of
from ._runs import weakly

# Arguments of torch's class that have no meaning here: what to do instead. Their defaults are
# accepted.
_TORCH = {
    "device_ids": (None, "the module's own device is used; leave device_ids out"),
    "output_device": (None, "outputs stay where the module makes them; leave output_device out"),
    "dim": (0, "nothing is scattered over devices of one process; leave dim out"),
    "init_sync": (True, "all workers begin with rank 0's parameters; leave init_sync out"),
    "process_group": (None, "Tutti's workers are those of the launcher, not a process group; leave process_group out"),
    "bucket_cap_mb": (None, "the method determines how much is exchanged at once; leave bucket_cap_mb out"),
    "bucket_cap_mb_list": (None, "the method determines how much is exchanged at once; leave bucket_cap_mb_list out"),
    "delay_all_reduce_named_params": (None, "gradients are exchanged as they come; leave it out"),
    "param_to_hook_all_reduce": (None, "gradients are exchanged as they come; leave it out"),
    "mixed_precision": (None, "wrap a module that is bfloat16 already, or use torch.autocast"),
    "device_mesh": (None, "Tutti's workers are those of the launcher, not a device mesh; leave device_mesh out"),
    "skip_all_reduce_unused_params": (False, "unused parameters are found in each backward; leave it out"),
}
# These promise or hint something that is found out here anyway: any value is accepted.
_NEEDLESS = ("find_unused_parameters", "static_graph", "check_reduction", "batched_grad_copy")

_NOT_PICKLED = (
    "a DistributedDataParallel has a world and an engine, which cannot be pickled or copied; "
    "take its module (ddp.module) or its state_dict()"
)


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The engine's options among the keywords, after torch's were looked at."""
    engine = {name for name, _ in _abi.tutti_engine_options._fields_}
    # what a module that trains with an optimiser of torch's has no use for
    engine -= {"user", "initial", "evaluate", "update", "optimizer", "lr_schedule", "loss_scale", "own_values"}
    engine -= {"batch", "accumulate", "batch_of", "parts", "data_samples", "servers", "fingerprint", "nonfinite"}
    engine -= {"whole_batches"}
    options = {}
    for name, value in given.items():
        if name in _TORCH:
            usual, instead = _TORCH[name]
            if value is not usual and value != usual and not (name == "device_ids" and value == []):
                raise ValueError(f"DistributedDataParallel: {name}={value!r}: {instead}")
        elif name in engine:
            options[name] = value
        elif name not in _NEEDLESS:
            near = difflib.get_close_matches(name, [*engine, *_TORCH, *_NEEDLESS], 3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise TypeError(f"DistributedDataParallel: there is no argument '{name}'{hint}")
    return options


def _tensors(of: object) -> Iterator[torch.Tensor]:
    """The tensors in what a forward has returned."""
    if isinstance(of, torch.Tensor):
        yield of
    elif isinstance(of, Mapping):
        for value in of.values():
            yield from _tensors(value)
    elif isinstance(of, (list, tuple)):
        for value in of:
            yield from _tensors(value)
    elif dataclasses.is_dataclass(of) and not isinstance(of, type):
        for field in dataclasses.fields(of):
            yield from _tensors(getattr(of, field.name, None))


class _Join:
    """Within join(): which workers still have inputs, as of the last forward."""

    def __init__(self, by_all: bool, throw: bool):
        self.by_all, self.throw = by_all, throw
        self.active: list[int] = []


class DistributedDataParallel(nn.Module):
    """Trains `module` on all workers of the run: gradients are exchanged during backward, by a method of Tutti's.

    It stands in the place of torch.nn.parallel.DistributedDataParallel and takes its arguments, where they mean
    something here. The process finds its place among the workers in its launcher's environment. No process group of
    torch's is made or needed.

    method: one that exchanges gradients: "ddp", "powersgd(rank=4)" ... (`tutti methods`). Others need the optimiser
        too: tutti.torch.prepare.
    codec: what gradients are encoded with: "ef(topk(ratio=0.01))".
    transport: "shm", "tcp", "mpi"; None: by the launcher.
    broadcast_buffers: rank 0's buffers come to all before a forward that follows one in training.
        forward_sync_buffers is the same by torch's newer name; with False they still come to all once, here.
    gradient_as_bucket_view: `.grad` of a float32 parameter is a view of the engine's memory, and the next backward
        writes there. False: it has memory of its own, for one more copy.
    options: those of the engine by their names (tutti_engine_options): collective, codec_checksum, seed, clip_norm ...

    Raises ValueError for a spec or a module that cannot be, PeerError(rank) from forward or backward when a worker is
    gone.
    """

    def __init__(
        self,
        module: nn.Module,
        method: str = "ddp",
        *,
        codec: str | None = None,
        transport: str | None = None,
        broadcast_buffers: bool = True,
        forward_sync_buffers: bool | None = None,
        gradient_as_bucket_view: bool = True,
        **options: Any,
    ):
        if not isinstance(method, str):
            raise TypeError(
                f"DistributedDataParallel: method={method!r}; the second argument is the method's spec, such as 'ddp'; "
                "device_ids are not needed"
            )
        options = _options(options)
        super().__init__()
        self.module = module
        self.broadcast_buffers = broadcast_buffers if forward_sync_buffers is None else forward_sync_buffers
        self.require_backward_grad_sync = True
        self._ignored = frozenset(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self._binding = Binding(module, self._ignored)
        exchange = exchange_of(self._binding)
        self._send_buffers = True  # before the next forward
        self._hooks: list[Any] = []
        self._open(exchange, method, codec, transport or "", gradient_as_bucket_view, options)

        others = [p for _, p in self._binding.frozen]
        if broadcast_buffers or forward_sync_buffers is not None:
            others += [b for _, b in self._binding.buffers()]
        self._copies.broadcast(others)

        self._hooks = [
            b.param.register_post_accumulate_grad_hook(weakly(self._final, b.index)) for b in self._binding.bound
        ]

    def _open(self, exchange: type, method: str, codec: str | None, transport: str, views: bool, options: dict) -> None:
        binding = self._binding
        self.world = _place.open_world(transport)
        try:
            self.engine = _place.open_engine(
                self.world,
                binding.params(),
                transport,
                method=method,
                codec=codec,
                optimizer="client",
                once=True,  # a backward is the caller's, and is not asked for again
                initial=binding.initial,
                fingerprint=binding.fingerprint(),
                nonfinite=_abi.TUTTI_NONFINITE_KEEP,  # the optimiser or its GradScaler says what becomes of them
                **options,
            )
        except BaseException as e:
            world = self.__dict__.pop("world")
            _place.give_up(world, e)
            raise
        binding.attach(self.engine)
        self._copies = Copies(self.world)
        self._exchange = exchange(binding, self.engine, views)
        # Alone, and nothing on the way that would change a gradient: a backward has nothing to do.
        coded = _c.tutti_exchange_codec(self.engine.method) is not None
        self._alone = self.world.size == 1 and not coded and not options.get("clip_norm")
        self.bucket_bytes_cap = max(self.engine.method.piece_bytes, 1 << 20)
        n = len(binding.bound)
        self._flat = torch.frombuffer(self.engine.gradients(), dtype=torch.float32)
        self._firsts = self.engine.firsts()
        self._probe = torch.tensor(self._firsts)  # of each tensor the place of an element that was not zero lately
        self._taken = bytearray(n)  # in this backward
        self._used = bytearray(n)  # since the last exchange: by those without one as well
        self._armed = False  # a forward wants its backward exchanged
        self._task: int | None = None  # the backward (graph task) that has come through an output
        self._active = False  # the engine is within a pass
        self._failure: Error | None = None
        self._outer: Any = None
        self._told_unused = False
        self._looked = False  # whether torch.distributed says the same place as the launcher
        self._join: _Join | None = None

    # ---- forward ----
    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        # torch.compile compiles what stands between the two calls, which it leaves alone
        self._before()
        output = self.module(*inputs, **kwargs)
        self._after(output)
        return output

    @torch.compiler.disable
    def _before(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._active and torch._C._current_graph_task_id() == -1:
            self._fail(
                StateError(
                    "the last backward of this module did not come to its end, so this worker is no longer at the "
                    "same step as the others; an exception in a backward ends a run"
                )
            )
        self._binding.check_module()
        self._binding.check_frozen()
        if not self._looked:
            self._looked = True
            _place.check(self.world)
        sync = torch.is_grad_enabled() and self.require_backward_grad_sync
        send = self._send_buffers and self.broadcast_buffers
        self._send_buffers = sync  # as torch: not again before a forward in training
        root = self._meet(sync, send) if self._join is not None else 0
        if send:
            self._copies.broadcast([b for _, b in self._binding.buffers()], root)
        # torch.compile cuts its graphs where gradients are exchanged, as it does for torch's class
        self._outer, _Torch._active_ddp_module = _Torch._active_ddp_module, self

    @torch.compiler.disable
    def _after(self, output: object) -> None:
        """The backward of this forward is to be exchanged, if it is not within no_sync()."""
        _Torch._active_ddp_module, self._outer = (None if self._outer is self else self._outer), None
        if self._alone or not torch.is_grad_enabled():
            return
        self._armed = self.require_backward_grad_sync
        if self._armed:
            for t in _tensors(output):
                if t.grad_fn is not None:
                    t.grad_fn.register_prehook(weakly(self._through))

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it a forward's backward only accumulates. The next one outside exchanges the sums."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    # ---- backward ----
    def _through(self, _grads: object) -> None:
        """A backward has come to an output of the forward. That is before any gradient below it."""
        task = torch._C._current_graph_task_id()
        if self._task != task and not self._active:
            self._task = task
            Variable._execution_engine.queue_callback(self._end)

    def _final(self, tensor: int, _param: torch.Tensor) -> None:
        """The gradient of a parameter is final in this backward."""
        b = self._binding.bound[tensor]
        if self._alone:
            return
        self._used[b.index] = 1
        if not self._active:
            if not self._armed and self._task is None:
                return  # within no_sync, or the backward of another forward than ours
            self._begin()
        if self._taken[b.index]:
            self._fail(
                StateError(
                    f"parameter '{b.name}' got its gradient twice in one backward, and the first may be exchanged "
                    "already; of a checkpointed layer that is used twice this is so with use_reentrant=True: use False"
                )
            )
        grad = b.param.grad
        if grad.requires_grad:
            self._fail(
                StateError(
                    "backward(create_graph=True): gradients are exchanged as numbers and have no graph; compute "
                    "them by torch.autograd.grad(..., create_graph=True) and call backward without it"
                )
            )
        if grad.layout not in (torch.strided, torch.sparse_coo):
            self._fail(
                StateError(
                    f"the gradient of '{b.name}' is {grad.layout}; dense and sparse_coo ones can be exchanged"
                )
            )
        self._taken[b.index] = 1
        with self._failing(), torch.no_grad():
            self._exchange.take(b)

    def _begin(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._task is None:
            Variable._execution_engine.queue_callback(self._end)
        self._active = True
        with self._failing():
            self._exchange.begin()

    def _end(self) -> None:
        """The backward is over."""
        self._task = None
        if self._active and self._failure is None:
            with self._failing(), torch.no_grad():
                self._finish()
            self._active = self._armed = False

    def _finish(self) -> None:
        """Ends the step and gives each parameter its gradient."""
        bound, missing = self._binding.bound, ()
        kept: dict[int, torch.Tensor] = {}
        if 0 in self._taken:
            missing = [b for b in bound if not self._taken[b.index]]
            for b in missing:  # what an earlier backward has left in .grad counts, as it does under torch
                if b.param.grad is not None:
                    if b.lies_in(b.param.grad):
                        kept[b.index] = b.g.clone()
                    self._exchange.take(b)
        self._exchange.end()
        nobodys = self._used_by_nobody()
        for b in bound:
            if b.index not in nobodys:
                self._exchange.give(b)
            elif b.index in kept:
                b.g.copy_(kept[b.index])
        if missing and not self._told_unused:
            self._told_unused = True
            warn_unused([b.name for b in missing])
        n = len(bound)
        self._taken, self._used = bytearray(n), bytearray(n)

    def _used_by_nobody(self) -> frozenset[int]:
        """The same on all workers: see the head of this file."""
        zero = (self._flat[self._probe] == 0).nonzero().flatten().tolist()
        suspects = []
        for k in zero:
            first = self._firsts[k]
            other = self._flat[first : first + self._binding.bound[k].param.numel()] != 0
            at = int(other.to(torch.uint8).argmax())
            if other[at]:
                self._probe[k] = first + at
            else:
                suspects.append(k)
        if self._join is not None and not self._join.by_all:
            self._flat.mul_(self.world.size / len(self._join.active))
        if not suspects:
            return frozenset()
        used = self.world.reduce([float(self._used[k]) for k in suspects], "max")
        return frozenset(k for k, by in zip(suspects, used, strict=True) if by == 0)

    def lr(self, lr: float) -> None:
        """The learning rate from the next step on, for what depends on it: "accordion", "alq", the codec "ef"."""
        self.engine.lr(lr)

    # ---- checkpoints ----
    def save(self, directory: str, *, keep: int = 0) -> None:
        """A checkpoint of parameters and method by all workers, between a step and the next forward. Buffers and the
        optimizer are not in it: their state_dict() is torch's. The newest `keep` checkpoints stay (0: all)."""
        self._binding.check_module()
        self._binding.collect()
        with self._failing():
            self.engine.save(directory, keep=keep)

    def load(self, directory: str) -> None:
        """Resumes from a checkpoint, or from the newest in that directory: all workers, before the first backward."""
        with self._failing():
            self.engine.load(self.world.find_checkpoint(directory))
        self._binding.hand_out()

    # ---- failures ----
    def _fail(self, error: Error) -> NoReturn:
        self._failure = error
        raise error

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """A failure of the engine is final: later calls fail with the same sentence."""
        try:
            yield
        except Error as e:
            self._failure = e
            raise

    # ---- workers with unequal numbers of inputs ----
    def _meet(self, sync: bool, send: bool) -> int:
        """All workers, before a forward of those that have inputs. Returns the rank whose buffers count."""
        join = self._join
        n = self.world.size
        said = self.world.reduce([float(r == self.world.rank) for r in range(n)] + [float(sync), float(send)])
        join.active = [r for r in range(n) if said[r] > 0]
        if join.throw and len(join.active) < n:
            self._early()
        return join.active[-1]

    @staticmethod
    def _early() -> NoReturn:
        raise RuntimeError("a worker has no more inputs; all leave (throw_on_early_termination)")

    @contextlib.contextmanager
    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Iterator[None]:
        """For a loop over unequal numbers of inputs. A worker whose loop is over takes part with zeros until all are.

        The arguments are those of torch's join: gradients are divided by the number of all workers, or else by that
        of those that still have inputs. At the end all have the model and the buffers of one that came last.
        """
        if not enable or self.world.size == 1:
            yield
            return
        self._join = join = _Join(divide_by_initial_world_size, throw_on_early_termination)
        try:
            yield
            n, last = self.world.size, join.active
            while True:
                said = self.world.reduce([0.0] * (n + 2))
                join.active = [r for r in range(n) if said[r] > 0]
                if not join.active:
                    break
                if join.throw:
                    self._early()
                last = join.active
                if said[n + 1] > 0:
                    self._copies.broadcast([b for _, b in self._binding.buffers()], last[-1])
                if said[n] > 0:
                    self._shadow()
            if last:
                self._last_model(last[-1])
        finally:
            self._join = None

    def _shadow(self) -> None:
        """A step without inputs of this worker."""
        with self._failing(), torch.no_grad():
            self._exchange.begin()
            self._exchange.end()
            self._used = bytearray(len(self._binding.bound))
            self._used_by_nobody()

    def _last_model(self, root: int) -> None:
        tensors = [p.data for p in self.module.parameters()]
        if self.broadcast_buffers:
            tensors += [b for _, b in self._binding.buffers()]
        Copies(self.world).broadcast(tensors, root)

    # ---- the module ----
    @property
    def rank(self) -> int:
        return self.world.rank

    @property
    def world_size(self) -> int:
        return self.world.size

    def _apply(self, fn: Any, recurse: bool = True) -> "DistributedDataParallel":
        """to(), half(), cuda() ...: what leaves parameters as they are is allowed."""
        for dtype, device in {(p.dtype, p.device) for p in self.module.parameters()}:
            new = fn(torch.empty(0, dtype=dtype, device=device))
            if new.dtype != dtype or new.device != device:
                raise StateError(
                    "the parameters of a DistributedDataParallel lie in its engine; change the type or the device of "
                    "the module before it is wrapped"
                )
        return self

    def close(self) -> None:
        """Leaves the run, in order. Parameters and gradients have memory of their own from here on. A wrapper that
        is no longer referenced leaves by itself."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._flat = torch.empty(0)
        self._exchange.close()
        self._binding.detach()
        self.engine.close()
        self.world.close()

    def __del__(self) -> None:
        world = self.__dict__.get("world")
        if world is None or world.closed:
            return
        try:
            world._mine()
        except StateError:  # of the process that this one was forked from
            return
        if self._active or self._failure is not None:
            words = StateError(f"rank {world.rank} has dropped its wrapper within a backward")
            world.failure_report(self._failure or words)
        self.close()

    def __reduce_ex__(self, protocol: int) -> NoReturn:
        raise TypeError(_NOT_PICKLED)

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise TypeError(_NOT_PICKLED)

    def __getstate__(self) -> NoReturn:
        raise TypeError(_NOT_PICKLED)
