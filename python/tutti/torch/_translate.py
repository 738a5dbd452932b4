"""Translates a torch optimiser to a spec of the library (method.h), for methods that make the updates themselves.

The library's update rules are PyTorch's, so the translated optimiser trains in the same way. Options of torch that the
library's rule does not have must have their default values.
"""

from typing import Any

import torch

from .._library import library as _c

# Options that affect how torch computes an update, and not its result.
_HOW = {"foreach", "fused", "capturable", "differentiable", "initial_lr", "params", "swap_tensors"}
_RULES = {torch.optim.SGD: "sgd", torch.optim.Adam: "adam", torch.optim.AdamW: "adamw"}


def _options(rule: str) -> set[str]:
    options, names, k = _c.tutti_optim_find(rule.encode()).contents.options, set(), 0
    while options[k].name:
        names.add(options[k].name.decode())
        k += 1
    return names


def _number(value: Any) -> str:
    value = value.item() if isinstance(value, torch.Tensor) else value
    return str(value).lower() if isinstance(value, bool) else repr(value)


def spec(optimizer: torch.optim.Optimizer, method: str) -> str:
    """Returns the spec, such as "sgd(lr=0.1,momentum=0.9)" for torch.optim.SGD. ValueError: there is none."""
    can = (f"method '{method}' updates by itself, at its servers or in its own rule, and takes over torch.optim.SGD, "
           "Adam or AdamW with one group of parameters")
    rule = _RULES.get(type(optimizer))
    if rule is None:
        raise ValueError(f"{can}; this is a {type(optimizer).__module__}.{type(optimizer).__qualname__}")
    if len(optimizer.param_groups) != 1:
        raise ValueError(f"{can}; this one has {len(optimizer.param_groups)} groups")
    group = {k: v for k, v in optimizer.param_groups[0].items() if k not in _HOW}
    if group.pop("decoupled_weight_decay", rule == "adamw"):
        rule = "adamw"
    if "betas" in group:
        group["beta1"], group["beta2"] = group.pop("betas")
    known = _options(rule)
    beyond = sorted(k for k, v in group.items() if k not in known and v not in (False, None, 0))
    if beyond:
        raise ValueError(f"{can}; the library's {rule} has no option {', '.join(beyond)}")
    if any(optimizer.state.values()):
        raise ValueError(f"{can}; this one has made steps already, and their state cannot be taken over")
    return f"{rule}({','.join(f'{k}={_number(v)}' for k, v in group.items() if k in known)})"
