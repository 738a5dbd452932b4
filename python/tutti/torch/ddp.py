"""DistributedDataParallel: torch's, with Tutti's methods and codecs between the backward and the optimiser.

A backward that goes through this module's forward takes part in a step of the engine. The first gradient that becomes
final begins it. Each is handed over as it comes, so the exchange of the first ones overlaps with the rest of the
backward. When the backward is over the engine ends the step, and `.grad` has what was exchanged. The user's optimiser
does the rest, as without this module. The backward is in _backward.py, join() in _join.py.
"""

import functools
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, SupportsIndex

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as _Torch

from .. import _abi
from .._library import library as _c
from ..engine import Engine
from ..errors import Error, StateError
from ..world import World
from . import _arguments, _codec, _described, _local, _log_to, _logged, _place, _preempt, _record
from ._backward import Joining
from ._bind import Binding, Exchange
from ._buffers import Copies
from ._cuda import exchange_of
from ._join import Joins
from ._runs import weakly

_NOT_PICKLED = (
    "a DistributedDataParallel has a world and an engine, which cannot be pickled or copied; "
    "take its module (ddp.module) or its state_dict()"
)


class DistributedDataParallel(Joins):
    """Trains `module` on all workers of the run: gradients are exchanged during backward, by a method of Tutti's.

    It is torch.nn.parallel.DistributedDataParallel to all that ask isinstance, and takes its arguments in its order.
    One warning names those without effect here; docs/PYTORCH.md has each. The process finds its place among the
    workers in its process group, or without one in its launcher's environment.

    method: one that exchanges gradients: "ddp", "powersgd(rank=4)" ... (`tutti methods`). Others need the optimiser
        too: tutti.torch.prepare. It may also be the second positional argument.
    codec: what gradients are encoded with: "ef(topk(ratio=0.01))".
    transport: "shm", "tcp", "mpi"; None: by the launcher.
    broadcast_buffers: rank 0's buffers come to all before a forward that follows one in training.
        forward_sync_buffers is the same by torch's newer name; with False they still come to all once, here.
    process_group: the workers are its ranks. None: all of torch.distributed, or of the launcher.
    device_ids: inputs are moved to this GPU, where the module is.
    init_sync: False: frozen parameters and buffers stay each worker's own in the beginning.
    local_group: a process group of the ranks of this one's host: gradients are summed in it, by NCCL or Gloo, and each
        rank exchanges its shard of them with one rank of each other host (_local.py). rank, size and world stay those
        of all ranks.
    gradient_as_bucket_view: `.grad` of a float32 parameter is a view of the engine's memory, and the next backward
        writes there: True here unless given. False: it has memory of its own, for one more copy.
    trace: a folder for a trace of all ranks, figures and a summary, of which `tutti report DIR` makes a page. None:
        TUTTI_TRACE_DIR; without that nothing is recorded. trace_overwrite: an earlier record there is removed.
    log_to: what else gets the figures of the record: "tensorboard", "csv" and "prometheus", files in its folder;
        "wandb", "mlflow"; an object with log(figures, step) or such a callable; or a list of them. On rank 0.
    metrics_port: a port where rank 0 answers GET /metrics with the latest figures, as Prometheus reads them: 9400, for
        this host alone, or "0.0.0.0:9400".
    checkpoint: a folder, or tutti.torch.Checkpoints(folder, every=N, ...). At SIGTERM, under Slurm at SIGUSR1 too, all
        ranks save there after the same step and end with 128 + signal. If there is a checkpoint in it the run continues
        from it. Needs also(optimizer=optimizer).
    others: those of the engine by their names (tutti_engine_options): collective, codec_checksum, seed, clip_norm ...

    Raises ValueError for a spec or a module that cannot be, PeerError(rank) from forward or backward when a worker is
    gone.
    """

    def __init__(
        self,
        module: nn.Module,
        *torchs: Any,
        method: str = "ddp",
        codec: str | None = None,
        transport: str | None = None,
        local_group: dist.ProcessGroup | None = None,
        trace: str | os.PathLike[str] | None = None,
        trace_overwrite: bool = False,
        log_to: _log_to.Given = None,
        metrics_port: int | str | None = None,
        checkpoint: str | os.PathLike[str] | _preempt.Checkpoints | None = None,
        **others: Any,
    ):
        if torchs and isinstance(torchs[0], str):
            method, torchs = torchs[0], torchs[1:] and (None, *torchs[1:])
        if not isinstance(method, str):
            raise TypeError(f"DistributedDataParallel: method={method!r}; it is a spec, such as 'ddp'")
        arguments = _arguments.read(torchs, others)
        plan = _preempt.plan_of(checkpoint)
        to = _log_to.plan_of(log_to, metrics_port)
        super().__init__(module, arguments)
        self._preempt: _preempt.OfWrapper | None = None
        self._recorded: _record.Record | None = None  # that is closed
        self._checkpoint = plan
        self._binding = Binding(module, frozenset(self.parameters_to_ignore))
        exchange = exchange_of(self._binding) if local_group is None else None
        self._place_devices(arguments)
        self._hooks: list[Any] = []
        folder = _record.folder_of(trace)
        to.check_folder(folder)
        self._costs = arguments.engine["codec_cost"] = _codec.cost(arguments.engine.get("codec_cost", "off"))
        arguments.engine.setdefault("trace_events", _record.trace_events(folder))
        self._hosts: _local.Hosts | None = None
        if local_group is not None:
            self._check_local(method, codec, arguments, plan is not None)
            self._hosts = _local.open_hosts(
                local_group, self._binding, arguments.group, transport, f"DistributedDataParallel {method} {codec}"
            )
            folder, to = self._hosts.folder(folder), to.of_index(self._hosts.index)
        told = _record.fingerprint(folder, to) + _preempt.fingerprint(plan)
        opens = functools.partial(
            _record.open_record, folder=folder, overwrite=trace_overwrite, log_to=to, samples=False,
            facts={"model": type(module).__name__},
        )  # fmt: skip
        self._open(exchange, method, codec, transport or "", arguments, told, opens)

        if arguments.torchs["init_sync"]:
            untrained: list[torch.Tensor] = [p for _, p in self._binding.frozen]
            if arguments.begins_with_buffers:
                untrained += [b for _, b in self._binding.buffers()]
            self._copies.broadcast(untrained)
        self._hooks = [
            b.param.register_post_accumulate_grad_hook(weakly(self._final, b.index)) for b in self._binding.bound
        ]
        if self.world.rank == 0:
            arguments.warn()
        self._check_batch_norms()
        if plan is not None:
            self._resume(plan, arguments.torchs["init_sync"])

    def _open(
        self, exchange: Callable[..., Exchange] | None, method: str, codec: str | None, transport: str,
        arguments: _arguments.Arguments, told: str, opens: Callable[[Any], _record.Record | None],
    ) -> None:  # fmt: skip
        binding, options, group, hosts = self._binding, arguments.engine, arguments.group, self._hosts
        self.world: World = _place.open_world(transport, group) if hosts is None else hosts.world
        try:
            local = None
            if hosts is not None:
                local = _local.LocalExchange(binding, hosts, self.gradient_as_bucket_view)
            self.engine: Engine = _place.open_engine(
                self.world if hosts is None else hosts.between,
                binding.params() if local is None else local.shards.params(),
                transport,
                group,
                method=method,
                codec=codec,
                optimizer="client",
                once=True,  # a backward is the caller's, and is not asked for again
                initial=binding.initial if local is None else local.initial,
                fingerprint=binding.fingerprint() + told,
                nonfinite=_abi.TUTTI_NONFINITE_KEEP,  # the optimiser or its GradScaler says what becomes of them
                **options,
            )
            self._record = opens(self.engine)
        except BaseException as e:
            world = self.__dict__.pop("world")
            if hosts is None:
                _place.give_up(world, e)
            else:
                hosts.give_up(e)
            raise
        self._copies = Copies(self.world)
        if local is None:
            assert exchange is not None, "without a local_group the device determines it"
            binding.attach(self.engine)
            self._exchange = exchange(binding, self.engine, self.gradient_as_bucket_view)
            self._flat = torch.frombuffer(self.engine.gradients(), dtype=torch.float32)
            self._firsts = self.engine.firsts()
        else:
            local.attach(self.engine)
            self._exchange, self._flat, self._firsts = local, local.flat, local.shards.firsts
        # Alone, and nothing on the way that would change a gradient: a backward has nothing to do.
        coded = _c.tutti_exchange_codec(self.engine.method) is not None
        seen = coded or self._record is not None or self._checkpoint is not None
        self._alone = self.world.size == 1 and not seen and not options.get("clip_norm")
        if self._record is not None:
            self._record.close_at_end()
        self.bucket_bytes_cap: int = max(self.engine.method.piece_bytes, 1 << 20)
        n = len(binding.bound)
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
        self._join: Joining | None = None

    @staticmethod
    def _check_local(method: str, codec: str | None, arguments: _arguments.Arguments, saves: bool) -> None:
        _local.check_method(method, codec, _local.OF_GRADIENTS)
        _local.refuse({
            "clip_norm": (bool(arguments.engine.get("clip_norm")),
                          "each rank has the norm of its shard; call torch.nn.utils.clip_grad_norm_ after backward"),
            "checkpoint": (saves, "an engine has shards, and the model is the module's; save its state_dict()"),
        })  # fmt: skip

    # ---- forward ----
    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        # torch.compile compiles what stands between the two calls, which it leaves alone
        self._before()
        if self.device_ids:
            inputs, kwargs = self._moved(inputs, kwargs)
        output = self.module(*inputs, **kwargs)
        self._after(output)
        return output

    @torch._disable_dynamo
    def _moved(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Inputs on the device of device_ids, as torch's class moves them."""
        assert self.device_ids is not None
        args, named = self.to_kwargs(inputs, kwargs, self.device_ids[0])
        return args[0], named[0]

    @torch._disable_dynamo
    def _before(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._check_ended()
        self._binding.check_module()
        self._binding.check_frozen()
        if not self._looked:
            _place.check(self.world)
            self._check_optimizers()
            self._looked = True
        if self._join_config.enable:  # of torch's Join
            self._join = self._join or Joining(self._divide_by_initial_world_size, False)
            self._notify_join()
        if self._preempt is not None and torch.is_grad_enabled() and self.module.training:
            with self._failing():
                self._preempt.forward_begins()
        sync = torch.is_grad_enabled() and self.require_backward_grad_sync
        send = self._check_sync_bufs_pre_fwd()
        root = self._meet(sync, send) if self._join is not None else 0
        if send:
            self._sync_module_buffers(root)
        if self._hooks and not self._alone and torch.is_grad_enabled():
            self.engine.doing(_abi.TUTTI_DOING_COMPUTE)
        if self._record is not None:
            self._record.forward_begins()
        # torch.compile cuts its graphs where gradients are exchanged, as it does for torch's class
        self._outer, _Torch._active_ddp_module = _Torch._active_ddp_module, self

    @torch._disable_dynamo
    def _after(self, output: object) -> None:
        """The backward of this forward is to be exchanged, if it is not within no_sync()."""
        _Torch._active_ddp_module, self._outer = (None if self._outer is self else self._outer), None
        if self._record is not None:  # before _arm: the span of a backward ends before what waits for its end
            self._record.forward_ends(_record.tensors(output))
        if self._check_sync_bufs_post_fwd():
            self._sync_module_buffers(0)
        sync = torch.is_grad_enabled() and self.require_backward_grad_sync
        self.require_forward_param_sync = sync  # as torch: not again before a forward in training
        if sync:
            self._arm(_record.tensors(output))
        elif torch.is_grad_enabled():
            self._armed = False

    def _check_ended(self) -> None:
        if self._active and torch._C._current_graph_task_id() == -1:
            self._fail(
                StateError(
                    "the last backward of this module did not come to its end, so this worker is no longer at the "
                    "same step as the others; an exception in a backward ends a run"
                )
            )

    def _check_optimizers(self) -> None:
        for b in self._binding.bound:
            if hasattr(b.param, "_in_backward_optimizers"):
                raise ValueError(
                    f"parameter '{b.name}' has an optimizer that steps within backward "
                    "(_apply_optimizer_in_backward), before gradients are exchanged; call step() after backward"
                )

    def _check_batch_norms(self) -> None:
        if self.world.size > 1 and not (dist.is_available() and dist.is_initialized()):
            if any(isinstance(m, nn.SyncBatchNorm) for m in self.module.modules()):
                warnings.warn(
                    "SyncBatchNorm exchanges over torch.distributed, which is not initialised, so it is a BatchNorm of "
                    "each worker alone; call init_process_group before the module is wrapped",
                    stacklevel=3,
                )

    def _sync_module_buffers(self, authoritative_rank: int) -> None:
        """One rank's buffers come to all; or what _register_buffer_comm_hook was given does it."""
        if hasattr(self, "buffer_hook"):
            self._assign_modules_buffers()
            if self.modules_buffers:
                super()._sync_module_buffers(authoritative_rank)  # type: ignore[no-untyped-call]  # torch's
        else:
            self._copies.broadcast([b for _, b in self._binding.buffers()], authoritative_rank)

    def will_sync_module_buffers(self) -> bool:
        return self.require_forward_param_sync and self.forward_sync_buffers

    # ---- figures ----
    def lr(self, lr: float) -> None:
        """The learning rate from the next step on, for what depends on it: "accordion", "alq", the codec "ef"."""
        self.engine.lr(lr)

    def figures(self) -> dict[str, int | float]:
        """Returns times, bytes, steps of this rank so far, as optimizer.figures() of tutti.torch.prepare."""
        return self.engine.figures()

    def log(self, figures: Mapping[str, Any] | None = None, /, *, loss: Any = None, **more: Any) -> None:
        """Adds the mean loss of a batch, or figures of an evaluation by name, to the record (trace=), as
        optimizer.log() of tutti.torch.prepare."""
        _logged.log(self._record or self._recorded, _c.tutti_record_log, figures, loss, more)

    # ---- checkpoints ----
    def save(self, directory: str, *, keep: int = 0, wait: bool = True) -> None:
        """A checkpoint of parameters and method by all workers, between a step and the next forward. Buffers and the
        optimizer are not in it: their state_dict() is torch's. The newest `keep` checkpoints stay (0: all).
        wait=False: returns when it is copied to memory, and a thread writes it. It is there after the next save() or
        save_end(), which raise what has failed, and after close()."""
        self._check_whole("save")
        self._binding.check_module()
        self._binding.collect()
        with self._failing():
            self.engine.save(directory, _described.facts(self._binding), keep=keep, wait=wait)

    def save_end(self) -> None:
        """Waits for the checkpoint of save(wait=False), if one is under way. All workers."""
        with self._failing():
            self.engine.save_end()

    def load(self, directory: str) -> None:
        """Resumes from a checkpoint, or from the newest in that directory: all workers, before the first backward."""
        self._check_whole("load")
        with self._failing():
            self.engine.load(self.world.find_checkpoint(directory))
        self._binding.hand_out()

    def also(self, **objects: Any) -> None:
        """Stores the state_dict() of each object in each checkpoint of checkpoint=: the optimizer, schedulers, a
        GradScaler. If the run continues from one, it is loaded here. Before the first forward, when all of them are
        made. If there are several optimizers, the last one's step() is the end of an iteration."""
        if self._preempt is None:
            raise StateError("also() is for checkpoint=DIR; beside other checkpoints a script stores its own")
        self._preempt.also(objects)

    def _resume(self, plan: _preempt.Checkpoints, frozen_equal: bool) -> None:
        try:
            self._preempt = _preempt.OfWrapper(plan, self, frozen_equal)
            self._preempt.resume()
        except BaseException as e:
            self.world.failure_report(e)
            self.close()
            raise

    def _check_whole(self, what: str) -> None:
        if self._hosts is not None:
            raise StateError(
                f"{what}() with local_group: an engine has shards of gradients, and the model is the module's; use the "
                "state_dict() of the wrapper and of the optimizer"
            )

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

    def _unhook(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def close(self) -> None:
        """Leaves the run, in order. Parameters and gradients have memory of their own from here on. A wrapper that
        is no longer referenced leaves by itself."""
        self._unhook()
        if self._preempt is not None:
            self._preempt.close()
        if self._record is not None:
            self._record.close(ended=self._failure is None and not self._active)
            self._recorded, self._record = self._record, None
        self._flat = torch.empty(0)
        self._exchange.close()
        self._binding.detach()
        self.engine.close()
        if self._hosts is not None:
            self._hosts.between.close()
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

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(_NOT_PICKLED)

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise TypeError(_NOT_PICKLED)

    def __getstate__(self) -> NoReturn:
        raise TypeError(_NOT_PICKLED)
