#!/usr/bin/env python3
"""Figures of the gossip methods' papers.

bench/run gossip [--piece FIGURE] measures, judges and keeps them (bench/results/gossip.jsonl). This
file alone prints them:

    bench/papers/gossip.py [PIECE ...] [--jobs N] [--quick] [--keep] [--date YYYY-MM-DD]

TUTTI names another command than that of the release. All but `real` are in virtual time (--transport
sim), so other work on the machine does not change them. Three seeds each.

contraction  rand-psgd on a random and on the fixed ring of 16, 32, 64 workers: what one round
             leaves of the squared distance from the mean, against (n - 3) / (3 (n - 1)) and
             lambda_2^2 (docs/TOPOLOGY.md).
             Fixed ring: models are put apart by one noisy step, then the rate is 0; over rounds
             5 n to 6 n, when the slowest direction is what is left.
             Random ring: every step adds noise and nothing else, then makes r rounds. The squared
             distance D settles where E D = l^r (E D + noise), whatever directions are left, if a
             round leaves l of it in expectation. From the means for r = 1 and 2,
             D2 / D1 = l / (1 + l). One round of fresh noise shows nothing of the orders (any ring
             leaves the same of it), the second does.
steady       rand-psgd, 32 workers whose gradients disagree: the distance from the mean at which
             they settle, on the fixed ring against the random one.
target       rand-psgd on both rings and ddp, 16, 32, 64 workers, two samples each a step: steps
             until the mean of the models has a loss. All have the same batch, steps and rates to
             choose from. With four rounds a step too: which shows how many of the steps are due to
             the models' distance from each other, which one round on a random ring does not remove
             when a step has so few samples. (On the complete graph, which does, they are ddp's,
             seed by seed.)
throughput   ad-psgd, 16 workers: gradients a second with one worker 5 and 100 times slower, against
             (15 + 1/s) / 16 of those with none; the others' share of what they make with none. Long
             runs: the last gradient of the slow worker is waited for, which is 100 steps of the
             others.
slow         ad-psgd, 16 workers, one 5 times slower: time to the loss that ddp has at the end of
             its steps; the bound of what can be is 5 (15 + 1/5) / 16 = 4.75.
asr          asr-adpsgd's three mixings on LSTMs, 4 machines of 4 hosts, equal hosts and one 5 times
             slower: the same time, against ddp's. Sending a model between machines takes 8 % of a step, as
             165 MB do at 100 Gbit/s with a step of 165 ms.
crossing     prague compared with ad-psgd and ddp, 16 workers, one slower: gradients a second, by how long
             a model takes to cross a link, in steps
prague       4 machines of 4 hosts, a model takes 8 % of a step to cross between machines: time to
             ddp's loss of prague, ad-psgd and d-psgd, on equal hosts and with one 5 times slower;
             there of prague step by step, from random groups to the filter. Two seeds.
order        4 workers, one 5 times slower: time to ddp's loss of two methods that wait for it and
             two that do not, simulated.
real         the same of processes on this host, at the rates and for the losses of the rows kept of
             `order`: are the methods in the same order? Four workers on two cores or so slow each
             other down, which the simulation does not have, so the seconds are not the same.

A fair comparison: every method gets the same grid of learning rates and the same number of gradients.
The best rate is that of the least mean loss over the seeds (`target`: of the fewest steps). Where it
is at the border of the grid the figure is skipped, which is reported. Time of an asynchronous method
to a loss: that of the shortest whole run that reaches it (bisection), including what is under way
at its end. An evaluation on the way would make it wait for the slow worker each time."""
import argparse, concurrent.futures, datetime, json, math, os, statistics, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "tests/cli")]
os.environ.setdefault("TUTTI", os.path.join(ROOT, "build/release/bin/tutti"))
os.environ.setdefault("TUTTI_DATA", os.path.join(ROOT, "data"))
import record as records  # noqa: E402
from command import TUTTI, small_mnist, unequal_links  # noqa: E402

# with a target the last step is evaluated on the test samples alone, without going over the
# training samples
NEVER = "loss=1e-9"
SEEDS = (1, 2, 3)


def last(losses):
    loss = losses[max(losses)]
    return math.inf if loss is None else loss  # null: not finite


class Diverged(Exception):
    pass


