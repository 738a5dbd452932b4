#!/usr/bin/env python3
"""Goal: many simulated workers fit into one process, and their reports keep each worker's own
figures in its own row. Method: memory of 64 workers above that of one, evaluation included, against
twice what they need; a worker slowed four times among seven must be the one whose row shows it."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../cli"))
from command import scratch_folder

command = sys.argv[1]
environment = dict(os.environ, TUTTI_DATA=sys.argv[2])
MODEL = "mlp(hidden=128)"
PARAMETERS = 118282


def train(n, out, *more):
    words = [command, "train", "--model", MODEL, "--transport", "sim", "--data", "mnist", "-n", str(n), "--steps", "4",
             "--batch", "8", "--quiet", "--out", out]
    done = subprocess.run(words + list(more), env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    with open(out + "/summary.json") as summary, open(out + "/metrics.jsonl") as metrics:
        return json.load(summary), [json.loads(line) for line in metrics]


with scratch_folder() as folder:
    # The three vectors of a worker's state, what a tree's partner sends, a batch of five,
    # activations; the bound is twice that.
    one = train(1, folder + "/one")[0]["peak_rss_bytes_per_worker"]
    many = train(64, folder + "/many")[0]["peak_rss_bytes_per_worker"]
    each = (many - one) / 63
    need = 4 * (4 * PARAMETERS + 5 * 8 * 784) + 300e3
    assert each <= 2 * need, (f"a simulated worker takes {each / 1e6:.2f} MB beyond the first; "
                              f"{need / 1e6:.2f} MB are needed")

    summary, lines = train(7, folder + "/slow", "--slow", "5:4", "--report-every", "2", "--final-eval", "off")
    computing = [row["compute_seconds"] for row in summary["by_worker"]]
    assert [row["worker"] for row in summary["by_worker"]] == list(range(7))
    for told in [computing] + [line["compute_seconds_by_worker"] for line in lines
                               if "compute_seconds_by_worker" in line]:
        assert len(told) == 7
        for worker in range(7):
            factor = told[worker] / told[0]
            assert abs(factor
                       - (4 if worker == 5
                          else 1)) < 0.05, f"worker {worker} computes {factor:.3f} times as long as worker 0: {told}"
