"""Strategies for Lightning (docs/LIGHTNING.md). Importing this registers "tutti" with its Trainer and its Fabric.

    import tutti.lightning

    lightning.Trainer(strategy="tutti", devices=4)
    lightning.Trainer(strategy=tutti.lightning.TuttiStrategy(codec="qsgd(bits=8)"), devices=4)
    lightning.Trainer(strategy=tutti.lightning.PreparedStrategy("local-sgd(period=8)"), devices=4)

The import is needed: Lightning 2.6 finds a strategy's name in its registries, and reads no entry point before that.

Under `tutti run` the strategies bring the ClusterEnvironment that has the ranks of its launcher. Lightning itself would
take the ranks of a second host for those of the first, and within Slurm the places of Slurm's step.

All strategies are subclasses of Lightning's DDPStrategy and differ from it in few places. Of it they override
_setup_model, reduce, on_exception, teardown (for the Trainer), setup_module, all_reduce (for Fabric) and
_get_process_group_backend. They read _ddp_kwargs, root_device, lightning_module, model, process_group_backend,
determine_ddp_device_ids() (Fabric: _determine_ddp_device_ids()). PreparedStrategy has the list of what more it
overrides.

Lightning is installed as `lightning`, and as `pytorch_lightning` with `lightning_fabric`. These have classes and
registries of their own. The strategies here are for those that the script has imported.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from .torch import DistributedDataParallel, Optimizer, prepare
from .torch import distributed as _backend  # noqa: F401 (registers it)

_PACKAGES = (("lightning.pytorch", "lightning.fabric"), ("pytorch_lightning", "lightning_fabric"))
_START_METHODS = {"tutti": "popen", "tutti_spawn": "spawn", "tutti_fork": "fork", "tutti_notebook": "fork"}


def _modules() -> tuple[Any, Any, Any]:
    """Returns Lightning's modules: strategies for the Trainer, those for Fabric, environments. They are of the package
    that the script has imported, else of one that is installed."""
    imported = [names for names in _PACKAGES if names[1] in sys.modules]
    installed = [names for names in _PACKAGES if importlib.util.find_spec(names[0].partition(".")[0]) is not None]
    if not imported + installed:
        raise ImportError("tutti.lightning needs Lightning, which is not installed: pip install lightning")
    trainer, fabric = (imported + installed)[0]
    names = (f"{trainer}.strategies", f"{fabric}.strategies", f"{fabric}.plugins.environments")
    trainers, fabrics, environments = map(importlib.import_module, names)
    return trainers, fabrics, environments


_trainer, _fabric, _environments = _modules()
if TYPE_CHECKING:
    from lightning.fabric.plugins.environments import ClusterEnvironment
    from lightning.fabric.strategies import DDPStrategy as FabricsDDPStrategy
    from lightning.pytorch.strategies import DDPStrategy
else:
    ClusterEnvironment = _environments.ClusterEnvironment
    DDPStrategy, FabricsDDPStrategy = _trainer.DDPStrategy, _fabric.DDPStrategy


class TuttiEnvironment(ClusterEnvironment):
    """The ranks that `tutti run` has started."""

    @staticmethod
    def detect() -> bool:
        return all(name in os.environ for name in ("TUTTI_RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT"))

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        return os.environ["MASTER_ADDR"]

    @property
    def main_port(self) -> int:
        return int(os.environ["MASTER_PORT"])

    def world_size(self) -> int:
        return int(os.environ["WORLD_SIZE"])

    def global_rank(self) -> int:
        return int(os.environ["RANK"])

    def local_rank(self) -> int:
        return int(os.environ["LOCAL_RANK"])

    def node_rank(self) -> int:
        return self.global_rank() // int(os.environ.get("LOCAL_WORLD_SIZE", self.world_size()))

    def set_world_size(self, size: int) -> None:
        """It is the launcher's: validate_settings() compares."""

    def set_global_rank(self, rank: int) -> None:
        """As above."""

    def validate_settings(self, num_devices: int, num_nodes: int) -> None:
        if num_devices * num_nodes != self.world_size():
            raise ValueError(
                f"tutti run has started {self.world_size()} ranks, and devices={num_devices} and num_nodes={num_nodes} "
                f"of the Trainer or Fabric are {num_devices * num_nodes}: they must be equal"
            )
        here = int(os.environ.get("LOCAL_WORLD_SIZE", num_devices))
        if here != num_devices:
            raise ValueError(
                f"tutti run has started {here} ranks on this host, and devices={num_devices} of the Trainer or Fabric "
                "is the number on each host: give every host of -H the same number of ranks, and devices= that number"
            )


