#!/usr/bin/env python3
"""Figures of biased local SGD: one worker 32 times slower than the seven others.

bench/run biased measures, judges and keeps them (bench/results/biased.jsonl). This file alone prints
them:

    bench/papers/biased.py [FIGURE ...] [--jobs N] [--quick] [--keep] [--date YYYY-MM-DD]

TUTTI names another command than that of the release. A local step takes 10 ms, the slow worker's 320.
Virtual time: other work on the machine changes nothing. All make the same epochs over 12,000 pictures.

time     seconds of these epochs, of those that local-sgd takes without the slow worker, and with it.
loss     test loss at their end, against local-sgd's without the slow worker, at the same number of
         samples and so, as `time` shows, after about as many seconds: with bias_ratio 4 and 16,
         with 1 (its positions of the common order) and with weights by samples. Each has the same
         grid of five learning rates; three seeds, the mean."""
import os, statistics, sys

sys.dont_write_bytecode = True
from gossip import Diverged, Papers, last, main  # noqa: E402

FAST, BATCH, EPOCHS = 7, 16, 12
RATES = [0.05 * 2 ** k for k in range(5)]
SLOW = "%d:32" % FAST
ALONE = "local-sgd(period=32)"
FORMS = ("biased-local-sgd", "biased-local-sgd(bias_ratio=16)", "biased-local-sgd(bias_ratio=1)",
         "biased-local-sgd(agg_mix=1)")


class Biased(Papers):
    FIGURES = ("time", "loss")

    def one(self, method, n, rate, seed):
        """Its loss at the end (by a step, as `tuned` takes them), seconds, command."""
        try:
            summary, _, command = self.train(
                "--model", "mlp(hidden=64)", "--data", self.data, "-n", n, "--batch", BATCH, "--transport", "sim",
                "--step-time", 0.01, *(("--slow", SLOW) if n > FAST else ()), "--threads", 1, "--epochs", EPOCHS,
                "--seed", seed, "--method", method, "--optimizer", f"sgd(lr={rate:g})", "--eval-every", 10 ** 6)
        except Diverged:
            return {0: None}, float("inf"), ""
        return {0: summary["final_test_loss"]}, summary["wall_seconds"], command

    def time(self):
        alone = self.one(ALONE, FAST, RATES[0], 1)[1]
        for method, n in ((FORMS[0], FAST + 1), (FORMS[2], FAST + 1), (ALONE, FAST + 1)):
            _, seconds, command = self.one(method, n, RATES[0], 1)
            self.row(f"{method}, 8 workers, one 32 times slower: time of 12 epochs, of that of the 7 others alone",
                     seconds / alone, "", command, seconds=seconds, alone=alone)

    def best(self, method, n):
        return self.tuned(f"{method}, {n} workers", RATES, lambda rate, seed: self.one(method, n, rate, seed))

    def loss(self):
        base = self.best(ALONE, FAST)
        if base is None:
            return
        for method in FORMS:
            best = self.best(method, FAST + 1)
            if best is None:
                continue
            mine, theirs = ([last(run[seed][0]) for seed in self.seeds] for run in (best[1], base[1]))
            self.row(f"{method}, 8 workers, one 32 times slower: test loss after 12 epochs, above that of the 7 others "
                     "alone", 100 * (statistics.mean(mine) / statistics.mean(theirs) - 1), "%",
                     best[1][self.seeds[-1]][2], losses=mine, alone=theirs, rate=best[0], base_rate=base[0],
                     means=best[2])


if __name__ == "__main__":
    main(__doc__, "biased", Biased, Biased.FIGURES)
