"""What distributed_test.py asks of the backend 'tutti' on each rank: every method, dtype, operation and shape.

All ranks can compute what any of them has, so each checks its results alone. Sums are of small integers, which every
dtype holds exactly: then no order of summation shows, and results are equal bit for bit. A case returns sentences about
what is wrong.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64)
COMPLEX = (torch.complex64, torch.complex128)
DTYPES = (*FLOATS, *INTS, torch.bool, *COMPLEX)
OF_GLOO = (*FLOATS, torch.int8, torch.uint8, torch.int32, torch.int64)
FORMS = ("contiguous", "strided", "empty", "one", "scalar")
SHAPES = {"contiguous": (5, 3), "strided": (5, 3), "empty": (0, 3), "one": (1,), "scalar": ()}
BITWISE = {"BAND": operator.and_, "BOR": operator.or_, "BXOR": operator.xor}


def start(folder, rank, n, backend, name="store", **more):
    torch.set_num_threads(1)
    name += os.environ.get("FORKED_ATTEMPT", "")
    dist.init_process_group(backend, init_method=f"file://{folder}/{name}", rank=rank, world_size=n,
                            timeout=timedelta(seconds=60), **more)


def values(dtype, form, rank, salt=0):
    g = torch.Generator().manual_seed(100 * salt + rank)
    x = torch.randint(0, 5, SHAPES[form], generator=g)
    if dtype == torch.bool:
        return x > 2
    if dtype in COMPLEX:
        return torch.complex(x.to(torch.float64), (x + 1).to(torch.float64)).to(dtype)
    signed = dtype in FLOATS or dtype in (torch.int8, torch.int16, torch.int32, torch.int64)
    return (x - 2 if signed else x).to(dtype)


def laid(x, form):
    """The same values, in memory as the form has it."""
    if form != "strided":
        return x.clone()
    y = torch.zeros(x.shape[::-1], dtype=x.dtype).t()
    y.copy_(x)
    assert not y.is_contiguous()
    return y


def same(a, b):
    a, b = (torch.view_as_real(t) if t.is_complex() else t for t in (a, b))
    return a.dtype == b.dtype and a.shape == b.shape and a.tolist() == b.tolist()


def reduced(name, parts):
    """The result of an operation on those of all ranks."""
    dtype = parts[0].dtype
    if name in BITWISE:
        wide = [p.to(torch.int64) for p in parts]
        return functools.reduce(BITWISE[name], wide).to(dtype)
    if name == "AVG":
        return functools.reduce(torch.add, [p.to(torch.complex128 if p.is_complex() else torch.float64) for p in parts]
                                ).div(len(parts)).to(dtype)
    if dtype == torch.bool:
        name = {"SUM": "MAX", "PRODUCT": "MIN"}.get(name, name)
    wide = [p if p.is_complex() else p.to(torch.float64 if p.is_floating_point() else torch.int64) for p in parts]
    ops = {"SUM": torch.add, "PRODUCT": torch.mul, "MAX": torch.maximum, "MIN": torch.minimum}
    return functools.reduce(ops[name], wide).to(dtype)


def operations(dtype):
    if dtype in COMPLEX:
        return ("SUM", "AVG")
    if dtype in FLOATS:
        return ("SUM", "AVG", "PRODUCT", "MIN", "MAX")
    return ("SUM", "PRODUCT", "MIN", "MAX", *BITWISE)


class Checks:
    """What is wrong with a group's methods, on this rank."""

    def __init__(self, group):
        self.group, self.me, self.n = group, dist.get_rank(group), dist.get_world_size(group)
        self.wrong: list[str] = []

    def check(self, what, got, wanted, close=False):
        right = torch.allclose(got, wanted, rtol=1e-2, atol=1e-2) if close else same(got, wanted)
        if not right:
            self.wrong.append(f"{what}: {got.tolist()} for {wanted.tolist()}")

    def all(self, dtype, form, salt=0):
        return [values(dtype, form, r, salt) for r in range(self.n)]

    def empties(self, x, form):
        return [laid(torch.zeros_like(x), form) for _ in range(self.n)]


