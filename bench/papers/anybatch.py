#!/usr/bin/env python3
"""Rounds of a fixed time against batches of a fixed size, on unequal workers.

bench/run anybatch [--piece FIGURE] measures, judges and keeps them (bench/results/anybatch.jsonl).
This file alone prints them:

    bench/papers/anybatch.py [FIGURE ...] [--jobs N] [--quick] [--keep] [--date YYYY-MM-DD]

TUTTI names another command than that of the release. Four workers of speeds 4:2:1:1, virtual time:
other work on the machine changes nothing. ddp has 16 samples a worker and waits for the slowest;
without waiting 2.0 times as many samples are computed in the same time. That is the bound.

pace     samples a second of dabmd, of ddp's, over 400 steps' samples.
equal    the same with equal workers: nothing can be gained.
target   time to the loss that ddp has after its steps: how many times sooner dabmd has it. Both have
         one grid of five learning rates and as many samples to choose by; three seeds, the median.
         The time is that of the shortest whole run that reaches the loss.
simplex  the dynamic regret on quadratic(simplex=on,drift=0.3) with noise: entropy's, of that of
         projected Euclidean steps. Both at their best of one grid of rates.
graph    eight workers on a ring: how far apart models are with K averagings a round, of K = 1."""
import os, statistics, sys

sys.dont_write_bytecode = True
from gossip import Diverged, Papers, last, main  # noqa: E402

N, BATCH, STEPS, LONG, GRAIN, TIMES = 4, 16, 96, 400, 4, 4
SPEEDS = "1:2,2:4,3:4"
RATES = [0.025 * 2 ** k for k in range(6)]
MIRROR_RATES = [0.00390625 * 4 ** k for k in range(8)]
SIMPLEX = "quadratic(dim=400,condition=1,simplex=on,drift=0.3,noise=0.05)"


class AnyBatch(Papers):
    FIGURES = ("pace", "equal", "target", "simplex", "graph")

    def words(self, method, rate, seed, steps, slow=SPEEDS):
        return ("--model", "mlp(hidden=16)", "--data", self.data, "-n", N, "--batch", BATCH, "--transport", "sim",
                "--step-time", 0.01, *(("--slow", slow) if slow else ()), "--threads", 1, "--steps", steps, "--seed",
                seed, "--method", method, "--optimizer", f"sgd(lr={rate:g})", "--report-every", 10 * steps)

    def speed(self, method, slow):
        """Samples a second over a run without meetings; their command."""
        summary, _, command = self.train(*self.words(method, 0.1, 1, LONG, slow), "--eval-every", 100 * LONG,
                                         "--final-eval", "off")
        return summary["samples_per_second"], command

    def paces(self, what, slow):
        base, _ = self.speed("ddp", slow)
        mine, command = self.speed("dabmd", slow)
        self.row(f"dabmd, 4 workers of {what}: samples a second, of ddp's", mine / base, "", command, ddp=base,
                 dabmd=mine)

    def pace(self):
        self.paces("speeds 4:2:1:1", SPEEDS)

    def equal(self):
        self.paces("equal speeds", "")

    def after(self, method, rate, seed, steps):
        """Loss, seconds, command of a run that is evaluated once, at its end."""
        try:
            summary, _, command = self.train(*self.words(method, rate, seed, steps), "--eval-every", 100 * steps)
        except Diverged:
            return float("inf"), float("inf"), ""
        return summary["final_test_loss"], summary["wall_seconds"], command

    def at_rates(self, method):
        def one(rate, seed):
            loss, seconds, command = self.after(method, rate, seed, STEPS)
            return {STEPS: loss}, seconds, command
        return self.tuned(f"{method}, 4:2:1:1", RATES, one)

    def until(self, method, rate, seed, goal):
        high = STEPS
        while self.after(method, rate, seed, high)[0] > goal:
            high *= 2
            if high > TIMES * STEPS:
                return None
        return self.least_steps(lambda steps: self.after(method, rate, seed, steps), goal, 0, high, GRAIN)

    def target(self):
        base, mine = self.at_rates("ddp"), self.at_rates("dabmd")
        if base is None or mine is None:
            return
        got = self.all(self.until, [("dabmd", mine[0], seed, last(base[1][seed][0])) for seed in self.seeds])
        times = [base[1][seed][1] / run[1] if run else 0.0 for seed, run in zip(self.seeds, got)]
        self.row("dabmd, 4 workers of speeds 4:2:1:1: times sooner at ddp's loss", statistics.median(times), "",
                 next((run[2] for run in got if run), mine[1][self.seeds[-1]][2]), times=times,
                 steps=[run and run[0] for run in got], rate=mine[0], base_rate=base[0], means=mine[2])

    def regret(self, map, rate, seed):
        try:
            summary, _, command = self.train("--data", SIMPLEX, "-n", N, "--batch", 4, "--transport", "sim",
                                             "--step-time", 0.01, "--slow", SPEEDS, "--steps", LONG, "--seed", seed,
                                             "--method", f"dabmd({map})", "--optimizer", f"sgd(lr={rate:g})",
                                             "--eval-every", 100 * LONG, "--final-eval", "off")
        except Diverged:
            return {0: None}, float("inf"), ""
        return {0: summary["dynamic_regret"]}, summary["wall_seconds"], command

    def simplex(self):
        best = {map: self.tuned(f"dabmd({map})", MIRROR_RATES, lambda rate, seed, map=map: self.regret(map, rate, seed),
                                what="regret") for map in ("mirror=entropy", "set=simplex")}
        if None in best.values():
            return
        rate, runs, means = best["mirror=entropy"]
        ratios = [last(runs[seed][0]) / last(best["set=simplex"][1][seed][0]) for seed in self.seeds]
        self.row("dabmd, drifting optimum on the simplex: dynamic regret with entropy, of Euclidean's",
                 statistics.median(ratios), "", runs[self.seeds[-1]][2], all=ratios, rate=rate, means=means,
                 base_rate=best["set=simplex"][0], base_means=best["set=simplex"][2])

    def graph(self):
        apart = {}
        for k in (1, 2, 3, 5):
            got = [self.train("--data", "quadratic(dim=100,noise=1)", "-n", 8, "--batch", 4, "--transport", "sim",
                              "--step-time", 0.01, "--slow", SPEEDS, "--steps", 200, "--seed", seed, "--method",
                              f"dabmd(graph=ring,consensus={k})", "--optimizer", "sgd(lr=0.1)", "--eval-every", 20)
                   for seed in self.seeds]
            apart[k] = statistics.mean(line["consensus_distance"] for _, lines, _ in got for line in lines
                                       if line.get("consensus_distance"))
            if k > 1:
                self.row(f"dabmd, ring of 8, K = {k}: the models' distance from their mean, of that with K = 1",
                         apart[k] / apart[1], "", got[-1][2])


if __name__ == "__main__":
    main(__doc__, "anybatch", AnyBatch, AnyBatch.FIGURES)
