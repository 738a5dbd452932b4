"""The arguments of torch's DistributedDataParallel, and what each of them means here.

A script that changes one line hands all of them over. Hints, and what is so anyway, are accepted without a message. An
argument without effect is accepted with one warning. What would promise something that does not come is refused in a
sentence.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as _Torch

from .. import _abi
from .._library import members

_DEFAULTS = {name: of.default for name, of in list(inspect.signature(_Torch.__init__).parameters.items())[2:]}
# What an older torch does not know, as a newer one has it by default.
_NEWER = {"forward_sync_buffers": None, "batched_grad_copy": False, "skip_all_reduce_unused_params": False,
          "bucket_cap_mb_list": None}
_KNOWN = _NEWER | _DEFAULTS
_PIECES = "the method determines how much is exchanged at once"
_AS_THEY_COME = "all gradients are exchanged as backward has them"
_NO_EFFECT = {
    "dim": "nothing is scattered over devices of one process",
    "init_sync": "what is trained begins with rank 0's values on all workers anyway",
    "bucket_cap_mb": _PIECES,
    "bucket_cap_mb_list": _PIECES,
    "delay_all_reduce_named_params": _AS_THEY_COME,
    "param_to_hook_all_reduce": _AS_THEY_COME,
    "lazy_bucket_allocation": "there are no buckets of torch's Reducer",
}
# Hints about what is found out here anyway, and what is used.
_TAKEN = {
    "device_ids", "output_device", "broadcast_buffers", "forward_sync_buffers", "process_group", "device_mesh",
    "gradient_as_bucket_view", "find_unused_parameters", "static_graph", "check_reduction", "batched_grad_copy",
    "skip_all_reduce_unused_params", "mixed_precision",
}  # fmt: skip
# What a module that trains with an optimiser of torch's has no use for.
_NOT_OF_USE = {
    "user", "initial", "evaluate", "update", "values", "keeps_gradients", "optimizer", "lr_schedule", "loss_scale",
    "own_values", "batch", "accumulate", "batch_of", "parts", "data_samples", "elastic_shares", "servers",
    "fingerprint", "nonfinite", "whole_batches",
}  # fmt: skip
_ENGINE = set(members(_abi.tutti_engine_options)) - _NOT_OF_USE
_warned: set[str] = set()  # names of arguments


@dataclasses.dataclass
class Arguments:
    """Arguments of a DistributedDataParallel, without its module, method, codec and transport."""

    torchs: dict[str, Any]  # by name, with torch's defaults
    engine: dict[str, Any]  # options of the engine
    no_effect: dict[str, str]  # arguments, and why they have none

    @property
    def syncs_buffers(self) -> bool:
        """Are rank 0's buffers everybody's in each forward?"""
        newer, older = self.torchs["forward_sync_buffers"], self.torchs["broadcast_buffers"]
        return bool(newer if newer is not None else older is None or older)

    @property
    def begins_with_buffers(self) -> bool:
        """And once in the beginning?"""
        newer, older = self.torchs["forward_sync_buffers"], self.torchs["broadcast_buffers"]
        return bool(newer is not None or older is None or older)

    @property
    def group(self) -> dist.ProcessGroup | None:
        mesh = self.torchs["device_mesh"]
        group: dist.ProcessGroup | None = self.torchs["process_group"] if mesh is None else mesh.get_group(mesh_dim=0)
        return group

    def warn(self) -> None:
        """Names arguments without effect: each once a process."""
        new = {name: why for name, why in self.no_effect.items() if name not in _warned}
        _warned.update(new)
        if new:
            reasons = "; ".join(f"{name}: {why}" for name, why in new.items())
            warnings.warn(f"DistributedDataParallel: these arguments have no effect here ({reasons})", stacklevel=3)


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, [*_ENGINE, *_KNOWN, "method", "codec", "transport"], 3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"DistributedDataParallel: there is no argument '{name}'{hint}"


def _named(positional: Sequence[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments by their names; positional ones in torch's order."""
    if len(positional) > len(_DEFAULTS):
        raise TypeError(f"DistributedDataParallel takes {len(_DEFAULTS) + 1} positional arguments at most, as torch's")
    named = dict(zip(_DEFAULTS, positional, strict=False))
    for name in named:
        if name in given:
            raise TypeError(f"DistributedDataParallel: '{name}' is given twice, by its place and by its name")
    return named | dict(given)


