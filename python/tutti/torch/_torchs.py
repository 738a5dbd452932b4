"""torch's DistributedDataParallel without its Reducer: what Tutti's wrapper inherits from.

isinstance says that the wrapper is torch's, and so does all code that asks: distributed checkpoints, frameworks, the
user's own. Such code reads more of the object than its forward. Each attribute that torch's object has is here, too: as
it would be there, or as a sentence that says why it cannot be. Methods of torch's that are not overridden find what
they need in `reducer`, `logger` and `process_group`.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join, Joinable, JoinHook
from torch.nn.parallel import DistributedDataParallel as _Torch

from .._library import library as _c
from ..errors import StateError
from ._arguments import Arguments, device_ids

if TYPE_CHECKING:
    from ..engine import Engine
    from ..world import World
    from ._bind import Binding

_BROADCAST_BYTES = 250 << 20  # of torch's; a broadcast here is one message
_BY_THE_ENGINE = "gradients are exchanged by Tutti's engine, which has no buckets of torch's Reducer"
_NOT_HERE = {
    "process_group": "torch.distributed is not initialised, and Tutti does not need it; call init_process_group first "
                     "if this code needs a group",
    "join_process_group": "torch.distributed is not initialised, which torch's Join needs; call init_process_group "
                          "first, or use wrapper.join()",
    "_bucket_config": _BY_THE_ENGINE,
    "device_mesh": "the wrapper was made without a device mesh",
}  # fmt: skip


class NotHere(StateError, AttributeError):
    """An attribute of torch's class that has no meaning here. hasattr() is false."""


def _nothing(*_: object) -> None:
    """What a call means that has no effect here."""


class Reducer:
    """In the place of torch's Reducer, for code that reaches for it: pipelines of torch's, Lightning's manual
    optimization, Accelerate's trigger_sync_in_backward."""

    def __init__(self, wrapper: Torchs):
        self._wrapper = weakref.ref(wrapper)

    def prepare_for_backward(self, outputs: torch.Tensor | Iterable[torch.Tensor]) -> None:
        """The next backward is exchanged, even if its forward was within no_sync()."""
        wrapper = self._wrapper()
        if wrapper is not None:
            wrapper._arm([outputs] if isinstance(outputs, torch.Tensor) else outputs)

    def _check_reducer_finalized(self) -> None:
        wrapper = self._wrapper()
        if wrapper is not None:
            wrapper._check_ended()

    def _remove_autograd_hooks(self) -> None:
        wrapper = self._wrapper()
        if wrapper is not None:
            wrapper._unhook()

    def _rebuild_buckets(self) -> bool:
        return False

    def _install_post_backward_futures(self, futures: Sequence[torch.futures.Future[Any]]) -> None:
        torch.futures.wait_all(list(futures))

    def _set_manual_finalization_required(self, required: bool) -> None:
        if required:
            raise NotHere(f"DistributedDataParallel.require_manual_backward_finalization=True: {_BY_THE_ENGINE}")

    prepare_for_forward = _set_static_graph = _set_ddp_runtime_logging_sample_rate = set_logger = _nothing

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotHere(f"DistributedDataParallel.reducer.{name}: {_BY_THE_ENGINE}")


class Logger:
    """In the place of torch's Logger: what the wrapper reports about itself."""

    def __init__(self, wrapper: Torchs):
        self._wrapper = weakref.ref(wrapper)
        self._hook = ""

    def _set_comm_hook_name(self, name: str) -> None:
        self._hook = name

    set_construction_data_and_log = set_runtime_stats_and_log = set_error_and_log = _nothing
    _set_uneven_input_join = _set_static_graph = _nothing

    def _get_ddp_logging_data(self) -> SimpleNamespace:
        w = self._wrapper()
        if w is None:
            return SimpleNamespace(strs_map={}, ints_map={})
        trained = [p for p in w._module_parameters if p.requires_grad]
        texts = {
            "module_name": type(w.module).__name__,
            "backend_name": f"tutti over {w.world.transport}",
            "comm_hook": self._hook,
            "device_ids": ", ".join(map(str, w.device_ids or [])),
            "dtypes": ", ".join(sorted({str(p.dtype).removeprefix("torch.") for p in trained})),
        }
        numbers = {
            "world_size": w.world.size,
            "rank": w.world.rank,
            "iteration": 0 if w.engine.closed else w.engine.figures()["steps"],
            "num_parameter_tensors": len(trained),
            "total_parameter_size_bytes": sum(p.numel() * p.element_size() for p in trained),
            "bucket_cap_bytes": w.bucket_bytes_cap,
            "output_device": -1 if w.output_device is None else w.output_device,
            "broadcast_buffers": int(w.broadcast_buffers),
            "find_unused_parameters": int(w.find_unused_parameters),
            "gradient_as_bucket_view": int(w.gradient_as_bucket_view),
            "static_graph": int(w.static_graph),
            "can_set_static_graph": 0,  # nothing would be gained
            "has_sync_bn": int(any(isinstance(m, nn.SyncBatchNorm) for m in w.module.modules())),
        }
        return SimpleNamespace(strs_map=texts, ints_map=numbers)


class _Shadow(JoinHook):
    """Of torch's Join over several objects: what this one does when its rank has no more inputs."""

    def __init__(self, wrapper: Torchs, by_all: bool):
        self._wrapper = wrapper
        wrapper._divide_by_initial_world_size = by_all

    def main_hook(self) -> None:
        self._wrapper._idle()

    def post_hook(self, is_last_joiner: bool) -> None:
        self._wrapper._all_joined()