def reductions(c: Checks, dtype, form):
    parts = c.all(dtype, form)
    for op_name in operations(dtype):
        what, op, wanted = f"{op_name} of {dtype} {form}", getattr(ReduceOp, op_name), reduced(op_name, parts)
        close = op_name == "AVG"
        x = laid(parts[c.me], form)
        dist.all_reduce(x, op, group=c.group)
        c.check("all_reduce " + what, x, wanted, close)
        x = laid(parts[c.me], form)
        dist.reduce(x, dist.get_global_rank(c.group, c.n - 1), op, group=c.group)
        c.check("reduce " + what, x, wanted if c.me == c.n - 1 else parts[c.me], close)
        if form == "scalar":
            continue
        # every rank's input is a row for each rank
        rows = [[values(dtype, form, r, 1 + j) for j in range(c.n)] for r in range(c.n)]
        wanted = reduced(op_name, [rows[r][c.me] for r in range(c.n)])
        out, into = laid(torch.zeros_like(wanted), form), [laid(t, form) for t in rows[c.me]]
        dist.reduce_scatter(out, into, op, group=c.group)
        c.check("reduce_scatter " + what, out, wanted, close)
        for name in ("reduce_scatter_single", "_reduce_scatter_base"):
            out, into = laid(torch.zeros_like(wanted), form), laid(torch.cat(rows[c.me]), form)
            before, opts = into.clone(), dist.ReduceScatterOptions()
            opts.reduceOp = op
            getattr(c.group, name)(out, into, opts).wait()
            c.check(f"{name} {what}", out, wanted, close)
            c.check(f"{name} {what}, its input", into, before)


def movements(c: Checks, dtype, form):
    what, parts = f"of {dtype} {form}", c.all(dtype, form)
    mine, root = parts[c.me], c.n - 1
    of_root = dist.get_global_rank(c.group, root)
    x = laid(mine, form)
    dist.broadcast(x, of_root, group=c.group)
    c.check("broadcast " + what, x, parts[root])
    outs = c.empties(mine, form)
    dist.all_gather(outs, laid(mine, form), group=c.group)
    for r in range(c.n):
        c.check(f"all_gather {what}, part {r}", outs[r], parts[r])
    outs = c.empties(mine, form) if c.me == root else None
    dist.gather(laid(mine, form), outs, of_root, group=c.group)
    for r in range(c.n if outs else 0):
        c.check(f"gather {what}, part {r}", outs[r], parts[r])
    x, rows = laid(torch.zeros_like(mine), form), [values(dtype, form, root, 1 + j) for j in range(c.n)]
    dist.scatter(x, [laid(t, form) for t in rows] if c.me == root else None, of_root, group=c.group)
    c.check("scatter " + what, x, rows[c.me])
    outs = c.empties(mine, form)
    dist.all_to_all(outs, [laid(values(dtype, form, c.me, 1 + j), form) for j in range(c.n)], group=c.group)
    for r in range(c.n):
        c.check(f"all_to_all {what}, part {r}", outs[r], values(dtype, form, r, 1 + c.me))
    right, left = (c.me + 1) % c.n, (c.me - 1) % c.n
    x = laid(torch.zeros_like(mine), form)
    works = [dist.isend(laid(mine, form), group=c.group, group_dst=right, tag=3),
             dist.irecv(x, group=c.group, group_src=left, tag=3)]
    for work in works:
        work.wait()
    c.check("isend, irecv " + what, x, parts[left])
    if form == "scalar":
        return
    for name in ("all_gather_single", "_allgather_base"):
        out = laid(torch.zeros_like(torch.cat(parts)), form)
        getattr(c.group, name)(out, laid(mine, form)).wait()
        c.check(f"{name} {what}", out, torch.cat(parts))
    opts = dist.GatherOptions()
    opts.rootRank = root
    for name in ("gather_single", "gather_into_tensor"):
        out = laid(torch.zeros_like(torch.cat(parts)), form) if c.me == root else torch.zeros(0, dtype=dtype)
        getattr(c.group, name)(out, laid(mine, form), opts).wait()
        if c.me == root:
            c.check(f"{name} {what}", out, torch.cat(parts))
    if hasattr(dist, "gather_single"):  # from PyTorch 2.14 on
        out = torch.zeros_like(torch.cat(parts)) if c.me == root else None
        dist.gather_single(mine, out, of_root, group=c.group)
        if c.me == root:
            c.check("dist.gather_single " + what, out, torch.cat(parts))
    whole = torch.cat([values(dtype, form, c.me, 1 + j) for j in range(c.n)])
    for name in ("all_to_all_single", "alltoall_base"):
        out = laid(torch.zeros_like(whole), form)
        getattr(c.group, name)(out, laid(whole, form), [], []).wait()
        c.check(f"{name} {what}", out, torch.cat([values(dtype, form, r, 1 + c.me) for r in range(c.n)]))


