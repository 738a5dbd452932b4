#!/usr/bin/env python3
"""Losses of decentralised methods where each worker has different data.

bench/run unlike [--piece METHOD] measures, judges and keeps them (bench/results/unlike.jsonl). This
file alone prints them:

    bench/papers/unlike.py [PIECE ...] [--jobs N] [--quick] [--keep] [--date YYYY-MM-DD]

TUTTI names another command than that of the release.

16 workers on a ring, 1/16 of mnist each, split by a draw from Dir(0.1) as in Lin et al., ICML 2021
(docs/DATA.md: even=cut), so that a worker has 1 to 3 classes mainly. mlp(hidden=32), 8 samples a
worker and step. What counts is the loss on the test samples of the mean of the models after STEPS
steps, and its accuracy. Virtual time: other work on the machine changes nothing.

All have one grid of learning rates, constant, and two seeds, which draw the partition too. The best
rate is that of the least mean loss; where it is at the border of the grid the figure is skipped. At
that rate six more seeds are run, and figures are means of all eight. A ratio is to the loss of
d-psgd in the same or a plainer form, at its own best rate; points are of accuracy above its. ddp,
which averages over all in every step, is what there is to reach. saddle, which computes each batch
twice (variant=n six times, at twice the bytes), is compared at equal steps with qg-dsgdm, which it
is without that; and through int8 with itself.

The same at Dir(0.01), where a worker has one class nearly, of qg-dsgdm and saddle; and at Dir(10),
where data are nearly the same and all should end equally well.

DSGD in the papers is d-psgd without momentum, DSGDm-N with Nesterov's, QG-DSGDm-N qg-dsgdm with it,
QG-GUTm gut with it."""
import statistics, sys

sys.dont_write_bytecode = True
from gossip import Gossip, main  # noqa: E402

STEPS, RATES, TUNING, SEEDS = 200, (0.0125, 0.03, 0.075, 0.18, 0.45), (1, 2), (1, 2, 3, 4, 5, 6, 7, 8)
PLAIN, BALL, NESTEROV = "sgd(lr=%g)", "sgd(lr=%g,momentum=0.9)", "sgd(lr=%g,momentum=0.9,nesterov=true)"
# title: method, optimizer, the title that it is compared with, more options
RUNS = {
    "ddp, nesterov": ("ddp", NESTEROV, None),
    "d-psgd, plain": ("d-psgd(order=atc)", PLAIN, None),
    "d-psgd, nesterov": ("d-psgd(order=atc)", NESTEROV, "d-psgd, plain"),
    "qg-dsgdm, momentum": ("qg-dsgdm", BALL, "d-psgd, nesterov"),
    "qg-dsgdm, nesterov": ("qg-dsgdm", NESTEROV, "d-psgd, nesterov"),
    "gut, plain": ("gut", PLAIN, "d-psgd, plain"),
    "gut, nesterov": ("gut", NESTEROV, "d-psgd, nesterov"),
    "gut(scaling=0), nesterov": ("gut(scaling=0)", NESTEROV, "d-psgd, nesterov"),
    "saddle, nesterov": ("saddle", NESTEROV, "qg-dsgdm, nesterov"),
    "saddle(variant=n), nesterov": ("saddle(variant=n)", NESTEROV, "qg-dsgdm, nesterov"),
    "saddle through int8, nesterov": ("saddle", NESTEROV, "saddle, nesterov", "--codec", "int8"),
}
# alpha of the partition, and what is run there
PARTS = (("0.1", tuple(RUNS)),
         ("0.01", ("qg-dsgdm, nesterov", "saddle, nesterov", "saddle through int8, nesterov")),
         ("10", ("ddp, nesterov", "d-psgd, plain", "d-psgd, nesterov", "qg-dsgdm, nesterov")))


def end(looks):
    """Loss and accuracy in percent of the last look; null: not finite."""
    look = looks[max(looks)] if looks else {"test_loss": None}
    return (float("inf"), 0.0) if look["test_loss"] is None else (look["test_loss"], 100 * look["test_accuracy"])


class Unlike(Gossip):
    def run(self):
        for alpha, titles in PARTS:
            self.part(alpha, titles)

    def needed(self, titles):
        """What is asked for, and what that is compared with."""
        wanted = {title for title in titles if self.chosen(title)}
        for title in reversed(titles):
            if title in wanted and RUNS[title][2] in titles:
                wanted.add(RUNS[title][2])
        return [title for title in titles if title in wanted]

    def part(self, alpha, titles):
        where, loss, accuracy, commands = f"16 workers on a ring, Dir({alpha})", {}, {}, {}
        for title in self.needed(titles):
            method, optimizer, against, *more = RUNS[title]

            def run(rate, seed):
                return self.looks(("--model", "mlp(hidden=32)", "--data", "mnist", "-n", 16, "--batch", 8,
                                   "--partition", f"dirichlet(alpha={alpha},even=cut)", "--transport", "sim", "--steps",
                                   STEPS, "--seed", seed, "--method", method, "--optimizer", optimizer % rate,
                                   "--threads", 1, *more), STEPS)

            self.seeds = TUNING[:1] if self.quick else TUNING
            got = self.tuned(f"{title}, {where}", RATES, run, lambda looks: end(looks)[0])
            if got is None:
                continue
            rate, runs, means = got
            if not self.quick:
                self.seeds = SEEDS
                others = [seed for seed in SEEDS if seed not in runs]
                runs.update(zip(others, self.all(run, [(rate, seed) for seed in others])))
            ends, commands[title] = [end(runs[seed][0]) for seed in self.seeds], runs[self.seeds[-1]][2]
            loss[title], accuracy[title] = (statistics.mean(of) for of in zip(*ends))
            to = dict(ratio=loss[title] / loss[against], against=f"{against}'s") if against in loss else {}
            self.row(f"{title}, {where}: loss after {STEPS} steps", loss[title], "", commands[title],
                     all=[e[0] for e in ends], accuracy=[e[1] for e in ends], rate=rate, means=means, **to)
            if against in loss:
                self.row(f"{title}, {where}: accuracy after {STEPS} steps above {against}'s",
                         accuracy[title] - accuracy[against], "points", commands[title], all=[e[1] for e in ends],
                         rate=rate)
        best, local, follows = (accuracy.get(t) for t in ("ddp, nesterov", "d-psgd, nesterov", "qg-dsgdm, nesterov"))
        if alpha == "0.1" and None not in (best, local, follows):
            self.row(f"qg-dsgdm, nesterov, {where}: distance from ddp's accuracy, of that of d-psgd, nesterov",
                     (best - follows) / (best - local), "", commands["qg-dsgdm, nesterov"], accuracies=accuracy)
        if alpha == "10" and set(accuracy) == set(titles):
            self.row(f"all, {where}: accuracy after {STEPS} steps, from worst to best",
                     max(accuracy.values()) - min(accuracy.values()), "points",
                     commands[min(accuracy, key=accuracy.get)], accuracies=accuracy)


if __name__ == "__main__":
    main(__doc__, "unlike", Unlike, tuple(RUNS))