def _check_group(torchs: Mapping[str, Any]) -> None:
    group, mesh = torchs["process_group"], torchs["device_mesh"]
    if group is not None and mesh is not None:
        raise ValueError("DistributedDataParallel: process_group and device_mesh are given; give one of them")
    if mesh is not None and mesh.ndim != 1:
        raise ValueError(
            f"DistributedDataParallel: device_mesh has {mesh.ndim} dimensions, and replicas are along one: give a part "
            "of it, mesh['replicate']"
        )
    if dist.is_available() and group is not None:
        if group == dist.GroupMember.NON_GROUP_MEMBER:
            raise ValueError(
                "DistributedDataParallel: this rank is not in process_group; only its members wrap the module"
            )
        if not isinstance(group, dist.ProcessGroup):
            raise TypeError(f"DistributedDataParallel: process_group={group!r} is no group of torch.distributed")


def read(positional: Sequence[Any], given: Mapping[str, Any]) -> Arguments:
    """Takes the arguments apart. TypeError, ValueError: one that cannot be."""
    torchs: dict[str, Any] = _KNOWN | {"gradient_as_bucket_view": True}
    engine: dict[str, Any] = {}
    no_effect: dict[str, str] = {}
    for name, value in _named(positional, given).items():
        if name in _KNOWN:
            torchs[name] = value
        elif name in _ENGINE:
            engine[name] = value
        else:
            raise TypeError(_unknown(name))
        usual = _KNOWN.get(name)
        if name in engine or name in _TAKEN or value is usual or value == usual:
            continue
        if name not in _NO_EFFECT:  # of a newer torch
            raise ValueError(f"DistributedDataParallel: {name}={value!r} is not known to this version of Tutti")
        no_effect[name] = _NO_EFFECT[name]
    wanted = torchs["mixed_precision"]
    if wanted is not None and any(v is not None for v in getattr(wanted, "__dict__", {"": wanted}).values()):
        raise ValueError(
            f"DistributedDataParallel: mixed_precision={wanted}: wrap a module that is bfloat16 already, or use "
            "torch.autocast"
        )
    _check_group(torchs)
    return Arguments(torchs, engine, no_effect)


def device_ids(arguments: Arguments, module: nn.Module) -> list[int] | None:
    """The index of the GPU that inputs are moved to, as a list of one; None: they stay where they are.

    ValueError: device_ids names something else than where the module is."""
    given, output = list(arguments.torchs["device_ids"] or []), arguments.torchs["output_device"]
    where = next(module.parameters()).device
    if len(given) > 1:
        raise ValueError(
            f"DistributedDataParallel: device_ids={given}: a process trains on one device; start a process for each"
        )
    if output is not None and _device(output, where) != where:
        arguments.no_effect["output_device"] = "outputs stay where the module makes them"
    if not given:
        return None
    if _device(given[0], where) != where:
        raise ValueError(
            f"DistributedDataParallel: device_ids={given}, and the module's parameters are on {where}; move it there "
            "before (module.to()), or leave device_ids out"
        )
    return None if where.type == "cpu" else [where.index]


def _device(named: Any, where: torch.device) -> torch.device:
    """A device by its number, name or itself; one without a number is `where` if that is of its kind."""
    device = torch.device("cuda" if where.type == "cpu" else where.type, named) if isinstance(named, int) else \
        torch.device(named)
    return where if device.index is None and device.type == where.type else device
