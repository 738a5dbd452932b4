"""What is promised of a card, on a card: bits, bytes over its bus, the backend, codecs. Marked `cuda`, so skipped where
there is none (tools/gpu-pack takes them to one). What can be tried on the cores is: the same scripts with "cpu"."""

import importlib.util
import json
import os
import subprocess
import sys

import processes
import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]

BENCH = processes.ROOT / "bench/peers"
CARD = [pytest.param("cuda", marks=pytest.mark.cuda), "cpu"]


def needs(module):
    """Skips where the package has no such module."""
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"no {module} in this package")


# ---- bits ----

# A parameter whose gradient is what the rank says it is, to the bit: that of (p * g).sum(). Its
# values differ so widely that each order of summation has its own bits.
BITS = """
import json
import sys

import torch
from torch import nn

import tutti.torch

device = torch.device(sys.argv[1])
torch.set_num_threads(1)


class Given(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.a = nn.Parameter(torch.zeros(50, 7, dtype=dtype))
        self.b = nn.Parameter(torch.zeros(3000, dtype=dtype))

    def forward(self, grads):
        return sum((p * g.to(p)).sum() for p, g in zip((self.a, self.b), grads))


def grads(rank, step):
    g = torch.Generator().manual_seed(1000 * step + rank)
    return [torch.randn(n, generator=g) * 10.0 ** torch.randint(-3, 4, n, generator=g) for n in ((50, 7), (3000,))]


def bits(tensors):
    return [t.detach().cpu().float().view(torch.int32).flatten().tolist() for t in tensors]


def tree(parts):
    if len(parts) == 1:
        return parts[0]
    half = 1 << (len(parts) - 1).bit_length() - 1
    return tree(parts[:half]) + tree(parts[half:])


def wrapped(where, dtype, **options):
    model = tutti.torch.DistributedDataParallel(Given(dtype).to(where), **options)
    rank, size, found = model.world.rank, model.world.size, []
    for step in range(3):
        model.zero_grad()
        model(grads(rank, step)).backward()
        found.append(bits([model.module.a.grad, model.module.b.grad]))
    model.close()
    return size, found


def prepared(where, dtype, method="ddp", **options):
    model = Given(dtype).to(where)
    model, optimizer = tutti.torch.prepare(model, torch.optim.SGD(model.parameters(), lr=1.0), method, **options)
    rank, found = optimizer.world.rank, []
    for step in range(3):
        optimizer.zero_grad()
        model(grads(rank, step)).backward()
        optimizer.step()
    with optimizer.evaluate():  # until then the card has the values with which the last pass began
        found = bits([model.a, model.b])
    optimizer.finish()
    return found
"""


@pytest.mark.parametrize("where", CARD)
def test_bits_of_ddp_are_those_of_the_one_order_of_summation(run, where):
    """Three ranks: with two there is only one order. The step of prepare is -1 times the gradient, which is exact."""
    result = run(BITS + """
wrong = []
for dtype in (torch.float32, torch.bfloat16):
    size, here = wrapped(device, dtype)
    if here != wrapped("cpu", dtype)[1]:
        wrong.append(f"DistributedDataParallel, {dtype}")
    if prepared(device, dtype) != prepared("cpu", dtype):
        wrong.append(f"prepare, {dtype}")
size, here = wrapped(device, torch.float32)
for step, found in enumerate(here):
    sums = [tree(list(parts)) for parts in zip(*(grads(r, step) for r in range(size)))]
    off = [(torch.tensor(f, dtype=torch.int32).view(torch.float32) * size - s.flatten()).abs().max() / s.abs().max()
           for f, s in zip(found, sums)]
    if max(off) > 1e-6:
        wrong.append(f"step {step} is off the mean by {max(off)}")
print(json.dumps(wrong))
""", n=3, args=[where], timeout=150)
    assert [r.last for r in result.ranks] == [[], [], []]


@pytest.mark.parametrize("where", CARD)
def test_codecs_give_on_a_card_what_they_give_on_the_host(run, where):
    """Gradients are the same to the bit, so what comes out differs by the codec's own rounding at most."""
    result = run(BITS + """
off = {}
for method, codec in (("powersgd(rank=2)", None), ("qsgd", None), ("signum", None), ("ddp", "ef(topk(ratio=0.05))"),
                      ("ddp", "ef(sign)")):
    host, card = (prepared(where, torch.float32, method, codec=codec) for where in ("cpu", device))
    for a, b in zip(host, card):
        a, b = (torch.tensor(t, dtype=torch.int32).view(torch.float32) for t in (a, b))
        name = codec or method
        off[name] = max(off.get(name, 0.0), float((a - b).abs().max() / a.abs().max()))
print(json.dumps(off))
""", args=[where], timeout=150)
    off = result.ranks[0].last
    assert len(off) == 5
    assert max(off.values()) <= 1e-5, off


# ---- bytes between card and host ----

