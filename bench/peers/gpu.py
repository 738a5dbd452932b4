#!/usr/bin/env python3
"""Training on one card, Tutti beside PyTorch: rows of JSON on standard output, in some four minutes.

usage: gpu.py [--dry] [--seconds N] [--only PART,PART]

--dry      tiny networks on the cores: to see that all of it runs where there is no card
--seconds  after which nothing more is begun, 220
--only     of the parts bandwidth, local, nccl, large, small

What is measured, and the bound that was written down before it was:

bandwidth  copies of 256 MiB between card and host: pageable memory, PyTorch's pinned memory, and an engine's own
           memory, page-locked (cudaHostRegister). D and U are GiB/s of the last, down and up. Bound: the engine's
           memory >= 0.95 of pinned memory.
local      a step under prepare(..., "local-sgd(period=8)") that averages nothing, one process, against the plain
           script: pairs of blocks of 6 steps, in turn, after which the device is synchronized. Bounds: median of the
           ratios <= 1.02; bytes between card and host <= 0.01 of the model's.
large      gpt of 85.5 M parameters (342 MB), 2 processes that share the card, 8 x 128 tokens each, SGD with momentum.
small      the same of 4.9 M parameters.
           ddp, by tutti.torch.DistributedDataParallel and by prepare, against PyTorch's DDP on Gloo, ms a step.
           Lower bound of a step that waits for its gradients: the last copy down, the exchange and all copies up.
           Bounds: ddp <= 1.0 of PyTorch's DDP on Gloo; bytes a step: 1 model size down and 1 up, + 1 %.
           local-sgd(period=8) and diloco(period=8) against the same, over whole periods. Bounds: <= 0.5 of PyTorch's
           DDP on Gloo; bytes in a local step <= 0.01 model sizes, in a round 1 down and 1 up (diloco: and no more).
nccl       PyTorch's DDP on NCCL. It refuses two processes on one card ("Duplicate GPU detected"): then the row has
           its sentence and no figure. torchft's DiLoCo: a row that says whether it can be imported here.

Each kind trains in turn in the same two processes, twice (large) or three times (small); a row has the median of its
blocks, and all of them. Two processes on one card compute in turn: absolute times are those of no cluster, ratios are
of what surrounds the same computation. Bytes are those of the profiler's gpu_memcpy events."""

import argparse
import functools
import importlib.util
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../../python")]
import nets  # noqa: E402

PERIOD = 8
PARTS = ("bandwidth", "local", "nccl", "large", "small")
MODELS = {"large": (12, 768, 12, 128), "small": (6, 256, 4, 128), "tiny": (1, 16, 2, 8)}
PASSES = {"large": 2, "small": 3, "tiny": 1}
# kind -> steps before a block and in it; those with a period go through whole ones
KINDS = {
    "torch-gloo": (3, 8), "tutti-ddp": (3, 8), "prepare-ddp": (3, 8),
    f"local-sgd(period={PERIOD})": (PERIOD, 2 * PERIOD), f"diloco(period={PERIOD})": (PERIOD, 2 * PERIOD),
}


def say(part, name, **figures):
    print(json.dumps({"part": part, "name": name} | figures), flush=True)


def rounded(x):
    return float(f"{x:.4g}")


class Place:
    """The device that computes, and how to wait for it."""

    def __init__(self, dry):
        self.device = torch.device("cpu" if dry else "cuda:0")
        self.cuda = not dry

    def wait(self):
        if self.cuda:
            torch.cuda.synchronize()

    def describe(self):
        if not self.cuda:
            return {"card": "none (dry)"}
        p = torch.cuda.get_device_properties(0)
        return {"card": p.name, "memory_gib": rounded(p.total_memory / 2**30), "cuda": torch.version.cuda}


# ---- bytes between card and host ----

@functools.cache
def warm_profiler(profile, **how):
    """The first events that a process profiles may be lost."""
    with profile(**how):
        torch.ones(1000, device="cuda").cpu()


def copies(work):
    """Runs work() under the profiler. Returns {"HtoD": bytes, "DtoH": bytes, "pageable": bytes of both}."""
    from torch.profiler import ProfilerActivity, profile

    if not torch.cuda.is_available():
        work()
        return {"HtoD": 0, "DtoH": 0, "pageable": 0}
    warm_profiler(profile, activities=(ProfilerActivity.CPU, ProfilerActivity.CUDA))
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        work()
        torch.cuda.synchronize()
    found = {"HtoD": 0, "DtoH": 0, "pageable": 0}
    with tempfile.TemporaryDirectory() as folder:
        profiled.export_chrome_trace(folder + "/trace.json")
        with open(folder + "/trace.json") as f:
            events = json.load(f)["traceEvents"]
    for e in events:
        if e.get("cat") != "gpu_memcpy":
            continue
        for way in ("HtoD", "DtoH"):
            if way in e["name"]:
                found[way] += int(e["args"]["bytes"])
                found["pageable"] += int(e["args"]["bytes"]) if "Pageable" in e["name"] else 0
    return found


