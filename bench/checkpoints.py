"""Figures of checkpoints: what bench/run checkpoints measures, judges and keeps (bench/results/checkpoints.jsonl).

stall     gpt of 101 M parameters with AdamW (1.2 GB a checkpoint) and resnet(depth=20) with SGD and momentum (2 MB),
          two workers of one thread, each with a core: the time that a checkpoint takes from the run, over 30 s, the
          time between two that a user would choose. It is what a run with checkpoints takes longer than one without,
          divided by their number, so it has what the thread that writes takes from training, too. The run's last
          checkpoint is half an interval before its end, where nothing waits for it. In turns: none, blocking, in the
          background. The bound of the last one is a copy of the state: 101 M x 12 B at the rate of memcpy.
          DIR is TUTTI_TIER_DIR, or else the build's folder."""
import os, statistics, subprocess, sys, tempfile

from command import clean_environment, small_mnist, small_text, summary

BETWEEN = 30.0 # seconds between two checkpoints: a stall is given in percent of it
FORMS = dict(none=(), blocking=("--checkpoint-async", "off"), background=("--checkpoint-async", "on"))


class Checkpoints:
    def __init__(self, tutti, record, quick, piece):
        self.tutti, self.record, self.quick, self.piece = tutti, record, quick, piece
        self.build = os.path.dirname(os.path.dirname(tutti))
        self.rounds, self.saves, self.interval = (1, 1, 2) if quick else (3, 4, 10)

    def run(self):
        where = os.environ.get("TUTTI_TIER_DIR", self.build)
        with tempfile.TemporaryDirectory(prefix="tutti-bench-", dir=where) as folder:
            text = f"text(file={small_text(folder)},context=32)"
            images = small_mnist(folder)
            for name, words in {
                "gpt, 101 M parameters, adamw": ("--model", "gpt(layers=8,dim=1024,heads=8)", "--data", text,
                                                 "--batch", 4, "--optimizer", "adamw"),
                "resnet(depth=20), sgd": ("--model", "resnet(depth=20)", "--data", images, "--batch", 8,
                                          "--optimizer", "sgd(lr=0.01,momentum=0.9)"),
            }.items():
                if "stall".startswith(self.piece):
                    self.stall(name, words, folder)

    def train(self, folder, *words):
        out = os.path.join(folder, "run")
        words = ["train", *words, "-n", 2, "--threads", 1, "--final-eval", "off", "--overwrite", "--quiet",
                 "--out", out]
        done = subprocess.run([self.tutti, *map(str, words)], env=clean_environment(), text=True,
                              stderr=subprocess.PIPE)
        if done.returncode != 0:
            sys.exit(f"bench/run: tutti {' '.join(map(str, words))}: {done.stderr}")
        return summary(out)

    def every(self, folder, words):
        """Steps in an interval, by how much longer three times as many steps take, once that is a tenth of it."""
        steps, more = 2, 0
        while more < self.interval / 10:
            steps *= 2
            few, many = (self.train(folder, *words, "--steps", n)["host_seconds"] for n in (steps, 3 * steps))
            more = many - few
        return max(1, round(self.interval * 2 * steps / more))

    def stall(self, name, words, folder):
        every = self.every(folder, words)
        steps = every * self.saves + (every + 1) // 2
        took = {form: [] for form in FORMS}
        for k in range(self.rounds):
            for form in (list(FORMS)[k % 3:] + list(FORMS)[:k % 3]):
                often = () if form == "none" else ("--checkpoint-every", every)
                s = self.train(folder, *words, "--steps", steps, *often, *FORMS[form])
                took[form].append(s["host_seconds"])
                if form == "background":
                    copies = s["async_checkpoints"]
        for form in ("blocking", "background"):
            stalls = [(ours - none) / self.saves for ours, none in zip(took[form], took["none"])]
            more = dict(copies=copies) if form == "background" else {}
            self.record.row(f"{name}, {form}: a checkpoint each 30 s takes",
                            100 * statistics.median(stalls) / BETWEEN, "%", command="bench/run checkpoints",
                            stalls_s=stalls, seconds=took, steps=steps, every=every, **more)
