"""Training with a codec on a group, as distributed_codec_test.py runs it on the ranks: scripts of torch's own kinds."""

from __future__ import annotations

import dist_cases
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import tutti
from tutti.torch.distributed import codec_of, gradients, options

STEPS = 80


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 4))


def batch(step, rank, size=32):
    g = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(size, 16, generator=g)
    return x, torch.tanh(x[:, :4] - x[:, 4:8])


def sharded(mesh):
    from torch.distributed.fsdp import fully_shard

    model = network()
    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def trained(model, group=None, steps=STEPS, begin=0, beside=None):
    """Steps of a script that clips gradients and averages its loss over the group, both of which are exact."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(begin, begin + steps):
        x, y = batch(step, dist.get_rank())
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        mean = loss.detach().repeat(2000)
        dist.all_reduce(mean, group=group)
        assert mean.unique().numel() == 1, "a metric went through the codec"
        optimizer.step()
        optimizer.zero_grad()
        if beside is not None:
            beside(step)


def whole(p):
    return (p.full_tensor() if hasattr(p, "full_tensor") else p).detach().flatten()


def result(model):
    """The loss on other samples, and a number that is the same where all parameters are. All ranks call it."""
    values = [whole(p) for p in model.parameters()]
    alone = network()
    with torch.no_grad():
        for p, v in zip(alone.parameters(), values, strict=True):
            p.copy_(v.view_as(p))
        x, y = batch(-5, 77, 500)
        loss = nn.functional.mse_loss(alone(x), y).item()
    return loss, torch.cat(values).double().square().sum().item()


def of_network():
    x, y = batch(-5, 77, 500)
    with torch.no_grad():
        return nn.functional.mse_loss(network()(x), y).item()


def hsdp(rank, n, folder, specs):
    """2 x n/2: the replicate axis on 'tutti' with that codec, the shard axis on Gloo. Of each: result, calls, bytes."""
    dist_cases.start(folder, rank, n, "gloo")
    found = []
    for spec in specs:
        override = {"replicate": ("tutti", options(codec=spec, minimum=64))}
        mesh = init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("replicate", "shard"), backend_override=override)
        group, model = mesh.get_group("replicate"), sharded(mesh)
        if spec == "ef(powersgd(rank=4))":
            codec_of(group).use_shapes_of(model)
            # of a rank's part: the weight's rows by its columns, and the bias
            assert codec_of(group).shapes[(48 * 48 + 48) // (n // 2)] == [(96 // n, 48), (1, 96 // n)]
        trained(model, group)
        codec = group._codec
        calls = [codec.coded, codec.exact, codec.bytes_encoded] if codec else []
        found.append([*result(model), *calls])
        dist.barrier()
        dist.destroy_process_group(group)
    dist.destroy_process_group()
    return [of_network(), found]


def fsdp(rank, n, folder, specs):
    """Reduce-scatters of FSDP2."""
    dist_cases.start(folder, rank, n, "tutti")
    found = []
    for spec in specs:
        override = {"shard": ("tutti", options(codec=spec, minimum=64))}
        mesh = init_device_mesh("cpu", (n,), mesh_dim_names=("shard",), backend_override=override)
        model = sharded(mesh)
        trained(model)
        codec = mesh.get_group("shard")._codec
        found.append([*result(model), codec.coded if codec else 0])
        dist.barrier()
    dist.destroy_process_group()
    return [of_network(), found]


def ddp(rank, n, folder, specs):
    """Several buckets, which torch makes anew after the first step; gradients of two batches for each step."""
    dist_cases.start(folder, rank, n, "tutti")
    found = []
    for spec in specs:
        group = dist.new_group(list(range(n)), pg_options=options(codec=spec, minimum=64))
        model = nn.parallel.DistributedDataParallel(network(), process_group=group, bucket_cap_mb=0.004)

        def beside(step, model=model):
            with model.no_sync():
                nn.functional.mse_loss(model(batch(step, 50 + rank)[0]), batch(step, 50 + rank)[1]).backward()

        trained(model, group, beside=beside)
        found.append([*result(model), group._codec.coded if group._codec else 0])
        dist.barrier()
    dist.destroy_process_group()
    return [of_network(), found]


def two_models(rank, n, folder):
    """Two models in one group: refused without names, once their calls are known; each trains with them."""
    dist_cases.start(folder, rank, n, "tutti", pg_options=options(codec="ef(topk(ratio=0.2))", minimum=64))
    told, models = "", [nn.parallel.DistributedDataParallel(m) for m in (network(), nn.Linear(16, 4))]

    def step(k, model):
        x, y = batch(k, rank)
        nn.functional.mse_loss(model(x), y).backward()
        for p in model.parameters():
            p.grad = None

    try:
        for k in range(4):
            step(k, models[0])
        step(4, models[1])
    except tutti.StateError as e:
        told = str(e)
    codec_of().reset()
    models = [nn.parallel.DistributedDataParallel(m) for m in (network(), nn.Linear(16, 4))]
    for k in range(6):
        for name, model in zip("ab", models, strict=True):
            with gradients(name):
                step(k, model)
    orders = {name: order["steps"] for name, order in codec_of().state_dict()["orders"].items()}
    dist.barrier()
    dist.destroy_process_group()
    return [told, orders]


def resumed(rank, n, folder):
    """FSDP2 that is saved in the middle: the same bits as one that is not."""
    dist_cases.start(folder, rank, n, "tutti")
    ends, state = [], None
    for name in ("whole", "again"):
        override = {"shard": ("tutti", options(codec="ef(topk(ratio=0.1))", minimum=64))}
        mesh = init_device_mesh("cpu", (n,), mesh_dim_names=("shard",), backend_override=override)
        model, codec = sharded(mesh), codec_of(mesh.get_group("shard"))
        if name == "whole":
            trained(model, steps=6)
            state = [{key: p.to_local().clone() for key, p in model.named_parameters()}, codec.state_dict()]
        else:
            with torch.no_grad():
                for key, p in model.named_parameters():
                    p.to_local().copy_(state[0][key])
            codec.load_state_dict(state[1], at_once=True)
        trained(model, steps=6, begin=6)
        ends.append(result(model))
    dist.barrier()
    dist.destroy_process_group()
    return [ends[0] == ends[1], ends]
