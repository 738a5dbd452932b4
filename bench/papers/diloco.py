#!/usr/bin/env python3
"""Figures of diloco: how much of it waits, how few bytes it sends, and when it has a loss.

bench/run diloco [--piece FIGURE] measures, judges and keeps them (bench/results/diloco.jsonl). This
file alone prints them:

    bench/papers/diloco.py [FIGURE ...] [--jobs N] [--quick] [--keep] [--date YYYY-MM-DD]

TUTTI names another command than that of the release. Virtual time: other work on the machine
changes nothing. 8 workers, 100 Mbit/s and 1 ms from each to each.

waiting     gpt on Moby Dick, STEP seconds a step, which is what 32 samples take on a core of the
            machine of the part `step`. Of the time from the end of the first period to that of the
            last: the share in which a worker waits for an exchange. Streaming as published: delay
            1, mix 0.5, outer rate 0.4, strided, periods 30 and 100; five fragments. The largest
            takes 0.44 s. In float32 and through e3m0. For comparison `ddp` and diloco in one piece,
            without a bound. The average at the end of a run is not in it. What the samples are
            does not change the time, so each worker has one a step.
sparseloco  mlp(hidden=256) on samples of MNIST, 16 a worker and step, period 30: bytes that all
            workers send, and the loss on the test samples after STEPS steps, three seeds.
            SparseLoCo as published (decay 0.95, no outer optimiser), where each message goes to
            all, and with an owner of each tensor. diloco as published (Nesterov, 0.7, 0.9), and
            local-sgd, the plain mean. All have one grid of learning rates, constant; the best is
            that of the least mean loss. The ratio is the mean to the worst of diloco's seeds: at
            most 1 is no worse within seeds.
time        the same model, grid and seeds, 50 ms a step: virtual seconds until the test loss is
            LOSS, of ddp's. Steps until an evaluation has it (every EVERY steps), at the rate for
            which these are fewest, times the seconds of a step, from a run without evaluations,
            since these send models. No bound: as found.

Where the best rate is at the border of the grid the figure is skipped, which is reported."""
import math, os, statistics, subprocess, sys

sys.dont_write_bytecode = True
from gossip import Papers, last, main  # noqa: E402

N = 8
PLATFORM = f"cluster(n={N},rate=100Mbps,latency=1ms)"
STREAMING = "diloco(period=%d,fragments=5,order=strided,delay=1,mix=0.5,outer=sgd(lr=0.4,momentum=0.9,nesterov=true))"
GATHER = ("--codec", "e3m0", "--collective", "allgather")
PLAIN = "diloco(period=30,outer=none)"
# name, method, and what else it is trained with
DILOCO = ("diloco", "diloco(period=30)", ())
MEAN = ("local-sgd", "local-sgd(period=30)", ())
SPARSE = (("sparseloco", PLAIN, ("--codec", "ef(chunk-topk,decay=0.95)")),
          ("sparseloco with owners", PLAIN, ("--codec", "ef(chunk-topk,decay=0.95,server=on)")))
DDP = ("ddp", "ddp", ())
OTHERS = (("powersgd", "ddp", ("--codec", "ef(powersgd(rank=4))")),
          ("diloco, streaming", "diloco(period=30,fragments=3,delay=3,mix=0.5,"
                                "outer=sgd(lr=0.4,momentum=0.9,nesterov=true))", ()))


