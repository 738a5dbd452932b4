#!/usr/bin/env python3
"""Figures of Hop's paper: random slow-downs, and a worker that stays slow.

bench/run hop [--piece FIGURE] measures, judges and keeps them (bench/results/hop.jsonl). This file
alone prints them:

    bench/papers/hop.py [PIECE ...] [--jobs N] [--quick] [--keep] [--date YYYY-MM-DD]

TUTTI names another command than that of the release. 16 workers on ring-based, a gradient takes 10 ms,
virtual time: other work on the machine changes nothing.

late       each gradient takes 6 times as long with probability 1/16. Time to the loss that the plain
           form has at the end of its steps: of hop(backup=1), hop(staleness=5), ddp, d-psgd and
           ad-psgd how many times sooner than the plain form that is. All have one grid of five
           learning rates and as many gradients to choose by; two seeds, the median. The time is that
           of the shortest whole run that reaches the loss.
rate       the same slow-downs: iterations a second, of those of the plain form.
straggler  one worker is 4 times slower all the time: iterations a second of the others, of those
           without it. Only jumps help: without them the others wait at max_gap."""
import os, statistics, sys

sys.dont_write_bytecode = True
from gossip import Papers, last, main  # noqa: E402

N, BATCH, STEPS, LONG, GRAIN, TIMES = 16, 16, 96, 400, 8, 4
RATES = [0.025 * 2 ** k for k in range(5)]
LATE, STRAGGLER = "*:6:0.0625", "3:4"
PLAIN = "hop"
FORMS = ("hop(backup=1)", "hop(staleness=5)", "ddp", "d-psgd(graph=ring-based)", "ad-psgd(graph=ring-based)")
JUMPS = ("hop(backup=1,skip=on)", "hop(staleness=5,skip=on)")


class Hop(Papers):
    FIGURES = ("late", "rate", "straggler")

    def __init__(self, *args, **words):
        super().__init__(*args, **words)
        self.seeds = self.seeds[:2]

    def words(self, method, rate, seed, steps):
        return ("--model", "mlp(hidden=16)", "--data", self.data, "-n", N, "--batch", BATCH, "--transport", "sim",
                "--step-time", 0.01, "--slow", LATE, "--threads", 1, "--steps", steps, "--seed", seed, "--method",
                method, "--optimizer", f"sgd(lr={rate:g})", "--report-every", steps)

    def best(self, method):
        return self.tuned(f"{method}, late", RATES,
                          lambda rate, seed: self.losses(self.words(method, rate, seed, STEPS), STEPS))

    def until(self, method, rate, seed, goal):
        high = STEPS
        while self.after(method, rate, seed, high)[0] > goal:
            high *= 2
            if high > TIMES * STEPS:
                return None
        return self.least_steps(lambda steps: self.after(method, rate, seed, steps), goal, 0, high, GRAIN)

    def late(self):
        base = self.best(PLAIN)
        if base is None:
            return
        for method in FORMS:
            best = self.best(method)
            if best is None:
                continue
            got = self.all(self.until, [(method, best[0], seed, last(base[1][seed][0])) for seed in self.seeds])
            times = [base[1][seed][1] / run[1] if run else 0.0 for seed, run in zip(self.seeds, got)]
            self.row(f"{method}, 16 workers, 6 times slower now and then: times sooner at the plain form's loss",
                     statistics.median(times), "", next((run[2] for run in got if run), best[1][self.seeds[-1]][2]),
                     times=times, steps=[run and run[0] for run in got], rate=best[0], base_rate=base[0], means=best[2])

    def pace(self, method, slow):
        """Iterations a second of the workers that are not slow, over a run without meetings; the command."""
        summary, _, command = self.train("--model", "quadratic(dim=20)", "-n", N, "--steps", LONG, "--batch", 8,
                                         "--optimizer", "sgd(lr=0.01)", "--transport", "sim", "--step-time", 0.01,
                                         *(("--slow", slow) if slow else ()), "--report-every", LONG, "--eval-every",
                                         LONG, "--final-eval", "off", "--seed", 1, "--method", method)
        return LONG / summary["wall_seconds"], command

    def rate(self):
        base = self.pace(PLAIN, LATE)[0]
        for method in (*FORMS[:2], FORMS[3]):
            pace, command = self.pace(method, LATE)
            self.row(f"{method}, 16 workers, 6 times slower now and then: iterations a second, of the plain form's",
                     pace / base, "", command)

    def straggler(self):
        for method in (PLAIN, *FORMS[:2], *JUMPS):
            pace, command = self.pace(method, STRAGGLER)
            self.row(f"{method}, 16 workers, one 4 times slower: what the others keep of their pace",
                     100 * pace / self.pace(method, "")[0], "%", command)


if __name__ == "__main__":
    main(__doc__, "hop", Hop, Hop.FIGURES)
