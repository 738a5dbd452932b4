#!/usr/bin/env python3
"""Figures of the papers on asynchronous SGD with one server, and of ATA, in virtual time (--transport sim), three seeds each. Prints a line of JSON a measurement; nothing is asserted.

    bench/papers/arrivals.py TUTTI unlike|noise|limit|thresholds|allocation [--seeds 1,2,3]

unlike      16 workers from 1 to 16 times as slow, Dirichlet(0.1) data, a gradient is over all of a worker's part: the error of the end, relative to the beginning's, of ringleader-asgd and dude-asgd, of plain asgd and of
            ddp, on quadratic and logistic (there against the least loss that ddp finds in ten times as many steps); and the virtual time to a hundredth of a thousandth of it, each at its own best rate.
noise       the same data with batches of one sample, so that noise decides: time to a mean error of 1e-3, rates halved until the error is below; against the ratio of the sheets' bounds, tau_n / tau_avg.
limit       ringmaster-asgd, n = 16, 64, 256 workers of speed 1/i: the longest that R updates in a row take, against 2 min_m ((sum_{i<=m} 1/tau_i)^-1 (R + m)).
thresholds  ringmaster-asgd, 64 workers of speed 1/i: error after the same virtual time for R = 1, n/4, n, 4n and none, each at its best rate.
allocation  ata, 17 and 51 workers of speed 1/i with random pauses: work (worker seconds) and time of a step in the second half of a run, against the best allocation for the known means."""
import argparse, json, math, os, subprocess, sys, tempfile

SPREAD = [1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 6, 8, 12, 16]
RATES = [2.0 ** -k for k in range(0, 11)]


def slow(factors):
    return ",".join("%d:%g" % (r, f) for r, f in enumerate(factors) if f > 1)