class Diloco(Papers):
    FIGURES = ("waiting", "sparseloco", "time")
    STEP = 0.5
    STEPS, EVERY, LOSS = 600, 15, 0.25
    RATES = [0.003125 * 2 ** k for k in range(7)]  # the last is for ddp in `time`: 0.1 had the fewest steps of six

    def __init__(self, *args, **words):
        super().__init__(*args, **words)
        self.found = {}  # what `learning` gave

    def prepare(self):
        self.platform = os.path.join(self.folder, "cluster.xml")
        with open(self.platform, "w") as f:
            subprocess.run([self.tutti, "platform", PLATFORM], stdout=f, check=True)

    # ---- waiting ----
    def waits(self, method, period, periods, *more):
        """Percent of the time after the first period that waits for exchanges, more figures, the command."""
        summary, lines, command = self.train(
            "--model", "gpt", "--data", "moby-dick", "-n", N, "--batch", 1, "--transport", "sim", "--platform",
            self.platform, "--step-time", self.STEP, "--threads", 1, "--steps", period * periods, "--report-every",
            period, "--final-eval", "off", "--seed", 1, "--method", method, *more)
        at = {line["step"]: line for line in lines if "exposed_comm_seconds" in line}
        first, end = at[period], at[period * periods]
        took, waited = (end[name] - first[name] for name in ("wall_seconds", "exposed_comm_seconds"))
        facts = dict(seconds=took, waited=waited, periods=periods - 1,
                     fragment_bytes=summary["method_figures"].get("fragment_bytes"))
        return 100 * waited / took, facts, command

    def waiting(self):
        seeds, self.seeds = self.seeds, self.seeds[:1]
        title = lambda what: f"{what}: share of a step that waits"
        where = f"diloco, gpt, {N} workers, 100Mbps, period %d, %s"
        cases = [(title(f"ddp, gpt, {N} workers, 100Mbps"), "ddp", 3, 2)]
        cases += [(title(where % (30, "in one piece")), "diloco(period=30)", 30, 2)]
        ways = (("streaming", ()), ("streaming through e3m0", GATHER))
        cases += [(title(where % (period, name)), STREAMING % period, period, 2, *more)
                  for period in ((30,) if self.quick else (30, 100)) for name, more in ways]
        for (name, *_), (value, facts, command) in zip(cases, self.all(self.waits, [case[1:] for case in cases])):
            self.row(name, value, "%", command, **facts)
        self.seeds = seeds

    # ---- learning ----
    def words(self, form, rate, seed, steps):
        _, method, more = form
        return ("--model", "mlp(hidden=256)", "--data", self.data, "-n", N, "--batch", 16, "--transport", "sim",
                "--platform", self.platform, "--step-time", 0.05, "--threads", 1, "--steps", steps, "--seed", seed,
                "--method", method, *more, "--optimizer", f"sgd(lr={rate:g},momentum=0.9)")

    def learning(self, form, rate, seed):
        """Losses by step, seconds, the command of a run; made once for both figures."""
        key = form[0], rate, seed
        if key not in self.found:
            self.found[key] = self.losses(self.words(form, rate, seed, self.STEPS), self.EVERY)
        return self.found[key]

    def plainly(self, form):
        """Bytes that all send in STEPS steps, their seconds, the command: of a run without evaluations."""
        never = 10 * self.STEPS
        summary, _, command = self.train(*self.words(form, self.RATES[2], 1, self.STEPS), "--report-every", never,
                                   "--eval-every", never, "--final-eval", "off")
        return summary["bytes_sent_total"], summary["wall_seconds"], command

    def best(self, form, what, merit=last, merit_name="loss"):
        got = self.tuned(f"{form[0]}, {what}", self.RATES, lambda rate, seed: self.learning(form, rate, seed), merit,
                         merit_name)
        if got is None:
            return None
        rate, runs, means = got
        return [merit(runs[seed][0]) for seed in self.seeds], runs[self.seeds[-1]][2], dict(rate=rate, means=means)

    def sparseloco(self):
        where, forms = f"mlp(hidden=256), {N} workers", (DILOCO, MEAN, *SPARSE)
        plain = dict(zip(forms, self.all(self.plainly, [(form,) for form in forms])))
        sent = {form: plain[form][0] for form in forms}
        worst = None
        for form in forms:
            got = self.best(form, f"after {self.STEPS} steps")
            if form in SPARSE:
                self.row(f"{form[0]}, {where}: times fewer bytes than diloco", sent[DILOCO] / sent[form], "",
                         plain[form][2], bytes=sent[form], diloco_bytes=sent[DILOCO])
            if got is None:
                continue
            losses, command, facts = got
            if form == DILOCO:
                worst = max(losses)
            against = dict(ratio=statistics.mean(losses) / worst, against="the worst of diloco's seeds") \
                if worst is not None and form != DILOCO else {}
            self.row(f"{form[0]}, {where}: loss after {self.STEPS} steps", statistics.mean(losses), "nats", command,
                     all=losses, **against, **facts)

    def time(self):
        reach = lambda losses: next((step for step in sorted(losses) if losses[step] is not None
                                     and losses[step] <= self.LOSS), math.inf)
        base, what = None, f"seconds to a loss of {self.LOSS:g}"
        for form in (DDP, *OTHERS, DILOCO, MEAN, *SPARSE):
            name = f"{form[0]}, mlp(hidden=256), {N} workers, 100Mbps: {what}"
            got = self.best(form, what, reach, f"steps to a loss of {self.LOSS:g}")
            if got is None:
                continue
            steps, command, facts = got
            if math.inf in steps:
                self.record.absent(name, f"of {self.STEPS} steps, seeds have it after {steps}")
                continue
            a_step = self.plainly(form)[1] / self.STEPS
            seconds = statistics.mean(steps) * a_step
            base = seconds if form == DDP else base
            against = dict(ratio=base / seconds, against="ddp's (times sooner)") if base else {}
            self.row(name, seconds, "s", command, steps=steps, a_step=a_step, **facts, **against)


if __name__ == "__main__":
    main(__doc__, "diloco", Diloco, Diloco.FIGURES)
