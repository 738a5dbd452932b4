"""Hosts with Gloo inside and Tutti between (local_group=): 2 hosts of 2 ranks, as 4 processes of this machine."""

import json
import os
import sys
import time

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import ddp_cases  # noqa: E402
import dist_cases  # noqa: E402
import forked  # noqa: E402
import processes  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel as Torchs  # noqa: E402

import tutti.torch  # noqa: E402
from tutti.errors import PeerError  # noqa: E402
from tutti.torch import DistributedDataParallel, _local  # noqa: E402

sys.path.append(str(processes.HERE.parent))
import exposition  # noqa: E402
from ports import free_port  # noqa: E402

HOSTS = [[0, 1], [2, 3]]


def without_a_launcher(function, transport, arguments):
    rank = int(os.environ["TUTTI_RANK"])
    for name in [name for name in os.environ if name.startswith("TUTTI_") and name != "TUTTI_LIBRARY"]:
        del os.environ[name]
    os.environ["TUTTI_TRANSPORT"] = transport
    return function(rank, *arguments)


def on_hosts(function, *arguments, n=4, transport="shm", **more):
    """function(rank, *arguments) on n ranks that only torch.distributed knows of."""
    answers = forked.ranks(n, without_a_launcher, function, transport, arguments, **more)
    assert all("value" in answer or answer == {} for answer in answers), answers
    return [answer.get("value") for answer in answers]


def start(folder, rank, hosts=HOSTS):
    """Joins the process group, and gives the group of this rank's host."""
    dist_cases.start(folder, rank, sum(map(len, hosts)), "gloo")
    groups = [dist.new_group(host) for host in hosts]
    return next(group for host, group in zip(hosts, groups, strict=True) if rank in host)


def net(rank, dtype=torch.float32):
    torch.manual_seed(7 + rank)
    return nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4)).to(dtype)


def batch(rank, k, dtype=torch.float32):
    g = torch.Generator().manual_seed(100 * k + rank)
    return torch.randn(6, 12, generator=g).to(dtype), torch.randint(0, 4, (6,), generator=g)


def words(tensors):
    """Bits, for JSON."""
    return [t.detach().float().contiguous().view(-1).view(torch.int32).tolist() for t in tensors]


def trained(rank, wrap, steps=4, dtype=torch.float32):
    """Parameters after a training, with momentum."""
    model = wrap(net(rank, dtype))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for k in range(steps):
        x, y = batch(rank, k, dtype)
        optimizer.zero_grad()
        F.cross_entropy(model(x).float(), y).backward()
        optimizer.step()
    found = [p.detach().clone() for p in model.parameters()]
    if isinstance(model, tutti.torch.DistributedDataParallel):
        model.close()
    return found


# ---- bits ----
def beside_flat(rank, folder, hosts):
    local, wrong = start(folder, rank, hosts), []
    _local._BUCKET = 2048  # several buckets
    for dtype in (torch.float32, torch.bfloat16):
        flat = words(trained(rank, DistributedDataParallel, dtype=dtype))
        mine = words(trained(rank, lambda m: DistributedDataParallel(m, local_group=local), dtype=dtype))
        options = {"local_group": local, "gradient_as_bucket_view": False}
        own = words(trained(rank, lambda m, options=options: DistributedDataParallel(m, **options), dtype=dtype))
        if mine != flat or own != flat:
            wrong.append(f"{dtype}: other bits than those of flat ddp")
    ours = trained(rank, lambda m: DistributedDataParallel(m, local_group=local))
    for a, b in zip(ours, trained(rank, Torchs), strict=True):
        if not torch.allclose(a, b, rtol=1e-5, atol=1e-6):
            wrong.append("far from PyTorch's")
    return wrong


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_the_bits_are_those_of_ddp_with_two_ranks_a_host(tmp_path, transport):
    """Two terms have one sum, a host of two is a pair of the tree of Tutti's sums, and to divide by a power of two is
    exact."""
    assert on_hosts(beside_flat, str(tmp_path), HOSTS, transport=transport) == [[]] * 4


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [[[0, 1]], [[0], [1]], [[0, 1], [2, 3], [4, 5], [6, 7]]])
def test_the_same_with_other_numbers_of_hosts(tmp_path, hosts):
    n = sum(map(len, hosts))
    assert on_hosts(beside_flat, str(tmp_path), hosts, n=n) == [[]] * n


