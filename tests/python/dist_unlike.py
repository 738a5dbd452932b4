"""Ranks whose calls do not fit together, as distributed_ranks_test.py makes them: what each rank is told."""

from __future__ import annotations

import time
from datetime import timedelta

import dist_cases
import torch
import torch.distributed as dist

import tutti

LIMIT = 1.5  # seconds, of the group


def of_bits(r, *dtypes):
    """Values of other types and of as many bytes."""
    return torch.ones(4, dtype=dtypes[r % len(dtypes)])


def parts(g, length=3):
    return [torch.ones(length) for _ in range(dist.get_world_size(g))]


def root(g, r):
    return dist.get_global_rank(g, r)


# by name: call(group, whether this is the odd rank): the odd one makes another call than all others
TRIES = {
    "all_reduce, elements": lambda g, odd: dist.all_reduce(torch.ones(4 + odd), group=g),
    "all_reduce, many elements": lambda g, odd: dist.all_reduce(torch.ones(300000 + odd), group=g),
    "all_reduce, dtype": lambda g, odd: dist.all_reduce(torch.ones(4, dtype=(torch.float32, torch.int32)[odd]), group=g),
    "all_reduce, operation": lambda g, odd: dist.all_reduce(torch.ones(4), (dist.ReduceOp.SUM, dist.ReduceOp.MAX)[odd],
                                                            group=g),
    "all_reduce, folds": lambda g, odd: dist.all_reduce(torch.ones(4, dtype=torch.int32),
                                                        (dist.ReduceOp.PRODUCT, dist.ReduceOp.BOR)[odd], group=g),
    "all_reduce, of halves": lambda g, odd: dist.all_reduce(torch.ones(4, dtype=(torch.float16, torch.bfloat16)[odd]),
                                                            group=g),
    "broadcast, elements": lambda g, odd: dist.broadcast(torch.ones(4 + odd), root(g, 0), group=g),
    "broadcast, dtype": lambda g, odd: dist.broadcast(torch.ones(4, dtype=(torch.float16, torch.bfloat16)[odd]),
                                                      root(g, 0), group=g),
    "broadcast, root": lambda g, odd: dist.broadcast(torch.full((4,), float(dist.get_rank())),
                                                     root(g, 1 if odd else 0), group=g),
    "all_gather, dtype": lambda g, odd: dist.all_gather(
        [torch.ones(4, dtype=(torch.float16, torch.bfloat16)[odd]) for _ in parts(g)],
        torch.ones(4, dtype=(torch.float16, torch.bfloat16)[odd]), group=g),
    "all_gather, elements": lambda g, odd: dist.all_gather(parts(g, 3 + odd), torch.ones(3 + odd), group=g),
    "all_gather, bool": lambda g, odd: dist.all_gather(
        [torch.ones(4, dtype=(torch.bool, torch.int8)[odd]) for _ in parts(g)],
        torch.ones(4, dtype=(torch.bool, torch.int8)[odd]), group=g),
    "reduce_scatter, elements": lambda g, odd: dist.reduce_scatter(torch.ones(3 + odd), parts(g, 3 + odd), group=g),
    "gather, root": lambda g, odd: dist.gather(torch.ones(3), parts(g) if dist.get_rank(g) == odd else None,
                                               root(g, 1 if odd else 0), group=g),
    "scatter, root": lambda g, odd: dist.scatter(torch.ones(3), parts(g) if dist.get_rank(g) == odd else None,
                                                 root(g, 1 if odd else 0), group=g),
    "reduce, root": lambda g, odd: dist.reduce(torch.ones(3), root(g, 1 if odd else 0), group=g),
    "all_to_all, splits": lambda g, odd: dist.all_to_all_single(
        torch.ones(len(parts(g)) + odd), torch.ones(len(parts(g)) + odd),
        [1 + odd] + [1] * (len(parts(g)) - 1), [1 + odd] + [1] * (len(parts(g)) - 1), group=g),
    "another call": lambda g, odd: dist.barrier(group=g) if odd else dist.all_reduce(torch.ones(4), group=g),
    "gather for scatter": lambda g, odd: dist.scatter(torch.ones(3), None, root(g, 0), group=g) if odd else
        dist.gather(torch.ones(3), parts(g) if dist.get_rank(g) == 0 else None, root(g, 0), group=g),
    "another order": lambda g, odd: [dist.all_reduce(torch.ones(n), group=g) for n in ((4, 5), (5, 4))[odd]],
    "one call less": lambda g, odd: None if odd else dist.all_reduce(torch.ones(4), group=g),
}


def told_of(group, call, odd):
    """What a rank is told, and after how many seconds. Then a second call, of all."""
    began, told = time.monotonic(), []
    for attempt in (lambda: call(group, odd), lambda: dist.all_reduce(torch.ones(2), group=group)):
        try:
            attempt()
            told.append("")
        except (tutti.Error, TimeoutError, ValueError, RuntimeError) as e:
            told.append(f"{type(e).__name__}: {e}")
    return [*told, time.monotonic() - began]


def tries(rank, n, folder, names):
    """By name: each in a group of its own, where rank 1 is the odd one."""
    dist_cases.start(folder, rank, n, "tutti")
    found = {}
    for name in names:
        group = dist.new_group(list(range(n)), timeout=timedelta(seconds=LIMIT))
        dist.barrier(group=group)
        found[name] = told_of(group, TRIES[name], rank == 1)
        dist.barrier()
    dist.destroy_process_group()
    return found
