"""prepare(local_group=) of a module that FSDP2 has sharded within a host (fully_shard): a method between hosts.

FSDP2 gathers values and reduce-scatters gradients in the group of its mesh, as ever. The engine's tensors are this
rank's shards, and the ranks of a local index exchange them with each other (_local.py). Nothing is gathered here.

    a pass whose gradients are exchanged (ddp)      a pass whose gradients stay (local-sgd, diloco)
    step()     shards' gradients -> exchange        update of the shards by the script's optimizer
               update of the shards                 shards' values -> the method, at a round

A shard is a range of a parameter's rows, so it is a matrix where the parameter is one, and codecs see it as such.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ..errors import StateError
from . import _local
from ._bind import check_trainable, is_sharded
from ._buffers import Copies
from ._hosts_run import METHODS, HostsRun, refuse
from ._run import check


def is_sharded_module(model: nn.Module) -> bool:
    """Returns whether a parameter is a DTensor."""
    return any(map(is_sharded, model.parameters()))


def _reshard(model: nn.Module) -> None:
    """Frees values that FSDP2 has gathered: they are of before. The module then has its shards as parameters."""
    of_fsdp = sys.modules["torch.distributed.fsdp"].FSDPModule if "torch.distributed.fsdp" in sys.modules else ()
    for m in model.modules():
        if isinstance(m, of_fsdp):
            # ends an unshard(async_op=True): else a forward would take what it has gathered
            groups = getattr(m._get_fsdp_state(), "_fsdp_param_groups", None)
            for group in groups or ():
                group.wait_for_unshard()
            if groups is None:  # another PyTorch than 2.13 may have no such list; this gathers
                m.unshard()
            m.reshard()


def _local_of(p: Any) -> torch.Tensor:
    """This rank's shard, in its own memory."""
    with torch.no_grad():
        shard: torch.Tensor = p.to_local()
        return shard