def _reduced(by: Callable[..., Any], tensor: Any, group: dist.ProcessGroup | None, reduce_op: Any) -> Any:
    """Returns by(tensor, group, reduce_op), which is Lightning's reduction. Of integers Lightning makes the mean from
    the sum over Gloo only, and asks other backends for AVG, which "tutti" refuses of integers. So it is made here."""
    is_mean = isinstance(reduce_op, str) and reduce_op.lower() in ("mean", "avg")
    if not is_mean or not isinstance(tensor, torch.Tensor) or tensor.is_floating_point() or tensor.is_complex():
        return by(tensor, group, reduce_op)
    total = by(tensor, group, "sum")
    return total.copy_(total / dist.get_world_size(group)) if dist.is_initialized() else total


class _Tutti:
    """What the strategies for the Trainer and for Fabric have in common: a mixin, before Lightning's class."""

    _ddp_kwargs: dict[str, Any]
    cluster_environment: Any
    process_group_backend: Any
    root_device: Any

    def __init__(
        self,
        *args: Any,
        method: str = "ddp",
        codec: str | None = None,
        transport: str | None = None,
        **kwargs: Any,
    ) -> None:
        given = {"method": method, "codec": codec, "transport": transport, **kwargs}
        super().__init__(*args, **given)
        if self.cluster_environment is None and TuttiEnvironment.detect():
            self.cluster_environment = TuttiEnvironment()

    def _get_process_group_backend(self) -> str:
        """The backend of the process group for barriers, metrics and objects. With tensors on a GPU it is the one that
        Lightning takes for them."""
        own = self.process_group_backend is None and self.root_device.type == "cpu"
        return "tutti" if own else str(super()._get_process_group_backend())  # type: ignore[misc]  # Lightning's

    def _wrapped(self, module: nn.Module, device_ids: list[int] | None) -> DistributedDataParallel:
        return DistributedDataParallel(module, device_ids=device_ids, **self._ddp_kwargs)

    @classmethod
    def register_strategies(cls, strategy_registry: Any) -> None:
        for name, start in _START_METHODS.items():
            strategy_registry.register(
                name, cls, description=f"DDP by Tutti, processes by '{start}'", override=True, start_method=start
            )


class TuttiStrategy(_Tutti, DDPStrategy):
    """strategy= of Lightning's Trainer: its DDPStrategy with tutti.torch.DistributedDataParallel.

    method, codec, transport, and others: the wrapper's, `clip_norm` say, or Lightning's. Arguments of PyTorch's wrapper
    mean what docs/PYTORCH.md says of them. On CPUs the process group is on the backend "tutti", too, unless
    process_group_backend names another one.

    An exception in fit() is what the other ranks' PeerError gives as the reason. The end of fit() leaves the run, so
    the module has memory of its own after it.
    """

    model: Any  # Lightning's: the wrapper, then the module

    def _setup_model(self, model: nn.Module) -> DistributedDataParallel:
        return self._wrapped(model, self.determine_ddp_device_ids())

    def reduce(self, tensor: Any, group: dist.ProcessGroup | None = None, reduce_op: Any = "mean") -> Any:
        return _reduced(super().reduce, tensor, group, reduce_op)

    def on_exception(self, exception: BaseException) -> None:
        super().on_exception(exception)
        wrapper = self.model
        if isinstance(wrapper, DistributedDataParallel) and wrapper.world.size > 1 and not wrapper.world.closed:
            wrapper.world.failure_report(exception)

    def teardown(self) -> None:
        wrapper, self.model = self.model, self.lightning_module
        if isinstance(wrapper, DistributedDataParallel):
            wrapper.close()  # before the module moves
        super().teardown()


class _Steps(Optimizer):
    """A prepared optimizer as Lightning steps it: by a closure that has forward and backward in it."""

    def step(self, closure: Callable[[], Any] | None = None, **more: Any) -> Any:
        if closure is None or self._run.again:  # the method computes gradients again: it calls the closure by itself
            return super().step(closure, **more)
        with torch.enable_grad():
            loss = closure()
        super().step(loss=loss, **more)
        return loss

    @property
    def is_over(self) -> bool:
        """Returns whether the run is finished or closed: the module has its model for good."""
        return self._run.finished or self._run.ended


