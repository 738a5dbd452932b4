"""bench/run pytorch: a training in PyTorch with tutti.torch.DistributedDataParallel, and the same script with
the same seeds without it. bench/peers/pytorch.py is the script; the wrapper is all that differs. SGD and AdamW
are PyTorch's on both sides, and so are all kernels.

    pytorch/MODEL          2 workers of one thread on this machine, started by torchrun, against PyTorch's DDP
                           on Gloo; for comparison, without bounds of their own: DDP with gradient_as_bucket_view;
                           the script without any exchange, which no method that exchanges can beat; and the same
                           with ranks that wait for each other in each step and exchange nothing
    pytorch/alone/MODEL    1 worker against the script without any wrapper
    pytorch/1gbit/MODEL    2 hosts of a lab (tools/netlab, root) against DDP on Gloo
    pytorch/local/MODEL    2 hosts of 2 workers there, with local_group= (Gloo inside a host, Tutti between) against
                           the same wrapper without it; for comparison PyTorch's DDP on Gloo
    pytorch/100mbit/MODEL  2 hosts of 1, powersgd(rank=4) against DDP with its PowerSGD hook of the same rank: seconds
                           until rank 0's loss on samples held out of training is no more than LOSSES;
                           evaluations are not counted in the time
    pytorch/diloco/MODEL   2 hosts of 1 at 100 Mbit/s, prepare(..., "diloco(period=30)") against torchft's DiLoCo with
                           the same settings, where it is installed for the same Python. And with codecs, against the
                           same and against torchft with its fragment_sync_delay: there samples a second only, since
                           the models are others. A step of gpt takes so long that 1.1 is the most there

Both trainings exist at the same time and compute in turn (bench/peers/turns), a block of steps each, and in each
second round the other one is first. A figure is the median of the rounds' ratios; of pytorch/100mbit, of the seeds'.
On one machine all are started STARTS times: the addresses of activations differ with each process, and so the same
script differs from itself by some percent as long as the process lives. Where nothing is compressed both must end
with the same bits, or there is no figure."""
import json
import os
import statistics
import subprocess
import sys

from net import HERE, Bench

# model: its name in rows, samples a step of a worker, steps of a block
MODELS = {"mlp": ("mlp", 64, 40), "cnn": ("cnn", 64, 20), "gpt": ("gpt(4,256,4,128)", 8, 4)}
ROUNDS, STARTS = 21, 6
LOSSES = {"mlp": (0.2, (0, 1, 2)), "gpt": (2.5, (0,))}
LOOK = 10  # steps
LOCAL = ("mlp", "gpt")  # of hosts of two
DDP = "PyTorch DDP on Gloo"
PERIOD, DELAY, ROUNDS_OF_PERIODS = 30, 29, 9  # of diloco. DELAY: the longest that torchft takes
PERIODS = {"mlp": (4, ("int8", "e3m0")), "gpt": (1, ())}  # in a block, and codecs


