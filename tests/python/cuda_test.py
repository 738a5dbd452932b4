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

    def done(self, event):
        return event.is_set()

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


class Everywhere:
    """Windows of _cuda.py: all memory is locked."""

    def holds(self, tensor):
        return True


def steps(device, n=30, tensors=8, windows=None):
    """A training of sorts. Gradients are made on the compute stream, brought, exchanged (negated), and read by a
    kernel there. windows: they land where they are exchanged."""
    import torch

    from tutti.torch._cuda import HostStaging

    grads = [torch.full((k + 1, 3), -1.0) for k in range(tensors)]
    seen, read = [], []
    values = [torch.zeros(k + 1, 3) for k in range(tensors)]

    def announce(k, host):
        seen.append((k, host.flatten().tolist()))
        assert windows is None or host is values[k]
        values[k].copy_(host)

    staging = HostStaging(device, announce, windows)
    order = list(range(tensors))
    for step in range(n):
        random.Random(step).shuffle(order)
        seen.clear()
        for k in order:
            device.kernel(lambda k=k, step=step: grads[k].fill_(100 * step + k))
            staging.to_host(k, grads[k], values[k])
        staging.wait_announced()
        assert [k for k, _ in seen] == order
        for k, got in seen:
            assert got == [100 * step + k] * (3 * (k + 1)), f"step {step}, tensor {k}"
        read.clear()
        for k in order:
            staging.to_device(k, values[k].neg_(), grads[k])
            if windows is not None:
                staging.wait_copied()
            values[k].fill_(-7)  # may change now
            device.kernel(lambda k=k: read.append((k, grads[k].flatten().tolist())))
        device.wait_all()
        assert read == [(k, [-100 * step - k] * (3 * (k + 1))) for k in order], f"step {step}"
    staging.close()


@pytest.mark.parametrize("windows", [None, Everywhere()])
def test_gradients_reach_the_host_in_order_and_return(streams, windows):
    steps(streams, windows=windows)


def test_a_window_is_not_written_to_before_its_copy_is_made(streams, monkeypatch):
    """The test above sees it if nobody waits for the copy."""
    from tutti.torch import _cuda

    monkeypatch.setattr(_cuda.HostStaging, "wait_copied", lambda self: None)
    with pytest.raises(AssertionError):
        steps(streams, windows=Everywhere())


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


DEVICE = """
import threading

import torch
from tutti.torch import _cuda


class Device:
    # The host as its own device: the side stream is a thread, the compute stream is whoever calls.
    # Copies are made late. They are counted in bytes by direction; each has one side in memory of
    # the engine or in a buffer.
    def __init__(self, locks=True):
        self.worker, self.locks = _cuda.Worker(lambda work: work(), "side"), locks
        self.windows, self.locked, self.buffers, self.down, self.up = [], {}, [], 0, 0

    def pinned(self, shape, dtype):
        self.buffers.append(torch.full(tuple(shape), float("nan"), dtype=dtype))
        return self.buffers[-1]

    def lock(self, address, size):
        if self.locks:
            self.locked[address] = size
        return "" if self.locks else "not here"

    def unlock(self, address):
        del self.locked[address]

    def on_host(self, t):
        at = t.data_ptr()
        return any(b <= at < b + size for b, size in self.windows + [(b.data_ptr(), b.nbytes) for b in self.buffers])

    def record(self):
        return None

    def copy(self, to, source, after):
        event, down = threading.Event(), self.on_host(to)
        assert down != self.on_host(source), "one side is the engine's memory or a buffer, the other on the device"
        assert to.dtype == source.dtype and to.stride() == source.stride()
        if down:
            self.down += to.nbytes
        else:
            self.up += to.nbytes
        self.worker.put(lambda: (threading.Event().wait(0.0002), to.copy_(source), event.set()))
        return event

    def synchronize(self, event):
        event.wait()

    def done(self, event):
        return event.is_set()

    stream_wait = synchronize


opened = _cuda.Windows.__init__


def opens(self, device, ranges):
    device.windows = list(ranges)  # without what else lies on their pages
    opened(self, device, ranges)


_cuda.Windows.__init__ = opens
"""


