"""bench/run precision: how bf16 and fp16 change speed and what is learned, compared with our own
fp32.

speed: runs in turn, one of each precision a round; a row has the middle of the rounds' ratios.
loss: the recipes of bench/curves.py, from the same seeds. A row precision/MODEL/PRECISION/SEED keeps
the curve, and how far a mean is from fp32's is relative.
`speed` needs an idle machine, `loss` does not."""
import json, os, statistics, subprocess, sys, tempfile

from dataclasses import replace

import curves

SPEED = [("gpt(4,256,4,128)", ["--data", "moby-dick", "--optimizer", "adamw(lr=0.0003)", "--batch", 8, "--steps", 20]),
         ("cnn", ["--steps", 200]), ("mlp", ["--steps", 200])]
# The loss of resnet's 300 steps at one rate is noise: the same seeds end twice as far apart as two
# precisions do. It settles under a rate that falls.
CASES = [replace(case, steps=600, every=600, schedule="cosine") if case.model == "resnet(depth=8)" else case
         for case in curves.CASES]
PRECISIONS = ("fp32", "bf16", "fp16")
# seeds: a run of gpt is more than a minute; of cnn one seed moves the loss by some percent,
# whatever the precision
LOSS = {"gpt(4,256,4,128)": 1, "cnn": 16, "wordlm(dim=128,hidden=256)": 3, "resnet(depth=8)": 5}


def run(tutti, words):
    with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
        command = [str(word) for word in (tutti, "train", *words, "--threads", 1, "--final-eval", "off",
                                          "--quiet", "--out", folder + "/run")]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"bench/run: {' '.join(command)} failed: {done.stderr.strip()}")
        with open(folder + "/run/summary.json") as f:
            return " ".join(["tutti", *command[1:-1], "DIR"]), json.load(f)


def speed(tutti, record, quick):
    for model, words in SPEED:
        found = {p: [] for p in PRECISIONS}
        for _ in range(1 if quick else 5):
            for p in PRECISIONS:
                command, s = run(tutti, ["--model", model, *words, "--precision", p])
                found[p].append((s["samples_per_second"], s["peak_rss_bytes_per_worker"]))
        rates = {p: [rate for rate, _ in found[p]] for p in PRECISIONS}
        for p in PRECISIONS[1:]:
            ratios = [a / b for a, b in zip(rates[p], rates["fp32"])]
            record.row(f"{model}, 1 x 1 thread, {p}: samples a second", statistics.median(rates[p]), "1/s",
                       statistics.median(ratios), "our own fp32, in turn", command=command.replace(PRECISIONS[-1], p),
                       min=min(ratios), max=max(ratios), fp32=statistics.median(rates["fp32"]), runs=len(ratios))
        memory = {p: statistics.median(m for _, m in found[p]) / 2 ** 20 for p in PRECISIONS}
        record.row(f"{model}, 1 x 1 thread, bf16: peak memory", memory["bf16"], "MiB", memory["bf16"] / memory["fp32"],
                   "our own fp32", command=command.replace(PRECISIONS[-1], "bf16"), runs=len(found["bf16"]))


def standard_error(values, others):
    """Of the difference of the means, from the same seeds, as a part of the others' mean."""
    pairs = [a - b for a, b in zip(values, others)]
    if len(pairs) < 2:
        return {}
    return dict(standard_error=statistics.stdev(pairs) / len(pairs) ** 0.5 / statistics.mean(others))


def loss(tutti, record, quick, piece, others):
    for case in (case for case in CASES if case.model in LOSS and case.model.startswith(piece)):
        if quick:
            case.steps = case.every = 2
        last = {}
        seeds = LOSS[case.model]
        for seed in range(1 if quick else seeds):
            for p in (PRECISIONS[0], *others):
                command, curve = curves.ours(tutti, case, 1, seed, p)
                last.setdefault(p, []).append(curve[-1][1])
                record.row(f"precision/{case.model}{curves.decayed(case)}/{p}/{seed}", curve[-1][1], "nats",
                           command=command, curve=curve)
        mean = {p: statistics.mean(values) for p, values in last.items()}
        for p in others:
            title = (f"{case.model}{curves.decayed(case)}, 1 x 1 thread, {p}: "
                     f"validation loss after {case.steps} steps, off from fp32's")
            record.row(title,
                       abs(mean[p] / mean["fp32"] - 1), "", loss=mean[p], fp32=mean["fp32"], seeds=len(last[p]),
                       **standard_error(last[p], last["fp32"]))
            if len(last["fp32"]) > 1: # the significance of a difference of means
                spread = max(last["fp32"]) - min(last["fp32"])
                record.row(title + " in ranges of its seeds",
                           abs(mean[p] - mean["fp32"]), "nats", abs(mean[p] - mean["fp32"]) / spread,
                           "the range of fp32's seeds", spread=spread, seeds=len(last[p]))


def precision(tutti, record, quick, piece):
    """piece: speed, loss, or loss-MODEL for one that begins so, loss-MODEL:bf16 for that precision
    alone, compared with fp32."""
    if piece in ("", "speed"):
        speed(tutti, record, quick)
    if piece == "" or piece.startswith("loss"):
        model, _, only = piece.removeprefix("loss").removeprefix("-").partition(":")
        loss(tutti, record, quick, model, [only] if only else PRECISIONS[1:])