def counted(run, text, n=2, timeout=150):
    """The last line of rank 0, of a script that has `copies` of bench/peers/gpu.py, `net`, `x`, `size` (bytes)."""
    return run(f"import sys\nsys.path.insert(0, {str(BENCH)!r})\n" + """
import json

import torch
from torch import nn

import tutti.torch
from gpu import copies, model_bytes

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).cuda()
x, size = torch.randn(16, 512, device="cuda"), model_bytes(net)


def steps(model, optimizer, n):
    for _ in range(n):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def of(moved, n):
    return {name: value / size / n for name, value in moved.items()}


""" + text, n=n, timeout=timeout).ranks[0].last


@pytest.mark.cuda
@pytest.mark.parametrize("wrapper", ["DistributedDataParallel", "prepare"])
def test_a_step_of_ddp_moves_the_gradient_down_and_up(run, wrapper):
    moved = counted(run, f"wrapper = {wrapper!r}\n" + """
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
if wrapper == "prepare":
    model, optimizer = tutti.torch.prepare(net, optimizer, "ddp")
else:
    model = tutti.torch.DistributedDataParallel(net)
steps(model, optimizer, 3)
print(json.dumps(of(copies(lambda: steps(model, optimizer, 4)), 4)))
(optimizer if wrapper == "prepare" else model).close()
""")
    assert 1 <= moved["DtoH"] <= 1.01 and 1 <= moved["HtoD"] <= 1.01, moved
    assert moved["pageable"] <= 0.01, f"copies that the host makes once more: {moved}"


@pytest.mark.cuda
@pytest.mark.parametrize("method", ["local-sgd(period=8)", "diloco(period=8)"])
def test_a_local_step_moves_nothing_and_a_round_the_model_once(run, method):
    local, round_ = counted(run, f"method = {method!r}\n" + """
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
model, optimizer = tutti.torch.prepare(net, optimizer, method)
steps(model, optimizer, 8 + 1)
local = of(copies(lambda: steps(model, optimizer, 5)), 5)
steps(model, optimizer, 1)
both = of(copies(lambda: steps(model, optimizer, 3)), 1)  # of which the first is the 8th of the period
print(json.dumps([local, both]))
optimizer.finish()
""")
    assert max(local.values()) <= 0.001, local
    assert 1 <= round_["DtoH"] <= 1.01 and 1 <= round_["HtoD"] <= 1.01, round_


@pytest.mark.cuda
def test_gradients_in_16_bits_travel_as_16_bits(run):
    moved = counted(run, """
net.bfloat16()
x, size = x.bfloat16(), model_bytes(net)
model = tutti.torch.DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
steps(model, optimizer, 3)
print(json.dumps(of(copies(lambda: steps(model, optimizer, 4)), 4)))
model.close()
""")
    assert 1 <= moved["DtoH"] <= 1.01 and 1 <= moved["HtoD"] <= 1.01, moved


# ---- the backend, and a process group of a host inside ----

BACKEND = """
import json
import sys

import torch
import torch.distributed as dist
from torch import nn

import tutti.torch.distributed

device = torch.device(sys.argv[1])
torch.set_num_threads(1)
dist.init_process_group("tutti")
rank, n, wrong = dist.get_rank(), dist.get_world_size(), []


def like(name, tensor, wanted):
    if tensor.device.type != device.type or not torch.equal(tensor.cpu(), wanted):
        wrong.append(f"{name}: {tensor.flatten()[:8].tolist()} on {tensor.device}")


def drawn(r, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(r))


def mine():
    return every[rank].to(device, copy=True)


every = [drawn(r, 1001) for r in range(n)]
mean = (every[0] + every[1]) / 2
for again in range(3):  # results are used at once, on the stream that made the arguments
    x = mine()
    dist.all_reduce(x)
    like("all_reduce", x + 1, every[0] + every[1] + 1)
    x = mine()
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    like("all_reduce, mean", x, mean)
    x = mine()
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    like("all_reduce, async", x, every[0] + every[1])
    out = torch.empty(n, 1001, device=device)
    dist.all_gather_into_tensor(out, mine())
    like("all_gather_into_tensor", out, torch.stack(every))
    parts = [torch.empty(1001, device=device) for _ in range(n)]
    dist.all_gather(parts, mine())
    like("all_gather", torch.stack(parts), torch.stack(every))
    whole = [drawn(10 + r, n * 500) for r in range(n)]
    out = torch.empty(500, device=device)
    dist.reduce_scatter_tensor(out, whole[rank].to(device))
    like("reduce_scatter_tensor", out, (whole[0] + whole[1])[500 * rank:500 * rank + 500])
    x = mine()
    dist.broadcast(x, 1)
    like("broadcast", x, every[1])


def trained(where):
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 2)).to(where))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(rank)
    for step in range(5):
        optimizer.zero_grad()
        model(torch.randn(8, 20, generator=g).to(where)).square().mean().backward()
        optimizer.step()
    return torch.cat([p.detach().cpu().flatten() for p in model.parameters()])


there = trained(device)
if (there - trained("cpu")).abs().max() > 1e-5:
    wrong.append("DDP trains another model than on the host")
all_of = [torch.empty_like(there) for _ in range(n)]
dist.all_gather(all_of, there)
if not torch.equal(all_of[0], all_of[1]):
    wrong.append("DDP: ranks have different models")
dist.destroy_process_group()
print(json.dumps(wrong))
"""


