#!/usr/bin/env python3
"""Losses of decentralised methods where each worker has unlike data.

bench/run unlike [--piece METHOD] measures, judges and keeps them (bench/results/unlike.jsonl). This
file alone prints them:

    bench/papers/unlike.py [METHOD ...] [--jobs N] [--quick] [--keep] [--date YYYY-MM-DD]

TUTTI names another command than that of the release.

16 workers on a ring, 1/16 of mnist each, cut by a draw from Dir(0.1) as in Lin et al., ICML 2021
(docs/DATA.md: even=cut), so that a worker has 1 to 3 classes mainly. mlp(hidden=32), 8 samples a
worker and step. What counts is the loss on the test samples of the mean of the models after STEPS
steps. Virtual time: other work on the machine changes nothing.

All have one grid of learning rates, constant, and two seeds, which draw the partition too. The best
rate is that of the least mean loss; where it is at the border of the grid the figure is left out. A
ratio is to the loss of d-psgd in the same or a plainer form, at its own best rate. ddp, which averages
over all in every step, is what there is to reach. saddle, which computes each batch twice (variant=n
six times, at twice the bytes), is compared at equal steps with qg-dsgdm, which it is without that; and
through int8 with itself.

DSGD in the papers is d-psgd without momentum, DSGDm-N with Nesterov's, QG-DSGDm-N qg-dsgdm with it,
QG-GUTm gut with it."""
import argparse, datetime, os, statistics, sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "bench/papers"), os.path.join(ROOT, "tests/cli")]
os.environ.setdefault("TUTTI", os.path.join(ROOT, "build/release/bin/tutti"))
os.environ.setdefault("TUTTI_DATA", os.path.join(ROOT, "data"))
import record as records  # noqa: E402
from command import TUTTI  # noqa: E402
from gossip import Gossip, last  # noqa: E402

WHERE = "16 workers on a ring, Dir(0.1)"
STEPS, RATES, SEEDS = 200, (0.0125, 0.03, 0.075, 0.18, 0.45), (1, 2)
PLAIN, BALL, NESTEROV = "sgd(lr=%g)", "sgd(lr=%g,momentum=0.9)", "sgd(lr=%g,momentum=0.9,nesterov=true)"
# method, title, optimizer, the title that it is compared with, more options
RUNS = (
    ("ddp", "ddp, nesterov", NESTEROV, None),
    ("d-psgd(order=atc)", "d-psgd, plain", PLAIN, None),
    ("d-psgd(order=atc)", "d-psgd, nesterov", NESTEROV, "d-psgd, plain"),
    ("qg-dsgdm", "qg-dsgdm, momentum", BALL, "d-psgd, nesterov"),
    ("qg-dsgdm", "qg-dsgdm, nesterov", NESTEROV, "d-psgd, nesterov"),
    ("gut", "gut, plain", PLAIN, "d-psgd, plain"),
    ("gut", "gut, nesterov", NESTEROV, "d-psgd, nesterov"),
    ("gut(scaling=0)", "gut(scaling=0), nesterov", NESTEROV, "d-psgd, nesterov"),
    ("saddle", "saddle, nesterov", NESTEROV, "qg-dsgdm, nesterov"),
    ("saddle(variant=n)", "saddle(variant=n), nesterov", NESTEROV, "qg-dsgdm, nesterov"),
    ("saddle", "saddle through int8, nesterov", NESTEROV, "saddle, nesterov", "--codec", "int8"),
)


class Unlike(Gossip):
    def run(self):
        self.seeds = SEEDS[:1] if self.quick else SEEDS
        wanted = [run for run in RUNS if self.chosen(run[1])]
        bases = {run[3] for run in wanted}
        bases |= {run[3] for run in RUNS if run[1] in bases}
        losses = {}
        for method, title, optimizer, against, *more in (run for run in RUNS if run in wanted or run[1] in bases):
            got = self.tuned(f"{title}, {WHERE}", RATES,
                             lambda rate, seed: self.losses(
                                 ("--model", "mlp(hidden=32)", "--data", "mnist", "-n", 16, "--batch", 8,
                                  "--partition", "dirichlet(alpha=0.1,even=cut)", "--transport", "sim", "--steps",
                                  STEPS, "--seed", seed, "--method", method, "--optimizer", optimizer % rate,
                                  "--threads", 1, *more), STEPS))
            if got is None:
                continue
            rate, runs, means = got
            all_of = [last(runs[seed][0]) for seed in self.seeds]
            losses[title] = statistics.mean(all_of)
            to = dict(ratio=losses[title] / losses[against], against=f"{against}'s") if against in losses else {}
            self.row(f"{title}, {WHERE}: loss after {STEPS} steps", losses[title], "", runs[self.seeds[-1]][2],
                     all=all_of, rate=rate, means=means, **to)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", metavar="METHOD",
                        help="or the beginning of one: " + "; ".join(run[1] for run in RUNS))
    parser.add_argument("--jobs", type=int, default=1, help="runs at one time")
    parser.add_argument("--quick", action="store_true", help="one seed, to see that it works")
    parser.add_argument("--keep", action="store_true", help="add the rows to bench/results")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    given = parser.parse_args()
    record = records.Recorder(TUTTI, given.date, given.keep and not given.quick)
    record.part("unlike")
    for piece in given.methods:
        if not any(run[1].startswith(piece) for run in RUNS):
            parser.error(f"there is no method '{piece}'; they are {'; '.join(run[1] for run in RUNS)}")
    Unlike(TUTTI, record, given.quick, given.jobs, tuple(given.methods) or "").run()


if __name__ == "__main__":
    main()
