#!/usr/bin/env python3
"""Figures of the methods that average now and then, against local-sgd.

bench/run periodic [--piece METHOD] measures, judges and keeps them (bench/results/periodic.jsonl). This
file alone prints them:

    bench/papers/periodic.py [PIECE ...] [--jobs N] [--quick] [--keep] [--date YYYY-MM-DD]

TUTTI names another command than that of the release. Virtual time: other work on the machine changes
nothing. Three seeds. All methods of a figure have one grid of learning rates, constant, and the same
steps; the best rate is that of the least mean loss over the seeds. Where it is at the border of the
grid the figure is skipped, which is reported.

slowmo  16 workers, mlp(hidden=32) on mnist, 8 samples a worker and step, sgd with Nesterov's momentum:
        the loss on the test samples after STEPS steps of local-sgd, d-psgd and sgp, and of slowmo over
        them with alpha 1 and beta 0.5 as they come, at equal periods. Its ratio is to its base at its
        own best rate. The share recovered is of what the base loses against ddp, which averages
        gradients in every step: 1 is all of it.
palsgd  8 workers, a gradient takes 10 ms, an all-reduce of the model about as much. local-sgd with
        Nesterov's outer optimiser (DiLoCo) against palsgd with the same one, at the periods 8, 32 and
        128 and p of 0.05, 0.1 and 0.2. Both have one grid of learning rates and as many gradients to
        choose by, 300 a worker, so that no run ends as models meet; two seeds. The least two of the seven
        rates were added when periods 32 and 8 had their best at the border of the others. `without a pull` is
        palsgd whose mixing steps do nothing. Rows: how many times sooner palsgd has the loss that
        local-sgd ends with (the time of the shortest whole run that reaches it); and the losses
        after as many gradients of each. `unlike`: the same with data split by Dir(0.3), where models
        drift apart more. A piece is palsgd/equal/32, or a beginning of it."""
import math, os, statistics, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "bench/papers"), os.path.join(ROOT, "tests/cli")]
os.environ.setdefault("TUTTI", os.path.join(ROOT, "build/release/bin/tutti"))
os.environ.setdefault("TUTTI_DATA", os.path.join(ROOT, "data"))
from command import small_mnist  # noqa: E402
from gossip import Diverged, Gossip, last, main  # noqa: E402


class Slowmo(Gossip):
    STEPS, RATES = 960, (0.00625, 0.0125, 0.025, 0.05, 0.1)
    # slowmo, and the base that it is compared with
    PAIRS = (("slowmo(period=12)", "local-sgd(period=12)"), ("slowmo(period=48)", "local-sgd(period=48)"),
             ("slowmo(base=d-psgd,period=48)", "d-psgd"), ("slowmo(base=sgp,period=48)", "sgp"))

    def loss(self, method):
        """Mean loss at the best rate, and the further members of its row; None if the grid does not enclose
        it."""
        where = f"{method}, 16 workers"
        run = lambda rate, seed: self.losses(("--model", "mlp(hidden=32)", "--data", "mnist", "-n", 16, "--batch", 8,
                                              "--transport", "sim", "--threads", 1, "--steps", self.STEPS, "--seed",
                                              seed, "--method", method, "--optimizer",
                                              f"sgd(lr={rate:g},momentum=0.9,nesterov=true)"), self.STEPS)
        got = self.tuned(where, self.RATES, run)
        if got is None:
            return None
        rate, runs, means = got
        all_of = [last(runs[seed][0]) for seed in self.seeds]
        return statistics.mean(all_of), runs[self.seeds[-1]][2], dict(all=all_of, rate=rate, means=means)

    def run(self):
        pairs = [pair for pair in self.PAIRS if self.chosen(pair[0])]
        wanted = ["ddp"] + [method for slow, base in pairs for method in (base, slow)] if pairs else []
        found = {method: self.loss(method) for method in wanted}
        title = lambda method, what: f"{method}, 16 workers: {what}"
        for method in wanted:
            if found[method] is None:
                continue
            loss, command, more = found[method]
            base = dict(pairs).get(method)
            if base is not None and found[base] is not None:
                more = dict(more, ratio=loss / found[base][0], against=f"{base}'s")
            self.row(title(method, f"loss after {self.STEPS} steps"), loss, "", command, **more)
        for slow, base in pairs:
            if None in (found["ddp"], found[base], found[slow]):
                continue
            losses = [found[method][0] for method in ("ddp", base, slow)]
            what = f"share recovered of what {base} loses against ddp in {self.STEPS} steps"
            if losses[1] <= losses[0]:
                self.record.absent(title(slow, what), f"{base} loses nothing: {losses[1]:.4f} against {losses[0]:.4f}")
                continue
            self.row(title(slow, what), (losses[1] - losses[2]) / (losses[1] - losses[0]), "", found[slow][1],
                     losses=losses)


