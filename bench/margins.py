"""bench/run margins: what the papers of codecs promise of the end of training, against fp32 ddp with the same samples, steps, optimiser and seeds. 4 workers of one thread.

    cnn on mnist(distort=1), 4 x 16 samples, an epoch with a cosine: per cent of the test images; gpt(2,128,4,64) on moby-dick, 4 x 4 windows, 400 steps of adamw: nats a byte
    Margins are the papers' (the sheets' headline results), or, where a paper finds no loss, the spread that seeds have there: 0.3 points, 0.02 nats
    accordion: one run at each of its levels and one that switches, whose accuracy is held against the low one's and its bytes against the high one's

Samples a second are none of this part's business, so that it may run while others do. --piece: `margins/cnn`, `margins/gpt`, `margins/accordion`. Each row is a run of 20 to 40 s of two cores."""
import json, os, statistics, subprocess, sys, tempfile

CNN = ("--model", "cnn", "--data", "mnist(distort=1)", "--batch", 16, "--epochs", 1, "--lr-schedule", "cosine")
GPT = ("--model", "gpt(2,128,4,64)", "--data", "moby-dick(context=64,stride=1)", "--batch", 4, "--steps", 400)
SGD, ADAM = ("--optimizer", "sgd(lr=0.05,momentum=0.9)"), ("--optimizer", "adamw(lr=0.001)")
POINTS, NATS = 0.3, 0.02
# name: words, margin in points and nats, of which paper; None: not of that network
METHODS = {
    "powersgd(rank=2)": (("--method", "powersgd(rank=2)"), POINTS, 0.022, "93 against 91 perplexity, CIFAR-10 no loss"),
    "qsgd(bits=4)": (("--method", "qsgd(bits=4)"), POINTS, NATS, "4 bits with buckets of 512 cost nothing"),
    "nuqsgd(bits=4)": (("--method", "nuqsgd(bits=4)"), 0.5, NATS, "within 0.5 points"),
    "alq(bits=3)": (("--method", "alq(bits=3)"), 0.7, NATS, "93.2 against 93.9"),
    "amq(bits=3)": (("--method", "amq(bits=3)"), 0.7, NATS, "as alq"),
    "ef(topk(ratio=0.01))": (("--codec", "ef(topk(ratio=0.01))"), POINTS, NATS, "PowerSGD's table 4: 94.4 against 94.3"),
    "gradient-sparsification": (("--method", "gradient-sparsification"), POINTS, NATS, "no loss at a tenth of the coordinates"),
    "dgc": (("--method", "dgc"), POINTS, NATS, "72.24 against 72.30 perplexity; 76.15 against 75.96"),
    "ef(sign)": (("--codec", "ef(sign)"), 0.92, NATS, "EF-signSGD, 0.92 points below at batch 128"),
    "onebit-adam": (("--method", "onebit-adam"), POINTS, NATS, "converges as Adam does"),
}
# Who keeps a momentum himself takes a plain step: the optimiser that he is given, and the one of fp32 that he is held against. dgc is momentum SGD's, so it has no row where Adam trains.
OWN = {"dgc": (("--optimizer", "sgd(lr=0.05)"), SGD), "onebit-adam": (("--optimizer", "sgd(lr=0.001)"), ("--optimizer", "adam(lr=0.001)"))}
LOW, HIGH = "topk(ratio=0.1)", "topk(ratio=0.002)"
DROPS = ("--lr-schedule", "step(every=600,gamma=0.1)")


def run(tutti, words, seed):
    with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
        command = [tutti, "train", "-n", 4, "--threads", 1, "--seed", seed, "--quiet", "--out", folder + "/run", *words]
        done = subprocess.run([str(w) for w in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"bench/run: {' '.join(map(str, command))}: {done.stderr.strip()}")
        with open(folder + "/run/summary.json") as f:
            return json.load(f), " ".join(map(str, ["tutti", *command[1:-len(words) - 2], "--out", "DIR", *words]))


class Margins:
    def __init__(self, tutti, record, quick, piece):
        self.tutti, self.record, self.piece = tutti, record, piece or ""
        self.more = ("--steps", 4) if quick else ()
        self.seeds = (0,) if quick else (0, 1)

    def chosen(self, name):
        return name.startswith(self.piece) or self.piece.startswith(name + "/")

    def of(self, words, key):
        """Means over the seeds of a figure and of a worker's bytes, and one command."""
        found = [run(self.tutti, (*words, *self.more), seed) for seed in self.seeds]
        return statistics.mean(s[key] for s, _ in found), statistics.mean(s["bytes_sent_per_worker"] for s, _ in found), found[0][1]

    def network(self, name, words, optimizer, key, column):
        if not any(self.chosen(f"margins/{name}/{method}") for method in METHODS):
            return
        scale, unit = (100, "%") if key == "final_test_accuracy" else (1, "nats")
        fp32 = {}
        for method, (how, *margins, why) in METHODS.items():
            if not self.chosen(f"margins/{name}/{method}"):
                continue
            if method == "dgc" and optimizer is not SGD:
                continue
            given, with_ = OWN.get(method, (optimizer, optimizer))
            if with_ not in fp32:
                fp32[with_] = self.of((*words, *with_), key)
                self.record.row(f"{name}, 4 workers, ddp, fp32, {with_[1]}", scale * fp32[with_][0], unit, command=fp32[with_][2], bytes=fp32[with_][1], seeds=len(self.seeds), timed=False)
            base, base_bytes, _ = fp32[with_]
            value, sent, command = self.of((*words, *given, *how), key)
            behind = scale * (base - value) if unit == "%" else value - base
            self.record.row(f"{name}, 4 workers, {method}: behind fp32 by", behind, "points" if unit == "%" else "nats", sent / base_bytes, "fp32's bytes", margins[column], "less", command, figure=scale * value,
                            promise=why, seeds=len(self.seeds), timed=False)

    def accordion(self):
        if not self.chosen("margins/accordion"):
            return
        words, key = (*CNN[:-2], *SGD, *DROPS), "final_test_accuracy"
        low, low_bytes, _ = self.of((*words, "--codec", f"ef({LOW})"), key)
        high, high_bytes, _ = self.of((*words, "--codec", f"ef({HIGH})"), key)
        value, sent, command = self.of((*words, "--method", f"accordion(low={LOW},high={HIGH},unit=step,interval=30,min_numel=0)"), key)
        title = f"cnn, 4 workers, accordion of {LOW} and {HIGH}: "
        more = dict(low=100 * low, high=100 * high, accordion=100 * value, low_bytes=low_bytes, high_bytes=high_bytes, seeds=len(self.seeds), timed=False)
        self.record.row(title + "behind the low level by", 100 * (low - value), "points", bound=POINTS, better="less", command=command, **more)
        self.record.row(title + "bytes of a worker", sent, "bytes", sent / high_bytes, "those of the high level", command=command, of_low=sent / low_bytes, **more)

    def margins(self):
        self.network("cnn", CNN, SGD, "final_test_accuracy", 0)
        self.network("gpt", GPT, ADAM, "final_test_loss", 1)
        self.accordion()
