"""Gradients between a GPU and the engine. The logic is tested on streams of this file's own, which take their time and
run nothing before its turn; with a GPU the same through CUDA."""

import queue
import random
import threading
import time

import forked
import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]


class Stream:
    """Does what it is given in order, each after a while, in a thread of its own."""

    def __init__(self, seed):
        self.items, self.random = queue.SimpleQueue(), random.Random(seed)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while (item := self.items.get()) is not None:
            time.sleep(self.random.random() * 2e-4)
            item()


class Streams:
    """A Device of _cuda.py: compute and side are streams, `device` memory is only right once they have been there."""

    def __init__(self, seed=0):
        self.compute, self.side = Stream(seed), Stream(seed + 1)

    def pinned(self, shape, dtype):
        import torch

        return torch.full(tuple(shape), float("nan"), dtype=dtype)

    def record(self):
        event = threading.Event()
        self.compute.items.put(event.set)
        return event

    def copy(self, to, source, after):
        event = threading.Event()

        def made():
            if after is not None:
                self.synchronize(after)
            to.copy_(source)
            event.set()

        self.side.items.put(made)
        return event

    def synchronize(self, event):
        assert event.wait(20), "an event that never comes"

    def stream_wait(self, event):
        self.compute.items.put(lambda: self.synchronize(event))

    def kernel(self, work):
        self.compute.items.put(work)

    def wait_all(self):
        self.synchronize(self.record())

    def close(self):
        self.compute.items.put(None)
        self.side.items.put(None)


@pytest.fixture
def streams():
    made = Streams()
    yield made
    made.close()


def steps(device, n=30, tensors=8):
    """A training of sorts. Gradients are made on the compute stream, brought, exchanged (negated), and read by a
    kernel there."""
    import torch

    from tutti.torch._cuda import HostStaging

    grads = [torch.full((k + 1, 3), -1.0) for k in range(tensors)]
    seen, read = [], []
    values = [torch.zeros(k + 1, 3) for k in range(tensors)]

    def announce(k, host):
        seen.append((k, host.flatten().tolist()))
        values[k].copy_(host)

    staging = HostStaging(device, announce)
    order = list(range(tensors))
    for step in range(n):
        random.Random(step).shuffle(order)
        seen.clear()
        for k in order:
            device.kernel(lambda k=k, step=step: grads[k].fill_(100 * step + k))
            staging.to_host(k, grads[k])
        staging.wait_announced()
        assert [k for k, _ in seen] == order
        for k, got in seen:
            assert got == [100 * step + k] * (3 * (k + 1)), f"step {step}, tensor {k}"
        read.clear()
        for k in order:
            staging.to_device(k, -values[k], grads[k])
            values[k].fill_(-7)  # may change now
            device.kernel(lambda k=k: read.append((k, grads[k].flatten().tolist())))
        device.wait_all()
        assert read == [(k, [-100 * step - k] * (3 * (k + 1))) for k in order], f"step {step}"
    staging.close()


def test_gradients_reach_the_host_in_order_and_return(streams):
    steps(streams)


@pytest.mark.parametrize("broken", ["record", "synchronize", "stream_wait"])
def test_each_event_is_needed(streams, broken, monkeypatch):
    """The test above sees it if one of the three is left out."""

    def past():
        event = threading.Event()
        event.set()
        return event

    monkeypatch.setattr(Streams, broken, {"record": lambda self: past()}.get(broken, lambda self, event: None))
    if broken == "record":  # the test's own waiting is not what is broken
        streams.wait_all = lambda: time.sleep(0.02)
    with pytest.raises(AssertionError):
        steps(streams)


def test_to_host_does_not_block(streams):
    import torch

    from tutti.torch._cuda import HostStaging

    gate, seen = threading.Event(), []
    staging = HostStaging(streams, lambda k, host: seen.append((k, threading.get_ident())))
    grads = [torch.zeros(5) for _ in range(6)]
    streams.kernel(gate.wait)  # the compute stream stands still
    for k, grad in enumerate(grads):
        staging.to_host(k, grad)
    time.sleep(0.05)
    assert seen == []
    gate.set()
    staging.wait_announced()
    assert [k for k, _ in seen] == list(range(6))
    assert len({thread for _, thread in seen}) == 1 and seen[0][1] != threading.get_ident()
    staging.close()


