"""Tensors on an accelerator under the backend 'tutti'. There is none here: a stand-in has streams that take their time,
and memory that is only right once they have been there (cuda_test.py)."""

import contextlib
import threading

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import dist_cases  # noqa: E402
import dist_training  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.fsdp  # noqa: E402, F401, F811 (here, or each rank imports it)
from cuda_test import Streams  # noqa: E402
from distributed_test import on_ranks  # noqa: E402

import tutti.torch.distributed  # noqa: E402, F401
from tutti.torch import _streams  # noqa: E402
from tutti.torch._versions import call_of  # noqa: E402


class Late(Streams):
    """Two streams. What a test computes is a kernel of the first one."""

    sides = 0

    def pinned(self, shape, dtype):
        poison = float("nan") if dtype.is_floating_point else 1 if dtype == torch.bool else 77
        return torch.full(tuple(shape), poison, dtype=dtype)

    @contextlib.contextmanager
    def aside(self):
        self.sides += 1
        yield


class Now(Late):
    """Whoever calls is the compute stream; copies take their time all the same."""

    def record(self):
        event = threading.Event()
        event.set()
        return event

    def stream_wait(self, event):
        self.synchronize(event)

    @contextlib.contextmanager
    def aside(self):
        """A future that is completed here is on the side stream: who uses it waits for that."""
        event = threading.Event()
        self.side.items.put(event.set)
        self.synchronize(event)
        yield


def past():
    event = threading.Event()
    event.set()
    return event


def calls(rank, n, folder, broken):
    """All kinds of calls whose tensors kernels make and read: what is wrong. broken: of the stand-in."""
    dist_cases.start(folder, rank, n, "tutti")
    device = Late(rank)
    if broken == "record":
        device.record = past
        device.wait_all = lambda: device.synchronize(Streams.record(device))
    elif broken == "synchronize":
        device.synchronize = lambda event: None
        device.wait_all = lambda: Streams.synchronize(device, Streams.record(device))
    elif broken == "stream_wait":
        device.stream_wait = lambda event: None
    _streams.of_device = lambda _device: device
    other, wrong = (rank + 1) % n, []
    x, whole, part = torch.zeros(500), torch.zeros(500 * n), torch.zeros(500)
    seen = {}

    def check(name, work, result, wanted):
        work.wait()
        device.kernel(lambda: seen.__setitem__(name, result.clone()))
        device.wait_all()
        if not torch.equal(seen[name], wanted):
            wrong.append(name)

    def made(salt, r):
        return torch.arange(500.0) * (salt + 1) + r

    for step in range(8):
        values = [made(step, r) for r in range(n)]
        total = torch.stack(values).sum(0)

        def fill(step=step):
            x.copy_(made(step, rank))
            whole.copy_(torch.cat([made(step, rank) + j for j in range(n)]))
            part.fill_(-1)

        device.kernel(fill)
        check("all_to_all", dist.all_to_all_single(out := torch.zeros(500 * n), whole, async_op=True), out,
              torch.cat([made(step, r) + rank for r in range(n)]))
        reduce_scatter = call_of("reduce_scatter_single", "reduce_scatter_tensor")
        check("reduce_scatter", reduce_scatter(part, whole, async_op=True), part, total + n * rank)
        device.kernel(lambda: whole.zero_())
        all_gather = call_of("all_gather_single", "all_gather_into_tensor")
        check("all_gather", all_gather(whole, x, async_op=True), whole, torch.cat(values))
        lists = [torch.zeros(500) for _ in range(n)]
        check("list", dist.all_gather(lists, x, async_op=True), lists[other], values[other])
        check("gather", dist.gather(x, lists if rank == 0 else None, dst=0, async_op=True), lists[-1], values[-1])
        device.kernel(lambda: part.zero_())
        check("scatter", dist.scatter(part, lists if rank == 1 else None, src=1, async_op=True), part, values[rank])
        requests = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, other), dist.P2POp(dist.irecv, part, other)])
        for request in requests[:-1]:
            request.wait()
        check("recv", requests[-1], part, values[other])
        check("broadcast", dist.broadcast(part, 1, async_op=True), part, values[0])
        check("all_reduce", dist.all_reduce(x, async_op=True), x, total)
        with dist._coalescing_manager(async_ops=True) as together:
            for t in (x, part):
                dist.all_reduce(t)
        check("coalesced", together, part, n * values[0])
    _streams.of_device = lambda device: None
    dist.barrier()
    dist.destroy_process_group()
    return wrong