def uneven(c: Checks):
    """Parts of different sizes; n + 1 elements for rank 0 of rank 0, and so on."""
    def block(source, to):
        return torch.arange(source + to + 1, dtype=torch.float32) + 10 * source + 100 * to

    sizes = [r + c.me + 1 for r in range(c.n)]
    x, out = torch.cat([block(c.me, r) for r in range(c.n)]), torch.zeros(sum(sizes))
    dist.all_to_all_single(out, x, sizes, sizes, group=c.group)
    c.check("uneven all_to_all_single", out, torch.cat([block(r, c.me) for r in range(c.n)]))
    outs = [torch.zeros(r + 1) for r in range(c.n)]
    dist.all_gather(outs, block(0, c.me), group=c.group)
    for r in range(c.n):
        c.check("uneven all_gather", outs[r], block(0, r))
    out = torch.zeros(c.me + 1)
    dist.reduce_scatter(out, [block(0, r) for r in range(c.n)], group=c.group)
    c.check("uneven reduce_scatter", out, c.n * block(0, c.me))


def coalesced(c: Checks):
    """Several calls that one Work stands for, in both ways that there are."""
    xs = [torch.full((3,), float(c.me + k)) for k in range(3)]
    wanted = [torch.full((3,), float(sum(r + k for r in range(c.n)))) for k in range(3)]
    with dist._coalescing_manager(group=c.group, async_ops=True) as manager:
        for x in xs:
            dist.all_reduce(x, group=c.group)
    manager.wait()
    for x, w in zip(xs, wanted, strict=True):
        c.check("coalesced all_reduce", x, w)
    xs = [torch.full((3,), float(c.me + k)) for k in range(3)]
    c.group._start_coalescing(torch.device("cpu"))
    for x in xs:
        c.group.allreduce([x], dist.AllreduceOptions())
    c.group._end_coalescing(torch.device("cpu")).wait()
    for x, w in zip(xs, wanted, strict=True):
        c.check("all_reduce between _start_coalescing and _end_coalescing", x, w)
    for name in ("all_gather_single_coalesced", "allgather_into_tensor_coalesced"):
        outs = [torch.zeros(c.n), torch.zeros(2 * c.n)]
        getattr(c.group, name)(outs, [torch.full((1,), float(c.me)), torch.full((2,), float(c.me))]).wait()
        c.check(name, outs[1], torch.arange(float(c.n)).repeat_interleave(2))
    for name in ("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"):
        outs = [torch.zeros(1), torch.zeros(2)]
        getattr(c.group, name)(outs, [torch.arange(float(c.n)), torch.arange(2.0 * c.n)],
                               dist.ReduceScatterOptions()).wait()
        c.check(name, outs[1], c.n * torch.tensor([2.0 * c.me, 2.0 * c.me + 1]))
    opts = dist.AllreduceCoalescedOptions()
    opts.reduceOp = ReduceOp.MAX
    xs = [torch.tensor([c.me]), torch.tensor([-c.me])]
    c.group.allreduce_coalesced(xs, opts).wait()
    c.check("allreduce_coalesced", torch.cat(xs), torch.tensor([c.n - 1, 0]))
    outs = [[torch.zeros(1), torch.zeros(2)] for _ in range(c.n)]
    c.group.allgather_coalesced(outs, [torch.full((1,), float(c.me)), torch.full((2,), float(c.me))]).wait()
    for r in range(c.n):
        c.check("allgather_coalesced", torch.cat(outs[r]), torch.full((3,), float(r)))


def premultiplied(c: Checks):
    for dtype in FLOATS:
        for factor in (0.5, torch.tensor(0.5)):
            x = torch.arange(4).to(dtype)
            dist.all_reduce(x, dist._make_nccl_premul_sum(factor), group=c.group)
            c.check(f"PREMUL_SUM of {dtype}", x, (torch.arange(4) * 0.5 * c.n).to(dtype))
    x, out = torch.arange(2.0 * c.n), torch.zeros(2)
    dist.reduce_scatter_tensor(out, x, dist._make_nccl_premul_sum(2.0), group=c.group)
    c.check("PREMUL_SUM, reduce_scatter_tensor", out, 2.0 * c.n * x[2 * c.me:2 * c.me + 2])