class Gossip:
    def __init__(self, tutti, record, quick=False, jobs=1, piece=""):
        self.tutti, self.record, self.quick, self.piece = tutti, record, quick, piece
        self.seeds = SEEDS[:1] if quick else SEEDS
        self.places = {}  # of files made here: how a command shows them
        self.pool = concurrent.futures.ThreadPoolExecutor(jobs)

    # ---- runs ----
    def train(self, *words):
        """Summary, lines of metrics, the command."""
        with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
            command = [*map(str, words), "--quiet", "--out", os.path.join(folder, "run")]
            done = subprocess.run([self.tutti, "train", *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  text=True)
            # "... is not finite": the rate is too high
            if done.returncode == 1 and any(words in done.stderr
                                            for words in ("the gradient of", "held out is", "but as fp16")):
                raise Diverged()
            if done.returncode != 0:
                sys.exit("gossip: tutti train %s\n%s" % (" ".join(command), done.stderr))
            with open(os.path.join(folder, "run/summary.json")) as f:
                summary = json.load(f)
            with open(os.path.join(folder, "run/metrics.jsonl")) as f:
                lines = [json.loads(line) for line in f]
        shown = "tutti train " + " ".join('"%s"' % word if "(" in word else word for word in command)
        for place, name in {**self.places, folder: "DIR"}.items():
            shown = shown.replace(place, name)
        return summary, lines, shown

    def all(self, function, cases):
        """function of each case, at most `jobs` at a time, in order."""
        return list(self.pool.map(lambda case: function(*case), cases))

    def looks(self, words, every, target=NEVER):
        """The results on the test samples by step, seconds, command of a run that is evaluated every
        `every` steps, until it reaches the target. A rate that is too high: no results, infinite time."""
        try:
            summary, lines, command = self.train(*words, "--eval-every", every, "--target", target,
                                                 "--final-eval", "off")
        except Diverged:
            return {}, math.inf, ""
        return {line["step"]: line for line in lines if "test_loss" in line}, summary["wall_seconds"], command

    def losses(self, words, every, target=NEVER):
        """The same of test losses alone."""
        looks, seconds, command = self.looks(words, every, target)
        return {step: line["test_loss"] for step, line in looks.items()} or {0: None}, seconds, command

    def tuned(self, title, rates, run, merit=last, what="loss"):
        """The rate at which the merit, if not the last loss, has the least mean, the runs of it by seed,
        and the means; None if the grid does not enclose it. run(rate, seed) gives what `losses`
        gives."""
        cases = [(rate, seed) for rate in rates for seed in self.seeds]
        found = dict(zip(cases, self.all(run, cases)))
        means = {rate: statistics.mean(merit(found[rate, seed][0]) for seed in self.seeds) for rate in rates}
        best = min(means, key=means.get)
        shown = {"%g" % rate: round(mean, 4) if math.isfinite(mean) else None for rate, mean in means.items()}
        print(f"    {title}: mean {what} by rate {shown}", flush=True)
        if best in (rates[0], rates[-1]) and not self.quick:
            self.record.absent(title, f"its best rate, {best:g}, is at the border of the grid")
            return None
        return best, {seed: found[best, seed] for seed in self.seeds}, shown

    def least_steps(self, loss_after, loss, low, high, grain):
        """(steps, seconds, command) of the shortest run found that ends with at most this loss.

        None: not even the longest does. loss_after(steps) gives (loss, seconds, command)."""
        found = loss_after(high)
        if found[0] > loss:
            return None
        at = high
        while high - low > grain:
            middle = (low + high) // 2 // grain * grain
            middle = middle if middle > low else low + grain
            if middle >= high:
                break
            got = loss_after(middle)
            if got[0] <= loss:
                high = at = middle
                found = got
            else:
                low = middle
        return at, found[1], found[2]

    def row(self, name, value, unit, command, **more):
        self.record.row(name, value, unit, command=command, seeds=len(self.seeds), timed=more.pop("timed", False),
                        **more)

    def chosen(self, name):
        return name.startswith(self.piece)

    def begun(self, figure):
        """Is a part of this figure chosen?"""
        pieces = self.piece if isinstance(self.piece, tuple) else (self.piece,)
        return any(figure.startswith(piece.split("/")[0]) for piece in pieces)

    # ---- figures ----
    def contraction(self):
        for n in (16,) if self.quick else (16, 32, 64):
            fixed = (1 + 2 * math.cos(2 * math.pi / n)) / 3
            for mixing, due, measure in (("random-ring", (n - 3) / (3 * (n - 1)), self.left_of_noise),
                                         ("ring", fixed * fixed, self.left_at_the_end)):
                if not self.chosen(f"contraction/{n}/{mixing}"):
                    continue
                mean, error, measured, command = measure(n)
                off = lambda got, want: 100 * abs(got / want - 1)
                facts = dict(standard_error=error, formula=due, measured=measured, mean=mean,
                             rounds_to_a_hundredth=math.log(100) / -math.log(mean))
                title = f"rand-psgd, {n} workers, {mixing}: "
                self.row(title + "what a round leaves of the squared distance from the mean, off from the formula",
                         off(mean, due), "%", command, **facts)
                self.row(title + "what a round takes of it, off from the formula", off(1 - mean, 1 - due), "%", command,
                         **facts)

    def left_at_the_end(self, n):
        """Of the fixed ring: what a round leaves, its standard error over the seeds, that of each, a command."""
        first, after = 5 * n, 6 * n
        def one(seed):
            _, lines, command = self.train("--model", "quadratic(dim=4000,noise=1000)", "-n", n, "--batch", 1,
                                           "--steps", after + 1, "--eval-every", after - first, "--transport", "sim",
                                           "--seed", seed, "--method", "rand-psgd(mixing=ring)",
                                           "--optimizer", "sgd(lr=0.1)", "--lr-schedule", "step(every=1,gamma=0)")
            distance = {line["step"]: line["consensus_distance"] for line in lines if "consensus_distance" in line}
            return (distance[after] / distance[first]) ** (2 / (after - first)), command
        runs = self.all(one, [(seed,) for seed in self.seeds])
        measured = [r for r, _ in runs]
        error = statistics.stdev(measured) / math.sqrt(len(measured)) if len(measured) > 1 else None
        return statistics.mean(measured), error, measured, runs[-1][1]

    def left_of_noise(self, n):
        """The same of the random ring, from blocks of steps, each of them omitted in turn (jackknife)."""
        steps, settled, block = 50 + 16000 // n, 50, 25  # of more workers one order says less of itself
        def one(seed, rounds):
            _, lines, command = self.train("--model", "quadratic(dim=400,noise=1000,samples=256)", "-n", n,
                                           "--batch", 1, "--steps", steps, "--eval-every", 1, "--transport", "sim",
                                           "--seed", seed,
                                           "--method", f"rand-psgd(mixing=random-ring(seed={seed}),rounds={rounds})",
                                           "--optimizer", "sgd(lr=1e-6)", "--final-eval", "off")
            squares = [line["consensus_distance"] ** 2 for line in lines if line.get("consensus_distance") is not None
                       and line["step"] > settled]
            return [statistics.mean(squares[at:at + block]) for at in range(0, len(squares), block)], command
        runs = self.all(one, [(seed, rounds) for seed in self.seeds for rounds in (1, 2)])
        pairs = [pair for (one_round, _), (two, _) in zip(runs[::2], runs[1::2]) for pair in zip(one_round, two)]
        left = lambda blocks: 1 / (sum(a for a, _ in blocks) / sum(b for _, b in blocks) - 1)
        without = [left(pairs[:k] + pairs[k + 1:]) for k in range(len(pairs))]
        error = math.sqrt((len(pairs) - 1) * statistics.pvariance(without))
        return left(pairs), error, [left(list(zip(a, b))) for (a, _), (b, _) in zip(runs[::2], runs[1::2])], runs[-1][1]

    def steady(self):
        """At least 20 times, from sums of what a round leaves, 39 and 1.45.

        Gradients that always disagree in the same way add up on the fixed ring, so it is more."""
        def one(mixing, seed):
            spec = f"random-ring(seed={seed})" if mixing == "random-ring" else mixing
            _, lines, command = self.train("--model", "quadratic(dim=200,classes=32,skew=1,samples=2048)",
                                           "--partition", "class(k=1)", "-n", 32, "--batch", 2, "--steps", 300,
                                           "--eval-every", 10, "--transport", "sim", "--seed", seed,
                                           "--method", f"rand-psgd(mixing={spec})", "--optimizer", "sgd(lr=0.01)")
            return statistics.mean(line["consensus_distance"] ** 2 for line in lines
                                   if line.get("consensus_distance") is not None and line["step"] > 200), command
        fixed, drawn = ([one(mixing, seed) for seed in self.seeds] for mixing in ("ring", "random-ring"))
        times = [f / d for (f, _), (d, _) in zip(fixed, drawn)]
        self.row("rand-psgd, 32 workers, one class each: squared distance it settles at, fixed ring over random ring",
                 statistics.mean(times), "", drawn[-1][1], all=times)

    def target(self):
        with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder: # less to look at, every five steps
            data = small_mnist(os.path.join(folder, "data"), 12000, 2000)
            self.places[folder] = "DIR"
            for n in (16,) if self.quick else (16, 32, 64):
                if self.chosen(f"target/{n}"):
                    self.target_of(n, data)

    def target_of(self, n, data):
        rates, steps, every, loss, took = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6), 300, 5, 0.5, {}
        for method in ("ddp", "rand-psgd", "rand-psgd(rounds=4)", "rand-psgd(mixing=ring)"):
            run = lambda rate, seed: self.losses(("--model", "mlp(hidden=16)", "--data", data, "-n", n, "--batch", 2,
                                                  "--transport", "sim", "--steps", steps, "--seed", seed,
                                                  "--method", method, "--optimizer", f"sgd(lr={rate:g})"), every,
                                                 f"loss={loss}")
            reach = lambda losses: next((step for step in sorted(losses) if losses[step] is not None
                                         and losses[step] <= loss), math.inf)
            got = self.tuned(f"{method}, {n} workers", rates, run, reach, f"steps to a loss of {loss}")
            if got is None:
                continue
            rate, runs, means = got
            reached = [reach(runs[seed][0]) for seed in self.seeds]
            if math.inf in reached:
                self.record.absent(f"{method}, {n} workers: steps to a loss of {loss}",
                                   f"of {steps} steps, seeds reach it after {reached}")
                continue
            took[method] = statistics.mean(reached)
            against = dict(ratio=took[method] / took["ddp"], against="ddp's") if "ddp" in took else {}
            self.row(f"{method}, {n} workers: steps to a loss of {loss}", took[method], "", runs[self.seeds[-1]][2],
                     rate=rate, means=means, steps=reached, **against)

    def throughput(self):
        steps = 100 if self.quick else 4000
        def one(seed, factor):
            words = ["--model", "quadratic(dim=50,samples=16384)", "-n", 16, "--steps", steps, "--batch", 16,
                     "--transport", "sim", "--step-time", 0.01, "--seed", seed, "--method", "ad-psgd",
                     "--eval-every", steps, "--target", NEVER, "--final-eval", "off"]
            return self.train(*words, *(("--slow", f"0:{factor}") if factor > 1 else ()))
        steps_of = lambda s: [w["steps"] for w in s["by_worker"]]
        even = [s for s, _, _ in self.all(one, [(seed, 1) for seed in self.seeds])]
        for factor in (5, 100):
            runs = self.all(one, [(seed, factor) for seed in self.seeds])
            rate = lambda s, of: sum(of(s)) / s["wall_seconds"]
            others = lambda s: steps_of(s)[1:]
            most = (15 + 1 / factor) / 16
            whole = [rate(s, steps_of) / rate(e, steps_of) for (s, _, _), e in zip(runs, even)]
            part = [rate(s, others) / rate(e, others) for (s, _, _), e in zip(runs, even)]
            title = f"ad-psgd, 16 workers, one {factor} times slower: "
            self.row(title + "gradients a second, of those with none", min(whole), "", runs[-1][2],
                     ratio=min(whole) / most, against=f"(15 + 1/{factor}) / 16", all=whole)
            self.row(title + "what the others lose", 100 * (1 - min(part)), "%", runs[-1][2], all=part)

    def slow(self):
        rates, steps, grain = (0.0125, 0.025, 0.05, 0.1, 0.2), 240, 10
        words = lambda method, rate, seed, n: ("--model", "mlp(hidden=32)", "--data", "mnist", "-n", 16, "--batch", 8,
                                               "--transport", "sim", "--step-time", 0.01, "--slow", "0:5", "--steps", n,
                                               "--seed", seed,
                                               "--method", method, "--optimizer", f"sgd(lr={rate:g},momentum=0.9)")
        self.faster("16 workers, one 5 times slower", words, "ddp", ("ad-psgd",), rates, steps, grain)

    def faster(self, where, words, base, methods, rates, steps, grain, ending=""):
        """How many times sooner each method has the loss that the synchronous base has at the end, by method
        and seed.

        The words of a run are words(method, rate, seed, steps)."""
        sooner = {}
        found = self.tuned(f"{base}, {where}", rates,
                           lambda rate, seed: self.losses(words(base, rate, seed, steps), grain))
        if found is None:
            return sooner
        base_rate, base_runs, base_means = found
        goal = {seed: (last(runs[0]), next(s for s in sorted(runs[0]) if runs[0][s] <= last(runs[0])) / steps * runs[1])
                for seed, runs in base_runs.items()}
        for method in methods:
            got = self.tuned(f"{method}, {where}", rates,
                             lambda rate, seed: self.losses(words(method, rate, seed, steps), steps))
            if got is None:
                continue
            rate, _, means = got
            def search(seed):
                def after(n):
                    losses, seconds, command = self.losses(words(method, rate, seed, n), n)
                    return last(losses), seconds, command
                return self.least_steps(after, goal[seed][0], grain, 2 * steps, grain)
            reached = self.all(search, [(seed,) for seed in self.seeds])
            if None in reached:
                self.record.absent(f"{method}, {where}: times sooner at {base}'s loss",
                                   "it has not got there in twice its steps with "
                                   f"{reached.count(None)} of {len(self.seeds)} seeds")
                continue
            times = [goal[seed][1] / r[1] for seed, r in zip(self.seeds, reached)]
            self.row(f"{method}, {where}: times sooner at {base}'s loss{ending}", min(times), "", reached[-1][2],
                     times=times, steps=[r[0] for r in reached], seconds=[r[1] for r in reached],
                     losses=[goal[seed][0] for seed in self.seeds], base_steps=steps,
                     base_seconds=[goal[seed][1] for seed in self.seeds], rate=rate, base_rate=base_rate, means=means,
                     base_means=base_means, base_command=base_runs[self.seeds[-1]][2])
            sooner[method] = dict(zip(self.seeds, times))
        return sooner

    def asr(self):
        rates, steps, grain = (0.2, 0.4, 0.8, 1.6, 3.2), 120, 8
        mixings = [f"asr-adpsgd(mixing={m})" for m in ("fixed-ring", "random-ring", "delay-by-one")]
        known = subprocess.run([self.tutti, "methods", "--json"], stdout=subprocess.PIPE, text=True, check=True).stdout
        if any(m["name"] == "h-adpsgd" for m in json.loads(known)):
            mixings.append("h-adpsgd(super_learner=4)")  # the machines, which the simulator does not tell
        with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
            platform = os.path.join(folder, "two-level.xml")
            self.places[folder] = "DIR"
            with open(platform, "w") as f:
                f.write(subprocess.run([self.tutti, "platform", "two-level(rate=250Mbps,inner_rate=5Gbps)"],
                                       stdout=subprocess.PIPE, text=True, check=True).stdout)
            for where, slow in (("equal hosts", ()), ("one 5 times slower", ("--slow", "0:5"))):
                words = lambda method, rate, seed, n: ("--model", "blstm(layers=1,hidden=16)", "--data", "mnist", "-n",
                                                       16, "--batch", 8, "--transport", "sim", "--platform", platform,
                                                       "--step-time", 0.01, *slow,
                                                       "--steps", n, "--seed", seed, "--method", method,
                                                       "--optimizer", f"sgd(lr={rate:g},momentum=0.9)")
                if self.chosen("asr/" + where.replace(" ", "-")):
                    self.faster(f"blstm, 4 machines of 4, {where}", words, "ddp", mixings, rates, steps, grain)

    # each adds one thing: group buffer and division, rounds between and inside machines, the filter
    SMART = "prague(inter_intra=4)"
    ABLATION = ("prague(generator=random)", "prague(inter_intra=off,filter_threshold=0)",
                "prague(inter_intra=4,filter_threshold=0)", SMART)

    def prague(self):
        rates, steps, grain = (0.0125, 0.025, 0.05, 0.1, 0.2), 120, 8
        seeds, self.seeds = self.seeds, self.seeds[:2]
        with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
            platform = os.path.join(folder, "two-level.xml")
            self.places[folder] = "DIR"
            with open(platform, "w") as f:
                f.write(subprocess.run([self.tutti, "platform", "two-level(rate=1Gbps,inner_rate=20Gbps)"],
                                       stdout=subprocess.PIPE, text=True, check=True).stdout)
            for where, slow, forms in (("one 5 times slower", ("--slow", "0:5"), self.ABLATION),
                                       ("equal hosts", (), (self.SMART,))):
                words = lambda method, rate, seed, n: ("--model", "mlp(hidden=32)", "--data", "mnist", "-n", 16,
                                                       "--batch", 8, "--transport", "sim", "--platform", platform,
                                                       "--step-time", 0.01, *slow, "--threads", 1, "--steps", n,
                                                       "--seed", seed, "--method", method,
                                                       "--optimizer", f"sgd(lr={rate:g},momentum=0.9)")
                if not self.chosen("prague/" + where.replace(" ", "-")):
                    continue
                sooner = self.faster(f"4 machines of 4, {where}", words, "ddp",
                                     (*forms, "ad-psgd", "d-psgd"), rates, steps, grain)
                if self.SMART in sooner and "ad-psgd" in sooner:
                    of = [sooner[self.SMART][seed] / sooner["ad-psgd"][seed] for seed in self.seeds]
                    self.row(f"{self.SMART}, 4 machines of 4, {where}: times sooner than ad-psgd", min(of), "",
                             "bench/run gossip --piece prague", all=of)
        self.seeds = seeds

    CROSSING = ("prague", "prague(overlap=off)", "ad-psgd", "ddp")

    def crossing(self):
        """Gradients a second, of n a step: pace alone, regardless of a gradient's effect."""
        n, dim, step, steps = 16, 2000, 0.01, 60
        seeds, self.seeds = self.seeds, self.seeds[:1]
        with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
            self.places[folder] = "DIR"
            for share in (0.08, 0.4, 0.9, 2):
                links = unequal_links(os.path.join(folder, f"{share:g}.xml"), [dim * 32 / (share * step) / 1e6] * n)
                for slower in (1.5, 2, 5):
                    if not self.chosen(f"crossing/{share:g}/{slower:g}"):
                        continue
                    paces = {}
                    for method in self.CROSSING:
                        got, _, command = self.train("--model", f"quadratic(dim={dim})", "-n", n, "--batch", 4 * n,
                                                     "--transport", "sim", "--platform", links, "--step-time", step,
                                                     "--slow", f"0:{slower:g}", "--threads", 1, "--steps", steps,
                                                     "--seed", 1, "--final-eval", "off", "--method", method)
                        paces[method] = sum(w["steps"] for w in got["by_worker"]) / got["wall_seconds"] * step / n
                        if method == "prague":
                            shown = command
                    self.row(f"prague, 16 workers, a model crosses in {share:g} of a step, one {slower:g} times "
                             "slower: gradients a second, of ad-psgd's", paces["prague"] / paces["ad-psgd"], "", shown,
                             paces=paces)
        self.seeds = seeds

    FOUR = "4 workers, one 5 times slower"
    METHODS = ("ddp", "d-psgd(order=atc)", "asr-adpsgd(mixing=random-ring)", "ad-psgd")
    STEPS, GRAIN = 120, 20

    def four(self, method, rate, seed, steps, *way):
        return self.losses(("--model", "mlp(hidden=256)", "--data", "mnist", "-n", 4, "--batch", 64, "--slow", "0:5",
                            "--seed", seed, "--method", method, "--optimizer", f"sgd(lr={rate:g},momentum=0.9)",
                            "--steps", steps, *way), steps)

    def times_to(self, rates, losses, *way):
        """By method and seed, seconds and command to the losses, which are those of ddp after STEPS.

        None: not even after twice as many."""
        def one(method, seed):
            def after(n):
                losses, seconds, command = self.four(method, rates[method], seed, n, *way)
                return last(losses), seconds, command
            if method == "ddp":
                return after(self.STEPS)[1:]
            found = self.least_steps(after, losses[seed], self.GRAIN, 2 * self.STEPS, self.GRAIN)
            return found and found[1:]
        return {method: [one(method, seed) for seed in self.seeds] for method in rates}

    def order(self):
        simulated = ("--transport", "sim", "--step-time", 0.01)
        rates, losses, means = {}, None, {}
        for method in self.METHODS:
            got = self.tuned(f"{method}, {self.FOUR}, simulated", (0.0125, 0.025, 0.05, 0.1, 0.2),
                             lambda rate, seed: self.four(method, rate, seed, self.STEPS, *simulated))
            if got is None:
                return
            rates[method], runs, means[method] = got
            losses = losses or {seed: r[0][self.STEPS] for seed, r in runs.items()}
        self.tell_times("simulated", rates, losses, self.times_to(rates, losses, *simulated), means)

    def real(self):
        kept = [r for r in records.read() + self.record.rows if r["part"] == "gossip"
                and r["name"].startswith(f"ddp, {self.FOUR}, simulated")]
        if not kept:
            return self.record.absent(self.FOUR + ", processes",
                                      "rates are those of the figure `order`, of which no rows are kept")
        rates, losses = kept[-1]["rates"], dict(zip(SEEDS, kept[-1]["losses"]))
        self.tell_times("processes", rates, losses, self.times_to(rates, losses, "--transport", "shm", "--threads", 1),
                        None)

    def tell_times(self, what, rates, losses, found, means):
        middle = {m: statistics.median(t[0] if t else math.inf for t in found[m]) for m in rates}
        order = sorted(middle, key=middle.get)
        for m in rates:
            if math.isinf(middle[m]):
                self.record.absent(f"{m}, {self.FOUR}, {what}: seconds to ddp's loss",
                                   "not there in twice as many steps")
                continue
            self.row(f"{m}, {self.FOUR}, {what}: seconds to ddp's loss", middle[m], "s",
                     [t for t in found[m] if t][-1][1], ratio=middle["ddp"] / middle[m], against="ddp's (times sooner)",
                     timed=what == "processes", place=order.index(m) + 1, all=[t[0] if t else None for t in found[m]],
                     rates=rates, losses=[losses[seed] for seed in self.seeds], means=means)

    def run(self):
        for figure in FIGURES:
            if self.begun(figure):
                getattr(self, figure)()


