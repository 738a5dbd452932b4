#!/usr/bin/env python3
"""Figures of Wavelet: what waves hold of memory, what they hide of exchanges, and what being a wave late costs.

bench/run wavelet [--piece FIGURE] measures, judges and keeps them (bench/results/wavelet.jsonl). This
file alone prints them:

    bench/papers/wavelet.py [FIGURE ...] [--jobs N] [--quick] [--keep] [--date YYYY-MM-DD]

TUTTI names another command than that of the release.

memory   a gpt of 12 layers on 2 workers, processes: the most that micro-batches under way held, of what
         the measured profile has predicted, and of what one wave holds. Bytes are counted, not timed.
step     virtual time, a gpt of 6 layers on 4 workers, an all-reduce of it takes 1/20 to 2 times as long
         as computing. The bound of a step, of a step: a wave computes T and exchanges C, so with two
         of them on one thread and one line no step is shorter than T, (T + C) / 2 and C. T and C are
         those of waves=1, which does one after the other. And a step of ddp and of pipe-sgd, of this.
loss     4 workers, mlp(hidden=64), two epochs of all of MNIST, three seeds: accumulate's test loss, off
         from ddp's with the same optimizer; how far shared's accuracy is behind ddp's, each with its
         own default optimizer, and with ddp's."""
import os, statistics, subprocess, sys

sys.dont_write_bytecode = True
from gossip import Papers, main  # noqa: E402
from command import small_text  # noqa: E402  (gossip knows where)

SECONDS = 0.05  # a step's computation
TIMES = (0.05, 0.25, 0.5, 1, 2)
OF_DDP = "sgd(lr=0.05,momentum=0.9)"


class Wavelet(Papers):
    FIGURES = ("memory", "step", "loss")
    SAMPLES = 600, 200

    def prepare(self):
        self.text = small_text(self.folder)

    def gpt(self, layers, context, n, method, steps, *more):
        """The summary of a run of `steps` steps, and the command."""
        summary, _, command = self.train("--model", f"gpt(layers={layers},dim=64,heads=4)", "--data",
                                         f"text(file={self.text},context={context},val_windows=8)", "-n", n,
                                         "--batch", 8, "--threads", 1, "--steps", steps, "--report-every", steps,
                                         "--eval-every", 1000, "--final-eval", "off", "--seed", 1, "--method", method,
                                         *more)
        return summary, command

    def memory(self):
        of = lambda method: self.gpt(12, 64, 2, method, 12 if self.quick else 40)
        figures, _ = of("wavelet(waves=1)")
        one = figures["method_figures"]["peak_bytes"][0]
        for method in ("wavelet", "wavelet(waves=3)", "wavelet(sync_mode=accumulate)"):
            summary, command = of(method)
            figures = summary["method_figures"]
            peak, predicted = figures["peak_bytes"][0], figures["predicted_peak_bytes"][0]
            facts = dict(bytes=peak, valley_fill=figures["valley_fill"][0])
            name = f"{method}, gpt of 12 layers, 2 workers: the most that was held"
            self.row(f"{name}, of the prediction", peak / predicted, "", command, **facts)
            self.row(f"{name}, of one wave's", peak / one, "", command, **facts)

    def step(self):
        n, steps = 4, 24 if self.quick else 96
        params = self.gpt(6, 16, n, "single", 1, "--transport", "sim")[0]["params"]
        for times in TIMES:
            platform = os.path.join(self.folder, f"cluster-{times:g}.xml")
            with open(platform, "w") as f:
                rate = 8e-6 * 2 * (n - 1) / n * 4 * params / (times * SECONDS)
                subprocess.run([self.tutti, "platform", f"cluster(n={n},rate={rate:.3f}Mbps)"], check=True, stdout=f)
            of = lambda method: self.gpt(6, 16, n, method, steps, "--transport", "sim", "--platform", platform,
                                         "--step-time", SECONDS)
            one, _ = of("wavelet(waves=1)")
            computing, exchanging = (one[key] / steps for key in ("compute_seconds", "exposed_comm_seconds"))
            bound = max(computing, exchanging, (computing + exchanging) / 2)
            summary, command = of("wavelet")
            mine = summary["wall_seconds"] / steps
            facts = dict(ms=1e3 * mine, computing_ms=1e3 * computing, exchanging_ms=1e3 * exchanging)
            name = f"wavelet, gpt, 4 workers, exchanging {times:g} of computing"
            self.row(f"{name}: the bound of a step, of this", bound / mine, "", command, **facts)
            for other in ("ddp", "pipe-sgd(warmup=0)"):
                self.row(f"{name}: a step of {other}, of this", of(other)[0]["wall_seconds"] / steps / mine, "",
                         command, **facts)

    def loss(self):
        def ended(method, seed, *more):
            summary, _, command = self.train("--model", "mlp(hidden=64)", "--data", "mnist", "-n", 4, "--threads", 1,
                                             "--epochs", 2, "--seed", seed, "--method", method, *more)
            return summary["final_test_loss"], 100 * summary["final_test_accuracy"], command
        ddp = [ended("ddp", seed) for seed in self.seeds]
        for name, method, more in (("wavelet(sync_mode=accumulate), ddp's optimizer", "wavelet(sync_mode=accumulate)",
                                    ("--optimizer", OF_DDP)),
                                   ("wavelet(sync_mode=average), ddp's optimizer", "wavelet(sync_mode=average)",
                                    ("--optimizer", OF_DDP)),
                                   ("wavelet, its own optimizer", "wavelet", ()),
                                   ("wavelet, ddp's optimizer", "wavelet", ("--optimizer", OF_DDP))):
            mine = [ended(method, seed, *more) for seed in self.seeds]
            facts = dict(accuracies=[run[1] for run in mine], of_ddp=[run[1] for run in ddp])
            name = f"{name}, mlp(hidden=64), 4 workers, 2 epochs"
            self.row(f"{name}: points of accuracy behind ddp", statistics.mean(b[1] - a[1] for a, b in zip(mine, ddp)),
                     "points", mine[-1][2], **facts)
            if "accumulate" in method:
                self.row(f"{name}: test loss, off from ddp's, worst of the seeds",
                         max(abs(a[0] / b[0] - 1) for a, b in zip(mine, ddp)), "", mine[-1][2], **facts)


if __name__ == "__main__":
    main(__doc__, "wavelet", Wavelet, Wavelet.FIGURES)
