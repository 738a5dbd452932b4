"""Codecs on the axes of a mesh, as distributed_codec_test.py runs them on the ranks: FSDP2's gradients with a codec on
one axis or on both, against the same gradients of all ranks, reduced here.

No sum is rounded: inputs are small integers and numbers of ranks are powers of two, so a mean has the same bits on
every backend and in every order, and what differs from it is the codec's.
"""

from __future__ import annotations

import dist_cases
import dist_exact
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from tutti.torch.distributed import codec_of, options

LEARN, CODED = 2, 3
TOPK = "ef(topk(ratio=0.25))"


def exact_model():
    return dist_exact.Branches().float()


def batch(step, rank):
    """Of 18 bits at most are the gradients of these."""
    g = torch.Generator().manual_seed(1000 * step + rank)
    return [torch.randint(-15, 16, (dist_exact.ROWS, of), generator=g).float()
            for of in (dist_exact.WIDTH, dist_exact.OUT)]


def backward(model, x, y):
    model.zero_grad()
    ((model(x) - y).square().sum() / len(x)).backward()


def cut(grad, rows, shards=1):
    """Flat parts of `rows` rows, padded with zeros: as FSDP2 sends them."""
    padded = grad.new_zeros(rows * shards, *grad.shape[1:])
    padded[:len(grad)] = grad
    return [part.flatten() for part in padded.split(rows)]