class Papers(Gossip):
    """One whose figures are methods, run in a folder of their own on samples of MNIST: FIGURES, SAMPLES
    (train, test), and what `prepare` makes there."""
    SAMPLES = 12000, 2000

    def prepare(self):
        pass

    def after(self, method, rate, seed, steps):
        """The last loss of a run of `steps` steps, its seconds, the command. words: what it is trained with."""
        losses, seconds, command = self.losses(self.words(method, rate, seed, steps), steps)
        return last(losses), seconds, command

    def run(self):
        with tempfile.TemporaryDirectory(prefix="tutti-bench-") as self.folder:
            self.places[self.folder] = "DIR"
            self.data = small_mnist(os.path.join(self.folder, "data"), *self.SAMPLES)
            self.prepare()
            for figure in self.FIGURES:
                if self.chosen(figure):
                    getattr(self, figure)()


FIGURES = ("contraction", "steady", "target", "throughput", "slow", "asr", "prague", "crossing", "order", "real")


def main(doc, part, kind, names):
    """What the files of this folder do as commands. names: the figures' names; a piece of a figure may be asked
    for."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pieces", nargs="*", metavar="PIECE",
                        help="the beginning of a figure's name, or a part of it (contraction/64, asr/equal): "
                             + "; ".join(names))
    parser.add_argument("--jobs", type=int, default=1, help="runs at one time")
    parser.add_argument("--quick", action="store_true", help="one seed, to see that it works")
    parser.add_argument("--keep", action="store_true", help="add the rows to bench/results")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    given = parser.parse_args()
    for piece in given.pieces:
        if not any(name.startswith(piece) or piece.startswith(name + "/") for name in names):
            parser.error(f"there is no figure '{piece}'; they are {'; '.join(names)}")
    record = records.Recorder(TUTTI, given.date, given.keep and not given.quick)
    record.part(part)
    kind(TUTTI, record, given.quick, given.jobs, tuple(given.pieces) or "").run()


if __name__ == "__main__":
    main(__doc__, "gossip", Gossip, FIGURES)