def test_callback_exception_is_raised_once_and_stops_delivery(streams):
    import torch

    from tutti.torch._cuda import HostStaging

    seen = []

    def announce(k, host):
        seen.append(k)
        if seen == [0, 1]:
            raise OSError("worker 3 is gone")

    staging = HostStaging(streams, announce)
    grads = [torch.zeros(2) for _ in range(4)]
    for k in range(4):
        staging.to_host(k, grads[k])
    with pytest.raises(OSError, match="worker 3 is gone"):
        staging.wait_announced()
    assert seen == [0, 1]
    staging.wait_announced()
    staging.to_host(2, grads[2])
    staging.wait_announced()
    assert seen == [0, 1, 2]
    staging.close()


DDP = """
import functools
import json
import sys
import threading

import torch
from torch import nn

import tutti.torch
from tutti.torch import _cuda, ddp

torch.set_num_threads(1)


class Host:
    # The host as its own device: the side stream is a thread, the compute stream is whoever calls.
    def __init__(self):
        self.worker = _cuda.Worker(lambda work: work(), "side")

    def pinned(self, shape, dtype):
        return torch.full(tuple(shape), float("nan"), dtype=dtype)

    def record(self):
        return None

    def copy(self, to, source, after):
        event = threading.Event()
        self.worker.put(lambda: (to.copy_(source), event.set()))
        return event

    def synchronize(self, event):
        event.wait()

    stream_wait = synchronize


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.first = nn.Linear(64 * 4, 20)
        self.middle = nn.Linear(20, 20).to(torch.bfloat16)
        self.last = nn.Linear(20, 3)
        self.never = nn.Linear(2, 2)

    def forward(self, x):
        x = torch.relu(self.conv(x)).flatten(1)
        return self.last(self.middle(torch.relu(self.first(x)).to(torch.bfloat16)).float())


def train(device, steps=6):
    torch.manual_seed(0)
    # inputs stay on the host: device_ids moves them
    model = tutti.torch.DistributedDataParallel(Net().to(device), device_ids=None if device == "cpu" else [0])
    g = torch.Generator().manual_seed(model.world.rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        x, y = torch.randn(8, 1, 8, 8, generator=g), torch.randint(0, 3, (8,), generator=g).to(device)
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        if step == 3:
            with model.no_sync():
                nn.functional.cross_entropy(model(x), y).backward()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    values = [p.detach().cpu().float().flatten().tolist() for p in model.module.parameters()]
    model.close()
    return values
"""


def test_ddp_through_device_transfers_is_bit_identical():
    ranks = forked.script(DDP + """
plain = train("cpu")
ddp.exchange_of = lambda binding: functools.partial(_cuda.CudaExchange, device=Host())
print(json.dumps(train("cpu") == plain))
""")
    assert [r.last for r in ranks] == [True, True]


@pytest.mark.cuda
def test_ddp_on_a_gpu_trains_as_on_the_host(run):
    result = run(DDP + """
a, b = train("cpu"), train("cuda")
print(json.dumps(max(abs(x - y) for p, q in zip(a, b) for x, y in zip(p, q))))
""", timeout=120)
    assert result.ranks[0].last == result.ranks[1].last < 0.02  # bfloat16 layer


@pytest.mark.cuda
def test_gradients_reach_the_host_in_order_through_cuda():
    import torch

    from tutti.torch._cuda import Cuda

    class Timed(Cuda):
        def kernel(self, work):
            torch.cuda._sleep(100000)
            work()

    from tutti.torch._cuda import HostStaging

    device, seen = Timed(torch.device("cuda")), []
    grads = [torch.zeros(1000 * (k + 1), device="cuda") for k in range(8)]
    staging = HostStaging(device, lambda k, host: seen.append((k, float(host.min()), float(host.max()))))
    for step in range(30):
        seen.clear()
        for k in range(8):
            device.kernel(lambda k=k, step=step: grads[k].fill_(100 * step + k))
            staging.to_host(k, grads[k])
        staging.wait_announced()
        assert seen == [(k, 100 * step + k, 100 * step + k) for k in range(8)]
        for k in range(8):
            staging.to_device(k, torch.full((1000 * (k + 1),), -1.0 - step), grads[k])
            assert bool((grads[k] == -1.0 - step).all())
    staging.close()


@pytest.mark.cuda
def test_staging_memory_is_on_the_host_whatever_the_default_device():
    import torch

    from tutti.torch._cuda import Cuda

    torch.set_default_device("cuda")
    try:
        host = Cuda(torch.device("cuda")).pinned((2, 3), torch.float16)
    finally:
        torch.set_default_device(None)
    assert host.device.type == "cpu" and host.is_pinned() and host.shape == (2, 3) and host.dtype == torch.float16


