#!/usr/bin/env python3
"""Goal: unequal workers cost the computed time, in virtual time, and shares by speed win it back;
on unequal links hetero-ring's all-reduce is no slower than ddp's. Method: `tutti train --transport
sim --step-time`, 8 workers, one 5 times slower."""
import json
import os
import re
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../cli"))
from command import scratch_folder, small_mnist

command = sys.argv[1]
environment = dict(os.environ, TUTTI_DATA=sys.argv[2])
N, SLOW, STEPS, T = 8, 5, 60, 0.01
LATENCY, BYTES_A_SECOND, HEADER = 50e-6, 1.25e9, 40  # of the bare platform; a message's note


def train(out, *more):
    words = [command, "train", "--model", "mlp(hidden=32)", "--data", data, "-n", str(N), "--steps", str(STEPS),
             "--batch", "32", "--transport", "sim", "--step-time", str(T), "--report-every", str(STEPS),
             "--final-eval", "off", "--quiet", "--out", out]
    done = subprocess.run(words + list(more), env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    with open(out + "/summary.json") as f:
        return json.load(f)


def model(out):
    with open(out + "/model.safetensors", "rb") as f:
        raw = f.read()
    body = raw[8 + struct.unpack("<Q", raw[:8])[0]:]
    return struct.unpack("<%df" % (len(body) // 4), body)


def apart(a, b):
    return sum((x - y) ** 2 for x, y in zip(a, b)) ** 0.5 / sum(y * y for y in b) ** 0.5


def computed(s):
    return [w["compute_seconds"] for w in s["by_worker"]]


def near(a, b, relative):
    assert abs(a - b) <= relative * abs(b), f"{a} is not {b} to {relative}"


with scratch_folder() as folder:
    data = small_mnist(folder + "/data", 16384)  # more than any run goes through
    slow = ("--slow", "3:%d" % SLOW)
    plain, even = train(folder + "/plain"), train(folder + "/even", *slow)
    d = even["params"]

    # A pass of the whole batch takes T, whatever the network; --slow multiplies it.
    for r, seconds in enumerate(computed(plain)):
        near(seconds, STEPS * T, 1e-9)
    for r, seconds in enumerate(computed(even)):
        near(seconds, STEPS * T * (SLOW if r == 3 else 1), 1e-9)

    # ddp: a step is the slowest worker's computation and, from there, the exchange: shards of d /
    # n to n - 1 others and sums back, by the model's own costs, and a few microseconds of sums and
    # update, which the platform charges by their FLOPs.
    exchange = 2 * (LATENCY + (N - 1) * (4 * d / N + HEADER) / BYTES_A_SECOND)
    near(plain["wall_seconds"] / STEPS, T + exchange, 1e-3)
    near(even["wall_seconds"] / STEPS, SLOW * T + exchange, 2e-4)
    # a late worker finds the others' parts added up
    near(even["wall_seconds"] - plain["wall_seconds"], STEPS * (SLOW - 1) * T, 2e-5)
    for r in range(N):  # all others wait for the slow one, and it waits for the exchange only
        near(even["by_worker"][r]["exposed_comm_seconds"] / STEPS, exchange + ((SLOW - 1) * T if r != 3 else 0), 1e-2)
    assert model(folder + "/plain") == model(folder + "/even"), "a slow worker changed the parameters"

    # The best that can be had: n B samples at the sum of all speeds. `auto` starts evenly and looks
    # after 3 and 10 steps.
    best = STEPS * (T * N / (N - 1 + 1 / SLOW) + exchange)
    auto = train(folder + "/auto", *slow, "--batch-share", "auto")
    won = (even["wall_seconds"] - auto["wall_seconds"]) / (even["wall_seconds"] - best)
    assert 0.8 <= won <= 1, f"batch-share auto wins back {won:.3f} of what is possible"
    shares = [w["batch"] for w in auto["by_worker"]]
    # 256 / 7.2 = 35.6, 7.1
    assert sum(shares) == 32 * N and shares[3] == 7 and min(shares[:3] + shares[4:]) >= 35, shares
    assert auto["bytes_sent_total"] == even["bytes_sent_total"] and auto["samples"] == even["samples"]
    assert 0 < apart(model(folder + "/auto"),
                     model(folder + "/even")) < 1e-4, "shares by speed changed more than rounding"

    # Smaller passes cost in proportion.
    cut = train(folder + "/cut", "--batch-share", "1:2:1:2:1:2:1:2")
    for r, seconds in enumerate(computed(cut)):
        near(seconds, STEPS * T * cut["by_worker"][r]["batch"] / 32, 1e-8)

    # Large passes run in blocks whose gradients are added up: part of their time, not besides it.
    for seconds in computed(train(folder + "/large", "--steps", "4", "--batch", "300", "-n", "2")):
        near(seconds, 4 * T, 1e-9)

    # hetero-ring: 8 micro-batches of 4 samples each; 64 / 7.2 = 8.9 of them, 1.8 of the slow one's.
    # The rest of the time is the exchange's: the ring's 2 (n - 1) rounds where it is asked for; by
    # default the faster one's, here ddp's.
    each, round_a_ring = 9 * T / 8, 2 * (N - 1) * (LATENCY + (4 * d / N + HEADER) / BYTES_A_SECOND)
    for collective, exchanging in (("ring", round_a_ring), ("best", exchange)):
        out = folder + "/" + collective
        method = f"hetero-ring(adapt_every=5,collective={collective})"
        told = train(out, *slow, "--method", method, "--report-every", "10")
        passes = [w["passes"] for w in told["by_worker"]]
        assert passes == [9, 9, 9, 1, 9, 9, 9, 9], passes  # the largest remainders
        near(told["wall_seconds"], 5 * SLOW * T + 55 * each + STEPS * exchanging, 5e-3)
        assert apart(model(out), model(folder + "/even")) < 1e-4
        kinds = [e["kind"] for e in told["events"]]
        assert kinds == ["collective"] * (collective == "best") + ["allocation"] * 3, told["events"]
        with open(out + "/metrics.jsonl") as f:
            lines = [l for l in map(json.loads, f) if "train_loss" in l]
        near(lines[-1]["compute_seconds_by_worker"][3], 10 * SLOW * T / 8, 1e-6)
    words = (r"the all-reduces of a step, one after the other, are predicted to take (\S+) ms round a ring and (\S+) "
             r"ms " r"as the run's: the ring is taken for none")
    for predicted, due in zip(re.fullmatch(words, told["events"][0]["text"]).groups(), (round_a_ring, exchange)):
        near(float(predicted), 1e3 * due, 2e-2)
    assert apart(model(folder + "/ring"), model(folder + "/best")) > 0

    # Resumed in mid-window it ends with the same bytes.
    saved = ("--method", "hetero-ring(adapt_every=7)", "--checkpoint-every", "10", "--checkpoint-keep", "9")
    train(folder + "/whole", *slow, *saved)
    first = sorted(os.listdir(folder + "/whole/checkpoints"))[0]
    resumed = train(folder + "/resumed", *slow, *saved, "--resume", folder + "/whole/checkpoints/" + first)
    assert resumed["resumed_at_step"] == 10 and model(folder + "/whole") == model(folder + "/resumed")

    def cluster(spec):
        path = folder + "/" + spec.split("(")[0] + ".xml"
        done = subprocess.run([command, "platform", spec], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        with open(path, "w") as f:
            f.write(done.stdout)
        return "--platform", path

    # Links that differ, 12 workers: a round of a ring takes as long as the worst link has it, and
    # there are 22 of them, one after the other. hetero-ring has ddp's two rounds, and takes ddp's
    # time within a hundredth. With a worker that is 7 times slower it does so for a window; from
    # then on its steps are ddp's among equals but for the ninth micro-batch.
    links = "edge(n=12,slow_rate=50Mbps,rate=1Gbps,slow_latency=3ms,latency=100us)"
    mixed = (*cluster(links), "-n", "12", "--model", "mlp(hidden=8)", "--batch", "8", "--steps", "40")
    specs = {"ddp": "ddp", "best": "hetero-ring(adapt_every=20)", "ring": "hetero-ring(adapt_every=20,collective=ring)"}
    steps = {}
    for name, unequal in (("equal", ()), ("slow", ("--slow", "3:7"))):
        out = folder + f"/mixed-{name}-"
        told = {spec: train(out + spec, *mixed, *unequal, "--method", specs[spec]) for spec in ("ddp", "best")}
        walls = {spec: s["wall_seconds"] for spec, s in told.items()}
        steps[name] = walls["ddp"] / 40
        due = walls["ddp"] if name == "equal" else 20 * (steps["slow"] + steps["equal"] + T / 8)
        assert walls["best"] <= 1.01 * due, (walls, due)
        assert apart(model(out + "best"), model(out + "ddp")) < 1e-4
        assert told["best"]["events"][0]["text"].endswith("the ring is taken for none"), told["best"]["events"]
    ring = train(folder + "/mixed-ring", *mixed, "--method", specs["ring"])["wall_seconds"]
    assert ring > 2.5 * 40 * steps["equal"], (ring, steps)

    # Two machines of 4 that share 100 Mbit/s: 4 x 4 of ddp's shards cross in each of its two
    # rounds, one of the ring's in each of its 14, so the ring is the faster one and is taken; not
    # where the run has a faster one still.
    far, bytes_a_second, chunk = 500e-6, 100e6 / 8, 4 * d / N + HEADER
    machines = "two-level(machines=2,per_machine=4,rate=100Mbps,latency=%gus,inner_rate=10Gbps)"
    two, best = (*cluster(machines % 500), "--batch", "8"), "hetero-ring(allocation=equal)"
    runs = {"ddp": ["ddp"], "best": [best], "ring": ["hetero-ring(allocation=equal,collective=ring)"],
            "tree": [best, "--collective", "tree"]}
    told = {name: train(folder + "/two-" + name, *two, "--method", *words) for name, words in runs.items()}
    seconds = {name: s["wall_seconds"] / STEPS - T for name, s in told.items()}
    near(seconds["ring"], 2 * (N - 1) * (far + chunk / bytes_a_second), 1e-2)
    near(seconds["ddp"], 2 * (far + 16 * chunk / bytes_a_second), 1e-2)
    near(seconds["best"], seconds["ring"], 1e-6)
    assert seconds["best"] < 0.7 * seconds["ddp"] and seconds["tree"] < 0.9 * seconds["ring"], seconds
    assert model(folder + "/two-best") == model(folder + "/two-ring")
    assert apart(model(folder + "/two-best"), model(folder + "/two-tree")) > 0
    ends = {name: told[name]["events"][0]["text"].split(": ")[-1] for name in ("best", "tree")}
    assert ends == {"best": "the ring is taken for all", "tree": "the ring is taken for none"}, ends

    # A run resumed with another number of workers decides again: four of one machine have other
    # links than eight of two.
    saved = ("--steps", "4", "--method", best, "--checkpoint-every", "2", "--checkpoint-keep", "9")
    train(folder + "/eight", *two, *saved)
    first = folder + "/eight/checkpoints/" + sorted(os.listdir(folder + "/eight/checkpoints"))[0]
    fewer = train(folder + "/four", *two, *saved, "-n", "4", "--batch", "16", "--resume", first)
    assert fewer["resumed_at_step"] == 2, fewer
    assert fewer["events"][0]["text"].endswith("the ring is taken for none"), fewer["events"]

    # Of a model in two pieces, 1.1 and 1.6 MB, the ring is taken for the one that is worth its 14
    # latencies of 18 ms.
    two = train(folder + "/pieces", *cluster(machines % 18000), "--method", best, "--model", "mlp(hidden=512)",
                "--steps", "2", "--batch", "8")
    assert two["events"][0]["text"].endswith("the ring is taken for 1 of 2 pieces"), two["events"]

    # --platform is sim(platform=...); under --step-time its hosts' speeds have no effect on the
    # network, but its links do.
    platform = folder + "/a platform, (slow).xml"
    done = subprocess.run([command, "platform", "cluster(n=8,rate=1Gbps,latency=1ms)"], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0, done.stderr
    with open(platform, "w") as f:
        f.write(done.stdout)
    flag = train(folder + "/flag", "--platform", platform)
    spec = train(folder + "/spec", "--transport", 'sim(platform="%s")' % platform)
    both = train(folder + "/both", "--transport", 'sim(platform="%s",seed=3)' % platform, "--platform", platform)
    seconds = [s["wall_seconds"] for s in (flag, spec, both)]
    assert seconds[0] == seconds[1] == seconds[2] > 2 * plain["wall_seconds"] - STEPS * T, seconds
    near(computed(flag)[0], STEPS * T, 1e-9)
    # by FLOPs: 2 (784 32 + 32 32 + 32 10) forward, twice that and a little less back
    slower = train(folder + "/slower", "--transport", "sim", "--platform", platform, "--step-time", "0")
    assert computed(slower)[0] < 0.1 * STEPS * T

    def refused(sentence, *more):
        failed = subprocess.run([command, "train", "-n", "2", "--out", folder + "/none", *more], env=environment,
                                capture_output=True, text=True, timeout=60)
        assert failed.returncode == 2 and sentence in failed.stderr and failed.stderr.count("\n") == 1, failed.stderr
        assert not os.path.exists(folder + "/none")

    refused("platform is 'a.xml', but transport 'shm' has no platform; use it with --transport sim",
            "--platform", "a.xml")
    refused("platform is 'a.xml', but the transport is 'sim(platform=b.xml)'; name the platform once",
            "--platform", "a.xml", "--transport", "sim(platform=b.xml)")
    refused("step-time is 0.1 s, but with transport 'shm' time is real; use it with --transport sim, "
            "or slow workers down with --slow", "--step-time", "0.1")
    refused("tutti: --step-time is -1; it must be from 0", "--transport", "sim", "--step-time", "-1")
    refused("shn", "--step-time", "0.1", "--transport", "shn")
