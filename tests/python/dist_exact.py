"""Training whose every sum is exact: in whatever order ranks add, and however a model is cut, the bits are the same.

Inputs are small integers, and every factor is a power of two. A step adds ten bits to a weight, so float64 holds STEPS
of them. The same steps with all ranks' batches in one process (alone) are what each kind is compared with. With another
number of ranks than a power of two a mean is rounded, and the results are equal within a few units in the last place.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

STEPS = 4
WIDTH, OUT, ROWS = 12, 5, 8  # OUT: odd, so that parts of ranks are unequal


class Branches(nn.Module):
    """Linear in its parameters, several modules of them."""

    def __init__(self):
        super().__init__()
        g = torch.Generator().manual_seed(7)
        self.parts = nn.ModuleList(nn.Linear(WIDTH, OUT, dtype=torch.float64) for _ in range(3))
        for p in self.parameters():
            p.data = torch.randint(-4, 5, p.shape, generator=g).double() / 4

    def forward(self, x):
        return sum(part(x) * 2 ** -k for k, part in enumerate(self.parts))


def batch(step, rank):
    g = torch.Generator().manual_seed(1000 * step + rank)
    draw = [torch.randint(-2, 3, (ROWS, of), generator=g).double() for of in (WIDTH, OUT)]
    return draw[0], draw[1]


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=2**-4, momentum=0.5)


def stepped(model, optimizer, of_step):
    """The losses of this rank, and all parameters at the end."""
    losses = []
    for step in range(STEPS):
        x, y = of_step(step)
        loss = (model(x) - y).square().sum() / len(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [whole(p) for p in model.parameters()]


def whole(p):
    return (p.full_tensor() if hasattr(p, "full_tensor") else p).detach().flatten().tolist()


def alone(n):
    """The parameters at the end of the same training in one process; rows in the reverse order: none shows."""
    def of_all(step):
        x, y = (torch.cat(of) for of in zip(*(batch(step, r) for r in range(n)), strict=True))
        return x.flip(0), y.flip(0)

    model = Branches()
    return stepped(model, optimizer_of(model), of_all)[1]


def mine(step):
    return batch(step, dist.get_rank())


def ddp():
    model = nn.parallel.DistributedDataParallel(Branches(), bucket_cap_mb=0.0003)
    return stepped(model, optimizer_of(model), mine)


def zero():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(Branches())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=2**-4, momentum=0.5)
    return stepped(model, optimizer, mine)


def sharded(mesh):
    """FSDP2, or HSDP by a mesh of two axes."""
    from torch.distributed.fsdp import fully_shard

    model = Branches()
    for part in model.parts:
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return stepped(model, optimizer_of(model), mine)


def fsdp():
    return sharded(init_device_mesh("cpu", (dist.get_world_size(),)))


def hsdp(rows, over=("replicate", "shard")):
    """A mesh of `rows` times what is left. over: the axes on 'tutti', where the default group is Gloo's."""
    shape = (rows, dist.get_world_size() // rows)
    override = None
    if dist.get_backend() != "tutti" and over:
        override = dict.fromkeys(over, "tutti")
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"), backend_override=override)
    for name in override or ():
        assert mesh.get_group(name).name() == "tutti", name
    return sharded(mesh)


def moved():
    """DTensor of each placement to each other, and a mesh of both axes: values, which nothing rounds."""
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    n, found = dist.get_world_size(), []
    mesh = init_device_mesh("cpu", (n,))
    x = torch.arange(5.0 * 7).view(5, 7)  # neither is divided by the ranks
    for before in (Shard(0), Shard(1), Replicate()):
        t = distribute_tensor(x, mesh, [before])
        for after in (Shard(0), Shard(1), Replicate()):
            u = t.redistribute(mesh, [after])
            found.append([u.to_local().tolist(), u.full_tensor().tolist()])
    part = dist.tensor.DTensor.from_local(x * (dist.get_rank() + 1), mesh, [Partial()])
    for after in (Shard(0), Shard(1), Replicate()):
        found.append(part.redistribute(mesh, [after]).to_local().tolist())
    return [], found


def points():
    """Rings, exchanges and a pipeline's chain of messages, in both directions, of unequal sizes."""
    n, me = dist.get_world_size(), dist.get_rank()
    found = []
    for shift in range(1, n):
        to, of = (me + shift) % n, (me - shift) % n
        x, y = torch.full((1 + me,), float(me)), torch.zeros(1 + of)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, y, of), dist.P2POp(dist.isend, x, to)]):
            work.wait()
        found.append(y.tolist())
    chain = torch.tensor([1.0])
    if me > 0:
        dist.recv(chain, me - 1)
    chain = 2 * chain + me
    if me < n - 1:
        dist.send(chain, me + 1)
    return [], [found, chain.tolist()]