def objects(c: Checks):
    sizes = (0, 1, 1 << 20)
    mine = {"rank": c.me, "bytes": b"x" * sizes[c.me % 3], "list": []}
    got = [None] * c.n
    dist.all_gather_object(got, mine, group=c.group)
    root = dist.get_global_rank(c.group, c.n - 1)
    sent = [mine, None, []] if c.me == c.n - 1 else [None] * 3
    dist.broadcast_object_list(sent, root, group=c.group)
    at_root = [None] * c.n if c.me == c.n - 1 else None
    dist.gather_object(mine, at_root, root, group=c.group)
    out = [None]
    dist.scatter_object_list(out, [("for", r) for r in range(c.n)] if c.me == c.n - 1 else None, root, group=c.group)
    for what, right in {
        "all_gather_object": [g["rank"] for g in got] == list(range(c.n)) and
                             [len(g["bytes"]) for g in got] == [sizes[r % 3] for r in range(c.n)],
        "broadcast_object_list": sent[0]["rank"] == c.n - 1 and sent[1:] == [None, []],
        "gather_object": at_root is None or [g["rank"] for g in at_root] == list(range(c.n)),
        "scatter_object_list": out == [("for", c.me)],
    }.items():
        if not right:
            c.wrong.append(what)


def messages(c: Checks):
    """Tags, any source, both send before they receive, sends that a collective overtakes, and to oneself."""
    right, left = (c.me + 1) % c.n, (c.me - 1) % c.n
    big, come = torch.full((300000,), float(c.me)), torch.zeros(300000)
    sends = [dist.isend(big, group=c.group, group_dst=right, tag=1),
             dist.isend(torch.tensor([c.me]), group=c.group, group_dst=right, tag=2)]
    dist.barrier(group=c.group)
    small = torch.zeros(1, dtype=torch.int64)
    dist.recv(small, group=c.group, group_src=left, tag=2)
    dist.recv(come, group=c.group, group_src=left, tag=1)
    for work in sends:
        work.wait()
    c.check("a message behind another one", small, torch.tensor([left]))
    c.check("a large message", come[:5], torch.full((5,), float(left)))
    dist.barrier(group=c.group)
    if c.me == 0:
        seen = set()
        for _ in range(c.n - 1):
            x = torch.zeros(1, dtype=torch.int64)
            of = dist.get_group_rank(c.group, dist.recv(x, group=c.group))
            seen.add(of)
            c.check("recv of any", x, torch.tensor([of]))
        if seen != set(range(1, c.n)):
            c.wrong.append(f"recv of any came of {seen}")
    else:
        dist.send(torch.tensor([c.me]), group=c.group, group_dst=0)
    dist.barrier(group=c.group)
    ops = [dist.P2POp(dist.irecv, x := torch.zeros(2), group=c.group, group_peer=left),
           dist.P2POp(dist.isend, torch.full((2,), float(c.me)), group=c.group, group_peer=right)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    c.check("batch_isend_irecv", x, torch.full((2,), float(left)))
    work = c.group.send([torch.tensor([7.0])], c.me, 9)
    c.group.recv([x := torch.zeros(1)], c.me, 9).wait()
    work.wait()
    c.check("a message to oneself", x, torch.tensor([7.0]))


def works(c: Checks):
    """What a Work is asked, and results in tensors that were made in inference mode."""
    x = torch.ones(3)
    work = dist.all_reduce(x, async_op=True, group=c.group)
    if not work.wait(timedelta(0)) or not work.is_completed() or not work.is_success() or work.exception() is not None:
        c.wrong.append("a Work that is over")
    x = torch.ones(3)
    future = dist.all_reduce(x, async_op=True, group=c.group).get_future().then(lambda f: f.value()[0] * 2)
    if not dist.all_reduce(torch.ones(3), async_op=True, group=c.group).wait(timedelta.max):
        c.wrong.append("the longest timeout that there is")
    c.check("a future", future.wait(), torch.full((3,), 2.0 * c.n))
    with torch.inference_mode():
        outs = [torch.zeros(3, 2).t() for _ in range(c.n)]
        dist.all_gather(outs, torch.full((2, 3), float(c.me)), group=c.group)
    c.check("all_gather in inference mode", outs[c.n - 1].clone(), torch.full((2, 3), float(c.n - 1)))
    leaf = torch.ones(2, 3).t().requires_grad_()
    with torch.no_grad():
        dist.all_reduce(leaf, group=c.group)
    c.check("a leaf", leaf.detach(), torch.full((3, 2), float(c.n)))


def functional(c: Checks):
    """Functional collectives, which torch.compile and DTensor use."""
    import torch.distributed._functional_collectives as funcol

    x = torch.full((2,), float(c.me))
    total = float(sum(range(c.n)))
    c.check("functional all_reduce", funcol.all_reduce(x, "sum", c.group) + 0, torch.full((2,), total))
    c.check("functional all_gather", funcol.all_gather_tensor(x, 0, c.group) + 0,
            torch.arange(float(c.n)).repeat_interleave(2))
    c.check("functional reduce_scatter", funcol.reduce_scatter_tensor(torch.arange(2.0 * c.n), "sum", 0, c.group) + 0,
            c.n * torch.tensor([2.0 * c.me, 2.0 * c.me + 1]))
    c.check("functional broadcast", funcol.broadcast(x, 0, c.group) + 0, torch.zeros(2))
    c.check("functional all_to_all", funcol.all_to_all_single(torch.arange(float(c.n)), None, None, c.group) + 0,
            torch.full((c.n,), float(c.me)))


def rows_of(rank, dtype, shape=(7, 3, 2), sparse_dim=2, places=5):
    """A sparse tensor with rows of its own, some of them twice."""
    g = torch.Generator().manual_seed(rank)
    at = torch.stack([torch.randint(0, length, (places,), generator=g) for length in shape[:sparse_dim]])
    values = (torch.randn(places, *shape[sparse_dim:], generator=g) * 9).to(dtype)
    return torch.sparse_coo_tensor(at, values, shape, check_invariants=True)


def sparse(c: Checks):
    """All-reduces of sparse tensors: those of the dense ones, in the order of ranks."""
    for dtype in (*FLOATS, torch.int64, torch.int8):
        for name in ("SUM", "AVG") if dtype.is_floating_point else ("SUM",):
            parts = [rows_of(r, dtype) for r in range(c.n)]
            wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
            total = torch.zeros(7, 3, 2, dtype=wide)
            for part in parts:
                total += part.coalesce().to_dense().to(wide) * (1 / c.n if name == "AVG" else 1)
            x = parts[c.me]
            dist.all_reduce(x, getattr(ReduceOp, name), group=c.group)
            c.check(f"sparse {name} of {dtype}", x.to_dense(), total.to(dtype))
            places = {tuple(i) for part in parts for i in part._indices().t().tolist()}
            if not x.is_coalesced() or x._nnz() != len(places):
                c.wrong.append(f"sparse {name} of {dtype}: {x._nnz()} rows, and {len(places)} places")
    x = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.int64), torch.empty(0, 2), (4, 2)) if c.me == 0 else \
        torch.sparse_coo_tensor([[3]], [[float(c.me), 1.0]], (4, 2))
    dist.all_reduce(x, group=c.group)
    c.check("sparse, where one rank has no row", x.to_dense()[3], torch.tensor([float(sum(range(c.n))), c.n - 1.0]))
    for shape, sparse_dim in (((0, 2), 1), ((3,), 0), ((4,), 1)):
        x = torch.sparse_coo_tensor(torch.zeros(sparse_dim, 0, dtype=torch.int64),
                                    torch.zeros(0, *shape[sparse_dim:]), shape)
        dist.all_reduce(x, group=c.group)
        c.check(f"sparse and empty, {shape}", x.to_dense(), torch.zeros(shape))
    with torch.inference_mode():
        x = rows_of(c.me, torch.float32)
        dist.all_reduce(x, group=c.group)
    c.check("sparse in inference mode", x.to_dense(), sum(rows_of(r, torch.float32).to_dense() for r in range(c.n)))
    x, dense = rows_of(c.me, torch.float32), torch.ones(3)
    c.group.allreduce_coalesced([dense, x, dense.clone()]).wait()
    c.check("dense beside sparse", dense, torch.full((3,), float(c.n)))
    x._values().mul_(2)  # as an optimizer or a clipping does