DDP = DEVICE + """
import functools
import json
import sys

from torch import nn

import tutti.torch
from tutti.torch import ddp

torch.set_num_threads(1)


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
for locks in (True, False):
    device = Device(locks)
    ddp.exchange_of = lambda binding: functools.partial(_cuda.CudaExchange, device=device)
    assert train("cpu") == plain
    assert device.locked == {}
    # with locked memory only the layer in 16 bits has buffers
    assert {b.dtype for b in device.buffers} == ({torch.bfloat16} if locks else {torch.bfloat16, torch.float32})
    sizes = sum(p.nbytes for name, p in Net().named_parameters() if not name.startswith("never"))
    assert device.down == 6 * sizes, (device.down, sizes)
print(json.dumps(True))
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


PREPARE = DEVICE + """
import json

import tutti.torch
from tutti.torch import _run


def net():
    torch.manual_seed(0)
    # no bias before a batch norm: its gradient is rounding alone, whose sign signum takes
    first, last = torch.nn.Linear(5, 7, bias=False), torch.nn.Linear(7, 2)
    return torch.nn.Sequential(first, torch.nn.BatchNorm1d(7), torch.nn.ReLU(), last)


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
# the rest of the catalogue, as far as runs of one method have the same bits
REST = [
    ("single", {}), ("local-sgd(period=2)", {}), ("local-sgd(period=2)", {"clip_norm": 0.1}),
    ("local-sgd(period=2,warmup=3,outer=sgd)", {}), ("local-sgd(period=3)", {"codec": "fp16"}),
    ("local-sgd(period=3)", {"nonfinite": "skip"}), ("diloco(period=2)", {}),
    ("diloco(period=4,fragments=2,delay=1,mix=0.5)", {}), ("diloco(period=3,delay=1)", {"dtype": torch.bfloat16}),
    ("palsgd(period=3)", {}), ("palsgd(period=3,form=elastic)", {}), ("slowmo(period=3)", {}),
    ("slowmo(base=d-psgd,period=4)", {}), ("slowmo(base=sgp,period=4)", {}),
    ("lasgd(local_steps=2,max_delay=1)", {}), ("accordion", {}), ("accordion(mode=localsteps)", {}),
    ("d-psgd(order=atc)", {"dtype": torch.bfloat16}), ("d-psgd", {"codec": "int8"}), ("sgp", {}),
    ("noloco(period=3)", {}), ("qg-dsgdm", {}), ("gut", {}), ("hop", {}), ("rand-psgd(pace=step)", {}), ("bagua", {}),
    ("bagua(algorithm=decentralized)", {}), ("hetero-ring", {}), ("ata", {}), ("stragglar", {}), ("pipe-sgd", {}),
    ("bytescheduler", {}), ("zero", {}), ("zero-offload", {}), ("qsgd", {}), ("nuqsgd", {}), ("alq", {}), ("amq", {}),
    ("gradient-sparsification", {}), ("dgc", {"momentum": 0}), ("onebit-adam", {"momentum": 0}),
    ("qadam", {"momentum": 0}), ("parameter-server", {}), ("herring", {}), ("byteps", {}), ("parallax", {}),
    ("ddp", {"codec": "ef(topk(ratio=0.1))"}), ("ddp", {"elastic_shares": 4}),
    ("local-sgd(period=2)", {"elastic_shares": 4}), ("diloco(period=2)", {"elastic_shares": 4, "clip_norm": 0.1}),
]
"""


def test_prepare_through_device_transfers_is_bit_identical():
    ranks = forked.script(PREPARE + """
def tried(method, options):
    try:
        return train(method, **options)[:2]
    except ValueError as e:
        return str(e)

