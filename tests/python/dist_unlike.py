"""Ranks whose calls do not fit together, as distributed_ranks_test.py makes them, and the errors of each rank."""

from __future__ import annotations

import time
from datetime import timedelta

import dist_cases
import torch
import torch.distributed as dist

import tutti

LIMIT = 3.0  # seconds, of the group
HALVES = (torch.float16, torch.bfloat16)  # of as many bytes


def parts(g, length=3):
    return [torch.ones(length) for _ in range(dist.get_world_size(g))]


def root(g, r):
    return dist.get_global_rank(g, r)


def all_gather(g, x):
    dist.all_gather([torch.zeros_like(x) for _ in parts(g)], x, group=g)


def gather(g, at):
    dist.gather(torch.ones(3), parts(g) if dist.get_rank(g) == at else None, root(g, at), group=g)


def scatter(g, at):
    dist.scatter(torch.ones(3), parts(g) if dist.get_rank(g) == at else None, root(g, at), group=g)


def splits(g, first):
    """Rank 0 gets as many, and the others one."""
    of = [first] + [1] * (len(parts(g)) - 1)
    dist.all_to_all_single(torch.ones(sum(of)), torch.ones(sum(of)), of, of, group=g)


def both(g, *sizes):
    for n in sizes:
        dist.all_reduce(torch.ones(n), group=g)


def reduced(g, op, dtype=torch.float32, n=4):
    dist.all_reduce(torch.ones(n, dtype=dtype), op, group=g)


SUM, MAX, PRODUCT, BOR = (getattr(dist.ReduceOp, name) for name in ("SUM", "MAX", "PRODUCT", "BOR"))

def halves(g, dtype):
    dist.broadcast(torch.ones(4, dtype=dtype), root(g, 0), group=g)


# By name: a call of a group; its last argument on all ranks but 1, and on rank 1; and words, each
# of which must be in the errors of every rank.
TRIES = {
    "all_reduce, elements": (lambda g, n: reduced(g, SUM, n=n), (4, 5), "4 F32|5 F32"),
    "all_reduce, many elements": (lambda g, n: reduced(g, SUM, n=n), (300000, 300001), "300000 F32|300001 F32"),
    "all_reduce, dtype": (lambda g, of: reduced(g, SUM, of), (torch.float32, torch.int32), "F32|I32"),
    "all_reduce, halves": (lambda g, of: reduced(g, SUM, of), HALVES, "F16|BF16"),
    "all_reduce, operation": (reduced, (SUM, MAX), "sum|max"),
    "all_reduce, folds": (lambda g, op: reduced(g, op, torch.int32), (PRODUCT, BOR), "by mul_|by bitwise_or_"),
    "broadcast, elements": (lambda g, n: dist.broadcast(torch.ones(n), root(g, 0), group=g), (4, 5),
                            "of 4 torch.float32|of 5 torch.float32"),
    "broadcast, dtype": (halves, HALVES, "of 4 torch.float16|of 4 torch.bfloat16"),
    "broadcast, root": (lambda g, at: dist.broadcast(torch.ones(4), root(g, at), group=g), (0, 1), "index 0|index 1"),
    "all_gather, dtype": (lambda g, of: all_gather(g, torch.ones(4, dtype=of)), HALVES, "torch.float16|torch.bfloat16"),
    "all_gather, elements": (lambda g, n: all_gather(g, torch.ones(n)), (4, 5), "16 U8|20 U8"),
    "all_gather, bool": (lambda g, of: all_gather(g, torch.ones(4, dtype=of)), (torch.bool, torch.int8),
                         "torch.bool|torch.int8"),
    "reduce_scatter, elements": (lambda g, n: dist.reduce_scatter(torch.ones(n), parts(g, n), group=g), (3, 4),
                                 "3 F32|4 F32"),
    "gather, root": (gather, (0, 1), "index 0|index 1"),
    "scatter, root": (scatter, (0, 1), "index 0|index 1"),
    "reduce, root": (lambda g, at: dist.reduce(torch.ones(3), root(g, at), group=g), (0, 1), "index 0|index 1"),
    "all_to_all, splits": (splits, (1, 2), "rank 0"),
    "another call": (lambda g, call: call(group=g), (lambda group: reduced(group, SUM), dist.barrier),
                     "all-reduce|barrier"),
    "gather for scatter": (lambda g, call: call(g, 0), (gather, scatter), "gather of 3|scatter of 3"),
    "another order": (lambda g, sizes: both(g, *sizes), ((4, 5), (5, 4)), "4 F32|5 F32"),
    "one call less": (lambda g, sizes: both(g, *sizes), ((4,), ()), "4 F32|2 F32"),
}


def told_of(group, call, argument):
    """The errors of that call and of a second one, which all ranks make, and the seconds that they took."""
    began, told = time.monotonic(), []
    for attempt in (lambda: call(group, argument), lambda: dist.all_reduce(torch.ones(2), group=group)):
        try:
            attempt()
        except (tutti.Error, TimeoutError) as e:
            told.append(f"{type(e).__name__}: {e}")
    return [" ".join(told), time.monotonic() - began]


def tries(rank, n, folder):
    """By name: each in a group of its own."""
    dist_cases.start(folder, rank, n, "tutti")
    found = {}
    for name, (call, (usual, odd), _) in TRIES.items():
        group = dist.new_group(list(range(n)), timeout=timedelta(seconds=LIMIT))
        dist.barrier()  # not of the group: a member that is still in an earlier call of it fails there
        found[name] = told_of(group, call, odd if rank == 1 else usual)
        dist.barrier()
    dist.destroy_process_group()
    return found


def after_many(rank, n, folder, trials):
    """The error of each trial: a call that does not fit, after as many that did as a rank remembers."""
    dist_cases.start(folder, rank, n, "tutti")
    found = []
    for _ in range(trials):
        group = dist.new_group(list(range(n)), timeout=timedelta(seconds=LIMIT))
        for length in range(1, 41):
            dist.all_reduce(torch.ones(length), group=group)
        dist.barrier()
        found.append(told_of(group, halves, HALVES[rank == 1])[0])
        dist.barrier()
    dist.destroy_process_group()
    return found