class Torchs(_Torch):
    """The state of torch's class, made without its __init__: there is no Reducer, and no process group is needed.

    The wrapper adds `world` and `engine`, and overrides forward and join."""

    world: World
    engine: Engine
    reducer: Any  # Reducer, in the place of torch's
    logger: Any  # Logger, likewise
    _binding: Binding
    _alone: bool
    _arm: Callable[[Iterable[torch.Tensor]], None]
    _check_ended: Callable[[], None]
    _unhook: Callable[[], None]
    _idle: Callable[[], bool]
    _all_joined: Callable[[], None]

    def __init__(self, module: nn.Module, arguments: Arguments):
        nn.Module.__init__(self)
        Joinable.__init__(self)
        given = arguments.torchs
        self.module = module
        self.parameters_to_ignore: set[str] = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self._module_parameters = [p for name, p in module.named_parameters() if name not in self.parameters_to_ignore]
        for name in ("dim", "find_unused_parameters", "static_graph", "gradient_as_bucket_view", "batched_grad_copy",
                     "skip_all_reduce_unused_params", "mixed_precision"):  # fmt: skip
            setattr(self, name, given[name])
        for name, value in (("process_group", arguments.group), ("device_mesh", given["device_mesh"])):
            if value is not None:
                setattr(self, name, value)
        self.forward_sync_buffers: bool = arguments.syncs_buffers
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self._comm_hooks: list[tuple[Callable[..., Any], object]] = []
        self.reducer, self.logger = Reducer(self), Logger(self)
        self._divide_by_initial_world_size = True
        self._settle()

    def _settle(self) -> None:
        """What never changes here, as torch's class has it when it does not use it."""
        self._use_python_reducer = self._delay_all_reduce_all_params = self.is_multi_device_module = False
        self._delay_all_reduce_params: list[nn.Parameter] = []
        self._delay_grad_views: list[torch.Tensor] = []
        self._accum_grad_hooks: list[Any] = []
        self._delay_grad_buffer = None
        self._has_rebuilt_buckets = self._lazy_init_ran = True
        self._require_manual_backward_finalization = self.lazy_bucket_allocation = False
        self._ddp_sink_clone = True
        self.broadcast_bucket_size = _BROADCAST_BYTES
        self.bucket_bytes_cap_list: list[int] = []
        self.bucket_bytes_cap_default = True
        self.use_side_stream_for_tensor_copies: bool = os.environ.get("PYTORCH_DDP_USE_SIDE_STREAM", "1") == "1"
        self._assign_modules_buffers()

    def _place_devices(self, arguments: Arguments) -> None:
        """Where the module is, which has parameters by now that were looked at."""
        self.device: torch.device = self._module_parameters[0].device
        self.device_type: str = self.device.type
        self.device_ids: list[int] | None = device_ids(arguments, self.module)
        self.output_device: int | None = None if self.device_ids is None else self.device_ids[0]

    def __getattr__(self, name: str) -> Any:
        if name in ("process_group", "join_process_group") and dist.is_available() and dist.is_initialized():
            return dist.group.WORLD
        if name in _NOT_HERE:
            raise NotHere(f"DistributedDataParallel.{name}: {_NOT_HERE[name]}")
        return super().__getattr__(name)

    @property
    def broadcast_buffers(self) -> bool:
        """As torch's class has it from 2.13 on."""
        return self.forward_sync_buffers

    @broadcast_buffers.setter
    def broadcast_buffers(self, value: bool) -> None:
        self.forward_sync_buffers = value

    @property
    def _distributed_rank(self) -> int:
        return self.world.rank

    # ---- other calls of torch's class ----

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """For torch's Join over this and others, a ZeroRedundancyOptimizer say."""
        return _Shadow(self, kwargs.get("divide_by_initial_world_size", True))

    def _notify_join(self) -> None:
        """Within torch's Join: this rank has inputs."""
        Join.notify_join_context(self)

    def register_comm_hook(self, state: object, hook: Callable[..., Any]) -> None:
        """The gradients of each backward are exchanged by this hook of torch's instead, over torch.distributed.

        Only its allreduce_hook, which means what the engine does anyway, leaves them to the engine. Hooks are called
        when the backward is over, with buckets of all parameters."""
        self._check_comm_hook(hook)
        if self._comm_hooks:
            raise StateError("register_comm_hook: the wrapper has a hook, and one is possible")
        method = self.engine.method.ops.contents.name.decode()
        if method != "ddp" or _c.tutti_exchange_codec(self.engine.method) is not None:
            raise ValueError(
                f"register_comm_hook: gradients are exchanged by method '{method}' or a codec of Tutti's; leave "
                "method= and codec= out, or the hook"
            )
        tables = [b.name for b in self._binding.bound if b.table]
        if tables:
            raise ValueError(
                f"register_comm_hook: '{tables[0]}' is of an embedding with sparse=True, and buckets are dense; make "
                "it with sparse=False"
            )
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        self.logger._set_comm_hook_name(getattr(hook, "__qualname__", type(hook).__name__))
        over = state if state is not None or not dist.is_initialized() else dist.group.WORLD  # as the hook takes it
        if hook is default_hooks.allreduce_hook and over == getattr(self, "process_group", None):
            return
        self._comm_hooks.append((hook, state))
        self._alone = False

    def _register_builtin_comm_hook(self, comm_hook_type: Any) -> None:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        kinds = dist.BuiltinCommHookType
        hooks = {kinds.ALLREDUCE: default_hooks.allreduce_hook, kinds.FP16_COMPRESS: default_hooks.fp16_compress_hook}
        self.register_comm_hook(getattr(self, "process_group", None), hooks[comm_hook_type])

    def _update_process_group(self, new_process_group: Any) -> None:
        raise StateError(
            "_update_process_group: the workers of a run stay the same; close() this wrapper and wrap the module again"
        )
