"""What a script's checkpoint says of its tensors, for readers without the module: in the facts of the manifest,

    "torch": {"format": 1,
              "parameters": {"0.weight": [[3, 1, 3, 3], [0, 2, 3, 1]], "0.bias": [[3]]},   shape, and order if another
              "tied": {"head.weight": "0.weight"},             other names of a parameter, each with its first one
              "statistics": [["1.running_mean", [3]], ...],    of the client's state, in this order; "": replaced since
              "optimizer": ["0.weight", "0.bias"]}             the parameter of each number in the optimizer's state

The order has the dimensions from the slowest in memory to the fastest; row-major if it is left out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import CorruptError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from ..checkpoints import Checkpoint
    from ._bind import Binding

_FORMAT = 1


@dataclass(frozen=True)
class Parameter:
    shape: tuple[int, ...]
    order: tuple[int, ...]


@dataclass(frozen=True)
class Described:
    parameters: dict[str, Parameter]
    tied: dict[str, str]
    statistics: list[tuple[str, tuple[int, ...]]]
    optimizer: list[str]


def facts(
    binding: Binding, statistics: Iterable[torch.Tensor] = (), optimizer: torch.optim.Optimizer | None = None
) -> str:
    """Returns the facts of a checkpoint. statistics: the buffers of the module that are the client's state."""
    shapes = {}
    for b in binding.bound:
        # its class has the shape where values are held by unit, and its data has none
        shape = [0] * len(b.order)
        for d, n in zip(b.order, b.shape, strict=False):
            shape[d] = n
        shapes[b.name] = [shape] if b.order == tuple(range(len(b.order))) else [shape, list(b.order)]
    shapes |= {name: [list(p.shape)] for name, p in [*binding.empty, *binding.frozen] if p.numel() == 0}
    buffers = {id(t): name for name, t in binding.module.named_buffers(remove_duplicate=False)}
    names = {id(p): name for name, p in binding.module.named_parameters()}
    every = binding.module.named_parameters(remove_duplicate=False)
    groups = [] if optimizer is None else optimizer.param_groups
    return json.dumps({"torch": {
        "format": _FORMAT, "parameters": shapes,
        "tied": {name: names[id(p)] for name, p in every if names[id(p)] != name},
        "statistics": [[buffers.get(id(t), ""), list(t.shape)] for t in statistics],
        "optimizer": [names.get(id(p), "") for g in groups for p in g["params"]],
    }})


def _whole(numbers: Any) -> tuple[int, ...]:
    if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
        raise TypeError(f"{numbers!r} is not a list of sizes")
    return tuple(numbers)


def _parameter(said: Any) -> Parameter:
    shape = _whole(said[0])
    order = _whole(said[1]) if len(said) > 1 else tuple(range(len(shape)))
    if sorted(order) != list(range(len(shape))):
        raise ValueError(f"{said[1]!r} is not an order of {len(shape)} dimensions")
    return Parameter(shape, order)


def of(checkpoint: Checkpoint) -> Described | None:
    """Returns what the checkpoint says; None: nothing."""
    said = checkpoint.facts.get("torch")
    if said is None:
        return None
    try:
        if said["format"] != _FORMAT:
            raise ValueError(f"format {said['format']} is of another version")
        return Described({name: _parameter(one) for name, one in said["parameters"].items()},
                         {str(name): str(first) for name, first in said["tied"].items()},
                         [(str(name), _whole(shape)) for name, shape in said["statistics"]],
                         [str(name) for name in said["optimizer"]])
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as e:
        raise CorruptError(f"the description of tensors in '{checkpoint.path}' is not one of this version ({e}); load "
                           "the checkpoint with the script that saved it") from None