class PreparedStrategy(TuttiStrategy):
    """strategy= of Lightning's Trainer: tutti.torch.prepare() of the module and its optimizer, so any method.

    method, codec, transport, and others: those of prepare() (`clip_norm`, `steps`, `sampler`, `validation` ...), or
    Lightning's. Validations and checkpoints are of the model that all ranks agree on, and so is the module after fit().
    A checkpoint has rank 0's torch optimizer and nothing that the method keeps, which begins again from it.

    ValueError in fit(): manual optimization, several optimizers, accumulate_grad_batches, ranks that only serve.

    Of DDPStrategy it overrides what TuttiStrategy does, and configure_ddp, setup_optimizers, training_step,
    on_validation_start and _end, on_train_end, lightning_module_state_dict, optimizer_state. It calls
    _forward_redirection, by which a training_step begins with a call of the module.
    """

    optimizers: Any  # Lightning's

    def __init__(self, method: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, method=method, **kwargs)
        self._prepared: _Steps | None = None
        self._evaluation: contextlib.ExitStack | None = None  # has evaluate() open while Lightning validates

    def configure_ddp(self) -> None:
        """Overrides DDPStrategy's, which would wrap the module: prepare() leaves it as it is."""

    def _check(self, trainer: Any) -> None:
        """Refuses what a prepared run cannot do."""
        given, counts = self._ddp_kwargs, trainer.accumulate_grad_batches
        for wrong, why in (
            (not self.lightning_module.automatic_optimization, "manual optimization: a step() is a whole step of it"),
            (len(self.optimizers) != 1, f"{len(self.optimizers)} optimizers: a run has one"),
            (counts != 1, f"accumulate_grad_batches={counts}: Lightning divides the loss, and Tutti would again"),
            ("accumulate" in given, "accumulate=: Lightning steps after each batch"),
            ("loss_scale" in given, "loss_scale=: Lightning calls backward() of the loss itself; take bf16-mixed"),
            (given.get("servers"), "servers=: ranks that only serve are not in the Trainer's barriers"),
        ):
            if wrong:
                raise ValueError(f"tutti.lightning.PreparedStrategy cannot be used with {why}")

    def setup_optimizers(self, trainer: Any) -> None:
        super().setup_optimizers(trainer)
        self._check(trainer)
        prepared = prepare(self.lightning_module, self.optimizers[0], **self._ddp_kwargs)[1]
        self._prepared = _Steps(prepared._run)
        self.optimizers = [self._prepared]

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        module = self.lightning_module
        with self.precision_plugin.train_step_context():
            return self._forward_redirection(module, module, "training_step", *args, **kwargs)

    def on_validation_start(self) -> None:
        super().on_validation_start()
        if self._prepared is not None and not self._prepared.is_over:
            self._evaluation = contextlib.ExitStack()
            self._evaluation.enter_context(self._prepared.evaluate())

    def on_validation_end(self) -> None:
        evaluation, self._evaluation = self._evaluation, None
        if evaluation is not None:
            evaluation.close()
        super().on_validation_end()

    def on_train_end(self) -> None:
        super().on_train_end()
        if self._prepared is not None:
            self._prepared.finish()

    def lightning_module_state_dict(self) -> dict[str, Any]:
        if self._prepared is None or self._prepared.is_over or self._evaluation is not None:
            now: dict[str, Any] = super().lightning_module_state_dict()
            return now
        with self._prepared.evaluate():  # the common model is there within this only, so it is copied
            state = super().lightning_module_state_dict()
            return {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in state.items()}

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        state: dict[str, Any] = super().optimizer_state(
            optimizer if self._prepared is None else self._prepared.optimizer
        )
        return state

    def on_exception(self, exception: BaseException) -> None:
        super().on_exception(exception)
        if self._prepared is not None:
            self._prepared._run.fail(exception)

    def teardown(self) -> None:
        prepared, self._prepared, self._evaluation = self._prepared, None, None
        if prepared is not None:
            prepared.close()
        super().teardown()


class TuttiFabricStrategy(_Tutti, FabricsDDPStrategy):
    """strategy= of Lightning's Fabric, as TuttiStrategy is of its Trainer. A module that is no longer referenced leaves
    the run."""

    def setup_module(self, module: nn.Module) -> DistributedDataParallel:
        return self._wrapped(module, self._determine_ddp_device_ids())

    def all_reduce(self, tensor: Any, group: dist.ProcessGroup | None = None, reduce_op: Any = "mean") -> Any:
        return _reduced(super().all_reduce, tensor, group, reduce_op)


TuttiStrategy.register_strategies(_trainer.StrategyRegistry)
TuttiFabricStrategy.register_strategies(_fabric.STRATEGY_REGISTRY)

__all__ = ["PreparedStrategy", "TuttiEnvironment", "TuttiFabricStrategy", "TuttiStrategy"]
