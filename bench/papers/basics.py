#!/usr/bin/env python3
"""Figures of the methods on which others build: ddp, stragglar, local-sgd.

bench/run basics [--piece FIGURE] measures, judges and keeps them (bench/results/basics.jsonl). This
file alone prints them:

    bench/papers/basics.py [FIGURE ...] [--jobs N] [--quick] [--keep] [--date YYYY-MM-DD]

TUTTI names another command than that of the release. All is in virtual time: other work on the
machine changes nothing.

overlap  ddp, vgg(small), 4 workers, where exchanging takes as long as computing and half as long: the
         time of a step with the exchange after the backward pass (--lane off), relative to one with
         overlap. Backward is two thirds of computing, so nothing can make it more than 1.5 and 1.5 of
         the two.
late     stragglar, 8, 16 and 32 workers on links of 10 Gbit/s and 3 us, 16 MB of gradient,
         the last worker late by more than the others need among themselves: what is left to wait once
         it has come, by a ring and by what ddp chooses itself, of this. Latency apart, the sheet's cost
         model has 1.36, 1.56 and 1.71 for the ring.
rounds   local-sgd with periods of 4, 16 and 64, 8 workers on links where exchanging takes as long as
         computing: time to the test loss that ddp has after STEPS steps, and the bytes sent until then.
         Three seeds, one grid of learning rates; the best rate is that of the least mean loss over the
         seeds after as many steps as ddp's."""
import math, os, statistics, subprocess, sys

sys.dont_write_bytecode = True
from gossip import Papers, last, main  # noqa: E402

SECONDS = 0.05  # a step's computation
STEPS = 240
RATES = [0.00625 * 2 ** k for k in range(8)]
ONE = "ddp(bucket_mb=1024,first_bucket_mb=1024)"


class Basics(Papers):
    FIGURES = ("overlap", "late", "rounds")
    SAMPLES = 6000, 1000

    def cluster(self, n, rate, latency="50us"):
        path = os.path.join(self.folder, f"cluster-{n}-{rate}.xml")
        with open(path, "w") as f:
            subprocess.run([self.tutti, "platform", f"cluster(n={n},rate={rate},latency={latency})"], check=True,
                           stdout=f)
        return path

    def step(self, model, n, platform, method, steps, *more):
        """The summary of a run of `steps` steps, and the command."""
        summary, _, command = self.train("--model", model, "--data", self.data, "-n", n, "--batch", 2, "--transport",
                                         "sim", "--platform", platform, "--step-time", SECONDS, "--threads", 1,
                                         "--steps", steps, "--report-every", steps, "--eval-every", 1000,
                                         "--final-eval", "off", "--seed", 1, "--method", method, *more)
        return summary, command

    def overlap(self):
        model, n, steps = "vgg(small)", 4, 4 if self.quick else 12
        of_all = self.step(model, n, self.cluster(n, "1Gbps"), ONE, 2)[0]["params"] * 4 * 2 * (n - 1) / n
        for times, words in ((1.0, "as long as"), (0.5, "half as long as")):
            platform = self.cluster(n, f"{8e-6 * of_all / (times * SECONDS):.3f}Mbps")
            beside, command = self.step(model, n, platform, "ddp(bucket_mb=0.25,first_bucket_mb=0.25)", steps)
            behind, _ = self.step(model, n, platform, "ddp(bucket_mb=0.25,first_bucket_mb=0.25)", steps, "--lane",
                                  "off")
            self.row(f"ddp, {model}, {n} workers, exchanging {words} computing: step time without / with overlap",
                     behind["wall_seconds"] / beside["wall_seconds"], "", command,
                     step_ms=1e3 * beside["wall_seconds"] / steps, behind_ms=1e3 * behind["wall_seconds"] / steps,
                     comm_ms=1e3 * behind["comm_seconds"] / steps)

    def late(self):
        model, steps = "mlp(hidden=5000)", 3
        for n in (8,) if self.quick else (8, 16, 32):
            platform = self.cluster(n, "10Gbps", "3us")
            slow = ("--slow", f"{n - 1}:3")
            left = {}
            for name, method, more in (("this", f"stragglar(straggler={n - 1})", ()),
                                       ("ring", "ddp", ("--collective", "ring(order=any)")), ("chosen", "ddp", ())):
                summary, command = self.step(model, n, platform, method, steps, *slow, *more)
                left[name] = summary["wall_seconds"] / steps - 3 * SECONDS
                if name == "this":
                    mine = command
            self.row(f"stragglar, {n} workers, one late, 16 MB: what a ring takes once it has come, of this",
                     left["ring"] / left["this"], "", mine, ms=1e3 * left["this"], ring_ms=1e3 * left["ring"],
                     chosen_ms=1e3 * left["chosen"], of_chosen=left["chosen"] / left["this"])

    def words(self, method, rate, seed, steps):
        return ("--model", "mlp(hidden=32)", "--data", self.data, "-n", 8, "--batch", 8, "--transport", "sim",
                "--platform", self.even, "--step-time", SECONDS, "--threads", 1, "--steps", steps, "--seed", seed,
                "--method", method, "--optimizer", f"sgd(lr={rate:g},momentum=0.9)")

    def rounds(self):
        parameters = 784 * 32 + 32 + 32 * 10 + 10
        self.even = self.cluster(8, f"{8e-6 * 4 * parameters * 2 * 7 / 8 / SECONDS:.3f}Mbps")
        best = lambda method: self.tuned(f"{method}, 8 workers", RATES,
                                         lambda rate, seed: self.after(method, rate, seed, STEPS),
                                         merit=lambda loss: loss)
        base = best("ddp")
        if base is None:
            return
        for period in (16,) if self.quick else (4, 16, 64):
            method = f"local-sgd(period={period})"
            mine = best(method)
            if mine is None:
                continue
            times, sent, command = [], [], mine[1][self.seeds[-1]][2]
            for seed in self.seeds:
                goal, seconds, _ = base[1][seed]
                got = self.least(method, mine[0], seed, goal, period)
                times.append(seconds / got[1] if got else 0.0)
                sent.append(got[0] / period / STEPS if got else math.inf)
                command = got[2] if got else command
            self.row(f"{method}, 8 workers, exchanging as long as computing: times sooner at ddp's loss",
                     statistics.mean(times), "", command, times=times, rate=mine[0], base_rate=base[0],
                     losses=[base[1][seed][0] for seed in self.seeds])
            self.row(f"{method}, 8 workers: exchanges until ddp's loss, of ddp's", statistics.mean(sent), "", command,
                     shares=sent)

    def least(self, method, rate, seed, goal, period):
        """Steps, seconds and command of the shortest run, in whole periods, that ends with the loss; None: none."""
        after = lambda steps: self.after(method, rate, seed, steps)
        high = math.ceil(STEPS / period) * period
        while after(high)[0] > goal:
            high *= 2
            if high > 8 * STEPS:
                return None
        return self.least_steps(after, goal, 0, high, period)


if __name__ == "__main__":
    main(__doc__, "basics", Basics, Basics.FIGURES)
