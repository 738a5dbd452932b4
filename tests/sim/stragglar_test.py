#!/usr/bin/env python3
"""Goal: stragglar finds the late worker by itself, gains what its formula predicts, resumes to the bit,
and is ddp while no worker is late. Method: the command in the simulator, where computing takes
--step-time and a slow worker five times that; virtual times against the formulas."""
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../cli"))
from command import scratch_folder, small_mnist

command, ROUNDS, N = sys.argv[1], 9, 8  # n - 2 + lg n
environment = dict(os.environ, TUTTI_DATA=sys.argv[2])
RATE, LATENCY = 1e9 / 8, 2e-6


def run(*words):
    done = subprocess.run([command, *words], env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


def train(out, method, steps, *more):
    run("train", "--model", "mlp(hidden=64)", "--data", data, "--method", method, "--transport",
        f"sim(platform={platform})", "-n", str(N), "--steps", str(steps), "--batch", "8", "--step-time", "0.01",
        "--final-eval", "off", "--quiet", "--out", out, *more)
    with open(out + "/model.safetensors", "rb") as model, open(out + "/summary.json") as summary:
        return model.read(), json.load(summary)


def events(summary):
    return [(e["step"], e["text"]) for e in summary["events"] if e["kind"] == "stragglar"]


with scratch_folder() as folder:
    data = small_mnist(folder + "/data", 8192)  # more than any run goes through
    platform = folder + "/p.xml"
    with open(platform, "w") as file:
        file.write(run("platform", "cluster(n=8,rate=1Gbps,latency=2us)"))

    # No worker is late: ddp, to the bit, and to the nanosecond except for the small all-gathers.
    ddp, plain = train(folder + "/ddp", "ddp", 25)
    even, summary = train(folder + "/even", "stragglar", 25)
    assert even == ddp and events(
        summary) == [] and summary["wall_seconds"] - plain["wall_seconds"] < 1e-3, summary["wall_seconds"]

    # Worker 3 is late by 40 ms from the beginning: found after 20 steps.
    slow = ("--slow", "3:5")
    ddp, plain = train(folder + "/ddp-slow", "ddp", 80, *slow)
    model, summary = train(folder + "/slow", "stragglar(verify=on)", 80, *slow)
    told = events(summary)
    assert len(told) == 1 and told[0][0] == 19 and told[0][1].startswith("worker 3 comes 40 ms after all others"), told
    assert "it is the straggler from now on" in told[0][1]
    s = 4 * summary["params"]
    alpha, beta = LATENCY + 40 / RATE, 1 / RATE
    sar, direct = ROUNDS * (alpha + s * beta / (N - 1)), 2 * alpha + 2 * (N - 1) / N * s * beta
    gain = (plain["wall_seconds"] - summary["wall_seconds"]) / 60
    assert abs(gain - (direct - sar)) < 0.05 * (direct - sar), (gain, direct - sar)
    assert summary["bytes_sent_total"] == plain["bytes_sent_total"] + 80 // 20 * 4 * N * (N - 1)

    # The same with a rest in the middle of a window: the choice, the figures it was made from and
    # the window's sums are all in the checkpoint.
    train(folder + "/rest", "stragglar(verify=on)", 50, "--checkpoint-every", "50", *slow)
    resumed, _ = train(folder + "/rest2", "stragglar(verify=on)", 80, "--resume", folder + "/rest", *slow)
    assert model != ddp, ("the order of summation is another, so the bits should tell "
                          "whether a resumed run still knows its straggler")
    assert resumed == model, "a resumed run ends with other parameters"

    # A named worker is the straggler from the first step; the wrong one costs more than it gains,
    # and this is reported.
    _, summary = train(folder + "/named", "stragglar(straggler=5)", 25, *slow)
    told = events(summary)
    assert len(told) == 1 and "worker 3 comes 40 ms after" in told[0][1], told
    assert "worker named by straggler is kept" in told[0][1], told
    # min_delay_us is heeded.
    _, summary = train(folder + "/least", "stragglar(min_delay_us=41000)", 25, *slow)
    assert events(summary) == [], summary["events"]

    # Fifteen workers: the schedule takes a round more than n - 2 + ceil(lg n), and T_SAR is of all
    # of them. Of a ring's 28 chunks of s/15 it is 18 of s/14, but for what a message costs by
    # itself.
    N = 15
    with open(platform, "w") as file:
        file.write(run("platform", "cluster(n=15,rate=1Gbps,latency=2us)"))
    _, summary = train(folder + "/fifteen", "stragglar", 25, "--slow", "14:5")
    told = re.search(r"hides ([\d.]+) ms and takes ([\d.]+) ms from then on, a ring ([\d.]+) ms",
                     summary["events"][0]["text"])
    hides, takes, ring = map(float, told.groups())
    assert abs(takes / ring - 18 / 14 / (28 / 15)) < 0.005, summary["events"]
