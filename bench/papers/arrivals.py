#!/usr/bin/env python3
"""Figures of the papers on methods with one server, and of ATA.

bench/run arrivals [--piece FIGURE] measures, judges and keeps them (bench/results/arrivals.jsonl).
This file alone prints them:

    bench/papers/arrivals.py [PIECE ...] [--jobs N] [--quick] [--keep] [--date YYYY-MM-DD]

TUTTI names another command than that of the release. All are in virtual time (--transport sim), so
other work on the machine does not change them. Three seeds each.

unlike      16 workers from 1 to 16 times as slow, Dirichlet(0.1) data, a gradient is over all of a
            worker's part: the error of the end, relative to the beginning's, of ringleader-asgd and
            dude-asgd, of plain asgd and of ddp, on quadratic and logistic (there against the least
            loss that ddp finds in ten times as many steps), each at its own best rate and for as
            long.
bounds      the same quadratic at the steps of the theory, which the bounds are for: time to an
            error of 1e-5 against ddp's and each other's, as predicted by the bounds with their
            steps' constants.
noise       the same data with batches of one sample, so that noise decides, at rates that leave the
            same of it: time of ddp over that of ringleader-asgd and dude-asgd; the bounds' ratios
            are tau_n / tau_avg and 1.
limit       ringmaster-asgd, n = 16, 64, 256 workers of speed 1/i: the longest that R updates in a
            row take, of 2 min_m ((sum_{i<=m} 1/tau_i)^-1 (R + m)).
thresholds  ringmaster-asgd, 64 workers of speed 1/i: error after the same virtual time for R = 1,
            n/16, n/4, n, 4n and none, each at its best rate; that of the best R of those between,
            of that of the better end.
allocation  ata, 17 and 51 workers of speed 1/i with random pauses: work (worker seconds) of a step
            in the second half of a run, of the best allocation's for the known means.
semi        oscars, 4 workers, two of them 2 and 4 times slower: how much sooner than ddp it has
            ddp's loss, compared with ssp, asgd and local-sgd; bytes a gradient.

A piece is a figure or the beginning of one's parts: unlike/quadratic, unlike/logistic/dude-asgd,
limit/256/on/256, allocation/51, semi/oscars."""
import heapq, math, os, statistics, sys, tempfile

sys.dont_write_bytecode = True
from gossip import NEVER, Diverged, Gossip, main  # noqa: E402
from command import small_mnist  # noqa: E402

SPREAD = [1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 6, 8, 12, 16]


def slow(factors):
    return ",".join("%d:%g" % (r, f) for r, f in enumerate(factors) if f > 1)


def best_allocation(tau, tasks):
    """The greedy of ATA's paper (docs/methods/ata.md), which is optimal."""
    best = [0] * len(tau)
    for _ in range(tasks):
        best[min(range(len(tau)), key=lambda r: (best[r] + 1) * tau[r])] += 1
    return best


