#!/usr/bin/env python3
"""Figures of Pipe-SGD: the time of a step that overlaps its exchange, and the cost of being one step
late.

bench/run pipe [--piece FIGURE] measures, judges and keeps them (bench/results/pipe.jsonl). This file
alone prints them:

    bench/papers/pipe.py [FIGURE ...] [--jobs N] [--quick] [--keep] [--date YYYY-MM-DD]

TUTTI names another command than that of the release.

step     virtual time, 4 workers: communication is 1/4 to 4 times as long as computation. A step of
         ddp and of pipe-sgd with width 2 and 3, in multiples of the longer of the two, both as
         ddp's run has them.
codec    the same where communication is 4 times as long, through trunc16, int8(bucket=0) and
         qsgd(bits=4): a step of pipe-sgd, in multiples of that of ddp without a codec. What encoding
         takes is in it (the simulator charges kernels for it).
loss     virtual time, 4 workers, communication as long as computation: time to the loss that ddp has
         at the end of its steps, of pipe-sgd with width 2 and 3. All have one grid of seven learning
         rates, two seeds, the median. The time is that of the shortest whole run that reaches the
         loss. At most 2 is possible.
netlab   two hosts of a lab of tools/netlab (root) at 100 Mbit/s: the batch is chosen so that computing
         takes as long as communicating, measured under ddp; the same figure as `step`. It needs a
         machine on which nothing else runs."""
import json, os, statistics, subprocess, sys

sys.dont_write_bytecode = True
from gossip import Papers, last, main  # noqa: E402
from net import Bench  # noqa: E402

N, STEPS, COMPUTE, GRAIN, TIMES = 4, 200, 0.01, 8, 3
WIDE, SMALL = "mlp(hidden=128)", "mlp(hidden=16)"
PARAMS = {WIDE: 784 * 128 + 128 + 128 * 128 + 128 + 128 * 10 + 10, SMALL: 784 * 16 + 16 + 16 * 16 + 16 + 16 * 10 + 10}
RATES = [0.0015625 * 2 ** k for k in range(7)]
PIPES = ("pipe-sgd(warmup=0)", "pipe-sgd(width=3,warmup=0)")
FORMS = ("pipe-sgd(warmup=8)", "pipe-sgd(width=3,warmup=8)")
CODECS = ("trunc16", "int8(bucket=0)", "qsgd(bits=4)")


