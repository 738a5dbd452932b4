"""What all workers of a run have in common, in lines that are compared before a newcomer is admitted.

It is all that engines compare as they open (fingerprint.c), and more: when they do the others wait for the newcomer,
and fail with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .._library import library as _c
from ._bind import memory_order

if TYPE_CHECKING:
    from .sampler import BatchSampler


def _plain(value: Any) -> str:
    """A setting as text, without what differs between processes, such as addresses."""
    if isinstance(value, torch.Tensor):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_plain, value)) + "]"
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    return type(value).__qualname__


def _form(t: torch.Tensor) -> str:
    return f"{str(t.dtype).removeprefix('torch.')} {list(t.shape)}"


def _order(t: torch.Tensor) -> str:
    """How it lies in memory, if otherwise than usual, as channels_last."""
    order = memory_order(t)
    return "" if order in (None, tuple(range(t.dim()))) else f", memory order {list(order or ())}"


def _norm(x: Any) -> Any:
    """1 is 1.0."""
    return float(x) if isinstance(x, int) else x


def of(model: nn.Module, optimizer: torch.optim.Optimizer, method: str, sampler: BatchSampler,
       options: dict[str, Any]) -> dict[str, str]:
    """Returns them by name. options: the others of prepare()."""
    facts = {"version of tutti": _c.tutti_version().decode(), "method": method}
    facts |= {name: _plain(options[name]) for name in (
        "elastic_shares", "collective", "clip_norm", "nonfinite", "steps", "codec_cost")}
    facts["clip_norm"] = _plain(_norm(options["clip_norm"]))
    facts["sampler"] = (f"{sampler.samples} samples, batch {sampler.batch}, seed {sampler.seed}, "
                        f"accumulate {sampler.accumulate}, shares {sampler._shares}")
    for name, p in model.named_parameters():
        facts[f"parameter {name}"] = _form(p) + _order(p) + ("" if p.requires_grad else ", frozen")
    for name, b in model.named_buffers():
        facts[f"buffer {name}"] = _form(b)
    kind = type(optimizer)
    facts["optimizer"] = f"{kind.__module__}.{kind.__qualname__}"
    names = {p: name for name, p in model.named_parameters()}
    for number, group in enumerate(optimizer.param_groups):
        facts[f"group {number}"] = ", ".join(f"{name} {_plain(v)}" for name, v in group.items() if name != "params")
        facts[f"parameters of group {number}"] = " ".join(names.get(p, "?") for p in group["params"])
    return facts
