"""Training scripts of torch's own kinds, as distributed_test.py runs them on the ranks: the same on each backend."""

from __future__ import annotations

import os
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

STEPS = 6


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Sequential(nn.Linear(32, 32), nn.ReLU()), nn.Linear(32, 4))


def with_buffers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))


def batch(step, rank):
    g = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(8, 12, generator=g), torch.randint(0, 4, (8,), generator=g)


def loop(model, optimizer, steps=STEPS, before=None):
    """The losses, and all parameters at the end."""
    losses = []
    for step in range(steps):
        if before is not None:
            before(step)
        x, y = batch(step, dist.get_rank())
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def whole(p):
    return (p.full_tensor() if hasattr(p, "full_tensor") else p).detach().flatten().tolist()


def ddp(backend):
    model = nn.parallel.DistributedDataParallel(with_buffers(), bucket_cap_mb=0.002)
    losses = loop(model, torch.optim.SGD(model.parameters(), lr=0.1))
    return losses, [whole(p) for p in model.parameters()]


def ddp_sparse(backend):
    """An embedding whose gradients are the rows that were used, beside dense layers."""
    torch.manual_seed(0)
    table, top = nn.EmbeddingBag(50, 8, mode="sum", sparse=True), nn.Linear(8, 4)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(table, top))
    rows, dense = torch.optim.SparseAdam(table.parameters(), lr=0.01), torch.optim.SGD(top.parameters(), lr=0.1)
    losses = []
    for step in range(STEPS):
        g = torch.Generator().manual_seed(1000 * step + dist.get_rank())
        words, y = torch.randint(0, 50, (8, 3), generator=g), torch.randint(0, 4, (8,), generator=g)
        loss = nn.functional.cross_entropy(model(words), y)
        for optimizer in (rows, dense):
            optimizer.zero_grad()
        loss.backward()
        for optimizer in (rows, dense):
            optimizer.step()
        losses.append(loss.item())
    return losses, [whole(p) for p in model.parameters()]


def ddp_unused(backend):
    model = nn.parallel.DistributedDataParallel(network(), find_unused_parameters=True, gradient_as_bucket_view=True)
    losses = loop(model, torch.optim.SGD(model.parameters(), lr=0.1))
    return losses, [whole(p) for p in model.parameters()]


def ddp_static(backend):
    model = nn.parallel.DistributedDataParallel(network(), static_graph=True, bucket_cap_mb=0.002)
    losses = loop(model, torch.optim.SGD(model.parameters(), lr=0.1))
    return losses, [whole(p) for p in model.parameters()]


def ddp_hook(backend):
    """torch's own hook that compresses, and one of a script's."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    def doubled(group, bucket):
        x = bucket.buffer().div_(dist.get_world_size())
        return dist.all_reduce(x, async_op=True).get_future().then(lambda f: f.value()[0] * 2)

    found = []
    for hook in (fp16_compress_hook, doubled):
        model = nn.parallel.DistributedDataParallel(network())
        model.register_comm_hook(None, hook)
        losses = loop(model, torch.optim.SGD(model.parameters(), lr=0.1))
        found.append([losses, *(whole(p) for p in model.parameters())])
    return found[0][0] + found[1][0], found[0][1:] + found[1][1:]


def ddp_join(backend):
    """Ranks with unequally many batches."""
    model = nn.parallel.DistributedDataParallel(network())
    with model.join():
        losses = loop(model, torch.optim.SGD(model.parameters(), lr=0.1), STEPS - dist.get_rank())
    return losses, [whole(p) for p in model.parameters()]


def fsdp_mixed(backend):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh, model = init_device_mesh("cpu", (dist.get_world_size(),)), network()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh, mp_policy=policy)
    model = fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for step in range(STEPS):
        x, y = batch(step, dist.get_rank())
        loss = nn.functional.cross_entropy(model(x).float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [whole(p) for p in model.parameters()]


def compiled(backend):
    """Collectives in a graph of torch.compile's."""
    import torch.distributed._functional_collectives as funcol

    @torch.compile(backend="aot_eager", fullgraph=True)
    def f(x):
        y = funcol.all_reduce(x * 2, "sum", dist.group.WORLD)
        return y + funcol.all_gather_tensor(x, 0, dist.group.WORLD).sum(0)

    x = torch.arange(6.0).view(2, 3) + dist.get_rank()
    return [], [f(x).tolist()]


def zero(backend):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    losses = loop(model, optimizer)
    optimizer.consolidate_state_dict()
    return losses, [whole(p) for p in model.parameters()]


def sharded(model, mesh):
    from torch.distributed.fsdp import fully_shard

    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def fsdp(backend):
    model = sharded(network(), init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for step in range(STEPS):
        x, y = batch(step, dist.get_rank())
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, [whole(p) for p in model.parameters()]


def hsdp(backend, replicas=2):
    """The replicate axis alone is on the backend, where the default group is another's."""
    shape = (replicas, dist.get_world_size() // replicas)
    override = {"replicate": "tutti"} if backend == "override" else None
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"), backend_override=override)
    if override:
        assert mesh.get_group("replicate").name() == "tutti", mesh.get_group("replicate").name()
        assert mesh.get_group("shard").name() != "tutti"
    model = sharded(network(), mesh)
    losses = loop(model, torch.optim.SGD(model.parameters(), lr=0.1))
    return losses, [whole(p) for p in model.parameters()]


def hsdp_of_four(backend):
    return hsdp(backend, 4)


def checkpoints(backend, folder):
    """torch.distributed.checkpoint: saved, saved asynchronously, and loaded into another start."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

    model = sharded(network(), init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loop(model, optimizer, 2)
    state = get_model_state_dict(model)
    wanted = [whole(p) for p in model.parameters()]
    dcp.save({"model": state}, checkpoint_id=f"{folder}/saved")
    dcp.async_save({"model": state}, checkpoint_id=f"{folder}/later").result()
    for name in ("saved", "later"):
        loop(model, optimizer, 1)
        state = {"model": get_model_state_dict(model)}
        dcp.load(state, checkpoint_id=f"{folder}/{name}")
        set_model_state_dict(model, state["model"])
        assert [whole(p) for p in model.parameters()] == wanted, name
    return [], wanted


def distribute(backend):
    """DTensor: distributed, redistributed, gathered."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    x = torch.arange(24.0).view(8, 3) if dist.get_rank() == 0 else torch.zeros(8, 3)
    t = distribute_tensor(x, mesh, [Shard(0)])
    found = [t.full_tensor().tolist(), t.redistribute(mesh, [Replicate()]).to_local().tolist()]
    found.append(t.redistribute(mesh, [Shard(1)]).full_tensor().tolist())
    summed = (t.T @ t).redistribute(mesh, [Replicate()])
    return [], [found, summed.to_local().tolist()]


def dies(step, at, rank):
    if step == at and dist.get_rank() == rank:
        os.kill(os.getpid(), signal.SIGKILL)
