#!/usr/bin/env python3
"""hermes on devices at the edge.

bench/run edge measures, judges and keeps (bench/results/edge.jsonl). This file alone prints:

    bench/papers/edge.py [--jobs N] [--quick] [--keep] [--date YYYY-MM-DD]

TUTTI names another command than that of the release. In virtual time (--transport sim), so other work
on the machine does not change it. Three seeds.

Eight hosts of the platform `edge`, whose speeds and links are drawn from one to ten times;
mlp(hidden=64) on mnist(distort=0.5), the last 1000 training samples held out of the training of all
workers. How long, and how many bytes, until the test accuracy is 90 %. The model is evaluated every
8192 samples or so, for which all workers must meet, asynchronous ones too.

All methods have the same grid of learning rates (plain sgd, constant) and mini-batches of 16 samples
a worker; ddp may take ones of 64 as well. Of each method the setting with the least mean time over
the seeds counts; a best rate at the border of the grid is reported and nothing is judged.
parameter-server has ddp's bits, so it has ddp's settings. hermes has its defaults but for the chunk:
512 samples, handed out whole (--batch), since over slow links each hand-out is a way there and back.
hermes(push=always) shows the gain of pushing only when it helps. `single` on the first host alone,
with mini-batches of 16, shows the gain of the other hosts."""
import math, os, statistics, subprocess, sys, tempfile

sys.dont_write_bytecode = True
from gossip import Diverged, Gossip, main  # noqa: E402

RATES = (0.025, 0.05, 0.1, 0.2, 0.4, 0.8)
SAMPLES, LOOK = 160000, 8192  # of a run at most; between two looks
HERMES, ALWAYS = "hermes(chunk=512)", "hermes(chunk=512,push=always)"
NEVER_THERE = (math.inf, math.inf, "")


class Edge(Gossip):
    def settings(self, method):
        return [16] if method == "single" else [512] if method.startswith("hermes") else [16, 64]

    def until(self, platform, method, batch, rate, seed):
        """Seconds and bytes until the target, and the command; infinite where it is not reached."""
        n = 1 if method == "single" else 8
        try:
            summary, _, command = self.train("--model", "mlp(hidden=64)", "--data", "mnist(distort=0.5)",
                                             "--validation", 1000, "-n", n, "--batch", batch, "--transport", "sim",
                                             "--platform", platform, "--threads", 1, "--method", method,
                                             "--optimizer", f"sgd(lr={rate:g})", "--steps", SAMPLES // (n * batch),
                                             "--eval-every", max(1, LOOK // (n * batch)), "--target", "accuracy=0.9",
                                             "--final-eval", "off", "--seed", seed)
        except Diverged:
            return NEVER_THERE
        seconds = summary["time_to_target_seconds"]
        return NEVER_THERE if seconds is None else (seconds, summary["bytes_sent_total"], command,
                                                    summary.get("method_figures", {}))

    def best(self, platform, method, settings):
        cases = [(batch, rate, seed) for batch, rate in settings for seed in self.seeds]
        found = dict(zip(cases, self.all(lambda *case: self.until(platform, method, *case), cases)))
        means = {(batch, rate): statistics.mean(found[batch, rate, seed][0] for seed in self.seeds) for batch,
                 rate in settings}
        batch, rate = min(means, key=means.get)
        shown = {f"{b}, {r:g}": round(mean, 2) if math.isfinite(mean) else None for (b, r), mean in means.items()}
        print(f"    {method}: mean seconds by batch and rate {shown}", flush=True)
        if math.isinf(means[batch, rate]):
            self.record.absent(method, f"not at the target after {SAMPLES} samples with all seeds, at any rate")
            return None
        if rate in (RATES[0], RATES[-1]) and len({r for _, r in settings}) > 2:
            self.record.absent(method, f"its best rate, {rate:g}, is at the border of the grid")
            return None
        return batch, rate, [found[batch, rate, seed] for seed in self.seeds], shown

    def run(self):
        grid = lambda method: [(batch, rate) for batch in self.settings(method) for rate in RATES]
        got = {}
        with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
            platform = os.path.join(folder, "edge.xml")
            self.places[folder] = "DIR"
            with open(platform, "w") as f:
                f.write(subprocess.run([self.tutti, "platform", "edge(n=8)"], stdout=subprocess.PIPE, text=True,
                                       check=True).stdout)
            for method in (HERMES, "ddp", ALWAYS, "single"):
                got[method] = self.best(platform, method, grid(method))
            if got["ddp"] is not None:
                got["parameter-server"] = self.best(platform, "parameter-server", [(16, got["ddp"][1]), got["ddp"][:2]]
                                                    if got["ddp"][0] != 16 else [got["ddp"][:2]])
        if got[HERMES] is None:
            return
        _, rate, runs, means = got[HERMES]
        for method in ("ddp", "parameter-server", ALWAYS, "single"):
            if got.get(method) is None:
                continue
            batch, base_rate, base, base_means = got[method]
            facts = dict(rate=rate, means=means, base_batch=batch, base_rate=base_rate, base_means=base_means,
                         base_command=base[-1][2], seconds=[r[0] for r in runs], base_seconds=[r[0] for r in base],
                         bytes=[r[1] for r in runs], base_bytes=[r[1] for r in base],
                         pushes=[sum(r[3]["pushes"]) for r in runs], rounds=[sum(r[3]["rounds"]) for r in runs])
            for k, what in enumerate(("times sooner", "times fewer bytes")):
                ratios = [b[k] / r[k] for r, b in zip(runs, base)]
                if method != "single" or k == 0:
                    name = "single on the first of them" if method == "single" else method
                    self.row(f"hermes, 8 devices at the edge, 90 % on mnist(distort=0.5): {what} than {name}, "
                             f"least of {len(ratios)} seeds",
                             min(ratios), "", runs[-1][2], all=ratios, **facts)


if __name__ == "__main__":
    main(__doc__, "edge", Edge, ())