def refused(c: Checks):
    """Alike on all ranks, by name, and the group can be used as before."""
    tries = {
        "no BAND of torch.float32": lambda: dist.all_reduce(torch.ones(2), ReduceOp.BAND, group=c.group),
        "no AVG of torch.int64": lambda: dist.all_reduce(torch.ones(2, dtype=torch.int64), ReduceOp.AVG, group=c.group),
        "moved and not reduced": lambda: dist.all_reduce(torch.ones(2).to(torch.float8_e5m2), group=c.group),
        "no MAX of sparse": lambda: dist.all_reduce(torch.eye(2).to_sparse(), ReduceOp.MAX, group=c.group),
        "no SUM of sparse": lambda: dist.all_reduce(torch.eye(2).bool().to_sparse(), group=c.group),
        "no SUM of sparse tensors of torch.complex64": lambda: c.group.allreduce([rows_of(0, torch.complex64)]),
        "torch.sparse_csr": lambda: c.group.allreduce([torch.eye(2).to_sparse_csr()]),
        "this one is torch.sparse_coo": lambda: c.group.broadcast([torch.eye(2).to_sparse()]),
        "host memory": lambda: c.group.allreduce([torch.empty(2, device="meta")]),
        "elements of each of": lambda: c.group.all_gather_single(torch.zeros(3 * c.n), torch.zeros(2)),
        "all of one call have the same dtype": lambda: c.group.all_gather_single(torch.zeros(2 * c.n),
                                                                                torch.zeros(2).int()),
        "part": lambda: c.group._reduce_scatter_base(torch.zeros(2), torch.zeros(3 * c.n)),
        "splits": lambda: c.group.all_to_all_single(torch.zeros(c.n), torch.zeros(c.n), [], [1] * (c.n + 1)),
        "tensors for": lambda: c.group.allgather([[torch.zeros(1)] * (c.n + 1)], [torch.zeros(1)]),
    }
    for words, attempt in tries.items():
        try:
            attempt()
            c.wrong.append(f"not refused: {words}")
        except ValueError as e:
            if words not in str(e):
                c.wrong.append(f"refused without {words!r}: {e}")
    x = torch.ones(1)
    dist.all_reduce(x, group=c.group)
    c.check("all_reduce after what was refused", x, torch.tensor([float(c.n)]))
    if c.group._get_sequence_number_for_group() < 1:
        c.wrong.append("no calls are counted")