cases = CASES + REST
plain = [tried(method, options) for method, options in cases]
device = Device()
_run._device = lambda binding: device
there = [tried(method, options) for method, options in cases]
# on the host the engine has bits below those of 16-bit parameters, also between exchanges
for k, (method, options) in enumerate(cases):
    if "dtype" in options and method != "ddp":
        for a, b in zip(plain[k][0] + plain[k][1], there[k][0] + there[k][1], strict=True):
            torch.testing.assert_close(torch.tensor(b), torch.tensor(a), rtol=0.03, atol=0.01)
        there[k] = plain[k]
refused = {str(case): said for case, said in zip(cases, plain) if isinstance(said, str)}
print(json.dumps([refused, [str(case) for case, a, b in zip(cases, plain, there) if a != b]]))
""", timeout=300)
    assert [r.last for r in ranks] == [[{}, []]] * 2


def test_what_moves_in_a_step():
    """In model sizes: to the host and back, in each of seven iterations after the first."""
    ranks = forked.script(PREPARE + """
def moved(method, dtype=torch.float32, **options):
    device = Device()
    _run._device = lambda binding: device
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)).to(dtype)
    size = sum(p.nbytes for p in model.parameters())
    model, optimizer = tutti.torch.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01), method, **options)
    found = []
    for step in range(8):
        down, up = device.down, device.up
        model(torch.ones(2, 64, dtype=dtype)).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append([(device.down - down) // size, (device.up - up) // size])
    if dtype == torch.float32:
        assert all(b.numel() < 9 for b in device.buffers), "a gradient or values in a buffer"
    optimizer.finish()
    return found[1:]


often = [[1, 1]] * 7
once = [[0, 0], [0, 0], [1, 0], [0, 1], [0, 0], [0, 0], [1, 0]]
for method, options, expected in [
    ("ddp", {}, often), ("ddp", {"dtype": torch.bfloat16}, often), ("ddp", {"codec": "ef(topk(ratio=0.1))"}, often),
    ("powersgd(rank=1)", {}, often), ("qsgd", {}, often), ("parameter-server", {}, often), ("zero", {}, often),
    ("herring", {}, often),
    ("single", {}, [[0, 0]] * 7), ("local-sgd(period=4)", {}, once), ("slowmo(period=4)", {}, once),
    ("local-sgd(period=4)", {"dtype": torch.bfloat16}, once), ("diloco(period=4)", {}, once),
    ("noloco(period=4)", {}, once),
    ("diloco(period=4,delay=1)", {}, [[0, 0], [1, 0], [0, 0], [0, 1], [0, 0], [1, 0], [0, 0]]),
    ("palsgd(period=4,mix_prob=0)", {}, once), ("d-psgd", {}, often), ("d-psgd(order=atc)", {}, often),
    ("sgp", {}, often), ("sgp(overlap=4)", {}, [[0, 0], [0, 0], [0, 0], [1, 1], [0, 0], [0, 0], [0, 0]]),
]:
    found = moved(method, **options)
    assert found == expected, (method, options, found)
print(json.dumps(True))
""")
    assert [r.last for r in ranks] == [True, True]


def test_a_gradient_that_is_not_finite_is_named_before_anything_is_sent():
    ranks = forked.script(PREPARE + """
from tutti import NumberError

device = Device()
_run._device = lambda binding: device
model = torch.nn.Linear(3, 1)
model, optimizer = tutti.torch.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), "local-sgd(period=4)")
for step in range(4):
    optimizer.zero_grad()
    (model(torch.ones(2, 3)).mean() * (float("nan") if step == 2 else 1)).backward()
    try:
        optimizer.step()
    except NumberError as e:
        assert step == 3
        print(json.dumps(str(e).split(";")[0]))
""")
    assert [r.last.split(": ")[1] for r in ranks] == ["the gradient of bias is nan in step 2"] * 2


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