class Pipe(Papers):
    FIGURES = ("step", "codec", "loss", "netlab")

    def __init__(self, *args, **words):
        super().__init__(*args, **words)
        self.seeds = self.seeds[:2]

    def platform(self, model, times):
        """Links with which an all-reduce of the model takes `times` times COMPUTE, apart from
        latencies."""
        mbits = 8e-6 * 2 * (N - 1) / N * 4 * PARAMS[model] / (times * COMPUTE)
        path = os.path.join(self.folder, f"cluster-{mbits:.0f}.xml")
        with open(path, "w") as f:
            subprocess.run([self.tutti, "platform", f"cluster(n={N},rate={mbits:.3f}Mbps)"], check=True, stdout=f)
        return path

    def step_of(self, times, method, codec="none"):
        """Seconds of a step, of it computing and communicating; the command."""
        steps = 20 if self.quick else 200
        summary, _, command = self.train("--model", WIDE, "--data", self.data, "-n", N, "--batch", 16, "--transport",
                                         "sim", "--platform", self.platform(WIDE, times), "--step-time", COMPUTE,
                                         "--threads", 1, "--steps", steps, "--report-every", steps, "--final-eval",
                                         "off", "--seed", 1, "--codec", codec, "--method", method)
        return *(summary[key] / steps for key in ("wall_seconds", "compute_seconds", "comm_seconds")), command

    def step(self):
        for times in (0.25, 0.5, 1, 2, 4):
            ddp, computing, talking, command = self.step_of(times, "ddp")
            longer = max(computing, talking)
            facts = dict(computing_ms=1e3 * computing, communicating_ms=1e3 * talking)
            name = f"4 workers, communication {times:g} of computation: a step, of the longer of both"
            self.row(f"ddp, {name}", ddp / longer, "", command, **facts)
            for method in PIPES:
                pipe, _, _, command = self.step_of(times, method)
                self.row(f"{method}, {name}", pipe / longer, "", command, ddp_over_pipe=ddp / pipe, **facts)

    def codec(self):
        ddp = self.step_of(4, "ddp")[0]
        for codec in ("none", *CODECS):
            for method in ("ddp", PIPES[0]):
                got, computing, talking, command = self.step_of(4, method, codec)
                self.row(f"{method}, codec {codec}, 4 workers, communication 4 of computation: a step, of ddp's",
                         got / ddp, "", command, computing_ms=1e3 * computing, communicating_ms=1e3 * talking)

    def words(self, method, rate, seed, steps):
        return ("--model", SMALL, "--data", self.data, "-n", N, "--batch", 16, "--transport", "sim", "--platform",
                self.links, "--step-time", COMPUTE, "--threads", 1, "--steps", steps, "--seed", seed, "--method",
                method, "--optimizer", f"sgd(lr={rate:g},momentum=0.9)", "--report-every", steps)

    def best(self, method):
        return self.tuned(f"{method}, loss", RATES,
                          lambda rate, seed: self.losses(self.words(method, rate, seed, STEPS), STEPS))

    def until(self, method, rate, seed, goal):
        return self.least_steps(lambda steps: self.after(method, rate, seed, steps), goal, 0, TIMES * STEPS, GRAIN)

    def loss(self):
        self.links = self.platform(SMALL, 1)
        base = self.best("ddp")
        if base is None:
            return
        for method in FORMS:
            best = self.best(method)
            if best is None:
                continue
            got = self.all(self.until, [(method, best[0], seed, last(base[1][seed][0])) for seed in self.seeds])
            times = [base[1][seed][1] / run[1] if run else 0.0 for seed, run in zip(self.seeds, got)]
            self.row(f"{method}, 4 workers, communication 1 of computation: times sooner at ddp's loss",
                     statistics.median(times), "", next((run[2] for run in got if run), best[1][self.seeds[-1]][2]),
                     times=times, steps=[run and run[0] for run in got], rate=best[0], base_rate=base[0], means=best[2])

    def netlab(self):
        lab = Bench(self.tutti, self.record, self.quick, "")
        if not lab.possible():
            return
        steps, rate = (6, "100mbit") if self.quick else (40, "100mbit")
        common = ("--model", "mlp", "--report-every", steps, "--steps", steps)

        def one(name, method, batch):
            step_ms, command = lab.there(self.folder, name, 2, rate, *common, "--batch", batch, "--method", method)
            with open(f"{self.folder}/{name}/summary.json") as f:
                s = json.load(f)
            return step_ms, 1e3 * s["compute_seconds"] / steps, 1e3 * s["comm_seconds"] / steps, command

        batch = 64
        for turn in range(2):  # computing goes by the batch, but for a part that does not
            _, computing, talking, _ = one(f"look{turn}", "ddp", batch)
            batch = max(64, min(8192, round(batch * talking / computing / 64) * 64))
        ddp, computing, talking, command = one("ddp", "ddp", batch)
        facts = dict(batch=batch, computing_ms=computing, communicating_ms=talking, cc=lab.cc)
        name = f"2 hosts, {rate}, netlab, communication as long as computation: a step, of the longer of both"
        self.record.row(f"ddp, {name}", ddp / max(computing, talking), "", command=command, **facts)
        pipe, _, _, command = one("pipe", PIPES[0], batch)
        self.record.row(f"{PIPES[0]}, {name}", pipe / max(computing, talking), "", command=command,
                        ddp_over_pipe=ddp / pipe, **facts)


if __name__ == "__main__":
    main(__doc__, "pipe", Pipe, Pipe.FIGURES)