@pytest.mark.parametrize("where", CARD)
def test_backend_takes_tensors_of_a_card(run, where):
    if where == "cuda":
        needs("tutti.torch._streams")
    ranks = run(BACKEND, launcher="torchrun", args=[where], timeout=150).ranks
    assert [r.last for r in ranks] == [[], []]


@pytest.mark.parametrize("where", CARD)
def test_local_group_has_the_bits_of_ddp(run, where):
    """A card has one rank of NCCL: two hosts of one rank each, whose group inside is NCCL's, or Gloo's on the cores."""
    needs("tutti.torch._local")
    result = run(BITS + """
import torch.distributed as dist

dist.init_process_group("gloo")
inside = "nccl" if device.type == "cuda" else "gloo"
groups = [dist.new_group([r], backend=inside) for r in range(dist.get_world_size())]
flat = wrapped(device, torch.float32)
hosts = wrapped(device, torch.float32, local_group=groups[dist.get_rank()])
print(json.dumps(flat == hosts))
import gloo
gloo.leave()
""", launcher="torchrun", args=[where], timeout=150)
    assert [r.last for r in result.ranks] == [True, True]


# ---- the bench ----

@pytest.mark.long
def test_bench_of_a_card_runs_in_small_without_one():
    done = subprocess.run(
        [sys.executable, "-B", BENCH / "gpu.py", "--dry", "--only", "bandwidth,local,nccl,large"], timeout=200,
        capture_output=True, text=True, env=processes.environment({"CUDA_VISIBLE_DEVICES": ""}))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert not [r for r in rows if "failed" in r]
    assert [r["name"] for r in rows if r["part"] == "tiny" and "value" in r] == [
        "torch-gloo", "tutti-ddp", "prepare-ddp", "local-sgd(period=8)", "diloco(period=8)"]
    assert {r["part"] for r in rows} == {"machine", "bandwidth", "local", "nccl", "tiny"}
    assert [r["bound"] for r in rows if r["part"] == "local"] == ["<= 1.02", "<= 0.01"]
    assert {r["name"]: r["skipped"] for r in rows if r["part"] == "nccl"}["torch-nccl, tiny"] == "no card (dry)"


def test_bench_of_a_card_says_what_it_cannot_do():
    without = processes.environment({"CUDA_VISIBLE_DEVICES": ""})
    for words, said in (
        ([], "gpu.py: this PyTorch sees no card; --dry tries all of it in small on the cores\n"),
        (["--only", "local,lagre"],
         "there is no part lagre; there are bandwidth, local, nccl, large, small\n"),
    ):
        done = subprocess.run([sys.executable, "-B", BENCH / "gpu.py", *words], capture_output=True, text=True,
                              timeout=60, env=without)
        assert done.returncode != 0 and done.stdout == "" and done.stderr.endswith(said), done.stderr


# ---- the folder for a machine with a card ----

@pytest.mark.long
def test_pack_runs_where_there_is_nothing_else(tmp_path):
    """With an environment of its own: no library, no path and no pytest but those of the folder."""
    pack = tmp_path / "pack"
    tool = [processes.ROOT / "tools/gpu-pack", processes.build(), pack]
    if not tool[0].exists():
        pytest.skip("this is such a folder")
    done = subprocess.run(tool, capture_output=True, text=True, timeout=120,
                          env=os.environ | {"TUTTI_PYTHON": sys.executable})
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-2]) < 40, done.stdout
    assert subprocess.run(tool, capture_output=True, text=True).stderr == \
        f"gpu-pack: {pack} is there already; name a new folder, or remove it\n"

    def ran(*words, code=0):
        env = {"PATH": "/usr/bin:/bin", "HOME": os.fspath(tmp_path), "TUTTI_PYTHON": sys.executable,
               "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run([pack / "run.sh", *words], capture_output=True, text=True, timeout=200, cwd=tmp_path,
                              env=env)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    done = subprocess.run([sys.executable, "-S", "-B", "-m", "pytest", "--version"], capture_output=True, text=True,
                          cwd=tmp_path, env={"PYTHONPATH": os.fspath(pack / "site")})
    assert done.returncode == 0, f"a package that pytest needs is missing: {done.stderr}"
    assert json.loads(ran("doctor", "--json"))["works"]
    said = ran("tests", "-k", "staging_memory or test_backend_takes")
    assert f"library: {pack}/build/lib/libtutti.so" in said and "no CUDA device here" in said
    assert "1 passed, 2 skipped" in said
    rows = ran("bench", "--dry", "--only", "nccl")
    assert json.loads(rows.splitlines()[-1])["skipped"] == "no card (dry)"
    assert ran("nonsense", code=2) == ""
