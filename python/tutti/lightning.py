"""Strategies for Lightning (docs/LIGHTNING.md). Importing this registers "tutti" with its Trainer and its Fabric.

    import tutti.lightning

    lightning.Trainer(strategy="tutti", devices=4)
    lightning.Trainer(strategy=tutti.lightning.TuttiStrategy(codec="qsgd(bits=8)"), devices=4)

The import is needed: Lightning 2.6 finds a strategy's name in its registries, and reads no entry point before that.

Under `tutti run` the strategies bring the ClusterEnvironment that has the ranks of its launcher. Lightning itself would
take the ranks of a second host for those of the first, and within Slurm the places of Slurm's step.

Both strategies are Lightning's DDPStrategy and differ from it in few places. Of it they override _setup_model (of the
Trainer's), setup_module (of Fabric's), _get_process_group_backend, reduce or all_reduce, on_exception and teardown.
They read _ddp_kwargs, root_device, lightning_module, model, process_group_backend, determine_ddp_device_ids() (Fabric:
_determine_ddp_device_ids()).

Lightning is installed as `lightning`, and as `pytorch_lightning` with `lightning_fabric`. These have classes and
registries of their own. The strategies here are for those that the script has imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .torch import DistributedDataParallel
from .torch import distributed as _  # noqa: F401 (registers the backend)

_PACKAGES = (("lightning.pytorch", "lightning.fabric"), ("pytorch_lightning", "lightning_fabric"))
_NAMES = {"tutti": "popen", "tutti_spawn": "spawn", "tutti_fork": "fork", "tutti_notebook": "fork"}


def _modules() -> tuple[Any, Any, Any]:
    """Lightning's modules: strategies for the Trainer, those for Fabric, environments."""
    imported = [names for names in _PACKAGES if names[1] in sys.modules]
    installed = [names for names in _PACKAGES if importlib.util.find_spec(names[0].partition(".")[0]) is not None]
    for trainer, fabric in imported + installed:
        names = (f"{trainer}.strategies", f"{fabric}.strategies", f"{fabric}.plugins.environments")
        trainers, fabrics, environments = map(importlib.import_module, names)
        return trainers, fabrics, environments
    raise ImportError("tutti.lightning needs Lightning, which is not installed: pip install lightning")


_trainer, _fabric, _environments = _modules()


class TuttiEnvironment(_environments.ClusterEnvironment):
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


def _reduced(by: Callable[..., Any], tensor: Any, group: dist.ProcessGroup | None, reduce_op: Any) -> Any:
    """by(tensor, group, reduce_op). The mean of integers is the quotient of their sum, as Lightning makes it over Gloo;
    it asks all other backends for AVG, which the backend "tutti" has of floating point alone."""
    is_mean = isinstance(reduce_op, str) and reduce_op.lower() in ("mean", "avg")
    if not is_mean or not isinstance(tensor, torch.Tensor) or tensor.is_floating_point() or tensor.is_complex():
        return by(tensor, group, reduce_op)
    total = by(tensor, group, "sum")
    return total.copy_(total / dist.get_world_size(group)) if dist.is_initialized() else total


class _Tutti:
    """What both strategies have."""

    _ddp_kwargs: dict[str, Any]
    cluster_environment: Any

    def __init__(
        self,
        *args: Any,
        method: str = "ddp",
        codec: str | None = None,
        transport: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, method=method, codec=codec, transport=transport, **kwargs)
        if self.cluster_environment is None and TuttiEnvironment.detect():
            self.cluster_environment = TuttiEnvironment()

    def _get_process_group_backend(self) -> str:
        """For barriers, metrics, objects. Tensors on a GPU keep the backend that torch has for them."""
        own = self.process_group_backend is None and self.root_device.type == "cpu"  # type: ignore[attr-defined]
        return "tutti" if own else super()._get_process_group_backend()  # type: ignore[misc]

    def _wrapped(self, module: nn.Module, device_ids: list[int] | None) -> DistributedDataParallel:
        return DistributedDataParallel(module, device_ids=device_ids, **self._ddp_kwargs)

    @classmethod
    def register_strategies(cls, strategy_registry: Any) -> None:
        for name, start in _NAMES.items():
            strategy_registry.register(
                name, cls, description=f"DDP by Tutti, processes by '{start}'", override=True, start_method=start
            )


class TuttiStrategy(_Tutti, _trainer.DDPStrategy):
    """strategy= of Lightning's Trainer: its DDPStrategy with tutti.torch.DistributedDataParallel.

    method, codec, transport, and others: the wrapper's, `clip_norm` say, or Lightning's. Arguments of PyTorch's wrapper
    mean what docs/PYTORCH.md says of them. On CPUs the process group is on the backend "tutti", too, unless
    process_group_backend names another one.

    An exception in fit() is what the other ranks' PeerError gives as the reason. The end of fit() leaves the run, so
    the module has memory of its own after it.
    """

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


class TuttiFabricStrategy(_Tutti, _fabric.DDPStrategy):
    """strategy= of Lightning's Fabric, as TuttiStrategy is of its Trainer. A module that is no longer referenced leaves
    the run."""

    def setup_module(self, module: nn.Module) -> DistributedDataParallel:
        return self._wrapped(module, self._determine_ddp_device_ids())

    def all_reduce(self, tensor: Any, group: dist.ProcessGroup | None = None, reduce_op: Any = "mean") -> Any:
        return _reduced(super().all_reduce, tensor, group, reduce_op)


TuttiStrategy.register_strategies(_trainer.StrategyRegistry)
TuttiFabricStrategy.register_strategies(_fabric.STRATEGY_REGISTRY)

__all__ = ["TuttiEnvironment", "TuttiFabricStrategy", "TuttiStrategy"]
