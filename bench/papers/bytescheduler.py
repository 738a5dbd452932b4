#!/usr/bin/env python3
"""Figures of ByteScheduler: the gain of the order of transfers for a step, relative to the gain of
the best order.

bench/run bytescheduler [--piece FIGURE] measures, judges and keeps them
(bench/results/bytescheduler.jsonl). This file alone prints them:

    bench/papers/bytescheduler.py [FIGURE ...] [--jobs N] [--quick] [--keep] [--date YYYY-MM-DD]

TUTTI names another command than that of the release.

step     virtual time, 2, 4 and 8 workers, exchanging as long as computing: vgg(small), whose last
         layers have most of the parameters, and wordlm on 8192 byte pairs. Both methods have a grid
         of sizes and are taken at their best; ddp at its default is shown for comparison.
         The possible gain: the layers' times and when their gradients are ready come from a traced
         run of one worker, the cost of exchanging all from ddp with one bucket. From these
         schedule.py computes the shortest step of any schedule, and that of the order of readiness.
         Their ratio is the possible gain; the figure is the measured gain relative to it.
times    the same of vgg(small) on 4 workers where exchanging takes 1/4 to 4 times as long as
         computing: the gain over ddp. No bound.
inside   the same at equal times with cross_barrier=off: what priority inside a step alone gains.
servers  vgg(small), 4 workers that all serve, at equal times: the gain over parameter-server.
tuned    virtual time, mlp(hidden=128), 4 workers: a step after the tuner has ended, of one at the
         default; and the share of the whole run that the tuner took.
netlab   two hosts of a lab of tools/netlab (root) at 100 Mbit/s and at 1 Gbit/s, vgg(small): the batch
         is chosen so that computing takes as long as communicating, measured under ddp. Samples a
         second against our ddp and against PyTorch's DDP on Gloo in the same kind of lab, in turn. It
         needs a machine on which nothing else runs."""
import json, os, statistics, subprocess, sys, tempfile

sys.dont_write_bytecode = True
from gossip import Papers, main  # noqa: E402
from command import tensors  # noqa: E402
from net import HERE, Bench  # noqa: E402
import schedule  # noqa: E402

SECONDS = 0.05  # a step's computation
STEPS = 12
MODELS = ("vgg(small)", "wordlm")
DDP = ("ddp", *(f"ddp(bucket_mb={mb:g},first_bucket_mb={mb:g})" for mb in (0.0625, 0.125, 0.25, 0.5)))
SIZES = [(part, part * parts, fuse) for part in (0.0625, 0.125, 0.25, 0.5) for parts in (1, 2, 4)
         for fuse in (0.0625,)]
FORM = "bytescheduler(partition_mb=%g,credit_mb=%g,fuse_mb=%g%s)"