class PyTorch(Bench):
    def turns(self, model, programs, *words, rate=None):
        """Rounds as {program: [line, ...]}, {program: bits}, the version of torch and the command."""
        words = [os.path.join(HERE, "peers/turns"), "--python", self.python, "--library", self.library,
                 "--model", model, "--programs", " ".join(programs), *words]
        if rate:
            command, text = self.lab([*words, "--hosts", "--tutti", self.tutti], rate=rate, more=["--timeout", 900])
        else:
            done = subprocess.run([*map(str, words)], stdout=subprocess.PIPE, text=True)
            if done.returncode != 0:
                sys.exit(f"bench/run: {' '.join(map(str, words))} ended with exit code {done.returncode}")
            command, text = " ".join(map(str, words)), done.stdout
        rounds, bits = {p: [] for p in programs}, {}
        for line in map(json.loads, text.splitlines()):
            if "round" in line:
                rounds[line["program"]].append(line)
            else:
                bits[line["program"]], torch = line["bits"], line["torch"]
        for path, name in ((self.python, "python"), (self.library, "libtutti.so"), (self.tutti, "tutti"),
                           (os.path.dirname(HERE) + "/", "")):
            command = command.replace(path, name)
        return rounds, bits, torch, command

    def rates(self, title, model, peer, against, ranks=2, rate=None, beside=None, own="tutti", periods=0,
              same=True):
        """Samples a second of program `own`, and the ratio to `peer`'s in the same round. Hosts: always two. periods:
        of PERIOD steps in a block; 0: a block has the steps of MODELS. same: both end with the same bits."""
        _, batch, steps = MODELS[model]
        starts = 1 if rate or self.quick else STARTS
        block = PERIOD * periods or (2 if self.quick else steps)
        turns = ROUNDS_OF_PERIODS if periods else -(-ROUNDS // starts)
        many = ["--ranks", ranks, "--steps", block, "--rounds", 2 if self.quick else turns,
                *(["--warm", PERIOD] if periods else []), *(["--per-host", ranks // 2] if rate else [])]
        rounds = {}
        for _ in range(starts):
            some, bits, torch, command = self.turns(model, [peer, own, *(beside or ())], *many, rate=rate)
            if same and bits[own] != bits[peer]:
                sys.exit(f"bench/run: {title}the model is another one than that of {against}, so there is no figure")
            for p, lines in some.items():
                rounds.setdefault(p, []).extend(lines)
        seconds = {p: [line["seconds"] for line in lines] for p, lines in rounds.items()}
        mine = seconds[own]
        ours = statistics.median(batch * ranks * line["steps"] / line["seconds"] for line in rounds[own])
        for other, words in ((peer, against), *(beside or {}).items()):
            ratios = [theirs / our for theirs, our in zip(seconds[other], mine)]
            self.record.row(title + "samples a second" + ("" if other == peer else f", beside {other}"), ours,
                            "samples/s", statistics.median(ratios), words, command=command, torch=torch,
                            min=min(ratios), max=max(ratios), rounds=len(ratios), starts=starts,
                            **(dict(cc=self.cc) if rate else {}))

    def diloco(self, model):
        ours, theirs = f"prepare-diloco(period={PERIOD})", f"torchft-{PERIOD}"
        name, title = MODELS[model][0], "PyTorch script, %s, 2 hosts, 100mbit, diloco%s: "
        periods, codecs = PERIODS[model]
        words = dict(rate="100mbit", periods=1 if self.quick else periods)
        if subprocess.run([self.python, "-c", "import torchft"], capture_output=True).returncode != 0:
            return self.record.absent(title % (name, ""), "torchft is not here")
        self.rates(title % (name, ""), model, theirs, "torchft's DiLoCo", own=ours, **words)
        for codec in codecs:
            self.rates(title % (name, " through " + codec), model, theirs, "torchft's DiLoCo", own=f"{ours}@{codec}",
                       beside={f"{theirs}-{DELAY}": f"torchft's DiLoCo that goes on for {DELAY} steps"}, same=False,
                       **words)

    def quality(self, model, rate):
        name, (target, seeds) = MODELS[model][0], LOSSES[model]
        title = f"PyTorch script, {name} to a loss of {target:g}, 2 hosts, {rate}: powersgd of rank 4"
        hook, ours = "torch-powersgd", "tutti-powersgd(rank=4)"
        took = {hook: [], ours: []}
        for seed in seeds[:1] if self.quick else seeds:
            # a quick round shows that it works: its target is met by the first look
            aim = ["--target", 100 if self.quick else target, "--steps", LOOK, "--most", 2000, "--seed", seed]
            rounds, _, torch, command = self.turns(model, list(took), *aim, rate=rate)
            for p, lines in rounds.items():
                if not self.quick and lines[-1]["loss"] > target:
                    return self.record.absent(title, f"{p} is not there after 2000 steps")
                took[p].append((sum(line["seconds"] for line in lines), LOOK * len(lines)))
        ratios = [theirs[0] / own[0] for theirs, own in zip(took[hook], took[ours])]
        self.record.row(title, statistics.median(s for s, _ in took[ours]), "s", statistics.median(ratios),
                        "PyTorch DDP's PowerSGD hook", command=command, torch=torch, ratios=ratios,
                        steps=[k for _, k in took[ours]], peer_steps=[k for _, k in took[hook]], seeds=len(ratios),
                        cc=self.cc)

    def run(self):
        done = subprocess.run([HERE + "/peers/python"], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            return self.record.absent("PyTorch scripts", "PyTorch is not here")
        self.python = done.stdout.strip()
        self.library = os.path.join(os.path.dirname(os.path.dirname(self.tutti)), "lib/libtutti.so")
        beside = {"torch-view": "the same, gradient_as_bucket_view", "bare": "2 scripts that exchange nothing",
                  "meet": "2 scripts that wait for each other and exchange nothing"}
        for model, (name, _, _) in MODELS.items():
            if self.chosen(f"pytorch/{model}"):
                self.rates(f"PyTorch script, {name}, 2 workers x 1 thread: ", model, "torch", DDP, beside=beside)
        for model, (name, _, _) in MODELS.items():
            if self.chosen(f"pytorch/alone/{model}"):
                self.rates(f"PyTorch script, {name}, 1 worker x 1 thread: ", model, "bare", "PyTorch without a wrapper",
                           ranks=1)
        for model, (name, _, _) in MODELS.items():
            if self.chosen(f"pytorch/1gbit/{model}") and self.possible():
                self.rates(f"PyTorch script, {name}, 2 hosts, 1gbit: ", model, "torch", DDP, rate="1gbit")
        for model in LOCAL:
            if self.chosen(f"pytorch/local/{model}") and self.possible():
                self.rates(f"PyTorch script, {MODELS[model][0]}, 2 hosts x 2 workers, 1gbit, local_group: ", model,
                           "tutti", "tutti.torch without local_group", ranks=4, rate="1gbit", own="tutti-local",
                           beside={"torch": DDP})
        for model in PERIODS:
            if self.chosen(f"pytorch/diloco/{model}") and self.possible():
                self.diloco(model)
        for model in LOSSES:
            if self.chosen(f"pytorch/100mbit/{model}") and self.possible():
                self.quality(model, "100mbit")
