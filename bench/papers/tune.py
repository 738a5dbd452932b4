#!/usr/bin/env python3
"""Figures of runs that tune themselves (tutti_tune_declare): what tuning costs, and that it never ends worse.

bench/run tune [--piece FIGURE] measures, judges and keeps them (bench/results/tune.jsonl). This file
alone prints them:

    bench/papers/tune.py [FIGURE ...] [--jobs N] [--quick] [--keep] [--date YYYY-MM-DD]

TUTTI names another command than that of the release.

ask      CPU time of one question to the tuner after 60 observations, relative to the least that it
         needs: the Cholesky factors and solves, and the covariances (bench/tune_bench.c)
virtual  virtual time, 4 workers: communication is 1/4 to 4 times as long as computation; small and
         large pieces to begin with. A step once tuning is over, of a step of the same run without
         tuning; what asking and broadcasts took of the whole run. Nothing is noisy there.
pairs    this machine, 2 workers, shm: runs with and without tuning in turn. A step of the last
         quarter, relative to the default's median, with the range of the default's own runs for
         comparison. It needs a machine on which nothing else runs."""
import json, os, statistics, subprocess, sys

sys.dont_write_bytecode = True
from gossip import Papers, main  # noqa: E402

N, COMPUTE, POINTS, WINDOW, AFTER = 4, 0.01, 15, 20, 150
MODEL, PARAMS = "mlp(hidden=128)", 784 * 128 + 128 + 128 * 128 + 128 + 128 * 10 + 10
# What it begins with, and what is added to have it tuned.
METHODS = [("bagua(bucket_mb=0.02)", f"autotune=on,max_samples={POINTS},sample_steps={WINDOW}"),
           ("bagua(bucket_mb=10)", f"autotune=on,max_samples={POINTS},sample_steps={WINDOW}"),
           ("bytescheduler(partition_mb=0.02,credit_mb=0.04)", f"tune=both,tune_points={POINTS},tune_steps={WINDOW}"),
           ("bytescheduler(partition_mb=4,credit_mb=16)", f"tune=both,tune_points={POINTS},tune_steps={WINDOW}")]


def tuning(method, options):
    return method[:-1] + "," + options + ")"


class Tune(Papers):
    FIGURES = ("ask", "virtual", "pairs")

    def ask(self):
        build = os.path.dirname(os.path.dirname(self.tutti))
        subprocess.run(["cmake", "--build", build, "--target", "tune_bench"], check=True, stdout=subprocess.DEVNULL)
        done = subprocess.run([os.path.join(build, "bench/tune_bench"), "1" if self.quick else "20"],
                              capture_output=True, text=True, check=True)
        for line in done.stdout.splitlines():
            got = json.loads(line)
            if got["points"] == 60:
                self.record.row(f"asking the tuner, 60 points told, {got['knobs']} knob{'s'[:got['knobs'] - 1]}",
                                1e3 * got["ask"], "ms", got["ask"] / got["limit"],
                                "its factors, solves and covariances alone", command="bench/run tune")

    def of_the_end(self, words, steps):
        """Milliseconds of a step of the last AFTER ones, the summary, the command. Reports come every AFTER steps."""
        summary, lines, command = self.train(*words, "--steps", steps, "--report-every", AFTER, "--final-eval", "off")
        ends = [line for line in lines if "wall_seconds" in line][-2:]
        took, made = (ends[1][key] - ends[0][key] for key in ("wall_seconds", "step"))
        return 1e3 * took / made, summary, command

    def steps(self):
        """The number of steps with which tuning is over AFTER steps before the end, in whole reports: windows with
        what is dropped."""
        return -(-(POINTS + 6) * (WINDOW + max(2, WINDOW // 10)) // AFTER) * AFTER + AFTER

    def platform(self, times):
        """Links with which an all-reduce of the model takes `times` times COMPUTE, apart from
        latencies."""
        mbits = 8e-6 * 2 * (N - 1) / N * 4 * PARAMS / (times * COMPUTE)
        path = os.path.join(self.folder, f"cluster-{mbits:.0f}.xml")
        with open(path, "w") as f:
            subprocess.run([self.tutti, "platform", f"cluster(n={N},rate={mbits:.3f}Mbps)"], check=True, stdout=f)
        return path

    def virtual(self):
        for times in (0.25, 1, 4):
            words = ("--model", MODEL, "--data", self.data, "-n", N, "--batch", 16, "--transport", "sim", "--platform",
                     self.platform(times), "--step-time", COMPUTE, "--threads", 1, "--seed", 1, "--method")
            for method, options in METHODS:
                plain, _, _ = self.of_the_end((*words, method), self.steps())  # its epochs end where the other's do
                tuned, summary, command = self.of_the_end((*words, tuning(method, options)), self.steps())
                figures = summary["method_figures"]
                name = f"{method}, 4 workers, communication {times:g} of computation, tuned"
                self.row(f"{name}: a step once it is over, of one without tuning", tuned / plain, "", command,
                         plain_ms=plain, tuned_ms=tuned,
                         **{key: value for key, value in figures.items() if key.startswith("tune_")})
                self.row(f"{name}: what asking and broadcasts took of the run",
                         100 * figures["tune_seconds"] / summary["wall_seconds"], "%", command)

    def pairs(self):
        words = ("--model", "mlp", "--data", self.data, "-n", 2, "--batch", 16, "--threads", 1, "--seed", 1, "--method")
        for method, options in METHODS:
            plain, tuned, took = [], [], []
            for _ in range(2 if self.quick else 8):
                plain.append(self.of_the_end((*words, method), self.steps())[0])
                one, summary, command = self.of_the_end((*words, tuning(method, options)), self.steps())
                tuned.append(one)
                took.append(100 * summary["method_figures"]["tune_seconds"] / summary["wall_seconds"])
            middle = statistics.median(plain)
            self.record.row(f"{method}, 2 workers, shm, tuned: a step of the last quarter, of the default's median",
                            statistics.median(tuned) / middle, "",
                            (statistics.median(tuned) - middle) / (max(plain) - min(plain)),
                            "the range of the default's runs", command=command, pairs=len(plain), timed=True,
                            plain_ms=plain, tuned_ms=tuned)
            self.record.row(f"{method}, 2 workers, shm, tuned: what asking and broadcasts took of the run",
                            statistics.median(took), "%", command=command, pairs=len(plain), timed=True)


if __name__ == "__main__":
    main(__doc__, "tune", Tune, Tune.FIGURES)
