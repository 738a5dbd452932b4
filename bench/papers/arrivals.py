#!/usr/bin/env python3
"""Figures of the papers on methods with one server, and of ATA: bench/run arrivals [--piece FIGURE] measures, judges and keeps them (bench/results/arrivals.jsonl); this file alone prints them:

    bench/papers/arrivals.py [FIGURE ...] [--jobs N] [--quick] [--keep] [--date YYYY-MM-DD]        TUTTI names another command than that of the release

All are in virtual time (--transport sim), so other work on the machine does not change them. Three seeds each.

unlike      16 workers from 1 to 16 times as slow, Dirichlet(0.1) data, a gradient is over all of a worker's part: the error of the end, relative to the beginning's, of ringleader-asgd and dude-asgd, of plain asgd and of
            ddp, on quadratic and logistic (there against the least loss that ddp finds in ten times as many steps), each at its own best rate; and the virtual time to 1e-5 (logistic: 1e-2) of it against ddp's. Without noise
            all three have the same bound, L Delta / eps tau_n, so the ratio predicted is 1 (ringleader-asgd.md, dude-asgd.md).
noise       the same data with batches of one sample, so that noise decides: time to an error of 1e-3, of ddp over ringleader-asgd; the bounds' ratio is tau_n / tau_avg.
limit       ringmaster-asgd, n = 16, 64, 256 workers of speed 1/i: the longest that R updates in a row take, of 2 min_m ((sum_{i<=m} 1/tau_i)^-1 (R + m)).
thresholds  ringmaster-asgd, 64 workers of speed 1/i: error after the same virtual time for R = 1, n/16, n/4, n, 4n and none, each at its best rate; that of the best R of those between, of that of the better end.
allocation  ata, 17 and 51 workers of speed 1/i with random pauses: work (worker seconds) of a step in the second half of a run, of the best allocation's for the known means.
semi        oscars, 4 workers of which two are 2 and 4 times slower: how much sooner than ddp it has ddp's loss, beside ssp, asgd and local-sgd; bytes a gradient.

A piece is a figure or the beginning of one's parts: unlike/quadratic, unlike/logistic/dude-asgd, limit/256/on/256, allocation/51, semi/oscars."""
import argparse, datetime, math, os, statistics, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "bench/papers"), os.path.join(ROOT, "tests/cli")]
os.environ.setdefault("TUTTI", os.path.join(ROOT, "build/release/bin/tutti"))
os.environ.setdefault("TUTTI_DATA", os.path.join(ROOT, "data"))
import record as records  # noqa: E402
from command import TUTTI, small_mnist  # noqa: E402
from gossip import Diverged, Gossip  # noqa: E402

SPREAD = [1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 6, 8, 12, 16]


def slow(factors):
    return ",".join("%d:%g" % (r, f) for r, f in enumerate(factors) if f > 1)


def best_allocation(tau, tasks):
    """The greedy of ata.md, which is optimal."""
    best = [0] * len(tau)
    for _ in range(tasks):
        best[min(range(len(tau)), key=lambda r: (best[r] + 1) * tau[r])] += 1
    return best


