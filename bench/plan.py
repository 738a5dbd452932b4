"""bench/run plan: is the method that `tutti plan` names first a good one, and are its times right?

simulation  CONDITIONS drawn from a seed (--draw): shape of the cluster, workers, rate, latency, slow workers, the time
            of a pass, the model's size. The plan of each (24 steps of every method of METHODS, seed 0) is compared
            with runs of four times as many steps and of another seed. Virtual time: other work on the machine changes
            nothing.
netlab      the same of hosts of tools/netlab (root), whose runs are real, over tcp. The plan is given goodput
            and latency of the lab's line, and measures here the time of a pass with all workers busy.

A choice is good if its measured step is at most 1.1 times the shortest measured one. A prediction is off by
|predicted / measured - 1|, the median over all methods and conditions. --piece simulation/3: that condition alone."""
import concurrent.futures, json, os, random, statistics, subprocess, tempfile

from command import clean_environment, small_mnist
from net import Bench

SEED = 20331 # unless --draw gives another
CONDITIONS, OVER, TIMES, BATCH, HOSTS_STEPS = 10, 24, 4, 16, 30
METHODS = ("ddp", "zero", "bytescheduler", "hetero-ring", "parameter-server", "pipe-sgd(warmup=0)", "powersgd", "qsgd",
           "dgc(warmup=0)", "local-sgd(period=4)", "slowmo", "d-psgd", "ad-psgd", "asgd", "ssp", "backup-workers")
THERE = ("ddp", "zero", "bytescheduler", "pipe-sgd(warmup=0)", "powersgd", "qsgd", "local-sgd(period=4)", "ad-psgd")


def drawn(seed, k):
    r = random.Random(f"{seed}/{k}")
    between = lambda low, high: low * (high / low) ** r.random()
    n = r.choice((4, 8, 12))
    rate, latency = f"{between(100, 10000):.0f}Mbps", f"{between(10, 1000):.0f}us"
    spec = r.choice((f"cluster(n={n},rate={rate},latency={latency})",
                     f"two-level(machines={n // 4},per_machine=4,rate={rate},latency={latency})" if n > 4 else
                     f"cluster(n={n},rate={rate},latency={latency})"))
    slow = "" if r.random() < 0.5 else f"{r.randrange(n)}:{between(1.5, 6):.2f}"
    return dict(n=n, platform=spec, slow=slow, step_time=between(0.002, 0.03),
                model=f"mlp(hidden={r.choice((16, 64, 256))})")


class Plan(Bench):
    def __init__(self, tutti, record, quick, piece, seed):
        super().__init__(tutti, record, quick, piece)
        self.seed = SEED if seed is None else seed
        self.good, self.off, self.seen = [], [], []

    def run(self):
        for name, one in (("simulation", self.simulated), ("netlab", self.real)):
            if not self.chosen(name) or (name == "netlab" and not self.possible()):
                continue
            self.good, self.off, self.seen = [], [], []
            for k in range(2 if self.quick else CONDITIONS):
                if self.chosen(f"{name}/{k}"):
                    with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
                        one(k, folder)
            self.judged(name)

    def judged(self, name):
        if self.good:
            facts = dict(command=f"bench/run plan --piece {name} --draw {self.seed}", runs=len(self.good),
                         seed=self.seed)
            self.record.row(f"{name}: conditions in which the first method is within 10 % of the best",
                            statistics.mean(self.good), "", conditions=self.seen, **facts)
            self.record.row(f"{name}: predicted time of a step, off by, the median", statistics.median(self.off), "",
                            most=max(self.off), **facts)

    def said(self, *words):
        return subprocess.run([self.tutti, *map(str, words)], stdout=subprocess.PIPE, check=True, text=True,
                              env=clean_environment()).stdout

    def predicted(self, folder, spec, methods, *words):
        with open(folder + "/platform.xml", "w") as f:
            f.write(self.said("platform", spec))
        plan = json.loads(self.said("plan", "--json", "--platform", folder + "/platform.xml", "--over", OVER,
                                    "--methods", ",".join(methods), *words))
        return {m["method"]: m["seconds_a_step"] for m in plan["methods"] if not m["condition"]}, plan

    def counted(self, out, batches):
        with open(out + "/summary.json") as f:
            s = json.load(f)
        return s["wall_seconds"] * batches / s["samples"]

    def keep(self, k, plan, measured, **facts):
        first, best = next(iter(plan)), min(measured, key=measured.get)
        self.good.append(measured[first] <= 1.1 * measured[best])
        self.off += [abs(plan[m] / measured[m] - 1) for m in measured]
        self.seen.append(dict(condition=k, first=first, best=best, ratio=measured[first] / measured[best],
                              off=statistics.median(abs(plan[m] / measured[m] - 1) for m in measured),
                              predicted_ms={m: round(1e3 * s, 3) for m, s in plan.items()},
                              measured_ms={m: round(1e3 * s, 3) for m, s in measured.items()}, **facts))

    def simulated(self, k, folder):
        c = drawn(self.seed, k)
        data = small_mnist(folder + "/data", train=4800)
        words = ("--model", c["model"], "--data", data, "-n", c["n"], "--batch", BATCH, "--step-time",
                 f"{c['step_time']:.6f}", *(("--slow", c["slow"]) if c["slow"] else ()))
        plan, whole = self.predicted(folder, c["platform"], METHODS, *words)

        def longer(method):
            out = f"{folder}/{METHODS.index(method)}"
            self.said("train", *words, "--transport", "sim", "--platform", folder + "/platform.xml", "--method",
                      method, "--steps", TIMES * OVER, "--seed", k + 1, "--threads", 1, "--final-eval", "off",
                      "--quiet", "--out", out)
            return self.counted(out, c["n"] * BATCH)

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            measured = dict(zip(plan, pool.map(longer, plan)))
        self.keep(k, plan, measured, refused=[m["method"] for m in whole["refused"]], **c)

    def real(self, k, folder):
        r = random.Random(f"{self.seed}/netlab/{k}")
        hosts, rate, model = 2, r.choice(("100mbit", "300mbit", "1gbit")), f"mlp(hidden={r.choice((128, 512, 1024))})"
        goodput, latency = self.line(rate)
        words = ("--model", model)
        spec = f"cluster(n={hosts},rate={goodput * 1e-6:.3f}Mbps,latency={latency * 1e6:.2f}us)"
        plan, _ = self.predicted(folder, spec, THERE, "-n", hosts, "--threads", 1, "--profile", *words)
        measured = {m: 1e-3 * self.there(folder, str(THERE.index(m)), hosts, rate, *words, "--method", m, "--steps",
                                         10 if self.quick else HOSTS_STEPS)[0] for m in plan}
        self.keep(k, plan, measured, hosts=hosts, rate=rate, model=model)