def of_three(rank, folder, hosts):
    local, found = start(folder, rank, hosts), []
    for options in ({}, {"local_group": local}):
        found.append(trained(rank, lambda m, options=options: DistributedDataParallel(m, **options)))
    return all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(*found, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [[[0, 1, 2], [3, 4, 5]], [[0, 1], [2, 3], [4, 5]], [[0, 2], [1, 3]]])
def test_other_orders_of_sums_are_rounding(tmp_path, hosts):
    n = sum(map(len, hosts))
    assert on_hosts(of_three, str(tmp_path), hosts, n=n) == [True] * n


# ---- bytes ----
def sent_between(rank, folder):
    """Bytes to other hosts in three steps: through the world of this local index, and through that of all ranks."""
    local = start(folder, rank)
    _local._BUCKET = 4096
    model = nn.Sequential(nn.Linear(32, 64, bias=False), nn.Linear(64, 32, bias=False))
    wrapped = DistributedDataParallel(model, local_group=local)
    other = [r for host in HOSTS if rank not in host for r in host]

    def sent():
        return wrapped._hosts.between.sent()[0], sum(wrapped.world.sent(r)[0] for r in other)

    before = sent()
    for k in range(3):
        wrapped(torch.randn(5, 32)).square().sum().backward()
    after = sent()
    found = [b - a for a, b in zip(before, after, strict=True)]
    buckets = len(wrapped._exchange.shards.buckets)
    place = [wrapped.rank, wrapped.world_size, wrapped.world.rank, wrapped.world.size]
    place += [wrapped._hosts.between.rank, wrapped._hosts.between.size, wrapped._hosts.index]
    wrapped.close()
    return found, buckets, place


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_host_sends_the_bytes_of_one_model(tmp_path, transport):
    found = on_hosts(sent_between, str(tmp_path), transport=transport)
    model = 4 * 2 * 32 * 64  # two hosts: each sends and receives all values once
    if transport == "tcp":  # shared memory has windows, and sends nothing
        assert [of for of, _, _ in found] == [[3 * model // 2, 0]] * 4
    assert all(buckets == 2 for _, buckets, _ in found)
    assert [place for _, _, place in found] == [[r, 4, r, 4, r // 2, 2, r % 2] for r in range(4)]


# ---- what a wrapper does besides ----
def features(rank, folder, port):
    local, wrong = start(folder, rank), []
    _local._BUCKET = 2048

    def check(name, same):
        if not same:
            wrong.append(name)

    def alike(wrapped, tensors):
        flat = torch.cat([t.detach().flatten().double() for t in tensors]).tolist()
        return wrapped.world.reduce(flat, "max") == wrapped.world.reduce(flat, "min")

    def both(make, run):
        """What a training gives, flat and with hosts."""
        found = []
        for options in ({}, {"local_group": local}):
            torch.manual_seed(rank)
            wrapped = DistributedDataParallel(make(), **options)
            found.append(run(wrapped))
            wrapped.close()
        return found[0] == found[1]

    def branches(wrapped):
        got = []
        for k in range(4):
            out = wrapped(torch.randn(3, 8, generator=torch.Generator().manual_seed(10 * rank + k)), rank % 2, k == 2)
            (out["value"].sum() + out["list"][0].square().sum()).backward()
            got.append([None if p.grad is None else words([p.grad]) for p in wrapped.parameters()])
        return got

    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check("parameters that some, or none, use", both(ddp_cases.Branches, branches))

    def accumulates(wrapped):
        for k in range(2):
            with wrapped.no_sync():
                F.cross_entropy(wrapped(batch(rank, k)[0]), batch(rank, k)[1]).backward()
            F.cross_entropy(wrapped(batch(rank, k + 5)[0]), batch(rank, k + 5)[1]).backward()
        return words([p.grad for p in wrapped.parameters()])

    check("no_sync", both(lambda: net(rank), accumulates))

    def joins(wrapped):
        with wrapped.join(divide_by_initial_world_size=False):
            for k in range(1 + rank):
                wrapped.zero_grad()
                F.cross_entropy(wrapped(batch(rank, k)[0]), batch(rank, k)[1]).backward()
                with torch.no_grad():
                    for p in wrapped.parameters():
                        p -= 0.1 * p.grad
        return words(wrapped.parameters())

    check("join", both(lambda: net(rank), joins))

    def normed():
        return nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))

    def buffers(wrapped):
        for k in range(3):
            wrapped.zero_grad()
            F.cross_entropy(wrapped(batch(rank, k)[0]), batch(rank, k)[1]).backward()
        wrapped(batch(rank, 9)[0])
        return words([b.float() for b in wrapped.buffers()])

    check("buffers", both(normed, buffers))
    for method in _local.OF_GRADIENTS:
        wrapped = DistributedDataParallel(net(rank), method=method, local_group=local)
        before = words(wrapped.parameters())
        for k in range(3):
            wrapped.zero_grad()
            F.cross_entropy(wrapped(batch(rank, k)[0]), batch(rank, k)[1]).backward()
        grads = [p.grad for p in wrapped.parameters()]
        check(method + " differs", alike(wrapped, grads) and words(wrapped.parameters()) == before)
        check(method + " has no gradient", all(g.abs().sum() > 0 for g in grads))
        wrapped.close()
    wrapped = DistributedDataParallel(net(rank), codec="ef(topk(ratio=0.25))", local_group=local)
    F.cross_entropy(wrapped(batch(rank, 0)[0]), batch(rank, 0)[1]).backward()
    flat = torch.cat([p.grad.flatten() for p in wrapped.parameters()])
    check("the codec", alike(wrapped, [flat]) and 0 < (flat != 0).float().mean() < 0.6)
    state = wrapped.state_dict()
    check("state_dict", list(state) == ["module." + name for name in wrapped.module.state_dict()])
    wrapped.close()
    for way in ("wrapper", "prepare"):
        check("log_to of " + way, logged(folder, rank, local, way, port))
    return wrong


def logged(folder, rank, local, way, port):
    """Does rank 0 alone give figures on and answer at the port, and has each local index its files?"""
    got, model = [], net(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def look(_figures, step):  # the port is closed when the last figures are given
        got.append(step if step == 3 or f'tutti_step{{run="local-0"}} {step}\n' in exposition.get(port) else "nothing")

    options = {
        "trace": f"{folder}/{way}", "log_to": ["csv", look], "metrics_port": port, "local_group": local
    }  # fmt: skip
    if way == "wrapper":
        model = ours = DistributedDataParallel(model, **options)
    else:
        model, optimizer = tutti.torch.prepare(model, optimizer, **options)
        ours = optimizer
    for k in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(batch(rank, k)[0]), batch(rank, k)[1]).backward()
        optimizer.step()
    ours.close() if way == "wrapper" else ours.finish()
    there = os.path.exists(f"{folder}/{way}/local-{rank % 2}/metrics.csv")
    return there and got == ([1, 2, 3] if rank == 0 else [])


def traced(folder):
    """Has the trace of this local index all passes of both hosts?"""
    with open(f"{folder}/trace.json") as f:
        spans = [(e["pid"], e["name"]) for e in json.load(f) if e["ph"] == "X"]
    passes = [[name for pid, name in spans if pid == host and name in ("forward", "backward")] for host in range(2)]
    return passes == [["forward", "backward"] * 3] * 2


def test_a_wrapper_of_hosts_does_what_a_flat_one_does(tmp_path):
    assert on_hosts(features, str(tmp_path), free_port()) == [[]] * 4
    assert [traced(tmp_path / way / f"local-{k}") for way in ("wrapper", "prepare") for k in range(2)] == [True] * 4


# ---- refusals ----
def refusals(rank, folder):
    local, wrong = start(folder, rank), []
    uneven = [dist.new_group(ranks) for ranks in ([0, 1, 2], [3])]
    crossed = [dist.new_group(ranks) for ranks in ([0, 1], [1, 2, 3])]

    def refused(says, make):
        try:
            make()
        except (ValueError, TypeError, RuntimeError) as e:
            if says not in str(e):
                wrong.append(f"{type(e).__name__}: {e}")
        else:
            wrong.append("not refused: " + says)

    def wrapper(module=None, **options):
        return lambda: DistributedDataParallel(module or net(rank), **({"local_group": local} | options))

    refused("method 'powersgd' is not for shards", wrapper(method="powersgd(rank=1)"))
    refused("encodes whole matrices", wrapper(codec="ef(powersgd(rank=1))"))
    refused("did you mean 'topk'", wrapper(codec="topq"))
    refused("rows are not cut into shards", wrapper(nn.Embedding(4, 4, sparse=True)))
    refused("call torch.nn.utils.clip_grad_norm_ after backward", wrapper(clip_norm=1.0))
    refused("transport 'mpi' has all ranks", wrapper(transport="mpi"))
    refused("is no group of torch.distributed", wrapper(local_group="node"))
    refused("local_group of rank 0: its group is [0, 1], and that of rank 1 in it is [1, 2, 3]",
            wrapper(local_group=crossed[rank > 0]))
    outside = dist.GroupMember.NON_GROUP_MEMBER if rank == 1 else local
    refused("local_group of rank 1: it gave a group that it is not in", wrapper(local_group=outside))
    refused("the host of rank 0 has 3 ranks and that of rank 3 has 1", wrapper(local_group=uneven[rank > 2]))
    refused("rank 3 has another module, method or codec than rank 0", wrapper(net(rank, torch.bfloat16 if rank == 3
                                                                                  else torch.float32)))
    wrapped = DistributedDataParallel(net(rank), local_group=local)  # nothing is left of what was refused
    refused("use the state_dict() of the wrapper", lambda: wrapped.save(folder))
    F.cross_entropy(wrapped(batch(rank, 0)[0]), batch(rank, 0)[1]).backward()
    wrapped.close()
    return wrong


def test_what_cannot_be_is_refused_before_any_work(tmp_path):
    assert on_hosts(refusals, str(tmp_path)) == [[]] * 4


# ---- failures ----
def killed(rank, folder, victim):
    local = start(folder, rank)
    wrapped = DistributedDataParallel(net(rank), local_group=local)
    for k in range(50):
        if rank == victim and k == 3:
            os.kill(os.getpid(), 9)
        try:
            wrapped.zero_grad()
            F.cross_entropy(wrapped(batch(rank, k)[0]), batch(rank, k)[1]).backward()
        except Exception as e:  # noqa: BLE001
            return type(e).__name__, getattr(e, "rank", None), str(e)
        time.sleep(0.001)
    return None


@pytest.mark.parametrize(("transport", "victim"), [("shm", 3), ("tcp", 0)])
def test_a_killed_rank_is_named_on_all_others(tmp_path, transport, victim):
    found = on_hosts(killed, str(tmp_path), victim, transport=transport, killed=[victim])
    for rank in set(range(4)) - {victim}:
        kind, of, text = found[rank]
        assert (kind, of) == ("PeerError", victim) and text.startswith(f"rank {victim} is lost: "), found[rank]


def test_a_rank_that_ended_because_of_another_is_not_taken_for_it():
    """Rank 10 has heard of the end of 11 before that of 13, which was the cause."""
    class News:
        closed, rank, size = False, 0, 4

        def lost(self, rank):
            return {1: "worker 1 failed: rank 13 is lost: process 77 ended in the middle of the run"}.get(rank)

    hosts = _local.Hosts.__new__(_local.Hosts)
    hosts.world, hosts.every = News(), [10, 11, 12, 13]
    lost = hosts._lost()
    assert (lost.rank, str(lost)) == (13, "rank 13 is lost: process 77 ended in the middle of the run")


# ---- prepare ----
def prepared(rank, local, method, steps=6, dtype=torch.float32, **options):
    """Parameters after a training by prepare(), those of evaluate(), and those after finish()."""
    model = net(rank, dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    model, optimizer = tutti.torch.prepare(model, optimizer, method, local_group=local, **options)
    for k in range(steps):
        x, y = batch(rank, k, dtype)
        optimizer.zero_grad()
        F.cross_entropy(model(x).float(), y).backward()
        optimizer.step()
    own = words(model.parameters())
    with optimizer.evaluate():
        shown = words(model.parameters())
    optimizer.finish()
    return own, shown, words(model.parameters())


def by_hand(period, steps):
    """local-sgd with two hosts of two ranks, in one process; their model, and that of each host before the end."""
    models = [net(0), net(0)]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.2, momentum=0.9) for m in models]
    for k in range(steps):
        for host, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            grads = []
            for rank in HOSTS[host]:
                x, y = batch(rank, k)
                model.zero_grad()
                F.cross_entropy(model(x), y).backward()
                grads.append([p.grad.clone() for p in model.parameters()])
            for p, a, b in zip(model.parameters(), *grads, strict=True):
                p.grad = (a + b) * 0.5
            optimizer.step()
        if (k + 1) % period == 0:
            mean(models)
    own = [words(m.parameters()) for m in models]
    mean(models)
    return own, words(models[0].parameters())


@torch.no_grad()
def mean(models):
    for a, b in zip(*(m.parameters() for m in models), strict=True):
        a.copy_(0.5 * a + 0.5 * b)
        b.copy_(a)


def near(a, b):
    """Of lists of bits: equal but for rounding."""
    if isinstance(a[0], (list, tuple)):
        return len(a) == len(b) and all(map(near, a, b))
    a, b = (torch.tensor(t, dtype=torch.int32).view(torch.float32) for t in (a, b))
    return torch.allclose(a, b, rtol=1e-4, atol=1e-6)


def methods(rank, folder):
    local, wrong = start(folder, rank), []
    _local._BUCKET = 2048

    def check(name, same):
        if not same:
            wrong.append(name)

    for dtype in (torch.float32, torch.bfloat16):
        check(f"ddp in {dtype}", prepared(rank, local, "ddp", dtype=dtype) == prepared(rank, None, "ddp", dtype=dtype))
    check("accumulate", near(prepared(rank, local, "ddp", accumulate=2), prepared(rank, None, "ddp", accumulate=2)))
    check("clip_norm", near(prepared(rank, local, "ddp", clip_norm=0.3), prepared(rank, None, "ddp", clip_norm=0.3)))
    own, shown, final = prepared(rank, local, "local-sgd(period=4)")
    of_hosts, agreed = by_hand(4, 6)
    check("local-sgd's own models", own == of_hosts[rank // 2])
    check("local-sgd's mean", shown == final == agreed)
    own, shown, final = prepared(rank, local, "local-sgd(period=3)")
    check("a round is seen at once", own == shown == final == by_hand(3, 6)[1])
    own, shown, final = prepared(rank, local, "diloco(period=3)", steps=7)
    check("diloco agrees", shown == final != own)
    for found in (final, prepared(rank, local, "qsgd")[2]):
        seen = [None] * 4
        dist.all_gather_object(seen, found)
        check("all ranks have one model", all(of == found for of in seen))
    return wrong


def test_methods_work_between_hosts(tmp_path):
    assert on_hosts(methods, str(tmp_path)) == [[]] * 4


def around(rank, folder):
    """What a prepared optimizer does besides: resuming, statistics of batch norms, refusals."""
    local, wrong = start(folder, rank), []
    _local._BUCKET = 2048

    def check(name, same):
        if not same:
            wrong.append(name)

    def refused(says, call):
        try:
            call()
        except (ValueError, RuntimeError) as e:
            check(f"{type(e).__name__}: {e}", says in str(e))
        else:
            wrong.append("not refused: " + says)

    def ready(method, module=None, **options):
        model = module or net(rank)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
        return tutti.torch.prepare(model, optimizer, method, local_group=local, **options)

    def run(model, optimizer, steps):
        for k in steps:
            optimizer.zero_grad()
            F.cross_entropy(model(batch(rank, k)[0]), batch(rank, k)[1]).backward()
            optimizer.step()

    # resuming in the middle of a round, with a codec's residuals
    for method, codec in (("diloco(period=4)", None), ("ddp", "ef(topk(ratio=0.25))")):
        found = []
        for resumes in (False, True):
            model, optimizer = ready(method, codec=codec)
            run(model, optimizer, range(3))
            if resumes:
                saved = [t.clone() for t in model.state_dict().values()], optimizer.state_dict()
                names = list(model.state_dict())
                optimizer.close()
                model, optimizer = ready(method, codec=codec)
                model.load_state_dict(dict(zip(names, saved[0], strict=True)))
                optimizer.load_state_dict(saved[1])
            run(model, optimizer, range(3, 7))
            optimizer.finish()
            found.append(words(model.parameters()))
        check(f"{method} resumes", found[0] == found[1])
    saved[1]["tutti"]["local"] = [1 - rank % 2, 2]
    model, optimizer = ready("ddp", codec=codec)
    refused("with local_group each rank loads what it has saved", lambda: optimizer.load_state_dict(saved[1]))
    refused("a checkpoint of Tutti has whole tensors", lambda: optimizer.save(folder))
    check("the world is that of all ranks", (optimizer.world.rank, optimizer.world.size) == (rank, 4))
    F.cross_entropy(model(batch(rank, 0)[0]), batch(rank, 0)[1]).backward()
    with torch.no_grad():
        model[0].bias.grad.mul_(0.5)
    refused("the gradient of '0.bias' was changed between backward and step()", optimizer.step)
    optimizer.close()

    # values go to the engine at a round alone
    real, asked = _local.Shards.values, []
    _local.Shards.values = lambda self, k: asked.append(k) or real(self, k)
    model, optimizer = ready("local-sgd(period=4)")
    counts = []
    for k in range(4):
        run(model, optimizer, [k])
        counts.append(len(asked))
    buckets = len(optimizer._run._shards.buckets)
    check(f"values in local steps: {counts}", counts[0] == counts[1] == counts[2] == counts[3] - buckets)
    _local.Shards.values = real
    optimizer.finish()

    # gradients that stay in the host may be changed, since they are the host's mean already
    model, optimizer = ready("local-sgd(period=2)")
    F.cross_entropy(model(batch(rank, 0)[0]), batch(rank, 0)[1]).backward()
    of_host = [torch.zeros_like(p.grad) for p in model.parameters()]
    for a, p in zip(of_host, model.parameters(), strict=True):
        a.copy_(p.grad)
        dist.broadcast(a, HOSTS[rank // 2][0], group=local)
    check("the host's mean", words(of_host) == words([p.grad for p in model.parameters()]))
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    optimizer.finish()

    # statistics of batch norms are each rank's, and the agreed model has their mean
    module = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    model, optimizer = ready("local-sgd(period=2)", module)
    run(model, optimizer, range(3))
    own, mean = module[1].running_mean.clone(), module[1].running_mean.clone()
    dist.all_reduce(mean)
    with optimizer.evaluate():
        check("the mean of statistics", torch.allclose(module[1].running_mean, mean / 4))
    check("own statistics", torch.equal(module[1].running_mean, own))
    optimizer.finish()
    check("statistics at the end", torch.allclose(module[1].running_mean, mean / 4))

    refused("method 'ad-psgd' is not for shards", lambda: ready("ad-psgd"))
    refused("local_group and sampler: it would count hosts",
            lambda: ready("ddp", sampler=tutti.torch.sampler(range(64), batch=4)))
    refused("local_group and nonfinite='skip'", lambda: ready("ddp", nonfinite="skip"))
    refused("local_group and loss_scale", lambda: ready("ddp", loss_scale="dynamic"))
    refused("local_group and servers", lambda: ready("ddp", servers=1))
    refused("unknown option 'perod'; did you mean 'period'", lambda: ready("local-sgd(perod=2)"))
    model, optimizer = ready("local-sgd(period=2)")  # nothing is left of what was refused
    run(model, optimizer, range(1))
    if rank == 1:
        model[0].weight.register_hook(lambda grad: grad * float("nan"))
    refused("not finite" if rank < 2 else "", lambda: run(model, optimizer, range(1, 9)))
    return wrong


def test_a_prepared_optimizer_resumes_and_refuses(tmp_path):
    assert on_hosts(around, str(tmp_path)) == [[]] * 4


# ---- a part of the job ----
def of_a_part(rank, folder):
    """Ranks 1 to 4 of 5 are a run of two hosts. One that is killed is named by its number in the job."""
    hosts = [[1, 2], [3, 4]]
    dist_cases.start(folder, rank, 5, "gloo")
    part = dist.new_group([1, 2, 3, 4])
    groups = [dist.new_group(host) for host in hosts]
    if rank == 0:
        return None
    wrapped = DistributedDataParallel(net(rank), process_group=part, local_group=groups[(rank - 1) // 2])
    for k in range(9):
        if k == 3 and rank == 3:
            os.kill(os.getpid(), 9)
        try:
            F.cross_entropy(wrapped(batch(rank, k)[0]), batch(rank, k)[1]).backward()
        except PeerError as e:
            return wrapped.rank, wrapped.world_size, e.rank, str(e)
    return None


def test_a_run_of_a_part_of_the_job(tmp_path):
    found = on_hosts(of_a_part, str(tmp_path), n=5, killed=[3])
    assert found[0] is None
    for place, rank in enumerate((1, 2, 3, 4)):
        assert rank == 3 or found[rank][:3] == [place, 4, 3] and found[rank][3].startswith("rank 3 is lost: ")


# ---- the page ----
def test_the_pages_script_learns(monkeypatch):
    text = (processes.ROOT / "docs/PYTORCH.md").read_text()
    script = text.split("## Hosts of several GPUs\n")[1].split("```python\n")[1].split("```")[0]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    first, *others = forked.script("import torch\ntorch.set_num_threads(1)\n" + script, n=4)
    assert first.out.startswith("loss ") and float(first.out.split()[1]) < 1
    assert [rank.out for rank in others] == [""] * 3


@pytest.mark.cuda
def test_hosts_of_two_on_one_card(run):
    """Gloo inside, with tensors on the card: the bits are those of the wrapper and of prepare() without hosts."""
    def script():
        import json

        import torch
        import torch.distributed as dist
        from torch import nn

        import tutti.torch

        dist.init_process_group("gloo")
        rank = dist.get_rank()
        local = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]

        def trained(wraps, **options):
            torch.manual_seed(rank)
            model = nn.Sequential(nn.Linear(12, 500), nn.Tanh(), nn.Linear(500, 4)).to("cuda:0")
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            if wraps:
                model = tutti.torch.DistributedDataParallel(model, **options)
            else:
                model, optimizer = tutti.torch.prepare(model, optimizer, **options)
            for k in range(5):
                torch.manual_seed(10 * k + rank)
                optimizer.zero_grad()
                model(torch.randn(8, 12, device="cuda:0")).square().mean().backward()
                optimizer.step()
            if not wraps:
                optimizer.finish()
            return torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()

        same = [trained(wraps) == trained(wraps, local_group=local) for wraps in (True, False)]
        mine = trained(False, method="local-sgd(period=2)", local_group=local)
        seen = [None] * 4
        dist.all_gather_object(seen, mine)
        print(json.dumps([*same, all(other == mine for other in seen)]))

    assert [rank.last for rank in run(script, n=4, launcher="torchrun").ranks] == [[True, True, True]] * 4