def against_gloo(c: Checks, gloo):
    """The same results as the default group, which is Gloo's: bits, but for the order of sums from three ranks on."""
    g = torch.Generator().manual_seed(c.me)
    for dtype in OF_GLOO:
        x = (torch.randn(1000, generator=g).abs() * 10).to(dtype)
        for name in ("SUM", "MIN", "MAX", "PRODUCT"):
            # Gloo rounds each product to its type: partial ones have to be within the range of fp16
            a = 0.5 + x / x.max() if name == "PRODUCT" and dtype.is_floating_point else x.clone()
            b = a.clone()
            dist.all_reduce(a, getattr(ReduceOp, name), group=c.group)
            with contextlib.suppress(RuntimeError):
                dist.all_reduce(b, getattr(ReduceOp, name), group=gloo)
                exact = name in ("MIN", "MAX") or not dtype.is_floating_point or (c.n == 2 and dtype in FLOATS[:2])
                if not (torch.equal(a, b) if exact else torch.allclose(a, b, rtol=2e-2, atol=2e-1)):
                    c.wrong.append(f"{name} of {dtype} is not Gloo's")
    for dtype in (torch.float32, torch.float64, torch.int64):
        a, b = rows_of(c.me, dtype), rows_of(c.me, dtype)
        dist.all_reduce(a, group=c.group)
        dist.all_reduce(b, group=gloo)
        a, b = a.coalesce(), b.coalesce()
        exact = dtype == torch.int64 or c.n == 2
        if not torch.equal(a.indices(), b.indices()) or \
                not (torch.equal if exact else torch.allclose)(a.values(), b.values()):
            c.wrong.append(f"a sparse sum of {dtype} is not Gloo's")


SHORT = (torch.float32, torch.bfloat16, torch.int64, torch.int16, torch.bool, torch.complex64)


def matrix(c: Checks, dtypes, forms):
    for dtype in dtypes:
        for form in forms:
            reductions(c, dtype, form)
            movements(c, dtype, form)


def all_calls(rank, n, folder, whole):
    """Over the default group of 'tutti'."""
    start(folder, rank, n, "tutti")
    c = Checks(dist.group.WORLD)
    matrix(c, DTYPES if whole else SHORT, FORMS)
    for case in (uneven, coalesced, premultiplied, sparse, objects, messages, works, functional, refused):
        case(c)
    dist.barrier()
    dist.destroy_process_group()
    return c.wrong


def beside_gloo(rank, n, folder):
    """Over a group of 'tutti' whose default group is Gloo's, of all ranks in the reverse order."""
    start(folder, rank, n, "gloo")
    c = Checks(dist.new_group(list(range(n)), backend="tutti"))
    against_gloo(c, dist.group.WORLD)
    dist.barrier()
    dist.destroy_process_group()
    return c.wrong
