"""Several things in turn on the same ranks. What fails does not spoil what follows: its group is made again."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import dist_cases
import torch.distributed as dist

LIMIT = timedelta(seconds=90)


def _begin(folder, rank, n, backend, name):
    """backend: "gloo", "tutti", "tutti/tcp"; with "override/tcp" the default group is Gloo's."""
    kind, _, transport = backend.partition("/")
    os.environ["TUTTI_TRANSPORT"] = transport
    dist_cases.start(folder, rank, n, "gloo" if kind == "override" else kind, name=name)


def _leave():
    """Ends all groups, also those in which others still wait for this rank."""
    if dist.is_initialized():
        if dist.get_backend() == "tutti":
            dist.distributed_c10d._abort_process_group()
        else:
            dist.destroy_process_group()


def in_turn(rank: int, n: int, folder: str, backend: str, things: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """By name what each returns; where a rank has failed, on all ranks the text of its error instead.

    The ranks agree over a store of their own after each. One that has failed leaves its groups at once, so the others
    are not kept in a call, whatever it is.
    """
    at = backend.replace("/", "-")
    store, told = dist.FileStore(f"{folder}/{at}-turns", n), {}
    _begin(folder, rank, n, backend, at)
    for k, (name, thing) in enumerate(things.items()):
        wrong = ""
        try:
            told[name] = thing()
            dist.barrier()
        except Exception as e:  # noqa: BLE001 (the answer has it)
            traceback.print_exc()
            wrong = f"{type(e).__name__}: {e}"
            _leave()
        store.set(f"{k}/{rank}", wrong)
        store.wait([f"{k}/{r}" for r in range(n)], LIMIT)
        failed = {r: text for r in range(n) if (text := store.get(f"{k}/{r}").decode())}
        if failed:
            told[name] = "; ".join(f"rank {r}: {text}" for r, text in failed.items())
            _leave()
            _begin(folder, rank, n, backend, f"{at}-after-{k}")
    dist.destroy_process_group()
    return told