def train(tutti, folder, *arguments):
    out = os.path.join(folder, "run%d" % len(os.listdir(folder)))
    done = subprocess.run([tutti, "train", *map(str, arguments), "--quiet", "--transport", "sim", "--out", out], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode == 2:
        sys.exit("arrivals.py: tutti train %s\n%s" % (" ".join(map(str, arguments)), done.stderr))
    if done.returncode != 0: # it diverged
        return None, []
    with open(os.path.join(out, "summary.json")) as f:
        summary = json.load(f)
    with open(os.path.join(out, "metrics.jsonl")) as f:
        return summary, [json.loads(line) for line in f]


def tell(**what):
    print(json.dumps(what), flush=True)


def problem(name, seed):
    return {"quadratic": ("--model", "quadratic(dim=50,condition=10,noise=0,skew=1,samples=512,seed=%d)" % seed), "logistic": ("--model", "logistic(dim=10,classes=4,noise=0.2,samples=512,seed=%d)" % seed)}[name]


def unlike(tutti, folder, seeds):
    methods = ("ddp", "asgd", "dude-asgd", "ringleader-asgd")
    for name in ("quadratic", "logistic"):
        for seed in seeds:
            data = (*problem(name, seed), "--partition", "dirichlet(alpha=0.1,even=on)", "-n", 16, "--batch", 32, "--step-time", 0.01, "--slow", slow(SPREAD), "--seed", seed)
            run = lambda method, lr, count, *more: train(tutti, folder, *data, "--method", method, "--optimizer", "sgd(lr=%g,weight_decay=%g)" % (lr, 0), "--steps", count, *more)
            first = run("ddp", 0, 1)[0]["final_train_loss"]
            least = 0 if name == "quadratic" else run("ddp", 2, 4000)[0]["final_train_loss"]
            error = lambda s: math.inf if s is None or s["final_train_loss"] is None else (s["final_train_loss"] - least) / (first - least)
            seconds = {}
            for method in methods:
                count = {"ddp": 400, "asgd": 1600, "dude-asgd": 1600, "ringleader-asgd": 12000}[method] # about 64 s of virtual time, but for asgd, which has as many gradients as dude-asgd
                ends = {lr: error(run(method, lr, count)[0]) for lr in RATES[:8]}
                best = min(ends, key=ends.get)
                tell(figure="unlike", problem=name, seed=seed, method=method, lr=best, relative_error=ends[best], steps=count)
                if ends[best] < 1e-5 and name == "quadratic":
                    times = {}
                    for lr in (best, 2 * best, best / 2):
                        s, _ = run(method, lr, count, "--eval-every", max(1, count // 400), "--target", "loss=%g" % (1e-5 * first))
                        if s is not None and s["time_to_target_seconds"]:
                            times[lr] = s["time_to_target_seconds"]
                    seconds[method] = min(times.values()) if times else None
            if seconds:
                tell(figure="time-to-1e-5", problem=name, seed=seed, seconds=seconds, of_ddp={m: round(t / seconds["ddp"], 3) for m, t in seconds.items() if t and seconds.get("ddp")})


def noise(tutti, folder, seeds):
    for seed in seeds:
        data = ("--model", "quadratic(dim=50,condition=1,noise=1,skew=1,samples=4096,seed=%d)" % seed, "--partition", "dirichlet(alpha=0.1,even=on)", "-n", 16, "--batch", 1, "--step-time", 0.01, "--slow", slow(SPREAD), "--seed", seed)
        run = lambda method, lr, count, *more: train(tutti, folder, *data, "--method", method, "--optimizer", "sgd(lr=%g)" % lr, "--steps", count, *more)
        first = run("ddp", 0, 1)[0]["final_train_loss"]
        seconds = {}
        for method in ("ddp", "dude-asgd", "ringleader-asgd"):
            count, times = {"ddp": 2000, "dude-asgd": 8000, "ringleader-asgd": 8000}[method], {}
            for lr in [2.0 ** (-k / 2) for k in range(6, 22)]:
                s, _ = run(method, lr, count, "--eval-every", max(1, count // 200), "--target", "loss=%g" % (1e-3 * first))
                if s is not None and s["time_to_target_seconds"]:
                    times[lr] = s["time_to_target_seconds"]
            seconds[method] = min(times.values()) if times else None
        tell(figure="noise", seed=seed, seconds=seconds, ddp_of_ringleader=round(seconds["ddp"] / seconds["ringleader-asgd"], 3) if seconds["ddp"] and seconds["ringleader-asgd"] else None,
             bounds=round(max(SPREAD) / (sum(SPREAD) / 16), 3))


def limit(tutti, folder, seeds):
    for n in (16, 64, 256):
        for stops in ("off", "on"):
            for R in (max(1, n // 16), n // 4, n):
                for seed in seeds:
                    tau = [0.01 * i for i in range(1, n + 1)]
                    bound, harmonic = math.inf, 0
                    for m, t in enumerate(tau, 1):
                        harmonic += 1 / t
                        bound = min(bound, 2 * (R + m) / harmonic)
                    s, _ = train(tutti, folder, "--model", "quadratic(dim=10,samples=8192)", "-n", n, "--batch", 1, "--steps", 8 if n > 16 else 16, "--step-time", 0.01, "--slow", slow(range(1, n + 1)), "--seed", seed, "--method",
                                 "ringmaster-asgd(max_delay=%d,stops=%s)" % (R, stops), "--optimizer", "sgd(lr=0.001)", "--final-eval", "off")
                    figures = s["method_figures"]
                    tell(figure="limit", workers=n, R=R, stops=stops, seed=seed, bound_seconds=round(bound, 5), longest_seconds=round(figures["limit_updates_seconds_max"], 5),
                         of_bound=round(figures["limit_updates_seconds_max"] / bound, 3), applied=sum(figures["applied"]), dropped=sum(figures["dropped"]), restarts=s["restarts"])


def thresholds(tutti, folder, seeds, n=64, virtual=4.0):
    for seed in seeds:
        data = ("--model", "quadratic(dim=50,condition=10,noise=0.3,samples=8192,seed=%d)" % seed, "-n", n, "--batch", 1, "--step-time", 0.01, "--slow", slow(range(1, n + 1)), "--seed", seed)
        rate = sum(1 / (0.01 * i) for i in range(1, n + 1)) # gradients a second, of all
        count = int(virtual * rate / n)
        first = train(tutti, folder, *data, "--method", "ddp", "--optimizer", "sgd(lr=0)", "--steps", 1)[0]["final_train_loss"]
        ends = {}
        for R in (1, n // 16, n // 4, n, 4 * n, -1):
            best = (math.inf, None)
            for lr in RATES:
                s, _ = train(tutti, folder, *data, "--method", "ringmaster-asgd(max_delay=%d)" % R, "--optimizer", "sgd(lr=%g)" % lr, "--steps", count)
                if s is not None and s["final_train_loss"] is not None:
                    best = min(best, (s["final_train_loss"] / first, lr))
            ends[R if R > 0 else "none"] = {"relative_error": best[0], "lr": best[1]}
        tell(figure="thresholds", workers=n, seed=seed, virtual_seconds=virtual, by_limit=ends)


def allocation(tutti, folder, seeds):
    for n in (17, 51):
        pause = 1 + 0.5 * 0.3 # *:1.5:0.3
        tau = [0.01 * i * pause for i in range(1, n + 1)]
        tasks = 4 * n
        best = [0] * n
        for _ in range(tasks):
            i = min(range(n), key=lambda r: (best[r] + 1) * tau[r])
            best[i] += 1
        for method in ("ata", "ata(allocation=uniform)"):
            for seed in seeds:
                spec = ("%s,tasks=%d)" % (method[:-1], tasks) if method.endswith(")") else "%s(tasks=%d)" % (method, tasks))
                run = lambda count: train(tutti, folder, "--model", "quadratic(dim=10,samples=8192)", "-n", n, "--batch", 4, "--step-time", 0.04, "--slow", slow(range(1, n + 1)) + ",*:1.5:0.3", "--seed", seed, "--method", spec,
                                          "--optimizer", "sgd(lr=0.1)", "--steps", count, "--final-eval", "off")[0]["method_figures"]
                half, whole = run(150), run(300)
                work, time = (whole[k] - half[k] for k in ("work_seconds", "slowest_seconds"))
                oracle = sum(a * t for a, t in zip(best, tau))
                tell(figure="allocation", workers=n, method=spec, seed=seed, work_a_step=round(work / 150, 4), oracle_work=round(oracle, 4), work_of_oracle=round(work / 150 / oracle, 4), seconds_a_step=round(time / 150, 4),
                     oracle_seconds=round(max(a * t for a, t in zip(best, tau)), 4), learning_work_of_oracle=round(half["work_seconds"] / 150 / oracle, 4), with_tasks=sum(a > 0 for a in whole["tasks"]), oracle_with_tasks=sum(a > 0 for a in best))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tutti")
    parser.add_argument("figure", choices=("unlike", "noise", "limit", "thresholds", "allocation"))
    parser.add_argument("--seeds", default="1,2,3")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        globals()[given.figure](given.tutti, folder, [int(s) for s in given.seeds.split(",")])


if __name__ == "__main__":
    main()
