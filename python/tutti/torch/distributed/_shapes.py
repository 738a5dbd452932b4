"""The matrices that FSDP2 reduces: fully_shard sends the gradients of a module's parameters as one vector."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator

import torch


def _own(module: torch.nn.Module, seen: set[int]) -> Iterator[torch.nn.Parameter]:
    """Its parameters without those of modules that fully_shard has been called on, too, in FSDP2's order."""
    from torch.distributed.fsdp import FSDPModule  # not before it is needed: who asks has imported it

    seen.add(id(module))
    for child in module.children():
        if id(child) not in seen and not isinstance(child, FSDPModule):
            yield from _own(child, seen)
    for p in module.parameters(recurse=False):
        if id(p) not in seen:
            seen.add(id(p))
            yield p


def _local(p: torch.Tensor) -> tuple[int, int]:
    """Rows and columns of a rank's part, as it is sent: the sharded dimension is filled up to equal parts."""
    from torch.distributed.tensor import DTensor

    sizes = list(p.shape)
    if isinstance(p, DTensor):
        for k, placement in enumerate(p.placements):
            # is_shard() is False of a dimension that tensor parallelism shards too (_StridedShard)
            dim: int | None = getattr(placement, "dim", None)
            if dim is not None:
                sizes[dim] = -(-sizes[dim] // p.device_mesh.size(k))
    return (1, math.prod(sizes)) if len(sizes) < 2 else (sizes[0], math.prod(sizes[1:]))


def shapes_of(model: torch.nn.Module) -> dict[int, list[tuple[int, int]]]:
    """By the elements of a rank's part of each call."""
    from torch.distributed.fsdp import FSDPModule

    found: dict[int, list[tuple[int, int]]] = {}
    unlike: set[int] = set()
    for module in model.modules():
        if not isinstance(module, FSDPModule):
            continue
        shapes = [_local(p) for p in _own(module, set()) if p.requires_grad and p.numel() > 0]
        count = sum(r * c for r, c in shapes)
        if shapes and found.setdefault(count, shapes) != shapes:
            unlike.add(count)
    if unlike:
        warnings.warn(f"modules of unlike parameters have {sorted(unlike)} elements each; their calls are not told "
                      "from each other by that, and each is taken as one matrix", stacklevel=3)
    if not found:
        raise ValueError("the model has no module that fully_shard has been called on; give the shapes in "
                         "codec_of(group).shapes")
    return {count: shapes for count, shapes in found.items() if count not in unlike}