def test_each_call_reads_what_kernels_made_and_kernels_read_its_result(tmp_path):
    assert on_ranks(2, calls, str(tmp_path), "") == [[], []]


@pytest.mark.parametrize("broken", ["record", "synchronize", "stream_wait"])
def test_each_event_is_needed(tmp_path, broken):
    """The test above sees it if one of the three is left out."""
    assert all(on_ranks(2, calls, str(tmp_path), broken))


def issues(rank, n, folder):
    """A call returns while the compute stream stands still; its tensors may go."""
    dist_cases.start(folder, rank, n, "tutti")
    device, gate = Late(rank), threading.Event()
    _streams.of_device = lambda _device: device
    x = torch.zeros(100)
    device.kernel(gate.wait)
    device.kernel(lambda: x.fill_(rank + 1))
    work = dist.all_reduce(x, async_op=True)
    early = work.is_completed()
    gate.set()
    future = work.get_future()
    work.wait()
    device.wait_all()
    found = [early, x[0].item(), future.done(), device.sides]
    _streams.of_device = lambda device: None
    dist.destroy_process_group()
    return found


def test_a_call_does_not_wait_for_the_stream(tmp_path):
    assert on_ranks(2, issues, str(tmp_path)) == [[False, 3.0, True, 1]] * 2


def training(rank, n, folder, kind, standing_in):
    over = kind == "hsdp"  # one axis alone: Gloo would not wait for a stand-in's streams
    dist_cases.start(folder, rank, n, "gloo" if over else "tutti", name=f"{kind}{standing_in}")
    real = _streams.of_device
    if standing_in:
        device = Now(rank)
        _streams.of_device = lambda _device: device
    found = getattr(dist_training, kind)("override" if over else "tutti")
    _streams.of_device = real
    dist.destroy_process_group()
    return found


@pytest.mark.parametrize(("kind", "n"), [("ddp", 2), ("hsdp", 4)])
def test_trainings_have_the_same_bits(tmp_path, kind, n):
    assert on_ranks(n, training, str(tmp_path), kind, True) == on_ranks(n, training, str(tmp_path), kind, False)


def refused(rank, n, folder):
    dist_cases.start(folder, rank, n, "tutti")
    found = []
    for t in (torch.empty(3, device="meta"), torch.eye(3).to_sparse_csr()):
        try:
            dist.broadcast(t, 0)
        except (ValueError, RuntimeError) as e:
            found.append(str(e))
    dist.destroy_process_group()
    return found


def test_other_devices_are_refused(tmp_path):
    for found in on_ranks(2, refused, str(tmp_path)):
        assert "takes tensors in host memory and on cuda or xpu, and this one is on meta" in found[0]
        assert "takes dense tensors" in found[1]


@pytest.mark.cuda
def test_calls_and_ddp_on_a_card_have_the_bits_of_the_cpu(run):
    """Two ranks on one card."""
    def script():
        import json

        import torch
        import torch.distributed as dist
        from torch import nn

        import tutti.torch.distributed  # noqa: F401, F811

        dist.init_process_group("tutti")
        rank = dist.get_rank()

        def trained(device):
            torch.manual_seed(0)
            x = torch.arange(1000.0, device=device) * (rank + 1)
            parts = torch.empty(500, device=device)
            dist.reduce_scatter_tensor(parts, x)
            dist.all_gather_into_tensor(x, parts)
            dist.all_reduce(x, op=dist.ReduceOp.AVG)
            work = dist.all_reduce(parts, async_op=True)
            work.wait()
            model = nn.Sequential(nn.Linear(12, 500), nn.Linear(500, 4))
            if device == "cpu":
                return [x.tolist(), parts.tolist()]
            model = nn.parallel.DistributedDataParallel(model.to(device))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for k in range(5):
                torch.manual_seed(10 * k + rank)
                optimizer.zero_grad()
                model(torch.randn(8, 12, device=device)).square().mean().backward()
                optimizer.step()
            flat = torch.cat([p.detach().flatten() for p in model.parameters()])
            whole = torch.empty(2 * flat.numel(), device=device)
            dist.all_gather_into_tensor(whole, flat)
            assert torch.equal(*whole.chunk(2))
            return [x.tolist(), parts.tolist()]

        print(json.dumps(trained("cuda:0") == trained("cpu")))
        dist.destroy_process_group()

    assert [rank.last for rank in run(script, launcher="torchrun").ranks] == [True, True]