def model_bytes(model):
    return sum(p.numel() * p.element_size() for p in model.parameters())


# ---- one trainer of each kind ----

class Trainer:
    """A network and how it takes a step, under one kind. step() does not wait for the device."""

    def __init__(self, kind, size, place):
        layers, dim, heads, context = MODELS[size]
        torch.manual_seed(0)
        with torch.device(place.device):
            self.model = nets.GPT(layers, dim, heads, context)
        self.bytes, self.wrapper, self.prepared = model_bytes(self.model), None, None
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        draw = torch.Generator(device=place.device).manual_seed(int(os.environ.get("RANK", "0")))
        self.x = torch.randint(256, (8, context + 1), generator=draw, device=place.device)
        if kind == "plain":
            return
        import tutti.torch

        if kind == "torch-gloo" or kind == "torch-nccl":
            group = dist.new_group(backend="nccl") if kind == "torch-nccl" else None
            self.model = torch.nn.parallel.DistributedDataParallel(self.model, process_group=group)
        elif kind == "tutti-ddp":
            self.model = self.wrapper = tutti.torch.DistributedDataParallel(self.model)
        else:
            method = kind.removeprefix("prepare-")
            self.model, self.optimizer = tutti.torch.prepare(self.model, self.optimizer, method)
            self.prepared = self.optimizer

    def step(self):
        self.optimizer.zero_grad()
        logits = self.model(self.x[:, :-1])
        F.cross_entropy(logits.flatten(0, 1), self.x[:, 1:].flatten()).backward()
        self.optimizer.step()

    def steps(self, n):
        for _ in range(n):
            self.step()

    def close(self):
        if self.prepared is not None:
            self.prepared.finish()
        if self.wrapper is not None:
            self.wrapper.close()


def timed(place, trainer, n):
    """Seconds a step."""
    place.wait()
    begun = time.perf_counter()
    trainer.steps(n)
    place.wait()
    return (time.perf_counter() - begun) / n


# ---- parts in this process ----

