#!/usr/bin/env python3
"""Figures of HetPipe (Park et al., USENIX ATC 2020): virtual workers of unequal workers.

bench/run hetpipe [--piece FIGURE] measures, judges and keeps them (bench/results/hetpipe.jsonl). This
file alone prints them:

    bench/papers/hetpipe.py [FIGURE ...] [--jobs N] [--quick] [--keep] [--date YYYY-MM-DD]

TUTTI names another command than that of the release.

stages   a gpt in 2 stages, on 2 workers with a thread each, in waves of 16 micro-batches: windows a
         second, of a single worker's with the same steps. With one forward, one backward and a flush
         behind 16 micro-batches 32/17 = 1.88 times are possible. Runs in turn, the middle of the
         ratios. Reports only at the end. It needs a machine on which nothing else runs.
bubble   virtual time, a gpt of 16 blocks in 2 and 4 stages, a flush behind each step of M
         micro-batches: the share of the time in which the busiest stage waits, off from
         (k - 1) / (M + k - 1). The formula is for stages that take the same time; the last one has
         the logits in addition to its blocks, so that others wait for it, too. That is no bubble. A
         micro-batch takes 10 s, so that messages and updates, which are not in the formula, are
         negligible.
kinds    virtual time, 16 workers, four of each of four kinds, as fast as to each other and with as
         much memory as the paper's cards, where a whole model needs 7: 1 and 12, 1/1.1 and 24, 1/2
         and 6, 1/2.7 and 8. ddp has to exclude the four with 6. Windows a second of virtual workers
         with one of each kind, by measured stages, of ddp's on the other 12; D = 0 and 4.
target   the same: time to the loss that ddp has at the end of its steps, 8 windows a worker and step.
         All have Adam and one grid of learning rates, two seeds. The time is that of the shortest
         whole run that reaches the loss.
images   the same of an mlp on images, two workers of each kind: virtual workers of a fast and a slow
         one (hd). ddp has SGD with a momentum of 0.9, hetpipe, whose updates are late, without: what
         each has by default, but for the rate, which is of one grid."""
import os, re, statistics, subprocess, sys

sys.dont_write_bytecode = True
from gossip import Papers, main  # noqa: E402

KINDS = ("1", 12), ("1.1", 24), ("2", 6), ("2.7", 8)  # how slow, how much memory
WHOLE = 7  # least memory of a kind that the model fits into
BLOCKS = "gpt(layers=16,dim=256,heads=4)"
SMALL = "gpt(layers=4,dim=32,heads=2)"
TEXT = "moby-dick(context=16,val_windows=200,val_stride=256)"
SEEDS = 1, 2
STEPS, GRAIN, RATES = 120, 10, [0.0005 * 2 ** k for k in range(8)]
IMAGES, IMAGE_RATES = "mlp(hidden=256)", [0.0125 * 2 ** k for k in range(8)]
PAIRS = {"hetpipe(allocation=hd)": "", "hetpipe(allocation=hd,clock_distance=4)": ",clock_distance=4"}
HETPIPES = {"hetpipe(stages=4)": "", "hetpipe(stages=4,clock_distance=4)": ",clock_distance=4"}


def slow(kinds, each):
    """The value of --slow with `each` workers of each kind."""
    return ",".join(f"{each * k + i}:{times}" for k, (times, _) in enumerate(kinds) for i in range(each)
                    if times != "1")


def speeds(each):
    return ":".join(f"{1 / float(times):.3g}" for times, _ in KINDS for _ in range(each))


def memory(needs, each):
    return ":".join(f"{needs * part / WHOLE:.3f}" for _, part in KINDS for _ in range(each))


