"""Calls of ProcessGroup that a group on `tutti` does not serve: each raises a sentence, and questions about them have
the answer False. Without this the class of torch's would answer them: with an error about a backend that is none, or,
for a hook, by keeping what is never called. Also those that a later PyTorch adds are refused.
"""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist

# What torch's class itself answers, in every version: numbers, and what is not a call to others.
_OF_TORCH = {"rank", "size", "boxed", "unbox"}

_HOOKS = "torch's hooks see only calls of backends in C++; tutti.torch.distributed.options(trace=) records every call"
_ELASTIC = ("a group keeps its ranks; where workers come and go, train by tutti.torch.prepare(elastic=True), or end "
            "the group and call init_process_group with those that are there")
_INSTEAD = {
    "reconfigure": _ELASTIC,
    "get_reconfigure_handle": _ELASTIC,
    "merge_remote_group": _ELASTIC,
    "new_window": "send and receive, with a tag",
    "split_group": "torch.distributed.new_group",
    "monitored_barrier": "barrier; who is missing is in the sentence of its TimeoutError",
    "register_pre_hook": _HOOKS,
    "register_post_hook": _HOOKS,
    "register_abort_hook": _HOOKS,
}


def _refusal(name: str) -> Any:
    instead = _INSTEAD.get(name.removeprefix("un"))
    text = f"the backend 'tutti' has no {name}"
    text += f": {instead}" if instead else ", which this version of Tutti does not know"

    def refused(self: Any, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(text)

    refused.__name__ = name
    return refused


def _no(self: Any, *_: Any, **__: Any) -> bool:
    return False


def refuse(group: type[dist.ProcessGroup]) -> None:
    """Gives the class a refusal for each public call of torch's that it has not, and False for each question."""
    for name, of_torch in vars(dist.ProcessGroup).items():
        if name.startswith("_") or name in vars(group) or name in _OF_TORCH or isinstance(of_torch, type):
            continue
        if callable(of_torch) and not name.startswith("supports_"):
            setattr(group, name, _refusal(name))
    # torch puts these questions to a group's backend also, which is the group itself.
    for name, of_torch in (*vars(dist.ProcessGroup).items(), *vars(dist._Backend).items()):
        if name.startswith("supports_") and name not in vars(group):
            setattr(group, name, _no if callable(of_torch) else False)


def check(opts: Any) -> None:
    """What a group was asked for by other ways than a call. Raises before the ranks meet."""
    if getattr(opts, "enable_reconfigure", False):
        raise NotImplementedError(f"the backend 'tutti' takes no enable_reconfigure=True: {_ELASTIC}")
    if hasattr(dist.distributed_c10d, "NanCheckHook") and os.environ.get("TORCH_DIST_NAN_CHECK") == "1":
        raise NotImplementedError(
            "TORCH_DIST_NAN_CHECK=1: PyTorch would look for NaN in no call of the backend 'tutti', and say nothing; "
            "unset it (TORCH_NCCL_NAN_CHECK=1 is for groups on NCCL alone)"
        )