def engine_memory(size):
    """An engine's memory for gradients of `size` bytes as a tensor, and what has to stay open meanwhile."""
    from tutti.engine import Engine, Param, World

    world = World()
    engine = Engine(world, [Param("w", (size // 4,))], method="ddp", optimizer="client", update=lambda factor: None)
    view = engine.gradient(0)
    return torch.frombuffer(view, dtype=torch.float32), (view, engine, world)


def locked(tensor):
    """Page-locks the whole pages of a tensor's memory. Returns the part of it that lies in them, and the address."""
    page = os.sysconf("SC_PAGESIZE")
    begin = -(-tensor.data_ptr() // page) * page
    size = (tensor.data_ptr() + 4 * tensor.numel() - begin) // page * page
    refused = int(torch.cuda.cudart().cudaHostRegister(begin, size, 0))
    if refused:
        raise RuntimeError(f"cudaHostRegister: error {refused}")
    first = (begin - tensor.data_ptr()) // 4
    return tensor[first:first + size // 4], begin


def rates(place, host, n):
    """GiB/s down and up, medians of n copies each."""
    card = torch.zeros(host.numel(), device=place.device)
    found = []
    for to, source in ((host, card), (card, host)):
        seconds = []
        for _ in range(n + 1):
            place.wait()
            begun = time.perf_counter()
            to.copy_(source, non_blocking=True)
            place.wait()
            seconds.append(time.perf_counter() - begun)
        found.append(rounded(4 * host.numel() / statistics.median(seconds[1:]) / 2**30))
    return dict(zip(("down", "up"), found, strict=True))


def bandwidth(place, dry):
    size, n = (1 << 20, 2) if dry else (256 << 20, 10)
    pageable = rates(place, torch.zeros(size // 4), n)
    say("bandwidth", "pageable", unit="GiB/s", **pageable)
    pinned = rates(place, torch.zeros(size // 4, pin_memory=not dry), n)
    say("bandwidth", "pinned", unit="GiB/s", **pinned)
    whole, kept = engine_memory(size)
    address = None
    memory = whole
    if not dry:
        memory, address = locked(whole)
    window = rates(place, memory, n)
    if address is not None:
        torch.cuda.cudart().cudaHostUnregister(address)
    ratio = min(window[way] / pinned[way] for way in window)
    say("bandwidth", "engine's memory, page-locked", unit="GiB/s", **window, ratio=rounded(ratio), bound=">= 0.95",
        against="pinned")
    del whole, memory
    for part in kept[1:]:
        part.close()
    for size in ("large", "small"):
        layers, dim, heads, context = MODELS[size]
        with torch.device("meta"):
            bytes_ = model_bytes(nets.GPT(layers, dim, heads, context))
        say("bandwidth", f"lower bound of copies of one step of ddp, {size}", unit="ms",
            down=rounded(1e3 * bytes_ / window["down"] / 2**30), up=rounded(1e3 * bytes_ / window["up"] / 2**30),
            model_mb=rounded(bytes_ / 1e6))


def local_step(place, dry):
    kind, size = f"local-sgd(period={PERIOD})", "tiny" if dry else "large"
    plain, ours = Trainer("plain", size, place), Trainer(kind, size, place)
    ratios, both = [], []
    for trainer in (plain, ours):
        trainer.steps(PERIOD)
    for k in range(3 if dry else 15):
        block = {}
        for trainer in (plain, ours) if k % 2 else (ours, plain):  # the first of a period, a warm one, then 6
            trainer.step()
            block[trainer] = timed(place, trainer, PERIOD - 2)
            trainer.step()
        ratios.append(block[ours] / block[plain])
        both.append((block[plain], block[ours]))
    ours.step()
    moved = copies(lambda: ours.steps(PERIOD - 3))
    say("local", f"a local step under {kind}, {size}", unit="ms",
        plain=rounded(1e3 * statistics.median(p for p, _ in both)),
        value=rounded(1e3 * statistics.median(o for _, o in both)), ratio=rounded(statistics.median(ratios)),
        bound="<= 1.02", ratios=[rounded(r) for r in ratios])
    say("local", f"bytes in a local step under {kind}, {size}", unit="model sizes",
        **per_model(moved, ours.bytes, PERIOD - 3), bound="<= 0.01")
    ours.steps(2)
    ours.close()


def per_model(moved, size, steps):
    return {name: rounded(b / size / steps) for name, b in moved.items()}


# ---- parts in two processes ----

def blocks_of(kind, size, place, last):
    """Seconds a step of one block of one kind; and of the last one its bytes."""
    before, n = KINDS[kind]
    if size == "tiny":
        before, n = (before, n) if "period" in kind else (1, 2)
    trainer = Trainer(kind, size, place)
    trainer.steps(before)
    dist.barrier()
    seconds, moved = timed(place, trainer, n), {}
    if last and "period" in kind:
        trainer.step()
        moved["local step"] = per_model(copies(lambda: trainer.steps(3)), trainer.bytes, 3)
        trainer.steps(1)
        moved["round"] = per_model(copies(lambda: trainer.steps(PERIOD - 4)), trainer.bytes, 1)
    elif last:
        moved["step"] = per_model(copies(lambda: trainer.steps(2)), trainer.bytes, 2)
    dist.barrier()
    trainer.close()
    return seconds, moved


BYTES = {"step": "<= 1.01 each way", "local step": "<= 0.01", "round": "<= 1.01 each way"}


def report(size, blocks, moved, failed):
    base = statistics.median(blocks["torch-gloo"]) if blocks["torch-gloo"] else None
    for kind, seconds in blocks.items():
        if kind in failed:
            say(size, kind, failed=failed[kind])
        if not seconds:
            say(size, kind, skipped="it has failed" if kind in failed else "no time was left")
            continue
        value = statistics.median(seconds)
        row = dict(unit="ms a step", value=rounded(1e3 * value), blocks=[rounded(1e3 * s) for s in seconds])
        if kind != "torch-gloo" and base:
            row |= dict(ratio=rounded(value / base), against="torch-gloo",
                        bound="<= 0.5" if "period" in kind else "<= 1.0")
        say(size, kind, **row)
        for what, sizes in moved.get(kind, {}).items():
            ours = {} if kind == "torch-gloo" else {"bound": BYTES[what]}
            say(size, f"{kind}: bytes in a {what}", unit="model sizes", **sizes, **ours)


def pair(size, place, until):
    """What each of the two processes does. All kinds in turn; rank 0 says whether there is time for one more."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    passes = PASSES[size]
    blocks, moved, failed = {kind: [] for kind in KINDS}, {}, {}
    try:
        for kind, last in [(kind, k == passes - 1) for k in range(passes) for kind in KINDS]:
            go = torch.tensor([float(time.time() < until and kind not in failed)])
            dist.broadcast(go, 0)
            if not go:
                continue
            try:
                seconds, found = blocks_of(kind, size, place, last)
            except Exception as e:  # most probably of both ranks; if not, the next collective is late and ends it
                traceback.print_exc()
                failed[kind] = f"{type(e).__name__}: {' '.join(str(e).split())[:400]}"
                continue
            blocks[kind].append(seconds)
            moved |= {kind: found} if found else {}
    finally:
        if dist.get_rank() == 0:
            report(size, blocks, moved, failed)
    dist.destroy_process_group()
    return 1 if failed else 0


def nccl(size, place):
    """PyTorch's DDP on NCCL, as far as it takes two processes on one card."""
    name = f"torch-nccl, {size}"
    dist.init_process_group("gloo")
    first = dist.get_rank() == 0
    if not place.cuda or not dist.is_nccl_available():
        if first:
            say("nccl", name, skipped="this PyTorch has no NCCL" if place.cuda else "no card (dry)")
        return
    try:
        trainer = Trainer("torch-nccl", size, place)
        trainer.steps(3)
        seconds = timed(place, trainer, 8)
        row = dict(unit="ms a step", value=rounded(1e3 * seconds))
    except Exception as e:  # NCCL says what it does not do
        row = dict(skipped=" ".join(str(e).split())[-300:])
    if first:
        say("nccl", name, **row)
    sys.stdout.flush()
    os._exit(0)  # a communicator that could not be made may wait for its peer


def two(part, arguments, timeout):
    """Runs this file as two ranks."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ranks = [subprocess.Popen(
        [sys.executable, "-B", os.path.abspath(__file__), "--part", part, *arguments],
        env=os.environ | {"RANK": str(r), "WORLD_SIZE": "2", "LOCAL_RANK": str(r), "LOCAL_WORLD_SIZE": "2",
                          "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "2"},
        stdout=None if r == 0 else subprocess.DEVNULL) for r in range(2)]
    end = time.monotonic() + timeout
    try:
        while any(p.poll() is None for p in ranks) and not any(p.poll() for p in ranks) and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(1 if any(p.poll() for p in ranks) else 0)  # the other may have something to say
        codes = [p.poll() for p in ranks]
        if any(codes):
            say(part, "the two processes", failed=f"exit codes {codes}; standard error says why")
        elif None in codes:
            say(part, "the two processes", failed=f"they have not ended within {timeout:.0f} s")
        return codes == [0, 0]
    finally:
        for p in ranks:
            p.kill()
            p.wait()


def torchft():
    if importlib.util.find_spec("torchft") is None:
        say("nccl", "torchft's DiLoCo", skipped="torchft cannot be imported here")
    else:
        say("nccl", "torchft's DiLoCo", skipped="torchft is here; it needs a lighthouse, which this does not start")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--seconds", type=float, default=220)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--part", help=argparse.SUPPRESS)  # of a rank
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    a = parser.parse_args()
    unknown = set(a.only.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return a


def alone(part, place, dry):
    """A part in this process, whose failure leaves the others their turn."""
    try:
        {"bandwidth": bandwidth, "local": local_step}[part](place, dry)
        return True
    except Exception as e:
        say(part, "failed", failed=f"{type(e).__name__}: {' '.join(str(e).split())[:400]}")
        return False


def main():
    a = arguments()
    place = Place(a.dry)
    if a.part == "nccl":
        return nccl("tiny" if a.dry else "small", place)
    if a.part:
        return pair("tiny" if a.dry else a.part, place, a.until)
    if not a.dry and not torch.cuda.is_available():
        sys.exit("gpu.py: this PyTorch sees no card; --dry tries all of it in small on the cores")
    until = time.time() + a.seconds
    import tutti

    say("machine", platform.node(), **place.describe(), torch=torch.__version__, python=platform.python_version(),
        cores=len(os.sched_getaffinity(0)), tutti=tutti.__version__)
    good, dry = True, ["--dry"] if a.dry else []
    for part in a.only.split(","):
        left = until - time.time()
        if left < 10:
            say(part, "all of it", skipped="no time was left")
        elif part in ("bandwidth", "local"):
            good = alone(part, place, a.dry) and good
        elif part == "nccl":
            torchft()
            good = two(part, dry, min(40, left)) and good
        else:
            # small comes last and gets what is left
            mine = time.time() + (0.7 if part == "large" else 1.0) * left
            good = two(part, [*dry, "--until", str(mine - 15)], max(60, mine - time.time() + 20)) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
