"""prepare(local_group=): a method between hosts, and a process group of torch's inside (_local.py).

A `Run` whose parameters are this rank's shards, in host memory: the engine, the method and its checkpoints know nothing
else. What is here stands between them and the script's model.

    a pass whose gradients are exchanged (ddp)      a pass whose gradients stay (local-sgd, diloco)
    backward   reduce-scatter -> shards' gradients  reduce-scatter and all-gather: .grad is the host's mean
    step()     exchange, all-gather, update         update; the shards' values -> the method, at a round -> all-gather

Ranks of a host have the same values at all times. `world` is that of this local index, `whole` that of all ranks.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import nn
from torch.autograd import Variable

from .. import _abi
from ..errors import NumberError, StateError
from ..world import World
from . import _local, _record, _state
from ._bind import Binding
from ._buffers import Copies
from ._run import Run, check, statistics_of
from ._runs import closed, opened, weakly
from ._sent import Sent

_METHODS = (*_local.OF_GRADIENTS, *_local.OF_VALUES)
_LOCAL = "local"  # in a state_dict()'s "tutti": the local index, and how many there are


def _refuse(given: dict[str, Any]) -> None:
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


class _Shards(nn.Module):
    """The shards as parameters, in host memory."""

    def __init__(self, shards: _local.Shards):
        super().__init__()
        # the last one first, since a Binding reverses the order of registration
        self.bucket = nn.ParameterList(shards.values(k).clone() for k in reversed(range(len(shards.buckets))))


class LocalRun(Run):
    _apart = True

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, method: str, *, local_group: Any,
                 **options: Any):
        check(model, optimizer)
        _local.check_method(method, options["codec"], _METHODS)
        _refuse(options)
        self._module = Binding(model)
        self._of_values = method.split("(")[0].strip() in _local.OF_VALUES
        told = f"prepare {method} {options['codec']} {options['accumulate']}"
        self._hosts = _local.open_hosts(local_group, self._module, None, options["transport"], told)
        try:
            Copies(self._hosts.world).broadcast([b.param.data for b in self._module.bound])
            Copies(self._hosts.world).broadcast([t for _, t in self._module.untrained()])
            self._shards = _local.Shards(self._module.bound, self._hosts, weakly(self._came))
            self._clip_norm, options["clip_norm"] = options["clip_norm"], 0.0
            options["batch"] *= self._hosts.size
            options["trace"] = self._hosts.folder(_record.folder_of(options["trace"])) or None
            options["log_to"] = options["log_to"].of_index(self._hosts.index)
            self._through = False  # this pass's gradients go through the engine
            self._mean_made = False
            self._brought = False  # the engine got values since the last _spread()
            self._handed = 0  # engine.handed() when the parameters got values of it
            self._agreed = False  # the model that all agree on stands in the module
            self._own_statistics: list[torch.Tensor] = []
            super().__init__(_Shards(self._shards), optimizer, method, world=self._hosts.between, **options)
        except BaseException as e:
            self._hosts.give_up(e)
            raise
        closed(self)
        self.model, self._statistics = model, statistics_of(model)
        self._hooks.append(model.register_forward_pre_hook(self._before_forward))
        for b in self._module.bound:
            self._hooks.append(b.param.register_post_accumulate_grad_hook(weakly(self._on_local_gradient, b.index)))
        opened(self)

    @property
    def whole(self) -> World:
        return self._hosts.world

    # ---- a pass ----
    def _trains(self) -> bool:
        return any(b.param.requires_grad for b in self._module.bound)

    def _check_training(self) -> None:
        super()._check_training()
        self._module.check_module()
        self._module.check_frozen()

    def _begin_pass(self) -> _abi.tutti_pass | None:
        if self.steps == 0 and not self.within:
            self._bring()  # the script may have loaded a model
        with self._hosts.naming():
            p = super()._begin_pass()
        if p is not None:
            self._spread()
            self._through = bool(p.exchange or p.keep or p.more)
            self._mean_made = False
            self._shards.begin(inside=not self._through)
        return p

    def _on_local_gradient(self, tensor: int, _param: torch.Tensor) -> None:
        b = self._module.bound[tensor]
        self._check_backward(self._pass is not None and self._shards.filled(b))
        if not self._through:
            if not any(map(self._shards.filled, self._module.bound)):
                Variable._execution_engine.queue_callback(weakly(self._make_mean))
            grad = b.param.grad
            assert grad is not None, "a gradient that was announced is not there"
            with torch.no_grad():
                self._shards.fill(b, grad)
            return
        now = self._current()
        sent = Sent(b, self.method, bool(now.keep or now.more))
        self._sent.append(sent)
        grad = sent.grad
        assert grad is not None
        if now.keep or now.more:
            sent.grad = None  # other passes of the step are added to it in the engine
        with torch.no_grad():
            self._shards.fill(b, grad)

    def _make_mean(self) -> None:
        """A backward is over whose gradients stay in the host: `.grad` is the host's mean."""
        if self._mean_made:
            return
        self._mean_made = True
        with torch.no_grad():
            self._shards.flush()
            self._shards.mean()
            for b in self._module.bound:
                b.param.grad = b.gradient if b.param.dtype == torch.float32 else b.gradient.to(b.param.dtype)

    def _came(self, k: int, shard: torch.Tensor) -> None:
        self._announce(k, shard)
        self._given[k] = True

    def _arrived(self) -> None:
        self._shards.wait()
        super()._arrived()

    def _end_pass(self, loss: float | None) -> None:
        if self._pass is not None and self._through:
            with torch.no_grad():
                for b in self._module.bound:  # what the script has set
                    if not self._shards.filled(b) and b.param.grad is not None:
                        self._shards.fill(b, b.param.grad)
                self._shards.flush()
        elif self._pass is not None:
            self._make_mean()  # no backward has come to this model
        with self._hosts.naming():
            super()._end_pass(loss)

    def _end_step(self) -> None:
        super()._end_step()
        self._spread()

    def _update(self, factor: float) -> None:
        """The engine's callback: the script's optimizer updates the whole model on each rank of the host."""
        bound, groups = self._module.bound, self.optimizer.param_groups
        grads, rates = [b.param.grad for b in bound], [group["lr"] for group in groups]
        with torch.no_grad():
            if self._through:
                self._shards.gather([b.gradient for b in self.binding.bound])
            elif not torch.isfinite(self._shards.flat.sum()):
                raise NumberError(f"a gradient of this host is not finite in step {self.steps + 1}; use a smaller "
                                  "learning rate, or clip it (clip_norm)")
        try:
            if self._through:
                for b in bound:
                    b.param.grad = b.gradient if b.param.dtype == torch.float32 else b.gradient.to(b.param.dtype)
            if self._clip_norm > 0:
                torch.nn.utils.clip_grad_norm_([b.param for b in bound], self._clip_norm)
            for group in groups if factor != 1 else ():
                group["lr"] = group["lr"] * factor
            self.optimizer.step()
        finally:
            for group, lr in zip(groups, rates, strict=True):
                group["lr"] = lr
            for b, grad in zip(bound, grads, strict=True):
                b.param.grad = grad

    # ---- values ----
    @torch.no_grad()
    def _bring(self) -> None:
        """The engine's callback: this rank's shard of the parameters comes to the engine."""
        for b in self.binding.bound:
            b.values.copy_(self._shards.values(b.index))
        self._brought = True

    @torch.no_grad()
    def _spread(self) -> None:
        """Where the method has asked for values or handed out others, each rank gets all of the host's. It does so in
        the same steps on all of them."""
        handed, asked, self._brought = self.engine.handed(), self._brought, False
        if not self._of_values or (handed == self._handed and not asked):
            return
        self._handed = handed
        whole = torch.empty_like(self._shards.flat)
        self._shards.gather([b.values for b in self.binding.bound], whole)
        for b in self._module.bound:
            b.param.copy_(self._shards.view(whole, b))

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
        self._shards.close()
        super().close()
        self._hosts.world.close()

    def fail(self, error: BaseException) -> None:
        if not self._ended:
            with contextlib.suppress(StateError):
                self._hosts.world.failure_report(error)
        super().fail(RuntimeError(str(error)))  # whose number of a lost rank would be another in this world