class ByteScheduler(Papers):
    FIGURES = ("step", "times", "inside", "servers", "tuned", "netlab")
    SAMPLES = 2000, 200

    def __init__(self, *args, **words):
        super().__init__(*args, **words)
        self.seeds = self.seeds[:1]
        self.layers_of = {}

    # ---- runs ----
    def words(self, model):
        data, batch = (self.text, 2) if model == "wordlm" else (self.data, 4)
        return ("--model", model, "--data", data, "--batch", batch, "--transport", "sim", "--step-time", SECONDS,
                "--threads", 1, "--seed", 1, "--final-eval", "off")

    def platform(self, n, mbits):
        path = os.path.join(self.folder, f"cluster-{n}-{mbits:.3f}.xml")
        with open(path, "w") as f:
            subprocess.run([self.tutti, "platform", f"cluster(n={n},rate={mbits:.3f}Mbps)"], check=True, stdout=f)
        return path

    def step_of(self, model, n, platform, method, *more):
        """Seconds of a step, of it communicating, the command."""
        steps = 4 if self.quick else STEPS
        summary, _, command = self.train(*self.words(model), "-n", n, "--platform", platform, "--steps", steps,
                                         "--report-every", steps, "--method", method, *more)
        return summary["wall_seconds"] / steps, summary["comm_seconds"] / steps, command

    def traced(self, model, *words):
        """Where a run of three steps was, and the events of its second."""
        out = tempfile.mkdtemp(dir=self.folder)
        subprocess.run([self.tutti, "train", *map(str, (*self.words(model), *words, "--steps", 3)), "--trace",
                        "--quiet", "--out", out], check=True)
        with open(out + "/trace.json") as f:
            return out, [e for e in json.load(f) if e["args"].get("step") == 1 and e["pid"] == 0]

    def layers(self, model):
        """By layer from the input: seconds of forward, when the gradient is ready, bytes; seconds of backward. Of the
        second step of one worker; layers without parameters count to the one behind them."""
        if model not in self.layers_of:
            out, events = self.traced(model, "-n", 1, "--method", "single")
            sizes = {name: len(body) for name, (_, _, body) in tensors(out + "/model.safetensors").items()}
            self.layers_of[model] = read_layers(events, sizes)
        return self.layers_of[model]

    def rate(self, model, n, times):
        """A platform on which exchanging the whole model at once takes `times` times SECONDS: its path; seconds of
        exchange by layer. A table travels as rows and by itself, the rest by its bytes."""
        one = "ddp(bucket_mb=1000,first_bucket_mb=1000)"
        sizes, tables = self.layers(model)[2], 1 if model == "wordlm" else 0
        mbits, dense = 8e-6 * 2 * (n - 1) / n * sum(sizes[tables:]) / (times * SECONDS), sum(sizes[tables:])
        for _ in range(3):
            path = self.platform(n, mbits)
            _, took, _ = self.step_of(model, n, path, one)
            if abs(took / (times * SECONDS) - 1) < 0.01:
                break
            mbits *= took / (times * SECONDS)
        events = self.traced(model, "-n", n, "--platform", path, "--method", one)[1]
        of = {e["name"]: 1e-6 * e["dur"] for e in events if e["cat"] == "exchange"}
        rows = [of["exchange 1"]] if tables else []
        return path, rows + [of["exchange 0"] * size / dense for size in sizes[tables:]]

    def allowed(self, model, exchange):
        """The least step and that of the order of readiness, layer by layer, in seconds of the model."""
        forward, ready, _, back = self.layers(model)
        ddp = schedule.fifo(forward, ready, exchange, back,
                            [[i] for i in sorted(range(len(exchange)), key=lambda i: ready[i])])
        return schedule.optimum(forward, ready, exchange, back), ddp

    def best(self, model, n, platform, methods, *more):
        found = self.all(self.step_of, [(model, n, platform, method, *more) for method in methods])
        return min((*run, method) for run, method in zip(found, methods))

    def forms(self, more=""):
        sizes = SIZES[4:6] if self.quick else SIZES
        return [FORM % (*size, more) for size in sizes]

    # ---- figures ----
    def compare(self, model, n, times, more=""):
        platform, exchange = self.rate(model, n, times)
        least, in_order = self.allowed(model, exchange)
        default = self.step_of(model, n, platform, "ddp")
        ddp = self.best(model, n, platform, DDP[:2] if self.quick else DDP)
        ours = self.best(model, n, platform, self.forms(more))
        return dict(gain=ddp[0] / ours[0], can=in_order / least, over_default=default[0] / ours[0],
                    of_least=least / ours[0], step_ms=1e3 * ours[0], ddp_ms=1e3 * ddp[0], least_ms=1e3 * least,
                    exchange_ms=1e3 * sum(exchange), form=ours[3], ddp_form=ddp[3]), ours[2]

    def step(self):
        for model in MODELS:
            for n in (2,) if self.quick else (2, 4, 8):
                facts, command = self.compare(model, n, 1)
                self.row(f"bytescheduler, {model}, {n} workers, exchanging as long as computing: "
                         "gain over ddp, of what the schedule allows", facts["gain"] / facts["can"], "", command,
                         **facts)

    def times(self):
        for times in (0.25, 0.5, 1, 2, 4):
            facts, command = self.compare("vgg(small)", 4, times)
            self.row(f"bytescheduler, vgg(small), 4 workers, exchanging {times:g} of computing: gain over ddp",
                     facts["gain"], "", command, **facts)

    def inside(self):
        facts, command = self.compare("vgg(small)", 4, 1, ",cross_barrier=off")
        self.row("bytescheduler(cross_barrier=off), vgg(small), 4 workers, exchanging as long as computing: "
                 "gain over ddp", facts["gain"], "", command, **facts)

    def servers(self):
        platform, _ = self.rate("vgg(small)", 4, 1)
        theirs = self.best("vgg(small)", 4, platform, [m.replace("ddp", "parameter-server") for m in DDP])
        ours = self.best("vgg(small)", 4, platform, self.forms(",over=servers"))
        self.row("bytescheduler(over=servers), vgg(small), 4 workers, exchanging as long as computing: "
                 "gain over parameter-server", theirs[0] / ours[0], "", ours[2], form=ours[3], theirs=theirs[3])

    def tuned(self):
        mbits = 8e-6 * 1.5 * 4 * (784 * 128 + 128 + 128 * 128 + 128 + 1290) / 0.01
        platform, steps, last = self.platform(4, mbits), 3000, 500
        def tail(method):
            summary, lines, command = self.train(
                "--model", "mlp(hidden=128)", "--data", self.data, "-n", 4, "--batch", 2, "--transport", "sim",
                "--platform", platform, "--step-time", 0.01, "--threads", 1, "--steps", steps, "--report-every", last,
                "--final-eval", "off", "--seed", 1, "--method", method)
            at = {line["step"]: line["wall_seconds"] for line in lines if "wall_seconds" in line}
            return (at[steps] - at[steps - last]) / last, summary, command
        sizes = "partition_mb=0.1,credit_mb=0.2,fuse_mb=0.01"
        (plain, _, _), (found, summary, command) = self.all(
            tail, [(f"bytescheduler({sizes})",), (f"bytescheduler({sizes},tune=both,tune_steps=50)",)])
        figures = summary["method_figures"]
        self.row("bytescheduler, mlp(hidden=128), 4 workers: a step after tuning, of one at the default", found / plain,
                 "", command, **{key: value for key, value in figures.items() if key.startswith("tune")})
        self.row("bytescheduler, mlp(hidden=128), 4 workers: share of the run that tuning took",
                 100 * figures.get("tune_seconds", 0) / summary["wall_seconds"], "%", command)

    # ---- real links ----
    def netlab(self):
        lab = Bench(self.tutti, self.record, self.quick, "")
        if not lab.possible():
            return
        python = subprocess.run([HERE + "/peers/python"], stdout=subprocess.PIPE, text=True).stdout.strip()
        for rate in ("100mbit",) if self.quick else ("100mbit", "1gbit"):
            self.netlab_at(lab, rate, python)

    def netlab_at(self, lab, rate, python):
        steps, rounds = (4, 1) if self.quick else (30, 5)
        model = "vgg(small)"

        def one(name, method, batch):
            ms, command = lab.there(self.folder, name, 2, rate, "--model", model, "--report-every", steps, "--steps",
                                    steps, "--batch", batch, "--method", method, "--lane", "on")
            with open(f"{self.folder}/{name}/summary.json") as f:
                s = json.load(f)
            return batch * 2e3 / ms, 1e3 * s["compute_seconds"] / steps, 1e3 * s["comm_seconds"] / steps, command

        def peer(batch):
            tuned = subprocess.run([HERE + "/peers/tuned", "1"], stdout=subprocess.PIPE, text=True,
                                   check=True).stdout.split()
            _, text = lab.lab(["env", "INIT=env://", "GLOO_SOCKET_IFNAME=eth0", "STARTED=0", *tuned, python, "-B",
                               os.path.join(HERE, "peers/train.py"), model, 2, steps, batch, 1, "ddp"], rate=rate,
                              direct=False, more=["--each", "--timeout", 300])
            return json.loads(text.splitlines()[-1])["samples_per_second"]

        batch = 8
        for turn in range(2):  # computing goes by the batch, but for a part that does not
            _, computing, talking, _ = one(f"look{rate}{turn}", "ddp", batch)
            batch = max(1, min(512, round(batch * talking / computing)))
        grid = self.forms()
        chosen = max(grid, key=lambda form: one(f"grid{rate}{grid.index(form)}", form, batch)[0])
        found = {"ddp": [], "ours": [], "torch": []}
        for k in range(rounds):  # in turn, each second round the other way round
            for who in list(found)[:: 1 if k % 2 == 0 else -1]:
                if who == "torch":
                    found[who].append(peer(batch) if python else None)
                else:
                    *got, command = one(f"{who}{rate}{k}", chosen if who == "ours" else "ddp", batch)
                    found[who].append(got[0])
                    command_of = command if who == "ours" else None
                    computing, talking = got[1:] if who == "ddp" else (computing, talking)
        title = f"bytescheduler, {model}, 2 hosts, {rate}, netlab, exchanging as long as computing: samples a second"
        facts = dict(command=command_of, form=chosen, batch=batch, computing_ms=computing, communicating_ms=talking,
                     cc=lab.cc, rounds=rounds)
        rates = statistics.median(found["ours"])
        for who, against in (("ddp", "ddp"), ("torch", "PyTorch DDP on Gloo")):
            if None in found[who]:
                self.record.absent(f"{title}, against {against}", "PyTorch is not here")
                continue
            ratio = statistics.median(a / b for a, b in zip(found["ours"], found[who]))
            self.record.row(f"{title}, against {against}", rates, "1/s", ratio=ratio, against=against, **facts)

    def prepare(self):
        self.text = self.tokens()

    def tokens(self):
        """Moby Dick in byte pairs, windows of 16."""
        book = os.path.join(os.environ["TUTTI_DATA"], "moby-dick/moby-dick.txt")
        pairs, ids = (os.path.join(self.folder, name) for name in ("book.bpe", "book.tok"))
        for words in (("bpe", book, "--vocab", "8192", "--out", pairs), ("tokens", book, "--bpe", pairs, "--out", ids)):
            subprocess.run([self.tutti, "data", *words], check=True, stdout=subprocess.DEVNULL)
        return f"tokens(file={ids},context=16)"