def round_of(tau, rounds=200):
    """Of ringleader-asgd, means over rounds, by the method's rule alone: seconds of a round; and its B.

    Workers compute one gradient after the other, messages take no time. Of B the noise in the sum of
    a round's n directions is sigma^2 n / B: the harmonic mean of the counts, if all n updates found
    the same."""
    n = len(tau)
    arrivals = [(t, i) for i, t in enumerate(tau)]
    heapq.heapify(arrivals)
    counts, later, unserved, began, lengths, noises = [0] * n, [0] * n, None, 0, [], []
    # of a worker's gradient that is there from the first update on; what that was when each of its
    # gradients came
    weight, since = [0.0] * n, [[] for _ in tau]
    while len(lengths) < rounds:
        now, i = heapq.heappop(arrivals)
        heapq.heappush(arrivals, (now + tau[i], i))
        if unserved is not None and i not in unserved:
            later[i] += 1
            continue
        counts[i] += 1
        since[i].append(weight[i])
        if unserved is None and not all(counts):
            continue
        unserved = (set(range(n)) if unserved is None else unserved) - {i}
        weight = [w + 1 / b for w, b in zip(weight, counts)]
        if not unserved:
            lengths.append(now - began)
            noises.append(sum((w - s) ** 2 for w, came in zip(weight, since) for s in came))
            counts, later, unserved, began, weight = later, [0] * n, None, now, [0.0] * n
            since = [[0.0] * b for b in counts]
    return statistics.mean(lengths[rounds // 10:]), n ** 3 / statistics.mean(noises[rounds // 10:])


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
    PROBLEMS = {"quadratic": "quadratic(dim=50,condition=10,noise=0,skew=1,samples=512,seed=%d)",
                "logistic": "logistic(dim=10,classes=4,noise=0.2,samples=512,seed=%d)"}
    COUNT = {"ddp": 400, "asgd": 3200, "dude-asgd": 3200, "ringleader-asgd": 3200}  # 64 s of virtual time, all of them
    RATES = {"quadratic": [2.0 ** -k for k in range(-1, 8)], "logistic": [2.0 ** -k for k in range(-4, 5)]}
    TAU = [0.01 * s for s in SPREAD]  # seconds a gradient

    def unlike_run(self, problem, seed, method, rate, count, *more):
        return self.run_simulated("--model", self.PROBLEMS[problem] % seed,
                                  "--partition", "dirichlet(alpha=0.1,even=on)", "-n", 16, "--batch", 32,
                                  "--step-time", 0.01, "--slow", slow(SPREAD), "--seed", seed, "--method", method,
                                  "--optimizer", "sgd(lr=%.9g)" % rate, "--steps", count, *more)

    def error_of(self, problem, seed):
        """A function of a summary: the loss's distance from the least, relative to the beginning's."""
        first = self.unlike_run(problem, seed, "ddp", 0, 1)[0]["final_train_loss"]
        least = 0 if problem == "quadratic" else self.unlike_run(problem, seed, "ddp", 2, 4000)[0]["final_train_loss"]
        def of(s):
            loss = None if s is None else s["final_train_loss"]
            return math.inf if loss is None else (loss - least) / (first - least)
        return of

    def seconds_to(self, error, goal, run, low, high, grain):
        """Of the shortest run found that ends with at most this error; inf: not even the longest does.

        run(steps) gives a summary. No evaluation on the way, for which all would wait for the
        slowest."""
        def after(steps):
            s, command = run(steps)
            return error(s), s["wall_seconds"] if s is not None else math.inf, command
        found = self.least_steps(after, goal, low, high, grain)
        return math.inf if found is None else found[1]

    def unlike(self):
        for problem in self.PROBLEMS:
            chosen = [m for m in self.COUNT if self.chosen(f"unlike/{problem}/{m}")]
            errors = {seed: self.error_of(problem, seed) for seed in self.seeds if chosen}
            for method in chosen:
                ends, best, command = [], [], ""
                for seed, error in errors.items():
                    runs = {rate: self.unlike_run(problem, seed, method, rate, self.COUNT[method])
                            for rate in self.RATES[problem]}
                    found = {rate: error(s) for rate, (s, _) in runs.items()}
                    # below that it is rounding
                    best.append(max(rate for rate, e in found.items() if e <= max(1e-7, min(found.values()))))
                    ends.append(found[best[-1]])
                    command = runs[best[-1]][1]
                    self.tells(f"{method}, {problem}, seed {seed}", f"rate {best[-1]:g}, error {ends[-1]:.3g}")
                title = f"{method}, 16 workers from 1 to 16 times as slow, unlike data, {problem}: error at the end"
                if any(rate in (self.RATES[problem][0], self.RATES[problem][-1]) for rate in best):
                    self.record.absent(title, f"a best rate is at the border of the grid: {best}")
                    continue
                self.row(title, max(ends), "", command, all=ends, rates=best)

    def time_row(self, name, ratios, due, command, **more):
        if not all(map(math.isfinite, ratios)):
            return self.record.absent(name, f"some seeds do not get there: {ratios}")
        self.row(name, 100 * abs(statistics.mean(ratios) / due - 1), "%", command, ratios=ratios, due=due, **more)

    def bounds(self):
        """Without noise the three bounds are of one form, a number times Delta / (eps rate) updates, so
        times are as 1 / (rate x updates a second):
        ddp               at 1 / L, an update every tau_n
        ringleader-asgd   at 1 / (8 n L), n a round
        dude-asgd         at 1 / (8 L tau_max) with tau_max the oldest gradient of its table, which
                          stands from one to the next of the slowest worker after that has
                          computed it
        L is 1 here."""
        n, slowest, all_rates = len(self.TAU), max(self.TAU), sum(1 / t for t in self.TAU)
        length, _ = round_of(self.TAU)
        pace = {"ddp": (1.0, 1 / slowest), "ringleader-asgd": (1 / (8 * n), n / length),
                "dude-asgd": (1 / (8 * 2 * slowest * all_rates), all_rates)}
        due = {m: pace["ddp"][0] * pace["ddp"][1] / (rate * updates) for m, (rate, updates) in pace.items()}
        seconds, command = {m: [] for m in pace}, {}
        for seed in self.seeds:
            error = self.error_of("quadratic", seed)
            for method, (rate, _) in pace.items():
                a_step = slowest if method == "ddp" else n / all_rates
                about = int((seconds["ddp"][-1] * due[method] if method != "ddp" else 60 * slowest) / a_step)
                def run(steps):
                    s, command[method] = self.unlike_run("quadratic", seed, method, rate, steps)
                    return s, command[method]
                seconds[method].append(self.seconds_to(error, 1e-5, run, about // 2, about * 3 // 2,
                                                       max(1, about // 200)))
            self.tells(f"bounds, seed {seed}", {m: t[-1] for m, t in seconds.items()})
        where = ("16 workers from 1 to 16 times as slow, unlike data, quadratic, steps of the theory: "
                 "time to an error of 1e-5")
        for method in ("ringleader-asgd", "dude-asgd"):
            self.time_row(f"{method}, {where}, of ddp's, off from the bounds' ratio",
                          [t / d for t, d in zip(seconds[method], seconds["ddp"])], due[method], command[method],
                          seconds=seconds[method], ddp_seconds=seconds["ddp"], round_seconds=length)
        self.time_row(f"ringleader-asgd, {where}, of dude-asgd's, off from the bounds' ratio",
                      [r / d for r, d in zip(seconds["ringleader-asgd"], seconds["dude-asgd"])],
                      due["ringleader-asgd"] / due["dude-asgd"], command["ringleader-asgd"], seconds=seconds)

    def noise(self):
        """Where noise decides, the bounds are of what is left of it, of the same variance at all workers
        (so classes are little apart here). Rates are such that the same is left:
        ddp               as rate / n
        ringleader-asgd   whose n updates a round are along nearly the same table: as rate / B
        dude-asgd         whose entry of worker i is used for tau_i seconds: as
                          rate x updates a second x tau_avg / n
        So much sooner they are then: B tau_n / round and tau_n / tau_avg. In their bounds, without
        constants, it is tau_n / tau_avg and 1. The time is that to twice what is left."""
        n, slowest, all_rates, rate_ddp = len(self.TAU), max(self.TAU), sum(1 / t for t in self.TAU), 0.02
        average, (length, B) = statistics.mean(self.TAU), round_of(self.TAU)
        rates = {"ddp": rate_ddp, "ringleader-asgd": rate_ddp * B / n, "dude-asgd": rate_ddp / (all_rates * average)}
        # by the bounds; by their steps
        sooner = {"ringleader-asgd": (slowest / average, B * slowest / length), "dude-asgd": (1, slowest / average)}
        seconds, left, command = {m: [] for m in rates}, {m: [] for m in rates}, {}
        for seed in self.seeds:
            def one(method, rate, steps, *more):
                return self.train("--transport", "sim",
                                  "--model",
                                  "quadratic(dim=50,condition=1,noise=1,skew=0.2,samples=65536,seed=%d)" % seed,
                                  "--partition", "dirichlet(alpha=0.1,even=on)", "-n", n, "--step-time", 0.01,
                                  "--slow", slow(SPREAD), "--seed", seed, "--method", method,
                                  "--optimizer", "sgd(lr=%.9g)" % rate, "--steps", steps, *more)
            def loss(lines): # test samples have another mean, which is no error
                return [(line["step"], line["test_loss"] - least) for line in lines if "test_loss" in line]
            goal = least = 0
            # all samples at once
            least = loss(one("ddp", 1, 2, "--batch", 4096, "--eval-every", 2, "--target", NEVER)[1])[-1][1]
            for method, rate in rates.items():
                a_step, speed = (slowest, 1) if method == "ddp" else (n / all_rates, sooner[method][1])
                every = int(2 / rate_ddp * slowest / speed / a_step)  # two times what it takes to forget
                _, lines, _ = one(method, rate, 40 * every, "--batch", 1, "--eval-every", every, "--target", NEVER)
                left[method].append(statistics.mean(e for step, e in loss(lines) if step > 5 * every))
                goal = goal or 2 * left[method][-1]
                def run(steps):
                    s, lines, command[method] = one(method, rate, steps, "--batch", 1, "--eval-every", steps,
                                                    "--target", NEVER)
                    return loss(lines)[-1][1], s["wall_seconds"], command[method]
                found = self.least_steps(run, goal, every // 2, 6 * every, max(1, every // 50))
                seconds[method].append(found[1] if found else math.inf)
            self.tells(f"noise, seed {seed}", {m: (t[-1], left[m][-1]) for m, t in seconds.items()})
        for method, dues in sooner.items():
            for due, what in zip(dues, ("the bounds' ratio", "what its steps say")):
                self.time_row(f"{method}, 16 workers from 1 to 16 times as slow, unlike data, batches of one, rates "
                              f"that leave as much noise: how much sooner than ddp at twice that, off from {what}",
                              [d / r for d, r in zip(seconds["ddp"], seconds[method])], due, command[method],
                              seconds=seconds, left=left, rates=rates)

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
                    runs = [self.run_simulated("--model", "quadratic(dim=10,samples=8192)", "-n", n, "--batch", 1,
                                               "--steps", 8 if n > 16 else 16, "--step-time", 0.01,
                                               "--slow", slow(range(1, n + 1)), "--seed", seed,
                                               "--method", f"ringmaster-asgd(max_delay={R},stops={stops})",
                                               "--optimizer", "sgd(lr=0.001)", "--final-eval", "off")
                            for seed in self.seeds]
                    longest = [s["method_figures"]["limit_updates_seconds_max"] for s, _ in runs]
                    self.row(f"ringmaster-asgd, {n} workers of speed 1/i, stops {stops}: "
                             f"the longest that {R} updates in a row take",
                             max(longest), "s", runs[-1][1], ratio=max(longest) / bound, against="its bound",
                             all=longest, bound_seconds=bound, restarts=[s["restarts"] for s, _ in runs])

    def thresholds(self, n=64, virtual=4.0):
        rate_all = sum(1 / (0.01 * i) for i in range(1, n + 1))  # gradients a second, of all
        limits, rates = (1, n // 16, n // 4, n, 4 * n, -1), [2.0 ** -k for k in range(0, 9)]
        parts, best, command = [], [], ""
        title = (f"ringmaster-asgd, {n} workers of speed 1/i: error after {virtual:g} s with the best R between, "
                 "of that with R = 1 or without R")
        for seed in self.seeds:
            def one(method, rate, count):
                return self.run_simulated("--model",
                                          "quadratic(dim=50,condition=10,noise=0.3,samples=8192,seed=%d)" % seed, "-n",
                                          n, "--batch", 1, "--step-time", 0.01, "--slow", slow(range(1, n + 1)),
                                          "--seed", seed, "--method", method, "--optimizer", "sgd(lr=%g)" % rate,
                                          "--steps", count)
            first, ends = one("ddp", 0, 1)[0]["final_train_loss"], {}
            for R in limits:
                found = {rate: one(f"ringmaster-asgd(max_delay={R})", rate, int(virtual * rate_all / n))
                         for rate in rates}
                errors = {rate: s["final_train_loss"] / first for rate, (s, _) in found.items() if s is not None
                          and s["final_train_loss"] is not None}
                best.append(min(errors, key=errors.get))
                ends[R], command = errors[best[-1]], found[best[-1]][1]
            self.tells(f"thresholds, seed {seed}", {("none" if R < 0 else R): (round(e, 6), rate)
                                                    for (R, e), rate in zip(ends.items(), best[-len(limits):])})
            parts.append(min(ends[R] for R in limits[1:-1]) / min(ends[1], ends[-1]))
        if rates[0] in best or rates[-1] in best:
            return self.record.absent(title, f"a best rate is at the border of the grid: {best}")
        self.row(title, statistics.mean(parts), "", command, all=parts, rates=best)

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
                    s, words = self.run_simulated("--model", "quadratic(dim=10,samples=8192)", "-n", n, "--batch", 4,
                                                  "--step-time", 0.04, "--slow", slow(range(1, n + 1)) + ",*:1.5:0.3",
                                                  "--seed", seed, "--method", f"ata(tasks={tasks})",
                                                  "--optimizer", "sgd(lr=0.1)", "--steps", count, "--final-eval", "off")
                    return s["method_figures"]["work_seconds"], words
                (half, _), (whole, command) = one(150), one(300)
                works.append((whole - half) / 150 / oracle)
                learning.append(half / 150 / oracle)
            self.row(f"ata, {n} workers of speed 1/i with random pauses: work of steps 151 to 300, "
                     "beyond the best allocation's",
                     100 * (max(works) - 1), "%", command, all=works, of_the_first_half=learning)

    # ---- oscars ----
    def semi(self):
        rates, steps, grain, speeds = (0.003125, 0.00625, 0.0125, 0.025, 0.05, 0.1, 0.2), 160, 8, slow((1, 1, 2, 4))
        methods = [m for m in ("ssp(staleness=3)", "asgd", "local-sgd(period=8)", "oscars", "oscars(adapt=off)")
                   if self.chosen("semi/" + m)]
        with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
            data = small_mnist(os.path.join(folder, "data"), 12000, 2000)
            self.places[folder] = "DIR"
            def words(method, rate, seed, n):
                return ("--model", "mlp(hidden=32)", "--data", data, "-n", 4, "--batch", 16, "--transport", "sim",
                        "--step-time", 0.01, "--slow", speeds, "--steps", n, "--seed", seed, "--method", method,
                        "--optimizer", f"sgd(lr={rate:g},momentum=0.9)")
            if methods:
                self.faster("4 workers, two of them 2 and 4 times slower", words, "ddp", methods, rates, steps, grain)
            if not self.chosen("semi/bytes"):
                return
            for method, steps, what in (("oscars", 160, ""), ("oscars(adapt=off)", 160, ""),
                                        # H and the quotas begin at 1: some three rounds, once a run
                                        ("oscars(adapt=off)", 1280, ", 1280 steps")):
                base = self.train(*words("ddp", 0.025, self.seeds[0], steps))[0]["bytes_sent_total"]
                sent = [self.train(*words(method, 0.025, seed, steps)) for seed in self.seeds]
                parts = [s["bytes_sent_total"] / base for s, _, _ in sent]
                self.row(f"{method}, 4 workers, two of them 2 and 4 times slower{what}: bytes, "
                         "of ddp's for as many gradients",
                         max(parts), "", sent[-1][2], all=parts,
                         rounds=[s["method_figures"]["rounds"] for s, _, _ in sent])

    def run(self):
        for figure in FIGURES:
            if self.begun(figure):
                getattr(self, figure)()


FIGURES = ("unlike", "bounds", "noise", "limit", "thresholds", "allocation", "semi")


if __name__ == "__main__":
    main(__doc__, "arrivals", Arrivals, FIGURES)