def rows_of(shards):
    """Of a rank's part; with four the last has none of its own."""
    return -(-dist_exact.OUT // shards)


class Axis:
    """The mean that the codec of one group gives. Each rank has a residual of each call."""

    def __init__(self, spec):
        self.spec, self.kept = spec, {}

    def mean(self, call, rows):
        """call: the key of the residuals."""
        if self.spec == "fp16":
            return torch.stack([x.half().float() for x in rows]).mean(0).half().float()
        if self.spec == TOPK:
            found = []
            for k, x in enumerate(rows):
                x = x + self.kept.get((call, k), 0)
                at = x.abs().sort(descending=True, stable=True).indices[:-(-len(x) // 4)]  # of equals the first
                found.append(torch.zeros_like(x).index_put((at,), x[at]))
                self.kept[call, k] = x - found[-1]
            rows = found
        return torch.stack(rows).mean(0)


def wanted(shape, axes, step):
    """The shards' gradients after both axes, by place in a row: a vector for each module."""
    replicas, shards = shape
    replicate, shard = axes
    of_ranks = []
    model, rows = exact_model(), rows_of(shards)
    for rank in range(replicas * shards):
        backward(model, *batch(step, rank))
        of_ranks.append([[torch.cat(both) for both in zip(*(cut(p.grad, rows, shards) for p in part.parameters()))]
                         for part in model.parts])
    found = []
    for s in range(shards):
        found.append([])
        for m in range(len(model.parts)):
            parts = [shard.mean((r, s, m), [of_ranks[r * shards + k][m][s] for k in range(shards)])
                     for r in range(replicas)]
            found[s].append(replicate.mean((s, m), parts))
    return found


def sharded(model, mesh):
    from torch.distributed.fsdp import fully_shard

    for part in model.parts:
        fully_shard(part, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def mesh_of(shape, specs):
    """specs: of each axis a codec, "" for 'tutti' without one, None for Gloo."""
    names = ("replicate", "shard")
    override = {name: ("tutti", options(codec=spec, minimum=1))
                for name, spec in zip(names, specs, strict=True) if spec is not None}
    return init_device_mesh("cpu", shape, mesh_dim_names=names, backend_override=override)


def own(p, rows):
    """This rank's part of a gradient."""
    return cut(p.grad.to_local(), rows)[0]


def unlike(model, shape):
    """Says so, if replicas of this rank have other bits of a gradient. All ranks call it."""
    found, place = [None] * dist.get_world_size(), dist.get_rank() % shape[1]
    dist.all_gather_object(found, [p.grad.to_local().tolist() for p in model.parameters()])
    return ["replicas differ"] if any(of != found[place] for of in found[place::shape[1]]) else []


class Sent:
    """The bytes that this rank has sent on each axis of 'tutti', and what its codec has made, since the last time."""

    def __init__(self, mesh, specs):
        self._groups = [None if spec is None else mesh.get_group(k) for k, spec in enumerate(specs)]
        self._before = [[0, 0], [0, 0]]

    def since(self):
        now = [[0, 0] if g is None else [g._shared.world.sent()[0], g._codec.bytes_encoded if g._codec else 0]
               for g in self._groups]
        found = [[a - b for a, b in zip(*of, strict=True)] for of in zip(now, self._before, strict=True)]
        self._before = now
        return found


def axes(rank, n, folder, shape, ways):
    """Sentences about what is wrong."""
    dist_cases.start(folder, rank, n, "gloo")
    wrong, place = [], rank % shape[1]
    rows = rows_of(shape[1])
    for specs in ways:
        mesh, oracle = mesh_of(shape, specs), [Axis(spec) for spec in specs]
        model, sent, steps = sharded(exact_model(), mesh), Sent(mesh, specs), []
        for step in range(LEARN + CODED):
            backward(model, *batch(step, rank))
            right = wanted(shape, oracle if step >= LEARN else [Axis(None)] * 2, step)[place]
            for m, part in enumerate(model.parts):
                got = torch.cat([own(p, rows) for p in part.parameters()])
                if not torch.equal(got, right[m]):
                    wrong.append(f"{specs}, step {step}, module {m}: off by {(got - right[m]).abs().max()}")
            steps.append(sent.since())
        dist.barrier()
        elements = sum(len(x) for x in right)  # of a rank's part
        for k, spec in enumerate(specs):
            (exact, _), (coded, made) = steps[1][k], steps[-1][k]
            saved = (shape[k] - 1) * (4 * elements - made // (1, shape[1])[k])
            if spec and (exact - coded != saved or made == 0):
                wrong.append(f"{specs}, axis {k}: {exact} bytes without the codec, {coded} with it, {made} encoded")
            if spec is not None and not spec and exact != coded:
                wrong.append(f"{specs}, axis {k}: {exact} bytes at first, {coded} then")
            if spec is not None:
                dist.destroy_process_group(mesh.get_group(k))
    dist.destroy_process_group()
    return wrong


def drawn(rank, n, folder, shape, ways):
    """Codecs that draw, or vote: replicas of a part have the same bits. Sentences about what is wrong."""
    dist_cases.start(folder, rank, n, "gloo")
    wrong = []
    for specs in ways:
        mesh = mesh_of(shape, specs)
        model = sharded(exact_model(), mesh)
        for step in range(LEARN + CODED):
            backward(model, *batch(step, rank))
            wrong += [f"{specs}, step {step}: {text}" for text in unlike(model, shape)]
        dist.barrier()
        for k, spec in enumerate(specs):
            if spec is not None:
                if spec and codec_of(mesh.get_group(k)).coded != CODED * len(model.parts):
                    wrong.append(f"{specs}: {codec_of(mesh.get_group(k)).coded} calls on axis {k}")
                dist.destroy_process_group(mesh.get_group(k))
    dist.destroy_process_group()
    return wrong


class Subspace:
    """PowerSGD with error feedback of one matrix, by its definition: the sum of what was given and has not come out,
    projected on the columns of its product with the last step's."""

    def __init__(self, rank):
        self._rank, self._left, self._columns = rank, 0, None

    def step(self, mean, came):
        """What should have come. The columns that it begins with are random, and are taken from what came."""
        a = self._left + mean.double()
        u = a @ self._columns if self._columns is not None else torch.linalg.svd(came.double())[0][:, :self._rank]
        u = torch.linalg.qr(u)[0]
        out = u @ (u.T @ a)
        self._left, self._columns = a - out, a.T @ u
        return out


def powersgd(rank, n, folder, shape, lows):
    """Of these ranks on the replicate axis, Gloo on the other. Sentences about what is wrong."""
    dist_cases.start(folder, rank, n, "gloo")
    wrong, place = [], rank % shape[1]
    rows, cols = rows_of(shape[1]), dist_exact.WIDTH
    for r in lows:
        spec = f"ef(powersgd(rank={r},min_compression_rate=1))"
        mesh = mesh_of(shape, (spec, None))
        model = sharded(exact_model(), mesh)
        sent, codec = Sent(mesh, (spec, None)), codec_of(mesh.get_group("replicate"))
        codec.use_shapes_of(model)
        subspaces = [Subspace(r) for _ in model.parts]
        for step in range(LEARN + 2 * CODED):
            backward(model, *batch(step, rank))
            right = wanted(shape, [Axis(None)] * 2, step)[place]
            for m, part in enumerate(model.parts):
                weight, bias = (own(p, rows) for p in part.parameters())
                mean, of_bias = right[m].split([rows * cols, rows])
                mean, weight = mean.view(rows, cols), weight.view(rows, cols)
                should = subspaces[m].step(mean, weight) if step >= LEARN else mean.double()
                off = float((weight - should).abs().max())
                if not off <= 1e-4 * float(mean.abs().max()) or not torch.equal(bias, of_bias):
                    wrong.append(f"{spec}, step {step}, module {m}: off by {off}, {bias} and not {of_bias}")
            wrong += [f"{spec}, step {step}: {text}" for text in unlike(model, shape)]
            bytes_ = sent.since()[0]
        made = 4 * len(model.parts) * (r * (rows + cols) + rows)
        if bytes_ != [(shape[0] - 1) * made, made]:
            wrong.append(f"{spec}: {bytes_[0]} bytes sent, {bytes_[1]} encoded, and a step makes {made}")
        dist.barrier()
        dist.destroy_process_group(mesh.get_group("replicate"))
    dist.destroy_process_group()
    return wrong


def with_tensor_parallelism(rank, n, folder):
    """2 x 2 x 2, with PowerSGD on the replicate axis: the bytes of a step, and whether all replicas have one gradient.

    The first layer's 48 rows are halved twice. Of the second, the columns and the rows are.
    """
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    dist_cases.start(folder, rank, n, "gloo")
    override = {"replicate": ("tutti", options(codec="ef(powersgd(rank=2))", minimum=1))}
    names = ("replicate", "shard", "tensor")
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=names, backend_override=override)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 48), torch.nn.Tanh(), torch.nn.Linear(48, 32))
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    for module in (model[0], model[2], model):
        fully_shard(module, mesh=mesh["replicate", "shard"])
    codec = codec_of(mesh.get_group("replicate"))
    codec.use_shapes_of(model)
    wrong = []
    for step in range(LEARN + CODED):
        before = codec.bytes_encoded
        g = torch.Generator().manual_seed(100 * step + rank // 2)  # the same for those of one tensor group
        backward(model, torch.randn(8, 16, generator=g), torch.randn(8, 32, generator=g))
        wrong += unlike(model, (2, 4))
    dist.barrier()
    dist.destroy_process_group()
    return [codec.bytes_encoded - before, codec.coded, wrong]