def read_layers(events, sizes):
    """See layers(). A gradient is ready within its layer's backward; forward and backward name layers by number."""
    spans = lambda kind: {int(e["name"].split()[1]): (1e-6 * e["ts"], 1e-6 * (e["ts"] + e["dur"])) for e in events
                          if e["cat"] == kind}
    forward, backward = spans("forward"), spans("backward")
    begin, end = min(b for b, _ in backward.values()), max(e for _, e in backward.values())
    ready = {e["name"][len("ready "):]: 1e-6 * e["ts"] for e in events if e["cat"] == "ready"}
    layers = sorted(forward)
    found = {u: [0.0, 0.0, 0] for u in layers}
    for name, at in ready.items():
        inside = [u for u in layers if backward[u][0] <= at <= backward[u][1]]
        layer = found[min(inside, key=lambda u: backward[u][1] - backward[u][0])]
        layer[1] = max(layer[1], at - begin)
        layer[2] += sizes[name]
    pending = 0.0
    for u in layers:
        found[u][0] = forward[u][1] - forward[u][0] + pending
        pending = found[u][0] if found[u][2] == 0 else 0.0
    kept = [found[u] for u in layers if found[u][2] > 0]
    kept[-1][0] += pending
    return [k[0] for k in kept], [k[1] for k in kept], [k[2] for k in kept], end - begin


if __name__ == "__main__":
    main(__doc__, "bytescheduler", ByteScheduler, ByteScheduler.FIGURES)