class Arrivals(Gossip):
    def run_simulated(self, *words):
        """Summary and command; (None, command) if it diverged."""
        try:
            summary, _, command = self.train("--transport", "sim", *words)
        except Diverged:
            return None, ""
        return summary, command

    def tells(self, name, what):
        print(f"    {name}: {what}", flush=True)

    # ---- unlike data ----
    PROBLEMS = {"quadratic": "quadratic(dim=50,condition=10,noise=0,skew=1,samples=512,seed=%d)", "logistic": "logistic(dim=10,classes=4,noise=0.2,samples=512,seed=%d)"}
    COUNT = {"ddp": 400, "asgd": 1600, "dude-asgd": 1600, "ringleader-asgd": 12000}  # about 64 s of virtual time, but for asgd, which has as many gradients as dude-asgd
    RATES = [2.0 ** -k for k in range(-1, 8)]

    def unlike_run(self, problem, seed, method, rate, count, *more):
        return self.run_simulated("--model", self.PROBLEMS[problem] % seed, "--partition", "dirichlet(alpha=0.1,even=on)", "-n", 16, "--batch", 32, "--step-time", 0.01, "--slow", slow(SPREAD), "--seed", seed,
                                  "--method", method, "--optimizer", "sgd(lr=%g)" % rate, "--steps", count, *more)

    def ends(self, problem, method):
        """The best rate, errors of its runs by seed, seconds to the goal by seed, a command."""
        goal = 1e-5 if problem == "quadratic" else 1e-2
        rate_of, errors, seconds, command = [], [], [], ""
        for seed in self.seeds:
            first = self.unlike_run(problem, seed, "ddp", 0, 1)[0]["final_train_loss"]
            least = 0 if problem == "quadratic" else self.unlike_run(problem, seed, "ddp", 2, 4000)[0]["final_train_loss"]
            def error(s):
                return math.inf if s is None or s["final_train_loss"] is None else (s["final_train_loss"] - least) / (first - least)
            runs = {rate: self.unlike_run(problem, seed, method, rate, self.COUNT[method]) for rate in self.RATES}
            found = {rate: error(s) for rate, (s, _) in runs.items()}
            rate = min(found, key=found.get)
            rate_of.append(rate)
            errors.append(found[rate])
            command = runs[rate][1]
            times = [math.inf]
            for near in (rate, 2 * rate, rate / 2) if found[rate] < goal else ():
                s, _ = self.unlike_run(problem, seed, method, near, self.COUNT[method], "--eval-every", max(1, self.COUNT[method] // 400), "--target", "loss=%.9g" % (least + goal * (first - least)))
                times += [s["time_to_target_seconds"]] if s is not None and s["time_to_target_seconds"] else []
            seconds.append(min(times))
            self.tells(f"{method}, {problem}, seed {seed}", f"rate {rate:g}, error {found[rate]:.3g}, {min(times):.4g} s to {goal:g}")
        return rate_of, errors, seconds, command

    def unlike(self):
        for problem in self.PROBLEMS:
            chosen = [m for m in self.COUNT if self.chosen(f"unlike/{problem}/{m}")]
            if not chosen:
                continue
            base = self.ends(problem, "ddp")
            for method in chosen:
                rates, errors, seconds, command = base if method == "ddp" else self.ends(problem, method)
                bound = dict(bound=1e-6, better="less") if problem == "quadratic" and method in ("dude-asgd", "ringleader-asgd") else {}
                self.row(f"{method}, 16 workers from 1 to 16 times as slow, unlike data, {problem}: error at the end", max(errors), "", command, all=errors, rates=rates, **bound)
                if method in ("dude-asgd", "ringleader-asgd"):
                    self.time_row(f"{method}, the same, {problem}: time to a small error, of ddp's, off from the bounds' ratio, 1", [t / b for t, b in zip(seconds, base[2])], 1, command, seconds=seconds, ddp_seconds=base[2])

    def time_row(self, name, ratios, due, command, **more):
        if not all(map(math.isfinite, ratios)):
            return self.record.absent(name, f"some seeds do not get there: {ratios}")
        self.row(name, 100 * abs(statistics.mean(ratios) / due - 1), "%", command, bound=10, better="less", ratios=ratios, due=due, **more)

    def noise(self):
        COUNT = {"ddp": 2000, "ringleader-asgd": 8000, "dude-asgd": 8000}
        seconds, command = {m: [] for m in COUNT}, ""
        for seed in self.seeds:
            def one(method, rate, count, *more):
                return self.run_simulated("--model", "quadratic(dim=50,condition=1,noise=1,skew=1,samples=4096,seed=%d)" % seed, "--partition", "dirichlet(alpha=0.1,even=on)", "-n", 16, "--batch", 1, "--step-time", 0.01,
                                          "--slow", slow(SPREAD), "--seed", seed, "--method", method, "--optimizer", "sgd(lr=%g)" % rate, "--steps", count, *more)
            first = one("ddp", 0, 1)[0]["final_train_loss"]
            for method in COUNT:
                times = [math.inf]
                for rate in [2.0 ** -k for k in range(3, 11)]:
                    s, words = one(method, rate, COUNT[method], "--eval-every", max(1, COUNT[method] // 200), "--target", "loss=%g" % (1e-3 * first))
                    if s is not None and s["time_to_target_seconds"]:
                        times.append(s["time_to_target_seconds"])
                        command = words
                seconds[method].append(min(times))
            self.tells(f"noise, seed {seed}", {m: t[-1] for m, t in seconds.items()})
        self.time_row("ringleader-asgd, 16 workers from 1 to 16 times as slow, unlike data, batches of one: how much sooner than ddp at an error of 1e-3, off from the bounds' ratio tau_n / tau_avg",
                      [d / r for d, r in zip(seconds["ddp"], seconds["ringleader-asgd"])], max(SPREAD) / statistics.mean(SPREAD), command, seconds=seconds)

    # ---- ringmaster-asgd ----
    def limit(self):
        for n in (16,) if self.quick else (16, 64, 256):
            for stops in ("off", "on"):
                for R in (max(1, n // 16), n // 4, n):
                    if not self.chosen(f"limit/{n}/{stops}/{R}"):
                        continue
                    harmonic, bound = 0, math.inf
                    for m in range(1, n + 1):
                        harmonic += 1 / (0.01 * m)
                        bound = min(bound, 2 * (R + m) / harmonic)
                    runs = [self.run_simulated("--model", "quadratic(dim=10,samples=8192)", "-n", n, "--batch", 1, "--steps", 8 if n > 16 else 16, "--step-time", 0.01, "--slow", slow(range(1, n + 1)), "--seed", seed,
                                               "--method", f"ringmaster-asgd(max_delay={R},stops={stops})", "--optimizer", "sgd(lr=0.001)", "--final-eval", "off") for seed in self.seeds]
                    longest = [s["method_figures"]["limit_updates_seconds_max"] for s, _ in runs]
                    self.row(f"ringmaster-asgd, {n} workers of speed 1/i, stops {stops}: the longest that {R} updates in a row take", max(longest), "s", runs[-1][1], ratio=max(longest) / bound, against="its bound", bound=1,
                             better="less", of="ratio", all=longest, bound_seconds=bound, restarts=[s["restarts"] for s, _ in runs])

    def thresholds(self, n=64, virtual=4.0):
        rate_all = sum(1 / (0.01 * i) for i in range(1, n + 1))  # gradients a second, of all
        limits, parts, command = (1, n // 16, n // 4, n, 4 * n, -1), [], ""
        for seed in self.seeds:
            def one(method, rate, count):
                return self.run_simulated("--model", "quadratic(dim=50,condition=10,noise=0.3,samples=8192,seed=%d)" % seed, "-n", n, "--batch", 1, "--step-time", 0.01, "--slow", slow(range(1, n + 1)), "--seed", seed,
                                          "--method", method, "--optimizer", "sgd(lr=%g)" % rate, "--steps", count)
            first, ends = one("ddp", 0, 1)[0]["final_train_loss"], {}
            for R in limits:
                found = [one(f"ringmaster-asgd(max_delay={R})", 2.0 ** -k, int(virtual * rate_all / n)) for k in range(0, 9)]
                errors = [s["final_train_loss"] / first for s, _ in found if s is not None and s["final_train_loss"] is not None]
                ends[R], command = min(errors), found[-1][1]
            self.tells(f"thresholds, seed {seed}", {("none" if R < 0 else R): round(e, 6) for R, e in ends.items()})
            parts.append(min(ends[R] for R in limits[1:-1]) / min(ends[1], ends[-1]))
        self.row(f"ringmaster-asgd, {n} workers of speed 1/i: error after {virtual:g} s with the best R between, of that with R = 1 or without R", statistics.mean(parts), "", command, bound=1, better="less", all=parts)

    # ---- ata ----
    def allocation(self):
        for n in (17, 51):
            if not self.chosen(f"allocation/{n}"):
                continue
            tau, tasks = [0.01 * i * (1 + 0.5 * 0.3) for i in range(1, n + 1)], 4 * n  # *:1.5:0.3
            oracle = sum(a * t for a, t in zip(best_allocation(tau, tasks), tau))
            works, learning, command = [], [], ""
            for seed in self.seeds:
                def one(count):
                    s, words = self.run_simulated("--model", "quadratic(dim=10,samples=8192)", "-n", n, "--batch", 4, "--step-time", 0.04, "--slow", slow(range(1, n + 1)) + ",*:1.5:0.3", "--seed", seed, "--method", f"ata(tasks={tasks})",
                                                  "--optimizer", "sgd(lr=0.1)", "--steps", count, "--final-eval", "off")
                    return s["method_figures"]["work_seconds"], words
                (half, _), (whole, command) = one(150), one(300)
                works.append((whole - half) / 150 / oracle)
                learning.append(half / 150 / oracle)
            self.row(f"ata, {n} workers of speed 1/i with random pauses: work of steps 151 to 300, beyond the best allocation's", 100 * (max(works) - 1), "%", command, bound=10, better="less", all=works, of_the_first_half=learning)

    # ---- oscars ----
    def semi(self):
        rates, steps, grain, speeds = (0.003125, 0.00625, 0.0125, 0.025, 0.05, 0.1, 0.2), 160, 8, slow((1, 1, 2, 4))
        methods = [m for m in ("ssp(staleness=3)", "asgd", "local-sgd(period=8)", "oscars", "oscars(adapt=off)") if self.chosen("semi/" + m)]
        with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
            data = small_mnist(os.path.join(folder, "data"), 12000, 2000)
            self.places[folder] = "DIR"
            def words(method, rate, seed, n):
                return ("--model", "mlp(hidden=32)", "--data", data, "-n", 4, "--batch", 16, "--transport", "sim", "--step-time", 0.01, "--slow", speeds, "--steps", n, "--seed", seed, "--method", method,
                        "--optimizer", f"sgd(lr={rate:g},momentum=0.9)")
            if methods:
                self.faster("4 workers, two of them 2 and 4 times slower", words, "ddp", methods, rates, steps, grain, {"oscars": 1.5})
            if not self.chosen("semi/bytes"):
                return
            base = self.train(*words("ddp", 0.025, self.seeds[0], steps))[0]["bytes_sent_total"]
            for method in ("oscars", "oscars(adapt=off)"):
                sent = [self.train(*words(method, 0.025, seed, steps)) for seed in self.seeds]
                parts = [s["bytes_sent_total"] / base for s, _, _ in sent]
                self.row(f"{method}, 4 workers, two of them 2 and 4 times slower: bytes, of ddp's for as many gradients", max(parts), "", sent[-1][2], bound=1 / 8, better="less", all=parts,
                         rounds=[s["method_figures"]["rounds"] for s, _, _ in sent])

    def run(self):
        for figure in FIGURES:
            if figure.startswith(self.piece.split("/")[0]):
                getattr(self, figure)()


FIGURES = ("unlike", "noise", "limit", "thresholds", "allocation", "semi")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=", ".join(FIGURES) + ", or a part of one")
    parser.add_argument("--jobs", type=int, default=1, help="runs at one time")
    parser.add_argument("--quick", action="store_true", help="one seed, to see that it works")
    parser.add_argument("--keep", action="store_true", help="add the rows to bench/results")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    given = parser.parse_args()
    record = records.Recorder(TUTTI, given.date, given.keep and not given.quick)
    record.part("arrivals")
    for piece in given.figures or FIGURES:
        if piece.split("/")[0] not in FIGURES:
            parser.error(f"there is no figure '{piece}'; they are {', '.join(FIGURES)}")
        Arrivals(TUTTI, record, given.quick, given.jobs, piece).run()


if __name__ == "__main__":
    main()