def _check_sharding(model: nn.Module, ranks: list[int]) -> None:
    """ValueError: a parameter is not in one shard a rank of this group."""
    for name, child in model.named_modules():
        if isinstance(child, (nn.Embedding, nn.EmbeddingBag)) and child.sparse:
            raise ValueError(
                f"local_group: module '{name}' is an embedding with sparse=True, and FSDP2 reduces dense gradients; "
                "make it with sparse=False"
            )
    empty = True
    p: Any
    for name, p in model.named_parameters():
        if not is_sharded(p):
            if p.requires_grad:
                raise ValueError(
                    f"local_group: parameter '{name}' is not sharded, and others are, so the ranks of a host would not "
                    "agree on it; call fully_shard(model) on the root too, and leave ignored_params out"
                )
            continue
        mesh, placements = p.device_mesh, p.placements
        if mesh.ndim != 1 or not placements[0].is_shard() or type(placements[0]).__name__ != "Shard":
            raise ValueError(
                f"local_group: parameter '{name}' has the placements {placements} on a mesh of {mesh.ndim} dimensions, "
                "and the method is what works between hosts; shard it on a mesh of one dimension, the ranks of a host: "
                "fully_shard(model, mesh=mesh['shard'])"
            )
        over = dist.get_process_group_ranks(mesh.get_group())
        if over != ranks:
            raise ValueError(
                f"local_group: parameter '{name}' is sharded over ranks {over}, and local_group has ranks {ranks}; "
                "give both the ranks of a host: fully_shard(model, mesh=mesh['shard']) and "
                "local_group=mesh['shard'].get_group()"
            )
        rows, part = p.shape[placements[0].dim], -(-p.shape[placements[0].dim] // len(ranks))
        empty = empty and not (p.requires_grad and p.numel() > 0 and rows > part * (len(ranks) - 1))
    if empty:
        raise ValueError(
            f"local_group: the last of {len(ranks)} ranks has no row of any parameter that requires a gradient, so it "
            "has nothing to exchange; shard the module over fewer ranks"
        )


class _Shards(nn.Module):
    """Copies of shards as parameters, in host memory, by the names of their parameters."""

    def __init__(self, params: list[tuple[str, nn.Parameter]]):
        super().__init__()
        for name, p in params:
            one = _local_of(p)
            if one.numel() > 0:
                one = one.detach().to("cpu", torch.float32, copy=True).contiguous()
                self._parameters[name] = nn.Parameter(one)  # register_parameter() takes no dots


class FsdpRun(HostsRun):
    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, method: str, *, local_group: Any,
                 **options: Any):
        _local.check_method(method, None, METHODS)
        refuse(options)
        ranks, _ = _local._ranks_of(local_group)
        _reshard(model)
        check(model, optimizer)
        if ranks:  # else Hosts refuses it, on all ranks
            _check_sharding(model, ranks)
        named = list(model.named_parameters())
        self._params = [(name, p) for name, p in named if p.requires_grad]
        self._frozen = [(name, p) for name, p in named if not p.requires_grad]
        for name, p in self._params:
            check_trainable(name, p, sharded=True)
        self._sources = dict(self._params)
        shapes = "".join(f"{name}: {tuple(p.shape)} {p.dtype} {p.requires_grad}\n" for name, p in named)
        told = f"prepare fsdp {method} {options['codec']} {options['accumulate']}\n"
        hosts = _local.Hosts(local_group, None, options["transport"], shapes + told)
        try:
            Copies(hosts.between).broadcast([t for _, p in named if is_sharded(p) and (t := _local_of(p)).numel() > 0])
            whole = [p.data for _, p in self._frozen if not is_sharded(p)]
            Copies(hosts.world).broadcast([*whole, *(b for b in model.buffers() if b.numel() > 0)])
            self._open(hosts, model, optimizer, method, _Shards(self._params), hosts, **options)
        except BaseException as e:
            hosts.give_up(e)
            raise

    def _open(self, hosts: _local.Hosts, *arguments: Any, **options: Any) -> None:
        """Ranks of a host have other tensors: some may have none of a parameter, and what is refused there would be
        taken elsewhere. ValueError on all ranks, if it is so on one."""
        refused = None
        try:
            super().__init__(*arguments, **options)
        except ValueError as e:
            refused = e
        if hosts.world.reduce([float(refused is not None)], "max")[0] == 0:
            return
        if refused is not None:
            raise refused
        self.close()
        raise ValueError("local_group: the shards of another rank were refused, whose ValueError says why")

    # ---- a pass ----
    def _trains(self) -> bool:
        return any(p.requires_grad for _, p in self._params)

    def _check_training(self) -> None:
        super()._check_training()
        if self.steps == 0 and self._pass is None and not self.within:
            _reshard(self.model)
            there = dict(self.model.named_parameters())
            gone = [name for name, p in [*self._params, *self._frozen] if there.get(name) is not p]
            if gone:
                raise StateError(
                    f"parameter '{gone[0]}' has been replaced in the module since prepare(), and neither method nor "
                    "optimizer would see the new one; call load_state_dict(assign=True) before fully_shard and prepare"
                )
        for name, p in self._frozen:
            if p.requires_grad:
                raise ValueError(
                    f"parameter '{name}' did not require a gradient when the module was prepared and does now; its "
                    "gradient would not be exchanged: freeze it again, or prepare the module after such a change"
                )

    def _check_gradients(self) -> None:
        grads = [_local_of(p.grad) for _, p in self._params if p.grad is not None]
        if not grads:
            raise StateError(
                "step(), and no parameter has a gradient: no backward has come to this model, or "
                "set_requires_gradient_sync(False) holds them back; prepare(accumulate=N) makes a step of N passes"
            )
        where = torch.device(self._params[0][1].device_mesh.device_type)  # type: ignore[attr-defined]  # a DTensor's
        wrong = torch.zeros((), device=where)
        for g in grads:
            wrong += (~torch.isfinite(g.sum(dtype=torch.float32))).to(where)
        with self._hosts.naming():
            dist.all_reduce(wrong, group=self._hosts.group)  # else some ranks of the host would wait for others
        if wrong.item() > 0:
            raise self._not_finite()

    def _end_pass(self, loss: float | None) -> None:
        if self._pass is not None:
            now = self._pass
            with torch.no_grad():
                self._check_gradients()
                for b in self.binding.bound if self._through else ():
                    grad = self._sources[b.name].grad
                    b.param.grad = None if grad is None else _local_of(grad).to("cpu", torch.float32)
            if now.keep or now.more:  # other passes of the step are added in the engine
                for _, p in self._params:
                    p.grad = None
        try:
            with self._hosts.naming():
                super()._end_pass(loss)
        finally:
            for b in self.binding.bound:
                b.param.grad = None

    def _trained(self) -> list[nn.Parameter]:
        return [p for _, p in self._params]

    def _set_gradients(self) -> None:
        if not self._through:
            return
        exchanged = {b.name: b.gradient for b in self.binding.bound}
        for name, p in self._params:  # also those without a row here: a norm is of all ranks
            p.grad = torch.zeros_like(p)
            if name in exchanged:
                _local_of(p.grad).copy_(exchanged[name])

    # ---- values ----
    @torch.no_grad()
    def _bring(self) -> None:
        for b in self.binding.bound:
            b.values.copy_(_local_of(self._sources[b.name]))
        self._brought = True

    def _gather(self) -> None:
        _reshard(self.model)
        for b in self.binding.bound:
            _local_of(self._sources[b.name]).copy_(b.values)