class Palsgd(Gossip):
    N, BATCH, STEPS, GRAIN, TIMES = 8, 8, 300, 12, 2
    PLATFORM = "cluster(n=8,rate=100Mbps,latency=1ms)"
    RATES = [0.00078125 * 2 ** k for k in range(7)]
    OUTER = "outer=sgd(lr=0.7,momentum=0.9,nesterov=true)"
    PERIODS, PROBABILITIES = (8, 32, 128), (0.05, 0.1, 0.2)
    WHERE = {"equal data": (), "unlike data": ("--partition", "dirichlet(alpha=0.3,even=cut)")}

    def __init__(self, *args, **words):
        super().__init__(*args, **words)
        self.seeds = self.seeds[:2]

    def after(self, method, where, rate, seed, steps):
        """Loss, seconds and command of a run of `steps` gradients a worker, which is evaluated once, at its end."""
        try:
            summary, _, command = self.train(
                "--model", "mlp(hidden=16)", "--data", self.data, "-n", self.N, "--batch", self.BATCH, "--transport",
                "sim", "--platform", self.platform, "--step-time", 0.01, "--threads", 1, *self.WHERE[where], "--steps",
                steps, "--seed", seed, "--method", method, "--optimizer", f"sgd(lr={rate:g},momentum=0.9)",
                "--report-every", 10 * steps, "--eval-every", 10 * steps)
        except Diverged:
            return math.inf, math.inf, ""
        loss = summary["final_test_loss"]
        return math.inf if loss is None else loss, summary["wall_seconds"], command

    def best(self, title, method, where):
        return self.tuned(title, self.RATES, lambda rate, seed: self.after(method, where, rate, seed, self.STEPS),
                          merit=lambda loss: loss)

    def until(self, method, where, rate, seed, goal):
        """Gradients a worker, seconds and command of the shortest run found that has the loss; None: none has."""
        after = lambda gradients: self.after(method, where, rate, seed, gradients)
        high = self.STEPS
        while after(high)[0] > goal:
            high *= 2
            if high > self.TIMES * self.STEPS:
                return None
        return self.least_steps(after, goal, 0, high, self.GRAIN)

    def compare(self, where, period):
        title = f"local-sgd(period={period}), outer nesterov, 8 workers, {where}"
        base = self.best(title, f"local-sgd(period={period},{self.OUTER})", where)
        if base is None:
            return
        losses = [base[1][seed][0] for seed in self.seeds]
        self.row(f"{title}: loss after {self.STEPS} gradients", statistics.mean(losses), "nats",
                 base[1][self.seeds[-1]][2], losses=losses, wall=[base[1][seed][1] for seed in self.seeds],
                 rate=base[0], means=base[2])
        for p, more in [(p, "") for p in self.PROBABILITIES] + [(0.1, ",mix_rate=0")]:
            method = f"palsgd(period={period},mix_prob={p}{more},{self.OUTER})"
            title = f"palsgd(period={period},mix_prob={p}), 8 workers, {where}"
            title = f"{'without a pull, ' if more else ''}{title}"
            best = self.best(title, method, where)
            if best is None:
                continue
            mine = [best[1][seed][0] for seed in self.seeds]
            command = best[1][self.seeds[-1]][2]
            self.row(f"{title}: loss after {self.STEPS} gradients", statistics.mean(mine), "nats", command,
                     ratio=statistics.mean(losses) / statistics.mean(mine), against="local-sgd's (over its own)",
                     losses=mine, wall=[best[1][seed][1] for seed in self.seeds], rate=best[0], means=best[2])
            got = self.all(self.until, [(method, where, best[0], seed, base[1][seed][0]) for seed in self.seeds])
            times = [base[1][seed][1] / run[1] if run else 0.0 for seed, run in zip(self.seeds, got)]
            self.row(f"{title}: times sooner at local-sgd's loss", statistics.mean(times), "",
                     next((run[2] for run in got if run), command), times=times,
                     gradients=[run and run[0] / self.STEPS for run in got], rate=best[0], base_rate=base[0])

    def run(self):
        chosen = [(where, period) for where in self.WHERE for period in self.PERIODS
                  if self.chosen(f"palsgd/{where.split()[0]}/{period}")]
        if not chosen:
            return
        with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
            self.places[folder] = "DIR"
            self.data = small_mnist(os.path.join(folder, "data"), 12000, 2000)
            self.platform = os.path.join(folder, "cluster.xml")
            with open(self.platform, "w") as f:
                f.write(subprocess.run([self.tutti, "platform", self.PLATFORM], stdout=subprocess.PIPE, text=True,
                                       check=True).stdout)
            for where, period in chosen:
                self.compare(where, period)


class Periodic:
    """Each method's figures, of what is asked for."""

    def __init__(self, *args, **words):
        self.methods = [figures(*args, **words) for figures in (Slowmo, Palsgd)]

    def run(self):
        for figures in self.methods:
            figures.run()


if __name__ == "__main__":
    main(__doc__, "periodic", Periodic, [slow for slow, _ in Slowmo.PAIRS] + ["palsgd"])
