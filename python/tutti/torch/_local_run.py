"""prepare(local_group=): a method between hosts, and a process group of torch's inside (_local.py).

A `Run` whose parameters are this rank's shards, in host memory: the engine, the method and its checkpoints know nothing
else. What is here stands between them and the script's model.

    a pass whose gradients are exchanged (ddp)      a pass whose gradients stay (local-sgd, diloco)
    backward   reduce-scatter -> shards' gradients  reduce-scatter and all-gather: .grad is the host's mean
    step()     exchange, all-gather, update         update; the shards' values -> the method, at a round -> all-gather

Ranks of a host have the same values at all times.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.autograd import Variable

from .. import _abi
from . import _local
from ._bind import Binding
from ._buffers import Copies
from ._hosts_run import METHODS, HostsRun, refuse
from ._run import check
from ._runs import weakly
from ._sent import Sent


class _Shards(nn.Module):
    """The shards as parameters, in host memory."""

    def __init__(self, shards: _local.Shards):
        super().__init__()
        # the last one first, since a Binding reverses the order of registration
        self.bucket = nn.ParameterList(shards.values(k).clone() for k in reversed(range(len(shards.buckets))))


class LocalRun(HostsRun):
    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, method: str, *, local_group: Any,
                 **options: Any):
        check(model, optimizer)
        _local.check_method(method, options["codec"], METHODS)
        refuse(options)
        self._module = Binding(model)
        told = f"prepare {method} {options['codec']} {options['accumulate']}"
        hosts = _local.open_hosts(local_group, self._module, None, options["transport"], told)
        try:
            Copies(hosts.world).broadcast([b.param.data for b in self._module.bound])
            Copies(hosts.world).broadcast([t for _, t in self._module.untrained()])
            self._shards = _local.Shards(self._module.bound, hosts, weakly(self._came))
            self._mean_made = False
            super().__init__(model, optimizer, method, _Shards(self._shards), hosts, **options)
        except BaseException as e:
            hosts.give_up(e)
            raise
        for b in self._module.bound:
            self._hooks.append(b.param.register_post_accumulate_grad_hook(weakly(self._on_local_gradient, b.index)))

    # ---- a pass ----
    def _trains(self) -> bool:
        return any(b.param.requires_grad for b in self._module.bound)

    def _check_training(self) -> None:
        super()._check_training()
        self._module.check_module()
        self._module.check_frozen()

    def _begin_pass(self) -> _abi.tutti_pass | None:
        p = super()._begin_pass()
        if p is not None:
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

    def _trained(self) -> list[nn.Parameter]:
        return [b.param for b in self._module.bound]

    def _set_gradients(self) -> None:
        if not self._through:
            if not torch.isfinite(self._shards.flat.sum()):
                raise self._not_finite()
            return
        self._shards.gather([b.gradient for b in self.binding.bound])
        for b in self._module.bound:
            b.param.grad = b.gradient if b.param.dtype == torch.float32 else b.gradient.to(b.param.dtype)

    # ---- values ----
    @torch.no_grad()
    def _bring(self) -> None:
        """The engine's callback: this rank's shard of the parameters comes to the engine."""
        for b in self.binding.bound:
            b.values.copy_(self._shards.values(b.index))
        self._brought = True

    def _gather(self) -> None:
        whole = torch.empty_like(self._shards.flat)
        self._shards.gather([b.values for b in self.binding.bound], whole)
        for b in self._module.bound:
            b.param.copy_(self._shards.view(whole, b))

    def close(self) -> None:
        if not self._ended:
            self._shards.close()
        super().close()
