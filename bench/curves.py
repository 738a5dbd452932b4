"""bench/run curves: what a model has learned after so many steps, beside PyTorch with the same network, batch, optimiser, steps and validation samples, from several seeds each.

A row curve/MODEL/WHO/SEED keeps the whole curve, [[step, loss], ...]; the bounds are on the means over the seeds. Seeds draw the initial values and the order of the samples; the
generators are not PyTorch's, so only distributions can agree: the means are to be no further apart than PyTorch's seeds are. A run is a minute or so of one core."""
import json, os, statistics, subprocess, sys, tempfile
from dataclasses import dataclass
from typing import Optional

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@dataclass
class Case:
    model: str
    data: str
    optimizer: str
    steps: int
    every: int               # steps between two points
    batch: int               # of all workers
    workers: tuple
    goal: Optional[tuple]    # what the mean is to reach, and how far above it may stay


CASES = [Case("gpt(4,256,4,128)", "moby-dick(stride=1)", "adamw(lr=0.0003)", 300, 50, 16, (1, 4), (2.290, 0.01))]


def ours(tutti, case, n, seed):
    with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
        # A target that nobody reaches: only with one is the last step evaluated on the validation set alone, without going over the training set once more.
        command = [tutti, "train", "--model", case.model, "--data", case.data, "-n", n, "--threads", 1, "--batch", case.batch // n, "--optimizer", case.optimizer, "--steps", case.steps,
                   "--eval-every", case.every, "--target", "loss=0.001", "--final-eval", "off", "--seed", seed, "--quiet", "--out", folder + "/run"]
        done = subprocess.run([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"bench/run: training {case.model} failed: {done.stderr.strip()}")
        with open(folder + "/run/metrics.jsonl") as f:
            lines = [json.loads(line) for line in f]
        command[0], command[-1] = "tutti", "DIR"
        return " ".join(str(word) for word in command), [[line["step"], line["test_loss"]] for line in lines if "test_loss" in line]


def pytorch(case, seed):
    """None: PyTorch is not here, which has been said."""
    command = ["bench/peers/train", case.model, "1", str(case.steps), str(case.batch), "1", "alone", str(seed), case.optimizer, str(case.every)]
    done = subprocess.run([os.path.join(ROOT, command[0])] + command[1:], stdout=subprocess.PIPE, text=True, env=dict(os.environ, TUTTI_PEER_TIMEOUT="1200"))
    if done.returncode == 77:
        return None
    if done.returncode != 0:
        sys.exit(f"bench/run: `{' '.join(command)}` failed with exit code {done.returncode}")
    return " ".join(command), json.loads(done.stdout)["curve"]


def curves(tutti, record, quick, peers):
    for case in CASES:
        if quick:
            case.steps = case.every = 2
        seeds = range(1 if quick else 3)
        found = {}
        for seed in seeds:
            runs = {f"{n} x 1 thread, ddp": ours(tutti, case, n, seed) for n in case.workers} | ({"PyTorch": pytorch(case, seed)} if peers else {})
            for who, run in runs.items():
                if run is not None:
                    record.row(f"curve/{case.model}/{who}/{seed}", run[1][-1][1], "nats", command=run[0], curve=run[1])
                    found.setdefault(who, []).append(run[1][-1][1])
        theirs = found.pop("PyTorch", None)
        for who, losses in found.items():
            mean, title = statistics.mean(losses), f"{case.model}, {who}: validation loss after {case.steps} steps"
            spread = dict(min=min(losses), max=max(losses), seeds=len(seeds))
            if case.goal is not None:
                record.row(title, mean, "nats", bound=sum(case.goal), better="less", of="value", **spread)
            if theirs is None or len(theirs) < 2:
                record.absent(title + ", off from PyTorch's", "PyTorch is not here" if theirs is None else "one seed has no spread")
            else:
                off = abs(mean - statistics.mean(theirs))
                record.row(title + ", off from PyTorch's", off, "nats", off / (max(theirs) - min(theirs)), "the range of PyTorch's seeds", 1, "less", of="ratio", **spread)
