#!/usr/bin/env python3
"""Goal: simulated training is training: the same parameters to the bit as real processes give, and
the same files and times from run to run."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../cli"))
from command import scratch_folder, small_mnist

command = sys.argv[1]
environment = dict(os.environ, TUTTI_DATA=sys.argv[2])


def train(out, *more):
    words = [command, "train", "--model", "mlp(hidden=32)", "--data", data, "-n", "4", "--steps", "40",
             "--batch", "16", "--threads", "1", "--final-eval", "off", "--quiet", "--out", out]
    done = subprocess.run(words + list(more), env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    with open(out + "/model.safetensors", "rb") as model, open(out + "/summary.json") as summary:
        return model.read(), json.load(summary)


with scratch_folder() as folder:
    data = small_mnist(folder + "/data", 4096)  # more than any run goes through
    real, told = train(folder + "/real")
    assert told["simulated"] is False
    once, first = train(folder + "/once", "--transport", "sim")
    again, second = train(folder + "/again", "--transport", "sim")
    assert once == real, "simulated and real workers end with other parameters"
    assert once == again
    assert first["simulated"] is True and first["transport"] == "sim" and first["threads"] == 1
    for key in first:
        if key not in ("host_seconds", "peak_rss_bytes_per_worker"):
            assert first[key] == second[key], f"{key}: {first[key]} and {second[key]} in equal runs"
    for key in "wall_seconds", "compute_seconds", "exposed_comm_seconds", "host_seconds":
        assert 0 < first[key], key
    assert first["bytes_sent_total"] == told["bytes_sent_total"]
    failed = subprocess.run([command, "train", "--transport", "sim(platform=/nowhere.xml)", "-n", "2",
                             "--out", folder + "/none"], env=environment, capture_output=True, text=True, timeout=60)
    assert failed.returncode == 2 and "cannot read the platform '/nowhere.xml'" in failed.stderr, failed.stderr
    failed = subprocess.run([command, "train", "--transport", "sim", "--platform", "cluster(8)", "-n", "2",
                             "--out", folder + "/none"], env=environment, capture_output=True, text=True, timeout=60)
    assert failed.returncode == 2 and "with tutti platform 'cluster(8)' > FILE" in failed.stderr, failed.stderr
