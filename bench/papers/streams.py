#!/usr/bin/env python3
"""Training on the samples that have arrived, against waiting for a whole batch, where samples arrive
at rates.

bench/run streams [--piece RATES] measures, judges and keeps them (bench/results/streams.jsonl). This
file alone prints them:

    bench/papers/streams.py [RATES ...] [--jobs N] [--quick] [--keep] [--date YYYY-MM-DD]

TUTTI names another command than that of the release. Eight workers, mlp(hidden=16) on a part of
MNIST, virtual time: other work on the machine changes nothing. The rates, in samples a second, are
the first eight of ScaDLES' lists, and one that is equal for all:

equal      64 each
large      270:218:300:246:232:284:284:236
normal     92:38:62:42:48:88:90:22
small      50:38:12:36:34:13:82:40
unlimited  large ones again, with batches of up to 1024, the method's default when it was measured:
           four times as many samples a round, so a quarter of the updates

The conventional way is ddp with --stream: 64 samples a worker, and all wait for the slowest stream.
scadles takes what has come after a second, at most 64 as in the authors' scripts. With nothing else
in the way it has as many times the samples a second as the sum of min(rate, 64) is of 8 min(least
rate, 64), which is what can be gained. Time to the loss that ddp has after its
steps: how many times sooner scadles has it, uncompressed and with its defaults, which compress. Both
have one grid of learning rates, where the rate with the least mean loss over three seeds after as
many samples counts; the median of the seeds."""
import os, statistics, sys, tempfile

sys.dont_write_bytecode = True
from gossip import Diverged, Gossip, last, main  # noqa: E402
from command import small_mnist  # noqa: E402

N, BATCH, STEPS, MOST, LOOK = 8, 64, 48, 4, 2
GRID = [0.05 * 2 ** k for k in range(6)]
LARGE = [270, 218, 300, 246, 232, 284, 284, 236]
LISTS = {"equal": [64] * N, "large": LARGE, "normal": [92, 38, 62, 42, 48, 88, 90, 22],
         "small": [50, 38, 12, 36, 34, 13, 82, 40], "unlimited": LARGE}
WAYS = {"uncompressed": "compress=off", "compressed": "compress_ratio=0.1"}


class Streams(Gossip):
    def words(self, way, rates, rate, seed):
        text, most = ":".join(map(str, rates)), 1024 if self.unlimited else BATCH
        method = ("ddp", "--stream", text) if way is None else (
            f"scadles(rates={text},batch_min=1,batch_max={most},{WAYS[way]})",)
        return ("--model", "mlp(hidden=16)", "--data", self.data, "-n", N, "--batch", BATCH, "--transport", "sim",
                "--step-time", 0.01, "--threads", 1, "--seed", seed, "--optimizer", f"sgd(lr={rate:g})", "--method",
                *method)

    def after(self, way, rates, rate, seed):
        try:
            summary, _, command = self.train(*self.words(way, rates, rate, seed), "--steps", STEPS, "--eval-every",
                                             100 * STEPS)
        except Diverged:
            return {STEPS: None}, float("inf"), ""
        return {STEPS: summary["final_test_loss"]}, summary["wall_seconds"], command

    def until(self, way, rates, rate, seed, goal):
        """Seconds to that loss, which is evaluated every other round, with the clock stopped."""
        try:
            summary, _, command = self.train(*self.words(way, rates, rate, seed), "--steps", MOST * STEPS,
                                             "--eval-every", LOOK, "--target", f"loss={goal:.9g}", "--final-eval",
                                             "off")
        except Diverged:
            return None, ""
        return summary["time_to_target_seconds"], command

    def compare(self, name, rates):
        best = {way: self.tuned(f"{way or 'ddp'}, {name} rates", GRID, lambda rate, seed, way=way:
                                self.after(way, rates, rate, seed)) for way in (None, *WAYS)}
        taken = [rate if self.unlimited else min(rate, BATCH) for rate in rates]
        could = sum(taken) / N / min(min(rates), BATCH)
        for way in WAYS:
            if best[None] is None or best[way] is None:
                continue
            base, mine = best[None], best[way]
            goals = {seed: last(base[1][seed][0]) for seed in self.seeds}
            sooner, later = (self.all(self.until, [(kind, rates, rate, seed, goals[seed]) for seed in self.seeds])
                             for kind, rate in ((way, mine[0]), (None, base[0])))
            times = [slow[0] / fast[0] if fast[0] and slow[0] else 0.0 for fast, slow in zip(sooner, later)]
            self.row(f"scadles, {way}, 8 streams of {name} rates: times sooner at ddp's loss", statistics.median(times),
                     "", sooner[-1][1], times=times, could=could, rate=mine[0],
                     base_rate=base[0], means=mine[2], base_means=base[2])

    def run(self):
        with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
            self.places[folder] = "DIR"
            self.data = small_mnist(os.path.join(folder, "data"), 12000, 2000)
            for name, rates in LISTS.items():
                self.unlimited = name == "unlimited"
                if self.chosen(name):
                    self.compare(name, rates)


if __name__ == "__main__":
    main(__doc__, "streams", Streams, LISTS)
