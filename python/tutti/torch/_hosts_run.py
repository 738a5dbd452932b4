"""prepare(local_group=): a method between hosts (_local.py). What a run has in common whose engine has shards.

`world` is that of this local index, and the engine's. `whole` is that of all ranks. Subclasses say what a shard is:
LocalRun (_local_run.py) cuts a model that each rank has whole, FsdpRun (_fsdp_run.py) takes what FSDP2 has sharded.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import nn

from .. import _abi
from ..errors import Error, NumberError, StateError
from ..world import World
from . import _local, _record, _state
from ._run import Run, statistics_of
from ._runs import closed, opened

METHODS = (*_local.OF_GRADIENTS, *_local.OF_VALUES)
_LOCAL = "local"  # in a state_dict()'s "tutti": the local index, and how many there are


def refuse(given: dict[str, Any]) -> None:
    others = "take DistributedSampler, and leave it out here"
    apart = "ranks of a host would decide apart, each by its shard; leave it out"
    _local.refuse({
        "checkpoint": (given["checkpoint"] is not None,
                       "an engine has a shard of each rank, and the model is whole in none; save state_dict()"),
        "servers": (bool(given["servers"]), "ranks that only serve have no host's group; leave servers out"),
        "elastic_shares": (bool(given["elastic_shares"]), "it has no logical shares; leave elastic_shares out"),
        "sampler": (given["sampler"] is not None, f"it would count hosts and not ranks; {others}"),
        "validation": (given["validation"] is not None, apart),
        "loss_scale": (given["loss_scale"] not in (None, "", "off"), f"{apart}. torch.bfloat16 needs none"),
        "nonfinite='skip'": (given["nonfinite"] == "skip", apart),
    })  # fmt: skip


class HostsRun(Run):
    _apart = True

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, method: str, shards: nn.Module,
                 hosts: _local.Hosts, **options: Any):
        """shards: this rank's, as parameters in host memory."""
        self._hosts = hosts
        options["trace"] = hosts.folder(_record.folder_of(options["trace"])) or None
        options["log_to"] = options["log_to"].of_index(hosts.index)
        options["batch"] *= hosts.size
        self._clip_norm, options["clip_norm"] = options["clip_norm"], 0.0  # of the whole gradient, not of a shard
        self._of_values = method.split("(")[0].strip() in _local.OF_VALUES
        self._through = False  # this pass's gradients go through the engine
        self._brought = False  # the engine got values since the last _spread()
        self._handed = 0  # engine.handed() when the parameters got values of it
        self._agreed = False  # the model that all agree on stands in the module
        self._own_statistics: list[torch.Tensor] = []
        super().__init__(shards, optimizer, method, world=hosts.between, **options)
        closed(self)
        self.model, self._statistics = model, statistics_of(model)
        # before FSDP2's hook, which gathers values: the method may have others for this pass
        self._hooks.append(model.register_forward_pre_hook(self._before_forward, prepend=True))
        if self.record is not None:
            super()._hook_spans(self.record)
        opened(self)

    @property
    def whole(self) -> World:
        return self._hosts.world

    def _hook_spans(self, record: _record.Record) -> None:
        """The shards have no forward: the script's model has, once it is `model`."""

    # ---- what a subclass has ----
    def _trained(self) -> list[nn.Parameter]:
        """The parameters that the script's optimizer updates."""
        raise NotImplementedError

    def _bring(self) -> None:
        """The engine's callback: this rank's shards come to the engine. Sets _brought."""
        raise NotImplementedError

    def _gather(self) -> None:
        """The engine's values come to the module."""
        raise NotImplementedError

    def _set_gradients(self) -> None:
        """Before the update: `.grad` is the mean that it is made of. NumberError: it is not finite."""
        raise NotImplementedError

    # ---- a pass ----
    def _begin_pass(self) -> _abi.tutti_pass | None:
        if self.steps == 0 and not self.within:
            self._bring()  # the script may have loaded a model
        with self._hosts.naming():
            p = super()._begin_pass()
        if p is not None:
            self._spread()
            self._through = bool(p.exchange or p.keep or p.more)
        return p

    def _end_step(self) -> None:
        super()._end_step()
        self._spread()

    def _update(self, factor: float) -> None:
        """The engine's callback: the script's optimizer updates its parameters."""
        params, groups = self._trained(), self.optimizer.param_groups
        grads, rates = [p.grad for p in params], [group["lr"] for group in groups]
        try:
            with torch.no_grad():
                self._set_gradients()
            if self._clip_norm > 0:
                torch.nn.utils.clip_grad_norm_(params, self._clip_norm)
            for group in groups if factor != 1 else ():
                group["lr"] = group["lr"] * factor
            self.optimizer.step()
        finally:
            for group, lr in zip(groups, rates, strict=True):
                group["lr"] = lr
            for p, grad in zip(params, grads, strict=True):
                p.grad = grad

    # ---- values ----
    @torch.no_grad()
    def _spread(self) -> None:
        """Where the method has asked for values or handed out others, the module gets them. It does so in the same
        steps on all ranks of a host."""
        handed, asked, self._brought = self.engine.handed(), self._brought, False
        if self._of_values and (handed != self._handed or asked):
            self._handed = handed
            self._gather()

    def _not_finite(self) -> NumberError:
        return NumberError(f"a gradient of this host is not finite in step {self.steps + 1}; use a smaller learning "
                           "rate, or clip it (clip_norm)")

    def _take_own(self) -> None:
        super()._take_own()
        self._spread()
        if not self._statistics:
            return
        with torch.no_grad():
            if not self._agreed:
                for t, own in zip(self._statistics, self._own_statistics, strict=True):
                    t.copy_(own)
                return
            self._own_statistics = [t.clone() for t in self._statistics]
            flat = torch.cat([t.flatten().double().cpu() for t in self._statistics])
            mean = torch.tensor(self._hosts.world.reduce(flat.tolist(), "mean"), dtype=torch.float64)
            for t, of in zip(self._statistics, mean.split([t.numel() for t in self._statistics]), strict=True):
                t.copy_(of.view(t.shape))

    # ---- calls that all ranks make together ----
    def _rest(self) -> None:
        if self.steps == 0 and not self.within:
            self._bring()
        super()._rest()

    def show(self, what: str = "evaluate()") -> None:
        self._agreed = True
        with self._hosts.naming():
            super().show(what)

    def resume(self) -> None:
        self._agreed = False
        with self._hosts.naming():
            super().resume()

    def finish(self) -> None:
        self._agreed = True
        with self._hosts.naming():
            super().finish()

    def _no_checkpoints(self, what: str) -> StateError:
        return StateError(
            f"optimizer.{what}() with local_group: a checkpoint of Tutti has whole tensors, and here each rank has "
            "shards; save the state_dict() of the model and of the optimizer, on every rank"
        )

    def save(self, directory: str, keep: int, wait: bool = True) -> None:
        raise self._no_checkpoints("save")

    def load(self, directory: str) -> None:
        raise self._no_checkpoints("load")

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if _state.KEY in state:
            state[_state.KEY][_LOCAL] = [self._hosts.index, self._hosts.size]
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        said = state.get(_state.KEY)
        mine = [self._hosts.index, self._hosts.size]
        if isinstance(said, dict) and said.get(_LOCAL) != mine:
            raise ValueError(
                f"the state_dict is of local rank and size {said.get(_LOCAL)}, and this rank's are {mine}: with "
                "local_group each rank loads what it has saved, on hosts of as many ranks"
            )
        super().load_state_dict(state)

    # ---- the end ----
    def close(self) -> None:
        if self._ended:
            return
        super().close()
        self._hosts.world.close()

    def fail(self, error: BaseException) -> None:
        if not self._ended:
            if isinstance(error, RuntimeError) and not isinstance(error, Error):  # a call of torch's may have failed
                error = self._hosts.news(1) or error
            with contextlib.suppress(StateError):
                self._hosts.world.failure_report(error)
        super().fail(RuntimeError(str(error)))  # whose number of a lost rank would be another in this world