class HetPipe(Papers):
    FIGURES = ("stages", "bubble", "kinds", "target", "images")
    SAMPLES = 12000, 2000

    def __init__(self, *args, **words):
        super().__init__(*args, **words)
        self.seeds = SEEDS[:1]  # but of `target`

    def stages(self):
        steps, turns = (2, 1) if self.quick else (12, 5)
        common = ("--model", "gpt(layers=4,dim=128,heads=4)", "--data", "moby-dick(context=64)", "--threads", 1,
                  "--steps", steps, "--report-every", steps, "--final-eval", "off", "--seed", 1,
                  "--optimizer", "sgd(lr=0.001)")  # it is timed alone; updates 15 late diverge with more
        ratios, told = [], None
        for _ in range(turns):
            one = self.train(*common, "-n", 1, "--batch", 256, "--method", "single")[0]["samples_per_second"]
            told, _, command = self.train(*common, "-n", 2, "--batch", 128, "--method",
                                          "hetpipe(stages=2,in_flight=16)")
            ratios.append(told["samples_per_second"] / one)
        most = 2 * 16 / (16 + 2 - 1)
        self.row("hetpipe(stages=2,in_flight=16), gpt, 2 workers, 16 micro-batches: windows a second, of 1F1B's 1.88 "
                 "times one worker's", statistics.median(ratios) / most, "", command, timed=True, ratios=ratios,
                 compute_share=[w["compute_seconds"] / told["wall_seconds"] for w in told["by_worker"]])

    def bubble(self):
        steps = 3
        for k in (2, 4):
            for count in (8, 16, 64):
                waves = count // k  # of k micro-batches, each of one window
                summary, _, command = self.train(
                    "--model", BLOCKS, "--data", TEXT, "--threads", 1, "-n", k, "--batch", 1,
                    "--accumulate", waves, "--steps", steps, "--report-every", 1, "--final-eval", "off", "--seed", 1,
                    "--transport", "sim", "--step-time", 10, "--method", f"hetpipe(stages={k},in_flight={k})")
                computes = [w["compute_seconds"] for w in summary["by_worker"]]
                share = 1 - max(computes) / summary["wall_seconds"]
                formula = (k - 1) / (count + k - 1)
                self.row(f"hetpipe(stages={k}), gpt, {count} micro-batches and a flush: bubble share, off from the "
                         "formula", 100 * abs(share / formula - 1), "%", command, share=share, formula=formula,
                         least_of_most=min(computes) / max(computes))

    # ---- four kinds ----
    def needs(self, model, data, optimizer):
        """MiB of a whole model, from the sentence of a refusal."""
        done = subprocess.run([self.tutti, "train", "--model", model, "--data", data, "-n", "1", "--batch", "8",
                               "--method", "hetpipe(stages=1,in_flight=1,memory=0.001)", "--optimizer", optimizer,
                               "--out", os.path.join(self.folder, "refused")],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        return int(re.search(r"needs (\d+) bytes", done.stderr)[1]) / 2 ** 20

    def on(self, method, spec, each, rate, steps, seed):
        """The words of a run with `each` workers of each kind; ddp on the kinds that the model fits
        into."""
        kinds = [kind for kind in KINDS if spec or kind[1] >= WHOLE]
        return ("-n", each * len(kinds), "--batch", 8, "--transport", "sim", "--platform", self.links, "--step-time",
                0.1, "--slow", slow(kinds, each), "--threads", 1, "--steps", steps, "--report-every", steps, "--seed",
                seed, "--method", spec or "ddp", "--optimizer", rate,
                *(("--batch-share", "auto") if method == "ddp with batch-share" else ()))

    def words(self, method, rate, seed, steps):
        spec = method in HETPIPES and (f"hetpipe(stages=4,node=4,profile=measured{HETPIPES[method]},"
                                       f"memory={memory(self.needs_of, 4)})")
        return ("--model", SMALL, "--data", TEXT, *self.on(method, spec, 4, f"adam(lr={rate:g})", steps, seed))

    def image_words(self, method, rate, seed, steps):
        spec = method in PAIRS and (f"hetpipe(allocation=hd,node=2{PAIRS[method]},speeds={speeds(2)},"
                                    f"memory={memory(self.image_needs, 2)})")
        momentum = "" if spec else ",momentum=0.9"
        return ("--model", IMAGES, "--data", self.data, *self.on(method, spec, 2, f"sgd(lr={rate:g}{momentum})", steps,
                                                                 seed))

    def prepare(self):
        self.links = os.path.join(self.folder, "cluster.xml")
        with open(self.links, "w") as f:
            subprocess.run([self.tutti, "platform", "cluster(n=16,rate=10Gbps)"], check=True, stdout=f)
        self.needs_of = self.needs(SMALL, TEXT, "adam")
        self.image_needs = self.needs(IMAGES, self.data, "sgd(lr=0.1,momentum=0.9)")

    def kinds(self):
        steps, rates = 10 if self.quick else 40, {}
        for method in ("ddp", "ddp with batch-share", *HETPIPES):
            summary, _, command = self.train(*self.words(method, RATES[2], 1, steps), "--final-eval", "off")
            rates[method] = summary["samples"] / summary["wall_seconds"]
            if method == "ddp":
                continue
            where = "12 workers of three kinds" if method not in HETPIPES else "16 workers of four kinds"
            self.row(f"{method}, {where}: windows a second, of those of ddp on the 12 with room",
                     rates[method] / rates["ddp"], "", command, ddp=rates["ddp"], here=rates[method],
                     figures={key: value for key, value in summary.get("method_figures", {}).items()
                              if not isinstance(value, list)})

    def until(self, where, words, methods, rates):
        self.seeds = SEEDS[:1] if self.quick else SEEDS
        self.faster(where, words, "ddp", methods, rates, 40 if self.quick else STEPS, GRAIN)
        self.seeds = SEEDS[:1]

    def target(self):
        self.until("16 workers of four kinds", self.words, tuple(HETPIPES), RATES)

    def images(self):
        self.until("mlp, 8 workers of four kinds", self.image_words, tuple(PAIRS), IMAGE_RATES)


if __name__ == "__main__":
    main(__doc__, "hetpipe", HetPipe, HetPipe.FIGURES)
