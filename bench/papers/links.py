#!/usr/bin/env python3
"""Time to ddp's loss on links that differ, of all methods that need not wait.

bench/run links [--piece METHOD] measures, judges and keeps it (bench/results/links.jsonl). This file
alone prints it:

    bench/papers/links.py [PIECE ...] [--jobs N] [--quick] [--keep] [--date YYYY-MM-DD]

TUTTI names another command than that of the release.

12 workers of `edge`: links of 50 Mbit/s to 1 Gbit/s and 0.1 to 3 ms, drawn for each of three seeds,
the fastest one given to the first host, since the only worker that serves is there. One worker
computes 7 times slower and two 3 times slower. A gradient takes 10 ms, and the model 8 ms over the
slowest link. Virtual time: other work on the machine changes nothing. hetero-ring is compared with
the asynchronous methods: it waits for all and gives each worker as much as it can do.

For ddp the loss on the test samples after STEPS steps counts, and their time. For the others the time
of the shortest run counts that ends with at most that loss, including what is under way at its end:
with evaluations on the way, all would wait for the slowest. A row is the median over the seeds of how
many times sooner that is; 0: not there after four times as many gradients.

All have one grid of learning rates (plain sgd, constant), the same batches, and as many gradients to
choose the rate by. The grid is walked from its middle to where the mean loss of the seeds is less
than at both neighbours; where that is at the border nothing is judged. hermes gets chunks of 256
samples, since over slow links each hand-out is a way there and back."""
import math, os, re, statistics, subprocess, sys, tempfile

sys.dont_write_bytecode = True
from gossip import Gossip, last, main  # noqa: E402
from command import small_mnist  # noqa: E402

WHERE = "12 workers on mixed links"
N, BATCH, STEPS, GRAIN, TIMES = 12, 16, 64, 4, 4
PLATFORM = "edge(n=%d,slow_rate=50Mbps,rate=1Gbps,slow_latency=3ms,latency=100us,slow_speed=50Gf,seed=%d)"
SLOW = "3:7,5:3,8:3"
RATES = [0.003125 * 2 ** k for k in range(11)]
CHUNK = 256
METHODS = ("asgd", "ringmaster-asgd", "ringleader-asgd", "dude-asgd", "ssp", "backup-workers", "ad-psgd",
           "h-adpsgd(super_learner=4)", "asr-adpsgd", "rand-psgd(pace=own)", "sgp(overlap=1)", "lasgd",
           f"hermes(chunk={CHUNK})", "oscars", "hetero-ring(adapt_every=10)")


class Links(Gossip):
    def platform(self, seed):
        spec = PLATFORM % (N, seed)
        drawn = subprocess.run([self.tutti, "platform", spec], stdout=subprocess.PIPE, text=True, check=True).stdout
        rates = {host: float(rate) for host, rate in re.findall(r'"(w\d+)_up" bandwidth="([\d.e+]+)bps"', drawn)}
        first, fastest = min(rates), max(rates, key=rates.get)
        other = {first: fastest, fastest: first}
        return re.sub(r"\bw\d+", lambda found: other.get(found[0], found[0]), drawn)

    def words(self, method, rate, seed, steps):
        """The words of a run with the samples of `steps` steps of ddp, in larger steps if the
        method has them."""
        each = CHUNK if method.startswith("hermes") else BATCH
        return ("--model", "mlp(hidden=16)", "--data", self.data, "-n", N, "--batch", each, "--transport", "sim",
                "--platform", self.platforms[seed], "--step-time", 0.01 * each / BATCH, "--slow", SLOW, "--threads", 1,
                "--steps", steps * BATCH // each, "--seed", seed, "--method", method,
                "--optimizer", f"sgd(lr={rate:g})")

    def after(self, method, rate, seed, steps):
        """Loss, seconds and command of a run that is evaluated once, at its end."""
        words = self.words(method, rate, seed, steps)
        losses, seconds, command = self.losses(words, words[words.index("--steps") + 1])
        return last(losses), seconds, command

    def climbed(self, method):
        """The best rate, the runs of it by seed, the mean loss by rate; None if the grid does not enclose it."""
        found, means = {}, {}
        def mean(k):
            if 0 <= k < len(RATES) and k not in means:
                found[k] = self.all(self.after, [(method, RATES[k], seed, STEPS) for seed in self.seeds])
                means[k] = statistics.mean(run[0] for run in found[k])
            return means.get(k, math.inf)
        k = len(RATES) // 2
        while min(mean(k - 1), mean(k + 1)) < mean(k) or (math.isinf(mean(k)) and k > 0):  # infinite: too high a rate
            k += 1 if mean(k + 1) < mean(k - 1) else -1
        shown = {"%g" % RATES[r]: round(m, 4) if math.isfinite(m) else None for r, m in sorted(means.items())}
        print(f"    {method}: mean loss by rate {shown}", flush=True)
        if k in (0, len(RATES) - 1) and not self.quick:
            self.record.absent(method, f"its best rate, {RATES[k]:g}, is at the border of the grid")
            return None
        return RATES[k], dict(zip(self.seeds, found[k])), shown

    def until(self, method, rate, seed, goal, known):
        """(steps, seconds, command) of the shortest run that ends with the loss, None if there is none; known: the run
        of STEPS."""
        grain = CHUNK // BATCH if method.startswith("hermes") else GRAIN
        low, high = 0, STEPS
        while (known if high == STEPS else self.after(method, rate, seed, high))[0] > goal:
            low, high = high, 2 * high
            if high > TIMES * STEPS:
                return None
        after = lambda steps: self.after(method, rate, seed, steps)
        return self.least_steps(after, goal, max(low, grain // 2), high, grain)

    def run(self):
        chosen = [m for m in METHODS if self.chosen(m)]
        with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
            self.places[folder] = "DIR"
            self.data, self.platforms = small_mnist(os.path.join(folder, "data"), 12000, 2000), {}
            for seed in self.seeds:
                self.platforms[seed] = os.path.join(folder, f"links-{seed}.xml")
                with open(self.platforms[seed], "w") as f:
                    f.write(self.platform(seed))
            base = self.climbed("ddp")
            if base is None:
                return
            base_rate, base_runs, base_means = base
            base_seconds = [base_runs[seed][1] for seed in self.seeds]
            losses = [base_runs[seed][0] for seed in self.seeds]
            command = base_runs[self.seeds[-1]][2]
            self.row(f"ddp, {WHERE}: {STEPS} steps", statistics.median(base_seconds), "s", command, all=base_seconds,
                     losses=losses, rate=base_rate, means=base_means)
            for method in chosen:
                self.compare(method, base_seconds, losses, base_rate)

    def compare(self, method, base_seconds, losses, base_rate):
        best = self.climbed(method)
        if best is None:
            return
        rate, runs, means = best
        got = self.all(self.until, [(method, rate, seed, loss, runs[seed]) for seed, loss in zip(self.seeds, losses)])
        times = [base / run[1] if run else 0.0 for base, run in zip(base_seconds, got)]
        self.row(f"{method}, {WHERE}: times sooner at ddp's loss", statistics.median(times), "",
                 next((run[2] for run in reversed(got) if run), runs[self.seeds[-1]][2]), times=times,
                 steps=[run and run[0] for run in got], all=[run and run[1] for run in got], base_seconds=base_seconds,
                 losses=losses, rate=rate, base_rate=base_rate, means=means)


if __name__ == "__main__":
    main(__doc__, "links", Links, METHODS)
