"""FSDP2 within a host and a method between hosts (prepare(local_group=) of a sharded module): 2 hosts of 2 ranks, as 4
processes of this machine."""

import os
import re
import time

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import dist_cases  # noqa: E402
import forked  # noqa: E402
import processes  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from local_group_test import batch, net, on_hosts, words  # noqa: E402
from torch import nn  # noqa: E402

import tutti.torch  # noqa: E402


def start(folder, rank, n=4, size=2):
    """Joins the process group. Returns the mesh of this rank's host."""
    from torch.distributed.device_mesh import init_device_mesh

    dist_cases.start(folder, rank, n, "gloo")
    return init_device_mesh("cpu", (n // size, size), mesh_dim_names=("hosts", "shard"))["shard"]


def sharded(model, mesh, **options):
    """The last layer is in the root's own group, whose values stay gathered after a forward."""
    from torch.distributed.fsdp import fully_shard

    for layer in model[:-1]:
        if next(layer.parameters(), None) is not None:
            fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def whole(model):
    """Bits of the parameters, which FSDP2 may have gathered."""
    for m in model.modules():
        if hasattr(m, "reshard"):
            m.reshard()
    return words([p.full_tensor() for p in model.parameters()])


def odd(rank):
    """Shapes that two ranks cannot halve, and one of a single row."""
    torch.manual_seed(7 + rank)
    return nn.Sequential(nn.Linear(12, 33), nn.Tanh(), nn.Linear(33, 1), nn.Linear(1, 4))


def trained(model, look, rank, method, group, make=None, steps=6, **options):
    """Parameters after a training, those of evaluate(), and those after finish()."""
    make = make or (lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9))
    optimizer = make(model.parameters())
    model, optimizer = tutti.torch.prepare(model, optimizer, method, local_group=group, **options)
    for k in range(steps):
        x, y = batch(rank, k)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        if k == 2:  # an evaluation, whose forward gathers values
            with optimizer.evaluate(), torch.no_grad():
                model(x)
    own = look(model)
    with optimizer.evaluate():
        shown = look(model)
    optimizer.finish()
    return own, shown, look(model)


METHODS = ["ddp", "local-sgd(period=2)", "diloco(period=2)", "diloco(period=3,delay=1)"]


def floats(bits):
    return [torch.tensor(one, dtype=torch.int32).view(torch.float32) for one in bits]


def near(a, b):
    return all(torch.allclose(s, t, rtol=1e-5, atol=1e-6) for s, t in zip(floats(a), floats(b), strict=True))


def beside_unsharded(rank, folder, make):
    mesh, wrong = start(folder, rank), []
    group = mesh.get_group()
    for method in METHODS:
        for options in ({}, {"accumulate": 2}, {"clip_norm": 0.05}, {"make": torch.optim.Adam}):
            # FSDP2 cuts what each rank has, so the ranks of a host begin with one model
            flat = trained(make(rank // 2), lambda m: words(m.parameters()), rank, method, group, **options)
            mine = trained(sharded(make(rank // 2), mesh), whole, rank, method, group, **options)
            for what, a, b in zip(("own", "shown", "finished"), flat, mine, strict=True):
                same = near(a, b) if "clip_norm" in options else a == b  # a norm is summed in another order
                if not same:
                    wrong.append(f"{method} {options} {what}")
    return wrong


@pytest.mark.parametrize("make", [net, pytest.param(odd, marks=pytest.mark.slow)])
def test_the_bits_are_those_of_an_unsharded_module(tmp_path, make):
    """Both sum the gradients of two ranks, and exchange values of the same places."""
    assert on_hosts(beside_unsharded, str(tmp_path), make, transport="shm") == [[]] * 4


# ---- what else stands in a module ----
def features(rank, folder):
    from torch.distributed.checkpoint.state_dict import get_model_state_dict
    from torch.distributed.fsdp import MixedPrecisionPolicy

    mesh, wrong = start(folder, rank), []
    group = mesh.get_group()

    def check(name, same):
        if not same:
            wrong.append(name)

    def gathered(mine):
        every = [None] * 4
        dist.all_gather_object(every, mine)
        return every

    def run(model, method="diloco(period=2)", steps=4, **options):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        model, optimizer = tutti.torch.prepare(model, optimizer, method, local_group=group, **options)
        for k in range(steps):
            F.cross_entropy(model(batch(rank, k)[0]).float(), batch(rank, k)[1]).backward()
            optimizer.step()
            optimizer.zero_grad()
        return model, optimizer

    # hosts train apart, and agree after finish(); ranks of a host always agree
    model, optimizer = run(sharded(net(rank // 2), mesh), steps=3)
    hosts = gathered(whole(model))
    check("hosts have a step of their own", hosts[0] == hosts[1] != hosts[2] == hosts[3])
    optimizer.finish()
    check("finish", len(set(map(str, gathered(whole(model))))) == 1)
    saved = get_model_state_dict(model)
    check("names of DCP", list(saved) == list(net(0).state_dict()))

    # batch norms and frozen parameters, with other values on each host
    torch.manual_seed(rank // 2)
    model = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 8), nn.Linear(8, 4))
    model[2].requires_grad_(False)
    model, optimizer = run(sharded(model, mesh))
    torch.manual_seed(0)
    first = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 8))[2]
    check("frozen", words([model[2].weight.full_tensor()]) == words([first.weight]))
    own = gathered(words([model[1].running_mean]))
    with optimizer.evaluate():
        check("statistics within evaluate()", len(set(map(str, gathered(words([model[1].running_mean]))))) == 1)
    check("statistics after it", gathered(words([model[1].running_mean])) == own and own[0] != own[1])
    optimizer.close()

    # types: values of bfloat16, and a forward in it
    model, optimizer = run(sharded(net(rank // 2), mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16)))
    optimizer.finish()
    check("mixed precision", len(set(map(str, gathered(whole(model))))) == 1)
    model, optimizer = net(rank // 2, torch.bfloat16), None
    model, optimizer = run_16(model, mesh, group, rank)
    optimizer.finish()
    check("bfloat16", len(set(map(str, gathered(whole(model))))) == 1)

    # fragments are parameters, and codecs see matrices
    for options in ({"method": "diloco(period=4,fragments=2,delay=1)"}, {"codec": "e3m0"},
                    {"codec": "ef(chunk-topk)"}, {"method": "qsgd"},
                    {"method": "ddp", "codec": "ef(powersgd(rank=2))"}):
        model, optimizer = run(sharded(net(rank // 2), mesh), steps=8, **options)
        with torch.no_grad():
            loss = F.cross_entropy(model(batch(rank, 0)[0]), batch(rank, 0)[1]).item()
        optimizer.close() if options.get("method") in ("qsgd", "ddp") else optimizer.finish()
        check(f"{options}: other models", len(set(map(str, gathered(whole(model))))) == 1)
        check(f"{options}: loss {loss}", loss < 1.5)
    return wrong


def run_16(model, mesh, group, rank):
    model = sharded(model, mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer = tutti.torch.prepare(model, optimizer, "local-sgd(period=2)", local_group=group)
    for k in range(3):
        x, y = batch(rank, k, torch.bfloat16)
        F.cross_entropy(model(x).float(), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


@pytest.mark.slow
def test_modules_types_and_codecs(tmp_path):
    assert on_hosts(features, str(tmp_path), transport="shm") == [[]] * 4


def accumulated(rank, folder):
    """A step of one backward, and one of two whose gradients FSDP2 adds up, with and without its own sync."""
    mesh, found = start(folder, rank), []
    for passes, sync in ((1, True), (2, True), (2, False)):
        model = sharded(net(rank // 2), mesh)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = tutti.torch.prepare(model, optimizer, "diloco(period=2)", local_group=mesh.get_group())
        for k in range(4):
            x, y = batch(rank, k)
            for part in range(passes):
                model.set_requires_gradient_sync(sync or part == passes - 1)
                size = len(x) // passes
                a, b = x[part * size : (part + 1) * size], y[part * size : (part + 1) * size]
                (F.cross_entropy(model(a), b) / passes).backward()
            optimizer.step()
            optimizer.zero_grad()
        optimizer.finish()
        found.append(whole(model))
    return [near(found[0], other) for other in found[1:]]


@pytest.mark.slow
def test_gradients_of_several_backwards_add_up_as_in_fsdp2(tmp_path):
    assert on_hosts(accumulated, str(tmp_path), transport="shm") == [[True, True]] * 4


def gathered_early(rank, folder):
    """Values after a training, with and without unshard() before each forward. With a delay the method hands out values
    at the beginning of a pass, after it."""
    mesh, found = start(folder, rank), []
    for early in (False, True):
        model = sharded(net(rank // 2), mesh)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = tutti.torch.prepare(model, optimizer, "diloco(period=2,delay=1)",
                                               local_group=mesh.get_group())
        for k in range(7):
            if early:
                model.unshard(async_op=True)
            F.cross_entropy(model(batch(rank, k)[0]), batch(rank, k)[1]).backward()
            optimizer.step()
            optimizer.zero_grad()
        optimizer.finish()
        found.append(whole(model))
    return found[0] == found[1]


def test_values_that_were_gathered_before_the_method_set_others_are_not_used(tmp_path):
    assert on_hosts(gathered_early, str(tmp_path), transport="shm") == [True] * 4


# ---- bytes and resuming ----
def sent(rank, folder):
    """Bytes to the other host of the rounds of local-sgd, in the world of this local index, and in that of all."""
    mesh = start(folder, rank)
    model = sharded(nn.Sequential(nn.Linear(32, 64, bias=False), nn.Linear(64, 32, bias=False)), mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer = tutti.torch.prepare(model, optimizer, "local-sgd(period=2)", local_group=mesh.get_group())
    between, every, found = optimizer._run.world, optimizer.world, []
    for _ in range(4):
        before = between.sent()[0], sum(every.sent(r)[0] for r in range(4) if r // 2 != rank // 2)
        model(torch.randn(5, 32)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        after = between.sent()[0], sum(every.sent(r)[0] for r in range(4) if r // 2 != rank // 2)
        found.append([b - a for a, b in zip(before, after, strict=True)])
    optimizer.finish()
    return found


def test_a_rank_sends_its_shard_at_a_round(tmp_path):
    found = on_hosts(sent, str(tmp_path), transport="tcp")
    shard = 4 * 2 * 32 * 64 // 2  # of two hosts, each sends and receives all of its values once
    assert all([of[k][0] for k in range(4)] == [0, shard, 0, shard] for of in found), found


def resumes(rank, folder):
    mesh = start(folder, rank)
    group = mesh.get_group()

    def begin():
        model = sharded(net(rank // 2), mesh)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return tutti.torch.prepare(model, optimizer, "diloco(period=3,delay=1)", local_group=group)

    def go(model, optimizer, steps):
        for k in steps:
            F.cross_entropy(model(batch(rank, k)[0]), batch(rank, k)[1]).backward()
            optimizer.step()
            optimizer.zero_grad()

    model, optimizer = begin()
    go(model, optimizer, range(7))
    torch.save([model.state_dict(), optimizer.state_dict()], f"{folder}/{rank}.pt")
    go(model, optimizer, range(7, 11))
    optimizer.finish()
    straight = whole(model)
    model, optimizer = begin()
    of_model, of_optimizer = torch.load(f"{folder}/{rank}.pt", weights_only=False)
    model.load_state_dict(of_model)
    optimizer.load_state_dict(of_optimizer)
    go(model, optimizer, range(7, 11))
    optimizer.finish()
    return whole(model) == straight


@pytest.mark.slow
def test_a_run_that_is_resumed_has_the_same_bits(tmp_path):
    assert on_hosts(resumes, str(tmp_path), transport="shm") == [True] * 4


# ---- what cannot be ----
def refusals(rank, folder):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh, wrong = start(folder, rank), []
    every = init_device_mesh("cpu", (4,))
    both = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))

    def refused(says, model, method="diloco", group=mesh, **options):
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        group = group and group.get_group()
        try:
            tutti.torch.prepare(model, optimizer, method, local_group=group, **options)
        except ValueError as e:
            if says not in str(e):
                wrong.append(str(e))
        else:
            wrong.append("not refused: " + says)

    refused("'0.weight' is a DTensor, of which this rank has a shard; give prepare(local_group=)",
            sharded(net(0), mesh), group=None)
    part = net(0)
    fully_shard(part[0].requires_grad_(False), mesh=mesh)
    refused("'0.weight' is a DTensor", part, group=None)
    refused("is sharded over ranks [0, 1, 2, 3], and local_group has ranks", sharded(net(0), every))
    refused("on a mesh of 2 dimensions, and the method is what works between hosts", sharded(net(0), both))
    part = net(0)
    fully_shard(part[0], mesh=mesh)
    refused("'2.weight' is not sharded, and others are", part)
    refused("the last of 2 ranks has no row", sharded(nn.Sequential(nn.Linear(3, 1)), mesh))
    table = nn.Sequential(nn.Embedding(8, 4, sparse=True), nn.Linear(4, 2))
    refused("module '0' is an embedding with sparse=True", sharded(table, mesh))
    refused("method 'powersgd' is not for shards", sharded(net(0), mesh), "powersgd")
    refused("save state_dict()", sharded(net(0), mesh), checkpoint=folder)
    refused("rank 1 has another module, method or codec than rank 0", sharded(net(0), mesh),
            f"diloco(period={5 if rank == 1 else 6})")

    # the second rank of a host has no row of two of six parameters
    refused("which are 4; give at most that" if rank % 2 else "the shards of another rank were refused",
            sharded(odd(0), mesh), "diloco(period=6,fragments=6)")

    model = sharded(net(0), mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = tutti.torch.prepare(model, optimizer, "diloco", local_group=mesh.get_group())
    model.set_requires_gradient_sync(False)
    F.cross_entropy(model(batch(rank, 0)[0]), batch(rank, 0)[1]).backward()
    try:
        optimizer.step()
    except tutti.StateError as e:
        if "set_requires_gradient_sync(False)" not in str(e):
            wrong.append(str(e))
    else:
        wrong.append("a step without gradients")
    optimizer.close()

    model = sharded(net(0), mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = tutti.torch.prepare(model, optimizer, "diloco", local_group=mesh.get_group())
    model.load_state_dict({k: v.clone() for k, v in model.state_dict().items()}, assign=True)
    try:
        model(batch(rank, 0)[0])
    except tutti.StateError as e:
        if "'0.weight' has been replaced" not in str(e):
            wrong.append(str(e))
    else:
        wrong.append("trains parameters that the optimizer has not")
    optimizer.close()
    return wrong


def test_what_cannot_be_is_refused_before_any_work(tmp_path):
    assert on_hosts(refusals, str(tmp_path), transport="shm") == [[]] * 4


def not_finite(rank, folder):
    mesh = start(folder, rank)
    model = sharded(net(0), mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = tutti.torch.prepare(model, optimizer, "local-sgd(period=2)", local_group=mesh.get_group())
    try:
        for k in range(4):
            F.cross_entropy(model(batch(rank, k)[0]), batch(rank, k)[1]).backward()
            if rank == 1 and k == 2:  # of its own shard alone
                model[4].bias.grad.to_local()[0] = float("inf")
            optimizer.step()
            optimizer.zero_grad()
    except tutti.Error as e:
        return type(e).__name__, str(e)
    return None


@pytest.mark.slow
def test_a_gradient_that_is_not_finite_in_one_shard_ends_all_ranks(tmp_path):
    found = on_hosts(not_finite, str(tmp_path), transport="shm")
    assert all(kind == "NumberError" and "not finite in step 3" in text for kind, text in found[:2]), found
    assert all(kind == "PeerError" and re.match("rank [01] is lost", text) for kind, text in found[2:])


def killed(rank, folder):
    mesh = start(folder, rank)
    model = sharded(net(0), mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = tutti.torch.prepare(model, optimizer, "local-sgd(period=2)", local_group=mesh.get_group())
    for k in range(50):
        if rank == 3 and k == 3:
            os.kill(os.getpid(), 9)
        try:
            F.cross_entropy(model(batch(rank, k)[0]), batch(rank, k)[1]).backward()
            optimizer.step()
            optimizer.zero_grad()
        except Exception as e:  # noqa: BLE001
            return type(e).__name__, getattr(e, "rank", None), str(e)
        time.sleep(0.001)
    return None


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_killed_rank_is_named_on_the_other_host(tmp_path, transport):
    found = on_hosts(killed, str(tmp_path), transport=transport, killed=[3])
    assert found[2] is not None  # it may be torch's exception
    assert found[1][:2] == ["PeerError", 3], found
    assert found[0][0] == "PeerError", found


# ---- the page ----
def test_the_pages_script_learns(monkeypatch):
    text = (processes.ROOT / "docs/PYTORCH.md").read_text()
    script = text.split("### FSDP2 on each host\n")[1].split("```python\n")[1].split("```")[0]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    first, *others = forked.script("import torch\ntorch.set_num_threads(1)\n" + script, n=4)
    assert first.out.startswith("loss ") and float(first.out.split()[1]) < 1
    assert [rank.out for rank in others] == [""] * 3
