#!/usr/bin/env python3
"""Figures of the gossip methods' papers, in virtual time (--transport sim), three seeds each. Prints a line of JSON a measurement; nothing is asserted.

    bench/papers/gossip.py TUTTI contraction|slow|throughput [--seeds 1,2,3]

contraction  rand-psgd on a random and on the fixed ring of 16, 32, 64 workers: what one round leaves of the squared distance from the mean, against (n - 3) / (3 (n - 1)) and lambda_2^2.
             Models are put apart by one noisy step; then the rate is 0. Fixed ring: rounds in which the slowest direction is what is left.
throughput   ad-psgd, 16 workers: gradients a second with one worker 5 and 100 times slower, against (15 + 1/s) / 16 of those with none; the others' share of it.
slow         ad-psgd, 16 workers, one 5 times slower: time to the test loss that ddp has at the end, against ddp's. Rates are tuned for each, on the first seed."""
import argparse, json, math, os, subprocess, sys, tempfile

MLP = ("--model", "mlp(hidden=32)", "-n", 16, "--batch", 8, "--transport", "sim", "--step-time", 0.01)


def train(tutti, folder, *arguments):
    out = os.path.join(folder, "run%d" % len(os.listdir(folder)))
    done = subprocess.run([tutti, "train", *map(str, arguments), "--quiet", "--out", out], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("gossip.py: tutti train %s\n%s" % (" ".join(map(str, arguments)), done.stderr))
    with open(os.path.join(out, "summary.json")) as f:
        summary = json.load(f)
    with open(os.path.join(out, "metrics.jsonl")) as f:
        return summary, [json.loads(line) for line in f]


def tell(**what):
    print(json.dumps(what), flush=True)


def contraction(tutti, folder, seeds):
    for n in (16, 32, 64):
        fixed = (1 + 2 * math.cos(2 * math.pi / n)) / 3
        for mixing, due, first, last in (("random-ring", (n - 3) / (3 * (n - 1)), 1, 11), ("ring", fixed * fixed, 2 * n, 3 * n)):
            ratios = []
            for seed in seeds:
                spec = "random-ring(seed=%d)" % seed if mixing == "random-ring" else mixing
                _, lines = train(tutti, folder, "--model", "quadratic(dim=4000,noise=1000)", "-n", n, "--batch", 1, "--steps", last + 1, "--eval-every", 1, "--transport", "sim", "--seed", seed,
                                 "--method", "rand-psgd(mixing=%s)" % spec, "--optimizer", "sgd(lr=0.1)", "--lr-schedule", "step(every=1,gamma=0)")
                distance = {line["step"]: line["consensus_distance"] for line in lines if "consensus_distance" in line}
                rounds = [(distance[k + 1] / distance[k]) ** 2 for k in range(first, last)]
                ratios.append(sum(rounds) / len(rounds))
            mean = sum(ratios) / len(ratios)
            tell(figure="contraction", workers=n, mixing=mixing, formula=round(due, 5), measured=[round(r, 5) for r in ratios], mean=round(mean, 5), off_percent=round(100 * (mean / due - 1), 2),
                 rounds_to_a_hundredth=math.ceil(math.log(100) / -math.log(mean)))


def throughput(tutti, folder, seeds):
    for seed in seeds:
        common = ("--model", "quadratic(dim=50)", "-n", 16, "--steps", 600, "--batch", 16, "--transport", "sim", "--step-time", 0.01, "--seed", seed, "--method", "ad-psgd")
        even, _ = train(tutti, folder, *common)
        for factor in (5, 100):
            slow, _ = train(tutti, folder, *common, "--slow", "0:%d" % factor)
            rate = lambda s, of: sum(of(s)) / s["wall_seconds"]
            steps = lambda s: [w["steps"] for w in s["by_worker"]]
            others = lambda s: steps(s)[1:]
            tell(figure="throughput", seed=seed, slow=factor, of_even=round(rate(slow, steps) / rate(even, steps), 4), bound=round((15 + 1 / factor) / 16, 4),
                 of_bound=round(rate(slow, steps) / rate(even, steps) * 16 / (15 + 1 / factor), 4), others_of_even=round(rate(slow, others) / rate(even, others), 4))


def slow(tutti, folder, seeds, steps=240, every=10):
    rates = (0.02, 0.05, 0.1)
    optimizer = lambda lr: "sgd(lr=%g,momentum=0.9)" % lr
    run = lambda seed, method, lr, *more: train(tutti, folder, *MLP, "--slow", "0:5", "--seed", seed, "--method", method, "--optimizer", optimizer(lr), *more)
    ends = {lr: run(seeds[0], "ddp", lr, "--steps", steps)[0]["final_test_loss"] for lr in rates}
    ddp_lr = min(ends, key=ends.get)
    to_target = lambda seed, lr, loss: run(seed, "ad-psgd", lr, "--steps", 3 * steps, "--eval-every", every, "--target", "loss=%g" % loss)[0]
    times = {lr: to_target(seeds[0], lr, ends[ddp_lr]).get("time_to_target_seconds") for lr in rates}
    reached = {lr: t for lr, t in times.items() if t is not None and t > 0}
    tell(figure="tuning", ddp=ends, ad_psgd=times)
    if not reached:
        sys.exit("gossip.py: ad-psgd does not reach ddp's loss within three times its steps, at any rate")
    lr = min(reached, key=reached.get)
    for seed in seeds:
        base, _ = run(seed, "ddp", ddp_lr, "--steps", steps)
        ours = to_target(seed, lr, base["final_test_loss"])
        tell(figure="slow", seed=seed, ddp_lr=ddp_lr, ad_psgd_lr=lr, loss=round(base["final_test_loss"], 4), ddp_seconds=base["wall_seconds"], ad_psgd_seconds=ours.get("time_to_target_seconds"),
             times_faster=round(base["wall_seconds"] / ours["time_to_target_seconds"], 2) if ours.get("time_to_target_seconds") else None, ad_psgd_steps=ours["steps"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tutti")
    parser.add_argument("figure", choices=("contraction", "throughput", "slow"))
    parser.add_argument("--seeds", default="1,2,3")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        globals()[given.figure](given.tutti, folder, [int(s) for s in given.seeds.split(",")])


if __name__ == "__main__":
    main()
