"""bench/run shares: 24 shares of a step among 4 workers, one 2 times and one 4 times slower, by their speeds
(--workers 2:4 --batch-share auto) and equally many each. The two slow ones join the run.

Pairs of runs in turn. A figure is the time of the second half of the steps, so that the first measurement, and the
epoch with the division by it, lie before it. The bound is the best division of shares: the time of its longest part
over that of equally many. The models of all runs have the same bits, else there is no figure.

Passes are stretched by --slow, which sleeps, so that 4 workers compute on few cores as on cores of their own. Where the
fast ones computed a third of the time (--slow 3 on two cores), passes met on a core, and the ratio was 2.11."""
import json, os, statistics, subprocess, tempfile, time

from chaos import dies_with_us
from command import clean_environment, read, small_mnist, summary
from net import Bench

SHARES, SPEEDS, USUAL = 24, (1, 1, 2, 4), 8  # USUAL: --slow of the fast ones


def best():
    """The least time of the longest part, as a multiple of a fast worker's share."""
    longest = 1
    while sum(longest // speed for speed in SPEEDS) < SHARES:
        longest += 1
    return longest


class Shares(Bench):
    def run(self):
        if not self.chosen("auto"):
            return
        pairs, steps = (1, 30) if self.quick else (3, 80)
        even, auto, models = [], [], set()
        with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
            data = small_mnist(folder + "/data", train=60000)
            for k in range(pairs):
                for kind, times in (("even", even), ("auto", auto))[::1 - 2 * (k % 2)]:
                    out = f"{folder}/{kind}{k}"
                    times.append(self.trained(out, data, kind, steps))
                    models.add(read(out + "/model.safetensors"))
            divisions = [e["shares"] for e in summary(f"{folder}/auto0")["events"] if e["kind"] == "epoch"]
        if len(models) != 1:
            raise RuntimeError("the models differ by how shares were divided")
        ratios = [a / b for a, b in zip(even, auto)]
        bound = SHARES / len(SPEEDS) * max(SPEEDS) / best()
        self.record.row("4 workers, one 2 and one 4 times slower: a step of equal shares takes as many times one of "
                        "shares by speed", statistics.median(ratios), "", statistics.median(ratios) / bound,
                        "the best division of 24 shares", command="bench/run shares", pairs=pairs, ratios=ratios,
                        even_s=even, auto_s=auto, divisions=divisions, best_ratio=bound)

    def trained(self, out, data, kind, steps):
        """Seconds of the second half of the steps, in which all four are there."""
        words = [self.tutti, "train", "--model", "mlp(hidden=128)", "--data", data, "--batch", "512", "--seed", "5",
                 "--workers", "2:4", "-n", "2", "--elastic-shares", SHARES, "--batch-share", kind, "--threads", "1",
                 "--steps", steps, "--report-every", "1", "--eval-every", "0", "--final-eval", "off", "--slow",
                 f"*:{USUAL}", "--out", out, "--quiet"]
        start = lambda words: subprocess.Popen([*map(str, words)], env=clean_environment(), preexec_fn=dies_with_us,
                                               stdout=subprocess.DEVNULL)
        run = start(words)
        late = []
        try:
            while not os.path.exists(out + "/join"):
                if run.poll() is not None:
                    raise RuntimeError(f"a run of {kind} shares ended with exit code {run.returncode}")
                time.sleep(0.02)
            late += [start([self.tutti, "join", out, "--slow", f"*:{USUAL * speed}"]) for speed in SPEEDS[2:]]
            codes = [process.wait(600) for process in (run, *late)]
        finally:
            for process in (run, *late):
                process.kill()
                process.wait()
        if any(codes):
            raise RuntimeError(f"a run of {kind} shares ended with exit codes {codes}")
        with open(out + "/metrics.jsonl") as f:
            wall = {line["step"]: line["wall_seconds"] for line in map(json.loads, f) if "train_loss" in line}
        there = min(e["step"] for e in summary(out)["events"] if e["kind"] == "epoch" and e["workers"] == 4)
        if there > steps // 2:
            raise RuntimeError(f"all four are there from step {there} on: too late for a figure of {steps} steps")
        return wall[steps] - wall[steps // 2]