@pytest.mark.cuda
@pytest.mark.parametrize("spec", ["fp32", "ef(topk(ratio=0.05))", "powersgd(rank=2)"])
def test_comm_hook_takes_gradients_from_a_gpu(run, spec):
    result = run("""
import json
import sys
import torch
import torch.distributed as dist
from torch import nn

import gloo
import tutti.torch

dist.init_process_group("gloo")
found = []
for device in ("cpu", "cuda"):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 1)).to(device)
    ddp = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.05)
    ddp.register_comm_hook(*tutti.torch.comm_hook(sys.argv[1]))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(dist.get_rank())
    for step in range(20):
        x = torch.randn(32, 30, generator=g)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(ddp(x.to(device)), x[:, :2].sum(1, keepdim=True).to(device))
        loss.backward()
        optimizer.step()
    found.append(float(loss))
print(json.dumps(found))
gloo.leave()
""", args=[spec], timeout=120)
    for rank in result.ranks:
        host, gpu = rank.last
        assert abs(host - gpu) < 0.1 * abs(host) + 1e-3


PREPARE = """
import json
import threading

import torch

import tutti.torch
from tutti.torch import _cuda, _run


class Device:
    # The host as its own device: the side stream is a thread, the compute stream is whoever calls.
    # Copies to and from it are counted, and made late.
    def __init__(self):
        self.worker, self.copies = _cuda.Worker(lambda work: work(), "side"), 0

    def pinned(self, shape, dtype):
        return torch.full(tuple(shape), float("nan"), dtype=dtype)

    def record(self):
        return None

    def copy(self, to, source, after):
        event = threading.Event()
        self.copies += 1
        self.worker.put(lambda: (threading.Event().wait(0.0002), to.copy_(source), event.set()))
        return event

    def synchronize(self, event):
        event.wait()

    stream_wait = synchronize


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7), torch.nn.ReLU(), torch.nn.Linear(7, 2))


def train(method, where="cpu", dtype=torch.float32, momentum=0.9, **options):
    model = net().to(where, dtype)
    model.to(memory_format=torch.channels_last)
    model, optimizer = tutti.torch.prepare(
        model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum), method, **options
    )
    rank, seen = optimizer.world.rank, []
    for step in range(6):
        g = torch.Generator().manual_seed(100 * step + rank)
        x = torch.randn(4, 5, generator=g).to(where, dtype)
        loss = model(x).float().square().mean()
        optimizer.scale(loss).backward()
        optimizer.step(loss=loss.detach())
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        if step == 3:
            with optimizer.evaluate():
                seen = [p.detach().float().cpu().flatten().tolist() for p in model.parameters()]
            kept = optimizer.state_dict()["tutti"]["state"]
    optimizer.finish()
    return seen, [t.detach().float().cpu().flatten().tolist() for t in model.state_dict().values()], len(kept)


CASES = [
    ("ddp", {}), ("ddp", {"dtype": torch.bfloat16}), ("ddp", {"accumulate": 2}), ("d-psgd", {}),
    ("local-sgd(period=2)", {"dtype": torch.bfloat16}), ("signum", {"momentum": 0}), ("powersgd(rank=1)", {}),
    ("ddp", {"loss_scale": "dynamic(init=8)"}), ("ddp", {"clip_norm": 0.1}), ("sgp(overlap=1)", {}),
]
"""


def test_prepare_through_device_transfers_is_bit_identical():
    ranks = forked.script(PREPARE + """
plain = [train(method, **options)[:2] for method, options in CASES]
device = Device()
_run._device = lambda binding: device
print(json.dumps([train(method, **options)[:2] == p for (method, options), p in zip(CASES, plain)]))
assert device.copies > 0
""")
    assert [r.last for r in ranks] == [[True] * 10] * 2


@pytest.mark.cuda
def test_prepare_on_a_gpu_trains_as_on_the_host(run):
    result = run(PREPARE + """
off = []
for method, options in CASES:
    here, there = (train(method, where, **options) for where in ("cpu", "cuda:0"))
    tolerance = 0.05 if "dtype" in options else 1e-3
    for a, b in zip(here[0] + here[1], there[0] + there[1], strict=True):
        torch.testing.assert_close(torch.tensor(a), torch.tensor(b), rtol=tolerance, atol=tolerance)
print(json.dumps(True))
""")
    assert [r.last for r in result.ranks] == [True, True]
