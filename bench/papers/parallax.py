#!/usr/bin/env python3
"""Figures of Parallax: the time and the bytes of a step with tables at servers, compared with a
gather of rows and with servers for everything.

bench/run parallax [--piece FIGURE] measures, judges and keeps them (bench/results/parallax.jsonl). This
file alone prints them:

    bench/papers/parallax.py [FIGURE ...] [--jobs N] [--quick] [--keep] [--date YYYY-MM-DD]

TUTTI names another command than that of the release. All is in virtual time: other work on the
machine changes nothing. A step is what a run of 24 steps takes beyond one of 8, by 16: opening a run
and ending it, where all get the tables, are in neither.

step      ctr, a table of 130,000 rows of 64; a worker reads 2.4 % of it in a step, and computing takes 1 ms;
          2, 4 and 8 workers on links of 1 Gbit/s: a step of ddp, which gathers rows, in multiples of
          parallax's. parameter-server for comparison.
wordlm    the same of wordlm(dim=64) on Moby Dick in 8192 byte pairs, windows of 16, 16 a worker, and bytes of
          tables alone: without the dense gradients' 2 (n-1)/n, which are mostly those of the layer that
          predicts the next word.
bytes     the runs of `step`: bytes a step of ddp, in multiples of parallax's; tables alone would be n / 2.
parts     4 workers: a step with the table in 1 to 64 parts a server, of that in one."""
import os, subprocess, sys

sys.dont_write_bytecode = True
from gossip import Papers, main  # noqa: E402

FEW, MANY = 8, 24
WORDS, DIM = 8192, 64


class Parallax(Papers):
    FIGURES = ("step", "bytes", "parts", "wordlm")
    SAMPLES = 2000, 500

    def prepare(self):
        self.log = os.path.join(self.folder, "clicks.tsv")
        subprocess.run([self.tutti, "data", "clicks", "--samples", "40000", "--values", "5000", "--spread", "0.5",
                        "--out", self.log], check=True, stdout=subprocess.DEVNULL)
        book = os.path.join(os.environ["TUTTI_DATA"], "moby-dick/moby-dick.txt")
        pairs, ids = (os.path.join(self.folder, name) for name in ("book.bpe", "book.tok"))
        for words in (("bpe", book, "--vocab", WORDS, "--out", pairs), ("tokens", book, "--bpe", pairs, "--out", ids)):
            subprocess.run([self.tutti, "data", *map(str, words)], check=True, stdout=subprocess.DEVNULL)
        self.models = {"ctr": ("--model", "ctr(dim=64,layers=1,hidden=32)", "--data",
                               f"clicks(file={self.log},rows=5000,val=0.25)", "--batch", 256),
                       "wordlm": ("--model", f"wordlm(dim={DIM})", "--data", f"tokens(file={ids},context=16)",
                                  "--batch", 16)}
        self.known, self.params = {}, {}

    def cluster(self, n):
        path = os.path.join(self.folder, f"cluster-{n}.xml")
        with open(path, "w") as f:
            subprocess.run([self.tutti, "platform", f"cluster(n={n},rate=1Gbps,latency=50us)"], check=True, stdout=f)
        return path

    def one(self, n, method, model="ctr"):
        """Seconds and bytes of a step; the command."""
        if (n, method, model) not in self.known:
            runs = [self.train(*self.models[model], "-n", n, "--transport", "sim", "--platform", self.cluster(n),
                               "--step-time", 0.001, "--threads", 1, "--steps", steps, "--eval-every", 1000,
                               "--final-eval", "off", "--seed", 1, "--optimizer", "sgd(lr=0.1)", "--method", method)
                    for steps in (FEW, MANY)]
            self.known[n, method, model] = tuple((runs[1][0][key] - runs[0][0][key]) / (MANY - FEW)
                                          for key in ("wall_seconds", "bytes_sent_total")) + (runs[1][2],)
            self.params[model] = runs[0][0]["params"]
        return self.known[n, method, model]

    def of_each(self, which, unit, scale, what, model="ctr"):
        for n in (2,) if self.quick else (2, 4, 8):
            got = {m: self.one(n, m, model) for m in ("ddp", "parameter-server", "parallax")}
            took = {m: of[which] for m, of in got.items()}
            self.row(f"parallax, {model}, {n} workers: {what} of ddp, of this", took["ddp"] / took["parallax"], "",
                     got["parallax"][2], servers_of_this=took["parameter-server"] / took["parallax"],
                     **{m.replace("-", "_") + unit: scale * v for m, v in took.items()})

    def step(self):
        self.of_each(0, "_ms", 1e3, "a step")

    def bytes(self):
        self.of_each(1, "_bytes", 1, "bytes a step")

    def wordlm(self):
        self.of_each(0, "_ms", 1e3, "a step", "wordlm")
        self.of_each(1, "_bytes", 1, "bytes a step", "wordlm")
        for n in (2,) if self.quick else (2, 4, 8):
            dense = 2 * (n - 1) * 4 * (self.params["wordlm"] - WORDS * DIM)
            ddp, parallax = (self.one(n, m, "wordlm") for m in ("ddp", "parallax"))
            self.row(f"parallax, wordlm, {n} workers: bytes a step of ddp's table, of this",
                     (ddp[1] - dense) / (parallax[1] - dense), "", parallax[2])

    def parts(self):
        first = None
        for parts in (1, 4) if self.quick else (1, 2, 4, 16, 64):
            took, _, command = self.one(4, f"parallax(partitions={parts})")
            first = first or took
            self.row(f"parallax, ctr, 4 workers, {parts} parts a server: a step, of that with one", took / first, "",
                     command, ms=1e3 * took)


if __name__ == "__main__":
    main(__doc__, "parallax", Parallax, Parallax.FIGURES)
